//! CodeWhale (DeepSeek-TUI before): a database of threads, whose messages are a tree, and a JSON document for each session of
//! its terminal program.

mod beside;
mod grouping;
mod index;
mod message;
mod session;
mod state;
mod table;
mod view;
mod write;

use std::path::{Path, PathBuf};

use threadkeep::{Kind, View, ViewCodec};

pub use self::index::thread_names;
use crate::codec::{Aside, Codec, Layout, Query, Shape, Skip, SourceReader, TITLE_CHARS, Tables};
use crate::companion::Shared;
use crate::conversation::Message;
use crate::json::one_line;
use crate::rows::{Row, columns};
use crate::writer::{Session, StoreWriter, Writer};

/// The format tag and short name.
const NAME: &str = "codewhale";
/// The database's name.
const DATABASE: &str = "state.db";
/// The file beside the database that names threads.
pub(crate) const INDEX: &str = "session_index.jsonl";
/// The folder beside sessions that holds the goal of each.
const GOALS: &str = ".goals";

/// The codec of CodeWhale's databases, schema versions 1 to 5 and what was before them, and of its sessions.
///
/// Guarantees: messages keep their tree, whatever order they have; a message whose parent is missing, is in another thread or
/// goes round in a circle is kept as a root, and reported; the head is the message that CodeWhale would go on from. Of a
/// session the journal is read; its messages only where there is none.
#[derive(Debug, Clone, Copy, Default)]
pub struct CodeWhale;

impl ViewCodec for CodeWhale {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, _kind: &Kind, content: &[u8]) -> View {
        view::view(content)
    }
}

impl Codec for CodeWhale {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == DATABASE) || is_session(path)
    }

    fn shape(&self, path: &Path, _head: &[u8]) -> Shape {
        if path.extension().is_some_and(|ending| ending == "json") {
            Shape::FirstOf(&["journal", "entries"], &["messages"])
        } else {
            Shape::Database
        }
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        path.extension().is_some_and(|ending| ending == "json")
            && ["schema_version", "metadata", "message_count", "workspace"].into_iter().all(has)
    }

    fn beside(&self, path: &Path) -> Vec<PathBuf> {
        let Some(folder) = path.parent() else { return Vec::new() };
        match path.file_name().filter(|_| is_session(path)) {
            Some(name) => vec![folder.join(GOALS).join(name)],
            None => vec![folder.join(INDEX)],
        }
    }

    fn aside(&self, session: &Path, path: &Path, bytes: &[u8]) -> Option<Aside> {
        if path.parent().is_some_and(|folder| folder.ends_with(GOALS)) {
            return Some(beside::sidecar(session, bytes));
        }
        let names = thread_names(bytes);
        // The database is the truth; the index names what it does not.
        Some(Aside::new(move |facts| {
            let named = facts.session_id.as_ref().and_then(|id| names.get(id));
            let named = named.map(|name| one_line(name, TITLE_CHARS)).filter(|name| !name.is_empty());
            facts.title = facts.title.take().or(named);
        }))
    }

    fn layout(&self, tables: &Tables) -> Option<Layout> {
        layout(tables)
    }

    fn shared(&self, row: &[u8]) -> Result<Option<Shared>, Skip> {
        beside::shared(&Row::read(row)?)
    }

    fn root(&self, home: &Path) -> Option<PathBuf> {
        Some(home.join(".codewhale"))
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::CodeWhaleWriter::new(session)))
    }

    fn store_writer(&self) -> Option<Box<dyn StoreWriter>> {
        Some(Box::new(state::StateWriter::new().ok()?))
    }

    fn reader(&self, path: &Path, _state: Option<&[u8]>) -> Box<dyn SourceReader> {
        // A session of a database has any name that a thread can have.
        let is_row = path.to_string_lossy().contains(&format!("{DATABASE}#"));
        if !is_row && path.extension().is_some_and(|ending| ending == "json") {
            Box::new(session::Reader::default())
        } else {
            Box::new(table::Reader::default())
        }
    }

    fn message(&self, kind: &Kind, content: &[u8]) -> Option<Message> {
        message::message(kind, content)
    }
}

/// Whether a file lies where the terminal program keeps sessions; its checkpoints are copies of them.
fn is_session(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder.is_some_and(|folder| folder == "sessions") && name.ends_with(".json") && name != "session_boot_owners.json"
}

const NONE: &str = "NULL";

const THREAD: &[(&str, &str)] = &[
    ("id", NONE),
    ("rollout_path", NONE),
    ("preview", "''"),
    ("ephemeral", "0"),
    ("model_provider", NONE),
    ("created_at", NONE),
    ("updated_at", NONE),
    ("status", "'idle'"),
    ("path", NONE),
    ("cwd", NONE),
    ("cli_version", NONE),
    ("source", NONE),
    ("title", NONE),
    ("sandbox_policy", NONE),
    ("approval_mode", NONE),
    ("archived", "0"),
    ("archived_at", NONE),
    ("git_sha", NONE),
    ("git_branch", NONE),
    ("git_origin_url", NONE),
    ("memory_mode", NONE),
    ("current_leaf_id", NONE),
];

/// Tables whose rows stand beside a thread, with the order of their rows.
const BESIDE: &[(&str, &str)] = &[
    ("thread_goals", "rowid"),
    // From the oldest on, so that the newest is the newest here, too.
    ("checkpoints", "created_at, rowid"),
    ("thread_dynamic_tools", "position"),
];

/// Tables of no thread, each before those that name its rows.
const SHARED: &[(&str, &str)] = &[
    ("jobs", "updated_at, rowid"),
    ("workflow_runs", "started_at, rowid"),
    ("branch_runs", "started_at, rowid"),
    ("control_node_runs", "started_at, rowid"),
    ("leaf_runs", "started_at, rowid"),
    ("teacher_candidates", "created_at, rowid"),
];

fn layout(tables: &Tables) -> Option<Layout> {
    let is_ours = tables.has("threads", &["id", "preview", "model_provider", "cli_version"])
        && tables.has("messages", &["id", "thread_id", "role", "content", "item_json"]);
    if !is_ours {
        return None;
    }
    let thread = columns(&|column| tables.has("threads", &[column]), THREAD);
    let mut records = vec![
        query("threads", format!("SELECT {thread} FROM threads WHERE id = ?1")),
        query("messages", messages(tables)),
    ];
    for (table, order) in BESIDE {
        if tables.has(table, &["thread_id"]) {
            records.push(query(
                table,
                format!("SELECT * FROM {table} WHERE thread_id = ?1 ORDER BY {}", order_of(tables, table, order)),
            ));
        }
    }
    let shared = SHARED.iter().filter(|(table, _)| tables.has(table, &["id"]));
    let shared = shared.map(|(table, order)| {
        query(table, format!("SELECT * FROM {table} ORDER BY {}", order_of(tables, table, order)))
    });
    Some(Layout { sessions: sessions(tables), records, shared: shared.collect() })
}

fn query(name: &'static str, sql: String) -> Query {
    Query { name, sql, within: Vec::new() }
}

fn order_of<'a>(tables: &Tables, table: &str, order: &'a str) -> &'a str {
    let known = order.split(", ").all(|column| column == "rowid" || tables.has(table, &[column]));
    if known { order } else { "1" }
}

/// The threads, each with what changes when anything of it does: messages are only added or taken away.
fn sessions(tables: &Tables) -> String {
    let wanted: Vec<(&str, &str)> = THREAD.iter().copied().filter(|(name, _)| *name != "id").collect();
    let thread = columns(&|column| tables.has("threads", &[column]), &wanted);
    let mut counts =
        vec!["(SELECT count(*) || ' ' || coalesce(max(id), 0) FROM messages WHERE thread_id = t.id)".to_owned()];
    let counted = [
        ("thread_goals", "group_concat(updated_at || status || tokens_used || time_used_seconds)"),
        ("checkpoints", "group_concat(created_at || length(state_json))"),
        ("thread_dynamic_tools", "count(*)"),
    ];
    for (table, what) in counted {
        let needed: &[&str] = match table {
            "thread_goals" => &["thread_id", "updated_at", "status", "tokens_used", "time_used_seconds"],
            "checkpoints" => &["thread_id", "created_at", "state_json"],
            _ => &["thread_id"],
        };
        if tables.has(table, needed) {
            counts
                .push(format!("(SELECT count(*) || ' ' || coalesce({what}, '') FROM {table} WHERE thread_id = t.id)"));
        }
    }
    let updated = if tables.has("threads", &["updated_at"]) { "updated_at * 1000" } else { "0" };
    let order = if tables.has("threads", &["updated_at"]) { "updated_at, rowid" } else { "rowid" };
    format!("SELECT id, {updated}, {thread}, {} FROM threads t ORDER BY {order}", counts.join(", "))
}

/// A thread's messages, each behind its parent: in the order of their ids, but for what an old migration has put the other way
/// round. What is in a circle comes last.
fn messages(tables: &Tables) -> String {
    let created = if tables.has("messages", &["created_at"]) { "m.created_at" } else { "NULL" };
    if !tables.has("messages", &["parent_entry_id"]) {
        // Before the tree there was a line; this is how CodeWhale's own migration reads it.
        return format!(
            "SELECT m.id AS id, m.thread_id AS thread_id, m.role AS role, m.content AS content, m.item_json AS item_json,
               {created} AS created_at, lag(m.id) OVER (ORDER BY {created}, m.id) AS parent_entry_id
             FROM messages m WHERE m.thread_id = ?1 ORDER BY {created}, m.id"
        );
    }
    format!(
        "WITH RECURSIVE walk(id, top, depth) AS (
           SELECT m.id, m.id, 0 FROM messages m WHERE m.thread_id = ?1 AND NOT EXISTS
             (SELECT 1 FROM messages p WHERE p.id = m.parent_entry_id AND p.thread_id = ?1)
           UNION ALL
           SELECT c.id, max(walk.top, c.id), walk.depth + 1 FROM walk JOIN messages c ON c.parent_entry_id = walk.id
             WHERE c.thread_id = ?1)
         SELECT m.id AS id, m.thread_id AS thread_id, m.role AS role, m.content AS content, m.item_json AS item_json,
           {created} AS created_at, m.parent_entry_id AS parent_entry_id
         FROM messages m LEFT JOIN walk ON walk.id = m.id WHERE m.thread_id = ?1
         ORDER BY walk.top IS NULL, walk.top, walk.depth, m.id"
    )
}
