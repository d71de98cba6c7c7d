//! Stored text made fit for a terminal: no control characters, known widths, clean cuts.

use std::borrow::Cow;

pub(crate) use threadkeep::search::visible;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

const ELLIPSIS: &str = "…";

/// The text with every character replaced that could steer a terminal or hide what stands there. Line feeds and tabs stay.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| !matches!(c, '\n' | '\t') && visible(c) != c) {
        return Cow::Borrowed(text);
    }
    let text = text.replace("\r\n", "\n");
    Cow::Owned(text.chars().map(|c| if matches!(c, '\n' | '\t') { c } else { visible(c) }).collect())
}

/// The same on a single line: every run of white space is one space.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(word.chars().map(visible));
    }
    out
}

/// How many columns a line takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// At most `columns` columns of a line; what is cut off shows as an ellipsis. A character is never split from its marks.
pub(crate) fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let room = columns.saturating_sub(width(ELLIPSIS));
    let mut used = 0;
    for cluster in text.graphemes(true) {
        used += width(cluster);
        if used > room {
            break;
        }
        out.push_str(cluster);
    }
    if columns > 0 {
        out.truncate(out.trim_end().len());
        out.push_str(ELLIPSIS);
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::{clean, cut, one_line, width};

    #[test]
    fn control_characters_show_and_do_nothing() {
        assert_eq!(clean("a\x1b[31mb\x07\n\tc\u{9b}2J"), "a␛[31mb␇\n\tc\u{fffd}2J");
        assert_eq!(clean("one\r\ntwo\rthree"), "one\ntwo␍three");
        assert_eq!(clean("\u{202e}txt.exe"), "\u{fffd}txt.exe");
        assert_eq!(one_line(" a\n\n b\t\x1b]0;x\x07 "), "a b ␛]0;x␇");
    }

    #[test]
    fn a_cut_keeps_characters_whole_and_fits() {
        let family = "👨\u{200d}👩\u{200d}👧";
        for text in ["ascii text", "日本語の題名", "e\u{301}e\u{301}e\u{301}e\u{301}", &family.repeat(4)] {
            for columns in 0..12 {
                let short = cut(text, columns);
                assert!(width(&short) <= columns, "{text} to {columns}: {short}");
                let kept = short.strip_suffix('…').unwrap_or(&short);
                assert!(text.starts_with(kept));
            }
        }
        assert_eq!(cut("日本語の題名", 6), "日本…");
        assert_eq!(cut(&family.repeat(4), 4), format!("{family}…"));
    }
}
