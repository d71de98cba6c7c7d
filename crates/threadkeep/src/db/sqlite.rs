//! The SQLite driver: opening a store's folder safely, and transactions over a connection.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::db::copy;
use crate::db::identity::{self, OpenHere};
use crate::db::migrations::{self, Migration, State};
use crate::db::pragmas::{self, APPLICATION_ID, Journal};
use crate::db::replace;
use crate::db::{Columns, GivenBack, Row, Statement, Tx, Value};
use crate::error::{Error, Result};
use crate::planted::{self, Defect};

/// The database's name inside a store's folder.
pub(crate) const DATABASE: &str = "threadkeep.db";
/// The lock under which stores are created and migrated.
const OPEN_LOCK: &str = "open.lock";
/// What the copies that are made before a migration are called, and what stands behind the name of one that is being made.
const BEFORE_MIGRATION: &str = "before-migration-";
const PARTIAL: &str = ".partial";
/// An application id that differs from ours in no more bits is ours, damaged.
const DAMAGED_BITS: u32 = 2;
const HEADER_BYTES: usize = 100;
/// With fewer bytes free the index of the log can't be made: it has 32 KiB.
const LEAST_ROOM: u64 = 64 << 10;
/// Creating a store takes milliseconds and waiting for it is rare, so a short sleep is fair enough.
const LOCK_STEP: Duration = Duration::from_millis(5);
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Where a store lives and how it is opened.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    /// The store's folder; `None` keeps everything in memory.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) read_only: bool,
    pub(crate) busy_bound: Duration,
    pub(crate) migrations: &'static [Migration],
    /// The time, for the ledger of migrations and the names of backups.
    pub(crate) now: i64,
    /// Whether a store is begun where one was whose database is gone.
    pub(crate) anew: bool,
}

impl Location {
    pub(crate) fn database(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(DATABASE))
    }
}

/// An opened and migrated store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) journal: Journal,
    pub(crate) notices: Vec<String>,
    /// `None` in memory.
    pub(crate) here: Option<OpenHere>,
}

/// Opens the store, creating or migrating it under a lock where that is needed.
///
/// Whether the file is ours is decided read-only, before anything is written.
pub(crate) fn open(location: &Location) -> Result<Opened> {
    pragmas::check_version()?;
    let Some(folder) = &location.folder else {
        return open_memory(location);
    };
    let opened = if location.read_only { open_read_only(location, folder) } else { open_to_write(location, folder) };
    opened.map_err(|error| name_full_disk(error, folder))
}

fn open_to_write(location: &Location, folder: &Path) -> Result<Opened> {
    create_folder(folder)?;
    replace::complete(folder, location.busy_bound)?;
    let database = folder.join(DATABASE);
    if inspect_settled(location, folder, &database)? == Header::Ours
        && let Some(opened) = open_current(location, folder, &database).map_err(|error| as_damage(error, &database))?
    {
        return Ok(opened);
    }
    let lock = lock_opening(folder, location.busy_bound)?;
    let opened = create_or_migrate(location, &database)?;
    drop(lock);
    Ok(opened)
}

/// Opens a store whose schema is as it should be; there is nothing to be made.
fn open_current(location: &Location, folder: &Path, database: &Path) -> Result<Option<Opened>> {
    let _kept = keep_in_place(folder, location.busy_bound)?;
    let here = OpenHere::register(database)?;
    let has_log = beside(database, "-wal").exists();
    let connection = connect(database)?;
    match state(&connection, location, database) {
        Ok(State::Current) if has_its_journal(&connection, folder)? => finish(location, connection, here).map(Some),
        Ok(_) => Ok(None),
        Err(refused) => {
            leave_log(&connection, has_log);
            Err(refused)
        }
    }
}

/// How far the schema is; a store whose schema has no record is refused.
fn state(connection: &Connection, location: &Location, database: &Path) -> Result<State> {
    match migrations::state(connection, location.migrations)? {
        State::Unrecorded => Err(migrations::unrecorded(&database.display().to_string())),
        state => Ok(state),
    }
}

/// Leaves the log of a refused store where it is: whoever closes a database last brings its log into it.
fn leave_log(connection: &Connection, has_log: bool) {
    if has_log {
        let kept = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        drop(kept.inspect_err(|error| tracing::debug!(%error, "the log of a refused store can't be kept apart")));
    }
}

/// What the engine can't read though its header says that it is ours is damage, and nobody else's.
pub(crate) fn as_damage(error: Error, database: &Path) -> Error {
    match error {
        Error::ForeignStore { detail, .. } => {
            Error::corrupt(database.display().to_string(), format!("its first page is damaged: {detail}"))
        }
        other => other,
    }
}

/// A further connection to a store that [`open`] has prepared.
pub(crate) fn connect_again(location: &Location, read_only: bool) -> Result<Connection> {
    let Some(database) = location.database() else {
        return Err(Error::Unsupported { operation: "a second connection to memory" });
    };
    let connection = if read_only { connect_for_reading(&database) } else { connect(&database) };
    connection.map_err(|error| name_full_disk(error, database.parent().unwrap_or(Path::new("."))))
}

fn connect_for_reading(database: &Path) -> Result<Connection> {
    let path = real(database)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = if is_on_read_only_disk(&path) && !has_beside(&path, "-wal") {
        // A log's index can't be made there, and nothing can change underneath.
        let uri = format!("file:{}?immutable=1", percent_encode(&path));
        Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
    } else {
        Connection::open_with_flags(path, flags)
    };
    let connection = connection.map_err(|error| at(database, error))?;
    pragmas::configure(&connection)?;
    Ok(connection)
}

/// Refuses a connection that SQLite opened for reading only though the file may be written.
///
/// It does so after any failure to open, too many open files among them, and would stay so for as long as it is open.
fn check_writable(connection: &Connection, database: &Path) -> Result<()> {
    let narrowed = connection.is_readonly("main").map_err(|error| at(database, error))?;
    // The file isn't opened to find out: closing it would drop the locks that this process has on it.
    let is_told = !planted::is(Defect::KeepsReadOnlyConnection);
    if narrowed && is_told && rustix::fs::access(database, rustix::fs::Access::WRITE_OK).is_ok() {
        let why =
            std::io::Error::other("the system let it be opened for reading only, as when too many files are open");
        return Err(Error::io("open for writing", database, &why));
    }
    Ok(())
}

/// Asks the file system whether it is full, where the engine could not say why it failed.
fn name_full_disk(error: Error, folder: &Path) -> Error {
    let room = rustix::fs::statvfs(folder).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    match error {
        Error::Io { detail, .. } if room < LEAST_ROOM => Error::StorageFull { detail },
        other => other,
    }
}

fn is_on_read_only_disk(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// A path as SQLite reads it in an address.
fn percent_encode(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut out = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_') {
            out.push(char::from(*byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

fn open_memory(location: &Location) -> Result<Opened> {
    let mut connection = Connection::open_in_memory().map_err(engine_error)?;
    pragmas::configure(&connection)?;
    migrations::apply(&mut connection, location.migrations, location.now)?;
    Ok(Opened { connection, journal: Journal::Memory, notices: Vec::new(), here: None })
}

fn open_read_only(location: &Location, folder: &Path) -> Result<Opened> {
    let database = folder.join(DATABASE);
    replace::complete(folder, location.busy_bound)?;
    if inspect_settled(location, folder, &database)? != Header::Ours {
        return Err(Error::not_found("store", folder.display()));
    }
    open_for_reading(location, folder, &database).map_err(|error| as_damage(error, &database))
}

fn open_for_reading(location: &Location, folder: &Path, database: &Path) -> Result<Opened> {
    let _kept = keep_in_place(folder, location.busy_bound)?;
    let here = OpenHere::register(database)?;
    let connection = connect_again(location, true)?;
    match state(&connection, location, database)? {
        State::Current => {
            let shared = shared_file_system(folder).map(|name| format!("{} is on {name}", database.display()));
            let notices = shared.into_iter().collect();
            Ok(Opened { connection, journal: Journal::Rollback, notices, here: Some(here) })
        }
        State::Empty | State::Behind | State::Unrecorded => {
            let detail = "it has an older schema; open it once for writing to bring it forward";
            Err(Error::ReadOnly { detail: detail.to_owned() })
        }
    }
}

fn connect(database: &Path) -> Result<Connection> {
    let connection = connect_to(&real(database)?);
    connection.map_err(|error| name_place(error, database))
}

/// A connection for writing to the database at a path without links.
pub(crate) fn connect_to(database: &Path) -> Result<Connection> {
    if is_on_read_only_disk(database) {
        // The engine would say that it can't open a file, without saying which or why.
        let detail = format!("{} is on a file system that is mounted read-only", database.display());
        return Err(Error::ReadOnly { detail });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(database, flags).map_err(|error| at(database, error))?;
    check_writable(&connection, database)?;
    pragmas::configure(&connection).map_err(|error| name_place(error, database))?;
    Ok(connection)
}

/// Resolves the links on the way to a file, which must be no link itself.
pub(crate) fn real_file(path: &Path) -> Result<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = folder.canonicalize().map_err(|error| Error::io("find", folder, &error))?;
    let name = path.file_name().ok_or_else(|| Error::invalid("path", format!("{} names no file", path.display())))?;
    Ok(real.join(name))
}

/// Resolves the links on the way to the store's folder, which are the user's; the database itself must be no link.
fn real(database: &Path) -> Result<PathBuf> {
    let folder = database.parent().unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|error| Error::io("find", folder, &error))?;
    Ok(folder.join(DATABASE))
}

fn create_or_migrate(location: &Location, database: &Path) -> Result<Opened> {
    // Another process may have done the work while this one waited for the lock.
    let folder = database.parent().unwrap_or(Path::new("."));
    let fresh = match inspect_store(folder, database, location.anew)? {
        Header::Ours => false,
        Header::Empty => true,
    };
    identity::unless_open_here(database, || create_file(database)).transpose()?;
    let here = OpenHere::register(database)?;
    let mut connection = connect(database)?;
    if fresh {
        // Whoever made the folders may have been killed before it could sync them.
        real(database)?.ancestors().skip(1).try_for_each(sync_entries)?;
        // Takes effect only before the first table, and before WAL.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(engine_error)?;
    }
    match state(&connection, location, database)? {
        State::Current | State::Unrecorded => {}
        // The mark and the schema come in one transaction.
        State::Empty if !fresh => {
            let detail = "it is marked as a store and its schema can't be found; `threadkeep doctor` has a plan";
            return Err(Error::corrupt(database.display().to_string(), detail));
        }
        State::Empty => migrations::apply(&mut connection, location.migrations, location.now)?,
        State::Behind => {
            let copy = back_up(&connection, location)?;
            let applied = migrations::apply(&mut connection, location.migrations, location.now);
            if let (Err(_), Some(copy)) = (&applied, copy) {
                // The store is as it was; who tries again and again must not fill the disk with copies of it.
                drop(std::fs::remove_file(copy));
            }
            applied?;
        }
    }
    finish(location, connection, here)
}

/// Copies the store before its schema changes, beside it and complete; gives the copy.
fn back_up(connection: &Connection, location: &Location) -> Result<Option<PathBuf>> {
    let Some(folder) = &location.folder else {
        return Ok(None);
    };
    let backups = folder.join("backups");
    create_own_folder(&backups)?;
    remove_begun(&backups)?;
    let name = format!("{BEFORE_MIGRATION}{}-{}", location.now, std::process::id());
    let (path, partial) = (backups.join(format!("{name}.db")), backups.join(format!("{name}{PARTIAL}")));
    create_file(&partial)?;
    let partial = real_file(&partial)?;
    let copied = copy::copy(connection, &partial, &mut |_, _| {});
    let kept = copied.and_then(|()| {
        std::fs::rename(&partial, &path).map_err(|error| Error::io("rename", &partial, &error))?;
        copy::sync(&backups)
    });
    // What is not whole must not look like a backup.
    kept.map(|()| Some(path)).inspect_err(|_| drop(remove_begun(&backups)))
}

/// Removes copies that were begun, with the engine's files beside them: only one process migrates at a time, and that is this one.
fn remove_begun(backups: &Path) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("read", backups, &error);
    for entry in std::fs::read_dir(backups).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_file = entry.file_type().map_err(failed)?.is_file();
        if is_file && name.starts_with(BEFORE_MIGRATION) && name.contains(PARTIAL) {
            std::fs::remove_file(entry.path()).map_err(|error| Error::io("remove", &entry.path(), &error))?;
        }
    }
    Ok(())
}

fn finish(location: &Location, connection: Connection, here: OpenHere) -> Result<Opened> {
    let mut notices = Vec::new();
    let folder = location.folder.as_deref().unwrap_or(Path::new("."));
    let database = &folder.join(DATABASE);
    if let Some(name) = shared_file_system(folder) {
        notices.push(format!(
            "{} is on {name}, where write-ahead logging can corrupt a database: \
             a rollback journal is used, and every commit is synced",
            database.display()
        ));
    }
    let wanted = wanted_journal(folder);
    let journal = match journal_of(&connection, database)? {
        journal if journal == wanted => journal,
        _ => switch_journal(&connection, wanted, location.busy_bound)?,
    };
    if journal != wanted {
        notices.push(format!("{} can't use a write-ahead log here: a rollback journal is used", database.display()));
    }
    Ok(Opened { connection, journal, notices, here: Some(here) })
}

/// The journal that a store in this folder has.
pub(crate) fn wanted_journal(folder: &Path) -> Journal {
    if shared_file_system(folder).is_some() { Journal::Rollback } else { Journal::Wal }
}

/// Whether the journal is the wanted one; where it is not, it is switched under the lock for opening alone.
fn has_its_journal(connection: &Connection, folder: &Path) -> Result<bool> {
    Ok(journal_of(connection, &folder.join(DATABASE))? == wanted_journal(folder))
}

fn journal_of(connection: &Connection, database: &Path) -> Result<Journal> {
    let mode = connection.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0));
    let mode = mode.map_err(|error| at(database, error))?;
    Ok(if mode.eq_ignore_ascii_case("wal") { Journal::Wal } else { Journal::Rollback })
}

/// Switches the journal, and waits for those who are reading: the engine asks its busy handler not at all where two who read
/// want to write, and says at once that the database is locked.
fn switch_journal(connection: &Connection, wanted: Journal, bound: Duration) -> Result<Journal> {
    let mut waited = Duration::ZERO;
    loop {
        match pragmas::set_journal(connection, wanted) {
            Err(Error::Busy { .. }) if waited < bound => {
                std::thread::sleep(LOCK_STEP);
                waited += LOCK_STEP;
            }
            switched => return switched,
        }
    }
}

/// Names the file system when several machines may see it: there a shared-memory index is not coherent.
#[cfg(target_os = "linux")]
pub(crate) fn shared_file_system(folder: &Path) -> Option<&'static str> {
    const SHARED: [(u64, &str); 11] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "FUSE"),
        (0x00c3_6400, "Ceph"),
        (0x786f_4256, "a VirtualBox shared folder"),
        (0x0bd0_0bd3, "Lustre"),
        (0x5346_414f, "AFS"),
        (0x0116_1970, "GFS2"),
    ];
    let magic = u64::try_from(rustix::fs::statfs(folder).ok()?.f_type).ok()? & 0xffff_ffff;
    SHARED.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn shared_file_system(_folder: &Path) -> Option<&'static str> {
    None
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// No file, an empty file, or an empty database without an owner.
    Empty,
    /// A database with our application id.
    Ours,
}

/// What only a store that was complete leaves in its folder. A creation that was cut off has left none of these.
const TRACES: [&str; 5] = ["write.gate", "write.line", "holders", "rollouts", "backups"];
/// A folder of keys may be made before its store; the newest seal that it remembers is of a store that was there.
const SEALED: &str = "last-";

/// What says that a store was in this folder, whatever its database is by now.
pub(crate) fn trace_of(folder: &Path) -> Option<PathBuf> {
    // A link is nothing that a store made.
    let is_there = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_file() || meta.is_dir());
    TRACES.iter().map(|name| folder.join(name)).find(is_there).or_else(|| {
        let mut keys = std::fs::read_dir(folder.join("keys")).ok()?.flatten();
        let sealed = keys.find(|entry| entry.file_name().to_string_lossy().starts_with(SEALED))?;
        Some(sealed.path())
    })
}

/// Looks at the database of a folder. Where a store was there is one, or it is damaged: no other one is begun in its place, unless
/// that is asked for.
pub(crate) fn inspect_store(folder: &Path, database: &Path, anew: bool) -> Result<Header> {
    let found = inspect(database);
    let what = match &found {
        Ok(Header::Empty) if anew => return found,
        Ok(Header::Empty) if database.symlink_metadata().is_err() => "is missing".to_owned(),
        Ok(Header::Empty) => "is empty".to_owned(),
        // A database of another program was put there by somebody.
        Err(Error::ForeignStore { detail, .. }) if !begins_like_a_database(database) => {
            format!("can't be told for one: {detail}")
        }
        _ => return found,
    };
    match trace_of(folder) {
        None => found,
        Some(trace) => {
            let detail = format!(
                "a store was in this folder, as {} shows, and its database {what}; `threadkeep doctor` says what can be \
                 brought back from what is left of it and from rollouts, or restore a backup of it",
                trace.display()
            );
            Err(Error::corrupt(database.display().to_string(), detail))
        }
    }
}

/// Whether a file begins as every database does. What is no file says yes: nobody's damage makes a link or a folder.
fn begins_like_a_database(path: &Path) -> bool {
    let mut header = Vec::new();
    let read = open_to_look(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut header));
    read.is_err() || header == MAGIC
}

/// Looks at the file. Where another process may be creating it at this moment, a refusal counts under the lock only.
pub(crate) fn inspect_settled(location: &Location, folder: &Path, database: &Path) -> Result<Header> {
    let (bound, anew) = (location.busy_bound, location.anew);
    match inspect_store(folder, database, anew) {
        Err(seen) if folder.join(OPEN_LOCK).exists() => match lock_opening(folder, bound) {
            Ok(_lock) => inspect_store(folder, database, anew),
            Err(Error::Busy { detail }) => Err(Error::Busy { detail }),
            Err(_) => Err(seen),
        },
        seen => seen,
    }
}

/// Reads the first bytes of the file, and nothing else of a file that is not ours.
///
/// One that this process has open was inspected then, and is not opened again.
pub(crate) fn inspect(database: &Path) -> Result<Header> {
    identity::unless_open_here(database, || inspect_file(database)).unwrap_or(Ok(Header::Ours))
}

fn inspect_file(database: &Path) -> Result<Header> {
    let foreign =
        |detail: &str| Error::ForeignStore { path: database.display().to_string(), detail: detail.to_owned() };
    match std::fs::symlink_metadata(database) {
        Err(error) if error.kind() == ErrorKind::NotFound => return empty(database),
        Err(error) => return Err(Error::io("look at", database, &error)),
        Ok(meta) if !meta.is_file() => return Err(foreign("it is a link or a folder, not a file")),
        Ok(meta) if meta.len() == 0 => return empty(database),
        Ok(_) => {}
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let file = File::open(database).map_err(|error| Error::io("open", database, &error))?;
    let read = file.take(HEADER_BYTES as u64).read_to_end(&mut header);
    read.map_err(|error| Error::io("read", database, &error))?;
    if !header.starts_with(MAGIC) && !MAGIC.starts_with(&header) {
        // After a power cut a part of the first page may be missing; the engine looks for itself whether it can take it back.
        return if is_begun(database) { Ok(Header::Empty) } else { Err(foreign("it is no SQLite database")) };
    }
    let Some(id) = header.get(68..72).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes) else {
        let detail = format!("its header has {} of {HEADER_BYTES} bytes", header.len());
        return Err(Error::corrupt(database.display().to_string(), detail));
    };
    match id {
        APPLICATION_ID => check_length(database, &header).map(|()| Header::Ours),
        0 if has_no_table(database)? => Ok(Header::Empty),
        0 => Err(foreign("it is a database that holds tables of another program")),
        // No other program has an id so near to ours.
        other if (other ^ APPLICATION_ID).count_ones() <= DAMAGED_BITS => Err(Error::corrupt(
            database.display().to_string(),
            format!("its application id is damaged ({other:#010x})"),
        )),
        other => Err(foreign(&format!("it belongs to another program (application id {other:#010x})"))),
    }
}

/// A file that is not there, or empty. The engine would throw a log away that belongs to it, and with it what was written.
fn empty(database: &Path) -> Result<Header> {
    if has_beside(database, "-wal") {
        let detail =
            "it is empty or missing, and its log is not; `threadkeep doctor` says what can be brought back of it";
        return Err(Error::corrupt(database.display().to_string(), detail));
    }
    Ok(Header::Empty)
}

/// Whether the file's log or journal holds anything.
fn has_beside(database: &Path, suffix: &str) -> bool {
    std::fs::metadata(beside(database, suffix)).is_ok_and(|meta| meta.len() > 0)
}

/// The name of a file that belongs to a database.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether this is a store whose creation was cut off: opening it for writing takes back what was done of it.
fn is_begun(database: &Path) -> bool {
    has_beside(database, "-journal") && database.with_file_name(OPEN_LOCK).exists()
}

/// Finds a file that was cut: without a log that could complete it, it must be as long as its header says.
fn check_length(database: &Path, header: &[u8]) -> Result<()> {
    if has_beside(database, "-wal") || has_beside(database, "-journal") {
        return Ok(());
    }
    let page = header.get(16..18).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_be_bytes);
    let page = if page == 1 { 65536 } else { u64::from(page) };
    let pages = header.get(28..32).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
    let expected = page * u64::from(pages);
    let found = std::fs::metadata(database).map_err(|error| Error::io("look at", database, &error))?.len();
    if found < expected {
        let detail = format!(
            "it was cut: {found} of {expected} bytes are left; `threadkeep doctor` says what can be brought back of it"
        );
        return Err(Error::corrupt(database.display().to_string(), detail));
    }
    Ok(())
}

fn has_no_table(database: &Path) -> Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(|error| at(database, error))?;
    connection.busy_timeout(pragmas::BUSY_TIMEOUT).map_err(engine_error)?;
    let count: rusqlite::Result<i64> = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0));
    match count.map_err(|error| at(database, error)) {
        Err(Error::ReadOnly { .. }) if is_begun(database) => Ok(true),
        count => Ok(count? == 0),
    }
}

/// Creates a folder that only its owner can enter, with those above it that are missing.
///
/// A power cut takes none of them away: SQLite syncs the files that it makes, but not the folders that they are in.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    let gaining = folders_that_gain_names(folder);
    let mode = if planted::is(Defect::OpensFoldersToOthers) { 0o755 } else { 0o700 };
    let created = std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
    created.map_err(|error| Error::io("create the folder", folder, &error))?;
    gaining.iter().try_for_each(|parent| sync_entries(parent))
}

/// The folders in which a name appears when a folder is made with all that are missing on the way to it.
fn folders_that_gain_names(folder: &Path) -> Vec<PathBuf> {
    let missing = folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
    let parent = |path: &Path| path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_owned);
    missing.map(|path| parent(path).unwrap_or_else(|| PathBuf::from("."))).collect()
}

/// Makes the names in a folder survive a power cut, where the file system and the folder's owner let us.
fn sync_entries(folder: &Path) -> Result<()> {
    if planted::is(Defect::LeavesFoldersUnsynced) {
        return Ok(());
    }
    match File::open(folder).and_then(|file| file.sync_all()) {
        Err(error) if !is_out_of_reach(error.kind()) => Err(Error::io("sync the folder", folder, &error)),
        _ => Ok(()),
    }
}

/// A folder that may be entered and not read, or a file system that knows no sync of folders.
fn is_out_of_reach(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

/// Creates one of the folders in a store, which must be no link: what is kept in it would leave the store.
pub(crate) fn create_own_folder(folder: &Path) -> Result<()> {
    create_folder(folder)?;
    let found = folder.symlink_metadata().map_err(|error| Error::io("look at", folder, &error))?;
    if found.is_dir() {
        return Ok(());
    }
    Err(Error::io("use", folder, &std::io::Error::other("it is a link; put a folder in its place")))
}

/// Creates a file that only its owner can read, or tightens one that others can read.
pub(crate) fn create_file(path: &Path) -> Result<()> {
    let file = open_private(path)?;
    let mode = file.metadata().map_err(|error| Error::io("look at", path, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let tightened = file.set_permissions(std::fs::Permissions::from_mode(0o600));
        tightened.map_err(|error| Error::io("restrict", path, &error))?;
    }
    Ok(())
}

/// Opens or creates one of the store's own files, never through a link.
pub(crate) fn open_private(path: &Path) -> Result<File> {
    let flags =
        if planted::is(Defect::FollowsLinks) { rustix::fs::OFlags::empty() } else { rustix::fs::OFlags::NOFOLLOW };
    let mode = if planted::is(Defect::OpensFilesToOthers) { 0o644 } else { 0o600 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode).custom_flags(custom(flags));
    options.open(path).map_err(|error| Error::io("open", path, &error))
}

/// Opens one of the store's own files for reading, never through a link.
pub(crate) fn open_to_look(path: &Path) -> std::io::Result<File> {
    // A pipe in its place would be waited for.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(custom(flags)).open(path)
}

fn custom(flags: rustix::fs::OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// Takes the lock under which stores are created, migrated and replaced.
pub(crate) fn lock_opening(folder: &Path, bound: Duration) -> Result<File> {
    let path = folder.join(OPEN_LOCK);
    let file = open_private(&path)?;
    check_locks(folder, &path, &file)?;
    wait_for(&path, bound, || file.try_lock())?;
    Ok(file)
}

/// Keeps the store from being replaced while it is opened. From its first read on the engine's lock does that; before, what
/// was opened could be moved away, and the log of another database be taken for its own.
pub(crate) fn keep_in_place(folder: &Path, bound: Duration) -> Result<Option<File>> {
    let path = folder.join(OPEN_LOCK);
    // Only who may write the folder can replace what is in it, and makes the file first.
    let Ok(file) = open_to_look(&path) else { return Ok(None) };
    check_locks(folder, &path, &file)?;
    wait_for(&path, bound, || file.try_lock_shared())?;
    Ok(Some(file))
}

/// Refuses a folder in which no file can be locked: there SQLite would wait for a lock that nobody holds, and call it busy.
fn check_locks(folder: &Path, path: &Path, file: &File) -> Result<()> {
    // Where locks of one kind stand for those of the other, this one would be lost when the file is closed; and there the
    // lock under which stores are opened tells.
    if shared_file_system(folder).is_some() {
        return Ok(());
    }
    match rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockShared) {
        Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(()),
        Err(errno) => {
            let error = std::io::Error::from(errno);
            let why = format!("its file system gives no locks ({error}): keep the store on another one");
            Err(Error::io("lock", path, &std::io::Error::new(error.kind(), why)))
        }
    }
}

fn wait_for(path: &Path, bound: Duration, lock: impl Fn() -> Result<(), std::fs::TryLockError>) -> Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) if waited < bound => {
                std::thread::sleep(LOCK_STEP);
                waited += LOCK_STEP;
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                let detail = format!("another process has been creating, migrating or replacing it for {bound:?}");
                return Err(Error::Busy { detail });
            }
            Err(std::fs::TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                return Ok(());
            }
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(Error::io("lock", path, &error));
            }
        }
    }
}

/// A transaction on a connection.
pub(crate) struct SqliteTx<'a> {
    pub(crate) connection: &'a Connection,
}

impl SqliteTx<'_> {
    fn bind(&self, statement: Statement, args: &[Value<'_>]) -> Result<rusqlite::CachedStatement<'_>> {
        let mut prepared = self.connection.prepare_cached(statement.sql).map_err(|error| match error {
            // Our texts are those that the schema is made for: where one can't be prepared, the schema is another one.
            rusqlite::Error::SqlInputError { msg, .. } => {
                Error::corrupt("the schema", format!("{} can't be asked: {msg}", statement.name))
            }
            other => engine_error(other),
        })?;
        for (index, arg) in args.iter().enumerate() {
            prepared.raw_bind_parameter(index + 1, arg).map_err(engine_error)?;
        }
        Ok(prepared)
    }
}

impl Tx for SqliteTx<'_> {
    fn execute(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<usize> {
        self.bind(statement, args)?.raw_execute().map_err(engine_error)
    }

    fn query(
        &mut self,
        statement: Statement,
        args: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut prepared = self.bind(statement, args)?;
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next().map_err(engine_error)? {
            let row = Row { columns: row, statement: statement.name };
            if visit(&row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, pages: i64) -> Result<GivenBack> {
        let number = |what: &str| {
            let asked = self.connection.query_row(&format!("PRAGMA {what}"), [], |row| row.get::<_, i64>(0));
            asked.map_err(engine_error)
        };
        let before = number("page_count")?;
        {
            // A row for each page: it goes on only while they are asked for.
            let sql = format!("PRAGMA incremental_vacuum({pages})");
            let mut giving = self.connection.prepare(&sql).map_err(engine_error)?;
            let mut rows = giving.raw_query();
            while rows.next().map_err(engine_error)?.is_some() {}
        }
        let given = before.saturating_sub(number("page_count")?);
        Ok(GivenBack { bytes: given.saturating_mul(number("page_size")?), left: number("freelist_count")? })
    }
}

impl Columns for rusqlite::Row<'_> {
    fn value(&self, column: usize) -> Result<Value<'_>> {
        match self.get_ref(column).map_err(engine_error)? {
            ValueRef::Null => Ok(Value::Null),
            ValueRef::Integer(value) => Ok(Value::Int(value)),
            ValueRef::Blob(bytes) => Ok(Value::Blob(bytes)),
            ValueRef::Text(bytes) => std::str::from_utf8(bytes)
                .map(Value::Text)
                .map_err(|_| Error::corrupt(format!("column {column}"), "stored text is not UTF-8")),
            ValueRef::Real(_) => Err(Error::corrupt(format!("column {column}"), "a floating-point number is stored")),
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Tells the engine's errors apart by their codes.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
pub(crate) fn engine_error(error: rusqlite::Error) -> Error {
    let detail = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return Error::Backend { detail };
    };
    match failure.code {
        // The last one: others open and recover the log at the same moment, again and again.
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            Error::Busy { detail }
        }
        ErrorCode::DiskFull => Error::StorageFull { detail },
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Error::ReadOnly { detail },
        ErrorCode::DatabaseCorrupt => Error::corrupt("the database", detail),
        // A page that the file should have and has not: it was cut.
        ErrorCode::SystemIoFailure if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
            Error::corrupt("the database", detail)
        }
        ErrorCode::NotADatabase => Error::ForeignStore { path: DATABASE.to_owned(), detail },
        ErrorCode::TooBig => Error::invalid("content", detail),
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => {
            Error::Io { operation: "use", path: DATABASE.to_owned(), kind: ErrorKind::Other, detail }
        }
        ErrorCode::ConstraintViolation => constraint_error(failure.extended_code, detail),
        _ => Error::Backend { detail },
    }
}

fn constraint_error(extended_code: i32, detail: String) -> Error {
    match extended_code {
        rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY => {
            Error::AlreadyExists { what: "row", id: detail }
        }
        _ => Error::Conflict { what: "constraint", expected: "rows that fit together".to_owned(), found: detail },
    }
}

pub(crate) fn at(path: &Path, error: rusqlite::Error) -> Error {
    name_place(engine_error(error), path)
}

pub(crate) fn name_place(error: Error, file: &Path) -> Error {
    let path = file.display().to_string();
    match error {
        Error::Corrupt { detail, .. } => Error::Corrupt { place: path, detail },
        Error::ForeignStore { detail, .. } => Error::ForeignStore { path, detail },
        Error::Io { operation, kind, detail, .. } => Error::Io { operation, path, kind, detail },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::folders_that_gain_names;

    #[test]
    fn every_folder_in_which_a_new_one_appears_is_synced() {
        let temp = tempfile::tempdir().unwrap();
        let gaining = folders_that_gain_names(&temp.path().join("new/nested/store"));
        assert_eq!(gaining, ["new/nested", "new", ""].map(|part| temp.path().join(part)));
        assert_eq!(folders_that_gain_names(temp.path()), [] as [PathBuf; 0]);
        assert_eq!(folders_that_gain_names(Path::new("not-there-yet")), [PathBuf::from(".")]);
    }
}
