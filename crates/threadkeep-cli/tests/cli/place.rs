//! Where the store is looked for, and what is never made by looking.

use crate::sandbox::Sandbox;

#[test]
fn an_empty_or_relative_home_is_refused() {
    let sandbox = Sandbox::new();
    for home in ["", "  ", "relative", "./x"] {
        let output = sandbox.bare().env("THREADKEEP_HOME", home).arg("list").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{home:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("THREADKEEP_HOME"));
    }
    let output = sandbox.bare().env("THREADKEEP_STORE", "").arg("list").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(std::fs::read_dir(sandbox.path("home")).unwrap().next().is_none());
    assert!(std::fs::read_dir(sandbox.path("project")).unwrap().next().is_none());
}

#[test]
fn the_flag_comes_before_the_variables_and_they_before_the_data_folder() {
    let sandbox = Sandbox::new();
    let append = |command: &mut std::process::Command| {
        assert!(command.args(["append", "--new"]).output().unwrap().status.success());
    };
    append(&mut sandbox.bare());
    assert!(sandbox.path("home/.local/share/threadkeep/threadkeep.db").exists());
    append(sandbox.bare().env("XDG_DATA_HOME", sandbox.path("data")));
    assert!(sandbox.path("data/threadkeep/threadkeep.db").exists());
    append(sandbox.bare().env("THREADKEEP_HOME", sandbox.path("at-home")));
    assert!(sandbox.path("at-home/threadkeep.db").exists());
    let variables = |command: &mut std::process::Command| {
        command.env("THREADKEEP_HOME", "ignored").env("THREADKEEP_STORE", sandbox.path("variable"));
    };
    let mut command = sandbox.bare();
    variables(&mut command);
    append(&mut command);
    assert!(sandbox.path("variable/threadkeep.db").exists());
    let mut command = sandbox.bare();
    variables(&mut command);
    append(command.arg("--store").arg(sandbox.path("flag")));
    assert!(sandbox.path("flag/threadkeep.db").exists());
}

#[test]
fn verbs_that_need_a_store_do_not_make_one() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["list"][..],
        &["show", "-"],
        &["tree", "x"],
        &["tail", "x"],
        &["append", "x"],
        &["fork", "x"],
        &["rewind", "x@1"],
        &["rename", "x", "y"],
        &["archive", "x"],
        &["delete", "x"],
        &["purge", "x", "--yes"],
        &["export", "x", "--verbatim", "-o", "f"],
        &["verify"],
        &["stats"],
        &["compact"],
        &["repair-turns", "x"],
        &["repair-turns", "x", "--dry-run"],
        &["workspaces"],
        &["remap", "a", "b"],
    ] {
        let (code, error) = sandbox.failure(arguments);
        assert_eq!(code, 3, "{arguments:?}");
        assert!(error["hint"].as_str().unwrap().contains("import"), "{arguments:?}");
        assert!(!sandbox.path("store").exists(), "{arguments:?}");
    }
    std::fs::create_dir(sandbox.path("store")).unwrap();
    assert_eq!(sandbox.code(&["list"]), 3);
    assert!(!sandbox.database().exists());
}

#[test]
fn an_address_is_not_taken_for_a_folder() {
    let sandbox = Sandbox::new();
    let output = sandbox.bare().args(["list", "--store", "postgres://host/db"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
