//! Threads as pages and documents for other people.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::sandbox::{Sandbox, samples};

/// Compares with what is kept; `UPDATE_GOLDEN=1` keeps what is there now.
fn check_golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/share").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, found).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == found, "{name} is not what is kept: UPDATE_GOLDEN=1 renews it");
}

#[test]
fn the_samples_look_as_they_did() {
    for (agent, session) in
        [("codex", "codex/sessions/2026/03/14"), ("claude-code", "claude-code/projects/-home-dev-webshop")]
    {
        let sandbox = Sandbox::new();
        sandbox.ok(&["import", samples().join(session).to_str().unwrap()]);
        check_golden(&format!("{agent}.html"), &sandbox.ok(&["export", "-", "--html"]));
        check_golden(&format!("{agent}.md"), &sandbox.ok(&["export", "-", "--markdown"]));
    }
}

fn thread_with_secrets(sandbox: &Sandbox) -> String {
    // Put together here, so that nobody who looks for keys finds one in this file.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let lines = [
        json!({"role": "user", "text": format!("use {token} in /home/ann/shop, <b>please</b>")}),
        json!({"kind": "tool_call", "role": "assistant", "content": {"role": "assistant", "parts": [
            {"type": "tool_call", "call_id": "1", "name": "shell", "arguments": "{\"command\":\"ls /Users/bob/x\"}"}]}}),
        json!({"role": "assistant", "text": "done: [log](javascript:alert(1))"}),
    ];
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let output = sandbox.feed(&["append", "--new", "--id", "one", "--title", "Keys of /home/ann"], &lines.join("\n"));
    assert!(output.status.success(), "{output:?}");
    token
}

#[test]
fn secrets_and_homes_are_masked_unless_one_says_otherwise() {
    let sandbox = Sandbox::new();
    let token = thread_with_secrets(&sandbox);
    for form in ["--html", "--markdown"] {
        let output = sandbox.run(&["export", "one", form]);
        let (page, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{said}");
        for hidden in [token.as_str(), "/home/ann", "/Users/bob", "<b>please", "href=\"javascript"] {
            assert!(!page.contains(hidden), "{hidden} in {page}");
        }
        assert!(page.contains("Masked:") && page.contains("~/shop") && page.contains("ls ~/x"), "{page}");
        assert!(said.contains("Masked:") && said.contains("Look at it before you send it"), "{said}");
        let output = sandbox.run(&["export", "one", form, "--unmasked"]);
        let (page, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(page.contains(&token) && page.contains("/home/ann/shop") && !page.contains("Masked:"), "{page}");
        assert!(said.contains("nothing is masked in it"), "{said}");
    }
    assert!(sandbox.ok(&["show", "one", "--all"]).contains(&token), "the store is as it was");
}

#[test]
fn a_page_is_written_whole_and_for_its_owner_alone() {
    let sandbox = Sandbox::new();
    thread_with_secrets(&sandbox);
    let report = sandbox.json(&["export", "one", "--html", "-o", "page.html"]);
    let file = sandbox.path("project/page.html");
    let page = fs::read_to_string(&file).unwrap();
    assert_eq!(report["bytes"], page.len());
    assert!(report["masked"]["items"].as_u64() > Some(0) && report["masked"]["home_paths"].as_u64() > Some(0));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert_eq!(sandbox.code(&["export", "one", "--html"]), 2, "a page is no document of JSON");
    for wrong in [["--html", "--markdown"], ["--html", "--verbatim"], ["--verbatim", "--unmasked"]] {
        assert_eq!(sandbox.code(&[&["export", "one"][..], &wrong].concat()), 2, "{wrong:?}");
    }
    assert_eq!(sandbox.code(&["export", "nothing", "--html", "-o", "x.html"]), 3);
}

#[test]
fn a_page_ends_where_it_is_told_and_names_the_branches_that_leave() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second", "third"]);
    sandbox.ok(&["rewind", "one@1"]);
    assert!(sandbox.feed(&["append", "one"], &json!({"text": "other third"}).to_string()).status.success());
    let page = sandbox.ok(&["export", "one", "--html"]);
    assert!(page.contains("other third") && !page.contains("<p>third</p>"), "{page}");
    assert!(page.contains("Another branch leaves here, with 1 item."), "{page}");
    assert!(page.contains("1 other branch of the thread is not shown."), "{page}");
    let page = sandbox.ok(&["export", "one@0", "--html"]);
    assert!(page.contains("first") && !page.contains("second") && page.contains("1, up to @0"), "{page}");
    assert!(page.contains("id=\"i0\"") && page.contains("href=\"#i0\""), "{page}");
}

/// Far more than may be held: the page is written as the thread is read.
#[test]
fn a_long_thread_is_written_as_it_is_read() {
    let sandbox = Sandbox::new();
    let text = "word ".repeat(12_000);
    let lines: Vec<String> = (0..1_500).map(|_| json!({"role": "user", "text": text}).to_string()).collect();
    assert!(sandbox.feed(&["append", "--new", "--id", "long"], &lines.join("\n")).status.success());
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_threadkeep");
    let store = sandbox.path("store");
    // 90 MB are read by a program that may have 160 MB of data.
    command.args(["-c", "ulimit -d 160000; exec \"$0\" --store \"$1\" export long --html --unmasked -o \"$2\""]);
    command.arg(program).arg(store).arg(sandbox.path("page.html"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::metadata(sandbox.path("page.html")).unwrap().len() > 80_000_000);
}
