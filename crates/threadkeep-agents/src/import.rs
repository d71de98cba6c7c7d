//! Importing agents' files into a store: incremental, idempotent, and without loss.
//!
//! A file that has not changed costs a look at its size and time. Of a file that has grown only the new part is parsed. A
//! file whose beginning has changed is read again: what is the same is recognised by its place and its bytes, and what
//! differs becomes a branch.
//!
//! A session may also be a document that its agent writes anew, many small files, or rows of a database. Such a session is
//! read as a whole when any of it has changed; databases are read in a copy, and each of their sessions is a source of its own, and
//! so is each of those that stand in one text.

mod asides;
mod companions;
mod database;
mod files;
mod flight;
mod identity;
mod masks;
mod packed;
mod places;
mod prefix;
mod report;
mod source;
mod thread;
mod tree;
mod whole;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{Error, Hash, Result, SourceFile, SourceStamp, ThreadId, ThreadPatch};

use crate::codec::{self, Codec, Shape};
use crate::document::Document;
use crate::segments::Segment;
use crate::text;
pub(crate) use asides::state_of_codec;
use asides::{Asides, Lists};
pub use companions::CompanionCounts;
use database::Database;
use files::{Found, Link, Origin};
pub use files::{Measure, measure};
use flight::{Flight, Landed};
use report::Outcome;
pub use report::{FileCounts, ImportReport, ItemCounts, Problem, ThreadCounts, Waiting};
use source::{Done, Failure, Import};

/// How long is waited for another program that is at work on the thread of a file, and in vain for all files together: another
/// import is done with a file after a moment, and a program that works in a thread may do so for hours.
const FILE_PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// From this many files on, what is known of all files is read at once instead of one by one.
const STAMPS_FROM: usize = 16;
const CODEX: &str = "codex";
const STAMPS_PAGE: usize = 5_000;

/// How an import is made.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Only files of this agent.
    pub agent: Option<String>,
    /// Read and report, and write nothing.
    pub dry_run: bool,
    /// Paths are where something happened, and nobody means each of them: one that is gone meanwhile, or that no codec knows,
    /// is passed over.
    pub happened: bool,
    /// Ends the import after the file that is being read, as soon as it is set; what was imported until then stays.
    pub stop: Option<Arc<AtomicBool>>,
}

/// How far an import has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The file that is being read.
    pub file: &'a Path,
    /// Files that are done.
    pub files_done: u64,
    /// Files that were found.
    pub files_total: u64,
    /// Bytes of the files that are done.
    pub bytes_done: u64,
    /// Bytes of all files.
    pub bytes_total: u64,
}

/// Imports files into a store.
#[derive(Debug)]
pub struct Importer<'a> {
    store: &'a Store,
    options: ImportOptions,
    codecs: Vec<Arc<dyn Codec>>,
    workspaces: HashMap<PathBuf, Workspace>,
    stamps: Option<HashMap<String, SourceStamp>>,
    report: ImportReport,
    /// Whether something may have been stored; a file that fails may have been imported in part.
    wrote: bool,
    /// Files that were read in this run, so that a parent that was read early is not read again.
    done: HashSet<PathBuf>,
    /// The databases and texts that were looked through in this run; what is counted of them are sessions without a conversation.
    containers: Vec<SourceFile>,
    /// Threads that got items in this run, and whether they are new.
    touched: HashMap<ThreadId, bool>,
    /// What was sent to the store and not waited for.
    flight: Rc<Flight>,
    /// Lists of sessions that were read.
    lists: Lists,
    /// How much longer is waited in vain for other programs.
    patience: Duration,
}

impl<'a> Importer<'a> {
    /// An importer into this store with all known codecs.
    pub fn new(store: &'a Store, options: ImportOptions) -> Self {
        let mut codecs = crate::codecs();
        if let Some(agent) = &options.agent {
            codecs.retain(|codec| codec.agent() == agent);
        }
        Self {
            store,
            options,
            codecs,
            workspaces: HashMap::new(),
            stamps: None,
            report: ImportReport::default(),
            wrote: false,
            done: HashSet::new(),
            containers: Vec::new(),
            touched: HashMap::new(),
            flight: Rc::default(),
            lists: Lists::default(),
            patience: PATIENCE,
        }
    }

    /// Imports files and everything below folders; tells how far it has come after each file.
    ///
    /// # Errors
    /// Only what keeps the store from being written ends an import: what was imported until then stays. Everything that is
    /// wrong with a file is a problem in the report and costs that file, or that line of it, alone.
    pub fn run(mut self, paths: &[PathBuf], progress: &mut dyn FnMut(Progress<'_>)) -> Result<ImportReport> {
        if self.codecs.is_empty() {
            let agent = self.options.agent.unwrap_or_default();
            let known = crate::codecs().iter().map(|codec| codec.agent()).collect::<Vec<_>>().join(", ");
            let reason = format!("`{agent}` is not known; known are {known}");
            return Err(Error::Invalid { field: "agent", reason });
        }
        let (found, links) = files::find(paths, !self.options.happened, &self.codecs, &mut self.report);
        if found.len() >= STAMPS_FROM {
            self.stamps = Some(self.load_stamps()?);
        }
        self.tell_of(&links)?;
        let mut sessions = Vec::with_capacity(found.len());
        for file in found {
            self.open_up(file, &mut sessions)?;
        }
        let mut found = self.without_twins(sessions)?;
        self.put_in_order(&mut found)?;
        let bytes_total = found.iter().map(|file| file.size).sum();
        let mut bytes_done = 0;
        for (index, file) in found.iter().enumerate() {
            if self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.report.stopped = true;
                break;
            }
            self.file(file, &found)?;
            bytes_done += file.size;
            progress(Progress {
                file: &file.path,
                files_done: index as u64 + 1,
                files_total: found.len() as u64,
                bytes_done,
                bytes_total,
            });
        }
        self.land_all()?;
        self.apply_names(&found)?;
        if !self.report.stopped {
            // Where it was stopped, sessions that it did not come to would be taken for ones that were looked at.
            self.stamp_containers()?;
        }
        if self.wrote {
            self.store.sync()?;
        }
        self.report.changed = self.touched.into_keys().collect();
        self.report.changed.sort();
        Ok(self.report)
    }

    /// Says which links are not followed, unless all that is seen behind them was imported by its own path.
    fn tell_of(&mut self, links: &[Link]) -> Result<()> {
        for link in links {
            let is_known = |path: &PathBuf| Ok(self.stamp(&files::key_of(path))?.is_some());
            let known: Result<Vec<bool>> = link.sessions.iter().map(is_known).collect();
            if !known?.iter().all(|is_known| *is_known) {
                let reason = "it is a link, which is not followed; name it to import the sessions that it leads to";
                self.report.problem(&link.path.display().to_string(), reason);
            }
        }
        Ok(())
    }

    /// Leaves out files of which a database has the session, in this run or an earlier one.
    fn without_twins(&self, sessions: Vec<Found>) -> Result<Vec<Found>> {
        let listed: HashSet<String> = sessions.iter().map(|session| session.key.clone()).collect();
        let mut kept = Vec::with_capacity(sessions.len());
        for file in sessions {
            let other = self.codecs.iter().find_map(|codec| codec.stands_in_for(&file.path)).filter(|_| !file.named);
            let other = other.as_deref().and_then(Path::to_str);
            let is_twin = match other {
                Some(other) => listed.contains(other) || (other.contains(".db#") && self.stamp(other)?.is_some()),
                None => false,
            };
            if !is_twin {
                kept.push(file);
            }
        }
        Ok(kept)
    }

    /// What a file that was found holds: itself, or the sessions of a database that has changed.
    fn open_up(&mut self, mut file: Found, sessions: &mut Vec<Found>) -> Result<()> {
        let shape = |codec: &Arc<dyn Codec>| codec.may_be_session(&file.path).then(|| codec.shape(&file.path, &[]));
        let shapes: Vec<Shape> = self.codecs.iter().filter_map(shape).collect();
        if shapes.contains(&Shape::Database) || (file.named && database::is_database(&file.path)) {
            if database::is_database(&file.path) {
                return self.database(&file, sessions);
            }
            let is_empty = file.size == 0;
            if file.named || !is_empty {
                self.report.failed(&file, "it is no database of SQLite, or it is encrypted");
            }
            return Ok(());
        }
        if let Some(codec) = self.text_codec(&file) {
            return self.text(&file, &codec, sessions);
        }
        if let Some(codec) = self.codecs.iter().find(|codec| codec.shape(&file.path, &[]) == Shape::Tree)
            && codec.may_be_session(&file.path)
        {
            match tree::mark(&**codec, &file.path) {
                Ok(tree::Mark { mark, mtime, size }) => {
                    (file.mark, file.mtime, file.size) = (Some(mark), mtime, size);
                }
                Err(error) => {
                    self.report.failed(&file, &error.to_string());
                    return Ok(());
                }
            }
        }
        sessions.push(file);
        Ok(())
    }

    /// The sessions of a database, each as a source of its own; one that has not changed costs a look.
    fn database(&mut self, file: &Found, sessions: &mut Vec<Found>) -> Result<()> {
        let mark = match database::mark(&file.path) {
            Ok(mark) => mark,
            Err(error) => {
                self.report.failed(file, &error.to_string());
                return Ok(());
            }
        };
        if let Some(source) = self.store.source(&file.key)?
            && (source.size, source.mtime) == (mark.mark, mark.mtime)
        {
            return self.unchanged_container(&source);
        }
        let opened = Database::open(&file.path, &self.codecs);
        let opened = opened.and_then(|opened| {
            let Some(database) = opened else { return Ok(None) };
            let listed = database.sessions()?;
            Ok(Some((Rc::new(database), listed)))
        });
        let (database, listed) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) if file.named => {
                self.report.failed(file, "no known agent's database");
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(reason) => {
                self.report.failed(file, &reason);
                return Ok(());
            }
        };
        let ids: Vec<&str> = listed.iter().map(|session| session.id.as_str()).collect();
        let marks = (mark.mark, mark.mtime);
        self.containers.push(container(database.codec().agent(), &file.key, marks, &ids));
        self.bring_shared(file, &database)?;
        let share = mark.size / (listed.len() as u64).max(1);
        for session in listed {
            let mut path = file.path.as_os_str().to_owned();
            path.push(format!("#{}", session.id));
            sessions.push(Found {
                path: PathBuf::from(path),
                key: session_key(&file.key, &session.id),
                size: share,
                mtime: session.updated.saturating_mul(1_000_000),
                named: true,
                mark: Some(session.mark),
                origin: Origin::Session(database::Session { database: Rc::clone(&database), id: session.id }),
            });
        }
        Ok(())
    }

    /// The codec whose text of many sessions a file is; one with a name of its own is looked into when it was named.
    fn text_codec(&self, file: &Found) -> Option<Arc<dyn Codec>> {
        let is_text = |codec: &&Arc<dyn Codec>| codec.shape(&file.path, &[]) == Shape::Text;
        let mut codecs = self.codecs.iter().filter(is_text);
        let is_its = |codec: &&Arc<dyn Codec>| {
            let is_named = || file.named && files::head(&file.path).is_ok_and(|head| codec.detect(&file.path, &head));
            codec.may_be_session(&file.path) || is_named()
        };
        codecs.find(is_its).cloned()
    }

    /// The sessions of a text, each as a source of its own; one that has not changed costs a look.
    fn text(&mut self, file: &Found, codec: &Arc<dyn Codec>, sessions: &mut Vec<Found>) -> Result<()> {
        if let Some(source) = self.store.source(&file.key)?
            && (source.size, source.mtime) == (file.stored_size(), file.mtime)
        {
            return self.unchanged_container(&source);
        }
        let Some(grammar) = codec.grammar(None) else { return Ok(()) };
        let sections = match files::open(&file.path).and_then(|input| text::sections(input, grammar)) {
            Ok(sections) => sections,
            Err(error) => {
                self.report.failed(file, &error.to_string());
                return Ok(());
            }
        };
        let names: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
        self.containers.push(container(codec.agent(), &file.key, (file.stored_size(), file.mtime), &names));
        for text::Section { name, at, begins, end, hash, is_last } in sections {
            let mut path = file.path.as_os_str().to_owned();
            path.push(format!("#{name}"));
            // What waited at the end of the text no longer does when something stands behind it.
            let hash = blake3::hash(&[hash.as_bytes().as_slice(), &[u8::from(is_last)]].concat());
            let (codec, file_path) = (Arc::clone(codec), file.path.clone());
            sessions.push(Found {
                path: PathBuf::from(path),
                key: session_key(&file.key, &name),
                size: end.saturating_sub(begins.offset),
                mtime: at.map_or(file.mtime, |at| at.millis().saturating_mul(1_000_000)),
                named: true,
                mark: Some(i64::try_from(whole::mark_of(&hash)).unwrap_or(i64::MAX)),
                origin: Origin::Section(files::Section { codec, file: file_path, begins, end, is_last }),
            });
        }
        Ok(())
    }

    /// Brings what belongs to no session of a database.
    fn bring_shared(&mut self, file: &Found, database: &Database) -> Result<()> {
        let (mut shared, mut problems) = (Vec::new(), Vec::new());
        let read = database.shared(&mut |segment| {
            match segment {
                Segment::Record { bytes, .. } => match database.codec().shared(&bytes) {
                    Ok(found) => shared.extend(found),
                    Err(skip) => problems.push(skip.reason),
                },
                Segment::Opaque { reason, .. } => problems.extend(reason),
                Segment::Tail { .. } => {}
            }
            Ok(())
        });
        let folder = file.path.parent().unwrap_or(Path::new(""));
        let brought = match (read, self.options.dry_run) {
            (Ok(()), false) => companions::bring_shared(self.store, folder, &shared),
            (Ok(()), true) => Ok(companions::Brought::default()),
            (Err(failure), _) => Err(failure),
        };
        match brought {
            Ok(brought) => {
                self.wrote |= brought.counts.imported > 0;
                self.report.companions.add(&brought.counts);
                problems.extend(brought.problems);
            }
            Err(Failure::Store(error)) if !concerns_one_file(&error) => return Err(error),
            Err(Failure::Store(error)) => problems.push(error.to_string()),
            Err(Failure::File(reason)) => problems.push(reason),
            Err(Failure::Taken(id)) => problems.push(format!("the id {id} is taken")),
            Err(Failure::Overtaken) => problems.push("another import is at work on it".to_owned()),
        }
        for reason in problems {
            self.report.problem(&file.key, &reason);
        }
        Ok(())
    }

    /// Counts a session of a database that has no conversation with the database: nothing else will say of it that it was read.
    fn note_empty(&mut self, file: &Found, outcome: &Outcome) {
        if outcome.thread.is_none()
            && let Origin::Session(_) = file.origin
            && let Some((path, _)) = file.key.rsplit_once('#')
            && let Some(database) = self.containers.iter_mut().find(|database| database.path == path)
        {
            let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            database.records += count(outcome.items.read);
            database.skipped += count(outcome.items.skipped);
        }
    }

    fn unchanged_container(&mut self, source: &SourceFile) -> Result<()> {
        if !self.codecs.iter().any(|codec| codec.agent() == source.agent) {
            return Ok(());
        }
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        self.report.items.read += count(source.records);
        self.report.items.skipped += count(source.skipped);
        self.report.items.unchanged += count(source.records - source.skipped);
        let ids = String::from_utf8_lossy(&source.state).into_owned();
        for id in ids.split('\0').filter(|id| !id.is_empty()) {
            if let Some(stamp) = self.stamp(&session_key(&source.path, id))? {
                self.report.unchanged(&stamp);
            }
        }
        Ok(())
    }

    /// Notes of each database and text that all of its sessions were looked at; of one with a session that failed it is not true.
    fn stamp_containers(&mut self) -> Result<()> {
        for database in std::mem::take(&mut self.containers).into_iter().filter(|_| !self.options.dry_run) {
            let begins = session_key(&database.path, "");
            let waits = self.report.waiting.iter().any(|waiting| waiting.file.starts_with(&begins));
            if !waits && !self.report.failures.iter().any(|file| file.starts_with(&begins)) {
                self.store.note_container(database)?;
                self.wrote = true;
            }
        }
        Ok(())
    }

    /// Puts the files in the order of their last use, so that lists by activity are too. A file's own last time is better
    /// than that of the file system, which copying changes; it is looked for only in files that will be read.
    fn put_in_order(&self, found: &mut [Found]) -> Result<()> {
        let mut times = HashMap::new();
        for file in found.iter() {
            let unchanged = self.stamp(&file.key)?.is_some_and(|stamp| file.is_as(&stamp));
            // A session of more than one file, or of a part of one, says itself when it was last used.
            let time = if unchanged || file.mark.is_some() { None } else { files::last_time(&file.path) };
            times.insert(file.path.clone(), time.unwrap_or(file.mtime / 1_000_000));
        }
        found.sort_by(|a, b| (times.get(&a.path), &a.path).cmp(&(times.get(&b.path), &b.path)));
        Ok(())
    }

    /// Imports one file, behind those that it goes on from. What is wrong with one is reported; what is wrong with the store is
    /// an error.
    fn file(&mut self, file: &Found, all: &[Found]) -> Result<()> {
        let (mut chain, mut next) = (Vec::new(), Some(file));
        while let Some(file) = next.take() {
            let Some((head, codec)) = self.opened(file)? else { break };
            let shape = Self::shape(&*codec, file, &head);
            if shape == Shape::Lines
                && let Some(parent) = source::continued_session(&*codec, &file.path, &head)
            {
                // A fork that holds only what is new stands on its parent's items.
                next = all.iter().find(|other| other.names(&parent) && other.path != file.path);
            }
            chain.push((file, codec, shape));
        }
        while let Some((file, codec, shape)) = chain.pop() {
            let is_unknown = self.stamps.as_ref().is_some_and(|stamps| !stamps.contains_key(&file.key));
            self.import(file, (&codec, shape), (Vec::new(), is_unknown))?;
            self.take_landed()?;
        }
        Ok(())
    }

    /// The beginning of a file that is to be imported, and whose it is; nothing where that is done or can't be.
    fn opened(&mut self, file: &Found) -> Result<Option<Recognised>> {
        if !self.done.insert(file.path.clone()) {
            return Ok(None);
        }
        if let Some(stamp) = self.stamp(&file.key)?.filter(|stamp| file.is_as(stamp)) {
            if self.codecs.iter().any(|codec| codec.agent() == stamp.agent) {
                self.report.unchanged(&stamp);
            }
            return Ok(None);
        }
        match self.recognise(file) {
            Ok(found) => Ok(found),
            Err(error) => {
                self.land_all()?;
                self.report.failed(file, &error);
                Ok(None)
            }
        }
    }

    /// Imports a file that was recognised. Some ids for its thread may be known to be taken, and the file to be unknown.
    fn import(
        &mut self,
        file: &Found,
        (codec, shape): (&Arc<dyn Codec>, Shape),
        (taken, is_unknown): (Vec<ThreadId>, bool),
    ) -> Result<()> {
        let asides = match &file.origin {
            Origin::Session(session) => session.database.asides(),
            Origin::File | Origin::Section(_) => Rc::new(Asides::read(&**codec, &file.path, &self.lists)),
        };
        let (flight, dry_run) = (Rc::clone(&self.flight), self.options.dry_run);
        let import =
            Import { store: self.store, codec: &**codec, file, shape, dry_run, asides, flight: &flight, is_unknown };
        let mut waited = Duration::ZERO;
        let done = loop {
            match import.run(taken.clone(), &mut self.workspaces) {
                Err(failure) if failure.passes() && self.waits(&mut waited) => {}
                done => break done,
            }
        };
        if done.is_err() {
            self.patience = self.patience.saturating_sub(waited);
        }
        match done {
            Ok(Done::Sent) => {
                self.wrote = true;
                Ok(())
            }
            Ok(Done::Stored(outcome)) => self.stored(file, outcome),
            Err(failure) => self.failed(file, failure),
        }
    }

    /// Waits a little for another program that is at work on a thread; says whether that was worth it. Nothing of this import is in
    /// its way: what was sent before was waited for, and holds no claim.
    fn waits(&self, waited: &mut Duration) -> bool {
        let is_stopped = self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
        let longest = FILE_PATIENCE.min(self.patience);
        if is_stopped || *waited >= longest {
            return false;
        }
        let wait = (*waited).clamp(SHORTEST_WAIT, LONGEST_WAIT).min(longest - *waited);
        std::thread::sleep(wait);
        *waited += wait;
        true
    }

    /// Reports a file of which all is stored, behind those that were sent before.
    fn stored(&mut self, file: &Found, outcome: Outcome) -> Result<()> {
        self.land_all()?;
        self.wrote |= outcome.items.imported > 0 && !self.options.dry_run;
        self.count(file, outcome);
        Ok(())
    }

    /// Reports a file that could not be imported, though it may have been in part.
    fn failed(&mut self, file: &Found, failure: Failure) -> Result<()> {
        self.land_all()?;
        self.wrote |= !self.options.dry_run;
        match failure {
            Failure::File(reason) => self.report.failed(file, &reason),
            Failure::Taken(id) => self.report.failed(file, &format!("its id {id} is taken")),
            Failure::Overtaken => {
                self.report.failed(file, "another import of this file is running or has gone on; import it again");
            }
            Failure::Store(error @ Error::ClaimHeld { .. }) => {
                self.report.failed(file, &format!("{error}; import it again when that has ended"));
            }
            Failure::Store(error) if concerns_one_file(&error) => self.report.failed(file, &error.to_string()),
            Failure::Store(error) => return Err(error),
        }
        Ok(())
    }

    fn count(&mut self, file: &Found, outcome: Outcome) {
        self.note_empty(file, &outcome);
        if let Some(thread) = outcome.thread.clone().filter(|_| outcome.items.imported > 0) {
            self.touched.insert(thread, outcome.new_thread);
        }
        self.report.add(outcome);
    }

    /// Waits for everything that was sent, and reports it.
    fn land_all(&mut self) -> Result<()> {
        // One that needs another id is sent again.
        while self.flight.land() {
            self.take_landed()?;
        }
        self.take_landed()
    }

    /// Reports what was sent and waited for.
    fn take_landed(&mut self) -> Result<()> {
        for Landed { file, thread, mut taken, is_unknown, outcome } in self.flight.landed() {
            let failure = match outcome.map_err(source::refusal) {
                Ok(outcome) => {
                    self.count(&file, outcome);
                    continue;
                }
                Err(failure) => failure,
            };
            match failure {
                // The remains of a purged thread have its id, or another program has stored one meanwhile.
                Failure::Store(Error::AlreadyExists { what: "thread", .. }) if !taken.contains(&thread) => {
                    taken.push(thread);
                    self.import_again(&file, taken)?;
                }
                Failure::Overtaken if is_unknown => self.import_again(&file, taken)?,
                // Another import has gone on with it between the look at the store and the step.
                failure if failure.passes() && self.waits(&mut Duration::default()) => {
                    self.patience = self.patience.saturating_sub(LONGEST_WAIT);
                    self.import_again(&file, taken)?;
                }
                failure => self.failed(&file, failure)?,
            }
        }
        Ok(())
    }

    /// Imports a file of which the store was found to know more than it was asked for.
    fn import_again(&mut self, file: &Found, taken: Vec<ThreadId>) -> Result<()> {
        match self.recognise(file) {
            Ok(Some((head, codec))) => {
                let shape = Self::shape(&*codec, file, &head);
                self.import(file, (&codec, shape), (taken, false))
            }
            Ok(None) => Ok(()),
            Err(error) => {
                self.report.failed(file, &error);
                Ok(())
            }
        }
    }

    fn stamp(&self, key: &str) -> Result<Option<SourceStamp>> {
        if let Some(stamps) = &self.stamps {
            return Ok(stamps.get(key).cloned());
        }
        let source = self.store.source(key)?;
        Ok(source.map(|source| SourceStamp {
            path: source.path,
            size: source.size,
            mtime: source.mtime,
            records: source.records,
            skipped: source.skipped,
            thread: source.thread,
            agent: source.agent,
        }))
    }

    fn load_stamps(&self) -> Result<HashMap<String, SourceStamp>> {
        let mut stamps = HashMap::new();
        let mut after = String::new();
        loop {
            let page = self.store.source_stamps(&after, STAMPS_PAGE)?;
            let Some(last) = page.last() else {
                return Ok(stamps);
            };
            after.clone_from(&last.path);
            stamps.extend(page.into_iter().map(|stamp| (stamp.path.clone(), stamp)));
        }
    }

    fn shape(codec: &dyn Codec, file: &Found, head: &[u8]) -> Shape {
        match file.origin {
            Origin::Session(_) => Shape::Database,
            Origin::Section(_) => Shape::Text,
            Origin::File => match codec.shape(&file.path, head) {
                // From here on the first is the one that is read.
                Shape::FirstOf(first, second) if !holds_records(&file.path, first) => Shape::FirstOf(second, first),
                shape => shape,
            },
        }
    }

    /// The first bytes of a file and the codec that knows it. A file found in a folder that no codec knows is passed over.
    fn recognise(&self, file: &Found) -> Result<Option<Recognised>, String> {
        match &file.origin {
            Origin::Session(session) => return Ok(Some((Vec::new(), Arc::clone(session.database.codec())))),
            Origin::Section(section) => return Ok(Some((Vec::new(), Arc::clone(&section.codec)))),
            Origin::File => {}
        }
        let head = files::head(&file.path).map_err(|error| error.to_string())?;
        let known = |head: &[u8]| self.codecs.iter().find(|codec| codec.detect(&file.path, head)).cloned();
        if let Some(codec) = known(&head) {
            return Ok(Some((head, codec)));
        }
        let may_be_lines = codec::is_lines(&file.path) || head.starts_with(&[0]);
        let mut is_readable = files::has_record(&head);
        if may_be_lines && !is_readable {
            let behind = files::head_behind_damage(&file.path).map_err(|error| error.to_string())?;
            is_readable = behind.is_some();
            let found = behind.and_then(|head| known(&head).map(|codec| (head, codec)));
            if found.is_some() {
                return Ok(found);
            }
        }
        let is_blank = head.iter().all(u8::is_ascii_whitespace);
        let is_its = |agent: &str| self.codecs.iter().any(|codec| codec.agent() == agent);
        match places::keeper(&file.path).filter(|agent| is_its(agent) && !is_blank) {
            _ if file.named => Err("no known agent's session file".to_owned()),
            Some(agent) if may_be_lines && !is_readable => {
                Err(format!("{agent} keeps a session in this file, and no record of it can be read"))
            }
            // Another agent may write such files, too.
            Some(agent) if !crate::codecs().iter().any(|codec| codec.detect(&file.path, &head)) => {
                Err(format!("{agent} keeps a session in this file, and nothing in it is known of its sessions"))
            }
            _ => Ok(None),
        }
    }

    /// Gives Codex threads the names that their index file has for them.
    fn apply_names(&mut self, found: &[Found]) -> Result<()> {
        if self.touched.is_empty() || self.options.dry_run || !self.codecs.iter().any(|codec| codec.agent() == CODEX) {
            return Ok(());
        }
        // Many files lie in few folders.
        let folders: BTreeSet<&Path> = found.iter().filter_map(|file| file.path.parent()).collect();
        let mut indexes: BTreeMap<PathBuf, BTreeMap<String, String>> = BTreeMap::new();
        for folder in folders {
            let mut index = folder.ancestors().take(5).map(|folder| folder.join("session_index.jsonl"));
            let Some(index) = index.find(|index| index.is_file()) else { continue };
            indexes.entry(index).or_insert_with_key(|index| {
                std::fs::read(index).map(|bytes| crate::codex::session_names(&bytes)).unwrap_or_default()
            });
        }
        for (session, name) in indexes.into_values().flatten() {
            let Ok(id) = ThreadId::new(session) else {
                continue;
            };
            let Some(new) = self.touched.get(&id) else {
                continue;
            };
            let title = self.store.get(&id)?.details.title;
            // A title that was given here stays; so the index names what is new or has none.
            if (*new || title.is_none()) && title.as_ref() != Some(&name) && !name.trim().is_empty() {
                self.store.update(&id, ThreadPatch::title(name))?;
            }
        }
        Ok(())
    }
}

/// Whether the array of a document that these keys lead to has an element that can be read.
fn holds_records(file: &Path, path: &'static [&'static str]) -> bool {
    let records = files::open(file).map(|input| Document::new(input, path).map_while(Result::ok));
    records.is_ok_and(|mut segments| segments.any(|segment| matches!(segment, Segment::Record { .. })))
}

/// What is noted of a file of many sessions: what tells that it has not changed, and their names.
fn container(agent: &str, key: &str, (size, mtime): (i64, i64), names: &[&str]) -> SourceFile {
    SourceFile {
        agent: agent.to_owned(),
        path: key.to_owned(),
        thread: None,
        size,
        mtime,
        consumed: 0,
        prefix: Hash(*blake3::hash(&[]).as_bytes()),
        records: 0,
        skipped: 0,
        state: names.join("\0").into_bytes(),
    }
}

/// The name that the store knows a session of a database or of a text by.
fn session_key(database: &str, session: &str) -> String {
    format!("{database}#{session}")
}

/// The first bytes of a file, and the codec that knows them.
type Recognised = (Vec<u8>, Arc<dyn Codec>);

/// Whether an error of the store concerns the file at hand and no other.
fn concerns_one_file(error: &Error) -> bool {
    matches!(
        error,
        Error::ClaimHeld { .. }
            | Error::ClaimLost { .. }
            | Error::NotFound { .. }
            | Error::Archived { .. }
            | Error::AlreadyExists { .. }
            | Error::Conflict { .. }
            | Error::Invalid { .. }
    )
}
