//! Requests: what an agent may not do before somebody says so, and what is proposed to be enrolled.
//!
//! A request names a call by its fingerprint and the answers that may be given. It is resolved once: by one answer, by being
//! cancelled, or by its time, which is judged in the store at the moment of answering. The answer is used once, for the very call
//! that was asked about. What nobody here knows (a word of a later version, an answer that does not fit its request) grants
//! nothing, and an answer from another machine never grants what lasts.

mod values;

use std::ops::ControlFlow;

use uuid::Uuid;

use crate::changes::{self, Area, Note, Verb};
use crate::claim::Holder;
use crate::cursor::Cursor;
use crate::db::{Row, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{RequestId, ThreadId, WorkspaceId, ids_from};
use crate::inbox::later;
use crate::item::Hash;
use crate::jobs::clock;
use crate::thread::Page;
use crate::threads::{self, Scope};
use crate::time::Timestamp;
use values::{check_choice, check_new, check_note, check_principal, granted};

pub use values::{
    Answer, Channel, Danger, Effect, GivenAnswer, NewRequest, Principal, Request, RequestKind, RequestOption,
    RequestQuery, RequestState, Unowned, UseAnswer, UsedAnswer, call_fingerprint,
};

const MAX_PAGE: usize = 1_000;
/// After so many bytes of text a page of them ends.
const PAGE_BYTES: usize = 4 << 20;
const CANDIDATES: i64 = 8;
/// How many requests are found to be over in one transaction.
const SWEEP: i64 = 100;

/// The columns of a request as [`read`] takes them.
macro_rules! request_columns {
    () => {
        "id, workspace, thread, kind, subject, detail, fingerprint, danger, options, unowned, masked, holder, machine, hostname, pid,
         label, boot, namespace, start_ticks, owned_at, heartbeat_at, epoch, created_at, expires_at, state, resolved_at, resolved_by,
         channel, choice, effect, note, token, consumed_at, number,
         (SELECT c.epoch FROM claims c WHERE c.thread = requests.thread)"
    };
}

/// Which requests a question is about, at the time `?2`, behind the condition on their workspace.
macro_rules! that_are_asked_for {
    () => {
        "(CAST(?3 AS TEXT) IS NULL OR CASE WHEN state = 'pending' AND expires_at <= ?2 THEN 'expired' ELSE state END = ?3)
          AND (CAST(?4 AS TEXT) IS NULL OR kind = ?4) AND (CAST(?5 AS TEXT) IS NULL OR thread = ?5) "
    };
}

statements! {
    NEXT_NUMBER = "SELECT coalesce(max(number), 0) + 1 FROM requests";
    WORKSPACE_OF_THREAD = "SELECT workspace FROM threads WHERE id = ?1 /* FOR UPDATE */";
    BY_ID = concat!("SELECT ", request_columns!(), " FROM requests WHERE id = ?1");
    LOCKED = concat!("SELECT ", request_columns!(), " FROM requests WHERE id = ?1 /* FOR UPDATE */");
    IDS_FROM = "SELECT id FROM requests WHERE id >= ?1 AND id <= ?2 AND (CAST(?3 AS BYTEA) IS NULL OR workspace = ?3) ORDER BY id LIMIT ?4";
    INSERT = "INSERT INTO requests (id, workspace, thread, number, kind, subject, detail, fingerprint, danger, options, unowned, masked,
        holder, machine, hostname, pid, label, boot, namespace, start_ticks, owned_at, heartbeat_at, epoch, created_at, expires_at, state)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?20, ?21, ?20, ?22, 'pending')";
    // Compares and sets: a request that was resolved meanwhile is not pending any more.
    RESOLVE = "UPDATE requests SET state = ?2, resolved_at = ?3, resolved_by = ?4, channel = ?5, choice = ?6, effect = ?7, note = ?8
        WHERE id = ?1 AND state = 'pending'";
    DUE = concat!("SELECT ", request_columns!(), " FROM requests WHERE state = 'pending' AND expires_at <= ?1
        AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2) ORDER BY id LIMIT ?3 /* FOR UPDATE SKIP LOCKED */");
    CONSUME = "UPDATE requests SET token = ?2, consumed_at = ?3 WHERE id = ?1 AND state = 'answered' AND token IS NULL";
    ADOPT = "UPDATE requests SET holder = ?2, machine = ?3, hostname = ?4, pid = ?5, label = ?6, boot = ?7, namespace = ?8,
        start_ticks = ?9, owned_at = ?10, heartbeat_at = ?10, epoch = ?11 WHERE id = ?1";
    HEARTBEAT = "UPDATE requests SET heartbeat_at = ?2 WHERE holder = ?1 AND state = 'pending'";
    DOWN = concat!("SELECT ", request_columns!(), " FROM requests WHERE CAST(?1 AS BYTEA) IS NULL AND ", that_are_asked_for!(),
        "AND (number < ?6 OR (number = ?6 AND id < ?7)) ORDER BY number DESC, id DESC LIMIT ?8");
    DOWN_IN = concat!("SELECT ", request_columns!(), " FROM requests WHERE workspace = ?1 AND ", that_are_asked_for!(),
        "AND (number < ?6 OR (number = ?6 AND id < ?7)) ORDER BY number DESC, id DESC LIMIT ?8");
    UP = concat!("SELECT ", request_columns!(), " FROM requests WHERE CAST(?1 AS BYTEA) IS NULL AND ", that_are_asked_for!(),
        "AND (number > ?6 OR (number = ?6 AND id > ?7)) ORDER BY number, id LIMIT ?8");
    UP_IN = concat!("SELECT ", request_columns!(), " FROM requests WHERE workspace = ?1 AND ", that_are_asked_for!(),
        "AND (number > ?6 OR (number = ?6 AND id > ?7)) ORDER BY number, id LIMIT ?8");
    TEXTS_OF = "SELECT id, subject, detail, options, note FROM requests WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    TEXTS_OF_NO_THREAD = "SELECT id, subject, detail, options, note FROM requests WHERE thread IS NULL AND id > ?1
        AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2) ORDER BY id LIMIT ?3";
    TEXTS_LOCKED = "SELECT id, subject, detail, options, note FROM requests WHERE id = ?1 /* FOR UPDATE */";
    PUT_TEXTS = "UPDATE requests SET subject = ?2, detail = ?3, options = ?4, note = ?5, masked = 1 WHERE id = ?1";
}

/// Who asks: its store, and the epoch of its claim when it asks as the thread's holder.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) holder: Holder,
    pub(crate) epoch: Option<i64>,
}

/// Makes a request. A repeated call with the same id finds it, whatever has become of it.
pub(crate) fn ask(
    tx: &mut dyn Tx,
    scope: Scope,
    new: &NewRequest,
    id: RequestId,
    asker: &Asker,
    now: Timestamp,
) -> Result<Request> {
    check_new(new)?;
    let workspace = workspace_for(tx, scope, new.thread.as_ref())?;
    let now = clock(tx, now)?;
    if let Some(known) = query_one(tx, BY_ID, &[Value::Blob(id.as_bytes())], read)? {
        let same = known.workspace == workspace
            && (&known.thread, &known.kind, known.fingerprint) == (&new.thread, &new.kind, new.fingerprint);
        return if same { Ok(at(known, now)) } else { Err(taken(id)) };
    }
    let number = query_one(tx, NEXT_NUMBER, &[], |row| row.int(0))?.unwrap_or(1);
    let options = serde_json::to_string(&new.options).unwrap_or_default();
    let holder = &asker.holder;
    let args = [
        Value::Blob(id.as_bytes()),
        Value::Blob(workspace.as_bytes()),
        new.thread.as_ref().map(ThreadId::as_str).into(),
        number.into(),
        new.kind.as_str().into(),
        new.subject.as_str().into(),
        new.detail.as_deref().into(),
        Value::Blob(&new.fingerprint.0),
        new.danger.as_str().into(),
        options.as_str().into(),
        new.unowned.as_str().into(),
        holder.id.as_str().into(),
        holder.machine.as_str().into(),
        holder.hostname.as_str().into(),
        holder.pid.into(),
        holder.label.as_str().into(),
        holder.boot.as_str().into(),
        holder.namespace.as_str().into(),
        holder.start_ticks.into(),
        now.0.into(),
        asker.epoch.into(),
        new.expires_in.map(|within| later(now, within).0).into(),
    ];
    tx.execute(INSERT, &args).map_err(|error| match error {
        Error::AlreadyExists { .. } => taken(id),
        other => other,
    })?;
    let request = get(tx, scope, id, now)?;
    note(tx, &request, Verb::Created, now)?;
    Ok(request)
}

/// Reads a request; one that is damaged grants nothing, and says so.
pub(crate) fn get(tx: &mut dyn Tx, scope: Scope, id: RequestId, now: Timestamp) -> Result<Request> {
    find_row(tx, BY_ID, scope, id).map(|request| at(request, now))
}

/// Finds a request by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, scope: Scope, name: &str) -> Result<RequestId> {
    let missing = || Error::not_found("request", name);
    let (least, greatest) = ids_from(name).ok_or_else(missing)?;
    let args = [Value::Blob(least.as_bytes()), Value::Blob(greatest.as_bytes()), scope.arg(), CANDIDATES.into()];
    let mut found = query_all(tx, IDS_FROM, &args, |row| read_id(row, 0))?;
    match found.pop() {
        Some(one) if found.is_empty() => Ok(one),
        Some(last) => {
            found.push(last);
            let candidates = found.iter().map(RequestId::to_string).collect();
            Err(Error::Ambiguous { given: name.to_owned(), candidates })
        }
        None => Err(missing()),
    }
}

/// Reads a page of requests.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &RequestQuery, now: Timestamp) -> Result<Page<Request>> {
    let RequestQuery { state, kind, thread, ascending, .. } = query;
    let tag = format!("requests {scope:?} {state:?} {kind:?} {thread:?} {ascending}");
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?,
        None if *ascending => Cursor { value: i64::MIN, id: Uuid::nil().to_string() },
        None => Cursor { value: i64::MAX, id: Uuid::max().to_string() },
    };
    let from = start.id.parse::<RequestId>()?;
    let statement = match (scope, ascending) {
        (Scope::All, false) => DOWN,
        (Scope::All, true) => UP,
        (Scope::Workspace(_), false) => DOWN_IN,
        (Scope::Workspace(_), true) => UP_IN,
    };
    let limit = query.limit.min(MAX_PAGE);
    let args = [
        scope.arg(),
        now.0.into(),
        state.as_ref().map(RequestState::as_str).into(),
        kind.as_ref().map(RequestKind::as_str).into(),
        thread.as_ref().map(ThreadId::as_str).into(),
        start.value.into(),
        Value::Blob(from.as_bytes()),
        (i64::try_from(limit).unwrap_or(0) + 1).into(),
    ];
    let (mut entries, mut more, mut bytes): (Vec<Request>, bool, usize) = (Vec::new(), false, 0);
    tx.query(statement, &args, &mut |row| {
        more = entries.len() == limit || bytes > PAGE_BYTES;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        let request = at(read(row)?, now);
        bytes += request.subject.len() + request.detail.as_ref().map_or(0, String::len);
        entries.push(request);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: last.number, id: last.id.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// What came of trying to resolve a request: it, or why not. Both are committed: a request whose time is over is on record so.
pub(crate) type Resolved = Result<Request, Error>;

/// Answers a request. A repeated call finds its own answer. `dead_owner` is the owner that was found to be dead.
pub(crate) fn answer(
    tx: &mut dyn Tx,
    scope: Scope,
    id: RequestId,
    answer: &Answer,
    dead_owner: Option<&str>,
    now: Timestamp,
) -> Result<Resolved> {
    check_principal(&answer.by)?;
    check_note(answer.note.as_deref())?;
    let now = clock(tx, now)?;
    let request = find_row(tx, LOCKED, scope, id)?;
    if request.state != RequestState::Pending {
        let given = request.answer.as_ref().map(|given| given.option.as_str());
        let is_this = given == Some(answer.option.as_str()) && request.resolved_by.as_ref() == Some(&answer.by);
        return Ok(if is_this { Ok(request) } else { Err(not_pending(&request)) });
    }
    if let Some(over) = expire_one(tx, &request, now)? {
        return Ok(Err(not_pending(&over)));
    }
    if let Some(damage) = &request.damage {
        return Err(Error::corrupt(format!("request {id}"), damage.clone()));
    }
    let is_unowned = request.lost_its_claim || dead_owner == Some(request.owner.id.as_str());
    if is_unowned && request.unowned != Unowned::Answerable {
        return Err(conflict("request", "one whose owner is alive", "one that nobody owns"));
    }
    let option = check_choice(&request, answer)?;
    let resolution = Resolution {
        state: RequestState::Answered,
        by: Some(&answer.by),
        choice: Some((&option.id, &option.effect)),
        note: answer.note.as_deref(),
    };
    resolve(tx, &request, &resolution, now).map(Ok)
}

/// Cancels a request that nobody answered. A repeated call finds it cancelled.
pub(crate) fn cancel(
    tx: &mut dyn Tx,
    scope: Scope,
    id: RequestId,
    (by, reason): (&Principal, Option<&str>),
    now: Timestamp,
) -> Result<Resolved> {
    check_principal(by)?;
    check_note(reason)?;
    let now = clock(tx, now)?;
    let request = find_row(tx, LOCKED, scope, id)?;
    if request.state == RequestState::Cancelled && request.resolved_by.as_ref() == Some(by) {
        return Ok(Ok(request));
    }
    if request.state != RequestState::Pending {
        return Ok(Err(not_pending(&request)));
    }
    if let Some(over) = expire_one(tx, &request, now)? {
        return Ok(Err(not_pending(&over)));
    }
    let resolution = Resolution { state: RequestState::Cancelled, by: Some(by), choice: None, note: reason };
    resolve(tx, &request, &resolution, now).map(Ok)
}

/// Puts on record of some requests that their time is over; says how many those were.
pub(crate) fn expire(tx: &mut dyn Tx, scope: Scope, now: Timestamp) -> Result<u64> {
    let now = clock(tx, now)?;
    let due = query_all(tx, DUE, &[now.0.into(), scope.arg(), SWEEP.into()], read)?;
    for request in &due {
        expire_one(tx, request, now)?;
    }
    Ok(due.len() as u64)
}

/// Uses the answer to a request. A repeated call with the same token finds it used.
pub(crate) fn consume(
    tx: &mut dyn Tx,
    scope: Scope,
    id: RequestId,
    (fingerprint, token): (Hash, Uuid),
    now: Timestamp,
) -> Result<UsedAnswer> {
    let now = clock(tx, now)?;
    let request = find_row(tx, LOCKED, scope, id)?;
    let request = at(request, now);
    let answered = match (&request.state, &request.answer) {
        (RequestState::Answered, Some(answer)) => answer.effect.clone(),
        (state, _) => return Err(conflict("request", "one that is answered", state)),
    };
    if request.fingerprint != fingerprint {
        return Err(Error::Conflict {
            what: "fingerprint",
            expected: request.fingerprint.to_string(),
            found: fingerprint.to_string(),
        });
    }
    match request.token {
        Some(used) if used == token => return Ok(UsedAnswer { effect: answered, request, repeated: true }),
        Some(_) => return Err(conflict("request", "an answer that nobody has used", "one that was used")),
        None => {}
    }
    let args = [Value::Blob(id.as_bytes()), Value::Blob(token.as_bytes()), now.0.into()];
    tx.execute(CONSUME, &args)?;
    note(tx, &request, Verb::Changed, now)?;
    Ok(UsedAnswer { effect: answered, request: get(tx, scope, id, now)?, repeated: false })
}

/// Makes somebody the owner of a request that waits, if its owner is dead or the same.
pub(crate) fn adopt(
    tx: &mut dyn Tx,
    scope: Scope,
    id: RequestId,
    asker: &Asker,
    dead_owner: Option<&str>,
    now: Timestamp,
) -> Result<Request> {
    let now = clock(tx, now)?;
    let request = at(find_row(tx, LOCKED, scope, id)?, now);
    if request.state != RequestState::Pending {
        return Err(not_pending(&request));
    }
    let Asker { holder, epoch } = asker;
    let is_free = request.lost_its_claim || dead_owner == Some(request.owner.id.as_str());
    if !is_free && request.owner.id != holder.id {
        return Err(conflict("request", "one that nobody owns", &format!("one of {}", request.owner)));
    }
    let args = [
        Value::Blob(id.as_bytes()),
        holder.id.as_str().into(),
        holder.machine.as_str().into(),
        holder.hostname.as_str().into(),
        holder.pid.into(),
        holder.label.as_str().into(),
        holder.boot.as_str().into(),
        holder.namespace.as_str().into(),
        holder.start_ticks.into(),
        now.0.into(),
        (*epoch).into(),
    ];
    tx.execute(ADOPT, &args)?;
    note(tx, &request, Verb::Changed, now)?;
    get(tx, scope, id, now)
}

/// Gives a sign of life for every request that waits and that a holder owns.
pub(crate) fn heartbeat(tx: &mut dyn Tx, holder: &str, now: Timestamp) -> Result<()> {
    tx.execute(HEARTBEAT, &[holder.into(), now.0.into()]).map(drop)
}

/// The texts of a request that somebody has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) id: RequestId,
    /// Subject, detail, options and note, in this order.
    pub(crate) texts: [Option<String>; 4],
}

impl Texts {
    /// Whether a text is JSON, and has to stay so.
    pub(crate) const ARE_JSON: [bool; 4] = [false, true, true, false];
}

/// A page of the texts of the requests about a thread, or of those about none, after an id.
pub(crate) fn texts(tx: &mut dyn Tx, scope: Scope, thread: Option<&ThreadId>, after: &[u8]) -> Result<Vec<Texts>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut visit = |row: &Row<'_>| {
        let texts = read_texts(row)?;
        bytes += texts.texts.iter().flatten().map(String::len).sum::<usize>();
        found.push(texts);
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    };
    let limit = i64::try_from(MAX_PAGE).unwrap_or(i64::MAX).into();
    match thread {
        Some(thread) => tx.query(TEXTS_OF, &[thread.as_str().into(), Value::Blob(after), limit], &mut visit)?,
        None => tx.query(TEXTS_OF_NO_THREAD, &[Value::Blob(after), scope.arg(), limit], &mut visit)?,
    }
    Ok(found)
}

/// Puts texts in the place of those that were looked at; leaves a request whose texts were changed meanwhile, and says so.
pub(crate) fn put_texts(tx: &mut dyn Tx, before: &Texts, after: &Texts, now: Timestamp) -> Result<bool> {
    let id = Value::Blob(before.id.as_bytes());
    let Some(found) = query_one(tx, TEXTS_LOCKED, &[id], read_texts)? else { return Ok(true) };
    if found == *after {
        return Ok(true);
    }
    if found != *before {
        return Ok(false);
    }
    let mut args: Vec<Value<'_>> = vec![id];
    args.extend(after.texts.iter().map(|text| Value::from(text.as_deref())));
    tx.execute(PUT_TEXTS, &args)?;
    let request = find_row(tx, BY_ID, Scope::All, before.id)?;
    note(tx, &request, Verb::Changed, now)?;
    Ok(true)
}

/// How a request is resolved.
struct Resolution<'a> {
    state: RequestState,
    by: Option<&'a Principal>,
    choice: Option<(&'a str, &'a Effect)>,
    note: Option<&'a str>,
}

fn resolve(tx: &mut dyn Tx, request: &Request, resolution: &Resolution<'_>, now: Timestamp) -> Result<Request> {
    let Resolution { state, by, choice, note: said } = resolution;
    let args = [
        Value::Blob(request.id.as_bytes()),
        state.as_str().into(),
        now.0.into(),
        by.map(|by| by.name.as_str()).into(),
        by.map(|by| by.channel.as_str()).into(),
        choice.map(|(option, _)| option).into(),
        choice.map(|(_, effect)| effect.as_str()).into(),
        (*said).into(),
    ];
    tx.execute(RESOLVE, &args)?;
    note(tx, request, Verb::Changed, now)?;
    get(tx, Scope::All, request.id, now)
}

/// Puts on record of a request that waits that its time is over, if it is.
fn expire_one(tx: &mut dyn Tx, request: &Request, now: Timestamp) -> Result<Option<Request>> {
    if request.expires_at.is_none_or(|end| end > now) {
        return Ok(None);
    }
    let resolution = Resolution { state: RequestState::Expired, by: None, choice: None, note: None };
    resolve(tx, request, &resolution, now).map(Some)
}

/// The request as it is at a time.
fn at(request: Request, now: Timestamp) -> Request {
    let is_over = request.state == RequestState::Pending && request.expires_at.is_some_and(|end| end <= now);
    if is_over { Request { state: RequestState::Expired, resolved_at: request.expires_at, ..request } } else { request }
}

/// The workspace of a request to be: that of its thread, which must be seen, or the one that the handle is opened on.
fn workspace_for(tx: &mut dyn Tx, scope: Scope, thread: Option<&ThreadId>) -> Result<WorkspaceId> {
    let Some(thread) = thread else {
        return match scope {
            Scope::Workspace(workspace) => Ok(workspace),
            Scope::All => {
                Err(Error::invalid("thread", "a request belongs to a workspace: name a thread, or ask there"))
            }
        };
    };
    threads::check_visible(tx, scope, thread)?;
    let found = query_one(tx, WORKSPACE_OF_THREAD, &[thread.as_str().into()], |row| {
        row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")
    })?;
    found.ok_or_else(|| Error::not_found("thread", thread))
}

fn is_seen(scope: Scope, request: &Request) -> bool {
    scope == Scope::All || scope == Scope::Workspace(request.workspace)
}

fn find_row(tx: &mut dyn Tx, statement: Statement, scope: Scope, id: RequestId) -> Result<Request> {
    let found = query_one(tx, statement, &[Value::Blob(id.as_bytes())], read)?;
    found.filter(|request| is_seen(scope, request)).ok_or_else(|| Error::not_found("request", id))
}

fn not_pending(request: &Request) -> Error {
    conflict("request", "one that waits for an answer", &request.state)
}

fn taken(id: RequestId) -> Error {
    Error::AlreadyExists { what: "request", id: id.to_string() }
}

fn conflict(what: &'static str, expected: &str, found: &(impl ToString + ?Sized)) -> Error {
    Error::Conflict { what, expected: expected.to_owned(), found: found.to_string() }
}

fn note(tx: &mut dyn Tx, request: &Request, verb: Verb, now: Timestamp) -> Result<()> {
    let subject = request.id.to_string();
    let note = Note { area: Area::Request, verb, subject: Some(&subject), now };
    match &request.thread {
        Some(thread) => changes::note(tx, thread, None, note),
        None => changes::note_in(tx, request.workspace, note),
    }
}

fn read_id(row: &Row<'_>, column: usize) -> Result<RequestId> {
    row.parse(column, RequestId::from_slice(row.blob(column)?), "16 bytes of an id")
}

fn read_texts(row: &Row<'_>) -> Result<Texts> {
    let text = |column: usize| Ok::<_, Error>(row.opt_text(column)?.map(str::to_owned));
    Ok(Texts { id: read_id(row, 0)?, texts: [text(1)?, text(2)?, text(3)?, text(4)?] })
}

/// Reads the columns of `request_columns!`: what of it can't be read is left out and said, and grants nothing.
fn read(row: &Row<'_>) -> Result<Request> {
    let id = read_id(row, 0)?;
    let place = format!("request {id}");
    read_columns(row, id).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_columns(row: &Row<'_>, id: RequestId) -> Result<Request> {
    let time = |column: usize| Ok::<_, Error>(row.opt_int(column)?.map(Timestamp));
    let text = |column: usize| Ok::<_, Error>(row.opt_text(column)?.map(str::to_owned));
    let mut damage = None;
    let kind = RequestKind::from_word(row.text(3)?);
    let options = serde_json::from_str::<Vec<RequestOption>>(row.text(8)?).unwrap_or_else(|error| {
        damage = Some(format!("its options can't be read: {error}"));
        Vec::new()
    });
    let thread = match row.opt_text(2)? {
        None => None,
        Some(thread) => Some(row.parse(2, ThreadId::new(thread).ok(), "a thread id")?),
    };
    let by = row.opt_text(26)?.map(|name| Principal {
        name: name.to_owned(),
        channel: Channel::from_word(row.opt_text(27).ok().flatten().unwrap_or_default()),
    });
    let token = match row.opt_blob(31)? {
        None => None,
        Some(token) => Some(row.parse(31, Uuid::from_slice(token).ok(), "16 bytes of an id")?),
    };
    let (epoch, current) = (row.opt_int(21)?, row.opt_int(34)?);
    Ok(Request {
        id,
        workspace: row.parse(1, WorkspaceId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        thread,
        number: row.int(33)?,
        subject: row.text(4)?.to_owned(),
        detail: text(5)?,
        fingerprint: row.parse(6, Hash::from_slice(row.blob(6)?), "a hash")?,
        danger: match Danger::from_word(row.text(7)?) {
            Danger::Low => Danger::Low,
            _ => Danger::High,
        },
        unowned: Unowned::from_word(row.text(9)?),
        masked: row.int(10)? != 0,
        owner: read_owner(row)?,
        owned: false,
        created_at: Timestamp(row.int(22)?),
        expires_at: time(23)?,
        state: RequestState::from_word(row.text(24)?),
        resolved_at: time(25)?,
        answer: read_answer(row, &kind, &options, by.as_ref())?,
        kind,
        options,
        resolved_by: by,
        note: text(30)?,
        consumed_at: time(32)?,
        damage,
        token,
        lost_its_claim: epoch.is_some() && epoch != current,
    })
}

fn read_owner(row: &Row<'_>) -> Result<Holder> {
    Ok(Holder {
        id: row.text(11)?.to_owned(),
        machine: row.text(12)?.to_owned(),
        hostname: row.text(13)?.to_owned(),
        pid: row.int(14)?,
        label: row.text(15)?.to_owned(),
        boot: row.text(16)?.to_owned(),
        namespace: row.text(17)?.to_owned(),
        start_ticks: row.int(18)?,
        acquired_at: Timestamp(row.int(19)?),
        heartbeat_at: Timestamp(row.int(20)?),
    })
}

/// What was answered. It grants what the option grants to whoever chose it, and nothing when anything of that does not fit.
fn read_answer(
    row: &Row<'_>,
    kind: &RequestKind,
    options: &[RequestOption],
    by: Option<&Principal>,
) -> Result<Option<GivenAnswer>> {
    let Some((option, effect)) = row.opt_text(28)?.zip(row.opt_text(29)?) else { return Ok(None) };
    let stored_effect = Effect::from_word(effect);
    let chosen = options.iter().find(|known| known.id == option && known.effect == stored_effect);
    let effect = match (chosen, by) {
        (Some(chosen), Some(by)) => granted(kind, chosen, &by.channel),
        _ => Effect::Deny,
    };
    Ok(Some(GivenAnswer { option: option.to_owned(), effect, stored_effect }))
}
