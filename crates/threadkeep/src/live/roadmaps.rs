//! What a live thread works on: linked under its claim.

use super::LiveThread;
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::id::RoadmapId;
use crate::roadmaps::{self, RoadmapLink};
use crate::threads::Hold;

impl LiveThread {
    /// Links the thread to a roadmap or a node of it, as [`crate::Threads::link_roadmap`], under the claim. A thread of which nothing
    /// is stored yet is stored with it.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn link_roadmap(&self, id: &RoadmapId, node: Option<String>) -> Result<RoadmapLink> {
        let id = id.clone();
        let link = move |tx: &mut dyn Tx, hold: &Hold| roadmaps::link(tx, hold, &id, node.as_deref());
        self.change(Sync::Synced.free().repeatable(), link).await
    }

    /// Takes the link of the thread away, as [`crate::Threads::unlink_roadmap`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn unlink_roadmap(&self) -> Result<bool> {
        self.change(Sync::Synced.free(), roadmaps::unlink).await
    }

    /// Reads what the thread is linked to.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when nothing is stored yet.
    pub async fn roadmap_link(&self) -> Result<Option<RoadmapLink>> {
        self.settled().await?;
        self.threads().roadmap_link(&self.live.id).await
    }
}
