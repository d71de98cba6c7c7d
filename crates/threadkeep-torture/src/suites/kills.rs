//! T01: processes that write one store are killed at random times, and the store is kept.
//!
//! In each round four writers of two threads each, two readers and an importer of a growing file work. One writer is killed
//! and replaced while the others go on, so that a claim is taken from the dead beside living writers; then all are killed, in
//! any order. Nothing is shut down between two rounds.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::{Child, SILENT};
use crate::ground::{self, Ground};
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::Writing;
use crate::work;

const WRITERS: u64 = 4;
const READERS: usize = 2;
/// So many records are appended in each round to the file that is imported.
const RECORDS: u64 = 40;
/// After so many violations more of them say nothing new.
const ENOUGH: u64 = 3;
/// After so many rounds every chain is verified from its root.
const ROUNDS_TO_VERIFY: u64 = 50;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let kills = if plan.server.is_some() { plan.pick(40, 500, 2_000) } else { plan.pick(200, 2_000, 10_000) };
    let mut run = Run::new(plan, plan.ground()?, false);
    for round in 0.. {
        if run.kills >= kills || run.tally.total() >= ENOUGH {
            break;
        }
        run.round(round)?;
        if round % ROUNDS_TO_VERIFY == ROUNDS_TO_VERIFY - 1 {
            run.judge_whole()?;
        }
    }
    run.judge_whole()?;
    run.recoveries.sort_unstable();
    let at = |share: usize| {
        let place =
            run.recoveries.get((run.recoveries.len() * share / 100).min(run.recoveries.len().saturating_sub(1)));
        place.map_or(0.0, Duration::as_secs_f64) * 1_000.0
    };
    outcome.figure("kills", run.kills);
    outcome.figure("of these inside a write", run.busy);
    outcome.figure("items acked", run.journal.acked);
    outcome.figure("in flight", run.journal.in_flight);
    outcome.figure("records imported", run.records);
    outcome
        .figure("open and claim after a kill, ms p50/p99/max", format!("{:.0}/{:.0}/{:.0}", at(50), at(99), at(100)));
    outcome.figure("95 % bound of failures per kill", format!("{:.3} %", 300.0 / f64::from(run.kills)));
    outcome.tally.absorb(run.tally, "kills");
    if outcome.tally.total() >= ENOUGH {
        // It has failed; under what made it fail the control may take for ever.
        return Ok(());
    }
    let (killed, found_out) = control(plan)?;
    outcome.control(format!("writers that acknowledge before they store, {killed} kills"), found_out);
    Ok(())
}

/// The same with writers that lie: says how many kills it took, and whether the oracle saw a loss.
pub(crate) fn control(plan: &Plan) -> Result<(u32, bool)> {
    let mut control = Run::new(plan, plan.ground()?, true);
    for round in 0..20 {
        control.round(round)?;
        if control.tally.count(Rule::AckedLost) > 0 {
            return Ok((control.kills, true));
        }
    }
    Ok((control.kills, false))
}

struct Run<'a> {
    plan: &'a Plan,
    random: Random,
    ground: Ground,
    store: PathBuf,
    lie: bool,
    life: u64,
    kills: u32,
    busy: u32,
    /// Records in the file that is imported.
    records: u64,
    journal: Journal,
    tally: Tally,
    recoveries: Vec<Duration>,
}

struct Writer {
    number: u64,
    life: u64,
    child: Child,
    begun: Instant,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, ground: Ground, lie: bool) -> Self {
        let mut journal = Journal::default();
        for lane in 0..WRITERS * 2 {
            journal.open(&thread(lane), lane);
        }
        let (random, tally) = (plan.random("kills"), Tally::default());
        let (store, recoveries) = (ground.store("store"), Vec::new());
        Self { plan, random, ground, store, lie, life: 0, kills: 0, busy: 0, records: 0, journal, tally, recoveries }
    }

    fn round(&mut self, round: u64) -> Result<()> {
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            writers.push(self.start(number, round)?);
        }
        for writer in &writers {
            self.wait_until_ready(writer);
        }
        let readers = (0..READERS).map(|_| self.start_reader()).collect::<Result<Vec<_>>>()?;
        for reader in &readers {
            self.hear_reader(&reader.hear_until("R").unwrap_or_else(|words| vec![format!("V reader {words}")]));
        }
        self.grow_file()?;
        let importer = Child::start(self.importing())?;
        self.pause(60);
        let victim = usize::try_from(self.random.below(WRITERS)).unwrap_or(0);
        let victim = writers.swap_remove(victim);
        let number = victim.number;
        self.kill(victim)?;
        let successor = self.start(number, round + 1)?;
        self.wait_until_ready(&successor);
        writers.push(successor);
        self.pause(40);
        self.hear_reader(&importer.kill());
        ground::bury(&self.store, "importer")?;
        self.kills += 1;
        for reader in readers {
            self.hear_reader(&reader.kill());
        }
        self.random.shuffle(&mut writers);
        for writer in writers {
            self.kill(writer)?;
            self.pause(3);
        }
        let journal = &mut self.journal;
        checker::judge(self.plan, &self.store, journal, Depth::default(), &mut self.tally);
        Ok(())
    }

    fn start(&mut self, number: u64, round: u64) -> Result<Writer> {
        self.life += 1;
        let level = ["synced", "written", "queued"].get(usize::try_from(round % 3).unwrap_or(0)).copied();
        let lanes: Vec<String> =
            [number * 2, number * 2 + 1].iter().map(|lane| format!("{}={lane}", thread(*lane))).collect();
        let (lanes, level) = (lanes.join(","), level.unwrap_or("synced"));
        let writing = Writing { lanes: &lanes, life: self.life, level, batches: 0, lie: self.lie };
        let mut command = writing.command(self.plan, &self.store);
        command.arg("--spoil");
        Ok(Writer { number, life: self.life, begun: Instant::now(), child: Child::start(command)? })
    }

    fn wait_until_ready(&mut self, writer: &Writer) {
        match writer.child.hear_until("R") {
            Ok(lines) => {
                self.recoveries.push(writer.begun.elapsed());
                for line in lines.iter().filter(|line| line.starts_with("W ")) {
                    self.tally.add(Rule::Misbehaved, format!("a writer without a fault: {line}"));
                }
            }
            Err(words) if words == SILENT => self.tally.add(Rule::Hang, "a writer that opens and claims"),
            Err(words) => self.tally.add(Rule::Misbehaved, format!("a writer without a fault: {words}")),
        }
    }

    fn start_reader(&self) -> Result<Child> {
        let mut command = Command::new(&self.plan.program);
        let threads: Vec<String> = (0..WRITERS * 2).map(thread).collect();
        command.arg("read").arg("--store").arg(&self.store).arg("--threads").arg(threads.join(","));
        Child::start(command)
    }

    /// The folder whose one file is imported while it grows.
    fn imported(&self) -> PathBuf {
        self.ground.folder().join("sessions")
    }

    fn importing(&self) -> Command {
        let mut command = Command::new(&self.plan.program);
        command.arg("import").arg("--store").arg(&self.store).arg("--folder").arg(self.imported());
        command
    }

    fn grow_file(&mut self) -> Result<()> {
        let told = |error: std::io::Error| format!("the file to import: {error}");
        std::fs::create_dir_all(self.imported()).map_err(told)?;
        let id = "019ceba1-4c8d-7d02-9b1e-5f2a7c3d8e90";
        let path = self.imported().join(format!("rollout-2026-03-14T09-26-53-{id}.jsonl"));
        let mut text = String::new();
        if self.records == 0 {
            text += &format!(
                "{{\"timestamp\":\"2026-03-14T09:26:53.040Z\",\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\",\
                 \"timestamp\":\"2026-03-14T09:26:53.000Z\",\"cwd\":\"/threadkeep-torture\",\"cli_version\":\"0.104.0\"}}}}\n"
            );
        }
        for number in self.records..self.records + RECORDS {
            text += &format!(
                "{{\"timestamp\":\"2026-03-14T09:27:00.000Z\",\"type\":\"response_item\",\"payload\":{{\"type\":\"message\",\
                 \"role\":\"user\",\"content\":[{{\"type\":\"input_text\",\"text\":\"record {number}\"}}]}}}}\n"
            );
        }
        self.records += RECORDS;
        let mut file = std::fs::File::options().create(true).append(true).open(path).map_err(told)?;
        file.write_all(text.as_bytes()).map_err(told)
    }

    /// Compares all that was judged so far with the store as a whole, and the imported file with what is stored of it.
    fn judge_whole(&mut self) -> Result<()> {
        checker::judge_whole(self.plan, &self.store, &self.journal, &mut self.tally);
        let mut command = self.importing();
        command.arg("--compare");
        let (_, heard) = Child::start(command)?.finish()?;
        self.hear_reader(&heard);
        if heard.last().is_none_or(|line| line != "Z") {
            self.tally
                .add(Rule::Misbehaved, format!("an import after all: {}", heard.last().map_or("", String::as_str)));
        }
        Ok(())
    }

    fn hear_reader(&mut self, lines: &[String]) {
        for line in lines.iter().filter(|line| line.starts_with("V ")) {
            let rule = match line.split(' ').nth(1) {
                Some("two-writers") => Rule::TwoWriters,
                Some("hole") => Rule::Hole,
                Some(path) if path.starts_with('/') => Rule::Altered,
                _ => Rule::Misbehaved,
            };
            self.tally.add(rule, format!("a reader: {line}"));
        }
    }

    fn kill(&mut self, writer: Writer) -> Result<()> {
        let life = writer.life;
        for line in writer.child.kill() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["E" | "X" | "W", ..] => self.tally.add(Rule::Misbehaved, format!("a writer without a fault: {line}")),
                [_, thread, ..] => self.journal.hear(thread, life, &words),
                _ => {}
            }
        }
        self.kills += 1;
        let lanes = [writer.number * 2, writer.number * 2 + 1];
        self.busy += u32::from(lanes.iter().any(|lane| self.journal.is_busy(&thread(*lane))));
        ground::bury(&self.store, &work::writer(life))
    }

    fn pause(&mut self, millis: u64) {
        std::thread::sleep(Duration::from_micros(self.random.below(millis * 1_000)));
    }
}

fn thread(lane: u64) -> String {
    format!("lane-{lane}")
}

/// Writes a store for suites that begin with one, and gives the account of it, judged.
pub(crate) fn prepare(plan: &Plan, store: &Path, threads: &[(&str, u64)]) -> Result<Journal> {
    let mut journal = Journal::default();
    for (thread, lane) in threads {
        journal.open(thread, *lane);
    }
    let lanes: Vec<String> = threads.iter().map(|(thread, lane)| format!("{thread}={lane}")).collect();
    let writing = Writing { lanes: &lanes.join(","), life: 1, level: "synced", batches: 4, lie: false };
    let (status, lines) = Child::start(writing.command(plan, store))?.finish()?;
    if !status.success() {
        return Err(format!("the store can't be prepared: {}", lines.last().map_or("", String::as_str)));
    }
    hear_all(&mut journal, 1, &lines);
    let mut tally = Tally::default();
    checker::judge(plan, store, &mut journal, Depth::default(), &mut tally);
    match tally.details().first() {
        None => Ok(journal),
        Some(words) => Err(format!("the prepared store: {words}")),
    }
}

/// Hears all lines of one writer.
pub(crate) fn hear_all(journal: &mut Journal, life: u64, lines: &[String]) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(thread) = words.get(1) {
            journal.hear(thread, life, &words);
        }
    }
}
