//! Threads of every agent, written for these.

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{ListQuery, StoreOptions};
use threadkeep_agents::codecs;
use threadkeep_agents::export::{Export, codec_for};
use threadkeep_agents::import::{ImportOptions, Importer};
use threadkeep_agents::writer::Session;

use super::{AGENTS, strictly};

fn import(store: &Store, path: &Path) -> threadkeep_agents::import::ImportReport {
    Importer::new(store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {}).unwrap()
}

fn export(store: &Store, thread: &threadkeep::Thread, agent: &str) -> Vec<u8> {
    let mask = |_: &[u8]| None;
    let export = Export::new(store, &thread.id, None, codec_for(agent).unwrap(), &mask).unwrap();
    let mut out = Vec::new();
    export
        .write::<threadkeep::Error>(&mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    out
}

/// What comes from another agent is what these agents take; what comes from themselves is what they left.
#[test]
fn threads_of_every_agent_can_be_gone_on_with() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let store = Store::open(StoreOptions::memory()).unwrap();
    for codec in codecs() {
        let folder = files.join(codec.agent());
        if folder.is_dir() {
            import(&store, &folder);
        }
    }
    let threads = store.list(ListQuery { limit: 1_000, ..ListQuery::default() }).unwrap().entries;
    assert!(threads.len() > 30);
    for thread in threads {
        for agent in AGENTS {
            let what = format!("{} for {agent}", thread.id);
            let first = export(&store, &thread, agent);
            assert_eq!(export(&store, &thread, agent), first, "{what}: twice the same");
            if thread.details.agent.as_deref() == Some(agent) {
                continue;
            }
            strictly(agent, &first);
            // It can be taken in again, as one line.
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("events.jsonl");
            std::fs::write(&file, &first).unwrap();
            let other = Store::open(StoreOptions::memory()).unwrap();
            let report = import(&other, &file);
            assert_eq!(report.items.skipped, 0, "{what}: {:?}", report.problems);
        }
    }
}

/// A file that its agent left whole comes back byte by byte, and one that lacks what its agent needs is written anew.
#[test]
fn an_agents_own_file_comes_back_as_it_was() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let whole = [
        ("pi", "2026-04-02T09-00-00-000Z_019d4a00-1111-7222-8333-444455556666.jsonl", true),
        ("pi", "v1-linear.jsonl", true),
        ("pi", "begun-anew.jsonl", true),
        ("pi", "2026-04-02T09-00-00-000Z_3e4f9f3d-5555-4666-8777-88889999aaaa.jsonl", false),
        ("qwen-code", "7f0a1b2c-1111-4222-8333-444455556666.jsonl", true),
        ("copilot-cli", "9b2c3d4e-1111-4222-8333-444455556666/events.jsonl", true),
        ("copilot-cli", "ab3c4d5e-2222-4333-8444-555566667777.jsonl", true),
    ];
    for (agent, name, is_whole) in whole {
        let path = files.join(agent).join(name);
        let store = Store::open(StoreOptions::memory()).unwrap();
        import(&store, &path);
        let thread = store.list(ListQuery::default()).unwrap().entries.remove(0);
        let out = export(&store, &thread, agent);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(out == bytes, is_whole, "{name}");
        if !is_whole {
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with("{\"type\":\"session\"") || text.starts_with("{\"cwd\""), "{text}");
            assert!(text.contains("Count to three") && text.contains("Two, again"), "{text}");
        }
    }
}

/// pi and Qwen Code find no session of another folder, so one that is to be gone on with elsewhere is written anew.
#[test]
fn a_file_of_another_folder_is_not_kept() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    for (agent, name) in [
        ("pi", "2026-04-02T09-00-00-000Z_019d4a00-1111-7222-8333-444455556666.jsonl"),
        ("qwen-code", "7f0a1b2c-1111-4222-8333-444455556666.jsonl"),
    ] {
        let bytes = std::fs::read(files.join(agent).join(name)).unwrap();
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap();
        let codec = codec_for(agent).unwrap();
        for (cwd, is_kept) in [("/home/dev/webshop", true), ("/elsewhere", false)] {
            let at = threadkeep::Timestamp(0);
            let session = Session { cwd: Some(cwd.into()), ..Session::new("7f0a1b2c-1111-4222-8333-444455556666", at) };
            assert_eq!(codec.writer(&session).unwrap().keep(first), is_kept, "{agent} {cwd}");
        }
    }
}
