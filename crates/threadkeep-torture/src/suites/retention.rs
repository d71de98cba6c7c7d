//! T01: processes are killed while retention runs, and the store is kept.
//!
//! In each round two processes run retention for ever, and two write: each holds a thread, begins others, small ones and some that are
//! purged in many steps, pins some and forks some; then each is killed. The judge looks that every thread that was acknowledged is whole,
//! listed or in the trash, or gone with a receipt and a purge on record; that what was pinned while it was listed is listed; that forks
//! have all that they share; and that another run completes what was begun.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use threadkeep::blocking::Store;
use threadkeep::{
    Error, ListQuery, NewItem, NewThread, Protection, ReceiptQuery, RetainOptions, RetentionRules, RetentionStep, Role,
    Shelf, Shelves, ThreadId, ThreadPatch,
};

use crate::Result;
use crate::child::{Child, say};
use crate::ground::{self, Ground};
use crate::oracle::{Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};

const WRITERS: u64 = 2;
const RETAINERS: u64 = 2;
/// So many threads a run leaves.
const LEFT: u64 = 8;
/// One thread in so many is so long that it is purged in several steps, each of up to 500 items.
const LONG: u64 = 16;
const LONG_ITEMS: usize = 1_200;
/// One that lies purges each of so many threads by itself.
const LIES: u64 = 3;
/// After so many violations more of them say nothing new.
const ENOUGH: u64 = 3;

/// A process that runs retention for ever.
#[derive(Debug, Args)]
pub(crate) struct KeepRetaining {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    life: u64,
}

/// A process that begins threads for ever.
#[derive(Debug, Args)]
pub(crate) struct Fill {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    life: u64,
    /// Takes threads away and puts nothing on record.
    #[arg(long)]
    lie: bool,
}

/// Works until it is killed.
pub(crate) fn play_retaining(args: &KeepRetaining) -> Result<()> {
    let told = |error: Error| error.to_string();
    let options = ground::options(&args.store).map_err(told)?.label(label(args.life));
    let store = Store::open(options).map_err(told)?;
    say("R");
    loop {
        let report = store.retain(by_rules()).map_err(told)?;
        say(format_args!("D {} {}", report.trashed.len(), report.purged.len()));
    }
}

/// Works until it is killed. `N` says which thread has how many items, `P` which one is pinned while it is listed, and `F` which fork
/// has how many.
pub(crate) fn play_filling(args: &Fill) -> Result<()> {
    let told = |error: Error| error.to_string();
    let options = ground::options(&args.store).map_err(told)?.label(label(args.life));
    let store = Store::open(options).map_err(told)?;
    let place = store.workspace(Path::new("/threadkeep-torture")).map_err(told)?;
    let new = |name: String| NewThread { id: Some(named(&name)), ..NewThread::default() };
    let held = place.create_now(new(format!("held-{}", args.life))).map_err(told)?;
    say("R");
    for number in 0_u64.. {
        let live = place.create_now(new(format!("t-{}-{number}", args.life))).map_err(told)?;
        let count = if number % LONG == LONG - 1 { LONG_ITEMS } else { 1 + usize::try_from(number % 5).unwrap_or(0) };
        live.append((0..count).map(|item| NewItem::message(Role::User, format!("{number} {item}"))).collect())
            .map_err(told)?;
        live.shutdown().map_err(told)?;
        say(format_args!("N {} {count}", live.id()));
        // The thread that this process holds is the one that was active longest ago.
        let found = store.get(held.id()).map_err(told)?;
        if found.shelf != Shelf::Active {
            return Err(format!("{} was taken from a living process", held.id()));
        }
        if args.lie && number % LIES == 0 {
            // Whoever came first.
            drop(store.delete(live.id()).and_then(|_| store.purge(live.id())));
        }
        match number % 11 {
            3 => pin(&store, live.id()).map_err(told)?,
            7 => fork(&store, live.id(), &format!("f-{}-{number}", args.life)).map_err(told)?,
            _ => {}
        }
    }
    Ok(())
}

/// Pins a thread, if it is still there.
fn pin(store: &Store, thread: &ThreadId) -> threadkeep::Result<()> {
    match store.update(thread, ThreadPatch { pinned: Some(true), ..ThreadPatch::default() }) {
        Ok(pinned) if pinned.shelf == Shelf::Active => say(format_args!("P {thread}")),
        Ok(_) | Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Forks a thread, if it is still there, and pins the fork.
fn fork(store: &Store, thread: &ThreadId, name: &str) -> threadkeep::Result<()> {
    let fork = match store.fork(thread, None, NewThread { id: Some(named(name)), ..NewThread::default() }) {
        Ok(fork) => fork,
        Err(Error::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let shared = fork.head.map_or(0, |head| head.depth + 1);
    match store.update(&fork.id, ThreadPatch { pinned: Some(true), ..ThreadPatch::default() }) {
        Ok(_) => say(format_args!("F {} {shared}", fork.id)),
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn by_rules() -> RetainOptions {
    let rules = RetentionRules {
        max_count: Some(LEFT),
        grace: Duration::ZERO,
        trash_grace: Some(Duration::from_millis(3)),
        ..RetentionRules::default()
    };
    RetainOptions { rules: Some(rules), ..RetainOptions::default() }
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let kills = if plan.server.is_some() { plan.pick(16, 240, 800) } else { plan.pick(60, 1_000, 4_000) };
    let mut run = Run::new(plan, plan.ground()?, false)?;
    while run.kills < kills && run.tally.total() < ENOUGH {
        run.round()?;
    }
    outcome.figure("kills", run.kills);
    outcome.figure("threads acked", run.items.len());
    outcome.figure("gone with a receipt", run.gone.len());
    outcome.figure("pinned", run.pinned.len());
    outcome.figure("forks", run.forks.len());
    outcome.figure("purges completed", run.completed);
    outcome.tally.absorb(run.tally, "retention");
    if outcome.tally.total() >= ENOUGH {
        return Ok(());
    }
    let mut control = Run::new(plan, plan.ground()?, true)?;
    let mut is_seen = false;
    for _ in 0..5 {
        control.round()?;
        is_seen |= control.tally.count(Rule::AckedLost) > 0;
    }
    outcome.control("threads that somebody takes away and puts on no record".to_owned(), is_seen);
    Ok(())
}

struct Run<'a> {
    plan: &'a Plan,
    random: Random,
    store: PathBuf,
    _ground: Ground,
    lie: bool,
    life: u64,
    kills: u32,
    /// How many items each thread has that was acknowledged.
    items: BTreeMap<ThreadId, u64>,
    pinned: BTreeSet<ThreadId>,
    forks: BTreeMap<ThreadId, u64>,
    /// Purged threads; they are looked at once.
    gone: BTreeSet<ThreadId>,
    completed: usize,
    tally: Tally,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, ground: Ground, lie: bool) -> Result<Self> {
        let store = ground.store("store");
        let begin = || Store::open(ground::options(&store)?)?.workspace(Path::new("/threadkeep-torture")).map(drop);
        begin().map_err(|error: Error| format!("the store can't be begun: {error}"))?;
        Ok(Self {
            plan,
            random: plan.random("retention"),
            store,
            _ground: ground,
            lie,
            life: 0,
            kills: 0,
            items: BTreeMap::new(),
            pinned: BTreeSet::new(),
            forks: BTreeMap::new(),
            gone: BTreeSet::new(),
            completed: 0,
            tally: Tally::default(),
        })
    }

    fn round(&mut self) -> Result<()> {
        let mut workers = Vec::new();
        for number in 0..WRITERS + RETAINERS {
            self.life += 1;
            let mut command = Command::new(&self.plan.program);
            command.arg(if number < WRITERS { "fill" } else { "keep-retaining" }).arg("--store").arg(&self.store);
            command.arg("--life").arg(self.life.to_string());
            if self.lie && number < WRITERS {
                command.arg("--lie");
            }
            workers.push((self.life, Child::start(command)?));
        }
        for (life, worker) in &workers {
            match worker.hear_until("R") {
                Ok(_) => {}
                Err(words) => self.tally.add(Rule::Misbehaved, format!("worker {life}: {words}")),
            }
        }
        self.random.shuffle(&mut workers);
        for (life, worker) in workers {
            // Each write takes longer there.
            let patience = if self.plan.server.is_some() { 500_000 } else { 120_000 };
            std::thread::sleep(Duration::from_micros(self.random.below(patience)));
            let lines = worker.kill();
            self.hear(life, &lines);
            self.kills += 1;
            ground::bury(&self.store, &label(life))?;
        }
        self.judge().map_err(|error| format!("the judge can't go on: {error}"))
    }

    fn hear(&mut self, life: u64, lines: &[String]) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["N", id, count] => drop(self.items.insert(named(id), count.parse().unwrap_or(0))),
                ["P", id] => drop(self.pinned.insert(named(id))),
                ["F", id, count] => drop(self.forks.insert(named(id), count.parse().unwrap_or(0))),
                ["X", ..] => self.tally.add(Rule::Misbehaved, format!("worker {life} without a fault: {line}")),
                _ => {}
            }
        }
    }

    /// Compares what is stored with what was said, before another run and after it.
    fn judge(&mut self) -> threadkeep::Result<()> {
        let store = Store::open(ground::options(&self.store)?.label("judge"))?;
        self.judge_threads(&store)?;
        // What was begun is completed, and then there is no more to take.
        let first = store.retain(by_rules())?;
        // But for what stayed for a fork that then went itself: the next run takes that, and nothing else.
        let second = store.retain(by_rules())?;
        self.completed += first.purged.len() + second.purged.len();
        let forked: BTreeSet<_> =
            first.kept.iter().filter(|it| it.why == Protection::Forked).map(|it| &it.thread).collect();
        let late = second.trashed.iter().filter(|it| !forked.contains(&it.thread)).count();
        if late > 0 {
            self.tally.add(Rule::Unequal, format!("a run left {late} threads that no fork kept"));
        }
        let trash = self.judge_shelves(&store)?;
        let again = store.retain(RetainOptions { dry_run: true, ..by_rules() })?;
        if !again.trashed.is_empty() {
            self.tally
                .add(Rule::Unequal, format!("two runs left {} threads that they should take", again.trashed.len()));
        }
        // A stub is left for what threads share, and what is listed keeps those that it shares with.
        let (stubs, trashed) = (store.stats()?.stubs, i64::try_from(trash).unwrap_or(i64::MAX));
        if stubs > trashed {
            self.tally.add(Rule::Phantom, format!("{stubs} stubs are left, and {trashed} threads are in the trash"));
        }
        self.judge_threads(&store)?;
        let verified = store.verify_all(|_| {})?;
        for (thread, _) in verified.invalid {
            self.tally.add(Rule::Altered, format!("{thread} does not verify"));
        }
        Ok(())
    }

    /// Every thread that was acknowledged is whole, or gone with a receipt and a purge on record.
    fn judge_threads(&mut self, store: &Store) -> threadkeep::Result<()> {
        let forks = self.forks.iter().map(|(id, count)| (id.clone(), *count, true));
        let all: Vec<_> = self.items.iter().map(|(id, count)| (id.clone(), *count, false)).chain(forks).collect();
        for (thread, count, is_fork) in all {
            if self.gone.contains(&thread) {
                continue;
            }
            match store.get(&thread) {
                Ok(found) => {
                    let depth = found.head.map_or(0, |head| u64::from(head.depth) + 1);
                    if depth != count {
                        self.tally.add(Rule::AckedLost, format!("{thread} has {depth} items of {count}"));
                    }
                    if self.pinned.contains(&thread) && found.shelf != Shelf::Active {
                        self.tally.add(Rule::AckedLost, format!("{thread} was pinned and is {:?}", found.shelf));
                    }
                }
                Err(Error::NotFound { .. }) => {
                    let query = ReceiptQuery { thread: Some(thread.clone()), ..ReceiptQuery::default() };
                    let last = store.retention_receipts(query)?.entries.into_iter().next();
                    let is_named = last.is_some_and(|it| it.step == RetentionStep::Purged && it.record.is_some());
                    if !is_named {
                        self.tally.add(Rule::AckedLost, format!("{thread} is gone, and no receipt says so"));
                    }
                    if self.pinned.contains(&thread) || is_fork {
                        self.tally.add(Rule::AckedLost, format!("{thread} was pinned and is gone"));
                    }
                    self.gone.insert(thread);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What is in the trash was put there by a run that says so; gives how many threads that are.
    fn judge_shelves(&mut self, store: &Store) -> threadkeep::Result<usize> {
        let mut query = ListQuery { shelves: Shelves::Trash, limit: 500, ..ListQuery::default() };
        let mut found = 0;
        loop {
            let page = store.list(query.clone())?;
            found += page.entries.len();
            for thread in &page.entries {
                let of_it = ReceiptQuery { thread: Some(thread.id.clone()), limit: 1, cursor: None };
                let last = store.retention_receipts(of_it)?.entries.into_iter().next();
                if last.is_none_or(|it| it.step != RetentionStep::Trashed) && !self.lie {
                    let words = format!("{} is in the trash, and no receipt says so", thread.id);
                    self.tally.add(Rule::AckedLost, words);
                }
            }
            match page.next_cursor {
                None => return Ok(found),
                cursor => query.cursor = cursor,
            }
        }
    }
}

fn label(life: u64) -> String {
    format!("retention-{life}")
}

#[expect(clippy::expect_used, reason = "the names are written here")]
fn named(id: &str) -> ThreadId {
    ThreadId::new(id).expect("a name of a thread")
}
