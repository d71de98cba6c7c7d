//! The receipts of retention, as they are stored.

use uuid::Uuid;

use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::Result;
use crate::id::{ThreadId, WorkspaceId};
use crate::item::Hash;
use crate::log::order;
use crate::planted::{self, Defect};
use crate::retention::{ReceiptQuery, RetentionReceipt, RetentionRule, RetentionStep, bytes_of};
use crate::thread::Page;
use crate::threads::Scope;
use crate::time::Timestamp;

const MAX_PAGE: usize = 1_000;

statements! {
    LAST_RETENTION_NUMBER = "SELECT coalesce(max(number), 0) FROM retention_receipts";
    PUT_RETENTION_RECEIPT = "INSERT INTO retention_receipts (number, run, thread, workspace, step, rule, bound, items, bytes, head_hash,
        epoch, tick, changed_at, record, made_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    LAST_RETENTION_RECEIPT = "SELECT number, run, step, record FROM retention_receipts WHERE thread = ?1 ORDER BY number DESC LIMIT 1";
    RETENTION_RECEIPTS = "SELECT r.number, r.run, r.thread, r.workspace, r.step, r.rule, r.bound, r.items, r.bytes, r.head_hash,
        r.changed_at, r.record, r.made_at, t.title, t.preview FROM retention_receipts r
        LEFT JOIN threads t ON t.id = r.thread AND t.shelf < 3 AND r.step <> 'purged'
        WHERE r.number < ?1 AND (CAST(?2 AS BYTEA) IS NULL OR r.workspace = ?2) AND (CAST(?3 AS TEXT) IS NULL OR r.thread = ?3)
        ORDER BY r.number DESC LIMIT ?4";
}

/// What is known of a thread when a receipt is made.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) workspace: WorkspaceId,
    pub(crate) items: i64,
    pub(crate) head_hash: Option<Hash>,
    pub(crate) epoch: i64,
    pub(crate) tick: i64,
    pub(crate) changed_at: Timestamp,
}

/// The last receipt of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) number: i64,
    pub(crate) run: Uuid,
    pub(crate) step: RetentionStep,
    pub(crate) record: Option<i64>,
}

/// What was done, to be put on record.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) run: Uuid,
    pub(crate) step: RetentionStep,
    pub(crate) rule: Option<RetentionRule>,
    pub(crate) bound: Option<i64>,
    pub(crate) bytes: i64,
    pub(crate) record: Option<i64>,
    pub(crate) at: Timestamp,
}

/// Reads the last receipt of a thread.
pub(crate) fn last_of(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Last>> {
    query_one(tx, LAST_RETENTION_RECEIPT, &[thread.as_str().into()], |row| {
        Ok(Last {
            number: row.int(0)?,
            run: row.parse(1, Uuid::from_slice(row.blob(1)?).ok(), "16 bytes of an id")?,
            step: RetentionStep::from_word(row.text(2)?),
            record: row.opt_int(3)?,
        })
    })
}

/// Makes a receipt, in the transaction that does what it says; gives its number.
pub(crate) fn put(tx: &mut dyn Tx, thread: &ThreadId, facts: &Facts, done: &Done) -> Result<i64> {
    if planted::is(Defect::RetainsOffRecord) {
        return Ok(0);
    }
    order::line_up(tx)?;
    let number = query_one(tx, LAST_RETENTION_NUMBER, &[], |row| row.int(0))?.unwrap_or(0) + 1;
    let args = [
        number.into(),
        bytes_of(&done.run),
        thread.as_str().into(),
        Value::Blob(facts.workspace.as_bytes()),
        done.step.as_str().into(),
        done.rule.as_ref().map(RetentionRule::as_str).into(),
        done.bound.into(),
        facts.items.into(),
        done.bytes.into(),
        facts.head_hash.as_ref().map(|hash| hash.0.as_slice()).into(),
        facts.epoch.into(),
        facts.tick.into(),
        facts.changed_at.0.into(),
        done.record.into(),
        done.at.0.into(),
    ];
    tx.execute(PUT_RETENTION_RECEIPT, &args)?;
    Ok(number)
}

/// Reads a page of the receipts that a handle sees, the newest first.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &ReceiptQuery) -> Result<Page<RetentionReceipt>> {
    let thread = query.thread.as_ref().map(ThreadId::as_str);
    let tag = format!("retention {scope:?} {thread:?}");
    let start = match &query.cursor {
        None => i64::MAX,
        Some(cursor) => Cursor::decode(cursor, &tag)?.value,
    };
    let limit = query.limit.min(MAX_PAGE);
    if limit == 0 {
        return Ok(Page { entries: Vec::new(), next_cursor: None });
    }
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let args = [start.into(), scope.arg(), thread.into(), one_more.into()];
    let mut entries = query_all(tx, RETENTION_RECEIPTS, &args, read)?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().and_then(|receipt| receipt.number).filter(|_| more);
    let next_cursor = last.map(|value| Cursor { value, id: String::new() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

fn read(row: &Row<'_>) -> Result<RetentionReceipt> {
    let name = row.opt_text(13)?.filter(|title| !title.trim().is_empty()).or(row.opt_text(14)?);
    Ok(RetentionReceipt {
        number: Some(row.int(0)?),
        run: row.parse(1, Uuid::from_slice(row.blob(1)?).ok(), "16 bytes of an id")?,
        thread: row.parse(2, ThreadId::new(row.text(2)?).ok(), "a thread id")?,
        workspace: row.parse(3, WorkspaceId::from_slice(row.blob(3)?), "16 bytes of an id")?,
        name: name.map(str::to_owned),
        step: RetentionStep::from_word(row.text(4)?),
        rule: row.opt_text(5)?.map(RetentionRule::from_word),
        bound: row.opt_int(6)?,
        items: row.int(7)?,
        bytes: row.int(8)?,
        head_hash: row.opt_blob(9)?.and_then(Hash::from_slice),
        changed_at: Timestamp(row.int(10)?),
        record: row.opt_int(11)?,
        at: Timestamp(row.int(12)?),
    })
}
