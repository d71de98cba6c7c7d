//! A text of sessions as gap-free segments: runs of lines that a [`Grammar`] takes together are records, what stands between them is
//! opaque.
//!
//! Such a text only grows. Written one after another ([`Segment::write_to`]), the segments are the text, byte for byte.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, BufRead, Read};

use threadkeep::Timestamp;

use crate::segments::{MAX_LINE_BYTES, Position, Segment};

/// How the lines of a text belong together. It remembers what it was given: lines are given in order, each once.
pub trait Grammar: Send {
    /// Takes the next line, with its end where it has one.
    fn line(&mut self, line: &[u8]) -> Piece;

    /// Whether the last record may go on, where nothing stands behind it: its agent is at work on it.
    fn is_open(&self) -> bool;
}

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A session begins with it, and a record.
    Session {
        /// What tells it from the other sessions of the text.
        name: String,
        /// When it says it was begun.
        at: Option<Timestamp>,
    },
    /// A record begins with it.
    Begins {
        /// Whether a person asks for something in it.
        asks: bool,
    },
    /// It goes on with the record before it, and so does what stands between.
    Continues,
    /// It stands between two records, or within one that goes on behind it.
    Between,
}

/// Splits a text into segments, holding one record at a time.
///
/// Guarantees: the segments are in file order and without gaps; a record is whole lines, but for the end of the last one; what is longer
/// than 256 MiB is opaque.
pub struct Text<R> {
    input: R,
    grammar: Box<dyn Grammar>,
    /// Whether more may be written behind the end.
    grows: bool,
    /// Where what is gathered begins.
    position: Position,
    max: usize,
    record: Vec<u8>,
    /// What came behind the record and belongs to it if it goes on.
    between: Vec<u8>,
    ready: VecDeque<Segment>,
    done: bool,
}

impl<R> std::fmt::Debug for Text<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<R: BufRead> Text<R> {
    /// Reads on from a place between two records. A text that `grows` may be written to: its open end is a [`Segment::Tail`].
    pub fn starting_at(input: R, position: Position, grammar: Box<dyn Grammar>, grows: bool) -> Self {
        let (record, between, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { input, grammar, grows, position, max: MAX_LINE_BYTES, record, between, ready, done: false }
    }

    /// The same with another bound on the length of a record.
    #[must_use]
    pub fn with_max_record(mut self, bytes: usize) -> Self {
        self.max = bytes;
        self
    }

    fn fill(&mut self) -> io::Result<()> {
        let line = next_line(&mut self.input, self.max)?;
        if line.is_empty() {
            self.done = true;
            self.end(Vec::new());
        } else if self.grows && !line.ends_with(b"\n") && line.len() <= self.max {
            self.done = true;
            self.end(line);
        } else {
            self.take(line);
        }
        Ok(())
    }

    fn take(&mut self, line: Vec<u8>) {
        match self.grammar.line(&line) {
            Piece::Between => self.between.extend(line),
            Piece::Continues if !self.record.is_empty() => {
                self.record.append(&mut self.between);
                self.record.extend(line);
            }
            Piece::Continues | Piece::Begins { .. } | Piece::Session { .. } => {
                self.flush();
                self.record = line;
            }
        }
        if self.record.len() > self.max {
            let record = std::mem::take(&mut self.record);
            self.opaque(record, Some(format!("what is said is longer than {} bytes", self.max)));
        }
        if self.between.len() > self.max {
            self.flush();
        }
    }

    /// What stands at the end; a line without an end waits, and so does a record that may go on.
    fn end(&mut self, cut: Vec<u8>) {
        let goes_on = self.between.is_empty() || !cut.is_empty();
        let is_open = self.grows && !self.record.is_empty() && goes_on && self.grammar.is_open();
        if !is_open && (cut.is_empty() || !self.record.is_empty() && !self.between.is_empty()) {
            self.flush();
        }
        let mut tail = std::mem::take(&mut self.record);
        tail.append(&mut self.between);
        tail.extend(cut);
        if !tail.is_empty() {
            let Position { offset, line } = self.position;
            self.ready.push_back(Segment::Tail { line, offset, bytes: tail });
        }
    }

    /// Hands out what was gathered.
    fn flush(&mut self) {
        let mut bytes = std::mem::take(&mut self.record);
        if !bytes.is_empty() {
            let Position { offset, line } = self.position;
            self.position.advance(&bytes);
            let newline = bytes.last() == Some(&b'\n');
            bytes.truncate(bytes.len() - usize::from(newline));
            // A record is never empty; a line that is, is none.
            self.ready.push_back(match bytes.is_empty() {
                true => Segment::Opaque { line, offset, bytes: b"\n".to_vec(), reason: None },
                false => Segment::Record { line, offset, bytes, newline },
            });
        }
        let between = std::mem::take(&mut self.between);
        self.opaque(between, None);
    }

    fn opaque(&mut self, bytes: Vec<u8>, reason: Option<String>) {
        if bytes.is_empty() {
            return;
        }
        let Position { offset, line } = self.position;
        self.position.advance(&bytes);
        self.ready.push_back(Segment::Opaque { line, offset, bytes, reason });
    }
}

impl<R: BufRead> Iterator for Text<R> {
    type Item = io::Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(segment) = self.ready.pop_front() {
                return Some(Ok(segment));
            }
            if self.done {
                return None;
            }
            if let Err(error) = self.fill() {
                self.done = true;
                return Some(Err(error));
            }
        }
    }
}

/// The next line with its end; of one that is too long the beginning, and its rest as lines that follow.
pub(crate) fn next_line(input: &mut impl BufRead, max: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.take(max.saturating_add(1) as u64).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// A session of a text: where it stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// What tells it from the others.
    pub(crate) name: String,
    /// When it says it was begun.
    pub(crate) at: Option<Timestamp>,
    /// Where it begins.
    pub(crate) begins: Position,
    /// Behind its last byte.
    pub(crate) end: u64,
    /// Of its bytes.
    pub(crate) hash: blake3::Hash,
    /// Whether nothing stands behind it, so that it may grow.
    pub(crate) is_last: bool,
}

/// Finds the sessions of a text.
///
/// A session begins with the empty line before the line that says so, since that is written with it. What begins and asks for nothing
/// stands before the next one that does, and belongs to it; at the end of the text it is none yet.
pub(crate) fn sections(mut input: impl BufRead, mut grammar: Box<dyn Grammar>) -> io::Result<Vec<Section>> {
    let mut found: Vec<Section> = Vec::new();
    let mut names: HashMap<String, u32> = HashMap::new();
    let mut open = Open::new(Position { offset: 0, line: 1 });
    let mut position = open.begins;
    // An empty line that may belong to what follows it.
    let mut held: Option<Vec<u8>> = None;
    loop {
        let line = next_line(&mut input, MAX_LINE_BYTES)?;
        if line.is_empty() {
            break;
        }
        let piece = grammar.line(&line);
        if let (Piece::Session { .. }, true) = (&piece, open.asks) {
            let begins = held.as_ref().map_or(position, |blank| Position {
                offset: position.offset - blank.len() as u64,
                line: position.line - 1,
            });
            found.push(std::mem::replace(&mut open, Open::new(begins)).closed(begins.offset, false));
        }
        if let Some(blank) = held.take() {
            open.hasher.update(&blank);
        }
        match piece {
            Piece::Session { name, at } => open.name = (name, at),
            Piece::Begins { asks } => open.asks |= asks,
            Piece::Continues | Piece::Between => {}
        }
        position.offset += line.len() as u64;
        position.line += 1;
        match line.trim_ascii().is_empty() && line.ends_with(b"\n") {
            true => held = Some(line),
            false => drop(open.hasher.update(&line)),
        }
    }
    if let Some(blank) = held {
        open.hasher.update(&blank);
    }
    if open.asks {
        found.push(open.closed(position.offset, true));
    }
    let mut used = HashSet::new();
    for section in &mut found {
        let said = section.name.clone();
        let count = names.entry(said.clone()).or_default();
        *count += 1;
        // Another one may have been called by the name that this one would get.
        while (*count > 1 && section.name == said) || !used.insert(section.name.clone()) {
            *count += u32::from(section.name != said);
            section.name = format!("{said}-{count}");
        }
    }
    Ok(found)
}

/// A session whose end was not met yet.
struct Open {
    name: (String, Option<Timestamp>),
    begins: Position,
    asks: bool,
    hasher: blake3::Hasher,
}

impl Open {
    fn new(begins: Position) -> Self {
        Self { name: ("start".to_owned(), None), begins, asks: false, hasher: blake3::Hasher::new() }
    }

    fn closed(self, end: u64, is_last: bool) -> Section {
        let (name, at) = self.name;
        Section { name, at, begins: self.begins, end, hash: self.hasher.finalize(), is_last }
    }
}
