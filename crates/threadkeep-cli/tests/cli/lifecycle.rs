//! From the list to the trash and back.

use crate::sandbox::Sandbox;

fn ids(sandbox: &Sandbox, arguments: &[&str]) -> Vec<String> {
    let list = sandbox.json(arguments);
    list["threads"].as_array().unwrap().iter().map(|thread| thread["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn shelves() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    sandbox.thread("two", "Two", &["a"]);
    assert_eq!(sandbox.json(&["archive", "one"])["thread"]["archived"], true);
    assert_eq!(ids(&sandbox, &["list"]), ["two"]);
    assert_eq!(ids(&sandbox, &["list", "--archived"]), ["one"]);
    let (code, error) = sandbox.failure(&["append", "one"]);
    assert_eq!((code, &error["kind"]), (1, &"archived".into()));
    assert!(error["hint"].as_str().unwrap().contains("unarchive one"));
    assert_eq!(sandbox.json(&["delete", "one"])["thread"]["shelf"], "trashed");
    assert_eq!(ids(&sandbox, &["list", "--archived"]), [""; 0]);
    assert_eq!(ids(&sandbox, &["list", "--trash"]), ["one"]);
    assert_eq!(sandbox.json(&["restore", "one"])["thread"]["shelf"], "archived");
    assert_eq!(sandbox.json(&["unarchive", "one"])["thread"]["shelf"], "active");
    assert_eq!(sandbox.code(&["restore", "one"]), 3);
    assert_eq!(ids(&sandbox, &["list", "--reverse"]), ["one", "two"]);
}

#[test]
fn purging_needs_the_trash_and_a_yes() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b", "c"]);
    sandbox.ok(&["fork", "one@1", "--id", "fork"]);
    let (code, error) = sandbox.failure(&["purge", "one", "--yes"]);
    assert_eq!((code, &error["kind"]), (1, &"conflict".into()));
    sandbox.ok(&["delete", "one"]);
    let (code, error) = sandbox.failure(&["purge", "one"]);
    assert_eq!(code, 2);
    assert!(error["hint"].as_str().unwrap().contains("--yes"));
    let purged = sandbox.json(&["purge", "one", "--yes"]);
    assert_eq!(purged, serde_json::json!({"thread": "one", "items": 1, "shared": 2, "stub": true}));
    assert_eq!(sandbox.code(&["show", "one"]), 3);
    assert_eq!(sandbox.json(&["show", "fork"])["items"].as_array().unwrap().len(), 2);
}

#[test]
fn compacting_gives_room_back() {
    let sandbox = Sandbox::new();
    // Noise, so that no compression takes the room before.
    let noise: String =
        (0..40_000_u64).map(|number| format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    sandbox.thread("goes", "Goes", &[&noise]);
    sandbox.thread("stays", "Stays", &["a"]);
    sandbox.ok(&["delete", "goes"]);
    sandbox.ok(&["purge", "goes", "--yes"]);
    let done = sandbox.json(&["compact"]);
    let [before, after, freed] = ["bytes_before", "bytes_after", "bytes_freed"].map(|key| done[key].as_i64().unwrap());
    assert!(freed > 100_000 && before - after == freed, "{done}");
    assert_eq!(
        (&done["remains"], sandbox.json(&["stats"])["file_bytes"].as_i64()),
        (&serde_json::json!([]), Some(after))
    );
    assert_eq!(sandbox.json(&["show", "stays"])["items"].as_array().unwrap().len(), 1);
    assert!(sandbox.ok(&["compact"]).contains("The store takes"));
}

#[test]
fn titles_pins_and_ends() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    sandbox.thread("two", "Two", &["a"]);
    sandbox.ok(&["rename", "two", "--", "--strange -title"]);
    assert_eq!(sandbox.json(&["show", "--", "--strange -title"])["thread"]["id"], "two");
    assert_eq!(sandbox.json(&["rename", "two", ""])["thread"]["title"], serde_json::Value::Null);
    assert_eq!(sandbox.code(&["rename", "two", "-"]), 2);
    assert_eq!(sandbox.json(&["pin", "two"])["thread"]["pinned"], true);
    assert!(sandbox.ok(&["list"]).contains('★'));
    assert_eq!(sandbox.json(&["pin", "two", "--off"])["thread"]["pinned"], false);
    assert_eq!(sandbox.json(&["show", "-"])["thread"]["id"], "two");
    let ended = sandbox.json(&["end", "two", "--reason", "merged", "--status", "failed"]);
    assert_eq!((&ended["thread"]["end_reason"], &ended["thread"]["status"]), (&"merged".into(), &"failed".into()));
    assert_eq!(sandbox.json(&["show", "-"])["thread"]["id"], "one");
}

#[test]
fn rewinding_loses_nothing() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b", "c"]);
    assert_eq!(sandbox.json(&["rewind", "one@0"])["head"]["depth"], 0);
    assert_eq!(sandbox.code(&["rewind", "one@2"]), 3, "the active path is shorter now");
    assert_eq!(sandbox.code(&["rewind", "one"]), 2);
    assert!(sandbox.feed(&["append", "one"], "{\"text\":\"other\"}\n").status.success());
    let tree = sandbox.json(&["tree", "one"]);
    assert_eq!(tree["branches"].as_array().unwrap().len(), 2);
    assert_eq!(tree["branches"][1]["fork_depth"], 0);
    assert_eq!(tree["leaves"].as_array().unwrap().len(), 2);
    assert_eq!(sandbox.json(&["verify", "one"])["items"], 4);
}

#[test]
fn a_project_that_moved_keeps_its_threads() {
    let sandbox = Sandbox::new();
    let (old, new) = (sandbox.path("old"), sandbox.path("new"));
    std::fs::create_dir_all(old.join(".git")).unwrap();
    let output = sandbox.feed(&["append", "--new", "--id", "one", "-w", old.to_str().unwrap()], "{\"text\":\"a\"}\n");
    assert!(output.status.success());
    std::fs::rename(&old, &new).unwrap();
    assert_eq!(sandbox.code(&["list", "-w", new.to_str().unwrap()]), 3);
    let moved = sandbox.json(&["remap", old.to_str().unwrap(), new.to_str().unwrap()]);
    assert_eq!((&moved["workspace"]["name"], &moved["workspace"]["threads"]), (&"new".into(), &1.into()));
    assert_eq!(ids(&sandbox, &["list", "-w", new.to_str().unwrap()]), ["one"]);
    assert_eq!(sandbox.code(&["remap", old.to_str().unwrap(), new.to_str().unwrap()]), 1);
    assert_eq!(sandbox.code(&["remap", "nowhere", "new"]), 3);
}
