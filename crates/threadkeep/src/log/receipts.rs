//! The index of receipts: a row for every item that is a prompt's receipt or an artifact, made of what the item says.
//!
//! Whatever writes an item makes its row, in the same transaction and by the rule of verification: appending, copying and repairing. So
//! a store that is made of items has its rows, and a row that its item does not bear out is damage.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::chain;
use crate::content;
use crate::cursor::Cursor;
use crate::db::{Row, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ArtifactId, ItemId, ItemKey, PromptId, ThreadId};
use crate::item::{Hash, Kind, Redaction, Role};
use crate::log::head;
use crate::log::path::{self, Segment};
use crate::log::read::load_spliced;
use crate::receipt::{self, ArtifactKind, ArtifactRelation, Claim, Line, PromptOrigin, Tie};
use crate::records;
use crate::time::Timestamp;

/// The largest page.
pub(crate) const MAX_PAGE: usize = 256;
/// After so many bytes of content a page ends.
const PAGE_BYTES: usize = 4 << 20;

/// The columns of a prompt's row as [`read_prompt`] takes them.
macro_rules! prompt_columns {
    () => {
        "key, id, origin, parent, root, active, generation"
    };
}

/// The columns of an artifact's row as [`read_artifact`] takes them.
macro_rules! artifact_columns {
    () => {
        "key, id, thread, number, prompt, root, kind, relation"
    };
}

statements! {
    PUT_PROMPT = "INSERT INTO prompts (key, id, origin, parent, root, active, generation) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    PUT_ARTIFACT = "INSERT INTO artifacts (key, id, thread, number, prompt, root, kind, relation)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    PROMPT_BY_ID = concat!("SELECT ", prompt_columns!(), " FROM prompts WHERE id = ?1");
    PROMPT_BY_KEY = concat!("SELECT ", prompt_columns!(), " FROM prompts WHERE key = ?1");
    ARTIFACT_BY_ID = concat!("SELECT ", artifact_columns!(), " FROM artifacts WHERE id = ?1");
    ARTIFACT_BY_KEY = concat!("SELECT ", artifact_columns!(), " FROM artifacts WHERE key = ?1");
    PROMPTS_BETWEEN = concat!("SELECT ", prompt_columns!(), " FROM prompts WHERE key BETWEEN ?1 AND ?2 ORDER BY key");
    ARTIFACTS_BETWEEN = concat!("SELECT ", artifact_columns!(), " FROM artifacts WHERE key BETWEEN ?1 AND ?2 ORDER BY key");
    LAST_PROMPT = "SELECT max(key) FROM prompts WHERE key BETWEEN ?1 AND ?2";
    LAST_KNOWN_PROMPT = "SELECT max(key) FROM prompts WHERE key BETWEEN ?1 AND ?2 AND origin IN ('operator', 'harness_retry')";
    LAST_ARTIFACT_NUMBER = "SELECT max(number) FROM artifacts WHERE thread = ?1";
    PROMPT_IDS_FROM = "SELECT key, id FROM prompts WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
    ARTIFACT_IDS_FROM = "SELECT key, id FROM artifacts WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
    OWNER_OF_RECEIPT = "SELECT thread FROM branches WHERE key = ?1";
    RECEIPT_ITEM = "SELECT i.id, i.format, i.kind, i.role, i.salt, i.digest, i.encoding, i.size, i.turn, i.created_at, b.id, b.thread
        FROM items i JOIN branches b ON b.key = i.key >> 32 WHERE i.key = ?1";
    COUNT_PROMPTS = "SELECT count(*) FROM prompts WHERE key BETWEEN ?1 AND ?2";
    PROMPTS_UP = "SELECT key FROM prompts WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
    PROMPTS_DOWN = "SELECT key FROM prompts WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT ?3";
    COUNT_PROMPTS_UNDER = "SELECT count(*) FROM prompts WHERE key BETWEEN ?1 AND ?2 AND root = ?3";
    PROMPTS_UNDER_UP = "SELECT key FROM prompts WHERE key BETWEEN ?1 AND ?2 AND root = ?4 ORDER BY key LIMIT ?3";
    PROMPTS_UNDER_DOWN = "SELECT key FROM prompts WHERE key BETWEEN ?1 AND ?2 AND root = ?4 ORDER BY key DESC LIMIT ?3";
    COUNT_ARTIFACTS = "SELECT count(*) FROM artifacts WHERE key BETWEEN ?1 AND ?2";
    ARTIFACTS_UP = "SELECT key FROM artifacts WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
    ARTIFACTS_DOWN = "SELECT key FROM artifacts WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT ?3";
    COUNT_ARTIFACTS_OF = "SELECT count(*) FROM artifacts WHERE key BETWEEN ?1 AND ?2 AND prompt = ?3";
    ARTIFACTS_OF_UP = "SELECT key FROM artifacts WHERE key BETWEEN ?1 AND ?2 AND prompt = ?4 ORDER BY key LIMIT ?3";
    ARTIFACTS_OF_DOWN = "SELECT key FROM artifacts WHERE key BETWEEN ?1 AND ?2 AND prompt = ?4 ORDER BY key DESC LIMIT ?3";
    COUNT_ARTIFACTS_UNDER = "SELECT count(*) FROM artifacts WHERE key BETWEEN ?1 AND ?2 AND root = ?3";
    ARTIFACTS_UNDER_UP = "SELECT key FROM artifacts WHERE key BETWEEN ?1 AND ?2 AND root = ?4 ORDER BY key LIMIT ?3";
    ARTIFACTS_UNDER_DOWN = "SELECT key FROM artifacts WHERE key BETWEEN ?1 AND ?2 AND root = ?4 ORDER BY key DESC LIMIT ?3";
}

/// Which receipts of a path are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    Prompts,
    /// Those of one task.
    PromptsUnder(PromptId),
    Artifacts,
    ArtifactsOf(PromptId),
    ArtifactsUnder(PromptId),
}

/// How they are counted and found, from the root and towards it.
struct Ways {
    count: Statement,
    up: Statement,
    down: Statement,
}

impl Sought {
    fn ways(self) -> Ways {
        let (count, up, down) = match self {
            Self::Prompts => (COUNT_PROMPTS, PROMPTS_UP, PROMPTS_DOWN),
            Self::PromptsUnder(_) => (COUNT_PROMPTS_UNDER, PROMPTS_UNDER_UP, PROMPTS_UNDER_DOWN),
            Self::Artifacts => (COUNT_ARTIFACTS, ARTIFACTS_UP, ARTIFACTS_DOWN),
            Self::ArtifactsOf(_) => (COUNT_ARTIFACTS_OF, ARTIFACTS_OF_UP, ARTIFACTS_OF_DOWN),
            Self::ArtifactsUnder(_) => (COUNT_ARTIFACTS_UNDER, ARTIFACTS_UNDER_UP, ARTIFACTS_UNDER_DOWN),
        };
        Ways { count, up, down }
    }

    fn of(&self) -> Option<&PromptId> {
        match self {
            Self::Prompts | Self::Artifacts => None,
            Self::PromptsUnder(id) | Self::ArtifactsOf(id) | Self::ArtifactsUnder(id) => Some(id),
        }
    }
}

/// A row of the index, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IndexRow {
    Prompt(Line),
    /// With the thread that it says it was written by.
    Artifact(String, Tie),
}

impl IndexRow {
    /// Whether an item of the thread bears it out.
    fn is_of(&self, thread: &ThreadId, claim: &Claim) -> bool {
        match (self, claim) {
            (Self::Prompt(row), Claim::Prompt(said)) => row == said,
            (Self::Artifact(of, row), Claim::Artifact(said)) => of == thread.as_str() && row == said,
            _ => false,
        }
    }
}

/// Makes the row of an item that was just written, if it is a receipt, by what its content says. What verification would reject is
/// refused.
pub(crate) fn index(tx: &mut dyn Tx, thread: &ThreadId, key: ItemKey, said: (ItemId, &str, &[u8])) -> Result<()> {
    let (id, format, content) = said;
    let Some(claim) = receipt::claim(id, format, content) else { return Ok(()) };
    let place = || Error::corrupt(format!("item {id}"), "it can't be a receipt");
    let claim = claim.map_err(|problem| Error::corrupt(format!("item {id}"), problem))?;
    if let Some(problem) = problem_with(tx, key, &claim)? {
        return Err(Error::corrupt(format!("item {id}"), problem));
    }
    let written = match &claim {
        Claim::Prompt(line) => {
            let args = [
                key.0.into(),
                Value::Blob(line.id.as_bytes()),
                line.origin.as_str().into(),
                line.parent.as_ref().map(|parent| parent.as_bytes().as_slice()).into(),
                Value::Blob(line.root.as_bytes()),
                Value::Blob(line.active.as_bytes()),
                i64::from(line.generation).into(),
            ];
            tx.execute(PUT_PROMPT, &args)
        }
        Claim::Artifact(tie) => {
            let args = [
                key.0.into(),
                Value::Blob(tie.id.as_bytes()),
                thread.as_str().into(),
                tie.number.into(),
                Value::Blob(tie.prompt.as_bytes()),
                Value::Blob(tie.root.as_bytes()),
                tie.kind.as_str().into(),
                tie.relation.as_str().into(),
            ];
            tx.execute(PUT_ARTIFACT, &args)
        }
    };
    match written {
        // A row that no item bears out stands in the way.
        Err(Error::AlreadyExists { .. } | Error::Conflict { .. }) => Err(place()),
        written => written.map(drop),
    }
}

/// The same for an item whose content is stored already.
pub(crate) fn index_stored(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    key: ItemKey,
    (id, format): (ItemId, &str),
) -> Result<()> {
    if !receipt::is_receipt(format) {
        return Ok(());
    }
    let content = load_spliced(tx, key)?;
    index(tx, thread, key, (id, format, &content))
}

/// Says what is wrong with what a receipt says, given those that it points at, if anything is.
fn problem_with(tx: &mut dyn Tx, key: ItemKey, claim: &Claim) -> Result<Option<String>> {
    match claim {
        Claim::Prompt(line) => {
            let parent = match line.parent {
                None => None,
                Some(parent) => match behind(tx, key, parent)? {
                    Ok(line) => Some(line),
                    Err(problem) => return Ok(Some(problem)),
                },
            };
            Ok(line.problem(parent.as_ref()))
        }
        Claim::Artifact(tie) if tie.number < 1 => Ok(Some("artifacts are counted from 1".to_owned())),
        Claim::Artifact(tie) => Ok(match behind(tx, key, tie.prompt)? {
            Ok(prompt) if prompt.root == tie.root => None,
            Ok(prompt) => Some(format!("it names the root {}, and that is {}", tie.root, prompt.root)),
            Err(problem) => Some(problem),
        }),
    }
}

/// The prompt that a receipt points at, which must stand before it on its path; or what is wrong.
fn behind(tx: &mut dyn Tx, key: ItemKey, prompt: PromptId) -> Result<Result<Line, String>> {
    let Some((at, line)) = prompt_row(tx, prompt)? else {
        return Ok(Err(format!("{prompt}, which it points at, is missing")));
    };
    let is_before = at.depth() < key.depth() && path::contains(tx, key, at)?;
    Ok(if is_before {
        Ok(line)
    } else {
        Err(format!("{prompt}, which it points at, does not stand before it on its path"))
    })
}

/// The row of a prompt, and where its item stands.
pub(crate) fn prompt_row(tx: &mut dyn Tx, id: PromptId) -> Result<Option<(ItemKey, Line)>> {
    query_one(tx, PROMPT_BY_ID, &[Value::Blob(id.as_bytes())], read_prompt)
}

/// The row of an artifact.
pub(crate) fn artifact_row(tx: &mut dyn Tx, id: ArtifactId) -> Result<Option<(ItemKey, Tie)>> {
    Ok(query_one(tx, ARTIFACT_BY_ID, &[Value::Blob(id.as_bytes())], read_artifact)?.map(|(key, _, tie)| (key, tie)))
}

/// The number of the next artifact of a thread.
pub(crate) fn next_number(tx: &mut dyn Tx, thread: &ThreadId) -> Result<i64> {
    let last = query_one(tx, LAST_ARTIFACT_NUMBER, &[thread.as_str().into()], |row| row.opt_int(0))?.flatten();
    last.unwrap_or(0)
        .checked_add(1)
        .ok_or_else(|| Error::invalid("number", "the thread has as many artifacts as it can"))
}

/// The last prompt on the path to `end`; with `before` on the path to what stands before it; with `known` one of an origin that is
/// known here.
pub(crate) fn last_prompt(tx: &mut dyn Tx, end: ItemKey, before: bool, known: bool) -> Result<Option<ItemKey>> {
    let statement = if known { LAST_KNOWN_PROMPT } else { LAST_PROMPT };
    let mut found = None;
    path::walk(tx, end, &mut |tx, segment| {
        let last = if before && segment.upto == end.depth() { segment.upto.checked_sub(1) } else { Some(segment.upto) };
        let Some(last) = last.filter(|last| *last >= segment.base) else { return Ok(ControlFlow::Continue(())) };
        let range = [segment.key(segment.base).0.into(), segment.key(last).0.into()];
        found = query_one(tx, statement, &range, |row| row.opt_int(0))?.flatten().map(ItemKey);
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// The ids of receipts that a thread reaches and that begin so, a few of them.
pub(crate) fn ids_from(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    are_prompts: bool,
    (least, greatest): ([u8; 16], [u8; 16]),
) -> Result<Vec<ItemId>> {
    const CANDIDATES: usize = 8;
    const LOOKED_AT: i64 = 256;
    let statement = if are_prompts { PROMPT_IDS_FROM } else { ARTIFACT_IDS_FROM };
    let args = [Value::Blob(&least), Value::Blob(&greatest), LOOKED_AT.into()];
    let rows = query_all(tx, statement, &args, |row| {
        Ok((ItemKey(row.int(0)?), row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?))
    })?;
    let mut found = Vec::new();
    for (key, id) in rows {
        if found.len() < CANDIDATES && is_reached(tx, thread, key)? {
            found.push(id);
        }
    }
    Ok(found)
}

/// Whether a thread reaches an item.
pub(crate) fn is_reached(tx: &mut dyn Tx, thread: &ThreadId, key: ItemKey) -> Result<bool> {
    let address = path::address_of(tx, key)?;
    match head::resolve(tx, thread, address) {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// The thread that wrote the branch of an item.
pub(crate) fn writer_of(tx: &mut dyn Tx, key: ItemKey) -> Result<ThreadId> {
    let owner = query_one(tx, OWNER_OF_RECEIPT, &[key.branch().into()], |row| {
        row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
    })?;
    owner.ok_or_else(|| Error::corrupt(format!("branch {}", key.branch()), "it is missing"))
}

/// A receipt that was read, with its item.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) key: ItemKey,
    pub(crate) thread: ThreadId,
    pub(crate) address: Address,
    pub(crate) turn: Option<i64>,
    pub(crate) created_at: Timestamp,
    pub(crate) content: Vec<u8>,
    pub(crate) redaction: Option<Redaction>,
}

/// Reads the receipt of a row, which its item must bear out.
///
/// # Errors
/// `Corrupt` names the receipt: its row and its item differ, its content is damaged or missing.
pub(crate) fn read(tx: &mut dyn Tx, key: ItemKey, row: &IndexRow) -> Result<Stored> {
    let name = match row {
        IndexRow::Prompt(line) => line.id.to_string(),
        IndexRow::Artifact(_, tie) => tie.id.to_string(),
    };
    let damaged = |detail: &str| Error::corrupt(name.clone(), detail);
    let item = query_one(tx, RECEIPT_ITEM, &[key.0.into()], read_item)?;
    let item = item.ok_or_else(|| damaged("its item is missing"))?;
    let content = load_spliced(tx, key).map_err(|error| match error {
        Error::Corrupt { detail, .. } => damaged(&detail),
        other => other,
    })?;
    let redaction = match content::is_redacted(item.encoding) {
        true => records::redaction_of(tx, item.id)?.map(|record| Redaction::from(&record)),
        false => None,
    };
    let salt = item.salt.unwrap_or_default();
    let digest = chain::content_digest(&item.kind, item.role.as_ref(), &item.format, &salt, &content);
    if !content::is_redacted(item.encoding) && digest != item.digest {
        return Err(damaged("its content was changed"));
    }
    let claim = match receipt::claim(item.id, &item.format, &content) {
        None => return Err(damaged("its item is none")),
        Some(claim) => claim.map_err(|problem| damaged(&problem))?,
    };
    if !row.is_of(&item.thread, &claim) {
        return Err(damaged("its row in the index says other things than its item"));
    }
    let (thread, address) = (item.thread, Address { branch: item.branch, depth: key.depth() });
    Ok(Stored { key, thread, address, turn: item.turn, created_at: item.created_at, content, redaction })
}

/// What is there of a receipt at a key, though it can't be read as one: its id.
pub(crate) fn row_at(tx: &mut dyn Tx, key: ItemKey, is_prompt: bool) -> Result<Option<IndexRow>> {
    let key = [key.0.into()];
    Ok(match is_prompt {
        true => query_one(tx, PROMPT_BY_KEY, &key, read_prompt)?.map(|(_, line)| IndexRow::Prompt(line)),
        false => {
            query_one(tx, ARTIFACT_BY_KEY, &key, read_artifact)?.map(|(_, thread, tie)| IndexRow::Artifact(thread, tie))
        }
    })
}

struct ReceiptItem {
    id: ItemId,
    format: String,
    kind: Kind,
    role: Option<Role>,
    salt: Option<[u8; 16]>,
    digest: Hash,
    encoding: i64,
    turn: Option<i64>,
    created_at: Timestamp,
    branch: ItemId,
    thread: ThreadId,
}

fn read_item(row: &Row<'_>) -> Result<ReceiptItem> {
    Ok(ReceiptItem {
        id: row.parse(0, ItemId::from_slice(row.blob(0)?), "16 bytes of an id")?,
        format: row.text(1)?.to_owned(),
        kind: Kind::from_word(row.text(2)?),
        role: row.opt_text(3)?.map(Role::from_word),
        salt: row.opt_blob(4)?.and_then(|salt| salt.try_into().ok()),
        digest: row.parse(5, Hash::from_slice(row.blob(5)?), "a hash")?,
        encoding: row.int(6)?,
        turn: row.opt_int(8)?,
        created_at: Timestamp(row.int(9)?),
        branch: row.parse(10, ItemId::from_slice(row.blob(10)?), "16 bytes of an id")?,
        thread: row.parse(11, ThreadId::new(row.text(11)?).ok(), "a thread id")?,
    })
}

fn read_prompt(row: &Row<'_>) -> Result<(ItemKey, Line)> {
    let id = |column| row.parse(column, PromptId::from_slice(row.blob(column)?), "16 bytes of an id");
    let parent = match row.opt_blob(3)? {
        None => None,
        Some(parent) => Some(row.parse(3, PromptId::from_slice(parent), "16 bytes of an id")?),
    };
    let line = Line {
        id: id(1)?,
        origin: PromptOrigin::from_word(row.text(2)?),
        parent,
        root: id(4)?,
        active: id(5)?,
        generation: row.parse(6, u32::try_from(row.int(6)?).ok(), "a generation")?,
    };
    Ok((ItemKey(row.int(0)?), line))
}

fn read_artifact(row: &Row<'_>) -> Result<(ItemKey, String, Tie)> {
    let id = |column| row.parse(column, PromptId::from_slice(row.blob(column)?), "16 bytes of an id");
    let tie = Tie {
        id: row.parse(1, ArtifactId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        number: row.int(3)?,
        prompt: id(4)?,
        root: id(5)?,
        kind: ArtifactKind::from_word(row.text(6)?),
        relation: ArtifactRelation::from_word(row.text(7)?),
    };
    Ok((ItemKey(row.int(0)?), row.text(2)?.to_owned(), tie))
}

/// A page of receipts of a path: which, and where to go on.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<ItemKey>,
    pub(crate) total: u64,
    tag: String,
    end: Option<ItemKey>,
    more: Option<ItemKey>,
}

/// How a page of a path is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathPage<'a> {
    pub(crate) at: Option<Address>,
    pub(crate) newest_first: bool,
    pub(crate) limit: usize,
    pub(crate) cursor: Option<&'a str>,
}

/// Finds a page of what is sought on a path, and how many there are of it on the whole path.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, sought: Sought, asked: PathPage<'_>) -> Result<Keys> {
    let tag = format!("receipts {thread} {sought:?} {:?} {}", asked.at, asked.newest_first);
    let cursor = asked.cursor.map(|text| Cursor::decode(text, &tag)).transpose()?;
    let damaged = || Error::invalid("cursor", "it is damaged");
    // A page goes on along the path that the first one saw, though the head moves on.
    let end = match &cursor {
        Some(cursor) => {
            let (branch, depth) = cursor.id.split_once('@').ok_or_else(damaged)?;
            Some(Address { branch: branch.parse()?, depth: depth.parse().map_err(|_| damaged())? })
        }
        None => asked.at,
    };
    let end = match end {
        Some(address) => Some(head::resolve(tx, thread, address)?),
        None => head::head_of(tx, thread)?.0,
    };
    let mut found = Keys { keys: Vec::new(), total: 0, tag, end, more: None };
    let Some(end) = end else { return Ok(found) };
    let next = cursor.map(|cursor| u32::try_from(cursor.value).map_err(|_| damaged())).transpose()?;
    let (low, high) = match (next, asked.newest_first) {
        (None, _) => (0, u32::MAX),
        (Some(next), true) => (0, next),
        (Some(next), false) => (next, u32::MAX),
    };
    let mut segments = Vec::new();
    path::walk(tx, end, &mut |tx, segment| {
        found.total += count(tx, sought, &segment)?;
        segments.push(segment);
        Ok(ControlFlow::Continue(()))
    })?;
    if !asked.newest_first {
        segments.reverse();
    }
    let room = asked.limit.min(MAX_PAGE).saturating_add(1);
    for segment in &segments {
        let (from, to) = (segment.base.max(low), segment.upto.min(high));
        if from <= to && found.keys.len() < room {
            let limit = room - found.keys.len();
            found.keys.extend(keys_between(
                tx,
                sought,
                (segment.key(from), segment.key(to)),
                limit,
                asked.newest_first,
            )?);
        }
    }
    if found.keys.len() == room {
        found.more = found.keys.pop();
    }
    if asked.limit == 0 {
        found.more = None;
    }
    Ok(found)
}

fn count(tx: &mut dyn Tx, sought: Sought, segment: &Segment) -> Result<u64> {
    let mut args = vec![segment.key(segment.base).0.into(), segment.key(segment.upto).0.into()];
    args.extend(sought.of().map(|id| Value::Blob(id.as_bytes())));
    let count = query_one(tx, sought.ways().count, &args, |row| row.int(0))?.unwrap_or(0);
    Ok(u64::try_from(count).unwrap_or(0))
}

fn keys_between(
    tx: &mut dyn Tx,
    sought: Sought,
    (from, to): (ItemKey, ItemKey),
    limit: usize,
    newest_first: bool,
) -> Result<Vec<ItemKey>> {
    let mut args = vec![from.0.into(), to.0.into(), i64::try_from(limit).unwrap_or(i64::MAX).into()];
    args.extend(sought.of().map(|id| Value::Blob(id.as_bytes())));
    let ways = sought.ways();
    query_all(tx, if newest_first { ways.down } else { ways.up }, &args, |row| Ok(ItemKey(row.int(0)?)))
}

impl Keys {
    /// Reads the entries, as many as fit on a page by their bytes; gives where the next page begins.
    pub(crate) fn read<T>(
        self,
        tx: &mut dyn Tx,
        mut entry: impl FnMut(&mut dyn Tx, ItemKey) -> Result<(T, usize)>,
    ) -> Result<(Vec<T>, Option<String>)> {
        let (mut entries, mut bytes) = (Vec::with_capacity(self.keys.len()), 0);
        for key in &self.keys {
            if bytes >= PAGE_BYTES {
                let next = self.cursor(tx, *key)?;
                return Ok((entries, next));
            }
            let (read, size) = entry(tx, *key)?;
            bytes += size;
            entries.push(read);
        }
        let next = match self.more {
            Some(more) => self.cursor(tx, more)?,
            None => None,
        };
        Ok((entries, next))
    }

    fn cursor(&self, tx: &mut dyn Tx, next: ItemKey) -> Result<Option<String>> {
        let Some(end) = self.end else { return Ok(None) };
        let id = path::address_of(tx, end)?.to_string();
        Ok(Some(Cursor { value: i64::from(next.depth()), id }.encode(&self.tag)))
    }
}

/// The rows of a part of a branch, to be compared with its items.
#[derive(Debug, Default)]
pub(crate) struct Rows(BTreeMap<i64, Vec<Result<IndexRow, String>>>);

impl Rows {
    /// Reads them. One that can't be read is told with its place.
    pub(crate) fn between(tx: &mut dyn Tx, from: ItemKey, to: ItemKey) -> Result<Self> {
        let mut rows = Self::default();
        let range = [from.0.into(), to.0.into()];
        tx.query(PROMPTS_BETWEEN, &range, &mut |row| {
            rows.take(row, read_prompt(row).map(|(_, line)| IndexRow::Prompt(line)))
        })?;
        tx.query(ARTIFACTS_BETWEEN, &range, &mut |row| {
            rows.take(row, read_artifact(row).map(|(_, thread, tie)| IndexRow::Artifact(thread, tie)))
        })?;
        Ok(rows)
    }

    fn take(&mut self, row: &Row<'_>, read: Result<IndexRow>) -> Result<ControlFlow<()>> {
        let read = match read {
            Err(Error::Corrupt { place, detail }) => Err(format!("{place}: {detail}")),
            read => Ok(read?),
        };
        self.0.entry(row.int(0)?).or_default().push(read);
        Ok(ControlFlow::Continue(()))
    }

    /// Says what is wrong between an item and its row, if anything is; what an item says is `None` when it is no receipt.
    pub(crate) fn problem(
        &mut self,
        tx: &mut dyn Tx,
        thread: &ThreadId,
        key: ItemKey,
        said: Option<&Result<Claim, String>>,
    ) -> Result<Option<String>> {
        let rows = self.0.remove(&key.0).unwrap_or_default();
        let claim = match said {
            None if rows.is_empty() => return Ok(None),
            None => return Ok(Some("the index of receipts has a row for it, and it is none".to_owned())),
            Some(Err(problem)) => return Ok(Some(problem.clone())),
            Some(Ok(claim)) => claim,
        };
        let unlike = match rows.as_slice() {
            [] => Some("it is a receipt, and the index of receipts has no row for it".to_owned()),
            [Ok(row)] if row.is_of(thread, claim) => None,
            [Ok(_)] => Some("its row in the index of receipts says other things than it does".to_owned()),
            [Err(damage)] => Some(damage.clone()),
            _ => Some("the index of receipts has two rows for it".to_owned()),
        };
        match unlike {
            None => problem_with(tx, key, claim),
            unlike => Ok(unlike),
        }
    }

    /// Rows for which there is no item.
    pub(crate) fn left(&self) -> impl Iterator<Item = ItemKey> {
        self.0.keys().copied().map(ItemKey)
    }
}
