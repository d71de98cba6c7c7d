//! Who writes what, and how a thread is freed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::sandbox::Sandbox;

#[test]
fn a_thread_is_taken_over_from_a_program_that_writes_it() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["append", "--new", "--id", "one", "--title", "Long work"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(stdin, "{{\"role\":\"user\",\"text\":\"a\"}}").unwrap();
    // The thread and its first item are acknowledged.
    assert_eq!(output.by_ref().take(2).count(), 2);

    let claims = sandbox.json(&["claims"]);
    let claim = &claims["claims"][0];
    assert_eq!((&claim["thread"], &claim["live"], &claim["wanted"]), (&"one".into(), &true.into(), &().into()));
    assert_eq!(claim["holder"]["pid"], child.id());
    assert!(sandbox.ok(&["claims"]).contains("Long work"));

    assert!(sandbox.ok(&["take-over", "one", "--ask"]).contains("Asked for"));
    assert!(sandbox.json(&["claims"])["claims"][0]["wanted"]["by"].is_string());
    assert_eq!(sandbox.code(&["take-over", "one", "--ask", "--wait", "1"]), 7);
    assert_eq!(sandbox.code(&["take-over", "one"]), 2);
    assert!(sandbox.ok(&["take-over", "one", "--reason", "it hangs"]).contains("free"));

    // The holder that was fenced off learns it at its next write, and has stored nothing.
    writeln!(stdin, "{{\"role\":\"user\",\"text\":\"stale\"}}").unwrap();
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let shown = sandbox.ok(&["show", "one", "--all"]);
    assert!(shown.contains("it hangs") && !shown.contains("stale"), "{shown}");
    assert!(sandbox.ok(&["claims"]).contains("No thread is being written."));
    assert!(sandbox.ok(&["take-over", "one", "--ask"]).contains("Nobody holds it"));
    assert_eq!(sandbox.json(&["verify"])["intact"], 1);
}
