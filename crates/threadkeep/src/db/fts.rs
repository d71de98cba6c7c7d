//! The search index of a store in a folder or in memory: FTS5 in a database of its own.
//!
//! It is no part of the store's database, so that indexing never holds the store's right to write, and nothing that happens to it
//! can harm the store. A file `current-N` names the database of this version's form; a new one gets a new name, since an
//! engine that closes a removed database removes the log by its name.
//!
//! Documents stand in shards of consecutive numbers. A document that is taken out takes its whole shard out: FTS5 keeps terms of what
//! is deleted in its segments, and can delete exactly only what it is told again word by word. The others of the shard keep
//! their numbers and wait to be added again.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

use crate::concurrency::{Mutex, thread};
use crate::db::index::{Batch, Behind, Changed, Document, Expr, Fit, Index, Progress, Standing, Subject, tip_columns};
use crate::db::pragmas::{self, Journal};
use crate::db::sqlite::{self, engine_error};
use crate::db::{Row, Tx, replace, statements};
use crate::error::{Error, Result};

/// The folder of the index in a store's folder.
pub(crate) const FOLDER: &str = "search";
/// The form of the index. Another version's is left to that version, an older one is removed.
const VERSION: u32 = 1;
/// `Tkix`: marks a database as an index.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"Tkix");
/// How many documents are in a shard.
const SHARD: i64 = 1 << 15;
/// How long readers are waited for whose state keeps the log from being emptied.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);
const READERS_KEPT: usize = 4;
/// How many letters a beginning of a word has that is too short to be looked up beside something else.
const SHORT: usize = 2;
const NAME_BYTES: u64 = 64;
/// How many rows say how far an index is.
const STATES: i64 = 3;

statements! {
    TIPS = concat!("SELECT ", tip_columns!(), " FROM branches b JOIN threads t ON t.id = b.thread ORDER BY b.key");
    TIPS_SINCE = concat!("SELECT ", tip_columns!(), " FROM threads t JOIN branches b ON b.thread = t.id
        WHERE t.updated >= ?1 ORDER BY b.key");
}

const SCHEMA: &str = "
    CREATE TABLE state (
      name  TEXT NOT NULL PRIMARY KEY,
      value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE documents (
      number     INTEGER NOT NULL PRIMARY KEY,
      item       INTEGER UNIQUE,
      thread     TEXT UNIQUE,
      stamp      INTEGER NOT NULL,
      is_missing INTEGER NOT NULL,
      CHECK ((item IS NULL) <> (thread IS NULL))
    ) STRICT;
    CREATE INDEX documents_missing ON documents (number) WHERE is_missing = 1;
    CREATE TABLE progress (
      branch INTEGER NOT NULL PRIMARY KEY,
      depth  INTEGER NOT NULL,
      hash   BLOB NOT NULL
    ) STRICT;
    CREATE TABLE shards (number INTEGER NOT NULL PRIMARY KEY) STRICT;
    INSERT INTO state (name, value) VALUES ('generation', abs(random() % 4611686018427387904)), ('records', 0), ('top', 0);";

/// The index of a store on this machine.
#[derive(Debug)]
pub(crate) struct SqliteIndex {
    place: Place,
    open: Mutex<Option<Arc<Open>>>,
    /// What is known of the progress of branches, in the generation in which it was read.
    known: Mutex<Option<Known>>,
}

/// The generation in which it was read, and the progress of branches.
type Known = (i64, Arc<HashMap<i64, Progress>>);

#[derive(Debug)]
enum Place {
    Memory,
    Folder { folder: PathBuf, journal: Journal, is_read_only: bool },
}

/// An open database.
#[derive(Debug)]
struct Open {
    /// Which file named it.
    pointer: Option<(u64, u64)>,
    path: PathBuf,
    /// Before the writer, so that they are closed first: only who may write brings the log into the database when it closes.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
    is_read_only: bool,
}

impl SqliteIndex {
    /// The index of a store in memory.
    pub(crate) fn in_memory() -> Self {
        Self::at(Place::Memory)
    }

    /// The index of the store in this folder. Nothing is made before something is asked of it.
    pub(crate) fn in_folder(folder: &Path, journal: Journal, is_read_only: bool) -> Self {
        Self::at(Place::Folder { folder: folder.join(FOLDER), journal, is_read_only })
    }

    /// Looks at the index of a store, writes nothing, and fails as [`Error::Corrupt`] where it is damaged. The lists in it are
    /// read when it is to be `full`; a list that is damaged so that it still can be read is not noticed.
    pub(crate) fn check(folder: &Path, full: bool) -> Result<()> {
        let index = Self::in_folder(folder, Journal::Wal, true);
        let Some((_, name)) = read_pointer(&folder.join(FOLDER))? else { return Ok(()) };
        let Some(open) = index.open()? else {
            return Err(Error::corrupt(folder.join(FOLDER).join(name).display().to_string(), "it is missing"));
        };
        if !full {
            return Ok(());
        }
        let told = open
            .read(|connection| connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0)))?;
        match told.as_str() {
            "ok" => Ok(()),
            _ => Err(Error::corrupt(open.path.display().to_string(), told)),
        }
    }

    fn at(place: Place) -> Self {
        Self { place, open: Mutex::default(), known: Mutex::default() }
    }

    /// The database that is the index now; `None` where there is none and none can be made.
    fn open(&self) -> Result<Option<Arc<Open>>> {
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Place::Folder { folder, journal, is_read_only } = &self.place else {
            if slot.is_none() {
                *slot = Some(Arc::new(Open::in_memory()?));
            }
            return Ok(slot.clone());
        };
        let named = read_pointer(folder)?;
        if let (Some(open), Some((id, _))) = (&*slot, &named)
            && open.pointer == Some(*id)
        {
            return Ok(slot.clone());
        }
        *slot = None;
        if let Some((id, name)) = named
            && let Some(open) = Open::existing(&folder.join(name), id, *is_read_only)?
        {
            *slot = Some(Arc::new(open));
        } else if !*is_read_only {
            *slot = Some(Arc::new(Open::fresh(folder, *journal)?));
        }
        Ok(slot.clone())
    }

    /// Runs something on a connection that reads; the default where there is no index.
    fn read<T: Default>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let Some(open) = self.open()? else { return Ok(T::default()) };
        open.read(run)
    }

    fn progress(&self, generation: i64) -> Result<Arc<HashMap<i64, Progress>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read_in, progress)) = &*known
            && *read_in == generation
        {
            return Ok(Arc::clone(progress));
        }
        let progress = Arc::new(self.read(read_progress)?);
        *known = Some((generation, Arc::clone(&progress)));
        Ok(progress)
    }
}

impl Index for SqliteIndex {
    fn check(&self) -> Result<()> {
        self.standing()?;
        self.read(read_progress)?;
        self.titles()?;
        self.missing(usize::MAX).map(drop)
    }

    fn exists(&self) -> Result<bool> {
        match &self.place {
            Place::Memory => Ok(self.open.lock().unwrap_or_else(PoisonError::into_inner).is_some()),
            Place::Folder { folder, .. } => Ok(read_pointer(folder)?.is_some()),
        }
    }

    fn standing(&self) -> Result<Standing> {
        self.read(standing)
    }

    fn behind(&self, tx: &mut dyn Tx, since: Option<i64>, most: usize) -> Result<Vec<Behind>> {
        let progress = self.progress(self.standing()?.generation)?;
        let mut behind = Vec::new();
        let mut seen = BTreeSet::new();
        let mut look = |row: &Row<'_>| {
            let (branch, depth) = (row.int(0)?, row.int(1)?);
            let is = progress.get(&branch).copied();
            let is_in_step =
                is.is_some_and(|is| i64::from(is.depth) == depth && row.blob(2).is_ok_and(|hash| hash == is.hash));
            if since.is_none() {
                seen.insert(branch);
            }
            if !is_in_step {
                behind.push(Behind { branch, is, tip: Some(branch << 32 | depth) });
            }
            Ok(std::ops::ControlFlow::Continue(()))
        };
        match since {
            Some(since) => tx.query(TIPS_SINCE, &[since.into()], &mut look)?,
            None => tx.query(TIPS, &[], &mut look)?,
        }
        if since.is_none() {
            let gone = progress.values().filter(|is| !seen.contains(&is.branch));
            behind.extend(gone.map(|is| Behind { branch: is.branch, is: Some(*is), tip: None }));
            behind.sort_unstable_by_key(|it| it.branch);
        }
        behind.truncate(most);
        Ok(behind)
    }

    fn holds(&self, item: i64) -> Result<bool> {
        self.read(|connection| connection.prepare_cached("SELECT 1 FROM documents WHERE item = ?1")?.exists([item]))
    }

    fn missing(&self, most: usize) -> Result<Vec<(i64, Subject)>> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read(|connection| {
            let sql = "SELECT number, item, thread FROM documents WHERE is_missing = 1 ORDER BY number DESC LIMIT ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([most], |row| Ok((row.get(0)?, subject(row, 1)?)))?;
            rows.collect()
        })
    }

    fn change(&self, generation: i64, batch: &Batch) -> Result<Changed> {
        let Some(open) = self.open()? else { return Ok(Changed::Busy) };
        if open.is_read_only {
            return Ok(Changed::Busy);
        }
        let mut writer = open.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = match writer.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(transaction) => transaction,
            Err(error) => {
                return match refused(error, &open.path) {
                    Error::Busy { .. } => Ok(Changed::Busy),
                    error => Err(error),
                };
            }
        };
        let failed = |error| refused(error, &open.path);
        let stands = standing(&transaction).map_err(failed)?;
        if stands.generation != generation {
            return Ok(Changed::Busy);
        }
        apply(&transaction, batch, stands).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        self.learn(generation, batch);
        Ok(Changed::Yes)
    }

    fn find(&self, expr: &Expr, upto: i64, most: usize) -> Result<Vec<Fit>> {
        let (expr, is_doubtful) = without_short_beginnings(expr);
        let Some(question) = question(&expr) else { return Ok(Vec::new()) };
        self.read(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let mut fits = Vec::new();
            for shard in shards_down(&transaction, upto)? {
                if fits.len() >= most {
                    break;
                }
                find_in(&transaction, shard, &question, upto, most - fits.len(), &mut fits)?;
            }
            fits.iter_mut().for_each(|fit| fit.is_doubtful = is_doubtful);
            Ok(fits)
        })
    }

    fn titles(&self) -> Result<Vec<(String, i64)>> {
        self.read(|connection| {
            let sql = "SELECT thread, stamp FROM documents WHERE thread IS NOT NULL AND is_missing = 0";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
    }

    fn title_stamp(&self, thread: &str) -> Result<Option<i64>> {
        self.read(|connection| {
            let sql = "SELECT stamp FROM documents WHERE thread = ?1 AND is_missing = 0";
            connection.prepare_cached(sql)?.query_row([thread], |row| row.get(0)).optional()
        })
    }

    fn clear(&self) -> Result<()> {
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = None;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match &self.place {
            Place::Memory => Ok(()),
            Place::Folder { is_read_only: true, .. } => {
                Err(Error::ReadOnly { detail: "it was opened for reading only".to_owned() })
            }
            Place::Folder { folder, journal, .. } => {
                *slot = Some(Arc::new(Open::fresh(folder, *journal)?));
                Ok(())
            }
        }
    }

    fn erase(&self) -> Result<Vec<String>> {
        let Some(open) = self.open()? else { return Ok(Vec::new()) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let writer = open.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            let is_busy = match writer.query_row(sql, [], |row| row.get::<_, i64>(0)) {
                Ok(busy) => busy != 0,
                Err(error) => match refused(error, &open.path) {
                    Error::Busy { .. } => true,
                    error => return Err(error),
                },
            };
            drop(writer);
            if !is_busy {
                return Ok(Vec::new());
            }
            if Instant::now() >= deadline {
                let words = "another program reads it; redact --finish once it has ended";
                return Ok(vec![format!("the log of {}: {words}", open.path.display())]);
            }
            thread::sleep(STEP);
        }
    }

    fn bytes(&self) -> Result<u64> {
        let Some(open) = self.open()? else { return Ok(0) };
        let size = |suffix: &str| std::fs::metadata(sqlite::beside(&open.path, suffix)).map_or(0, |meta| meta.len());
        Ok(["", "-wal"].into_iter().map(size).sum())
    }
}

impl SqliteIndex {
    /// Follows a change of one's own in what is known.
    fn learn(&self, generation: i64, batch: &Batch) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *known {
            Some((read_in, progress)) if *read_in == generation => {
                *read_in += 1;
                let progress = Arc::make_mut(progress);
                progress.retain(|branch, _| !batch.ended.contains(branch));
                progress.extend(batch.reached.iter().map(|reached| (reached.branch, *reached)));
            }
            _ => *known = None,
        }
    }
}

impl Open {
    fn in_memory() -> Result<Self> {
        let connection = Connection::open_in_memory().map_err(engine_error)?;
        configure(&connection, Journal::Memory)?;
        make(&connection)?;
        let (path, readers) = (PathBuf::from("the search index in memory"), Mutex::default());
        Ok(Self { pointer: None, path, writer: Mutex::new(connection), readers, is_read_only: false })
    }

    /// Opens what a pointer names; `None` when it is not there.
    fn existing(path: &Path, pointer: (u64, u64), is_read_only: bool) -> Result<Option<Self>> {
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            return Ok(None);
        }
        let path = sqlite::real_file(path)?;
        let connection = connect(&path, is_read_only)?;
        check(&connection).map_err(|error| refused(error, &path))?;
        let (path, readers) = (path.clone(), Mutex::default());
        Ok(Some(Self { pointer: Some(pointer), path, writer: Mutex::new(connection), readers, is_read_only }))
    }

    /// Makes an empty index, names it, and removes those that were named before.
    fn fresh(folder: &Path, journal: Journal) -> Result<Self> {
        sqlite::create_own_folder(folder)?;
        let name = format!("{}.db", random_name());
        let path = sqlite::real_file(&folder.join(&name))?;
        replace::new_file(&path).map_err(|error| Error::io("create", &path, &error))?;
        let connection = connect(&path, false)?;
        if journal == Journal::Wal {
            pragmas::set_journal(&connection, journal)?;
        }
        configure(&connection, journal)?;
        make(&connection)?;
        write_pointer(folder, &name)?;
        // Somebody else's came in between, or it was taken away: the next call sees that.
        let pointer = read_pointer(folder)?.filter(|(_, named)| *named == name).map(|(id, _)| id);
        remove_others(folder, &name)?;
        Ok(Self { pointer, path, writer: Mutex::new(connection), readers: Mutex::default(), is_read_only: false })
    }

    fn read<T>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let failed = |error| refused(error, &self.path);
        if self.pointer.is_none() {
            return run(&self.writer.lock().unwrap_or_else(PoisonError::into_inner)).map_err(failed);
        }
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => connect(&self.path, true)?,
        };
        let outcome = run(&connection).map_err(failed)?;
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_KEPT {
            readers.push(connection);
        }
        Ok(outcome)
    }
}

fn connect(path: &Path, is_read_only: bool) -> Result<Connection> {
    let access = if is_read_only { OpenFlags::SQLITE_OPEN_READ_ONLY } else { OpenFlags::SQLITE_OPEN_READ_WRITE };
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| refused(error, path))?;
    configure(&connection, Journal::Wal).map_err(|error| as_damage(error, path))?;
    Ok(connection)
}

/// What is lost in a power cut is made anew, so nothing is synced for it; what is there is whole.
fn configure(connection: &Connection, journal: Journal) -> Result<()> {
    pragmas::configure(connection)?;
    let level = if journal == Journal::Wal { "NORMAL" } else { "FULL" };
    connection.pragma_update(None, "synchronous", level).map_err(engine_error)?;
    // Who finds somebody else changing it has nothing to wait for.
    connection.busy_timeout(Duration::ZERO).map_err(engine_error)
}

fn make(connection: &Connection) -> Result<()> {
    let make = || {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()
    };
    make().map_err(engine_error)
}

/// Whether the database is an index of this form; fails as damage where not.
fn check(connection: &Connection) -> rusqlite::Result<()> {
    let damaged = |words: &str| {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        Err(rusqlite::Error::SqliteFailure(failure, Some(words.to_owned())))
    };
    let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    if (pragma("application_id")?, pragma("user_version")?) != (i64::from(APPLICATION_ID), i64::from(VERSION)) {
        return damaged("it is no search index");
    }
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    if count("SELECT count(*) FROM state")? != STATES {
        return damaged("it does not say how far it is");
    }
    count("SELECT count(*) FROM (SELECT 1 FROM progress LIMIT 1)")?;
    // Where FTS5 has lost its list of pages it finds nothing, and says nothing.
    for shard in shards_down(connection, i64::MAX)? {
        let (first, last) = (shard * SHARD, shard * SHARD + SHARD - 1);
        let asked = format!("SELECT count(*) FROM shard_{shard} WHERE shard_{shard} MATCH 'tags : \"-\"'");
        count(&asked)?;
        let pages = format!("SELECT count(*) FROM (SELECT 1 FROM shard_{shard}_idx LIMIT 1)");
        let documents =
            format!("SELECT count(*) FROM (SELECT 1 FROM documents WHERE number BETWEEN {first} AND {last} LIMIT 1)");
        if count(&pages)? == 0 || count(&documents)? == 0 {
            return damaged("a shard has lost its list of pages, or all its documents");
        }
    }
    Ok(())
}

/// What an error of the engine means here: an index that can't be asked is one that has to be made anew.
fn refused(error: rusqlite::Error, path: &Path) -> Error {
    as_damage(engine_error(error), path)
}

fn as_damage(error: Error, path: &Path) -> Error {
    match sqlite::name_place(error, path) {
        Error::Backend { detail }
        | Error::ForeignStore { detail, .. }
        | Error::Conflict { found: detail, .. }
        | Error::AlreadyExists { id: detail, .. } => Error::corrupt(path.display().to_string(), detail),
        other => other,
    }
}

fn standing(connection: &Connection) -> rusqlite::Result<Standing> {
    let mut standing = Standing::default();
    let mut statement = connection.prepare_cached("SELECT name, value FROM state")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let value = row.get(1)?;
        match row.get_ref(0)?.as_str()? {
            "records" => standing.records = value,
            "generation" => standing.generation = value,
            "top" => standing.top = value,
            _ => {}
        }
    }
    Ok(standing)
}

fn read_progress(connection: &Connection) -> rusqlite::Result<HashMap<i64, Progress>> {
    let mut statement = connection.prepare_cached("SELECT branch, depth, hash FROM progress")?;
    let rows = statement.query_map([], |row| {
        let progress = Progress { branch: row.get(0)?, depth: row.get(1)?, hash: row.get(2)? };
        Ok((progress.branch, progress))
    })?;
    rows.collect()
}

fn apply(connection: &Connection, batch: &Batch, stands: Standing) -> rusqlite::Result<()> {
    forget(connection, batch)?;
    let mut top = stands.top;
    let mut made = BTreeSet::new();
    for document in &batch.added {
        let number = document.number.unwrap_or(top + 1);
        top = top.max(number);
        add(connection, number, document, &mut made)?;
    }
    // What is full is not added to any more: one segment is quicker to look into than a dozen, and smaller.
    for shard in stands.top / SHARD..top / SHARD {
        if has_shard(connection, shard)? {
            connection.execute_batch(&format!("INSERT INTO shard_{shard} (shard_{shard}) VALUES ('optimize')"))?;
        }
    }
    for branch in &batch.ended {
        connection.prepare_cached("DELETE FROM progress WHERE branch = ?1")?.execute([branch])?;
    }
    for reached in &batch.reached {
        let sql = "INSERT INTO progress (branch, depth, hash) VALUES (?1, ?2, ?3)
            ON CONFLICT (branch) DO UPDATE SET depth = excluded.depth, hash = excluded.hash";
        connection.prepare_cached(sql)?.execute(params![reached.branch, reached.depth, reached.hash])?;
    }
    let mut put = connection.prepare_cached("UPDATE state SET value = ?2 WHERE name = ?1")?;
    put.execute(params!["top", top])?;
    put.execute(params!["generation", stands.generation + 1])?;
    if let Some(records) = batch.records {
        put.execute(params!["records", records])?;
    }
    Ok(())
}

/// Takes documents out, and with each the shard that it stands in.
fn forget(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    let mut shards = BTreeSet::new();
    for (from, to) in &batch.forgotten {
        let sql = "DELETE FROM documents WHERE item BETWEEN ?1 AND ?2 RETURNING number, is_missing";
        take_out(connection, sql, params![from, to], &mut shards)?;
    }
    for thread in &batch.forgotten_titles {
        let sql = "DELETE FROM documents WHERE thread = ?1 RETURNING number, is_missing";
        take_out(connection, sql, params![thread], &mut shards)?;
    }
    for shard in shards {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS shard_{shard}"))?;
        connection.execute("DELETE FROM shards WHERE number = ?1", [shard])?;
        let sql = "UPDATE documents SET is_missing = 1 WHERE number BETWEEN ?1 AND ?2";
        connection.execute(sql, [shard * SHARD, shard * SHARD + SHARD - 1])?;
    }
    Ok(())
}

fn take_out(
    connection: &Connection,
    sql: &str,
    args: impl rusqlite::Params,
    shards: &mut BTreeSet<i64>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(args)?;
    while let Some(row) = rows.next()? {
        // One that is missing has left nothing in a shard.
        if !row.get::<_, bool>(1)? {
            shards.insert(row.get::<_, i64>(0)? / SHARD);
        }
    }
    Ok(())
}

fn add(connection: &Connection, number: i64, document: &Document, made: &mut BTreeSet<i64>) -> rusqlite::Result<()> {
    let (item, thread) = match &document.subject {
        Subject::Item(key) => (Some(*key), None),
        Subject::Title(thread) => (None, Some(thread.as_str())),
    };
    let sql = "INSERT INTO documents (number, item, thread, stamp, is_missing) VALUES (?1, ?2, ?3, ?4, 0)
        ON CONFLICT (number) DO UPDATE SET stamp = excluded.stamp, is_missing = 0";
    let args = params![number, item, thread, document.stamp];
    connection.prepare_cached(sql)?.execute(args)?;
    let shard = number / SHARD;
    if made.insert(shard) {
        make_shard(connection, shard)?;
    }
    let terms = &document.terms;
    let sql = format!("INSERT INTO shard_{shard} (rowid, words, parts, tags) VALUES (?1, ?2, ?3, ?4)");
    connection.prepare_cached(&sql)?.execute(params![number, terms.words, terms.parts, terms.tags])?;
    Ok(())
}

/// Every term is what stands between two spaces: the tokenizer takes all that is not ASCII, and what we name, for letters.
fn make_shard(connection: &Connection, shard: i64) -> rusqlite::Result<()> {
    if connection.prepare_cached("INSERT OR IGNORE INTO shards (number) VALUES (?1)")?.execute([shard])? == 1 {
        connection.execute_batch(&format!(
            "CREATE VIRTUAL TABLE shard_{shard} USING fts5(words, parts, tags, content='', columnsize=0,
               tokenize=\"ascii tokenchars '_.:-%+#'\");
             INSERT INTO shard_{shard} (shard_{shard}, rank) VALUES ('automerge', 8);"
        ))?;
    }
    Ok(())
}

fn has_shard(connection: &Connection, shard: i64) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM shards WHERE number = ?1")?.exists([shard])
}

fn shards_down(connection: &Connection, upto: i64) -> rusqlite::Result<Vec<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT number FROM shards WHERE number <= ?1 ORDER BY number DESC")?;
    let rows = statement.query_map([upto.div_euclid(SHARD)], |row| row.get(0))?;
    rows.collect()
}

fn find_in(
    connection: &Connection,
    shard: i64,
    question: &str,
    upto: i64,
    most: usize,
    fits: &mut Vec<Fit>,
) -> rusqlite::Result<()> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT d.number, d.item, d.thread FROM
           (SELECT rowid AS number FROM shard_{shard} WHERE shard_{shard} MATCH ?1 AND rowid <= ?2
              ORDER BY rowid DESC LIMIT ?3) AS found
         JOIN documents d ON d.number = found.number ORDER BY d.number DESC"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![question, upto, most], |row| {
        Ok(Fit { number: row.get(0)?, subject: subject(row, 1)?, is_doubtful: false })
    })?;
    for fit in rows {
        fits.push(fit?);
    }
    Ok(())
}

fn subject(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Subject> {
    match row.get::<_, Option<i64>>(at)? {
        Some(item) => Ok(Subject::Item(item)),
        None => row.get(at + 1).map(Subject::Title),
    }
}

/// The expression without beginnings of words that are so short that a large part of all words have them, where something else is
/// asked for besides; and whether there were any. FTS5 brings together all places of all words with a beginning, whatever
/// else is asked for: for two letters in a million documents that is a third of a second, while reading the documents that
/// have the rest shows which have it.
fn without_short_beginnings(expr: &Expr) -> (Expr, bool) {
    let is_short = |expr: &Expr| match expr {
        Expr::Phrase { words, is_prefix: true, .. } => {
            words.len() == 1 && words.iter().all(|word| word.len() <= SHORT && word.is_ascii())
        }
        _ => false,
    };
    match expr {
        Expr::All(all) => {
            let kept: Vec<Expr> = all.iter().filter(|expr| !is_short(expr)).cloned().collect();
            let asks_for_words = kept.iter().any(|expr| matches!(expr, Expr::Phrase { .. }));
            let is_changed = asks_for_words && kept.len() < all.len();
            (if is_changed { Expr::All(kept) } else { expr.clone() }, is_changed)
        }
        Expr::Without(wanted, unwanted) => {
            let (wanted, is_changed) = without_short_beginnings(wanted);
            (Expr::Without(Box::new(wanted), unwanted.clone()), is_changed)
        }
        _ => (expr.clone(), false),
    }
}

/// An expression in the words of FTS5; `None` where nothing can fit.
fn question(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Phrase { words, parts, is_prefix } if words == parts => phrase("{words parts}", words, *is_prefix),
        Expr::Phrase { words, parts, is_prefix } => {
            let either = [phrase("words", words, *is_prefix), phrase("parts", parts, *is_prefix)];
            joined(&either.into_iter().flatten().collect::<Vec<_>>(), " OR ")
        }
        Expr::Tag(tag) => phrase("tags", std::slice::from_ref(tag), false),
        Expr::All(all) => joined(&all.iter().map(question).collect::<Option<Vec<_>>>()?, " AND "),
        Expr::Any(any) => joined(&any.iter().filter_map(question).collect::<Vec<_>>(), " OR "),
        Expr::Without(wanted, unwanted) => {
            let wanted = question(wanted)?;
            Some(match question(unwanted) {
                Some(unwanted) => format!("({wanted} NOT {unwanted})"),
                None => wanted,
            })
        }
    }
}

fn joined(parts: &[String], word: &str) -> Option<String> {
    match parts {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("({})", several.join(word))),
    }
}

fn phrase(columns: &str, terms: &[String], is_prefix: bool) -> Option<String> {
    if terms.is_empty() {
        return None;
    }
    let mut out = format!("({columns} : \"");
    for (index, term) in terms.iter().enumerate() {
        let gap = if index == 0 { "" } else { " " };
        // Writing to a string can't fail. No term holds a quote, but a question must never be broken by one.
        let _ = write!(out, "{gap}{}", term.replace('"', "\"\""));
    }
    out.push_str(if is_prefix { "\" *)" } else { "\")" });
    Some(out)
}

fn pointer_of(folder: &Path) -> PathBuf {
    folder.join(format!("current-{VERSION}"))
}

/// The file that the pointer is, and the name that it holds; `None` where there is no pointer that can be meant.
fn read_pointer(folder: &Path) -> Result<Option<((u64, u64), String)>> {
    read_name(&pointer_of(folder))
}

fn read_name(path: &Path) -> Result<Option<((u64, u64), String)>> {
    let file = match sqlite::open_to_look(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path, &error)),
    };
    let meta = file.metadata().map_err(|error| Error::io("look at", path, &error))?;
    let mut name = String::new();
    let is_read = file.take(NAME_BYTES).read_to_string(&mut name).is_ok();
    let is_name =
        name.len() == 35 && name.ends_with(".db") && name.bytes().take(32).all(|byte| byte.is_ascii_hexdigit());
    Ok((is_read && is_name).then_some(((meta.dev(), meta.ino()), name)))
}

fn write_pointer(folder: &Path, name: &str) -> Result<()> {
    let fresh = folder.join(format!(".{}", random_name()));
    let write = |mut file: File| file.write_all(name.as_bytes());
    replace::new_file(&fresh).and_then(write).map_err(|error| Error::io("write", &fresh, &error))?;
    std::fs::rename(&fresh, pointer_of(folder)).map_err(|error| Error::io("rename", &fresh, &error))
}

/// Removes the indexes of before, those of earlier versions, and what was begun. A later version's stays.
fn remove_others(folder: &Path, name: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("read", folder, &error);
    let entries: Vec<_> = std::fs::read_dir(folder).and_then(Iterator::collect).map_err(failed)?;
    let names: Vec<String> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let version_of = |name: &str| name.strip_prefix("current-").and_then(|number| number.parse::<u32>().ok());
    let mut kept = vec![name.to_owned()];
    for later in names.iter().filter(|name| version_of(name).is_some_and(|it| it > VERSION)) {
        kept.extend(read_name(&folder.join(later))?.map(|(_, name)| name));
    }
    for found in &names {
        let is_kept = kept.iter().any(|name| found.starts_with(name.as_str()));
        let is_ours =
            found.contains(".db") || found.starts_with('.') || version_of(found).is_some_and(|it| it < VERSION);
        if is_ours && !is_kept {
            let path = folder.join(found);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("remove", &path, &error)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A name that nobody can guess, and no two choose.
fn random_name() -> String {
    let mut random = [0; 16];
    // Without the system's randomness a name still is new: it is made for the owner's folder alone, where there is none like it.
    let _ = getrandom::fill(&mut random);
    uuid::Uuid::from_bytes(random).simple().to_string()
}
