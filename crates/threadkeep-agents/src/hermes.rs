//! Hermes: rows of a database, and the documents that its program writes of a session.

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::{Timestamp, Usage};

use crate::blocks::{anthropic, call, text};
use crate::codec::{Layout, Query, Shape, Tables, ThreadFacts};
use crate::conversation::Block;
use crate::json::{first_text, labelled, str_at, text_of, u64_at, word_at};
use crate::lines::{Entry, Format, Link, NOTE_CHARS, Voice, stem};
use crate::rows;
use crate::tree::{Parent, key};

/// Hermes' `state.db`, of every schema, and its sessions as JSON.
///
/// Guarantees: messages stand in the order in which they were stored. A message is recognised by its number, since compaction marks it in
/// place; what was taken back is a branch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hermes;

const NAME: &str = "hermes";
const DATABASE: &str = "state.db";
/// What stands before content that is no plain text.
const STRUCTURED: &str = "\0json:";
/// What a summary of what was said before begins with, in versions that do not mark it.
const SUMMARIES: [&str; 2] = ["[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:"];

impl Format for Hermes {
    fn name(self) -> &'static str {
        NAME
    }

    fn knows(self, _path: &Path, line: &Value) -> bool {
        matches!(str_at(line, "table"), "sessions" | "messages")
    }

    fn detect(self, path: &Path, head: &[u8]) -> bool {
        let head = String::from_utf8_lossy(head);
        let has = |keys: &[&str]| keys.iter().all(|key| head.contains(&format!("\"{key}\"")));
        // Instructions and tools may stand before the messages, which are out of sight then.
        let is_logged =
            has(&["session_id", "session_start"]) && (has(&["messages"]) || has(&["base_url", "last_updated"]));
        let is_exported = has(&["id", "source", "started_at", "messages", "message_count"]);
        path.extension().is_some_and(|ending| ending == "json") && (is_logged || is_exported)
    }

    fn may_be_session(self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let at_home = || path.iter().any(|part| part.to_string_lossy().trim_start_matches('.') == NAME);
        (name == DATABASE || name.ends_with(".json")) && at_home()
    }

    fn shape(self, path: &Path, _head: &[u8]) -> Shape {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("db") => Shape::Database,
            _ => Shape::Document(&["messages"]),
        }
    }

    fn stands_in_for(self, path: &Path) -> Option<PathBuf> {
        // What the program logs of each session beside its database.
        let name = path.file_name()?.to_str()?;
        let folder = path.parent().filter(|folder| folder.ends_with("sessions") && name.starts_with("session_"))?;
        let id = name.strip_prefix("session_")?.strip_suffix(".json")?;
        (self.may_be_session(path)).then(|| folder.with_file_name(format!("{DATABASE}#{id}")))
    }

    fn layout(self, tables: &Tables) -> Option<Layout> {
        let is_ours = tables.has("sessions", &["id", "source", "started_at", "ended_at", "end_reason"])
            && tables.has("messages", &["id", "session_id", "role", "content", "tool_calls", "timestamp"]);
        is_ours.then(|| layout(tables))
    }

    fn read(self, line: &Value) -> Option<Entry> {
        if str_at(line, "table") == "sessions" {
            let title = first_text(line, &["title", "id"]);
            let note = labelled("session", title, NOTE_CHARS);
            return Some(Entry { is_beside: true, says: session(line), ..Entry::event(note) });
        }
        let role = word_at(line, "role")?;
        let content = content(line.get("content").unwrap_or(&Value::Null));
        let entry = match role {
            _ if is_summary(line, &content) => Entry::said(Voice::Summary, content),
            "user" if str_at(line, "display_kind") == "hidden" => Entry::said(Voice::Injected, content),
            "user" => Entry::said(Voice::Person, content),
            "assistant" => Entry::said(Voice::Model, answer(line, content)),
            "tool" => {
                let id = str_at(line, "tool_call_id").to_owned();
                Entry::said(Voice::Tool, vec![Block::Result { id, content, is_error: false }])
            }
            "system" => Entry::said(Voice::Instructions, content),
            other => Entry { blocks: content, ..Entry::event(labelled("message", other, NOTE_CHARS)) },
        };
        let is_row = !str_at(line, "table").is_empty();
        let id = line.get("id").filter(|id| id.is_u64()).map(text_of);
        let parent = match line.get("parent") {
            Some(parent) if parent.is_u64() => Link(Parent::To(key(&text_of(parent)))),
            Some(Value::Null) if is_row => Link(Parent::Root),
            _ => Link::default(),
        };
        Some(Entry {
            at: seconds(line, "timestamp"),
            key: id.as_ref().filter(|_| is_row).map(|id| format!("message {id}")),
            is_taken_back: is_row && !is_live(line),
            id,
            parent,
            ..entry
        })
    }

    fn frame(self, frame: &Value) -> ThreadFacts {
        session(frame)
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let name = path.to_string_lossy();
        let id = name.rsplit_once(".db#").map(|(_, id)| id.to_owned());
        facts.session_id = id.or(facts.session_id.take()).or_else(|| stem(path));
    }
}

/// What a session says of itself, with what is put in the place of columns that an old schema lacks.
const SESSION: [(&str, &str); 24] = [
    ("id", "NULL"),
    ("source", "NULL"),
    ("model", "NULL"),
    ("model_config", "NULL"),
    ("parent_session_id", "NULL"),
    ("started_at", "NULL"),
    ("ended_at", "NULL"),
    ("end_reason", "NULL"),
    ("message_count", "NULL"),
    ("input_tokens", "0"),
    ("output_tokens", "0"),
    ("cache_read_tokens", "0"),
    ("cache_write_tokens", "0"),
    ("reasoning_tokens", "0"),
    ("cwd", "NULL"),
    ("git_branch", "NULL"),
    ("billing_provider", "NULL"),
    ("title", "NULL"),
    ("last_activity_at", "NULL"),
    ("rewind_count", "0"),
    ("archived", "0"),
    ("profile_name", "NULL"),
    ("display_name", "NULL"),
    ("chat_type", "NULL"),
];

/// A message's columns.
const MESSAGE: [(&str, &str); 19] = [
    ("id", "NULL"),
    ("role", "NULL"),
    ("content", "NULL"),
    ("tool_call_id", "NULL"),
    ("tool_calls", "NULL"),
    ("tool_name", "NULL"),
    ("timestamp", "NULL"),
    ("token_count", "NULL"),
    ("finish_reason", "NULL"),
    ("reasoning", "NULL"),
    ("reasoning_content", "NULL"),
    ("reasoning_details", "NULL"),
    ("codex_reasoning_items", "NULL"),
    ("platform_message_id", "NULL"),
    ("_compressed_summary", "0"),
    ("active", "1"),
    ("compacted", "0"),
    ("display_kind", "NULL"),
    ("display_metadata", "NULL"),
];

fn layout(tables: &Tables) -> Layout {
    let of_session = |column: &str| tables.has("sessions", &[column]);
    let of_message = |column: &str| tables.has("messages", &[column]);
    let session = rows::columns(&of_session, &SESSION);
    let message = rows::columns(&of_message, &MESSAGE);
    let [active, compacted] =
        [("active", "1"), ("compacted", "0")].map(|(column, fallback)| match of_message(column) {
            true => column,
            false => fallback,
        });
    let activity = if of_session("last_activity_at") { "last_activity_at" } else { "NULL" };
    // How many messages are live, and which is the last of them, tell of a rewind; that of all tells of what was added.
    let sessions = format!(
        "SELECT s.id, CAST(max(coalesce({activity}, 0), coalesce(ended_at, 0), coalesce((SELECT max(m.timestamp) FROM messages m \
         WHERE m.session_id = s.id), started_at, 0)) * 1000 AS INTEGER), {session}, \
         (SELECT count(*) FROM messages m WHERE m.session_id = s.id), \
         (SELECT max(m.id) FROM messages m WHERE m.session_id = s.id), \
         (SELECT sum({active}) FROM messages m WHERE m.session_id = s.id) \
         FROM sessions s ORDER BY s.started_at, s.id"
    );
    let of_session = format!(
        "SELECT {session}, (SELECT p.end_reason FROM sessions p WHERE p.id = s.parent_session_id) AS parent_end_reason \
         FROM sessions s WHERE id = ?1"
    );
    // Each message stands behind the last one before it that was not taken back; one that was taken back, behind the one before it.
    let messages = format!(
        "SELECT {message}, CASE WHEN {active} = 1 OR {compacted} = 1 THEN \
         max(CASE WHEN {active} = 1 OR {compacted} = 1 THEN id END) OVER before ELSE max(id) OVER before END AS parent \
         FROM messages WHERE session_id = ?1 \
         WINDOW before AS (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) ORDER BY id"
    );
    let query = |name, sql| Query { name, sql, within: Vec::new() };
    Layout { sessions, shared: Vec::new(), records: vec![query("sessions", of_session), query("messages", messages)] }
}

/// What a row of the database, or the document, says of its session.
fn session(said: &Value) -> ThreadFacts {
    let word = |keys: &[&str]| keys.iter().find_map(|key| word_at(said, key)).map(str::to_owned);
    let config = inner(said.get("model_config"));
    let from = |key: &str| config.as_ref().and_then(|config| word_at(config, key)).map(str::to_owned);
    let parent = word(&["parent_session_id"]);
    let has_gone_on = matches!(str_at(said, "parent_end_reason"), "compression" | "branched");
    let (forked_from, parent_session) = match (from("_branched_from"), parent) {
        (Some(branched), _) => (Some(branched), None),
        // A session that was compacted goes on in another one.
        (None, Some(parent)) if has_gone_on && from("_delegate_from").is_none() => (Some(parent), None),
        (None, parent) => (None, parent),
    };
    let source = parent_session.as_ref().map(|_| "subagent".to_owned()).or_else(|| word(&["source", "platform"]));
    let folder = config.as_ref().and_then(|config| word_at(config, "cwd"));
    ThreadFacts {
        session_id: word(&["session_id", "id"]),
        title: word(&["title"]),
        cwd: word_at(said, "cwd").or(folder).map(PathBuf::from),
        model: word(&["model"]),
        provider: word(&["billing_provider"]),
        git_branch: word(&["git_branch"]),
        forked_from,
        parent_session,
        source,
        archived: (u64_at(said, "archived") == 1).then_some(true),
        usage: Some(tokens(said)).filter(|usage| *usage != Usage::default()),
        created_at: seconds(said, "started_at").or_else(|| Timestamp::parse(str_at(said, "session_start"))),
        updated_at: ["last_activity_at", "ended_at"]
            .iter()
            .find_map(|key| seconds(said, key))
            .or_else(|| Timestamp::parse(str_at(said, "last_updated"))),
        ..ThreadFacts::default()
    }
}

/// What came from the cache and went there is counted apart from the other input.
fn tokens(said: &Value) -> Usage {
    let cached = u64_at(said, "cache_read_tokens");
    let fresh = u64_at(said, "input_tokens").saturating_add(u64_at(said, "cache_write_tokens"));
    let [output, reasoning] = ["output_tokens", "reasoning_tokens"].map(|key| u64_at(said, key));
    Usage { input: fresh.saturating_add(cached), cached, output, reasoning }
}

/// A message's content: a text, or a list behind a mark, or, in documents, a list.
fn content(said: &Value) -> Vec<Block> {
    match said.as_str().and_then(|text| text.strip_prefix(STRUCTURED)) {
        Some(json) => match serde_json::from_str::<Value>(json) {
            Ok(parts) => anthropic(&parts),
            Err(_) => text(json).into_iter().collect(),
        },
        None => anthropic(said),
    }
}

fn answer(line: &Value, said: Vec<Block>) -> Vec<Block> {
    let thoughts = first_text(line, &["reasoning_content", "reasoning"]);
    let mut blocks = Vec::new();
    if !thoughts.is_empty() {
        blocks.push(Block::Reasoning { text: thoughts.to_owned() });
    }
    blocks.extend(said);
    let calls = match line.get("tool_calls") {
        Some(Value::String(json)) => serde_json::from_str(json).unwrap_or_default(),
        Some(calls) => calls.clone(),
        None => Value::Null,
    };
    blocks.extend(calls.as_array().into_iter().flatten().map(asked));
    blocks
}

/// A call as `OpenAI`'s interface has it.
fn asked(asked: &Value) -> Block {
    let function = asked.get("function").unwrap_or(asked);
    call(first_text(asked, &["id", "call_id"]), str_at(function, "name"), function.get("arguments"))
}

fn is_summary(line: &Value, content: &[Block]) -> bool {
    let begins = |block: &Block| match block {
        Block::Text(text) => SUMMARIES.iter().any(|start| text.trim_start().starts_with(start)),
        _ => false,
    };
    let is_marked =
        line.get("_compressed_summary").is_some_and(|mark| mark.as_u64() == Some(1) || *mark == Value::Bool(true));
    is_marked
        || (matches!(str_at(line, "role"), "user" | "assistant" | "system") && content.first().is_some_and(begins))
}

/// Whether a message was not taken back; compaction takes nothing back.
fn is_live(line: &Value) -> bool {
    let is_set = |key: &str| line.get(key).is_some_and(|value| value.as_u64() == Some(1));
    is_set("active") || is_set("compacted") || line.get("active").is_none()
}

/// A time in seconds, with a fraction.
fn seconds(said: &Value, key: &str) -> Option<Timestamp> {
    /// The year 3000: what is beyond is damage.
    const LATEST: f64 = 32_503_680_000.0;
    let seconds = said.get(key)?.as_f64().filter(|seconds| *seconds > 0.0 && *seconds < LATEST)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is bounded above")]
    let millis = (seconds * 1000.0).round() as i64;
    Some(Timestamp(millis))
}

/// An object, or a text that is one.
fn inner(said: Option<&Value>) -> Option<Value> {
    match said? {
        Value::String(json) => serde_json::from_str(json).ok().filter(Value::is_object),
        value => Some(value.clone()).filter(Value::is_object),
    }
}
