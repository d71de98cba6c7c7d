//! Stores of old schemas on a server: brought forward once and whole, or left as they were, whoever is killed meanwhile; and
//! stores of a newer schema.

use std::collections::BTreeMap;
use std::time::Duration;

use postgres::types::ToSql;
use postgres::{Client, NoTls};
use threadkeep::blocking::Store;
use threadkeep::{Error, Hash, StoreOptions};

use crate::faults::{Fault, Proxy};
use crate::migrated::migrations;
use crate::sample::{self, Fixture, id, message, old_schemas, transcript};
use crate::server::{Server, server};

/// What a place waits for the server, so that a server that ends every attempt is told soon.
const SHORT: Duration = Duration::from_millis(200);
/// The rows of a store, table by table.
type Rows = BTreeMap<String, Vec<String>>;

fn options(address: &str) -> StoreOptions {
    StoreOptions::postgres(address).unwrap().busy_bound(Duration::from_secs(30))
}

fn schema_of(address: &str) -> &str {
    address.rsplit_once("schema=").unwrap().1
}

/// A connection that sees the tables of a store.
fn tables_of(server: &Server, address: &str) -> Client {
    let mut client = server.config().connect(NoTls).unwrap();
    client.batch_execute(&format!("SET search_path = \"{}\", pg_temp", schema_of(address))).unwrap();
    client
}

/// Makes a store anew as the program of its schema left it: its migrations, and the rows that both engines write.
fn lay(server: &Server, address: &str, fixture: &Fixture) {
    let source = rusqlite::Connection::open_in_memory().unwrap();
    source.execute_batch(&fixture.sql).unwrap();
    lay_rows(server, address, fixture.number, &source);
}

fn lay_rows(server: &Server, address: &str, schema: i64, source: &rusqlite::Connection) {
    let mut client = server.config().connect(NoTls).unwrap();
    client.batch_execute(&format!("CREATE SCHEMA {}", schema_of(address))).unwrap();
    let mut client = tables_of(server, address);
    let steps = || migrations("postgres").into_iter().zip(1..).filter(|(_, number)| *number <= schema);
    for ((file, text), _) in steps() {
        client.batch_execute(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    // The rows refer to each other in all directions, and rules look at them one by one.
    client.batch_execute("SET session_replication_role = replica").unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut names = source.prepare(names).unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for table in names.iter().filter(|name| *name != FEED) {
        put_rows(&mut client, source, table);
    }
    for ((_, text), number) in steps() {
        let checksum = Hash::of(text.as_bytes()).to_string();
        client.execute("UPDATE schema_migrations SET checksum = $1 WHERE number = $2", &[&checksum, &number]).unwrap();
    }
}

fn put_rows(client: &mut Client, source: &rusqlite::Connection, table: &str) {
    let mut rows = source.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns: Vec<String> = rows.column_names().map(|name| format!("\"{name}\"")).collect();
    let places: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let insert = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), places.join(", "));
    let insert = client.prepare(&insert).unwrap();
    let mut found = rows.query([]).unwrap();
    while let Some(row) = found.next().unwrap() {
        let values: Vec<Box<dyn ToSql + Sync>> = insert
            .params()
            .iter()
            .enumerate()
            .map(|(at, kind)| -> Box<dyn ToSql + Sync> {
                match kind.name() {
                    "int8" => Box::new(row.get::<_, Option<i64>>(at).unwrap()),
                    "text" => Box::new(row.get::<_, Option<String>>(at).unwrap()),
                    _ => Box::new(row.get::<_, Option<Vec<u8>>>(at).unwrap()),
                }
            })
            .collect();
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
        client.execute(&insert, &values).unwrap();
    }
}

/// The times of jobs, messages and requests, which go by the server's own clock.
const OF_THE_SERVER: &str = "'{due_at,claimed_at,heartbeat_at,created_at,updated_at,ended_at,accepted_at,expires_at,taken_at,\
     delivered_at,owned_at,resolved_at,consumed_at}'::text[]";

/// The feed of changes, which each engine orders in its own way.
const FEED: &str = "changes";

/// All rows of a store, as text; what only the server has to say is left out. So is the search index: it is made of them, in its
/// own time. And so is the feed.
fn rows_of(client: &mut Client) -> Rows {
    let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() AND table_name NOT LIKE 'search\\_%'
        AND table_name NOT LIKE 'changes%'";
    let tables: Vec<String> = client.query(tables, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    let rows = |table: String| {
        let query = match table.as_str() {
            "jobs" | "messages" | "requests" => {
                format!("SELECT (to_jsonb(t) - {OF_THE_SERVER})::text FROM {table} t ORDER BY 1")
            }
            _ => format!("SELECT t::text FROM {table} t ORDER BY 1"),
        };
        let rows = client.query(&query, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        (table, rows)
    };
    tables.into_iter().map(rows).collect()
}

/// What the rows of an old store are a part of after it has been brought forward: everything but the ledger.
fn without_ledger(mut rows: Rows) -> Rows {
    rows.remove("schema_migrations");
    rows
}

/// Rows that one engine wrote are a store on the other one, since both write the same, to the byte. The clock stands still: how often
/// it is looked at is all that differs.
#[test]
fn both_engines_write_the_same_rows() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    sample::make(StoreOptions::folder(folder.path()), 0);
    let written = server.address();
    sample::make(options(&written), 0);
    let source = rusqlite::Connection::open(folder.path().join("threadkeep.db")).unwrap();
    let laid = server.address();
    let newest = old_schemas().pop().unwrap().number;
    lay_rows(&server, &laid, newest, &source);
    let [written, laid] = [written, laid].map(|address| without_ledger(rows_of(&mut tables_of(&server, &address))));
    for (table, rows) in &laid {
        assert_eq!(written.get(table), Some(rows), "{table}: by PostgreSQL left, by SQLite right");
    }
    assert_eq!(written.len(), laid.len());
}

#[test]
fn a_store_of_every_schema_opens_on_a_server_and_reads_the_same() {
    let Some(server) = server() else { return };
    for fixture in old_schemas() {
        let (name, address) = (&fixture.name, server.address());
        lay(&server, &address, &fixture);
        let before = without_ledger(rows_of(&mut tables_of(&server, &address)));
        for time in ["first", "second"] {
            let store = Store::open(options(&address)).unwrap();
            assert_eq!(transcript(&store), fixture.reads, "{name} reads differently, opened for the {time} time");
        }
        let after = rows_of(&mut tables_of(&server, &address));
        for (table, rows) in before {
            assert_eq!(after.get(&table), Some(&rows), "{name}: {table} was changed by bringing it forward");
        }
        let store = Store::open(options(&address)).unwrap();
        let report = store.verify_all(|_| {}).unwrap();
        assert_eq!(report.intact, report.threads, "{name}: {:?}", report.invalid);
        let live = store.resume(&id("tree"), false).unwrap();
        live.append(vec![message("goes on")]).unwrap();
        live.shutdown().unwrap();
        assert!(store.verify(&id("tree")).unwrap().is_intact());
        let found = Store::examine(options(&address), true).unwrap().findings;
        let drift: Vec<_> = found.iter().filter(|finding| finding.code.starts_with("schema")).collect();
        assert!(drift.is_empty(), "{name}: {drift:#?}");
    }
}

#[test]
fn eight_that_open_an_old_store_at_once_bring_it_forward_once() {
    let Some(server) = server() else { return };
    for fixture in old_schemas() {
        let address = server.address();
        lay(&server, &address, &fixture);
        std::thread::scope(|scope| {
            let opened: Vec<_> =
                (0..8).map(|_| scope.spawn(|| transcript(&Store::open(options(&address)).unwrap()))).collect();
            for one in opened {
                assert_eq!(one.join().unwrap(), fixture.reads, "{}", fixture.name);
            }
        });
        let count = "SELECT count(*), count(DISTINCT number) FROM schema_migrations";
        let row = tables_of(&server, &address).query_one(count, &[]).unwrap();
        assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1));
    }
}

/// Ends a session of the store before or behind its statement of that number, counted within its transaction: those that make
/// something, those that write the ledger, and last the commit itself, before it is done.
const ASSASSIN: &str = "
CREATE SCHEMA assassin;
CREATE TABLE assassin.victim (schema TEXT, at BIGINT);
CREATE FUNCTION assassin.step(what TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  said TEXT := coalesce(nullif(current_setting('assassin.count', true), ''), '0');
  aim BIGINT;
BEGIN
  SELECT at INTO aim FROM assassin.victim WHERE schema = split_part(current_setting('search_path'), ',', 1);
  IF aim IS NULL THEN RETURN; END IF;
  PERFORM set_config('assassin.count', (said::BIGINT + 1)::TEXT, true);
  IF said::BIGINT = aim THEN
    PERFORM pg_terminate_backend(pg_backend_pid());
    PERFORM pg_sleep(10);
  END IF;
END $$;
CREATE FUNCTION assassin.at_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM assassin.step(tg_tag); END $$;
CREATE FUNCTION assassin.at_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM assassin.step(tg_op); RETURN NEW; END $$;
CREATE EVENT TRIGGER assassin_before ON ddl_command_start EXECUTE FUNCTION assassin.at_ddl();
CREATE EVENT TRIGGER assassin_behind ON ddl_command_end EXECUTE FUNCTION assassin.at_ddl();
";
const AT_LEDGER: &str = "
CREATE TRIGGER assassin_before BEFORE INSERT ON schema_migrations FOR EACH ROW EXECUTE FUNCTION assassin.at_row();
CREATE TRIGGER assassin_behind AFTER INSERT ON schema_migrations FOR EACH ROW EXECUTE FUNCTION assassin.at_row();
CREATE CONSTRAINT TRIGGER assassin_at_commit AFTER INSERT ON schema_migrations
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION assassin.at_row();
";
const NOT_AT_LEDGER: &str = "
DROP TRIGGER assassin_before ON schema_migrations;
DROP TRIGGER assassin_behind ON schema_migrations;
DROP TRIGGER assassin_at_commit ON schema_migrations;
";

/// Everything that a schema holds, rows and parts.
fn all_of(client: &mut Client) -> (Rows, Vec<String>) {
    let parts = "SELECT c.relkind::text || ' ' || c.relname FROM pg_class c
          WHERE c.relnamespace = current_schema()::regnamespace
        UNION ALL SELECT 'trigger ' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
          WHERE c.relnamespace = current_schema()::regnamespace
            AND NOT t.tgisinternal AND t.tgname NOT LIKE 'assassin%'
        UNION ALL SELECT 'function ' || p.proname FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
        ORDER BY 1";
    (rows_of(client), client.query(parts, &[]).unwrap().iter().map(|row| row.get(0)).collect())
}

#[test]
fn a_migration_that_is_killed_at_any_statement_leaves_the_store_as_it_was() {
    // Its own server: what ends sessions here must not meet those of other tests.
    let Some(server) = crate::server::start_own() else { return };
    let mut admin = server.config().connect(NoTls).unwrap();
    admin.batch_execute(ASSASSIN).unwrap();
    let newest = old_schemas().pop().unwrap().number;
    for fixture in old_schemas().into_iter().filter(|fixture| fixture.number < newest) {
        let address = server.address();
        lay(&server, &address, &fixture);
        let mut tables = tables_of(&server, &address);
        let before = all_of(&mut tables);
        tables.batch_execute(AT_LEDGER).unwrap();
        let aim = |admin: &mut Client, at: i64| {
            admin.batch_execute("DELETE FROM assassin.victim").unwrap();
            admin.execute("INSERT INTO assassin.victim VALUES ($1, $2)", &[&schema_of(&address), &at]).unwrap();
        };
        let mut killed = 0;
        for at in 0.. {
            aim(&mut admin, at);
            match Store::open(options(&address).busy_bound(SHORT)) {
                Err(error) => {
                    let is_told = matches!(error, Error::Io { .. }) && error.is_retryable();
                    assert!(is_told, "at {at}: {error:?}");
                }
                // There are no more statements than these.
                Ok(_) => break,
            }
            killed += 1;
            assert!(all_of(&mut tables) == before, "{}: something is left of what was killed at {at}", fixture.name);
        }
        admin.batch_execute("DELETE FROM assassin.victim").unwrap();
        tables.batch_execute(NOT_AT_LEDGER).unwrap();
        let statements: usize = migrations("postgres")
            .iter()
            .zip(1..)
            .filter(|(_, number)| *number > fixture.number)
            .map(|((_, text), _)| text.matches("CREATE ").count().min(2) * 2 + 3)
            .sum();
        assert!(
            killed >= statements,
            "{}: killed at {killed} places, and there are {statements} at least",
            fixture.name
        );
        let store = Store::open(options(&address)).unwrap();
        assert_eq!(transcript(&store), fixture.reads, "{}", fixture.name);
        assert_eq!(store.verify_all(|_| {}).unwrap().invalid.len(), 0);
    }
}

/// The connection is lost with the commit of a migration, before or behind it: the next who opens finds the old store or the new.
#[test]
fn a_migration_whose_commit_is_lost_or_not_answered_is_done_once() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(&server);
    let fixture = old_schemas().remove(0);
    for fault in [Fault::LosesAnswer, Fault::LosesCommit] {
        let address = server.address();
        lay(&server, &address, &fixture);
        let before = all_of(&mut tables_of(&server, &address));
        proxy.arm(fault);
        match Store::open(options(&proxy.address(&address)).busy_bound(SHORT)) {
            Ok(store) => assert_eq!(transcript(&store), fixture.reads),
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{fault:?}: {error:?}"),
        }
        let is_old = all_of(&mut tables_of(&server, &address)) == before;
        assert!(!is_old || fault == Fault::LosesCommit, "{fault:?}: what was committed is there");
        let store = Store::open(options(&address)).unwrap();
        assert_eq!(transcript(&store), fixture.reads, "{fault:?}");
    }
}

/// A store of a newer schema is refused in every way, with a word on where and what to do; and no row of it changes.
#[test]
fn a_newer_store_on_a_server_is_refused_and_not_a_row_of_it_changes() {
    let Some(server) = server() else { return };
    let address = server.address();
    sample::make(options(&address), sample::STEP);
    let mut tables = tables_of(&server, &address);
    let newer = "INSERT INTO schema_migrations SELECT max(number) + 1, 'future', 'x', 0 FROM schema_migrations;
        CREATE TABLE later (x BIGINT)";
    tables.batch_execute(newer).unwrap();
    let before = all_of(&mut tables);
    for options in [options(&address), options(&address).read_only()] {
        let refused = Store::open(options).unwrap_err();
        let told = refused.to_string();
        let Error::SchemaTooNew { place, found, known } = refused else { panic!("{refused:?}") };
        assert!(found == known + 1 && place.contains(schema_of(&address)), "{told}");
        assert!(told.contains(&place) && told.contains("newer Threadkeep"), "{told}");
    }
    let found = Store::examine(options(&address), true).unwrap().findings;
    assert_eq!(found.iter().filter(|finding| finding.code == "schema-newer").count(), 1, "{found:#?}");
    assert!(all_of(&mut tables) == before);
}

#[test]
fn a_damaged_record_of_the_schema_is_told_as_such() {
    let Some(server) = server() else { return };
    let gap = "INSERT INTO schema_migrations VALUES (9999, 'x', 'x', 0)";
    let damages = [
        (gap, "lacks step"),
        ("UPDATE schema_migrations SET checksum = 'x' WHERE number = 1", "its text differs"),
        ("DELETE FROM schema_migrations WHERE number = 1", "lacks step 1"),
        ("DELETE FROM schema_migrations", "no step of its schema is on record"),
    ];
    for (damage, words) in damages {
        let address = server.address();
        drop(Store::open(options(&address)).unwrap());
        let mut tables = tables_of(&server, &address);
        tables.batch_execute(damage).unwrap();
        let before = all_of(&mut tables);
        let refused = Store::open(options(&address)).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }) && refused.to_string().contains(words), "{damage}: {refused}");
        assert!(all_of(&mut tables) == before, "{damage}");
    }
}
