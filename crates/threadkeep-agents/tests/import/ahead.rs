//! Files that are read while the store still writes the ones before them.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, ListQuery, Screened, Shelves, StoreOptions};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

use super::import;

fn open() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    (folder, store)
}

fn session(number: usize) -> String {
    format!("5d0c9e1e-7f0a-4c31-9a55-{number:012}")
}

/// A session of so many records, which begins in this minute.
fn lines(session: &str, records: usize, minute: usize) -> String {
    let record = |number: usize| {
        let parent = if number == 0 { "null".to_owned() } else { format!("\"m{}\"", number - 1) };
        let (hour, minute) = (minute / 60, minute % 60);
        format!(
            "{{\"parentUuid\":{parent},\"isSidechain\":false,\"cwd\":\"/home/dev/webshop\",\"sessionId\":\"{session}\",\"version\":\"2.1.40\",\
             \"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":\"message {number}\"}},\"uuid\":\"m{number}\",\
             \"timestamp\":\"2026-03-14T{hour:02}:{minute:02}:{:06.3}Z\"}}\n",
            number as f64 / 100.0
        )
    };
    (0..records).map(record).collect()
}

/// Files in the order of their last use: small ones, one that takes several steps, copies of a session that say more and
/// less, one that begins otherwise, and one without a conversation.
fn write_all(home: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut add = |folder: &str, session: &str, text: String| {
        let folder = home.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{session}.jsonl"));
        std::fs::write(&path, text).unwrap();
        files.push(path);
    };
    for number in 0..60 {
        let records = if number == 25 { 3_000 } else { 3 + number % 5 };
        let of_length = |records: usize| lines(&session(number), records, 4 * number);
        if number % 20 == 7 {
            add("shorter", &session(number), of_length(2));
            add("other", &session(number), of_length(4).replace("message 0", "another beginning"));
        }
        add("own", &session(number), of_length(records));
        if number % 20 == 7 {
            add("longer", &session(number), of_length(9));
        }
    }
    let title = format!("{{\"type\":\"summary\",\"summary\":\"a title\",\"leafUuid\":\"{}\"}}\n", session(99));
    add("own", &session(99), title);
    files
}

/// What a store holds, in the order of its list.
fn held(store: &Store) -> Vec<String> {
    let mut held = Vec::new();
    let mut query = ListQuery { shelves: Shelves::Both, ascending: true, ..ListQuery::default() };
    loop {
        let page = store.list(query.clone()).unwrap();
        for thread in &page.entries {
            let items = store.items(&thread.id, ItemQuery { limit: 2_000, ..ItemQuery::default() }).unwrap().entries;
            let tree = store.tree(&thread.id).unwrap();
            let mut files: Vec<_> =
                store.sources(&thread.id).unwrap().into_iter().map(|it| (it.path, it.consumed)).collect();
            files.sort();
            let last = items.last().map(|item| item.content.clone()).unwrap_or_default();
            let last = String::from_utf8(last).unwrap();
            held.push(format!("{} {} {} {files:?} {last}", thread.id, thread.items, tree.branches.len()));
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return held;
        }
    }
}

#[test]
fn many_files_at_once_become_what_they_become_one_by_one() {
    let home = tempfile::tempdir().unwrap();
    let files = write_all(home.path());
    let (_once, at_once) = open();
    let report = import(&at_once, home.path());
    let (_each, one_by_one) = open();
    let mut sum = ImportReport::default();
    for file in &files {
        sum.add_report(&import(&one_by_one, file));
    }
    let (found, expected) = (held(&at_once), held(&one_by_one));
    assert_eq!(found.len(), expected.len());
    found.iter().zip(&expected).for_each(|(found, expected)| assert_eq!(found, expected));
    assert_eq!((&report.files, &report.items), (&sum.files, &sum.items));
    assert_eq!((report.threads.new, report.files.read), (63, 70));
    assert_eq!(report.problems, sum.problems);
    assert!(at_once.claims().unwrap().is_empty(), "a claim was left behind");
    assert_eq!(at_once.verify_all(|_| {}).unwrap().invalid.len(), 0);
    assert_eq!(import(&at_once, home.path()).items.imported, 0);
}

/// Where an import is stopped, what it had sent is stored and told.
#[test]
fn what_was_sent_before_a_stop_is_stored_and_counted() {
    let home = tempfile::tempdir().unwrap();
    write_all(home.path());
    let (_folder, store) = open();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let options = ImportOptions { stop: Some(stop.clone()), ..ImportOptions::default() };
    let mut stop_at = |progress: threadkeep_agents::import::Progress<'_>| {
        stop.store(progress.files_done == 30, std::sync::atomic::Ordering::Relaxed);
    };
    let report = Importer::new(&store, options).run(&[home.path().to_owned()], &mut stop_at).unwrap();
    assert_eq!(report.files.read, 30);
    let items: i64 =
        store.list(ListQuery { limit: 1_000, ..ListQuery::default() }).unwrap().entries.iter().map(|it| it.items).sum();
    assert_eq!(u64::try_from(items).unwrap(), report.items.imported);
}

/// A program that follows the same folder may be faster.
#[test]
fn files_that_another_import_brings_meanwhile_are_no_failures() {
    let home = tempfile::tempdir().unwrap();
    write_all(home.path());
    let (_folder, store) = open();
    let mut others = ImportReport::default();
    let mut meanwhile = |progress: threadkeep_agents::import::Progress<'_>| {
        if progress.files_done == 5 {
            others = import(&store, home.path());
        }
    };
    let report =
        Importer::new(&store, ImportOptions::default()).run(&[home.path().to_owned()], &mut meanwhile).unwrap();
    assert_eq!((report.files.failed, others.files.failed), (0, 0), "{:?}", report.problems);
    let (_fresh, fresh) = open();
    let alone = import(&fresh, home.path());
    assert_eq!(report.items.imported + others.items.imported, alone.items.imported);
    assert_eq!(held(&store), held(&fresh));
    assert!(store.claims().unwrap().is_empty());
}

/// A file that can't be imported to its end has its first steps stored, and the next file of its conversation finds them.
#[test]
fn what_a_file_had_sent_before_it_failed_is_found_by_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions::folder(folder.path()).on_write(|incoming| {
        let is_refused = incoming.bytes().windows(16).any(|part| part == b"not to be stored");
        if is_refused { Screened::Refuse("a word".to_owned()) } else { Screened::Keep }
    });
    let store = Store::open(options).unwrap();
    for number in 0..20 {
        // The record behind the first step is refused while that is on its way.
        let whole = lines(&session(number), 1_100, number).replace("message 1024\"", "not to be stored\"");
        let other = lines(&session(number), 3, number).replace(":00.020Z", ":59.000Z");
        let files = [("a", whole), ("b", other)].map(|(folder, text)| {
            let path = home.path().join(format!("{folder}/{}.jsonl", session(number)));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        });
        let report = Importer::new(&store, ImportOptions::default()).run(&files, &mut |_| {}).unwrap();
        assert_eq!((report.files.failed, report.files.read), (1, 1), "{:?}", report.problems);
        assert_eq!((report.items.imported, report.items.unchanged), (1, 2));
        assert_eq!(report.threads.new, 0);
    }
    let threads = store.list(ListQuery { limit: 1_000, ..ListQuery::default() }).unwrap().entries;
    let found: Vec<_> = threads.iter().map(|it| (it.items, store.tree(&it.id).unwrap().branches.len())).collect();
    assert_eq!(found, [(1_025, 2); 20]);
    assert!(store.claims().unwrap().is_empty(), "a claim was left behind");
    assert_eq!(store.verify_all(|_| {}).unwrap().invalid.len(), 0);
}
