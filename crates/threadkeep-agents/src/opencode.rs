//! opencode: a session as many small files, as rows of a database, or as the document that `opencode export` prints.

mod line;
mod view;
mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep::{Kind, Role, Timestamp, Usage, View, ViewCodec};

use self::line::{Class, Line};
use crate::codec::{
    Below, Codec, KnownRecord, Layout, PREVIEW_CHARS, Place, Query, Record, RecordNo, Shape, Skip, SourceReader,
    TITLE_CHARS, Tables, ThreadFacts,
};
use crate::conversation::Message;
use crate::json::{one_line, read};
use crate::writer::{Invocation, Session, Writer};

/// The format tag and short name.
const NAME: &str = "opencode";
const MESSAGES: &[&str] = &["messages"];

/// The codec of opencode's sessions: the tree of files (2025 to 1.1), the databases of 1.2 and later, and exports.
///
/// Guarantees: a message and its parts are one record; messages stand in the agent's order; what was taken back (`revert`) stays,
/// and what comes in its place begins a branch. A message is recognised by its id: its agent changes it in place.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenCode;

impl ViewCodec for OpenCode {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, kind: &Kind, content: &[u8]) -> View {
        view::view(kind, content)
    }

    fn awaits_result(&self, _content: &[u8]) -> bool {
        // A call and its result are one part of a message; one that has none was cut short.
        true
    }
}

impl Codec for OpenCode {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".db") {
            return name.starts_with("opencode");
        }
        if !name.ends_with(".json") {
            return false;
        }
        let folders: Vec<_> = path
            .parent()
            .into_iter()
            .flat_map(Path::components)
            .map(|part| part.as_os_str().to_string_lossy())
            .collect();
        let in_storage = folders.iter().any(|folder| folder.starts_with("storage"));
        is_in_tree(path) || (!in_storage && name != "auth.json" && folders.iter().any(|folder| folder.contains(NAME)))
    }

    fn shape(&self, path: &Path, _head: &[u8]) -> Shape {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("db") => Shape::Database,
            _ if is_in_tree(path) => Shape::Tree,
            _ => Shape::Document(MESSAGES),
        }
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        let begins = text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
        if is_in_tree(path) {
            return begins && has("id") && has("time") && (has("projectID") || has("directory") || has("title"));
        }
        path.extension().is_some_and(|ending| ending == "json")
            && begins
            && has("info")
            && has("messages")
            && has("directory")
            && (has("projectID") || has("slug"))
    }

    fn below(&self, session: &Path, file: &Path) -> Vec<Below> {
        let Some((root, id)) = place(session) else { return Vec::new() };
        let is_early = session.parent().is_some_and(|folder| folder.ends_with("session/info"));
        let root = if is_early { root.join("session") } else { root };
        if file == session {
            let bare = id.strip_prefix("ses_").unwrap_or(&id);
            let mut below = vec![
                Below::Records(root.join("todo").join(format!("{id}.json"))),
                Below::Records(root.join("session_diff").join(format!("{id}.json"))),
                Below::Records(root.join("message").join(&id)),
            ];
            below.extend((bare != id).then(|| Below::Records(root.join("message").join(bare))));
            return below;
        }
        let Some(message) = file.file_stem().filter(|_| file.starts_with(root.join("message"))) else {
            return Vec::new();
        };
        let parts = root.join("part");
        vec![Below::Within("parts", if is_early { parts.join(&id).join(message) } else { parts.join(message) })]
    }

    fn layout(&self, tables: &Tables) -> Option<Layout> {
        let v1 = tables.has("session", &["id", "project_id", "directory", "title", "time_created", "time_updated"])
            && tables.has("message", &["id", "session_id", "time_created", "data"])
            && tables.has("part", &["id", "message_id", "session_id", "data"]);
        let v2 = tables.has("session_message", &["id", "session_id", "type", "seq", "time_created", "data"]);
        let v2_sessions = tables.has("session_v2", &["id", "directory", "title", "time_created", "time_updated"]);
        (v1 || (v2 && v2_sessions)).then(|| layout(tables, v1, v2, v2_sessions))
    }

    fn message(&self, kind: &Kind, content: &[u8]) -> Option<Message> {
        view::message(kind, content)
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::OpenCodeWriter::writer(session)))
    }

    fn taking_in(&self, file: &Path) -> Option<Invocation> {
        let arguments = vec!["import".to_owned(), file.to_string_lossy().into_owned()];
        Some(Invocation { program: NAME, arguments })
    }

    fn environment(&self, home: &Path) -> Result<(&'static str, PathBuf), &'static str> {
        let data = home.parent().filter(|_| home.file_name().is_some_and(|name| name == NAME));
        Ok(("XDG_DATA_HOME", data.ok_or("its home is a folder named `opencode`")?.to_owned()))
    }

    fn session_id(&self, session: &Session) -> String {
        write::session_id(session)
    }

    fn resuming(&self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["--session".to_owned(), write::session_id(session)];
        Some(Invocation { program: NAME, arguments })
    }

    fn reader(&self, path: &Path, _state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = path.to_string_lossy();
        let id = name.rsplit_once(".db#").map_or(stem, |(_, id)| id.to_owned());
        Box::new(Reader { id, ..Reader::default() })
    }
}

/// Whether a file is a session's own in the tree: `…/session/<project>/<session>.json`.
fn is_in_tree(path: &Path) -> bool {
    let named = |folder: Option<&Path>| folder.and_then(Path::file_name).is_some_and(|name| name == "session");
    path.extension().is_some_and(|ending| ending == "json") && named(path.parent().and_then(Path::parent))
}

/// The folder of the tree, and the session's id by its file.
fn place(session: &Path) -> Option<(PathBuf, String)> {
    let root = session.ancestors().nth(3)?;
    Some((root.to_owned(), session.file_stem()?.to_str()?.to_owned()))
}

/// The columns of a session that say something, in a fixed order.
const SESSION: [&str; 18] = [
    "id",
    "project_id",
    "parent_id",
    "slug",
    "directory",
    "title",
    "version",
    "share_url",
    "agent",
    "model",
    "revert",
    "permission",
    "cost",
    "tokens_input",
    "tokens_output",
    "time_created",
    "time_updated",
    "time_archived",
];
/// Those of them that hold JSON.
const JSON: [&str; 3] = ["model", "revert", "permission"];

/// The statements for the tables that are there.
fn layout(tables: &Tables, v1: bool, v2: bool, v2_sessions: bool) -> Layout {
    let mut lists = Vec::new();
    let mut records = Vec::new();
    for (table, is_there) in [("session", v1), ("session_v2", v2_sessions)] {
        if !is_there {
            continue;
        }
        let there = |column: &&&str| tables.has(table, &[**column]);
        let columns = SESSION.iter().filter(there).map(|column| match JSON.contains(column) {
            true => format!("{column} AS \"json:{column}\""),
            false => (*column).to_owned(),
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT {columns} FROM {table} WHERE id = ?1");
        records.push(Query { name: table, sql, within: Vec::new() });
        let or_null = |column: &'static str| if tables.has(table, &[column]) { column } else { "NULL" };
        let marks =
            [or_null("revert"), or_null("time_archived")].map(|column| format!("s.{column}").replace("s.NULL", "NULL"));
        let mut list = format!("SELECT s.id, s.time_updated, s.title, {}, {}", marks[0], marks[1]);
        let counted = [("message", v1), ("part", v1), ("session_message", v2)];
        for (table, is_there) in counted {
            if is_there {
                let updated = if tables.has(table, &["time_updated"]) { "max(t.time_updated)" } else { "NULL" };
                list.push_str(&format!(
                    ", (SELECT count(*) FROM {table} t WHERE t.session_id = s.id), (SELECT {updated} FROM {table} t WHERE t.session_id = s.id)"
                ));
            } else {
                list.push_str(", NULL, NULL");
            }
        }
        lists.push(format!("{list}, s.time_created FROM {table} s"));
    }
    if v1 {
        let part = "SELECT id, data AS \"json:data\" FROM part WHERE message_id = ?1 ORDER BY id".to_owned();
        // What the newer tables have taken over stands there.
        let old = if v2 { " AND id NOT IN (SELECT n.id FROM session_message n WHERE n.session_id = ?1)" } else { "" };
        records.push(Query {
            name: "message",
            sql: format!(
                "SELECT id, session_id, time_created, data AS \"json:data\" FROM message WHERE session_id = ?1{old} ORDER BY time_created, id"
            ),
            within: vec![Query { name: "parts", sql: part, within: Vec::new() }],
        });
    }
    if v2 {
        records.push(Query {
            name: "session_message",
            sql: "SELECT id, session_id, type, seq, time_created, data AS \"json:data\" FROM session_message WHERE session_id = ?1 ORDER BY seq".to_owned(),
            within: Vec::new(),
        });
    }
    if tables.has("todo", &["session_id", "content", "status", "position"]) {
        let sql = "SELECT position, content, status FROM todo WHERE session_id = ?1 ORDER BY position".to_owned();
        records.push(Query { name: "todo", sql, within: Vec::new() });
    }
    // The last column puts them in order and tells nothing else.
    let sessions = format!("SELECT * FROM ({}) ORDER BY time_created, id", lists.join(" UNION ALL "));
    Layout { sessions, records, shared: Vec::new() }
}

/// What was gathered so far.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Reader {
    id: String,
    facts: ThreadFacts,
    /// Where the agent has gone back to.
    revert: Option<String>,
    /// The last record before it, once it was met.
    head: Option<RecordNo>,
    /// The key of the record that was placed last.
    key: Option<String>,
    placed: u32,
    /// The last record, if the agent is still at work on it.
    open: Option<RecordNo>,
}

impl SourceReader for Reader {
    fn frame(&mut self, bytes: &[u8]) {
        if let Ok((line, _)) = read::<Line>(bytes) {
            self.note_session(line.inner());
        }
    }

    fn known(&mut self, _record: &KnownRecord<'_>) {
        // A session is read as a whole.
        self.placed = self.placed.saturating_add(1);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (line, _) = read::<Line>(bytes).map_err(|error| Skip { reason: format!("unreadable record: {error}") })?;
        let class = line.class().ok_or_else(|| Skip { reason: "a message without a role".to_owned() })?;
        if class == Class::Session {
            self.note_session(line.inner());
        }
        let (kind, role) = class.kind();
        let created_at = line.created().map(Timestamp);
        if matches!(class, Class::Session | Class::Beside) {
            let (place, source_id, note) = (Place::Beside, None, Vec::new());
            return Ok(Record { place, kind, role, created_at, source_id, starts_turn: false, note });
        }
        let id = line.id().map(str::to_owned);
        self.note_message(&line, class, created_at);
        let number = self.placed;
        let place = number.checked_sub(1).map_or(Place::Root, Place::After);
        if self.revert.is_some() && self.revert == id && self.head.is_none() {
            self.head = number.checked_sub(1);
        }
        self.placed = self.placed.saturating_add(1);
        // A prompt may be queued while the answer before it is still being written; another answer ends it.
        self.open = match self.open {
            Some(first) if line.is_open(class) || class == Class::Prompt => Some(first),
            _ => line.is_open(class).then_some(number),
        };
        self.key = id.as_ref().map(|id| format!("message {id}"));
        Ok(Record {
            place,
            kind,
            role,
            created_at,
            source_id: id,
            starts_turn: class == Class::Prompt,
            note: Vec::new(),
        })
    }

    fn facts(&self) -> ThreadFacts {
        let session_id = self.facts.session_id.clone().or_else(|| Some(self.id.clone()));
        ThreadFacts { session_id, ..self.facts.clone() }
    }

    fn state(&self) -> Vec<u8> {
        Vec::new()
    }

    fn head(&self) -> Option<RecordNo> {
        self.head
    }

    fn key(&self) -> Option<Vec<u8>> {
        self.key.clone().map(String::into_bytes)
    }

    fn unsettled(&self) -> Option<RecordNo> {
        self.open
    }
}

impl Reader {
    fn note_session(&mut self, session: &Line) {
        let facts = &mut self.facts;
        facts.session_id.clone_from(&session.id.0);
        facts.title =
            session.title.as_deref().and_then(|title| shown(title, TITLE_CHARS)).filter(|title| !is_made_up(title));
        facts.cwd = session.directory.as_deref().map(PathBuf::from);
        facts.cli_version.clone_from(&session.version.0);
        facts.parent_session.clone_from(&session.parent.0);
        facts.source = facts.parent_session.as_ref().map(|_| "subagent".to_owned());
        facts.archived = session.archived().map(|_| true);
        self.revert = session.revert.0.as_ref().and_then(|revert| revert.message.0.clone());
        self.note_time(session.created().map(Timestamp));
        self.note_time(session.updated().map(Timestamp));
    }

    fn note_message(&mut self, line: &Line, class: Class, at: Option<Timestamp>) {
        self.note_time(at);
        if class == Class::Prompt && self.facts.preview.is_none() {
            self.facts.preview = line.prompt().and_then(|text| shown(text, PREVIEW_CHARS));
        }
        let Some((provider, model)) = line.model() else { return };
        if matches!(class, Class::Answer | Class::Summary) {
            self.facts.model = Some(model.to_owned());
            self.facts.provider = provider.map(str::to_owned);
        }
        if let Some(usage) = line.usage() {
            let total = self.facts.usage.get_or_insert_default();
            *total = Usage {
                input: total.input.saturating_add(usage.input),
                cached: total.cached.saturating_add(usage.cached),
                output: total.output.saturating_add(usage.output),
                reasoning: total.reasoning.saturating_add(usage.reasoning),
            };
        }
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
            Self::Context => (Kind::Context, Some(Role::System)),
            Self::Summary => (Kind::Compaction, Some(Role::System)),
            Self::Event | Self::Session | Self::Beside => (Kind::Event, None),
        }
    }
}

/// Whether a title is the one that the agent gives until there is a better one.
fn is_made_up(title: &str) -> bool {
    ["New session - ", "Child session - "].iter().any(|start| title.starts_with(start))
}

fn shown(text: &str, max: usize) -> Option<String> {
    Some(one_line(text, max)).filter(|line| !line.is_empty())
}
