//! What a SQLite connection is set to, and the version that it must have.

use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::db::sqlite::engine_error;
use crate::error::{Error, Result};
use crate::planted::{self, Defect};

/// `Tkep`: marks a database as a Threadkeep store.
pub(crate) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"Tkep");

/// Below 3.51.3 two processes that write and checkpoint at once can corrupt a WAL database.
const MIN_SQLITE: i32 = 3_051_003;

/// How long SQLite itself waits for a lock. The gate in front of it makes the wait fair; this is the bound for other programs.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const JOURNAL_SIZE_LIMIT: i64 = 16 << 20;
const STATEMENTS_CACHED: usize = 128;

/// Refuses an engine that is known to lose data.
pub(crate) fn check_version() -> Result<()> {
    let found = rusqlite::version_number();
    if found < MIN_SQLITE {
        let version = rusqlite::version();
        let detail =
            format!("SQLite {version} is linked; 3.51.3 or newer is needed, older ones can corrupt a shared store");
        return Err(Error::Backend { detail });
    }
    Ok(())
}

/// Sets what holds for every connection and writes nothing to the file.
///
/// EXTRA is FULL with a log. With a rollback journal it also syncs the folder from which the journal was removed: after a power
/// cut it would stand there again, and take back what was acknowledged.
pub(crate) fn configure(connection: &Connection) -> Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    connection.busy_timeout(BUSY_TIMEOUT).map_err(engine_error)?;
    let pragmas = "PRAGMA foreign_keys = ON;
         PRAGMA recursive_triggers = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA secure_delete = ON;
         PRAGMA cache_size = -16384;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA synchronous = EXTRA;";
    connection.execute_batch(pragmas).map_err(engine_error)?;
    if planted::is(Defect::NeverSyncs) {
        connection.pragma_update(None, "synchronous", "OFF").map_err(engine_error)?;
    } else if planted::is(Defect::LeavesJournalUnsynced) {
        connection.pragma_update(None, "synchronous", "FULL").map_err(engine_error)?;
    }
    // Else a statement is planned anew at each use, because its values might suit another plan: a third of a read's time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(engine_error)?;
    connection.pragma_update(None, "journal_size_limit", JOURNAL_SIZE_LIMIT).map_err(engine_error)
}

/// The journal that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journal {
    Wal,
    Rollback,
    Memory,
}

/// Switches to the journal. SQLite may answer busy here without waiting, so the caller holds the opening lock, or is alone.
pub(crate) fn set_journal(connection: &Connection, journal: Journal) -> Result<Journal> {
    let word = match journal {
        Journal::Wal => "WAL",
        Journal::Rollback => "DELETE",
        Journal::Memory => return Ok(Journal::Memory),
    };
    let set = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let found = connection.query_row(&format!("PRAGMA journal_mode = {word}"), [], set).map_err(engine_error)?;
    Ok(if found.eq_ignore_ascii_case("wal") { Journal::Wal } else { Journal::Rollback })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_removal_of_a_rollback_journal_is_synced() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        super::configure(&connection).unwrap();
        let level: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
        assert_eq!(level, 3, "EXTRA");
    }

    #[test]
    fn the_linked_sqlite_is_new_enough() {
        super::check_version().unwrap();
        assert!(rusqlite::version_number() >= 3_051_003);
    }
}
