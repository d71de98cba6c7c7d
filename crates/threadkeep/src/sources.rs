//! Imported files: what of them is in the store, so that the next import reads only what is new and any file can be given back.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::db::{Owned, Row, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId};
use crate::item::{Hash, NewItem, check_text};
use crate::log::read::load_spliced;
use crate::log::{order, path, redact, rows};
use crate::screen::Screen;
use crate::thread::ThreadPatch;
use crate::time::Timestamp;

// Two kilobytes are what an index of every engine takes as a key.
const MAX_PATH_BYTES: usize = 2 << 10;
/// How many parts are put into another store at a time.
const PAGE_SEGMENTS: i64 = 1_000;
/// So many bytes of a file are read at a time, and the part that reaches beyond: what is damaged is stored in parts of megabytes.
const PAGE_BYTES: i64 = 8 << 20;
/// The longest note that a codec may leave with a record.
pub const MAX_NOTE_BYTES: usize = 64;

statements! {
    SOURCE = "SELECT agent, path, thread, size, mtime, consumed, prefix, records, skipped, state FROM sources WHERE path = ?1";
    SOURCES_OF = "SELECT agent, path, thread, size, mtime, consumed, prefix, records, skipped, state FROM sources WHERE thread = ?1 ORDER BY key";
    LOCK_SOURCE = "SELECT key FROM sources WHERE path = ?1 /* FOR UPDATE */";
    STAMPS = "SELECT path, size, mtime, records, skipped, thread, agent FROM sources WHERE path > ?1 ORDER BY path LIMIT ?2";
    WRITE_SOURCE = "INSERT INTO sources (key, agent, path, thread, size, mtime, consumed, prefix, records, skipped, state, imported_at)
        VALUES ((SELECT coalesce(max(key), 0) + 1 FROM sources), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT (path) DO UPDATE SET agent = excluded.agent, thread = excluded.thread, size = excluded.size,
          mtime = excluded.mtime, consumed = excluded.consumed, prefix = excluded.prefix, records = excluded.records,
          skipped = excluded.skipped, state = excluded.state, imported_at = excluded.imported_at
        RETURNING key";
    CLEAR_SEGMENTS = "DELETE FROM segments WHERE source IN (SELECT key FROM sources WHERE path = ?1)";
    WRITE_SEGMENT = "INSERT INTO segments (source, position, length, item, note, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    KNOWN_RECORDS = "SELECT g.position, g.note, i.id, i.source_id FROM segments g
        JOIN items i ON i.key = g.item WHERE g.source = (SELECT key FROM sources WHERE path = ?1) AND g.position > ?2 ORDER BY g.position LIMIT ?3";
    // The file is found first, by itself: joined, a server without statistics reads all segments for every page.
    SEGMENTS = "SELECT g.position, g.length, g.item, g.bytes FROM segments g
        WHERE g.source = (SELECT key FROM sources WHERE path = ?1) AND g.position > ?2 ORDER BY g.position LIMIT ?3";
    // What was masked or taken away has another length than it had in the file; one of the same length can't be told.
    CHANGED_SEGMENTS = "SELECT g.position, g.length, g.item, g.bytes FROM segments g LEFT JOIN items i ON i.key = g.item
        WHERE g.source = (SELECT key FROM sources WHERE path = ?1) AND g.position > ?2
          AND coalesce(i.size, length(g.bytes)) <> g.length ORDER BY g.position LIMIT ?3";
    KNOWN_ITEM = "SELECT 1 FROM items WHERE id = ?1";
    FILE_ROW = "SELECT agent, size, mtime, consumed, prefix, records, skipped, state, imported_at FROM sources WHERE path = ?1";
    SEGMENT_ROWS = "SELECT g.position, g.length, g.item, g.note, g.bytes FROM segments g
        WHERE g.source = (SELECT key FROM sources WHERE path = ?1) AND g.position > ?2 AND g.position < ?3 ORDER BY g.position LIMIT ?4";
    OWNER = "SELECT thread FROM sources WHERE path = ?1";
    DROP_FILE = "DELETE FROM sources WHERE path = ?1";
    NAME_FILE = "UPDATE sources SET path = ?2, thread = ?3 WHERE path = ?1";
    PUT_FILE = "INSERT INTO sources (key, path, agent, size, mtime, consumed, prefix, records, skipped, state, imported_at)
        VALUES ((SELECT coalesce(max(key), 0) + 1 FROM sources), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    PUT_SEGMENT = "INSERT INTO segments (source, position, length, item, note, bytes)
        VALUES ((SELECT key FROM sources WHERE path = ?1), ?2, ?3, ?4, ?5, ?6)";
}

/// What the store knows of an imported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// The agent whose codec read it.
    pub agent: String,
    /// The file, by the path it was imported from.
    pub path: String,
    /// The thread; `None` when that was purged since.
    pub thread: Option<ThreadId>,
    /// Its size just before it was read; negative until it was read to its end.
    pub size: i64,
    /// Its modification time just before it was read, in nanoseconds since the epoch.
    pub mtime: i64,
    /// How many bytes of it are in the store.
    pub consumed: i64,
    /// The BLAKE3 hash of these bytes.
    pub prefix: Hash,
    /// How many records they held, skipped ones included.
    pub records: i64,
    /// How many of these were skipped.
    pub skipped: i64,
    /// What the codec wants back when the file has grown.
    pub state: Vec<u8>,
}

/// The stamp of an imported file: enough to see that it has not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `SourceFile`")]
pub struct SourceStamp {
    pub path: String,
    pub size: i64,
    pub mtime: i64,
    pub records: i64,
    pub skipped: i64,
    pub thread: Option<ThreadId>,
    pub agent: String,
}

/// A record that an earlier import placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRecord {
    /// Where it stands in the file.
    pub position: i64,
    /// What the codec noted.
    pub note: Vec<u8>,
    /// The item it became.
    pub item: ItemId,
    /// The id it carries in its file.
    pub source_id: Option<String>,
}

/// A part of a file that is written with an [`ImportBatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSegment {
    /// Where it stands in the file. Negative: it follows from the file and stands nowhere in it, so the map of the file knows
    /// nothing of it. Of such a part only the item is stored; bytes beside are not, for the file holds what they are made from.
    pub position: i64,
    /// Its length in the file; its bytes are as many, unless something else was stored in their place.
    pub length: i64,
    /// What it is.
    pub part: ImportPart,
}

/// What a part of a file becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportPart {
    /// A new item.
    Item {
        /// The item; its id is chosen by the importer.
        item: Box<NewItem>,
        /// The item that it continues; `None` for a root.
        after: Option<ItemId>,
        /// Whether a turn begins with it.
        starts_turn: bool,
        /// What the codec notes.
        note: Vec<u8>,
    },
    /// An item that is in the thread already.
    Known {
        /// Its id.
        item: ItemId,
        /// What the codec notes.
        note: Vec<u8>,
    },
    /// Bytes kept beside the tree.
    Beside {
        /// The exact bytes.
        bytes: Vec<u8>,
    },
}

/// What one step of an import writes, in one transaction: items, the map of the file, and how far it has been read.
#[derive(Debug, Clone)]
pub struct ImportBatch {
    /// The file after this step.
    pub source: SourceFile,
    /// What the store said of the file when this step was planned: how many bytes were in it, and their hash. `None` when
    /// the file was not known. A step that was planned on anything else than what is stored is refused, because it would
    /// move the map of the file back.
    pub expected: Option<(i64, Hash)>,
    /// Whether the file is mapped anew because its beginning has changed.
    pub replace: bool,
    /// The parts that this step adds, in file order.
    pub segments: Vec<ImportSegment>,
    /// Whether the parts are what [`crate::Store::screened`] made of them. Else they are screened when the step is written, and
    /// what the importer took from them before (their ids, what it says of the thread) comes from what was there before that.
    pub screened: bool,
    /// Where the file's own agent would continue from; the last item when `None`.
    pub head: Option<ItemId>,
    /// What the file says of its thread, as far as it was read.
    pub patch: Option<ThreadPatch>,
    /// When the file's last record was made: the thread is shown as changed then.
    pub updated_at: Option<Timestamp>,
}

impl ImportBatch {
    /// Screens its parts, unless that was done; gives the number of those that something else is stored of.
    pub(crate) fn screen(&mut self, screen: &Screen) -> Result<usize> {
        let mut replaced = 0;
        let parts = self.segments.iter_mut().filter(|_| !self.screened);
        for segment in parts {
            let content = match &mut segment.part {
                ImportPart::Item { item, .. } => {
                    screen.text("source_id", &mut item.source_id)?;
                    &mut item.content
                }
                ImportPart::Beside { bytes } => bytes,
                ImportPart::Known { .. } => continue,
            };
            if let Some(bytes) = screen.imported(&self.source.path, content)? {
                *content = bytes;
                replaced += 1;
            }
        }
        self.screened = true;
        if let Some(patch) = &mut self.patch {
            screen.patch(patch)?;
        }
        Ok(replaced)
    }

    /// How much memory it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let of = |segment: &ImportSegment| match &segment.part {
            ImportPart::Item { item, note, .. } => item.content.len() + note.len(),
            ImportPart::Known { note, .. } => note.len(),
            ImportPart::Beside { bytes } => bytes.len(),
        };
        self.segments.iter().map(|segment| size_of::<ImportSegment>() + of(segment)).sum()
    }
}

/// Reads what is known of a file.
pub(crate) fn find(tx: &mut dyn Tx, path: &str) -> Result<Option<SourceFile>> {
    query_one(tx, SOURCE, &[path.into()], read_source)
}

/// Reads the files that a thread was imported from.
pub(crate) fn of_thread(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<SourceFile>> {
    query_all(tx, SOURCES_OF, &[thread.as_str().into()], read_source)
}

/// Reads a page of stamps in the order of the paths.
pub(crate) fn stamps(tx: &mut dyn Tx, after: &str, limit: i64) -> Result<Vec<SourceStamp>> {
    query_all(tx, STAMPS, &[after.into(), limit.into()], |row| {
        Ok(SourceStamp {
            path: row.text(0)?.to_owned(),
            size: row.int(1)?,
            mtime: row.int(2)?,
            records: row.int(3)?,
            skipped: row.int(4)?,
            thread: row.opt_text(5)?.and_then(|id| ThreadId::new(id).ok()),
            agent: row.text(6)?.to_owned(),
        })
    })
}

/// Reads a page of the placed records of a file, in file order.
pub(crate) fn known_records(tx: &mut dyn Tx, file: &str, after: i64, limit: i64) -> Result<Vec<KnownRecord>> {
    query_all(tx, KNOWN_RECORDS, &[file.into(), after.into(), limit.into()], |row| {
        Ok(KnownRecord {
            position: row.int(0)?,
            note: row.opt_blob(1)?.unwrap_or_default().to_vec(),
            item: row.parse(2, ItemId::from_slice(row.blob(2)?), "16 bytes of an id")?,
            source_id: row.opt_text(3)?.map(str::to_owned),
        })
    })
}

/// Which of these items are stored.
pub(crate) fn stored(tx: &mut dyn Tx, ids: &[ItemId]) -> Result<Vec<ItemId>> {
    let mut found = Vec::new();
    for id in ids {
        if query_one(tx, KNOWN_ITEM, &[id.as_bytes().as_slice().into()], |_| Ok(()))?.is_some() {
            found.push(*id);
        }
    }
    Ok(found)
}

/// Notes a file whose sessions are sources of their own: it has no thread and no parts.
pub(crate) fn note_container(tx: &mut dyn Tx, source: &SourceFile, now: Timestamp) -> Result<()> {
    check_text("path", &source.path, MAX_PATH_BYTES)?;
    if query_one(tx, LOCK_SOURCE, &[source.path.as_str().into()], |_| Ok(()))?.is_none() {
        order::line_up(tx)?;
    }
    if find(tx, &source.path)?.is_some_and(|found| found.thread.is_some()) {
        let (expected, found) = ("a file of sessions".to_owned(), "a session".to_owned());
        return Err(Error::Conflict { what: "source", expected, found });
    }
    put(tx, source, now).map(drop)
}

/// Notes the file and its new parts. The items are stored already, in the same transaction; of the new ones it is known where.
pub(crate) fn write(
    tx: &mut dyn Tx,
    batch: &ImportBatch,
    placed: &HashMap<ItemId, ItemKey>,
    now: Timestamp,
) -> Result<()> {
    let source = &batch.source;
    check_text("path", &source.path, MAX_PATH_BYTES)?;
    if query_one(tx, LOCK_SOURCE, &[source.path.as_str().into()], |_| Ok(()))?.is_none() {
        order::line_up(tx)?;
    }
    let found = find(tx, &source.path)?.map(|stored| (stored.consumed, stored.prefix));
    if found != batch.expected {
        let (expected, found) = (show_progress(batch.expected), show_progress(found));
        return Err(Error::Conflict { what: "source", expected, found });
    }
    if batch.replace {
        tx.execute(CLEAR_SEGMENTS, &[source.path.as_str().into()])?;
    }
    let key = put(tx, source, now)?;
    for segment in batch.segments.iter().filter(|segment| segment.position >= 0) {
        let (item, note, bytes) = match &segment.part {
            ImportPart::Item { item, note, .. } => (item.id, Some(note), None),
            ImportPart::Known { item, note } => (Some(*item), Some(note), None),
            ImportPart::Beside { bytes } => (None, None, Some(bytes)),
        };
        if note.is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
            return Err(Error::invalid("note", format!("at most {MAX_NOTE_BYTES} bytes are kept")));
        }
        let item = match item.map(|id| (id, placed.get(&id))) {
            Some((_, Some(key))) => Some(key.0),
            Some((id, None)) => Some(path::key_by_id(tx, id)?.ok_or_else(|| Error::not_found("item", id))?.0),
            None => None,
        };
        let args = [
            key.into(),
            segment.position.into(),
            segment.length.into(),
            item.into(),
            note.filter(|note| !note.is_empty()).map(Vec::as_slice).into(),
            bytes.map(Vec::as_slice).into(),
        ];
        tx.execute(WRITE_SEGMENT, &args)?;
    }
    Ok(())
}

/// Writes the row of a file and gives its key.
fn put(tx: &mut dyn Tx, source: &SourceFile, now: Timestamp) -> Result<i64> {
    let args = [
        source.agent.as_str().into(),
        source.path.as_str().into(),
        source.thread.as_ref().map(ThreadId::as_str).into(),
        source.size.into(),
        source.mtime.into(),
        source.consumed.into(),
        Value::Blob(&source.prefix.0),
        source.records.into(),
        source.skipped.into(),
        Value::Blob(&source.state),
        now.0.into(),
    ];
    let key = query_one(tx, WRITE_SOURCE, &args, |row| row.int(0))?;
    key.ok_or_else(|| Error::corrupt("table sources", "the row that was just written is missing"))
}

fn show_progress(progress: Option<(i64, Hash)>) -> String {
    progress.map_or_else(|| "an unknown file".to_owned(), |(consumed, prefix)| format!("{consumed} bytes, {prefix}"))
}

/// A part of an imported file, given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Where it stands in the file.
    pub position: i64,
    /// How many bytes it had there.
    pub length: i64,
    /// Its exact bytes; others where secrets were masked when it was written ([`crate::StoreOptions::on_write`]), and after a
    /// redaction what stands in their place.
    pub bytes: Vec<u8>,
    /// Whether something was taken out of it.
    pub redacted: bool,
}

/// Reads a page of a file's parts with their exact bytes, in file order.
pub(crate) fn parts(tx: &mut dyn Tx, file: &str, after: i64, limit: i64) -> Result<Vec<FilePart>> {
    parts_by(tx, SEGMENTS, file, after, limit)
}

/// Reads a page of those of a file's parts that are stored otherwise than they stood in the file.
pub(crate) fn changed_parts(tx: &mut dyn Tx, file: &str, after: i64, limit: i64) -> Result<Vec<FilePart>> {
    parts_by(tx, CHANGED_SEGMENTS, file, after, limit)
}

fn parts_by(tx: &mut dyn Tx, statement: Statement, file: &str, after: i64, limit: i64) -> Result<Vec<FilePart>> {
    let (mut rows, mut room) = (Vec::new(), PAGE_BYTES);
    tx.query(statement, &[file.into(), after.into(), limit.into()], &mut |row| {
        let length = row.int(1)?;
        rows.push((row.int(0)?, length, row.opt_int(2)?, row.opt_blob(3)?.map(<[u8]>::to_vec)));
        Ok(while_there_is_room(&mut room, length))
    })?;
    let mut parts = Vec::with_capacity(rows.len());
    for (position, length, item, bytes) in rows {
        let (bytes, redacted) = match (item, bytes) {
            (Some(item), _) => (load_spliced(tx, ItemKey(item))?, redact::is_redacted(tx, ItemKey(item))?),
            // What was taken out is longer or shorter than the mark in its place; one of the same length can't be told.
            (None, Some(bytes)) => {
                let redacted = i64::try_from(bytes.len()).ok() != Some(length);
                (bytes, redacted)
            }
            (None, None) => {
                return Err(Error::corrupt(format!("segment {position} of {file}"), "it has no bytes"));
            }
        };
        parts.push(FilePart { position, length, bytes, redacted });
    }
    Ok(parts)
}

/// Takes bytes from a page; says whether another row still belongs on it.
fn while_there_is_room(room: &mut i64, length: i64) -> ControlFlow<()> {
    *room = room.saturating_sub(length);
    if *room > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

fn read_source(row: &Row<'_>) -> Result<SourceFile> {
    Ok(SourceFile {
        agent: row.text(0)?.to_owned(),
        path: row.text(1)?.to_owned(),
        thread: row.opt_text(2)?.and_then(|id| ThreadId::new(id).ok()),
        size: row.int(3)?,
        mtime: row.int(4)?,
        consumed: row.int(5)?,
        prefix: row.parse(6, Hash::from_slice(row.blob(6)?), "a hash")?,
        records: row.int(7)?,
        skipped: row.int(8)?,
        state: row.blob(9)?.to_vec(),
    })
}

/// A file's row on its way to another store: its columns as they are stored, and how far the file was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileRow {
    columns: Vec<Owned>,
    pub(crate) consumed: i64,
}

/// A file's part on its way to another store.
#[derive(Debug)]
pub(crate) struct SegmentRow {
    pub(crate) position: i64,
    length: i64,
    item: Option<Address>,
    note: Owned,
    bytes: Owned,
}

/// Reads a file's row.
pub(crate) fn file_row(tx: &mut dyn Tx, path: &str) -> Result<Option<FileRow>> {
    query_one(tx, FILE_ROW, &[path.into()], |row| {
        let columns = (0..9).map(|at| row.owned(at)).collect::<Result<_>>()?;
        Ok(FileRow { columns, consumed: row.int(3)? })
    })
}

/// Reads a page of the parts between two positions.
pub(crate) fn segment_rows(tx: &mut dyn Tx, path: &str, after: i64, before: i64) -> Result<Vec<SegmentRow>> {
    let args = [path.into(), after.into(), before.into(), PAGE_SEGMENTS.into()];
    let (mut rows, mut room) = (Vec::new(), PAGE_BYTES);
    tx.query(SEGMENT_ROWS, &args, &mut |row| {
        let (length, item) = (row.int(1)?, row.opt_int(2)?.map(ItemKey));
        rows.push((row.int(0)?, length, item, row.owned(3)?, row.owned(4)?));
        Ok(while_there_is_room(&mut room, length))
    })?;
    let place = |(position, length, item, note, bytes)| {
        let item = match item {
            Some(key) => Some(path::address_of(tx, key)?),
            None => None,
        };
        Ok(SegmentRow { position, length, item, note, bytes })
    };
    rows.into_iter().map(place).collect()
}

/// Begins to put a file under a name of its own, in place of what an earlier try left there.
pub(crate) fn begin_file(tx: &mut dyn Tx, path: &str, thread: &ThreadId, row: &FileRow) -> Result<()> {
    let owner = query_one(tx, OWNER, &[path.into()], |row| Ok(row.opt_text(0)?.map(str::to_owned)))?.flatten();
    if let Some(owner) = owner.filter(|owner| owner != thread.as_str()) {
        return Err(Error::Conflict {
            what: "file",
            expected: path.to_owned(),
            found: format!("it belongs to thread {owner}"),
        });
    }
    let waiting = waiting_name(path);
    tx.execute(DROP_FILE, &[waiting.as_str().into()])?;
    order::line_up(tx)?;
    let mut args = vec![waiting.as_str().into()];
    args.extend(row.columns.iter().map(Owned::value));
    tx.execute(PUT_FILE, &args).map(drop)
}

/// Writes parts of the file that is being put. Their items are stored already.
pub(crate) fn put_segments(tx: &mut dyn Tx, path: &str, segments: &[SegmentRow]) -> Result<()> {
    let waiting = waiting_name(path);
    for segment in segments {
        let item = match segment.item {
            Some(address) => Some(rows::item_here(tx, address)?.0),
            None => None,
        };
        let args = [
            waiting.as_str().into(),
            segment.position.into(),
            segment.length.into(),
            item.into(),
            segment.note.value(),
            segment.bytes.value(),
        ];
        tx.execute(PUT_SEGMENT, &args)?;
    }
    Ok(())
}

/// Puts the file in the place of an earlier state of it.
pub(crate) fn finish_file(tx: &mut dyn Tx, path: &str, thread: &ThreadId) -> Result<()> {
    tx.execute(DROP_FILE, &[path.into()])?;
    let waiting = waiting_name(path);
    tx.execute(NAME_FILE, &[waiting.as_str().into(), path.into(), thread.as_str().into()]).map(drop)
}

/// Takes away what was put of a file.
pub(crate) fn drop_file(tx: &mut dyn Tx, path: &str) -> Result<()> {
    tx.execute(DROP_FILE, &[waiting_name(path).as_str().into()]).map(drop)
}

/// The name of a file that is not complete yet. No path of a file begins like this.
fn waiting_name(path: &str) -> String {
    format!("copying:{path}")
}
