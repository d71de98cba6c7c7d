//! The goals of the threads that a handle sees.

use super::Threads;
use crate::db::{Sync, Terms, Tx};
use crate::error::Result;
use crate::goals::{self, Goal, GoalCheck, GoalPatch, GoalQuery, GoalUsage, NewGoal};
use crate::id::{GoalId, ThreadId};
use crate::store::Inner;
use crate::thread::Page;
use crate::threads::{By, Hold};

impl Threads {
    /// Reads the goal of a thread, if it has one.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread; [`crate::Error::Corrupt`] names a goal that can't be read.
    pub async fn goal(&self, thread: &ThreadId) -> Result<Option<Goal>> {
        self.read(thread, goals::get).await
    }

    /// Reads a page of the revisions of a thread's goal, the newest first, with what each has cost.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn goal_history(&self, thread: &ThreadId, query: GoalQuery) -> Result<Page<Goal>> {
        self.read(thread, move |tx, id| goals::history(tx, id, &query)).await
    }

    /// Sets the goal of a thread, in the place of the one that it has, which stays in the history. Needs no claim; a holder sets it
    /// through its own handle ([`crate::LiveThread::set_goal`]), where it is fenced.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread; [`crate::Error::Invalid`] for a goal that can't be kept.
    pub async fn set_goal(&self, thread: &ThreadId, mut goal: NewGoal) -> Result<Goal> {
        let (id, terms) = self.inner.new_goal(&mut goal)?;
        self.change(thread, terms, move |tx, hold| goals::set(tx, hold, &goal, id)).await
    }

    /// Changes what the patch names of a thread's goal. Another objective or budget begins a revision, which keeps what the goal
    /// has cost. Needs no claim.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when there is no goal; [`crate::Error::Conflict`] when another revision is the goal than the patch
    /// expects; [`crate::Error::Invalid`] when a goal is to be activated whose budget is used up.
    pub async fn update_goal(&self, thread: &ThreadId, mut patch: GoalPatch) -> Result<Goal> {
        let (id, terms) = self.inner.goal_patch(&mut patch)?;
        self.change(thread, terms, move |tx, hold| goals::update(tx, hold, &patch, id)).await
    }

    /// Adds usage to a thread's goal and gives the goal; nothing when the thread has none. When that uses up a budget of an active
    /// goal, the same statement makes it [`crate::GoalStatus::BudgetLimited`]. Needs no claim: whoever works for the thread counts.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when another revision is the goal than the usage names.
    pub async fn accrue_goal(&self, thread: &ThreadId, usage: GoalUsage) -> Result<Option<Goal>> {
        self.change(thread, accrual_terms(&usage), move |tx, hold| goals::accrue(tx, hold, &usage)).await
    }

    /// Notes what was found at a look how far a thread's goal is, and gives the goal. An active goal that met the same gap three
    /// times in a row is paused: it makes no progress.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a pass that was not come to, or that later ones were looked at since.
    pub async fn check_goal(&self, thread: &ThreadId, found: GoalCheck) -> Result<Option<Goal>> {
        self.change(thread, Sync::Synced.free().repeatable(), move |tx, hold| goals::check(tx, hold, &found)).await
    }

    /// Takes the goal of a thread away; says whether there was one. Its revisions stay in the history.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread.
    pub async fn clear_goal(&self, thread: &ThreadId) -> Result<bool> {
        self.change(thread, Sync::Synced.free(), goals::clear).await
    }

    /// Changes what stands beside the log of a thread, in the order of what is asked for the thread.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        thread: &ThreadId,
        terms: Terms,
        mut run: impl FnMut(&mut dyn Tx, &Hold) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let hold = Hold { thread: thread.clone(), by: By::Anyone(self.scope), now: self.inner.host.now() };
        let terms = Terms { order: terms.sync.within(thread.as_str()).order, ..terms };
        self.inner.db.write(terms, move |tx| run(tx, &hold)).await
    }
}

impl Inner {
    /// Screens a goal that is to be set; gives its id, and what its write asks of the driver.
    pub(crate) fn new_goal(&self, goal: &mut NewGoal) -> Result<(GoalId, Terms)> {
        let mut objective = Some(std::mem::take(&mut goal.objective));
        self.screen.text("objective", &mut objective)?;
        goal.objective = objective.unwrap_or_default();
        let id = goal.id.unwrap_or_else(|| self.mint_goal());
        Ok((id, Sync::Synced.free().repeatable()))
    }

    /// Screens a change of a goal; gives the id of the revision that it may begin, and what its write asks of the driver.
    pub(crate) fn goal_patch(&self, patch: &mut GoalPatch) -> Result<(GoalId, Terms)> {
        self.screen.text("objective", &mut patch.objective)?;
        // A revision that is expected is not found again by a second run.
        let terms = Sync::Synced.free();
        let terms = if patch.expect.is_none() { terms.repeatable() } else { terms };
        Ok((self.mint_goal(), terms))
    }

    fn mint_goal(&self) -> GoalId {
        GoalId::from_uuid(crate::log::append::mint_uuid(&*self.host, self.host.now()))
    }
}

/// A second run adds nothing only to what says its id.
pub(crate) fn accrual_terms(usage: &GoalUsage) -> Terms {
    let terms = Sync::Synced.free();
    if usage.id.is_some() { terms.repeatable() } else { terms }
}
