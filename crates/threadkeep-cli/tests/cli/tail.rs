//! Following a thread while another process writes it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::postgres;
use crate::sandbox::Sandbox;

/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(60);

/// A program that follows; killed when it is dropped.
pub(crate) struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        // Ends with the program, or when nobody wants to know any more: then the output is closed.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(HANG).unwrap()
    }

    pub(crate) fn line_within(&self, bound: Duration) -> Option<String> {
        self.lines.recv_timeout(bound).ok()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The depth and the text of the next item.
    fn item(&self) -> (u64, String) {
        let item: Value = serde_json::from_str(&self.line()).unwrap();
        (item["depth"].as_u64().unwrap(), item["text"].as_str().unwrap().to_owned())
    }

    /// How it ends, which it has to by itself.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let bound = Instant::now() + HANG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < bound, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn the_last_items_are_shown() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second", "third"]);
    let text = sandbox.ok(&["tail", "one", "-n", "2"]);
    assert!(!text.contains("first") && text.contains("second") && text.contains("third"), "{text}");
    assert_eq!(sandbox.ok(&["tail", "one", "-n", "0"]), "");
}

/// Appends, rewinds and goes on, as a program with this store, while another follows.
fn follow_over_rewinds(store: impl Fn() -> Command) {
    let run = |arguments: &[&str]| assert!(store().args(arguments).stdout(Stdio::null()).status().unwrap().success());
    let append = |arguments: &[&str], texts: &[&str]| {
        let lines: Vec<String> = texts.iter().map(|text| serde_json::json!({"text": text}).to_string()).collect();
        let mut command = store();
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.join("\n").as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    append(&["append", "--new", "--id", "one"], &["first", "second", "third"]);
    let mut command = store();
    command.args(["tail", "-f", "one", "--json"]);
    let mut following = Following::start(command);
    for (depth, text) in [(0, "first"), (1, "second"), (2, "third")] {
        assert_eq!(following.item(), (depth, text.to_owned()));
    }
    append(&["append", "one"], &["fourth"]);
    assert_eq!(following.item(), (3, "fourth".to_owned()));
    run(&["rewind", "one@1"]);
    append(&["append", "one"], &["other third"]);
    assert_eq!(following.item(), (2, "other third".to_owned()));
    append(&["append", "one"], &["other fourth", "fifth"]);
    assert_eq!(following.item(), (3, "other fourth".to_owned()));
    assert_eq!(following.item(), (4, "fifth".to_owned()));
    run(&["delete", "one"]);
    let error: Value = serde_json::from_str(&following.line()).unwrap();
    assert_eq!(error["error"]["kind"], "not-found", "{error}");
    assert_eq!(following.end().code(), Some(3));
}

#[test]
fn what_is_appended_is_followed_over_rewinds() {
    let sandbox = Sandbox::new();
    follow_over_rewinds(|| sandbox.command(&[""; 0]));
}

#[test]
fn a_thread_on_a_server_is_followed_over_rewinds() {
    let Some(server) = postgres::server() else { return };
    let (sandbox, address) = (Sandbox::new(), server.address());
    follow_over_rewinds(|| {
        let mut command = sandbox.bare();
        // There are notes about a server that need not be safe.
        command.args(["--store", &address]).stderr(Stdio::null());
        command
    });
}

#[test]
fn a_step_back_is_shown_to_people() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second"]);
    let following = Following::start(sandbox.command(&["tail", "-f", "one", "-n", "0"]));
    // It follows from where the thread stood when it began, which is before this when it shows this.
    let mut number = 0;
    let begun = Instant::now();
    while following.lines.try_recv().is_err() {
        assert!(begun.elapsed() < HANG);
        number += 1;
        assert!(
            sandbox
                .feed(&["append", "one"], &serde_json::json!({"text": number.to_string()}).to_string())
                .status
                .success()
        );
    }
    sandbox.ok(&["rewind", "one@0"]);
    while !following.line().contains("rewound to @0") {}
}

/// There may be nothing to write that would fail.
#[test]
fn it_ends_when_the_output_is_closed_and_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second"]);
    let mut child = sandbox.command(&["tail", "-f", "one", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    drop(output);
    let mut following = Following { child, lines: mpsc::channel().1 };
    assert_eq!(following.end().code(), Some(0));
}

#[test]
fn a_signal_ends_it_at_once_after_whole_lines() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second"]);
    let mut following = Following::start(sandbox.command(&["tail", "-f", "one", "--json"]));
    assert_eq!(following.item().0, 0);
    assert_eq!(following.item().0, 1);
    // Not an interrupt: who runs the tests in the background has them ignore it, and with them all that they start.
    following.signal(Signal::TERM);
    let status = following.end();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status}");
    // The store is as it was, and is left to others.
    sandbox.ok(&["verify", "--all"]);
}
