//! The stores of CodeWhale and newt, made here by their documented schemas: into a store, and back.

#![cfg(test)]

#[path = "stores/codewhale.rs"]
mod codewhale;
#[path = "stores/newt.rs"]
mod newt;
#[path = "stores/newt_rules.rs"]
mod newt_rules;

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{Item, ItemQuery, StoreOptions, ThreadId};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder.join("store"))).unwrap()
}

fn import(store: &Store, path: &Path) -> ImportReport {
    let report = Importer::new(store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {}).unwrap();
    let items = &report.items;
    assert_eq!(items.read, items.imported + items.unchanged + items.skipped, "{report:#?}");
    report
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn items(store: &Store, thread: &str) -> Vec<Item> {
    store.items(&id(thread), ItemQuery { limit: 1_000, ..ItemQuery::default() }).unwrap().entries
}

fn source_ids(store: &Store, thread: &str) -> Vec<String> {
    items(store, thread).into_iter().filter_map(|item| item.source_id).collect()
}

fn reasons(report: &ImportReport) -> Vec<&str> {
    report.problems.iter().map(|problem| problem.reason.as_str()).collect()
}
