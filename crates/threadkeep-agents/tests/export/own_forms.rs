//! Sessions of agents that change the form of their own files, and of agents that give folders names.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{ListQuery, NewItem, Role, Thread, ThreadId};
use threadkeep_agents::codec::Place;
use threadkeep_agents::export::{Existing, Export, codec_for, install};

use super::{EXAMPLES, FILES, export, import, imported, sessions, store};

const SESSION: &str = "4c8e1f70-93ad-4b25-a6d8-1e7f50c2b943";

fn threads(store: &Store) -> Vec<Thread> {
    store.list(ListQuery::default()).unwrap().entries
}

fn say(store: &Store, thread: &ThreadId, text: &str) {
    let live = store.resume(thread, true).unwrap();
    live.append(vec![NewItem::message(Role::User, text)]).unwrap();
}

fn message(number: usize) -> Value {
    let kind = if number.is_multiple_of(2) { "user" } else { "gemini" };
    json!({"id": format!("m{number}"), "timestamp": "2026-05-19T10:42:04.510Z", "type": kind, "content": [{"text": format!("number {number} “\\\" ¥”")}]})
}

fn document(messages: &[Value]) -> String {
    let times = json!("2026-05-19T10:42:01.510Z");
    let whole = json!({"sessionId": SESSION, "projectHash": "p", "startTime": times, "lastUpdated": times, "messages": messages});
    serde_json::to_string_pretty(&whole).unwrap()
}

fn lines(messages: &[Value]) -> String {
    let header =
        json!({"sessionId": SESSION, "projectHash": "p", "startTime": "2026-05-19T10:42:01.510Z", "kind": "main"});
    [header].iter().chain(messages).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_document_that_its_agent_goes_on_with_as_lines_is_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    let chats = folder.path().join("chats");
    fs::create_dir(&chats).unwrap();
    let all: Vec<Value> = (0..7).map(message).collect();
    for is_document_first in [true, false] {
        let store = store();
        let old = chats.join("session-2026-05-19T10-42-4c8e1f70.json");
        let new = chats.join("session-2026-05-19T10-42-4c8e1f70.jsonl");
        fs::write(&old, document(&all[..3])).unwrap();
        fs::write(&new, lines(&all[..5])).unwrap();
        for path in if is_document_first { [&old, &new] } else { [&new, &old] } {
            assert_eq!(import(&store, path).problems, []);
        }
        let there = threads(&store);
        assert_eq!((there.len(), there[0].items, there[0].branches), (1, 5, 1), "{is_document_first}");
        assert_eq!(import(&store, &chats).items.imported, 0);
        // It goes on as lines, more than once.
        for length in [6, 7] {
            fs::write(&new, lines(&all[..length])).unwrap();
            let report = import(&store, &chats);
            assert_eq!((report.items.imported, report.threads.new), (1, 0), "{report:?}");
            let there = threads(&store);
            assert_eq!((there.len(), there[0].items, there[0].branches), (1, i64::try_from(length).unwrap(), 1));
        }
        let (bytes, _) = export(&store, &threads(&store)[0].id, None, "gemini-cli");
        assert_eq!(String::from_utf8(bytes).unwrap(), lines(&all), "its own file");
    }
}

#[test]
fn a_list_of_what_stands_already_says_nothing() {
    let path = Path::new("chats/session-x.jsonl");
    let mut reader = codec_for("gemini-cli").unwrap().reader(path, None);
    let mut place = |line: &Value| reader.record(line.to_string().as_bytes()).unwrap().place;
    place(&message(0));
    place(&message(1));
    let context = json!({"id": "c", "type": "user", "content": [{"text": "<session_context>\nToday"}]});
    let results =
        json!({"id": "m1_response", "type": "user", "content": [{"functionResponse": {"id": "t", "response": {}}}]});
    let list = |messages: &[Value]| json!({"$set": {"messages": messages}});
    assert_eq!(place(&list(&[context.clone(), message(0), message(1), results])), Place::Beside);
    // What leaves something out, turns it round, or says more stands in the place of what was.
    for changed in [&[message(1)][..], &[message(1), message(0)], &[message(0), message(1), message(2)]] {
        assert_ne!(place(&list(changed)), Place::Beside, "{changed:?}");
        for line in [json!({"$rewindTo": "nothing"}), message(0), message(1)] {
            place(&line);
        }
    }
}

/// With a look at every message for every line this takes minutes.
#[test]
fn many_messages_that_are_written_again_and_taken_back_are_read_at_once() {
    let mut reader = codec_for("gemini-cli").unwrap().reader(Path::new("chats/session-x.jsonl"), None);
    let mut read = |line: &Value| drop(reader.record(line.to_string().as_bytes()).unwrap());
    let count = 60_000;
    (0..count).for_each(|number| read(&message(number)));
    (0..count).rev().for_each(|number| read(&message(number)));
    (count / 2..count).rev().for_each(|number| read(&json!({"$rewindTo": format!("m{number}")})));
}

#[test]
fn a_gemini_session_comes_back_as_it_was_and_is_gone_on_with_behind() {
    let own = sessions(&format!("{EXAMPLES}/gemini-cli")).remove(0);
    for path in [own, Path::new(FILES).join("gemini-cli/tmp/web/chats/session-2025-11-02T09-15-7f3a9c1e.jsonl")] {
        let (store, thread) = imported(&path).unwrap();
        let original = fs::read_to_string(&path).unwrap();
        let (bytes, exported) = export(&store, &thread, None, "gemini-cli");
        assert_eq!((String::from_utf8(bytes).unwrap(), exported.messages), (original.clone(), 0));
        say(&store, &thread, "And now?");
        let (bytes, _) = export(&store, &thread, None, "gemini-cli");
        let text = String::from_utf8(bytes).unwrap();
        let behind = text.strip_prefix(&original).unwrap();
        assert!(behind.contains("And now?") && behind.lines().count() == 2, "{behind}");
    }
}

/// Gemini CLI removes sessions at its start by the time that they name.
#[test]
fn what_is_written_for_gemini_names_no_time_at_which_it_is_removed() {
    for path in sessions(EXAMPLES) {
        let Some((store, thread)) = imported(&path) else { continue };
        if store.get(&thread).unwrap().details.agent.as_deref() == Some("gemini-cli") {
            continue;
        }
        let (bytes, _) = export(&store, &thread, None, "gemini-cli");
        assert!(!String::from_utf8(bytes).unwrap().contains("\"lastUpdated\""), "{}", path.display());
    }
}

#[test]
fn a_project_has_the_name_that_gemini_has_for_it() {
    let path = sessions(EXAMPLES).into_iter().find(|path| path.to_str().unwrap().contains("019ceba1")).unwrap();
    let (store, thread) = imported(&path).unwrap();
    let mask = |_: &[u8]| None;
    let put = |home: &Path, cwd: &str| {
        let export = Export::new(&store, &thread, None, codec_for("gemini-cli").unwrap(), &mask).unwrap();
        let installed = install(&export.in_folder(cwd.into()), home, Existing::Keep).unwrap();
        let project = installed.file.parent().unwrap().parent().unwrap().to_owned();
        assert_eq!(fs::read_to_string(project.join(".project_root")).unwrap(), cwd);
        project.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(put(home, "/a/My Shop"), "my-shop");
    assert_eq!(put(home, "/b/my-shop"), "my-shop-1", "the name is another project's");
    assert_eq!(put(home, "/b/my-shop"), "my-shop-1", "and stays this one's");
    let registry = json!({"projects": {
        "/c/my-shop": "third", "/d": "my-shop-2", "/e/my-shop": "../../etc", "/f/my-shop": "my-shop",
    }});
    fs::write(home.join(".gemini/projects.json"), registry.to_string()).unwrap();
    assert_eq!(put(home, "/c/my-shop"), "third");
    assert_eq!(put(home, "/e/my-shop"), "my-shop-3", "a name that leads elsewhere is none");
    assert_eq!(put(home, "/f/my-shop"), "my-shop-4", "the folder is marked as another's");
    fs::write(home.join(".gemini/projects.json"), "{damaged").unwrap();
    assert_eq!(put(home, "/g/third"), "third-1", "the marks say the same without it");
}

/// Some agents keep a result within the answer that has its call.
#[test]
fn results_that_stand_beside_their_calls_go_to_every_agent() {
    let gemini = sessions(&format!("{EXAMPLES}/gemini-cli")).remove(0);
    let opencode = Path::new(EXAMPLES).join("opencode/price-export.json");
    for (path, results) in [
        (gemini, &["de.json\\nja.json", "File not found: /home/dev/webshop/locales/fr.json"][..]),
        (
            opencode,
            &["src/price.tsx:12:", "File not found: /home/dev/webshop/src/prices.css", "Edit applied successfully."],
        ),
    ] {
        let (store, thread) = imported(&path).unwrap();
        for agent in ["claude-code", "codex", "gemini-cli", "opencode", "copilot-cli", "pi", "qwen-code"] {
            let (bytes, exported) = export(&store, &thread, None, agent);
            let text = String::from_utf8(bytes).unwrap();
            let mut position = 0;
            for result in results {
                let found = text[position..].find(result);
                position += found.unwrap_or_else(|| panic!("{agent}: {result} is missing in {text}"));
            }
            assert!(exported.losses.iter().all(|loss| !loss.what.starts_with("calls")), "{agent}: {exported:?}");
        }
    }
}

#[test]
fn opencode_gets_its_own_messages_back_under_their_ids() {
    let path = Path::new(EXAMPLES).join("opencode/price-export.json");
    let original: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let (store, thread) = imported(&path).unwrap();
    let exported =
        |thread: &ThreadId| -> Value { serde_json::from_slice(&export(&store, thread, None, "opencode").0).unwrap() };
    let same = exported(&thread);
    assert_eq!((&same["info"]["id"], &same["messages"]), (&original["info"]["id"], &original["messages"]));
    say(&store, &thread, "And now?");
    let more = exported(&thread);
    let (old, new) = (original["messages"].as_array().unwrap(), more["messages"].as_array().unwrap());
    assert_eq!((&more["info"]["id"], &new[..old.len()]), (&original["info"]["id"], &old[..]));
    let id = |message: &Value| message["info"]["id"].as_str().unwrap().to_owned();
    assert_eq!(new.len(), old.len() + 1);
    let ids: std::collections::HashSet<String> = new.iter().map(id).collect();
    assert_eq!(ids.len(), new.len());

    // Ids are of one session alone, so a fork has others throughout.
    let fork = store.fork(&thread, None, threadkeep::NewThread::default()).unwrap();
    let fork = exported(&fork.id);
    assert_ne!(fork["info"]["id"], original["info"]["id"]);
    let text = fork.to_string();
    assert!(old.iter().all(|message| !text.contains(&id(message))) && text.contains("orange"));
}
