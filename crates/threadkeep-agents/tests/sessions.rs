//! Sessions that are no single file of their own: trees of small files, and databases that are made from SQL, each with a
//! listing of the threads that become of them.
//!
//! `UPDATE_GOLDEN=1 cargo test -p threadkeep-agents --test sessions` writes the listings anew.

#![cfg(test)]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, ListQuery, StoreOptions, Thread};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

const SESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sessions");

/// What lies in an agent's folder, but for listings.
fn cases() -> Vec<(String, PathBuf)> {
    let mut cases = Vec::new();
    for agent in std::fs::read_dir(SESSIONS).unwrap() {
        let agent = agent.unwrap();
        for case in std::fs::read_dir(agent.path()).unwrap() {
            let path = case.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "txt") {
                cases.push((agent.file_name().into_string().unwrap(), path));
            }
        }
    }
    cases.sort();
    cases
}

/// The name that an agent's database has.
fn database_name(agent: &str, case: &Path) -> &'static str {
    let case = case.file_name().unwrap().to_str().unwrap();
    match agent {
        "cursor" if case.starts_with("store") => "store.db",
        "cursor" => "state.vscdb",
        "opencode" => "opencode.db",
        "crush" => "crush.db",
        "zed" => "threads.db",
        "hermes" => "state.db",
        _ => "sessions.db",
    }
}

/// Puts a case where it can be imported from: a tree as it is, a database made from its statements.
fn lay_out(agent: &str, case: &Path, folder: &Path) -> PathBuf {
    if case.is_dir() {
        return case.to_owned();
    }
    let folder = folder.join(agent);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(database_name(agent, case));
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.execute_batch(&std::fs::read_to_string(case).unwrap()).unwrap();
    folder
}

fn import(store: &Store, path: &Path) -> ImportReport {
    let report = Importer::new(store, ImportOptions::default()).run(&[path.to_owned()], &mut |_| {}).unwrap();
    let items = &report.items;
    assert_eq!(items.read, items.imported + items.unchanged + items.skipped, "{}: {report:?}", path.display());
    report
}

fn listing(store: &Store, report: &ImportReport, folder: &Path) -> String {
    let mut out = String::new();
    let both = ListQuery { shelves: threadkeep::Shelves::Both, ..ListQuery::default() };
    let mut threads = store.list(both).unwrap().entries;
    threads.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
    for thread in &threads {
        describe(&mut out, store, thread);
    }
    let items = &report.items;
    writeln!(out, "read {}, imported {}, skipped {}", items.read, items.imported, items.skipped).unwrap();
    let root = folder.canonicalize().unwrap().display().to_string();
    // Sessions are read in the order of their times, which files have from whoever put them there.
    let mut problems: Vec<_> = report.problems.iter().collect();
    problems.sort_by_key(|problem| (&problem.file, problem.line));
    for problem in problems {
        writeln!(out, "{}:{} {}", problem.file, problem.line, problem.reason).unwrap();
    }
    out.replace(&root, "…")
}

fn describe(out: &mut String, store: &Store, thread: &Thread) {
    let details = &thread.details;
    writeln!(out, "thread {} ({:?}), {} items, {} branches", thread.id, thread.shelf, thread.items, thread.branches)
        .unwrap();
    let facts = [
        ("title", details.title.clone()),
        ("preview", details.preview.clone()),
        ("cwd", details.cwd.clone()),
        ("model", details.model.clone()),
        ("provider", details.provider.clone()),
        ("version", details.cli_version.clone()),
        ("source", details.source.clone()),
        ("parent", details.parent.as_ref().map(ToString::to_string)),
        ("usage", details.usage.map(|usage| format!("{usage:?}"))),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            writeln!(out, "  {name}: {fact}").unwrap();
        }
    }
    let codecs = threadkeep_agents::codecs();
    for item in store.items(&thread.id, ItemQuery::default()).unwrap().entries {
        let codec = codecs.iter().find(|codec| codec.format() == item.format).unwrap();
        let view = codec.view(&item.kind, &item.content);
        assert_eq!(view.role, item.role, "the view's role: {}", view.to_text());
        let role = item.role.as_ref().map_or("-", |role| role.as_str());
        let text: String = view.to_text().replace('\n', "⏎").chars().take(110).collect();
        let damaged = if view.damaged { " damaged" } else { "" };
        writeln!(out, "  {:>2} {:<11} {role:<9}{damaged} | {text}", item.depth, item.kind.to_string()).unwrap();
    }
    writeln!(out).unwrap();
}

/// The bytes of a source as the store gives them back: what was read, without a gap.
fn check_given_back(store: &Store) {
    for stamp in store.source_stamps("", 1_000).unwrap() {
        let source = store.source(&stamp.path).unwrap().unwrap();
        let mut end = 0;
        let mut hasher = blake3::Hasher::new();
        for part in store.source_parts(&stamp.path, -1, 1_000).unwrap() {
            if part.position == end + 1 {
                hasher.update(b"\n");
                end += 1;
            }
            assert_eq!(part.position, end, "a gap in {}", stamp.path);
            hasher.update(&part.bytes);
            end += part.length;
        }
        if source.consumed == end + 1 {
            hasher.update(b"\n");
            end += 1;
        }
        assert_eq!(source.consumed, end, "{}", stamp.path);
        assert_eq!(source.prefix.0, *hasher.finalize().as_bytes(), "{}", stamp.path);
    }
}

#[test]
fn every_case_becomes_the_threads_of_its_listing() {
    let mut wrong = Vec::new();
    for (agent, case) in cases() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
        let path = lay_out(&agent, &case, folder.path());
        let first = import(&store, &path);
        let text = listing(&store, &first, &path);
        check_given_back(&store);
        let again = import(&store, &path);
        assert_eq!(again.items.imported, 0, "{}: the second import changed something", case.display());
        assert_eq!(again.items.read, first.items.read, "{}", case.display());
        // But for what its agent was at work on: it may be done by now.
        let waits = first.waiting.len() as u64;
        assert_eq!(again.files.read, waits, "{}: something was read again", case.display());
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
        let golden = PathBuf::from(format!("{}.txt", case.display()));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        if std::fs::read_to_string(&golden).unwrap_or_default() != text {
            wrong.push(format!("{}\n{text}", golden.display()));
        }
    }
    assert!(wrong.is_empty(), "these listings differ:\n\n{}", wrong.join("\n\n"));
}
