//! The inbox of a thread: messages that others put there, whether or not somebody writes the thread, and that its holder takes.
//!
//! Taking a message and writing its prompt is one transaction, so each gives exactly one prompt, whoever dies when. The messages
//! that wait are in one total order: by urgency (messages that steer before all others, then by priority) and within that by when
//! they were accepted, which the thread's tick says, not a clock. Times, and whether a message has expired, go by the engine's
//! clock where it has one.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::changes::{self, Area, Note, Verb};
use crate::claims;
use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::{Address, ItemId, MessageId, ThreadId, WriterId, ids_from};
use crate::item::{Expect, Kind, NewItem, Role, check_tag, check_text, open_words};
use crate::jobs::clock;
use crate::log::append::{After, Append, Prepared, Run, TurnRule, append};
use crate::log::path;
use crate::thread::{MAX_TEXT_BYTES, Page, Shelf};
use crate::threads::{self, By, Hold, Scope};
use crate::time::Timestamp;
use crate::turns;

/// The largest body of a message: 1 MiB.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// So many messages of a thread may wait.
pub const MAX_QUEUED_MESSAGES: usize = 1_000;
const MAX_KEY_BYTES: usize = 256;
const MAX_SENDER_BYTES: usize = 1_024;
const MAX_PAGE: usize = 1_000;
/// After so many bytes of bodies a page ends.
const PAGE_BYTES: usize = 4 << 20;
const CANDIDATES: i64 = 8;
/// More urgent than any priority.
const STEERING: i64 = 1 << 32;
/// Begins the `source_id` of a prompt that was a message; its id follows.
const SOURCE_PREFIX: &str = "inbox:";

/// The columns of a message as [`read`] takes them.
macro_rules! message_columns {
    () => {
        "id, thread, number, key, state, policy, priority, format, body, masked, sender, source, accepted_at, expires_at, token, epoch,
         item, turn, taken_at, delivered_at, ended_at, outcome, tick"
    };
}

/// Which messages of a thread a question is about, at the time `?2`.
macro_rules! that_are_asked_for {
    () => {
        " FROM messages WHERE thread = ?1
          AND (CAST(?3 AS TEXT) IS NULL OR CASE WHEN state = 'queued' AND expires_at <= ?2 THEN 'expired' ELSE state END = ?3) "
    };
}

statements! {
    BY_ID = concat!("SELECT ", message_columns!(), " FROM messages WHERE thread = ?1 AND id = ?2");
    BY_KEY = concat!("SELECT ", message_columns!(), " FROM messages WHERE thread = ?1 AND key = ?2");
    BY_TOKEN = concat!("SELECT ", message_columns!(), " FROM messages WHERE thread = ?1 AND token = ?2");
    IDS_FROM = "SELECT id FROM messages WHERE id >= ?2 AND id <= ?3 AND thread = ?1 ORDER BY id LIMIT ?4";
    INSERT = "INSERT INTO messages (id, thread, number, key, state, policy, priority, urgency, place, format, body, masked, sender, source,
        accepted_at, expires_at, ended_at, outcome, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?3, ?9, ?10, 0, ?11, ?12, ?13, ?14, ?15, ?16, ?3)";
    EXPIRE = "UPDATE messages SET state = 'expired', ended_at = ?2, tick = ?3
        WHERE thread = ?1 AND state = 'queued' AND expires_at <= ?2 RETURNING id";
    QUEUED = "SELECT count(*) FROM messages WHERE thread = ?1 AND state = 'queued' AND (expires_at IS NULL OR expires_at > ?2)";
    QUEUE = "SELECT id, urgency, place FROM messages WHERE thread = ?1 AND state = 'queued' AND (expires_at IS NULL OR expires_at > ?2)
        ORDER BY urgency DESC, place, id";
    NEXT = concat!("SELECT ", message_columns!(), " FROM messages WHERE thread = ?1 AND state = 'queued'
        AND (expires_at IS NULL OR expires_at > ?2) AND (CAST(?3 AS BIGINT) = 0 OR policy = 'steer') ORDER BY urgency DESC, place, id LIMIT 1");
    LEFT_BEHIND = "SELECT id FROM messages WHERE thread = ?1 AND state IN ('taken', 'delivered') AND epoch < ?2 ORDER BY number LIMIT 1";
    TAKE = "UPDATE messages SET state = 'taken', token = ?3, epoch = ?4, item = ?5, turn = ?6, taken_at = ?7, tick = ?8
        WHERE thread = ?1 AND id = ?2 AND state = 'queued'";
    DELIVER = "UPDATE messages SET state = 'delivered', delivered_at = ?3, tick = ?4 WHERE thread = ?1 AND id = ?2";
    END = "UPDATE messages SET state = ?3, delivered_at = ?4, ended_at = ?5, outcome = ?6, tick = ?7 WHERE thread = ?1 AND id = ?2";
    MOVE = "UPDATE messages SET urgency = ?3, place = ?4, tick = ?5 WHERE thread = ?1 AND id = ?2";
    DOWN = concat!("SELECT ", message_columns!(), that_are_asked_for!(), "AND (number < ?4 OR (number = ?4 AND id < ?5)) ORDER BY number DESC, id DESC LIMIT ?6");
    UP = concat!("SELECT ", message_columns!(), that_are_asked_for!(), "AND (number > ?4 OR (number = ?4 AND id > ?5)) ORDER BY number, id LIMIT ?6");
    TEXTS_OF = "SELECT id, body, sender, source, outcome, format FROM messages WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    PUT_TEXTS = "UPDATE messages SET body = ?3, sender = ?4, source = ?5, outcome = ?6, masked = 1, tick = ?7 WHERE thread = ?1 AND id = ?2";
}

open_words! {
    /// How far a message is. A word that is not known is never taken.
    MessageState {
        /// It waits to be taken.
        Queued = "queued",
        /// Its prompt is in the thread, and nobody has said more.
        Taken = "taken",
        /// The agent has it.
        Delivered = "delivered",
        /// The agent has done what it does about it.
        Acted = "acted",
        /// It was taken, and nothing will come of it.
        Failed = "failed",
        /// Nobody took it in time.
        Expired = "expired",
        /// Whoever wanted it does not want it any more.
        Withdrawn = "withdrawn",
        /// The thread was busy, and its sender did not want to wait.
        Rejected = "rejected",
    }
}

open_words! {
    /// What a message wants when its thread is busy. A word that is not known waits in the line.
    MessagePolicy {
        /// It waits in the line.
        Enqueue = "enqueue",
        /// It is refused: while a living holder has an open turn, and while other messages wait.
        Reject = "reject",
        /// It goes before the others, and may be taken into the turn that is open.
        Steer = "steer",
    }
}

open_words! {
    /// What the body of a message is. A word that is not known is taken as text.
    MessageFormat {
        /// Words, which become a message of the user.
        Text = "text",
        /// A JSON value, which becomes an item of the format `json`, byte by byte.
        Json = "json",
    }
}

/// A message of a thread's inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Its name.
    pub id: MessageId,
    /// The thread that it is for; it goes when that is purged.
    pub thread: ThreadId,
    /// Greater for what was accepted later by the same thread: messages are listed by it.
    pub number: i64,
    /// The sender's own name for it, if it has one.
    pub key: Option<String>,
    /// How far it is, at the time of asking: what nobody took in time reads as expired, whether that is on record or not.
    pub state: MessageState,
    /// What it wants when its thread is busy.
    pub policy: MessagePolicy,
    /// Greater ones go first.
    pub priority: i64,
    /// What the body is.
    pub format: MessageFormat,
    /// What it says, as it was given, unless that was masked.
    pub body: String,
    /// Whether something of it was masked since it was accepted.
    pub masked: bool,
    /// Who sent it, in the sender's words.
    pub sender: String,
    /// What it was sent with: a web page, a schedule, another agent.
    pub source: Option<String>,
    /// When it was accepted, or rejected.
    pub accepted_at: Timestamp,
    /// From this time on, by the store's clock, it is not taken.
    pub expires_at: Option<Timestamp>,
    /// Its prompt in the thread.
    pub prompt: Option<ItemId>,
    /// The turn that its prompt began or came into.
    pub turn: Option<i64>,
    /// When it was taken.
    pub taken_at: Option<Timestamp>,
    /// When the agent had it.
    pub delivered_at: Option<Timestamp>,
    /// When it was acted on, failed, expired, was withdrawn or rejected.
    pub ended_at: Option<Timestamp>,
    /// What there is to say of its end.
    pub outcome: Option<String>,
    /// Whether it was taken by somebody who does not hold the thread any more, and is not acted on: whoever holds the thread now
    /// says what becomes of it. It is never sent again by itself; its prompt is in the thread.
    pub unfinished: bool,
    /// The tick of its last change.
    pub tick: i64,
    /// In a list: what of it can't be read, and stands here as if it were nothing.
    pub damage: Option<String>,
    #[serde(skip)]
    pub(crate) epoch: Option<i64>,
}

/// A message to be put into an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The sender's own name for it, unique in the thread's inbox, to make a retry safe.
    pub key: Option<String>,
    /// What it says; at most 1 MiB.
    pub body: String,
    /// What the body is.
    pub format: MessageFormat,
    /// What it wants when the thread is busy.
    pub policy: MessagePolicy,
    /// Greater ones go first.
    pub priority: i32,
    /// How long it may wait, from now on by the store's clock; for ever when `None`.
    pub expires_in: Option<Duration>,
    /// Who sends it.
    pub sender: String,
    /// What it is sent with.
    pub source: Option<String>,
}

impl NewMessage {
    /// Words that wait in the line for ever.
    pub fn text(sender: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            key: None,
            body: body.into(),
            format: MessageFormat::Text,
            policy: MessagePolicy::Enqueue,
            priority: 0,
            expires_in: None,
            sender: sender.into(),
            source: None,
        }
    }
}

/// Which message a holder takes, and where its prompt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeInto {
    /// Into the open turn when there is one, which only messages do that steer; else it begins a turn.
    #[default]
    Either,
    /// The first of all begins a turn. One that is still open is marked as interrupted.
    NewTurn,
    /// The first that steers comes into the open turn.
    OpenTurn,
}

/// How a message is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakeMessage {
    /// Chosen by the caller to make a retry safe, also after a restart: a repeated call with the same token finds the message that
    /// the first one took. Minted when `None`.
    pub token: Option<Uuid>,
    /// Where its prompt goes.
    pub into: TakeInto,
    /// Takes it though an earlier holder left a message unfinished.
    pub past_unfinished: bool,
}

/// A message that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakenMessage {
    /// The message.
    pub message: Message,
    /// Where its prompt stands.
    pub prompt: Address,
    /// Whether an earlier call with this token took it.
    pub repeated: bool,
}

/// What becomes of a message that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageEnd {
    /// The agent has done what it does about it.
    Acted {
        /// What there is to say of that.
        outcome: Option<String>,
    },
    /// Nothing will come of it.
    Failed {
        /// Why.
        reason: String,
    },
}

/// A question for a page of a thread's messages, in the order in which they were accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageQuery {
    /// Only those in this state.
    pub state: Option<MessageState>,
    /// Those that were accepted first at the beginning.
    pub ascending: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000. A page of large messages ends earlier.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for MessageQuery {
    fn default() -> Self {
        Self { state: None, ascending: false, limit: 100, cursor: None }
    }
}

/// Accepts a message, or rejects it when the thread is busy and it wants that. A repeated call finds the message. `dead_holder` is the
/// holder of the thread that was found to be dead.
pub(crate) fn inject(
    tx: &mut dyn Tx,
    hold: &Hold,
    new: &NewMessage,
    id: MessageId,
    dead_holder: Option<&str>,
) -> Result<Message> {
    check_new(new)?;
    let tick = threads::hold(tx, hold)?;
    if let Some(known) = known(tx, &hold.thread, new, id)? {
        return Ok(at(known, clock(tx, hold.now)?));
    }
    if threads::check_visible(tx, Scope::All, &hold.thread)? == Shelf::Trashed {
        return Err(conflict("shelf", "a thread that is not in the trash", "one that is"));
    }
    let now = clock(tx, hold.now)?;
    expire(tx, &hold.thread, now, tick)?;
    let waiting = queued(tx, &hold.thread, now)?;
    if waiting >= MAX_QUEUED_MESSAGES {
        let expected = format!("less than {MAX_QUEUED_MESSAGES} messages that wait");
        return Err(Error::Conflict { what: "inbox", expected, found: waiting.to_string() });
    }
    let is_rejected =
        new.policy == MessagePolicy::Reject && (waiting > 0 || is_worked_on(tx, &hold.thread, dead_holder)?);
    let state = if is_rejected { MessageState::Rejected } else { MessageState::Queued };
    let expires_at = new.expires_in.map(|within| later(now, within));
    let args = [
        Value::Blob(id.as_bytes()),
        hold.thread.as_str().into(),
        tick.into(),
        new.key.as_deref().into(),
        state.as_str().into(),
        new.policy.as_str().into(),
        i64::from(new.priority).into(),
        urgency(new).into(),
        new.format.as_str().into(),
        new.body.as_str().into(),
        new.sender.as_str().into(),
        new.source.as_deref().into(),
        now.0.into(),
        expires_at.map(|at| at.0).into(),
        is_rejected.then_some(now.0).into(),
        is_rejected.then_some("the thread was busy").into(),
    ];
    tx.execute(INSERT, &args).map_err(|error| match error {
        Error::AlreadyExists { .. } => Error::AlreadyExists { what: "message", id: id.to_string() },
        other => other,
    })?;
    note(tx, &hold.thread, id, Verb::Created, tick, hold.now)?;
    get(tx, &hold.thread, id, now)
}

/// Reads a message.
pub(crate) fn get(tx: &mut dyn Tx, thread: &ThreadId, id: MessageId, now: Timestamp) -> Result<Message> {
    let found = query_one(tx, BY_ID, &[thread.as_str().into(), Value::Blob(id.as_bytes())], read)?;
    found.map(|message| at(message, now)).ok_or_else(|| Error::not_found("message", id))
}

/// Finds a message of a thread by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, thread: &ThreadId, name: &str) -> Result<MessageId> {
    let missing = || Error::not_found("message", name);
    let (least, greatest) = ids_from(name).ok_or_else(missing)?;
    let range = [least, greatest].map(|id| *id.as_bytes());
    let args = [thread.as_str().into(), Value::Blob(&range[0]), Value::Blob(&range[1]), CANDIDATES.into()];
    let mut found = query_all(tx, IDS_FROM, &args, |row| read_id(row, 0))?;
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(last) => {
            found.push(last);
            let candidates = found.iter().map(MessageId::to_string).collect();
            Err(Error::Ambiguous { given: name.to_owned(), candidates })
        }
        None => Err(missing()),
    }
}

/// Reads a page of a thread's messages.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &MessageQuery, now: Timestamp) -> Result<Page<Message>> {
    let tag = format!("messages {thread} {:?} {}", query.state, query.ascending);
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?,
        None if query.ascending => Cursor { value: i64::MIN, id: Uuid::nil().to_string() },
        None => Cursor { value: i64::MAX, id: Uuid::max().to_string() },
    };
    let from = start.id.parse::<MessageId>()?;
    let limit = query.limit.min(MAX_PAGE);
    let args = [
        thread.as_str().into(),
        now.0.into(),
        query.state.as_ref().map(MessageState::as_str).into(),
        start.value.into(),
        Value::Blob(from.as_bytes()),
        (i64::try_from(limit).unwrap_or(0) + 1).into(),
    ];
    let (mut entries, mut more, mut bytes) = (Vec::new(), false, 0);
    tx.query(if query.ascending { UP } else { DOWN }, &args, &mut |row| {
        more = entries.len() == limit || bytes > PAGE_BYTES;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        let message = at(read_listed(row)?, now);
        bytes += message.body.len();
        entries.push(message);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last: &Message| Cursor { value: last.number, id: last.id.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// The messages that wait, in the order in which they would be taken.
pub(crate) fn queue(tx: &mut dyn Tx, thread: &ThreadId, now: Timestamp) -> Result<Vec<MessageId>> {
    Ok(standing(tx, thread, now)?.into_iter().map(|place| place.id).collect())
}

/// Whether there is a message that could be taken in this way.
pub(crate) fn is_waiting(tx: &mut dyn Tx, thread: &ThreadId, into: TakeInto, now: Timestamp) -> Result<bool> {
    let Some(steering) = steers(tx, thread, into)? else { return Ok(false) };
    let args = [thread.as_str().into(), now.0.into(), i64::from(steering).into()];
    Ok(query_one(tx, NEXT, &args, |_| Ok(()))?.is_some())
}

/// Whether a call with this token took a message.
pub(crate) fn is_taken(tx: &mut dyn Tx, thread: &ThreadId, token: Uuid) -> Result<bool> {
    let args = [thread.as_str().into(), Value::Blob(token.as_bytes())];
    Ok(query_one(tx, BY_TOKEN, &args, |_| Ok(()))?.is_some())
}

/// Who takes a message, and with what.
pub(crate) struct Taker<'a> {
    pub(crate) thread: &'a ThreadId,
    pub(crate) epoch: i64,
    pub(crate) writer: (i64, WriterId),
    pub(crate) now: Timestamp,
    /// The last item that the holder was told is stored and synced.
    pub(crate) builds_on: Option<ItemId>,
    pub(crate) token: Uuid,
    pub(crate) host: &'a dyn Host,
}

/// Takes the next message and writes its prompt; gives nothing when none waits. A repeated call finds what it took.
pub(crate) fn take(tx: &mut dyn Tx, by: &Taker<'_>, how: &TakeMessage) -> Result<Option<TakenMessage>> {
    let hold = Hold { thread: by.thread.clone(), by: By::Holder(by.epoch), now: by.now };
    let tick = threads::hold(tx, &hold)?;
    let token = [by.thread.as_str().into(), Value::Blob(by.token.as_bytes())];
    if let Some(message) = query_one(tx, BY_TOKEN, &token, read)? {
        let prompt = prompt_of(tx, &message)?;
        return Ok(Some(TakenMessage { message, prompt, repeated: true }));
    }
    let now = clock(tx, by.now)?;
    expire(tx, by.thread, now, tick)?;
    if !how.past_unfinished {
        let left = [by.thread.as_str().into(), by.epoch.into()];
        if let Some(left) = query_one(tx, LEFT_BEHIND, &left, |row| read_id(row, 0))? {
            let found = format!("message {left}, which was taken and not acted on");
            return Err(conflict("inbox", "nothing that an earlier holder left unfinished", &found));
        }
    }
    let steering = steers(tx, by.thread, how.into)?.ok_or_else(|| Error::not_found("open turn", by.thread))?;
    let next = [by.thread.as_str().into(), now.0.into(), i64::from(steering).into()];
    let Some(message) = query_one(tx, NEXT, &next, read)? else { return Ok(None) };
    let prompt = write_prompt(tx, by, &message, if steering { TurnRule::Open } else { TurnRule::Begin })?;
    let args = [
        by.thread.as_str().into(),
        Value::Blob(message.id.as_bytes()),
        Value::Blob(by.token.as_bytes()),
        by.epoch.into(),
        Value::Blob(prompt.0.as_bytes()),
        turns::open(tx, by.thread)?.into(),
        now.0.into(),
        tick.into(),
    ];
    tx.execute(TAKE, &args)?;
    note(tx, by.thread, message.id, Verb::Changed, tick, by.now)?;
    let message = get(tx, by.thread, message.id, now)?;
    Ok(Some(TakenMessage { message, prompt: prompt.1, repeated: false }))
}

/// Notes that the agent has a message. Repeating it changes nothing.
pub(crate) fn deliver(tx: &mut dyn Tx, hold: &Hold, id: MessageId) -> Result<Message> {
    let tick = threads::hold(tx, hold)?;
    let now = clock(tx, hold.now)?;
    let message = get(tx, &hold.thread, id, now)?;
    match message.state {
        MessageState::Taken => {}
        MessageState::Delivered | MessageState::Acted => return Ok(message),
        state => return Err(conflict("message", "one that is taken", &state)),
    }
    tx.execute(DELIVER, &[hold.thread.as_str().into(), Value::Blob(id.as_bytes()), now.0.into(), tick.into()])?;
    note(tx, &hold.thread, id, Verb::Changed, tick, hold.now)?;
    get(tx, &hold.thread, id, now)
}

/// Notes what became of a message that was taken, by this holder or by one before it. Repeating it changes nothing.
pub(crate) fn end(tx: &mut dyn Tx, hold: &Hold, id: MessageId, end: &MessageEnd) -> Result<Message> {
    let (state, outcome) = match end {
        MessageEnd::Acted { outcome } => (MessageState::Acted, outcome.as_deref()),
        MessageEnd::Failed { reason } => (MessageState::Failed, Some(reason.as_str())),
    };
    outcome.map_or(Ok(()), |outcome| check_text("outcome", outcome, MAX_TEXT_BYTES))?;
    let tick = threads::hold(tx, hold)?;
    let now = clock(tx, hold.now)?;
    let message = get(tx, &hold.thread, id, now)?;
    if message.state == state && (message.outcome.as_deref() == outcome || message.masked) {
        return Ok(message);
    }
    if !matches!(message.state, MessageState::Taken | MessageState::Delivered) {
        return Err(conflict("message", "one that is taken", &message.state));
    }
    let delivered = message.delivered_at.or((state == MessageState::Acted).then_some(now));
    close(tx, hold, &message, (&state, delivered, outcome), (now, tick))
}

/// Takes a message back that nobody took yet. Repeating it changes nothing.
pub(crate) fn withdraw(tx: &mut dyn Tx, hold: &Hold, id: MessageId, reason: Option<&str>) -> Result<Message> {
    reason.map_or(Ok(()), |reason| check_text("reason", reason, MAX_TEXT_BYTES))?;
    let tick = threads::hold(tx, hold)?;
    let now = clock(tx, hold.now)?;
    let message = get(tx, &hold.thread, id, now)?;
    match message.state {
        MessageState::Queued => close(tx, hold, &message, (&MessageState::Withdrawn, None, reason), (now, tick)),
        MessageState::Withdrawn => Ok(message),
        state => Err(conflict("message", "one that waits", &state)),
    }
}

/// Puts the messages that wait into this order, which must name each of them once.
pub(crate) fn reorder(tx: &mut dyn Tx, hold: &Hold, order: &[MessageId]) -> Result<()> {
    let tick = threads::hold(tx, hold)?;
    let now = clock(tx, hold.now)?;
    expire(tx, &hold.thread, now, tick)?;
    let standing = standing(tx, &hold.thread, now)?;
    let named: BTreeSet<MessageId> = order.iter().copied().collect();
    let waiting: BTreeSet<MessageId> = standing.iter().map(|place| place.id).collect();
    if named != waiting || order.len() != standing.len() {
        let found =
            format!("{} names, {} of them of one that waits", order.len(), named.intersection(&waiting).count());
        let expected = format!("each of the {} messages that wait, once", standing.len());
        return Err(Error::Conflict { what: "inbox", expected, found });
    }
    for (before, after) in standing.iter().zip(reordered(&standing, order)) {
        // Which one stands at a place, or where it stands, has changed.
        if *before != after {
            let args = [
                hold.thread.as_str().into(),
                Value::Blob(after.id.as_bytes()),
                after.urgency.into(),
                after.place.into(),
                tick.into(),
            ];
            tx.execute(MOVE, &args)?;
            note(tx, &hold.thread, after.id, Verb::Changed, tick, hold.now)?;
        }
    }
    Ok(())
}

/// The texts of a message that somebody has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) id: MessageId,
    /// Body, sender, source and outcome, in this order.
    pub(crate) texts: [Option<String>; 4],
    /// Whether the body is JSON, and has to stay so.
    pub(crate) is_json: bool,
}

/// A page of the texts of a thread's messages, after an id.
pub(crate) fn texts(tx: &mut dyn Tx, thread: &ThreadId, after: &[u8]) -> Result<Vec<Texts>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let limit = i64::try_from(MAX_PAGE).unwrap_or(i64::MAX).into();
    tx.query(TEXTS_OF, &[thread.as_str().into(), Value::Blob(after), limit], &mut |row| {
        let text = |column: usize| Ok::<_, Error>(row.opt_text(column)?.map(str::to_owned));
        let texts = [text(1)?, text(2)?, text(3)?, text(4)?];
        bytes += texts.iter().flatten().map(String::len).sum::<usize>();
        let is_json = row.text(5)? == MessageFormat::Json.as_str();
        found.push(Texts { id: read_id(row, 0)?, texts, is_json });
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(found)
}

/// Puts texts in the place of those that were looked at; leaves a message whose texts were changed meanwhile, and says so.
pub(crate) fn put_texts(tx: &mut dyn Tx, hold: &Hold, before: &Texts, after: &Texts) -> Result<bool> {
    let tick = threads::hold(tx, hold)?;
    let Ok(message) = get(tx, &hold.thread, before.id, hold.now) else { return Ok(true) };
    let now = [Some(message.body), Some(message.sender), message.source, message.outcome];
    if now == after.texts {
        return Ok(true);
    }
    if now != before.texts {
        return Ok(false);
    }
    let mut args: Vec<Value<'_>> = vec![hold.thread.as_str().into(), Value::Blob(after.id.as_bytes())];
    args.extend(after.texts.iter().map(|text| Value::from(text.as_deref())));
    args.push(tick.into());
    tx.execute(PUT_TEXTS, &args)?;
    note(tx, &hold.thread, after.id, Verb::Changed, tick, hold.now)?;
    Ok(true)
}

/// What an earlier call has stored: under the same id, or under the same key and with the same body.
fn known(tx: &mut dyn Tx, thread: &ThreadId, new: &NewMessage, id: MessageId) -> Result<Option<Message>> {
    let own = query_one(tx, BY_ID, &[thread.as_str().into(), Value::Blob(id.as_bytes())], read)?;
    let Some(key) = &new.key else { return Ok(own) };
    let found = match own {
        Some(own) => Some(own),
        None => query_one(tx, BY_KEY, &[thread.as_str().into(), key.as_str().into()], read)?,
    };
    match found {
        // What it was can't be compared any more when it was masked.
        Some(found) if !found.masked && (&found.body, &found.format) != (&new.body, &new.format) => {
            Err(conflict("message", "the body that was sent under this key", "another"))
        }
        found => Ok(found),
    }
}

/// Whether a living holder works at a turn of the thread.
fn is_worked_on(tx: &mut dyn Tx, thread: &ThreadId, dead_holder: Option<&str>) -> Result<bool> {
    if turns::open(tx, thread)?.is_none() {
        return Ok(false);
    }
    Ok(claims::holder_id(tx, thread)?.is_some_and(|holder| Some(holder.as_str()) != dead_holder))
}

/// Whether only messages that steer are taken in this way; `None` when none can be.
fn steers(tx: &mut dyn Tx, thread: &ThreadId, into: TakeInto) -> Result<Option<bool>> {
    Ok(match (into, turns::open(tx, thread)?) {
        (TakeInto::NewTurn, _) | (TakeInto::Either, None) => Some(false),
        (TakeInto::OpenTurn | TakeInto::Either, Some(_)) => Some(true),
        (TakeInto::OpenTurn, None) => None,
    })
}

/// Writes the prompt of a message; gives its id and where it stands.
fn write_prompt(tx: &mut dyn Tx, by: &Taker<'_>, message: &Message, turns: TurnRule) -> Result<(ItemId, Address)> {
    let item = match message.format {
        MessageFormat::Json => {
            let content = message.body.clone().into_bytes();
            NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, MessageFormat::Json.as_str(), content) }
        }
        _ => NewItem::message(Role::User, message.body.as_str()),
    };
    let item = NewItem { source_id: Some(source_of(&message.id)), ..item };
    let items = [Prepared::new(item, by.host)?];
    let request = Append {
        thread: by.thread.clone(),
        epoch: by.epoch,
        writer: by.writer,
        now: by.now,
        expect: Expect::Any,
        turns,
        runs: vec![Run { after: After::Head, items: items.into() }],
        requires: None,
        builds_on: by.builds_on,
    };
    let appended = append(tx, &request)?;
    let missing = || Error::corrupt("table items", "the row that was just written is missing");
    appended.items.first().map(|item| (item.id, item.address())).ok_or_else(missing)
}

/// What the `source_id` of a message's prompt is.
pub(crate) fn source_of(id: &MessageId) -> String {
    format!("{SOURCE_PREFIX}{id}")
}

fn prompt_of(tx: &mut dyn Tx, message: &Message) -> Result<Address> {
    let place = || format!("message {}", message.id);
    let item = message.prompt.ok_or_else(|| Error::corrupt(place(), "it was taken and has no prompt"))?;
    let key = path::key_by_id(tx, item)?.ok_or_else(|| Error::corrupt(place(), "its prompt is missing"))?;
    path::address_of(tx, key)
}

/// Notes of the messages whose time is over that they have expired.
fn expire(tx: &mut dyn Tx, thread: &ThreadId, now: Timestamp, tick: i64) -> Result<()> {
    let expired = query_all(tx, EXPIRE, &[thread.as_str().into(), now.0.into(), tick.into()], |row| read_id(row, 0))?;
    expired.into_iter().try_for_each(|id| note(tx, thread, id, Verb::Changed, tick, now))
}

fn queued(tx: &mut dyn Tx, thread: &ThreadId, now: Timestamp) -> Result<usize> {
    let count = query_one(tx, QUEUED, &[thread.as_str().into(), now.0.into()], |row| row.int(0))?;
    Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
}

/// Where a message that waits stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    id: MessageId,
    urgency: i64,
    place: i64,
}

fn standing(tx: &mut dyn Tx, thread: &ThreadId, now: Timestamp) -> Result<Vec<Place>> {
    query_all(tx, QUEUE, &[thread.as_str().into(), now.0.into()], |row| {
        Ok(Place { id: read_id(row, 0)?, urgency: row.int(1)?, place: row.int(2)? })
    })
}

/// The same messages in another order: each is as urgent as the most urgent one behind it, and they share the places that they had.
fn reordered(standing: &[Place], order: &[MessageId]) -> Vec<Place> {
    let urgency_of = |id: &MessageId| standing.iter().find(|place| place.id == *id).map_or(0, |place| place.urgency);
    let mut places: Vec<i64> = standing.iter().map(|place| place.place).collect();
    places.sort_unstable();
    let mut urgency = i64::MIN;
    let mut found: Vec<Place> = Vec::with_capacity(order.len());
    for (id, place) in order.iter().zip(places).rev() {
        urgency = urgency.max(urgency_of(id));
        found.push(Place { id: *id, urgency, place });
    }
    found.reverse();
    found
}

/// Ends a message.
fn close(
    tx: &mut dyn Tx,
    hold: &Hold,
    message: &Message,
    (state, delivered, outcome): (&MessageState, Option<Timestamp>, Option<&str>),
    (now, tick): (Timestamp, i64),
) -> Result<Message> {
    let args = [
        hold.thread.as_str().into(),
        Value::Blob(message.id.as_bytes()),
        state.as_str().into(),
        delivered.map(|at| at.0).into(),
        now.0.into(),
        outcome.into(),
        tick.into(),
    ];
    tx.execute(END, &args)?;
    note(tx, &hold.thread, message.id, Verb::Changed, tick, hold.now)?;
    get(tx, &hold.thread, message.id, now)
}

fn check_new(new: &NewMessage) -> Result<()> {
    if let Some(key) = &new.key {
        check_text("key", key, MAX_KEY_BYTES)?;
        if key.is_empty() {
            return Err(Error::invalid("key", "it is empty"));
        }
    }
    if new.body.trim().is_empty() {
        return Err(Error::invalid("body", "it says nothing"));
    }
    check_text("body", &new.body, MAX_MESSAGE_BYTES)?;
    match new.format {
        MessageFormat::Text => {}
        MessageFormat::Json => {
            let read = serde_json::from_str::<serde::de::IgnoredAny>(&new.body);
            read.map_err(|error| Error::invalid("body", format!("it is no JSON: {error}")))?;
        }
        MessageFormat::Unknown(_) => return Err(Error::invalid("format", "a body is text or json")),
    }
    if let MessagePolicy::Unknown(_) = new.policy {
        return Err(Error::invalid("policy", "a message is to enqueue, to reject or to steer"));
    }
    check_tag("format", new.format.as_str())?;
    check_text("sender", &new.sender, MAX_SENDER_BYTES)?;
    if new.sender.trim().is_empty() {
        return Err(Error::invalid("sender", "whoever reads the message wants to know who sent it"));
    }
    new.source.as_ref().map_or(Ok(()), |source| check_text("source", source, MAX_SENDER_BYTES))
}

fn urgency(new: &NewMessage) -> i64 {
    let steering = if new.policy == MessagePolicy::Steer { STEERING } else { 0 };
    steering + i64::from(new.priority)
}

pub(crate) fn later(now: Timestamp, within: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(within.as_millis()).unwrap_or(i64::MAX)))
}

fn conflict(what: &'static str, expected: &str, found: &(impl ToString + ?Sized)) -> Error {
    Error::Conflict { what, expected: expected.to_owned(), found: found.to_string() }
}

fn note(tx: &mut dyn Tx, thread: &ThreadId, id: MessageId, verb: Verb, tick: i64, now: Timestamp) -> Result<()> {
    let subject = id.to_string();
    changes::note(tx, thread, Some(tick), Note { area: Area::Message, verb, subject: Some(&subject), now })
}

/// The message as it is at a time.
fn at(message: Message, now: Timestamp) -> Message {
    let is_over = message.state == MessageState::Queued && message.expires_at.is_some_and(|end| end <= now);
    if is_over { Message { state: MessageState::Expired, ended_at: message.expires_at, ..message } } else { message }
}

fn read_id(row: &Row<'_>, column: usize) -> Result<MessageId> {
    row.parse(column, MessageId::from_slice(row.blob(column)?), "16 bytes of an id")
}

/// Reads the columns of `message_columns!`. Damage names the message.
fn read(row: &Row<'_>) -> Result<Message> {
    let message = read_listed(row)?;
    match message.damage {
        None => Ok(message),
        Some(damage) => Err(Error::corrupt(format!("message {}", message.id), damage)),
    }
}

/// Reads a message for a list: what of it can't be read is left out, and said.
fn read_listed(row: &Row<'_>) -> Result<Message> {
    let id = read_id(row, 0)?;
    let place = format!("message {id}");
    read_columns(row, id).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_columns(row: &Row<'_>, id: MessageId) -> Result<Message> {
    let time = |column: usize| Ok::<_, Error>(row.opt_int(column)?.map(Timestamp));
    let text = |column: usize| Ok::<_, Error>(row.opt_text(column)?.map(str::to_owned));
    let prompt = row.opt_blob(16)?;
    let item = prompt.and_then(ItemId::from_slice);
    let damage = (prompt.is_some() && item.is_none()).then(|| "the id of its prompt is not 16 bytes".to_owned());
    Ok(Message {
        id,
        thread: row.parse(1, ThreadId::new(row.text(1)?).ok(), "a thread id")?,
        number: row.int(2)?,
        key: text(3)?,
        state: MessageState::from_word(row.text(4)?),
        policy: MessagePolicy::from_word(row.text(5)?),
        priority: row.int(6)?,
        format: MessageFormat::from_word(row.text(7)?),
        body: row.text(8)?.to_owned(),
        masked: row.int(9)? != 0,
        sender: row.text(10)?.to_owned(),
        source: text(11)?,
        accepted_at: Timestamp(row.int(12)?),
        expires_at: time(13)?,
        epoch: row.opt_int(15)?,
        prompt: item,
        turn: row.opt_int(17)?,
        taken_at: time(18)?,
        delivered_at: time(19)?,
        ended_at: time(20)?,
        outcome: text(21)?,
        unfinished: false,
        tick: row.int(22)?,
        damage,
    })
}

#[cfg(test)]
mod tests {
    use super::{MessageId, Place, reordered};
    use uuid::Uuid;

    fn place(id: u128, urgency: i64, place: i64) -> Place {
        Place { id: MessageId::from_uuid(Uuid::from_u128(id)), urgency, place }
    }

    #[test]
    fn what_is_put_before_others_is_as_urgent_as_they_are() {
        let standing = [place(1, 9, 5), place(2, 0, 3), place(3, 0, 4), place(4, -1, 1)];
        let order: Vec<MessageId> = [3, 1, 4, 2].map(|id| place(id, 0, 0).id).to_vec();
        let found = reordered(&standing, &order);
        assert_eq!(found, [place(3, 9, 1), place(1, 9, 3), place(4, 0, 4), place(2, 0, 5)]);
        let mut sorted = found.clone();
        sorted.sort_by_key(|place| (-place.urgency, place.place));
        assert_eq!(sorted, found);
    }
}
