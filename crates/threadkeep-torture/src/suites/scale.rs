//! T19: stores that grow: many threads, one long one, hundreds of forks, streams of small deltas.
//!
//! What it takes to write, to keep and to read them is told in figures. What must hold at any size is judged: no process holds
//! more memory than it may, a fork costs nearly nothing however long the thread is, and all that was written is there.

mod growing;

use std::path::Path;
use std::process::Command;

use self::growing::Part;
use crate::Result;
use crate::child::Child;
use crate::ground;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
pub(crate) use growing::{Grow, play_growing};

/// What a process may hold.
const MEMORY: u64 = 256 << 20;
/// What a fork may add to the store: its rows and its place in the lists, and none of what it shares.
const FORK_BYTES: u64 = 8 << 10;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    for (part, count, bytes) in [
        (Part::Threads, plan.pick(200, 2_000, 10_000), plan.pick(50_000, 200_000, 1_000_000)),
        (Part::Thread, 1, plan.pick(16 << 20, 256 << 20, 1 << 30)),
        (Part::Forks, plan.pick(100, 500, 500), plan.pick(1 << 20, 16 << 20, 64 << 20)),
        (Part::ForksOfForks, plan.pick(100, 500, 500), 1 << 20),
        (Part::Deltas, plan.pick(3_000, 100_000, 1_000_000), 40),
    ] {
        if plan.only.as_deref().is_some_and(|only| only != part.words()) {
            continue;
        }
        let mut tally = Tally::default();
        let words = grow(plan, part, (count, bytes), &mut tally)?;
        outcome.figure(part.words(), words);
        outcome.tally.absorb(tally, part.words());
    }
    let mut tally = Tally::default();
    grow(plan, Part::Copies, (10, 1 << 20), &mut tally)?;
    outcome.control("forks that copy what they share", tally.count(Rule::Misbehaved) > 0);
    Ok(())
}

/// Grows a store in one process and reads it in another, which finds nothing in memory.
fn grow(plan: &Plan, part: Part, (count, bytes): (u64, u64), tally: &mut Tally) -> Result<String> {
    let ground = plan.disk_ground()?;
    let store = ground.store("store");
    let start = |read: bool| {
        let mut command = Command::new(&plan.program);
        command.arg("grow").arg("--store").arg(&store).arg("--part").arg(part.name());
        command.args(["--count", &count.to_string(), "--bytes", &bytes.to_string()]);
        command.args(read.then_some("--read"));
        Child::start(command)
    };
    let mut words = vec![format!("{count} × {bytes} bytes")];
    hear(&start(false)?, &mut words, tally)?;
    let is_cold = !ground::is_remote(&store) && plan::forget_files();
    words.push(if is_cold { "then, from the disk," } else { "then" }.to_owned());
    hear(&start(true)?, &mut words, tally)?;
    if !ground::is_remote(&store) {
        words.push(format!("{} MiB on the disk", size_of(&store)? >> 20));
    }
    Ok(words.join(", ").replace(",,", ","))
}

fn hear(child: &Child, words: &mut Vec<String>, tally: &mut Tally) -> Result<()> {
    let mut ended = false;
    while let Some(line) = child.hear()? {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let number = || rest.parse::<u64>().unwrap_or(u64::MAX);
        match word {
            "F" => words.push(rest.to_owned()),
            "V" => tally.add(Rule::AckedLost, rest),
            "G" => {
                words.push(format!("a fork adds {} bytes", number()));
                if number() > FORK_BYTES {
                    tally.add(Rule::Misbehaved, format!("a fork adds {} bytes", number()));
                }
            }
            "M" => {
                words.push(format!("{} MiB held", number() >> 20));
                if number() > MEMORY {
                    tally.add(Rule::Misbehaved, format!("{} MiB were held", number() >> 20));
                }
            }
            "Z" => ended = true,
            _ => {}
        }
    }
    if !ended {
        tally.add(Rule::Misbehaved, "a process ended before it was done");
    }
    Ok(())
}

fn size_of(store: &Path) -> Result<u64> {
    let told = |error: std::io::Error| format!("{}: {error}", store.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(store).map_err(told)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(told)?.len();
    }
    Ok(bytes)
}
