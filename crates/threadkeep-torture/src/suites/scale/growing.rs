//! The processes that make a store grow, and that read it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{AppendOptions, Durability, Error, ItemQuery, ListQuery, NewItem, NewThread, Role, Thread, ThreadId};

use crate::child::{most_memory, say};
use crate::plan::Random;
use crate::{Result, ground};

const ITEM_BYTES: u64 = 1 << 10;
const BATCH: u64 = 256;
const PAGE: usize = 50;
/// So many lists and ends of threads are read.
const LOOKS: u64 = 200;
const WORDS: [&str; 16] = [
    "error",
    "the",
    "cart",
    "returns",
    "file",
    "src/checkout.rs",
    "fails",
    "with",
    "a",
    "test",
    "line",
    "unwrap",
    "price",
    "which",
    "adds",
    "after",
];

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Threads of so many bytes.
    Threads,
    /// One thread of so many bytes.
    Thread,
    /// Forks of one thread of so many bytes, each in another place of it.
    Forks,
    /// Forks, each of the one before it.
    ForksOfForks,
    /// Copies in the place of forks: the sabotage of the control.
    Copies,
    /// Items of so many bytes, one by one.
    Deltas,
}

impl Part {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Thread => "one thread",
            Self::Forks => "forks of one thread",
            Self::ForksOfForks => "forks of forks",
            Self::Copies => "copies",
            Self::Deltas => "small deltas",
        }
    }

    pub(super) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Makes a store grow, or reads what has grown.
#[derive(Debug, clap::Args)]
pub(crate) struct Grow {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    part: Part,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    bytes: u64,
    #[arg(long)]
    read: bool,
}

/// `F` tells a figure, `G` what a fork adds in bytes, `M` the memory that was held, `V` what is not there, `Z` that it is done.
pub(crate) fn play_growing(args: &Grow) -> Result<()> {
    let told = |error: Error| format!("{}: {error}", error.kind());
    let store = Store::open(ground::options(&args.store).map_err(told)?.label("growing")).map_err(told)?;
    let place = store.workspace(Path::new("/threadkeep-torture")).map_err(told)?;
    let stand = Stand { store, place, args, text: Text(Random::from_seed(args.count ^ args.bytes)) };
    if args.read { stand.read() } else { stand.write() }.map_err(told)?;
    say(format_args!("M {}", most_memory()?));
    say("Z");
    Ok(())
}

struct Stand<'a> {
    store: Store,
    place: Workspace,
    args: &'a Grow,
    text: Text,
}

impl Stand<'_> {
    fn write(mut self) -> threadkeep::Result<()> {
        let Grow { part, count, bytes, .. } = *self.args;
        let (begun, before) = (Instant::now(), written());
        match part {
            Part::Threads => {
                for number in 0..count {
                    self.thread(number, bytes)?;
                }
            }
            Part::Thread => drop(self.thread(0, bytes)?),
            Part::Forks | Part::ForksOfForks | Part::Copies => return self.forks(part, count, bytes),
            Part::Deltas => self.deltas(count, bytes)?,
        }
        self.store.sync()?;
        let (took, wrote) = (begun.elapsed().as_secs_f64(), written().saturating_sub(before));
        let payload = count * bytes;
        say(format_args!("F {:.1} s for {} MiB", took, payload >> 20));
        say(format_args!("F {:.1} bytes written for each", ratio(wrote, payload)));
        Ok(())
    }

    /// Writes a thread of about so many bytes.
    fn thread(&mut self, number: u64, bytes: u64) -> threadkeep::Result<ThreadId> {
        let live = self.place.create_now(NewThread { id: Some(named(number)?), ..NewThread::default() })?;
        let mut left = bytes.div_ceil(ITEM_BYTES);
        while left > 0 {
            let size = left.min(BATCH);
            let items = (0..size).map(|_| self.text.item(ITEM_BYTES)).collect();
            live.append_with(items, AppendOptions { durability: Durability::Written, ..AppendOptions::default() })?;
            left -= size;
            say("B");
        }
        live.shutdown()?;
        Ok(live.id().clone())
    }

    fn forks(mut self, part: Part, count: u64, bytes: u64) -> threadkeep::Result<()> {
        let trunk = self.thread(0, bytes)?;
        let before = self.size()?;
        let mut parent = trunk.clone();
        for number in 1..=count {
            let depth = self.text.0.below(bytes.div_ceil(ITEM_BYTES));
            if part == Part::Copies {
                self.thread(number, bytes)?;
                continue;
            }
            let at = self.store.address_at(&parent, u32::try_from(depth).unwrap_or(0))?;
            let at = Some(at).filter(|_| part == Part::Forks);
            let fork = self.store.fork(&parent, at, NewThread { id: Some(named(number)?), ..NewThread::default() })?;
            if part == Part::ForksOfForks {
                // Each has something of its own, so that the next one stands on all of them.
                let live = self.store.resume(&fork.id, false)?;
                live.append(vec![NewItem::message(Role::User, format!("fork {number}"))])?;
                live.shutdown()?;
                parent = fork.id;
            }
        }
        say(format_args!("G {}", self.size()?.saturating_sub(before) / count));
        Ok(())
    }

    /// The bytes of the store's data, with nothing left in its log.
    fn size(&self) -> threadkeep::Result<u64> {
        self.store.sync()?;
        self.store.compact()?;
        let files = std::fs::read_dir(&self.args.store).into_iter().flatten().flatten();
        Ok(files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum())
    }

    fn deltas(&mut self, count: u64, bytes: u64) -> threadkeep::Result<()> {
        let live = self.place.create_now(NewThread { id: Some(named(0)?), ..NewThread::default() })?;
        for number in 0..count {
            let options = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
            live.append_with(vec![self.text.item(bytes)], options)?;
            if number % 1_000 == 0 {
                say("B");
            }
        }
        live.shutdown()
    }

    fn read(mut self) -> threadkeep::Result<()> {
        let Grow { part, count, bytes, .. } = *self.args;
        let first = timed(|| self.page(None).map(drop))?;
        say(format_args!("F first list {}", millis(first)));
        let mut lists = Vec::new();
        let (mut threads, mut cursor) = (Vec::new(), None);
        loop {
            let begun = Instant::now();
            let (entries, next) = self.page(cursor)?;
            lists.push(begun.elapsed());
            threads.extend(
                entries.into_iter().map(|thread| (thread.id, thread.head.map_or(0, |head| u64::from(head.depth) + 1))),
            );
            match next {
                None => break,
                next => cursor = next,
            }
        }
        say(format_args!("F list p99 {}", millis(p99(&mut lists))));
        let expected = match part {
            Part::Thread | Part::Deltas => 1,
            Part::Threads => count,
            Part::Forks | Part::ForksOfForks | Part::Copies => count + 1,
        };
        if threads.len() as u64 != expected {
            say(format_args!("V {} of {expected} threads are listed", threads.len()));
        }
        let each = if part == Part::Deltas { count } else { bytes.div_ceil(ITEM_BYTES) };
        let trunk = named(0)?;
        let short = |(id, items): &&(ThreadId, u64)| (part != Part::Forks || *id == trunk) && *items < each;
        if let Some((id, items)) = threads.iter().find(short) {
            say(format_args!("V {id} has {items} of {each} items"));
        }
        let mut tails = Vec::new();
        for _ in 0..LOOKS.min(count * 20) {
            let chosen = usize::try_from(self.text.0.below(threads.len() as u64)).unwrap_or(0);
            let Some((thread, items)) = threads.get(chosen) else { continue };
            let query = ItemQuery { limit: PAGE, newest_first: true, ..ItemQuery::default() };
            let begun = Instant::now();
            let page = self.store.items(thread, query)?;
            tails.push(begun.elapsed());
            if (page.entries.len() as u64) < (*items).min(PAGE as u64) {
                say(format_args!("V the end of {thread} has {} items", page.entries.len()));
            }
        }
        say(format_args!("F tail p99 {}", millis(p99(&mut tails))));
        if part != Part::Threads {
            let verdict = self.store.verify(&trunk)?;
            if !verdict.is_intact() || verdict.items != each {
                say(format_args!("V {trunk} has {} of {each} items: {:?}", verdict.items, verdict.invalid));
            }
        }
        Ok(())
    }

    fn page(&self, cursor: Option<String>) -> threadkeep::Result<(Vec<Thread>, Option<String>)> {
        let page = self.store.list(ListQuery { limit: PAGE, cursor, ..ListQuery::default() })?;
        Ok((page.entries, page.next_cursor))
    }
}

/// Words as a person and a program write them, which can be packed about as well.
struct Text(Random);

impl Text {
    fn item(&mut self, bytes: u64) -> NewItem {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            let word = WORDS.get(usize::try_from(self.0.below(WORDS.len() as u64 + 4)).unwrap_or(0));
            match word {
                Some(word) => text.push_str(word),
                None => text.push_str(&format!("{:x}", self.0.below(1 << 32))),
            }
            text.push(' ');
        }
        text.truncate(bytes);
        NewItem::message(Role::Assistant, text)
    }
}

fn named(number: u64) -> threadkeep::Result<ThreadId> {
    ThreadId::new(format!("t-{number}"))
}

/// What this process gave to the system to be written.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn timed(run: impl FnOnce() -> threadkeep::Result<()>) -> threadkeep::Result<Duration> {
    let begun = Instant::now();
    run()?;
    Ok(begun.elapsed())
}

fn p99(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get((times.len() * 99 / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other.max(1) as f64
}
