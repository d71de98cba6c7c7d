//! Qwen Code: a chain of records in Google's form, with what its program notes among them.

mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{google, text};
use crate::codec::ThreadFacts;
use crate::conversation::Block;
use crate::facts::is_uuid;
use crate::json::{first_text, labelled, parent_at, str_at, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, Link, NOTE_CHARS, Tokens, Voice, all_begin_with, folder, own_words, stem};
use crate::writer::{Invocation, Session, Turns, Writer};

/// Qwen Code's chats.
///
/// Guarantees: each record stands after the one that it names, so a rewind is a branch; a record that is written again under its
/// id stands behind the first one, and its tokens count once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QwenCode;

/// What text begins with that the program puts into a person's mouth.
const INJECTED: [&str; 5] = [
    "<qwen:",
    "<system-reminder>",
    "<session_context>",
    "<task-notification>",
    "This is the Qwen Code. We are setting up the context",
];

/// Records in a person's name that are a person's.
const OWN: [&str; 3] = ["", "mid_turn_user_message", "agent_launch_prompt"];

impl Format for QwenCode {
    fn name(self) -> &'static str {
        "qwen-code"
    }

    fn knows(self, _path: &Path, line: &Value) -> bool {
        let is_record = word_at(line, "uuid").is_some() && word_at(line, "sessionId").is_some();
        let typed = ["user", "assistant", "tool_result", "system"].contains(&str_at(line, "type"));
        let parts = line.get("message").is_some_and(|message| message.get("parts").is_some());
        is_record && typed && (parts || line.get("systemPayload").is_some())
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type")?;
        let empty = Value::Null;
        let message = line.get("message").unwrap_or(&empty);
        let payload = line.get("systemPayload").unwrap_or(&empty);
        let mut entry = match kind {
            "user" => user(line, google(message), payload),
            "assistant" => {
                let tokens = line.get("usageMetadata").and_then(|usage| Tokens::of(tokens(usage)));
                Entry { tokens, ..Entry::said(Voice::Model, google(message)) }
            }
            "tool_result" => Entry::said(Voice::Tool, results(line, message)),
            "system" => system(str_at(line, "subtype"), payload),
            other => Entry::event(labelled(other, str_at(line, "subtype"), NOTE_CHARS)),
        };
        says(line, &mut entry.says);
        let id = word_at(line, "uuid").map(str::to_owned);
        Some(Entry { id, at: time_at(line, "timestamp"), parent: Link(parent_at(line, "parentUuid")), ..entry })
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let name = stem(path).unwrap_or_default();
        if name.starts_with("agent-") {
            let session = folder(path, 1).filter(|folder| is_uuid(folder)).map(str::to_owned);
            facts.parent_session = session.or(facts.session_id.take());
            facts.session_id =
                Some(facts.parent_session.as_ref().map_or_else(|| name.clone(), |session| format!("{session}.{name}")));
            facts.source = Some("subagent".to_owned());
        } else if is_uuid(&name) {
            facts.session_id = Some(name);
        }
    }

    fn root(self) -> Option<&'static str> {
        Some(".qwen")
    }

    fn place(self, session: &Session) -> Option<PathBuf> {
        write::place(session)
    }

    fn writer(self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(Turns::writer(session, write::QwenActs)))
    }

    fn resuming(self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["--resume".to_owned(), write::id(session).to_string()];
        Some(Invocation { program: "qwen", arguments })
    }
}

/// What every record repeats of its session.
fn says(line: &Value, says: &mut ThreadFacts) {
    let word = |key: &str| word_at(line, key).map(str::to_owned);
    says.session_id = word("sessionId");
    says.cwd = word_at(line, "cwd").map(PathBuf::from);
    says.cli_version = word("version");
    says.git_branch = word("gitBranch");
    says.persona = word("agentName");
    says.model = word("model").or(says.model.take());
    says.forked_from = line.get("forkedFrom").and_then(|from| word_at(from, "sessionId")).map(str::to_owned);
}

fn user(line: &Value, blocks: Vec<Block>, payload: &Value) -> Entry {
    let own = OWN.contains(&str_at(line, "subtype"))
        && !["goal_control", "goal_runtime", "system"].contains(&str_at(line, "provenance"))
        && !all_begin_with(&blocks, &INJECTED);
    let prompt = word_at(payload, "displayText").map(str::to_owned).or_else(|| own_words(&blocks, &INJECTED));
    Entry { prompt, ..Entry::said(if own { Voice::Person } else { Voice::Injected }, blocks) }
}

/// Cached tokens are part of the input; thoughts are part of the output or not, as the sum tells.
fn tokens(usage: &Value) -> Usage {
    let [input, output, reasoning, total] =
        ["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount"]
            .map(|key| u64_at(usage, key));
    let apart = input.saturating_add(output).saturating_add(reasoning) <= total;
    let output = if apart { output.saturating_add(reasoning) } else { output };
    Usage { input, cached: u64_at(usage, "cachedContentTokenCount"), output, reasoning }
}

/// The results of a record; whether a call failed stands beside them.
fn results(line: &Value, message: &Value) -> Vec<Block> {
    let failed = line.get("toolCallResult").is_some_and(|result| str_at(result, "status") == "error");
    let mut blocks = google(message);
    for block in &mut blocks {
        if let Block::Result { is_error, .. } = block {
            *is_error |= failed;
        }
    }
    // Pictures stand behind the result that they belong to.
    let mut results: Vec<Block> = Vec::new();
    for block in blocks {
        match (results.last_mut(), block) {
            (Some(Block::Result { content, .. }), inner @ Block::Media { .. }) => content.push(inner),
            (_, other) => results.push(other),
        }
    }
    results
}

fn system(subtype: &str, payload: &Value) -> Entry {
    let word = |key: &str| word_at(payload, key).map(str::to_owned);
    let named = |said: &str| Entry::event(labelled(&subtype.replace('_', " "), said, NOTE_CHARS));
    match subtype {
        "chat_compression" => compression(payload),
        "slash_command" if str_at(payload, "phase") != "result" => {
            Entry::said(Voice::Command, text(str_at(payload, "rawCommand")).into_iter().collect())
        }
        "custom_title" => {
            let says = ThreadFacts { title: word("customTitle"), ..ThreadFacts::default() };
            Entry { says, ..named(str_at(payload, "customTitle")) }
        }
        "session_model" => {
            let says = ThreadFacts { model: word("modelId"), ..ThreadFacts::default() };
            Entry { says, ..named(str_at(payload, "modelId")) }
        }
        "session_approval_mode" => {
            let says = ThreadFacts { approval_policy: word("mode"), ..ThreadFacts::default() };
            Entry { says, ..named(str_at(payload, "mode")) }
        }
        "parent_session" => {
            let says = ThreadFacts { parent_session: word("parentSessionId"), ..ThreadFacts::default() };
            Entry { says, ..named(str_at(payload, "parentSessionId")) }
        }
        "session_source" => {
            let says = ThreadFacts { source: word("sourceType"), ..ThreadFacts::default() };
            Entry { says, ..named(str_at(payload, "sourceType")) }
        }
        "ui_telemetry" => named(payload.get("uiEvent").map_or("", |event| str_at(event, "event.name"))),
        _ => named(first_text(payload, &["displayText", "rawCommand", "userText", "message", "summary"])),
    }
}

/// The summary is the first of what the model goes on with; the rest is what it kept.
fn compression(payload: &Value) -> Entry {
    let history = payload.get("compressedHistory").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let summary = history.iter().map(google).find(|blocks| !all_begin_with(blocks, &INJECTED));
    let info = payload.get("info").unwrap_or(&Value::Null);
    let note = format!("conversation compacted, {} tokens before", u64_at(info, "originalTokenCount"));
    Entry { note, ..Entry::said(Voice::Summary, summary.unwrap_or_default()) }
}
