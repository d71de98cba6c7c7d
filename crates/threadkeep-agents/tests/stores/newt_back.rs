//! Threads given back as a store of newt: held to its rules, and read back.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::json;
use threadkeep::{
    ArtifactKind, ArtifactRelation, MessageQuery, NewArtifact, NewDocument, NewItem, NewMessage, NewPrompt, Role,
    Rules, StoreOptions, ThreadPatch,
};

use super::newt::database;
use super::newt_rules::{Turn, append, create, receipt, receipt_refusals, refusals};
use super::{id, import, open, own, reasons, store_of, texts};

const TABLES: [&str; 10] = [
    "conversations",
    "turns",
    "writer_tips",
    "prompt_receipts",
    "prompt_artifacts",
    "prompt_artifact_tips",
    "roadmaps",
    "conversation_inbox",
    "enrollment_requests",
    "writer_clock",
];

/// The rows of a table by their columns' names, each value with its type.
fn rows(db: &Connection, table: &str) -> Vec<Vec<(String, Value)>> {
    // A number that the engine gives to rows, in whatever order they come; times of roadmaps are not kept.
    let left = ["receipt_order", "created_at_claim", "updated_at_claim"];
    let mut rows = db.prepare(&format!("SELECT * FROM {table} ORDER BY rowid")).unwrap();
    let names: Vec<String> = rows.column_names().map(str::to_owned).collect();
    let row = |row: &rusqlite::Row<'_>| {
        let cells =
            names.iter().enumerate().filter(|(_, name)| table == "conversations" || !left.contains(&name.as_str()));
        let mut cells: Vec<_> = cells.map(|(at, name)| (name.clone(), row.get(at).unwrap())).collect();
        cells.sort_by(|one: &(String, Value), other| one.0.cmp(&other.0));
        Ok(cells)
    };
    let mut rows: Vec<_> = rows.query_map([], row).unwrap().map(Result::unwrap).collect();
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

fn given_back(store: &threadkeep::blocking::Store, threads: &[&str], home: &Path) -> Connection {
    store_of(store, threads, "newt", home);
    let db = Connection::open(home.join("conversations.db")).unwrap();
    assert_eq!(refusals(&db), Vec::<String>::new());
    assert_eq!(receipt_refusals(&db), Vec::<String>::new());
    let broken: i64 = db.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
    assert_eq!(broken, 0);
    db
}

/// A store of newt's with two conversations; the pins have seen newt's one migration.
fn full(folder: &Path) -> Connection {
    let db = database(folder);
    create(&db, "conv-2", "Another", "wb", "/elsewhere");
    append(&db, "conv-2", "wb", &Turn { user: "alone", assistant: "yes", ..Turn::default() });
    db.execute_batch(
        "CREATE TABLE store_migrations (name TEXT PRIMARY KEY);
         INSERT INTO store_migrations VALUES ('pins-once');
         UPDATE conversations SET preference_pin = '{\"tenacity\": \"relentless\"}' WHERE id = 'conv-2';",
    )
    .unwrap();
    db
}

#[test]
fn conversations_of_newt_come_back_with_their_own_rows_and_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    let store = open(folder.path());
    assert_eq!(reasons(&import(&store, &folder.path().join(".newt"))), Vec::<&str>::new());
    assert_eq!(store.document(&id("conv-2"), "pin", None).unwrap().unwrap().text, r#"{"tenacity": "relentless"}"#);
    let back = given_back(&store, &["conv-1", "conv-2"], &folder.path().join("out"));
    for table in TABLES {
        assert_eq!(rows(&back, table), rows(&db, table), "{table}");
    }
    assert_eq!(rows(&back, "store_migrations").len(), 1);
    // Read back, it verifies.
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    assert_eq!(reasons(&import(&fresh, &folder.path().join("out"))), Vec::<&str>::new());
    for conversation in ["conv-1", "conv-2"] {
        let found = fresh.get(&id(conversation)).unwrap();
        assert_eq!(found.details.extra.get("newt.chain"), Some(&json!("verified")), "{conversation}");
        let codec = threadkeep_agents::newt::Newt;
        assert_eq!(texts(&fresh, conversation, &codec), texts(&store, conversation, &codec));
    }
}

#[test]
fn what_was_said_of_a_conversation_here_is_what_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let one = id("conv-1");
    store.update(&one, ThreadPatch::title("renamed")).unwrap();
    store.put_document(&one, NewDocument::new("plan", r#"{"steps":[{"description":"x","status":"done"}]}"#)).unwrap();
    let waiting = store.messages(&one, MessageQuery::default()).unwrap().entries;
    store.withdraw_message(&one, waiting[0].id, None).unwrap();
    store.inject_message(&one, NewMessage::text("me", "come here")).unwrap();
    let back = given_back(&store, &["conv-1"], &folder.path().join("out"));
    for table in ["turns", "writer_tips", "prompt_receipts", "prompt_artifacts"] {
        let of_one = |rows: Vec<Vec<(String, Value)>>| {
            let own = Value::Text("conv-1".to_owned());
            rows.into_iter().filter(|row| row.iter().any(|(_, value)| *value == own)).collect::<Vec<_>>()
        };
        assert_eq!(of_one(rows(&back, table)), of_one(rows(&db, table)), "{table}");
    }
    let text = |sql: &str| back.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("SELECT title FROM conversations"), "renamed");
    assert_eq!(text("SELECT plan FROM conversations"), r#"{"steps":[{"description":"x","status":"Done"}]}"#);
    assert_eq!(text("SELECT scratchpad FROM conversations"), r#"{"a":"b"}"#);
    let inbox =
        "SELECT group_concat(body || ' ' || delivered, '|') FROM (SELECT * FROM conversation_inbox ORDER BY seq)";
    assert_eq!(text(inbox), "was delivered 1|come here 0");
}

#[test]
fn a_conversation_that_went_on_here_is_chained_anew_with_its_receipts() {
    let folder = tempfile::tempdir().unwrap();
    let _db = full(folder.path());
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let live = store.resume(&id("conv-1"), true).unwrap();
    live.append(vec![NewItem::message(Role::User, "here"), NewItem::message(Role::Assistant, "yes")]).unwrap();
    let prompt = live.begin_prompt(NewPrompt::task("a prompt")).unwrap();
    let mut artifact = NewArtifact::new(prompt.receipt.id, ArtifactKind::Decision, ArtifactRelation::DerivedFrom);
    artifact.metadata = r#"{ "b": 1, "a": {"d": 2, "c": 3} }"#.to_owned();
    live.add_artifact(artifact).unwrap();
    live.append(vec![NewItem::message(Role::Assistant, "and done")]).unwrap();
    live.begin_prompt(NewPrompt::continuing(prompt.receipt.id, "more")).unwrap();
    live.shutdown().unwrap();
    let back = given_back(&store, &["conv-2", "conv-1"], &folder.path().join("out"));
    let said =
        "SELECT group_concat(user, '|') FROM (SELECT user FROM turns WHERE conversation_id = 'conv-1' ORDER BY seq)";
    let text = |sql: &str| back.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text(said), "first|second|third|here|a prompt|more");
    let receipts = "SELECT count(*) || ' ' || sum(parent_prompt_id IS NOT NULL) || ' ' || count(DISTINCT root_prompt_id) FROM prompt_receipts";
    assert_eq!(text(receipts), "4 1 3");
    assert_eq!(text("SELECT metadata FROM prompt_artifacts WHERE seq = 3"), r#"{"a":{"c":3,"d":2},"b":1}"#);
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    assert_eq!(reasons(&import(&fresh, &folder.path().join("out"))), Vec::<&str>::new());
    assert_eq!(fresh.get(&id("conv-1")).unwrap().details.extra.get("newt.chain"), Some(&json!("verified")));
    assert_eq!(fresh.get(&id("conv-2")).unwrap().details.extra.get("newt.chain"), Some(&json!("verified")));
}

#[test]
fn threads_of_threadkeep_become_conversations_of_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    store.set_goal(&id("own"), threadkeep::NewGoal::new("left behind")).unwrap();
    let fork = store.fork(&id("own"), None, threadkeep::NewThread::default()).unwrap();
    let home = folder.path().join("out");
    let back = given_back(&store, &["own", fork.id.as_str()], &home);
    let exported = store_of(&store, &["own", fork.id.as_str()], "newt", &home);
    assert!(exported.losses.iter().any(|loss| loss.what.starts_with("goals") && loss.count == 1), "{exported:?}");
    let one = |sql: &str| back.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("SELECT count(*) FROM conversations"), 2);
    assert_eq!(one("SELECT count(DISTINCT writer_fingerprint) FROM turns"), 1);
    assert_eq!(
        one("SELECT count(*) FROM (SELECT seq FROM turns GROUP BY seq HAVING count(*) > 1)"),
        0,
        "a tick was used twice"
    );
}

#[test]
fn rows_that_were_masked_on_the_way_in_are_not_said_to_be_broken() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    let secret = ["pass", "phrase-"].concat() + &"x1".repeat(20);
    append(&db, "conv-1", "wb", &Turn { user: &secret, assistant: "thanks", ..Turn::default() });
    let options = StoreOptions::folder(folder.path().join("masked")).mask_at_write(Rules::literal(&secret).unwrap());
    let store = threadkeep::blocking::Store::open(options).unwrap();
    let report = import(&store, &folder.path().join(".newt"));
    let told = reasons(&report);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("its chains, receipts and artifacts can't be verified here"), "{told:?}");
    assert!(told[0].ends_with("secrets were masked in 1 of its rows on the way in"), "{told:?}");
    let chain = |conversation: &str| store.get(&id(conversation)).unwrap().details.extra.get("newt.chain").cloned();
    assert_eq!((chain("conv-1"), chain("conv-2")), (Some(json!("masked")), Some(json!("verified"))));
    // Given back, it has a chain that holds for what is there.
    given_back(&store, &["conv-1", "conv-2"], &folder.path().join("out"));
}

/// Another store of newt's, with a conversation and its receipt. Its pins have been through newt's one migration.
fn second(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let db = Connection::open(folder.join("conversations.db")).unwrap();
    db.execute_batch(super::newt_rules::SCHEMA).unwrap();
    create(&db, "conv-9", "Of another store", "wa", folder.to_str().unwrap());
    append(&db, "conv-9", "wa", &Turn { user: "ninth", assistant: "yes", ..Turn::default() });
    receipt(&db, "conv-9", "prompt:9", None, b"ninth", 1);
    // The ids of artifacts that are made here are those of the first store.
    db.execute_batch(
        "DELETE FROM prompt_artifacts;
         DELETE FROM prompt_artifact_tips;
         CREATE TABLE store_migrations (name TEXT PRIMARY KEY);
         INSERT INTO store_migrations VALUES ('pins-once');",
    )
    .unwrap();
}

#[test]
fn receipts_of_several_stores_stand_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = database(folder.path());
    first.execute("UPDATE conversations SET preference_pin = '{\"tenacity\":\"relentless\"}'", []).unwrap();
    second(&folder.path().join("second"));
    let store = open(folder.path());
    own(&store, folder.path());
    let live = store.resume(&id("own"), true).unwrap();
    live.begin_prompt(NewPrompt::task("of Threadkeep's own")).unwrap();
    live.shutdown().unwrap();
    import(&store, &folder.path().join(".newt"));
    import(&store, &folder.path().join("second"));
    // Behind the receipt of Threadkeep's own come newt's, of a conversation as it was and of one that went on here.
    let live = store.resume(&id("conv-1"), true).unwrap();
    live.append(vec![NewItem::message(Role::User, "go on")]).unwrap();
    live.shutdown().unwrap();
    let home = folder.path().join("out");
    let back = given_back(&store, &["conv-1", "conv-9", "own"], &home);
    let text = |sql: &str| back.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    let order = "SELECT group_concat(conversation_id, ' ') FROM (SELECT * FROM prompt_receipts ORDER BY receipt_order)";
    assert_eq!(text(order), "own conv-9 conv-1 conv-1");
    let exported = store_of(&store, &["conv-1", "conv-9", "own"], "newt", &home);
    assert!(exported.losses.iter().all(|loss| !loss.what.starts_with("rows")), "{exported:?}");
    // The new store says that its pins were migrated, so none is left that was not.
    assert_eq!(text("SELECT name FROM store_migrations"), "pins-once");
    let pin = "SELECT preference_pin FROM conversations WHERE id = 'conv-1'";
    assert_eq!(text(pin), r#"{"tenacity":"relentless","initiative":"eager"}"#);
}

#[test]
fn no_tick_is_used_twice_when_a_conversation_comes_back_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let workspace = store.workspace(folder.path()).unwrap();
    let new = threadkeep::NewThread { id: Some(id("asked")), ..Default::default() };
    let live = workspace.create(new).unwrap();
    for prompt in ["one", "two"] {
        live.begin_prompt(NewPrompt::task(prompt)).unwrap();
        live.append(vec![NewItem::message(Role::Assistant, "yes")]).unwrap();
    }
    live.shutdown().unwrap();
    let home = folder.path().join("out");
    given_back(&store, &["asked"], &home);
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    assert_eq!(reasons(&import(&fresh, &home)), Vec::<&str>::new());
    let live = fresh.resume(&id("asked"), true).unwrap();
    live.begin_prompt(NewPrompt::task("three")).unwrap();
    live.shutdown().unwrap();
    let back = given_back(&fresh, &["asked"], &other.path().join("out"));
    let one = |sql: &str| back.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("SELECT count(*) FROM prompt_receipts"), 3);
    let used = "SELECT seq FROM turns UNION ALL SELECT seq FROM prompt_receipts";
    let twice = format!("SELECT count(*) FROM (SELECT seq FROM ({used}) GROUP BY seq HAVING count(*) > 1)");
    assert_eq!(one(&twice), 0);
    assert_eq!(one(&format!("SELECT max(last_tick) = (SELECT max(seq) FROM ({used})) FROM writer_clock")), 1);
}

#[test]
fn roadmaps_of_one_id_are_those_of_their_workspaces() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let moved = "UPDATE conversations SET workspace_path = ?1, workspace_key = 'other', roadmap_id = 'road' WHERE id = 'conv-2'";
    db.execute(moved, [elsewhere.to_str()]).unwrap();
    let road =
        "INSERT INTO roadmaps (id, workspace_key, title, tree) VALUES ('road', 'other', 'Other', 'goal = \"o\"')";
    db.execute(road, []).unwrap();
    let store = open(folder.path());
    assert_eq!(reasons(&import(&store, &folder.path().join(".newt"))), Vec::<&str>::new());
    let back = given_back(&store, &["conv-1", "conv-2"], &folder.path().join("out"));
    assert_eq!(rows(&back, "roadmaps"), rows(&db, "roadmaps"));
}

#[test]
fn calls_that_were_made_here_stand_behind_newts_own() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    create(&db, "conv-3", "Calls", "wa", "/elsewhere");
    let events = r#"[{"tool":"ls","args_digest":"path b3:0011223344556677","ok":true,"duration_ms":3}]"#;
    append(&db, "conv-3", "wa", &Turn { user: "look", assistant: "yes", events, ..Turn::default() });
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let live = store.resume(&id("conv-3"), true).unwrap();
    live.append(vec![NewItem::tool_call("c1", "cat", "{\"path\":\"a\"}"), NewItem::tool_result("c1", "a", false)])
        .unwrap();
    live.shutdown().unwrap();
    let back = given_back(&store, &["conv-3"], &folder.path().join("out"));
    let tools = "SELECT group_concat(json_extract(value, '$.tool') || ' ' || json_extract(value, '$.ok'), '|') FROM turns, json_each(events)";
    assert_eq!(back.query_row(tools, [], |row| row.get::<_, String>(0)).unwrap(), "ls 1|cat 1");
}
