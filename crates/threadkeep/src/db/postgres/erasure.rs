//! Removing every trace of what was overwritten or deleted from the tables of a server.
//!
//! An update leaves the former row in its table until a vacuum takes it, and the vacuum leaves its bytes in the page. Only
//! `VACUUM (FULL)` writes a table into new files. What the server itself keeps besides is not a store's to remove.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::db::postgres::Place;
use crate::db::postgres::session::{Purpose, Session};
use crate::db::{Erased, Statement, Tx as _};
use crate::error::Result;

/// The tables that hold content, or words of it.
const TABLES: [&str; 7] = ["items", "blobs", "threads", "segments", "sources", "branches", "turns"];
/// Writing a large table anew takes as long as it takes.
const BOUND: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const FILES: Statement = Statement {
    name: "FILES_OF_TABLES",
    sql: "SELECT string_agg(pg_catalog.pg_relation_filenode(t::pg_catalog.regclass)::text, ' ' ORDER BY t) FROM
        unnest(ARRAY['items', 'blobs', 'threads', 'segments', 'sources', 'branches', 'turns']) AS t",
};

/// Writes the tables anew, one after the other; whoever uses one waits.
pub(crate) fn erase(place: &Place) -> Result<Erased> {
    let deadline = Instant::now() + place.busy_bound;
    let mut session = place.connect_until(Purpose::Write, deadline)?.within(BOUND);
    let mut remains = Vec::new();
    for table in TABLES {
        let before = files(&mut session)?;
        session.batch(&format!("VACUUM (FULL) {table}")).map_err(|refusal| refusal.error)?;
        if files(&mut session)? == before {
            // The server only warns, and not us.
            remains.push(format!(
                "the table {table} of {}: only its owner can have it written anew; redact --finish as that role",
                place.address
            ));
        }
    }
    let is_over = remains.is_empty();
    remains.push(
        "the server's own log, its replicas and its backups: they keep what was written until they are recycled"
            .to_owned(),
    );
    Ok(Erased { remains, is_over })
}

fn files(session: &mut Session) -> Result<String> {
    let mut found = String::new();
    session.alone().query(FILES, &[], &mut |row| {
        row.text(0)?.clone_into(&mut found);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}
