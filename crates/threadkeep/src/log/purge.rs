//! Purging: what no other thread reaches goes, the rest stays.
//!
//! Another thread reaches a branch through the item that it was forked at, or through one of its branches that
//! continues there. A thread whose branches are all unreached is deleted; else it stays as a stub without metadata.
//!
//! The first step makes the thread a stub that is marked as being purged: from then on nobody can see, restore or resume it.
//! The items go in further steps, each a short transaction. A purge that is cut short leaves the mark, and the next one
//! finishes it.

use uuid::Uuid;

use crate::changes::{self, Verb};
use crate::db::{Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ItemKey, ThreadId};
use crate::item::Hash;
use crate::log::{blobs, path};
use crate::records;
use crate::threads;
use crate::time::Timestamp;

/// How many items go in one transaction: well under ten milliseconds.
const CHUNK: usize = 500;

statements! {
    CANDIDATE = "SELECT t.shelf, c.holder, t.head, t.head_hash, t.head_is_tip, t.epoch FROM threads t
        LEFT JOIN claims c ON c.thread = t.id WHERE t.id = ?1 /* FOR UPDATE OF t */";
    RECORD_TIP = "UPDATE branches SET tip = ?2, tip_hash = ?3 WHERE key = ?1";
    STRIP = "UPDATE threads SET shelf = 3, status = 'purging', epoch = epoch + 1, head = NULL, head_hash = NULL, head_is_tip = 0,
        fork_item = NULL, policy = '\"all\"', title = NULL, preview = NULL,
        agent = NULL, source = NULL, provider = NULL, model = NULL, cwd = NULL, working_path = NULL, rollout_path = NULL,
        git_sha = NULL, git_branch = NULL, git_origin = NULL, cli_version = NULL, sandbox_policy = NULL,
        approval_policy = NULL, memory_mode = NULL, persona = NULL, parent = NULL, forked_from = NULL, end_reason = NULL,
        token_usage = NULL, extra = '{}', open_turn = NULL, version = version + 1, updated_at = ?2 WHERE id = ?1";
    MARK_STUBS_BEHIND = "UPDATE threads SET status = 'purging' WHERE shelf = 3 AND id <> ?1 AND id IN (
        SELECT behind.thread FROM branches behind WHERE behind.key = (SELECT fork_item >> 32 FROM threads WHERE id = ?1)
          OR behind.key IN (SELECT parent >> 32 FROM branches WHERE thread = ?1 AND parent IS NOT NULL))";
    DROP_LABELS = "UPDATE branches SET label = NULL WHERE thread = ?1";
    DELETE_CLAIM = "DELETE FROM claims WHERE thread = ?1";
    DELETE_TURNS = "DELETE FROM turns WHERE thread = ?1";
    DELETE_GOALS = "DELETE FROM goals WHERE thread = ?1";
    DELETE_GOAL_USAGE = "DELETE FROM goal_usage WHERE thread = ?1";
    DELETE_CHECKPOINTS = "DELETE FROM checkpoints WHERE thread = ?1";
    DELETE_CHECKPOINT_STATES = "DELETE FROM checkpoint_states WHERE thread = ?1";
    DELETE_DOCUMENTS = "DELETE FROM document_versions WHERE thread = ?1";
    DELETE_ROADMAP_LINK = "DELETE FROM roadmap_links WHERE thread = ?1";
    DELETE_JOBS = "DELETE FROM jobs WHERE thread = ?1";
    DELETE_TOOLS = "DELETE FROM tools WHERE thread = ?1";
    DELETE_RUNS = "DELETE FROM runs WHERE thread = ?1";
    DELETE_MESSAGES = "DELETE FROM messages WHERE thread = ?1";
    DELETE_REQUESTS = "DELETE FROM requests WHERE thread = ?1";
    DROP_SEGMENTS = "DELETE FROM segments WHERE source IN (SELECT key FROM sources WHERE thread = ?1)";
    DETACH_SOURCES = "UPDATE sources SET thread = NULL WHERE thread = ?1";
    NEXT_MARKED = "SELECT id FROM threads WHERE shelf = 3 AND status = 'purging' ORDER BY id LIMIT 1 /* FOR UPDATE */";
    BRANCHES_DOWN = "SELECT key, base FROM branches WHERE thread = ?1 ORDER BY key DESC";
    REACHED_BY_FORK = "SELECT max(fork_item) FROM threads WHERE fork_item BETWEEN ?1 AND ?2";
    REACHED_BY_BRANCH = "SELECT max(parent) FROM branches WHERE parent BETWEEN ?1 AND ?2";
    LAST_ITEMS = "SELECT key FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT ?3";
    DELETE_ITEM = "DELETE FROM items WHERE key = ?1";
    KEEP_NUMBER = "INSERT INTO counters (name, value) VALUES ('purged-branch', ?1) ON CONFLICT (name)
        DO UPDATE SET value = CASE WHEN counters.value < excluded.value THEN excluded.value ELSE counters.value END";
    DELETE_BRANCH = "DELETE FROM branches WHERE key = ?1";
    COUNT_OFF = "UPDATE threads SET items = items - ?2, branches = branches - ?3 WHERE id = ?1";
    REMAINING = "SELECT count(*) FROM branches WHERE thread = ?1";
    KEEP_EPOCH = "INSERT INTO counters (name, value) SELECT 'purged-epoch', epoch FROM threads WHERE id = ?1 ON CONFLICT (name)
        DO UPDATE SET value = CASE WHEN counters.value < excluded.value THEN excluded.value ELSE counters.value END";
    DELETE_THREAD = "DELETE FROM threads WHERE id = ?1";
    MARK_STUBS = "UPDATE threads SET status = 'purging' WHERE shelf = 3";
    UNMARK = "UPDATE threads SET status = 'completed' WHERE id = ?1";
}

/// Marks every stub, so that the next steps take from each what nobody reaches.
pub(crate) fn mark_stubs(tx: &mut dyn Tx) -> Result<usize> {
    tx.execute(MARK_STUBS, &[])
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    More {
        /// Items that went in this step.
        items: u64,
    },
    /// This thread is purged.
    Done {
        /// The thread.
        thread: ThreadId,
        /// Items of it that stay.
        shared: u64,
    },
    /// No thread is marked any more.
    Nothing,
}

/// Makes a thread that is in the trash a stub that is marked as being purged, and puts that on record.
///
/// `dead_holder` is the holder of its claim that was found to be dead; any other one is refused.
pub(crate) fn begin(
    tx: &mut dyn Tx,
    store: Uuid,
    thread: &ThreadId,
    dead_holder: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    let id = thread.as_str().into();
    let found = query_one(tx, CANDIDATE, &[id], |row| {
        let hash = row.opt_blob(3)?.and_then(Hash::from_slice);
        let tip = row.opt_int(2)?.map(ItemKey).zip(hash);
        Ok((
            row.int(0)?,
            row.opt_text(1)?.map(str::to_owned),
            tip.filter(|_| row.int(4).is_ok_and(|is_tip| is_tip == 1)),
            row.int(5)?,
        ))
    })?;
    let (shelf, holder, tip, epoch) = found.ok_or_else(|| Error::not_found("thread", thread))?;
    if shelf != 2 {
        let found = "it is not there".to_owned();
        return Err(Error::Conflict { what: "shelf", expected: "a thread in the trash".to_owned(), found });
    }
    if holder.as_deref() != dead_holder {
        let found = "somebody claimed it just now".to_owned();
        return Err(Error::Conflict { what: "claim", expected: "a thread that nobody writes".to_owned(), found });
    }
    if let Some((tip, hash)) = tip {
        // The tip was known from the head alone until now.
        let args = [tip.branch().into(), i64::from(tip.depth()).into(), Value::Blob(&hash.0)];
        tx.execute(RECORD_TIP, &args)?;
    }
    // With the epoch from before: a later thread of this id has a greater one, and this record says nothing of it.
    records::put_purge(tx, store, thread, epoch, now)?;
    // Before the fork point goes: those who are behind it may be reached by nobody once this thread is gone.
    tx.execute(MARK_STUBS_BEHIND, &[id])?;
    tx.execute(DELETE_CLAIM, &[id])?;
    tx.execute(DROP_LABELS, &[id])?;
    tx.execute(DELETE_TURNS, &[id])?;
    let beside = [
        DELETE_GOALS,
        DELETE_GOAL_USAGE,
        DELETE_CHECKPOINTS,
        DELETE_CHECKPOINT_STATES,
        DELETE_DOCUMENTS,
        DELETE_ROADMAP_LINK,
        DELETE_JOBS,
        DELETE_TOOLS,
        DELETE_RUNS,
        DELETE_MESSAGES,
        DELETE_REQUESTS,
    ];
    for state in beside {
        tx.execute(state, &[id])?;
    }
    tx.execute(DROP_SEGMENTS, &[id])?;
    tx.execute(DETACH_SOURCES, &[id])?;
    changes::forget_subjects(tx, thread)?;
    threads::note(tx, thread, None, Verb::Deleted, now)?;
    tx.execute(STRIP, &[id, now.0.into()]).map(drop)
}

/// Takes the next chunk of any thread that is marked.
pub(crate) fn step(tx: &mut dyn Tx) -> Result<Step> {
    let marked = query_one(tx, NEXT_MARKED, &[], |row| row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id"))?;
    let Some(thread) = marked else { return Ok(Step::Nothing) };
    let branches =
        query_all(tx, BRANCHES_DOWN, &[thread.as_str().into()], |row| Ok((row.int(0)?, path::depth(row, 1)?)))?;
    let mut shared = 0;
    for (branch, base) in branches {
        let keep = reached(tx, branch)?;
        let first = keep.map_or(base, |keep| keep.depth().saturating_add(1));
        let range = [ItemKey::new(branch, first).0.into(), ItemKey::new(branch, u32::MAX).0.into()];
        let limit = i64::try_from(CHUNK).unwrap_or(i64::MAX);
        let keys = query_all(tx, LAST_ITEMS, &[range[0], range[1], limit.into()], |row| Ok(ItemKey(row.int(0)?)))?;
        if !keys.is_empty() {
            return delete_items(tx, &thread, &keys);
        }
        match keep {
            Some(keep) => shared += u64::from(keep.depth() - base) + 1,
            None => {
                tx.execute(KEEP_NUMBER, &[branch.into()])?;
                // The branch that this one continues may be reached by nobody from now on.
                tx.execute(MARK_STUBS_BEHIND, &[thread.as_str().into()])?;
                tx.execute(DELETE_BRANCH, &[branch.into()])?;
                tx.execute(COUNT_OFF, &[thread.as_str().into(), 0.into(), 1.into()])?;
            }
        }
    }
    finish(tx, &thread)?;
    Ok(Step::Done { thread, shared })
}

/// Deletes items from the end of a branch, and records where it ends now.
fn delete_items(tx: &mut dyn Tx, thread: &ThreadId, keys: &[ItemKey]) -> Result<Step> {
    for key in keys {
        blobs::release(tx, *key)?;
        tx.execute(DELETE_ITEM, &[key.0.into()])?;
    }
    if let Some(last) = keys.last().and_then(|key| key.0.checked_sub(1)).map(ItemKey)
        && let Some((hash, _)) = path::link_at(tx, last)?
        && keys.last().is_some_and(|key| key.branch() == last.branch())
    {
        let args = [last.branch().into(), i64::from(last.depth()).into(), Value::Blob(&hash.0)];
        tx.execute(RECORD_TIP, &args)?;
    }
    let count = i64::try_from(keys.len()).unwrap_or(0);
    tx.execute(COUNT_OFF, &[thread.as_str().into(), count.into(), 0.into()])?;
    Ok(Step::More { items: keys.len() as u64 })
}

/// The deepest item of the branch that a thread was forked at, or that a branch which stays continues from.
fn reached(tx: &mut dyn Tx, branch: i64) -> Result<Option<ItemKey>> {
    let range = [ItemKey::new(branch, 0).0.into(), ItemKey::new(branch, u32::MAX).0.into()];
    let fork = query_one(tx, REACHED_BY_FORK, &range, |row| row.opt_int(0))?.flatten();
    let child = query_one(tx, REACHED_BY_BRANCH, &range, |row| row.opt_int(0))?.flatten();
    Ok(fork.max(child).map(ItemKey))
}

fn finish(tx: &mut dyn Tx, thread: &ThreadId) -> Result<()> {
    let id = thread.as_str().into();
    if query_one(tx, REMAINING, &[id], |row| row.int(0))?.unwrap_or(0) > 0 {
        return tx.execute(UNMARK, &[id]).map(drop);
    }
    tx.execute(KEEP_EPOCH, &[id])?;
    tx.execute(DELETE_THREAD, &[id]).map(drop)
}
