//! What is asked of a search, and what it answers.

use std::time::Duration;

use serde::Serialize;

use super::snippet::Snippet;
use crate::id::{Address, BranchId, ItemId, ThreadId};
use crate::item::{Kind, Role};
use crate::thread::Shelf;
use crate::time::Timestamp;

/// What is searched for, and how much of it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// Words, `"phrases"`, `-not`, `prefix*`, `OR`, and filters such as `role:user` or `after:2d`. Any text is a valid query.
    pub text: String,
    /// How many threads a page shows, or how many hits where they are not grouped; at most 200.
    pub limit: usize,
    /// How many hits of each thread are shown; the others are counted. 0 gives each hit alone, in the order of relevance.
    pub per_thread: usize,
    /// Where the page starts: the `next_cursor` of an earlier page of the same query.
    pub cursor: Option<String>,
    /// The width of a snippet in columns of a terminal.
    pub width: usize,
    /// Whether threads in the trash are searched too.
    pub trashed: bool,
    /// The time zone that days are meant in, such as `Europe/Rome`; UTC when `None`.
    pub zone: Option<String>,
    /// How long the index may be brought up to date before it is asked. What it lacks then is read from the items.
    pub patience: Duration,
}

impl Default for SearchQuery {
    fn default() -> Self {
        Self {
            text: String::new(),
            limit: 20,
            per_thread: 3,
            cursor: None,
            width: 160,
            trashed: false,
            zone: None,
            patience: Duration::from_secs(1),
        }
    }
}

impl SearchQuery {
    /// Searches for `text`, and takes the defaults otherwise.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// A page of what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SearchPage {
    /// The threads, the most relevant first; the same one again where hits are not grouped.
    pub threads: Vec<FoundThread>,
    /// Where the next page starts; `None` at the end.
    pub next_cursor: Option<String>,
    /// How many hits this page was chosen from.
    pub matches: usize,
    /// Whether these are all there are; else older ones come on later pages.
    pub is_all: bool,
    /// What of the query was not understood, in sentences for people.
    pub not_understood: Vec<String>,
    /// What could not be searched, and why, in sentences for people.
    pub notices: Vec<String>,
}

/// A thread with its hits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FoundThread {
    /// The thread: the one that wrote the hits, or a fork that shares them, if that one can't be seen.
    pub id: ThreadId,
    /// Its title, or the beginning of what was said in it.
    pub title: Option<String>,
    /// The name of its workspace.
    pub workspace: String,
    /// The agent that wrote it.
    pub agent: Option<String>,
    /// On which shelf it stands.
    pub shelf: Shelf,
    /// Its hits that are shown, the most relevant first.
    pub hits: Vec<Hit>,
    /// How many more hits were found in it.
    pub more: usize,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Hit {
    /// The item; `None` where the thread's title fits.
    pub item: Option<FoundItem>,
    /// The words around what fits.
    pub snippet: Snippet,
    /// How relevant it is, from 0 to 10,000. Only compares hits of one page.
    pub score: u32,
}

/// An item that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FoundItem {
    /// Its id.
    pub id: ItemId,
    /// Where it stands.
    pub address: Address,
    /// What it is.
    pub kind: Kind,
    /// Who speaks.
    pub role: Option<Role>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether it lies on the active path of its thread.
    pub standing: Standing,
    /// Forks that share it, up to eight; they are no hits of their own.
    pub shared_with: Vec<ThreadId>,
}

/// Where an item lies in the tree of its thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "on", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Standing {
    /// On the path to the thread's head.
    ActivePath,
    /// On another branch.
    Branch {
        /// The branch.
        branch: BranchId,
        /// What the branch is called.
        label: Option<String>,
        /// The depth of the last item that its path shares with the active path; `None` when they share nothing.
        leaves_at: Option<u32>,
        /// How many items after that one it lies.
        distance: u32,
    },
}

/// How far the search index is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexStatus {
    /// Whether there is one. It is made by the first search.
    pub exists: bool,
    /// The greatest number of a document that was given: about how many items and titles were indexed.
    pub documents: i64,
    /// The bytes that it takes on disk; 0 in memory.
    pub bytes: u64,
    /// Whether everything that is stored is in it.
    pub is_in_step: bool,
}
