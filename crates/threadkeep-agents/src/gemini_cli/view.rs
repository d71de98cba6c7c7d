//! What a record of Gemini CLI says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, View};

use super::line::{Tokens, usage};
use crate::json::{damaged, decoded_len, one_line, read, str_at, text_of};

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((record, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let (role, parts) = match kind {
        Kind::Message | Kind::Reasoning if is_model(&record) => (Some(Role::Assistant), answer(&record)),
        Kind::Message | Kind::Reasoning => (Some(Role::User), said(&record)),
        Kind::ToolCall => (Some(Role::Assistant), calls(&record)),
        Kind::ToolResult => (Some(Role::Tool), said(&record)),
        Kind::Context => (Some(Role::System), all(&record)),
        Kind::Compaction => (Some(Role::System), all(&record)),
        _ => (None, vec![Part::Note { text: event(&record) }]),
    };
    let tokens = record.get("tokens").filter(|_| *kind != Kind::ToolCall || is_first(&record));
    let tokens = tokens.and_then(|tokens| serde_json::from_value::<Tokens>(tokens.clone()).ok()).map(usage);
    View { role, parts, usage: tokens.filter(|_| *kind != Kind::Event), damaged: repaired, ..View::default() }
}

/// Whether a call of the record has no result in it: then a message of its own brings it.
pub(super) fn awaits_result(bytes: &[u8]) -> bool {
    let Ok((record, _)) = read::<Value>(bytes) else { return true };
    list(&record, "toolCalls").iter().any(|call| call.get("result").is_none())
}

/// Whether the record of an answer says nothing but its calls: then no earlier version of it was shown.
fn is_first(record: &Value) -> bool {
    text_of(record.get("content").unwrap_or(&Value::Null)).is_empty() && list(record, "thoughts").is_empty()
}

fn is_model(record: &Value) -> bool {
    let who = [str_at(record, "type"), str_at(record, "role")];
    who.iter().any(|word| matches!(*word, "gemini" | "model"))
}

fn list<'a>(record: &'a Value, key: &str) -> &'a [Value] {
    record.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn answer(record: &Value) -> Vec<Part> {
    let mut parts: Vec<Part> = list(record, "thoughts").iter().map(thought).collect();
    parts.extend(said(record));
    parts.extend(calls(record));
    parts
}

fn thought(thought: &Value) -> Part {
    let said = [str_at(thought, "subject"), str_at(thought, "description"), str_at(thought, "text")];
    let said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
    Part::Reasoning { text: said.join("\n") }
}

/// What was said, under the key of either form.
fn said(record: &Value) -> Vec<Part> {
    match record.get("content").or_else(|| record.get("parts")).unwrap_or(&Value::Null) {
        Value::Array(pieces) => pieces.iter().filter_map(piece).collect(),
        Value::Null => Vec::new(),
        Value::String(text) if text.is_empty() => Vec::new(),
        object @ Value::Object(_) => piece(object).into_iter().collect(),
        other => vec![Part::Text { text: text_of(other) }],
    }
}

/// The messages of a `$set`, or the one that the record is.
fn all(record: &Value) -> Vec<Part> {
    match record.get("$set") {
        Some(set) => list(set, "messages").iter().flat_map(answer).collect(),
        None => said(record),
    }
}

fn piece(piece: &Value) -> Option<Part> {
    if let Some(data) = piece.get("inlineData").or_else(|| piece.get("fileData")) {
        let media_type = Some(str_at(data, "mimeType")).filter(|kind| !kind.is_empty()).unwrap_or("file").to_owned();
        return Some(Part::Media { media_type, bytes: decoded_len(str_at(data, "data")) });
    }
    if let Some(call) = piece.get("functionCall") {
        return Some(self::call(call));
    }
    if let Some(response) = piece.get("functionResponse") {
        return Some(result(response, str_at(response, "id"), false));
    }
    match piece {
        Value::String(text) => Some(Part::Text { text: text.clone() }),
        other => match other.get("text") {
            Some(text) if other.get("thought") == Some(&Value::Bool(true)) => {
                Some(Part::Reasoning { text: text_of(text) })
            }
            Some(text) => Some(Part::Text { text: text_of(text) }),
            None => Some(Part::Note { text: one_line(&text_of(other), NOTE_CHARS) }),
        },
    }
}

/// The calls of an answer, each with its result where it has one.
fn calls(record: &Value) -> Vec<Part> {
    let mut parts = Vec::new();
    for made in list(record, "toolCalls") {
        parts.push(call(made));
        let failed = matches!(str_at(made, "status"), "error" | "cancelled");
        let id = str_at(made, "id");
        match made.get("result") {
            Some(Value::Array(pieces)) => {
                for piece in pieces {
                    match piece.get("functionResponse") {
                        Some(response) => parts.push(result(response, id, failed)),
                        None => parts.extend(self::piece(piece)),
                    }
                }
            }
            Some(Value::Null) | None => {}
            Some(other) => parts.push(result(other, id, failed)),
        }
    }
    parts
}

fn call(call: &Value) -> Part {
    let arguments = call.get("args").map_or_else(|| "{}".to_owned(), text_of);
    Part::ToolCall { call_id: str_at(call, "id").to_owned(), name: str_at(call, "name").to_owned(), arguments }
}

fn result(response: &Value, call_id: &str, failed: bool) -> Part {
    let body = response.get("response").unwrap_or(response);
    let keys = ["output", "error", "content", "result"];
    let said = keys.iter().find_map(|key| body.get(key));
    let is_error = failed || body.get("error").is_some_and(|error| !error.is_null());
    Part::ToolResult { call_id: call_id.to_owned(), output: text_of(said.unwrap_or(body)), is_error }
}

fn event(record: &Value) -> String {
    if let Some(id) = record.get("$rewindTo") {
        return format!("gone back to before message {}", one_line(&text_of(id), NOTE_CHARS));
    }
    if record.get("$set").is_some() || record.get("sessionId").is_some_and(|_| record.get("type").is_none()) {
        return "session settings".to_owned();
    }
    let names: Vec<&str> = list(record, "content")
        .iter()
        .chain(list(record, "parts"))
        .filter_map(|piece| piece.get("functionResponse"))
        .map(|response| str_at(response, "name"))
        .collect();
    if !names.is_empty() {
        return format!("results given to the model: {}", one_line(&names.join(", "), NOTE_CHARS));
    }
    let said: Vec<String> = said(record)
        .into_iter()
        .filter_map(|part| match part {
            Part::Text { text } | Part::Note { text } => Some(text),
            _ => None,
        })
        .collect();
    let said = one_line(&said.join(" "), NOTE_CHARS);
    let kind = match str_at(record, "type") {
        "" => "record",
        kind => kind,
    };
    if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") }
}
