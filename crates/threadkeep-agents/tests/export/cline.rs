//! Threads of every agent, written for Cline's command line: read by a reader that knows nothing of the codec, and read back.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;
use threadkeep::{ListQuery, Thread};
use threadkeep_agents::export::{Export, Exported, codec_for};

use super::{FILES, import, store};

fn written(store: &threadkeep::blocking::Store, thread: &Thread) -> (String, Exported, std::path::PathBuf) {
    let codec = codec_for("cline").unwrap();
    let export = Export::new(store, &thread.id, None, codec.clone(), &|_| None).unwrap();
    let mut out = Vec::new();
    let exported = export
        .write::<threadkeep::Error>(&mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    (String::from_utf8(out).unwrap(), exported, codec.place(export.session()).unwrap())
}

/// What the program wants of a session's messages, and what hosts of models want of them.
fn check(document: &Value) {
    assert_eq!((&document["version"], document["agent"].as_str()), (&1.into(), Some("lead")));
    let (mut ids, mut calls, mut open) = (HashSet::new(), HashSet::new(), HashSet::new());
    for message in document["messages"].as_array().unwrap() {
        assert!(ids.insert(message["id"].as_str().unwrap()), "{message}");
        assert!(message["ts"].is_i64());
        let role = message["role"].as_str().unwrap();
        let Some(blocks) = message["content"].as_array() else {
            assert!(message["content"].is_string());
            continue;
        };
        assert!(!blocks.is_empty(), "{message}");
        for block in blocks {
            match (role, block["type"].as_str().unwrap()) {
                (_, "text") => assert!(!block["text"].as_str().unwrap().trim().is_empty(), "{message}"),
                ("user", "image") => assert!(block["data"].is_string() && block["mediaType"].is_string(), "{block}"),
                ("assistant", "tool_use") => {
                    assert!(block["input"].is_object());
                    let id = block["id"].as_str().unwrap();
                    assert!(calls.insert(id), "{id} is called twice");
                    open.insert(id);
                }
                ("user", "tool_result") => {
                    assert!(open.remove(block["tool_use_id"].as_str().unwrap()), "{block} answers nothing");
                }
                ("assistant", "thinking" | "redacted_thinking") => {}
                other => panic!("{other:?} in {message}"),
            }
        }
    }
}

#[test]
fn threads_of_every_agent_are_sessions_of_clines_command_line() {
    let store = store();
    import(&store, Path::new(FILES));
    let threads = store.list(ListQuery { limit: 1_000, ..ListQuery::default() }).unwrap().entries;
    assert!(threads.len() > 30);
    for thread in threads {
        let (text, exported, place) = written(&store, &thread);
        assert_eq!(written(&store, &thread).0, text, "{}: another time, another file", thread.id);
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|wrong| panic!("{}: {wrong}", thread.id));
        check(&document);
        let id = document["sessionId"].as_str().unwrap();
        assert_eq!(place, Path::new("data/sessions").join(id).join(format!("{id}.messages.json")));
        let [manifest] = exported.companions.as_slice() else { panic!("{exported:?}") };
        assert_eq!(manifest.path, Path::new("data/sessions").join(id).join(format!("{id}.json")));
        let manifest: Value = serde_json::from_slice(&manifest.bytes).unwrap();
        assert_eq!(manifest["session_id"].as_str(), Some(id));
        for key in ["source", "started_at", "status", "provider", "model", "cwd", "workspace_root", "prompt"] {
            assert!(manifest[key].as_str().is_some_and(|word| !word.is_empty()), "{key} in {manifest}");
        }
        // It is taken in again, whole.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(place.file_name().unwrap());
        std::fs::write(&file, &text).unwrap();
        let again = super::store();
        let report = import(&again, &file);
        let count = document["messages"].as_array().unwrap().len() as u64;
        assert_eq!((report.items.imported, report.items.skipped), if count == 0 { (0, 0) } else { (count, 0) });
    }
}

#[test]
fn a_session_of_its_own_comes_back_with_its_messages_as_they_are() {
    let store = store();
    import(&store, &Path::new(FILES).join("cline/sessions"));
    let id = threadkeep::ThreadId::new("1775121600000_m9ohd").unwrap();
    let (text, exported, _) = written(&store, &store.get(&id).unwrap());
    assert_eq!((exported.records, exported.messages), (6, 0));
    let original =
        std::fs::read(Path::new(FILES).join("cline/sessions").join(id.as_str()).join(format!("{id}.messages.json")));
    let original: Value = serde_json::from_slice(&original.unwrap()).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["messages"], original["messages"]);
}
