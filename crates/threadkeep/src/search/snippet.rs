//! The line of a text that shows best why it was found.

use std::ops::Range;

use serde::Serialize;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use super::matching::occurrences;
use super::query::Node;
use super::text::{Field, NormalText, Section, Source, is_inside_word, normal_with_sources};

/// Signs with which a sentence, or a part of one, ends.
const ENDS: &str = ",.;:!?)]},，。；：！？、）」』";

/// A line of a text, around what was found in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// Which of the given texts it is from.
    #[serde(skip)]
    pub index: usize,
    /// One line, fit for a terminal: no control characters, no sequences, nothing that turns the direction of writing.
    pub text: String,
    /// What was found, as bytes of `text`, in order and apart from each other.
    pub marks: Vec<Range<usize>>,
    /// Whether there is more of the text before it.
    pub cut_before: bool,
    /// Whether there is more of the text after it.
    pub cut_after: bool,
}

/// Bytes of the source that are looked at on either side of what was found, for each column of the snippet.
const BYTES_PER_COLUMN: usize = 8;
const FEWEST_BYTES: usize = 256;

/// The part of these texts, at most `width` columns wide, where most of what was asked for stands together; the earliest of several.
///
/// Words are cut only if they are longer than the snippet. It is the beginning of the first text if nothing of the query
/// stands in any. Only what is indexed is looked at, so the cost is bounded as indexing is.
pub fn snippet(fields: &[(Field, &str)], wanted: &Node, width: usize) -> Snippet {
    let (text, sources) = normal_with_sources(fields);
    let best = best_window(&text, &sources, wanted, width);
    let Some(Window { index, places, .. }) = best else { return beginning(&sources, width) };
    let Some(source) = sources.get(index) else { return Snippet::default() };
    let (Some(first), Some(last)) = (places.first(), places.iter().map(|place| place.end).max()) else {
        return Snippet::default();
    };
    let line = Line::around(*source, first.start..last, width);
    let marks = apart(places.iter().filter_map(|place| line.shown(place)).collect());
    line.cut_to(width, marks, index)
}

/// Where a phrase stands in its source.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    phrase: usize,
}

/// Places of one text that fit into a snippet.
struct Window {
    index: usize,
    distinct: u32,
    places: Vec<Place>,
}

fn beginning(sources: &[Source<'_>], width: usize) -> Snippet {
    let lines = sources.iter().enumerate().map(|(index, source)| (index, Line::around(*source, 0..0, width)));
    let first = lines.into_iter().find(|(_, line)| !line.text.is_empty());
    first.map_or_else(Snippet::default, |(index, line)| line.cut_to(width, Vec::new(), index))
}

fn best_window(text: &NormalText, sources: &[Source<'_>], wanted: &Node, width: usize) -> Option<Window> {
    let mut best: Option<Window> = None;
    let mut places = places_by_section(text, wanted);
    for (section, places) in text.sections.iter().zip(&mut places) {
        places.sort_by_key(|place| (place.start, place.end));
        let Some(source) = sources.get(section.index) else { continue };
        let Some((distinct, range)) = fullest(*source, places, width) else { continue };
        if best.as_ref().is_none_or(|best| distinct > best.distinct) {
            let places = places.get(range).unwrap_or_default().to_vec();
            best = Some(Window { index: section.index, distinct, places });
        }
    }
    best
}

/// The places of all phrases, for each section.
fn places_by_section(text: &NormalText, wanted: &Node) -> Vec<Vec<Place>> {
    let mut places = vec![Vec::new(); text.sections.len()];
    for occurrence in occurrences(wanted, text) {
        let stream = if occurrence.is_in_parts { &text.parts } else { &text.words };
        let terms = |section: &Section| if occurrence.is_in_parts { section.parts.end } else { section.words.end };
        let section = text.sections.partition_point(|section| terms(section) <= occurrence.terms.start);
        let first = stream.get(occurrence.terms.start);
        let last = stream.get(occurrence.terms.end.saturating_sub(1));
        if let (Some(places), Some(first), Some(last)) = (places.get_mut(section), first, last) {
            places.push(Place { start: first.start, end: last.end, phrase: occurrence.phrase });
        }
    }
    places
}

/// The places in a row that hold most phrases within a width, with how many those are.
fn fullest(source: Source<'_>, places: &[Place], width: usize) -> Option<(u32, Range<usize>)> {
    // The column at which each place begins, as far as it matters: gaps wider than a snippet are as wide as one.
    let mut columns = Vec::with_capacity(places.len());
    let (mut column, mut before) = (0, places.first()?.start);
    for place in places {
        column += columns_between(source, before, place.start, width);
        columns.push(column);
        before = place.start;
    }
    let mut best: Option<(u32, Range<usize>)> = None;
    let (mut counts, mut distinct) = ([0_u32; 64], 0_u32);
    let mut first = 0;
    for (last, place) in places.iter().enumerate() {
        if let Some(count) = counts.get_mut(place.phrase % 64) {
            *count += 1;
            distinct += u32::from(*count == 1);
        }
        let end = columns.get(last)? + columns_between(source, place.start, place.end, width);
        while first < last && end - columns.get(first)? > width {
            if let Some(count) = counts.get_mut(places.get(first)?.phrase % 64) {
                *count -= 1;
                distinct -= u32::from(*count == 0);
            }
            first += 1;
        }
        let is_longer = best.as_ref().is_some_and(|(most, range)| distinct == *most && range.start == first);
        if is_longer || best.as_ref().is_none_or(|(most, _)| distinct > *most) {
            best = Some((distinct, first..last + 1));
        }
    }
    best
}

/// How many columns a range of the source takes; more than `width` are one more.
fn columns_between(source: Source<'_>, start: usize, end: usize, width: usize) -> usize {
    if end.saturating_sub(start) > reach(width) {
        return width + 1;
    }
    Line::of(source, start..end).text.width().min(width + 1)
}

fn reach(width: usize) -> usize {
    width.saturating_mul(BYTES_PER_COLUMN).saturating_add(FEWEST_BYTES)
}

/// A range of a source as it is shown, on one line.
struct Line {
    text: String,
    /// Where each character of the source begins, in the source and in `text`.
    places: Vec<(usize, usize)>,
    /// What must be in the snippet, in `text`.
    core: Range<usize>,
    has_before: bool,
    has_after: bool,
}

impl Line {
    fn of(source: Source<'_>, range: Range<usize>) -> Self {
        let mut line = Self {
            text: String::new(),
            places: Vec::new(),
            core: 0..0,
            has_before: range.start > source.trimmed().start,
            has_after: range.end < source.trimmed().end,
        };
        let mut at = range.start;
        let mut is_space = false;
        while let Some((c, next)) = source.char_at(at).filter(|_| at < range.end) {
            let sequence = if c == '\u{1b}' { source.sequence_end(next) } else { next };
            if sequence > next {
                at = sequence;
                continue;
            }
            if c.is_whitespace() {
                is_space = !line.text.is_empty();
            } else {
                if std::mem::take(&mut is_space) {
                    line.text.push(' ');
                }
                line.places.push((at, line.text.len()));
                line.text.push(visible(c));
            }
            at = next;
        }
        line
    }

    /// What is around a range of the source, so much that a snippet of this width can be cut from it.
    fn around(source: Source<'_>, found: Range<usize>, width: usize) -> Self {
        let reach = reach(width);
        let found = found.start..found.end.min(found.start.saturating_add(reach));
        let start = source.boundary(found.start.saturating_sub(reach));
        let end = source.boundary(found.end.saturating_add(reach).min(source.len()));
        let mut line = Self::of(source, source.after_space(start, found.start)..end);
        line.core = line.shown_at(found.start)..line.shown_at(found.end);
        line
    }

    /// Where a place of the source is shown.
    fn shown_at(&self, at: usize) -> usize {
        let index = self.places.partition_point(|(source, _)| *source < at);
        self.places.get(index).map_or(self.text.len(), |(_, shown)| *shown)
    }

    /// What is shown of a place.
    fn shown(&self, place: &Place) -> Option<Range<usize>> {
        let start = self.shown_at(place.start);
        let end = self.shown_at(place.end);
        // The space before the next character is not part of it.
        let end = start + self.text.get(start..end)?.trim_end().len();
        (start < end).then_some(start..end)
    }

    /// The snippet of this line: the core with as much around it as fits, by whole words.
    fn cut_to(self, width: usize, marks: Vec<Range<usize>>, index: usize) -> Snippet {
        let clusters: Vec<(usize, usize)> =
            self.text.grapheme_indices(true).map(|(at, text)| (at, text.width())).collect();
        let kept = self.kept(&clusters, width);
        let text = self.text.get(kept.clone()).unwrap_or_default();
        let start = kept.start + text.len() - text.trim_start().len();
        let text = text.trim();
        let end = start + text.len();
        let marks = marks.into_iter().map(|mark| mark.start.max(start)..mark.end.min(end));
        Snippet {
            index,
            text: text.to_owned(),
            marks: marks
                .filter(|mark| mark.start < mark.end)
                .map(|mark| mark.start - start..mark.end - start)
                .collect(),
            cut_before: self.has_before || start > 0,
            cut_after: self.has_after || end < self.text.len(),
        }
    }

    /// Which bytes of the line are kept.
    fn kept(&self, clusters: &[(usize, usize)], width: usize) -> Range<usize> {
        let offset = |index: usize| clusters.get(index).map_or(self.text.len(), |(at, _)| *at);
        let columns = |index: usize| clusters.get(index).map_or(0, |(_, columns)| *columns);
        let mut first = clusters.partition_point(|(at, _)| *at <= self.core.start).saturating_sub(1);
        let mut last = first;
        let mut room = width;
        // The core, then a third of what is left before it, the rest after it, and what that leaves before it again.
        let grow_after = |last: &mut usize, room: &mut usize, end: usize| {
            while offset(*last) < end && columns(*last) <= *room {
                *room -= columns(*last);
                *last += 1;
            }
        };
        grow_after(&mut last, &mut room, self.core.end);
        let is_whole = offset(last) >= self.core.end;
        let (core_start, core_end) = (offset(first), offset(last));
        let mut part = room / 3;
        room -= part;
        let grow_before = |first: &mut usize, room: &mut usize| {
            while *first > 0 && columns(*first - 1) <= *room {
                *first -= 1;
                *room -= columns(*first);
            }
        };
        grow_before(&mut first, &mut part);
        room += part;
        if is_whole {
            grow_after(&mut last, &mut room, self.text.len());
        }
        grow_before(&mut first, &mut room);
        let start = self.word_start(offset(first), core_start);
        let end = if is_whole { self.word_end(offset(last), core_end) } else { offset(last) };
        start..end
    }

    /// The first place from `at` up to `most` that is not inside of a word; `at` if all of it is one.
    fn word_start(&self, at: usize, most: usize) -> usize {
        let Some(part) = self.text.get(at..most) else { return at };
        let ends = part.char_indices().map(|(index, _)| at + index).chain([most]);
        let start = ends.into_iter().find(|place| !self.is_inside_word(*place)).unwrap_or(at);
        let kept = self.text.get(start..most).filter(|_| start > 0).unwrap_or_default();
        // What ends the sentence before says nothing here.
        start + kept.len() - kept.trim_start_matches(|c: char| c.is_whitespace() || ENDS.contains(c)).len()
    }

    /// The last place from `at` down to `least` that is not inside of a word; `at` if all of it is one.
    fn word_end(&self, at: usize, least: usize) -> usize {
        let Some(part) = self.text.get(least..at) else { return at };
        let starts = part.char_indices().rev().map(|(index, _)| least + index);
        [at].into_iter().chain(starts).find(|place| !self.is_inside_word(*place)).unwrap_or(at)
    }

    fn is_inside_word(&self, at: usize) -> bool {
        let before = self.text.get(..at).and_then(|text| text.chars().next_back());
        let after = self.text.get(at..).and_then(|text| text.chars().next());
        before.zip(after).is_some_and(|(before, after)| is_inside_word(before, after))
    }
}

/// The same ranges in order, with those joined that touch each other.
fn apart(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The character, or one in its place that shows itself and does nothing: no control character, nothing that turns the direction of
/// writing. Line feeds and tabs are replaced too.
pub fn visible(c: char) -> char {
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

#[cfg(test)]
mod tests {
    use super::{Field, Snippet, snippet};
    use crate::search::query::{Node, phrase};

    fn all(words: &[&str]) -> Node {
        Node::All(words.iter().map(|word| phrase(word).unwrap()).collect())
    }

    /// The snippet with its marks in brackets and an ellipsis where it is cut.
    fn drawn(snippet: &Snippet) -> String {
        let mut out = if snippet.cut_before { "…".to_owned() } else { String::new() };
        let mut at = 0;
        for mark in &snippet.marks {
            out.push_str(&snippet.text[at..mark.start]);
            out.push_str(&format!("[{}]", &snippet.text[mark.clone()]));
            at = mark.end;
        }
        out.push_str(&snippet.text[at..]);
        out.push_str(if snippet.cut_after { "…" } else { "" });
        out
    }

    fn cut(text: &str, words: &[&str], width: usize) -> String {
        drawn(&snippet(&[(Field::Said, text)], &all(words), width))
    }

    #[test]
    fn a_short_text_is_shown_whole_on_one_line() {
        assert_eq!(cut("  Why does\n\n\tthe login test fail?\n", &["LOGIN"], 80), "Why does the [login] test fail?");
        assert_eq!(cut("Straße und Strasse", &["strasse"], 80), "[Straße] und [Strasse]");
        assert_eq!(cut("nothing of it", &["else"], 80), "nothing of it");
        assert_eq!(cut("parseHttpRequest fails", &["http request"], 80), "parse[HttpRequest] fails");
        assert_eq!(cut("", &["x"], 80), "");
    }

    #[test]
    fn it_is_where_most_stands_together_and_words_are_whole() {
        let text = "timeout at first, and then for a long while nothing of any interest happens at all, \
            until the database reports a timeout of its connection pool, which is why we looked here.";
        assert_eq!(
            cut(text, &["timeout", "database", "pool"], 60),
            "…[database] reports a [timeout] of its connection [pool], which…"
        );
        assert_eq!(cut(text, &["timeout"], 30), "[timeout] at first, and then for…");
        assert_eq!(cut(text, &["here"], 30), "…which is why we looked [here].");
    }

    #[test]
    fn wide_characters_count_twice_and_need_no_spaces() {
        let text = "我们需要修改数据库连接的超时设置，然后重新运行所有的测试用例。";
        let short = snippet(&[(Field::Said, text)], &all(&["超时"]), 20);
        assert_eq!(drawn(&short), "…接的[超时]设置，然后重…");
        assert_eq!(cut("👨\u{200d}👩\u{200d}👧 family", &["family"], 80), "👨\u{200d}👩\u{200d}👧 [family]");
    }

    #[test]
    fn what_steers_a_terminal_is_made_visible_or_left_out() {
        assert_eq!(
            cut("\x1b[1;31merror\x1b[0m: \x1b]0;title\x07bad\0 \u{202e}txt", &["error"], 80),
            "[error]: bad␀ \u{fffd}txt"
        );
    }

    #[test]
    fn escapes_of_json_are_read() {
        let fields = [(Field::Call, "bash"), (Field::Call, r#"{"command":"cd src\ncargo test --name \"caf\u00e9\""}"#)];
        let found = snippet(&fields, &all(&["cargo", "café"]), 80);
        assert_eq!((found.index, drawn(&found).as_str()), (1, r#"{"command":"cd src [cargo] test --name "[café]""}"#));
    }

    #[test]
    fn a_long_word_is_cut() {
        let text = format!("{}Needle{}", "x".repeat(100), "Y".repeat(100));
        let found = snippet(&[(Field::Said, &text)], &all(&[&"x".repeat(64)]), 20);
        assert_eq!(drawn(&found), format!("[{}]…", "x".repeat(20)));
        let text = format!("before {} after", "a".repeat(50));
        assert_eq!(cut(&text, &["before"], 20), "[before]…");
    }
}
