//! T04: every state that a power cut could leave, as far as chance finds them.
//!
//! Runs of the store are recorded with all the bytes they write, all names they make, and all syncs. From a recording the
//! states are made that a file system may be in when the power fails at a moment: what was synced is there, and of the rest
//! any choice. Each is opened, judged, written on and judged again; some by fresh processes.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::aftermath::{CHOICES, Choice, Cut, Disk, Model};
use crate::checker::{self, Depth, Findings, Many};
use crate::child::Child;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::recording::{self, Recording};
use crate::report::{Outcome, Stop};
use crate::script::{MADE, MAIN, SECOND, TAKEN, VICTIM};
use crate::suites::Writing;
use crate::suites::kills::hear_all;
use crate::{tools, work};

/// Threads whose items are accounted for, with their lanes.
const LANES: [(&str, u64); 2] = [(MAIN, 0), (SECOND, 1)];
const OTHERS: [(&str, u64); 2] = [(VICTIM, 2), (TAKEN, 3)];
/// The life of what is written on.
const LATER: u64 = 200;
/// No life of a suite: ids of the store's own begin with the time.
const LIVES: u64 = 1_000_000;

/// A run that is recorded.
struct Plot {
    name: &'static str,
    /// The scripts that run one after the other, and how long they are.
    scripts: &'static [(&'static str, u64)],
    /// Whether it finds a store, or makes a new one in new folders.
    with_store: bool,
    /// Whether the file system says that other machines see it.
    shared: bool,
}

const PLOTS: [Plot; 10] = [
    Plot { name: "init", scripts: &[("init", 0)], with_store: false, shared: false },
    Plot { name: "append", scripts: &[("append", 0)], with_store: true, shared: false },
    Plot { name: "batch", scripts: &[("batch", 0)], with_store: true, shared: false },
    Plot { name: "levels", scripts: &[("levels", 0)], with_store: true, shared: false },
    Plot { name: "abandoned", scripts: &[("abandon", 3), ("append", 0)], with_store: true, shared: false },
    Plot { name: "abandoned at once", scripts: &[("abandon", 0), ("append", 0)], with_store: true, shared: false },
    Plot { name: "lifecycle", scripts: &[("lifecycle", 0)], with_store: true, shared: false },
    Plot { name: "claims", scripts: &[("claims", 0)], with_store: true, shared: false },
    Plot { name: "restore", scripts: &[("restore", 0)], with_store: true, shared: false },
    Plot { name: "rollback journal", scripts: &[("init", 0), ("append", 0)], with_store: false, shared: true },
];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    tools::need_strace()?;
    let folder = plan::fast_folder()?;
    let template = Template::make(plan, &folder.path().join("template"))?;
    let mut takes = Vec::new();
    for plot in &PLOTS {
        takes.push(record(plan, folder.path(), &template, plot)?);
    }
    let mixed: &[(&str, u64)] = &[("mixed", plan.pick(150, 400, 800))];
    let steps = record_scripts(plan, folder.path(), &template, ("mixed", mixed), (true, false))?;
    takes.push(steps);
    let mut figures = Figures::default();
    let mut judge = Judge::new(plan, folder.path())?;
    for take in &takes {
        figures.steps += take.recording.steps.len();
        figures.said += take.recording.said.iter().filter(|said| said.line.starts_with("A ")).count();
        let states = plan.pick(170, 2_200, 22_000);
        let mut tally = Tally::default();
        explore(&mut judge, take, Disk::Honest, states, &mut tally, &mut figures)?;
        figures.violations.push(format!(
            "{} {}",
            take.name,
            tally.counts().iter().map(|(_, count)| count).sum::<u64>()
        ));
        outcome.tally.absorb(tally, take.name);
    }
    outcome.figure("recordings", takes.len());
    outcome.figure("recorded steps", figures.steps);
    outcome.figure("acknowledgements in them", figures.said);
    outcome.figure("states", figures.states);
    outcome.figure("distinct", figures.distinct);
    outcome.figure("also judged by fresh processes", figures.fresh);
    outcome.figure("most steps waiting for a sync", figures.most_waiting);
    outcome.figure("violations by recording", figures.violations.join(", "));
    for (disk, words) in [
        (Disk::IgnoresSyncs, "a disk that ignores syncs"),
        (Disk::IgnoresFolders, "a disk that ignores syncs of folders"),
    ] {
        let mut tally = Tally::default();
        for take in &takes {
            explore(&mut judge, take, disk, 30, &mut tally, &mut Figures::default())?;
            if tally.count(Rule::AckedLost) > 0 {
                break;
            }
        }
        outcome.control(words, tally.count(Rule::AckedLost) > 0);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Figures {
    steps: usize,
    said: usize,
    states: u64,
    distinct: u64,
    fresh: u64,
    most_waiting: usize,
    violations: Vec<String>,
}

/// The store that most recordings begin with, and what was said while it was written.
struct Template {
    store: PathBuf,
    lines: Vec<String>,
}

impl Template {
    fn make(plan: &Plan, store: &Path) -> Result<Self> {
        let lanes = LANES.iter().chain(&OTHERS).map(|(thread, lane)| format!("{thread}={lane}"));
        let lanes = lanes.collect::<Vec<_>>().join(",");
        let writing = Writing { lanes: &lanes, life: 1, level: "synced", batches: 3, lie: false };
        let (status, lines) = Child::start(writing.command(plan, store))?.finish()?;
        match status.success() {
            true => Ok(Self { store: store.to_owned(), lines }),
            false => Err(format!("the store can't be prepared: {}", lines.last().map_or("", String::as_str))),
        }
    }
}

/// A recorded run.
struct Take {
    name: &'static str,
    recording: Recording,
    /// What was said before.
    lines: Vec<String>,
    /// Where the store is in the recorded folder.
    place: &'static str,
}

fn record(plan: &Plan, folder: &Path, template: &Template, plot: &Plot) -> Result<Take> {
    record_scripts(plan, folder, template, (plot.name, plot.scripts), (plot.with_store, plot.shared))
}

fn record_scripts(
    plan: &Plan,
    folder: &Path,
    template: &Template,
    (name, scripts): (&'static str, &[(&'static str, u64)]),
    (with_store, shared): (bool, bool),
) -> Result<Take> {
    let work = folder.join("recorded");
    let (root, before) = (work.join("root"), work.join("before"));
    let place = if with_store { "store" } else { "new/nested/store" };
    for folder in [&root, &before] {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        if with_store {
            tools::copy_folder(&template.store, &folder.join(place))?;
        }
    }
    let mut logs = Vec::new();
    for (number, (script, steps)) in scripts.iter().enumerate() {
        let mut command = Command::new(&plan.program);
        command.arg("script").arg("--name").arg(script).arg("--store").arg(root.join(place));
        command.arg("--life").arg((number + 2).to_string()).arg("--steps").arg(steps.to_string());
        command.arg("--seed").arg(plan.seed.to_string());
        let log = work.join(format!("log-{number}"));
        let (status, lines) = Child::start(recording::recorder(&command, &log, shared))?.finish()?;
        if !status.success() {
            return Err(format!("{name} fails without a fault: {}", lines.join(" / ")));
        }
        logs.push(log);
    }
    let recording = recording::read(&before, &root, &logs)?;
    std::fs::remove_dir_all(&work).map_err(|error| error.to_string())?;
    let lines = if with_store { template.lines.clone() } else { Vec::new() };
    Ok(Take { name, recording, lines, place })
}

/// Judges states of a recording: the last moments first, so that what looks alike is judged by all that had been promised.
fn explore(
    judge: &mut Judge<'_>,
    take: &Take,
    disk: Disk,
    states: u64,
    tally: &mut Tally,
    figures: &mut Figures,
) -> Result<()> {
    let mut random = judge.plan.random(take.name);
    let recording = &take.recording;
    let mut seen = HashSet::new();
    let mut budget = states;
    for moment in moments(recording, states, &mut random) {
        for model in [Model::Strict, Model::Journaled] {
            let cut = Cut::at(recording, moment, model, disk);
            figures.most_waiting = figures.most_waiting.max(cut.waiting());
            let further = if cut.waiting() == 0 { 0 } else { judge.plan.pick(4, 7, 12).min(cut.waiting() * 3) };
            let any = |random: &mut Random| pick(&CHOICES, random).unwrap_or(Choice::Any);
            let choices = (0..further).map(|number| if number == 0 { Choice::Everything } else { any(&mut random) });
            let choices: Vec<Choice> = [Choice::Nothing].into_iter().chain(choices).collect();
            for choice in choices {
                let state = cut.state(choice, &mut random);
                figures.states += 1;
                if !seen.insert(state.digest()) {
                    continue;
                }
                figures.distinct += 1;
                let mut found = Tally::default();
                let root = judge.next_folder();
                state.write_to(&root)?;
                judge.judge(take, &root.join(take.place), moment, &mut found)?;
                if disk == Disk::Honest && figures.distinct.is_multiple_of(judge.plan.pick(60, 60, 100)) {
                    std::fs::remove_dir_all(&root).map_err(|error| error.to_string())?;
                    state.write_to(&root)?;
                    judge.judge_freshly(take, &root.join(take.place), moment, &mut found)?;
                    figures.fresh += 1;
                }
                std::fs::remove_dir_all(&root).map_err(|error| error.to_string())?;
                tally.absorb(found, &format!("{model:?} {choice:?} at {moment} of {}", recording.moments));
            }
            budget = budget.saturating_sub(1 + further as u64);
        }
        if budget == 0 {
            break;
        }
    }
    Ok(())
}

fn pick(choices: &[Choice], random: &mut Random) -> Option<Choice> {
    choices.get(usize::try_from(random.below(choices.len() as u64)).unwrap_or(0)).copied()
}

/// At most so many moments, the last ones first. Half of them are those at which something had just been said.
fn moments(recording: &Recording, most: u64, random: &mut Random) -> Vec<usize> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut said: Vec<usize> = recording.said.iter().map(|said| said.moment + 1).collect();
    let mut others: Vec<usize> = recording.steps.iter().flat_map(|step| [step.begin + 1, step.end + 1]).collect();
    others.sort_unstable();
    others.dedup();
    random.shuffle(&mut said);
    random.shuffle(&mut others);
    let few = most / 16;
    said.truncate(few);
    others.truncate(few);
    let mut moments = [said, others, vec![recording.moments]].concat();
    moments.sort_unstable();
    moments.dedup();
    moments.reverse();
    moments
}

/// Judges states.
struct Judge<'a> {
    plan: &'a Plan,
    many: Many,
    folder: PathBuf,
    count: u64,
}

impl<'a> Judge<'a> {
    fn new(plan: &'a Plan, folder: &Path) -> Result<Self> {
        let threads = [MAIN, SECOND, VICTIM, TAKEN].into_iter().chain(MADE).collect::<Vec<_>>();
        Ok(Self { plan, many: Many::start(plan, &threads)?, folder: folder.to_owned(), count: 0 })
    }

    fn next_folder(&mut self) -> PathBuf {
        self.count += 1;
        self.folder.join(format!("state-{}", self.count))
    }

    fn judge(&mut self, take: &Take, store: &Path, moment: usize, tally: &mut Tally) -> Result<()> {
        let (mut journal, promised) = promised(take, moment);
        if let Some(findings) = self.many.judge(store, LATER, &mut journal, tally)? {
            promised.judge(&findings, tally);
        }
        Ok(())
    }

    /// The same by fresh processes, and written on by one.
    fn judge_freshly(&self, take: &Take, store: &Path, moment: usize, tally: &mut Tally) -> Result<()> {
        let (mut journal, _) = promised(take, moment);
        let depth = Depth { verify: true, integrity: true, ..Depth::default() };
        checker::judge(self.plan, store, &mut journal, depth, tally);
        let lanes = LANES.map(|(thread, lane)| format!("{thread}={lane}")).join(",");
        let writing = Writing { lanes: &lanes, life: LATER + 1, level: "synced", batches: 2, lie: false };
        let (status, lines) = Child::start(writing.command(self.plan, store))?.finish()?;
        if !status.success() {
            let last = lines.last().map_or("", String::as_str);
            tally.add(Rule::Misbehaved, format!("a fresh process can't go on: {last}"));
        }
        hear_all(&mut journal, LATER + 1, &lines);
        checker::judge(self.plan, store, &mut journal, Depth { verify: true, ..Depth::default() }, tally);
        Ok(())
    }
}

/// Facts beside items that were acknowledged.
#[derive(Debug, Default)]
struct Promised {
    store: Option<String>,
    /// What the last fact about a thread was.
    threads: BTreeMap<String, String>,
    items: Vec<(String, String)>,
    notes: Vec<String>,
    sizes: Vec<(String, usize)>,
}

/// What had been issued and acknowledged when the power failed.
fn promised(take: &Take, moment: usize) -> (Journal, Promised) {
    let (mut journal, mut promised) = (Journal::default(), Promised::default());
    LANES.iter().for_each(|(thread, lane)| journal.open(thread, *lane));
    hear_all(&mut journal, 1, &take.lines);
    for said in take.recording.said.iter().filter(|said| said.moment < moment) {
        let words: Vec<&str> = said.line.split(' ').collect();
        match words.as_slice() {
            ["I" | "A", thread, ..] => journal.hear(thread, said.run as u64 + 2, &words),
            ["O", "store", id] => promised.store = Some((*id).to_owned()),
            ["O", "item", thread, id] => promised.items.push(((*thread).to_owned(), (*id).to_owned())),
            ["O", "note", thread] => promised.notes.push((*thread).to_owned()),
            ["O", fact, thread] => drop(promised.threads.insert((*thread).to_owned(), (*fact).to_owned())),
            ["Q", thread, size] => promised.sizes.push(((*thread).to_owned(), size.parse().unwrap_or(0))),
            _ => {}
        }
    }
    (journal, promised)
}

impl Promised {
    fn judge(&self, findings: &Findings, tally: &mut Tally) {
        if self.store.as_ref().is_some_and(|id| *id != findings.store) {
            tally.add(Rule::AckedLost, "the store that was made is another one");
        }
        for (thread, fact) in &self.threads {
            let shelf = findings.shelves.get(thread).map(String::as_str);
            let holds = match fact.as_str() {
                "there" => shelf == Some("Active"),
                "trashed" => shelf != Some("Active"),
                "purged" => shelf.is_none(),
                _ => true,
            };
            if !holds {
                tally.add(Rule::AckedLost, format!("{thread} was {fact}, and is {shelf:?}"));
            }
        }
        let items = |thread: &str| findings.items.get(thread).map_or(&[][..], Vec::as_slice);
        for (thread, id) in &self.items {
            if !items(thread).iter().any(|item| item.id.to_string() == *id) {
                tally.add(Rule::AckedLost, format!("{thread} {id}"));
            }
        }
        for thread in &self.notes {
            if !items(thread).iter().any(|item| work::origin(item.id).0 > LIVES) {
                tally.add(Rule::AckedLost, format!("the note in {thread}"));
            }
        }
        for (thread, size) in &self.sizes {
            if findings.shelves.contains_key(thread) && items(thread).len() != *size {
                tally.add(Rule::Hole, format!("{thread} has {} items, not {size}", items(thread).len()));
            }
        }
    }
}
