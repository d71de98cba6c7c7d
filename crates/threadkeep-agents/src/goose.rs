//! goose: a file of lines per session (to 1.9), rows of a database (since 1.10), or the document that `goose session export` writes and
//! `goose session import` takes.

mod line;
mod view;
mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep::{Kind, Role, Timestamp, Usage, View, ViewCodec};

use self::line::{Class, Line};
use crate::codec::{
    Codec, KnownRecord, Layout, PREVIEW_CHARS, Place, Query, Record, Shape, Skip, SourceReader, TITLE_CHARS, Tables,
    ThreadFacts,
};
use crate::conversation::Message;
use crate::json::{one_line, read};
use crate::segments::{Segment, Segments};
use crate::writer::{Invocation, Session, Writer};

/// The format tag and short name.
const NAME: &str = "goose";
const CONVERSATION: &[&str] = &["conversation"];
/// What the agent sets behind a session's place in its database.
const DATABASE: &str = "sessions.db";

/// The codec of goose's sessions, from the first lines of 2024 to its database.
///
/// Guarantees: messages stand in the order in which they were stored, whatever their times say; a message of the database is
/// recognised by its id, since compaction marks it in place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Goose;

impl ViewCodec for Goose {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, kind: &Kind, content: &[u8]) -> View {
        view::view(kind, content)
    }
}

impl Codec for Goose {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_goose = || path.components().any(|part| part.as_os_str().to_string_lossy().contains(NAME));
        name.ends_with(".jsonl") || ((name == DATABASE || name.ends_with(".json")) && in_goose())
    }

    fn shape(&self, path: &Path, _head: &[u8]) -> Shape {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("db") => Shape::Database,
            Some("json") => Shape::Document(CONVERSATION),
            _ => Shape::Lines,
        }
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if self.shape(path, head) != Shape::Lines {
            let text = String::from_utf8_lossy(head);
            return ["working_dir", "conversation", "id"].iter().all(|key| text.contains(&format!("\"{key}\"")));
        }
        for segment in Segments::new(head).map_while(Result::ok) {
            match segment {
                Segment::Record { bytes, .. } => {
                    let Ok((line, _)) = read::<Line>(&bytes) else { continue };
                    return line.is_header() || line.is_message();
                }
                // A first line longer than what is shown here: only its beginning can be looked at.
                Segment::Tail { bytes, .. } => return bytes.starts_with(b"{\"working_dir\""),
                Segment::Opaque { .. } => {}
            }
        }
        false
    }

    fn layout(&self, tables: &Tables) -> Option<Layout> {
        let columns = ["id", "session_id", "role", "content_json", "created_timestamp"];
        let is_ours = tables.has("sessions", &["id", "working_dir", "created_at", "updated_at"])
            && tables.has("messages", &columns);
        is_ours.then(|| layout(tables))
    }

    fn message(&self, kind: &Kind, content: &[u8]) -> Option<Message> {
        view::message(kind, content)
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::GooseWriter::writer(session)))
    }

    fn taking_in(&self, file: &Path) -> Option<Invocation> {
        let arguments = vec!["session".to_owned(), "import".to_owned(), file.to_string_lossy().into_owned()];
        Some(Invocation { program: NAME, arguments })
    }

    fn resuming(&self, session: &Session) -> Option<Invocation> {
        // In one word: a name that begins with `-` is none of the options.
        let name = format!("--name={}", write::name(session));
        let arguments = ["session", "--resume", &name].map(str::to_owned).to_vec();
        Some(Invocation { program: NAME, arguments })
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let mut reader: Reader = state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = path.to_string_lossy();
        // Compaction changes the messages of a document in place; lines stay as they are.
        reader.is_document = path.extension().is_some_and(|ending| ending == "json");
        reader.id = name.rsplit_once(".db#").map_or(stem, |(_, id)| id.to_owned());
        Box::new(reader)
    }
}

/// What a session says of itself, in a fixed order.
const SESSION: [&str; 17] = [
    "id",
    "name",
    "description",
    "session_type",
    "working_dir",
    "created_at",
    "updated_at",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "accumulated_input_tokens",
    "accumulated_output_tokens",
    "provider_name",
    "model_config_json",
    "parent_session_id",
    "archived_at",
    "user_set_name",
];

fn layout(tables: &Tables) -> Layout {
    let there = |column: &&&str| tables.has("sessions", &[**column]);
    let columns = SESSION.iter().filter(there).map(|column| match column.strip_suffix("_json") {
        Some(name) => format!("{column} AS \"json:{name}\""),
        None => (*column).to_owned(),
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    let or_null = |column: &'static str| if tables.has("messages", &[column]) { column } else { "NULL" };
    let sessions = format!(
        "SELECT s.id, CAST(strftime('%s', s.updated_at) AS INTEGER) * 1000, s.updated_at, {columns}, \
         (SELECT count(*) FROM messages m WHERE m.session_id = s.id), (SELECT max(m.id) FROM messages m WHERE m.session_id = s.id) \
         FROM sessions s ORDER BY s.created_at, s.id"
    );
    // A row's own number is left out: compaction writes all rows of a session anew.
    let messages = format!(
        "SELECT {} AS message_id, role, created_timestamp AS created, content_json AS \"json:content\", {} AS \"json:metadata\" \
         FROM messages WHERE session_id = ?1 ORDER BY id",
        or_null("message_id"),
        or_null("metadata_json")
    );
    let session = format!("SELECT {columns} FROM sessions WHERE id = ?1");
    let query = |name, sql| Query { name, sql, within: Vec::new() };
    Layout { sessions, shared: Vec::new(), records: vec![query("sessions", session), query("messages", messages)] }
}

/// What was gathered so far; its JSON is what a later run begins with.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Reader {
    id: String,
    facts: ThreadFacts,
    #[serde(skip)]
    placed: u32,
    #[serde(skip)]
    key: Option<String>,
    #[serde(skip)]
    is_document: bool,
}

impl SourceReader for Reader {
    fn frame(&mut self, bytes: &[u8]) {
        if let Ok((line, _)) = read::<Line>(bytes) {
            self.note_session(&line);
        }
    }

    fn known(&mut self, _record: &KnownRecord<'_>) {
        self.placed = self.placed.saturating_add(1);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (line, _) = read::<Line>(bytes).map_err(|error| Skip { reason: format!("unreadable record: {error}") })?;
        if line.is_header() {
            self.note_session(&line);
            let (place, kind, note) = (Place::Beside, Kind::Event, Vec::new());
            return Ok(Record { place, kind, role: None, created_at: None, source_id: None, starts_turn: false, note });
        }
        let class = line.class().ok_or_else(|| Skip { reason: "a message without a role".to_owned() })?;
        let created_at = line.created().map(Timestamp);
        self.note_time(created_at);
        if class == Class::Prompt && self.facts.preview.is_none() {
            self.facts.preview = line.prompt().and_then(|text| shown(text, PREVIEW_CHARS));
        }
        let place = self.placed.checked_sub(1).map_or(Place::Root, Place::After);
        self.placed = self.placed.saturating_add(1);
        let id = line.message_id.as_deref().or_else(|| line.id.as_deref().filter(|_| self.is_document));
        self.key = id.map(|id| format!("message {id}"));
        let (kind, role) = class.kind();
        let source_id = line.message_id.0.or(line.id.0);
        Ok(Record { place, kind, role, created_at, source_id, starts_turn: class == Class::Prompt, note: Vec::new() })
    }

    fn facts(&self) -> ThreadFacts {
        let session_id = self.facts.session_id.clone().or_else(|| Some(self.id.clone()));
        ThreadFacts { session_id, ..self.facts.clone() }
    }

    fn state(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn key(&self) -> Option<Vec<u8>> {
        self.key.clone().map(String::into_bytes)
    }
}

impl Reader {
    fn note_session(&mut self, line: &Line) {
        let facts = &mut self.facts;
        if let Some(id) = line.id.as_deref() {
            facts.session_id = Some(id.to_owned());
        }
        let title = [line.name.as_deref(), line.description.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|title| shown(title, TITLE_CHARS));
        facts.title = title.or(facts.title.take());
        if let Some(cwd) = line.working_dir.as_deref() {
            facts.cwd = Some(PathBuf::from(cwd));
        }
        facts.provider.clone_from(&line.provider_name.0);
        facts.model = line.model_config.0.as_ref().and_then(|config| config.model_name.0.clone());
        facts.parent_session.clone_from(&line.parent_session_id.0);
        facts.source =
            facts.parent_session.as_ref().map(|_| "subagent".to_owned()).or_else(|| line.session_type.0.clone());
        facts.archived = line.archived_at.as_deref().map(|_| true);
        let (input, output) = line.tokens();
        if input > 0 || output > 0 {
            facts.usage = Some(Usage { input, output, ..Usage::default() });
        }
        self.note_time(line.created_at.as_deref().and_then(line::time));
        self.note_time(line.updated_at.as_deref().and_then(line::time));
    }

    fn note_time(&mut self, at: Option<Timestamp>) {
        if let Some(at) = at {
            let facts = &mut self.facts;
            facts.created_at = Some(facts.created_at.map_or(at, |first| first.min(at)));
            facts.updated_at = Some(facts.updated_at.map_or(at, |last| last.max(at)));
        }
    }
}

impl Class {
    /// What a record of this class is, and who speaks in it.
    fn kind(self) -> (Kind, Option<Role>) {
        match self {
            Self::Prompt => (Kind::Message, Some(Role::User)),
            Self::Answer => (Kind::Message, Some(Role::Assistant)),
            Self::Calls => (Kind::ToolCall, Some(Role::Assistant)),
            Self::Results => (Kind::ToolResult, Some(Role::Tool)),
            Self::Context => (Kind::Context, Some(Role::System)),
            Self::Event => (Kind::Event, None),
        }
    }
}

fn shown(text: &str, max: usize) -> Option<String> {
    Some(one_line(text, max)).filter(|line| !line.is_empty())
}
