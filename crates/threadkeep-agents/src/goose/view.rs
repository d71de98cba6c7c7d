//! What a record of goose says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, Timestamp, View};

use super::line::Line;
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{damaged, one_line, read, str_at, text_of};

/// A piece of what was said; or what there is to be told of it, where it is no part of the conversation.
type Piece = Result<Block, String>;

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((record, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let parts = match record.get("content") {
        Some(content) => said(content).into_iter().flat_map(parts).collect(),
        None => {
            let keys = ["name", "description", "working_dir"];
            let said = keys.iter().map(|key| str_at(&record, key)).find(|said| !said.is_empty());
            vec![Part::Note { text: format!("session: {}", one_line(said.unwrap_or_default(), NOTE_CHARS)) }]
        }
    };
    View { role: role(kind, &record), parts, damaged: repaired, ..View::default() }
}

pub(super) fn message(kind: &Kind, bytes: &[u8]) -> Option<Message> {
    let (record, _) = read::<Value>(bytes).ok()?;
    let (line, _) = read::<Line>(bytes).ok()?;
    let (author, standing) = match role(kind, &record)? {
        Role::Assistant => (Author::Model, Standing::Said),
        Role::Tool => (Author::Tool, Standing::Said),
        Role::User => (Author::Person, Standing::Said),
        _ => (Author::System, Standing::Injected),
    };
    let pieces = said(record.get("content")?);
    let blocks: Vec<Block> = pieces.into_iter().filter_map(Result::ok).collect();
    let created_at = line.created().map(Timestamp);
    (!blocks.is_empty()).then(|| Message { standing, created_at, ..Message::said(author, blocks) })
}

fn role(kind: &Kind, record: &Value) -> Option<Role> {
    Some(match kind {
        Kind::Message if str_at(record, "role") == "assistant" => Role::Assistant,
        Kind::Message => Role::User,
        Kind::ToolCall => Role::Assistant,
        Kind::ToolResult => Role::Tool,
        Kind::Context => Role::System,
        _ => return None,
    })
}

fn parts(piece: Piece) -> Vec<Part> {
    match piece {
        Ok(block) => block.into_parts(),
        Err(text) => vec![Part::Note { text }],
    }
}

fn said(content: &Value) -> Vec<Piece> {
    match content {
        Value::Array(pieces) => pieces.iter().map(piece).collect(),
        Value::Null => Vec::new(),
        object @ Value::Object(_) => vec![piece(object)],
        other => vec![Ok(Block::Text(text_of(other)))],
    }
}

fn piece(piece: &Value) -> Piece {
    Ok(match str_at(piece, "type") {
        "text" => Block::Text(str_at(piece, "text").to_owned()),
        "image" => image(piece),
        "thinking" | "reasoning" => Block::Reasoning { text: first(piece, &["thinking", "text"]) },
        "redactedThinking" => Block::Reasoning { text: String::new() },
        "toolRequest" | "frontendToolRequest" => request(piece),
        "toolResponse" => response(piece),
        "" => return untagged(piece),
        kind => {
            let said = first(piece, &["msg", "prompt", "text", "toolName"]);
            let said = one_line(&said, NOTE_CHARS);
            return Err(if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") });
        }
    })
}

/// The forms of 2024.
fn untagged(piece: &Value) -> Piece {
    let id = str_at(piece, "id").to_owned();
    if let Some(name) = piece.get("tool_name").and_then(Value::as_str) {
        return Ok(Block::Call { id, name: name.to_owned(), input: input(piece) });
    }
    if let Some(result) = piece.get("tool_result") {
        // A list of contents as a text of JSON.
        let inner = result.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let listed = inner.as_ref().and_then(Value::as_array).map(|list| texts(list));
        let output = listed.unwrap_or_else(|| text_of(result));
        return Ok(Block::Result { id, content: vec![Block::Text(output)], is_error: false });
    }
    match piece.get("text") {
        Some(text) => Ok(Block::Text(text_of(text))),
        None if piece.get("data").is_some() => Ok(image(piece)),
        None => Err(one_line(&text_of(piece), NOTE_CHARS)),
    }
}

fn input(call: &Value) -> Value {
    call.get("arguments").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()))
}

fn first(value: &Value, keys: &[&str]) -> String {
    keys.iter().map(|key| str_at(value, key)).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

fn image(piece: &Value) -> Block {
    let media_type = first(piece, &["mimeType", "mime_type"]);
    let media_type = if media_type.is_empty() { "image".to_owned() } else { media_type };
    Block::Media { media_type, data: MediaData::Base64(str_at(piece, "data").to_owned()) }
}

fn request(piece: &Value) -> Block {
    let call = piece.get("toolCall").unwrap_or(&Value::Null);
    let value = call.get("value").unwrap_or(call);
    // A call that could not be read has an error in its place.
    let name = match str_at(value, "name") {
        "" => format!("unreadable call: {}", one_line(str_at(call, "error"), NOTE_CHARS)),
        name => name.to_owned(),
    };
    Block::Call { id: str_at(piece, "id").to_owned(), name, input: input(value) }
}

/// A result with the pictures that came with it.
fn response(piece: &Value) -> Block {
    let result = piece.get("toolResult").unwrap_or(&Value::Null);
    let value = result.get("value").unwrap_or(&Value::Null);
    let list = value.as_array().or_else(|| value.get("content").and_then(Value::as_array));
    let list = list.map(Vec::as_slice).unwrap_or_default();
    let is_error = str_at(result, "status") == "error" || value.get("isError") == Some(&Value::Bool(true));
    let output = match result.get("error") {
        Some(error) => text_of(error),
        None if result.is_string() => text_of(result),
        None => texts(list),
    };
    let pictures = list.iter().filter(|piece| str_at(piece, "type") == "image").map(image);
    let content = std::iter::once(Block::Text(output)).chain(pictures).collect();
    Block::Result { id: first(piece, &["id", "toolCallId"]), content, is_error }
}

/// The texts of a list of contents, tagged or in the form `{"Text":{"text":…}}`.
fn texts(list: &[Value]) -> String {
    let text = |piece: &Value| {
        let inner = piece.get("Text").or_else(|| piece.get("resource")).unwrap_or(piece);
        inner.get("text").map(text_of)
    };
    list.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}
