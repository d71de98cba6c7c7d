//! Looking at a store's folder and its database, whatever state they are in, and changing neither.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::concurrency::{mpsc, thread};
use crate::db::drift::{self, Listing, TEXT};
use crate::db::identity::OpenHere;
use crate::db::migrations::{self, Migration, State};
use crate::db::replace;
use crate::db::sqlite::{self, DATABASE, Header, Location, SqliteTx, engine_error};
use crate::error::{Error, Result};
use crate::finding::{Examination, NO_STORE};

/// How long pages are checked unless all of it is asked for.
const CHECK_BOUND: Duration = Duration::from_secs(5);
/// A log that can be reset does not grow beyond a part of this.
const LARGE_LOG: u64 = 64 << 20;
/// With less than this free, the next large append may not fit.
const LITTLE_ROOM: u64 = 256 << 20;
/// How often the engine is told to stop, until it has: what it begins at that very moment does not hear it.
const STOP_STEP: Duration = Duration::from_millis(5);
/// How many broken places are named.
const BROKEN_NAMED: u32 = 20;
/// Folders in which copies are made begin with this; one that stands there has been left by a program that was killed.
const LEFTOVER: &str = ".threadkeep-";

const OPEN_TO_OTHERS: &str = "take the rights of others away: `chmod -R go-rwx` on the store's folder";
const UNFINISHED: &str = "open the store once for writing, which ends it; or carry out the plan of `threadkeep doctor`";
const LEFT: &str = "remove it while no backup is being made or restored";

/// A database that could be opened and has the schema that is known.
#[derive(Debug)]
pub(crate) struct Looked {
    connection: Connection,
    /// Dropped after the connection.
    _here: OpenHere,
    _kept: Option<File>,
}

impl Looked {
    pub(crate) fn tx(&mut self) -> SqliteTx<'_> {
        SqliteTx { connection: &self.connection }
    }
}

/// Looks at everything that can be reached; gives the database when statements can be asked of it.
pub(crate) fn look(found: &mut Examination, location: &Location, folder: &Path, full: bool) -> Option<Looked> {
    look_at_folder(found, folder)?;
    let database = folder.join(DATABASE);
    let place = database.display().to_string();
    if replace::is_unfinished(folder) {
        let what = "the database was to be replaced by one that is complete, and that was cut off".to_owned();
        found.error("unfinished", place, (what, UNFINISHED));
        return None;
    }
    match sqlite::inspect_settled(location, folder, &database) {
        Ok(Header::Ours) => {}
        Ok(Header::Empty) => {
            let what = format!("no store is in {}", folder.display());
            found.error("no-store", place, (what, NO_STORE));
            return None;
        }
        Err(error) => {
            found.refused(&place, &error);
            return None;
        }
    }
    let opened = open(location, folder, &database);
    let opened = opened.map_err(|error| found.refused(&place, &sqlite::as_damage(error, &database))).ok()?;
    let looked = look_at_database(found, &opened.connection, location, folder, full);
    match looked {
        Ok(State::Current) => Some(opened),
        Ok(_) => None,
        Err(error) => {
            found.refused(&place, &sqlite::as_damage(sqlite::name_place(error, &database), &database));
            None
        }
    }
}

fn open(location: &Location, folder: &Path, database: &Path) -> Result<Looked> {
    let kept = sqlite::keep_in_place(folder, location.busy_bound)?;
    let here = OpenHere::register(database)?;
    let connection = sqlite::connect_again(location, true)?;
    Ok(Looked { connection, _here: here, _kept: kept })
}

fn look_at_folder(found: &mut Examination, folder: &Path) -> Option<()> {
    let place = folder.display().to_string();
    let meta = match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            found.error("no-store", place, ("it is no folder".to_owned(), NO_STORE));
            return None;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            found.error("no-store", place, ("there is no such folder".to_owned(), NO_STORE));
            return None;
        }
        Err(error) => {
            found.refused(&place, &Error::io("look at", folder, &error));
            return None;
        }
    };
    look_at_rights(found, folder, &meta);
    look_at_owner(found, folder, &meta);
    look_at_entries(found, folder, 0);
    let shared = sqlite::shared_file_system(folder);
    found.fact("file_system", shared.unwrap_or("local"));
    if let Some(name) = shared {
        let what =
            format!("the store is on {name}: a rollback journal is used, every commit is synced, and writing is slow");
        found.warn(
            "network-disk",
            &place,
            (what, "keep the store on a disk of this machine, or on a PostgreSQL server"),
        );
    }
    look_at_room(found, folder);
    Some(())
}

fn look_at_rights(found: &mut Examination, path: &Path, meta: &Metadata) {
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let what = format!("its mode is {mode:04o}, so others on this machine can reach it");
        found.warn("open-to-others", path.display().to_string(), (what, OPEN_TO_OTHERS));
    }
}

fn look_at_owner(found: &mut Examination, path: &Path, meta: &Metadata) {
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != own {
        let what = format!("it belongs to user {}, and this program runs as user {own}", meta.uid());
        let way_out = "use the store from the account that it belongs to; files of two accounts shut each other out";
        found.warn("other-owner", path.display().to_string(), (what, way_out));
    }
}

/// Looks at what stands in a folder of the store, and in the folders in it, which go no deeper than two.
fn look_at_entries(found: &mut Examination, folder: &Path, depth: u32) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return found.refused(&folder.display().to_string(), &Error::io("list", folder, &error)),
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(meta) = path.symlink_metadata() else { continue };
        let place = path.display().to_string();
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(LEFTOVER) {
            let what = "a backup or a restore was cut short and left this, or one is being made now".to_owned();
            found.note("leftover", &place, (what, LEFT));
            continue;
        }
        if name.to_string_lossy().starts_with(replace::KEPT) && meta.is_dir() {
            let what = "a repair kept here what it replaced".to_owned();
            found.note("kept", &place, (what, "remove it when nothing of it is needed any more"));
        }
        if meta.is_symlink() {
            let what = "it is a link; a store follows no links in its own folder".to_owned();
            found.warn("link", &place, (what, "put the file or folder itself in its place"));
            continue;
        }
        look_at_rights(found, &path, &meta);
        if name.to_string_lossy().starts_with(DATABASE) && depth == 0 {
            look_at_owner(found, &path, &meta);
        }
        if meta.is_dir() && depth < 2 {
            look_at_entries(found, &path, depth + 1);
        }
    }
}

fn look_at_room(found: &mut Examination, folder: &Path) {
    let Ok(stat) = rustix::fs::statvfs(folder) else { return };
    let room = stat.f_bavail.saturating_mul(stat.f_frsize);
    found.fact("free_bytes", room);
    let place = folder.display().to_string();
    if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        let what = "its file system is mounted read-only: nothing can be written".to_owned();
        found.warn("read-only-disk", &place, (what, "mount it for writing, or copy the store elsewhere"));
    }
    if room < LITTLE_ROOM {
        let what = format!("{room} bytes are free on its file system");
        found.warn("little-room", &place, (what, "free some space before appends are refused"));
    }
}

/// Looks into the database; what it can't get past is its error.
fn look_at_database(
    found: &mut Examination,
    connection: &Connection,
    location: &Location,
    folder: &Path,
    full: bool,
) -> Result<State> {
    let place = folder.join(DATABASE).display().to_string();
    let size =
        |suffix: &str| std::fs::metadata(sqlite::beside(&folder.join(DATABASE), suffix)).map_or(0, |meta| meta.len());
    found.fact("file_bytes", size(""));
    found.fact("log_bytes", size("-wal"));
    found.fact("sqlite_version", rusqlite::version());
    found.fact("application_id", number(connection, "PRAGMA application_id")?);
    let header = number(connection, "PRAGMA user_version")?;
    found.fact("user_version", header);
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(engine_error)?;
    look_at_journal(found, folder, &journal, size("-wal"));
    found.fact("journal", journal);
    let state = look_at_schema(found, connection, location.migrations, &place, header)?;
    check_pages(found, connection, &place, (!full).then_some(CHECK_BOUND))?;
    if full {
        check_references(found, connection)?;
    }
    Ok(state)
}

fn look_at_journal(found: &mut Examination, folder: &Path, journal: &str, log: u64) {
    let place = folder.join(DATABASE).display().to_string();
    match (journal.eq_ignore_ascii_case("wal"), sqlite::shared_file_system(folder)) {
        (true, Some(name)) => {
            let what = format!("it has a write-ahead log on {name}, where that can corrupt it");
            found.error(
                "log-on-network",
                &place,
                (what, "close every program that uses the store, then open it once for writing"),
            );
        }
        (false, None) => {
            let what = format!(
                "its journal is `{journal}`, and not a write-ahead log: readers and writers wait for each other"
            );
            found.note(
                "rollback-journal",
                &place,
                (what, "open it once for writing; where that does not help, its file system can't do more"),
            );
        }
        _ => {}
    }
    if log > LARGE_LOG {
        let what = format!(
            "its log has grown to {log} bytes: something has been reading for long, or was stopped while it read"
        );
        found.warn(
            "large-log",
            &place,
            (what, "end the program that has the store open for long; the next commit resets the log"),
        );
    }
}

fn look_at_schema(
    found: &mut Examination,
    connection: &Connection,
    known: &'static [Migration],
    place: &str,
    header: i64,
) -> Result<State> {
    let state = migrations::state(connection, known)?;
    let applied = match state {
        State::Empty | State::Unrecorded => 0,
        State::Current | State::Behind => number(connection, "SELECT max(number) FROM schema_migrations")?,
    };
    found.fact("schema", applied);
    found.fact("schema_known", known.last().map_or(0, |migration| migration.number));
    match state {
        State::Empty | State::Unrecorded => {
            let what = "no step of the schema is noted as done, though the file is marked as a store".to_owned();
            found.error("half-migrated", place, (what, "restore a backup of it"));
            return Ok(state);
        }
        State::Behind => {
            let what = format!("its schema is number {applied}, an older one");
            found.warn(
                "schema-older",
                place,
                (what, "open it once for writing, which backs it up and brings it forward"),
            );
        }
        State::Current => {}
    }
    if header != applied {
        let what = format!("its header says schema {header}, and its ledger says {applied}");
        found.warn("header", place, (what, "see whether another program has written to it; restore a backup if so"));
    }
    let steps: Vec<Migration> = known.iter().filter(|migration| migration.number <= applied).copied().collect();
    let mut fresh = Connection::open_in_memory().map_err(engine_error)?;
    migrations::apply(&mut fresh, &steps, 0)?;
    drift::compare(found, &listing(&fresh)?, &listing(connection)?);
    Ok(state)
}

/// What the schema of a database is made of.
fn listing(connection: &Connection) -> Result<Listing> {
    let mut listing = Listing::new();
    let parts = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    for [kind, name, table, sql] in strings::<4>(connection, parts)? {
        // White space says nothing.
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        match kind.as_str() {
            "table" => {
                listing.insert((TEXT.to_owned(), name.clone()), sql);
                listing.insert(("table".to_owned(), name), "a table".to_owned());
            }
            _ => {
                listing.insert((kind, format!("{table}.{name}")), sql);
            }
        }
    }
    let columns = "SELECT t.name, c.name, c.type || CASE WHEN c.\"notnull\" THEN ' NOT NULL' ELSE '' END
          || CASE WHEN c.pk > 0 THEN ' KEY ' || c.pk ELSE '' END || coalesce(' DEFAULT ' || c.dflt_value, '')
        FROM sqlite_master t JOIN pragma_table_xinfo(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    for [table, column, definition] in strings::<3>(connection, columns)? {
        listing.insert(("column".to_owned(), format!("{table}.{column}")), definition);
    }
    let keys = "SELECT t.name, k.\"from\", 'REFERENCES ' || k.\"table\" || ' (' || coalesce(k.\"to\", '') || ') ON DELETE ' || k.on_delete
        FROM sqlite_master t JOIN pragma_foreign_key_list(t.name) k WHERE t.type = 'table'";
    for [table, column, definition] in strings::<3>(connection, keys)? {
        listing.insert(("foreign key".to_owned(), format!("{table}.{column}")), definition);
    }
    Ok(listing)
}

/// Has the engine check its pages, for a bounded time unless all is asked for.
fn check_pages(found: &mut Examination, connection: &Connection, place: &str, bound: Option<Duration>) -> Result<()> {
    let word = if bound.is_none() { "integrity_check" } else { "quick_check" };
    let (stop, stopped) = mpsc::channel::<()>();
    let watch = bound.map(|bound| {
        let engine = connection.get_interrupt_handle();
        let watch = move || {
            let mut wait = bound;
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
                engine.interrupt();
                wait = STOP_STEP;
            }
        };
        thread::Builder::new().name("threadkeep-bound".to_owned()).spawn(watch)
    });
    let checked = strings::<1>(connection, &format!("PRAGMA {word}({BROKEN_NAMED})"));
    drop(stop);
    watch.and_then(Result::ok).map(thread::JoinHandle::join);
    match (checked, bound) {
        (Ok(lines), _) => {
            for [line] in lines.into_iter().filter(|[line]| line != "ok") {
                let way_out = "the plan of `threadkeep doctor` brings back what is whole; or restore a backup with `threadkeep restore-backup`";
                found.error("damaged", place, (line, way_out));
            }
            found.fact("pages_checked", word);
            Ok(())
        }
        (Err(Error::Backend { .. }), Some(bound)) => {
            let what = format!("its pages were checked for {} s and not to the end", bound.as_secs());
            found.note("not-checked", place, (what, "`threadkeep doctor --full` checks all of it"));
            Ok(())
        }
        (Err(error), _) => Err(error),
    }
}

fn check_references(found: &mut Examination, connection: &Connection) -> Result<()> {
    let broken = "SELECT \"table\", parent, CAST(count(*) AS TEXT) FROM pragma_foreign_key_check GROUP BY 1, 2";
    for [table, parent, count] in strings::<3>(connection, broken)? {
        let what = format!("{count} rows refer to rows of {parent} that are not there");
        found.error(
            "damaged",
            format!("table {table}"),
            (what, "`threadkeep verify` names the threads that it touches"),
        );
    }
    Ok(())
}

fn number(connection: &Connection, sql: &str) -> Result<i64> {
    connection.query_row(sql, [], |row| row.get(0)).map_err(engine_error)
}

/// Reads rows of texts.
fn strings<const COLUMNS: usize>(connection: &Connection, sql: &str) -> Result<Vec<[String; COLUMNS]>> {
    let mut statement = connection.prepare(sql).map_err(engine_error)?;
    let read = |row: &rusqlite::Row<'_>| {
        let mut texts = std::array::from_fn(|_| String::new());
        for (column, text) in texts.iter_mut().enumerate() {
            *text = row.get(column)?;
        }
        Ok(texts)
    };
    let rows = statement.query_map([], read).map_err(engine_error)?;
    rows.collect::<rusqlite::Result<_>>().map_err(engine_error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::Connection;

    use super::check_pages;
    use crate::finding::Examination;

    #[test]
    fn checking_pages_ends_at_its_bound() {
        let connection = Connection::open_in_memory().unwrap();
        let rows = "CREATE TABLE t (x TEXT); CREATE INDEX i ON t (x);
            WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200000) INSERT INTO t SELECT x || 'text' FROM n";
        connection.execute_batch(rows).unwrap();
        for (bound, said) in
            [(Some(Duration::ZERO), &["not-checked"][..]), (Some(Duration::from_secs(600)), &[]), (None, &[])]
        {
            let mut found = Examination::of(String::new());
            check_pages(&mut found, &connection, "here", bound).unwrap();
            let codes: Vec<_> = found.findings.iter().map(|finding| finding.code).collect();
            assert_eq!(codes, said, "{bound:?}");
        }
    }
}
