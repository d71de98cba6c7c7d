//! Sessions of agents that keep theirs in a database: the file is made in memory, and given as bytes.

use std::collections::{BTreeSet, HashMap};

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, ToSql, params_from_iter};
use serde_json::Value;
use threadkeep::Error;

use crate::rows::unhex;

/// A name of a column that is longer is none.
const MAX_NAME_BYTES: usize = 64;
/// A table takes no more columns than this from rows of versions that are not known.
const MAX_COLUMNS: usize = 128;

/// The bytes of a new database that `fill` has filled.
///
/// # Errors
/// What `fill` fails with: the engine itself has nothing to wait for and nowhere to write.
pub(crate) fn image(fill: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<Vec<u8>> {
    let mut database = Connection::open_in_memory()?;
    database.execute_batch("BEGIN")?;
    fill(&database)?;
    database.execute_batch("COMMIT")?;
    let image = database.serialize("main")?.to_vec();
    Ok(image)
}

/// A database that is being made, row by row.
#[derive(Debug)]
pub(crate) struct Image {
    connection: Connection,
    /// The columns of the tables that rows were put into.
    columns: HashMap<&'static str, BTreeSet<String>>,
}

impl Image {
    /// One of these tables, which are empty.
    pub(crate) fn new(schema: &str) -> Result<Self, Error> {
        let connection = Connection::open_in_memory().map_err(failed)?;
        let image = Self { connection, columns: HashMap::new() };
        image.run(schema)?;
        image.run("BEGIN")?;
        Ok(image)
    }

    /// Runs statements that give nothing back.
    pub(crate) fn run(&self, statements: &str) -> Result<(), Error> {
        self.connection.execute_batch(statements).map_err(failed)
    }

    /// Runs one statement; gives how many rows it changed.
    pub(crate) fn execute(&self, statement: &str, values: &[&dyn ToSql]) -> Result<usize, Error> {
        let run = |connection: &Connection| connection.prepare_cached(statement)?.execute(values);
        run(&self.connection).map_err(failed)
    }

    /// The number that a statement gives; 0 where it gives none.
    pub(crate) fn number(&self, statement: &str, values: &[&dyn ToSql]) -> Result<i64, Error> {
        let read = |connection: &Connection| {
            let mut statement = connection.prepare_cached(statement)?;
            let mut rows = statement.query(values)?;
            rows.next()?.map_or(Ok(0), |row| row.get::<_, Option<i64>>(0).map(Option::unwrap_or_default))
        };
        read(&self.connection).map_err(failed)
    }

    /// Puts a row in as it was read. A column that the table has not is added to it.
    ///
    /// Gives `false`, and puts nothing in, where the row can't stand there: another one has its key, or a value is missing.
    pub(crate) fn row<'a>(
        &mut self,
        table: &'static str,
        row: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<bool, Error> {
        let mut names: Vec<&str> = Vec::new();
        let mut cells: Vec<Cell> = Vec::new();
        for (name, value) in row {
            if self.has_column(table, name)? {
                names.push(name);
                cells.push(cell(value));
            }
        }
        let marks = vec!["?"; names.len()].join(", ");
        let names: Vec<String> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
        let sql = format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", "));
        let put = |connection: &Connection| connection.prepare_cached(&sql)?.execute(params_from_iter(cells));
        match put(&self.connection) {
            Ok(_) => Ok(true),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether a table has a column, now at the latest.
    fn has_column(&mut self, table: &'static str, name: &str) -> Result<bool, Error> {
        if !self.columns.contains_key(table) {
            let read = |connection: &Connection| {
                let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
                columns.query_map([table], |row| row.get(0))?.collect::<rusqlite::Result<BTreeSet<String>>>()
            };
            let columns = read(&self.connection).map_err(failed)?;
            self.columns.insert(table, columns);
        }
        let Some(columns) = self.columns.get_mut(table) else { return Ok(false) };
        if columns.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(true);
        }
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name || columns.len() >= MAX_COLUMNS {
            return Ok(false);
        }
        columns.insert(name.to_owned());
        self.run(&format!("ALTER TABLE {table} ADD COLUMN \"{name}\""))?;
        Ok(true)
    }

    /// The bytes of the database.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.run("COMMIT")?;
        let image = self.connection.serialize("main").map_err(failed)?.to_vec();
        Ok(image)
    }
}

/// A value of a row that became JSON; bytes stand there in hexadecimal.
fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::Bool(yes) => Cell::Integer(i64::from(*yes)),
        Value::Number(number) => number
            .as_i64()
            .map_or_else(|| number.as_f64().map_or_else(|| Cell::Text(number.to_string()), Cell::Real), Cell::Integer),
        Value::String(text) => Cell::Text(text.clone()),
        Value::Object(object) => {
            let bytes = object.get("hex").and_then(Value::as_str).and_then(unhex);
            bytes.map_or_else(|| Cell::Text(value.to_string()), Cell::Blob)
        }
        Value::Array(_) => Cell::Text(value.to_string()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` takes")]
fn failed(error: rusqlite::Error) -> Error {
    Error::Invalid { field: "session", reason: format!("it can't be put into a database of its agent: {error}") }
}
