//! The databases of Crush and Zed, while their agents work.

use std::path::PathBuf;

use rusqlite::{Connection, params};
use threadkeep::blocking::Store;
use threadkeep::{Error, ItemQuery, StoreOptions, Thread, ThreadId};
use threadkeep_agents::codecs;
use threadkeep_agents::export::{Export, codec_for, writable};

use super::{import, threads};

/// An agent's database, and a store beside it.
struct Agent {
    folder: tempfile::TempDir,
    store: Store,
    database: Connection,
}

impl Agent {
    fn new(place: &str, tables: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
        let path = folder.path().join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let database = Connection::open(path).unwrap();
        database.execute_batch(tables).unwrap();
        Self { folder, store, database }
    }

    fn crush() -> Self {
        Self::new(
            "shop/.crush/crush.db",
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, title TEXT, prompt_tokens INTEGER, completion_tokens
               INTEGER, cost REAL, updated_at INTEGER, created_at INTEGER);
             CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT, role TEXT, parts TEXT, model TEXT, created_at INTEGER,
               updated_at INTEGER, finished_at INTEGER);
             INSERT INTO sessions VALUES ('one', NULL, 'A talk', 0, 0, 0, 1772452800, 1772452800);",
        )
    }

    fn zed() -> Self {
        let columns = "id TEXT PRIMARY KEY, summary TEXT, updated_at TEXT, data_type TEXT, data BLOB";
        Self::new("zed/threads/threads.db", &format!("CREATE TABLE threads ({columns})"))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(if self.folder.path().join("zed").is_dir() { "zed" } else { "shop" })
    }

    fn put_crush(&self, id: &str, role: &str, parts: &str) {
        let sql = "INSERT OR REPLACE INTO messages VALUES (?1, 'one', ?2, ?3, 'm', 1772452801, 1772452801, NULL)";
        self.database.execute(sql, params![id, role, parts]).unwrap();
    }

    fn put_zed(&self, id: &str, data: &[u8]) {
        let sql = "INSERT OR REPLACE INTO threads VALUES (?1, 'A talk', '2026-05-04T09:30:00+00:00', 'zstd', ?2)";
        self.database.execute(sql, params![id, data]).unwrap();
    }

    fn thread(&self, id: &str) -> Thread {
        self.store.get(&ThreadId::new(id).unwrap()).unwrap()
    }

    fn texts(&self, id: &str) -> Vec<String> {
        let page = self.store.items(&ThreadId::new(id).unwrap(), ItemQuery::default()).unwrap();
        let text = |item: &threadkeep::Item| {
            let codec = codecs().into_iter().find(|codec| codec.format() == item.format).unwrap();
            codec.view(&item.kind, &item.content).to_text()
        };
        page.entries.iter().map(text).collect()
    }
}

fn packed(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 3).unwrap()
}

#[test]
fn an_answer_of_crush_waits_until_it_is_ended() {
    let agent = Agent::crush();
    agent.put_crush("m1", "user", r#"[{"type":"text","data":{"text":"Fix it"}}]"#);
    agent.put_crush("m2", "assistant", r#"[{"type":"text","data":{"text":"I"}}]"#);
    let report = import(&agent.store, &agent.path());
    assert_eq!((report.items.imported, report.waiting.len()), (2, 1), "{report:?}");
    assert_eq!(agent.texts("one"), ["Fix it"]);
    assert_eq!(agent.thread("one").details.cwd.unwrap(), agent.path().canonicalize().unwrap().display().to_string());

    let done = r#"[{"type":"text","data":{"text":"I did"}},{"type":"finish","data":{"reason":"end_turn","time":1}}]"#;
    agent.put_crush("m2", "assistant", done);
    assert_eq!(import(&agent.store, &agent.path()).items.imported, 1);
    assert_eq!(agent.texts("one"), ["Fix it", "I did"]);

    // Its bytes change in the same second, and it is the same message.
    agent.put_crush("m2", "assistant", &done.replace("end_turn", "max_tokens"));
    import(&agent.store, &agent.path());
    assert_eq!(import(&agent.store, &agent.path()).items.imported, 0);
    assert_eq!((agent.thread("one").items, agent.thread("one").branches), (2, 1));
}

#[test]
fn a_thread_of_zed_that_is_written_anew_brings_what_is_new() {
    let agent = Agent::zed();
    let user = r#"{"User":{"id":"u1","content":[{"Text":"Sort"}]}}"#;
    let answer = r#"{"Agent":{"content":[{"Text":"Sorted"}],"tool_results":{}}}"#;
    let document = |messages: &str| format!(r#"{{"title":"T","messages":[{messages}],"version":"0.3.0"}}"#);
    agent.put_zed("one", &packed(&document(&format!("{user},{answer}"))));
    assert_eq!(import(&agent.store, &agent.path()).items.imported, 4);

    // A newer program knows one more key of each message.
    let newer = answer.replace(r#""tool_results""#, r#""reasoning_details":null,"tool_results""#);
    let more = r#"{"User":{"id":"u2","content":[{"Text":"Again"}]}}"#;
    agent.put_zed("one", document(&format!("{user},{newer},{more}")).as_bytes());
    import(&agent.store, &agent.path());
    assert_eq!(agent.texts("one"), ["Sort", "Sorted", "Again"]);
    assert_eq!(agent.thread("one").branches, 1);

    // The person went back, and asked something else.
    let other = r#"{"User":{"id":"u3","content":[{"Text":"Reverse"}]}}"#;
    agent.put_zed("one", &packed(&document(&format!("{user},{newer},{other}"))));
    import(&agent.store, &agent.path());
    assert_eq!((agent.thread("one").items, agent.thread("one").branches), (4, 2));
    assert_eq!(agent.texts("one"), ["Sort", "Sorted", "Reverse"]);
}

#[test]
fn a_thread_of_zed_that_a_newer_program_rewrites_is_no_branch() {
    let zed = Agent::zed();
    let flat = r#"{"version":"0.2.0","messages":[{"id":1,"role":"user","segments":[{"type":"text","text":"Sort"}]},
        {"id":2,"role":"assistant","segments":[{"type":"text","text":"Sorted."}]}]}"#;
    zed.put_zed("t", &packed(flat));
    import(&zed.store, &zed.path());
    let newer = r#"{"version":"0.3.0","messages":[{"User":{"id":"new","content":[{"Text":"Sort"}]}},
        {"Agent":{"content":[{"Text":"Sorted."}],"tool_results":{}}}]}"#;
    zed.put_zed("t", &packed(newer));
    import(&zed.store, &zed.path());
    assert_eq!(zed.thread("t").branches, 1);
    assert_eq!(zed.texts("t"), ["Sort", "Sorted."]);
}

#[test]
fn an_answer_that_holds_its_results_is_told_with_them_to_every_agent() {
    let agent = Agent::zed();
    let call = r#"{"ToolUse":{"id":"t1","name":"count","input":{"what":"shelves"}}}"#;
    let result = r#"{"t1":{"tool_use_id":"t1","is_error":false,"content":[{"Text":"nine shelves"}]}}"#;
    let messages = [
        r#"{"User":{"id":"u1","content":[{"Text":"Count"}]}}"#.to_owned(),
        format!(r#"{{"Agent":{{"content":[{{"Text":"I count"}},{call}],"tool_results":{result}}}}}"#),
        r#"{"Agent":{"content":[{"Text":"Nine"}],"tool_results":{}}}"#.to_owned(),
    ];
    agent.put_zed("one", &packed(&format!(r#"{{"messages":[{}]}}"#, messages.join(","))));
    import(&agent.store, &agent.path());
    // newt keeps digests of results.
    for name in writable().into_iter().filter(|name| *name != "newt") {
        let thread = ThreadId::new("one").unwrap();
        let export = Export::new(&agent.store, &thread, None, codec_for(name).unwrap(), &|_| None).unwrap();
        let mut bytes = Vec::new();
        let put = &mut |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        let exported = export.write::<Error>(put).unwrap();
        assert!(String::from_utf8_lossy(&bytes).contains("nine shelves"), "{name}");
        assert!(!exported.losses.iter().any(|loss| loss.what.contains("calls")), "{name}: {:?}", exported.losses);
    }
}

#[test]
fn a_packed_thread_that_would_fill_the_memory_costs_itself() {
    let agent = Agent::zed();
    // 260 MiB of space, in a few kilobytes.
    let mut encoder = zstd::Encoder::new(Vec::new(), 19).unwrap();
    std::io::Write::write_all(&mut encoder, br#"{"messages":[{"User":{"id":"b","content":[{"Text":"#).unwrap();
    for _ in 0..260 {
        std::io::Write::write_all(&mut encoder, &vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 64 << 10, "{}", bomb.len());
    agent.put_zed("bomb", &bomb);
    let whole = r#"{"messages":[{"User":{"id":"u1","content":[{"Text":"Sort"}]}}],"version":"0.3.0"}"#;
    agent.put_zed("whole", &packed(whole));
    let noise: String = (0..40_000_u32).map(|no| format!("{:08x}", no.wrapping_mul(2_654_435_761))).collect();
    let long = whole.replace(
        "}],\"version\"",
        &format!("}},{{\"User\":{{\"id\":\"u2\",\"content\":[{{\"Text\":\"{noise}\"}}]}}}}],\"version\""),
    );
    let cut = packed(&long);
    agent.put_zed("cut", &cut[..cut.len() * 9 / 10]);
    agent.put_zed("empty", b"");
    let report = import(&agent.store, &agent.path());
    let said = |session: &str, what: &str| {
        let mut problems = report.problems.iter().filter(|problem| problem.file.ends_with(&format!("#{session}")));
        assert!(problems.any(|problem| problem.reason.contains(what)), "{session}: {report:?}");
    };
    said("bomb", "it unpacks to more than 268435456 bytes; nothing of it is read");
    said("cut", "it can't be unpacked");
    said("empty", "what it says of itself can't be read");
    assert_eq!(agent.texts("whole"), ["Sort"]);
    assert_eq!(agent.texts("cut"), ["Sort"], "what stands before the cut");
    assert_eq!(threads(&agent.store).len(), 2);
}

#[test]
fn rows_of_other_types_cost_themselves() {
    let agent = Agent::crush();
    for (id, role, parts) in [
        ("m1", "user", r#"[{"type":"text","data":{"text":"Fix it"}},7,null,{"type":{}},{"data":[]}]"#),
        ("m2", "assistant", r#"{"not":"a list"}"#),
        ("m3", "tool", r#"[{"type":"tool_result","data":{"tool_call_id":7,"content":{},"is_error":"yes"}}]"#),
        ("m4", "wizard", "[]"),
        ("m5", "assistant", r#"[{"type":"tool_call","data":{"id":"a","name":"b","input":"{\"cut"}}]"#),
    ] {
        agent.put_crush(id, role, parts);
    }
    agent
        .database
        .execute("INSERT INTO messages VALUES ('m6', 'one', x'ff', x'00ff', 7, 'x', NULL, NULL)", [])
        .unwrap();
    import(&agent.store, &agent.path());
    assert_eq!(import(&agent.store, &agent.path()).items.imported, 0);
    assert!(agent.thread("one").items >= 5, "{:?}", agent.texts("one"));

    let agent = Agent::zed();
    for (id, document) in [
        ("a", r#"{"messages":[7,null,[],{},{"User":7},{"Agent":{"content":{},"tool_results":[]}},{"role":{}}]}"#),
        ("b", r#"{"messages":{"User":1},"title":7}"#),
        ("c", "[]"),
        (
            "d",
            r#"{"messages":[{"Agent":{"content":[{"ToolUse":7},{"Mention":{}},{"Image":[]},"x"],"tool_results":{"q":7}}},{"User":{}}]}"#,
        ),
    ] {
        agent.put_zed(id, document.as_bytes());
    }
    let report = import(&agent.store, &agent.path());
    assert_eq!(import(&agent.store, &agent.path()).items.imported, 0);
    let ids: Vec<String> = threads(&agent.store).into_iter().map(|thread| thread.id.to_string()).collect();
    assert!(["a", "d"].iter().all(|id| ids.contains(&(*id).to_owned())), "{ids:?} {report:?}");
}
