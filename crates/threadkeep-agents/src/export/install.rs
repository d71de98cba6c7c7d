//! Putting a session where its agent finds it.
//!
//! The agent may look at any moment, so nothing half-written ever stands in its folders: a file is written beside them, made durable,
//! and given its name when it is whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use threadkeep::{Error, Result};

use super::{Export, Exported, StoreExport};
use crate::writer::{Companion, HOME, Home};

/// How much of two files is compared at a time.
const COMPARED: usize = 256 << 10;
/// How large a file of an agent's home may be that says something of its folders.
const MAX_SMALL_BYTES: u64 = 4 << 20;

/// What may be done to a session that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Keep,
    /// Put this one in its place.
    Replace,
}

/// A session that lies where its agent finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Installed {
    /// The session's file.
    pub file: PathBuf,
    /// Companions that were written.
    pub companions: Vec<PathBuf>,
    /// What was there before.
    pub before: Before,
    /// What was written, or was found to be there.
    pub exported: Exported,
}

/// How a session that is there already stands to the one that is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// There was none.
    Nothing,
    /// It is the same, byte for byte.
    Same,
    /// It is the beginning of the exported one.
    Beginning,
    /// The exported one is its beginning: the agent has gone on.
    Further,
    /// They differ.
    Other,
}

impl Installed {
    /// Whether the session's file was written: none was there, or what was there was replaced.
    pub fn is_written(&self, existing: Existing) -> bool {
        match self.before {
            Before::Nothing => true,
            Before::Same => false,
            Before::Beginning | Before::Further | Before::Other => existing == Existing::Replace,
        }
    }
}

/// Writes a session below its agent's home. Where another one is there already and stays, nothing is changed, companions included;
/// [`Installed::before`] says so.
///
/// Guarantees: files are for their owner alone; the agent sees the whole file or none; the same export once more changes nothing.
///
/// # Errors
/// [`Error::Invalid`] when the session has no folder that the agent finds it by; [`Error::Io`]; and the errors of reading the
/// store.
pub fn install(export: &Export<'_>, home: &Path, existing: Existing) -> Result<Installed> {
    match export.codec.project(export.session(), &There(home)) {
        Some(project) => put(&export.clone().in_project(project), home, existing),
        None => put(export, home, existing),
    }
}

fn put(export: &Export<'_>, home: &Path, existing: Existing) -> Result<Installed> {
    let place = export.codec.place(export.session());
    let agent = export.codec.agent();
    let reason = || format!("the thread names none, and {agent} finds sessions by it");
    let place = place.ok_or_else(|| Error::Invalid { field: "folder", reason: reason() })?;
    let file = below(home, &place)?;
    make_folder(home)?;
    let part = Part::new(home)?;
    let exported = part.fill(|out| export.write(&mut |bytes| out.write_all(bytes).map_err(failed("write", &file))))?;
    let before = compare(&file, &part.path)?;
    let mut installed = Installed { file, companions: Vec::new(), before, exported };
    if before != Before::Same && !installed.is_written(existing) {
        return Ok(installed);
    }
    if before != Before::Same {
        part.put(&installed.file, existing)?;
    }
    for companion in &installed.exported.companions {
        let path = below(home, &companion.path)?;
        if place_companion(home, &path, companion, existing)? {
            installed.companions.push(path);
        }
    }
    Ok(installed)
}

/// What lies in a home.
struct There<'a>(&'a Path);

impl Home for There<'_> {
    fn file(&self, path: &Path) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(below(self.0, path).ok()?).ok()?;
        file.take(MAX_SMALL_BYTES + 1).read_to_end(&mut bytes).ok()?;
        Some(bytes).filter(|bytes| bytes.len() as u64 <= MAX_SMALL_BYTES)
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let entries = below(self.0, folder).ok().and_then(|folder| fs::read_dir(folder).ok());
        let names = entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// Writes a store below its agent's home, where there is none yet: one that is there holds threads of its own, so nothing ever takes
/// its place.
///
/// Guarantees: as those of [`install`]. Where another store is there, nothing is changed, companions included; [`Installed::before`]
/// says so.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] where a log of a store lies there without it; and the errors of reading the store.
pub fn install_store(export: &StoreExport<'_>, home: &Path) -> Result<Installed> {
    let file = below(home, Path::new(export.name()?))?;
    make_folder(home)?;
    let part = Part::new(home)?;
    let exported = part.fill(|out| export.write(&mut |bytes| out.write_all(bytes).map_err(failed("write", &file))))?;
    let before = compare(&file, &part.path)?;
    let mut installed = Installed { file, companions: Vec::new(), before, exported };
    match before {
        Before::Same => {}
        Before::Nothing => {
            // What belongs to a database that is gone would be taken for this one's.
            for ending in ["-wal", "-journal"] {
                let mut log = installed.file.as_os_str().to_owned();
                log.push(ending);
                if fs::symlink_metadata(&log).is_ok() {
                    let reason = format!("{} is there, and its database is not", Path::new(&log).display());
                    return Err(Error::Invalid { field: "home", reason });
                }
            }
            part.put(&installed.file, Existing::Keep)?;
        }
        Before::Beginning | Before::Further | Before::Other => return Ok(installed),
    }
    for companion in &installed.exported.companions {
        let path = below(home, &companion.path)?;
        if place_companion(home, &path, companion, Existing::Keep)? {
            installed.companions.push(path);
        }
    }
    Ok(installed)
}

/// The path below a home; one that leads out of it is refused.
fn below(home: &Path, path: &Path) -> Result<PathBuf> {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let wrong = || Error::Invalid { field: "session", reason: format!("its place {} leads elsewhere", path.display()) };
    is_plain.then(|| home.join(path)).ok_or_else(wrong)
}

/// A file that is not whole yet.
struct Part {
    path: PathBuf,
}

impl Part {
    fn new(home: &Path) -> Result<Self> {
        let name = format!(".threadkeep-{}.part", std::process::id());
        let path = home.join(name);
        // One that a killed program of the same number left.
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &path)(error)),
        }
        Ok(Self { path })
    }

    fn fill<T>(&self, fill: impl FnOnce(&mut BufWriter<File>) -> Result<T>) -> Result<T> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        let mut out = BufWriter::new(file.map_err(failed("create", &self.path))?);
        let filled = fill(&mut out)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed("write", &self.path))?;
        Ok(filled)
    }

    /// Gives it its name.
    fn put(self, file: &Path, existing: Existing) -> Result<()> {
        let folder = file.parent().unwrap_or(Path::new("/"));
        make_folder(folder)?;
        let linked = match existing {
            Existing::Replace => fs::rename(&self.path, file),
            // A link fails where something has come to be since it was looked for; a rename would replace it.
            Existing::Keep => match fs::hard_link(&self.path, file) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                // Not every file system has links.
                Err(_) => rename_new(&self.path, file),
                Ok(()) => Ok(()),
            },
        };
        linked.map_err(failed("name", file))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("write", folder))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has another name by now, or is of no use.
        let _ = fs::remove_file(&self.path);
    }
}

/// Gives a file a name that nothing has: an empty file holds it for the instant until the whole one stands there.
fn rename_new(part: &Path, file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    fs::rename(part, file).inspect_err(|_| {
        // It is the empty one, and what failed is told.
        let _ = fs::remove_file(file);
    })
}

fn make_folder(folder: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create", folder))
}

fn compare(there: &Path, new: &Path) -> Result<Before> {
    match fs::symlink_metadata(there) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::Nothing),
        Err(error) => return Err(failed("read", there)(error)),
        Ok(found) if !found.is_file() => {
            let reason = format!("{} is no file", there.display());
            return Err(Error::Invalid { field: "session", reason });
        }
        Ok(_) => {}
    }
    let open = |path: &Path| File::open(path).map(|file| BufReader::with_capacity(COMPARED, file));
    let mut there_in = open(there).map_err(failed("read", there))?;
    let mut new_in = open(new).map_err(failed("read", new))?;
    loop {
        let one = chunk(&mut there_in).map_err(failed("read", there))?;
        let other = chunk(&mut new_in).map_err(failed("read", new))?;
        let both = one.len().min(other.len());
        if one.get(..both) != other.get(..both) {
            return Ok(Before::Other);
        }
        match one.len().cmp(&other.len()) {
            std::cmp::Ordering::Less => return Ok(Before::Beginning),
            std::cmp::Ordering::Greater => return Ok(Before::Further),
            std::cmp::Ordering::Equal if one.is_empty() => return Ok(Before::Same),
            std::cmp::Ordering::Equal => {}
        }
    }
}

fn chunk(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(COMPARED as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a companion; says whether anything was to be written.
fn place_companion(home: &Path, path: &Path, companion: &Companion, existing: Existing) -> Result<bool> {
    if !companion.shared {
        let part = Part::new(home)?;
        let bytes = at_home(&companion.bytes, home);
        part.fill(|out| out.write_all(&bytes).map_err(failed("write", path)))?;
        match compare(path, &part.path)? {
            Before::Same => return Ok(false),
            // What is there may be another session's, or say more by now.
            Before::Other | Before::Beginning | Before::Further if existing != Existing::Replace => return Ok(false),
            _ => {}
        }
        part.put(path, Existing::Replace)?;
        return Ok(true);
    }
    make_folder(path.parent().unwrap_or(home))?;
    let there = match fs::read(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let line = companion.bytes.trim_ascii_end();
    if there.split(|byte| *byte == b'\n').any(|known| known == line) {
        return Ok(false);
    }
    // The agent appends as well, so this is one write at the end, which begins a line of its own.
    let mut bytes = if there.last().is_none_or(|byte| *byte == b'\n') { Vec::new() } else { vec![b'\n'] };
    bytes.extend_from_slice(&companion.bytes);
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let mut file = file.map_err(failed("open", path))?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("write", path))?;
    Ok(true)
}

/// What a companion holds, with the agent's home in its place.
fn at_home(bytes: &[u8], home: &Path) -> Vec<u8> {
    let begins = format!("\": \"{HOME}/");
    let Some(at) = bytes.windows(begins.len()).position(|part| part == begins.as_bytes()) else {
        return bytes.to_vec();
    };
    let home = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
    let home = serde_json::Value::from(home.to_string_lossy()).to_string();
    let (before, after) = bytes.split_at(at + begins.len() - HOME.len() - 1);
    let after = after.get(HOME.len()..).unwrap_or_default();
    [before, home.get(1..home.len() - 1).unwrap_or_default().as_bytes(), after].concat()
}

fn failed(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.display().to_string();
    move |error| match error.kind() {
        io::ErrorKind::StorageFull => Error::StorageFull { detail: format!("{path}: {error}") },
        kind => Error::Io { operation, path: path.clone(), kind, detail: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::rename_new;

    #[test]
    fn a_name_that_something_has_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let [part, file] = ["part", "file"].map(|name| folder.path().join(name));
        fs::write(&part, "new").unwrap();
        fs::write(&file, "theirs").unwrap();
        assert_eq!(rename_new(&part, &file).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"theirs");
        fs::remove_file(&file).unwrap();
        rename_new(&part, &file).unwrap();
        assert_eq!((fs::read(&file).unwrap(), part.exists()), (b"new".to_vec(), false));
    }
}
