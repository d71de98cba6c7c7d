//! What a user of Codex's `ThreadStore` relies on, by the names of the tests of its local store, on this store: its operations
//! through the same object-safe contract, and its known failures.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use pollster::block_on;
use threadkeep::search::SearchQuery;
use threadkeep::{
    AppendOptions, Change, Details, Durability, Error, Item, ItemQuery, Kind, ListQuery, NewItem, NewThread, Role,
    Shelves, SortKey, Store, StoreOptions, Thread, ThreadId, ThreadPatch, ThreadStore, Timestamp, WorkspaceId,
    blocking,
};

/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(60);

/// A home of threads, and a store on it. Another one on the same folder is another program.
struct Home {
    folder: tempfile::TempDir,
    store: Store,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        Self { folder, store }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The contract, as an agent that knows nothing else of the store uses it.
    fn contract(&self) -> &dyn ThreadStore {
        &self.store
    }

    fn workspace(&self) -> WorkspaceId {
        block_on(self.store.workspace("/w".as_ref())).unwrap().info().id
    }

    fn create(&self, name: &str) -> ThreadId {
        self.create_with(named(name))
    }

    fn create_with(&self, thread: NewThread) -> ThreadId {
        block_on(self.contract().create_thread(self.workspace(), thread)).unwrap()
    }

    /// A stored thread that nobody holds.
    fn stored(&self, name: &str, texts: &[&str]) -> ThreadId {
        let id = self.create(name);
        append(self.contract(), &id, texts).unwrap();
        block_on(self.contract().shutdown_thread(&id)).unwrap();
        id
    }
}

fn open(folder: &Path) -> Store {
    block_on(Store::open(StoreOptions::folder(folder))).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn say(text: &str) -> NewItem {
    NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, "text", text.into()) }
}

fn append(store: &dyn ThreadStore, thread: &ThreadId, texts: &[&str]) -> Result<(), Error> {
    append_at(store, thread, texts, Durability::Synced)
}

fn append_at(store: &dyn ThreadStore, thread: &ThreadId, texts: &[&str], durability: Durability) -> Result<(), Error> {
    let items = texts.iter().map(|text| say(text)).collect();
    block_on(store.append_items(thread, items, AppendOptions { durability, ..AppendOptions::default() })).map(drop)
}

fn texts_of(items: Vec<Item>) -> Vec<String> {
    items.into_iter().map(|item| String::from_utf8(item.content).unwrap()).collect()
}

fn history(store: &dyn ThreadStore, thread: &ThreadId, include_archived: bool) -> Result<Vec<String>, Error> {
    let page = block_on(store.load_history(thread, include_archived, ItemQuery::default()))?;
    Ok(texts_of(page.entries))
}

fn read(store: &dyn ThreadStore, thread: &ThreadId) -> Result<Thread, Error> {
    block_on(store.read_thread(thread, false))
}

fn list(store: &dyn ThreadStore, query: ListQuery) -> Vec<String> {
    block_on(store.list_threads(query)).unwrap().entries.into_iter().map(|thread| thread.id.to_string()).collect()
}

fn is_missing<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::NotFound { .. }))
}

/// Mirrors the store's rollouts; gives the file of a thread.
fn rollout(home: &Home, thread: &ThreadId) -> PathBuf {
    let blocking = blocking::Store::from_async(home.store.clone());
    assert_eq!(blocking.mirror_rollouts(None, None, |_| {}).unwrap().problems, []);
    block_on(home.store.rollout_path(thread)).unwrap()
}

/// Starts a call and stops waiting for it while another process keeps it from being answered.
fn abandon<F: Future>(call: F) {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        assert!(call.as_mut().poll(&mut context).is_pending(), "the call was answered before it was abandoned");
        std::thread::yield_now();
    }
}

/// Keeps everybody from writing, as another process does that writes.
fn hold_gate(home: &Home) -> std::fs::File {
    let file = std::fs::File::options().read(true).write(true).open(home.path().join("write.gate")).unwrap();
    file.lock().unwrap();
    file
}

// The life of a live writer.

#[test]
fn live_writer_lifecycle_writes_and_closes() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    assert!(is_missing(&read(store, &thread)), "creating stores nothing");
    assert_eq!(list(store, ListQuery::default()), Vec::<String>::new());
    append(store, &thread, &["first live write"]).unwrap();
    block_on(store.persist_thread(&thread)).unwrap();
    block_on(store.persist_thread(&thread)).unwrap();
    block_on(store.flush_thread(&thread)).unwrap();
    assert_eq!(history(store, &thread, false).unwrap(), ["first live write"]);
    assert!(read(store, &thread).unwrap().live);
    block_on(store.shutdown_thread(&thread)).unwrap();
    assert!(!read(store, &thread).unwrap().live);
    for late in [
        append(store, &thread, &["late"]),
        block_on(store.persist_thread(&thread)),
        block_on(store.flush_thread(&thread)),
        block_on(store.shutdown_thread(&thread)),
    ] {
        assert!(matches!(late, Err(Error::NotFound { what: "live writer of thread", .. })), "{late:?}");
    }
    assert_eq!(history(store, &thread, false).unwrap(), ["first live write"]);
}

#[test]
fn append_without_persist_is_stored_by_a_flush() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    block_on(store.flush_thread(&thread)).unwrap();
    assert!(is_missing(&read(store, &thread)), "a flush of nothing stores a thread");
    append_at(store, &thread, &["queued"], Durability::Queued).unwrap();
    block_on(store.flush_thread(&thread)).unwrap();
    assert_eq!(history(&open(home.path()), &thread, false).unwrap(), ["queued"]);
}

#[test]
fn live_thread_shutdown_does_not_materialize_empty_thread_metadata() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    block_on(store.shutdown_thread(&thread)).unwrap();
    assert!(is_missing(&read(store, &thread)));
    assert_eq!(block_on(home.store.stats()).unwrap().active, 0);
}

#[test]
fn live_thread_shutdown_with_buffered_items_materializes_before_metadata_read() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append_at(store, &thread, &["buffered"], Durability::Queued).unwrap();
    block_on(store.shutdown_thread(&thread)).unwrap();
    assert_eq!(read(store, &thread).unwrap().items, 1);
    assert_eq!(history(store, &thread, false).unwrap(), ["buffered"]);
}

#[test]
fn discard_thread_stops_cloned_recorder_and_drops_unmaterialized_live_writer() {
    let home = Home::new();
    let place = block_on(home.store.workspace("/w".as_ref())).unwrap();
    let live = place.create(named("t")).unwrap();
    let stale = live.clone();
    block_on(live.discard()).unwrap();
    block_on(live.discard()).expect("discarding is idempotent");
    let late = block_on(stale.append(vec![say("through a stale clone")]));
    assert!(matches!(late, Err(Error::Closed { .. })), "{late:?}");
    assert!(is_missing(&read(home.contract(), &id("t"))));

    let (store, thread) = (home.contract(), home.create("t"));
    block_on(store.discard_thread(&thread)).unwrap();
    block_on(store.discard_thread(&thread)).expect("discarding is idempotent");
    assert!(is_missing(&append(store, &thread, &["after it"])));
    assert!(is_missing(&read(store, &thread)));
    home.create("t");
}

#[test]
fn discard_thread_preserves_durable_prefix_for_resume() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append(store, &thread, &["before"]).unwrap();
    block_on(store.flush_thread(&thread)).unwrap();
    block_on(store.discard_thread(&thread)).unwrap();
    let other = open(home.path());
    block_on(other.resume_thread(&thread, false)).unwrap();
    append(&other, &thread, &["after"]).unwrap();
    block_on(other.shutdown_thread(&thread)).unwrap();
    assert_eq!(history(store, &thread, false).unwrap(), ["before", "after"]);
}

/// What can't be stored is dropped by a discard, and only that: the disk is free again and nothing of it comes.
#[test]
fn discard_thread_drops_what_is_queued() {
    let home = Home::new();
    let store = block_on(Store::open(StoreOptions::folder(home.path()).busy_bound(Duration::from_millis(20)))).unwrap();
    let place = block_on(store.workspace("/w".as_ref())).unwrap();
    let live = block_on(place.create_now(named("t"))).unwrap();
    block_on(live.append(vec![say("stored")])).unwrap();
    let gate = hold_gate(&home);
    let kept = block_on(live.append(vec![say("kept for later")]));
    assert!(matches!(kept, Err(Error::Busy { .. })), "{kept:?}");
    // Nobody can be told that the claim is given up: that is no reason to keep what was to be dropped.
    drop(block_on(live.discard()));
    drop(gate);
    block_on(store.list(ListQuery::default())).unwrap();
    let again = open(home.path());
    assert_eq!(history(&again, &id("t"), false).unwrap(), ["stored"]);
}

#[test]
fn detached_discard_cleanup_removes_closed_writer_after_caller_cancels() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append(store, &thread, &["stored"]).unwrap();
    let gate = hold_gate(&home);
    abandon(store.discard_thread(&thread));
    drop(gate);
    assert!(is_missing(&append(store, &thread, &["late"])), "the writer is still registered");
    let other = open(home.path());
    let begun = Instant::now();
    while let Err(error) = block_on(other.resume_thread(&thread, false)) {
        assert!(matches!(error, Error::ClaimHeld { .. }) && begun.elapsed() < HANG, "{error:?}");
        std::thread::yield_now();
    }
    assert_eq!(history(&other, &thread, false).unwrap(), ["stored"]);
}

/// A shutdown whose caller is gone comes to its end.
#[test]
fn shutdown_thread_survives_a_cancelled_caller() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append(store, &thread, &["stored"]).unwrap();
    append_at(store, &thread, &["queued"], Durability::Queued).unwrap();
    let gate = hold_gate(&home);
    abandon(store.shutdown_thread(&thread));
    drop(gate);
    // Asked again it ends, or it has ended: either way nothing is lost and nobody holds it.
    let again = block_on(store.shutdown_thread(&thread));
    assert!(matches!(again, Ok(()) | Err(Error::NotFound { .. } | Error::Closed { .. })), "{again:?}");
    assert_eq!(history(store, &thread, false).unwrap(), ["stored", "queued"]);
    block_on(open(home.path()).resume_thread(&thread, false)).unwrap();
}

#[test]
fn a_shutdown_that_fails_stays_registered_and_can_be_tried_again() {
    let home = Home::new();
    let options = StoreOptions::folder(home.path()).busy_bound(Duration::from_millis(20));
    let store = block_on(Store::open(options)).unwrap();
    let workspace = block_on(store.workspace("/w".as_ref())).unwrap().info().id;
    let thread = block_on(store.create_thread(workspace, named("t"))).unwrap();
    append(&store, &thread, &["stored"]).unwrap();
    let gate = hold_gate(&home);
    drop(append(&store, &thread, &["kept"]));
    let failed = block_on(store.shutdown_thread(&thread));
    assert!(matches!(failed, Err(Error::Busy { .. })), "{failed:?}");
    drop(gate);
    append(&store, &thread, &["still open"]).unwrap();
    block_on(store.shutdown_thread(&thread)).unwrap();
    assert_eq!(history(&store, &thread, false).unwrap(), ["stored", "kept", "still open"]);
}

// Resuming, and who may.

#[test]
fn resume_thread_reopens_live_writer_and_appends() {
    let home = Home::new();
    let thread = home.stored("t", &["before"]);
    let second = open(home.path());
    block_on(second.resume_thread(&thread, false)).unwrap();
    append(&second, &thread, &["after"]).unwrap();
    block_on(second.shutdown_thread(&thread)).unwrap();
    assert_eq!(history(home.contract(), &thread, false).unwrap(), ["before", "after"]);
    assert!(block_on(second.verify(&thread)).unwrap().is_intact());
}

#[test]
fn create_thread_rejects_duplicate_live_writer() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    let again = block_on(store.create_thread(home.workspace(), named("t")));
    assert!(matches!(again, Err(Error::AlreadyExists { what: "live writer of thread", .. })), "{again:?}");
    append(store, &thread, &["one"]).unwrap();
    // Another program learns of it at its first append at the latest.
    let other = open(home.path());
    block_on(other.create_thread(home.workspace(), named("t"))).unwrap();
    let late = append(&other, &thread, &["two"]);
    assert!(matches!(late, Err(Error::AlreadyExists { what: "thread", .. })), "{late:?}");
    assert_eq!(history(store, &thread, false).unwrap(), ["one"]);
}

#[test]
fn resume_thread_rejects_duplicate_live_writer() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append(store, &thread, &["one"]).unwrap();
    let same = block_on(store.resume_thread(&thread, true));
    assert!(matches!(same, Err(Error::ClaimHeld { .. })), "{same:?}");
    let options = StoreOptions::folder(home.path()).label("another program");
    let other = block_on(Store::open(options)).unwrap();
    let Err(Error::ClaimHeld { thread: held, holder }) = block_on(other.resume_thread(&thread, true)) else {
        panic!("a second writer");
    };
    assert_eq!((held, holder.pid), (thread.clone(), i64::from(std::process::id())));
    block_on(store.shutdown_thread(&thread)).unwrap();
    block_on(other.resume_thread(&thread, true)).unwrap();
}

#[test]
fn resume_thread_of_nothing_is_not_found_and_of_an_archived_one_archived() {
    let home = Home::new();
    let store = home.contract();
    assert!(is_missing(&block_on(store.resume_thread(&id("absent"), true))));
    let thread = home.stored("t", &["one"]);
    block_on(store.archive_thread(&thread)).unwrap();
    let refused = block_on(store.resume_thread(&thread, false));
    assert!(matches!(refused, Err(Error::Archived { .. })), "{refused:?}");
    block_on(store.resume_thread(&thread, true)).unwrap();
    append(store, &thread, &["two"]).unwrap();
}

// Reading while live.

#[test]
fn load_history_uses_live_writer_rollout_path() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append_at(store, &thread, &["one", "two"], Durability::Queued).unwrap();
    append_at(store, &thread, &["three"], Durability::Queued).unwrap();
    // What this store's own writer was told to write is in its history, though nothing was flushed.
    assert_eq!(history(store, &thread, false).unwrap(), ["one", "two", "three"]);
    assert_eq!(read(store, &thread).unwrap().items, 3);
}

#[test]
fn load_history_uses_live_writer_rollout_path_for_archived_source() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.stored("t", &["archived"]));
    block_on(store.archive_thread(&thread)).unwrap();
    let refused = history(store, &thread, false);
    assert!(matches!(refused, Err(Error::Archived { .. })), "{refused:?}");
    assert_eq!(history(store, &thread, true).unwrap(), ["archived"]);
    block_on(store.resume_thread(&thread, true)).unwrap();
    append_at(store, &thread, &["live"], Durability::Queued).unwrap();
    // Its own writer reads it; a store that does not write it says what it is.
    assert_eq!(history(store, &thread, false).unwrap(), ["archived", "live"]);
    let other = history(&open(home.path()), &thread, false);
    assert!(matches!(other, Err(Error::Archived { .. })), "{other:?}");
}

#[test]
fn read_thread_uses_live_writer_rollout_path_for_external_resume() {
    let (home, elsewhere) = (Home::new(), Home::new());
    let thread = elsewhere.stored("t", &["from elsewhere"]);
    let file = rollout(&elsewhere, &thread);
    let live = block_on(home.store.resume_rollout(&file)).unwrap();
    block_on(live.append(vec![say("and on")])).unwrap();
    assert_eq!(history(home.contract(), &thread, false).unwrap(), ["from elsewhere", "and on"]);
    assert!(read(home.contract(), &thread).unwrap().live);
    assert_eq!(history(elsewhere.contract(), &thread, false).unwrap(), ["from elsewhere"]);
}

#[test]
fn read_thread_returns_rollout_path_summary() {
    let home = Home::new();
    let thread = home.stored("t", &["one"]);
    block_on(home.store.update(&thread, ThreadPatch::title("by its file"))).unwrap();
    let file = rollout(&home, &thread);
    let by_path = |path: &Path| block_on(home.contract().read_thread_by_rollout_path(path));
    assert_eq!(by_path(&file).unwrap().details.title.as_deref(), Some("by its file"));
    // A relative path is one below the folder that rollouts are kept in: the library has no folder of its own.
    let below = file.strip_prefix(home.path().join("rollouts")).unwrap();
    assert_eq!(by_path(below).unwrap().id, thread);
    assert!(
        is_missing(&by_path(&file.with_file_name("absent.jsonl"))),
        "{:?}",
        by_path(&file.with_file_name("absent.jsonl"))
    );
    assert!(matches!(by_path(file.parent().unwrap()), Err(Error::Invalid { field: "rollout", .. })));
    let foreign = home.path().join("foreign.jsonl");
    std::fs::write(&foreign, "{\"timestamp\":\"x\",\"type\":\"session_meta\",\"payload\":{}}\n").unwrap();
    assert!(matches!(by_path(&foreign), Err(Error::Invalid { field: "rollout", .. })));
    assert_eq!(by_path(&file).unwrap().id, thread, "looking at other files changes nothing");
}

#[test]
fn read_thread_returns_forked_from_id() {
    let home = Home::new();
    let parent = home.stored("parent", &["a", "b", "c"]);
    let point = block_on(home.store.address_at(&parent, 1)).unwrap();
    let fork = block_on(home.contract().fork_thread(&parent, Some(point), named("fork"))).unwrap();
    assert_eq!((fork.forked_from, fork.fork_point), (Some(parent.clone()), Some(point)));
    // The boundary is the store's: nothing behind it is shown, to whomever.
    assert_eq!(history(home.contract(), &id("fork"), false).unwrap(), ["a", "b"]);
    let context = block_on(home.contract().load_latest_model_context(&id("fork"), ItemQuery::default())).unwrap();
    assert_eq!(texts_of(context.entries), ["a", "b"]);
    // A fork is no resume: it has an id and a life of its own.
    block_on(home.contract().resume_thread(&id("fork"), false)).unwrap();
    block_on(home.contract().resume_thread(&parent, false)).unwrap();
    append(home.contract(), &id("fork"), &["fork's"]).unwrap();
    append(home.contract(), &parent, &["parent's"]).unwrap();
    assert_eq!(history(home.contract(), &parent, false).unwrap(), ["a", "b", "c", "parent's"]);
    assert_eq!(history(home.contract(), &id("fork"), false).unwrap(), ["a", "b", "fork's"]);
}

// Shelves.

#[test]
fn archive_thread_moves_rollout_to_archived_collection() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.stored("t", &["one"]));
    assert!(is_missing(&block_on(store.archive_thread(&id("absent")))));
    let archived = block_on(store.archive_thread(&thread)).unwrap();
    assert!(archived.archived_at.is_some());
    assert_eq!(list(store, ListQuery::default()), Vec::<String>::new());
    assert_eq!(list(store, ListQuery { shelves: Shelves::Archived, ..ListQuery::default() }), ["t"]);
    let again = block_on(store.archive_thread(&thread)).unwrap();
    assert_eq!((again.archived_at, again.version), (archived.archived_at, archived.version));
}

#[test]
fn unarchive_thread_restores_rollout_and_returns_updated_thread() {
    let home = Home::new();
    let (store, older) = (home.contract(), home.stored("older", &["one"]));
    block_on(store.archive_thread(&older)).unwrap();
    home.stored("newer", &["two"]);
    let back = block_on(store.unarchive_thread(&older)).unwrap();
    assert_eq!((back.archived_at, back.items), (None, 1));
    // It comes first by update; by activity it stays where its last append put it.
    let updated = ListQuery { sort: SortKey::Updated, ..ListQuery::default() };
    assert_eq!(list(store, updated), ["older", "newer"]);
    assert_eq!(list(store, ListQuery::default()), ["newer", "older"]);
    assert_eq!(history(store, &older, false).unwrap(), ["one"]);
}

/// A tree is archived as a whole or not at all: whoever reserves its threads is the only one that writes them.
#[test]
fn reserve_thread_writers_is_all_or_nothing() {
    let home = Home::new();
    let (store, ids) = (home.contract(), ["a", "b", "c"].map(|name| home.stored(name, &["one"])));
    let other = open(home.path());
    block_on(other.resume_thread(&ids[1], false)).unwrap();
    let refused = block_on(home.store.reserve(&ids, false));
    assert!(matches!(refused, Err(Error::ClaimHeld { .. })), "{refused:?}");
    for free in [&ids[0], &ids[2]] {
        block_on(other.resume_thread(free, false)).expect("a reservation that failed holds something");
        block_on(other.shutdown_thread(free)).unwrap();
    }
    block_on(other.shutdown_thread(&ids[1])).unwrap();
    let reserved = block_on(home.store.reserve(&ids, false)).unwrap();
    let late = block_on(other.resume_thread(&ids[0], false));
    assert!(matches!(late, Err(Error::ClaimHeld { .. })), "{late:?}");
    ids.iter().for_each(|id| drop(block_on(store.archive_thread(id)).unwrap()));
    reserved.iter().for_each(|live| block_on(live.shutdown()).unwrap());
    assert_eq!(list(store, ListQuery::default()), Vec::<String>::new());
}

#[test]
fn delete_thread_is_refused_while_live_and_takes_everything_after_it() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.create("t"));
    append(store, &thread, &["one"]).unwrap();
    assert!(matches!(block_on(store.delete_thread(&thread)), Err(Error::ClaimHeld { .. })));
    block_on(store.shutdown_thread(&thread)).unwrap();
    let file = rollout(&home, &thread);
    block_on(store.delete_thread(&thread)).unwrap();
    assert!(is_missing(&read(store, &thread)) && is_missing(&history(store, &thread, true)));
    assert!(is_missing(&block_on(store.resume_thread(&thread, true))));
    assert!(is_missing(&block_on(store.delete_thread(&id("absent")))));
    // Put back, or gone with its file.
    block_on(home.store.restore(&thread)).unwrap();
    assert_eq!(history(store, &thread, false).unwrap(), ["one"]);
    block_on(store.delete_thread(&thread)).unwrap();
    block_on(home.store.purge(&thread)).unwrap();
    assert!(!file.exists());
}

// Metadata.

#[test]
fn update_thread_metadata_sets_name_on_active_rollout_and_indexes_name() {
    let home = Home::new();
    let (store, thread) = (home.contract(), home.stored("t", &["one"]));
    let renamed = block_on(store.update_thread_metadata(&thread, ThreadPatch::title("A sharper name"))).unwrap();
    assert_eq!(renamed.details.title.as_deref(), Some("A sharper name"));
    let file = rollout(&home, &thread);
    let index = std::fs::read_to_string(home.path().join("rollouts/session_index.jsonl")).unwrap();
    assert!(index.contains("A sharper name") && std::fs::read_to_string(file).unwrap().contains("A sharper name"));
    assert_eq!(block_on(home.store.find("A sharper name")).unwrap(), thread);
}

/// Any set of fields in one patch, applied literally: what it does not name stays, though it is a sibling.
#[test]
fn update_thread_metadata_applies_many_fields_literally() {
    let home = Home::new();
    let store = home.contract();
    let git = |sha: &str, branch: &str| Details {
        git_sha: Some(sha.to_owned()),
        git_branch: Some(branch.to_owned()),
        git_origin: Some("https://example.com/r.git".to_owned()),
        ..Details::default()
    };
    let thread = home.create_with(NewThread { details: git("abc123", "main"), ..named("t") });
    append(store, &thread, &["one"]).unwrap();
    let patch = ThreadPatch {
        git_branch: Change::Set("feature".to_owned()),
        memory_mode: Change::Set("disabled".to_owned()),
        title: Change::Set("  spaces stay  ".to_owned()),
        ..ThreadPatch::default()
    };
    let details = block_on(store.update_thread_metadata(&thread, patch)).unwrap().details;
    let expected = Details {
        memory_mode: Some("disabled".to_owned()),
        title: Some("  spaces stay  ".to_owned()),
        ..git("abc123", "feature")
    };
    assert_eq!(details, expected);
    let clear = ThreadPatch {
        git_sha: Change::Clear,
        git_branch: Change::Clear,
        git_origin: Change::Clear,
        ..ThreadPatch::default()
    };
    let details = block_on(store.update_thread_metadata(&thread, clear)).unwrap().details;
    assert_eq!((details.git_sha, details.git_branch, details.git_origin), (None, None, None));
    assert_eq!(details.memory_mode.as_deref(), Some("disabled"), "clearing one thing cleared another");
    assert!(is_missing(&block_on(store.update_thread_metadata(&id("absent"), ThreadPatch::title("x")))));
}

/// Reading, renaming and resuming don't bring a thread to the top by activity; an append does.
#[test]
fn live_thread_output_advances_updated_at_but_not_recency_at() {
    let home = Home::new();
    let (store, first) = (home.contract(), home.stored("first", &["one"]));
    home.stored("second", &["one"]);
    block_on(store.update_thread_metadata(&first, ThreadPatch::title("renamed"))).unwrap();
    block_on(store.resume_thread(&first, false)).unwrap();
    history(store, &first, false).unwrap();
    assert_eq!(list(store, ListQuery::default()), ["second", "first"]);
    append(store, &first, &["two"]).unwrap();
    assert_eq!(list(store, ListQuery::default()), ["first", "second"]);
}

// Listing.

#[test]
fn list_threads_selects_active_or_archived_collection() {
    let home = Home::new();
    let (store, archived) = (home.contract(), home.stored("archived", &["one"]));
    home.stored("active", &["one"]);
    block_on(store.archive_thread(&archived)).unwrap();
    assert_eq!(list(store, ListQuery::default()), ["active"]);
    assert_eq!(list(store, ListQuery { shelves: Shelves::Archived, ..ListQuery::default() }), ["archived"]);
    assert_eq!(list(store, ListQuery { shelves: Shelves::Both, ..ListQuery::default() }).len(), 2);
}

#[test]
fn list_threads_rejects_invalid_cursor() {
    let home = Home::new();
    ["a", "b"].iter().for_each(|name| drop(home.stored(name, &["one"])));
    let page = block_on(home.contract().list_threads(ListQuery { limit: 1, ..ListQuery::default() })).unwrap();
    let foreign = ListQuery { sort: SortKey::Created, cursor: page.next_cursor, ..ListQuery::default() };
    let stamp = ListQuery { cursor: Some("2026-05-01T08:00:00Z".to_owned()), ..ListQuery::default() };
    let word = ListQuery { cursor: Some("not-a-cursor".to_owned()), ..ListQuery::default() };
    for query in [foreign, stamp, word] {
        let refused = block_on(home.contract().list_threads(query));
        assert!(matches!(refused, Err(Error::Invalid { field: "cursor", .. })), "{refused:?}");
    }
}

/// Threads with one timestamp that a page's end falls between are listed once each, in every order.
#[test]
fn list_threads_pages_over_equal_timestamps() {
    let home = Home::new();
    let at = Timestamp::parse("2026-05-01T08:00:00Z");
    for number in 0..23 {
        let thread = home.create_with(NewThread { created_at: at, ..named(&format!("t{number:02}")) });
        append(home.contract(), &thread, &["one"]).unwrap();
    }
    for sort in [SortKey::Created, SortKey::Updated, SortKey::Activity] {
        for ascending in [false, true] {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let query = ListQuery { sort, ascending, limit: 5, cursor, ..ListQuery::default() };
                let page = block_on(home.contract().list_threads(query)).unwrap();
                seen.extend(page.entries.into_iter().map(|thread| thread.id.to_string()));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let mut unique = seen.clone();
            unique.sort();
            unique.dedup();
            assert_eq!((seen.len(), unique.len()), (23, 23), "{sort:?} {ascending}");
        }
    }
}

#[test]
fn list_threads_filters_in_the_store() {
    let home = Home::new();
    let details = |provider: &str, cwd: &str, title: &str| Details {
        provider: Some(provider.to_owned()),
        cwd: Some(cwd.to_owned()),
        title: Some(title.to_owned()),
        source: Some("cli".to_owned()),
        ..Details::default()
    };
    // So many newer ones that a filter over the newest page alone finds nothing.
    let wanted = home.create_with(NewThread { details: details("acme", "/w/wanted", "A Needle"), ..named("wanted") });
    append(home.contract(), &wanted, &["one"]).unwrap();
    for number in 0..60 {
        let new = NewThread { details: details("other", "/w/other", "hay"), ..named(&format!("hay{number}")) };
        append(home.contract(), &home.create_with(new), &["one"]).unwrap();
    }
    let some = |text: &str| Some(text.to_owned());
    for query in [
        ListQuery { provider: some("acme"), ..ListQuery::default() },
        ListQuery { cwd: some("/w/wanted"), ..ListQuery::default() },
        ListQuery { text: some("needle"), ..ListQuery::default() },
        ListQuery { text: some("needle"), provider: some("acme"), source: some("cli"), ..ListQuery::default() },
    ] {
        assert_eq!(list(home.contract(), query.clone()), ["wanted"], "{query:?}");
    }
    assert_eq!(list(home.contract(), ListQuery { text: some("%"), ..ListQuery::default() }), Vec::<String>::new());
}

/// A search of threads by their content, through the contract.
#[test]
fn search_threads_finds_each_thread_once() {
    let home = Home::new();
    home.stored("a", &["the parser fails", "the parser fails again"]);
    home.stored("b", &["nothing of it"]);
    home.stored("c", &["another parser"]);
    let found = block_on(home.contract().search_threads(SearchQuery::new("parser"))).unwrap();
    let mut ids: Vec<String> = found.threads.into_iter().map(|thread| thread.id.to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["a", "c"]);
}

// Known failures of its kind.

/// A thread whose rollout is gone, or whose folder is, keeps its name and its history.
#[test]
fn a_missing_file_erases_no_metadata() {
    let home = Home::new();
    let thread = home.stored("t", &["one"]);
    block_on(home.store.update(&thread, ThreadPatch::title("kept"))).unwrap();
    std::fs::remove_file(rollout(&home, &thread)).unwrap();
    std::fs::remove_dir_all(home.path().join("rollouts")).unwrap();
    let store = open(home.path());
    assert_eq!(list(&store, ListQuery::default()), ["t"]);
    assert_eq!(read(&store, &thread).unwrap().details.title.as_deref(), Some("kept"));
    assert_eq!(history(&store, &thread, false).unwrap(), ["one"]);
}

/// A hundred children share their parent's items: none costs its parent's size again.
#[test]
fn forks_and_subagents_copy_no_history() {
    let home = Home::new();
    let parent = home.create("parent");
    // Noise, which does not compress.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(64 << 10)
    .flatten()
    .collect();
    let item = NewItem::raw(Kind::Message, "text", noise);
    block_on(home.contract().append_items(&parent, vec![item], AppendOptions::default())).unwrap();
    for number in 0..100 {
        let new = NewThread {
            details: Details { parent: Some(parent.clone()), ..Details::default() },
            ..named(&format!("c{number}"))
        };
        block_on(home.contract().fork_thread(&parent, None, new)).unwrap();
    }
    let stats = block_on(home.store.stats()).unwrap();
    assert_eq!((stats.active, stats.items), (101, 1));
    let size: u64 = ["threadkeep.db", "threadkeep.db-wal"]
        .iter()
        .filter_map(|name| Some(std::fs::metadata(home.path().join(name)).ok()?.len()))
        .sum();
    assert!(size < 8 << 20, "{size} bytes for one history of 512 KiB");
}

/// The same picture in every record is stored once, and a compaction does not store again what it sums up.
#[test]
fn repeated_payloads_are_stored_once() {
    let home = Home::new();
    let thread = home.create("t");
    let mut state = 1_u64;
    let picture: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{state:016x}")
    })
    .take(32 << 10)
    .collect();
    for number in 0..20 {
        let item = NewItem::raw(Kind::ToolResult, "text", picture.clone().into_bytes());
        block_on(home.contract().append_items(&thread, vec![item, say(&number.to_string())], AppendOptions::default()))
            .unwrap();
    }
    block_on(home.contract().shutdown_thread(&thread)).unwrap();
    let size = std::fs::metadata(home.path().join("threadkeep.db")).unwrap().len();
    let wal = std::fs::metadata(home.path().join("threadkeep.db-wal")).map_or(0, |file| file.len());
    assert!(size + wal < 5 * picture.len() as u64, "{size} and {wal} bytes for 20 times {} bytes", picture.len());
}

/// A name is the thread's own, and is found: also when no index of names is there.
#[test]
fn a_renamed_thread_is_shown_and_found_by_its_name() {
    let home = Home::new();
    let thread = home.stored("t", &["first words"]);
    block_on(home.store.update(&thread, ThreadPatch::title("Quarterly report"))).unwrap();
    let found = block_on(home.store.get(&thread)).unwrap();
    assert_eq!(found.name(), "Quarterly report");
    assert_eq!(list(home.contract(), ListQuery { text: Some("quarterly".to_owned()), ..ListQuery::default() }), ["t"]);
    assert_eq!(block_on(home.store.find("Quarterly report")).unwrap(), thread);
}

/// Records of several agents and models stand in one thread as they were given: what another one can't use is converted by whoever
/// replays it, and nothing here refuses them.
#[test]
fn items_of_several_providers_keep_their_own_bytes() {
    let home = Home::new();
    let thread = home.create("t");
    let items = vec![
        NewItem::raw(
            Kind::Reasoning,
            "codex",
            br#"{"type":"response_item","payload":{"encrypted_content":"x"}}"#.to_vec(),
        ),
        NewItem::raw(Kind::Message, "claude-code", br#"{"type":"assistant"}"#.to_vec()),
    ];
    let given: Vec<Vec<u8>> = items.iter().map(|item| item.content.clone()).collect();
    block_on(home.contract().append_items(&thread, items, AppendOptions::default())).unwrap();
    block_on(home.contract().update_thread_metadata(
        &thread,
        ThreadPatch { provider: Change::Set("another".to_owned()), ..ThreadPatch::default() },
    ))
    .unwrap();
    block_on(home.contract().shutdown_thread(&thread)).unwrap();
    block_on(home.contract().resume_thread(&thread, false)).unwrap();
    let stored = block_on(home.contract().load_history(&thread, false, ItemQuery::default())).unwrap().entries;
    assert_eq!(stored.iter().map(|item| item.format.as_str()).collect::<Vec<_>>(), ["codex", "claude-code"]);
    assert_eq!(stored.into_iter().map(|item| item.content).collect::<Vec<_>>(), given);
}

/// The contract is an object: a program may hold one and know nothing of what stands behind it.
#[test]
fn the_contract_is_shared_between_threads() {
    let home = Home::new();
    let store: Arc<dyn ThreadStore> = Arc::new(home.store.clone());
    let workspace = home.workspace();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                let thread = block_on(store.create_thread(workspace, named(&format!("t{number}")))).unwrap();
                append(&*store, &thread, &["one", "two"]).unwrap();
                block_on(store.shutdown_thread(&thread)).unwrap();
            });
        }
    });
    assert_eq!(list(&*store, ListQuery::default()).len(), 4);
}
