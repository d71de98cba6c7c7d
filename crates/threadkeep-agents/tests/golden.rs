//! Small files of every kind and era, each with a listing of what is made of them.
//!
//! `UPDATE_GOLDEN=1 cargo test -p threadkeep-agents --test golden` writes the listings anew.

#![cfg(test)]

#[path = "reading/run.rs"]
mod run;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use run::{Outcome, Run};
use threadkeep_agents::codec::{Codec, Place, ThreadFacts};
use threadkeep_agents::codecs;
use threadkeep_agents::segments::Segment;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files");

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "jsonl" || ending == "json" || ending == "md") {
            found.push(path);
        }
    }
    found.sort();
}

fn detected(path: &Path, bytes: &[u8]) -> Option<Arc<dyn Codec>> {
    let head = &bytes[..bytes.len().min(64 << 10)];
    let mut found = codecs().into_iter().filter(|codec| codec.detect(path, head));
    let first = found.next();
    assert!(found.next().is_none(), "{}: more than one codec takes it", path.display());
    first
}

fn listing(codec: &Arc<dyn Codec>, run: &Run, segments: &[Segment]) -> String {
    let mut out = String::new();
    for (outcome, segment) in run.outcomes.iter().zip(segments) {
        let line = segment.line();
        match outcome {
            Outcome::Opaque(reason) => {
                let reason = reason.as_deref().unwrap_or("nothing wrong");
                writeln!(out, "{line:>3}  opaque, {} bytes: {reason}", segment.bytes().len()).unwrap();
            }
            Outcome::Tail => {
                writeln!(out, "{line:>3}  tail, {} bytes: waits for the next run", segment.bytes().len()).unwrap();
            }
            Outcome::Skipped(reason) => writeln!(out, "{line:>3}  skipped: {reason}").unwrap(),
            Outcome::Beside(record) | Outcome::Placed(_, record) => {
                let view = codec.view(&record.kind, segment.bytes());
                let place = match (outcome, record.place) {
                    (Outcome::Placed(no, _), Place::Root) => format!("#{no} root"),
                    (Outcome::Placed(no, _), Place::After(after)) if after + 1 == *no => {
                        format!("#{no}")
                    }
                    (Outcome::Placed(no, _), Place::After(after)) => {
                        format!("#{no} after #{after}")
                    }
                    _ => "beside".to_owned(),
                };
                let role = record.role.as_ref().map_or("-", |role| role.as_str());
                if !matches!(record.place, Place::Beside) {
                    assert_eq!(view.role.as_ref(), record.role.as_ref(), "line {line}: the view's role");
                }
                let turn = if record.starts_turn { " turn" } else { "" };
                let damaged = if view.damaged { " damaged" } else { "" };
                let text: String = view.to_text().replace('\n', "⏎").chars().take(100).collect();
                let usage = view.usage.map_or_else(String::new, |usage| format!(" ({}/{})", usage.input, usage.output));
                writeln!(out, "{line:>3}  {place:<14} {:<11} {role:<9}{turn}{damaged} | {text}{usage}", record.kind)
                    .unwrap();
            }
        }
    }
    writeln!(out, "\nbranches: {}", run.branches()).unwrap();
    writeln!(out, "head: {}", run.head.map_or("the last record".to_owned(), |no| format!("#{no}"))).unwrap();
    if let Some(no) = run.unsettled {
        writeln!(out, "waits for the next import: from #{no} on").unwrap();
    }
    facts(&mut out, &run.facts);
    out
}

fn facts(out: &mut String, facts: &ThreadFacts) {
    let serde_json::Value::Object(facts) = serde_json::to_value(facts).unwrap() else {
        return;
    };
    for (key, value) in facts.iter().filter(|(_, value)| !value.is_null()) {
        writeln!(out, "{key}: {value}").unwrap();
    }
}

#[test]
fn every_file_reads_as_its_listing_says() {
    let mut found = Vec::new();
    files(Path::new(FILES), &mut found);
    assert!(found.len() > 20, "the files are there");
    let mut wrong = Vec::new();
    for path in found {
        let bytes = std::fs::read(&path).unwrap();
        let text = match detected(&path, &bytes) {
            None => {
                let name = path.file_name().unwrap().to_str().unwrap();
                let index = ["history.jsonl", "session_index.jsonl"].contains(&name);
                assert!(index || !name.ends_with(".jsonl"), "{}: no codec takes it", path.display());
                "not a session\n".to_owned()
            }
            Some(codec) => {
                let segments = run::segments_of(&codec, &path, &bytes);
                assert_eq!(run::joined(&segments), bytes, "{} is not what its segments say", path.display());
                assert!(path.to_str().unwrap().contains(&format!("files/{}/", codec.agent())), "{}", path.display());
                let whole = run::read(&codec, &path, &segments, None);
                run::check_splits(&codec, &path, &segments, 1);
                run::check_results(&codec, &whole, &segments, &path.display().to_string());
                listing(&codec, &whole, &segments).replace(FILES, "…")
            }
        };
        let golden = path.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        if std::fs::read_to_string(&golden).unwrap_or_default() != text {
            wrong.push(format!("{}\n{text}", golden.display()));
        }
    }
    assert!(wrong.is_empty(), "these listings differ:\n\n{}", wrong.join("\n\n"));
}

#[test]
fn the_shipped_examples_are_what_they_are_meant_to_show() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sessions");
    let mut found = Vec::new();
    files(&examples, &mut found);
    let mut seen = Vec::new();
    for path in found.iter().filter(|path| path.extension().is_some_and(|ending| ending == "jsonl")) {
        let bytes = std::fs::read(path).unwrap();
        let Some(codec) = detected(path, &bytes) else {
            continue;
        };
        let segments = run::segments_of(&codec, path, &bytes);
        let read = run::read(&codec, path, &segments, None);
        run::check_splits(&codec, path, &segments, 1);
        run::check_results(&codec, &read, &segments, &path.display().to_string());
        let damage = segments.iter().filter(|segment| !matches!(segment, Segment::Record { .. })).count();
        seen.push((codec.agent(), read.placed().len(), read.branches(), damage));
    }
    let expected = [
        ("claude-code", 41, 2, 0), // with a rewind
        ("claude-code", 6, 1, 0),  // its sub-agent
        ("claude-code", 7, 1, 2),  // a cut record with its retry glued on, and a torn tail
        ("codex", 16, 1, 0),       // bare lines
        ("codex", 37, 1, 0),       // envelopes
        ("codex", 42, 1, 0),       // numbered lines
        // One of each agent with a picture, two calls of which one fails, and words of many alphabets.
        ("claude-code", 11, 1, 0),
        ("codex", 17, 1, 0),
        ("copilot-cli", 16, 1, 0),
        ("gemini-cli", 8, 1, 0),
        ("pi", 9, 1, 0),
        ("qwen-code", 7, 1, 0),
    ];
    seen.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}
