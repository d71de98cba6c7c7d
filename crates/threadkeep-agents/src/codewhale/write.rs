//! Writing one path of a thread for CodeWhale: a database of its own, and the session of the terminal program beside it.

use rusqlite::{Connection, ToSql};
use serde_json::{Value, json};
use threadkeep::Timestamp;

use super::grouping::grouped;
use super::{state, view};
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{one_line, read, str_at};
use crate::writer::{Calls, Companion, Losses, Session, Writer, Written, image, is_picture, lost, time};

const THREAD: &str = "INSERT INTO threads (id, preview, ephemeral, model_provider, created_at, updated_at, status, cwd, cli_version,
  source, title, git_sha, git_branch, git_origin_url) VALUES (?1, ?2, 0, ?3, ?4, ?5, 'idle', ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const MESSAGE: &str = "INSERT INTO messages (thread_id, role, content, item_json, created_at, parent_entry_id)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
/// The version that is claimed of a thread that another agent wrote.
pub(super) const VERSION: &str = "0.9.5";
pub(super) const PREVIEW_CHARS: usize = 120;
pub(super) const TITLE_CHARS: usize = 100;

/// A message on its way into both forms.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) role: String,
    pub(super) content: String,
    pub(super) item: Option<String>,
    /// Role and blocks, as the terminal program keeps them.
    pub(super) message: Value,
    pub(super) is_summary: bool,
    /// Whether it is a row of CodeWhale's own.
    pub(super) is_own: bool,
    pub(super) at: Option<Timestamp>,
    /// The entry that it follows.
    pub(super) parent: Option<usize>,
}

/// Makes entries of what a session says.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) calls: Calls,
    pub(super) losses: Losses,
}

impl Entries {
    /// What a message says; nothing where that is nothing.
    pub(super) fn message(&mut self, message: &Message) -> Option<Entry> {
        let is_summary = message.standing == Standing::Summary;
        let role = match message.author {
            Author::System if !is_summary => {
                self.losses.count(lost::INSTRUCTIONS);
                return None;
            }
            Author::Model => "assistant",
            Author::Person | Author::Tool | Author::System => "user",
        };
        if message.standing == Standing::Injected {
            self.losses.count(lost::INJECTED);
        }
        self.losses.add(lost::USAGE, u64::from(message.usage.is_some()));
        let blocks: Vec<Value> = message.blocks.iter().filter_map(|block| self.block(block)).collect();
        if blocks.is_empty() {
            return None;
        }
        let is_text = |block: &&Value| str_at(block, "type") == "text";
        let texts: Vec<&str> = blocks.iter().filter(is_text).map(|block| str_at(block, "text")).collect();
        let (content, is_plain) = (texts.join("\n"), texts.len() == blocks.len());
        let said = json!({ "role": role, "content": blocks });
        let item = (!is_plain).then(|| said.to_string());
        let at = message.created_at;
        Some(Entry { role: role.to_owned(), content, item, message: said, is_summary, is_own: false, at, parent: None })
    }

    /// A row of CodeWhale's own as it is; nothing for an entry of a session, which is written as what it says.
    pub(super) fn own(&mut self, record: &[u8]) -> Option<Entry> {
        let (row, _) = read::<Value>(record).ok().filter(|(row, _)| str_at(row, "table") == "messages")?;
        let role = Some(str_at(&row, "role")).filter(|role| !role.is_empty())?;
        let content = row.get("content").and_then(Value::as_str)?;
        let item = row.get("item_json").and_then(Value::as_str).map(str::to_owned);
        let inner = view::entry(record);
        let blocks = inner.get("content").filter(|blocks| blocks.is_array()).cloned();
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
        Some(Entry { role, content, item, message, is_summary: false, is_own: true, at, parent: None })
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
}

pub(super) struct CodeWhaleWriter {
    session: Session,
    written: Vec<Entry>,
    entries: Entries,
}

impl CodeWhaleWriter {
    pub(super) fn new(session: &Session) -> Self {
        Self { session: session.clone(), written: Vec::new(), entries: Entries::default() }
    }

    fn push(&mut self, entry: Entry) {
        let parent = self.written.len().checked_sub(1);
        self.written.push(Entry { parent, ..entry });
    }

    fn id(&self) -> String {
        self.session.uuid().to_string()
    }

    fn fill(&self, database: &Connection) -> rusqlite::Result<()> {
        database.execute_batch(state::SCHEMA)?;
        let session = &self.session;
        let id = self.id();
        let preview = one_line(session.preview.as_deref().unwrap_or("New conversation"), PREVIEW_CHARS);
        let cwd = session.cwd.as_deref().and_then(|cwd| cwd.to_str()).unwrap_or("/");
        let source = if session.forked_from.is_some() { "fork" } else { "interactive" };
        let provider = session.provider.as_deref().unwrap_or("deepseek");
        let version = session.cli_version.as_deref().unwrap_or(VERSION);
        let (created, updated) = (seconds(session.created_at), seconds(session.updated_at));
        let title = title(session);
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
        for entry in &self.written {
            let at = seconds(entry.at.unwrap_or(session.created_at));
            insert.execute((&id, &entry.role, &entry.content, &entry.item, at, leaf))?;
            leaf = Some(database.last_insert_rowid());
        }
        database.execute("UPDATE threads SET current_leaf_id = ?1 WHERE id = ?2", (leaf, &id))?;
        Ok(())
    }
}

/// The title of a session; all of the terminal program's have one.
pub(super) fn title(session: &Session) -> String {
    let title = session.title.as_deref().or(session.preview.as_deref()).unwrap_or("Imported session");
    one_line(title, TITLE_CHARS)
}

/// The session of the terminal program, and where it lies: the journal, which has the whole tree, and the messages of its path, which
/// old readers take in its place.
pub(super) fn document(session: &Session, id: &str, entries: &[Entry], head: Option<usize>) -> Companion {
    let entry_id = |number: usize| session.made("codewhale entry", number as u64).to_string();
    let entry = |(number, entry): (usize, &Entry)| {
        json!({
            "id": entry_id(number),
            "parent_id": entry.parent.map(entry_id),
            "kind": if entry.is_summary { "compaction" } else { "message" },
            "created_at": time(entry.at.unwrap_or(session.created_at)),
            "message": entry.message,
            "summary": entry.is_summary.then_some(&entry.content),
        })
    };
    let journal: Vec<Value> = entries.iter().enumerate().map(entry).collect();
    let above = |entry: &&Entry| entry.parent.and_then(|parent| entries.get(parent));
    let path = std::iter::successors(head.and_then(|head| entries.get(head)), above);
    let mut messages: Vec<&Value> = path.map(|entry| &entry.message).collect();
    messages.reverse();
    let leaf = head.map(entry_id);
    let document = json!({
        "schema_version": 1,
        "metadata": {
            "id": id,
            "title": title(session),
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
        "journal": { "entries": journal, "leaf_id": leaf },
        "leaf_id": leaf,
        "system_prompt": null,
    });
    let bytes = serde_json::to_vec_pretty(&document).unwrap_or_default();
    let path = ["sessions", &format!("{id}.json")].iter().collect();
    Companion { path, bytes, shared: false }
}

impl Writer for CodeWhaleWriter {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn message(&mut self, message: &Message, _out: &mut Vec<u8>) {
        if let Some(entry) = self.entries.message(message) {
            self.push(entry);
        }
    }

    fn carry(&mut self, record: &[u8], _out: &mut Vec<u8>) -> bool {
        let Some(entry) = self.entries.own(record) else { return false };
        self.push(entry);
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        let Entries { calls, losses } = &mut self.entries;
        calls.finish(losses);
        (self.written, _) = grouped(std::mem::take(&mut self.written), None);
        match image(|database| self.fill(database)) {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(error) => tracing::error!(%error, "a database in memory could not be filled"),
        }
        let head = self.written.len().checked_sub(1);
        let companions = vec![document(&self.session, &self.id(), &self.written, head)];
        Written { companions, losses: self.entries.losses.take() }
    }
}

pub(super) fn seconds(at: Timestamp) -> i64 {
    at.millis().div_euclid(1_000)
}
