//! Importing into a store that masks secrets: as if the file had been masked before, and recognised all the same.

use std::fs::OpenOptions;
use std::io::Write as _;

use threadkeep::blocking::Store;
use threadkeep::{ItemQuery, Rules, StoreOptions, ThreadId};

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
