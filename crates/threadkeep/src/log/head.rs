//! Where a thread stands, and the tree around it: rewinding, clearing, labels, branches.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::branch::{Branch, Tree};
use crate::changes::{self, Area, Note, Verb};
use crate::db::{Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::{Hash, check_text};
use crate::log::append::Pen;
use crate::log::path;
use crate::time::Timestamp;

const MAX_LABEL_BYTES: usize = 256;

statements! {
    ITEM_EXISTS = "SELECT 1 FROM items WHERE key = ?1";
    FORK_ITEM = "SELECT fork_item FROM threads WHERE id = ?1";
    HEAD = "SELECT head, head_is_tip FROM threads WHERE id = ?1";
    CLEAR_BRANCHES = "UPDATE branches SET cleared = 1 WHERE thread = ?1 AND cleared = 0";
    LABEL = "UPDATE branches SET label = ?3 WHERE id = ?1 AND thread = ?2";
    BRANCHES = "SELECT key, id, parent, base, tip, tip_hash, label, cleared FROM branches WHERE thread = ?1 ORDER BY key";
    BRANCH_FACTS = "SELECT label, cleared FROM branches WHERE key = ?1";
}

/// The item at an address, if the thread reaches it: on one of its own branches, or on the path that it was forked from.
pub(crate) fn resolve(tx: &mut dyn Tx, thread: &ThreadId, address: Address) -> Result<ItemKey> {
    let missing = || Error::not_found("item", format!("{thread} {address}"));
    let (key, owner) = path::key_of(tx, address)?.ok_or_else(missing)?;
    let reached = if owner == *thread {
        query_one(tx, ITEM_EXISTS, &[key.0.into()], |_| Ok(()))?.is_some()
    } else {
        let fork = query_one(tx, FORK_ITEM, &[thread.as_str().into()], |row| row.opt_int(0))?.flatten();
        match fork {
            Some(fork) => path::contains(tx, ItemKey(fork), key)?,
            None => false,
        }
    };
    if reached { Ok(key) } else { Err(missing()) }
}

/// Moves the head to an item of the thread. The items after it stay, on their branch.
pub(crate) fn set_head(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    epoch: i64,
    writer: (i64, WriterId),
    now: Timestamp,
    target: Address,
) -> Result<()> {
    let mut pen = Pen::take(tx, thread, epoch, writer, now)?;
    let key = resolve(tx, thread, target)?;
    pen.move_to(tx, key)?;
    pen.put_down(tx, Area::Head)
}

/// Starts the thread afresh: the head is nowhere, and what was written stays, out of the leaves. Gives the number of items
/// that the active path had.
pub(crate) fn clear(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    epoch: i64,
    writer: (i64, WriterId),
    now: Timestamp,
) -> Result<u64> {
    let mut pen = Pen::take(tx, thread, epoch, writer, now)?;
    let count = pen.head().map_or(0, |key| u64::from(key.depth()) + 1);
    pen.leave(tx)?;
    pen.put_down(tx, Area::Head)?;
    tx.execute(CLEAR_BRANCHES, &[thread.as_str().into()])?;
    Ok(count)
}

/// Names a branch of the thread, or takes its name away.
pub(crate) fn label(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    branch: BranchId,
    label: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    if let Some(label) = label {
        check_text("label", label, MAX_LABEL_BYTES)?;
    }
    let args = [branch.as_bytes().as_slice().into(), thread.as_str().into(), label.into()];
    match tx.execute(LABEL, &args)? {
        0 => Err(Error::not_found("branch", branch)),
        _ => {
            let (verb, subject) = (Verb::Changed, branch.to_string());
            changes::note(tx, thread, None, Note { area: Area::Label, verb, subject: Some(&subject), now })
        }
    }
}

/// Where the thread stands; its head is `None` when it is empty or cleared.
pub(crate) fn head_of(tx: &mut dyn Tx, thread: &ThreadId) -> Result<(Option<ItemKey>, bool)> {
    let head =
        query_one(tx, HEAD, &[thread.as_str().into()], |row| Ok((row.opt_int(0)?.map(ItemKey), row.int(1)? == 1)))?;
    head.ok_or_else(|| Error::not_found("thread", thread))
}

/// The thread's own branches and the ancestors that it shares.
pub(crate) fn tree(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Tree> {
    let (head, head_is_tip) = head_of(tx, thread)?;
    let mut active = HashSet::new();
    if let Some(head) = head {
        path::walk(tx, head, &mut |_, segment| {
            active.insert(segment.branch);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let mut branches = shared_branches(tx, thread, &active)?;
    for row in query_all(tx, BRANCHES, &[thread.as_str().into()], read_branch)? {
        let (key, parent, mut branch) = row;
        branch.thread = thread.clone();
        branch.active = active.contains(&key);
        branch.parent = parent.map(|parent| path::address_of(tx, parent)).transpose()?;
        if let Some(head) = head.filter(|head| head_is_tip && head.branch() == key) {
            // The row's tip is written when the head leaves it.
            branch.tip = head.depth();
            branch.tip_hash = hash_at(tx, head)?;
        }
        branches.push(branch);
    }
    let head = head.map(|key| path::address_of(tx, key)).transpose()?;
    Ok(Tree { thread: thread.clone(), head, branches })
}

/// The segments of the path that the thread was forked from, root first.
fn shared_branches(tx: &mut dyn Tx, thread: &ThreadId, active: &HashSet<i64>) -> Result<Vec<Branch>> {
    let fork = query_one(tx, FORK_ITEM, &[thread.as_str().into()], |row| row.opt_int(0))?.flatten();
    let Some(fork) = fork else {
        return Ok(Vec::new());
    };
    let mut segments = path::segments_to(tx, ItemKey(fork), 0)?;
    segments.reverse();
    let mut branches = Vec::with_capacity(segments.len());
    for segment in segments {
        let facts = query_one(tx, BRANCH_FACTS, &[segment.branch.into()], |row| {
            Ok((row.opt_text(0)?.map(str::to_owned), row.int(1)? == 1))
        })?;
        let (label, cleared) = facts.unwrap_or_default();
        branches.push(Branch {
            id: segment.id,
            parent: segment.parent.map(|parent| path::address_of(tx, parent)).transpose()?,
            base: segment.base,
            tip: segment.upto,
            tip_hash: hash_at(tx, segment.key(segment.upto))?,
            active: active.contains(&segment.branch),
            thread: segment.thread,
            label,
            cleared,
        });
    }
    Ok(branches)
}

fn hash_at(tx: &mut dyn Tx, key: ItemKey) -> Result<Hash> {
    let link = path::link_at(tx, key)?;
    link.map(|(hash, _)| hash).ok_or_else(|| Error::corrupt(format!("item {}", key.0), "it is missing"))
}

fn read_branch(row: &Row<'_>) -> Result<(i64, Option<ItemKey>, Branch)> {
    let branch = Branch {
        id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        thread: ThreadId::new("unset")?,
        parent: None,
        base: path::depth(row, 3)?,
        tip: path::depth(row, 4)?,
        tip_hash: row.parse(5, Hash::from_slice(row.blob(5)?), "a hash")?,
        label: row.opt_text(6)?.map(str::to_owned),
        cleared: row.int(7)? == 1,
        active: false,
    };
    Ok((row.int(0)?, row.opt_int(2)?.map(ItemKey), branch))
}
