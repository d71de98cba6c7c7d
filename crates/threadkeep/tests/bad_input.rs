//! What is wrong, foreign, damaged or too much: it is stored as it is, or refused by a typed error that leaves the file alone.
#![cfg(test)]

#[path = "disks/small_disk.rs"]
mod small_disk;

#[path = "bad_input/folders.rs"]
mod folders;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;

use small_disk::SmallDisk;
use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Address, AppendOptions, Durability, Error, ItemId, ItemQuery, Kind, ListQuery, MAX_CONTENT_BYTES, NewItem,
    NewThread, Role, Status, StoreOptions, ThreadId, ThreadPatch, TurnQuery, Uuid,
};

use folders::{DATABASE, all_items, id, named, noise, open, raw, sql};

fn open_read_only(folder: &Path) -> threadkeep::Result<Store> {
    Store::open(StoreOptions::folder(folder).read_only())
}

fn contents(store: &Store, thread: &ThreadId) -> Vec<Vec<u8>> {
    all_items(store, thread).into_iter().map(|item| item.content).collect()
}

/// A store with a thread `t` that has two branches of a few items, closed.
fn make_store(folder: &Path) {
    let store = open(folder).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    let first = live.append((0..5).map(|number| raw(format!("item {number}"))).collect()).unwrap();
    let after = Some(first.items[2].address());
    live.append_with(vec![raw("fork")], AppendOptions { after, ..AppendOptions::default() }).unwrap();
    live.append(vec![raw(noise(1, 100_000))]).unwrap();
    live.shutdown().unwrap();
}

/// Everything under a folder, byte by byte.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path.clone(), std::fs::read(&path).ok());
        }
    }
    found
}

/// Opening fails in both ways, and nothing in the folder changes by it.
fn assert_refused(folder: &Path, what: &str, is_expected: impl Fn(&Error) -> bool) {
    let before = snapshot(folder);
    for way in ["writing", "reading"] {
        match if way == "writing" { open(folder) } else { open_read_only(folder) } {
            Ok(_) => panic!("{what}: opened for {way}"),
            Err(error) => assert!(is_expected(&error), "{what}, for {way}: {error:?}"),
        }
        assert_unchanged(folder, &before, &format!("{what}, for {way}"));
    }
}

/// No file was made, removed or changed. A reader's engine may leave its index and an empty log: it can't tidy them away.
fn assert_unchanged(folder: &Path, before: &BTreeMap<PathBuf, Option<Vec<u8>>>, what: &str) {
    let mut after = snapshot(folder);
    let is_left_by_reader = |path: &Path, bytes: &Option<Vec<u8>>| {
        path.ends_with("threadkeep.db-shm")
            || path.ends_with("threadkeep.db-wal") && bytes.as_ref().is_some_and(Vec::is_empty)
    };
    after.retain(|path, bytes| before.contains_key(path) || !is_left_by_reader(path, bytes));
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>(),
        "{what}: files were made or removed"
    );
    assert!(after == *before, "{what}: a file was changed");
}

fn is_foreign(error: &Error) -> bool {
    matches!(error, Error::ForeignStore { path, .. } if path.ends_with(DATABASE))
}

fn is_corrupt(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. })
}

// Files.

#[test]
fn an_empty_folder_and_an_empty_file_become_a_store() {
    let temp = tempfile::tempdir().unwrap();
    for (name, prepare) in [("missing", false), ("empty", true)] {
        let folder = temp.path().join(name);
        if prepare {
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(DATABASE), "").unwrap();
        }
        make_store(&folder);
        let store = open(&folder).unwrap();
        assert_eq!(all_items(&store, &id("t")).len(), 5);
        assert!(store.verify(&id("t")).unwrap().is_intact());
    }
    // An empty database that somebody made and never used is nobody's.
    let folder = temp.path().join("unused");
    std::fs::create_dir(&folder).unwrap();
    sql(&folder).execute_batch("PRAGMA user_version = 1; PRAGMA user_version = 0; VACUUM").unwrap();
    assert!(std::fs::metadata(folder.join(DATABASE)).unwrap().len() > 0);
    make_store(&folder);
}

#[test]
fn a_file_of_another_program_is_refused_and_not_touched() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    let file = folder.join(DATABASE);
    let files: [(&str, Vec<u8>); 4] = [
        ("text", b"Dear diary, today I met a database that was none.".to_vec()),
        ("random bytes", noise(7, 20_000)),
        ("one wrong byte", b"SQLite format 4\0".repeat(100)),
        ("a line feed", b"\n".to_vec()),
    ];
    for (what, bytes) in files {
        std::fs::write(&file, bytes).unwrap();
        assert_refused(folder, what, is_foreign);
    }
    std::fs::remove_file(&file).unwrap();
    sql(folder).execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    assert_refused(folder, "tables without an application id", is_foreign);
    sql(folder).execute_batch("PRAGMA application_id = 1196444487; DROP TABLE theirs").unwrap();
    assert_refused(folder, "another application id", is_foreign);
    sql(folder).execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)").unwrap();
    assert_refused(folder, "another application id, with a write-ahead log", is_foreign);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_refused(folder, "a folder", is_foreign);
}

#[test]
fn a_store_that_was_cut_is_refused_and_not_touched() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    make_store(folder);
    let whole = std::fs::read(folder.join(DATABASE)).unwrap();
    let length = whole.len();
    for cut in [1, 10, 16, 40, 71, 72, 99, 100, 512, 4_095, 4_096, 8_192, length / 2, length - 4_096, length - 1] {
        std::fs::write(folder.join(DATABASE), &whole[..cut]).unwrap();
        assert_refused(folder, &format!("cut at {cut} of {length}"), is_corrupt);
    }
    std::fs::write(folder.join(DATABASE), &whole).unwrap();
    assert!(open(folder).unwrap().verify(&id("t")).unwrap().is_intact());
}

#[test]
fn a_cut_store_whose_log_is_left_reads_right_or_says_that_it_is_damaged() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    make_store(&source);
    // Checkpointed items in the file, and a later one in the log, as a killed process leaves them.
    let store = open(&source).unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    live.append(vec![raw("in the log")]).unwrap();
    let expected = contents(&store, &id("t"));
    let [file, log] = [DATABASE, "threadkeep.db-wal"].map(|name| std::fs::read(source.join(name)).unwrap());
    assert!(!log.is_empty());
    for cut in [0, 1, 100, 4_096, 8_192, file.len() / 2, file.len() - 4_096, file.len()] {
        let folder = temp.path().join(format!("cut-{cut}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(DATABASE), &file[..cut]).unwrap();
        std::fs::write(folder.join("threadkeep.db-wal"), &log).unwrap();
        let read = open(&folder).and_then(|store| {
            let items = store.items(&id("t"), ItemQuery::default())?.entries;
            Ok((items.into_iter().map(|item| item.content).collect::<Vec<_>>(), store.verify(&id("t"))?))
        });
        match read {
            Ok((items, verdict)) => {
                assert!(items == expected || !verdict.is_intact(), "cut at {cut}: items are missing silently");
            }
            Err(error) => assert!(is_corrupt(&error), "cut at {cut}: {error:?}"),
        }
    }
}

#[test]
fn a_creation_that_was_cut_off_is_taken_back_and_another_programs_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("source");
    std::fs::create_dir(&source).unwrap();
    // A transaction that has written a part of the file and not ended: the journal says how to take it back.
    let other = sql(&source);
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) INSERT INTO half SELECT randomblob(900) FROM n";
    other
        .execute_batch("PRAGMA user_version = 0; VACUUM; PRAGMA cache_size = 1; BEGIN; CREATE TABLE half (x)")
        .unwrap();
    other.execute_batch(fill).unwrap();
    // The power may also fail while the first page is written, so that its beginning is not there.
    for (copy, missing) in [("whole", 0), ("torn", 512)] {
        let folder = temp.path().join(copy);
        std::fs::create_dir(&folder).unwrap();
        for name in [DATABASE, "threadkeep.db-journal"] {
            std::fs::copy(source.join(name), folder.join(name)).unwrap();
        }
        let mut bytes = std::fs::read(folder.join(DATABASE)).unwrap();
        bytes[..missing].fill(0);
        std::fs::write(folder.join(DATABASE), bytes).unwrap();
        assert!(std::fs::metadata(folder.join("threadkeep.db-journal")).unwrap().len() > 0, "nothing to take back");
        // Only a folder in which a store was being created is known to be ours.
        assert_refused(&folder, "another program's", |_| true);
        std::fs::write(folder.join("open.lock"), "").unwrap();
        make_store(&folder);
        let database = sql(&folder);
        let rest: i64 =
            database.query_row("SELECT count(*) FROM sqlite_master WHERE name = 'half'", [], |row| row.get(0)).unwrap();
        assert_eq!(rest, 0);
        assert!(open(&folder).unwrap().verify(&id("t")).unwrap().is_intact());
    }
}

#[test]
fn damaged_pages_are_told_and_never_a_panic() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    make_store(folder);
    let whole = std::fs::read(folder.join(DATABASE)).unwrap();
    let mut header_only = vec![0; whole.len()];
    header_only[..100].copy_from_slice(&whole[..100]);
    std::fs::write(folder.join(DATABASE), header_only).unwrap();
    assert_refused(folder, "our header over nothing", |error| is_corrupt(error) || is_foreign(error));
    for page in 1..whole.len() / 4_096 {
        let mut bytes = whole.clone();
        bytes[page * 4_096..(page + 1) * 4_096].copy_from_slice(&noise(page as u64, 4_096));
        std::fs::write(folder.join(DATABASE), bytes).unwrap();
        let opened = open(folder).and_then(|store| {
            store.list(ListQuery::default())?;
            store.items(&id("t"), ItemQuery::default())?;
            store.verify(&id("t")).map(drop)
        });
        if let Err(error) = opened {
            let told = matches!(error, Error::Corrupt { .. } | Error::NotFound { .. });
            assert!(told, "page {page} is damaged: {error:?}");
        }
    }
}

#[test]
fn reading_only_creates_nothing_and_writes_are_refused_as_read_only() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("absent");
    let missing = open_read_only(&folder);
    assert!(matches!(missing, Err(Error::NotFound { what: "store", .. })), "{missing:?}");
    assert!(!folder.exists(), "reading only made a folder");

    make_store(&folder);
    let before = snapshot(&folder);
    let store = open_read_only(&folder).unwrap();
    assert_eq!(all_items(&store, &id("t")).len(), 5);
    assert!(store.verify(&id("t")).unwrap().is_intact());
    let workspace = store.find_workspace(Path::new("/w")).unwrap().unwrap();
    let refusals: Vec<(&str, threadkeep::Result<()>)> = vec![
        ("workspace", store.workspace(Path::new("/new")).map(drop)),
        ("create_now", workspace.create_now(NewThread::default()).map(drop)),
        ("append", workspace.create(NewThread::default()).unwrap().append(vec![raw("x")]).map(drop)),
        ("resume", store.resume(&id("t"), false).map(drop)),
        ("update", store.update(&id("t"), ThreadPatch::title("x")).map(drop)),
        ("archive", store.archive(&id("t")).map(drop)),
        ("delete", store.delete(&id("t")).map(drop)),
        ("end", store.end(&id("t"), Status::Completed, "x").map(drop)),
        ("fork", store.fork(&id("t"), None, NewThread::default()).map(drop)),
        ("label", store.label(&id("t"), all_items(&store, &id("t"))[0].branch, Some("x".into()))),
        ("sync", store.sync()),
    ];
    for (name, outcome) in refusals {
        assert!(matches!(outcome, Err(Error::ReadOnly { .. })), "{name}: {outcome:?}");
    }
    drop((workspace, store));
    assert_unchanged(&folder, &before, "reading only");
}

/// A newer schema is in `upgrades.rs`; this is one that only looks like it.
#[test]
fn a_damaged_record_of_the_schema_is_refused_and_not_touched() {
    let marks = [
        ("a step far behind the others", "INSERT INTO schema_migrations VALUES (999, 'future', 'x', 0)"),
        ("a number in the header that no step has", "PRAGMA user_version = 999"),
        ("no step at all", "DELETE FROM schema_migrations"),
        ("no record", "DROP TABLE schema_migrations"),
        ("a record in another form", "ALTER TABLE schema_migrations RENAME COLUMN number TO step"),
    ];
    for (what, mark) in marks {
        let temp = tempfile::tempdir().unwrap();
        make_store(temp.path());
        sql(temp.path()).execute_batch(mark).unwrap();
        assert_refused(temp.path(), what, is_corrupt);
    }
}

#[test]
fn an_edited_migration_is_refused_and_not_touched() {
    let temp = tempfile::tempdir().unwrap();
    make_store(temp.path());
    sql(temp.path()).execute("UPDATE schema_migrations SET checksum = 'edited' WHERE number = 1", []).unwrap();
    let names_it = |error: &Error| matches!(error, Error::Corrupt { place, .. } if place == "schema migration 1");
    assert_refused(temp.path(), "edited", names_it);
}

#[test]
fn a_lost_schema_number_over_full_tables_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    make_store(temp.path());
    let look = || {
        let store = open(temp.path()).unwrap();
        (store.get(&id("t")).unwrap(), store.tree(&id("t")).unwrap(), all_items(&store, &id("t")))
    };
    let before = look();
    assert_eq!(before.1.branches.len(), 2);
    sql(temp.path()).execute_batch("PRAGMA user_version = 0").unwrap();
    assert!(look() == before, "the header's number decided over the tables");
    let store = open(temp.path()).unwrap();
    assert!(store.verify(&id("t")).unwrap().is_intact());
    store.resume(&id("t"), false).unwrap().append(vec![raw("on")]).unwrap();
}

#[test]
fn threads_that_create_a_store_at_once_get_the_same_one() {
    for _ in 0..20 {
        let temp = tempfile::tempdir().unwrap();
        let barrier = Barrier::new(4);
        let ids: Vec<Uuid> = std::thread::scope(|scope| {
            let open_one = || {
                barrier.wait();
                open(temp.path()).unwrap().id()
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(open_one)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
}

// Names.

#[test]
fn thread_ids_that_are_empty_too_long_or_paths_are_refused() {
    let long = "x".repeat(129);
    let store = Store::open(StoreOptions::memory()).unwrap();
    for text in ["", &long, "../up", "/etc/passwd", "a/b", "..", "a\0b", "-x", "a b", "ünï"] {
        assert!(matches!(ThreadId::new(text), Err(Error::Invalid { field: "thread id", .. })), "{text:?}");
        assert!(serde_json::from_value::<ThreadId>(text.into()).is_err(), "{text:?} came in through JSON");
        if text != "-" {
            assert!(matches!(store.find(text), Err(Error::NotFound { .. })), "{text:?}");
        }
    }
    assert!(matches!("not-a-uuid".parse::<ItemId>(), Err(Error::Invalid { .. })));
    let longest = "x".repeat(128);
    let workspace = store.workspace(Path::new("/w")).unwrap();
    workspace.create_now(named(&longest)).unwrap();
    assert_eq!(store.find(&longest).unwrap().as_str(), longest);
    let again = workspace.create_now(named(&longest)).map(drop);
    assert!(matches!(again, Err(Error::AlreadyExists { what: "thread", .. })), "{again:?}");
}

#[test]
fn metadata_refuses_nul_and_keeps_what_was_stored() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    let live = workspace.create_now(named("t")).unwrap();
    live.append(vec![raw("kept")]).unwrap();
    let before = store.get(&id("t")).unwrap();
    let mut titled = NewThread::default();
    titled.details.title = Some("a\0b".into());
    let mut role = raw("x");
    role.role = Some(Role::Unknown("us\0er".into()));
    let mut source = raw("x");
    source.source_id = Some("a\0b".into());
    let outcomes: Vec<(&str, threadkeep::Result<()>)> = vec![
        ("title", workspace.create(titled).map(drop)),
        ("title", store.update(&id("t"), ThreadPatch::title("a\0b")).map(drop)),
        ("title", store.update(&id("t"), ThreadPatch::title("x".repeat(65 << 10))).map(drop)),
        ("end_reason", store.end(&id("t"), Status::Failed, "a\0b").map(drop)),
        ("kind", live.append(vec![NewItem::raw(Kind::Unknown("a\0b".into()), "text", vec![])]).map(drop)),
        ("kind", live.append(vec![NewItem::raw(Kind::Unknown(String::new()), "text", vec![])]).map(drop)),
        ("format", live.append(vec![NewItem::raw(Kind::Message, "te\0xt", vec![])]).map(drop)),
        ("role", live.append(vec![role]).map(drop)),
        ("source_id", live.append(vec![source]).map(drop)),
        ("label", store.label(&id("t"), all_items(&store, &id("t"))[0].branch, Some("a\0b".into()))),
        ("filter", store.list(ListQuery { text: Some("a\0b".into()), ..ListQuery::default() }).map(drop)),
    ];
    for (field, outcome) in outcomes {
        assert!(
            matches!(&outcome, Err(Error::Invalid { field: found, .. }) if *found == field),
            "{field}: {outcome:?}"
        );
    }
    assert_eq!(store.get(&id("t")).unwrap(), before);
    assert_eq!(contents(&store, &id("t")), [b"kept"]);
}

#[test]
fn another_workspaces_thread_reads_the_same_as_an_absent_one_in_every_operation() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let own = store.workspace(Path::new("/own")).unwrap();
    let other = store.workspace(Path::new("/other")).unwrap();
    for in_trash in [false, true] {
        let name = if in_trash { "trashed" } else { "active" };
        let mut thread = named(name);
        thread.details.title = Some(format!("the {name} one"));
        let live = own.create_now(thread).unwrap();
        let place = live.append(vec![raw("secret")]).unwrap().items[0].address();
        live.shutdown().unwrap();
        if in_trash {
            own.delete(&id(name)).unwrap();
        }
        let before = own.get(&id(name)).unwrap();
        let in_other = every_operation(&other, &id(name), place);
        let absent = every_operation(&other, &id("absent"), place);
        for ((operation, outcome), (_, absent)) in in_other.into_iter().zip(absent) {
            let Err(Error::NotFound { what, .. }) = &outcome else { panic!("{name}, {operation}: {outcome:?}") };
            let Err(Error::NotFound { what: in_absent, .. }) = &absent else {
                panic!("absent, {operation}: {absent:?}")
            };
            assert_eq!(what, in_absent, "{operation} tells a hidden thread from an absent one");
        }
        assert_eq!(own.get(&id(name)).unwrap(), before, "a hidden thread was changed");
        for name in [name, &name[..4], &format!("the {name} one"), "-"] {
            assert!(matches!(other.find(name), Err(Error::NotFound { .. })), "find {name}");
        }
    }
    assert_eq!(other.latest().unwrap(), None);
    assert!(other.list(ListQuery { limit: 10, ..ListQuery::default() }).unwrap().entries.is_empty());
    assert_eq!(other.verify_all(|_| {}).unwrap().threads, 0);
    assert_eq!(own.latest().unwrap(), Some(id("active")));
}

fn every_operation(place: &Workspace, thread: &ThreadId, at: Address) -> Vec<(&'static str, threadkeep::Result<()>)> {
    vec![
        ("get", place.get(thread).map(drop)),
        ("update", place.update(thread, ThreadPatch::title("mine")).map(drop)),
        ("archive", place.archive(thread).map(drop)),
        ("unarchive", place.unarchive(thread).map(drop)),
        ("delete", place.delete(thread).map(drop)),
        ("restore", place.restore(thread).map(drop)),
        ("purge", place.purge(thread).map(drop)),
        ("end", place.end(thread, Status::Completed, "mine").map(drop)),
        ("fork", place.fork(thread, None, NewThread::default()).map(drop)),
        ("fork at", place.fork(thread, Some(at), NewThread::default()).map(drop)),
        ("items", place.items(thread, ItemQuery::default()).map(drop)),
        ("items at", place.items(thread, ItemQuery { at: Some(at), ..ItemQuery::default() }).map(drop)),
        ("item", place.item(thread, at).map(drop)),
        ("address_at", place.address_at(thread, 0).map(drop)),
        ("model_context", place.model_context(thread, ItemQuery::default()).map(drop)),
        ("turns", place.turns(thread, TurnQuery::default()).map(drop)),
        ("open_turn", place.open_turn(thread).map(drop)),
        ("tree", place.tree(thread).map(drop)),
        ("label", place.label(thread, at.branch, Some("mine".into()))),
        ("sources", place.sources(thread).map(drop)),
        ("resume", place.resume(thread, true).map(drop)),
        ("verify", place.verify(thread).map(drop)),
    ]
}

// Items.

#[test]
fn a_parent_that_does_not_exist_is_not_found_and_nothing_is_stored() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    let foreign = workspace.create_now(named("other")).unwrap().append(vec![raw("theirs")]).unwrap().items[0].address();
    let live = workspace.create_now(named("t")).unwrap();
    let here = live.append(vec![raw("mine")]).unwrap().items[0].address();
    let before = store.get(&id("t")).unwrap();
    let wrong = [
        ("no such branch", Address { branch: ItemId::from_uuid(Uuid::from_u128(9)), depth: 0 }),
        ("beyond the tip", Address { depth: 1, ..here }),
        ("far beyond the tip", Address { depth: u32::MAX, ..here }),
        ("another thread's", foreign),
    ];
    for (what, address) in wrong {
        let after = AppendOptions { after: Some(address), ..AppendOptions::default() };
        let refused = live.append_with(vec![raw("orphan")], after);
        assert!(matches!(refused, Err(Error::NotFound { what: "item", .. })), "{what}: {refused:?}");
        assert!(matches!(live.rewind(address), Err(Error::NotFound { .. })), "{what}");
        assert!(
            matches!(store.fork(&id("t"), Some(address), NewThread::default()), Err(Error::NotFound { .. })),
            "{what}"
        );
    }
    assert_eq!(store.get(&id("t")).unwrap(), before);
    // The handle is as good as before.
    assert_eq!(live.append(vec![raw("next")]).unwrap().items[0].depth, 1);
}

#[test]
fn a_batch_with_one_invalid_item_stores_nothing() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    let taken = live.append(vec![raw("first")]).unwrap().items[0].id;
    let before = store.get(&id("t")).unwrap();
    let twin = ItemId::from_uuid(Uuid::from_u128(77));
    let mut citing = raw("cites what is not there");
    citing.sources = vec![twin];
    let batches = [
        ("a bad kind", vec![raw("a"), NewItem::raw(Kind::Unknown(String::new()), "text", vec![]), raw("c")]),
        ("a source that is not on the path", vec![raw("a"), citing, raw("c")]),
        ("an id that is taken", vec![raw("a"), raw("b").with_id(taken)]),
        ("an id twice", vec![raw("a").with_id(twin), raw("b").with_id(twin)]),
    ];
    for (what, batch) in batches {
        let refused = live.append(batch);
        assert!(
            matches!(refused, Err(Error::Invalid { .. } | Error::AlreadyExists { what: "item", .. })),
            "{what}: {refused:?}"
        );
        assert_eq!(store.get(&id("t")).unwrap(), before, "{what}");
    }
    assert!(live.take_unsaved().is_empty(), "a refused batch was kept");
    assert_eq!(live.append(vec![raw("second")]).unwrap().items[0].depth, 1);
    assert!(store.verify(&id("t")).unwrap().is_intact());
}

#[test]
fn any_bytes_come_back_as_they_were_given() {
    let temp = tempfile::tempdir().unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    let given: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\0".to_vec(),
        b"before\0after".to_vec(),
        br#"{"text":"\ud800 alone, and \u0000"}"#.to_vec(),
        b"\xff\xfe\xc3\x28\xed\xa0\x80".to_vec(),
        every_byte.clone(),
        every_byte.repeat(2_000),
        b"\xef\xbb\xbf{\"a\" : 1.50,\"a\":1e400}\r\n".to_vec(),
        b"QUJD".repeat(5_000),
        [b"{\"image\":\"".as_slice(), &b"QUJD".repeat(5_000), b"QQ==\",\"odd\":\"QR==\"}"].concat(),
        "🦀".repeat(50_000).into_bytes(),
    ];
    let store = open(temp.path()).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    for bytes in &given {
        live.append(vec![raw(bytes.clone())]).unwrap();
    }
    drop((live, store));
    let store = open(temp.path()).unwrap();
    assert!(contents(&store, &id("t")) == given, "bytes were changed");
    assert!(store.verify(&id("t")).unwrap().is_intact());
}

#[test]
fn large_items_are_stored_and_larger_ones_refused() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path()).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    let large = 64 << 20;
    for content in [vec![b' '; large], noise(3, large), vec![0; MAX_CONTENT_BYTES]] {
        let place = live.append(vec![raw(content.clone())]).unwrap().items[0].address();
        assert!(store.item(&id("t"), place).unwrap().content == content, "a large item changed");
    }
    let before = store.get(&id("t")).unwrap();
    let refused = live.append(vec![raw("small"), raw(vec![0; MAX_CONTENT_BYTES + 1])]);
    assert!(matches!(refused, Err(Error::Invalid { field: "content", .. })), "{refused:?}");
    assert_eq!(store.get(&id("t")).unwrap(), before);
    live.append(vec![raw("goes on")]).unwrap();
    assert!(store.verify(&id("t")).unwrap().is_intact());
}

// A full disk.

fn fill(disk: &SmallDisk) {
    let filled = std::fs::write(disk.path().join("filler"), noise(5, 8 << 20));
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

fn free(disk: &SmallDisk) {
    std::fs::remove_file(disk.path().join("filler")).unwrap();
}

/// A log needs an index beside it, which can't be made there.
#[test]
fn a_store_on_a_read_only_disk_can_be_read() {
    let Some(disk) = SmallDisk::mount(4, "a read-only disk") else {
        return;
    };
    let folder = disk.path().join("a ?strange%20 name");
    let store = open(&folder).unwrap();
    store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap().append(vec![raw("kept")]).unwrap();
    drop(store);
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status().unwrap();
    assert!(remounted.success());
    let store = open_read_only(&folder).unwrap();
    assert_eq!(contents(&store, &id("t")), [b"kept"]);
    let refused = store.update(&id("t"), ThreadPatch::title("x")).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
    assert!(matches!(open(&folder).unwrap_err(), Error::ReadOnly { .. }));
    assert!(matches!(open(&disk.path().join("new")).unwrap_err(), Error::ReadOnly { .. }));
}

fn append(live: &LiveThread, content: &[u8], durability: Durability) -> threadkeep::Result<()> {
    live.append_with(vec![raw(content)], AppendOptions { durability, ..AppendOptions::default() }).map(drop)
}

#[test]
fn a_full_disk_loses_nothing_and_the_same_handle_goes_on() {
    let Some(disk) = SmallDisk::mount(4, "a full disk") else {
        return;
    };
    let folder = disk.path().join("store");
    // Most of the room is taken, so that it can be given back.
    std::fs::write(disk.path().join("filler"), noise(5, 1 << 20)).unwrap();
    let store = open(&folder).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    let mut stored: Vec<Vec<u8>> = Vec::new();
    let refused = loop {
        let content = noise(stored.len() as u64 + 100, 16 << 10);
        match append(&live, &content, Durability::Synced) {
            Ok(()) => stored.push(content),
            Err(error) => break (content, error),
        }
        assert!(stored.len() < 1_000, "4 MiB hold more than 16 MiB");
    };
    assert!(matches!(refused.1, Error::StorageFull { .. }), "{:?}", refused.1);
    assert!(stored.len() > 20, "the disk was full before the store had written anything: {}", stored.len());
    let mut kept = vec![refused.0];
    for (number, durability) in [(1, Durability::Written), (2, Durability::Queued), (3, Durability::Synced)] {
        assert!(contents(&store, &id("t")) == stored, "reading while the disk is full");
        let content = noise(number, 16 << 10);
        let refused = append(&live, &content, durability);
        assert!(matches!(refused, Err(Error::StorageFull { .. })), "{durability:?}: {refused:?}");
        kept.push(content);
    }
    assert!(matches!(live.flush(), Err(Error::StorageFull { .. })));
    assert!(contents(&open_read_only(&folder).unwrap(), &id("t")) == stored, "another reader while the disk is full");
    assert!(store.verify(&id("t")).unwrap().is_intact());

    free(&disk);
    live.flush().unwrap();
    let expected: Vec<Vec<u8>> = stored.iter().chain(&kept).cloned().collect();
    assert_eq!(contents(&store, &id("t")).len(), expected.len());
    assert!(contents(&store, &id("t")) == expected, "what was kept is not stored in order, once each");
    assert!(live.take_unsaved().is_empty());
    append(&live, b"goes on", Durability::Synced).unwrap();
    live.shutdown().unwrap();
    drop((live, store));
    let store = open(&folder).unwrap();
    assert_eq!(contents(&store, &id("t")).len(), expected.len() + 1);
    assert!(store.verify(&id("t")).unwrap().is_intact());
    println!("full disk: {} items acknowledged, {} kept through it, lost 0", stored.len(), kept.len());
}

#[test]
fn the_first_append_of_a_thread_is_kept_through_a_full_disk_too() {
    let Some(disk) = SmallDisk::mount(4, "a full disk before the first append") else {
        return;
    };
    let store = open(&disk.path().join("store")).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create(named("t")).unwrap();
    fill(&disk);
    let first = noise(1, 64 << 10);
    let refused = append(&live, &first, Durability::Synced);
    assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
    free(&disk);
    live.flush().unwrap();
    assert!(contents(&store, &id("t")) == [first], "an append that was kept is not stored");
}

/// The index of the log is made by whoever opens the store first, and the engine has no word for a disk that has no room for it.
#[test]
fn opening_a_store_on_a_full_disk_says_so() {
    let Some(disk) = SmallDisk::mount(4, "opening on a full disk") else {
        return;
    };
    let folder = disk.path().join("store");
    make_store(&folder);
    let mut refused = 0;
    for room in [0, 4, 8, 16, 24, 32, 40] {
        fill(&disk);
        let filler = std::fs::File::options().write(true).open(disk.path().join("filler")).unwrap();
        let length = filler.metadata().unwrap().len();
        filler.set_len(length - (room << 10)).unwrap();
        drop(filler);
        match open(&folder) {
            Ok(store) => assert!(store.verify(&id("t")).unwrap().is_intact(), "{room} KiB"),
            Err(Error::StorageFull { .. }) => refused += 1,
            Err(error) => panic!("{room} KiB free: {error:?}"),
        }
        free(&disk);
        assert!(open(&folder).unwrap().verify(&id("t")).unwrap().is_intact());
    }
    assert!(refused > 0, "the disk was never full");
}

#[test]
fn a_store_is_not_half_created_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(4, "creating on a full disk") else {
        return;
    };
    let folder = disk.path().join("store");
    std::fs::create_dir(&folder).unwrap();
    fill(&disk);
    let refused = open(&folder);
    assert!(matches!(refused, Err(Error::StorageFull { .. })), "{refused:?}");
    free(&disk);
    make_store(&folder);
    assert!(open(&folder).unwrap().verify(&id("t")).unwrap().is_intact());
}

// Rows.

#[test]
fn words_of_a_newer_version_are_shown_and_kept() {
    let temp = tempfile::tempdir().unwrap();
    make_store(temp.path());
    let database = sql(temp.path());
    let words = "UPDATE threads SET status = 'waiting_approval'; UPDATE items SET kind = 'hologram', role = 'oracle'";
    database.execute_batch("DROP TRIGGER items_are_append_only").unwrap();
    database.execute_batch(words).unwrap();
    let store = open(temp.path()).unwrap();
    let unknown = Status::Unknown("waiting_approval".into());
    assert_eq!(store.get(&id("t")).unwrap().status, unknown);
    assert_eq!(store.list(ListQuery::default()).unwrap().entries[0].status, unknown);
    assert_eq!(store.update(&id("t"), ThreadPatch::title("renamed")).unwrap().status, unknown);
    assert_eq!(store.archive(&id("t")).unwrap().status, unknown);
    assert_eq!(store.unarchive(&id("t")).unwrap().status, unknown);
    let live = store.resume(&id("t"), false).unwrap();
    let word: String = database.query_row("SELECT status FROM threads", [], |row| row.get(0)).unwrap();
    assert_eq!(word, "waiting_approval");
    let item = &all_items(&store, &id("t"))[0];
    assert_eq!(
        (&item.kind, item.role.as_ref()),
        (&Kind::Unknown("hologram".into()), Some(&Role::Unknown("oracle".into())))
    );

    // Such a word may also be written, and is part of what the chain binds.
    let mut item = NewItem::raw(Kind::Unknown("hologram".into()), "text", b"x".to_vec());
    item.role = Some(Role::Unknown("oracle".into()));
    let place = live.append(vec![item]).unwrap().items[0].address();
    assert_eq!(store.item(&id("t"), place).unwrap().kind.as_str(), "hologram");
}

#[test]
fn a_thread_row_that_cannot_be_decoded_is_named_and_hides_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path()).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    for name in ["good-1", "damaged", "good-2"] {
        workspace.create_now(named(name)).unwrap().append(vec![raw(name)]).unwrap();
    }
    sql(temp.path()).execute("UPDATE threads SET extra = 'not json' WHERE id = 'damaged'", []).unwrap();
    let names_it = |error: &Error| matches!(error, Error::Corrupt { place, .. } if place.contains("damaged"));
    let outcomes: Vec<(&str, threadkeep::Result<()>)> = vec![
        ("get", store.get(&id("damaged")).map(drop)),
        ("update", store.update(&id("damaged"), ThreadPatch::title("x")).map(drop)),
        ("archive", store.archive(&id("damaged")).map(drop)),
    ];
    for (operation, outcome) in outcomes {
        let error = outcome.unwrap_err();
        assert!(names_it(&error), "{operation}: {error:?} does not name the thread");
    }
    // It stays listed, with what of it can be read.
    let listed = store.list(ListQuery::default()).unwrap().entries;
    let damage: Vec<(bool, &str)> = listed.iter().map(|it| (it.damage.is_some(), it.id.as_str())).collect();
    assert_eq!(damage, [(false, "good-2"), (true, "damaged"), (false, "good-1")]);
    // Its conversation can still be read and verified, and so can the others.
    assert_eq!(contents(&store, &id("damaged")), [b"damaged"]);
    assert!(store.verify(&id("damaged")).unwrap().is_intact());
    for name in ["good-1", "good-2"] {
        assert_eq!(store.get(&id(name)).unwrap().items, 1);
        assert_eq!(contents(&store, &id(name)), [name.as_bytes()]);
        store.update(&id(name), ThreadPatch::title("x")).unwrap();
    }
}

/// A thread of ten items of this content, with the number in front, and the branch they stand on.
fn ten_items(folder: &Path, filler: &[u8]) -> (Store, Address) {
    let store = open(folder).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    let items = (0..10).map(|number| raw([format!("{number} ").as_bytes(), filler].concat())).collect();
    let place = live.append(items).unwrap().items[4].address();
    (store, place)
}

/// Verify names the place, and what stands around it reads as before.
fn assert_only_this_is_damaged(store: &Store, place: Address, filler: &[u8], what: &str) {
    let verdict = store.verify(&id("t")).unwrap();
    assert_eq!(verdict.invalid.len(), 1, "{what}: {verdict:?}");
    assert_eq!(
        (verdict.invalid[0].branch, verdict.invalid[0].depth),
        (Some(place.branch), Some(place.depth)),
        "{what}"
    );
    let whole = |number: u32| [format!("{number} ").as_bytes(), filler].concat();
    for (from, to) in [(0, place.depth - 1), (place.depth + 1, 9)] {
        let query = ItemQuery { from, to: Some(to), ..ItemQuery::default() };
        let items = store.items(&id("t"), query).unwrap().entries;
        assert!(items.iter().map(|item| &item.content).eq(&(from..=to).map(whole).collect::<Vec<_>>()), "{what}");
    }
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!((report.threads, report.intact), (1, 0), "{what}");
}

#[test]
fn a_changed_byte_is_found_by_verify_at_its_branch_and_depth() {
    let short = b"short enough to be stored as it is";
    let long = b"long enough to be compressed ".repeat(40);
    let apart = noise(9, 200_000);
    for (what, filler) in [("plain", short.as_slice()), ("compressed", &long), ("stored apart", &apart)] {
        let temp = tempfile::tempdir().unwrap();
        let (store, place) = ten_items(temp.path(), filler);
        assert!(store.verify(&id("t")).unwrap().is_intact());
        let database = sql(temp.path());
        let depth = i64::from(place.depth);
        let (table, column, row) = if what == "stored apart" {
            let row =
                "SELECT b.rowid FROM item_blobs i JOIN blobs b ON b.digest = i.digest WHERE i.item & 4294967295 = ?1";
            ("blobs", "data", database.query_row(row, [depth], |row| row.get::<_, i64>(0)).unwrap())
        } else {
            let row = "SELECT key FROM items WHERE key & 4294967295 = ?1";
            ("items", "content", database.query_row(row, [depth], |row| row.get(0)).unwrap())
        };
        let flip = |at: usize| {
            let (read, write) = (
                format!("SELECT {column} FROM {table} WHERE rowid = ?1"),
                format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1"),
            );
            let mut bytes: Vec<u8> = database.query_row(&read, [row], |row| row.get(0)).unwrap();
            bytes[at] ^= 0x40;
            assert_eq!(database.execute(&write, rusqlite::params![row, bytes]).unwrap(), 1);
        };
        for at in [0, 3, 20] {
            flip(at);
            assert_only_this_is_damaged(&store, place, filler, &format!("{what}, byte {at}"));
            if what != "plain" && at == 0 {
                let read = store.item(&id("t"), place);
                assert!(matches!(read, Err(Error::Corrupt { .. })), "{what}, byte {at}: {read:?}");
            }
            flip(at);
            assert!(store.verify(&id("t")).unwrap().is_intact());
        }
    }
}

#[test]
fn a_changed_field_and_a_missing_item_are_found_by_verify() {
    let temp = tempfile::tempdir().unwrap();
    let (store, place) = ten_items(temp.path(), b"text");
    let database = sql(temp.path());
    // The schema itself refuses to change an item and to break a path.
    let forbidden = [
        "DELETE FROM items WHERE key & 4294967295 = 4",
        "UPDATE items SET hash = zeroblob(32)",
        "UPDATE items SET kind = 'event'",
        "UPDATE items SET key = key + 100",
    ];
    for statement in forbidden {
        database.execute(statement, []).unwrap_err();
    }
    // Whoever takes that away is found by the chain.
    database.execute_batch("DROP TRIGGER items_are_append_only").unwrap();
    let depth = place.depth;
    let changes = [
        ("kind", "'event'"),
        ("role", "'system'"),
        ("format", "'codex'"),
        ("created_at", "1"),
        ("epoch", "99"),
        ("tick", "99"),
        ("turn", "7"),
        ("id", "randomblob(16)"),
        ("salt", "zeroblob(16)"),
        ("digest", "zeroblob(32)"),
        ("hash", "zeroblob(32)"),
        ("sources", "zeroblob(16)"),
        ("chain", "9"),
    ];
    for (field, value) in changes {
        let set = |value: &str| {
            let statement = format!("UPDATE items SET {field} = {value} WHERE key & 4294967295 = {depth}");
            assert_eq!(database.execute(&statement, []).unwrap(), 1);
        };
        let read = format!("SELECT quote({field}) FROM items WHERE key & 4294967295 = {depth}");
        let before: String = database.query_row(&read, [], |row| row.get(0)).unwrap();
        set(value);
        assert_only_this_is_damaged(&store, place, b"text", field);
        set(&before);
        assert!(store.verify(&id("t")).unwrap().is_intact(), "{field}");
    }
    // The schema can't keep the end of a path from being cut; the thread's own row tells.
    database.execute("DELETE FROM items WHERE key & 4294967295 = 9", []).unwrap();
    let verdict = store.verify(&id("t")).unwrap();
    let is_the_end = |found: &threadkeep::Break| found.branch == Some(place.branch) && found.depth == Some(9);
    assert!(verdict.invalid.iter().any(is_the_end), "{verdict:?}");
}
