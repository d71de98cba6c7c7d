//! T02: one operation, killed at every system call that it makes on its store.
//!
//! strace kills the process at the k-th call of one name, for every name that a run without a fault makes on the store's
//! files, and for k = 1 … until the operation comes through. It counts each thread's calls for itself.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::checker::{self, Depth};
use crate::oracle::{Rule, Tally};
use crate::plan::Plan;
use crate::report::{Outcome, Stop};
use crate::scenario::{MAIN, NAMES, NEW, VICTIM};
use crate::suites::points::{Bench, some_of};
use crate::tools::{self, Injection};

/// More calls of one name than any scenario makes.
const MOST: u64 = 400;
/// Numbers of the lanes; `main` is the one that is written.
const THREADS: [(&str, u64); 2] = [(MAIN, 0), (VICTIM, 1)];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    tools::need_strace()?;
    let mut bench = Bench::new(plan, &THREADS)?;
    let mut random = plan.random("syscalls");
    let scenarios = plan.pick(4, NAMES.len(), NAMES.len());
    let most = plan.pick(14, usize::MAX, usize::MAX);
    let (mut points, mut killed, mut calls) = (0_u64, 0_u64, 0);
    for name in NAMES.into_iter().take(scenarios) {
        let known = plain_run(plan, &mut bench, name)?;
        calls += known.len();
        let listed = known.iter().flat_map(|(call, count)| (1..=*count).map(move |at| (call.clone(), at)));
        for (call, at) in some_of(listed.collect(), most, &mut random) {
            let was_killed = point(plan, &mut bench, name, &call, at, &mut outcome.tally)?;
            (points, killed) = (points + 1, killed + u64::from(was_killed));
        }
        // What one run made so often, another may make more often.
        for (call, count) in known.iter().filter(|_| most == usize::MAX) {
            for at in count + 1..MOST {
                points += 1;
                if !point(plan, &mut bench, name, call, at, &mut outcome.tally)? {
                    break;
                }
                killed += 1;
            }
        }
    }
    outcome.figure("scenarios", scenarios);
    outcome.figure("names of calls over all", calls);
    outcome.figure("points", points);
    outcome.figure("killed there", killed);
    let lost = control(plan, &mut bench)?;
    outcome.control("an append that is acknowledged before it is stored", lost);
    Ok(())
}

fn command(plan: &Plan, store: &Path, name: &str, life: u64, lie: bool) -> Command {
    let mut command = Command::new(&plan.program);
    command.arg("scenario").arg("--name").arg(name).arg("--store").arg(store).arg("--life").arg(life.to_string());
    if lie {
        command.arg("--lie");
    }
    command
}

/// The calls that the scenario makes on its store, with how often one thread makes each.
fn plain_run(plan: &Plan, bench: &mut Bench<'_>, name: &str) -> Result<Vec<(String, u64)>> {
    let life = bench.next_life();
    let inner = command(plan, &bench.store(), name, life, false);
    let traced = tools::strace(&inner, Some(&bench.store()), "all", None, &bench.log());
    let ended = bench.run(traced, name != "init")?;
    if !ended.finished {
        return Err(format!("the scenario {name} fails without a fault: {}", ended.lines.join(" / ")));
    }
    let mut tally = Tally::default();
    judge(plan, bench, name, life, &ended.lines, &mut tally);
    match tally.details().first() {
        None => tools::counted_calls(&bench.log()),
        Some(words) => Err(format!("the scenario {name} without a fault: {words}")),
    }
}

/// Kills at one point and judges; says whether the process was killed.
fn point(plan: &Plan, bench: &mut Bench<'_>, name: &str, call: &str, at: u64, tally: &mut Tally) -> Result<bool> {
    let life = bench.next_life();
    let fault = Injection { call: call.to_owned(), what: "signal=SIGKILL".to_owned(), at, sticky: false };
    let inner = command(plan, &bench.store(), name, life, false);
    let traced = tools::strace(&inner, Some(&bench.store()), call, Some(&fault), &bench.log());
    let ended = bench.run(traced, name != "init")?;
    let mut found = Tally::default();
    if ended.silent {
        found.add(Rule::Hang, "the process");
    } else if !ended.killed && !ended.finished {
        found.add(Rule::Misbehaved, format!("it ended in another way: {}", ended.lines.join(" / ")));
    }
    judge(plan, bench, name, life, &ended.lines, &mut found);
    tally.absorb(found, &format!("{name}, {}", fault.words()));
    Ok(ended.killed)
}

fn judge(plan: &Plan, bench: &mut Bench<'_>, name: &str, life: u64, lines: &[String], tally: &mut Tally) {
    judge_operation(plan, bench, name, lines, tally);
    if name == "init" || name == "delete" {
        return;
    }
    bench.judge(life, lines, tally);
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

/// The same with a writer that acknowledges too early: the oracle must see it.
fn control(plan: &Plan, bench: &mut Bench<'_>) -> Result<bool> {
    for at in 1..MOST {
        let life = bench.next_life();
        let call = "pwrite64".to_owned();
        let fault = Injection { call: call.clone(), what: "signal=SIGKILL".to_owned(), at, sticky: false };
        let inner = command(plan, &bench.store(), "append", life, true);
        let traced = tools::strace(&inner, Some(&bench.store()), &call, Some(&fault), &bench.log());
        let ended = bench.run(traced, true)?;
        let mut tally = Tally::default();
        bench.judge(life, &ended.lines, &mut tally);
        if tally.count(Rule::AckedLost) > 0 {
            return Ok(true);
        }
        if !ended.killed {
            break;
        }
    }
    Ok(false)
}
