//! The feed of changes from outside.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::tail::Following;

fn words(document: &Value) -> Vec<String> {
    let word = |change: &Value, key: &str| change[key].as_str().unwrap_or_default().to_owned();
    let changes = document["changes"].as_array().unwrap();
    changes.iter().map(|it| format!("{} {}", word(it, "area"), word(it, "verb"))).collect()
}

#[test]
fn changes_are_listed_from_a_cursor_on() {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a", "b"]);
    let all = sandbox.json(&["changes"]);
    assert_eq!(words(&all), ["thread created", "claim created", "claim deleted", "items created"]);
    assert_eq!((&all["next_cursor"], &all["pending"]), (&Value::Null, &json!(false)));
    sandbox.ok(&["goal", "set", "t", "pass the tests"]);
    sandbox.ok(&["rename", "t", "Longer work"]);
    let cursor = all["cursor"].as_str().unwrap();
    let since = sandbox.json(&["changes", "--since", cursor]);
    assert_eq!(words(&since), ["goal created", "thread changed"]);
    assert_eq!(sandbox.json(&["changes", "t", "--since", cursor])["changes"], since["changes"]);
    let first = sandbox.json(&["changes", "--since", cursor, "-n", "1"]);
    assert_eq!(words(&first), ["goal created"]);
    let rest = sandbox.json(&["changes", "--since", first["next_cursor"].as_str().unwrap()]);
    assert_eq!(words(&rest), ["thread changed"]);
    let shown = sandbox.ok(&["changes", "--since", cursor]);
    assert!(shown.lines().count() == 2 && shown.contains("goal") && shown.contains("created"), "{shown}");
}

#[test]
fn the_index_gives_the_cursor_to_go_on_from() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    sandbox.thread("two", "Two", &["a"]);
    let index = sandbox.json(&["changes", "--index"]);
    let threads: Vec<&Value> = index["threads"].as_array().unwrap().iter().map(|it| &it["thread"]).collect();
    assert_eq!(threads, [&json!("one"), &json!("two")]);
    let page = sandbox.json(&["changes", "--index", "-n", "1"]);
    let next = sandbox.json(&["changes", "--index", "--cursor", page["next_cursor"].as_str().unwrap()]);
    assert_eq!(next["threads"][0]["thread"], json!("two"));
    sandbox.ok(&["delete", "two"]);
    let since = sandbox.json(&["changes", "--since", index["since"].as_str().unwrap()]);
    assert_eq!(words(&since), ["thread deleted"]);
    assert!(sandbox.ok(&["changes", "--index"]).contains("changes --since"));
}

#[test]
fn what_is_no_cursor_is_refused_with_a_way_out() {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a"]);
    assert_eq!(sandbox.failure(&["changes", "--since", "nonsense"]).0, 2);
    assert_eq!(sandbox.failure(&["changes", "--keep", "10"]).0, 2);
    assert_eq!(sandbox.failure(&["changes", "unknown"]).0, 3);
    assert_eq!(sandbox.json(&["changes", "--keep", "1000"]), json!({"kept": 1000}));
    let cursor = sandbox.json(&["changes"])["cursor"].as_str().unwrap().to_owned();
    let lines: String = (0..1_400)
        .map(|number| format!("{{\"kind\":\"message\",\"role\":\"user\",\"text\":\"{number}\"}}\n"))
        .collect();
    assert!(sandbox.feed(&["append", "t", "--durability", "written"], &lines).status.success());
    let (code, document) = sandbox.failure(&["changes", "--since", &cursor]);
    assert_eq!((code, &document["kind"]), (1, &json!("trimmed")));
    assert!(document["hint"].as_str().unwrap().contains("--index"), "{document}");
}

#[test]
fn changes_are_followed_as_other_programs_make_them() {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a"]);
    let cursor = sandbox.json(&["changes"])["cursor"].as_str().unwrap().to_owned();
    let follower = Following::start(sandbox.command(&["changes", "-f", "--since", &cursor, "--json"]));
    let tail = Following::start(sandbox.command(&["tail", "-f", "--changes", "-n", "0", "--json", "t"]));
    sandbox.ok(&["goal", "set", "t", "pass the tests"]);
    let change: Value = serde_json::from_str(&follower.line()).unwrap();
    assert_eq!((&change["area"], &change["thread"]), (&json!("goal"), &json!("t")));
    // From when on the other one follows is not known; what comes later it has to tell.
    let told = (0..300).find_map(|_| {
        sandbox.ok(&["goal", "accrue", "t", "--tokens", "1"]);
        tail.line_within(Duration::from_millis(200))
    });
    let line: Value = serde_json::from_str(&told.unwrap()).unwrap();
    assert_eq!(line["change"]["area"], json!("goal"));
}
