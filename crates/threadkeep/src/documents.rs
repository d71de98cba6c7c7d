//! Documents: JSON texts of a thread under names, of which every version is kept.
//!
//! A document has versions 1, 2, … without a gap. Each is as it was written, and so is a deletion, which is a version without a
//! text: no number is given twice, so whoever expects a version finds that one or is told. Former versions go only when somebody
//! trims the history.
//!
//! The names `scratchpad`, `plan` and `pin` are those of the documents of these kinds, whose schemas are closed; they are held to
//! them when they are written and when they are read. Every other name is a free document's.

mod merge;
pub(crate) mod schema;

use std::borrow::Cow;
use std::ops::ControlFlow;

use serde::Serialize;
use uuid::Uuid;

use crate::changes::{self, Area, Note, Verb};
use crate::content::{self, Blob};
use crate::cursor::Cursor;
use crate::db::{Row, Statement, Tx, Value, query_all, query_one, statements};
use crate::documents::schema::{PlanSnapshot, PreferencePin, Scratchpad};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::item::{Hash, check_text, open_words};
use crate::thread::Page;
use crate::threads::{self, Hold};
use crate::time::Timestamp;

/// The largest document, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;
const MAX_PAGE: usize = 1_000;
const MAX_NAME_BYTES: usize = 256;

/// The columns of a version as [`read`] takes them.
macro_rules! version_columns {
    () => {
        "SELECT name, version, kind, digest, size, created_at, tick FROM document_versions "
    };
}

statements! {
    CURRENT = concat!(version_columns!(), "WHERE thread = ?1 AND name = ?2 AND is_current = 1");
    ONE_VERSION = concat!(version_columns!(), "WHERE thread = ?1 AND name = ?2 AND version = ?3");
    MADE_BY = concat!(version_columns!(), "WHERE thread = ?1 AND change = ?2");
    STANDING = "SELECT version, digest, kind FROM document_versions WHERE thread = ?1 AND name = ?2 AND is_current = 1";
    TEXT = "SELECT size, encoding, data, digest FROM document_versions WHERE thread = ?1 AND name = ?2 AND version = ?3";
    LIST = concat!(version_columns!(), "WHERE thread = ?1 AND is_current = 1 AND digest IS NOT NULL AND name > ?2 ORDER BY name LIMIT ?3");
    HISTORY = concat!(version_columns!(), "WHERE thread = ?1 AND name = ?2 AND version < ?3 ORDER BY version DESC LIMIT ?4");
    STEP_BACK = "UPDATE document_versions SET is_current = 0 WHERE thread = ?1 AND name = ?2 AND is_current = 1";
    INSERT = "INSERT INTO document_versions (thread, name, version, kind, is_current, change, created_at, tick, digest, size, encoding, data)
        VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    TRIM = "DELETE FROM document_versions WHERE thread = ?1 AND name = ?2 AND is_current = 0 AND version <= ?3";
    TEXTS = "SELECT name, version, kind FROM document_versions WHERE thread = ?1 AND digest IS NOT NULL
        AND (name > ?2 OR (name = ?2 AND version > ?3)) ORDER BY name, version LIMIT 1";
    REPLACE = "UPDATE document_versions SET digest = ?4, size = ?5, encoding = ?6, data = ?7
        WHERE thread = ?1 AND name = ?2 AND version = ?3";
    NAMES = "SELECT name FROM document_versions WHERE thread = ?1 AND is_current = 1 AND name > ?2 ORDER BY name LIMIT ?3";
    RENAME = "UPDATE document_versions SET name = ?3 WHERE thread = ?1 AND name = ?2";
}

open_words! {
    /// What a document may say. It follows from its name.
    DocumentKind {
        /// An object of strings.
        Scratchpad = "scratchpad",
        /// The steps that an agent goes by.
        Plan = "plan",
        /// What a person prefers: a closed set of fields.
        Pin = "pin",
        /// Any JSON.
        Free = "free",
    }
}

impl DocumentKind {
    /// The kind of the document of a name: a thread has one scratchpad, one plan and one pin, of these names.
    pub fn of_name(name: &str) -> Self {
        match name {
            "scratchpad" => Self::Scratchpad,
            "plan" => Self::Plan,
            "pin" => Self::Pin,
            _ => Self::Free,
        }
    }
}

/// A version of a document, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentInfo {
    /// The thread.
    pub thread: ThreadId,
    /// The name of the document.
    pub name: String,
    /// The number of the version, from 1.
    pub version: u64,
    /// What it may say.
    pub kind: DocumentKind,
    /// The hash of its bytes; `None` for the version that deleted it.
    pub digest: Option<Hash>,
    /// Its size in bytes.
    pub size: u64,
    /// When the version was written.
    pub created_at: Timestamp,
    /// The tick of the thread at which it was written; greater than that of any earlier version.
    pub tick: i64,
}

/// A version of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Document {
    /// What it is.
    #[serde(flatten)]
    pub info: DocumentInfo,
    /// What it says: JSON, as it was given.
    pub text: String,
}

/// A version to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    /// The name of the document: 1 to 256 bytes.
    pub name: String,
    /// What it is to say: JSON, or for a patch the merge patch.
    pub text: String,
    /// The version that must be the current one; 0 when there must be no document. A repeated call without an id is told of the
    /// version that the first one made, and makes none.
    pub expect: Option<u64>,
    /// Chosen by the caller to make a retry safe: a repeated call with the same id finds the version that it made, as long as that
    /// is in the history.
    pub id: Option<Uuid>,
}

impl NewDocument {
    /// A version that is written whatever the current one is.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), expect: None, id: None }
    }

    /// The same, only in the place of this version.
    #[must_use]
    pub fn expecting(self, version: u64) -> Self {
        Self { expect: Some(version), ..self }
    }
}

/// A question for a page of a thread's documents, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentQuery {
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for DocumentQuery {
    fn default() -> Self {
        Self { limit: 100, cursor: None }
    }
}

/// What a change of a document goes by.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    name: String,
    expect: Option<u64>,
    id: Uuid,
}

impl Call {
    pub(crate) fn new(name: &str, expect: Option<u64>, id: Uuid) -> Result<Self> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), expect, id })
    }
}

/// A version with everything done that needs no transaction.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    call: Call,
    text: Blob,
}

impl Ready {
    pub(crate) fn new(new: &NewDocument, id: Uuid) -> Result<Self> {
        let call = Call::new(&new.name, new.expect, id)?;
        let text = encoded(&DocumentKind::of_name(&new.name), &new.text)?;
        Ok(Self { call, text })
    }

    /// How many bytes it carries.
    pub(crate) fn bytes(&self) -> usize {
        self.text.data.len()
    }
}

/// Writes a version.
pub(crate) fn put(tx: &mut dyn Tx, hold: &Hold, ready: &Ready) -> Result<DocumentInfo> {
    step(tx, hold, &ready.call, &mut |_, _| Ok(Some(Cow::Borrowed(&ready.text))))
}

/// Writes the version that a merge patch makes of the current one, or of nothing.
pub(crate) fn patch(tx: &mut dyn Tx, hold: &Hold, call: &Call, patch: &str) -> Result<DocumentInfo> {
    step(tx, hold, call, &mut |tx, _| {
        let current = load(tx, &hold.thread, &call.name, None)?;
        let text = merge::merged(current.as_ref().map(|document| document.text.as_str()), patch);
        let text = text.map_err(|error| Error::invalid("patch", error.to_string()))?;
        Ok(Some(Cow::Owned(encoded(&DocumentKind::of_name(&call.name), &text)?)))
    })
}

/// Refuses a patch that can be no patch of anything.
pub(crate) fn check_patch(patch: &str) -> Result<()> {
    check_text("patch", patch, MAX_DOCUMENT_BYTES)?;
    merge::merged(None, patch).map(drop).map_err(|error| Error::invalid("patch", error.to_string()))
}

/// Deletes a document, which is a version without a text; says whether there was one.
pub(crate) fn delete(tx: &mut dyn Tx, hold: &Hold, call: &Call) -> Result<bool> {
    let deleted = step(tx, hold, call, &mut |_, found| if found { Ok(None) } else { Err(nothing(call)) });
    match deleted {
        Ok(_) => Ok(true),
        Err(Error::NotFound { what: "document", .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn nothing(call: &Call) -> Error {
    Error::not_found("document", &call.name)
}

/// Removes former versions but the newest `keep` ones; the current one stays, also when it is a deletion. Gives how many went.
pub(crate) fn trim(tx: &mut dyn Tx, hold: &Hold, name: &str, keep: u64) -> Result<u64> {
    check_name(name)?;
    let tick = threads::hold(tx, hold)?;
    let standing = standing(tx, &hold.thread, name)?.ok_or_else(|| Error::not_found("document", name))?;
    let last = standing.version.saturating_sub(1).saturating_sub(keep);
    let args = [hold.thread.as_str().into(), name.into(), number(last).into()];
    let removed = tx.execute(TRIM, &args)?;
    if removed > 0 {
        note(tx, hold, tick, name, Verb::Changed)?;
    }
    Ok(removed as u64)
}

/// What a document is to say, told whether there is one; nothing deletes it.
type Next<'a> = dyn FnMut(&mut dyn Tx, bool) -> Result<Option<Cow<'a, Blob>>> + 'a;

/// Writes the next version of a document. A repeated call finds the version that it made.
fn step(tx: &mut dyn Tx, hold: &Hold, call: &Call, next: &mut Next<'_>) -> Result<DocumentInfo> {
    let tick = threads::hold(tx, hold)?;
    let (id, name): (Value<'_>, Value<'_>) = (hold.thread.as_str().into(), call.name.as_str().into());
    if let Some(made) = query_one(tx, MADE_BY, &[id, Value::Blob(call.id.as_bytes())], |row| read(row, &hold.thread))? {
        let is_ours = made.name == call.name;
        return if is_ours { Ok(made) } else { Err(Error::AlreadyExists { what: "change", id: call.id.to_string() }) };
    }
    let standing = standing(tx, &hold.thread, &call.name)?;
    let found = standing.as_ref().filter(|standing| standing.has_text).map_or(0, |standing| standing.version);
    if let Some(expected) = call.expect.filter(|expected| *expected != found) {
        return Err(Error::Conflict { what: "version", expected: words_of(expected), found: words_of(found) });
    }
    let text = next(tx, found > 0)?;
    let kind = DocumentKind::of_name(&call.name);
    if let Some(known) =
        standing.as_ref().map(|standing| &standing.kind).filter(|known| **known != kind && text.is_some())
    {
        return Err(Error::Conflict { what: "kind", expected: kind.to_string(), found: known.to_string() });
    }
    let version = standing.as_ref().map_or(1, |standing| standing.version.saturating_add(1));
    tx.execute(STEP_BACK, &[id, name])?;
    let parts = text.as_deref();
    let args = [
        id,
        name,
        number(version).into(),
        kind.as_str().into(),
        Value::Blob(call.id.as_bytes()),
        hold.now.0.into(),
        tick.into(),
        parts.map(|text| text.digest.0.as_slice()).into(),
        parts.map_or(0, |text| i64::try_from(text.size).unwrap_or(i64::MAX)).into(),
        parts.map_or(0, |text| text.encoding).into(),
        parts.map(|text| text.data.as_slice()).into(),
    ];
    tx.execute(INSERT, &args)?;
    let verb = match (found, parts) {
        (_, None) => Verb::Deleted,
        (0, Some(_)) => Verb::Created,
        (_, Some(_)) => Verb::Changed,
    };
    note(tx, hold, tick, &call.name, verb)?;
    let made = query_one(tx, ONE_VERSION, &[id, name, number(version).into()], |row| read(row, &hold.thread))?;
    made.ok_or_else(|| nothing(call))
}

fn words_of(version: u64) -> String {
    if version == 0 { "no document".to_owned() } else { version.to_string() }
}

/// The newest version of a document, by what the next one needs to know.
struct Standing {
    version: u64,
    has_text: bool,
    kind: DocumentKind,
}

fn standing(tx: &mut dyn Tx, thread: &ThreadId, name: &str) -> Result<Option<Standing>> {
    query_one(tx, STANDING, &[thread.as_str().into(), name.into()], |row| {
        let version = row.parse(0, u64::try_from(row.int(0)?).ok(), "a version")?;
        Ok(Standing { version, has_text: row.opt_blob(1)?.is_some(), kind: DocumentKind::from_word(row.text(2)?) })
    })
}

/// Reads the current version of a document, or the one of a number; nothing when there is none, or when it is a deletion.
pub(crate) fn load(tx: &mut dyn Tx, thread: &ThreadId, name: &str, version: Option<u64>) -> Result<Option<Document>> {
    if check_name(name).is_err() {
        return Ok(None);
    }
    let (id, given): (Value<'_>, Value<'_>) = (thread.as_str().into(), name.into());
    let found = match version {
        None => query_one(tx, CURRENT, &[id, given], |row| read(row, thread))?,
        Some(version) => query_one(tx, ONE_VERSION, &[id, given, number(version).into()], |row| read(row, thread))?,
    };
    let Some(info) = found.filter(|info| info.digest.is_some()) else { return Ok(None) };
    let place = || place_of(thread, name, info.version);
    let text = text_of(tx, thread, name, info.version).map_err(|error| match error {
        Error::Corrupt { detail, .. } => Error::corrupt(place(), detail),
        other => other,
    })?;
    schema::check(&info.kind, &text).map_err(|reason| Error::corrupt(place(), reason))?;
    Ok(Some(Document { info, text }))
}

/// Reads a thread's scratchpad.
pub(crate) fn scratchpad(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Scratchpad>> {
    typed(tx, thread, &DocumentKind::Scratchpad, schema::scratchpad)
}

/// Reads a thread's plan.
pub(crate) fn plan(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<PlanSnapshot>> {
    typed(tx, thread, &DocumentKind::Plan, schema::plan)
}

/// Reads what is pinned in a thread.
pub(crate) fn pin(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<PreferencePin>> {
    typed(tx, thread, &DocumentKind::Pin, schema::pin)
}

fn typed<T>(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    kind: &DocumentKind,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>> {
    let Some(document) = load(tx, thread, kind.as_str(), None)? else { return Ok(None) };
    let place = place_of(thread, kind.as_str(), document.info.version);
    parse(&document.text).map(Some).map_err(|reason| Error::corrupt(place, reason))
}

/// Reads a page of a thread's documents.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &DocumentQuery) -> Result<Page<DocumentInfo>> {
    let tag = format!("documents {thread}");
    let start = query.cursor.as_ref().map(|cursor| Cursor::decode(cursor, &tag)).transpose()?;
    let (limit, one_more) = limits(query.limit);
    let args = [thread.as_str().into(), start.as_ref().map_or("", |start| start.id.as_str()).into(), one_more.into()];
    let (entries, more) = collect(tx, LIST, &args, limit, thread)?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: 0, id: last.name.clone() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// Reads a page of the versions of a document, the newest first.
pub(crate) fn history(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    name: &str,
    query: &DocumentQuery,
) -> Result<Page<DocumentInfo>> {
    check_name(name)?;
    let tag = format!("document history {thread} {name}");
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?.value,
        None => i64::MAX,
    };
    let (limit, one_more) = limits(query.limit);
    let args = [thread.as_str().into(), name.into(), start.into(), one_more.into()];
    let (entries, more) = collect(tx, HISTORY, &args, limit, thread)?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: number(last.version), id: String::new() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

fn limits(limit: usize) -> (usize, i64) {
    let limit = limit.min(MAX_PAGE);
    (limit, i64::try_from(limit).unwrap_or(0) + 1)
}

fn collect(
    tx: &mut dyn Tx,
    statement: Statement,
    args: &[Value<'_>],
    limit: usize,
    thread: &ThreadId,
) -> Result<(Vec<DocumentInfo>, bool)> {
    let (mut entries, mut more): (Vec<DocumentInfo>, bool) = (Vec::new(), false);
    tx.query(statement, args, &mut |row| {
        more = entries.len() == limit;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        entries.push(read(row, thread)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((entries, more))
}

/// Where a text stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextPlace {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) kind: DocumentKind,
}

/// The next text of a thread's documents, former versions included; what can't be read is told with its place.
pub(crate) fn next_text(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    (name, version): (&str, u64),
) -> Result<Option<(TextPlace, Result<String>)>> {
    let found = query_one(tx, TEXTS, &[thread.as_str().into(), name.into(), number(version).into()], |row| {
        let version = row.parse(1, u64::try_from(row.int(1)?).ok(), "a version")?;
        Ok(TextPlace { name: row.text(0)?.to_owned(), version, kind: DocumentKind::from_word(row.text(2)?) })
    })?;
    let Some(place) = found else { return Ok(None) };
    match text_of(tx, thread, &place.name, place.version) {
        Err(Error::Corrupt { detail, .. }) => {
            let damage = Error::corrupt(place_of(thread, &place.name, place.version), detail);
            Ok(Some((place, Err(damage))))
        }
        text => Ok(Some((place, Ok(text?)))),
    }
}

/// Puts a text in the place of the one that a version has; it keeps its number.
pub(crate) fn replace_text(tx: &mut dyn Tx, thread: &ThreadId, place: &TextPlace, text: &Blob) -> Result<()> {
    let args = [
        thread.as_str().into(),
        place.name.as_str().into(),
        number(place.version).into(),
        Value::Blob(&text.digest.0),
        i64::try_from(text.size).unwrap_or(i64::MAX).into(),
        text.encoding.into(),
        Value::Blob(&text.data),
    ];
    tx.execute(REPLACE, &args).map(drop)
}

/// The names of a thread's documents after a name, those of deleted ones included.
pub(crate) fn names(tx: &mut dyn Tx, thread: &ThreadId, after: &str) -> Result<Vec<String>> {
    let args = [thread.as_str().into(), after.into(), limits(MAX_PAGE).1.into()];
    query_all(tx, NAMES, &args, |row| Ok(row.text(0)?.to_owned()))
}

/// Gives a document another name with its history; a number is put behind a name that is taken.
pub(crate) fn rename(tx: &mut dyn Tx, thread: &ThreadId, from: &str, to: &str) -> Result<()> {
    let to = cut(to, MAX_NAME_BYTES - 21);
    let mut name = to.to_owned();
    for number in 2_u64.. {
        if standing(tx, thread, &name)?.is_none() {
            break;
        }
        name = format!("{to} {number}");
    }
    tx.execute(RENAME, &[thread.as_str().into(), from.into(), name.as_str().into()])?;
    // The feed names what changed.
    changes::forget_subjects(tx, thread)
}

/// The beginning of a text, of so many bytes at most.
fn cut(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Prepares a text for being stored, if it can be a document of the kind.
fn encoded(kind: &DocumentKind, text: &str) -> Result<Blob> {
    check_text("document", text, MAX_DOCUMENT_BYTES)?;
    schema::check(kind, text).map_err(|reason| Error::invalid("document", format!("{kind}: {reason}")))?;
    Ok(content::encode_blob(text.as_bytes()))
}

fn text_of(tx: &mut dyn Tx, thread: &ThreadId, name: &str, version: u64) -> Result<String> {
    let damaged = |detail: &str| Error::corrupt("document", detail);
    let args = [thread.as_str().into(), name.into(), number(version).into()];
    let found = query_one(tx, TEXT, &args, |row| {
        let size = row.parse(0, usize::try_from(row.int(0)?).ok(), "a size")?;
        let digest = row.parse(3, Hash::from_slice(row.blob(3)?), "a hash")?;
        Ok((content::decode_blob(row.int(1)?, size, row.blob(2)?)?, size, digest))
    })?;
    match found {
        Some((bytes, size, digest)) if bytes.len() == size && Hash::of(&bytes) == digest => {
            String::from_utf8(bytes).map_err(|_| damaged("it is no UTF-8"))
        }
        Some(_) => Err(damaged("its bytes do not have the size and the hash that they are stored under")),
        None => Err(damaged("it is missing")),
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("name", "it is empty"));
    }
    check_text("name", name, MAX_NAME_BYTES)
}

/// Notes for those who follow what became of a document.
fn note(tx: &mut dyn Tx, hold: &Hold, tick: i64, name: &str, verb: Verb) -> Result<()> {
    let note = Note { area: Area::Document, verb, subject: Some(name), now: hold.now };
    changes::note(tx, &hold.thread, Some(tick), note)
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn place_of(thread: &ThreadId, name: &str, version: u64) -> String {
    format!("document `{name}` of thread {thread}, version {version}")
}

/// Reads the columns of `version_columns!`. Damage names the document.
fn read(row: &Row<'_>, thread: &ThreadId) -> Result<DocumentInfo> {
    let name = row.text(0)?.to_owned();
    let place = format!("document `{name}` of thread {thread}");
    read_columns(row, thread, name).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_columns(row: &Row<'_>, thread: &ThreadId, name: String) -> Result<DocumentInfo> {
    let digest = match row.opt_blob(3)? {
        None => None,
        Some(digest) => Some(row.parse(3, Hash::from_slice(digest), "a hash")?),
    };
    Ok(DocumentInfo {
        thread: thread.clone(),
        name,
        version: row.parse(1, u64::try_from(row.int(1)?).ok(), "a version")?,
        kind: DocumentKind::from_word(row.text(2)?),
        digest,
        size: row.parse(4, u64::try_from(row.int(4)?).ok(), "a size")?,
        created_at: Timestamp(row.int(5)?),
        tick: row.int(6)?,
    })
}
