//! The stores of CodeWhale and newt, made here by their documented schemas: into a store, and back.

#![cfg(test)]

#[path = "stores/codewhale.rs"]
mod codewhale;
#[path = "stores/codewhale_back.rs"]
mod codewhale_back;
#[path = "stores/masked.rs"]
mod masked;
#[path = "stores/newt.rs"]
mod newt;
#[path = "stores/newt_back.rs"]
mod newt_back;
#[path = "stores/newt_rules.rs"]
mod newt_rules;

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{Details, Item, ItemQuery, Kind, NewItem, NewThread, Role, StoreOptions, ThreadId, View};
use threadkeep_agents::codec::Codec;
use threadkeep_agents::export::{Export, Exported, Mask, StoreExport, codec_for};
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

/// A thread as an agent's own file, in a folder that stands for its home.
fn export(store: &Store, thread: &str, agent: &str, home: &Path) -> Exported {
    let codec = codec_for(agent).unwrap();
    let export = Export::new(store, &id(thread), None, codec, &|_| None).unwrap();
    let mut bytes = Vec::new();
    let exported = export
        .write(&mut |part| -> Result<(), threadkeep::Error> {
            bytes.extend_from_slice(part);
            Ok(())
        })
        .unwrap();
    std::fs::create_dir_all(home).unwrap();
    std::fs::write(home.join(if agent == "newt" { "conversations.db" } else { "state.db" }), &bytes).unwrap();
    for companion in &exported.companions {
        let path = home.join(&companion.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &companion.bytes).unwrap();
    }
    exported
}

/// Threads as a store of an agent's, in a folder that stands for its home.
fn store_of(store: &Store, threads: &[&str], agent: &str, home: &Path) -> Exported {
    masked_store_of(store, threads, agent, home, &|_| None)
}

fn masked_store_of(store: &Store, threads: &[&str], agent: &str, home: &Path, mask: &Mask<'_>) -> Exported {
    let threads = threads.iter().map(|thread| id(thread)).collect();
    let export = StoreExport::new(store, threads, codec_for(agent).unwrap(), mask);
    let mut bytes = Vec::new();
    let exported = export
        .write(&mut |part| -> Result<(), threadkeep::Error> {
            bytes.extend_from_slice(part);
            Ok(())
        })
        .unwrap();
    std::fs::create_dir_all(home).unwrap();
    std::fs::write(home.join(export.name().unwrap()), &bytes).unwrap();
    for companion in &exported.companions {
        let path = home.join(&companion.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &companion.bytes).unwrap();
    }
    exported
}

/// A thread of Threadkeep's own: prompts, an answer, a call with its result, a summary.
fn own(store: &Store, folder: &Path) {
    let workspace = store.workspace(folder).unwrap();
    let details =
        Details { title: Some("Of its own".to_owned()), cwd: folder.to_str().map(str::to_owned), ..Details::default() };
    let live = workspace.create(NewThread { id: Some(id("own")), details, ..NewThread::default() }).unwrap();
    let summary = View::text(Some(Role::System), "what was so far");
    let items = vec![
        NewItem::message(Role::User, "look around"),
        NewItem::message(Role::Assistant, "I will"),
        NewItem::tool_call("call-1", "ls", "{\"path\":\".\"}"),
        NewItem::tool_result("call-1", "a file", false),
        NewItem::message(Role::Assistant, "There is a file"),
        NewItem::from_view(Kind::Compaction, &summary),
        NewItem::message(Role::User, "go on"),
        NewItem::message(Role::Assistant, "done"),
    ];
    live.append(items).unwrap();
    live.shutdown().unwrap();
}

fn texts(store: &Store, thread: &str, codec: &dyn Codec) -> Vec<String> {
    items(store, thread).iter().map(|item| codec.view(&item.kind, &item.content).to_text()).collect()
}

/// The bytes of a file with some of its pages overwritten; the same for the same seed.
fn torn(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut torn = bytes.to_vec();
    let hash = blake3::hash(&seed.to_le_bytes());
    for chunk in hash.as_bytes().chunks(8).take(1 + (seed % 3) as usize) {
        let number = chunk.iter().fold(0_usize, |number, byte| (number << 8) | usize::from(*byte));
        // The first hundred bytes say that it is a database at all.
        let at = 100 + number % (torn.len() - 100);
        let end = torn.len().min(at + 64);
        torn[at..end].fill(chunk[0]);
    }
    torn
}

#[test]
fn a_damaged_database_ends_no_import() {
    let folder = tempfile::tempdir().unwrap();
    drop(newt::database(folder.path()));
    drop(codewhale::database(folder.path(), 5));
    let good = folder.path().join("good.jsonl");
    let line = r#"{"type":"user","uuid":"9f0d1c2b-0000-4000-8000-000000000001","parentUuid":null,"sessionId":"9f0d1c2b-0000-4000-8000-000000000002","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"hi"}}"#;
    std::fs::write(&good, format!("{line}\n")).unwrap();
    let whole =
        [".newt/conversations.db", ".codewhale/state.db"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    let mut told = 0;
    for seed in 0..24 {
        let damaged = tempfile::tempdir().unwrap();
        for (name, bytes) in ["conversations.db", "state.db"].iter().zip(&whole) {
            std::fs::write(damaged.path().join(name), torn(bytes, seed)).unwrap();
        }
        std::fs::copy(&good, damaged.path().join("good.jsonl")).unwrap();
        let store = Store::open(StoreOptions::memory()).unwrap();
        let report = import(&store, damaged.path());
        told += report.problems.len();
        assert_eq!(items(&store, "9f0d1c2b-0000-4000-8000-000000000002").len(), 1, "seed {seed}: {report:#?}");
        assert_eq!(store.verify_all(|_| {}).unwrap().invalid, Default::default());
    }
    assert!(told > 0, "nothing was damaged");
}
