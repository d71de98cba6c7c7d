//! Copies between stores: the same ids, hashes and bytes, again and again, from any point at which one was cut off.
#![cfg(test)]

#[path = "copy/history.rs"]
mod history;
#[path = "postgres/server.rs"]
mod server;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use history::{History, assert_same, id, items_to, memory, named, open, say, threads, ticking};
use threadkeep::blocking::Store;
use threadkeep::{
    CopyReport, Error, Hash, ImportBatch, ImportPart, ImportSegment, ItemQuery, Kind, NewItem, SourceFile,
    StoreOptions, ThreadPatch,
};

fn copy(from: &Store, to: &Store) -> CopyReport {
    to.copy_from(from, &mut |_| {}).unwrap()
}

/// Waits for so many of the requests that a copy makes, and then no longer; says whether it was done by then.
fn copy_in_part(from: &Store, to: &Store, requests: usize) -> bool {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut nothing = |_| {};
    let mut call = pin!(to.as_async().copy_from(from.as_async(), &mut nothing));
    for _ in 0..requests {
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            done.unwrap();
            return true;
        }
        std::thread::park();
    }
    false
}

#[test]
fn random_histories_are_copied_again_and_again() {
    for seed in 0..30 {
        let temp = tempfile::tempdir().unwrap();
        let target = if seed % 2 == 0 { memory() } else { open(temp.path()) };
        let mut history = History::new(ticking(), seed);
        for round in 0..4 {
            for _ in 0..25 {
                history.step();
            }
            let why = format!("seed {seed}, round {round}");
            let report = copy(&history.store, &target);
            assert_eq!(report.problems, [], "{why}");
            assert_eq!(report.equal, report.threads, "{why}");
            purge_what_is_gone(&history.store, &target);
            assert_same(&history.store, &target, &why);
            let again = copy(&history.store, &target);
            assert_eq!((again.unchanged, again.items), (again.threads, 0), "{why}: {again:?}");
        }
    }
}

/// What was purged in the source stays in a copy that was made before.
fn purge_what_is_gone(source: &Store, target: &Store) {
    for gone in threads(target) {
        if source.get(&gone.id).is_err() {
            drop(target.delete(&gone.id));
            target.purge(&gone.id).unwrap();
        }
    }
}

#[test]
fn a_copy_that_was_cut_off_anywhere_is_completed_by_the_next() {
    let mut cut_off = 0;
    for (count, seed) in (100..130).enumerate() {
        let mut history = History::new(ticking(), seed);
        for _ in 0..60 {
            history.step();
        }
        let target = memory();
        let mut requests = 1 + count * 37 % 90;
        while !copy_in_part(&history.store, &target, requests) {
            cut_off += 1;
            assert!(target.verify_all(|_| {}).unwrap().invalid.is_empty(), "seed {seed}: cut off after {requests}");
            requests += requests / 2 + 10;
        }
        copy(&history.store, &target);
        assert_same(&history.store, &target, &format!("seed {seed}"));
    }
    assert!(cut_off >= 30, "copies were cut off {cut_off} times");
}

fn thread_of(store: &Store, name: &str, texts: &[&str]) {
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named(name)).unwrap();
    live.append(texts.iter().map(|text| say(text)).collect()).unwrap();
    live.shutdown().unwrap();
}

#[test]
fn what_differs_is_left_and_named_and_costs_that_thread_alone() {
    let (temp, source, target) = (tempfile::tempdir().unwrap(), memory(), memory());
    for name in ["ahead", "both", "fine", "held"] {
        thread_of(&source, name, &["a", "b"]);
    }
    copy(&source, &target);
    let append = |store: &Store, name: &str, text: &str| {
        let live = store.resume(&id(name), false).unwrap();
        live.append(vec![say(text)]).unwrap();
        live.shutdown().unwrap();
    };
    append(&target, "ahead", "only here");
    append(&target, "both", "here");
    for name in ["both", "fine", "held"] {
        append(&source, name, "there");
    }
    thread_of(&target, "same-id", &["another thread"]);
    thread_of(&source, "same-id", &["one thread"]);
    let held = target.resume(&id("held"), false).unwrap();

    let report = copy(&source, &target);
    let problems: Vec<_> = report.problems.iter().map(|problem| (problem.thread.as_str(), problem.kind)).collect();
    assert_eq!(
        problems,
        [("ahead", "conflict"), ("both", "conflict"), ("held", "claim-held"), ("same-id", "conflict")]
    );
    assert_eq!((report.threads, report.updated, report.items), (5, 1, 1), "{report:?}");
    let texts = |name: &str| {
        let items = items_to(&target, &id(name), &ItemQuery::default());
        items.iter().map(|item| String::from_utf8_lossy(&item.content).into_owned()).collect::<Vec<_>>().join(" ")
    };
    assert!(texts("ahead").contains("only here") && texts("both").contains("here") && !texts("both").contains("there"));
    assert!(texts("fine").contains("there"));

    held.shutdown().unwrap();
    assert_eq!(copy(&source, &target).updated, 1);
    assert!(target.verify_all(|_| {}).unwrap().invalid.is_empty());

    // What verification would reject does not leave its store.
    let damaged = open(temp.path());
    thread_of(&damaged, "damaged", &["a", "b"]);
    thread_of(&damaged, "whole", &["c"]);
    drop(damaged);
    let sql = rusqlite::Connection::open(temp.path().join("threadkeep.db")).unwrap();
    let change = "UPDATE items SET content = CAST('forged' AS BLOB), encoding = 0, size = 6 WHERE key = \
                  (SELECT min(key) + 1 FROM items WHERE key >> 32 = (SELECT key FROM branches WHERE thread = 'damaged'))";
    assert_eq!(sql.execute(change, []).unwrap(), 1);
    drop(sql);
    let report = copy(&open(temp.path()), &target);
    assert_eq!((report.new, report.problems.len()), (1, 1), "{report:?}");
    assert_eq!((report.problems[0].thread.as_str(), report.problems[0].kind), ("damaged", "corrupt"));
    assert!(target.get(&id("whole")).is_ok());
    assert!(matches!(target.get(&id("damaged")), Err(Error::NotFound { .. })));
    assert!(target.verify_all(|_| {}).unwrap().invalid.is_empty());
}

#[test]
fn metadata_that_was_changed_in_the_copy_stays_and_items_go_on() {
    let (source, target) = (memory(), memory());
    thread_of(&source, "t", &["a"]);
    copy(&source, &target);
    target.update(&id("t"), ThreadPatch::title("mine")).unwrap();
    target.update(&id("t"), ThreadPatch::title("mine, again")).unwrap();
    source.update(&id("t"), ThreadPatch::title("theirs")).unwrap();
    let live = source.resume(&id("t"), false).unwrap();
    live.append(vec![say("b")]).unwrap();
    assert_eq!(copy(&source, &target).updated, 1);
    let copied = target.get(&id("t")).unwrap();
    assert_eq!((copied.details.title.as_deref(), copied.items), (Some("mine, again"), 2));
    assert!(copied.holder.is_none(), "the claim stays where it is");
    live.append(vec![say("c")]).unwrap();
}

fn import(store: &Store, from: &str, number: u64, consumed: i64, records: i64) {
    let name = id("imported");
    let live = match store.resume(&name, false) {
        Ok(live) => live,
        Err(_) => store.workspace(Path::new("/w")).unwrap().create(named("imported")).unwrap(),
    };
    let found = store.source(from).unwrap();
    let position = found.as_ref().map_or(0, |found| found.consumed);
    let item = NewItem::raw(Kind::Message, "codex", format!("record {number}").into_bytes());
    let item = item.with_id(format!("01900000-0000-7000-8000-00000000000{number}").parse().unwrap());
    let length = i64::try_from(item.content.len()).unwrap();
    let part = ImportPart::Item { item: Box::new(item), after: None, starts_turn: true, note: b"n".to_vec() };
    let beside = ImportPart::Beside { bytes: b"{damaged".to_vec() };
    let beside = ImportSegment { position: position + length + 1, length: 8, part: beside };
    let source = SourceFile {
        agent: "codex".into(),
        path: from.into(),
        thread: Some(name),
        size: consumed,
        mtime: consumed,
        consumed,
        prefix: Hash::of(&consumed.to_le_bytes()),
        records,
        skipped: 0,
        state: Vec::new(),
    };
    let batch = ImportBatch {
        source,
        expected: found.map(|found| (found.consumed, found.prefix)),
        replace: false,
        segments: vec![ImportSegment { position, length, part }, beside],
        screened: false,
        head: None,
        patch: None,
        updated_at: None,
    };
    live.import(batch, threadkeep::Durability::Synced).unwrap();
    live.shutdown().unwrap();
}

#[test]
fn imported_files_go_along_and_grow() {
    let (source, target, path) = (memory(), memory(), "/home/a/session.jsonl");
    for (number, consumed) in [(0, 30), (1, 60)] {
        import(&source, path, number, consumed, i64::try_from(number).unwrap() + 1);
        assert_eq!(copy(&source, &target).problems, []);
        assert_eq!(target.source(path).unwrap(), source.source(path).unwrap());
        assert_eq!(target.source_parts(path, -1, 100).unwrap(), source.source_parts(path, -1, 100).unwrap());
        assert_eq!(target.source_stamps("", 10).unwrap().len(), 1);
        assert_eq!(copy(&source, &target).unchanged, 1);
    }
    assert_same(&source, &target, "imported");
}

#[test]
fn there_and_back_and_through_a_third_store() {
    let (first, second, third) = (memory(), memory(), memory());
    thread_of(&first, "a", &["1", "2"]);
    thread_of(&second, "b", &["3"]);
    copy(&first, &second);
    copy(&second, &first);
    copy(&second, &third);
    assert_eq!(threads(&first).len(), 2);
    copy(&third, &first);
    for store in [&first, &second, &third] {
        assert_eq!(items_to(store, &id("a"), &ItemQuery::default()), items_to(&first, &id("a"), &ItemQuery::default()));
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
        // Each goes on by itself, under a writer of its own.
        store.resume(&id("b"), false).unwrap().append(vec![say("4")]).unwrap();
    }
    assert!(matches!(first.copy_from(&first, &mut |_| {}), Err(Error::Invalid { .. })));
}

/// A store that was put back to an older copy gets what it had written meanwhile from the other store. What its writer writes
/// then must not stand below that, by tick or by epoch.
#[test]
fn what_was_lost_with_an_older_copy_comes_back_and_the_writer_goes_on_behind_it() {
    for left in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let (folder, other) = (temp.path().join("store"), memory());
        let store = open(&folder);
        thread_of(&store, "t", &["1"]);
        let backup = store.backup(&temp.path().join("backup.db")).unwrap();
        for number in 0..20 {
            let live = store.resume(&id("t"), false).unwrap();
            live.append(vec![say(&number.to_string())]).unwrap();
            live.shutdown().unwrap();
        }
        copy(&store, &other);
        drop(store);
        Store::restore_backup(StoreOptions::folder(&folder), &backup.file).unwrap();
        if left {
            leave_a_claim(&folder, "t");
        }
        let store = open(&folder);
        assert_eq!(copy(&other, &store).problems, []);
        store.resume(&id("t"), false).unwrap().append(vec![say("behind")]).unwrap();
        let report = store.verify_all(|_| {}).unwrap();
        assert!(report.invalid.is_empty() && report.items == 22, "left {left}: {report:?}");
    }
}

/// A claim whose holder is dead.
fn leave_a_claim(folder: &Path, thread: &str) {
    let rows = rusqlite::Connection::open(folder.join("threadkeep.db")).unwrap();
    let claim = "INSERT INTO claims (thread, epoch, holder, machine, hostname, pid, label, boot, namespace, start_ticks, acquired_at,
        heartbeat_at) SELECT id, epoch, 'nobody', 'm', 'h', 1, 'dead', '', '', 0, 0, 0 FROM threads WHERE id = ?1";
    assert_eq!(rows.execute(claim, [thread]).unwrap(), 1);
}

#[test]
fn random_histories_are_copied_to_a_server_and_back() {
    let Some(server) = server::server() else { return };
    for seed in 1..=3 {
        let there = Store::open(StoreOptions::postgres(&server.address()).unwrap()).unwrap();
        let back = memory();
        let mut history = History::new(ticking(), seed);
        for round in 0..4 {
            (0..25).for_each(|_| history.step());
            let why = format!("seed {seed}, round {round}");
            for (from, to) in [(&history.store, &there), (&there, &back)] {
                assert_eq!(copy(from, to).problems, [], "{why}");
                purge_what_is_gone(&history.store, to);
                assert_same(&history.store, to, &why);
            }
        }
        assert_eq!(copy(&history.store, &there).items, 0);
    }
}
