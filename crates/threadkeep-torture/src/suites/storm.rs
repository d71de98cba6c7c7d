//! T11: writers and checkpoints at once. SQLite before 3.51.3 loses or corrupts data here, and most runs don't show it: so the
//! version itself is checked first.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::suites::kills::hear_all;
use crate::suites::{Writing, kills};

/// The first version without the race between a writer and a checkpoint that starts the log anew.
const FLOOR: i32 = 3_051_003;
const WRITERS: u64 = 3;
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
        writers.push((lane + 2, Child::start(writing.command(plan, &store))?, Vec::new()));
    }
    let mut others = Vec::new();
    for mode in OTHERS {
        let mut command = Command::new(&plan.program);
        command.arg("checkpoint").arg("--store").arg(&store).arg("--mode").arg(mode);
        let other = Child::start(command)?;
        other.hear_until("R")?;
        others.push(other);
    }
    let (begun, mut largest) = (Instant::now(), 0);
    let lasting = Duration::from_secs(plan.pick(5, 120, 1_800));
    while begun.elapsed() < lasting {
        std::thread::sleep(Duration::from_millis(20));
        writers.iter_mut().for_each(|(_, child, heard)| heard.extend(child.heard()));
        let log = std::fs::metadata(store.join("threadkeep.db-wal")).map_or(0, |meta| meta.len());
        largest = largest.max(log);
    }
    for other in others {
        other.kill();
    }
    for (life, child, mut heard) in writers {
        heard.extend(child.kill());
        hear(&mut journal, outcome, life, &heard);
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

fn is_safe(version: i32) -> bool {
    version >= FLOOR
}

fn hear(journal: &mut Journal, outcome: &mut Outcome, life: u64, lines: &[String]) {
    for line in lines.iter().filter(|line| line.starts_with("E ") || line.starts_with("X ") || line.starts_with("W ")) {
        outcome.tally.add(Rule::Misbehaved, format!("a writer in the storm: {line}"));
    }
    hear_all(journal, life, lines);
}
