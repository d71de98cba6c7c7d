//! What a line of a rollout says to a reader.

use serde_json::Value;
use threadkeep::{Part, View};

use super::facts::usage;
use super::line::{Line, Tokens};
use super::message::{blocks, call, kind_of, output, reasoning};
use crate::conversation::Block;
use crate::json::{damaged, one_line, read, str_at, text_of, u64_at};

/// How much of an event's own text is shown; the conversation itself stands in the items.
const NOTE_CHARS: usize = 200;

/// Calls that are over when they are recorded.
const HOSTED: [&str; 5] =
    ["web_search_call", "image_generation_call", "file_search_call", "code_interpreter_call", "mcp_call"];

pub(super) fn view(bytes: &[u8]) -> View {
    let Ok((value, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let role = read::<Line>(bytes).ok().and_then(|(line, _)| line.read(bytes).ok()).and_then(|reading| reading.role);
    let null = Value::Null;
    let mut view = match value.get("payload") {
        Some(payload) => enveloped(str_at(&value, "type"), payload),
        None if value.get("record_type").is_some() => note(labelled("record", str_at(&value, "record_type"))),
        None if value.get("type").is_none() && value.get("role").is_none() => {
            note(meta(&value, value.get("git").unwrap_or(&null)))
        }
        None => item(&value),
    };
    view.role = role;
    view.damaged |= repaired;
    view
}

/// Whether a call gets its result in a line of its own: those that the model's host runs have theirs in themselves, or show none.
pub(super) fn awaits_result(bytes: &[u8]) -> bool {
    let Ok((value, _)) = read::<Value>(bytes) else { return true };
    !HOSTED.contains(&str_at(value.get("payload").unwrap_or(&value), "type"))
}

fn note(text: String) -> View {
    View { parts: vec![Part::Note { text }], ..View::default() }
}

fn of(parts: Vec<Part>) -> View {
    View { parts, ..View::default() }
}

/// `name: text`, without the colon when there is no text.
fn labelled(name: &str, said: &str) -> String {
    let said = one_line(said, NOTE_CHARS);
    let name = if name.is_empty() { "event" } else { name };
    if said.is_empty() { name.to_owned() } else { format!("{name}: {said}") }
}

fn enveloped(kind: &str, payload: &Value) -> View {
    match kind {
        "session_meta" => note(meta(payload, payload.get("git").unwrap_or(&Value::Null))),
        "response_item" => item(payload),
        "event_msg" => event(payload),
        "turn_context" => note(context(payload)),
        "compacted" => of(vec![Part::Text { text: str_at(payload, "message").to_owned() }]),
        "token_usage_record" => {
            View { usage: payload.get("usage").and_then(tokens), ..note("tokens of one call".to_owned()) }
        }
        other => note(labelled(other, &described(payload))),
    }
}

fn tokens(value: &Value) -> Option<threadkeep::Usage> {
    serde_json::from_value::<Tokens>(value.clone()).ok().map(usage)
}

fn meta(payload: &Value, git: &Value) -> String {
    let facts = [
        str_at(payload, "cwd").to_owned(),
        str_at(git, "branch").to_owned(),
        str_at(payload, "cli_version").to_owned(),
    ];
    let said: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    labelled("session", &said.join(", "))
}

fn context(payload: &Value) -> String {
    let policy = |key: &str| match payload.get(key) {
        Some(Value::String(word)) => word.clone(),
        Some(other) => ["type", "mode"]
            .iter()
            .map(|key| str_at(other, key))
            .find(|word| !word.is_empty())
            .unwrap_or_default()
            .to_owned(),
        None => String::new(),
    };
    let facts = [
        str_at(payload, "model").to_owned(),
        str_at(payload, "effort").to_owned(),
        policy("approval_policy"),
        policy("sandbox_policy"),
        str_at(payload, "cwd").to_owned(),
    ];
    let said: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    labelled("turn settings", &said.join(", "))
}

/// The first text that an object offers under one of the usual keys.
fn described(payload: &Value) -> String {
    let keys = ["message", "text", "reason", "thread_name", "prompt", "query", "content", "status"];
    keys.iter().map(|key| str_at(payload, key)).find(|said| !said.is_empty()).unwrap_or_default().to_owned()
}

fn event(payload: &Value) -> View {
    let kind = str_at(payload, "type");
    match kind {
        "token_count" => {
            let last = payload.get("info").and_then(|info| info.get("last_token_usage"));
            View { usage: last.and_then(tokens), ..note("token count".to_owned()) }
        }
        "item_completed" => {
            let item = payload.get("item").unwrap_or(&Value::Null);
            let said = match item.get("aggregated_output").map(text_of) {
                Some(_) => format!("exit code {}", item.get("exit_code").map(text_of).unwrap_or_default()),
                None => described(item),
            };
            note(labelled(str_at(item, "type"), &said))
        }
        "exec_command_end" => {
            note(labelled(kind, &format!("exit code {}", payload.get("exit_code").map(text_of).unwrap_or_default())))
        }
        "thread_rolled_back" => match u64_at(payload, "num_turns") {
            0 | 1 => note("one turn taken back".to_owned()),
            turns => note(format!("{turns} turns taken back")),
        },
        "thread_goal_updated" => {
            let goal = payload.get("goal").unwrap_or(&Value::Null);
            note(labelled(kind, str_at(goal, "objective")))
        }
        other => note(labelled(other, &described(payload))),
    }
}

fn item(item: &Value) -> View {
    let kind = kind_of(item);
    of(match kind {
        "message" | "agent_message" => shown(blocks(item.get("content").unwrap_or(&Value::Null))),
        "reasoning" => reasoning(item).into_parts(),
        "compaction" | "context_compaction" | "compaction_summary" => match described(item) {
            said if said.is_empty() => vec![Part::Note { text: "sealed summary".to_owned() }],
            text => vec![Part::Text { text }],
        },
        kind if kind.ends_with("_output") => output(item).into_parts(),
        kind if kind.ends_with("_call") => {
            let call = call(kind, item);
            let arguments = call.arguments.map(text_of).unwrap_or_default();
            vec![Part::ToolCall { call_id: call.id.to_owned(), name: call.name.to_owned(), arguments }]
        }
        other => vec![Part::Note { text: labelled(other, &described(item)) }],
    })
}

/// What blocks say; one that is of no known kind is at least named.
fn shown(blocks: Vec<Result<Block, &Value>>) -> Vec<Part> {
    let note = |block: &Value| vec![Part::Note { text: one_line(&text_of(block), NOTE_CHARS) }];
    blocks.into_iter().flat_map(|block| block.map_or_else(note, Block::into_parts)).collect()
}
