//! Many processes that write, resume, pin and fork threads while retention runs: nothing is taken that something kept when it was
//! decided, nothing is lost of what is left, and what is gone is on record. And a holder that was killed keeps nothing.
//!
//! A test starts this very binary again with a role in its environment; [`child_entry`] plays that role and says what it did, a line
//! at a time.
#![cfg(test)]

#[path = "postgres/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use server::Server;
use threadkeep::blocking::Store;
use threadkeep::{
    Error, ItemQuery, NewItem, NewThread, Protection, ReceiptQuery, RetainOptions, RetentionReceipt, RetentionRules,
    RetentionStep, Role, Shelf, StoreOptions, ThreadId, ThreadPatch,
};

const ROLE: &str = "THREADKEEP_TEST_ROLE";
const PLACE: &str = "THREADKEEP_TEST_PLACE";
const NUMBER: &str = "THREADKEEP_TEST_NUMBER";
/// What a child's lines begin with; the test harness writes to the same stream.
const MARK: &str = "@@ ";
const WORKERS: usize = 8;
/// How many threads each of them begins, or more until so many were purged meanwhile.
const THREADS: usize = 40;
const PURGED: usize = 20;
/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(300);

/// Where a store is, and what keeps it there.
struct Ground {
    name: &'static str,
    place: String,
    _folder: Option<tempfile::TempDir>,
    _server: Option<std::sync::Arc<Server>>,
}

/// A store of each engine.
fn grounds() -> Vec<Ground> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store").to_str().unwrap().to_owned();
    let mut grounds = vec![Ground { name: "SQLite", place, _folder: Some(folder), _server: None }];
    if let Some(server) = server::server() {
        let place = server.address();
        grounds.push(Ground { name: "PostgreSQL", place, _folder: None, _server: Some(server) });
    }
    grounds
}

fn open(place: &str) -> Store {
    let options = match place.starts_with("postgres") {
        true => StoreOptions::postgres(place).unwrap(),
        false => StoreOptions::folder(Path::new(place)),
    };
    Store::open(options.busy_bound(HANG)).unwrap()
}

/// What a child does; without a role this is no test and passes.
#[test]
fn child_entry() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let store = open(&std::env::var(PLACE).unwrap());
    let number: usize = std::env::var(NUMBER).unwrap().parse().unwrap();
    say("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    match role.as_str() {
        "work" => work(&store, number),
        "retain" => retain(&store),
        "hold" => hold(&store),
        other => panic!("no such role: {other}"),
    }
    say("done");
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn message(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// Begins threads and goes back to earlier ones: writes on, pins, forks, takes out of the trash. Says what was acknowledged.
fn work(store: &Store, number: usize) {
    let place = store.workspace(Path::new("/w")).unwrap();
    let id = |index: usize| ThreadId::new(format!("t-{number}-{index}")).unwrap();
    for index in (0..).take_while(|index| *index < THREADS || purged(store) < PURGED) {
        let live = place.create_now(NewThread { id: Some(id(index)), ..NewThread::default() }).unwrap();
        live.append(vec![message("one"), message("two")]).unwrap();
        say(&format!("items {} 2", live.id()));
        live.shutdown().unwrap();
        let earlier = id(index * 7 / 11);
        let outcome = match index % 4 {
            0 => write_on(store, &earlier),
            1 => pin(store, &earlier),
            2 => fork(store, &earlier, &format!("f-{number}-{index}")),
            _ => store.restore(&earlier).map(|_| say(&format!("back {earlier}"))),
        };
        match outcome {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => panic!("{earlier}: {error:?}"),
        }
    }
}

/// How many purges the newest receipts tell of.
fn purged(store: &Store) -> usize {
    let page = store.retention_receipts(ReceiptQuery { limit: 200, ..ReceiptQuery::default() }).unwrap();
    page.entries.iter().filter(|receipt| receipt.step == RetentionStep::Purged).count()
}

/// While this process holds the thread nobody takes it.
fn write_on(store: &Store, thread: &ThreadId) -> Result<(), Error> {
    let live = store.resume(thread, false)?;
    for _ in 0..5 {
        live.append(vec![message("more")]).unwrap();
        let shelf = store.get(thread).unwrap().shelf;
        assert_eq!(shelf, Shelf::Active, "{thread} was taken from a living process");
    }
    say(&format!("items {thread} 5"));
    live.shutdown()
}

fn pin(store: &Store, thread: &ThreadId) -> Result<(), Error> {
    let pinned = store.update(thread, ThreadPatch { pinned: Some(true), ..ThreadPatch::default() })?;
    say(&format!("pinned {thread} {}", if pinned.shelf == Shelf::Active { "listed" } else { "trashed" }));
    Ok(())
}

fn fork(store: &Store, thread: &ThreadId, name: &str) -> Result<(), Error> {
    let fork = store.fork(thread, None, NewThread { id: Some(ThreadId::new(name)?), ..NewThread::default() })?;
    store.update(&fork.id, ThreadPatch { pinned: Some(true), ..ThreadPatch::default() })?;
    // What it begins with is all there, whatever becomes of its parent.
    say(&format!("forked {} {}", fork.id, fork.head.map_or(0, |head| head.depth + 1)));
    Ok(())
}

fn rules() -> RetentionRules {
    let soon = Duration::from_millis(20);
    RetentionRules { max_count: Some(10), grace: Duration::ZERO, trash_grace: Some(soon), ..RetentionRules::default() }
}

/// Runs retention until it is told that the others are done.
fn retain(store: &Store) {
    let (told, is_told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        told.send(()).unwrap();
    });
    while is_told.try_recv().is_err() {
        store.retain(RetainOptions { rules: Some(rules()), ..RetainOptions::default() }).unwrap();
    }
}

fn hold(store: &Store) {
    let live = store
        .workspace(Path::new("/w"))
        .unwrap()
        .create_now(NewThread { id: Some(ThreadId::new("held").unwrap()), ..NewThread::default() });
    let live = live.unwrap();
    live.append(vec![message("held")]).unwrap();
    say("holds");
    std::thread::sleep(HANG);
}

/// A child.
struct Worker {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(role: &str, place: &str, number: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(PLACE, place).env(NUMBER, number.to_string());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut worker = Self { process, output };
        assert_eq!(worker.hear().as_deref(), Some("ready"));
        worker
    }

    /// Lets it begin, or tells it to end.
    fn tell(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// The next line that it says whole.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(MARK)
                && said.ends_with('\n')
            {
                return Some(said.trim_end().to_owned());
            }
            line.clear();
        }
        None
    }

    /// All that it says to its end, which is the end that it was meant to have.
    fn rest(&mut self) -> Vec<String> {
        let said: Vec<String> = std::iter::from_fn(|| self.hear()).collect();
        assert!(self.process.wait().unwrap().success());
        assert_eq!(said.last().map(String::as_str), Some("done"));
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What was acknowledged of the threads.
#[derive(Debug, Default)]
struct Acked {
    items: BTreeMap<ThreadId, usize>,
    pinned: BTreeSet<ThreadId>,
    pinned_when_listed: BTreeSet<ThreadId>,
    forks: BTreeMap<ThreadId, usize>,
}

impl Acked {
    fn hear(&mut self, lines: &[String]) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let Some(id) = words.get(1).and_then(|id| ThreadId::new(*id).ok()) else { continue };
            match words.as_slice() {
                ["items", _, count] => *self.items.entry(id).or_default() += count.parse::<usize>().unwrap(),
                ["pinned", _, shelf] => {
                    self.pinned.insert(id.clone());
                    if *shelf == "listed" {
                        self.pinned_when_listed.insert(id);
                    }
                }
                ["forked", _, count] => drop(self.forks.insert(id, count.parse().unwrap())),
                _ => {}
            }
        }
    }
}

fn receipts(store: &Store) -> Vec<RetentionReceipt> {
    let mut query = ReceiptQuery { limit: 1_000, ..ReceiptQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = store.retention_receipts(query.clone()).unwrap();
        found.extend(page.entries);
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

fn count_items(store: &Store, thread: &ThreadId) -> usize {
    store.items(thread, ItemQuery { limit: 1_000, ..ItemQuery::default() }).unwrap().entries.len()
}

#[test]
fn retention_takes_nothing_that_somebody_uses() {
    for ground in grounds() {
        let store = open(&ground.place);
        let mut workers: Vec<Worker> =
            (0..WORKERS).map(|number| Worker::start("work", &ground.place, number)).collect();
        let mut retainers: Vec<Worker> = (0..2).map(|number| Worker::start("retain", &ground.place, number)).collect();
        retainers.iter_mut().chain(&mut workers).for_each(Worker::tell);
        let mut acked = Acked::default();
        for worker in &mut workers {
            acked.hear(&worker.rest());
        }
        retainers.iter_mut().for_each(Worker::tell);
        retainers.iter_mut().for_each(|worker| drop(worker.rest()));

        let receipts = receipts(&store);
        let with = |step: RetentionStep| {
            receipts.iter().filter(|it| it.step == step).map(|it| &it.thread).collect::<BTreeSet<_>>()
        };
        let (trashed, purged) = (with(RetentionStep::Trashed), with(RetentionStep::Purged));
        assert!(purged.len() >= PURGED, "{}: too little was taken", ground.name);
        assert!(purged.iter().all(|thread| trashed.contains(*thread)));
        for (thread, items) in &acked.items {
            match store.get(thread) {
                Ok(_) => assert_eq!(count_items(&store, thread), *items, "{}: {thread}", ground.name),
                Err(Error::NotFound { .. }) => {
                    assert!(purged.contains(thread), "{}: {thread} is gone and on no record", ground.name);
                    assert!(!acked.pinned.contains(thread), "{}: {thread} was pinned and is gone", ground.name);
                }
                Err(error) => panic!("{}: {thread}: {error:?}", ground.name),
            }
        }
        for thread in &acked.pinned_when_listed {
            assert_eq!(store.get(thread).unwrap().shelf, Shelf::Active, "{}: {thread} was pinned", ground.name);
        }
        assert!(!acked.forks.is_empty() && !acked.pinned_when_listed.is_empty());
        for (fork, shared) in &acked.forks {
            assert_eq!(count_items(&store, fork), *shared, "{}: {fork}", ground.name);
        }
        let verified = store.verify_all(|_| {}).unwrap();
        assert!(verified.invalid.is_empty(), "{}: {:?}", ground.name, verified.invalid);
    }
}

/// While its process lives nobody takes a thread, however old it is; once it is killed the claim that it left keeps nothing.
#[test]
fn a_dead_holder_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store").to_str().unwrap().to_owned();
    let store = open(&place);
    let mut holder = Worker::start("hold", &place, 0);
    holder.tell();
    assert_eq!(holder.hear().as_deref(), Some("holds"));
    let old =
        RetentionRules { max_age: Some(Duration::from_millis(1)), grace: Duration::ZERO, ..RetentionRules::default() };
    let options = RetainOptions { rules: Some(old), ..RetainOptions::default() };
    let until = Instant::now() + HANG;
    let report = loop {
        let report = store.retain(options.clone()).unwrap();
        assert!(report.trashed.is_empty() && Instant::now() < until);
        if !report.kept.is_empty() {
            break report;
        }
    };
    assert_eq!(report.kept[0].why, Protection::Live);
    holder.process.kill().unwrap();
    holder.process.wait().unwrap();
    let report = store.retain(options).unwrap();
    assert_eq!(report.trashed.len(), 1);
    let thread = &report.trashed[0].thread;
    store.restore(thread).unwrap();
    assert_eq!(count_items(&store, thread), 1);
}
