//! Copying one store into another.

use std::fs;

use serde_json::Value;

use crate::sandbox::{Sandbox, samples};

#[test]
fn a_copy_is_the_same_store_elsewhere_and_is_completed_by_the_next() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["import", samples().to_str().unwrap()]);
    sandbox.thread("one", "One", &["a", "b"]);
    let target = sandbox.path("elsewhere").to_str().unwrap().to_owned();
    let first = sandbox.json(&["copy", "--to", &target]);
    let threads = first["threads"]["read"].as_u64().unwrap();
    assert!(threads > 3 && first["threads"]["new"] == threads && first["threads"]["equal"] == threads, "{first}");
    let there = |arguments: &[&str]| {
        let output = sandbox.bare().args(["--store", &target]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output.stdout
    };
    for arguments in [&["list", "--all", "--json"][..], &["tree", "one", "--json"], &["show", "one", "--json", "--raw"]]
    {
        let (here, there): (Value, Value) =
            (sandbox.json(arguments), serde_json::from_slice(&there(arguments)).unwrap());
        assert_eq!(here["threads"].as_array().map(Vec::len), there["threads"].as_array().map(Vec::len));
        assert_eq!((&here["items"], &here["branches"]), (&there["items"], &there["branches"]));
    }
    let sessions = sandbox.json(&["list", "--all", "--agent", "codex", "--json"]);
    let imported = sessions["threads"][0]["id"].as_str().unwrap();
    let exported = sandbox.command(&["export", imported, "--verbatim"]).output().unwrap().stdout;
    assert!(there(&["export", imported, "--verbatim"]) == exported && !exported.is_empty());

    assert!(sandbox.feed(&["append", "one"], "{\"text\":\"goes on\"}\n").status.success());
    let words = sandbox.ok(&["copy", "--to", &target]);
    assert!(words.contains("Copied 1 item of 1 thread"), "{words}");
    let third = sandbox.json(&["copy", "--to", &target]);
    assert_eq!((&third["threads"]["unchanged"], &third["items"]), (&threads.into(), &0.into()));
}

#[test]
fn a_thread_that_went_on_there_is_left_and_named() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    sandbox.thread("two", "Two", &["b"]);
    sandbox.ok(&["copy", "--to", "other"]);
    fs::write(sandbox.path("line"), "{\"text\":\"there\"}\n").unwrap();
    let mut append = sandbox.bare();
    append.args(["--store", "other", "append", "one"]).stdin(fs::File::open(sandbox.path("line")).unwrap());
    assert!(append.output().unwrap().status.success());
    let output = sandbox.run(&["copy", "--to", "other", "--json"]);
    assert_eq!(output.status.code(), Some(8));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["problems"][0]["thread"], &report["problems"][0]["kind"]), (&"one".into(), &"conflict".into()));
    assert_eq!((&report["threads"]["unchanged"], &report["threads"]["left"]), (&1.into(), &1.into()));
}

#[test]
fn what_is_no_store_is_told_and_touched_by_nobody() {
    let sandbox = Sandbox::new();
    let (code, error) = sandbox.failure(&["copy", "--to", "other"]);
    assert_eq!((code, &error["kind"]), (3, &"not-found".into()));
    assert!(!sandbox.path("project/other").exists(), "a store was made for a copy of nothing");
    sandbox.thread("one", "One", &["a"]);
    let foreign = sandbox.path("project/foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("threadkeep.db"), "something else").unwrap();
    let (_, error) = sandbox.failure(&["copy", "--to", "foreign"]);
    assert_eq!(error["kind"], "foreign-store");
    assert_eq!(fs::read(foreign.join("threadkeep.db")).unwrap(), b"something else");
    let (code, error) = sandbox.failure(&["copy", "--to", sandbox.path("store").to_str().unwrap()]);
    assert_eq!((code, &error["kind"]), (2, &"invalid".into()));
}
