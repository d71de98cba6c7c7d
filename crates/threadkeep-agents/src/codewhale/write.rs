//! Writing a thread for CodeWhale: a database of its own, schema version 4, and the session of the terminal program beside it.

use rusqlite::{Connection, ToSql};
use serde_json::{Value, json};
use threadkeep::Timestamp;

use super::view;
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{one_line, read, str_at};
use crate::writer::{Calls, Companion, Losses, Session, Writer, Written, image, is_picture, lost, time};

/// Tables by CodeWhale's documented schema, version 4.
const SCHEMA: &str = "
CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT, preview TEXT NOT NULL, ephemeral INTEGER NOT NULL,
  model_provider TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, status TEXT NOT NULL, path TEXT,
  cwd TEXT NOT NULL, cli_version TEXT NOT NULL, source TEXT NOT NULL, title TEXT, sandbox_policy TEXT, approval_mode TEXT,
  archived INTEGER NOT NULL DEFAULT 0, archived_at INTEGER, git_sha TEXT, git_branch TEXT, git_origin_url TEXT, memory_mode TEXT,
  current_leaf_id INTEGER);
CREATE INDEX idx_threads_updated_at ON threads (updated_at DESC);
CREATE INDEX idx_threads_archived_at ON threads (archived_at DESC);
CREATE INDEX idx_threads_archived_updated ON threads (archived, updated_at DESC);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
  item_json TEXT, created_at INTEGER NOT NULL, parent_entry_id INTEGER,
  FOREIGN KEY (thread_id) REFERENCES threads(id) ON DELETE CASCADE);
CREATE INDEX idx_messages_thread_created ON messages (thread_id, created_at);
CREATE INDEX idx_messages_parent ON messages (parent_entry_id);
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_id TEXT NOT NULL, state_json TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (thread_id, checkpoint_id), FOREIGN KEY (thread_id) REFERENCES threads(id) ON DELETE CASCADE);
CREATE INDEX idx_checkpoints_thread_created ON checkpoints (thread_id, created_at DESC);
CREATE TABLE jobs (id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL, progress INTEGER, detail TEXT,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE INDEX idx_jobs_updated_at ON jobs (updated_at DESC);
CREATE TABLE thread_dynamic_tools (thread_id TEXT NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
  input_schema TEXT NOT NULL, PRIMARY KEY (thread_id, position), FOREIGN KEY (thread_id) REFERENCES threads(id) ON DELETE CASCADE);
CREATE TABLE workflow_runs (id TEXT PRIMARY KEY, workflow_id TEXT NOT NULL, goal TEXT NOT NULL, status TEXT NOT NULL, input_hash TEXT,
  started_at INTEGER NOT NULL, completed_at INTEGER, metadata_json TEXT NOT NULL DEFAULT '{}');
CREATE TABLE branch_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  branch_id TEXT NOT NULL, node_id TEXT NOT NULL, status TEXT NOT NULL, started_at INTEGER NOT NULL, completed_at INTEGER,
  result_json TEXT NOT NULL DEFAULT '{}');
CREATE TABLE leaf_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  branch_run_id TEXT REFERENCES branch_runs(id) ON DELETE SET NULL, leaf_id TEXT NOT NULL, task_id TEXT NOT NULL, input_hash TEXT,
  status TEXT NOT NULL, output_json TEXT NOT NULL DEFAULT '{}', artifacts_json TEXT NOT NULL DEFAULT '[]',
  started_at INTEGER NOT NULL, completed_at INTEGER);
CREATE TABLE control_node_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  node_id TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, selected_children_json TEXT NOT NULL DEFAULT '[]',
  result_json TEXT NOT NULL DEFAULT '{}', started_at INTEGER NOT NULL, completed_at INTEGER);
CREATE TABLE teacher_candidates (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  control_node_run_id TEXT NOT NULL REFERENCES control_node_runs(id) ON DELETE CASCADE, candidate_id TEXT NOT NULL,
  branch_run_id TEXT REFERENCES branch_runs(id) ON DELETE SET NULL, score REAL, passed INTEGER,
  rationale_json TEXT NOT NULL DEFAULT '{}', created_at INTEGER NOT NULL);
CREATE TABLE thread_goals (thread_id TEXT PRIMARY KEY REFERENCES threads(id) ON DELETE CASCADE, goal_id TEXT NOT NULL,
  objective TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('active', 'paused', 'blocked', 'usage_limited', 'budget_limited',
  'complete')), token_budget INTEGER, tokens_used INTEGER NOT NULL DEFAULT 0, time_used_seconds INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, continuation_count INTEGER NOT NULL DEFAULT 0);
PRAGMA user_version = 4;
";
const THREAD: &str = "INSERT INTO threads (id, preview, ephemeral, model_provider, created_at, updated_at, status, cwd, cli_version,
  source, title, git_sha, git_branch, git_origin_url) VALUES (?1, ?2, 0, ?3, ?4, ?5, 'idle', ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const MESSAGE: &str = "INSERT INTO messages (thread_id, role, content, item_json, created_at, parent_entry_id)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
/// The version that is claimed of a thread that another agent wrote.
const VERSION: &str = "0.9.5";
const PREVIEW_CHARS: usize = 120;
const TITLE_CHARS: usize = 100;

/// A message on its way into both forms.
#[derive(Debug)]
struct Entry {
    role: String,
    content: String,
    item: Option<String>,
    /// Role and blocks, as the terminal program keeps them.
    message: Value,
    is_summary: bool,
    at: Option<Timestamp>,
}

pub(super) struct CodeWhaleWriter {
    session: Session,
    entries: Vec<Entry>,
    calls: Calls,
    losses: Losses,
}

impl CodeWhaleWriter {
    pub(super) fn new(session: &Session) -> Self {
        Self { session: session.clone(), entries: Vec::new(), calls: Calls::default(), losses: Losses::default() }
    }

    fn block(&mut self, block: &Block) -> Option<Value> {
        Some(match block {
            Block::Text(text) => json!({ "type": "text", "text": text }),
            Block::Reasoning { text } => {
                if text.is_empty() {
                    self.losses.count(lost::THOUGHTS);
                    return None;
                }
                json!({ "type": "thinking", "thinking": text })
            }
            Block::Call { id, name, input } => {
                let id = self.calls.call(id, false, &mut self.losses);
                let input = match input {
                    Value::Object(_) => input.clone(),
                    other => {
                        self.losses.count(lost::ARGUMENTS);
                        json!({ "input": other })
                    }
                };
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
            Block::Result { id, content, is_error } => {
                let (id, _) = self.calls.result(id, &mut self.losses)?;
                let texts = content.iter().map(|inner| match inner {
                    Block::Text(text) => text.clone(),
                    Block::Media { media_type, data } => {
                        self.losses.count(lost::MEDIA);
                        Block::named(media_type, data)
                    }
                    _ => String::new(),
                });
                let text = texts.collect::<Vec<_>>().join("\n");
                json!({ "type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error })
            }
            Block::Media { media_type, data } if is_picture(media_type, data) => match data {
                MediaData::Base64(bytes) => {
                    json!({ "type": "image", "source": { "type": "base64", "media_type": media_type, "data": bytes } })
                }
                MediaData::Reference(url) => json!({ "type": "image", "source": { "type": "url", "url": url } }),
                MediaData::Absent => return None,
            },
            Block::Media { media_type, data } => {
                self.losses.count(lost::MEDIA);
                json!({ "type": "text", "text": Block::named(media_type, data) })
            }
        })
    }

    fn id(&self) -> String {
        self.session.uuid().to_string()
    }

    fn fill(&self, database: &Connection) -> rusqlite::Result<()> {
        database.execute_batch(SCHEMA)?;
        let session = &self.session;
        let id = self.id();
        let preview = one_line(session.preview.as_deref().unwrap_or("New conversation"), PREVIEW_CHARS);
        let cwd = session.cwd.as_deref().and_then(|cwd| cwd.to_str()).unwrap_or("/");
        let source = if session.forked_from.is_some() { "fork" } else { "interactive" };
        let provider = session.provider.as_deref().unwrap_or("deepseek");
        let version = session.cli_version.as_deref().unwrap_or(VERSION);
        let (created, updated) = (seconds(session.created_at), seconds(session.updated_at));
        let title = self.title();
        let row: [&dyn ToSql; 12] = [
            &id,
            &preview,
            &provider,
            &created,
            &updated,
            &cwd,
            &version,
            &source,
            &title,
            &session.git_sha,
            &session.git_branch,
            &session.git_origin,
        ];
        database.execute(THREAD, &row[..])?;
        let mut insert = database.prepare(MESSAGE)?;
        let mut leaf: Option<i64> = None;
        for entry in &self.entries {
            let at = seconds(entry.at.unwrap_or(session.created_at));
            insert.execute((&id, &entry.role, &entry.content, &entry.item, at, leaf))?;
            leaf = Some(database.last_insert_rowid());
        }
        database.execute("UPDATE threads SET current_leaf_id = ?1 WHERE id = ?2", (leaf, &id))?;
        Ok(())
    }

    fn title(&self) -> String {
        let title = self.session.title.as_deref().or(self.session.preview.as_deref()).unwrap_or("Imported session");
        one_line(title, TITLE_CHARS)
    }

    /// The session of the terminal program: the journal, and what old readers take in its place.
    fn document(&self) -> Value {
        let session = &self.session;
        let id = |number: usize| session.made("codewhale entry", number as u64).to_string();
        let entry = |(number, entry): (usize, &Entry)| {
            let kind = if entry.is_summary { "compaction" } else { "message" };
            json!({
                "id": id(number),
                "parent_id": number.checked_sub(1).map(id),
                "kind": kind,
                "created_at": time(entry.at.unwrap_or(session.created_at)),
                "message": entry.message,
                "summary": entry.is_summary.then_some(&entry.content),
            })
        };
        let entries: Vec<Value> = self.entries.iter().enumerate().map(entry).collect();
        let messages: Vec<&Value> = self.entries.iter().map(|entry| &entry.message).collect();
        let leaf = self.entries.len().checked_sub(1).map(id);
        json!({
            "schema_version": 1,
            "metadata": {
                "id": self.id(),
                "title": self.title(),
                "created_at": time(session.created_at),
                "updated_at": time(session.updated_at),
                "message_count": messages.len(),
                "total_tokens": 0,
                "model": session.model.as_deref().unwrap_or("unknown"),
                "model_provider": session.provider.as_deref().unwrap_or("deepseek"),
                "workspace": session.cwd.as_deref().and_then(|cwd| cwd.to_str()).unwrap_or("/"),
                "mode": "agent",
                "parent_session_id": session.forked_from,
                "spawn_depth": 0,
            },
            "messages": messages,
            "journal": { "entries": entries, "leaf_id": leaf },
            "leaf_id": leaf,
            "system_prompt": null,
        })
    }
}

impl Writer for CodeWhaleWriter {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn message(&mut self, message: &Message, _out: &mut Vec<u8>) {
        let is_summary = message.standing == Standing::Summary;
        let role = match message.author {
            Author::System if !is_summary => return self.losses.count(lost::INSTRUCTIONS),
            Author::Model => "assistant",
            Author::Person | Author::Tool | Author::System => "user",
        };
        if message.standing == Standing::Injected {
            self.losses.count(lost::INJECTED);
        }
        self.losses.add(lost::USAGE, u64::from(message.usage.is_some()));
        let blocks: Vec<Value> = message.blocks.iter().filter_map(|block| self.block(block)).collect();
        if blocks.is_empty() {
            return;
        }
        let is_text = |block: &&Value| str_at(block, "type") == "text";
        let texts: Vec<&str> = blocks.iter().filter(is_text).map(|block| str_at(block, "text")).collect();
        let (content, is_plain) = (texts.join("\n"), texts.len() == blocks.len());
        let said = json!({ "role": role, "content": blocks });
        let item = (!is_plain).then(|| said.to_string());
        let at = message.created_at;
        self.entries.push(Entry { role: role.to_owned(), content, item, message: said, is_summary, at });
    }

    fn carry(&mut self, record: &[u8], _out: &mut Vec<u8>) -> bool {
        let Ok((row, _)) = read::<Value>(record) else { return false };
        if str_at(&row, "table") != "messages" {
            // An entry of a session is written as what it says.
            return false;
        }
        let (Some(content), false) = (row.get("content").and_then(Value::as_str), str_at(&row, "role").is_empty())
        else {
            return false;
        };
        let item = row.get("item_json").and_then(Value::as_str).map(str::to_owned);
        let inner = view::entry(record);
        let blocks = inner.get("content").filter(|blocks| blocks.is_array()).cloned();
        let role = str_at(&row, "role");
        for block in blocks.iter().flat_map(|blocks| blocks.as_array().into_iter().flatten()) {
            match str_at(block, "type") {
                "tool_use" => self.calls.keep_call(str_at(block, "id"), false),
                "tool_result" => self.calls.keep_result(str_at(block, "tool_use_id")),
                _ => {}
            }
        }
        let blocks = blocks.unwrap_or_else(|| json!([{ "type": "text", "text": content }]));
        let message = json!({ "role": if role == "assistant" { role } else { "user" }, "content": blocks });
        let at = row.get("created_at").and_then(Value::as_i64).and_then(|at| at.checked_mul(1_000)).map(Timestamp);
        let (role, content) = (role.to_owned(), content.to_owned());
        self.entries.push(Entry { role, content, item, message, is_summary: false, at });
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.calls.finish(&mut self.losses);
        match image(|database| self.fill(database)) {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(error) => tracing::error!(%error, "a database in memory could not be filled"),
        }
        let bytes = serde_json::to_vec_pretty(&self.document()).unwrap_or_default();
        let path = ["sessions", &format!("{}.json", self.id())].iter().collect();
        Written { companions: vec![Companion { path, bytes, shared: false }], losses: self.losses.take() }
    }
}

fn seconds(at: Timestamp) -> i64 {
    at.millis().div_euclid(1_000)
}
