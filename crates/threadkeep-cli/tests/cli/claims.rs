//! Who writes what, and how a thread is freed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::sandbox::Sandbox;

#[test]
fn a_thread_is_taken_over_from_a_program_that_writes_it() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["append", "--new", "--id", "one", "--title", "Long work"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(stdin, "{{\"role\":\"user\",\"text\":\"a\"}}").unwrap();
    // The thread and its first item are acknowledged.
    assert_eq!(output.by_ref().take(2).count(), 2);

    let claims = sandbox.json(&["claims"]);
    let claim = &claims["claims"][0];
    assert_eq!((&claim["thread"], &claim["live"], &claim["wanted"]), (&"one".into(), &true.into(), &().into()));
    assert_eq!(claim["holder"]["pid"], child.id());
    assert!(sandbox.ok(&["claims"]).contains("Long work"));

    assert!(sandbox.ok(&["take-over", "one", "--ask"]).contains("Asked for"));
    assert!(sandbox.json(&["claims"])["claims"][0]["wanted"]["by"].is_string());
    assert_eq!(sandbox.code(&["take-over", "one", "--ask", "--wait", "1"]), 7);
    assert_eq!(sandbox.code(&["take-over", "one"]), 2);
    assert!(sandbox.ok(&["take-over", "one", "--reason", "it hangs"]).contains("free"));

    // The holder that was fenced off learns it at its next write, and has stored nothing.
    writeln!(stdin, "{{\"role\":\"user\",\"text\":\"stale\"}}").unwrap();
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let shown = sandbox.ok(&["show", "one", "--all"]);
    assert!(shown.contains("it hangs") && !shown.contains("stale"), "{shown}");
    assert!(sandbox.ok(&["claims"]).contains("No thread is being written."));
    assert!(sandbox.ok(&["take-over", "one", "--ask"]).contains("Nobody holds it"));
    assert_eq!(sandbox.json(&["verify"])["intact"], 1);
}

/// A program that died between a call and its result: what a dry run says is done once, and found by what it is.
#[test]
fn turns_that_were_left_in_the_middle_are_repaired_once() {
    let sandbox = Sandbox::new();
    let view = |part: serde_json::Value| serde_json::json!({"role": "assistant", "parts": [part]}).to_string();
    let call = view(serde_json::json!({"type": "tool_call", "call_id": "c1", "name": "shell", "arguments": "{}"}));
    let lines = [
        serde_json::json!({"role": "user", "text": "run the tests"}),
        serde_json::json!({"kind": "tool_call", "role": "assistant", "format": "threadkeep/1", "content": call}),
        serde_json::json!({"role": "user", "text": "never mind"}),
    ];
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    assert!(sandbox.feed(&["append", "--new", "--id", "t"], &lines.join("\n")).status.success());
    let tree = sandbox.json(&["tree", "t"]);

    let planned = sandbox.json(&["repair-turns", "t", "--dry-run"]);
    let fields = ["needed", "dry_run", "rewritten", "interrupted", "head"].map(|key| &planned[key]);
    assert_eq!(fields, [&true.into(), &true.into(), &1.into(), &serde_json::Value::Null, &serde_json::Value::Null]);
    assert_eq!(
        (&planned["closed"][0]["tool"], &planned["closed"][0]["result"]),
        (&"shell".into(), &serde_json::Value::Null)
    );
    assert!(
        sandbox
            .ok(&["repair-turns", "t", "--dry-run"])
            .contains("shell (c1) has no result and would get a synthetic one")
    );
    assert_eq!(sandbox.json(&["tree", "t"]), tree, "a dry run changed something");

    let shown = sandbox.ok(&["repair-turns", "t"]);
    assert!(shown.contains("a synthetic one stands at @2") && shown.contains("1 item written again"), "{shown}");
    let items = sandbox.json(&["show", "t"])["items"].as_array().unwrap().clone();
    let kinds: Vec<_> =
        items.iter().map(|item| (item["kind"].as_str().unwrap(), item["synthetic"].as_bool().unwrap())).collect();
    assert_eq!(
        kinds,
        [("message", false), ("tool_call", false), ("tool_result", true), ("message", false), ("event", false)]
    );
    assert_eq!(sandbox.json(&["search", "has:synthetic"])["hits"][0]["depth"], 2);
    assert_eq!(sandbox.json(&["tree", "t"])["branches"].as_array().unwrap().len(), 2);

    let again = sandbox.json(&["repair-turns", "t"]);
    assert_eq!((&again["needed"], &again["closed"]), (&false.into(), &serde_json::json!([])));
    assert!(sandbox.ok(&["repair-turns", "t"]).contains("Nothing of"));
    assert_eq!(sandbox.code(&["repair-turns", "absent"]), 3);
    let store = threadkeep::blocking::Store::open(threadkeep::StoreOptions::folder(sandbox.path("store"))).unwrap();
    let held = store.resume(&threadkeep::ThreadId::new("t").unwrap(), false).unwrap();
    assert_eq!(sandbox.code(&["repair-turns", "t"]), 7);
    assert!(sandbox.ok(&["repair-turns", "t", "--dry-run"]).contains("Nothing of"));
    drop(held);
}
