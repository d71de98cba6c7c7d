//! What keeps a thread from being taken, as far as it has to be asked for.

use std::collections::BTreeSet;

use crate::db::{Statement, Tx, query_all, query_one, statements};
use crate::error::Result;
use crate::id::ThreadId;
use crate::jobs::clock;
use crate::retention::Protection;
use crate::thread::Shelf;
use crate::time::Timestamp;

statements! {
    // Words that are not known count as not at their end: what is not understood is not taken. What was taken or answered is not at
    // its end either.
    WAITING_MESSAGE = "SELECT 1 FROM messages WHERE thread = ?1 AND state NOT IN ('acted', 'failed', 'expired', 'withdrawn', 'rejected')
        AND NOT (state = 'queued' AND expires_at IS NOT NULL AND expires_at <= ?2) LIMIT 1";
    PENDING_REQUEST = "SELECT 1 FROM requests WHERE thread = ?1 AND state NOT IN ('cancelled', 'expired')
        AND NOT (state = 'pending' AND expires_at IS NOT NULL AND expires_at <= ?2) AND NOT (state = 'answered' AND consumed_at IS NOT NULL) LIMIT 1";
    OPEN_JOB = "SELECT 1 FROM jobs WHERE thread = ?1 AND status NOT IN ('completed', 'failed', 'cancelled') LIMIT 1";
    PURSUED_GOAL = "SELECT 1 FROM goals WHERE thread = ?1 AND ended_at IS NULL
        AND status NOT IN ('complete', 'paused', 'budget_limited') LIMIT 1";
    OPEN_RUN = "SELECT 1 FROM runs WHERE thread = ?1 AND status NOT IN ('completed', 'failed', 'cancelled', 'interrupted') LIMIT 1";
    SHARERS = "SELECT t.id, t.shelf FROM branches o
          JOIN threads t ON t.fork_item BETWEEN o.key << 32 AND (o.key << 32) + 4294967295
          WHERE o.thread = ?1 AND t.id <> ?1
        UNION SELECT t.id, t.shelf FROM branches o
          JOIN branches b ON b.parent BETWEEN o.key << 32 AND (o.key << 32) + 4294967295
          JOIN threads t ON t.id = b.thread WHERE o.thread = ?1 AND b.thread <> ?1";
}

/// Why a thread stays because of what hangs on it, if anything does.
pub(crate) fn of(tx: &mut dyn Tx, thread: &ThreadId, forked: bool, now: Timestamp) -> Result<Option<Protection>> {
    let now = clock(tx, now)?;
    let timed = [(WAITING_MESSAGE, Protection::Message), (PENDING_REQUEST, Protection::Request)];
    for (statement, protection) in timed {
        if query_one(tx, statement, &[thread.as_str().into(), now.0.into()], |_| Ok(()))?.is_some() {
            return Ok(Some(protection));
        }
    }
    let open: [(Statement, Protection); 3] =
        [(OPEN_JOB, Protection::Job), (PURSUED_GOAL, Protection::Goal), (OPEN_RUN, Protection::Run)];
    for (statement, protection) in open {
        if query_one(tx, statement, &[thread.as_str().into()], |_| Ok(()))?.is_some() {
            return Ok(Some(protection));
        }
    }
    if !forked && is_shared(tx, thread)? {
        return Ok(Some(Protection::Forked));
    }
    Ok(None)
}

/// Whether a thread that is not in the trash shares items of this one, if only through others that are.
fn is_shared(tx: &mut dyn Tx, thread: &ThreadId) -> Result<bool> {
    let mut known: BTreeSet<ThreadId> = [thread.clone()].into();
    let mut open = vec![thread.clone()];
    while let Some(next) = open.pop() {
        let sharers = query_all(tx, SHARERS, &[next.as_str().into()], |row| {
            let id = row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")?;
            Ok((id, row.parse(1, Shelf::from_int(row.int(1)?), "a shelf")?))
        })?;
        for (id, shelf) in sharers {
            if matches!(shelf, Shelf::Active | Shelf::Archived) {
                return Ok(true);
            }
            if known.insert(id.clone()) {
                open.push(id);
            }
        }
    }
    Ok(false)
}
