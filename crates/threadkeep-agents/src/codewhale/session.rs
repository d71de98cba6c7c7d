//! Reading a session of the terminal program: the entries of its journal, which are the truth from version 0.9.5 on, or its
//! messages.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use threadkeep::{Kind, Role, Timestamp};

use super::message::{said, speaker};
use crate::codec::{
    Findings, KnownRecord, PREVIEW_CHARS, Place, Record, RecordNo, Skip, SourceReader, TITLE_CHARS, ThreadFacts,
};
use crate::companion::Companion;
use crate::json::{Flag, Number, Word, one_line, read, str_at};

/// The newest version of the document that is known.
const KNOWN_SCHEMA: u64 = 1;
/// A longer word is no role.
const MAX_ROLE_BYTES: usize = 64;
/// The title of a session that has none yet.
const UNTITLED: &str = "New Session";

/// A document without its entries.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Frame {
    schema_version: Number,
    metadata: Metadata,
    journal: Journal,
    leaf_id: Word,
    work_state: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Journal {
    leaf_id: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    id: Word,
    title: Word,
    created_at: Word,
    updated_at: Word,
    model: Word,
    model_provider: Word,
    model_provider_id: Word,
    workspace: Word,
    mode: Word,
    parent_session_id: Word,
    archived: Flag,
    spawn_depth: Number,
}

#[derive(Debug, Default)]
pub(super) struct Reader {
    facts: ThreadFacts,
    leaf: Option<String>,
    /// The records of entries, by the entries' ids.
    placed: HashMap<String, u32>,
    count: u32,
    astray: u64,
    remarks: Vec<String>,
    companions: Vec<Companion>,
}

impl Reader {
    fn place(&mut self, entry: &Value) -> Place {
        let last = self.count.checked_sub(1).map_or(Place::Root, Place::After);
        // A message of a document without a journal has no id, and stands in its line.
        if entry.get("id").is_none() && entry.get("parent_id").is_none() {
            return last;
        }
        match entry.get("parent_id") {
            Some(Value::String(parent)) => match self.placed.get(parent) {
                Some(record) => Place::After(*record),
                None => {
                    self.astray += 1;
                    Place::Root
                }
            },
            _ => Place::Root,
        }
    }
}

impl SourceReader for Reader {
    fn frame(&mut self, bytes: &[u8]) {
        let Ok((frame, _)) = read::<Frame>(bytes) else {
            self.remarks.push("what stands around its messages can't be read".to_owned());
            return;
        };
        if let Some(version) = frame.schema_version.0.filter(|version| *version > KNOWN_SCHEMA) {
            self.remarks
                .push(format!("its schema version is {version}; {KNOWN_SCHEMA} is known, and it was read as that"));
        }
        let Metadata { id, title, created_at, updated_at, model, .. } = frame.metadata;
        let facts = &mut self.facts;
        let time = |word: Word| word.0.as_deref().and_then(Timestamp::parse);
        facts.session_id = id.0;
        let title = title.0.map(|title| one_line(&title, TITLE_CHARS));
        facts.title = title.filter(|title| !title.is_empty() && title != UNTITLED);
        (facts.created_at, facts.updated_at, facts.model) = (time(created_at), time(updated_at), model.0);
        facts.provider = frame.metadata.model_provider_id.0.or(frame.metadata.model_provider.0);
        facts.cwd = frame.metadata.workspace.0.map(PathBuf::from);
        facts.source = frame.metadata.mode.0;
        facts.archived = frame.metadata.archived.0.then_some(true);
        // A session at some depth was spawned; at none it was made from the other by a person.
        match frame.metadata.spawn_depth.or_zero() {
            0 => facts.forked_from = frame.metadata.parent_session_id.0,
            _ => facts.parent_session = frame.metadata.parent_session_id.0,
        }
        self.leaf = frame.journal.leaf_id.0.or(frame.leaf_id.0);
        if frame.work_state.is_object() {
            self.companions.push(Companion::Document { name: "work_state", text: frame.work_state.to_string() });
        }
    }

    fn known(&mut self, _record: &KnownRecord<'_>) {
        self.count = self.count.saturating_add(1);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (entry, _) = read::<Value>(bytes).map_err(|error| Skip { reason: format!("unreadable entry: {error}") })?;
        let said = said(&entry);
        let (kind, role) = match str_at(&entry, "kind") {
            "compaction" | "branch_summary" => (Kind::Compaction, Some(Role::System)),
            kind => match speaker(&entry) {
                "" if kind.is_empty() => return Err(Skip { reason: "an entry without a role".to_owned() }),
                "" => (Kind::Event, None),
                long if long.len() > MAX_ROLE_BYTES => (Kind::Event, None),
                role => (Kind::Message, Some(Role::from_word(role))),
            },
        };
        let is_prompt = role == Some(Role::User) && !said.is_empty();
        if is_prompt && self.facts.preview.is_none() {
            self.facts.preview = Some(one_line(&said, PREVIEW_CHARS)).filter(|preview| !preview.is_empty());
        }
        let place = self.place(&entry);
        let id = entry.get("id").and_then(Value::as_str).map(str::to_owned);
        if let Some(id) = &id {
            self.placed.insert(id.clone(), self.count);
        }
        self.count = self.count.saturating_add(1);
        let created_at = Timestamp::parse(str_at(&entry, "created_at"));
        Ok(Record { place, kind, role, created_at, source_id: id, starts_turn: is_prompt, note: Vec::new() })
    }

    fn facts(&self) -> ThreadFacts {
        self.facts.clone()
    }

    fn state(&self) -> Vec<u8> {
        Vec::new()
    }

    fn head(&self) -> Option<RecordNo> {
        self.placed.get(self.leaf.as_ref()?).copied()
    }

    fn companions(&self) -> Vec<Companion> {
        self.companions.clone()
    }

    fn findings(&self) -> Findings {
        let mut remarks = self.remarks.clone();
        if self.astray > 0 {
            remarks.push(format!("{} entries whose parent is not before them are roots", self.astray));
        }
        if let Some(leaf) = self.leaf.as_ref().filter(|leaf| self.count > 0 && !self.placed.contains_key(*leaf)) {
            let leaf: String = leaf.chars().filter(|letter| !letter.is_control()).take(64).collect();
            remarks.push(format!("the leaf {leaf} is no entry of the journal; the last entry is its head"));
        }
        Findings { remarks, ..Findings::default() }
    }
}
