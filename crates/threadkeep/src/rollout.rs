//! Rollouts: threads as files of lines that a person can read, and that a store can be rebuilt from.
//!
//! The database is the one authority; its rollouts may lag and never lead. A file carries the rows of its thread as they are
//! stored, so what comes back from it has the same ids and hashes, and passes the same rule on its way in.

mod files;
mod format;
mod frames;
pub(crate) mod leading;
pub(crate) mod scan;
mod write;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::concurrency::block_on;
use crate::copy::{CopyProblem, CopyProgress, CopyReport, From};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::live::LiveThread;
use crate::store::{Inner, Store, StoreOptions, Threads, on_a_thread};
use crate::thread::{Shelf, Thread};
use crate::time::Timestamp;

use files::{Entry, Folder, Index};
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
    /// Threads that could not be mirrored, and why; their files are as they were.
    pub problems: Vec<CopyProblem>,
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
        let root = default_root(&self.inner)?;
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
        let root = folder.map_or_else(|| default_root(&self.inner), |folder| Ok(folder.to_owned()))?;
        let store = self.clone();
        let run = move || block_on(mirror(&store, &root, threads, &mut progress));
        on_a_thread("threadkeep-mirror", run).await
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
    let folder = Folder::take(root)?;
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
        match write::mirror(&store.inner, &thread, &folder, &mut index).await {
            Ok(Mirrored::Written { items, bytes }) => {
                report.written += 1;
                report.items += items;
                report.bytes += bytes;
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

/// Writes the rollouts of these threads in the store's folder anew, those that are there, and with them the index, so that
/// nothing of an earlier state stays in a file. Gives their number.
pub(crate) async fn renew(threads: &Threads, changed: Vec<ThreadId>) -> Result<u64> {
    let inner = &threads.inner;
    let Some(folder) = to_forget(inner)? else { return Ok(0) };
    let mut index = Index::read(&folder)?;
    let (found, _) = files::walk(&folder.root)?;
    let there: HashSet<ThreadId> = found.iter().filter_map(|file| files::thread_of(file)).collect();
    let mut written = 0;
    for thread in changed.into_iter().filter(|thread| there.contains(thread)) {
        if let Some(known) = index.entries.get(&thread).cloned() {
            index.put(Entry { state: None, ..known });
        }
        if let Mirrored::Written { .. } = write::mirror(inner, &thread, &folder, &mut index).await? {
            written += 1;
        }
    }
    index.compact(&folder, &*inner.host)?;
    Ok(written)
}

/// The folder of the store's rollouts, if there is one, for this process alone.
pub(crate) fn to_forget(inner: &Inner) -> Result<Option<Folder>> {
    match default_root(inner) {
        Ok(root) if std::fs::symlink_metadata(&root).is_ok() => Folder::take(&root).map(Some),
        _ => Ok(None),
    }
}

/// Takes the rollouts of what was purged out of the store's folder, and writes that of the stub that is left anew.
pub(crate) async fn forget(inner: &Inner, folder: &Folder, purged: Vec<(ThreadId, Option<Timestamp>)>) -> Result<()> {
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
        if let Mirrored::Written { .. } = write::mirror(inner, &thread, folder, &mut index).await? {
            tracing::debug!(%thread, "the rollout of what others share was written anew");
        }
    }
    index.save(folder, &*inner.host)
}

fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// What was read of files.
#[derive(Default)]
struct Read {
    rollouts: HashMap<ThreadId, Rollout>,
    order: Vec<ThreadId>,
    report: RebuildReport,
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

fn read_all(from: &Path) -> Result<Read> {
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
    report.carried = store.carry(From::Rollouts(&rollouts), listed.collect(), progress).await?;
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
