//! What a record of goose says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, View};

use crate::json::{damaged, decoded_len, one_line, read, str_at, text_of};

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((record, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let role = match kind {
        Kind::Message if str_at(&record, "role") == "assistant" => Some(Role::Assistant),
        Kind::Message => Some(Role::User),
        Kind::ToolCall => Some(Role::Assistant),
        Kind::ToolResult => Some(Role::Tool),
        Kind::Context => Some(Role::System),
        _ => None,
    };
    let parts = match record.get("content") {
        Some(content) => said(content),
        None => {
            let said = ["name", "description", "working_dir"]
                .iter()
                .map(|key| str_at(&record, key))
                .find(|said| !said.is_empty());
            vec![Part::Note { text: format!("session: {}", one_line(said.unwrap_or_default(), NOTE_CHARS)) }]
        }
    };
    View { role, parts, damaged: repaired, ..View::default() }
}

fn said(content: &Value) -> Vec<Part> {
    match content {
        Value::Array(pieces) => pieces.iter().flat_map(piece).collect(),
        Value::Null => Vec::new(),
        object @ Value::Object(_) => piece(object),
        other => vec![Part::Text { text: text_of(other) }],
    }
}

fn piece(piece: &Value) -> Vec<Part> {
    match str_at(piece, "type") {
        "text" => vec![Part::Text { text: str_at(piece, "text").to_owned() }],
        "image" => vec![image(piece)],
        "thinking" | "reasoning" => vec![Part::Reasoning { text: first(piece, &["thinking", "text"]) }],
        "redactedThinking" => vec![Part::Reasoning { text: String::new() }],
        "toolRequest" | "frontendToolRequest" => vec![request(piece)],
        "toolResponse" => response(piece),
        "" => untagged(piece),
        kind => {
            let said = first(piece, &["msg", "prompt", "text", "toolName"]);
            let said = one_line(&said, NOTE_CHARS);
            vec![Part::Note { text: if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") } }]
        }
    }
}

/// The forms of 2024.
fn untagged(piece: &Value) -> Vec<Part> {
    let id = str_at(piece, "id").to_owned();
    if let Some(name) = piece.get("tool_name").and_then(Value::as_str) {
        let arguments = piece.get("arguments").map_or_else(|| "{}".to_owned(), text_of);
        return vec![Part::ToolCall { call_id: id, name: name.to_owned(), arguments }];
    }
    if let Some(result) = piece.get("tool_result") {
        // A list of contents as a text of JSON.
        let inner = result.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let output =
            inner.as_ref().and_then(Value::as_array).map(|list| texts(list)).unwrap_or_else(|| text_of(result));
        return vec![Part::ToolResult { call_id: id, output, is_error: false }];
    }
    match piece.get("text") {
        Some(text) => vec![Part::Text { text: text_of(text) }],
        None if piece.get("data").is_some() => vec![image(piece)],
        None => vec![Part::Note { text: one_line(&text_of(piece), NOTE_CHARS) }],
    }
}

fn first(value: &Value, keys: &[&str]) -> String {
    keys.iter().map(|key| str_at(value, key)).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

fn image(piece: &Value) -> Part {
    let media_type = first(piece, &["mimeType", "mime_type"]);
    let media_type = if media_type.is_empty() { "image".to_owned() } else { media_type };
    Part::Media { media_type, bytes: decoded_len(str_at(piece, "data")) }
}

fn request(piece: &Value) -> Part {
    let call = piece.get("toolCall").unwrap_or(&Value::Null);
    let value = call.get("value").unwrap_or(call);
    let arguments = value.get("arguments").map_or_else(|| "{}".to_owned(), text_of);
    // A call that could not be read has an error in its place.
    let name = first(value, &["name"]);
    let name = if name.is_empty() {
        format!("unreadable call: {}", one_line(str_at(call, "error"), NOTE_CHARS))
    } else {
        name
    };
    Part::ToolCall { call_id: str_at(piece, "id").to_owned(), name, arguments }
}

/// The result itself, then the pictures that came with it.
fn response(piece: &Value) -> Vec<Part> {
    let result = piece.get("toolResult").unwrap_or(&Value::Null);
    let value = result.get("value").unwrap_or(&Value::Null);
    let list = value
        .as_array()
        .or_else(|| value.get("content").and_then(Value::as_array))
        .map(Vec::as_slice)
        .unwrap_or_default();
    let failed = str_at(result, "status") == "error" || value.get("isError") == Some(&Value::Bool(true));
    let output = match result.get("error") {
        Some(error) => text_of(error),
        None if result.is_string() => text_of(result),
        None => texts(list),
    };
    let call_id = first(piece, &["id", "toolCallId"]);
    let pictures = list.iter().filter(|piece| str_at(piece, "type") == "image").map(image);
    std::iter::once(Part::ToolResult { call_id, output, is_error: failed }).chain(pictures).collect()
}

/// The texts of a list of contents, tagged or in the form `{"Text":{"text":…}}`.
fn texts(list: &[Value]) -> String {
    let text = |piece: &Value| {
        let inner = piece.get("Text").or_else(|| piece.get("resource")).unwrap_or(piece);
        inner.get("text").map(text_of)
    };
    list.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}
