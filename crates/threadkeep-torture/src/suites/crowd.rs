//! T13: many processes write at once, each its own threads, and nobody is refused or left waiting for long.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule};
use crate::plan::Plan;
use crate::report::{Outcome, Stop};
use crate::suites::{Writing, kills};
use crate::{Result, suites::kills::hear_all};

/// How many write, and what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd {
    /// Processes that begin at the same time.
    pub(crate) processes: u64,
    /// Threads that each of them writes at once.
    pub(crate) lanes: u64,
    /// Appends to each thread.
    pub(crate) batches: u64,
    /// How often somebody else keeps all of them out meanwhile, and for how long.
    pub(crate) kept_out: (u32, Duration),
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    for (processes, batches) in [(8, plan.pick(60, 500, 2_000)), (32, plan.pick(15, 250, 500))] {
        crowd(plan, outcome, Crowd { processes, lanes: 2, batches, kept_out: (0, Duration::ZERO) })?;
    }
    let (killed, found_out) = kills::control(plan)?;
    outcome.control(format!("writers that acknowledge before they store, {killed} kills"), found_out);
    Ok(())
}

/// Has all of them write on a disk, notes how it went, and judges what is stored.
pub(crate) fn crowd(plan: &Plan, outcome: &mut Outcome, crowd: Crowd) -> Result<()> {
    let Crowd { processes, lanes: width, batches, kept_out } = crowd;
    let ground = plan.disk_ground()?;
    let store = ground.store("store");
    let mut journal = Journal::default();
    let mut children = Vec::new();
    for process in 0..processes {
        let lanes = (process * width..(process + 1) * width).map(|lane| format!("lane-{lane}={lane}"));
        let lanes = lanes.collect::<Vec<_>>().join(",");
        let writing = Writing { lanes: &lanes, life: process + 1, level: "synced", batches, lie: false };
        let mut command = writing.command(plan, &store);
        command.args(["--wait", "--patient"]);
        children.push((process + 1, Child::start(command)?));
    }
    (0..processes * width).for_each(|lane| journal.open(&format!("lane-{lane}"), lane));
    for (_, child) in &children {
        child.hear_until("R")?;
    }
    let begun = Instant::now();
    for (_, child) in &mut children {
        child.go()?;
    }
    keep_out(&store, kept_out)?;
    let (mut worst, mut longest) = (0, 0);
    for (life, child) in children {
        let (status, lines) = child.finish()?;
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["L", _, _, _, p99, max] => {
                    worst = worst.max(p99.parse().unwrap_or(0));
                    longest = longest.max(max.parse().unwrap_or(0));
                }
                ["E" | "W" | "X", ..] => outcome.tally.add(Rule::Misbehaved, format!("without a fault: {line}")),
                _ => {}
            }
        }
        if !status.success() {
            outcome.tally.add(Rule::Misbehaved, format!("a writer ended with {status}"));
        }
        hear_all(&mut journal, life, &lines);
    }
    // A batch has one, two or three items, in turns.
    let items: u64 = (0..batches).map(|batch| batch % 3 + 1).sum();
    if journal.acked != processes * width * items {
        let words =
            format!("{} items were acknowledged, {} were to be written", journal.acked, processes * width * items);
        outcome.tally.add(Rule::Misbehaved, words);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let appends = processes * width * batches;
    let per_second = u32::try_from(appends).map_or(0.0, f64::from) / seconds;
    let milliseconds = |micros: u32| f64::from(micros) / 1_000.0;
    let name = format!("{processes} processes × {width} threads × {batches} appends");
    outcome.figure(format!("{name}: items acked"), journal.acked);
    outcome.figure(format!("{name}: appends/s"), format!("{per_second:.0}"));
    outcome.figure(format!("{name}: unluckiest p99, ms"), format!("{:.1}", milliseconds(worst)));
    outcome.figure(format!("{name}: longest, ms"), format!("{:.1}", milliseconds(longest)));
    let depth = Depth { verify: true, integrity: true, ..Depth::default() };
    checker::judge(plan, &store, &mut journal, depth, &mut outcome.tally);
    Ok(())
}

/// Holds the engine's own lock again and again, past the line in which the writers wait.
fn keep_out(store: &Path, (times, lasting): (u32, Duration)) -> Result<()> {
    if times == 0 {
        return Ok(());
    }
    let told = |error: rusqlite::Error| error.to_string();
    let connection = rusqlite::Connection::open(store.join("threadkeep.db")).map_err(told)?;
    connection.busy_timeout(Duration::from_secs(30)).map_err(told)?;
    for _ in 0..times {
        connection.execute_batch("BEGIN IMMEDIATE").map_err(told)?;
        std::thread::sleep(lasting);
        connection.execute_batch("COMMIT").map_err(told)?;
        std::thread::sleep(lasting / 8);
    }
    Ok(())
}
