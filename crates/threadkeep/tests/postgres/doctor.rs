//! What an examination says of a server and of a store on it, in whatever state they are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::NoTls;
use threadkeep::blocking::Store;
use threadkeep::{
    Examination, Host, NewItem, NewThread, ProjectFacts, Role, Severity, StoreOptions, Timestamp, postgres_listing,
};

use crate::server::{Server, server, start_own};

/// What the test server's settings and its superuser are found to be, whatever the store is.
const OF_SERVER: [&str; 3] = ["setting", "role-too-strong", "few-connections"];

fn options(address: &str) -> StoreOptions {
    StoreOptions::postgres(address).unwrap()
}

fn examine(address: &str) -> Examination {
    Store::examine(options(address), false).unwrap()
}

/// The findings on the store: severity, code and place.
fn said(found: &Examination) -> Vec<(Severity, &str, &str)> {
    let ours = found.findings.iter().filter(|finding| !OF_SERVER.contains(&finding.code));
    ours.map(|finding| (finding.severity, finding.code, finding.place.as_str())).collect()
}

fn fact(found: &Examination, name: &str) -> serde_json::Value {
    found.facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("{name}: {found:?}")).value.clone()
}

/// A store with a thread that has an item; its schema and its address.
fn filled(server: &Server) -> (String, String) {
    let address = server.address();
    let store = Store::open(options(&address)).unwrap();
    let live = store.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    live.append(vec![NewItem::message(Role::User, "kept")]).unwrap();
    live.shutdown().unwrap();
    (address.rsplit_once("schema=").unwrap().1.to_owned(), address)
}

fn admin(server: &Server, sql: &str) {
    server.config().connect(NoTls).unwrap().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// The listing that stores are compared with is made by the migrations. `UPDATE_GOLDEN=1` renews it.
#[test]
fn the_listing_is_what_the_migrations_make() {
    let Some(server) = server() else { return };
    let (sql, golden) = postgres_listing();
    let (schema, _) = filled(&server);
    let mut client = server.config().options(&format!("-c search_path={schema}")).connect(NoTls).unwrap();
    let rows = client.query(&sql, &[&schema]).unwrap();
    let lines: BTreeMap<(String, String), String> =
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    let listing: String =
        lines.iter().map(|((kind, name), definition)| format!("{kind}\t{name}\t{definition}\n")).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/db/postgres/listing.txt");
        return std::fs::write(file, listing).unwrap();
    }
    assert!(listing == golden, "the listing is not up to date: UPDATE_GOLDEN=1 renews it\n{listing}");
    assert!(lines.len() > 150, "{} parts", lines.len());
}

#[test]
fn a_sound_store_is_found_sound() {
    let Some(server) = server() else { return };
    let (_, address) = filled(&server);
    let found = examine(&address);
    assert_eq!(said(&found), [], "{found:#?}");
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let named = found.findings.iter().any(|finding| finding.place.ends_with(setting));
        assert!(named, "{setting} is weaker than it should be: {found:#?}");
    }
    let strong = found.findings.iter().find(|finding| finding.code == "role-too-strong").unwrap();
    assert!(strong.what.contains("superuser"));
    assert_eq!(found.worst(), Some(Severity::Error), "fsync is off");
    assert!(found.findings.is_sorted_by_key(|finding| std::cmp::Reverse(finding.severity)));
    assert_eq!((fact(&found, "standby"), fact(&found, "encoding")), (false.into(), "UTF8".into()));
    assert_eq!(fact(&found, "schema"), fact(&found, "schema_known"));
    assert!(fact(&found, "bytes").as_i64() > Some(100_000));
    let apart = fact(&found, "clock_difference_ms").as_i64().unwrap();
    assert!(apart.abs() < 1_000, "one machine has one clock: {apart} ms");
}

#[test]
fn drift_is_named_part_by_part() {
    let Some(server) = server() else { return };
    for (sql, severity, code, place) in [
        ("DROP INDEX s.threads_updated", Severity::Error, "schema-missing", "index threads.threads_updated"),
        ("ALTER TABLE s.threads DROP persona", Severity::Error, "schema-missing", "column threads.persona"),
        ("ALTER TABLE s.turns ALTER ordinal TYPE INT", Severity::Error, "schema-differs", "column turns.ordinal"),
        (
            "ALTER TABLE s.threads ALTER title TYPE TEXT COLLATE \"POSIX\"",
            Severity::Error,
            "schema-differs",
            "column threads.title",
        ),
        (
            "ALTER TABLE s.threads ALTER pinned DROP NOT NULL",
            Severity::Error,
            "schema-differs",
            "column threads.pinned",
        ),
        (
            "ALTER TABLE s.items DROP CONSTRAINT items_writer_fkey",
            Severity::Error,
            "schema-missing",
            "constraint items.items_writer_fkey",
        ),
        (
            "ALTER TABLE s.branches DROP CONSTRAINT branches_check",
            Severity::Error,
            "schema-missing",
            "constraint branches.branches_check",
        ),
        (
            "ALTER TABLE s.items DISABLE TRIGGER items_are_append_only",
            Severity::Error,
            "schema-differs",
            "trigger items.items_are_append_only",
        ),
        (
            "DROP TRIGGER items_have_parents ON s.items",
            Severity::Error,
            "schema-missing",
            "trigger items.items_have_parents",
        ),
        (
            "ALTER FUNCTION s.items_have_parents() RESET search_path",
            Severity::Error,
            "schema-differs",
            "function items_have_parents",
        ),
        ("DROP TABLE s.segments", Severity::Error, "schema-missing", "table segments"),
        ("ALTER TABLE s.counters SET UNLOGGED", Severity::Error, "schema-differs", "table counters"),
        ("ALTER TABLE s.items ENABLE ROW LEVEL SECURITY", Severity::Error, "schema-differs", "table items"),
        ("ALTER TABLE s.threads ADD colour TEXT", Severity::Warning, "schema-extra", "column threads.colour"),
        ("CREATE INDEX more ON s.threads (model)", Severity::Note, "schema-extra", "index threads.more"),
        ("CREATE TABLE s.other (x INT)", Severity::Note, "schema-extra", "table other"),
        (
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 's.threads_created'::regclass",
            Severity::Error,
            "index-invalid",
            "index threads.threads_created",
        ),
        ("ALTER TABLE s.items SET (autovacuum_enabled = off)", Severity::Warning, "setting", "table items"),
    ] {
        let (schema, address) = filled(&server);
        admin(&server, &sql.replace("s.", &format!("{schema}.")));
        let found = examine(&address);
        let named = (severity, code, place);
        let all: Vec<_> = found.findings.iter().map(|it| (it.severity, it.code, it.place.as_str())).collect();
        assert!(all.contains(&named), "{sql}: {found:#?}");
        let ours = said(&found);
        assert!(ours.iter().all(|it| *it == named), "{sql}: {ours:?}");
    }
}

#[test]
fn a_store_that_cant_be_opened_is_examined_too() {
    let Some(server) = server() else { return };
    let ledger = |schema: &str, sql: &str| admin(&server, &sql.replace("s.", &format!("{schema}.")));
    let expect = |address: &str, code: &str| {
        let found = examine(address);
        assert_eq!(said(&found).first().map(|it| (it.0, it.1)), Some((Severity::Error, code)), "{found:#?}");
        found
    };
    expect(&server.address(), "no-store");
    let (schema, address) = filled(&server);
    admin(&server, &format!("DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}"));
    expect(&address, "no-store");
    let (schema, address) = filled(&server);
    ledger(&schema, "DELETE FROM s.schema_migrations");
    expect(&address, "half-migrated");
    let (schema, address) = filled(&server);
    ledger(&schema, "INSERT INTO s.schema_migrations SELECT max(number) + 1, 'x', 'x', 0 FROM s.schema_migrations");
    expect(&address, "schema-newer");
    let (schema, address) = filled(&server);
    ledger(&schema, "UPDATE s.schema_migrations SET checksum = 'x'");
    expect(&address, "damaged");
    let (schema, address) = filled(&server);
    ledger(&schema, "DROP TABLE s.schema_migrations");
    expect(&address, "foreign-store");
    let nowhere = format!("postgres://ann:hidden@/db?host={}", server.folder().join("nowhere").display());
    let found = expect(&nowhere, "unreachable");
    assert!(!format!("{found:?}").contains("hidden"));
    expect(&server.address().replace("/postgres?", "/nothing?"), "database-missing");
    expect(&server.address().replace("threadkeep@", "nobody_here@"), "login-refused");
}

#[test]
fn rights_that_lack_and_limits_that_bite_are_named() {
    let Some(server) = server() else { return };
    let (schema, address) = filled(&server);
    let role = format!("{schema}_role");
    admin(&server, &format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 3"));
    let as_role = address.replace("threadkeep@", &format!("{role}@"));
    let expect = |severity, code, place: &str| {
        let found = examine(&as_role);
        let there =
            found.findings.iter().any(|it| (it.severity, it.code, it.place.as_str()) == (severity, code, place));
        assert!(there, "{code} {place}: {found:#?}");
        found
    };
    expect(Severity::Error, "privilege-missing", &format!("schema {schema}"));
    admin(
        &server,
        &format!("GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"),
    );
    expect(Severity::Warning, "few-connections", &format!("role {role}"));
    let found = expect(Severity::Note, "reads-only", &format!("schema {schema}"));
    assert!(
        found.findings.iter().all(|it| it.code != "privilege-missing" && it.code != "role-too-strong"),
        "{found:#?}"
    );
    admin(
        &server,
        &format!(
            "GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; REVOKE DELETE, UPDATE ON {schema}.claims FROM {role}"
        ),
    );
    let found = expect(Severity::Error, "privilege-missing", "table claims");
    assert!(found.findings.iter().any(|it| it.what.contains("UPDATE, DELETE")), "{found:#?}");
    admin(&server, &format!("REVOKE SELECT ON {schema}.items FROM {role}"));
    expect(Severity::Error, "privilege-missing", "table items");
    admin(
        &server,
        &format!(
            "ALTER ROLE {role} SET default_transaction_read_only = on; ALTER ROLE {role} SET idle_session_timeout = '1min'"
        ),
    );
    let found = examine(&as_role);
    for setting in ["default_transaction_read_only", "idle_session_timeout"] {
        assert!(
            found.findings.iter().any(|it| it.code == "setting" && it.place.ends_with(setting)),
            "{setting}: {found:#?}"
        );
    }
}

#[test]
fn claims_are_counted_and_the_dead_ones_named() {
    let Some(server) = server() else { return };
    let (schema, address) = filled(&server);
    let store = Store::open(options(&address)).unwrap();
    let home = store.workspace("/w".as_ref()).unwrap();
    let (one, two) = (home.create_now(NewThread::default()).unwrap(), home.create_now(NewThread::default()).unwrap());
    admin(&server, &format!("UPDATE {schema}.claims SET heartbeat_at = 0 WHERE thread = '{}'", one.id()));
    let found = examine(&address);
    assert_eq!((fact(&found, "claims_live"), fact(&found, "claims_dead")), (1.into(), 1.into()), "{found:#?}");
    assert_eq!(said(&found), [(Severity::Note, "dead-claim", format!("thread {}", one.id()).as_str())]);
    drop(two);
}

/// A machine whose clock is an hour behind.
#[derive(Debug)]
struct Late;

impl Host for Late {
    fn now(&self) -> Timestamp {
        Timestamp(threadkeep::SystemHost.now().0 - 3_600_000)
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        threadkeep::SystemHost.fill_random(buffer);
    }

    fn machine(&self) -> String {
        "late".to_owned()
    }

    fn hostname(&self) -> String {
        "late".to_owned()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        ProjectFacts { path: path.to_owned(), ..ProjectFacts::default() }
    }
}

#[test]
fn clocks_that_differ_are_named() {
    let Some(server) = server() else { return };
    let (_, address) = filled(&server);
    let found = Store::examine(options(&address).host(Arc::new(Late)), false).unwrap();
    assert!(said(&found).iter().any(|it| (it.0, it.1) == (Severity::Warning, "clocks-apart")), "{found:#?}");
}

/// A server of its own: one that is stopped, starting and a standby.
#[test]
fn a_standby_is_read_and_named() {
    let Some(server) = start_own() else { return };
    let (_, address) = filled(&server);
    server.order("stop");
    std::fs::write(server.folder().join("data/standby.signal"), "").unwrap();
    server.order("start");
    let bound = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let found = examine(&address);
        if !said(&found).iter().any(|it| it.1 == "unreachable") || Instant::now() > bound {
            break found;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(fact(&found, "standby"), true, "{found:#?}");
    assert!(said(&found).iter().all(|it| it.1 == "standby"), "{found:#?}");
    let store = Store::open(options(&address).read_only()).unwrap();
    assert_eq!(store.verify_all(|_| {}).unwrap().intact, 1);
}
