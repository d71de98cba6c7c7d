//! Continue: a document for each session, written anew with every message, whose `history` holds the messages.
//!
//! The keys are those of `Session` and `ChatHistoryItem` in `core/index.d.ts` of continuedev/continue. Its editors and its
//! command line write the same.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::{Timestamp, Usage};

use crate::blocks::{anthropic, call, text};
use crate::codec::{Aside, Shape, ThreadFacts};
use crate::conversation::Block;
use crate::json::{path_of_uri, read, str_at, text_of, u64_at, word_at};
use crate::lines::{Entry, Format, Tokens, Voice, stem};

const HISTORY: &[&str] = &["history"];
/// Beside the sessions: when each was begun.
const INDEX: &str = "sessions.json";
/// What the agent calls a session until it has a title.
const UNTITLED: [&str; 2] = ["New Session", "Untitled Session"];

/// Continue's sessions.
///
/// Guarantees: messages stand in the order of `history`; the results of calls stand in the message that made them, as in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continue;

impl Format for Continue {
    fn name(self) -> &'static str {
        "continue"
    }

    fn knows(self, _path: &Path, _line: &Value) -> bool {
        false
    }

    fn may_be_session(self, path: &Path) -> bool {
        let is_document = path.extension().is_some_and(|ending| ending == "json");
        let is_ours = || path.components().any(|part| part.as_os_str().to_string_lossy().contains("continue"));
        let in_sessions = || path.parent().is_some_and(|folder| folder.ends_with("sessions"));
        is_document && (is_ours() || in_sessions()) && !is_index(path)
    }

    fn shape(self, _path: &Path, _head: &[u8]) -> Shape {
        Shape::Document(HISTORY)
    }

    fn detect(self, path: &Path, head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        let is_session = has("history") && has("sessionId") && has("workspaceDirectory");
        text.starts_with('{') && is_session && !is_index(path)
    }

    fn frame(self, frame: &Value) -> ThreadFacts {
        let title = word_at(frame, "title").filter(|title| !UNTITLED.contains(title));
        ThreadFacts {
            session_id: word_at(frame, "sessionId").map(str::to_owned),
            title: title.map(str::to_owned),
            cwd: word_at(frame, "workspaceDirectory").and_then(path_of_uri),
            model: word_at(frame, "chatModelTitle").map(str::to_owned),
            source: word_at(frame, "mode").map(str::to_owned),
            usage: frame.get("usage").and_then(tokens),
            ..ThreadFacts::default()
        }
    }

    fn read(self, element: &Value) -> Option<Entry> {
        let message = element.get("message")?;
        let role = word_at(message, "role")?;
        let content = message.get("content").unwrap_or(&Value::Null);
        let mut entry = match role {
            "user" => user(element, content),
            "assistant" => assistant(element, message, content),
            "thinking" => Entry::said(Voice::Model, vec![Block::Reasoning { text: words(content) }]),
            "tool" => {
                let id = str_at(message, "toolCallId").to_owned();
                Entry::said(Voice::Tool, vec![Block::Result { id, content: anthropic(content), is_error: false }])
            }
            "system" => Entry::said(Voice::Instructions, anthropic(content)),
            other => Entry { blocks: anthropic(content), ..Entry::event(other) },
        };
        entry.id = word_at(message, "id").map(str::to_owned);
        entry.key.clone_from(&entry.id);
        Some(entry)
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        facts.session_id = facts.session_id.take().or_else(|| stem(path));
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        vec![path.with_file_name(INDEX)]
    }

    fn is_list(self, path: &Path) -> bool {
        is_index(path)
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let Ok((Value::Array(listed), _)) = read::<Value>(bytes) else { return None };
        let mut sessions = HashMap::with_capacity(listed.len());
        for session in listed {
            sessions.entry(str_at(&session, "sessionId").to_owned()).or_insert(session);
        }
        Some(Aside::new(move |facts| {
            let Some(session) = facts.session_id.as_ref().and_then(|id| sessions.get(id)) else { return };
            let created = session.get("dateCreated").map(text_of).and_then(|millis| millis.parse::<i64>().ok());
            let created = created.filter(|millis| *millis > 0).map(Timestamp);
            facts.created_at = facts.created_at.or(created);
            if facts.title.is_none() {
                let title = word_at(session, "title").filter(|title| !UNTITLED.contains(title));
                facts.title = title.map(str::to_owned);
            }
        }))
    }
}

fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX)
}

fn user(element: &Value, content: &Value) -> Entry {
    let mut blocks = anthropic(content);
    for item in list(element, "contextItems").iter().filter(|item| item.get("hidden") != Some(&Value::Bool(true))) {
        // What was attached is sent along with the prompt.
        let words = [str_at(item, "name"), str_at(item, "content")].join("\n");
        blocks.extend(text(words.trim()));
    }
    Entry::said(Voice::Person, blocks)
}

fn assistant(element: &Value, message: &Value, content: &Value) -> Entry {
    let mut blocks = Vec::new();
    let thought = element.get("reasoning").map(|reasoning| str_at(reasoning, "text")).unwrap_or_default();
    if !thought.is_empty() {
        blocks.push(Block::Reasoning { text: thought.to_owned() });
    }
    blocks.extend(anthropic(content));
    let states = states(element);
    for made in list(message, "toolCalls") {
        blocks.push(call_of(made));
    }
    for state in &states {
        let id = call_id(state);
        let is_told = blocks.iter().any(|block| matches!(block, Block::Call { id: told, .. } if told == id));
        if let Some(made) = state.get("toolCall").filter(|_| !is_told) {
            blocks.push(call_of(made));
        }
    }
    // The editors put what came of a call behind the answer too; only what was canceled stands here alone.
    let is_told_behind = word_at(message, "id").is_some();
    let told = states.iter().filter(|state| !is_told_behind || str_at(state, "status") == "canceled");
    blocks.extend(told.filter_map(|state| result(state)));
    let at_work = |state: &&Value| matches!(str_at(state, "status"), "generating" | "generated" | "calling");
    let tokens = message.get("usage").and_then(tokens).and_then(Tokens::of);
    let model = list(element, "promptLogs").iter().rev().find_map(|log| word_at(log, "modelTitle"));
    let says = ThreadFacts { model: model.map(str::to_owned), ..ThreadFacts::default() };
    let is_open = blocks.is_empty() || states.iter().any(at_work);
    Entry { tokens, says, is_open, ..Entry::said(Voice::Model, blocks) }
}

/// What became of the calls: in a list, or of the only one that older versions allow.
fn states(element: &Value) -> Vec<&Value> {
    let listed = list(element, "toolCallStates").iter();
    let only = element.get("toolCallState").filter(|state| state.is_object());
    listed.chain(only.filter(|_| element.get("toolCallStates").is_none())).collect()
}

fn call_of(made: &Value) -> Block {
    let function = made.get("function").unwrap_or(&Value::Null);
    call(str_at(made, "id"), str_at(function, "name"), function.get("arguments"))
}

fn call_id(state: &Value) -> &str {
    match str_at(state, "toolCallId") {
        "" => state.get("toolCall").map(|made| str_at(made, "id")).unwrap_or_default(),
        id => id,
    }
}

fn result(state: &Value) -> Option<Block> {
    let status = str_at(state, "status");
    let output = list(state, "output");
    if output.is_empty() && !matches!(status, "done" | "errored" | "canceled") {
        return None;
    }
    let content = output.iter().filter_map(|item| text(str_at(item, "content"))).collect();
    let is_error = matches!(status, "errored" | "canceled");
    Some(Block::Result { id: call_id(state).to_owned(), content, is_error })
}

/// What came from the cache is a part of the input.
fn tokens(usage: &Value) -> Option<Usage> {
    let [input, output] = ["promptTokens", "completionTokens"].map(|key| u64_at(usage, key));
    let cached = usage.get("promptTokensDetails").map(|details| u64_at(details, "cachedTokens")).unwrap_or_default();
    let usage = Usage { input, output, cached, ..Usage::default() };
    (usage != Usage::default()).then_some(usage)
}

fn words(content: &Value) -> String {
    let texts = anthropic(content).into_iter().filter_map(|block| match block {
        Block::Text(text) => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
