//! Pages: together they are the whole, each entry once.

use crate::sandbox::Sandbox;

/// The values of `key` in the list `name`, page by page of `limit`.
fn pages(sandbox: &Sandbox, arguments: &[&str], name: &str, key: &str, limit: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut arguments = [arguments, &["--limit", limit]].concat();
        if let Some(cursor) = &cursor {
            arguments.extend(["--cursor", cursor]);
        }
        let page = sandbox.json(&arguments);
        let entries = page[name].as_array().unwrap();
        assert!(entries.len() <= limit.parse().unwrap());
        found.extend(entries.iter().map(|entry| entry[key].to_string()));
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return found;
        }
    }
}

fn all(sandbox: &Sandbox, arguments: &[&str], name: &str, key: &str) -> Vec<String> {
    let whole = sandbox.json(arguments);
    assert!(whole["next_cursor"].is_null());
    whole[name].as_array().unwrap().iter().map(|entry| entry[key].to_string()).collect()
}

#[test]
fn pages_make_the_whole() {
    let sandbox = Sandbox::new();
    for number in 0..7 {
        sandbox.thread(&format!("thread-{number}"), "T", &["a", "b", "c", "d", "e"]);
    }
    for arguments in [&["list"][..], &["list", "--sort", "created", "--reverse"], &["list", "--sort", "updated"]] {
        let whole = all(&sandbox, arguments, "threads", "id");
        assert_eq!(whole.len(), 7);
        for limit in ["1", "3", "7", "100"] {
            assert_eq!(pages(&sandbox, arguments, "threads", "id", limit), whole, "{arguments:?} {limit}");
        }
    }
    for arguments in
        [&["show", "thread-3"][..], &["show", "thread-3", "--context"], &["show", "thread-3", "--from", "1"]]
    {
        let whole = all(&sandbox, arguments, "items", "depth");
        for limit in ["1", "2", "5"] {
            assert_eq!(pages(&sandbox, arguments, "items", "depth", limit), whole, "{arguments:?} {limit}");
        }
    }
    assert_eq!(pages(&sandbox, &["workspaces"], "workspaces", "name", "1"), ["\"project\""]);
}

#[test]
fn the_last_items_come_in_order() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "T", &["a", "b", "c", "d", "e"]);
    let depths = |arguments: &[&str]| all_depths(&sandbox, arguments);
    assert_eq!(depths(&["show", "one", "--last", "2"]), [3, 4]);
    assert_eq!(depths(&["show", "one", "--last", "99"]), [0, 1, 2, 3, 4]);
    assert_eq!(depths(&["show", "one", "--last", "0"]), [0; 0]);
    assert_eq!(depths(&["show", "one@2", "--last", "2"]), [1, 2]);
    assert_eq!(depths(&["show", "one", "--from", "1", "--to", "3"]), [1, 2, 3]);
    assert_eq!(depths(&["show", "one", "--from", "9"]), [0; 0]);
    assert_eq!(depths(&["show", "one", "--limit", "0"]), [0; 0]);
    let page = sandbox.json(&["show", "one", "--last", "2"]);
    let before = ["show", "one", "--last", "2", "--cursor", page["next_cursor"].as_str().unwrap()];
    assert_eq!(depths(&before), [1, 2]);
}

fn all_depths(sandbox: &Sandbox, arguments: &[&str]) -> Vec<u64> {
    let page = sandbox.json(arguments);
    page["items"].as_array().unwrap().iter().map(|item| item["depth"].as_u64().unwrap()).collect()
}

#[test]
fn a_cursor_of_another_query_is_refused() {
    let sandbox = Sandbox::new();
    for number in 0..3 {
        sandbox.thread(&format!("thread-{number}"), "T", &["a", "b"]);
    }
    let cursor = sandbox.json(&["list", "--limit", "1"])["next_cursor"].as_str().unwrap().to_owned();
    for arguments in [
        &["list", "--limit", "1", "--sort", "created", "--cursor", &cursor][..],
        &["show", "thread-1", "--cursor", &cursor],
        &["list", "--cursor", "nonsense"],
        &["workspaces", "--cursor", "nonsense"],
    ] {
        assert_eq!(sandbox.code(arguments), 2, "{arguments:?}");
    }
}
