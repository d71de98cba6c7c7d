//! Threads: their metadata, how it is changed, and how they are listed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claim::Holder;
use crate::error::{Error, Result};
use crate::id::{Address, ThreadId, WorkspaceId};
use crate::item::{Hash, check_text, open_words};
use crate::policy::Policy;
use crate::time::Timestamp;
use crate::view::Usage;

/// The longest metadata text, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 10;

open_words! {
    /// What a thread is doing, as its agent last said.
    Status {
        /// A turn is running.
        Running = "running",
        /// Waiting for a prompt.
        Idle = "idle",
        /// Finished as intended.
        Completed = "completed",
        /// Finished with a failure.
        Failed = "failed",
        /// Held back.
        Paused = "paused",
    }
}

/// On which shelf a thread stands; independent of its [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shelf {
    /// Listed by default.
    Active,
    /// Kept out of the default list.
    Archived,
    /// Deleted, and can be restored until it is purged.
    Trashed,
    /// Purged; only its id and the items that other threads share are left.
    Stub,
}

impl Shelf {
    pub(crate) fn to_int(self) -> i64 {
        match self {
            Self::Active => 0,
            Self::Archived => 1,
            Self::Trashed => 2,
            Self::Stub => 3,
        }
    }

    pub(crate) fn from_int(value: i64) -> Option<Self> {
        [Self::Active, Self::Archived, Self::Trashed, Self::Stub].into_iter().find(|shelf| shelf.to_int() == value)
    }
}

/// The descriptive fields of a thread, all of them optional. None of them decides anything inside the store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// A title that a person or an agent gave.
    pub title: Option<String>,
    /// The first prompt, shortened.
    pub preview: Option<String>,
    /// The agent that the thread belongs to: `codex`, `claude-code` …
    pub agent: Option<String>,
    /// How it was started: `interactive`, `exec`, `api`, `subagent` …
    pub source: Option<String>,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The working directory.
    pub cwd: Option<String>,
    /// The path that the work is about, where it differs from `cwd`.
    pub working_path: Option<String>,
    /// The agent's own file of the thread.
    pub rollout_path: Option<String>,
    /// The git commit it started at.
    pub git_sha: Option<String>,
    /// The git branch.
    pub git_branch: Option<String>,
    /// The git origin.
    pub git_origin: Option<String>,
    /// The version of the agent's program.
    pub cli_version: Option<String>,
    /// The sandbox policy in force.
    pub sandbox_policy: Option<String>,
    /// The approval policy in force.
    pub approval_policy: Option<String>,
    /// Whether it may feed memories, in the agent's words.
    pub memory_mode: Option<String>,
    /// The persona or the sub-agent's role.
    pub persona: Option<String>,
    /// The thread that spawned this one.
    pub parent: Option<ThreadId>,
    /// Why it was ended.
    pub end_reason: Option<String>,
    /// Tokens of the whole thread.
    pub usage: Option<Usage>,
    /// Anything else, by name; values are JSON text.
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl Details {
    /// The fields that are texts.
    pub(crate) fn texts_mut(&mut self) -> [(&'static str, &mut Option<String>); 18] {
        [
            ("title", &mut self.title),
            ("preview", &mut self.preview),
            ("agent", &mut self.agent),
            ("source", &mut self.source),
            ("provider", &mut self.provider),
            ("model", &mut self.model),
            ("cwd", &mut self.cwd),
            ("working_path", &mut self.working_path),
            ("rollout_path", &mut self.rollout_path),
            ("git_sha", &mut self.git_sha),
            ("git_branch", &mut self.git_branch),
            ("git_origin", &mut self.git_origin),
            ("cli_version", &mut self.cli_version),
            ("sandbox_policy", &mut self.sandbox_policy),
            ("approval_policy", &mut self.approval_policy),
            ("memory_mode", &mut self.memory_mode),
            ("persona", &mut self.persona),
            ("end_reason", &mut self.end_reason),
        ]
    }

    pub(crate) fn check(&self) -> Result<()> {
        let texts: [(&'static str, &Option<String>); 17] = [
            ("title", &self.title),
            ("preview", &self.preview),
            ("agent", &self.agent),
            ("source", &self.source),
            ("provider", &self.provider),
            ("model", &self.model),
            ("cwd", &self.cwd),
            ("working_path", &self.working_path),
            ("rollout_path", &self.rollout_path),
            ("git_sha", &self.git_sha),
            ("git_branch", &self.git_branch),
            ("git_origin", &self.git_origin),
            ("cli_version", &self.cli_version),
            ("sandbox_policy", &self.sandbox_policy),
            ("approval_policy", &self.approval_policy),
            ("memory_mode", &self.memory_mode),
            ("persona", &self.persona),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                check_text(field, text, MAX_TEXT_BYTES)?;
            }
        }
        if let Some(reason) = &self.end_reason {
            check_text("end_reason", reason, MAX_TEXT_BYTES)?;
        }
        let extra = serde_json::to_string(&self.extra).unwrap_or_default();
        check_text("extra", &extra, MAX_TEXT_BYTES)
    }
}

/// A stored thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// The project it belongs to.
    pub workspace: WorkspaceId,
    /// The project's name, for people.
    pub workspace_name: String,
    /// Active, archived or in the trash.
    pub shelf: Shelf,
    /// What its agent last said of it. Archiving does not change it.
    pub status: Status,
    /// The descriptive fields.
    #[serde(flatten)]
    pub details: Details,
    /// Kept at hand by a person; protected from retention.
    pub pinned: bool,
    /// Made without the wish to keep it.
    pub ephemeral: bool,
    /// What is kept of what is appended.
    pub policy: Policy,
    /// Where the thread stands; `None` when it is empty or cleared.
    pub head: Option<Address>,
    /// The chain's hash at the head.
    pub head_hash: Option<Hash>,
    /// The thread it was forked from, by reference or (imported) by copy.
    pub forked_from: Option<ThreadId>,
    /// The shared item that it was forked at.
    pub fork_point: Option<Address>,
    /// Items that this thread wrote itself.
    pub items: i64,
    /// Branches that this thread wrote itself.
    pub branches: i64,
    /// Turns that were begun.
    pub turns: i64,
    /// Counts the changes of metadata; for [`ThreadPatch::expect_version`].
    pub version: i64,
    /// The number that fences off earlier writers.
    pub epoch: i64,
    /// Logical time of the last change.
    pub tick: i64,
    /// Its place in the order by update: the tick at which a change last brought it to the top.
    pub updated: i64,
    /// Its place in the order by activity: the tick at which an append last brought it to the top.
    pub activity: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
    /// When it was put into the trash.
    pub trashed_at: Option<Timestamp>,
    /// When it was ended.
    pub ended_at: Option<Timestamp>,
    /// Who claims it, if anyone; see [`Thread::live`].
    pub holder: Option<Holder>,
    /// Whether that holder is alive: the thread is being written.
    pub live: bool,
    /// What of its row can't be read, if anything: then it is listed with what can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

impl Thread {
    /// What to call it: its title, else its preview, else its id.
    pub fn name(&self) -> &str {
        let given = self.details.title.as_deref().filter(|title| !title.trim().is_empty());
        given.or(self.details.preview.as_deref()).unwrap_or_else(|| self.id.as_str())
    }
}

/// A thread to be created.
#[derive(Debug, Clone, Default)]
pub struct NewThread {
    /// Chosen by the caller, or minted.
    pub id: Option<ThreadId>,
    /// The descriptive fields.
    pub details: Details,
    /// [`Status::Idle`] when `None`.
    pub status: Option<Status>,
    /// Made without the wish to keep it.
    pub ephemeral: bool,
    /// What is kept of what is appended.
    pub policy: Policy,
    /// Lineage of a copy that shares nothing.
    pub forked_from: Option<ThreadId>,
    /// When it was made; the store's clock when `None`.
    pub created_at: Option<Timestamp>,
}

/// One field of a partial update.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Leave the stored value.
    #[default]
    Keep,
    /// Erase it.
    Clear,
    /// Replace it.
    Set(T),
}

impl<T> Change<T> {
    /// Runs something on the value that is to be set, if one is.
    pub(crate) fn with_set<E>(&mut self, run: impl FnOnce(&mut Option<T>) -> Result<(), E>) -> Result<(), E> {
        if !matches!(self, Self::Set(_)) {
            return Ok(());
        }
        let Self::Set(value) = std::mem::take(self) else { return Ok(()) };
        let mut value = Some(value);
        run(&mut value)?;
        *self = value.map_or(Self::Clear, Self::Set);
        Ok(())
    }

    fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value),
        }
    }
}

impl<T> From<Option<T>> for Change<T> {
    /// `Some` sets, `None` keeps.
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Keep, Self::Set)
    }
}

/// A partial update of a thread's metadata; what it does not name stays as it is.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the fields are those of `Details` and `Thread`")]
pub struct ThreadPatch {
    /// Refuse with [`Error::Conflict`] unless the stored version is this one.
    pub expect_version: Option<i64>,
    pub status: Option<Status>,
    pub pinned: Option<bool>,
    pub ephemeral: Option<bool>,
    pub title: Change<String>,
    pub preview: Change<String>,
    pub agent: Change<String>,
    pub source: Change<String>,
    pub provider: Change<String>,
    pub model: Change<String>,
    pub cwd: Change<String>,
    pub working_path: Change<String>,
    pub rollout_path: Change<String>,
    pub git_sha: Change<String>,
    pub git_branch: Change<String>,
    pub git_origin: Change<String>,
    pub cli_version: Change<String>,
    pub sandbox_policy: Change<String>,
    pub approval_policy: Change<String>,
    pub memory_mode: Change<String>,
    pub persona: Change<String>,
    pub parent: Change<ThreadId>,
    pub end_reason: Change<String>,
    pub usage: Change<Usage>,
    /// Names of `extra` to set or clear.
    pub extra: BTreeMap<String, Change<serde_json::Value>>,
}

impl ThreadPatch {
    /// A patch that sets the title.
    pub fn title(title: impl Into<String>) -> Self {
        Self { title: Change::Set(title.into()), ..Self::default() }
    }

    /// The fields that are texts.
    pub(crate) fn texts_mut(&mut self) -> [(&'static str, &mut Change<String>); 18] {
        [
            ("title", &mut self.title),
            ("preview", &mut self.preview),
            ("agent", &mut self.agent),
            ("source", &mut self.source),
            ("provider", &mut self.provider),
            ("model", &mut self.model),
            ("cwd", &mut self.cwd),
            ("working_path", &mut self.working_path),
            ("rollout_path", &mut self.rollout_path),
            ("git_sha", &mut self.git_sha),
            ("git_branch", &mut self.git_branch),
            ("git_origin", &mut self.git_origin),
            ("cli_version", &mut self.cli_version),
            ("sandbox_policy", &mut self.sandbox_policy),
            ("approval_policy", &mut self.approval_policy),
            ("memory_mode", &mut self.memory_mode),
            ("persona", &mut self.persona),
            ("end_reason", &mut self.end_reason),
        ]
    }

    pub(crate) fn apply(self, thread: &mut Thread) -> Result<()> {
        if let Some(expected) = self.expect_version
            && expected != thread.version
        {
            let found = thread.version.to_string();
            return Err(Error::Conflict { what: "version", expected: expected.to_string(), found });
        }
        let details = &mut thread.details;
        self.title.apply(&mut details.title);
        self.preview.apply(&mut details.preview);
        self.agent.apply(&mut details.agent);
        self.source.apply(&mut details.source);
        self.provider.apply(&mut details.provider);
        self.model.apply(&mut details.model);
        self.cwd.apply(&mut details.cwd);
        self.working_path.apply(&mut details.working_path);
        self.rollout_path.apply(&mut details.rollout_path);
        self.git_sha.apply(&mut details.git_sha);
        self.git_branch.apply(&mut details.git_branch);
        self.git_origin.apply(&mut details.git_origin);
        self.cli_version.apply(&mut details.cli_version);
        self.sandbox_policy.apply(&mut details.sandbox_policy);
        self.approval_policy.apply(&mut details.approval_policy);
        self.memory_mode.apply(&mut details.memory_mode);
        self.persona.apply(&mut details.persona);
        self.parent.apply(&mut details.parent);
        self.end_reason.apply(&mut details.end_reason);
        self.usage.apply(&mut details.usage);
        for (name, change) in self.extra {
            match change {
                Change::Keep => {}
                Change::Clear => drop(details.extra.remove(&name)),
                Change::Set(value) => drop(details.extra.insert(name, value)),
            }
        }
        thread.status = self.status.unwrap_or_else(|| thread.status.clone());
        thread.pinned = self.pinned.unwrap_or(thread.pinned);
        thread.ephemeral = self.ephemeral.unwrap_or(thread.ephemeral);
        thread.details.check()
    }
}

/// What a list is sorted by. Every order is total: equal values are ordered by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortKey {
    /// The last append. Renaming or archiving does not move a thread.
    #[default]
    Activity,
    /// The last change of any kind.
    Updated,
    /// The creation time.
    Created,
}

/// Which shelves a list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shelves {
    /// Active threads.
    #[default]
    Active,
    /// Archived threads.
    Archived,
    /// Active and archived ones.
    Both,
    /// The trash.
    Trash,
}

impl Shelves {
    pub(crate) fn bounds(self) -> (i64, i64) {
        match self {
            Self::Active => (0, 0),
            Self::Archived => (1, 1),
            Self::Both => (0, 1),
            Self::Trash => (2, 2),
        }
    }
}

/// Threads related to another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lineage {
    /// Spawned by this thread.
    ChildrenOf(ThreadId),
    /// Forked from this thread.
    ForksOf(ThreadId),
}

/// A question for a page of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// What to sort by.
    pub sort: SortKey,
    /// Oldest first instead of newest first.
    pub ascending: bool,
    /// Which shelves.
    pub shelves: Shelves,
    /// Only this agent's.
    pub agent: Option<String>,
    /// Only this provider's.
    pub provider: Option<String>,
    /// Only with exactly this working directory.
    pub cwd: Option<String>,
    /// Only from this source.
    pub source: Option<String>,
    /// Only where title or preview contain this, ignoring case.
    pub text: Option<String>,
    /// Only relatives of a thread.
    pub lineage: Option<Lineage>,
    /// Only threads that have branched.
    pub branched: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts: the `next_cursor` of an earlier page of the same query.
    #[serde(skip)]
    pub cursor: Option<String>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            sort: SortKey::default(),
            ascending: false,
            shelves: Shelves::default(),
            agent: None,
            provider: None,
            cwd: None,
            source: None,
            text: None,
            lineage: None,
            branched: false,
            limit: 50,
            cursor: None,
        }
    }
}

/// A page of results and where the next one starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// The results in the order of the query.
    pub entries: Vec<T>,
    /// The cursor of the next page; `None` at the end.
    pub next_cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{Shelf, Status};

    #[test]
    fn an_unknown_status_is_kept_as_it_is() {
        let status = Status::from_word("waiting_approval");
        assert_eq!(status, Status::Unknown("waiting_approval".into()));
        assert_eq!(status.as_str(), "waiting_approval");
    }

    #[test]
    fn shelves_survive_the_database() {
        for shelf in [Shelf::Active, Shelf::Archived, Shelf::Trashed, Shelf::Stub] {
            assert_eq!(Shelf::from_int(shelf.to_int()), Some(shelf));
        }
        assert_eq!(Shelf::from_int(9), None);
    }
}
