//! Lines in which something was found: it stands out at a terminal, and is plain text elsewhere.

use std::ops::Range;

use threadkeep::search::find;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::output::Output;
use crate::style::Ink;
use crate::text;

const ELLIPSIS: &str = "…";
/// No character that is shown takes more bytes for each of its columns, marks that stand on it included.
const BYTES_PER_COLUMN: usize = 16;

/// A line fit for a terminal, and what is marked in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    text: String,
    /// Ranges of its bytes, in order and apart.
    marks: Vec<Range<usize>>,
}

impl Marked {
    /// A line of stored text with marks at ranges of its bytes. A mark covers each character that it touches.
    pub(crate) fn new(stored: &str, marks: &[Range<usize>]) -> Self {
        let mut ordered: Vec<_> = marks.iter().filter(|mark| !mark.is_empty()).cloned().collect();
        ordered.sort_by_key(|mark| mark.start);
        let mut waiting = ordered.into_iter().peekable();
        let mut line = Self::default();
        for (at, c) in stored.char_indices() {
            let end = at + c.len_utf8();
            while waiting.next_if(|mark| mark.end <= at).is_some() {}
            let is_marked = waiting.peek().is_some_and(|mark| mark.start < end);
            let shown = if c.is_whitespace() { ' ' } else { text::visible(c) };
            let from = line.text.len();
            line.text.push(shown);
            if is_marked {
                line.mark(from..line.text.len(), waiting.peek().is_some_and(|mark| mark.start >= at));
            }
        }
        line
    }

    /// The line as it would be around its first mark, in at most `columns`; what is cut off shows as an ellipsis.
    pub(crate) fn around(stored: &str, marks: &[Range<usize>], columns: usize) -> Self {
        let first = marks.first().cloned().unwrap_or_default();
        let room = columns.saturating_mul(BYTES_PER_COLUMN);
        let low = stored.floor_char_boundary(first.start.saturating_sub(room));
        let high = stored.ceil_char_boundary(first.end.saturating_add(room).min(stored.len()));
        let part = stored.get(low..high).unwrap_or_default();
        let inside = |mark: &Range<usize>| mark.start.max(low) - low..mark.end.clamp(low, high) - low;
        let marks: Vec<_> = marks.iter().filter(|mark| mark.start < high && mark.end > low).map(inside).collect();
        Self::new(part, &marks).cut(columns, low > 0, high < stored.len())
    }

    /// The text, without what is marked in it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The pieces of the line in order, and whether each is marked.
    pub(crate) fn pieces(&self) -> Vec<(&str, bool)> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for mark in &self.marks {
            pieces.push((self.text.get(at..mark.start).unwrap_or_default(), false));
            pieces.push((self.text.get(mark.clone()).unwrap_or_default(), true));
            at = mark.end;
        }
        pieces.push((self.text.get(at..).unwrap_or_default(), false));
        pieces.retain(|(piece, _)| !piece.is_empty());
        pieces
    }

    /// The line in a colour, and what is marked in another one, where colours are wanted.
    pub(crate) fn paint(&self, out: &Output, ink: Ink) -> String {
        let ink = |is_marked| if is_marked { Ink::Found } else { ink };
        self.pieces().into_iter().map(|(piece, is_marked)| out.paint(ink(is_marked), piece)).collect()
    }

    fn mark(&mut self, mark: Range<usize>, begins: bool) {
        match self.marks.last_mut().filter(|last| last.end == mark.start && !begins) {
            Some(last) => last.end = mark.end,
            None => self.marks.push(mark),
        }
    }

    /// At most `columns` of the line, so that its first mark is among them with a third of them before it.
    fn cut(self, columns: usize, before: bool, after: bool) -> Self {
        if !before && !after && text::width(&self.text) <= columns {
            return self;
        }
        let first = self.marks.first().map_or(0, |mark| mark.start);
        let clusters: Vec<(usize, &str)> = self.text.grapheme_indices(true).collect();
        let middle = clusters.partition_point(|(at, _)| *at < first);
        let (mut start, mut led) = (middle, 0);
        while let Some((_, cluster)) = start.checked_sub(1).and_then(|before| clusters.get(before)) {
            led += text::width(cluster);
            if led > columns / 3 {
                break;
            }
            start -= 1;
        }
        let cut_before = before || start > 0;
        let mut room = columns.saturating_sub(usize::from(cut_before));
        let mut end = start;
        for (index, (_, cluster)) in clusters.iter().enumerate().skip(start) {
            let width = text::width(cluster);
            let is_last = index + 1 == clusters.len() && !after;
            if width + usize::from(!is_last) > room {
                break;
            }
            room -= width;
            end = index + 1;
        }
        let offset = |index: usize| clusters.get(index).map_or(self.text.len(), |(at, _)| *at);
        let (low, high) = (offset(start), offset(end));
        let lead = if cut_before && columns > 0 { ELLIPSIS } else { "" };
        let tail = if (after || end < clusters.len()) && columns > lead.len().min(1) { ELLIPSIS } else { "" };
        let shift = |at: usize| at.clamp(low, high) - low + lead.len();
        let marks = self.marks.iter().map(|mark| shift(mark.start)..shift(mark.end)).filter(|mark| !mark.is_empty());
        Self { marks: marks.collect(), text: format!("{lead}{}{tail}", self.text.get(low..high).unwrap_or_default()) }
    }
}

/// Words that stand out wherever they stand as words of their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words(Vec<String>);

impl Words {
    /// The words that a snippet marks.
    pub(crate) fn of<'a>(snippets: impl IntoIterator<Item = (&'a str, &'a [Range<usize>])>) -> Self {
        let mut words: Vec<String> = Vec::new();
        for (text, marks) in snippets {
            let marked = marks.iter().filter_map(|mark| text.get(mark.clone()));
            words.extend(marked.filter(|word| !word.trim().is_empty()).map(str::to_lowercase));
        }
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    /// The line with these words marked in it.
    pub(crate) fn mark(&self, line: &str) -> Marked {
        if self.0.is_empty() {
            return Marked { text: line.to_owned(), marks: Vec::new() };
        }
        let mut marks = Vec::new();
        for word in &self.0 {
            marks.extend(find(line, word).filter(|place| stands_alone(line, place)));
        }
        marks.sort_by_key(|mark: &Range<usize>| (mark.start, std::cmp::Reverse(mark.end)));
        marks.dedup_by(|later, earlier| later.start < earlier.end);
        Marked { text: line.to_owned(), marks }
    }
}

fn stands_alone(line: &str, range: &Range<usize>) -> bool {
    let before = line.get(..range.start).and_then(|text| text.chars().next_back());
    let after = line.get(range.end..).and_then(|text| text.chars().next());
    let word = line.get(range.clone()).unwrap_or_default();
    let is_one = |one: Option<char>, other: Option<char>| one.is_some_and(joins) && other.is_some_and(joins);
    !is_one(before, word.chars().next()) && !is_one(word.chars().next_back(), after)
}

/// Whether a character makes one word with its neighbours. The scripts behind these write no spaces.
fn joins(c: char) -> bool {
    c.is_alphanumeric() && c < '\u{2e80}'
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::{Marked, Words};
    use crate::text;

    /// The line with its marks in brackets.
    fn shown(line: &Marked) -> String {
        let piece = |(piece, is_marked): (&str, bool)| if is_marked { format!("[{piece}]") } else { piece.to_owned() };
        line.pieces().into_iter().map(piece).collect()
    }

    #[test]
    fn marks_move_with_the_text_that_is_made_safe() {
        let stored = "a\x1b[31m red\tline\u{202e}\r";
        let at = stored.find("red").unwrap();
        let line = Marked::new(stored, &[at..at + 3]);
        assert_eq!(shown(&line), "a␛[31m [red] line\u{fffd} ");
        assert_eq!(shown(&Marked::new("rate limit", &[0..4, 5..10])), "[rate] [limit]");
        assert_eq!(shown(&Marked::new("日本語", &[0..3, 3..6])), "[日][本]語");
    }

    #[test]
    fn marks_that_fit_no_character_do_no_harm() {
        assert_eq!(shown(&Marked::new("日本", &[1..2])), "[日]本");
        assert_eq!(shown(&Marked::new("ab", &[1..99, 5..6, 0..0])), "a[b]");
        assert_eq!(shown(&Marked::around("ab", &[7..9], 10)), "ab");
    }

    #[test]
    fn a_long_line_is_shown_around_its_first_mark() {
        let line = format!("{}needle{}", "x ".repeat(50_000), " y".repeat(50_000));
        let mark = 100_000..100_006;
        for columns in 0..60 {
            let cut = Marked::around(&line, std::slice::from_ref(&mark), columns);
            assert!(text::width(cut.text()) <= columns, "{columns}: {cut:?}");
            assert_eq!(shown(&cut).contains("[needle]"), columns > 10, "{columns}: {}", shown(&cut));
        }
        let cut = Marked::around(&line, &[mark], 20);
        assert_eq!(shown(&cut), "…x x x [needle] y y y…");
        assert_eq!(shown(&Marked::around("short needle", &[6..12], 20)), "short [needle]");
        assert_eq!(shown(&Marked::around("日本語の題名がとても長い", &[18..21], 12)), "…題名[が]とて…");
    }

    #[test]
    fn words_stand_out_as_words_alone() {
        let snippet = "The Log in 日本 İx";
        let words = Words::of([(snippet, &[4..7, 11..14][..])]);
        assert_eq!(shown(&words.mark("log, LOG; login catalog 日本 log")), "[log], [LOG]; login catalog [日]本 [log]");
        assert_eq!(shown(&Words::default().mark("log")), "log");
        let folded = Words::of([("İ", &[0..2][..])]);
        assert_eq!(shown(&folded.mark("an İ here")), "an [İ] here");
    }
}
