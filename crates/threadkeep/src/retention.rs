//! Retention: the rules that say which threads are too many, too old or too large, and the receipts of what was taken by them.
//!
//! Nothing is taken unless somebody calls [`crate::Threads::retain`], and nothing then unless there are rules. What a run takes goes into
//! the trash first; a later run purges it when it has been there for long enough.

pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod protection;
pub(crate) mod receipts;
pub(crate) mod room;
pub(crate) mod standing;
pub(crate) mod taking;

use std::time::Duration;

use serde::Serialize;

use crate::changes::{self, Area, Note, Verb};
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::item::{Hash, open_words};
use crate::threads::Scope;
use crate::time::Timestamp;

/// The place of the rules of the store itself; those of a workspace have its id.
const OF_THE_STORE: &str = "";

/// The columns of rules as [`read_rules`] takes them.
macro_rules! rules_columns {
    () => {
        "SELECT max_count, max_age, max_bytes, max_store_bytes, grace, trash_grace, archived, forked, deleted, workspace
         FROM retention_rules "
    };
}

statements! {
    RETENTION_RULES = concat!(rules_columns!(), "WHERE place = ?1");
    ALL_RETENTION_RULES = concat!(rules_columns!(), "ORDER BY place");
    PUT_RETENTION_RULES = "INSERT INTO retention_rules (place, workspace, max_count, max_age, max_bytes, max_store_bytes, grace,
        trash_grace, archived, forked, deleted, set_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
        ON CONFLICT (place) DO UPDATE SET max_count = excluded.max_count, max_age = excluded.max_age,
          max_bytes = excluded.max_bytes, max_store_bytes = excluded.max_store_bytes, grace = excluded.grace,
          trash_grace = excluded.trash_grace, archived = excluded.archived, forked = excluded.forked, deleted = excluded.deleted,
          set_at = excluded.set_at";
    DROP_RETENTION_RULES = "DELETE FROM retention_rules WHERE place = ?1";
}

/// Which threads go. Every limit is off unless it is set, and a set of rules without any takes nothing but what an earlier run put into
/// the trash.
///
/// The limits are about the threads that a run may take: pinned ones, and archived ones unless [`RetentionRules::archived`], are neither
/// counted nor measured. What is in the trash is gone for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionRules {
    /// How many threads a workspace keeps at most. The least recently active ones go.
    pub max_count: Option<u64>,
    /// How long ago a thread may have been changed last.
    pub max_age: Option<Duration>,
    /// How many bytes of items and payloads, as they are stored, the threads of a workspace keep at most. The least recently active
    /// ones go.
    pub max_bytes: Option<u64>,
    /// The same for all workspaces together that have no rules of their own.
    pub max_store_bytes: Option<u64>,
    /// A thread that was made or changed so lately is not taken, nor one that came out of the trash; an hour unless it is set.
    pub grace: Duration,
    /// How long a thread that was taken stays in the trash before it is purged; 30 days unless it is set, for ever when `None`.
    pub trash_grace: Option<Duration>,
    /// Whether archived threads are counted and taken too.
    pub archived: bool,
    /// Whether threads are taken of which others were forked that are not in the trash. What these share stays.
    pub forked: bool,
    /// Whether what somebody deleted by hand is purged too, after the same time in the trash.
    pub deleted: bool,
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self {
            max_count: None,
            max_age: None,
            max_bytes: None,
            max_store_bytes: None,
            grace: Self::GRACE,
            trash_grace: Some(Self::TRASH_GRACE),
            archived: false,
            forked: false,
            deleted: false,
        }
    }
}

impl RetentionRules {
    /// How lately a thread must have been changed not to be taken, unless that is set.
    pub const GRACE: Duration = Duration::from_secs(60 * 60);
    /// How long a thread stays in the trash, unless that is set.
    pub const TRASH_GRACE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

    /// Refuses rules that nobody can mean.
    pub(crate) fn check(&self, scope: Scope) -> Result<()> {
        let limits = [
            ("max_count", self.max_count == Some(0)),
            ("max_age", self.max_age.is_some_and(|age| age.as_millis() == 0)),
            ("max_bytes", self.max_bytes == Some(0)),
            ("max_store_bytes", self.max_store_bytes == Some(0)),
        ];
        if let Some((field, _)) = limits.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(Error::invalid(field, "0 would take every thread; leave it out to set no limit"));
        }
        if self.max_store_bytes.is_some() && scope != Scope::All {
            return Err(Error::invalid("max_store_bytes", "it is a limit of the whole store, not of a workspace"));
        }
        Ok(())
    }
}

open_words! {
    /// What a run did with a thread.
    RetentionStep {
        /// It put it into the trash.
        Trashed = "trashed",
        /// Somebody took it out again. From then on it counts as active at that moment.
        Restored = "restored",
        /// It purged it.
        Purged = "purged",
    }
}

open_words! {
    /// The rule by which a thread was taken.
    RetentionRule {
        /// It was changed too long ago.
        Age = "age",
        /// Its workspace had too many.
        Count = "count",
        /// Its workspace had too many bytes.
        Bytes = "bytes",
        /// The store had too many bytes.
        StoreBytes = "store_bytes",
        /// It was in the trash for long enough.
        TrashGrace = "trash_grace",
    }
}

open_words! {
    /// Why a thread stays that a rule would have taken.
    Protection {
        /// A living process writes it.
        Live = "live",
        /// It is pinned.
        Pinned = "pinned",
        /// It is archived.
        Archived = "archived",
        /// It was made, changed or restored too lately.
        Recent = "recent",
        /// The caller spared it.
        Spared = "spared",
        /// A thread that is not in the trash was forked from it.
        Forked = "forked",
        /// A message waits in its inbox.
        Message = "message",
        /// A request of it waits for an answer.
        Request = "request",
        /// A job of it is not at its end.
        Job = "job",
        /// It has a goal that is pursued, or will be as soon as what blocks it is over.
        Goal = "goal",
        /// A workflow run of it is not at its end.
        Run = "run",
        /// It was changed, taken out of the trash or purged while the run looked at it.
        Changed = "changed",
        /// A program keeps rollouts of the store, and a purge would have to take the thread's away meanwhile.
        Mirrored = "mirrored",
        /// What is stored of it can't be read.
        Damaged = "damaged",
    }
}

/// A thread that a run took, would take, or that came back: what is on record of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetentionReceipt {
    /// Its place among all receipts of the store; `None` in a dry run.
    pub number: Option<i64>,
    /// The run that took it.
    pub run: uuid::Uuid,
    /// The thread.
    pub thread: ThreadId,
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its title or its preview, as long as it is not purged: no receipt keeps it.
    pub name: Option<String>,
    /// What was done.
    pub step: RetentionStep,
    /// By which rule; `None` when it was restored.
    pub rule: Option<RetentionRule>,
    /// The limit of that rule: a number of threads, bytes, or milliseconds.
    pub bound: Option<i64>,
    /// Items that it wrote itself.
    pub items: i64,
    /// Bytes of items and payloads, as they are stored, that nothing else shares.
    pub bytes: i64,
    /// The chain's hash at its head.
    pub head_hash: Option<Hash>,
    /// When it was changed last.
    pub changed_at: Timestamp,
    /// The number of the purge in the chain of what was taken away on purpose.
    pub record: Option<i64>,
    /// When the receipt was made.
    pub at: Timestamp,
}

/// A thread that stays though a rule would have taken it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptThread {
    /// The thread.
    pub thread: ThreadId,
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its title or its preview.
    pub name: Option<String>,
    /// The rule that would have taken it.
    pub rule: RetentionRule,
    /// Why it stays.
    pub why: Protection,
    /// What there is to say of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What a run does.
#[derive(Debug, Clone, Default)]
pub struct RetainOptions {
    /// The rules of this run, for every workspace that the handle sees; `None` takes the stored ones.
    pub rules: Option<RetentionRules>,
    /// Takes nothing, and says what would be taken.
    pub dry_run: bool,
    /// Threads that stay whatever the rules say: the one that was just made, for a program that calls this when it makes one.
    pub spare: Vec<ThreadId>,
    /// Judges ages though the clock seems to have leapt; see [`RetentionReport::held_back`].
    pub trust_clock: bool,
}

/// What a run did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetentionReport {
    /// The run's id, which its receipts have.
    pub run: uuid::Uuid,
    /// Whether nothing was taken.
    pub dry_run: bool,
    /// When it was begun.
    pub at: Timestamp,
    /// Workspaces that have rules.
    pub workspaces: u64,
    /// Threads that went into the trash.
    pub trashed: Vec<RetentionReceipt>,
    /// Threads that were purged.
    pub purged: Vec<RetentionReceipt>,
    /// Threads that stay though a rule would have taken them.
    pub kept: Vec<KeptThread>,
    /// Bytes that the store's files gave back to the disk. On a server they go to what is written next, in the same tables.
    pub freed_bytes: i64,
    /// Set when something should have been judged by its age and was not: the newest time that the store knows before now. It is so long
    /// ago that the clock may have leapt, and a clock that leaps must not empty a store. Used for a day the store knows better;
    /// [`RetainOptions::trust_clock`] says that the clock is right.
    pub held_back: Option<Timestamp>,
    /// What else there is to know.
    pub notices: Vec<String>,
}

/// A question for receipts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptQuery {
    /// Those of one thread.
    pub thread: Option<ThreadId>,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for ReceiptQuery {
    fn default() -> Self {
        Self { thread: None, limit: 100, cursor: None }
    }
}

/// The rules of a store or a workspace, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRules {
    /// The workspace that has them; `None` for the store's.
    pub workspace: Option<WorkspaceId>,
    /// The rules.
    pub rules: RetentionRules,
}

/// Reads the rules that were set for exactly this: the store, or a workspace.
pub(crate) fn rules_of(tx: &mut dyn Tx, scope: Scope) -> Result<Option<RetentionRules>> {
    let found = query_one(tx, RETENTION_RULES, &[place_of(scope).as_str().into()], read_rules)?;
    Ok(found.map(|stored| stored.rules))
}

/// Reads all rules, the store's first.
pub(crate) fn all_rules(tx: &mut dyn Tx) -> Result<Vec<StoredRules>> {
    query_all(tx, ALL_RETENTION_RULES, &[], read_rules)
}

/// Sets the rules of the store, or those of a workspace, in the place of what was set before.
pub(crate) fn set_rules(tx: &mut dyn Tx, scope: Scope, rules: &RetentionRules, now: Timestamp) -> Result<()> {
    let place = place_of(scope);
    let before = rules_of(tx, scope)?;
    if before.as_ref() == Some(rules) {
        return Ok(());
    }
    let args = [
        place.as_str().into(),
        scope.arg(),
        rules.max_count.map(saturated).into(),
        rules.max_age.map(millis).into(),
        rules.max_bytes.map(saturated).into(),
        rules.max_store_bytes.map(saturated).into(),
        millis(rules.grace).into(),
        rules.trash_grace.map(millis).into(),
        i64::from(rules.archived).into(),
        i64::from(rules.forked).into(),
        i64::from(rules.deleted).into(),
        now.0.into(),
    ];
    tx.execute(PUT_RETENTION_RULES, &args)?;
    note(tx, scope, if before.is_some() { Verb::Changed } else { Verb::Created }, now)
}

/// Takes the rules of the store or of a workspace away; says whether there were any.
pub(crate) fn clear_rules(tx: &mut dyn Tx, scope: Scope, now: Timestamp) -> Result<bool> {
    match tx.execute(DROP_RETENTION_RULES, &[place_of(scope).as_str().into()])? {
        0 => Ok(false),
        _ => note(tx, scope, Verb::Deleted, now).map(|()| true),
    }
}

/// Notes for those who follow that a workspace has other rules. The store's are of no workspace, and the feed tells of workspaces.
fn note(tx: &mut dyn Tx, scope: Scope, verb: Verb, now: Timestamp) -> Result<()> {
    match scope {
        Scope::All => Ok(()),
        Scope::Workspace(id) => changes::note_in(tx, id, Note { area: Area::Retention, verb, subject: None, now }),
    }
}

fn place_of(scope: Scope) -> String {
    match scope {
        Scope::All => OF_THE_STORE.to_owned(),
        Scope::Workspace(id) => id.to_string(),
    }
}

/// Milliseconds, as many as can be stored.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A number, as far as it can be stored.
pub(crate) fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn read_rules(row: &Row<'_>) -> Result<StoredRules> {
    let number = |column: usize| {
        let found = row.opt_int(column)?;
        found.map(|found| row.parse(column, u64::try_from(found).ok(), "a number that is not negative")).transpose()
    };
    let time = |column: usize| Ok::<_, Error>(number(column)?.map(Duration::from_millis));
    let workspace = match row.opt_blob(9)? {
        None => None,
        Some(id) => Some(row.parse(9, WorkspaceId::from_slice(id), "16 bytes of an id")?),
    };
    Ok(StoredRules {
        workspace,
        rules: RetentionRules {
            max_count: number(0)?,
            max_age: time(1)?,
            max_bytes: number(2)?,
            max_store_bytes: number(3)?,
            grace: time(4)?.unwrap_or(RetentionRules::GRACE),
            trash_grace: time(5)?,
            archived: row.int(6)? != 0,
            forked: row.int(7)? != 0,
            deleted: row.int(8)? != 0,
        },
    })
}

/// A value that is bound as 16 bytes.
pub(crate) fn bytes_of(id: &uuid::Uuid) -> Value<'_> {
    Value::Blob(id.as_bytes())
}
