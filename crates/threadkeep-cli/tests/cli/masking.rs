//! Secrets that are masked on the way in, and on the way out. They are made up, and put together here.

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, lines, samples};

const MARKER: &str = "[redacted:github-pat]";

fn token() -> String {
    ["gh", "p_"].concat() + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
}

/// All that is given back of a thread.
fn given_back(sandbox: &Sandbox, thread: &str) -> String {
    let shown = sandbox.ok(&["--json", "show", thread, "--raw"]);
    format!("{shown}{}{}", sandbox.ok(&["--json", "list"]), sandbox.ok(&["--json", "tail", thread]))
}

#[test]
fn append_masks_what_it_stores_and_says_so() {
    let sandbox = Sandbox::new();
    let token = token();
    let long = format!("{}{token}", "word ".repeat(38));
    let input = [json!({"role": "user", "text": long}), json!({"text": "nothing"}), json!({"content": {"k": token}})];
    let input: String = input.iter().map(|line| format!("{line}\n")).collect();
    let new = ["append", "--new", "--id", "one", "--mask-secrets"];
    let output = sandbox.feed(&new, &input);
    assert!(output.status.success(), "{output:?}");
    let told: Vec<Option<bool>> = lines(&output.stdout).iter().map(|line| line["masked"].as_bool()).collect();
    assert_eq!(told, [None, Some(true), None, Some(true)]);
    let all = given_back(&sandbox, "one");
    assert!(!all.contains(&token) && !all.contains(&token[..12]) && all.contains(MARKER), "{all}");
    sandbox.ok(&["verify", "one"]);
    // Without the option it is stored as it is given.
    assert!(sandbox.feed(&["append", "one"], &input).status.success());
    assert!(given_back(&sandbox, "one").contains(&token));
}

#[test]
fn patterns_and_files_of_rules_are_taken_and_wrong_ones_refused() {
    let sandbox = Sandbox::new();
    let rules = sandbox.path("rules.toml");
    std::fs::write(&rules, "[[rules]]\nid = \"pin\"\nregex = '''pin=([0-9]{4})'''\n").unwrap();
    let new = ["append", "--new", "--id", "one", "--mask", "käse", "--rules", rules.to_str().unwrap()];
    assert!(sandbox.feed(&new, "{\"text\":\"pin=1234 käse\"}\n").status.success());
    assert!(given_back(&sandbox, "one").contains("pin=[redacted:pin] [redacted:pattern]"));
    assert_eq!(sandbox.code(&["append", "one", "--mask", "("]), 2);
    assert_eq!(sandbox.code(&["append", "one", "--rules", "/nowhere.toml"]), 2);
    std::fs::write(&rules, "[[rules]]\nid = \"bad\"\nregex = '''('''\n").unwrap();
    let (code, error) = sandbox.failure(&["show", "one", "--rules", rules.to_str().unwrap()]);
    assert!(code == 2 && error["message"].as_str().unwrap().contains("`bad`"), "{error}");
}

#[test]
fn an_imported_file_is_masked_and_exported_so() {
    let sandbox = Sandbox::new();
    let sample = samples().join("claude-code/projects/-home-dev-webshop/c3a94d17-80e2-4f6b-a1d5-73b2e9f04c68.jsonl");
    let token = token();
    let mut text = std::fs::read_to_string(sample).unwrap();
    let first: Value = serde_json::from_str(text.lines().find(|line| line.contains("\"user\"")).unwrap()).unwrap();
    let mut last = first.clone();
    last["uuid"] = "00000000-0000-4000-8000-0000000000aa".into();
    last["message"]["content"] = format!("my token is {token}\nuse it").into();
    text.push_str(&format!("{last}\nno json: {token}\n"));
    let path = sandbox.path("c3a94d17-80e2-4f6b-a1d5-73b2e9f04c68.jsonl");
    std::fs::write(&path, &text).unwrap();
    let path = path.to_str().unwrap();
    let dry = sandbox.json(&["import", path, "--dry-run", "--mask-secrets"]);
    assert_eq!(dry["items"]["masked"], 2, "{dry}");
    assert_eq!(sandbox.json(&["import", path, "--mask-secrets"])["items"]["masked"], 2);
    assert!(sandbox.json(&["import", path, "--mask-secrets"])["items"]["masked"].is_null());
    let all = given_back(&sandbox, "c3a94d17");
    assert!(!all.contains(&token) && all.contains(MARKER), "{all}");
    let export = sandbox.run(&["export", "c3a94d17", "--verbatim"]);
    assert_eq!(String::from_utf8(export.stdout).unwrap(), text.replace(&token, MARKER));
    assert!(String::from_utf8_lossy(&export.stderr).contains("not the file that was imported"));
    let out = sandbox.path("out.jsonl");
    let out = out.to_str().unwrap();
    assert_eq!(sandbox.json(&["export", "c3a94d17", "--verbatim", "-o", out])["verbatim"], false);

    // What is stored as it was is masked on the way out, and then says so.
    let other = Sandbox::new();
    other.ok(&["import", path]);
    assert_eq!(other.ok(&["export", "c3a94d17", "--verbatim"]), text);
    assert_eq!(other.json(&["export", "c3a94d17", "--verbatim", "-o", out])["verbatim"], true);
    let masked = other.run(&["export", "c3a94d17", "--verbatim", "--mask-secrets"]);
    assert_eq!(String::from_utf8(masked.stdout).unwrap(), text.replace(&token, MARKER));
    assert!(String::from_utf8_lossy(&masked.stderr).contains("still in the store"));
}

#[test]
fn what_is_shown_can_be_masked_and_the_store_stays() {
    let sandbox = Sandbox::new();
    let token = token();
    sandbox.thread("one", &format!("About {token}"), &["first", &format!("it is {token}")]);
    let raw = ["--json", "show", "one", "--raw", "--mask-secrets"];
    let shown: Value = serde_json::from_str(&sandbox.ok(&raw)).unwrap();
    let marks: Vec<Option<bool>> =
        shown["items"].as_array().unwrap().iter().map(|item| item["masked"].as_bool()).collect();
    assert_eq!(marks, [None, Some(true)]);
    for arguments in [
        &["show", "one", "--mask-secrets"][..],
        &["show", "one", "--raw", "--mask-secrets"],
        &["show", "one", "--markdown", "--mask-secrets"],
        &["show", "one", "--last", "1", "--mask-secrets"],
        &["tail", "one", "--mask-secrets"],
        &["--json", "tail", "one", "--mask-secrets"],
        &raw,
    ] {
        let text = sandbox.ok(arguments);
        assert!(!text.contains(&token) && text.contains("[redacted:"), "{arguments:?}: {text}");
    }
    let words = sandbox.run(&["show", "one", "--mask-secrets"]);
    assert!(String::from_utf8_lossy(&words.stderr).contains("secrets in 1 item are masked here"), "{words:?}");
    assert!(sandbox.ok(&["show", "one"]).contains(&token));
}
