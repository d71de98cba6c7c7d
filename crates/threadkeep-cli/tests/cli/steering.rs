//! Inboxes and requests from outside.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A sandbox with a thread `t` of three items.
fn with_thread() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.thread("t", "Long work", &["a", "b", "c"]);
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
fn a_message_is_sent_taken_and_acted_on() {
    let sandbox = with_thread();
    let send =
        ["inbox", "inject", "t", "look here", "--key", "k", "--from", "ana", "--source", "cron", "--priority", "-2"];
    let sent = sandbox.json(&send);
    let id = id_of(&sent, "message");
    assert_eq!(id_of(&sandbox.json(&send), "message"), id, "the same key sent it twice");
    assert_eq!(exit(&sandbox, &["inbox", "inject", "t", "other", "--key", "k"]), 1);
    let fields = ["state", "sender", "source", "priority", "policy", "format", "body", "prompt", "unfinished"];
    let expected = json!(["queued", "ana", "cron", -2, "enqueue", "text", "look here", null, false]);
    assert_eq!(json!(fields.map(|field| &sent["message"][field])), expected);
    assert_eq!(exit(&sandbox, &["inbox", "wait", "t", "--timeout", "0s"]), 0);
    let token = "01900000-0000-7000-8000-000000000001";
    let taken = sandbox.json(&["inbox", "take", "t", "--token", token]);
    assert_eq!((id_of(&taken, "message"), &taken["message"]["state"]), (id.clone(), &json!("taken")));
    assert_eq!((&taken["repeated"], &taken["prompt"]["depth"]), (&json!(false), &json!(3)));
    assert_eq!(sandbox.json(&["inbox", "take", "t", "--token", token])["repeated"], true);
    assert!(sandbox.ok(&["show", "t", "--last", "1"]).contains("look here"));
    assert_eq!(exit(&sandbox, &["inbox", "take", "t"]), 1, "nothing waits");
    assert_eq!(exit(&sandbox, &["inbox", "wait", "t", "--timeout", "0s"]), 1);
    // This program has let go of the thread, so it is unfinished.
    assert!(sandbox.ok(&["inbox", "list", "t"]).contains("taken, unfinished"));
    sandbox.ok(&["inbox", "inject", "t", "next"]);
    assert_eq!(exit(&sandbox, &["inbox", "take", "t", "--into", "new-turn"]), 1, "one is unfinished");
    let acted = sandbox.json(&["inbox", "acted", "t", &id, "--outcome", "done"]);
    assert_eq!((&acted["message"]["state"], &acted["message"]["outcome"]), (&json!("acted"), &json!("done")));
    assert!(acted["message"]["acted_at"].is_string() && acted["message"]["delivered_at"].is_string());
    assert_eq!(sandbox.json(&["show", "t"])["thread"]["open_turn"], Value::Null);
    let next = sandbox.json(&["inbox", "take", "t"]);
    assert_eq!(next["message"]["body"], "next");
    let next = id_of(&next, "message");
    assert_eq!(exit(&sandbox, &["inbox", "acted", "t", &next, "--failed"]), 2, "nobody is told why");
    sandbox.ok(&["inbox", "acted", "t", &next, "--failed", "--outcome", "no model"]);
    assert!(sandbox.ok(&["inbox", "show", "t", &next]).contains("no model"));
    assert_eq!(exit(&sandbox, &["inbox", "withdraw", "t", &next]), 1);
    assert_eq!(exit(&sandbox, &["inbox", "show", "t", "ffff"]), 3);
}

#[test]
fn messages_are_read_from_standard_input_listed_withdrawn_and_reordered() {
    let sandbox = with_thread();
    let body = "{\"a\": [1]}";
    let output = sandbox.feed(&["inbox", "inject", "t", "-", "--body-is-json", "--from", "ci"], body);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(exit(&sandbox, &["inbox", "inject", "t", "{", "--body-is-json"]), 2);
    assert_eq!(exit(&sandbox, &["inbox", "inject", "t", "x", "--expires", "soon"]), 2);
    assert_eq!(exit(&sandbox, &["inbox", "inject", "absent", "x"]), 3);
    for word in ["two", "three"] {
        sandbox.ok(&["inbox", "inject", "t", word]);
    }
    assert_eq!(exit(&sandbox, &["inbox", "inject", "t", "now", "--policy", "reject"]), 1);
    let listed = sandbox.json(&["inbox", "list", "t", "--reverse", "--limit", "3"]);
    let bodies: Vec<&Value> = listed["messages"].as_array().unwrap().iter().map(|it| &it["body"]).collect();
    assert_eq!(bodies, [body, "two", "three"]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    let rest = sandbox.json(&["inbox", "list", "t", "--reverse", "--limit", "3", "--cursor", cursor]);
    assert_eq!((&rest["messages"][0]["state"], &rest["next_cursor"]), (&json!("rejected"), &Value::Null));
    let ids: Vec<String> =
        listed["messages"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().into()).collect();
    assert_eq!(exit(&sandbox, &["inbox", "reorder", "t", &ids[2], &ids[0]]), 1);
    let order = sandbox.json(&["inbox", "reorder", "t", &ids[2], &ids[0], &ids[1]]);
    assert_eq!(order["queue"], json!([ids[2], ids[0], ids[1]]));
    sandbox.ok(&["inbox", "withdraw", "t", &ids[2], "--reason", "done"]);
    let queued = sandbox.json(&["inbox", "list", "t", "--state", "queued"]);
    assert_eq!(queued["messages"].as_array().unwrap().len(), 2);
    assert_eq!(sandbox.json(&["inbox", "take", "t"])["message"]["body"], body);
    assert_eq!(exit(&sandbox, &["inbox", "take", "t", "--into", "open-turn", "--past-unfinished"]), 1);
    assert!(sandbox.ok(&["inbox", "list", "t"]).contains("withdrawn"));
    sandbox.thread("empty", "Nothing", &["a"]);
    assert!(sandbox.ok(&["inbox", "list", "empty"]).contains("No such message"));
}

#[test]
fn an_approval_is_asked_answered_and_used_once() {
    let sandbox = with_thread();
    let asked = sandbox.json(&[
        "request",
        "ask",
        "push",
        "--call",
        "git push",
        "--thread",
        "t",
        "--detail",
        "{\"to\":\"main\"}",
    ]);
    let id = id_of(&asked, "request");
    let request = &asked["request"];
    assert_eq!(
        (&request["state"], &request["thread"], &request["danger"]),
        (&json!("pending"), &json!("t"), &json!("high"))
    );
    assert_eq!(
        (&request["detail"], &request["options"][2]),
        (
            &json!({"to": "main"}),
            &json!({"id": "allow_always", "label": "Always allow", "effect": "allow_always", "remote": false})
        )
    );
    // Whoever asked has gone.
    assert!(sandbox.ok(&["request", "list", "--state", "pending"]).contains("pending, unowned"));
    assert_eq!(exit(&sandbox, &["request", "consume", &id, "--call", "git push"]), 1);
    assert_eq!(exit(&sandbox, &["request", "answer", &id, "allow_always", "--remote", "--by", "bo"]), 2);
    let answered = sandbox.json(&["request", "answer", &id, "allow_once", "--remote", "--by", "bo", "--note", "fine"]);
    assert_eq!(
        answered["request"]["answer"],
        json!({"option": "allow_once", "effect": "allow_once", "stored_effect": "allow_once"})
    );
    assert_eq!(answered["request"]["resolved_by"], json!({"name": "bo", "channel": "remote"}));
    assert_eq!(exit(&sandbox, &["request", "answer", &id, "deny", "--by", "ana"]), 1);
    assert_eq!(exit(&sandbox, &["request", "cancel", &id, "--by", "ana"]), 1);
    assert_eq!(exit(&sandbox, &["request", "consume", &id, "--call", "git push --force"]), 1);
    assert_eq!(exit(&sandbox, &["request", "consume", &id]), 2);
    let fingerprint = request["fingerprint"].as_str().unwrap();
    let token = "01900000-0000-7000-8000-000000000001";
    let used = sandbox.json(&["request", "consume", &id, "--fingerprint", fingerprint, "--token", token]);
    assert_eq!(
        (&used["granted"], &used["effect"], &used["repeated"]),
        (&json!(true), &json!("allow_once"), &json!(false))
    );
    assert_eq!(sandbox.json(&["request", "consume", &id, "--call", "git push", "--token", token])["repeated"], true);
    assert_eq!(exit(&sandbox, &["request", "consume", &id, "--call", "git push"]), 1);
    let shown = sandbox.ok(&["request", "show", &id]);
    assert!(shown.contains("bo (remote)") && shown.contains("fine") && shown.contains("here only"), "{shown}");
    assert_eq!(exit(&sandbox, &["request", "show", "ffff"]), 3);
}

#[test]
fn requests_are_denied_cancelled_expired_and_proposed() {
    let sandbox = with_thread();
    let ask = |words: &[&str]| {
        let words = [&["request", "ask", "--workspace", "/w"], words].concat();
        id_of(&sandbox.json(&words), "request")
    };
    let denied = ask(&[
        "one",
        "--call",
        "x",
        "--danger",
        "low",
        "--option",
        "no=deny=Never",
        "--option",
        "ok=allow_once",
        "--here-only",
    ]);
    assert_eq!(exit(&sandbox, &["request", "answer", &denied, "no", "--remote", "--by", "bo"]), 2);
    assert!(sandbox.ok(&["request", "answer", &denied, "no", "--by", "ana"]).contains("answered deny"));
    assert_eq!(exit(&sandbox, &["request", "consume", &denied, "--call", "x"]), 1);
    let file = sandbox.path("call");
    std::fs::write(&file, "y").unwrap();
    let cancelled = ask(&["two", "--call-file", file.to_str().unwrap()]);
    assert!(sandbox.ok(&["request", "cancel", &cancelled, "--by", "ana", "--note", "no need"]).contains("cancelled"));
    let expired = ask(&["three", "--call", "x", "--expires", "0s"]);
    assert_eq!(exit(&sandbox, &["request", "answer", &expired, "allow_once", "--by", "ana"]), 1);
    let proposed = ask(&["laptop", "--enrolment", "--detail", "{\"key\":1}", "--never-expires"]);
    assert_eq!(exit(&sandbox, &["request", "answer", &proposed, "enrol", "--remote", "--by", "bo"]), 2);
    sandbox.ok(&["request", "answer", &proposed, "enrol", "--by", "ana"]);
    assert!(sandbox.ok(&["request", "consume", &proposed, "--call", "{\"key\":1}"]).contains("Granted"));
    let listed = sandbox.json(&["request", "list", "--reverse", "-w", "/w", "--limit", "3"]);
    let states: Vec<&Value> = listed["requests"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["answered", "cancelled", "expired"]);
    assert!(listed["next_cursor"].is_string());
    let kinds = sandbox.json(&["request", "list", "--kind", "enrolment"]);
    assert_eq!(kinds["requests"].as_array().unwrap().len(), 1);
    for wrong in [
        &["ask", "x"][..],
        &["ask", "x", "--call", "x", "--option", "nothing"],
        &["ask", "x", "--call", "x", "--option", "a=allow_all"],
        &["ask", "x", "--call", "x", "--detail", "{"],
        &["ask", "x", "--enrolment"],
        &["consume", "x", "--fingerprint", "zz"],
    ] {
        assert_eq!(exit(&sandbox, &[&["request"], wrong].concat()), 2, "{wrong:?}");
    }
    assert!(sandbox.ok(&["request", "list", "--thread", "t"]).contains("No such request"));
}

/// Whoever asks and waits goes on with the answer, and does not wait for one that can't come.
#[test]
fn an_asker_waits_for_the_answer() {
    let sandbox = with_thread();
    let id = "01900000-0000-7000-8000-000000000007";
    let ask = ["request", "ask", "push", "--call", "x", "--thread", "t", "--id", id, "--wait", "5m"];
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| sandbox.json(&ask));
        // It may not have asked yet.
        while exit(&sandbox, &["request", "answer", id, "allow_once", "--by", "ana"]) != 0 {}
        let answered = asking.join().unwrap();
        assert_eq!(answered["request"]["answer"]["effect"], "allow_once");
    });
    let late = ["request", "ask", "late", "--call", "x", "--thread", "t", "--expires", "0s", "--wait", "5m"];
    assert_eq!(exit(&sandbox, &late), 1);
}
