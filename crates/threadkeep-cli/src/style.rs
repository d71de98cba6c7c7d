//! The few colours of the program, by what they mean.

use anstyle::{AnsiColor, Style};

/// What a piece of text is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Ordinary text.
    Plain,
    /// A title.
    Strong,
    /// What is there for reference: ids, depths, times.
    Dim,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
    /// What a model thought.
    Thought,
    /// What was looked for.
    Found,
    /// Something good, or alive.
    Good,
    /// Something to be aware of.
    Warn,
    /// Something broken.
    Bad,
    /// Advice.
    Hint,
}

impl Ink {
    /// The text in this colour, or as it is.
    pub(crate) fn paint(self, text: &str, styled: bool) -> String {
        let style = self.style();
        if styled && !text.is_empty() && style != Style::new() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Dim => Style::new().dimmed(),
            Self::User => colour(AnsiColor::Green).bold(),
            Self::Assistant => colour(AnsiColor::Cyan).bold(),
            Self::Tool => colour(AnsiColor::Magenta),
            Self::Thought => Style::new().dimmed().italic(),
            Self::Found => colour(AnsiColor::Yellow).bold(),
            Self::Good => colour(AnsiColor::Green),
            Self::Warn => colour(AnsiColor::Yellow),
            Self::Bad => colour(AnsiColor::Red).bold(),
            Self::Hint => colour(AnsiColor::Blue).bold(),
        }
    }
}
