//! The two schemas are the same one.

use std::collections::{BTreeMap, BTreeSet};

use postgres::Client;
use rusqlite::Connection;

use crate::migrated::Migrated;
use crate::rules;
use crate::server::server;

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    columns: Vec<Column>,
    primary_key: Vec<String>,
    unique: BTreeSet<Vec<String>>,
    /// Column, table and column that it names, what happens on delete.
    foreign_keys: BTreeSet<(String, String, String, String)>,
    checks: usize,
    /// By name: the columns, and whether it holds some rows only.
    indexes: BTreeMap<String, (Vec<String>, bool)>,
    triggers: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Column {
    name: String,
    kind: String,
    not_null: bool,
}

/// What the tables of the search index begin with, which only PostgreSQL has.
const INDEX: &str = "search_";
/// What the feed of changes begins with: its order is that of the commits, which each engine knows in its own way.
const FEED: &str = "changes";

type Schema = BTreeMap<String, Table>;

#[test]
fn both_engines_have_the_same_schema() {
    let Some(server) = server() else { return };
    let mut here = sqlite_schema(&rules::sqlite().connection);
    let mut there = postgres_schema(&mut Migrated::new(&server).connect());
    // SQLite's index is a database of its own.
    let index: Vec<_> = there.extract_if(.., |name, _| name.starts_with(INDEX)).map(|(name, _)| name).collect();
    assert_eq!(index, ["search_docs", "search_progress", "search_state"]);
    let feed = there.extract_if(.., |name, _| name.starts_with(FEED)).count();
    assert_eq!((here.extract_if(.., |name, _| name.starts_with(FEED)).count(), feed), (1, 4), "a table, and its views");
    assert!(here.len() > 10, "{} tables", here.len());
    assert_eq!(here.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
    for (name, table) in &here {
        assert_eq!(Some(table), there.get(name), "{name}: SQLite left, PostgreSQL right");
    }
}

#[test]
fn postgresql_columns_are_64_bit_numbers_texts_by_their_bytes_and_bytes() {
    let Some(server) = server() else { return };
    let sql = "SELECT table_name || '.' || column_name, data_type::text, collation_name::text,
          column_default IS NOT NULL OR is_identity = 'YES' OR is_generated <> 'NEVER'
        FROM information_schema.columns WHERE table_schema = current_schema()";
    let rows = Migrated::new(&server).connect().query(sql, &[]).unwrap();
    assert!(rows.len() > 100, "{} columns", rows.len());
    let wrong = rows.iter().filter_map(|row| {
        let (name, kind, collation): (String, String, Option<String>) = (row.get(0), row.get(1), row.get(2));
        let fits = match kind.as_str() {
            "bigint" | "bytea" => collation.is_none(),
            "text" => collation.as_deref() == Some("C"),
            "tsvector" => name == "search_docs.terms" && collation.is_none(),
            _ => false,
        };
        let computed = row.get::<_, bool>(3) && name != "changes.number";
        (!fits || computed)
            .then(|| format!("{name}: {kind}, collation {collation:?}, computed by the engine: {computed}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn sqlite_schema(store: &Connection) -> Schema {
    let tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut statement = store.prepare(tables).unwrap();
    let tables = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    tables
        .map(Result::unwrap)
        .map(|(name, sql): (String, String)| (name.clone(), sqlite_table(store, &name, &sql)))
        .collect()
}

fn sqlite_table(store: &Connection, name: &str, sql: &str) -> Table {
    let mut table = Table { checks: sql.matches("CHECK (").count(), ..Table::default() };
    let mut keyed = BTreeMap::new();
    for row in rows::<(String, String, bool, i64)>(
        store,
        "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1)",
        name,
    ) {
        let kind = match row.1.as_str() {
            "INTEGER" => "bigint",
            "TEXT" => "text",
            "BLOB" => "bytea",
            other => panic!("{name}.{} is {other}", row.0),
        };
        if row.3 > 0 {
            keyed.insert(row.3, row.0.clone());
        }
        table.columns.push(Column { name: row.0, kind: kind.to_owned(), not_null: row.2 });
    }
    table.primary_key = keyed.into_values().collect();
    let keys = "SELECT group_concat(\"from\", ',' ORDER BY seq), \"table\", group_concat(\"to\", ',' ORDER BY seq), lower(on_delete)
        FROM pragma_foreign_key_list(?1) GROUP BY id";
    table.foreign_keys = rows(store, keys, name).into_iter().collect();
    let indexes = "SELECT name, origin, partial FROM pragma_index_list(?1)";
    for (index, origin, partial) in rows::<(String, String, bool)>(store, indexes, name) {
        let columns = rows::<(String,)>(store, "SELECT name FROM pragma_index_info(?1) ORDER BY seqno", &index);
        let columns = columns.into_iter().map(|(column,)| column).collect();
        match origin.as_str() {
            "c" => {
                table.indexes.insert(index, (columns, partial));
            }
            "u" => {
                table.unique.insert(columns);
            }
            _ => {}
        }
    }
    let triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?1";
    table.triggers = rows::<(String,)>(store, triggers, name).into_iter().map(|(name,)| name).collect();
    table
}

fn rows<T: for<'a> TryFrom<&'a rusqlite::Row<'a>, Error = rusqlite::Error>>(
    store: &Connection,
    sql: &str,
    of: &str,
) -> Vec<T> {
    let mut statement = store.prepare(sql).unwrap();
    statement.query_map([of], |row| T::try_from(row)).unwrap().map(Result::unwrap).collect()
}

fn postgres_schema(client: &mut Client) -> Schema {
    let mut schema = Schema::new();
    let columns = "SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'NO'
        FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position";
    for row in client.query(columns, &[]).unwrap() {
        let table = schema.entry(row.get(0)).or_default();
        table.columns.push(Column { name: row.get(1), kind: row.get(2), not_null: row.get(3) });
    }
    let mut table = |name: String, change: &mut dyn FnMut(&mut Table)| change(schema.get_mut(&name).unwrap());
    let constraints = "SELECT t.relname::text, c.contype::text, coalesce(f.relname::text, ''),
          CASE c.confdeltype WHEN 'c' THEN 'cascade' WHEN 'n' THEN 'set null' WHEN 'a' THEN 'no action' ELSE c.confdeltype::text END,
          ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k (n, o)
            JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.n ORDER BY k.o),
          ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k (n, o)
            JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.n ORDER BY k.o)
        FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid LEFT JOIN pg_class f ON f.oid = c.confrelid
        WHERE t.relnamespace = current_schema()::regnamespace AND c.contype IN ('p', 'u', 'f', 'c')";
    for row in client.query(constraints, &[]).unwrap() {
        let (kind, columns): (String, Vec<String>) = (row.get(1), row.get(4));
        table(row.get(0), &mut |table| match kind.as_str() {
            "p" => table.primary_key.clone_from(&columns),
            "u" => {
                table.unique.insert(columns.clone());
            }
            "c" => table.checks += 1,
            _ => {
                let named: Vec<String> = row.get(5);
                table.foreign_keys.insert((columns.join(","), row.get(2), named.join(","), row.get(3)));
            }
        });
    }
    let indexes = "SELECT t.relname::text, i.relname::text, x.indpred IS NOT NULL,
          ARRAY(SELECT a.attname::text FROM unnest(x.indkey) WITH ORDINALITY k (n, o)
            JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.n ORDER BY k.o)
        FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
        WHERE t.relnamespace = current_schema()::regnamespace
          AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = x.indexrelid AND c.contype IN ('p', 'u'))";
    for row in client.query(indexes, &[]).unwrap() {
        table(row.get(0), &mut |table| {
            let facts = (row.get(3), row.get(2));
            table.indexes.insert(row.get(1), facts);
        });
    }
    let triggers = "SELECT t.relname::text, g.tgname::text FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid
        WHERE NOT g.tgisinternal AND t.relnamespace = current_schema()::regnamespace";
    for row in client.query(triggers, &[]).unwrap() {
        table(row.get(0), &mut |table| {
            table.triggers.insert(row.get(1));
        });
    }
    schema
}
