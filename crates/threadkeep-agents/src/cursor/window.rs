//! Rows of Cursor's databases: chats, what lists them, and their messages.

use std::path::PathBuf;

use serde_json::Value;
use threadkeep::{Timestamp, Usage};

use super::said;
use crate::blocks::{anthropic, call, text};
use crate::codec::ThreadFacts;
use crate::conversation::{Block, MediaData};
use crate::json::{first_text, labelled, path_of_uri, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, NOTE_CHARS, Tokens, Voice};

/// Times before this one are durations: 2000, in milliseconds.
const EARLIEST: f64 = 946_684_800_000.0;

/// A row by the name of its query.
pub(super) fn row(table: &str, row: &Value) -> Entry {
    let data = row.get("data").unwrap_or(&Value::Null);
    match table {
        "chat" => chat(data),
        "head" => head(row, data),
        "meta" => meta(data),
        "tab" => tab(row),
        "bubbles" | "conversation" => bubble(row, data),
        "unlisted" => Entry { is_beside: true, is_open: false, ..bubble(row, data) },
        "chatdata" => old_message(data),
        "message" => message(row, data),
        other => Entry { is_beside: true, ..Entry::event(other) },
    }
}

/// The chat itself. It says that it is at work by its status, or by the messages that are being made.
fn chat(data: &Value) -> Entry {
    if !data.is_object() {
        return wrong("the chat's own record is no JSON: its messages are taken in the order of their times");
    }
    let making = data.get("generatingBubbleIds").and_then(Value::as_array).is_some_and(|ids| !ids.is_empty());
    let is_open = making || str_at(data, "status") == "generating";
    let model = data.get("modelConfig").and_then(model_word);
    let parent = data.get("subagentInfo").and_then(|info| word_at(info, "parentComposerId"));
    let says = ThreadFacts {
        title: word_at(data, "name").map(str::to_owned),
        model,
        source: Some(parent.map_or("window", |_| "subagent").to_owned()),
        parent_session: parent.map(str::to_owned),
        created_at: time_at(data, "createdAt"),
        ..workspace(data)
    };
    Entry { at: time_at(data, "createdAt"), is_open, ..session(says) }
}

/// What the list of chats says of it.
fn head(row: &Value, data: &Value) -> Entry {
    let archived = u64_at(row, "isArchived") == 1 || data.get("isArchived") == Some(&Value::Bool(true));
    let says = ThreadFacts {
        title: word_at(data, "name").map(str::to_owned),
        archived: archived.then_some(true),
        ..workspace(data)
    };
    session(says)
}

fn meta(data: &Value) -> Entry {
    let parent = data.get("subagentInfo").and_then(|info| first_word(info, &["parentAgentId", "parentConversationId"]));
    let says = ThreadFacts {
        title: word_at(data, "name").filter(|name| *name != "New Agent").map(str::to_owned),
        model: word_at(data, "lastUsedModel").map(str::to_owned),
        source: Some(data.get("subagentInfo").filter(|info| info.is_object()).map_or("cli", |_| "subagent").to_owned()),
        parent_session: parent.map(str::to_owned),
        ..ThreadFacts::default()
    };
    Entry { at: time_at(data, "createdAt"), ..session(says) }
}

fn tab(row: &Value) -> Entry {
    let says = ThreadFacts { title: word_at(row, "title").map(str::to_owned), ..ThreadFacts::default() };
    Entry { at: time_at(row, "lastSendTime"), ..session(says) }
}

fn session(says: ThreadFacts) -> Entry {
    let title = says.title.clone().unwrap_or_default();
    Entry { is_beside: true, says, ..Entry::event(labelled("chat", &title, NOTE_CHARS)) }
}

/// The folder that a chat belongs to.
fn workspace(data: &Value) -> ThreadFacts {
    let uri = data.get("workspaceIdentifier").and_then(|workspace| workspace.get("uri")).unwrap_or(&Value::Null);
    let path = word_at(uri, "fsPath").or_else(|| word_at(uri, "path")).map(PathBuf::from);
    let cwd = path.or_else(|| uri.as_str().and_then(path_of_uri));
    ThreadFacts { cwd, ..ThreadFacts::default() }
}

/// A message of the window: a prompt, or a piece of an answer with at most one call and its result.
fn bubble(row: &Value, data: &Value) -> Entry {
    let id = first_word(data, &["bubbleId"]).or_else(|| word_at(row, "bubbleId"));
    if !data.is_object() {
        let name = id.unwrap_or("?");
        return match data {
            Value::Null => wrong(format!("message {name} is listed and not there")),
            _ => wrong(format!("message {name} is no JSON")),
        };
    }
    let entry = match u64_at(data, "type") {
        1 => Entry::said(Voice::Person, prompt(data)),
        2 => answer(data, id.unwrap_or_default()),
        other => Entry {
            blocks: text(str_at(data, "text")).into_iter().collect(),
            ..Entry::event(format!("message of type {other}"))
        },
    };
    let usage = data.get("tokenCount").map(|count| Usage {
        input: u64_at(count, "inputTokens"),
        output: u64_at(count, "outputTokens"),
        ..Usage::default()
    });
    let model = data.get("modelInfo").and_then(model_word);
    let says = ThreadFacts { model, ..ThreadFacts::default() };
    let id = id.map(str::to_owned);
    Entry { key: id.clone(), id, at: time(data), tokens: usage.and_then(Tokens::of), says, ..entry }
}

fn prompt(data: &Value) -> Vec<Block> {
    let mut blocks: Vec<Block> = text(str_at(data, "text")).into_iter().collect();
    let images = data.get("images").and_then(Value::as_array).into_iter().flatten();
    blocks.extend(images.map(|image| match first_text(image, &["path", "url", "uuid"]) {
        "" => Block::Media { media_type: "image".to_owned(), data: MediaData::Absent },
        path => Block::media_of_url(path, "image"),
    }));
    blocks
}

fn answer(data: &Value, id: &str) -> Entry {
    let summary = data.get("conversationSummary").map(|summary| str_at(summary, "summary")).unwrap_or_default();
    if !summary.is_empty() && str_at(data, "text").is_empty() {
        return Entry::said(Voice::Summary, text(summary).into_iter().collect());
    }
    let mut blocks = Vec::new();
    let several = data.get("allThinkingBlocks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let thoughts = match data.get("thinking") {
        Some(Value::String(thought)) => thought.clone(),
        Some(thinking) if !str_at(thinking, "text").is_empty() => str_at(thinking, "text").to_owned(),
        _ => several.iter().map(|thought| first_text(thought, &["text", "thinking"])).collect::<Vec<_>>().join("\n"),
    };
    if !thoughts.trim().is_empty() {
        blocks.push(Block::Reasoning { text: thoughts });
    }
    blocks.extend(text(str_at(data, "text")));
    let tool = data.get("toolFormerData").filter(|tool| tool.is_object());
    if let Some(tool) = tool {
        blocks.extend(called(tool, id));
    }
    if blocks.is_empty() {
        // Places that the window keeps for what is shown otherwise.
        let kind = text_of(data.get("capabilityType").unwrap_or(&Value::Null));
        return Entry { is_beside: true, ..Entry::event(labelled("empty message", &kind, NOTE_CHARS)) };
    }
    Entry::said(Voice::Model, blocks)
}

/// The call of a message, with what came of it.
fn called(tool: &Value, message: &str) -> Vec<Block> {
    let name = match first_text(tool, &["name", "toolName"]) {
        "" if tool.get("tool").is_none() => return Vec::new(),
        "" => format!("tool {}", text_of(tool.get("tool").unwrap_or(&Value::Null))),
        name => name.to_owned(),
    };
    let id = word_at(tool, "toolCallId").unwrap_or(message);
    let is_said = |value: &&Value| !value.is_null() && *value != "" && *value != "{}";
    let input = ["rawArgs", "params"].iter().filter_map(|key| tool.get(*key)).find(is_said);
    let mut blocks = vec![call(id, &name, input)];
    let status = str_at(tool, "status");
    let failed = matches!(status, "error" | "cancelled" | "canceled" | "rejected");
    let output =
        ["result", "error"].iter().filter_map(|key| tool.get(*key)).find(|value| !value.is_null() && *value != "");
    if output.is_some() || failed || status == "completed" {
        let said = output.map_or_else(|| if failed { status.to_owned() } else { String::new() }, text_of);
        let content = text(&said).into_iter().collect();
        blocks.push(Block::Result { id: id.to_owned(), content, is_error: failed });
    }
    blocks
}

/// A message of the chats before 2025.
fn old_message(data: &Value) -> Entry {
    let words = text(first_text(data, &["text", "rawText"])).into_iter().collect();
    let entry = match str_at(data, "type") {
        "user" => Entry::said(Voice::Person, words),
        "ai" => Entry::said(Voice::Model, words),
        other => Entry { blocks: words, ..Entry::event(labelled("message", other, NOTE_CHARS)) },
    };
    let model = word_at(data, "modelType").map(str::to_owned);
    let id = word_at(data, "id").map(str::to_owned);
    let says = ThreadFacts { model, ..ThreadFacts::default() };
    Entry { key: id.clone(), id, says, ..entry }
}

/// A message of the command line, as the model is given it.
fn message(row: &Value, data: &Value) -> Entry {
    let blob = str_at(row, "blob").get(..12).unwrap_or_default();
    let Some(role) = word_at(data, "role") else {
        return match data {
            Value::Null => wrong(format!("message {blob} is listed and not there")),
            _ => wrong(format!("message {blob} is no message in JSON")),
        };
    };
    said(role, anthropic(data.get("content").unwrap_or(&Value::Null)))
}

fn wrong(reason: impl Into<String>) -> Entry {
    Entry { wrong: Some(reason.into()), ..Entry::default() }
}

/// When a message was made; before it says so, when it was asked for.
fn time(data: &Value) -> Option<Timestamp> {
    let sent = data.get("timingInfo").and_then(|timing| {
        let times = ["clientRpcSendTime", "clientStartTime", "clientSettleTime", "clientEndTime"].into_iter();
        times.filter_map(|key| timing.get(key).and_then(Value::as_f64)).find(|millis| *millis > EARLIEST)
    });
    let whole = |millis: f64| format!("{millis:.0}").parse::<i64>().ok().map(Timestamp);
    time_at(data, "createdAt").or_else(|| sent.and_then(whole))
}

fn model_word(config: &Value) -> Option<String> {
    word_at(config, "modelName").filter(|name| *name != "default").map(str::to_owned)
}

fn first_word<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| word_at(value, key))
}
