//! T05: syncing fails, at every one of its calls, once and for ever.
//!
//! Linux drops what it could not write when a sync fails, and the next sync succeeds without it. So nothing may be
//! acknowledged between a failed sync of the log and the next one that succeeded. Some file systems go on to show what
//! was written, others what was there before: strace makes the first kind of failure, a preloaded library the second.

use std::collections::HashMap;

use crate::Result;
use crate::oracle::{Rule, Tally};
use crate::plan::Plan;
use crate::report::{Outcome, Stop};
use crate::suites::Writing;
use crate::suites::points::{Bench, some_of};
use crate::tools::{self, Injection};

const CALLS: [&str; 2] = ["fdatasync", "fsync"];
const TRACED: &str = "fdatasync,fsync,write";
const BATCHES: u64 = 8;
const LOST_PAGES: &str = include_str!("lost_pages.c");

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    tools::need_strace()?;
    let mut bench = Bench::new(plan, &[("main", 0)])?;
    let mut figures = Figures::default();
    let plain = Writing { lanes: "main=0", life: bench.next_life(), level: "synced", batches: BATCHES, lie: false };
    let inner = plain.command(plan, &bench.store());
    bench.run(tools::strace(&inner, None, "fdatasync,fsync", None, &bench.log()), true)?;
    let counted = tools::counted_calls(&bench.log())?;
    let listed: Vec<Injection> = counted
        .iter()
        .filter(|(call, _)| CALLS.contains(&call.as_str()))
        .flat_map(|(call, count)| (1..=*count).flat_map(move |at| [false, true].map(|sticky| fault(call, at, sticky))))
        .collect();
    outcome.figure("syncs of a run", listed.len() / 2);
    let chosen = some_of(listed, plan.pick(16, usize::MAX, usize::MAX), &mut plan.random("syncs"));
    for repeat in 0..plan.pick(1, 3, 10) {
        for (place, fault) in chosen.iter().enumerate() {
            // In a group of queued appends each of them must be told that the sync failed.
            let level = if (place + repeat) % 3 == 2 { "queued" } else { "synced" };
            let mut tally = Tally::default();
            point(plan, &mut bench, fault, (level, false), &mut tally, &mut figures)?;
            outcome.tally.absorb(tally, &fault.words());
        }
    }
    outcome.figure("points", figures.points);
    outcome.figure("syncs that failed", figures.failed_syncs);
    outcome.figure("appends refused", figures.refused);
    outcome.figure("acks after a failed sync", figures.unsynced_acks);
    outcome.figure("went on in the same process", format!("{} of {}", figures.resumed, figures.passing));
    let mut control = Figures::default();
    let most = counted.iter().filter(|(call, _)| CALLS.contains(&call.as_str())).max_by_key(|(_, count)| *count);
    let (call, most) = most.map_or(("fdatasync", 0), |(call, count)| (call.as_str(), *count));
    for at in (1..=most).rev() {
        point(plan, &mut bench, &fault(call, at, true), ("synced", true), &mut Tally::default(), &mut control)?;
        if control.unsynced_acks > 0 {
            break;
        }
    }
    outcome.control("a writer that acknowledges though its sync failed", control.unsynced_acks > 0);
    lose_pages(plan, &mut bench, outcome)
}

/// The same where the file is afterwards as it was before: whoever syncs again, and acknowledges, has stored nothing.
fn lose_pages(plan: &Plan, bench: &mut Bench<'_>, outcome: &mut Outcome) -> Result<(), Stop> {
    let shim = tools::compile(LOST_PAGES, bench.path(), "lost_pages.so", true)?;
    let mut losing = |at: &str, level: &'static str, lie: bool, tally: &mut Tally| {
        let life = bench.next_life();
        let mut command = Writing { lanes: "main=0", life, level, batches: BATCHES, lie }.command(plan, &bench.store());
        command.env("LD_PRELOAD", &shim).env("TORTURE_LOST_PAGES", at);
        let ended = bench.run(command, true)?;
        let mut found = Tally::default();
        if ended.silent {
            found.add(Rule::Hang, ended.lines.last().map_or("", String::as_str));
        } else if !at.ends_with('+') && !ended.resumed() {
            found.add(Rule::Misbehaved, format!("it did not go on after the fault: {}", ended.lines.join(" / ")));
        }
        let refused = ended.lines.iter().filter(|line| line.starts_with("E ") || line.starts_with("W ")).count();
        bench.judge(life, &ended.lines, &mut found);
        tally.absorb(found, &format!("pages lost by sync {at}"));
        Ok::<bool, String>(refused > 0)
    };
    let (mut points, mut lost) = (0_u64, 0_u64);
    for level in ["synced", "queued"] {
        for at in 1.. {
            let once = losing(&at.to_string(), level, false, &mut outcome.tally)?;
            let for_ever = losing(&format!("{at}+"), level, false, &mut outcome.tally)?;
            (points, lost) = (points + 2, lost + u64::from(once) + u64::from(for_ever));
            if !for_ever {
                break;
            }
        }
    }
    outcome.figure("points at which pages were lost with the sync", lost);
    let mut tally = Tally::default();
    for at in (1..points / 2).rev() {
        losing(&format!("{at}+"), "synced", true, &mut tally)?;
        if tally.count(Rule::AckedLost) > 0 {
            break;
        }
    }
    outcome.control("the same where the pages are lost", tally.count(Rule::AckedLost) > 0);
    Ok(())
}

#[derive(Debug, Default)]
struct Figures {
    points: u64,
    failed_syncs: u64,
    refused: u64,
    unsynced_acks: u64,
    passing: u64,
    resumed: u64,
}

fn fault(call: &str, at: u64, sticky: bool) -> Injection {
    Injection { call: call.to_owned(), what: "error=EIO".to_owned(), at, sticky }
}

fn point(
    plan: &Plan,
    bench: &mut Bench<'_>,
    fault: &Injection,
    (level, lie): (&str, bool),
    tally: &mut Tally,
    figures: &mut Figures,
) -> Result<()> {
    let life = bench.next_life();
    let writing = Writing { lanes: "main=0", life, level, batches: BATCHES, lie };
    let inner = writing.command(plan, &bench.store());
    let ended = bench.run(tools::strace(&inner, None, TRACED, Some(fault), &bench.log()), true)?;
    let text = std::fs::read_to_string(bench.log()).map_err(|error| format!("the log of strace: {error}"))?;
    let (failed, acks) = unsynced_acks(&text);
    if acks > 0 && !lie {
        tally.add(Rule::AckedLost, format!("{acks} acks between a failed sync of the log and the next good one"));
    }
    let resumed = ended.resumed();
    if ended.silent {
        tally.add(Rule::Hang, ended.lines.last().map_or("", String::as_str));
    } else if !fault.sticky && !resumed {
        tally.add(Rule::Misbehaved, format!("it did not go on after the fault: {}", ended.lines.join(" / ")));
    }
    figures.points += 1;
    figures.failed_syncs += failed;
    figures.unsynced_acks += acks;
    figures.refused += ended.lines.iter().filter(|line| line.starts_with("E ")).count() as u64;
    figures.passing += u64::from(!fault.sticky);
    figures.resumed += u64::from(!fault.sticky && resumed);
    bench.judge(life, &ended.lines, tally);
    Ok(())
}

/// Reads a log of strace: how many syncs failed, and how many acknowledgements came while the log was not known to be synced.
fn unsynced_acks(text: &str) -> (u64, u64) {
    let mut unfinished: HashMap<&str, bool> = HashMap::new();
    let (mut failed, mut acks, mut dirty) = (0, 0, false);
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let is_sync = rest.contains("sync(") || rest.contains("sync resumed>");
        if is_sync {
            let of_log = rest.contains("-wal>") || unfinished.remove(thread).unwrap_or(false);
            if rest.contains("<unfinished") {
                unfinished.insert(thread, of_log);
            } else if rest.contains("= -1 ") {
                failed += 1;
                dirty |= of_log;
            } else if of_log {
                dirty = false;
            }
        } else if dirty && rest.contains("write(1<") && rest.contains("\"A ") {
            acks += 1;
        }
    }
    (failed, acks)
}

#[cfg(test)]
mod tests {
    use super::unsynced_acks;

    #[test]
    fn an_acknowledgement_between_a_failed_sync_of_the_log_and_a_good_one_is_seen() {
        let failed = "7 fdatasync(9</s/threadkeep.db-wal>) = -1 EIO (Input/output error) (INJECTED)\n";
        let good = "7 fdatasync(9</s/threadkeep.db-wal> <unfinished ...>\n7 <... fdatasync resumed>) = 0\n";
        let other = "7 fsync(4</s/threadkeep.db>) = -1 EIO (Input/output error) (INJECTED)\n";
        let ack = "5 write(1<pipe:[1]>, \"A main 0 1 \"..., 9) = 9\n";
        assert_eq!(unsynced_acks(&[failed, ack].concat()), (1, 1));
        assert_eq!(unsynced_acks(&[failed, good, ack].concat()), (1, 0));
        assert_eq!(unsynced_acks(&[other, ack].concat()), (1, 0));
    }
}
