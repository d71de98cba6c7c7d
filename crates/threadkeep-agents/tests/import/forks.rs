//! Delta-style forks: their file holds only what is new, and their thread shares the rest with its parent's.

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{Details, ItemQuery, NewThread, Shelf, ThreadId};

use super::{given_back, import, open, path_of, threads, write};

const PARENT: &str = "019ce0bb-aaaa-7000-8000-000000000001";
const FORK: &str = "019ce0bb-bbbb-7000-8000-000000000002";
/// Where the fork leaves its parent.
const SHARED: usize = 3;

fn line(ordinal: usize, kind: &str, payload: &str) -> String {
    format!(
        r#"{{"timestamp":"2026-03-14T09:00:{ordinal:02}.000Z","ordinal":{ordinal},"type":"{kind}","payload":{payload}}}"#
    )
}

fn meta(ordinal: usize, id: &str, more: &str) -> String {
    let payload = format!(
        r#"{{"id":"{id}","timestamp":"2026-03-14T09:00:00.000Z","cwd":"/home/dev/webshop","cli_version":"0.171.0","source":"cli","model_provider":"openai"{more}}}"#
    );
    line(ordinal, "session_meta", &payload)
}

fn message(ordinal: usize, role: &str, text: &str) -> String {
    let words = if role == "user" { "input_text" } else { "output_text" };
    let payload = format!(
        r#"{{"type":"message","id":"m{ordinal}-{text}","role":"{role}","content":[{{"type":"{words}","text":"{text}"}}]}}"#
    );
    line(ordinal, "response_item", &payload)
}

fn rollback(ordinal: usize) -> String {
    line(ordinal, "event_msg", r#"{"type":"thread_rolled_back","num_turns":1}"#)
}

fn history_base() -> String {
    format!(r#","history_base":{{"thread_id":"{PARENT}","end_ordinal_exclusive":{SHARED}}}"#)
}

fn parent_lines() -> Vec<String> {
    vec![
        meta(0, PARENT, ""),
        message(1, "user", "p1"),
        message(2, "assistant", "p2"),
        message(3, "user", "p3"),
        message(4, "assistant", "p4"),
    ]
}

fn fork_lines() -> Vec<String> {
    vec![meta(3, FORK, &history_base()), message(4, "user", "f1"), message(5, "assistant", "f2")]
}

fn rollout(folder: &Path, id: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    folder.join(format!("rollout-2026-03-14T09-00-00-{id}.jsonl"))
}

fn fork_id() -> ThreadId {
    ThreadId::new(FORK).unwrap()
}

/// Whether all items of the fork stand on its parent's: none of its own is a root.
fn stands_on_parent(store: &Store) -> bool {
    let tree = store.tree(&fork_id()).unwrap();
    let own = tree.branches.iter().filter(|branch| branch.thread == fork_id());
    own.clone().count() > 0 && own.clone().all(|branch| branch.parent.is_some())
}

/// A fork's file that moved became a second thread: its first record was looked for as a root.
#[test]
fn a_fork_that_moved_is_the_same_thread() {
    let (folder, store) = open();
    let sessions = folder.path().join("sessions");
    write(&rollout(&sessions, PARENT), &parent_lines(), "\n");
    let file = rollout(&sessions, FORK);
    write(&file, &fork_lines(), "\n");
    let first = import(&store, &sessions);
    assert_eq!((first.threads.new, first.items.imported), (2, 8));
    assert!(stands_on_parent(&store));
    let moved = rollout(&folder.path().join("archived_sessions"), FORK);
    std::fs::rename(&file, &moved).unwrap();
    let again = import(&store, moved.parent().unwrap());
    assert_eq!((again.threads.new, again.items.imported, again.items.unchanged), (0, 0, 3));
    assert_eq!(threads(&store).len(), 2);
    assert!(given_back(&store, &moved) == std::fs::read(&moved).unwrap());
}

/// Without its parent a fork is recognised too: by what the thread stands on, not by what the file could stand on now.
#[test]
fn a_fork_that_moved_is_the_same_thread_whatever_became_of_its_parent() {
    for parent_is_first in [true, false] {
        let (folder, store) = open();
        let sessions = folder.path().join("sessions");
        let (parent, file) = (rollout(&sessions, PARENT), rollout(&sessions, FORK));
        write(&parent, &parent_lines(), "\n");
        write(&file, &fork_lines(), "\n");
        if parent_is_first {
            import(&store, &parent);
        }
        import(&store, &file);
        assert_eq!(stands_on_parent(&store), parent_is_first);
        let id = ThreadId::new(PARENT).unwrap();
        if parent_is_first {
            store.delete(&id).unwrap();
            store.purge(&id).unwrap();
        } else {
            import(&store, &parent);
        }
        let moved = rollout(&folder.path().join("elsewhere"), FORK);
        std::fs::rename(&file, &moved).unwrap();
        let again = import(&store, &moved);
        assert_eq!((again.threads.new, again.items.imported, again.items.unchanged), (0, 0, 3), "{again:?}");
        let mut lines = fork_lines();
        lines.push(message(6, "user", "f3"));
        write(&moved, &lines, "\n");
        assert_eq!(import(&store, &moved).items.imported, 1);
        assert_eq!(store.get(&fork_id()).unwrap().items, 4);
        assert!(store.verify(&fork_id()).unwrap().is_intact());
    }
}

/// A fork whose file was changed diverges at the change; it was imported a second time, as a root.
#[test]
fn a_changed_fork_diverges_where_it_was_changed() {
    let (folder, store) = open();
    let file = rollout(folder.path(), FORK);
    write(&rollout(folder.path(), PARENT), &parent_lines(), "\n");
    write(&file, &fork_lines(), "\n");
    import(&store, folder.path());
    let mut lines = fork_lines();
    lines[2] = message(5, "assistant", "changed");
    write(&file, &lines, "\n\n");
    let again = import(&store, &file);
    assert_eq!((again.items.imported, again.items.unchanged), (1, 2));
    assert!(stands_on_parent(&store));
    assert_eq!(path_of(&store, &fork_id()).last().unwrap(), "m5-changed");
    assert!(store.verify(&fork_id()).unwrap().is_intact());
}

/// A root that is read when the import goes on stands on the parent like one that is read at once.
#[test]
fn a_later_root_of_a_fork_stands_on_its_parent() {
    let (folder, store) = open();
    let file = rollout(folder.path(), FORK);
    write(&rollout(folder.path(), PARENT), &parent_lines(), "\n");
    // The prompt stands before everything, so that taking it back goes to where the fork begins.
    let mut lines = vec![message(3, "user", "f1"), meta(4, FORK, &history_base()), message(5, "assistant", "f2")];
    write(&file, &lines, "\n");
    import(&store, folder.path());
    assert!(stands_on_parent(&store));
    lines.push(rollback(6));
    lines.push(message(7, "user", "f3"));
    write(&file, &lines, "\n");
    assert_eq!(import(&store, &file).items.imported, 2);
    assert!(stands_on_parent(&store));
    let path = store.items(&fork_id(), ItemQuery::default()).unwrap().entries;
    assert_eq!((path.len(), path[SHARED].thread.as_str()), (SHARED + 2, FORK));
    assert!(store.verify(&fork_id()).unwrap().is_intact());
}

/// An import that was killed after it had made the thread left an empty one, and the next gave the session another id.
#[test]
fn an_empty_thread_of_a_killed_import_is_filled() {
    for is_fork in [true, false] {
        let (folder, store) = open();
        let archive = folder.path().join("archived_sessions");
        let file = rollout(&archive, FORK);
        let parent = rollout(folder.path(), PARENT);
        write(&parent, &parent_lines(), "\n");
        write(&file, &fork_lines(), "\n");
        let details = Details { agent: Some("codex".to_owned()), ..Details::default() };
        let new = NewThread { id: Some(fork_id()), details, ..NewThread::default() };
        if is_fork {
            import(&store, &parent);
            let id = ThreadId::new(PARENT).unwrap();
            let point = store.address_at(&id, u32::try_from(SHARED).unwrap() - 1).unwrap();
            store.fork(&id, Some(point), new).unwrap();
        } else {
            store.workspace(folder.path()).unwrap().create_now(new).unwrap().shutdown().unwrap();
        }
        let report = import(&store, &file);
        assert_eq!((report.threads.new, report.items.imported), (1, 3), "{report:?}");
        assert_eq!(stands_on_parent(&store), is_fork);
        let thread = store.get(&fork_id()).unwrap();
        assert_eq!((thread.items, thread.shelf), (3, Shelf::Archived));
        assert!(store.verify(&fork_id()).unwrap().is_intact());
    }
}

/// The id of a purged thread whose items others share stays taken; its session, once it went on, failed at every import.
#[test]
fn a_session_whose_purged_thread_left_a_stub_gets_another_id() {
    let (folder, store) = open();
    let file = rollout(folder.path(), PARENT);
    let mut lines = parent_lines();
    write(&file, &lines, "\n");
    import(&store, &file);
    let id = ThreadId::new(PARENT).unwrap();
    store.fork(&id, None, NewThread::default()).unwrap();
    store.delete(&id).unwrap();
    assert!(store.purge(&id).unwrap().stub);
    lines.push(message(5, "user", "p5"));
    write(&file, &lines, "\n");
    let report = import(&store, &file);
    assert_eq!((report.files.failed, report.threads.new, report.items.imported), (0, 1, 6), "{report:?}");
    lines.push(message(6, "assistant", "p6"));
    write(&file, &lines, "\n");
    let report = import(&store, &file);
    assert_eq!((report.files.failed, report.threads.new, report.items.imported), (0, 0, 1), "{report:?}");
    let other = threads(&store).into_iter().find(|thread| thread.id.as_str().starts_with(PARENT)).unwrap();
    assert_ne!(other.id, id);
    assert_eq!(other.items, 7);
    assert!(given_back(&store, &file) == std::fs::read(&file).unwrap());
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
    // Where that one leaves a stub, too, there is no id left.
    store.fork(&other.id, None, NewThread::default()).unwrap();
    store.delete(&other.id).unwrap();
    assert!(store.purge(&other.id).unwrap().stub);
    lines.push(message(7, "user", "p7"));
    write(&file, &lines, "\n");
    let report = import(&store, &file);
    assert_eq!((report.files.failed, report.items.read), (1, 0), "{report:?}");
    assert!(report.problems[0].reason.contains("taken by other conversations"), "{report:?}");
}

/// The same for a fork, whose thread is made in another way.
#[test]
fn a_fork_whose_purged_thread_left_a_stub_gets_another_id() {
    let (folder, store) = open();
    let file = rollout(folder.path(), FORK);
    write(&rollout(folder.path(), PARENT), &parent_lines(), "\n");
    let mut lines = fork_lines();
    write(&file, &lines, "\n");
    import(&store, folder.path());
    store.fork(&fork_id(), None, NewThread::default()).unwrap();
    store.delete(&fork_id()).unwrap();
    assert!(store.purge(&fork_id()).unwrap().stub);
    lines.push(message(6, "user", "f3"));
    write(&file, &lines, "\n");
    let report = import(&store, &file);
    assert_eq!((report.files.failed, report.threads.new, report.items.imported), (0, 1, 4), "{report:?}");
    let other = threads(&store).into_iter().find(|thread| thread.id.as_str().starts_with(FORK)).unwrap();
    assert!(other.fork_point.is_some());
    assert!(store.verify(&other.id).unwrap().is_intact());
}

/// A session whose thread was purged without a trace is imported anew once it went on.
#[test]
fn a_session_that_went_on_after_its_thread_was_purged_is_imported_anew() {
    let (folder, store) = open();
    let file = rollout(folder.path(), PARENT);
    let mut lines = parent_lines();
    write(&file, &lines, "\n");
    import(&store, &file);
    let id = ThreadId::new(PARENT).unwrap();
    store.delete(&id).unwrap();
    assert!(!store.purge(&id).unwrap().stub);
    lines.push(message(5, "user", "p5"));
    write(&file, &lines, "\n");
    let report = import(&store, &file);
    assert_eq!((report.files.failed, report.threads.new, report.items.imported), (0, 1, 6), "{report:?}");
    assert_eq!(store.get(&id).unwrap().items, 6);
}
