//! Backups hold what was acknowledged before them, and restoring one loses nothing that was there.
//!
//! A test starts this very binary again with a store in its environment; [`child_entry`] writes there until its input ends.
#![cfg(test)]

#[path = "disks/small_disk.rs"]
mod small_disk;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use small_disk::SmallDisk;
use threadkeep::blocking::Store;
use threadkeep::{
    AppendOptions, Durability, Error, Item, ItemQuery, Kind, NewItem, NewThread, StoreOptions, ThreadId, ThreadPatch,
};

const DATABASE: &str = "threadkeep.db";
const STORE: &str = "THREADKEEP_TEST_BACKUP_STORE";
const MARK: &str = "@@ ";
const WRITERS: usize = 8;
const BACKUPS: usize = 50;

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn options(folder: &Path) -> StoreOptions {
    StoreOptions::folder(folder).busy_bound(Duration::from_millis(50))
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn raw(content: impl Into<Vec<u8>>) -> NewItem {
    NewItem::raw(Kind::Message, "text", content.into())
}

/// A store with a thread `t` of five items, closed.
fn make_store(folder: &Path) {
    let store = open(folder);
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    live.append((0..5).map(|number| raw(format!("item {number}"))).collect()).unwrap();
    live.shutdown().unwrap();
}

fn texts(store: &Store, thread: &ThreadId) -> Vec<String> {
    let (mut found, mut query) = (Vec::new(), ItemQuery { limit: 2_000, ..ItemQuery::default() });
    loop {
        let page = store.items(thread, query.clone()).unwrap();
        found.extend(page.entries.into_iter().map(|item: Item| String::from_utf8(item.content).unwrap()));
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let is_file = |name: &String| folder.join(name).is_file();
    names(folder)
        .into_iter()
        .filter(is_file)
        .map(|name| (name.clone(), std::fs::read(folder.join(&name)).unwrap()))
        .collect()
}

// Writers.

/// Appends to one thread, and notes each text once it is acknowledged.
fn write_until(store: &Store, thread: &str, stop: &AtomicBool, mut acknowledged: impl FnMut(String)) {
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named(thread)).unwrap();
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        let text = format!("{thread}:{number}");
        let synced = AppendOptions { durability: Durability::Synced, ..AppendOptions::default() };
        live.append_with(vec![raw(text.clone())], synced).unwrap();
        acknowledged(text);
        number += 1;
    }
    live.shutdown().unwrap();
}

/// What the other process does; without a store in its environment this is no test and passes.
#[test]
fn child_entry() {
    let Some(folder) = std::env::var_os(STORE) else { return };
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    std::thread::spawn(move || {
        // The end of the input says that it is enough.
        while std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {}
        ended.store(true, Ordering::SeqCst);
    });
    write_until(&open(Path::new(&folder)), "other", &stop, |text| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{MARK}{text}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    });
}

/// Notes what a child says was acknowledged, until it ends.
fn listen(output: std::process::ChildStdout, acknowledged: &Mutex<BTreeSet<String>>) {
    for line in BufReader::new(output).lines() {
        let line = line.unwrap();
        if let Some((_, text)) = line.split_once(MARK) {
            acknowledged.lock().unwrap().insert(text.to_owned());
        }
    }
}

#[test]
fn every_backup_holds_what_was_acknowledged_before_it_began() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = open(&folder);
    let acknowledged = Mutex::new(BTreeSet::new());
    let stop = AtomicBool::new(false);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
        .env(STORE, &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    std::thread::scope(|scope| {
        let (store, acknowledged, stop) = (&store, &acknowledged, &stop);
        scope.spawn(move || listen(output, acknowledged));
        for number in 0..WRITERS {
            let thread = format!("writer-{number}");
            scope.spawn(move || {
                write_until(store, &thread, stop, |text| {
                    acknowledged.lock().unwrap().insert(text);
                });
            });
        }
        // Ends the writers however this ends, so that a failure is told and not waited for.
        let _end = End(stop, child.stdin.take());
        let mut last = 0;
        for number in 0..BACKUPS {
            let before = acknowledged.lock().unwrap().clone();
            let target = temp.path().join(format!("backup-{number}.db"));
            let mut copied = 0;
            let only_on = move |done, _| {
                assert!(done >= copied, "the copy began anew");
                copied = done;
            };
            let report = store.backup_with(&target, only_on).unwrap();
            assert!(report.items >= before.len() as u64, "{} of {} items", report.items, before.len());
            check_restored(temp.path(), &target, &before, report.items);
            std::fs::remove_file(&target).unwrap();
            assert!(before.len() >= last);
            last = before.len();
        }
        assert!(last > BACKUPS, "the writers were starved: {last} items in {BACKUPS} backups");
        println!("{BACKUPS} backups while {last} items were written");
    });
    assert!(child.wait().unwrap().success());
    assert!(
        acknowledged.lock().unwrap().iter().any(|text| text.starts_with("other:")),
        "the other process wrote nothing"
    );
    assert_eq!(names(temp.path()), ["store".to_owned()].into(), "nothing is left beside the backups");
}

/// Tells the writers to stop.
struct End<'a>(&'a AtomicBool, Option<std::process::ChildStdin>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1 = None;
    }
}

fn check_restored(temp: &Path, backup: &Path, expected: &BTreeSet<String>, items: u64) {
    let folder = temp.join("restored");
    let report = Store::restore_backup(StoreOptions::folder(&folder), backup).unwrap();
    assert_eq!((report.items, report.replaced), (items, None));
    let restored = open(&folder);
    let verified = restored.verify_all(|_| {}).unwrap();
    assert!(verified.invalid.is_empty() && verified.items == items, "{verified:?}");
    let threads: BTreeSet<&str> = expected.iter().map(|text| text.split_once(':').unwrap().0).collect();
    for thread in threads {
        let found = texts(&restored, &id(thread));
        // Each thread's texts are numbered without a gap, so what it has is a beginning of what was written.
        assert!(found.iter().enumerate().all(|(number, text)| *text == format!("{thread}:{number}")));
        let wanted = expected.iter().filter(|text| text.starts_with(&format!("{thread}:"))).count();
        assert!(found.len() >= wanted, "{thread}: {} of {wanted} items", found.len());
        // Nobody holds what was restored, though its writers are alive.
        assert!(restored.get(&id(thread)).unwrap().holder.is_none());
    }
    drop(restored);
    std::fs::remove_dir_all(&folder).unwrap();
}

// Where a backup goes.

#[test]
fn what_exists_is_not_overwritten_and_links_are_not_followed() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    make_store(&folder);
    let store = open(&folder);
    let exists = |to: &Path| matches!(store.backup(to), Err(Error::AlreadyExists { .. }));
    let file = temp.path().join("kept.db");
    std::fs::write(&file, "kept").unwrap();
    assert!(exists(&file));
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    // A log of another database would be played into the backup.
    std::fs::write(temp.path().join("new.db-wal"), "a log").unwrap();
    assert!(exists(&temp.path().join("new.db")));
    std::fs::remove_file(temp.path().join("new.db-wal")).unwrap();
    for (name, leads_to) in [("to-nothing", "nothing"), ("to-file", "kept.db"), ("to-folder", "store")] {
        let link = temp.path().join(name);
        std::os::unix::fs::symlink(temp.path().join(leads_to), &link).unwrap();
        for to in [link.clone(), PathBuf::from(format!("{}/", link.display()))] {
            assert!(matches!(store.backup(&to), Err(Error::Invalid { .. })), "{}", to.display());
        }
        std::fs::remove_file(link).unwrap();
    }
    assert!(matches!(store.backup(&temp.path().join("no/x.db")), Err(Error::Io { .. })));
    assert_eq!(names(temp.path()), ["kept.db".to_owned(), "store".to_owned()].into());
}

#[test]
fn inside_the_store_backups_go_into_their_folder_only() {
    let temp = tempfile::tempdir().unwrap();
    make_store(temp.path());
    let store = open(temp.path());
    for name in ["x.db", "holders/", "other/"] {
        let refused = store.backup(&temp.path().join(name)).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{name}: {refused:?}");
    }
    assert!(!temp.path().join("other").exists());
    let made = store.backup(&temp.path().join("backups/x.db")).unwrap();
    assert_eq!((made.threads, made.items), (1, 5));
    assert_eq!((mode(&made.file), mode(made.file.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn a_folder_with_a_backup_is_a_store_and_nobody_else_can_read_it() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    make_store(&folder);
    let target = temp.path().join("new folder/");
    let mut seen = (0, 0);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&steps);
    let store = open(&folder);
    store
        .backup_with(&PathBuf::from(format!("{}/", target.display())), move |done, total| {
            told.lock().unwrap().push((done, total));
        })
        .unwrap();
    for step in steps.lock().unwrap().iter() {
        assert!(step.0 >= seen.0 && step.0 <= step.1);
        seen = *step;
    }
    assert!(seen.0 == seen.1 && seen.1 > 0, "{seen:?}");
    assert_eq!(names(&target), [DATABASE.to_owned()].into());
    assert_eq!((mode(&target), mode(&target.join(DATABASE))), (0o700, 0o600));
    assert_eq!(texts(&open(&target), &id("t")).len(), 5);
    let restored = temp.path().join("restored");
    std::fs::create_dir(&restored).unwrap();
    drop(open(&target));
    Store::restore_backup(StoreOptions::folder(&restored), &target).unwrap();
    assert_eq!(mode(&restored.join(DATABASE)), 0o600);
    assert!(matches!(
        Store::open(StoreOptions::memory()).unwrap().backup(&temp.path().join("m")),
        Err(Error::Unsupported { .. })
    ));
}

#[test]
fn a_damaged_store_gives_no_backup() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    make_store(&folder);
    let database = rusqlite::Connection::open(folder.join(DATABASE)).unwrap();
    database.execute("UPDATE items SET content = zeroblob(3) WHERE key & 4294967295 = 2", []).unwrap();
    database.close().unwrap();
    let refused = open(&folder).backup(&temp.path().join("new/")).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { place, .. } if place.contains('t')), "{refused:?}");
    assert_eq!(names(temp.path()), ["store".to_owned()].into());
}

#[test]
fn a_disk_that_is_too_small_keeps_nothing_of_it() {
    let Some(disk) = SmallDisk::mount(1, "a backup on a small disk") else { return };
    let temp = tempfile::tempdir().unwrap();
    make_store(temp.path());
    let store = open(temp.path());
    let live = store.resume(&id("t"), false).unwrap();
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(2 << 20)
    .collect();
    live.append(noise.chunks(64 << 10).map(raw).collect()).unwrap();
    live.shutdown().unwrap();
    let refused = store.backup(&disk.path().join("x.db")).unwrap_err();
    assert!(matches!(refused, Error::StorageFull { .. }), "{refused:?}");
    assert!(names(disk.path()).is_empty(), "{:?}", names(disk.path()));
    let whole = temp.path().join("backups/x.db");
    store.backup(&whole).unwrap();
    let small = disk.path().join("store");
    make_store(&small);
    let refused = Store::restore_backup(options(&small), &whole).unwrap_err();
    assert!(matches!(refused, Error::StorageFull { .. }), "{refused:?}");
    assert_eq!(texts(&open(&small), &id("t")).len(), 5, "the store that could not be replaced is there");
    assert!(!names(&small).iter().any(|name| name.starts_with('.')), "{:?}", names(&small));
}

// Restoring.

/// A folder with a store, and a backup of it from before `after` was appended.
fn with_backup() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let (folder, backup) = (temp.path().join("store"), temp.path().join("backup.db"));
    make_store(&folder);
    let store = open(&folder);
    store.backup(&backup).unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    live.append(vec![raw("after")]).unwrap();
    live.shutdown().unwrap();
    drop((live, store));
    (temp, folder, backup)
}

#[test]
fn the_store_that_is_replaced_is_kept_whole() {
    let (temp, folder, backup) = with_backup();
    let before = std::fs::read(&backup).unwrap();
    let report = Store::restore_backup(options(&folder), &backup).unwrap();
    let kept = report.replaced.unwrap();
    assert_eq!(kept.parent().unwrap(), folder.canonicalize().unwrap().join("backups"));
    assert_eq!((mode(&kept), mode(&kept.join(DATABASE)), mode(&folder.join(DATABASE))), (0o700, 0o600, 0o600));
    assert_eq!(texts(&open(&kept), &id("t")).len(), 6);
    assert_eq!(texts(&open(&folder), &id("t")).len(), 5);
    assert!(std::fs::read(&backup).unwrap() == before, "the backup was changed");
    assert_eq!(names(temp.path()), ["backup.db".to_owned(), "store".to_owned()].into());
    assert!(!names(&folder).iter().any(|name| name.starts_with('.') || name.ends_with("-wal")), "{:?}", names(&folder));
}

/// A store whose process was killed has its newest items in the log alone.
#[test]
fn the_log_of_the_store_that_is_replaced_is_kept_too() {
    let (_temp, folder, backup) = with_backup();
    let store = open(&folder);
    store.update(&id("t"), ThreadPatch::title("only in the log")).unwrap();
    let copy = folder.with_file_name("killed");
    std::fs::create_dir(&copy).unwrap();
    for name in [DATABASE, "threadkeep.db-wal"] {
        std::fs::copy(folder.join(name), copy.join(name)).unwrap();
    }
    drop(store);
    let kept = Store::restore_backup(options(&copy), &backup).unwrap().replaced.unwrap();
    assert_eq!(open(&copy).get(&id("t")).unwrap().details.title, None);
    assert_eq!(open(&kept).get(&id("t")).unwrap().details.title.as_deref(), Some("only in the log"));
}

#[test]
fn a_store_that_can_not_be_opened_any_more_is_replaced_and_kept() {
    let (_temp, folder, backup) = with_backup();
    let file = std::fs::OpenOptions::new().write(true).open(folder.join(DATABASE)).unwrap();
    file.set_len(8_192).unwrap();
    drop(file);
    let damaged = bytes_of(&folder);
    let kept = Store::restore_backup(options(&folder), &backup).unwrap().replaced.unwrap();
    assert!(std::fs::read(kept.join(DATABASE)).unwrap() == damaged[DATABASE]);
    assert_eq!(texts(&open(&folder), &id("t")).len(), 5);
}

#[test]
fn a_store_in_use_is_not_replaced() {
    let (_temp, folder, backup) = with_backup();
    let busy = |detail_has: &str| match Store::restore_backup(options(&folder), &backup) {
        Err(Error::Busy { detail }) => assert!(detail.contains(detail_has), "{detail}"),
        other => panic!("{detail_has}: {other:?}"),
    };
    // A handle that only looks, one that could write, and one that writes a thread.
    let reader = Store::open(StoreOptions::folder(&folder).read_only()).unwrap();
    busy("open");
    drop(reader);
    let idle = open(&folder);
    busy("open");
    drop(idle);
    let store = Store::open(StoreOptions::folder(&folder).label("an agent")).unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    busy("an agent");
    live.append(vec![raw("goes on")]).unwrap();
    live.shutdown().unwrap();
    drop((live, store));
    for name in ["open.lock", "write.gate"] {
        let lock = std::fs::OpenOptions::new().write(true).open(folder.join(name)).unwrap();
        lock.lock().unwrap();
        busy("");
    }
    assert_eq!(texts(&open(&folder), &id("t")).len(), 7);
    assert!(!folder.join("backups").exists());
    Store::restore_backup(options(&folder), &backup).unwrap();
}

/// Whoever opens a store at that moment must not get the file that is being moved away, with the log of the new one.
#[test]
fn nobody_opens_a_store_while_it_is_replaced() {
    let (_temp, folder, _) = with_backup();
    let lock = std::fs::OpenOptions::new().write(true).open(folder.join("open.lock")).unwrap();
    lock.lock().unwrap();
    for opening in [options(&folder), options(&folder).read_only()] {
        assert!(matches!(Store::open(opening), Err(Error::Busy { .. })));
    }
    lock.unlock().unwrap();
    assert_eq!(texts(&open(&folder), &id("t")).len(), 6);
}

#[test]
fn a_store_in_use_by_another_process_is_not_replaced() {
    let (_temp, folder, backup) = with_backup();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_entry", "--nocapture", "--test-threads=1"])
        .env(STORE, &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains(MARK)).unwrap().unwrap();
    let refused = Store::restore_backup(options(&folder), &backup);
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // It died with its log full: that does not keep anybody from restoring, and nothing of it is lost.
    let kept = Store::restore_backup(options(&folder), &backup).unwrap().replaced.unwrap();
    assert!(!texts(&open(&kept), &id("other")).is_empty());
}

#[test]
fn what_is_no_whole_backup_is_refused_and_touches_nothing() {
    let (temp, folder, backup) = with_backup();
    let whole = std::fs::read(&backup).unwrap();
    let before = bytes_of(&folder);
    let bad = temp.path().join("bad.db");
    let refuse = |what: &str, is_expected: fn(&Error) -> bool| {
        let refused = Store::restore_backup(options(&folder), &bad).unwrap_err();
        assert!(is_expected(&refused), "{what}: {refused:?}");
        assert!(bytes_of(&folder) == before, "{what}: the store was touched");
        assert!(!names(&folder).iter().any(|name| name.starts_with('.') || name == "backups"), "{what}");
    };
    let is_bad_file = |error: &Error| matches!(error, Error::Corrupt { place, .. } if place.ends_with("bad.db"));
    let is_foreign = |error: &Error| matches!(error, Error::ForeignStore { path, .. } if path.ends_with("bad.db"));
    refuse("missing", |error| matches!(error, Error::NotFound { what: "backup", .. }));
    std::fs::write(&bad, &whole[..whole.len() / 2]).unwrap();
    refuse("cut", is_bad_file);
    std::fs::write(&bad, "").unwrap();
    refuse("empty", is_bad_file);
    std::fs::write(&bad, "a list of groceries").unwrap();
    refuse("foreign", is_foreign);
    let mut foreign = whole.clone();
    foreign[68..72].copy_from_slice(&0x1234_u32.to_be_bytes());
    std::fs::write(&bad, foreign).unwrap();
    refuse("of another program", is_foreign);
    std::fs::write(&bad, &whole).unwrap();
    for suffix in ["-wal", "-journal"] {
        let half = temp.path().join(format!("bad.db{suffix}"));
        std::fs::write(&half, "what the file lacks").unwrap();
        refuse(suffix, is_bad_file);
        std::fs::remove_file(half).unwrap();
    }
    let change = |sql: &str| {
        std::fs::write(&bad, &whole).unwrap();
        let database = rusqlite::Connection::open(&bad).unwrap();
        database.execute_batch(sql).unwrap();
        database.close().unwrap();
    };
    change("INSERT INTO schema_migrations SELECT max(number) + 1, 'x', 'x', 0 FROM schema_migrations");
    refuse("newer", |error| matches!(error, Error::SchemaTooNew { .. }));
    change("PRAGMA user_version = 9999");
    refuse("a damaged header", |error| matches!(error, Error::Corrupt { .. }));
    change("UPDATE items SET content = zeroblob(3) WHERE key & 4294967295 = 2");
    refuse("a changed item", |error| matches!(error, Error::Corrupt { .. }));
    let mut torn = whole.clone();
    let middle = torn.len() / 2 / 4096 * 4096;
    torn[middle..middle + 4096].fill(0xa5);
    std::fs::write(&bad, torn).unwrap();
    refuse("a torn page", |error| matches!(error, Error::Corrupt { .. }));
    let own = Store::restore_backup(options(&folder), &folder).unwrap_err();
    assert!(matches!(own, Error::Invalid { .. }), "{own:?}");
}

#[test]
fn whoever_held_a_thread_when_the_backup_was_made_is_fenced_off() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, backup) = (temp.path().join("store"), temp.path().join("backup.db"));
    make_store(&folder);
    let store = open(&folder);
    let live = store.resume(&id("t"), false).unwrap();
    store.backup(&backup).unwrap();
    let epoch = |path: &Path| {
        let database = rusqlite::Connection::open(path).unwrap();
        database.query_row("SELECT epoch FROM threads", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let held = epoch(&backup);
    let restored = temp.path().join("restored");
    assert_eq!(Store::restore_backup(options(&restored), &backup).unwrap().ended_claims, 1);
    assert_eq!(epoch(&restored.join(DATABASE)), held + 1);
    let thread = open(&restored).get(&id("t")).unwrap();
    assert!(thread.holder.is_none() && !thread.live);
    live.append(vec![raw("the store itself goes on")]).unwrap();
}
