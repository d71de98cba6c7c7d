//! Writing threads as a store of newt. A conversation that came from newt and is as it was then stands there with its own rows and
//! hashes, so that newt verifies its own writers' chains; of every other thread the path is chained anew, by one writer of the store.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use threadkeep::{Artifact, Error, Prompt, PromptId, PromptOrigin, Timestamp};

use super::beside::of_conversation;
use super::chain::{Turn, fingerprint, genesis};
use super::prompts::{Lineage, artifact_genesis, artifact_hash, receipt_hash, text_digest};
use super::write::{Drafts, FIRST_SEQ, SCHEMA, TITLE_CHARS, is_id, nanos, workspace};
use super::{DATABASE, EMPTY_MAP, MIGRATIONS};
use crate::companion::{Companion, Shared};
use crate::json::one_line;
use crate::rows::Row;
use crate::writer::{Dated, Entry, Image, Losses, Said, StoreWriter, Whole, Written, lost};

/// The tables of what stands beside turns, by newt's documented schema.
const BESIDE: &str = "
CREATE TABLE prompt_receipts (receipt_order INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
  conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE, writer_fingerprint TEXT NOT NULL, seq INTEGER NOT NULL,
  previous_prompt_id TEXT REFERENCES prompt_receipts(id), parent_prompt_id TEXT REFERENCES prompt_receipts(id),
  root_prompt_id TEXT NOT NULL REFERENCES prompt_receipts(id), active_operator_id TEXT REFERENCES prompt_receipts(id),
  origin TEXT NOT NULL CHECK (origin IN ('operator', 'harness_retry')), raw_text BLOB NOT NULL, model_text BLOB NOT NULL,
  raw_digest TEXT NOT NULL, model_digest TEXT NOT NULL, receipt_hash TEXT NOT NULL, ts_claim INTEGER NOT NULL,
  encoding_version INTEGER NOT NULL DEFAULT 1, UNIQUE (conversation_id, writer_fingerprint, seq));
CREATE INDEX idx_prompt_receipts_conversation ON prompt_receipts (conversation_id, receipt_order);
CREATE INDEX idx_prompt_receipts_root ON prompt_receipts (root_prompt_id);
CREATE UNIQUE INDEX idx_prompt_receipts_conversation_id ON prompt_receipts (conversation_id, id);
CREATE TABLE prompt_artifacts (id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
  writer_fingerprint TEXT NOT NULL, seq INTEGER NOT NULL CHECK (seq > 0), prev_hash TEXT NOT NULL, prompt_id TEXT NOT NULL,
  root_prompt_id TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('plan_revision', 'compaction_checkpoint', 'file_change', 'turn_outcome',
  'commit', 'decision')), relation TEXT NOT NULL CHECK (relation IN ('derived_from', 'updates', 'summarizes', 'realizes')),
  locator TEXT CHECK (length(CAST(locator AS BLOB)) <= 4096), body TEXT CHECK (length(CAST(body AS BLOB)) <= 65536),
  metadata TEXT NOT NULL CHECK (json_valid(metadata) AND json_type(metadata) = 'object' AND length(CAST(metadata AS BLOB)) <= 16384),
  ts_claim INTEGER NOT NULL, encoding_version INTEGER NOT NULL DEFAULT 1, artifact_hash TEXT NOT NULL, UNIQUE (conversation_id, seq),
  FOREIGN KEY (conversation_id, prompt_id) REFERENCES prompt_receipts(conversation_id, id) ON DELETE CASCADE,
  FOREIGN KEY (conversation_id, root_prompt_id) REFERENCES prompt_receipts(conversation_id, id) ON DELETE CASCADE);
CREATE INDEX idx_prompt_artifacts_prompt ON prompt_artifacts (conversation_id, prompt_id, seq);
CREATE INDEX idx_prompt_artifacts_root ON prompt_artifacts (conversation_id, root_prompt_id, seq);
CREATE TABLE prompt_artifact_tips (conversation_id TEXT PRIMARY KEY REFERENCES conversations(id) ON DELETE CASCADE,
  last_seq INTEGER NOT NULL CHECK (last_seq > 0), tip_hash TEXT NOT NULL);
CREATE TABLE roadmaps (id TEXT NOT NULL, workspace_key TEXT NOT NULL, title TEXT NOT NULL DEFAULT '', tree TEXT NOT NULL DEFAULT '',
  schema_version INTEGER NOT NULL DEFAULT 1, created_at_claim INTEGER NOT NULL DEFAULT 0, updated_at_claim INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (id, workspace_key));
CREATE INDEX idx_roadmaps_workspace ON roadmaps (workspace_key);
CREATE TABLE conversation_inbox (id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, workspace_key TEXT NOT NULL, seq INTEGER NOT NULL,
  body TEXT NOT NULL, idem_key TEXT, delivered INTEGER NOT NULL DEFAULT 0, delivered_receipt_id TEXT, injected_at_claim INTEGER NOT NULL,
  UNIQUE (conversation_id, idem_key));
CREATE INDEX idx_conversation_inbox ON conversation_inbox (conversation_id, workspace_key, delivered, seq);
CREATE TABLE enrollment_requests (request_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, workspace_key TEXT NOT NULL,
  candidate_json TEXT NOT NULL, resolved INTEGER NOT NULL DEFAULT 0, resolved_by TEXT, created_tick INTEGER NOT NULL);
CREATE INDEX idx_enrollment_requests ON enrollment_requests (conversation_id, workspace_key, resolved);
CREATE TABLE store_migrations (name TEXT PRIMARY KEY);
";
/// Tables that not every newt has.
const SOMETIMES: [(&str, &str); 3] = [
    (
        "permission_requests",
        "(request_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, workspace_key TEXT NOT NULL, requests_json TEXT NOT NULL,
           danger_json TEXT, verdict TEXT, answered_by TEXT, resolved INTEGER NOT NULL DEFAULT 0, created_tick INTEGER NOT NULL)",
    ),
    (
        "interaction_offers",
        "(instance_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, workspace_key TEXT NOT NULL, definition_json TEXT NOT NULL,
           instance_json TEXT NOT NULL, danger_tier TEXT NOT NULL, published_tick INTEGER NOT NULL, outcome TEXT, response_json TEXT,
           resolved_tick INTEGER)",
    ),
    (
        "context_windows",
        "(conversation_id TEXT NOT NULL, window_id TEXT NOT NULL, parent_id TEXT, summary_turn_id TEXT, carried TEXT, elided TEXT,
           sealed_at_seq INTEGER, PRIMARY KEY (conversation_id, window_id))",
    ),
];
/// Each writer's clock is at the last tick that it has used.
const CLOCKS: &str = "
INSERT INTO writer_clock SELECT writer, max(tick) FROM (SELECT writer_fingerprint AS writer, seq AS tick FROM turns UNION ALL
  SELECT writer_fingerprint, seq FROM prompt_receipts UNION ALL SELECT writer_fingerprint, activity_tick FROM conversations)
  GROUP BY writer;
";
/// The documents of a conversation, by their columns.
const DOCUMENTS: [(&str, &str); 3] = [("scratchpad", "scratchpad"), ("plan", "plan"), ("preference_pin", "pin")];
/// What newt takes in a pin: anything else makes it refuse the whole.
const PIN: [&str; 6] = ["backend", "model", "cognition", "tenacity", "initiative", "obsessive"];
/// What newt takes of an artifact, in bytes.
const MOST: [(&str, usize); 3] = [("locator", 4096), ("body", 65_536), ("metadata", 16_384)];
/// What the writer of such stores has in the place of an installation's nonce.
const NONCE: &str = "threadkeep";
/// What counts higher is no tick of any writer: there must be room behind it.
const MAX_TICK: i64 = i64::MAX / 2;

/// A store that is being written.
#[derive(Debug)]
pub(super) struct NewtStore {
    image: Image,
    losses: Losses,
    writer: String,
    conversations: HashSet<String>,
    /// The last tick of the store's own writer, and of all others.
    tick: i64,
    /// The workspaces of the conversations that stand in a roadmap, which is one of a workspace of the library's.
    roadmaps: BTreeMap<(Option<String>, String), BTreeSet<String>>,
}

/// The rows that a conversation had in a store of newt's.
#[derive(Debug, Default)]
struct Rows {
    conversation: Option<Row>,
    /// The parts of its turns, in their order.
    parts: Vec<Row>,
    beside: Vec<Row>,
}

impl Rows {
    fn read(rows: &[Vec<u8>]) -> Self {
        let mut found = Self::default();
        for row in rows.iter().filter_map(|row| Row::read(row).ok()) {
            match row.table() {
                "conversations" => found.conversation = Some(row),
                "turns" => found.parts.push(row),
                _ => found.beside.push(row),
            }
        }
        found
    }

    fn of<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a Row> {
        self.beside.iter().filter(move |row| row.table() == table)
    }

    /// Whether receipts and artifacts hold as they are.
    fn hold(&self) -> bool {
        let mut lineage = Lineage::default();
        let read = self.beside.iter().try_for_each(|row| match row.table() {
            "prompt_receipts" => lineage.receipt(row),
            "prompt_artifacts" => lineage.artifact(row),
            "prompt_artifact_tips" => lineage.artifact_tip(row),
            _ => Ok(()),
        });
        read.is_ok() && lineage.remarks().is_empty()
    }
}

impl NewtStore {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            image: Image::new(&format!("{SCHEMA}{BESIDE}"))?,
            losses: Losses::default(),
            writer: fingerprint(NONCE),
            conversations: HashSet::new(),
            tick: FIRST_SEQ - 2,
            roadmaps: BTreeMap::new(),
        })
    }

    fn put(&mut self, table: &'static str, row: &Row) -> Result<bool, Error> {
        // The number of a receipt is one of its whole store, and nothing is said of it.
        let columns =
            row.columns().filter(|(name, _)| !matches!(*name, MIGRATIONS | "part" | "text" | "receipt_order"));
        let is_put = self.image.row(table, columns)?;
        self.losses.add(lost::ROWS, u64::from(!is_put));
        Ok(is_put)
    }

    /// Goes on from the tick that a row has used.
    fn reach(&mut self, row: &Row, column: &str) {
        let tick = row.int(column).ok().flatten().filter(|tick| *tick <= MAX_TICK);
        self.tick = self.tick.max(tick.unwrap_or_default());
    }

    /// A conversation as newt had it.
    fn kept(&mut self, id: &str, whole: &Whole, rows: &Rows, row: &Row) -> Result<u64, Error> {
        let conversation = self.conversation(id, whole, Some(row));
        self.put("conversations", &conversation)?;
        self.reach(row, "activity_tick");
        for turn in turns(&rows.parts) {
            self.reach(&turn, "seq");
            self.put("turns", &turn)?;
        }
        for witness in rows.of("writer_tips") {
            self.put("writer_tips", witness)?;
        }
        self.beside(whole, rows)?;
        Ok(rows.parts.len() as u64)
    }

    /// The path of a thread as a conversation whose chain is made anew; gives how many records were newt's own, and how many messages
    /// were written.
    fn chained(&mut self, id: &str, whole: &Whole, rows: &Rows) -> Result<(u64, u64), Error> {
        let path = path(&whole.entries, whole.head);
        self.losses.add(lost::BRANCHES, (whole.entries.len() - path.len()) as u64);
        let mut drafts = Drafts::default();
        let (mut prompts, mut artifacts): (Vec<&Prompt>, Vec<&Artifact>) = (Vec::new(), Vec::new());
        let mut written = (0, 0);
        for entry in path {
            match &entry.said {
                Said::Own(record) if drafts.carry(record) => written.0 += 1,
                Said::Own(_) | Said::Nothing => {}
                Said::Message(message) => {
                    drafts.message(message);
                    written.1 += 1;
                }
                Said::Prompt(prompt) => {
                    drafts.prompt(&prompt.text, prompt.receipt.created_at);
                    prompts.push(prompt);
                    written.1 += 1;
                }
                Said::Artifact(artifact) => artifacts.push(artifact),
            }
        }
        // They are bound to the conversation's id, and not to its turns.
        let is_same = rows.conversation.as_ref().is_some_and(|row| row.word("id").as_deref() == Some(id));
        let is_own = is_same && !whole.is_changed && rows.hold();
        if is_own {
            // They may be of this very writer, from a store that was made here before.
            rows.of("prompt_receipts").for_each(|row| self.reach(row, "seq"));
        }
        let created = self.tick + 1;
        let writer = self.writer.clone();
        let turns = drafts.placed(id, &writer, created + 1, nanos(whole.session.created_at));
        self.losses.merge(drafts.losses.take());
        let tip = turns.last().and_then(Turn::hash).unwrap_or_else(|| genesis(id.as_bytes(), writer.as_bytes()));
        let last = turns.last().map_or(created, |turn| turn.seq);
        let mut row = self.conversation(id, whole, rows.conversation.as_ref());
        row.set("writer_fingerprint", json!(writer));
        row.set("activity_tick", json!(last));
        row.set("tip_hash", json!(tip));
        self.put("conversations", &row)?;
        for turn in &turns {
            self.put("turns", &turn_row(turn))?;
        }
        if !turns.is_empty() {
            let mut witness = Row::new();
            witness.set("conversation_id", json!(id));
            witness.set("writer_fingerprint", json!(writer));
            witness.set("tip_hash", json!(tip));
            witness.set("tip_seq", json!(last));
            self.put("writer_tips", &witness)?;
        }
        self.tick = last;
        let count = |table: &str| rows.of(table).count() as u64;
        if is_own {
            self.beside(whole, rows)?;
        } else {
            self.losses.add(lost::RECEIPTS, count("prompt_receipts") + count("prompt_artifacts"));
            self.inbox(id, whole, &Rows::default())?;
        }
        let old = if is_own { rows } else { &Rows::default() };
        self.receipts(id, old, &prompts, &turns)?;
        self.artifacts(id, old, &artifacts)?;
        Ok(written)
    }

    /// A conversation's row: as newt had it, but for what was changed here.
    fn conversation(&mut self, id: &str, whole: &Whole, old: Option<&Row>) -> Row {
        let session = &whole.session;
        let mut row = old.cloned().unwrap_or_else(Row::new);
        row.set("id", json!(id));
        let title = session.title.as_deref().or(session.preview.as_deref()).unwrap_or("Untitled");
        let there = old.and_then(|old| old.word("title")).map(|title| one_line(&title, crate::codec::TITLE_CHARS));
        if old.is_none() || there.as_deref() != session.title.as_deref() {
            row.set("title", json!(one_line(title, TITLE_CHARS)));
        }
        if old.is_none() {
            let (folder, key) = workspace(session);
            row.set("workspace_path", json!(folder));
            row.set("workspace_key", json!(key));
            row.set("started_at_claim", json!(nanos(session.created_at)));
        }
        if old.is_none() || !whole.is_as_imported {
            row.set("updated_at_claim", json!(nanos(session.updated_at)));
        }
        let persona = whole.thread.details.persona.as_deref();
        if old.and_then(|old| old.word("persona")).as_deref() != persona {
            row.set("persona", json!(persona));
        }
        let said = old.map(|old| of_conversation(old).0).unwrap_or_default();
        for (column, name) in DOCUMENTS {
            let is_it =
                |companion: &&Companion| matches!(companion, Companion::Document { name: found, .. } if *found == name);
            let (there, here) = (said.iter().find(is_it), whole.beside.iter().map(|dated| &dated.what).find(is_it));
            // What newt splits once it may never split in a store that carries the mark of it, so the pin is written split.
            let is_unsplit = name == "pin"
                && old.is_some_and(|old| {
                    let is_here =
                        |text: &str| matches!(here, Some(Companion::Document { text: here, .. }) if here == text);
                    here.is_some()
                        && old.word(MIGRATIONS).is_none()
                        && !old.text(column).is_ok_and(|text| text.is_some_and(is_here))
                });
            if old.is_none() || there != here || is_unsplit {
                let text = match here {
                    Some(Companion::Document { text, .. }) => document(name, text),
                    _ => Some("{}".to_owned()),
                };
                self.losses.add(lost::DOCUMENTS, u64::from(text.is_none()));
                row.set(column, json!(text.as_deref().unwrap_or(EMPTY_MAP.trim_matches('\''))));
            }
        }
        let (mut link, mut end) = (None, None);
        for dated in &whole.beside {
            match &dated.what {
                Companion::Link { roadmap, node } => link = Some((roadmap, node)),
                Companion::Standing { end_reason, .. } => end = end_reason.as_deref(),
                Companion::Goal(_) => self.losses.count(lost::GOALS),
                Companion::Checkpoint { .. } => self.losses.count(lost::CHECKPOINTS),
                Companion::Tools(_) => self.losses.count(lost::TOOLS),
                Companion::Request { .. } => self.losses.count(lost::REQUESTS),
                Companion::Document { name, .. } => {
                    self.losses.add(lost::DOCUMENTS, u64::from(DOCUMENTS.iter().all(|(_, known)| known != name)));
                }
                Companion::Message { .. } => {}
            }
        }
        row.set("roadmap_id", json!(link.map(|(roadmap, _)| roadmap)));
        row.set("node_id", json!(link.and_then(|(_, node)| node.as_deref())));
        row.set("end_reason", json!(end));
        if let (Some((roadmap, _)), Some(key)) = (link, row.word("workspace_key")) {
            self.roadmaps.entry((whole.roadmap_home.clone(), roadmap.clone())).or_default().insert(key);
        }
        for name in row.word(MIGRATIONS).iter().flat_map(|names| names.lines()) {
            // What newt did once to these pins it need not do again.
            let insert = "INSERT OR IGNORE INTO store_migrations (name) VALUES (?1)";
            if self.image.execute(insert, &[&name]).is_err() {
                self.losses.count(lost::ROWS);
            }
        }
        row
    }

    /// What stood beside a conversation of newt's, and still does.
    fn beside(&mut self, whole: &Whole, rows: &Rows) -> Result<(), Error> {
        for table in ["prompt_receipts", "prompt_artifacts", "prompt_artifact_tips", "enrollment_requests"] {
            for row in rows.of(table) {
                if table == "prompt_receipts" {
                    self.reach(row, "seq");
                }
                self.put(table, row)?;
            }
        }
        for (table, columns) in SOMETIMES {
            // Windows name turns by what they are chained to.
            if rows.of(table).next().is_none() || (table == "context_windows" && !whole.is_as_imported) {
                continue;
            }
            self.image.run(&format!("CREATE TABLE IF NOT EXISTS {table} {columns}"))?;
            for row in rows.of(table) {
                self.put(table, row)?;
            }
        }
        let id = rows.conversation.as_ref().and_then(|row| row.word("id")).unwrap_or_default();
        self.inbox(&id, whole, rows)
    }

    /// The messages that wait, and newt's own that were delivered.
    fn inbox(&mut self, id: &str, whole: &Whole, rows: &Rows) -> Result<(), Error> {
        let mut waiting: HashMap<&str, (&str, Timestamp)> = HashMap::new();
        let mut order = Vec::new();
        for dated in &whole.beside {
            if let Companion::Message { id, body } = &dated.what {
                waiting.insert(id, (body, dated.created_at));
                order.push(id.as_str());
            }
        }
        let mut last = 0;
        for row in rows.of("conversation_inbox") {
            let is_delivered = row.int("delivered").ok().flatten().unwrap_or_default() != 0;
            if waiting.remove(row.label("id").as_str()).is_some() || is_delivered {
                last = last.max(row.int("seq").ok().flatten().unwrap_or_default());
                self.put("conversation_inbox", row)?;
            }
        }
        let key = rows.conversation.as_ref().and_then(|row| row.word("workspace_key"));
        let key = key.unwrap_or_else(|| workspace(&whole.session).1);
        for own in order {
            let Some((body, at)) = waiting.get(own) else { continue };
            last += 1;
            let mut row = Row::new();
            row.set("id", json!(own));
            row.set("conversation_id", json!(id));
            row.set("workspace_key", json!(key));
            row.set("seq", json!(last));
            row.set("body", json!(body));
            row.set("delivered", json!(0));
            row.set("injected_at_claim", json!(nanos(*at)));
            self.put("conversation_inbox", &row)?;
        }
        Ok(())
    }

    /// Receipts of the library's prompts, behind newt's own. Their ticks stand before those of their turns.
    fn receipts(&mut self, id: &str, old: &Rows, prompts: &[&Prompt], turns: &[Turn]) -> Result<(), Error> {
        let ticks = {
            let taken: HashSet<i64> = turns.iter().map(|turn| turn.seq).collect();
            turns.iter().map(|turn| turn.seq - 1).filter(|tick| !taken.contains(tick)).collect::<Vec<_>>()
        };
        // The first free tick may be the one that the conversation was created with.
        let ticks = ticks.get(ticks.len().saturating_sub(prompts.len())..).unwrap_or_default();
        let mut known: HashSet<PromptId> = HashSet::new();
        let mut previous = old.of("prompt_receipts").last().and_then(|row| row.word("id"));
        for (prompt, tick) in prompts.iter().zip(ticks) {
            let receipt = &prompt.receipt;
            let parent = receipt.parent.filter(|parent| known.contains(parent));
            let is_whole = parent.is_some()
                && known.contains(&receipt.root)
                && receipt.origin != PromptOrigin::Unknown(String::new());
            let retry = receipt.origin == PromptOrigin::HarnessRetry && is_whole;
            let root = if is_whole { receipt.root } else { receipt.id };
            let active = Some(receipt.active).filter(|active| is_whole && known.contains(active)).unwrap_or(receipt.id);
            self.losses.add(lost::RECEIPTS, u64::from(receipt.parent.is_some() && !is_whole));
            let mut row = Row::new();
            row.set("id", json!(receipt.id.to_string()));
            row.set("conversation_id", json!(id));
            row.set("writer_fingerprint", json!(self.writer));
            row.set("seq", json!(tick));
            row.set("previous_prompt_id", json!(previous));
            row.set("parent_prompt_id", json!(parent.filter(|_| is_whole).map(|parent| parent.to_string())));
            row.set("root_prompt_id", json!(root.to_string()));
            row.set("active_operator_id", json!(active.to_string()));
            row.set("origin", json!(if retry { "harness_retry" } else { "operator" }));
            row.set("raw_text", bytes(&prompt.raw));
            row.set("model_text", bytes(prompt.text.as_bytes()));
            row.set("raw_digest", json!(text_digest("newt-prompt-raw:v1", &prompt.raw)));
            row.set("model_digest", json!(text_digest("newt-prompt-model:v1", prompt.text.as_bytes())));
            row.set("ts_claim", json!(nanos(receipt.created_at)));
            row.set("encoding_version", json!(2));
            let hash = receipt_hash(&row, 2).ok().flatten();
            row.set("receipt_hash", json!(hash));
            if self.put("prompt_receipts", &row)? {
                known.insert(receipt.id);
                previous = Some(receipt.id.to_string());
            }
        }
        Ok(())
    }

    /// The library's artifacts, behind newt's own in one chain.
    fn artifacts(&mut self, id: &str, old: &Rows, artifacts: &[&Artifact]) -> Result<(), Error> {
        let tip = old.of("prompt_artifact_tips").last();
        let mut seq = tip.and_then(|tip| tip.int("last_seq").ok().flatten()).unwrap_or_default();
        let before = tip.and_then(|tip| tip.word("tip_hash"));
        let mut before = before.unwrap_or_else(|| artifact_genesis(id.as_bytes()));
        let begun = seq;
        for artifact in artifacts {
            let find = "SELECT count(*) FROM prompt_receipts WHERE conversation_id = ?1 AND id IN (?2, ?3)";
            let (prompt, root) = (artifact.prompt.to_string(), artifact.root.to_string());
            let expected = if prompt == root { 1 } else { 2 };
            let is_there = self.image.number(find, &[&id, &prompt, &root])? == expected;
            let metadata = serde_json::from_str(&artifact.metadata).map(sorted).unwrap_or(Value::Null).to_string();
            let texts = [artifact.locator.as_deref(), artifact.body.as_deref(), Some(metadata.as_str())];
            let fits = texts.iter().zip(MOST).all(|(text, (_, most))| text.is_none_or(|text| text.len() <= most));
            if !is_there || !fits || artifact.damage.is_some() {
                self.losses.count(lost::RECEIPTS);
                continue;
            }
            let mut row = Row::new();
            for (column, text) in [
                ("id", artifact.id.to_string().as_str()),
                ("conversation_id", id),
                ("writer_fingerprint", &self.writer),
                ("prev_hash", &before),
                ("prompt_id", &prompt),
                ("root_prompt_id", &root),
                ("kind", artifact.kind.as_str()),
                ("relation", artifact.relation.as_str()),
                ("metadata", &metadata),
            ] {
                row.set(column, json!(text));
            }
            row.set("seq", json!(seq + 1));
            row.set("locator", json!(artifact.locator));
            row.set("body", json!(artifact.body));
            row.set("ts_claim", json!(nanos(artifact.created_at)));
            row.set("encoding_version", json!(1));
            let hash = artifact_hash(&row).unwrap_or_default();
            row.set("artifact_hash", json!(hash));
            if self.put("prompt_artifacts", &row)? {
                seq += 1;
                before = hash;
            }
        }
        if seq > begun {
            let tip = "INSERT INTO prompt_artifact_tips (conversation_id, last_seq, tip_hash) VALUES (?1, ?2, ?3)
                ON CONFLICT DO UPDATE SET last_seq = ?2, tip_hash = ?3";
            self.image.execute(tip, &[&id, &seq, &before])?;
        }
        Ok(())
    }
}

impl StoreWriter for NewtStore {
    fn name(&self) -> &'static str {
        DATABASE
    }

    fn thread(&mut self, whole: Whole) -> Result<(u64, u64), Error> {
        let rows = Rows::read(&whole.rows);
        let own = rows.conversation.as_ref().and_then(|row| row.word("id"));
        let free = |id: &String| is_id(id) && !self.conversations.contains(id);
        let own = own.filter(&free);
        let made = whole.session.uuid().to_string();
        let numbered = (1..).map(|number| whole.session.made("newt conversation", number).to_string());
        let ids = own.clone().into_iter().chain([whole.session.id.clone(), made]).chain(numbered);
        let id = ids.into_iter().find(free).unwrap_or_default();
        self.conversations.insert(id.clone());
        if let Some(row) = rows.conversation.as_ref().filter(|_| own.is_some() && whole.is_as_imported) {
            return Ok((self.kept(&id, &whole, &rows, row)?, 0));
        }
        self.chained(&id, &whole, &rows)
    }

    fn shared(&mut self, shared: Vec<Dated<Shared>>) -> Result<(), Error> {
        for Dated { what, created_at, updated_at, .. } in &shared {
            let Shared::Roadmap { workspace, id, title, text, .. } = what else {
                self.losses.count(lost::JOBS);
                continue;
            };
            for key in self.roadmaps.get(&(workspace.clone(), id.clone())).cloned().unwrap_or_default() {
                let mut row = Row::new();
                row.set("id", json!(id));
                row.set("workspace_key", json!(key));
                row.set("title", json!(title.as_deref().unwrap_or_default()));
                row.set("tree", json!(text));
                row.set("created_at_claim", json!(nanos(*created_at)));
                row.set("updated_at_claim", json!(nanos(*updated_at)));
                self.put("roadmaps", &row)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, out: &mut Vec<u8>) -> Result<Written, Error> {
        self.image.run(CLOCKS)?;
        *out = self.image.finish()?;
        Ok(Written { companions: Vec::new(), losses: self.losses.take() })
    }
}

/// The rows of turns, by their parts, which come one after the other.
fn turns(parts: &[Row]) -> Vec<Row> {
    let mut turns: Vec<Row> = Vec::new();
    for part in parts {
        let text = part.columns().find(|(name, _)| *name == "text").map_or(Value::Null, |(_, text)| text.clone());
        let own: &[&str] = match part.text("part") {
            Ok(Some("prompt")) => {
                let mut turn = part.clone();
                for (column, empty) in [("events", "[]"), ("phantom_reaches", "[]"), ("assistant", "")] {
                    turn.set(column, json!(empty));
                }
                turn.set("user", text);
                turns.push(turn);
                continue;
            }
            Ok(Some("events")) => &["events", "phantom_reaches"],
            _ => &["tokens_in", "tokens_out"],
        };
        let Some(turn) = turns.last_mut() else { continue };
        for (column, value) in part.columns().filter(|(column, _)| own.contains(column)) {
            turn.set(column, value.clone());
        }
        if own.contains(&"tokens_in") {
            turn.set("assistant", text);
        }
    }
    turns
}

fn turn_row(turn: &Turn) -> Row {
    let mut row = Row::new();
    for (column, bytes) in [
        ("conversation_id", &turn.conversation),
        ("writer_fingerprint", &turn.writer),
        ("prev_hash", &turn.prev_hash),
        ("user", &turn.user),
        ("assistant", &turn.assistant),
        ("events", &turn.events),
        ("phantom_reaches", &turn.phantom_reaches),
        ("sources", &turn.sources),
    ] {
        row.set(column, json!(String::from_utf8_lossy(bytes)));
    }
    row.set("seq", json!(turn.seq));
    row.set("tokens_in", json!(turn.tokens_in));
    row.set("tokens_out", json!(turn.tokens_out));
    row.set("ts_claim", json!(turn.ts_claim));
    row.set("encoding_version", json!(turn.version));
    row
}

/// Bytes as a row that was read has them.
fn bytes(bytes: &[u8]) -> Value {
    json!({ "hex": HEXLOWER.encode(bytes) })
}

/// The entries from the root to the head.
fn path(entries: &[Entry], head: Option<usize>) -> Vec<&Entry> {
    let above = |entry: &&Entry| entry.parent.and_then(|parent| entries.get(parent));
    let mut path: Vec<&Entry> = std::iter::successors(head.and_then(|head| entries.get(head)), above).collect();
    path.reverse();
    path
}

/// A document as newt takes it; nothing for what makes it refuse the conversation.
fn document(name: &str, text: &str) -> Option<String> {
    let Ok(Value::Object(mut document)) = serde_json::from_str::<Value>(text) else { return None };
    match name {
        "scratchpad" => document.values().all(Value::is_string).then(|| text.to_owned()),
        "pin" => document.keys().all(|key| PIN.contains(&key.as_str())).then(|| text.to_owned()),
        _ => {
            if document.is_empty() {
                return Some("{}".to_owned());
            }
            let steps: Option<Vec<Value>> = document.remove("steps")?.as_array()?.iter().map(step).collect();
            Some(json!({ "steps": steps? }).to_string())
        }
    }
}

/// A step of a plan with newt's capitals.
fn step(step: &Value) -> Option<Value> {
    let status = match step.get("status")?.as_str()?.to_ascii_lowercase().as_str() {
        "todo" => "Todo",
        "active" => "Active",
        "done" => "Done",
        _ => return None,
    };
    Some(json!({ "description": step.get("description")?.as_str()?, "status": status }))
}

/// JSON whose keys are in order: what parses and is written again stays as it is, whether the parser keeps an order or not. As deep
/// as what was parsed, which is not deep.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let sorted_keys: BTreeMap<String, Value> =
                object.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            sorted_keys.into_iter().collect()
        }
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        other => other,
    }
}
