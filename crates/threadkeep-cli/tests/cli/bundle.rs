//! Threads in one file, from one machine to another.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::sandbox::{Sandbox, samples};

const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

fn with_samples() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.run(&["import", samples().to_str().unwrap()]);
    sandbox
}

fn ids(sandbox: &Sandbox) -> Vec<String> {
    let listed = sandbox.json(&["list", "--all"]);
    listed["threads"].as_array().unwrap().iter().map(|thread| thread["id"].as_str().unwrap().to_owned()).collect()
}

fn raw(sandbox: &Sandbox, thread: &str) -> Value {
    sandbox.json(&["show", thread, "--raw"])["items"].clone()
}

/// Puts a file of one sandbox into another.
fn bring(from: &Sandbox, to: &Sandbox, name: &str) -> String {
    let there = to.path(&format!("project/{name}"));
    fs::copy(from.path(&format!("project/{name}")), &there).unwrap();
    there.to_str().unwrap().to_owned()
}

#[test]
fn threads_go_from_one_store_to_another() {
    let (here, there) = (with_samples(), Sandbox::new());
    let threads = ids(&here);
    let mut args = vec!["export", "--bundle", "-o", "all.bundle"];
    args.extend(threads.iter().map(String::as_str));
    let made = here.json(&args);
    assert_eq!(made["threads"].as_array().unwrap().len(), threads.len());
    let file = here.path("project/all.bundle");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(here.path("project")).unwrap().count(), 1, "no part of the work stays behind");

    let bundle = bring(&here, &there, "all.bundle");
    let looked = there.json(&["import", "--dry-run", &bundle]);
    assert_eq!(looked["threads"]["new"], threads.len());
    let report = there.json(&["import", &bundle]);
    assert_eq!(report["threads"]["new"], threads.len());
    let items = &report["items"];
    let sum = ["imported", "unchanged", "skipped"].iter().map(|key| items[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(items["read"].as_u64().unwrap(), sum);
    assert_eq!(report["bundles"][0]["masked"], true);
    for thread in &threads {
        assert_eq!(raw(&here, thread), raw(&there, thread), "{thread}");
    }
    assert_eq!(there.json(&["verify"])["invalid"], Value::Array(Vec::new()));
    let again = there.json(&["import", &bundle]);
    assert_eq!((&again["threads"]["unchanged"], &again["items"]["imported"]), (&threads.len().into(), &0.into()));
}

#[test]
fn secrets_stay_at_home_unless_they_are_let_go() {
    let (here, there) = (Sandbox::new(), Sandbox::new());
    let line = format!("{{\"kind\":\"message\",\"role\":\"user\",\"text\":\"token {SECRET} here\"}}\n");
    assert!(here.feed(&["append", "--new", "--title", "keys"], &line).status.success());
    here.ok(&["export", "keys", "--bundle", "-o", "masked.bundle"]);
    there.ok(&["import", &bring(&here, &there, "masked.bundle")]);
    let shown = there.ok(&["show", "keys"]);
    assert!(shown.contains("token") && !shown.contains(SECRET), "{shown}");
    assert!(here.ok(&["show", "keys"]).contains(SECRET));

    let other = Sandbox::new();
    here.ok(&["export", "keys", "--bundle", "--unmasked", "-o", "whole.bundle"]);
    other.ok(&["import", &bring(&here, &other, "whole.bundle")]);
    assert!(other.ok(&["show", "keys"]).contains(SECRET));
}

#[test]
fn an_encrypted_bundle_is_opened_by_whom_it_is_for() {
    let (here, there) = (with_samples(), Sandbox::new());
    fs::write(here.path("project/word"), "correct horse battery\n").unwrap();
    fs::write(there.path("project/word"), "correct horse battery\n").unwrap();
    fs::write(there.path("project/wrong"), "incorrect\n").unwrap();
    here.ok(&["export", "-", "--bundle", "--passphrase-file", "word", "-o", "one.age"]);
    let written = fs::read(here.path("project/one.age")).unwrap();
    assert!(written.starts_with(b"age-encryption.org/v1"));
    let bundle = bring(&here, &there, "one.age");
    assert_eq!(there.code(&["import", &bundle]), 2, "nothing was given to open it with");
    assert_eq!(there.code(&["import", &bundle, "--passphrase-file", "wrong"]), 1);
    let report = there.json(&["import", &bundle, "--passphrase-file", "word"]);
    assert_eq!(report["threads"]["new"], 1);
    let mut cut = written;
    cut.truncate(cut.len() - 20);
    fs::write(there.path("project/cut.age"), cut).unwrap();
    assert_eq!(there.code(&["import", "cut.age", "--passphrase-file", "word"]), 5);
}

#[test]
fn a_damaged_bundle_is_named_and_changes_nothing() {
    let (here, there) = (with_samples(), Sandbox::new());
    here.ok(&["export", "-", "--bundle", "-o", "one.bundle"]);
    let mut bytes = fs::read(here.path("project/one.bundle")).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(there.path("project/half.bundle"), bytes).unwrap();
    let output = there.run(&["import", "half.bundle", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &said["error"]["kind"]), (Some(5), &"corrupt".into()));
    assert!(said["error"]["message"].as_str().unwrap().contains("half.bundle"), "{said}");
    assert!(ids(&there).is_empty());
}
