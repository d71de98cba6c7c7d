//! Looking at a server and at a store on it, whatever state they are in, and changing neither.

mod questions;

use std::io::ErrorKind;
use std::time::Instant;

use self::questions as ask;
use crate::db::drift::{self, Listing};
use crate::db::migrations::State;
use crate::db::postgres::schema::{self, OLDEST};
use crate::db::postgres::session::{Purpose, Session, SessionTx};
use crate::db::postgres::{Opening, Place};
use crate::db::{Row, Statement, Tx as _, Value, query_all};
use crate::error::{Error, Result};
use crate::finding::{Examination, NO_STORE, Severity};
use crate::host::Host;

/// What the migrations make, as the server's catalogs list it; a test makes it anew from the migrations.
const LISTING: &str = include_str!("listing.txt");
/// How often a connection is tried that breaks off while it is made.
const ATTEMPTS: usize = 5;
/// How many connections a store opens at most.
const CONNECTIONS: i64 = 10;
/// A clock that is further off makes times in one store hard to compare.
const CLOCKS_APART: i64 = 5_000;
/// Of about two thousand million transactions, how many may pass before old rows have to be frozen: what to say of it from when.
const AGES: [(i64, Severity); 2] = [(1_800_000_000, Severity::Error), (1_000_000_000, Severity::Warning)];
/// From when rows that are dead are many.
const DEAD_ROWS: i64 = 10_000;

const AS_OWNER: &str =
    "open the store once as the role that owns it; `scripts/postgres-roles.sql` shows which roles there should be";
const GRANT: &str = "grant it, as `scripts/postgres-roles.sql` does";
/// The list of migrations, which only the owner writes.
const LEDGER: &str = "schema_migrations";

const POOLED: &str = "pooler";
const POOLER: &str = "let the pooler between here and the server keep a session for each client (session mode)";
const ALTER: &str = "change it in postgresql.conf or with ALTER SYSTEM, ALTER DATABASE or ALTER ROLE";

/// The text that lists a schema's parts as this server knows them, and what the migrations make of them.
#[doc(hidden)]
pub fn postgres_listing() -> (String, &'static str) {
    (crate::db::for_postgres(ask::PARTS.sql), LISTING)
}

/// A store whose tables can be asked.
pub(crate) struct Looked(Session);

impl Looked {
    pub(crate) fn tx(&mut self) -> SessionTx<'_> {
        self.0.alone()
    }
}

/// Looks at everything that can be reached; gives the store when statements can be asked of it.
pub(crate) fn look(found: &mut Examination, opening: Opening, host: &dyn Host) -> Option<Looked> {
    let shown = opening.address.to_string();
    let opening = Opening { read_only: true, ..opening };
    let place = Place::new(opening).map_err(|error| found.refused(&shown, &error)).ok()?;
    let began = Instant::now();
    let mut session = match connect(&place) {
        Ok(session) => session,
        Err((error, may_pass)) => {
            refused_to_connect(found, &shown, &error, may_pass);
            return None;
        }
    };
    found.fact("connect_ms", millis(began));
    look_at_pooler(found, &mut session, &place);
    look_at_clock(found, &mut session, &shown, host);
    if found.findings.iter().any(|finding| finding.code == POOLED) {
        return None;
    }
    look_at_server(found, &mut session, &place);
    look_at_settings(found, &mut session);
    look_at_role(found, &mut session, &shown);
    look_at_traffic(found, &mut session, &shown);
    let can_be_asked = look_at_schema(found, &mut session, &place);
    can_be_asked.then_some(Looked(session))
}

/// Connects. A server that refuses a client says why and ends the connection, and the end can overtake the words: so a connection
/// that breaks off while it is made is made again, and most times that shows what is the matter.
fn connect(place: &Place) -> Result<Session, (Error, bool)> {
    let broke_off = |error: &Error| {
        let kinds =
            [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
        matches!(error, Error::Io { kind, .. } if kinds.contains(kind))
    };
    let mut outcome = Session::connect(place, Purpose::Read);
    for _ in 1..ATTEMPTS {
        match &outcome {
            Err((error, _)) if broke_off(error) => outcome = Session::connect(place, Purpose::Read),
            _ => break,
        }
    }
    outcome
}

fn refused_to_connect(found: &mut Examination, place: &str, error: &Error, may_pass: bool) {
    let (code, way_out) = match error {
        Error::Busy { .. } => (
            "no-connection-left",
            "end programs that hold connections, or raise max_connections or the limit of the role",
        ),
        Error::Io { kind: ErrorKind::PermissionDenied, .. } => (
            "login-refused",
            "put the right user and password into the address; the server's pg_hba.conf says who may come from where",
        ),
        Error::Io { kind: ErrorKind::InvalidData, .. } => {
            ("certificate", "the message says what is wrong with the certificate")
        }
        Error::Io { kind: ErrorKind::NotConnected, .. } if !may_pass => (
            "no-agreement",
            "the message says what client and server can't agree on: encryption (sslmode), a password that is missing, or the way to log in",
        ),
        Error::Io { .. } => {
            ("unreachable", "see that the server runs, listens at that address and can be reached from here")
        }
        other => return found.refused(place, other),
    };
    found.error(code, place, (error.to_string(), way_out));
}

/// Finds out whether two connections are one session of the server's: then settings and statements of one reach the other.
fn look_at_pooler(found: &mut Examination, session: &mut Session, place: &Place) {
    // Where there is no second connection to be had, the limits say so.
    let Ok(mut other) = Session::connect(place, Purpose::Read) else { return };
    let own = numbers::<1>(found, session, ask::BACKEND, &[]);
    let others = numbers::<1>(found, &mut other, ask::BACKEND, &[]);
    if !own.is_empty() && own == others {
        let what = "two connections are one session of the server: what one client sets reaches the others".to_owned();
        found.error(POOLED, place.address.to_string(), (what, POOLER));
    }
}

fn look_at_clock(found: &mut Examination, session: &mut Session, place: &str, host: &dyn Host) {
    // The first time it is prepared, too.
    let mut ask = || session.alone().clock();
    if let Err(error) = ask() {
        return not_known(found, ask::BACKEND, &error);
    }
    let (before, began) = (host.now().0, Instant::now());
    let asked = ask();
    found.fact("answer_ms", millis(began));
    let Ok(Some(there)) = asked else { return };
    let here = before.midpoint(host.now().0);
    let apart = there.saturating_sub(here);
    found.fact("clock_difference_ms", apart);
    if apart.abs() > CLOCKS_APART {
        let what = format!("the server's clock is {apart} ms ahead of this machine's (behind, when below zero)");
        found.warn(
            "clocks-apart",
            place,
            (what, "set both by a time server; claims go by the server's clock, the times of items by this one"),
        );
    }
}

fn look_at_server(found: &mut Examination, session: &mut Session, place: &Place) {
    let shown = place.address.to_string();
    for [version, name, database, encoding, collation, standby, lag] in texts::<7>(found, session, ask::SERVER, &[]) {
        found.fact("server_version", name.as_str());
        found.fact("database", database);
        found.fact("encoding", encoding.as_str());
        found.fact("collation", collation);
        found.fact("standby", standby == "1");
        if version.parse::<i64>().unwrap_or(0) < OLDEST {
            let what = format!("the server is PostgreSQL {name}, older than any that this was tested with (15)");
            found.warn("server-old", &shown, (what, "use PostgreSQL 15 or newer"));
        }
        if encoding != "UTF8" {
            let what = format!("the database is in {encoding}, and texts are UTF-8");
            found.error(
                "encoding",
                &shown,
                (what, "make a database WITH ENCODING 'UTF8' TEMPLATE template0, and keep the store there"),
            );
        }
        if standby == "1" {
            let what =
                format!("the server is a standby, {lag} s behind: what is read may be old, and nothing can be written");
            found.warn(
                "standby",
                &shown,
                (what, "name all servers in the address, with target_session_attrs=read-write"),
            );
        }
    }
    let is_encrypted = look_at_encryption(found, session);
    match place.address.weakness() {
        Some(weakness) if is_encrypted => {
            found.warn(
                "not-verified",
                &shown,
                (weakness.to_owned(), "sslmode=verify-full, and sslrootcert=FILE for an authority of your own"),
            );
        }
        Some(_) => {
            let what =
                "the connection is not encrypted: whoever is on the way reads and can change all of it".to_owned();
            found.warn("not-encrypted", &shown, (what, "switch ssl on in the server, and use sslmode=verify-full"));
        }
        None => {}
    }
}

fn look_at_encryption(found: &mut Examination, session: &mut Session) -> bool {
    let mut is_encrypted = false;
    for [ssl, version, cipher] in texts::<3>(found, session, ask::ENCRYPTION, &[]) {
        is_encrypted = ssl == "1";
        found.fact("encrypted", is_encrypted);
        if is_encrypted {
            found.fact("encryption", format!("{version} {cipher}"));
        }
    }
    is_encrypted
}

/// What the server, the database or the role sets for a session before the store sets its own.
fn look_at_settings(found: &mut Examination, session: &mut Session) {
    for [name, value] in texts::<2>(found, session, ask::SETTINGS, &[]) {
        let judged = match (name.as_str(), value.as_str()) {
            ("fsync" | "full_page_writes", "off") => {
                Some((Severity::Error, "a power loss can damage the store", ALTER))
            }
            ("synchronous_commit", "off") => Some((
                Severity::Note,
                "the store sets it to on for itself, wherever it promises that a commit is synced",
                ALTER,
            )),
            ("synchronous_commit", "local" | "remote_write") => {
                Some((Severity::Warning, "what was acknowledged can be lost when a standby takes over", ALTER))
            }
            ("autovacuum" | "track_counts", "off") => {
                Some((Severity::Warning, "nothing clears dead rows away, and tables grow", ALTER))
            }
            ("zero_damaged_pages" | "ignore_checksum_failure", "on") => {
                Some((Severity::Error, "damage is passed over silently", ALTER))
            }
            ("data_checksums", "off") => {
                let way_out = "`pg_checksums --enable` while the server is stopped; `threadkeep verify` finds damage in items without it";
                Some((Severity::Note, "the server does not notice what its disk changes", way_out))
            }
            ("default_transaction_read_only", "on") => Some((Severity::Error, "every write is refused", ALTER)),
            ("idle_session_timeout" | "transaction_timeout", value) if value != "0" => {
                Some((Severity::Warning, "connections are cut off in the middle, and have to be made again", ALTER))
            }
            _ => None,
        };
        if let Some((severity, means, way_out)) = judged {
            found.find(
                severity,
                "setting",
                format!("setting {name}"),
                (format!("{name} is {value}: {means}"), way_out),
            );
        }
        if let Some(fact) = ask::SETTING_FACTS.iter().find(|fact| **fact == name) {
            found.fact(fact, value);
        }
    }
}

/// What the role is, how many connections are left to it, and how old the database's oldest rows are.
fn look_at_role(found: &mut Examination, session: &mut Session, place: &str) {
    let Some(role) = texts::<1>(found, session, ask::ROLE_NAME, &[]).into_iter().map(|[role]| role).next() else {
        return;
    };
    for [superuser, bypass, limit, in_database, age, multi_age] in numbers::<6>(found, session, ask::ROLE, &[]) {
        found.fact("superuser", superuser == 1);
        if superuser == 1 {
            let what = "it is a superuser: a program that goes wrong, or is taken over, can do anything on the server"
                .to_owned();
            found.warn(
                "role-too-strong",
                format!("role {role}"),
                (what, "give programs the writer of `scripts/postgres-roles.sql`"),
            );
        } else if bypass == 1 {
            let what = "it passes by row security, which a store does not need".to_owned();
            found.note("role-too-strong", format!("role {role}"), (what, "ALTER ROLE … NOBYPASSRLS"));
        }
        look_at_limits(found, session, place, &role, [limit, in_database]);
        found.fact("oldest_transaction_age", age.max(multi_age));
        if let Some((bound, severity)) = AGES.into_iter().find(|(bound, _)| age.max(multi_age) > *bound) {
            let what = format!(
                "{} transactions have passed since its oldest row was frozen, of about 2,100,000,000 before the server stops taking writes; {bound} is a lot",
                age.max(multi_age)
            );
            let way_out = "see what keeps autovacuum from freezing (long transactions, slots, prepared transactions), then VACUUM FREEZE";
            found.find(severity, "wraparound", format!("{place} database"), (what, way_out));
        }
    }
    found.fact("role", role);
}

fn look_at_limits(found: &mut Examination, session: &mut Session, place: &str, role: &str, limits: [i64; 2]) {
    for [most, kept, all, own, here] in numbers::<5>(found, session, ask::CONNECTIONS, &[]) {
        found.fact("max_connections", most);
        found.fact("connections", all);
        let [of_role, of_database] = limits;
        let bounds = [
            (most - kept, all, format!("{place} max_connections")),
            (of_role, own, format!("role {role}")),
            (of_database, here, format!("{place} database")),
        ];
        for (limit, used, whose) in bounds {
            // One of those in use is this one.
            let left = limit - used + 1;
            if limit >= 0 && left < CONNECTIONS {
                let what = format!(
                    "{used} of {limit} connections are in use; a store opens up to {CONNECTIONS}, and goes on slower with fewer"
                );
                found.warn("few-connections", whose, (what, "raise the limit, or end programs that hold connections"));
            }
        }
    }
}

/// Who keeps the server from clearing up, and who may be in the way.
fn look_at_traffic(found: &mut Examination, session: &mut Session, place: &str) {
    for [pid, user, program, state, seconds] in texts::<5>(found, session, ask::LONG_TRANSACTIONS, &[]) {
        let what = format!(
            "a transaction of {user} ({program}) has been open for {seconds} s, {state}: rows that died since can't be cleared away"
        );
        found.warn(
            "long-transaction",
            format!("{place} process {pid}"),
            (what, "end that program, or `SELECT pg_terminate_backend(…)`"),
        );
    }
    for [name, seconds] in texts::<2>(found, session, ask::PREPARED, &[]) {
        let what = format!("a prepared transaction has been waiting for {seconds} s, and keeps its locks");
        found.warn(
            "long-transaction",
            format!("{place} prepared transaction {name}"),
            (what, "COMMIT PREPARED or ROLLBACK PREPARED"),
        );
    }
    for [name] in texts::<1>(found, session, ask::SLOTS, &[]) {
        let what = "nobody reads from this replication slot: the server keeps its log for it until the disk is full"
            .to_owned();
        found.warn("slot", format!("{place} slot {name}"), (what, "start whoever reads it, or drop it"));
    }
}

/// Looks at the schema; says whether the store's statements can be asked of it.
fn look_at_schema(found: &mut Examination, session: &mut Session, place: &Place) -> bool {
    let schema = place.address.schema.as_str();
    let shown = place.address.to_string();
    let args = [Value::from(schema)];
    let Some([usable]) = numbers::<1>(found, session, ask::SCHEMA, &args).into_iter().next() else {
        let what = format!("there is no schema {schema}");
        found.error("no-store", shown, (what, NO_STORE));
        return false;
    };
    if usable != 1 {
        found.error("privilege-missing", format!("schema {schema}"), ("the role has no USAGE on it".to_owned(), GRANT));
        return false;
    }
    if !look_at_rights(found, session, schema) {
        return false;
    }
    let state = match schema::state(place, session) {
        Ok(state) => state,
        Err(error) => {
            found.refused(&shown, &error);
            return false;
        }
    };
    found.fact("schema_known", place.migrations.last().map_or(0, |migration| migration.number));
    match state {
        State::Empty if numbers::<1>(found, session, ask::TABLES, &args) == [[0]] => {
            found.error("no-store", shown, (format!("the schema {schema} is empty"), NO_STORE));
            return false;
        }
        State::Empty | State::Unrecorded => {
            let what = "no step of the schema is noted as done, though there are tables".to_owned();
            found.error("half-migrated", shown, (what, "restore a backup, or drop the schema if nothing is in it"));
            return false;
        }
        State::Behind => found.warn("schema-older", shown, ("its schema is an older one".to_owned(), AS_OWNER)),
        State::Current => {}
    }
    let applied = numbers::<1>(found, session, ask::APPLIED, &[]).into_iter().next().map_or(0, |[applied]| applied);
    found.fact("schema", applied);
    if state == State::Current {
        look_at_parts(found, session, schema);
    }
    look_at_upkeep(found, session, schema);
    state == State::Current
}

/// Compares the role's rights with what is needed; says whether all can be read.
fn look_at_rights(found: &mut Examination, session: &mut Session, schema: &str) -> bool {
    let tables = match ask_all(session, ask::RIGHTS, &[schema.into()], |row| {
        Ok((
            row.text(0)?.to_owned(),
            [row.int(1)?, row.int(2)?, row.int(3)?, row.int(4)?],
            row.int(5)? == 1,
            row.int(6)? == 1,
        ))
    }) {
        Ok(tables) => tables,
        Err(error) => {
            not_known(found, ask::RIGHTS, &error);
            return true;
        }
    };
    let writes_nothing = tables.iter().all(|(_, [_, rest @ ..], _, _)| rest == &[0, 0, 0]);
    if writes_nothing && !tables.is_empty() {
        let what = "the role may only read: a store that it opens can't be written".to_owned();
        found.note("reads-only", format!("schema {schema}"), (what, GRANT));
    }
    let mut can_read = true;
    for (table, rights, owns, is_superuser) in &tables {
        let lacks = ["SELECT", "INSERT", "UPDATE", "DELETE"].into_iter().zip(rights).enumerate();
        let lacks = lacks
            .filter(|(index, (_, has))| **has == 0 && (*index == 0 || !(writes_nothing || table == LEDGER)))
            .map(|(_, (right, _))| right);
        let lacks = lacks.collect::<Vec<_>>().join(", ");
        can_read &= rights.first() == Some(&1);
        if !lacks.is_empty() {
            let what = format!("the role lacks {lacks} on it");
            found.error("privilege-missing", format!("table {table}"), (what, GRANT));
        }
        if *owns && !is_superuser && table == "items" {
            let what =
                "the role owns the tables: it can drop them, and switch off the rules that keep items as they are"
                    .to_owned();
            let way_out = "keep the owner for upgrades, and give programs the writer of `scripts/postgres-roles.sql`";
            found.note("role-owns", format!("schema {schema}"), (what, way_out));
        }
    }
    can_read
}

fn look_at_parts(found: &mut Examination, session: &mut Session, schema: &str) {
    let parts = ask_all(session, ask::PARTS, &[schema.into()], |row| {
        Ok(((row.text(0)?.to_owned(), row.text(1)?.to_owned()), row.text(2)?.to_owned()))
    });
    match parts {
        Ok(parts) => drift::compare(found, &drift::read(LISTING), &parts.into_iter().collect::<Listing>()),
        Err(error) => not_known(found, ask::PARTS, &error),
    }
    for [table, index] in texts::<2>(found, session, ask::INVALID_INDEXES, &[schema.into()]) {
        let what =
            "the index is not valid: it is not used, and does not keep its rule; making it was cut short".to_owned();
        found.error(
            "index-invalid",
            format!("index {table}.{index}"),
            (what, "REINDEX INDEX CONCURRENTLY, as the owner"),
        );
    }
}

/// Looks at what the server does for the tables by itself.
fn look_at_upkeep(found: &mut Examination, session: &mut Session, schema: &str) {
    let mut bytes = 0;
    let rows = ask_all(session, ask::UPKEEP, &[schema.into()], |row| {
        Ok((row.text(0)?.to_owned(), [row.int(1)?, row.int(2)?, row.int(3)?, row.int(4)?]))
    });
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return not_known(found, ask::UPKEEP, &error),
    };
    for (table, [size, live, dead, vacuumed]) in rows {
        bytes += size;
        let place = format!("table {table}");
        if dead > DEAD_ROWS && dead > live / 2 {
            let what = format!("{dead} dead rows beside {live} live ones take room and time");
            found.warn("dead-rows", &place, (what, "see what keeps autovacuum away; VACUUM ANALYZE as the owner"));
        }
        if vacuumed == 0 {
            let what = "autovacuum is switched off for it".to_owned();
            found.warn("setting", &place, (what, "ALTER TABLE … RESET (autovacuum_enabled), as the owner"));
        }
    }
    found.fact("bytes", bytes);
}

/// Asks, and reads the rows.
fn ask_all<T>(
    session: &mut Session,
    question: Statement,
    args: &[Value<'_>],
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    query_all(&mut session.alone(), question, args, read)
}

/// Asks for rows of texts; a question that the server can't answer is a finding.
fn texts<const COLUMNS: usize>(
    found: &mut Examination,
    session: &mut Session,
    question: Statement,
    args: &[Value<'_>],
) -> Vec<[String; COLUMNS]> {
    let read = |row: &Row<'_>| {
        let mut texts = std::array::from_fn(|_| String::new());
        for (column, text) in texts.iter_mut().enumerate() {
            row.text(column)?.clone_into(text);
        }
        Ok(texts)
    };
    ask_all(session, question, args, read).unwrap_or_else(|error| {
        not_known(found, question, &error);
        Vec::new()
    })
}

/// Asks for rows of numbers, likewise.
fn numbers<const COLUMNS: usize>(
    found: &mut Examination,
    session: &mut Session,
    question: Statement,
    args: &[Value<'_>],
) -> Vec<[i64; COLUMNS]> {
    let read = |row: &Row<'_>| {
        let mut numbers = [0; COLUMNS];
        for (column, number) in numbers.iter_mut().enumerate() {
            *number = row.int(column)?;
        }
        Ok(numbers)
    };
    ask_all(session, question, args, read).unwrap_or_else(|error| {
        not_known(found, question, &error);
        Vec::new()
    })
}

fn not_known(found: &mut Examination, question: Statement, error: &Error) {
    if let Error::Conflict { what: "session", .. } = error {
        if found.findings.iter().all(|finding| finding.code != POOLED) {
            let place = found.place.clone();
            found.error(POOLED, place, (error.to_string(), POOLER));
        }
        return;
    }
    let way_out = "ask as a role that may see it (pg_monitor); a server that is no PostgreSQL may not know it at all";
    found.note("not-known", format!("question {}", question.name), (error.to_string(), way_out));
}

fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
