//! T07: the files of a store are damaged at random.
//!
//! A store is closed, or left with its log by a kill; then one file of it is damaged, and a process looks at it in every way.
//! It must not panic or hang, and each error must say what the caller can do. What reads otherwise than it was written must be
//! told by verifying, and what lies on whole pages must still be read. A share of the stores is then repaired: what is whole, or in
//! the rollouts, must be back, and everything that was replaced must be kept.

mod hurt;
mod mending;
mod pages;
mod scene;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use threadkeep::blocking::Store;
use threadkeep::{Hash, ItemId};

use self::hurt::{KINDS, Kind};
use self::mending::{Case, Mended};
use self::pages::{Map, PAGE, Pages};
use self::scene::{Acked, THREADS};
use crate::Result;
use crate::child::{Child, SILENT};
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::tools;
use crate::work::told;
pub(crate) use scene::{Lay, play_layer};
pub(crate) use survey::{Survey, play_survey};

/// The files of a store, and out of ten damages how many are done to each: to a store that was closed, and to one that was killed.
const FILES: [(&str, bool); 10] = [
    ("threadkeep.db", false),
    ("threadkeep.db", false),
    ("threadkeep.db-wal", true),
    ("threadkeep.db", false),
    ("threadkeep.db", false),
    ("threadkeep.db-wal", true),
    ("threadkeep.db", false),
    ("threadkeep.db", true),
    ("threadkeep.db-shm", true),
    ("threadkeep.db", false),
];
/// What an error about damaged files may be: each says that trying again does not help, and what is damaged or not there.
const TYPES: [&str; 4] = ["corrupt", "foreign-store", "not-found", "schema-too-new"];

/// What a store was before it is damaged.
struct Subject {
    root: PathBuf,
    /// The rollouts of all of it.
    rollouts: PathBuf,
    map: Map,
    acked: BTreeMap<ItemId, Acked>,
    seen: Seen,
}

/// An item as it was read: its id, the hash of its content, and one of all its fields.
type Read = (ItemId, Hash, Hash);

/// What a process said that looked at a store.
#[derive(Debug, Default)]
struct Seen {
    /// By thread and depth.
    items: BTreeMap<(String, u32), Read>,
    /// What verifying called broken; `ALL` for more than a thread.
    broken: BTreeSet<String>,
    /// What was refused as a whole, and in which words.
    refused: BTreeMap<String, String>,
    /// What errors there were.
    kinds: BTreeSet<String>,
    /// How many reads failed, and of which threads.
    unread: u64,
    unread_in: BTreeSet<String>,
    /// What the doctor found.
    findings: BTreeSet<String>,
    took: Duration,
}

/// More items than a thread has.
const MOST: u32 = 200;
/// Stands for the whole store among threads.
const ALL: &str = "*";

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let folder = plan::fast_folder()?;
    let mut judge = Judge::new(plan, folder.path())?;
    let mut random = plan.random("damage");
    let mut figures = Figures::default();
    let rounds = plan.pick(300, 2_000, 10_000);
    for round in 0..rounds {
        let Some((name, logged)) = pick(&FILES, round) else { continue };
        let Some(kind) = pick(&KINDS, random.below(KINDS.len() as u64)) else { continue };
        let target = Target { name, logged, kind };
        let hurt = judge.damage(target, |bytes| kind.hurt(bytes, &mut random))?;
        let mut found = Tally::default();
        let bytes = std::fs::read(scene::store(&judge.work).join(name)).map_err(|error| format!("{name}: {error}"))?;
        if let Some(seen) = judge.look(&mut found)? {
            judge.judge(target, &hurt, &seen, &mut found, &mut figures);
            if round.is_multiple_of(mending::EACH) {
                let with_rollouts = (round / mending::EACH).is_multiple_of(2);
                judge.mend(target, (&hurt, &bytes), (&seen, with_rollouts), &mut found, &mut figures.mended)?;
            }
        }
        let beside = if logged { " beside a log" } else { "" };
        outcome.tally.absorb(found, &format!("{name}{beside}: {}", hurt.words));
    }
    figures.tell(rounds, &judge, outcome);
    judge.control(outcome)
}

fn pick<T: Copy>(list: &[T], number: u64) -> Option<T> {
    list.get(usize::try_from(number % list.len() as u64).unwrap_or(0)).copied()
}

/// What is damaged, and how.
#[derive(Debug, Clone, Copy)]
struct Target {
    name: &'static str,
    /// In the store that was left with its log.
    logged: bool,
    kind: Kind,
}

/// What was done to a file.
struct Hurt {
    words: String,
    /// The first byte that is another one or missing; `None` when there is no other.
    first: Option<u64>,
    /// The pages on which a byte is another one or missing.
    pages: Pages,
}

impl Hurt {
    fn between(before: &[u8], after: &[u8], words: String) -> Self {
        let differs = |place: &usize| before.get(*place) != after.get(*place);
        let first = (0..before.len()).find(differs).map(|place| place as u64);
        let pages = before.chunks(PAGE).enumerate();
        let pages = pages.filter(|(number, page)| after.get(number * PAGE..number * PAGE + page.len()) != Some(*page));
        Self { words, first, pages: pages.filter_map(|(number, _)| u32::try_from(number + 1).ok()).collect() }
    }
}

/// Damages stores, has them looked at, and judges what was found.
struct Judge {
    closed: Subject,
    logged: Subject,
    work: PathBuf,
    command: (PathBuf, String),
    child: Child,
}

impl Judge {
    fn new(plan: &Plan, folder: &Path) -> Result<Self> {
        let (closed, logged, work) = (folder.join("closed"), folder.join("logged"), folder.join("work"));
        let first = lay(plan, &closed, false)?;
        tools::copy_folder(&closed, &logged)?;
        // What was acknowledged before is in the database, whatever becomes of the log.
        let mut second: BTreeMap<_, _> = first.iter().map(|(id, acked)| (*id, Acked { log: 0, ..*acked })).collect();
        second.extend(lay(plan, &logged, true)?);
        let subject = |root: &Path, acked| -> Result<Subject> {
            put(root, &work)?;
            let map = Map::of(&scene::store(&work))?;
            let rollouts = root.with_extension("rollouts");
            let store = Store::open(scene::options(&work)).map_err(told)?;
            store.mirror_rollouts(Some(&rollouts), None, |_| {}).map_err(told)?;
            Ok(Subject { map, root: root.to_owned(), rollouts, acked, seen: Seen::default() })
        };
        let (closed, logged) = (subject(&closed, first)?, subject(&logged, second)?);
        let threads = THREADS.map(|thread| format!("{thread}={MOST}")).join(",");
        let command = (plan.program.clone(), threads);
        let mut judge = Self { closed, logged, work, child: survey(&command)?, command };
        judge.closed.seen = judge.look_at_whole(false)?;
        judge.logged.seen = judge.look_at_whole(true)?;
        Ok(judge)
    }

    fn subject(&self, logged: bool) -> &Subject {
        if logged { &self.logged } else { &self.closed }
    }

    /// What is found where nothing is damaged: all that was acknowledged, and nothing wrong.
    fn look_at_whole(&mut self, logged: bool) -> Result<Seen> {
        put(&self.subject(logged).root, &self.work)?;
        let mut tally = Tally::default();
        let seen = self.look(&mut tally)?.ok_or("the store that nobody damaged can't be looked at")?;
        let stored: BTreeMap<ItemId, Hash> = seen.items.values().map(|(id, content, _)| (*id, *content)).collect();
        let subject = self.subject(logged);
        let is_kept = |(id, acked): (&ItemId, &Acked)| {
            // What was rewound is in the file, and on no path that is read.
            stored.get(id).is_none_or(|content| *content == acked.content) && subject.map.items.contains_key(id)
        };
        let is_whole =
            seen.broken.is_empty() && seen.refused.is_empty() && seen.unread == 0 && seen.findings.is_empty();
        match subject.acked.iter().all(is_kept) && is_whole && !stored.is_empty() {
            true => Ok(seen),
            false => Err(format!(
                "a store that nobody damaged reads as {:?} {:?} {:?}",
                seen.broken, seen.refused, seen.findings
            )),
        }
    }

    /// Puts a damaged store in the place of the last one.
    fn damage(&self, target: Target, hurt: impl FnOnce(&mut Vec<u8>) -> String) -> Result<Hurt> {
        put(&self.subject(target.logged).root, &self.work)?;
        let file = scene::store(&self.work).join(target.name);
        let told = |error: std::io::Error| format!("{}: {error}", target.name);
        let before = std::fs::read(&file).map_err(told)?;
        let mut after = before.clone();
        let words = hurt(&mut after);
        std::fs::write(&file, &after).map_err(told)?;
        Ok(Hurt::between(&before, &after, words))
    }

    /// Has the process look at the store; `None` when it did not survive that, which is counted.
    fn look(&mut self, tally: &mut Tally) -> Result<Option<Seen>> {
        let begun = Instant::now();
        self.child.tell(&self.work.display().to_string())?;
        let lines = self.child.hear_until(survey::END);
        match lines {
            Ok(lines) => Ok(Some(Seen::parse(&lines, begun.elapsed()))),
            Err(words) => {
                let rule = if words == SILENT { Rule::Hang } else { Rule::Misbehaved };
                tally.add(rule, words);
                self.child = survey(&self.command)?;
                Ok(None)
            }
        }
    }

    /// Repairs the store anew that was looked at, with the rollouts or without them, and judges what is there then.
    fn mend(
        &mut self,
        target: Target,
        (hurt, bytes): (&Hurt, &[u8]),
        (before, with_rollouts): (&Seen, bool),
        tally: &mut Tally,
        mended: &mut Mended,
    ) -> Result<()> {
        let subject = self.subject(target.logged);
        put(&subject.root, &self.work)?;
        let store = scene::store(&self.work);
        std::fs::write(store.join(target.name), bytes).map_err(|error| format!("{}: {error}", target.name))?;
        if with_rollouts {
            tools::copy_folder(&subject.rollouts, &store.join("rollouts"))?;
        }
        let files = mending::files_of(&self.work);
        self.child.tell(&format!("{}{}", mending::REPAIR, self.work.display()))?;
        let begun = Instant::now();
        match self.child.hear_until(survey::END) {
            Ok(lines) => {
                let after = Seen::parse(&lines, begun.elapsed());
                let subject = self.subject(target.logged);
                let case = Case { subject, target, hurt, before, files: &files, with_rollouts };
                case.judge(&lines, &after, tally, mended);
            }
            Err(words) => {
                let rule = if words == SILENT { Rule::Hang } else { Rule::Misbehaved };
                tally.add(rule, format!("a repair: {words}"));
                self.child = survey(&self.command)?;
            }
        }
        Ok(())
    }

    fn judge(&self, target: Target, hurt: &Hurt, seen: &Seen, tally: &mut Tally, figures: &mut Figures) {
        let subject = self.subject(target.logged);
        figures.count(target, hurt, seen);
        for kind in seen.kinds.iter().filter(|kind| !TYPES.contains(&kind.as_str())) {
            tally.add(Rule::Misbehaved, format!("an error of the kind {kind}: {:?}", seen.refused));
        }
        let (mut differ, mut missing) = (0, 0);
        let (mut untold, mut unread) = (Vec::new(), Vec::new());
        for (place, whole) in &subject.seen.items {
            let is_owed = subject.owes(target, hurt, whole.0);
            figures.owed += u64::from(is_owed);
            match seen.items.get(place) {
                Some(found) if found == whole => continue,
                Some(_) => differ += 1,
                None => missing += 1,
            }
            let is_refused = !seen.items.contains_key(place) && seen.unread_in.contains(&place.0);
            if !is_refused && !seen.notices(&place.0) {
                untold.push(format!("{} {}", place.0, place.1));
            }
            if is_owed {
                unread.push(format!("{} {}", place.0, place.1));
            }
        }
        for place in seen.items.keys().filter(|place| !subject.seen.items.contains_key(place)) {
            differ += 1;
            if !seen.notices(&place.0) {
                untold.push(format!("{} {}, which was never there", place.0, place.1));
            }
        }
        // One violation for each damage: there are as many details as there is room for.
        if let Some(first) = untold.first() {
            tally.add(Rule::Unnoticed, format!("{} items, {first} among them: {:?}", untold.len(), seen.told()));
        }
        if let Some(first) = unread.first() {
            tally.add(
                Rule::AckedLost,
                format!("{} items on whole pages, {first} among them: {:?}", unread.len(), seen.told()),
            );
        }
        figures.read_otherwise += differ;
        figures.missing += missing;
        let is_noticed =
            !seen.broken.is_empty() || !seen.refused.is_empty() || !seen.findings.is_empty() || seen.unread > 0;
        figures.noticed += u64::from(is_noticed);
        figures.traceless += u64::from(!is_noticed && differ + missing == 0);
        if target.name.ends_with("-shm") && is_noticed {
            tally
                .add(Rule::Misbehaved, "the index of the log is made anew by whoever comes first, and yet it mattered");
        }
    }

    /// Who knows other items than there are must find every damage out, and a store that nobody damaged must be told from others.
    fn control(mut self, outcome: &mut Outcome) -> Result<(), Stop> {
        put(&self.closed.root, &self.work)?;
        let target = Target { name: "threadkeep.db", logged: false, kind: Kind::Flip };
        let hurt = Hurt { words: String::new(), first: None, pages: Pages::new() };
        let judged = |judge: &mut Self| -> Result<Tally> {
            let mut tally = Tally::default();
            if let Some(seen) = judge.look(&mut tally)? {
                judge.judge(target, &hurt, &seen, &mut tally, &mut Figures::default());
            }
            Ok(tally)
        };
        let whole = judged(&mut self)?;
        outcome.control("a store that nobody damaged, which must be told from the others", whole.is_empty());
        for read in self.closed.seen.items.values_mut().take(1) {
            read.2 = Hash([0; 32]);
        }
        let other = judged(&mut self)?;
        let found_out = other.count(Rule::Unnoticed) > 0 && other.count(Rule::AckedLost) > 0;
        outcome.control("one item of which another content is known", found_out);
        self.control_of_repairs(outcome)
    }

    /// A repair of a store of which more is known than the rollouts have, and files that are not what was kept.
    fn control_of_repairs(&mut self, outcome: &mut Outcome) -> Result<(), Stop> {
        let target = Target { name: "threadkeep.db", logged: false, kind: Kind::Zeros };
        let page = self.closed.map.items.values().flatten().next().copied().unwrap_or(1);
        let zero = |bytes: &mut Vec<u8>| {
            let at = (page as usize - 1) * PAGE;
            bytes.iter_mut().skip(at).take(PAGE).for_each(|byte| *byte = 0);
            String::new()
        };
        let hurt = self.damage(target, zero)?;
        let bytes = std::fs::read(scene::store(&self.work).join(target.name)).map_err(|error| error.to_string())?;
        let mut found = Tally::default();
        let none = Seen::default();
        self.mend(target, (&hurt, &bytes), (&none, true), &mut found, &mut Mended::default())?;
        let lost = found.count(Rule::AckedLost) > 0;
        outcome.control("a repair of a store of which another content is known", lost);
        let case = Case {
            subject: &self.closed,
            target,
            hurt: &hurt,
            before: &none,
            files: &[("threadkeep.db", vec![0; PAGE])].into(),
            with_rollouts: true,
        };
        let mut found = Tally::default();
        case.judge(&["k /".to_owned()], &none, &mut found, &mut Mended::default());
        outcome.control("a repair that keeps nothing", found.count(Rule::Unnoticed) > 0);
        Ok(())
    }
}

impl Subject {
    /// Whether an item must still be read.
    fn owes(&self, target: Target, hurt: &Hurt, id: ItemId) -> bool {
        let in_time = |acked: &Acked| hurt.first.is_none_or(|first| acked.log <= first);
        match target.name {
            "threadkeep.db-shm" => true,
            // The log ends where a frame of it is damaged: what was committed before is there.
            "threadkeep.db-wal" => self.acked.get(&id).is_some_and(in_time),
            // The engine reads nothing of a file that is shorter than its header says.
            _ if target.kind == Kind::Cut && hurt.first.is_some() => false,
            _ => {
                self.map.way.is_disjoint(&hurt.pages)
                    && self.map.items.get(&id).is_some_and(|pages| pages.is_disjoint(&hurt.pages))
            }
        }
    }
}

impl Seen {
    fn parse(lines: &[String], took: Duration) -> Self {
        let mut seen = Self { took, ..Self::default() };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["i", thread, depth, id, content, whole] => {
                    let read =
                        depth.parse().ok().zip(id.parse().ok().zip(content.parse().ok()).zip(whole.parse().ok()));
                    if let Some((depth, ((id, content), whole))) = read {
                        // A second one at a place is wrong, whatever it is.
                        let twice = (id, content, Hash([0; 32]));
                        let place = ((*thread).to_owned(), depth);
                        seen.items.entry(place).and_modify(|read| *read = twice).or_insert((id, content, whole));
                    }
                }
                ["x", thread, _, kind, ..] => {
                    seen.unread += 1;
                    seen.unread_in.insert((*thread).to_owned());
                    seen.kinds.insert((*kind).to_owned());
                }
                ["X", what, kind, words @ ..] => {
                    seen.kinds.insert((*kind).to_owned());
                    seen.refused.insert((*what).to_owned(), format!("{kind}: {}", words.join(" ")));
                    if matches!(*what, "open" | "verify") {
                        seen.broken.insert(ALL.to_owned());
                    }
                }
                ["b", thread] => drop(seen.broken.insert((*thread).to_owned())),
                ["s", ..] => drop(seen.broken.insert(ALL.to_owned())),
                ["e", code] => drop(seen.findings.insert((*code).to_owned())),
                _ => {}
            }
        }
        seen
    }

    /// What was told of damage, for the details of a violation.
    fn told(&self) -> impl std::fmt::Debug {
        (&self.broken, &self.refused, &self.findings, self.unread)
    }

    /// Whether what is wrong in a thread was told. The fork shares items that are verified where they were written.
    fn notices(&self, thread: &str) -> bool {
        let tells = |word: &str| self.broken.contains(word);
        tells(ALL) || tells(thread) || thread == "fork" && tells("plain")
    }
}

/// Counted over all damages.
#[derive(Debug, Default)]
struct Figures {
    files: BTreeMap<String, u64>,
    kinds: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    unchanged: u64,
    noticed: u64,
    traceless: u64,
    owed: u64,
    read_otherwise: u64,
    missing: u64,
    unread: u64,
    longest: Duration,
    mended: Mended,
}

impl Figures {
    fn count(&mut self, target: Target, hurt: &Hurt, seen: &Seen) {
        let beside = if target.logged && target.name.ends_with("db") { " beside a log" } else { "" };
        *self.files.entry(format!("{}{beside}", target.name)).or_default() += 1;
        *self.kinds.entry(format!("{:?}", target.kind)).or_default() += 1;
        for what in seen.refused.keys() {
            *self.refused.entry(what.clone()).or_default() += 1;
        }
        self.unchanged += u64::from(hurt.first.is_none());
        self.unread += seen.unread;
        self.longest = self.longest.max(seen.took);
    }

    fn tell(&self, rounds: u64, judge: &Judge, outcome: &mut Outcome) {
        let list = |counts: &BTreeMap<String, u64>| {
            counts.iter().map(|(what, count)| format!("{what} {count}")).collect::<Vec<_>>().join(", ")
        };
        outcome.figure("damages", rounds);
        outcome.figure("by file", list(&self.files));
        outcome.figure("by kind", list(&self.kinds).to_lowercase());
        outcome.figure("of these nothing changed", self.unchanged);
        outcome.figure("noticed", self.noticed);
        outcome.figure("without a trace, and all read as written", self.traceless);
        outcome.figure("refused as a whole", list(&self.refused));
        outcome.figure("reads that failed", self.unread);
        outcome.figure("items that read otherwise", self.read_otherwise);
        outcome.figure("items that could not be read", self.missing);
        outcome.figure("items on whole pages", self.owed);
        outcome.figure("pages of the store", judge.closed.map.total);
        outcome.figure("of these on the way to every item", judge.closed.map.way.len());
        self.mended.tell(outcome);
        outcome.figure("longest look in ms", u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX));
    }
}

/// Puts a copy in the place of the last one, with the rights of a store.
fn put(root: &Path, work: &Path) -> Result<()> {
    tools::fresh_copy(root, work)?;
    let mut folders = vec![work.to_owned()];
    while let Some(folder) = folders.pop() {
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(told)?;
        for entry in std::fs::read_dir(&folder).map_err(told)? {
            folders.extend(entry.map(|entry| entry.path()).ok().filter(|path| path.is_dir()));
        }
    }
    Ok(())
}

/// Has the store made, and gives what was acknowledged.
fn lay(plan: &Plan, root: &Path, more: bool) -> Result<BTreeMap<ItemId, Acked>> {
    let mut command = Command::new(&plan.program);
    command.arg("lay").arg("--root").arg(root);
    if more {
        command.arg("--more");
    }
    let child = Child::start(command)?;
    let mut lines = child.hear_until(if more { "R" } else { "Z" })?;
    lines.extend(child.kill());
    Ok(lines.iter().filter_map(|line| scene::read_ack(line)).collect())
}

fn survey((program, threads): &(PathBuf, String)) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("survey").arg("--threads").arg(threads);
    Child::start(command)
}
