//! Artifacts: what came of prompts, each tied to the prompt that it is of and through that to its task.
//!
//! As a prompt's receipt an artifact is an item of its thread. Whose task it belongs to follows from its prompt and is never said by the
//! caller.

use crate::db::Tx;
use crate::error::{Error, Result};
use crate::id::{Address, ArtifactId, ItemId, ItemKey, PromptId, ThreadId};
use crate::item::{ARTIFACT_FORMAT, Item, Kind, NewItem, Redaction, check_json, check_text};
use crate::log::append::TurnRule;
use crate::log::path;
use crate::log::receipts::{self, IndexRow, PathPage, Sought, Stored};
use crate::prompts::{self, ReceiptPage, Scribe};
use crate::receipt::{ArtifactContent, ArtifactKind, ArtifactRelation, ArtifactTexts, Tie};
use crate::time::Timestamp;

/// The longest locator.
pub const MAX_LOCATOR_BYTES: usize = 4_096;
/// The longest body.
pub const MAX_ARTIFACT_BODY_BYTES: usize = 65_536;
/// The most metadata.
pub const MAX_METADATA_BYTES: usize = 16_384;

/// An artifact to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArtifact {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<ArtifactId>,
    /// The prompt that it is of: one on the thread's path.
    pub prompt: PromptId,
    /// What it is.
    pub kind: ArtifactKind,
    /// What it is to the prompt.
    pub relation: ArtifactRelation,
    /// Where it is: a path, an address, a commit; at most [`MAX_LOCATOR_BYTES`].
    pub locator: Option<String>,
    /// What it says; at most [`MAX_ARTIFACT_BODY_BYTES`].
    pub body: Option<String>,
    /// A JSON object, kept to the byte; at most [`MAX_METADATA_BYTES`].
    pub metadata: String,
}

impl NewArtifact {
    /// One that says nothing yet.
    pub fn new(prompt: PromptId, kind: ArtifactKind, relation: ArtifactRelation) -> Self {
        Self { id: None, prompt, kind, relation, locator: None, body: None, metadata: "{}".to_owned() }
    }

    pub(crate) fn texts(&self) -> ArtifactTexts {
        let Self { locator, body, metadata, .. } = self.clone();
        ArtifactTexts { locator, body, metadata }
    }
}

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its name.
    pub id: ArtifactId,
    /// The thread that wrote it; for shared ancestors not the one it was read through.
    pub thread: ThreadId,
    /// Its number among those that the thread wrote, counted from 1 without gaps.
    pub number: i64,
    /// Where its item stands.
    pub address: Address,
    /// Its turn, by the ordinal in the thread that wrote it.
    pub turn: Option<i64>,
    /// The prompt that it is of.
    pub prompt: PromptId,
    /// The first prompt of the task that it belongs to.
    pub root: PromptId,
    /// What it is.
    pub kind: ArtifactKind,
    /// What it is to the prompt.
    pub relation: ArtifactRelation,
    /// Where it is.
    pub locator: Option<String>,
    /// What it says.
    pub body: Option<String>,
    /// A JSON object, as it was given.
    pub metadata: String,
    /// When it was stored, for people.
    pub created_at: Timestamp,
    /// Who took words away, when and why.
    pub redaction: Option<Redaction>,
    /// In a list: why it can't be read. What stands in its other fields is not to be believed then.
    pub damage: Option<String>,
}

/// What storing an artifact did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredArtifact {
    /// The artifact.
    pub artifact: Artifact,
    /// Whether an earlier call stored it.
    pub repeated: bool,
}

/// Whose artifacts are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArtifactsOf {
    /// All of the path.
    #[default]
    Path,
    /// Those of a prompt.
    Prompt(PromptId),
    /// Those of a task, by its first prompt.
    Task(PromptId),
}

/// A question for a page of the artifacts on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactQuery {
    /// The end of the path; the thread's head when `None`.
    pub at: Option<Address>,
    /// Whose.
    pub of: ArtifactsOf,
    /// Begin at the end and go towards the root of the path.
    pub newest_first: bool,
    /// The page's size; 0 only counts, more than 256 is 256. A page of large artifacts ends earlier.
    pub limit: usize,
    /// Where the page starts. It keeps to the path that the first page saw.
    pub cursor: Option<String>,
}

impl Default for ArtifactQuery {
    fn default() -> Self {
        Self { at: None, of: ArtifactsOf::Path, newest_first: false, limit: 100, cursor: None }
    }
}

/// Refuses an artifact that can't be kept.
pub(crate) fn check(new: &NewArtifact) -> Result<()> {
    if let ArtifactKind::Unknown(word) = &new.kind {
        return Err(Error::invalid("kind", format!("`{word}` is no kind of artifact")));
    }
    if let ArtifactRelation::Unknown(word) = &new.relation {
        return Err(Error::invalid("relation", format!("`{word}` is nothing that an artifact is to a prompt")));
    }
    new.locator.as_ref().map_or(Ok(()), |locator| check_text("locator", locator, MAX_LOCATOR_BYTES))?;
    if let Some(body) = new.body.as_ref().filter(|body| body.len() > MAX_ARTIFACT_BODY_BYTES) {
        let reason = format!("{} bytes; at most {MAX_ARTIFACT_BODY_BYTES} are kept", body.len());
        return Err(Error::invalid("body", reason));
    }
    check_json("metadata", &new.metadata, MAX_METADATA_BYTES)?;
    let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&new.metadata);
    object.map(drop).map_err(|_| Error::invalid("metadata", "it is no JSON object"))
}

/// Stores an artifact. A repeated call finds it, also for a holder that was fenced off since.
pub(crate) fn add(tx: &mut dyn Tx, by: &Scribe<'_>, id: ArtifactId, new: &NewArtifact) -> Result<StoredArtifact> {
    if let Some(known) = known(tx, by.thread, id, new)? {
        return Ok(known);
    }
    by.check(tx)?;
    let prompt = prompts::on_path(tx, by.thread, new.prompt)?;
    let (kind, relation) = (new.kind.clone(), new.relation.clone());
    let number = receipts::next_number(tx, by.thread)?;
    let tie = Tie { id, number, prompt: prompt.id, root: prompt.root, kind, relation };
    let content = ArtifactContent::new(&tie, &new.texts()).bytes();
    by.write(tx, NewItem::raw(Kind::Event, ARTIFACT_FORMAT, content).with_id(id.item()), TurnRule::Open)?;
    let missing = || Error::corrupt("table artifacts", "the row that was just written is missing");
    let (key, _) = receipts::artifact_row(tx, id)?.ok_or_else(missing)?;
    Ok(StoredArtifact { artifact: read_at(tx, key)?, repeated: false })
}

/// Reads an artifact that the thread reaches.
pub(crate) fn get(tx: &mut dyn Tx, thread: &ThreadId, id: ArtifactId) -> Result<Artifact> {
    let missing = || Error::not_found("artifact", id);
    let (key, _) = receipts::artifact_row(tx, id)?.ok_or_else(missing)?;
    if !receipts::is_reached(tx, thread, key)? {
        return Err(missing());
    }
    read_at(tx, key)
}

/// Finds an artifact that the thread reaches by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, thread: &ThreadId, name: &str) -> Result<ArtifactId> {
    let found = prompts::find_receipt(tx, thread, (false, "artifact"), (name, ArtifactId::MARK))?;
    Ok(ArtifactId::from_item(found))
}

/// Reads a page of the artifacts on a path. A damaged one is listed, and says so.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &ArtifactQuery) -> Result<ReceiptPage<Artifact>> {
    let sought = match query.of {
        ArtifactsOf::Path => Sought::Artifacts,
        ArtifactsOf::Prompt(prompt) => Sought::ArtifactsOf(prompt),
        ArtifactsOf::Task(root) => Sought::ArtifactsUnder(root),
    };
    let ArtifactQuery { at, newest_first, limit, .. } = *query;
    let asked = PathPage { at, newest_first, limit, cursor: query.cursor.as_deref() };
    let keys = receipts::page(tx, thread, sought, asked)?;
    let total = keys.total;
    let (entries, next_cursor) = keys.read(tx, |tx, key| {
        let artifact = match read_at(tx, key) {
            Err(Error::Corrupt { place, detail }) => damaged(tx, key, format!("{place}: {detail}"))?,
            artifact => artifact?,
        };
        let bytes = artifact.metadata.len() + artifact.body.as_ref().map_or(0, String::len);
        Ok((artifact, bytes))
    })?;
    Ok(ReceiptPage { entries, total, next_cursor })
}

fn read_at(tx: &mut dyn Tx, key: ItemKey) -> Result<Artifact> {
    let Some(row @ IndexRow::Artifact(..)) = receipts::row_at(tx, key, false)? else {
        return Err(Error::corrupt(format!("item {}", key.0), "its row in the index of receipts is missing"));
    };
    let IndexRow::Artifact(_, tie) = &row else {
        return Err(Error::corrupt(format!("item {}", key.0), "it is a prompt"));
    };
    let stored = receipts::read(tx, key, &row)?;
    artifact(&stored, tie)
}

fn artifact(stored: &Stored, tie: &Tie) -> Result<Artifact> {
    let content =
        ArtifactContent::read(&stored.content).map_err(|problem| Error::corrupt(tie.id.to_string(), problem))?;
    let place = (stored.thread.clone(), stored.address, stored.turn, stored.created_at);
    Ok(Artifact { redaction: stored.redaction.clone(), ..of(tie, content.texts(), place) })
}

fn of(tie: &Tie, texts: ArtifactTexts, place: (ThreadId, Address, Option<i64>, Timestamp)) -> Artifact {
    let Tie { id, number, prompt, root, kind, relation } = tie.clone();
    let ArtifactTexts { locator, body, metadata } = texts;
    let (thread, address, turn, created_at) = place;
    let (redaction, damage) = (None, None);
    Artifact {
        id,
        thread,
        number,
        address,
        turn,
        prompt,
        root,
        kind,
        relation,
        locator,
        body,
        metadata,
        created_at,
        redaction,
        damage,
    }
}

/// What there is to show of an artifact that can't be read.
fn damaged(tx: &mut dyn Tx, key: ItemKey, damage: String) -> Result<Artifact> {
    let item = path::id_of(tx, key)?.unwrap_or_else(|| ItemId::from_uuid(uuid::Uuid::nil()));
    let nothing = PromptId::from_uuid(uuid::Uuid::nil());
    let (kind, relation) =
        (ArtifactKind::Unknown("damaged".to_owned()), ArtifactRelation::Unknown("damaged".to_owned()));
    let tie = Tie { id: ArtifactId::from_item(item), number: 0, prompt: nothing, root: nothing, kind, relation };
    let texts = ArtifactTexts { locator: None, body: None, metadata: "{}".to_owned() };
    let place = (receipts::writer_of(tx, key)?, path::address_of(tx, key)?, None, Timestamp(0));
    Ok(Artifact { damage: Some(damage), ..of(&tie, texts, place) })
}

/// What an earlier call has stored under this id.
fn known(tx: &mut dyn Tx, thread: &ThreadId, id: ArtifactId, new: &NewArtifact) -> Result<Option<StoredArtifact>> {
    let Some((key, _)) = receipts::artifact_row(tx, id)? else { return Ok(None) };
    let found = read_at(tx, key)?;
    let texts =
        ArtifactTexts { locator: found.locator.clone(), body: found.body.clone(), metadata: found.metadata.clone() };
    // What it said can't be compared any more when words were taken away.
    let has_same_words = found.redaction.is_some() || texts == new.texts();
    let is_same = found.thread == *thread
        && has_same_words
        && (&found.kind, &found.relation, found.prompt) == (&new.kind, &new.relation, new.prompt);
    match is_same {
        true => Ok(Some(StoredArtifact { artifact: found, repeated: true })),
        false => Err(Error::AlreadyExists { what: "artifact", id: id.to_string() }),
    }
}

/// What the item of an artifact says, for a reader that has the item alone.
impl TryFrom<&Item> for Artifact {
    type Error = Error;

    fn try_from(item: &Item) -> Result<Self> {
        if item.format != ARTIFACT_FORMAT {
            return Err(Error::invalid("item", "it is no artifact"));
        }
        let damaged = |problem| Error::corrupt(format!("item {}", item.id), problem);
        let content = ArtifactContent::read(&item.content).map_err(damaged)?;
        let place = (item.thread.clone(), item.address(), item.turn, item.created_at);
        let artifact = of(&content.tie(ArtifactId::from_item(item.id)), content.texts(), place);
        Ok(Self { redaction: item.redaction.as_deref().cloned(), ..artifact })
    }
}
