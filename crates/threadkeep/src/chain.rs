//! The hash chain along every branch.
//!
//! All hashes are BLAKE3. `lp(x)` is the length of `x` as a little-endian u64, then `x`; integers are little-endian i64;
//! an optional value is a byte 0, or a byte 1 and then the value. `docs/data-model.md` gives the preimages with vectors.

use crate::id::{ItemId, ThreadId, WriterId};
use crate::item::{Hash, Kind, Role};
use crate::time::Timestamp;

/// The version of the preimages; stored with every item, so that a later one can join it.
pub(crate) const VERSION: i64 = 1;

const CONTENT: &[u8] = b"threadkeep.content.v1";
const ITEM: &[u8] = b"threadkeep.item.v1";
const GENESIS: &[u8] = b"threadkeep.genesis.v1";

/// The parent hash of a thread's root items.
pub fn genesis(thread: &ThreadId) -> Hash {
    let mut preimage = Preimage::new(GENESIS);
    preimage.lp(thread.as_str().as_bytes());
    preimage.finish()
}

/// The digest of an item's content; salted, so that a short redacted text can't be found by guessing.
pub fn content_digest(kind: &Kind, role: Option<&Role>, format: &str, salt: &[u8; 16], content: &[u8]) -> Hash {
    let mut preimage = Preimage::new(CONTENT);
    preimage.lp(kind.as_str().as_bytes());
    preimage.opt(role, |preimage, role| preimage.lp(role.as_str().as_bytes()));
    preimage.lp(format.as_bytes());
    preimage.lp(salt);
    preimage.lp(content);
    preimage.finish()
}

/// What an item's hash binds beside its content's digest.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    /// The thread that wrote the item.
    pub thread: &'a ThreadId,
    /// The hash of its parent, or [`genesis`].
    pub parent: Hash,
    /// Its id.
    pub id: ItemId,
    /// Its turn.
    pub turn: Option<i64>,
    /// Who wrote it.
    pub writer: WriterId,
    /// The claim's epoch.
    pub epoch: i64,
    /// The append's logical time.
    pub tick: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// The digest of its content.
    pub digest: Hash,
    /// Items it was derived from.
    pub sources: &'a [ItemId],
}

/// The hash of an item.
pub fn item_hash(link: &Link<'_>) -> Hash {
    let mut preimage = Preimage::new(ITEM);
    preimage.lp(link.thread.as_str().as_bytes());
    preimage.lp(&link.parent.0);
    preimage.lp(link.id.as_bytes());
    preimage.opt(link.turn, |preimage, turn| preimage.int(turn));
    preimage.lp(link.writer.as_bytes());
    preimage.int(link.epoch);
    preimage.int(link.tick);
    preimage.int(link.created_at.0);
    preimage.lp(&link.digest.0);
    preimage.len(link.sources.len());
    for source in link.sources {
        preimage.lp(source.as_bytes());
    }
    preimage.finish()
}

/// Bytes on their way into a hash, each field so that it can't be taken for another one.
pub(crate) struct Preimage(blake3::Hasher);

impl Preimage {
    pub(crate) fn new(domain: &[u8]) -> Self {
        let mut preimage = Self(blake3::Hasher::new());
        preimage.lp(domain);
        preimage
    }

    pub(crate) fn len(&mut self, length: usize) {
        self.0.update(&(length as u64).to_le_bytes());
    }

    pub(crate) fn lp(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.update(bytes);
    }

    pub(crate) fn int(&mut self, value: i64) {
        self.0.update(&value.to_le_bytes());
    }

    pub(crate) fn opt<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            None => drop(self.0.update(&[0])),
            Some(value) => {
                self.0.update(&[1]);
                write(self, value);
            }
        }
    }

    pub(crate) fn finish(self) -> Hash {
        Hash(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, content_digest, genesis, item_hash};
    use crate::id::{ItemId, ThreadId, WriterId};
    use crate::item::{Hash, Kind, Role};
    use crate::time::Timestamp;

    /// The vectors of `docs/data-model.md`: whoever changes a preimage breaks every stored chain.
    #[test]
    fn known_answers() {
        let thread = ThreadId::new("kat-thread").unwrap();
        let salt = [7; 16];
        let digest = content_digest(&Kind::Message, Some(&Role::User), "threadkeep/1", &salt, b"kat content");
        let id = ItemId::from_uuid(uuid::Uuid::from_bytes([1; 16]));
        let writer = WriterId::from_uuid(uuid::Uuid::from_bytes([2; 16]));
        let source = ItemId::from_uuid(uuid::Uuid::from_bytes([3; 16]));
        let parent = genesis(&thread);
        let created_at = Timestamp(1_767_323_045_678);
        let link = Link {
            thread: &thread,
            parent,
            id,
            turn: Some(3),
            writer,
            epoch: 4,
            tick: 5,
            created_at,
            digest,
            sources: &[source],
        };
        let hash = item_hash(&link);
        let bare = item_hash(&Link { turn: None, sources: &[], ..link });
        let docs = include_str!("../../../docs/data-model.md");
        for (name, value) in [("genesis", parent), ("digest", digest), ("hash", hash), ("bare", bare)] {
            assert!(docs.contains(&value.to_string()), "docs/data-model.md lacks the vector `{name}` {value}");
        }
    }

    #[test]
    fn every_bound_field_changes_the_hash() {
        let thread = ThreadId::new("t").unwrap();
        let id = ItemId::from_uuid(uuid::Uuid::from_bytes([1; 16]));
        let writer = WriterId::from_uuid(uuid::Uuid::from_bytes([2; 16]));
        let base = Link {
            thread: &thread,
            parent: genesis(&thread),
            id,
            turn: None,
            writer,
            epoch: 1,
            tick: 1,
            created_at: Timestamp(1),
            digest: Hash([9; 32]),
            sources: &[],
        };
        let other_thread = ThreadId::new("u").unwrap();
        let other = ItemId::from_uuid(uuid::Uuid::from_bytes([8; 16]));
        let variants = [
            Link { thread: &other_thread, ..base },
            Link { parent: Hash([0; 32]), ..base },
            Link { id: other, ..base },
            Link { turn: Some(0), ..base },
            Link { writer: WriterId::from_uuid(uuid::Uuid::from_bytes([8; 16])), ..base },
            Link { epoch: 2, ..base },
            Link { tick: 2, ..base },
            Link { created_at: Timestamp(2), ..base },
            Link { digest: Hash([0; 32]), ..base },
            Link { sources: &[other], ..base },
        ];
        let mut hashes: Vec<_> = variants.iter().map(item_hash).collect();
        hashes.push(item_hash(&base));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), variants.len() + 1);
    }
}
