//! Giving threads back as sessions of agents.

#![cfg(test)]

#[path = "export/changed.rs"]
mod changed;
#[path = "export/cline.rs"]
mod cline;
#[path = "export/hostile.rs"]
mod hostile;
#[path = "export/installing.rs"]
mod installing;
#[path = "export/interleaved.rs"]
mod interleaved;
#[path = "export/messages.rs"]
mod messages;
#[path = "export/own_forms.rs"]
mod own_forms;
#[path = "export/paired.rs"]
mod paired;
#[path = "export/said.rs"]
mod said;
#[path = "export/strict.rs"]
mod strict;

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{Address, Error, ListQuery, StoreOptions, ThreadId};
use threadkeep_agents::export::{Export, Exported, codec_for};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

const AGENTS: [&str; 2] = ["codex", "claude-code"];
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sessions");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/files");

fn store() -> Store {
    let options =
        threadkeep_agents::codecs().into_iter().fold(StoreOptions::memory(), |options, codec| options.read_with(codec));
    Store::open(options).unwrap()
}

fn import(store: &Store, path: &Path) -> ImportReport {
    Importer::new(store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {}).unwrap()
}

/// Imports a file into a store of its own; gives the thread, if it is a session.
/// What a record without a time is given is the file's own, which a checkout decides: here it is always the same.
fn imported(path: &Path) -> Option<(Store, ThreadId)> {
    let changed = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_780_000_000);
    std::fs::File::open(path).unwrap().set_modified(changed).unwrap();
    let store = store();
    import(&store, path);
    let thread = store.list(ListQuery::default()).unwrap().entries.into_iter().next()?;
    Some((store, thread.id))
}

fn export(store: &Store, thread: &ThreadId, at: Option<Address>, agent: &str) -> (Vec<u8>, Exported) {
    let export = Export::new(store, thread, at, codec_for(agent).unwrap(), &|_| None).unwrap();
    let mut out = Vec::new();
    let exported = export
        .write::<Error>(&mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    assert_eq!(exported.bytes, out.len() as u64);
    (out, exported)
}

fn sessions(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "jsonl") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_session_comes_back_to_its_own_agent_as_it_was() {
    let (mut same, mut mended) = (0, Vec::new());
    for path in [sessions(FILES), sessions(EXAMPLES)].concat() {
        let Some((store, thread)) = imported(&path) else { continue };
        let agent = store.get(&thread).unwrap().details.agent.unwrap();
        // Of the others no file is written yet, or none that lies where it was read.
        if !AGENTS.contains(&agent.as_str()) {
            continue;
        }
        let (bytes, exported) = export(&store, &thread, None, &agent);
        let original = std::fs::read(&path).unwrap();
        let shown = path.display();
        strict::lines(&bytes).unwrap_or_else(|wrong| panic!("{shown}: {wrong}"));
        assert_eq!(export(&store, &thread, None, &agent).0, bytes, "{shown}: another time, another file");
        if bytes == original {
            same += 1;
            assert!(exported.losses.iter().all(|loss| loss.what.contains("calls without")), "{shown}: {exported:?}");
            assert_eq!(exported.messages, 0);
        } else {
            mended.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    assert!(same > 20, "{same} files came back");
    mended.sort();
    // Damage is left out, what has no end gets one, and what the program no longer opens is written in its present form.
    let expected = [
        "bare-0.21.jsonl",
        "c3a94d17-80e2-4f6b-a1d5-73b2e9f04c68.jsonl",
        "damaged.jsonl",
        "damaged.jsonl",
        "delta-fork.jsonl",
        "rollout-2025-08-06T11-48-02-b7a1c2d3-4e5f-4a6b-8c7d-9e0f1a2b3c4d.jsonl",
        "rollout-2026-03-14T10-00-00-019ce0ff-0000-7000-8000-000000000005.jsonl",
    ];
    assert_eq!(mended, expected);
}

#[test]
fn an_export_to_the_same_agent_brings_nothing_new() {
    for path in sessions(EXAMPLES) {
        let Some((store, thread)) = imported(&path) else { continue };
        let agent = store.get(&thread).unwrap().details.agent.unwrap();
        let (bytes, exported) = export(&store, &thread, None, &agent);
        if exported.messages > 0 {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(path.file_name().unwrap());
        std::fs::write(&copy, bytes).unwrap();
        let before = store.get(&thread).unwrap();
        import(&store, &copy);
        let after = store.get(&thread).unwrap();
        assert_eq!((after.items, after.head), (before.items, before.head), "{}", path.display());
        assert_eq!(store.list(ListQuery::default()).unwrap().entries.len(), 1, "{}", path.display());
    }
}

#[test]
fn a_session_for_another_agent_is_as_its_golden_file_says() {
    let mut wrong = Vec::new();
    for path in
        [sessions(EXAMPLES), sessions(&format!("{FILES}/codex")), sessions(&format!("{FILES}/claude-code"))].concat()
    {
        let Some((store, thread)) = imported(&path) else { continue };
        let from = store.get(&thread).unwrap().details.agent.unwrap();
        let to = AGENTS.into_iter().find(|agent| *agent != from).unwrap();
        let (bytes, exported) = export(&store, &thread, None, to);
        strict::check(to, &bytes).unwrap_or_else(|wrong| panic!("{} to {to}: {wrong}", path.display()));
        let losses: Vec<String> =
            exported.losses.iter().map(|loss| format!("{} × {}\n", loss.count, loss.what)).collect();
        let text = format!("{}\n{}", String::from_utf8(bytes).unwrap(), losses.concat());
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let golden = Path::new(GOLDEN).join(format!("{from}-{stem}.{to}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(GOLDEN).unwrap();
            std::fs::write(&golden, &text).unwrap();
        }
        if std::fs::read_to_string(&golden).unwrap_or_default() != text {
            wrong.push(golden.display().to_string());
        }
    }
    assert!(wrong.is_empty(), "these differ: {wrong:#?}");
}

#[test]
fn agents_that_are_not_written_for_are_refused_by_name() {
    for agent in ["", "cursor", "Codex"] {
        let refused = codec_for(agent).unwrap_err();
        assert!(matches!(&refused, Error::Invalid { field: "agent", reason } if reason.contains("claude-code")));
    }
}
