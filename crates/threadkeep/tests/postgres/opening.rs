//! Opening stores on a server: many at once, schemas of others, roles with few rights.

use postgres::NoTls;
use threadkeep::blocking::Store;
use threadkeep::{Change, Error, NewItem, NewThread, Role, StoreOptions, ThreadPatch};

use crate::server::{Server, server};

/// How many come at once.
const CROWD: usize = 32;

fn options(address: &str) -> StoreOptions {
    StoreOptions::postgres(address).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn admin(server: &Server) -> postgres::Client {
    server.config().connect(NoTls).unwrap()
}

fn schema_of(address: &str) -> &str {
    address.rsplit_once("schema=").unwrap().1
}

#[test]
fn a_crowd_that_opens_a_new_store_makes_one() {
    let Some(server) = server() else { return };
    let address = server.address();
    let opened: Vec<(threadkeep::Uuid, threadkeep::ThreadId)> = std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                scope.spawn(|| {
                    let store = Store::open(options(&address)).unwrap();
                    let live = store.workspace("/w".as_ref()).unwrap().create(NewThread::default()).unwrap();
                    for number in 0..10 {
                        live.append(vec![say(&number.to_string())]).unwrap();
                    }
                    (store.id(), live.id().clone())
                })
            })
            .collect();
        crowd.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let store = Store::open(options(&address)).unwrap();
    assert!(opened.iter().all(|(id, _)| *id == store.id()));
    assert_eq!(store.workspaces().unwrap().len(), 1, "all are in one workspace");
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!((report.threads, report.intact, report.items), (CROWD as u64, CROWD as u64, CROWD as u64 * 10));
}

#[test]
fn of_two_who_change_the_same_version_one_does() {
    let Some(server) = server() else { return };
    let address = server.address();
    let stores = [Store::open(options(&address)).unwrap(), Store::open(options(&address)).unwrap()];
    let live = stores[0].workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    for round in 0..50 {
        let version = stores[0].get(live.id()).unwrap().version;
        let won: usize = std::thread::scope(|scope| {
            let asked: Vec<_> = stores
                .iter()
                .map(|store| {
                    let title = Change::Set(round.to_string());
                    let patch = ThreadPatch { expect_version: Some(version), title, ..ThreadPatch::default() };
                    scope.spawn(|| match store.update(live.id(), patch) {
                        Ok(_) => 1,
                        Err(Error::Conflict { what: "version", .. }) => 0,
                        Err(other) => panic!("{other:?}"),
                    })
                })
                .collect();
            asked.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(won, 1, "in round {round}");
    }
    // Who expects no version is never refused.
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| (0..50).for_each(|_| drop(store.update(live.id(), ThreadPatch::title("x")).unwrap())));
        }
    });
    assert_eq!(stores[0].get(live.id()).unwrap().version, 1 + 50 + 100);
}

#[test]
fn a_schema_of_another_program_is_refused_and_not_touched() {
    let Some(server) = server() else { return };
    let mut admin = admin(&server);
    for (table, columns) in [("other", "x BIGINT"), ("schema_migrations", "version TEXT")] {
        let address = server.address();
        let schema = schema_of(&address);
        admin.batch_execute(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table} ({columns})")).unwrap();
        let refused = Store::open(options(&address)).unwrap_err();
        assert!(matches!(refused, Error::ForeignStore { .. }), "{refused:?}");
        let count = "SELECT count(*) FROM pg_tables WHERE schemaname = $1";
        assert_eq!(admin.query_one(count, &[&schema]).unwrap().get::<_, i64>(0), 1);
    }
}

#[test]
fn reading_makes_no_store_and_a_newer_schema_is_refused() {
    let Some(server) = server() else { return };
    let address = server.address();
    let refused = Store::open(options(&address).read_only()).unwrap_err();
    assert!(matches!(refused, Error::NotFound { what: "store", .. }), "{refused:?}");
    drop(Store::open(options(&address)).unwrap());
    let store = Store::open(options(&address).read_only()).unwrap();
    assert!(matches!(store.workspace("/w".as_ref()), Err(Error::ReadOnly { .. })));
    drop(store);
    let ledger = format!("{}.schema_migrations", schema_of(&address));
    let newer = format!("INSERT INTO {ledger} SELECT max(number) + 1, 'x', 'x', 0 FROM {ledger}");
    admin(&server).batch_execute(&newer).unwrap();
    let refused = Store::open(options(&address)).unwrap_err();
    let Error::SchemaTooNew { place, found, known } = refused else { panic!("{refused:?}") };
    assert!(found == known + 1 && place.contains(schema_of(&address)), "{place}: {found}, {known}");
}

#[test]
fn the_servers_weaker_settings_are_named() {
    let Some(server) = server() else { return };
    let store = Store::open(options(&server.address())).unwrap();
    let said = store.notices().join("\n");
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        assert!(said.contains(setting), "{said}");
    }
}
