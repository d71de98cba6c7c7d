//! Importing real and hand-made files into a store.

#![cfg(test)]
#![expect(clippy::cast_possible_wrap, reason = "counts of a test are small")]

#[path = "import/ahead.rs"]
mod ahead;
#[path = "import/asides.rs"]
mod asides;
#[path = "import/changes.rs"]
mod changes;
#[path = "import/damage.rs"]
mod damage;
#[path = "import/databases.rs"]
mod databases;
#[path = "import/documents.rs"]
mod documents;
#[path = "import/editors.rs"]
mod editors;
#[path = "import/forks.rs"]
mod forks;
#[path = "import/large.rs"]
mod large;
#[path = "import/lines.rs"]
mod lines;
#[path = "import/links.rs"]
mod links;
#[path = "import/masking.rs"]
mod masking;
#[path = "import/tasks.rs"]
mod tasks;
#[path = "import/texts.rs"]
mod texts;
#[path = "import/turn_repair.rs"]
mod turn_repair;
#[path = "import/windows.rs"]
mod windows;

use std::path::{Path, PathBuf};

use serde_json::json;
use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, ListQuery, Shelf, StoreOptions, Thread, ThreadId, ThreadPatch};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

fn import(store: &Store, path: &Path) -> ImportReport {
    let report = Importer::new(store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {}).unwrap();
    let items = &report.items;
    assert_eq!(
        items.read,
        items.imported + items.unchanged + items.skipped,
        "{}: the counts do not add up",
        path.display()
    );
    report
}

/// The file's bytes as the store gives them back.
fn given_back(store: &Store, path: &Path) -> Vec<u8> {
    source_bytes(store, path.canonicalize().unwrap().to_str().unwrap())
}

/// The bytes of a source, by the name that the store knows it by.
fn source_bytes(store: &Store, key: &str) -> Vec<u8> {
    let consumed = store.source(key).unwrap().unwrap().consumed;
    let mut out: Vec<u8> = Vec::new();
    let mut after = -1;
    loop {
        let parts = store.source_parts(key, after, 100).unwrap();
        let Some(last) = parts.last() else { break };
        after = last.position;
        for part in parts {
            if part.position == out.len() as i64 + 1 {
                out.push(b'\n');
            }
            assert_eq!(part.position, out.len() as i64, "there is a gap in {key}");
            out.extend_from_slice(&part.bytes);
        }
    }
    if consumed == out.len() as i64 + 1 {
        out.push(b'\n');
    }
    assert_eq!(consumed, out.len() as i64);
    out
}

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples")
}

#[test]
fn every_sample_is_imported_once_verifies_and_is_given_back() {
    if !samples().is_dir() {
        // The corpus is not part of the repository; the files beside this test are.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    let agents: Vec<&str> = threadkeep_agents::codecs().iter().map(|codec| codec.agent()).collect();
    for agent in agents {
        let path = samples().join(agent);
        if !path.is_dir() {
            continue;
        }
        let first = import(&store, &path);
        eprintln!("{agent}: {:?} {:?} {:?}", first.files, first.threads, first.items);
        for problem in &first.problems {
            eprintln!("  {}:{} {}", problem.file, problem.line, problem.reason);
        }
        // Of one agent there is a fragment alone, which no folder of sessions holds.
        assert!(first.items.imported > 0 || agent == "codewhale", "{agent}");
        let again = import(&store, &path);
        assert_eq!(again.items.imported, 0, "the second import changed something");
        assert_eq!(again.items.read, first.items.read);
        assert_eq!((again.threads.new, again.threads.updated), (0, 0));
    }
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!(report.invalid, Default::default());
    assert_eq!(report.threads, report.intact);
    for stamp in store.source_stamps("", 10_000).unwrap() {
        let path = PathBuf::from(&stamp.path);
        // Of many files, and of rows, no one file is to be given back; the test of sessions looks at them.
        if ["opencode", "aider"].contains(&stamp.agent.as_str())
            && (!path.is_file() || stamp.path.contains("/session/") || stamp.thread.is_none())
        {
            continue;
        }
        let bytes = if path.extension().is_some_and(|ending| ending == "zst") {
            continue;
        } else {
            std::fs::read(&path).unwrap()
        };
        let back = given_back(&store, &path);
        assert!(bytes.starts_with(&back), "{} is not given back", path.display());
    }
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

fn open() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    (folder, store)
}

fn threads(store: &Store) -> Vec<Thread> {
    store.list(ListQuery { limit: 1_000, ..ListQuery::default() }).unwrap().entries
}

/// The source ids of a thread's active path.
fn path_of(store: &Store, thread: &ThreadId) -> Vec<String> {
    let items = store.items(thread, ItemQuery { limit: 2_000, ..ItemQuery::default() }).unwrap().entries;
    items.into_iter().map(|item| item.source_id.unwrap_or_else(|| item.hash.to_string())).collect()
}

fn record(uuid: &str, parent: Option<&str>, role: &str, text: &str) -> String {
    let parent = parent.map_or_else(|| "null".to_owned(), |parent| format!("\"{parent}\""));
    let content = match role {
        "user" => format!("\"{text}\""),
        _ => format!("[{{\"type\":\"text\",\"text\":\"{text}\"}}]"),
    };
    format!(
        r#"{{"parentUuid":{parent},"isSidechain":false,"type":"{role}","message":{{"id":"m-{uuid}","role":"{role}","content":{content}}},"uuid":"{uuid}","timestamp":"2026-03-01T10:00:00.000Z","sessionId":"5e551011-0000-4000-8000-000000000001","cwd":"/home/dev/webshop","version":"2.1.0"}}"#
    )
}

const SESSION: &str = "5e551011-0000-4000-8000-000000000001";

fn write(path: &Path, lines: &[String], end: &str) {
    std::fs::write(path, lines.join("\n") + end).unwrap();
    // Equal sizes and times would be an unchanged file; tests write faster than clocks tick.
    let time =
        std::fs::metadata(path).unwrap().modified().unwrap() + std::time::Duration::from_secs(lines.len() as u64);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn conversation() -> Vec<String> {
    vec![
        record("u1", None, "user", "Fix the login test"),
        record("a1", Some("u1"), "assistant", "The clock is mocked twice."),
        record("u2", Some("a1"), "user", "And the token?"),
        record("a2", Some("u2"), "assistant", "It expires at midnight."),
    ]
}

/// However a file grows, cut anywhere between two imports, the result is that of importing it once.
#[test]
fn a_growing_file_is_imported_as_if_it_had_been_whole() {
    let text = conversation().join("\n") + "\n";
    let (_whole_folder, whole_store) = open();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    std::fs::write(&path, &text).unwrap();
    import(&whole_store, &path);
    let expected: Vec<_> = hashless(&whole_store);
    for cut in (0..=text.len()).step_by(7) {
        let (_folder, store) = open();
        std::fs::write(&path, &text.as_bytes()[..cut]).unwrap();
        import(&store, folder.path());
        std::fs::write(&path, &text).unwrap();
        let second = import(&store, folder.path());
        assert_eq!(second.items.read, 4, "cut at {cut}");
        assert_eq!(hashless(&store), expected, "cut at {cut}");
        assert!(given_back(&store, &path) == text.as_bytes(), "cut at {cut}");
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
    }
}

/// Id, depth, source id, content and turn of an item.
type Imported = (String, u32, Option<String>, Vec<u8>, Option<i64>);

/// What was imported, apart from what the time of importing decides.
fn hashless(store: &Store) -> Vec<Imported> {
    let id = ThreadId::new(SESSION).unwrap();
    let items = store.items(&id, ItemQuery::default()).unwrap().entries;
    items.into_iter().map(|item| (item.id.to_string(), item.depth, item.source_id, item.content, item.turn)).collect()
}

#[test]
fn only_what_is_new_of_a_grown_file_is_stored() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let mut lines = conversation();
    write(&path, &lines, "\n");
    let first = import(&store, &path);
    assert_eq!((first.threads.new, first.items.imported), (1, 4));
    lines.push(record("u3", Some("a2"), "user", "Ship it"));
    write(&path, &lines, "\n");
    let second = import(&store, &path);
    assert_eq!((second.threads.updated, second.items.imported, second.items.unchanged), (1, 1, 4));
    assert_eq!(import(&store, &path).files.unchanged, 1);
    assert_eq!(path_of(&store, &ThreadId::new(SESSION).unwrap()), ["u1", "a1", "u2", "a2", "u3"]);
}

/// A backup knows what was imported: a store that it was restored into imports nothing again, and goes on with what has grown since.
#[test]
fn a_restored_backup_imports_nothing_again() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let mut lines = conversation();
    write(&path, &lines, "\n");
    import(&store, &path);
    let backup = folder.path().join("backup.db");
    store.backup_with(&backup, |_, _| {}).unwrap();
    let fresh = folder.path().join("fresh");
    Store::restore_backup(StoreOptions::folder(&fresh), &backup).unwrap();
    let restored = Store::open(StoreOptions::folder(&fresh)).unwrap();
    let again = import(&restored, &path);
    assert_eq!((again.files.unchanged, again.items.imported, again.threads.new), (1, 0, 0));
    lines.push(record("u3", Some("a2"), "user", "Ship it"));
    write(&path, &lines, "\n");
    let grown = import(&restored, &path);
    assert_eq!((grown.items.imported, grown.threads.new, grown.threads.updated), (1, 0, 1));
}

/// A file that was changed in place diverges as a branch; what it said before stays.
#[test]
fn a_changed_beginning_becomes_a_branch() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let mut lines = conversation();
    write(&path, &lines, "\n");
    import(&store, &path);
    lines[2] = record("u2", Some("a1"), "user", "And the cookie?");
    write(&path, &lines, "\n\n");
    let again = import(&store, &path);
    assert_eq!((again.items.imported, again.items.unchanged), (2, 2));
    let id = ThreadId::new(SESSION).unwrap();
    let tree = store.tree(&id).unwrap();
    assert_eq!((tree.branches.len(), tree.branches[1].base), (2, 2));
    assert_eq!(store.get(&id).unwrap().items, 6);
    assert!(store.verify(&id).unwrap().is_intact());
    assert!(given_back(&store, &path) == std::fs::read(&path).unwrap());
}

/// A file that moved is the same thread; another conversation under the same id is another thread.
#[test]
fn a_moved_file_is_the_same_thread_and_another_conversation_is_not() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    write(&path, &conversation(), "\n");
    import(&store, &path);
    let moved = folder.path().join("archive").join(format!("{SESSION}.jsonl"));
    std::fs::create_dir(moved.parent().unwrap()).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    let report = import(&store, &moved);
    assert_eq!((report.threads.new, report.items.unchanged), (0, 4));
    let other = folder.path().join("other").join(format!("{SESSION}.jsonl"));
    std::fs::create_dir(other.parent().unwrap()).unwrap();
    write(&other, &[record("x1", None, "user", "Something else")], "\n");
    assert_eq!(import(&store, &other).threads.new, 1);
    let ids: Vec<_> = threads(&store).into_iter().map(|thread| thread.id.to_string()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(|id| id.starts_with(SESSION)));
}

/// A title that was given in the store is not taken away by the next import.
#[test]
fn a_rename_in_the_store_stays() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let mut lines = conversation();
    lines.push(format!(r#"{{"type":"custom-title","customTitle":"From the file","sessionId":"{SESSION}"}}"#));
    write(&path, &lines, "\n");
    import(&store, &path);
    let id = ThreadId::new(SESSION).unwrap();
    assert_eq!(store.get(&id).unwrap().details.title.as_deref(), Some("From the file"));
    store.update(&id, ThreadPatch::title("Mine")).unwrap();
    lines.push(record("u3", Some("a2"), "user", "Ship it"));
    write(&path, &lines, "\n");
    import(&store, &path);
    assert_eq!(store.get(&id).unwrap().details.title.as_deref(), Some("Mine"));
}

/// A thread in the trash is not brought back by importing; a purged one stays away while its file stays the same.
#[test]
fn deleted_threads_do_not_come_back() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let mut lines = conversation();
    write(&path, &lines, "\n");
    import(&store, &path);
    let id = ThreadId::new(SESSION).unwrap();
    store.delete(&id).unwrap();
    assert_eq!(import(&store, &path).files.unchanged, 1);
    lines.push(record("u3", Some("a2"), "user", "Ship it"));
    write(&path, &lines, "\n");
    let report = import(&store, &path);
    assert_eq!(report.files.failed, 1, "{report:?}");
    assert_eq!(store.get(&id).unwrap().shelf, Shelf::Trashed);
    store.restore(&id).unwrap();
    assert_eq!(import(&store, &path).items.imported, 1);
    store.delete(&id).unwrap();
    store.purge(&id).unwrap();
    assert_eq!(import(&store, &path).files.unchanged, 1);
    assert!(threads(&store).is_empty());
}

/// Damage costs the damaged line alone: it is reported with its number, its bytes are kept, and the rest is imported.
#[test]
fn damage_costs_its_own_line_alone() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let lines = conversation();
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    bytes.extend_from_slice(format!("{}\r\n", lines[0]).as_bytes());
    bytes.extend_from_slice(b"{\"type\":\"user\",\"mess\n");
    bytes.extend_from_slice(format!("{}{}\n", lines[1], lines[2]).as_bytes());
    bytes.extend_from_slice(b"\0\0\0\0\n[1,2]\n\xff\xfe\n");
    bytes.extend_from_slice(format!("{}\n{{\"type\":\"assist", lines[3]).as_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let report = import(&store, &path);
    assert_eq!(report.items.imported, 4);
    let damaged: Vec<u64> = report.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(damaged, [2, 4, 5, 6, 8], "{:?}", report.problems);
    assert_eq!(path_of(&store, &ThreadId::new(SESSION).unwrap()), ["u1", "a1", "u2", "a2"]);
    assert!(bytes.starts_with(&given_back(&store, &path)));
}

/// The hand-made files of the agents: every file is imported, given back byte for byte, and the same the second time.
#[test]
fn the_files_of_each_agent_are_imported_and_given_back() {
    let (_folder, store) = open();
    for agent in ["codex", "claude-code", "gemini-cli", "opencode", "goose"] {
        let first = import(&store, &files().join(agent));
        assert!(first.threads.new > 0, "{first:?}");
        let again = import(&store, &files().join(agent));
        assert_eq!((again.items.imported, again.threads.new, again.threads.updated), (0, 0, 0));
        assert_eq!(again.items.read, first.items.read);
    }
    for stamp in store.source_stamps("", 1_000).unwrap() {
        let bytes = std::fs::read(&stamp.path).unwrap();
        assert!(bytes.starts_with(&given_back(&store, stamp.path.as_ref())), "{}", stamp.path);
    }
    let report = store.verify_all(|_| {}).unwrap();
    assert!(report.invalid.is_empty(), "{:?}", report.invalid);
}

/// However many forks stand on one another, none takes a stack's room.
#[test]
fn a_long_chain_of_delta_forks_is_imported() {
    const FORKS: usize = 3_000;
    let (folder, store) = open();
    let name = |number: usize| format!("019ce0cc-0000-7000-8000-{number:012}");
    for number in 0..FORKS {
        let base = json!({"thread_id": name(number + 1), "end_ordinal_exclusive": 1, "end_byte_offset": 10});
        let meta = json!({"id": name(number), "timestamp": "2026-03-14T09:00:00.000Z", "cwd": "/w", "originator": "codex_cli_rs",
            "cli_version": "0.171.0", "source": "cli", "model_provider": "openai", "history_base": base});
        let line =
            json!({"timestamp": "2026-03-14T09:00:01.120Z", "ordinal": 1, "type": "session_meta", "payload": meta});
        let path = folder.path().join(format!("rollout-2026-03-14T09-00-00-{}.jsonl", name(number)));
        std::fs::write(path, format!("{line}\n")).unwrap();
    }
    // A thread of the test has little stack; of what is asked for here each file took some hundred bytes of it.
    let path = folder.path().to_owned();
    let run = std::thread::Builder::new().stack_size(1 << 20).spawn(move || import(&store, &path)).unwrap();
    assert_eq!(run.join().unwrap().files.read, FORKS as u64);
}

/// A fork that holds only its own lines is one thread with its parent's history, without a copy.
#[test]
fn a_delta_fork_stands_on_its_parent() {
    let (_folder, store) = open();
    import(&store, &files().join("codex"));
    let fork = threads(&store).into_iter().find(|thread| thread.fork_point.is_some());
    let fork = fork.expect("no file was imported as a fork by reference");
    let items = store.items(&fork.id, ItemQuery::default()).unwrap().entries;
    let shared = items.iter().take_while(|item| item.thread != fork.id).count();
    assert!(shared > 0 && shared < items.len());
    // A rollback in the file leaves some of its own items on another branch.
    assert!(items.len() - shared <= usize::try_from(fork.items).unwrap());
    assert_eq!(shared, fork.fork_point.unwrap().depth as usize + 1);
}

/// Compressed rollouts, and those in the archive folder, are imported like the others; the latter are archived.
#[test]
fn compressed_and_archived_rollouts_are_imported() {
    let (folder, store) = open();
    let archived = folder.path().join("archived_sessions");
    std::fs::create_dir(&archived).unwrap();
    let name = "rollout-2026-03-14T09-00-00-019ce0bb-1111-7222-8333-444455556666.jsonl";
    let bytes = std::fs::read(files().join("codex").join(name)).unwrap();
    let path = archived.join(format!("{name}.zst"));
    std::fs::write(&path, zstd::encode_all(bytes.as_slice(), 3).unwrap()).unwrap();
    std::fs::write(
        folder.path().join("session_index.jsonl"),
        "{\"id\":\"019ce0bb-1111-7222-8333-444455556666\",\"thread_name\":\"From the index\",\"updated_at\":\"2026-03-14T10:00:00Z\"}\n",
    )
    .unwrap();
    assert_eq!(import(&store, folder.path()).threads.new, 1);
    let thread = store.get(&ThreadId::new("019ce0bb-1111-7222-8333-444455556666").unwrap()).unwrap();
    assert_eq!(thread.shelf, Shelf::Archived);
    assert_eq!(thread.details.title.as_deref(), Some("From the index"));
    assert_eq!(given_back(&store, &path), bytes);
    assert_eq!(import(&store, folder.path()).files.unchanged, 1);
}

/// Every item of an imported file can be read as text by its codec.
/// A few kilobytes that would fill a disk.
#[test]
fn a_compressed_file_that_unfolds_without_end_is_refused() {
    let (folder, store) = open();
    let path = folder.path().join("rollout-2026-03-14T09-00-00-019ce0bb-1111-7222-8333-444455556666.jsonl.zst");
    let first = std::fs::read(files().join("codex/envelope-0.42.jsonl")).unwrap();
    let mut encoder = zstd::Encoder::new(std::fs::File::create(&path).unwrap(), 3).unwrap();
    std::io::Write::write_all(&mut encoder, &first).unwrap();
    for _ in 0..160 {
        std::io::Write::write_all(&mut encoder, &vec![0; 1 << 20]).unwrap();
    }
    encoder.finish().unwrap();
    let report = import(&store, &path);
    assert_eq!(report.files.failed, 1);
    assert!(report.problems[0].reason.contains("it unfolds to more than"), "{:?}", report.problems);
}

#[test]
fn imported_items_have_views() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    write(&path, &conversation(), "\n");
    import(&store, &path);
    let codec = threadkeep_agents::codecs().into_iter().find(|codec| codec.format() == "claude-code").unwrap();
    let items = store.items(&ThreadId::new(SESSION).unwrap(), ItemQuery::default()).unwrap().entries;
    let texts: Vec<_> = items.iter().map(|item| codec.view(&item.kind, &item.content).to_text()).collect();
    assert_eq!(
        texts,
        ["Fix the login test", "The clock is mocked twice.", "And the token?", "It expires at midnight."]
    );
}

/// An import that is not allowed to write writes nothing, and a file that is no session is named.
#[test]
fn a_dry_run_writes_nothing() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    write(&path, &conversation(), "\n");
    let options = ImportOptions { dry_run: true, ..ImportOptions::default() };
    let report = Importer::new(&store, options).run(&[path], &mut |_| {}).unwrap();
    assert_eq!((report.threads.new, report.items.imported), (1, 4));
    assert!(threads(&store).is_empty());
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "not a session").unwrap();
    let report = import(&store, &notes);
    assert_eq!((report.files.failed, report.problems.len()), (1, 1));
    let report = import(&store, &folder.path().join("absent.jsonl"));
    assert_eq!(report.files.failed, 1);
}

/// A session is recognised though its first line is longer than what is usually looked at.
#[test]
fn a_long_first_line_is_recognised() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    write(
        &path,
        &[record("u1", None, "user", &"long ".repeat(60_000)), record("a1", Some("u1"), "assistant", "ok")],
        "\n",
    );
    assert_eq!(import(&store, folder.path()).items.imported, 2);
}
