//! The roles of `scripts/postgres-roles.sql`: each can do what it is for, and is refused, typed, what it is not for.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use postgres::NoTls;
use postgres::error::SqlState;
use threadkeep::blocking::Store;
use threadkeep::conformance::clauses;
use threadkeep::conformance::indexes::Probe;
use threadkeep::{
    Error, ItemQuery, ListQuery, NewItem, NewThread, Role, Severity, StoreOptions, Thread, ThreadPatch, TurnQuery,
};

use crate::server::{Server, server};

/// A schema with roles of its own, as the script makes them.
struct Roles {
    server: Arc<Server>,
    address: String,
    schema: String,
}

impl Roles {
    fn make(server: &Arc<Server>) -> Self {
        let address = server.address();
        let schema = address.rsplit_once("schema=").unwrap().1.to_owned();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres-roles.sql");
        let script = std::fs::read_to_string(script).unwrap().replace("threadkeep", &schema);
        let roles = Self { server: Arc::clone(server), address, schema };
        let logins = ["owner", "writer", "reader"].map(|role| format!("ALTER ROLE {}_{role} LOGIN;", roles.schema));
        roles.admin(&(script + &logins.concat()));
        roles
    }

    fn admin(&self, sql: &str) {
        self.server
            .config()
            .connect(NoTls)
            .unwrap()
            .batch_execute(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn options(&self, role: &str) -> StoreOptions {
        StoreOptions::postgres(&self.address.replace("threadkeep@", &format!("{}_{role}@", self.schema))).unwrap()
    }

    fn open(&self, role: &str) -> Store {
        Store::open(self.options(role)).unwrap_or_else(|error| panic!("as {role}: {error}"))
    }

    /// The code by which the server refuses a statement of a role's.
    fn refusal(&self, role: &str, sql: &str) -> SqlState {
        let mut config = self.server.config();
        config.user(&format!("{}_{role}", self.schema)).options(&format!("-c search_path={}", self.schema));
        let outcome = config.connect(NoTls).unwrap().batch_execute(sql);
        outcome.expect_err(sql).code().unwrap_or_else(|| panic!("{role}: {sql}")).clone()
    }

    /// What an examination finds wrong as this role, the test server's settings left out.
    fn found(&self, role: &str) -> Vec<(Severity, &'static str)> {
        let found = Store::examine(self.options(role), false).unwrap().findings;
        found.iter().filter(|it| it.code != "setting").map(|it| (it.severity, it.code)).collect()
    }
}

#[track_caller]
fn assert_read_only<T>(what: &str, outcome: Result<T, Error>) {
    let refused = outcome.map(drop);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{what}: {refused:?}");
}

#[track_caller]
fn assert_closed(outcome: Result<Store, Error>) {
    let refused = outcome.map(drop);
    assert!(matches!(refused, Err(Error::Io { kind: ErrorKind::PermissionDenied, .. })), "{refused:?}");
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

#[test]
fn the_writer_keeps_every_promise_of_a_store() {
    let Some(server) = server() else { return };
    let broken = std::thread::scope(|scope| {
        let (clauses, server) = (clauses(), &server);
        let parts: Vec<_> = clauses
            .chunks(clauses.len().div_ceil(4))
            .map(|part| {
                let part = part.to_vec();
                scope.spawn(move || {
                    let kept = |clause: &threadkeep::conformance::Clause| {
                        let roles = Roles::make(server);
                        drop(roles.open("owner"));
                        let ledger = &roles.schema;
                        roles.admin(&format!(
                            "REVOKE INSERT, UPDATE, DELETE ON {ledger}.schema_migrations FROM {ledger}_writer"
                        ));
                        (clause.check)(&roles.open("writer")).err().map(|broken| format!("{}: {broken}", clause.name))
                    };
                    part.iter().filter_map(kept).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn only_the_owner_makes_the_schema() {
    let Some(server) = server() else { return };
    let roles = Roles::make(&server);
    for role in ["writer", "reader"] {
        assert_read_only(role, Store::open(roles.options(role)));
        assert_eq!(roles.found(role), [(Severity::Error, "no-store")]);
        let refused = Store::open(roles.options(role).read_only()).unwrap_err();
        assert!(matches!(refused, Error::NotFound { what: "store", .. }), "{refused:?}");
    }
    drop(roles.open("owner"));
    drop(roles.open("owner"));
    assert_eq!(roles.found("owner"), [(Severity::Note, "role-owns")]);
    assert_eq!(roles.found("writer"), []);
    assert_eq!(roles.found("reader"), [(Severity::Note, "reads-only")]);
    // What is yet to come is the owner's alone, too.
    roles.admin(&format!("DELETE FROM {}.schema_migrations", roles.schema));
    assert!(Store::open(roles.options("writer")).is_err());
}

#[test]
fn the_writer_changes_no_table_and_no_item() {
    let Some(server) = server() else { return };
    let roles = Roles::make(&server);
    drop(roles.open("owner"));
    let store = roles.open("writer");
    let live = store.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    live.append(vec![say("kept"), say(&"large ".repeat(100_000))]).unwrap();
    for sql in [
        "DROP TABLE items",
        "ALTER TABLE items DISABLE TRIGGER ALL",
        "ALTER TABLE items ADD x BIGINT",
        "ALTER TABLE items OWNER TO CURRENT_USER",
        "CREATE TABLE more (x BIGINT)",
        "CREATE INDEX more ON items (kind)",
        "CREATE OR REPLACE FUNCTION items_are_append_only() RETURNS trigger LANGUAGE sql AS 'SELECT 1'",
        "TRUNCATE items CASCADE",
        "DROP TRIGGER items_are_append_only ON items",
        "SET session_replication_role = replica",
        "CREATE ROLE more_power",
    ] {
        assert_eq!(roles.refusal("writer", sql), SqlState::INSUFFICIENT_PRIVILEGE, "{sql}");
    }
    for sql in
        ["UPDATE items SET hash = 'x'", "UPDATE branches SET base = 7", "DELETE FROM items WHERE key & 4294967295 = 0"]
    {
        assert_eq!(roles.refusal("writer", sql), SqlState::INTEGRITY_CONSTRAINT_VIOLATION, "{sql}");
    }
    assert!(store.verify(live.id()).unwrap().is_intact());
    live.shutdown().unwrap();
    store.delete(live.id()).unwrap();
    assert_eq!(store.purge(live.id()).unwrap().items, 2);
}

#[test]
fn the_reader_reads_everything_and_writes_nothing() {
    let Some(server) = server() else { return };
    let roles = Roles::make(&server);
    drop(roles.open("owner"));
    let writer = roles.open("writer");
    let live = writer.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    live.begin_turn(say("kept")).unwrap();
    let id = live.id();
    let alone = writer.fork(id, None, NewThread::default()).unwrap().id;
    for store in [Store::open(roles.options("reader").read_only()).unwrap(), roles.open("reader")] {
        assert_eq!(store.items(id, ItemQuery::default()).unwrap().entries.len(), 1);
        assert_eq!(store.list(ListQuery::default()).unwrap().entries.len(), 2);
        assert_eq!(store.turns(id, TurnQuery::default()).unwrap().entries.len(), 1);
        assert_eq!(store.tree(id).unwrap().branches.len(), 1);
        assert_eq!((store.claims().unwrap().len(), store.workspaces().unwrap().len()), (1, 1));
        assert!(store.stats().unwrap().file_bytes > 0);
        assert_eq!(store.verify_all(|_| {}).unwrap().intact, 2);
        let other = Store::open(StoreOptions::memory()).unwrap();
        assert_eq!(other.copy_from(&store, &mut |_| {}).unwrap().equal, 2);

        let update = |title: &str| -> Result<Thread, Error> { store.update(id, ThreadPatch::title(title)) };
        assert_read_only("update", update("x"));
        assert_read_only("archive", store.archive(&alone));
        assert_read_only("delete", store.delete(&alone));
        assert_read_only("fork", store.fork(id, None, NewThread::default()));
        assert_read_only("resume", store.resume(&alone, false));
        assert_read_only("workspace", store.workspace("/another".as_ref()));
        let home = store.find_workspace("/w".as_ref()).unwrap().unwrap();
        assert_read_only("create", home.create_now(NewThread::default()));
        assert_read_only("sync", store.sync());
        assert_read_only("copy", store.copy_from(&other, &mut |_| {}).map(drop));
    }
    for sql in [
        "INSERT INTO counters VALUES ('x', 1)",
        "UPDATE threads SET title = 'x'",
        "DELETE FROM claims",
        "TRUNCATE claims",
        "DROP TABLE claims",
    ] {
        assert_eq!(roles.refusal("reader", sql), SqlState::INSUFFICIENT_PRIVILEGE, "{sql}");
    }
    live.append(vec![say("goes on")]).unwrap();
}

#[test]
fn the_writer_changes_the_search_index_and_the_reader_asks_it() {
    let Some(server) = server() else { return };
    let roles = Roles::make(&server);
    drop(roles.open("owner"));
    let index = |role: &str, is_read_only: bool| {
        let options = roles.options(role);
        Probe::on_server(if is_read_only { options.read_only() } else { options }).unwrap()
    };
    let writer = index("writer", false);
    let fill = || writer.fill(["one two".to_owned()].into_iter()).unwrap_or_else(|broken| panic!("{broken}"));
    fill();
    for reader in [index("reader", true), index("reader", false), index("writer", true)] {
        assert_eq!(reader.find_phrase("one two", false, 9).unwrap(), [1]);
        assert!(!reader.touch().unwrap(), "a change that is not made");
        assert_read_only("clear", reader.clear());
    }
    writer.clear().unwrap();
    assert!(writer.find_phrase("one", false, 9).unwrap().is_empty());
    fill();
    index("owner", false).clear().unwrap();
    assert!(writer.find_phrase("one", false, 9).unwrap().is_empty());
}

#[test]
fn a_stranger_gets_nothing_and_is_told_why() {
    let Some(server) = server() else { return };
    let roles = Roles::make(&server);
    drop(roles.open("owner"));
    roles.admin(&format!("CREATE ROLE {}_stranger LOGIN", roles.schema));
    for options in [roles.options("stranger"), roles.options("stranger").read_only()] {
        assert_closed(Store::open(options));
    }
    assert_eq!(roles.found("stranger"), [(Severity::Error, "privilege-missing")]);
    roles.admin(&format!("GRANT USAGE ON SCHEMA {} TO {}_stranger", roles.schema, roles.schema));
    assert_closed(Store::open(roles.options("stranger")));
    assert!(roles.found("stranger").iter().all(|it| it.1 == "privilege-missing" || it.1 == "reads-only"));
}
