//! The tables of a store, for somebody who changes them behind the library's back, knows the schema and has all the rights.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// Rows of either engine, by their texts.
pub(crate) trait Rows {
    /// Runs statements.
    fn run(&mut self, sql: &str);
    /// Reads rows; what is nothing comes as an empty text.
    fn read(&mut self, sql: &str) -> Vec<Vec<String>>;
    /// Bytes as the engine writes them.
    fn bytes(&self, hex: &str) -> String;
    /// An expression that gives bytes as hex digits.
    fn hex(&self, column: &str) -> String;

    /// Reads a number.
    fn number(&mut self, sql: &str) -> i64 {
        let rows = self.read(sql);
        rows[0][0].parse().unwrap_or_else(|_| panic!("{sql}: {rows:?}"))
    }
}

/// A store in a folder.
pub(crate) struct Lite(Connection);

impl Lite {
    /// Opens the database; triggers and foreign keys are out of the way.
    pub(crate) fn open(folder: &Path) -> Self {
        let connection = Connection::open(folder.join("threadkeep.db")).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        let mut rows = Self(connection);
        for trigger in rows.read("SELECT name FROM sqlite_master WHERE type = 'trigger'") {
            rows.run(&format!("DROP TRIGGER {}", trigger[0]));
        }
        rows
    }
}

impl Rows for Lite {
    fn run(&mut self, sql: &str) {
        self.0.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn read(&mut self, sql: &str) -> Vec<Vec<String>> {
        let mut statement = self.0.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let columns = statement.column_count();
        let read = |row: &rusqlite::Row<'_>| {
            let text = |at| {
                Ok(match row.get_ref(at)? {
                    rusqlite::types::ValueRef::Null => String::new(),
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    other => other.as_str()?.to_owned(),
                })
            };
            (0..columns).map(text).collect::<rusqlite::Result<Vec<_>>>()
        };
        statement.query_map([], read).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    fn bytes(&self, hex: &str) -> String {
        format!("x'{hex}'")
    }

    fn hex(&self, column: &str) -> String {
        format!("lower(hex({column}))")
    }
}

/// Copies a store that nobody has open.
pub(crate) fn copy(from: &Path, to: &Path) -> PathBuf {
    drop(std::fs::remove_dir_all(to));
    std::fs::create_dir_all(to).unwrap();
    std::fs::copy(from.join("threadkeep.db"), to.join("threadkeep.db")).unwrap();
    to.to_owned()
}
