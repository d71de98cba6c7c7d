//! Numbered, checksummed migrations, each store brought forward in one exclusive transaction.

use rusqlite::{Connection, TransactionBehavior};

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
    Migration { number: 4, name: "search", sql: include_str!("../../migrations/sqlite/0004_search.sql") },
    Migration { number: 5, name: "state", sql: include_str!("../../migrations/sqlite/0005_state.sql") },
    Migration { number: 6, name: "work", sql: include_str!("../../migrations/sqlite/0006_work.sql") },
    Migration { number: 7, name: "steering", sql: include_str!("../../migrations/sqlite/0007_steering.sql") },
    Migration { number: 8, name: "receipts", sql: include_str!("../../migrations/sqlite/0008_receipts.sql") },
    Migration { number: 9, name: "retention", sql: include_str!("../../migrations/sqlite/0009_retention.sql") },
    Migration { number: 10, name: "dictionary", sql: include_str!("../../migrations/sqlite/0010_dictionary.sql") },
];

/// The steps for PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &[Migration] = &[
    Migration { number: 1, name: "log", sql: include_str!("../../migrations/postgres/0001_log.sql") },
    Migration { number: 2, name: "seals", sql: include_str!("../../migrations/postgres/0002_seals.sql") },
    Migration { number: 3, name: "redactions", sql: include_str!("../../migrations/postgres/0003_redactions.sql") },
    Migration { number: 4, name: "search", sql: include_str!("../../migrations/postgres/0004_search.sql") },
    Migration { number: 5, name: "state", sql: include_str!("../../migrations/postgres/0005_state.sql") },
    Migration { number: 6, name: "work", sql: include_str!("../../migrations/postgres/0006_work.sql") },
    Migration { number: 7, name: "steering", sql: include_str!("../../migrations/postgres/0007_steering.sql") },
    Migration { number: 8, name: "receipts", sql: include_str!("../../migrations/postgres/0008_receipts.sql") },
    Migration { number: 9, name: "retention", sql: include_str!("../../migrations/postgres/0009_retention.sql") },
    Migration { number: 10, name: "dictionary", sql: include_str!("../../migrations/postgres/0010_dictionary.sql") },
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
    /// Tables are in it, and no step is on record.
    Unrecorded,
}

/// Compares the store's ledger with the known steps. The ledger is the truth, and the number in the file's header only repeats
/// it: where there is no ledger that can be read, a greater one than any known says that a newer version was here.
pub(crate) fn state(connection: &Connection, known: &[Migration]) -> Result<State> {
    let place = connection.path().filter(|path| !path.is_empty()).unwrap_or("the database");
    let newest = newest(known);
    let header: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(engine_error)?;
    let tables = "SELECT count(*), coalesce(sum(name = 'schema_migrations'), 0) FROM sqlite_master
        WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let tables = connection.query_row(tables, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(engine_error)?;
    match tables {
        (_, 0_i64) if header > newest => {
            return Err(Error::SchemaTooNew { place: place.to_owned(), found: header, known: newest });
        }
        (0_i64, _) => return Ok(State::Empty),
        (_, 0) => return Ok(State::Unrecorded),
        _ => {}
    }
    let applied = ledger(connection).map_err(|error| match engine_error(error) {
        Error::Backend { detail } => unreadable(place, &detail),
        other => other,
    })?;
    let state = compare(place, &applied, known)?;
    if header > newest {
        let last = applied.last().map_or(0, |(number, _)| *number);
        let detail = format!(
            "its header says schema {header}, and its ledger ends with {last}: one of the two is damaged, or another program \
             has written to it; `threadkeep doctor` looks at both, and a backup can be restored"
        );
        return Err(Error::corrupt(place, detail));
    }
    Ok(state)
}

fn ledger(connection: &Connection) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut statement = connection.prepare("SELECT number, checksum FROM schema_migrations ORDER BY number")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// What is said of a ledger that has other columns than ours, or other values.
pub(crate) fn unreadable(place: &str, detail: &str) -> Error {
    let detail = format!("the record of its schema can't be read ({detail}); restore a backup of it");
    Error::corrupt(place, detail)
}

/// What is said of tables without a record of how they were made.
pub(crate) fn unrecorded(place: &str) -> Error {
    Error::corrupt(place, "no step of its schema is on record, though it holds tables; restore a backup of it")
}

/// Decides what a ledger means. One that goes on behind the known steps is of a newer version only if it holds these, and each
/// number up to its last one.
pub(crate) fn compare(place: &str, applied: &[(i64, String)], known: &[Migration]) -> Result<State> {
    for (expected, (number, checksum)) in (1..).zip(applied) {
        let migration = known.iter().find(|migration| migration.number == *number);
        let detail = match migration {
            _ if *number != expected => format!("the ledger lacks step {expected}, which comes before it"),
            Some(migration) if checksum_of(migration) != *checksum => {
                "its text differs from the one that this version knows by this number".to_owned()
            }
            _ => continue,
        };
        return Err(Error::corrupt(format!("schema migration {number}"), detail));
    }
    match applied.len() {
        0 => Ok(State::Unrecorded),
        count if count == known.len() => Ok(State::Current),
        count if count < known.len() => Ok(State::Behind),
        _ => {
            let found = applied.last().map_or(0, |(number, _)| *number);
            Err(Error::SchemaTooNew { place: place.to_owned(), found, known: newest(known) })
        }
    }
}

fn newest(known: &[Migration]) -> i64 {
    known.last().map_or(0, |migration| migration.number)
}

/// Applies the missing steps, all or none.
pub(crate) fn apply(connection: &mut Connection, known: &[Migration], now: i64) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(engine_error)?;
    tx.execute_batch(LEDGER).map_err(engine_error)?;
    let last = "SELECT coalesce(max(number), 0) FROM schema_migrations";
    let last: i64 = tx.query_row(last, [], |row| row.get(0)).map_err(engine_error)?;
    for migration in known.iter().filter(|migration| migration.number > last) {
        tx.execute_batch(migration.sql).map_err(|error| match error {
            // The ledger lacks what was done, or a table that the step builds on is another one.
            rusqlite::Error::SqlInputError { msg, .. } => {
                Error::corrupt("the schema", format!("step {} can't be done: {msg}", migration.number))
            }
            other => engine_error(other),
        })?;
        let in_pieces = planted::is(Defect::CreatesInPieces) || planted::is(Defect::MigratesInPieces) && last > 0;
        if in_pieces {
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
    let newest = newest(known);
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
        assert!(matches!(state(&connection, &[ONE]), Err(Error::SchemaTooNew { found: 2, known: 1, .. })));
        connection.pragma_update(None, "user_version", 0).unwrap();
        assert!(matches!(state(&connection, &[ONE]), Err(Error::SchemaTooNew { found: 2, known: 1, .. })));
        assert_eq!(state(&connection, &[ONE, TWO]).unwrap(), State::Current);
        let edited = Migration { sql: "CREATE TABLE a (y INTEGER)", ..ONE };
        assert!(matches!(state(&connection, &[edited, TWO]), Err(Error::Corrupt { .. })));
        // Another program's third step behind an edited first one does not make it newer.
        assert!(matches!(state(&connection, &[edited]), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_damaged_record_of_the_schema_is_told_as_such() {
        let damages = [
            ("a number in the header that the ledger does not know", "PRAGMA user_version = 9", "its header says"),
            ("a step far beyond the others", "INSERT INTO schema_migrations VALUES (9, 'x', 'x', 0)", "lacks step 3"),
            ("the first step is gone", "DELETE FROM schema_migrations WHERE number = 1", "lacks step 1"),
            ("other columns", "ALTER TABLE schema_migrations RENAME COLUMN checksum TO sum", "can't be read"),
        ];
        for (what, damage, words) in damages {
            let mut connection = Connection::open_in_memory().unwrap();
            apply(&mut connection, &[ONE, TWO], 0).unwrap();
            connection.execute_batch(damage).unwrap();
            let refused = state(&connection, &[ONE, TWO]).unwrap_err();
            assert!(
                matches!(refused, Error::Corrupt { .. }) && refused.to_string().contains(words),
                "{what}: {refused}"
            );
        }
        for lost in ["DELETE FROM schema_migrations", "DROP TABLE schema_migrations"] {
            let mut connection = Connection::open_in_memory().unwrap();
            apply(&mut connection, &[ONE, TWO], 0).unwrap();
            connection.execute_batch(lost).unwrap();
            assert_eq!(state(&connection, &[ONE, TWO]).unwrap(), State::Unrecorded, "{lost}");
        }
        // A newer version may keep its record elsewhere; the header is there for that.
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE steps (x); PRAGMA user_version = 9").unwrap();
        assert!(matches!(state(&connection, &[ONE]), Err(Error::SchemaTooNew { found: 9, known: 1, .. })));
    }

    #[test]
    fn numbers_rise_by_one() {
        for (index, migration) in SQLITE.iter().enumerate() {
            assert_eq!(migration.number, i64::try_from(index).unwrap() + 1);
        }
    }
}
