//! Amp: a thread as one document, as its program kept it until threads went to its server.

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{anthropic, text};
use crate::codec::{Shape, ThreadFacts};
use crate::conversation::Block;
use crate::json::{first_text, labelled, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Tokens, Voice, stem};

/// Amp's `threads/T-<uuid>.json`.
///
/// Guarantees: messages stand in file order. A message is recognised by its number, since Amp writes it again while it is at work on
/// it; one that is still being written waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amp;

/// States of a message, or of a run of a tool, that something may still come of.
const AT_WORK: [&str; 4] = ["streaming", "running", "in-progress", "queued"];

impl Format for Amp {
    fn name(self) -> &'static str {
        "amp"
    }

    fn knows(self, path: &Path, _line: &Value) -> bool {
        is_named(path)
    }

    fn detect(self, path: &Path, head: &[u8]) -> bool {
        let head = String::from_utf8_lossy(head);
        is_named(path) && ["\"messages\"", "\"created\"", "\"id\""].iter().all(|key| head.contains(key))
    }

    fn may_be_session(self, path: &Path) -> bool {
        is_named(path)
    }

    fn shape(self, _path: &Path, _head: &[u8]) -> Shape {
        Shape::Document(&["messages"])
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let role = word_at(line, "role")?;
        let blocks = blocks(line.get("content").unwrap_or(&Value::Null));
        let is_only = |of_kind: fn(&Block) -> bool| !blocks.is_empty() && blocks.iter().all(of_kind);
        let voice = match role {
            "user" if is_only(|block| matches!(block, Block::Result { .. })) => Voice::Tool,
            "user" => Voice::Person,
            "assistant" if has_summary(line) => Voice::Summary,
            "assistant" => Voice::Model,
            "system" => Voice::Instructions,
            _ => Voice::Nobody,
        };
        let usage = line.get("usage").unwrap_or(&Value::Null);
        let state = line.get("state").unwrap_or(&Value::Null);
        let says = ThreadFacts { model: word_at(usage, "model").map(str::to_owned), ..ThreadFacts::default() };
        let number = line.get("messageId").filter(|id| id.is_u64() || id.is_string()).map(text_of);
        let note = if blocks.is_empty() { labelled("message", role, NOTE_CHARS) } else { String::new() };
        Some(Entry {
            note,
            at: line.get("meta").and_then(|meta| time_at(meta, "sentAt")).or_else(|| time_at(usage, "timestamp")),
            tokens: Tokens::of(tokens(usage)),
            key: number.as_ref().map(|number| format!("message {number}")),
            id: number,
            is_open: AT_WORK.contains(&str_at(state, "type")) || runs(line),
            says,
            ..Entry::said(voice, blocks)
        })
    }

    fn frame(self, frame: &Value) -> ThreadFacts {
        let initial = frame.get("env").and_then(|env| env.get("initial")).unwrap_or(&Value::Null);
        let tree = initial.get("trees").and_then(|trees| trees.get(0)).unwrap_or(&Value::Null);
        let repository = tree.get("repository").unwrap_or(&Value::Null);
        let platform = initial.get("platform").unwrap_or(&Value::Null);
        let word = |value: &Value, key: &str| word_at(value, key).map(str::to_owned);
        ThreadFacts {
            session_id: word(frame, "id"),
            title: word(frame, "title"),
            cwd: word_at(tree, "uri").and_then(local_path),
            git_sha: word(repository, "sha"),
            git_branch: word_at(repository, "ref").map(|name| name.trim_start_matches("refs/heads/").to_owned()),
            git_origin: word(repository, "url"),
            cli_version: word(platform, "clientVersion"),
            source: word(platform, "client"),
            created_at: time_at(frame, "created"),
            ..ThreadFacts::default()
        }
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        facts.session_id = facts.session_id.take().or_else(|| stem(path));
    }
}

fn is_named(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("T-") && name.ends_with(".json")
}

/// The path that a `file:` address names; nothing where it holds what is escaped and can't be read.
fn local_path(uri: &str) -> Option<PathBuf> {
    let path = uri.strip_prefix("file://")?;
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0')).map(PathBuf::from)
}

fn parts(line: &Value) -> &[Value] {
    line.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether the result of a call is not all there yet.
fn runs(line: &Value) -> bool {
    let status = |part: &Value| part.get("run").map_or(String::new(), |run| str_at(run, "status").to_owned());
    parts(line).iter().any(|part| AT_WORK.contains(&status(part).as_str()))
}

fn has_summary(line: &Value) -> bool {
    parts(line).first().is_some_and(|part| str_at(part, "type") == "summary")
}

fn blocks(content: &Value) -> Vec<Block> {
    let Value::Array(parts) = content else { return anthropic(content) };
    let part = |part: &Value| match str_at(part, "type") {
        "tool_result" => vec![result(part)],
        "summary" => {
            let summary = part.get("summary").unwrap_or(&Value::Null);
            let said =
                if summary.is_object() { str_at(summary, "summary") } else { summary.as_str().unwrap_or_default() };
            text(said).into_iter().collect()
        }
        _ => anthropic(part),
    };
    parts.iter().flat_map(part).collect()
}

/// What a call gave back: how it went, and the result or the error.
fn result(part: &Value) -> Block {
    let run = part.get("run").unwrap_or(&Value::Null);
    let status = str_at(run, "status");
    let said = ["result", "error", "reason"].iter().find_map(|key| run.get(key)).unwrap_or(&Value::Null);
    let content = match said {
        Value::Array(_) => anthropic(said),
        Value::Object(_) => {
            let plain = first_text(said, &["output", "content", "message"]);
            text(&if plain.is_empty() { text_of(said) } else { plain.to_owned() }).into_iter().collect()
        }
        said => text(&text_of(said)).into_iter().collect(),
    };
    let is_error = matches!(status, "error" | "cancelled" | "rejected-by-user");
    let id = first_text(part, &["toolUseID", "tool_use_id"]).to_owned();
    Block::Result { id, content, is_error }
}

/// What came from the cache and went there is counted apart from the other input.
fn tokens(usage: &Value) -> Usage {
    let cached = u64_at(usage, "cacheReadInputTokens");
    let fresh = u64_at(usage, "inputTokens").saturating_add(u64_at(usage, "cacheCreationInputTokens"));
    Usage { input: fresh.saturating_add(cached), cached, output: u64_at(usage, "outputTokens"), reasoning: 0 }
}
