//! Kimi Code: what goes over the wire between the program and its model, one file for each agent of a session.

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{anthropic, call, text};
use crate::codec::{Aside, TITLE_CHARS, ThreadFacts};
use crate::conversation::Block;
use crate::facts::shown;
use crate::json::{first_text, labelled, read, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Tokens, Voice, all_begin_with, folder, own_words, stem};

/// Kimi Code's `wire.jsonl`, protocol 1.
///
/// Guarantees: records stand in file order. What is in the model's context is the conversation; what the person typed and what the
/// program asked of the model stand beside it as events, so that nothing is said twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kimi;

/// What text begins with that the program puts into a person's mouth.
const INJECTED: [&str; 2] = ["<system-reminder>", "<system>"];

impl Format for Kimi {
    fn name(self) -> &'static str {
        "kimi"
    }

    fn knows(self, _path: &Path, line: &Value) -> bool {
        let kind = str_at(line, "type");
        let is_header = kind == "metadata" && word_at(line, "protocol_version").is_some();
        is_header || (kind.starts_with("context.") && line.get("time").is_some_and(Value::is_u64))
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type")?;
        let empty = Value::Null;
        let entry = match kind {
            "context.append_message" => message(line.get("message").unwrap_or(&empty)),
            "context.append_loop_event" => step(line.get("event").unwrap_or(&empty)),
            "context.apply_compaction" => {
                Entry::said(Voice::Summary, text(str_at(line, "summary")).into_iter().collect())
            }
            "config.update" => {
                let says = ThreadFacts {
                    model: word_at(line, "modelAlias").map(str::to_owned),
                    cwd: word_at(line, "cwd").map(PathBuf::from),
                    ..ThreadFacts::default()
                };
                Entry { says, ..named(kind, first_text(line, &["modelAlias", "profileName"])) }
            }
            "llm.request" => {
                let says = ThreadFacts {
                    model: word_at(line, "model").map(str::to_owned),
                    provider: word_at(line, "provider").map(str::to_owned),
                    ..ThreadFacts::default()
                };
                Entry { says, ..named(kind, str_at(line, "model")) }
            }
            "usage.record" => {
                let tokens = line.get("usage").and_then(|usage| Tokens::of(tokens(usage)));
                Entry { tokens, ..named(kind, str_at(line, "model")) }
            }
            "turn.prompt" => named(kind, &words(line.get("input").unwrap_or(&empty))),
            "metadata" => named(kind, str_at(line, "protocol_version")),
            other => named(other, first_text(line, &["message", "text", "action", "source", "reason", "kind"])),
        };
        let at = time_at(line, "time").or_else(|| time_at(line, "created_at"));
        Some(Entry { at, ..entry })
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let session = session_folder(path).and_then(|folder| folder.file_name()?.to_str());
        let session = session.map(|name| name.strip_prefix("session_").unwrap_or(name).to_owned());
        match (session, folder(path, 1)) {
            (Some(session), Some("main") | None) => facts.session_id = Some(session),
            (Some(session), Some(agent)) => {
                facts.session_id = Some(format!("{session}.{agent}"));
                facts.parent_session = Some(session);
                facts.persona = facts.persona.take().or_else(|| Some(agent.to_owned()));
                facts.source = Some("subagent".to_owned());
            }
            (None, _) => facts.session_id = stem(path),
        }
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        let folder = session_folder(path).or_else(|| path.parent());
        folder.map(|folder| folder.join("state.json")).into_iter().collect()
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let (state, _) = read::<Value>(bytes).ok()?;
        Some(Aside::new(move |facts| {
            facts.cwd = word_at(&state, "workDir").map(PathBuf::from).or(facts.cwd.take());
            // The title is that of the whole session.
            if facts.parent_session.is_none() {
                facts.title = shown(str_at(&state, "title"), TITLE_CHARS).or(facts.title.take());
            }
        }))
    }
}

/// The folder of a session whose agents' files lie in `agents/<agent>/`.
fn session_folder(path: &Path) -> Option<&Path> {
    let agents = path.parent()?.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "agents"))?;
    agents.parent()
}

fn named(kind: &str, said: &str) -> Entry {
    Entry::event(labelled(&kind.replace(['.', '_'], " "), said, NOTE_CHARS))
}

fn words(content: &Value) -> String {
    let texts = anthropic(content).into_iter().filter_map(|block| match block {
        Block::Text(text) => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn message(message: &Value) -> Entry {
    let mut blocks = anthropic(message.get("content").unwrap_or(&Value::Null));
    let origin = message.get("origin").map_or("", |origin| str_at(origin, "kind"));
    let calls = message.get("toolCalls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match str_at(message, "role") {
        "user" => {
            let own = matches!(origin, "" | "user") && !all_begin_with(&blocks, &INJECTED);
            let prompt = own_words(&blocks, &INJECTED);
            Entry { prompt, ..Entry::said(if own { Voice::Person } else { Voice::Injected }, blocks) }
        }
        "assistant" => {
            blocks.extend(calls.iter().map(asked));
            Entry::said(Voice::Model, blocks)
        }
        "tool" => {
            let id = first_text(message, &["toolCallId", "tool_call_id"]).to_owned();
            Entry::said(Voice::Tool, vec![Block::Result { id, content: blocks, is_error: false }])
        }
        "system" => Entry::said(Voice::Instructions, blocks),
        other => Entry { blocks, ..Entry::event(labelled("message", other, NOTE_CHARS)) },
    }
}

fn asked(asked: &Value) -> Block {
    let function = asked.get("function").unwrap_or(asked);
    let input = function.get("args").or_else(|| function.get("arguments"));
    call(first_text(asked, &["id", "toolCallId"]), str_at(function, "name"), input)
}

/// One event of the loop in which the model works.
fn step(event: &Value) -> Entry {
    let entry = match str_at(event, "type") {
        "content.part" => Entry::said(Voice::Model, anthropic(event.get("part").unwrap_or(&Value::Null))),
        "tool.call" => {
            Entry::said(Voice::Model, vec![call(str_at(event, "toolCallId"), str_at(event, "name"), event.get("args"))])
        }
        "tool.result" => Entry::said(Voice::Tool, vec![result(event)]),
        other => named(other, first_text(event, &["finishReason", "message", "reason"])),
    };
    Entry { id: word_at(event, "uuid").map(str::to_owned), ..entry }
}

fn result(event: &Value) -> Block {
    let said = event.get("result").unwrap_or(&Value::Null);
    let content = match said.get("output") {
        Some(output @ Value::Array(_)) => anthropic(output),
        Some(output) => text(&text_of(output)).into_iter().collect(),
        None => text(&text_of(said)).into_iter().collect(),
    };
    let is_error = said.get("isError").and_then(Value::as_bool).unwrap_or_default();
    Block::Result { id: str_at(event, "toolCallId").to_owned(), content, is_error }
}

/// What came from and went to the cache is counted apart from the other input.
fn tokens(usage: &Value) -> Usage {
    let cached = u64_at(usage, "inputCacheRead");
    let fresh = u64_at(usage, "inputOther").saturating_add(u64_at(usage, "inputCacheCreation"));
    Usage { input: fresh.saturating_add(cached), cached, output: u64_at(usage, "output"), reasoning: 0 }
}
