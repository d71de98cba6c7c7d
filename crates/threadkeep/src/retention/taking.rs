//! Taking a thread: decided and done in one transaction, which looks again at everything that could keep it.

use uuid::Uuid;

use crate::claims;
use crate::db::{Tx, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::item::Hash;
use crate::log::purge;
use crate::planted::{self, Defect};
use crate::records;
use crate::retention::receipts::{self, Done, Facts};
use crate::retention::{Protection, RetentionRule, RetentionStep, protection};
use crate::thread::{Shelf, Thread};
use crate::threads::{self, Scope};
use crate::time::Timestamp;

statements! {
    // Held until the transaction ends: whoever claims, changes or continues the thread locks it too.
    RETENTION_CANDIDATE = "SELECT shelf, pinned, tick, updated_at, trashed_at, workspace, items, head_hash, epoch
        FROM threads WHERE id = ?1 /* FOR UPDATE */";
}

/// A thread that was chosen, as it was then.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) thread: ThreadId,
    pub(crate) tick: i64,
    /// The holder of its claim that was found to be dead.
    pub(crate) dead_holder: Option<String>,
    pub(crate) rule: RetentionRule,
    pub(crate) bound: i64,
    pub(crate) bytes: i64,
    /// Whether it goes though others were forked from it.
    pub(crate) forked: bool,
    pub(crate) run: Uuid,
    pub(crate) now: Timestamp,
}

/// How it ended.
#[derive(Debug, Clone)]
pub(crate) enum Taking {
    /// It is gone.
    Taken {
        /// The number of the receipt.
        number: i64,
        /// The number of its purge in the chain of what was taken away on purpose.
        record: Option<i64>,
    },
    /// It stays.
    Stays(Protection),
}

/// Puts a thread into the trash, unless anything has changed since it was chosen or keeps it now. A second run finds what the first
/// one did.
pub(crate) fn trash(tx: &mut dyn Tx, chosen: &Chosen) -> Result<Taking> {
    let Some(candidate) = Candidate::lock(tx, &chosen.thread)? else { return Ok(Taking::Stays(Protection::Changed)) };
    if let Some(taken) = done_before(tx, chosen, &RetentionStep::Trashed)? {
        return Ok(taken);
    }
    let is_listed = matches!(candidate.shelf, Shelf::Active | Shelf::Archived);
    if let Some(protection) = candidate.stays(tx, chosen, is_listed)? {
        return Ok(Taking::Stays(protection));
    }
    let thread = threads::shelve(tx, Scope::All, &chosen.thread, Shelf::Trashed, chosen.now)?;
    let facts = Facts { tick: thread.tick, ..candidate.facts };
    let number = receipts::put(tx, &chosen.thread, &facts, &chosen.done(RetentionStep::Trashed, None))?;
    Ok(Taking::Taken { number, record: None })
}

/// Begins to purge a thread that is in the trash since `since`, unless anything has changed since it was chosen or keeps it now. A
/// second run finds what the first one did.
pub(crate) fn purge(tx: &mut dyn Tx, chosen: &Chosen, store: Uuid, since: Timestamp) -> Result<Taking> {
    // The row may be gone by the time of a second run.
    if let Some(taken) = done_before(tx, chosen, &RetentionStep::Purged)? {
        return Ok(taken);
    }
    let Some(candidate) = Candidate::lock(tx, &chosen.thread)? else { return Ok(Taking::Stays(Protection::Changed)) };
    let is_there = candidate.shelf == Shelf::Trashed && candidate.trashed_at == Some(since);
    if let Some(protection) = candidate.stays(tx, chosen, is_there)? {
        return Ok(Taking::Stays(protection));
    }
    purge::begin(tx, store, &chosen.thread, chosen.dead_holder.as_deref(), chosen.now)?;
    let record = records::purge_of(tx, &chosen.thread)?.map(|(number, _)| number);
    let number = receipts::put(tx, &chosen.thread, &candidate.facts, &chosen.done(RetentionStep::Purged, record))?;
    Ok(Taking::Taken { number, record })
}

/// Puts on record that somebody took a thread out of the trash that a run had put there.
pub(crate) fn note_restored(tx: &mut dyn Tx, thread: &Thread, now: Timestamp) -> Result<()> {
    let Some(last) = receipts::last_of(tx, &thread.id)?.filter(|last| last.step == RetentionStep::Trashed) else {
        return Ok(());
    };
    let facts = Facts {
        workspace: thread.workspace,
        items: thread.items,
        head_hash: thread.head_hash,
        epoch: thread.epoch,
        tick: thread.tick,
        changed_at: thread.updated_at,
    };
    let done =
        Done { run: last.run, step: RetentionStep::Restored, rule: None, bound: None, bytes: 0, record: None, at: now };
    receipts::put(tx, &thread.id, &facts, &done).map(drop)
}

/// What an earlier run of this very request did.
fn done_before(tx: &mut dyn Tx, chosen: &Chosen, step: &RetentionStep) -> Result<Option<Taking>> {
    let last = receipts::last_of(tx, &chosen.thread)?.filter(|last| last.run == chosen.run && last.step == *step);
    Ok(last.map(|last| Taking::Taken { number: last.number, record: last.record }))
}

impl Chosen {
    fn done(&self, step: RetentionStep, record: Option<i64>) -> Done {
        let (rule, bound) = (Some(self.rule.clone()), Some(self.bound));
        Done { run: self.run, step, rule, bound, bytes: self.bytes, record, at: self.now }
    }
}

/// A thread that is locked.
struct Candidate {
    shelf: Shelf,
    pinned: bool,
    trashed_at: Option<Timestamp>,
    facts: Facts,
}

impl Candidate {
    fn lock(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Self>> {
        let read = query_one(tx, RETENTION_CANDIDATE, &[thread.as_str().into()], |row| {
            Ok(Self {
                shelf: row.parse(0, Shelf::from_int(row.int(0)?), "a shelf")?,
                pinned: row.int(1)? != 0,
                trashed_at: row.opt_int(4)?.map(Timestamp),
                facts: Facts {
                    workspace: row.parse(5, WorkspaceId::from_slice(row.blob(5)?), "16 bytes of an id")?,
                    items: row.int(6)?,
                    head_hash: row.opt_blob(7)?.and_then(Hash::from_slice),
                    epoch: row.int(8)?,
                    tick: row.int(2)?,
                    changed_at: Timestamp(row.int(3)?),
                },
            })
        });
        read.map_err(|error| match error {
            Error::Corrupt { place, detail } => {
                Error::corrupt(format!("thread {thread}"), format!("{place}: {detail}"))
            }
            other => other,
        })
    }

    /// What keeps it now. Whatever changes a thread gives it another tick; a claim, a fork and a job do not.
    fn stays(&self, tx: &mut dyn Tx, chosen: &Chosen, is_there: bool) -> Result<Option<Protection>> {
        if !is_there || self.facts.tick != chosen.tick {
            return Ok(Some(Protection::Changed));
        }
        if self.pinned {
            return Ok(Some(Protection::Pinned));
        }
        if claims::holder_id(tx, &chosen.thread)? != chosen.dead_holder && !planted::is(Defect::RetainsFromTheLiving) {
            return Ok(Some(Protection::Live));
        }
        protection::of(tx, &chosen.thread, chosen.forked, chosen.now)
    }
}
