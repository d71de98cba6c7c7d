//! Threads in the store: creating, forking, finding, changing, shelving.

use crate::changes::{self, Area, Note, Verb};
use crate::claim::Holder;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId, WorkspaceId};
use crate::item::Hash;
use crate::log::order::Top;
use crate::log::{append, head, path};
use crate::policy::Policy;
use crate::thread::{Details, Shelf, Status, Thread, ThreadPatch};
use crate::time::Timestamp;

/// How many candidates an ambiguous name lists.
const CANDIDATES: i64 = 8;

/// The columns of a thread as [`read_thread`] takes them.
macro_rules! thread_columns {
    () => {
        "SELECT t.id, t.workspace, w.name, t.shelf, t.status, t.version, t.epoch, t.tick, t.activity, t.head, t.head_hash, hb.id,
          t.fork_item, fb.id, t.forked_from, t.items, t.branches, t.turns, t.created_at, t.updated_at, t.archived_at,
          t.trashed_at, t.ended_at, t.pinned, t.ephemeral, t.title, t.preview, t.agent, t.source, t.provider, t.model, t.cwd,
          t.working_path, t.rollout_path, t.git_sha, t.git_branch, t.git_origin, t.cli_version, t.sandbox_policy,
          t.approval_policy, t.memory_mode, t.persona, t.parent, t.end_reason, t.token_usage, t.extra,
          c.holder, c.machine, c.hostname, c.pid, c.label, c.acquired_at, c.heartbeat_at, t.updated, c.boot, c.namespace, c.start_ticks,
          t.policy
         FROM threads t JOIN workspaces w ON w.id = t.workspace
         LEFT JOIN branches hb ON hb.key = t.head >> 32
         LEFT JOIN branches fb ON fb.key = t.fork_item >> 32
         LEFT JOIN claims c ON c.thread = t.id "
    };
}
pub(crate) use thread_columns;

statements! {
    BY_ID = concat!(thread_columns!(), "WHERE t.id = ?1 AND t.shelf < 3");
    SCOPE_OF = "SELECT workspace, shelf FROM threads WHERE id = ?1";
    IDS_FROM = "SELECT id FROM threads WHERE id >= ?1 AND id < ?2 AND shelf < 3
        AND (CAST(?3 AS BYTEA) IS NULL OR workspace = ?3) ORDER BY id LIMIT ?4";
    IDS_BY_TITLE = "SELECT id FROM threads WHERE title = ?1 AND shelf < 2
        AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2) ORDER BY id LIMIT ?3";
    LATEST = "SELECT id FROM threads WHERE shelf = 0 AND ended_at IS NULL ORDER BY activity DESC, id DESC LIMIT 1";
    LATEST_IN = "SELECT id FROM threads WHERE workspace = ?1 AND shelf = 0 AND ended_at IS NULL ORDER BY activity DESC, id DESC LIMIT 1";
    INSERT_THREAD = "INSERT INTO threads (id, workspace, shelf, status, version, epoch, tick, updated, activity, head, head_hash, head_is_tip,
        fork_item, forked_from, items, branches, turns, created_at, updated_at, pinned, ephemeral, policy, title, preview,
        agent, source, provider, model, cwd, working_path, rollout_path, git_sha, git_branch, git_origin, cli_version,
        sandbox_policy, approval_policy, memory_mode, persona, parent, end_reason, token_usage, extra)
        VALUES (?1, ?2, 0, ?3, 1, ?4, ?5, ?5, ?5, ?6, ?7, 0, ?6, ?8, 0, 0, ?9, ?10, ?11, 0, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
        ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34)";
    UPDATE_THREAD = "UPDATE threads SET status = ?3, version = version + 1, tick = ?28, updated = ?29, updated_at = ?4,
        pinned = ?5, ephemeral = ?6, title = ?7, preview = ?8, agent = ?9, source = ?10, provider = ?11, model = ?12,
        cwd = ?13, working_path = ?14, rollout_path = ?15, git_sha = ?16, git_branch = ?17, git_origin = ?18,
        cli_version = ?19, sandbox_policy = ?20, approval_policy = ?21, memory_mode = ?22, persona = ?23, parent = ?24,
        end_reason = ?25, token_usage = ?26, extra = ?27 WHERE id = ?1 AND version = ?2";
    SHELVE = "UPDATE threads SET shelf = ?2, version = version + 1, tick = ?6, updated = ?7, updated_at = ?3,
        archived_at = ?4, trashed_at = ?5 WHERE id = ?1";
    END = "UPDATE threads SET ended_at = ?2, end_reason = ?3, status = ?4, version = version + 1,
        tick = ?5, updated = ?6, updated_at = ?2 WHERE id = ?1";
    // Held until the transaction ends: what is read after it can't change meanwhile.
    LOCK_THREAD = "SELECT version FROM threads WHERE id = ?1 /* FOR UPDATE */";
    // The same for a fork's parent, which may be written meanwhile but not taken away.
    LOCK_PARENT = "SELECT version FROM threads WHERE id = ?1 /* FOR KEY SHARE */";
    CREATED = "SELECT epoch, created_at, updated_at FROM threads WHERE id = ?1 AND shelf < 2";
    RAISE_FIRST_EPOCH = "UPDATE threads SET epoch = ?2 WHERE id = ?1";
    FIRST_EPOCH = "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'purged-epoch'";
    POLICY = "SELECT policy FROM threads WHERE id = ?1";
    SET_POLICY = "UPDATE threads SET policy = ?2, version = version + 1 WHERE id = ?1";
    EPOCH = "SELECT epoch FROM threads WHERE id = ?1 AND shelf < 2";
    HOLD = "SELECT workspace, shelf, epoch, tick, updated FROM threads WHERE id = ?1 /* FOR UPDATE */";
    MOVE = "UPDATE threads SET tick = ?2, updated = ?3, updated_at = CASE WHEN updated_at < ?4 THEN ?4 ELSE updated_at END
        WHERE id = ?1";
}

/// The fence: which threads a handle may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole store.
    All,
    /// One workspace. Another's thread reads the same as an absent one.
    Workspace(WorkspaceId),
}

impl Scope {
    /// The workspace as a parameter; NULL for the whole store.
    pub(crate) fn arg(&self) -> Value<'_> {
        match self {
            Self::All => Value::Null,
            Self::Workspace(id) => Value::Blob(id.as_bytes()),
        }
    }
}

/// Refuses a thread that the scope does not see, or that is no longer there.
pub(crate) fn check_visible(tx: &mut dyn Tx, scope: Scope, thread: &ThreadId) -> Result<Shelf> {
    let found = query_one(tx, SCOPE_OF, &[thread.as_str().into()], |row| {
        let workspace = row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")?;
        Ok((workspace, row.parse(1, Shelf::from_int(row.int(1)?), "a shelf")?))
    })?;
    match found {
        Some((workspace, shelf))
            if shelf != Shelf::Stub && (scope == Scope::All || scope == Scope::Workspace(workspace)) =>
        {
            Ok(shelf)
        }
        _ => Err(Error::not_found("thread", thread)),
    }
}

/// Reads a thread.
pub(crate) fn get(tx: &mut dyn Tx, scope: Scope, thread: &ThreadId) -> Result<Thread> {
    check_visible(tx, scope, thread)?;
    let found = query_one(tx, BY_ID, &[thread.as_str().into()], read_thread)?;
    found.ok_or_else(|| Error::not_found("thread", thread))
}

/// Finds a thread by its id, by an unambiguous prefix of it, by its exact title, or `-` for the latest one.
pub(crate) fn find(tx: &mut dyn Tx, scope: Scope, name: &str) -> Result<ThreadId> {
    if name == "-" {
        return latest(tx, scope)?.ok_or_else(|| Error::not_found("thread", "-"));
    }
    if let Ok(id) = ThreadId::new(name) {
        if check_visible(tx, scope, &id).is_ok() {
            return Ok(id);
        }
        if let Some(found) = by_prefix(tx, scope, name)? {
            return Ok(found);
        }
        // `6e1f7c20.agent-a`: a sub-agent is named after its parent, and both parts may be shortened.
        if let Some((parent, rest)) = name.split_once('.')
            && let Some(parent) = by_prefix(tx, scope, parent)?
            && let Some(found) = by_prefix(tx, scope, &format!("{parent}.{rest}"))?
        {
            return Ok(found);
        }
    }
    if !name.contains('\0') {
        let mut matches = query_all(tx, IDS_BY_TITLE, &[name.into(), scope.arg(), CANDIDATES.into()], read_id)?;
        if let Some(found) = the_only(name, &mut matches)? {
            return Ok(found);
        }
    }
    Err(Error::not_found("thread", name))
}

fn by_prefix(tx: &mut dyn Tx, scope: Scope, prefix: &str) -> Result<Option<ThreadId>> {
    // `~` comes after every character that an id may hold.
    let bound = format!("{prefix}~");
    let args = [prefix.into(), bound.as_str().into(), scope.arg(), CANDIDATES.into()];
    the_only(prefix, &mut query_all(tx, IDS_FROM, &args, read_id)?)
}

/// The one match, or the one that all others are named after, as sub-agents are after their parent.
fn the_only(name: &str, matches: &mut Vec<ThreadId>) -> Result<Option<ThreadId>> {
    if let Some(first) = matches.first().cloned()
        && first.as_str().starts_with(name)
        && matches.iter().all(|other| other.as_str().starts_with(first.as_str()))
    {
        return Ok(Some(first));
    }
    if matches.len() > 1 {
        let candidates = matches.iter().map(ThreadId::to_string).collect();
        return Err(Error::Ambiguous { given: name.to_owned(), candidates });
    }
    Ok(matches.pop())
}

/// The newest thread that is neither ended nor archived.
pub(crate) fn latest(tx: &mut dyn Tx, scope: Scope) -> Result<Option<ThreadId>> {
    match scope {
        Scope::All => query_one(tx, LATEST, &[], read_id),
        Scope::Workspace(_) => query_one(tx, LATEST_IN, &[scope.arg()], read_id),
    }
}

/// A thread's row to be.
#[derive(Debug, Clone)]
pub(crate) struct Creation {
    pub(crate) id: ThreadId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) details: Details,
    pub(crate) status: Status,
    pub(crate) ephemeral: bool,
    pub(crate) policy: Policy,
    pub(crate) forked_from: Option<ThreadId>,
    pub(crate) created_at: Timestamp,
    pub(crate) now: Timestamp,
}

/// Writes the row of a new thread; gives its epoch. No epoch is used twice for an id, though its thread was purged.
pub(crate) fn create(tx: &mut dyn Tx, creation: &Creation) -> Result<i64> {
    insert(tx, creation, None)
}

/// Writes the row of a thread that shares the path up to `point` of `parent`, whatever that path's length is.
pub(crate) fn fork(tx: &mut dyn Tx, creation: &Creation, parent: &ThreadId, point: Address) -> Result<()> {
    query_one(tx, LOCK_PARENT, &[parent.as_str().into()], |_| Ok(()))?;
    let key = head::resolve(tx, parent, point)?;
    let (hash, turn) = path::link_at(tx, key)?.ok_or_else(|| Error::not_found("item", point))?;
    insert(tx, creation, Some((key, hash, turn))).map(drop)
}

/// The epoch that a new thread begins with: no epoch is used twice for an id, though its thread was purged.
pub(crate) fn first_epoch(tx: &mut dyn Tx) -> Result<i64> {
    Ok(query_one(tx, FIRST_EPOCH, &[], |row| row.int(0))?.unwrap_or(0))
}

fn insert(tx: &mut dyn Tx, creation: &Creation, fork: Option<(ItemKey, Hash, Option<i64>)>) -> Result<i64> {
    creation.details.check()?;
    creation.policy.check()?;
    let epoch = first_epoch(tx)?;
    let tick = Top::read(tx)?.next_tick(0);
    let texts = Texts::of(&creation.details, &creation.policy);
    let hash = fork.as_ref().map(|(_, hash, _)| hash.0.as_slice());
    let turns = fork.and_then(|(_, _, turn)| turn).unwrap_or(0);
    let mut args: Vec<Value<'_>> = vec![
        creation.id.as_str().into(),
        Value::Blob(creation.workspace.as_bytes()),
        creation.status.as_str().into(),
        epoch.into(),
        tick.into(),
        fork.map(|(key, _, _)| key.0).into(),
        hash.into(),
        creation.forked_from.as_ref().map(ThreadId::as_str).into(),
        turns.into(),
        creation.created_at.0.into(),
        creation.now.0.into(),
        i64::from(creation.ephemeral).into(),
        texts.policy.as_str().into(),
    ];
    texts.push(&creation.details, &mut args);
    tx.execute(INSERT_THREAD, &args).map_err(|error| match error {
        Error::AlreadyExists { .. } => Error::AlreadyExists { what: "thread", id: creation.id.to_string() },
        other => other,
    })?;
    note(tx, &creation.id, Some(tick), Verb::Created, creation.now)?;
    // The row may have waited for a purge of this id to end.
    let since = first_epoch(tx)?;
    if since != epoch {
        tx.execute(RAISE_FIRST_EPOCH, &[creation.id.as_str().into(), since.into()])?;
    }
    Ok(since)
}

/// The epoch of the thread that an earlier run of this creation has stored, if one did.
pub(crate) fn created(tx: &mut dyn Tx, creation: &Creation) -> Result<Option<i64>> {
    let found = query_one(tx, CREATED, &[creation.id.as_str().into()], |row| {
        let is_this = (row.int(1)?, row.int(2)?) == (creation.created_at.0, creation.now.0);
        Ok(is_this.then_some(row.int(0)?))
    })?;
    Ok(found.flatten())
}

/// Lets no other transaction change the thread before this one ends.
pub(crate) fn lock(tx: &mut dyn Tx, thread: &ThreadId) -> Result<()> {
    query_one(tx, LOCK_THREAD, &[thread.as_str().into()], |_| Ok(())).map(drop)
}

/// Changes what the patch names, if the stored version is the one it expects.
pub(crate) fn update(
    tx: &mut dyn Tx,
    scope: Scope,
    thread: &ThreadId,
    patch: ThreadPatch,
    now: Timestamp,
) -> Result<Thread> {
    lock(tx, thread)?;
    let mut changed = get(tx, scope, thread)?;
    let version = changed.version;
    patch.apply(&mut changed)?;
    let texts = Texts::of(&changed.details, &Policy::All);
    let mut args: Vec<Value<'_>> = vec![
        thread.as_str().into(),
        version.into(),
        changed.status.as_str().into(),
        now.0.into(),
        i64::from(changed.pinned).into(),
        i64::from(changed.ephemeral).into(),
    ];
    texts.push(&changed.details, &mut args);
    let (tick, updated) = bump(tx, &changed)?;
    args.extend([Value::from(tick), Value::from(updated)]);
    if tx.execute(UPDATE_THREAD, &args)? == 0 {
        let found = "another one".to_owned();
        return Err(Error::Conflict { what: "version", expected: version.to_string(), found });
    }
    note(tx, thread, Some(tick), Verb::Changed, now)?;
    get(tx, scope, thread)
}

/// Puts a thread on a shelf. Archiving keeps the status; the same shelf again changes nothing.
pub(crate) fn shelve(tx: &mut dyn Tx, scope: Scope, thread: &ThreadId, to: Shelf, now: Timestamp) -> Result<Thread> {
    lock(tx, thread)?;
    let current = get(tx, scope, thread)?;
    if current.shelf == to {
        return Ok(current);
    }
    // A thread that comes back from the trash goes where it was.
    let to = if to == Shelf::Active && current.shelf == Shelf::Trashed && current.archived_at.is_some() {
        Shelf::Archived
    } else {
        to
    };
    let archived = match to {
        Shelf::Archived => Some(current.archived_at.unwrap_or(now)),
        Shelf::Trashed => current.archived_at,
        Shelf::Active | Shelf::Stub => None,
    };
    let trashed = (to == Shelf::Trashed).then_some(now);
    let (tick, updated) = bump(tx, &current)?;
    let args = [
        thread.as_str().into(),
        to.to_int().into(),
        now.0.into(),
        archived.map(|time| time.0).into(),
        trashed.map(|time| time.0).into(),
        tick.into(),
        updated.into(),
    ];
    tx.execute(SHELVE, &args)?;
    let verb = match (current.shelf, to) {
        (_, Shelf::Trashed) => Verb::Deleted,
        (Shelf::Trashed, _) => Verb::Created,
        _ => Verb::Changed,
    };
    note(tx, thread, Some(tick), verb, now)?;
    get(tx, scope, thread)
}

/// Marks a thread as ended.
pub(crate) fn end(
    tx: &mut dyn Tx,
    scope: Scope,
    thread: &ThreadId,
    reason: &str,
    status: &Status,
    now: Timestamp,
) -> Result<Thread> {
    lock(tx, thread)?;
    let current = get(tx, scope, thread)?;
    let (tick, updated) = bump(tx, &current)?;
    let args =
        [thread.as_str().into(), now.0.into(), reason.into(), status.as_str().into(), tick.into(), updated.into()];
    tx.execute(END, &args)?;
    note(tx, thread, Some(tick), Verb::Changed, now)?;
    get(tx, scope, thread)
}

/// Notes for those who follow what became of a thread.
pub(crate) fn note(tx: &mut dyn Tx, thread: &ThreadId, tick: Option<i64>, verb: Verb, now: Timestamp) -> Result<()> {
    changes::note(tx, thread, tick, Note { area: Area::Thread, verb, subject: None, now })
}

/// Who changes what stands beside the log of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Anybody who sees the thread.
    Anyone(Scope),
    /// The holder of the claim at this epoch.
    Holder(i64),
}

/// A change of what stands beside the log of a thread: whose, by whom and when.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) thread: ThreadId,
    pub(crate) by: By,
    pub(crate) now: Timestamp,
}

/// Locks the thread until the transaction ends, and moves it to the next tick, which is given: greater than that of any earlier
/// change of the thread. Refuses a thread that is not seen, and a holder that was fenced off.
pub(crate) fn hold(tx: &mut dyn Tx, hold: &Hold) -> Result<i64> {
    lock_by(tx, hold)?.next_tick(tx, hold)
}

/// A thread that is locked until the transaction ends.
#[derive(Debug)]
pub(crate) struct Locked {
    tick: i64,
    updated: i64,
}

/// Locks the thread until the transaction ends. Refuses a thread that is not seen, and a holder that was fenced off.
pub(crate) fn lock_by(tx: &mut dyn Tx, hold: &Hold) -> Result<Locked> {
    let found = query_one(tx, HOLD, &[hold.thread.as_str().into()], |row| {
        let workspace = row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")?;
        let shelf = row.parse(1, Shelf::from_int(row.int(1)?), "a shelf")?;
        Ok((workspace, shelf, row.int(2)?, Locked { tick: row.int(3)?, updated: row.int(4)? }))
    })?;
    let (workspace, shelf, stored, locked) = found.ok_or_else(|| Error::not_found("thread", &hold.thread))?;
    match hold.by {
        By::Anyone(scope) if shelf != Shelf::Stub && (scope == Scope::All || scope == Scope::Workspace(workspace)) => {}
        By::Anyone(_) => return Err(Error::not_found("thread", &hold.thread)),
        By::Holder(epoch) if stored == epoch && matches!(shelf, Shelf::Active | Shelf::Archived) => {}
        By::Holder(epoch) => return Err(append::why_refused(tx, &hold.thread, epoch)?),
    }
    Ok(locked)
}

impl Locked {
    /// Moves the thread to the next tick, which is given: greater than that of any earlier change of the thread.
    pub(crate) fn next_tick(&self, tx: &mut dyn Tx, hold: &Hold) -> Result<i64> {
        let top = Top::read(tx)?;
        let tick = top.next_tick(self.tick);
        let place = top.updated(&hold.thread, tick, self.updated);
        tx.execute(MOVE, &[hold.thread.as_str().into(), tick.into(), place.into(), hold.now.0.into()])?;
        Ok(tick)
    }
}

/// Whether this is the thread's epoch.
pub(crate) fn is_at(tx: &mut dyn Tx, thread: &ThreadId, epoch: i64) -> Result<bool> {
    Ok(query_one(tx, EPOCH, &[thread.as_str().into()], |row| row.int(0))? == Some(epoch))
}

/// The tick of a change to a thread's metadata, and its place in the order by update from then on.
fn bump(tx: &mut dyn Tx, thread: &Thread) -> Result<(i64, i64)> {
    let top = Top::read(tx)?;
    let tick = top.next_tick(thread.tick);
    Ok((tick, top.updated(&thread.id, tick, thread.updated)))
}

/// The persistence policy of a thread.
pub(crate) fn policy(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Policy> {
    let policy = query_one(tx, POLICY, &[thread.as_str().into()], |row| {
        row.parse(0, serde_json::from_str(row.text(0)?).ok(), "a policy")
    })?;
    policy.ok_or_else(|| Error::not_found("thread", thread))
}

/// Puts another policy in the place of a thread's; the same one changes nothing.
pub(crate) fn set_policy(tx: &mut dyn Tx, hold: &Hold, to: &Policy) -> Result<()> {
    let locked = lock_by(tx, hold)?;
    let thread = &hold.thread;
    // One that can't be read is replaced like any other.
    if policy(tx, thread).is_ok_and(|stored| stored == *to) {
        return Ok(());
    }
    let tick = locked.next_tick(tx, hold)?;
    let text = serde_json::to_string(to).unwrap_or_default();
    tx.execute(SET_POLICY, &[thread.as_str().into(), text.as_str().into()])?;
    note(tx, thread, Some(tick), Verb::Changed, hold.now)
}

/// The JSON texts of a thread's row, kept alive while they are bound.
struct Texts {
    policy: String,
    usage: Option<String>,
    extra: String,
}

impl Texts {
    fn of(details: &Details, policy: &Policy) -> Self {
        Self {
            policy: serde_json::to_string(policy).unwrap_or_default(),
            usage: details.usage.and_then(|usage| serde_json::to_string(&usage).ok()),
            extra: serde_json::to_string(&details.extra).unwrap_or_else(|_| "{}".to_owned()),
        }
    }

    /// Adds the descriptive columns in their order, from `title` to `extra`.
    fn push<'a>(&'a self, details: &'a Details, args: &mut Vec<Value<'a>>) {
        let texts = [
            &details.title,
            &details.preview,
            &details.agent,
            &details.source,
            &details.provider,
            &details.model,
            &details.cwd,
            &details.working_path,
            &details.rollout_path,
            &details.git_sha,
            &details.git_branch,
            &details.git_origin,
            &details.cli_version,
            &details.sandbox_policy,
            &details.approval_policy,
            &details.memory_mode,
            &details.persona,
        ];
        args.extend(texts.into_iter().map(|text| Value::from(text.as_deref())));
        args.push(details.parent.as_ref().map(ThreadId::as_str).into());
        args.push(details.end_reason.as_deref().into());
        args.push(self.usage.as_deref().into());
        args.push(self.extra.as_str().into());
    }
}

fn read_id(row: &Row<'_>) -> Result<ThreadId> {
    row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
}

/// Reads the columns of `thread_columns!`. Damage names the thread.
pub(crate) fn read_thread(row: &Row<'_>) -> Result<Thread> {
    let thread = read_listed(row)?;
    match thread.damage {
        None => Ok(thread),
        Some(damage) => Err(Error::corrupt(format!("thread {}", thread.id), damage)),
    }
}

/// Reads a thread for a list: what of its descriptive fields can't be read is left out, and said.
pub(crate) fn read_listed(row: &Row<'_>) -> Result<Thread> {
    let id = read_id(row)?;
    let place = format!("thread {id}");
    read_named(row, id).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_named(row: &Row<'_>, id: ThreadId) -> Result<Thread> {
    let mut damage = None;
    Ok(Thread {
        id,
        workspace: row.parse(1, WorkspaceId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        workspace_name: row.text(2)?.to_owned(),
        shelf: row.parse(3, Shelf::from_int(row.int(3)?), "a shelf")?,
        status: Status::from_word(row.text(4)?),
        version: row.int(5)?,
        epoch: row.int(6)?,
        tick: row.int(7)?,
        activity: row.int(8)?,
        updated: row.int(53)?,
        head: read_address(row, 9, 11)?,
        head_hash: row.opt_blob(10)?.and_then(Hash::from_slice),
        fork_point: read_address(row, 12, 13)?,
        forked_from: row.opt_text(14)?.and_then(|id| ThreadId::new(id).ok()),
        items: row.int(15)?,
        branches: row.int(16)?,
        turns: row.int(17)?,
        created_at: Timestamp(row.int(18)?),
        updated_at: Timestamp(row.int(19)?),
        archived_at: row.opt_int(20)?.map(Timestamp),
        trashed_at: row.opt_int(21)?.map(Timestamp),
        ended_at: row.opt_int(22)?.map(Timestamp),
        pinned: row.int(23)? != 0,
        ephemeral: row.int(24)? != 0,
        policy: read_policy(row, &mut damage),
        details: read_details(row, &mut damage),
        holder: read_holder(row)?,
        live: false,
        damage,
    })
}

fn read_address(row: &Row<'_>, key: usize, branch: usize) -> Result<Option<Address>> {
    let branch = row.opt_blob(branch)?.and_then(ItemId::from_slice);
    Ok(row.opt_int(key)?.map(ItemKey).zip(branch).map(|(key, branch)| Address { branch, depth: key.depth() }))
}

/// Reads the descriptive fields; notes the first one that can't be read.
fn read_details(row: &Row<'_>, damage: &mut Option<String>) -> Details {
    fn keep<T>(read: Result<Option<T>>, damage: &mut Option<String>) -> Option<T> {
        read.unwrap_or_else(|error| {
            damage.get_or_insert_with(|| error.to_string());
            None
        })
    }
    let mut text = |column: usize| keep(row.opt_text(column).map(|text| text.map(str::to_owned)), damage);
    let mut details = Details {
        title: text(25),
        preview: text(26),
        agent: text(27),
        source: text(28),
        provider: text(29),
        model: text(30),
        cwd: text(31),
        working_path: text(32),
        rollout_path: text(33),
        git_sha: text(34),
        git_branch: text(35),
        git_origin: text(36),
        cli_version: text(37),
        sandbox_policy: text(38),
        approval_policy: text(39),
        memory_mode: text(40),
        persona: text(41),
        parent: text(42).and_then(|id| ThreadId::new(id).ok()),
        end_reason: text(43),
        ..Details::default()
    };
    details.usage = keep(read_json(row, 44, "token counts"), damage);
    details.extra = keep(read_json(row, 45, "a JSON object"), damage).unwrap_or_default();
    details
}

/// Reads the policy; one that can't be read is noted.
fn read_policy(row: &Row<'_>, damage: &mut Option<String>) -> Policy {
    let read = row.text(57).and_then(|text| row.parse(57, serde_json::from_str(text).ok(), "a policy"));
    read.unwrap_or_else(|error| {
        damage.get_or_insert_with(|| error.to_string());
        Policy::default()
    })
}

fn read_json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize, expected: &str) -> Result<Option<T>> {
    let Some(text) = row.opt_text(column)? else { return Ok(None) };
    row.parse(column, serde_json::from_str(text).ok(), expected).map(Some)
}

fn read_holder(row: &Row<'_>) -> Result<Option<Holder>> {
    let Some(id) = row.opt_text(46)? else {
        return Ok(None);
    };
    Ok(Some(Holder {
        id: id.to_owned(),
        machine: row.text(47)?.to_owned(),
        hostname: row.text(48)?.to_owned(),
        pid: row.int(49)?,
        label: row.text(50)?.to_owned(),
        acquired_at: Timestamp(row.int(51)?),
        heartbeat_at: Timestamp(row.int(52)?),
        boot: row.text(54)?.to_owned(),
        namespace: row.text(55)?.to_owned(),
        start_ticks: row.int(56)?,
    }))
}
