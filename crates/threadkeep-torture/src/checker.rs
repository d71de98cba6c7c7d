//! The fresh process that says what a store holds, and the side that listens to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use threadkeep::blocking::Store;
use threadkeep::{Error, Hash, ItemQuery, StoreOptions};

use crate::Result;
use crate::child::{Child, SILENT, say};
use crate::oracle::{Found, Journal, Rule, Tally};
use crate::plan::Plan;
use crate::{ground, tools, work};

/// The database's name in a store.
const DATABASE: &str = "threadkeep.db";

/// Says what a store holds.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[arg(long)]
    store: PathBuf,
    /// `thread=depth`: the items from that depth on.
    #[arg(long, value_delimiter = ',')]
    threads: Vec<String>,
    /// Verifies the chains.
    #[arg(long)]
    verify: bool,
    /// Says a digest of the items instead of each of them.
    #[arg(long)]
    whole: bool,
    /// Has the engine check a copy of the file.
    #[arg(long)]
    integrity: bool,
}

/// Says what many stores hold, one after the other: those that it is told, line by line.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckMany {
    /// The threads that are looked at, whole.
    #[arg(long, value_delimiter = ',')]
    threads: Vec<String>,
}

/// Ends what is said of one of many stores.
const END: &str = "=";
/// Between what was found and what was found after writing on.
const WROTE_ON: &str = "+";

/// Plays the checker of many. Each store is opened as after a crash, then written on, and looked at again.
pub(crate) fn play_many(args: &CheckMany) -> Result<()> {
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (life, store) = line.split_once(' ').ok_or("a store is a life and a folder")?;
        let life = life.parse().map_err(|_| "a life is a number")?;
        if let Err(words) = examine(Path::new(store), life, &args.threads) {
            say(format_args!("X {words}"));
        }
        say(END);
    }
    Ok(())
}

fn examine(folder: &Path, life: u64, threads: &[String]) -> Result<()> {
    let check = Check { store: folder.to_owned(), threads: Vec::new(), verify: true, whole: false, integrity: true };
    let told = |error: Error| format!("open: {}: {error}", error.kind());
    let open = || Store::open(StoreOptions::folder(folder).label("check")).map_err(told);
    let store = open()?;
    say(format_args!("U {}", store.id()));
    let mut before = 0;
    for (number, thread) in threads.iter().enumerate() {
        let count = tell(&store, thread, 0, &check)?;
        before = if number == 0 { count } else { before };
    }
    drop(store);
    // Nobody else has it any more, and it is thrown away afterwards.
    say(format_args!("Q {}", check_pages(&folder.join(DATABASE))?));
    say(WROTE_ON);
    let Some(thread) = threads.first() else { return Ok(()) };
    let store = open()?;
    let told = |error: Error| format!("writing on: {}: {error}", error.kind());
    let live = work::claim(&store, &work::thread_id(thread)?).map_err(told)?;
    say(format_args!("I {thread} 0 2"));
    let appended = live.append(work::items(life, 0, 0, 2)).map_err(told)?;
    let hash = appended.items.last().map(|item| item.hash.to_string()).unwrap_or_default();
    say(format_args!("A {thread} 0 2 {hash}"));
    live.shutdown().map_err(told)?;
    drop((live, store));
    tell(&open()?, thread, before, &check).map(drop)
}

/// One process that checks many stores, one after the other.
#[derive(Debug)]
pub(crate) struct Many {
    command: (PathBuf, String),
    child: Child,
}

impl Many {
    /// Starts it. The first of the threads is the one that is written on.
    pub(crate) fn start(plan: &Plan, threads: &[&str]) -> Result<Self> {
        let command = (plan.program.clone(), threads.join(","));
        Ok(Self { child: Self::child(&command)?, command })
    }

    fn child((program, threads): &(PathBuf, String)) -> Result<Child> {
        let mut command = Command::new(program);
        command.arg("check-many").arg("--threads").arg(threads);
        Child::start(command)
    }

    /// Has it look at a store and write on in it, with items of that life; judges both by the journal, which is settled by
    /// that. `None` when the store could not be read, which is counted.
    pub(crate) fn judge(
        &mut self,
        store: &Path,
        life: u64,
        journal: &mut Journal,
        tally: &mut Tally,
    ) -> Result<Option<Findings>> {
        self.child.tell(&format!("{life} {}", store.display()))?;
        let lines = match self.child.hear_until(END) {
            Ok(lines) => lines,
            Err(words) => {
                let rule = if words == SILENT { Rule::Hang } else { Rule::Misbehaved };
                tally.add(rule, format!("the process that checks: {words}"));
                self.child = Self::child(&self.command)?;
                return Ok(None);
            }
        };
        let mut parts = lines.split(|line| line == WROTE_ON);
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let findings = parse(&first.iter().filter(|line| *line != END).cloned().collect::<Vec<_>>(), tally);
        for (thread, _) in journal.settled() {
            journal.judge(&thread, findings.items.get(&thread).map_or(&[][..], Vec::as_slice), tally);
        }
        let Some(second) = second else {
            // `X` and why was told by the parser.
            return Ok(None);
        };
        let is_said = |line: &&String| line.starts_with("I ") || line.starts_with("A ");
        for line in second.iter().filter(is_said) {
            let words: Vec<&str> = line.split(' ').collect();
            journal.hear(words.get(1).copied().unwrap_or(""), life, &words);
        }
        let found: Vec<String> = second.iter().filter(|line| *line != END && !is_said(line)).cloned().collect();
        for (thread, items) in parse(&found, tally).items {
            journal.judge(&thread, &items, tally);
        }
        Ok(Some(findings))
    }
}

/// Plays the checker.
pub(crate) fn play(args: &Check) -> Result<()> {
    let options = ground::options(&args.store).map_err(work::told)?.label("check");
    let store = Store::open(options).map_err(|error| format!("open: {}: {error}", error.kind()))?;
    say(format_args!("U {}", store.id()));
    for name in &args.threads {
        let (thread, from) = name.split_once('=').ok_or("a thread is thread=depth")?;
        let from = from.parse().map_err(|_| "a thread is thread=depth")?;
        tell(&store, thread, from, args).map(drop)?;
    }
    drop(store);
    // A server has no file to copy and check.
    if args.integrity && !ground::is_remote(&args.store) {
        say(format_args!("Q {}", integrity(&args.store)?));
    }
    say("Z");
    Ok(())
}

/// Says what a thread holds from a depth on; gives the depth after its last item.
fn tell(store: &Store, thread: &str, from: u32, args: &Check) -> Result<u32> {
    let id = work::thread_id(thread)?;
    match store.get(&id) {
        Ok(found) => say(format_args!("T {thread} {:?}", found.shelf)),
        Err(Error::NotFound { .. }) => {
            say(format_args!("N {thread}"));
            return Ok(0);
        }
        Err(error) => return Err(format!("{thread}: {}: {error}", error.kind())),
    }
    let mut query = ItemQuery { limit: 2_000, from, ..ItemQuery::default() };
    let (mut count, mut digest, mut next) = (0_u64, Hash([0; 32]), from);
    loop {
        let page = store.items(&id, query.clone()).map_err(|error| format!("{thread}: {}: {error}", error.kind()))?;
        for item in page.entries {
            let content = Hash::of(&item.content);
            let depth = u64::from(item.depth);
            next = item.depth + 1;
            let found = Found { id: item.id, content, depth, hash: item.hash, epoch: item.epoch };
            (count, digest) = (count + 1, found.chain(digest));
            if !args.whole {
                say(format_args!("i {} {content} {depth} {} {}", item.id, item.hash, item.epoch));
            }
        }
        match page.next_cursor {
            None => break,
            cursor => query.cursor = cursor,
        }
    }
    say(format_args!("S {thread} {count} {digest}"));
    if args.verify {
        let verdict = store.verify(&id).map_err(|error| format!("{thread}: {}: {error}", error.kind()))?;
        say(format_args!(
            "V {thread} {}",
            if verdict.is_intact() { "valid".to_owned() } else { format!("{:?}", verdict.invalid) }
        ));
    }
    Ok(next)
}

/// The engine's own check, on a copy: the store itself is opened by nobody but the library.
fn integrity(store: &Path) -> Result<String> {
    let copy = tempfile::tempdir_in(store.parent().unwrap_or(store)).map_err(|error| error.to_string())?;
    tools::copy_folder(store, copy.path())?;
    check_pages(&copy.path().join(DATABASE))
}

fn check_pages(database: &Path) -> Result<String> {
    let connection = rusqlite::Connection::open(database).map_err(|error| error.to_string())?;
    connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0))
        .map_err(|error| format!("integrity check: {error}"))
}

/// How much a check looks at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Depth {
    /// Verifies the chains.
    pub(crate) verify: bool,
    /// Digests instead of items.
    pub(crate) whole: bool,
    /// The engine's own check.
    pub(crate) integrity: bool,
}

/// What a fresh process found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The items of each thread that exists.
    pub(crate) items: BTreeMap<String, Vec<Found>>,
    /// How many items were found in each thread, and the digest over them.
    pub(crate) digests: BTreeMap<String, (u64, Hash)>,
    /// The shelf of each thread that exists.
    pub(crate) shelves: BTreeMap<String, String>,
    /// The store's id.
    pub(crate) store: String,
}

/// Has two fresh processes look at the store, one after the other; what differs between them, and what does not verify, is
/// counted. `None` when the store could not be read, which is counted too.
pub(crate) fn look(
    plan: &Plan,
    store: &Path,
    threads: &[(String, u64)],
    depth: Depth,
    tally: &mut Tally,
) -> Option<Findings> {
    let mut first = None;
    for _ in 0..2 {
        let lines = match hear(plan, store, threads, depth) {
            Ok(lines) => lines,
            Err(words) => {
                tally
                    .add(if words == SILENT { Rule::Hang } else { Rule::Altered }, format!("a fresh process: {words}"));
                return None;
            }
        };
        match &first {
            None => first = Some(lines),
            Some(before) if *before == lines => {}
            Some(_) => tally.add(Rule::Unequal, "two fresh processes read different things"),
        }
    }
    first.map(|lines| parse(&lines, tally))
}

/// Looks at all threads of a journal and judges them.
pub(crate) fn judge(
    plan: &Plan,
    store: &Path,
    journal: &mut Journal,
    depth: Depth,
    tally: &mut Tally,
) -> Option<Findings> {
    let findings = look(plan, store, &journal.settled(), depth, tally)?;
    for (thread, _) in journal.settled() {
        let items = findings.items.get(&thread).map_or(&[][..], Vec::as_slice);
        journal.judge(&thread, items, tally);
    }
    Some(findings)
}

/// Compares all that was judged so far, piece by piece, with the store as a whole.
pub(crate) fn judge_whole(plan: &Plan, store: &Path, journal: &Journal, tally: &mut Tally) {
    let threads: Vec<(String, u64)> = journal.settled().into_iter().map(|(thread, _)| (thread, 0)).collect();
    let depth = Depth { verify: true, whole: true, integrity: true };
    let Some(findings) = look(plan, store, &threads, depth, tally) else { return };
    for (thread, count, digest) in journal.digests() {
        let found = findings.digests.get(&thread).copied().unwrap_or((0, Hash([0; 32])));
        if found != (count, digest) {
            tally.add(
                Rule::Altered,
                format!("{thread}: {} items at the end, {count} judged before, or others", found.0),
            );
        }
    }
}

fn hear(plan: &Plan, store: &Path, threads: &[(String, u64)], depth: Depth) -> Result<Vec<String>> {
    let mut command = Command::new(&plan.program);
    command.arg("check").arg("--store").arg(store);
    for (thread, from) in threads {
        command.arg("--threads").arg(format!("{thread}={from}"));
    }
    for (flag, wanted) in [("--verify", depth.verify), ("--whole", depth.whole), ("--integrity", depth.integrity)] {
        if wanted {
            command.arg(flag);
        }
    }
    let (status, lines) = Child::start(command)?.finish()?;
    match lines.last().map(String::as_str) {
        Some("Z") if status.success() => Ok(lines),
        last => Err(format!("{} ({status})", last.unwrap_or("nothing"))),
    }
}

fn parse(lines: &[String], tally: &mut Tally) -> Findings {
    let mut findings = Findings::default();
    let mut current = String::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["U", id] => findings.store = (*id).to_owned(),
            ["T", thread, shelf] => {
                current = (*thread).to_owned();
                findings.shelves.insert(current.clone(), (*shelf).to_owned());
                findings.items.insert(current.clone(), Vec::new());
            }
            ["i", item @ ..] => match (Found::parse(item), findings.items.get_mut(&current)) {
                (Some(found), Some(items)) => items.push(found),
                _ => tally.add(Rule::Altered, format!("a fresh process said `{line}`")),
            },
            ["S", thread, count, digest] => {
                let digest = digest.parse().unwrap_or(Hash([0; 32]));
                findings.digests.insert((*thread).to_owned(), (count.parse().unwrap_or(0), digest));
            }
            ["V", _, "valid"] | ["Q", "ok"] | ["N", _] | ["Z"] => {}
            _ => tally.add(Rule::Altered, line.clone()),
        }
    }
    findings
}
