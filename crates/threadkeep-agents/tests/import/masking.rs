//! Importing into a store that masks secrets: as if the file had been masked before, and recognised all the same.

use std::fs::OpenOptions;
use std::io::Write as _;

use serde_json::json;
use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, RedactOptions, Rules, StoreOptions, ThreadId};

use super::{SESSION, import, open, record, write};

const MARKER: &str = "[redacted:literal]";

/// Long enough to be cut in two where a preview ends.
fn secret() -> String {
    ["pass", "phrase-"].concat() + &"x1".repeat(60)
}

fn masking() -> Store {
    Store::open(StoreOptions::memory().mask_at_write(Rules::literal(secret()).unwrap())).unwrap()
}

fn lines() -> Vec<String> {
    let secret = secret();
    let prompt = format!("{} {secret} {}", "words ".repeat(25), "and more");
    vec![
        record("u1", None, "user", &prompt),
        record("a1", Some("u1"), "assistant", "No secret."),
        format!("damaged {{ {secret}"),
        format!(r#"{{"type":"summary","summary":"Of {secret}","leafUuid":"a1"}}"#),
        record("u2", Some("a1"), "user", &format!("Again: {secret}")),
    ]
}

fn stored(store: &Store) -> String {
    let thread = ThreadId::new(SESSION).unwrap();
    let items = store.items(&thread, ItemQuery::default()).unwrap().entries;
    let items: Vec<String> = items
        .iter()
        .map(|item| format!("{} {} {:?}", item.id, String::from_utf8_lossy(&item.content), item.source_id))
        .collect();
    let source = &store.sources(&thread).unwrap()[0];
    let parts = store.source_parts(&source.path, -1, 100).unwrap();
    let parts: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(&part.bytes).into_owned()).collect();
    let state = String::from_utf8_lossy(&source.state).into_owned();
    format!("{:?}\n{}\n{}\n{state}", store.get(&thread).unwrap(), items.join("\n"), parts.join("\n"))
}

#[test]
fn nothing_of_a_secret_is_stored() {
    let (folder, _) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    write(&path, &lines(), "\n");
    let store = masking();
    let report = import(&store, &path);
    assert_eq!((report.items.masked, report.items.imported, report.items.skipped), (4, 4, 1), "{report:?}");
    let stored = stored(&store);
    // The preview is cut, so even a part of the secret must not be there.
    for part in [secret(), secret()[..24].to_owned()] {
        assert!(!stored.contains(&part), "{stored}");
    }
    assert!(stored.matches(MARKER).count() >= 5, "{stored}");
    assert!(std::fs::read_to_string(&path).unwrap().contains(&secret()), "the file is as it was");
    assert!(store.verify(&ThreadId::new(SESSION).unwrap()).unwrap().is_intact());
}

#[test]
fn an_import_goes_on_and_finds_again_what_was_masked() {
    let (folder, plain) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let all = lines();
    write(&path, &all[..2], "\n");
    let store = masking();
    import(&store, &path);
    assert_eq!(import(&store, &path).files.unchanged, 1);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    writeln!(file, "{}", all[2..].join("\n")).unwrap();
    let report = import(&store, &path);
    assert_eq!((report.items.unchanged, report.items.imported, report.items.masked), (2, 2, 3), "{report:?}");
    let thread = ThreadId::new(SESSION).unwrap();
    assert_eq!(store.get(&thread).unwrap().branches, 1);

    // In one go it comes to the same, and the items have the ids that they have where nothing is masked.
    let at_once = masking();
    import(&at_once, &path);
    let ids = |store: &Store| -> Vec<_> {
        let page = store.items(&thread, ItemQuery::default()).unwrap();
        page.entries.into_iter().map(|item| item.id).collect()
    };
    import(&plain, &path);
    assert_eq!((ids(&at_once), ids(&plain)), (ids(&store), ids(&store)));

    // Read anew from its beginning, because something there was changed: what is there is known, masked as it is.
    let changed = all.join("\n").replace("damaged", "still damaged");
    std::fs::write(&path, changed + "\n").unwrap();
    let report = import(&store, &path);
    assert_eq!((report.items.imported, report.items.unchanged, report.items.skipped), (1, 3, 1), "{report:?}");
    assert_eq!(store.get(&thread).unwrap().branches, 1);
    assert!(!stored(&store).contains(&secret()));
}

/// A document of Gemini CLI, which is written anew with every message; the first is the preview.
fn document(messages: usize) -> String {
    let text =
        |number: usize| if number == 0 { format!("the key is {} ok", secret()) } else { format!("message {number}") };
    let message = |number: usize| {
        let kind = if number.is_multiple_of(2) { "user" } else { "gemini" };
        json!({"id": format!("m{number}"), "timestamp": "2026-05-19T10:42:04.510Z", "type": kind, "content": text(number)})
    };
    let messages: Vec<_> = (0..messages).map(message).collect();
    let whole = json!({"sessionId": SESSION, "projectHash": "p", "startTime": "2026-05-19T10:42:01.510Z",
        "lastUpdated": "2026-05-19T10:42:01.510Z", "summary": format!("of {}", secret()), "messages": messages});
    serde_json::to_string_pretty(&whole).unwrap()
}

fn because() -> RedactOptions {
    RedactOptions { reason: "it leaked".to_owned(), ..RedactOptions::default() }
}

/// What was masked on the way in, or redacted since, comes back with no later import, whatever that one masks: neither in items nor
/// beside them, in no name and in nothing that is remembered of the file.
#[test]
fn nothing_that_was_masked_comes_back_when_a_file_is_read_anew() {
    let thread = ThreadId::new(SESSION).unwrap();
    for (is_document, is_masked_at_import) in [(true, true), (true, false), (false, true), (false, false)] {
        let case = format!("document: {is_document}, masked at import: {is_masked_at_import}");
        let folder = tempfile::tempdir().unwrap();
        let name = if is_document { format!("chats/session-{SESSION}.json") } else { format!("{SESSION}.jsonl") };
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let write_to = |messages: usize| match is_document {
            true => std::fs::write(&path, document(messages)).unwrap(),
            // A space at the beginning: all of it is read anew.
            false => {
                let more = record("u9", Some("a1"), "user", "No secret either.");
                let lines = [&lines()[..4], std::slice::from_ref(&more)].concat();
                std::fs::write(&path, " ".repeat(messages) + &lines[..messages].join("\n") + "\n").unwrap();
            }
        };
        write_to(4);
        let at = folder.path().join("store");
        if is_masked_at_import {
            let options = StoreOptions::folder(&at).mask_at_write(Rules::literal(secret()).unwrap());
            import(&Store::open(options).unwrap(), &path);
        }
        let store = Store::open(StoreOptions::folder(&at)).unwrap();
        if !is_masked_at_import {
            import(&store, &path);
            assert!(stored(&store).contains(&secret()[..24]), "{case}: this proves nothing");
            store.redact_matching(None, Rules::literal(secret()).unwrap(), because(), true, |_, _| {}).unwrap();
        }
        let before = store.get(&thread).unwrap();
        write_to(5);
        let report = import(&store, &path);
        assert_eq!(report.files.failed, 0, "{case}: {report:?}");
        let stored = stored(&store);
        assert!(!stored.contains(&secret()[..24]), "{case}: {stored}");
        let after = store.get(&thread).unwrap();
        assert_eq!(after.details.title, before.details.title, "{case}");
        assert_eq!((after.items, after.branches), (before.items + 1, 1), "{case}: {report:?}");
        assert!(store.verify(&thread).unwrap().is_intact());
    }
}

/// Of what was taken away whole nothing comes back either: no name that was made of it.
#[test]
fn no_name_of_what_was_taken_away_comes_back() {
    let thread = ThreadId::new(SESSION).unwrap();
    let (folder, store) = open();
    let path = folder.path().join("chats").join(format!("session-{SESSION}.json"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, document(4).replace("\"summary\"", "\"other\"")).unwrap();
    import(&store, &path);
    let first = store.items(&thread, ItemQuery { limit: 1, ..ItemQuery::default() }).unwrap().entries[0].address();
    store.redact(&thread, vec![first], because()).unwrap();
    assert_eq!(store.get(&thread).unwrap().details.preview, None);
    std::fs::write(&path, document(6).replace("\"summary\"", "\"other\"")).unwrap();
    import(&store, &path);
    let after = store.get(&thread).unwrap();
    assert_eq!((after.items, after.details.preview.as_deref()), (6, None));
    let item = &store.items(&thread, ItemQuery { limit: 1, ..ItemQuery::default() }).unwrap().entries[0];
    assert!(item.redaction.is_some());
    let source = &store.sources(&thread).unwrap()[0];
    assert!(!String::from_utf8_lossy(&source.state).contains(&secret()[..24]));
}
