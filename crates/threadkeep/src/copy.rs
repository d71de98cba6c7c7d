//! Copying threads from one store to another, whatever engines they are on.
//!
//! Rows go as they are stored, so ids, hashes and bytes are the same on both sides, and a second copy carries only what is new.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::db::{Owned, Sync};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::item::Hash;
use crate::live::LiveThread;
use crate::log::rows::documents::{self, VersionPlace};
use crate::log::rows::plain::check_thread;
use crate::log::rows::steering::Steering;
use crate::log::rows::work::{Belonging, Known, RunStamp};
use crate::log::rows::{
    self, BranchRow, FileStamp, ItemPage, Listed, Metadata, Missing, RedactedPage, Snapshot, TurnRow, state, steering,
    work,
};
use crate::rollout::scan::Rollout;
use crate::sources;
use crate::store::Store;
use crate::threads::{self, Scope};
use crate::workspaces::{self, WorkspaceInfo};

const PAGE_THREADS: i64 = 1_000;

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Threads that are done.
    pub threads_done: u64,
    /// All threads.
    pub threads_total: u64,
    /// Items that are done, those that were there included.
    pub items_done: u64,
    /// Items of all threads.
    pub items_total: u64,
}

/// What a copy did. `threads = new + updated + unchanged + problems`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Threads of the source, those in the trash included.
    pub threads: u64,
    /// Threads that the target did not have.
    pub new: u64,
    /// Threads of which it had an earlier state.
    pub updated: u64,
    /// Threads of which it had everything.
    pub unchanged: u64,
    /// Items that were carried, those that threads share counted once.
    pub items: u64,
    /// Roadmaps that were carried.
    pub roadmaps: u64,
    /// Messages and requests of the source's threads that can still be acted on: they stay there, so that nobody acts twice.
    pub open: u64,
    /// Threads whose branches end with the same hashes on both sides, compared when all was done.
    pub equal: u64,
    /// Runs that work for no thread and were carried.
    pub runs: u64,
    /// Runs that work for no thread and were left, since there is a later state of them, or another run of their id.
    pub runs_left: u64,
    /// Threads that were left as they are, and why.
    pub problems: Vec<CopyProblem>,
}

/// A thread that was not copied; what the target has of it is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopyProblem {
    /// The thread.
    pub thread: ThreadId,
    /// The stable name of the error's kind.
    pub kind: &'static str,
    /// Why, and what can be done.
    pub reason: String,
}

impl Store {
    /// Copies every thread of another store into this one: items, branches, turns, metadata, imported files, and what stands beside the
    /// log; also the workflow runs that work for no thread, and the roadmaps of every workspace. A roadmap that has a later version here
    /// stays. Jobs stay where they are.
    ///
    /// A thread that is here already gets what it lacks, under its claim. One that has here what the source lacks, is written
    /// here, or is damaged there is left and named in the report. Claims stay where they are. A copy that was cut off leaves
    /// complete threads, and is completed by the next one.
    ///
    /// # Errors
    /// Only what keeps a store from being read or written at all.
    pub async fn copy_from(
        &self,
        source: &Self,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyReport> {
        if self.id() == source.id() {
            return Err(Error::invalid("source", "it is the same store, or a copy of its files"));
        }
        let listed = source.all_threads().await?.into_iter().map(|thread| (thread.id, thread.items)).collect();
        self.carry(From::Store(source), &Terms::copy(), listed, progress).await
    }

    /// Carries threads, with the number of their items, from wherever they are.
    pub(crate) async fn carry(
        &self,
        from: From<'_>,
        terms: &Terms,
        listed: Vec<(ThreadId, u64)>,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyReport> {
        let mut so_far = CopyProgress {
            threads_done: 0,
            threads_total: listed.len() as u64,
            items_done: 0,
            items_total: listed.iter().map(|(_, items)| items).sum(),
        };
        let mut copying = Copying {
            from,
            terms,
            to: self,
            workspaces: HashMap::new(),
            carried: HashSet::new(),
            report: CopyReport { threads: so_far.threads_total, ..CopyReport::default() },
        };
        progress(so_far);
        for (thread, items) in listed {
            copying.thread(&thread).await?;
            so_far.threads_done += 1;
            so_far.items_done += items;
            progress(so_far);
        }
        if terms.with_everything {
            copying.all_roadmaps().await?;
            copying.loose_runs().await?;
            if let From::Store(store) = from {
                copying.report.open = store.inner.db.read(steering::open).await?;
            }
        }
        self.sync().await?;
        // What was taken away there is taken away here: from the files too.
        self.inner.erase_what_waits().await?;
        Ok(copying.report)
    }

    pub(crate) async fn all_threads(&self) -> Result<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let after = all.last().cloned();
            let page = self.inner.db.read(move |tx| rows::threads(tx, after.as_ref(), PAGE_THREADS)).await?;
            // One that is changed meanwhile comes again, at the end.
            let page: Vec<Listed> = page.into_iter().filter(|thread| seen.insert(thread.id.clone())).collect();
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    pub(crate) async fn snapshot(&self, thread: &ThreadId) -> Result<Option<Snapshot>> {
        let thread = thread.clone();
        self.inner.db.read(move |tx| rows::snapshot(tx, &thread)).await
    }
}

/// What is carried besides the threads that are named, and what of them may change what is here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// Also what no thread leads to: the roadmaps of other workspaces, and runs of no thread.
    pub(crate) with_everything: bool,
    /// What becomes of threads that are here as well.
    pub(crate) here: Here,
    /// Folders of another machine, and what they are here.
    pub(crate) moves: Vec<FolderMove>,
}

/// What becomes of a thread that is here as well, and of which there is more there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Here {
    /// It becomes what it is there; what was taken away there is taken away here.
    #[default]
    Follows,
    /// It gains the items that it lacks, and is otherwise what it was.
    KeepsContent,
    /// It stays as it is.
    Stays,
}

impl Terms {
    /// What a copy of a whole store carries.
    pub(crate) fn copy() -> Self {
        Self { with_everything: true, ..Self::default() }
    }

    /// The path by its new name, if it has one.
    fn moved(&self, path: &str) -> Option<String> {
        self.moves.iter().find_map(|one| one.moved(path))
    }

    /// The folder that a workspace of another machine is here, if it was moved to one that is there.
    fn moved_folder(&self, info: &WorkspaceInfo) -> Option<PathBuf> {
        let folders = info.folders().filter_map(|folder| self.moved(folder)).map(PathBuf::from);
        folders.into_iter().find(|folder| folder.is_dir())
    }
}

/// A folder that threads name, and what it is called where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderMove {
    /// As the threads name it.
    pub from: String,
    /// As it is to be named.
    pub to: String,
}

impl FolderMove {
    /// The path by its new name, if it is this folder or lies in it. Both kinds of separators are known, since the paths may be of
    /// another system.
    pub fn moved(&self, path: &str) -> Option<String> {
        let from = self.from.trim_end_matches(['/', '\\']);
        let rest = path.strip_prefix(from)?;
        let to = self.to.trim_end_matches(['/', '\\']);
        match rest.chars().next() {
            None => Some(to.to_owned()),
            Some(separator @ ('/' | '\\')) if to.contains('/') || separator == '/' => {
                Some(format!("{to}{}", rest.replace('\\', "/")))
            }
            Some('\\') => Some(format!("{to}{rest}")),
            Some(_) => None,
        }
    }
}

/// Where threads are carried from: rows that pass the same rule, whatever they are kept in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From<'a> {
    /// Another store.
    Store(&'a Store),
    /// Files that are copies of threads.
    Rollouts(&'a HashMap<ThreadId, Rollout>),
}

impl From<'_> {
    /// Stands in the names of writers that came with rollouts.
    pub(crate) const OF_ROLLOUTS: &'static str = "of a rollout";

    fn rollout(&self, thread: &ThreadId) -> Result<&Rollout> {
        let found = match self {
            Self::Store(_) => None,
            Self::Rollouts(rollouts) => rollouts.get(thread),
        };
        found.ok_or_else(|| Error::not_found("rollout", thread))
    }

    /// For the names of writers.
    fn origin(&self) -> String {
        match self {
            Self::Store(store) => store.id().to_string(),
            Self::Rollouts(_) => Self::OF_ROLLOUTS.to_owned(),
        }
    }

    async fn snapshot(&self, thread: &ThreadId) -> Result<Option<Snapshot>> {
        match self {
            Self::Store(store) => store.snapshot(thread).await,
            Self::Rollouts(rollouts) => Ok(rollouts.get(thread).map(|rollout| rollout.snapshot.clone())),
        }
    }

    async fn metadata(&self, thread: &ThreadId) -> Result<Metadata> {
        match self {
            Self::Store(store) => {
                let thread = thread.clone();
                store.inner.db.read(move |tx| rows::metadata(tx, &thread)).await
            }
            Self::Rollouts(_) => self.rollout(thread)?.metadata.metadata(),
        }
    }

    async fn items(
        &self,
        thread: &ThreadId,
        branch: &Arc<BranchRow>,
        next: u32,
        after: Option<Hash>,
    ) -> Result<ItemPage> {
        match self {
            Self::Store(store) => {
                let (thread, from) = (thread.clone(), Arc::clone(branch));
                let read =
                    move |tx: &mut dyn crate::db::Tx| rows::items(tx, &thread, Missing { branch: &from, next, after });
                store.inner.db.read(read).await
            }
            Self::Rollouts(_) => self.rollout(thread)?.items(Missing { branch, next, after }),
        }
    }

    async fn redactions(&self, thread: &ThreadId, after: i64) -> Result<Option<RedactedPage>> {
        match self {
            Self::Store(store) => {
                let thread = thread.clone();
                store.inner.db.read(move |tx| rows::redactions(tx, &thread, after)).await
            }
            Self::Rollouts(_) => self.rollout(thread)?.redactions(after),
        }
    }

    async fn turns(&self, source: &Arc<Snapshot>, next: i64) -> Result<Vec<TurnRow>> {
        match self {
            Self::Store(store) => {
                let from = Arc::clone(source);
                store.inner.db.read(move |tx| rows::turns(tx, &from, next)).await
            }
            Self::Rollouts(_) => self.rollout(&source.id)?.turns(next),
        }
    }

    async fn workspace(&self, thread: &ThreadId, id: WorkspaceId) -> Result<WorkspaceInfo> {
        match self {
            Self::Store(store) => store.inner.db.read(move |tx| workspaces::get(tx, id)).await,
            Self::Rollouts(_) => Ok(self.rollout(thread)?.metadata.workspace.info()),
        }
    }

    /// Whether an error costs one thread alone. What a file says can be more than an engine takes.
    fn concerns_one_thread(&self, error: &Error) -> bool {
        concerns_one_thread(error)
            || (matches!(self, Self::Rollouts(_)) && matches!(error, Error::Backend { .. } | Error::Io { .. }))
    }
}

enum Outcome {
    New,
    Updated,
    Unchanged,
    /// It was purged since it was listed.
    Gone,
}

struct Copying<'a> {
    from: From<'a>,
    terms: &'a Terms,
    to: &'a Store,
    /// The workspaces of the source, and what they are here.
    workspaces: HashMap<WorkspaceId, WorkspaceId>,
    /// Threads whose rows were carried as far as others need them.
    carried: HashSet<ThreadId>,
    report: CopyReport,
}

impl Copying<'_> {
    async fn thread(&mut self, thread: &ThreadId) -> Result<()> {
        match self.try_thread(thread).await {
            Ok(Outcome::New) => self.report.new += 1,
            Ok(Outcome::Updated) => self.report.updated += 1,
            Ok(Outcome::Unchanged) => self.report.unchanged += 1,
            Ok(Outcome::Gone) => self.report.threads -= 1,
            Err(error) if self.from.concerns_one_thread(&error) => {
                let problem = CopyProblem { thread: thread.clone(), kind: error.kind(), reason: error.to_string() };
                self.report.problems.push(problem);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn try_thread(&mut self, thread: &ThreadId) -> Result<Outcome> {
        let Some(mut source) = self.from.snapshot(thread).await? else { return Ok(Outcome::Gone) };
        let target = self.to.snapshot(thread).await?;
        let is_new = target.as_ref().is_none_or(|target| target.shelf == 3);
        if let Some(target) = &target {
            if let From::Rollouts(_) = self.from {
                // A file says nothing of the files that were imported, and it may lag.
                source.files.clone_from(&target.files);
                source.state.clone_from(&target.state);
                if source.lacks_of(target).is_some() && source.missing_in(target)?.is_empty() {
                    return Ok(Outcome::Unchanged);
                }
            }
            if let Some(extra) = source.lacks_of(target) {
                let found = format!("items up to {extra}, which the source lacks");
                return Err(Error::Conflict { what: "copy", expected: "an earlier state".to_owned(), found });
            }
            let is_same = match self.terms.here {
                Here::Follows => source.is_same(target),
                Here::KeepsContent => source.has_same_log(target),
                Here::Stays => source.missing_in(target)?.is_empty(),
            };
            if !is_new && is_same {
                self.report.equal += u64::from(source.has_same_log(target));
                return Ok(Outcome::Unchanged);
            }
            if !is_new && self.terms.here == Here::Stays {
                let expected = "a thread that is not here yet: what is masked there replaces nothing here".to_owned();
                return Err(Error::Conflict { what: "copy", expected, found: "an earlier state of it".to_owned() });
            }
        }
        for ancestor in self.ancestors(&source).await? {
            self.carry(&ancestor, false).await?;
        }
        self.carry(&source, true).await?;
        let copied = self.to.snapshot(thread).await?;
        self.report.equal += u64::from(copied.is_some_and(|copied| source.has_same_log(&copied)));
        Ok(if is_new { Outcome::New } else { Outcome::Updated })
    }

    /// The threads that this one stands on and that were not carried yet, each behind those that it stands on itself.
    async fn ancestors(&self, source: &Snapshot) -> Result<Vec<Snapshot>> {
        let (mut order, mut seen) = (Vec::new(), HashSet::from([source.id.clone()]));
        let mut waiting: Vec<(Option<Snapshot>, Vec<ThreadId>)> = vec![(None, source.ancestors.clone())];
        while let Some((_, open)) = waiting.last_mut() {
            match open.pop() {
                Some(next) if self.carried.contains(&next) || !seen.insert(next.clone()) => {}
                Some(next) => {
                    let Some(found) = self.from.snapshot(&next).await? else {
                        self.require(&next).await?;
                        continue;
                    };
                    let open = found.ancestors.clone();
                    waiting.push((Some(found), open));
                }
                None => order.extend(waiting.pop().and_then(|(found, _)| found)),
            }
        }
        Ok(order)
    }

    /// Refuses an ancestor that is not to be had, unless it is here; whether it has the items is seen when others join them.
    async fn require(&self, thread: &ThreadId) -> Result<()> {
        let is_here = matches!(self.from, From::Rollouts(_)) && self.to.snapshot(thread).await?.is_some();
        let missing = || Error::corrupt(format!("thread {thread}"), "it is missing, and others stand on it");
        is_here.then_some(()).ok_or_else(missing)
    }

    /// Carries the rows that are missing; with `whole` also what makes a thread of them.
    async fn carry(&mut self, source: &Snapshot, whole: bool) -> Result<()> {
        if !whole {
            let target = self.to.snapshot(&source.id).await?;
            let has_all = |target: Snapshot| {
                source.missing_in(&target).is_ok_and(|missing| missing.is_empty()) && !self.takes_away(source, &target)
            };
            let is_here = target.as_ref().is_some_and(|target| target.shelf != 3);
            if target.is_some_and(has_all) {
                self.carried.insert(source.id.clone());
                return Ok(());
            }
            if is_here && self.terms.here == Here::Stays {
                let expected =
                    "an ancestor with all that is stood on: what is masked there goes on with nothing here".to_owned();
                return Err(Error::Conflict {
                    what: "copy",
                    expected,
                    found: format!("an earlier state of {}", source.id),
                });
            }
        }
        let workspace = self.workspace(&source.id, source.workspace).await?;
        let (begun, now) = (Arc::new(source.clone()), self.to.inner.host.now());
        let begin = {
            let begun = Arc::clone(&begun);
            move |tx: &mut dyn crate::db::Tx| rows::begin(tx, &begun, workspace, now)
        };
        let mut target = self.to.inner.db.write(Sync::Written.within(source.id.as_str()), begin.clone()).await?;
        let mut claim = match target.shelf {
            0 | 1 => Some(self.to.resume(&source.id, true).await?),
            _ => None,
        };
        if target.epoch < source.epoch
            && let Some(dead) = claim.take()
        {
            // The claim of a dead holder was in the way of the epoch that the items come with.
            dead.shutdown().await?;
            target = self.to.inner.db.write(Sync::Written.within(source.id.as_str()), begin).await?;
            claim = Some(self.to.resume(&source.id, true).await?);
        }
        let carried = self.carry_held(begun, target, whole).await;
        match (&carried, claim) {
            (Ok(()), Some(claim)) => claim.shutdown().await?,
            (Err(_), Some(claim)) => drop::<LiveThread>(claim),
            (_, None) => {}
        }
        carried?;
        self.carried.insert(source.id.clone());
        Ok(())
    }

    async fn carry_held(&mut self, source: Arc<Snapshot>, target: Snapshot, whole: bool) -> Result<()> {
        // Taking the claim has raised it.
        let now = self.to.snapshot(&source.id).await?.ok_or_else(|| Error::not_found("thread", &source.id))?;
        let epoch = now.epoch;
        for missing in source.missing_in(&now)? {
            self.carry_branch(&source, missing, epoch).await?;
        }
        if self.takes_away(&source, &now) {
            self.carry_redactions(&source).await?;
        }
        if !whole {
            return if source.shelf == 3 { self.finish_stub(&source).await } else { Ok(()) };
        }
        self.carry_turns(&source).await?;
        if source.shelf == 3 {
            return self.finish_stub(&source).await;
        }
        // Of a thread that is here as well a bundle brings items alone.
        let stays = self.terms.here != Here::Follows && target.shelf != 3;
        if !stays && source.state != target.state && (target.shelf == 3 || source.has_other_state(&target)) {
            self.carry_state(&source).await?;
        }
        let metadata = match stays {
            true => From::Store(self.to).metadata(&source.id).await?,
            false => {
                let mut metadata = self.from.metadata(&source.id).await?;
                metadata.move_folders(|path| self.terms.moved(path));
                metadata
            }
        };
        let new = source.files.iter().filter(|file| !stays && !target.files.contains(file));
        let files: Vec<FileStamp> = new.cloned().collect();
        let is_foreign = matches!(self.from, From::Rollouts(_)) || self.terms.here != Here::Follows;
        let finish = move |tx: &mut dyn crate::db::Tx| {
            rows::finish(tx, &source, &target, epoch, &metadata)?;
            match is_foreign {
                true => check_thread(&threads::get(tx, Scope::All, &source.id)?),
                false => Ok(()),
            }
        };
        let thread = now.id.clone();
        self.to.inner.db.write(Sync::Written.within(thread.as_str()), finish).await?;
        for file in files {
            self.carry_file(&thread, &file.path).await?;
        }
        Ok(())
    }

    /// Whether content that was taken away there is to be taken away here.
    fn takes_away(&self, source: &Snapshot, target: &Snapshot) -> bool {
        self.terms.here == Here::Follows && source.is_redacted_since(target)
    }

    async fn carry_branch(&mut self, source: &Snapshot, missing: Missing<'_>, epoch: i64) -> Result<()> {
        let branch = Arc::new(missing.branch.clone());
        let (mut next, mut after) = (missing.next, missing.after);
        while next <= branch.tip {
            let page = self.from.items(&source.id, &branch, next, after).await?;
            let Some((behind, hash)) = page.end() else { break };
            (next, after) = (behind, Some(hash));
            let (count, place) = (page.len(), self.to.inner.db.place(page.bytes).await);
            let (thread, origin) = (source.id.clone(), self.from.origin());
            let store = self.to.inner.id;
            let put = move |tx: &mut dyn crate::db::Tx| rows::put_items(tx, store, (&thread, epoch), &page, &origin);
            self.to.inner.db.write_in(place, Sync::Written.within(source.id.as_str()), put).await?;
            self.report.items += count;
        }
        Ok(())
    }

    /// Takes out of the items that were here already what was taken out of them there.
    async fn carry_redactions(&self, source: &Arc<Snapshot>) -> Result<()> {
        let (mut after, store) = (0, self.to.inner.id);
        while let Some(page) = self.from.redactions(&source.id, after).await? {
            after = page.last;
            let thread = source.id.clone();
            let put = move |tx: &mut dyn crate::db::Tx| rows::put_redactions(tx, store, &thread, &page);
            self.to.inner.db.write(Sync::Written, put).await?;
        }
        Ok(())
    }

    async fn carry_turns(&self, source: &Arc<Snapshot>) -> Result<()> {
        let thread = source.id.clone();
        let mut next = self.to.inner.db.read(move |tx| rows::first_turn_to_put(tx, &thread)).await?;
        loop {
            let turns = self.from.turns(source, next).await?;
            let Some(last) = turns.last() else { return Ok(()) };
            next = last.ordinal + 1;
            let thread = source.id.clone();
            let terms = Sync::Written.within(thread.as_str());
            self.to.inner.db.write(terms, move |tx| rows::put_turns(tx, &thread, &turns)).await?;
        }
    }

    /// Puts what stands beside the log of a thread there in the place of what stands here.
    async fn carry_state(&self, source: &Snapshot) -> Result<()> {
        let From::Store(store) = self.from else { return Ok(()) };
        let thread = &source.id;
        let id = thread.clone();
        let rows = Arc::new(store.inner.db.read(move |tx| state::read(tx, &id)).await?);
        let (id, begun) = (thread.clone(), Arc::clone(&rows));
        let terms = || Sync::Written.within(thread.as_str());
        self.to.inner.db.write(terms(), move |tx| state::begin(tx, &id, &begun)).await?;
        let mut after = Vec::new();
        loop {
            let (id, from) = (thread.clone(), after);
            let page = store.inner.db.read(move |tx| state::usage(tx, &id, &from)).await?;
            let Some(last) = state::last_usage(&page) else { break };
            after = last;
            let id = thread.clone();
            self.to.inner.db.write(terms(), move |tx| state::put_usage(tx, &id, &page)).await?;
        }
        for index in 0..rows.checkpoints.len() {
            let (id, from) = (thread.clone(), Arc::clone(&rows));
            let read = move |tx: &mut dyn crate::db::Tx| match from.checkpoints.get(index) {
                Some(row) => state::checkpoint_state(tx, &id, row.digest),
                None => Ok(None),
            };
            // One that was replaced there meanwhile is for the next copy.
            let Some(held) = store.inner.db.read(read).await? else { continue };
            let place = self.to.inner.db.place(held.data.len()).await;
            let (id, rows) = (thread.clone(), Arc::clone(&rows));
            let put = move |tx: &mut dyn crate::db::Tx| match rows.checkpoints.get(index) {
                Some(row) => state::put_checkpoint(tx, &id, row, &held),
                None => Ok(()),
            };
            self.to.inner.db.write_in(place, terms(), put).await?;
        }
        self.carry_documents(store, thread).await?;
        for what in [Steering::Messages, Steering::Requests] {
            self.carry_settled(store, what, thread).await?;
        }
        let id = thread.clone();
        self.to.inner.db.write(terms(), move |tx| state::end(tx, &id)).await?;
        let known = self.workspaces.get(&source.workspace).copied();
        let workspace = known.ok_or_else(|| Error::not_found("workspace", source.workspace))?;
        self.carry_runs(store, thread, workspace).await
    }

    /// Puts the runs of a thread there in the place of those here. What is the same here stays.
    async fn carry_runs(&self, store: &Store, thread: &ThreadId, workspace: WorkspaceId) -> Result<()> {
        let id = thread.clone();
        let there = store.inner.db.read(move |tx| work::runs(tx, &id)).await?;
        let (id, kept) = (thread.clone(), there.clone());
        let keep = move |tx: &mut dyn crate::db::Tx| {
            work::keep_runs(tx, &id, &kept, workspace)?;
            work::runs(tx, &id)
        };
        let here = self.to.inner.db.write(Sync::Written.within(thread.as_str()), keep).await?;
        for run in there.into_iter().filter(|run| !here.contains(run)) {
            self.carry_run(store, run, workspace).await?;
        }
        Ok(())
    }

    /// Carries the runs of no thread.
    async fn loose_runs(&mut self) -> Result<()> {
        let From::Store(store) = self.from else { return Ok(()) };
        let mut after = String::new();
        loop {
            let from = after;
            let page = store.inner.db.read(move |tx| work::runs_of_no_thread(tx, &from)).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = last.id.clone();
            for (run, workspace) in page {
                self.loose_run(store, run, workspace).await?;
            }
        }
    }

    async fn loose_run(&mut self, store: &Store, run: RunStamp, workspace: WorkspaceId) -> Result<()> {
        let workspace = match self.workspaces.get(&workspace) {
            Some(known) => *known,
            None => {
                let info = store.inner.db.read(move |tx| workspaces::get(tx, workspace)).await?;
                self.adopt(workspace, info).await?
            }
        };
        let sought = run.clone();
        match self.to.inner.db.read(move |tx| work::known(tx, &sought, workspace)).await? {
            Known::Same => {}
            Known::Other => self.report.runs_left += 1,
            Known::Earlier => {
                self.carry_run(store, run, workspace).await?;
                self.report.runs += 1;
            }
        }
        Ok(())
    }

    /// Carries a run with what belongs to it.
    async fn carry_run(&self, store: &Store, run: RunStamp, workspace: WorkspaceId) -> Result<()> {
        let sought = run.clone();
        // One that is gone there meanwhile does not come.
        let Some(row) = store.inner.db.read(move |tx| work::run(tx, &sought)).await? else { return Ok(()) };
        let begin = move |tx: &mut dyn crate::db::Tx| work::begin_run(tx, &row, workspace);
        self.to.inner.db.write(Sync::Written, begin).await?;
        for what in [Belonging::Parts, Belonging::Candidates] {
            let mut after = i64::MIN;
            loop {
                let (id, from) = (run.id.clone(), after);
                let page = store.inner.db.read(move |tx| work::belonging(tx, &id, what, from)).await?;
                let Some(page) = page else { break };
                after = page.last;
                let room = self.to.inner.db.place(page.bytes).await;
                let put = move |tx: &mut dyn crate::db::Tx| work::put_belonging(tx, what, &page);
                self.to.inner.db.write_in(room, Sync::Written, put).await?;
            }
        }
        self.to.inner.db.write(Sync::Written, move |tx| work::finish_run(tx, &run)).await
    }

    async fn carry_documents(&self, store: &Store, thread: &ThreadId) -> Result<()> {
        let mut after = VersionPlace::default();
        loop {
            let (id, from) = (thread.clone(), after);
            let page = store.inner.db.read(move |tx| documents::versions(tx, &id, from.clone())).await?;
            let (end, place) = (page.end(), self.to.inner.db.place(page.bytes).await);
            let (id, terms) = (thread.clone(), Sync::Written.within(thread.as_str()));
            let put = move |tx: &mut dyn crate::db::Tx| documents::put_versions(tx, &id, &page);
            self.to.inner.db.write_in(place, terms, put).await?;
            match end {
                None => return Ok(()),
                Some(end) => after = end,
            }
        }
    }

    /// Carries the roadmaps of the workspaces that no thread led to.
    async fn all_roadmaps(&mut self) -> Result<()> {
        let From::Store(store) = self.from else { return Ok(()) };
        for id in store.inner.db.read(documents::workspaces_with_roadmaps).await? {
            if !self.workspaces.contains_key(&id) {
                let info = store.inner.db.read(move |tx| workspaces::get(tx, id)).await?;
                self.adopt(id, info).await?;
            }
        }
        Ok(())
    }

    async fn carry_roadmaps(&mut self, from: WorkspaceId, here: WorkspaceId) -> Result<()> {
        let From::Store(store) = self.from else { return Ok(()) };
        let mut after = String::new();
        loop {
            let last = after.clone();
            let Some(row) = store.inner.db.read(move |tx| documents::roadmap(tx, from, &last)).await? else {
                return Ok(());
            };
            row.id().clone_into(&mut after);
            let put = move |tx: &mut dyn crate::db::Tx| documents::put_roadmap(tx, here, &row);
            self.report.roadmaps += u64::from(self.to.inner.db.write(Sync::Written.free().told(), put).await?);
        }
    }

    /// Carries what is settled of a thread's messages or requests.
    async fn carry_settled(&self, store: &Store, what: Steering, thread: &ThreadId) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let (id, from) = (thread.clone(), after);
            let page = store.inner.db.read(move |tx| steering::page(tx, what, &id, &from)).await?;
            let Some(Owned::Blob(last)) = page.last().and_then(|row| row.first()).cloned() else { return Ok(()) };
            after = last;
            let (id, terms) = (thread.clone(), Sync::Written.within(thread.as_str()));
            self.to.inner.db.write(terms, move |tx| steering::put(tx, what, &id, &page)).await?;
        }
    }

    async fn finish_stub(&self, source: &Arc<Snapshot>) -> Result<()> {
        let (terms, source) = (Sync::Written.within(source.id.as_str()), Arc::clone(source));
        self.to.inner.db.write(terms, move |tx| rows::finish_stub(tx, &source)).await
    }

    /// Carries what the source knows of an imported file. One that is imported at this moment waits for the next copy.
    async fn carry_file(&self, thread: &ThreadId, path: &str) -> Result<()> {
        let From::Store(store) = self.from else { return Ok(()) };
        let path: Arc<str> = path.into();
        let read = |path: &Arc<str>| {
            let path = Arc::clone(path);
            move |tx: &mut dyn crate::db::Tx| sources::file_row(tx, &path)
        };
        let Some(row) = store.inner.db.read(read(&path)).await? else { return Ok(()) };
        let (row, mut after) = (Arc::new(row), -1);
        let begin = (Arc::clone(&path), thread.clone(), Arc::clone(&row));
        self.to.inner.db.write(Sync::Written, move |tx| sources::begin_file(tx, &begin.0, &begin.1, &begin.2)).await?;
        loop {
            let (file, consumed) = (Arc::clone(&path), row.consumed);
            let segments = store.inner.db.read(move |tx| sources::segment_rows(tx, &file, after, consumed)).await?;
            let Some(last) = segments.last() else { break };
            after = last.position;
            let file = Arc::clone(&path);
            self.to.inner.db.write(Sync::Written, move |tx| sources::put_segments(tx, &file, &segments)).await?;
        }
        let is_settled = store.inner.db.read(read(&path)).await?.as_ref() == Some(&*row);
        let thread = thread.clone();
        let end = move |tx: &mut dyn crate::db::Tx| match is_settled {
            true => sources::finish_file(tx, &path, &thread),
            false => sources::drop_file(tx, &path),
        };
        self.to.inner.db.write(Sync::Written, end).await
    }

    async fn workspace(&mut self, thread: &ThreadId, id: WorkspaceId) -> Result<WorkspaceId> {
        if let Some(known) = self.workspaces.get(&id) {
            return Ok(*known);
        }
        let info = self.from.workspace(thread, id).await?;
        self.adopt(id, info).await
    }

    /// Makes a workspace one of here, with its roadmaps: threads that come are linked to them.
    async fn adopt(&mut self, id: WorkspaceId, mut info: WorkspaceInfo) -> Result<WorkspaceId> {
        if let Some(folder) = self.terms.moved_folder(&info) {
            // Its keys of the other machine lead here from now on.
            info.id = self.to.workspace(&folder).await?.info().id;
        }
        let here = self.to.inner.db.write(Sync::Written, move |tx| workspaces::adopt(tx, &info)).await?;
        self.workspaces.insert(id, here);
        // They are the workspace's and not a thread's.
        if self.terms.with_everything {
            self.carry_roadmaps(id, here).await?;
        }
        Ok(here)
    }
}

/// What is wrong with one thread costs that thread alone.
fn concerns_one_thread(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::Conflict { .. }
            | Error::ClaimHeld { .. }
            | Error::ClaimLost { .. }
            | Error::Invalid { .. }
            | Error::Corrupt { .. }
    )
}
