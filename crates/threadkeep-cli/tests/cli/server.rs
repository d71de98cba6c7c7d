//! Every verb on a store that is on a server.

use serde_json::Value;

use crate::postgres;
use crate::sandbox::{Sandbox, lines, samples};

/// What the program says when it succeeds.
fn ok(sandbox: &Sandbox, store: &str, arguments: &[&str]) -> Vec<u8> {
    let output = sandbox.bare().args(["--store", store]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output.stdout
}

fn json(sandbox: &Sandbox, store: &str, arguments: &[&str]) -> Value {
    serde_json::from_slice(&ok(sandbox, store, &[arguments, &["--json"]].concat())).unwrap()
}

/// The exit code and the error when it fails.
fn failure(sandbox: &Sandbox, store: &str, arguments: &[&str]) -> (i32, Value) {
    let output = sandbox.bare().args(["--json", "--store", store]).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("hidden"), "{arguments:?} shows the password: {said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), document["error"].clone())
}

#[test]
fn every_verb_takes_an_address() {
    let Some(server) = postgres::server() else { return };
    let sandbox = Sandbox::new();
    let store = server.address().replace("threadkeep@", "threadkeep:hidden@");
    let samples = samples();
    let samples = samples.to_str().unwrap();

    let (code, error) = failure(&sandbox, &store, &["list"]);
    assert_eq!((code, &error["kind"]), (3, &"not-found".into()), "{error}");
    let planned = json(&sandbox, &store, &["import", samples, "--dry-run"]);
    assert!(planned["threads"]["new"].as_u64() > Some(0));
    assert_eq!(failure(&sandbox, &store, &["list"]).0, 3, "a dry run makes no store");
    let imported = json(&sandbox, &store, &["import", samples]);
    assert_eq!(imported["threads"], planned["threads"]);
    let again = json(&sandbox, &store, &["import", samples]);
    assert_eq!((&again["items"]["imported"], &again["threads"]["new"]), (&0.into(), &0.into()));

    std::fs::write(sandbox.path("lines"), "{\"text\":\"a\"}\n{\"text\":\"b\"}\n").unwrap();
    let mut append = sandbox.bare();
    append.args(["--store", &store, "--json", "append", "--new", "--id", "one", "--title", "One"]);
    append.stdin(std::fs::File::open(sandbox.path("lines")).unwrap());
    assert_eq!(lines(&append.output().unwrap().stdout).len(), 3);
    for verb in [
        &["show", "one", "--raw"][..],
        &["tree", "one"],
        &["fork", "one@0", "--id", "fork"],
        &["rewind", "one@0"],
        &["rename", "one", "Uno"],
        &["pin", "one"],
        &["claims"],
        &["archive", "one"],
        &["unarchive", "one"],
        &["take-over", "one", "--reason", "to try it"],
        &["end", "one", "--reason", "done"],
        &["workspaces"],
        &["stats"],
        &["verify", "--all"],
        &["delete", "fork"],
        &["restore", "fork"],
        &["delete", "fork"],
        &["purge", "fork", "--yes"],
    ] {
        let said = ok(&sandbox, &store, &[verb, &["--json"]].concat());
        assert!(!String::from_utf8_lossy(&said).contains("hidden"), "{verb:?} shows the password");
    }
    let tail = ok(&sandbox, &store, &["tail", "one", "--json"]);
    assert_eq!(lines(&tail).len(), 2, "the first item and the note of the take-over");
    let listed = json(&sandbox, &store, &["list", "--all", "--agent", "codex"]);
    let session = listed["threads"][0]["id"].as_str().unwrap().to_owned();
    assert!(!ok(&sandbox, &store, &["export", &session, "--verbatim"]).is_empty());

    for verb in [&["backup", "file.db"][..], &["restore-backup", "file.db", "--yes"]] {
        let (code, error) = failure(&sandbox, &store, verb);
        assert_eq!((code, &error["kind"]), (1, &"unsupported".into()), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("pg_dump"), "{error}");
    }
    let (code, error) = failure(&sandbox, "mysql://ann:hidden@host/db", &["list"]);
    assert_eq!((code, &error["kind"]), (2, &"usage".into()));
    assert_eq!(failure(&sandbox, "postgres://ann:hid@den@host/db", &["list"]).0, 2);
}

#[test]
fn a_store_is_copied_to_a_server_and_back() {
    let Some(server) = postgres::server() else { return };
    let sandbox = Sandbox::new();
    sandbox.ok(&["import", samples().to_str().unwrap()]);
    sandbox.thread("one", "One", &["a", "b", "c"]);
    sandbox.ok(&["fork", "one@1", "--id", "fork"]);
    sandbox.ok(&["rewind", "one@0"]);
    let there = server.address();
    let first = sandbox.json(&["copy", "--to", &there]);
    let threads = first["threads"]["read"].as_u64().unwrap();
    assert!(threads > 3 && first["threads"]["new"] == threads && first["threads"]["equal"] == threads, "{first}");
    let second = sandbox.json(&["copy", "--to", &there]);
    assert_eq!((&second["threads"]["unchanged"], &second["items"]), (&threads.into(), &0.into()));
    let back = sandbox.path("back").to_str().unwrap().to_owned();
    let third = sandbox.json(&["copy", "--from", &there, "--to", &back]);
    assert_eq!((&third["threads"]["new"], &third["threads"]["equal"]), (&threads.into(), &threads.into()));
    for arguments in [&["show", "fork", "--raw"][..], &["tree", "one"], &["verify", "--all"]] {
        assert_eq!(sandbox.json(arguments), json(&sandbox, &back, arguments), "{arguments:?}");
        assert_eq!(sandbox.json(arguments), json(&sandbox, &there, arguments), "{arguments:?}");
    }
}
