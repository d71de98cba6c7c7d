//! What Codex itself keeps of what happens in a session: its two modes as policies, and the words by which they choose.

use serde_json::Value;
use threadkeep::{Policy, RecordPolicy};

use super::line::{Line, Shape};
use super::{Codex, NAME};
use crate::json::read;

/// The types of records among whose subtypes a mode chooses. All other types are kept always: `session_meta`, `turn_context`,
/// `compacted`, those of talk between agents, and what later versions added.
const AMONG: [&str; 2] = ["response_item", "event_msg"];

/// The items of a model's conversation that both modes keep: all that Codex knows. What it does not know, triggers of compactions
/// and ghost snapshots are dropped.
const ITEMS: [&str; 16] = [
    "response_item/message",
    "response_item/reasoning",
    "response_item/function_call",
    "response_item/function_call_output",
    "response_item/custom_tool_call",
    "response_item/custom_tool_call_output",
    "response_item/local_shell_call",
    "response_item/tool_search_call",
    "response_item/tool_search_output",
    "response_item/web_search_call",
    "response_item/image_generation_call",
    "response_item/agent_message",
    "response_item/additional_tools",
    "response_item/compaction",
    "response_item/compaction_summary",
    "response_item/context_compaction",
];

/// The events that both modes keep. Never kept are deltas, beginnings, approvals and other questions, warnings, settings, diffs and
/// plans in the making, and items but for plans.
const LIMITED: [&str; 18] = [
    "event_msg/user_message",
    "event_msg/agent_message",
    "event_msg/agent_reasoning",
    "event_msg/agent_reasoning_raw_content",
    "event_msg/token_count",
    "event_msg/thread_name_updated",
    "event_msg/context_compacted",
    "event_msg/entered_review_mode",
    "event_msg/exited_review_mode",
    "event_msg/thread_rolled_back",
    "event_msg/undo_completed",
    "event_msg/turn_aborted",
    // The same under two names.
    "event_msg/task_started",
    "event_msg/turn_started",
    "event_msg/task_complete",
    "event_msg/turn_complete",
    "event_msg/image_generation_end",
    "event_msg/item_completed/plan",
];

/// The events that the extended mode keeps besides.
const EXTENDED: [&str; 14] = [
    "event_msg/error",
    "event_msg/guardian_assessment",
    "event_msg/web_search_end",
    "event_msg/exec_command_end",
    "event_msg/patch_apply_end",
    "event_msg/mcp_tool_call_end",
    "event_msg/view_image_tool_call",
    "event_msg/collab_agent_spawn_end",
    "event_msg/collab_agent_interaction_end",
    "event_msg/collab_waiting_end",
    "event_msg/collab_close_end",
    "event_msg/collab_resume_end",
    "event_msg/dynamic_tool_call_request",
    "event_msg/dynamic_tool_call_response",
];

/// The event whose output is cut in the extended mode.
const COMMAND: &str = "event_msg/exec_command_end";
/// How much of a command's output is left.
const OUTPUT_BYTES: usize = 10_000;

impl Codex {
    /// What Codex's *limited* mode keeps: the conversation and the events by which a session is shown and gone on with.
    ///
    /// | records | kept |
    /// | --- | --- |
    /// | `session_meta`, `turn_context`, `compacted`, talk between agents, any other type | all |
    /// | `response_item` | every item that Codex knows; no triggers of compactions, no ghost snapshots |
    /// | `event_msg` | what was said and thought, token counts, names, rollbacks and undo, reviews, compactions, turns begun, ended and aborted, images made, plans |
    ///
    /// It judges lines in the format `codex`; items of other formats are kept. A store that is opened without this codec keeps all.
    pub fn limited() -> Policy {
        policy("codex-limited", ITEMS.into_iter().chain(LIMITED), None)
    }

    /// What Codex's *extended* mode keeps: what the limited one does, and how calls of tools ended: commands, patches, searches, MCP,
    /// dynamic tools, looked-at images, other agents; errors, and what guardians found.
    ///
    /// Of the end of a command, `aggregated_output` is cut to 10,000 bytes, at a whole character, and `stdout`, `stderr` and
    /// `formatted_output` are emptied, as Codex does.
    pub fn extended() -> Policy {
        policy("codex-extended", ITEMS.into_iter().chain(LIMITED).chain(EXTENDED), Some(COMMAND))
    }
}

fn policy(name: &str, keep: impl Iterator<Item = &'static str>, shorten: Option<&str>) -> Policy {
    Policy::Records(RecordPolicy {
        name: name.to_owned(),
        format: NAME.to_owned(),
        among: AMONG.map(str::to_owned).into(),
        keep: keep.map(str::to_owned).collect(),
        shorten: shorten.map(str::to_owned).into_iter().collect(),
    })
}

/// What a line says it is: its type and its payload's, and of an item that is completed its own.
pub(super) fn record(bytes: &[u8]) -> Option<String> {
    let (line, _) = read::<Line>(bytes).ok()?;
    let words = match line.shape() {
        Shape::Enveloped => {
            let payload = line.payload.0.as_ref()?;
            let item = payload.item.0.as_ref().and_then(|item| item.kind.as_deref());
            [line.kind.as_deref(), payload.kind.as_deref(), item]
        }
        Shape::BareHeader => [Some("session_meta"), None, None],
        Shape::BareItem if line.record_type.0.is_some() => [line.record_type.as_deref(), None, None],
        Shape::BareItem => [Some("response_item"), line.kind.as_deref().or(Some("message")), None],
        Shape::Document | Shape::Foreign => return None,
    };
    let words: Vec<&str> = words.into_iter().map_while(|word| word.filter(|word| !word.is_empty())).collect();
    Some(words.join("/").to_ascii_lowercase())
}

/// The end of a command with little of its output; `None` where nothing is to be cut.
pub(super) fn shortened(bytes: &[u8]) -> Option<Vec<u8>> {
    // A line that has to be repaired to be read stays as it is.
    let mut line = serde_json::from_slice::<Value>(bytes).ok()?;
    let payload = line.get_mut("payload")?.as_object_mut()?;
    let mut is_shorter = false;
    if let Some(Value::String(output)) = payload.get_mut("aggregated_output")
        && output.len() > OUTPUT_BYTES
    {
        output.truncate(output.floor_char_boundary(OUTPUT_BYTES));
        is_shorter = true;
    }
    for key in ["stdout", "stderr", "formatted_output"] {
        if let Some(Value::String(output)) = payload.get_mut(key) {
            is_shorter |= !output.is_empty();
            output.clear();
        }
    }
    let newline: &[u8] = if bytes.ends_with(b"\n") { b"\n" } else { b"" };
    let shorter = is_shorter.then(|| serde_json::to_vec(&line).ok()).flatten()?;
    Some([shorter.as_slice(), newline].concat())
}

#[cfg(test)]
mod tests {
    use threadkeep::{Policy, RecordPolicy};

    use super::{Codex, record, shortened};

    fn records(policy: Policy) -> RecordPolicy {
        match policy {
            Policy::Records(records) => records,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_of_every_era_say_what_they_are() {
        let lines = [
            (r#"{"timestamp":"t","type":"session_meta","payload":{"id":"x","type":"no"}}"#, Some("session_meta/no")),
            (r#"{"timestamp":"t","type":"session_meta","payload":{"id":"x"}}"#, Some("session_meta")),
            (r#"{"type":"response_item","payload":{"type":"function_call"}}"#, Some("response_item/function_call")),
            (
                r#"{"type":"event_msg","payload":{"type":"item_completed","item":{"type":"Plan","id":"1"}}}"#,
                Some("event_msg/item_completed/plan"),
            ),
            (r#"{"id":"x","timestamp":"t","instructions":null,"git":{}}"#, Some("session_meta")),
            (r#"{"type":"function_call_output","call_id":"c"}"#, Some("response_item/function_call_output")),
            (r#"{"role":"user","content":[]}"#, Some("response_item/message")),
            (r#"{"record_type":"state"}"#, Some("state")),
            (r#"{"type":"response_item","payload":{"type":"mess"#, None),
            (r#"{"hello":"world"}"#, None),
            ("", None),
        ];
        for (line, word) in lines {
            assert_eq!(record(line.as_bytes()).as_deref(), word, "{line}");
        }
    }

    #[test]
    fn the_extended_mode_keeps_more_than_the_limited_one() {
        let (limited, extended) = (records(Codex::limited()), records(Codex::extended()));
        assert!(limited.keep.iter().all(|word| extended.keep.contains(word)));
        assert_eq!(extended.keep.len() - limited.keep.len(), 14);
        for word in ["event_msg/exec_command_end", "event_msg/error", "event_msg/patch_apply_end"] {
            assert!(extended.keeps(word) && !limited.keeps(word), "{word}");
        }
        for policy in [limited, extended] {
            for word in [
                "event_msg/agent_message_delta",
                "event_msg/exec_command_begin",
                "event_msg/exec_approval_request",
                "event_msg/turn_diff",
                "event_msg/plan_update",
                "event_msg/item_completed",
                "event_msg/item_completed/reasoning",
                "event_msg/item_started/plan",
                "event_msg/session_configured",
                "event_msg",
                "response_item/compaction_trigger",
                "response_item/ghost_snapshot",
                "response_item/something_new",
            ] {
                assert!(!policy.keeps(word), "{word}");
            }
            for word in ["session_meta", "turn_context", "compacted", "world_state", "inter_agent_communication"] {
                assert!(policy.keeps(word), "{word}");
            }
        }
    }

    #[test]
    fn the_output_of_a_command_is_cut_at_a_whole_character() {
        let line = |output: &str, rest: &str| {
            format!(
                r#"{{"type":"event_msg","payload":{{"type":"exec_command_end","stdout":"{rest}","aggregated_output":"{output}","exit_code":0}}}}"#
            )
        };
        assert_eq!(shortened(line("short", "").as_bytes()), None, "nothing is to be cut");
        let long = "\u{e9}".repeat(5_001);
        let cut = shortened(format!("{}\n", line(&format!("a{long}"), "all of it")).as_bytes()).unwrap();
        let kept = "\u{e9}".repeat(4_999);
        assert_eq!(
            String::from_utf8(cut).unwrap(),
            format!("{}\n", line(&format!("a{kept}"), "")),
            "the order of keys stays"
        );
        assert_eq!(shortened(b"{\"payload\":"), None);
    }
}
