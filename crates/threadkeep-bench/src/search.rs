//! P6: searching a corpus of conversations, beside a plain FTS5 table and `rg` over the same items.

mod floors;
mod questions;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Address, AppendOptions, Details, Durability, NewItem, NewThread, Role, SearchQuery, StoreOptions, ThreadId,
};

use self::floors::{Lines, Plain};
use self::questions::{Question, Set};
use crate::corpus::{Conversation, Corpus, NEAR, WORKSPACES};
use crate::measure::{count, cpu_now, quantile};
use crate::plan::Plan;
use crate::report::{Report, Target, time};
use crate::{Result, machine};

const SEED: u64 = 7;
/// Items of one append.
const BATCH: usize = 1_000;
/// Nobody waits so long for an index that is built.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(3_600);
const MEGABYTE: f64 = 1e6;
const MEBIBYTE: f64 = 1_048_576.0;

/// What was searched, and how often.
struct Sizes {
    items: u32,
    text: f64,
    turns: usize,
}

/// What one side of a set took.
#[derive(Default)]
struct Side {
    wall: Vec<f64>,
    /// On all threads of this process: what another process does for it is not in it.
    cpu: Vec<f64>,
    asked: usize,
    found: usize,
}

/// P6: the index and its building, the searches, and finding what was just appended.
///
/// # Errors
/// As the store, SQLite and the disk, and when a search does not find what is there.
pub fn searching(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let corpus = Corpus::new(SEED, plan.sizes.corpus);
    let folder = root.join("store");
    let start = Instant::now();
    let text = fill(&corpus, root, &folder)?;
    let sizes = Sizes { items: corpus.items(), text, turns: plan.sizes.turns };
    report.note(format!(
        "P6: {} items of {:.0} MB of text in {} threads, appended in batches in {}",
        sizes.items,
        text / MEGABYTE,
        corpus.len(),
        time(start.elapsed().as_secs_f64())
    ));
    let store = Store::open(StoreOptions::folder(&folder))?;
    let plain = Plain::fill(&corpus, &root.join("plain.db"))?;
    index(&store, &folder, &plain, &sizes, report)?;
    let lines = Lines::write(&corpus, &root.join("lines"))?;
    if lines.is_none() {
        report.note("P6: there is no `rg` (the package `ripgrep`), so that it is not compared with");
    }
    let sets = questions::sets(&corpus, plan.sizes.questions)?;
    let mut all = Side::default();
    for set in &sets {
        all.add(ask(&store, &plain, lines.as_ref(), set, sizes.turns, report)?);
    }
    for (what, thousandths, bound) in [("median", 500, 20e-3), ("95th percentile", 950, 60e-3)] {
        let [figure, cpu] = [&all.wall, &all.cpu].map(|seconds| quantile(seconds, thousandths));
        let what = format!("the {what} of all these searches");
        let ours = format!("{} ({} CPU)", time(figure), time(cpu));
        report.time("P6", what, (ours, String::new()), figure, Target::AtMost(bound));
    }
    after_append(plan, root, &store, &plain, report)
}

/// Writes the corpus into a store as agents would, but in batches; gives the bytes of its text.
fn fill(corpus: &Corpus, root: &Path, folder: &Path) -> Result<f64> {
    let store = Store::open(StoreOptions::folder(folder))?;
    let mut workspaces = Vec::new();
    for number in 0..WORKSPACES {
        let place = root.join(format!("workspace-{number}"));
        std::fs::create_dir(&place)?;
        workspaces.push(store.workspace(&place)?);
    }
    // Where the own items of the last conversations stand, for their forks.
    let mut places: VecDeque<(u32, Vec<Address>)> = VecDeque::new();
    let mut text = 0;
    for conversation in corpus.conversations() {
        let workspace = workspaces.get(conversation.workspace).ok_or("a workspace that there is not")?;
        let live = begin(workspace, &conversation, &places)?;
        let items: Vec<NewItem> = conversation.items.iter().map(crate::corpus::Entry::to_item).collect();
        text += conversation.items.iter().map(|item| item.view.to_text().len()).sum::<usize>();
        let options = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
        let mut own = Vec::with_capacity(items.len());
        for batch in items.chunks(BATCH) {
            let appended = live.append_with(batch.to_vec(), options)?;
            own.extend(appended.items.iter().map(threadkeep::AppendedItem::address));
        }
        places.push_back((conversation.number, own));
        if places.len() > NEAR {
            places.pop_front();
        }
    }
    store.sync()?;
    Ok(count(text))
}

/// A thread of its own, or a fork of one before.
fn begin(
    workspace: &Workspace,
    conversation: &Conversation,
    places: &VecDeque<(u32, Vec<Address>)>,
) -> Result<LiveThread> {
    let id = Some(thread_id(conversation.number)?);
    let title = Some(conversation.title.clone());
    let details = Details { title, agent: Some("codex".to_owned()), ..Details::default() };
    let thread = NewThread { id, details, ..NewThread::default() };
    let Some((from, depth)) = conversation.fork else { return Ok(workspace.create(thread)?) };
    let own = places.iter().find(|(number, _)| *number == from).map(|(_, own)| own);
    let at = own.and_then(|own| own.get(usize::try_from(depth).ok()?).or(own.last())).copied();
    let forked = workspace.fork(&thread_id(from)?, at, thread)?;
    Ok(workspace.resume(&forked.id, false)?)
}

fn thread_id(number: u32) -> Result<ThreadId> {
    Ok(questions::thread_name(number).parse()?)
}

/// Builds the index, and tells what it took.
fn index(store: &Store, folder: &Path, plain: &Plain, sizes: &Sizes, report: &mut Report) -> Result<()> {
    let before = machine::memory()?;
    let start = Instant::now();
    let query = SearchQuery { patience: AS_LONG_AS_IT_TAKES, ..SearchQuery::new("index") };
    let page = store.search(query)?;
    let seconds = start.elapsed().as_secs_f64();
    if !page.notices.is_empty() {
        return Err(format!("the index is not whole: {:?}", page.notices).into());
    }
    let side = |items: f64, seconds: f64| {
        let speed = sizes.text / MEGABYTE / seconds;
        format!("{} ({:.0} items/s, {speed:.1} MB/s)", time(seconds), items / seconds)
    };
    let items = f64::from(sizes.items);
    let what = format!(
        "indexing {} items of {:.0} MB of text (floor: a plain FTS5 table)",
        sizes.items,
        sizes.text / MEGABYTE
    );
    let sides = (side(items, seconds), side(items, plain.seconds));
    report.compare("P6", what, sides, seconds / plain.seconds, Target::None);
    let bytes = bytes_in(&folder.join("search"))?;
    let sides = (format!("{:.0} MB", bytes / MEGABYTE), format!("{:.0} MB", plain.bytes / MEGABYTE));
    report.compare("P6", "… the index against the text", sides, bytes / sizes.text, Target::AtMost(0.8));
    if let (Some(before), Some(after)) = (before, machine::memory()?) {
        let grown = (after.peak - before.now) / MEBIBYTE;
        let what = "… how much memory it took, in MiB";
        let sides = (format!("{grown:.0} MiB"), String::new());
        report.number("P6", what, sides, grown, Target::AtMost(100.0));
    }
    Ok(())
}

/// Asks the questions of a set; gives how long ours took.
fn ask(
    store: &Store,
    plain: &Plain,
    lines: Option<&Lines>,
    set: &Set,
    turns: usize,
    report: &mut Report,
) -> Result<Side> {
    let (mut ours, mut bare, mut grep) = (Side::default(), Side::default(), Side::default());
    for question in &set.questions {
        // The first one warms up.
        search(store, question)?;
        for _ in 0..turns {
            ours.time(|| search(store, question))?;
        }
        bare.time(|| plain.search(question))?;
        if let (Some(lines), Some(pattern)) = (lines, &question.grep) {
            grep.time(|| lines.search(pattern))?;
        }
    }
    let floor = if grep.asked == 0 { bare.show() } else { format!("{}; rg {}", bare.show(), grep.show()) };
    let slow = quantile(&ours.wall, 950);
    report.time("P6", format!("… {}", set.name), (ours.show_with_cpu(), floor), slow, Target::None);
    Ok(ours)
}

/// Gives how many threads were found.
fn search(store: &Store, question: &Question) -> Result<usize> {
    let page = store.search(SearchQuery::new(&question.ours))?;
    match page.not_understood.as_slice() {
        [] => Ok(page.threads.len()),
        words => Err(format!("`{}` was not understood: {words:?}", question.ours).into()),
    }
}

/// What was just appended is found by the next search.
fn after_append(plan: &Plan, root: &Path, store: &Store, plain: &Plain, report: &mut Report) -> Result<()> {
    let live = store.workspace(root)?.create_now(NewThread::default())?;
    let options = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    let (mut ours, mut bare) = (Side::default(), Side::default());
    for number in 0..plan.sizes.synced {
        let word = format!("needle{number}inhay");
        let text = format!("Now we look for the {word} that was just appended.");
        live.append_with(vec![NewItem::message(Role::User, text.as_str())], options)?;
        plain.append(&text)?;
        let question = Question::of(&word);
        ours.time(|| search(store, &question))?;
        bare.time(|| plain.search(&question))?;
    }
    if ours.found < ours.asked {
        return Err(format!("{} of {} were not found", ours.asked - ours.found, ours.asked).into());
    }
    let slow = quantile(&ours.wall, 950);
    let what = "… the first search after an append, for what was appended";
    report.time("P6", what, (ours.show_with_cpu(), bare.show()), slow, Target::AtMost(60e-3));
    Ok(())
}

impl Side {
    fn time(&mut self, call: impl FnOnce() -> Result<usize>) -> Result<()> {
        let (start, cpu) = (Instant::now(), cpu_now());
        let found = call()?;
        self.wall.push(start.elapsed().as_secs_f64());
        self.cpu.push(cpu_now() - cpu);
        self.asked += 1;
        self.found += usize::from(found > 0);
        Ok(())
    }

    fn add(&mut self, mut other: Self) {
        self.wall.append(&mut other.wall);
        self.cpu.append(&mut other.cpu);
    }

    /// The median and the 95th percentile, and how many searches found something if not all did.
    fn show(&self) -> String {
        let both = |seconds: &[f64]| format!("{} / {}", time(quantile(seconds, 500)), time(quantile(seconds, 950)));
        match self.found == self.asked {
            true => both(&self.wall),
            false => format!("{}, {} of {} found", both(&self.wall), self.found, self.asked),
        }
    }

    /// The same with the CPU time.
    fn show_with_cpu(&self) -> String {
        format!("{} ({} CPU)", self.show(), time(quantile(&self.cpu, 500)))
    }
}

fn bytes_in(folder: &Path) -> Result<f64> {
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(folder)? {
        bytes += as_f64(entry?.metadata()?.len());
    }
    Ok(bytes)
}

pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}
