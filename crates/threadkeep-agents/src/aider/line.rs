//! The lines of Aider's chat history, and what they are.
//!
//! Aider ends every line of a prompt and every notice with two spaces, and what a model says hardly ever does: that tells a prompt
//! (`#### `) from a heading in an answer, and a notice (`> `) from a quote. Where an editor has taken the spaces away, a
//! prompt is known by what stands before it.

use serde::{Deserialize, Serialize};
use threadkeep::{Timestamp, Usage};

use crate::text::{Grammar, Piece};

const SESSION: &[u8] = b"# aider chat started at ";
const PROMPT: &[u8] = b"#### ";
const NOTICE: &[u8] = b"> ";
/// The notice behind every answer.
const TOKENS: &[u8] = b"> Tokens: ";
/// Commands that say something to the model.
const ASKING: [&str; 4] = ["/ask ", "/code ", "/architect ", "/context "];

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    /// The start of a session.
    Session,
    /// What a person typed.
    Prompt,
    /// What the program says.
    Notice,
    /// What the model said.
    Answer,
}

impl Class {
    /// What a record is, by its lines.
    pub(super) fn of(record: &[u8]) -> Self {
        let first = record.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_line = first.len() == record.len();
        if first.starts_with(SESSION) {
            Self::Session
        } else if record.split(|byte| *byte == b'\n').all(|line| line.starts_with(PROMPT)) {
            Self::Prompt
        } else if first.starts_with(NOTICE) && (is_line || has_spaces(record)) {
            Self::Notice
        } else {
            Self::Answer
        }
    }
}

/// The grammar of the lines.
#[derive(Debug)]
pub(super) struct Lines {
    last: Option<Class>,
    /// Whether an empty line came since.
    is_apart: bool,
    /// Whether the last record is a notice of several lines that has not ended yet.
    is_unended: bool,
}

impl Lines {
    /// Lines that follow a record.
    pub(super) fn after(last: Option<Class>) -> Self {
        Self { last, is_apart: false, is_unended: false }
    }

    fn begins(&mut self, class: Class) -> Piece {
        (self.last, self.is_apart, self.is_unended) = (Some(class), false, false);
        Piece::Begins { asks: class == Class::Prompt }
    }

    /// Whether what looks like a prompt or a notice, but for its spaces, is a part of an answer.
    fn is_in_answer(&self) -> bool {
        self.last == Some(Class::Answer) || (self.last == Some(Class::Prompt) && self.is_apart)
    }
}

impl Grammar for Lines {
    fn line(&mut self, line: &[u8]) -> Piece {
        if line.trim_ascii().is_empty() {
            (self.is_apart, self.is_unended) = (true, false);
            return Piece::Between;
        }
        if let Some((name, at)) = session(line) {
            (self.last, self.is_apart, self.is_unended) = (Some(Class::Session), false, false);
            return Piece::Session { name, at };
        }
        if line.starts_with(PROMPT) && (has_spaces(line) || !self.is_in_answer()) {
            return match self.last == Some(Class::Prompt) && !self.is_apart {
                true => Piece::Continues,
                false => self.begins(Class::Prompt),
            };
        }
        if line.starts_with(NOTICE) && (has_spaces(line) || line.starts_with(TOKENS) || !self.is_in_answer()) {
            let piece = self.begins(Class::Notice);
            self.is_unended = !has_spaces(line) && !line.starts_with(TOKENS);
            return piece;
        }
        if self.is_unended {
            self.is_unended = !has_spaces(line);
            return Piece::Continues;
        }
        match self.last == Some(Class::Answer) {
            true => {
                self.is_apart = false;
                Piece::Continues
            }
            false => self.begins(Class::Answer),
        }
    }

    fn is_open(&self) -> bool {
        self.is_unended || self.last == Some(Class::Answer)
    }
}

/// Whether a line ends as Aider ends its own.
fn has_spaces(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line).ends_with(b"  ")
}

/// Whether a line of this text begins a session.
pub(super) fn begins_session(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| line.starts_with(SESSION))
}

/// The name of the session that a line begins, and its time. The clock is that of the machine, which does not say its zone.
pub(super) fn session(line: &[u8]) -> Option<(String, Option<Timestamp>)> {
    let first = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let time = String::from_utf8_lossy(first.strip_prefix(SESSION)?).trim().replacen(' ', "T", 1);
    let at = Timestamp::parse(&format!("{time}Z"));
    let name: String =
        time.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).take(40).collect();
    Some((if name.is_empty() { "start".to_owned() } else { name }, at))
}

/// What a record says, without the marks of its lines.
pub(super) fn said(record: &[u8]) -> String {
    let text = String::from_utf8_lossy(record);
    let mark = match Class::of(record) {
        Class::Session => "# ",
        Class::Prompt => "#### ",
        Class::Notice => "> ",
        Class::Answer => return text.trim().to_owned(),
    };
    let lines = text.lines().map(|line| line.strip_prefix(mark).unwrap_or(line).trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a prompt is one to the program: its first word is a command's.
pub(super) fn is_command(record: &[u8]) -> bool {
    let said = said(record);
    said.starts_with(['/', '!']) && !ASKING.iter().any(|command| said.starts_with(command))
}

/// Tokens as Aider rounds them: `1.2k sent, 300 cache hit, 40 received.`
pub(super) fn tokens(said: &str) -> Option<Usage> {
    let mut usage = Usage::default();
    let counts = said.split(". ").next().unwrap_or_default().trim_end_matches('.');
    for part in counts.split(", ") {
        let (count, what) = part.split_once(' ')?;
        let (digits, factor) = count.strip_suffix('k').map_or((count, 1), |digits| (digits, 1_000));
        let (whole, tenths) = digits.split_once('.').unwrap_or((digits, "0"));
        let whole: u64 = whole.replace(',', "").parse().ok()?;
        let tenths: u64 = tenths.parse().ok().filter(|tenths| *tenths < 10)?;
        let count = whole.checked_mul(factor)?.checked_add(tenths * factor / 10)?;
        match what {
            "sent" => usage.input = count,
            "cache hit" => usage.cached = count,
            "received" => usage.output = count,
            _ => {}
        }
    }
    Some(usage)
}
