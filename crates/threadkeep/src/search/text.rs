//! The words of a text as the index knows them: one normal form above all engines.
//!
//! What the form is, with examples, is told in `docs/search.md`. Reading is linear in the text and stops where the bounds
//! are reached, so that a text of any size and any content costs no more than a long one.

mod letters;
mod source;

use std::ops::Range;

use letters::{Case, Class, Entry, entry, fold};
pub(super) use source::Source;

/// How many characters of a word are indexed.
pub const MAX_WORD_CHARS: usize = 64;
/// How many words of a text are indexed.
pub const MAX_WORDS: usize = 32_768;
/// How many words from the beginning of a tool's result are indexed.
pub const MAX_RESULT_HEAD: usize = 8_192;
/// How many words from the end of a tool's result are indexed.
pub const MAX_RESULT_TAIL: usize = 4_096;
/// How many bytes all terms of a document may have.
pub const MAX_TERM_BYTES: usize = 384 << 10;
/// The term that keeps phrases from reaching from one text into the next. No query can ask for it.
pub const BREAK: &str = "_";

/// A word with more pieces than this is no name that a person wrote.
const MAX_PIECES: usize = 16;
/// How many signs are folded together with their letter.
const MAX_SIGNS: usize = 32;
/// Where the search for the last words of a long text begins.
const FIRST_WINDOW: usize = 64 << 10;

/// What a text is to the item that it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Field {
    /// What somebody said.
    Said,
    /// What a model thought.
    Reasoning,
    /// The name of a tool, or the arguments that it was called with.
    Call,
    /// What a tool gave back.
    Result,
    /// A note or a summary.
    Note,
    /// The title of a thread.
    Title,
}

/// The terms of a document: what an engine indexes, and what decides whether a query holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NormalText {
    /// The main stream: every word, in order.
    pub words: Stream,
    /// The pieces of the words that change case inside, and names such as `c++`; a break stands between words.
    pub parts: Stream,
    /// Which of it is from which text. Breaks belong to none.
    pub sections: Vec<Section>,
}

/// What one text gave to a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What the text is.
    pub field: Field,
    /// Which of the given texts it is.
    pub index: usize,
    /// Its words in the main stream.
    pub words: Range<usize>,
    /// Its terms in the stream of parts.
    pub parts: Range<usize>,
}

/// Terms in order, each with the place that it has in its source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The terms with a space between any two.
    joined: String,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Where the term begins in `joined`.
    at: u32,
    start: u32,
    end: u32,
}

/// A term and the bytes of the source text that it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    /// The folded term.
    pub term: &'a str,
    /// The first byte of the word in its source text.
    pub start: usize,
    /// The byte after the word.
    pub end: usize,
}

/// The terms of a document that is made of these texts, in this order.
///
/// A tool's call and result that are JSON documents are read with their escapes resolved; give a tool's name and its
/// arguments as two texts.
pub fn normal(fields: &[(Field, &str)]) -> NormalText {
    normal_with_sources(fields).0
}

/// The same, with the texts as they were read.
pub(super) fn normal_with_sources<'a>(fields: &[(Field, &'a str)]) -> (NormalText, Vec<Source<'a>>) {
    let mut reader = Reader::new(MAX_TERM_BYTES);
    let mut sources = Vec::with_capacity(fields.len());
    for (index, (field, text)) in fields.iter().enumerate() {
        let source = match field {
            Field::Call | Field::Result => Source::of_tool(text),
            Field::Said | Field::Reasoning | Field::Note | Field::Title => Source::plain(text),
        };
        reader.read_field(index, *field, source);
        sources.push(source);
    }
    (reader.out, sources)
}

/// The first `max` words of a text, without the bounds of a document.
pub fn words(text: &str, max: usize) -> NormalText {
    let mut reader = Reader::new(usize::MAX);
    reader.section(0, Field::Said, |reader| {
        reader.read(Source::plain(text), 0, max);
    });
    reader.out
}

/// A name folded as a whole, with what stands between its words: `MCP__Git-Hub` becomes `mcp__git-hub`.
pub fn folded(name: &str) -> String {
    let (mut chars, mut at) = (Vec::new(), 0);
    while let Some(end) = folded_unit(Source::plain(name), at, &mut chars) {
        at = end;
    }
    chars.into_iter().collect()
}

/// Adds what the unit at a place becomes as a whole, with what separates words, and gives the place after it.
pub(super) fn folded_unit(source: Source<'_>, at: usize, out: &mut Vec<char>) -> Option<usize> {
    let byte = source.byte(at)?;
    if byte.is_ascii() {
        out.push(char::from(byte.to_ascii_lowercase()));
        return Some(at + 1);
    }
    let unit = Unit::at(source, at);
    unit.each(&mut |class, c| {
        if !matches!(class, Class::Accent | Class::Ignored) {
            out.push(c);
        }
    });
    Some(unit.end)
}

/// Whether no word ends between two characters that follow each other.
pub(super) fn is_inside_word(before: char, after: char) -> bool {
    let (first, second) = (entry(before).class, entry(after));
    let goes_on = matches!(first, Class::Letter | Class::Sign | Class::Accent) && second.class == Class::Letter;
    goes_on || second.extends || matches!(second.class, Class::Accent | Class::Ignored) || before == '\u{200d}'
}

/// Whether a term is none of the main stream's runs of letters: a character or an emoji by itself, which never has pieces.
pub(super) fn stands_alone(term: &str) -> bool {
    term.chars().next().is_some_and(|first| matches!(entry(first).class, Class::Alone | Class::Picture))
}

impl Stream {
    /// How many terms there are, breaks included.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no term.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The terms with a space between any two.
    pub fn joined(&self) -> &str {
        &self.joined
    }

    /// One word.
    pub fn get(&self, index: usize) -> Option<Word<'_>> {
        let place = self.places.get(index)?;
        let end = self.places.get(index + 1).map_or(self.joined.len(), |next| next.at as usize - 1);
        let term = self.joined.get(place.at as usize..end)?;
        Some(Word { term, start: place.start as usize, end: place.end as usize })
    }

    /// The words in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Word<'_>> + ExactSizeIterator {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Word { term: BREAK, start: 0, end: 0 }))
    }

    /// Begins a term. What is added to `joined` from here on is its text.
    fn begin(&mut self) -> usize {
        if !self.places.is_empty() {
            self.joined.push(' ');
        }
        self.joined.len()
    }

    /// Ends the term that began at `at`.
    fn end(&mut self, at: usize, start: usize, end: usize) {
        self.places.push(Place { at: small(at), start: small(start), end: small(end) });
    }

    /// Takes back the term that was begun at `at`.
    fn undo(&mut self, at: usize) {
        self.joined.truncate(if self.places.is_empty() { 0 } else { at.saturating_sub(1) });
    }

    /// How far it goes, to be cut there again.
    fn size(&self) -> (usize, usize) {
        (self.places.len(), self.joined.len())
    }

    fn cut(&mut self, (places, joined): (usize, usize)) {
        self.places.truncate(places);
        self.joined.truncate(joined);
    }

    fn put_break(&mut self, at: usize) {
        let begun = self.begin();
        self.joined.push_str(BREAK);
        self.end(begun, at, at);
    }
}

/// Places are kept in four bytes: items are far smaller. What lies beyond is never read.
fn small(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Reads texts into a document until its bounds are reached.
struct Reader {
    out: NormalText,
    open: Option<Open>,
    words_left: usize,
    bytes_left: usize,
}

/// The term that is being read.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Where it begins among the joined terms.
    at: usize,
    start: usize,
    end: usize,
    chars: usize,
    is_run: bool,
    has_inner_upper: bool,
}

impl Reader {
    fn new(max_bytes: usize) -> Self {
        Self { out: NormalText::default(), open: None, words_left: 0, bytes_left: max_bytes }
    }

    fn read_field(&mut self, index: usize, field: Field, source: Source<'_>) {
        self.section(index, field, |reader| match field {
            Field::Result => reader.read_ends(source),
            _ => drop(reader.read(source, 0, MAX_WORDS)),
        });
    }

    /// Reads one text, with a break before it if words came before it.
    fn section(&mut self, index: usize, field: Field, read: impl FnOnce(&mut Self)) {
        let before = (self.out.words.size(), self.out.parts.size());
        if !self.out.words.is_empty() {
            self.out.words.put_break(0);
        }
        let (words, parts) = (self.out.words.len(), self.out.parts.len());
        read(self);
        if self.out.words.len() == words {
            self.out.words.cut(before.0);
            self.out.parts.cut(before.1);
            return;
        }
        let (words, parts) = (words..self.out.words.len(), parts..self.out.parts.len());
        self.out.sections.push(Section { field, index, words, parts });
    }

    /// Reads the beginning and the end of a text, with a break between if something is left out.
    fn read_ends(&mut self, source: Source<'_>) {
        let all = self.bytes_left;
        // Two thirds for two thirds of the words, so that a beginning of long ones leaves room for the end.
        let head = all / 3 * 2;
        self.bytes_left = head;
        let stop = self.read(source, 0, MAX_RESULT_HEAD);
        self.bytes_left = all - (head - self.bytes_left);
        let Some(Tail { start, is_cut_off }) = tail_of(source, stop) else { return };
        let before = self.out.words.size();
        if is_cut_off {
            self.out.words.put_break(stop);
        }
        let words = self.out.words.len();
        self.read(source, start, MAX_RESULT_TAIL);
        if self.out.words.len() == words {
            self.out.words.cut(before);
        }
    }

    /// Reads up to `max` words from a place on, and gives the place where what was not read begins.
    fn read(&mut self, source: Source<'_>, from: usize, max: usize) -> usize {
        self.words_left = max;
        let (mut at, mut unread) = (from, from);
        while let Some(byte) = source.byte(at).filter(|_| self.words_left > 0) {
            unread = at;
            at = if byte.is_ascii_alphanumeric() {
                self.read_ascii(source, at)
            } else if byte == b'\x1b' {
                self.close(source);
                source.sequence_end(at + 1)
            } else if source.is_special(byte) {
                self.read_unit(source, at)
            } else {
                self.close(source);
                at + 1
            };
        }
        if self.words_left == 0 {
            return unread;
        }
        self.close(source);
        at
    }

    /// Reads a run of ASCII letters and digits.
    fn read_ascii(&mut self, source: Source<'_>, at: usize) -> usize {
        let end = source.ascii_run(at);
        let Some(run) = source.text().get(at..end) else { return end };
        let Some(mut open) = self.opened(source, true, at) else { return at };
        let inner = if open.chars == 0 { run.get(1..) } else { Some(run) };
        open.has_inner_upper |= inner.is_some_and(|inner| inner.bytes().any(|byte| byte.is_ascii_uppercase()));
        let kept = run.get(..run.len().min(MAX_WORD_CHARS - open.chars)).unwrap_or(run);
        let joined = &mut self.out.words.joined;
        let before = joined.len();
        joined.push_str(kept);
        if let Some(added) = joined.get_mut(before..) {
            added.make_ascii_lowercase();
        }
        if !kept.is_empty() {
            open.end = at + kept.len();
        }
        open.chars += kept.len();
        self.open = Some(open);
        end
    }

    /// Reads a character with all that extends it.
    fn read_unit(&mut self, source: Source<'_>, at: usize) -> usize {
        let unit = Unit::at(source, at);
        if unit.first == '\u{1b}' {
            self.close(source);
            return source.sequence_end(unit.end);
        }
        let is_upper = unit.entry.case == Case::Upper;
        let end = unit.end;
        unit.each(&mut |class, c| self.put(source, class, c, at..end, is_upper));
        end
    }

    /// Adds a folded character that stands for a range of the source.
    fn put(&mut self, source: Source<'_>, class: Class, c: char, range: Range<usize>, is_upper: bool) {
        let is_run = match class {
            Class::Separator => return self.close(source),
            Class::Ignored => return,
            Class::Accent | Class::Sign => {
                let Some(open) = &mut self.open else { return };
                if open.chars >= MAX_WORD_CHARS {
                    return;
                }
                open.end = range.end;
                if class == Class::Sign {
                    open.chars += 1;
                    self.out.words.joined.push(c);
                }
                return;
            }
            Class::Letter => true,
            Class::Alone | Class::Picture => {
                self.close(source);
                false
            }
        };
        let Some(mut open) = self.opened(source, is_run, range.start) else { return };
        if open.chars < MAX_WORD_CHARS {
            open.has_inner_upper |= is_upper && open.chars > 0;
            open.chars += 1;
            open.end = range.end;
            self.out.words.joined.push(c);
        }
        self.open = Some(open);
        if class == Class::Picture {
            self.close(source);
        }
    }

    /// The open run, or a term that is begun; none once the words are used up.
    fn opened(&mut self, source: Source<'_>, is_run: bool, start: usize) -> Option<Open> {
        if self.open.is_some_and(|open| !open.is_run) {
            self.close(source);
        }
        if self.open.is_none() && self.words_left > 0 {
            let at = self.out.words.begin();
            return Some(Open { at, start, end: start, chars: 0, is_run, has_inner_upper: false });
        }
        self.open
    }

    /// Ends the term that is being read, if there is one.
    fn close(&mut self, source: Source<'_>) {
        let Some(open) = self.open.take() else { return };
        let bytes = self.out.words.joined.len() - open.at;
        if bytes > self.bytes_left {
            self.out.words.undo(open.at);
            self.words_left = 0;
            return;
        }
        self.bytes_left -= bytes;
        self.words_left -= 1;
        self.out.words.end(open.at, open.start, open.end);
        if !open.is_run {
            return;
        }
        if open.has_inner_upper {
            self.put_pieces(source, open);
        }
        if let Some(sign) = name_sign(source, open.end) {
            self.put_part(source, open.start..open.end, sign, open.start, true);
        }
    }

    /// Adds the pieces of a word that changes case inside.
    fn put_pieces(&mut self, source: Source<'_>, open: Open) {
        let Some(starts) = piece_starts(source, open.start..open.end) else { return };
        let ends = starts.iter().skip(1).copied().chain([open.end]);
        for (start, end) in starts.iter().copied().zip(ends) {
            self.put_part(source, start..end, "", open.start, start == open.start);
        }
    }

    /// Adds a term to the stream of parts: the folded range and a sign after it.
    fn put_part(&mut self, source: Source<'_>, range: Range<usize>, sign: &str, word: usize, is_first: bool) {
        let parts = &mut self.out.parts;
        let before = parts.size();
        if is_first && !parts.is_empty() {
            parts.put_break(word);
        }
        let at = parts.begin();
        for_each_folded(source, range.start, range.end, &mut |unit| {
            unit.each(&mut |class, c| {
                if matches!(class, Class::Letter | Class::Sign) {
                    parts.joined.push(c);
                }
            });
        });
        parts.joined.push_str(sign);
        let bytes = parts.joined.len() - before.1;
        if parts.joined.len() == at || bytes > self.bytes_left {
            parts.cut(before);
            return;
        }
        self.bytes_left -= bytes;
        parts.end(at, range.start, range.end + sign.len());
    }
}

/// The last words of a long text.
struct Tail {
    start: usize,
    /// Whether words are left out before it.
    is_cut_off: bool,
}

/// The last words of a text, if there are any after `from`.
fn tail_of(source: Source<'_>, from: usize) -> Option<Tail> {
    let end = source.len();
    let mut window = FIRST_WINDOW;
    loop {
        let start = source.boundary(end.saturating_sub(window).max(from));
        let is_whole = start == from;
        let mut reader = Reader::new(usize::MAX);
        reader.read(source, start, usize::MAX);
        let words = reader.out.words;
        let left_out = words.len().saturating_sub(MAX_RESULT_TAIL);
        // A word that the window cuts in two is none of the last ones: there is one more before them.
        if left_out > 0 || is_whole {
            return words.get(left_out).map(|word| Tail { start: word.start, is_cut_off: left_out > 0 });
        }
        window = window.saturating_mul(2);
    }
}

/// The sign that makes a name of the word before it: `c++`, `c#`. What follows `#` must be no word, as in `page#part`.
fn name_sign(source: Source<'_>, at: usize) -> Option<&'static str> {
    match source.byte(at)? {
        b'+' if source.byte(at + 1) == Some(b'+') => Some("++"),
        b'#' if !source.char_at(at + 1).is_some_and(|(c, _)| c.is_alphanumeric()) => Some("#"),
        _ => None,
    }
}

/// Where the pieces of a word begin, if it has several, and no more than a name has.
fn piece_starts(source: Source<'_>, range: Range<usize>) -> Option<Vec<usize>> {
    let mut starts = vec![range.start];
    // The last character and the one before it: whether they are upper case, and where the last one begins.
    let (mut last, mut before_last, mut last_at) = (None, None, range.start);
    let mut at = range.start;
    while at < range.end {
        let (c, next) = source.char_at(at)?;
        let looked_up = entry(c);
        if matches!(looked_up.class, Class::Letter) {
            match (before_last, last, looked_up.case) {
                (_, Some(Case::Lower | Case::None), Case::Upper) => starts.push(at),
                (Some(Case::Upper), Some(Case::Upper), Case::Lower) => starts.push(last_at),
                _ => {}
            }
            if starts.len() > MAX_PIECES {
                return None;
            }
            (before_last, last, last_at) = (last, Some(looked_up.case), at);
        }
        at = next;
    }
    (starts.len() > 1).then_some(starts)
}

/// A character with all that extends it.
struct Unit<'a> {
    source: Source<'a>,
    start: usize,
    end: usize,
    first: char,
    entry: Entry,
    /// Whether each of its characters folds by itself.
    is_settled: bool,
}

impl<'a> Unit<'a> {
    fn at(source: Source<'a>, at: usize) -> Self {
        let (first, end) = source.char_at(at).unwrap_or((char::REPLACEMENT_CHARACTER, at + 1));
        let base = entry(first);
        let mut unit = Self { source, start: at, end, first, entry: base, is_settled: true };
        // What separates words has no signs, and ASCII letters are read in runs.
        if !first.is_ascii() && !matches!(base.class, Class::Separator | Class::Ignored | Class::Picture) {
            unit.take_signs();
        }
        unit
    }

    /// Goes on over the signs that follow, and over what is left out between them.
    fn take_signs(&mut self) {
        let (mut at, mut order, mut left_out) = (self.end, 0, 0);
        while self.source.byte(at).is_some_and(|byte| self.source.is_special(byte)) {
            let Some((c, next)) = self.source.char_at(at) else { break };
            let sign = entry(c);
            let is_mark = matches!(sign.class, Class::Sign | Class::Accent) && sign.folded.is_some();
            if sign.extends && (is_mark || self.entry.class == Class::Alone) {
                self.is_settled &= at == self.end && sign.settled.is_some_and(|own| own == 0 || own >= order);
                order = sign.settled.unwrap_or(0);
                (self.end, left_out) = (next, 0);
            } else if !matches!(sign.class, Class::Accent | Class::Ignored) || left_out == MAX_SIGNS {
                break;
            } else {
                left_out += 1;
            }
            at = next;
        }
    }

    /// What it becomes, character by character.
    fn each(&self, put: &mut impl FnMut(Class, char)) {
        let chars = Chars { source: self.source, at: self.start, end: self.end };
        match self.entry.folded.filter(|_| self.is_settled) {
            Some(folded) => {
                put(self.entry.class, folded);
                chars.skip(1).take(MAX_SIGNS).for_each(|sign| put(entry(sign).class, sign));
            }
            None if self.entry.class == Class::Ignored => {}
            None => fold(chars.filter(|c| entry(*c).class != Class::Ignored).take(MAX_SIGNS + 1), put),
        }
    }
}

/// The characters of a range.
#[derive(Clone)]
struct Chars<'a> {
    source: Source<'a>,
    at: usize,
    end: usize,
}

impl Iterator for Chars<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let (c, next) = self.source.char_at(self.at).filter(|_| self.at < self.end)?;
        self.at = next;
        Some(c)
    }
}

fn for_each_folded(source: Source<'_>, start: usize, end: usize, visit: &mut impl FnMut(&Unit<'_>)) {
    let mut at = start;
    while at < end {
        let unit = Unit::at(source, at);
        visit(&unit);
        at = unit.end;
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, normal};

    fn terms(text: &str) -> String {
        normal(&[(Field::Said, text)]).words.joined().to_owned()
    }

    fn parts(text: &str) -> String {
        normal(&[(Field::Said, text)]).parts.joined().to_owned()
    }

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        for (text, words) in [
            ("don't snake_case a.b/c-d:42", "don t snake case a b c d 42"),
            ("Ärger, Straße, Œuvre, Łódź, đồng", "arger strasse oeuvre lodz dong"),
            ("e\u{301}te\u{301} NAÏVE", "ete naive"),
            ("ΟΔΥΣΣΕΎΣ Ёлка мой", "οδυσσευσ елка мой"),
            ("мо\u{438}\u{306}", "мой"),
            ("数据库错误", "数 据 库 错 误"),
            ("ｶﾞｲﾄﾞ がか\u{3099}", "ガ イ ド が が"),
            ("한글 \u{1112}\u{1161}\u{11ab}", "한 글 한"),
            ("ＦＵＬＬ　ｗｉｄｔｈ １２", "full width 12"),
            ("👍🏽 ❤\u{fe0f} 👨\u{200d}👩\u{200d}👧 ok✅", "👍 ❤ 👨 👩 👧 ok ✅"),
            ("a\0b\u{7}c \x1b[1;31merror\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "a b c error link"),
            ("ﬁle x² Rust™ 5½ ㈱", "file x2 rust tm 5 1 2 株"),
            ("שָׁלוֹם مُحَمَّد أحمد", "שלום محمد احمد"),
            ("İstanbul ISPARTA", "istanbul isparta"),
            ("हिन्दी में", "हिन्दी में"),
        ] {
            assert_eq!(terms(text), words, "{text}");
        }
    }

    #[test]
    fn words_that_change_case_have_pieces() {
        for (text, pieces) in [
            ("parseHttpRequest", "parse http request"),
            ("HTTPServer then GitHub", "http server _ git hub"),
            ("Hello WORLD plain", ""),
            ("sha256Hash X509Certificate", "sha256 hash _ x509 certificate"),
            ("c++ C# f# page#part libC++", "c++ _ c# _ f# _ lib c _ libc++"),
            ("größeÄndern", "grosse andern"),
        ] {
            assert_eq!(parts(text), pieces, "{text}");
        }
    }
}
