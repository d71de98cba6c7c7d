//! Purging: what no other thread reaches goes, the rest stays.
//!
//! Another thread reaches a branch through the item that it was forked at, or through one of its branches that
//! continues there. A thread whose branches are all unreached is deleted; else it stays as a stub without metadata.

use crate::db::{Tx, query_all, query_one, statements};
use crate::error::Result;
use crate::id::{ItemKey, ThreadId};
use crate::log::{blobs, path};
use crate::time::Timestamp;

/// How many items go in one transaction: well under ten milliseconds.
const CHUNK: usize = 500;

statements! {
    BRANCHES_DOWN = "SELECT key, base, tip FROM branches WHERE thread = ?1 ORDER BY key DESC";
    REACHED_BY_FORK = "SELECT max(fork_item) FROM threads WHERE fork_item BETWEEN ?1 AND ?2 AND shelf < 3 AND id <> ?3";
    REACHED_BY_BRANCH = "SELECT max(parent) FROM branches WHERE parent BETWEEN ?1 AND ?2";
    LAST_ITEMS = "SELECT key FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT ?3";
    DELETE_ITEM = "DELETE FROM items WHERE key = ?1";
    KEEP_NUMBER = "INSERT INTO counters (name, value) VALUES ('purged-branch', ?1) ON CONFLICT (name)
        DO UPDATE SET value = CASE WHEN counters.value < excluded.value THEN excluded.value ELSE counters.value END";
    DELETE_BRANCH = "DELETE FROM branches WHERE key = ?1";
    SHORTEN_BRANCH = "UPDATE branches SET tip = ?2, tip_hash = ?3, label = NULL WHERE key = ?1";
    DROP_HEAD = "UPDATE threads SET head = NULL, head_hash = NULL, head_is_tip = 0, epoch = epoch + 1 WHERE id = ?1 AND head IS NOT NULL";
    COUNT_ITEM = "UPDATE threads SET items = items - ?2, branches = branches - ?3 WHERE id = ?1";
    REMAINING = "SELECT count(*) FROM branches WHERE thread = ?1";
    STUBS_BEHIND = "SELECT s.id FROM threads s JOIN branches behind ON behind.thread = s.id
        WHERE s.shelf = 3 AND s.id <> ?1 AND (behind.key = (SELECT fork_item >> 32 FROM threads WHERE id = ?1)
          OR behind.key IN (SELECT parent >> 32 FROM branches WHERE thread = ?1 AND parent IS NOT NULL))
        GROUP BY s.id ORDER BY s.id";
    STRIP = "UPDATE threads SET shelf = 3, status = 'completed', fork_item = NULL, policy = '\"all\"', title = NULL, preview = NULL,
        agent = NULL, source = NULL, provider = NULL, model = NULL, cwd = NULL, working_path = NULL, rollout_path = NULL,
        git_sha = NULL, git_branch = NULL, git_origin = NULL, cli_version = NULL, sandbox_policy = NULL,
        approval_policy = NULL, memory_mode = NULL, persona = NULL, parent = NULL, forked_from = NULL, end_reason = NULL,
        token_usage = NULL, extra = '{}', open_turn = NULL, version = version + 1, updated_at = ?2 WHERE id = ?1";
    FORGET_FORK = "UPDATE threads SET fork_item = NULL WHERE id = ?1";
    DELETE_TURNS = "DELETE FROM turns WHERE thread = ?1";
    DELETE_CLAIM = "DELETE FROM claims WHERE thread = ?1";
    DROP_SEGMENTS = "DELETE FROM segments WHERE source IN (SELECT key FROM sources WHERE thread = ?1)";
    DETACH_SOURCES = "UPDATE sources SET thread = NULL WHERE thread = ?1";
    DELETE_THREAD = "DELETE FROM threads WHERE id = ?1";
}

/// What a purge took and left.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Purged {
    /// Items that are gone.
    pub items: u64,
    /// Items that stay because other threads share them.
    pub shared: u64,
    /// Whether a stub stays for the shared items.
    pub stub: bool,
}

/// What a step of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    More {
        /// Items that went in this step.
        items: u64,
    },
    /// The thread is purged.
    Done {
        /// Items that stay.
        shared: u64,
    },
}

/// Takes the next chunk. The caller has checked that the thread is in the trash (or is a stub) and not held.
pub(crate) fn step(tx: &mut dyn Tx, thread: &ThreadId, now: Timestamp) -> Result<Step> {
    tx.execute(DROP_HEAD, &[thread.as_str().into()])?;
    tx.execute(DELETE_CLAIM, &[thread.as_str().into()])?;
    let branches = query_all(tx, BRANCHES_DOWN, &[thread.as_str().into()], |row| {
        Ok((row.int(0)?, path::depth(row, 1)?, path::depth(row, 2)?))
    })?;
    let mut shared = 0;
    for (branch, base, tip) in branches {
        let keep = reached(tx, thread, branch)?;
        let first = keep.map_or(base, |keep| keep.depth() + 1);
        let range = [ItemKey::new(branch, first).0.into(), ItemKey::new(branch, u32::MAX).0.into()];
        let limit = i64::try_from(CHUNK).unwrap_or(i64::MAX);
        let keys = query_all(tx, LAST_ITEMS, &[range[0], range[1], limit.into()], |row| Ok(ItemKey(row.int(0)?)))?;
        if !keys.is_empty() {
            return delete_items(tx, thread, &keys);
        }
        match keep {
            None => {
                tx.execute(KEEP_NUMBER, &[branch.into()])?;
                tx.execute(DELETE_BRANCH, &[branch.into()])?;
                tx.execute(COUNT_ITEM, &[thread.as_str().into(), 0.into(), 1.into()])?;
            }
            Some(keep) => {
                shared += u64::from(keep.depth() - base) + 1;
                if keep.depth() != tip
                    && let Some((hash, _)) = path::link_at(tx, keep)?
                {
                    let args = [branch.into(), i64::from(keep.depth()).into(), hash.0.as_slice().into()];
                    tx.execute(SHORTEN_BRANCH, &args)?;
                }
            }
        }
    }
    finish(tx, thread, now)?;
    Ok(Step::Done { shared })
}

/// The stubs that this thread continues: once it is gone, nothing may reach them any more.
pub(crate) fn stubs_behind(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<ThreadId>> {
    query_all(tx, STUBS_BEHIND, &[thread.as_str().into()], |row| {
        row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
    })
}

fn delete_items(tx: &mut dyn Tx, thread: &ThreadId, keys: &[ItemKey]) -> Result<Step> {
    for key in keys {
        blobs::release(tx, *key)?;
        tx.execute(DELETE_ITEM, &[key.0.into()])?;
    }
    let count = i64::try_from(keys.len()).unwrap_or(0);
    tx.execute(COUNT_ITEM, &[thread.as_str().into(), count.into(), 0.into()])?;
    Ok(Step::More { items: keys.len() as u64 })
}

/// The deepest item of the branch that another thread, or a branch that stays, continues from.
fn reached(tx: &mut dyn Tx, thread: &ThreadId, branch: i64) -> Result<Option<ItemKey>> {
    let range = [ItemKey::new(branch, 0).0.into(), ItemKey::new(branch, u32::MAX).0.into()];
    let fork =
        query_one(tx, REACHED_BY_FORK, &[range[0], range[1], thread.as_str().into()], |row| row.opt_int(0))?.flatten();
    let child = query_one(tx, REACHED_BY_BRANCH, &range, |row| row.opt_int(0))?.flatten();
    Ok(fork.max(child).map(ItemKey))
}

fn finish(tx: &mut dyn Tx, thread: &ThreadId, now: Timestamp) -> Result<()> {
    let id = thread.as_str().into();
    tx.execute(DROP_SEGMENTS, &[id])?;
    tx.execute(DETACH_SOURCES, &[id])?;
    tx.execute(DELETE_TURNS, &[id])?;
    let remaining = query_one(tx, REMAINING, &[id], |row| row.int(0))?.unwrap_or(0);
    if remaining == 0 {
        tx.execute(FORGET_FORK, &[id])?;
        tx.execute(DELETE_THREAD, &[id])?;
    } else {
        tx.execute(STRIP, &[id, now.0.into()])?;
    }
    Ok(())
}
