//! T14: a store's files are moved, removed and replaced while a process writes to it.
//!
//! From the first refusal on nothing may be acknowledged that a fresh process does not find under the store's own name. What
//! was acknowledged before is where the mover has put it, unless he destroyed it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{Error, StoreOptions};

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::kills::hear_all;
use crate::suites::{Writing, kills};
use crate::{tools, work};

const DATABASE: &str = "threadkeep.db";
const LOG: &str = "threadkeep.db-wal";
const INDEX: &str = "threadkeep.db-shm";
const THREADS: [(&str, u64); 2] = [("main", 0), ("other", 1)];
/// The lives of the writer, of a second one beside it, and of the one that goes on in the end.
const WRITER: u64 = 2;
const SECOND: u64 = 3;
const NEXT: u64 = 4;

/// Where the things are.
struct Places {
    store: PathBuf,
    /// Where the store goes when it is moved.
    away: PathBuf,
    /// The store as it was before the writer began.
    template: PathBuf,
    backup: PathBuf,
}

/// How long is listened for an answer of a writer that says something all the time; it comes with its next append.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of what was acknowledged before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is under the store's name.
    Here,
    /// It is where the store was moved.
    Away,
    /// The mover destroyed it.
    Destroyed,
}

/// What the writer does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It refuses, until it is ended.
    Refuses,
    /// It refuses, until the move is undone; then it goes on.
    Resumes,
    /// It goes on as if nothing were.
    GoesOn,
}

type Move = fn(&Places) -> Result<()>;

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    act: Move,
    undo: Option<Move>,
    fate: Fate,
    answer: Answer,
    /// Whether another process writes to the store afterwards, and ends.
    second: bool,
}

const KINDS: [Kind; 17] = [
    kind("folder moved", |at| rename(&at.store, &at.away), Fate::Away),
    back("folder moved and back", |at| rename(&at.store, &at.away), |at| rename(&at.away, &at.store)),
    kind(
        "folder replaced by an empty one",
        |at| rename(&at.store, &at.away).and_then(|()| folder(&at.store)),
        Fate::Away,
    ),
    kind(
        "folder replaced by an older store",
        |at| rename(&at.store, &at.away).and_then(|()| tools::copy_folder(&at.template, &at.store)),
        Fate::Away,
    ),
    kind("database removed", |at| remove(&at.store, DATABASE), Fate::Destroyed),
    back(
        "database moved and back",
        |at| rename(&at.store.join(DATABASE), &at.away),
        |at| rename(&at.away, &at.store.join(DATABASE)),
    ),
    kind("database replaced by an older copy", |at| replace(at, &at.template.join(DATABASE)), Fate::Destroyed),
    kind("database replaced by an empty file", |at| replace(at, Path::new("/dev/null")), Fate::Destroyed),
    kind("log removed", |at| remove(&at.store, LOG), Fate::Here),
    back("log moved and back", |at| rename(&at.store.join(LOG), &at.away), |at| rename(&at.away, &at.store.join(LOG))),
    beside_another(kind("index removed", |at| remove(&at.store, INDEX), Fate::Here)),
    kind("log and index removed", |at| remove(&at.store, LOG).and_then(|()| remove(&at.store, INDEX)), Fate::Here),
    beside_another(goes_on("line of writers removed", |at| remove(&at.store, "write.gate"))),
    beside_another(goes_on("holders removed", |at| {
        std::fs::remove_dir_all(at.store.join("holders")).map_err(|error| error.to_string())
    })),
    goes_on("a backup restored over it", restore_over),
    beside_another(goes_on("another handle in the process", |_| Ok(()))),
    back("another folder bound over it", bind_over, |at| {
        // Lazily: whoever looks up a name in it at this moment, as a writer that is refused again and again does, keeps it busy.
        tools::run("umount", &["--lazy", &at.store.display().to_string()]).map(drop)
    }),
];

const fn kind(name: &'static str, act: Move, fate: Fate) -> Kind {
    Kind { name, act, undo: None, fate, answer: Answer::Refuses, second: false }
}

const fn back(name: &'static str, act: Move, undo: Move) -> Kind {
    Kind { name, act, undo: Some(undo), fate: Fate::Here, answer: Answer::Resumes, second: false }
}

const fn goes_on(name: &'static str, act: Move) -> Kind {
    Kind { name, act, undo: None, fate: Fate::Here, answer: Answer::GoesOn, second: false }
}

const fn beside_another(kind: Kind) -> Kind {
    Kind { second: true, ..kind }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|error| format!("moving {}: {error}", from.display()))
}

fn folder(path: &Path) -> Result<()> {
    std::fs::create_dir(path).map_err(|error| error.to_string())
}

fn remove(store: &Path, name: &str) -> Result<()> {
    std::fs::remove_file(store.join(name)).map_err(|error| format!("removing {name}: {error}"))
}

/// Puts a copy in the place of the database, in one step.
fn replace(at: &Places, by: &Path) -> Result<()> {
    let bytes = std::fs::read(by).map_err(|error| error.to_string())?;
    std::fs::write(&at.away, bytes).map_err(|error| error.to_string())?;
    rename(&at.away, &at.store.join(DATABASE))
}

/// What the library itself would do to a live store: it must refuse.
fn restore_over(at: &Places) -> Result<()> {
    match Store::restore_backup(StoreOptions::folder(&at.store).label("torture"), &at.backup) {
        Err(Error::Busy { .. }) => Ok(()),
        Err(other) => Err(format!("{VIOLATION}restoring over a live store: {}: {other}", other.kind())),
        Ok(_) => Err(format!("{VIOLATION}a backup was restored over a live store")),
    }
}

/// Begins words that are a violation, and no failure of the suite.
const VIOLATION: &str = "! ";

fn bind_over(at: &Places) -> Result<()> {
    folder(&at.away)?;
    tools::run("mount", &["--bind", &at.away.display().to_string(), &at.store.display().to_string()]).map(drop)
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let parent = plan::fast_folder()?;
    let template = parent.path().join("template");
    let journal = kills::prepare(plan, &template, &THREADS)?;
    let backup = parent.path().join("backup.db");
    let opened = Store::open(StoreOptions::folder(&template).label("torture"));
    opened.and_then(|store| store.backup(&backup)).map_err(|error| error.to_string())?;
    let mut random = plan.random("moves");
    let mut figures = Figures::default();
    let mut skipped = Vec::new();
    let mut kinds = 0;
    let is_wanted = |kind: &&Kind| plan.only.as_ref().is_none_or(|only| kind.name == only);
    for kind in KINDS.iter().filter(is_wanted) {
        if kind.name.contains("bound") && !tools::is_root() {
            skipped.push(format!("SKIP {} (mounting needs root)", kind.name));
            continue;
        }
        kinds += 1;
        for round in 0..plan.pick(2, 20, 100) {
            let mut tally = Tally::default();
            let places = Places::new(parent.path(), &template, &backup)?;
            let scene = Scene { plan, kind, places: &places, lie: false };
            scene.play(journal.clone(), &mut random, &mut figures, &mut tally)?;
            outcome.tally.absorb(tally, &format!("{}, round {round}", kind.name));
        }
    }
    outcome.figure("kinds of moves", kinds);
    outcome.figure("moves", figures.moves);
    outcome.figure("items acked before them", figures.acked);
    outcome.figure("appends refused", figures.refused);
    outcome.figure("acks that nobody finds", figures.unfound);
    outcome.figure("went on after the move was undone", figures.resumed);
    if !skipped.is_empty() {
        outcome.figure("not run", skipped.join(", "));
    }
    let mut control = Figures::default();
    let places = Places::new(parent.path(), &template, &backup)?;
    let removed = KINDS.iter().find(|kind| kind.name == "database removed").ok_or_else(|| "no control".to_owned())?;
    let scene = Scene { plan, kind: removed, places: &places, lie: true };
    scene.play(journal, &mut random, &mut control, &mut Tally::default())?;
    outcome.control("a writer that acknowledges though its file was removed", control.unfound > 0);
    Ok(())
}

#[derive(Debug, Default)]
struct Figures {
    moves: u64,
    acked: u64,
    refused: u64,
    unfound: u64,
    resumed: u64,
}

impl Places {
    fn new(parent: &Path, template: &Path, backup: &Path) -> Result<Self> {
        let places = Self {
            store: parent.join("run").join("store"),
            away: parent.join("run").join("away"),
            template: template.to_owned(),
            backup: backup.to_owned(),
        };
        if parent.join("run").exists() {
            std::fs::remove_dir_all(parent.join("run")).map_err(|error| error.to_string())?;
        }
        tools::copy_folder(template, &places.store)?;
        Ok(places)
    }
}

/// One move under one writer.
struct Scene<'a> {
    plan: &'a Plan,
    kind: &'a Kind,
    places: &'a Places,
    lie: bool,
}

impl Scene<'_> {
    fn play(&self, journal: Journal, random: &mut Random, figures: &mut Figures, tally: &mut Tally) -> Result<()> {
        let writing = Writing { lanes: "main=0", life: WRITER, level: "synced", batches: 0, lie: self.lie };
        let mut command = writing.command(self.plan, &self.places.store);
        if self.kind.name.contains("handle") {
            command.arg("--again");
        }
        let writer = Child::start(command)?;
        let mut lines = writer.hear_until("A")?;
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        lines.extend(writer.heard());
        let mut journal = journal;
        let played = self.play_move(&writer, (&mut lines, &mut journal), random, figures, tally);
        let late_from = lines.len();
        lines.extend(writer.kill());
        played?;
        figures.moves += 1;
        self.judge(journal, &lines, late_from, figures, tally)
    }

    /// Moves, and listens to the writer until it has answered.
    fn play_move(
        &self,
        writer: &Child,
        (lines, journal): (&mut Vec<String>, &mut Journal),
        random: &mut Random,
        figures: &mut Figures,
        tally: &mut Tally,
    ) -> Result<()> {
        if let Err(words) = (self.kind.act)(self.places) {
            let Some(words) = words.strip_prefix(VIOLATION) else { return Err(words) };
            tally.add(Rule::Misbehaved, words);
        }
        let undoing = Undo { kind: self.kind, places: self.places };
        lines.extend(writer.heard());
        if self.kind.answer != Answer::GoesOn {
            if !writer.listen("E", PATIENCE, lines)? {
                tally.add(Rule::Misbehaved, "it was not refused");
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
        }
        if self.kind.second {
            let writing = Writing { lanes: "other=1", life: SECOND, level: "synced", batches: 4, lie: false };
            self.write(writing, journal, tally)?;
        }
        drop(undoing);
        if self.kind.answer != Answer::Refuses {
            lines.extend(writer.heard());
            match writer.listen("A", PATIENCE, lines)? {
                true => figures.resumed += 1,
                false => tally.add(Rule::Misbehaved, "it does not go on"),
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        mut journal: Journal,
        lines: &[String],
        late_from: usize,
        figures: &mut Figures,
        tally: &mut Tally,
    ) -> Result<()> {
        let fate = self.kind.fate;
        figures.refused += lines.iter().filter(|line| line.starts_with("E ")).count() as u64;
        let before = journal.acked;
        hear_all(&mut journal, WRITER, lines);
        figures.acked += journal.acked - before;
        let complaint = |line: &&String| line.starts_with("E ") || line.starts_with("W ") || line.starts_with("X ");
        if let (Answer::GoesOn, Some(line)) = (self.kind.answer, lines.iter().find(complaint)) {
            tally.add(Rule::Misbehaved, format!("the writer complains: {line}"));
        }
        if fate != Fate::Here {
            self.judge_late(lines, late_from, figures, tally);
        }
        let place = match fate {
            Fate::Here => &self.places.store,
            Fate::Away => &self.places.away,
            Fate::Destroyed => return Ok(()),
        };
        let depth = Depth { verify: true, integrity: true, ..Depth::default() };
        checker::judge(self.plan, place, &mut journal, depth, tally);
        if fate == Fate::Here {
            figures.unfound += tally.count(Rule::AckedLost);
            let writing = Writing { lanes: "main=0,other=1", life: NEXT, level: "synced", batches: 2, lie: false };
            self.write(writing, &mut journal, tally)?;
            checker::judge(self.plan, place, &mut journal, Depth { verify: true, ..Depth::default() }, tally);
        }
        Ok(())
    }

    /// What was issued after the first refusal and acknowledged is under the store's name.
    fn judge_late(&self, lines: &[String], late_from: usize, figures: &mut Figures, tally: &mut Tally) {
        let refused = lines.iter().position(|line| line.starts_with("E ")).unwrap_or(late_from);
        let late = lines.get(refused..).unwrap_or_default();
        let batch = |line: &String, word: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let is_batch = words.first() == Some(&word);
            is_batch.then(|| (words.get(2)?.parse::<u64>().ok()).zip(words.get(3)?.parse::<u64>().ok()))?
        };
        let acked: Vec<(u64, u64)> = late.iter().filter_map(|line| batch(line, "A")).collect();
        if acked.is_empty() {
            return;
        }
        // A store that can't be opened holds nothing that anybody finds.
        let looked = checker::look(
            self.plan,
            &self.places.store,
            &[("main".to_owned(), 0)],
            Depth::default(),
            &mut Tally::default(),
        );
        let found = looked.unwrap_or_default().items.remove("main").unwrap_or_default();
        for (first, size) in acked {
            let last = work::item_id(WRITER, 0, first + size - 1);
            if !found.iter().any(|item| item.id == last) {
                figures.unfound += 1;
                tally.add(Rule::AckedLost, format!("main {WRITER}/{first}+{size} was acknowledged after a refusal"));
            }
        }
    }

    fn write(&self, writing: Writing<'_>, journal: &mut Journal, tally: &mut Tally) -> Result<()> {
        let life = writing.life;
        let (status, lines) = Child::start(writing.command(self.plan, &self.places.store))?.finish()?;
        if !status.success() {
            let last = lines.last().map_or("", String::as_str);
            tally.add(Rule::Misbehaved, format!("another process can't write: {last}"));
        }
        hear_all(journal, life, &lines);
        Ok(())
    }
}

/// Undoes a move in the end, however the scene ends: nothing stays mounted.
struct Undo<'a> {
    kind: &'a Kind,
    places: &'a Places,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(undo) = self.kind.undo {
            drop(undo(self.places));
        }
    }
}
