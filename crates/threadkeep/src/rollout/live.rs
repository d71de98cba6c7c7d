//! The mirror that follows the store: a thread behind the commits, which brings to the files what was committed.
//!
//! A write of the store is never kept waiting by it and never fails because of it. It hears what this store commits, reads the
//! database, and writes files that only hold what survives a power cut. What it has not done yet is known by names up to a
//! bound, and beyond that by the place in the order by update from which threads have to be looked at.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use serde::Serialize;

use super::files::{Entry, Folder};
use super::marks::{self, Mark, Moment, Others};
use super::tail::{self, Barrier, Brought, Known};
use crate::concurrency::thread::{self, JoinHandle};
use crate::concurrency::{Condvar, Mutex, MutexGuard, block_on};
use crate::db::news::{Hear, Touched};
use crate::db::{copy, write_queue};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::log::rows::{self, Listed};
use crate::records;
use crate::seal::Record;
use crate::store::Source;

/// How many names of threads are kept that have changed.
const NAMES_KEPT: usize = 4_096;
/// How much is remembered of files, and of how many.
const KNOWN_FILES: usize = 256;
const KNOWN_BYTES: usize = 256 << 10;
/// Between two rounds it rests at least so long, and at least so many times as long as the last one took: what comes meanwhile
/// is written together, and those who write the store have the machine for themselves.
const REST: Duration = Duration::from_millis(100);
const REST_FACTOR: u32 = 4;
/// So long after something failed it is tried again; twice as long after each further failure, up to a minute.
const RETRY: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 5;
/// The folder is held for so long at a time.
const TURN: Duration = Duration::from_millis(250);
/// How long others that have the folder are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// When the store is closed, what others have left undone is gone on with for so long.
const LAST_LOOK: Duration = Duration::from_secs(1);
const PAGE: i64 = 256;
/// How many problems, and files that were set aside, are remembered.
const TOLD: usize = 100;

/// What is known of the rollouts that are kept while the store is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LiveStatus {
    /// The folder that they are kept in; `None` when none are.
    pub folder: Option<PathBuf>,
    /// Whether everything that this store committed is in them.
    pub is_in_step: bool,
    /// What keeps them from it, for people. It is tried again; no write of the store fails because of it.
    pub problems: Vec<String>,
    /// Files that held what the store does not have, and where they were put.
    pub set_aside: Vec<PathBuf>,
}

/// The mirror of a store. Dropped, it does what there is to do, and ends.
#[derive(Debug)]
pub(crate) struct LiveMirror {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pub(crate) root: PathBuf,
}

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    news: Condvar,
}

/// What there is to do.
#[derive(Debug, Default)]
struct Desk {
    changed: BTreeSet<ThreadId>,
    /// Whether others have changed that were not kept.
    has_overflowed: bool,
    drains: Vec<Drain>,
    is_closing: bool,
    /// Whether the thread sleeps until there is something to do.
    is_asleep: bool,
    /// Whether something was taken from here and is not done.
    is_behind: bool,
    has_ended: bool,
    problems: Vec<String>,
    set_aside: Vec<PathBuf>,
}

/// Somebody who waits until a thread, or everything, was brought to the files.
#[derive(Debug)]
struct Drain {
    thread: Option<ThreadId>,
    done: oneshot::Sender<()>,
}

impl Hear for Shared {
    fn hear(&self, touched: &Touched) {
        // What is no change of one thread (seals, merged projects) is in no rollout, or comes with the next change of each.
        let Touched::Thread(name) = touched else { return };
        let mut desk = self.desk();
        match ThreadId::new(name.as_str()) {
            Ok(thread) if desk.changed.len() < NAMES_KEPT => drop(desk.changed.insert(thread)),
            _ => desk.has_overflowed = true,
        }
        self.wake(desk);
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, if it sleeps. While it rests it finds what has come by itself.
    fn wake(&self, mut desk: MutexGuard<'_, Desk>) {
        let is_asleep = std::mem::take(&mut desk.is_asleep);
        drop(desk);
        if is_asleep {
            self.news.notify_all();
        }
    }
}

impl LiveMirror {
    /// Starts the mirror of a store that is being opened; nothing of it is written through this handle before. Gives what is to
    /// be said if it can't do its work.
    pub(crate) fn start(source: Source, root: PathBuf, holder: String) -> Result<(Self, Option<String>)> {
        let moment = block_on(source.db.read(Moment::now))?;
        let mark = Mark::leave(&root, &*source.host, source.store, moment);
        let notice = mark.as_ref().err().map(|error| told(&root, error));
        let shared = Arc::new(Shared::default());
        shared.desk().problems.extend(notice.clone());
        let hears: std::sync::Weak<dyn Hear> = Arc::downgrade(&(Arc::clone(&shared) as Arc<dyn Hear>));
        source.db.board().tell_too(hears);
        let worker = Worker {
            source,
            root: root.clone(),
            holder,
            shared: Arc::clone(&shared),
            came: moment,
            mark: mark.ok(),
            left: BTreeSet::new(),
            look: Some(Look::default()),
            known: HashMap::new(),
            unsynced: BTreeSet::new(),
            entries: Vec::new(),
            barrier: Barrier::default(),
        };
        let thread = thread::Builder::new().name("threadkeep-rollouts".to_owned()).spawn(move || worker.run());
        let thread = thread.map_err(|error| Error::Backend { detail: format!("no thread for rollouts: {error}") })?;
        Ok((Self { shared, thread: Some(thread), root }, notice))
    }

    /// Waits until what was committed of a thread, or of everything, before this call is in the files, or could not be
    /// written.
    pub(crate) async fn drain(&self, thread: Option<&ThreadId>) {
        let Some(waiting) = self.ask(thread) else { return };
        self.shared.news.notify_all();
        // A thread that has ended has nothing more to do.
        let _ = waiting.await;
    }

    fn ask(&self, thread: Option<&ThreadId>) -> Option<oneshot::Receiver<()>> {
        let (done, waiting) = oneshot::channel();
        let mut desk = self.shared.desk();
        if desk.has_ended {
            return None;
        }
        desk.changed.extend(thread.cloned());
        desk.drains.push(Drain { thread: thread.cloned(), done });
        Some(waiting)
    }

    pub(crate) fn status(&self) -> LiveStatus {
        let desk = self.shared.desk();
        LiveStatus {
            folder: Some(self.root.clone()),
            is_in_step: desk.changed.is_empty() && !desk.has_overflowed && !desk.is_behind && desk.problems.is_empty(),
            problems: desk.problems.clone(),
            set_aside: desk.set_aside.clone(),
        }
    }
}

impl Drop for LiveMirror {
    fn drop(&mut self) {
        self.shared.desk().is_closing = true;
        self.shared.news.notify_all();
        if let Some(thread) = self.thread.take() {
            write_queue::join(thread);
        }
    }
}

fn told(root: &Path, error: &Error) -> String {
    format!("the rollouts in {} can't be written, and lag until they can: {error}", root.display())
}

/// What was taken from the desk.
struct Work {
    changed: BTreeSet<ThreadId>,
    has_overflowed: bool,
    drains: Vec<Drain>,
    is_closing: bool,
}

/// How far the look at threads that others, or earlier programs, have changed has come.
#[derive(Debug, Default)]
struct Look {
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    /// The store when the look began: up to there all is in step when it ends.
    moment: Moment,
    others: Others,
    after: Option<Listed>,
    /// The last purge or redaction on record that was looked at.
    records: i64,
    /// Whether every thread that was looked at could be brought to its file.
    is_whole: bool,
}

/// Does the work, on a thread of its own.
struct Worker {
    source: Source,
    root: PathBuf,
    holder: String,
    shared: Arc<Shared>,
    /// The store when it came.
    came: Moment,
    mark: Option<Mark>,
    /// Threads that could not be brought to their files yet.
    left: BTreeSet<ThreadId>,
    /// A look that is not at its end.
    look: Option<Look>,
    known: HashMap<ThreadId, Known>,
    /// Files whose last lines may be lost in a power cut.
    unsynced: BTreeSet<PathBuf>,
    /// What the index has to be told.
    entries: Vec<Entry>,
    barrier: Barrier,
}

impl Worker {
    fn run(mut self) {
        let (mut rest_until, mut failures) = (Instant::now(), 0_u32);
        loop {
            let work = self.wait(rest_until);
            let (began, is_closing) = (Instant::now(), work.is_closing);
            if is_closing {
                return self.close(work);
            }
            let failed = self.round(work);
            failures = if failed { failures.saturating_add(1) } else { 0 };
            let rest = match failures {
                0 => REST.max(began.elapsed() * REST_FACTOR),
                _ => RETRY * (1 << (failures - 1).min(MOST_DOUBLINGS)),
            };
            rest_until = Instant::now() + rest;
        }
    }

    fn has_more(&self, desk: &Desk) -> bool {
        !desk.changed.is_empty()
            || desk.has_overflowed
            || !self.left.is_empty()
            || self.look.is_some()
            || self.mark.is_none()
    }

    /// Waits until there is something to do, and it has rested; whoever waits for it, and the end, are not kept waiting.
    fn wait(&self, rest_until: Instant) -> Work {
        let shared = Arc::clone(&self.shared);
        let mut desk = shared.desk();
        loop {
            let rest = rest_until.saturating_duration_since(Instant::now());
            let is_urgent = desk.is_closing || !desk.drains.is_empty();
            if is_urgent || (self.has_more(&desk) && rest.is_zero()) {
                desk.is_behind = true;
                return Work {
                    changed: std::mem::take(&mut desk.changed),
                    has_overflowed: std::mem::take(&mut desk.has_overflowed),
                    drains: std::mem::take(&mut desk.drains),
                    is_closing: desk.is_closing,
                };
            }
            desk = if self.has_more(&desk) {
                shared.news.wait_timeout(desk, rest).unwrap_or_else(PoisonError::into_inner).0
            } else {
                desk.is_asleep = true;
                let mut desk = shared.news.wait(desk).unwrap_or_else(PoisonError::into_inner);
                desk.is_asleep = false;
                desk
            };
        }
    }

    /// Brings what has changed to the files; says whether anything went wrong.
    fn round(&mut self, work: Work) -> bool {
        self.left.extend(work.changed);
        if work.has_overflowed {
            self.look_again();
        }
        let mut problems = Vec::new();
        let is_for_all = work.drains.iter().any(|drain| drain.thread.is_none());
        let left: Vec<ThreadId> = work.drains.iter().filter_map(|drain| drain.thread.clone()).collect();
        let mut failed = BTreeSet::new();
        let tried = self.try_round(is_for_all, &left, &mut failed, &mut problems);
        self.left.append(&mut failed);
        problems.extend(tried.err().map(|error| told(&self.root, &error)));
        let failed = !problems.is_empty();
        if !work.drains.is_empty()
            && let Err(error) = self.try_sync_files()
        {
            problems.push(told(&self.root, &error));
        }
        for problem in &problems {
            tracing::warn!(%problem, "a rollout lags");
        }
        let mut desk = self.shared.desk();
        desk.is_behind = !self.left.is_empty() || self.look.is_some();
        problems.truncate(TOLD);
        desk.problems = problems;
        drop(desk);
        // Those who wait have waited for what could be done.
        tell_done(work.drains);
        failed
    }

    /// Brings what is left to the files, and goes on with a look; `ended` are threads that nobody writes any more.
    fn try_round(
        &mut self,
        is_for_all: bool,
        ended: &[ThreadId],
        failed: &mut BTreeSet<ThreadId>,
        problems: &mut Vec<String>,
    ) -> Result<()> {
        if self.mark.is_none() {
            self.mark = Some(Mark::leave(&self.root, &*self.source.host, self.source.store, self.came)?);
        }
        loop {
            let folder = Folder::take_within(&self.root, PATIENCE)?;
            let until = Instant::now() + TURN;
            while let Some(thread) = self.left.pop_first() {
                if let Err(error) = self.bring(&folder, &thread) {
                    failed.insert(thread.clone());
                    if costs_all(&error) {
                        return Err(error);
                    }
                    problems.push(format!("the rollout of {thread} lags: {error}"));
                }
                if Instant::now() >= until {
                    break;
                }
            }
            let is_all_brought = self.left.is_empty();
            if is_all_brought {
                self.look_on(&folder, until, failed, problems)?;
                let ended = ended.iter().filter_map(|thread| self.known.get_mut(thread)?.news());
                self.entries.extend(ended);
            }
            folder.note(&self.entries, &*self.source.host)?;
            self.entries.clear();
            // Others may want the folder.
            drop(folder);
            if is_all_brought && (!is_for_all || self.look.is_none() || !problems.is_empty()) {
                return Ok(());
            }
        }
    }

    fn bring(&mut self, folder: &Folder, thread: &ThreadId) -> Result<()> {
        let known = self.known.remove(thread);
        let brought = block_on(tail::bring(&self.source, folder, thread, known, &mut self.barrier, &self.holder))?;
        self.take(thread, brought)
    }

    /// Remembers what became of a file.
    fn take(&mut self, thread: &ThreadId, brought: Brought) -> Result<()> {
        self.shared.desk().set_aside.extend(brought.aside);
        self.shared.desk().set_aside.truncate(TOLD);
        self.entries.extend(brought.entry);
        if let Some(known) = brought.known {
            if brought.is_unsynced {
                self.unsynced.insert(known.place().to_owned());
            }
            if self.known.len() >= KNOWN_FILES {
                let any = self.known.keys().next().cloned();
                any.and_then(|any| self.known.remove(&any));
            }
            if known.size() <= KNOWN_BYTES {
                self.known.insert(thread.clone(), known);
            }
        }
        if self.unsynced.len() >= KNOWN_FILES { self.try_sync_files() } else { Ok(()) }
    }

    /// Sees to it that all is looked at that changed and was not named.
    fn look_again(&mut self) {
        if let Some(begun) = &mut self.look.get_or_insert_default().begun
            && let Some(after) = &mut begun.after
        {
            // What changed since the look began stands there or behind it.
            after.updated = after.updated.min(begun.moment.updated.saturating_sub(1));
        }
    }

    /// Looks at threads that may have changed without being named here, from the place on up to which all was in step.
    fn look_on(
        &mut self,
        folder: &Folder,
        until: Instant,
        failed: &mut BTreeSet<ThreadId>,
        problems: &mut Vec<String>,
    ) -> Result<()> {
        let Some(look) = &mut self.look else { return Ok(()) };
        let mut begun = match look.begun.take() {
            Some(begun) => begun,
            None => begin_look(&self.source, &self.root, self.mark.as_ref())?,
        };
        let is_over = self.look_at_pages(folder, &mut begun, until, failed, problems)?;
        begun.is_whole &= failed.is_empty();
        if !is_over {
            self.look = Some(Look { begun: Some(begun) });
            return Ok(());
        }
        self.look = None;
        if begun.is_whole { self.conclude(folder, &begun, begun.moment) } else { Ok(()) }
    }

    /// Notes up to where all is in step. Of what those wrote that are gone, the files have what is before it.
    fn conclude(&mut self, folder: &Folder, begun: &Begun, upto: Moment) -> Result<()> {
        self.try_sync_files()?;
        let others = Others::look(&self.root, self.mark.as_ref())?.without_gone(&begun.others);
        marks::note_in_step(folder, &*self.source.host, self.source.store, upto, &others)?;
        begun.others.clear_gone()
    }

    /// Looks at threads, page by page, while there is time; says whether it came to the end.
    fn look_at_pages(
        &mut self,
        folder: &Folder,
        begun: &mut Begun,
        until: Instant,
        failed: &mut BTreeSet<ThreadId>,
        problems: &mut Vec<String>,
    ) -> Result<bool> {
        self.look_at_records(folder, begun)?;
        loop {
            let after = begun.after.clone();
            let page = block_on(self.source.db.read(move |tx| rows::threads(tx, after.as_ref(), PAGE)))?;
            if page.is_empty() {
                return Ok(true);
            }
            for listed in page {
                if let Err(error) = self.bring(folder, &listed.id) {
                    if costs_all(&error) {
                        return Err(error);
                    }
                    problems.push(format!("the rollout of {} lags: {error}", listed.id));
                    failed.insert(listed.id.clone());
                }
                begun.after = Some(listed);
                if Instant::now() >= until {
                    return Ok(false);
                }
            }
        }
    }

    /// Removes the files of threads whose purge was cut short before it could, and writes those anew out of which something was
    /// redacted.
    fn look_at_records(&mut self, folder: &Folder, begun: &mut Begun) -> Result<()> {
        loop {
            let from = begun.records;
            let page = block_on(self.source.db.read(move |tx| {
                let is_there = |tx: &mut dyn crate::db::Tx, record: &Record| match record {
                    Record::Purge(purge) => Ok(rows::snapshot(tx, &purge.thread)?.is_some()),
                    Record::Redaction(_) => Ok(true),
                };
                let page = records::page(tx, from, PAGE)?;
                page.into_iter().map(|record| Ok((is_there(tx, &record)?, record))).collect::<Result<Vec<_>>>()
            }))?;
            let Some((_, last)) = page.last() else { return Ok(()) };
            begun.records = last.number();
            let (mut gone, mut redacted) = (Vec::new(), BTreeSet::new());
            for (is_there, record) in page {
                match record {
                    Record::Purge(purge) if !is_there => gone.push((purge.thread, None)),
                    Record::Purge(_) => {}
                    Record::Redaction(redaction) => drop(redacted.insert(redaction.thread)),
                }
            }
            if !gone.is_empty() {
                block_on(super::forget(&self.source, folder, gone))?;
            }
            for thread in redacted {
                self.known.remove(&thread);
                let brought = block_on(tail::renew(&self.source, folder, &thread, &self.holder))?;
                self.take(&thread, brought)?;
            }
        }
    }

    fn try_sync_files(&mut self) -> Result<()> {
        while let Some(place) = self.unsynced.first() {
            match copy::sync(&self.root.join(place)) {
                // It has moved, and was synced where it is.
                Err(Error::Io { kind: std::io::ErrorKind::NotFound, .. }) => {}
                synced => synced?,
            }
            self.unsynced.pop_first();
        }
        Ok(())
    }

    /// Does what there is to do one last time. What can't be done is left to whoever comes next, by the mark.
    fn close(&mut self, mut work: Work) {
        // What was asked for before is committed and heard when this is done.
        drop(block_on(self.source.sync()));
        let mut desk = self.shared.desk();
        work.changed.append(&mut desk.changed);
        work.has_overflowed |= desk.has_overflowed;
        work.drains.append(&mut desk.drains);
        drop(desk);
        self.left.extend(std::mem::take(&mut work.changed));
        if work.has_overflowed {
            self.look_again();
        }
        if let Err(error) = self.try_close() {
            tracing::warn!(%error, "the rollouts lag, and are brought up by whoever opens the store next");
        }
        tell_done(work.drains);
    }

    fn try_close(&mut self) -> Result<()> {
        let (look, mut failed, mut problems) = (self.look.take(), BTreeSet::new(), Vec::new());
        self.try_round(false, &[], &mut failed, &mut problems)?;
        let is_done = failed.is_empty();
        self.look = look;
        let folder = Folder::take_within(&self.root, PATIENCE)?;
        let looked = self.look_on(&folder, Instant::now() + LAST_LOOK, &mut failed, &mut problems);
        self.entries.extend(self.known.values_mut().filter_map(Known::news));
        folder.note(&std::mem::take(&mut self.entries), &*self.source.host)?;
        self.try_sync_files()?;
        looked?;
        // The next program goes on where this look had to end.
        if let Some(begun) = self.look.take().and_then(|look| look.begun).filter(|begun| begun.is_whole)
            && let Some(updated) = begun.after.as_ref().map(|after| after.updated)
        {
            let upto = begun.moment.earlier(Moment { updated, records: begun.records });
            self.conclude(&folder, &begun, upto)?;
        }
        if !is_done {
            return Ok(());
        }
        self.mark.take().map_or(Ok(()), Mark::remove)
    }
}

impl Drop for Worker {
    /// Nobody waits for a thread that has ended.
    fn drop(&mut self) {
        let mut desk = self.shared.desk();
        desk.has_ended = true;
        desk.drains.clear();
    }
}

/// Those who no longer wait need not be told.
fn tell_done(drains: Vec<Drain>) {
    for drain in drains {
        let _ = drain.done.send(());
    }
}

/// Where a look begins, and what it is worth when it ends.
fn begin_look(source: &Source, root: &Path, own: Option<&Mark>) -> Result<Begun> {
    let others = Others::look(root, own)?;
    let moment = block_on(source.db.read(Moment::now))?;
    let known = marks::in_step(root, source.store);
    // A store that is behind its rollouts was put back: any of them may hold what it has no more.
    let is_older = |from: &Moment| from.updated > moment.updated || from.records > moment.records;
    let from = known.filter(|from| !is_older(from)).unwrap_or(Moment::FIRST);
    let from = others.earliest().map_or(from, |earliest| from.earlier(earliest));
    let before = from.updated.checked_sub(1);
    let after =
        before.map(|updated| Ok::<_, Error>(Listed { id: ThreadId::new("0")?, updated, items: 0 })).transpose()?;
    Ok(Begun { moment, others, after, records: from.records, is_whole: true })
}

/// What goes wrong with one thread costs that thread alone.
fn costs_all(error: &Error) -> bool {
    match error {
        Error::StorageFull { .. } | Error::ReadOnly { .. } | Error::Backend { .. } => true,
        Error::Io { kind, .. } => *kind != std::io::ErrorKind::NotFound,
        _ => false,
    }
}
