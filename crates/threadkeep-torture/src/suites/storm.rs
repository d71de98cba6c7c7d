//! T11: writers, checkpoints and backups at once. SQLite before 3.51.3 loses or corrupts data here, and most runs don't show it: so the
//! version itself is checked first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use threadkeep::StoreOptions;
use threadkeep::blocking::Store;

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::suites::kills::hear_all;
use crate::suites::{Writing, kills};

/// The first version without the race between a writer and a checkpoint that starts the log anew.
const FLOOR: i32 = 3_051_003;
const WRITERS: u64 = 3;
/// How many backups are made, one each second.
const BACKUPS: usize = 3;
/// Every kind of checkpoint, and a reader that keeps an old state in use.
const OTHERS: [&str; 4] = ["PASSIVE", "RESTART", "TRUNCATE", "hold"];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let version = rusqlite::version_number();
    outcome.figure("SQLite", rusqlite::version());
    if !is_safe(version) {
        outcome.tally.add(Rule::Misbehaved, format!("SQLite {} is linked", rusqlite::version()));
    }
    outcome.control(
        "the floor refuses 3.50.2, 3.51.1 and 3.51.2",
        ![3_050_002, 3_051_001, 3_051_002].map(is_safe).contains(&true),
    );
    let folder = plan::fast_folder()?;
    let store = folder.path().join("store");
    let mut journal = kills::prepare(plan, &store, &[("lane-0", 0), ("lane-1", 1), ("lane-2", 2)])?;
    let mut writers = Vec::new();
    for lane in 0..WRITERS {
        let lanes = format!("lane-{lane}={lane}");
        let writing = Writing { lanes: &lanes, life: lane + 2, level: "synced", batches: 0, lie: false };
        writers.push(Writer { life: lane + 2, child: Child::start(writing.command(plan, &store))?, heard: Vec::new() });
    }
    let mut others = Vec::new();
    for mode in OTHERS {
        let mut command = Command::new(&plan.program);
        command.arg("checkpoint").arg("--store").arg(&store).arg("--mode").arg(mode);
        let other = Child::start(command)?;
        other.hear_until("R")?;
        others.push(other);
    }
    let (begun, mut largest, mut backups) = (Instant::now(), 0, Vec::new());
    let lasting = Duration::from_secs(plan.pick(5, 120, 1_800));
    while begun.elapsed() < lasting {
        std::thread::sleep(Duration::from_millis(20));
        writers.iter_mut().for_each(Writer::listen);
        if backups.len() < BACKUPS && begun.elapsed().as_secs() > backups.len() as u64 {
            let to = folder.path().join(format!("backup-{}", backups.len()));
            backups.push(BackedUp::make(&store, to, &writers, &mut outcome.tally));
        }
        let log = std::fs::metadata(store.join("threadkeep.db-wal")).map_or(0, |meta| meta.len());
        largest = largest.max(log);
    }
    for other in others {
        other.kill();
    }
    let prepared = journal.clone();
    let writers: Vec<(u64, Vec<String>)> = writers.into_iter().map(Writer::kill).collect();
    for (life, heard) in &writers {
        hear(&mut journal, outcome, *life, heard);
    }
    outcome.figure("backups", backups.len());
    for backup in &backups {
        backup.judge(plan, prepared.clone(), &writers, &mut outcome.tally);
    }
    outcome.figure("seconds", lasting.as_secs());
    outcome.figure("writers and others", format!("{WRITERS} and {}", OTHERS.len()));
    outcome.figure("items acked", journal.acked);
    outcome.figure("largest log, KiB", largest >> 10);
    checker::judge(
        plan,
        &store,
        &mut journal,
        Depth { verify: true, integrity: true, ..Depth::default() },
        &mut outcome.tally,
    );
    let (killed, found_out) = kills::control(plan)?;
    outcome.control(format!("writers that acknowledge before they store, {killed} kills"), found_out);
    Ok(())
}

struct Writer {
    life: u64,
    child: Child,
    heard: Vec<String>,
}

impl Writer {
    fn listen(&mut self) {
        self.heard.extend(self.child.heard());
    }

    /// Its life, and all that it said.
    fn kill(mut self) -> (u64, Vec<String>) {
        self.heard.extend(self.child.kill());
        (self.life, self.heard)
    }
}

/// A backup, and how much each writer had said before it began.
struct BackedUp {
    folder: PathBuf,
    said: Vec<usize>,
}

impl BackedUp {
    fn make(store: &Path, folder: PathBuf, writers: &[Writer], tally: &mut Tally) -> Self {
        let said = writers.iter().map(|writer| writer.heard.len()).collect();
        let store = Store::open(StoreOptions::folder(store).label("backup"));
        if let Err(error) = store.and_then(|store| store.backup(&folder.join(""))) {
            tally.add(Rule::Misbehaved, format!("a backup: {}: {error}", error.kind()));
        }
        Self { folder, said }
    }

    /// What was acknowledged before it began is in it; what was issued later may be, in order.
    fn judge(&self, plan: &Plan, mut journal: Journal, writers: &[(u64, Vec<String>)], tally: &mut Tally) {
        for ((life, heard), said) in writers.iter().zip(&self.said) {
            let (before, later) = heard.split_at(*said);
            let issued: Vec<String> = later.iter().filter(|line| line.starts_with("I ")).cloned().collect();
            hear_all(&mut journal, *life, before);
            hear_all(&mut journal, *life, &issued);
        }
        let depth = Depth { verify: true, integrity: true, ..Depth::default() };
        let mut found = Tally::default();
        checker::judge(plan, &self.folder, &mut journal, depth, &mut found);
        tally.absorb(found, &self.folder.display().to_string());
    }
}

fn is_safe(version: i32) -> bool {
    version >= FLOOR
}

fn hear(journal: &mut Journal, outcome: &mut Outcome, life: u64, lines: &[String]) {
    for line in lines.iter().filter(|line| line.starts_with("E ") || line.starts_with("X ") || line.starts_with("W ")) {
        outcome.tally.add(Rule::Misbehaved, format!("a writer in the storm: {line}"));
    }
    hear_all(journal, life, lines);
}
