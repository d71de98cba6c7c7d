//! The roadmaps that a handle sees, and what its threads are linked to.

use super::Threads;
use crate::db::{Sync, Terms, Tx};
use crate::error::Result;
use crate::id::{RoadmapId, ThreadId};
use crate::roadmaps::{
    self, NewRoadmap, NodePatch, Roadmap, RoadmapInfo, RoadmapLink, RoadmapLinkQuery, RoadmapQuery, RoadmapUpdate,
};
use crate::store::Inner;
use crate::thread::{Change, Page};

impl Threads {
    /// Makes a roadmap in the workspace that this handle is opened on. With `replace` it takes the place of one of the same name:
    /// its next version then, and links stay.
    ///
    /// # Errors
    /// [`crate::Error::AlreadyExists`] when there is one; [`crate::Error::Invalid`] for a text that is no tree, for one of more than
    /// [`crate::MAX_ROADMAP_BYTES`], and through a handle of the whole store; [`crate::Error::Conflict`] when the one that is
    /// replaced has a node that threads are linked to, and this one has not.
    pub async fn create_roadmap(&self, mut roadmap: NewRoadmap) -> Result<RoadmapInfo> {
        self.inner.screen_roadmap(&mut roadmap.text, &mut roadmap.title)?;
        let (scope, change, now) = (self.scope, self.inner.mint_change(), self.inner.host.now());
        let create = move |tx: &mut dyn Tx| roadmaps::create(tx, scope, &roadmap, change, now);
        self.inner.db.write(Sync::Synced.free().told().repeatable(), create).await
    }

    /// Reads a roadmap; nothing when there is none.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] names a roadmap whose text can't be read; [`crate::Error::Ambiguous`] when this handle sees several
    /// of the name, which stand in different workspaces.
    pub async fn roadmap(&self, id: &RoadmapId) -> Result<Option<Roadmap>> {
        let (scope, id) = (self.scope, id.clone());
        self.inner.db.read(move |tx| roadmaps::load(tx, scope, &id)).await
    }

    /// Reads a page of roadmaps without their trees, those that were changed last at the beginning. One whose text can't be read is
    /// listed, and says so.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn roadmaps(&self, query: RoadmapQuery) -> Result<Page<RoadmapInfo>> {
        let scope = self.scope;
        self.inner.db.read(move |tx| roadmaps::page(tx, scope, &query)).await
    }

    /// Puts another text in the place of a roadmap's, also of one that can't be read.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Invalid`] for a text that is no tree; [`crate::Error::Conflict`] when another
    /// version is the current one than was expected, and for a tree without a node that threads are linked to: unlink them first.
    pub async fn update_roadmap(&self, id: &RoadmapId, mut update: RoadmapUpdate) -> Result<RoadmapInfo> {
        let mut title = match &update.title {
            Change::Set(title) => Some(title.clone()),
            Change::Keep | Change::Clear => None,
        };
        self.inner.screen_roadmap(&mut update.text, &mut title)?;
        if let Some(title) = title {
            update.title = Change::Set(title);
        }
        let (scope, id, change, now) = (self.scope, id.clone(), self.inner.mint_change(), self.inner.host.now());
        let terms = expecting(update.expect);
        self.inner.db.write(terms, move |tx| roadmaps::update(tx, scope, &id, &update, change, now)).await
    }

    /// Changes one node's status and result. The rest of the text stays as it was written, comments included; a patch that changes
    /// nothing makes no version.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the roadmap or the node; [`crate::Error::Conflict`] when another version is the current one
    /// than was expected; [`crate::Error::Corrupt`] for a text that can't be read.
    pub async fn set_roadmap_node(
        &self,
        id: &RoadmapId,
        node: impl Into<String>,
        mut patch: NodePatch,
    ) -> Result<RoadmapInfo> {
        let screen = &self.inner.screen;
        patch.result.with_set(|result| screen.text("result", result))?;
        let (scope, id, node) = (self.scope, id.clone(), node.into());
        let (change, now, terms) = (self.inner.mint_change(), self.inner.host.now(), expecting(patch.expect));
        let set = move |tx: &mut dyn Tx| roadmaps::set_node(tx, scope, (&id, &node), &patch, change, now);
        self.inner.db.write(terms, set).await
    }

    /// Deletes a roadmap, if the expected version is the current one, with the links to it; says whether there was one.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when another version is the current one.
    pub async fn delete_roadmap(&self, id: &RoadmapId, expect: Option<u64>) -> Result<bool> {
        let (scope, id, now) = (self.scope, id.clone(), self.inner.host.now());
        self.inner.db.write(Sync::Synced.free().told(), move |tx| roadmaps::delete(tx, scope, &id, expect, now)).await
    }

    /// Links a thread to a roadmap of its workspace, or to a node of it, in the place of what it was linked to. The link goes with
    /// the thread and with the roadmap.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread, also one of which nothing is stored yet, for the roadmap and for the node.
    pub async fn link_roadmap(&self, thread: &ThreadId, id: &RoadmapId, node: Option<String>) -> Result<RoadmapLink> {
        let id = id.clone();
        let terms = Sync::Synced.free().repeatable();
        self.change(thread, terms, move |tx, hold| roadmaps::link(tx, hold, &id, node.as_deref())).await
    }

    /// Takes the link of a thread away; says whether it had one.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread.
    pub async fn unlink_roadmap(&self, thread: &ThreadId) -> Result<bool> {
        self.change(thread, Sync::Synced.free(), roadmaps::unlink).await
    }

    /// Reads what a thread is linked to.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread.
    pub async fn roadmap_link(&self, thread: &ThreadId) -> Result<Option<RoadmapLink>> {
        self.read(thread, roadmaps::link_of).await
    }

    /// Reads a page of the threads that are linked to a roadmap or to a node of it, in the order of their ids.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the roadmap; [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn roadmap_links(&self, id: &RoadmapId, query: RoadmapLinkQuery) -> Result<Page<RoadmapLink>> {
        let (scope, id) = (self.scope, id.clone());
        self.inner.db.read(move |tx| roadmaps::links(tx, scope, &id, &query)).await
    }
}

impl Inner {
    /// Screens the texts of a roadmap, and refuses what can't be kept.
    fn screen_roadmap(&self, text: &mut String, title: &mut Option<String>) -> Result<()> {
        let mut screened = Some(std::mem::take(text));
        self.screen.text("roadmap", &mut screened)?;
        *text = screened.unwrap_or_default();
        self.screen.text("title", title)?;
        roadmaps::check_text_of(text, title.as_deref())
    }
}

/// Without an expected version a second run would undo what others did since the first one.
fn expecting(version: Option<u64>) -> Terms {
    let terms = Sync::Synced.free().told();
    if version.is_some() { terms.repeatable() } else { terms }
}
