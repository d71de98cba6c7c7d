//! Crush: a database in each project.

use std::path::Path;

use serde_json::Value;
use threadkeep::Timestamp;

use crate::blocks::call;
use crate::codec::{Layout, Query, Shape, Tables, ThreadFacts};
use crate::conversation::{Block, MediaData};
use crate::json::{first_text, labelled, since_epoch, str_at, text_of, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Voice};

/// Crush's `crush.db`.
///
/// Guarantees: messages stand in the order of their times, and those of one second as they were stored. A message is recognised by its
/// id, since it is written again and again while it is answered; one without an end waits. Sessions of sub-agents are threads of
/// their own. The tokens of a session are those of its last answer, and are not counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crush;

/// Where it stands in a project.
const FOLDER: &str = ".crush";
const DATABASE: &str = "crush.db";

impl Format for Crush {
    fn name(self) -> &'static str {
        "crush"
    }

    fn knows(self, _path: &Path, _line: &Value) -> bool {
        // There are no files of rows.
        false
    }

    fn may_be_session(self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == DATABASE)
    }

    fn shape(self, path: &Path, _head: &[u8]) -> Shape {
        if self.may_be_session(path) { Shape::Database } else { Shape::Lines }
    }

    fn layout(self, tables: &Tables) -> Option<Layout> {
        let is_ours = tables.has("sessions", &["id", "title", "prompt_tokens", "completion_tokens", "created_at"])
            && tables.has("messages", &["id", "session_id", "role", "parts", "model", "created_at", "updated_at"]);
        is_ours.then(|| layout(tables))
    }

    fn read(self, line: &Value) -> Option<Entry> {
        match str_at(line, "table") {
            "sessions" => Some(session(line)),
            "messages" => Some(message(line)),
            _ => None,
        }
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let folder = path.parent().filter(|folder| folder.ends_with(FOLDER));
        facts.cwd = folder.and_then(Path::parent).map(Path::to_owned);
    }
}

fn layout(tables: &Tables) -> Layout {
    let or_null = |table: &str, column: &'static str| {
        if tables.has(table, &[column]) { column.to_owned() } else { format!("NULL AS {column}") }
    };
    let summary = or_null("sessions", "summary_message_id");
    let parent = or_null("sessions", "parent_session_id");
    let session =
        format!("SELECT id, {parent}, title, cost, {summary}, created_at, updated_at FROM sessions WHERE id = ?1");
    let messages = format!(
        "SELECT id, role, model, {}, {}, created_at, updated_at, {}, CAST(parts AS TEXT) AS \"json:parts\" \
         FROM messages WHERE session_id = ?1 ORDER BY created_at, rowid",
        or_null("messages", "provider"),
        or_null("messages", "is_summary_message"),
        or_null("messages", "finished_at"),
    );
    // Times are of whole seconds, in which a message may grow.
    let sessions = format!(
        "SELECT id, updated_at * 1000, title, {parent}, {summary}, \
         (SELECT count(*) FROM messages m WHERE m.session_id = s.id), \
         (SELECT max(m.updated_at) FROM messages m WHERE m.session_id = s.id), \
         (SELECT sum(octet_length(m.parts)) FROM messages m WHERE m.session_id = s.id) \
         FROM sessions s ORDER BY created_at, id"
    );
    let query = |name, sql| Query { name, sql, within: Vec::new() };
    Layout { sessions, records: vec![query("sessions", session), query("messages", messages)], shared: Vec::new() }
}

fn time(row: &Value, column: &str) -> Option<Timestamp> {
    row.get(column).and_then(Value::as_i64).and_then(since_epoch)
}

fn session(row: &Value) -> Entry {
    let parent_session = word_at(row, "parent_session_id").map(str::to_owned);
    let says = ThreadFacts {
        session_id: word_at(row, "id").map(str::to_owned),
        title: word_at(row, "title").map(str::to_owned),
        source: parent_session.as_ref().map(|_| "subagent".to_owned()),
        parent_session,
        updated_at: time(row, "updated_at"),
        ..ThreadFacts::default()
    };
    let note = labelled("session", str_at(row, "title"), NOTE_CHARS);
    Entry { is_beside: true, at: time(row, "created_at"), says, ..Entry::event(note) }
}

fn message(row: &Value) -> Entry {
    let id = word_at(row, "id").map(str::to_owned);
    let parts = match row.get("parts") {
        Some(Value::Array(parts)) => parts.as_slice(),
        _ => &[],
    };
    let blocks: Vec<Block> = match row.get("parts") {
        // What is no JSON.
        Some(Value::String(text)) => vec![Block::Text(text.clone())],
        _ => parts.iter().filter_map(block).collect(),
    };
    let is_summary = row.get("is_summary_message").and_then(Value::as_i64).is_some_and(|is_summary| is_summary != 0);
    let voice = match str_at(row, "role") {
        "assistant" if is_summary => Voice::Summary,
        "assistant" => Voice::Model,
        "user" => person(parts),
        "tool" => Voice::Tool,
        "system" => Voice::Instructions,
        _ => Voice::Nobody,
    };
    let is_answer = matches!(voice, Voice::Model | Voice::Summary);
    let is_ended = parts.iter().any(|part| str_at(part, "type") == "finish")
        || row.get("finished_at").is_some_and(Value::is_number);
    let named = |column| word_at(row, column).filter(|_| is_answer).map(str::to_owned);
    let says = ThreadFacts { model: named("model"), provider: named("provider"), ..ThreadFacts::default() };
    Entry {
        voice,
        blocks,
        note: note(row, parts),
        key: id.as_ref().map(|id| format!("message {id}")),
        id,
        is_open: is_answer && !is_ended,
        at: time(row, "created_at"),
        says,
        ..Entry::default()
    }
}

/// Whose words a message in the person's place has: those of a shell's command are the person's to the program, and hidden ones
/// are the program's.
fn person(parts: &[Value]) -> Voice {
    let said = || parts.iter().filter(|part| str_at(part, "type") != "finish");
    let is_hidden = |part: &Value| part.get("data").and_then(|data| data.get("hidden")) == Some(&Value::Bool(true));
    if said().next().is_some() && said().all(|part| str_at(part, "type") == "shell_command") {
        Voice::Command
    } else if said().next().is_some() && said().all(is_hidden) {
        Voice::Injected
    } else {
        Voice::Person
    }
}

/// What is shown of a message that says nothing: how it ended.
fn note(row: &Value, parts: &[Value]) -> String {
    let end = parts.iter().rfind(|part| str_at(part, "type") == "finish").and_then(|part| part.get("data"));
    let end = end.unwrap_or(&Value::Null);
    let said = [str_at(end, "reason"), str_at(end, "message"), str_at(end, "details")].join(" ");
    labelled(str_at(row, "role"), said.trim(), NOTE_CHARS)
}

fn block(part: &Value) -> Option<Block> {
    let data = part.get("data").unwrap_or(&Value::Null);
    Some(match str_at(part, "type") {
        "text" => return crate::blocks::text(str_at(data, "text")),
        "reasoning" => Block::Reasoning { text: str_at(data, "thinking").to_owned() },
        "image_url" => Block::media_of_url(str_at(data, "url"), "image"),
        "binary" => binary(data),
        "tool_call" => call(str_at(data, "id"), str_at(data, "name"), data.get("input").map(arguments).as_ref()),
        "tool_result" => result(data),
        "shell_command" => Block::Text(format!("$ {}\n{}", str_at(data, "command"), str_at(data, "output"))),
        // It says how the message ended.
        "finish" => return None,
        _ => return crate::blocks::text(&text_of(data)),
    })
}

/// The arguments of a call, of which none are written as an empty text.
fn arguments(input: &Value) -> Value {
    if input == "" { Value::Null } else { input.clone() }
}

/// A file; its keys have no names of their own in its program, and so they stand there as the program has them.
fn binary(data: &Value) -> Block {
    let media_type = word_at(data, "MIMEType").unwrap_or("application/octet-stream").to_owned();
    let data = match str_at(data, "Data") {
        "" => MediaData::Absent,
        bytes => MediaData::Base64(bytes.to_owned()),
    };
    Block::Media { media_type, data }
}

fn result(data: &Value) -> Block {
    let mut content = vec![Block::Text(str_at(data, "content").to_owned())];
    if let (Some(media_type), bytes) = (word_at(data, "mime_type"), first_text(data, &["data"]))
        && !bytes.is_empty()
    {
        content.push(Block::Media { media_type: media_type.to_owned(), data: MediaData::Base64(bytes.to_owned()) });
    }
    let is_error = data.get("is_error").and_then(Value::as_bool).unwrap_or_default();
    Block::Result { id: str_at(data, "tool_call_id").to_owned(), content, is_error }
}
