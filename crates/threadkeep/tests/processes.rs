//! Real processes on one store: killed in the middle of writing, many at once, one fenced off by another.
//!
//! A test starts this very binary again with a role in its environment; [`child_entry`] plays that role. What a child says
//! goes through its standard output, one line at a time, and a line that is not complete was not said.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Address, AppendOptions, Durability, Error, Hash, Item, ItemId, ItemQuery, Kind, NewItem, NewThread, Role,
    StoreOptions, ThreadId, ThreadPatch, Uuid,
};

/// Longer than anything here may take: who waits for so long has found a hang.
const HANG: Duration = Duration::from_secs(60);
/// What a child's lines begin with; the test harness writes to the same stream.
const MARK: &str = "@@ ";
const ROLE: &str = "THREADKEEP_TEST_ROLE";
const FORMAT: &str = "text";

// Children.

/// What a child does; without a role this is no test and passes.
#[test]
fn child_entry() {
    match std::env::var(ROLE).as_deref() {
        Ok("write") => play_writer(),
        Ok("check") => play_checker(),
        Ok("bulk") => play_bulk(),
        Ok("open") => play_opener(),
        Ok("create") => play_creator(),
        Ok("obey") => play_obedient(),
        _ => {}
    }
}

/// A child process; killed when it is dropped.
struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    fn start(role: &str, store: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env("STORE", store).envs(settings.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (input, mut output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // A line without its end was cut by the kill: it was not said.
            while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
                if let Some((_, said)) = line.split_once(MARK)
                    && tell.send(said.trim_end().to_owned()).is_err()
                {
                    break;
                }
                line.clear();
            }
        });
        Self { process, input, lines }
    }

    fn pid(&self) -> i64 {
        i64::from(self.process.id())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// The next line; `None` when the child has ended.
    fn hear(&self) -> Option<String> {
        match self.lines.recv_timeout(HANG) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a child said nothing for {HANG:?}"),
        }
    }

    fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Gives a command and hears the answer.
    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear().unwrap_or_else(|| panic!("the child ended at `{line}`"))
    }

    /// Kills it with no chance to clean up, and gives what it still had said.
    fn kill(mut self) -> (ExitStatus, Vec<String>) {
        self.process.kill().unwrap();
        let status = self.process.wait().unwrap();
        let rest = self.lines.iter().collect();
        (status, rest)
    }

    fn finish(mut self) {
        self.input = None;
        let status = self.process.wait().unwrap();
        assert!(status.success(), "a child ended with {status}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Says one line, in one write.
fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map(Result::unwrap)
}

fn open(folder: &Path, label: &str) -> Store {
    Store::open(StoreOptions::folder(folder).label(label)).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn new_thread(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn text(content: impl Into<Vec<u8>>) -> NewItem {
    NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, FORMAT, content.into()) }
}

fn at(durability: Durability) -> AppendOptions {
    AppendOptions { durability, ..AppendOptions::default() }
}

/// The whole active path.
fn read_path(store: &Store, thread: &ThreadId) -> Vec<Item> {
    let (mut items, mut query) = (Vec::new(), ItemQuery { limit: 2_000, ..ItemQuery::default() });
    loop {
        let page = store.items(thread, query.clone()).unwrap();
        items.extend(page.entries);
        match page.next_cursor {
            None => return items,
            cursor => query.cursor = cursor,
        }
    }
}

fn read_texts(store: &Store, thread: &ThreadId) -> Vec<String> {
    read_path(store, thread).into_iter().map(|item| String::from_utf8(item.content).unwrap()).collect()
}

/// Waits for a condition that must come true.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANG, "{what} did not come true in {HANG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Random numbers from a seed that is printed, so that a failure can be told apart from another.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("THREADKEEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        Self(given.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish()) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

// Killed in the middle of writing.

/// Threads that one child writes at the same time.
const LANES: u64 = 2;

fn lane_id(lane: u64) -> ThreadId {
    id(&format!("lane-{lane}"))
}

/// The id of an item says which it is, so that one that was never issued is told.
fn item_id(round: u64, lane: u64, number: u64) -> ItemId {
    ItemId::from_uuid(Uuid::from_u64_pair(round << 8 | lane, number))
}

/// What the item holds: short and long, some of it large enough to be stored apart.
fn content(round: u64, lane: u64, number: u64) -> Vec<u8> {
    let length = if number % 41 == 40 { 70_000 } else { usize::try_from(number * 131 % 1_500).unwrap() };
    let word = format!("{round}/{lane}/{number} ");
    word.bytes().cycle().take(word.len() + length).collect()
}

/// Writes batches without a pause until it is killed. `B` issues a batch, `A` acknowledges an item.
fn play_writer() {
    let store = open(Path::new(&setting("STORE")), "killed");
    let round: u64 = setting("ROUND").parse().unwrap();
    let durability = setting("DURABILITY");
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let live = store.resume(&lane_id(lane), false).unwrap();
            let durability = durability.as_str();
            scope.spawn(move || write_lane(&live, round, lane, durability));
        }
    });
}

fn write_lane(live: &LiveThread, round: u64, lane: u64, durability: &str) {
    let (mut next, mut flushed) = (0, 0);
    for batch in 0_u64.. {
        let size = batch % 3 + 1;
        let item = |number| text(content(round, lane, number)).with_id(item_id(round, lane, number));
        let items = (next..next + size).map(item).collect();
        say(format!("B {lane} {next} {size}"));
        if durability == "queued" {
            live.append_with(items, at(Durability::Queued)).unwrap();
            if batch % 4 == 3 {
                live.flush().unwrap();
                (flushed..next + size).for_each(|number| say(format!("A {lane} {number}")));
                flushed = next + size;
            }
        } else {
            let level = if durability == "written" { Durability::Written } else { Durability::Synced };
            for (number, item) in (next..).zip(live.append_with(items, at(level)).unwrap().items) {
                say(format!("A {lane} {number} {} {} {}", item.branch, item.depth, item.hash));
            }
        }
        next += size;
    }
}

/// Says what a fresh process finds.
fn play_checker() {
    let store = open(Path::new(&setting("STORE")), "check");
    for lane in 0..LANES {
        let verdict = store.verify(&lane_id(lane)).unwrap();
        assert!(verdict.is_intact(), "{verdict:?}");
        say(fingerprint(&read_path(&store, &lane_id(lane))));
    }
}

fn fingerprint(items: &[Item]) -> String {
    let mut bytes = Vec::new();
    for item in items {
        bytes.extend_from_slice(item.id.as_bytes());
        bytes.extend_from_slice(&item.hash.0);
        bytes.extend_from_slice(&item.content);
    }
    format!("{} {}", items.len(), Hash::of(&bytes))
}

/// An item as it was issued.
#[derive(Debug, Clone, PartialEq)]
struct Issued {
    id: ItemId,
    content: Vec<u8>,
}

/// An item as it stands in the store.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    id: ItemId,
    place: (Address, Hash),
    content: Vec<u8>,
}

impl From<Item> for Found {
    fn from(item: Item) -> Self {
        Self { id: item.id, place: (item.address(), item.hash), content: item.content }
    }
}

/// What a child did to one thread, as it said itself.
#[derive(Debug, Default)]
struct Account {
    /// The batches in the order of their issue.
    batches: Vec<Vec<Issued>>,
    /// The acknowledged items in order; with their places, where the acknowledgement named them.
    acked: Vec<(ItemId, Option<(Address, Hash)>)>,
}

impl Account {
    fn hear(&mut self, round: u64, lane: u64, words: &[&str]) {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        if words[0] == "B" {
            let batch = (number(2)..number(2) + number(3))
                .map(|number| Issued { id: item_id(round, lane, number), content: content(round, lane, number) });
            self.batches.push(batch.collect());
        } else {
            let place = words.get(3).map(|branch| {
                let address = Address { branch: branch.parse().unwrap(), depth: words[4].parse().unwrap() };
                (address, words[5].parse().unwrap())
            });
            self.acked.push((item_id(round, lane, number(2)), place));
        }
    }

    fn issued(&self) -> usize {
        self.batches.iter().map(Vec::len).sum()
    }
}

/// The oracle: what was there stays, what was acknowledged is there once at its place, and whatever else is there was
/// issued, is whole, and stands in the order of its issue. Gives how many items were stored without being acknowledged.
fn judge(before: &[Found], account: &Account, found: &[Found]) -> Result<usize, String> {
    let Some(new) = found.strip_prefix(before) else {
        return Err("what was there before the child has changed".into());
    };
    let issued: Vec<&Issued> = account.batches.iter().flatten().collect();
    for (index, item) in new.iter().enumerate() {
        match issued.get(index) {
            None => return Err(format!("item {index} was never issued")),
            Some(issued) if issued.id != item.id => {
                return Err(format!("item {index} is lost, twice there, or out of order"));
            }
            Some(issued) if issued.content != item.content => {
                return Err(format!("item {index} has other bytes"));
            }
            Some(_) => {}
        }
    }
    for (index, (id, place)) in account.acked.iter().enumerate() {
        match new.get(index) {
            None => return Err(format!("acknowledged item {index} is lost")),
            Some(item) if item.id != *id => {
                return Err(format!("acknowledged item {index} is not in its place"));
            }
            Some(item) if place.is_some_and(|place| place != item.place) => {
                return Err(format!("acknowledged item {index} has another address or hash"));
            }
            Some(_) => {}
        }
    }
    let mut whole = 0;
    let mut ends = account.batches.iter().map(|batch| {
        whole += batch.len();
        whole
    });
    if !new.is_empty() && !ends.any(|end| end == new.len()) {
        return Err(format!("a batch is stored in part: {} items", new.len()));
    }
    Ok(new.len() - account.acked.len())
}

/// The oracle must see each kind of loss; else the tests below would prove nothing.
#[test]
fn the_oracle_sees_every_violation() {
    let issued = |number: u64| Issued { id: item_id(1, 0, number), content: content(1, 0, number) };
    let branch = item_id(1, 0, 0);
    let place = |depth: u32| (Address { branch, depth }, Hash([u8::try_from(depth).unwrap(); 32]));
    let found = |number: u32| Found {
        id: item_id(1, 0, number.into()),
        place: place(number),
        content: content(1, 0, number.into()),
    };
    let account = Account {
        batches: vec![vec![issued(0)], vec![issued(1), issued(2)], vec![issued(3), issued(4)]],
        acked: (0..3).map(|number| (item_id(1, 0, number.into()), Some(place(number)))).collect(),
    };
    let path = |numbers: &[u32]| numbers.iter().map(|number| found(*number)).collect::<Vec<_>>();
    assert_eq!(judge(&[], &account, &path(&[0, 1, 2])), Ok(0));
    assert_eq!(judge(&[], &account, &path(&[0, 1, 2, 3, 4])), Ok(2));
    let mut altered = path(&[0, 1, 2]);
    altered[1].content.push(b'!');
    let mut moved = path(&[0, 1, 2]);
    moved[2].place = place(7);
    let violations = [
        ("lost", path(&[0, 1])),
        ("all lost", path(&[])),
        ("a hole", path(&[0, 2])),
        ("twice", path(&[0, 1, 1, 2])),
        ("out of order", path(&[0, 2, 1])),
        ("half a batch", path(&[0, 1, 2, 3])),
        ("never issued", path(&[0, 1, 2, 3, 4, 9])),
        ("altered", altered),
        ("moved", moved),
    ];
    for (name, path) in violations {
        assert!(judge(&[], &account, &path).is_err(), "the oracle is blind for: {name}");
    }
    assert!(judge(&path(&[9]), &account, &path(&[0, 1, 2])).is_err(), "the oracle is blind for a changed past");
}

/// What a loop of kills came to.
#[derive(Debug, Default)]
struct Figures {
    kills: u64,
    /// Kills that fell inside an append or a flush: a batch was issued and not yet acknowledged.
    inside: u64,
    acked: usize,
    /// Stored, though the kill came before the acknowledgement.
    stored_unacked: usize,
    /// Issued and not stored.
    gone_unacked: usize,
    slowest_resume: Duration,
}

fn kill_loop(durability: &str, kills: u64) {
    let begun = Instant::now();
    let mut random = Random::new();
    let seed = random.0;
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = open(&folder, "parent");
    let workspace = store.workspace(temp.path()).unwrap();
    for lane in 0..LANES {
        workspace.create_now(new_thread(lane_id(lane).as_str())).unwrap();
    }
    drop((workspace, store));
    let (mut figures, mut known) = (Figures::default(), vec![Vec::new(); usize::try_from(LANES).unwrap()]);
    for round in 1..=kills {
        let accounts = write_and_kill(&folder, durability, round, &mut random, &mut figures);
        check_after_kill(&folder, round, &accounts, &mut known, &mut figures);
    }
    check_files(&folder);
    let Figures { inside, acked, stored_unacked, gone_unacked, slowest_resume, .. } = figures;
    println!(
        "{durability}: {kills} kills ({inside} inside a call), {acked} items acknowledged, lost 0, twice 0, halves 0; \
         unacknowledged: {stored_unacked} stored, {gone_unacked} gone; slowest resume + append {slowest_resume:?}; \
         seed {seed}, {:.1?}",
        begun.elapsed()
    );
    assert_eq!(figures.kills, kills);
    assert!(inside * 2 > kills, "only {inside} of {kills} kills fell inside a call: the child was not busy");
}

/// Lets a child write until a random number of acknowledgements and a random moment after them, then kills it.
fn write_and_kill(
    folder: &Path,
    durability: &str,
    round: u64,
    random: &mut Random,
    figures: &mut Figures,
) -> Vec<Account> {
    let child = Child::start("write", folder, &[("ROUND", &round.to_string()), ("DURABILITY", durability)]);
    let mut lines = Vec::new();
    let acks = random.below(14) + 1;
    while lines.iter().filter(|line: &&String| line.starts_with('A')).count() < usize::try_from(acks).unwrap() {
        lines.push(child.hear().expect("the child ended by itself"));
    }
    std::thread::sleep(Duration::from_micros(random.below(4_000)));
    let (status, rest) = child.kill();
    assert_eq!(status.signal(), Some(9), "the child ended by itself: {status}");
    lines.extend(rest);
    let mut accounts = Vec::new();
    accounts.resize_with(usize::try_from(LANES).unwrap(), Account::default);
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        let lane: u64 = words[1].parse().unwrap();
        accounts[usize::try_from(lane).unwrap()].hear(round, lane, &words);
    }
    figures.kills += 1;
    figures.inside += u64::from(accounts.iter().any(|account| account.issued() > account.acked.len()));
    accounts
}

/// A fresh process and a fresh handle look at what the kill left, and the handle writes on at once.
fn check_after_kill(folder: &Path, round: u64, accounts: &[Account], known: &mut [Vec<Found>], figures: &mut Figures) {
    let fresh = Child::start("check", folder, &[]);
    let fingerprints: Vec<String> = std::iter::from_fn(|| fresh.hear()).collect();
    fresh.finish();
    let store = open(folder, "parent");
    for (lane, (account, before)) in (0_u64..).zip(accounts.iter().zip(known)) {
        let thread = lane_id(lane);
        let items = read_path(&store, &thread);
        assert_eq!(fingerprints.get(usize::try_from(lane).unwrap()), Some(&fingerprint(&items)), "two looks differ");
        assert_eq!(store.get(&thread).unwrap().items, i64::try_from(items.len()).unwrap(), "items beside the path");
        assert!((0_u32..).zip(&items).all(|(depth, item)| item.depth == depth));
        let found: Vec<Found> = items.into_iter().map(Found::from).collect();
        let extra = judge(before, account, &found).unwrap_or_else(|why| panic!("kill {round}, {thread}: {why}"));
        assert!(store.tree(&thread).unwrap().branches.len() <= 1, "a kill must not begin a branch");
        figures.acked += account.acked.len();
        figures.stored_unacked += extra;
        figures.gone_unacked += account.issued() - account.acked.len() - extra;
        *before = found;

        let begun = Instant::now();
        let live = store.resume(&thread, false).unwrap();
        let mine = text(content(round, 9, lane)).with_id(item_id(round, 9, lane));
        let place = live.append_with(vec![mine.clone()], at(Durability::Written)).unwrap().items[0].clone();
        figures.slowest_resume = figures.slowest_resume.max(begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(10), "a dead holder was waited for");
        before.push(Found { id: place.id, place: (place.address(), place.hash), content: mine.content });
        live.shutdown().unwrap();
        assert!(store.verify(&thread).unwrap().is_intact());
    }
}

/// Stock SQLite finds nothing wrong, and the dead left nothing behind.
fn check_files(folder: &Path) {
    let database = rusqlite::Connection::open(folder.join("threadkeep.db")).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let orphans: bool = database.prepare("PRAGMA foreign_key_check").unwrap().exists([]).unwrap();
    assert!(!orphans, "a row points to nothing");
    let holders: Vec<_> = std::fs::read_dir(folder.join("holders")).unwrap().map(Result::unwrap).collect();
    assert!(holders.is_empty(), "the dead left {holders:?}");
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged_as_synced() {
    kill_loop("synced", 150);
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged_as_written() {
    kill_loop("written", 150);
}

#[test]
fn a_kill_loses_nothing_that_was_queued_and_flushed() {
    kill_loop("queued", 60);
}

/// Creates a store and says when it begins and when it has it.
fn play_creator() {
    say("begin");
    let store = open(Path::new(&setting("STORE")), "creator");
    say("opened");
    store.workspace(Path::new("/w")).unwrap().create_now(new_thread("t")).unwrap();
    say("created");
}

#[test]
fn a_kill_while_a_store_is_created_leaves_one_that_opens() {
    const KILLS: u64 = 120;
    let (begun, mut random, mut inside) = (Instant::now(), Random::new(), 0);
    let seed = random.0;
    let temp = tempfile::tempdir().unwrap();
    for round in 0..KILLS {
        let folder = temp.path().join(round.to_string());
        let child = Child::start("create", &folder, &[]);
        assert_eq!(child.hear().as_deref(), Some("begin"));
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        let (status, said) = child.kill();
        assert!(status.signal() == Some(9) || status.success(), "the child failed by itself: {status}");
        inside += u64::from(status.signal() == Some(9) && !said.iter().any(|line| line == "created"));
        let opened = Store::open(StoreOptions::folder(&folder));
        let store = opened.unwrap_or_else(|error| panic!("kill {round} left a store that does not open: {error:?}"));
        if said.iter().any(|line| line == "created") {
            store.get(&id("t")).unwrap();
        }
        store
            .workspace(Path::new("/w"))
            .unwrap()
            .create_now(new_thread("next"))
            .unwrap()
            .append(vec![text("on")])
            .unwrap();
        assert_eq!(read_texts(&store, &id("next")), ["on"]);
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
    }
    println!(
        "creation: {KILLS} kills ({inside} before it was done), 0 stores that do not open; seed {seed}, {:.1?}",
        begun.elapsed()
    );
    assert!(inside * 4 > KILLS, "only {inside} of {KILLS} kills fell into the creation");
}

// Many processes at once.

const PROCESSES: usize = 8;
const APPENDS: usize = 1_000;

/// Appends one item at a time to a thread of its own, and says when it is ready, and when it is done.
fn play_bulk() {
    let store = open(Path::new(&setting("STORE")), "bulk");
    let name = setting("THREAD");
    let live = store.workspace(Path::new("/bulk")).unwrap().create_now(new_thread(&name)).unwrap();
    let durability = if setting("DURABILITY") == "synced" { Durability::Synced } else { Durability::Written };
    say("ready");
    assert_eq!(commands().next().as_deref(), Some("go"));
    for number in 0..APPENDS {
        if let Err(error) = live.append_with(vec![text(format!("{name} {number}"))], at(durability)) {
            return say(format!("failed at {number}: {error}"));
        }
    }
    live.shutdown().unwrap();
    say("done");
}

#[test]
fn eight_processes_append_at_once_and_nothing_is_lost_or_busy() {
    let temp = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let start = |number: usize| {
        let durability = if number.is_multiple_of(2) { "written" } else { "synced" };
        let name = format!("bulk-{number}");
        Child::start("bulk", temp.path(), &[("THREAD", name.as_str()), ("DURABILITY", durability)])
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(start).collect();
    for child in &children {
        assert_eq!(child.hear().as_deref(), Some("ready"));
    }
    let writing = Instant::now();
    children.iter_mut().for_each(|child| child.tell("go"));
    for child in &children {
        assert_eq!(child.hear().as_deref(), Some("done"));
    }
    let writing = writing.elapsed();
    children.into_iter().for_each(Child::finish);

    let store = open(temp.path(), "parent");
    let mut ticks = BTreeSet::new();
    for number in 0..PROCESSES {
        let thread = id(&format!("bulk-{number}"));
        let items = read_path(&store, &thread);
        let texts: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(&item.content).into_owned()).collect();
        assert_eq!(texts, (0..APPENDS).map(|number| format!("{thread} {number}")).collect::<Vec<_>>());
        assert!(items.iter().all(|item| item.thread == thread && item.branch == items[0].branch), "threads are mixed");
        assert!(items.is_sorted_by(|a, b| a.tick < b.tick), "the ticks of {thread} do not rise");
        ticks.extend(items.iter().map(|item| item.tick));
    }
    assert_eq!(ticks.len(), PROCESSES * APPENDS, "two appends have the same tick");
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!((report.threads, report.intact), (PROCESSES as u64, PROCESSES as u64), "{:?}", report.invalid);
    println!(
        "{PROCESSES} processes × {APPENDS} appends (half Synced, half Written): all stored, 0 busy, in {writing:.1?}; {:.1?} in all",
        begun.elapsed()
    );
}

/// Opens each store that it is told, writes a thread into it, and says what it sees.
fn play_opener() {
    say("ready");
    for folder in commands() {
        let opened = Store::open(StoreOptions::folder(&folder)).and_then(|store| {
            let live = store.workspace(Path::new(&folder))?.create(NewThread::default())?;
            let place = live.append_with(vec![text("hello")], at(Durability::Written))?.items[0].address();
            let writer = store.item(live.id(), place)?.writer;
            Ok((store, writer))
        });
        match opened {
            Ok((store, writer)) => say(format!("{} {writer}", store.id())),
            Err(error) => say(format!("failed: {error}")),
        }
    }
}

#[test]
fn eight_processes_create_one_store_together_fifty_times() {
    const ROUNDS: usize = 50;
    let temp = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| Child::start("open", temp.path(), &[])).collect();
    for child in &children {
        assert_eq!(child.hear().as_deref(), Some("ready"));
    }
    for round in 0..ROUNDS {
        let folder = temp.path().join(format!("store-{round}"));
        let line = folder.to_str().unwrap();
        children.iter_mut().for_each(|child| child.tell(line));
        let answers: BTreeSet<String> = children.iter().map(|child| child.hear().unwrap()).collect();
        assert_eq!(answers.len(), 1, "round {round}: the processes see different stores or writers: {answers:?}");
        let store = open(&folder, "parent");
        let id = store.id().to_string();
        assert!(answers.iter().all(|answer| answer.starts_with(&id)), "round {round}: {answers:?}");
        let report = store.verify_all(|_| {}).unwrap();
        assert_eq!((report.threads, report.intact), (PROCESSES as u64, PROCESSES as u64));
        assert_eq!(store.workspaces().unwrap().len(), 1, "one folder became two workspaces");
        drop(store);
        let database = rusqlite::Connection::open(folder.join("threadkeep.db")).unwrap();
        let rows = |table: &str| -> i64 {
            database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
        };
        assert_eq!(
            (rows("writers"), rows("schema_migrations")),
            (1, rows("(SELECT DISTINCT number FROM schema_migrations)"))
        );
    }
    children.into_iter().for_each(Child::finish);
    println!(
        "{PROCESSES} processes × {ROUNDS} empty folders: 0 of {} opens failed, in {:.1?}",
        PROCESSES * ROUNDS,
        begun.elapsed()
    );
}

// Claims.

/// Does what it is told, one command and one answer at a time.
fn play_obedient() {
    if std::env::var("UMASK").is_ok() {
        rustix::process::umask(rustix::fs::Mode::empty());
    }
    let store = open(Path::new(&setting("STORE")), &setting("LABEL"));
    let mut live = None;
    say("ready");
    for command in commands() {
        let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
        match obey(&store, &mut live, verb, rest) {
            Ok(answer) => say(answer),
            Err(error) => say(format!("{}: {error}", error.kind())),
        }
    }
}

fn obey(store: &Store, live: &mut Option<LiveThread>, verb: &str, rest: &str) -> threadkeep::Result<String> {
    let current = || live.as_ref().expect("a thread is open");
    match verb {
        "create" => *live = Some(store.workspace(Path::new("/obey"))?.create_now(new_thread(rest))?),
        "resume" => *live = Some(store.resume(&id(rest), false)?),
        "append" => {
            return Ok(current().append(vec![text(rest)])?.items[0].depth.to_string());
        }
        "queue" => drop(current().append_with(vec![text(rest)], at(Durability::Queued))?),
        "read" => return Ok(read_texts(store, current().id()).join(" ")),
        "flush" => current().flush()?,
        "unsaved" => {
            let unsaved = current().take_unsaved().into_iter().map(|item| String::from_utf8(item.content).unwrap());
            return Ok(unsaved.collect::<Vec<_>>().join(" "));
        }
        "let-go" => *live = None,
        "shutdown" => current().shutdown()?,
        other => panic!("no such command: {other}"),
    }
    Ok("ok".to_owned())
}

fn obedient(folder: &Path, label: &str) -> Child {
    let child = Child::start("obey", folder, &[("LABEL", label)]);
    assert_eq!(child.hear().as_deref(), Some("ready"));
    child
}

#[test]
fn the_second_writer_is_told_who_holds_the_thread_and_writes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut first = obedient(temp.path(), "the-first-agent");
    assert_eq!(first.ask("create t"), "ok");
    assert_eq!(first.ask("append one"), "0");
    let store = open(temp.path(), "the-second-agent");
    let before = store.get(&id("t")).unwrap();
    assert!(before.live, "a thread with a living holder shows as live");

    let refused = store.resume(&id("t"), false).map(drop);
    let Err(Error::ClaimHeld { holder, thread }) = &refused else { panic!("{refused:?}") };
    assert_eq!(*thread, id("t"));
    assert_eq!((holder.pid, holder.label.as_str()), (first.pid(), "the-first-agent"));
    assert_eq!(holder.hostname, rustix::system::uname().nodename().to_string_lossy());
    let words = refused.as_ref().unwrap_err().to_string();
    for word in [&first.pid().to_string(), "the-first-agent", &holder.hostname] {
        assert!(words.contains(word), "`{words}` does not name {word}");
    }
    assert_eq!(obedient(temp.path(), "third").ask("resume t"), format!("claim-held: {words}"));
    assert_eq!(store.get(&id("t")).unwrap(), before, "the refused writers changed something");
    assert!(matches!(store.delete(&id("t")), Err(Error::ClaimHeld { .. })), "a live thread went into the trash");

    let (status, _) = first.kill();
    assert_eq!(status.signal(), Some(9));
    let begun = Instant::now();
    let live = store.resume(&id("t"), false).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "the dead holder was waited for");
    assert_eq!(live.append(vec![text("two")]).unwrap().items[0].depth, 1);
    assert_eq!(store.get(&id("t")).unwrap().epoch, before.epoch + 1);
    assert_eq!(read_texts(&store, &id("t")), ["one", "two"]);
}

#[test]
fn a_stopped_holder_is_not_stolen_from() {
    let temp = tempfile::tempdir().unwrap();
    let mut holder = obedient(temp.path(), "stopped");
    assert_eq!(holder.ask("create t"), "ok");
    assert_eq!(holder.ask("append one"), "0");
    // Not while it is still on its way out of the write gate: everybody would wait there.
    let gate = File::open(temp.path().join("write.gate")).unwrap();
    wait_until("the write gate is free", || gate.try_lock().is_ok());
    gate.unlock().unwrap();
    holder.signal(Signal::STOP);
    let store = open(temp.path(), "thief");
    for _ in 0..5 {
        assert!(
            matches!(store.resume(&id("t"), false), Err(Error::ClaimHeld { .. })),
            "a stopped holder lost its thread"
        );
    }
    holder.signal(Signal::CONT);
    assert_eq!(holder.ask("append two"), "1");
    assert_eq!(holder.ask("shutdown"), "ok");
    assert_eq!(read_texts(&store, &id("t")), ["one", "two"]);
    store.resume(&id("t"), false).unwrap();
}

#[test]
fn a_holder_that_was_fenced_off_writes_nothing_and_gives_its_items_back() {
    let temp = tempfile::tempdir().unwrap();
    let mut old = obedient(temp.path(), "old");
    assert_eq!(old.ask("create t"), "ok");
    assert_eq!(old.ask("append one"), "0");
    // What a take-over does: the epoch rises and the claim goes to another.
    let database = rusqlite::Connection::open(temp.path().join("threadkeep.db")).unwrap();
    database.execute_batch("BEGIN; UPDATE threads SET epoch = epoch + 1; DELETE FROM claims; COMMIT").unwrap();
    let mut new = obedient(temp.path(), "new");
    assert_eq!(new.ask("resume t"), "ok");
    assert_eq!(new.ask("append theirs"), "1");

    assert_eq!(old.ask("queue two"), "ok");
    // The refusal of the first may be known by now; the item is kept in either case.
    let second = old.ask("queue three");
    assert!(second == "ok" || second.starts_with("claim-lost"), "{second}");
    assert!(old.ask("flush").starts_with("claim-lost"), "a flush of a fenced-off handle succeeded");
    assert!(old.ask("append four").starts_with("claim-lost"), "a fenced-off handle wrote");
    assert_eq!(old.ask("unsaved"), "two three four");
    assert_eq!(old.ask("unsaved"), "");
    assert_eq!(old.ask("read"), "one theirs", "readers never need a claim");
    assert_eq!(old.ask("let-go"), "ok");
    old.finish();

    assert_eq!(new.ask("append mine"), "2", "the old holder's end took the new holder's claim away");
    let store = open(temp.path(), "third");
    let refused = store.resume(&id("t"), false).map(drop);
    assert!(matches!(&refused, Err(Error::ClaimHeld { holder, .. }) if holder.label == "new"), "{refused:?}");
    assert_eq!(read_texts(&store, &id("t")), ["one", "theirs", "mine"]);
    assert!(store.verify(&id("t")).unwrap().is_intact());
}

// Beside a living writer.

#[test]
fn a_reader_sees_what_was_acknowledged_while_another_process_writes() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path(), "reader");
    let workspace = store.workspace(temp.path()).unwrap();
    for lane in 0..LANES {
        workspace.create_now(new_thread(lane_id(lane).as_str())).unwrap();
    }
    let read_only = Store::open(StoreOptions::folder(temp.path()).read_only()).unwrap();
    for (durability, round) in [("written", 1), ("synced", 2)] {
        let child = Child::start("write", temp.path(), &[("ROUND", &round.to_string()), ("DURABILITY", durability)]);
        let mut acks = 0;
        while acks < 60 {
            let line = child.hear().unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] != "A" {
                continue;
            }
            acks += 1;
            let (lane, number) = (words[1].parse().unwrap(), words[2].parse().unwrap());
            let address = Address { branch: words[3].parse().unwrap(), depth: words[4].parse().unwrap() };
            for reader in [&store, &read_only] {
                let item = reader.item(&lane_id(lane), address).unwrap();
                assert_eq!((item.id, item.hash.to_string().as_str()), (item_id(round, lane, number), words[5]));
                let path = ItemQuery { from: address.depth, limit: 1, ..ItemQuery::default() };
                assert_eq!(reader.items(&lane_id(lane), path).unwrap().entries, [item]);
            }
        }
        assert!(store.get(&lane_id(0)).unwrap().live, "the writer was not writing");
        let (status, _) = child.kill();
        assert_eq!(status.signal(), Some(9), "the child ended by itself: {status}");
    }
}

#[test]
fn metadata_changes_beside_a_live_writer_disturb_neither() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = obedient(temp.path(), "writer");
    assert_eq!(writer.ask("create t"), "ok");
    let (store, thread) = (open(temp.path(), "other"), id("t"));
    let mut depth = 0;
    let mut goes_on = |after: &str| {
        assert_eq!(writer.ask(&format!("append {after}")), depth.to_string(), "after {after}");
        depth += 1;
    };
    goes_on("create");
    let epoch = store.get(&thread).unwrap().epoch;
    store.update(&thread, ThreadPatch::title("the title")).unwrap();
    goes_on("update");
    let archived = store.archive(&thread).unwrap();
    assert!(archived.archived_at.is_some());
    goes_on("archive");
    store.update(&thread, ThreadPatch { pinned: Some(true), ..ThreadPatch::default() }).unwrap();
    goes_on("pin");
    store.unarchive(&thread).unwrap();
    goes_on("unarchive");
    let end = store.get(&thread).unwrap();
    assert_eq!((end.details.title.as_deref(), end.pinned, end.archived_at), (Some("the title"), true, None));
    assert_eq!((end.epoch, end.live, end.items), (epoch, true, 5));
    assert_eq!(read_texts(&store, &thread), ["create", "update", "archive", "pin", "unarchive"]);
    assert!(store.verify(&thread).unwrap().is_intact());
}

// Files.

/// Everything under a folder by its path, with its permissions.
fn modes(folder: &Path) -> BTreeMap<PathBuf, (bool, u32)> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = open.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found
            .insert(path.strip_prefix(folder).unwrap().to_owned(), (meta.is_dir(), meta.permissions().mode() & 0o7777));
    }
    found
}

#[test]
fn only_the_owner_can_read_a_store_whatever_the_umask_is() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("made/by/the/store");
    let mut child = Child::start("obey", &folder, &[("LABEL", "umask"), ("UMASK", "0")]);
    assert_eq!(child.hear().as_deref(), Some("ready"));
    assert_eq!(child.ask("create t"), "ok");
    assert_eq!(child.ask("append one"), "0");
    assert_eq!(child.ask("read"), "one");
    let open = modes(&folder);
    for name in ["threadkeep.db", "threadkeep.db-wal", "threadkeep.db-shm", "holders"] {
        assert!(open.contains_key(Path::new(name)), "{name} is missing, so this proves nothing: {open:?}");
    }
    for path in ["made", "made/by", "made/by/the"] {
        let mode = std::fs::metadata(temp.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{path}");
    }
    for (path, (is_folder, mode)) in &open {
        assert_eq!(*mode, if *is_folder { 0o700 } else { 0o600 }, "{}", path.display());
    }
    assert_eq!(child.ask("shutdown"), "ok");
    child.finish();
    let names: Vec<_> = modes(&folder).into_keys().map(|path| path.display().to_string()).collect();
    assert_eq!(
        names,
        ["", "holders", "open.lock", "threadkeep.db", "write.gate", "write.line"],
        "a closed store leaves other files"
    );
}

#[test]
fn a_link_in_the_place_of_one_of_the_stores_files_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let real = temp.path().join("real");
    drop(open(&real, "maker"));
    for target in ["real/threadkeep.db", "absent.db"] {
        let folder = temp.path().join(format!("linked-{}", target.len()));
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(temp.path().join(target), folder.join("threadkeep.db")).unwrap();
        for options in [StoreOptions::folder(&folder), StoreOptions::folder(&folder).read_only()] {
            let refused = Store::open(options);
            assert!(matches!(refused, Err(Error::ForeignStore { .. })), "{target}: {refused:?}");
        }
        assert!(!temp.path().join("absent.db").exists(), "something was written through the link");
    }
    for name in ["write.gate", "write.line", "open.lock"] {
        let folder = temp.path().join(format!("store-with-linked-{name}"));
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(temp.path().join("victim"), folder.join(name)).unwrap();
        let refused = Store::open(StoreOptions::folder(&folder));
        assert!(matches!(refused, Err(Error::Io { .. })), "{name}: {refused:?}");
        assert!(!temp.path().join("victim").exists(), "something was written through the link {name}");
    }
    let outside = temp.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let folder = temp.path().join("store-with-linked-holders");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("holders")).unwrap();
    let store = open(&folder, "main");
    let refused = store.workspace(temp.path()).unwrap().create_now(NewThread::default());
    assert!(matches!(refused, Err(Error::Io { .. })), "holders: {refused:?}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was written through the link holders");
    // The way to the folder is the user's: links on it are followed.
    let way = temp.path().join("way");
    std::os::unix::fs::symlink(&real, &way).unwrap();
    open(&way, "guest").sync().unwrap();
}
