//! What a sample store has of retention, and how that reads.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{NewItem, NewThread, ReceiptQuery, RetainOptions, RetentionRules, Role, ThreadId};

/// Rules of the store and of a workspace, and receipts of a thread that is in the trash and of one that came back.
pub(crate) fn make(store: &Store) {
    let place = store.workspace(Path::new("/projects/other")).unwrap();
    for name in ["taken", "brought back", "left"] {
        let id = Some(ThreadId::new(name.replace(' ', "-")).unwrap());
        let live = place.create_now(NewThread { id, ..NewThread::default() }).unwrap();
        live.append(vec![NewItem::message(Role::User, name)]).unwrap();
        live.shutdown().unwrap();
    }
    let rules =
        RetentionRules { max_count: Some(1), grace: Duration::ZERO, trash_grace: None, ..RetentionRules::default() };
    place.retain(RetainOptions { rules: Some(rules.clone()), ..RetainOptions::default() }).unwrap();
    store.restore(&ThreadId::new("brought-back").unwrap()).unwrap();
    place.set_retention(RetentionRules { archived: true, deleted: true, ..rules }).unwrap();
    let of_store = RetentionRules {
        max_age: Some(Duration::from_secs(180 * 86_400)),
        max_bytes: Some(1 << 30),
        max_store_bytes: Some(1 << 34),
        forked: true,
        ..RetentionRules::default()
    };
    store.set_retention(of_store).unwrap();
}

/// The rules and the receipts of a store.
pub(crate) fn lines(store: &Store, out: &mut String) {
    for stored in store.all_retention().unwrap() {
        writeln!(out, "retention {stored:?}").unwrap();
    }
    for receipt in store.retention_receipts(ReceiptQuery::default()).unwrap().entries {
        writeln!(out, "receipt {}", serde_json::to_string(&receipt).unwrap()).unwrap();
    }
}
