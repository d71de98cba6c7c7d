//! Reading a path: pages in both directions, whose cost grows with what they return and not with the history.

use std::ops::ControlFlow;

use crate::content;
use crate::cursor::Cursor;
use crate::db::{Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::{Hash, Item, Kind, Role};
use crate::log::path::{self, Segment};
use crate::log::{blobs, head};
use crate::records;
use crate::thread::Page;
use crate::time::Timestamp;

/// The most items on a page.
pub(crate) const MAX_PAGE: usize = 2_000;
/// How many rows are asked for at first. An engine that is far away sends all that it was asked for, though a page ends early.
const FIRST_ROWS: usize = 256;
/// A page ends early when its content reaches this many bytes, so that memory stays bounded.
const MAX_PAGE_BYTES: usize = 16 << 20;

macro_rules! item_columns {
    () => {
        "key, id, turn, kind, role, format, writer, epoch, tick, created_at, source_id, sources, digest, hash, size, encoding, content"
    };
}

statements! {
    RANGE_UP = concat!("SELECT ", item_columns!(), " FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3");
    RANGE_DOWN = concat!("SELECT ", item_columns!(), " FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT ?3");
    ONE = concat!("SELECT ", item_columns!(), " FROM items WHERE key = ?1");
    LATEST_COMPACTION = "SELECT max(key) FROM items WHERE kind = 'compaction' AND key BETWEEN ?1 AND ?2";
    // In an order that no index has: a damaged one keeps nothing from being read.
    WRITERS = "SELECT key, id FROM writers ORDER BY key";
}

/// Which items of a thread to read, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemQuery {
    /// The end of the path; the thread's head when `None`.
    pub at: Option<Address>,
    /// Only items from this depth on.
    pub from: u32,
    /// Only items up to this depth.
    pub to: Option<u32>,
    /// Begin at the end and go towards the root.
    pub newest_first: bool,
    /// The page's size; 0 gives an empty page, more than 2,000 is 2,000. A page ends early at 16 MiB of content.
    pub limit: usize,
    /// Where the page starts: the `next_cursor` of an earlier page of the same query. It keeps to the path that the first
    /// page saw, though the head moves on.
    pub cursor: Option<String>,
}

impl Default for ItemQuery {
    fn default() -> Self {
        Self { at: None, from: 0, to: None, newest_first: false, limit: 200, cursor: None }
    }
}

/// Reads a page of a thread's path.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &ItemQuery) -> Result<Page<Item>> {
    let empty = Page { entries: Vec::new(), next_cursor: None };
    let tag = format!("items {thread} {:?} {} {:?} {}", query.at, query.from, query.to, query.newest_first);
    let cursor = query.cursor.as_deref().map(|text| Cursor::decode(text, &tag)).transpose()?;
    let Some(end) = path_end(tx, thread, query.at, cursor.as_ref())? else {
        return Ok(empty);
    };
    let (mut low, mut high) = (query.from, query.to.unwrap_or(u32::MAX).min(end.depth()));
    if let Some(cursor) = &cursor {
        let next = u32::try_from(cursor.value).map_err(|_| Error::invalid("cursor", "it is damaged"))?;
        if query.newest_first { high = high.min(next) } else { low = low.max(next) }
    }
    let limit = query.limit.min(MAX_PAGE);
    if low > high || limit == 0 {
        return Ok(empty);
    }
    let mut reader = Reader::new(tx, limit)?;
    if query.newest_first {
        reader.read_down(tx, end, low, high)?;
    } else {
        reader.read_up(tx, end, low, high)?;
    }
    let next = reader.items.last().and_then(|last| match query.newest_first {
        true => last.depth.checked_sub(1).filter(|next| *next >= low),
        false => last.depth.checked_add(1).filter(|next| *next <= high),
    });
    let next_cursor = match next {
        None => None,
        Some(next) => {
            let end = path::address_of(tx, end)?;
            Some(Cursor { value: i64::from(next), id: end.to_string() }.encode(&tag))
        }
    };
    Ok(Page { entries: reader.items, next_cursor })
}

/// Reads one item of the thread.
pub(crate) fn item(tx: &mut dyn Tx, thread: &ThreadId, address: Address) -> Result<Item> {
    let key = head::resolve(tx, thread, address)?;
    let missing = || Error::not_found("item", format!("{thread} {address}"));
    let segment = path::segments_to(tx, key, key.depth())?.into_iter().next().ok_or_else(missing)?;
    let mut reader = Reader::new(tx, 1)?;
    reader.scan(tx, &segment, key, key, false)?;
    reader.items.pop().ok_or_else(missing)
}

/// The items of the path to `end` from a depth on, oldest first, as many as fit on a page.
pub(crate) fn run(tx: &mut dyn Tx, end: ItemKey, from: u32, limit: usize) -> Result<Vec<Item>> {
    let mut reader = Reader::new(tx, limit)?;
    reader.read_up(tx, end, from, end.depth())?;
    Ok(reader.items)
}

/// What a model is given to go on: the latest compaction on the path and everything after it, oldest first.
pub(crate) fn model_context(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<u32>> {
    let (Some(end), _) = head::head_of(tx, thread)? else {
        return Ok(None);
    };
    let mut from = 0;
    path::walk(tx, end, &mut |tx, segment| {
        let range = [segment.key(segment.base).0.into(), segment.key(segment.upto).0.into()];
        let latest = query_one(tx, LATEST_COMPACTION, &range, |row| row.opt_int(0))?.flatten();
        let Some(latest) = latest else {
            return Ok(ControlFlow::Continue(()));
        };
        from = ItemKey(latest).depth();
        Ok(ControlFlow::Break(()))
    })?;
    Ok(Some(from))
}

fn path_end(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    at: Option<Address>,
    cursor: Option<&Cursor>,
) -> Result<Option<ItemKey>> {
    if let Some(cursor) = cursor {
        let damaged = || Error::invalid("cursor", "it is damaged");
        let (branch, depth) = cursor.id.split_once('@').ok_or_else(damaged)?;
        let address = Address { branch: branch.parse()?, depth: depth.parse().map_err(|_| damaged())? };
        return head::resolve(tx, thread, address).map(Some);
    }
    match at {
        Some(address) => head::resolve(tx, thread, address).map(Some),
        None => head::head_of(tx, thread).map(|(head, _)| head),
    }
}

/// Collects items of a path until a page is full.
pub(crate) struct Reader {
    writers: Vec<(i64, WriterId)>,
    limit: usize,
    bytes: usize,
    /// Something damaged follows the last item; the page ends before it.
    before_damage: bool,
    pub(crate) items: Vec<Item>,
}

impl Reader {
    pub(crate) fn new(tx: &mut dyn Tx, limit: usize) -> Result<Self> {
        let writers = query_all(tx, WRITERS, &[], |row| {
            Ok((row.int(0)?, row.parse(1, WriterId::from_slice(row.blob(1)?), "16 bytes of an id")?))
        })?;
        Ok(Self { writers, limit, bytes: 0, before_damage: false, items: Vec::new() })
    }

    fn is_full(&self) -> bool {
        self.before_damage || self.items.len() >= self.limit || self.bytes >= MAX_PAGE_BYTES
    }

    fn read_down(&mut self, tx: &mut dyn Tx, end: ItemKey, low: u32, high: u32) -> Result<()> {
        path::walk(tx, end, &mut |tx, segment| {
            let (from, to) = (segment.base.max(low), segment.upto.min(high));
            if from <= to {
                self.scan(tx, &segment, segment.key(from), segment.key(to), true)?;
            }
            let done = self.is_full() || segment.base <= low;
            Ok(if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }

    fn read_up(&mut self, tx: &mut dyn Tx, end: ItemKey, low: u32, high: u32) -> Result<()> {
        for segment in path::segments_to(tx, end, low)?.iter().rev() {
            let (from, to) = (segment.base.max(low), segment.upto.min(high));
            if from <= to {
                self.scan(tx, segment, segment.key(from), segment.key(to), false)?;
            }
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    /// Reads a range of one branch, in steps.
    fn scan(
        &mut self,
        tx: &mut dyn Tx,
        segment: &Segment,
        mut from: ItemKey,
        mut to: ItemKey,
        newest_first: bool,
    ) -> Result<()> {
        let mut rows = FIRST_ROWS;
        while from <= to {
            let asked = self.limit.saturating_sub(self.items.len()).min(rows);
            let before = self.items.len();
            self.scan_rows(tx, segment, (from, to, asked), newest_first)?;
            let Some(last) = self.items.get(before..).and_then(<[Item]>::last).map(|item| segment.key(item.depth))
            else {
                break;
            };
            if self.is_full() || self.items.len() - before < asked {
                break;
            }
            // About as many as there is room for.
            let size = (self.bytes / self.items.len()).max(1);
            rows = (MAX_PAGE_BYTES.saturating_sub(self.bytes) / size).max(1);
            match newest_first {
                true => to = ItemKey(last.0 - 1),
                false => from = ItemKey(last.0 + 1),
            }
        }
        Ok(())
    }

    fn scan_rows(
        &mut self,
        tx: &mut dyn Tx,
        segment: &Segment,
        (from, to, asked): (ItemKey, ItemKey, usize),
        newest_first: bool,
    ) -> Result<()> {
        let statement = if newest_first { RANGE_DOWN } else { RANGE_UP };
        let (mut spliced, mut redacted, mut last) = (Vec::new(), Vec::new(), None);
        let limit = i64::try_from(asked).unwrap_or(i64::MAX);
        let before = self.items.len();
        let misplaced = |words: &str| Error::corrupt(format!("items of {}", segment.thread), format!("a row {words}"));
        let scanned = tx.query(statement, &[from.0.into(), to.0.into(), limit.into()], &mut |row| {
            let key = row.int(0)?;
            // A branch has an item at every depth. Where the engine gives others, it takes a page of other rows, or of the same
            // ones, for the page that it looked for.
            let next = match (newest_first, last) {
                (false, None) => from.0,
                (true, None) => to.0,
                (false, Some(last)) => last + 1,
                (true, Some(last)) => last - 1,
            };
            if key != next {
                return Err(misplaced("stands where it does not belong, or others are missing before it"));
            }
            last = Some(key);
            let (item, whole) = self.read_item(row, segment)?;
            if !whole {
                spliced.push(self.items.len());
            }
            if content::is_redacted(row.int(15)?) {
                redacted.push(self.items.len());
            }
            self.bytes += usize::try_from(row.int(14)?).unwrap_or(0);
            self.items.push(item);
            Ok(if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        let end = if newest_first { from.0 } else { to.0 };
        let is_short = !self.is_full() && self.items.len() - before < asked && last != Some(end);
        let scanned = scanned.and_then(|()| if is_short { Err(misplaced("is missing")) } else { Ok(()) });
        match scanned {
            // A row that says no item, or a page on which the engine finds no row.
            Err(Error::Corrupt { .. }) if !self.items.is_empty() => self.before_damage = true,
            scanned => scanned?,
        }
        self.load_payloads(tx, segment, &spliced)?;
        for index in redacted {
            let Some(item) = self.items.get_mut(index) else { continue };
            // One that is not on record is a matter of verification; what is left can be read.
            item.redaction = records::redaction_of(tx, item.id)?.map(|record| Box::new((&record).into()));
        }
        Ok(())
    }

    /// Loads what is stored apart from its items.
    fn load_payloads(&mut self, tx: &mut dyn Tx, segment: &Segment, spliced: &[usize]) -> Result<()> {
        for index in spliced {
            let Some(item) = self.items.get_mut(*index) else { continue };
            match load_spliced(tx, segment.key(item.depth)) {
                Ok(content) => item.content = content,
                Err(Error::Corrupt { .. }) if *index > 0 => {
                    self.items.truncate(*index);
                    self.before_damage = true;
                    return Ok(());
                }
                Err(error) => return Err(name_item(error, segment, item.depth)),
            }
        }
        Ok(())
    }

    /// Reads a row; says whether its content is complete or has payloads to be loaded.
    pub(crate) fn read_item(&self, row: &Row<'_>, segment: &Segment) -> Result<(Item, bool)> {
        let key = ItemKey(row.int(0)?);
        let writer = row.int(6)?;
        let writer = self.writers.iter().find(|(key, _)| *key == writer).map(|(_, id)| *id);
        let content = row_content(row, 14, &mut |digest| Err(Error::not_found("blob", digest)));
        let (content, whole) = match content {
            Ok(content) => (content, true),
            Err(Error::NotFound { what: "blob", .. }) => (Vec::new(), false),
            Err(error) => return Err(name_item(error, segment, key.depth())),
        };
        let item = Item {
            id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
            thread: segment.thread.clone(),
            branch: segment.id,
            depth: key.depth(),
            turn: row.opt_int(2)?,
            kind: Kind::from_word(row.text(3)?),
            role: row.opt_text(4)?.map(Role::from_word),
            format: row.text(5)?.to_owned(),
            writer: row.parse(6, writer, "a known writer")?,
            epoch: row.int(7)?,
            tick: row.int(8)?,
            created_at: Timestamp(row.int(9)?),
            source_id: row.opt_text(10)?.map(str::to_owned),
            sources: read_ids(row, 11)?,
            content,
            digest: row.parse(12, Hash::from_slice(row.blob(12)?), "a hash")?,
            hash: row.parse(13, Hash::from_slice(row.blob(13)?), "a hash")?,
            redaction: None,
        };
        Ok((item, whole))
    }
}

fn name_item(error: Error, segment: &Segment, depth: u32) -> Error {
    match error {
        Error::Corrupt { detail, .. } => Error::corrupt(format!("item {}@{depth}", segment.thread), detail),
        other => other,
    }
}

/// The content of a row whose columns from `at` on are size, encoding and content.
pub(crate) fn row_content(row: &Row<'_>, at: usize, blob: &mut dyn FnMut(Hash) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let size = usize::try_from(row.int(at)?).unwrap_or(usize::MAX);
    let encoding = row.int(at + 1)?;
    match row.opt_blob(at + 2)? {
        Some(bytes) => content::decode(encoding, size, bytes, blob),
        None if content::is_redacted(encoding) => Ok(Vec::new()),
        None => Err(Error::corrupt("item content", "it is missing")),
    }
}

/// Loads content whose payloads are stored apart.
pub(crate) fn load_spliced(tx: &mut dyn Tx, key: ItemKey) -> Result<Vec<u8>> {
    let place = || format!("item {}", key.0);
    let stored = query_one(tx, ONE, &[key.0.into()], |row| {
        let size = usize::try_from(row.int(14)?).unwrap_or(usize::MAX);
        Ok((row.int(15)?, size, row.opt_blob(16)?.map(<[u8]>::to_vec)))
    })?;
    match stored.ok_or_else(|| Error::corrupt(place(), "it is missing"))? {
        (encoding, size, Some(bytes)) => content::decode(encoding, size, &bytes, &mut |digest| blobs::load(tx, digest)),
        (encoding, _, None) if content::is_redacted(encoding) => Ok(Vec::new()),
        _ => Err(Error::corrupt(place(), "its content is missing")),
    }
}

/// Reads a list of ids that are stored one after the other.
pub(crate) fn read_ids(row: &Row<'_>, column: usize) -> Result<Vec<ItemId>> {
    let bytes = row.opt_blob(column)?.unwrap_or_default();
    if bytes.len() % 16 != 0 {
        return row.parse(column, None, "ids of 16 bytes");
    }
    Ok(bytes.chunks_exact(16).filter_map(ItemId::from_slice).collect())
}
