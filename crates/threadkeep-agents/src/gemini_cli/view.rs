//! What a record of Gemini CLI says to a reader.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, Timestamp, Usage, View};

use super::line::{Tokens, usage};
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{damaged, one_line, read, str_at, text_of};

/// A piece of what was said; or what there is to be told of it, where it is of no known kind.
type Piece = Result<Block, String>;

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(kind: &Kind, bytes: &[u8]) -> View {
    let Ok((record, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let role = role(kind, &record);
    let parts = match role {
        Some(_) => pieces(kind, &record).into_iter().flat_map(parts).collect(),
        None => vec![Part::Note { text: event(&record) }],
    };
    View { role, parts, usage: tokens(kind, &record), damaged: repaired, ..View::default() }
}

pub(super) fn message(kind: &Kind, bytes: &[u8]) -> Option<Message> {
    let (record, _) = read::<Value>(bytes).ok()?;
    let (author, standing) = match (kind, role(kind, &record)?) {
        (Kind::Compaction, _) => (Author::System, Standing::Summary),
        (Kind::Context, _) => (Author::System, Standing::Injected),
        (_, Role::Assistant) => (Author::Model, Standing::Said),
        (_, Role::Tool) => (Author::Tool, Standing::Said),
        (_, _) => (Author::Person, Standing::Said),
    };
    let blocks: Vec<Block> = pieces(kind, &record).into_iter().map(block_of).collect();
    let model = Some(str_at(&record, "model").to_owned()).filter(|model| !model.is_empty());
    (!blocks.is_empty()).then(|| Message {
        standing,
        created_at: Timestamp::parse(str_at(&record, "timestamp")),
        model,
        usage: tokens(kind, &record),
        response: Some(str_at(&record, "id").to_owned()).filter(|id| !id.is_empty() && author == Author::Model),
        ..Message::said(author, blocks)
    })
}

fn role(kind: &Kind, record: &Value) -> Option<Role> {
    Some(match kind {
        Kind::Message | Kind::Reasoning if is_model(record) => Role::Assistant,
        Kind::Message | Kind::Reasoning => Role::User,
        Kind::ToolCall => Role::Assistant,
        Kind::ToolResult => Role::Tool,
        Kind::Context | Kind::Compaction => Role::System,
        _ => return None,
    })
}

fn pieces(kind: &Kind, record: &Value) -> Vec<Piece> {
    match kind {
        Kind::Message | Kind::Reasoning if is_model(record) => answer(record),
        Kind::ToolCall => calls(record),
        Kind::Context | Kind::Compaction => all(record),
        _ => said(record),
    }
}

fn tokens(kind: &Kind, record: &Value) -> Option<Usage> {
    let shown = *kind != Kind::Event && (*kind != Kind::ToolCall || is_first(record));
    let tokens = record.get("tokens").filter(|_| shown)?;
    serde_json::from_value::<Tokens>(tokens.clone()).ok().map(usage)
}

fn parts(piece: Piece) -> Vec<Part> {
    match piece {
        Ok(block) => block.into_parts(),
        Err(text) => vec![Part::Note { text: one_line(&text, NOTE_CHARS) }],
    }
}

/// A piece for another agent: what one of no known kind holds is words.
fn block_of(piece: Piece) -> Block {
    piece.unwrap_or_else(Block::Text)
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

fn answer(record: &Value) -> Vec<Piece> {
    let mut parts: Vec<Piece> = list(record, "thoughts").iter().map(thought).map(Ok).collect();
    parts.extend(said(record));
    parts.extend(calls(record));
    parts
}

fn thought(thought: &Value) -> Block {
    let said = [str_at(thought, "subject"), str_at(thought, "description"), str_at(thought, "text")];
    let said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
    Block::Reasoning { text: said.join("\n") }
}

/// What was said, under the key of either form.
fn said(record: &Value) -> Vec<Piece> {
    match record.get("content").or_else(|| record.get("parts")).unwrap_or(&Value::Null) {
        Value::Array(pieces) => pieces.iter().map(piece).collect(),
        Value::Null => Vec::new(),
        Value::String(text) if text.is_empty() => Vec::new(),
        object @ Value::Object(_) => vec![piece(object)],
        other => vec![Ok(Block::Text(text_of(other)))],
    }
}

/// The messages of a `$set`, or the one that the record is.
fn all(record: &Value) -> Vec<Piece> {
    match record.get("$set") {
        Some(set) => list(set, "messages").iter().flat_map(answer).collect(),
        None => said(record),
    }
}

fn piece(piece: &Value) -> Piece {
    if let Some(data) = piece.get("inlineData").or_else(|| piece.get("fileData")) {
        let media_type = Some(str_at(data, "mimeType")).filter(|kind| !kind.is_empty()).unwrap_or("file");
        let inline = Some(str_at(data, "data")).filter(|data| !data.is_empty());
        return Ok(match inline {
            Some(data) => Block::Media { media_type: media_type.to_owned(), data: MediaData::Base64(data.to_owned()) },
            None => Block::media_of_url(str_at(data, "fileUri"), media_type),
        });
    }
    if let Some(call) = piece.get("functionCall") {
        return Ok(self::call(call));
    }
    if let Some(response) = piece.get("functionResponse") {
        return Ok(result(response, str_at(response, "id"), false));
    }
    match piece {
        Value::String(text) => Ok(Block::Text(text.clone())),
        other => match other.get("text") {
            Some(text) if other.get("thought") == Some(&Value::Bool(true)) => {
                Ok(Block::Reasoning { text: text_of(text) })
            }
            Some(text) => Ok(Block::Text(text_of(text))),
            None => Err(text_of(other)),
        },
    }
}

/// The calls of an answer, each with its result where it has one.
fn calls(record: &Value) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for made in list(record, "toolCalls") {
        pieces.push(Ok(call(made)));
        let failed = matches!(str_at(made, "status"), "error" | "cancelled");
        let id = str_at(made, "id");
        match made.get("result") {
            Some(Value::Array(results)) => {
                for piece in results {
                    match piece.get("functionResponse") {
                        Some(response) => pieces.push(Ok(result(response, id, failed))),
                        None => pieces.push(self::piece(piece)),
                    }
                }
            }
            Some(Value::Null) | None => {}
            Some(other) => pieces.push(Ok(result(other, id, failed))),
        }
    }
    pieces
}

fn call(call: &Value) -> Block {
    let input = call.get("args").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    Block::Call { id: str_at(call, "id").to_owned(), name: str_at(call, "name").to_owned(), input }
}

fn result(response: &Value, call_id: &str, failed: bool) -> Block {
    let body = response.get("response").unwrap_or(response);
    let keys = ["output", "error", "content", "result"];
    let said = keys.iter().find_map(|key| body.get(key));
    let is_error = failed || body.get("error").is_some_and(|error| !error.is_null());
    let mut content = vec![Block::Text(text_of(said.unwrap_or(body)))];
    // Pictures stand beside the response.
    content.extend(list(response, "parts").iter().map(piece).map(block_of));
    Block::Result { id: call_id.to_owned(), content, is_error }
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
        .filter_map(|piece| match piece {
            Ok(Block::Text(text)) | Err(text) => Some(text),
            Ok(_) => None,
        })
        .collect();
    let said = one_line(&said.join(" "), NOTE_CHARS);
    let kind = match str_at(record, "type") {
        "" => "record",
        kind => kind,
    };
    if said.is_empty() { kind.to_owned() } else { format!("{kind}: {said}") }
}
