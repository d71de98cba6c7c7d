//! Claims between machines: leases by the clock of the server, whatever the clocks of the machines say.

use std::path::Path;
use std::sync::Arc;

use postgres::Client;
use postgres::NoTls;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Error, Host, NewItem, NewThread, ProjectFacts, Role, StoreOptions, SystemHost, ThreadPatch, Timestamp,
};

use crate::server::{Server, server};

/// A machine whose clock is wrong.
#[derive(Debug)]
struct Elsewhere {
    name: &'static str,
    ahead: i64,
}

impl Host for Elsewhere {
    fn now(&self) -> Timestamp {
        Timestamp(SystemHost.now().0 + self.ahead)
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        SystemHost.fill_random(buffer);
    }

    fn machine(&self) -> String {
        self.name.to_owned()
    }

    fn hostname(&self) -> String {
        self.name.to_owned()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        SystemHost.project(path)
    }
}

const YEAR: i64 = 365 * 86_400_000;

fn open(address: &str, name: &'static str, ahead: i64) -> Store {
    let options = StoreOptions::postgres(address).unwrap().label(name).host(Arc::new(Elsewhere { name, ahead }));
    Store::open(options).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// A connection that sees the tables of a store.
fn tables(server: &Server, address: &str) -> Client {
    let schema = address.rsplit_once("schema=").unwrap().1;
    let mut config = server.config();
    config.options(&format!("-c search_path={schema}"));
    config.connect(NoTls).unwrap()
}

#[test]
fn a_holder_lives_by_the_servers_clock_and_not_by_its_own() {
    let Some(server) = server() else { return };
    let address = server.address();
    let slow = open(&address, "slow", -YEAR);
    let fast = open(&address, "fast", YEAR);
    let live = slow.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    live.append(vec![say("a")]).unwrap();
    match fast.resume(live.id(), false) {
        Err(Error::ClaimHeld { holder, .. }) => assert_eq!(holder.label, "slow"),
        other => panic!("the living holder was not respected: {other:?}"),
    }
    assert!(fast.get(live.id()).unwrap().live && fast.claims().unwrap()[0].live);
    assert!(matches!(fast.delete(live.id()), Err(Error::ClaimHeld { .. })));

    // Two minutes without a sign of life.
    let silence = "UPDATE claims SET heartbeat_at = heartbeat_at - 121000";
    assert_eq!(tables(&server, &address).execute(silence, &[]).unwrap(), 1);
    assert!(!fast.get(live.id()).unwrap().live);
    let taker = fast.resume(live.id(), false).unwrap();
    assert!(matches!(live.append(vec![say("stale")]), Err(Error::ClaimLost { .. })));
    assert_eq!(live.take_unsaved().len(), 1, "what was refused is given back");
    taker.append(vec![say("b")]).unwrap();
    assert_eq!(fast.get(live.id()).unwrap().items, 2);
    assert!(fast.verify(live.id()).unwrap().is_intact());
}

#[test]
fn of_several_machines_that_find_a_dead_holder_one_takes_its_place() {
    let Some(server) = server() else { return };
    let address = server.address();
    let dead = open(&address, "dead", 0);
    let live = dead.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    live.append(vec![say("a")]).unwrap();
    tables(&server, &address).execute("UPDATE claims SET heartbeat_at = heartbeat_at - 121000", &[]).unwrap();
    let takers: Vec<Store> = ["one", "two", "three", "four"].map(|name| open(&address, name, 0)).into();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = takers.iter().map(|store| scope.spawn(|| store.resume(live.id(), false))).collect();
        asked.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    let won = outcomes.iter().flatten().count();
    assert_eq!(won, 1, "{outcomes:?}");
    for refused in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(matches!(refused, Error::ClaimHeld { .. }), "{refused:?}");
    }
    assert_eq!(dead.get(live.id()).unwrap().epoch, 2);
}

#[test]
fn of_machines_that_take_a_thread_over_at_once_each_does() {
    let Some(server) = server() else { return };
    let address = server.address();
    let first = open(&address, "first", 0);
    let live = first.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    live.append(vec![say("a")]).unwrap();
    let takers: Vec<Store> = (0..12).map(|_| open(&address, "taker", 0)).collect();
    let handles: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            takers.iter().map(|store| scope.spawn(|| store.take_over(live.id(), "a race", false))).collect();
        asked.into_iter().map(|taker| taker.join().unwrap().unwrap()).collect()
    });
    assert_eq!(handles.len(), takers.len());
    let thread = first.get(live.id()).unwrap();
    assert_eq!((thread.epoch, thread.items), (13, 13));
    assert!(first.verify(live.id()).unwrap().is_intact());
}

#[test]
fn a_thread_that_is_deleted_while_others_claim_it_has_no_writer() {
    let Some(server) = server() else { return };
    let address = server.address();
    let (one, other) = (open(&address, "one", 0), open(&address, "other", 0));
    let workspace = one.workspace("/w".as_ref()).unwrap();
    for _ in 0..40 {
        let live = workspace.create_now(NewThread::default()).unwrap();
        live.append(vec![say("a")]).unwrap();
        let id = live.id().clone();
        live.shutdown().unwrap();
        let (deleted, claimed) = std::thread::scope(|scope| {
            let claiming = scope.spawn(|| other.resume(&id, false));
            (one.delete(&id), claiming.join().unwrap())
        });
        match (&deleted, &claimed) {
            (Ok(_), Err(Error::NotFound { .. })) | (Err(Error::ClaimHeld { .. }), Ok(_)) => {}
            both => panic!("both or neither: {both:?}"),
        }
    }
}

#[test]
fn a_writer_that_lost_a_claim_takes_none_of_its_other_threads_with_it() {
    let Some(server) = server() else { return };
    let address = server.address();
    let (one, other) = (open(&address, "one", 0), open(&address, "other", 0));
    let workspace = one.workspace("/w".as_ref()).unwrap();
    let lives: Vec<_> = (0..16).map(|_| workspace.create_now(NewThread::default()).unwrap()).collect();
    lives.iter().for_each(|live| drop(live.append(vec![say("a"), say("b")]).unwrap()));
    // What another machine changes beside the log does not stop the holder of the claim.
    other.update(lives[1].id(), ThreadPatch::title("renamed")).unwrap();
    let taker = other.take_over(lives[0].id(), "a test", false).unwrap();
    taker.append(vec![say("after")]).unwrap();
    std::thread::scope(|scope| {
        let write = |live: &LiveThread| (0..20).map(|_| live.append(vec![say("c")])).collect::<Vec<_>>();
        let writers: Vec<_> = lives.iter().map(|live| scope.spawn(move || write(live))).collect();
        for (number, writer) in writers.into_iter().enumerate() {
            for outcome in writer.join().unwrap() {
                let lost = matches!(outcome, Err(Error::ClaimLost { .. }));
                assert!(if number == 0 { lost } else { outcome.is_ok() }, "{number}: {outcome:?}");
            }
        }
    });
    let items = |live: &LiveThread| other.get(live.id()).unwrap().items;
    assert_eq!(items(&lives[0]), 4, "two, the note of the take-over, and one");
    assert!(lives[1..].iter().all(|live| items(live) == 22));
    assert!(lives.iter().all(|live| other.verify(live.id()).unwrap().is_intact()));
}
