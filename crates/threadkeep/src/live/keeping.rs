//! What a live thread keeps of what is appended to it.

use super::under_claim::UnderClaim;
use super::{LiveThread, Phase, State};
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::item::NewItem;
use crate::policy::Policy;
use crate::threads::{self, By, Hold};

impl LiveThread {
    /// What the thread keeps.
    pub async fn policy(&self) -> Policy {
        self.live.state.lock().await.policy.clone()
    }

    /// Puts another policy in the place of the thread's, under the claim. It holds for what is appended after it, by later
    /// holders too; what is stored stays. Before the thread is stored this stores nothing. The same policy again changes nothing.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] names `policy`; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn set_policy(&self, policy: Policy) -> Result<()> {
        policy.check()?;
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        if let Phase::Unborn(creation) = &mut state.phase {
            creation.policy = policy.clone();
            state.policy = policy;
            return Ok(());
        }
        let stored = policy.clone();
        let set = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let hold = Hold { thread: claim.thread.clone(), by: By::Holder(claim.epoch), now: claim.now };
            threads::set_policy(tx, &hold, &stored)
        };
        let pending = self.send_under_claim(&mut state, 0, self.terms(Sync::Synced).repeatable(), set).await?;
        // A caller who stops waiting has it sent all the same, so that the handle goes by it from here on.
        let former = std::mem::replace(&mut state.policy, policy);
        pending.await.inspect_err(|_| state.policy = former)
    }

    /// What the policy keeps of items, in their order.
    pub(super) fn kept(&self, state: &State, items: Vec<NewItem>) -> Vec<NewItem> {
        let readers = &self.live.inner.indexer.readers;
        items
            .into_iter()
            .filter_map(|item| {
                let record = |item: &NewItem| readers.record(&item.format, &item.content);
                let shortened = |item: &NewItem| readers.shortened(&item.format, &item.content);
                state.policy.admit(item, record, shortened)
            })
            .collect()
    }
}
