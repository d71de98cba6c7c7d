//! T01: processes that keep rollouts while they write are killed, and their files are cut as a loss of power may cut them.
//!
//! After each kill no rollout may hold what the store does not have. Whoever opens the store next brings every file up: then
//! each is whole, and ends where its thread ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{Error, ListQuery, LiveRollouts, RolloutReport, Shelves, StoreOptions, Thread};

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::ground::{self, Ground};
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::Writing;
use crate::suites::kills::hear_all;
use crate::work;

const WRITERS: u64 = 2;
const LEVELS: [&str; 3] = ["synced", "written", "queued"];
/// After so many violations more of them say nothing new.
const ENOUGH: u64 = 3;
/// So many bytes are cut from a file at most.
const MOST_CUT: u64 = 6_000;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let kills = if plan.server.is_some() { plan.pick(10, 200, 1_000) } else { plan.pick(12, 600, 4_000) };
    let mut run = Run::new(plan)?;
    while run.kills < kills && run.tally.total() < ENOUGH {
        run.round()?;
    }
    outcome.figure("kills", run.kills);
    outcome.figure("rollouts that lagged", run.lagged);
    outcome.figure("rollouts that were cut", run.cut);
    outcome.figure("items in rollouts", run.items);
    let (is_cut_seen, is_lead_seen) = (run.control()?, run.control_of_leading()?);
    outcome.tally.absorb(run.tally, "mirror");
    outcome.control("a rollout that was cut and not brought up".to_owned(), is_cut_seen);
    outcome.control("rollouts beside a store that has nothing of them".to_owned(), is_lead_seen);
    Ok(())
}

struct Run<'a> {
    plan: &'a Plan,
    random: Random,
    /// Kept for as long as its store is used.
    _ground: Ground,
    store: PathBuf,
    rollouts: PathBuf,
    life: u64,
    kills: u32,
    lagged: u64,
    cut: u64,
    items: u64,
    journal: Journal,
    tally: Tally,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let ground = plan.ground()?;
        let (store, rollouts) = (ground.store("store"), ground.folder().join("rollouts"));
        let mut journal = Journal::default();
        for lane in 0..WRITERS * 2 {
            journal.open(&thread(lane), lane);
        }
        let opened = Store::open(ground::options(&store).map_err(told)?).map_err(told)?;
        opened.set_live_rollouts(Some(&rollouts)).map_err(told)?;
        let (random, tally) = (plan.random("mirror"), Tally::default());
        Ok(Self {
            plan,
            random,
            _ground: ground,
            store,
            rollouts,
            life: 0,
            kills: 0,
            lagged: 0,
            cut: 0,
            items: 0,
            journal,
            tally,
        })
    }

    fn round(&mut self) -> Result<()> {
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            writers.push(self.start(number)?);
        }
        for (_, child) in &writers {
            if let Err(words) = child.hear_until("R") {
                self.tally.add(Rule::Misbehaved, format!("a writer without a fault: {words}"));
            }
        }
        std::thread::sleep(Duration::from_micros(self.random.below(150_000)));
        self.random.shuffle(&mut writers);
        for (life, child) in writers {
            hear_all(&mut self.journal, life, &child.kill());
            self.kills += 1;
            ground::bury(&self.store, &work::writer(life))?;
        }
        self.judge_before()?;
        if self.random.below(2) == 0 {
            self.cut_one()?;
        }
        checker::judge(self.plan, &self.store, &mut self.journal, Depth::default(), &mut self.tally);
        self.judge_after()
    }

    fn start(&mut self, number: u64) -> Result<(u64, Child)> {
        self.life += 1;
        let level = LEVELS.get(usize::try_from(self.random.below(3)).unwrap_or(0)).copied().unwrap_or("synced");
        let lanes: Vec<String> =
            [number * 2, number * 2 + 1].iter().map(|lane| format!("{}={lane}", thread(*lane))).collect();
        let writing = Writing { lanes: &lanes.join(","), life: self.life, level, batches: 0, lie: false };
        Ok((self.life, Child::start(writing.command(self.plan, &self.store))?))
    }

    /// No rollout holds what the store does not have, whatever it lacks.
    fn judge_before(&mut self) -> Result<()> {
        let store = self.open(LiveRollouts::Off)?;
        for words in self.leading(&store)? {
            self.tally.add(Rule::Phantom, words);
        }
        self.lagged += self.unequal(&store)?.len() as u64;
        Ok(())
    }

    /// The rollouts that end with an item which the store does not have.
    fn leading(&self, store: &Store) -> Result<Vec<String>> {
        let mut leading = Vec::new();
        for report in self.reports()? {
            let (Some(head), Some(hash)) = (report.head, report.head_hash) else { continue };
            match store.item(&report.thread, head) {
                Ok(item) if item.hash == hash => {}
                Ok(_) | Err(Error::NotFound { .. }) => {
                    leading.push(format!("a rollout of {} leads: the store lacks {head}", report.thread));
                }
                Err(error) => return Err(told(error)),
            }
        }
        Ok(leading)
    }

    /// Once somebody has opened the store, every rollout is whole and ends where its thread does.
    fn judge_after(&mut self) -> Result<()> {
        let store = self.open(LiveRollouts::AsStored)?;
        let status = store.drain_live_rollouts();
        if !status.is_in_step {
            self.tally.add(Rule::Misbehaved, format!("the rollouts can't be brought up: {:?}", status.problems));
        }
        if !status.set_aside.is_empty() {
            self.tally.add(Rule::Phantom, format!("rollouts led: {:?}", status.set_aside));
        }
        for words in self.unequal(&store)? {
            self.tally.add(Rule::Unequal, words);
        }
        self.items = self.reports()?.iter().map(|report| report.items).sum();
        Ok(())
    }

    /// The rollouts that are damaged, or do not end where their threads do.
    fn unequal(&self, store: &Store) -> Result<Vec<String>> {
        let query = ListQuery { limit: 1_000, shelves: Shelves::Both, ..ListQuery::default() };
        let threads: Vec<Thread> = store.list(query).map_err(told)?.entries;
        let reports = self.reports()?;
        let differs = |thread: &Thread| match reports.iter().find(|report| report.thread == thread.id) {
            None => Some(format!("{} has no rollout", thread.id)),
            Some(report) if !report.is_whole() => Some(format!("{:?}", report.problems)),
            Some(report) if report.head_hash != thread.head_hash || report.items != thread.items.unsigned_abs() => {
                Some(format!("the rollout of {} has {} items of {}", thread.id, report.items, thread.items))
            }
            Some(_) => None,
        };
        Ok(threads.iter().filter_map(differs).collect())
    }

    /// Cuts the end of a file, or leaves a fragment behind it.
    fn cut_one(&mut self) -> Result<()> {
        let files: Vec<PathBuf> = self.reports()?.into_iter().map(|report| report.file).collect();
        let Some(file) = files.get(usize::try_from(self.random.below(files.len() as u64)).unwrap_or(0)) else {
            return Ok(());
        };
        self.cut += 1;
        let mut bytes = std::fs::read(file).map_err(|error| error.to_string())?;
        match self.random.below(3) {
            0 => bytes.extend_from_slice(b"{\"type\":\"item\",\"branch\":\"01"),
            _ => {
                let cut = usize::try_from(self.random.below(MOST_CUT)).unwrap_or(0);
                bytes.truncate(bytes.len().saturating_sub(cut));
            }
        }
        std::fs::write(file, bytes).map_err(|error| error.to_string())
    }

    fn reports(&self) -> Result<Vec<RolloutReport>> {
        match self.rollouts.is_dir() {
            true => Ok(Store::verify_rollouts(&self.rollouts).map_err(told)?.0),
            false => Ok(Vec::new()),
        }
    }

    fn open(&self, live: LiveRollouts) -> Result<Store> {
        let options: StoreOptions = ground::options(&self.store).map_err(told)?;
        Store::open(options.live_rollouts(live)).map_err(told)
    }

    /// Whether a file that was cut is seen when nobody brings it up.
    fn control(&self) -> Result<bool> {
        let store = self.open(LiveRollouts::Off)?;
        let Some(report) = self.reports()?.into_iter().find(|report| report.items > 0) else { return Ok(false) };
        cut_last_line(&report.file)?;
        Ok(!self.unequal(&store)?.is_empty())
    }

    /// Whether rollouts are seen that hold what a store does not have.
    fn control_of_leading(&self) -> Result<bool> {
        let store = Store::open(StoreOptions::memory()).map_err(told)?;
        Ok(!self.leading(&store)?.is_empty())
    }
}

fn cut_last_line(file: &Path) -> Result<()> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let end = bytes.len().saturating_sub(9);
    std::fs::write(file, bytes.get(..end).unwrap_or_default()).map_err(|error| error.to_string())
}

fn thread(lane: u64) -> String {
    format!("lane-{lane}")
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
