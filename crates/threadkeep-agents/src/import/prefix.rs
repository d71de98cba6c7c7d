//! The part of a file that is in the store, recognised by its hash.

use std::io::{self, BufRead as _, BufReader, Read};

use threadkeep::{Hash, SourceFile};

use super::files::Found;
use crate::segments::Position;

pub(super) type Input = BufReader<Box<dyn Read>>;

/// The part of a file that is in the store, and what comes after it.
pub(super) struct KnownPart {
    pub(super) prefix: Prefix,
    pub(super) end: Position,
    /// Of the file that was hashed: one that took its place meanwhile is no continuation of it.
    pub(super) rest: Input,
}

/// Reads the part of a file that is in the store; gives nothing when the file is shorter or says something else there.
pub(super) fn known_part(file: &Found, source: &SourceFile) -> io::Result<Option<KnownPart>> {
    let consumed = u64::try_from(source.consumed).unwrap_or(0);
    let mut rest = file.open()?;
    let mut prefix = Prefix::default();
    let mut end = Position { offset: 0, line: file.first_line() };
    while end.offset < consumed {
        let buffer = rest.fill_buf()?;
        let left = usize::try_from(consumed - end.offset).unwrap_or(usize::MAX);
        let part = buffer.get(..left).unwrap_or(buffer);
        if part.is_empty() {
            return Ok(None);
        }
        prefix.update(part);
        end.offset += part.len() as u64;
        end.line += part.iter().filter(|byte| **byte == b'\n').count() as u64;
        let length = part.len();
        rest.consume(length);
    }
    let same = prefix.hash() == source.prefix;
    Ok(same.then_some(KnownPart { prefix, end, rest }))
}

/// The hash of what was read of a file. Many pieces of BLAKE3 are hashed at once, so lines are gathered for it.
#[derive(Default)]
pub(super) struct Prefix {
    hasher: blake3::Hasher,
    gathered: Vec<u8>,
}

impl Prefix {
    const GATHERED: usize = 64 << 10;

    pub(super) fn update(&mut self, bytes: &[u8]) {
        if self.gathered.len() + bytes.len() > Self::GATHERED {
            self.hasher.update(&self.gathered);
            self.gathered.clear();
        }
        match bytes.len() >= Self::GATHERED {
            true => drop(self.hasher.update(bytes)),
            false => self.gathered.extend_from_slice(bytes),
        }
    }

    pub(super) fn hash(&self) -> Hash {
        let mut hasher = self.hasher.clone();
        Hash(*hasher.update(&self.gathered).finalize().as_bytes())
    }
}
