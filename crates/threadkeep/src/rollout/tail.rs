//! Files that grow with their threads: where such a file ends, what it lacks, and how lines are put behind it.
//!
//! Every batch ends with a line of metadata, so the last one of the file says what the file holds. What stands behind it was
//! cut short; it is cut off before anything is written, unless the store lacks it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{self, Entry, Folder};
use super::format::{self, Line};
use super::scan::{Lines, Rollout};
use super::write::{self, Anew};
use crate::claims;
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ThreadId};
use crate::item::Hash;
use crate::log::path;
use crate::log::rows::plain::{
    PlainLive, PlainThread, open_turns, plain_items, plain_thread, plain_turn, plain_writers,
};
use crate::log::rows::{self, BranchRow, Missing, Snapshot};
use crate::records;
use crate::store::Source;
use crate::thread::Shelf;
use crate::workspaces;

/// Lines are put behind a file in parts of about so many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// How far from the end of a file its last line of metadata is looked for, at first and at most.
const FIRST_WINDOW: u64 = 64 << 10;
const LAST_WINDOW: u64 = 64 << 20;
/// A file is written anew when so many of its bytes no longer count, and they are most of it.
const SPARE_BYTES: u64 = 64 << 10;

/// What is known of a file: as long as it is the same file, as long as it was, it need not be read.
#[derive(Debug)]
pub(crate) struct Known {
    place: PathBuf,
    identity: (u64, u64, u64),
    said: PlainThread,
    said_bytes: u64,
    open_turns: Option<Vec<(i64, String)>>,
    /// Whether it has grown since the index was told of it.
    has_grown: bool,
}

impl Known {
    /// About how much memory it takes.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.said_bytes).unwrap_or(usize::MAX)
    }

    /// What the index is to be told of the thread when it is not written any more, if that is new.
    pub(crate) fn news(&mut self) -> Option<Entry> {
        std::mem::take(&mut self.has_grown).then(|| self.entry())
    }

    fn entry(&self) -> Entry {
        let (_, _, bytes) = self.identity;
        Entry { bytes, ..write::entry(&self.said, self.place.clone(), None) }
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }
}

/// What became of a thread's file.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) known: Option<Known>,
    /// Whether what it holds may be lost in a power cut.
    pub(crate) is_unsynced: bool,
    /// What the index has to be told.
    pub(crate) entry: Option<Entry>,
    /// Files that held what the store does not have, and where they were put.
    pub(crate) aside: Vec<PathBuf>,
}

/// Makes sure that what was read survives a power cut before it is mirrored.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// How many writes that are not synced had been asked for when the store was last synced.
    upto: Option<usize>,
}

impl Barrier {
    /// Syncs the store, unless all that was read is synced: nobody but this process wrote it, and nothing unsynced since.
    async fn pass(&mut self, source: &Source, is_foreign: bool) -> Result<()> {
        let asked = source.db.unsynced_writes();
        if is_foreign || self.upto != Some(asked) {
            source.sync().await?;
            self.upto = Some(asked);
        }
        Ok(())
    }
}

/// Where a thread stands in the store, without who wrote its items.
struct Standing {
    snapshot: Arc<Snapshot>,
    plain: PlainThread,
    open_turns: Vec<(i64, String)>,
    /// Whether another holder may have written what is not synced.
    is_foreign: bool,
    /// Whether a purge or a copy is at work on it, which ends with a change.
    is_unfinished: bool,
}

async fn standing(source: &Source, thread: &ThreadId, holder: &str) -> Result<Option<Standing>> {
    let (thread, holder) = (thread.clone(), holder.to_owned());
    let read = move |tx: &mut dyn Tx| {
        let Some(snapshot) = rows::snapshot(tx, &thread)? else { return Ok(None) };
        let metadata = rows::metadata(tx, &thread)?;
        let workspace = workspaces::get(tx, snapshot.workspace)?;
        let plain = plain_thread(tx, &snapshot, &metadata, &workspace, Vec::new())?;
        let is_unfinished = plain.shelf()? == Shelf::Stub && metadata.is_at_work();
        let is_foreign = claims::holder_id(tx, &thread)?.is_some_and(|other| other != holder);
        let open_turns = open_turns(tx, &thread)?;
        Ok(Some(Standing { snapshot: Arc::new(snapshot), plain, open_turns, is_foreign, is_unfinished }))
    };
    source.db.read(read).await
}

/// Writes the file of a thread anew in its canonical form, whatever is in it.
pub(crate) async fn renew(source: &Source, folder: &Folder, thread: &ThreadId, holder: &str) -> Result<Brought> {
    match standing(source, thread, holder).await? {
        Some(standing) if !standing.is_unfinished => anew(source, folder, standing, None).await,
        _ => Ok(Brought::default()),
    }
}

/// Brings the file of a thread to where the thread stands. `known` is what was known of it when it was last brought there.
pub(crate) async fn bring(
    source: &Source,
    folder: &Folder,
    thread: &ThreadId,
    known: Option<Known>,
    barrier: &mut Barrier,
    holder: &str,
) -> Result<Brought> {
    let Some(standing) = standing(source, thread, holder).await? else { return Ok(Brought::default()) };
    if standing.is_unfinished {
        return Ok(Brought::default());
    }
    let place = write::place(&standing.plain)?;
    let known = known.filter(|known| known.place == place && identity(folder, &place) == Some(known.identity));
    let known = match known {
        Some(known) => Some(known),
        None => find(source, folder, &place, thread).await?,
    };
    let Some(known) = known else { return anew(source, folder, standing, None).await };
    let lacking = Lacking::of(source, &standing, &known).await?;
    if lacking.is_nothing() {
        return Ok(Brought { known: Some(known), ..Brought::default() });
    }
    let superseded = known.said.live.as_ref().map_or(0, |live| live.superseded) + known.said_bytes;
    let is_mostly_old = superseded > SPARE_BYTES && superseded > known.identity.2 / 2;
    // What was taken away must not stay in lines before these.
    let is_redacted = standing.plain.redacted != known.said.redacted;
    if files::is_compressed(&place) || is_mostly_old || is_redacted {
        return anew(source, folder, standing, Some(known.place)).await;
    }
    barrier.pass(source, standing.is_foreign).await?;
    grow(source, folder, standing, known, lacking, superseded).await
}

async fn anew(source: &Source, folder: &Folder, standing: Standing, former: Option<PathBuf>) -> Result<Brought> {
    let Standing { snapshot, mut plain, open_turns, .. } = standing;
    let (of, origin) = (Arc::clone(&snapshot), source.store.to_string());
    plain.writers = source.db.read(move |tx| write::every_writer(tx, &of, &origin)).await?;
    let written = Anew::of(source, snapshot, plain).await?.write(source, folder, former.as_ref(), true).await?;
    let place = written.entry.file.clone().unwrap_or_default();
    let identity = identity(folder, &place);
    let (said, said_bytes) = (written.said, written.said_bytes);
    let known = identity.map(|identity| Known {
        place,
        identity,
        said,
        said_bytes,
        open_turns: Some(open_turns),
        has_grown: false,
    });
    Ok(Brought { known, is_unsynced: false, entry: Some(written.entry), aside: written.aside })
}

/// What a file lacks.
struct Lacking {
    /// Branches, and where they go on.
    branches: Vec<(BranchRow, u32, Option<Hash>)>,
    /// Turns that have ended, or begun.
    ended: Vec<i64>,
    begun: Option<i64>,
    /// What is to be said last, if it is not what the file says.
    metadata: Option<PlainThread>,
}

impl Lacking {
    async fn of(source: &Source, standing: &Standing, known: &Known) -> Result<Self> {
        let said = &known.said;
        let tips: HashMap<BranchId, (u32, Hash)> = said.branches.iter().map(|it| (it.id, (it.tip, it.hash))).collect();
        let mut branches = Vec::new();
        for branch in &standing.snapshot.branches {
            match tips.get(&branch.id) {
                None => branches.push((branch.clone(), branch.base, branch.parent().map(|(_, hash)| hash))),
                Some((tip, hash)) if *tip < branch.tip => branches.push((branch.clone(), tip + 1, Some(*hash))),
                Some(_) => {}
            }
        }
        let (ended, begun) = turns_to_write(source, standing, known).await?;
        let mut metadata = standing.plain.clone();
        metadata.writers.clone_from(&said.writers);
        if !branches.is_empty() {
            let (parts, origin) = (branches.clone(), source.store.to_string());
            let read = move |tx: &mut dyn Tx| {
                let parts: Vec<_> = parts.iter().map(|(branch, from, _)| (branch, *from)).collect();
                plain_writers(tx, &parts, &origin)
            };
            for writer in source.db.read(read).await? {
                if !metadata.writers.iter().any(|known| known.id == writer.id) {
                    metadata.writers.push(writer);
                }
            }
            metadata.writers.sort_by_key(|writer| writer.id);
        }
        let is_new = !branches.is_empty() || !ended.is_empty() || begun.is_some() || !metadata.says_the_same(said);
        Ok(Self { branches, ended, begun, metadata: is_new.then_some(metadata) })
    }

    fn is_nothing(&self) -> bool {
        self.metadata.is_none()
    }
}

/// The turns whose lines are to be written: some that have ended, and all from one on.
async fn turns_to_write(source: &Source, standing: &Standing, known: &Known) -> Result<(Vec<i64>, Option<i64>)> {
    let said = &known.said;
    let noted = known.open_turns.as_ref().or(said.live.as_ref().map(|live| &live.open_turns));
    let begun = (standing.plain.turns > said.turns).then_some(said.turns + 1);
    if let Some(open) = noted {
        let ended =
            open.iter().filter(|turn| !standing.open_turns.contains(turn)).map(|(ordinal, _)| *ordinal).collect();
        return Ok((ended, begun));
    }
    // The canonical form does not say which turns were open, only what their lines were.
    let snapshot = Arc::clone(&standing.snapshot);
    let now = write::turn_lines(source, &snapshot, &mut |_| Ok(())).await?;
    let is_same = said.turn_lines.unwrap_or((0, Hash::of(b""))) == now;
    Ok((Vec::new(), if is_same { begun } else { Some(0) }))
}

/// Puts what a file lacks behind it.
async fn grow(
    source: &Source,
    folder: &Folder,
    standing: Standing,
    known: Known,
    lacking: Lacking,
    superseded: u64,
) -> Result<Brought> {
    let mut file = Growing::open(&folder.root.join(&known.place), known.identity)?;
    let thread = &standing.snapshot.id;
    for (branch, from, after) in lacking.branches {
        let (mut next, mut after) = (from, after);
        while next <= branch.tip {
            let (id, row) = (thread.clone(), branch.clone());
            let read = move |tx: &mut dyn Tx| plain_items(tx, &id, Missing { branch: &row, next, after });
            let page = source.db.read(read).await?;
            let Some(last) = page.last() else { break };
            (next, after) = (last.depth + 1, Some(last.hash));
            for item in &page {
                file.put(&format::item_line(item))?;
            }
        }
    }
    let replaced = grow_turns(source, &standing.snapshot, &lacking.ended, lacking.begun, &mut file).await?;
    let mut said = lacking.metadata.unwrap_or(standing.plain);
    said.live = Some(PlainLive { superseded: superseded + replaced, open_turns: standing.open_turns.clone() });
    let line = format::metadata_line(&said);
    file.put(&line)?;
    let identity = file.end()?;
    let is_renamed = write::name(&said) != write::name(&known.said);
    let open_turns = Some(standing.open_turns);
    let said_bytes = line.len() as u64;
    let known = Known { place: known.place, identity, said, said_bytes, open_turns, has_grown: !is_renamed };
    let entry = is_renamed.then(|| known.entry());
    Ok(Brought { known: Some(known), is_unsynced: true, entry, aside: Vec::new() })
}

/// Writes lines of turns; gives the bytes of those that take the place of earlier ones.
async fn grow_turns(
    source: &Source,
    snapshot: &Arc<Snapshot>,
    ended: &[i64],
    begun: Option<i64>,
    file: &mut Growing,
) -> Result<u64> {
    let read = |from: i64| {
        let snapshot = Arc::clone(snapshot);
        move |tx: &mut dyn Tx| rows::turns(tx, &snapshot, from)
    };
    let mut replaced = 0;
    for turn in ended {
        if let Some(row) = source.db.read(read(*turn)).await?.into_iter().find(|row| row.ordinal == *turn) {
            let line = format::turn_line(&plain_turn(&row)?);
            replaced += line.len() as u64;
            file.put(&line)?;
        }
    }
    let mut next = begun;
    while let Some(from) = next {
        let page = source.db.read(read(from)).await?;
        for row in &page {
            file.put(&format::turn_line(&plain_turn(row)?))?;
        }
        next = page.last().map(|last| last.ordinal + 1);
    }
    Ok(replaced)
}

/// A file to which whole lines are put, and nothing but whole lines.
struct Growing {
    path: PathBuf,
    file: File,
    length: u64,
    lines: Vec<u8>,
}

impl Growing {
    /// Opens a file that must be the one that is known, and as long.
    fn open(path: &Path, identity: (u64, u64, u64)) -> Result<Self> {
        let failed = |error: std::io::Error| Error::io("open", path, &error);
        let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let file = OpenOptions::new().append(true).custom_flags(flags).open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if (found.dev(), found.ino(), found.len()) != identity {
            return Err(Error::Busy { detail: format!("{} was changed meanwhile", path.display()) });
        }
        Ok(Self { path: path.to_owned(), file, length: found.len(), lines: Vec::new() })
    }

    fn put(&mut self, line: &[u8]) -> Result<()> {
        self.lines.extend_from_slice(line);
        if self.lines.len() >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes what was put with one call. What went in of it when it fails is cut off before anything else happens.
    fn write(&mut self) -> Result<()> {
        let lines = std::mem::take(&mut self.lines);
        let written = loop {
            match self.file.write(&lines) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                written => break written,
            }
        };
        let error = match written {
            Ok(count) if count == lines.len() => {
                self.length += lines.len() as u64;
                return Ok(());
            }
            Ok(_) => std::io::Error::new(std::io::ErrorKind::StorageFull, "only a part could be written"),
            Err(error) => error,
        };
        // If this fails too, the rest is found by whoever writes next.
        drop(self.file.set_len(self.length));
        Err(Error::io("write", &self.path, &error))
    }

    fn end(mut self) -> Result<(u64, u64, u64)> {
        self.write()?;
        let found = self.file.metadata().map_err(|error| Error::io("look at", &self.path, &error))?;
        Ok((found.dev(), found.ino(), self.length))
    }
}

/// What tells a file from another one, and from itself at another length; nothing where a link is on the way to it.
fn identity(folder: &Folder, place: &Path) -> Option<(u64, u64, u64)> {
    let mut path = folder.root.clone();
    for part in place.parent()?.components() {
        path.push(part);
        std::fs::symlink_metadata(&path).ok().filter(std::fs::Metadata::is_dir)?;
    }
    let found = std::fs::symlink_metadata(folder.root.join(place)).ok().filter(std::fs::Metadata::is_file)?;
    Some((found.dev(), found.ino(), found.len()))
}

/// Where a file ends.
enum Tail {
    /// There is none.
    Missing,
    /// With a line of metadata, behind which these items are and what else was cut short.
    Said { said: Box<PlainThread>, said_bytes: u64, end: u64, length: u64, behind: Vec<(Address, Hash)> },
    /// In another way: it has to be read through.
    Unclear,
}

/// Looks at a file that nothing is known of, and brings it into order; `None` when it has to be written anew.
async fn find(source: &Source, folder: &Folder, place: &Path, thread: &ThreadId) -> Result<Option<Known>> {
    let path = folder.root.join(place);
    if identity(folder, place).is_none() {
        return Ok(None);
    }
    let Tail::Said { said, said_bytes, end, length, behind } = read_tail(&path, thread)? else { return Ok(None) };
    let said_places = ends_of(&said);
    if lacks(source, thread, said_places.into_iter().chain(behind).collect()).await? {
        return Ok(None);
    }
    if end < length {
        tracing::warn!(path = %path.display(), bytes = length - end, "a rollout that was cut short is cut to its last whole lines");
        let cut = open_to_cut(&path).and_then(|file| file.set_len(end).and_then(|()| file.sync_all()));
        cut.map_err(|error| Error::io("cut", &path, &error))?;
    }
    let identity = identity(folder, place).filter(|(_, _, length)| *length == end);
    let place = place.to_owned();
    Ok(identity.map(|identity| Known { place, identity, said: *said, said_bytes, open_turns: None, has_grown: false }))
}

fn open_to_cut(path: &Path) -> std::io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Puts a file aside that holds what the store does not have: it may be the only copy. Says where.
pub(crate) async fn put_aside_if_it_leads(
    source: &Source,
    folder: &Folder,
    place: &Path,
    thread: &ThreadId,
) -> Result<Option<PathBuf>> {
    let path = folder.root.join(place);
    if identity(folder, place).is_none() {
        return Ok(None);
    }
    let places = match read_tail(&path, thread)? {
        Tail::Missing => return Ok(None),
        Tail::Said { said, behind, .. } => Some(ends_of(&said).into_iter().chain(behind).collect()),
        Tail::Unclear => read_places(&path)?,
    };
    let leads = match places {
        // What was purged is gone on purpose.
        Some(places) => lacks(source, thread, places).await? && !was_purged(source, thread).await?,
        // It is no rollout, and nobody knows whose it is.
        None => true,
    };
    if !leads {
        return Ok(None);
    }
    let aside = folder.put_aside(place, &*source.host)?;
    tracing::warn!(%thread, path = %aside.display(), "a rollout that holds what the store does not have was set aside");
    Ok(Some(aside))
}

/// The ends of the branches that a file holds, read through; `None` for what is no rollout.
fn read_places(path: &Path) -> Result<Option<Vec<(Address, Hash)>>> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.len() == 0) {
        return Ok(Some(Vec::new()));
    }
    match Rollout::read(path) {
        Ok(rollout) => {
            let branches = rollout.snapshot.branches.iter();
            Ok(Some(branches.map(|it| (Address { branch: it.id, depth: it.tip }, it.tip_hash)).collect()))
        }
        Err(Error::Invalid { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ends_of(said: &PlainThread) -> Vec<(Address, Hash)> {
    said.branches.iter().map(|tip| (Address { branch: tip.id, depth: tip.tip }, tip.hash)).collect()
}

/// Whether the store lacks any of these items of a thread.
async fn lacks(source: &Source, thread: &ThreadId, places: Vec<(Address, Hash)>) -> Result<bool> {
    let thread = thread.clone();
    let read = move |tx: &mut dyn Tx| {
        for (address, hash) in &places {
            let found = match path::key_of(tx, *address)? {
                Some((key, owner)) if owner == thread => path::link_at(tx, key)?,
                _ => None,
            };
            if found.is_none_or(|(found, _)| found != *hash) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    source.db.read(read).await
}

async fn was_purged(source: &Source, thread: &ThreadId) -> Result<bool> {
    let thread = thread.clone();
    source.db.read(move |tx| Ok(records::purge_of(tx, &thread)?.is_some())).await
}

fn read_tail(path: &Path, thread: &ThreadId) -> Result<Tail> {
    let mut lines = match Lines::open(path) {
        Err(Error::NotFound { .. }) => return Ok(Tail::Missing),
        lines => lines?,
    };
    let mut line = Vec::new();
    let begins = matches!(lines.next(&mut line), Ok(Some(place)) if place.is_ended);
    match format::parse_whole(&line) {
        Some(Line::Header(header)) if begins && header.thread == *thread => {}
        Some(Line::Newer(found)) => {
            let path = path.display().to_string();
            return Err(Error::RolloutTooNew { path, found, known: format::VERSION });
        }
        _ => return Ok(Tail::Unclear),
    }
    match files::is_compressed(path) {
        true => Ok(last_of(lines, thread)),
        false => end_of(path, thread),
    }
}

/// The end of a file that can only be read from its beginning, which has to be its metadata.
fn last_of(mut lines: Lines, thread: &ThreadId) -> Tail {
    let (mut line, mut last, mut length) = (Vec::new(), Vec::new(), 0);
    loop {
        match lines.next(&mut line) {
            Ok(None) => break,
            Ok(Some(place)) if place.is_ended => {
                length += line.len() as u64 + 1;
                std::mem::swap(&mut last, &mut line);
            }
            Ok(Some(_)) | Err(_) => return Tail::Unclear,
        }
    }
    match format::parse_whole(&last) {
        Some(Line::Metadata(said)) if said.thread == *thread => {
            Tail::Said { said, said_bytes: last.len() as u64 + 1, end: length, length, behind: Vec::new() }
        }
        _ => Tail::Unclear,
    }
}

/// Looks for the last line of metadata from the end of a file.
fn end_of(path: &Path, thread: &ThreadId) -> Result<Tail> {
    let failed = |error: std::io::Error| Error::io("read", path, &error);
    let mut file = files::open(path)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut window = FIRST_WINDOW;
    loop {
        let start = length.saturating_sub(window);
        let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(0)];
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        if let Some((at, said)) = last_metadata(&bytes, start == 0, thread) {
            let said_bytes = said.1;
            let end = at + said_bytes;
            let rest = bytes.get(end..).unwrap_or_default();
            let end = start + end as u64;
            return Ok(match items_behind(rest) {
                Some(behind) => Tail::Said { said: said.0, said_bytes: said_bytes as u64, end, length, behind },
                None => Tail::Unclear,
            });
        }
        if start == 0 || window >= LAST_WINDOW {
            return Ok(Tail::Unclear);
        }
        window *= 4;
    }
}

/// The last whole line of metadata among these bytes: where it begins, what it says, and its length with its end.
fn last_metadata(bytes: &[u8], is_all: bool, thread: &ThreadId) -> Option<(usize, (Box<PlainThread>, usize))> {
    let mut end = bytes.iter().rposition(|byte| *byte == b'\n')?;
    loop {
        let before = bytes.get(..end)?.iter().rposition(|byte| *byte == b'\n');
        let start = match before {
            Some(before) => before + 1,
            None if is_all => 0,
            None => return None,
        };
        if let Some(Line::Metadata(said)) = bytes.get(start..end).and_then(format::parse_metadata)
            && said.thread == *thread
        {
            return Some((start, (said, end + 1 - start)));
        }
        end = before?;
    }
}

/// The items among what stands behind the last metadata; `None` when there is what a newer version may have written.
fn items_behind(bytes: &[u8]) -> Option<Vec<(Address, Hash)>> {
    let mut items = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        for (_, record) in format::records(line).0 {
            match format::parse(record) {
                Ok(Line::Item(item)) => items.push((Address { branch: item.branch, depth: item.depth }, item.hash)),
                Ok(Line::Unknown | Line::Newer(_) | Line::Header(_)) => return None,
                Ok(Line::Turn(_) | Line::Metadata(_)) | Err(_) => {}
            }
        }
    }
    Some(items)
}
