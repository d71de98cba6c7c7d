//! The log against a simple model in memory: random appends, branches, rewinds, forks, clears and purges, after each of
//! which every thread must read as the model says, in pages of any size and direction, and verify.

#![cfg(test)]
#![expect(clippy::cast_possible_wrap, reason = "counts of a test are small")]

#[path = "postgres/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Address, AppendOptions, Error, ItemQuery, ListQuery, NewItem, NewThread, Outcome, Role, SortKey, StoreOptions,
    ThreadId, TurnEnd,
};

#[derive(Debug, Clone)]
enum Op {
    Create,
    Append { thread: usize, count: usize },
    AppendAfter { thread: usize, node: usize },
    Rewind { thread: usize, node: usize },
    Fork { thread: usize, node: usize },
    Clear { thread: usize },
    Reopen { thread: usize },
    Purge { thread: usize },
    Turn { thread: usize },
    Merge,
    Seal,
}

fn op() -> impl Strategy<Value = Op> {
    let any = 0_usize..64;
    prop_oneof![
        1 => Just(Op::Create),
        6 => (any.clone(), 1_usize..4).prop_map(|(thread, count)| Op::Append { thread, count }),
        4 => (any.clone(), any.clone()).prop_map(|(thread, node)| Op::AppendAfter { thread, node }),
        3 => (any.clone(), any.clone()).prop_map(|(thread, node)| Op::Rewind { thread, node }),
        3 => (any.clone(), any.clone()).prop_map(|(thread, node)| Op::Fork { thread, node }),
        1 => any.clone().prop_map(|thread| Op::Clear { thread }),
        1 => any.clone().prop_map(|thread| Op::Reopen { thread }),
        2 => any.clone().prop_map(|thread| Op::Purge { thread }),
        2 => any.prop_map(|thread| Op::Turn { thread }),
        1 => Just(Op::Merge),
        1 => Just(Op::Seal),
    ]
}

/// An item as the model knows it.
#[derive(Debug, Clone)]
struct Node {
    parent: Option<usize>,
    thread: usize,
    address: Address,
}

#[derive(Debug)]
struct Modelled {
    id: ThreadId,
    live: Option<LiveThread>,
    head: Option<usize>,
    /// The shared item that it was forked at.
    base: Option<usize>,
    purged: bool,
    /// When it was last written, counted in operations: what lists by activity and by update are in the order of.
    written: usize,
}

/// The model beside the store.
struct World {
    store: Store,
    workspace: Workspace,
    threads: Vec<Modelled>,
    nodes: BTreeMap<usize, Node>,
    next_node: usize,
    operations: usize,
    /// Whether nothing was written since everything was sealed.
    sealed: bool,
}

impl World {
    fn new(store: Store) -> Self {
        let workspace = store.workspace("/model".as_ref()).unwrap();
        store.create_key().unwrap();
        let (threads, nodes) = (Vec::new(), BTreeMap::new());
        Self { store, workspace, threads, nodes, next_node: 0, operations: 0, sealed: false }
    }

    fn pick(&self, index: usize) -> Option<usize> {
        let alive: Vec<usize> = (0..self.threads.len()).filter(|thread| !self.threads[*thread].purged).collect();
        (!alive.is_empty()).then(|| alive[index % alive.len()])
    }

    /// The path that ends at a node, root first.
    fn path(&self, end: Option<usize>) -> Vec<usize> {
        let mut path = Vec::new();
        let mut next = end;
        while let Some(node) = next {
            path.push(node);
            next = self.nodes[&node].parent;
        }
        path.reverse();
        path
    }

    /// What a thread reaches: its own items and the path that it was forked from.
    fn reached(&self, thread: usize) -> Vec<usize> {
        let mut reached: BTreeSet<usize> = self.path(self.threads[thread].base).into_iter().collect();
        reached.extend(self.nodes.iter().filter(|(_, node)| node.thread == thread).map(|(number, _)| *number));
        reached.into_iter().collect()
    }

    fn pick_node(&self, thread: usize, index: usize) -> Option<usize> {
        let reached = self.reached(thread);
        (!reached.is_empty()).then(|| reached[index % reached.len()])
    }

    fn live(&mut self, thread: usize) -> LiveThread {
        if self.threads[thread].live.is_none() {
            self.threads[thread].live = Some(self.workspace.resume(&self.threads[thread].id, false).unwrap());
        }
        self.threads[thread].live.clone().unwrap()
    }

    fn append(&mut self, thread: usize, after: Option<usize>, count: usize) {
        let options = AppendOptions { after: after.map(|node| self.nodes[&node].address), ..AppendOptions::default() };
        let first = self.next_node;
        let items = (first..first + count).map(|number| NewItem::message(Role::User, number.to_string())).collect();
        let appended = self.live(thread).append_with(items, options).unwrap();
        let mut parent = after.or(self.threads[thread].head);
        for (number, item) in (first..).zip(&appended.items) {
            self.nodes.insert(number, Node { parent, thread, address: item.address() });
            parent = Some(number);
        }
        self.next_node += count;
        self.threads[thread].head = parent;
    }

    fn apply(&mut self, op: &Op) {
        self.operations += 1;
        let written = match *op {
            Op::Create | Op::Fork { .. } => None,
            Op::Append { thread, .. } | Op::Clear { thread } | Op::Turn { thread } => self.pick(thread),
            Op::AppendAfter { thread, node } | Op::Rewind { thread, node } => {
                self.pick(thread).filter(|thread| self.pick_node(*thread, node).is_some())
            }
            Op::Reopen { .. } | Op::Purge { .. } | Op::Merge | Op::Seal => None,
        };
        self.sealed = matches!(op, Op::Seal);
        let before = self.threads.len();
        self.run(op);
        let created = (self.threads.len() > before).then_some(before);
        if let Some(thread) = written.or(created) {
            self.threads[thread].written = self.operations;
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Create => {
                let live = self.workspace.create_now(NewThread::default()).unwrap();
                let id = live.id().clone();
                self.threads.push(Modelled { id, live: Some(live), head: None, base: None, purged: false, written: 0 });
            }
            Op::Append { thread, count } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                self.append(thread, None, count);
            }
            Op::AppendAfter { thread, node } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                let Some(node) = self.pick_node(thread, node) else {
                    return;
                };
                self.append(thread, Some(node), 1);
            }
            Op::Rewind { thread, node } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                let Some(node) = self.pick_node(thread, node) else {
                    return;
                };
                self.live(thread).rewind(self.nodes[&node].address).unwrap();
                self.threads[thread].head = Some(node);
            }
            Op::Fork { thread, node } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                let Some(node) = self.pick_node(thread, node) else {
                    return;
                };
                let at = Some(self.nodes[&node].address);
                let fork = self.store.fork(&self.threads[thread].id, at, NewThread::default()).unwrap();
                self.threads.push(Modelled {
                    id: fork.id,
                    live: None,
                    head: Some(node),
                    base: Some(node),
                    purged: false,
                    written: 0,
                });
            }
            Op::Clear { thread } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                let length = self.path(self.threads[thread].head).len() as u64;
                assert_eq!(self.live(thread).clear().unwrap(), length);
                self.threads[thread].head = None;
            }
            Op::Reopen { thread } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                if let Some(live) = self.threads[thread].live.take() {
                    live.shutdown().unwrap();
                }
            }
            Op::Purge { thread } => self.purge(thread),
            Op::Turn { thread } => {
                let Some(thread) = self.pick(thread) else {
                    return;
                };
                self.turn(thread);
            }
            // The threads of another workspace come into this one.
            Op::Merge => {
                let other = self.store.workspace(format!("/other-{}", self.operations).as_ref()).unwrap();
                self.store.remap(other.info().id, self.workspace.info().id).unwrap();
            }
            Op::Seal => drop(self.store.seal(None, false).unwrap()),
        }
    }

    fn turn(&mut self, thread: usize) {
        let number = self.next_node;
        let live = self.live(thread);
        let begun = live.begin_turn(NewItem::message(Role::User, number.to_string())).unwrap();
        live.end_turn(TurnEnd::completed()).unwrap();
        let parent = self.threads[thread].head;
        self.nodes.insert(number, Node { parent, thread, address: begun.items[0].address() });
        self.next_node += 1;
        self.threads[thread].head = Some(number);
    }

    fn purge(&mut self, thread: usize) {
        let Some(thread) = self.pick(thread) else {
            return;
        };
        if let Some(live) = self.threads[thread].live.take() {
            live.shutdown().unwrap();
        }
        let id = self.threads[thread].id.clone();
        self.store.delete(&id).unwrap();
        self.store.purge(&id).unwrap();
        self.threads[thread].purged = true;
        // What is left: the own items of threads that are not purged, and every path to them and to their fork points.
        let mut kept = BTreeSet::new();
        for other in (0..self.threads.len()).filter(|other| !self.threads[*other].purged) {
            for node in self.reached(other) {
                kept.extend(self.path(Some(node)));
            }
        }
        self.nodes.retain(|number, _| kept.contains(number));
    }

    /// Compares every thread with the model.
    fn check(&self) {
        for (number, thread) in self.threads.iter().enumerate() {
            if thread.purged {
                assert!(matches!(self.store.get(&thread.id), Err(Error::NotFound { .. })));
                continue;
            }
            let path = self.path(thread.head);
            for (newest_first, limit) in [(false, 3), (true, 2), (false, 1_000)] {
                assert_eq!(
                    self.read(&thread.id, newest_first, limit),
                    path,
                    "thread {number} newest_first {newest_first}"
                );
            }
            let own = self.nodes.values().filter(|node| node.thread == number).count();
            assert_eq!(self.store.get(&thread.id).unwrap().items, own as i64, "items of thread {number}");
            let verdict = self.store.verify(&thread.id).unwrap();
            assert!(verdict.is_intact(), "{verdict:?}");
            assert!(!self.sealed || verdict.outcome() == Outcome::Valid, "{verdict:?}");
        }
        let report = self.store.verify_all(|_| {}).unwrap();
        assert!(
            report.outcome() != Outcome::Invalid && (!self.sealed || report.outcome() == Outcome::Valid),
            "{report:?}"
        );
        assert_eq!(self.store.stats().unwrap().items, self.nodes.len() as i64, "items of the store");
        let mut expected: Vec<&Modelled> = self.threads.iter().filter(|thread| !thread.purged).collect();
        expected.sort_by_key(|thread| std::cmp::Reverse(thread.written));
        let expected: Vec<&ThreadId> = expected.into_iter().map(|thread| &thread.id).collect();
        for sort in [SortKey::Activity, SortKey::Updated] {
            let listed = self.store.list(ListQuery { sort, limit: 1_000, ..ListQuery::default() }).unwrap().entries;
            assert_eq!(listed.iter().map(|thread| &thread.id).collect::<Vec<_>>(), expected, "{sort:?}");
        }
    }

    fn read(&self, id: &ThreadId, newest_first: bool, limit: usize) -> Vec<usize> {
        let mut query = ItemQuery { newest_first, limit, ..ItemQuery::default() };
        let mut seen: Vec<usize> = Vec::new();
        loop {
            let page = self.store.items(id, query.clone()).unwrap();
            for item in &page.entries {
                let view: threadkeep::View = serde_json::from_slice(&item.content).unwrap();
                seen.push(view.to_text().parse().unwrap());
            }
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        if newest_first {
            seen.reverse();
        }
        seen
    }

    /// Every address is reached by exactly the threads that the model says.
    fn check_reach(&self) {
        for (number, thread) in self.threads.iter().enumerate().filter(|(_, thread)| !thread.purged) {
            let reached: BTreeSet<usize> = self.reached(number).into_iter().collect();
            for (node, facts) in &self.nodes {
                let found = self.store.item(&thread.id, facts.address).is_ok();
                assert_eq!(found, reached.contains(node), "thread {number} and node {node}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let keys = tempfile::tempdir().unwrap();
        let mut world = World::new(Store::open(StoreOptions::memory().keys(keys.path().join("keys"))).unwrap());
        world.apply(&Op::Create);
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.check_reach();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_log_in_a_file_is_the_model(ops in prop::collection::vec(op(), 1..30)) {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap());
        world.apply(&Op::Create);
        for op in &ops {
            world.apply(op);
        }
        world.check();
        world.check_reach();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_log_on_a_server_is_the_model(ops in prop::collection::vec(op(), 1..30)) {
        let Some(server) = server::server() else { return Ok(()) };
        let keys = tempfile::tempdir().unwrap();
        let options = StoreOptions::postgres(&server.address()).unwrap().keys(keys.path().join("keys"));
        let mut world = World::new(Store::open(options).unwrap());
        world.apply(&Op::Create);
        for op in &ops {
            world.apply(op);
        }
        world.check();
        world.check_reach();
    }
}
