//! The floor: SQLite without the store, on the same tables with the same settings and the same rows.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, Rows, Statement, StatementStatus, params};
use threadkeep::{Host as _, NewItem, SystemHost, Uuid};

use crate::text::Writer;
use crate::{Error, Result};

/// Where the library says what it sets on its connections.
const SETTINGS: &str = include_str!("../../threadkeep/src/db/pragmas.rs");
/// What the library compresses items of this size with, and at what level.
const DICTIONARY: &[u8] = include_bytes!("../../threadkeep/dictionaries/0001.zdict");
const LEVEL: i32 = 2;
/// How the library says so.
const ENCODING: i64 = 9;

/// Opens the database of a closed (or, for reading, an open) store.
///
/// # Errors
/// As SQLite.
pub fn open(folder: &Path, read_only: bool) -> Result<Connection> {
    let access = if read_only { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(folder.join("threadkeep.db"), flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    for pragma in pragmas() {
        connection.execute_batch(&format!("PRAGMA {pragma}"))?;
    }
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// What the library sets on every connection, read from its own text.
fn pragmas() -> impl Iterator<Item = &'static str> {
    let lines = SETTINGS.lines().map(|line| line.trim().trim_start_matches("let pragmas = \""));
    lines.filter_map(|line| line.strip_prefix("PRAGMA ")?.split(';').next())
}

/// The text of one of the library's own statements, so that both sides always run the same.
///
/// # Errors
/// When the library has no such statement.
pub fn statement(name: &str) -> Result<String> {
    let texts = threadkeep::statement_texts();
    let found = texts.into_iter().find(|(known, ..)| known == name);
    let (_, text, _) = found.ok_or_else(|| Error::from(format!("the library has no statement {name}")))?;
    Ok(text)
}

/// An item as the `items` table keeps it, with everything done that needs no transaction.
#[derive(Debug, Clone)]
pub struct RowData {
    id: [u8; 16],
    role: String,
    created_at: i64,
    salt: [u8; 16],
    digest: [u8; 32],
    hash: [u8; 32],
    size: i64,
    encoding: i64,
    content: Vec<u8>,
}

impl RowData {
    /// Compresses an item as the library does; random bytes stand for the digests.
    ///
    /// # Errors
    /// When compressing fails.
    pub fn new(item: &NewItem, writer: &mut Writer, compressor: &mut zstd::bulk::Compressor<'_>) -> Result<Self> {
        let now = SystemHost.now().0;
        let (encoding, content) = squeeze(&item.content, compressor)?;
        Ok(Self {
            id: time_ordered_id(now, writer),
            role: item.role.as_ref().map(ToString::to_string).unwrap_or_default(),
            created_at: now,
            salt: writer.bytes(),
            digest: writer.bytes(),
            hash: writer.bytes(),
            size: i64::try_from(item.content.len())?,
            encoding,
            content,
        })
    }

    /// Several rows of the text that `writer` gives.
    ///
    /// # Errors
    /// As [`RowData::new`].
    pub fn several(count: usize, writer: &mut Writer) -> Result<Vec<Self>> {
        let mut compressor = compressor()?;
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let item = writer.item();
            rows.push(Self::new(&item, writer, &mut compressor)?);
        }
        Ok(rows)
    }

    /// Gives the values of the row, in the order of the table, to a client of PostgreSQL.
    ///
    /// # Errors
    /// Those of `give`.
    pub fn with_values<T>(
        &self,
        key: i64,
        give: impl FnOnce(&[&(dyn postgres::types::ToSql + Sync)]) -> Result<T>,
    ) -> Result<T> {
        let (no_number, no_text, no_bytes) = (None::<i64>, None::<&str>, None::<&[u8]>);
        let [id, salt, digest, hash] = [&self.id[..], &self.salt[..], &self.digest[..], &self.hash[..]];
        let (kind, format, one, content) = ("message", "threadkeep/1", 1_i64, self.content.as_slice());
        give(&[
            &key,
            &id,
            &no_number,
            &kind,
            &self.role,
            &format,
            &one,
            &one,
            &one,
            &self.created_at,
            &no_text,
            &no_bytes,
            &one,
            &salt,
            &digest,
            &hash,
            &self.size,
            &self.encoding,
            &content,
        ])
    }

    /// The same row as another item.
    #[must_use]
    pub fn renewed(mut self, writer: &mut Writer) -> Self {
        self.created_at = SystemHost.now().0;
        self.id = time_ordered_id(self.created_at, writer);
        self
    }
}

/// A compressor as the library uses it.
///
/// # Errors
/// When there is no memory for it.
pub fn compressor() -> Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(LEVEL, DICTIONARY)?;
    compressor.set_parameter(zstd::zstd_safe::CParameter::DictIdFlag(false))?;
    Ok(compressor)
}

/// A decompressor of what the library has compressed with its dictionary.
///
/// # Errors
/// When there is no memory for it.
pub fn decompressor() -> Result<zstd::bulk::Decompressor<'static>> {
    Ok(zstd::bulk::Decompressor::with_dictionary(DICTIONARY)?)
}

fn squeeze(content: &[u8], compressor: &mut zstd::bulk::Compressor<'_>) -> Result<(i64, Vec<u8>)> {
    let small = compressor.compress(content)?;
    Ok(if small.len() < content.len() { (ENCODING, small) } else { (0, content.to_vec()) })
}

/// A version 7 id: milliseconds, then chance. The index of ids grows at its end, as the library's does.
fn time_ordered_id(millis: i64, writer: &mut Writer) -> [u8; 16] {
    let mut id: [u8; 16] = writer.bytes();
    let millis = millis.to_be_bytes();
    for (to, from) in id.iter_mut().zip(millis.iter().skip(2)) {
        *to = *from;
    }
    *Uuid::from_bytes(id).as_bytes()
}

/// Statements that write one thread of a bare database, prepared once and kept.
#[derive(Debug)]
pub struct Hand<'c> {
    begin: Statement<'c>,
    top: Statement<'c>,
    go_on: Statement<'c>,
    go_on_to_top: Statement<'c>,
    insert: Statement<'c>,
    commit: Statement<'c>,
    thread: String,
    key: i64,
    hash: Vec<u8>,
    epoch: i64,
    tick: i64,
}

impl<'c> Hand<'c> {
    /// Prepares the statements for the only thread of a database.
    ///
    /// # Errors
    /// As SQLite.
    pub fn new(connection: &'c Connection) -> Result<Self> {
        let only: String = connection.query_row("SELECT id FROM threads", [], |row| row.get(0))?;
        Self::of(connection, only)
    }

    /// Prepares the statements for one thread of a database.
    ///
    /// # Errors
    /// As SQLite.
    pub fn of(connection: &'c Connection, thread: String) -> Result<Self> {
        let state = "SELECT head, head_hash, epoch, tick FROM threads WHERE id = ?1";
        let (key, hash, epoch, tick) =
            connection.query_row(state, [&thread], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        Ok(Self {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            top: connection.prepare(&statement("TOP")?)?,
            go_on: connection.prepare(&statement("GO_ON")?)?,
            go_on_to_top: connection.prepare(&statement("GO_ON_TO_TOP")?)?,
            insert: connection.prepare(&statement("INSERT_ITEM")?)?,
            commit: connection.prepare("COMMIT")?,
            thread,
            key,
            hash,
            epoch,
            tick,
        })
    }

    /// One transaction with nothing but a row.
    ///
    /// # Errors
    /// As SQLite.
    pub fn insert_only(&mut self, row: &RowData) -> Result<()> {
        self.begin.execute([])?;
        self.key += 1;
        self.insert(self.key, row)?;
        self.commit.execute([])?;
        Ok(())
    }

    /// One transaction with nothing but rows, each of them at this depth of a branch of its own, as many writers make them.
    ///
    /// # Errors
    /// As SQLite.
    pub fn insert_across(&mut self, rows: &[RowData], depth: i64) -> Result<()> {
        self.begin.execute([])?;
        let first = (self.key >> 32) + 1;
        for (branch, row) in (first..).zip(rows) {
            self.insert((branch << 32) + depth, row)?;
        }
        self.commit.execute([])?;
        Ok(())
    }

    /// One transaction with the top of the order, the fence that compares and moves the head, and the row.
    ///
    /// # Errors
    /// As SQLite.
    pub fn append(&mut self, row: &RowData) -> Result<()> {
        self.begin.execute([])?;
        let top = self.top.query_row([], |found| Ok((found.get(0)?, found.get(1)?, found.get(2)?)))?;
        let (top, updated, active): (i64, String, String) = top;
        self.tick = self.tick.max(top) + 1;
        let (known, one, no_turn) = (self.key, 1_i64, None::<i64>);
        self.key += 1;
        let (thread, key, hash) = (&self.thread, self.key, &self.hash);
        let place = |top: &str| (top != self.thread).then_some(self.tick);
        let moved = match (place(&updated), place(&active)) {
            (None, None) => self.go_on.execute(params![
                thread,
                self.epoch,
                self.tick,
                row.created_at,
                key,
                row.hash,
                one,
                known,
                hash,
                no_turn
            ]),
            (update, activity) => self.go_on_to_top.execute(params![
                thread,
                self.epoch,
                self.tick,
                row.created_at,
                key,
                row.hash,
                one,
                known,
                hash,
                no_turn,
                update,
                activity
            ]),
        };
        if moved? != 1 {
            return Err("the thread stands elsewhere".into());
        }
        self.hash = row.hash.to_vec();
        self.insert(self.key, row)?;
        self.commit.execute([])?;
        Ok(())
    }

    fn insert(&mut self, key: i64, row: &RowData) -> Result<()> {
        let (none, one) = (None::<i64>, 1_i64);
        self.insert.execute(params![
            key,
            row.id,
            none,
            "message",
            row.role,
            "threadkeep/1",
            one,
            self.epoch,
            self.tick,
            row.created_at,
            none,
            none,
            one,
            row.salt,
            row.digest,
            row.hash,
            row.size,
            row.encoding,
            row.content,
        ])?;
        Ok(())
    }
}

/// Reads a range of items and decompresses each into bytes of its own; gives the number of rows.
///
/// # Errors
/// As SQLite and zstd.
pub fn scan(
    statement: &mut Statement<'_>,
    decompressor: &mut zstd::bulk::Decompressor<'_>,
    from: i64,
    to: i64,
) -> Result<usize> {
    let mut rows = statement.query([from, to])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let size = usize::try_from(row.get::<_, i64>(0)?)?;
        let encoding: i64 = row.get(1)?;
        let content = row.get_ref(2)?.as_blob()?;
        let bytes = if encoding == 0 { content.to_vec() } else { decompressor.decompress(content, size)? };
        std::hint::black_box(bytes);
        count += 1;
    }
    Ok(count)
}

/// How many rows one of the library's statements gives up to `limit`, and how many steps of SQLite's machine that takes:
/// a count of work that no neighbour disturbs.
///
/// # Errors
/// As SQLite.
pub fn steps(connection: &Connection, name: &str, args: &[Value], limit: usize) -> Result<(usize, i32)> {
    let mut prepared = connection.prepare(&statement(name)?)?;
    let mut count = 0;
    {
        let mut rows = bind(&mut prepared, args)?;
        while count < limit && rows.next()?.is_some() {
            count += 1;
        }
    }
    Ok((count, prepared.get_status(StatementStatus::VmStep)))
}

/// Binds the first parameters of a statement; those that are left are NULL.
///
/// # Errors
/// As SQLite.
pub fn bind<'s>(statement: &'s mut Statement<'_>, args: &[Value]) -> Result<Rows<'s>> {
    for (index, arg) in args.iter().enumerate() {
        statement.raw_bind_parameter(index + 1, arg)?;
    }
    Ok(statement.raw_query())
}

/// Whether SQLite gave up waiting for another connection's lock.
pub fn is_busy(error: &Error) -> bool {
    let found = error.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    found == Some(ErrorCode::DatabaseBusy)
}

/// How many items there are.
///
/// # Errors
/// As SQLite.
pub fn items(connection: &Connection) -> Result<usize> {
    let count: i64 = connection.query_row("SELECT count(*) FROM items", [], |row| row.get(0))?;
    Ok(usize::try_from(count)?)
}

/// How many transactions have been committed to a store that is open, by the counter in its write-ahead log's index.
///
/// # Errors
/// When the index can't be read.
pub fn commits(folder: &Path) -> Result<u32> {
    let index = std::fs::read(folder.join("threadkeep.db-shm"))?;
    let counter = index.get(8..12).and_then(|bytes| bytes.try_into().ok());
    Ok(u32::from_ne_bytes(counter.ok_or("the index of the write-ahead log is too short")?))
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS, pragmas, statement};

    #[test]
    fn the_floor_has_the_librarys_settings() {
        let found: Vec<&str> = pragmas().collect();
        for pragma in ["foreign_keys = ON", "secure_delete = ON", "cache_size = -16384", "synchronous = EXTRA"] {
            assert!(found.contains(&pragma), "{pragma} is not in {found:?}");
        }
        assert!(SETTINGS.contains("JOURNAL_SIZE_LIMIT: i64 = 16 << 20"));
    }

    #[test]
    fn the_statements_are_the_librarys() {
        for name in ["TOP", "GO_ON", "GO_ON_TO_TOP", "INSERT_ITEM", "RANGE_DOWN", "ACTIVITY_DOWN_IN", "LATEST"] {
            let same_name = threadkeep::statement_texts().into_iter().filter(|(known, ..)| known == name).count();
            assert_eq!(same_name, 1, "{name}");
            assert!(!statement(name).unwrap().contains('$'));
        }
    }
}
