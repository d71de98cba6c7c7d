//! T08: a store is changed behind the library's back, and verifying must notice.
//!
//! Whoever can write the file can also compute every hash of it anew, or put an older copy in its place; that is tried on a store
//! whose seals are kept elsewhere.

#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "the tests of the library have them too")]
#[path = "../../../threadkeep/tests/tampering/kinds.rs"]
mod kinds;
#[expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the tests of the library have them too"
)]
#[path = "../../../threadkeep/tests/tampering/rows.rs"]
mod rows;
#[expect(clippy::unwrap_used, reason = "the tests of the library have them too")]
#[path = "../../../threadkeep/tests/tampering/scene.rs"]
mod scene;
mod sealed;

use std::path::Path;

use rusqlite::Connection;

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::Child;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::suites::Writing;
use crate::tools;

const BATCHES: u64 = 30;
/// The depth of the last item that they make.
const LAST: u64 = BATCHES * 2 - 1;
/// What is done, and to which item: `?1` is its key, `?2` that of the item before it.
const KINDS: [(&str, &str); 9] = [
    (
        "the content of another item",
        "UPDATE items SET (content, encoding, size) = (SELECT content, encoding, size FROM items WHERE key = ?2) WHERE key = ?1",
    ),
    ("another role", "UPDATE items SET role = 'assistant' WHERE key = ?1 OR key = ?2"),
    ("another time", "UPDATE items SET created_at = created_at - 1 WHERE key = ?1 AND key > ?2"),
    ("another turn", "UPDATE items SET turn = 77 WHERE key = ?1 AND key > ?2"),
    ("another epoch", "UPDATE items SET epoch = epoch + 1 WHERE key = ?1 AND key > ?2"),
    ("another id", "UPDATE items SET id = randomblob(16) WHERE key = ?1 AND key > ?2"),
    ("an item less", "DELETE FROM items WHERE key = ?1 AND key > ?2"),
    (
        "two items in each other's place",
        "UPDATE items SET key = -1 WHERE key = ?1; UPDATE items SET key = ?1 WHERE key = ?2; UPDATE items SET key = ?2 WHERE key = -1",
    ),
    (
        "the end cut off, and the head put where it was then",
        "DELETE FROM items WHERE key >= ?1; UPDATE threads SET head = ?2, head_hash = (SELECT hash FROM items WHERE key = ?2)",
    ),
];

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let folder = plan::fast_folder()?;
    let (template, store) = (folder.path().join("template"), folder.path().join("store"));
    let writing = Writing { lanes: "main=0", life: 1, level: "synced", batches: BATCHES, lie: false };
    let (status, lines) = Child::start(writing.command(plan, &template))?.finish()?;
    if !status.success() {
        return Err(Stop::Broken(format!("the store can't be prepared: {}", lines.join(" / "))));
    }
    let mut random = plan.random("tampering");
    let mut tried = 0;
    for (what, sql) in KINDS {
        for _ in 0..plan.pick(3, 60, 600) {
            let depth = 1 + random.below(LAST);
            tools::fresh_copy(&template, &store)?;
            tamper(&store, sql, depth).map_err(|error| format!("{what}: {error}"))?;
            tried += 1;
            if !is_noticed(plan, &store) {
                outcome.tally.add(Rule::Unnoticed, format!("{what}, at depth {depth}"));
            }
        }
    }
    outcome.figure("changes", tried);
    outcome.figure("kinds", KINDS.len());
    tools::fresh_copy(&template, &store)?;
    outcome.control("a store that nobody changed, which must be told from the others", !is_noticed(plan, &store));
    sealed::run(plan, outcome)
}

fn tamper(store: &Path, sql: &str, depth: u64) -> rusqlite::Result<()> {
    let connection = Connection::open(store.join("threadkeep.db"))?;
    connection.execute_batch("PRAGMA foreign_keys = OFF")?;
    let list = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_master WHERE type = 'trigger'";
    let triggers: String = connection.query_row(list, [], |row| row.get(0))?;
    connection.execute_batch(&triggers)?;
    let branch: i64 = connection.query_row("SELECT key FROM branches", [], |row| row.get(0))?;
    let key = (branch << 32) + i64::try_from(depth).unwrap_or(0);
    for statement in sql.split(';') {
        let mut statement = connection.prepare(statement)?;
        for (name, value) in [("?1", key), ("?2", key - 1)] {
            if let Some(number) = statement.parameter_index(name)? {
                statement.raw_bind_parameter(number, value)?;
            }
        }
        statement.raw_execute()?;
    }
    Ok(())
}

/// Whether fresh processes that verify the store find anything wrong.
fn is_noticed(plan: &Plan, store: &Path) -> bool {
    let mut tally = Tally::default();
    let depth = Depth { verify: true, whole: true, ..Depth::default() };
    checker::look(plan, store, &[("main".to_owned(), 0)], depth, &mut tally);
    !tally.is_empty()
}
