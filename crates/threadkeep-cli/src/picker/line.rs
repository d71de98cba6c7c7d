//! The line that is typed.

use unicode_segmentation::UnicodeSegmentation as _;

use crate::text;

/// A line and the place in it where typing goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    text: String,
    /// In bytes.
    cursor: usize,
}

impl Line {
    /// A line with the cursor at its end.
    pub(super) fn new(text: &str) -> Self {
        let mut line = Self::default();
        line.insert(text);
        line
    }

    /// What is typed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The end of the line that is seen in so many columns, and the column of the cursor in it.
    pub(super) fn window(&self, columns: usize) -> (&str, usize) {
        let before = self.before();
        let room = columns.saturating_sub(1);
        let mut start = 0;
        let mut width = text::width(before);
        for (at, cluster) in before.grapheme_indices(true) {
            if width <= room {
                break;
            }
            width -= text::width(cluster);
            start = at + cluster.len();
        }
        (self.text.get(start..).unwrap_or_default(), width)
    }

    /// Types or pastes. Line breaks are spaces, and what steers a terminal is left out.
    pub(super) fn insert(&mut self, typed: &str) {
        let typed: String = typed.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
        let typed: String = typed.chars().filter(|c| text::visible(*c) == *c).collect();
        self.text.insert_str(self.cursor, &typed);
        self.cursor += typed.len();
    }

    pub(super) fn left(&mut self) {
        self.cursor -= self.before().graphemes(true).next_back().map_or(0, str::len);
    }

    pub(super) fn right(&mut self) {
        self.cursor += self.after().graphemes(true).next().map_or(0, str::len);
    }

    pub(super) fn home(&mut self) {
        self.cursor = 0;
    }

    pub(super) fn end(&mut self) {
        self.cursor = self.text.len();
    }

    pub(super) fn backspace(&mut self) {
        let end = self.cursor;
        self.left();
        self.text.drain(self.cursor..end);
    }

    pub(super) fn delete(&mut self) {
        let length = self.after().graphemes(true).next().map_or(0, str::len);
        self.text.drain(self.cursor..self.cursor + length);
    }

    /// Takes away the word before the cursor.
    pub(super) fn delete_word(&mut self) {
        let kept = self.before().trim_end();
        let start =
            kept.rfind(char::is_whitespace).map_or(0, |at| at + kept[at..].chars().next().map_or(0, char::len_utf8));
        self.text.drain(start..self.cursor);
        self.cursor = start;
    }

    /// Takes away everything before the cursor.
    pub(super) fn delete_to_start(&mut self) {
        self.text.drain(..self.cursor);
        self.cursor = 0;
    }

    /// Takes away everything behind the cursor.
    pub(super) fn delete_to_end(&mut self) {
        self.text.truncate(self.cursor);
    }

    fn before(&self) -> &str {
        self.text.get(..self.cursor).unwrap_or_default()
    }

    fn after(&self) -> &str {
        self.text.get(self.cursor..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn a_character_is_never_split() {
        let family = "👨\u{200d}👩\u{200d}👧";
        let mut line = Line::new(&format!("a日{family}e\u{301}"));
        line.backspace();
        assert_eq!(line.text(), format!("a日{family}"));
        line.left();
        line.insert("b");
        assert_eq!(line.text(), format!("a日b{family}"));
        line.delete();
        assert_eq!(line.text(), "a日b");
        line.home();
        line.right();
        line.delete();
        line.delete();
        line.delete();
        assert_eq!((line.text(), line.window(10)), ("a", ("a", 1)));
        line.delete_to_start();
        line.backspace();
        line.left();
        line.right();
        assert_eq!(line, Line::default());
    }

    #[test]
    fn words_and_sides_are_taken_away() {
        let mut line = Line::new("one two  three ");
        line.delete_word();
        assert_eq!(line.text(), "one two  ");
        line.delete_word();
        assert_eq!(line.text(), "one ");
        line.left();
        line.delete_to_end();
        assert_eq!(line.text(), "one");
        line.delete_word();
        line.delete_word();
        assert_eq!(line.text(), "");
    }

    #[test]
    fn what_is_pasted_steers_nothing_and_the_cursor_stays_in_sight() {
        let mut line = Line::new("a\x1b[31m\n\tb\u{202e}\u{9b}");
        assert_eq!(line.text(), "a[31m  b");
        line.end();
        assert_eq!(line.window(4), ("  b", 3));
        assert_eq!(Line::new("日本語").window(4), ("語", 2));
        assert_eq!(Line::new("日本語").window(0), ("", 0));
        line.home();
        assert_eq!(line.window(4), ("a[31m  b", 0));
    }
}
