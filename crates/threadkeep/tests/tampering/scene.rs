//! The threads that are changed behind the library's back.

use threadkeep::blocking::Store;
use threadkeep::{
    Address, ArtifactKind, ArtifactRelation, NewArtifact, NewItem, NewPrompt, NewThread, PublicKey, Role, ThreadId,
};

/// How many threads there are.
pub(crate) const THREADS: u64 = 6;

/// A thread's id.
pub(crate) fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

/// A thread to be.
pub(crate) fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

/// Appends to a thread.
pub(crate) fn say(store: &Store, thread: &str, appends: usize) {
    let live = store.resume(&id(thread), false).unwrap();
    for number in 0..appends {
        live.begin_turn(NewItem::message(Role::User, format!("{thread} asks {number}"))).unwrap();
        live.append(vec![NewItem::message(Role::Assistant, format!("{thread} is told {number}"))]).unwrap();
    }
    live.shutdown().unwrap();
}

/// Stores prompts that follow each other, each with an artifact.
fn ask(store: &Store, thread: &str) {
    let live = store.resume(&id(thread), false).unwrap();
    let mut last = None;
    for number in 0..4 {
        let text = format!("{thread} asks {number}");
        let new = last.map_or_else(|| NewPrompt::task(&text), |last| NewPrompt::continuing(last, &text));
        let prompt = live.begin_prompt(new).unwrap().receipt.id;
        let artifact = NewArtifact::new(prompt, ArtifactKind::TurnOutcome, ArtifactRelation::Summarizes);
        live.add_artifact(artifact).unwrap();
        last = Some(prompt);
    }
    live.append(vec![NewItem::message(Role::Assistant, "the end")]).unwrap();
    live.shutdown().unwrap();
}

/// Threads with branches, a fork and an empty one; sealed.
pub(crate) fn make(store: &Store) -> PublicKey {
    let key = store.create_key().unwrap().info.public;
    let workspace = store.workspace("/w".as_ref()).unwrap();
    for thread in ["main", "other", "lone", "empty", "asked"] {
        workspace.create_now(named(thread)).unwrap().shutdown().unwrap();
    }
    say(store, "main", 10);
    say(store, "other", 6);
    say(store, "lone", 3);
    ask(store, "asked");
    let at = store.address_at(&id("main"), 8).unwrap();
    store.fork(&id("main"), Some(at), named("fork")).unwrap();
    say(store, "fork", 2);
    let live = store.resume(&id("main"), false).unwrap();
    live.rewind(Address { depth: 5, ..at }).unwrap();
    live.shutdown().unwrap();
    say(store, "main", 2);
    store.seal(None, false).unwrap();
    key
}

/// What comes after the older copy.
pub(crate) fn go_on(store: &Store) {
    say(store, "other", 1);
    say(store, "lone", 1);
    store.seal(None, false).unwrap();
}
