//! T01: processes that change what stands beside the log are killed at random times, and the store is kept.
//!
//! In each round three workers accrue usage on one goal, save checkpoints of a thread of their own, write versions of a document of
//! it, and claim and end jobs of one queue, one after the other, until each is killed. What was in flight at a kill is told again
//! under the same id by the judge: every accrual counts once, the latest checkpoint is the one that was acknowledged last or the
//! one in flight, a document's versions have no gap and every write made one of them, and a job that was acknowledged as done is
//! never given out again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use threadkeep::blocking::Store;
use threadkeep::{
    GoalUsage, JobEnd, JobId, JobQuery, JobStatus, NewCheckpoint, NewDocument, NewGoal, NewJob, NewThread, ThreadId,
    Uuid,
};

use crate::Result;
use crate::child::{Child, say};
use crate::ground::{self, Ground};
use crate::oracle::{Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};

const WORKERS: u64 = 3;
/// So many jobs are added in each round.
const JOBS: u64 = 400;
/// The document of each lane.
const DOCUMENT: &str = "marks";
/// So many names the checkpoints of a thread have.
const NAMES: u64 = 5;
/// One that lies leaves out each of so many accruals.
const LIES: u64 = 7;
/// After so many violations more of them say nothing new.
const ENOUGH: u64 = 3;

/// A process that changes what stands beside the log, for ever.
#[derive(Debug, Args)]
pub(crate) struct ChangeBeside {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    lane: u64,
    #[arg(long)]
    life: u64,
    /// Acknowledges what it does not store.
    #[arg(long)]
    lie: bool,
}

/// Works until it is killed. `B` says what is asked for, `A` what was acknowledged, `C` which job it was given.
pub(crate) fn play_changes(beside: &ChangeBeside) -> Result<()> {
    let told = |error: threadkeep::Error| error.to_string();
    let options = ground::options(&beside.store).map_err(told)?.label(label(beside.life));
    let store = Store::open(options).map_err(told)?;
    let live = store.resume(&lane(beside.lane), false).map_err(told)?;
    say("R");
    for number in 0_u64.. {
        let (id, tokens) = (Uuid::from_u64_pair(beside.life, number), 1 + number % 9);
        say(format_args!("B a {id} {tokens}"));
        if !beside.lie || number % LIES != LIES - 1 {
            accrue(&store, id, tokens).map_err(told)?;
        }
        say(format_args!("A a {id}"));
        let mark = beside.life * 1_000_000 + number;
        say(format_args!("B c {mark}"));
        live.save_checkpoint(checkpoint(mark)).map_err(told)?;
        say(format_args!("A c {mark}"));
        say(format_args!("B d {id} {mark}"));
        let info = live.put_document(document(id, mark)).map_err(told)?;
        say(format_args!("A d {id} {}", info.version));
        if let Some(claimed) = store.claim_job(NewJob::QUEUE).map_err(told)? {
            let job = &claimed.job.id;
            say(format_args!("C {job} {}", claimed.job.attempts));
            say(format_args!("B e {job}"));
            store.end_job(&claimed.lease, JobEnd::Completed { result: None }).map_err(told)?;
            say(format_args!("A e {job}"));
        }
    }
    Ok(())
}

fn accrue(store: &Store, id: Uuid, tokens: u64) -> threadkeep::Result<()> {
    store.accrue_goal(&shared(), GoalUsage { id: Some(id), tokens, ..GoalUsage::default() }).map(drop)
}

/// Small and large ones, in turns; some of them are the same state under another name.
fn checkpoint(mark: u64) -> NewCheckpoint {
    let filler = "a state that repeats ".repeat(usize::try_from(mark % 3).unwrap_or(0) * 500);
    NewCheckpoint::new(format!("c{}", mark % NAMES), format!(r#"{{"mark":{mark},"filler":"{filler}"}}"#))
}

fn document(id: Uuid, mark: u64) -> NewDocument {
    NewDocument { id: Some(id), ..NewDocument::new(DOCUMENT, mark.to_string()) }
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let kills = if plan.server.is_some() { plan.pick(30, 300, 1_000) } else { plan.pick(60, 1_000, 5_000) };
    let mut run = Run::new(plan, plan.ground()?, false)?;
    while run.kills < kills && run.tally.total() < ENOUGH {
        run.round()?;
    }
    run.drain()?;
    outcome.figure("kills", run.kills);
    outcome.figure("accruals", run.accruals.len());
    outcome.figure("checkpoints acked", run.checkpoints);
    outcome.figure("versions acked", run.versions);
    outcome.figure("jobs done", run.done.len());
    outcome.figure("jobs taken from the dead", run.retried);
    outcome.figure("in flight", run.in_flight);
    outcome.tally.absorb(run.tally, "beside");
    if outcome.tally.total() >= ENOUGH {
        return Ok(());
    }
    let mut control = Run::new(plan, plan.ground()?, true)?;
    let mut is_seen = false;
    for _ in 0..5 {
        control.round()?;
        is_seen |= control.tally.count(Rule::AckedLost) > 0;
    }
    outcome.control("workers that acknowledge usage they do not store".to_owned(), is_seen);
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
    in_flight: u64,
    /// What was asked for and how many tokens it adds; whether it was acknowledged.
    accruals: BTreeMap<Uuid, (u64, bool)>,
    /// The last mark of each lane that was acknowledged, and one that may have come after it.
    marks: BTreeMap<u64, (Option<u64>, Option<u64>)>,
    checkpoints: u64,
    /// Of each lane: what its document was written with and not yet looked at, with the version that was acknowledged.
    writes: BTreeMap<u64, Vec<Write>>,
    /// The newest version of each lane's document that was looked at.
    seen: BTreeMap<u64, u64>,
    versions: u64,
    jobs: u64,
    done: BTreeSet<JobId>,
    /// Those of the last round, which are looked at one by one; at the end all are counted.
    fresh: Vec<JobId>,
    retried: u64,
    tally: Tally,
}

/// A version that was asked for.
struct Write {
    id: Uuid,
    mark: u64,
    version: Option<u64>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, ground: Ground, lie: bool) -> Result<Self> {
        let store = ground.store("store");
        let begin = || {
            let open = Store::open(ground::options(&store)?)?;
            let place = open.workspace(Path::new("/threadkeep-torture"))?;
            for id in (0..WORKERS).map(lane).chain([shared()]) {
                place.create_now(NewThread { id: Some(id), ..NewThread::default() })?.shutdown()?;
            }
            open.set_goal(&shared(), NewGoal::new("count"))
        };
        begin().map_err(|error| format!("the store can't be begun: {error}"))?;
        Ok(Self {
            plan,
            random: plan.random("beside"),
            store,
            _ground: ground,
            lie,
            life: 0,
            kills: 0,
            in_flight: 0,
            accruals: BTreeMap::new(),
            marks: BTreeMap::new(),
            checkpoints: 0,
            writes: BTreeMap::new(),
            seen: BTreeMap::new(),
            versions: 0,
            jobs: 0,
            done: BTreeSet::new(),
            fresh: Vec::new(),
            retried: 0,
            tally: Tally::default(),
        })
    }

    fn round(&mut self) -> Result<()> {
        self.add_jobs().map_err(|error| format!("jobs can't be added: {error}"))?;
        let mut workers = Vec::new();
        for lane in 0..WORKERS {
            self.life += 1;
            let mut command = Command::new(&self.plan.program);
            command.arg("change-beside").arg("--store").arg(&self.store);
            command.arg("--lane").arg(lane.to_string()).arg("--life").arg(self.life.to_string());
            if self.lie {
                command.arg("--lie");
            }
            workers.push((lane, self.life, Child::start(command)?));
        }
        for (lane, life, worker) in &workers {
            match worker.hear_until("R") {
                Ok(_) => {}
                Err(words) => self.tally.add(Rule::Misbehaved, format!("worker {life} of lane {lane}: {words}")),
            }
        }
        self.random.shuffle(&mut workers);
        for (lane, life, worker) in workers {
            std::thread::sleep(Duration::from_micros(self.random.below(120_000)));
            let lines = worker.kill();
            self.hear(lane, life, &lines);
            self.kills += 1;
            ground::bury(&self.store, &label(life))?;
        }
        self.judge().map_err(|error| format!("the judge can't go on: {error}"))
    }

    fn add_jobs(&mut self) -> threadkeep::Result<()> {
        let store = Store::open(ground::options(&self.store)?)?;
        let place = store.workspace(Path::new("/threadkeep-torture"))?;
        for _ in 0..JOBS {
            self.jobs += 1;
            let id = JobId::new(format!("job-{:08}", self.jobs))?;
            let backoff = Duration::ZERO;
            place.add_job(NewJob { id: Some(id), backoff, max_attempts: 1_000_000, ..NewJob::new("work") })?;
        }
        Ok(())
    }

    fn hear(&mut self, lane: u64, life: u64, lines: &[String]) {
        let mut ending = None;
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["B", "a", id, tokens] => {
                    if let (Ok(id), Ok(tokens)) = (id.parse(), tokens.parse()) {
                        self.accruals.insert(id, (tokens, false));
                    }
                }
                ["A", "a", id] => {
                    if let Some((_, acked)) = id.parse().ok().and_then(|id: Uuid| self.accruals.get_mut(&id)) {
                        *acked = true;
                    }
                }
                ["B", "c", mark] => self.marks.entry(lane).or_default().1 = mark.parse().ok(),
                ["A", "c", mark] => {
                    self.checkpoints += 1;
                    self.marks.insert(lane, (mark.parse().ok(), None));
                }
                ["B", "d", id, mark] => {
                    if let (Ok(id), Ok(mark)) = (id.parse(), mark.parse()) {
                        self.writes.entry(lane).or_default().push(Write { id, mark, version: None });
                    }
                }
                ["A", "d", id, version] => {
                    self.versions += 1;
                    let writes = self.writes.entry(lane).or_default();
                    if let Some(write) = writes.iter_mut().find(|write| write.id.to_string() == *id) {
                        write.version = version.parse().ok();
                    }
                }
                ["C", job, attempts] => {
                    self.retried += u64::from(*attempts != "1");
                    if JobId::new(*job).is_ok_and(|id| self.done.contains(&id)) {
                        let words = format!("{job} was done and was given out again to worker {life}");
                        self.tally.add(Rule::Duplicate, words);
                    }
                }
                ["B", "e", job] => ending = Some((*job).to_owned()),
                ["A", "e", job] => {
                    ending = None;
                    if let Ok(id) = JobId::new(*job) {
                        self.fresh.push(id.clone());
                        if !self.done.insert(id) {
                            self.tally.add(Rule::Duplicate, format!("{job} was done twice"));
                        }
                    }
                }
                ["X", ..] => self.tally.add(Rule::Misbehaved, format!("worker {life} without a fault: {line}")),
                _ => {}
            }
        }
        self.in_flight += u64::from(ending.is_some());
    }

    /// Compares what is stored with what was said, and tells again what was in flight.
    fn judge(&mut self) -> threadkeep::Result<()> {
        let store = Store::open(ground::options(&self.store)?.label("judge"))?;
        let goal = store.goal(&shared())?;
        let used = goal.map_or(0, |goal| goal.tokens_used);
        let acked: u64 = self.accruals.values().filter(|(_, acked)| *acked).map(|(tokens, _)| tokens).sum();
        let asked: u64 = self.accruals.values().map(|(tokens, _)| tokens).sum();
        if used < acked {
            self.tally.add(Rule::AckedLost, format!("{acked} tokens were acknowledged, and {used} are there"));
        }
        if used > asked {
            self.tally.add(Rule::Duplicate, format!("{asked} tokens were asked for, and {used} are there"));
        }
        for (id, (tokens, acked)) in &mut self.accruals {
            if !*acked {
                self.in_flight += 1;
                accrue(&store, *id, *tokens)?;
                *acked = true;
            }
        }
        let used = store.goal(&shared())?.map_or(0, |goal| goal.tokens_used);
        if used != asked && !self.lie {
            self.tally.add(Rule::Unequal, format!("told again, {asked} tokens became {used}"));
        }
        for (number, (acked, in_flight)) in &mut self.marks {
            let latest = store.checkpoint(&lane(*number), None)?;
            let state = latest.and_then(|found| serde_json::from_str::<serde_json::Value>(&found.state).ok());
            let mark = state.and_then(|state| state.get("mark")?.as_u64());
            self.in_flight += u64::from(in_flight.is_some());
            if mark != *acked && (in_flight.is_none() || mark != *in_flight) {
                let words =
                    format!("the latest checkpoint of lane {number} is {mark:?}, not {acked:?} or {in_flight:?}");
                self.tally.add(if mark < *acked { Rule::AckedLost } else { Rule::Phantom }, words);
            }
            (*acked, *in_flight) = (mark, None);
        }
        self.judge_documents(&store)?;
        for id in std::mem::take(&mut self.fresh) {
            let job = store.job(&id)?;
            if job.status != JobStatus::Completed {
                self.tally.add(Rule::AckedLost, format!("{id} was done and is {}", job.status));
            }
        }
        let verified = store.verify_all(|_| {})?;
        for (thread, _) in verified.invalid {
            self.tally.add(Rule::Altered, format!("{thread} does not verify"));
        }
        Ok(())
    }

    /// Looks at the versions that came since the last time: each write made the one that was acknowledged, what was in flight made
    /// one or none, and told again makes no second one.
    fn judge_documents(&mut self, store: &Store) -> threadkeep::Result<()> {
        for (number, writes) in std::mem::take(&mut self.writes) {
            let (thread, mut last) = (lane(number), self.seen.get(&number).copied().unwrap_or(0));
            for write in writes {
                self.in_flight += u64::from(write.version.is_none());
                let version = store.put_document(&thread, document(write.id, write.mark))?.version;
                if version != last + 1 {
                    let words = format!("mark {} of lane {number} is version {version}, not {}", write.mark, last + 1);
                    self.tally.add(if version > last { Rule::Duplicate } else { Rule::Unequal }, words);
                }
                if write.version.is_some_and(|acked| acked != version) {
                    let words =
                        format!("version {:?} of lane {number} was acknowledged, and is {version}", write.version);
                    self.tally.add(Rule::AckedLost, words);
                }
                let text = store.document(&thread, DOCUMENT, Some(version))?.map(|found| found.text);
                if text != Some(write.mark.to_string()) {
                    let words = format!("version {version} of lane {number} says {text:?}, not {}", write.mark);
                    self.tally.add(Rule::Altered, words);
                }
                last = version;
            }
            let current = store.document(&thread, DOCUMENT, None)?.map_or(0, |found| found.info.version);
            if current != last {
                let words = format!("lane {number} has {current} versions, and {last} were asked for");
                self.tally.add(Rule::Phantom, words);
            }
            self.seen.insert(number, current);
        }
        Ok(())
    }

    /// Does what is left, and looks that nothing is left then.
    fn drain(&mut self) -> Result<()> {
        let mut drain = || -> threadkeep::Result<()> {
            let store = Store::open(ground::options(&self.store)?.label("drain"))?;
            while let Some(claimed) = store.claim_job(NewJob::QUEUE)? {
                self.retried += u64::from(claimed.job.attempts > 1);
                if self.done.contains(&claimed.job.id) {
                    let words = format!("{} was done and was given out again at the end", claimed.job.id);
                    self.tally.add(Rule::Duplicate, words);
                }
                store.end_job(&claimed.lease, JobEnd::Completed { result: None })?;
            }
            let mut query = JobQuery { status: Some(JobStatus::Completed), limit: 1_000, ..JobQuery::default() };
            let mut completed = 0;
            loop {
                let page = store.jobs(query.clone())?;
                completed += page.entries.len() as u64;
                match page.next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
            if completed != self.jobs {
                let words = format!("{} jobs were added, and {completed} are done", self.jobs);
                self.tally.add(Rule::AckedLost, words);
            }
            Ok(())
        };
        drain().map_err(|error| format!("what is left can't be done: {error}"))
    }
}

fn label(life: u64) -> String {
    format!("beside-{life}")
}

fn lane(number: u64) -> ThreadId {
    named(&format!("lane-{number}"))
}

fn shared() -> ThreadId {
    named("shared")
}

#[expect(clippy::expect_used, reason = "the names are written here")]
fn named(id: &str) -> ThreadId {
    ThreadId::new(id).expect("a name of a thread")
}
