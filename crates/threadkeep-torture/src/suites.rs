//! The suites, and running them.

mod access;
mod beside;
mod bugs;
mod claims;
mod clients;
mod clock;
mod crowd;
mod cuts;
mod damage;
mod failing;
mod failover;
mod faults;
mod history;
mod hostile;
mod hosts;
mod kills;
mod mirror;
mod moves;
mod mutants;
mod points;
mod remote;
mod retention;
mod rollout_damage;
mod scale;
mod states;
mod steering;
mod storm;
mod syncs;
mod syscalls;
mod tampering;
mod upgrades;
mod zoo;

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::oracle;
use crate::plan::Plan;
use crate::report::{Outcome, Stop};
pub(crate) use beside::{ChangeBeside, play_changes};
pub(crate) use bugs::{Drill, play_drill};
pub(crate) use claims::{Renumber, play_renumber};
pub(crate) use clock::{Jumping, YEAR};
pub(crate) use damage::{Lay, Survey, play_layer, play_survey};
pub(crate) use history::{Dump, Play, play, play_dump};
pub(crate) use hostile::{Devour, play_reading};
pub(crate) use retention::{Fill, KeepRetaining, play_filling, play_retaining};
pub(crate) use rollout_damage::{Look, play_look};
pub(crate) use scale::{Grow, play_growing};
pub(crate) use steering::{Steer, play_steering};

/// What is run: its id, its name, and how.
type Run = (&'static str, &'static str, Suite);
type Suite = fn(&Plan, &mut Outcome) -> Result<(), Stop>;

/// Every suite, in the order of running.
const SUITES: &[Run] = &[
    ("T01", "kills", kills::run),
    ("T01", "mirror", mirror::run),
    ("T01", "beside", beside::run),
    ("T01", "retention", retention::run),
    ("T01", "steering", steering::run),
    ("T02", "syscalls", syscalls::run),
    ("T03", "cuts", cuts::run),
    ("T04", "states", states::run),
    ("T05", "syncs", syncs::run),
    ("T06", "failing", failing::run),
    ("T07", "damage", damage::run),
    ("T07", "rollouts", rollout_damage::run),
    ("T08", "tampering", tampering::run),
    ("T09", "history", history::run),
    ("T10", "claims", claims::run),
    ("T11", "storm", storm::run),
    ("T12", "clock", clock::run),
    ("T13", "crowd", crowd::run),
    ("T13", "zoo", zoo::run),
    ("T14", "moves", moves::run),
    ("T15", "access", access::run),
    ("T16", "hostile", hostile::run),
    ("T17", "upgrades", upgrades::run),
    ("T18", "failover", failover::run),
    ("T18", "hosts", hosts::run),
    ("T18", "faults", faults::run),
    ("T18", "server-kills", remote::killed),
    ("T18", "server-mirror", remote::mirrored),
    ("T18", "server-beside", remote::changed_beside),
    ("T18", "server-retention", remote::retained),
    ("T18", "server-steering", remote::steered),
    ("T18", "server-history", remote::histories),
    ("T18", "server-claims", remote::claimed),
    ("T18", "server-crowd", remote::crowded),
    ("T18", "server-races", remote::raced),
    ("T19", "scale", scale::run),
    ("T21", "mutants", mutants::run),
];

/// What is to be run by these names, in the order of running, and what is to be said before.
fn chosen(names: &[String]) -> Result<(Vec<Run>, Vec<String>)> {
    let (mut wanted, mut said) = (Vec::new(), Vec::new());
    for name in names {
        let is = |id: &str, word: &str| name.eq_ignore_ascii_case(id) || name == word;
        let row = bugs::ROWS.iter().find(|row| name.eq_ignore_ascii_case(row.id));
        // One of several suites under one id can be named alone.
        let named: Vec<&str> = SUITES.iter().filter(|(id, word, _)| is(id, word)).map(|(_, word, _)| *word).collect();
        if name == "all" {
            wanted.extend(SUITES.iter().map(|(_, word, _)| *word));
            wanted.extend(bugs::own().map(|(id, ..)| id));
        } else if is("T22", "bugs") {
            wanted.extend(bugs::own().map(|(id, ..)| id));
        } else if !named.is_empty() {
            wanted.extend(named);
        } else if let Some(row) = row {
            said.push(row.words());
            wanted.extend(row.runs());
        } else {
            let words: Vec<&str> = SUITES.iter().map(|(_, word, _)| *word).collect();
            let rows: Vec<&str> = bugs::ROWS.iter().map(|row| row.id).collect();
            let (words, rows) = (words.join(", "), rows.join(", "));
            return Err(format!("no suite `{name}`; there are all, {words}, bugs, and the rows {rows}"));
        }
    }
    let every = SUITES.iter().copied().chain(bugs::own());
    Ok((every.filter(|(id, word, _)| wanted.contains(id) || wanted.contains(word)).collect(), said))
}

/// Runs the suites that are named; says whether the run may count as a success.
pub(crate) fn run(plan: &Plan, names: &[String], json: bool) -> Result<bool> {
    let (suites, said) = chosen(names)?;
    if !json {
        said.iter().for_each(|words| println!("{words}"));
    }
    let wants_mutants = names.iter().any(|name| name.eq_ignore_ascii_case("T21") || name == "mutants");
    if wants_mutants && !mutants::are_built_in() {
        return Err("no defects are built into this program; build it with --features planted-defects".to_owned());
    }
    let missed = oracle::unnoticed();
    if !missed.is_empty() {
        return Err(format!("the oracle does not notice: {}", missed.join(", ")));
    }
    let mut good = true;
    let mut verdicts = [0_u32; 3];
    for (id, word, suite) in suites {
        let mut outcome = Outcome::new(id, word, plan.seed);
        let ended = suite(plan, &mut outcome);
        outcome.end(ended);
        match json {
            true => println!("{}", outcome.to_json()),
            false => println!("{}", outcome.to_text()),
        }
        good &= outcome.is_acceptable(plan.in_ci);
        let [passed, failed, skipped] = &mut verdicts;
        match outcome.passed() {
            Some(true) => *passed += 1,
            Some(false) => *failed += 1,
            None => *skipped += 1,
        }
    }
    if !json {
        let [passed, failed, skipped] = verdicts;
        println!("{passed} passed, {failed} failed, {skipped} skipped; repeat with --seed {}", plan.seed);
    }
    Ok(good)
}

/// How a writer is started.
#[derive(Debug, Clone, Copy)]
struct Writing<'a> {
    lanes: &'a str,
    life: u64,
    level: &'a str,
    /// 0 goes on for ever.
    batches: u64,
    lie: bool,
}

impl Writing<'_> {
    fn command(&self, plan: &Plan, store: &Path) -> Command {
        let mut command = Command::new(&plan.program);
        command.arg("write").arg("--store").arg(store).arg("--lanes").arg(self.lanes);
        command.arg("--life").arg(self.life.to_string()).arg("--level").arg(self.level);
        command.arg("--batches").arg(self.batches.to_string());
        if self.lie {
            command.arg("--lie");
        }
        command
    }
}
