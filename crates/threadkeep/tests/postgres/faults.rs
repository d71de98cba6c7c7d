//! What happens to the server or on the way to it: nothing that was acknowledged is lost, and nothing is stored twice.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postgres::NoTls;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{Error, ItemQuery, NewItem, NewThread, Role, StoreOptions, ThreadId, View};

use crate::server::{Server, server, start_own};

const WRITERS: usize = 4;

fn open(address: &str) -> Store {
    Store::open(StoreOptions::postgres(address).unwrap()).unwrap()
}

fn thread(store: &Store) -> LiveThread {
    store.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn texts(store: &Store, thread: &ThreadId) -> Vec<String> {
    let mut query = ItemQuery::default();
    let mut found = Vec::new();
    loop {
        let page = store.items(thread, query.clone()).unwrap();
        found.extend(page.entries.iter().map(|item| serde_json::from_slice::<View>(&item.content).unwrap().to_text()));
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

/// Lets writers append while something happens to their server, and holds what is stored against what was acknowledged.
fn stays_whole(address: &str, happens: impl FnOnce(&AtomicUsize)) {
    let store = open(address);
    let threads: Vec<LiveThread> = (0..WRITERS).map(|_| thread(&store)).collect();
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged: Vec<Vec<String>> = std::thread::scope(|scope| {
        let writers: Vec<_> = threads
            .iter()
            .map(|live| {
                scope.spawn(|| {
                    let mut acknowledged = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        let text = acknowledged.len().to_string();
                        live.append(vec![say(&text)]).unwrap();
                        written.fetch_add(1, Ordering::SeqCst);
                        acknowledged.push(text);
                    }
                    acknowledged
                })
            })
            .collect();
        happens(&written);
        stop.store(true, Ordering::SeqCst);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (live, acknowledged) in threads.iter().zip(acknowledged) {
        assert_eq!(texts(&store, live.id()), acknowledged);
        assert!(store.verify(live.id()).unwrap().is_intact());
    }
}

/// Waits until so many more appends were acknowledged.
fn wait_for(written: &AtomicUsize, more: usize) {
    let goal = written.load(Ordering::SeqCst) + more;
    let bound = Instant::now() + Duration::from_secs(60);
    while written.load(Ordering::SeqCst) < goal {
        assert!(Instant::now() < bound, "nobody writes any more");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn writers_outlive_their_connections() {
    let Some(server) = server() else { return };
    let address = server.address();
    let mut admin = server.config().connect(NoTls).unwrap();
    let mut killed = 0;
    stays_whole(&format!("{address}&application_name=victim"), |written| {
        for _ in 0..20 {
            wait_for(written, 5);
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'";
            killed += admin.query(kill, &[]).unwrap().len();
        }
        wait_for(written, 5);
    });
    assert!(killed >= 20, "{killed} connections were ended");
}

#[test]
fn writers_outlive_their_server() {
    let Some(server) = start_own() else { return };
    stays_whole(&server.address(), |written| {
        for _ in 0..3 {
            wait_for(written, 20);
            // At once, without a checkpoint: what was committed comes back from the log alone.
            server.order("stop");
            server.order("start");
        }
        wait_for(written, 20);
    });
}

/// What becomes of the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// It is done, and the answer is lost.
    LosesAnswer,
    /// It never arrives.
    LosesCommit,
}

/// Stands between a store and its server, and knows a commit when it sees one.
pub(crate) struct Proxy {
    folder: tempfile::TempDir,
    fault: Arc<std::sync::Mutex<Fault>>,
    lost: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn start(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let behind = server.folder().join(".s.PGSQL.5432");
        let (fault, lost) = (Arc::new(std::sync::Mutex::new(Fault::Nothing)), Arc::new(AtomicUsize::new(0)));
        let (of_all, count) = (Arc::clone(&fault), Arc::clone(&lost));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&behind)) else { return };
                let (fault, lost) = (Arc::clone(&of_all), Arc::clone(&count));
                std::thread::spawn(move || pass(client, server, &fault, &lost));
            }
        });
        Self { folder, fault, lost }
    }

    pub(crate) fn address(&self, of: &str) -> String {
        let schema = of.rsplit_once("schema=").unwrap().1;
        format!("postgres://threadkeep@/postgres?host={}&schema={schema}", self.folder.path().display())
    }

    pub(crate) fn arm(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

/// Passes bytes on in both directions, until a commit meets the fault.
fn pass(mut client: UnixStream, mut server: UnixStream, fault: &std::sync::Mutex<Fault>, lost: &AtomicUsize) {
    let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let silent = Arc::new(AtomicBool::new(false));
    let muted = Arc::clone(&silent);
    let answers: JoinHandle<()> = std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = back.read(&mut buffer) {
            if muted.load(Ordering::SeqCst) {
                break;
            }
            if to_client.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        drop(to_client.shutdown(std::net::Shutdown::Both));
    });
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..read];
        let is_commit = bytes.windows(7).any(|window| window == b"COMMIT\0");
        let met =
            if is_commit { std::mem::replace(&mut *fault.lock().unwrap(), Fault::Nothing) } else { Fault::Nothing };
        if met == Fault::LosesAnswer {
            silent.store(true, Ordering::SeqCst);
        }
        if met == Fault::LosesCommit || server.write_all(bytes).is_err() {
            lost.fetch_add(usize::from(met != Fault::Nothing), Ordering::SeqCst);
            break;
        }
        if met == Fault::LosesAnswer {
            // The answer has come, and nobody gets it.
            answers.join().unwrap();
            lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
    }
    drop(server.shutdown(std::net::Shutdown::Both));
    drop(client.shutdown(std::net::Shutdown::Both));
}

#[test]
fn a_commit_that_was_not_answered_is_stored_once() {
    let Some(server) = server() else { return };
    let address = server.address();
    let straight = open(&address);
    let proxy = Proxy::start(&server);
    let store = open(&proxy.address(&address));
    let live = thread(&store);
    for number in 0..40 {
        proxy.arm([Fault::LosesAnswer, Fault::LosesCommit][number % 2]);
        live.append(vec![say(&number.to_string())]).unwrap();
    }
    let expected: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    assert_eq!(texts(&straight, live.id()), expected);
    assert!(straight.verify(live.id()).unwrap().is_intact());
    assert_eq!(proxy.lost.load(Ordering::SeqCst), 40);
}

/// Creating, claiming, handing back and changing a thread find out by themselves what became of them.
#[test]
fn every_step_of_a_threads_life_survives_a_lost_answer() {
    let Some(server) = server() else { return };
    let address = server.address();
    let proxy = Proxy::start(&server);
    let store = open(&proxy.address(&address));
    for fault in [Fault::LosesAnswer, Fault::LosesCommit] {
        proxy.arm(fault);
        let live = thread(&store);
        let first = live.append(vec![say("a")]).unwrap().items[0].address();
        proxy.arm(fault);
        live.begin_turn(say("b")).unwrap();
        proxy.arm(fault);
        live.rewind(first).unwrap();
        proxy.arm(fault);
        live.shutdown().unwrap();
        proxy.arm(fault);
        let again = store.resume(live.id(), false).unwrap();
        again.append(vec![say("c")]).unwrap();
        assert_eq!(texts(&store, live.id()), ["a", "c"]);
        proxy.arm(fault);
        let taker = store.take_over(live.id(), "for the test", false).unwrap();
        assert_eq!(store.get(live.id()).unwrap().items, 4, "a, b, c and one note");
        taker.shutdown().unwrap();
        proxy.arm(fault);
        store.archive(live.id()).unwrap();
        proxy.arm(fault);
        store.delete(live.id()).unwrap();
        assert!(store.verify(live.id()).unwrap().is_intact());
    }
    assert_eq!(proxy.lost.load(Ordering::SeqCst), 16);
}

/// What can't find out says so, and its text names no secret.
#[test]
fn an_outcome_that_can_not_be_found_out_is_a_typed_error() {
    let Some(server) = server() else { return };
    let address = server.address();
    let proxy = Proxy::start(&server);
    let store = open(&proxy.address(&address).replace("threadkeep@", "threadkeep:hidden@"));
    let live = thread(&store);
    live.append(vec![say("a")]).unwrap();
    proxy.arm(Fault::LosesAnswer);
    match live.clear() {
        Err(Error::Io { operation: "commit to", path, detail, .. }) => {
            assert!(path.starts_with("postgres://threadkeep@/") && !path.contains("hidden"), "{path}");
            assert!(detail.contains("not known"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    // It was stored, and the handle goes on.
    assert_eq!(live.head().unwrap(), None);
    live.append(vec![say("b")]).unwrap();
    assert_eq!(texts(&store, live.id()), ["b"]);
}

#[test]
fn a_server_that_is_not_there_is_told_at_once_and_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("postgres://ann:hidden@/db?host={}", folder.path().display());
    let began = Instant::now();
    let refused = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Io { operation: "connect to", .. }), "{refused:?}");
    assert!(!format!("{refused:?} {refused}").contains("hidden"), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// `Synced` means the same on whichever server a connection leads to, and whatever becomes of that server's settings.
#[test]
fn a_setting_that_weakens_under_an_open_store_weakens_no_commit() {
    let Some(server) = start_own() else { return };
    let mut admin = server.config().connect(NoTls).unwrap();
    // A commit that waits for a standby, where there is none, can be seen to wait.
    let set = |admin: &mut postgres::Client, settings: &[&str]| {
        settings.iter().for_each(|setting| admin.batch_execute(&format!("ALTER SYSTEM SET {setting}")).unwrap());
        admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    };
    set(&mut admin, &["synchronous_commit = on"]);
    let address = format!("{}&application_name=weakened", server.address());
    let store = open(&address);
    let live = thread(&store);
    for lose_connection in [false, true] {
        set(&mut admin, &["synchronous_commit = off", "synchronous_standby_names = 'nobody'"]);
        wait_until(&mut admin, "SELECT current_setting('synchronous_standby_names') = 'nobody'");
        if lose_connection {
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weakened'";
            admin.batch_execute(kill).unwrap();
        }
        std::thread::scope(|scope| {
            let appending = scope.spawn(|| live.append(vec![say("a")]));
            let waits = "SELECT count(*) > 0 FROM pg_stat_activity
                WHERE application_name = 'weakened' AND wait_event = 'SyncRep'";
            wait_until(&mut admin, waits);
            assert!(!appending.is_finished());
            set(&mut admin, &["synchronous_standby_names = ''"]);
            appending.join().unwrap().unwrap();
        });
    }
    assert_eq!(texts(&store, live.id()), ["a", "a"]);
}

/// Waits until the answer is yes.
fn wait_until(admin: &mut postgres::Client, question: &str) {
    let bound = Instant::now() + Duration::from_secs(20);
    while !admin.query_one(question, &[]).unwrap().get::<_, bool>(0) {
        assert!(Instant::now() < bound, "{question}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// While one server takes another one's place there is none for a moment.
#[test]
fn a_store_on_several_servers_is_opened_as_soon_as_one_of_them_takes_writes() {
    let Some(server) = start_own() else { return };
    let (missing, schema) = (tempfile::tempdir().unwrap(), "several");
    let hosts = format!("{},{}", server.folder().display(), missing.path().display());
    let address =
        format!("postgres://threadkeep@/postgres?host={hosts}&target_session_attrs=read-write&schema={schema}");
    drop(open(&address));
    let mut admin = server.config().connect(NoTls).unwrap();
    admin.batch_execute("ALTER DATABASE postgres SET default_transaction_read_only = on").unwrap();
    let opens_after = |happens: &mut dyn FnMut()| {
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| open(&address));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!opening.is_finished(), "it waits");
            happens();
            thread(&opening.join().unwrap()).append(vec![say("a")]).unwrap();
        });
    };
    opens_after(&mut || admin.batch_execute("ALTER DATABASE postgres RESET default_transaction_read_only").unwrap());
    server.order("stop");
    opens_after(&mut || server.order("start"));
}

/// A server whose data went back: whoever was writing knows what it was told is stored, and does not go on without it.
#[test]
fn a_writer_does_not_go_on_over_an_older_copy_of_the_servers_data() {
    let Some(server) = server() else { return };
    let address = server.address();
    let store = open(&address);
    let live = thread(&store);
    live.append(vec![say("one")]).unwrap();
    let mut admin = server.config().connect(NoTls).unwrap();
    let schema = address.rsplit_once("schema=").unwrap().1;
    admin.batch_execute(&format!("SET search_path = {schema}; SET session_replication_role = replica")).unwrap();
    let tables: Vec<String> = admin
        .query("SELECT table_name::text FROM information_schema.tables WHERE table_schema = $1 AND table_type = 'BASE TABLE'", &[&schema])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    for table in &tables {
        admin.batch_execute(&format!("CREATE TEMP TABLE old_{table} AS SELECT * FROM {table}")).unwrap();
    }
    live.append(vec![say("two")]).unwrap();
    let back: String = tables
        .iter()
        .map(|table| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM old_{table};"))
        .collect();
    admin.batch_execute(&format!("BEGIN; {back} COMMIT")).unwrap();
    for _ in 0..2 {
        match live.append(vec![say("three")]) {
            Err(Error::Corrupt { detail, .. }) => assert!(detail.contains("older copy"), "{detail}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(texts(&store, live.id()), ["one"]);
    live.discard().unwrap();
    let again = store.resume(live.id(), false).unwrap();
    again.append(vec![say("another two")]).unwrap();
    assert!(store.verify(live.id()).unwrap().is_intact());
}
