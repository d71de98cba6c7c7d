//! Reading a conversation of newt: its rows in order, or the turns of a document of its first versions.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use threadkeep::{Kind, Role, Timestamp};

use super::beside;
use super::chain::{EMPTY_LIST, Link, Turn, Violation, Witnesses, verify};
use super::prompts::Lineage;
use crate::codec::{Findings, KnownRecord, PREVIEW_CHARS, Place, Record, Skip, SourceReader, TITLE_CHARS, ThreadFacts};
use crate::companion::Companion;
use crate::json::{one_line, read, str_at};
use crate::rows::Row;

/// How many violations of one conversation are told in words.
const TOLD_VIOLATIONS: usize = 8;
/// Where a thread's own metadata says what became of its chains.
const CHAIN: &str = "newt.chain";

pub(super) struct Reader {
    facts: ThreadFacts,
    placed: u32,
    companions: Vec<Companion>,
    remarks: Vec<String>,
    links: Vec<Link>,
    witnesses: Witnesses,
    lineage: Lineage,
    /// The turn whose parts are being read.
    turn: Option<Turn>,
    /// Whether something of a turn could not be read, so that its chain can't be judged.
    incomplete: bool,
    /// How many rows are not as newt has them, since secrets were masked in them on the way in.
    masked: u64,
    /// A document of the first versions, which had no chains.
    document: Option<Frame>,
    /// Whether the document lies where its own words say it belongs.
    folder: Option<String>,
}

/// A document without its turns.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Frame {
    id: String,
    title: String,
    workspace: String,
    workspace_id: String,
    persona: Option<String>,
    created_at_unix_nanos: Value,
    updated_at_unix_nanos: Value,
}

impl Reader {
    pub(super) fn new(path: &Path) -> Self {
        let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        Self {
            facts: ThreadFacts::default(),
            placed: 0,
            companions: Vec::new(),
            remarks: Vec::new(),
            links: Vec::new(),
            witnesses: Witnesses::default(),
            lineage: Lineage::default(),
            turn: None,
            incomplete: false,
            masked: 0,
            document: None,
            folder,
        }
    }

    fn place(&mut self, kind: Kind, role: Option<Role>, at: Option<Timestamp>, id: Option<String>) -> Record {
        let place = match self.placed.checked_sub(1) {
            Some(last) => Place::After(last),
            None => Place::Root,
        };
        self.placed = self.placed.saturating_add(1);
        Record { place, kind, role, created_at: at, source_id: id, starts_turn: false, note: Vec::new() }
    }

    fn beside() -> Record {
        Record {
            place: Place::Beside,
            kind: Kind::Event,
            role: None,
            created_at: None,
            source_id: None,
            starts_turn: false,
            note: Vec::new(),
        }
    }

    fn row(&mut self, row: &Row) -> Result<Record, Skip> {
        match row.table() {
            "conversations" => self.conversation(row),
            "turns" => {
                let record = self.part(row);
                self.incomplete |= record.is_err();
                return record;
            }
            "writer_tips" => self.witness(row)?,
            "prompt_receipts" => self.lineage.receipt(row)?,
            "prompt_artifacts" => self.lineage.artifact(row)?,
            "prompt_artifact_tips" => self.lineage.artifact_tip(row)?,
            _ => self.companions.extend(beside::companion(row)?),
        }
        Ok(Self::beside())
    }

    fn conversation(&mut self, row: &Row) {
        let facts = &mut self.facts;
        facts.session_id = row.word("id");
        facts.title = row.word("title").map(|title| one_line(&title, TITLE_CHARS)).filter(|title| !title.is_empty());
        facts.cwd = row.word("workspace_path").map(PathBuf::from);
        facts.persona = row.word("persona");
        facts.created_at = row.nanos("started_at_claim");
        facts.updated_at = row.nanos("updated_at_claim");
        let tip = (row.text("tip_hash"), row.text("writer_fingerprint"));
        if let (Ok(Some(hash)), Ok(writer)) = tip {
            self.witnesses.tip = Some((hash.to_owned(), writer.unwrap_or_default().to_owned()));
        }
        let (companions, remarks) = beside::of_conversation(row);
        self.companions.extend(companions);
        self.remarks.extend(remarks);
    }

    fn witness(&mut self, row: &Row) -> Result<(), Skip> {
        let seq = row.int("tip_seq")?.unwrap_or_default();
        let witness = (row.required("writer_fingerprint")?.to_owned(), row.required("tip_hash")?.to_owned(), seq);
        self.witnesses.writers.push(witness);
        Ok(())
    }

    /// One part of a turn. Those of one turn come one after the other.
    fn part(&mut self, row: &Row) -> Result<Record, Skip> {
        let seq = row.int("seq")?.ok_or_else(|| row.wrong("seq", "nothing"))?;
        let id = Some(format!("{}:{seq}:{}", row.label("writer_fingerprint"), row.label("part")));
        let own = |turn: &&mut Turn| turn.seq == seq;
        match row.required("part")? {
            "prompt" => {
                let turn = Turn {
                    conversation: row.bytes("conversation_id")?,
                    writer: row.bytes("writer_fingerprint")?,
                    seq,
                    prev_hash: row.bytes("prev_hash")?,
                    user: row.bytes("text")?,
                    assistant: Vec::new(),
                    events: EMPTY_LIST.to_vec(),
                    phantom_reaches: EMPTY_LIST.to_vec(),
                    sources: row.bytes("sources")?,
                    tokens_in: None,
                    tokens_out: None,
                    ts_claim: row.int("ts_claim")?.ok_or_else(|| row.wrong("ts_claim", "nothing"))?,
                    version: row.int("encoding_version")?.ok_or_else(|| row.wrong("encoding_version", "nothing"))?,
                };
                let at = row.nanos("ts_claim");
                self.facts.updated_at = self.facts.updated_at.max(at);
                let is_summary = turn.sources != EMPTY_LIST;
                if !is_summary && self.facts.preview.is_none() {
                    let preview = one_line(&String::from_utf8_lossy(&turn.user), PREVIEW_CHARS);
                    self.facts.preview = Some(preview).filter(|preview| !preview.is_empty());
                }
                self.end_turn();
                self.turn = Some(turn);
                Ok(match is_summary {
                    true => self.place(Kind::Compaction, Some(Role::System), at, id),
                    false => Record { starts_turn: true, ..self.place(Kind::Message, Some(Role::User), at, id) },
                })
            }
            "events" => {
                let (events, reaches) = (row.bytes("events")?, row.bytes("phantom_reaches")?);
                if let Some(turn) = self.turn.as_mut().filter(own) {
                    (turn.events, turn.phantom_reaches) = (events, reaches);
                }
                Ok(self.place(Kind::Event, None, self.at(), id))
            }
            "answer" => {
                let (answer, tokens_in, tokens_out) =
                    (row.bytes("text")?, row.int("tokens_in")?, row.int("tokens_out")?);
                if let Some(turn) = self.turn.as_mut().filter(own) {
                    (turn.assistant, turn.tokens_in, turn.tokens_out) = (answer, tokens_in, tokens_out);
                }
                self.count_tokens(tokens_in, tokens_out);
                Ok(self.place(Kind::Message, Some(Role::Assistant), self.at(), id))
            }
            _ => Err(row.wrong("part", "an unknown word")),
        }
    }

    fn at(&self) -> Option<Timestamp> {
        self.turn.as_ref().map(|turn| Timestamp(turn.ts_claim.div_euclid(1_000_000)))
    }

    fn count_tokens(&mut self, input: Option<i64>, output: Option<i64>) {
        let count = |tokens: Option<i64>| tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
        if input.is_some() || output.is_some() {
            let usage = self.facts.usage.get_or_insert_default();
            usage.input = usage.input.saturating_add(count(input));
            usage.output = usage.output.saturating_add(count(output));
        }
    }

    fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.links.push(Link::of(&turn));
        }
    }

    /// What newt's rules say of the conversation; nothing for one without turns, and for documents, which had no chains.
    fn verdict(&self) -> Option<Verdict> {
        let mut links = self.links.clone();
        links.extend(self.turn.as_ref().map(Link::of));
        if links.is_empty() || self.document.is_some() {
            return None;
        }
        if self.incomplete {
            return Some(Verdict::Unreadable);
        }
        if self.masked > 0 {
            return Some(Verdict::Masked);
        }
        let id = self.facts.session_id.as_deref().unwrap_or_default();
        let violations = verify(id, &links, &self.witnesses);
        Some(if violations.is_empty() { Verdict::Verified } else { Verdict::Broken(violations) })
    }

    /// A turn of a document.
    fn legacy_turn(&mut self, turn: &Value, frame: &Frame) -> Record {
        let at = nanos(&frame.updated_at_unix_nanos);
        if self.facts.preview.is_none() {
            let preview = one_line(str_at(turn, "user"), PREVIEW_CHARS);
            self.facts.preview = Some(preview).filter(|preview| !preview.is_empty());
        }
        Record { starts_turn: true, ..self.place(Kind::Message, Some(Role::User), at, None) }
    }
}

/// What became of a conversation's chains.
enum Verdict {
    Verified,
    Broken(Vec<Violation>),
    /// A row of a turn can't be read, so that nothing can be said.
    Unreadable,
    /// Rows are not as newt has them, so that nothing can be said either.
    Masked,
}

impl SourceReader for Reader {
    fn known(&mut self, _record: &KnownRecord<'_>) {
        self.placed = self.placed.saturating_add(1);
    }

    fn frame(&mut self, bytes: &[u8]) {
        let frame = read::<Frame>(bytes).map(|(frame, _)| frame).unwrap_or_default();
        if self.folder.as_deref().is_some_and(|folder| folder != frame.workspace_id) {
            self.remarks
                .push("it names another workspace than the folder that it lies in; newt would pass it over".to_owned());
        }
        let facts = &mut self.facts;
        let word = |text: &str| Some(text.to_owned()).filter(|text| !text.trim().is_empty() && !text.contains('\0'));
        facts.session_id = word(&frame.id);
        facts.title = word(&one_line(&frame.title, TITLE_CHARS));
        facts.cwd = word(&frame.workspace).map(PathBuf::from);
        facts.persona = frame.persona.as_deref().and_then(word);
        facts.created_at = nanos(&frame.created_at_unix_nanos);
        facts.updated_at = nanos(&frame.updated_at_unix_nanos);
        self.document = Some(frame);
    }

    fn masked(&mut self) {
        self.masked += 1;
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let Some(frame) = self.document.clone() else {
            return self.row(&Row::read(bytes)?);
        };
        let (turn, _) = read::<Value>(bytes).map_err(|error| Skip { reason: format!("unreadable turn: {error}") })?;
        if turn.get("user").and_then(Value::as_str).is_none() {
            return Err(Skip { reason: "a turn without a prompt".to_owned() });
        }
        Ok(self.legacy_turn(&turn, &frame))
    }

    fn facts(&self) -> ThreadFacts {
        self.facts.clone()
    }

    fn state(&self) -> Vec<u8> {
        Vec::new()
    }

    fn companions(&self) -> Vec<Companion> {
        self.companions.clone()
    }

    fn findings(&self) -> Findings {
        let mut findings = Findings { remarks: self.remarks.clone(), ..Findings::default() };
        if self.masked == 0 {
            findings.remarks.extend(self.lineage.remarks());
        }
        let mut mark = |said: Value| findings.marks.push((CHAIN, said));
        match self.verdict() {
            None => {}
            Some(Verdict::Verified) => mark(Value::from("verified")),
            Some(Verdict::Masked) => {
                mark(Value::from("masked"));
                findings.remarks.push(format!(
                    "its chains, receipts and artifacts can't be verified here: they hold for the words as newt has them, and secrets \
                     were masked in {} of its rows on the way in",
                    self.masked
                ));
            }
            Some(Verdict::Unreadable) => {
                mark(Value::from("unreadable"));
                let reason = "its chains can't be verified, since a row of a turn can't be read";
                findings.remarks.push(reason.to_owned());
            }
            Some(Verdict::Broken(violations)) => {
                let told: Vec<_> = violations.iter().take(TOLD_VIOLATIONS).map(ToString::to_string).collect();
                mark(serde_json::json!({ "violations": violations.len(), "first": told }));
                let more = violations.len().saturating_sub(TOLD_VIOLATIONS);
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                findings.remarks.push(format!("its chains do not verify: {}{more}", told.join("; ")));
            }
        }
        findings
    }
}

/// A time in nanoseconds, however large.
fn nanos(value: &Value) -> Option<Timestamp> {
    let nanos = value.as_i64().or_else(|| value.is_number().then_some(i64::MAX))?;
    Some(Timestamp(nanos.div_euclid(1_000_000)))
}
