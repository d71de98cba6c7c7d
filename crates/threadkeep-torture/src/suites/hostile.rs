//! T16: agents' files that are made to hurt: long, deep, many, damaged, packed, in circles, between files that are good.
//!
//! A process imports each of them, reads what came of it, gives it to other agents and compares what is stored with the file, and
//! tells what memory that took. The judge looks that it ended by itself, within its memory; that the counts add up; that what
//! is refused is named; that the good files beside it are there, whole; and that four times as much took no more than a little over
//! four times the work.

mod files;
mod reading;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use self::files::{CASES, Case, NEIGHBOURS};
use crate::child::Child;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::{Result, ground};
pub(crate) use reading::{Devour, play_reading};

/// What a process may hold beside the largest of its items, of which it may hold four.
const MEMORY: u64 = 256 << 20;
const MEMORY_OF_LARGEST: u64 = 4;
/// Who has not ended after so long does not end.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// How many times as much is given where the work is compared, and how many times the work that may take. Work that grows with
/// the square takes 16 times as much.
const MORE: u64 = 4;
const MORE_WORK: f64 = 9.0;
/// Below so many seconds of a processor the work says little.
const TELLING: f64 = 2.0;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let (mut bytes, mut count, mut peak) = (0, 0, 0);
    for case in CASES.iter().filter(|case| plan.only.as_deref().is_none_or(|only| only == case.name)) {
        let size = plan.pick(case.sizes.0, case.sizes.1, case.sizes.2);
        let mut tally = Tally::default();
        let read = read(plan, case, size, Spoil::Nothing, &mut tally)?;
        let less =
            if case.grows { Some(self::read(plan, case, size / MORE, Spoil::Nothing, &mut tally)?) } else { None };
        let growth = less.map(|less| read.cpu / less.cpu.max(0.001));
        if read.cpu >= TELLING && growth.is_some_and(|growth| growth > MORE_WORK) {
            let words = format!("{MORE} times as much took {:.1} times the work", growth.unwrap_or(0.0));
            tally.add(Rule::Misbehaved, words);
        }
        let growth = growth.map_or_else(String::new, |growth| format!(", ×{growth:.1} for ×{MORE}"));
        let mebibytes = |bytes: u64| bytes >> 20;
        let words = format!(
            "{size}: {} MiB, {} items, {} problems, {:.1} s, {} MiB held while {}{growth}",
            mebibytes(read.bytes),
            read.items,
            read.problems,
            read.cpu,
            mebibytes(read.peak),
            read.step
        );
        outcome.figure(case.name, words);
        outcome.tally.absorb(tally, case.name);
        (bytes, count, peak) = (bytes + read.bytes, count + 1, peak.max(read.peak));
    }
    outcome.figure("kinds of files", count);
    outcome.figure("MiB in all", bytes >> 20);
    outcome.figure("most MiB held", peak >> 20);
    if let Some(case) = CASES.first() {
        for spoil in [Spoil::Memory, Spoil::Stored, Spoil::Neighbour] {
            let mut tally = Tally::default();
            read(plan, case, 1, spoil, &mut tally)?;
            outcome.control(spoil.words(), !tally.is_empty());
        }
    }
    Ok(())
}

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoil {
    Nothing,
    Memory,
    Stored,
    Neighbour,
}

impl Spoil {
    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Memory => "a process that holds more than it may",
            Self::Stored => "a file that is another one than what is stored",
            Self::Neighbour => "a good file that lacks a line",
        }
    }
}

/// What a process told of its reading.
#[derive(Debug, Default)]
struct Read {
    bytes: u64,
    items: u64,
    problems: u64,
    peak: u64,
    /// At which step that was.
    step: String,
    cpu: f64,
}

fn read(plan: &Plan, case: &Case, size: u64, spoil: Spoil, tally: &mut Tally) -> Result<Read> {
    let ground = plan.ground()?;
    let told = |error: std::io::Error| format!("{}: {error}", case.name);
    let files = plan::disk_folder()?;
    let folder = files.path().canonicalize().map_err(told)?;
    (case.lay)(&folder, size).map_err(told)?;
    files::lay_neighbours(&folder, spoil == Spoil::Neighbour).map_err(told)?;
    let store = ground.store("store");
    let mut command = Command::new(&plan.program);
    command.arg("devour").arg("--store").arg(&store).arg("--folder").arg(&folder);
    command.args((spoil == Spoil::Memory).then_some("--hold")).args((spoil == Spoil::Stored).then_some("--spoil"));
    let mut read = Read { bytes: size_of(&folder).map_err(told)?, ..Read::default() };
    hear(&mut Child::start(command)?, case, &mut read, tally)?;
    if ground::is_remote(&store) {
        return Ok(read);
    }
    let allowed = MEMORY + MEMORY_OF_LARGEST * (case.largest)(size);
    if read.peak > allowed {
        tally.add(
            Rule::Misbehaved,
            format!("{} MiB were held while {}, {} are allowed", read.peak >> 20, read.step, allowed >> 20),
        );
    }
    Ok(read)
}

/// Listens to a process until it ends.
fn hear(child: &mut Child, case: &Case, read: &mut Read, tally: &mut Tally) -> Result<()> {
    let (begun, mut ended, mut last) = (Instant::now(), false, String::new());
    while let Some(line) = child.hear()? {
        if begun.elapsed() > PATIENCE {
            tally.add(Rule::Hang, format!("it went on for {} s", begun.elapsed().as_secs()));
            return Ok(());
        }
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words.first().copied().unwrap_or_default() {
            "I" => {
                (read.items, read.problems) = (number(2), number(6));
                if number(1) != number(2) + number(3) + number(4) {
                    tally.add(Rule::Hole, format!("the counts do not add up: {line}"));
                }
                if number(2) < NEIGHBOURS * 2 + case.items {
                    tally.add(Rule::AckedLost, format!("too little was imported: {line}"));
                }
                if number(5) > 0 && !case.may_be_refused {
                    tally.add(Rule::AckedLost, format!("a file was refused: {line}"));
                }
            }
            "N" if number(2) != NEIGHBOURS => {
                tally.add(Rule::AckedLost, format!("a good file has {} of {NEIGHBOURS} items", number(2)));
            }
            "V" => tally.add(Rule::Altered, line.get(2..).unwrap_or_default()),
            "C" => read.cpu = as_seconds(number(1)),
            "M" if number(1) > read.peak => {
                (read.peak, read.step) = (number(1), words.get(2..).unwrap_or_default().join(" "));
            }
            "Z" => ended = true,
            _ => {}
        }
        last = line;
    }
    if !ended {
        tally.add(Rule::Misbehaved, format!("a process ended before it was done; it last said `{last}`"));
    }
    Ok(())
}

fn size_of(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn as_seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}
