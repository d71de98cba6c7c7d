//! Callers that stop waiting, stores that are dropped, purges that are cut short, and others who come in between.
#![cfg(test)]

use std::fs::File;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pollster::block_on;
use threadkeep::{
    AppendOptions, Durability, Error, ItemId, ItemQuery, Kind, ListQuery, NewItem, NewThread, Role, Store,
    StoreOptions, ThreadId, ThreadStore, TurnEnd, TurnQuery, TurnStatus, Uuid, Workspace, blocking,
};

fn open(folder: &Path) -> Store {
    block_on(Store::open(StoreOptions::folder(folder))).unwrap()
}

fn workspace(store: &Store) -> Workspace {
    block_on(store.workspace("/w".as_ref())).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// A stored thread of this many items that nobody holds.
fn stored(store: &Store, name: &str, count: usize) -> ThreadId {
    let live = workspace(store).create(named(name)).unwrap();
    block_on(live.append((0..count).map(|number| say(&number.to_string())).collect())).unwrap();
    block_on(live.shutdown()).unwrap();
    id(name)
}

fn count(store: &Store, thread: &ThreadId) -> i64 {
    block_on(store.get(thread)).unwrap().items
}

fn sql(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("threadkeep.db")).unwrap()
}

/// Stands for another process that is writing.
fn hold_gate(folder: &Path) -> File {
    let file = File::options().read(true).write(true).open(folder.join("write.gate")).unwrap();
    file.lock().unwrap();
    file
}

/// Starts a call and stops waiting for it while it can't be answered.
fn abandon<F: Future>(call: F) {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        assert!(call.as_mut().poll(&mut context).is_pending(), "the call was answered before it was abandoned");
        std::thread::yield_now();
    }
}

/// Waits for a call, but not for ever.
fn within<F: Future>(bound: Duration, call: F) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let until = Instant::now() + bound;
    while Instant::now() < until {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
            return Some(answer);
        }
        std::thread::yield_now();
    }
    None
}

#[test]
fn a_store_that_gave_up_waiting_does_not_keep_the_gate() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path()));
    let with_bound = |millis| StoreOptions::folder(temp.path()).busy_bound(Duration::from_millis(millis));
    let impatient = block_on(Store::open(with_bound(50))).unwrap();
    let other = block_on(Store::open(with_bound(10_000))).unwrap();
    let gate = hold_gate(temp.path());
    assert!(matches!(block_on(impatient.sync()), Err(Error::Busy { .. })));
    drop(gate);
    block_on(other.sync()).unwrap();
    block_on(impatient.sync()).unwrap();
}

#[test]
fn an_abandoned_resume_leaves_no_claim() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let thread = stored(&store, "a", 1);
    let gate = hold_gate(temp.path());
    abandon(store.resume(&thread, false));
    drop(gate);
    block_on(store.resume(&thread, false)).unwrap();
}

#[test]
fn an_abandoned_first_append_leaves_the_handle_usable() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = workspace(&store).create(named("a")).unwrap();
    let gate = hold_gate(temp.path());
    abandon(live.append(vec![say("1")]));
    drop(gate);
    block_on(live.append(vec![say("2")])).unwrap();
    drop(live);
    block_on(store.resume(&id("a"), false)).unwrap();

    let unborn = workspace(&store).create(named("b")).unwrap();
    let gate = hold_gate(temp.path());
    abandon(unborn.persist());
    drop(unborn);
    drop(gate);
    // Behind what was abandoned, which is done all the same.
    block_on(store.sync()).unwrap();
    block_on(store.resume(&id("b"), false)).unwrap();
}

#[test]
fn an_abandoned_wait_for_the_queue_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = block_on(workspace(&store).create_now(named("a"))).unwrap();
    block_on(live.append(vec![say("first")])).unwrap();
    let gate = hold_gate(temp.path());
    let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
    for number in 0..5 {
        block_on(live.append_with(vec![say(&number.to_string())], queued)).unwrap();
    }
    abandon(live.flush());
    drop(gate);
    block_on(live.flush()).unwrap();
    assert_eq!(count(&store, &id("a")), 6);
}

#[test]
fn a_thread_can_be_resumed_right_after_its_handle_was_dropped() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let thread = stored(&store, "a", 1);
    for _ in 0..200 {
        drop(block_on(store.resume(&thread, false)).unwrap());
    }
}

#[test]
fn a_shutdown_that_ends_late_does_not_unregister_the_next_writer() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let thread = stored(&store, "a", 1);
    let mut context = Context::from_waker(Waker::noop());
    let was_between = |round: usize| {
        let object: &dyn ThreadStore = &store;
        block_on(object.resume_thread(&thread, false)).unwrap();
        let mut shutdown = object.shutdown_thread(&thread);
        while shutdown.as_mut().poll(&mut context).is_pending() {
            // Everything that it asked for so far is done behind this.
            block_on(store.sync()).unwrap();
            if !block_on(store.claims()).unwrap().is_empty() {
                continue;
            }
            // The claim is free, and the shutdown does not know yet.
            let mut discard = object.discard_thread(&thread);
            assert!(discard.as_mut().poll(&mut context).is_pending());
            block_on(object.resume_thread(&thread, false)).unwrap();
            block_on(shutdown).unwrap();
            block_on(discard).unwrap();
            let append = object.append_items(&thread, vec![say(&round.to_string())], AppendOptions::default());
            block_on(append).unwrap();
            return true;
        }
        false
    };
    // The answer may come before the shutdown waits for it.
    assert!((0..100).any(was_between));
}

#[test]
fn a_handle_whose_end_of_turn_was_abandoned_knows_whether_it_was_handed_over() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    for (name, is_asked) in [("kept", false), ("asked", true)] {
        let live = workspace(&store).create(named(name)).unwrap();
        block_on(live.begin_turn(say("prompt"))).unwrap();
        if is_asked {
            block_on(store.request_release(&id(name))).unwrap();
        }
        let gate = hold_gate(temp.path());
        abandon(live.end_turn(TurnEnd::completed()));
        drop(gate);
        let after = block_on(live.append(vec![say("after")]));
        match is_asked {
            false => assert!(after.is_ok(), "{after:?}"),
            // The thread may have another writer by now.
            true => assert!(matches!(after, Err(Error::Closed { .. })), "{after:?}"),
        }
    }
    let live = workspace(&store).create(named("shut")).unwrap();
    block_on(live.append(vec![say("1")])).unwrap();
    let mut shutdown = Box::pin(live.shutdown());
    let mut context = Context::from_waker(Waker::noop());
    // Up to the moment when the claim is given up, and its answer has not been taken, unless it came at once.
    while block_on(store.claims()).unwrap().iter().any(|claim| claim.thread == id("shut")) {
        if shutdown.as_mut().poll(&mut context).is_ready() {
            break;
        }
        block_on(store.sync()).unwrap();
    }
    drop(shutdown);
    assert!(matches!(block_on(live.append(vec![say("2")])), Err(Error::Closed { .. })));
}

#[test]
fn a_holder_lives_until_everything_it_queued_is_written() {
    let temp = tempfile::tempdir().unwrap();
    let (store, other) = (open(temp.path()), open(temp.path()));
    let live = block_on(workspace(&store).create_now(named("a"))).unwrap();
    block_on(live.append(vec![say("first")])).unwrap();
    let gate = hold_gate(temp.path());
    let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
    block_on(live.append_with(vec![say("queued")], queued)).unwrap();
    let dropping = std::thread::spawn(move || {
        drop(live);
        drop(store);
    });
    for _ in 0..20 {
        let seen = block_on(other.get(&id("a"))).unwrap();
        assert!(seen.live, "a holder that still writes counts as dead");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(gate);
    dropping.join().unwrap();
    assert_eq!(count(&other, &id("a")), 2);
    assert!(!block_on(other.get(&id("a"))).unwrap().live);
}

#[test]
fn a_repeated_append_is_synced_when_the_repetition_asks_for_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = block_on(workspace(&store).create_now(named("a"))).unwrap();
    let item = say("once").with_id(ItemId::from_uuid(Uuid::from_u128(77)));
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    block_on(live.append_with(vec![item.clone()], written)).unwrap();
    let log = || std::fs::metadata(temp.path().join("threadkeep.db-wal")).unwrap().len();
    let before = log();
    assert!(block_on(live.append(vec![item])).unwrap().repeated);
    assert!(log() > before, "it was acknowledged as synced without a commit");
    assert_eq!(count(&store, &id("a")), 1);
}

#[test]
fn a_handle_of_a_purged_thread_does_not_write_into_a_new_one_of_its_name() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let old = block_on(workspace(&store).create_now(named("a"))).unwrap();
    block_on(old.append(vec![say("old")])).unwrap();
    // As if its process had been believed to be dead.
    sql(temp.path()).execute("DELETE FROM claims", []).unwrap();
    block_on(store.delete(&id("a"))).unwrap();
    block_on(store.purge(&id("a"))).unwrap();
    let new = block_on(workspace(&store).create_now(named("a"))).unwrap();
    assert!(matches!(block_on(old.append(vec![say("stale")])), Err(Error::ClaimLost { .. })));
    block_on(new.append(vec![say("new")])).unwrap();
    assert_eq!(count(&store, &id("a")), 1);
}

#[test]
fn nobody_comes_between_the_steps_of_a_purge() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let thread = stored(&store, "a", 5_000);
    block_on(store.delete(&thread)).unwrap();
    let gate = hold_gate(temp.path());
    let purging = std::thread::spawn({
        let (store, thread) = (store.clone(), thread.clone());
        move || block_on(store.purge(&thread))
    });
    drop(gate);
    while block_on(store.get(&thread)).is_ok() {
        std::thread::yield_now();
    }
    assert!(matches!(block_on(store.restore(&thread)), Err(Error::NotFound { .. })));
    assert!(matches!(block_on(store.resume(&thread, true)), Err(Error::NotFound { .. })));
    assert_eq!(purging.join().unwrap().unwrap().items, 5_000);
}

#[test]
fn a_purge_that_was_cut_short_is_finished_by_the_next() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let (parent, other) = (stored(&store, "parent", 4_000), stored(&store, "other", 1));
    let fork = block_on(store.fork(&parent, None, named("fork"))).unwrap().id;
    let live = block_on(store.resume(&fork, false)).unwrap();
    block_on(live.append(vec![say("x")])).unwrap();
    block_on(live.shutdown()).unwrap();
    for thread in [&parent, &fork, &other] {
        block_on(store.delete(thread)).unwrap();
    }
    block_on(store.purge(&parent)).unwrap();
    // The purge of the last fork is abandoned at every possible moment.
    let mut purge = Box::pin(store.purge(&fork));
    let mut context = Context::from_waker(Waker::noop());
    let left = || sql(temp.path()).query_row("SELECT count(*) FROM items", [], |row| row.get::<_, i64>(0)).unwrap();
    while left() > 3_000 {
        assert!(purge.as_mut().poll(&mut context).is_pending());
    }
    drop(purge);
    assert!(block_on(store.get(&fork)).is_err(), "what is being purged can't be seen");
    assert!(block_on(store.verify_all(|_| {})).unwrap().invalid.is_empty());
    block_on(store.purge(&other)).unwrap();
    let stats = block_on(store.stats()).unwrap();
    assert_eq!((stats.items, stats.branches, stats.stubs), (0, 0, 0));
}

#[test]
fn verifying_a_thread_that_is_purged_meanwhile_finds_no_damage() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    for round in 0..5 {
        let thread = stored(&store, &format!("t{round}"), 5_000);
        block_on(store.delete(&thread)).unwrap();
        let verifying = std::thread::spawn({
            let (store, thread) = (store.clone(), thread.clone());
            move || block_on(store.verify(&thread))
        });
        block_on(store.purge(&thread)).unwrap();
        match verifying.join().unwrap() {
            Ok(verdict) => assert!(verdict.is_intact(), "{verdict:?}"),
            Err(error) => assert!(matches!(error, Error::NotFound { .. }), "{error:?}"),
        }
    }
}

#[test]
fn verifying_a_store_covers_what_is_left_of_purged_threads() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let parent = stored(&store, "parent", 3);
    block_on(store.fork(&parent, None, named("fork"))).unwrap();
    block_on(store.delete(&parent)).unwrap();
    block_on(store.purge(&parent)).unwrap();
    assert_eq!(block_on(store.verify_all(|_| {})).unwrap().items, 3);
    sql(temp.path()).execute("UPDATE items SET content = x'00', encoding = 0", []).unwrap();
    let report = block_on(store.verify_all(|_| {})).unwrap();
    assert!(report.invalid.contains_key(&parent), "{report:?}");
}

#[test]
fn one_damaged_thread_does_not_end_the_verifying_of_a_store() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    for name in ["a", "b", "c"] {
        stored(&store, name, 3);
    }
    sql(temp.path()).execute("UPDATE branches SET tip = -1 WHERE thread = 'a'", []).unwrap();
    let report = block_on(store.verify_all(|_| {})).unwrap();
    assert_eq!((report.threads, report.intact), (3, 2));
    assert!(report.invalid.contains_key(&id("a")));
}

#[test]
fn a_damaged_field_is_told_at_its_own_depth() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let thread = stored(&store, "a", 10);
    let spoil = "DROP TRIGGER items_are_append_only; UPDATE items SET digest = x'00' WHERE key & 4294967295 = 7";
    sql(temp.path()).execute_batch(spoil).unwrap();
    let verdict = block_on(store.verify(&thread)).unwrap();
    assert_eq!(verdict.invalid.first().and_then(|it| it.depth), Some(7), "{verdict:?}");
    assert_eq!((verdict.broken, verdict.items), (1, 10), "what follows is checked too: {verdict:?}");
}

#[test]
fn damaged_numbers_stop_no_reader() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = workspace(&store).create(named("a")).unwrap();
    let noise: Vec<u8> = (0..200_000_u32).flat_map(|it| it.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    block_on(live.append(vec![NewItem::raw(Kind::Message, "x", noise)])).unwrap();
    for size in [-1, i64::MAX, 0] {
        sql(temp.path()).execute("UPDATE items SET size = ?1", [size]).unwrap();
        for _ in 0..8 {
            let read = within(Duration::from_secs(20), store.items(&id("a"), ItemQuery::default()));
            assert!(read.is_some(), "a read hangs with size {size}");
        }
    }
    assert!(within(Duration::from_secs(20), store.list(ListQuery::default())).is_some_and(|page| page.is_ok()));
}

#[test]
fn a_page_is_bounded_in_bytes_though_its_contents_are_stored_apart() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = block_on(workspace(&store).create_now(named("a"))).unwrap();
    for seed in 0..40_u32 {
        let noise: Vec<u8> =
            (0..250_000_u32).flat_map(|it| (it ^ seed).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        block_on(live.append(vec![NewItem::raw(Kind::Message, "x", noise)])).unwrap();
    }
    let page = block_on(store.items(&id("a"), ItemQuery { limit: 2_000, ..ItemQuery::default() })).unwrap();
    let bytes: usize = page.entries.iter().map(|item| item.content.len()).sum();
    assert!(bytes <= 17 << 20, "{bytes} bytes");
    assert!(page.next_cursor.is_some());
}

#[test]
fn a_turn_that_was_open_when_the_thread_was_cleared_is_interrupted() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = workspace(&store).create(named("a")).unwrap();
    block_on(live.begin_turn(say("1"))).unwrap();
    block_on(live.clear()).unwrap();
    block_on(live.begin_turn(say("2"))).unwrap();
    let turns = block_on(store.turns(&id("a"), TurnQuery::default())).unwrap().entries;
    let statuses: Vec<_> = turns.into_iter().map(|turn| turn.status).collect();
    assert_eq!(statuses, [TurnStatus::Interrupted, TurnStatus::Running]);
}

#[test]
fn another_workspaces_item_reads_as_an_absent_one() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let theirs = block_on(store.workspace("/theirs".as_ref())).unwrap();
    let item = block_on(theirs.create(named("a")).unwrap().append(vec![say("x"), say("y")])).unwrap().items[1].clone();
    let ours = block_on(store.workspace("/ours".as_ref())).unwrap();
    block_on(ours.create_now(named("b"))).unwrap();
    let refused = block_on(ours.address_of(&id("b"), item.id)).unwrap_err();
    assert!(matches!(&refused, Error::NotFound { what: "item", id } if *id == item.id.to_string()), "{refused:?}");
}

/// What is written to a file that nobody can find again is lost, so nothing is acknowledged there.
#[test]
fn nothing_is_acknowledged_into_a_file_that_was_moved_or_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let (here, there) = (temp.path().join("here"), temp.path().join("there"));
    let store = open(&here);
    let live = block_on(workspace(&store).create_now(named("a"))).unwrap();
    block_on(live.append(vec![say("before")])).unwrap();
    let database = here.join("threadkeep.db");

    // Moved away, and another store put in its place.
    std::fs::rename(&database, here.join("away.db")).unwrap();
    let refused = block_on(live.append(vec![say("kept 1")])).unwrap_err();
    assert!(matches!(refused, Error::Io { kind: std::io::ErrorKind::NotFound, .. }), "{refused:?}");
    drop(open(&there));
    std::fs::copy(there.join("threadkeep.db"), &database).unwrap();
    assert!(matches!(block_on(live.append(vec![say("kept 2")])), Err(Error::Io { .. })));
    assert!(matches!(block_on(live.flush()), Err(Error::Io { .. })));

    // Put back: what was kept is stored, in order.
    std::fs::remove_file(&database).unwrap();
    std::fs::rename(here.join("away.db"), &database).unwrap();
    block_on(live.flush()).unwrap();
    let items = block_on(store.items(&id("a"), ItemQuery::default())).unwrap().entries;
    let contents: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(&item.content).into_owned()).collect();
    assert_eq!(contents.len(), 3, "{contents:?}");
    for (content, words) in contents.iter().zip(["before", "kept 1", "kept 2"]) {
        assert!(content.contains(words), "{contents:?}");
    }
    assert!(block_on(store.verify(&id("a"))).unwrap().is_intact());
}

/// Whoever opens the store next makes another log, so nothing is acknowledged into one that has no name any more.
#[test]
fn nothing_is_acknowledged_into_a_log_that_was_removed() {
    for names in [&["threadkeep.db-wal"][..], &["threadkeep.db-shm"], &["threadkeep.db-wal", "threadkeep.db-shm"]] {
        let temp = tempfile::tempdir().unwrap();
        let (folder, copy) = (temp.path().join("store"), temp.path().join("copy"));
        let store = open(&folder);
        let live = block_on(workspace(&store).create_now(named("a"))).unwrap();
        block_on(live.append(vec![say("before")])).unwrap();
        for name in names {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        let refused = block_on(live.append(vec![say("kept")])).unwrap_err();
        assert!(matches!(refused, Error::Io { kind: std::io::ErrorKind::NotFound, .. }), "{refused:?}");
        assert!(refused.to_string().contains(names[0]), "{refused}");

        // What was acknowledged before is in the files that have names, as a crash would leave them.
        std::fs::create_dir(&copy).unwrap();
        for name in ["threadkeep.db", "threadkeep.db-wal"].into_iter().filter(|name| folder.join(name).exists()) {
            std::fs::copy(folder.join(name), copy.join(name)).unwrap();
        }
        assert_eq!(count(&open(&copy), &id("a")), 1, "{names:?}");

        // Opened again, the store goes on.
        let unsaved = block_on(live.take_unsaved());
        drop((live, store));
        let store = open(&folder);
        let live = block_on(store.resume(&id("a"), false)).unwrap();
        block_on(live.append(unsaved)).unwrap();
        assert_eq!(count(&store, &id("a")), 2);
        assert!(block_on(store.verify(&id("a"))).unwrap().is_intact());
    }
}

/// The system drops the locks of a process when it closes any descriptor of the file, and without them another process would
/// remove the log when it ends.
#[test]
fn a_second_handle_does_not_take_the_locks_of_the_first() {
    let temp = tempfile::tempdir().unwrap();
    let first = open(temp.path());
    let live = block_on(workspace(&first).create_now(named("a"))).unwrap();
    block_on(live.append(vec![say("before")])).unwrap();
    let locks = || {
        let number =
            std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(temp.path().join("threadkeep.db")).unwrap());
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        all.lines().filter(|line| line.contains("POSIX") && line.contains(&format!(":{number} "))).count()
    };
    let before = locks();
    assert!(before > 0, "SQLite holds a lock for as long as it has a log");
    let second = open(temp.path());
    assert_eq!(locks(), before);
    let reading = block_on(Store::open(StoreOptions::folder(temp.path()).read_only())).unwrap();
    assert_eq!(locks(), before);
    drop((second, reading));
    assert_eq!(locks(), before);
    block_on(live.append(vec![say("after")])).unwrap();
}

/// A thread may keep a store in a variable of its own: it is closed when the thread ends, with what was only queued.
#[test]
fn a_store_that_its_thread_kept_is_closed_with_it() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<(blocking::Store, blocking::LiveThread)>> =
            const { std::cell::RefCell::new(None) };
    }
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().to_owned();
    let ended = std::thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| {
            let store = blocking::Store::open(StoreOptions::folder(folder)).unwrap();
            let id = Some(ThreadId::new("kept").unwrap());
            let workspace = store.workspace(Path::new("/w")).unwrap();
            let live = workspace.create(NewThread { id, ..NewThread::default() }).unwrap();
            let options = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
            live.append_with(vec![NewItem::message(Role::User, "x".repeat(5_000))], options).unwrap();
            *kept = Some((store, live));
        });
    });
    ended.join().unwrap();
    let store = blocking::Store::open(StoreOptions::folder(temp.path())).unwrap();
    assert_eq!(store.get(&ThreadId::new("kept").unwrap()).unwrap().items, 1);
}
