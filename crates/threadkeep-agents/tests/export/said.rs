//! What is said in a form that is not the usual one is told all the same, once, and as whose it is.

use std::fs;

use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{Kind, NewItem, NewThread, Part, Role, ThreadId, View};
use threadkeep_agents::export::{Exported, writable};

use super::{export, imported, store};

fn thread(items: Vec<NewItem>) -> (Store, ThreadId) {
    let store = store();
    let id = ThreadId::new("said").unwrap();
    let new = NewThread { id: Some(id.clone()), ..NewThread::default() };
    let live = store.workspace(std::path::Path::new("/")).unwrap().create_now(new).unwrap();
    live.append(items).unwrap();
    live.shutdown().unwrap();
    (store, id)
}

fn of_lines(name: &str, lines: &[Value]) -> (Store, ThreadId) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    imported(&path).unwrap()
}

fn text(store: &Store, thread: &ThreadId, agent: &str) -> (String, Exported) {
    let (bytes, exported) = export(store, thread, None, agent);
    (String::from_utf8_lossy(&bytes).into_owned(), exported)
}

fn lost(exported: &Exported, what: &str) -> u64 {
    exported.losses.iter().filter(|loss| loss.what.contains(what)).map(|loss| loss.count).sum()
}

fn words(kind: Kind, role: Option<Role>, text: &str) -> NewItem {
    NewItem::from_view(kind, &View::text(role, text))
}

/// The agents whose sessions are files or documents that can be searched as text.
fn of_text() -> Vec<&'static str> {
    writable().into_iter().filter(|agent| !["codewhale", "newt"].contains(agent)).collect()
}

#[test]
fn words_of_no_role_or_another_are_told() {
    let items = vec![
        words(Kind::Message, None, "of nobody"),
        words(Kind::Message, Some(Role::Assistant), "an answer"),
        words(Kind::Message, Some(Role::Unknown("reviewer".to_owned())), "of a reviewer"),
    ];
    let (store, id) = thread(items);
    for agent in of_text() {
        let (text, exported) = text(&store, &id, agent);
        for said in ["of nobody", "an answer", "of a reviewer"] {
            assert!(text.contains(said), "{agent}: {said} is not in {text}");
        }
        assert_eq!(exported.messages, 3, "{agent}");
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let line = |said: &str| lines.iter().find(|line| line.to_string().contains(said)).unwrap();
        if agent == "claude-code" {
            assert_eq!((&line("of nobody")["type"], &line("of nobody")["isMeta"]), (&json!("user"), &Value::Null));
            assert_eq!(line("of a reviewer")["isMeta"], json!(true), "not the person's own");
        }
        if agent == "codex" {
            assert_eq!(lost(&exported, "gave as the person's"), 1);
        }
    }
}

#[test]
fn thoughts_are_no_answers_and_results_no_words_of_the_person() {
    let result =
        NewItem { role: Some(Role::Tool), ..NewItem::raw(Kind::ToolResult, "words/1", b"what came back".to_vec()) };
    let items = vec![
        words(Kind::Message, Some(Role::User), "a question"),
        words(Kind::Reasoning, Some(Role::Assistant), "a thought"),
        words(Kind::Reasoning, None, "a thought of nobody"),
        NewItem::raw(Kind::Reasoning, "words/1", b"a thought as bytes".to_vec()),
        result,
        words(Kind::Message, Some(Role::Assistant), "an answer"),
    ];
    let (store, id) = thread(items);
    let mut apart = 0;
    for agent in of_text() {
        let (text, exported) = text(&store, &id, agent);
        assert!(text.contains("a question") && text.contains("an answer"), "{agent}: {text}");
        assert!(!text.contains("a thought"), "{agent}: {text}");
        assert_eq!(lost(&exported, "thoughts"), 3, "{agent}: {exported:?}");
        assert!(text.contains("what came back"), "{agent}: {text}");
        let marks = ["\"isMeta\":true", "custom_message", "\"synthetic\":true", "\"userVisible\":false"];
        let is_apart = marks.iter().any(|mark| text.contains(mark));
        assert!(is_apart || lost(&exported, "gave as the person's") == 1, "{agent}: {exported:?} {text}");
        apart += usize::from(is_apart);
    }
    assert!(apart >= 3, "{apart} set it apart");
}

#[test]
fn what_no_message_can_be_made_of_is_counted() {
    let note = |kind| {
        let parts = vec![Part::Note { text: "a note".to_owned() }];
        NewItem::from_view(kind, &View { parts, ..View::default() })
    };
    let items = vec![
        words(Kind::Message, Some(Role::User), "a question"),
        note(Kind::Message),
        note(Kind::Compaction),
        // These are no part of what was said.
        note(Kind::Event),
        note(Kind::Context),
        note(Kind::Unknown("mood".to_owned())),
        words(Kind::ToolResult, Some(Role::Tool), " "),
    ];
    let (store, id) = thread(items);
    for agent in of_text() {
        let (_, exported) = text(&store, &id, agent);
        assert_eq!(lost(&exported, "no message can be made of"), 2, "{agent}: {exported:?}");
    }
}

const SESSION: &str = "0f6a2c1e-93b7-4d58-8a41-6b1d2e3f4a5c";

/// A line of Claude Code's behind the one of the number before.
fn line(number: u32, kind: &str, content: &Value) -> Value {
    let uuid = |number: u32| format!("6b1d2e3f-0000-4000-8000-{number:012}");
    let message = match kind {
        "assistant" => json!({"id": format!("msg_{number}"), "role": kind, "model": "claude", "content": content}),
        _ => json!({"role": "user", "content": content}),
    };
    json!({
        "type": kind, "uuid": uuid(number), "parentUuid": (number > 1).then(|| uuid(number - 1)), "sessionId": SESSION,
        "timestamp": format!("2026-05-19T10:42:{number:02}.000Z"), "cwd": "/w/p", "version": "2.1.7", "message": message,
    })
}

#[test]
fn a_record_that_was_written_twice_with_other_settings_is_told_once() {
    let again = |line: &Value| {
        let mut line = line.clone();
        line["version"] = json!("2.1.12");
        line["cwd"] = json!("/w/elsewhere");
        line
    };
    let call = line(2, "assistant", &json!([{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}]));
    let result = line(3, "user", &json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "came back"}]));
    let answer = line(4, "assistant", &json!([{"type": "text", "text": "It is done."}]));
    // Under the same id, and yet something else.
    let mut other = answer.clone();
    other["message"]["content"] = json!([{"type": "text", "text": "It is not done."}]);
    let lines = [
        line(1, "user", &json!("Do it")),
        call.clone(),
        again(&call),
        result.clone(),
        again(&result),
        answer.clone(),
        again(&answer),
        other,
    ];
    let (store, id) = of_lines(&format!("{SESSION}.jsonl"), &lines);
    for agent in of_text().into_iter().filter(|agent| *agent != "claude-code") {
        let (text, exported) = text(&store, &id, agent);
        // Codex says what was said as an event, too.
        let times = if agent == "codex" { 2 } else { 1 };
        for said in ["It is done.", "It is not done."] {
            assert_eq!(text.matches(said).count(), times, "{agent}: {said} in {text}");
        }
        assert_eq!(text.matches("came back").count(), 1, "{agent}: {text}");
        assert_eq!(exported.messages, 5, "{agent}");
        assert_eq!(lost(&exported, "calls"), 0, "{agent}: {exported:?}");
    }
}

#[test]
fn blocks_that_are_not_known_are_told_as_words_and_results_of_any_tool_as_results() {
    let fetched = json!([{"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content":
        {"type": "web_fetch_result", "url": "u", "content": {"type": "document", "source":
            {"type": "text", "media_type": "text/plain", "data": "words of a page"}}}}]);
    let mut summary = line(5, "summary", &json!("what was before"));
    summary["message"]["role"] = json!("user");
    let lines = [
        line(1, "user", &json!("Look")),
        line(
            2,
            "assistant",
            &json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {}}]),
        ),
        line(3, "assistant", &fetched),
        line(
            4,
            "user",
            &json!([{"type": "search_result", "content": [{"type": "text", "text": "words found"}]}, {"type": "text", "text": "look"}]),
        ),
        summary,
        line(6, "user", &json!("and on")),
    ];
    let (store, id) = of_lines(&format!("{SESSION}.jsonl"), &lines);
    for agent in of_text().into_iter().filter(|agent| *agent != "claude-code") {
        let (text, exported) = text(&store, &id, agent);
        for said in ["words of a page", "words found", "what was before"] {
            assert!(text.contains(said), "{agent}: {said} is not in {text}");
        }
        assert_eq!(lost(&exported, "calls"), 0, "{agent}: {exported:?}");
    }
}

#[test]
fn calls_and_refusals_within_messages_of_codex_are_told() {
    let item = |second: u32, payload: Value| json!({"timestamp": format!("2026-07-04T10:00:{second:02}.000Z"), "type": "response_item", "payload": payload});
    let lines = [
        json!({"timestamp": "2026-07-04T10:00:00.000Z", "type": "session_meta", "payload":
            {"id": "019ce0bb-1111-7222-8333-444455556667", "timestamp": "2026-07-04T10:00:00.000Z", "cwd": "/w"}}),
        item(1, json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Map it"}]})),
        item(
            2,
            json!({"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "Delegated."},
                {"type": "tool_use", "id": "task-1", "name": "Task", "input": {"prompt": "Inspect it"}},
                {"type": "tool_result", "tool_use_id": "task-1", "content": "inspected"},
                {"type": "refusal", "refusal": "not that"},
                {"type": "mood", "words": "cheerful"},
            ]}),
        ),
    ];
    let (store, id) = of_lines("rollout-2026-07-04T10-00-00-019ce0bb-1111-7222-8333-444455556667.jsonl", &lines);
    for agent in of_text().into_iter().filter(|agent| *agent != "codex") {
        let (text, exported) = text(&store, &id, agent);
        for said in ["Delegated.", "Inspect it", "inspected", "not that", "cheerful"] {
            assert!(text.contains(said), "{agent}: {said} is not in {text}");
        }
        assert_eq!(lost(&exported, "calls"), 0, "{agent}: {exported:?}");
    }
}

#[test]
fn parts_of_gemini_that_are_not_known_are_told_as_words() {
    let long = "x".repeat(300);
    let at = "2026-05-19T10:42:04.510Z";
    let ran =
        json!([{"executableCode": {"language": "PYTHON", "code": format!("{long} at the end")}}, {"text": "It ran."}]);
    let lines = [
        json!({"sessionId": SESSION, "projectHash": "p", "startTime": at, "kind": "main"}),
        json!({"id": "m1", "timestamp": at, "type": "user", "content": [{"text": "Run it"}]}),
        json!({"id": "m2", "timestamp": at, "type": "gemini", "content": ran}),
    ];
    let (store, id) = of_lines("session-2026-05-19T10-42-0f6a2c1e.jsonl", &lines);
    for agent in of_text().into_iter().filter(|agent| *agent != "gemini-cli") {
        let (text, _) = text(&store, &id, agent);
        assert!(text.contains("at the end") && text.contains("It ran."), "{agent}: {text}");
    }
}
