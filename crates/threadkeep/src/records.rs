//! What was taken away on purpose, as it is stored: purges and redactions, in one chain that seals sign for.

use uuid::Uuid;

use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::Result;
use crate::id::{ItemId, ThreadId};
use crate::item::Hash;
use crate::log::{order, path};
use crate::seal::{NOTHING, PurgeRecord, Record, RedactedItem, RedactionRecord};
use crate::time::Timestamp;

/// The columns of a redaction as [`read_redaction`] takes them.
macro_rules! redaction_columns {
    () => {
        "number, prev, thread, branch, depth, item, digest, replacement, rule, redacted_by, reason, redacted_at"
    };
}

statements! {
    LAST_PURGE = "SELECT number, hash FROM purges ORDER BY number DESC LIMIT 1";
    LAST_REDACTION = "SELECT number, hash FROM redactions ORDER BY number DESC LIMIT 1";
    PURGES = "SELECT number, prev, thread, epoch, purged_at FROM purges WHERE number > ?1 ORDER BY number LIMIT ?2";
    REDACTIONS = concat!("SELECT ", redaction_columns!(), " FROM redactions WHERE number > ?1 ORDER BY number LIMIT ?2");
    PURGE_OF = "SELECT number, epoch FROM purges WHERE thread = ?1 ORDER BY epoch DESC LIMIT 1";
    REDACTION_OF = concat!("SELECT ", redaction_columns!(), " FROM redactions WHERE item = ?1 ORDER BY number DESC LIMIT 1");
    REDACTIONS_IN = concat!("SELECT ", redaction_columns!(), " FROM redactions WHERE thread = ?1 AND number > ?2
        ORDER BY number LIMIT ?3");
    PUT_PURGE = "INSERT INTO purges (number, prev, hash, thread, epoch, purged_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    PUT_REDACTION = "INSERT INTO redactions (number, prev, hash, thread, branch, depth, item, digest, replacement, rule,
        redacted_by, reason, redacted_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    SEALED_RECORDS = "SELECT purges FROM seals ORDER BY number DESC LIMIT 1";
}

/// The number and the hash of the last record; zeros when there is none.
pub(crate) fn last(tx: &mut dyn Tx) -> Result<(i64, Hash)> {
    let purge = query_one(tx, LAST_PURGE, &[], |row| Ok((row.int(0)?, hash(row, 1)?)))?;
    let redaction = query_one(tx, LAST_REDACTION, &[], |row| Ok((row.int(0)?, hash(row, 1)?)))?;
    Ok(purge.max(redaction).unwrap_or((0, NOTHING)))
}

/// A page of the records after a number, in their order.
pub(crate) fn page(tx: &mut dyn Tx, after: i64, limit: i64) -> Result<Vec<Record>> {
    let args = [after.into(), limit.into()];
    let mut records = query_all(tx, PURGES, &args, |row| {
        Ok(Record::Purge(PurgeRecord {
            number: row.int(0)?,
            prev: hash(row, 1)?,
            thread: row.parse(2, ThreadId::new(row.text(2)?).ok(), "a thread id")?,
            epoch: row.int(3)?,
            at: Timestamp(row.int(4)?),
        }))
    })?;
    records.extend(query_all(tx, REDACTIONS, &args, |row| read_redaction(row).map(Record::Redaction))?);
    records.sort_by_key(Record::number);
    records.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(records)
}

/// The last purge of a thread: its number, and the epoch up to which it explains what is missing.
pub(crate) fn purge_of(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<(i64, i64)>> {
    query_one(tx, PURGE_OF, &[thread.as_str().into()], |row| Ok((row.int(0)?, row.int(1)?)))
}

/// The last redaction of an item.
pub(crate) fn redaction_of(tx: &mut dyn Tx, item: ItemId) -> Result<Option<RedactionRecord>> {
    query_one(tx, REDACTION_OF, &[Value::Blob(item.as_bytes())], read_redaction)
}

/// A page of the redactions in what a thread wrote, after a number.
pub(crate) fn redactions_in(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    after: i64,
    limit: i64,
) -> Result<Vec<RedactionRecord>> {
    query_all(tx, REDACTIONS_IN, &[thread.as_str().into(), after.into(), limit.into()], read_redaction)
}

/// Whether something is on record that no seal vouches for.
pub(crate) fn has_unsealed(tx: &mut dyn Tx) -> Result<bool> {
    let sealed = query_one(tx, SEALED_RECORDS, &[], |row| row.int(0))?.unwrap_or(0);
    Ok(last(tx)?.0 > sealed)
}

/// Puts a purge on record.
pub(crate) fn put_purge(tx: &mut dyn Tx, store: Uuid, thread: &ThreadId, epoch: i64, at: Timestamp) -> Result<()> {
    order::line_up(tx)?;
    let (number, prev) = last(tx)?;
    let record = PurgeRecord { number: number + 1, prev, thread: thread.clone(), epoch, at };
    let hash = record.hash(store);
    let args = [
        record.number.into(),
        Value::Blob(&record.prev.0),
        Value::Blob(&hash.0),
        thread.as_str().into(),
        epoch.into(),
        at.0.into(),
    ];
    tx.execute(PUT_PURGE, &args).map(drop)
}

/// Puts a redaction on record, as the next one of this store whatever its number was elsewhere.
pub(crate) fn put_redaction(tx: &mut dyn Tx, store: Uuid, redaction: &RedactionRecord) -> Result<i64> {
    order::line_up(tx)?;
    let (number, prev) = last(tx)?;
    let record = RedactionRecord { number: number + 1, prev, ..redaction.clone() };
    let hash = record.hash(store);
    let args = [
        record.number.into(),
        Value::Blob(&record.prev.0),
        Value::Blob(&hash.0),
        record.thread.as_str().into(),
        record.item.as_ref().map(|item| item.branch.as_bytes().as_slice()).into(),
        record.item.map(|item| i64::from(item.depth)).into(),
        record.item.as_ref().map(|item| item.id.as_bytes().as_slice()).into(),
        record.item.as_ref().map(|item| item.digest.0.as_slice()).into(),
        record.replacement.as_ref().map(|digest| digest.0.as_slice()).into(),
        record.rule.as_deref().into(),
        record.by.as_str().into(),
        record.reason.as_str().into(),
        record.at.0.into(),
    ];
    tx.execute(PUT_REDACTION, &args)?;
    Ok(record.number)
}

fn read_redaction(row: &Row<'_>) -> Result<RedactionRecord> {
    let item = match row.opt_blob(5)? {
        None => None,
        Some(id) => Some(RedactedItem {
            branch: row.parse(3, ItemId::from_slice(row.blob(3)?), "16 bytes of an id")?,
            depth: path::depth(row, 4)?,
            id: row.parse(5, ItemId::from_slice(id), "16 bytes of an id")?,
            digest: hash(row, 6)?,
        }),
    };
    Ok(RedactionRecord {
        number: row.int(0)?,
        prev: hash(row, 1)?,
        thread: row.parse(2, ThreadId::new(row.text(2)?).ok(), "a thread id")?,
        item,
        replacement: match row.opt_blob(7)? {
            None => None,
            Some(digest) => Some(row.parse(7, Hash::from_slice(digest), "a hash")?),
        },
        rule: row.opt_text(8)?.map(str::to_owned),
        by: row.text(9)?.to_owned(),
        reason: row.text(10)?.to_owned(),
        at: Timestamp(row.int(11)?),
    })
}

fn hash(row: &Row<'_>, column: usize) -> Result<Hash> {
    row.parse(column, Hash::from_slice(row.blob(column)?), "a hash")
}
