//! Retention from outside.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A sandbox with threads that were made one after the other.
fn with_threads() -> Sandbox {
    let sandbox = Sandbox::new();
    for id in ["one", "two", "three"] {
        sandbox.thread(id, &format!("Title of {id}"), &["a", "b"]);
    }
    sandbox
}

fn threads(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["thread"].as_str().unwrap()).collect()
}

#[test]
fn nothing_is_taken_without_rules() {
    let sandbox = with_threads();
    assert!(sandbox.ok(&["retain"]).contains("nothing is taken"));
    let report = sandbox.json(&["retain"]);
    assert_eq!((&report["workspaces"], &report["trashed"]), (&json!(0), &json!([])));
    assert!(sandbox.ok(&["retain", "--show"]).contains("No rules are kept"));
    assert!(sandbox.ok(&["retain", "--history"]).contains("Nothing was ever taken"));
    assert_eq!(sandbox.run(&["retain", "--clear"]).status.code(), Some(1));
    assert_eq!(sandbox.code(&["retain", "--set"]), 2);
    for wrong in [
        ["--max-count", "0"],
        ["--max-age", "soon"],
        ["--max-age", "0s"],
        ["--max-size", "big"],
        ["--trash-grace", "later"],
        ["--workspace", "no such workspace"],
    ] {
        let code = sandbox.code(&["retain", wrong[0], wrong[1]]);
        assert!(code == 2 || (wrong[0] == "--workspace" && code == 3), "{wrong:?} gave {code}");
    }
    assert_eq!(sandbox.json(&["list"])["threads"].as_array().unwrap().len(), 3);
}

#[test]
fn what_would_go_is_what_goes_and_comes_back() {
    let sandbox = with_threads();
    sandbox.ok(&["pin", "two"]);
    let rules = ["--max-age", "PT0.001S", "--grace", "0s"];
    let with = |more: &[&'static str]| [&["retain"], more, &rules].concat();
    let dry = sandbox.json(&with(&["--dry-run"]));
    assert_eq!(threads(&dry["trashed"]), ["one", "three"]);
    let fields = ["dry_run", "workspaces", "purged", "freed_bytes", "held_back", "notices"];
    assert_eq!(json!(fields.map(|field| &dry[field])), json!([true, 1, [], 0, null, []]));
    let entry = &dry["trashed"][0];
    let fields = ["number", "name", "step", "rule", "bound", "items", "record"];
    assert_eq!(json!(fields.map(|field| &entry[field])), json!([null, "Title of one", "trashed", "age", 1, 2, null]));
    assert!(entry["bytes"].as_i64() > Some(0) && entry["head_hash"].is_string() && entry["changed_at"].is_string());
    let kept = &dry["kept"][0];
    assert_eq!((&kept["thread"], &kept["why"], &kept["rule"]), (&json!("two"), &json!("pinned"), &json!("age")));
    let words = sandbox.ok(&with(&["--dry-run"]));
    assert!(words.contains("too old") && words.contains("it is pinned"), "{words}");
    assert!(words.contains("2 threads would go into the trash, 0 threads would be purged; 1 thread kept"), "{words}");
    assert_eq!(sandbox.json(&["list"])["threads"].as_array().unwrap().len(), 3);

    assert_eq!(threads(&sandbox.json(&with(&["--spare", "one"]))["trashed"]), ["three"]);
    let words = sandbox.ok(&with(&[]));
    assert!(words.contains("1 thread in the trash, 0 threads purged"), "{words}");
    sandbox.ok(&["restore", "one"]);
    let history = sandbox.json(&["retain", "--history", "-n", "2"]);
    let steps: Vec<&Value> = history["receipts"].as_array().unwrap().iter().map(|it| &it["step"]).collect();
    assert_eq!(steps, ["restored", "trashed"]);
    let next = history["next_cursor"].as_str().unwrap();
    let rest = sandbox.json(&["retain", "--history", "-n", "2", "--cursor", next]);
    assert_eq!((threads(&rest["receipts"]), &rest["next_cursor"]), (vec!["three"], &Value::Null));
    assert!(sandbox.ok(&["retain", "--history"]).contains("restored"));
    let report = sandbox.json(&["retain", "--trash-grace", "0s"]);
    assert_eq!(threads(&report["purged"]), ["three"]);
    assert_eq!(sandbox.code(&["show", "three"]), 3);
}

#[test]
fn rules_are_kept_shown_and_forgotten() {
    let sandbox = with_threads();
    let set = ["retain", "--set", "--max-count", "2", "--max-size", "2GiB", "--grace", "0s", "--trash-grace", "never"];
    let shown = sandbox.json(&set);
    assert_eq!(
        shown["rules"],
        json!([{
            "workspace": null, "max_count": 2, "max_age_ms": null, "max_bytes": 2_147_483_648_u64, "max_store_bytes": null,
            "grace_ms": 0, "trash_grace_ms": null, "archived": false, "forked": false, "deleted": false,
        }])
    );
    let workspace = sandbox.json(&["workspaces"])["workspaces"][0]["id"].as_str().unwrap().to_owned();
    let of_one = ["retain", "--workspace", &workspace, "--set", "--max-age", "90d", "--archived"];
    assert_eq!(sandbox.json(&of_one)["rules"].as_array().unwrap().len(), 2);
    let words = sandbox.ok(&["retain", "--show"]);
    for part in ["the store", "workspace ", "max count       2", "GiB", "trash grace     never", "90d", "archived"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // The workspace has its own rules, which take nothing yet.
    assert_eq!(threads(&sandbox.json(&["retain"])["trashed"]), Vec::<&str>::new());
    assert_eq!(sandbox.json(&["retain", "--workspace", &workspace, "--clear"]), json!({"cleared": true}));
    assert_eq!(threads(&sandbox.json(&["retain"])["trashed"]), ["one"]);
    assert_eq!(sandbox.code(&["retain", "--workspace", &workspace, "--set", "--max-store-size", "1GB"]), 2);
    assert_eq!(sandbox.json(&["retain", "--clear"]), json!({"cleared": true}));
}
