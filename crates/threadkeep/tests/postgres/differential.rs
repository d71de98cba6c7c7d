//! The same calls on both engines: every byte that comes back is the same.
//!
//! Both stores get a clock and a randomness of their own that give the same, so that ids, salts and hashes are the same too.
//! `THREADKEEP_DIFFERENTIAL` says how many operations and how many payloads are tried, `THREADKEEP_SEED` which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Address, AppendOptions, Change, Durability, Error, Expect, Hash, Host, ItemId, ItemQuery, Kind, ListQuery, NewItem,
    NewThread, ProjectFacts, Role, Shelves, SortKey, Status, StoreOptions, Thread, ThreadId, ThreadPatch, Timestamp,
    TurnEnd, TurnQuery, Uuid,
};

use crate::payloads::{Numbers, amount, json, payload};
use crate::server::server;

/// How many operations CI has time for, and how many payloads.
const OPERATIONS: usize = 400;
const PAYLOADS: usize = 800;
/// After how many operations the threads that they touched are compared, and after how many of those all threads.
const COMPARED: usize = 100;
const ALL_COMPARED: usize = 2_000;

/// A machine on which everything is told beforehand.
#[derive(Debug)]
struct Told {
    now: AtomicI64,
    random: Mutex<Numbers>,
}

impl Host for Told {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        let bytes = self.random.lock().unwrap().bytes(buffer.len());
        buffer.copy_from_slice(&bytes);
    }

    fn machine(&self) -> String {
        "machine".to_owned()
    }

    fn hostname(&self) -> String {
        "host".to_owned()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        ProjectFacts { path: path.to_owned(), ..ProjectFacts::default() }
    }
}

/// One of the two stores, with what a user of it holds.
struct Side {
    host: Arc<Told>,
    store: Store,
    home: Workspace,
    threads: Vec<ThreadId>,
    live: Vec<Option<LiveThread>>,
    addresses: Vec<Address>,
    ids: Vec<ItemId>,
    /// What was changed since it was last compared.
    touched: BTreeSet<usize>,
}

impl Side {
    fn new(options: StoreOptions, seed: u64) -> Self {
        let host = Arc::new(Told { now: AtomicI64::new(1_700_000_000_000), random: Mutex::new(Numbers(seed)) });
        let store = Store::open(options.host(Arc::clone(&host) as Arc<dyn Host>)).unwrap();
        let home = store.workspace("/project".as_ref()).unwrap();
        Self {
            host,
            store,
            home,
            threads: vec![],
            live: vec![],
            addresses: vec![],
            ids: vec![],
            touched: BTreeSet::new(),
        }
    }

    /// Does one operation and says what came of it.
    fn step(&mut self, numbers: &mut Numbers) -> String {
        self.host.now.fetch_add(i64::try_from(numbers.below(3)).unwrap() * 7, Ordering::SeqCst);
        let choice = numbers.below(100);
        if self.threads.is_empty() || choice < 6 {
            return self.create(numbers);
        }
        let index = numbers.below(self.threads.len());
        let id = self.threads[index].clone();
        self.touched.insert(index);
        match choice {
            6..50 => self.append(index, numbers),
            50..54 => self.under_claim(index, |live| said(live.begin_turn(item(&mut numbers.clone())))),
            54..57 => self.under_claim(index, |live| said(live.end_turn(TurnEnd::completed()))),
            57..61 => match self.address(numbers) {
                Some(to) => self.under_claim(index, |live| said(live.rewind(to))),
                None => String::new(),
            },
            61..62 => self.under_claim(index, |live| said(live.clear())),
            62..66 => self.fork(&id, numbers),
            66..72 => {
                let mut patch = ThreadPatch::title(text(numbers));
                patch.extra = extra(numbers).into_iter().map(|(key, value)| (key, Change::Set(value))).collect();
                Self::thread(self.store.update(&id, patch))
            }
            72..74 => Self::thread(self.store.archive(&id)),
            74..76 => Self::thread(self.store.unarchive(&id)),
            76..79 => self.close(index),
            79..81 => {
                let closed = self.close(index);
                closed + &Self::thread(self.store.delete(&id))
            }
            81..82 => Self::thread(self.store.restore(&id)),
            82..84 => {
                let closed = self.close(index);
                closed + &said(self.store.purge(&id))
            }
            84..85 => Self::thread(self.store.end(&id, Status::Completed, &text(numbers))),
            85..88 => said(self.store.find(&id.as_str()[..numbers.below(id.as_str().len()) + 1])),
            88..91 => self.list(numbers),
            91..94 => said(self.store.turns(&id, TurnQuery::default())),
            94..97 => said(self.store.tree(&id)),
            _ => said(self.store.verify(&id)),
        }
    }

    fn create(&mut self, numbers: &mut Numbers) -> String {
        let mut new = NewThread::default();
        if numbers.below(3) == 0 {
            new.id = ThreadId::new(format!("t.{}", numbers.below(20))).ok();
        }
        new.details.title = (numbers.below(2) == 0).then(|| text(numbers));
        new.details.agent = (numbers.below(2) == 0).then(|| "agent".to_owned());
        match self.home.create_now(new) {
            Ok(live) => {
                self.touched.insert(self.threads.len());
                self.threads.push(live.id().clone());
                let said = live.id().to_string();
                self.live.push(Some(live));
                said
            }
            Err(error) => said::<()>(Err(error)),
        }
    }

    fn append(&mut self, index: usize, numbers: &mut Numbers) -> String {
        let mut items: Vec<NewItem> = (0..=numbers.below(3)).map(|_| item(numbers)).collect();
        if numbers.below(8) == 0 && !self.ids.is_empty() {
            // An id that is taken, now and then.
            let taken = self.ids[numbers.below(self.ids.len())];
            items[0].id = Some(taken);
        }
        let after = if numbers.below(6) == 0 { self.address(numbers) } else { None };
        let expect = if numbers.below(10) == 0 { Expect::Head(self.address(numbers)) } else { Expect::Any };
        let durability = [Durability::Synced, Durability::Written][numbers.below(2)];
        let options = AppendOptions { durability, expect, after };
        let mut stored = Vec::new();
        let said = self.under_claim(index, |live| {
            let outcome = live.append_with(items.clone(), options);
            stored = outcome.as_ref().map(|appended| appended.items.clone()).unwrap_or_default();
            said(outcome)
        });
        self.addresses.extend(stored.iter().map(threadkeep::AppendedItem::address));
        self.ids.extend(stored.iter().map(|item| item.id));
        said
    }

    fn fork(&mut self, id: &ThreadId, numbers: &mut Numbers) -> String {
        let at = if numbers.below(2) == 0 { self.address(numbers) } else { None };
        let outcome = self.store.fork(id, at, NewThread::default());
        if let Ok(fork) = &outcome {
            self.touched.insert(self.threads.len());
            self.threads.push(fork.id.clone());
            self.live.push(None);
        }
        Self::thread(outcome)
    }

    fn list(&self, numbers: &mut Numbers) -> String {
        let sort = [SortKey::Activity, SortKey::Updated, SortKey::Created][numbers.below(3)];
        let shelves = [Shelves::Active, Shelves::Both, Shelves::Trash][numbers.below(3)];
        let ascending = numbers.below(2) == 0;
        let text = (numbers.below(3) == 0).then(|| "é".to_owned());
        let limit = 1 + numbers.below(7);
        let mut query = ListQuery { sort, shelves, ascending, text, limit, ..ListQuery::default() };
        let mut said = String::new();
        loop {
            match self.store.list(query.clone()) {
                Ok(page) => {
                    page.entries.into_iter().for_each(|thread| said += &Self::thread(Ok(thread)));
                    let _ = write!(said, "{:?}", page.next_cursor);
                    query.cursor = page.next_cursor;
                }
                Err(error) => return said + &told(&error),
            }
            if query.cursor.is_none() {
                return said;
            }
        }
    }

    fn address(&self, numbers: &mut Numbers) -> Option<Address> {
        (!self.addresses.is_empty()).then(|| self.addresses[numbers.below(self.addresses.len())])
    }

    /// Runs something on the live handle of a thread, resumed when it was closed.
    fn under_claim(&mut self, index: usize, run: impl FnOnce(&LiveThread) -> String) -> String {
        if self.live[index].is_none() {
            match self.store.resume(&self.threads[index], false) {
                Ok(live) => self.live[index] = Some(live),
                Err(error) => return told(&error),
            }
        }
        run(self.live[index].as_ref().unwrap())
    }

    fn close(&mut self, index: usize) -> String {
        self.live[index].take().map_or_else(String::new, |live| said(live.shutdown()))
    }

    /// A thread without what is the engine's own: the clock that claims are judged by.
    fn thread(outcome: Result<Thread, Error>) -> String {
        said(outcome.map(|mut thread| {
            if let Some(holder) = &mut thread.holder {
                (holder.acquired_at, holder.heartbeat_at) = (Timestamp(0), Timestamp(0));
            }
            thread
        }))
    }

    /// Everything that can be read of the threads that were touched, or of all.
    fn everything(&mut self, all: bool) -> String {
        let touched = std::mem::take(&mut self.touched);
        let threads = self.threads.iter().enumerate().filter(|(index, _)| all || touched.contains(index));
        let threads: Vec<ThreadId> = threads.map(|(_, id)| id.clone()).collect();
        let mut all = said(self.store.workspaces()) + &show(self.store.id());
        let mut stats = self.store.stats().unwrap();
        stats.file_bytes = 0;
        all += &show(stats);
        for id in &threads {
            all += &Self::thread(self.store.get(id));
            all += &said(self.store.tree(id));
            all += &said(self.store.turns(id, TurnQuery::default()));
            for newest_first in [false, true] {
                let mut query = ItemQuery { newest_first, limit: 7, ..ItemQuery::default() };
                while let Ok(page) = self.store.items(id, query.clone()) {
                    page.entries.into_iter().for_each(|item| all += &show_item(item));
                    query.cursor = page.next_cursor;
                    if query.cursor.is_none() {
                        break;
                    }
                }
            }
            all += &said(self.store.verify(id));
        }
        all
    }
}

fn show(value: impl std::fmt::Debug) -> String {
    format!("{value:?}\n")
}

/// An item, with the hash of its content in the place of its bytes.
fn show_item(mut item: threadkeep::Item) -> String {
    let content = std::mem::take(&mut item.content);
    show((item, content.len(), Hash::of(&content)))
}

fn said<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    match outcome {
        Ok(value) => show(value),
        Err(error) => format!("refused: {}\n", told(&error)),
    }
}

/// An error without the engine's own words, and without the clock that claims are judged by.
fn told(error: &Error) -> String {
    match error {
        Error::ClaimHeld { thread, holder } => format!("claim held: {thread} {}", holder.label),
        Error::AlreadyExists { what, id } => format!("already exists: {what} {id}"),
        other => format!("{}: {other}", other.kind()),
    }
}

fn text(numbers: &mut Numbers) -> String {
    let words =
        ["plain", "é", "日本語", "a\tb", "\u{1f600}", "'; DROP TABLE items; --", "\\", "%_", "", "\u{feff}x", "?1 $1"];
    (0..=numbers.below(3)).map(|_| words[numbers.below(words.len())]).collect::<Vec<_>>().join(" ")
}

/// Metadata of any shape, now and then a lot of it.
fn extra(numbers: &mut Numbers) -> BTreeMap<String, serde_json::Value> {
    let count = if numbers.below(20) == 0 { 2_000 } else { numbers.below(3) };
    (0..count)
        .map(|index| {
            let value = serde_json::from_str(&json(numbers, 3)).unwrap_or_else(|_| text(numbers).into());
            (format!("{index} {}", text(numbers)), value)
        })
        .collect()
}

fn item(numbers: &mut Numbers) -> NewItem {
    let content = payload(numbers);
    let kind = [Kind::Message, Kind::Event, Kind::ToolCall, Kind::Compaction, Kind::from_word("new kind")]
        [numbers.below(5)]
    .clone();
    let mut item = NewItem::raw(kind, ["test", "codex", "é"][numbers.below(3)], content);
    item.role = [None, Some(Role::User), Some(Role::from_word("new role"))][numbers.below(3)].clone();
    item.id = (numbers.below(2) == 0)
        .then(|| ItemId::from_uuid(Uuid::from_u128(u128::from(numbers.next()) << 64 | u128::from(numbers.next()))));
    item.source_id = (numbers.below(4) == 0).then(|| text(numbers)).filter(|id| !id.is_empty());
    item.created_at =
        [None, Some(Timestamp(i64::MIN)), Some(Timestamp(i64::MAX)), Some(Timestamp(-1))][numbers.below(4)];
    item
}

#[test]
fn both_engines_give_the_same_bytes() {
    let Some(server) = server() else { return };
    let (operations, seed) = amount(OPERATIONS);
    let mut here = Side::new(StoreOptions::memory(), seed);
    let mut there = Side::new(StoreOptions::postgres(&server.address()).unwrap(), seed);
    let mut numbers = Numbers(seed ^ 0x5eed);
    let (mut refused, mut stored) = (0, 0);
    for operation in 0..operations {
        let mut same = numbers.clone();
        let (left, right) = (here.step(&mut numbers), there.step(&mut same));
        assert!(
            left == right,
            "operation {operation} of seed {seed}:\nSQLite     {}\nPostgreSQL {}",
            cut(&left),
            cut(&right)
        );
        refused += usize::from(left.contains("refused: "));
        stored = here.ids.len();
        let is_last = operation + 1 == operations;
        if operation % COMPARED == COMPARED - 1 || is_last {
            let all = operation % ALL_COMPARED == ALL_COMPARED - 1 || is_last;
            let (left, right) = (here.everything(all), there.everything(all));
            let differs = left.lines().zip(right.lines()).find(|(left, right)| left != right);
            assert!(
                left == right,
                "after operation {operation} of seed {seed}: {:?}",
                differs.map(|(l, r)| (cut(l), cut(r)))
            );
        }
    }
    assert!(stored > operations / 3 && refused > 0, "{stored} items stored, {refused} operations refused");
    eprintln!(
        "seed {seed}: {operations} operations, {stored} items, {} threads, {refused} refused",
        here.threads.len()
    );
}

#[test]
fn both_engines_keep_every_payload() {
    let Some(server) = server() else { return };
    let (payloads, seed) = amount(PAYLOADS);
    let sides =
        [StoreOptions::memory(), StoreOptions::postgres(&server.address()).unwrap()].map(|it| Side::new(it, seed));
    let [here, there] = sides.map(|side| (side.home.create_now(NewThread::default()).unwrap(), side));
    let mut numbers = Numbers(seed ^ 0xda7a);
    let (mut given, mut bytes) = (Vec::new(), 0);
    while given.len() < payloads {
        let items: Vec<NewItem> = (0..20.min(payloads - given.len())).map(|_| item(&mut numbers)).collect();
        bytes += items.iter().map(|item| item.content.len()).sum::<usize>();
        given.extend(items.iter().map(|item| Hash::of(&item.content)));
        let options = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
        let appended = [&here, &there].map(|(live, _)| show(live.append_with(items.clone(), options).unwrap()));
        assert!(appended[0] == appended[1], "payloads up to {} of seed {seed}", given.len());
    }
    for (live, side) in [&here, &there] {
        let mut query = ItemQuery { limit: 50, ..ItemQuery::default() };
        let mut at = 0;
        loop {
            let page = side.store.items(live.id(), query.clone()).unwrap();
            for item in page.entries {
                assert_eq!(Hash::of(&item.content), given[at], "payload {at} of seed {seed}");
                at += 1;
            }
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        assert_eq!(at, payloads);
        assert!(side.store.verify(live.id()).unwrap().is_intact());
    }
    eprintln!("seed {seed}: {payloads} payloads, {bytes} bytes");
}

fn cut(text: &str) -> String {
    text.chars().take(2_000).collect()
}
