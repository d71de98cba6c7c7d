//! Prompts and artifacts on the command line.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A sandbox with a thread `t` of one item.
fn with_thread() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a"]);
    sandbox
}

/// The exit code; not every answer that is no success is an error.
fn exit(sandbox: &Sandbox, arguments: &[&str]) -> i32 {
    sandbox.run(arguments).status.code().unwrap()
}

fn id_of(document: &Value, what: &str) -> String {
    document[what]["id"].as_str().unwrap().to_owned()
}

#[test]
fn prompts_are_stored_listed_shown_and_followed_to_their_root() {
    let sandbox = with_thread();
    let id = "01900000-0000-7000-8000-000000000001";
    let add = ["prompt", "add", "t", "make the test pass", "--id", id];
    let first = sandbox.json(&add);
    let task = id_of(&first, "prompt");
    assert_eq!(task, format!("prompt:{id}"));
    let fields = ["origin", "parent", "root", "active", "generation", "depth", "turn", "previous"];
    let expected = json!(["operator", null, task, task, 1, 1, 1, null]);
    assert_eq!(json!(fields.map(|field| &first["prompt"][field])), expected);
    assert_eq!(sandbox.json(&add)["repeated"], true);
    assert_eq!(exit(&sandbox, &["prompt", "add", "t", "other", "--id", id]), 1);
    let more = id_of(&sandbox.json(&["prompt", "add", "t", "and the docs", "--continues", "active"]), "prompt");
    let retry = sandbox.json(&["prompt", "add", "t", "and the docs", "--retry", "last", "--open-turn"]);
    assert_eq!(
        json!([retry["prompt"]["parent"], retry["prompt"]["active"], retry["prompt"]["turn"]]),
        json!([more, task, 2])
    );
    assert_eq!(exit(&sandbox, &["prompt", "add", "t", "x", "--continues", "ffff"]), 3);
    let listed = sandbox.json(&["prompt", "list", "t", "--limit", "2"]);
    assert_eq!((&listed["total"], listed["prompts"].as_array().unwrap().len()), (&json!(3), 2));
    let cursor = listed["next_cursor"].as_str().unwrap();
    let rest = sandbox.json(&["prompt", "list", "t", "--limit", "2", "--cursor", cursor]);
    assert_eq!(rest["prompts"][0]["text"], "make the test pass");
    let texts = sandbox.ok(&["prompt", "list", "t"]);
    assert!(texts.contains("task") && texts.contains("more (2)") && texts.contains("retry (3)"), "{texts}");
    let shown = sandbox.json(&["prompt", "show", "t"]);
    assert_eq!(
        (&shown["prompt"]["text"], &shown["prompt"]["raw"]),
        (&json!("make the test pass"), &json!("make the test pass"))
    );
    assert_eq!(sandbox.json(&["prompt", "show", "t", "last"])["prompt"]["id"], retry["prompt"]["id"]);
    assert_eq!(sandbox.ok(&["prompt", "show", "t", &task, "--raw"]), "make the test pass");
    let lineage = sandbox.json(&["prompt", "lineage", "t"]);
    let ids: Vec<&Value> = lineage["lineage"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(json!(ids), json!([retry["prompt"]["id"], more, task]));
    assert!(sandbox.ok(&["prompt", "lineage", "t"]).contains("▸"));
    assert_eq!(exit(&sandbox, &["prompt", "show", "t", "7777"]), 3);
}

#[test]
fn what_was_typed_comes_back_to_the_byte() {
    let sandbox = with_thread();
    let typed = sandbox.path("typed");
    std::fs::write(&typed, b"typed \xff\0").unwrap();
    let add = ["prompt", "add", "t", "given", "--raw", typed.to_str().unwrap()];
    sandbox.ok(&add);
    assert_eq!(sandbox.run(&["prompt", "show", "t", "--raw"]).stdout, b"typed \xff\0");
    let shown = sandbox.json(&["prompt", "show", "t"]);
    assert_eq!((&shown["prompt"]["raw_base64"], &shown["prompt"]["text"]), (&json!("dHlwZWQg/wA="), &json!("given")));
    assert!(sandbox.ok(&["prompt", "show", "t"]).contains("otherwise than given"));
}

#[test]
fn artifacts_are_stored_listed_and_shown() {
    let sandbox = with_thread();
    assert_eq!(exit(&sandbox, &["artifact", "add", "t", "active", "--kind", "decision"]), 3, "there is no prompt");
    let task = id_of(&sandbox.json(&["prompt", "add", "t", "task"]), "prompt");
    let metadata = r#"{"tests": 3,  "ok":true}"#;
    let add = ["artifact", "add", "t", "active", "--kind", "commit", "--relation", "realizes", "--locator", "4f2a91c"];
    let stored = sandbox.json(&[&add[..], &["--metadata", metadata]].concat());
    let fields = ["number", "prompt", "root", "kind", "relation", "locator", "body", "metadata", "turn"];
    let expected = json!([1, task, task, "commit", "realizes", "4f2a91c", null, metadata, 1]);
    assert_eq!(json!(fields.map(|field| &stored["artifact"][field])), expected);
    sandbox.ok(&["artifact", "add", "t", "last", "--kind", "decision", "--body", "keep it"]);
    assert_eq!(exit(&sandbox, &["artifact", "add", "t", "last", "--kind", "poem"]), 2);
    assert_eq!(exit(&sandbox, &["artifact", "add", "t", "last", "--kind", "commit", "--metadata", "[]"]), 2);
    let listed = sandbox.json(&["artifact", "list", "t", "--task", "active", "--reverse"]);
    let numbers: Vec<&Value> = listed["artifacts"].as_array().unwrap().iter().map(|it| &it["number"]).collect();
    assert_eq!((json!(numbers), &listed["total"]), (json!([1, 2]), &json!(2)));
    assert!(sandbox.ok(&["artifact", "list", "t", "--prompt", &task]).contains("keep it"));
    let id = id_of(&stored, "artifact");
    assert!(sandbox.ok(&["artifact", "show", "t", &id]).contains("commit, realizes"));
    assert_eq!(sandbox.json(&["artifact", "show", "t", &id]), json!({"artifact": stored["artifact"]}));
    assert_eq!(exit(&sandbox, &["artifact", "show", "t", "7777"]), 3);
    let stats = sandbox.json(&["stats"]);
    assert_eq!(json!([stats["prompts"], stats["artifacts"]]), json!([1, 2]));
}

#[test]
fn reading_a_thread_marks_its_receipts_and_a_message_is_taken_as_one() {
    let sandbox = with_thread();
    let task = id_of(&sandbox.json(&["prompt", "add", "t", "the task"]), "prompt");
    sandbox.ok(&["artifact", "add", "t", "last", "--kind", "decision", "--body", "left"]);
    sandbox.ok(&["inbox", "inject", "t", "sent", "--key", "k", "--policy", "steer"]);
    let taken = sandbox.json(&["inbox", "take", "t", "--receipt"]);
    let receipt = taken["receipt"].as_str().unwrap().to_owned();
    let shown = sandbox.ok(&["show", "t", "--all"]);
    assert!(shown.contains(&task) && shown.contains(&receipt) && shown.contains("artifact 1, decision"), "{shown}");
    let items = sandbox.json(&["show", "t", "--all"]);
    let marks: Vec<Value> = items["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["prompt"]["id"], it["artifact"]["number"], it["text"]]))
        .collect();
    assert_eq!(
        json!(marks),
        json!([[null, null, "a"], [task, null, "the task"], [null, 1, "left"], [receipt, null, "sent"]])
    );
    assert_eq!(sandbox.json(&["prompt", "show", "t", "last"])["prompt"]["text"], "sent");
    // An agent is given what was said, and nothing of where it stands here.
    let exported = sandbox.ok(&["export", "t", "--to", "codex"]);
    assert!(exported.contains("the task") && !exported.contains("generation"), "{exported}");
}
