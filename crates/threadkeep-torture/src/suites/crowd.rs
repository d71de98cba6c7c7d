//! T13: many processes write at once, each its own threads, and nobody is refused or left waiting for long.

use std::time::Instant;

use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::suites::{Writing, kills};
use crate::{Result, suites::kills::hear_all};

const LANES: u64 = 2;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    for (processes, batches) in [(8, plan.pick(60, 500, 2_000)), (32, plan.pick(15, 250, 500))] {
        crowd(plan, outcome, processes, batches)?;
    }
    let (killed, found_out) = kills::control(plan)?;
    outcome.control(format!("writers that acknowledge before they store, {killed} kills"), found_out);
    Ok(())
}

fn crowd(plan: &Plan, outcome: &mut Outcome, processes: u64, batches: u64) -> Result<()> {
    let folder = plan::disk_folder()?;
    let store = folder.path().join("store");
    let mut journal = Journal::default();
    let mut children = Vec::new();
    for process in 0..processes {
        let lanes = (process * LANES..(process + 1) * LANES).map(|lane| format!("lane-{lane}={lane}"));
        let lanes = lanes.collect::<Vec<_>>().join(",");
        let writing = Writing { lanes: &lanes, life: process + 1, level: "synced", batches, lie: false };
        let mut command = writing.command(plan, &store);
        command.arg("--wait");
        children.push((process + 1, Child::start(command)?));
    }
    (0..processes * LANES).for_each(|lane| journal.open(&format!("lane-{lane}"), lane));
    for (_, child) in &children {
        child.hear_until("R")?;
    }
    let begun = Instant::now();
    for (_, child) in &mut children {
        child.go()?;
    }
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
    let seconds = begun.elapsed().as_secs_f64();
    let appends = processes * LANES * batches;
    let per_second = u32::try_from(appends).map_or(0.0, f64::from) / seconds;
    let milliseconds = |micros: u32| f64::from(micros) / 1_000.0;
    let name = format!("{processes} processes × {LANES} threads × {batches} appends");
    outcome.figure(format!("{name}: items acked"), journal.acked);
    outcome.figure(format!("{name}: appends/s"), format!("{per_second:.0}"));
    outcome.figure(format!("{name}: unluckiest p99, ms"), format!("{:.1}", milliseconds(worst)));
    outcome.figure(format!("{name}: longest, ms"), format!("{:.1}", milliseconds(longest)));
    let depth = Depth { verify: true, integrity: true, ..Depth::default() };
    checker::judge(plan, &store, &mut journal, depth, &mut outcome.tally);
    Ok(())
}
