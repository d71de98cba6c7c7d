//! What a line of a Claude Code file says to a reader.

use serde_json::Value;
use threadkeep::{Part, Usage, View};

use super::facts::usage;
use super::line::{Line, Tokens};
use crate::json::{damaged, decoded_len, media_url, one_line, read, str_at, text_of, u64_at};

/// How much of an event's own text is shown.
const NOTE_CHARS: usize = 200;

pub(super) fn view(bytes: &[u8]) -> View {
    let Ok((line, repaired)) = read::<Value>(bytes) else {
        return damaged(bytes);
    };
    let mut view = match str_at(&line, "type") {
        "user" => View { parts: parts(content(&line)), ..View::default() },
        "assistant" => assistant(&line),
        "attachment" => attachment(line.get("attachment").unwrap_or(&Value::Null)),
        "progress" => note(progress(line.get("data").unwrap_or(&Value::Null))),
        "system" => note(system(&line)),
        "summary" => View::text(None, summary_text(&line)),
        "tool_use" => View { parts: vec![call(&line)], ..View::default() },
        "tool_result" => View { parts: result(&line), ..View::default() },
        other => note(side(other, &line)),
    };
    view.role = read::<Line>(bytes).ok().and_then(|(line, _)| line.read().role);
    view.damaged |= repaired;
    view
}

fn note(text: String) -> View {
    View { parts: vec![Part::Note { text }], ..View::default() }
}

/// `name: text`, without the colon when there is no text.
fn labelled(name: &str, said: &str) -> String {
    let said = one_line(said, NOTE_CHARS);
    if said.is_empty() { name.to_owned() } else { format!("{name}: {said}") }
}

fn content(line: &Value) -> &Value {
    let message = line.get("message").unwrap_or(&Value::Null);
    let content = message.get("content").unwrap_or(&Value::Null);
    if message.is_string() { message } else { content }
}

fn assistant(line: &Value) -> View {
    let message = line.get("message").unwrap_or(&Value::Null);
    View { parts: parts(content(line)), usage: message.get("usage").and_then(tokens), ..View::default() }
}

fn tokens(value: &Value) -> Option<Usage> {
    let tokens: Tokens = serde_json::from_value(value.clone()).ok()?;
    Some(usage(tokens)).filter(|usage| *usage != Usage::default())
}

fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text { text: text.clone() }],
        Value::Array(blocks) => blocks.iter().flat_map(block).collect(),
        Value::Null => Vec::new(),
        other => block(other),
    }
}

fn block(block: &Value) -> Vec<Part> {
    let part = match str_at(block, "type") {
        "text" => Part::Text { text: str_at(block, "text").to_owned() },
        "thinking" => Part::Reasoning { text: str_at(block, "thinking").to_owned() },
        "redacted_thinking" => Part::Reasoning { text: String::new() },
        "tool_use" | "server_tool_use" | "mcp_tool_use" => call(block),
        "tool_result" | "web_search_tool_result" | "mcp_tool_result" => return result(block),
        "image" | "document" => media(block),
        "" if block.is_string() => Part::Text { text: text_of(block) },
        _ => Part::Note { text: one_line(&text_of(block), NOTE_CHARS) },
    };
    vec![part]
}

fn call(block: &Value) -> Part {
    let arguments = match block.get("input") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(input) => text_of(input),
    };
    Part::ToolCall { call_id: str_at(block, "id").to_owned(), name: str_at(block, "name").to_owned(), arguments }
}

/// The result itself, then the pictures that came with it.
fn result(block: &Value) -> Vec<Part> {
    let mut output = Vec::new();
    let mut pictures = Vec::new();
    match block.get("content").or_else(|| block.get("output")).unwrap_or(&Value::Null) {
        Value::Array(blocks) => {
            for inner in blocks {
                match str_at(inner, "type") {
                    "text" => output.push(str_at(inner, "text").to_owned()),
                    "image" | "document" => pictures.push(media(inner)),
                    _ => output.push(text_of(inner)),
                }
            }
        }
        other => output.push(text_of(other)),
    }
    let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or_default();
    let call_id = str_at(block, "tool_use_id").to_owned();
    let mut parts = vec![Part::ToolResult { call_id, output: output.join("\n"), is_error }];
    parts.append(&mut pictures);
    parts
}

fn media(block: &Value) -> Part {
    let source = block.get("source").unwrap_or(&Value::Null);
    if str_at(source, "type") == "url" {
        return media_url(str_at(source, "url"));
    }
    let media_type = match str_at(source, "media_type") {
        "" => str_at(block, "type"),
        media_type => media_type,
    };
    let data = str_at(source, "data");
    let bytes = if str_at(source, "type") == "base64" { decoded_len(data) } else { data.len() as u64 };
    Part::Media { media_type: media_type.to_owned(), bytes }
}

fn attachment(attachment: &Value) -> View {
    let kind = str_at(attachment, "type");
    if kind == "queued_command" {
        let queued = parts(attachment.get("prompt").unwrap_or(&Value::Null));
        return View { parts: queued, ..View::default() };
    }
    let keys = ["hookName", "filename", "displayPath", "text", "newDate", "skillDir", "description", "content"];
    let said = keys.iter().map(|key| str_at(attachment, key)).find(|said| !said.is_empty());
    note(labelled(kind, said.unwrap_or_default()))
}

fn progress(data: &Value) -> String {
    let kind = str_at(data, "type");
    let keys = ["hookName", "output", "fullOutput", "command", "toolName", "prompt", "query", "status"];
    let said = keys.iter().map(|key| str_at(data, key)).find(|said| !said.is_empty());
    labelled(if kind.is_empty() { "progress" } else { kind }, said.unwrap_or_default())
}

fn system(line: &Value) -> String {
    let subtype = match str_at(line, "subtype") {
        "" => "system",
        subtype => subtype,
    };
    match subtype {
        "compact_boundary" => {
            let meta = line.get("compactMetadata").unwrap_or(&Value::Null);
            let trigger = str_at(meta, "trigger");
            match u64_at(meta, "preTokens") {
                0 => labelled("conversation compacted", trigger),
                tokens => labelled("conversation compacted", &format!("{trigger}, {tokens} tokens before")),
            }
        }
        "turn_duration" => format!("turn took {:.1} s", u64_at(line, "durationMs") as f64 / 1000.0),
        "api_error" => {
            let error = line.get("error").unwrap_or(&Value::Null);
            let inner = error.get("error").and_then(|error| error.get("error")).unwrap_or(error);
            let retry = format!("attempt {} of {}", u64_at(line, "retryAttempt"), u64_at(line, "maxRetries"));
            labelled("API error", [str_at(inner, "message"), &retry].join(" ").trim())
        }
        "stop_hook_summary" => format!("{} stop hooks ran", u64_at(line, "hookCount")),
        other => labelled(other, str_at(line, "content")),
    }
}

fn summary_text(line: &Value) -> String {
    match str_at(line, "summary") {
        "" => parts(content(line)).iter().map(|part| if let Part::Text { text } = part { text } else { "" }).collect(),
        summary => summary.to_owned(),
    }
}

/// A record beside the tree.
fn side(kind: &str, line: &Value) -> String {
    let keys =
        ["customTitle", "aiTitle", "agentName", "lastPrompt", "tag", "mode", "permissionMode", "prUrl", "content"];
    let said = keys.iter().map(|key| str_at(line, key)).find(|said| !said.is_empty());
    let operation = str_at(line, "operation");
    let name = if operation.is_empty() { kind.to_owned() } else { format!("{kind} {operation}") };
    labelled(if name.is_empty() { "record" } else { &name }, said.unwrap_or_default())
}
