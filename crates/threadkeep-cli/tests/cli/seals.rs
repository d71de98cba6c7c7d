//! Keys, seals, anchors and proofs, and the second implementation that verifies them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::shapes::keys;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A Python with the packages that the script needs, installed into a folder of its own.
fn python() -> &'static Path {
    static PYTHON: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &PYTHON
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let run = |program: &Path, args: &[&str]| {
                let made = Command::new(program).args(args).output();
                let made =
                    made.unwrap_or_else(|error| panic!("{}: {error}; ./scripts/test installs it", program.display()));
                assert!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
            };
            run(Path::new("python3"), &["-m", "venv", folder.path().to_str().unwrap()]);
            let python = folder.path().join("bin/python");
            let packages = root().join("scripts/requirements.txt");
            run(
                &python,
                &["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", packages.to_str().unwrap()],
            );
            (folder, python)
        })
        .1
}

fn script(file: &Path, trusted: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(python());
    command.arg(root().join("scripts/verify_seals.py")).arg(file);
    for key in trusted {
        command.args(["--trust", key]);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let document = serde_json::from_slice(&stdout);
    (status.code(), document.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stderr))))
}

fn sealed() -> (Sandbox, String, String) {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b", "c"]);
    sandbox.thread("two", "Two", &["d", "e\u{0}é"]);
    let made = sandbox.json(&["keys", "create"]);
    keys(&made["key"], &["id", "public", "created_at", "active", "vouched_by"]);
    let anchors = sandbox.path("anchors").to_str().unwrap().to_owned();
    let sealed = sandbox.json(&["seal", "--out", &anchors]);
    keys(&sealed, &["seals", "threads", "heads", "newest", "file"]);
    assert_eq!((&sealed["seals"], &sealed["heads"], &sealed["newest"]["number"]), (&json!(1), &json!(2), &json!(1)));
    (sandbox, anchors, made["key"]["public"].as_str().unwrap().to_owned())
}

#[test]
fn what_is_sealed_is_valid_and_what_is_cut_off_is_found() {
    let (sandbox, anchors, public) = sealed();
    let report = sandbox.json(&["verify", "--strict"]);
    assert_eq!((&report["verdict"], &report["valid"], &report["anchored"]), (&json!("valid"), &json!(2), &json!(1)));
    let output = sandbox.feed(&["append", "one"], "{\"text\":\"more\"}\n");
    assert!(output.status.success());
    let code = |arguments: &[&str]| sandbox.run(arguments).status.code();
    assert_eq!((code(&["verify"]), code(&["verify", "--strict"])), (Some(0), Some(8)));
    assert_eq!(code(&["verify", "two", "--strict"]), Some(0));
    assert_eq!(sandbox.json(&["seal", "one"])["heads"], 1);
    assert_eq!(code(&["verify", "--strict", "--anchors", &anchors, "--trust", &public]), Some(0));
    // An item and the seals are taken out with care.
    let cut = "DELETE FROM items WHERE key IN (SELECT max(i.key) FROM items i JOIN branches b ON b.key = i.key >> 32 WHERE b.thread = 'two');
        UPDATE threads SET items = 1, head = head - 1, head_hash = (SELECT hash FROM items WHERE key = head - 1) WHERE id = 'two';
        DELETE FROM seal_heads; DELETE FROM seals;";
    let connection = rusqlite::Connection::open(sandbox.database()).unwrap();
    connection.execute_batch(cut).unwrap();
    drop(connection);
    let output = sandbox.run(&["verify", "--json", "--anchors", &anchors, "--trust", &public]);
    assert_eq!(output.status.code(), Some(5));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_two = report["invalid"].as_array().unwrap().iter().find(|found| found["thread"] == "two").unwrap();
    assert_eq!(of_two["depth"], 1);
    // Nothing that was kept outside is replaced by what lacks it.
    let before = std::fs::read(&anchors).unwrap();
    assert_eq!(sandbox.code(&["seal"]), 1, "the store is older than its last seal");
    assert_eq!(sandbox.code(&["seal", "--restored", "--out", &anchors]), 1);
    assert_eq!(std::fs::read(&anchors).unwrap(), before);
}

#[test]
fn keys_are_rotated_and_exported() {
    let (sandbox, anchors, first) = sealed();
    assert_eq!(sandbox.code(&["keys", "create"]), 1);
    let second = sandbox.json(&["keys", "rotate"])["key"].clone();
    let listed = sandbox.json(&["keys", "list"])["keys"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!((&listed[0]["active"], &listed[1]["active"]), (&json!(false), &json!(true)));
    assert_eq!(listed[1]["vouched_by"], listed[0]["id"]);
    assert!(sandbox.feed(&["append", "one"], "{\"text\":\"more\"}\n").status.success());
    assert_eq!(sandbox.json(&["seal", "--out", &anchors])["newest"]["key"], second["id"]);
    let exported = sandbox.run(&["keys", "export"]).stdout;
    let file = sandbox.path("second.pub");
    std::fs::write(&file, &exported).unwrap();
    let file = file.to_str().unwrap();
    let verify = |key: &str| sandbox.json(&["verify", "one", "--anchors", &anchors, "--trust", key])["verdict"].clone();
    assert_eq!(verify(&first), "valid", "the first key vouches for the second");
    assert_eq!(verify(file), "valid");
    let stranger = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert_eq!(verify(stranger), "not_provable");
    assert_eq!(sandbox.code(&["keys", "export", "0000"]), 3);
}

#[test]
fn a_second_implementation_verifies_what_was_redacted() {
    let (sandbox, anchors, public) = sealed();
    sandbox.json(&["fork", "one", "--id", "three"]);
    assert!(sandbox.feed(&["append", "three"], "{\"text\":\"the word is xyzzy, friend\"}\n").status.success());
    sandbox.json(&["redact", "three@1", "--reason", "a key", "--by", "ann"]);
    sandbox.json(&["redact", "--pattern", "xyz+y", "--apply", "--reason", "a word"]);
    let proof = sandbox.path("proof");
    let prove = || sandbox.json(&["verify", "three", "--proof", proof.to_str().unwrap()])["verdict"].clone();
    assert_eq!(prove(), "not_provable", "nothing vouches for the records yet");
    assert_eq!(script(&proof, &[&public]).1["verdict"], "not_provable");
    sandbox.json(&["seal", "--out", &anchors]);
    assert_eq!(prove(), "valid");
    let (code, document) = script(&proof, &[&public]);
    assert_eq!((code, &document["verdict"], &document["items"]), (Some(0), &json!("valid"), &json!(4)), "{document}");
    assert_eq!(script(Path::new(&anchors), &[&public]).1["verdict"], "valid");
    assert_eq!(sandbox.json(&["verify", "--anchors", &anchors, "--strict"])["verdict"], "valid");

    let text = std::fs::read_to_string(&proof).unwrap();
    assert!(!text.contains("xyzzy"));
    let changed = sandbox.path("changed");
    let edits = [
        ("\"by\":\"ann\"", "\"by\":\"eve\""),
        ("\"reason\":\"a key\"", "\"reason\":\"a joke\""),
        ("\"content\":null", "\"content\":\"AAAA\""),
        ("\"redaction\":1", "\"redaction\":2"),
        ("\"redaction\":2", "\"redaction\":1"),
        ("\"rule\":\"pattern\"", "\"rule\":null"),
    ];
    for (from, to) in edits {
        assert!(text.contains(from), "{from} is in no line");
        std::fs::write(&changed, text.replacen(from, to, 1)).unwrap();
        assert_eq!(script(&changed, &[&public]).1["verdict"], "invalid", "{from} became {to}");
    }
}

#[test]
fn a_second_implementation_verifies_a_proof() {
    let (sandbox, anchors, public) = sealed();
    sandbox.json(&["fork", "one@1", "--id", "three"]);
    let input = "{\"kind\":\"event\",\"format\":\"codex\",\"content\":\"{}\"}\n{\"content_base64\":\"AP/+\",\"role\":\"user\"}\n";
    assert!(sandbox.feed(&["append", "three"], input).status.success());
    let big = format!("{{\"text\":\"{}\"}}\n", "long ".repeat(50_000));
    assert!(sandbox.feed(&["append", "three"], &big).status.success());
    sandbox.json(&["keys", "rotate"]);
    sandbox.json(&["seal", "--out", &anchors]);
    let proof = sandbox.path("proof");
    sandbox.json(&["verify", "three", "--proof", proof.to_str().unwrap()]);
    let (code, document) = script(&proof, &[&public]);
    assert_eq!((code, &document["verdict"], &document["items"]), (Some(0), &json!("valid"), &json!(5)), "{document}");
    assert_eq!((&document["seals"], &document["believed"]), (&json!(2), &json!(2)));
    assert_eq!(script(&proof, &[]).1["verdict"], "not_provable");
    let (code, document) = script(Path::new(&anchors), &[&public]);
    assert_eq!((code, &document["verdict"], &document["believed"]), (Some(0), &json!("valid"), &json!(2)));

    let text = std::fs::read_to_string(&proof).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let changed = sandbox.path("changed");
    let broken = |text: &str, what: &str| {
        std::fs::write(&changed, text).unwrap();
        let (code, document) = script(&changed, &[&public]);
        assert_eq!((code, &document["verdict"]), (Some(5), &json!("invalid")), "{what}: {document}");
    };
    for (at, line) in
        lines.iter().enumerate().filter(|(_, line)| line.starts_with("{\"item\"") || line.starts_with("{\"head\""))
    {
        let rest: Vec<&str> =
            lines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, line)| *line).collect();
        broken(&(rest.join("\n") + "\n"), &format!("without line {at}: {}", &line[..60]));
    }
    for (from, to) in [
        ("\"epoch\":1", "\"epoch\":2"),
        ("\"role\":\"user\"", "\"role\":\"tool\""),
        ("AP/+", "AP/A"),
        ("\"purges\":0", "\"purges\":1"),
    ] {
        assert!(text.contains(from), "{from}");
        broken(&text.replacen(from, to, 1), from);
    }
}
