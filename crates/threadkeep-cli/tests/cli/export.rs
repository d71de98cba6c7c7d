//! Giving an imported file back, byte by byte.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::sandbox::{Sandbox, samples};

fn sessions(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sessions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(path);
        }
    }
}

#[test]
fn an_export_is_the_file_that_was_imported() {
    let mut files = Vec::new();
    sessions(&samples(), &mut files);
    let mut exported = 0;
    for file in files {
        let sandbox = Sandbox::new();
        sandbox.run(&["import", file.to_str().unwrap()]);
        if !sandbox.database().exists() || sandbox.json(&["list"])["threads"].as_array().unwrap().is_empty() {
            continue;
        }
        let original = fs::read(&file).unwrap();
        // A last line without an end waits for the next import.
        let complete = original.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let output = sandbox.run(&["export", "-", "--verbatim"]);
        assert!(output.status.success());
        assert!(output.stdout == original[..complete], "{}", file.display());
        exported += 1;
    }
    assert!(exported >= 5);
}

#[test]
fn a_file_is_written_whole_and_for_its_owner_alone() {
    let sandbox = Sandbox::new();
    let sample = samples().join("codex/sessions/2026/03/14");
    sandbox.ok(&["import", sample.to_str().unwrap()]);
    let target = sandbox.path("project/out.jsonl");
    fs::write(&target, "older").unwrap();
    let report = sandbox.json(&["export", "-", "--verbatim", "-o", "out.jsonl"]);
    let written = fs::read(&target).unwrap();
    assert_eq!(report["bytes"], written.len());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(written, sandbox.run(&["export", "-", "--verbatim"]).stdout);
    assert_eq!(fs::read_dir(sandbox.path("project")).unwrap().count(), 1, "no part of the file stays behind");
    assert_eq!(sandbox.code(&["export", "-", "--verbatim", "-o", "."]), 2);
    assert_eq!(sandbox.code(&["export", "-", "--verbatim", "-o", "no/such/folder"]), 3);
    assert_eq!(sandbox.code(&["export", "-", "--verbatim"]), 2, "bytes are no document");
}

#[test]
fn a_thread_that_was_not_imported_has_no_file() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    let output = sandbox.run(&["export", "one", "--verbatim"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
}
