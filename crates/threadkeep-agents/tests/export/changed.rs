//! Threads that went on, back or apart in Threadkeep since they were imported.

use std::path::Path;

use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{Address, NewItem, NewThread, RedactOptions, Role, ThreadId, ThreadPatch};

use super::{AGENTS, FILES, export, import, imported, store, strict};

const CODEX: &str = "codex/rollout-2026-03-14T09-00-00-019ce0bb-1111-7222-8333-444455556666.jsonl";
const CLAUDE: &str = "claude-code/0f6a2c1e-93b7-4d58-8a41-6b1d2e3f4a5b.jsonl";

fn sample(agent: &str) -> (Store, ThreadId, Vec<u8>) {
    let path = Path::new(FILES).join(if agent == "codex" { CODEX } else { CLAUDE });
    let (store, thread) = imported(&path).unwrap();
    (store, thread, std::fs::read(path).unwrap())
}

/// A question, a call with its result, and an answer.
fn say(store: &Store, thread: &ThreadId) {
    let live = store.resume(thread, false).unwrap();
    live.append(vec![
        NewItem::message(Role::User, "And in Threadkeep?"),
        NewItem::tool_call("own-1", "look", r#"{"at":7}"#),
        NewItem::tool_result("own-1", "seven", false),
        NewItem::message(Role::Assistant, "It goes on."),
    ])
    .unwrap();
    live.shutdown().unwrap();
}

fn parsed(bytes: &[u8]) -> Vec<Value> {
    strict::lines(bytes).unwrap()
}

#[test]
fn what_was_said_since_stands_behind_the_agents_own_records() {
    for agent in AGENTS {
        let (store, thread, original) = sample(agent);
        say(&store, &thread);
        let (bytes, exported) = export(&store, &thread, None, agent);
        assert!(bytes.starts_with(&original), "{agent}: the agent's records are not as they were");
        assert_eq!(exported.messages, 4);
        assert_eq!(export(&store, &thread, None, agent).0, bytes);
        let lines = parsed(&bytes);
        let new = &lines[parsed(&original).len()..];
        if agent == "claude-code" {
            let mut last = lines[lines.len() - new.len() - 1]["uuid"].clone();
            for line in new {
                assert_eq!(line["parentUuid"], last, "{line}");
                assert_eq!(line["sessionId"], lines[0]["sessionId"]);
                last = line["uuid"].clone();
            }
        } else {
            let shown = |line: &Value| line["payload"]["item"]["content"][0]["text"].as_str().map(str::to_owned);
            let texts: Vec<String> = new.iter().filter_map(shown).collect();
            assert_eq!(texts, ["And in Threadkeep?", "It goes on."]);
        }
        // Read again, the records are known, and what is behind them is what was said.
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(Path::new(if agent == "codex" { CODEX } else { CLAUDE }).file_name().unwrap());
        std::fs::write(&copy, &bytes).unwrap();
        let report = import(&super::store(), &copy);
        assert_eq!((report.items.skipped, report.problems.len()), (0, 0));
    }
}

#[test]
fn a_path_that_leaves_the_file_is_a_session_of_its_own() {
    for agent in AGENTS {
        let (store, thread, original) = sample(agent);
        let head = store.get(&thread).unwrap().head.unwrap();
        let at = Address { depth: head.depth - 1, ..head };
        let live = store.resume(&thread, false).unwrap();
        live.rewind(at).unwrap();
        live.shutdown().unwrap();
        say(&store, &thread);
        let (bytes, exported) = export(&store, &thread, None, agent);
        assert!(exported.records > 0 && exported.messages == 4, "{agent}: {exported:?}");
        let lines = parsed(&bytes);
        if agent == "claude-code" {
            strict::check(agent, &bytes).unwrap();
            assert_ne!(lines[0]["sessionId"], parsed(&original)[0]["sessionId"]);
        } else {
            let meta = &lines[0]["payload"];
            assert_eq!(meta["forked_from_id"], json!(thread.as_str()));
            assert_ne!(meta["id"], json!(thread.as_str()));
        }
    }
}

#[test]
fn a_fork_has_the_agents_records_under_its_own_id() {
    for agent in AGENTS {
        let (store, thread, _) = sample(agent);
        let fork = store.fork(&thread, None, NewThread::default()).unwrap();
        say(&store, &fork.id);
        let (bytes, exported) = export(&store, &fork.id, None, agent);
        assert!(exported.records > 0 && exported.messages == 4, "{agent}: {exported:?}");
        let lines = parsed(&bytes);
        if agent == "claude-code" {
            strict::check(agent, &bytes).unwrap();
            assert_eq!(lines[0]["sessionId"], json!(fork.id.as_str()));
        } else {
            assert_eq!(lines[0]["payload"]["id"], json!(fork.id.as_str()));
            assert_eq!(lines[0]["payload"]["forked_from_id"], json!(thread.as_str()));
            assert_eq!(lines.iter().filter(|line| line["type"] == "session_meta").count(), 1);
        }
    }
}

#[test]
fn turns_that_were_taken_back_are_not_taken_back_again() {
    let path = Path::new(FILES).join("codex/rollback.jsonl");
    let (store, thread) = imported(&path).unwrap();
    let head = store.get(&thread).unwrap().head.unwrap();
    let (whole, _) = export(&store, &thread, None, "codex");
    assert_eq!(whole, std::fs::read(&path).unwrap());
    let at = Address { depth: head.depth - 1, ..head };
    let (bytes, _) = export(&store, &thread, Some(at), "codex");
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.contains("thread_rolled_back"), "its turns are not in the file");
}

#[test]
fn a_redacted_record_leaves_the_chain_whole() {
    for agent in AGENTS {
        let (store, thread, _) = sample(agent);
        let head = store.get(&thread).unwrap().head.unwrap();
        let middle = store.address_at(&thread, head.depth / 2).unwrap();
        let gone = store.item(&thread, middle).unwrap();
        store
            .redact(&thread, vec![middle], RedactOptions { reason: "a secret".to_owned(), ..RedactOptions::default() })
            .unwrap();
        let (bytes, exported) = export(&store, &thread, None, agent);
        let lines = parsed(&bytes);
        assert!(exported.losses.iter().any(|loss| loss.what.contains("redacted")), "{exported:?}");
        if agent == "claude-code" {
            let uuids: Vec<&Value> = lines.iter().map(|line| &line["uuid"]).collect();
            assert!(uuids.contains(&&json!(gone.source_id.unwrap())));
            for line in lines.iter().filter(|line| line["parentUuid"].is_string()) {
                assert!(uuids.contains(&&line["parentUuid"]), "{line}");
            }
        }
        assert!(!String::from_utf8_lossy(&bytes).contains("\n\n"));
    }
}

#[test]
fn a_new_title_goes_along() {
    for agent in AGENTS {
        let (store, thread, original) = sample(agent);
        store.update(&thread, ThreadPatch::title("A better name")).unwrap();
        let (bytes, exported) = export(&store, &thread, None, agent);
        if agent == "claude-code" {
            let added = &parsed(&bytes)[parsed(&original).len()..];
            assert_eq!(added[0]["customTitle"], "A better name");
        } else {
            assert_eq!(bytes, original);
            let [index] = exported.companions.as_slice() else { panic!("{exported:?}") };
            assert!(String::from_utf8_lossy(&index.bytes).contains("A better name") && index.shared);
        }
    }
}

#[test]
fn a_thread_that_was_born_here_is_a_session_of_any_agent() {
    let store = store();
    let folder = tempfile::tempdir().unwrap();
    let id = ThreadId::new("born-here").unwrap();
    let new = NewThread { id: Some(id.clone()), ..NewThread::default() };
    let live = store.workspace(folder.path()).unwrap().create_now(new).unwrap();
    live.append(vec![NewItem::message(Role::User, "Hello")]).unwrap();
    live.shutdown().unwrap();
    say(&store, &id);
    for agent in AGENTS {
        let (bytes, exported) = export(&store, &id, None, agent);
        strict::check(agent, &bytes).unwrap();
        assert_eq!((exported.messages, exported.losses.len()), (5, 0), "{agent}: {exported:?}");
    }
}
