//! T12: the clock stands still, steps back and leaps ahead, and decides nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use threadkeep::blocking::Store;
use threadkeep::{Error, Host, ItemQuery, ListQuery, ProjectFacts, StoreOptions, SystemHost, Timestamp};

use crate::checker::{self, Depth};
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::{Result, work};

const DAY: i64 = 86_400_000;
pub(crate) const YEAR: i64 = 365 * DAY;
const THREADS: [(&str, u64); 3] = [("lane-0", 0), ("lane-1", 1), ("lane-2", 2)];
const APPENDS: u64 = 60;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let mut random = plan.random("clock");
    let patterns = plan.pick(12, 60, 300);
    let mut misled = 0;
    for number in 0..patterns {
        let folder = plan::fast_folder()?;
        let mut tally = Tally::default();
        let played = pattern(plan, &folder.path().join("store"), number, &mut random, &mut tally);
        outcome.tally.absorb(tally, &format!("pattern {number}"));
        misled += u64::from(played?);
    }
    outcome.figure("patterns", patterns);
    outcome.figure("appends under each", APPENDS);
    outcome.control(format!("ordering by time, wrong in {misled} patterns"), misled > 0);
    Ok(())
}

/// A machine whose clock is set by hand, and may go on at every look at it.
#[derive(Debug)]
pub(crate) struct Jumping {
    now: AtomicI64,
    pace: i64,
}

impl Host for Jumping {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.fetch_add(self.pace, Ordering::SeqCst))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        SystemHost.fill_random(buffer);
    }

    fn machine(&self) -> String {
        SystemHost.machine()
    }

    fn hostname(&self) -> String {
        SystemHost.hostname()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        SystemHost.project(path)
    }
}

impl Jumping {
    /// A clock that stands at this time.
    pub(crate) fn at(millis: i64) -> Self {
        Self { now: AtomicI64::new(millis), pace: 0 }
    }

    /// A clock that goes on by so many milliseconds at every look at it, from now on.
    pub(crate) fn hasty(pace: i64) -> Self {
        Self { now: AtomicI64::new(SystemHost.now().0), pace }
    }

    fn step(&self, number: u64, random: &mut Random) {
        let steps = [0, 1, -1, -1_000, 40_000, -DAY, DAY, 10 * YEAR, -10 * YEAR];
        let chosen = steps.get(usize::try_from(random.below(steps.len() as u64)).unwrap_or(0)).copied().unwrap_or(0);
        match number % 4 {
            // It stands still.
            0 => {}
            1 => drop(self.now.fetch_add(-1_000, Ordering::SeqCst)),
            2 => drop(self.now.fetch_add(chosen, Ordering::SeqCst)),
            _ => self.now.store(if random.below(2) == 0 { 0 } else { 200 * YEAR }, Ordering::SeqCst),
        }
    }
}

/// Writes under one pattern and judges; says whether ordering by time would have been wrong.
fn pattern(plan: &Plan, folder: &Path, number: u64, random: &mut Random, tally: &mut Tally) -> Result<bool> {
    let told = |error: Error| format!("{}: {error}", error.kind());
    let host = Arc::new(Jumping::at(56 * YEAR));
    let open = || Store::open(StoreOptions::folder(folder).label("clock").host(Arc::<Jumping>::clone(&host)));
    let (store, rival) = (open().map_err(told)?, open().map_err(told)?);
    let mut journal = Journal::default();
    let mut lives = Vec::new();
    for (thread, lane) in THREADS {
        journal.open(thread, lane);
        lives.push((work::claim(&store, &work::thread_id(thread)?).map_err(told)?, thread, lane, 0));
    }
    let mut last = "";
    for _ in 0..APPENDS {
        host.step(number, random);
        let chosen = random.below(lives.len() as u64);
        let chosen = lives.get_mut(usize::try_from(chosen).unwrap_or(0));
        let Some((live, thread, lane, next)) = chosen else { continue };
        let first = next.to_string();
        journal.hear(thread, 1, &["I", thread, &first, "1"]);
        let appended = live.append(work::items(1, *lane, *next, 1)).map_err(told)?;
        let hash = appended.items.last().map(|item| item.hash.to_string()).unwrap_or_default();
        journal.hear(thread, 1, &["A", thread, &first, "1", &hash]);
        (*next, last) = (*next + 1, *thread);
        // A holder that was silent since then still lives.
        host.step(number, random);
        match rival.resume(&work::thread_id(thread)?, false) {
            Err(Error::ClaimHeld { .. }) => {}
            Ok(_) => tally.add(Rule::TwoWriters, format!("{thread} was taken from its holder by a step of the clock")),
            Err(error) => return Err(told(error)),
        }
    }
    judge_lists(&store, last, tally).map_err(told)?;
    let misled = THREADS.iter().any(|(thread, _)| is_out_of_time(&store, thread).unwrap_or(false));
    drop((lives, rival, store));
    checker::judge(plan, folder, &mut journal, Depth { verify: true, ..Depth::default() }, tally);
    Ok(misled)
}

/// The thread that was written last is the latest, and pages show each thread once.
fn judge_lists(store: &Store, last: &str, tally: &mut Tally) -> threadkeep::Result<()> {
    let latest = store.latest()?.map(|id| id.to_string()).unwrap_or_default();
    if latest != last {
        tally.add(Rule::Misbehaved, format!("the latest thread is {latest}, the last append went to {last}"));
    }
    let (mut seen, mut query) = (Vec::new(), ListQuery { limit: 1, ..ListQuery::default() });
    loop {
        let page = store.list(query.clone())?;
        seen.extend(page.entries.into_iter().map(|thread| thread.id.to_string()));
        match page.next_cursor {
            None => break,
            cursor => query.cursor = cursor,
        }
    }
    if seen.first().map(String::as_str) != Some(last) {
        tally.add(Rule::Misbehaved, format!("the list begins with {seen:?}, the last append went to {last}"));
    }
    seen.sort();
    if seen != THREADS.map(|(thread, _)| thread) {
        tally.add(Rule::Misbehaved, format!("the pages of a list show {seen:?}"));
    }
    Ok(())
}

/// Whether the times of a thread's items do not rise.
fn is_out_of_time(store: &Store, thread: &str) -> Result<bool> {
    let query = ItemQuery { limit: 2_000, ..ItemQuery::default() };
    let page = store.items(&work::thread_id(thread)?, query).map_err(|error| error.to_string())?;
    let times: Vec<Timestamp> = page.entries.iter().map(|item| item.created_at).collect();
    Ok(!times.is_sorted())
}
