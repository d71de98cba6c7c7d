//! Store files that are damaged, foreign, or from another time.

use std::fs;

use threadkeep::{Kind, NewItem, Role, View};

use crate::sandbox::Sandbox;

fn with_bytes(change: impl FnOnce(&mut Vec<u8>)) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["hello", "world"]);
    let mut bytes = fs::read(sandbox.database()).unwrap();
    change(&mut bytes);
    for file in ["threadkeep.db-wal", "threadkeep.db-shm"] {
        let _ = fs::remove_file(sandbox.path("store").join(file));
    }
    fs::write(sandbox.database(), &bytes).unwrap();
    (sandbox, bytes)
}

fn is_refused_untouched(sandbox: &Sandbox, bytes: &[u8], code: i32) {
    for arguments in [&["list"][..], &["rename", "one", "x"], &["verify"]] {
        assert_eq!(sandbox.code(arguments), code, "{arguments:?}");
    }
    assert!(fs::read(sandbox.database()).unwrap() == bytes, "the file was written to");
}

/// Changes the database behind the program's back.
fn with_sql(sql: &str) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["hello", "world"]);
    let database = rusqlite::Connection::open(sandbox.database()).unwrap();
    database.execute_batch(sql).unwrap();
    database.close().unwrap();
    let bytes = fs::read(sandbox.database()).unwrap();
    (sandbox, bytes)
}

const NEWER: &str = "INSERT INTO schema_migrations SELECT max(number) + 1, 'newer', '', 0 FROM schema_migrations";

#[test]
fn a_newer_schema_is_told_and_left_alone() {
    let (sandbox, bytes) = with_sql(NEWER);
    is_refused_untouched(&sandbox, &bytes, 6);
    let database = rusqlite::Connection::open(sandbox.database()).unwrap();
    let found: i64 = database.query_row("SELECT max(number) FROM schema_migrations", [], |row| row.get(0)).unwrap();
    let place = sandbox.database().canonicalize().unwrap();
    let words = format!(
        "error: {} has schema {found}, this version knows up to {}: use the newer Threadkeep that brought it forward, or go back \
         to the copy that was made before\nhint: the store was not touched; its folder `backups` holds it as it was before, which \
         `restore-backup` puts back\n",
        place.display(),
        found - 1
    );
    for arguments in [&["list"][..], &["append", "one"], &["verify"]] {
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(6), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), words, "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
    let output = sandbox.run(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["findings"][0]["code"], "schema-newer", "{found}");
}

#[test]
fn a_damaged_record_of_the_schema_is_no_newer_version() {
    for (damage, words) in [
        ("PRAGMA user_version = 999", "its header says schema 999"),
        ("INSERT INTO schema_migrations VALUES (9999, 'x', '', 0)", "the ledger lacks step"),
        ("DELETE FROM schema_migrations", "no step of its schema is on record"),
    ] {
        let (sandbox, bytes) = with_sql(damage);
        is_refused_untouched(&sandbox, &bytes, 5);
        let (_, error) = sandbox.failure(&["list"]);
        assert_eq!(error["kind"], "corrupt");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
}

#[test]
fn a_database_of_another_program_is_told_and_left_alone() {
    let (sandbox, bytes) = with_bytes(|bytes| bytes[68..72].copy_from_slice(&0x1234_u32.to_be_bytes()));
    is_refused_untouched(&sandbox, &bytes, 5);
}

#[test]
fn a_file_that_is_no_database_is_told_and_left_alone() {
    let (sandbox, bytes) = with_bytes(|bytes| *bytes = b"a list of groceries".to_vec());
    is_refused_untouched(&sandbox, &bytes, 5);
}

#[test]
fn a_file_that_was_cut_is_told_and_left_alone() {
    let (sandbox, bytes) = with_bytes(|bytes| bytes.truncate(bytes.len() / 2));
    is_refused_untouched(&sandbox, &bytes, 5);
    let (sandbox, bytes) = with_bytes(|bytes| bytes.truncate(50));
    is_refused_untouched(&sandbox, &bytes, 5);
}

#[test]
fn a_changed_item_is_found() {
    let sandbox = Sandbox::new();
    let word = "an unmistakable word";
    sandbox.thread("one", "One", &["first", word, "third"]);
    assert_eq!(sandbox.json(&["verify"])["intact"], 1);
    let view = View::text(Some(Role::User), format!("A{}", &word[1..]));
    let changed = NewItem::from_view(Kind::Message, &view).content;
    let update = "UPDATE items SET content = ?1, size = length(?1), encoding = 0 WHERE key & 4294967295 = 1";
    let database = rusqlite::Connection::open(sandbox.database()).unwrap();
    assert_eq!(database.execute(update, [changed]).unwrap(), 1);
    drop(database);
    let output = sandbox.run(&["verify", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["threads"], &report["intact"]), (&1.into(), &0.into()));
    let found = &report["invalid"][0];
    assert_eq!((&found["thread"], &found["depth"]), (&"one".into(), &1.into()));
    let output = sandbox.run(&["verify", "one"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8(output.stdout).unwrap().contains("@1"));
}

#[test]
fn a_document_is_whole_though_an_item_in_it_is_damaged() {
    let sandbox = Sandbox::new();
    let text = "a text that is long enough to be compressed ".repeat(20);
    sandbox.thread("one", "One", &vec![text.as_str(); 400]);
    let database = rusqlite::Connection::open(sandbox.database()).unwrap();
    let damage = "UPDATE items SET content = zeroblob(9) WHERE key & 4294967295 = 300";
    assert_eq!(database.execute(damage, []).unwrap(), 1);
    database.close().unwrap();
    let output = sandbox.run(&["show", "one", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!document["items"].as_array().unwrap().is_empty());
    assert_eq!((&document["error"]["kind"], &document["error"]["code"]), (&"corrupt".into(), &5.into()));
    assert!(document["error"]["message"].as_str().unwrap().contains("one@300"), "{document}");
    assert_eq!(sandbox.json(&["show", "one", "--from", "301"])["items"].as_array().unwrap().len(), 99);
    assert_eq!(sandbox.json(&["list"])["threads"][0]["id"], "one");
    assert!(sandbox.ok(&["tree", "one"]).contains("@0–399"));
}
