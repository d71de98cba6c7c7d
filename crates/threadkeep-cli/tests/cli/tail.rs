//! Following a thread while another process writes it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::Sandbox;

#[test]
fn the_last_items_are_shown() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second", "third"]);
    let text = sandbox.ok(&["tail", "one", "-n", "2"]);
    assert!(!text.contains("first") && text.contains("second") && text.contains("third"), "{text}");
    assert_eq!(sandbox.ok(&["tail", "one", "-n", "0"]), "");
}

#[test]
fn what_is_appended_is_followed_over_rewinds() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second", "third"]);
    let mut child = sandbox.command(&["tail", "-f", "one", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines() {
            let item: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let _ = sender.send((item["depth"].as_u64().unwrap(), item["text"].as_str().unwrap().to_owned()));
        }
    });
    let next = || receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    for (depth, text) in [(0, "first"), (1, "second"), (2, "third")] {
        assert_eq!(next(), (depth, text.to_owned()));
    }
    let append = |text: &str| {
        let line = serde_json::json!({"text": text}).to_string();
        assert!(sandbox.feed(&["append", "one"], &line).status.success());
    };
    append("fourth");
    assert_eq!(next(), (3, "fourth".to_owned()));
    sandbox.ok(&["rewind", "one@1"]);
    append("other third");
    assert_eq!(next(), (2, "other third".to_owned()));
    append("other fourth");
    assert_eq!(next(), (3, "other fourth".to_owned()));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}
