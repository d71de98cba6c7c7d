//! Tools and workflow runs from outside.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

fn with_thread() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a", "b"]);
    sandbox
}

#[test]
fn tools_are_set_shown_compared_and_cleared() {
    let sandbox = with_thread();
    assert!(sandbox.ok(&["tools", "get", "t"]).contains("no tools"));
    let none = sandbox.json(&["tools", "get", "t"]);
    assert_eq!((&none["tools"], &none["thread"]), (&json!([]), &json!("t")));
    let list = r#"[{"name":"read","description":"reads a file","inputSchema":{"type":"object","properties":{"path":{},"n":{"max":1.50}}},
        "annotations":{"big":123456789012345678901234567890}},{"name":"b","input_schema":true}]"#;
    let set = sandbox.feed(&["tools", "set", "t"], list);
    assert!(set.status.success() && String::from_utf8_lossy(&set.stdout).starts_with("2 tools"), "{set:?}");
    let shown = sandbox.ok(&["tools", "get", "t"]);
    assert!(shown.contains("path, n") && shown.contains("reads a file"), "{shown}");
    let document = sandbox.ok(&["tools", "get", "t", "--json"]);
    for kept in ["1.50", "123456789012345678901234567890", "\"annotations\"", "\"extra\":null"] {
        assert!(document.contains(kept), "{kept} is not in {document}");
    }
    // What is shown can be set again, and is the same then.
    let file = sandbox.path("tools.json");
    std::fs::write(&file, &document).unwrap();
    let again = sandbox.ok(&["tools", "set", "t", "--file", file.to_str().unwrap(), "--json"]);
    assert_eq!(again, document);
    let digest = sandbox.json(&["tools", "get", "t"])["digest"].as_str().unwrap().to_owned();
    let other = none["digest"].as_str().unwrap();
    assert_eq!(sandbox.code(&["tools", "clear", "t", "--expect", other]), 1);
    assert_eq!(sandbox.json(&["tools", "clear", "t", "--expect", &digest])["tools"], json!([]));
    for (bad, words) in [
        ("{", "no list of tools"),
        ("{}", "no list of tools"),
        (r#"[{"name":"x"}]"#, "tool 0"),
        (r#"[{"name":"x","input_schema":{}},{"name":"x","input_schema":{}}]"#, "x"),
        (r#"[{"name":"","input_schema":{}}]"#, "empty"),
    ] {
        let refused = sandbox.feed(&["tools", "set", "t"], bad);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains(words), "{bad}: {told}");
    }
    assert_eq!(sandbox.code(&["tools", "get", "absent"]), 3);
}

/// A sandbox with a run `r1`, a branch `b1` and a leaf `l1` on it that is done.
fn with_run() -> Sandbox {
    let sandbox = with_thread();
    sandbox.ok(&["run", "start", "review", "--goal", "find what breaks", "--id", "r1", "--metadata", "{\"n\":1}"]);
    sandbox.ok(&["run", "branch", "r1", "fast", "split", "--id", "b1"]);
    sandbox.ok(&["run", "leaf", "r1", "lint", "run the linter", "--branch", "b1", "--id", "l1"]);
    sandbox.ok(&["run", "finish", "l1", "completed", "--result", "{\"warnings\":3}"]);
    sandbox
}

#[test]
fn a_run_is_started_and_its_leaf_is_used_again() {
    let sandbox = with_thread();
    let start = [
        "run",
        "start",
        "review",
        "--goal",
        "find what breaks",
        "--thread",
        "t",
        "--id",
        "r1",
        "--metadata",
        "{\"n\":1}",
    ];
    assert_eq!(sandbox.json(&start)["run"]["status"], "running");
    assert_eq!(sandbox.json(&start)["run"]["id"], "r1", "a repeated call starts it once");
    assert!(sandbox.ok(&["run", "show", "r1"]).contains("Nothing belongs to it yet"));
    sandbox.ok(&["run", "branch", "r", "fast", "split", "--id", "b1"]);
    let leaf = ["run", "leaf", "r1", "lint", "run the linter", "--branch", "b1", "--input-hash", "h", "--id", "l1"];
    assert!(sandbox.ok(&leaf).starts_with("running: leaf lint"));
    assert_eq!(sandbox.run(&["run", "replay", "r1", "lint", "h"]).status.code(), Some(1));
    assert_eq!(sandbox.run(&["run", "replay", "r1", "lint", "h", "--json"]).status.code(), Some(1));
    let finished = sandbox
        .feed(&["run", "finish", "l1", "completed", "--result", "-", "--list", "[\"a.txt\"]"], "{\"warnings\":3}\n");
    assert!(finished.status.success(), "{finished:?}");
    sandbox.ok(&["run", "finish", "l1", "completed", "--result", "{\"warnings\":3}", "--list", "[\"a.txt\"]"]);
    assert_eq!(sandbox.code(&["run", "finish", "l1", "failed"]), 1);
    assert_eq!(sandbox.code(&["run", "finish", "l1", "completed", "--result", "{"]), 2);
    assert_eq!(sandbox.ok(&["run", "replay", "r1", "lint", "h"]), "{\"warnings\":3}\n");
    assert_eq!(sandbox.json(&["run", "replay", "r1", "lint", "h", "--any-run"])["part"]["id"], "l1");
}

#[test]
fn candidates_are_judged_and_a_run_is_drawn() {
    let sandbox = with_run();
    sandbox.ok(&["run", "control", "r1", "pick", "best_of", "--id", "c1"]);
    sandbox.ok(&["run", "candidate", "c1", "first", "--score", "0.50", "--passed", "false", "--id", "k1"]);
    assert!(sandbox.ok(&["run", "candidate", "c1", "second", "--branch", "b1", "--id", "k2"]).contains("second"));
    assert_eq!(sandbox.code(&["run", "judge", "k2"]), 2);
    assert_eq!(sandbox.code(&["run", "judge", "k2", "--score", "NaN"]), 2);
    let judged = sandbox.json(&["run", "judge", "k2", "--score", "1e3", "--passed", "true", "--rationale", "[1]"]);
    assert_eq!((&judged["candidate"]["score"], &judged["candidate"]["rationale"]), (&json!("1e3"), &json!([1])));
    assert_eq!(sandbox.code(&["run", "judge", "k2", "--score=-2"]), 1);
    let best = sandbox.json(&["run", "candidates", "c1"]);
    assert_eq!((&best["candidates"][0]["id"], &best["candidates"][1]["score"]), (&json!("k2"), &json!("0.50")));

    let drawn = sandbox.ok(&["run", "show", "r1"]);
    let lines: Vec<&str> = drawn.lines().skip_while(|line| !line.contains("branch")).collect();
    assert!(drawn.contains("find what breaks") && drawn.contains("running"), "{drawn}");
    assert!(lines[0].starts_with("● branch fast  split  running"), "{drawn}");
    assert!(lines[1].starts_with("   ✓ leaf lint  run the linter  completed  {\"warnings\":3}"), "{drawn}");
    assert!(lines[2].starts_with("● control pick"), "{drawn}");
    assert!(lines[3].starts_with("   ✕ candidate first  score 0.50  not passed"), "{drawn}");
    let document = sandbox.json(&["run", "show", "r1"]);
    assert_eq!((document["nodes"].as_array().unwrap().len(), &document["next_cursor"]), (5, &Value::Null));
    assert_eq!(
        (&document["nodes"][1]["kind"], &document["nodes"][1]["result"]["warnings"]),
        (&json!("leaf"), &json!(3))
    );
    assert_eq!(document["run"]["metadata"]["n"], 1);
    let page = sandbox.json(&["run", "show", "r1", "--limit", "2"]);
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(sandbox.json(&["run", "show", "r1", "--limit", "9", "--cursor", cursor])["nodes"][0]["id"], "c1");
    assert!(sandbox.ok(&["run", "show", "r1", "--limit", "1"]).contains("--cursor"));
}

#[test]
fn a_run_is_interrupted_taken_up_ended_and_deleted() {
    let sandbox = with_run();
    let stopped = sandbox.json(&["run", "interrupt", "r1", "--reason", "its process died"]);
    assert_eq!(
        (&stopped["was_running"], &stopped["parts"], &stopped["run"]["reason"]),
        (&json!(true), &json!(1), &json!("its process died"))
    );
    assert!(sandbox.ok(&["run", "interrupt", "r1"]).contains("Nothing"));
    assert_eq!(sandbox.code(&["run", "end", "r1", "completed"]), 1);
    sandbox.ok(&["run", "mark", "r1", "running"]);
    assert!(sandbox.ok(&["run", "mark", "b1", "running", "--part"]).starts_with("running: branch fast"));
    assert_eq!(sandbox.code(&["run", "delete", "r1"]), 1);
    assert!(sandbox.ok(&["run", "end", "r1", "failed", "--reason", "no"]).starts_with("failed: review"));
    assert_eq!(sandbox.json(&["run", "delete", "r1"]), json!({"deleted": "r1"}));
    assert_eq!(sandbox.code(&["run", "show", "r1"]), 3);
    assert_eq!(sandbox.code(&["run", "finish", "l1", "failed"]), 3);
}

#[test]
fn runs_are_listed_in_pages() {
    let sandbox = with_thread();
    assert!(sandbox.ok(&["run", "list"]).contains("No such run"));
    for number in 0..3 {
        sandbox.ok(&["run", "start", "review", "--id", &format!("r{number}")]);
    }
    sandbox.ok(&["run", "start", "deploy", "--thread", "t", "--id", "d", "--pending"]);
    let ids = |args: &[&str]| -> Vec<String> {
        let listed = sandbox.json(&[&["run", "list"], args].concat());
        listed["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["d", "r2", "r1", "r0"]);
    assert_eq!(ids(&["--workflow", "review", "--reverse"]), ["r0", "r1", "r2"]);
    assert_eq!(ids(&["--status", "pending"]), ["d"]);
    assert_eq!(ids(&["--thread", "t"]), ["d"]);
    let page = sandbox.json(&["run", "list", "--limit", "3"]);
    assert_eq!(ids(&["--cursor", page["next_cursor"].as_str().unwrap()]), ["r0"]);
    let table = sandbox.ok(&["run", "list"]);
    assert!(table.contains("deploy") && table.contains("pending"), "{table}");
}
