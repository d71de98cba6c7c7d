//! Which pages of the database an item lies on, by the engine's own account of its pages: rows are in the leaves of their table
//! in the order of their keys, and so many in each as the engine says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::Connection;
use threadkeep::{ItemId, Uuid};

use crate::Result;

/// The page size of a store.
pub(super) const PAGE: usize = 4_096;
/// What has to be read to come to an item at all: where it is said which threads, branches and writers there are.
const WAY: [&str; 9] = [
    "sqlite_schema",
    "schema_migrations",
    "facts",
    "counters",
    "writers",
    "workspaces",
    "workspace_keys",
    "threads",
    "branches",
];
/// Content that is spliced lies here too.
const APART: [&str; 2] = ["blobs", "item_blobs"];
/// What a repair needs to know whose an item is.
const ROWS: [&str; 4] = ["writers", "workspaces", "threads", "branches"];
/// What the verdict on seals needs.
const SEALS: [&str; 4] = ["seals", "seal_heads", "purges", "facts"];
/// The bit of an item's encoding that says so.
const SPLICED: i64 = 2;

/// Numbers of pages, from 1 on.
pub(super) type Pages = BTreeSet<u32>;

/// The pages that each item needs to be read.
#[derive(Debug)]
pub(super) struct Map {
    /// Without these nothing is read.
    pub(super) way: Pages,
    pub(super) items: BTreeMap<ItemId, Pages>,
    /// What says whose the items are, indexes apart.
    pub(super) rows: Pages,
    /// Where seals are, and what they are checked with.
    pub(super) seals: Pages,
    /// All pages of items.
    pub(super) all: Pages,
    pub(super) total: u32,
}

impl Map {
    /// Asks the engine about a store that nobody damaged.
    pub(super) fn of(store: &Path) -> Result<Self> {
        Self::read(&store.join("threadkeep.db")).map_err(|error| format!("the account of pages: {error}"))
    }

    fn read(database: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(database)?;
        let mut way: Pages = [1].into();
        for table in WAY {
            way.append(&mut tree_and_indexes(&connection, table)?);
        }
        let mut apart = Pages::new();
        for table in APART {
            apart.append(&mut tree_and_indexes(&connection, table)?);
        }
        let mut items = BTreeMap::new();
        let mut stored = connection.prepare("SELECT id, encoding FROM items ORDER BY key")?;
        let mut stored = stored.query([])?;
        for (path, page, cells) in leaves(&connection, &mut way)? {
            for cell in 0..cells {
                let Some(row) = stored.next()? else { break };
                let mut pages = Pages::from([page]);
                pages.append(&mut overflow(&connection, &format!("{path}{cell:03x}+*"))?);
                if row.get::<_, i64>(1)? & SPLICED != 0 {
                    pages.extend(&apart);
                }
                if let Ok(id) = Uuid::from_slice(&row.get::<_, Vec<u8>>(0)?) {
                    items.insert(ItemId::from_uuid(id), pages);
                }
            }
        }
        let (mut rows, mut seals) = (Pages::new(), Pages::new());
        for table in ROWS {
            rows.append(&mut tree(&connection, table)?);
        }
        for table in SEALS {
            seals.append(&mut tree_and_indexes(&connection, table)?);
        }
        let all = tree(&connection, "items")?;
        let total = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        Ok(Self { way, items, rows, seals, all, total })
    }
}

/// The pages of a table alone.
fn tree(connection: &Connection, table: &str) -> rusqlite::Result<Pages> {
    connection.prepare("SELECT pageno FROM dbstat WHERE name = ?1")?.query_map([table], |row| row.get(0))?.collect()
}

/// The pages of a table and of all that is kept in order over it.
fn tree_and_indexes(connection: &Connection, table: &str) -> rusqlite::Result<Pages> {
    let sql =
        "SELECT pageno FROM dbstat WHERE name = ?1 OR name IN (SELECT name FROM sqlite_schema WHERE tbl_name = ?1)";
    connection.prepare(sql)?.query_map([table], |row| row.get(0))?.collect()
}

/// The leaves of the items, in the order of their rows, each with the way to it and its count of cells. What is above them is on
/// the way of all.
fn leaves(connection: &Connection, way: &mut Pages) -> rusqlite::Result<Vec<(String, u32, u32)>> {
    let sql = "SELECT path, pageno, ncell, pagetype FROM dbstat WHERE name = 'items' AND pagetype <> 'overflow' ORDER BY path";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut leaves = Vec::new();
    while let Some(row) = rows.next()? {
        let page = row.get(1)?;
        if row.get::<_, String>(3)? == "leaf" {
            leaves.push((row.get(0)?, page, row.get(2)?));
        } else {
            way.insert(page);
        }
    }
    Ok(leaves)
}

fn overflow(connection: &Connection, path: &str) -> rusqlite::Result<Pages> {
    let sql = "SELECT pageno FROM dbstat WHERE name = 'items' AND pagetype = 'overflow' AND path GLOB ?1";
    connection.prepare_cached(sql)?.query_map([path], |row| row.get(0))?.collect()
}
