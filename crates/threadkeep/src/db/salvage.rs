//! What can still be read of a damaged database, collected from its pages into one that can be asked.
//!
//! Rows are known by their shape: as many values as their table has columns, each of the column's type. Several rows may say
//! different things of the same key; which of them is true is judged above.

use std::path::Path;

use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{Connection, params_from_iter};

use crate::db::migrations::{self, Migration};
use crate::db::pages::{self, Account, Found};
use crate::db::sqlite::{create_file, engine_error};
use crate::db::{Owned, Value};
use crate::error::Result;
use crate::id::ItemKey;
use crate::item::Hash;

/// Tables whose rows are never changed: an older page is as good as the newest.
const LASTING: [&str; 2] = ["items", "blobs"];
/// Columns that a later version may have added to a table.
const LATE_COLUMNS: usize = 4;
/// Rows of an index with an id: from here on they are no writers.
const MOST_WRITERS: i64 = 100_000;

/// The rows of a database that were found on its pages.
#[derive(Debug)]
pub(crate) struct Salvage {
    connection: Connection,
    shapes: Vec<Shape>,
    pub(crate) account: Account,
}

/// What a row of a table looks like.
#[derive(Debug)]
struct Shape {
    table: String,
    columns: Vec<Column>,
    /// The column that is the row's own number, and stored as nothing.
    rowid: Option<usize>,
    like_an_index: bool,
}

#[derive(Debug)]
struct Column {
    name: String,
    kind: String,
    is_required: bool,
    may_lack: bool,
}

impl Salvage {
    /// Reads all pages of a database and its log into a new file.
    pub(crate) fn collect(database: &Path, into: &Path, known: &'static [Migration]) -> Result<Self> {
        create_file(into)?;
        let shapes = shapes(known)?;
        let connection = Connection::open(into).map_err(engine_error)?;
        // It is thrown away in the end.
        connection
            .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY")
            .map_err(engine_error)?;
        for shape in &shapes {
            connection.execute_batch(&shape.make()).map_err(engine_error)?;
        }
        let more = "CREATE INDEX items_key ON items (key); CREATE INDEX items_id ON items (id);
            CREATE TABLE ids (id BLOB, number INTEGER, UNIQUE (id, number))";
        connection.execute_batch(more).map_err(engine_error)?;
        let mut salvage = Self { connection, shapes, account: Account::default() };
        salvage.connection.execute_batch("BEGIN").map_err(engine_error)?;
        salvage.account = pages::rows(database, &mut |found| salvage.take(&found))?;
        salvage.connection.execute_batch("COMMIT").map_err(engine_error)?;
        Ok(salvage)
    }

    fn take(&self, found: &Found) -> Result<()> {
        if let (None, [Owned::Blob(id), Owned::Int(number)]) = (found.rowid, found.values.as_slice())
            && id.len() == 16
            && (0..MOST_WRITERS).contains(number)
        {
            let put = "INSERT OR IGNORE INTO ids (id, number) VALUES (?1, ?2)";
            self.connection.prepare_cached(put).and_then(|mut put| put.execute((id, number))).map_err(engine_error)?;
        }
        let Some(shape) = self.shape_of(found) else { return Ok(()) };
        let is_lasting = LASTING.contains(&shape.table.as_str());
        if !found.is_newest && !is_lasting {
            return Ok(());
        }
        let mut values: Vec<Owned> = found.values.clone();
        if let (Some(at), Some(rowid)) = (shape.rowid, found.rowid)
            && let Some(value) = values.get_mut(at)
        {
            *value = Owned::Int(rowid);
        }
        let print = Owned::Blob(Hash::of(format!("{values:?}").as_bytes()).0.to_vec());
        let newest = Owned::Int(i64::from(found.is_newest));
        let row = [print, newest].into_iter().chain(values);
        let put = shape.put(found.values.len());
        let mut put = self.connection.prepare_cached(&put).map_err(engine_error)?;
        put.execute(params_from_iter(row)).map(drop).map_err(engine_error)
    }

    fn shape_of(&self, found: &Found) -> Option<&Shape> {
        let fits = |shape: &&Shape| shape.fits(found);
        let whole = self.shapes.iter().filter(|shape| shape.columns.len() == found.values.len()).find(fits);
        whole.or_else(|| self.shapes.iter().find(fits))
    }

    /// Puts all rows of a table that another database can take into it; says how many there are then.
    pub(crate) fn fill(&self, to: &Connection, table: &str) -> Result<u64> {
        let Some(shape) = self.shapes.iter().find(|shape| shape.table == table) else { return Ok(0) };
        let names = shape.names(shape.columns.len());
        let read = format!("SELECT {names} FROM {table} ORDER BY newest DESC, seq");
        let marks: Vec<String> = (1..=shape.columns.len()).map(|number| format!("?{number}")).collect();
        let put = format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({})", marks.join(", "));
        let mut put = to.prepare(&put).map_err(engine_error)?;
        let mut count = 0;
        self.visit(&read, &[], shape.columns.len(), &mut |row| {
            count += put.execute(params_from_iter(row)).map_err(engine_error)? as u64;
            Ok(())
        })?;
        Ok(count)
    }

    /// All rows of a table, those of the newest pages first, with the columns in the order of the table.
    pub(crate) fn rows(&self, table: &str, visit: &mut dyn FnMut(Vec<Owned>) -> Result<()>) -> Result<()> {
        let Some(shape) = self.shapes.iter().find(|shape| shape.table == table) else { return Ok(()) };
        let names = shape.names(shape.columns.len());
        let read = format!("SELECT {names} FROM {table} ORDER BY newest DESC, seq");
        self.visit(&read, &[], shape.columns.len(), visit)
    }

    /// The rows that stand, or claim to stand, at an item's key.
    pub(crate) fn items(&self, key: ItemKey) -> Result<Vec<Vec<Owned>>> {
        let Some(shape) = self.shapes.iter().find(|shape| shape.table == "items") else { return Ok(Vec::new()) };
        let names = shape.names(shape.columns.len());
        let read = format!("SELECT {names} FROM items WHERE key = ?1 ORDER BY newest DESC, seq");
        let mut rows = Vec::new();
        self.visit(&read, &[Value::Int(key.0)], shape.columns.len(), &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The numbers of the branches of which items were found, each with its first and last depth.
    pub(crate) fn branches(&self) -> Result<Vec<(i64, u32, u32)>> {
        let read =
            "SELECT key >> 32, min(key) & 4294967295, max(key) & 4294967295 FROM items GROUP BY key >> 32 ORDER BY 1";
        let mut branches = Vec::new();
        self.visit(read, &[], 3, &mut |row| {
            if let [Owned::Int(number), Owned::Int(first), Owned::Int(last)] = row.as_slice() {
                let depth = |depth: i64| u32::try_from(depth).unwrap_or(u32::MAX);
                branches.push((*number, depth(*first), depth(*last)));
            }
            Ok(())
        })?;
        Ok(branches)
    }

    /// The keys under which an item of this id was found.
    pub(crate) fn keys_of(&self, id: &[u8]) -> Result<Vec<i64>> {
        self.numbers("SELECT DISTINCT key FROM items WHERE id = ?1 ORDER BY key", Value::Blob(id))
    }

    /// All keys of items, in their order, beyond one.
    pub(crate) fn keys_after(&self, key: i64) -> Result<Vec<i64>> {
        self.numbers("SELECT DISTINCT key FROM items WHERE key > ?1 ORDER BY key LIMIT 1000", Value::Int(key))
    }

    fn numbers(&self, read: &str, arg: Value<'_>) -> Result<Vec<i64>> {
        let mut numbers = Vec::new();
        self.visit(read, &[arg], 1, &mut |row| {
            if let [Owned::Int(number)] = row.as_slice() {
                numbers.push(*number);
            }
            Ok(())
        })?;
        Ok(numbers)
    }

    /// The ids that indexes know under a number.
    pub(crate) fn ids_of(&self, number: i64) -> Result<Vec<Vec<u8>>> {
        let mut ids = Vec::new();
        self.visit("SELECT id FROM ids WHERE number = ?1", &[Value::Int(number)], 1, &mut |row| {
            if let Some(Owned::Blob(id)) = row.into_iter().next() {
                ids.push(id);
            }
            Ok(())
        })?;
        Ok(ids)
    }

    fn visit(
        &self,
        sql: &str,
        args: &[Value<'_>],
        columns: usize,
        visit: &mut dyn FnMut(Vec<Owned>) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(engine_error)?;
        let mut rows = statement.query(params_from_iter(args)).map_err(engine_error)?;
        while let Some(row) = rows.next().map_err(engine_error)? {
            let row = crate::db::Row { columns: row, statement: "SALVAGED" };
            visit((0..columns).map(|column| row.owned(column)).collect::<Result<_>>()?)?;
        }
        Ok(())
    }
}

impl ToSql for Owned {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        use rusqlite::types::ValueRef;
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl Shape {
    fn fits(&self, found: &Found) -> bool {
        let columns = self.columns.iter().zip(&found.values).enumerate();
        let mut lacking = self.columns.iter().skip(found.values.len());
        found.rowid.is_none() == self.like_an_index
            && found.values.len() <= self.columns.len()
            && self.columns.len() - found.values.len() <= LATE_COLUMNS
            && lacking.all(|column| column.may_lack)
            && columns.into_iter().all(|(at, (column, value))| match value {
                Owned::Null => self.rowid == Some(at) || !column.is_required,
                _ if self.rowid == Some(at) => false,
                Owned::Int(_) => column.kind == "INTEGER",
                Owned::Text(_) => column.kind == "TEXT",
                Owned::Blob(_) => column.kind == "BLOB",
            })
    }

    fn names(&self, count: usize) -> String {
        self.columns.iter().take(count).map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn make(&self) -> String {
        let names = self.names(self.columns.len());
        format!("CREATE TABLE {} (seq INTEGER PRIMARY KEY, print BLOB UNIQUE, newest INTEGER, {names})", self.table)
    }

    fn put(&self, count: usize) -> String {
        let marks: Vec<String> = (1..=count + 2).map(|number| format!("?{number}")).collect();
        let (names, marks) = (self.names(count), marks.join(", "));
        format!("INSERT OR IGNORE INTO {} (print, newest, {names}) VALUES ({marks})", self.table)
    }
}

/// The shapes of all tables that the migrations make, but for the ledger.
fn shapes(known: &'static [Migration]) -> Result<Vec<Shape>> {
    let mut schema = Connection::open_in_memory().map_err(engine_error)?;
    migrations::apply(&mut schema, known, 0)?;
    let tables =
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'
        AND name <> 'schema_migrations' ORDER BY name";
    let mut tables = schema.prepare(tables).map_err(engine_error)?;
    let tables = tables.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?)));
    let tables: Vec<(String, bool)> = tables.and_then(Iterator::collect).map_err(engine_error)?;
    let columns = "SELECT name, type, \"notnull\", dflt_value IS NOT NULL, pk FROM pragma_table_xinfo(?1) ORDER BY cid";
    let mut columns = schema.prepare(columns).map_err(engine_error)?;
    let mut shapes = Vec::new();
    for (table, like_an_index) in tables {
        let rows = columns.query_map([&table], |row| {
            let (is_required, has_default) = (row.get::<_, bool>(2)?, row.get::<_, bool>(3)?);
            let may_lack = !is_required || has_default;
            Ok((Column { name: row.get(0)?, kind: row.get(1)?, is_required, may_lack }, row.get::<_, i64>(4)?))
        });
        let rows: Vec<(Column, i64)> = rows.and_then(Iterator::collect).map_err(engine_error)?;
        let keys = rows.iter().filter(|(_, key)| *key > 0).count();
        let alias = rows.iter().position(|(column, key)| *key == 1 && keys == 1 && column.kind == "INTEGER");
        let rowid = alias.filter(|_| !like_an_index);
        shapes.push(Shape {
            table,
            columns: rows.into_iter().map(|(column, _)| column).collect(),
            rowid,
            like_an_index,
        });
    }
    Ok(shapes)
}

#[cfg(test)]
mod tests {
    use super::shapes;
    use crate::db::Owned;
    use crate::db::migrations::SQLITE;
    use crate::db::pages::Found;

    /// A row that one table takes is taken for no other's.
    #[test]
    fn every_table_has_a_shape_of_its_own() {
        let shapes = shapes(SQLITE).unwrap();
        assert!(shapes.iter().any(|shape| shape.table == "items") && shapes.iter().any(|shape| shape.table == "turns"));
        for shape in &shapes {
            for with_nulls in [false, true] {
                let value = |(at, column): (usize, &super::Column)| match column.kind.as_str() {
                    _ if shape.rowid == Some(at) || (with_nulls && !column.is_required) => Owned::Null,
                    "INTEGER" => Owned::Int(1),
                    "TEXT" => Owned::Text("t".to_owned()),
                    _ => Owned::Blob(vec![1]),
                };
                let values = shape.columns.iter().enumerate().map(value).collect();
                let found = Found { rowid: (!shape.like_an_index).then_some(1), values, is_newest: true };
                let fitting: Vec<&str> = shapes
                    .iter()
                    .filter(|other| other.columns.len() == shape.columns.len() && other.fits(&found))
                    .map(|shape| shape.table.as_str())
                    .collect();
                assert_eq!(fitting, [shape.table.as_str()]);
            }
        }
    }
}
