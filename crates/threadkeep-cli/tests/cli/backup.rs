//! Backups, and stores that are made of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::sandbox::Sandbox;

/// A store with two items, and a backup of it.
fn backed_up() -> (Sandbox, String) {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    let file = sandbox.path("monday.db").to_str().unwrap().to_owned();
    let made = sandbox.json(&["backup", &file]);
    assert_eq!((&made["threads"], &made["items"], &made["verified"]), (&1.into(), &2.into(), &true.into()));
    assert_eq!(made["bytes"], fs::metadata(&file).unwrap().len());
    assert_eq!(made["file"], fs::canonicalize(&file).unwrap().to_str().unwrap());
    (sandbox, file)
}

#[test]
fn a_backup_is_one_private_file_that_is_never_replaced() {
    let (sandbox, file) = backed_up();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&file).unwrap();
    let (code, error) = sandbox.failure(&["backup", &file]);
    assert_eq!((code, &error["kind"]), (1, &"already-exists".into()));
    assert!(fs::read(&file).unwrap() == bytes);
    assert_eq!(sandbox.code(&["backup", "no/such/folder/x.db"]), 3);
    let inside = sandbox.path("store/x.db");
    assert_eq!(sandbox.code(&["backup", inside.to_str().unwrap()]), 2);
    sandbox.ok(&["backup", "folder/"]);
    let mut command = sandbox.bare();
    let listed = command.args(["--store", "folder", "show", "one", "--json"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

#[test]
fn a_backup_is_restored_and_the_store_that_was_there_is_kept() {
    let (sandbox, file) = backed_up();
    sandbox.thread("two", "Two", &["c"]);
    let (code, error) = sandbox.failure(&["restore-backup", &file]);
    assert_eq!(code, 2, "nobody can be asked");
    assert!(error["hint"].as_str().unwrap().contains("--yes"));
    let restored = sandbox.json(&["restore-backup", &file, "--yes"]);
    assert_eq!((&restored["threads"], &restored["items"], &restored["verified"]), (&1.into(), &2.into(), &true.into()));
    assert_eq!(sandbox.code(&["show", "two"]), 3);
    assert_eq!(sandbox.json(&["verify"])["intact"], 1);
    let kept = restored["replaced"].as_str().unwrap();
    let old = sandbox.bare().args(["--store", kept, "--json", "show", "two"]).output().unwrap();
    assert!(old.status.success(), "{old:?}");
    assert!(sandbox.feed(&["append", "one"], "{\"text\":\"goes on\"}\n").status.success());
    // A machine that has no store yet is asked nothing.
    let words = sandbox.bare().args(["--store", "elsewhere", "restore-backup", &file]).output().unwrap();
    assert!(words.status.success(), "{words:?}");
    assert!(String::from_utf8(words.stdout).unwrap().contains("1 thread, 2 items: verified and restored"));
}

#[test]
fn what_is_no_whole_backup_is_refused() {
    let (sandbox, file) = backed_up();
    let text = sandbox.path("text.db");
    fs::write(&text, "a list of groceries").unwrap();
    let cut = sandbox.path("cut.db");
    let bytes = fs::read(&file).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    for (path, code) in [(text.to_str().unwrap(), 5), (cut.to_str().unwrap(), 5), ("missing.db", 3)] {
        assert_eq!(sandbox.code(&["restore-backup", path, "--yes"]), code, "{path}");
    }
    assert_eq!(sandbox.json(&["verify"])["intact"], 1);
}
