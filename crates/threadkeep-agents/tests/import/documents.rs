//! Sessions that are one document, which their agent writes anew.

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, ListQuery, StoreOptions, Thread, ThreadId, ThreadPatch};
use threadkeep_agents::import::{ImportOptions, Importer};

use super::{given_back, import};

fn store(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder.join("store"))).unwrap()
}

/// A session of Gemini CLI as it is written to disk.
fn session(messages: &[&str]) -> String {
    let last = messages.len();
    format!(
        "{{\n  \"sessionId\": \"s-1\",\n  \"projectHash\": \"x\",\n  \"lastUpdated\": \"2026-01-02T03:04:{last:02}.000Z\",\n  \
         \"messages\": [\n    {}\n  ],\n  \"summary\": \"A talk\"\n}}\n",
        messages.join(",\n    ")
    )
}

fn said(id: &str, kind: &str, text: &str) -> String {
    format!("{{\"id\":\"{id}\",\"timestamp\":\"2026-01-02T03:04:05.678Z\",\"type\":\"{kind}\",\"content\":\"{text}\"}}")
}

fn thread(store: &Store) -> Thread {
    store.get(&ThreadId::new("s-1").unwrap()).unwrap()
}

fn texts(store: &Store) -> Vec<String> {
    let page = store.items(&thread(store).id, ItemQuery::default()).unwrap();
    let codec = threadkeep_agents::gemini_cli::GeminiCli;
    page.entries.iter().map(|item| threadkeep::ViewCodec::view(&codec, &item.kind, &item.content).to_text()).collect()
}

#[test]
fn a_document_with_one_more_message_brings_that_message() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (store(folder.path()), folder.path().join("session-a.json"));
    let (one, two, three) = (said("1", "user", "Fix it"), said("2", "gemini", "Done"), said("3", "user", "Thanks"));
    std::fs::write(&file, session(&[&one, &two])).unwrap();
    assert_eq!(import(&store, &file).items.imported, 2);
    store.update(&thread(&store).id, ThreadPatch::title("Mine")).unwrap();

    std::fs::write(&file, session(&[&one, &two, &three])).unwrap();
    let report = import(&store, &file);
    assert_eq!((report.items.imported, report.items.unchanged, report.items.skipped), (1, 2, 0));
    assert_eq!(texts(&store), ["Fix it", "Done", "Thanks"]);
    assert_eq!(thread(&store).branches, 1);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
    // What the document says again is not said anew: a name given here stays.
    assert_eq!(thread(&store).details.title.as_deref(), Some("Mine"));
    assert_eq!(import(&store, &file).files.unchanged, 1);
}

#[test]
fn a_document_whose_beginning_was_changed_goes_on_as_a_branch() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (store(folder.path()), folder.path().join("session-a.json"));
    let (one, two) = (said("1", "user", "Fix it"), said("2", "gemini", "Done"));
    std::fs::write(&file, session(&[&one, &two])).unwrap();
    import(&store, &file);
    let other = said("2", "gemini", "Done at last");
    std::fs::write(&file, session(&[&one, &other])).unwrap();
    assert_eq!(import(&store, &file).items.imported, 1);
    assert_eq!(texts(&store), ["Fix it", "Done at last"]);
    assert_eq!(thread(&store).branches, 2);
}

#[test]
fn an_unfinished_last_message_waits_and_its_bytes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (store(folder.path()), folder.path().join("session-a.json"));
    let one = said("1", "user", "Fix it");
    let call = |status: &str, result: &str| {
        format!(
            "{{\"id\":\"2\",\"type\":\"gemini\",\"content\":\"I look\",\"toolCalls\":[{{\"id\":\"c\",\"name\":\"ls\",\
             \"args\":{{}},\"status\":\"{status}\"{result}}}]}}"
        )
    };
    std::fs::write(&file, session(&[&one, &call("executing", "")])).unwrap();
    let report = import(&store, &file);
    assert_eq!((report.items.read, report.items.imported), (1, 1));
    assert!(report.problems.iter().any(|problem| problem.reason.contains("waits for the next import")), "{report:?}");
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());

    std::fs::write(&file, session(&[&one, &call("success", ",\"result\":[\"a.txt\"]")])).unwrap();
    let report = import(&store, &file);
    assert_eq!((report.items.imported, report.items.unchanged), (1, 1));
    assert_eq!(texts(&store).len(), 2);
    assert_eq!(thread(&store).branches, 1);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
}

/// A session that waits is read at every import. Where nothing has come to it, its thread does not become the latest one.
#[test]
fn a_session_that_waits_is_not_the_latest_for_having_been_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let homes = folder.path().join("homes");
    let waiting = said("w", "gemini", "I look").replace(
        "\"content\"",
        "\"toolCalls\":[{\"id\":\"c\",\"name\":\"ls\",\"args\":{},\"status\":\"executing\"}],\"content\"",
    );
    // One of several steps is looked at as a whole, too.
    for (name, records) in [("short", 1), ("long", 3_000)] {
        let mut messages: Vec<String> =
            (0..records).map(|number| said(&number.to_string(), "user", "Fix it")).collect();
        messages.push(waiting.clone());
        let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
        let file = homes.join(format!("{name}/chats/session-{name}.json"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, session(&messages).replace("s-1", name)).unwrap();
        import(&store, &file);
    }
    let latest = homes.join("latest/chats/session-latest.json");
    std::fs::create_dir_all(latest.parent().unwrap()).unwrap();
    std::fs::write(&latest, session(&[&said("1", "user", "Fix it"), &said("2", "gemini", "Done")])).unwrap();
    import(&store, &latest);
    let listed = || {
        let threads = store.list(ListQuery::default()).unwrap().entries;
        threads.into_iter().map(|thread| (thread.id, thread.items)).collect::<Vec<_>>()
    };
    let before = listed();
    let look = ImportOptions { dry_run: true, ..ImportOptions::default() };
    let look = Importer::new(&store, look).run(std::slice::from_ref(&homes), &mut |_| {}).unwrap();
    assert_eq!((look.items.imported, look.threads.updated, look.threads.unchanged), (0, 0, 3), "{look:?}");
    for _ in 0..2 {
        let report = import(&store, &homes);
        assert_eq!((report.items.imported, report.files.failed, report.waiting.len()), (0, 0, 2), "{report:?}");
        assert_eq!(listed(), before);
    }
    assert!(store.claims().unwrap().is_empty());
}

#[test]
fn damage_in_a_document_costs_the_message_that_it_is_in() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (store(folder.path()), folder.path().join("session-a.json"));
    let (one, bad, three) = (said("1", "user", "Fix it"), said("2", "gemini", "Done"), said("3", "user", "Thanks"));
    let bad = bad.replace("Done\"", "Done");
    std::fs::write(&file, session(&[&one, &bad, &three])).unwrap();
    let report = import(&store, &file);
    assert_eq!((report.items.read, report.items.imported, report.items.skipped), (3, 2, 1));
    assert_eq!(report.problems.len(), 1);
    assert_eq!(report.problems[0].line, 7);
    assert_eq!(texts(&store), ["Fix it", "Thanks"]);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
}

#[test]
fn a_document_of_many_messages_is_imported_in_steps() {
    let folder = tempfile::tempdir().unwrap();
    let (store, file) = (store(folder.path()), folder.path().join("session-a.json"));
    let messages: Vec<String> = (0..1_000).map(|no| said(&no.to_string(), "user", &format!("No. {no}"))).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    std::fs::write(&file, session(&messages)).unwrap();
    assert_eq!(import(&store, &file).items.imported, 1_000);
    assert_eq!(given_back(&store, &file), std::fs::read(&file).unwrap());
}
