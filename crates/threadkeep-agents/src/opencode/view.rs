//! What a record of opencode says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, View};

use super::line::{Tokens, usage};
use crate::json::{damaged, media_url, one_line, read, str_at, text_of};

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((record, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let message = inner(&record);
    let is_answer = str_at(message, "role") == "assistant" || str_at(&record, "type") == "assistant";
    let role = match kind {
        Kind::Message if is_answer => Some(Role::Assistant),
        Kind::Message => Some(Role::User),
        Kind::Context | Kind::Compaction => Some(Role::System),
        _ => None,
    };
    let parts = match role {
        Some(_) => parts(&record, message),
        None => vec![Part::Note { text: event(&record, message) }],
    };
    let tokens = message.get("tokens").filter(|_| role.is_some());
    let tokens = tokens.and_then(|tokens| serde_json::from_value::<Tokens>(tokens.clone()).ok()).map(usage);
    View { role, parts, usage: tokens, damaged: repaired, ..View::default() }
}

/// The session or the message that a record is about.
fn inner(record: &Value) -> &Value {
    ["json", "data", "info"].iter().find_map(|key| record.get(key).filter(|inner| inner.is_object())).unwrap_or(record)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn parts(record: &Value, message: &Value) -> Vec<Part> {
    let mut parts = Vec::new();
    for key in ["text", "summary"] {
        if let Some(Value::String(text)) = message.get(key).filter(|text| **text != "") {
            parts.push(Part::Text { text: text.clone() });
        }
    }
    let pieces = list(record, "parts").iter().chain(list(message, "content"));
    parts.extend(pieces.flat_map(|piece| self::piece(inner(piece))));
    parts.extend(list(message, "files").iter().map(file));
    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
        let data = error.get("data").unwrap_or(&Value::Null);
        let said = [str_at(error, "name"), str_at(data, "message"), str_at(error, "message")];
        parts.push(Part::Note { text: format!("error: {}", one_line(&said.join(" "), NOTE_CHARS)) });
    }
    parts
}

fn piece(part: &Value) -> Vec<Part> {
    match str_at(part, "type") {
        "text" => vec![Part::Text { text: str_at(part, "text").to_owned() }],
        "reasoning" => vec![Part::Reasoning { text: str_at(part, "text").to_owned() }],
        "tool" => tool(part),
        "file" => vec![file(part)],
        // They frame what stands between them.
        "step-start" | "step-finish" | "snapshot" => Vec::new(),
        kind => {
            let keys = ["description", "prompt", "name", "error", "hash", "text"];
            let said = keys.iter().filter_map(|key| part.get(key)).map(text_of).find(|said| !said.is_empty());
            let said = one_line(&said.unwrap_or_default(), NOTE_CHARS);
            vec![Part::Note { text: if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") } }]
        }
    }
}

fn file(part: &Value) -> Part {
    let url = [str_at(part, "url"), str_at(part, "uri")].into_iter().find(|url| !url.is_empty()).unwrap_or_default();
    match media_url(url) {
        Part::Media { bytes, media_type } => {
            let named = str_at(part, "mime");
            Part::Media { bytes, media_type: if named.is_empty() { media_type } else { named.to_owned() } }
        }
        other => other,
    }
}

/// A call, and its result where it has one.
fn tool(part: &Value) -> Vec<Part> {
    let state = part.get("state").unwrap_or(&Value::Null);
    let first = |keys: &[&str]| {
        keys.iter().map(|key| str_at(part, key)).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    let call_id = first(&["callID", "id"]);
    let arguments = state.get("input").map_or_else(|| "{}".to_owned(), text_of);
    let mut parts = vec![Part::ToolCall { call_id: call_id.clone(), name: first(&["tool", "name"]), arguments }];
    let (output, is_error) = match str_at(state, "status") {
        "error" => (state.get("error").map(text_of).unwrap_or_default(), true),
        "pending" | "running" | "streaming" => return parts,
        _ => (output(state), is_failure(state)),
    };
    parts.push(Part::ToolResult { call_id, output, is_error });
    parts.extend(list(state, "attachments").iter().map(file));
    parts
}

fn output(state: &Value) -> String {
    match state.get("output") {
        Some(output) => text_of(output),
        None => list(state, "content").iter().map(|piece| str_at(piece, "text")).collect::<Vec<_>>().join("\n"),
    }
}

/// A command that failed is said to be completed, too.
fn is_failure(state: &Value) -> bool {
    let exit = state.get("metadata").and_then(|metadata| metadata.get("exit"));
    exit.and_then(Value::as_i64).is_some_and(|exit| exit != 0)
}

fn event(record: &Value, message: &Value) -> String {
    let kind = match (str_at(record, "type"), str_at(record, "table"), str_at(record, "file")) {
        ("", "", file) => file.split('/').next().unwrap_or_default(),
        ("", table, _) => table,
        (kind, _, _) => kind,
    };
    let keys = ["title", "command", "content", "agent", "model"];
    let said = keys.iter().filter_map(|key| message.get(key)).map(text_of).find(|said| !said.is_empty());
    let said = one_line(&said.unwrap_or_default(), NOTE_CHARS);
    let kind = if kind.is_empty() { "record" } else { kind };
    if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") }
}
