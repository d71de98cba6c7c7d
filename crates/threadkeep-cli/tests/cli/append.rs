//! Writing threads from scripts: what was acknowledged is there, whatever happens.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use serde_json::Value;
use threadkeep::blocking::Store;
use threadkeep::{StoreOptions, ThreadId};

use crate::sandbox::{Sandbox, lines};

fn killed_after(durability: &str, acknowledged: usize) {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["append", "--new", "--id", "one", "--durability", durability])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        // Until the child is gone.
        for number in 0.. {
            if writeln!(stdin, "{{\"role\":\"user\",\"text\":\"item {number}\"}}").is_err() {
                break;
            }
        }
    });
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut seen: Vec<Value> = Vec::new();
    for line in output.by_ref().lines().take(acknowledged + 1) {
        seen.push(serde_json::from_str(&line.unwrap()).unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(output);
    feeder.join().unwrap();

    assert_eq!(seen[0]["thread"], "one");
    let items = sandbox.json(&["show", "one"])["items"].clone();
    let items = items.as_array().unwrap();
    assert!(items.len() >= acknowledged, "{} of {acknowledged} are left", items.len());
    for (number, (line, item)) in seen[1..].iter().zip(items).enumerate() {
        assert_eq!((&line["id"], &line["hash"], &line["depth"]), (&item["id"], &item["hash"], &item["depth"]));
        assert_eq!(item["text"], format!("item {number}"));
    }
    assert_eq!(sandbox.json(&["verify"])["intact"], 1);
    // The dead holder's claim is taken over without ado.
    let output = sandbox.feed(&["append", "one"], "{\"role\":\"user\",\"text\":\"on\"}\n");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output.stdout)[0]["depth"], items.len());
}

#[test]
fn a_killed_append_keeps_what_it_acknowledged() {
    for durability in ["synced", "written"] {
        for acknowledged in [1, 7, 60] {
            killed_after(durability, acknowledged);
        }
    }
}

#[test]
fn queued_items_are_there_when_the_command_ends() {
    let sandbox = Sandbox::new();
    let input: String = (0..200).map(|number| format!("{{\"text\":\"item {number}\"}}\n")).collect();
    let output = sandbox.feed(&["append", "--new", "--id", "one", "--durability", "queued"], &input);
    assert!(output.status.success(), "{output:?}");
    let acknowledged = lines(&output.stdout);
    assert_eq!(acknowledged.len(), 201);
    let items = sandbox.json(&["show", "one"])["items"].clone();
    for (line, item) in acknowledged[1..].iter().zip(items.as_array().unwrap()) {
        assert_eq!(line["id"], item["id"]);
    }
}

#[test]
fn a_bad_line_ends_the_command_and_keeps_what_came_before() {
    let sandbox = Sandbox::new();
    let good = "{\"role\":\"user\",\"text\":\"good\"}\n";
    for bad in [
        "nonsense",
        "[]",
        "{}",
        "{\"text\":\"x\",\"txet\":1}",
        "{\"kind\":\"\",\"text\":\"x\"}",
        "{\"text\":\"\\ud800\"}",
    ] {
        let output = sandbox.feed(&["append", "--new"], &format!("{good}\n{good}{bad}\n{good}"));
        assert_eq!(output.status.code(), Some(8), "{bad}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("line 4"), "{bad}");
        let lines = lines(&output.stdout);
        assert_eq!(lines.len(), 3);
        let thread = lines[0]["thread"].as_str().unwrap();
        assert_eq!(sandbox.json(&["show", thread])["items"].as_array().unwrap().len(), 2);
    }
    let output = sandbox.feed(&["append", "--new"], "nonsense\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn sending_an_item_again_is_safe() {
    let sandbox = Sandbox::new();
    let line = "{\"id\":\"018f0000-0000-7000-8000-000000000001\",\"role\":\"user\",\"text\":\"once\"}\n";
    sandbox.thread("one", "One", &["a"]);
    let first = sandbox.feed(&["append", "one"], line);
    let again = sandbox.feed(&["append", "one"], line);
    assert!(first.status.success() && again.status.success());
    assert_eq!(first.stdout, again.stdout);
    assert_eq!(sandbox.json(&["show", "one"])["items"].as_array().unwrap().len(), 2);
    let other = sandbox.feed(&["append", "one"], &line.replace("once", "twice"));
    assert_eq!(other.status.code(), Some(1), "{other:?}");
}

#[test]
fn a_thread_that_another_program_writes_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    let store = Store::open(StoreOptions::folder(sandbox.path("store")).label("the other program")).unwrap();
    let live = store.resume(&ThreadId::new("one").unwrap(), false).unwrap();
    for arguments in [&["append", "one"][..], &["rewind", "one@0"], &["delete", "one"]] {
        let (code, error) = sandbox.failure(arguments);
        assert_eq!((code, &error["kind"], &error["retryable"]), (7, &"claim-held".into(), &true.into()));
        assert!(error["message"].as_str().unwrap().contains("the other program"));
    }
    assert_eq!(sandbox.json(&["list"])["threads"][0]["live"], true);
    // Metadata can be changed meanwhile.
    sandbox.ok(&["rename", "one", "Still going"]);
    live.shutdown().unwrap();
    sandbox.ok(&["rewind", "one@0"]);
}

#[test]
fn whoever_stops_reading_causes_no_error() {
    let sandbox = Sandbox::new();
    let text = "x".repeat(1000);
    sandbox.thread("one", "One", &vec![text.as_str(); 400]);
    for arguments in
        [&["show", "one"][..], &["show", "one", "--json"], &["show", "one", "--raw"], &["show", "one", "--markdown"]]
    {
        let mut child = sandbox.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

#[test]
fn a_new_thread_is_called_by_its_first_prompt() {
    let sandbox = Sandbox::new();
    let output = sandbox.feed(&["append", "--new"], "{\"role\":\"user\",\"text\":\"Why\\n does it fail?\"}\n");
    assert!(output.status.success());
    let list = sandbox.json(&["list"]);
    assert_eq!(list["threads"][0]["preview"], "Why does it fail?");
    assert_eq!(list["threads"][0]["title"], Value::Null);
}

/// A policy stays with its thread, is shown, and says of each item whether it is kept.
#[test]
fn a_policy_decides_what_is_kept_and_is_shown() {
    let sandbox = Sandbox::new();
    let codex = |payload: &str| {
        format!(r#"{{"kind":"event","format":"codex","content":{{"type":"event_msg","payload":{payload}}}}}"#)
    };
    let input = [
        codex(r#"{"type":"agent_message_delta","delta":"a"}"#),
        codex(r#"{"type":"agent_message","message":"a whole one"}"#),
        codex(r#"{"type":"exec_command_end","stdout":"much","aggregated_output":"much","exit_code":0}"#),
        r#"{"role":"user","text":"not of that format"}"#.to_owned(),
    ]
    .join("\n");
    let appended = |arguments: &[&str]| -> Vec<(bool, bool)> {
        let said = lines(&sandbox.feed(arguments, &input).stdout);
        let items = said.into_iter().filter(|line| line.get("thread").is_none());
        items.map(|item| (item["dropped"] == true, item["depth"].is_number())).collect()
    };
    let (kept, dropped) = ((false, true), (true, false));
    assert_eq!(
        appended(&["append", "--new", "--id", "one", "--policy", "codex-limited"]),
        [dropped, kept, dropped, kept]
    );
    assert_eq!(sandbox.json(&["show", "one"])["thread"]["policy"]["records"]["name"], "codex-limited");
    // It holds without being named, until another one is put in its place.
    assert_eq!(appended(&["append", "one"]), [dropped, kept, dropped, kept]);
    assert_eq!(appended(&["append", "one", "--policy", "codex-extended"]), [dropped, kept, kept, kept]);
    let content = sandbox.json(&["show", "one", "--raw", "--last", "2"])["items"][0]["content"].to_string();
    assert!(content.contains("exec_command_end") && !content.contains(r#"stdout\":\"much"#), "{content}");
    assert_eq!(appended(&["append", "one", "--policy", "message"]), [dropped, dropped, dropped, kept]);
    assert_eq!(sandbox.json(&["list"])["threads"][0]["policy"]["only"][0], "message");
    assert_eq!(sandbox.code(&["append", "one", "--policy", "messages"]), 2);
}
