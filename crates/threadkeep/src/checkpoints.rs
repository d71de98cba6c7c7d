//! Checkpoints: named states of an agent, each tied to the item that its thread stood at.
//!
//! A state is JSON and stored as the bytes that were given, compressed, once for each thread however many checkpoints have it. The
//! order of a thread's checkpoints is that of their commits, which the thread's ticks say: no two of them are equal.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::changes::{self, Area, Note, Verb};
use crate::content::{self, Blob};
use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId};
use crate::item::{Hash, MAX_CONTENT_BYTES, check_text};
use crate::log::head;
use crate::thread::Page;
use crate::threads::{self, Hold};
use crate::time::Timestamp;

const MAX_PAGE: usize = 1_000;
const MAX_NAME_BYTES: usize = 256;

/// The columns of a checkpoint as [`read`] takes them.
macro_rules! checkpoint_columns {
    () => {
        "SELECT c.name, c.item, b.id, c.digest, s.size, c.created_at, c.tick FROM checkpoints c
         JOIN checkpoint_states s ON s.thread = c.thread AND s.digest = c.digest LEFT JOIN branches b ON b.key = c.item >> 32 "
    };
}

statements! {
    NAMED = concat!(checkpoint_columns!(), "WHERE c.thread = ?1 AND c.name = ?2");
    LATEST_STATE = concat!(checkpoint_columns!(), "WHERE c.thread = ?1 ORDER BY c.tick DESC LIMIT 1");
    DOWN = concat!(checkpoint_columns!(), "WHERE c.thread = ?1 AND c.tick < ?2 ORDER BY c.tick DESC LIMIT ?3");
    UP = concat!(checkpoint_columns!(), "WHERE c.thread = ?1 AND c.tick > ?2 ORDER BY c.tick LIMIT ?3");
    STATE = "SELECT size, encoding, data FROM checkpoint_states WHERE thread = ?1 AND digest = ?2";
    PUT_STATE = "INSERT INTO checkpoint_states (thread, digest, size, encoding, data) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (thread, digest) DO NOTHING";
    PUT = "INSERT INTO checkpoints (thread, name, item, digest, created_at, tick) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (thread, name) DO UPDATE SET item = excluded.item, digest = excluded.digest, created_at = excluded.created_at,
          tick = excluded.tick";
    DELETE = "DELETE FROM checkpoints WHERE thread = ?1 AND name = ?2";
    NEXT_STATE = "SELECT digest FROM checkpoint_states WHERE thread = ?1 AND digest > ?2 ORDER BY digest LIMIT 1";
    MOVE_TO_STATE = "UPDATE checkpoints SET digest = ?3 WHERE thread = ?1 AND digest = ?2";
    DIGEST_OF = "SELECT digest FROM checkpoints WHERE thread = ?1 AND name = ?2";
    DROP_UNUSED = "DELETE FROM checkpoint_states WHERE thread = ?1 AND digest = ?2
        AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE thread = ?1 AND digest = ?2)";
}

/// A checkpoint without its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointInfo {
    /// The thread.
    pub thread: ThreadId,
    /// Its name in the thread.
    pub name: String,
    /// The item that the thread stood at; `None` when it had none.
    pub at: Option<Address>,
    /// The hash of the state's bytes: equal states have the same.
    pub digest: Hash,
    /// The size of the state in bytes.
    pub size: u64,
    /// When it was saved.
    pub created_at: Timestamp,
    /// The tick of the thread at which it was saved; greater than that of any checkpoint that was saved before.
    pub tick: i64,
}

/// A checkpoint and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// What it is.
    #[serde(flatten)]
    pub info: CheckpointInfo,
    /// The state: JSON, as it was given.
    pub state: String,
}

/// A checkpoint to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCheckpoint {
    /// Its name: 1 to 256 bytes. A checkpoint of this name is replaced, and is the latest one then.
    pub name: String,
    /// The state: JSON.
    pub state: String,
    /// The item that it is tied to; the head when `None`.
    pub at: Option<Address>,
}

impl NewCheckpoint {
    /// A checkpoint at the head.
    pub fn new(name: impl Into<String>, state: impl Into<String>) -> Self {
        Self { name: name.into(), state: state.into(), at: None }
    }
}

/// What makes one state of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointDiff {
    /// The one.
    pub from: CheckpointInfo,
    /// The other.
    pub to: CheckpointInfo,
    /// A JSON Patch (RFC 6902) that makes the state of `to` of that of `from`; an empty list when they say the same.
    pub patch: serde_json::Value,
}

/// A question for a page of a thread's checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointQuery {
    /// Those that were saved first at the beginning.
    pub ascending: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for CheckpointQuery {
    fn default() -> Self {
        Self { ascending: false, limit: 100, cursor: None }
    }
}

/// A checkpoint with everything done that needs no transaction.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    name: String,
    at: Option<Address>,
    state: Blob,
}

impl Ready {
    pub(crate) fn new(new: &NewCheckpoint) -> Result<Self> {
        check_name(&new.name)?;
        if new.state.len() > MAX_CONTENT_BYTES {
            let bytes = new.state.len();
            return Err(Error::invalid("state", format!("{bytes} bytes; a state has at most {MAX_CONTENT_BYTES}")));
        }
        check_json(&new.state).map_err(|reason| Error::invalid("state", format!("it is no JSON: {reason}")))?;
        Ok(Self { name: new.name.clone(), at: new.at, state: content::encode_blob(new.state.as_bytes()) })
    }

    /// How many bytes it carries.
    pub(crate) fn bytes(&self) -> usize {
        self.state.data.len()
    }
}

/// Saves a checkpoint, in the place of one of the same name.
pub(crate) fn save(tx: &mut dyn Tx, hold: &Hold, ready: &Ready) -> Result<CheckpointInfo> {
    let tick = threads::hold(tx, hold)?;
    let item = match ready.at {
        Some(address) => Some(head::resolve(tx, &hold.thread, address)?),
        None => head::head_of(tx, &hold.thread)?.0,
    };
    let replaced = put(tx, &hold.thread, &Place { name: &ready.name, item, created_at: hold.now, tick }, &ready.state)?;
    note(tx, hold, tick, &ready.name, if replaced { Verb::Changed } else { Verb::Created })?;
    named(tx, &hold.thread, &ready.name)?.ok_or_else(|| Error::not_found("checkpoint", &ready.name))
}

/// What a checkpoint's row says beside its state.
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) item: Option<ItemKey>,
    pub(crate) created_at: Timestamp,
    pub(crate) tick: i64,
}

/// Writes a checkpoint's row and its state; a state that no checkpoint has any more goes. Says whether it replaced one.
pub(crate) fn put(tx: &mut dyn Tx, thread: &ThreadId, row: &Place<'_>, state: &Blob) -> Result<bool> {
    let id: Value<'_> = thread.as_str().into();
    let digest = Value::Blob(&state.digest.0);
    let former = digest_of(tx, thread, row.name)?;
    let size = i64::try_from(state.size).unwrap_or(i64::MAX);
    tx.execute(PUT_STATE, &[id, digest, size.into(), state.encoding.into(), Value::Blob(&state.data)])?;
    let item = row.item.map(|item| item.0).into();
    tx.execute(PUT, &[id, row.name.into(), item, digest, row.created_at.0.into(), row.tick.into()])?;
    if let Some(former) = former.as_ref().filter(|former| **former != state.digest.0) {
        tx.execute(DROP_UNUSED, &[id, Value::Blob(former)])?;
    }
    Ok(former.is_some())
}

/// Reads the checkpoint of a name, or the one that was saved last.
pub(crate) fn load(tx: &mut dyn Tx, thread: &ThreadId, name: Option<&str>) -> Result<Option<Checkpoint>> {
    let found = match name {
        Some(name) => named(tx, thread, name)?,
        None => query_one(tx, LATEST_STATE, &[thread.as_str().into()], |row| read(row, thread))?,
    };
    let Some(info) = found else { return Ok(None) };
    let place = || format!("checkpoint `{}` of thread {thread}", info.name);
    let bytes = state_of(tx, thread, info.digest).map_err(|error| match error {
        Error::Corrupt { detail, .. } => Error::corrupt(place(), detail),
        other => other,
    })?;
    let state = String::from_utf8(bytes).map_err(|_| Error::corrupt(place(), "its state is no UTF-8"))?;
    check_json(&state).map_err(|reason| Error::corrupt(place(), format!("its state is no JSON: {reason}")))?;
    Ok(Some(Checkpoint { info, state }))
}

/// The bytes of a state; checks that they are what their name says.
pub(crate) fn state_of(tx: &mut dyn Tx, thread: &ThreadId, digest: Hash) -> Result<Vec<u8>> {
    let bytes = query_one(tx, STATE, &[thread.as_str().into(), Value::Blob(&digest.0)], |row| {
        let size = row.parse(0, usize::try_from(row.int(0)?).ok(), "a size")?;
        content::decode_blob(row.int(1)?, size, row.blob(2)?)
    })?;
    match bytes {
        Some(bytes) if Hash::of(&bytes) == digest => Ok(bytes),
        Some(_) => Err(Error::corrupt("checkpoint state", "its bytes do not have the hash that they are stored under")),
        None => Err(Error::corrupt("checkpoint state", "it is missing")),
    }
}

/// The next state of a thread after a digest, and its bytes; what can't be read is told with its digest.
pub(crate) fn next_state(tx: &mut dyn Tx, thread: &ThreadId, after: &[u8]) -> Result<Option<(Hash, Result<Vec<u8>>)>> {
    let found = query_one(tx, NEXT_STATE, &[thread.as_str().into(), Value::Blob(after)], |row| {
        row.parse(0, Hash::from_slice(row.blob(0)?), "a hash")
    })?;
    let Some(digest) = found else { return Ok(None) };
    match state_of(tx, thread, digest) {
        Err(damage @ Error::Corrupt { .. }) => Ok(Some((digest, Err(damage)))),
        state => Ok(Some((digest, Ok(state?)))),
    }
}

/// Puts a state in the place of another one, in every checkpoint of the thread that has it.
pub(crate) fn replace_state(tx: &mut dyn Tx, thread: &ThreadId, former: Hash, state: &Blob) -> Result<()> {
    let (id, digest): (Value<'_>, _) = (thread.as_str().into(), Value::Blob(&state.digest.0));
    let size = i64::try_from(state.size).unwrap_or(i64::MAX);
    tx.execute(PUT_STATE, &[id, digest, size.into(), state.encoding.into(), Value::Blob(&state.data)])?;
    tx.execute(MOVE_TO_STATE, &[id, Value::Blob(&former.0), digest])?;
    tx.execute(DROP_UNUSED, &[id, Value::Blob(&former.0)]).map(drop)
}

/// Reads a page of a thread's checkpoints.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &CheckpointQuery) -> Result<Page<CheckpointInfo>> {
    let tag = format!("checkpoints {thread} {}", query.ascending);
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?.value,
        None if query.ascending => i64::MIN,
        None => i64::MAX,
    };
    let limit = query.limit.min(MAX_PAGE);
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let (mut entries, mut more): (Vec<CheckpointInfo>, bool) = (Vec::new(), false);
    let statement = if query.ascending { UP } else { DOWN };
    tx.query(statement, &[thread.as_str().into(), start.into(), one_more.into()], &mut |row| {
        more = entries.len() == limit;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        entries.push(read(row, thread)?);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: last.tick, id: String::new() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// Deletes a checkpoint; says whether there was one.
pub(crate) fn delete(tx: &mut dyn Tx, hold: &Hold, name: &str) -> Result<bool> {
    check_name(name)?;
    let tick = threads::hold(tx, hold)?;
    let id: Value<'_> = hold.thread.as_str().into();
    let Some(digest) = digest_of(tx, &hold.thread, name)? else { return Ok(false) };
    tx.execute(DELETE, &[id, name.into()])?;
    tx.execute(DROP_UNUSED, &[id, Value::Blob(&digest)])?;
    note(tx, hold, tick, name, Verb::Deleted)?;
    Ok(true)
}

/// Notes for those who follow what became of a checkpoint.
fn note(tx: &mut dyn Tx, hold: &Hold, tick: i64, name: &str, verb: Verb) -> Result<()> {
    let note = Note { area: Area::Checkpoint, verb, subject: Some(name), now: hold.now };
    changes::note(tx, &hold.thread, Some(tick), note)
}

/// What makes the state of one checkpoint of that of another.
pub(crate) fn diff(from: Checkpoint, to: Checkpoint) -> Result<CheckpointDiff> {
    let value = |checkpoint: &Checkpoint| {
        serde_json::from_str::<serde_json::Value>(&checkpoint.state).map_err(|error| {
            let place = format!("checkpoint `{}`", checkpoint.info.name);
            Error::invalid("state", format!("the state of {place} can't be compared: {error}"))
        })
    };
    let patch = json_patch::diff(&value(&from)?, &value(&to)?);
    let patch = serde_json::to_value(patch).map_err(|error| Error::invalid("state", error.to_string()))?;
    Ok(CheckpointDiff { from: from.info, to: to.info, patch })
}

fn digest_of(tx: &mut dyn Tx, thread: &ThreadId, name: &str) -> Result<Option<Vec<u8>>> {
    query_one(tx, DIGEST_OF, &[thread.as_str().into(), name.into()], |row| Ok(row.blob(0)?.to_vec()))
}

fn named(tx: &mut dyn Tx, thread: &ThreadId, name: &str) -> Result<Option<CheckpointInfo>> {
    if check_name(name).is_err() {
        return Ok(None);
    }
    query_one(tx, NAMED, &[thread.as_str().into(), name.into()], |row| read(row, thread))
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("name", "it is empty"));
    }
    check_text("name", name, MAX_NAME_BYTES)
}

fn check_json(text: &str) -> serde_json::Result<()> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop)
}

/// Reads the columns of `checkpoint_columns!`. Damage names the checkpoint.
fn read(row: &Row<'_>, thread: &ThreadId) -> Result<CheckpointInfo> {
    let name = row.text(0)?.to_owned();
    let place = format!("checkpoint `{name}` of thread {thread}");
    read_columns(row, thread, name).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_columns(row: &Row<'_>, thread: &ThreadId, name: String) -> Result<CheckpointInfo> {
    let branch = row.opt_blob(2)?.and_then(ItemId::from_slice);
    let at = match row.opt_int(1)?.map(ItemKey) {
        None => None,
        Some(key) => Some(Address { branch: row.parse(2, branch, "the branch of its item")?, depth: key.depth() }),
    };
    Ok(CheckpointInfo {
        thread: thread.clone(),
        name,
        at,
        digest: row.parse(3, Hash::from_slice(row.blob(3)?), "a hash")?,
        size: row.parse(4, u64::try_from(row.int(4)?).ok(), "a size")?,
        created_at: Timestamp(row.int(5)?),
        tick: row.int(6)?,
    })
}
