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
    match content {
        Value::Null => Vec::new(),
        Value::Array(blocks) => blocks.iter().filter_map(anthropic_block).collect(),
        Value::Object(_) => anthropic_block(content).into_iter().collect(),
        other => text(&text_of(other)).into_iter().collect(),
    }
}

fn anthropic_block(block: &Value) -> Option<Block> {
    Some(match str_at(block, "type") {
        "text" | "input_text" | "output_text" => return text(str_at(block, "text")),
        "thinking" | "think" | "reasoning" => {
            Block::Reasoning { text: first_text(block, &["thinking", "think", "text"]).to_owned() }
        }
        "redacted_thinking" => Block::Reasoning { text: String::new() },
        "tool_use" | "server_tool_use" | "mcp_tool_use" | "toolCall" => {
            let input = block.get("input").or_else(|| block.get("arguments"));
            call(str_at(block, "id"), str_at(block, "name"), input)
        }
        "tool_result" => Block::Result {
            id: str_at(block, "tool_use_id").to_owned(),
            content: anthropic(block.get("content").unwrap_or(&Value::Null)),
            is_error: block.get("is_error").and_then(Value::as_bool).unwrap_or_default(),
        },
        // As the AI SDK has them.
        "tool-call" => {
            let input = block.get("args").or_else(|| block.get("input"));
            call(str_at(block, "toolCallId"), str_at(block, "toolName"), input)
        }
        "tool-result" => {
            let output = block.get("result").or_else(|| block.get("output")).unwrap_or(&Value::Null);
            Block::Result {
                id: str_at(block, "toolCallId").to_owned(),
                content: text(&text_of(output)).into_iter().collect(),
                is_error: block.get("isError").and_then(Value::as_bool).unwrap_or_default(),
            }
        }
        "image" | "document" | "image_url" | "imageUrl" => media(block),
        _ => return text(&text_of(block)),
    })
}

/// A picture: its bytes below `source` or beside its type, or an address.
fn media(block: &Value) -> Block {
    let source = block.get("source").unwrap_or(block);
    let media_type = ["media_type", "mimeType", "mime_type"].iter().find_map(|key| word_at(source, key));
    let media_type = media_type.unwrap_or("image");
    let url = match block.get("image_url").or_else(|| block.get("imageUrl")) {
        Some(Value::String(url)) => url,
        Some(url) => str_at(url, "url"),
        None => str_at(source, "url"),
    };
    match str_at(source, "data") {
        "" => Block::media_of_url(url, media_type),
        data => Block::Media { media_type: media_type.to_owned(), data: MediaData::Base64(data.to_owned()) },
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
