//! Histories of chance, and everything that a reader can see of what came of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use threadkeep::blocking::Store;
use threadkeep::{
    AppendOptions, Host, Item, ItemQuery, Kind, ListQuery, NewItem, NewThread, ProjectFacts, Role, Shelves, SortKey,
    StoreOptions, SystemHost, Thread, ThreadId, ThreadPatch, Timestamp, TurnEnd, TurnQuery,
};

pub(crate) fn memory() -> Store {
    Store::open(StoreOptions::memory()).unwrap()
}

/// A machine whose clock never shows the same time twice, so that a change can be told from none by its time.
#[derive(Debug, Default)]
pub(crate) struct Ticking(AtomicI64);

impl Host for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        SystemHost.fill_random(buffer);
    }

    fn machine(&self) -> String {
        SystemHost.machine()
    }

    fn hostname(&self) -> String {
        SystemHost.hostname()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        SystemHost.project(path)
    }
}

pub(crate) fn ticking() -> Store {
    Store::open(StoreOptions::memory().host(Arc::new(Ticking::default()))).unwrap()
}

pub(crate) fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

pub(crate) fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

pub(crate) fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

pub(crate) fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// All threads: those that are not in the trash, and those that are, each in the order of their last change.
pub(crate) fn threads(store: &Store) -> Vec<Thread> {
    [Shelves::Both, Shelves::Trash].into_iter().flat_map(|shelves| listed(store, shelves)).collect()
}

pub(crate) fn listed(store: &Store, shelves: Shelves) -> Vec<Thread> {
    let query = ListQuery { limit: 1_000, shelves, sort: SortKey::Updated, ..ListQuery::default() };
    store.list(query).unwrap().entries
}

pub(crate) fn items_to(store: &Store, thread: &ThreadId, query: &ItemQuery) -> Vec<Item> {
    store.items(thread, ItemQuery { limit: 2_000, ..query.clone() }).unwrap().entries
}

/// Everything that a reader can see of a thread, but what belongs to the store that it is in.
pub(crate) fn seen(store: &Store, thread: Thread) -> impl PartialEq + std::fmt::Debug + use<> {
    let tree = store.tree(&thread.id).unwrap();
    let mut paths: Vec<_> = tree
        .branches
        .iter()
        .map(|branch| {
            let at = Some(threadkeep::Address { branch: branch.id, depth: branch.tip });
            (branch.clone(), items_to(store, &thread.id, &ItemQuery { at, ..ItemQuery::default() }))
        })
        .collect();
    paths.sort_by_key(|(branch, _)| branch.id);
    let turns = store.turns(&thread.id, TurnQuery { limit: 1_000, ..TurnQuery::default() }).unwrap().entries;
    let thread = Thread { epoch: 0, tick: 0, updated: 0, activity: 0, holder: None, live: false, ..thread };
    (thread, tree.head, paths, turns)
}

pub(crate) fn assert_same(from: &Store, to: &Store, why: &str) {
    let (left, right) = (threads(from), threads(to));
    let ids = |threads: &[Thread]| threads.iter().map(|thread| thread.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&left), ids(&right), "{why}: the threads, or their order");
    for (left, right) in left.into_iter().zip(right) {
        assert_eq!(seen(from, left), seen(to, right), "{why}");
    }
    let (left, right) = (from.verify_all(|_| {}).unwrap(), to.verify_all(|_| {}).unwrap());
    assert!(right.invalid.is_empty(), "{why}: {:?}", right.invalid);
    assert_eq!((left.threads, left.items), (right.threads, right.items), "{why}: stubs, or items");
}

/// A history of chance.
pub(crate) struct History {
    pub(crate) store: Store,
    state: u64,
    pub(crate) count: usize,
}

impl History {
    pub(crate) fn new(store: Store, seed: u64) -> Self {
        Self { store, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, count: 0 }
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % bound.max(1)
    }

    fn any(&mut self, only_active: bool) -> Option<ThreadId> {
        let found = if only_active { listed(&self.store, Shelves::Active) } else { threads(&self.store) };
        let mut found: Vec<ThreadId> = found.into_iter().map(|thread| thread.id).collect();
        found.sort_unstable();
        let chosen = self.below(found.len());
        (!found.is_empty()).then(|| found.swap_remove(chosen))
    }

    fn content(&mut self) -> NewItem {
        self.count += 1;
        let size = [3, 40, 900, 70_000][self.below(12).saturating_sub(8)];
        let text = format!("{} {}", self.count, "x".repeat(size));
        match self.below(9) {
            0 => NewItem::raw(Kind::Compaction, "text", text.into_bytes()),
            1 => NewItem { source_id: Some(format!("s-{}", self.count)), ..say(&text) },
            2 => NewItem::raw(Kind::Unknown("hologram".into()), "text", [text.as_bytes(), b"\0\xff"].concat()),
            _ => say(&text),
        }
    }

    pub(crate) fn step(&mut self) {
        let chance = self.below(20);
        if chance < 3 {
            self.count += 1;
            let folder = ["/w/one", "/w/two"][self.below(2)];
            let thread = named(&format!("t{}", self.count));
            drop(self.store.workspace(Path::new(folder)).unwrap().create_now(thread).unwrap());
            return;
        }
        let Some(thread) = self.any(chance < 17) else { return };
        match chance {
            3..=8 => self.write(&thread),
            9..=10 => self.branch(&thread),
            11..=12 => {
                self.count += 1;
                let depth = self.store.get(&thread).unwrap().head.map_or(0, |head| head.depth);
                let depth = u32::try_from(self.below(depth as usize + 1)).unwrap();
                if let Ok(at) = self.store.address_at(&thread, depth) {
                    self.store.fork(&thread, Some(at), named(&format!("t{}", self.count))).unwrap();
                }
            }
            13 => {
                let title = format!("title {}", self.count);
                self.store.update(&thread, ThreadPatch::title(title)).unwrap();
            }
            14 => drop(self.store.archive(&thread).unwrap()),
            15 => drop(self.store.resume(&thread, false).unwrap().clear().unwrap()),
            16 => {
                let branch = self.store.tree(&thread).unwrap().branches.pop().filter(|branch| branch.thread == thread);
                if let Some(branch) = branch {
                    self.store.label(&thread, branch.id, Some(format!("label {}", self.count))).unwrap();
                }
            }
            17 => drop(self.store.unarchive(&thread)),
            18 => drop(self.store.delete(&thread)),
            _ => drop(self.store.purge(&thread)),
        }
    }

    fn write(&mut self, thread: &ThreadId) {
        let live = self.store.resume(thread, false).unwrap();
        match self.below(4) {
            0 => drop(live.begin_turn(self.content()).unwrap()),
            1 => drop(live.end_turn(TurnEnd::completed())),
            _ => {
                let items = (0..=self.below(4)).map(|_| self.content()).collect();
                live.append(items).unwrap();
            }
        }
        live.shutdown().unwrap();
    }

    fn branch(&mut self, thread: &ThreadId) {
        let live = self.store.resume(thread, false).unwrap();
        let Some(head) = live.head().unwrap() else { return };
        let depth = u32::try_from(self.below(head.depth as usize + 1)).unwrap();
        let place = self.store.address_at(thread, depth).unwrap();
        match self.below(3) {
            0 => live.rewind(place).unwrap(),
            _ => {
                let options = AppendOptions { after: Some(place), ..AppendOptions::default() };
                live.append_with(vec![self.content()], options).unwrap();
            }
        }
    }
}
