//! What was settled of a thread's inbox and of its requests, taken from one store and put into another as a record of what was.
//!
//! What can still be acted on stays where it is, so that nobody acts on it twice: messages that wait or are in hand, requests that
//! are not resolved, and answers that nobody has used.

use std::ops::ControlFlow;

use crate::db::{Owned, Tx, Value, query_one, statements};
use crate::error::Result;
use crate::id::ThreadId;
use crate::threads;

/// After so many bytes a page ends.
const PAGE_BYTES: usize = 4 << 20;
const PAGE_ROWS: i64 = 1_000;
/// The columns of a message and of a request but their thread; a request's workspace is that of its thread.
const MESSAGE_COLUMNS: usize = 24;
const REQUEST_COLUMNS: usize = 32;

macro_rules! settled_messages {
    () => {
        " FROM messages WHERE thread = ?1 AND state IN ('acted', 'failed', 'expired', 'withdrawn', 'rejected')"
    };
}

macro_rules! settled_requests {
    () => {
        " FROM requests WHERE thread = ?1 AND (state IN ('cancelled', 'expired') OR (state = 'answered' AND token IS NOT NULL))"
    };
}

statements! {
    MESSAGE_STAMPS = concat!("SELECT id, state, masked", settled_messages!(), " ORDER BY id");
    REQUEST_STAMPS = concat!("SELECT id, state, masked", settled_requests!(), " ORDER BY id");
    MESSAGES = concat!("SELECT id, number, key, state, policy, priority, urgency, place, format, body, masked, sender, source, accepted_at,
        expires_at, token, epoch, item, turn, taken_at, delivered_at, ended_at, outcome, tick", settled_messages!(), " AND id > ?2 ORDER BY id LIMIT ?3");
    // Another message of that thread may have got the key here.
    PUT_MESSAGE = "INSERT INTO messages (thread, id, number, key, state, policy, priority, urgency, place, format, body, masked, sender,
        source, accepted_at, expires_at, token, epoch, item, turn, taken_at, delivered_at, ended_at, outcome, tick)
        VALUES (?1, ?2, ?3, CASE WHEN EXISTS (SELECT 1 FROM messages m WHERE m.thread = ?1 AND m.key = CAST(?4 AS TEXT) AND m.id <> ?2)
          THEN NULL ELSE CAST(?4 AS TEXT) END,
          ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)
        ON CONFLICT (id) DO UPDATE SET body = excluded.body, sender = excluded.sender, source = excluded.source,
          outcome = excluded.outcome, masked = 1 WHERE excluded.masked = 1 AND messages.thread = excluded.thread";
    REQUESTS = concat!("SELECT id, number, kind, subject, detail, fingerprint, danger, options, unowned, masked, holder, machine, hostname,
        pid, label, boot, namespace, start_ticks, owned_at, heartbeat_at, epoch, created_at, expires_at, state, resolved_at, resolved_by,
        channel, choice, effect, note, token, consumed_at", settled_requests!(), " AND id > ?2 ORDER BY id LIMIT ?3");
    PUT_REQUEST = "INSERT INTO requests (workspace, thread, id, number, kind, subject, detail, fingerprint, danger, options, unowned, masked,
        holder, machine, hostname, pid, label, boot, namespace, start_ticks, owned_at, heartbeat_at, epoch, created_at, expires_at,
        state, resolved_at, resolved_by, channel, choice, effect, note, token, consumed_at)
        VALUES ((SELECT workspace FROM threads WHERE threads.id = ?1), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
          ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33)
        ON CONFLICT (id) DO UPDATE SET subject = excluded.subject, detail = excluded.detail, options = excluded.options,
          note = excluded.note, masked = 1 WHERE excluded.masked = 1 AND requests.thread = excluded.thread";
    RAISE_TICK_OF_INBOX = "UPDATE threads SET tick = (SELECT max(tick) FROM messages WHERE thread = ?1)
        WHERE id = ?1 AND tick < (SELECT max(tick) FROM messages WHERE thread = ?1)";
    OPEN = "SELECT (SELECT count(*) FROM messages WHERE state IN ('queued', 'taken', 'delivered'))
        + (SELECT count(*) FROM requests WHERE thread IS NOT NULL AND (state = 'pending' OR (state = 'answered' AND token IS NULL)))";
}

/// What is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steering {
    Messages,
    Requests,
}

/// Tells one state of what is settled from another; says how many rows that are.
pub(crate) fn stamp(tx: &mut dyn Tx, thread: &ThreadId, hasher: &mut blake3::Hasher) -> Result<u64> {
    let mut rows = 0;
    for statement in [MESSAGE_STAMPS, REQUEST_STAMPS] {
        tx.query(statement, &[thread.as_str().into()], &mut |row| {
            for column in 0..3 {
                hasher.update(format!("{:?};", row.owned(column)?).as_bytes());
            }
            hasher.update(b"\n");
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(rows)
}

/// How many messages and requests of a store's threads can still be acted on.
pub(crate) fn open(tx: &mut dyn Tx) -> Result<u64> {
    let open = query_one(tx, OPEN, &[], |row| row.int(0))?;
    Ok(open.and_then(|open| u64::try_from(open).ok()).unwrap_or(0))
}

/// Reads a page of what is settled, after an id.
pub(crate) fn page(tx: &mut dyn Tx, what: Steering, thread: &ThreadId, after: &[u8]) -> Result<Vec<Vec<Owned>>> {
    let (statement, columns) = match what {
        Steering::Messages => (MESSAGES, MESSAGE_COLUMNS),
        Steering::Requests => (REQUESTS, REQUEST_COLUMNS),
    };
    let (mut page, mut bytes) = (Vec::new(), 0);
    tx.query(statement, &[thread.as_str().into(), Value::Blob(after), PAGE_ROWS.into()], &mut |row| {
        let values: Vec<Owned> = (0..columns).map(|column| row.owned(column)).collect::<Result<_>>()?;
        bytes += values.iter().map(size).sum::<usize>();
        page.push(values);
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(page)
}

/// Puts a page of what is settled. What is there stays, and is masked when it is masked there.
pub(crate) fn put(tx: &mut dyn Tx, what: Steering, thread: &ThreadId, page: &[Vec<Owned>]) -> Result<()> {
    // Others put messages there, too.
    threads::lock(tx, thread)?;
    let id: Value<'_> = thread.as_str().into();
    let statement = match what {
        Steering::Messages => PUT_MESSAGE,
        Steering::Requests => PUT_REQUEST,
    };
    for row in page {
        let mut values = vec![id];
        values.extend(row.iter().map(Owned::value));
        tx.execute(statement, &values)?;
    }
    // What is changed here later gets ticks beyond those that came.
    tx.execute(RAISE_TICK_OF_INBOX, &[id]).map(drop)
}

fn size(value: &Owned) -> usize {
    match value {
        Owned::Null | Owned::Int(_) => 8,
        Owned::Text(text) => text.len(),
        Owned::Blob(bytes) => bytes.len(),
    }
}
