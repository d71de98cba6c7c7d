//! Content taken away: what is said before, what is left after, and what can't be asked.

use std::fs;

use memchr::memmem;
use serde_json::json;

use crate::sandbox::Sandbox;
use crate::shapes::keys;

/// Every file of the store that holds these bytes.
fn holding(sandbox: &Sandbox, secret: &str) -> Vec<String> {
    let (mut found, mut waiting) = (Vec::new(), vec![sandbox.path("store")]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if memmem::find(&fs::read(&path).unwrap(), secret.as_bytes()).is_some() {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn an_item_is_taken_away_with_its_thread_s_name_and_its_rollout() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "my password is hunter2", &["my password is hunter2", "thanks"]);
    sandbox.ok(&["rollout", "mirror"]);
    assert!(holding(&sandbox, "hunter2").len() > 1, "the control");
    let report = sandbox.json(&["redact", "one@0", "--reason", "a password", "--by", "ann"]);
    keys(
        &report,
        &[
            "looked_at",
            "redacted",
            "places",
            "rules",
            "derived",
            "same_payload",
            "beside",
            "file_parts",
            "rollouts",
            "remains",
            "erased",
            "problems",
        ],
    );
    assert_eq!((&report["redacted"], &report["rollouts"], &report["erased"]), (&json!(1), &json!(1), &json!(true)));
    assert_eq!(report["beside"], json!({"one": ["title"]}));
    assert_eq!(holding(&sandbox, "hunter2"), Vec::<String>::new());
    let item = sandbox.json(&["show", "one"])["items"][0].clone();
    assert_eq!(item["redaction"]["by"], "ann");
    assert_eq!((&item["redaction"]["reason"], &item["redaction"]["masked"]), (&json!("a password"), &json!(false)));
    let shown = sandbox.ok(&["show", "one"]);
    assert!(shown.contains("[redacted by ann") && shown.contains("a password") && shown.contains("thanks"), "{shown}");
    assert_eq!(sandbox.json(&["verify"])["invalid"], json!([]));
    let folder = sandbox.path("store/rollouts");
    assert!(sandbox.ok(&["rollout", "verify", folder.to_str().unwrap()]).contains("all whole"));
}

#[test]
fn rules_say_what_they_would_do_and_then_do_it() {
    let sandbox = Sandbox::new();
    // In two pieces, so that nobody takes this file for a leak.
    let key = format!("{}{}", "ghp_", "wWPw5k4aXcaT4fNP0UcnZwJUVFk6LO0pINUx");
    sandbox.thread("one", "One", &[&format!("use {key} there"), "nothing"]);
    sandbox.thread("two", "Two", &["nothing"]);
    let before = sandbox.ok(&["show", "one", "--json"]);
    let dry = sandbox.json(&["redact", "--secrets"]);
    assert_eq!((&dry["looked_at"], &dry["redacted"], &dry["erased"]), (&json!(3), &json!(1), &json!(null)));
    assert_eq!(sandbox.ok(&["show", "one", "--json"]), before);
    assert!(sandbox.ok(&["redact", "--secrets"]).contains("--apply does it"));
    let done = sandbox.json(&["redact", "--secrets", "--apply", "--reason", "before sharing"]);
    assert_eq!((&done["redacted"], &done["rules"], &done["places"]), (&json!(1), &dry["rules"], &dry["places"]));
    let text = sandbox.json(&["show", "one"])["items"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("use [redacted:") && text.ends_with("] there"), "{text}");
    assert!(sandbox.ok(&["show", "one"]).contains("partly redacted"));
    assert_eq!(holding(&sandbox, &key), Vec::<String>::new());

    let output = sandbox.feed(&["redact", "two", "--literal-from", "-", "--apply", "--reason", "a word"], "nothing\n");
    assert!(output.status.success(), "{output:?}");
    assert!(sandbox.json(&["show", "two"])["items"][0]["text"].as_str().unwrap().starts_with("[redacted:"));
    assert!(!sandbox.json(&["show", "one"])["items"][1]["text"].as_str().unwrap().contains("redacted"), "only in two");
}

#[test]
fn what_was_imported_is_given_back_without_what_was_taken_away() {
    let sandbox = Sandbox::new();
    let line = |text: &str, id: &str| {
        let line = json!({"type": "user", "uuid": id, "parentUuid": null, "sessionId": "s", "cwd": "/w", "timestamp": "2026-11-30T10:00:00.000Z",
            "message": {"role": "user", "content": text}});
        format!("{line}\n")
    };
    let ids = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
    let file = sandbox.path("s.jsonl");
    fs::write(&file, [line("the secret is hunter2", ids[0]), line("fine", ids[1])].concat()).unwrap();
    sandbox.ok(&["import", file.to_str().unwrap()]);
    let verbatim = || sandbox.run(&["export", "s", "--verbatim"]);
    assert!(verbatim().stdout == fs::read(&file).unwrap());
    let items = sandbox.json(&["show", "s", "--all"])["items"].clone();
    let of = |text: &str| {
        items.as_array().unwrap().iter().find(|item| item["text"].as_str().unwrap().contains(text)).unwrap()
    };
    let branch = of("hunter2")["branch"].as_str().unwrap().to_owned();
    let depth = format!("s@{}", of("hunter2")["depth"]);
    sandbox.json(&["redact", &depth, "--branch", &branch, "--reason", "a password"]);
    assert_eq!(holding(&sandbox, "hunter2"), Vec::<String>::new());
    let output = verbatim();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("threadkeep-redacted") && text.contains("fine") && !text.contains("hunter2"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("redacted in the store"));

    // The file grows and is imported again: what was taken away does not come back.
    fs::write(
        &file,
        [
            line("the secret is hunter2", ids[0]),
            line("fine", ids[1]),
            line("more", "33333333-3333-4333-8333-333333333333"),
        ]
        .concat(),
    )
    .unwrap();
    sandbox.ok(&["import", file.to_str().unwrap()]);
    assert!(sandbox.ok(&["export", "s", "--verbatim"]).contains("more"));
    assert_eq!(holding(&sandbox, "hunter2"), Vec::<String>::new());
}

#[test]
fn what_can_t_be_asked_is_refused_before_anything_is_changed() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    let usage: [&[&str]; 6] = [
        &["redact"],
        &["redact", "one@0"],
        &["redact", "one", "--reason", "x"],
        &["redact", "--secrets", "--apply"],
        &["redact", "--secrets", "--with-derived"],
        &["redact", "--finish", "one"],
    ];
    for arguments in usage {
        assert_eq!(sandbox.code(arguments), 2, "{arguments:?}");
    }
    assert_eq!(sandbox.code(&["redact", "one@7", "--reason", "x"]), 3);
    assert_eq!(sandbox.code(&["redact", "--pattern", "("]), 2);
    assert_eq!(sandbox.json(&["show", "one"])["items"][0]["redaction"], json!(null));
    assert_eq!(sandbox.json(&["redact", "--finish"])["remains"], json!([]));
}
