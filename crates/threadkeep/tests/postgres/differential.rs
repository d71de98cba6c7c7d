//! The same calls on both engines: every byte that comes back is the same.
//!
//! Both stores get a clock and a randomness of their own that give the same, so that ids, salts and hashes are the same too.
//! `THREADKEEP_DIFFERENTIAL` says how many operations are tried, `THREADKEEP_SEED` which.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Address, AppendOptions, Durability, Error, Expect, Host, ItemId, ItemQuery, Kind, ListQuery, NewItem, NewThread,
    ProjectFacts, Role, Shelves, SortKey, Status, StoreOptions, Thread, ThreadId, ThreadPatch, Timestamp, TurnEnd,
    TurnQuery, Uuid,
};

use crate::server::server;

const OPERATIONS: usize = 300;

/// Numbers that look random and are the same every time.
#[derive(Debug, Clone)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}

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
}

impl Side {
    fn new(options: StoreOptions, seed: u64) -> Self {
        let host = Arc::new(Told { now: AtomicI64::new(1_700_000_000_000), random: Mutex::new(Numbers(seed)) });
        let store = Store::open(options.host(Arc::clone(&host) as Arc<dyn Host>)).unwrap();
        let home = store.workspace("/project".as_ref()).unwrap();
        Self { host, store, home, threads: vec![], live: vec![], addresses: vec![], ids: vec![] }
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
                let title = text(numbers);
                Self::thread(self.store.update(&id, ThreadPatch::title(title)))
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

    /// Everything that can be read.
    fn everything(&self) -> String {
        let mut all = said(self.store.workspaces()) + &show(self.store.id());
        let mut stats = self.store.stats().unwrap();
        stats.file_bytes = 0;
        all += &show(stats);
        for id in &self.threads {
            all += &Self::thread(self.store.get(id));
            all += &said(self.store.tree(id));
            all += &said(self.store.turns(id, TurnQuery::default()));
            for newest_first in [false, true] {
                let mut query = ItemQuery { newest_first, limit: 7, ..ItemQuery::default() };
                while let Ok(page) = self.store.items(id, query.clone()) {
                    page.entries.iter().for_each(|item| all += &show(item));
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

/// What engines are known to change or to refuse.
fn payload(numbers: &mut Numbers) -> Vec<u8> {
    let odd: [&[u8]; 14] = [
        b"",
        b"\0",
        b"a\0b",
        br#"{"x":"\u0000"}"#,
        br#"{"x":"\ud83d"}"#,
        b"\xff\xfe\xc3\x28",
        b"\xed\xa0\x80",
        b"1e400 -0 9223372036854775808 0.1 NaN",
        br#"{"b":1,"a":1,"a":2, "c" : 1.0}"#,
        b"\\x00 \\000 \\\\",
        b"line\r\nline\rline\n",
        "e\u{301} \u{e9}".as_bytes(),
        b"\xef\xbb\xbf{}",
        b"'\"`$1?1;--/*",
    ];
    match numbers.below(20) {
        0 => {
            let length = 900_000 + numbers.below(200_000);
            numbers.bytes(length)
        }
        1 => vec![b'x'; 1_000_000],
        2..6 => {
            let length = numbers.below(5_000);
            numbers.bytes(length)
        }
        6 => odd.concat().repeat(1 + numbers.below(400)),
        _ => odd[numbers.below(odd.len())].to_vec(),
    }
}

#[test]
fn both_engines_give_the_same_bytes() {
    let Some(server) = server() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let operations = number("THREADKEEP_DIFFERENTIAL").map_or(OPERATIONS, |number| usize::try_from(number).unwrap());
    let seed = number("THREADKEEP_SEED").unwrap_or(1);
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
        if operation % 100 == 99 || operation + 1 == operations {
            let (left, right) = (here.everything(), there.everything());
            let differs = left.lines().zip(right.lines()).find(|(left, right)| left != right);
            assert!(
                left == right,
                "after operation {operation} of seed {seed}: {:?}",
                differs.map(|(l, r)| (cut(l), cut(r)))
            );
        }
    }
    assert!(stored > operations / 3 && refused > 0, "{stored} items stored, {refused} operations refused");
}

fn cut(text: &str) -> String {
    text.chars().take(2_000).collect()
}
