//! Sessions that are rows of a database, which their agent changes in place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, StoreOptions, Thread, ThreadId};
use threadkeep_agents::import::ImportReport;

use super::import;

/// opencode at work: its database, and a store beside it.
struct Agent {
    folder: tempfile::TempDir,
    store: Store,
    database: Connection,
}

impl Agent {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("opencode")).unwrap();
        let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
        let database = Connection::open(folder.path().join("opencode/opencode.db")).unwrap();
        database.pragma_update(None, "journal_mode", "wal").unwrap();
        database
            .execute_batch(
                "CREATE TABLE session (id text PRIMARY KEY, project_id text, directory text, title text, revert text,
                   time_created integer, time_updated integer);
                 CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, time_updated integer, data text);
                 CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_updated integer, data text);",
            )
            .unwrap();
        let agent = Self { folder, store, database };
        agent.session("one");
        agent
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("opencode")
    }

    fn session(&self, id: &str) {
        let sql = "INSERT INTO session VALUES (?1, 'p', '/w', 'A talk', NULL, 1770000000000, 1770000000000)";
        self.database.execute(sql, [id]).unwrap();
    }

    fn say(&self, session: &str, id: &str, role: &str, text: &str) {
        let data = match role {
            "user" => r#"{"role":"user","time":{"created":1770000000000}}"#,
            _ => r#"{"role":"assistant","time":{"created":1770000000000,"completed":1770000000001}}"#,
        };
        let at = 1_770_000_000_000_i64 + self.database.last_insert_rowid();
        self.database
            .execute("INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)", params![id, session, at, data])
            .unwrap();
        let part = format!(r#"{{"type":"text","text":"{text}"}}"#);
        self.database
            .execute("INSERT INTO part VALUES (?1, ?2, ?3, 1, ?4)", params![format!("p{id}"), id, session, part])
            .unwrap();
        self.touch(session);
    }

    fn touch(&self, session: &str) {
        self.database.execute("UPDATE session SET time_updated = time_updated + 1 WHERE id = ?1", [session]).unwrap();
    }

    fn import(&self) -> ImportReport {
        import(&self.store, &self.path())
    }

    fn thread(&self, id: &str) -> Thread {
        self.store.get(&ThreadId::new(id).unwrap()).unwrap()
    }

    fn texts(&self, id: &str) -> Vec<String> {
        let page = self.store.items(&ThreadId::new(id).unwrap(), ItemQuery::default()).unwrap();
        let codec = threadkeep_agents::opencode::OpenCode;
        let text = |item: &threadkeep::Item| threadkeep::ViewCodec::view(&codec, &item.kind, &item.content).to_text();
        page.entries.iter().map(text).collect()
    }
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn the_newest_rows_are_read_and_nothing_is_written_where_the_agent_works() {
    let agent = Agent::new();
    agent.say("one", "m1", "user", "Fix it");
    let before = files(&agent.path());
    assert!(
        before.keys().any(|path| path.extension().is_some_and(|ending| ending == "db-wal")),
        "the rows are in the log"
    );
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it"]);
    assert_eq!(files(&agent.path()), before);

    // Where nobody has it open, looking at it must not make a log either.
    drop(agent.database);
    let before = files(&agent.folder.path().join("opencode"));
    let other = Store::open(StoreOptions::folder(agent.folder.path().join("other"))).unwrap();
    import(&other, &agent.folder.path().join("opencode"));
    assert_eq!(files(&agent.folder.path().join("opencode")), before);
}

#[test]
fn what_has_not_changed_is_not_read() {
    let agent = Agent::new();
    agent.session("two");
    agent.say("one", "m1", "user", "Fix it");
    agent.say("two", "n1", "user", "Leave it");
    assert_eq!(agent.import().threads.new, 2);
    let again = agent.import();
    assert_eq!((again.files.read, again.files.unchanged, again.items.imported), (0, 2, 0));

    agent.say("one", "m2", "assistant", "Done");
    let report = agent.import();
    assert_eq!((report.files.read, report.files.unchanged), (1, 1));
    // The message, and the session's own row, which says when it was changed.
    assert_eq!((report.items.imported, report.items.unchanged), (2, 3));
    assert_eq!(agent.texts("one"), ["Fix it", "Done"]);
}

#[test]
fn a_message_that_is_changed_in_place_is_no_branch_and_its_later_bytes_are_kept() {
    let agent = Agent::new();
    agent.say("one", "m1", "user", "Fix it");
    agent.say("one", "m2", "assistant", "Done");
    agent.import();
    let summary = r#"{"role":"user","time":{"created":1770000000000},"summary":{"title":"Fixing"}}"#;
    agent.database.execute("UPDATE message SET data = ?1, time_updated = 7 WHERE id = 'm1'", [summary]).unwrap();
    agent.say("one", "m3", "user", "Thanks");
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it", "Done", "Thanks"]);
    assert_eq!(agent.thread("one").branches, 1);
    let key = agent.path().canonicalize().unwrap().join("opencode.db#one");
    let parts = agent.store.source_parts(key.to_str().unwrap(), -1, 100).unwrap();
    let kept: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(&part.bytes)).collect();
    assert!(kept.iter().any(|bytes| bytes.contains("Fixing")), "{kept:?}");

    // The version that was seen is not counted again.
    agent.say("one", "m4", "assistant", "Bye");
    let report = agent.import();
    assert_eq!((report.items.imported, report.items.unchanged), (2, 3));
    assert_eq!(agent.thread("one").branches, 1);
}

#[test]
fn an_answer_waits_until_it_is_finished_or_the_talk_goes_on() {
    let agent = Agent::new();
    agent.say("one", "m1", "user", "Fix it");
    agent.say("one", "m2", "assistant", "Look");
    let working = r#"{"role":"assistant","time":{"created":1770000000000}}"#;
    agent.database.execute("UPDATE message SET data = ?1 WHERE id = 'm2'", [working]).unwrap();
    let report = agent.import();
    assert!(report.problems.iter().any(|problem| problem.reason.contains("waits")), "{report:?}");
    assert_eq!(agent.texts("one"), ["Fix it"]);

    agent
        .database
        .execute(
            "UPDATE part SET data = '{\"type\":\"text\",\"text\":\"Looked\"}', time_updated = 2 WHERE id = 'pm2'",
            [],
        )
        .unwrap();
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it"]);
    // A prompt may be queued while the agent goes on; another answer says that this one was interrupted.
    agent.say("one", "m3", "user", "Stop");
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it"]);
    agent.say("one", "m4", "assistant", "Stopped");
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it", "Looked", "Stop", "Stopped"]);
    assert_eq!(agent.thread("one").branches, 1);
}

#[test]
fn what_was_taken_back_stays_and_what_comes_in_its_place_is_a_branch() {
    let agent = Agent::new();
    for (id, role, text) in
        [("m1", "user", "Fix it"), ("m2", "assistant", "Done"), ("m3", "user", "Drop it"), ("m4", "assistant", "Gone")]
    {
        agent.say("one", id, role, text);
    }
    agent.import();
    agent.database.execute("UPDATE session SET revert = '{\"messageID\":\"m3\"}', time_updated = 9", []).unwrap();
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it", "Done"], "the agent goes on from there");
    agent
        .database
        .execute_batch("DELETE FROM message WHERE id IN ('m3', 'm4'); UPDATE session SET revert = NULL")
        .unwrap();
    agent.say("one", "m5", "user", "Keep it");
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it", "Done", "Keep it"]);
    let thread = agent.thread("one");
    assert_eq!((thread.branches, thread.items), (2, 5));
}

#[test]
fn a_database_that_can_not_be_read_is_named_and_costs_itself() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    let agent = Agent::new();
    agent.say("one", "m1", "user", "Fix it");
    agent.database.pragma_update(None, "wal_checkpoint", "truncate").unwrap();
    let whole = std::fs::read(agent.path().join("opencode.db")).unwrap();

    let place = folder.path().join("found");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("opencode-whole.db"), &whole).unwrap();
    std::fs::write(place.join("opencode-text.db"), "this is no database").unwrap();
    std::fs::write(place.join("opencode-empty.db"), "").unwrap();
    std::fs::write(place.join("opencode-cut.db"), &whole[..whole.len() / 2]).unwrap();
    let mut torn = whole.clone();
    torn[2_000..].fill(0xa5);
    std::fs::write(place.join("opencode-torn.db"), &torn).unwrap();
    std::fs::write(place.join("opencode-head.db"), [&whole[..16], &[0xff; 5_000]].concat()).unwrap();
    let foreign = Connection::open(place.join("opencode-foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE session (id text); CREATE VIEW message AS SELECT 1").unwrap();

    let report = import(&store, &place);
    assert_eq!(report.threads.new, 1);
    for name in ["text", "cut", "torn", "head"] {
        let file = format!("opencode-{name}.db");
        assert!(report.problems.iter().any(|problem| problem.file.contains(&file)), "{file}: {report:?}");
    }
    for name in ["whole", "empty", "foreign"] {
        assert!(!report.problems.iter().any(|problem| problem.file.contains(name)), "{name}: {report:?}");
    }
    let named = import(&store, &place.join("opencode-foreign.db"));
    assert_eq!(named.problems[0].reason, "no known agent's database");
}

#[test]
fn a_transaction_that_is_not_committed_is_not_read() {
    let agent = Agent::new();
    agent.database.pragma_update(None, "journal_mode", "delete").unwrap();
    agent.say("one", "m1", "user", "Fix it");
    agent.database.pragma_update(None, "cache_spill", 1).unwrap();
    agent.database.pragma_update(None, "cache_size", 2).unwrap();
    agent.database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for no in 0..200 {
        agent.say("one", &format!("x{no}"), "user", &"not yet ".repeat(40));
    }
    agent.import();
    assert_eq!(agent.texts("one"), ["Fix it"]);
    agent.database.execute_batch("ROLLBACK").unwrap();
}
