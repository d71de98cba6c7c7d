//! Goals: what a thread is to reach, what that may cost, and what it has cost so far.
//!
//! A thread has one goal at most. What it asks for (its objective and its budgets) is a revision; a change of that ends the
//! revision, which stays in the history with what it had cost, and begins the next one. Usage is added by one statement, which
//! also ends the activity of a goal whose budget is used up.

use std::ops::ControlFlow;

use serde::Serialize;
use uuid::Uuid;

use crate::changes::{self, Area, Note, Verb};
use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{GoalId, ThreadId};
use crate::item::{Hash, check_tag, check_text, open_words};
use crate::thread::{Change, MAX_TEXT_BYTES, Page};
use crate::threads::{self, Hold};
use crate::time::Timestamp;

/// A goal that met the same gap so often in a row makes no progress.
pub const MAX_REPEATED_GAPS: u64 = 3;
const MAX_PAGE: usize = 1_000;
const GAP_DOMAIN: &str = "threadkeep.gap.v1";

/// The columns of a goal as [`read`] takes them.
macro_rules! goal_columns {
    () => {
        "ordinal, id, objective, status, pause_reason, token_budget, seconds_budget, tokens_used, seconds_used, continuations, gap,
         gap_repeats, gap_pass, created_at, updated_at, ended_at, tick"
    };
}

statements! {
    CURRENT = concat!("SELECT ", goal_columns!(), " FROM goals WHERE thread = ?1 AND ended_at IS NULL");
    REVISION = "SELECT ordinal FROM goals WHERE thread = ?1 AND id = ?2";
    LAST_ORDINAL = "SELECT coalesce(max(ordinal), 0) FROM goals WHERE thread = ?1";
    HISTORY_DOWN = concat!("SELECT ", goal_columns!(), " FROM goals WHERE thread = ?1 AND ordinal < ?2 ORDER BY ordinal DESC LIMIT ?3");
    INSERT = "INSERT INTO goals (thread, ordinal, id, objective, status, pause_reason, token_budget, seconds_budget, tokens_used,
        seconds_used, continuations, gap, gap_repeats, gap_pass, created_at, updated_at, ended_at, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
    UPDATE = "UPDATE goals SET status = ?3, pause_reason = ?4, gap = ?5, gap_repeats = ?6, gap_pass = ?7,
        updated_at = CASE WHEN updated_at < ?8 THEN ?8 ELSE updated_at END, tick = ?9 WHERE thread = ?1 AND ordinal = ?2";
    END = "UPDATE goals SET ended_at = ?2, updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, tick = ?3
        WHERE thread = ?1 AND ended_at IS NULL";
    // The sums and the end of the activity in one statement; a sum stays at the greatest number.
    ACCRUE = concat!("UPDATE goals SET
          tokens_used = CASE WHEN tokens_used > 9223372036854775807 - ?2 THEN 9223372036854775807 ELSE tokens_used + ?2 END,
          seconds_used = CASE WHEN seconds_used > 9223372036854775807 - ?3 THEN 9223372036854775807 ELSE seconds_used + ?3 END,
          continuations = CASE WHEN continuations > 9223372036854775807 - ?4 THEN 9223372036854775807 ELSE continuations + ?4 END,
          pause_reason = CASE WHEN status = 'active' AND (token_budget - ?2 <= tokens_used OR seconds_budget - ?3 <= seconds_used)
            THEN 'budget_limit' ELSE pause_reason END,
          status = CASE WHEN status = 'active' AND (token_budget - ?2 <= tokens_used OR seconds_budget - ?3 <= seconds_used)
            THEN 'budget_limited' ELSE status END,
          updated_at = CASE WHEN updated_at < ?5 THEN ?5 ELSE updated_at END, tick = ?6
        WHERE thread = ?1 AND ended_at IS NULL RETURNING ", goal_columns!());
    NOTE_USAGE = "INSERT INTO goal_usage (thread, id, goal, tokens, seconds, continuations, accrued_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (thread, id) DO NOTHING";
}

open_words! {
    /// Whether a goal is pursued.
    GoalStatus {
        /// It is pursued.
        Active = "active",
        /// It waits until somebody goes on.
        Paused = "paused",
        /// It can't go on until something else happens.
        Blocked = "blocked",
        /// The provider grants no more usage for now.
        UsageLimited = "usage_limited",
        /// Its own budget is used up.
        BudgetLimited = "budget_limited",
        /// It is reached.
        Complete = "complete",
    }
}

open_words! {
    /// Why a goal is not pursued.
    PauseReason {
        /// A person wants it so.
        User = "user",
        /// It waits before it tries again.
        Backoff = "backoff",
        /// It met the same gap again and again.
        NoProgress = "no_progress",
        /// The provider grants no more usage for now.
        UsageLimit = "usage_limit",
        /// Its own budget is used up.
        BudgetLimit = "budget_limit",
    }
}

/// A goal's revision as it is to be acted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Goal {
    /// The thread that is to reach it.
    pub thread: ThreadId,
    /// The id of the revision.
    pub id: GoalId,
    /// The number of the revision in the thread, from 1.
    pub ordinal: u64,
    /// What is to be reached.
    pub objective: String,
    /// What to do about it. A stored word that is not known reads as [`GoalStatus::Paused`], and so does an active goal that met
    /// the same gap [`MAX_REPEATED_GAPS`] times.
    pub status: GoalStatus,
    /// The word that is stored, which is left alone by whatever does not set it.
    pub stored_status: GoalStatus,
    /// Why it is not pursued, where that is known.
    pub pause_reason: Option<PauseReason>,
    /// Tokens that it may cost.
    pub token_budget: Option<u64>,
    /// Seconds that it may take.
    pub seconds_budget: Option<u64>,
    /// Tokens that it has cost; stays at `i64::MAX` when it would be more.
    pub tokens_used: u64,
    /// Seconds that it has taken; stays at `i64::MAX` when it would be more.
    pub seconds_used: u64,
    /// How often the agent went on by itself.
    pub continuations: u64,
    /// What stands between the thread and the goal, when that was met at the last look.
    pub stall: Option<Stall>,
    /// When the revision was begun.
    pub created_at: Timestamp,
    /// When it was last changed; never falls.
    pub updated_at: Timestamp,
    /// When another revision took its place, or the goal was removed; `None` for the thread's goal.
    pub ended_at: Option<Timestamp>,
    /// The tick of its last change: greater than that of any earlier change of the thread.
    pub tick: i64,
}

/// A gap that an agent met, and how often in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// Tells this gap from others; see [`gap_fingerprint`].
    pub fingerprint: Hash,
    /// How often it was met in a row: 1 to [`MAX_REPEATED_GAPS`].
    pub repeats: u64,
    /// The pass at which it was met last; at most the number of continuations, and no pass was missed.
    pub pass: u64,
}

impl Stall {
    /// Refuses a window that no run of passes can lead to.
    fn check(&self, continuations: u64) -> Result<()> {
        let wrong = |reason| Err(Error::invalid("stall", reason));
        match self {
            Self { repeats: 0, .. } => wrong("a gap that was met was met at least once"),
            Self { repeats, .. } if *repeats > MAX_REPEATED_GAPS => wrong("a gap counts at most 3 times"),
            Self { pass, .. } if *pass > continuations => wrong("there were not so many continuations"),
            Self { repeats, pass, .. } if *repeats > pass.saturating_add(1) => wrong("there were not so many passes"),
            Self { .. } => Ok(()),
        }
    }
}

/// A goal to be set. Everything but the objective has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewGoal {
    /// The id of the revision, to make a retry safe; minted when `None`.
    pub id: Option<GoalId>,
    /// What is to be reached.
    pub objective: String,
    /// [`GoalStatus::Active`] when `None`.
    pub status: Option<GoalStatus>,
    /// Why it is not pursued.
    pub pause_reason: Option<PauseReason>,
    /// Tokens that it may cost.
    pub token_budget: Option<u64>,
    /// Seconds that it may take.
    pub seconds_budget: Option<u64>,
    /// Tokens that it has cost already.
    pub tokens_used: u64,
    /// Seconds that it has taken already.
    pub seconds_used: u64,
    /// How often the agent has gone on by itself already.
    pub continuations: u64,
    /// What was met at the last look.
    pub stall: Option<Stall>,
    /// When it was begun; now when `None`.
    pub created_at: Option<Timestamp>,
}

impl NewGoal {
    /// An active goal without a budget.
    pub fn new(objective: impl Into<String>) -> Self {
        Self { objective: objective.into(), ..Self::default() }
    }
}

/// A partial change of a goal: what is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoalPatch {
    /// The revision that must be the goal.
    pub expect: Option<GoalId>,
    /// What is to be reached; another one begins a revision that keeps what the goal has cost.
    pub objective: Option<String>,
    /// Activating a goal forgets the gap that it met, and is refused while a budget is used up.
    pub status: Option<GoalStatus>,
    /// Why it is not pursued; goes with the status, and follows from it where only one reason fits.
    pub pause_reason: Option<PauseReason>,
    /// Tokens that it may cost; another budget begins a revision, as another objective does.
    pub token_budget: Change<u64>,
    /// Seconds that it may take.
    pub seconds_budget: Change<u64>,
}

/// Usage to be added to a goal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GoalUsage {
    /// Chosen by the caller to make a retry safe: a repeated call with the same id in the same thread adds nothing.
    pub id: Option<Uuid>,
    /// The revision that must be the goal.
    pub goal: Option<GoalId>,
    /// Tokens.
    pub tokens: u64,
    /// Seconds.
    pub seconds: u64,
    /// Continuations.
    pub continuations: u64,
}

/// What an agent found when it looked how far its goal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoalCheck {
    /// What is missing ([`gap_fingerprint`]); `None` when nothing is.
    pub gap: Option<Hash>,
    /// Which continuation it was found at.
    pub pass: u64,
}

/// The fingerprint of what stands between a thread and its goal; `None` when nothing does.
///
/// It does not depend on case, white space, order or repetition of the descriptions, which can't be had back from it.
pub fn gap_fingerprint(gaps: &[&str]) -> Option<Hash> {
    let in_one_line = |gap: &str| gap.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let mut gaps: Vec<String> = gaps.iter().map(|gap| in_one_line(gap)).filter(|gap| !gap.is_empty()).collect();
    gaps.sort_unstable();
    gaps.dedup();
    let mut preimage = Vec::new();
    for part in std::iter::once(GAP_DOMAIN).chain(gaps.iter().map(String::as_str)) {
        preimage.extend_from_slice(&(part.len() as u64).to_le_bytes());
        preimage.extend_from_slice(part.as_bytes());
    }
    (!gaps.is_empty()).then(|| Hash::of(&preimage))
}

/// A question for a page of the revisions of a thread's goal, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalQuery {
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for GoalQuery {
    fn default() -> Self {
        Self { limit: 100, cursor: None }
    }
}

/// Reads the goal of a thread.
pub(crate) fn get(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Goal>> {
    Ok(stored(tx, thread)?.map(restored))
}

/// Sets the goal of a thread, in the place of the one that it has. A repeated call finds its revision.
pub(crate) fn set(tx: &mut dyn Tx, hold: &Hold, new: &NewGoal, id: GoalId) -> Result<Goal> {
    let tick = threads::hold(tx, hold)?;
    if let Some(current) = stored(tx, &hold.thread)?.filter(|current| current.id == id) {
        return Ok(restored(current));
    }
    let thread = [hold.thread.as_str().into(), Value::Blob(id.as_bytes())];
    if query_one(tx, REVISION, &thread, |_| Ok(()))?.is_some() {
        return Err(Error::AlreadyExists { what: "goal", id: id.to_string() });
    }
    let goal = begun(hold, new, id, tick)?;
    let replaced = end(tx, hold, tick)?;
    note(tx, hold, tick, if replaced { Verb::Changed } else { Verb::Created })?;
    insert(tx, goal).map(restored)
}

/// Changes what the patch names.
pub(crate) fn update(tx: &mut dyn Tx, hold: &Hold, patch: &GoalPatch, id: GoalId) -> Result<Goal> {
    let tick = threads::hold(tx, hold)?;
    let missing = || Error::not_found("goal of thread", &hold.thread);
    let before = stored(tx, &hold.thread)?.ok_or_else(missing)?;
    expect(&before, patch.expect)?;
    let mut after = patched(before.clone(), patch)?;
    (after.updated_at, after.tick) = (before.updated_at.max(hold.now), tick);
    note(tx, hold, tick, Verb::Changed)?;
    if asks_for(&before) != asks_for(&after) {
        end(tx, hold, tick)?;
        (after.id, after.created_at) = (id, hold.now);
        return insert(tx, after).map(restored);
    }
    put(tx, hold, &after)?;
    Ok(restored(after))
}

/// Adds usage to the goal of a thread, if it has one.
pub(crate) fn accrue(tx: &mut dyn Tx, hold: &Hold, usage: &GoalUsage) -> Result<Option<Goal>> {
    let tick = threads::hold(tx, hold)?;
    let Some(before) = stored(tx, &hold.thread)? else { return Ok(None) };
    let thread: Value<'_> = hold.thread.as_str().into();
    let sums = [usage.tokens, usage.seconds, usage.continuations].map(|sum| Value::Int(stored_number(sum)));
    if let Some(id) = usage.id {
        let [tokens, seconds, continuations] = sums;
        let goal = Value::Blob(before.id.as_bytes());
        let args = [thread, Value::Blob(id.as_bytes()), goal, tokens, seconds, continuations, hold.now.0.into()];
        if tx.execute(NOTE_USAGE, &args)? == 0 {
            return Ok(Some(restored(before)));
        }
    }
    // After the repetition: what was counted once was for the right goal then.
    expect(&before, usage.goal)?;
    note(tx, hold, tick, Verb::Changed)?;
    let [tokens, seconds, continuations] = sums;
    let args = [thread, tokens, seconds, continuations, hold.now.0.into(), tick.into()];
    Ok(query_one(tx, ACCRUE, &args, |row| read(row, &hold.thread))?.map(restored))
}

/// Notes what an agent found when it looked how far the goal is; pauses one that makes no progress.
pub(crate) fn check(tx: &mut dyn Tx, hold: &Hold, found: &GoalCheck) -> Result<Option<Goal>> {
    let tick = threads::hold(tx, hold)?;
    let Some(before) = stored(tx, &hold.thread)? else { return Ok(None) };
    let mut after = checked(before.clone(), found)?;
    if after != before {
        (after.updated_at, after.tick) = (before.updated_at.max(hold.now), tick);
        note(tx, hold, tick, Verb::Changed)?;
        put(tx, hold, &after)?;
    }
    Ok(Some(restored(after)))
}

/// Takes the goal of a thread away; says whether there was one. Its revisions stay in the history.
pub(crate) fn clear(tx: &mut dyn Tx, hold: &Hold) -> Result<bool> {
    let tick = threads::hold(tx, hold)?;
    let ended = end(tx, hold, tick)?;
    if ended {
        note(tx, hold, tick, Verb::Deleted)?;
    }
    Ok(ended)
}

/// Reads a page of the revisions of a thread's goal.
pub(crate) fn history(tx: &mut dyn Tx, thread: &ThreadId, query: &GoalQuery) -> Result<Page<Goal>> {
    let tag = format!("goals {thread}");
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?.value,
        None => i64::MAX,
    };
    let limit = query.limit.min(MAX_PAGE);
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let (mut entries, mut more): (Vec<Goal>, bool) = (Vec::new(), false);
    tx.query(HISTORY_DOWN, &[thread.as_str().into(), start.into(), one_more.into()], &mut |row| {
        more = entries.len() == limit;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        entries.push(restored(read(row, thread)?));
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: stored_number(last.ordinal), id: String::new() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// What a revision asks for; another goal is another revision.
fn asks_for(goal: &Goal) -> (&str, Option<u64>, Option<u64>) {
    (&goal.objective, goal.token_budget, goal.seconds_budget)
}

fn expect(goal: &Goal, expected: Option<GoalId>) -> Result<()> {
    match expected {
        Some(expected) if expected != goal.id => {
            Err(Error::Conflict { what: "goal", expected: expected.to_string(), found: goal.id.to_string() })
        }
        _ => Ok(()),
    }
}

/// A goal that begins.
fn begun(hold: &Hold, new: &NewGoal, id: GoalId, tick: i64) -> Result<Goal> {
    let status = new.status.clone().unwrap_or(GoalStatus::Active);
    let goal = Goal {
        thread: hold.thread.clone(),
        id,
        ordinal: 0,
        objective: new.objective.clone(),
        pause_reason: reason_for(&status, new.pause_reason.clone()),
        stored_status: status.clone(),
        status,
        token_budget: new.token_budget,
        seconds_budget: new.seconds_budget,
        tokens_used: new.tokens_used,
        seconds_used: new.seconds_used,
        continuations: new.continuations,
        stall: new.stall.clone(),
        created_at: new.created_at.unwrap_or(hold.now),
        updated_at: hold.now,
        ended_at: None,
        tick,
    };
    admissible(goal)
}

/// The goal with what the patch names.
fn patched(mut goal: Goal, patch: &GoalPatch) -> Result<Goal> {
    if let Some(objective) = &patch.objective {
        goal.objective.clone_from(objective);
    }
    for (budget, change) in
        [(&mut goal.token_budget, &patch.token_budget), (&mut goal.seconds_budget, &patch.seconds_budget)]
    {
        match change {
            Change::Keep => {}
            Change::Clear => *budget = None,
            Change::Set(value) => *budget = Some(*value),
        }
    }
    if let Some(status) = &patch.status {
        if *status == GoalStatus::Active {
            if is_used_up(&goal) {
                return Err(Error::invalid(
                    "status",
                    "a budget of the goal is used up: raise it, or take it away, first",
                ));
            }
            goal.stall = None;
        }
        (goal.status, goal.stored_status) = (status.clone(), status.clone());
        goal.pause_reason = reason_for(status, patch.pause_reason.clone());
    } else if patch.pause_reason.is_some() {
        goal.pause_reason = reason_for(&goal.stored_status, patch.pause_reason.clone());
    }
    admissible(goal)
}

/// The goal after a look at how far it is.
fn checked(mut goal: Goal, found: &GoalCheck) -> Result<Goal> {
    let Some(fingerprint) = found.gap else {
        goal.stall = None;
        return Ok(goal);
    };
    if found.pass > goal.continuations {
        return Err(Error::invalid("pass", format!("the goal went on {} times so far", goal.continuations)));
    }
    let repeats = match &goal.stall {
        Some(last) if last.pass > found.pass => {
            return Err(Error::invalid("pass", format!("pass {} was looked at already", last.pass)));
        }
        // The same look, told again.
        Some(last) if last.pass == found.pass && last.fingerprint == fingerprint => last.repeats,
        Some(last) if last.fingerprint == fingerprint => (last.repeats + 1).min(MAX_REPEATED_GAPS),
        _ => 1,
    };
    goal.stall = Some(Stall { fingerprint, repeats, pass: found.pass });
    if repeats == MAX_REPEATED_GAPS && goal.stored_status == GoalStatus::Active {
        (goal.status, goal.stored_status) = (GoalStatus::Paused, GoalStatus::Paused);
        goal.pause_reason = Some(PauseReason::NoProgress);
    }
    Ok(goal)
}

/// Whether the goal has cost what it may.
fn is_used_up(goal: &Goal) -> bool {
    goal.token_budget.is_some_and(|budget| budget <= goal.tokens_used)
        || goal.seconds_budget.is_some_and(|budget| budget <= goal.seconds_used)
}

/// Why a goal of this status is not pursued: an active or a complete one has no reason, and some statuses have but one.
fn reason_for(status: &GoalStatus, given: Option<PauseReason>) -> Option<PauseReason> {
    match status {
        GoalStatus::Active | GoalStatus::Complete => None,
        GoalStatus::Paused => given.or(Some(PauseReason::User)),
        GoalStatus::UsageLimited => given.or(Some(PauseReason::UsageLimit)),
        GoalStatus::BudgetLimited => given.or(Some(PauseReason::BudgetLimit)),
        GoalStatus::Blocked | GoalStatus::Unknown(_) => given,
    }
}

/// Refuses what can't be kept; an active goal whose budget is used up is no longer active.
fn admissible(mut goal: Goal) -> Result<Goal> {
    if goal.objective.trim().is_empty() {
        return Err(Error::invalid("objective", "it is empty"));
    }
    check_text("objective", &goal.objective, MAX_TEXT_BYTES)?;
    check_tag("status", goal.stored_status.as_str())?;
    if let Some(reason) = &goal.pause_reason {
        check_tag("pause_reason", reason.as_str())?;
    }
    let numbers = [
        ("token_budget", goal.token_budget),
        ("seconds_budget", goal.seconds_budget),
        ("tokens_used", Some(goal.tokens_used)),
        ("seconds_used", Some(goal.seconds_used)),
        ("continuations", Some(goal.continuations)),
    ];
    for (field, number) in numbers {
        if number.is_some_and(|number| i64::try_from(number).is_err()) {
            return Err(Error::invalid(field, format!("at most {} can be kept", i64::MAX)));
        }
    }
    if let Some(stall) = &goal.stall {
        stall.check(goal.continuations)?;
    }
    if goal.stored_status == GoalStatus::Active && is_used_up(&goal) {
        (goal.status, goal.stored_status) = (GoalStatus::BudgetLimited, GoalStatus::BudgetLimited);
        goal.pause_reason = Some(PauseReason::BudgetLimit);
    }
    Ok(goal)
}

/// The goal as it is to be acted on.
fn restored(mut goal: Goal) -> Goal {
    let is_stalled = goal.stall.as_ref().is_some_and(|stall| stall.repeats >= MAX_REPEATED_GAPS);
    match &goal.stored_status {
        GoalStatus::Unknown(_) => goal.status = GoalStatus::Paused,
        GoalStatus::Active if is_stalled => {
            goal.status = GoalStatus::Paused;
            goal.pause_reason = Some(PauseReason::NoProgress);
        }
        _ => {}
    }
    goal
}

fn stored(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Goal>> {
    query_one(tx, CURRENT, &[thread.as_str().into()], |row| read(row, thread))
}

fn insert(tx: &mut dyn Tx, goal: Goal) -> Result<Goal> {
    let thread = goal.thread.as_str().into();
    let ordinal = query_one(tx, LAST_ORDINAL, &[thread], |row| row.int(0))?.unwrap_or(0) + 1;
    let stall = goal.stall.as_ref();
    let args = [
        thread,
        ordinal.into(),
        Value::Blob(goal.id.as_bytes()),
        goal.objective.as_str().into(),
        goal.stored_status.as_str().into(),
        goal.pause_reason.as_ref().map(PauseReason::as_str).into(),
        goal.token_budget.map(stored_number).into(),
        goal.seconds_budget.map(stored_number).into(),
        stored_number(goal.tokens_used).into(),
        stored_number(goal.seconds_used).into(),
        stored_number(goal.continuations).into(),
        stall.map(|stall| stall.fingerprint.0.as_slice()).into(),
        stall.map(|stall| stored_number(stall.repeats)).into(),
        stall.map(|stall| stored_number(stall.pass)).into(),
        goal.created_at.0.into(),
        goal.updated_at.0.into(),
        goal.ended_at.map(|at| at.0).into(),
        goal.tick.into(),
    ];
    tx.execute(INSERT, &args)?;
    Ok(Goal { ordinal: ordinal.unsigned_abs(), ..goal })
}

fn put(tx: &mut dyn Tx, hold: &Hold, goal: &Goal) -> Result<()> {
    let stall = goal.stall.as_ref();
    let args = [
        hold.thread.as_str().into(),
        stored_number(goal.ordinal).into(),
        goal.stored_status.as_str().into(),
        goal.pause_reason.as_ref().map(PauseReason::as_str).into(),
        stall.map(|stall| stall.fingerprint.0.as_slice()).into(),
        stall.map(|stall| stored_number(stall.repeats)).into(),
        stall.map(|stall| stored_number(stall.pass)).into(),
        hold.now.0.into(),
        goal.tick.into(),
    ];
    tx.execute(UPDATE, &args).map(drop)
}

/// Ends the present revision; says whether there was one.
/// Notes for those who follow that the goal of the thread is another.
fn note(tx: &mut dyn Tx, hold: &Hold, tick: i64, verb: Verb) -> Result<()> {
    let note = Note { area: Area::Goal, verb, subject: None, now: hold.now };
    changes::note(tx, &hold.thread, Some(tick), note)
}

fn end(tx: &mut dyn Tx, hold: &Hold, tick: i64) -> Result<bool> {
    Ok(tx.execute(END, &[hold.thread.as_str().into(), hold.now.0.into(), tick.into()])? > 0)
}

fn stored_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads the columns of `goal_columns!`; the status is the stored one. Damage names the thread.
fn read(row: &Row<'_>, thread: &ThreadId) -> Result<Goal> {
    read_columns(row, thread).map_err(|error| match error {
        Error::Corrupt { place, detail } => {
            Error::corrupt(format!("goal of thread {thread}"), format!("{place}: {detail}"))
        }
        Error::Invalid { field, reason } => {
            Error::corrupt(format!("goal of thread {thread}"), format!("{field}: {reason}"))
        }
        other => other,
    })
}

fn read_columns(row: &Row<'_>, thread: &ThreadId) -> Result<Goal> {
    let number =
        |column: usize| row.parse(column, u64::try_from(row.int(column)?).ok(), "a number that is not negative");
    let opt_number = |column: usize| match row.opt_int(column)? {
        None => Ok(None),
        Some(_) => number(column).map(Some),
    };
    let status = GoalStatus::from_word(row.text(3)?);
    let continuations = number(9)?;
    let stall = match (row.opt_blob(10)?, row.opt_int(11)?, row.opt_int(12)?) {
        (None, None | Some(0), None) => None,
        _ => {
            let fingerprint = row.parse(10, Hash::from_slice(row.blob(10)?), "a hash")?;
            let stall = Stall { fingerprint, repeats: number(11)?, pass: number(12)? };
            stall.check(continuations)?;
            Some(stall)
        }
    };
    Ok(Goal {
        thread: thread.clone(),
        id: row.parse(1, GoalId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        ordinal: number(0)?,
        objective: row.text(2)?.to_owned(),
        stored_status: status.clone(),
        status,
        pause_reason: row.opt_text(4)?.map(PauseReason::from_word),
        token_budget: opt_number(5)?,
        seconds_budget: opt_number(6)?,
        tokens_used: number(7)?,
        seconds_used: number(8)?,
        continuations,
        stall,
        created_at: Timestamp(row.int(13)?),
        updated_at: Timestamp(row.int(14)?),
        ended_at: row.opt_int(15)?.map(Timestamp),
        tick: row.int(16)?,
    })
}
