//! Runs of a store that are recorded, call by call, and played back to every state that a power cut could leave.
//!
//! Beside `I` and `A` for items, `O` says a fact that must hold from now on, and `Q` one that holds wherever its thread is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{AppendOptions, Durability, NewThread, StoreOptions};

use crate::Result;
use crate::child::say;
use crate::plan::Random;
use crate::work;

/// The thread that most scripts write; its lane is 0.
pub(crate) const MAIN: &str = "main";
/// A second one; its lane is 1.
pub(crate) const SECOND: &str = "second";
/// One that is deleted and purged.
pub(crate) const VICTIM: &str = "victim";
/// One whose claim is taken over, which leaves an item of the store's own in it.
pub(crate) const TAKEN: &str = "taken";
/// Threads that are made by a script.
pub(crate) const MADE: [&str; 2] = ["created", "forked"];

/// A number from which on an item is large enough to be stored apart, in a batch of two.
const BEFORE_LARGE: u64 = 39;

/// Runs one script.
#[derive(Debug, clap::Args)]
pub(crate) struct Script {
    #[arg(long)]
    name: String,
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    life: u64,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How long the script is, where that can be chosen.
    #[arg(long, default_value_t = 0)]
    steps: u64,
}

/// Plays the script.
pub(crate) fn play(args: &Script) -> Result<()> {
    let told = |error: threadkeep::Error| format!("{}: {}: {error}", args.name, error.kind());
    perform(args).map_err(told)?;
    say("Z");
    Ok(())
}

fn open(args: &Script) -> threadkeep::Result<Store> {
    Store::open(StoreOptions::folder(&args.store).label("script"))
}

fn perform(args: &Script) -> threadkeep::Result<()> {
    match args.name.as_str() {
        "init" => init(args),
        "append" => appends(args),
        "batch" => batches(args),
        "levels" => levels(args),
        "abandon" => abandon(args),
        "lifecycle" => lifecycle(args),
        "claims" => claims(args),
        "restore" => restore(args),
        _ => mixed(args),
    }
}

fn init(args: &Script) -> threadkeep::Result<()> {
    let store = open(args)?;
    say(format_args!("O store {}", store.id()));
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    say(format_args!("O there {MAIN}"));
    pen.append(1, Durability::Synced)?;
    pen.append(2, Durability::Synced)?;
    pen.live.shutdown()
}

fn appends(args: &Script) -> threadkeep::Result<()> {
    let store = open(args)?;
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    (0..6).try_for_each(|_| pen.append(1, Durability::Synced))?;
    pen.live.shutdown()
}

fn batches(args: &Script) -> threadkeep::Result<()> {
    let store = open(args)?;
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    (0..3).try_for_each(|_| pen.append(3, Durability::Synced))?;
    pen.next = BEFORE_LARGE;
    pen.append(2, Durability::Synced)?;
    pen.append(3, Durability::Synced)?;
    pen.live.shutdown()
}

/// Appends at all levels, and the log is brought into the database and begun anew between them.
fn levels(args: &Script) -> threadkeep::Result<()> {
    let store = open(args)?;
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    for mode in ["PASSIVE", "RESTART", "PASSIVE", "TRUNCATE"] {
        pen.append(1, Durability::Synced)?;
        pen.append(1, Durability::Written)?;
        pen.append(2, Durability::Queued)?;
        pen.append(1, Durability::Written)?;
        checkpoint(&args.store, mode);
        pen.append(1, Durability::Queued)?;
        pen.flush()?;
        pen.append(1, Durability::Written)?;
    }
    pen.flush()?;
    pen.live.shutdown()
}

/// Writes what need not survive, and ends without a word to the store: its files stay as they are.
fn abandon(args: &Script) -> threadkeep::Result<()> {
    let store = open(args)?;
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    for _ in 0..args.steps {
        pen.append(1, Durability::Written)?;
    }
    std::process::exit(0)
}

fn lifecycle(args: &Script) -> threadkeep::Result<()> {
    let store = open(args)?;
    let [created, forked] = MADE;
    let new = |id: &str| Ok(NewThread { id: Some(threadkeep::ThreadId::new(id)?), ..NewThread::default() });
    let workspace = store.workspace(Path::new("/threadkeep-torture"))?;
    workspace.create_now(new(created)?)?.shutdown()?;
    say(format_args!("O there {created}"));
    let count = store.items(&threadkeep::ThreadId::new(MAIN)?, threadkeep::ItemQuery::default())?.entries.len();
    say(format_args!("Q {forked} {count}"));
    store.fork(&threadkeep::ThreadId::new(MAIN)?, None, new(forked)?)?;
    say(format_args!("O there {forked}"));
    let victim = threadkeep::ThreadId::new(VICTIM)?;
    store.delete(&victim)?;
    say(format_args!("O trashed {VICTIM}"));
    store.purge(&victim)?;
    say(format_args!("O purged {VICTIM}"));
    // The fork survives its parent's rewriting.
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    pen.append(1, Durability::Synced)?;
    say(format_args!("O either {created}"));
    store.delete(&threadkeep::ThreadId::new(created)?)?;
    say(format_args!("O trashed {created}"));
    pen.live.shutdown()
}

fn claims(args: &Script) -> threadkeep::Result<()> {
    let (store, other) = (open(args)?, open(args)?);
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    pen.append(1, Durability::Synced)?;
    pen.live.shutdown()?;
    pen.live = work::claim(&other, &threadkeep::ThreadId::new(MAIN)?)?;
    pen.append(1, Durability::Synced)?;
    pen.live.shutdown()?;
    let taken = threadkeep::ThreadId::new(TAKEN)?;
    let holder = store.resume(&taken, false)?;
    let item = |number| work::items(args.life, 9, number, 1);
    let kept = holder.append(item(0))?;
    kept.items.iter().for_each(|item| say(format_args!("O item {TAKEN} {}", item.id)));
    let thief = other.take_over(&taken, "the suite wants it", false)?;
    say(format_args!("O note {TAKEN}"));
    if holder.append(item(1)).is_ok() {
        say(format_args!("V two-writers {TAKEN}"));
    }
    let kept = thief.append(item(2))?;
    kept.items.iter().for_each(|item| say(format_args!("O item {TAKEN} {}", item.id)));
    thief.shutdown()
}

/// A backup is made, and put in the place of the store.
fn restore(args: &Script) -> threadkeep::Result<()> {
    let backup = args.store.with_file_name("backup.db");
    let store = open(args)?;
    let mut pen = Pen::take(&store, args, MAIN, 0)?;
    pen.append(1, Durability::Synced)?;
    pen.live.shutdown()?;
    drop(pen);
    store.backup(&backup)?;
    drop(store);
    Store::restore_backup(StoreOptions::folder(&args.store).label("script"), &backup)?;
    say(format_args!("O there {MAIN}"));
    let store = open(args)?;
    let mut pen = Pen { next: 1, ..Pen::take(&store, args, MAIN, 0)? };
    pen.append(1, Durability::Synced)?;
    pen.live.shutdown()
}

/// Many operations on two threads, of all kinds that an agent makes, in an order of chance.
fn mixed(args: &Script) -> threadkeep::Result<()> {
    let mut random = Random::from_seed(args.seed);
    let store = open(args)?;
    let mut pens = [Pen::take(&store, args, MAIN, 0)?, Pen::take(&store, args, SECOND, 1)?];
    for _ in 0..args.steps {
        let number = usize::try_from(random.below(2)).unwrap_or(0);
        let Some(pen) = pens.get_mut(number) else { continue };
        match random.below(40) {
            0..=15 => pen.append(random.below(3) + 1, Durability::Synced)?,
            16..=25 => pen.append(random.below(3) + 1, Durability::Written)?,
            26..=32 => pen.append(1, Durability::Queued)?,
            33..=36 => pen.flush()?,
            37 => {
                pen.flush()?;
                pen.live.shutdown()?;
                pen.live = work::claim(&store, &threadkeep::ThreadId::new(pen.thread)?)?;
            }
            _ => {
                let mode = ["PASSIVE", "RESTART", "TRUNCATE"].get(usize::try_from(random.below(3)).unwrap_or(0));
                checkpoint(&args.store, mode.copied().unwrap_or("PASSIVE"));
            }
        }
    }
    for pen in &mut pens {
        pen.flush()?;
        pen.live.shutdown()?;
    }
    Ok(())
}

/// Brings the log into the database, as far as nobody is in the way.
fn checkpoint(store: &Path, mode: &str) {
    let Ok(connection) = rusqlite::Connection::open(store.join("threadkeep.db")) else { return };
    drop(connection.busy_timeout(Duration::from_secs(1)));
    drop(connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get::<_, i64>(0)));
}

/// A thread that is written, and what of it was not yet acknowledged as synced.
struct Pen {
    live: LiveThread,
    thread: &'static str,
    lane: u64,
    life: u64,
    next: u64,
    unsynced: Vec<(u64, u64)>,
}

impl Pen {
    fn take(store: &Store, args: &Script, thread: &'static str, lane: u64) -> threadkeep::Result<Self> {
        let live = work::claim(store, &threadkeep::ThreadId::new(thread)?)?;
        Ok(Self { live, thread, lane, life: args.life, next: 0, unsynced: Vec::new() })
    }

    /// What is not synced is not yet said to be kept: after a power cut it may be missing, from its end.
    fn append(&mut self, size: u64, durability: Durability) -> threadkeep::Result<()> {
        let (first, thread) = (self.next, self.thread);
        self.next += size;
        say(format_args!("I {thread} {first} {size}"));
        let options = AppendOptions { durability, ..AppendOptions::default() };
        let appended = self.live.append_with(work::items(self.life, self.lane, first, size), options)?;
        if durability == Durability::Synced {
            self.settle();
            let hash = appended.items.last().map(|item| item.hash.to_string()).unwrap_or_default();
            say(format_args!("A {thread} {first} {size} {hash}"));
        } else {
            self.unsynced.push((first, size));
        }
        Ok(())
    }

    fn flush(&mut self) -> threadkeep::Result<()> {
        self.live.flush()?;
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        for (first, size) in self.unsynced.drain(..) {
            say(format_args!("A {} {first} {size}", self.thread));
        }
    }
}
