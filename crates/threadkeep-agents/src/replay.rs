//! Files whose conversation follows from all of them, and stands in no part of them as it is: logs of changes to a state, and
//! documents whose elements hold a prompt together with all that came of it.
//!
//! Their bytes are kept exactly as they are, as segments that are no records. The records are made from them by a [`Replay`], and
//! are handed out among the segments; they stand nowhere in the file.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use crate::segments::Segment;

/// Makes records from the parts of a file.
pub trait Replay: Send {
    /// Takes the next part of the file: a line's JSON object, or an element of the array.
    fn take(&mut self, part: &[u8]) -> Taken;

    /// The records that follow from the file as a whole, some at a time. Asked again behind its end, until there are none.
    fn rest(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// What a part of a file leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Records, each a JSON object.
    pub records: Vec<Vec<u8>>,
    /// For people: what is wrong with the part. It costs itself alone.
    pub finding: Option<String>,
}

impl Taken {
    /// A part that leads to nothing.
    pub(crate) fn wrong(finding: impl Into<String>) -> Self {
        Self { records: Vec::new(), finding: Some(finding.into()) }
    }
}

/// A file's segments with the records that follow from them.
///
/// Guarantees: what the file holds comes as [`Segment::Opaque`] and [`Segment::Tail`], in file order and without gaps;
/// [`Segment::Record`] is what was made, and its offset is its number, from 0.
pub struct Replayed<I> {
    segments: I,
    replay: Box<dyn Replay>,
    ready: VecDeque<Segment>,
    made: u64,
    at_end: bool,
}

impl<I> fmt::Debug for Replayed<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replayed").field("made", &self.made).field("at_end", &self.at_end).finish_non_exhaustive()
    }
}

impl<I: Iterator<Item = io::Result<Segment>>> Replayed<I> {
    /// Replays a file's segments.
    pub fn new(segments: I, replay: Box<dyn Replay>) -> Self {
        Self { segments, replay, ready: VecDeque::new(), made: 0, at_end: false }
    }

    fn take(&mut self, segment: Segment) {
        let Segment::Record { line, offset, mut bytes, newline } = segment else {
            self.ready.push_back(segment);
            return;
        };
        let Taken { records, finding } = self.replay.take(&bytes);
        if newline {
            bytes.push(b'\n');
        }
        self.ready.push_back(Segment::Opaque { line, offset, bytes, reason: finding });
        self.hand_out(records, line);
    }

    fn hand_out(&mut self, records: Vec<Vec<u8>>, line: u64) {
        for bytes in records {
            self.ready.push_back(Segment::Record { line, offset: self.made, bytes, newline: false });
            self.made += 1;
        }
    }
}

impl<I: Iterator<Item = io::Result<Segment>>> Iterator for Replayed<I> {
    type Item = io::Result<Segment>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(segment) = self.ready.pop_front() {
                return Some(Ok(segment));
            }
            if !self.at_end {
                match self.segments.next() {
                    Some(Ok(segment)) => self.take(segment),
                    Some(Err(error)) => return Some(Err(error)),
                    None => self.at_end = true,
                }
                continue;
            }
            let rest = self.replay.rest();
            if rest.is_empty() {
                return None;
            }
            self.hand_out(rest, 0);
        }
    }
}
