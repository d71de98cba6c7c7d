//! What the embedding program has to say on what is about to be written: on every way in, on both engines, before anything
//! else is made of it.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    AppendOptions, Details, Durability, Error, Hash, ImportBatch, ImportPart, ImportSegment, Incoming, Item, ItemId,
    ItemQuery, Kind, NewItem, NewThread, Role, Rules, Screened, SourceFile, StoreOptions, ThreadId, ThreadPatch,
    ThreadStore as _, TurnEnd, Uuid,
};

const SECRET: &str = "correct horse battery";
const MARKER: &str = "[redacted:literal]";

fn masking() -> StoreOptions {
    StoreOptions::memory().mask_at_write(Rules::literal(SECRET).unwrap())
}

fn open() -> (Store, LiveThread) {
    let store = Store::open(masking()).unwrap();
    let thread = store.workspace("/w".as_ref()).unwrap().create(NewThread::default()).unwrap();
    (store, thread)
}

fn said(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn id(number: u128) -> ItemId {
    ItemId::from_uuid(Uuid::from_u128(number))
}

fn items(store: &Store, thread: &ThreadId) -> Vec<Item> {
    store.items(thread, ItemQuery::default()).unwrap().entries
}

/// All that is stored of a thread, as text.
fn everything(store: &Store, thread: &ThreadId) -> String {
    let items: Vec<String> = items(store, thread)
        .iter()
        .map(|item| format!("{item:?} {}", String::from_utf8_lossy(&item.content)))
        .collect();
    let turns = store.turns(thread, threadkeep::TurnQuery::default()).unwrap();
    format!("{} {:?} {:?}", items.join("\n"), store.get(thread).unwrap(), turns)
}

#[test]
fn every_way_in_is_screened() {
    let (store, thread) = open();
    let secret = format!("the password is {SECRET}, quote \" it");
    let prompt = thread.begin_turn(said(&secret)).unwrap();
    assert_eq!((prompt.replaced, prompt.items.len()), (1, 1));
    for durability in [Durability::Synced, Durability::Written, Durability::Queued] {
        let items = vec![said("nothing"), said(&secret)];
        let options = AppendOptions { durability, ..AppendOptions::default() };
        assert_eq!(thread.append_with(items, options).unwrap().replaced, 1, "{durability:?}");
    }
    let sourced = NewItem { source_id: Some(format!("id of {SECRET}")), ..said("words") };
    assert_eq!(thread.append(vec![sourced]).unwrap().replaced, 0);
    thread.end_turn(TurnEnd { outcome: Some(secret.clone()), ..TurnEnd::completed() }).unwrap();
    let patch = ThreadPatch { preview: threadkeep::Change::Set(secret.clone()), ..ThreadPatch::title(&secret) };
    store.update(thread.id(), patch).unwrap();
    let branch = items(&store, thread.id())[0].branch;
    store.label(thread.id(), branch, Some(secret.clone())).unwrap();
    let labels = format!("{:?}", store.tree(thread.id()).unwrap());
    assert!(labels.contains(MARKER) && !labels.contains(SECRET), "{labels}");
    let all = everything(&store, thread.id());
    assert!(!all.contains(SECRET), "{all}");
    assert_eq!(items(&store, thread.id()).len(), 8);
    let thread_now = store.get(thread.id()).unwrap();
    assert_eq!(thread_now.details.title, Some(secret.replace(SECRET, MARKER)));
    assert!(store.verify(thread.id()).unwrap().is_intact());
    thread.shutdown().unwrap();

    let extra = [("note".to_owned(), serde_json::json!({"deep": [secret]}))].into_iter().collect();
    let details =
        Details { title: Some(secret.clone()), git_origin: Some(secret.clone()), extra, ..Details::default() };
    let new = NewThread { details, ..NewThread::default() };
    let workspace = store.workspace("/w".as_ref()).unwrap();
    let created = workspace.create_now(new.clone()).unwrap();
    created.append(vec![said("x")]).unwrap();
    let forked = store.fork(created.id(), None, NewThread { id: None, ..new }).unwrap();
    for thread in [created.id(), &forked.id] {
        let all = everything(&store, thread);
        assert!(!all.contains(SECRET) && all.contains(MARKER), "{all}");
    }
    created.shutdown().unwrap();
    let taken = store.take_over(created.id(), &secret, false).unwrap();
    assert!(!everything(&store, taken.id()).contains(SECRET));
}

#[test]
fn the_contract_of_thread_stores_is_screened() {
    pollster::block_on(async {
        let store = threadkeep::Store::open(masking()).await.unwrap();
        let workspace = store.workspace("/w".as_ref()).await.unwrap();
        let thread = store.create_thread(workspace.info().id, NewThread::default()).await.unwrap();
        let appended = store.append_items(&thread, vec![said(SECRET)], AppendOptions::default()).await.unwrap();
        assert_eq!(appended.replaced, 1);
        let page = store.load_history(&thread, false, ItemQuery::default()).await.unwrap();
        assert!(String::from_utf8_lossy(&page.entries[0].content).contains(MARKER));
    });
}

/// A call whose answer was lost is answered as the first one was, though the first one stored something else than was given.
#[test]
fn a_repeated_append_is_known() {
    let (_store, thread) = open();
    let batch = || vec![said(SECRET).with_id(id(1)), said("b").with_id(id(2))];
    let first = thread.append(batch()).unwrap();
    let again = thread.append(batch()).unwrap();
    assert!(again.repeated && !first.repeated);
    assert_eq!((again.items, again.replaced), (first.items, 1));
    let other = thread.append(vec![said("other").with_id(id(1))]).unwrap_err();
    assert!(matches!(other, Error::AlreadyExists { .. }), "{other:?}");
}

fn batch(screened: bool) -> ImportBatch {
    let item =
        NewItem { id: Some(id(7)), source_id: Some(SECRET.to_owned()), ..NewItem::raw(Kind::Message, "x", line()) };
    let part = ImportPart::Item { item: Box::new(item), after: None, starts_turn: true, note: Vec::new() };
    let length = i64::try_from(line().len()).unwrap();
    let beside = ImportPart::Beside { bytes: line() };
    ImportBatch {
        source: SourceFile {
            agent: "x".to_owned(),
            path: "/f".to_owned(),
            thread: None,
            size: 2 * length + 1,
            mtime: 1,
            consumed: 2 * length + 1,
            prefix: Hash::of(b"the file"),
            records: 2,
            skipped: 0,
            state: Vec::new(),
        },
        expected: None,
        replace: false,
        segments: vec![
            ImportSegment { position: 0, length, part },
            ImportSegment { position: length + 1, length, part: beside },
        ],
        screened,
        head: None,
        patch: Some(ThreadPatch::title(SECRET)),
        updated_at: None,
    }
}

fn line() -> Vec<u8> {
    serde_json::json!({ "text": SECRET }).to_string().into_bytes()
}

#[test]
fn a_step_of_an_import_is_screened_with_what_is_kept_beside_the_tree() {
    let (store, thread) = open();
    assert_eq!(thread.import(batch(false), Durability::Synced).unwrap().replaced, 2);
    let all = everything(&store, thread.id());
    assert!(!all.contains(SECRET), "{all}");
    let masked = serde_json::json!({ "text": MARKER }).to_string().into_bytes();
    let parts = store.source_parts("/f", -1, 9).unwrap();
    let length = i64::try_from(line().len()).unwrap();
    for (part, position) in parts.iter().zip([0, length + 1]) {
        assert_eq!((part.position, part.length, &part.bytes), (position, length, &masked));
    }
    // What an importer has screened itself is not screened again.
    let (_, thread) = open();
    assert_eq!(thread.import(batch(true), Durability::Synced).unwrap().replaced, 0);
    assert_eq!(store.screened("/f", &line()).unwrap(), Some(masked));
    assert_eq!(store.screened("/f", b"{}").unwrap(), None);
}

/// Copies and rebuilt stores hold what the other one holds, to the byte: else their chains would not.
#[test]
fn what_is_carried_over_is_not_screened() {
    let plain = Store::open(StoreOptions::memory()).unwrap();
    let thread = plain.workspace("/w".as_ref()).unwrap().create(NewThread::default()).unwrap();
    thread.append(vec![said(SECRET)]).unwrap();
    thread.shutdown().unwrap();
    let store = Store::open(masking()).unwrap();
    assert_eq!(store.copy_from(&plain, &mut |_| {}).unwrap().problems, []);
    assert_eq!(items(&store, thread.id())[0].content, items(&plain, thread.id())[0].content);
    let folder = tempfile::tempdir().unwrap();
    plain.mirror_rollouts(Some(folder.path()), None, |_| {}).unwrap();
    let rebuilt = Store::open(masking()).unwrap();
    assert!(rebuilt.rebuild_from_rollouts(folder.path(), |_| {}).unwrap().is_whole());
    assert!(everything(&rebuilt, thread.id()).contains(SECRET));
}

#[test]
fn functions_are_asked_in_their_order_and_may_refuse() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let options = StoreOptions::memory()
        .on_write(move |incoming| {
            counter.fetch_add(1, Ordering::SeqCst);
            match incoming {
                Incoming::Item(item) if item.content.starts_with(b"one") => Screened::Replace(b"two".to_vec()),
                Incoming::Item(item) if item.kind == Kind::Event => Screened::Refuse("no events here".to_owned()),
                _ => Screened::Keep,
            }
        })
        .on_write(|incoming| match incoming.bytes() {
            b"two" => Screened::Replace(b"three".to_vec()),
            b"bad text" => Screened::Replace(vec![0xff]),
            _ => Screened::Keep,
        });
    assert!(format!("{options:?}").contains("2 functions"));
    let store = Store::open(options).unwrap();
    let thread = store.workspace("/w".as_ref()).unwrap().create(NewThread::default()).unwrap();
    thread.append(vec![NewItem::raw(Kind::Message, "x", b"one".to_vec())]).unwrap();
    assert_eq!(items(&store, thread.id())[0].content, b"three");
    let before = asked.load(Ordering::SeqCst);
    let refused = thread.append(vec![said("fine"), NewItem::raw(Kind::Event, "x", vec![])]).unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid { field: "content", reason } if reason == "no events here"),
        "{refused:?}"
    );
    assert!(asked.load(Ordering::SeqCst) > before);
    // All or none, and the handle goes on.
    assert_eq!(items(&store, thread.id()).len(), 1);
    thread.append(vec![said("more")]).unwrap();
    let unfit = store.update(thread.id(), ThreadPatch::title("bad text")).unwrap_err();
    assert!(matches!(unfit, Error::Invalid { field: "title", .. }), "{unfit:?}");
}

/// Content of which no part can be kept says that it is gone, and is still what its format is.
#[test]
fn what_cannot_be_masked_goes_as_a_whole() {
    let rules = Rules::pattern(r#"[{}":]"#).unwrap();
    let store = Store::open(StoreOptions::memory().mask_at_write(rules)).unwrap();
    let thread = store.workspace("/w".as_ref()).unwrap().create(NewThread::default()).unwrap();
    let raw = |content: &[u8]| NewItem::raw(Kind::Message, "x", content.to_vec());
    let appended = thread.append(vec![said("a"), raw(b"{\"a\":1}"), raw(b"\"words\"")]).unwrap();
    assert_eq!(appended.replaced, 3);
    let items = items(&store, thread.id());
    let view: threadkeep::View = serde_json::from_slice(&items[0].content).unwrap();
    assert_eq!(view.to_text(), "[redacted]");
    assert_eq!(items[1].content, br#"{"type":"[redacted]"}"#);
    assert_eq!(items[2].content, b"[redacted]");
}
