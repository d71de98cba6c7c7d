//! Codex's persistence modes as policies of threads: what a store that reads its format keeps of its lines.
#![cfg(test)]

use std::path::Path;
use std::sync::Arc;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{ItemQuery, Kind, NewItem, NewThread, Policy, Role, StoreOptions};
use threadkeep_agents::codex::Codex;

/// What both modes keep of events, by the names of the contract; `ItemCompleted` is kept for plans alone.
const LIMITED: [&str; 17] = [
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "token_count",
    "thread_name_updated",
    "context_compacted",
    "entered_review_mode",
    "exited_review_mode",
    "thread_rolled_back",
    "undo_completed",
    "turn_aborted",
    "turn_started",
    "task_started",
    "turn_complete",
    "task_complete",
    "image_generation_end",
];
const EXTENDED: [&str; 14] = [
    "error",
    "guardian_assessment",
    "web_search_end",
    "exec_command_end",
    "patch_apply_end",
    "mcp_tool_call_end",
    "view_image_tool_call",
    "collab_agent_spawn_end",
    "collab_agent_interaction_end",
    "collab_waiting_end",
    "collab_close_end",
    "collab_resume_end",
    "dynamic_tool_call_request",
    "dynamic_tool_call_response",
];
const NEVER: [&str; 16] = [
    "agent_message_delta",
    "agent_reasoning_delta",
    "exec_command_begin",
    "exec_command_output_delta",
    "exec_approval_request",
    "apply_patch_approval_request",
    "request_user_input",
    "warning",
    "stream_error",
    "session_configured",
    "turn_diff",
    "plan_update",
    "mcp_startup_update",
    "shutdown_complete",
    "item_started",
    "realtime_conversation_started",
];

fn store() -> Store {
    Store::open(StoreOptions::memory().read_with(Arc::new(Codex))).unwrap()
}

fn live(store: &Store, policy: Policy) -> LiveThread {
    store.workspace(Path::new("/w")).unwrap().create(NewThread { policy, ..NewThread::default() }).unwrap()
}

fn line(kind: &str, payload: &str) -> NewItem {
    let text = format!(r#"{{"timestamp":"2026-05-01T08:00:00.000Z","type":"{kind}","payload":{payload}}}"#);
    NewItem::raw(Kind::Event, "codex", text.into_bytes())
}

fn event(kind: &str) -> NewItem {
    line("event_msg", &format!(r#"{{"type":"{kind}","turn_id":"t"}}"#))
}

/// Which of the items are kept, each appended alone.
fn kept(live: &LiveThread, items: impl IntoIterator<Item = NewItem>) -> Vec<bool> {
    items.into_iter().map(|item| live.append(vec![item]).unwrap().items.len() == 1).collect()
}

#[test]
fn the_modes_keep_what_codex_keeps() {
    for (policy, extended) in [(Codex::limited(), false), (Codex::extended(), true)] {
        let store = store();
        let live = live(&store, policy);
        assert_eq!(kept(&live, NEVER.map(event)), [false; 16], "{extended}");
        // Nothing was stored of them, and so there is no thread.
        assert!(store.get(live.id()).is_err(), "{extended}");
        assert_eq!(kept(&live, LIMITED.map(event)), [true; 17], "{extended}");
        assert_eq!(kept(&live, EXTENDED.map(event)), [extended; 14], "{extended}");
        let completed =
            |kind: &str| line("event_msg", &format!(r#"{{"type":"item_completed","item":{{"type":"{kind}"}}}}"#));
        assert_eq!(
            kept(&live, ["Plan", "Reasoning", "UserMessage"].map(completed)),
            [true, false, false],
            "{extended}"
        );
        let item = |kind: &str| line("response_item", &format!(r#"{{"type":"{kind}"}}"#));
        let items = [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "compaction_trigger",
            "ghost_snapshot",
            "new",
        ];
        assert_eq!(kept(&live, items.map(item)), [true, true, true, true, false, false, false], "{extended}");
        let always = ["session_meta", "turn_context", "compacted", "inter_agent_communication", "world_state"];
        assert_eq!(kept(&live, always.map(|kind| line(kind, r#"{"message":"m"}"#))), [true; 5], "{extended}");
        // What is no line of Codex is not judged, and neither is one that is damaged.
        let others = [
            NewItem::message(Role::User, "hi"),
            NewItem::raw(Kind::Event, "codex", b"{\"type\":\"event_msg\",".to_vec()),
        ];
        assert_eq!(kept(&live, others), [true, true], "{extended}");
        assert!(store.verify(live.id()).unwrap().is_intact());
    }
}

#[test]
fn the_extended_mode_cuts_the_output_of_commands() {
    let store = store();
    let live = live(&store, Codex::extended());
    let output = "x".repeat(30_000);
    let payload = format!(
        r#"{{"type":"exec_command_end","call_id":"c","stdout":"{output}","aggregated_output":"{output}","exit_code":1}}"#
    );
    // Sent again under its id it is the same item.
    let end = line("event_msg", &payload).with_id("01890000-0000-7000-8000-000000000001".parse().unwrap());
    let first = live.append(vec![end.clone()]).unwrap();
    assert!(live.append(vec![end]).unwrap().repeated);
    let stored = store.items(live.id(), ItemQuery::default()).unwrap().entries.remove(0);
    let value: serde_json::Value = serde_json::from_slice(&stored.content).unwrap();
    let cut = &value["payload"];
    assert_eq!(cut["aggregated_output"].as_str().map(str::len), Some(10_000));
    assert_eq!(
        (cut["stdout"].as_str(), cut["exit_code"].as_i64(), cut["call_id"].as_str()),
        (Some(""), Some(1), Some("c"))
    );
    assert_eq!((first.items.len(), stored.hash), (1, first.items[0].hash));
}

/// A store that doesn't read the format drops nothing, and one that does goes on by the policy that is stored.
#[test]
fn a_mode_stays_with_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let open = |reads: bool| {
        let options = StoreOptions::folder(folder.path());
        Store::open(if reads { options.read_with(Arc::new(Codex)) } else { options }).unwrap()
    };
    let first = open(true);
    let live = live(&first, Codex::limited());
    assert_eq!(kept(&live, ["turn_diff", "user_message"].map(event)), [false, true]);
    live.shutdown().unwrap();
    let id = live.id().clone();
    drop((live, first));
    for (reads, is_kept) in [(false, true), (true, false)] {
        let store = open(reads);
        assert_eq!(store.get(&id).unwrap().policy, Codex::limited());
        let live = store.resume(&id, false).unwrap();
        assert_eq!(kept(&live, [event("turn_diff")]), [is_kept], "{reads}");
        live.shutdown().unwrap();
    }
}
