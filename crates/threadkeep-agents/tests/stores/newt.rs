//! newt's conversations.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use threadkeep::{Kind, MessageQuery, RequestQuery, RequestState, Role, Shelf};

use super::newt_rules::{SCHEMA, Turn, append, create, receipt, refusals};
use super::{export, id, import, items, open, own, reasons, texts};

const EVENTS: &str = r#"[{"tool":"ls","args_digest":"path b3:0011223344556677","ok":true,"duration_ms":3}]"#;
const REACHES: &str = r#"[{"name_as_called":"grep","resolution":{"kind":"unknown"}}]"#;

/// A database with a conversation of two writers, and what stands beside it.
pub(super) fn database(folder: &Path) -> Connection {
    let root = folder.join(".newt");
    fs::create_dir_all(&root).unwrap();
    let db = Connection::open(root.join("conversations.db")).unwrap();
    db.execute_batch(SCHEMA).unwrap();
    create(&db, "conv-1", "A title", "wa", folder.to_str().unwrap());
    append(&db, "conv-1", "wa", &Turn { user: "first", assistant: "one", version: 1, ..Turn::default() });
    let acts = Turn {
        user: "second",
        assistant: "two",
        events: EVENTS,
        reaches: REACHES,
        tokens: (Some(7), Some(9)),
        ..Turn::default()
    };
    append(&db, "conv-1", "wa", &acts);
    append(&db, "conv-1", "wb", &Turn { user: "third", assistant: "", ..Turn::default() });
    assert_eq!(refusals(&db), Vec::<String>::new());
    let beside = json!({"steps":[{"description":"look","status":"Active"}]}).to_string();
    let set = "UPDATE conversations SET scratchpad = '{\"a\":\"b\"}', plan = ?1, preference_pin = '{\"cognition\":\"pondering\"}',
        end_reason = 'done', roadmap_id = 'road', node_id = 'n1'";
    db.execute(set, [beside]).unwrap();
    db.execute_batch(
        "INSERT INTO roadmaps (id, workspace_key, title, tree) VALUES ('road', 'key', 'Road',
           'goal = \"g\"\n\n[[subtask]]\nid = \"n1\"\ninstruction = \"do\"\n');
         INSERT INTO conversation_inbox VALUES ('m1', 'conv-1', 'key', 1, 'wait for me', NULL, 0, NULL, 1),
           ('m2', 'conv-1', 'key', 2, 'was delivered', NULL, 1, NULL, 1);
         INSERT INTO enrollment_requests VALUES ('r1', 'conv-1', 'key', '{\"k\":1}', 1, 'declined', 1);
         INSERT INTO live_owners VALUES ('conv-1', 'h', 'b', 1, 'wa', 1);",
    )
    .unwrap();
    receipt(&db, "conv-1", "prompt:1", None, &[0xff, 0], 1);
    receipt(&db, "conv-1", "prompt:2", Some("prompt:1"), b"second", 2);
    db
}

#[test]
fn receipts_and_artifacts_that_do_not_hold_are_named() {
    let changes = [
        (
            "UPDATE prompt_receipts SET raw_text = 'x' WHERE id = 'prompt:1'",
            "receipts of prompts that do not verify: prompt:1",
        ),
        (
            "UPDATE prompt_receipts SET ts_claim = 9 WHERE id = 'prompt:2'",
            "receipts of prompts that do not verify: prompt:2",
        ),
        ("DELETE FROM prompt_receipts WHERE id = 'prompt:1'", "receipts of prompts that do not verify: prompt:2"),
        (
            "UPDATE prompt_artifacts SET body = 'x' WHERE seq = 2",
            "artifacts that do not verify: artifact:2, the last one",
        ),
        ("DELETE FROM prompt_artifacts WHERE seq = 2", "artifacts that do not verify: the last one"),
    ];
    for (change, told) in changes {
        let folder = tempfile::tempdir().unwrap();
        let db = database(folder.path());
        db.execute(change, []).unwrap();
        let store = open(folder.path());
        let report = import(&store, &folder.path().join(".newt"));
        assert_eq!(reasons(&report), [told], "{change}");
        assert_eq!(items(&store, "conv-1").len(), 7);
    }
}

#[test]
fn a_conversation_is_its_turns_and_what_stands_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let _db = database(folder.path());
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".newt"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let thread = store.get(&id("conv-1")).unwrap();
    assert_eq!(thread.details.title.as_deref(), Some("A title"));
    assert_eq!(thread.details.end_reason.as_deref(), Some("done"));
    assert_eq!(thread.details.extra.get("newt.chain"), Some(&json!("verified")));
    let items = items(&store, "conv-1");
    let kinds: Vec<_> = items.iter().map(|item| (item.kind.clone(), item.role.clone())).collect();
    let message = |role| (Kind::Message, Some(role));
    let expected = [
        message(Role::User),
        message(Role::Assistant),
        message(Role::User),
        (Kind::Event, None),
        message(Role::Assistant),
        message(Role::User),
        message(Role::Assistant),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(store.scratchpad(&id("conv-1")).unwrap().unwrap().get("a").map(String::as_str), Some("b"));
    assert_eq!(store.plan(&id("conv-1")).unwrap().unwrap().steps.len(), 1);
    assert_eq!(store.preferences(&id("conv-1")).unwrap().unwrap().cognition.as_deref(), Some("rational"));
    let link = store.roadmap_link(&id("conv-1")).unwrap().unwrap();
    assert_eq!((link.roadmap.as_str(), link.node.as_deref()), ("road", Some("n1")));
    let messages = store.messages(&id("conv-1"), MessageQuery::default()).unwrap().entries;
    assert_eq!(messages.iter().map(|message| message.body.as_str()).collect::<Vec<_>>(), ["wait for me"]);
    let requests = store.requests(RequestQuery::default()).unwrap().entries;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].state, RequestState::Cancelled, "what was asked there grants nothing here");
    assert_eq!(requests[0].note.as_deref(), Some("resolved in newt: declined"));
}

#[test]
fn the_rows_of_turns_can_be_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let mut rows = db
        .prepare("SELECT seq, user, assistant, events, phantom_reaches, tokens_in, prev_hash FROM turns ORDER BY seq")
        .unwrap();
    let mut rows = rows.query([]).unwrap();
    let parts: Vec<serde_json::Value> =
        items(&store, "conv-1").iter().map(|item| serde_json::from_slice(&item.content).unwrap()).collect();
    while let Some(row) = rows.next().unwrap() {
        let seq: i64 = row.get(0).unwrap();
        let part = |name: &str| parts.iter().find(|part| part["seq"] == seq && part["part"] == name);
        let text = |at: usize| json!(row.get::<_, String>(at).unwrap());
        assert_eq!(part("prompt").unwrap()["text"], text(1));
        assert_eq!(part("prompt").unwrap()["prev_hash"], text(6));
        assert_eq!(part("answer").unwrap()["text"], text(2));
        assert_eq!(part("answer").unwrap()["tokens_in"], json!(row.get::<_, Option<i64>>(5).unwrap()));
        let events = part("events")
            .map_or((json!("[]"), json!("[]")), |part| (part["events"].clone(), part["phantom_reaches"].clone()));
        assert_eq!(events, (text(3), text(4)));
    }
}

#[test]
fn a_second_import_changes_nothing_and_a_new_turn_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let store = open(folder.path());
    let root = folder.path().join(".newt");
    let first = import(&store, &root);
    let again = import(&store, &root);
    assert_eq!((again.items.imported, again.items.read), (0, first.items.read));
    // Something that is no change of the conversation.
    db.execute("UPDATE live_owners SET heartbeat_tick = 2", []).unwrap();
    let again = import(&store, &root);
    assert_eq!(again.items.imported, 0);
    append(&db, "conv-1", "wb", &Turn { user: "fourth", assistant: "four", ..Turn::default() });
    let grown = import(&store, &root);
    assert_eq!(grown.threads.updated, 1);
    assert_eq!(grown.companions.imported, 0, "{grown:#?}");
    let roots = items(&store, "conv-1");
    assert_eq!(roots.len(), 9);
    assert_eq!(store.tree(&id("conv-1")).unwrap().branches.len(), 1);
    let waiting = store.messages(&id("conv-1"), MessageQuery::default()).unwrap().entries;
    assert_eq!(waiting.len(), 1, "a message was doubled");
    assert_eq!(store.requests(RequestQuery::default()).unwrap().entries.len(), 1);
    assert_eq!(store.get(&id("conv-1")).unwrap().details.extra.get("newt.chain"), Some(&json!("verified")));
}

#[test]
fn a_turn_that_newt_puts_between_others_begins_a_branch() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let store = open(folder.path());
    let root = folder.path().join(".newt");
    import(&store, &root);
    // This writer's clock knows nothing of the other's turn, so that newt's own order has the new turn before that one.
    append(&db, "conv-1", "wa", &Turn { user: "fourth", assistant: "four", ..Turn::default() });
    let report = import(&store, &root);
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let said = texts(&store, "conv-1", &threadkeep_agents::newt::Newt);
    assert_eq!(said[5..], ["fourth", "four", "third", ""]);
    assert_eq!(store.tree(&id("conv-1")).unwrap().branches.len(), 2);
}

#[test]
fn what_was_changed_here_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let store = open(folder.path());
    let root = folder.path().join(".newt");
    import(&store, &root);
    let mine = threadkeep::NewDocument::new("scratchpad", r#"{"a":"mine"}"#);
    store.put_document(&id("conv-1"), mine).unwrap();
    db.execute("UPDATE conversations SET scratchpad = '{\"a\":\"theirs\"}', plan = '{\"steps\":[]}'", []).unwrap();
    let report = import(&store, &root);
    assert_eq!(
        reasons(&report),
        ["document scratchpad has changed there, and is another here; it was left as it is here"]
    );
    assert_eq!((report.companions.left, report.companions.imported), (1, 1));
    assert_eq!(store.scratchpad(&id("conv-1")).unwrap().unwrap().get("a").map(String::as_str), Some("mine"));
    assert_eq!(store.plan(&id("conv-1")).unwrap().unwrap().steps.len(), 0);
}

#[test]
fn a_chain_that_does_not_verify_is_imported_and_marked() {
    let changes = [
        ("UPDATE turns SET assistant = 'changed' WHERE seq = 1", "does not follow the turn before it"),
        ("UPDATE turns SET assistant = 'changed' WHERE seq = 2", "is not the one that its witness is of"),
        ("DELETE FROM turns WHERE writer_fingerprint = 'wb'", "is not the one"),
        ("UPDATE conversations SET tip_hash = 'x'", "is not the one that the conversation witnesses"),
        ("UPDATE turns SET encoding_version = 99 WHERE seq = 1", "has encoding 99"),
        ("UPDATE turns SET sources = '[\"x\"]' WHERE seq = 2", "sources in a form that is not newt's"),
    ];
    for (change, told) in changes {
        let folder = tempfile::tempdir().unwrap();
        let db = database(folder.path());
        db.execute(change, []).unwrap();
        let store = open(folder.path());
        let report = import(&store, &folder.path().join(".newt"));
        assert!(reasons(&report).iter().any(|reason| reason.contains(told)), "{change}: {:?}", reasons(&report));
        let thread = store.get(&id("conv-1")).unwrap();
        assert!(thread.items >= 5, "{change}");
        assert!(thread.details.extra["newt.chain"]["violations"].as_u64() > Some(0), "{change}");
    }
}

#[test]
fn a_row_of_the_wrong_type_costs_itself_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    db.execute("UPDATE turns SET ts_claim = 'soon' WHERE seq = 2", []).unwrap();
    db.execute("UPDATE conversation_inbox SET delivered = 'perhaps' WHERE id = 'm1'", []).unwrap();
    db.execute("UPDATE conversations SET plan = x'00ff'", []).unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".newt"));
    let reasons = reasons(&report);
    for told in [
        "row 2 of turns: no whole number in `ts_claim`",
        "row m1 of conversation_inbox: no whole number in `delivered`",
        "row conv-1 of conversations: no text in `plan`",
        "its chains can't be verified, since a row of a turn can't be read",
    ] {
        assert!(reasons.contains(&told), "{told}: {reasons:?}");
    }
    assert_eq!(items(&store, "conv-1").len(), 6);
    assert_eq!(report.items.skipped, 2);
    assert_eq!(store.scratchpad(&id("conv-1")).unwrap().unwrap().len(), 1);
}

#[test]
fn the_first_databases_lack_columns_and_tables() {
    let folder = tempfile::tempdir().unwrap();
    let db = Connection::open(folder.path().join("conversations.db")).unwrap();
    db.execute_batch(
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT, workspace_path TEXT, workspace_key TEXT, writer_fingerprint TEXT);
         CREATE TABLE turns (conversation_id TEXT, writer_fingerprint TEXT, seq INTEGER, prev_hash TEXT, user TEXT, assistant TEXT,
           ts_claim INTEGER);
         INSERT INTO conversations VALUES ('old', 'Old', '/', 'k', 'w');
         INSERT INTO turns VALUES ('old', 'w', 1, 'x', 'hello', 'hi', 1767323045000000000);",
    )
    .unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join("conversations.db"));
    assert_eq!(items(&store, "old").len(), 2, "{report:#?}");
    assert_eq!(store.get(&id("old")).unwrap().shelf, Shelf::Active);
}

#[test]
fn documents_of_the_first_versions_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join(".newt/conversations/0b2e4a9c-0000-5000-8000-000000000001");
    fs::create_dir_all(&workspace).unwrap();
    let record = |workspace: &str| {
        json!({"id": "17-a", "title": "Old one", "workspace": "/tmp", "workspace_id": workspace, "persona": "p",
          "turns": [{"user": "one", "assistant": "1"}, {"user": "two", "assistant": "2"}],
          "created_at_unix_nanos": 1_767_323_045_000_000_000_u64, "updated_at_unix_nanos": 1_767_323_046_000_000_000_u64})
    };
    let own = record("0b2e4a9c-0000-5000-8000-000000000001");
    fs::write(workspace.join("17-a.json"), serde_json::to_string_pretty(&own).unwrap()).unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".newt"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let thread = store.get(&id("17-a")).unwrap();
    assert_eq!((thread.items, thread.details.persona.as_deref()), (2, Some("p")));
    assert!(!thread.details.extra.contains_key("newt.chain"));
    let mut other = record("another");
    other["id"] = json!("17-b");
    fs::write(workspace.join("17-b.json"), other.to_string()).unwrap();
    let report = import(&store, &folder.path().join(".newt"));
    assert_eq!(
        reasons(&report),
        ["it names another workspace than the folder that it lies in; newt would pass it over"]
    );
    assert_eq!(store.get(&id("17-b")).unwrap().items, 2);
}

#[test]
fn a_thread_becomes_a_conversation_that_newt_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    let home = folder.path().join("out");
    let exported = export(&store, "own", "newt", &home);
    assert_eq!(exported.messages, 8);
    let db = Connection::open(home.join("conversations.db")).unwrap();
    assert_eq!(refusals(&db), Vec::<String>::new());
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    let report = import(&fresh, &home.join("conversations.db"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let said = texts(&fresh, "own", &threadkeep_agents::newt::Newt);
    let digest = blake3::hash(br#"{"path":"."}"#).to_hex();
    let called = format!("called ls (path b3:{})", &digest[..16]);
    let expected = ["look around", &called, "I will\n\nThere is a file", "what was so far", "", "go on", "done"];
    assert_eq!(said, expected);
    assert_eq!(fresh.get(&id("own")).unwrap().details.extra.get("newt.chain"), Some(&json!("verified")));
    assert_eq!(items(&fresh, "own")[3].kind, Kind::Compaction);
}

#[test]
fn a_conversation_comes_back_with_its_words_and_a_chain_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let home = folder.path().join("out");
    let exported = export(&store, "conv-1", "newt", &home);
    assert_eq!((exported.records, exported.messages), (7, 0));
    let back = Connection::open(home.join("conversations.db")).unwrap();
    assert_eq!(refusals(&back), Vec::<String>::new());
    let rows = |db: &Connection| {
        let mut rows = db
            .prepare("SELECT user, assistant, events, phantom_reaches, tokens_in, tokens_out, ts_claim FROM turns ORDER BY seq, writer_fingerprint")
            .unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let text = |at: usize| row.get::<_, String>(at).unwrap();
            Ok((
                text(0),
                text(1),
                text(2),
                text(3),
                row.get::<_, Option<i64>>(4)?,
                row.get::<_, Option<i64>>(5)?,
                row.get::<_, i64>(6)?,
            ))
        };
        rows.query_map([], row).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(rows(&back), rows(&db));
    // The same thread gives the same file.
    let again = folder.path().join("again");
    export(&store, "conv-1", "newt", &again);
    assert_eq!(fs::read(home.join("conversations.db")).unwrap(), fs::read(again.join("conversations.db")).unwrap());
}
