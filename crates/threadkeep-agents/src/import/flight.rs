//! Sessions that were sent to the store and are not known to be stored yet: while the store writes them, the next ones are read.

use std::cell::RefCell;
use std::collections::VecDeque;

use threadkeep::blocking::{Importing, LiveThread};
use threadkeep::{Error, ThreadId};

use super::files::Found;
use super::report::Outcome;

/// So many sessions may be on their way …
const MOST: usize = 16;
/// … and so many bytes of them.
const MOST_BYTES: usize = 8 << 20;

/// What is on its way, in the order of sending, and what has come of what was.
#[derive(Debug, Default)]
pub(super) struct Flight {
    sent: RefCell<VecDeque<Sent>>,
    landed: RefCell<Vec<Landed>>,
}

/// A session that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) file: Found,
    /// The handle of its thread, which holds a claim where there were steps before.
    pub(super) live: LiveThread,
    pub(super) outcome: Outcome,
    pub(super) bytes: usize,
    pub(super) importing: Importing,
    /// Ids for its thread that were found to be taken.
    pub(super) taken: Vec<ThreadId>,
    /// Whether the store was not asked what it knows of the file.
    pub(super) is_unknown: bool,
}

/// What has come of it.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) file: Found,
    pub(super) thread: ThreadId,
    pub(super) taken: Vec<ThreadId>,
    pub(super) is_unknown: bool,
    /// What the import of the file came to, if it was stored.
    pub(super) outcome: Result<Outcome, Error>,
}

impl Flight {
    /// Adds one; waits for the earliest ones when there are many.
    pub(super) fn add(&self, sent: Sent) {
        self.sent.borrow_mut().push_back(sent);
        while self.is_full() {
            self.land_first();
        }
    }

    /// Whether something of this thread is on its way.
    pub(super) fn holds(&self, thread: &ThreadId) -> bool {
        self.sent.borrow().iter().any(|sent| sent.live.id() == thread)
    }

    /// Waits for all of them: whoever reads the store then finds what was sent. Says whether there were any.
    pub(super) fn land(&self) -> bool {
        let any = self.land_first();
        while self.land_first() {}
        any
    }

    /// What has come of those that were waited for, in the order of sending.
    pub(super) fn landed(&self) -> Vec<Landed> {
        self.landed.take()
    }

    fn is_full(&self) -> bool {
        let sent = self.sent.borrow();
        sent.len() > MOST || (sent.len() > 1 && sent.iter().map(|sent| sent.bytes).sum::<usize>() > MOST_BYTES)
    }

    fn land_first(&self) -> bool {
        let Some(first) = self.sent.borrow_mut().pop_front() else { return false };
        let Sent { file, live, outcome, importing, taken, is_unknown, .. } = first;
        // Gives up the claim without a sync: the whole import is synced once, at its end.
        let outcome = importing.wait().and_then(|_| live.discard()).map(|()| outcome);
        let thread = live.id().clone();
        self.landed.borrow_mut().push(Landed { file, thread, taken, is_unknown, outcome });
        true
    }
}
