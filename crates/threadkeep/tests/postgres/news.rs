//! Following a thread that another store writes: over lost connections and restarts, with few notifications and one connection.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator as _;
use postgres::{Client, NoTls};
use threadkeep::blocking::{Follower, LiveThread, Store, Threads};
use threadkeep::{
    AppendOptions, Changed, Durability, FollowEnd, NewItem, NewThread, News, Role, StoreOptions, ThreadId, View,
};

use crate::server::{server, start_own};

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

/// What comes next, which must be items.
fn hear(follower: &mut Follower) -> Vec<String> {
    match follower.next_within(HANG).unwrap() {
        Some(News::Items(items)) => {
            items.iter().map(|item| serde_json::from_slice::<View>(&item.content).unwrap().to_text()).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Follows until so many items came.
fn follow(threads: &Threads, id: &ThreadId, count: usize) -> Vec<String> {
    let mut follower = threads.follow(id, None).unwrap();
    let mut heard = Vec::new();
    while heard.len() < count {
        heard.extend(hear(&mut follower));
    }
    assert_eq!(follower.next_within(Duration::ZERO).unwrap(), None, "more than was written");
    heard
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// The connections that listen, among those with this name.
fn listening(admin: &mut Client, name: &str) -> usize {
    let query = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'LISTEN %'";
    admin.query(query, &[&name]).unwrap().len()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let bound = Instant::now() + HANG;
    while !holds() {
        assert!(Instant::now() < bound, "not within {HANG:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn another_store_hears_of_each_item_soon() {
    let Some(server) = server() else { return };
    let address = server.address();
    let (writer, reader) = (open(&address), open(&format!("{address}&application_name=reader")));
    let live = thread(&writer);
    let mut follower = reader.follow(live.id(), None).unwrap();
    let mut admin = server.config().connect(NoTls).unwrap();
    wait_until("it listens", || listening(&mut admin, "reader") == 1);
    let mut waits = Vec::new();
    for number in 0..100_u64 {
        let waiting = std::thread::spawn(move || {
            let heard = hear(&mut follower);
            (follower, heard, Instant::now())
        });
        live.append(vec![say(&number.to_string())]).unwrap();
        let acknowledged = Instant::now();
        let (back, heard, at) = waiting.join().unwrap();
        follower = back;
        assert_eq!(heard, [number.to_string()]);
        waits.push(at.saturating_duration_since(acknowledged));
        // Not so soon that it is told together with the next.
        std::thread::sleep(Duration::from_millis(number % 3 * 30));
    }
    waits.sort_unstable();
    println!("from the acknowledgement to the other store's item: p50 {:?}, p99 {:?}", waits[50], waits[98]);
    let soon = waits.iter().filter(|wait| **wait < Duration::from_secs(2)).count();
    assert!(soon > 50, "it is the periodic look that finds them: {waits:?}");
}

#[test]
fn nothing_is_missed_and_nothing_comes_twice_when_the_listener_is_ended() {
    let Some(server) = server() else { return };
    let address = server.address();
    let (writer, reader) = (open(&address), open(&format!("{address}&application_name=ended")));
    let live = thread(&writer);
    let id = live.id().clone();
    let written = AtomicBool::new(false);
    let mut killed = 0;
    let heard = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&reader, &id, 500));
        scope.spawn(|| {
            for text in numbers(500) {
                live.append(vec![say(&text)]).unwrap();
            }
            written.store(true, Ordering::SeqCst);
        });
        let mut admin = server.config().connect(NoTls).unwrap();
        // The listener now and then, and at times all that the follower has.
        for round in 0.. {
            if written.load(Ordering::SeqCst) {
                break;
            }
            let only = if round % 4 == 3 { "" } else { "AND query LIKE 'LISTEN %'" };
            let kill = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended' {only}"
            );
            killed += admin.query(&kill, &[]).unwrap().len();
            std::thread::sleep(Duration::from_millis(20));
        }
        follower.join().unwrap()
    });
    assert_eq!(heard, numbers(500));
    assert!(killed > 0, "no connection was ended");
}

#[test]
fn followers_outlive_their_server() {
    let Some(server) = start_own() else { return };
    let address = server.address();
    let (writer, reader) = (open(&address), open(&address));
    let live = thread(&writer);
    let heard = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&reader, live.id(), 90));
        for text in numbers(90) {
            if ["20", "50", "80"].contains(&text.as_str()) {
                server.order("stop");
                server.order("start");
            }
            live.append(vec![say(&text)]).unwrap();
        }
        follower.join().unwrap()
    });
    assert_eq!(heard, numbers(90));
}

#[test]
fn all_followers_of_a_store_use_one_connection_and_give_it_back() {
    let Some(server) = server() else { return };
    let address = server.address();
    let writer = open(&address);
    let threads: Vec<LiveThread> = (0..4).map(|_| thread(&writer)).collect();
    let reader = open(&format!("{address}&application_name=eight"));
    let mut admin = server.config().connect(NoTls).unwrap();
    for _ in 0..3 {
        assert_eq!(listening(&mut admin, "eight"), 0);
        let mut followers: Vec<Follower> =
            (0..8).map(|number| reader.follow(threads[number % 4].id(), None).unwrap()).collect();
        for live in &threads {
            live.append(vec![say("x")]).unwrap();
        }
        for follower in &mut followers {
            hear(follower);
        }
        wait_until("one connection listens", || listening(&mut admin, "eight") == 1);
        followers.truncate(1);
        assert_eq!(listening(&mut admin, "eight"), 1);
        drop(followers);
        wait_until("it is given back", || listening(&mut admin, "eight") == 0);
    }
}

/// The notifications that come within a moment, by what they say.
fn told(client: &mut Client, moment: Duration) -> BTreeMap<String, usize> {
    let mut said = BTreeMap::new();
    let mut notifications = client.notifications();
    let mut heard = notifications.timeout_iter(moment);
    while let Some(notification) = heard.next().unwrap() {
        *said.entry(notification.payload().to_owned()).or_default() += 1;
    }
    said
}

fn hear_one(client: &mut Client) {
    let mut notifications = client.notifications();
    assert!(notifications.timeout_iter(HANG).next().unwrap().is_some(), "nothing is told");
}

#[test]
fn many_appends_are_told_by_few_notifications_outside_of_their_commits() {
    let Some(server) = server() else { return };
    let address = server.address();
    let schema = address.rsplit_once("schema=").unwrap().1;
    let channel = format!("threadkeep_{}", &blake3::hash(schema.as_bytes()).to_hex()[..32]);
    let writer = open(&address);
    let live = thread(&writer);
    let mut listener = server.config().connect(NoTls).unwrap();
    listener.batch_execute(&format!("LISTEN {channel}")).unwrap();
    let began = Instant::now();
    for text in numbers(1_000) {
        live.append(vec![say(&text)]).unwrap();
    }
    let took = began.elapsed();
    let said = told(&mut listener, Duration::from_secs(1));
    let count: usize = said.values().sum();
    println!("1,000 appends in {took:?}: {count} notifications");
    let most = usize::try_from(took.as_millis()).unwrap() / 50 + 4;
    assert!((1..=most).contains(&count), "{count} notifications in {took:?}: {said:?}");
    assert!(said.keys().all(|payload| payload == live.id().as_str()), "{said:?}");

    // One after the last: what is written now is told, though much was told before.
    live.append(vec![say("last")]).unwrap();
    hear_one(&mut listener);
    told(&mut listener, Duration::from_millis(200));
    // As it closes, too; giving up a claim is something that others want to know.
    drop(live);
    drop(writer);
    hear_one(&mut listener);
}

/// Whoever notifies holds a lock of the whole server's until its commit is done. Here one waits for a standby that never
/// comes: a commit that notified would wait with it, and so would one whose answer waits for the telling.
#[test]
fn no_append_waits_for_a_notification() {
    let Some(server) = start_own() else { return };
    let writer = open(&server.address());
    let live = thread(&writer);
    // The first makes the writer known, which is synced.
    live.append(vec![say("first")]).unwrap();
    let mut admin = server.config().connect(NoTls).unwrap();
    admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    let mut stuck = server.config().application_name("stuck").connect(NoTls).unwrap();
    wait_until("the setting is read", || {
        stuck.query_one("SHOW synchronous_standby_names", &[]).unwrap().get::<_, String>(0) == "nobody"
    });
    let stuck = std::thread::spawn(move || {
        stuck.batch_execute("SET synchronous_commit = on; CREATE TABLE public.written (x INTEGER); NOTIFY elsewhere")
    });
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'stuck' AND wait_event = 'SyncRep'";
    wait_until("it waits for the standby", || !admin.query(waiting, &[]).unwrap().is_empty());
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    for text in numbers(50) {
        live.append_with(vec![say(&text)], written).unwrap();
    }
    let blocked = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_notify%' AND wait_event_type = 'Lock'";
    wait_until("the telling waits", || !admin.query(blocked, &[]).unwrap().is_empty());
    live.append_with(vec![say("and more")], written).unwrap();
    admin.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    stuck.join().unwrap().unwrap();
}

#[test]
fn a_watch_hears_which_threads_others_write() {
    let Some(server) = server() else { return };
    let address = server.address();
    let (writer, reader) = (open(&address), open(&format!("{address}&application_name=watch")));
    let live = thread(&writer);
    let mut watch = reader.watch().unwrap();
    let mut admin = server.config().connect(NoTls).unwrap();
    wait_until("it listens", || listening(&mut admin, "watch") == 1);
    let bound = Instant::now() + HANG;
    loop {
        live.append(vec![say("x")]).unwrap();
        match watch.next_within(HANG).unwrap() {
            Changed::Threads(threads) => {
                assert_eq!(threads, [live.id().clone()]);
                break;
            }
            // The periodic look, or that it began.
            _ => assert!(Instant::now() < bound, "no thread is named"),
        }
    }
}

/// Where nothing is told, as behind a pooler that gives each transaction another session.
#[test]
fn a_follower_looks_by_itself_where_nothing_is_told() {
    let Some(server) = server() else { return };
    let address = server.address();
    let schema = address.rsplit_once("schema=").unwrap().1;
    let (writer, reader) = (open(&address), open(&format!("{address}&application_name=deaf")));
    let live = thread(&writer);
    live.shutdown().unwrap();
    let mut follower = reader.follow(live.id(), None).unwrap();
    let mut admin = server.config().connect(NoTls).unwrap();
    wait_until("it listens", || listening(&mut admin, "deaf") == 1);
    let trash = format!("UPDATE {schema}.threads SET shelf = 2, trashed_at = 0 WHERE id = $1");
    assert_eq!(admin.execute(&trash, &[&live.id().as_str()]).unwrap(), 1);
    assert_eq!(follower.next_within(HANG).unwrap(), Some(News::Ended(FollowEnd::Trashed)));
}

/// A standby lets nobody listen; what it becomes later, does.
#[test]
fn a_store_on_a_standby_is_followed() {
    let Some(server) = start_own() else { return };
    let address = server.address();
    let id = {
        let writer = open(&address);
        let live = thread(&writer);
        live.append(vec![say("before")]).unwrap();
        live.shutdown().unwrap();
        live.id().clone()
    };
    std::fs::write(server.folder().join("data/standby.signal"), "").unwrap();
    server.order("stop");
    server.order("start");
    wait_until("it is a standby", || {
        let said =
            server.config().connect(NoTls).and_then(|mut admin| admin.query_one("SELECT pg_is_in_recovery()", &[]));
        said.is_ok_and(|row| row.get(0))
    });
    let reader = Store::open(StoreOptions::postgres(&address).unwrap().read_only()).unwrap();
    let mut follower = reader.follow(&id, None).unwrap();
    assert_eq!(hear(&mut follower), ["before"]);
    assert_eq!(follower.next_within(Duration::from_millis(300)).unwrap(), None);
    let mut admin = server.config().connect(NoTls).unwrap();
    assert!(admin.query_one("SELECT pg_promote()", &[]).unwrap().get::<_, bool>(0));
    let writer = open(&address);
    // That the claim was given up was not synced when the server was stopped.
    writer.take_over(&id, "for the test", false).unwrap().append(vec![say("after")]).unwrap();
    while !hear(&mut follower).contains(&"after".to_owned()) {}
}
