//! Importing real and hand-made files into a store.

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::StoreOptions;
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

fn import(store: &Store, path: &Path) -> ImportReport {
    let report = Importer::new(store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {}).unwrap();
    let items = &report.items;
    assert_eq!(items.read, items.imported + items.unchanged + items.skipped, "{}: the counts do not add up", path.display());
    report
}

/// The file's bytes as the store gives them back.
fn given_back(store: &Store, path: &Path) -> Vec<u8> {
    let key = path.canonicalize().unwrap().to_str().unwrap().to_owned();
    let consumed = store.source(&key).unwrap().unwrap().consumed;
    let mut out: Vec<u8> = Vec::new();
    let mut after = -1;
    loop {
        let parts = store.source_parts(&key, after, 100).unwrap();
        let Some(last) = parts.last() else { break };
        after = last.position;
        for part in parts {
            if part.position == out.len() as i64 + 1 {
                out.push(b'\n');
            }
            assert_eq!(part.position, out.len() as i64, "there is a gap in {}", path.display());
            out.extend_from_slice(&part.bytes);
        }
    }
    if consumed == out.len() as i64 + 1 {
        out.push(b'\n');
    }
    assert_eq!(consumed, out.len() as i64);
    out
}

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples")
}

#[test]
fn every_sample_is_imported_once_verifies_and_is_given_back() {
    if !samples().is_dir() {
        // The corpus is not part of the repository; the files beside this test are.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    for agent in ["codex", "claude-code"] {
        let path = samples().join(agent);
        let first = import(&store, &path);
        eprintln!("{agent}: {:?} {:?} {:?}", first.files, first.threads, first.items);
        for problem in &first.problems {
            eprintln!("  {}:{} {}", problem.file, problem.line, problem.reason);
        }
        assert!(first.items.imported > 0);
        let again = import(&store, &path);
        assert_eq!(again.items.imported, 0, "the second import changed something");
        assert_eq!(again.items.read, first.items.read);
        assert_eq!((again.threads.new, again.threads.updated), (0, 0));
    }
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!(report.invalid, Default::default());
    assert_eq!(report.threads, report.valid);
    for stamp in store.source_stamps("", 10_000).unwrap() {
        let path = PathBuf::from(&stamp.path);
        let bytes = if path.extension().is_some_and(|ending| ending == "zst") {
            continue;
        } else {
            std::fs::read(&path).unwrap()
        };
        let back = given_back(&store, &path);
        assert!(bytes.starts_with(&back), "{} is not given back", path.display());
    }
}
