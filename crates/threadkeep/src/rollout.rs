//! Rollouts: threads as files of lines that a person can read, and that a store can be rebuilt from.
//!
//! The database is the one authority; its rollouts may lag and never lead. A file carries the rows of its thread as they are
//! stored, so what comes back from it has the same ids and hashes, and passes the same rule on its way in.

pub(crate) mod files;
mod format;
mod frames;
pub(crate) mod leading;
pub(crate) mod live;
pub(crate) mod marks;
pub(crate) mod scan;
pub(crate) mod setting;
mod tail;
mod write;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::concurrency::block_on;
use crate::copy::{CopyProblem, CopyProgress, CopyReport, From, Terms};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::finding::Examination;
use crate::id::ThreadId;
use crate::live::LiveThread;
use crate::store::{Inner, Source, Store, StoreOptions, Threads, on_a_thread};
use crate::thread::{Shelf, Thread};
use crate::time::Timestamp;

use files::{Entry, Folder, Index};
use live::LiveStatus;
use marks::{Moment, Others};
use scan::{LineProblem, Rollout, RolloutReport};
use write::Mirrored;

/// What mirroring did. `threads = written + unchanged + problems`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MirrorReport {
    /// The folder of the rollouts.
    pub folder: PathBuf,
    /// Threads that were looked at, those in the trash included, and stubs whose items others share.
    pub threads: u64,
    /// Files that were written anew.
    pub written: u64,
    /// Threads whose files say what the store says.
    pub unchanged: u64,
    /// Items in the files that were written.
    pub items: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Files of threads that the store does not have. They are left: it may be the store that lost them.
    pub extra: Vec<PathBuf>,
    /// Files that held what the store does not have, and where they were put: it may be the only copy.
    pub set_aside: Vec<PathBuf>,
    /// Threads that could not be mirrored, and why; their files are as they were.
    pub problems: Vec<CopyProblem>,
}

/// What was written anew of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RewrittenRollouts {
    /// Its files, in every folder that this store keeps rollouts in by itself.
    pub files: Vec<PathBuf>,
    /// What was set aside of it at any time, and is as it was.
    pub set_aside: Vec<PathBuf>,
}

/// What rebuilding from rollouts did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// Files that were read.
    pub files: u64,
    /// Files of a thread of which another file holds more; they were left.
    pub superseded: Vec<PathBuf>,
    /// What is in the folder and is no rollout, links included; it was not opened.
    pub left: Vec<PathBuf>,
    /// What became of the threads. `equal` counts those that end with the same hashes in the file and in the store.
    pub carried: CopyReport,
    /// Items that stand on a line that was lost, and so have no place.
    pub unplaced: u64,
    /// Lines of kinds that are not known here.
    pub unknown: u64,
    /// Lines that were lost, and files that could not be read.
    pub problems: Vec<LineProblem>,
}

impl RebuildReport {
    /// Whether everything that the files were written with is in the store.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty() && self.carried.problems.is_empty()
    }
}

impl Store {
    /// Where the rollout of a thread is, whether it was mirrored yet or not.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Unsupported`] for a store that has no folder.
    pub async fn rollout_path(&self, thread: &ThreadId) -> Result<PathBuf> {
        let root = match &self.inner.mirror {
            Some(mirror) => mirror.root.clone(),
            None => default_root(&self.inner)?,
        };
        let thread = self.get(thread).await?;
        let is_archived = matches!(thread.shelf, Shelf::Archived | Shelf::Stub);
        Ok(root.join(files::place_of(&thread.id, thread.created_at, is_archived)))
    }

    /// Brings the rollouts of these threads, or of all, to where the threads stand, in the store's folder or in one that is
    /// given. What is as it should be is not written; what is written is complete and synced when it appears, and holds only
    /// what survives a power cut in the store.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a store on a server or in memory when no folder is given, [`Error::Busy`] while another
    /// program mirrors to the same folder, and what keeps the store or the folder from being used at all.
    pub async fn mirror_rollouts(
        &self,
        folder: Option<&Path>,
        threads: Option<Vec<ThreadId>>,
        mut progress: impl FnMut(CopyProgress) + Send + 'static,
    ) -> Result<MirrorReport> {
        let root = match (folder, &self.inner.mirror) {
            (Some(folder), _) => folder.to_owned(),
            (None, Some(mirror)) => mirror.root.clone(),
            (None, None) => default_root(&self.inner)?,
        };
        let store = self.clone();
        let run = move || block_on(mirror(&store, &root, threads, &mut progress));
        on_a_thread("threadkeep-mirror", run).await
    }

    /// Writes down in the store that every program which opens it from now on keeps its rollouts while it writes: in a folder that
    /// is named, or with `None` in the store's own. Programs that have the store open go on as they began.
    ///
    /// What is in the store already is brought to the files by the next program that opens it, or by
    /// [`Store::mirror_rollouts`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a store on a server or in memory when no folder is named, and as every write.
    pub async fn set_live_rollouts(&self, folder: Option<&Path>) -> Result<()> {
        let folder = match folder {
            None => default_root(&self.inner).map(|_| None)?,
            Some(folder) => Some(std::path::absolute(folder).map_err(|error| Error::io("find", folder, &error))?),
        };
        self.put_setting(Some(folder)).await
    }

    /// Takes back [`Store::set_live_rollouts`]. The files stay.
    ///
    /// # Errors
    /// As every write.
    pub async fn unset_live_rollouts(&self) -> Result<()> {
        self.put_setting(None).await
    }

    async fn put_setting(&self, folder: Option<Option<PathBuf>>) -> Result<()> {
        let put = move |tx: &mut dyn Tx| setting::put(tx, folder.as_ref().map(Option::as_deref));
        self.inner.db.write(Sync::Synced.free().repeatable(), put).await
    }

    /// The folder that the store says rollouts are to be kept in, if they are.
    ///
    /// # Errors
    /// As every read.
    pub async fn live_rollouts_folder(&self) -> Result<Option<PathBuf>> {
        let store = self.inner.folder.clone();
        let read = move |tx: &mut dyn Tx| setting::folder_of(tx, &setting::LiveRollouts::AsStored, store.as_deref());
        self.inner.db.read(read).await
    }

    /// How the rollouts stand that this handle keeps while it writes. A handle that keeps none names no folder.
    pub fn live_rollouts(&self) -> LiveStatus {
        self.inner.mirror.as_ref().map_or_else(LiveStatus::default, live::LiveMirror::status)
    }

    /// Waits until everything that was committed before this call is in the rollouts that are kept, by whomever it was written,
    /// or could not be written there, and says how they stand. Closing the store waits too, but not for what others have
    /// written.
    pub async fn drain_live_rollouts(&self) -> LiveStatus {
        if let Some(mirror) = &self.inner.mirror {
            // Whatever was answered before has been heard when this is answered. If it fails, so does what the mirror does.
            drop(self.inner.sync().await);
            mirror.drain(None).await;
        }
        self.live_rollouts()
    }

    /// Writes the rollouts of a thread anew in their canonical form, whatever is in them, so that nothing stays there that the
    /// store no longer says: those in the store's folder, and where rollouts are kept while the store is written. Where the thread
    /// has none, none is made.
    ///
    /// What was set aside earlier is named and left. Bytes that a file system keeps of a file that was replaced are out of reach.
    ///
    /// # Errors
    /// As [`Store::mirror_rollouts`]; [`Error::NotFound`].
    pub async fn rewrite_rollouts(&self, thread: &ThreadId) -> Result<RewrittenRollouts> {
        let (store, thread) = (self.clone(), self.get(thread).await?.id);
        on_a_thread("threadkeep-mirror", move || block_on(renew(&store, vec![thread]))).await
    }

    /// Puts what the rollouts below a folder, or one rollout, hold into this store: items, branches, turns, metadata and labels.
    /// Imported files and claims are not in rollouts.
    ///
    /// A lost line costs itself and what stands on it; all else is carried and the loss is named. Threads that are here already
    /// get what they lack. Of one file, the files of the threads that it stands on are found by their names in the same folder.
    ///
    /// # Errors
    /// Only what keeps the folder from being read or the store from being written at all; for a single file also
    /// [`Error::Invalid`] when it is no rollout, and [`Error::RolloutTooNew`].
    pub async fn rebuild_from_rollouts(
        &self,
        from: &Path,
        mut progress: impl FnMut(CopyProgress) + Send + 'static,
    ) -> Result<RebuildReport> {
        let (store, from) = (self.clone(), from.to_owned());
        let run = move || {
            let read = read_all(&from)?;
            block_on(rebuild(&store, read, &mut progress))
        };
        on_a_thread("threadkeep-rebuild", run).await
    }

    /// Checks a rollout, or all below a folder, by the files alone: every sum, every digest and every link.
    ///
    /// # Errors
    /// As [`Store::rebuild_from_rollouts`].
    pub async fn verify_rollouts(from: &Path) -> Result<(Vec<RolloutReport>, Vec<LineProblem>)> {
        let from = from.to_owned();
        on_a_thread("threadkeep-verify", move || verify(&from)).await
    }

    /// The thread that a rollout is of: as it is here, or, when it is not here, as the file says.
    ///
    /// # Errors
    /// As [`Store::rebuild_from_rollouts`] for one file; [`Error::Corrupt`] when too much of the file is lost to say.
    pub async fn thread_of_rollout(&self, path: &Path) -> Result<Thread> {
        let file = path.to_owned();
        let id = on_a_thread("threadkeep-rollout", move || scan::identify(&file)).await?;
        match self.get(&id).await {
            Err(Error::NotFound { .. }) => {}
            found => return found,
        }
        let scratch = Self::open(StoreOptions::memory().host(Arc::clone(&self.inner.host))).await?;
        let report = scratch.rebuild_from_rollouts(path, |_| {}).await?;
        match report.carried.problems.into_iter().find(|problem| problem.thread == id) {
            Some(problem) => Err(Error::corrupt(path.display().to_string(), problem.reason)),
            None => scratch.get(&id).await,
        }
    }

    /// Goes on with a thread from its rollout: it is put into this store, unless it is here as far as the file goes, and
    /// claimed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a file of which something is lost: rebuild from it to go on with the rest; and as
    /// [`LiveThread`]s are resumed.
    pub async fn resume_rollout(&self, path: &Path) -> Result<LiveThread> {
        let file = path.to_owned();
        let id = on_a_thread("threadkeep-rollout", move || scan::identify(&file)).await?;
        let report = self.rebuild_from_rollouts(path, |_| {}).await?;
        if let Some(problem) = report.problems.first() {
            let place = format!("line {} of {}", problem.line, problem.file.display());
            return Err(Error::corrupt(place, problem.reason.clone()));
        }
        if let Some(problem) = report.carried.problems.into_iter().find(|problem| problem.thread == id) {
            return Err(Error::corrupt(path.display().to_string(), problem.reason));
        }
        self.resume(&id, false).await
    }
}

fn default_root(inner: &Inner) -> Result<PathBuf> {
    let folder = inner.folder.as_deref().ok_or(Error::Unsupported { operation: "mirror_rollouts" })?;
    Ok(folder.join(files::FOLDER))
}

async fn mirror(
    store: &Store,
    root: &Path,
    threads: Option<Vec<ThreadId>>,
    progress: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<MirrorReport> {
    // Refuses a store that is open for reading only before anything is made.
    store.inner.sync().await?;
    let source = store.inner.source();
    let folder = Folder::take(root)?;
    let is_live = store.live_rollouts_folder().await?.is_some_and(|live| live == root);
    let begun = (Others::look(root, None)?, source.db.read(Moment::now).await?);
    let mut index = Index::read(&folder)?;
    let mut report = MirrorReport { folder: root.to_owned(), ..MirrorReport::default() };
    let is_all = threads.is_none();
    let threads = match threads {
        Some(threads) => threads,
        None => every_thread(store).await?,
    };
    let total = threads.len() as u64;
    let mut seen = HashSet::new();
    for thread in threads {
        report.threads += 1;
        match write::mirror(&source, &thread, &folder, &mut index, false).await {
            Ok(Mirrored::Written { items, bytes, aside }) => {
                report.written += 1;
                report.items += items;
                report.bytes += bytes;
                report.set_aside.extend(aside);
            }
            Ok(Mirrored::Unchanged) => report.unchanged += 1,
            Ok(Mirrored::Gone) => report.threads -= 1,
            Err(error) if costs_everything(&error) => {
                index.save(&folder, &*store.inner.host)?;
                return Err(error);
            }
            Err(error) => {
                let (kind, reason) = (error.kind(), error.to_string());
                report.problems.push(CopyProblem { thread: thread.clone(), kind, reason });
            }
        }
        seen.insert(thread);
        let done = report.threads;
        progress(CopyProgress { threads_done: done, threads_total: total, items_done: report.items, items_total: 0 });
    }
    index.save(&folder, &*store.inner.host)?;
    if is_all {
        let (found, _) = files::walk(root)?;
        let is_extra = |path: &PathBuf| files::thread_of(path).is_none_or(|thread| !seen.contains(&thread));
        report.extra = found.into_iter().filter(is_extra).collect();
    }
    if is_all && is_live && report.problems.is_empty() {
        let (others, moment) = begun;
        let now = Others::look(root, None)?.without_gone(&others);
        marks::note_in_step(&folder, &*source.host, source.store, moment, &now)?;
        others.clear_gone()?;
    }
    Ok(report)
}

/// What goes wrong with one thread costs that thread alone.
fn costs_everything(error: &Error) -> bool {
    matches!(error, Error::StorageFull { .. } | Error::ReadOnly { .. } | Error::Busy { .. } | Error::Backend { .. })
}

/// All threads, and the stubs that they stand on.
async fn every_thread(store: &Store) -> Result<Vec<ThreadId>> {
    let mut threads: Vec<ThreadId> = store.all_threads().await?.into_iter().map(|thread| thread.id).collect();
    let mut after = String::new();
    loop {
        let from = after.clone();
        let page = store.inner.db.read(move |tx| crate::log::verify::stubs(tx, &from, 1_000)).await?;
        let Some(last) = page.last() else { return Ok(threads) };
        last.as_str().clone_into(&mut after);
        threads.extend(page);
    }
}

/// The folder that rollouts are kept in while the store is written, by this handle or by what the store says.
async fn live_root(inner: &Inner) -> Result<Option<PathBuf>> {
    if let Some(mirror) = &inner.mirror {
        return Ok(Some(mirror.root.clone()));
    }
    let store = inner.folder.clone();
    let read = move |tx: &mut dyn Tx| setting::folder_of(tx, &setting::LiveRollouts::AsStored, store.as_deref());
    inner.db.read(read).await
}

/// The folders that this store keeps rollouts in by itself, as far as they are there, each for this process alone.
pub(crate) async fn own_folders(inner: &Inner) -> Result<Vec<Folder>> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for root in default_root(inner).ok().into_iter().chain(live_root(inner).await?) {
        let Ok(real) = root.canonicalize() else { continue };
        if std::fs::symlink_metadata(&root).is_ok_and(|found| found.is_dir()) && !roots.contains(&real) {
            roots.push(real);
        }
    }
    roots.iter().map(|root| Folder::take(root)).collect()
}

/// Takes the rollouts of what was purged out of a folder, and writes that of the stub that is left anew.
pub(crate) async fn forget(source: &Source, folder: &Folder, purged: Vec<(ThreadId, Option<Timestamp>)>) -> Result<()> {
    let mut index = Index::read(folder)?;
    for (thread, created_at) in purged {
        let known = index.entries.get(&thread).cloned();
        let day = created_at.map(|at| files::place_of(&thread, at, false));
        let archived = files::place_of(&thread, Timestamp(0), true);
        let noted = known.as_ref().and_then(|known| known.file.clone());
        let noted = noted.filter(|file| files::thread_of(file).as_ref() == Some(&thread) && is_below(file));
        for place in [day, Some(archived), noted].into_iter().flatten() {
            folder.remove(&place)?;
        }
        if let Some(known) = known {
            index.put(Entry { name: String::new(), file: None, bytes: 0, state: None, ..known });
        }
        if let Mirrored::Written { .. } = write::mirror(source, &thread, folder, &mut index, true).await? {
            tracing::debug!(%thread, "the rollout of what others share was written anew");
        }
    }
    index.save(folder, &*source.host)?;
    // The greatest place in the order may have gone with a thread.
    match marks::in_step(&folder.root, source.store) {
        None => Ok(()),
        Some(known) => {
            let now = source.db.read(Moment::now).await?;
            let known = Moment { updated: known.updated.min(now.updated), ..known };
            marks::note_in_step(folder, &*source.host, source.store, known, &Others::default())
        }
    }
}

/// Writes the rollouts of these threads anew, those that are there, in every folder that this store keeps rollouts in by itself,
/// and with them the indexes, so that nothing of an earlier state stays in a file.
pub(crate) async fn renew(threads: &Threads, changed: Vec<ThreadId>) -> Result<RewrittenRollouts> {
    let inner = &threads.inner;
    let (source, mut rewritten) = (inner.source(), RewrittenRollouts::default());
    for folder in own_folders(inner).await? {
        let mut index = Index::read(&folder)?;
        let (found, _) = files::walk(&folder.root)?;
        let there: HashSet<ThreadId> = found.iter().filter_map(|file| files::thread_of(file)).collect();
        for thread in &changed {
            rewritten.set_aside.extend(files::set_aside(&folder.root, thread));
            if !there.contains(thread) {
                continue;
            }
            if let Mirrored::Written { .. } = write::mirror(&source, thread, &folder, &mut index, true).await? {
                let place = index.entries.get(thread).and_then(|entry| entry.file.clone());
                rewritten.files.extend(place.map(|place| folder.root.join(place)));
            }
        }
        index.compact(&folder, &*inner.host)?;
    }
    Ok(rewritten)
}

/// Says what is wrong with the rollouts that a store keeps by itself.
pub(crate) fn look(found: &mut Examination, tx: &mut dyn Tx, folder: Option<&Path>) -> Result<()> {
    let live = setting::folder_of(tx, &setting::LiveRollouts::AsStored, folder)?;
    found.fact("rollouts_live", live.as_ref().map(|root| root.display().to_string()));
    let default = folder.map(|folder| folder.join(files::FOLDER)).filter(|default| live.as_ref() != Some(default));
    for root in live.iter().chain(&default).filter(|root| std::fs::symlink_metadata(root).is_ok()) {
        let aside = files::walk(&root.join(files::ASIDE)).map(|(files, _)| files).unwrap_or_default();
        for file in aside {
            let what =
                "it holds items of its thread that the store does not have: an older copy was put in the store's place";
            let way_out = "look at it with `threadkeep show FILE`; bring it into another store with `threadkeep rollout rebuild --from FILE`; remove it when it is not needed";
            found.warn("rollout-set-aside", file.display().to_string(), (what.to_owned(), way_out));
        }
    }
    let Some(root) = live else { return Ok(()) };
    let place = root.display().to_string();
    if std::fs::symlink_metadata(&root).is_ok() && rustix::fs::access(&root, rustix::fs::Access::WRITE_OK).is_err() {
        let what = "rollouts are to be kept here, and it can't be written".to_owned();
        found.warn(
            "rollouts-unwritable",
            place,
            (what, "give back the right to write it, or `threadkeep rollout live off`"),
        );
        return Ok(());
    }
    let gone = Others::look(&root, None).map_or(0, |others| others.count_gone());
    if gone > 0 {
        let what = format!("{gone} programs ended before what they wrote was in the rollouts");
        found.note(
            "rollouts-lag",
            place,
            (what, "nothing has to be done: whoever writes the store next brings them up"),
        );
    }
    Ok(())
}

fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// What was read of files.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) rollouts: HashMap<ThreadId, Rollout>,
    order: Vec<ThreadId>,
    pub(crate) report: RebuildReport,
}

impl Read {
    fn file(&mut self, path: &Path) -> Result<()> {
        self.report.files += 1;
        let rollout = match Rollout::read(path) {
            Ok(rollout) => rollout,
            Err(error) => {
                let (file, reason) = (path.to_owned(), error.to_string());
                self.report.problems.push(LineProblem { file, line: 0, reason });
                return Err(error);
            }
        };
        let id = rollout.report.thread.clone();
        let weight = |rollout: &Rollout| (rollout.report.items, rollout.metadata.number("version"));
        match self.rollouts.get(&id) {
            Some(known) if weight(known) >= weight(&rollout) => self.report.superseded.push(path.to_owned()),
            known => {
                match known {
                    Some(known) => self.report.superseded.push(known.report.file.clone()),
                    None => self.order.push(id.clone()),
                }
                self.rollouts.insert(id, rollout);
            }
        }
        Ok(())
    }
}

/// Reads all rollouts below a folder, or one with those that it stands on.
pub(crate) fn read_all(from: &Path) -> Result<Read> {
    let mut read = Read::default();
    if is_folder(from)? {
        let (found, left) = files::walk(from)?;
        read.report.left = left;
        for file in found {
            // What a file can't give is in the report.
            drop(read.file(&file));
        }
        return Ok(read);
    }
    read.file(from)?;
    read_ancestors(from, &mut read)?;
    Ok(read)
}

/// Reads the files of the threads that a single file stands on, where they are beside it.
fn read_ancestors(from: &Path, read: &mut Read) -> Result<()> {
    let mut wanted: BTreeSet<ThreadId> = ancestors(read, None);
    let Some(root) = files::root_of(from).filter(|_| !wanted.is_empty()) else { return Ok(()) };
    let (found, _) = files::walk(&root)?;
    while let Some(thread) = wanted.pop_first() {
        for file in found.iter().filter(|file| files::thread_of(file).as_ref() == Some(&thread)) {
            drop(read.file(file));
        }
        wanted.extend(ancestors(read, Some(&thread)));
    }
    Ok(())
}

/// The threads that others stand on and that were not read.
fn ancestors(read: &Read, of: Option<&ThreadId>) -> BTreeSet<ThreadId> {
    let rollouts = read.rollouts.values().filter(|rollout| of.is_none_or(|of| rollout.report.thread == *of));
    let all = rollouts.flat_map(|rollout| rollout.snapshot.ancestors.iter());
    all.filter(|thread| !read.rollouts.contains_key(*thread)).cloned().collect()
}

fn is_folder(path: &Path) -> Result<bool> {
    // The links on the way to what the user names are the user's.
    std::fs::metadata(path).map(|meta| meta.is_dir()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("rollout", path.display()),
        _ => Error::io("look at", path, &error),
    })
}

async fn rebuild(store: &Store, read: Read, progress: &mut (dyn FnMut(CopyProgress) + Send)) -> Result<RebuildReport> {
    let Read { rollouts, mut order, mut report } = read;
    // No tick of another store says anything here: the order of the last changes is the one by their time.
    order.sort_by_cached_key(|thread| {
        let changed = rollouts.get(thread).and_then(|rollout| rollout.metadata.number("updated_at"));
        (changed, thread.clone())
    });
    let listed = order.into_iter().filter_map(|thread| {
        let rollout = rollouts.get(&thread)?;
        // A stub comes with those who share its items.
        (rollout.metadata.shelf().ok()? != Shelf::Stub).then_some((thread, rollout.report.items))
    });
    report.carried = store.carry(From::Rollouts(&rollouts), &Terms::copy(), listed.collect(), progress).await?;
    let mut read: Vec<&RolloutReport> = rollouts.values().map(|rollout| &rollout.report).collect();
    read.sort_by_key(|of| &of.file);
    for of in read {
        report.unplaced += of.unplaced;
        report.unknown += of.unknown;
        report.problems.extend(of.problems.iter().cloned());
    }
    Ok(report)
}

fn verify(from: &Path) -> Result<(Vec<RolloutReport>, Vec<LineProblem>)> {
    if !is_folder(from)? {
        return Ok((vec![Rollout::read(from)?.report], Vec::new()));
    }
    let (found, left) = files::walk(from)?;
    let unreadable = |file: PathBuf, reason: String| LineProblem { file, line: 0, reason };
    let mut problems: Vec<LineProblem> = left
        .into_iter()
        .map(|file| unreadable(file, "it is no rollout, or a link; it was not opened".to_owned()))
        .collect();
    let mut reports = Vec::new();
    for file in found {
        match Rollout::read(&file) {
            Ok(rollout) => reports.push(rollout.report),
            Err(error) => problems.push(unreadable(file, error.to_string())),
        }
    }
    Ok((reports, problems))
}
