//! Making whole threads of what was let in: heads, ends, counts, turns and imported files that fit the items that are there. And
//! saying what is not there any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::Connection;

use super::{LostItems, RepairedThread};
use crate::content;
use crate::db::salvage::Salvage;
use crate::db::sqlite::SqliteTx;
use crate::db::{Owned, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{BranchId, ItemId, ItemKey, MessageId, ThreadId};
use crate::inbox::{self, MessageState};
use crate::item::Hash;
use crate::log::path;
use crate::repair::admit::{Admission, Described, Standing, extent};
use crate::requests::RequestState;
use crate::rollout::scan::Rollout;

statements! {
    THREADS = "SELECT id, shelf, turns FROM threads ORDER BY id";
    OWN = "SELECT key, base, tip, tip_hash FROM branches WHERE thread = ?1 ORDER BY key";
    NEWEST_END = "SELECT b.key, b.tip, b.tip_hash FROM branches b JOIN items i ON i.key = (b.key << 32) + b.tip
        WHERE b.thread = ?1 ORDER BY b.cleared, i.tick DESC, b.key DESC LIMIT 1";
    GREATEST = "SELECT coalesce(max(i.tick), 0), coalesce(max(i.epoch), 0) FROM branches b
        JOIN items i ON i.key BETWEEN b.key << 32 AND (b.key << 32) + 4294967295 WHERE b.thread = ?1";
    SETTLE = "UPDATE threads SET head = ?2, head_hash = ?3, head_is_tip = ?4, fork_item = ?5, items = ?6, branches = ?7, turns = ?8,
        open_turn = ?9, tick = CASE WHEN tick < ?10 THEN ?10 ELSE tick END,
        epoch = 1 + CASE WHEN epoch < ?11 THEN ?11 ELSE epoch END, version = version + 1 WHERE id = ?1";
    PUT_TURN = "INSERT INTO turns (thread, ordinal, status, outcome, first_item, last_item, token_usage, started_at, ended_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (thread, ordinal) DO NOTHING";
    LAST_TURN = "SELECT coalesce(max(ordinal), 0) FROM turns WHERE thread = ?1";
    IS_TURN = "SELECT 1 FROM turns WHERE thread = ?1 AND ordinal = ?2";
    IS_THREAD = "SELECT 1 FROM threads WHERE id = ?1";
    PUT_SOURCE = "INSERT INTO sources (key, agent, path, thread, size, mtime, consumed, prefix, records, skipped, state, imported_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING";
    PUT_SEGMENT = "INSERT INTO segments (source, position, length, item, note, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (source, position) DO NOTHING";
    PUT_GOAL = "INSERT INTO goals (thread, ordinal, id, objective, status, pause_reason, token_budget, seconds_budget, tokens_used,
        seconds_used, continuations, gap, gap_repeats, gap_pass, created_at, updated_at, ended_at, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) ON CONFLICT DO NOTHING";
    PUT_GOAL_USAGE = "INSERT INTO goal_usage (thread, id, goal, tokens, seconds, continuations, accrued_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
    PUT_CHECKPOINT_STATE = "INSERT INTO checkpoint_states (thread, digest, size, encoding, data) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT DO NOTHING";
    PUT_CHECKPOINT = "INSERT INTO checkpoints (thread, name, item, digest, created_at, tick) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT DO NOTHING";
    IS_CHECKPOINT_STATE = "SELECT 1 FROM checkpoint_states WHERE thread = ?1 AND digest = ?2";
    DROP_UNUSED_STATES = "DELETE FROM checkpoint_states WHERE NOT EXISTS (SELECT 1 FROM checkpoints c
        WHERE c.thread = checkpoint_states.thread AND c.digest = checkpoint_states.digest)";
    IS_WHOLE_THREAD = "SELECT 1 FROM threads WHERE id = ?1 AND shelf < 3";
    IS_WORKSPACE = "SELECT 1 FROM workspaces WHERE id = ?1";
    PUT_JOB = "INSERT INTO jobs (id, workspace, thread, queue, name, status, priority, place, due_at, attempts, max_attempts, backoff,
        progress, detail, payload, result, error, lease, last_lease, holder, machine, hostname, pid, label, boot, namespace,
        start_ticks, claimed_at, heartbeat_at, created_at, updated_at, ended_at, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26,
          ?27, ?28, ?29, ?30, ?31, ?32, ?33) ON CONFLICT DO NOTHING";
    PUT_TOOL = "INSERT INTO tools (thread, position, name, description, input_schema, extra) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT DO NOTHING";
    PUT_RUN = "INSERT INTO runs (id, workspace, thread, workflow, goal, status, reason, input_hash, metadata, started_at, completed_at,
        place, tick) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT DO NOTHING";
    PUT_PART = "INSERT INTO run_parts (id, run, place, kind, branch, name, about, input_hash, status, reason, result, list, started_at,
        completed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) ON CONFLICT DO NOTHING";
    PUT_CANDIDATE = "INSERT INTO run_candidates (id, run, control, branch, place, name, score, score_order, passed, rationale, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING";
    PUT_SALVAGED_RECEIPT = "INSERT INTO retention_receipts (number, run, thread, workspace, step, rule, bound, items, bytes, head_hash, epoch,
        tick, changed_at, record, made_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
        ON CONFLICT DO NOTHING";
    IS_RUN = "SELECT 1 FROM runs WHERE id = ?1";
    IS_PART = "SELECT 1 FROM run_parts WHERE id = ?1";
    PUT_SALVAGED_MESSAGE = "INSERT INTO messages (id, thread, number, key, state, policy, priority, urgency, place, format, body, masked,
        sender, source, accepted_at, expires_at, token, epoch, item, turn, taken_at, delivered_at, ended_at, outcome, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)
        ON CONFLICT DO NOTHING";
    PUT_SALVAGED_REQUEST = "INSERT INTO requests (id, workspace, thread, number, kind, subject, detail, fingerprint, danger, options, unowned,
        masked, holder, machine, hostname, pid, label, boot, namespace, start_ticks, owned_at, heartbeat_at, epoch, created_at,
        expires_at, state, resolved_at, resolved_by, channel, choice, effect, note, token, consumed_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26,
          ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34) ON CONFLICT DO NOTHING";
    IS_PROMPT = "SELECT 1 FROM items WHERE source_id = ?1";
    GREATEST_BESIDE = "SELECT coalesce(max(tick), 0) FROM (SELECT tick FROM goals WHERE thread = ?1
        UNION ALL SELECT tick FROM checkpoints WHERE thread = ?1 UNION ALL SELECT tick FROM messages WHERE thread = ?1
        UNION ALL SELECT tick FROM document_versions WHERE thread = ?1
        UNION ALL SELECT tick FROM roadmap_links WHERE thread = ?1) AS ticks";
    PUT_DOCUMENT = "INSERT INTO document_versions (thread, name, version, kind, is_current, change, created_at, tick, digest, size,
        encoding, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING";
    NEWEST_DOCUMENTS = "UPDATE document_versions SET is_current = 1 WHERE version = (SELECT max(version) FROM document_versions same
        WHERE same.thread = document_versions.thread AND same.name = document_versions.name)";
    PUT_ROADMAP = "INSERT INTO roadmaps (workspace, id, title, version, change, created_at, updated_at, tick, tree)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";
    PUT_ROADMAP_LINK = "INSERT INTO roadmap_links (thread, workspace, roadmap, node, linked_at, tick)
        SELECT ?1, workspace, id, ?4, ?5, ?6 FROM roadmaps WHERE workspace = ?2 AND id = ?3 ON CONFLICT DO NOTHING";
    DROP_STRAY_HEADS = "DELETE FROM seal_heads WHERE seal NOT IN (SELECT number FROM seals)";
    DROP_STRAY_KEYS = "DELETE FROM workspace_keys WHERE workspace NOT IN (SELECT id FROM workspaces)";
    BRANCH_OWNER = "SELECT thread FROM branches WHERE key = ?1";
    IS_ITEM = "SELECT 1 FROM items WHERE key = ?1";
}

/// What a repair brought back, thread by thread, and what it did not.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) threads: Vec<RepairedThread>,
    pub(crate) dropped_files: Vec<String>,
}

/// Ends a repair: every thread becomes one that verification finds nothing wrong with but what seals say is lost.
pub(crate) fn settle(
    admission: &Admission<'_>,
    salvage: &Salvage,
    rollouts: &HashMap<ThreadId, Rollout>,
) -> Result<Settled> {
    let mut tx = SqliteTx { connection: admission.connection };
    let expected = expected_ends(salvage, rollouts)?;
    put_turns(&mut tx, salvage, rollouts)?;
    put_state(&mut tx, salvage)?;
    let mut settled = Settled { dropped_files: put_files(&mut tx, salvage)?, ..Settled::default() };
    let lost = lost_items(admission, &expected)?;
    let threads =
        query_all(&mut tx, THREADS, &[], |row| Ok((ThreadId::new(row.text(0)?).ok(), row.int(1)?, row.int(2)?)))?;
    for (thread, shelf, turns) in threads {
        let Some(thread) = thread else { continue };
        let standing = admission.standings.get(&thread).cloned().unwrap_or_default();
        let described = admission.described.get(&thread).copied().unwrap_or(Described::Nothing);
        let known = Known { described, standing: &standing, rollout: rollouts.get(&thread) };
        let items = settle_thread(admission, (&thread, shelf, turns), &known)?;
        settled.threads.push(RepairedThread {
            before: (described == Described::Database).then_some(standing.items),
            after: items,
            from_rollouts: admission.from_rollouts.get(&thread).copied().unwrap_or(0),
            described,
            lost: lost.get(&thread).cloned().unwrap_or_default(),
            thread,
        });
    }
    for (thread, lost) in lost {
        if !settled.threads.iter().any(|known| known.thread == thread) {
            let described = Described::Nothing;
            settled.threads.push(RepairedThread { thread, before: None, after: 0, from_rollouts: 0, described, lost });
        }
    }
    tx.execute(DROP_STRAY_HEADS, &[])?;
    tx.execute(DROP_STRAY_KEYS, &[])?;
    super::admit::drop_unused_payloads(&mut tx)?;
    Ok(settled)
}

/// Puts one thread in order; says how many items it has.
fn settle_thread(
    admission: &Admission<'_>,
    (thread, shelf, turns): (&ThreadId, i64, i64),
    known: &Known<'_>,
) -> Result<u64> {
    let standing = known.standing;
    let tx = &mut SqliteTx { connection: admission.connection };
    let id: Value<'_> = thread.as_str().into();
    let own = query_all(tx, OWN, &[id], |row| {
        Ok((row.int(0)?, path::depth(row, 1)?, path::depth(row, 2)?, row.blob(3)?.to_vec()))
    })?;
    let items: i64 = own.iter().map(|(_, base, tip, _)| i64::from(tip - base) + 1).sum();
    let head = match shelf {
        3 => None,
        _ => find_head(admission, thread, known)?,
    };
    let is_tip = head
        .as_ref()
        .is_some_and(|(key, _)| own.iter().any(|(number, _, tip, _)| key.branch() == *number && key.depth() == *tip));
    let fork = find_fork(admission, known)?;
    let last = query_one(tx, LAST_TURN, &[id], |row| row.int(0))?.unwrap_or(0);
    let open = match standing.open_turn {
        Some(open) if query_one(tx, IS_TURN, &[id, open.into()], |_| Ok(()))?.is_some() => Some(open),
        _ => None,
    };
    let beside = query_one(tx, GREATEST_BESIDE, &[id], |row| row.int(0))?.unwrap_or(0);
    let (tick, epoch) = query_one(tx, GREATEST, &[id], |row| Ok((row.int(0)?, row.int(1)?)))?.unwrap_or((0, 0));
    let args = [
        id,
        head.as_ref().map(|(key, _)| key.0).into(),
        head.as_ref().map(|(_, hash)| hash.as_slice()).into(),
        i64::from(is_tip).into(),
        fork.map(|fork| fork.0).into(),
        items.into(),
        i64::try_from(own.len()).unwrap_or(0).into(),
        turns.max(last).into(),
        open.into(),
        tick.max(beside).into(),
        epoch.into(),
    ];
    tx.execute(SETTLE, &args)?;
    Ok(u64::try_from(items).unwrap_or(0))
}

/// What is known of where a thread stood.
struct Known<'a> {
    described: Described,
    standing: &'a Standing,
    rollout: Option<&'a Rollout>,
}

/// The head that was named, if it is there; else the last item that is left on the way to it; else the newest end of a branch, or
/// what is left of the way to the item that the thread was forked at. One that was cleared away on purpose stays so.
fn find_head(admission: &Admission<'_>, thread: &ThreadId, known: &Known<'_>) -> Result<Option<(ItemKey, Vec<u8>)>> {
    let tx = &mut SqliteTx { connection: admission.connection };
    let told = known.rollout.and_then(|rollout| rollout.snapshot.head);
    let is_cleared = match known.described {
        Described::Database => known.standing.head.is_none(),
        Described::Rollout => told.is_none(),
        Described::Nothing => false,
    };
    if is_cleared {
        return Ok(None);
    }
    let mut named: Vec<(ItemKey, Vec<u8>)> = known.standing.head.iter().cloned().collect();
    if let Some((at, hash)) = told
        && let Some((key, _)) = path::key_of(tx, at)?
    {
        named.push((key, hash.0.to_vec()));
    }
    for (key, hash) in &named {
        let found = path::link_at(tx, *key)?;
        if found.is_some_and(|(found, _)| found.0.as_slice() == hash) {
            return Ok(Some((*key, hash.clone())));
        }
    }
    for (key, _) in &named {
        if let Some((last, hash)) = admission.nearest(*key)? {
            return Ok(Some((last, hash.0.to_vec())));
        }
    }
    if let Some(end) = newest_end(tx, thread)? {
        return Ok(Some(end));
    }
    let Some(fork) = find_fork(admission, known)? else { return Ok(None) };
    Ok(path::link_at(tx, fork)?.map(|(hash, _)| (fork, hash.0.to_vec())))
}

/// The item that a thread was forked at, or what is left on the way to it.
fn find_fork(admission: &Admission<'_>, known: &Known<'_>) -> Result<Option<ItemKey>> {
    if let Some(fork) = known.standing.fork
        && let Some((fork, _)) = admission.nearest(fork)?
    {
        return Ok(Some(fork));
    }
    let told = known.rollout.and_then(|rollout| rollout.metadata.fork.as_ref());
    let Some(told) = told.filter(|_| known.standing.fork.is_some() || known.described != Described::Database) else {
        return Ok(None);
    };
    let tx = &mut SqliteTx { connection: admission.connection };
    let Some((fork, _)) = path::key_of(tx, told.at.address())? else { return Ok(None) };
    Ok(admission.nearest(fork)?.map(|(fork, _)| fork))
}

fn newest_end(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<(ItemKey, Vec<u8>)>> {
    query_one(tx, NEWEST_END, &[thread.as_str().into()], |row| {
        Ok((ItemKey::new(row.int(0)?, path::depth(row, 1)?), row.blob(2)?.to_vec()))
    })
}

fn is_item(tx: &mut dyn Tx, key: ItemKey) -> Result<bool> {
    Ok(query_one(tx, IS_ITEM, &[key.0.into()], |_| Ok(()))?.is_some())
}

fn put_turns(tx: &mut dyn Tx, salvage: &Salvage, rollouts: &HashMap<ThreadId, Rollout>) -> Result<()> {
    salvage.rows("turns", &mut |row| {
        let (Some(Owned::Text(thread)), Some(Owned::Int(first))) = (row.first(), row.get(4)) else { return Ok(()) };
        let is_thread = query_one(tx, IS_THREAD, &[thread.as_str().into()], |_| Ok(()))?.is_some();
        if !is_thread || !is_item(tx, ItemKey(*first))? {
            return Ok(());
        }
        let mut values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
        if let Some(Value::Int(last)) = values.get(5)
            && !is_item(tx, ItemKey(*last))?
            && let Some(last) = values.get_mut(5)
        {
            *last = Value::Null;
        }
        tx.execute(PUT_TURN, &values).map(drop)
    })?;
    for (thread, rollout) in rollouts {
        if query_one(tx, IS_THREAD, &[thread.as_str().into()], |_| Ok(()))?.is_none() {
            continue;
        }
        for turn in rollout.turns(0)? {
            let is_known =
                query_one(tx, IS_TURN, &[thread.as_str().into(), turn.ordinal.into()], |_| Ok(()))?.is_some();
            if !is_known {
                // One whose first item is not there has no place.
                drop(crate::log::rows::put_turns(tx, thread, &[turn]));
            }
        }
    }
    Ok(())
}

/// Keeps what stands beside the log and whose thread, or workspace, is here. A row that breaks a rule of its table is left.
fn put_state(tx: &mut dyn Tx, salvage: &Salvage) -> Result<()> {
    for (table, statement) in [("goals", PUT_GOAL), ("goal_usage", PUT_GOAL_USAGE)] {
        salvage.rows(table, &mut |row| match row.first() {
            Some(Owned::Text(thread)) if is_thread(tx, thread)? => put_row(tx, statement, &row),
            _ => Ok(()),
        })?;
    }
    salvage.rows("checkpoint_states", &mut |row| {
        let [Owned::Text(thread), Owned::Blob(digest), Owned::Int(size), Owned::Int(encoding), Owned::Blob(data)] =
            row.as_slice()
        else {
            return Ok(());
        };
        let whole = content::decode_blob(*encoding, usize::try_from(*size).unwrap_or(0), data);
        let proves_itself = whole.is_ok_and(|bytes| Hash::of(&bytes).0.as_slice() == digest);
        if proves_itself && is_thread(tx, thread)? { put_row(tx, PUT_CHECKPOINT_STATE, &row) } else { Ok(()) }
    })?;
    salvage.rows("checkpoints", &mut |mut row| {
        let [Owned::Text(thread), _, item, Owned::Blob(digest), ..] = row.as_slice() else { return Ok(()) };
        let state = [thread.as_str().into(), Value::Blob(digest)];
        if query_one(tx, IS_CHECKPOINT_STATE, &state, |_| Ok(()))?.is_none() {
            return Ok(());
        }
        let is_lost = match item {
            Owned::Int(item) => !is_item(tx, ItemKey(*item))?,
            _ => false,
        };
        if let Some(item) = row.get_mut(2).filter(|_| is_lost) {
            *item = Owned::Null;
        }
        put_row(tx, PUT_CHECKPOINT, &row)
    })?;
    tx.execute(DROP_UNUSED_STATES, &[])?;
    put_documents(tx, salvage)?;
    salvage.rows("jobs", &mut |row| put_in_workspace(tx, PUT_JOB, &row))?;
    put_tools(tx, salvage)?;
    put_runs(tx, salvage)?;
    put_steering(tx, salvage)?;
    // What was taken stays on record. Rules are not taken over: the page that says that they were changed or forgotten may be lost, and
    // by others nothing may be taken.
    salvage.rows("retention_receipts", &mut |row| put_row(tx, PUT_SALVAGED_RECEIPT, &row))
}

/// Keeps messages and requests, unless they could be acted on twice: the page that says what became of one may be lost, and an
/// older one be found. A message whose prompt is in the thread was taken; an answer that nobody has used may have been used.
fn put_steering(tx: &mut dyn Tx, salvage: &Salvage) -> Result<()> {
    salvage.rows("messages", &mut |row| {
        let [Owned::Blob(id), Owned::Text(thread), _, _, Owned::Text(state), ..] = row.as_slice() else {
            return Ok(());
        };
        let name = MessageId::from_slice(id).map(|id| inbox::source_of(&id));
        let is_prompt = query_one(tx, IS_PROMPT, &[name.as_deref().into()], |_| Ok(()))?.is_some();
        let could_be_taken_twice = is_prompt && state == MessageState::Queued.as_str();
        if could_be_taken_twice || !is_thread(tx, thread)? { Ok(()) } else { put_row(tx, PUT_SALVAGED_MESSAGE, &row) }
    })?;
    salvage.rows("requests", &mut |row| {
        let is_answered = matches!(row.get(25), Some(Owned::Text(state)) if state == RequestState::Answered.as_str());
        let could_be_used_twice = is_answered && !matches!(row.get(32), Some(Owned::Blob(_)));
        if could_be_used_twice { Ok(()) } else { put_in_workspace(tx, PUT_SALVAGED_REQUEST, &row) }
    })
}

/// Keeps the tools of a thread when none of them is lost: some of a list are another list.
fn put_tools(tx: &mut dyn Tx, salvage: &Salvage) -> Result<()> {
    let mut tools: BTreeMap<String, BTreeMap<i64, Vec<Owned>>> = BTreeMap::new();
    salvage.rows("tools", &mut |row| {
        if let [Owned::Text(thread), Owned::Int(position), ..] = row.as_slice() {
            tools.entry(thread.clone()).or_default().insert(*position, row);
        }
        Ok(())
    })?;
    for (thread, tools) in tools {
        let is_whole = tools.keys().zip(0..).all(|(position, expected)| *position == expected);
        if is_whole && is_thread(tx, &thread)? {
            tools.values().try_for_each(|row| put_row(tx, PUT_TOOL, row))?;
        }
    }
    Ok(())
}

/// Keeps runs, and what belongs to those that are here. A part whose branch is lost is on none.
fn put_runs(tx: &mut dyn Tx, salvage: &Salvage) -> Result<()> {
    salvage.rows("runs", &mut |row| put_in_workspace(tx, PUT_RUN, &row))?;
    // Branches first, which leaves are on.
    for are_on_branches in [false, true] {
        salvage.rows("run_parts", &mut |mut row| {
            let is_on_branch = matches!(row.get(4), Some(Owned::Text(_)));
            let has_run = is_there(tx, IS_RUN, row.get(1))?;
            if is_on_branch != are_on_branches || !has_run {
                return Ok(());
            }
            without_lost(tx, row.get_mut(4))?;
            put_row(tx, PUT_PART, &row)
        })?;
    }
    salvage.rows("run_candidates", &mut |mut row| {
        if !is_there(tx, IS_RUN, row.get(1))? || !is_there(tx, IS_PART, row.get(2))? {
            return Ok(());
        }
        without_lost(tx, row.get_mut(3))?;
        put_row(tx, PUT_CANDIDATE, &row)
    })
}

/// Keeps documents, each version that proves itself, the newest of them as the current one; and roadmaps with their links. A
/// roadmap whose text is no tree is kept as it is: it says so itself.
fn put_documents(tx: &mut dyn Tx, salvage: &Salvage) -> Result<()> {
    salvage.rows("document_versions", &mut |mut row| {
        let [Owned::Text(thread), .., digest, Owned::Int(size), Owned::Int(encoding), data] = row.as_slice() else {
            return Ok(());
        };
        let proves_itself = match (digest, data) {
            (Owned::Null, Owned::Null) => true,
            (Owned::Blob(digest), Owned::Blob(data)) => {
                let whole = content::decode_blob(*encoding, usize::try_from(*size).unwrap_or(0), data);
                whole.is_ok_and(|bytes| Hash::of(&bytes).0.as_slice() == digest)
            }
            _ => false,
        };
        if !proves_itself || !is_thread(tx, thread)? {
            return Ok(());
        }
        // Which one is the newest is seen when all are there.
        if let Some(is_current) = row.get_mut(4) {
            *is_current = Owned::Int(0);
        }
        put_row(tx, PUT_DOCUMENT, &row)
    })?;
    tx.execute(NEWEST_DOCUMENTS, &[])?;
    salvage.rows("roadmaps", &mut |row| {
        let Some(workspace @ Owned::Blob(_)) = row.first() else { return Ok(()) };
        let has_workspace = query_one(tx, IS_WORKSPACE, &[workspace.value()], |_| Ok(()))?.is_some();
        if has_workspace { put_row(tx, PUT_ROADMAP, &row) } else { Ok(()) }
    })?;
    salvage.rows("roadmap_links", &mut |row| match row.first() {
        Some(Owned::Text(thread)) if is_thread(tx, thread)? => put_row(tx, PUT_ROADMAP_LINK, &row),
        _ => Ok(()),
    })
}

fn is_there(tx: &mut dyn Tx, statement: Statement, id: Option<&Owned>) -> Result<bool> {
    match id {
        Some(id @ Owned::Text(_)) => Ok(query_one(tx, statement, &[id.value()], |_| Ok(()))?.is_some()),
        _ => Ok(false),
    }
}

/// Takes a link to a part away that is lost.
fn without_lost(tx: &mut dyn Tx, part: Option<&mut Owned>) -> Result<()> {
    if let Some(part @ Owned::Text(_)) = part
        && !is_there(tx, IS_PART, Some(part))?
    {
        *part = Owned::Null;
    }
    Ok(())
}

/// Puts a row whose second and third column are its workspace and its thread, if those are here.
fn put_in_workspace(tx: &mut dyn Tx, statement: Statement, row: &[Owned]) -> Result<()> {
    let Some(workspace @ Owned::Blob(_)) = row.get(1) else { return Ok(()) };
    let has_thread = match row.get(2) {
        Some(Owned::Text(thread)) => is_thread(tx, thread)?,
        _ => true,
    };
    let has_workspace = query_one(tx, IS_WORKSPACE, &[workspace.value()], |_| Ok(()))?.is_some();
    if has_thread && has_workspace { put_row(tx, statement, row) } else { Ok(()) }
}

/// Puts a row, unless there is one of its key or it can't be true.
fn put_row(tx: &mut dyn Tx, statement: Statement, row: &[Owned]) -> Result<()> {
    let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
    match tx.execute(statement, &values) {
        Err(Error::AlreadyExists { .. } | Error::Conflict { .. }) => Ok(()),
        done => done.map(drop),
    }
}

fn is_thread(tx: &mut dyn Tx, thread: &str) -> Result<bool> {
    Ok(query_one(tx, IS_WHOLE_THREAD, &[thread.into()], |_| Ok(()))?.is_some())
}

/// Keeps what is known of an imported file when it is whole; a file that is left out is read anew by the next import. Says which
/// those are.
fn put_files(tx: &mut dyn Tx, salvage: &Salvage) -> Result<Vec<String>> {
    let mut segments: BTreeMap<i64, Vec<Vec<Owned>>> = BTreeMap::new();
    salvage.rows("segments", &mut |row| {
        if let Some(Owned::Int(source)) = row.first() {
            segments.entry(*source).or_default().push(row);
        }
        Ok(())
    })?;
    let (mut dropped, mut seen) = (Vec::new(), BTreeSet::new());
    salvage.rows("sources", &mut |row| {
        let (Some(Owned::Int(key)), Some(Owned::Text(path)), Some(Owned::Int(consumed))) =
            (row.first(), row.get(2), row.get(6))
        else {
            return Ok(());
        };
        if !seen.insert(*key) {
            return Ok(());
        }
        let mut own = segments.remove(key).unwrap_or_default();
        own.sort_by_key(|row| number(row, 1));
        own.dedup_by_key(|row| number(row, 1));
        let thread_is_here = match row.get(3) {
            Some(Owned::Text(thread)) => query_one(tx, IS_THREAD, &[thread.as_str().into()], |_| Ok(()))?.is_some(),
            _ => true,
        };
        let is_whole = thread_is_here && has_no_gap(&own, *consumed, row.get(3)) && items_are_here(tx, &own)?;
        if !is_whole {
            dropped.push(path.clone());
            return Ok(());
        }
        let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
        if tx.execute(PUT_SOURCE, &values)? == 0 {
            return Ok(());
        }
        for segment in &own {
            let values: Vec<Value<'_>> = segment.iter().map(Owned::value).collect();
            tx.execute(PUT_SEGMENT, &values)?;
        }
        Ok(())
    })?;
    Ok(dropped)
}

fn number(row: &[Owned], at: usize) -> i64 {
    if let Some(Owned::Int(number)) = row.get(at) { *number } else { 0 }
}

/// Between two segments stands nothing, or one line feed; those of a purged thread are gone on purpose.
fn has_no_gap(segments: &[Vec<Owned>], consumed: i64, thread: Option<&Owned>) -> bool {
    if segments.is_empty() {
        return consumed == 0 || !matches!(thread, Some(Owned::Text(_)));
    }
    let mut end = 0;
    for segment in segments {
        let (position, length) = (number(segment, 1), number(segment, 2));
        if position != end && position != end + 1 {
            return false;
        }
        end = position.saturating_add(length);
    }
    (consumed - end).abs() <= 1
}

fn items_are_here(tx: &mut dyn Tx, segments: &[Vec<Owned>]) -> Result<bool> {
    for segment in segments {
        if let Some(Owned::Int(item)) = segment.get(3)
            && !is_item(tx, ItemKey(*item))?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How far a branch went, by anything that says so.
#[derive(Debug, Clone)]
struct Expected {
    thread: ThreadId,
    base: Option<u32>,
    tip: u32,
}

/// Every branch of which anything is known, and how far it is known to have gone.
fn expected_ends(salvage: &Salvage, rollouts: &HashMap<ThreadId, Rollout>) -> Result<BTreeMap<BranchId, Expected>> {
    let mut expected: BTreeMap<BranchId, Expected> = BTreeMap::new();
    let mut numbers: BTreeMap<i64, BranchId> = BTreeMap::new();
    let mut note = |branch: BranchId, thread: &ThreadId, base: Option<u32>, tip: u32| {
        let known = expected.entry(branch).or_insert_with(|| Expected { thread: thread.clone(), base, tip });
        known.tip = known.tip.max(tip);
        known.base = known.base.or(base);
    };
    salvage.rows("branches", &mut |row| {
        if let [Owned::Int(number), Owned::Text(thread), Owned::Blob(id), _, Owned::Int(base), Owned::Int(tip), ..] =
            row.as_slice()
            && let (Ok(thread), Some(branch)) = (ThreadId::new(thread), ItemId::from_slice(id))
            && let (Ok(base), Ok(tip)) = (u32::try_from(*base), u32::try_from(*tip))
        {
            numbers.entry(*number).or_insert(branch);
            note(branch, &thread, Some(base), tip);
        }
        Ok(())
    })?;
    let named = |number: i64, numbers: &BTreeMap<i64, BranchId>| numbers.get(&number).copied();
    salvage.rows("threads", &mut |row| {
        // The head is the end of its branch, unless it was moved back.
        if let (Some(Owned::Text(thread)), Some(Owned::Int(head))) = (row.first(), row.get(9))
            && let (Ok(thread), Some(branch)) = (ThreadId::new(thread), named(ItemKey(*head).branch(), &numbers))
        {
            note(branch, &thread, None, ItemKey(*head).depth());
        }
        Ok(())
    })?;
    salvage.rows("seal_heads", &mut |row| {
        if let [_, Owned::Text(thread), Owned::Blob(id), Owned::Int(depth), ..] = row.as_slice()
            && let (Ok(thread), Some(branch), Ok(depth)) =
                (ThreadId::new(thread), ItemId::from_slice(id), u32::try_from(*depth))
        {
            note(branch, &thread, None, depth);
        }
        Ok(())
    })?;
    for (thread, rollout) in rollouts {
        for tip in &rollout.metadata.branches {
            note(tip.id, thread, rollout.snapshot.branch(tip.id).map(|branch| branch.base), tip.tip);
        }
    }
    Ok(expected)
}

fn lost_items(
    admission: &Admission<'_>,
    expected: &BTreeMap<BranchId, Expected>,
) -> Result<BTreeMap<ThreadId, Vec<LostItems>>> {
    let mut lost: BTreeMap<ThreadId, Vec<LostItems>> = BTreeMap::new();
    for (branch, expected) in expected {
        let (mut from, mut thread) = (expected.base.unwrap_or(0), expected.thread.clone());
        if let Some(number) = admission.branch_here(*branch)? {
            let mut tx = SqliteTx { connection: admission.connection };
            from = extent(&mut tx, number)?.map_or(from, |(_, tip)| tip + 1);
            thread = owner(admission.connection, number)?.unwrap_or(thread);
        }
        if from <= expected.tip {
            lost.entry(thread).or_default().push(LostItems { branch: *branch, from, to: expected.tip });
        }
    }
    Ok(lost)
}

fn owner(connection: &Connection, number: i64) -> Result<Option<ThreadId>> {
    let mut tx = SqliteTx { connection };
    let found = query_one(&mut tx, BRANCH_OWNER, &[number.into()], |row| Ok(ThreadId::new(row.text(0)?).ok()))?;
    Ok(found.flatten())
}
