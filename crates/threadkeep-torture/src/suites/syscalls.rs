//! T02: one operation, killed at every system call that it makes on its store.
//!
//! strace kills the process at the k-th call of one name, for every name that a run without a fault makes on the store's
//! files, and for k = 1 … until the operation comes through. It counts each thread's calls for itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use memchr::memmem;
use threadkeep::blocking::Store;
use threadkeep::{Hash, Severity, StoreOptions};

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::{Child, SILENT};
use crate::oracle::{Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::scenario::{MAIN, NAMES, NEW, VICTIM};
use crate::suites::kills;
use crate::suites::points::{Bench, Ended, some_of};
use crate::tools::{self, Injection};
use crate::work::{self, told};

/// More calls of one name than any scenario makes.
const MOST: u64 = 400;
/// Calls on files whose names are not known before, such as that of a holder's lock; counted over all files.
const ANYWHERE: &str = "openat,flock,unlink,mkdir";
/// The same for what writes files beside the store, or makes a new one.
const BESIDE: &str =
    "openat,flock,unlink,mkdir,rename,link,pwrite64,write,ftruncate,fsync,fdatasync,copy_file_range,fchmod,rmdir";
/// A session of another program, to be imported.
const SESSION: &str = include_str!(
    "../../../../examples/sessions/codex/sessions/2025/08/06/rollout-2025-08-06T11-48-02-b7a1c2d3-4e5f-4a6b-8c7d-9e0f1a2b3c4d.jsonl"
);
/// Numbers of the lanes; `main` is the one that is written.
const THREADS: [(&str, u64); 2] = [(MAIN, 0), (VICTIM, 1)];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    tools::need_strace()?;
    let mut suite = Suite::new(plan)?;
    let mut random = plan.random("syscalls");
    let scenarios = scenarios(plan, &mut random);
    let most = plan.pick(14, usize::MAX, usize::MAX);
    let (mut points, mut killed, mut calls) = (0_u64, 0_u64, 0);
    for name in &scenarios {
        for pass in passes(name).iter().copied() {
            let known = suite.plain_run(name, pass, &mut outcome.tally)?;
            calls += known.len();
            let listed = known.iter().flat_map(|(call, count)| (1..=*count).map(move |at| (call.clone(), at)));
            for (call, at) in some_of(listed.collect(), most, &mut random) {
                let was_killed = suite.point(name, pass, &call, at, &mut outcome.tally)?;
                (points, killed) = (points + 1, killed + u64::from(was_killed));
            }
            // What one run made so often, another may make more often.
            for (call, count) in known.iter().filter(|_| most == usize::MAX) {
                for at in count + 1..MOST {
                    points += 1;
                    if !suite.point(name, pass, call, at, &mut outcome.tally)? {
                        break;
                    }
                    killed += 1;
                }
            }
        }
    }
    outcome.figure("scenarios", scenarios.join(" "));
    outcome.figure("names of calls over all", calls);
    outcome.figure("points", points);
    outcome.figure("killed there", killed);
    let lost = suite.control()?;
    outcome.control("an append that is acknowledged before it is stored", lost);
    Ok(())
}

/// The scenarios of a run: some by chance, or all.
fn scenarios(plan: &Plan, random: &mut Random) -> Vec<&'static str> {
    match &plan.only {
        Some(only) => NAMES.into_iter().filter(|name| name == only).collect(),
        None => some_of(NAMES.to_vec(), plan.pick(4, usize::MAX, usize::MAX), random),
    }
}

/// Which calls are counted: those on the store's own files, or all of some names.
type Pass = Option<&'static str>;

fn passes(name: &str) -> &'static [Pass] {
    match name {
        "claim" | "release" | "create" | "hand-over" => &[None, Some(ANYWHERE)],
        "backup" | "restore" | "repair" | "import" => &[Some(BESIDE)],
        "redact" => &[None, Some(BESIDE)],
        _ => &[None],
    }
}

struct Suite<'a> {
    plan: &'a Plan,
    bench: Bench<'a>,
    /// The threads of the store that is restored.
    backed_up: Digests,
    /// The threads of the store as it is before each run.
    before: Digests,
    /// What a whole import says.
    imported: Option<String>,
}

impl<'a> Suite<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let bench = Bench::new(plan, &THREADS)?;
        let (session, other) = (bench.path().join("sessions"), bench.path().join("other"));
        std::fs::create_dir(&session).map_err(|error| error.to_string())?;
        let name = "rollout-2025-08-06T11-48-02-b7a1c2d3-4e5f-4a6b-8c7d-9e0f1a2b3c4d.jsonl";
        std::fs::write(session.join(name), SESSION).map_err(|error| error.to_string())?;
        kills::prepare(plan, &other, &THREADS)?;
        let before = digests(plan, &bench.template())?;
        let backed_up = digests(plan, &other)?;
        let suite = Self { plan, bench, backed_up, before, imported: None };
        let backup = suite.bench.path().join("backup-to-restore.db");
        suite.play_again("backup", &other, &backup)?;
        Ok(suite)
    }

    fn command(&self, name: &str, life: u64, lie: bool) -> Command {
        let other = match name {
            "restore" => Some(self.bench.path().join("backup-to-restore.db")),
            "backup" => Some(self.new_backup()),
            "import" => Some(self.bench.path().join("sessions")),
            _ => None,
        };
        command(self.plan, &self.bench.store(), name, life, other.as_deref(), lie)
    }

    /// Where a backup is made, beside the store.
    fn new_backup(&self) -> PathBuf {
        self.bench.store().with_file_name("backup.db")
    }

    /// Runs a command on a fresh copy, with nothing beside it that an earlier run left.
    fn run(&self, name: &str, command: Command) -> Result<Ended> {
        let beside = self.bench.store().with_file_name("");
        if beside.exists() {
            std::fs::remove_dir_all(&beside).map_err(|error| error.to_string())?;
        }
        self.bench.run(command, name != "init")
    }

    /// The calls that the scenario makes on its store, with how often one thread makes each.
    fn plain_run(&mut self, name: &str, pass: Pass, tally: &mut Tally) -> Result<Vec<(String, u64)>> {
        let life = self.bench.next_life();
        let inner = self.command(name, life, false);
        let store = self.bench.store();
        let only = pass.is_none().then_some(store.as_path());
        let ended = self.run(name, tools::strace(&inner, only, pass.unwrap_or("all"), None, &self.bench.log()))?;
        if !ended.finished {
            return Err(format!("the scenario {name} fails without a fault: {}", ended.lines.join(" / ")));
        }
        self.imported =
            ended.lines.iter().find(|line| line.starts_with("O imported")).cloned().or(self.imported.take());
        let mut found = Tally::default();
        self.judge(name, life, &ended.lines, &mut found);
        tally.absorb(found, &format!("{name} without a fault"));
        tools::counted_calls(&self.bench.log())
    }

    /// Kills at one point and judges; says whether the process was killed.
    fn point(&mut self, name: &str, pass: Pass, call: &str, at: u64, tally: &mut Tally) -> Result<bool> {
        let life = self.bench.next_life();
        let fault = Injection { call: call.to_owned(), what: "signal=SIGKILL".to_owned(), at, sticky: false };
        let inner = self.command(name, life, false);
        let store = self.bench.store();
        let only = pass.is_none().then_some(store.as_path());
        let ended = self.run(name, tools::strace(&inner, only, call, Some(&fault), &self.bench.log()))?;
        let mut found = Tally::default();
        if ended.silent {
            found.add(Rule::Hang, "the process");
        } else if !ended.killed && !ended.finished {
            found.add(Rule::Misbehaved, format!("it ended in another way: {}", ended.lines.join(" / ")));
        }
        self.judge(name, life, &ended.lines, &mut found);
        tally.absorb(found, &format!("{name}, {}", fault.words()));
        Ok(ended.killed)
    }

    fn judge(&mut self, name: &str, life: u64, lines: &[String], tally: &mut Tally) {
        let judged = match name {
            "backup" => self.judge_backup(lines, tally),
            "restore" => self.judge_restore(lines, tally),
            "repair" => self.judge_repair(lines, tally),
            "import" => self.judge_import(tally),
            "redact" => self.judge_redaction(lines, tally),
            _ => {
                judge_operation(self.plan, &self.bench, name, lines, tally);
                Ok(())
            }
        };
        if let Err(words) = judged {
            tally.add(if words == SILENT { Rule::Hang } else { Rule::Misbehaved }, words);
        }
        if !matches!(name, "init" | "delete" | "restore" | "repair" | "redact") {
            self.bench.judge(life, lines, tally);
        }
    }

    /// What bears a backup's name is whole, and is there when it was acknowledged; another one can be made.
    fn judge_backup(&self, lines: &[String], tally: &mut Tally) -> Result<()> {
        let made = self.new_backup();
        match made.exists() {
            true => self.judge_backup_file(&made, tally)?,
            false if lines.iter().any(|line| line == "O backed-up") => tally.add(Rule::AckedLost, "the backup"),
            false => {}
        }
        let next = made.with_file_name("another.db");
        self.play_again("backup", &self.bench.store(), &next)?;
        self.judge_backup_file(&next, tally)
    }

    fn judge_backup_file(&self, backup: &Path, tally: &mut Tally) -> Result<()> {
        let restored = backup.with_extension("restored");
        self.play_again("restore", &restored, backup)?;
        if digests(self.plan, &restored)? != self.before {
            tally.add(Rule::Altered, format!("{} holds something else than the store", backup.display()));
        }
        Ok(())
    }

    /// The store is the old one or the new one, and can be restored again.
    fn judge_restore(&self, lines: &[String], tally: &mut Tally) -> Result<()> {
        let found = digests(self.plan, &self.bench.store())?;
        let acked = lines.iter().any(|line| line == "O restored");
        if found != self.backed_up && (acked || found != self.before) {
            tally.add(
                Rule::AckedLost,
                format!("the store is neither the old one nor that of the backup, acked: {acked}"),
            );
        }
        let backup = self.bench.path().join("backup-to-restore.db");
        self.play_again("restore", &self.bench.store(), &backup)?;
        if digests(self.plan, &self.bench.store())? != self.backed_up {
            tally.add(Rule::Altered, "restored again, the store is not that of the backup");
        }
        Ok(())
    }

    /// What is acknowledged is in no file any more; what was cut off, the next redaction completes.
    fn judge_redaction(&self, lines: &[String], tally: &mut Tally) -> Result<()> {
        if lines.iter().any(|line| line == "O redacted") {
            self.seek_traces("of what was acknowledged", tally)?;
        }
        self.play_again("redact", &self.bench.store(), Path::new(""))?;
        self.seek_traces("after the next redaction", tally)?;
        let counts =
            |digests: Digests| digests.into_iter().map(|(thread, (items, _))| (thread, items)).collect::<Vec<_>>();
        let found = counts(digests(self.plan, &self.bench.store())?);
        if found != counts(self.before.clone()) {
            tally.add(Rule::Altered, format!("the threads have other numbers of items: {found:?}"));
        }
        Ok(())
    }

    fn seek_traces(&self, when: &str, tally: &mut Tally) -> Result<()> {
        let failed = |error: std::io::Error| error.to_string();
        // Items of a few words are stored as they are.
        let secrets: Vec<Vec<u8>> =
            (0..8).map(|number| work::content(1, 1, number)).filter(|it| (100..190).contains(&it.len())).collect();
        for entry in std::fs::read_dir(self.bench.store()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let bytes = if path.is_file() { std::fs::read(&path).map_err(failed)? } else { Vec::new() };
            if secrets.iter().any(|secret| memmem::find(&bytes, secret).is_some()) {
                tally.add(Rule::Misbehaved, format!("{when}: {} holds it still", path.display()));
            }
        }
        Ok(())
    }

    /// The store holds the same whenever a repair of it was cut off, and is repaired by the next one.
    fn judge_repair(&self, lines: &[String], tally: &mut Tally) -> Result<()> {
        if digests(self.plan, &self.bench.store())? != self.before {
            let acked = lines.iter().any(|line| line == "O repaired");
            tally.add(Rule::AckedLost, format!("the repaired store is another one, acked: {acked}"));
        }
        self.play_again("repair", &self.bench.store(), &self.bench.store())?;
        if digests(self.plan, &self.bench.store())? != self.before {
            tally.add(Rule::AckedLost, "repaired again, the store is another one");
        }
        let found = Store::examine(StoreOptions::folder(self.bench.store()), true).map_err(told)?;
        if let Some(finding) = found.findings.iter().find(|finding| finding.severity == Severity::Error) {
            tally.add(Rule::Misbehaved, format!("after a repair: {} {}", finding.code, finding.what));
        }
        Ok(())
    }

    /// The next import completes what was cut off.
    fn judge_import(&self, tally: &mut Tally) -> Result<()> {
        let heard = self.play_again("import", &self.bench.store(), &self.bench.path().join("sessions"))?;
        let said = heard.iter().find(|line| line.starts_with("O imported"));
        if said != self.imported.as_ref() {
            tally.add(Rule::Hole, format!("after the next import {said:?}, not {:?}", self.imported));
        }
        Ok(())
    }

    /// Plays a scenario without a fault in a fresh process.
    fn play_again(&self, name: &str, store: &Path, other: &Path) -> Result<Vec<String>> {
        let (status, lines) =
            Child::start(command(self.plan, store, name, 0, (!other.as_os_str().is_empty()).then_some(other), false))?
                .finish()?;
        match status.success() {
            true => Ok(lines),
            false => Err(format!("a fresh process can't {name}: {}", lines.last().map_or("", String::as_str))),
        }
    }

    /// The same with a writer that acknowledges too early: the oracle must see it.
    fn control(&mut self) -> Result<bool> {
        for at in 1..MOST {
            let life = self.bench.next_life();
            let call = "pwrite64".to_owned();
            let fault = Injection { call: call.clone(), what: "signal=SIGKILL".to_owned(), at, sticky: false };
            let inner = self.command("append", life, true);
            let traced = tools::strace(&inner, Some(&self.bench.store()), &call, Some(&fault), &self.bench.log());
            let ended = self.bench.run(traced, true)?;
            let mut tally = Tally::default();
            self.bench.judge(life, &ended.lines, &mut tally);
            if tally.count(Rule::AckedLost) > 0 {
                return Ok(true);
            }
            if !ended.killed {
                break;
            }
        }
        Ok(false)
    }
}

/// The number of items of each thread, and the digest over them.
pub(super) type Digests = BTreeMap<String, (u64, Hash)>;

fn digests(plan: &Plan, store: &Path) -> Result<Digests> {
    let threads = THREADS.map(|(thread, _)| (thread.to_owned(), 0));
    let depth = Depth { verify: true, whole: true, integrity: true };
    let mut tally = Tally::default();
    let findings = checker::look(plan, store, &threads, depth, &mut tally);
    match (findings, tally.details().first()) {
        (Some(findings), None) => Ok(findings.digests),
        (_, words) => Err(words.cloned().unwrap_or_default()),
    }
}

fn command(plan: &Plan, store: &Path, name: &str, life: u64, other: Option<&Path>, lie: bool) -> Command {
    let mut command = Command::new(&plan.program);
    command.arg("scenario").arg("--name").arg(name).arg("--store").arg(store).arg("--life").arg(life.to_string());
    if let Some(other) = other {
        command.arg("--other").arg(other);
    }
    if lie {
        command.arg("--lie");
    }
    command
}

/// An operation that was acknowledged as a whole is there as a whole; one that was not may be there or not.
fn judge_operation(plan: &Plan, bench: &Bench<'_>, name: &str, lines: &[String], tally: &mut Tally) {
    let said = |words: &str| lines.iter().any(|line| line == words);
    let threads = [MAIN, VICTIM, NEW].map(|thread| (thread.to_owned(), 0));
    let depth = Depth { verify: true, integrity: true, ..Depth::default() };
    let Some(findings) = checker::look(plan, &bench.store(), &threads, depth, tally) else { return };
    match name {
        "init" => {
            let acked = lines.iter().find_map(|line| line.strip_prefix("O "));
            if acked.is_some_and(|id| id != findings.store) {
                tally.add(Rule::AckedLost, "the store that was made is another one");
            }
        }
        "create" | "fork" => {
            if said("O created") && !findings.shelves.contains_key(NEW) {
                tally.add(Rule::AckedLost, "the new thread");
            }
            let items = |thread: &str| findings.items.get(thread).map_or(0, Vec::len);
            if name == "fork" && findings.shelves.contains_key(NEW) && items(NEW) != items(MAIN) {
                tally.add(Rule::Hole, format!("the fork has {} items, its parent {}", items(NEW), items(MAIN)));
            }
        }
        "delete" => {
            let shelf = findings.shelves.get(VICTIM).map(String::as_str);
            if said("O purged") && shelf.is_some() || said("O trashed") && shelf == Some("Active") {
                tally.add(Rule::AckedLost, format!("the deleted thread is {shelf:?} again"));
            }
        }
        _ => {}
    }
}
