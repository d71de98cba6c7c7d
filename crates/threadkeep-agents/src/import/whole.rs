//! Sessions that are read as a whole: documents, trees of small files, and rows of a database.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep::blocking::Store;

use super::companions::Memory;
use super::database::Session;
use super::files::{self, Found, Origin};
use super::source::Failure;
use super::tree;
use crate::codec::{Codec, Shape, SourceReader, ThreadFacts};
use crate::document::{self, Document};
use crate::replay::Replayed;
use crate::segments::{Position, Segment, Segments};

/// What takes the segments of a session, one by one.
pub(super) type Take<'a> = dyn FnMut(Segment) -> Result<(), Failure> + 'a;

/// Reads a session from its beginning to its end.
pub(super) fn read(codec: &dyn Codec, file: &Found, shape: Shape, take: &mut Take<'_>) -> Result<(), Failure> {
    match (&file.origin, shape) {
        (Origin::Session(Session { database, id }), _) => database.read(id, take),
        (Origin::File, Shape::Tree) => tree::read(codec, &file.path, take),
        (Origin::File, Shape::Document(path) | Shape::FirstOf(path, _)) => {
            Document::new(files::open(&file.path)?, path).try_for_each(|segment| take(segment?))
        }
        (Origin::File, Shape::Replayed(path)) => {
            let replay = || codec.replay(shape).ok_or_else(|| Failure::File("nothing makes its records".to_owned()));
            let open = || Ok::<_, Failure>(files::open(&file.path)?);
            if let Some(path) = path {
                return Replayed::new(Document::new(open()?, path), replay()?).try_for_each(|segment| take(segment?));
            }
            // The records of a log follow from its end. Made first, they begin a thread, and nothing of the log is held until then.
            let is_made = |segment: &io::Result<Segment>| matches!(segment, Ok(Segment::Record { .. }));
            let mut made =
                Replayed::new(Segments::new(open()?), replay()?).filter(|segment| is_made(segment) || segment.is_err());
            made.try_for_each(|segment| take(segment?))?;
            let mut stands = Replayed::new(Segments::new(open()?), replay()?).filter(|segment| !is_made(segment));
            stands.try_for_each(|segment| take(segment?))
        }
        (Origin::File | Origin::Section(_), _) => Err(Failure::File("it is not read as a whole".to_owned())),
    }
}

/// Gives a reader what it is told before the first record.
pub(super) fn prepare(store: &Store, file: &Found, shape: Shape, reader: &mut dyn SourceReader) -> Result<(), Failure> {
    let open = || files::open(&file.path);
    let frame = match shape {
        Shape::Document(path) | Shape::Replayed(Some(path)) => document::frame(open()?, path)?,
        Shape::FirstOf(path, other) => document::frame_without(open()?, path, other)?,
        _ => return Ok(()),
    };
    reader.frame(&store.screened(&file.key, &frame)?.unwrap_or(frame));
    Ok(())
}

/// What the next import has to know of a session that is read as a whole; the codec's own state is of no use to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Remembered {
    /// What the thread was told by the session.
    pub(super) facts: ThreadFacts,
    /// What became of its companions.
    pub(super) companions: Memory,
    /// The records that are kept beside the tree, each by the beginning of its hash: they have no ids of their own.
    pub(super) beside: BTreeSet<u64>,
}

impl Remembered {
    pub(super) fn read(state: &[u8]) -> Self {
        serde_json::from_slice(state).unwrap_or_default()
    }

    /// Remembers a record; tells whether an earlier import did.
    pub(super) fn note(&mut self, bytes: &[u8], earlier: &Self) -> bool {
        let mark = mark_of(&blake3::hash(bytes));
        self.beside.insert(mark);
        earlier.beside.contains(&mark)
    }
}

/// The beginning of a hash as a number that is not negative.
pub(super) fn mark_of(hash: &blake3::Hash) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
    u64::from_le_bytes(bytes) >> 1
}

/// Segments that no file has as they are: a line for each record.
#[derive(Debug)]
pub(super) struct Made(Position);

impl Made {
    pub(super) fn new() -> Self {
        Self(Position { offset: 0, line: 1 })
    }

    /// A record of its own line.
    pub(super) fn record(&mut self, bytes: Vec<u8>) -> Segment {
        let Position { offset, line } = self.0;
        self.0 = Position { offset: offset + bytes.len() as u64 + 1, line: line + 1 };
        Segment::Record { line, offset, bytes, newline: true }
    }

    /// Bytes that can't be read, below a line that names where they are from.
    pub(super) fn damaged(&mut self, name: &str, bytes: &[u8], reason: &str) -> Segment {
        let Position { offset, line } = self.0;
        let head = serde_json::json!({ "file": name }).to_string();
        let bytes = [head.as_bytes(), b"\n", bytes, b"\n"].concat();
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.0 = Position { offset: offset + bytes.len() as u64, line: line + lines };
        Segment::Opaque { line, offset, bytes, reason: Some(format!("{name}: {reason}")) }
    }
}

/// A file's name below a folder, in the same form on every system.
pub(super) fn name_below(root: &Path, file: &Path) -> String {
    let below = file.strip_prefix(root).unwrap_or(file);
    below.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The nearest folder that holds a file and all of these.
pub(super) fn root_of(file: &Path, others: &[PathBuf]) -> PathBuf {
    let holds = |folder: &&Path| others.iter().all(|other| other.starts_with(folder));
    file.ancestors().skip(1).find(holds).unwrap_or_else(|| Path::new("")).to_owned()
}
