//! Redaction on a server: its tables lose the bytes, and what only the server's own keeper can remove is said.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memchr::memmem;
use postgres::NoTls;
use threadkeep::blocking::Store;
use threadkeep::{GapKind, ItemQuery, Kind, NewItem, NewThread, Outcome, RedactOptions, Rules, StoreOptions, ThreadId};

use crate::server::{Server, server};

/// How long the store of a test waits for others.
const BRIEF: Duration = Duration::from_secs(3);
const SECRET: &str = "kY7pQ2vX9mZ4tR8wN3cB6jL1hF5sD0gAqWzErTyUiOpMnBvC";

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn because(reason: &str) -> RedactOptions {
    RedactOptions { reason: reason.to_owned(), ..RedactOptions::default() }
}

/// The files of the server's tables that hold the secret, once it has written everything to them.
pub(crate) fn holding(server: &Server, secret: &str) -> Vec<PathBuf> {
    server.config().connect(NoTls).unwrap().batch_execute("CHECKPOINT").unwrap();
    let (mut found, mut waiting) = (Vec::new(), vec![server.folder().join("data/base")]);
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            } else if has(&entry.path(), secret) {
                found.push(entry.path());
            }
        }
    }
    found
}

fn has(path: &Path, secret: &str) -> bool {
    // A file that the server has just removed holds nothing.
    std::fs::read(path).is_ok_and(|bytes| memmem::find(&bytes, secret.as_bytes()).is_some())
}

#[test]
fn the_tables_of_a_server_lose_the_bytes() {
    let Some(server) = server() else { return };
    let store = Store::open(StoreOptions::postgres(&server.address()).unwrap()).unwrap();
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("leaky")).unwrap();
    let contents = [SECRET.to_owned(), format!("{} {SECRET}", "x".repeat(20))];
    let mut places = Vec::new();
    for content in contents {
        let item = NewItem::raw(Kind::ToolResult, "text", content.into_bytes());
        places.push(live.append(vec![item]).unwrap().items[0].address());
    }
    live.append(vec![NewItem::raw(Kind::ToolResult, "text", format!("{{\"a\":\"{SECRET}\"}}").into_bytes())]).unwrap();
    live.shutdown().unwrap();
    store.fork(&id("leaky"), None, named("fork")).unwrap();
    assert!(!holding(&server, SECRET).is_empty(), "the control");
    // What the server's statistics keep of values, nobody can take out of them.
    server.config().connect(NoTls).unwrap().batch_execute("ANALYZE").unwrap();

    let report = store.redact(&id("fork"), places.clone(), because("a key")).unwrap();
    assert_eq!((report.redacted, report.erased), (2, Some(true)), "{report:?}");
    let rules = Rules::literal(SECRET).unwrap();
    let report = store.redact_matching(None, rules, because("the rest"), true, |_, _| {}).unwrap();
    assert_eq!((report.redacted, report.erased), (1, Some(true)), "{report:?}");
    assert!(report.remains.iter().any(|words| words.contains("replicas")), "{report:?}");
    assert_eq!(holding(&server, SECRET), Vec::<PathBuf>::new());

    for reader in ["leaky", "fork"] {
        let items = store.items(&id(reader), ItemQuery::default()).unwrap().entries;
        let masked: Vec<bool> = items.iter().map(|item| item.redaction.as_ref().unwrap().masked).collect();
        assert_eq!(masked, [false, false, true], "{reader}");
    }
    let verdict = store.verify(&id("leaky")).unwrap();
    assert_eq!(verdict.outcome(), Outcome::NotProvable, "{verdict:?}");
    assert!(verdict.not_provable.iter().any(|gap| gap.kind == GapKind::UnsealedRedaction));
    let again = store.redact(&id("leaky"), places, because("once more")).unwrap();
    assert_eq!(again.redacted, 0);
}

#[test]
fn rows_that_an_older_transaction_keeps_are_told_and_go_after_it() {
    const OTHER: &str = "hW4nT8rK2yB6vX1zQ9mC5pL7jD3gF0sAeUiOwZtRqPlNkMbV";
    let Some(server) = server() else { return };
    let address = server.address();
    let store = Store::open(StoreOptions::postgres(&address).unwrap().busy_bound(BRIEF)).unwrap();
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("leaky")).unwrap();
    let item = NewItem::raw(Kind::ToolResult, "text", OTHER.as_bytes().to_vec());
    let place = live.append(vec![item]).unwrap().items[0].address();
    live.shutdown().unwrap();

    let mut reader = server.config().connect(NoTls).unwrap();
    reader.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    let report = store.redact(&id("leaky"), vec![place], because("a key")).unwrap();
    assert_eq!((report.redacted, report.erased), (1, Some(false)), "{report:?}");
    assert!(report.remains.iter().any(|words| words.contains("items") && words.contains("older")), "{report:?}");
    assert!(!holding(&server, OTHER).is_empty(), "the older transaction can still read it");

    reader.batch_execute("COMMIT").unwrap();
    // Other tests' transactions are waited for.
    Store::open(StoreOptions::postgres(&address).unwrap()).unwrap().erase().unwrap();
    assert_eq!(holding(&server, OTHER), Vec::<PathBuf>::new());
}
