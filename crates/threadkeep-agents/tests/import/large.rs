//! Files of which much is wrong, or very large, take no more room than they must.

use std::path::{Path, PathBuf};

use super::{given_back, import, open};

const PAGE: usize = 8 << 20;

fn claude(number: u32) -> String {
    let (id, parent) = (format!("00000000-0000-4000-8000-{number:012}"), number.checked_sub(1));
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"00000000-0000-4000-8000-{parent:012}\""));
    format!(
        r#"{{"parentUuid":{parent},"isSidechain":false,"type":"user","uuid":"{id}","sessionId":"00000001-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:00:00.000Z","cwd":"/srv/shop","message":{{"role":"user","content":"hm"}}}}"#
    )
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_file_is_read_from_the_store_in_pages_of_bytes() {
    let (folder, store) = open();
    let damage = format!("{}\n", "x".repeat(1 << 20)).repeat(40);
    let bytes = format!("{}\n{damage}{}\n", claude(0), claude(1)).into_bytes();
    let path = written(folder.path(), "session.jsonl", &bytes);
    import(&store, &path);
    let key = path.canonicalize().unwrap().to_str().unwrap().to_owned();
    let (mut pages, mut after) = (0, -1);
    loop {
        let page = store.source_parts(&key, after, 500).unwrap();
        let Some(last) = page.last() else { break };
        let before: usize = page[..page.len() - 1].iter().map(|part| part.bytes.len()).sum();
        assert!(before < PAGE, "{before} bytes and one part more");
        (pages, after) = (pages + 1, last.position);
    }
    assert!(pages >= 5, "{pages}");
    assert_eq!(given_back(&store, &path).len(), bytes.len());
}

#[test]
fn of_very_many_wrong_lines_the_first_are_told_and_how_many_more_there_are() {
    let (folder, store) = open();
    let wrong = "{\"type\":\"us\n".repeat(5_000);
    let bytes = format!("{}\n{wrong}{}\n", claude(0), claude(1));
    let path = written(folder.path(), "session.jsonl", bytes.as_bytes());
    let report = import(&store, &path);
    assert_eq!(report.items.imported, 2);
    assert_eq!(report.problems.len(), 1_001);
    let last = report.problems.last().unwrap();
    assert_eq!(last.line, 5_001);
    assert!(last.reason.starts_with("4000 more are wrong, this one the last: "), "{}", last.reason);
    assert_eq!(given_back(&store, &path), bytes.as_bytes());
}

/// What stands twice in one place is one item, however much stands between.
#[test]
fn records_that_stand_twice_in_one_place_are_told_apart_from_new_ones_far_behind_them() {
    let (folder, store) = open();
    let mut text =
        r#"{"type":"session","version":3,"id":"019d4a00-1111-7222-8333-444455556666","timestamp":"2026-04-02T09:00:00.000Z","cwd":"/srv/shop"}"#
            .to_owned();
    let say = |role: &str, words: &str, parent: &str| {
        format!(
            "\n{{\"type\":\"message\",{parent}\"timestamp\":\"2026-04-02T09:00:01.000Z\",\"message\":{{\"role\":\"{role}\",\"content\":[{{\"type\":\"text\",\"text\":\"{words}\"}}]}}}}"
        )
    };
    // Each round begins anew with the same words, and one of its answers is another one.
    for round in 0..700 {
        text += &say("user", "Begin", "\"parentId\":null,");
        text += &say("assistant", if round % 7 == 0 { "Begun otherwise" } else { "Begun" }, "");
    }
    let path = written(folder.path(), "session.jsonl", format!("{text}\n").as_bytes());
    let first = import(&store, &path);
    assert_eq!((first.items.read, first.items.imported), (1_401, 1_401));
    let thread = &super::threads(&store)[0];
    let report = store.verify(&thread.id).unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert!(report.items < 10, "{} items", report.items);
    assert_eq!(given_back(&store, &path), format!("{text}\n").as_bytes());
    assert_eq!(import(&store, &path).items.imported, 0);
}
