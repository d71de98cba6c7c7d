//! Letting what was salvaged into a new database: items by the rule of verification alone, everything else as far as it fits them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rusqlite::Connection;

use crate::chain;
use crate::content;
use crate::copy::From;
use crate::db::salvage::Salvage;
use crate::db::sqlite::{SqliteTx, engine_error};
use crate::db::{Owned, Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WorkspaceId, WriterId};
use crate::item::Hash;
use crate::log::rows::plain::unknown_workspace;
use crate::log::rows::{self, BranchRow, Missing, Snapshot};
use crate::log::verify::{checked_columns, read_checked};
use crate::log::{append, blobs, path, receipts};
use crate::records;
use crate::rollout::scan::Rollout;
use crate::time::Timestamp;
use crate::workspaces;

/// A greater number of a branch is damage: it would leave no room for others.
const MOST_BRANCHES: i64 = 1 << 30;
/// The column of an item's row that says how its content is kept.
const ENCODING: usize = 17;
/// The one that says its format.
const FORMAT: usize = 5;

statements! {
    CHECKED_ITEM = concat!("SELECT ", checked_columns!(), " FROM items i LEFT JOIN writers w ON w.key = i.writer WHERE i.key = ?1");
    LINK_PAYLOAD = "INSERT INTO item_blobs (item, digest) SELECT CAST(?1 AS BIGINT), digest FROM blobs WHERE digest = ?2
        ON CONFLICT (item, digest) DO NOTHING";
    STORED_PAYLOADS = "SELECT encoding, size, content FROM items WHERE key = ?1";
    PUT_BLOB = "INSERT INTO blobs (digest, size, encoding, data) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (digest) DO NOTHING";
    PUT_BRANCH = "INSERT INTO branches (key, thread, id, parent, base, tip, tip_hash, label, cleared, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9)";
    BRANCH_HERE = "SELECT thread, base, tip, tip_hash FROM branches WHERE key = ?1";
    AT_DEPTH = "SELECT key, hash FROM items WHERE key & 4294967295 = ?1 ORDER BY key";
    IS_THREAD = "SELECT 1 FROM threads WHERE id = ?1";
    ALL_THREADS = "SELECT id FROM threads ORDER BY id";
    MAKE_THREAD = "INSERT INTO threads (id, workspace, shelf, status, version, epoch, tick, updated, activity, head_is_tip, items,
        branches, turns, created_at, updated_at, pinned, ephemeral, policy, extra)
        VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?6, ?6, 0, 0, 0, 0, ?7, ?7, 0, 0, '\"all\"', '{}')";
    TOP_TICK = "SELECT coalesce(max(tick), 0) FROM threads";
    MAKE_WORKSPACE = "INSERT INTO workspaces (id, name, created_at) VALUES (?1, 'recovered', 0) ON CONFLICT (id) DO NOTHING";
    LACKING_WORKSPACES = "SELECT DISTINCT workspace FROM threads WHERE workspace NOT IN (SELECT id FROM workspaces)";
    MAKE_WRITER = "INSERT INTO writers (key, id, machine, created_at) VALUES (?1, ?2, ?3, 0)";
    WRITER_HERE = "SELECT id FROM writers WHERE key = ?1";
    KEEP_NUMBERS = "INSERT INTO counters (name, value) VALUES ('purged-branch', ?1) ON CONFLICT (name)
        DO UPDATE SET value = CASE WHEN counters.value < excluded.value THEN excluded.value ELSE counters.value END";
    PURGED = "SELECT thread FROM purges";
    STORE_ID = "SELECT value FROM facts WHERE name = 'store-id'";
    PUT_FACT = "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
    STANDINGS = "SELECT id, head, head_hash, fork_item, open_turn, items FROM threads ORDER BY id";
    // What stands there is believed when it is found.
    FORGET_STANDINGS = "UPDATE threads SET head = NULL, head_hash = NULL, head_is_tip = 0, fork_item = NULL, open_turn = NULL";
}

/// What is known of a branch that may have more items than are here.
#[derive(Debug, Clone)]
struct BranchHint {
    thread: ThreadId,
    parent: Option<ItemKey>,
    base: u32,
    label: Option<String>,
    cleared: i64,
    created_at: i64,
}

/// Where a thread's description comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Described {
    /// The database's own row.
    Database,
    /// Its rollout.
    Rollout,
    /// Nothing: title and the like are lost.
    Nothing,
}

/// Where a thread stood, as its own row said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    pub(crate) head: Option<(ItemKey, Vec<u8>)>,
    pub(crate) fork: Option<ItemKey>,
    pub(crate) open_turn: Option<i64>,
    pub(crate) items: u64,
}

/// A new database that takes in what verifies.
pub(crate) struct Admission<'a> {
    pub(crate) connection: &'a Connection,
    salvage: &'a Salvage,
    rollouts: &'a HashMap<ThreadId, Rollout>,
    hints: BTreeMap<i64, Vec<BranchHint>>,
    purged: HashSet<ThreadId>,
    /// Rollouts that said something else than what is here, and why no more was taken of them.
    refused: BTreeMap<ThreadId, String>,
    pub(crate) described: BTreeMap<ThreadId, Described>,
    pub(crate) standings: BTreeMap<ThreadId, Standing>,
    pub(crate) from_rollouts: BTreeMap<ThreadId, u64>,
    store: uuid::Uuid,
    now: Timestamp,
}

impl<'a> Admission<'a> {
    /// Takes in what no chain binds: writers, workspaces, threads, seals, payloads. `store` is the id of a store that can't say its
    /// own.
    pub(crate) fn begin(
        connection: &'a Connection,
        salvage: &'a Salvage,
        rollouts: &'a HashMap<ThreadId, Rollout>,
        store: uuid::Uuid,
        now: Timestamp,
    ) -> Result<Self> {
        for table in [
            "facts",
            "counters",
            "writers",
            "workspaces",
            "workspace_keys",
            "threads",
            "seals",
            "purges",
            "redactions",
            "seal_heads",
        ] {
            salvage.fill(connection, table)?;
        }
        let mut admission = Self {
            connection,
            salvage,
            rollouts,
            hints: BTreeMap::new(),
            purged: HashSet::new(),
            refused: BTreeMap::new(),
            described: BTreeMap::new(),
            standings: BTreeMap::new(),
            from_rollouts: BTreeMap::new(),
            store,
            now,
        };
        admission.settle(store)?;
        admission.take_payloads()?;
        admission.read_hints()?;
        Ok(admission)
    }

    fn tx(&self) -> SqliteTx<'a> {
        SqliteTx { connection: self.connection }
    }

    fn settle(&mut self, store: uuid::Uuid) -> Result<()> {
        let tx = &mut self.tx();
        tx.execute(PUT_FACT, &["store-id".into(), Value::Blob(store.as_bytes())])?;
        let known = query_one(tx, STORE_ID, &[], |row| Ok(uuid::Uuid::from_slice(row.blob(0)?).ok()))?.flatten();
        self.store = known.unwrap_or(store);
        for workspace in query_all(tx, LACKING_WORKSPACES, &[], |row| row.owned(0))? {
            tx.execute(MAKE_WORKSPACE, &[workspace.value()])?;
        }
        self.purged =
            query_all(tx, PURGED, &[], |row| Ok(ThreadId::new(row.text(0)?).ok()))?.into_iter().flatten().collect();
        let standings = query_all(tx, STANDINGS, &[], |row| {
            let standing = Standing {
                head: row.opt_int(1)?.map(ItemKey).zip(row.opt_blob(2)?.map(<[u8]>::to_vec)),
                fork: row.opt_int(3)?.map(ItemKey),
                open_turn: row.opt_int(4)?,
                items: u64::try_from(row.int(5)?).unwrap_or(0),
            };
            Ok(ThreadId::new(row.text(0)?).ok().map(|thread| (thread, standing)))
        })?;
        self.standings = standings.into_iter().flatten().collect();
        self.described = self.standings.keys().map(|thread| (thread.clone(), Described::Database)).collect();
        tx.execute(FORGET_STANDINGS, &[]).map(drop)
    }

    /// Payloads prove themselves: they are stored under the hash of their bytes.
    fn take_payloads(&self) -> Result<()> {
        let tx = &mut self.tx();
        self.salvage.rows("blobs", &mut |row| {
            let [Owned::Blob(digest), Owned::Int(size), Owned::Int(encoding), Owned::Blob(data)] = row.as_slice()
            else {
                return Ok(());
            };
            let whole = content::decode_blob(*encoding, usize::try_from(*size).unwrap_or(0), data);
            if whole.is_ok_and(|bytes| Hash::of(&bytes).0.as_slice() == digest) {
                let args = [Value::Blob(digest), (*size).into(), (*encoding).into(), Value::Blob(data)];
                tx.execute(PUT_BLOB, &args)?;
            }
            Ok(())
        })
    }

    fn read_hints(&mut self) -> Result<()> {
        let mut hints: BTreeMap<i64, Vec<BranchHint>> = BTreeMap::new();
        self.salvage.rows("branches", &mut |row| {
            let [
                Owned::Int(number),
                Owned::Text(thread),
                _,
                parent,
                Owned::Int(base),
                _,
                _,
                label,
                Owned::Int(cleared),
                Owned::Int(created_at),
            ] = row.as_slice()
            else {
                return Ok(());
            };
            let (Ok(thread), Ok(base)) = (ThreadId::new(thread), u32::try_from(*base)) else { return Ok(()) };
            let parent = if let Owned::Int(parent) = parent { Some(ItemKey(*parent)) } else { None };
            let label = if let Owned::Text(label) = label { Some(label.clone()) } else { None };
            let (cleared, created_at) = (*cleared & 1, *created_at);
            hints.entry(*number).or_default().push(BranchHint { thread, parent, base, label, cleared, created_at });
            Ok(())
        })?;
        let found = self.salvage.branches()?.into_iter().map(|(number, ..)| number);
        let numbers = hints.keys().copied().chain(found).chain(self.named_branches()?);
        if let Some(greatest) = numbers.filter(|number| (1..MOST_BRANCHES).contains(number)).max() {
            // What rollouts bring gets no number by which other rows still name what is lost or to come.
            self.tx().execute(KEEP_NUMBERS, &[greatest.into()])?;
        }
        self.hints = hints;
        Ok(())
    }

    /// The branches that rows of other tables name.
    fn named_branches(&self) -> Result<BTreeSet<i64>> {
        let heads = self.standings.values().flat_map(|standing| {
            let head = standing.head.as_ref().map(|(head, _)| head.branch());
            head.into_iter().chain(standing.fork.map(ItemKey::branch))
        });
        let mut named: BTreeSet<i64> = heads.collect();
        for (table, column) in [("turns", 4), ("segments", 3), ("branches", 3)] {
            self.salvage.rows(table, &mut |row| {
                if let Some(Owned::Int(item)) = row.get(column) {
                    named.insert(ItemKey(*item).branch());
                }
                Ok(())
            })?;
        }
        Ok(named)
    }

    /// Takes in items until neither the pages nor the rollouts have one that follows from what is here.
    pub(crate) fn take_items(&mut self) -> Result<()> {
        let branches = self.salvage.branches()?;
        loop {
            let mut taken = 0;
            for (number, first, last) in &branches {
                taken += self.take_branch(*number, *first, *last)?;
            }
            taken += self.take_rollouts()?;
            if taken == 0 {
                return Ok(());
            }
        }
    }

    fn take_branch(&mut self, number: i64, first: u32, last: u32) -> Result<u64> {
        let here = query_one(&mut self.tx(), BRANCH_HERE, &[number.into()], |row| {
            let thread = row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")?;
            Ok((thread, path::depth(row, 2)?, row.parse(3, Hash::from_slice(row.blob(3)?), "a hash")?))
        })?;
        let (thread, mut tip, mut hash, mut taken) = match here {
            Some((thread, tip, hash)) => (thread, tip, hash, 0),
            None => match self.begin_branch(number, first)? {
                Some((thread, base, hash)) => (thread, base, hash, 1),
                None => return Ok(0),
            },
        };
        while tip < last {
            let Some(next) = self.admit(&thread, ItemKey::new(number, tip + 1), hash)? else { break };
            (tip, hash, taken) = (tip + 1, next, taken + 1);
        }
        if taken > 0 {
            append::record_tip(&mut self.tx(), ItemKey::new(number, tip), hash)?;
        }
        Ok(taken)
    }

    /// Begins a branch with its first item: as its row says, or, when the row is lost or does not fit, wherever the item follows.
    fn begin_branch(&mut self, number: i64, first: u32) -> Result<Option<(ThreadId, u32, Hash)>> {
        let known: Vec<BranchHint> = self.hints.get(&number).cloned().unwrap_or_default();
        for hint in &known {
            let parent = match hint.parent {
                None => Some(chain::genesis(&hint.thread)),
                Some(parent) => path::link_at(&mut self.tx(), parent)?.map(|(hash, _)| hash),
            };
            let Some(parent) = parent else { continue };
            if let Some(hash) = self.begin_at(number, hint, parent)? {
                return Ok(Some((hint.thread.clone(), hint.base, hash)));
            }
        }
        // A row whose parent is still to come is no lost row.
        if known.iter().any(|hint| hint.parent.is_some() && hint.base == first) {
            return Ok(None);
        }
        self.begin_anywhere(number, first, known.first())
    }

    fn begin_anywhere(
        &mut self,
        number: i64,
        first: u32,
        known: Option<&BranchHint>,
    ) -> Result<Option<(ThreadId, u32, Hash)>> {
        let parents: Vec<Option<(ItemKey, Hash)>> = match first.checked_sub(1) {
            None => vec![None],
            Some(before) => {
                let found = query_all(&mut self.tx(), AT_DEPTH, &[i64::from(before).into()], |row| {
                    Ok((ItemKey(row.int(0)?), row.parse(1, Hash::from_slice(row.blob(1)?), "a hash")?))
                })?;
                found.into_iter().map(Some).collect()
            }
        };
        for thread in self.known_threads()? {
            for parent in &parents {
                let hint = BranchHint {
                    thread: thread.clone(),
                    parent: parent.map(|(key, _)| key),
                    base: first,
                    label: known.and_then(|hint| hint.label.clone()),
                    cleared: known.map_or(0, |hint| hint.cleared),
                    created_at: known.map_or(0, |hint| hint.created_at),
                };
                let hash = parent.map_or_else(|| chain::genesis(&thread), |(_, hash)| hash);
                if let Some(hash) = self.begin_at(number, &hint, hash)? {
                    return Ok(Some((thread, first, hash)));
                }
            }
        }
        Ok(None)
    }

    /// Every thread of which anything is known.
    fn known_threads(&self) -> Result<BTreeSet<ThreadId>> {
        let here = query_all(&mut self.tx(), ALL_THREADS, &[], |row| Ok(ThreadId::new(row.text(0)?).ok()))?;
        let mut known: BTreeSet<ThreadId> = here.into_iter().flatten().collect();
        known.extend(self.hints.values().flatten().map(|hint| hint.thread.clone()));
        known.extend(self.rollouts.keys().cloned());
        self.salvage.rows("seal_heads", &mut |row| {
            if let Some(Owned::Text(thread)) = row.get(1) {
                known.extend(ThreadId::new(thread).ok());
            }
            Ok(())
        })?;
        known.retain(|thread| !self.purged.contains(thread));
        Ok(known)
    }

    fn begin_at(&mut self, number: i64, hint: &BranchHint, parent: Hash) -> Result<Option<Hash>> {
        let key = ItemKey::new(number, hint.base);
        for row in self.rows_at(key)? {
            let Some(Owned::Blob(id)) = row.get(1) else { continue };
            self.savepoint("SAVEPOINT branch")?;
            let begun = self.try_begin(number, hint, parent, id, &row)?;
            self.savepoint(if begun.is_some() { "RELEASE branch" } else { "ROLLBACK TO branch; RELEASE branch" })?;
            if begun.is_some() {
                return Ok(begun);
            }
        }
        Ok(None)
    }

    fn try_begin(
        &mut self,
        number: i64,
        hint: &BranchHint,
        parent: Hash,
        id: &[u8],
        row: &[Owned],
    ) -> Result<Option<Hash>> {
        let is_new = self.make_thread(&hint.thread)?;
        let tx = &mut self.tx();
        let args = [
            number.into(),
            hint.thread.as_str().into(),
            Value::Blob(id),
            hint.parent.map(|key| key.0).into(),
            i64::from(hint.base).into(),
            Value::Blob(&parent.0),
            hint.label.as_deref().into(),
            hint.cleared.into(),
            hint.created_at.into(),
        ];
        if !fits(tx.execute(PUT_BRANCH, &args))? {
            return Ok(None);
        }
        let key = ItemKey::new(number, hint.base);
        let hash = self.admit_row(&hint.thread, key, parent, row)?;
        if let Some(hash) = hash {
            append::record_tip(&mut self.tx(), key, hash)?;
            if is_new {
                self.described.insert(hint.thread.clone(), Described::Nothing);
            }
        }
        Ok(hash)
    }

    /// Makes a thread of which the row is lost, in the project that is said to be recovered.
    fn make_thread(&self, thread: &ThreadId) -> Result<bool> {
        let tx = &mut self.tx();
        if query_one(tx, IS_THREAD, &[thread.as_str().into()], |_| Ok(()))?.is_some() {
            return Ok(false);
        }
        let workspace = unknown_workspace();
        tx.execute(MAKE_WORKSPACE, &[Value::Blob(workspace.as_bytes())])?;
        self.put_thread(tx, thread, workspace, (0, "idle"))?;
        Ok(true)
    }

    fn put_thread(
        &self,
        tx: &mut dyn Tx,
        thread: &ThreadId,
        workspace: WorkspaceId,
        stands: (i64, &str),
    ) -> Result<()> {
        let tick = query_one(tx, TOP_TICK, &[], |row| row.int(0))?.unwrap_or(0) + 1;
        let epoch = crate::threads::first_epoch(tx)?;
        let args = [
            thread.as_str().into(),
            Value::Blob(workspace.as_bytes()),
            stands.0.into(),
            stands.1.into(),
            epoch.into(),
            tick.into(),
            self.now.0.into(),
        ];
        tx.execute(MAKE_THREAD, &args).map(drop)
    }

    /// Lets one of the rows in that stand at a key, if one follows from this parent.
    fn admit(&self, thread: &ThreadId, key: ItemKey, parent: Hash) -> Result<Option<Hash>> {
        for row in self.rows_at(key)? {
            if let Some(hash) = self.admit_row(thread, key, parent, &row)? {
                return Ok(Some(hash));
            }
        }
        Ok(None)
    }

    /// The rows that stand at a key. What was taken away on purpose does not come back from an older page.
    fn rows_at(&self, key: ItemKey) -> Result<Vec<Vec<Owned>>> {
        let mut rows = self.salvage.items(key)?;
        let is_redacted = |row: &Vec<Owned>| matches!(row.get(ENCODING), Some(Owned::Int(encoding)) if content::is_redacted(*encoding));
        if rows.iter().any(is_redacted) {
            rows.retain(is_redacted);
        }
        Ok(rows)
    }

    fn admit_row(&self, thread: &ThreadId, key: ItemKey, parent: Hash, row: &[Owned]) -> Result<Option<Hash>> {
        let Some(Owned::Int(writer)) = row.get(6) else { return Ok(None) };
        let is_known = query_one(&mut self.tx(), WRITER_HERE, &[(*writer).into()], |_| Ok(()))?.is_some();
        if is_known {
            return self.try_row(thread, key, parent, row);
        }
        for id in self.possible_writers(*writer)? {
            self.savepoint("SAVEPOINT writer")?;
            let machine = format!("writer {id} of a repaired store");
            let args = [(*writer).into(), Value::Blob(id.as_bytes()), machine.as_str().into()];
            let admitted = match fits(self.tx().execute(MAKE_WRITER, &args))? {
                true => self.try_row(thread, key, parent, row)?,
                false => None,
            };
            self.savepoint(if admitted.is_some() { "RELEASE writer" } else { "ROLLBACK TO writer; RELEASE writer" })?;
            if admitted.is_some() {
                return Ok(admitted);
            }
        }
        Ok(None)
    }

    /// Who may have this number, where the row that says it is lost: an item's hash tells.
    fn possible_writers(&self, number: i64) -> Result<Vec<WriterId>> {
        let indexed = self.salvage.ids_of(number)?;
        let mut ids: Vec<WriterId> = indexed.iter().filter_map(|id| WriterId::from_slice(id)).collect();
        let named = self.rollouts.values().flat_map(|rollout| rollout.metadata.writers.iter().map(|writer| writer.id));
        ids.extend(named);
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(*id));
        Ok(ids)
    }

    fn try_row(&self, thread: &ThreadId, key: ItemKey, parent: Hash, row: &[Owned]) -> Result<Option<Hash>> {
        let Some(id) = row.get(1).and_then(|id| if let Owned::Blob(id) = id { ItemId::from_slice(id) } else { None })
        else {
            return Ok(None);
        };
        self.savepoint("SAVEPOINT item")?;
        let admitted = self.check_row(thread, key, parent, id, row)?;
        self.savepoint(if admitted.is_some() { "RELEASE item" } else { "ROLLBACK TO item; RELEASE item" })?;
        Ok(admitted)
    }

    fn check_row(
        &self,
        thread: &ThreadId,
        key: ItemKey,
        parent: Hash,
        id: ItemId,
        row: &[Owned],
    ) -> Result<Option<Hash>> {
        let tx = &mut self.tx();
        let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
        if !fits(append::insert_row(tx, id, &values).map(|()| 1))? {
            return Ok(None);
        }
        let checked = query_one(tx, CHECKED_ITEM, &[key.0.into()], |row| Ok(read_checked(row)))?;
        let Some(Ok(mut checked)) = checked else { return Ok(None) };
        checked.load_rest(tx)?;
        if checked.check(thread, key.depth(), parent).is_some() {
            return Ok(None);
        }
        let stored = query_one(tx, STORED_PAYLOADS, &[key.0.into()], |row| {
            let size = usize::try_from(row.int(1)?).unwrap_or(usize::MAX);
            content::payloads(row.int(0)?, size, row.opt_blob(2)?.unwrap_or_default())
        })?;
        for digest in stored.unwrap_or_default() {
            tx.execute(LINK_PAYLOAD, &[key.0.into(), Value::Blob(&digest.0)])?;
        }
        if let Some(Owned::Text(format)) = row.get(FORMAT) {
            match receipts::index_stored(tx, thread, key, (id, format)) {
                // Verification would say the same of it.
                Err(Error::Corrupt { .. }) => return Ok(None),
                indexed => indexed?,
            }
        }
        Ok(Some(checked.hash))
    }

    fn savepoint(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(engine_error)
    }

    /// Takes from rollouts what follows from what is here; says how many items that were.
    fn take_rollouts(&mut self) -> Result<u64> {
        let mut taken = 0;
        let mut rollouts: Vec<(&ThreadId, &Rollout)> = self.rollouts.iter().collect();
        // Those that were changed first get the first places in the order of threads.
        rollouts.sort_by_key(|(thread, rollout)| (rollout.metadata.number("updated_at"), (*thread).clone()));
        for (thread, rollout) in rollouts {
            if self.purged.contains(thread) {
                continue;
            }
            self.savepoint("SAVEPOINT rollout")?;
            match self.take_rollout(thread, rollout) {
                Ok(count) => {
                    self.savepoint("RELEASE rollout")?;
                    taken += count;
                    *self.from_rollouts.entry(thread.clone()).or_default() += count;
                }
                Err(error) => {
                    self.savepoint("ROLLBACK TO rollout; RELEASE rollout")?;
                    if matches!(error, Error::StorageFull { .. }) {
                        return Err(error);
                    }
                    self.refused.insert(thread.clone(), error.to_string());
                }
            }
        }
        Ok(taken)
    }

    fn take_rollout(&mut self, thread: &ThreadId, rollout: &Rollout) -> Result<u64> {
        self.describe(thread, rollout)?;
        let tx = &mut self.tx();
        let Some(here) = rows::snapshot(tx, thread)? else { return Ok(0) };
        let mut taken = 0;
        for missing in rollout.snapshot.missing_in(&here)? {
            // What it continues may be still to come.
            let parent = missing.branch.parent().filter(|_| missing.next == missing.branch.base);
            if let Some((address, hash)) = parent
                && !self.is_here(address, hash)?
            {
                continue;
            }
            taken += self.take_missing(thread, &here, rollout, missing)?;
        }
        Ok(taken)
    }

    fn is_here(&self, address: Address, hash: Hash) -> Result<bool> {
        let tx = &mut self.tx();
        let Some((key, _)) = path::key_of(tx, address)? else { return Ok(false) };
        Ok(path::link_at(tx, key)?.is_some_and(|(found, _)| found == hash))
    }

    fn take_missing(
        &mut self,
        thread: &ThreadId,
        here: &Snapshot,
        rollout: &Rollout,
        missing: Missing<'_>,
    ) -> Result<u64> {
        let branch: &BranchRow = missing.branch;
        let (mut next, mut after, mut taken) = (missing.next, missing.after, 0);
        while next <= branch.tip {
            let page = rollout.items(Missing { branch, next, after })?;
            let Some((behind, hash)) = page.end() else { break };
            if next == branch.base {
                self.begin_as_numbered(thread, branch)?;
            }
            let tx = &mut self.tx();
            for item in page.with_content() {
                if records::redaction_of(tx, item)?.is_some() {
                    let found = format!("a rollout that still has it (item {item}): mirror the thread anew");
                    return Err(Error::Conflict {
                        what: "redaction",
                        expected: "content that was taken away".to_owned(),
                        found,
                    });
                }
            }
            rows::put_items(tx, self.store, (thread, here.epoch), &page, From::OF_ROLLOUTS)?;
            taken += page.len();
            (next, after) = (behind, Some(hash));
        }
        Ok(taken)
    }

    /// Gives a branch the number that it had, where the pages still say so: other rows know its items by it.
    fn begin_as_numbered(&self, thread: &ThreadId, branch: &BranchRow) -> Result<()> {
        let tx = &mut self.tx();
        let mut number = None;
        self.salvage.rows("branches", &mut |row| {
            if let [Owned::Int(key), _, Owned::Blob(id), ..] = row.as_slice()
                && id == branch.id.as_bytes()
            {
                number = number.or(Some(*key));
            }
            Ok(())
        })?;
        let found = self.salvage.keys_of(branch.id.as_bytes())?;
        let first = found.into_iter().map(ItemKey).find(|key| key.depth() == branch.base).map(ItemKey::branch);
        let Some(number) = number.or(first).filter(|number| (1..=i64::from(i32::MAX)).contains(number)) else {
            return Ok(());
        };
        if query_one(tx, BRANCH_HERE, &[number.into()], |_| Ok(()))?.is_some() {
            return Ok(());
        }
        let parent = match branch.parent() {
            None => None,
            Some((address, _)) => path::key_of(tx, address)?.map(|(key, _)| key.0),
        };
        let (label, cleared) = branch.marks();
        let args = [
            number.into(),
            thread.as_str().into(),
            Value::Blob(branch.id.as_bytes()),
            parent.into(),
            i64::from(branch.base).into(),
            Value::Blob(&branch.tip_hash.0),
            label.into(),
            i64::from(cleared).into(),
            branch.created_at().0.into(),
        ];
        tx.execute(PUT_BRANCH, &args).map(drop)
    }

    /// Makes a thread that only its rollout knows, and describes one whose row was lost as the rollout does.
    fn describe(&mut self, thread: &ThreadId, rollout: &Rollout) -> Result<()> {
        if matches!(self.described.get(thread), Some(Described::Database | Described::Rollout)) {
            return Ok(());
        }
        let tx = &mut self.tx();
        let is_stub = rollout.snapshot.shelf == 3;
        let workspace = workspaces::adopt(tx, &rollout.metadata.workspace.info())?;
        if query_one(tx, IS_THREAD, &[thread.as_str().into()], |_| Ok(()))?.is_none() {
            let stands = if is_stub { (3, "completed") } else { (0, "idle") };
            self.put_thread(tx, thread, workspace, stands)?;
        }
        if !is_stub {
            rows::put_metadata(tx, thread, workspace, &rollout.metadata.metadata()?)?;
        }
        self.described.insert(thread.clone(), Described::Rollout);
        Ok(())
    }

    /// The last item that is left on the way from the root to a place: on its own branch, else on the one that this continued.
    pub(crate) fn nearest(&self, place: ItemKey) -> Result<Option<(ItemKey, Hash)>> {
        let (mut next, mut seen) = (Some(place), BTreeSet::new());
        while let Some(place) = next.filter(|place| seen.insert(place.branch())) {
            let tx = &mut self.tx();
            if let Some((base, tip)) = extent(tx, place.branch())? {
                let last = ItemKey::new(place.branch(), tip.min(place.depth()).max(base));
                return Ok(path::link_at(tx, last)?.map(|(hash, _)| (last, hash)));
            }
            let hints = self.hints.get(&place.branch());
            next = hints.and_then(|hints| hints.iter().find_map(|hint| hint.parent));
        }
        Ok(None)
    }

    /// Whose rollouts said something that does not go with what is here.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&ThreadId, &str)> {
        self.refused.iter().map(|(thread, reason)| (thread, reason.as_str()))
    }

    /// The number of the branch with this id here.
    pub(crate) fn branch_here(&self, branch: BranchId) -> Result<Option<i64>> {
        Ok(path::key_of(&mut self.tx(), Address { branch, depth: 0 })?.map(|(key, _)| key.branch()))
    }
}

/// Whether a row could be put: what goes against a rule of the schema is no error here.
fn fits(put: Result<usize>) -> Result<bool> {
    match put {
        Ok(_) => Ok(true),
        Err(Error::AlreadyExists { .. } | Error::Conflict { .. } | Error::Invalid { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The end of a branch here: where it begins, and the last depth.
pub(crate) fn extent(tx: &mut dyn Tx, number: i64) -> Result<Option<(u32, u32)>> {
    query_one(tx, BRANCH_HERE, &[number.into()], |row: &Row<'_>| Ok((path::depth(row, 1)?, path::depth(row, 2)?)))
}

/// Leaves out what belongs to no item.
pub(crate) fn drop_unused_payloads(tx: &mut dyn Tx) -> Result<()> {
    blobs::drop_unused(tx)
}
