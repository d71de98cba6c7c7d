//! Followers of a store in a folder, beside other stores and other processes that write it.
#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use threadkeep::blocking::{Follower, LiveThread, Store};
use threadkeep::{
    Address, AppendOptions, Changed, Durability, FollowEnd, Item, ItemQuery, NewItem, NewThread, News, Role,
    StoreOptions, ThreadId, View,
};

/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(60);
const FOLDER: &str = "THREADKEEP_TEST_FOLDER";
const ITEMS: usize = 400;

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn reader(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder).read_only()).unwrap()
}

fn thread(store: &Store, name: &str) -> LiveThread {
    let id = Some(ThreadId::new(name).unwrap());
    store.workspace("/w".as_ref()).unwrap().create_now(NewThread { id, ..NewThread::default() }).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn text_of(item: &Item) -> String {
    serde_json::from_slice::<View>(&item.content).unwrap().to_text()
}

/// What comes next, which must be items.
fn hear(follower: &mut Follower) -> Vec<String> {
    match follower.next_within(HANG).unwrap() {
        Some(News::Items(items)) => items.iter().map(text_of).collect(),
        other => panic!("{other:?}"),
    }
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// Writes as another process; without a folder this is no test and passes.
#[test]
fn child_entry() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = open(Path::new(&folder));
    let live = store.resume(&ThreadId::new("t").unwrap(), false).unwrap();
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    for (number, text) in numbers(ITEMS).iter().enumerate() {
        live.append_with(vec![say(text)], if number % 2 == 0 { written } else { AppendOptions::default() }).unwrap();
    }
    live.shutdown().unwrap();
    store.delete(live.id()).unwrap();
}

#[test]
fn another_process_is_followed_to_its_end() {
    let temp = tempfile::tempdir().unwrap();
    thread(&open(temp.path()), "t").shutdown().unwrap();
    // One may write itself, the other may not: both hear of others.
    let stores = [open(temp.path()), reader(temp.path())];
    std::thread::scope(|scope| {
        let followers: Vec<_> = stores
            .iter()
            .map(|store| {
                let mut follower = store.follow(&ThreadId::new("t").unwrap(), None).unwrap();
                scope.spawn(move || {
                    let mut heard = Vec::new();
                    loop {
                        match follower.next_within(HANG).unwrap().unwrap() {
                            News::Items(items) => heard.extend(items.iter().map(text_of)),
                            News::Ended(FollowEnd::Trashed) => return heard,
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child_entry", "--nocapture"]).env(FOLDER, temp.path()).stdout(Stdio::null());
        assert!(child.status().unwrap().success());
        for follower in followers {
            assert_eq!(follower.join().unwrap(), numbers(ITEMS));
        }
    });
}

#[test]
fn another_store_of_the_folder_hears_of_each_item_soon() {
    let temp = tempfile::tempdir().unwrap();
    let (writer, other) = (open(temp.path()), reader(temp.path()));
    let live = thread(&writer, "t");
    let (mut near, mut far) = (writer.follow(live.id(), None).unwrap(), other.follow(live.id(), None).unwrap());
    let mut waits = [Vec::new(), Vec::new()];
    for number in 0..60_u64 {
        let followers = [near, far].map(|mut follower| {
            std::thread::spawn(move || {
                let heard = hear(&mut follower);
                (follower, heard, Instant::now())
            })
        });
        live.append(vec![say(&number.to_string())]).unwrap();
        let acknowledged = Instant::now();
        let [first, second] = followers.map(|follower| follower.join().unwrap());
        assert_eq!((&first.1, &second.1), (&vec![number.to_string()], &vec![number.to_string()]));
        waits[0].push(first.2.saturating_duration_since(acknowledged));
        waits[1].push(second.2.saturating_duration_since(acknowledged));
        (near, far) = (first.0, second.0);
        std::thread::sleep(Duration::from_millis(number % 7));
    }
    for (whose, waits) in ["the same store", "another store"].iter().zip(&mut waits) {
        waits.sort_unstable();
        println!("from the acknowledgement to the item of {whose}: p50 {:?}, p99 {:?}", waits[30], waits[58]);
    }
}

/// A reader that kept its transaction open would keep the log from being reset; a writer that waited would be seen here.
#[test]
fn a_waiting_follower_holds_nothing_open_and_gives_everything_back() {
    let temp = tempfile::tempdir().unwrap();
    let (writer, other) = (open(temp.path()), reader(temp.path()));
    let live = thread(&writer, "t");
    let mut follower = other.follow(live.id(), None).unwrap();
    for text in numbers(20) {
        live.append(vec![say(&text)]).unwrap();
        hear(&mut follower);
    }
    let database = rusqlite::Connection::open(temp.path().join("threadkeep.db")).unwrap();
    let busy: i64 = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0, "a reader is in the way");
    drop(follower);
    drop((live, other, database, writer));
    // Whoever closes the last connection tidies up the log.
    assert!(!temp.path().join("threadkeep.db-wal").exists(), "a connection is left");
}

#[test]
fn a_watch_of_a_folder_hears_of_other_processes() {
    let temp = tempfile::tempdir().unwrap();
    let (writer, other) = (open(temp.path()), reader(temp.path()));
    let live = thread(&writer, "t");
    let mut watch = other.watch().unwrap();
    // That it began to listen.
    assert_eq!(watch.next_within(HANG), Some(Changed::Anything));
    live.append(vec![say("x")]).unwrap();
    assert_eq!(watch.next_within(HANG), Some(Changed::Anything));
    drop(live);
}

/// What a follower tells, done one after the other, is the active path: whatever is written, in whatever steps it looks.
#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    After(usize),
    Rewind(usize),
    Clear,
    Look,
    LookOnce,
    Begin(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (1_usize..4).prop_map(Step::Append),
        1 => (250_usize..300).prop_map(Step::Append),
        4 => (0_usize..64).prop_map(Step::After),
        4 => (0_usize..64).prop_map(Step::Rewind),
        1 => Just(Step::Clear),
        3 => Just(Step::Look),
        3 => Just(Step::LookOnce),
        1 => (0_usize..64).prop_map(Step::Begin),
    ];
    prop::collection::vec(step, 1..40)
}

struct Told {
    follower: Follower,
    path: Vec<Address>,
}

impl Told {
    /// Looks once; says whether there was anything.
    fn look(&mut self) -> bool {
        match self.follower.next_within(Duration::ZERO).unwrap() {
            None => return false,
            Some(News::Items(items)) => {
                assert!(!items.is_empty());
                for item in items {
                    assert_eq!(item.depth as usize, self.path.len(), "a gap");
                    self.path.push(item.address());
                }
            }
            Some(News::Back { to }) => {
                let length = to.map_or(0, |to| to.depth as usize + 1);
                assert!(length < self.path.len() && to == length.checked_sub(1).map(|last| self.path[last]));
                self.path.truncate(length);
            }
            Some(other) => panic!("{other:?}"),
        }
        assert_eq!(self.follower.at(), self.path.last().copied());
        true
    }
}

fn path_to(store: &Store, thread: &ThreadId, at: Option<Address>) -> Vec<Address> {
    let mut query = ItemQuery { at, ..ItemQuery::default() };
    let mut path = Vec::new();
    loop {
        let page = store.items(thread, query.clone()).unwrap();
        path.extend(page.entries.iter().map(Item::address));
        match page.next_cursor {
            None => return path,
            cursor => query.cursor = cursor,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_adds_up_to_the_active_path(steps in steps()) {
        let store = Store::open(StoreOptions::memory()).unwrap();
        let parent = thread(&store, "parent");
        parent.append(vec![say("p0"), say("p1"), say("p2")]).unwrap();
        let fork = store.fork(parent.id(), None, NewThread::default()).unwrap();
        let live = store.resume(&fork.id, false).unwrap();
        let mut known = path_to(&store, &fork.id, None);
        let mut told = Told { follower: store.follow(&fork.id, None).unwrap(), path: Vec::new() };
        for step in steps {
            match step {
                Step::Append(count) => {
                    let appended = live.append((0..count).map(|number| say(&number.to_string())).collect()).unwrap();
                    known.extend(appended.items.iter().map(threadkeep::AppendedItem::address));
                }
                Step::After(at) => {
                    let options = AppendOptions { after: Some(known[at % known.len()]), ..AppendOptions::default() };
                    known.push(live.append_with(vec![say("branch")], options).unwrap().items[0].address());
                }
                Step::Rewind(to) => live.rewind(known[to % known.len()]).unwrap(),
                Step::Clear => drop(live.clear().unwrap()),
                Step::Look => while told.look() {},
                Step::LookOnce => drop(told.look()),
                Step::Begin(at) => {
                    let at = known[at % known.len()];
                    let path = path_to(&store, &fork.id, Some(at));
                    told = Told { follower: store.follow(&fork.id, Some(at)).unwrap(), path };
                }
            }
        }
        while told.look() {}
        let head = live.head().unwrap();
        let expected = head.map_or_else(Vec::new, |head| path_to(&store, &fork.id, Some(head)));
        prop_assert_eq!(told.path, expected);
    }
}

/// Followers come and go while others write: whoever waits is woken, and what listens is started and ended as often.
#[test]
fn followers_that_come_and_go_miss_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (writer, other) = (open(temp.path()), reader(temp.path()));
    let live = thread(&writer, "t");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut at, mut heard) = (None, BTreeSet::new());
                while heard.len() < ITEMS {
                    let mut follower = other.follow(live.id(), at).unwrap();
                    for text in hear(&mut follower) {
                        assert!(heard.insert(text), "told twice");
                    }
                    at = follower.at();
                }
            });
        }
        for text in numbers(ITEMS) {
            live.append(vec![say(&text)]).unwrap();
        }
    });
}
