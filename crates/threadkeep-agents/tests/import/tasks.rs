//! Tasks of Cline's kind, threads of Amp and rows of Hermes, as their agents go on with them.

use std::path::Path;

use rusqlite::Connection;
use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, ThreadId};

use super::{given_back, import, open, threads};

const ASKED: &str = r#"{"role":"user","content":[{"type":"text","text":"<task>\nFix it\n</task>"}]}"#;
const ANSWERED: &str = r#"{"role":"assistant","content":[{"type":"text","text":"It is fixed."}]}"#;
const THANKED: &str = r#"{"role":"user","content":[{"type":"text","text":"<feedback>\nThanks\n</feedback>"}]}"#;

fn texts(store: &Store, thread: &str) -> Vec<String> {
    let codecs = threadkeep_agents::codecs();
    let items = store.items(&ThreadId::new(thread).unwrap(), ItemQuery::default()).unwrap().entries;
    let codec = |format: &str| codecs.iter().find(|codec| codec.format() == format).unwrap();
    items.iter().map(|item| codec(&item.format).view(&item.kind, &item.content).to_text()).collect()
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_task_that_grows_brings_what_is_new() {
    let (folder, store) = open();
    let task = folder.path().join("saoudrizwan.claude-dev/tasks/1775120400000");
    let file = task.join("api_conversation_history.json");
    write(&file, &format!("[{ASKED},{ANSWERED}]"));
    assert_eq!(import(&store, folder.path()).items.imported, 2);
    write(&file, &format!("[{ASKED},{ANSWERED},{THANKED}]"));
    let report = import(&store, folder.path());
    assert_eq!((report.items.imported, report.items.unchanged), (1, 2));
    assert_eq!(texts(&store, "1775120400000"), ["Fix it", "It is fixed.", "Thanks"]);
    assert_eq!(threads(&store)[0].branches, 1);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
    assert_eq!(import(&store, folder.path()).files.unchanged, 1);
}

#[test]
fn what_was_shown_is_read_where_nothing_else_is_left_and_only_there() {
    let (folder, store) = open();
    let tasks = folder.path().join("rooveterinaryinc.roo-cline/tasks");
    let shown = r#"[{"ts":1775120400001,"type":"say","say":"text","text":"Fix it","images":[]}]"#;
    write(&tasks.join("1775120400000/ui_messages.json"), shown);
    write(&tasks.join("1775120400000/api_conversation_history.json"), &format!("[{ASKED},{ANSWERED}]"));
    write(&tasks.join("1775120500000/ui_messages.json"), shown);
    write(&tasks.join("1775120500000/api_conversation_history.json"), "[]");
    write(&tasks.join("1775120600000/ui_messages.json"), shown);
    let report = import(&store, folder.path());
    assert_eq!((report.files.read, report.threads.new, report.items.imported), (3, 3, 4), "{report:?}");
    assert!(threads(&store).iter().all(|thread| thread.details.agent.as_deref() == Some("roo-code")));
    assert_eq!(texts(&store, "1775120500000"), ["Fix it"]);
    assert_eq!(import(&store, folder.path()).files.unchanged, 3);
}

/// A task begins with what is shown of it, and what the model is told comes later.
#[test]
fn a_task_whose_messages_come_after_what_was_shown_is_the_same_thread() {
    let (folder, store) = open();
    let task = folder.path().join("saoudrizwan.claude-dev/tasks/1775120400000");
    let shown = r#"[{"ts":1775120400001,"type":"say","say":"text","text":"Fix it","images":[]},
        {"ts":1775120400002,"type":"say","say":"text","text":"Done."}]"#;
    write(&task.join("ui_messages.json"), shown);
    import(&store, folder.path());
    assert_eq!(texts(&store, "1775120400000"), ["Fix it", "Done."]);
    let items = store.items(&ThreadId::new("1775120400000").unwrap(), ItemQuery::default()).unwrap().entries;
    assert_eq!(items[1].role, Some(threadkeep::Role::Assistant), "the model said it");
    write(&task.join("api_conversation_history.json"), &format!("[{ASKED},{ANSWERED}]"));
    import(&store, folder.path());
    assert_eq!(threads(&store).len(), 1);
    assert_eq!(texts(&store, "1775120400000"), ["Fix it", "It is fixed."]);
    assert_eq!(import(&store, folder.path()).items.imported, 0);
}

#[test]
fn a_task_that_is_condensed_brings_the_summary_alone() {
    let (folder, store) = open();
    let file = folder.path().join("rooveterinaryinc.roo-cline/tasks/1775120400000/api_conversation_history.json");
    write(&file, &format!("[{ASKED},{ANSWERED}]"));
    import(&store, folder.path());
    let marked = [ASKED, ANSWERED].map(|line| line.replacen('{', r#"{"condenseParent":"c1","#, 1)).join(",");
    let summary =
        r#"{"role":"user","isSummary":true,"condenseId":"c1","content":[{"type":"text","text":"It was fixed."}]}"#;
    write(&file, &format!("[{marked},{summary}]"));
    import(&store, folder.path());
    let thread = &threads(&store)[0];
    assert_eq!(thread.branches, 1);
    assert_eq!(texts(&store, thread.id.as_str()), ["Fix it", "It is fixed.", "It was fixed."]);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
}

#[test]
fn a_log_of_hermes_is_read_where_its_database_does_not_list_the_session() {
    let (folder, store) = open();
    let home = folder.path().join(".hermes");
    std::fs::create_dir(&home).unwrap();
    let database = Connection::open(home.join("state.db")).unwrap();
    let tables =
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, parent_session_id TEXT, started_at REAL, ended_at REAL, end_reason TEXT);
         CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT, tool_call_id TEXT,
           timestamp REAL, active INTEGER DEFAULT 1, compacted INTEGER DEFAULT 0);
         INSERT INTO sessions VALUES ('kept', 'cli', NULL, 1777626000.0, NULL, NULL);
         INSERT INTO messages (session_id, role, content, timestamp) VALUES ('kept', 'user', 'one', 1777626001.0);";
    database.execute_batch(tables).unwrap();
    for id in ["kept", "pruned"] {
        let log = format!(
            r#"{{"session_id":"{id}","session_start":"2026-05-01T09:00:00Z","messages":[{{"role":"user","content":"of {id}"}}]}}"#
        );
        write(&home.join(format!("sessions/session_{id}.json")), &log);
    }
    for round in 0..2 {
        import(&store, folder.path());
        assert_eq!(threads(&store).len(), 2, "round {round}");
        assert_eq!(texts(&store, "kept"), ["one"]);
        assert_eq!(texts(&store, "pruned"), ["of pruned"]);
    }
}

#[test]
fn a_message_that_is_being_shown_waits_and_is_no_branch() {
    let (folder, store) = open();
    let file = folder.path().join("tasks/1775120400000/ui_messages.json");
    let task = r#"{"ts":1,"type":"say","say":"task","text":"Fix it"}"#;
    let said = |text: &str, partial: bool| {
        format!(r#"{{"ts":2,"type":"say","say":"text","text":"{text}","partial":{partial}}}"#)
    };
    write(&file, &format!("[{task},{}]", said("It", true)));
    let report = import(&store, &file);
    assert_eq!((report.items.imported, report.waiting.len()), (1, 1));
    write(&file, &format!("[{task},{}]", said("It is fixed.", false)));
    assert_eq!(import(&store, &file).items.imported, 1);
    // What is changed in place later is kept beside the item.
    write(&file, &format!("[{task},{}]", said("It is fixed. Really.", false)));
    import(&store, &file);
    assert_eq!(texts(&store, "1775120400000"), ["Fix it", "It is fixed."]);
    assert_eq!(threads(&store)[0].branches, 1);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
}

#[test]
fn damage_costs_itself_and_every_byte_comes_back() {
    let (folder, store) = open();
    let documents: [(&str, String); 4] = [
        (
            "tasks/1775120400000/api_conversation_history.json",
            format!("\u{feff}[{ASKED},{{\"role\":\"user\",}},{ANSWERED},[1],{THANKED}"),
        ),
        (
            "tasks/1775120500000/api_conversation_history.json",
            format!("{{\"version\":2,\"messages\":[{ASKED},{{\"role\":7}},{ANSWERED}"),
        ),
        (
            "data/sessions/1775120600000_abcde/1775120600000_abcde.messages.json",
            format!("{{\"sessionId\":{{}},\"messages\":[{ASKED},{ANSWERED},{{\"role\":\"us"),
        ),
        (
            "T-1.json",
            format!(
                "{{\"id\":[],\"created\":\"\",\"messages\":[{ASKED},{ANSWERED},{{\"role\":\"user\",\"content\":\"x\",\"messageId\":{{}}}}], \"env\":[]}}"
            ),
        ),
    ];
    for (name, text) in &documents {
        write(&folder.path().join(name), text);
    }
    let report = import(&store, folder.path());
    assert_eq!((report.files.read, report.files.failed, report.threads.new), (4, 0, 4), "{report:?}");
    assert_eq!(report.items.imported, 3 + 2 + 2 + 3, "{report:?}");
    for (name, text) in &documents {
        assert_eq!(given_back(&store, &folder.path().join(name)), text.as_bytes(), "{name}");
    }
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
    assert_eq!(import(&store, folder.path()).items.imported, 0);
}

#[test]
fn what_hermes_takes_back_is_a_branch_and_what_it_compacts_is_none() {
    let (folder, store) = open();
    let home = folder.path().join(".hermes");
    std::fs::create_dir(&home).unwrap();
    let database = Connection::open(home.join("state.db")).unwrap();
    let sql = |statements: &str| database.execute_batch(statements).unwrap();
    sql("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, parent_session_id TEXT, started_at REAL, ended_at REAL, end_reason TEXT);
         CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT, tool_call_id TEXT,
           timestamp REAL, active INTEGER DEFAULT 1, compacted INTEGER DEFAULT 0);
         INSERT INTO sessions VALUES ('s-1', 'cli', NULL, 1777626000.0, NULL, NULL);
         INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s-1', 'user', 'one', 1777626001.0),
           ('s-1', 'assistant', 'two', 1777626002.0), ('s-1', 'user', 'three', 1777626003.0), ('s-1', 'assistant', 'four', 1777626004.0);");
    assert_eq!(import(&store, folder.path()).items.imported, 5);
    sql("UPDATE messages SET active = 0 WHERE id > 2");
    assert_eq!(import(&store, folder.path()).threads.new, 0);
    assert_eq!(texts(&store, "s-1"), ["one", "two"]);
    sql("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s-1', 'user', 'other', 1777626005.0)");
    import(&store, folder.path());
    assert_eq!(texts(&store, "s-1"), ["one", "two", "other"]);
    assert_eq!(threads(&store)[0].branches, 2);
    sql("UPDATE messages SET active = 0, compacted = 1 WHERE active = 1;
         INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s-1', 'user', '[CONTEXT SUMMARY]: short', 1777626006.0)");
    import(&store, folder.path());
    assert_eq!(texts(&store, "s-1"), ["one", "two", "other", "[CONTEXT SUMMARY]: short"]);
    assert_eq!(threads(&store)[0].branches, 2);
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
}
