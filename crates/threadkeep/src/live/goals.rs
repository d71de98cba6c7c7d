//! The goal of a live thread: written under its claim.

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::db::{Sync, Terms, Tx};
use crate::error::Result;
use crate::goals::{self, Goal, GoalCheck, GoalPatch, GoalUsage, NewGoal};
use crate::store::accrual_terms;
use crate::threads::{By, Hold};

impl LiveThread {
    /// Reads the thread's goal, if it has one.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when nothing is stored yet.
    pub async fn goal(&self) -> Result<Option<Goal>> {
        self.settled().await?;
        self.threads().goal(&self.live.id).await
    }

    /// Sets the thread's goal, as [`crate::Threads::set_goal`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn set_goal(&self, mut goal: NewGoal) -> Result<Goal> {
        let (id, terms) = self.live.inner.new_goal(&mut goal)?;
        self.change(terms, move |tx, hold| goals::set(tx, hold, &goal, id)).await
    }

    /// Changes what the patch names, as [`crate::Threads::update_goal`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn update_goal(&self, mut patch: GoalPatch) -> Result<Goal> {
        let (id, terms) = self.live.inner.goal_patch(&mut patch)?;
        self.change(terms, move |tx, hold| goals::update(tx, hold, &patch, id)).await
    }

    /// Adds usage to the thread's goal, as [`crate::Threads::accrue_goal`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn accrue_goal(&self, usage: GoalUsage) -> Result<Option<Goal>> {
        self.change(accrual_terms(&usage), move |tx, hold| goals::accrue(tx, hold, &usage)).await
    }

    /// Notes what was found at a look how far the goal is, as [`crate::Threads::check_goal`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn check_goal(&self, found: GoalCheck) -> Result<Option<Goal>> {
        self.change(Sync::Synced.free().repeatable(), move |tx, hold| goals::check(tx, hold, &found)).await
    }

    /// Takes the goal away, as [`crate::Threads::clear_goal`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn clear_goal(&self) -> Result<bool> {
        self.change(Sync::Synced.free(), goals::clear).await
    }

    /// Changes what stands beside the thread's log, under the claim, after everything that was appended.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        terms: Terms,
        mut run: impl FnMut(&mut dyn Tx, &Hold) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let terms = Terms { order: self.terms(terms.sync).order, ..terms };
        let change = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            run(tx, &Hold { thread: claim.thread.clone(), by: By::Holder(claim.epoch), now: claim.now })
        };
        self.under_claim(terms, change).await
    }
}
