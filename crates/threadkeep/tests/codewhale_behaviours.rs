//! What a user of CodeWhale's `StateStore` relies on, and its parity tests, promise by promise, on this store.
#![cfg(test)]

#[path = "upgrades/fixed_host.rs"]
mod fixed_host;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use fixed_host::FixedHost;
use rusqlite::Connection;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Address, AppendOptions, Change, Error, Item, ItemQuery, Kind, ListQuery, NewItem, NewThread, Role, Shelf, Shelves,
    SortKey, Status, StoreOptions, ThreadId, ThreadPatch,
};

const DATABASE: &str = "threadkeep.db";
/// Names by threads, beside the rollouts.
const INDEX: &str = "session_index.jsonl";
/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(60);
/// For how long a lock is held, so that a call that does not wait for it is told.
const HELD: Duration = Duration::from_millis(300);

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn sql(folder: &Path) -> Connection {
    Connection::open(folder.join(DATABASE)).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn create(store: &Store, name: &str) -> LiveThread {
    store.workspace(Path::new("/w")).unwrap().create_now(named(name)).unwrap()
}

fn message(text: &str) -> NewItem {
    NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, "text", text.into()) }
}

/// Appends one message and says where it stands.
fn say(live: &LiveThread, text: &str) -> Address {
    live.append(vec![message(text)]).unwrap().items[0].address()
}

fn path_of(store: &Store, thread: &ThreadId, at: Option<Address>) -> Vec<Item> {
    store.items(thread, ItemQuery { at, ..ItemQuery::default() }).unwrap().entries
}

fn texts(store: &Store, thread: &ThreadId) -> Vec<String> {
    path_of(store, thread, None).into_iter().map(|item| String::from_utf8(item.content).unwrap()).collect()
}

fn journal_mode(folder: &Path) -> String {
    sql(folder).query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap()
}

/// Runs a call that must wait for a lock, frees the lock when it has been seen to wait, and gives what the call answers.
fn while_locked<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static, free: impl FnOnce()) -> T {
    let (tell, answer) = channel();
    std::thread::spawn(move || drop(tell.send(call())));
    assert!(answer.recv_timeout(HELD).is_err(), "the call did not wait for the lock");
    free();
    answer.recv_timeout(HANG).expect("the call does not come back after the lock is free")
}

// 5-8: connections.

/// Promise 5: clones share one store, foreign keys are enforced, and the journal is a write-ahead log.
#[test]
fn clones_share_one_store_with_foreign_keys_and_a_write_ahead_log() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let clone = store.clone();
    let live = create(&store, "t");
    say(&live, "one");
    assert_eq!(texts(&clone, &id("t")), ["one"], "a clone of a store in memory sees another store");
    drop(store);
    say(&live, "two");
    assert_eq!(texts(&clone, &id("t")), ["one", "two"], "the clone ended with the first handle");

    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    assert_eq!(journal_mode(temp.path()), "wal");
    // The library's own connection enforces foreign keys: a workspace that is gone can't get a thread.
    let (gone, stays) = (store.workspace(Path::new("/gone")).unwrap(), store.workspace(Path::new("/stays")).unwrap());
    store.remap(gone.info().id, stays.info().id).unwrap();
    let refused = gone.create_now(named("orphan")).map(drop);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert!(matches!(store.get(&id("orphan")), Err(Error::NotFound { .. })));
    // And the schema enforces parents whoever writes.
    say(&create(&store, "t"), "one");
    let orphan =
        "INSERT INTO items SELECT key + 5, randomblob(16), turn, kind, role, format, writer, epoch, tick, created_at,
        source_id, sources, chain, salt, digest, hash, size, encoding, content FROM items";
    sql(temp.path()).execute(orphan, []).unwrap_err();
}

/// Promise 6: opening waits for a lock of 200 ms and more, and ends with a write-ahead log.
#[test]
fn opening_waits_for_an_exclusive_lock_and_ends_in_wal() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().to_owned();
    say(&create(&open(&folder), "t"), "one");
    let other = sql(&folder);
    other.execute_batch("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE").unwrap();
    let opened =
        while_locked(move || Store::open(StoreOptions::folder(folder)), || other.execute_batch("COMMIT").unwrap());
    let store = opened.unwrap();
    assert_eq!(texts(&store, &id("t")), ["one"]);
    assert_eq!(journal_mode(temp.path()), "wal");

    // The same where another process is just creating the store.
    let folder = temp.path().join("new");
    std::fs::create_dir(&folder).unwrap();
    let lock = std::fs::File::create(folder.join("open.lock")).unwrap();
    lock.lock().unwrap();
    let opened = {
        let folder = folder.clone();
        while_locked(move || Store::open(StoreOptions::folder(folder)), move || drop(lock))
    };
    say(&create(&opened.unwrap(), "t"), "one");
    assert_eq!(journal_mode(&folder), "wal");
}

/// Promise 7: a write waits for an active writer and succeeds after it; on the path of appends, too, where CodeWhale fails.
#[test]
fn an_append_waits_for_another_writer_and_succeeds() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = create(&store, "t");
    say(&live, "one");
    let other = sql(temp.path());
    other.execute_batch("BEGIN IMMEDIATE; UPDATE counters SET value = value").unwrap();
    let appended = {
        let live = live.clone();
        while_locked(move || live.append(vec![message("two")]), || other.execute_batch("COMMIT").unwrap())
    };
    assert_eq!(appended.unwrap().items[0].depth, 1);

    // The other one committed meanwhile: CodeWhale's append then fails at once.
    let gate = std::fs::File::open(temp.path().join("write.gate")).unwrap();
    gate.lock().unwrap();
    let changed = other.execute("UPDATE threads SET title = 'by the other'", []).unwrap();
    let appended = {
        let live = live.clone();
        while_locked(move || live.append(vec![message("three")]), || gate.unlock().unwrap())
    };
    assert_eq!((changed, appended.unwrap().items[0].depth), (1, 2));
    assert_eq!(store.get(&id("t")).unwrap().details.title.as_deref(), Some("by the other"));
    assert_eq!(texts(&store, &id("t")), ["one", "two", "three"]);
}

/// Promise 7, its bound: who waits too long is told so by type, nothing is stored, and the same handle stores it later.
#[test]
fn a_writer_that_never_ends_is_a_typed_busy_after_the_bound() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(temp.path()).busy_bound(Duration::from_millis(50))).unwrap();
    let live = create(&store, "t");
    say(&live, "one");
    let gate = std::fs::File::open(temp.path().join("write.gate")).unwrap();
    gate.lock().unwrap();
    let busy = live.append(vec![message("two")]);
    assert!(matches!(&busy, Err(error @ Error::Busy { .. }) if error.is_retryable()), "{busy:?}");
    assert_eq!(texts(&store, &id("t")), ["one"], "readers do not wait for writers");
    gate.unlock().unwrap();
    live.flush().unwrap();
    assert_eq!(texts(&store, &id("t")), ["one", "two"]);
}

/// Promise 8: reopening a full store whose header says 0 works, and rewrites no parent and no head.
#[test]
fn a_lost_schema_number_rewrites_no_history() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = create(&store, "t");
    let fork = (0..4).map(|number| say(&live, &number.to_string())).collect::<Vec<_>>()[1];
    live.append_with(vec![message("fork")], AppendOptions { after: Some(fork), ..AppendOptions::default() }).unwrap();
    live.rewind(Address { depth: 3, ..fork }).unwrap();
    let before = (store.tree(&id("t")).unwrap(), texts(&store, &id("t")));
    drop((live, store));
    sql(temp.path()).execute_batch("PRAGMA user_version = 0").unwrap();
    for _ in 0..2 {
        let store = open(temp.path());
        assert_eq!((store.tree(&id("t")).unwrap(), texts(&store, &id("t"))), before);
        assert_eq!(before.0.leaves().len(), 2);
        assert!(store.verify(&id("t")).unwrap().is_intact());
    }
}

// 17-19: the index beside the rollouts, from which CodeWhale reads names.

/// Mirrors when it is this store's turn: on a slow disk others have the folder for longer than a call waits.
fn mirror(store: &Store, folder: &Path) {
    let begun = Instant::now();
    let report = loop {
        match store.mirror_rollouts(Some(folder), None, |_| {}) {
            Err(Error::Busy { .. }) if begun.elapsed() < HANG => {}
            outcome => break outcome.unwrap(),
        }
    };
    assert_eq!(report.problems, []);
}

/// The names in an index by their threads: the last line of a thread counts, and a line that can't be read is passed over.
fn names_in(folder: &Path) -> BTreeMap<String, String> {
    let bytes = std::fs::read(folder.join(INDEX)).unwrap();
    let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let name =
        |line: serde_json::Value| (line["id"].as_str().unwrap().to_owned(), line["name"].as_str().unwrap().to_owned());
    lines.map(name).collect()
}

/// Promise 18, and the defect that its test leaves: wherever the last line was torn, also inside of a character, it costs itself
/// alone, and what is noted after it counts.
#[test]
fn a_torn_end_of_the_index_costs_itself_alone() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let live = create(&store, "t");
    say(&live, "one");
    store.update(&id("t"), ThreadPatch::title("项目 ü")).unwrap();
    let temp = tempfile::tempdir().unwrap();
    mirror(&store, temp.path());
    let index = temp.path().join(INDEX);
    let whole = std::fs::read(&index).unwrap();
    assert!(!whole.is_ascii(), "the name is not in the index as it is: this proves nothing");
    say(&create(&store, "other"), "one");
    for cut in 1..whole.len() {
        std::fs::write(&index, &whole[..cut]).unwrap();
        mirror(&store, temp.path());
        let names = names_in(temp.path());
        assert_eq!(names.get("t").map(String::as_str), Some("项目 ü"), "cut at {cut}");
        assert!(names.contains_key("other"), "cut at {cut}: what was noted next is lost");
    }
}

/// Promises 17 and 19: the index is compacted to a line for each thread, the last name wins, and nothing that others note
/// meanwhile is lost.
#[test]
fn programs_that_compact_the_index_at_once_lose_no_line_of_each_other() {
    const PROGRAMS: usize = 6;
    let temp = tempfile::tempdir().unwrap();
    let seed = Store::open(StoreOptions::memory()).unwrap();
    say(&create(&seed, "seed"), "one");
    mirror(&seed, temp.path());
    let index = temp.path().join(INDEX);
    let padding = std::fs::read_to_string(&index).unwrap().repeat(600);
    let together = Barrier::new(PROGRAMS);
    std::thread::scope(|scope| {
        for number in 0..PROGRAMS {
            let (folder, together, index, padding) = (temp.path(), &together, &index, padding.as_str());
            scope.spawn(move || {
                let store = Store::open(StoreOptions::memory()).unwrap();
                let thread = format!("t{number}");
                say(&create(&store, &thread), "one");
                for round in 0..5 {
                    if together.wait().is_leader() {
                        // So much that is old that everybody compacts.
                        let mut file = std::fs::File::options().append(true).open(index).unwrap();
                        file.write_all(padding.as_bytes()).unwrap();
                    }
                    together.wait();
                    store.update(&id(&thread), ThreadPatch::title(format!("round {round}"))).unwrap();
                    mirror(&store, folder);
                    together.wait();
                    let names = names_in(folder);
                    assert_eq!(names.len(), PROGRAMS + 1, "{names:?}");
                    let last = format!("round {round}");
                    assert!(names.iter().all(|(name, title)| name == "seed" || *title == last), "{names:?}");
                }
            });
        }
    });
    let text = std::fs::read_to_string(&index).unwrap();
    assert!(text.lines().count() <= 2 * (PROGRAMS + 1) + 256, "nobody compacted it: this proves nothing");
}

/// A purged thread's name is in no line: CodeWhale's stays and is still found.
#[test]
fn the_index_forgets_a_purged_thread() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    for name in ["stays", "goes"] {
        let live = create(&store, name);
        say(&live, "one");
        store.update(&id(name), ThreadPatch::title(format!("title of {name}"))).unwrap();
        live.shutdown().unwrap();
    }
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let rollout = store.rollout_path(&id("goes")).unwrap();
    assert!(rollout.is_file());
    store.delete(&id("goes")).unwrap();
    store.purge(&id("goes")).unwrap();
    let text = std::fs::read_to_string(temp.path().join("rollouts").join(INDEX)).unwrap();
    assert!(text.contains("title of stays") && !text.contains("title of goes"), "{text}");
    assert!(!rollout.exists());
    assert!(matches!(store.find("title of goes"), Err(Error::NotFound { .. })));
}

// 20: metadata.

/// Promise 20: what is written of a thread is read back, name, memory mode and rollout path included; archived threads are
/// listed on request.
#[test]
fn metadata_round_trips_and_archived_threads_are_listed_on_request() {
    let temp = tempfile::tempdir().unwrap();
    // Threads of one millisecond are listed by their ids: here each has its own.
    let ticking = || Store::open(StoreOptions::folder(temp.path()).host(FixedHost::ticking(1))).unwrap();
    let store = ticking();
    let mut thread = named("t");
    thread.status = Some(Status::Running);
    thread.ephemeral = true;
    let details = &mut thread.details;
    details.title = Some("Fix the login".into());
    details.preview = Some("Why does the login test fail?".into());
    details.memory_mode = Some("enabled".into());
    details.rollout_path = Some("/home/a/.codewhale/rollouts/t.jsonl".into());
    details.provider = Some("deepseek".into());
    details.cwd = Some("/w/项目".into());
    details.working_path = Some("/w/src".into());
    details.cli_version = Some("0.8.1".into());
    details.source = Some("interactive".into());
    details.sandbox_policy = Some("workspace-write".into());
    details.approval_policy = Some("on-request".into());
    details.git_sha = Some("75dca2cfb".into());
    details.git_branch = Some("main".into());
    details.git_origin = Some("https://example.org/shop.git".into());
    details.extra.insert("theme".into(), serde_json::json!({"dark": [1, null, "x"]}));
    let wanted = details.clone();
    store.workspace(Path::new("/w")).unwrap().create_now(thread).unwrap();
    create(&store, "other");

    let read = store.get(&id("t")).unwrap();
    assert_eq!((&read.details, &read.status, read.shelf), (&wanted, &Status::Running, Shelf::Active));
    // A change of one field erases no other: CodeWhale's resume wrote NULL over policies.
    let patch = ThreadPatch { model: Change::Set("v4".into()), memory_mode: Change::Clear, ..ThreadPatch::default() };
    store.update(&id("t"), patch).unwrap();
    let wanted = threadkeep::Details { model: Some("v4".into()), memory_mode: None, ..wanted };
    store.archive(&id("t")).unwrap();
    drop(store);

    let store = ticking();
    let ids = |shelves| {
        let query = ListQuery { shelves, sort: SortKey::Created, ascending: true, ..ListQuery::default() };
        let page = store.list(query).unwrap();
        page.entries.into_iter().map(|thread| thread.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(Shelves::Active), ["other"]);
    assert_eq!(ids(Shelves::Archived), ["t"]);
    assert_eq!(ids(Shelves::Both), ["t", "other"]);
    let archived = store.get(&id("t")).unwrap();
    assert_eq!((&archived.details, archived.shelf, archived.ephemeral), (&wanted, Shelf::Archived, true));
    assert!(archived.archived_at.is_some());
    // The status from before the archive is kept: CodeWhale makes it idle.
    let back = store.unarchive(&id("t")).unwrap();
    assert_eq!((back.status, back.shelf, back.archived_at), (Status::Running, Shelf::Active, None));
    assert_eq!(ids(Shelves::Active), ["t", "other"]);
}

// 21, 23: stores of every schema are in `upgrades.rs`.

/// Every status is kept as it was said, and archiving is none of them.
#[test]
fn every_status_comes_back_and_survives_the_archive() {
    let temp = tempfile::tempdir().unwrap();
    let words = ["running", "idle", "completed", "failed", "paused", "waiting_approval"];
    let store = open(temp.path());
    for word in words {
        let mut thread = named(word);
        thread.status = Some(Status::from_word(word));
        store.workspace(Path::new("/w")).unwrap().create_now(thread).unwrap();
        store.archive(&id(word)).unwrap();
    }
    drop(store);
    let store = open(temp.path());
    for word in words {
        let archived = store.get(&id(word)).unwrap();
        assert_eq!((archived.status.as_str(), archived.shelf), (word, Shelf::Archived));
        assert_eq!(store.unarchive(&id(word)).unwrap().status.as_str(), word);
    }
}

/// Folders whose names are no UTF-8 are told apart: CodeWhale writes the same sign for every byte that it can't read.
#[test]
fn folders_whose_names_are_no_utf8_are_told_apart() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let folder = |last: u8| PathBuf::from(OsStr::from_bytes(&[b'/', b'w', b'/', last]));
    let one = store.workspace(&folder(0xff)).unwrap();
    let two = store.workspace(&folder(0xfe)).unwrap();
    assert_ne!(one.info().id, two.info().id);
    assert_eq!(store.workspace(&folder(0xff)).unwrap().info().id, one.info().id);
    let live = one.create_now(named("t")).unwrap();
    live.shutdown().unwrap();
    assert!(two.list(ListQuery::default()).unwrap().entries.is_empty());
}

/// What a purge frees goes back to the disk when the store is compacted: CodeWhale's file keeps its size.
#[test]
fn compacting_gives_the_room_of_what_was_purged_back() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    for name in ["goes", "stays"] {
        let live = create(&store, name);
        let noise: Vec<NewItem> = (0..200_u32)
            .map(|number| {
                let bytes: Vec<u8> = (0..200_u32)
                    .flat_map(|part| *blake3::hash(format!("{name} {number} {part}").as_bytes()).as_bytes())
                    .collect();
                NewItem::raw(Kind::Message, "bytes", bytes)
            })
            .collect();
        live.append(noise).unwrap();
        live.shutdown().unwrap();
    }
    let full = store.stats().unwrap().file_bytes;
    store.delete(&id("goes")).unwrap();
    store.purge(&id("goes")).unwrap();
    let compacted = store.compact().unwrap();
    assert_eq!(compacted.remains, [""; 0]);
    assert!(compacted.bytes_after < full * 2 / 3, "{compacted:?} of {full}");
    assert_eq!(compacted.bytes_after, store.stats().unwrap().file_bytes);
    assert_eq!(path_of(&store, &id("stays"), None).len(), 200);
    assert!(store.verify(&id("stays")).unwrap().is_intact());
}

// 22: equal times.

/// Promise 22: messages of the same second follow one another in the order of their appends, and the last one is the latest;
/// so it is for threads, where CodeWhale gives the oldest.
#[test]
fn what_has_the_same_time_keeps_the_order_of_its_writing() {
    let temp = tempfile::tempdir().unwrap();
    let options = || StoreOptions::folder(temp.path()).host(FixedHost::ticking(0));
    let store = Store::open(options()).unwrap();
    let names = ["c", "a", "d", "b"];
    for name in names {
        let live = create(&store, name);
        for number in 0..6 {
            say(&live, &number.to_string());
        }
        live.append((6..9).map(|number| message(&number.to_string())).collect()).unwrap();
        live.shutdown().unwrap();
    }
    drop(store);
    let store = Store::open(options()).unwrap();
    for name in names {
        let items = path_of(&store, &id(name), None);
        assert!(
            items.iter().all(|item| item.created_at == items[0].created_at),
            "the clock moved: this proves nothing"
        );
        assert_eq!(texts(&store, &id(name)), (0..9).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!((0_u32..).zip(&items).all(|(depth, item)| item.depth == depth));
        let newest = ItemQuery { newest_first: true, limit: 1, ..ItemQuery::default() };
        assert_eq!(store.items(&id(name), newest).unwrap().entries[0].content, b"8");
    }
    assert_eq!(store.latest().unwrap(), Some(id("b")));
    for sort in [SortKey::Activity, SortKey::Updated] {
        // One at a time, so that the order holds across pages.
        let (mut listed, mut query) = (Vec::new(), ListQuery { sort, limit: 1, ..ListQuery::default() });
        while listed.len() < 9 {
            let page = store.list(query.clone()).unwrap();
            listed.extend(page.entries.into_iter().map(|thread| thread.id.to_string()));
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        assert_eq!(listed, ["b", "d", "a", "c"], "{sort:?}");
    }
}

// 24: forks.

/// Promise 24: CodeWhale's parity test of forks, step by step; with what it lacks: cleared items stay readable.
#[test]
fn the_parity_test_of_forks() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let (live, thread) = (create(&store, "t"), id("t"));
    let messages: Vec<Address> = (0..5).map(|number| say(&live, &number.to_string())).collect();
    let leaves = || store.tree(&thread).unwrap().leaves();
    assert_eq!(leaves(), [messages[4]]);

    // Writing the metadata again does not lose the leaf.
    store.update(&thread, ThreadPatch::title("again")).unwrap();
    assert_eq!(store.get(&thread).unwrap().head, Some(messages[4]));
    assert_eq!(texts(&store, &thread), ["0", "1", "2", "3", "4"]);

    // Fork at the third message.
    let at_third = AppendOptions { after: Some(messages[2]), ..AppendOptions::default() };
    let fork = live.append_with(vec![message("5")], at_third).unwrap().items[0].address();
    assert_eq!(texts(&store, &thread), ["0", "1", "2", "5"]);
    assert_eq!(leaves(), [messages[4], fork]);
    assert_eq!(store.get(&thread).unwrap().head, Some(fork));

    // Set the leaf back to the fifth, and go on from there.
    live.rewind(messages[4]).unwrap();
    assert_eq!(texts(&store, &thread), ["0", "1", "2", "3", "4"]);
    let sixth = say(&live, "6");
    assert_eq!(texts(&store, &thread), ["0", "1", "2", "3", "4", "6"]);
    assert_eq!(leaves(), [sixth, fork]);
    assert_eq!(sixth.branch, messages[4].branch, "going on at a tip is no fork");

    // What another thread continues is still a leaf of this one: CodeWhale loses it.
    store.fork(&thread, Some(fork), named("elsewhere")).unwrap();
    say(&store.resume(&id("elsewhere"), false).unwrap(), "theirs");
    assert_eq!(leaves(), [sixth, fork]);

    // Clear.
    assert_eq!(live.clear().unwrap(), 6);
    assert_eq!(leaves(), []);
    assert_eq!(store.get(&thread).unwrap().head, None);
    assert_eq!(live.head().unwrap(), None);
    assert!(path_of(&store, &thread, None).is_empty());
    assert_eq!(path_of(&store, &thread, Some(fork)).len(), 4, "clearing destroyed what was written");
    assert!(store.verify(&thread).unwrap().is_intact());

    // And a new start is a new root.
    assert_eq!(say(&live, "new").depth, 0);
    assert_eq!((texts(&store, &thread), leaves().len()), (vec!["new".to_owned()], 1));
    assert!(store.verify(&thread).unwrap().is_intact());
}
