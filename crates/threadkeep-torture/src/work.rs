//! What writers, readers, importers and checkpointers do until they end or are killed.
//!
//! A writer says every step: `I` before a batch is given to the store, `A` when it was acknowledged, `E` when it failed, `N` when it was
//! refused, as it had to be.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    AppendOptions, Durability, Error, ItemId, ItemQuery, Kind, ListQuery, NewItem, NewThread, Role, ThreadId, Uuid,
};
use threadkeep_agents::import::{ImportOptions, Importer};

use crate::Result;
use crate::child::say;
use crate::ground;

/// How often a step that failed is tried again in the same process.
const ATTEMPTS: usize = 5;
/// How long is waited before that.
const PAUSE: Duration = Duration::from_millis(20);
/// Who was kept waiting for so long tries no further.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reader stays in one state of the store.
const HOLD: Duration = Duration::from_millis(300);
const FORMAT: &str = "text";
/// New items of a batch that must be refused.
const SPOILED: u64 = 2;

/// Writes threads until it is killed, or a number of batches.
#[derive(Debug, clap::Args)]
pub(crate) struct Write {
    #[arg(long)]
    store: PathBuf,
    /// `thread=lane`, one writing thread for each.
    #[arg(long, value_delimiter = ',')]
    lanes: Vec<String>,
    #[arg(long)]
    life: u64,
    #[arg(long, default_value = "synced")]
    level: String,
    /// 0 goes on for ever.
    #[arg(long, default_value_t = 0)]
    batches: u64,
    /// Waits for a word before it writes.
    #[arg(long)]
    wait: bool,
    /// Gives batches between that must be refused as a whole, for an item in them that is there already.
    #[arg(long)]
    spoil: bool,
    /// Acknowledges before it gives the batch to the store: the sabotage of the controls.
    #[arg(long)]
    lie: bool,
    /// Goes on after an append that took long.
    #[arg(long)]
    patient: bool,
    /// Has the store open twice, in the one process.
    #[arg(long)]
    again: bool,
    /// Writes until it is told to end.
    #[arg(long)]
    until_told: bool,
    /// How long it rests after each append, in milliseconds.
    #[arg(long, default_value_t = 0)]
    rest: u64,
    /// What others can read of its files, in octal.
    #[arg(long)]
    umask: Option<String>,
}

/// Reads threads that others write, until it is killed.
#[derive(Debug, clap::Args)]
pub(crate) struct Read {
    #[arg(long)]
    store: PathBuf,
    #[arg(long, value_delimiter = ',')]
    threads: Vec<String>,
}

/// Checkpoints the log through a connection of its own, until it is killed.
/// Imports a folder of files that grow, again and again, until it is killed.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    folder: PathBuf,
    /// Imports once, and compares what is stored with the files, byte by byte.
    #[arg(long)]
    compare: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Checkpoint {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    mode: String,
}

/// The id of an item says whose it is, so that one that was never issued is told.
pub(crate) fn item_id(life: u64, lane: u64, number: u64) -> ItemId {
    ItemId::from_uuid(Uuid::from_u64_pair((life << 16) | lane, number))
}

/// The life and the lane that an id names.
pub(crate) fn origin(id: ItemId) -> (u64, u64) {
    let (high, _) = id.as_uuid().as_u64_pair();
    (high >> 16, high & 0xffff)
}

/// What the item holds: short and long, some of it large enough to be stored apart.
pub(crate) fn content(life: u64, lane: u64, number: u64) -> Vec<u8> {
    let length = if number % 41 == 40 { 70_000 } else { usize::try_from(number * 131 % 1_500).unwrap_or(0) };
    let word = format!("{life}/{lane}/{number} ");
    word.bytes().cycle().take(word.len() + length).collect()
}

/// The items of a batch.
pub(crate) fn items(life: u64, lane: u64, first: u64, size: u64) -> Vec<NewItem> {
    let item = |number| NewItem {
        role: Some(Role::User),
        ..NewItem::raw(Kind::Message, FORMAT, content(life, lane, number)).with_id(item_id(life, lane, number))
    };
    (first..first + size).map(item).collect()
}

/// A thread id of the suites' own.
pub(crate) fn thread_id(text: &str) -> Result<ThreadId> {
    ThreadId::new(text).map_err(|error| error.to_string())
}

/// The words for an error that ends a step.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn told(error: Error) -> String {
    format!("{}: {error}", error.kind())
}

/// Opens a store; tries again in the same process where a fault may have passed.
pub(crate) fn open(folder: &Path, label: &str) -> Result<Store> {
    patiently("open", || Store::open(ground::options(folder)?.label(label)))
}

/// Tries a step until it succeeds or has failed too often. `W` says how it failed.
fn patiently<T>(what: &str, mut step: impl FnMut() -> threadkeep::Result<T>) -> Result<T> {
    let (mut last, begun) = (String::new(), Instant::now());
    for _ in 0..ATTEMPTS {
        match step() {
            Ok(done) => return Ok(done),
            Err(error) => {
                last = format!("{what}: {}: {error}", error.kind());
                say(format_args!("W {what} {} {error}", error.kind()));
                if begun.elapsed() > PATIENCE {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
    Err(last)
}

/// Takes the thread, or creates it where there is none.
pub(crate) fn claim(store: &Store, thread: &ThreadId) -> threadkeep::Result<LiveThread> {
    match store.resume(thread, false) {
        Err(Error::NotFound { .. }) => {
            let new = NewThread { id: Some(thread.clone()), ..NewThread::default() };
            store.workspace(Path::new("/threadkeep-torture"))?.create_now(new)
        }
        other => other,
    }
}

/// Waits until whoever started this process says a word; without anybody there it goes on.
fn wait_for_a_word() {
    let mut byte = [0];
    drop(std::io::stdin().read(&mut byte));
}

/// What a writer calls itself.
pub(crate) fn writer(life: u64) -> String {
    format!("writer-{life}")
}

/// Plays the writer.
pub(crate) fn play_writer(args: &Write) -> Result<()> {
    if let Some(umask) = &args.umask {
        let bits = u32::from_str_radix(umask, 8).map_err(|error| error.to_string())?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(bits));
    }
    let store = open(&args.store, &writer(args.life))?;
    let mut lives = Vec::new();
    for name in &args.lanes {
        let (thread, lane) = name.split_once('=').ok_or("a lane is thread=number")?;
        let lane: u64 = lane.parse().map_err(|_| "a lane is thread=number")?;
        let id = thread_id(thread)?;
        lives.push((patiently("claim", || claim(&store, &id))?, lane));
    }
    let again = if args.again { Some(open(&args.store, "again")?) } else { None };
    say("R");
    if args.wait {
        wait_for_a_word();
    }
    let told = Arc::new(AtomicBool::new(false));
    if args.until_told {
        let told = Arc::clone(&told);
        std::thread::spawn(move || {
            wait_for_a_word();
            told.store(true, Ordering::SeqCst);
        });
    }
    let outcome = std::thread::scope(|scope| {
        let running: Vec<_> =
            lives.iter().map(|(live, lane)| scope.spawn(|| Lane::new(live, *lane, args, &told).write())).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a writer panicked".to_owned())))
    });
    outcome?;
    drop(lives);
    drop((store, again));
    say("Z");
    Ok(())
}

/// One thread that is written, and what the store kept of it after failures.
struct Lane<'a> {
    live: &'a LiveThread,
    lane: u64,
    args: &'a Write,
    told: &'a AtomicBool,
    kept: Vec<(u64, u64)>,
    waits: Vec<Duration>,
    /// When something was acknowledged last, and the longest time between two of these.
    acked: Instant,
    gap: Duration,
}

impl<'a> Lane<'a> {
    fn new(live: &'a LiveThread, lane: u64, args: &'a Write, told: &'a AtomicBool) -> Self {
        let (acked, gap) = (Instant::now(), Duration::ZERO);
        Self { live, lane, args, told, kept: Vec::new(), waits: Vec::new(), acked, gap }
    }

    fn write(mut self) -> Result<()> {
        let mut first = 0;
        let mut batch = 0;
        while (self.args.batches == 0 || batch < self.args.batches) && !self.told.load(Ordering::SeqCst) {
            let size = batch % 3 + 1;
            self.append(first, size, batch);
            if self.args.spoil && batch % 4 == 1 {
                self.spoil(first, first + size);
                first += SPOILED;
            }
            first += size;
            batch += 1;
            std::thread::sleep(Duration::from_millis(self.args.rest));
            if !self.args.patient && self.waits.last().is_some_and(|wait| *wait > PATIENCE) {
                break;
            }
        }
        let mut lost = None;
        let flushed = patiently("flush", || {
            // What was written and not synced may be lost by the disk, which is told once.
            self.live.flush().inspect_err(|error| lost = (!error.is_retryable()).then(|| error.clone()).or(lost.take()))
        });
        match lost {
            Some(error) => self.give_up(&error),
            None if flushed.is_ok() => self.settle(),
            None => {}
        }
        self.say_waits();
        flushed?;
        say(format_args!("F {}", self.live.id()));
        patiently("shutdown", || self.live.shutdown())?;
        say(format_args!("D {}", self.live.id()));
        Ok(())
    }

    fn append(&mut self, first: u64, size: u64, batch: u64) {
        let items = items(self.args.life, self.lane, first, size);
        let thread = self.live.id();
        say(format_args!("I {thread} {first} {size}"));
        if self.args.lie {
            say(format_args!("A {thread} {first} {size}"));
        }
        let begun = Instant::now();
        match self.args.level.as_str() {
            "queued" => self.append_queued(items, first, size, batch),
            level => {
                let durability = if level == "written" { Durability::Written } else { Durability::Synced };
                let appended = self.live.append_with(items, AppendOptions { durability, ..AppendOptions::default() });
                self.waits.push(begun.elapsed());
                match appended {
                    Ok(appended) => {
                        self.gap = self.gap.max(self.acked.elapsed());
                        self.acked = Instant::now();
                        self.settle();
                        let hash = appended.items.last().map(|item| item.hash.to_string()).unwrap_or_default();
                        say(format_args!("A {thread} {first} {size} {hash}"));
                    }
                    Err(error) => self.fail(&error, first, size),
                }
            }
        }
    }

    /// Gives new items together with one that was just stored.
    fn spoil(&self, stored: u64, first: u64) {
        let batch = |first, size| items(self.args.life, self.lane, first, size);
        let (thread, spoiled) = (self.live.id(), [batch(first, SPOILED), batch(stored, 1)].concat());
        say(format_args!("I {thread} {first} {SPOILED}"));
        match self.live.append(spoiled) {
            Ok(_) => say(format_args!("A {thread} {first} {SPOILED}")),
            Err(Error::AlreadyExists { .. }) => say(format_args!("N {thread} {first} {SPOILED}")),
            Err(error) => say(format_args!("E {thread} {first} {SPOILED} final {} {error}", error.kind())),
        }
    }

    /// What is queued is acknowledged by the flush after it.
    fn append_queued(&mut self, items: Vec<NewItem>, first: u64, size: u64, batch: u64) {
        let options = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
        let outcome = self.live.append_with(items, options);
        self.kept.push((first, size));
        let flushed = if batch % 4 == 3 { outcome.and_then(|_| self.live.flush()) } else { outcome.map(drop) };
        match flushed {
            Ok(()) if batch % 4 == 3 => self.settle(),
            Ok(()) => {}
            Err(error) => {
                self.kept.pop();
                self.fail(&error, first, size);
            }
        }
    }

    /// The store took what it had kept: its promise is that it did so before anything newer.
    fn settle(&mut self) {
        for (first, size) in self.kept.drain(..) {
            say(format_args!("A {} {first} {size}", self.live.id()));
        }
    }

    fn fail(&mut self, error: &Error, first: u64, size: u64) {
        let (thread, kind) = (self.live.id(), error.kind());
        if error.is_retryable() {
            say(format_args!("E {thread} {first} {size} kept {kind} {error}"));
            self.kept.push((first, size));
        } else if self.kept.is_empty() {
            say(format_args!("E {thread} {first} {size} final {kind} {error}"));
        } else {
            drop(self.live.take_unsaved());
            self.kept.push((first, size));
            self.give_up(error);
        }
    }

    /// Which of the kept ones was refused or lost is not told, so none of them is counted on.
    fn give_up(&mut self, error: &Error) {
        let (thread, kind) = (self.live.id(), error.kind());
        for (first, size) in self.kept.drain(..) {
            say(format_args!("E {thread} {first} {size} given-up {kind} {error}"));
        }
    }

    fn say_waits(&mut self) {
        self.waits.sort_unstable();
        let at = |share: usize| self.waits.get(self.waits.len() * share / 100).map_or(0, Duration::as_micros);
        let longest = self.waits.last().map_or(0, Duration::as_micros);
        say(format_args!("L {} {} {} {} {longest}", self.live.id(), self.waits.len(), at(50), at(99)));
        say(format_args!("G {} {}", self.live.id(), self.gap.max(self.acked.elapsed()).as_millis()));
    }
}

/// Plays the reader. `V` says what must not be.
pub(crate) fn play_reader(args: &Read) -> Result<()> {
    let store = open(&args.store, "reader")?;
    let threads: Vec<ThreadId> = args.threads.iter().map(|text| thread_id(text)).collect::<Result<_>>()?;
    for thread in &threads {
        match store.resume(thread, false) {
            Err(Error::ClaimHeld { .. }) => {}
            Ok(_) => say(format_args!("V two-writers {thread} could be claimed beside its live writer")),
            Err(error) => say(format_args!("V claim {thread}: {}: {error}", error.kind())),
        }
    }
    say("R");
    loop {
        for thread in &threads {
            let query = ItemQuery { limit: 64, newest_first: true, ..ItemQuery::default() };
            match store.items(thread, query) {
                Ok(page) => {
                    let depths: Vec<u32> = page.entries.iter().map(|item| item.depth).collect();
                    if depths.windows(2).any(|pair| matches!(pair, [upper, lower] if lower + 1 != *upper)) {
                        say(format_args!("V hole {thread}: a page has the depths {depths:?}"));
                    }
                }
                Err(error) => say(format_args!("V read {thread}: {}: {error}", error.kind())),
            }
        }
        if let Err(error) = store.list(ListQuery { limit: 50, ..ListQuery::default() }) {
            say(format_args!("V list {}: {error}", error.kind()));
        }
    }
}

/// Plays the importer. `V` says what must not be.
pub(crate) fn play_importer(args: &Import) -> Result<()> {
    let store = open(&args.store, "importer")?;
    say("R");
    loop {
        let imported =
            Importer::new(&store, ImportOptions::default()).run(std::slice::from_ref(&args.folder), &mut |_| {});
        match imported {
            Ok(report) if report.problems.is_empty() => {}
            Ok(report) => say(format_args!("V {:?}", report.problems)),
            Err(error) => say(format_args!("V import: {error}")),
        }
        if args.compare {
            compare_files(&store, &args.folder)?;
            say("Z");
            return Ok(());
        }
    }
}

fn compare_files(store: &Store, folder: &Path) -> Result<()> {
    let told = |error: Error| format!("{}: {error}", error.kind());
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
        let path = entry.and_then(|entry| entry.path().canonicalize()).map_err(|error| error.to_string())?;
        let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
        let name = path.display().to_string();
        let Some(source) = store.source(&name).map_err(told)? else {
            say(format_args!("V {name} is not stored"));
            continue;
        };
        let (mut stored, mut after) = (vec![b'\n'; bytes.len()], -1);
        loop {
            let parts = store.source_parts(&name, after, 500).map_err(told)?;
            let Some(last) = parts.last() else { break };
            after = last.position;
            for part in &parts {
                let begin = usize::try_from(part.position).map_err(|error| error.to_string())?;
                match stored.get_mut(begin..begin + part.bytes.len()) {
                    Some(place) => place.copy_from_slice(&part.bytes),
                    None => say(format_args!("V {name}: a part at {begin} is not in the file")),
                }
            }
        }
        if stored != bytes {
            say(format_args!("V {name}: other bytes are stored"));
        }
        let Some(thread) = source.thread else {
            say(format_args!("V {name} belongs to no thread"));
            continue;
        };
        let verdict = store.verify(&thread).map_err(told)?;
        if !verdict.is_intact() {
            say(format_args!("V {thread}: {:?}", verdict.invalid));
        }
    }
    Ok(())
}

/// Plays the checkpointer.
pub(crate) fn play_checkpointer(args: &Checkpoint) -> Result<()> {
    let database = args.store.join("threadkeep.db");
    let connection = rusqlite::Connection::open(database).map_err(|error| error.to_string())?;
    // One that waits for readers would keep the writers out meanwhile, and there would be no storm.
    connection.busy_timeout(Duration::ZERO).map_err(|error| error.to_string())?;
    let sql = format!("PRAGMA wal_checkpoint({})", args.mode);
    say("R");
    loop {
        if args.mode == "hold" {
            // A reader that stays in one state of the store keeps the log from starting anew.
            drop(connection.execute_batch("BEGIN; SELECT count(*) FROM threads;"));
            std::thread::sleep(HOLD);
            drop(connection.execute_batch("COMMIT"));
            std::thread::sleep(PAUSE);
            continue;
        }
        // Busy is the usual answer, and no fault.
        drop(connection.query_row(&sql, [], |row| row.get::<_, i64>(0)));
        std::thread::sleep(Duration::from_millis(1));
    }
}
