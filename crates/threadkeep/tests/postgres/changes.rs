//! The feed of changes on a server, where transactions commit in another order than they began.

use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{ChangeEntry, ChangeQuery, Error, NewItem, NewJob, NewThread, Role, StoreOptions};

use crate::server::{Server, server};

/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(60);

fn open(address: &str) -> Store {
    Store::open(StoreOptions::postgres(address).unwrap()).unwrap()
}

fn thread(store: &Store) -> LiveThread {
    store.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// A connection that sees the tables of a store.
fn tables_of(server: &Server, address: &str) -> Client {
    let schema = address.rsplit_once("schema=").unwrap().1;
    let mut client = server.config().connect(NoTls).unwrap();
    client.batch_execute(&format!("SET search_path = \"{schema}\", pg_temp")).unwrap();
    client
}

/// Reads on until nothing is pending any more; gives what came, and the cursor.
fn settled(store: &Store, since: Option<String>) -> (Vec<ChangeEntry>, String) {
    let (mut query, mut all) = (ChangeQuery { since, ..ChangeQuery::default() }, Vec::new());
    let begun = Instant::now();
    loop {
        let page = store.changes(query).unwrap();
        all.extend(page.changes);
        if !page.more && !page.pending {
            return (all, page.cursor);
        }
        assert!(begun.elapsed() < HANG, "it never settles");
        query = ChangeQuery { since: Some(page.cursor), ..ChangeQuery::default() };
    }
}

/// What was committed while an older transaction runs is held back, since that one may still come before it; a follower that waits
/// tells both when it has ended, and nothing of what it told before comes again.
#[test]
fn nothing_appears_behind_a_cursor() {
    let Some(server) = server() else { return };
    let address = server.address();
    let store = open(&address);
    let live = thread(&store);
    let (_, cursor) = settled(&store, None);
    let since = ChangeQuery { since: Some(cursor.clone()), ..ChangeQuery::default() };
    let mut follower = store.follow_changes(since.clone()).unwrap();

    let mut other = tables_of(&server, &address);
    let mut earlier = other.transaction().unwrap();
    let note = "INSERT INTO changes (workspace, thread, area, verb, at) SELECT workspace, 'elsewhere', 'items', 'created', 7 FROM threads";
    assert_eq!(earlier.execute(note, &[]).unwrap(), 1);
    live.append(vec![say("later")]).unwrap();
    let page = store.changes(since.clone()).unwrap();
    assert_eq!((page.changes.as_slice(), page.pending, &page.cursor), (&[][..], true, &cursor));
    assert_eq!(follower.next_within(Duration::from_millis(100)).unwrap(), []);

    earlier.commit().unwrap();
    let mut told = Vec::new();
    while told.len() < 2 {
        told.extend(follower.next_within(HANG).unwrap());
    }
    let threads: Vec<_> = told.iter().map(|it| it.thread.as_ref().unwrap().as_str()).collect();
    assert_eq!(threads, ["elsewhere", live.id().as_str()]);
    assert_eq!(settled(&store, Some(cursor)).0, told);
    assert_eq!(settled(&store, follower.cursor().map(str::to_owned)).0, []);
}

/// Two transactions change a thread, or jobs of none, and the one that began first commits last: its change is told last.
#[test]
fn the_changes_of_a_thread_come_in_the_order_of_their_commits() {
    let Some(server) = server() else { return };
    let address = server.address();
    let store = open(&address);
    let live = thread(&store);
    let place = store.workspace("/w".as_ref()).unwrap();
    let (_, cursor) = settled(&store, None);

    let mut other = tables_of(&server, &address);
    let mut earlier = other.transaction().unwrap();
    // It has its number from here on.
    earlier.execute("INSERT INTO counters (name, value) VALUES ('earlier', 1)", &[]).unwrap();
    live.append(vec![say("first to commit")]).unwrap();
    let job = place.add_job(NewJob::new("first to commit")).unwrap();
    let late = "INSERT INTO changes (workspace, thread, area, verb, subject, at)
        SELECT workspace, CASE WHEN $1::text = 'thread' THEN id END, 'items', 'created', 'last', 7 FROM threads";
    earlier.execute(late, &[&"thread"]).unwrap();
    earlier.execute(late, &[&"none"]).unwrap();
    earlier.commit().unwrap();

    let (told, _) = settled(&store, Some(cursor));
    let of = |thread: Option<&str>| -> Vec<Option<String>> {
        let own = told.iter().filter(|it| it.thread.as_ref().map(threadkeep::ThreadId::as_str) == thread);
        own.map(|it| it.subject.clone()).collect()
    };
    assert_eq!(of(Some(live.id().as_str())), [None, Some("last".to_owned())]);
    assert_eq!(of(None), [Some(job.id.to_string()), Some("last".to_owned())]);
}

/// A dump that is read into another server brings places along that its transactions have not reached: the feed begins anew there,
/// and its old cursors are refused.
#[test]
fn the_feed_of_another_server_begins_anew() {
    let Some(server) = server() else { return };
    let address = server.address();
    let store = open(&address);
    let live = thread(&store);
    live.append(vec![say("x")]).unwrap();
    let (_, cursor) = settled(&store, None);
    let mut tables = tables_of(&server, &address);
    tables.execute("UPDATE changes SET place = place + 1000000000", &[]).unwrap();
    drop((live, store));

    let store = open(&address);
    let moved = ChangeQuery { since: Some(cursor), ..ChangeQuery::default() };
    assert!(matches!(store.changes(moved), Err(Error::Trimmed { .. })));
    assert_eq!(settled(&store, None).0, []);
    // What was just given is taken, though nothing is there yet and something was taken away.
    let empty = store.changes(ChangeQuery::default()).unwrap().cursor;
    let since = ChangeQuery { since: Some(empty.clone()), ..ChangeQuery::default() };
    assert_eq!(store.changes(since).unwrap().changes, []);
    let live = store.resume(&store.latest().unwrap().unwrap(), false).unwrap();
    live.append(vec![say("y")]).unwrap();
    let words: Vec<String> = settled(&store, None).0.into_iter().map(|it| it.area).collect();
    assert_eq!(words, ["claim", "items"]);
    assert_eq!(settled(&store, Some(empty)).0.len(), 2);
}
