//! Secrets in threads that are given back as a store of their agent's.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use threadkeep::blocking::Store;
use threadkeep::{
    Change, NewCheckpoint, NewDocument, NewJob, NewPart, NewRoadmap, NewRun, PartKind, RedactOptions, RoadmapId, Rules,
    Status, StoreOptions, ThreadPatch, Tool,
};

use super::newt::database;
use super::newt_rules::{receipt, receipt_refusals, refusals};
use super::{id, import, masked_store_of, open, own, reasons, store_of};

const SECRET: &str = "hunter-two-hunter";

/// Masks one word.
fn without(word: &str) -> impl Fn(&[u8]) -> Option<Vec<u8>> {
    move |bytes| {
        let text = String::from_utf8_lossy(bytes);
        text.contains(word).then(|| text.replace(word, "[masked]").into_bytes())
    }
}

fn holds(home: &Path, name: &str, word: &str) -> bool {
    fs::read(home.join(name)).unwrap().windows(word.len()).any(|part| part == word.as_bytes())
}

fn newt_holds(home: &Path) -> Connection {
    let db = Connection::open(home.join("conversations.db")).unwrap();
    assert_eq!((refusals(&db), receipt_refusals(&db)), (Vec::<String>::new(), Vec::<String>::new()));
    db
}

fn receipts(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM prompt_receipts", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_secret_leaves_in_the_bytes_of_no_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    receipt(&db, "conv-1", "prompt:3", Some("prompt:2"), SECRET.as_bytes(), 3);
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let home = folder.path().join("whole");
    store_of(&store, &["conv-1"], "newt", &home);
    assert!(holds(&home, "conversations.db", SECRET));
    assert_eq!(receipts(&newt_holds(&home)), 3);
    // Once in a receipt alone, once in a turn, too.
    for (secret, told) in [(SECRET, 1), ("second", 1)] {
        let home = folder.path().join(secret);
        let exported = masked_store_of(&store, &["conv-1"], "newt", &home, &without(secret));
        assert!(!holds(&home, "conversations.db", secret), "{secret}");
        assert_eq!(receipts(&newt_holds(&home)), 0);
        let lost = |what: &str| exported.losses.iter().find(|loss| loss.what.starts_with(what)).map(|loss| loss.count);
        assert_eq!(lost("rows with a secret"), Some(told), "{exported:?}");
        assert_eq!(lost("receipts of prompts"), Some(5), "two receipts, and three artifacts: {exported:?}");
    }
}

#[test]
fn the_words_of_a_redacted_prompt_leave_in_no_receipt() {
    let folder = tempfile::tempdir().unwrap();
    drop(database(folder.path()));
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let options = RedactOptions { reason: "a secret".to_owned(), ..RedactOptions::default() };
    let rules = Rules::literal("second").unwrap();
    store.redact_matching(Some(vec![id("conv-1")]), rules, options, true, |_, _| {}).unwrap();
    let home = folder.path().join("out");
    store_of(&store, &["conv-1"], "newt", &home);
    assert!(!holds(&home, "conversations.db", "second"));
    assert_eq!(receipts(&newt_holds(&home)), 0);
}

/// What the store keeps of the conversation's rows.
fn rows_of(store: &Store, thread: &str) -> String {
    let source = store.sources(&id(thread)).unwrap().pop().unwrap();
    let parts = store.source_parts(&source.path, -1, 1_000).unwrap();
    parts.iter().map(|part| String::from_utf8_lossy(&part.bytes).into_owned() + "\n").collect()
}

fn digits(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// newt keeps the words of a prompt as bytes, which stand in the row that is stored as digits.
#[test]
fn a_secret_comes_in_in_the_bytes_of_no_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    receipt(&db, "conv-1", "prompt:3", Some("prompt:2"), format!("say {SECRET} to it").as_bytes(), 3);
    let plain = open(folder.path());
    assert_eq!(import(&plain, &folder.path().join(".newt")).problems, []);
    assert!(rows_of(&plain, "conv-1").contains(&digits(SECRET)), "this proves nothing");
    let options = StoreOptions::folder(folder.path().join("masking"));
    let store = Store::open(options.mask_at_write(Rules::literal(SECRET).unwrap())).unwrap();
    let report = import(&store, &folder.path().join(".newt"));
    assert_eq!((report.items.masked, report.problems.len()), (1, 1), "{report:?}");
    assert!(reasons(&report)[0].contains("secrets were masked in 1 of its rows"), "{report:?}");
    let rows = rows_of(&store, "conv-1");
    assert!(!rows.contains(&digits(SECRET)) && rows.contains(&digits("say [redacted:literal] to it")), "{rows}");
    assert_eq!(import(&store, &folder.path().join(".newt")).items.imported, 0);
    // Receipts whose words are not newt's own would not verify there.
    let home = folder.path().join("out");
    store_of(&store, &["conv-1"], "newt", &home);
    assert_eq!(receipts(&newt_holds(&home)), 0);
}

#[test]
fn a_secret_is_redacted_in_the_bytes_of_a_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    receipt(&db, "conv-1", "prompt:3", Some("prompt:2"), SECRET.as_bytes(), 3);
    let store = open(folder.path());
    import(&store, &folder.path().join(".newt"));
    let redact = |apply| {
        let options = RedactOptions { reason: "a secret".to_owned(), ..RedactOptions::default() };
        store.redact_matching(None, Rules::literal(SECRET).unwrap(), options, apply, |_, _| {}).unwrap()
    };
    assert_eq!(redact(false).file_parts, 1);
    assert_eq!(redact(true).file_parts, 1);
    assert!(!rows_of(&store, "conv-1").contains(&digits(SECRET)));
    assert_eq!(redact(true).file_parts, 0);
    let home = folder.path().join("out");
    store_of(&store, &["conv-1"], "newt", &home);
    assert_eq!(receipts(&newt_holds(&home)), 0);
}

#[test]
fn every_text_beside_a_thread_is_masked() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    let own = id("own");
    let secret = || SECRET.to_owned();
    let set = || Change::Set(secret());
    let patch = ThreadPatch {
        status: Some(Status::Completed),
        title: set(),
        source: set(),
        working_path: set(),
        sandbox_policy: set(),
        approval_policy: set(),
        memory_mode: set(),
        persona: set(),
        end_reason: set(),
        ..ThreadPatch::default()
    };
    store.update(&own, patch).unwrap();
    let schema = format!("{{\"title\":\"{SECRET}\"}}");
    let tool = Tool { description: Some(secret()), ..Tool::new(SECRET, schema.clone()) };
    store.set_tools(&own, vec![tool], None).unwrap();
    store.put_document(&own, NewDocument::new("scratchpad", schema.clone())).unwrap();
    let live = store.resume(&own, true).unwrap();
    live.save_checkpoint(NewCheckpoint::new(SECRET, schema.clone())).unwrap();
    live.shutdown().unwrap();
    let workspace = store.workspace(folder.path()).unwrap();
    let road = RoadmapId::new("road").unwrap();
    let tree = format!("goal = \"{SECRET}\"\n\n[[subtask]]\nid = \"n1\"\ninstruction = \"{SECRET}\"\n");
    workspace.create_roadmap(NewRoadmap { title: Some(secret()), ..NewRoadmap::new(road.clone(), tree) }).unwrap();
    workspace.link_roadmap(&own, &road, Some("n1".to_owned())).unwrap();
    let payload = Some(schema.clone());
    workspace
        .add_job(NewJob { thread: Some(own.clone()), payload, detail: Some(secret()), ..NewJob::new(SECRET) })
        .unwrap();
    let run =
        workspace.start_run(NewRun { thread: Some(own.clone()), goal: Some(secret()), ..NewRun::new(SECRET) }).unwrap();
    for kind in [
        PartKind::Branch { branch: secret(), node: secret() },
        PartKind::Control { node: secret(), control: secret() },
        PartKind::Leaf { leaf: secret(), task: secret(), branch_run: None, input_hash: Some(secret()) },
    ] {
        workspace.start_part(&run.id, NewPart::new(kind)).unwrap();
    }
    for (agent, name) in [("codewhale", "state.db"), ("newt", "conversations.db")] {
        let home = folder.path().join(agent);
        let exported = masked_store_of(&store, &["own"], agent, &home, &without(SECRET));
        assert!(!holds(&home, name, SECRET), "{agent}");
        assert!(holds(&home, name, "[masked]"), "{agent}");
        for companion in exported.companions {
            assert!(!String::from_utf8_lossy(&companion.bytes).contains(SECRET), "{:?}", companion.path);
        }
    }
}
