//! Copying a database while it is in use, and telling whether a copy is whole.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::db::identity;
use crate::db::pragmas::{self, Journal};
use crate::db::sqlite::{at, beside, connect_to, engine_error};
use crate::error::{Error, Result};
use crate::planted::{self, Defect};

/// Between two steps the caller is told how far the copy is: a megabyte, with pages of the usual size.
const PAGES_PER_STEP: i32 = 256;
/// Where the two bytes of a header end that say whether the database has a log (2) or not (1).
const VERSIONS_END: usize = 20;

/// Copies what one snapshot of the source holds into an empty file, which then needs no log beside it, is checked and synced.
///
/// The pages are copied by the engine while one read transaction is open. In its log mode such a transaction makes no writer
/// wait and sees no writer, so the copy is the state of one moment, never begins anew however much is written, and needs no
/// pauses; the log alone grows meanwhile, because it can't be reset past a reader. `VACUUM INTO` reads one snapshot as well,
/// but writes every row and index anew: slower, silent about how far it is, and not what was stored but what the engine made
/// of it. With a rollback journal (on shared file systems) writers wait in either case, for as long as the copy takes.
pub(crate) fn copy(source: &Connection, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    match source.path() {
        Some(file) if planted::is(Defect::BacksUpWithoutLog) => {
            std::fs::copy(file, target).map_err(|error| Error::io("copy", target, &error))?;
        }
        _ => copy_pages(source, target, progress)?,
    }
    let copy = connect_to(target)?;
    // Alone, so that no index of a log is made beside it.
    copy.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(|error| at(target, error))?;
    // The copy of a store with a log says that it has one, and a file that is moved alone must not.
    pragmas::set_journal(&copy, Journal::Rollback)?;
    check(&copy, target)?;
    copy.close().map_err(|(_, error)| at(target, error))?;
    check_stands_alone(target)?;
    sync(target)
}

/// Finds out whether the file says that it has no log, and has nothing beside it. When a write of that fails, or a sync, the engine puts
/// back what was there or leaves its journal, and says that it went well.
fn check_stands_alone(target: &Path) -> Result<()> {
    let mut header = [0; VERSIONS_END];
    let read = File::open(target).and_then(|mut file| file.read_exact(&mut header));
    read.map_err(|error| Error::io("read", target, &error))?;
    let is_left = ["-journal", "-wal"].iter().any(|suffix| beside(target, suffix).exists());
    match header {
        [.., 1, 1] if !is_left => Ok(()),
        _ => {
            let why = std::io::Error::other("it could not be written so that it needs no log beside it");
            Err(Error::io("complete", target, &why))
        }
    }
}

fn copy_pages(source: &Connection, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let snapshot = source.unchecked_transaction().map_err(engine_error)?;
    // The snapshot is taken by the first read, not by the beginning.
    snapshot.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(())).map_err(engine_error)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut copy = Connection::open_with_flags(target, flags).map_err(|error| at(target, error))?;
    // A copy that fails is thrown away, so nothing has to be undone; it is synced once, when it is complete.
    copy.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(())).map_err(|error| at(target, error))?;
    copy.pragma_update(None, "synchronous", "OFF").map_err(|error| at(target, error))?;
    let steps = Backup::new(&snapshot, &mut copy).map_err(engine_error)?;
    loop {
        let step = steps.step(PAGES_PER_STEP).map_err(|error| at(target, error))?;
        let pages = steps.progress();
        let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
        progress(count(pages.pagecount.saturating_sub(pages.remaining)), count(pages.pagecount));
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // The snapshot is open and nobody else knows the copy: waiting would change nothing.
            _ => {
                return Err(Error::Busy {
                    detail: format!("{} is being written by another program", target.display()),
                });
            }
        }
    }
}

/// Finds what is wrong with the pages, the rows and the indexes of a database.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<()> {
    let found = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    match found.map_err(|error| at(path, error))? {
        found if found == "ok" => Ok(()),
        found => Err(Error::corrupt(path.display().to_string(), found)),
    }
}

/// Finds out whether anybody has the database open, and merges its log into it when nobody has.
///
/// Whoever uses a database with a log holds a lock on it for as long as it is open, idle or not; the engine's own lock finds
/// that, in this process too, where the system's lock would not.
pub(crate) fn is_in_use(database: &Path) -> Result<bool> {
    let alone = || {
        let connection = connect_to(database)?;
        connection.busy_timeout(Duration::ZERO).map_err(engine_error)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(engine_error)?;
        connection.execute_batch("BEGIN EXCLUSIVE; COMMIT").map_err(engine_error)?;
        connection.close().map_err(|(_, error)| engine_error(error))
    };
    match alone() {
        Err(Error::Busy { .. }) => Ok(true),
        outcome => outcome.map(|()| false),
    }
}

/// Whether anybody has the database open, found out without touching a byte of its files: by the locks that engines hold on it.
pub(crate) fn is_open_anywhere(database: &Path) -> Result<bool> {
    let look = || {
        let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(database) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io("open", database, &error)),
        };
        let locked = rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        Ok(matches!(locked, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS)))
    };
    identity::unless_open_here(database, look).unwrap_or(Ok(true))
}

/// Makes a file survive a power loss.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| Error::io("sync", path, &error))
}
