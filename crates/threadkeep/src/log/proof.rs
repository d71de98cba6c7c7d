//! A thread with every field that its chain binds, for whoever verifies it without this library.

use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::content;
use crate::db::{Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::Hash;
use crate::keys::Hex;
use crate::log::path;
use crate::log::read::{load_spliced, read_ids};
use crate::records;

/// How many items are read at once, and after how many bytes a page ends.
const PAGE: i64 = 64;
const PAGE_BYTES: usize = 4 << 20;

statements! {
    PROOF_BRANCHES = "SELECT key, id, parent, base, tip, tip_hash FROM branches WHERE thread = ?1 ORDER BY key";
    PROOF_STANDING = "SELECT fork_item, head, head_is_tip FROM threads WHERE id = ?1";
    PROOF_ITEMS = "SELECT i.key, i.id, i.turn, i.kind, i.role, i.format, i.salt, w.id, i.epoch, i.tick, i.created_at, i.sources,
        i.digest, i.hash, i.size, i.chain, i.encoding FROM items i LEFT JOIN writers w ON w.key = i.writer
        WHERE i.key BETWEEN ?1 AND ?2 ORDER BY i.key LIMIT ?3";
}

/// A branch on the thread's paths, from its first item to the last one that the thread reaches.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProofBranch {
    #[serde(skip)]
    key: i64,
    id: BranchId,
    /// The thread that wrote it.
    thread: ThreadId,
    parent: Option<ProofPlace>,
    base: u32,
    tip: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct ProofPlace {
    branch: BranchId,
    depth: u32,
}

/// An item with every field that is hashed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProofItem {
    branch: BranchId,
    pub(crate) depth: u32,
    chain: i64,
    id: ItemId,
    turn: Option<i64>,
    kind: String,
    role: Option<String>,
    format: String,
    salt: Option<Hex<16>>,
    /// Base64; none when it was redacted and nothing stands in its place.
    content: Option<String>,
    /// The number of the record that says who took content away.
    #[serde(skip_serializing_if = "Option::is_none")]
    redaction: Option<i64>,
    digest: Hash,
    writer: Option<WriterId>,
    epoch: i64,
    tick: i64,
    created_at: i64,
    sources: Vec<ItemId>,
    hash: Hash,
}

/// The branches that a thread wrote and those that it shares, each behind the one that it continues.
pub(crate) fn branches(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<ProofBranch>> {
    let id = [thread.as_str().into()];
    let standing = query_one(tx, PROOF_STANDING, &id, |row| {
        let head = row.opt_int(1)?.map(ItemKey);
        Ok((row.opt_int(0)?.map(ItemKey), if row.int(2)? == 1 { head } else { None }))
    })?;
    let (fork, head) = standing.ok_or_else(|| Error::not_found("thread", thread))?;
    let mut segments = fork.map(|fork| path::segments_to(tx, fork, 0)).transpose()?.unwrap_or_default();
    segments.reverse();
    let mut branches = Vec::new();
    for segment in segments {
        let parent = place(tx, segment.parent)?;
        let (key, id, base, tip) = (segment.branch, segment.id, segment.base, segment.upto);
        branches.push(ProofBranch { key, id, thread: segment.thread, parent, base, tip });
    }
    let own = query_all(tx, PROOF_BRANCHES, &id, |row| {
        let key = row.int(0)?;
        let tip = match head.filter(|head| head.branch() == key) {
            // The row's tip is written when the head leaves it.
            Some(head) => head.depth(),
            None => path::depth(row, 4)?,
        };
        let branch = row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?;
        Ok((key, branch, row.opt_int(2)?.map(ItemKey), path::depth(row, 3)?, tip))
    })?;
    for (key, id, parent, base, tip) in own {
        branches.push(ProofBranch { key, id, thread: thread.clone(), parent: place(tx, parent)?, base, tip });
    }
    Ok(branches)
}

fn place(tx: &mut dyn Tx, key: Option<ItemKey>) -> Result<Option<ProofPlace>> {
    let Some(key) = key else { return Ok(None) };
    let Address { branch, depth } = path::address_of(tx, key)?;
    Ok(Some(ProofPlace { branch, depth }))
}

/// A page of the items of a branch from a depth on; none behind its last one.
pub(crate) fn items(tx: &mut dyn Tx, branch: &ProofBranch, from: u32) -> Result<Vec<ProofItem>> {
    let range = [ItemKey::new(branch.key, from).0.into(), ItemKey::new(branch.key, branch.tip).0.into(), PAGE.into()];
    let (mut found, mut bytes) = (Vec::new(), 0);
    tx.query(PROOF_ITEMS, &range, &mut |row| {
        let key = ItemKey(row.int(0)?);
        bytes += usize::try_from(row.int(14)?).unwrap_or(0);
        let salt = row.opt_blob(6)?.and_then(|salt| <[u8; 16]>::try_from(salt).ok());
        let item = ProofItem {
            branch: branch.id,
            depth: key.depth(),
            chain: row.int(15)?,
            id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
            turn: row.opt_int(2)?,
            kind: row.text(3)?.to_owned(),
            role: row.opt_text(4)?.map(str::to_owned),
            format: row.text(5)?.to_owned(),
            salt: salt.map(Hex),
            content: salt.map(|_| String::new()),
            redaction: content::is_redacted(row.int(16)?).then_some(0),
            digest: row.parse(12, Hash::from_slice(row.blob(12)?), "a hash")?,
            writer: row.opt_blob(7)?.and_then(WriterId::from_slice),
            epoch: row.int(8)?,
            tick: row.int(9)?,
            created_at: row.int(10)?,
            sources: read_ids(row, 11)?,
            hash: row.parse(13, Hash::from_slice(row.blob(13)?), "a hash")?,
        };
        found.push((key, item));
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    let fill = |(key, mut item): (ItemKey, ProofItem)| {
        if item.content.is_some() {
            item.content = Some(STANDARD.encode(load_spliced(tx, key)?));
        }
        if item.redaction.is_some() {
            item.redaction = records::redaction_of(tx, item.id)?.map(|record| record.number);
        }
        Ok(item)
    };
    found.into_iter().map(fill).collect()
}
