//! Factory's droid: its session files, and what it prints as it goes.

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{anthropic, call, text};
use crate::codec::{Aside, ThreadFacts};
use crate::conversation::Block;
use crate::json::{first_text, labelled, parent_at, read, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, Link, NOTE_CHARS, Voice, all_begin_with, own_words, stem};

/// Droid's sessions: files of the program, and streams that `droid exec` printed.
///
/// Guarantees: a record stands after the one that it names, a result with its call; records without links stand in file order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Droid;

/// What text begins with that the program puts into a person's mouth.
const INJECTED: [&str; 2] = ["<system-reminder>", "<system-notification>"];

impl Format for Droid {
    fn name(self) -> &'static str {
        "droid"
    }

    fn knows(self, path: &Path, line: &Value) -> bool {
        let kind = str_at(line, "type");
        let is_header = kind == "session_start" && word_at(line, "id").is_some();
        let is_streamed = word_at(line, "session_id").is_some()
            && match kind {
                "message" => word_at(line, "role").is_some() && line.get("text").is_some_and(Value::is_string),
                "tool_call" | "tool_result" => word_at(line, "toolCallId").is_some(),
                "completion" => line.get("finalText").is_some(),
                _ => false,
            };
        // A file that lost its header looks like one of pi's, but for where it lies.
        let at_home = || path.iter().any(|part| part == ".factory");
        let is_message =
            || kind == "message" && line.get("message").is_some_and(|message| message.get("role").is_some());
        is_header || is_streamed || (is_message() && at_home())
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type")?;
        let message = line.get("message").filter(|message| message.is_object());
        let entry = match kind {
            "session_start" => header(line),
            "message" => match message {
                Some(message) => {
                    said(str_at(message, "role"), anthropic(message.get("content").unwrap_or(&Value::Null)))
                }
                None => said(str_at(line, "role"), text(str_at(line, "text")).into_iter().collect()),
            },
            "tool_call" => {
                let asked =
                    call(str_at(line, "toolCallId"), first_text(line, &["toolName", "name"]), line.get("parameters"));
                Entry::said(Voice::Model, vec![asked])
            }
            "tool_result" => Entry::said(Voice::Tool, vec![streamed_result(line)]),
            "compaction_state" | "compaction" => {
                Entry::said(Voice::Summary, text(first_text(line, &["summaryText", "summary"])).into_iter().collect())
            }
            "completion" => Entry { blocks: text(str_at(line, "finalText")).into_iter().collect(), ..Entry::default() },
            other => event(other, line),
        };
        let id = word_at(line, "id").map(str::to_owned);
        let parent = Link(parent_at(line, "parentId"));
        Some(Entry { id, at: time_at(line, "timestamp"), parent, ..entry })
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        facts.session_id = facts.session_id.take().or_else(|| stem(path));
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        vec![path.with_extension("settings.json")]
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let (settings, _) = read::<Value>(bytes).ok()?;
        Some(Aside::new(move |facts| {
            facts.model = word_at(&settings, "model").map(str::to_owned).or(facts.model.take());
            facts.usage = facts.usage.or_else(|| settings.get("tokenUsage").map(tokens));
        }))
    }
}

/// What came from and went to the cache is counted apart from the input.
fn tokens(usage: &Value) -> Usage {
    let cached = u64_at(usage, "cacheReadTokens");
    let fresh = u64_at(usage, "inputTokens").saturating_add(u64_at(usage, "cacheCreationTokens"));
    let [output, reasoning] = ["outputTokens", "thinkingTokens"].map(|key| u64_at(usage, key));
    Usage { input: fresh.saturating_add(cached), cached, output, reasoning }
}

fn header(line: &Value) -> Entry {
    let says = ThreadFacts {
        session_id: word_at(line, "id").map(str::to_owned),
        title: word_at(line, "sessionTitle").or_else(|| word_at(line, "title")).map(str::to_owned),
        cwd: word_at(line, "cwd").map(PathBuf::from),
        cli_version: word_at(line, "version").map(str::to_owned),
        parent_session: word_at(line, "callingSessionId").map(str::to_owned),
        ..ThreadFacts::default()
    };
    Entry { is_beside: true, says, ..Entry::event(labelled("session", str_at(line, "cwd"), NOTE_CHARS)) }
}

fn event(kind: &str, line: &Value) -> Entry {
    let says = ThreadFacts {
        session_id: word_at(line, "session_id").map(str::to_owned),
        model: word_at(line, "model").map(str::to_owned),
        cwd: word_at(line, "cwd").map(PathBuf::from),
        ..ThreadFacts::default()
    };
    let said = first_text(line, &["title", "message", "text", "cwd", "model"]);
    Entry { says, ..Entry::event(labelled(&kind.replace('_', " "), said, NOTE_CHARS)) }
}

fn said(role: &str, blocks: Vec<Block>) -> Entry {
    let results = blocks.iter().any(|block| matches!(block, Block::Result { .. }));
    let voice = match role {
        "assistant" => Voice::Model,
        "system" => Voice::Instructions,
        _ if results => Voice::Tool,
        _ if all_begin_with(&blocks, &INJECTED) => Voice::Injected,
        _ => Voice::Person,
    };
    Entry { prompt: own_words(&blocks, &INJECTED), ..Entry::said(voice, blocks) }
}

fn streamed_result(line: &Value) -> Block {
    let value = line.get("value").or_else(|| line.get("content")).unwrap_or(&Value::Null);
    let streams = ["stdout", "stderr"].map(|key| str_at(value, key));
    let output = match streams {
        ["", ""] => text_of(value),
        streams => streams.into_iter().filter(|stream| !stream.is_empty()).collect::<Vec<_>>().join("\n"),
    };
    let failed = value.get("exitCode").and_then(Value::as_i64).is_some_and(|code| code != 0)
        || line.get("isError").and_then(Value::as_bool).unwrap_or_default();
    let content = text(&output).into_iter().collect();
    Block::Result { id: str_at(line, "toolCallId").to_owned(), content, is_error: failed }
}
