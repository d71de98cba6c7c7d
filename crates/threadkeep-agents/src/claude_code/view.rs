//! What a line of a Claude Code file says to a reader.

use serde_json::Value;
use threadkeep::{Part, View};

use super::line::Line;
use super::message::{blocks, content, tokens};
use crate::conversation::Block;
use crate::json::{damaged, one_line, read, str_at, text_of, u64_at};

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
        "tool_use" | "tool_result" => View { parts: parts(&line), ..View::default() },
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

fn assistant(line: &Value) -> View {
    let message = line.get("message").unwrap_or(&Value::Null);
    View { parts: parts(content(line)), usage: message.get("usage").and_then(tokens), ..View::default() }
}

/// What blocks say; one that is of no known kind is at least named.
fn parts(content: &Value) -> Vec<Part> {
    let note = |block: &Value| vec![Part::Note { text: one_line(&text_of(block), NOTE_CHARS) }];
    blocks(content).into_iter().flat_map(|block| block.map_or_else(note, Block::into_parts)).collect()
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
