//! Finding session files, and reading them plain or compressed.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use threadkeep::{SourceStamp, Timestamp};

use super::database::Session;
use super::places::keeper;
use super::report::ImportReport;
use crate::codec::{Codec, Shape};
use crate::homes::Home;
use crate::segments::{MAX_LINE_BYTES, Position, Segment, Segments};

/// How much of a file a codec sees to recognise it.
const HEAD_BYTES: u64 = 64 << 10;
/// How far behind damage at its beginning the first record of a file is looked for.
const MOST_DAMAGE_BYTES: usize = 64 << 20;
/// How deep folders are searched; agents nest five levels.
const MAX_LEVELS: usize = 16;
/// How deep, and at how many files and folders, is looked behind a link that is not followed: to say whether sessions are there.
const LEVELS_BEHIND_LINK: usize = 6;
const MOST_BEHIND_LINK: usize = 2_048;
const READ_BUFFER: usize = 256 << 10;
/// A compressed file may unfold to so many times its size, and to so many bytes beyond that.
const MOST_UNFOLDING: u64 = 256;
const FREE_UNFOLDING: u64 = 64 << 20;
/// The longest file that says nothing: `{}` and a line end.
const EMPTY_BYTES: u64 = 3;
/// How much of a file's end is looked at for its last time.
const TAIL_BYTES: u64 = 16 << 10;

/// A file that may be a session.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The path as the store knows the file by.
    pub(super) key: String,
    pub(super) size: u64,
    /// Nanoseconds since the epoch.
    pub(super) mtime: i64,
    /// Whether it was named by the caller rather than found in a folder.
    pub(super) named: bool,
    /// What is stored in the place of its size, where it is more than one file or a part of one.
    pub(super) mark: Option<i64>,
    pub(super) origin: Origin,
}

/// Where a session is read from.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// The file, and where its codec says so others that belong to it.
    File,
    /// A database of many sessions; its path is followed by `#` and the session's id.
    Session(Session),
    /// A text of many sessions; its path is followed by `#` and the session's name.
    Section(Section),
}

/// A session in a text.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) codec: Arc<dyn Codec>,
    pub(super) file: PathBuf,
    pub(super) begins: Position,
    pub(super) end: u64,
    /// Whether it may grow.
    pub(super) is_last: bool,
}

impl Found {
    /// Whether the file is still what it was when it was stamped.
    pub(super) fn is_as(&self, stamp: &SourceStamp) -> bool {
        stamp.size == self.stored_size() && stamp.mtime == self.mtime
    }

    /// When the file was last changed: for records that carry no time.
    pub(super) fn modified(&self) -> Timestamp {
        Timestamp(self.mtime / 1_000_000)
    }

    pub(super) fn stored_size(&self) -> i64 {
        self.mark.unwrap_or_else(|| i64::try_from(self.size).unwrap_or(i64::MAX))
    }

    /// Whether the file's name holds this session's id.
    pub(super) fn names(&self, session: &str) -> bool {
        self.path.file_name().is_some_and(|name| name.to_string_lossy().contains(session))
    }

    /// Opens it for reading, decompressed: the file, or the part of it in which the session stands.
    pub(super) fn open(&self) -> io::Result<BufReader<Box<dyn Read>>> {
        let Origin::Section(section) = &self.origin else { return open(&self.path) };
        let mut file = File::open(&section.file)?;
        file.seek(SeekFrom::Start(section.begins.offset))?;
        let part = file.take(section.end.saturating_sub(section.begins.offset));
        Ok(BufReader::with_capacity(READ_BUFFER, Box::new(part)))
    }

    /// The line of the file that the session begins on, from 1.
    pub(super) fn first_line(&self) -> u64 {
        if let Origin::Section(section) = &self.origin { section.begins.line } else { 1 }
    }

    pub(super) fn is_archived(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "archived_sessions")
    }
}

/// What lies in a home, by looking at names and sizes alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Measure {
    /// Files: those that may be sessions, or all where nothing is known of what is in them.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Measures a home. What can't be looked at counts nothing.
pub fn measure(home: &Home) -> Measure {
    let mut measure = Measure::default();
    let mut ignored = ImportReport::default();
    let codecs = crate::codecs();
    let is_wanted = |path: &Path| !home.is_read || may_be_session(&codecs, path);
    let mut found = Vec::new();
    match home.path.metadata() {
        Ok(meta) if meta.is_dir() => {
            let mut walk = Walk { is_wanted: &is_wanted, found, links: Vec::new(), report: &mut ignored };
            walk.folder(&home.path, MAX_LEVELS);
            found = walk.found;
        }
        Ok(meta) if meta.is_file() => found.push(describe(home.path.clone(), &meta, true)),
        _ => {}
    }
    for file in each_conversation(found, &codecs) {
        measure.files += 1;
        measure.bytes += file.size;
    }
    measure
}

/// Finds the files, each once, and the links among them that lead to sessions elsewhere.
///
/// `named` says whether the caller means each of the paths, so that one that is gone, or that no codec knows, is a problem.
pub(super) fn find(
    paths: &[PathBuf],
    named: bool,
    codecs: &[Arc<dyn Codec>],
    report: &mut ImportReport,
) -> (Vec<Found>, Vec<Link>) {
    let is_wanted = |path: &Path| may_be_session(codecs, path);
    let (mut walk, mut roots) =
        (Walk { is_wanted: &is_wanted, found: Vec::new(), links: Vec::new(), report }, Vec::new());
    for path in paths {
        // Links on the way to what the caller named are the caller's; below that none is followed.
        match path.canonicalize().and_then(|path| path.metadata().map(|meta| (path, meta))) {
            Ok((path, meta)) if meta.is_dir() => {
                walk.folder(&path, MAX_LEVELS);
                roots.push(path);
            }
            Ok((path, meta)) if meta.is_file() => {
                walk.found.push(describe(path.clone(), &meta, named));
                roots.push(path);
            }
            Err(error) if !named && error.kind() == io::ErrorKind::NotFound => {}
            Ok((path, _)) => fail(&path, "it is neither a file nor a folder", walk.report),
            Err(error) => fail(path, &error.to_string(), walk.report),
        }
    }
    let Walk { found, links, .. } = walk;
    let links = links.into_iter().filter_map(|link| Link::look(link, &roots, codecs)).collect();
    (each_conversation(found, codecs), links)
}

/// The files in the order of their paths, each once; of a conversation that its agent keeps twice the one that has more of it.
fn each_conversation(mut found: Vec<Found>, codecs: &[Arc<dyn Codec>]) -> Vec<Found> {
    let mut empty = HashSet::new();
    for file in found.iter_mut().filter(|file| !file.named) {
        let other = codecs.iter().find_map(|codec| codec.stands_in_for(&file.path));
        match other.map(|path| (path.metadata(), path)) {
            Some((Ok(meta), path)) if meta.is_file() && meta.len() > EMPTY_BYTES => {
                *file = describe(path, &meta, false);
            }
            Some((Ok(_), path)) => drop(empty.insert(path)),
            Some((Err(_), _)) | None => {}
        }
    }
    found.retain(|file| file.named || !empty.contains(&file.path));
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup_by(|a, b| a.path == b.path);
    found
}

/// A look at everything below folders.
struct Walk<'a> {
    is_wanted: &'a dyn Fn(&Path) -> bool,
    found: Vec<Found>,
    links: Vec<PathBuf>,
    report: &'a mut ImportReport,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, levels: usize) {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return fail(folder, &error.to_string(), self.report),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return fail(folder, &error.to_string(), self.report),
            };
            let path = entry.path();
            match entry.metadata() {
                Ok(meta) if meta.is_dir() && levels > 0 => self.folder(&path, levels - 1),
                Ok(meta) if meta.is_file() && (self.is_wanted)(&path) => self.found.push(describe(path, &meta, false)),
                Ok(meta) if meta.is_symlink() => self.links.push(path),
                Ok(_) => {}
                Err(error) => fail(&path, &error.to_string(), self.report),
            }
        }
    }
}

/// A link below a folder that is looked through. It is not followed, since it leads anywhere, but whoever has put their sessions
/// elsewhere is to be told.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) path: PathBuf,
    /// Some of the sessions that it leads to, by the paths that they would be imported by.
    pub(super) sessions: Vec<PathBuf>,
}

impl Link {
    /// Looks where a link leads; nothing when no session is there, or when it is below one of these roots and found without it.
    fn look(path: PathBuf, roots: &[PathBuf], codecs: &[Arc<dyn Codec>]) -> Option<Self> {
        let target = path.canonicalize().ok()?;
        if roots.iter().any(|root| target.starts_with(root) || root.starts_with(&target)) {
            return None;
        }
        let mut look = LinkLook { codecs, left: MOST_BEHIND_LINK, sessions: Vec::new() };
        look.at(&path, &target, LEVELS_BEHIND_LINK);
        Some(look.sessions).filter(|sessions| !sessions.is_empty()).map(|sessions| Self { path, sessions })
    }
}

/// A short look at what a link leads to.
struct LinkLook<'a> {
    codecs: &'a [Arc<dyn Codec>],
    /// How much more is looked at.
    left: usize,
    sessions: Vec<PathBuf>,
}

impl LinkLook<'_> {
    /// Looks at what is called `path` by way of the link, which tells what it is, and `target` without it.
    fn at(&mut self, path: &Path, target: &Path, levels: usize) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        match std::fs::symlink_metadata(target) {
            Ok(meta) if meta.is_file() && meta.len() > 0 && self.is_session(path) => {
                self.sessions.push(target.to_owned());
            }
            Ok(meta) if meta.is_dir() && levels > 0 => {
                for entry in std::fs::read_dir(target).into_iter().flatten().flatten() {
                    self.at(&path.join(entry.file_name()), &entry.path(), levels - 1);
                }
            }
            _ => {}
        }
    }

    fn is_session(&self, path: &Path) -> bool {
        let mut codecs = self.codecs.iter().filter(|codec| codec.may_be_session(path)).peekable();
        if codecs.peek().is_none() {
            return false;
        }
        let head = head(path).unwrap_or_default();
        keeper(path).is_some()
            || codecs.any(|codec| codec.shape(path, &head) == Shape::Database || codec.detect(path, &head))
    }
}

fn may_be_session(codecs: &[Arc<dyn Codec>], path: &Path) -> bool {
    codecs.iter().any(|codec| codec.may_be_session(path))
}

fn fail(path: &Path, reason: &str, report: &mut ImportReport) {
    report.files.failed += 1;
    report.failed.push(path.to_owned());
    report.problem(&path.display().to_string(), reason);
}

/// The name that the store knows a file by.
pub(super) fn key_of(path: &Path) -> String {
    path.to_str().map_or_else(|| format!("{path:?}"), str::to_owned)
}

fn describe(path: PathBuf, meta: &std::fs::Metadata, named: bool) -> Found {
    let key = key_of(&path);
    Found { path, key, size: meta.len(), mtime: mtime(meta), named, mark: None, origin: Origin::File }
}

/// When a file was changed, in nanoseconds since the epoch.
pub(super) fn mtime(meta: &std::fs::Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

/// What tells a file from what it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    size: u64,
    mtime: i64,
    inode: u64,
}

/// Looks at a file; nothing when it is not there, larger than this, or no file.
pub(super) fn stat(path: &Path, max_bytes: u64) -> Option<Stat> {
    let meta = std::fs::symlink_metadata(path).ok().filter(|meta| meta.is_file() && meta.len() <= max_bytes)?;
    Some(Stat { size: meta.len(), mtime: mtime(&meta), inode: meta.ino() })
}

/// What stands in a small file; nothing when it is not there, larger than this, or no file.
pub(super) fn small(path: &Path, max_bytes: u64) -> Option<Vec<u8>> {
    let stat = stat(path, max_bytes)?;
    let mut bytes = Vec::with_capacity(usize::try_from(stat.size).unwrap_or(0));
    File::open(path).ok()?.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The last time that a plain file mentions near its end, in milliseconds since the epoch: agents stamp their records.
pub(super) fn last_time(path: &Path) -> Option<i64> {
    if path.extension().is_some_and(|ending| ending == "zst") {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let stamps = text.rsplit("\"timestamp\"");
    stamps
        .filter_map(|rest| rest.trim_start_matches([':', ' ', '"']).split('"').next())
        .find_map(|time| Timestamp::parse(time).map(Timestamp::millis))
}

/// The first bytes of a file, decompressed: at least its whole first line, however long that is.
pub(super) fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut input = open(path)?;
    (&mut input).take(HEAD_BYTES).read_to_end(&mut head)?;
    if !head.contains(&b'\n') {
        input.take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut head)?;
    }
    Ok(head)
}

/// What a codec is shown of a file of lines that begins with damage: its first bytes behind that, from the first whole record on.
/// After a power cut a file may begin with NULs in the place of what was in it.
pub(super) fn head_behind_damage(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let input = open(path)?.take(MOST_DAMAGE_BYTES as u64);
    let mut head = Vec::new();
    for segment in Segments::new(input).with_max_line(MOST_DAMAGE_BYTES) {
        let segment = segment?;
        if !head.is_empty() || matches!(segment, Segment::Record { .. }) {
            segment.write_to(&mut head)?;
        }
        if head.len() as u64 >= HEAD_BYTES {
            break;
        }
    }
    Ok(Some(head).filter(|head| !head.is_empty()))
}

/// Whether a whole record stands in these first bytes of a file of lines.
pub(super) fn has_record(head: &[u8]) -> bool {
    Segments::new(head).map_while(Result::ok).any(|segment| matches!(segment, Segment::Record { .. }))
}

/// Opens a file for reading, decompressed; one that unfolds to much more than conversations do fails there.
pub(super) fn open(path: &Path) -> io::Result<BufReader<Box<dyn Read>>> {
    let file = File::open(path)?;
    let plain: Box<dyn Read> = if path.extension().is_some_and(|ending| ending == "zst") {
        let most = FREE_UNFOLDING.saturating_add(file.metadata()?.len().saturating_mul(MOST_UNFOLDING));
        Box::new(Unfolding { inner: zstd::Decoder::new(file)?, left: most, most })
    } else {
        Box::new(file)
    };
    Ok(BufReader::with_capacity(READ_BUFFER, plain))
}

/// Reads what was compressed, and no more than this of it.
struct Unfolding<R> {
    inner: R,
    left: u64,
    most: u64,
}

impl<R: Read> Read for Unfolding<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                let words = format!("it unfolds to more than {} bytes, which no conversation does", self.most);
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
        }
        Ok(read)
    }
}
