//! Threads as they are stored, taken from one store and put into another: the same ids, hashes and bytes, under the numbers of
//! the store that they come to.
//!
//! What is put is checked first: nothing that verification would reject leaves its store. A thread that is being put is a stub
//! without metadata until all of its rows are there.

pub(crate) mod documents;
pub(crate) mod plain;
pub(crate) mod state;
pub(crate) mod steering;
pub(crate) mod work;

use std::ops::ControlFlow;

use uuid::Uuid;

use crate::chain;
use crate::changes::{Area, Verb};
use crate::content::Blob;
use crate::db::{Owned, Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WorkspaceId, WriterId};
use crate::item::Hash;
use crate::log::append::{self, NewBranch};
use crate::log::order::{self, Top};
use crate::log::rows::state::StateStamp;
use crate::log::verify::{self, Checked, checked_columns, read_checked};
use crate::log::{blobs, path, redact};
use crate::records;
use crate::seal::RedactionRecord;
use crate::threads;
use crate::time::Timestamp;
use crate::workspaces;

/// A page ends at so many items, or when it holds so many bytes.
const PAGE_ITEMS: i64 = 500;
const PAGE_BYTES: usize = 4 << 20;
const PAGE_TURNS: i64 = 1_000;
const PAGE_REDACTIONS: i64 = 100;
/// A stub whose rows are not all there yet.
const COPYING: &str = "copying";
/// A stub whose rows are not all gone yet.
const PURGING: &str = "purging";

statements! {
    THREADS = "SELECT id, updated, items FROM threads WHERE shelf < 3 AND (updated > ?1 OR (updated = ?1 AND id > ?2))
        ORDER BY updated, id LIMIT ?3";
    STATE = "SELECT workspace, shelf, version, epoch, head, head_hash, head_is_tip, fork_item, items, branches, turns, open_turn,
        updated_at, (SELECT count(DISTINCT item) FROM redactions WHERE thread = ?1) FROM threads WHERE id = ?1";
    BRANCH_ROWS = "SELECT key, id, parent, base, tip, tip_hash, label, cleared, created_at FROM branches WHERE thread = ?1
        ORDER BY key";
    BRANCH_OWNER = "SELECT thread FROM branches WHERE key = ?1";
    FILES = "SELECT path, consumed, prefix, size, mtime FROM sources WHERE thread = ?1 ORDER BY path";
    ITEM_ROWS = concat!("SELECT ", checked_columns!(), ", i.source_id, w.machine, w.created_at
        FROM items i LEFT JOIN writers w ON w.key = i.writer WHERE i.key BETWEEN ?1 AND ?2 ORDER BY i.key LIMIT ?3");
    WRITER = "SELECT key FROM writers WHERE id = ?1";
    // A machine has one writer in a store that it writes itself, so one that came from elsewhere is named after its origin.
    PUT_WRITER = "INSERT INTO writers (key, id, machine, created_at)
        VALUES ((SELECT coalesce(max(key), 0) + 1 FROM writers), ?1, ?2, ?3) ON CONFLICT (id) DO NOTHING";
    PUT_STUB = "INSERT INTO threads (id, workspace, shelf, status, version, epoch, tick, updated, activity, head, head_hash,
        head_is_tip, fork_item, items, branches, turns, created_at, updated_at, pinned, ephemeral, policy, extra)
        VALUES (?1, ?2, 3, ?3, 0, ?4, ?5, ?5, ?5, NULL, NULL, 0, NULL, 0, 0, 0, ?6, ?6, 0, 0, '\"all\"', '{}')
        ON CONFLICT (id) DO NOTHING";
    // What its writers write here later must not get ticks below those that come with its items, nor epochs.
    COUNT = "UPDATE threads SET items = items + ?3, branches = branches + ?4, tick = CASE WHEN tick < ?6 THEN ?6 ELSE tick END,
        head_is_tip = CASE WHEN head >> 32 = ?5 THEN 0 ELSE head_is_tip END WHERE id = ?1 AND epoch = ?2";
    RAISE_EPOCH = "UPDATE threads SET epoch = ?2 WHERE id = ?1 AND epoch < ?2
        AND NOT EXISTS (SELECT 1 FROM claims WHERE thread = ?1)";
    TURN_ROWS = "SELECT ordinal, status, outcome, first_item, last_item, token_usage, started_at, ended_at FROM turns
        WHERE thread = ?1 AND ordinal BETWEEN ?2 AND ?3 ORDER BY ordinal LIMIT ?4";
    FIRST_OPEN_TURN = "SELECT min(ordinal) FROM turns WHERE thread = ?1 AND (status = 'running' OR last_item IS NULL)";
    LAST_TURN = "SELECT coalesce(max(ordinal), 0) FROM turns WHERE thread = ?1";
    PUT_TURN = "INSERT INTO turns (thread, ordinal, status, outcome, first_item, last_item, token_usage, started_at, ended_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (thread, ordinal) DO UPDATE SET status = excluded.status,
          outcome = excluded.outcome, first_item = excluded.first_item, last_item = excluded.last_item,
          token_usage = excluded.token_usage, started_at = excluded.started_at, ended_at = excluded.ended_at";
    PLACES = "SELECT tick, updated, activity FROM threads WHERE id = ?1";
    PUT_STATE = "UPDATE threads SET head = ?3, head_hash = ?4, head_is_tip = ?5, fork_item = ?6, items = ?7, branches = ?8,
        turns = ?9, open_turn = ?10, tick = ?11, updated = ?12, activity = ?13,
        updated_at = CASE WHEN updated_at < ?14 THEN ?14 ELSE updated_at END WHERE id = ?1 AND epoch = ?2";
    PUT_MARKS = "UPDATE branches SET label = ?2, cleared = ?3 WHERE key = ?1";
    DETAILS = "SELECT shelf, status, version, forked_from, created_at, updated_at, archived_at, trashed_at, ended_at, pinned,
        ephemeral, policy, title, preview, agent, source, provider, model, cwd, working_path, rollout_path, git_sha, git_branch,
        git_origin, cli_version, sandbox_policy, approval_policy, memory_mode, persona, parent, end_reason, token_usage, extra
        FROM threads WHERE id = ?1";
    PUT_DETAILS = "UPDATE threads SET shelf = ?2, status = ?3, version = ?4, forked_from = ?5, created_at = ?6, updated_at = ?7,
        archived_at = ?8, trashed_at = ?9, ended_at = ?10, pinned = ?11, ephemeral = ?12, policy = ?13, title = ?14, preview = ?15,
        agent = ?16, source = ?17, provider = ?18, model = ?19, cwd = ?20, working_path = ?21, rollout_path = ?22, git_sha = ?23,
        git_branch = ?24, git_origin = ?25, cli_version = ?26, sandbox_policy = ?27, approval_policy = ?28, memory_mode = ?29,
        persona = ?30, parent = ?31, end_reason = ?32, token_usage = ?33, extra = ?34 WHERE id = ?1";
    REDACTED_ROW = "SELECT salt, size, encoding, content FROM items WHERE key = ?1";
    ONE_CHECKED = concat!("SELECT ", checked_columns!(), " FROM items i LEFT JOIN writers w ON w.key = i.writer WHERE i.key = ?1");
    WORKSPACE_OF = "SELECT workspace FROM threads WHERE id = ?1";
    PUT_WORKSPACE = "UPDATE threads SET workspace = ?2 WHERE id = ?1";
    PUT_WORKSPACE_OF_REQUESTS = "UPDATE requests SET workspace = ?2 WHERE thread = ?1";
    NAME_STUB = "UPDATE threads SET status = ?2 WHERE id = ?1 AND shelf = 3";
}

/// The columns that `DETAILS` reads.
const DETAIL_COLUMNS: usize = 33;

/// A thread of a store, in the order of its last change.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) id: ThreadId,
    pub(crate) updated: i64,
    pub(crate) items: u64,
}

/// A page of the threads, those that were changed first at the beginning.
pub(crate) fn threads(tx: &mut dyn Tx, after: Option<&Listed>, limit: i64) -> Result<Vec<Listed>> {
    let (updated, id) = after.map_or((i64::MIN, ""), |last| (last.updated, last.id.as_str()));
    query_all(tx, THREADS, &[updated.into(), id.into(), limit.into()], |row| {
        let id = row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")?;
        Ok(Listed { id, updated: row.int(1)?, items: u64::try_from(row.int(2)?).unwrap_or(0) })
    })
}

/// Where a thread stands: enough to see what another store has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) id: ThreadId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) shelf: i64,
    pub(crate) version: i64,
    pub(crate) epoch: i64,
    pub(crate) head: Option<(Address, Hash)>,
    head_is_tip: bool,
    fork: Option<Address>,
    pub(crate) items: i64,
    branch_count: i64,
    turns: i64,
    open_turn: Option<i64>,
    updated_at: i64,
    /// How many of its items were redacted.
    redacted: i64,
    pub(crate) branches: Vec<BranchRow>,
    /// The threads whose items its branches continue, or that it was forked from.
    pub(crate) ancestors: Vec<ThreadId>,
    pub(crate) files: Vec<FileStamp>,
    /// What stands beside the log.
    pub(crate) state: StateStamp,
}

/// A branch with the end that it really has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BranchRow {
    /// Its number in its own store.
    number: i64,
    pub(crate) id: BranchId,
    parent: Option<(Address, Hash)>,
    pub(crate) base: u32,
    pub(crate) tip: u32,
    pub(crate) tip_hash: Hash,
    label: Option<String>,
    cleared: bool,
    created_at: Timestamp,
}

/// An imported file, by what tells its state from an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) path: String,
    /// Bytes that are stored, their hash, and the file's size and time.
    state: (i64, Vec<u8>, i64, i64),
}

/// Reads where a thread stands, if there is one.
pub(crate) fn snapshot(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Snapshot>> {
    let id: Value<'_> = thread.as_str().into();
    let read = |row: &Row<'_>| {
        let hash = row.opt_blob(5)?.and_then(Hash::from_slice);
        Ok((
            row.opt_int(4)?.map(ItemKey).zip(hash),
            row.opt_int(7)?.map(ItemKey),
            Snapshot {
                id: thread.clone(),
                workspace: row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")?,
                shelf: row.int(1)?,
                version: row.int(2)?,
                epoch: row.int(3)?,
                head: None,
                head_is_tip: row.int(6)? == 1,
                fork: None,
                items: row.int(8)?,
                branch_count: row.int(9)?,
                turns: row.int(10)?,
                open_turn: row.opt_int(11)?,
                updated_at: row.int(12)?,
                redacted: row.int(13)?,
                branches: Vec::new(),
                ancestors: Vec::new(),
                files: Vec::new(),
                state: StateStamp::NONE,
            },
        ))
    };
    let Some((head, fork, mut found)) = query_one(tx, STATE, &[id], read)? else { return Ok(None) };
    let rows = query_all(tx, BRANCH_ROWS, &[id], read_branch)?;
    for (mut branch, parent) in rows {
        if let Some((key, hash)) = head.filter(|(key, _)| found.head_is_tip && key.branch() == branch.number) {
            // The row's tip is written when the head leaves it.
            (branch.tip, branch.tip_hash) = (key.depth(), hash);
        }
        if let Some(parent) = parent {
            found.note_ancestor(tx, parent)?;
            let missing = || Error::corrupt(format!("branch {}", branch.id), "the item that it continues is missing");
            let (hash, _) = path::link_at(tx, parent)?.ok_or_else(missing)?;
            branch.parent = Some((path::address_of(tx, parent)?, hash));
        }
        found.branches.push(branch);
    }
    if let Some((key, hash)) = head {
        found.head = Some((path::address_of(tx, key)?, hash));
    }
    if let Some(fork) = fork {
        found.note_ancestor(tx, fork)?;
        found.fork = Some(path::address_of(tx, fork)?);
    }
    found.files = query_all(tx, FILES, &[id], |row| {
        let state = (row.int(1)?, row.blob(2)?.to_vec(), row.int(3)?, row.int(4)?);
        Ok(FileStamp { path: row.text(0)?.to_owned(), state })
    })?;
    found.state = state::stamp(tx, thread)?;
    Ok(Some(found))
}

fn read_branch(row: &Row<'_>) -> Result<(BranchRow, Option<ItemKey>)> {
    let branch = BranchRow {
        number: row.int(0)?,
        id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        parent: None,
        base: path::depth(row, 3)?,
        tip: path::depth(row, 4)?,
        tip_hash: row.parse(5, Hash::from_slice(row.blob(5)?), "a hash")?,
        label: row.opt_text(6)?.map(str::to_owned),
        cleared: row.int(7)? == 1,
        created_at: Timestamp(row.int(8)?),
    };
    Ok((branch, row.opt_int(2)?.map(ItemKey)))
}

impl BranchRow {
    /// The item that the branch leaves at, with its hash.
    pub(crate) fn parent(&self) -> Option<(Address, Hash)> {
        self.parent
    }

    /// Its label, and whether it was cleared away.
    pub(crate) fn marks(&self) -> (Option<&str>, bool) {
        (self.label.as_deref(), self.cleared)
    }

    /// When it was begun.
    pub(crate) fn created_at(&self) -> Timestamp {
        self.created_at
    }
}

impl Snapshot {
    /// Whether the other store has the same of this thread.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        !self.is_redacted_since(other) && self.is_same_but_for_redactions(other)
    }

    /// As [`Snapshot::is_same`], whatever content is still there.
    pub(crate) fn is_same_but_for_redactions(&self, other: &Self) -> bool {
        !self.is_later_than(other)
            && self.has_same_log(other)
            && self.files == other.files
            && !self.has_other_state(other)
    }

    /// Whether goals, checkpoints, documents or links differ, and the other one's are not the later ones: changed, or masked.
    pub(crate) fn has_other_state(&self, other: &Self) -> bool {
        self.state != other.state && self.updated_at >= other.updated_at && self.version >= other.version
    }

    fn is_later_than(&self, other: &Self) -> bool {
        self.version > other.version || self.updated_at > other.updated_at
    }

    /// Whether content was taken out of it that is still in the other one.
    pub(crate) fn is_redacted_since(&self, other: &Self) -> bool {
        self.redacted > other.redacted
    }

    /// Whether the chains, the head and the turns are the same.
    pub(crate) fn has_same_log(&self, other: &Self) -> bool {
        let ends = |of: &Self| {
            let mut ends: Vec<_> = of
                .branches
                .iter()
                .map(|it| (it.id, it.base, it.tip, it.tip_hash, it.label.clone(), it.cleared))
                .collect();
            ends.sort_unstable();
            ends
        };
        let rest = |of: &Self| (of.head, of.fork, of.items, of.branch_count, of.turns, of.open_turn);
        rest(self) == rest(other) && ends(self) == ends(other)
    }

    /// The branch with this id.
    pub(crate) fn branch(&self, id: BranchId) -> Option<&BranchRow> {
        self.branches.iter().find(|branch| branch.id == id)
    }

    /// What `older` lacks of this thread: each branch, and the depth and the hash to go on from.
    ///
    /// # Errors
    /// `Conflict` when `older` ends where this one does, and with another hash.
    pub(crate) fn missing_in<'a>(&'a self, older: &Self) -> Result<Vec<Missing<'a>>> {
        let mut missing = Vec::new();
        for branch in &self.branches {
            match older.branch(branch.id) {
                None => missing.push(Missing { branch, next: branch.base, after: branch.parent.map(|(_, hash)| hash) }),
                Some(have) if have.tip < branch.tip => {
                    missing.push(Missing { branch, next: have.tip + 1, after: Some(have.tip_hash) });
                }
                Some(have) if have.tip == branch.tip && have.tip_hash != branch.tip_hash => {
                    return Err(diverged(branch.id, branch.tip));
                }
                Some(_) => {}
            }
        }
        Ok(missing)
    }

    /// Whether `older` has what this one lacks.
    pub(crate) fn lacks_of(&self, older: &Self) -> Option<Address> {
        let extra = older.branches.iter().find(|have| self.branch(have.id).is_none_or(|own| own.tip < have.tip))?;
        Some(Address { branch: extra.id, depth: extra.tip })
    }

    fn note_ancestor(&mut self, tx: &mut dyn Tx, item: ItemKey) -> Result<()> {
        let owner = query_one(tx, BRANCH_OWNER, &[item.branch().into()], |row| {
            row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
        })?;
        let owner = owner.ok_or_else(|| Error::corrupt(format!("branch {}", item.branch()), "it is missing"))?;
        if owner != self.id && !self.ancestors.contains(&owner) {
            self.ancestors.push(owner);
        }
        Ok(())
    }
}

fn diverged(branch: BranchId, depth: u32) -> Error {
    let place = Address { branch, depth };
    Error::Conflict { what: "item", expected: format!("the same item at {place} in both"), found: "two".to_owned() }
}

/// A part of a branch that another store lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missing<'a> {
    pub(crate) branch: &'a BranchRow,
    pub(crate) next: u32,
    /// The hash that the next item follows; `None` at the root of a thread.
    pub(crate) after: Option<Hash>,
}

/// Items on their way from one store to another, in the order of their depth.
#[derive(Debug)]
pub(crate) struct ItemPage {
    branch: BranchRow,
    items: Vec<ItemRow>,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct ItemRow {
    id: ItemId,
    depth: u32,
    tick: i64,
    hash: Hash,
    writer: (WriterId, String, i64),
    /// The columns of the table but the key and the writer.
    values: Vec<Owned>,
    blobs: Vec<Blob>,
    /// What is on record of content that was taken away.
    redaction: Option<RedactionRecord>,
}

impl ItemPage {
    pub(crate) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    /// The items whose content is all there.
    pub(crate) fn with_content(&self) -> impl Iterator<Item = ItemId> {
        self.items.iter().filter(|item| item.redaction.is_none()).map(|item| item.id)
    }

    /// Where the page after this one begins, and what it follows.
    pub(crate) fn end(&self) -> Option<(u32, Hash)> {
        self.items.last().map(|last| (last.depth + 1, last.hash))
    }
}

/// Reads the next items of a branch and checks each of them: bytes, digest, and link to the one before.
pub(crate) fn items(tx: &mut dyn Tx, thread: &ThreadId, from: Missing<'_>) -> Result<ItemPage> {
    let branch = from.branch;
    let range = [ItemKey::new(branch.number, from.next), ItemKey::new(branch.number, branch.tip)];
    let mut read: Vec<(Checked, ItemRow)> = Vec::new();
    let mut bytes = 0;
    tx.query(ITEM_ROWS, &[range[0].0.into(), range[1].0.into(), PAGE_ITEMS.into()], &mut |row| {
        let checked = read_checked(row)?;
        let item = read_item(row, &checked)?;
        bytes += row.opt_blob(16)?.map_or(0, <[u8]>::len);
        read.push((checked, item));
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    let (mut depth, mut parent) = (from.next, from.after.unwrap_or_else(|| chain::genesis(thread)));
    let mut items = Vec::with_capacity(read.len());
    for (mut checked, mut item) in read {
        checked.load_rest(tx)?;
        if let Some(problem) = checked.check(thread, depth, parent) {
            return Err(Error::corrupt(format!("item {} at depth {depth}", checked.id), problem));
        }
        if depth == branch.base && checked.id != branch.id {
            return Err(Error::corrupt(format!("branch {}", branch.id), verify::OTHER_NAME));
        }
        item.blobs = blobs::stored_with(tx, checked.key)?;
        item.redaction = checked.redaction.take();
        bytes += item.blobs.iter().map(|blob| blob.data.len()).sum::<usize>();
        (depth, parent) = (depth + 1, checked.hash);
        items.push(item);
        // What is stored apart counts too, and is known only now.
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    if items.is_empty() {
        let detail = format!("the branch ends before depth {}; it was written up to {}", from.next, branch.tip);
        return Err(Error::corrupt(format!("branch {}", branch.id), detail));
    }
    Ok(ItemPage { branch: branch.clone(), items, bytes })
}

fn read_item(row: &Row<'_>, checked: &Checked) -> Result<ItemRow> {
    // The table's order, beside the key and the writer: id, turn, kind, role, format; epoch, tick, created_at, source_id,
    // sources, chain, salt, digest, hash, size, encoding, content.
    const COLUMNS: [usize; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 18, 9, 10, 11, 12, 13, 14, 15, 16];
    let writer = row.parse(17, checked.writer, "16 bytes of an id")?;
    Ok(ItemRow {
        id: checked.id,
        depth: checked.key.depth(),
        tick: checked.tick,
        hash: checked.hash,
        writer: (writer, row.text(19)?.to_owned(), row.int(20)?),
        values: COLUMNS.iter().map(|column| row.owned(*column)).collect::<Result<_>>()?,
        blobs: Vec::new(),
        redaction: None,
    })
}

/// Makes room for a thread: a stub, if the store knows nothing of it. Gives where it stands.
pub(crate) fn begin(tx: &mut dyn Tx, source: &Snapshot, workspace: WorkspaceId, now: Timestamp) -> Result<Snapshot> {
    let first = threads::first_epoch(tx)?;
    let tick = Top::read(tx)?.next_tick(0);
    let args = [
        source.id.as_str().into(),
        workspace.as_bytes().as_slice().into(),
        COPYING.into(),
        first.max(source.epoch).into(),
        tick.into(),
        now.0.into(),
    ];
    tx.execute(PUT_STUB, &args)?;
    tx.execute(RAISE_EPOCH, &[source.id.as_str().into(), source.epoch.into()])?;
    let found = snapshot(tx, &source.id)?;
    found.ok_or_else(|| Error::corrupt("table threads", "the row that was just written is missing"))
}

/// Writes a page of items behind those that are there, under the epoch that the thread has here.
pub(crate) fn put_items(
    tx: &mut dyn Tx,
    store: Uuid,
    (thread, epoch): (&ThreadId, i64),
    page: &ItemPage,
    origin: &str,
) -> Result<()> {
    let (Some(first), Some(last)) = (page.items.first(), page.items.last()) else { return Ok(()) };
    let id = Address { branch: page.branch.id, depth: 0 };
    let (number, is_new) = match path::key_of(tx, id)? {
        Some((key, owner)) if owner == *thread => (key.branch(), false),
        Some(_) => return Err(diverged(page.branch.id, page.branch.base)),
        None => (begin_branch(tx, thread, &page.branch, first.hash)?, true),
    };
    for item in &page.items {
        let key = ItemKey::new(number, item.depth);
        let writer = put_writer(tx, &item.writer, origin)?;
        let mut values = vec![Value::Int(key.0)];
        let (before, behind) = item.values.split_at_checked(5).unwrap_or_default();
        values.extend(before.iter().map(Owned::value));
        values.push(writer.into());
        values.extend(behind.iter().map(Owned::value));
        append::insert_row(tx, item.id, &values)?;
        blobs::store(tx, key, &item.blobs)?;
        if let Some(redaction) = &item.redaction {
            records::put_redaction(tx, store, redaction)?;
        }
    }
    append::record_tip(tx, ItemKey::new(number, last.depth), last.hash)?;
    let count = i64::try_from(page.items.len()).unwrap_or(0);
    let tick = page.items.iter().map(|item| item.tick).max().unwrap_or(0);
    let args =
        [thread.as_str().into(), epoch.into(), count.into(), i64::from(is_new).into(), number.into(), tick.into()];
    fenced(tx.execute(COUNT, &args)?, thread, epoch)
}

fn fenced(changed: usize, thread: &ThreadId, epoch: i64) -> Result<()> {
    match changed {
        0 => Err(Error::ClaimLost { thread: thread.clone(), epoch }),
        _ => Ok(()),
    }
}

fn begin_branch(tx: &mut dyn Tx, thread: &ThreadId, branch: &BranchRow, hash: Hash) -> Result<i64> {
    let parent = match branch.parent {
        None => None,
        Some((address, hash)) => Some(found_here(tx, address, Some(hash))?),
    };
    let (id, base, created_at) = (branch.id, branch.base, branch.created_at);
    append::insert_branch(tx, &NewBranch { thread, id, parent, base, hash, created_at })
}

/// The key under which this store knows an item of the other one.
fn found_here(tx: &mut dyn Tx, address: Address, hash: Option<Hash>) -> Result<ItemKey> {
    let (key, _) = path::key_of(tx, address)?.ok_or_else(|| Error::not_found("item", address))?;
    match path::link_at(tx, key)? {
        Some((found, _)) if hash.is_none_or(|hash| hash == found) => Ok(key),
        Some(_) => Err(diverged(address.branch, address.depth)),
        None => Err(Error::not_found("item", address)),
    }
}

fn put_writer(tx: &mut dyn Tx, (id, machine, created_at): &(WriterId, String, i64), origin: &str) -> Result<i64> {
    let id = [Value::Blob(id.as_bytes())];
    if let Some(known) = query_one(tx, WRITER, &id, |row| row.int(0))? {
        return Ok(known);
    }
    order::line_up(tx)?;
    let machine = with_origin(machine, origin);
    tx.execute(PUT_WRITER, &[id[0], machine.as_str().into(), (*created_at).into()])?;
    let known = query_one(tx, WRITER, &id, |row| row.int(0))?;
    known.ok_or_else(|| Error::corrupt("table writers", "the row that was just written is missing"))
}

/// Names a machine after the store that it wrote, unless it is so named already.
fn with_origin(machine: &str, origin: &str) -> String {
    if machine.contains(ORIGIN) { machine.to_owned() } else { format!("{machine}{ORIGIN}{origin}") }
}

/// Stands between a machine and the store that it wrote.
const ORIGIN: &str = " in the store ";

/// Items that are the same in two stores, and of which one has had content taken away.
#[derive(Debug, Default)]
pub(crate) struct RedactedPage {
    pub(crate) items: Vec<RedactedRow>,
    /// Where the next page begins: behind this record.
    pub(crate) last: i64,
}

#[derive(Debug)]
pub(crate) struct RedactedRow {
    record: RedactionRecord,
    /// Salt, size, encoding and content, as they are stored.
    values: Vec<Owned>,
    blobs: Vec<Blob>,
}

/// Reads what was redacted of a thread's items, after a record; an item comes with its last redaction. Nothing when there is no more.
pub(crate) fn redactions(tx: &mut dyn Tx, thread: &ThreadId, after: i64) -> Result<Option<RedactedPage>> {
    let records = records::redactions_in(tx, thread, after, PAGE_REDACTIONS)?;
    let Some(last) = records.last().map(|record| record.number) else { return Ok(None) };
    let mut page = RedactedPage { items: Vec::new(), last };
    for record in records {
        let Some(id) = record.item.map(|item| item.id) else { continue };
        if records::redaction_of(tx, id)?.is_none_or(|newest| newest.number != record.number) {
            continue;
        }
        let Some(key) = path::key_by_id(tx, id)? else { continue };
        let found = query_one(tx, REDACTED_ROW, &[key.0.into()], |row| {
            (0..4).map(|column| row.owned(column)).collect::<Result<Vec<_>>>()
        })?;
        let Some(values) = found else { continue };
        page.items.push(RedactedRow { record, values, blobs: blobs::stored_with(tx, key)? });
    }
    Ok(Some(page))
}

/// Takes away here what was taken away there, unless it was redacted here later.
pub(crate) fn put_redactions(tx: &mut dyn Tx, store: Uuid, thread: &ThreadId, page: &RedactedPage) -> Result<()> {
    for RedactedRow { record, values, blobs } in &page.items {
        let Some(subject) = record.item else { continue };
        let Some(key) = path::key_by_id(tx, subject.id)? else { continue };
        let known = records::redaction_of(tx, subject.id)?;
        if known.is_some_and(|known| known.at >= record.at) {
            continue;
        }
        let [salt, size, encoding, content] = values.as_slice() else { continue };
        redact::put_content(tx, key, [salt, size, encoding, content].map(Owned::value), blobs)?;
        redact::put_record(tx, store, record)?;
        let mut checked = query_one(tx, ONE_CHECKED, &[key.0.into()], read_checked)?;
        if let Some(checked) = &mut checked {
            checked.load_rest(tx)?;
            if let Some(problem) = checked.content_problem() {
                return Err(Error::corrupt(format!("item {} at depth {}", subject.id, subject.depth), problem));
            }
        }
        redact::raise_version(tx, thread)?;
    }
    Ok(())
}

/// The turns from the first one on that the other store lacks or may have in an earlier state.
pub(crate) fn first_turn_to_put(tx: &mut dyn Tx, thread: &ThreadId) -> Result<i64> {
    let id = thread.as_str().into();
    let open = query_one(tx, FIRST_OPEN_TURN, &[id], |row| row.opt_int(0))?.flatten();
    let last = query_one(tx, LAST_TURN, &[id], |row| row.int(0))?.unwrap_or(0);
    Ok(open.unwrap_or(i64::MAX).min(last + 1))
}

/// A turn on its way: its ordinal, its columns but those two, and its first and last item.
#[derive(Debug)]
pub(crate) struct TurnRow {
    pub(crate) ordinal: i64,
    values: Vec<Owned>,
    first: Address,
    last: Option<Address>,
}

/// Reads a page of turns, from an ordinal on; those that began after the snapshot are left for the next time.
pub(crate) fn turns(tx: &mut dyn Tx, source: &Snapshot, from: i64) -> Result<Vec<TurnRow>> {
    let args = [source.id.as_str().into(), from.into(), source.turns.into(), PAGE_TURNS.into()];
    let rows = query_all(tx, TURN_ROWS, &args, |row| {
        let values = [1, 2, 5, 6, 7].into_iter().map(|at| row.owned(at)).collect::<Result<Vec<_>>>()?;
        Ok((row.int(0)?, values, ItemKey(row.int(3)?), row.opt_int(4)?.map(ItemKey)))
    })?;
    let place = |(ordinal, values, first, last): (i64, Vec<Owned>, ItemKey, Option<ItemKey>)| {
        let first = path::address_of(tx, first)?;
        let last = last.map(|last| path::address_of(tx, last)).transpose()?;
        Ok(TurnRow { ordinal, values, first, last })
    };
    rows.into_iter().map(place).collect()
}

/// Writes turns, in place of those of the same ordinals.
pub(crate) fn put_turns(tx: &mut dyn Tx, thread: &ThreadId, turns: &[TurnRow]) -> Result<()> {
    for turn in turns {
        let [status, outcome, usage, started_at, ended_at] = turn.values.as_slice() else { continue };
        let first = found_here(tx, turn.first, None)?;
        // One that ended after the snapshot stays without its end until the next time.
        let last = turn.last.and_then(|last| found_here(tx, last, None).ok());
        let args = [
            thread.as_str().into(),
            turn.ordinal.into(),
            status.value(),
            outcome.value(),
            first.0.into(),
            last.map(|last| last.0).into(),
            usage.value(),
            started_at.value(),
            ended_at.value(),
        ];
        tx.execute(PUT_TURN, &args)?;
    }
    Ok(())
}

/// A thread's descriptive columns, as they are stored.
#[derive(Debug)]
pub(crate) struct Metadata(Vec<Owned>);

/// The columns of `DETAILS` that name folders of the machine that the thread was written on.
const FOLDER_COLUMNS: [usize; 2] = [18, 19];

impl Metadata {
    /// Gives the folders that the thread names their names of here.
    pub(crate) fn move_folders(&mut self, moved: impl Fn(&str) -> Option<String>) {
        for column in FOLDER_COLUMNS {
            if let Some(Owned::Text(path)) = self.0.get_mut(column)
                && let Some(here) = moved(path)
            {
                *path = here;
            }
        }
    }

    /// Whether a copy or a purge is at work on the thread, if it is a stub.
    pub(crate) fn is_at_work(&self) -> bool {
        self.0
            .get(1)
            .is_some_and(|status| matches!(status, Owned::Text(word) if [COPYING, PURGING].contains(&word.as_str())))
    }
}

/// Reads the descriptive columns.
pub(crate) fn metadata(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Metadata> {
    let read = |row: &Row<'_>| (0..DETAIL_COLUMNS).map(|column| row.owned(column)).collect::<Result<Vec<_>>>();
    let found = query_one(tx, DETAILS, &[thread.as_str().into()], read)?;
    found.map(Metadata).ok_or_else(|| Error::not_found("thread", thread))
}

/// Puts the thread's head and counts in place, and its metadata where this store's is older.
pub(crate) fn finish(
    tx: &mut dyn Tx,
    source: &Snapshot,
    target: &Snapshot,
    epoch: i64,
    metadata: &Metadata,
) -> Result<()> {
    let id: Value<'_> = source.id.as_str().into();
    let head = match source.head {
        None => None,
        Some((address, hash)) => Some((found_here(tx, address, Some(hash))?, hash)),
    };
    let fork = source.fork.map(|fork| found_here(tx, fork, None)).transpose()?;
    put_marks(tx, source)?;
    let places = query_one(tx, PLACES, &[id], |row| Ok((row.int(0)?, row.int(1)?, row.int(2)?)))?;
    let (own, updated, activity) = places.ok_or_else(|| Error::not_found("thread", &source.id))?;
    let top = Top::read(tx)?;
    // Labels and imported files change a thread without moving it.
    let is_moved = source.is_later_than(target) || target.shelf == 3;
    let tick = if is_moved { top.next_tick(own) } else { own };
    let is_written = source.items != target.items || target.shelf == 3;
    let hash = head.as_ref().map(|(_, hash)| hash.0.as_slice());
    let args = [
        id,
        epoch.into(),
        head.map(|(key, _)| key.0).into(),
        hash.into(),
        i64::from(source.head_is_tip).into(),
        fork.map(|fork| fork.0).into(),
        source.items.into(),
        source.branch_count.into(),
        source.turns.into(),
        source.open_turn.into(),
        tick.into(),
        if is_moved { top.updated(&source.id, tick, updated) } else { updated }.into(),
        if is_written { top.activity(&source.id, tick, activity) } else { activity }.into(),
        source.updated_at.into(),
    ];
    fenced(tx.execute(PUT_STATE, &args)?, &source.id, epoch)?;
    if source.version > target.version || target.shelf == 3 {
        let mut values = vec![id];
        values.extend(metadata.0.iter().map(Owned::value));
        tx.execute(PUT_DETAILS, &values)?;
    }
    let now = Timestamp(source.updated_at);
    if target.shelf == 3 {
        threads::note(tx, &source.id, Some(tick), Verb::Created, now)?;
    } else if is_written {
        append::note(tx, &source.id, tick, Area::Items, now)?;
    }
    if target.shelf != 3 && source.version > target.version {
        threads::note(tx, &source.id, Some(tick), Verb::Changed, now)?;
    }
    Ok(())
}

/// Describes a thread as another store did.
pub(crate) fn put_metadata(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    workspace: WorkspaceId,
    metadata: &Metadata,
) -> Result<()> {
    let id: Value<'_> = thread.as_str().into();
    let mut values = vec![id];
    values.extend(metadata.0.iter().map(Owned::value));
    tx.execute(PUT_DETAILS, &values)?;
    let before = query_one(tx, WORKSPACE_OF, &[id], |row| Ok(WorkspaceId::from_slice(row.blob(0)?)))?.flatten();
    if let Some(before) = before.filter(|before| *before != workspace) {
        workspaces::note_merged(tx, before, workspace)?;
    }
    let args = [id, workspace.as_bytes().as_slice().into()];
    tx.execute(PUT_WORKSPACE_OF_REQUESTS, &args)?;
    tx.execute(PUT_WORKSPACE, &args).map(drop)
}

fn put_marks(tx: &mut dyn Tx, source: &Snapshot) -> Result<()> {
    for branch in &source.branches {
        let key = found_here(tx, Address { branch: branch.id, depth: branch.base }, None)?;
        let marks = [key.branch().into(), branch.label.as_deref().into(), i64::from(branch.cleared).into()];
        tx.execute(PUT_MARKS, &marks)?;
    }
    Ok(())
}

/// Ends the putting of a thread of which only shared items are left: it stays a stub.
pub(crate) fn finish_stub(tx: &mut dyn Tx, source: &Snapshot) -> Result<()> {
    put_marks(tx, source)?;
    tx.execute(NAME_STUB, &[source.id.as_str().into(), "completed".into()]).map(drop)
}

/// The key under which this store knows an item that a file's part became.
pub(crate) fn item_here(tx: &mut dyn Tx, address: Address) -> Result<ItemKey> {
    found_here(tx, address, None)
}
