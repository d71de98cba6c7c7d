//! The same calls without async, for programs that have no runtime.
//!
//! Each call waits on the calling thread. Inside an async runtime use the async handles instead.

mod follow;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::artifacts::{Artifact, ArtifactQuery, NewArtifact, StoredArtifact};
use crate::backup::{BackupReport, RestoreReport};
use crate::branch::Tree;
use crate::bundle::{Bundle, BundleOptions, BundleReport, TakeBundle};
use crate::checkpoints::{Checkpoint, CheckpointDiff, CheckpointInfo, CheckpointQuery, NewCheckpoint};
use crate::claim::{ClaimInfo, ReleaseRequest};
use crate::copy::{CopyProgress, CopyReport};
use crate::dangling::TurnRepair;
use crate::db::helping::block_on;
use crate::documents::schema::{PlanSnapshot, PreferencePin, Scratchpad};
use crate::documents::{Document, DocumentInfo, DocumentQuery, NewDocument};
use crate::error::Result;
use crate::finding::Examination;
use crate::goals::{Goal, GoalCheck, GoalPatch, GoalQuery, GoalUsage, NewGoal};
use crate::host::Host;
use crate::id::{
    Address, ArtifactId, BranchId, ItemId, JobId, MessageId, PartId, PromptId, RequestId, RoadmapId, RunId, ThreadId,
    WorkspaceId,
};
use crate::inbox::{Message, MessageEnd, MessageQuery, NewMessage, TakeMessage, TakenMessage};
use crate::item::{Appended, Durability, Hash, Item, NewItem};
use crate::jobs::{ClaimedJob, Job, JobEnd, JobLease, JobPatch, JobQuery, JobReport, NewJob};
use crate::keys::{Key, KeyFolder};
use crate::live::AppendOptions;
use crate::log::purge::Purged;
use crate::log::read::ItemQuery;
use crate::log::verify::{Verdict, VerifyReport};
use crate::policy::Policy;
use crate::prompts::{NewPrompt, Prompt, PromptContext, PromptQuery, Receipt, ReceiptPage, StoredPrompt};
use crate::repair::{Checkup, RepairReport};
use crate::requests::{Answer, NewRequest, Principal, Request, RequestQuery, UseAnswer, UsedAnswer};
use crate::retention::{ReceiptQuery, RetainOptions, RetentionReceipt, RetentionReport, RetentionRules, StoredRules};
use crate::roadmaps::{
    NewRoadmap, NodePatch, Roadmap, RoadmapInfo, RoadmapLink, RoadmapLinkQuery, RoadmapQuery, RoadmapUpdate,
};
use crate::rollout::live::LiveStatus;
use crate::rollout::scan::{LineProblem, RolloutReport};
use crate::rollout::{MirrorReport, RebuildReport, RewrittenRollouts};
use crate::runs::candidates::{Candidate, CandidateQuery, Judgement, NewCandidate};
use crate::runs::parts::{NewPart, PartEnd, ReplayFrom, RunPart};
use crate::runs::tree::{RunTree, TreeQuery};
use crate::runs::{Interrupted, NewRun, Run, RunEnd, RunPatch, RunQuery, RunStatus};
use crate::seal::Anchors;
use crate::search::{IndexStatus, SearchPage, SearchQuery};
use crate::secrets::Rules;
use crate::sources::{FilePart, ImportBatch, KnownRecord, SourceFile, SourceStamp};
use crate::stats::Stats;
use crate::store::{Compacted, RedactOptions, RedactReport, SealReport, StoreOptions, VerifyOptions};
use crate::thread::{ListQuery, NewThread, Page, Status, Thread, ThreadPatch};
use crate::tools::{Tool, Toolset};
use crate::turn::{Turn, TurnEnd, TurnEnded};
use crate::turns::TurnQuery;
use crate::workspaces::WorkspaceInfo;

pub use follow::{ChangeFollower, Follower, InboxWatch, RequestWatch, Watch};

/// Declares blocking calls that wait for the async ones of the same name.
macro_rules! mirror {
    ($handle:ty, $link:literal: $($(#[$meta:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)* $(,)?) -> Result<$out:ty>;)+) => {
        impl $handle {
            $(
                #[doc = concat!("Waits for [`crate::", $link, "::", stringify!($name), "`].")]
                ///
                /// # Errors
                /// As the async call.
                $(#[$meta])*
                pub fn $name(&self $(, $arg: $ty)*) -> Result<$out> {
                    block_on(self.0.$name($($arg),*))
                }
            )+
        }
    };
}

/// A [`crate::Store`] whose calls wait.
#[derive(Debug, Clone)]
pub struct Store(crate::Store, Threads);

/// A [`crate::Workspace`] whose calls wait.
#[derive(Debug, Clone)]
pub struct Workspace(crate::Workspace, Threads);

/// The [`crate::Threads`] of a handle, with calls that wait.
#[derive(Debug, Clone)]
pub struct Threads(crate::Threads);

/// A [`crate::LiveThread`] whose calls wait.
#[derive(Debug, Clone)]
pub struct LiveThread(crate::LiveThread);

impl std::ops::Deref for Store {
    type Target = Threads;

    fn deref(&self) -> &Threads {
        &self.1
    }
}

impl std::ops::Deref for Workspace {
    type Target = Threads;

    fn deref(&self) -> &Threads {
        &self.1
    }
}

impl Store {
    /// Waits for [`crate::Store::index_all`].
    ///
    /// # Errors
    /// As the async call.
    pub fn index_all(&self, progress: impl FnMut(IndexStatus) + Send + 'static) -> Result<IndexStatus> {
        block_on(self.0.index_all(progress))
    }

    /// Waits for [`crate::Store::open`].
    ///
    /// # Errors
    /// As the async call.
    pub fn open(options: StoreOptions) -> Result<Self> {
        Ok(Self::from_async(block_on(crate::Store::open(options))?))
    }

    /// The same as [`crate::Store::screened`].
    ///
    /// # Errors
    /// As there.
    pub fn screened(&self, path: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.screened(path, bytes)
    }

    /// Waits for [`crate::Store::backup_with`].
    ///
    /// # Errors
    /// As the async call.
    pub fn backup_with(&self, to: &Path, progress: impl FnMut(u64, u64) + Send + 'static) -> Result<BackupReport> {
        block_on(self.0.backup_with(to, progress))
    }

    /// Waits for [`crate::Store::restore_backup`].
    ///
    /// # Errors
    /// As the async call.
    pub fn restore_backup(options: StoreOptions, from: &Path) -> Result<RestoreReport> {
        block_on(crate::Store::restore_backup(options, from))
    }

    /// Waits for [`crate::Store::examine`].
    ///
    /// # Errors
    /// As the async call.
    pub fn examine(options: StoreOptions, full: bool) -> Result<Examination> {
        block_on(crate::Store::examine(options, full))
    }

    /// Waits for [`crate::Store::plan_repair`].
    ///
    /// # Errors
    /// As the async call.
    pub fn plan_repair(options: StoreOptions, full: bool) -> Result<Checkup> {
        block_on(crate::Store::plan_repair(options, full))
    }

    /// Waits for [`crate::Store::repair`].
    ///
    /// # Errors
    /// As the async call.
    pub fn repair(options: StoreOptions, fingerprint: &str) -> Result<RepairReport> {
        block_on(crate::Store::repair(options, fingerprint))
    }

    /// Waits for [`crate::Store::copy_from`].
    ///
    /// # Errors
    /// As the async call.
    pub fn copy_from(&self, source: &Self, progress: &mut (dyn FnMut(CopyProgress) + Send)) -> Result<CopyReport> {
        block_on(self.0.copy_from(&source.0, progress))
    }

    /// Waits for [`crate::Store::write_bundle`].
    ///
    /// # Errors
    /// As the async call.
    pub fn write_bundle(
        &self,
        threads: &[ThreadId],
        options: &BundleOptions,
        out: &mut (dyn Write + Send),
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<BundleReport> {
        block_on(self.0.write_bundle(threads, options, out, progress))
    }

    /// Waits for [`crate::Store::take_bundle`].
    ///
    /// # Errors
    /// As the async call.
    pub fn take_bundle(
        &self,
        bundle: &Bundle,
        what: TakeBundle,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyReport> {
        block_on(self.0.take_bundle(bundle, what, progress))
    }

    /// Waits for [`Bundle::open`].
    ///
    /// # Errors
    /// As the async call.
    pub fn open_bundle(input: &mut (dyn Read + Send), scratch: &Path, host: Arc<dyn Host>) -> Result<Bundle> {
        block_on(Bundle::open(input, scratch, host))
    }

    /// The threads of a bundle, to read them without taking them in; not to be used when the bundle is gone.
    pub fn of_bundle(bundle: &Bundle) -> Self {
        Self::from_async(bundle.store().clone())
    }

    /// Waits for [`crate::Store::mirror_rollouts`].
    ///
    /// # Errors
    /// As the async call.
    pub fn mirror_rollouts(
        &self,
        folder: Option<&Path>,
        threads: Option<Vec<ThreadId>>,
        progress: impl FnMut(CopyProgress) + Send + 'static,
    ) -> Result<MirrorReport> {
        block_on(self.0.mirror_rollouts(folder, threads, progress))
    }

    /// Waits for [`crate::Store::set_live_rollouts`].
    ///
    /// # Errors
    /// As there.
    pub fn set_live_rollouts(&self, folder: Option<&Path>) -> Result<()> {
        block_on(self.0.set_live_rollouts(folder))
    }

    /// Waits for [`crate::Store::unset_live_rollouts`].
    ///
    /// # Errors
    /// As there.
    pub fn unset_live_rollouts(&self) -> Result<()> {
        block_on(self.0.unset_live_rollouts())
    }

    /// Waits for [`crate::Store::live_rollouts_folder`].
    ///
    /// # Errors
    /// As there.
    pub fn live_rollouts_folder(&self) -> Result<Option<PathBuf>> {
        block_on(self.0.live_rollouts_folder())
    }

    /// Waits for [`crate::Store::rewrite_rollouts`].
    ///
    /// # Errors
    /// As there.
    pub fn rewrite_rollouts(&self, thread: &ThreadId) -> Result<RewrittenRollouts> {
        block_on(self.0.rewrite_rollouts(thread))
    }

    /// As [`crate::Store::live_rollouts`].
    pub fn live_rollouts(&self) -> LiveStatus {
        self.0.live_rollouts()
    }

    /// Waits for [`crate::Store::drain_live_rollouts`].
    pub fn drain_live_rollouts(&self) -> LiveStatus {
        block_on(self.0.drain_live_rollouts())
    }

    /// Waits for [`crate::Store::rebuild_from_rollouts`].
    ///
    /// # Errors
    /// As the async call.
    pub fn rebuild_from_rollouts(
        &self,
        from: &Path,
        progress: impl FnMut(CopyProgress) + Send + 'static,
    ) -> Result<RebuildReport> {
        block_on(self.0.rebuild_from_rollouts(from, progress))
    }

    /// Waits for [`crate::Store::verify_rollouts`].
    ///
    /// # Errors
    /// As the async call.
    pub fn verify_rollouts(from: &Path) -> Result<(Vec<RolloutReport>, Vec<LineProblem>)> {
        block_on(crate::Store::verify_rollouts(from))
    }

    /// Waits for [`crate::Store::thread_of_rollout`].
    ///
    /// # Errors
    /// As the async call.
    pub fn thread_of_rollout(&self, path: &Path) -> Result<Thread> {
        block_on(self.0.thread_of_rollout(path))
    }

    /// Waits for [`crate::Store::rollout_path`].
    ///
    /// # Errors
    /// As the async call.
    pub fn rollout_path(&self, thread: &ThreadId) -> Result<PathBuf> {
        block_on(self.0.rollout_path(thread))
    }

    /// Waits for [`crate::Store::resume_rollout`].
    ///
    /// # Errors
    /// As the async call.
    pub fn resume_rollout(&self, path: &Path) -> Result<LiveThread> {
        block_on(self.0.resume_rollout(path)).map(LiveThread)
    }

    /// Wraps an async handle.
    pub fn from_async(store: crate::Store) -> Self {
        let threads = Threads(crate::Threads::clone(&store));
        Self(store, threads)
    }

    /// The async handle.
    pub fn as_async(&self) -> &crate::Store {
        &self.0
    }

    /// The store's lasting id.
    pub fn id(&self) -> uuid::Uuid {
        self.0.id()
    }

    /// The folder of keys. See [`crate::Store::keys`].
    pub fn keys(&self) -> Option<&KeyFolder> {
        self.0.keys()
    }

    /// Waits for [`crate::Store::proof`].
    ///
    /// # Errors
    /// As the async call.
    pub fn proof(&self, thread: &ThreadId, out: &mut (dyn Write + Send)) -> Result<()> {
        block_on(self.0.proof(thread, out))
    }

    /// Makes the first key. See [`crate::Store::create_key`].
    ///
    /// # Errors
    /// As the async handle's call.
    pub fn create_key(&self) -> Result<Key> {
        self.0.create_key()
    }

    /// Replaces the key that signs. See [`crate::Store::rotate_key`].
    ///
    /// # Errors
    /// As the async handle's call.
    pub fn rotate_key(&self) -> Result<Key> {
        self.0.rotate_key()
    }

    /// What the caller should know of how the store was opened.
    pub fn notices(&self) -> &[String] {
        self.0.notices()
    }

    /// Waits for [`crate::Store::workspace`].
    ///
    /// # Errors
    /// As the async call.
    pub fn workspace(&self, folder: &Path) -> Result<Workspace> {
        block_on(self.0.workspace(folder)).map(Workspace::new)
    }

    /// Waits for [`crate::Store::find_workspace`].
    ///
    /// # Errors
    /// As the async call.
    pub fn find_workspace(&self, folder: &Path) -> Result<Option<Workspace>> {
        Ok(block_on(self.0.find_workspace(folder))?.map(Workspace::new))
    }

    /// Waits for [`crate::Store::workspace_by_id`].
    ///
    /// # Errors
    /// As the async call.
    pub fn workspace_by_id(&self, id: WorkspaceId) -> Result<Workspace> {
        block_on(self.0.workspace_by_id(id)).map(Workspace::new)
    }
}

mirror! { Store, "Store":
    fn workspaces(&self) -> Result<Vec<WorkspaceInfo>>;
    fn drop_index(&self) -> Result<()>;
    fn index_status(&self) -> Result<IndexStatus>;
    fn remap(&self, from: WorkspaceId, to: WorkspaceId) -> Result<WorkspaceInfo>;
    fn stats(&self) -> Result<Stats>;
    fn compact(&self) -> Result<Compacted>;
    fn source(&self, path: &str) -> Result<Option<SourceFile>>;
    fn note_container(&self, source: SourceFile) -> Result<()>;
    fn source_stamps(&self, after: &str, limit: usize) -> Result<Vec<SourceStamp>>;
    fn known_records(&self, path: &str, after: i64, limit: usize) -> Result<Vec<KnownRecord>>;
    fn source_parts(&self, path: &str, after: i64, limit: usize) -> Result<Vec<FilePart>>;
    fn changed_source_parts(&self, path: &str, after: i64, limit: usize) -> Result<Vec<FilePart>>;
    fn stored_items(&self, ids: Vec<ItemId>) -> Result<Vec<ItemId>>;
    fn sync(&self) -> Result<()>;
    fn backup(&self, to: &Path) -> Result<BackupReport>;
    fn seal(&self, threads: Option<&[ThreadId]>, accept_older: bool) -> Result<SealReport>;
    fn anchors(&self) -> Result<Anchors>;
}

impl Workspace {
    fn new(workspace: crate::Workspace) -> Self {
        let threads = Threads(crate::Threads::clone(&workspace));
        Self(workspace, threads)
    }

    /// The workspace's id, name and keys as they were when it was entered.
    pub fn info(&self) -> &WorkspaceInfo {
        self.0.info()
    }

    /// A new thread; nothing is stored yet. See [`crate::Workspace::create`].
    ///
    /// # Errors
    /// As the async handle's call.
    pub fn create(&self, thread: NewThread) -> Result<LiveThread> {
        self.0.create(thread).map(LiveThread)
    }

    /// Waits for [`crate::Workspace::create_now`].
    ///
    /// # Errors
    /// As the async call.
    pub fn create_now(&self, thread: NewThread) -> Result<LiveThread> {
        block_on(self.0.create_now(thread)).map(LiveThread)
    }
}

impl Threads {
    /// Waits for [`crate::Threads::resume`].
    ///
    /// # Errors
    /// As the async call.
    pub fn resume(&self, thread: &ThreadId, include_archived: bool) -> Result<LiveThread> {
        block_on(self.0.resume(thread, include_archived)).map(LiveThread)
    }

    /// Waits for [`crate::Threads::take_over`].
    ///
    /// # Errors
    /// As the async call.
    pub fn take_over(&self, thread: &ThreadId, reason: &str, include_archived: bool) -> Result<LiveThread> {
        block_on(self.0.take_over(thread, reason, include_archived)).map(LiveThread)
    }

    /// Waits for [`crate::Threads::reserve`].
    ///
    /// # Errors
    /// As the async call.
    pub fn reserve(&self, threads: &[ThreadId], include_archived: bool) -> Result<Vec<LiveThread>> {
        Ok(block_on(self.0.reserve(threads, include_archived))?.into_iter().map(LiveThread).collect())
    }

    /// Waits for [`crate::Threads::verify_all`].
    ///
    /// # Errors
    /// As the async call.
    pub fn verify_all(&self, each: impl FnMut(&Verdict) + Send) -> Result<VerifyReport> {
        block_on(self.0.verify_all(each))
    }

    /// Waits for [`crate::Threads::verify_all_with`].
    ///
    /// # Errors
    /// As the async call.
    pub fn verify_all_with(&self, options: &VerifyOptions, each: impl FnMut(&Verdict) + Send) -> Result<VerifyReport> {
        block_on(self.0.verify_all_with(options, each))
    }

    /// Waits for [`crate::Threads::redact_matching`].
    ///
    /// # Errors
    /// As the async call.
    pub fn redact_matching(
        &self,
        threads: Option<Vec<ThreadId>>,
        rules: Rules,
        options: RedactOptions,
        apply: bool,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<RedactReport> {
        block_on(self.0.redact_matching(threads, rules, options, apply, progress))
    }

    /// Waits for [`crate::Threads::retain_with`].
    ///
    /// # Errors
    /// As the async call.
    pub fn retain_with(
        &self,
        options: RetainOptions,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<RetentionReport> {
        block_on(self.0.retain_with(options, progress))
    }
}

mirror! { Threads, "Threads":
    fn find(&self, name: &str) -> Result<ThreadId>;
    fn get(&self, thread: &ThreadId) -> Result<Thread>;
    fn latest(&self) -> Result<Option<ThreadId>>;
    fn list(&self, query: ListQuery) -> Result<Page<Thread>>;
    fn search(&self, query: SearchQuery) -> Result<SearchPage>;
    fn update(&self, thread: &ThreadId, patch: ThreadPatch) -> Result<Thread>;
    fn archive(&self, thread: &ThreadId) -> Result<Thread>;
    fn unarchive(&self, thread: &ThreadId) -> Result<Thread>;
    fn delete(&self, thread: &ThreadId) -> Result<Thread>;
    fn restore(&self, thread: &ThreadId) -> Result<Thread>;
    fn purge(&self, thread: &ThreadId) -> Result<Purged>;
    fn retain(&self, options: RetainOptions) -> Result<RetentionReport>;
    fn retention(&self) -> Result<Option<RetentionRules>>;
    fn all_retention(&self) -> Result<Vec<StoredRules>>;
    fn set_retention(&self, rules: RetentionRules) -> Result<()>;
    fn clear_retention(&self) -> Result<bool>;
    fn retention_receipts(&self, query: ReceiptQuery) -> Result<Page<RetentionReceipt>>;
    fn redact(&self, thread: &ThreadId, items: Vec<Address>, options: RedactOptions) -> Result<RedactReport>;
    fn erase(&self) -> Result<Vec<String>>;
    fn end(&self, thread: &ThreadId, status: Status, reason: &str) -> Result<Thread>;
    fn fork(&self, parent: &ThreadId, at: Option<Address>, thread: NewThread) -> Result<Thread>;
    fn items(&self, thread: &ThreadId, query: ItemQuery) -> Result<Page<Item>>;
    fn item(&self, thread: &ThreadId, address: Address) -> Result<Item>;
    fn address_at(&self, thread: &ThreadId, depth: u32) -> Result<Address>;
    fn address_of(&self, thread: &ThreadId, item: ItemId) -> Result<Address>;
    fn model_context(&self, thread: &ThreadId, query: ItemQuery) -> Result<Page<Item>>;
    fn turns(&self, thread: &ThreadId, query: TurnQuery) -> Result<Page<Turn>>;
    fn open_turn(&self, thread: &ThreadId) -> Result<Option<i64>>;
    fn plan_turn_repair(&self, thread: &ThreadId) -> Result<TurnRepair>;
    fn tree(&self, thread: &ThreadId) -> Result<Tree>;
    fn label(&self, thread: &ThreadId, branch: BranchId, label: Option<String>) -> Result<()>;
    fn sources(&self, thread: &ThreadId) -> Result<Vec<SourceFile>>;
    fn verify(&self, thread: &ThreadId) -> Result<Verdict>;
    fn verify_with(&self, thread: &ThreadId, options: &VerifyOptions) -> Result<Verdict>;
    fn request_release(&self, thread: &ThreadId) -> Result<ReleaseRequest>;
    fn claims(&self) -> Result<Vec<ClaimInfo>>;
    fn goal(&self, thread: &ThreadId) -> Result<Option<Goal>>;
    fn goal_history(&self, thread: &ThreadId, query: GoalQuery) -> Result<Page<Goal>>;
    fn set_goal(&self, thread: &ThreadId, goal: NewGoal) -> Result<Goal>;
    fn update_goal(&self, thread: &ThreadId, patch: GoalPatch) -> Result<Goal>;
    fn accrue_goal(&self, thread: &ThreadId, usage: GoalUsage) -> Result<Option<Goal>>;
    fn check_goal(&self, thread: &ThreadId, found: GoalCheck) -> Result<Option<Goal>>;
    fn clear_goal(&self, thread: &ThreadId) -> Result<bool>;
    fn add_job(&self, job: NewJob) -> Result<Job>;
    fn job(&self, id: &JobId) -> Result<Job>;
    fn find_job(&self, name: &str) -> Result<JobId>;
    fn jobs(&self, query: JobQuery) -> Result<Page<Job>>;
    fn claim_job(&self, queue: &str) -> Result<Option<ClaimedJob>>;
    fn report_job(&self, lease: &JobLease, report: JobReport) -> Result<Job>;
    fn end_job(&self, lease: &JobLease, end: JobEnd) -> Result<Job>;
    fn update_job(&self, id: &JobId, patch: JobPatch) -> Result<Job>;
    fn delete_job(&self, id: &JobId) -> Result<()>;
    fn requeue_jobs(&self, queue: Option<String>) -> Result<Vec<Job>>;
    fn tools(&self, thread: &ThreadId) -> Result<Toolset>;
    fn set_tools(&self, thread: &ThreadId, tools: Vec<Tool>, expect: Option<Hash>) -> Result<Toolset>;
    fn start_run(&self, run: NewRun) -> Result<Run>;
    fn run(&self, id: &RunId) -> Result<Run>;
    fn find_run(&self, name: &str) -> Result<RunId>;
    fn runs(&self, query: RunQuery) -> Result<Page<Run>>;
    fn run_tree(&self, id: &RunId, query: TreeQuery) -> Result<RunTree>;
    fn update_run(&self, id: &RunId, patch: RunPatch) -> Result<Run>;
    fn end_run(&self, id: &RunId, end: RunEnd) -> Result<Run>;
    fn interrupt_run(&self, id: &RunId, reason: &str) -> Result<Interrupted>;
    fn delete_run(&self, id: &RunId) -> Result<()>;
    fn start_part(&self, run: &RunId, part: NewPart) -> Result<RunPart>;
    fn part(&self, id: &PartId) -> Result<RunPart>;
    fn find_part(&self, name: &str) -> Result<PartId>;
    fn mark_part(&self, id: &PartId, status: RunStatus) -> Result<RunPart>;
    fn end_part(&self, id: &PartId, end: PartEnd) -> Result<RunPart>;
    fn replay_leaf(&self, run: &RunId, leaf: &str, input_hash: &str, from: ReplayFrom) -> Result<Option<RunPart>>;
    fn add_candidate(&self, run: &RunId, candidate: NewCandidate) -> Result<Candidate>;
    fn judge_candidate(&self, id: &PartId, judgement: Judgement) -> Result<Candidate>;
    fn find_candidate(&self, name: &str) -> Result<PartId>;
    fn candidates(&self, control: &PartId, query: CandidateQuery) -> Result<Page<Candidate>>;
    fn checkpoint(&self, thread: &ThreadId, name: Option<String>) -> Result<Option<Checkpoint>>;
    fn checkpoints(&self, thread: &ThreadId, query: CheckpointQuery) -> Result<Page<CheckpointInfo>>;
    fn diff_checkpoints(&self, thread: &ThreadId, from: &str, to: &str) -> Result<CheckpointDiff>;
    fn delete_checkpoint(&self, thread: &ThreadId, name: &str) -> Result<bool>;
    fn document(&self, thread: &ThreadId, name: &str, version: Option<u64>) -> Result<Option<Document>>;
    fn documents(&self, thread: &ThreadId, query: DocumentQuery) -> Result<Page<DocumentInfo>>;
    fn document_history(&self, thread: &ThreadId, name: &str, query: DocumentQuery) -> Result<Page<DocumentInfo>>;
    fn put_document(&self, thread: &ThreadId, document: NewDocument) -> Result<DocumentInfo>;
    fn patch_document(&self, thread: &ThreadId, patch: NewDocument) -> Result<DocumentInfo>;
    fn delete_document(&self, thread: &ThreadId, name: &str, expect: Option<u64>) -> Result<bool>;
    fn trim_document(&self, thread: &ThreadId, name: &str, keep: u64) -> Result<u64>;
    fn scratchpad(&self, thread: &ThreadId) -> Result<Option<Scratchpad>>;
    fn plan(&self, thread: &ThreadId) -> Result<Option<PlanSnapshot>>;
    fn preferences(&self, thread: &ThreadId) -> Result<Option<PreferencePin>>;
    fn create_roadmap(&self, roadmap: NewRoadmap) -> Result<RoadmapInfo>;
    fn roadmap(&self, id: &RoadmapId) -> Result<Option<Roadmap>>;
    fn roadmaps(&self, query: RoadmapQuery) -> Result<Page<RoadmapInfo>>;
    fn update_roadmap(&self, id: &RoadmapId, update: RoadmapUpdate) -> Result<RoadmapInfo>;
    fn set_roadmap_node(&self, id: &RoadmapId, node: &str, patch: NodePatch) -> Result<RoadmapInfo>;
    fn delete_roadmap(&self, id: &RoadmapId, expect: Option<u64>) -> Result<bool>;
    fn link_roadmap(&self, thread: &ThreadId, id: &RoadmapId, node: Option<String>) -> Result<RoadmapLink>;
    fn unlink_roadmap(&self, thread: &ThreadId) -> Result<bool>;
    fn roadmap_link(&self, thread: &ThreadId) -> Result<Option<RoadmapLink>>;
    fn roadmap_links(&self, id: &RoadmapId, query: RoadmapLinkQuery) -> Result<Page<RoadmapLink>>;
    fn inject_message(&self, thread: &ThreadId, message: NewMessage) -> Result<Message>;
    fn message(&self, thread: &ThreadId, id: MessageId) -> Result<Message>;
    fn find_message(&self, thread: &ThreadId, name: &str) -> Result<MessageId>;
    fn messages(&self, thread: &ThreadId, query: MessageQuery) -> Result<Page<Message>>;
    fn message_queue(&self, thread: &ThreadId) -> Result<Vec<MessageId>>;
    fn withdraw_message(&self, thread: &ThreadId, id: MessageId, reason: Option<String>) -> Result<Message>;
    fn reorder_messages(&self, thread: &ThreadId, order: Vec<MessageId>) -> Result<()>;
    fn prompt(&self, thread: &ThreadId, id: PromptId) -> Result<Prompt>;
    fn find_prompt(&self, thread: &ThreadId, name: &str) -> Result<PromptId>;
    fn prompt_lineage(&self, thread: &ThreadId, id: PromptId) -> Result<Vec<Receipt>>;
    fn prompts(&self, thread: &ThreadId, query: PromptQuery) -> Result<ReceiptPage<Prompt>>;
    fn prompt_context(&self, thread: &ThreadId, at: Option<Address>) -> Result<Option<PromptContext>>;
    fn artifact(&self, thread: &ThreadId, id: ArtifactId) -> Result<Artifact>;
    fn find_artifact(&self, thread: &ThreadId, name: &str) -> Result<ArtifactId>;
    fn artifacts(&self, thread: &ThreadId, query: ArtifactQuery) -> Result<ReceiptPage<Artifact>>;
    fn ask_request(&self, request: NewRequest) -> Result<Request>;
    fn request(&self, id: RequestId) -> Result<Request>;
    fn find_request(&self, name: &str) -> Result<RequestId>;
    fn requests(&self, query: RequestQuery) -> Result<Page<Request>>;
    fn answer_request(&self, id: RequestId, answer: Answer) -> Result<Request>;
    fn cancel_request(&self, id: RequestId, by: Principal, reason: Option<String>) -> Result<Request>;
    fn use_answer(&self, id: RequestId, using: UseAnswer) -> Result<UsedAnswer>;
    fn adopt_request(&self, id: RequestId) -> Result<Request>;
    fn expire_requests(&self) -> Result<u64>;
}

/// A [`crate::Importing`] that is waited for.
#[derive(Debug)]
#[must_use = "whether it was stored is known only here"]
pub struct Importing(crate::Importing);

impl Importing {
    /// Waits until it is stored.
    ///
    /// # Errors
    /// As [`crate::LiveThread::import`].
    pub fn wait(self) -> Result<Appended> {
        block_on(self.0)
    }
}

impl LiveThread {
    /// Sends what [`crate::LiveThread::send_import`] sends.
    ///
    /// # Errors
    /// As the async call.
    pub fn send_import(&self, batch: ImportBatch, durability: Durability) -> Result<Importing> {
        block_on(self.0.send_import(batch, durability)).map(Importing)
    }

    /// Sends what [`crate::LiveThread::import_whole`] sends.
    ///
    /// # Errors
    /// As the async call.
    pub fn import_whole(&self, batch: ImportBatch, durability: Durability) -> Result<Importing> {
        block_on(self.0.import_whole(batch, durability)).map(Importing)
    }

    /// The thread's id; chosen or minted before anything is stored.
    pub fn id(&self) -> &ThreadId {
        self.0.id()
    }

    /// Waits for [`crate::LiveThread::policy`].
    pub fn policy(&self) -> Policy {
        block_on(self.0.policy())
    }

    /// Waits for [`crate::LiveThread::take_unsaved`].
    pub fn take_unsaved(&self) -> Vec<NewItem> {
        block_on(self.0.take_unsaved())
    }
}

mirror! { LiveThread, "LiveThread":
    fn append(&self, items: Vec<NewItem>) -> Result<Appended>;
    fn append_with(&self, items: Vec<NewItem>, options: AppendOptions) -> Result<Appended>;
    fn begin_turn(&self, prompt: NewItem) -> Result<Appended>;
    fn end_turn(&self, end: TurnEnd) -> Result<TurnEnded>;
    fn repair_turns(&self) -> Result<TurnRepair>;
    fn release_requested(&self) -> Result<Option<ReleaseRequest>>;
    fn rewind(&self, to: Address) -> Result<()>;
    fn clear(&self) -> Result<u64>;
    fn head(&self) -> Result<Option<Address>>;
    fn load_history(&self, query: ItemQuery) -> Result<Page<Item>>;
    fn read(&self) -> Result<Thread>;
    fn set_policy(&self, policy: Policy) -> Result<()>;
    fn persist(&self) -> Result<()>;
    fn flush(&self) -> Result<()>;
    fn shutdown(&self) -> Result<()>;
    fn discard(&self) -> Result<()>;
    fn import(&self, batch: ImportBatch, durability: Durability) -> Result<Appended>;
    fn goal(&self) -> Result<Option<Goal>>;
    fn set_goal(&self, goal: NewGoal) -> Result<Goal>;
    fn update_goal(&self, patch: GoalPatch) -> Result<Goal>;
    fn accrue_goal(&self, usage: GoalUsage) -> Result<Option<Goal>>;
    fn check_goal(&self, found: GoalCheck) -> Result<Option<Goal>>;
    fn clear_goal(&self) -> Result<bool>;
    fn tools(&self) -> Result<Toolset>;
    fn set_tools(&self, tools: Vec<Tool>, expect: Option<Hash>) -> Result<Toolset>;
    fn save_checkpoint(&self, checkpoint: NewCheckpoint) -> Result<CheckpointInfo>;
    fn checkpoint(&self, name: Option<String>) -> Result<Option<Checkpoint>>;
    fn restore_checkpoint(&self, name: Option<String>) -> Result<Checkpoint>;
    fn document(&self, name: &str, version: Option<u64>) -> Result<Option<Document>>;
    fn put_document(&self, document: NewDocument) -> Result<DocumentInfo>;
    fn patch_document(&self, patch: NewDocument) -> Result<DocumentInfo>;
    fn delete_document(&self, name: &str, expect: Option<u64>) -> Result<bool>;
    fn link_roadmap(&self, id: &RoadmapId, node: Option<String>) -> Result<RoadmapLink>;
    fn unlink_roadmap(&self) -> Result<bool>;
    fn roadmap_link(&self) -> Result<Option<RoadmapLink>>;
    fn begin_prompt(&self, prompt: NewPrompt) -> Result<StoredPrompt>;
    fn add_artifact(&self, artifact: NewArtifact) -> Result<StoredArtifact>;
    fn take_message(&self, how: TakeMessage) -> Result<Option<TakenMessage>>;
    fn deliver_message(&self, id: MessageId) -> Result<Message>;
    fn end_message(&self, id: MessageId, end: MessageEnd) -> Result<Message>;
    fn ask_request(&self, request: NewRequest) -> Result<Request>;
    fn use_answer(&self, id: RequestId, using: UseAnswer) -> Result<UsedAnswer>;
}
