//! Paths: from an item through the parent branches to the root.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::db::{Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId};
use crate::item::Hash;

/// How many branches are loaded at a time on the way to the root.
const CHUNK: i64 = 64;

statements! {
    PATH_CHUNK = "WITH RECURSIVE hop (key, upto, level) AS (
        SELECT CAST(?1 AS BIGINT) >> 32, CAST(?1 AS BIGINT) & 4294967295, CAST(1 AS BIGINT)
        UNION ALL
        SELECT b.parent >> 32, b.parent & 4294967295, hop.level + 1
          FROM hop JOIN branches b ON b.key = hop.key
         WHERE b.parent IS NOT NULL AND hop.level < ?2)
      SELECT b.key, b.id, b.thread, b.base, hop.upto, b.parent
        FROM hop JOIN branches b ON b.key = hop.key ORDER BY hop.level";
    BRANCH_BY_ID = "SELECT key, thread FROM branches WHERE id = ?1";
    BRANCH_ID = "SELECT id FROM branches WHERE key = ?1";
    ITEM_BY_KEY = "SELECT hash, turn FROM items WHERE key = ?1";
    ID_BY_KEY = "SELECT id FROM items WHERE key = ?1";
    KEY_BY_ID = "SELECT key FROM items WHERE id = ?1";
}

/// A branch's part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) branch: i64,
    pub(crate) id: BranchId,
    pub(crate) thread: ThreadId,
    pub(crate) base: u32,
    /// The depth of the last item on the path.
    pub(crate) upto: u32,
    pub(crate) parent: Option<ItemKey>,
}

impl Segment {
    pub(crate) fn key(&self, depth: u32) -> ItemKey {
        ItemKey::new(self.branch, depth)
    }
}

/// Looks at a segment of a path; says whether to go on towards the root.
pub(crate) type Visit<'a> = dyn FnMut(&mut dyn Tx, Segment) -> Result<ControlFlow<()>> + 'a;

/// Visits the segments of the path from its end to its root; loads no more of them than are visited, give or take a chunk.
pub(crate) fn walk(tx: &mut dyn Tx, end: ItemKey, visit: &mut Visit<'_>) -> Result<()> {
    let mut next = Some(end);
    while let Some(from) = next.take() {
        let chunk = query_all(tx, PATH_CHUNK, &[from.0.into(), CHUNK.into()], read_segment)?;
        if chunk.is_empty() {
            return Err(Error::corrupt(format!("branch {}", from.branch()), "it is missing"));
        }
        next = chunk.last().and_then(|segment| segment.parent);
        for segment in chunk {
            if visit(tx, segment)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The segments of the path from its end down to the one that holds `depth`, end first.
pub(crate) fn segments_to(tx: &mut dyn Tx, end: ItemKey, depth: u32) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    walk(tx, end, &mut |_, segment| {
        let last = segment.base <= depth;
        segments.push(segment);
        Ok(if last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(segments)
}

/// The item at `depth` of the path that ends at `end`.
pub(crate) fn at_depth(tx: &mut dyn Tx, end: ItemKey, depth: u32) -> Result<Option<ItemKey>> {
    if depth > end.depth() {
        return Ok(None);
    }
    let segments = segments_to(tx, end, depth)?;
    Ok(segments.last().map(|segment| segment.key(depth)))
}

/// The last item that two paths share; loads no more of them than what lies after it, give or take a chunk.
pub(crate) fn meet(tx: &mut dyn Tx, one: ItemKey, other: ItemKey) -> Result<Option<ItemKey>> {
    let (mut one, mut other) = (Climb::from(one), Climb::from(other));
    let (mut left, mut right) = (one.next(tx)?, other.next(tx)?);
    while let (Some(a), Some(b)) = (&left, &right) {
        if a.branch == b.branch {
            return Ok(Some(a.key(a.upto.min(b.upto))));
        }
        // Towards the root the bases fall: a branch that begins deeper is not on what is left of the other path.
        if a.base >= b.base {
            left = one.next(tx)?;
        } else {
            right = other.next(tx)?;
        }
    }
    Ok(None)
}

/// Goes from an item to the root, a segment at a time.
struct Climb {
    next: Option<ItemKey>,
    loaded: VecDeque<Segment>,
}

impl Climb {
    fn from(end: ItemKey) -> Self {
        Self { next: Some(end), loaded: VecDeque::new() }
    }

    fn next(&mut self, tx: &mut dyn Tx) -> Result<Option<Segment>> {
        if self.loaded.is_empty()
            && let Some(from) = self.next.take()
        {
            self.loaded = query_all(tx, PATH_CHUNK, &[from.0.into(), CHUNK.into()], read_segment)?.into();
            self.next = self.loaded.back().and_then(|segment| segment.parent);
        }
        Ok(self.loaded.pop_front())
    }
}

/// Whether `item` stands on the path that ends at `end`.
pub(crate) fn contains(tx: &mut dyn Tx, end: ItemKey, item: ItemKey) -> Result<bool> {
    Ok(at_depth(tx, end, item.depth())? == Some(item))
}

/// The key behind a branch's public id and a depth, with the thread that wrote the branch. The item need not exist.
pub(crate) fn key_of(tx: &mut dyn Tx, address: Address) -> Result<Option<(ItemKey, ThreadId)>> {
    query_one(tx, BRANCH_BY_ID, &[address.branch.as_bytes().as_slice().into()], |row| {
        let key = ItemKey::new(row.int(0)?, address.depth);
        Ok((key, row.parse(1, ThreadId::new(row.text(1)?).ok(), "a thread id")?))
    })
}

/// The public address of an item.
pub(crate) fn address_of(tx: &mut dyn Tx, key: ItemKey) -> Result<Address> {
    let branch = query_one(tx, BRANCH_ID, &[key.branch().into()], |row| {
        row.parse(0, ItemId::from_slice(row.blob(0)?), "16 bytes of an id")
    })?;
    let branch = branch.ok_or_else(|| Error::corrupt(format!("branch {}", key.branch()), "it is missing"))?;
    Ok(Address { branch, depth: key.depth() })
}

/// The chain's hash at an item, and the item's turn.
pub(crate) fn link_at(tx: &mut dyn Tx, key: ItemKey) -> Result<Option<(Hash, Option<i64>)>> {
    query_one(tx, ITEM_BY_KEY, &[key.0.into()], |row| {
        Ok((row.parse(0, Hash::from_slice(row.blob(0)?), "a hash")?, row.opt_int(1)?))
    })
}

/// The key of the item with this id.
pub(crate) fn key_by_id(tx: &mut dyn Tx, id: ItemId) -> Result<Option<ItemKey>> {
    query_one(tx, KEY_BY_ID, &[id.as_bytes().as_slice().into()], |row| Ok(ItemKey(row.int(0)?)))
}

/// The id of the item with this key.
pub(crate) fn id_of(tx: &mut dyn Tx, key: ItemKey) -> Result<Option<ItemId>> {
    query_one(tx, ID_BY_KEY, &[key.0.into()], |row| row.parse(0, ItemId::from_slice(row.blob(0)?), "16 bytes of an id"))
}

/// Reads a depth; anything outside of u32 is damage.
pub(crate) fn depth(row: &Row<'_>, column: usize) -> Result<u32> {
    row.parse(column, u32::try_from(row.int(column)?).ok(), "a depth")
}

fn read_segment(row: &Row<'_>) -> Result<Segment> {
    Ok(Segment {
        branch: row.int(0)?,
        id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        thread: row.parse(2, ThreadId::new(row.text(2)?).ok(), "a thread id")?,
        base: depth(row, 3)?,
        upto: depth(row, 4)?,
        parent: row.opt_int(5)?.map(ItemKey),
    })
}
