//! Writing the rollout of a thread in its canonical form: header, items, turns, and one line that says where it stands.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{self, Entry, Folder, Index};
use super::format::{self, Header};
use super::{scan, tail};
use crate::chain;
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::id::{BranchId, ThreadId};
use crate::item::Hash;
use crate::log::rows::plain::{
    PlainItem, PlainThread, PlainWriter, plain_items, plain_thread, plain_turn, plain_writers,
};
use crate::log::rows::{self, BranchRow, Missing, Snapshot};
use crate::store::Source;
use crate::thread::Shelf;
use crate::time::Timestamp;
use crate::workspaces;

/// Pages of branches that are kept while others are written hold so many bytes together.
const KEPT_BYTES: usize = 16 << 20;

/// What mirroring one thread did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mirrored {
    Written {
        items: u64,
        bytes: u64,
        /// Files that held what the store does not have, and where they were put.
        aside: Vec<PathBuf>,
    },
    Unchanged,
    /// It was purged since it was listed.
    Gone,
}

/// Brings a thread's file to where the thread stands; writes it anew though it is there already when that is `forced`.
pub(crate) async fn mirror(
    source: &Source,
    thread: &ThreadId,
    folder: &Folder,
    index: &mut Index,
    forced: bool,
) -> Result<Mirrored> {
    let Some((snapshot, standing)) = standing(source, thread).await? else { return Ok(Mirrored::Gone) };
    let anew = Anew::of(source, snapshot, standing).await?;
    let known = index.entries.get(thread);
    let former = known.and_then(|known| known.file.clone());
    let size = std::fs::symlink_metadata(folder.root.join(&anew.place)).ok().filter(std::fs::Metadata::is_file);
    if !forced
        && let Some((known, size)) = known.zip(size)
        && (&known.state, known.file.as_ref(), known.bytes) == (&Some(anew.state), Some(&anew.place), size.len())
    {
        anew.remove_others(source, folder, former.as_ref()).await?;
        return Ok(Mirrored::Unchanged);
    }
    // What is written anew on purpose is to lose what it held.
    let written = anew.write(source, folder, former.as_ref(), !forced).await?;
    let (items, bytes) = (written.items, written.entry.bytes);
    index.put(written.entry);
    Ok(Mirrored::Written { items, bytes, aside: written.aside })
}

/// A file that is to be written in its canonical form.
pub(crate) struct Anew {
    snapshot: Arc<Snapshot>,
    standing: PlainThread,
    place: PathBuf,
    turns: (u64, Hash),
    header: Vec<u8>,
    metadata: Vec<u8>,
    /// The hash of the first and the last line.
    state: Hash,
}

/// A file that was written in its canonical form.
pub(crate) struct Written {
    pub(crate) entry: Entry,
    pub(crate) items: u64,
    /// What its last line says, and how long that is.
    pub(crate) said: PlainThread,
    pub(crate) said_bytes: u64,
    /// Files of the thread that held what the store does not have, and where they were put.
    pub(crate) aside: Vec<PathBuf>,
}

impl Anew {
    pub(crate) async fn of(source: &Source, snapshot: Arc<Snapshot>, mut standing: PlainThread) -> Result<Self> {
        let turns = turn_lines(source, &snapshot, &mut |_| Ok(())).await?;
        standing.turn_lines = Some(turns);
        let header = format::header_line(&header(&standing));
        let metadata = format::metadata_line(&standing);
        let state = Hash::of(&[header.as_slice(), &metadata].concat());
        let place = place(&standing)?;
        Ok(Self { snapshot, standing, place, turns, header, metadata, state })
    }

    /// Writes the file, which takes the place of any that the thread has. Of what the store does not have nothing is lost; with
    /// `keeps_unknown` lines of kinds that are not known here stay too, unless something was taken away from the thread: nobody
    /// can tell what they hold of it.
    pub(crate) async fn write(
        self,
        source: &Source,
        folder: &Folder,
        former: Option<&PathBuf>,
        keeps_unknown: bool,
    ) -> Result<Written> {
        refuse_another(folder, &self.place, &self.snapshot.id)?;
        let mut aside = Vec::new();
        aside.extend(tail::put_aside_if_it_leads(source, folder, &self.place, &self.snapshot.id).await?);
        let mut file = folder.begin(&self.place, &*source.host)?;
        file.write(&self.header)?;
        let items = write_items(source, &self.snapshot, &mut |line| file.write(line)).await?;
        let turns = turn_lines(source, &self.snapshot, &mut |line| file.write(line)).await?;
        if keeps_unknown && self.standing.redacted == 0 {
            self.unknown_lines(folder, former).iter().try_for_each(|line| file.write(line))?;
        }
        file.write(&self.metadata)?;
        file.sync()?;
        // What is mirrored is never ahead of what survives a power cut.
        source.sync().await?;
        let bytes = folder.publish(&file, &self.place)?;
        aside.extend(self.remove_others(source, folder, former).await?);
        // A turn may have ended meanwhile: what was written is right, and the next run sees that it is not the last word.
        let state = (turns == self.turns).then_some(self.state);
        let entry = Entry { bytes, ..entry(&self.standing, self.place, state) };
        Ok(Written { entry, items, said: self.standing, said_bytes: self.metadata.len() as u64, aside })
    }

    /// The lines of kinds that are not known here in the file that is replaced, wherever it stands.
    fn unknown_lines(&self, folder: &Folder, former: Option<&PathBuf>) -> Vec<Vec<u8>> {
        let all: BTreeSet<PathBuf> = places(&self.standing).into_iter().chain(former.cloned()).collect();
        let own = all.iter().filter(|place| files::thread_of(place).as_ref() == Some(&self.standing.thread));
        own.flat_map(|place| scan::unknown_lines(&folder.root.join(place))).collect()
    }

    /// Removes the file from where it was before the thread was archived, taken back or purged.
    async fn remove_others(&self, source: &Source, folder: &Folder, former: Option<&PathBuf>) -> Result<Vec<PathBuf>> {
        let mut aside = Vec::new();
        for other in places(&self.standing).iter().chain(former).filter(|other| **other != self.place) {
            // What the index says is believed only of a file that is named after the thread.
            let is_inside = other.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            if is_inside && files::thread_of(other).as_ref() == Some(&self.standing.thread) {
                aside.extend(tail::put_aside_if_it_leads(source, folder, other, &self.standing.thread).await?);
                folder.remove(other)?;
            }
        }
        Ok(aside)
    }
}

/// Where a thread's file is, below the folder of the rollouts.
pub(crate) fn place(standing: &PlainThread) -> Result<PathBuf> {
    let created_at = Timestamp(standing.number("created_at").unwrap_or(0));
    let is_archived = matches!(standing.shelf()?, Shelf::Archived | Shelf::Stub);
    Ok(files::place_of(&standing.thread, created_at, is_archived))
}

/// Both places that a thread's file can have.
fn places(standing: &PlainThread) -> [PathBuf; 2] {
    let created_at = Timestamp(standing.number("created_at").unwrap_or(0));
    [false, true].map(|is_archived| files::place_of(&standing.thread, created_at, is_archived))
}

/// A file system that takes two ids for one name must not cost a thread its file.
fn refuse_another(folder: &Folder, place: &PathBuf, thread: &ThreadId) -> Result<()> {
    match scan::identify(&folder.root.join(place)) {
        Ok(found) if found != *thread => {
            let expected = format!("the rollout of {thread} in {}", place.display());
            Err(Error::Conflict { what: "rollout", expected, found: format!("that of {found}") })
        }
        Err(newer @ Error::RolloutTooNew { .. }) => Err(newer),
        _ => Ok(()),
    }
}

fn header(standing: &PlainThread) -> Header {
    Header {
        version: format::VERSION,
        thread: standing.thread.clone(),
        genesis: chain::genesis(&standing.thread),
        fork: standing.fork.clone(),
        workspace: standing.workspace.clone(),
    }
}

/// What the index says of a thread whose file is in this place.
pub(crate) fn entry(standing: &PlainThread, place: PathBuf, state: Option<Hash>) -> Entry {
    Entry {
        id: standing.thread.clone(),
        name: name(standing).to_owned(),
        updated_at: Timestamp(standing.number("updated_at").unwrap_or(0)).to_string(),
        file: Some(place),
        bytes: 0,
        state,
    }
}

/// What a thread is called.
pub(crate) fn name(standing: &PlainThread) -> &str {
    standing.text("title").or_else(|| standing.text("preview")).unwrap_or_default()
}

async fn standing(source: &Source, thread: &ThreadId) -> Result<Option<(Arc<Snapshot>, PlainThread)>> {
    let (thread, origin) = (thread.clone(), source.store.to_string());
    let read = move |tx: &mut dyn Tx| {
        let Some(snapshot) = rows::snapshot(tx, &thread)? else { return Ok(None) };
        let metadata = rows::metadata(tx, &thread)?;
        let workspace = workspaces::get(tx, snapshot.workspace)?;
        let writers = every_writer(tx, &snapshot, &origin)?;
        let plain = plain_thread(tx, &snapshot, &metadata, &workspace, writers)?;
        Ok(Some((Arc::new(snapshot), plain)))
    };
    source.db.read(read).await
}

/// All who wrote items of a thread.
pub(crate) fn every_writer(tx: &mut dyn Tx, snapshot: &Snapshot, origin: &str) -> Result<Vec<PlainWriter>> {
    let parts: Vec<_> = snapshot.branches.iter().map(|branch| (branch, branch.base)).collect();
    plain_writers(tx, &parts, origin)
}

/// Gives the lines of the turns, and their hash.
pub(crate) async fn turn_lines(
    source: &Source,
    snapshot: &Arc<Snapshot>,
    write: &mut (dyn FnMut(&[u8]) -> Result<()> + Send),
) -> Result<(u64, Hash)> {
    let (mut next, mut count, mut hasher) = (0, 0, blake3::Hasher::new());
    loop {
        let from = Arc::clone(snapshot);
        let turns = source.db.read(move |tx| rows::turns(tx, &from, next)).await?;
        let Some(last) = turns.last() else { return Ok((count, Hash(*hasher.finalize().as_bytes()))) };
        next = last.ordinal + 1;
        for turn in &turns {
            let line = format::turn_line(&plain_turn(turn)?);
            hasher.update(&line);
            count += 1;
            write(&line)?;
        }
    }
}

/// Gives the lines of all items in the order in which they were committed: by their ticks, each behind its parent.
async fn write_items(
    source: &Source,
    snapshot: &Arc<Snapshot>,
    write: &mut (dyn FnMut(&[u8]) -> Result<()> + Send),
) -> Result<u64> {
    let mut merge = Merge { source, snapshot: Arc::clone(snapshot), pages: HashMap::new(), bytes: 0 };
    // The branches that leave each branch, by the depth that they leave at.
    let mut leaving: HashMap<BranchId, Vec<(u32, BranchId)>> = HashMap::new();
    let mut waiting: BTreeSet<(i64, BranchId)> = BTreeSet::new();
    let mut next: HashMap<BranchId, (u32, Option<Hash>)> = HashMap::new();
    for branch in &snapshot.branches {
        next.insert(branch.id, (branch.base, branch.parent().map(|(_, hash)| hash)));
        match branch.parent().filter(|(parent, _)| snapshot.branch(parent.branch).is_some()) {
            Some((parent, _)) => leaving.entry(parent.branch).or_default().push((parent.depth, branch.id)),
            None => drop(
                waiting.insert((merge.tick(branch, (branch.base, branch.parent().map(|it| it.1))).await?, branch.id)),
            ),
        }
    }
    let mut count = 0;
    while let Some((_, id)) = waiting.pop_first() {
        let Some(branch) = snapshot.branch(id) else { continue };
        let Some(mut at) = next.get(&id).copied() else { continue };
        while at.0 <= branch.tip {
            let item = merge.take(branch, at).await?;
            if waiting.first().is_some_and(|first| (item.tick, id) > *first) {
                waiting.insert((item.tick, id));
                merge.give_back(id, item);
                break;
            }
            write(&format::item_line(&item))?;
            count += 1;
            at = (item.depth + 1, Some(item.hash));
            for (_, child) in leaving.get(&id).into_iter().flatten().filter(|(depth, _)| *depth == item.depth) {
                let Some((child, at)) = snapshot.branch(*child).zip(next.get(child).copied()) else { continue };
                waiting.insert((merge.tick(child, at).await?, child.id));
            }
        }
        next.insert(id, at);
    }
    Ok(count)
}

/// The branches of a thread, read page by page.
struct Merge<'a> {
    source: &'a Source,
    snapshot: Arc<Snapshot>,
    pages: HashMap<BranchId, VecDeque<PlainItem>>,
    bytes: usize,
}

impl Merge<'_> {
    async fn tick(&mut self, branch: &BranchRow, at: (u32, Option<Hash>)) -> Result<i64> {
        let item = self.take(branch, at).await?;
        let tick = item.tick;
        self.give_back(branch.id, item);
        Ok(tick)
    }

    fn give_back(&mut self, branch: BranchId, item: PlainItem) {
        self.bytes += item.size();
        self.pages.entry(branch).or_default().push_front(item);
    }

    async fn take(&mut self, branch: &BranchRow, (depth, after): (u32, Option<Hash>)) -> Result<PlainItem> {
        if let Some(item) = self.pages.get_mut(&branch.id).and_then(VecDeque::pop_front) {
            self.bytes = self.bytes.saturating_sub(item.size());
            return Ok(item);
        }
        if self.bytes > KEPT_BYTES {
            // They are read again when it is their turn.
            self.pages.clear();
            self.bytes = 0;
        }
        let (thread, row) = (self.snapshot.id.clone(), branch.clone());
        let read = move |tx: &mut dyn Tx| plain_items(tx, &thread, Missing { branch: &row, next: depth, after });
        let mut page = VecDeque::from(self.source.db.read(read).await?);
        let first = page.pop_front().ok_or_else(|| Error::corrupt(format!("branch {}", branch.id), "it is empty"))?;
        self.bytes += page.iter().map(PlainItem::size).sum::<usize>();
        self.pages.insert(branch.id, page);
        Ok(first)
    }
}
