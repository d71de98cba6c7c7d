//! The documents that scripts build on: their keys, and what stands under them.

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, lines, samples};

pub(crate) fn keys(value: &Value, expected: &[&str]) {
    for key in expected {
        assert!(value.get(key).is_some(), "{key} is missing in {value}");
    }
}

#[test]
fn import() {
    let sandbox = Sandbox::new();
    let samples = samples();
    let report = sandbox.json(&["import", samples.to_str().unwrap()]);
    keys(&report["files"], &["read", "unchanged", "failed"]);
    keys(&report["threads"], &["new", "updated", "unchanged"]);
    keys(&report["items"], &["read", "imported", "unchanged", "skipped"]);
    let count = |key: &str| report["items"][key].as_u64().unwrap();
    assert_eq!(count("read"), count("imported") + count("unchanged") + count("skipped"));
    assert!(count("imported") > 0);
    for problem in report["problems"].as_array().unwrap() {
        keys(problem, &["file", "line", "reason"]);
    }
    let again = sandbox.json(&["import", samples.to_str().unwrap()]);
    assert_eq!(again["items"]["imported"], 0);
    assert_eq!(again["items"]["read"], report["items"]["read"]);
}

#[test]
fn list_show_and_tree() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    let list = sandbox.json(&["list"]);
    assert_eq!(list["next_cursor"], Value::Null);
    let thread = &list["threads"][0];
    keys(
        thread,
        &[
            "id",
            "title",
            "preview",
            "agent",
            "workspace",
            "cwd",
            "status",
            "archived",
            "items",
            "branches",
            "created_at",
            "updated_at",
        ],
    );
    assert_eq!((&thread["id"], &thread["title"], &thread["items"]), (&json!("one"), &json!("One"), &json!(2)));
    let created = thread["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.len() == "2026-01-02T03:04:05.678Z".len(), "{created}");

    let show = sandbox.json(&["show", "one"]);
    assert_eq!(show["thread"]["id"], "one");
    assert_eq!(show["next_cursor"], Value::Null);
    let item = &show["items"][1];
    keys(item, &["id", "branch", "depth", "turn", "kind", "role", "text", "created_at", "hash"]);
    assert_eq!((&item["depth"], &item["role"], &item["text"]), (&json!(1), &json!("assistant"), &json!("b")));
    assert_eq!(item["hash"].as_str().unwrap().len(), 64);

    let tree = sandbox.json(&["tree", "one"]);
    assert_eq!(tree["thread"], "one");
    assert_eq!(tree["head"], json!({"branch": item["branch"], "depth": 1}));
    let branch = &tree["branches"][0];
    keys(branch, &["branch", "parent", "fork_depth", "tip_depth", "items", "active"]);
    assert_eq!((&branch["parent"], &branch["tip_depth"], &branch["active"]), (&Value::Null, &json!(1), &json!(true)));
}

#[test]
fn fork_and_verify() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b", "c"]);
    let fork = sandbox.json(&["fork", "one@1", "--title", "Other", "--id", "two"]);
    let branch = sandbox.json(&["tree", "one"])["branches"][0]["branch"].clone();
    assert_eq!(fork, json!({"thread": "two", "from": {"thread": "one", "branch": branch, "depth": 1}}));
    assert_eq!(sandbox.json(&["show", "Other"])["items"].as_array().unwrap().len(), 2);
    assert_eq!(sandbox.json(&["list", "--forks-of", "one"])["threads"][0]["id"], "two");
    assert_eq!(sandbox.code(&["fork", "one", "--id", "two"]), 1);
    assert_eq!(sandbox.code(&["fork", "one@9"]), 3);
    let report = sandbox.json(&["verify"]);
    assert_eq!((&report["threads"], &report["intact"], &report["invalid"]), (&json!(2), &json!(2), &json!([])));
    // Without a seal nothing says that nothing was cut off.
    assert_eq!((&report["verdict"], &report["valid"]), (&json!("not_provable"), &json!(0)));
    keys(&report, &["not_provable", "broken", "remembered", "anchored"]);
    assert_eq!(sandbox.json(&["verify", "one", "o", "One"])["threads"], 1);
}

#[test]
fn append() {
    let sandbox = Sandbox::new();
    let input = "{\"kind\":\"message\",\"role\":\"user\",\"text\":\"a\"}\n{\"role\":\"assistant\",\"text\":\"b\"}\n";
    let output = sandbox.feed(&["append", "--new", "--title", "T", "--json"], input);
    assert!(output.status.success());
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 3);
    let thread = lines[0]["thread"].as_str().unwrap();
    for (depth, line) in lines[1..].iter().enumerate() {
        keys(line, &["id", "branch", "hash"]);
        assert_eq!(line["depth"], depth);
    }
    let items = sandbox.json(&["show", thread])["items"].clone();
    assert_eq!((&items[1]["id"], &items[1]["hash"]), (&lines[2]["id"], &lines[2]["hash"]));
}

#[test]
fn raw_content_comes_back_as_it_was_given() {
    let sandbox = Sandbox::new();
    let input =
        "{\"kind\":\"event\",\"format\":\"codex\",\"content\":\"{\\\"b\\\" : 1}\"}\n{\"content_base64\":\"AP/+\"}\n";
    assert!(sandbox.feed(&["append", "--new", "--id", "one"], input).status.success());
    let items = sandbox.json(&["show", "one", "--raw"])["items"].clone();
    assert_eq!((&items[0]["content"], &items[0]["format"]), (&json!("{\"b\" : 1}"), &json!("codex")));
    assert_eq!(items[1]["content_base64"], "AP/+");
    assert_eq!(sandbox.run(&["show", "one", "--raw"]).stdout, b"{\"b\" : 1}\n\0\xff\xfe\n");
}

#[test]
fn stats_and_workspaces() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    let stats = sandbox.json(&["stats"]);
    assert_eq!((&stats["threads"], &stats["items"]), (&json!(1), &json!(2)));
    keys(&stats, &["store", "store_id", "branches", "turns", "content_bytes", "file_bytes", "agents"]);
    let state = ["goals", "jobs", "checkpoints", "checkpoint_bytes", "stored_checkpoint_bytes"].map(|key| &stats[key]);
    assert_eq!(state, [&json!(0), &json!({}), &json!(0), &json!(0), &json!(0)]);
    let work = ["documents", "document_versions", "roadmaps", "runs", "messages", "requests"].map(|key| &stats[key]);
    assert_eq!(work, [&json!(0), &json!(0), &json!(0), &json!({}), &json!({}), &json!({})]);
    let workspaces = sandbox.json(&["workspaces"]);
    let workspace = &workspaces["workspaces"][0];
    keys(workspace, &["id", "name", "threads", "keys", "created_at"]);
    assert_eq!((&workspace["name"], &workspace["threads"]), (&json!("project"), &json!(1)));
    for name in [".", "project", workspace["id"].as_str().unwrap(), sandbox.path("project").to_str().unwrap()] {
        assert_eq!(sandbox.json(&["list", "-w", name])["threads"].as_array().unwrap().len(), 1, "{name}");
    }
    assert_eq!(sandbox.code(&["list", "-w", "/nowhere"]), 3);
}
