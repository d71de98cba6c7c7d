//! What a request that takes a claim knows of its own earlier runs.

use std::sync::{Arc, PoisonError};

use crate::claims;
use crate::concurrency::Mutex;
use crate::db::{Pending, Sync};
use crate::id::ThreadId;
use crate::store::Inner;

/// The epochs at which the runs of a request took a claim. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken(Arc<Mutex<Runs>>);

#[derive(Debug, Default)]
struct Runs {
    /// By a run whose commit was not answered, so that it may be stored or not.
    unanswered: Option<i64>,
    /// By the last run, unless that was taken back.
    last: Option<i64>,
}

impl Taken {
    /// Begins a run, before anything in it can fail: gives what an earlier one took whose commit was not answered. A run that was taken back says nothing: what
    /// it took may be another handle's of this store by now.
    pub(super) fn begin_run(&self) -> Option<i64> {
        self.with(|runs| {
            // A run that ended and was not taken back has not been answered, or there would be no other.
            runs.unanswered = runs.last.take().or(runs.unanswered);
            runs.unanswered
        })
    }

    /// Notes what the run took.
    pub(super) fn set(&self, epoch: Option<i64>) {
        self.with(|runs| runs.last = epoch);
    }

    /// Takes back the last run, and nothing of those before it.
    pub(super) fn undo(&self) -> impl Fn() + Send + 'static {
        let taken = self.clone();
        move || taken.set(None)
    }

    /// Gives up the claim behind its taking, in the writer's queue: only there it is known whether it was taken.
    pub(super) fn give_up(&self, inner: &Inner, id: &ThreadId) -> Pending<()> {
        let (terms, id, taken) = (Sync::Written.within(id.as_str()).repeatable(), id.clone(), self.clone());
        let (holder, now) = (inner.holder_id().to_owned(), inner.host.now());
        inner.db.write_now(terms, move |tx| {
            let Some(epoch) = taken.with(|runs| runs.last.or(runs.unanswered)) else { return Ok(()) };
            // What was not answered may not have happened, and another store may have the epoch.
            match claims::has_taken(tx, &id, epoch, &holder)? {
                true => claims::release(tx, &id, epoch, now),
                false => Ok(()),
            }
        })
    }

    fn with<T>(&self, run: impl FnOnce(&mut Runs) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::Taken;

    #[test]
    fn a_run_that_was_taken_back_says_nothing() {
        let taken = Taken::default();
        assert_eq!(taken.begin_run(), None);
        taken.set(Some(2));
        taken.undo()();
        assert_eq!(taken.begin_run(), None);
    }

    #[test]
    fn what_was_not_answered_is_known_after_runs_that_were_taken_back() {
        let taken = Taken::default();
        taken.begin_run();
        taken.set(Some(2));
        for _ in 0..2 {
            assert_eq!(taken.begin_run(), Some(2));
            taken.undo()();
        }
        taken.begin_run();
        taken.set(Some(3));
        assert_eq!(taken.begin_run(), Some(3), "the last one that was not answered");
    }
}
