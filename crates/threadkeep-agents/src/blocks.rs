//! Blocks in the forms that agents take over from the interfaces of models.

use serde_json::Value;

use crate::conversation::{Block, MediaData, arguments_of};
use crate::json::{first_text, str_at, text_of, word_at};

/// Words, if there are any.
pub(crate) fn text(text: &str) -> Option<Block> {
    (!text.is_empty()).then(|| Block::Text(text.to_owned()))
}

/// A call whose arguments stand as JSON, or as a text that is JSON.
pub(crate) fn call(id: &str, name: &str, input: Option<&Value>) -> Block {
    let input = match input {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(Value::String(text)) => arguments_of(text.clone()),
        Some(other) => other.clone(),
    };
    Block::Call { id: id.to_owned(), name: name.to_owned(), input }
}

/// The content of a message or of a result as Anthropic's interface has it, and those that are much like it: words, or blocks
/// that name their type. What a block of an unknown type holds is kept as words.
pub(crate) fn anthropic(content: &Value) -> Vec<Block> {
    let said = |block: &Value| known_or_words(anthropic_block(block));
    match content {
        Value::Null => Vec::new(),
        Value::Array(blocks) => blocks.iter().filter_map(said).collect(),
        Value::Object(_) => said(content).into_iter().collect(),
        other => text(&text_of(other)).into_iter().collect(),
    }
}

/// A block, or what one of an unknown type holds, as words; nothing for what says nothing.
pub(crate) fn known_or_words(block: Result<Block, &Value>) -> Option<Block> {
    match block {
        Ok(Block::Text(words)) => text(&words),
        Ok(block) => Some(block),
        Err(unknown) if unknown.is_null() => None,
        Err(unknown) => text(&text_of(unknown)),
    }
}

/// One block of such a content. The hosts' own tools have a type of result each, whose name ends alike.
///
/// # Errors
/// A value of no known type is given back.
pub(crate) fn anthropic_block(block: &Value) -> Result<Block, &Value> {
    Ok(match str_at(block, "type") {
        "text" | "input_text" | "output_text" | "summary_text" => Block::Text(str_at(block, "text").to_owned()),
        "thinking" | "think" | "reasoning" => {
            Block::Reasoning { text: first_text(block, &["thinking", "think", "text"]).to_owned() }
        }
        "redacted_thinking" => Block::Reasoning { text: String::new() },
        "tool_use" | "server_tool_use" | "mcp_tool_use" | "toolCall" | "tool-call" => {
            let input = ["input", "arguments", "args"].iter().find_map(|key| block.get(key));
            call(first_text(block, &["id", "toolCallId"]), first_text(block, &["name", "toolName"]), input)
        }
        "tool_result" | "tool-result" => result(block),
        kind if kind.ends_with("_tool_result") => result(block),
        "image" | "document" | "image_url" | "imageUrl" => media(block),
        "" if block.is_string() => Block::Text(text_of(block)),
        _ => return Err(block),
    })
}

/// What came back: words or blocks, or one value that names its type, as the AI SDK has it.
fn result(block: &Value) -> Block {
    let id = first_text(block, &["tool_use_id", "toolCallId"]).to_owned();
    let said = ["content", "output", "result"].iter().find_map(|key| block.get(key)).unwrap_or(&Value::Null);
    let kind = str_at(said, "type");
    let is_wrapped = matches!(kind, "text" | "json" | "content" | "error-text" | "error-json" | "execution-denied");
    let (said, failed) = match said.get("value") {
        Some(value) if is_wrapped => (value, kind.starts_with("error")),
        _ => (said, false),
    };
    let is_error =
        ["is_error", "isError"].iter().find_map(|key| block.get(key)).and_then(Value::as_bool).unwrap_or(failed);
    let content = match said {
        Value::Array(_) => anthropic(said),
        Value::Object(_) if !kind.is_empty() => anthropic(said),
        other => text(&text_of(other)).into_iter().collect(),
    };
    Block::Result { id, content, is_error }
}

/// A picture, or a document: its bytes below `source` or beside its type, or an address; a document may be plain words.
fn media(block: &Value) -> Block {
    let source = block.get("source").unwrap_or(block);
    let kind = if str_at(block, "type") == "document" { "document" } else { "image" };
    let named = ["media_type", "mimeType", "mime_type", "mediaType"].iter().find_map(|key| word_at(source, key));
    let media_type = named.unwrap_or(kind);
    let url = match block.get("image_url").or_else(|| block.get("imageUrl")) {
        Some(Value::String(url)) => url,
        Some(url) => str_at(url, "url"),
        None => first_text(source, &["url", "image"]),
    };
    match (str_at(source, "data"), str_at(source, "type")) {
        ("", _) => Block::media_of_url(url, media_type),
        (words, "text") => Block::Text(words.to_owned()),
        (data, _) => Block::Media { media_type: media_type.to_owned(), data: MediaData::Base64(data.to_owned()) },
    }
}

/// The parts of a message as Google's interface has them.
pub(crate) fn google(message: &Value) -> Vec<Block> {
    let parts = message.get("parts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(google_part).collect()
}

fn google_part(part: &Value) -> Option<Block> {
    let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or_default();
    if let Some(call_of) = part.get("functionCall") {
        return Some(call(str_at(call_of, "id"), str_at(call_of, "name"), call_of.get("args")));
    }
    if let Some(response) = part.get("functionResponse") {
        return Some(google_result(response));
    }
    for (key, at) in [("inlineData", "data"), ("fileData", "fileUri")] {
        if let Some(data) = part.get(key) {
            let media_type = word_at(data, "mimeType").unwrap_or("application/octet-stream").to_owned();
            let data = str_at(data, at).to_owned();
            let data = if key == "inlineData" { MediaData::Base64(data) } else { MediaData::Reference(data) };
            return Some(Block::Media { media_type, data });
        }
    }
    match part.get("text") {
        Some(thought) if is_thought => Some(Block::Reasoning { text: text_of(thought) }),
        Some(words) => text(&text_of(words)),
        None => text(&text_of(part)),
    }
}

fn google_result(response: &Value) -> Block {
    let said = response.get("response").unwrap_or(&Value::Null);
    let error = said.get("error").filter(|error| !error.is_null());
    let output = match (error, said.get("output").or_else(|| said.get("content"))) {
        (Some(error), _) => text_of(error),
        (None, Some(output)) => text_of(output),
        (None, None) if said.as_object().is_some_and(serde_json::Map::is_empty) => String::new(),
        (None, None) => text_of(said),
    };
    let mut content: Vec<Block> = text(&output).into_iter().collect();
    content.extend(google(response));
    Block::Result { id: str_at(response, "id").to_owned(), content, is_error: error.is_some() }
}
