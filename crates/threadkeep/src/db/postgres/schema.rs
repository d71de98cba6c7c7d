//! The schema of a store on the server: whether it is ours, and bringing it forward.

use std::io::ErrorKind;

use crate::db::migrations::{self, Migration, State};
use crate::db::postgres::Place;
use crate::db::postgres::refusal::Refusal;
use crate::db::postgres::session::Session;
use crate::db::{Statement, Tx as _, Value, query_all, query_one};
use crate::error::{Error, Result};

/// The first number of the lock under which schemas are made; the second is of the schema's name.
const LOCK: i32 = i32::from_be_bytes(*b"Tkep");

const TABLES: Statement = Statement {
    name: "TABLES",
    sql:
        "SELECT count(*), CAST(coalesce(sum(CASE WHEN c.relname = 'schema_migrations' THEN 1 ELSE 0 END), 0) AS BIGINT),
        coalesce(min(CAST(pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS INT)), 1)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(CAST(?1 AS TEXT) AS name) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
};
const SCHEMA_EXISTS: Statement = Statement {
    name: "SCHEMA_EXISTS",
    sql: "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = CAST(CAST(?1 AS TEXT) AS name)",
};
pub(super) const LEDGER: Statement =
    Statement { name: "LEDGER", sql: "SELECT number, checksum FROM schema_migrations ORDER BY number" };
const RECORD: Statement = Statement {
    name: "RECORD",
    sql: "INSERT INTO schema_migrations (number, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
};
const FACTS: Statement = Statement {
    name: "FACTS",
    sql: "SELECT CAST(current_setting('server_version_num') AS BIGINT),
        (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
        CAST(CASE WHEN pg_catalog.pg_is_in_recovery() THEN 1 ELSE 0 END AS BIGINT)",
};
/// Takes away a feed of changes whose places were numbers of another server's transactions, as after a dump was read into this one:
/// what changes from now on would come before it. Its cursors are refused then.
const DROP_STRANGE_FEED: Statement = Statement {
    name: "DROP_STRANGE_FEED",
    sql: "WITH gone AS (DELETE FROM changes WHERE (SELECT max(place) FROM changes)
          >= CAST(CAST(pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) AS TEXT) AS BIGINT) RETURNING 1)
        INSERT INTO counters (name, value) SELECT 'changes-trimmed', 1 FROM gone LIMIT 1
        ON CONFLICT (name) DO UPDATE SET value = counters.value + 1",
};
/// The oldest server that this was tested with.
pub(super) const OLDEST: i64 = 150_000;

/// An opened and migrated store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) notices: Vec<String>,
}

/// Opens the store, making or migrating its schema under a lock where that is needed.
pub(crate) fn open(place: &Place) -> Result<Opened> {
    let mut session = place.connect_at_once()?;
    let notices = look_at_server(place, &mut session)?;
    match (state(place, &mut session)?, place.read_only) {
        (State::Current, _) => {}
        (State::Empty, true) => return Err(Error::not_found("store", &place.address)),
        (State::Behind, true) => {
            let detail = "it has an older schema; open it once for writing to bring it forward";
            return Err(Error::ReadOnly { detail: detail.to_owned() });
        }
        (State::Unrecorded, _) => return Err(migrations::unrecorded(&place.address.to_string())),
        (State::Empty | State::Behind, false) => migrate(place, &mut session)?,
    }
    if !place.read_only {
        let dropped = session.alone().execute(DROP_STRANGE_FEED, &[]);
        // Who may not do that may still read and write.
        drop(dropped.inspect_err(|error| tracing::debug!(%error, "the feed of changes was not looked at")));
    }
    Ok(Opened { session, notices })
}

/// Finds out what the server's settings promise.
fn look_at_server(place: &Place, session: &mut Session) -> Result<Vec<String>> {
    let facts = query_one(&mut session.alone(), FACTS, &[], |row| {
        let text = |column| row.text(column).map(str::to_owned);
        Ok((row.int(0)?, text(1)?, text(2)?, text(3)?, row.int(4)? != 0))
    })?;
    let Some((version, commit, fsync, pages, standby)) = facts else { return Ok(Vec::new()) };
    let mut notices = Vec::new();
    if version < OLDEST {
        notices.push(format!("the server's version {version} is older than any that this was tested with (15)"));
    }
    if fsync == "off" {
        notices.push("the server runs with fsync = off: a power loss can damage the store".to_owned());
    }
    if pages == "off" {
        notices.push("the server runs with full_page_writes = off: a power loss can damage the store".to_owned());
    }
    match commit.as_str() {
        "on" | "remote_apply" => {}
        "off" => notices.push("the server's synchronous_commit is off: it is set to on for this store".to_owned()),
        weaker => notices.push(format!(
            "the server's synchronous_commit is {weaker}: what is acknowledged can be lost when a standby takes over"
        )),
    }
    if standby {
        notices.push("the server is a standby: what is read may lag, and nothing can be written".to_owned());
    }
    notices.extend(place.address.weakness().map(str::to_owned));
    Ok(notices)
}

/// Compares the schema's ledger with the known steps.
pub(super) fn state(place: &Place, session: &mut Session) -> Result<State> {
    let schema = place.address.schema.as_str();
    let found =
        query_one(&mut session.alone(), TABLES, &[schema.into()], |row| Ok((row.int(0)?, row.int(1)?, row.int(2)?)))?;
    match found.unwrap_or_default() {
        (0, ..) => return Ok(State::Empty),
        (_, 0, _) => return Err(foreign(place)),
        // Its tables would look as if they were not there.
        (.., 0) => return Err(closed(place, &format!("the role has no USAGE on the schema {schema}"))),
        _ => {}
    }
    let mut tx = session.alone();
    let applied = query_all(&mut tx, LEDGER, &[], |row| Ok((row.int(0)?, row.text(1)?.to_owned())));
    let applied = applied.map_err(|error| match error {
        // A table of that name with other columns.
        Error::Corrupt { .. } => foreign(place),
        Error::ReadOnly { detail } => closed(place, &detail),
        other => other,
    })?;
    migrations::compare(&place.address.to_string(), &applied, place.migrations)
}

fn closed(place: &Place, detail: &str) -> Error {
    let detail = format!("{detail}; whoever owns it can grant it");
    Error::Io { operation: "read", path: place.address.to_string(), kind: ErrorKind::PermissionDenied, detail }
}

fn foreign(place: &Place) -> Error {
    let detail = "the schema holds tables of another program; name another one with ?schema=NAME".to_owned();
    Error::ForeignStore { path: place.address.to_string(), detail }
}

/// Applies the missing steps, all or none. However many processes come at once, one does the work and the others wait.
fn migrate(place: &Place, session: &mut Session) -> Result<()> {
    let told = |refusal: Refusal| match refusal.error {
        Error::Busy { .. } => {
            let bound = place.busy_bound;
            Error::Busy { detail: format!("another process has been making or migrating it for {bound:?}") }
        }
        other => other,
    };
    session.batch("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").map_err(told)?;
    let done = session.batch(&lock(&place.address.schema)).map_err(told).and_then(|()| apply(place, session));
    let ended = session.batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
    done.and(ended.map_err(told))
}

/// A lock until the transaction ends, on the schema's name: two names with one number only wait for each other.
fn lock(schema: &str) -> String {
    let hash = schema.bytes().fold(5_381_i32, |hash, byte| hash.wrapping_mul(33) ^ i32::from(byte));
    format!("SELECT pg_catalog.pg_advisory_xact_lock({LOCK}, {hash})")
}

fn apply(place: &Place, session: &mut Session) -> Result<()> {
    let state = state(place, session)?;
    if state == State::Current {
        return Ok(());
    }
    let schema = place.address.schema.as_str();
    let exists = query_one(&mut session.alone(), SCHEMA_EXISTS, &[schema.into()], |row| row.int(0))?;
    if exists != Some(1) {
        // Only then, because it takes a right that whoever owns the schema need not have.
        run(session, &format!("CREATE SCHEMA \"{schema}\""))?;
    }
    let last = match state {
        State::Unrecorded => return Err(migrations::unrecorded(&place.address.to_string())),
        State::Empty => None,
        _ => query_all(&mut session.alone(), LEDGER, &[], |row| row.int(0))?.into_iter().max(),
    };
    for migration in place.migrations.iter().filter(|migration| Some(migration.number) > last) {
        step(place, session, migration)?;
    }
    Ok(())
}

fn step(place: &Place, session: &mut Session, migration: &Migration) -> Result<()> {
    run(session, migration.sql)?;
    let checksum = migrations::checksum_of(migration);
    let args: [Value<'_>; 4] =
        [migration.number.into(), migration.name.into(), checksum.as_str().into(), place.now.into()];
    let mut tx = session.alone();
    query_one(&mut tx, RECORD, &args, |_| Ok(())).map(drop)
}

fn run(session: &Session, sql: &str) -> Result<()> {
    session.batch(sql).map_err(|refusal| refusal.error)
}
