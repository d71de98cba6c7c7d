//! A durable, verifiable store for the threads of coding agents.
//!
//! An agent writes every prompt, answer and tool call of a conversation into a [`Store`]; people and programs list, read,
//! fork, resume and verify them. Everything is kept in one folder, in an embedded SQLite database; no server is needed, and
//! any number of processes may use a store at once.
//!
//! * A **thread** is a conversation: metadata, a tree of items and a head. Its parents are enforced by the database.
//! * An **item** is a message, a tool call, a result; it keeps the exact bytes that were given and is never changed.
//! * A **branch** is a linear run of items. Rewinding or forking begins one; nothing is copied and nothing is lost.
//! * A **claim** is the right to write a thread. One live writer has it, and its epoch is checked inside every append.
//! * A **goal** with budgets, named **checkpoints**, versioned **documents**, **tools**, and the **jobs**, **roadmaps** and workflow
//!   **runs** of a project stand beside the log, in the same transactions.
//! * An **inbox** takes messages into a thread from outside, and **requests** ask somebody for an approval or an enrolment.
//! * **Retention** takes away what is too many, too old or too large, when a program asks for it: into the trash first, and with a
//!   receipt.
//! * The **chain**: every item's hash binds its content and its parent's hash, so [`Threads::verify`] finds what was changed.
//!
//! ```
//! use threadkeep::{NewItem, NewThread, Role, blocking::Store, StoreOptions};
//!
//! # fn main() -> threadkeep::Result<()> {
//! let store = Store::open(StoreOptions::memory())?;
//! let workspace = store.workspace(".".as_ref())?;
//! let thread = workspace.create(NewThread::default())?;
//! thread.begin_turn(NewItem::message(Role::User, "Why does the login test fail?"))?;
//! let answer = thread.append(vec![NewItem::message(Role::Assistant, "The clock is mocked twice.")])?;
//! assert_eq!(answer.items[0].depth, 1);
//! assert!(store.verify(thread.id())?.is_intact());
//! # Ok(())
//! # }
//! ```
//!
//! The handles here are async and need no particular runtime; [`blocking`] has the same calls without async.

mod artifacts;
mod backup;
pub mod blocking;
mod branch;
mod bundle;
pub mod chain;
mod changes;
mod checkpoints;
mod claim;
mod claims;
mod concurrency;
#[cfg(feature = "conformance")]
pub mod conformance;
mod content;
mod copy;
mod cursor;
mod dangling;
mod db;
mod documents;
mod error;
mod examine;
mod finding;
mod follow;
mod goals;
mod host;
mod id;
mod inbox;
mod item;
mod jobs;
mod keys;
mod live;
mod log;
mod planted;
mod policy;
mod prompts;
mod receipt;
mod records;
mod repair;
mod requests;
mod retention;
mod roadmaps;
mod rollout;
mod runs;
mod screen;
mod seal;
mod seals;
pub mod search;
mod secrets;
mod sources;
mod stats;
mod store;
mod thread;
mod thread_list;
mod thread_store;
mod threads;
mod time;
mod tools;
mod turn;
mod turns;
mod view;
mod workspaces;
mod writers;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub use artifacts::{
    Artifact, ArtifactQuery, ArtifactsOf, MAX_ARTIFACT_BODY_BYTES, MAX_LOCATOR_BYTES, MAX_METADATA_BYTES, NewArtifact,
    StoredArtifact,
};
pub use backup::{BackupReport, RestoreReport};
pub use branch::{Branch, Tree};
pub use bundle::{BUNDLE_MAGIC, Bundle, BundleManifest, BundleOptions, BundleReport, BundledThread, TakeBundle};
pub use changes::{ActivityPage, ActivityQuery, Area, ChangeEntry, ChangePage, ChangeQuery, ThreadActivity, Verb};
pub use checkpoints::{Checkpoint, CheckpointDiff, CheckpointInfo, CheckpointQuery, NewCheckpoint};
pub use claim::{ClaimInfo, Holder, ReleaseRequest};
pub use copy::{CopyProblem, CopyProgress, CopyReport, FolderMove};
pub use dangling::{ClosedCall, TurnRepair};
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub use db::postgres::look::postgres_listing;
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub use db::postgres_statement_texts;
#[doc(hidden)]
pub use db::statement_texts;
pub use documents::schema::{PlanSnapshot, PlanStep, PreferencePin, Scratchpad, StepStatus};
pub use documents::{Document, DocumentInfo, DocumentKind, DocumentQuery, MAX_DOCUMENT_BYTES, NewDocument};
pub use error::{Error, Result};
pub use finding::{Examination, Fact, Finding, Severity};
pub use follow::{ChangeFollower, Changed, FollowEnd, Follower, InboxWatch, News, RequestWatch, Watch};
pub use goals::{
    Goal, GoalCheck, GoalPatch, GoalQuery, GoalStatus, GoalUsage, MAX_REPEATED_GAPS, NewGoal, PauseReason, Stall,
    gap_fingerprint,
};
pub use host::{Host, ProcessIdentity, ProjectFacts, SystemHost};
pub use id::{
    Address, ArtifactId, BranchId, GoalId, ItemId, JobId, MessageId, PartId, PromptId, RequestId, RoadmapId, RunId,
    ThreadId, WorkspaceId, WriterId,
};
pub use inbox::{
    MAX_MESSAGE_BYTES, MAX_QUEUED_MESSAGES, Message, MessageEnd, MessageFormat, MessagePolicy, MessageQuery,
    MessageState, NewMessage, PromptAs, TakeInto, TakeMessage, TakenMessage,
};
pub use item::{
    ARTIFACT_FORMAT, Appended, AppendedItem, Durability, Expect, FORMAT, Hash, Item, Kind, MAX_CONTENT_BYTES, NewItem,
    PROMPT_FORMAT, Redaction, Role, holds_view,
};
pub use jobs::{ClaimedJob, Job, JobEnd, JobLease, JobPatch, JobQuery, JobReport, JobStatus, NewJob};
pub use keys::{Hex, Key, KeyFolder, KeyInfo, PublicKey, Voucher, parse_key, print_key};
pub use live::{AppendOptions, Importing, LiveThread};
pub use log::purge::Purged;
pub use log::read::ItemQuery;
pub use log::verify::{Break, Gap, GapKind, Outcome, Verdict, VerifyReport};
#[cfg(feature = "planted-defects")]
#[doc(hidden)]
pub use planted::planted_defects;
pub use policy::{Policy, RecordPolicy};
pub use prompts::{
    MAX_PROMPT_BYTES, NewPrompt, Prompt, PromptContext, PromptQuery, PromptTurn, Receipt, ReceiptPage, StoredPrompt,
};
pub use receipt::{ArtifactKind, ArtifactRelation, MAX_LINEAGE, PromptOrigin};
pub use repair::admit::Described;
pub use repair::{Checkup, LostItems, RepairReport, RepairStep, RepairedThread};
pub use requests::{
    Answer, Channel, Danger, Effect, GivenAnswer, NewRequest, Principal, Request, RequestKind, RequestOption,
    RequestQuery, RequestState, Unowned, UseAnswer, UsedAnswer, call_fingerprint,
};
pub use retention::{
    KeptThread, Protection, ReceiptQuery, RetainOptions, RetentionReceipt, RetentionReport, RetentionRule,
    RetentionRules, RetentionStep, StoredRules,
};
pub use roadmaps::{
    Access, AccessWord, Aggregation, CaveatPolicy, MAX_ROADMAP_BYTES, NewRoadmap, NodeCounts, NodeKind, NodePatch,
    NodeStatus, Roadmap, RoadmapInfo, RoadmapLink, RoadmapLinkQuery, RoadmapNode, RoadmapQuery, RoadmapTree,
    RoadmapUpdate,
};
pub use rollout::live::LiveStatus;
pub use rollout::scan::{LineProblem, RolloutReport};
pub use rollout::setting::LiveRollouts;
pub use rollout::{MirrorReport, RebuildReport, RewrittenRollouts};
pub use runs::candidates::{Candidate, CandidateQuery, Judgement, NewCandidate};
pub use runs::parts::{NewPart, PartEnd, PartKind, ReplayFrom, RunPart};
pub use runs::score::Score;
pub use runs::tree::{RunNode, RunTree, TreeQuery};
pub use runs::{Interrupted, NewRun, Run, RunEnd, RunPatch, RunQuery, RunStatus};
pub use screen::{Incoming, Screened};
pub use seal::{
    Anchors, PurgeRecord, Record, RedactedItem, RedactionRecord, Seal, SealedHead, SealedItem, digest_of_heads,
};
pub use search::{FoundItem, FoundThread, Hit, SearchPage, SearchQuery, Standing};
pub use secrets::{Found, Masked, Rules};
pub use sources::{
    FilePart, ImportBatch, ImportPart, ImportSegment, KnownRecord, MAX_NOTE_BYTES, SourceFile, SourceStamp,
};
pub use stats::{AgentStats, JobStats, Stats, WordCount};
pub use store::{
    Compacted, RedactOptions, RedactReport, RedactedPlace, SealReport, Sealed, Store, StoreOptions, Threads,
    VerifyOptions, Workspace,
};
pub use thread::{
    Change, Details, Lineage, ListQuery, NewThread, Page, Shelf, Shelves, SortKey, Status, Thread, ThreadPatch,
};
pub use thread_store::{BoxFuture, Following, ThreadStore};
pub use time::Timestamp;
pub use tools::{Tool, Toolset};
pub use turn::{Turn, TurnEnd, TurnEnded, TurnStatus};
pub use turns::TurnQuery;
pub use uuid::Uuid;
pub use view::{Part, Usage, View, ViewCodec};
pub use workspaces::WorkspaceInfo;
