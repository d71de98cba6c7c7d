//! Rollouts that hold what their store does not: the store lost it, or an older copy was put in its place.
//!
//! A rollout never leads, since only what survives in the store is mirrored. Its end says how far the thread was, so nothing but
//! the ends of files is read, and each is looked up in the store.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::files::{self, Entry, INDEX};
use super::format::{self, Line};
use super::scan::Lines;
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::id::{Address, ThreadId};
use crate::item::Hash;
use crate::log::path;
use crate::records;
use crate::seals;
use crate::store::{Inner, on_a_thread};

/// So much of a file's end is read first, and so much at most.
const FIRST_BYTES: u64 = 64 << 10;
const MOST_BYTES: u64 = 4 << 20;

/// How many rollouts are looked at: those that the index named last, and how much of its end is read for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    files: usize,
    index_bytes: u64,
}

/// When a store is opened.
const AT_OPENING: Newest = Newest { files: 16, index_bytes: 64 << 10 };
/// When it is examined.
pub(crate) const AT_EXAMINATION: Newest = Newest { files: 1_000, index_bytes: 1 << 20 };

/// How far a rollout says that its thread was: the last items of its branches, with their hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End {
    file: PathBuf,
    thread: ThreadId,
    tips: Vec<(Address, Hash)>,
}

/// What a store holds in the place of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Same,
    Another,
    Nothing,
}

/// A rollout that leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leading {
    pub(crate) file: PathBuf,
    /// What it holds that the store does not.
    pub(crate) what: String,
}

/// How many of them are named when a store is opened.
const NAMED: usize = 3;
/// So many ends are read between two looks at the store.
const AT_ONCE: usize = 64;

impl Leading {
    /// What can be done about it.
    pub(crate) fn way_out(&self) -> String {
        let file = self.file.display();
        format!(
            "`threadkeep rollout rebuild --from {file}` puts it back; `threadkeep rollout verify {file}` says what the file holds"
        )
    }
}

impl std::fmt::Display for Leading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.way_out())
    }
}

/// The rollouts in a store's own folder that lead, of all that are there.
pub(crate) async fn all(inner: &Inner) -> Result<Vec<Leading>> {
    let Some(root) = root_of(inner) else { return Ok(Vec::new()) };
    let files = on_a_thread("threadkeep-rollouts", move || choose(&root, None)).await?;
    let mut leading = Vec::new();
    for part in files.chunks(AT_ONCE) {
        let part = part.to_vec();
        // Before the store is asked: what is in a file was in the store by then.
        let read = move || Ok(part.iter().filter_map(|file| end_of(file)).collect::<Vec<End>>());
        let ends = on_a_thread("threadkeep-rollouts", read).await?;
        leading.extend(inner.db.read(move |tx| judge_all(tx, &ends)).await?);
    }
    Ok(leading)
}

/// What is to be said of them when the store is opened; only the newest are looked at.
pub(crate) async fn notices(inner: &Inner) -> Vec<String> {
    let Some(root) = root_of(inner) else { return Vec::new() };
    let files = choose(&root, Some(AT_OPENING)).unwrap_or_default();
    let ends: Vec<End> =
        files.iter().filter(|file| !files::is_compressed(file)).filter_map(|file| end_of(file)).collect();
    if ends.is_empty() {
        return Vec::new();
    }
    let leading = match inner.db.read(move |tx| judge_all(tx, &ends)).await {
        Ok(leading) => leading,
        Err(error) => return vec![format!("the rollouts can't be compared with the store: {error}")],
    };
    let more = leading.len().saturating_sub(NAMED);
    let named = leading.iter().take(NAMED).map(Leading::to_string);
    named.chain((more > 0).then(|| format!("{more} more rollouts lead; `threadkeep doctor` names them"))).collect()
}

/// The same for a folder of rollouts beside a database that is only looked at: the newest of them, or all.
pub(crate) fn beside(tx: &mut dyn Tx, store: &Path, newest: Option<Newest>) -> Result<Vec<Leading>> {
    let root = store.join(files::FOLDER);
    let files = if is_folder(&root) { choose(&root, newest)? } else { Vec::new() };
    let mut leading = Vec::new();
    for end in files.iter().filter_map(|file| end_of(file)) {
        leading.extend(judge(tx, &end)?);
    }
    Ok(leading)
}

fn root_of(inner: &Inner) -> Option<PathBuf> {
    super::default_root(inner).ok().filter(|root| is_folder(root))
}

fn is_folder(root: &Path) -> bool {
    std::fs::symlink_metadata(root).is_ok_and(|meta| meta.is_dir())
}

fn judge_all(tx: &mut dyn Tx, ends: &[End]) -> Result<Vec<Leading>> {
    ends.iter().filter_map(|end| judge(tx, end).transpose()).collect()
}

/// The rollouts below a folder that are to be looked at: those that its index named last, or all. Files that archived threads
/// have been compressed into have to be read through, and are left out when a store is opened.
fn choose(root: &Path, newest: Option<Newest>) -> Result<Vec<PathBuf>> {
    let Some(newest) = newest else { return Ok(files::walk(root)?.0) };
    let Some((bytes, _)) = end_of_file(&root.join(INDEX), newest.index_bytes)? else { return Ok(Vec::new()) };
    let mut seen = HashSet::new();
    let entries = bytes.rsplit(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
    let last = entries.filter(|entry| seen.insert(entry.id.clone())).filter_map(|entry| {
        let file = entry.file.filter(|file| super::is_below(file))?;
        (files::thread_of(&file) == Some(entry.id)).then(|| root.join(file))
    });
    Ok(last.take(newest.files).collect())
}

/// Reads how far a rollout says that its thread was; `None` when its end can't be read, which verifying it tells.
fn end_of(file: &Path) -> Option<End> {
    let thread = files::thread_of(file)?;
    let mut end = End { file: file.to_owned(), thread, tips: Vec::new() };
    let found = match files::is_compressed(file) {
        true => read_through(file, &mut end),
        false => read_end(file, &mut end),
    };
    match found {
        Ok(true) => Some(end),
        Ok(false) => None,
        Err(error) => {
            tracing::debug!(%error, file = %file.display(), "the end of a rollout can't be read");
            None
        }
    }
}

/// Says in which way a rollout leads, if it does.
fn judge(tx: &mut dyn Tx, end: &End) -> Result<Option<Leading>> {
    // What was purged is gone on purpose; a file of it was left by a mirror that was cut off.
    if records::purge_of(tx, &end.thread)?.is_some() {
        return Ok(None);
    }
    let is_there = seals::absent(tx, std::slice::from_ref(&end.thread))?.is_empty();
    let mut held = Vec::with_capacity(end.tips.len());
    for (address, hash) in &end.tips {
        held.push(look_up(tx, *address, *hash)?);
    }
    Ok(words(end, is_there, &held).map(|what| Leading { file: end.file.clone(), what }))
}

fn look_up(tx: &mut dyn Tx, address: Address, hash: Hash) -> Result<Held> {
    let Some((key, _)) = path::key_of(tx, address)? else { return Ok(Held::Nothing) };
    Ok(match path::link_at(tx, key)? {
        Some((found, _)) if found == hash => Held::Same,
        Some(_) => Held::Another,
        None => Held::Nothing,
    })
}

/// What is said of a rollout by what the store holds of it.
fn words(end: &End, is_there: bool, held: &[Held]) -> Option<String> {
    let (file, thread) = (end.file.display(), &end.thread);
    let first = |wanted: Held| held.iter().zip(&end.tips).find(|(held, _)| **held == wanted).map(|(_, (at, _))| *at);
    let what = match (is_there, first(Held::Nothing), first(Held::Another)) {
        (false, ..) => {
            format!("is of thread {thread}, which the store does not have and of which no purge is on record")
        }
        (true, Some(at), _) => format!("holds {at} of thread {thread}, which the store lacks"),
        (true, None, Some(at)) => format!("holds another item at {at} of thread {thread} than the store"),
        (true, None, None) => return None,
    };
    Some(format!("the rollout {file} {what}: the store lost it, or is an older copy of itself"))
}

/// Reads the lines at the end of a file, more of them when the first part holds none that says anything.
fn read_end(file: &Path, end: &mut End) -> Result<bool> {
    let mut most = FIRST_BYTES;
    loop {
        let Some((bytes, is_all)) = end_of_file(file, most)? else { return Ok(false) };
        let mut lines = bytes.split(|byte| *byte == b'\n');
        if !is_all {
            // Where the reading began, a line is cut.
            lines.next();
        }
        let mut found = false;
        for line in lines {
            found |= take(line, end);
        }
        if found || is_all || most >= MOST_BYTES {
            return Ok(found);
        }
        most *= 8;
    }
}

fn read_through(file: &Path, end: &mut End) -> Result<bool> {
    let mut lines = Lines::open(file)?;
    let (mut bytes, mut found) = (Vec::new(), false);
    while let Some(_line) = lines.next(&mut bytes)? {
        found |= take(&bytes, end);
    }
    Ok(found)
}

/// Takes what a line says of the thread's end; says whether it said anything.
fn take(line: &[u8], end: &mut End) -> bool {
    let mut found = false;
    for (_, record) in format::records(line).0 {
        match format::parse(record) {
            Ok(Line::Metadata(metadata)) if metadata.thread == end.thread => {
                let tips = metadata.branches.iter();
                end.tips = tips.map(|tip| (Address { branch: tip.id, depth: tip.tip }, tip.hash)).collect();
                found = true;
            }
            Ok(Line::Item(item)) => {
                end.tips.retain(|(at, _)| at.branch != item.branch);
                end.tips.push((Address { branch: item.branch, depth: item.depth }, item.hash));
                found = true;
            }
            _ => {}
        }
    }
    found
}

/// The last bytes of a file, and whether they are all of it; `None` where there is none.
fn end_of_file(path: &Path, most: u64) -> Result<Option<(Vec<u8>, bool)>> {
    let mut file: File = match files::open(path) {
        Err(Error::NotFound { .. }) => return Ok(None),
        file => file?,
    };
    let failed = |error: std::io::Error| Error::io("read", path, &error);
    let length = file.metadata().map_err(failed)?.len();
    let from = length.saturating_sub(most);
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some((bytes, from == 0)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{End, Held, words};
    use crate::id::{Address, ItemId, ThreadId};
    use crate::item::Hash;

    #[test]
    fn a_rollout_leads_by_what_the_store_lacks() {
        let tip = |depth| (Address { branch: ItemId::from_uuid(uuid::Uuid::nil()), depth }, Hash([7; 32]));
        let thread = ThreadId::new("t").unwrap();
        let end = End { file: PathBuf::from("t.jsonl"), thread, tips: vec![tip(4), tip(9)] };
        assert_eq!(words(&end, true, &[Held::Same, Held::Same]), None);
        let said = |is_there, held: &[Held]| words(&end, is_there, held).unwrap();
        assert!(said(true, &[Held::Same, Held::Nothing]).contains("@9"));
        assert!(said(true, &[Held::Another, Held::Nothing]).contains("@9"), "what is missing is told first");
        assert!(said(true, &[Held::Another, Held::Same]).contains("another item"));
        assert!(said(false, &[Held::Nothing, Held::Nothing]).contains("no purge is on record"));
        let empty = End { tips: Vec::new(), ..end.clone() };
        assert_eq!(words(&empty, true, &[]), None);
        assert!(words(&empty, false, &[]).is_some());
    }
}
