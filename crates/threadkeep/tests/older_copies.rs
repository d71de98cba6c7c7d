//! Stores that went back in time: an older copy in their place is noticed by the rollouts beside it, and by whoever was writing.
#![cfg(test)]

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::Backup;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    AppendOptions, Durability, Error, Finding, ItemQuery, NewItem, NewThread, Outcome, Role, Severity, StoreOptions,
    ThreadId, VerifyOptions,
};

const DATABASE: &str = "threadkeep.db";

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn create(store: &Store, name: &str) -> LiveThread {
    let thread = NewThread { id: Some(id(name)), ..NewThread::default() };
    store.workspace(Path::new("/w")).unwrap().create_now(thread).unwrap()
}

fn append(store: &Store, name: &str, text: &str) {
    let live = store.resume(&id(name), false).unwrap();
    live.append(vec![say(text)]).unwrap();
    live.shutdown().unwrap();
}

fn count(store: &Store, name: &str) -> usize {
    store.items(&id(name), ItemQuery { limit: 1_000, ..ItemQuery::default() }).unwrap().entries.len()
}

/// A store with threads, a copy of it as it was, and rollouts of how it went on.
struct Scene {
    temp: tempfile::TempDir,
}

impl Scene {
    fn new(threads: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let scene = Self { temp };
        let store = open(&scene.folder());
        for name in threads {
            let live = create(&store, name);
            live.append(vec![say("one"), say("two")]).unwrap();
            live.shutdown().unwrap();
        }
        store.mirror_rollouts(None, None, |_| {}).unwrap();
        store.backup(&scene.temp.path().join("copy.db")).unwrap();
        scene
    }

    fn folder(&self) -> PathBuf {
        self.temp.path().join("store")
    }

    /// Goes on, and mirrors that.
    fn go_on(&self, change: impl FnOnce(&Store)) {
        let store = open(&self.folder());
        change(&store);
        store.mirror_rollouts(None, None, |_| {}).unwrap();
    }

    /// Puts the copy in the store's place.
    fn go_back(&self) {
        Store::restore_backup(StoreOptions::folder(self.folder()), &self.temp.path().join("copy.db")).unwrap();
    }

    fn found(&self, full: bool) -> Vec<Finding> {
        let found = Store::examine(StoreOptions::folder(self.folder()), full).unwrap().findings;
        let mut found: Vec<_> = found.into_iter().filter(|finding| finding.code == "rollout-leads").collect();
        found.sort_by(|one, other| one.place.cmp(&other.place));
        found
    }

    /// What opening, verifying and the doctor say of rollouts that lead.
    fn said(&self) -> (Vec<String>, Vec<String>, Vec<Finding>) {
        let store = Store::open(StoreOptions::folder(self.folder()).read_only()).unwrap();
        let notices = store.notices().iter().filter(|notice| notice.contains("rollout")).cloned().collect();
        let report = store.verify_all(|_| {}).unwrap();
        assert_eq!(report.outcome() == Outcome::Invalid, !report.seals.is_empty());
        (notices, report.seals, self.found(true))
    }
}

#[test]
fn a_store_that_went_back_is_noticed_by_its_rollouts_and_brought_forward_from_them() {
    let scene = Scene::new(&["grown", "same"]);
    scene.go_on(|store| {
        append(store, "grown", "three");
        create(store, "new").append(vec![say("only here")]).unwrap();
    });
    scene.go_back();
    let (notices, broken, findings) = scene.said();
    for said in [&notices, &broken] {
        assert_eq!(said.len(), 2, "{said:#?}");
        assert!(
            said.iter()
                .any(|said| said.contains("grown.jsonl") && said.contains("@2 of thread grown, which the store lacks"))
        );
        assert!(said.iter().any(|said| said.contains("new.jsonl") && said.contains("no purge is on record")));
        assert!(said.iter().all(|said| said.contains("older copy") && said.contains("rollout rebuild --from")));
    }
    assert!(findings.iter().all(|finding| finding.severity == Severity::Error), "{findings:#?}");
    let mut places: Vec<PathBuf> = findings.iter().map(|finding| PathBuf::from(&finding.place)).collect();
    places.sort();
    let names: Vec<_> = places.iter().map(|place| place.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["grown.jsonl", "new.jsonl"]);
    assert_eq!(scene.found(false), findings, "the newest of the index are these");

    // The way out that is named.
    let store = open(&scene.folder());
    for place in places {
        assert!(store.rebuild_from_rollouts(&place, |_| {}).unwrap().is_whole());
    }
    assert_eq!((count(&store, "grown"), count(&store, "new")), (3, 1));
    drop(store);
    assert_eq!(scene.said(), (vec![], vec![], vec![]));
}

/// What was written instead of what is lost is another item in its place.
#[test]
fn a_store_that_went_another_way_than_its_rollout_is_noticed() {
    let scene = Scene::new(&["t"]);
    scene.go_on(|store| append(store, "t", "three"));
    scene.go_back();
    append(&open(&scene.folder()), "t", "instead");
    let (notices, broken, findings) = scene.said();
    assert_eq!((notices.len(), broken.len(), findings.len()), (1, 1, 1));
    assert!(notices[0].contains("another item at"), "{notices:?}");
}

#[test]
fn rollouts_that_lag_or_are_of_what_was_purged_do_not_lead() {
    let scene = Scene::new(&["lags", "trashed", "purged", "shared", "archived"]);
    let purged = scene.folder().join("rollouts");
    let kept: Vec<(PathBuf, Vec<u8>)> = walk(&purged)
        .into_iter()
        .filter(|file| ["purged", "shared"].iter().any(|name| file.to_string_lossy().contains(name)))
        .map(|file| (file.clone(), std::fs::read(&file).unwrap()))
        .collect();
    assert_eq!(kept.len(), 2);
    scene.go_on(|store| {
        store.fork(&id("shared"), None, NewThread { id: Some(id("fork")), ..NewThread::default() }).unwrap();
        store.archive(&id("archived")).unwrap();
        store.delete(&id("trashed")).unwrap();
        for name in ["purged", "shared"] {
            store.delete(&id(name)).unwrap();
            store.purge(&id(name)).unwrap();
        }
    });
    append(&open(&scene.folder()), "lags", "not mirrored");
    // As if the purge had been cut off before the files were removed.
    kept.iter().for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    assert_eq!(scene.said(), (vec![], vec![], vec![]));
}

/// What the folder holds beside rollouts, and what is damaged in it, is no reason to speak or to fail.
#[test]
fn damaged_rollouts_and_a_damaged_index_say_nothing_of_the_store() {
    let scene = Scene::new(&["a", "b", "c"]);
    let rollouts = scene.folder().join("rollouts");
    let files = walk(&rollouts);
    std::fs::write(&files[0], b"").unwrap();
    std::fs::write(&files[1], [0xff; 200_000]).unwrap();
    let bytes = std::fs::read(&files[2]).unwrap();
    std::fs::write(&files[2], &bytes[..bytes.len() - 10]).unwrap();
    let index = rollouts.join("session_index.jsonl");
    let mut text = std::fs::read(&index).unwrap();
    text.extend_from_slice(b"{\"id\":\"a\",\"name\":\"\",\"updated_at\":\"\",\"file\":\"../../a.jsonl\",\"bytes\":1,\"state\":null}\n\xff\xfe{torn");
    std::fs::write(&index, text).unwrap();
    assert_eq!(scene.said(), (vec![], vec![], vec![]));
    std::fs::remove_file(&index).unwrap();
    assert_eq!(scene.said(), (vec![], vec![], vec![]));
}

/// Opening looks at a few only, and says how many more it did not name.
#[test]
fn opening_looks_at_the_newest_rollouts_alone() {
    let names: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scene = Scene::new(&names);
    scene.go_on(|store| names.iter().for_each(|name| append(store, name, "three")));
    scene.go_back();
    let (notices, broken, findings) = scene.said();
    assert_eq!((broken.len(), notices.len()), (40, 4), "{notices:#?}");
    assert!(notices[3].starts_with("13 more rollouts lead"), "16 were looked at, 3 are named: {}", notices[3]);
    // Of one kind the doctor names so many, and says that there are more.
    assert!(findings.len() > 16);
}

/// Copies a database over one that is open, as the engine's own `.restore` does.
fn restore_under(folder: &Path, copy: &Path) {
    let source = Connection::open(copy).unwrap();
    let mut target = Connection::open(folder.join(DATABASE)).unwrap();
    let backup = Backup::new(&source, &mut target).unwrap();
    backup.run_to_completion(1_000, std::time::Duration::ZERO, None).unwrap();
}

fn copy_of(folder: &Path, to: &Path) {
    let source = Connection::open(folder.join(DATABASE)).unwrap();
    source.execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
}

fn assert_went_back(refused: threadkeep::Result<threadkeep::Appended>, words: &str) {
    match refused.unwrap_err() {
        Error::Corrupt { place, detail } => {
            assert!(place == "thread t" && detail.contains(words), "{place}: {detail}");
            assert!(detail.contains("older copy") && detail.contains("open the thread again"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

/// A writer knows what it was told is stored: over an older copy of that it does not write on, whichever way it appends.
#[test]
fn a_writer_does_not_go_on_over_an_older_copy() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, copy) = (temp.path().join("store"), temp.path().join("copy.db"));
    let store = open(&folder);
    let live = create(&store, "t");
    live.append(vec![say("one")]).unwrap();
    copy_of(&folder, &copy);
    live.append(vec![say("two")]).unwrap();
    restore_under(&folder, &copy);
    for _ in 0..2 {
        assert_went_back(live.append(vec![say("three")]), "which was acknowledged and synced, is not in it any more");
        assert_went_back(live.begin_turn(say("three")), "acknowledged");
    }
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    assert_went_back(live.append_with(vec![say("three")], written), "acknowledged");
    assert_eq!(count(&store, "t"), 1, "nothing was written over it");
    live.discard().unwrap();

    // Whoever opens it again goes on from what is there.
    append(&store, "t", "another two");
    assert_eq!(count(&store, "t"), 2);
    assert!(store.verify_with(&id("t"), &VerifyOptions::default()).unwrap().is_intact());
}

/// The same when the copy is older than the writer's claim, and for what was flushed and not synced one by one.
#[test]
fn a_claim_and_what_was_flushed_are_known_too() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, copy) = (temp.path().join("store"), temp.path().join("copy.db"));
    let store = open(&folder);
    create(&store, "t").shutdown().unwrap();
    copy_of(&folder, &copy);
    let live = store.resume(&id("t"), false).unwrap();
    restore_under(&folder, &copy);
    assert_went_back(live.append(vec![say("one")]), "its epoch is");
    live.discard().unwrap();

    let live = store.resume(&id("t"), false).unwrap();
    copy_of(&folder, &temp.path().join("second.db"));
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    live.append_with(vec![say("one")], written).unwrap();
    live.flush().unwrap();
    restore_under(&folder, &temp.path().join("second.db"));
    assert_went_back(live.append(vec![say("two")]), "acknowledged");
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                open.push(path);
            } else if name != "session_index.jsonl" && !name.starts_with('.') {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
