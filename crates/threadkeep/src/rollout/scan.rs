//! Reading a rollout: every line on its own, every item by verification's own rule.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use serde::Serialize;

use super::files;
use super::format::{self, Header, Line, MAX_LINE_BYTES};
use super::frames::Frames;
use crate::chain;
use crate::concurrency::Mutex;
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ThreadId, WriterId};
use crate::item::Hash;
use crate::log::rows::plain::{
    FoundBranch, PlainHead, PlainItem, PlainThread, PlainTurn, PlainWriter, page_of, snapshot_of, turn_of,
};
use crate::log::rows::{ItemPage, Missing, RedactedPage, Snapshot, TurnRow};

/// So many problems of a file are told; the others are counted.
const TOLD_PROBLEMS: usize = 1_000;
/// A place is noted for so many items, to begin reading there.
const RUN_ITEMS: u32 = 256;
const PAGE_ITEMS: usize = 500;
const PAGE_BYTES: usize = 4 << 20;
const PAGE_TURNS: usize = 1_000;
/// Items that stand before what they follow are kept until that comes, as long as they have so many bytes together.
const WAITING_BYTES: usize = 16 << 20;

/// What a rollout holds, judged by the file alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RolloutReport {
    /// The file.
    pub file: PathBuf,
    /// The thread that it is a copy of.
    pub thread: ThreadId,
    /// Items that follow from their parents and their own fields.
    pub items: u64,
    /// Branches that they are on.
    pub branches: u64,
    /// Turns.
    pub turns: u64,
    /// The head of what is there.
    pub head: Option<Address>,
    /// Its hash.
    pub head_hash: Option<Hash>,
    /// Items that stand on a line that was lost, and so have no place.
    pub unplaced: u64,
    /// Items that are there again.
    pub repeated: u64,
    /// Lines of kinds that are not known here.
    pub unknown: u64,
    /// What is wrong, in the order of the lines.
    pub problems: Vec<LineProblem>,
    /// Problems beyond those.
    pub more_problems: u64,
}

impl RolloutReport {
    /// Whether everything that was written is there and follows.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// What is wrong with a line, or behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineProblem {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1; 0 for the file itself.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
}

/// A rollout that was read through: where its items are, and everything else.
#[derive(Debug)]
pub(crate) struct Rollout {
    pub(crate) report: RolloutReport,
    pub(crate) metadata: PlainThread,
    pub(crate) snapshot: Snapshot,
    branches: HashMap<BranchId, Vec<Run>>,
    /// Where items stand whose content was taken away.
    redacted: Vec<u64>,
    turns: BTreeMap<i64, PlainTurn>,
    reader: Mutex<Option<Lines>>,
}

/// Where items of a branch stand line by line.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u32,
    offset: u64,
}

impl Rollout {
    /// Reads a file through. Memory grows with its branches and turns, and by a few bytes for every item.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that is no rollout, [`Error::RolloutTooNew`], and what keeps it from being read at all.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let mut scan = Scan::begin(path)?;
        let mut lines = Lines::open(path)?;
        let mut bytes = Vec::new();
        loop {
            match lines.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(line)) => scan.line(&line, &bytes)?,
                Err(error) => {
                    scan.problem(lines.number, format!("nothing behind this line can be read: {error}"));
                    break;
                }
            }
        }
        scan.finish()
    }

    /// Reads the next items of a branch, each checked.
    pub(crate) fn items(&self, from: Missing<'_>) -> Result<ItemPage> {
        let branch = from.branch.id;
        let lost =
            || Error::corrupt(self.report.file.display().to_string(), format!("branch {branch} changed meanwhile"));
        let runs = self.branches.get(&branch).ok_or_else(lost)?;
        let run = runs.partition_point(|run| run.first <= from.next).checked_sub(1).and_then(|at| runs.get(at));
        let mut kept = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = Lines::at(kept.take(), &self.report.file, run.ok_or_else(lost)?.offset)?;
        let plain = read_page(kept.insert(lines), from)?;
        if plain.is_empty() {
            return Err(lost());
        }
        page_of(&self.report.thread, from, plain, |id| self.writer(id))
    }

    /// Reads a page of the items whose content was taken away, after as many of them.
    pub(crate) fn redactions(&self, after: i64) -> Result<Option<RedactedPage>> {
        let from = usize::try_from(after).unwrap_or(usize::MAX);
        let offsets: Vec<u64> = self.redacted.iter().skip(from).take(PAGE_ITEMS).copied().collect();
        if offsets.is_empty() {
            return Ok(None);
        }
        let mut page =
            RedactedPage { last: i64::try_from(from + offsets.len()).unwrap_or(i64::MAX), ..RedactedPage::default() };
        let (mut kept, mut bytes) = (self.reader.lock().unwrap_or_else(PoisonError::into_inner), Vec::new());
        for offset in offsets {
            let mut lines = Lines::at(kept.take(), &self.report.file, offset)?;
            let is_there = lines.next(&mut bytes)?.is_some();
            *kept = Some(lines);
            for (_, record) in format::records(&bytes).0.into_iter().filter(|_| is_there) {
                if let Ok(Line::Item(item)) = format::parse(record) {
                    page.items.extend(item.redacted_row(&self.report.thread)?);
                }
            }
        }
        Ok(Some(page))
    }

    /// Reads a page of turns, from an ordinal on.
    pub(crate) fn turns(&self, from: i64) -> Result<Vec<TurnRow>> {
        self.turns.range(from..).take(PAGE_TURNS).map(|(_, turn)| turn_of(turn)).collect()
    }

    fn writer(&self, id: WriterId) -> PlainWriter {
        let known = self.metadata.writers.iter().find(|writer| writer.id == id).cloned();
        known.unwrap_or_else(|| PlainWriter { id, machine: format!("writer {id} of a rollout"), created_at: 0 })
    }
}

/// Reads items of one branch that stand one after the other.
fn read_page(lines: &mut Lines, from: Missing<'_>) -> Result<Vec<PlainItem>> {
    let (mut plain, mut read, mut bytes) = (Vec::new(), 0, Vec::new());
    let mut next = from.next;
    while next <= from.branch.tip && plain.len() < PAGE_ITEMS && read < PAGE_BYTES {
        if lines.next(&mut bytes)?.is_none() {
            break;
        }
        for (_, record) in format::records(&bytes).0 {
            match format::parse(record) {
                Ok(Line::Item(item)) if item.branch == from.branch.id && item.depth == next => {
                    plain.push(*item);
                    read += record.len();
                    next = next.saturating_add(1);
                }
                // Another item than the next one: what goes on behind it is another run.
                Ok(Line::Item(_)) if !plain.is_empty() => return Ok(plain),
                _ => {}
            }
        }
    }
    Ok(plain)
}

/// A branch while its file is read.
#[derive(Debug)]
struct Growing {
    found: FoundBranch,
    runs: Vec<Run>,
    /// The beginnings of all hashes, to know an item again that another branch leaves at.
    hashes: Vec<u128>,
    /// The line of the last item, and how many items the last run has.
    last_line: u64,
    run_items: u32,
    /// Whether it was told that something of it has no place.
    is_cut: bool,
}

fn short(hash: Hash) -> u128 {
    let [bytes, _] = hash.0.as_chunks::<16>().0 else { return 0 };
    u128::from_le_bytes(*bytes)
}

impl Growing {
    fn has(&self, depth: u32, hash: Hash) -> bool {
        let at = depth.checked_sub(self.found.base).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.hashes.get(at)).is_some_and(|known| *known == short(hash))
    }

    fn grow(&mut self, item: &PlainItem, line: u64, offset: u64) {
        if self.runs.is_empty() || line != self.last_line + 1 || self.run_items >= RUN_ITEMS {
            self.runs.push(Run { first: item.depth, offset });
            self.run_items = 0;
        }
        self.run_items += 1;
        self.last_line = line;
        self.hashes.push(short(item.hash));
        (self.found.tip, self.found.tip_hash) = (item.depth, item.hash);
    }
}

/// An item that stands before what it follows.
struct Waiting {
    item: Box<PlainItem>,
    line: u64,
    offset: u64,
}

struct Scan {
    report: RolloutReport,
    /// By the place of the item that each of them follows.
    waiting: HashMap<(BranchId, u32), Vec<Waiting>>,
    waiting_bytes: usize,
    header: Option<Header>,
    metadata: Option<PlainThread>,
    metadata_line: u64,
    branches: Vec<Growing>,
    by_id: HashMap<BranchId, usize>,
    redacted: Vec<u64>,
    turns: BTreeMap<i64, (u64, PlainTurn)>,
    /// The last item that has a place, if it stands behind the last line of metadata.
    newest: Option<PlainHead>,
    last_placed: Option<PlainHead>,
    epoch: i64,
}

impl Scan {
    fn begin(path: &Path) -> Result<Self> {
        let thread = identify(path)?;
        let report = RolloutReport {
            file: path.to_owned(),
            thread,
            items: 0,
            branches: 0,
            turns: 0,
            head: None,
            head_hash: None,
            unplaced: 0,
            repeated: 0,
            unknown: 0,
            problems: Vec::new(),
            more_problems: 0,
        };
        Ok(Self {
            report,
            waiting: HashMap::new(),
            waiting_bytes: 0,
            header: None,
            metadata: None,
            metadata_line: 0,
            branches: Vec::new(),
            by_id: HashMap::new(),
            redacted: Vec::new(),
            turns: BTreeMap::new(),
            newest: None,
            last_placed: None,
            epoch: 0,
        })
    }

    fn problem(&mut self, line: u64, reason: impl Into<String>) {
        if self.report.problems.len() < TOLD_PROBLEMS {
            self.report.problems.push(LineProblem { file: self.report.file.clone(), line, reason: reason.into() });
        } else {
            self.report.more_problems += 1;
        }
    }

    fn line(&mut self, line: &LinePlace, bytes: &[u8]) -> Result<()> {
        if line.is_broken {
            self.problem(line.number, "what stood behind it can't be decompressed");
        }
        if line.is_too_long {
            self.problem(line.number, "it is longer than any line of a rollout");
            return Ok(());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let (records, is_damaged) = format::records(bytes);
        if is_damaged {
            let reason = match (line.is_ended, records.len()) {
                (false, 0) => "the file ends in the middle of it",
                (_, 0) => "it is damaged",
                _ => "it holds a fragment beside what was read of it",
            };
            self.problem(line.number, reason);
        }
        for (at, record) in records {
            let offset = line.offset + at as u64;
            match format::parse(record) {
                Ok(parsed) => self.take(parsed, line.number, offset)?,
                Err(reason) => self.problem(line.number, format!("it can't be read: {reason}")),
            }
        }
        Ok(())
    }

    fn take(&mut self, parsed: Line, line: u64, offset: u64) -> Result<()> {
        match parsed {
            // It stands there again.
            Line::Header(header) if self.header.as_ref() == Some(&header) => {}
            Line::Header(header) if header.thread != self.report.thread || self.header.is_some() => {
                self.problem(line, "it is the first line of another file");
            }
            Line::Header(header) => {
                if header.genesis != chain::genesis(&header.thread) {
                    self.problem(line, "its genesis is not that of its thread");
                }
                self.header = Some(header);
            }
            Line::Newer(found) => {
                let path = self.report.file.display().to_string();
                return Err(Error::RolloutTooNew { path, found, known: format::VERSION });
            }
            Line::Item(item) => self.item_and_followers(Waiting { item, line, offset }),
            Line::Turn(turn) => drop(self.turns.insert(turn.ordinal, (line, turn))),
            Line::Metadata(metadata) if metadata.thread != self.report.thread => {
                self.problem(line, "it is of another thread");
            }
            Line::Metadata(metadata) => {
                self.metadata = Some(*metadata);
                self.metadata_line = line;
                self.newest = None;
            }
            Line::Unknown => self.report.unknown += 1,
        }
        Ok(())
    }

    /// Takes an item, and those that were waiting for it.
    fn item_and_followers(&mut self, first: Waiting) {
        let mut ready = vec![first];
        while let Some(next) = ready.pop() {
            let place = (next.item.branch, next.item.depth);
            self.item(next);
            if !self.waiting.is_empty() && self.has(Address { branch: place.0, depth: place.1 }) {
                for follower in self.waiting.remove(&place).unwrap_or_default() {
                    self.waiting_bytes = self.waiting_bytes.saturating_sub(follower.item.size());
                    ready.push(follower);
                }
            }
        }
    }

    fn item(&mut self, waiting: Waiting) {
        let (item, line, offset) = (&*waiting.item, waiting.line, waiting.offset);
        let known = self.by_id.get(&item.branch).copied();
        let parent = match known.and_then(|at| self.branches.get(at)) {
            Some(branch) if item.depth <= branch.found.tip => {
                if branch.has(item.depth, item.hash) {
                    self.report.repeated += 1;
                } else {
                    self.problem(line, format!("another item stands at depth {} of its branch", item.depth));
                }
                return;
            }
            Some(branch) if item.depth == branch.found.tip.saturating_add(1) => Some(branch.found.tip_hash),
            Some(_) => None,
            None => self.place_of(item),
        };
        let Some(parent) = parent else { return self.wait(waiting) };
        if let Err(error) = item.check(&self.report.thread, item.depth, parent) {
            self.problem(line, error.to_string());
            return;
        }
        let at = known.unwrap_or_else(|| self.begin_branch(item, parent));
        if let Some(branch) = self.branches.get_mut(at) {
            branch.grow(item, line, offset);
        }
        if item.redaction.is_some() {
            self.redacted.push(offset);
        }
        self.report.items += 1;
        self.epoch = self.epoch.max(item.epoch);
        self.newest = Some(PlainHead { branch: item.branch, depth: item.depth, hash: item.hash });
        self.last_placed = self.newest;
    }

    /// The hash that the first item of a branch follows, if what it stands on is there.
    fn place_of(&self, item: &PlainItem) -> Option<Hash> {
        let begins = item.begins.as_ref().filter(|_| item.branch == item.id)?;
        match &begins.parent {
            None => (item.depth == 0).then(|| chain::genesis(&self.report.thread)),
            Some(parent) if item.depth.checked_sub(1) != Some(parent.depth) => None,
            Some(parent) if parent.thread == self.report.thread => {
                let own = self.by_id.get(&parent.branch).and_then(|at| self.branches.get(*at))?;
                own.has(parent.depth, item.after).then_some(item.after)
            }
            // Another thread's item: it is compared when this one is put behind it.
            Some(_) => Some(item.after),
        }
    }

    fn begin_branch(&mut self, item: &PlainItem, parent: Hash) -> usize {
        let begins = item.begins.as_ref();
        let found = FoundBranch {
            id: item.branch,
            parent: begins.and_then(|begins| begins.parent.clone()).map(|address| (address, parent)),
            base: item.depth,
            tip: item.depth,
            tip_hash: item.hash,
            created_at: begins.map_or(0, |begins| begins.created_at),
        };
        let (runs, hashes) = (Vec::new(), Vec::new());
        self.branches.push(Growing { found, runs, hashes, last_line: 0, run_items: 0, is_cut: false });
        self.by_id.insert(item.branch, self.branches.len() - 1);
        self.branches.len() - 1
    }

    /// Keeps an item until what it follows comes, which may stand behind it where lines were moved.
    fn wait(&mut self, waiting: Waiting) {
        let item = &*waiting.item;
        let begins = item.begins.as_ref().filter(|_| item.branch == item.id);
        let before = match begins.and_then(|begins| begins.parent.as_ref()) {
            Some(parent) => Some((parent.branch, parent.depth)),
            None => item.depth.checked_sub(1).map(|depth| (item.branch, depth)),
        };
        match before {
            Some(before) if self.waiting_bytes + item.size() <= WAITING_BYTES => {
                self.waiting_bytes += item.size();
                self.waiting.entry(before).or_default().push(waiting);
            }
            _ => self.unplaced(item, waiting.line),
        }
    }

    /// What is still waiting follows what was lost.
    fn give_up_waiting(&mut self) {
        let mut left: Vec<Waiting> = self.waiting.drain().flat_map(|(_, waiting)| waiting).collect();
        left.sort_by_key(|waiting| waiting.line);
        left.iter().for_each(|waiting| self.unplaced(&waiting.item, waiting.line));
    }

    fn unplaced(&mut self, item: &PlainItem, line: u64) {
        self.report.unplaced += 1;
        let branch = self.by_id.get(&item.branch).copied();
        let branch = branch.and_then(|at| self.branches.get_mut(at));
        let is_told = branch.is_some_and(|branch| std::mem::replace(&mut branch.is_cut, true));
        // Told once for each branch.
        if !is_told {
            let place = format!("depth {} of branch {}", item.depth, item.branch);
            self.problem(line, format!("the item at {place} has no place: it stands on a line that was lost"));
        }
    }

    fn has(&self, place: Address) -> bool {
        let branch = self.by_id.get(&place.branch).and_then(|at| self.branches.get(*at));
        branch.is_some_and(|branch| (branch.found.base..=branch.found.tip).contains(&place.depth))
    }

    fn finish(mut self) -> Result<Rollout> {
        self.give_up_waiting();
        if self.header.is_none() && self.report.problems.iter().all(|problem| problem.line > 1) {
            self.problem(1, "the first line is missing");
        }
        let header = self.header.take();
        let mut metadata = match self.metadata.take() {
            Some(metadata) => {
                self.compare(&metadata);
                metadata
            }
            None => {
                if self.report.problems.is_empty() {
                    self.problem(0, "the last line, which says where the thread stands, is missing");
                }
                let (fork, workspace) = header.map_or((None, None), |it| (it.fork, Some(it.workspace)));
                PlainThread::unknown(&self.report.thread, fork, workspace)
            }
        };
        metadata.head = self.head(&metadata);
        self.keep_turns(&mut metadata);
        let found: Vec<FoundBranch> = self.branches.iter().map(|branch| branch.found.clone()).collect();
        let redacted = i64::try_from(self.redacted.len()).unwrap_or(i64::MAX);
        let snapshot = snapshot_of(&metadata, &found, self.epoch, redacted)?;
        self.report.problems.sort_by_key(|problem| problem.line);
        self.report.branches = found.len() as u64;
        self.report.turns = self.turns.len() as u64;
        self.report.head = metadata.head.map(|head| Address { branch: head.branch, depth: head.depth });
        self.report.head_hash = metadata.head.map(|head| head.hash);
        let branches = self.branches.into_iter().map(|branch| (branch.found.id, branch.runs)).collect();
        let turns = self.turns.into_iter().map(|(ordinal, (_, turn))| (ordinal, turn)).collect();
        let (report, redacted, reader) = (self.report, self.redacted, Mutex::new(None));
        Ok(Rollout { report, metadata, snapshot, branches, redacted, turns, reader })
    }

    /// Tells what the last metadata names and the file lacks.
    fn compare(&mut self, metadata: &PlainThread) {
        for tip in &metadata.branches {
            let at = self.by_id.get(&tip.id).and_then(|at| self.branches.get(*at));
            let (reason, is_told) = match at {
                None => (format!("branch {} is missing", tip.id), false),
                Some(branch) if branch.found.tip < tip.tip => {
                    let (from, to) = (branch.found.tip + 1, tip.tip);
                    (format!("depths {from} to {to} of branch {} are missing", tip.id), branch.is_cut)
                }
                Some(branch) if !branch.has(tip.tip, tip.hash) => {
                    (format!("branch {} has another item at depth {}", tip.id, tip.tip), false)
                }
                Some(_) => continue,
            };
            if !is_told {
                self.problem(self.metadata_line, reason);
            }
        }
    }

    /// The head that was named, if it is there; else the last item that is.
    fn head(&self, metadata: &PlainThread) -> Option<PlainHead> {
        if self.newest.is_some() {
            return self.newest;
        }
        let named = metadata.head?;
        let own = metadata.branches.iter().any(|tip| tip.id == named.branch) || self.by_id.contains_key(&named.branch);
        let is_there = self.has(Address { branch: named.branch, depth: named.depth });
        match own && !is_there {
            true => self.nearest(named).or(self.last_placed),
            false => Some(named),
        }
    }

    /// The last item that is left of the head's branch.
    fn nearest(&self, head: PlainHead) -> Option<PlainHead> {
        let found = &self.by_id.get(&head.branch).and_then(|at| self.branches.get(*at))?.found;
        Some(PlainHead { branch: found.id, depth: found.tip, hash: found.tip_hash })
    }

    /// Keeps the turns whose items are there.
    fn keep_turns(&mut self, metadata: &mut PlainThread) {
        let expected = metadata.turn_lines.map_or(0, |(count, _)| count);
        let mut turns = std::mem::take(&mut self.turns);
        turns.retain(|ordinal, (line, turn)| {
            turn.last = turn.last.filter(|last| self.has(*last));
            let keeps = self.has(turn.first);
            if !keeps {
                self.problem(*line, format!("turn {ordinal} has no place: its first item was lost"));
            }
            keeps
        });
        let last = turns.last_key_value().map_or(0, |(ordinal, _)| *ordinal);
        if self.metadata_line > 0 && (turns.len() as u64) < expected {
            self.problem(self.metadata_line, format!("{} of {expected} turns are there", turns.len()));
        }
        metadata.turns = if self.metadata_line > 0 { metadata.turns.max(last) } else { last };
        metadata.open_turn = metadata.open_turn.filter(|open| turns.contains_key(open));
        self.turns = turns;
    }
}

/// The whole lines of a file whose kinds are not known here, as far as it can be read: none of a link, or of what is not there.
pub(crate) fn unknown_lines(path: &Path) -> Vec<Vec<u8>> {
    let Ok(mut lines) = Lines::open(path) else { return Vec::new() };
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    while let Ok(Some(_)) = lines.next(&mut bytes) {
        let records = format::records(&bytes).0.into_iter().map(|(_, record)| record);
        found.extend(records.filter(|record| format::is_unknown(record)).map(|record| [record, b"\n"].concat()));
    }
    found
}

/// The thread that a file is of: by its first line, else by its metadata, else by its name. Where lines of several threads got into
/// a file, the one that it is named after counts.
pub(crate) fn identify(path: &Path) -> Result<ThreadId> {
    let mut lines = Lines::open(path)?;
    let (mut bytes, mut is_ours, mut tried) = (Vec::new(), false, 0_u64);
    let (name, mut first) = (files::thread_of(path), None);
    // What can't be read any further is told when the file is read.
    while let Ok(Some(_)) = lines.next(&mut bytes) {
        for (_, record) in format::records(&bytes).0 {
            is_ours = true;
            let thread = match format::parse(record) {
                Ok(Line::Header(header)) => header.thread,
                Ok(Line::Metadata(metadata)) => metadata.thread,
                Ok(Line::Newer(found)) if first.is_none() => {
                    let path = path.display().to_string();
                    return Err(Error::RolloutTooNew { path, found, known: format::VERSION });
                }
                _ => continue,
            };
            if name.as_ref() == Some(&thread) {
                return Ok(thread);
            }
            first = first.or(Some(thread));
        }
        tried += 1;
        if !is_ours && tried >= 8 {
            break;
        }
    }
    let named = first.or(name.filter(|_| is_ours));
    named.ok_or_else(|| Error::invalid("rollout", format!("{} is no rollout of Threadkeep", path.display())))
}

/// The lines of a file, compressed or not.
pub(crate) struct Lines {
    input: Input,
    /// Where the next line begins, counted in bytes that are not compressed.
    offset: u64,
    number: u64,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("offset", &self.offset).finish_non_exhaustive()
    }
}

enum Input {
    Plain(BufReader<File>),
    Compressed(Box<Frames>),
}

impl Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Plain(input) => input.fill_buf(),
            Self::Compressed(input) => input.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match self {
            Self::Plain(input) => input.consume(bytes),
            Self::Compressed(input) => input.consume(bytes),
        }
    }

    /// Whether something before what comes next could not be read.
    fn goes_on_behind(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Compressed(input) => input.goes_on_behind(),
        }
    }
}

/// Where a line stands.
pub(crate) struct LinePlace {
    pub(crate) number: u64,
    offset: u64,
    pub(crate) is_ended: bool,
    is_too_long: bool,
    /// Whether what stood behind it can't be decompressed.
    is_broken: bool,
}

impl Lines {
    /// Opens a file, never through a link.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = files::open(path)?;
        let input = match files::is_compressed(path) {
            false => Input::Plain(BufReader::with_capacity(1 << 16, file)),
            true => Input::Compressed(Box::new(Frames::open(file).map_err(|error| Error::io("read", path, &error))?)),
        };
        Ok(Self { input, offset: 0, number: 0 })
    }

    /// The lines from a place on; reading that went on to there goes on.
    fn at(open: Option<Self>, path: &Path, offset: u64) -> Result<Self> {
        let mut lines = match open {
            Some(lines) if lines.offset <= offset || matches!(lines.input, Input::Plain(_)) => lines,
            _ => Self::open(path)?,
        };
        let failed = |error: io::Error| Error::io("read", path, &error);
        if let Input::Plain(input) = &mut lines.input {
            if lines.offset != offset {
                input.seek(SeekFrom::Start(offset)).map_err(failed)?;
            }
        } else {
            let mut ahead = usize::try_from(offset.saturating_sub(lines.offset)).unwrap_or(usize::MAX);
            while ahead > 0 {
                let found = lines.input.fill_buf().map_err(failed)?.len().min(ahead);
                lines.input.consume(found);
                ahead -= found;
                if found == 0 && !lines.input.goes_on_behind() {
                    break;
                }
            }
        }
        lines.offset = offset;
        Ok(lines)
    }

    /// Reads the next line without its end. A line that is too long is passed over.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> Result<Option<LinePlace>> {
        line.clear();
        let offset = self.offset;
        let (mut is_ended, mut is_too_long, mut is_broken) = (false, false, false);
        loop {
            let failed = |error: io::Error| Error::corrupt("rollout", error.to_string());
            let bytes = self.input.fill_buf().map_err(failed)?;
            if bytes.is_empty() {
                is_broken = self.input.goes_on_behind();
                break;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (part, used) = match end {
                Some(end) => (bytes.get(..end).unwrap_or_default(), end + 1),
                None => (bytes, bytes.len()),
            };
            if line.len() + part.len() > MAX_LINE_BYTES {
                is_too_long = true;
                line.clear();
            }
            if !is_too_long {
                line.extend_from_slice(part);
            }
            self.input.consume(used);
            self.offset += used as u64;
            if end.is_some() {
                is_ended = true;
                break;
            }
        }
        if self.offset == offset && !is_broken {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(LinePlace { number: self.number, offset, is_ended, is_too_long, is_broken }))
    }
}
