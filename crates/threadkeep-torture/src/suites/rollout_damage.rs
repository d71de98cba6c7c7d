//! T07: the rollouts of a store are damaged at random, by bytes, by blocks and by lines.
//!
//! A process then verifies the files, and builds a store from them. Verifying must name every file of which an item is lost or
//! reads otherwise; every item whose line is whole, and on whose way to the root all lines are whole, must come back as it was;
//! and nothing may come back that was not written. A damaged index costs nothing.

mod harm;
mod look;
mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use self::harm::{HARMS, Harm};
use crate::Result;
use crate::child::{Child, SILENT};
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::tools;
pub(crate) use look::{Look, play_look};

/// What a process that reads these files may hold in memory at most, in KiB.
const MOST_MEMORY: u64 = 300 << 10;
const INDEX: &str = "session_index.jsonl";
const COMPRESSED: &str = "zst";

/// An item: its hash and what all its fields hash to, and the item that it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    whole: String,
    after: Option<String>,
}

/// A file as it was written.
#[derive(Debug)]
struct Written {
    bytes: Vec<u8>,
    /// The line of each item, by its id.
    lines: Vec<(String, Vec<u8>)>,
}

/// What was found of the files, and of the store that was built from them.
#[derive(Debug, Default)]
struct Seen {
    items: BTreeMap<String, Item>,
    /// How many items each file holds, and whether it is called whole.
    files: BTreeMap<String, (u64, bool)>,
    /// What is named in problems beside these.
    named: BTreeSet<String>,
    refused: Vec<String>,
    memory: u64,
    took: Duration,
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let folder = plan::fast_folder()?;
    let mut judge = Judge::new(plan, folder.path())?;
    let mut random = plan.random("rollouts");
    let mut figures = Figures::default();
    let rounds = plan.pick(400, 2_000, 10_000);
    let places: Vec<String> = judge.written.keys().cloned().collect();
    for round in 0..rounds {
        let mut found = Tally::default();
        if round % 20 == 19 {
            let words = judge.damage_index(&mut random, &mut found)?;
            figures.index += 1;
            outcome.tally.absorb(found, &words);
            continue;
        }
        // Now and then several files are damaged at once.
        let many = if random.below(8) == 0 { 3 } else { 1 };
        let mut harmed: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut words = Vec::new();
        for _ in 0..many {
            let name = places.get(usize::try_from(random.below(places.len() as u64)).unwrap_or(0));
            let other = places.get(usize::try_from(random.below(places.len() as u64)).unwrap_or(0));
            let (Some(name), Some(other)) = (name, other) else { continue };
            let harm = HARMS.get(usize::try_from(random.below(HARMS.len() as u64)).unwrap_or(0)).copied();
            let Some(harm) = harm.unwrap_or(Harm::Flip).fit(name.ends_with(COMPRESSED)) else { continue };
            let bytes = |name: &String| judge.written.get(name).map(|it| it.bytes.clone()).unwrap_or_default();
            let mut after = harmed.get(name).cloned().unwrap_or_else(|| bytes(name));
            let done = harm.hurt(&mut after, &bytes(other), &mut random);
            *figures.kinds.entry(format!("{harm:?}").to_lowercase()).or_default() += 1;
            words.push(format!("{name}: {done}"));
            harmed.insert(name.clone(), after);
        }
        judge.round(&harmed, &mut found, &mut figures)?;
        outcome.tally.absorb(found, &words.join(", and "));
    }
    figures.tell(rounds, &judge, outcome);
    judge.control(outcome)
}

/// Damages rollouts, has them looked at, and judges what was found.
struct Judge {
    work: PathBuf,
    store: PathBuf,
    written: BTreeMap<String, Written>,
    items: BTreeMap<String, Item>,
    /// The file that each item stands in.
    homes: BTreeMap<String, String>,
    index: Vec<u8>,
    program: PathBuf,
    child: Child,
}

impl Judge {
    fn new(plan: &Plan, folder: &Path) -> Result<Self> {
        let (store, work) = (folder.join("store"), folder.join("work"));
        scene::make(&store)?;
        tools::copy_folder(&store.join("rollouts"), &work)?;
        let mut written = BTreeMap::new();
        for file in files_below(&work)? {
            let bytes = std::fs::read(work.join(&file)).map_err(|error| format!("{file}: {error}"))?;
            let lines = item_lines(&readable(&file, &bytes));
            written.insert(file, Written { bytes, lines });
        }
        let homes = written.iter().flat_map(|(file, of)| of.lines.iter().map(|(id, _)| (id.clone(), file.clone())));
        let homes = homes.collect();
        let index = std::fs::read(work.join(INDEX)).map_err(|error| error.to_string())?;
        let program = plan.program.clone();
        let child = start(&program)?;
        let mut judge = Self { work, store, written, items: BTreeMap::new(), homes, index, program, child };
        let mut tally = Tally::default();
        let seen = judge.look(&mut tally)?.ok_or("the rollouts that nobody damaged can't be read")?;
        let is_whole = seen.files.values().all(|(_, whole)| *whole) && seen.named.is_empty() && seen.refused.is_empty();
        let complete = seen.items.keys().eq(judge.homes.keys()) && seen.files.len() == judge.written.len();
        if !is_whole || !complete || seen.items.is_empty() {
            return Err(format!(
                "rollouts that nobody damaged: {} items of {}, {:?} {:?} {:?}",
                seen.items.len(),
                judge.homes.len(),
                seen.files,
                seen.named,
                seen.refused
            ));
        }
        judge.items = seen.items;
        Ok(judge)
    }

    fn put(&self, file: &str, bytes: &[u8]) -> Result<()> {
        std::fs::write(self.work.join(file), bytes).map_err(|error| format!("{file}: {error}"))
    }

    fn round(&mut self, harmed: &BTreeMap<String, Vec<u8>>, tally: &mut Tally, figures: &mut Figures) -> Result<()> {
        for (file, bytes) in harmed {
            self.put(file, bytes)?;
        }
        if let Some(seen) = self.look(tally)? {
            self.judge(harmed, &seen, tally, figures);
        }
        for file in harmed.keys() {
            self.put(file, &self.written.get(file).map(|it| it.bytes.clone()).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Has the process look at the files; `None` when it did not survive that, which is counted.
    fn look(&mut self, tally: &mut Tally) -> Result<Option<Seen>> {
        let begun = Instant::now();
        self.child.tell(&self.work.display().to_string())?;
        match self.child.hear_until(look::END) {
            Ok(lines) => Ok(Some(Seen::parse(&lines, &self.work, begun.elapsed()))),
            Err(words) => {
                tally.add(if words == SILENT { Rule::Hang } else { Rule::Misbehaved }, words);
                self.child = start(&self.program)?;
                Ok(None)
            }
        }
    }

    fn judge(&self, harmed: &BTreeMap<String, Vec<u8>>, seen: &Seen, tally: &mut Tally, figures: &mut Figures) {
        figures.longest = figures.longest.max(seen.took);
        figures.memory = figures.memory.max(seen.memory);
        if seen.memory > MOST_MEMORY {
            tally.add(Rule::Misbehaved, format!("{} KiB of memory", seen.memory));
        }
        for words in &seen.refused {
            tally.add(Rule::Misbehaved, format!("refused as a whole: {words}"));
        }
        for (id, found) in &seen.items {
            match self.items.get(id) {
                Some(written) if written == found => {}
                Some(_) => tally.add(Rule::Altered, format!("item {id} came back as another one")),
                None => tally.add(Rule::Phantom, format!("item {id} was never written")),
            }
        }
        let owed = self.owed(harmed);
        figures.owed += owed.len() as u64;
        let missing: Vec<&String> = owed.iter().filter(|id| !seen.items.contains_key(**id)).copied().collect();
        if let Some(first) = missing.first() {
            let home = self.homes.get(*first).cloned().unwrap_or_default();
            tally.add(
                Rule::AckedLost,
                format!("{} items on whole lines, {first} of {home} among them, are lost", missing.len()),
            );
        }
        let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
        for id in self.items.keys().filter(|id| !seen.items.contains_key(*id)) {
            if let Some(home) = self.homes.get(id) {
                *lost.entry(home.as_str()).or_default() += 1;
            }
        }
        figures.lost += lost.values().sum::<u64>();
        figures.told += u64::from(seen.files.values().any(|(_, whole)| !whole) || !seen.named.is_empty());
        // A file of which something is lost by itself, not by what it stands on in another one.
        for (file, bytes) in harmed {
            let count = self.written.get(file).map_or(0, |it| it.lines.len() as u64);
            let is_told = seen.named.contains(file) || seen.files.get(file).is_some_and(|(_, whole)| !whole);
            let holds = seen.files.get(file).map_or(0, |(items, _)| *items);
            figures.traceless += u64::from(!is_told);
            if holds < count && !is_told {
                tally.add(Rule::Unnoticed, format!("{file} holds {holds} of {count} items and is called whole"));
            }
            let is_untouched = self.written.get(file).is_some_and(|it| it.bytes == *bytes);
            if is_untouched && is_told {
                tally.add(Rule::Misbehaved, format!("{file} is as it was written, and is called damaged"));
            }
        }
        for file in seen.named.iter().filter(|file| !harmed.contains_key(*file)) {
            tally.add(Rule::Misbehaved, format!("{file} was not damaged, and is named"));
        }
    }

    /// The items whose lines are whole, and so are those of all that they stand on.
    fn owed(&self, harmed: &BTreeMap<String, Vec<u8>>) -> BTreeSet<&String> {
        let mut gone: BTreeSet<&str> = BTreeSet::new();
        for (file, bytes) in harmed {
            let text = readable(file, bytes);
            let lines = self.written.get(file).map(|it| it.lines.as_slice()).unwrap_or_default();
            let whole = whole_lines(&text, lines);
            gone.extend(lines.iter().filter(|(id, _)| !whole.contains(id.as_str())).map(|(id, _)| id.as_str()));
        }
        let stands = |id: &String| {
            let mut next = Some(id);
            while let Some(at) = next {
                if gone.contains(at.as_str()) {
                    return false;
                }
                next = self.items.get(at).and_then(|item| item.after.as_ref());
            }
            true
        };
        self.items.keys().filter(|id| stands(id)).collect()
    }

    /// A store that finds its index damaged mirrors to the same files, and whoever builds from them gets all.
    fn damage_index(&mut self, random: &mut plan::Random, tally: &mut Tally) -> Result<String> {
        let harm = HARMS.get(usize::try_from(random.below(HARMS.len() as u64)).unwrap_or(0)).copied();
        let mut bytes = self.index.clone();
        let whole = self.index.clone();
        let words = format!("{INDEX}: {}", harm.unwrap_or(Harm::Flip).hurt(&mut bytes, &whole, random));
        self.put(INDEX, &bytes)?;
        if let Some(seen) = self.look(tally)?
            && seen.items != self.items
        {
            tally.add(Rule::AckedLost, "what is built without the index is something else");
        }
        self.child.tell(&format!("mirror {} {}", self.store.display(), self.work.display()))?;
        let lines = self.child.hear_until(look::END)?;
        if let Some(words) = lines.iter().find(|line| line.starts_with('X')) {
            tally.add(Rule::Misbehaved, format!("mirroring: {words}"));
        }
        for (file, of) in &self.written {
            if std::fs::read(self.work.join(file)).ok().as_ref() != Some(&of.bytes) {
                tally.add(Rule::Altered, format!("{file} was mirrored to other bytes"));
            }
        }
        let found = files_below(&self.work)?;
        if found.len() != self.written.len() {
            tally.add(
                Rule::Phantom,
                format!("there are {} files, and {} were written", found.len(), self.written.len()),
            );
        }
        let index = self.index.clone();
        self.put(INDEX, &index)?;
        Ok(words)
    }

    /// Who knows another item than there is must find that out, and rollouts that nobody damaged must be told from others.
    fn control(mut self, outcome: &mut Outcome) -> Result<(), Stop> {
        let harmed = BTreeMap::new();
        let judged = |judge: &mut Self| -> Result<Tally> {
            let mut tally = Tally::default();
            judge.round(&harmed, &mut tally, &mut Figures::default())?;
            Ok(tally)
        };
        let whole = judged(&mut self)?;
        outcome.control("rollouts that nobody damaged, which must be told from the others", whole.is_empty());
        let id = self.items.keys().next().cloned().unwrap_or_default();
        let item = Item { whole: "another".to_owned(), after: None };
        if let Some(first) = self.items.get_mut(&id) {
            first.whole.clone_from(&item.whole);
        }
        self.items.insert("an item that nobody wrote".to_owned(), item);
        let other = judged(&mut self)?;
        let found_out = other.count(Rule::Altered) == 1 && other.count(Rule::AckedLost) == 1;
        outcome.control("an item of which another content is known, and one that was never there", found_out);
        Ok(())
    }
}

impl Seen {
    fn parse(lines: &[String], root: &Path, took: Duration) -> Self {
        let mut seen = Self { took, ..Self::default() };
        let below = |file: &str| Path::new(file).strip_prefix(root).unwrap_or(Path::new(file)).display().to_string();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["i", id, after, whole] => {
                    let after = (*after != "-").then(|| (*after).to_owned());
                    // A second one of an id is wrong, whatever it is.
                    let item = Item { whole: (*whole).to_owned(), after };
                    let twice = Item { whole: "twice".to_owned(), after: None };
                    seen.items.entry((*id).to_owned()).and_modify(|read| *read = twice).or_insert(item);
                }
                ["f", items, whole, file] => {
                    seen.files.insert(below(file), (items.parse().unwrap_or(0), *whole == "true"));
                }
                ["p", file] => drop(seen.named.insert(below(file))),
                ["m", memory] => seen.memory = memory.parse().unwrap_or(0),
                ["X", words @ ..] => seen.refused.push(words.join(" ")),
                _ => {}
            }
        }
        seen
    }
}

/// Counted over all damages.
#[derive(Debug, Default)]
struct Figures {
    kinds: BTreeMap<String, u64>,
    index: u64,
    told: u64,
    traceless: u64,
    owed: u64,
    lost: u64,
    memory: u64,
    longest: Duration,
}

impl Figures {
    fn tell(&self, rounds: u64, judge: &Judge, outcome: &mut Outcome) {
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        outcome.figure("rounds", rounds);
        outcome.figure("by kind", kinds.join(", "));
        outcome.figure("of the index", self.index);
        outcome.figure("files", judge.written.len());
        outcome.figure("items", judge.items.len());
        outcome.figure("rounds in which damage was told", self.told);
        outcome.figure("damaged files that are called whole, with all their items", self.traceless);
        outcome.figure("items on whole lines", self.owed);
        outcome.figure("items lost", self.lost);
        outcome.figure("longest look in ms", u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX));
        outcome.figure("most memory in KiB", self.memory);
    }
}

/// What can be read of a file: its bytes, or as much as can be decompressed of them.
fn readable(file: &str, bytes: &[u8]) -> Vec<u8> {
    if !file.ends_with(COMPRESSED) {
        return bytes.to_owned();
    }
    let mut text = Vec::new();
    if let Ok(mut decoder) = zstd::Decoder::new(bytes) {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = decoder.read(&mut part) {
            text.extend_from_slice(part.get(..read).unwrap_or_default());
        }
    }
    text
}

/// The lines of a rollout that hold items, by their ids.
fn item_lines(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"type\":\"item\""));
    lines
        .filter_map(|line| {
            let value: serde_json::Value = serde_json::from_slice(line).ok()?;
            Some((value.get("id")?.as_str()?.to_owned(), line.to_owned()))
        })
        .collect()
}

/// Which of the lines are in a text, wherever.
fn whole_lines<'a>(text: &[u8], lines: &'a [(String, Vec<u8>)]) -> BTreeSet<&'a str> {
    let begin = b"{\"type\":\"item\"";
    let starts: Vec<&[u8]> = text
        .windows(begin.len())
        .enumerate()
        .filter(|(_, part)| *part == begin)
        .filter_map(|(at, _)| text.get(at..))
        .collect();
    let is_there = |line: &[u8]| starts.iter().any(|rest| rest.starts_with(line));
    lines.iter().filter(|(_, line)| is_there(line)).map(|(id, _)| id.as_str()).collect()
}

/// The rollouts below a folder, by their places in it.
fn files_below(root: &Path) -> Result<Vec<String>> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() {
                waiting.push(path);
            } else if name != INDEX && !name.starts_with('.') {
                found.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn start(program: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("look");
    Child::start(command)
}
