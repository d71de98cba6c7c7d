//! Documents and roadmaps from outside.

use serde_json::json;

use crate::sandbox::Sandbox;

const TREE: &str = "\
goal = \"ship it\" # soon
[[subtask]]
id = \"phase\"
instruction = \"make ready\"
kind = \"phase\"
[[subtask]]
id = \"tests\"
instruction = \"make the tests pass\"
parent = \"phase\"
[[subtask]]
id = \"docs\"
instruction = \"write\"
parent = \"phase\"
deps = [\"tests\"]
";

fn with_thread() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a", "b"]);
    sandbox
}

/// Feeds a command that must succeed, and gives what it said.
fn feed(sandbox: &Sandbox, args: &[&str], text: &str) -> String {
    let output = sandbox.feed(args, text);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(sandbox: &Sandbox, args: &[&str], text: &str) -> (i32, String) {
    let output = sandbox.feed(args, text);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_document_is_written_patched_read_and_deleted() {
    let sandbox = with_thread();
    let text = r#"{"nul": "\u0000", "again":1,"again":2}"#;
    assert!(feed(&sandbox, &["doc", "put", "t", "notes"], &format!("{text}\n")).contains("version 1"));
    assert_eq!(sandbox.ok(&["doc", "get", "t", "notes"]), format!("{text}\n"));
    feed(&sandbox, &["doc", "put", "t", "notes", "--if-version", "1"], r#"{"a":1,"b":2}"#);
    let (code, told) = refused(&sandbox, &["doc", "put", "t", "notes", "--if-version", "1"], "3");
    assert!(code == 1 && told.contains("expected 1, found 2"), "{code} {told}");
    let id = "01900000-0000-7000-8000-000000000001";
    for _ in 0..2 {
        let patch = ["doc", "patch", "t", "notes", "--id", id, "--json"];
        let said: serde_json::Value = serde_json::from_str(&feed(&sandbox, &patch, r#"{"a":null,"c":3}"#)).unwrap();
        assert_eq!((&said["document"]["version"], &said["document"]["kind"]), (&json!(3), &json!("free")));
    }
    let got = sandbox.json(&["doc", "get", "t", "notes"]);
    assert_eq!(got["document"]["value"], json!({"b": 2, "c": 3}));
    assert_eq!(
        sandbox.json(&["doc", "get", "t", "notes", "--version", "2"])["document"]["value"],
        json!({"a": 1, "b": 2})
    );
    let listed = sandbox.json(&["doc", "list", "t"]);
    assert_eq!((&listed["documents"][0]["name"], &listed["next_cursor"]), (&json!("notes"), &json!(null)));
    assert!(sandbox.ok(&["doc", "list", "t"]).contains("notes"));
    assert_eq!(sandbox.json(&["doc", "delete", "t", "notes", "--if-version", "3"]), json!({"deleted": "notes"}));
    assert_eq!(sandbox.code(&["doc", "get", "t", "notes"]), 3);
    assert_eq!(sandbox.code(&["doc", "delete", "t", "notes"]), 3);
    let history = sandbox.json(&["doc", "history", "t", "notes", "--limit", "2"]);
    assert_eq!((&history["versions"][0]["version"], &history["versions"][0]["deleted"]), (&json!(4), &json!(true)));
    let cursor = history["next_cursor"].as_str().unwrap();
    let rest = sandbox.json(&["doc", "history", "t", "notes", "--cursor", cursor]);
    assert_eq!(rest["versions"].as_array().unwrap().len(), 2);
    assert!(sandbox.ok(&["doc", "history", "t", "notes"]).contains("deleted"));
    assert_eq!(sandbox.json(&["doc", "trim", "t", "notes", "--keep", "1"]), json!({"removed": 2}));
    assert_eq!(sandbox.code(&["doc", "trim", "t", "absent", "--keep", "1"]), 3);
}

#[test]
fn a_pin_takes_preferences_and_nothing_else() {
    let sandbox = with_thread();
    feed(&sandbox, &["doc", "put", "t", "pin"], r#"{"model":"m","obsessive":true}"#);
    let (code, told) = refused(&sandbox, &["doc", "patch", "t", "pin"], r#"{"api_key":"x"}"#);
    assert!(code == 2 && told.contains("`api_key`"), "{code} {told}");
    let (code, told) =
        refused(&sandbox, &["doc", "put", "t", "plan"], r#"{"steps":[{"description":"x","status":"later"}]}"#);
    assert!(code == 2 && told.contains("step 1") && told.contains("later"), "{code} {told}");
    assert_eq!(
        sandbox.json(&["doc", "get", "t", "pin"])["document"]["value"],
        json!({"model": "m", "obsessive": true})
    );
    let (code, _) = refused(&sandbox, &["doc", "put", "absent", "x"], "1");
    assert_eq!(code, 3);
}

#[test]
fn a_roadmap_is_made_drawn_set_linked_and_deleted() {
    let sandbox = with_thread();
    let create = ["roadmap", "create", "release", "--title", "Release 1.0"];
    feed(&sandbox, &create, TREE);
    assert_eq!(refused(&sandbox, &create, TREE).0, 1);
    assert_eq!(sandbox.ok(&["roadmap", "show", "release", "--toml"]), TREE);
    assert_eq!(sandbox.code(&["roadmap", "show", "absent"]), 3);
    sandbox.ok(&["roadmap", "link", "t", "release", "tests"]);
    assert_eq!(sandbox.code(&["roadmap", "link", "t", "release", "absent"]), 3);
    assert_eq!(sandbox.json(&["roadmap", "of", "t"])["link"]["node"], "tests");
    assert_eq!(sandbox.json(&["roadmap", "links", "release", "--node", "tests"])["links"][0]["thread"], "t");
    let set =
        sandbox.json(&["roadmap", "set", "release", "tests", "done", "--result", "214 passed", "--if-version", "1"]);
    assert_eq!((&set["roadmap"]["version"], &set["roadmap"]["nodes"]["done"]), (&json!(2), &json!(1)));
    assert_eq!(sandbox.code(&["roadmap", "set", "release", "tests", "failed", "--if-version", "1"]), 1);
    assert_eq!(sandbox.code(&["roadmap", "set", "release", "tests"]), 2);
    let drawn = sandbox.ok(&["roadmap", "show", "release"]);
    for words in [
        "Release 1.0",
        "ship it",
        "1 of 3 done",
        "○ phase [phase]  make ready",
        "├─ ✓ tests",
        "→ 214 passed  ← t",
        "└─ ○ docs  write  after tests",
    ] {
        assert!(drawn.contains(words), "{words:?} is not in\n{drawn}");
    }
    let shown = sandbox.json(&["roadmap", "show", "release"]);
    assert_eq!(shown["roadmap"]["tree"]["subtask"][1]["result"], "214 passed");
    assert_eq!(shown["roadmap"]["tree"]["subtask"][0]["caveat_policy"]["exec"], "none");
    assert!(shown["roadmap"]["text"].as_str().unwrap().starts_with("goal = \"ship it\" # soon\n"));
    let (code, told) = refused(&sandbox, &["roadmap", "update", "release"], "goal = \"x\"");
    assert!(code == 1 && told.contains("`tests`") && told.contains("unlink"), "{code} {told}");
    let (code, told) = refused(&sandbox, &["roadmap", "update", "release"], "[[subtask]]\nid = \"a\"\napi_key = 1");
    assert!(code == 2 && told.contains("api_key"), "{code} {told}");
    assert!(sandbox.ok(&["roadmap", "unlink", "t"]).contains("nothing now"));
    assert_eq!(sandbox.json(&["roadmap", "unlink", "t"]), json!({"unlinked": false}));
    feed(&sandbox, &["roadmap", "update", "release", "--if-version", "2"], "goal = \"x\"");
    let listed = sandbox.json(&["roadmap", "list"]);
    assert_eq!((&listed["roadmaps"][0]["id"], &listed["roadmaps"][0]["version"]), (&json!("release"), &json!(3)));
    assert!(sandbox.ok(&["roadmap", "list"]).contains("0 of 0 done"));
    assert_eq!(sandbox.json(&["roadmap", "delete", "release"]), json!({"deleted": "release"}));
    assert_eq!(sandbox.code(&["roadmap", "delete", "release"]), 3);
}
