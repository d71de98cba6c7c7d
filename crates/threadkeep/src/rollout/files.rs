//! Where rollouts are, and how their files are made: for nobody else, under their names only when they are complete, and never
//! through a link.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::frames::FrameWriter;
use super::scan::Lines;
use crate::concurrency::thread;
use crate::db::copy;
use crate::db::sqlite;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::ThreadId;
use crate::item::Hash;
use crate::log::append::mint_uuid;
use crate::time::Timestamp;

/// The folder of the rollouts in a store's folder.
pub(crate) const FOLDER: &str = "rollouts";
const ARCHIVED: &str = "archived";
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = ".jsonl.zst";
pub(crate) const INDEX: &str = "session_index.jsonl";
const LOCK: &str = ".lock";
const TEMPORARY: &str = ".threadkeep-";
/// The folder of files that hold what the store does not have, in the folder of the rollouts.
pub(crate) const ASIDE: &str = "set-aside";
/// How long whoever has the folder is waited for, and how often is looked.
const PATIENCE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(5);
/// Whenever the index has grown by so many bytes, it is looked whether most of it no longer counts.
const INDEX_STEP: u64 = 1 << 20;
/// The index is written anew when it has so many lines beside twice those that count.
const SPARE_LINES: usize = 256;
/// The depth of folders below a folder of rollouts that are looked into, and how many files of one are taken.
const MAX_DEPTH: usize = 8;

/// Where the rollout of a thread is, below the folder of the rollouts.
pub(crate) fn place_of(thread: &ThreadId, created_at: Timestamp, is_archived: bool) -> PathBuf {
    if is_archived {
        return Path::new(ARCHIVED).join(format!("{thread}{COMPRESSED}"));
    }
    let day = jiff::Timestamp::from_millisecond(created_at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let day = jiff::tz::Offset::UTC.to_datetime(day);
    // A year before or beyond four digits has a folder like any other.
    PathBuf::from(format!("{:04}/{:02}/{:02}/{thread}{PLAIN}", day.year(), day.month(), day.day()))
}

/// The thread that a file is named after.
pub(crate) fn thread_of(path: &Path) -> Option<ThreadId> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_suffix(COMPRESSED).or_else(|| name.strip_suffix(PLAIN))?;
    ThreadId::new(id).ok()
}

pub(crate) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// Opens a regular file for reading, never through a link.
pub(crate) fn open(path: &Path) -> Result<File> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Error::not_found("rollout", path.display()),
        _ => Error::io("open", path, &error),
    };
    let file = sqlite::open_to_look(path).map_err(failed)?;
    match file.metadata().map_err(failed)?.is_file() {
        true => Ok(file),
        false => Err(Error::invalid("rollout", format!("{} is no file", path.display()))),
    }
}

/// The folder of rollouts that a file is in, by its place in it.
pub(crate) fn root_of(file: &Path) -> Option<PathBuf> {
    let folder = file.parent()?;
    let is_number = |path: &Path, digits: usize| {
        path.file_name()
            .is_some_and(|name| name.len() == digits && name.to_string_lossy().bytes().all(|it| it.is_ascii_digit()))
    };
    if folder.file_name()? == ARCHIVED {
        return folder.parent().map(Path::to_owned);
    }
    if folder.parent()?.file_name()? == ASIDE {
        return folder.parent()?.parent().map(Path::to_owned);
    }
    let (month, year) = (folder.parent()?, folder.parent()?.parent()?);
    let is_dated = is_number(folder, 2) && is_number(month, 2) && is_number(year, 4);
    is_dated.then(|| year.parent().map(Path::to_owned)).flatten()
}

/// The rollouts below a folder, by name; links and whatever is no file are left, and named. What was set aside is not among
/// them.
pub(crate) fn walk(root: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut left) = (Vec::new(), Vec::new());
    let mut waiting = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        let failed = |error: std::io::Error| Error::io("read", &folder, &error);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') || name == INDEX || (depth == 0 && name == ASIDE) {
                continue;
            }
            if kind.is_dir() && depth < MAX_DEPTH {
                waiting.push((path, depth + 1));
            } else if kind.is_file() && (name.ends_with(PLAIN) || name.ends_with(COMPRESSED)) {
                files.push(path);
            } else {
                left.push(path);
            }
        }
    }
    files.sort_unstable();
    left.sort_unstable();
    Ok((files, left))
}

/// What was set aside of a thread.
pub(crate) fn set_aside(root: &Path, thread: &ThreadId) -> Vec<PathBuf> {
    let found = walk(&root.join(ASIDE)).map(|(files, _)| files).unwrap_or_default();
    found.into_iter().filter(|file| thread_of(file).as_ref() == Some(thread)).collect()
}

/// A folder of rollouts that this process alone writes for as long as this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) root: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, made where it is missing, and clears away what a run that was cut off has left. Others that have it
    /// are waited for a while.
    pub(crate) fn take(root: &Path) -> Result<Self> {
        Self::take_within(root, PATIENCE)
    }

    /// As [`Folder::take`], waiting for so long.
    pub(crate) fn take_within(root: &Path, patience: Duration) -> Result<Self> {
        sqlite::create_own_folder(root)?;
        let path = root.join(LOCK);
        let lock = sqlite::open_private(&path)?;
        let until = Instant::now() + patience;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(GLANCE),
                Err(TryLockError::WouldBlock) => {
                    let detail = format!("another program is writing the rollouts in {}", root.display());
                    return Err(Error::Busy { detail });
                }
                // Where locks do not exist every file is still complete when it appears.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => break,
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path, &error)),
            }
        }
        let folder = Self { root: root.to_owned(), _lock: lock };
        folder.clear_away()?;
        Ok(folder)
    }

    fn clear_away(&self) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("read", &self.root, &error);
        for entry in std::fs::read_dir(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// A new file that nobody else can read, and that is gone unless it gets its name.
    pub(crate) fn begin(&self, place: &Path, host: &dyn Host) -> Result<NewFile> {
        let path = self.root.join(format!("{TEMPORARY}{}", mint_uuid(host, host.now())));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = BufWriter::with_capacity(1 << 16, file.map_err(|error| Error::io("create", &path, &error))?);
        let output = match is_compressed(place) {
            false => Output::Plain(file),
            true => Output::Compressed(FrameWriter::new(file).map_err(|error| Error::io("compress", &path, &error))?),
        };
        Ok(NewFile { path, output: Some(output) })
    }

    /// Lets a complete file appear under its name, in place of what was there.
    pub(crate) fn publish(&self, file: &NewFile, place: &Path) -> Result<u64> {
        let target = self.root.join(place);
        let mut folder = self.root.clone();
        for part in place.parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            sqlite::create_own_folder(&folder)?;
        }
        std::fs::rename(&file.path, &target).map_err(|error| Error::io("rename", &file.path, &error))?;
        copy::sync(&folder)?;
        copy::sync(&self.root)?;
        let bytes = std::fs::symlink_metadata(&target).map_err(|error| Error::io("look at", &target, &error))?.len();
        Ok(bytes)
    }

    /// Puts a rollout where nobody replaces or reads it unasked; says where.
    pub(crate) fn put_aside(&self, place: &Path, host: &dyn Host) -> Result<PathBuf> {
        let name = place.file_name().ok_or_else(|| Error::not_found("rollout", place.display()))?;
        let aside = self.root.join(ASIDE);
        sqlite::create_own_folder(&aside)?;
        let folder = aside.join(mint_uuid(host, host.now()).to_string());
        sqlite::create_own_folder(&folder)?;
        let (from, to) = (self.root.join(place), folder.join(name));
        std::fs::rename(&from, &to).map_err(|error| Error::io("rename", &from, &error))?;
        for changed in [&folder, &aside, &self.root] {
            copy::sync(changed)?;
        }
        copy::sync(from.parent().unwrap_or(&self.root))?;
        Ok(to)
    }

    /// Notes behind the index what is true of threads from now on, without reading it; now and then it is written anew.
    pub(crate) fn note(&self, entries: &[Entry], host: &dyn Host) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let path = self.root.join(INDEX);
        sqlite::create_file(&path)?;
        let mut file = sqlite::open_private(&path)?;
        let failed = |error: std::io::Error| Error::io("write", &path, &error);
        let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut bytes = Vec::new();
        if length > 0 && !ends_a_line(&mut file).map_err(failed)? {
            bytes.push(b'\n');
        }
        for entry in entries {
            drop(serde_json::to_writer(&mut bytes, entry));
            bytes.push(b'\n');
        }
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        // A line that is cut is passed over, and the next one begins anew.
        file.write_all(&bytes).map_err(failed)?;
        drop(file);
        if length / INDEX_STEP == (length + bytes.len() as u64) / INDEX_STEP {
            return Ok(());
        }
        let mut index = Index::read(self)?;
        if index.is_mostly_old() { index.compact(self, host) } else { Ok(()) }
    }

    /// Removes a rollout, if it is there.
    pub(crate) fn remove(&self, place: &Path) -> Result<bool> {
        let path = self.root.join(place);
        let is_there = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file());
        if is_there {
            remove(&path)?;
            copy::sync(path.parent().unwrap_or(&self.root))?;
        }
        Ok(is_there)
    }
}

/// Whether the last byte before the end of a file is a line feed.
fn ends_a_line(file: &mut File) -> std::io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path, &error)),
        _ => Ok(()),
    }
}

/// A file on its way to its name.
pub(crate) struct NewFile {
    path: PathBuf,
    output: Option<Output>,
}

enum Output {
    Plain(BufWriter<File>),
    Compressed(FrameWriter),
}

impl NewFile {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match &mut self.output {
            Some(Output::Plain(output)) => output.write_all(bytes),
            Some(Output::Compressed(output)) => output.write_all(bytes),
            None => Ok(()),
        };
        written.map_err(|error| Error::io("write", &self.path, &error))
    }

    /// Makes what was written survive a power cut.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("sync", &self.path, &error);
        let file = match self.output.take() {
            None => return Ok(()),
            Some(Output::Plain(output)) => output,
            Some(Output::Compressed(output)) => output.finish().map_err(failed)?,
        };
        file.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Once it has its name nothing is here.
        drop(std::fs::remove_file(&self.path));
    }
}

/// What the index says of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: ThreadId,
    pub(crate) name: String,
    pub(crate) updated_at: String,
    /// Where its rollout is; nothing once it is removed.
    pub(crate) file: Option<PathBuf>,
    /// The size of that file, and the hash of its first and last line.
    pub(crate) bytes: u64,
    pub(crate) state: Option<Hash>,
}

/// The names of the threads and the places of their files: lines of which the last one of a thread counts.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    pub(crate) entries: HashMap<ThreadId, Entry>,
    lines: usize,
    fresh: Vec<u8>,
    /// Whether the last line lacks its end.
    is_torn: bool,
    /// Whether a former line has a name that its thread no longer has: it may have been taken away on purpose.
    has_former_names: bool,
}

impl Index {
    /// Reads the index; lines that can't be read are passed over.
    pub(crate) fn read(folder: &Folder) -> Result<Self> {
        let path = folder.root.join(INDEX);
        let mut index = Self {
            path,
            entries: HashMap::new(),
            lines: 0,
            fresh: Vec::new(),
            is_torn: false,
            has_former_names: false,
        };
        let mut lines = match Lines::open(&index.path) {
            Err(Error::NotFound { .. }) => return Ok(index),
            lines => lines?,
        };
        let mut bytes = Vec::new();
        while let Some(line) = lines.next(&mut bytes)? {
            index.lines += 1;
            index.is_torn = !line.is_ended;
            if let Ok(entry) = serde_json::from_slice::<Entry>(&bytes) {
                index.entries.insert(entry.id.clone(), entry);
            }
        }
        Ok(index)
    }

    /// Notes what is true of a thread from now on.
    pub(crate) fn put(&mut self, entry: Entry) {
        if self.entries.get(&entry.id) == Some(&entry) {
            return;
        }
        self.has_former_names |= self.entries.get(&entry.id).is_some_and(|former| former.name != entry.name);
        drop(serde_json::to_writer(&mut self.fresh, &entry));
        self.fresh.push(b'\n');
        self.lines += 1;
        self.entries.insert(entry.id.clone(), entry);
    }

    /// Writes what was noted: behind what is there, or everything anew when most of that no longer counts.
    pub(crate) fn save(&mut self, folder: &Folder, host: &dyn Host) -> Result<()> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        if self.has_former_names || self.is_mostly_old() {
            return self.compact(folder, host);
        }
        let failed = |error: std::io::Error| Error::io("write", &self.path, &error);
        sqlite::create_file(&self.path)?;
        let mut file = sqlite::open_private(&self.path)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut bytes = std::mem::take(&mut self.fresh);
        if self.is_torn {
            bytes.insert(0, b'\n');
        }
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        self.is_torn = false;
        copy::sync(&folder.root)
    }

    fn is_mostly_old(&self) -> bool {
        self.lines > 2 * self.entries.len() + SPARE_LINES
    }

    /// Writes the lines that count, and nothing else.
    pub(crate) fn compact(&mut self, folder: &Folder, host: &dyn Host) -> Result<()> {
        let kept: BTreeMap<&ThreadId, &Entry> = self.entries.iter().filter(|(_, entry)| entry.file.is_some()).collect();
        let mut file = folder.begin(Path::new(INDEX), host)?;
        for entry in kept.values() {
            let mut line = serde_json::to_vec(entry).unwrap_or_default();
            line.push(b'\n');
            file.write(&line)?;
        }
        file.sync()?;
        self.lines = kept.len();
        self.fresh.clear();
        (self.is_torn, self.has_former_names) = (false, false);
        folder.publish(&file, Path::new(INDEX)).map(drop)
    }
}
