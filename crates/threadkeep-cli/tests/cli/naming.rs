//! What people write to name a thread, kind or hostile.

use crate::sandbox::Sandbox;

#[test]
fn hostile_names_are_not_found() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["hello"]);
    let long = "x".repeat(100_000);
    for name in [
        "../one",
        "/etc/passwd",
        "one/../one",
        "a@b@c",
        "one@",
        "one@-1",
        "one@9999999999",
        "one@1e3",
        "%",
        "_",
        "*",
        "' OR 1=1 --",
        "\u{202e}eno",
        "\x1b[31mone",
        "ONE",
        "-rf",
        "--json",
        "@",
        "one@0@0",
        "",
        &long,
    ] {
        for verb in ["show", "tree", "archive", "delete"] {
            assert_eq!(sandbox.code(&[verb, "--", name]), 3, "{verb} {name:?}");
        }
    }
    assert_eq!(sandbox.json(&["list"])["threads"][0]["archived"], false);
}

#[test]
fn ids_prefixes_titles_and_the_latest_are_found() {
    let sandbox = Sandbox::new();
    sandbox.thread("alpha-1", "The first one", &["a"]);
    sandbox.thread("alpha-2", "-rf", &["b"]);
    sandbox.thread("beta", "user@7", &["c", "d"]);
    let id = |name: &str| sandbox.json(&["show", "--", name])["thread"]["id"].as_str().unwrap().to_owned();
    assert_eq!(id("alpha-1"), "alpha-1");
    assert_eq!(id("be"), "beta");
    assert_eq!(id("The first one"), "alpha-1");
    assert_eq!(id("-rf"), "alpha-2");
    assert_eq!(id("user@7"), "beta");
    assert_eq!(id("user@7@1"), "beta");
    assert_eq!(id("-"), "beta");
    assert_eq!(sandbox.json(&["show", "-"])["thread"]["id"], "beta");
    for name in [&["-@0"][..], &["@0"], &["--", "-@0"]] {
        let items = sandbox.json(&[&["show"], name].concat())["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), 1, "{name:?}");
    }
}

#[test]
fn an_ambiguous_prefix_lists_the_candidates() {
    let sandbox = Sandbox::new();
    sandbox.thread("alpha-1", "x", &["a"]);
    sandbox.thread("alpha-2", "x", &["b"]);
    for name in ["al", "x", "alpha-@0"] {
        let (code, error) = sandbox.failure(&["show", name]);
        assert_eq!((code, &error["kind"]), (2, &"ambiguous".into()));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("alpha-1") && message.contains("alpha-2"), "{message}");
    }
}

#[test]
fn a_wrong_command_line_is_a_document_too() {
    let sandbox = Sandbox::new();
    for arguments in [&["nonsense"][..], &["show"], &["list", "--limit", "many"], &["export", "x"], &["fork"]] {
        let (code, error) = sandbox.failure(arguments);
        assert_eq!((code, &error["kind"]), (2, &"usage".into()), "{arguments:?}");
    }
    assert_eq!(sandbox.run(&["--help"]).status.code(), Some(0));
    assert_eq!(sandbox.run(&["--version"]).status.code(), Some(0));
    assert_eq!(sandbox.bare().output().unwrap().status.code(), Some(2));
}

#[test]
fn branches_are_named_by_id_prefix_and_label() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b", "c"]);
    sandbox.ok(&["rewind", "one@0"]);
    let output = sandbox.feed(&["append", "one"], "{\"role\":\"user\",\"text\":\"other\"}\n");
    assert!(output.status.success());
    let tree = sandbox.json(&["tree", "one"]);
    let first = tree["branches"][0]["branch"].as_str().unwrap().to_owned();
    sandbox.ok(&["label", "one", &first, "try 1"]);
    let texts = |arguments: &[&str]| {
        let items = sandbox.json(arguments)["items"].clone();
        items.as_array().unwrap().iter().map(|item| item["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&["show", "one"]), ["a", "other"]);
    assert_eq!(texts(&["show", "one", "--branch", "try 1"]), ["a", "b", "c"]);
    assert_eq!(texts(&["show", "one@1", "--branch", &first]), ["a", "b"]);
    assert_eq!(texts(&["show", "one", "--branch", &first.to_uppercase()]), ["a", "b", "c"]);
    assert_eq!(sandbox.code(&["show", "one@3", "--branch", "try 1"]), 3);
    assert_eq!(sandbox.code(&["show", "one", "--branch", "0"]), 2, "every minted id begins so");
    assert_eq!(sandbox.code(&["show", "one", "--branch", "nonsense"]), 3);
    sandbox.ok(&["rewind", "one", "--branch", "try 1"]);
    assert_eq!(texts(&["show", "one"]), ["a", "b", "c"]);
    sandbox.ok(&["label", "one", "try 1"]);
    assert_eq!(sandbox.code(&["show", "one", "--branch", "try 1"]), 3);
}
