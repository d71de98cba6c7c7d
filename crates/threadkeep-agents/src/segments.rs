//! A file of JSON lines as gap-free segments: records and what stands between them.
//!
//! Agents append to files that were cut, glued or padded, so a line is read as a *stream* of values: what parses is a
//! [`Segment::Record`], everything else is a [`Segment::Opaque`] that costs nothing but itself. Written one after
//! another ([`Segment::write_to`]), the segments are the file, byte for byte.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};

use serde::de::IgnoredAny;

/// The longest line that is read as JSON: 256 MiB, the largest content of an item.
pub const MAX_LINE_BYTES: usize = 256 << 20;

/// How much of an overlong line is handed out at a time once its bound is passed.
const LONG_LINE_CHUNK: usize = 8 << 20;
/// How many places inside unreadable text are tried as the beginning of a record.
const RESYNC_ATTEMPTS: usize = 16;
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// A run of bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// One JSON object, exactly its bytes; of a text the lines of a record.
    Record {
        /// The physical line it stands on, from 1.
        line: u64,
        /// Where it begins in the file.
        offset: u64,
        /// The bytes of the object, without surrounding space.
        bytes: Vec<u8>,
        /// Whether exactly one `\n` follows directly; that newline belongs to this segment.
        newline: bool,
    },
    /// Bytes that are no record: a byte order mark, `\r\n`, blank lines, damage. Newlines among them are part of them.
    Opaque {
        /// The physical line it begins on, from 1.
        line: u64,
        /// Where it begins in the file.
        offset: u64,
        /// The bytes as they are.
        bytes: Vec<u8>,
        /// For people: what is wrong. `None` when nothing is: space, line ends, a byte order mark.
        reason: Option<String>,
    },
    /// The cut end of a last line that has no newline yet. It is not consumed: the next run begins here.
    Tail {
        /// The physical line it stands on, from 1.
        line: u64,
        /// Where it begins in the file.
        offset: u64,
        /// What is there so far.
        bytes: Vec<u8>,
    },
}

impl Segment {
    /// The physical line the segment begins on, from 1.
    pub fn line(&self) -> u64 {
        match self {
            Self::Record { line, .. } | Self::Opaque { line, .. } | Self::Tail { line, .. } => *line,
        }
    }

    /// Where the segment begins in the file.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Record { offset, .. } | Self::Opaque { offset, .. } | Self::Tail { offset, .. } => *offset,
        }
    }

    /// The segment's bytes, without the newline that belongs to a record.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Record { bytes, .. } | Self::Opaque { bytes, .. } | Self::Tail { bytes, .. } => bytes,
        }
    }

    /// Writes exactly what stood in the file, the newline of a record included.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.bytes())?;
        if matches!(self, Self::Record { newline: true, .. }) {
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Where reading stands: behind the last segment that was consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The next byte.
    pub offset: u64,
    /// The physical line that byte is on, from 1.
    pub line: u64,
}

impl Position {
    /// Goes on behind these bytes.
    pub(crate) fn advance(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        self.line += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    }
}

/// Splits a reader into segments, holding one line at a time.
///
/// Guarantees: the segments are in file order and without gaps; a record is always one whole JSON object; no line
/// longer than the bound is held; depth of nesting costs no stack.
#[derive(Debug)]
pub struct Segments<R> {
    input: R,
    position: Position,
    max_line: usize,
    ready: VecDeque<Segment>,
    in_long_line: bool,
    done: bool,
}

impl<R: BufRead> Segments<R> {
    /// Reads from the beginning of a file.
    pub fn new(input: R) -> Self {
        Self::starting_at(input, Position { offset: 0, line: 1 })
    }

    /// Reads on in a file that has grown; `input` yields the bytes from `position` on.
    pub fn starting_at(input: R, position: Position) -> Self {
        let ready = VecDeque::new();
        Self { input, position, max_line: MAX_LINE_BYTES, ready, in_long_line: false, done: false }
    }

    /// The same with another bound on the length of a line.
    #[must_use]
    pub fn with_max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Where the next run begins: behind everything that was handed out or lies ready, before a [`Segment::Tail`].
    pub fn position(&self) -> Position {
        self.position
    }

    fn fill(&mut self) -> io::Result<()> {
        let room = if self.in_long_line { LONG_LINE_CHUNK } else { self.max_line.saturating_add(1) };
        let mut line = Vec::new();
        (&mut self.input).take(room as u64).read_until(b'\n', &mut line)?;
        let ended = line.last() == Some(&b'\n');
        if line.is_empty() {
            self.done = true;
        } else if self.in_long_line || (!ended && line.len() == room) {
            let reason = format!("the line is longer than {} bytes", self.max_line);
            let reason = (!self.in_long_line).then_some(reason);
            self.in_long_line = !ended;
            self.consume_opaque(line, ended, reason);
        } else {
            self.done = !ended;
            self.split(line, ended);
        }
        Ok(())
    }

    fn consume_opaque(&mut self, bytes: Vec<u8>, ended: bool, reason: Option<String>) {
        let Position { offset, line } = self.position;
        self.position.offset += bytes.len() as u64;
        self.position.line += u64::from(ended);
        self.ready.push_back(Segment::Opaque { line, offset, bytes, reason });
    }

    fn split(&mut self, bytes: Vec<u8>, ended: bool) {
        let start = self.position;
        let body = bytes.len() - usize::from(ended);
        let mut line = Line { bytes, body, at: 0, gap: 0, reason: None };
        if start.offset == 0 && line.rest().starts_with(BOM) {
            line.at = BOM.len();
        }
        while line.at < line.body {
            if let Some(end) = line.step() {
                self.take_gap(&mut line, start);
                let newline = ended && end == line.body;
                let offset = start.offset + line.at as u64;
                let bytes = line.take(end, newline);
                self.ready.push_back(Segment::Record { line: start.line, offset, bytes, newline });
            }
        }
        if ended {
            line.body = line.body.max(line.bytes.len());
            line.at = line.body;
            self.take_gap(&mut line, start);
            self.position = Position { offset: start.offset + line.at as u64, line: start.line + 1 };
        } else {
            self.position.offset = start.offset + line.gap as u64;
            if line.gap < line.body {
                let bytes = line.bytes.split_off(line.gap);
                let offset = self.position.offset;
                self.ready.push_back(Segment::Tail { line: start.line, offset, bytes });
            }
        }
    }

    /// Hands out what stands between the last record and here, if anything does.
    fn take_gap(&mut self, line: &mut Line, start: Position) {
        let bytes = line.bytes.get(line.gap..line.at).unwrap_or_default().to_vec();
        let offset = start.offset + line.gap as u64;
        line.gap = line.at;
        let reason = line.reason.take();
        if !bytes.is_empty() {
            self.ready.push_back(Segment::Opaque { line: start.line, offset, bytes, reason });
        }
    }
}

impl<R: BufRead> Iterator for Segments<R> {
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

/// One line while it is being split.
struct Line {
    bytes: Vec<u8>,
    /// The length without the final newline.
    body: usize,
    /// The next byte to look at.
    at: usize,
    /// Where the bytes begin that belong to no record yet.
    gap: usize,
    /// What is wrong with them.
    reason: Option<String>,
}

impl Line {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..self.body).unwrap_or_default()
    }

    /// Looks at the next bytes: the end of the record that begins here, or `None` after stepping over what is none.
    fn step(&mut self) -> Option<usize> {
        match self.rest().first()? {
            b' ' | b'\t' | b'\r' => self.at += 1,
            0 => {
                let run = self.rest().iter().take_while(|byte| **byte == 0).count();
                self.blame(format!("{run} NUL bytes"));
                self.at += run;
            }
            b'{' => match value_end(self.rest()) {
                Ok(length) => return Some(self.at + length),
                Err(error) => self.skip_damage(&error),
            },
            _ => match value_end(self.rest()) {
                Ok(length) => {
                    self.blame("a JSON value that is no object".to_owned());
                    self.at += length.max(1);
                }
                Err(error) => self.skip_damage(&error),
            },
        }
        None
    }

    /// Moves a record's bytes out; without a copy where it is the whole line.
    fn take(&mut self, end: usize, newline: bool) -> Vec<u8> {
        let whole = self.at == 0 && end == self.body;
        let bytes = if whole {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.truncate(end);
            bytes
        } else {
            self.bytes.get(self.at..end).unwrap_or_default().to_vec()
        };
        self.at = end + usize::from(newline);
        self.gap = self.at;
        self.body = self.body.max(self.at);
        bytes
    }

    /// Keeps the first reason: later ones follow from it.
    fn blame(&mut self, reason: String) {
        self.reason.get_or_insert(reason);
    }

    /// Steps over text that is no JSON, up to the next record that was glued onto it, else to the end of the line.
    fn skip_damage(&mut self, error: &serde_json::Error) {
        let cut = error.is_eof();
        let reason = if cut {
            "the record is cut off".to_owned()
        } else {
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            format!("not JSON: {what} at byte {} of the line", self.at + error.column())
        };
        self.blame(reason);
        let next = if cut { None } else { self.resync(error.column()) };
        self.at = next.unwrap_or(self.body);
    }

    /// Where the next record begins after an error at `column`.
    ///
    /// A record that was appended to a cut one makes the parser stumble at its own first two bytes (`{"`), so only
    /// those are trusted inside an object: any other `{` may be a part of the damaged record. Outside an object
    /// every `{"` is tried, up to a bound.
    fn resync(&self, column: usize) -> Option<usize> {
        let inside = self.rest().first() == Some(&b'{');
        let error_at = self.at + column;
        let (from, to) = if inside {
            let nuls = self.bytes.iter().skip(error_at.saturating_sub(1)).take_while(|byte| **byte == 0).count();
            (error_at.saturating_sub(3).max(self.at + 1), error_at + nuls + 2)
        } else {
            (self.at + 1, self.body)
        };
        let candidates = (from..to.min(self.body)).filter(|at| self.bytes.get(*at) == Some(&b'{'));
        candidates.take(RESYNC_ATTEMPTS).find(|at| {
            let rest = self.bytes.get(*at..self.body).unwrap_or_default();
            let Ok(length) = value_end(rest) else {
                return false;
            };
            let after = rest.iter().skip(length).find(|byte| !matches!(byte, 0 | b' ' | b'\t' | b'\r'));
            length > 2 && matches!(after, None | Some(b'{'))
        })
    }
}

/// The length of the JSON value at the beginning of `bytes`.
///
/// Strings are not decoded, so lone surrogates and bytes that are no UTF-8 are no error here; nesting is followed
/// without recursion.
pub(crate) fn value_end(bytes: &[u8]) -> Result<usize, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(IgnoredAny)) => Ok(values.byte_offset()),
        Some(Err(error)) => Err(error),
        // Only space, which the caller has stepped over.
        None => Ok(0),
    }
}
