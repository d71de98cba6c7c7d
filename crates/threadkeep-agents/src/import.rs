//! Importing agents' files into a store: incremental, idempotent, and without loss.
//!
//! A file that has not changed costs a look at its size and time. Of a file that has grown only the new part is parsed. A
//! file whose beginning has changed is read again: what is the same is recognised by its place and its bytes, and what
//! differs becomes a branch.

mod files;
mod identity;
mod report;
mod source;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{Error, Result, SourceStamp, ThreadId, ThreadPatch};

use crate::codec::Codec;
use files::Found;
pub use files::{Measure, measure};
pub use report::{FileCounts, ImportReport, ItemCounts, Problem, ThreadCounts, Waiting};
use source::Import;

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
    /// Threads that got items in this run, and whether they are new.
    touched: HashMap<ThreadId, bool>,
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
            touched: HashMap::new(),
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
        let mut found = files::find(paths, !self.options.happened, &mut self.report);
        if found.len() >= STAMPS_FROM {
            self.stamps = Some(self.load_stamps()?);
        }
        self.put_in_order(&mut found)?;
        let bytes_total = found.iter().map(|file| file.size).sum();
        let mut bytes_done = 0;
        for (index, file) in found.iter().enumerate() {
            if self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
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
        self.apply_names(&found)?;
        if self.wrote {
            self.store.sync()?;
        }
        self.report.changed = self.touched.into_keys().collect();
        self.report.changed.sort();
        Ok(self.report)
    }

    /// Puts the files in the order of their last use, so that lists by activity are too. A file's own last time is better
    /// than that of the file system, which copying changes; it is looked for only in files that will be read.
    fn put_in_order(&self, found: &mut [Found]) -> Result<()> {
        let mut times = HashMap::new();
        for file in found.iter() {
            let unchanged = self.stamp(file)?.is_some_and(|stamp| file.is_as(&stamp));
            let time = if unchanged { None } else { files::last_time(&file.path) };
            times.insert(file.path.clone(), time.unwrap_or(file.mtime / 1_000_000));
        }
        found.sort_by(|a, b| (times.get(&a.path), &a.path).cmp(&(times.get(&b.path), &b.path)));
        Ok(())
    }

    /// Imports one file. What is wrong with it is reported; what is wrong with the store is an error.
    fn file(&mut self, file: &Found, all: &[Found]) -> Result<()> {
        if !self.done.insert(file.path.clone()) {
            return Ok(());
        }
        if let Some(stamp) = self.stamp(file)?.filter(|stamp| file.is_as(stamp)) {
            if self.codecs.iter().any(|codec| codec.agent() == stamp.agent) {
                self.report.unchanged(&stamp);
            }
            return Ok(());
        }
        let (head, codec) = match self.recognise(file) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.report.failed(file, &error);
                return Ok(());
            }
        };
        if let Some(parent) = source::continued_session(&*codec, &file.path, &head)
            && let Some(parent) = all.iter().find(|other| other.names(&parent) && other.path != file.path)
        {
            // A fork that holds only what is new stands on its parent's items.
            self.file(parent, all)?;
        }
        let import = Import { store: self.store, codec: &*codec, file, dry_run: self.options.dry_run };
        let outcome = import.run(&mut self.workspaces);
        let nothing_new = matches!(&outcome, Ok(outcome) if outcome.items.imported == 0);
        self.wrote |= !nothing_new && !self.options.dry_run;
        match outcome {
            Ok(outcome) => {
                if let Some(thread) = outcome.thread.clone().filter(|_| outcome.items.imported > 0) {
                    self.touched.insert(thread, outcome.new_thread);
                }
                self.report.add(outcome);
            }
            Err(source::Failure::File(reason)) => self.report.failed(file, &reason),
            Err(source::Failure::Taken(id)) => self.report.failed(file, &format!("its id {id} is taken")),
            Err(source::Failure::Store(error)) if concerns_one_file(&error) => {
                self.report.failed(file, &error.to_string());
            }
            Err(source::Failure::Store(error)) => return Err(error),
        }
        Ok(())
    }

    fn stamp(&self, file: &Found) -> Result<Option<SourceStamp>> {
        if let Some(stamps) = &self.stamps {
            return Ok(stamps.get(&file.key).cloned());
        }
        let source = self.store.source(&file.key)?;
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

    /// The first bytes of a file and the codec that knows it. A file found in a folder that no codec knows is passed over.
    fn recognise(&self, file: &Found) -> Result<Option<Recognised>, String> {
        let head = files::head(&file.path).map_err(|error| error.to_string())?;
        let codec = self.codecs.iter().find(|codec| codec.detect(&file.path, &head));
        if let Some(skip) = self.codecs.iter().find_map(|codec| codec.unsupported(&file.path, &head)) {
            return Err(skip.reason);
        }
        match codec {
            Some(codec) => Ok(Some((head, Arc::clone(codec)))),
            None if file.named => Err("no known agent's session file".to_owned()),
            None => Ok(None),
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
