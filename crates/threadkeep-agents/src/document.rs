//! A JSON document as gap-free segments: the elements of one array in it are records, all around them is opaque.
//!
//! Agents that keep a session as one document write it anew with every message. It is read as a stream of bytes: brackets
//! are counted and never followed by recursion, and only one element is held at a time. Written one after another
//! ([`Segment::write_to`]), the segments are the file, byte for byte.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use serde::de::IgnoredAny;

use crate::segments::{BOM, MAX_LINE_BYTES, Position, Segment, value_end};

/// How much of what is no record is handed out at a time.
const CHUNK: usize = 8 << 20;
/// How far behind a damaged element the next whole one is looked for at a time.
const WINDOW: usize = 16 << 20;
/// … and in so much at first.
const FIRST_WINDOW: usize = 64 << 10;
/// How many places behind a damaged element are tried as the beginning of the next one, in each window.
const RESYNC_ATTEMPTS: usize = 64;
/// How much of a document's frame is gathered.
const MAX_FRAME_BYTES: usize = 8 << 20;
/// How much of a key is compared.
const MAX_KEY_BYTES: usize = 64;

/// Splits a document into segments, holding one element at a time.
///
/// Guarantees: the segments are in file order and without gaps; a record is always one whole JSON object; an element longer
/// than 256 MiB is opaque and never held; depth of nesting costs no stack; a damaged element costs itself, and what stands
/// between it and the next one that begins with the same key.
#[derive(Debug)]
pub struct Document<R> {
    input: R,
    /// Bytes that were read ahead and are to be looked at again.
    ahead: Vec<u8>,
    scan: Scan,
    /// Behind everything that was handed out or lies ready.
    position: Position,
    max_element: usize,
    gathered: Vec<u8>,
    /// The first key of the last whole element: others of the array begin with it, too.
    first_key: Option<Vec<u8>>,
    ready: VecDeque<Segment>,
    /// What stands around the records, where it is wanted.
    frame: Option<Vec<u8>>,
    max_frame: usize,
    done: bool,
}

impl<R: BufRead> Document<R> {
    /// Reads a document from its beginning. `path` are the keys that lead to the array; none when the document is the array.
    pub fn new(input: R, path: &[&'static str]) -> Self {
        Self {
            input,
            ahead: Vec::new(),
            scan: Scan::new(path),
            position: Position { offset: 0, line: 1 },
            max_element: MAX_LINE_BYTES,
            gathered: Vec::new(),
            first_key: None,
            ready: VecDeque::new(),
            frame: None,
            max_frame: MAX_FRAME_BYTES,
            done: false,
        }
    }

    /// The same with another bound on the length of an element.
    #[must_use]
    pub fn with_max_element(mut self, bytes: usize) -> Self {
        self.max_element = bytes;
        self
    }

    /// Reads until something lies ready, or to the end.
    fn fill(&mut self) -> io::Result<()> {
        while self.ready.is_empty() {
            let mut buffer = std::mem::take(&mut self.ahead);
            if buffer.is_empty() {
                let read = self.input.fill_buf()?;
                let length = read.len();
                buffer.extend_from_slice(read);
                self.input.consume(length);
            }
            if buffer.is_empty() {
                self.done = true;
                return self.end();
            }
            self.take(&buffer)?;
        }
        Ok(())
    }

    /// Looks at bytes, up to the first damaged element among them.
    fn take(&mut self, buffer: &[u8]) -> io::Result<()> {
        let mut from = 0;
        for (at, byte) in buffer.iter().enumerate() {
            let step = self.scan.step(*byte);
            let end = at + usize::from(matches!(step, Step::Ended));
            if matches!(step, Step::On) {
                continue;
            }
            self.gathered.extend_from_slice(buffer.get(from..end).unwrap_or_default());
            from = end;
            match step {
                Step::On => {}
                Step::Begins => self.around(None),
                Step::Ended | Step::EndedBefore => {
                    if !self.element() {
                        self.ahead.extend(buffer.get(from..).unwrap_or_default());
                        return self.recover();
                    }
                }
            }
        }
        self.gathered.extend_from_slice(buffer.get(from..).unwrap_or_default());
        if !self.scan.in_element() {
            if self.gathered.len() > CHUNK {
                self.around(None);
            }
        } else if self.gathered.len() > self.max_element {
            let first = !std::mem::replace(&mut self.scan.is_long, true);
            let reason = format!("the record is longer than {} bytes", self.max_element);
            self.opaque(first.then_some(reason));
        }
        Ok(())
    }

    /// Hands out the element that was gathered; gives `false` when it is damaged and still gathered.
    fn element(&mut self) -> bool {
        if std::mem::take(&mut self.scan.is_long) {
            self.opaque(None);
            return true;
        }
        if !matches!(value_end(&self.gathered), Ok(end) if end == self.gathered.len()) {
            return false;
        }
        if self.gathered.first() != Some(&b'{') {
            self.opaque(Some("a JSON value that is no object".to_owned()));
            return true;
        }
        self.first_key = first_key(&self.gathered).map(<[u8]>::to_vec);
        let bytes = std::mem::take(&mut self.gathered);
        let Position { offset, line } = self.position;
        self.position.advance(&bytes);
        self.ready.push_back(Segment::Record { line, offset, bytes, newline: false });
        true
    }

    /// Goes on with the next whole element behind a damaged one, which is gathered.
    ///
    /// It is looked for in a small part of what follows first: where damage stands behind damage, all of a large part would be
    /// moved for each.
    fn recover(&mut self) -> io::Result<()> {
        let mut reason = Some(damage(&self.gathered));
        let (mut from, mut window) = (1, FIRST_WINDOW);
        self.gathered.append(&mut self.ahead);
        loop {
            let room = window.saturating_sub(self.gathered.len());
            let read = (&mut self.input).take(room as u64).read_to_end(&mut self.gathered)?;
            let is_over = read < room;
            if let Some(at) = self.next_element(from, is_over || window == WINDOW) {
                self.ahead = self.gathered.split_off(at);
                self.gathered.shrink_to_fit();
                self.opaque(reason);
                self.scan.resume();
                return Ok(());
            }
            if !is_over && window < WINDOW {
                window = (4 * window).min(WINDOW);
                continue;
            }
            self.opaque(reason.take());
            from = 0;
            if is_over {
                self.done = true;
                return Ok(());
            }
        }
    }

    /// Where a whole element begins behind the damage: behind a comma, with the key that the others begin with.
    /// One that goes on behind what was read is none, but where no more is read `at_last`.
    fn next_element(&self, from: usize, at_last: bool) -> Option<usize> {
        let own = first_key(&self.gathered);
        let key = self.first_key.as_deref().or(own);
        let mut before = None;
        let mut attempts = 0;
        for (at, byte) in self.gathered.iter().enumerate() {
            let follows = before == Some(b',');
            if !byte.is_ascii_whitespace() {
                before = Some(*byte);
            }
            if *byte != b'{' || !follows || at < from {
                continue;
            }
            let rest = self.gathered.get(at..).unwrap_or_default();
            if key.is_some() && first_key(rest) != key {
                continue;
            }
            let length = match value_end(rest) {
                Ok(length) => length,
                Err(error) => {
                    attempts += 1;
                    if attempts > RESYNC_ATTEMPTS || (error.is_eof() && !at_last) {
                        return None;
                    }
                    continue;
                }
            };
            let after = rest.iter().skip(length).find(|byte| !byte.is_ascii_whitespace());
            if matches!(after, None | Some(b',' | b']')) {
                return Some(at);
            }
        }
        None
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.scan.in_element() || self.gathered.is_empty() {
            let cut = !self.scan.is_closed();
            self.around(cut.then(|| "the document is cut off".to_owned()));
            return Ok(());
        }
        let is_cut = matches!(value_end(&self.gathered), Err(error) if error.is_eof());
        if self.scan.is_long || is_cut {
            let reason = (!self.scan.is_long).then(|| damage(&self.gathered));
            self.opaque(reason);
            return Ok(());
        }
        // The end of a string was lost, so that everything behind it was taken for something else than it is.
        self.done = false;
        self.recover()
    }

    /// Hands out what was gathered as bytes that stand around the records.
    fn around(&mut self, reason: Option<String>) {
        let separates = self.gathered.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b',');
        if let Some(frame) = self.frame.as_mut().filter(|_| !separates)
            && frame.len() + self.gathered.len() <= self.max_frame
        {
            frame.extend_from_slice(&self.gathered);
        }
        self.opaque(reason);
    }

    /// Hands out what was gathered as bytes that are no record.
    fn opaque(&mut self, reason: Option<String>) {
        let bytes = std::mem::take(&mut self.gathered);
        if bytes.is_empty() {
            return;
        }
        let Position { offset, line } = self.position;
        self.position.advance(&bytes);
        self.ready.push_back(Segment::Opaque { line, offset, bytes, reason });
    }
}

impl<R: BufRead> Iterator for Document<R> {
    type Item = io::Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && !self.done
            && let Err(error) = self.fill()
        {
            self.done = true;
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}

/// The document without the elements of its array, as JSON: what it says of the session as a whole.
///
/// A document that is cut off is closed. What is longer than 8 MiB gives nothing that can be read.
///
/// # Errors
/// Whatever `input` fails with.
pub fn frame(input: impl BufRead, path: &[&'static str]) -> io::Result<Vec<u8>> {
    let mut document = Document::new(input, path);
    document.frame = Some(Vec::new());
    document.by_ref().try_for_each(|segment| segment.map(drop))?;
    let mut frame = document.frame.unwrap_or_default();
    if frame.starts_with(BOM) {
        frame.drain(..BOM.len());
    }
    if serde_json::from_slice::<IgnoredAny>(&frame).is_ok() {
        return Ok(frame);
    }
    let last_comma = frame.iter().rposition(|byte| *byte == b',');
    let before = last_comma.and_then(|at| frame.get(..at)).unwrap_or_default();
    let is_json = |text: &Vec<u8>| serde_json::from_slice::<IgnoredAny>(text).is_ok();
    let closed = [frame.as_slice(), before].into_iter().find_map(|text| {
        let closings = [&b"}"[..], b"]}", b"]}}", b"]"].into_iter();
        closings.map(|closing| [text, closing].concat()).find(is_json)
    });
    Ok(closed.unwrap_or(frame))
}

/// The same without the elements of another array, too, whose length is then no matter.
///
/// # Errors
/// Whatever `input` fails with.
pub fn frame_without(input: impl BufRead, path: &[&'static str], other: &[&'static str]) -> io::Result<Vec<u8>> {
    // It is taken away piece by piece.
    let document = Document { max_frame: usize::MAX, ..Document::new(input, other) };
    frame(Around { document, left: Vec::new(), taken: 0 }, path)
}

/// What stands around the records of a document, as a stream.
struct Around<R> {
    document: Document<R>,
    left: Vec<u8>,
    taken: usize,
}

impl<R: BufRead> BufRead for Around<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.taken == self.left.len() {
            self.document.frame = Some(Vec::new());
            let Some(segment) = self.document.next() else { break };
            segment?;
            (self.left, self.taken) = (self.document.frame.take().unwrap_or_default(), 0);
        }
        Ok(self.left.get(self.taken..).unwrap_or_default())
    }

    fn consume(&mut self, length: usize) {
        self.taken = self.left.len().min(self.taken + length);
    }
}

impl<R: BufRead> Read for Around<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}

/// The first key of an object, in its quotes.
fn first_key(object: &[u8]) -> Option<&[u8]> {
    let rest = object.strip_prefix(b"{")?.trim_ascii_start();
    let length = rest.strip_prefix(b"\"")?.iter().take(MAX_KEY_BYTES).position(|byte| *byte == b'"')?;
    rest.get(..length + 2)
}

fn damage(bytes: &[u8]) -> String {
    match value_end(bytes) {
        Err(error) if error.is_eof() => "the record is cut off".to_owned(),
        Err(error) => {
            let text = error.to_string();
            format!("not JSON: {}", text.split(" at line ").next().unwrap_or_default())
        }
        Ok(_) => "not JSON: text behind a value".to_owned(),
    }
}

/// What a byte does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It belongs to what is being gathered.
    On,
    /// An element begins with it.
    Begins,
    /// An element ends with it.
    Ended,
    /// The element ended before it.
    EndedBefore,
}

/// Follows the brackets and strings of a document, byte by byte.
#[derive(Debug)]
struct Scan {
    path: Vec<&'static str>,
    /// How many containers are open.
    depth: u64,
    /// How many keys of the path were followed to get here.
    followed: usize,
    /// The depth of the array, while in it.
    array: Option<u64>,
    in_string: bool,
    escaped: bool,
    /// The last string where a key of the path may stand.
    key: Vec<u8>,
    /// Whether a value of that key comes next.
    is_value: bool,
    /// Whether an element is being read that is neither a container nor a string.
    in_scalar: bool,
    /// Whether an element is being read that is a string.
    in_text: bool,
    /// Whether the element is too long to be held.
    is_long: bool,
    begun: bool,
}

impl Scan {
    fn new(path: &[&'static str]) -> Self {
        Self {
            path: path.to_vec(),
            depth: 0,
            followed: 0,
            array: None,
            in_string: false,
            escaped: false,
            key: Vec::new(),
            is_value: false,
            in_scalar: false,
            in_text: false,
            is_long: false,
            begun: false,
        }
    }

    /// Whether an element of the array is being read.
    fn in_element(&self) -> bool {
        self.in_scalar || self.in_text || self.array.is_some_and(|array| self.depth > array)
    }

    /// Whether everything that was opened is closed.
    fn is_closed(&self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }

    /// Goes on between two elements.
    fn resume(&mut self) {
        self.depth = self.array.unwrap_or(self.depth);
        (self.in_string, self.escaped, self.in_scalar, self.in_text, self.is_long) =
            (false, false, false, false, false);
    }

    fn step(&mut self, byte: u8) -> Step {
        if self.in_string {
            return self.in_string(byte);
        }
        let between = self.array == Some(self.depth);
        if self.in_scalar {
            if !matches!(byte, b',' | b']' | b'}' | b'{' | b'[' | b'"') && !byte.is_ascii_whitespace() {
                return Step::On;
            }
            self.in_scalar = false;
            if !matches!(byte, b'{' | b'[' | b'"') {
                self.outside(byte);
                return Step::EndedBefore;
            }
        }
        // A closing brace here closes nothing; as an element it is damage that the next one is looked for behind.
        if between && !matches!(byte, b',' | b']') && !byte.is_ascii_whitespace() {
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'"' => (self.in_string, self.in_text) = (true, true),
                _ => self.in_scalar = true,
            }
            return Step::Begins;
        }
        self.outside(byte)
    }

    fn in_string(&mut self, byte: u8) -> Step {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            if std::mem::take(&mut self.in_text) {
                return Step::Ended;
            }
            return Step::On;
        }
        if self.may_be_key() && self.key.len() <= MAX_KEY_BYTES {
            self.key.push(byte);
        }
        Step::On
    }

    /// A byte outside of strings that begins no element.
    fn outside(&mut self, byte: u8) -> Step {
        match byte {
            b'"' => {
                self.in_string = true;
                if self.may_be_key() {
                    self.key.clear();
                }
            }
            b':' if self.looks_for_key() => self.is_value = true,
            b',' if self.looks_for_key() => self.is_value = false,
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => return self.close(),
            _ => {}
        }
        Step::On
    }

    fn open(&mut self, byte: u8) {
        let names = self.looks_for_key()
            && self.is_value
            && self.path.get(self.followed).map(|key| key.as_bytes()) == Some(&self.key);
        let is_last = self.followed + 1 == self.path.len();
        let is_root = self.path.is_empty() && !self.begun;
        self.begun = true;
        self.depth += 1;
        if byte == b'[' && (is_root || (names && is_last)) {
            self.array = Some(self.depth);
        } else if byte == b'{' && names && !is_last {
            self.followed += 1;
            self.is_value = false;
        }
    }

    fn close(&mut self) -> Step {
        let ended_element = self.array.is_some_and(|array| self.depth == array + 1);
        if self.array == Some(self.depth) {
            self.array = None;
        } else if self.array.is_none() && self.followed > 0 && self.depth == self.followed as u64 + 1 {
            self.followed -= 1;
        }
        self.depth = self.depth.saturating_sub(1);
        if ended_element { Step::Ended } else { Step::On }
    }

    /// Whether the container that is open is one in which a key of the path may stand.
    fn looks_for_key(&self) -> bool {
        self.array.is_none() && self.followed < self.path.len() && self.depth == self.followed as u64 + 1
    }

    fn may_be_key(&self) -> bool {
        self.looks_for_key() && !self.is_value
    }
}
