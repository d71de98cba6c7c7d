//! Goals, jobs and checkpoints from outside.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A sandbox with a thread `t` of three items.
fn with_thread() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a", "b", "c"]);
    sandbox
}

/// Saves a state; says what was said.
fn save(sandbox: &Sandbox, thread: &str, name: &str, state: &str) -> String {
    let output = sandbox.feed(&["checkpoint", "save", thread, name], state);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_goal_is_set_limited_raised_and_taken_away() {
    let sandbox = with_thread();
    assert!(sandbox.ok(&["goal", "show", "t"]).contains("no goal"));
    assert_eq!(sandbox.json(&["goal", "show", "t"]), json!({"goal": null}));
    let set = sandbox.json(&["goal", "set", "t", "pass the tests", "--tokens", "10", "--time", "1m30s"]);
    assert_eq!((&set["goal"]["seconds_budget"], &set["goal"]["status"]), (&json!(90), &json!("active")));
    let id = "01900000-0000-7000-8000-000000000001";
    for _ in 0..2 {
        let used = sandbox.json(&["goal", "accrue", "t", "--tokens", "10", "--id", id, "--continuations", "3"]);
        assert_eq!((&used["goal"]["tokens_used"], &used["goal"]["status"]), (&json!(10), &json!("budget_limited")));
    }
    assert_eq!(sandbox.code(&["goal", "mark", "t", "active"]), 2);
    assert!(sandbox.ok(&["goal", "edit", "t", "--tokens", "none"]).contains("10"));
    assert!(sandbox.ok(&["goal", "mark", "t", "active"]).contains("active"));
    for pass in ["1", "2", "3"] {
        sandbox.ok(&["goal", "check", "t", "--pass", pass, "the lint fails"]);
    }
    let stalled = sandbox.json(&["goal", "show", "t"]);
    assert_eq!(
        (&stalled["goal"]["status"], &stalled["goal"]["pause_reason"]),
        (&json!("paused"), &json!("no_progress"))
    );
    assert!(sandbox.ok(&["goal", "show", "t"]).contains("3 times in a row"));
    let history = sandbox.json(&["goal", "history", "t", "--limit", "1"]);
    assert_eq!(history["goals"][0]["ordinal"], 2);
    let cursor = history["next_cursor"].as_str().unwrap();
    assert_eq!(sandbox.json(&["goal", "history", "t", "--limit", "1", "--cursor", cursor])["goals"][0]["ordinal"], 1);
    assert_eq!(sandbox.json(&["goal", "clear", "t"]), json!({"cleared": true}));
    assert_eq!(sandbox.json(&["goal", "clear", "t"]), json!({"cleared": false}));
    assert_eq!(sandbox.code(&["goal", "mark", "t", "paused"]), 3);
    assert_eq!(sandbox.code(&["goal", "edit", "t"]), 2);
    assert_eq!(sandbox.code(&["goal", "set", "absent", "x"]), 3);
    assert_eq!(sandbox.code(&["goal", "set", "t", "x", "--time", "soon"]), 2);
}

#[test]
fn a_checkpoint_is_saved_compared_and_restored() {
    let sandbox = with_thread();
    let state = r#"{"step": 1, "nul": "\u0000", "again":1,"again":2}"#;
    assert!(save(&sandbox, "t@1", "one", &format!("{state}\n")).contains("@1"));
    let file = sandbox.path("state.json");
    std::fs::write(&file, r#"{"step": 2}"#).unwrap();
    sandbox.ok(&["checkpoint", "save", "t", "two", "--state", file.to_str().unwrap()]);
    assert_eq!(sandbox.ok(&["checkpoint", "show", "t", "one"]), format!("{state}\n"), "not the bytes that were saved");
    let latest = sandbox.json(&["checkpoint", "show", "t"]);
    assert_eq!((&latest["checkpoint"]["name"], &latest["checkpoint"]["state"]["step"]), (&json!("two"), &json!(2)));
    let listed = sandbox.json(&["checkpoint", "list", "t"]);
    let names: Vec<&Value> = listed["checkpoints"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["two", "one"]);
    assert!(sandbox.ok(&["checkpoint", "list", "t"]).contains("@1"));
    let diff = sandbox.json(&["checkpoint", "diff", "t", "two", "two"]);
    assert_eq!(diff["patch"], json!([]));
    assert!(sandbox.ok(&["checkpoint", "diff", "t", "one", "two"]).contains("replace /step 2"));
    assert_eq!(sandbox.ok(&["checkpoint", "restore", "t", "one"]), format!("{state}\n"));
    assert_eq!(sandbox.json(&["tree", "t"])["head"]["depth"], 1);
    assert_eq!(sandbox.json(&["checkpoint", "delete", "t", "one"]), json!({"deleted": "one"}));
    assert_eq!(sandbox.code(&["checkpoint", "delete", "t", "one"]), 3);
    assert_eq!(sandbox.code(&["checkpoint", "show", "t", "one"]), 3);
    assert_eq!(sandbox.code(&["checkpoint", "restore", "t", "one"]), 3);
    std::fs::write(&file, "{not json").unwrap();
    assert_eq!(sandbox.code(&["checkpoint", "save", "t", "bad", "--state", file.to_str().unwrap()]), 2);
    assert_eq!(sandbox.code(&["checkpoint", "save", "t", "bad", "--state", "absent.json"]), 2);
}

#[test]
fn a_job_is_added_run_and_tried_again() {
    let sandbox = with_thread();
    let add = [
        "job",
        "add",
        "build",
        "--payload",
        r#"{"branch":"main"}"#,
        "--id",
        "b1",
        "--backoff",
        "0s",
        "--attempts",
        "2",
    ];
    assert_eq!(sandbox.json(&add)["job"]["status"], "queued");
    assert_eq!(sandbox.json(&add)["job"]["id"], "b1", "a repeated call adds it once");
    sandbox.ok(&["job", "add", "urgent", "--priority", "5", "--thread", "t", "--id", "u1"]);
    assert_eq!(sandbox.code(&["job", "add", "x", "--payload", "{"]), 2);
    let listed = sandbox.json(&["job", "list"]);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(sandbox.json(&["job", "list", "--thread", "t"])["jobs"][0]["id"], "u1");

    // The urgent one comes first; then the other fails, is tried again, and gets its payload.
    assert!(sandbox.ok(&["job", "run", "--", "true"]).contains("completed: urgent"));
    assert_eq!(sandbox.run(&["job", "run", "--", "false"]).status.code(), Some(1));
    let failed = sandbox.json(&["job", "show", "b"]);
    assert_eq!((&failed["job"]["status"], &failed["job"]["attempts"]), (&json!("queued"), &json!(1)));
    assert!(failed["job"]["error"].as_str().unwrap().contains('1'), "{failed}");
    let out = sandbox.path("payload");
    let script = format!("cat > {}; echo $THREADKEEP_JOB $THREADKEEP_JOB_NAME >> {}", out.display(), out.display());
    let done = sandbox.json(&["job", "run", "--", "sh", "-c", &script]);
    assert_eq!(done["job"]["status"], "completed");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "{\"branch\":\"main\"}b1 build\n");
    let (code, nothing) = sandbox.failure(&["job", "run", "--", "true"]);
    assert_eq!((code, &nothing["kind"]), (1, &json!("nothing-due")));

    assert!(sandbox.ok(&["job", "mark", "b1", "queued"]).contains("queued: build"));
    assert_eq!(sandbox.code(&["job", "run", "--", "/no/such/program"]), 2);
    let released = sandbox.json(&["job", "show", "b1"]);
    assert_eq!((&released["job"]["status"], &released["job"]["attempts"]), (&json!("queued"), &json!(0)));
    assert!(sandbox.ok(&["job", "mark", "b1", "cancelled"]).contains("cancelled"));
    assert!(sandbox.ok(&["job", "requeue"]).contains("living worker"));
    assert_eq!(sandbox.json(&["job", "list", "--status", "cancelled"])["jobs"][0]["id"], "b1");
    assert!(sandbox.ok(&["job", "list"]).contains("urgent"));
    assert_eq!(sandbox.json(&["job", "delete", "b1"]), json!({"deleted": "b1"}));
    assert_eq!(sandbox.code(&["job", "show", "b1"]), 3);
}

/// A job that is cancelled while its command runs is not completed by it.
#[test]
fn a_job_that_is_cancelled_meanwhile_stays_so() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["job", "add", "work", "--id", "w"]);
    let program = env!("CARGO_BIN_EXE_threadkeep");
    let cancel = format!("{program} job mark w cancelled >/dev/null");
    let output = sandbox.command(&["--json", "job", "run", "--", "sh", "-c", &cancel]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sandbox.json(&["job", "show", "w"])["job"]["status"], "cancelled");
}

#[test]
fn what_stands_beside_the_log_is_counted_by_stats() {
    let sandbox = with_thread();
    sandbox.ok(&["goal", "set", "t", "pass the tests"]);
    for id in ["a", "b", "c"] {
        sandbox.ok(&["job", "add", "work", "--id", id]);
    }
    sandbox.ok(&["job", "mark", "c", "cancelled"]);
    save(&sandbox, "t@1", "one", "[1,2,3]");
    save(&sandbox, "t@2", "two", "[1,2,3]");
    let stats = sandbox.json(&["stats"]);
    assert_eq!(stats["goals"], 1);
    assert_eq!(stats["jobs"], json!({"cancelled": 1, "queued": 2}));
    let states = ["checkpoints", "checkpoint_bytes", "stored_checkpoint_bytes"].map(|key| stats[key].as_i64().unwrap());
    assert_eq!(states, [2, 14, 7], "equal states are stored once");
    let shown = sandbox.ok(&["stats"]);
    assert!(shown.contains("3: 1 cancelled, 2 queued") && shown.contains("2 of 14 B, stored in 7 B"), "{shown}");
}
