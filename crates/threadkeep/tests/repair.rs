//! Repairing damaged stores: what is whole or in a second copy comes back, nothing is deleted, and a plan is for one state alone.
#![cfg(test)]

#[path = "bad_input/folders.rs"]
mod folders;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{
    AppendOptions, Error, Hash, ItemId, NewItem, RedactOptions, RepairReport, Severity, StoreOptions, ThreadId,
};

use folders::{DATABASE, all_items, id, named, noise, open, raw, sql};

const PAGE: usize = 4_096;

/// What can be read of a store: of each thread the ids and contents on its path.
type Contents = BTreeMap<String, Vec<(ItemId, Hash)>>;

/// Two threads whose pages lie between each other, one with a second branch, a fork, large payloads, and a title.
fn make(folder: &Path) -> Contents {
    let store = open(folder).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    for thread in ["one", "two"] {
        let mut new = named(thread);
        new.details.title = Some(format!("the title of {thread}"));
        workspace.create_now(new).unwrap().shutdown().unwrap();
    }
    for round in 0..6 {
        for (at, thread) in ["one", "two"].into_iter().enumerate() {
            let live = store.resume(&id(thread), false).unwrap();
            live.begin_turn(raw(format!("{thread} asks {round}"))).unwrap();
            let seed = 1 + 100 * at as u64 + 10 * round;
            live.append((0..5).map(|number| raw(noise(seed + number, 900))).collect()).unwrap();
            live.append(vec![raw(noise(seed + 7, 70_000))]).unwrap();
            live.shutdown().unwrap();
        }
    }
    let after = Some(store.address_at(&id("two"), 20).unwrap());
    let live = store.resume(&id("two"), false).unwrap();
    live.append_with(vec![raw("another way")], AppendOptions { after, ..AppendOptions::default() }).unwrap();
    live.append((0..8).map(|number| raw(noise(300 + number, 900))).collect()).unwrap();
    live.shutdown().unwrap();
    let at = store.address_at(&id("one"), 12).unwrap();
    store.fork(&id("one"), Some(at), named("fork")).unwrap();
    let live = store.resume(&id("fork"), false).unwrap();
    live.append((0..8).map(|number| raw(noise(400 + number, 900))).collect::<Vec<NewItem>>()).unwrap();
    live.shutdown().unwrap();
    contents(&store)
}

fn contents(store: &Store) -> Contents {
    let read = |thread: &str| {
        let items = all_items(store, &id(thread));
        (thread.to_owned(), items.into_iter().map(|item| (item.id, Hash::of(&item.content))).collect())
    };
    ["one", "two", "fork"].into_iter().map(read).collect()
}

fn options(folder: &Path) -> StoreOptions {
    StoreOptions::folder(folder)
}

fn plan(folder: &Path, full: bool) -> String {
    let checkup = Store::plan_repair(options(folder), full).unwrap();
    let found = checkup.examination.findings;
    checkup.fingerprint.unwrap_or_else(|| panic!("there is no plan for {found:?}"))
}

fn repair(folder: &Path) -> RepairReport {
    Store::repair(options(folder), &plan(folder, true)).unwrap()
}

/// Overwrites pages of the database.
fn damage(folder: &Path, pages: impl IntoIterator<Item = u32>) {
    let file = folder.join(DATABASE);
    let mut bytes = std::fs::read(&file).unwrap();
    for page in pages {
        let at = (page as usize - 1) * PAGE;
        bytes[at..at + PAGE].fill(0x5a);
    }
    std::fs::write(&file, bytes).unwrap();
}

fn pages_of(folder: &Path, name: &str) -> Vec<u32> {
    let database = sql(folder);
    let mut pages = database.prepare("SELECT pageno FROM dbstat WHERE name = ?1 ORDER BY path").unwrap();
    pages.query_map([name], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Every file below a folder, with its bytes.
fn all_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => drop(files.insert(path.clone(), std::fs::read(path).unwrap())),
            }
        }
    }
    files
}

/// What was there before is there in full, in the kept folder where it was replaced.
fn assert_nothing_is_deleted(before: &BTreeMap<PathBuf, Vec<u8>>, folder: &Path, report: &RepairReport) {
    let after = all_files(folder);
    for (path, bytes) in before.iter().filter(|(path, _)| !path.ends_with("threadkeep.db-shm")) {
        let kept = report.kept.as_ref().map(|kept| kept.join(path.file_name().unwrap()));
        let is_kept = kept.and_then(|kept| after.get(&kept)).is_some_and(|kept| kept == bytes);
        assert!(after.get(path) == Some(bytes) || is_kept, "{} is gone", path.display());
    }
}

fn assert_intact(folder: &Path) {
    let report = open(folder).unwrap().verify_all(|_| {}).unwrap();
    assert_eq!((report.invalid.len(), report.seals.len()), (0, 0), "{:?}", report.invalid);
    let found = Store::examine(options(folder), true).unwrap();
    assert_ne!(found.worst(), Some(Severity::Error), "{:?}", found.findings);
}

#[test]
fn a_store_in_which_nothing_is_wrong_has_no_plan() {
    let temp = tempfile::tempdir().unwrap();
    make(temp.path());
    for full in [false, true] {
        let checkup = Store::plan_repair(options(temp.path()), full).unwrap();
        assert_eq!((checkup.fingerprint, checkup.steps.len()), (None, 0), "{:?}", checkup.examination.findings);
    }
    let refused = Store::repair(options(temp.path()), "0123456789abcdef").unwrap_err();
    assert!(matches!(refused, Error::Conflict { what: "plan", .. }), "{refused:?}");
}

#[test]
fn what_lies_on_whole_pages_comes_back_and_the_rest_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let whole = make(temp.path());
    let leaves = pages_of(temp.path(), "items");
    damage(temp.path(), [leaves[5]]);
    let before = all_files(temp.path());
    let report = repair(temp.path());
    assert_nothing_is_deleted(&before, temp.path(), &report);
    let store = open(temp.path()).unwrap();
    let after = contents(&store);
    let mut lost = 0;
    for (thread, items) in &whole {
        let now = &after[thread];
        assert!(items.starts_with(now), "{thread} is not a beginning of what it was");
        lost += items.len() - now.len();
        let of = report.threads.iter().find(|of| of.thread == id(thread)).unwrap();
        assert_eq!(of.lost.is_empty(), items.len() == now.len() && of.before == Some(of.after), "{of:?}");
    }
    assert!(lost > 0, "nothing was lost with a page of items");
    assert!(report.held_back > 0, "what stood behind the page is held back");
    let list = std::fs::read_to_string(report.kept.unwrap().join("held-back.jsonl")).unwrap();
    assert_eq!(list.lines().count() as u64, report.held_back);
    drop(store);
    assert_intact(temp.path());
    assert_eq!(Store::plan_repair(options(temp.path()), true).unwrap().fingerprint, None, "a second plan");
}

#[test]
fn with_rollouts_everything_comes_back() {
    for target in [
        "items",
        "threads",
        "branches",
        "writers",
        "workspaces",
        "turns",
        "blobs",
        "facts",
        "sqlite_schema",
        "item_blobs",
    ] {
        let temp = tempfile::tempdir().unwrap();
        let whole = make(temp.path());
        open(temp.path()).unwrap().mirror_rollouts(None, None, |_| {}).unwrap();
        let pages = pages_of(temp.path(), target);
        damage(temp.path(), pages.iter().step_by(2).copied());
        let before = all_files(temp.path());
        let report = repair(temp.path());
        assert_nothing_is_deleted(&before, temp.path(), &report);
        let store = open(temp.path()).unwrap();
        assert_eq!(contents(&store), whole, "{target}: {report:?}");
        assert!(report.threads.iter().all(|thread| thread.lost.is_empty()), "{target}: {report:?}");
        for thread in ["one", "two"] {
            let title = store.get(&id(thread)).unwrap().details.title;
            assert_eq!(title, Some(format!("the title of {thread}")), "{target}");
        }
        let fork = store.get(&id("fork")).unwrap();
        assert_eq!(fork.fork_point, Some(store.address_at(&id("one"), 12).unwrap()), "{target}");
        let list = store.list(threadkeep::ListQuery { limit: 10, ..threadkeep::ListQuery::default() }).unwrap();
        assert_eq!(list.entries.len(), 3, "{target}");
        drop(store);
        assert_intact(temp.path());
        // It goes on.
        let store = open(temp.path()).unwrap();
        let live = store.resume(&id("two"), false).unwrap();
        live.append(vec![raw("further")]).unwrap();
        live.shutdown().unwrap();
        drop((live, store));
        assert_intact(temp.path());
    }
}

/// Rows that are left name branches by numbers of which nothing is left: the rollouts' branches must not be taken for them.
#[test]
fn a_database_that_was_cut_comes_back_from_rollouts_whatever_is_left_of_it() {
    let temp = tempfile::tempdir().unwrap();
    let whole = make(temp.path());
    open(temp.path()).unwrap().mirror_rollouts(None, None, |_| {}).unwrap();
    let bytes = std::fs::read(temp.path().join(DATABASE)).unwrap();
    for pages in (4..bytes.len() / PAGE).step_by(9) {
        let folder = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-a").arg(temp.path().join(".")).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        std::fs::write(folder.path().join(DATABASE), &bytes[..pages * PAGE + 100]).unwrap();
        let report = repair(folder.path());
        assert_eq!(contents(&open(folder.path()).unwrap()), whole, "{pages} pages: {report:?}");
        assert_intact(folder.path());
    }
}

#[test]
fn without_rollouts_damage_to_what_only_helps_to_find_costs_no_item() {
    for target in [
        "threads",
        "branches",
        "writers",
        "workspaces",
        "turns",
        "facts",
        "sqlite_schema",
        "item_blobs",
        "items_source_id",
        "branches_thread",
    ] {
        let temp = tempfile::tempdir().unwrap();
        let whole = make(temp.path());
        damage(temp.path(), pages_of(temp.path(), target));
        let report = repair(temp.path());
        let store = open(temp.path()).unwrap();
        let after = contents(&store);
        for (thread, items) in &whole {
            assert_eq!(&after[thread], items, "{target} {thread}: {report:?}");
        }
        drop(store);
        assert_intact(temp.path());
    }
}

#[test]
fn an_index_or_a_rule_that_is_missing_is_made_anew() {
    let temp = tempfile::tempdir().unwrap();
    let whole = make(temp.path());
    sql(temp.path()).execute_batch("DROP INDEX branches_thread; DROP TRIGGER items_are_append_only").unwrap();
    repair(temp.path());
    assert_eq!(contents(&open(temp.path()).unwrap()), whole);
    assert_intact(temp.path());
}

#[test]
fn a_database_that_is_gone_comes_back_from_rollouts_and_is_never_begun_anew() {
    let temp = tempfile::tempdir().unwrap();
    let whole = make(temp.path());
    open(temp.path()).unwrap().mirror_rollouts(None, None, |_| {}).unwrap();
    let database = temp.path().join(DATABASE);
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("removed", |file| std::fs::remove_file(file).unwrap()),
        ("emptied", |file| std::fs::write(file, "").unwrap()),
        ("zeros", |file| std::fs::write(file, vec![0; 8 * PAGE]).unwrap()),
        ("no database", |file| std::fs::write(file, "no database at all").unwrap()),
    ];
    for (words, harm) in harms {
        harm(&database);
        for read_only in [false, true] {
            let options = if read_only { options(temp.path()).read_only() } else { options(temp.path()) };
            let refused = Store::open(options).unwrap_err();
            assert!(
                matches!(&refused, Error::Corrupt { place, detail } if place.contains(DATABASE) && detail.contains("doctor")),
                "{words}: {refused:?}"
            );
        }
        let report = repair(temp.path());
        assert_eq!(contents(&open(temp.path()).unwrap()), whole, "{words}");
        assert!(report.from_rollouts > 0);
        assert_intact(temp.path());
    }
}

/// The record of the schema is gone, or says less than was done: nothing is made anew over what is there.
#[test]
fn a_store_whose_schema_is_not_on_record_is_told_as_damaged_and_comes_back() {
    for harm in ["DROP TABLE schema_migrations", "DELETE FROM schema_migrations WHERE number > 1"] {
        let temp = tempfile::tempdir().unwrap();
        let whole = make(temp.path());
        sql(temp.path()).execute_batch(harm).unwrap();
        let refused = open(temp.path()).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{harm}: {refused:?}");
        if harm.starts_with("DROP") {
            repair(temp.path());
            assert_eq!(contents(&open(temp.path()).unwrap()), whole);
            assert_intact(temp.path());
        }
    }
}

#[test]
fn a_folder_that_held_a_store_of_which_nothing_is_left_gets_an_empty_one_on_purpose_only() {
    let temp = tempfile::tempdir().unwrap();
    make(temp.path());
    std::fs::write(temp.path().join(DATABASE), "").unwrap();
    Store::open(options(temp.path())).unwrap_err();
    let report = repair(temp.path());
    assert_eq!((report.items, report.threads.len()), (0, 0));
    assert_intact(temp.path());
}

#[test]
fn a_plan_is_for_one_state_of_the_store() {
    let temp = tempfile::tempdir().unwrap();
    make(temp.path());
    let leaves = pages_of(temp.path(), "items");
    damage(temp.path(), [leaves[5]]);
    let fingerprint = plan(temp.path(), false);
    assert_eq!(plan(temp.path(), false), fingerprint, "looking changes nothing");
    damage(temp.path(), [leaves[6]]);
    let before = all_files(temp.path());
    let refused = Store::repair(options(temp.path()), &fingerprint).unwrap_err();
    assert!(matches!(refused, Error::Conflict { what: "plan", .. }), "{refused:?}");
    let untouched = |files: &BTreeMap<PathBuf, Vec<u8>>| files.get(&temp.path().join(DATABASE)).cloned();
    assert_eq!(untouched(&all_files(temp.path())), untouched(&before));
}

#[test]
fn an_open_store_is_not_repaired() {
    let temp = tempfile::tempdir().unwrap();
    make(temp.path());
    damage(temp.path(), [pages_of(temp.path(), "items")[5]]);
    let fingerprint = plan(temp.path(), false);
    let store = open(temp.path()).unwrap();
    let refused = Store::repair(options(temp.path()), &fingerprint).unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
    drop(store);
    Store::repair(options(temp.path()), &plan(temp.path(), false)).unwrap();
}

#[test]
fn purged_threads_stay_purged_though_a_rollout_is_left() {
    let temp = tempfile::tempdir().unwrap();
    make(temp.path());
    let store = open(temp.path()).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let path = store.rollout_path(&id("two")).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    store.delete(&id("two")).unwrap();
    store.purge(&id("two")).unwrap();
    drop(store);
    std::fs::write(&path, bytes).unwrap();
    damage(temp.path(), [pages_of(temp.path(), "items")[2]]);
    repair(temp.path());
    let store = open(temp.path()).unwrap();
    assert!(matches!(store.get(&id("two")), Err(Error::NotFound { .. })));
    let threads: Vec<ThreadId> = store.verify_all(|_| {}).unwrap().invalid.into_keys().collect();
    assert_eq!(threads, []);
}

/// Neither an older page nor a rollout that was put back brings content back that was taken away.
#[test]
fn what_was_redacted_stays_redacted() {
    let temp = tempfile::tempdir().unwrap();
    make(temp.path());
    let store = open(temp.path()).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let path = store.rollout_path(&id("two")).unwrap();
    let with_all = std::fs::read(&path).unwrap();
    let at = store.address_at(&id("two"), 3).unwrap();
    let because = RedactOptions { reason: "a secret".to_owned(), ..RedactOptions::default() };
    store.redact(&id("two"), vec![at], because).unwrap();
    drop(store);
    for pages in [pages_of(temp.path(), "items")[4..6].to_vec(), pages_of(temp.path(), "threads")] {
        std::fs::write(&path, &with_all).unwrap();
        damage(temp.path(), pages);
        let report = repair(temp.path());
        let store = open(temp.path()).unwrap();
        let item = store.item(&id("two"), at).unwrap();
        assert!(item.redaction.is_some(), "{report:?}");
        assert_ne!(item.content, noise(103, 900));
        drop(store);
        assert_intact(temp.path());
    }
}
