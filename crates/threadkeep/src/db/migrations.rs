//! Numbered, checksummed migrations, each store brought forward in one exclusive transaction.

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use crate::db::sqlite::engine_error;
use crate::error::{Error, Result};
use crate::item::Hash;
use crate::planted::{self, Defect};

/// One step of the schema. Its text is never edited once it has been released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The steps for SQLite; `migrations/postgres` holds the same numbers.
pub(crate) const SQLITE: &[Migration] = &[
    Migration { number: 1, name: "log", sql: include_str!("../../migrations/sqlite/0001_log.sql") },
    Migration { number: 2, name: "seals", sql: include_str!("../../migrations/sqlite/0002_seals.sql") },
    Migration { number: 3, name: "redactions", sql: include_str!("../../migrations/sqlite/0003_redactions.sql") },
];

/// The steps for PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &[Migration] = &[
    Migration { number: 1, name: "log", sql: include_str!("../../migrations/postgres/0001_log.sql") },
    Migration { number: 2, name: "seals", sql: include_str!("../../migrations/postgres/0002_seals.sql") },
    Migration { number: 3, name: "redactions", sql: include_str!("../../migrations/postgres/0003_redactions.sql") },
];

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
  number     INTEGER NOT NULL PRIMARY KEY,
  name       TEXT NOT NULL,
  checksum   TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT";

/// How far a store's schema is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is in it.
    Empty,
    /// All known steps are in it.
    Current,
    /// Steps are missing.
    Behind,
}

/// Compares the store's ledger with the known steps. The ledger is the truth; the number in the file's header only repeats it,
/// but one that is greater than any known says that a newer version was here.
pub(crate) fn state(connection: &Connection, known: &[Migration]) -> Result<State> {
    let newest = known.last().map_or(0, |migration| migration.number);
    let header: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(engine_error)?;
    if header > newest {
        return Err(Error::SchemaTooNew { found: header, known: newest });
    }
    let ledger = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'";
    let exists = connection.query_row(ledger, [], |_| Ok(())).optional().map_err(engine_error)?;
    if exists.is_none() {
        return Ok(State::Empty);
    }
    let mut statement =
        connection.prepare("SELECT number, checksum FROM schema_migrations ORDER BY number").map_err(engine_error)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(engine_error)?;
    let applied: Vec<(i64, String)> = rows.collect::<rusqlite::Result<_>>().map_err(engine_error)?;
    compare(&applied, known)
}

/// Decides what a ledger means.
pub(crate) fn compare(applied: &[(i64, String)], known: &[Migration]) -> Result<State> {
    let newest = known.last().map_or(0, |migration| migration.number);
    if let Some((found, _)) = applied.last().filter(|(number, _)| *number > newest) {
        return Err(Error::SchemaTooNew { found: *found, known: newest });
    }
    for (index, (number, checksum)) in applied.iter().enumerate() {
        let expected = known.get(index).filter(|migration| migration.number == *number);
        if expected.is_none_or(|migration| checksum_of(migration) != *checksum) {
            let detail = "its text differs from the one that this version knows by this number";
            return Err(Error::corrupt(format!("schema migration {number}"), detail));
        }
    }
    match applied.len() {
        0 => Ok(State::Empty),
        count if count == known.len() => Ok(State::Current),
        _ => Ok(State::Behind),
    }
}

/// Applies the missing steps, all or none.
pub(crate) fn apply(connection: &mut Connection, known: &[Migration], now: i64) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(engine_error)?;
    tx.execute_batch(LEDGER).map_err(engine_error)?;
    let last = "SELECT coalesce(max(number), 0) FROM schema_migrations";
    let last: i64 = tx.query_row(last, [], |row| row.get(0)).map_err(engine_error)?;
    for migration in known.iter().filter(|migration| migration.number > last) {
        tx.execute_batch(migration.sql).map_err(engine_error)?;
        if planted::is(Defect::CreatesInPieces) {
            tx.execute_batch("COMMIT; BEGIN EXCLUSIVE").map_err(engine_error)?;
        }
        let record = "INSERT INTO schema_migrations (number, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)";
        let checksum = checksum_of(migration);
        tx.execute(record, rusqlite::params![migration.number, migration.name, checksum, now]).map_err(engine_error)?;
    }
    stamp(&tx, known)?;
    tx.commit().map_err(engine_error)
}

/// Writes the application id and the schema number into the file's header.
pub(crate) fn stamp(connection: &Connection, known: &[Migration]) -> Result<()> {
    let newest = known.last().map_or(0, |migration| migration.number);
    connection.pragma_update(None, "application_id", super::pragmas::APPLICATION_ID).map_err(engine_error)?;
    connection.pragma_update(None, "user_version", newest).map_err(engine_error)
}

pub(crate) fn checksum_of(migration: &Migration) -> String {
    Hash::of(migration.sql.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::{Migration, SQLITE, State, apply, state};
    use crate::error::Error;

    const ONE: Migration = Migration { number: 1, name: "one", sql: "CREATE TABLE a (x INTEGER)" };
    const TWO: Migration = Migration { number: 2, name: "two", sql: "CREATE TABLE b (x INTEGER)" };
    const BROKEN: Migration = Migration { number: 2, name: "two", sql: "CREATE TABLE b (x INTEGER); CREATE nonsense" };

    #[test]
    fn missing_steps_are_applied_in_order_and_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(state(&connection, &[ONE]).unwrap(), State::Empty);
        apply(&mut connection, &[ONE], 0).unwrap();
        assert_eq!(state(&connection, &[ONE, TWO]).unwrap(), State::Behind);
        apply(&mut connection, &[ONE, TWO], 0).unwrap();
        apply(&mut connection, &[ONE, TWO], 0).unwrap();
        assert_eq!(state(&connection, &[ONE, TWO]).unwrap(), State::Current);
    }

    #[test]
    fn a_failing_step_leaves_the_store_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &[ONE], 0).unwrap();
        apply(&mut connection, &[ONE, BROKEN], 0).unwrap_err();
        assert_eq!(state(&connection, &[ONE]).unwrap(), State::Current);
        connection.query_row("SELECT count(*) FROM b", [], |_| Ok(())).unwrap_err();
    }

    #[test]
    fn newer_schemas_and_edited_steps_are_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &[ONE, TWO], 0).unwrap();
        assert!(matches!(state(&connection, &[ONE]), Err(Error::SchemaTooNew { found: 2, known: 1 })));
        connection.pragma_update(None, "user_version", 9).unwrap();
        assert!(matches!(state(&connection, &[ONE, TWO]), Err(Error::SchemaTooNew { found: 9, known: 2 })));
        connection.pragma_update(None, "user_version", 0).unwrap();
        assert_eq!(state(&connection, &[ONE, TWO]).unwrap(), State::Current);
        let edited = Migration { sql: "CREATE TABLE a (y INTEGER)", ..ONE };
        assert!(matches!(state(&connection, &[edited, TWO]), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn numbers_rise_by_one() {
        for (index, migration) in SQLITE.iter().enumerate() {
            assert_eq!(migration.number, i64::try_from(index).unwrap() + 1);
        }
    }
}
