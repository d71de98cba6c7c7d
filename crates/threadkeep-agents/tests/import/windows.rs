//! Chats that editors keep: logs of changes to a state, and keys and values of a database.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, RedactOptions, StoreOptions, ThreadId};
use threadkeep_agents::import::ImportReport;

use super::{given_back, import};

fn store(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder.join("store"))).unwrap()
}

/// What is said on a thread's active path.
fn texts(store: &Store, id: &str) -> Vec<String> {
    let codecs = threadkeep_agents::codecs();
    let items = store.items(&ThreadId::new(id).unwrap(), ItemQuery::default()).unwrap().entries;
    let text = |item: &threadkeep::Item| {
        let codec = codecs.iter().find(|codec| codec.format() == item.format).unwrap();
        codec.view(&item.kind, &item.content).to_text()
    };
    items.iter().map(text).collect()
}

fn branches(store: &Store, id: &str) -> u32 {
    u32::try_from(store.get(&ThreadId::new(id).unwrap()).unwrap().branches).unwrap()
}

/// VS Code at work: a log, and a store beside it.
struct Window {
    folder: tempfile::TempDir,
    store: Store,
}

impl Window {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("w/chatSessions")).unwrap();
        let store = store(folder.path());
        Self { folder, store }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("w/chatSessions/one.jsonl")
    }

    fn write(&self, lines: &[Value]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.log(), text).unwrap();
    }

    fn append(&self, lines: &[Value]) {
        let before = fs::read_to_string(self.log()).unwrap();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.log(), before + &text).unwrap();
    }

    fn import(&self) -> ImportReport {
        let report = import(&self.store, &self.log());
        assert_eq!(given_back(&self.store, &self.log()), fs::read(self.log()).unwrap(), "not the bytes of the log");
        report
    }

    fn texts(&self) -> Vec<String> {
        texts(&self.store, "one")
    }
}

fn request(id: &str, text: &str, answer: &str, state: u8) -> Value {
    json!({"requestId": id, "timestamp": 1_770_000_000_000_u64, "message": {"text": text},
        "response": [{"value": answer}], "modelState": {"value": state}})
}

fn whole(requests: &[Value]) -> Value {
    json!({"kind": 0, "v": {"version": 3, "sessionId": "one", "creationDate": 1_770_000_000_000_u64, "requests": requests}})
}

#[test]
fn a_log_that_grows_brings_what_is_new_and_one_that_is_written_anew_brings_nothing() {
    let window = Window::new();
    window.write(&[whole(&[request("r1", "One?", "1", 1)])]);
    assert_eq!(window.import().items.imported, 3, "the session, a prompt and its answer");
    window.append(&[
        json!({"kind": 2, "k": ["requests"], "v": [request("r2", "Two?", "", 0)]}),
        json!({"kind": 1, "k": ["customTitle"], "v": "Numbers"}),
        json!({"kind": 2, "k": ["requests", 1, "response"], "v": [{"value": "2"}], "i": 0}),
    ]);
    let report = window.import();
    assert_eq!(report.waiting.len(), 1, "the answer is not finished");
    assert_eq!(window.texts(), ["One?", "1", "Two?"]);
    window.append(&[json!({"kind": 1, "k": ["requests", 1, "modelState"], "v": {"value": 1}})]);
    assert_eq!(window.import().waiting.len(), 0);
    assert_eq!(window.texts(), ["One?", "1", "Two?", "2"]);
    let thread = window.store.get(&ThreadId::new("one").unwrap()).unwrap();
    assert_eq!((thread.details.title.as_deref(), thread.branches), (Some("Numbers"), 1));

    // VS Code writes its log anew when it is long.
    window.write(&[whole(&[request("r1", "One?", "1", 1), request("r2", "Two?", "2", 1)])]);
    let items = window.import().items;
    assert_eq!(window.texts(), ["One?", "1", "Two?", "2"]);
    assert_eq!(
        (items.imported, branches(&window.store, "one")),
        (1, 1),
        "what the session says of itself, without its title"
    );
    assert_eq!(window.import().items.imported, 0);
}

#[test]
fn a_session_is_the_same_in_a_document_and_in_a_log() {
    let window = Window::new();
    let document = window.log().with_extension("json");
    let session = json!({"version": 3, "responderUsername": "x", "requests": [request("r1", "One?", "1", 1)], "sessionId": "one"});
    fs::write(&document, session.to_string()).unwrap();
    assert_eq!(import(&window.store, &document).items.imported, 2);
    assert_eq!(given_back(&window.store, &document), fs::read(&document).unwrap());
    window.write(&[whole(&[request("r1", "One?", "1", 1), request("r2", "Two?", "2", 1)])]);
    let items = window.import().items;
    assert_eq!((items.unchanged, items.imported), (2, 3));
    assert_eq!(window.texts(), ["One?", "1", "Two?", "2"]);
}

/// The words stand in the log and in the item that was made of it.
#[test]
fn what_is_taken_out_of_an_item_is_in_no_line_of_its_log_either() {
    let window = Window::new();
    window.write(&[whole(&[request("r1", "The key is hunter2", "1", 1)])]);
    window.import();
    let id = ThreadId::new("one").unwrap();
    let key = window.log().canonicalize().unwrap().to_str().unwrap().to_owned();
    let kept = |store: &Store| {
        let parts = store.source_parts(&key, -1, 100).unwrap();
        parts.iter().any(|part| String::from_utf8_lossy(&part.bytes).contains("hunter2"))
    };
    assert!(kept(&window.store));
    let prompt = window.store.items(&id, ItemQuery::default()).unwrap().entries[0].address();
    let options = RedactOptions { reason: "a key".to_owned(), ..RedactOptions::default() };
    let report = window.store.redact(&id, vec![prompt], options).unwrap();
    assert!(!kept(&window.store));
    assert!(report.file_parts > 0 && report.remains.iter().any(|words| words.contains(&key)), "{report:?}");
    assert!(window.store.verify(&id).unwrap().is_intact());
}

#[test]
fn a_request_that_is_sent_again_is_a_branch() {
    let window = Window::new();
    window.write(&[whole(&[request("r1", "One?", "1", 1), request("r2", "Two?", "3", 1)])]);
    window.import();
    window.append(&[json!({"kind": 2, "k": ["requests"], "v": [request("r3", "Two, really?", "2", 1)], "i": 1})]);
    window.import();
    assert_eq!(window.texts(), ["One?", "1", "Two, really?", "2"]);
    assert_eq!(branches(&window.store, "one"), 2);
}

#[test]
fn a_damaged_line_costs_itself_and_a_log_of_hostile_lines_nothing_else() {
    let window = Window::new();
    let first = whole(&[request("r1", "One?", "1", 1)]).to_string();
    let last = json!({"kind": 2, "k": ["requests"], "v": [request("r2", "Two?", "2", 1)]}).to_string();
    let deep = format!("{{\"kind\":1,\"k\":[\"x\"],\"v\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for bad in [
        "{\"kind\":2,\"k\":[\"requests\"],\"v\":[{\"req",
        "\u{0}\u{0}",
        "{\"kind\":1,\"k\":[\"requests\",18446744073709551615,\"x\"],\"v\":1}",
        &deep,
    ] {
        fs::write(window.log(), format!("{first}\n{bad}\n{last}\n")).unwrap();
        assert_eq!(window.import().items.skipped, 1, "{}", &bad[..bad.len().min(60)]);
        assert_eq!(window.texts(), ["One?", "1", "Two?", "2"]);
    }
}

/// Cursor at work.
struct Cursor {
    folder: tempfile::TempDir,
    store: Store,
    database: Connection,
}

impl Cursor {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("Cursor/User/globalStorage")).unwrap();
        let database = Connection::open(folder.path().join("Cursor/User/globalStorage/state.vscdb")).unwrap();
        database.pragma_update(None, "journal_mode", "wal").unwrap();
        database
            .execute_batch(
                "CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
                 CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);",
            )
            .unwrap();
        let store = store(folder.path());
        Self { folder, store, database }
    }

    fn put(&self, key: &str, value: &Value) {
        let value = value.to_string().into_bytes();
        self.database.execute("INSERT INTO cursorDiskKV VALUES (?1, ?2)", params![key, value]).unwrap();
    }

    fn chat(&self, id: &str, status: &str, messages: &[(&str, u8, &str)]) {
        let listed: Vec<Value> = messages.iter().map(|(id, kind, _)| json!({"bubbleId": id, "type": kind})).collect();
        self.put(
            &format!("composerData:{id}"),
            &json!({"composerId": id, "status": status, "fullConversationHeadersOnly": listed}),
        );
        for (bubble, kind, text) in messages {
            self.put(&format!("bubbleId:{id}:{bubble}"), &json!({"type": kind, "bubbleId": bubble, "text": text}));
        }
    }

    fn import(&self) -> ImportReport {
        import(&self.store, &self.folder.path().join("Cursor"))
    }
}

#[test]
fn only_the_chats_that_changed_are_read_again() {
    let cursor = Cursor::new();
    cursor.chat("one", "completed", &[("z", 1, "One?"), ("a", 2, "1")]);
    cursor.chat("two", "completed", &[("z", 1, "Two?"), ("a", 2, "2")]);
    assert_eq!(cursor.import().files.read, 2);
    assert_eq!(texts(&cursor.store, "one"), ["One?", "1"]);

    // Of the same length, as is all that the list says of it.
    cursor.put("bubbleId:two:a", &json!({"type": 2, "bubbleId": "a", "text": "3"}));
    let report = cursor.import();
    assert_eq!((report.files.read, report.items.imported), (1, 1), "the new bytes are kept beside");
    assert_eq!(texts(&cursor.store, "two"), ["Two?", "2"]);

    cursor.put("checkpointId:one:x", &json!({"files": []}));
    let report = cursor.import();
    assert_eq!((report.files.read, report.items.imported), (0, 0));

    cursor.chat("one", "generating", &[("z", 1, "One?"), ("a", 2, "1"), ("y", 1, "More?"), ("b", 2, "Ye")]);
    let report = cursor.import();
    assert_eq!((report.files.read, report.waiting.len()), (1, 1));
    assert_eq!(texts(&cursor.store, "one"), ["One?", "1", "More?"]);
    cursor.chat("one", "completed", &[("z", 1, "One?"), ("a", 2, "1"), ("y", 1, "More?"), ("b", 2, "Yes.")]);
    cursor.import();
    assert_eq!(texts(&cursor.store, "one"), ["One?", "1", "More?", "Yes."]);
    assert_eq!(branches(&cursor.store, "one"), 1);
}

#[test]
fn a_chat_that_was_named_since_is_told_so() {
    let cursor = Cursor::new();
    let named = |name: &str| json!({"composerId": "one", "name": name}).to_string();
    cursor.database.execute("CREATE TABLE composerHeaders (composerId TEXT PRIMARY KEY, value TEXT)", []).unwrap();
    cursor.database.execute("INSERT INTO composerHeaders VALUES ('one', ?1)", [named("First")]).unwrap();
    cursor.chat("one", "completed", &[("z", 1, "One?"), ("a", 2, "1")]);
    cursor.import();
    cursor.database.execute("UPDATE composerHeaders SET value = ?1", [named("Other")]).unwrap();
    assert_eq!(cursor.import().files.read, 1);
    let title = cursor.store.get(&ThreadId::new("one").unwrap()).unwrap().details.title;
    assert_eq!(title.as_deref(), Some("Other"));
}

#[test]
fn what_another_editor_keeps_under_the_same_name_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("Code/User/workspaceStorage/x");
    fs::create_dir_all(&there).unwrap();
    let database = Connection::open(there.join("state.vscdb")).unwrap();
    database.execute_batch("CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)").unwrap();
    let report = import(&store(folder.path()), &folder.path().join("Code"));
    assert_eq!((report.files.read, report.files.failed, report.items.read), (0, 0, 0));
}

#[test]
fn a_hostile_database_of_the_window_is_read_in_bounded_time() {
    let cursor = Cursor::new();
    // A list that names one large message again and again, and a message that another chat claims.
    let listed = vec![json!({"bubbleId": "z"}); 20_000];
    cursor.put("composerData:one", &json!({"fullConversationHeadersOnly": listed}));
    cursor.put("bubbleId:one:z", &json!({"type": 1, "text": "x".repeat(1 << 20)}));
    cursor.put(
        "composerData:two",
        &json!({"fullConversationHeadersOnly": [{"bubbleId": "../one:z"}, {"bubbleId": "one:z"}]}),
    );
    cursor.put("composerData:%", &json!({"fullConversationHeadersOnly": [{"bubbleId": "' OR 1=1 --"}]}));
    let report = cursor.import();
    assert_eq!(texts(&cursor.store, "one").len(), 1);
    assert_eq!(
        report.items.skipped,
        3 + 2,
        "three messages that are not there, and two chats without one: {:?}",
        report.problems
    );
}
