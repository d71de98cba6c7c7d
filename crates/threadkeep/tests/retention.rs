//! Retention where clauses do not reach: clocks that leap, files that shrink, damage, and rollouts that a program keeps.
#![cfg(test)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Host, KeptThread, ListQuery, NewItem, NewThread, ProjectFacts, Protection, RetainOptions, RetentionReceipt,
    RetentionReport, RetentionRule, RetentionRules, Role, Shelves, StoreOptions, SystemHost, ThreadId, Timestamp,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
const START: i64 = 1_767_323_045_000;

/// A machine whose clock is told the time.
#[derive(Debug)]
struct Told(AtomicI64);

impl Told {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(START)))
    }

    fn set(&self, after_start: i64) {
        self.0.store(START + after_start, Ordering::SeqCst);
    }
}

impl Host for Told {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        SystemHost.fill_random(buffer);
    }

    fn machine(&self) -> String {
        "machine-1".to_owned()
    }

    fn hostname(&self) -> String {
        "host-1".to_owned()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        ProjectFacts { path: path.to_owned(), ..ProjectFacts::default() }
    }
}

fn at(folder: &Path, host: &Arc<Told>) -> Store {
    let host: Arc<dyn Host> = Arc::<Told>::clone(host);
    Store::open(StoreOptions::folder(folder.join("store")).host(host)).unwrap()
}

fn left(store: &Store, id: &str, text: &str) -> ThreadId {
    let live = begin(store, id, text);
    live.shutdown().unwrap();
    live.id().clone()
}

fn begin(store: &Store, id: &str, text: &str) -> LiveThread {
    let new = NewThread { id: Some(ThreadId::new(id).unwrap()), ..NewThread::default() };
    let live = store.workspace(Path::new("/w")).unwrap().create_now(new).unwrap();
    live.append(vec![NewItem::message(Role::User, text)]).unwrap();
    live
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

fn by(rules: &RetentionRules) -> RetainOptions {
    RetainOptions { rules: Some(rules.clone()), ..RetainOptions::default() }
}

fn a_month() -> RetentionRules {
    RetentionRules { max_age: Some(days(30)), trash_grace: Some(days(30)), ..RetentionRules::default() }
}

fn names(receipts: &[RetentionReceipt]) -> Vec<&str> {
    receipts.iter().map(|receipt| receipt.thread.as_str()).collect()
}

fn taken(report: &RetentionReport) -> (Vec<&str>, Vec<&str>) {
    (names(&report.trashed), names(&report.purged))
}

fn listed(store: &Store, shelves: Shelves) -> usize {
    store.list(ListQuery { shelves, limit: 1_000, ..ListQuery::default() }).unwrap().entries.len()
}

const NOTHING: (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());

/// A clock that leaps for a while makes everything look old: nothing is taken for its age, and nothing is purged, neither while it is
/// ahead, nor by what was written meanwhile, nor when it is back.
#[test]
fn a_clock_that_leaps_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let host = Told::new();
    let store = at(folder.path(), &host);
    left(&store, "a", "x");
    host.set(HOUR);
    left(&store, "b", "x");
    // Something is in the trash, which would be purged for good.
    let one = RetentionRules { max_count: Some(1), grace: Duration::ZERO, ..a_month() };
    host.set(2 * HOUR);
    assert_eq!(taken(&store.retain(by(&one)).unwrap()).0, ["a"]);
    left(&store, "c", "x");
    for ahead in [8 * DAY, 40 * DAY, 10 * YEAR, 100 * YEAR] {
        host.set(ahead);
        let report = store.retain(by(&a_month())).unwrap();
        assert_eq!((taken(&report), report.held_back.is_some()), (NOTHING, true), "{ahead}");
        // Another look at the same wrong time proves nothing.
        assert_eq!(taken(&store.retain(by(&a_month())).unwrap()), NOTHING);
    }
    host.set(10 * YEAR);
    left(&store, "d", "written meanwhile");
    assert_eq!(taken(&store.retain(by(&a_month())).unwrap()), NOTHING);
    for back in [2 * HOUR + 1_000, -DAY, -10 * YEAR, 3 * HOUR] {
        host.set(back);
        assert_eq!(taken(&store.retain(by(&a_month())).unwrap()), NOTHING, "{back}");
    }
    assert_eq!((listed(&store, Shelves::Both), listed(&store, Shelves::Trash)), (3, 1));
    // Order comes from ticks: the count takes what was active longest ago, whatever the clock said.
    let two =
        RetentionRules { max_count: Some(2), grace: Duration::ZERO, trash_grace: None, ..RetentionRules::default() };
    assert_eq!(taken(&store.retain(by(&two)).unwrap()).0, ["b"]);
}

/// A store that nobody used for long looks the same as one whose clock leaps. It is believed after a day of use, or of runs, or when the
/// caller says so.
#[test]
fn a_clock_is_believed_after_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let host = Told::new();
    let store = at(folder.path(), &host);
    left(&store, "a", "x");
    host.set(400 * DAY);
    let held_back = |options| store.retain(options).unwrap().held_back;
    assert!(held_back(by(&a_month())).is_some());
    let trusting = RetainOptions { trust_clock: true, dry_run: true, ..by(&a_month()) };
    assert_eq!(taken(&store.retain(trusting).unwrap()).0, ["a"]);
    left(&store, "b", "x");
    host.set(400 * DAY + 23 * HOUR);
    assert!(held_back(by(&a_month())).is_some());
    host.set(401 * DAY + HOUR);
    // A run that changes nothing sees the time all the same; a dry one leaves no trace.
    let report = store.retain(by(&a_month())).unwrap();
    assert_eq!((taken(&report).0, report.held_back), (vec!["a"], None));
    let report = store.retain(RetainOptions { trust_clock: true, ..by(&a_month()) }).unwrap();
    assert_eq!(taken(&report), NOTHING, "a month in the trash first");
    // Nobody writes any more, and the runs follow each other.
    let mut purged = Vec::new();
    for day in 402..440 {
        host.set(day * DAY);
        let report = store.retain(by(&a_month())).unwrap();
        assert_eq!(report.held_back, None, "{day}");
        purged.extend(names(&report.purged).into_iter().map(|name| format!("{name} {day}")));
    }
    assert_eq!(purged, ["a 432"]);
}

/// Threads of long ago vanish by nothing but rules that somebody asked for.
#[test]
fn nothing_vanishes_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let host = Told::new();
    let store = at(folder.path(), &host);
    let ids: Vec<ThreadId> = (0..50).map(|number| left(&store, &format!("t-{number:02}"), "x")).collect();
    drop(store);
    for restart in 1..=3 {
        host.set(400 * DAY * restart);
        let store = at(folder.path(), &host);
        store.stats().unwrap();
        store.compact().unwrap();
        assert_eq!(taken(&store.retain(RetainOptions::default()).unwrap()), NOTHING);
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
        assert_eq!(listed(&store, Shelves::Both), ids.len());
        left(&store, "t-00-again", "x");
        store.delete(&ThreadId::new("t-00-again").unwrap()).unwrap();
        store.purge(&ThreadId::new("t-00-again").unwrap()).unwrap();
    }
}

/// What was purged gives its room back to the disk, in steps between which others write.
#[test]
fn a_purge_gives_the_room_back() {
    let folder = tempfile::tempdir().unwrap();
    let host = Told::new();
    let store = at(folder.path(), &host);
    let mut noise = vec![0; 256 << 10];
    for number in 0..24 {
        SystemHost.fill_random(&mut noise);
        let text: String = noise.iter().map(|byte| char::from(b'0' + byte % 64)).collect();
        left(&store, &format!("t-{number:02}"), &text);
        host.set(number);
    }
    let size = || {
        let connection = Connection::open(folder.path().join("store/threadkeep.db")).unwrap();
        connection.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let full = size();
    let rules = RetentionRules { max_count: Some(4), trash_grace: Some(Duration::ZERO), ..a_month() };
    host.set(2 * HOUR);
    assert_eq!(taken(&store.retain(by(&rules)).unwrap()).0.len(), 20);
    let report = store.retain(by(&rules)).unwrap();
    assert_eq!(report.purged.len(), 20);
    assert!(report.freed_bytes > 3 << 20, "{}", report.freed_bytes);
    assert!(size() < full / 3, "{full} pages became {}", size());
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
}

/// A thread that can't be read stays and says why; the others go.
#[test]
fn damage_keeps_the_thread_that_it_is_in() {
    let folder = tempfile::tempdir().unwrap();
    let host = Told::new();
    let store = at(folder.path(), &host);
    for id in ["a", "b", "c"] {
        left(&store, id, "x");
    }
    let connection = Connection::open(folder.path().join("store/threadkeep.db")).unwrap();
    connection.execute("UPDATE threads SET token_usage = 'no JSON' WHERE id = 'b'", []).unwrap();
    host.set(2 * HOUR);
    let rules = RetentionRules { max_age: Some(Duration::from_secs(60)), ..RetentionRules::default() };
    let report = store.retain(by(&rules)).unwrap();
    assert_eq!(taken(&report).0, ["a", "c"]);
    let [KeptThread { thread, rule: RetentionRule::Age, why: Protection::Damaged, detail: Some(detail), .. }] =
        report.kept.as_slice()
    else {
        panic!("{:?}", report.kept)
    };
    assert!(thread.as_str() == "b" && detail.contains("thread b"), "{detail}");
}

/// Where a program keeps rollouts, what should be purged stays until it can be taken out of them too.
#[test]
fn what_is_mirrored_waits_for_the_mirror() {
    let folder = tempfile::tempdir().unwrap();
    let host = Told::new();
    let store = at(folder.path(), &host);
    left(&store, "a", "x");
    left(&store, "b", "x");
    let rollouts = folder.path().join("store/rollouts");
    store.mirror_rollouts(Some(&rollouts), None, |_| {}).unwrap();
    host.set(2 * HOUR);
    let rules = RetentionRules { max_count: Some(1), trash_grace: Some(Duration::ZERO), ..RetentionRules::default() };
    assert_eq!(taken(&store.retain(by(&rules)).unwrap()).0, ["a"]);
    let lock = std::fs::OpenOptions::new().write(true).open(rollouts.join(".lock")).unwrap();
    lock.lock().unwrap();
    let report = store.retain(by(&rules)).unwrap();
    assert_eq!(taken(&report), NOTHING);
    assert_eq!(report.kept.first().map(|kept| &kept.why), Some(&Protection::Mirrored));
    drop(lock);
    assert_eq!(taken(&store.retain(by(&rules)).unwrap()).1, ["a"]);
    let rest = walk(&rollouts);
    assert!(
        rest.iter().any(|file| file.contains("b.jsonl")) && !rest.iter().any(|file| file.contains("a.jsonl")),
        "{rest:?}"
    );
}

fn walk(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push(path.file_name().unwrap().to_str().unwrap().to_owned()),
        }
    }
    found
}

/// A task of a runtime with several threads can run it.
#[test]
fn a_run_can_go_from_thread_to_thread() {
    fn is_send(run: impl Future<Output = threadkeep::Result<RetentionReport>> + Send) {
        drop(run);
    }
    let store = pollster::block_on(threadkeep::Store::open(StoreOptions::memory())).unwrap();
    is_send(store.retain(RetainOptions::default()));
    is_send(store.retain_with(RetainOptions::default(), |_, _| {}));
}
