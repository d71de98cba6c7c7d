//! What messages of CodeWhale hold: text, or a list of blocks.

use serde_json::Value;
use threadkeep::{Kind, Part, View};

use crate::conversation::{Block, MediaData, Message};
use crate::json::{decoded_len, media_url, str_at, text_of};

/// The message of an entry of a journal, or of a row of the database: whatever holds role and content.
pub(super) fn body(entry: &Value) -> &Value {
    ["message", "payload", "data"]
        .into_iter()
        .filter_map(|key| entry.get(key))
        .find(|inner| inner.is_object())
        .unwrap_or(entry)
}

/// Whose words they are, in CodeWhale's own word; the kind of an entry says so where the message does not.
pub(super) fn speaker(entry: &Value) -> &str {
    match str_at(body(entry), "role") {
        "" => match str_at(entry, "kind") {
            kind @ ("user" | "assistant" | "system") => kind,
            _ => "",
        },
        role => role,
    }
}

fn content(entry: &Value) -> &Value {
    let body = body(entry);
    let keys = ["content", "summary", "text"];
    let found = keys.into_iter().find_map(|key| body.get(key).or_else(|| entry.get(key)));
    found.or_else(|| entry.get("message").filter(|message| message.is_string())).unwrap_or(&Value::Null)
}

/// The words of a message, without calls, results and thoughts.
pub(super) fn said(entry: &Value) -> String {
    let texts =
        parts(entry).into_iter().filter_map(|part| if let Part::Text { text } = part { Some(text) } else { None });
    texts.collect::<Vec<_>>().join("\n")
}

pub(super) fn parts(entry: &Value) -> Vec<Part> {
    match content(entry) {
        Value::String(text) => vec![Part::Text { text: text.clone() }],
        Value::Array(blocks) => blocks.iter().flat_map(part).collect(),
        Value::Null => Vec::new(),
        other => part(other),
    }
}

fn part(block: &Value) -> Vec<Part> {
    let id = |key: &str| str_at(block, key).to_owned();
    vec![match str_at(block, "type") {
        "text" | "input_text" | "output_text" => Part::Text { text: id("text") },
        "thinking" | "reasoning" => Part::Reasoning { text: text_of(first(block, &["thinking", "text"])) },
        "tool_use" | "server_tool_use" => Part::ToolCall {
            call_id: id("id"),
            name: id("name"),
            arguments: match block.get("input") {
                None | Some(Value::Null) => "{}".to_owned(),
                Some(input) => text_of(input),
            },
        },
        "tool_result" => {
            let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or_default();
            Part::ToolResult { call_id: id("tool_use_id"), output: output(block), is_error }
        }
        "image" | "document" => media(block),
        "image_url" => media_url(str_at(block.get("image_url").unwrap_or(&Value::Null), "url")),
        _ if block.is_string() => Part::Text { text: text_of(block) },
        _ => Part::Note { text: text_of(block) },
    }]
}

fn output(block: &Value) -> String {
    match block.get("content").unwrap_or(&Value::Null) {
        Value::Array(blocks) => {
            let texts = blocks.iter().map(|inner| match str_at(inner, "type") {
                "text" => str_at(inner, "text").to_owned(),
                _ => text_of(inner),
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        other => text_of(other),
    }
}

fn first<'a>(block: &'a Value, keys: &[&str]) -> &'a Value {
    keys.iter().find_map(|key| block.get(key)).unwrap_or(&Value::Null)
}

fn media(block: &Value) -> Part {
    let source = block.get("source").unwrap_or(&Value::Null);
    let media_type = match str_at(source, "media_type") {
        "" => str_at(block, "type"),
        media_type => media_type,
    };
    Part::Media { media_type: media_type.to_owned(), bytes: decoded_len(str_at(source, "data")) }
}

/// What a message says to another agent; with the bytes of its pictures.
pub(super) fn message(kind: &Kind, bytes: &[u8]) -> Option<Message> {
    let view = super::view::view(bytes);
    let entry = super::view::entry(bytes);
    let mut message = Message::of_view(kind, View { role: view.role.clone().or_else(|| role_of(kind)), ..view })?;
    let mut pictures = blocks(&entry).filter(|block| matches!(str_at(block, "type"), "image" | "document"));
    for block in &mut message.blocks {
        if let Block::Media { data, .. } = block
            && let Some(source) = pictures.next().and_then(|block| block.get("source"))
        {
            *data = match (str_at(source, "type"), str_at(source, "data"), str_at(source, "url")) {
                ("base64", bytes, _) if !bytes.is_empty() => MediaData::Base64(bytes.to_owned()),
                (_, _, url) if !url.is_empty() => MediaData::Reference(url.to_owned()),
                _ => MediaData::Absent,
            };
        }
    }
    Some(message)
}

fn role_of(kind: &Kind) -> Option<threadkeep::Role> {
    (*kind == Kind::Compaction).then_some(threadkeep::Role::System)
}

fn blocks(entry: &Value) -> impl Iterator<Item = &Value> {
    content(entry).as_array().into_iter().flatten()
}
