//! Reading a thread of the database: its row, its messages as a tree, and what stands beside them.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;
use threadkeep::{Kind, Role, Timestamp};

use super::beside;
use crate::codec::{
    Findings, KnownRecord, PREVIEW_CHARS, Place, Record, RecordNo, Skip, SourceReader, TITLE_CHARS, ThreadFacts,
};
use crate::companion::Companion;
use crate::json::one_line;
use crate::rows::Row;

/// How many messages without their place are named.
const NAMED: usize = 8;
/// A longer word is no role.
const MAX_ROLE_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Reader {
    facts: ThreadFacts,
    /// The records of messages, by the messages' ids.
    placed: HashMap<i64, u32>,
    count: u32,
    companions: Vec<Companion>,
    tools: Vec<threadkeep::Tool>,
    /// The message that CodeWhale would go on from.
    leaf: Option<i64>,
    /// Messages that name a parent that is not before them.
    astray: Vec<i64>,
    remarks: Vec<String>,
}

impl Reader {
    fn thread(&mut self, row: &Row) {
        let facts = &mut self.facts;
        facts.session_id = row.word("id");
        let title = row.word("title").map(|title| one_line(&title, TITLE_CHARS));
        facts.title = title.filter(|title| !title.is_empty());
        facts.preview = row.word("preview").map(|preview| one_line(&preview, PREVIEW_CHARS));
        facts.cwd = row.word("cwd").map(PathBuf::from);
        facts.working_path = row.word("path");
        facts.provider = row.word("model_provider");
        facts.cli_version = row.word("cli_version");
        facts.source = row.word("source");
        facts.git_sha = row.word("git_sha");
        facts.git_branch = row.word("git_branch");
        facts.git_origin = row.word("git_origin_url");
        facts.approval_policy = row.word("approval_mode");
        facts.sandbox_policy = row.word("sandbox_policy");
        facts.memory_mode = row.word("memory_mode");
        facts.created_at = row.seconds("created_at");
        facts.updated_at = row.seconds("updated_at");
        let archived = row.int("archived").ok().flatten().unwrap_or_default() != 0;
        facts.archived = archived.then_some(true);
        match row.int("current_leaf_id") {
            Ok(leaf) => self.leaf = leaf,
            Err(skip) => self.remarks.push(skip.reason),
        }
        self.companions.extend(beside::standing(row));
    }

    fn message(&mut self, row: &Row) -> Result<Record, Skip> {
        let id = row.int("id")?.ok_or_else(|| row.wrong("id", "nothing"))?;
        let content = row.text("content")?.unwrap_or_default();
        let item = row.text("item_json")?;
        let parent = row.int("parent_entry_id")?;
        let place = match parent {
            None => Place::Root,
            Some(parent) => match self.placed.get(&parent) {
                Some(record) => Place::After(*record),
                None => {
                    self.astray.push(id);
                    Place::Root
                }
            },
        };
        let role = row.word("role");
        let is_prompt = role.as_deref() == Some("user");
        if is_prompt && self.facts.preview.is_none() {
            self.facts.preview = Some(one_line(content, PREVIEW_CHARS)).filter(|preview| !preview.is_empty());
        }
        let forked = item.filter(|item| item.contains("\"fork\"")).and_then(forked_from);
        self.facts.forked_from = self.facts.forked_from.take().or(forked);
        self.placed.insert(id, self.count);
        self.count = self.count.saturating_add(1);
        Ok(Record {
            place,
            kind: Kind::Message,
            role: role.filter(|role| role.len() <= MAX_ROLE_BYTES).map(|role| Role::from_word(&role)),
            created_at: row.seconds("created_at"),
            source_id: Some(id.to_string()),
            starts_turn: is_prompt,
            note: Vec::new(),
        })
    }
}

/// The thread that the one message of a fork names.
fn forked_from(item: &str) -> Option<String> {
    let item: Value = serde_json::from_str(item).ok()?;
    let is_fork = item.get("type").and_then(Value::as_str) == Some("fork");
    item.get("from_thread_id").and_then(Value::as_str).filter(|_| is_fork).map(str::to_owned)
}

impl SourceReader for Reader {
    fn known(&mut self, _record: &KnownRecord<'_>) {
        self.count = self.count.saturating_add(1);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let row = Row::read(bytes)?;
        match row.table() {
            "messages" => return self.message(&row),
            "threads" => self.thread(&row),
            "thread_dynamic_tools" => self.tools.push(beside::tool(&row)?),
            _ => self.companions.extend(beside::companion(&row)?),
        }
        Ok(Record {
            place: Place::Beside,
            kind: Kind::Event,
            role: None,
            created_at: None::<Timestamp>,
            source_id: None,
            starts_turn: false,
            note: Vec::new(),
        })
    }

    fn facts(&self) -> ThreadFacts {
        self.facts.clone()
    }

    fn state(&self) -> Vec<u8> {
        Vec::new()
    }

    fn head(&self) -> Option<RecordNo> {
        self.placed.get(&self.leaf?).copied()
    }

    fn companions(&self) -> Vec<Companion> {
        let tools = (!self.tools.is_empty()).then(|| Companion::Tools(self.tools.clone()));
        self.companions.iter().cloned().chain(tools).collect()
    }

    fn findings(&self) -> Findings {
        let mut remarks = self.remarks.clone();
        if !self.astray.is_empty() {
            let named: Vec<_> = self.astray.iter().take(NAMED).map(ToString::to_string).collect();
            let more = self.astray.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            remarks.push(format!(
                "messages whose parent is not in the thread, or that go round in a circle, are roots: {}{more}",
                named.join(", ")
            ));
        }
        if let Some(leaf) = self.leaf.filter(|leaf| !self.placed.contains_key(leaf)) {
            remarks.push(format!("the current leaf {leaf} is no message of the thread; the last message is its head"));
        }
        Findings { remarks, ..Findings::default() }
    }
}
