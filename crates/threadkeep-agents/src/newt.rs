//! newt: a database of conversations, whose turns are chained; before that a JSON document for each.

mod beside;
pub(crate) mod chain;
mod prompts;
mod reader;
mod store;
mod view;
mod write;

use std::path::{Path, PathBuf};

use threadkeep::{Kind, View, ViewCodec};

use crate::codec::{Codec, Layout, Query, Shape, Skip, SourceReader, Tables};
use crate::companion::Shared;
use crate::rows::{Row, columns};
use crate::writer::{Session, StoreWriter, Writer};

/// The format tag and short name.
const NAME: &str = "newt";
/// The database's name.
const DATABASE: &str = "conversations.db";

/// The codec of newt's conversations, from the JSON documents of its first versions to its last database.
///
/// Guarantees: a turn is up to three items (prompt, events, answer), whose bytes hold its row; turns stand in newt's own
/// order, by seq and writer; every writer's chain is verified by newt's rules, and what does not verify is imported all the
/// same, and marked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Newt;

impl ViewCodec for Newt {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, kind: &Kind, content: &[u8]) -> View {
        view::view(kind, content)
    }
}

impl Codec for Newt {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == DATABASE) || is_legacy(path)
    }

    fn shape(&self, path: &Path, _head: &[u8]) -> Shape {
        if is_legacy(path) { Shape::Document(&["turns"]) } else { Shape::Database }
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        // Keys may stand behind the turns, beyond what is shown here.
        path.extension().is_some_and(|ending| ending == "json") && has("workspace_id") && has("id") && has("title")
    }

    fn layout(&self, tables: &Tables) -> Option<Layout> {
        layout(tables)
    }

    fn shared(&self, row: &[u8]) -> Result<Option<Shared>, Skip> {
        beside::shared(&Row::read(row)?)
    }

    fn root(&self, home: &Path) -> Option<PathBuf> {
        Some(home.join(".newt"))
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::NewtWriter::new(session)))
    }

    fn store_writer(&self) -> Option<Box<dyn StoreWriter>> {
        Some(Box::new(store::NewtStore::new().ok()?))
    }

    fn reader(&self, path: &Path, _state: Option<&[u8]>) -> Box<dyn SourceReader> {
        Box::new(reader::Reader::new(path))
    }
}

/// Whether a file lies where the first versions kept conversations: `conversations/<workspace>/<id>.json`.
fn is_legacy(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::parent).and_then(Path::file_name);
    // What newt has taken into its database it has given another name to.
    folder.is_some_and(|name| name == "conversations") && path.extension().is_some_and(|ending| ending == "json")
}

const NO_TEXT: &str = "''";
/// Not newt's: which of its migrations the database has seen.
const MIGRATIONS: &str = "store_migrations";
const NONE: &str = "NULL";
const EMPTY_LIST: &str = "'[]'";
const EMPTY_MAP: &str = "'{}'";

const CONVERSATION: &[(&str, &str)] = &[
    ("id", NONE),
    ("title", NO_TEXT),
    ("workspace_path", NO_TEXT),
    ("workspace_key", NO_TEXT),
    ("persona", NONE),
    ("end_reason", NONE),
    ("writer_fingerprint", NO_TEXT),
    ("activity_tick", "0"),
    ("tip_hash", NO_TEXT),
    ("started_at_claim", NONE),
    ("updated_at_claim", NONE),
    ("scratchpad", EMPTY_MAP),
    ("plan", EMPTY_MAP),
    ("roadmap_id", NONE),
    ("node_id", NONE),
    ("preference_pin", EMPTY_MAP),
];

/// The columns of a turn that its parts share out: the prompt's, what happened, the answer's.
const PROMPT: &[(&str, &str)] =
    &[("prev_hash", NO_TEXT), ("sources", EMPTY_LIST), ("ts_claim", "0"), ("encoding_version", "1")];
const EVENTS: &[(&str, &str)] = &[("events", EMPTY_LIST), ("phantom_reaches", EMPTY_LIST)];
const ANSWER: &[(&str, &str)] = &[("tokens_in", NONE), ("tokens_out", NONE)];

/// Tables whose rows stand beside a conversation, with the order of their rows.
const BESIDE: &[(&str, &str)] = &[
    ("writer_tips", "writer_fingerprint"),
    ("prompt_receipts", "receipt_order"),
    ("prompt_artifacts", "seq"),
    ("prompt_artifact_tips", "conversation_id"),
    ("conversation_inbox", "seq"),
    ("enrollment_requests", "created_tick, request_id"),
    ("permission_requests", "created_tick, request_id"),
    ("interaction_offers", "published_tick, instance_id"),
    ("context_windows", "sealed_at_seq"),
];

fn layout(tables: &Tables) -> Option<Layout> {
    let is_newt = tables.has("conversations", &["id", "title", "workspace_path"])
        && tables.has("turns", &["conversation_id", "writer_fingerprint", "seq", "user", "assistant"]);
    if !is_newt {
        return None;
    }
    let conversation = columns(&|column| tables.has("conversations", &[column]), CONVERSATION);
    // What newt has done once to the pins of all conversations.
    let migrations = match tables.has("store_migrations", &["name"]) {
        true => "(SELECT group_concat(name, char(10)) FROM (SELECT name FROM store_migrations ORDER BY name))",
        false => "NULL",
    };
    let mut records = vec![
        query(
            "conversations",
            format!("SELECT {conversation}, {migrations} AS {MIGRATIONS} FROM conversations WHERE id = ?1"),
        ),
        query("turns", turns(tables)),
    ];
    for (table, order) in BESIDE {
        if tables.has(table, &["conversation_id"]) {
            let order = if order.split(", ").all(|column| tables.has(table, &[column])) { order } else { "rowid" };
            records.push(query(table, format!("SELECT * FROM {table} WHERE conversation_id = ?1 ORDER BY {order}")));
        }
    }
    Some(Layout { sessions: sessions(tables), records, shared: shared(tables) })
}

fn query(name: &'static str, sql: String) -> Query {
    Query { name, sql, within: Vec::new() }
}

/// The conversations, each with what changes when anything of it does: turns are never changed, only added.
fn sessions(tables: &Tables) -> String {
    let wanted: Vec<(&str, &str)> = CONVERSATION.iter().copied().filter(|(name, _)| *name != "id").collect();
    let of_conversation = columns(&|column| tables.has("conversations", &[column]), &wanted);
    let mut counts =
        vec!["(SELECT count(*) || ' ' || coalesce(max(seq), 0) FROM turns WHERE conversation_id = c.id)".to_owned()];
    let counted: [(&str, &str); 8] = [
        ("conversation_inbox", "coalesce(sum(delivered), 0)"),
        ("enrollment_requests", "coalesce(sum(resolved), 0)"),
        ("permission_requests", "coalesce(sum(resolved), 0)"),
        ("interaction_offers", "count(outcome)"),
        ("prompt_receipts", "coalesce(max(seq), 0)"),
        ("prompt_artifacts", "coalesce(max(seq), 0)"),
        ("prompt_artifact_tips", "max(tip_hash)"),
        ("writer_tips", "coalesce(sum(tip_seq), 0) || coalesce(group_concat(tip_hash), '')"),
    ];
    for (table, what) in counted {
        if tables.has(table, &["conversation_id"]) {
            counts.push(format!(
                "(SELECT count(*) || ' ' || coalesce({what}, '') FROM {table} WHERE conversation_id = c.id)"
            ));
        }
    }
    let updated = if tables.has("conversations", &["updated_at_claim"]) { "updated_at_claim / 1000000" } else { "0" };
    let order = if tables.has("conversations", &["activity_tick"]) { "activity_tick, id" } else { "id" };
    format!("SELECT id, {updated}, {of_conversation}, {} FROM conversations c ORDER BY {order}", counts.join(", "))
}

/// A conversation's turns, each in parts: newt's order is by seq, then by writer.
fn turns(tables: &Tables) -> String {
    let part = |name: &str, text: &str, own: &[(&str, &str)], only: &str| {
        let others = [PROMPT, EVENTS, ANSWER].into_iter().flatten();
        let others = others.map(|(column, fallback)| {
            let is_own = own.iter().any(|(name, _)| name == column);
            match (is_own, tables.has("turns", &[column])) {
                (true, true) => (*column).to_owned(),
                (true, false) => format!("{fallback} AS {column}"),
                (false, _) => format!("NULL AS {column}"),
            }
        });
        let others: Vec<String> = others.collect();
        format!(
            "SELECT '{name}' AS part, conversation_id, writer_fingerprint, seq, {text} AS text, {} FROM turns
             WHERE conversation_id = ?1{only}",
            others.join(", ")
        )
    };
    let acts: Vec<String> = EVENTS
        .iter()
        .filter(|(column, _)| tables.has("turns", &[column]))
        .map(|(column, _)| format!("{column} IS NOT '[]'"))
        .collect();
    let acts = if acts.is_empty() { "0".to_owned() } else { acts.join(" OR ") };
    // In the order of the words, from the last one: prompt, events, answer.
    format!(
        "{} UNION ALL {} UNION ALL {} ORDER BY seq, writer_fingerprint, part DESC",
        part("prompt", "user", PROMPT, ""),
        part("events", "NULL", EVENTS, &format!(" AND ({acts})")),
        part("answer", "assistant", ANSWER, ""),
    )
}

/// Roadmaps, each with the folder of a conversation of the same workspace.
fn shared(tables: &Tables) -> Vec<Query> {
    if !tables.has("roadmaps", &["id", "workspace_key", "tree"]) {
        return Vec::new();
    }
    let title = if tables.has("roadmaps", &["title"]) { "r.title" } else { "''" };
    let folder = match tables.has("conversations", &["workspace_key"]) {
        true => "(SELECT max(workspace_path) FROM conversations c WHERE c.workspace_key = r.workspace_key)",
        false => "NULL",
    };
    let sql = format!(
        "SELECT r.id AS id, r.workspace_key AS workspace_key, {folder} AS folder, {title} AS title, r.tree AS tree
         FROM roadmaps r ORDER BY r.workspace_key, r.id"
    );
    vec![query("roadmaps", sql)]
}
