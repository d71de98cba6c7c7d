//! What the program says of a store that is examined, and what it exits with.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::postgres;
use crate::sandbox::Sandbox;

/// The exit code and the document.
fn doctor(sandbox: &Sandbox, store: &str, more: &[&str]) -> (i32, Value) {
    let output = sandbox.bare().args(["--store", store, "--json", "doctor"]).args(more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("hidden"), "the password is shown: {said}");
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_exit_code_tells_an_error_from_a_warning() {
    let sandbox = Sandbox::new();
    let store = sandbox.path("store").to_str().unwrap().to_owned();
    let (code, found) = doctor(&sandbox, &store, &[]);
    assert_eq!((code, &found["worst"], &found["findings"][0]["code"]), (5, &json!("error"), &json!("no-store")));
    assert!(!sandbox.path("store").exists());
    sandbox.thread("one", "One", &["a"]);
    let (code, found) = doctor(&sandbox, &store, &["--full"]);
    assert_eq!((code, &found["worst"], &found["findings"]), (0, &Value::Null, &json!([])), "{found}");
    assert_eq!((&found["store"], &found["facts"]["engine"]), (&json!(store), &json!("sqlite")));
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (code, found) = doctor(&sandbox, &store, &[]);
    assert_eq!((code, &found["worst"]), (0, &json!("warning")));
    let finding = found["findings"][0].as_object().unwrap();
    assert_eq!(finding.keys().collect::<Vec<_>>(), ["severity", "code", "place", "what", "way_out"]);
    let words = sandbox.ok(&["doctor"]);
    for part in ["open-to-others", "chmod", "0 errors, 1 warning, 0 notes"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // Where a store was it is damage, elsewhere it is somebody else's.
    std::fs::write(sandbox.database(), "something else").unwrap();
    let (code, found) = doctor(&sandbox, &store, &[]);
    assert_eq!((code, &found["findings"][0]["code"]), (5, &json!("damaged")));
    let other = sandbox.path("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("threadkeep.db"), "something else").unwrap();
    let (code, found) = doctor(&sandbox, other.to_str().unwrap(), &[]);
    assert_eq!((code, &found["findings"][0]["code"]), (5, &json!("foreign-store")));
}

#[test]
fn a_server_is_examined_too() {
    let Some(server) = postgres::server() else { return };
    let sandbox = Sandbox::new();
    let store = server.address().replace("threadkeep@", "threadkeep:hidden@");
    let (code, found) = doctor(&sandbox, &store, &[]);
    assert_eq!((code, &found["facts"]["engine"]), (5, &json!("postgresql")));
    assert!(found["findings"].as_array().unwrap().iter().any(|finding| finding["code"] == "no-store"), "{found}");
    sandbox.thread("one", "One", &["a"]);
    sandbox.ok(&["copy", "--to", &store]);
    let (code, found) = doctor(&sandbox, &store, &[]);
    let errors = found["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] == "error");
    assert!(errors.clone().count() > 0 && errors.clone().all(|finding| finding["code"] == "setting"), "{found}");
    assert_eq!(code, 5, "the server of the tests runs with fsync = off");
    let stats = sandbox.bare().args(["--store", &store, "--json", "stats"]).output().unwrap();
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats["file_bytes"], found["facts"]["bytes"]);
    assert!(stats["file_bytes"].as_i64() > Some(100_000), "{stats}");
    let nowhere = store.replace("host=", "host=/nowhere");
    let (code, found) = doctor(&sandbox, &nowhere, &[]);
    assert_eq!((code, &found["findings"][0]["code"]), (5, &json!("unreachable")), "{found}");
}
