//! Real files of the agents, where they are at hand: they may not be part of the repository.

#![cfg(test)]

#[path = "reading/run.rs"]
mod run;
#[path = "export/strict.rs"]
mod strict;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep::blocking::Store;
use threadkeep::{Error, ListQuery, Shelves, StoreOptions};
use threadkeep_agents::codec::Codec;
use threadkeep_agents::codecs;
use threadkeep_agents::export::{Export, codec_for};
use threadkeep_agents::import::{ImportOptions, Importer};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/samples");

/// Every file of the corpus; empty where there is none.
fn samples() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(SAMPLES)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn codec_of(path: &Path, bytes: &[u8]) -> Option<Arc<dyn Codec>> {
    let head = &bytes[..bytes.len().min(64 << 10)];
    let mut found = codecs().into_iter().filter(|codec| codec.detect(path, head));
    let first = found.next();
    assert!(found.next().is_none(), "{}: more than one codec takes it", path.display());
    first
}

#[test]
fn each_codec_takes_its_own_agents_files_only() {
    for path in samples() {
        let bytes = std::fs::read(&path).unwrap();
        let Some(codec) = codec_of(&path, &bytes) else {
            continue;
        };
        let folder = path.strip_prefix(SAMPLES).unwrap().components().next().unwrap();
        let agent = if codec.agent() == "roo-code" { "roo" } else { codec.agent() };
        assert_eq!(folder.as_os_str(), agent, "{}", path.display());
        let name = path.file_name().unwrap().to_str().unwrap();
        let index = name == "history.jsonl" || name.contains("index");
        assert!(!index, "{name} is no session");
    }
}

#[test]
fn every_real_session_is_taken() {
    for path in samples() {
        let name = path.to_str().unwrap().to_owned();
        // What Hermes tells a collector of telemetry is no session.
        let other = ["/history.jsonl", "/atof-real-redacted.jsonl"].iter().any(|ending| name.ends_with(ending));
        let session = name.ends_with(".jsonl") && !other && !name.contains("index");
        let real = name.contains("/claude-code/real-") || name.contains("/mock-");
        let folder = path.strip_prefix(SAMPLES).unwrap().components().next().unwrap();
        let known = codecs().iter().any(|codec| folder.as_os_str() == codec.agent());
        let lined = known && !["claude-code", "codex"].iter().any(|agent| folder.as_os_str() == *agent);
        if session && (lined || (known && real)) {
            let bytes = std::fs::read(&path).unwrap();
            assert!(codec_of(&path, &bytes).is_some(), "{name}");
        }
    }
}

#[test]
fn segments_give_every_file_back() {
    for path in samples() {
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(run::joined(&run::segments(&bytes)), bytes, "{}", path.display());
        if let Some(codec) = codec_of(&path, &bytes) {
            assert_eq!(run::joined(&run::segments_of(&codec, &path, &bytes)), bytes, "{}", path.display());
        }
    }
}

#[test]
fn sessions_read_the_same_in_parts_and_keep_their_results() {
    for path in samples() {
        let bytes = std::fs::read(&path).unwrap();
        let Some(codec) = codec_of(&path, &bytes) else {
            continue;
        };
        let segments = run::segments_of(&codec, &path, &bytes);
        let whole = run::read(&codec, &path, &segments, None);
        run::check_results(&codec, &whole, &segments, &path.display().to_string());
        for (outcome, segment) in whole.outcomes.iter().zip(&segments) {
            if let run::Outcome::Placed(_, record) = outcome {
                let view = codec.view(&record.kind, segment.bytes());
                assert_eq!(view.role, record.role, "{} line {}", path.display(), segment.line());
            }
        }
        // Small files at every cut, large ones at some.
        run::check_splits(&codec, &path, &segments, 1 + bytes.len() / 20_000);
    }
}

/// How many branches a file's places make.
fn branches(name: &str) -> Option<usize> {
    let path = Path::new(SAMPLES).join(name);
    let bytes = std::fs::read(&path).ok()?;
    let codec = codec_of(&path, &bytes).unwrap();
    let run = run::read(&codec, &path, &run::segments_of(&codec, &path, &bytes), None);
    Some(run.branches())
}

#[test]
fn parent_links_of_real_sessions_make_no_branches() {
    // 49 records of the first file have two children, each time a progress line beside a tool result, and one prompt's
    // parent is missing; nobody went back in it. Neither did anybody in the others, whatever their links say.
    let linear = [
        "claude-code/real-2.1.29-image-user.jsonl",
        "claude-code/real-2.1.14-two-compactions.jsonl",
        "claude-code/real-2.1.12-two-session-ids.jsonl",
        "claude-code/real-2.1.7+2.1.12-glued-line.jsonl",
        "claude-code/real-2.1.17-cjk-emoji.jsonl",
        "claude-code/real-2.1.19-agent-progress.jsonl",
        "claude-code/real-2.1.41-agent-progress.jsonl",
    ];
    for name in linear {
        let Some(branches) = branches(name) else {
            continue;
        };
        assert_eq!(branches, 1, "{name}");
    }
}

#[test]
fn a_rewind_and_an_inline_sub_agent_are_branches() {
    if let Some(branches) = branches("claude-code/fixture-forked.jsonl") {
        assert_eq!(branches, 2);
    }
    let inline = "claude-code/mock-1.0.44-subagent/-tmp-ag-proj/356b62f1-9d80-4d47-b96b-1bfb9050f302.jsonl";
    if let Some(branches) = branches(inline) {
        assert_eq!(branches, 2);
    }
}

#[test]
fn every_session_is_written_for_both_agents() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    if samples().is_empty() {
        return;
    }
    Importer::new(&store, ImportOptions::default()).run(&[SAMPLES.into()], &mut |_| {}).unwrap();
    let query = ListQuery { limit: 2_000, shelves: Shelves::Both, ..ListQuery::default() };
    let threads = store.list(query).unwrap().entries;
    assert!(threads.len() > 50, "{} threads", threads.len());
    for agent in ["codex", "claude-code"] {
        let (mut own, mut anew, mut records, mut messages) = (0, 0, 0, 0);
        let mut losses = std::collections::BTreeMap::new();
        for thread in &threads {
            let export = Export::new(&store, &thread.id, None, codec_for(agent).unwrap(), &|_| None).unwrap();
            let mut bytes = Vec::new();
            let exported = export
                .write::<Error>(&mut |part| {
                    bytes.extend_from_slice(part);
                    Ok(())
                })
                .unwrap();
            let is_anew = exported.records == 0;
            let outcome = if is_anew { strict::check(agent, &bytes) } else { strict::lines(&bytes).map(drop) };
            outcome.unwrap_or_else(|wrong| panic!("{} to {agent}: {wrong}", thread.id));
            own += u32::from(!is_anew);
            anew += u32::from(is_anew);
            records += exported.records;
            messages += exported.messages;
            for loss in exported.losses {
                *losses.entry(loss.what).or_insert(0) += loss.count;
            }
        }
        eprintln!("{agent}: {own} of its own ({records} records), {anew} of others ({messages} messages)");
        for (what, count) in losses {
            eprintln!("  {count} × {what}");
        }
    }
}
