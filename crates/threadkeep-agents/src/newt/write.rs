//! Writing a thread as a conversation of newt: a database of its own, whose chain is made anew.
//!
//! Newt orders turns by what their writers counted and not by clocks, so the session gets a writer of its own, which newt takes
//! as one that handed over. What newt said itself keeps its words, events and times; the hashes are all new, since a turn's place
//! is a part of them.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, ToSql};
use serde_json::{Value, json};
use threadkeep::Timestamp;

use super::chain::{EMPTY_LIST, Preimage, TURN_VERSION, Turn, fingerprint, genesis};
use crate::codec::Skip;
use crate::conversation::{Author, Block, Message, Standing};
use crate::json::one_line;
use crate::rows::Row;
use crate::writer::{Losses, Session, Writer, Written, image, lost};

/// Tables by newt's documented schema; what is not here newt adds when it opens the file.
pub(super) const SCHEMA: &str = "
CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT NOT NULL, workspace_path TEXT NOT NULL, workspace_key TEXT NOT NULL,
  persona TEXT, end_reason TEXT, writer_fingerprint TEXT NOT NULL, activity_tick INTEGER NOT NULL, tip_hash TEXT NOT NULL,
  started_at_claim INTEGER NOT NULL, updated_at_claim INTEGER NOT NULL, scratchpad TEXT NOT NULL DEFAULT '{}',
  plan TEXT NOT NULL DEFAULT '{}', roadmap_id TEXT, node_id TEXT, preference_pin TEXT NOT NULL DEFAULT '{}');
CREATE INDEX idx_conversations_ws_tick ON conversations (workspace_key, activity_tick);
CREATE TABLE turns (conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE, writer_fingerprint TEXT NOT NULL,
  seq INTEGER NOT NULL, prev_hash TEXT NOT NULL, user TEXT NOT NULL, assistant TEXT NOT NULL, events TEXT NOT NULL DEFAULT '[]',
  tokens_in INTEGER, tokens_out INTEGER, ts_claim INTEGER NOT NULL, encoding_version INTEGER NOT NULL DEFAULT 1,
  phantom_reaches TEXT NOT NULL DEFAULT '[]', sources TEXT NOT NULL DEFAULT '[]',
  PRIMARY KEY (conversation_id, writer_fingerprint, seq));
CREATE TABLE writer_clock (writer_fingerprint TEXT PRIMARY KEY, last_tick INTEGER NOT NULL);
CREATE TABLE writer_tips (conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
  writer_fingerprint TEXT NOT NULL, tip_hash TEXT NOT NULL, tip_seq INTEGER NOT NULL,
  PRIMARY KEY (conversation_id, writer_fingerprint));
";
const CONVERSATION: &str =
    "INSERT INTO conversations (id, title, workspace_path, workspace_key, writer_fingerprint, activity_tick,
  tip_hash, started_at_claim, updated_at_claim) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const TURN: &str = "INSERT INTO turns (conversation_id, writer_fingerprint, seq, prev_hash, user, assistant, events, tokens_in,
  tokens_out, ts_claim, encoding_version, phantom_reaches, sources) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
/// Newt's word for sources that are not known.
const UNKNOWN_SOURCE: &str = "0000000000000000000000000000000000000000000000000000000000000000";
pub(super) const TITLE_CHARS: usize = 200;
const NANOS: i64 = 1_000_000;
/// Creating the conversation is the writer's first tick.
pub(super) const FIRST_SEQ: i64 = 2;

/// A turn that was not placed yet.
#[derive(Debug, Default)]
struct Draft {
    user: String,
    assistant: String,
    events: Vec<Value>,
    /// Of newt's own turns: their columns as they are.
    own_events: Option<(String, String)>,
    tokens: (Option<i64>, Option<i64>),
    at: Option<i64>,
    /// The content ids that a summary cites, by the turns that it was made of.
    sources: Option<Vec<String>>,
    /// Whether a receipt of its prompt stands before it.
    has_receipt: bool,
}

/// The turns of a path, before they have their places.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    turns: Vec<Draft>,
    /// Where the event of a call is, by the call.
    open: HashMap<String, (usize, usize)>,
    pub(super) losses: Losses,
}

impl Drafts {
    /// Takes a message in.
    pub(super) fn message(&mut self, message: &Message) {
        match (message.author, message.standing) {
            (_, Standing::Summary) => self.summary(message),
            (Author::System, _) => self.losses.count(lost::INSTRUCTIONS),
            (Author::Model, _) => self.answer(message),
            (Author::Tool, _) => self.results(message),
            (Author::Person, standing) => {
                // Some agents give the results in the person's name.
                self.results(message);
                let said = words(message, &mut self.losses);
                if said.is_empty() {
                    return;
                }
                if standing == Standing::Injected {
                    self.losses.count(lost::INJECTED);
                }
                self.begin_turn(said, message.created_at);
            }
        }
    }

    /// Takes in a prompt that has a receipt: the tick before its turn's is the receipt's.
    pub(super) fn prompt(&mut self, text: &str, at: Timestamp) {
        self.begin_turn(text.to_owned(), Some(at));
        if let Some(turn) = self.turns.last_mut() {
            turn.has_receipt = true;
        }
    }

    /// Takes in a record of newt's own; gives `false` where it is none.
    pub(super) fn carry(&mut self, record: &[u8]) -> bool {
        Row::read(record).and_then(|row| self.own(&row)).is_ok()
    }

    fn begin_turn(&mut self, user: String, at: Option<Timestamp>) {
        self.turns.push(Draft { user, at: at.map(nanos), ..Draft::default() });
    }

    /// The turn that something belongs to; what stands behind a summary begins one without a prompt.
    fn turn(&mut self, at: Option<Timestamp>) -> Option<&mut Draft> {
        if self.turns.last().is_none_or(|turn| turn.sources.is_some()) {
            self.begin_turn(String::new(), at);
        }
        self.turns.last_mut()
    }

    fn summary(&mut self, message: &Message) {
        let text = words(message, &mut self.losses);
        let at = message.created_at.map(nanos);
        self.turns.push(Draft { user: text, at, sources: Some(Vec::new()), ..Draft::default() });
    }

    fn answer(&mut self, message: &Message) {
        let said = words(message, &mut self.losses);
        let calls: Vec<(String, Value)> = message.blocks.iter().filter_map(event).collect();
        let Some(turn) = self.turn(message.created_at) else { return };
        join(&mut turn.assistant, &said);
        if let Some(usage) = message.usage {
            let add = |sum: &mut Option<i64>, tokens: u64| {
                *sum = Some(sum.unwrap_or(0).saturating_add(i64::try_from(tokens).unwrap_or(i64::MAX)));
            };
            add(&mut turn.tokens.0, usage.input);
            add(&mut turn.tokens.1, usage.output);
        }
        for (id, event) in calls {
            self.losses.count(lost::CALL_BODIES);
            let Some(turn) = self.turn(message.created_at) else { return };
            turn.events.push(event);
            let place = (self.turns.len(), self.turns.last().map_or(0, |turn| turn.events.len()));
            self.open.insert(id, place);
        }
    }

    /// Newt keeps of a result whether it was one.
    fn results(&mut self, message: &Message) {
        for block in &message.blocks {
            let Block::Result { id, is_error, .. } = block else { continue };
            let place = self.open.remove(id);
            let event = place.and_then(|(turn, event)| {
                self.turns.get_mut(turn.checked_sub(1)?)?.events.get_mut(event.checked_sub(1)?)
            });
            match event {
                Some(event) => event["ok"] = Value::from(!is_error),
                None => self.losses.count(lost::RESULTS),
            }
        }
    }

    /// A part of one of newt's own turns.
    fn own(&mut self, row: &Row) -> Result<(), Skip> {
        let text = |column: &str| row.required(column).map(str::to_owned);
        match row.text("part")? {
            Some("prompt") => {
                let (user, sources) = (text("text")?, text("sources")?);
                let at = row.int("ts_claim")?;
                let sources: Vec<String> = serde_json::from_str(&sources).unwrap_or_default();
                self.turns.push(Draft {
                    user,
                    at,
                    sources: (!sources.is_empty()).then_some(sources),
                    ..Draft::default()
                });
            }
            Some("events") => {
                let own = (text("events")?, text("phantom_reaches")?);
                if let Some(turn) = self.turns.last_mut() {
                    turn.own_events = Some(own);
                }
            }
            Some("answer") => {
                let (answer, tokens) = (text("text")?, (row.int("tokens_in")?, row.int("tokens_out")?));
                // A summary has its answer in its own turn, and it is nothing.
                if let Some(turn) = self.turns.last_mut() {
                    join(&mut turn.assistant, &answer);
                    turn.tokens = tokens;
                }
            }
            Some(_) => return Err(row.wrong("part", "an unknown word")),
            None => {
                let (user, assistant) = (text("user")?, row.text("assistant")?.unwrap_or_default().to_owned());
                self.turns.push(Draft { user, assistant, ..Draft::default() });
            }
        }
        Ok(())
    }

    /// Newt's own events of a turn, and behind them those of calls that were made here.
    fn with_calls(&mut self, own: String, made: Vec<Value>) -> String {
        if made.is_empty() {
            return own;
        }
        match serde_json::from_str::<Vec<Value>>(&own) {
            Ok(events) => Value::Array(events.into_iter().chain(made).collect()).to_string(),
            Err(_) => {
                self.losses.add(lost::CALLS, made.len() as u64);
                own
            }
        }
    }

    /// Places the drafts from a tick on: every summary cites what is there. `begun` is the time of what has none.
    pub(super) fn placed(&mut self, conversation: &str, writer: &str, first: i64, begun: i64) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::with_capacity(self.turns.len());
        let mut moved: HashMap<String, String> = HashMap::new();
        let mut since: Vec<String> = Vec::new();
        let mut prev_hash = genesis(conversation.as_bytes(), writer.as_bytes());
        let mut last_claim = begun;
        let mut seq = first - 1;
        for draft in std::mem::take(&mut self.turns) {
            seq += if draft.has_receipt { 2 } else { 1 };
            let (events, reaches) = match draft.own_events {
                Some(own) => (self.with_calls(own.0, draft.events), own.1),
                None => (Value::Array(draft.events).to_string(), "[]".to_owned()),
            };
            last_claim = draft.at.unwrap_or(last_claim);
            let mut turn = Turn {
                conversation: conversation.as_bytes().to_vec(),
                writer: writer.as_bytes().to_vec(),
                seq,
                prev_hash: prev_hash.into_bytes(),
                user: draft.user.into_bytes(),
                assistant: draft.assistant.into_bytes(),
                events: events.into_bytes(),
                phantom_reaches: reaches.into_bytes(),
                sources: EMPTY_LIST.to_vec(),
                tokens_in: draft.tokens.0,
                tokens_out: draft.tokens.1,
                ts_claim: last_claim,
                version: TURN_VERSION,
            };
            if let Some(cited) = draft.sources {
                turn.sources = canonical(&cited);
                let before = turn.content_id();
                // What was cited may stand here under another id, or not at all.
                let known: Vec<String> = cited.iter().filter_map(|id| moved.get(id).cloned()).collect();
                let own = if cited.is_empty() { since.clone() } else { known };
                turn.sources = canonical(&own);
                moved.insert(before, turn.content_id());
                since.clear();
            } else {
                moved.insert(turn.content_id(), turn.content_id());
            }
            since.push(turn.content_id());
            prev_hash = turn.hash().unwrap_or_default();
            turns.push(turn);
        }
        turns
    }
}

/// Whether newt takes an id.
pub(super) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

pub(super) struct NewtWriter {
    session: Session,
    drafts: Drafts,
}

impl NewtWriter {
    pub(super) fn new(session: &Session) -> Self {
        Self { session: session.clone(), drafts: Drafts::default() }
    }

    fn fill(&mut self, database: &Connection) -> rusqlite::Result<()> {
        let conversation =
            Some(self.session.id.clone()).filter(|id| is_id(id)).unwrap_or_else(|| self.session.uuid().to_string());
        let writer = fingerprint(&self.session.made("newt writer", 0).to_string());
        let turns = self.drafts.placed(&conversation, &writer, FIRST_SEQ, nanos(self.session.created_at));
        let tip = match turns.last() {
            Some(turn) => turn.hash().unwrap_or_default(),
            None => genesis(conversation.as_bytes(), writer.as_bytes()),
        };
        let last = turns.last().map_or(FIRST_SEQ - 1, |turn| turn.seq);
        let (folder, key) = workspace(&self.session);
        let title = self.session.title.as_deref().or(self.session.preview.as_deref()).unwrap_or("Untitled");
        database.execute_batch(SCHEMA)?;
        let (started, updated) = (nanos(self.session.created_at), nanos(self.session.updated_at));
        let title = one_line(title, TITLE_CHARS);
        let row: [&dyn ToSql; 9] = [&conversation, &title, &folder, &key, &writer, &last, &tip, &started, &updated];
        database.execute(CONVERSATION, &row[..])?;
        let mut insert = database.prepare(TURN)?;
        for turn in &turns {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let texts =
                [&turn.prev_hash, &turn.user, &turn.assistant, &turn.events, &turn.phantom_reaches, &turn.sources];
            let [prev, user, assistant, events, reaches, sources] = texts.map(|bytes| text(bytes));
            let row: [&dyn ToSql; 13] = [
                &conversation,
                &writer,
                &turn.seq,
                &prev,
                &user,
                &assistant,
                &events,
                &turn.tokens_in,
                &turn.tokens_out,
                &turn.ts_claim,
                &turn.version,
                &reaches,
                &sources,
            ];
            insert.execute(&row[..])?;
        }
        database.execute("INSERT INTO writer_clock VALUES (?1, ?2)", (&writer, last))?;
        if !turns.is_empty() {
            database
                .execute("INSERT INTO writer_tips VALUES (?1, ?2, ?3, ?4)", (&conversation, &writer, &tip, last))?;
        }
        Ok(())
    }
}

impl Writer for NewtWriter {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn message(&mut self, message: &Message, _out: &mut Vec<u8>) {
        self.drafts.message(message);
    }

    fn carry(&mut self, record: &[u8], _out: &mut Vec<u8>) -> bool {
        self.drafts.carry(record)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        match image(|database| self.fill(database)) {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(error) => tracing::error!(%error, "a database in memory could not be filled"),
        }
        Written { companions: Vec::new(), losses: self.drafts.losses.take() }
    }
}

pub(super) fn nanos(at: Timestamp) -> i64 {
    at.millis().saturating_mul(NANOS)
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

/// The words of a message; what is none is named or counted.
fn words(message: &Message, losses: &mut Losses) -> String {
    let mut text = String::new();
    for block in &message.blocks {
        match block {
            Block::Text(said) => join(&mut text, said),
            Block::Reasoning { .. } => losses.count(lost::THOUGHTS),
            Block::Media { media_type, data } => {
                losses.count(lost::MEDIA);
                join(&mut text, &Block::named(media_type, data));
            }
            Block::Call { .. } | Block::Result { .. } => {}
        }
    }
    text
}

/// A call as newt keeps it: the names of its arguments, and a digest of them.
fn event(block: &Block) -> Option<(String, Value)> {
    let Block::Call { id, name, input } = block else { return None };
    let names: Vec<&str> = input.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let hash = blake3::hash(input.to_string().as_bytes()).to_hex();
    let digest = format!("{} b3:{}", names.join(","), hash.get(..16).unwrap_or_default());
    Some((id.clone(), json!({ "tool": name, "args_digest": digest, "ok": false })))
}

/// A list of sources as newt writes it; that nothing is known of them where there are none.
fn canonical(ids: &[String]) -> Vec<u8> {
    let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let ids = if ids.is_empty() { BTreeSet::from([UNKNOWN_SOURCE]) } else { ids };
    serde_json::to_vec(&ids).unwrap_or_default()
}

/// The folder, and the key that newt finds its conversations by: of the repository and its branch, else of the folder.
pub(super) fn workspace(session: &Session) -> (String, String) {
    let folder = session.cwd.as_deref().and_then(|cwd| cwd.to_str()).unwrap_or("/").to_owned();
    let key = match (&session.git_origin, &session.git_branch) {
        (Some(origin), Some(branch)) => {
            let mut preimage = Preimage::new("newt-workspace-key:v2:git");
            preimage.bytes(origin.as_bytes());
            preimage.bytes(branch.as_bytes());
            preimage
        }
        _ => {
            let mut preimage = Preimage::new("newt-workspace-key:v2:path");
            preimage.bytes(folder.replace('\\', "/").as_bytes());
            preimage
        }
    };
    (folder, key.hex())
}
