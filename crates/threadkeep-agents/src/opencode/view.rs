//! What a record of opencode says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, Timestamp, Usage, View};

use super::line::{Tokens, usage};
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{damaged, one_line, read, str_at, text_of, u64_at};

/// A piece of what was said; or what there is to be told of it, where it is no part of the conversation.
type Piece = Result<Block, String>;

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((record, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let message = inner(&record);
    let role = role(kind, &record);
    let parts = match role {
        Some(_) => pieces(&record, message).into_iter().flat_map(parts).collect(),
        None => vec![Part::Note { text: event(&record, message) }],
    };
    let usage = tokens(message).filter(|_| role.is_some());
    View { role, parts, usage, damaged: repaired, ..View::default() }
}

pub(super) fn message(kind: &Kind, bytes: &[u8]) -> Option<Message> {
    let (record, _) = read::<Value>(bytes).ok()?;
    let message = inner(&record);
    let (author, standing) = match (kind, role(kind, &record)?) {
        (Kind::Compaction, _) => (Author::System, Standing::Summary),
        (_, Role::Assistant) => (Author::Model, Standing::Said),
        (_, Role::User) => (Author::Person, Standing::Said),
        _ => (Author::System, Standing::Injected),
    };
    let blocks: Vec<Block> = pieces(&record, message).into_iter().filter_map(Result::ok).collect();
    let model = message.get("model").unwrap_or(&Value::Null);
    let names = [str_at(message, "modelID"), str_at(model, "modelID"), str_at(model, "id")];
    let model = names.into_iter().find(|name| !name.is_empty() && author == Author::Model);
    let created = u64_at(message.get("time").unwrap_or(&Value::Null), "created").max(u64_at(&record, "time_created"));
    let ids = [str_at(message, "id"), str_at(&record, "id")];
    (!blocks.is_empty()).then(|| Message {
        standing,
        created_at: i64::try_from(created).ok().filter(|at| *at > 0).map(Timestamp),
        model: model.map(str::to_owned),
        usage: tokens(message),
        response: ids.into_iter().find(|id| !id.is_empty() && author == Author::Model).map(str::to_owned),
        ..Message::said(author, blocks)
    })
}

fn role(kind: &Kind, record: &Value) -> Option<Role> {
    let is_answer = str_at(inner(record), "role") == "assistant" || str_at(record, "type") == "assistant";
    Some(match kind {
        Kind::Message if is_answer => Role::Assistant,
        Kind::Message => Role::User,
        Kind::Context | Kind::Compaction => Role::System,
        _ => return None,
    })
}

fn tokens(message: &Value) -> Option<Usage> {
    serde_json::from_value::<Tokens>(message.get("tokens")?.clone()).ok().map(usage)
}

fn parts(piece: Piece) -> Vec<Part> {
    match piece {
        Ok(block) => block.into_parts(),
        Err(text) => vec![Part::Note { text }],
    }
}

/// The session or the message that a record is about.
fn inner(record: &Value) -> &Value {
    ["json", "data", "info"].iter().find_map(|key| record.get(key).filter(|inner| inner.is_object())).unwrap_or(record)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn pieces(record: &Value, message: &Value) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for key in ["text", "summary"] {
        if let Some(Value::String(text)) = message.get(key).filter(|text| **text != "") {
            pieces.push(Ok(Block::Text(text.clone())));
        }
    }
    let parts = list(record, "parts").iter().chain(list(message, "content"));
    pieces.extend(parts.flat_map(|part| piece(inner(part))));
    pieces.extend(list(message, "files").iter().map(file).map(Ok));
    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
        let data = error.get("data").unwrap_or(&Value::Null);
        let said = [str_at(error, "name"), str_at(data, "message"), str_at(error, "message")];
        pieces.push(Err(format!("error: {}", one_line(&said.join(" "), NOTE_CHARS))));
    }
    pieces
}

fn piece(part: &Value) -> Vec<Piece> {
    match str_at(part, "type") {
        "text" => vec![Ok(Block::Text(str_at(part, "text").to_owned()))],
        "reasoning" => vec![Ok(Block::Reasoning { text: str_at(part, "text").to_owned() })],
        "tool" => tool(part).into_iter().map(Ok).collect(),
        "file" => vec![Ok(file(part))],
        // They frame what stands between them.
        "step-start" | "step-finish" | "snapshot" => Vec::new(),
        kind => {
            let keys = ["description", "prompt", "name", "error", "hash", "text"];
            let said = keys.iter().filter_map(|key| part.get(key)).map(text_of).find(|said| !said.is_empty());
            let said = one_line(&said.unwrap_or_default(), NOTE_CHARS);
            vec![Err(if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") })]
        }
    }
}

fn file(part: &Value) -> Block {
    let url = [str_at(part, "url"), str_at(part, "uri")].into_iter().find(|url| !url.is_empty()).unwrap_or_default();
    let named = str_at(part, "mime");
    match Block::media_of_url(url, if named.is_empty() { "file" } else { named }) {
        Block::Media { data: data @ MediaData::Base64(_), media_type } => {
            Block::Media { media_type: if named.is_empty() { media_type } else { named.to_owned() }, data }
        }
        other => other,
    }
}

/// A call, and its result where it has one.
fn tool(part: &Value) -> Vec<Block> {
    let state = part.get("state").unwrap_or(&Value::Null);
    let first = |keys: &[&str]| {
        keys.iter().map(|key| str_at(part, key)).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    let id = first(&["callID", "id"]);
    let input = state.get("input").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let call = Block::Call { id: id.clone(), name: first(&["tool", "name"]), input };
    let (output, is_error) = match str_at(state, "status") {
        "error" => (state.get("error").map(text_of).unwrap_or_default(), true),
        "pending" | "running" | "streaming" => return vec![call],
        _ => (output(state), is_failure(state)),
    };
    let files = list(state, "attachments").iter().map(file);
    let content = std::iter::once(Block::Text(output)).chain(files).collect();
    vec![call, Block::Result { id, content, is_error }]
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
