//! Real processes that come at the same moment.
//!
//! A test starts this very binary again with an address in its environment; [`child_entry`] is what it then does.

use std::process::{Child, Command, Stdio};

use threadkeep::blocking::Store;
use threadkeep::{ListQuery, NewItem, NewThread, Role, StoreOptions};

use crate::server::server;

const ADDRESS: &str = "THREADKEEP_TEST_ADDRESS";
const PROCESSES: usize = 32;
const ITEMS: usize = 10;
const ROUNDS: usize = 3;

/// Opens the store at the end of its input and appends; without an address this is no test and passes.
#[test]
fn child_entry() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    assert_eq!(std::io::stdin().lines().count(), 0);
    let store = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
    let workspace = store.workspace("/w".as_ref()).unwrap();
    let live = workspace.create(NewThread::default()).unwrap();
    for number in 0..ITEMS {
        live.append(vec![NewItem::message(Role::User, number.to_string())]).unwrap();
    }
    live.shutdown().unwrap();
}

/// Unsynchronised, some find a table that exists already, or each other's first rows, and what they write is dropped.
#[test]
fn processes_that_open_a_fresh_schema_at_once_lose_nothing() {
    let Some(server) = server() else { return };
    for round in 0..ROUNDS {
        let address = server.address();
        let start = || {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "processes::child_entry", "--nocapture", "--test-threads=1"]);
            child.env(ADDRESS, &address).stdin(Stdio::piped()).stdout(Stdio::null());
            child.spawn().unwrap()
        };
        let mut children: Vec<Child> = (0..PROCESSES).map(|_| start()).collect();
        // They wait for the end of their input.
        children.iter_mut().for_each(|child| drop(child.stdin.take()));
        let failed = children.iter_mut().filter_map(|child| (!child.wait().unwrap().success()).then_some(())).count();
        assert_eq!(failed, 0, "round {round}: so many failed");
        let store = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
        let threads = store.list(ListQuery { limit: 100, ..ListQuery::default() }).unwrap().entries;
        let items: Vec<i64> = threads.iter().map(|thread| thread.items).collect();
        assert_eq!(items, [i64::try_from(ITEMS).unwrap(); PROCESSES], "round {round}");
        assert_eq!(store.workspaces().unwrap().len(), 1, "round {round}: the folder is one workspace");
        let report = store.verify_all(|_| {}).unwrap();
        assert!(report.invalid.is_empty(), "round {round}: {report:?}");
    }
}
