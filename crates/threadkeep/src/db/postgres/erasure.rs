//! Removing every trace of what was overwritten or deleted from the tables of a server.
//!
//! An update leaves the former row in its table until a vacuum takes it, and the vacuum leaves its bytes in the page. Only
//! `VACUUM (FULL)` writes a table into new files, and it too carries along rows that somebody's older transaction may still
//! read: so the server is asked how many these were, and it is done again once they have ended. What the server itself keeps
//! besides is not a store's to remove.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::concurrency::thread;
use crate::db::postgres::Place;
use crate::db::postgres::session::{Purpose, Session};
use crate::db::{Erased, Statement, Tx as _};
use crate::error::Result;

/// The tables that hold content, or words of it.
const TABLES: [&str; 22] = [
    "items",
    "blobs",
    "threads",
    "segments",
    "sources",
    "branches",
    "turns",
    "search_docs",
    "goals",
    "jobs",
    "checkpoints",
    "checkpoint_states",
    "changes",
    "document_versions",
    "roadmaps",
    "roadmap_links",
    "tools",
    "runs",
    "run_parts",
    "run_candidates",
    "messages",
    "requests",
];
/// Writing a large table anew takes as long as it takes.
const BOUND: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long is waited before a table is written anew again; twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);

const FILES: Statement = Statement {
    name: "FILES_OF_TABLES",
    sql: "SELECT string_agg(pg_catalog.pg_relation_filenode(t::pg_catalog.regclass)::text, ' ' ORDER BY t) FROM
        unnest(ARRAY['items', 'blobs', 'threads', 'segments', 'sources', 'branches', 'turns', 'search_docs', 'goals', 'jobs',
          'checkpoints', 'checkpoint_states', 'changes', 'document_versions', 'roadmaps', 'roadmap_links', 'tools', 'runs',
          'run_parts', 'run_candidates', 'messages', 'requests']) AS t",
};

/// How writing a table anew ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewriting {
    Done,
    /// Rows of before came along, for transactions that began before they were replaced.
    CarriedAlong,
    /// The server only warned.
    Refused,
}

/// Writes the tables anew, one after the other; whoever uses one waits. Waits for older transactions as long as for a lock.
pub(crate) fn erase(place: &Place) -> Result<Erased> {
    let deadline = Instant::now() + place.busy_bound;
    let mut session = place.connect_until(Purpose::Write, deadline)?.within(BOUND);
    let mut remains = Vec::new();
    for table in TABLES {
        let what = match rewrite_until(&mut session, table, deadline)? {
            Rewriting::Done => continue,
            Rewriting::Refused => "only its owner can have it written anew; redact --finish as that role",
            Rewriting::CarriedAlong => {
                "it keeps former rows for a transaction, a replication slot or a replica's query that is older than they are; \
                 redact --finish once that has ended"
            }
        };
        remains.push(format!("the table {table} of {}: {what}", place.address));
    }
    let is_over = remains.is_empty();
    remains.push(
        "the server's own log, its replicas and its backups: they keep what was written until they are recycled"
            .to_owned(),
    );
    Ok(Erased { remains, is_over })
}

/// Has the server use the room of what was deleted for what comes next, and cut empty ends of tables off. Nobody waits for it; a table
/// that is locked is left to the server's own vacuum, and so are tables of another owner.
pub(crate) fn tidy(place: &Place) -> Result<()> {
    let session = place.connect_until(Purpose::Write, Instant::now() + place.busy_bound)?.within(BOUND);
    let tables = TABLES.join(", ");
    session.batch(&format!("VACUUM (SKIP_LOCKED) {tables}")).map_err(|refusal| refusal.error)
}

fn rewrite_until(session: &mut Session, table: &str, deadline: Instant) -> Result<Rewriting> {
    let mut wait = FIRST_WAIT;
    loop {
        let outcome = rewrite(session, table)?;
        if outcome != Rewriting::CarriedAlong || Instant::now() + wait >= deadline {
            return Ok(outcome);
        }
        thread::sleep(wait);
        wait *= 2;
    }
}

fn rewrite(session: &mut Session, table: &str) -> Result<Rewriting> {
    let before = files(session)?;
    session.remarks();
    session.batch(&format!("VACUUM (FULL, VERBOSE) {table}")).map_err(|refusal| refusal.error)?;
    let carried: Vec<u64> = session.remarks().iter().filter_map(|remark| first_number(remark.detail()?)).collect();
    Ok(match carried.iter().sum() {
        _ if files(session)? == before => Rewriting::Refused,
        // Nothing said is not nothing carried along.
        0_u64 if !carried.is_empty() => Rewriting::Done,
        _ => Rewriting::CarriedAlong,
    })
}

/// The number of rows that can't be removed yet: nothing else tells it. In every language of the server it is the detail's
/// first number (`%.0f dead row versions cannot be removed yet.`, in `copy_table_data` of PostgreSQL's `cluster.c`, 14 to 18).
fn first_number(detail: &str) -> Option<u64> {
    let digits = detail.trim_start_matches(|it: char| !it.is_ascii_digit());
    let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

fn files(session: &mut Session) -> Result<String> {
    let mut found = String::new();
    session.alone().query(FILES, &[], &mut |row| {
        row.text(0)?.clone_into(&mut found);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}
