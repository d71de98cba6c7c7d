//! The order between threads: a logical tick, and places in the orders by update and by activity.
//!
//! Every change of a thread gets a tick, one more than the greatest of any thread. A thread's place in an order is the tick at
//! which it came to the top of it; while it is on top, further changes leave its place alone, so that a thread that is
//! written alone moves no index. The thread on top of the order by update has the greatest tick.
//!
//! Where several transactions run at once, two changes may get the same tick, and a thread that is written at the same moment as
//! the one on top may have a greater one; ids then decide the order.

use crate::db::{Tx, query_one, statements};
use crate::error::Result;
use crate::id::ThreadId;
use crate::planted::{self, Defect};

statements! {
    TOP = "SELECT t.tick, t.id, (SELECT a.id FROM threads a ORDER BY a.activity DESC, a.id DESC LIMIT 1),
        (SELECT value FROM counters WHERE name = 'changes-followed') FROM threads t ORDER BY t.updated DESC, t.id DESC LIMIT 1";
    // A row that every store has and nobody changes.
    LINE_UP = "SELECT value FROM facts WHERE name = 'store-id' /* FOR UPDATE */";
}

/// Waits until no other transaction hands out numbers that are one more than the greatest, or looks whether something is new.
///
/// In SQLite there is no other. Elsewhere they would meet at the unique index, and all but one would have to run again.
pub(crate) fn line_up(tx: &mut dyn Tx) -> Result<()> {
    query_one(tx, LINE_UP, &[], |_| Ok(())).map(drop)
}

/// What is on top of the orders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Top {
    /// The greatest tick; 0 in an empty store.
    pub(crate) tick: i64,
    updated: String,
    active: String,
    /// Whether somebody follows the feed of changes, so that new items are noted in it.
    pub(crate) is_followed: bool,
}

impl Top {
    /// Reads the tops, by index, unless the request before this one in the same transaction left them.
    pub(crate) fn read(tx: &mut dyn Tx) -> Result<Self> {
        let left = tx.left().and_then(Option::take).and_then(|left| left.downcast().ok());
        if let Some(top) = left {
            return Ok(*top);
        }
        let top = query_one(tx, TOP, &[], |row| {
            let (updated, active) = (row.text(1)?.to_owned(), row.text(2)?.to_owned());
            Ok(Self { tick: row.int(0)?, updated, active, is_followed: row.opt_int(3)?.is_some() })
        })?;
        Ok(top.filter(|_| !planted::is(Defect::TicksAlone)).unwrap_or_default())
    }

    /// Puts a thread on top of both orders.
    pub(crate) fn put(&mut self, thread: &ThreadId, tick: i64) {
        self.tick = tick;
        for top in [&mut self.updated, &mut self.active] {
            thread.as_str().clone_into(top);
        }
    }

    /// Has the next request of the transaction read them again.
    pub(crate) fn forget(tx: &mut dyn Tx) {
        drop(tx.left().and_then(Option::take));
    }

    /// Leaves the tops to the next request of the transaction, which then need not read them.
    pub(crate) fn leave(self, tx: &mut dyn Tx) {
        if let Some(left) = tx.left()
            && !planted::is(Defect::TicksAlone)
        {
            *left = Some(Box::new(self));
        }
    }

    /// Whether a thread is on top of the orders by update and by activity.
    pub(crate) fn places(&self, thread: &ThreadId) -> (bool, bool) {
        (self.updated == thread.as_str(), self.active == thread.as_str())
    }

    /// The tick of a change to a thread whose last one was `own`.
    pub(crate) fn next_tick(&self, own: i64) -> i64 {
        self.tick.max(own).saturating_add(1)
    }

    /// The place by update of a thread that changes at `tick`.
    pub(crate) fn updated(&self, thread: &ThreadId, tick: i64, current: i64) -> i64 {
        if self.updated == thread.as_str() { current } else { tick }
    }

    /// The place by activity of a thread that is written at `tick`.
    pub(crate) fn activity(&self, thread: &ThreadId, tick: i64, current: i64) -> i64 {
        if self.active == thread.as_str() { current } else { tick }
    }
}
