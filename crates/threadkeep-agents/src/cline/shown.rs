//! What a person was shown of a task, for tasks of which nothing else is left.

use serde_json::Value;

use super::tokens;
use crate::blocks::text;
use crate::conversation::Block;
use crate::json::{first_text, labelled, str_at, word_at};
use crate::lines::{Entry, NOTE_CHARS, Tokens, Voice};

/// One message that was shown. The agent writes it again, under its time, while it works on it.
pub(super) fn read(line: &Value) -> Entry {
    let asks = str_at(line, "type") == "ask";
    let kind = str_at(line, if asks { "ask" } else { "say" });
    let said = str_at(line, "text");
    let entry = match (asks, kind) {
        (false, "task" | "user_feedback") => Entry::said(Voice::Person, words(line)),
        (false, "text") if is_task(line) => Entry::said(Voice::Person, words(line)),
        (false, "text" | "completion_result") => Entry::said(Voice::Model, words(line)),
        (false, "reasoning") => Entry::said(Voice::Model, vec![Block::Reasoning { text: said.to_owned() }]),
        (true, "followup" | "plan_mode_respond") => {
            Entry::said(Voice::Model, text(&question(said)).into_iter().collect())
        }
        (false, "api_req_started") => {
            let request = inner(said);
            let tokens = request.as_ref().and_then(|request| Tokens::of(tokens(request)));
            Entry { tokens, ..Entry::event("request to the model") }
        }
        (false, "condense_context") => summary(line),
        (_, "tool" | "browser_action_launch" | "use_mcp_server" | "use_mcp_tool") => {
            let used = inner(said).unwrap_or_default();
            let what = first_text(&used, &["path", "regex", "content", "url", "toolName", "serverName"]);
            let name = first_text(&used, &["tool", "type"]);
            Entry::event(labelled(if name.is_empty() { kind } else { name }, what, NOTE_CHARS))
        }
        (_, kind) => Entry::event(labelled(&kind.replace('_', " "), said, NOTE_CHARS)),
    };
    let key = line.get("ts").map(|ts| format!("{ts} {} {kind}", str_at(line, "type")));
    let is_open = line.get("partial").and_then(Value::as_bool) == Some(true);
    Entry { key, is_open, ..entry }
}

/// Whether a text is the task itself: the first message, which no answer of the model comes before.
fn is_task(line: &Value) -> bool {
    match line.get("conversationHistoryIndex").and_then(Value::as_i64) {
        Some(index) => index < 0,
        // What the model says comes in parts and keeps the mark of it, or has no place for pictures.
        None => line.get("partial").is_none() && line.get("images").is_some_and(Value::is_array),
    }
}

fn words(line: &Value) -> Vec<Block> {
    let pictures = line.get("images").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pictures = pictures.iter().filter_map(Value::as_str).map(|url| Block::media_of_url(url, "image"));
    text(str_at(line, "text")).into_iter().chain(pictures).collect()
}

/// What the model asked the person.
fn question(said: &str) -> String {
    let asked = inner(said);
    let asked =
        asked.as_ref().map(|asked| first_text(asked, &["question", "response"])).filter(|text| !text.is_empty());
    asked.unwrap_or(said).to_owned()
}

fn summary(line: &Value) -> Entry {
    let condensed = line.get("contextCondense").unwrap_or(&Value::Null);
    match word_at(condensed, "summary").or(condensed.get("summary").and_then(Value::as_str)) {
        Some(said) if !said.is_empty() => Entry::said(Voice::Summary, text(said).into_iter().collect()),
        _ => Entry::event("context condensed"),
    }
}

/// A text that is an object.
fn inner(said: &str) -> Option<Value> {
    serde_json::from_str(said).ok().filter(Value::is_object)
}
