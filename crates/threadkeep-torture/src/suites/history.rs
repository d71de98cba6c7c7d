//! T09: processes do all kinds of things to shared threads at once, some are killed, and every answer is one that a single log
//! could have given, doing one thing after the other.

mod check;
mod player;
mod reading;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::check::{Anomaly, History, Step, anomaly};
use self::reading::Account;
use crate::Result;
use crate::actor::{Peer, monotonic};
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::ground;
use crate::oracle::{Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};

pub(crate) use player::{Play, play};
pub(crate) use reading::{Dump, play_dump};

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let histories = if plan.server.is_some() { plan.pick(6, 40, 200) } else { plan.pick(10, 100, 500) };
    let ops = plan.pick(400, 2_000, 2_000);
    let mut random = plan.random("history");
    let (mut done, mut items, mut kills) = (0, 0, 0);
    let mut kept = Vec::new();
    for number in 0..histories {
        let setting = Setting::new(&mut random, ops, number % 2 == 1);
        let mut tally = Tally::default();
        let account = record(plan, &setting, None, &mut random, &mut tally)?;
        kills += account.kills;
        let threads = account.histories(&mut tally);
        for history in &threads {
            done += history.ops.len();
            items += history.log.len();
            judge(history, &mut tally);
        }
        if tally.is_empty() && kept.len() < DOCTORED {
            kept.extend(threads);
        }
        outcome.tally.absorb(tally, &format!("history {number}"));
    }
    outcome.figure("histories", histories);
    outcome.figure("processes killed", kills);
    outcome.figure("operations", done);
    outcome.figure("items", items);
    for (what, doctor) in DOCTORS {
        outcome.control(format!("a history with {what}"), is_found_out(&kept, doctor));
    }
    for (what, lie) in [("acknowledges what it does not store", "acks"), ("reads from memory", "reads")] {
        let mut tally = Tally::default();
        let setting = Setting { processes: 3, threads: 1, ops: 300, kills: 0 };
        // It may be kept from the thread for a whole history.
        for _ in 0..20 {
            let account = record(plan, &setting, Some(lie), &mut random, &mut tally)?;
            account.histories(&mut tally).iter().for_each(|history| judge(history, &mut tally));
            if !tally.is_empty() {
                break;
            }
        }
        outcome.control(format!("a process that {what}"), !tally.is_empty());
    }
    Ok(())
}

/// So many histories are doctored, to see whether that is found out.
const DOCTORED: usize = 24;

/// How many take part in a history, and in what.
#[derive(Debug)]
struct Setting {
    processes: u64,
    threads: u64,
    ops: u64,
    kills: u64,
}

impl Setting {
    fn new(random: &mut Random, ops: u64, with_kills: bool) -> Self {
        let processes = 2 + random.below(15);
        let threads = 1 + random.below(1 + processes / 3);
        Self { processes, threads, ops, kills: if with_kills { 1 + random.below(12) } else { 0 } }
    }
}

/// A process that takes part.
struct Part {
    life: u64,
    child: Child,
    heard: Vec<String>,
}

/// Has the processes play, kills some of them, and reads what is stored then.
fn record(
    plan: &Plan,
    setting: &Setting,
    lie: Option<&str>,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<Account> {
    let ground = plan.ground()?;
    let store = ground.store("store");
    let mut maker = Peer::plain(plan, &store, "maker")?;
    for thread in 0..setting.threads {
        maker.must(&format!("new {}", player::name(thread)))?;
        maker.must(&format!("release {}", player::name(thread)))?;
    }
    maker.finish()?;
    let lives = setting.processes + setting.kills;
    let start = |life: u64, random: &mut Random| -> Result<Part> {
        let mut command = Command::new(&plan.program);
        command.arg("play").arg("--store").arg(&store).arg("--life").arg(life.to_string());
        command.arg("--seed").arg(random.below(u64::MAX).to_string()).arg("--lives").arg(lives.to_string());
        command.arg("--ops").arg((setting.ops / setting.processes).to_string());
        command.arg("--threads").arg(setting.threads.to_string());
        if let Some(lie) = lie.filter(|_| life == 1) {
            command.arg("--lie").arg(lie);
        }
        let child = Child::start(command)?;
        child.hear_until("R")?;
        Ok(Part { life, child, heard: Vec::new() })
    };
    let mut parts = (1..=setting.processes).map(|life| start(life, random)).collect::<Result<Vec<_>>>()?;
    parts.iter_mut().try_for_each(|part| part.child.go())?;
    let mut account = Account::default();
    for life in setting.processes + 1..=lives {
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let victim = usize::try_from(random.below(parts.len() as u64)).unwrap_or(0);
        let Part { life: dead, child, mut heard } = parts.swap_remove(victim);
        let before = monotonic();
        heard.extend(child.kill());
        ground::bury(&store, &player::label(dead))?;
        account.hear(dead, &heard, Some((before, monotonic())), tally);
        let mut successor = start(life, random)?;
        successor.child.go()?;
        parts.push(successor);
    }
    for part in &mut parts {
        part.heard.extend(part.child.hear_until("D")?);
    }
    for Part { life, mut child, mut heard } in parts {
        child.go()?;
        let status = child.finish_into(&mut heard)?;
        if !status.success() {
            tally.add(Rule::Misbehaved, format!("a process ended with {status}"));
        }
        account.hear(life, &heard, None, tally);
    }
    read_store(plan, &store, setting, &mut account, tally)?;
    Ok(account)
}

fn read_store(plan: &Plan, store: &Path, setting: &Setting, account: &mut Account, tally: &mut Tally) -> Result<()> {
    let threads: Vec<String> = (0..setting.threads).map(player::name).collect();
    let places: Vec<(String, u64)> = threads.iter().map(|thread| (thread.clone(), 0)).collect();
    let depth = Depth { verify: true, whole: true, integrity: true };
    checker::look(plan, store, &places, depth, tally);
    let mut command = Command::new(&plan.program);
    command.arg("dump").arg("--store").arg(store).arg("--threads").arg(threads.join(","));
    let (status, lines) = Child::start(command)?.finish()?;
    if !status.success() {
        return Err(format!("the store can't be read: {}", lines.last().map_or("", String::as_str)));
    }
    account.store(&lines);
    Ok(())
}

/// Looks for an order, and counts it when there is none.
fn judge(history: &History, tally: &mut Tally) {
    let thread = &history.thread;
    match anomaly(history) {
        None => {}
        Some(Anomaly::Undecided) => tally.add(Rule::Hang, format!("{thread}: the search for an order takes too long")),
        Some(Anomaly::Unexplained { items }) => {
            tally.add(Rule::Phantom, format!("{thread}: {items} items that nobody wrote there"));
        }
        Some(Anomaly::Impossible { step, words }) => {
            let rule = match step {
                Step::Acquire { .. } | Step::Held { .. } | Step::Delete => Rule::TwoWriters,
                Step::Write { .. } | Step::Lost { .. } => Rule::StaleWriter,
                Step::Read { .. } | Step::Get { .. } => Rule::Unequal,
                Step::Again { .. } => Rule::AckedLost,
                _ => Rule::Misbehaved,
            };
            tally.add(rule, format!("{thread}: no order explains {words}"));
        }
    }
}

type Doctor = fn(&mut History) -> bool;

/// Changes to a history that no log could have given, each for an oracle's blind spot; false where there is nothing to change.
const DOCTORS: [(&str, Doctor); 5] = [
    ("a stale read", |history| {
        let rewound = history.ops.iter().any(|op| matches!(op.step, Step::Rewind { to: 0, .. }));
        // Long past the first item.
        let read = history.ops.iter_mut().rev().filter(|_| !rewound).find_map(|op| match &mut op.step {
            Step::Read { head: Some(head) } if *head > 8 => Some(head),
            _ => None,
        });
        read.map(|head| *head = 0).is_some()
    }),
    ("a lost acknowledged append", |history| {
        let last = history.log.len().wrapping_sub(1);
        let acked = |op: &check::Op| matches!(op.step, Step::Write { first, size, .. } if first + size == last + 1);
        history.ops.iter().any(|op| acked(op) && !op.maybe) && history.log.pop().is_some()
    }),
    ("two appends in the other order", |history| {
        let mut writes: Vec<_> = history.ops.iter_mut().filter(|op| matches!(op.step, Step::Write { .. })).collect();
        writes.sort_by_key(|op| op.from);
        match writes.as_mut_slice() {
            [first, .., last] if first.to < last.from => {
                std::mem::swap(&mut first.step, &mut last.step);
                true
            }
            _ => false,
        }
    }),
    ("two appends that expected one head", |history| {
        let log = history.log.clone();
        history.ops.iter_mut().any(|op| match &mut op.step {
            Step::Write { first, expect: Some(expect), .. } if *first > 1 => {
                let before = expect.and_then(|head| log.get(head)).map(|entry| entry.parent);
                before.map(|before| *expect = before).is_some()
            }
            _ => false,
        })
    }),
    ("a claim beside a live holder", |history| {
        let held = history.ops.iter_mut().find(|op| matches!(op.step, Step::Held { .. }));
        held.map(|op| op.step = Step::Acquire { handle: usize::MAX, note: None }).is_some()
    }),
];

/// Whether every history that can be changed so is found out, and one can be.
fn is_found_out(histories: &[History], doctor: Doctor) -> bool {
    let doctored = histories.iter().cloned().filter_map(|mut history| doctor(&mut history).then_some(history));
    let found: Vec<bool> =
        doctored.map(|history| !matches!(anomaly(&history), None | Some(Anomaly::Undecided))).collect();
    !found.is_empty() && found.iter().all(|found| *found)
}
