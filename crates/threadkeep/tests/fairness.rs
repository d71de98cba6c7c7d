//! Many who write at once: nobody fails or starves because of another, and a full queue makes callers wait instead of growing.
#![cfg(test)]

use std::fs::File;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use pollster::block_on;
use threadkeep::{
    AppendOptions, Appended, Durability, Error, Expect, ItemId, Kind, LiveThread, NewItem, NewThread, Result, Role,
    Store, StoreOptions, ThreadId, TurnEnd, Uuid, Workspace,
};

const MEBIBYTE: usize = 1 << 20;
/// How many requests with a mebibyte each have room in the queue, and some more than fit.
const FITTING: usize = 64;
const MORE_THAN_FIT: usize = 100;

fn open(folder: &Path) -> Store {
    block_on(Store::open(StoreOptions::folder(folder))).unwrap()
}

fn workspace(store: &Store) -> Workspace {
    block_on(store.workspace("/w".as_ref())).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn born(store: &Store, name: &str) -> LiveThread {
    let live = block_on(workspace(store).create_now(NewThread { id: Some(id(name)), ..NewThread::default() })).unwrap();
    block_on(live.append(vec![NewItem::message(Role::User, "first")])).unwrap();
    live
}

fn items(store: &Store, name: &str) -> i64 {
    block_on(store.get(&id(name))).unwrap().items
}

/// A mebibyte that can't be compressed.
fn noise(seed: usize) -> NewItem {
    let mut state = 0x9e37_79b9_u32.wrapping_add(u32::try_from(seed).unwrap());
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    NewItem::raw(Kind::Message, "x", (0..MEBIBYTE / 4).flat_map(|_| next()).collect())
}

/// Stands for another process that is writing.
fn hold_gate(folder: &Path) -> File {
    let file = File::options().read(true).write(true).open(folder.join("write.gate")).unwrap();
    file.lock().unwrap();
    file
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn sixty_four_writers_succeed_beside_one_that_always_fails() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = open(temp.path());
    let done = AtomicBool::new(false);
    let failures = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let live = born(&store, "failing");
            let taken = NewItem::message(Role::User, "taken").with_id(ItemId::from_uuid(Uuid::from_u128(7)));
            block_on(live.append(vec![taken])).unwrap();
            while !done.load(Ordering::SeqCst) {
                let other = NewItem::message(Role::User, "other").with_id(ItemId::from_uuid(Uuid::from_u128(7)));
                let refused = block_on(live.append(vec![NewItem::message(Role::User, "new"), other]));
                assert!(matches!(refused, Err(Error::AlreadyExists { .. })), "{refused:?}");
                let empty = AppendOptions { expect: Expect::Head(None), ..AppendOptions::default() };
                let refused = block_on(live.append_with(vec![NewItem::message(Role::User, "new")], empty));
                assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
                let refused = block_on(live.end_turn(TurnEnd::completed()));
                assert!(matches!(refused, Err(Error::NotFound { .. })), "{refused:?}");
                failures.fetch_add(3, Ordering::SeqCst);
            }
        });
        let writers: Vec<_> = (0..64)
            .map(|writer| {
                let store = &store;
                scope.spawn(move || {
                    let live = born(store, &format!("w{writer}"));
                    for number in 0..20 {
                        let depth =
                            block_on(live.append(vec![NewItem::message(Role::User, "x")])).unwrap().items[0].depth;
                        assert_eq!(depth, number + 1);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        failing.join().unwrap();
    });
    assert!(failures.load(Ordering::SeqCst) > 0);
    assert_eq!(items(&store, "failing"), 2, "what was refused left something");
    assert!((0..64).all(|writer| items(&store, &format!("w{writer}")) == 21));
    assert!(block_on(store.verify_all(|_| {})).unwrap().invalid.is_empty());
}

/// A caller that gives up and tries again, as with a time limit, while another process writes.
#[test]
fn abandoned_calls_do_not_pile_up() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = born(&store, "a");
    let gate = hold_gate(temp.path());
    for seed in 0..MORE_THAN_FIT {
        assert!(poll(pin!(live.append(vec![noise(seed)]))).is_pending());
    }
    drop(gate);
    block_on(live.append(vec![NewItem::message(Role::User, "last")])).unwrap();
    let stored = usize::try_from(items(&store, "a")).unwrap() - 2;
    // Those that had room are done all the same, the others were never asked for.
    assert!((1..FITTING).contains(&stored), "{stored} requests of {MEBIBYTE} bytes were in the queue at once");
    assert!(block_on(store.verify(&id("a"))).unwrap().is_intact());
}

/// Each handle has a bound of its own; all of them together have one too.
#[test]
fn queued_appends_of_many_threads_share_one_bound() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let lives: Vec<LiveThread> = (0..MORE_THAN_FIT / 5).map(|number| born(&store, &format!("q{number}"))).collect();
    let gate = hold_gate(temp.path());
    let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
    let mut accepted = 0;
    for seed in 0..MORE_THAN_FIT {
        let mut append = pin!(lives[seed % lives.len()].append_with(vec![noise(seed)], queued));
        accepted += usize::from(poll(append.as_mut()).is_ready());
    }
    assert!((1..FITTING).contains(&accepted), "{accepted} of {MORE_THAN_FIT} were accepted");
    drop(gate);
    for live in &lives {
        block_on(live.flush()).unwrap();
    }
    let stored: i64 = (0..lives.len()).map(|number| items(&store, &format!("q{number}")) - 1).sum();
    assert_eq!(usize::try_from(stored).unwrap(), accepted, "what was accepted is stored, and nothing else");
}

#[test]
fn a_full_queue_makes_tasks_wait_and_not_their_runtime() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let lives: Vec<LiveThread> = (0..MORE_THAN_FIT).map(|number| born(&store, &format!("t{number}"))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let gate = hold_gate(temp.path());
    let tasks: Vec<tokio::task::JoinHandle<Result<Appended>>> = lives
        .iter()
        .enumerate()
        .map(|(seed, live)| {
            let live = live.clone();
            runtime.spawn(async move { live.append(vec![noise(seed)]).await })
        })
        .collect();
    // The only thread of the runtime goes on while all of these wait.
    runtime.block_on(async {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    });
    assert!(tasks.iter().all(|task| !task.is_finished()));
    drop(gate);
    for task in tasks {
        runtime.block_on(task).unwrap().unwrap();
    }
    assert!((0..MORE_THAN_FIT).all(|number| items(&store, &format!("t{number}")) == 2));
}

/// A purge goes in steps, and others write between them.
#[test]
fn others_write_while_a_large_thread_is_purged() {
    let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = open(temp.path());
    let large = born(&store, "large");
    for _ in 0..20 {
        block_on(large.append(vec![NewItem::message(Role::User, "x"); 1_000])).unwrap();
    }
    block_on(large.shutdown()).unwrap();
    block_on(store.delete(&id("large"))).unwrap();
    let live = born(&store, "small");
    let mut between = 0;
    let thread = id("large");
    let mut purge = pin!(store.purge(&thread));
    // The purge asks for its next step only when it is polled; every append in between is acknowledged before the purge ends.
    while poll(purge.as_mut()).is_pending() {
        block_on(live.append(vec![NewItem::message(Role::User, "between")])).unwrap();
        between += 1;
    }
    assert!(between >= 20, "{between} appends came in between");
}
