//! A home, a project and a store of their own for each test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_cmd::assert::OutputAssertExt as _;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Sandbox {
    temp: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let temp = TempDir::new().unwrap();
        for folder in ["home", "project"] {
            std::fs::create_dir(temp.path().join(folder)).unwrap();
        }
        Self { temp }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("store/threadkeep.db")
    }

    /// The program without a store, in an environment that knows nothing of the machine's user.
    pub(crate) fn bare(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_threadkeep"));
        command.env_clear().env("HOME", self.path("home")).current_dir(self.path("project"));
        command.stdin(Stdio::null());
        command
    }

    /// The program with this store.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.bare();
        command.arg("--store").arg(self.path("store")).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What it prints when it succeeds.
    pub(crate) fn ok(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        let output = self.command(arguments).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    }

    /// The document that it prints when it succeeds.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[&["--json"], arguments].concat())).unwrap()
    }

    /// The exit code and the error document that it prints when it fails.
    pub(crate) fn failure(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.run(&[&["--json"], arguments].concat());
        let code = output.status.code().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{arguments:?} gives {code} and no document: {error}: {output:?}");
        });
        let error = document["error"].clone();
        assert_eq!(error["code"], code, "{document}");
        for key in ["kind", "message"] {
            assert!(error[key].is_string(), "{document}");
        }
        (code, error)
    }

    pub(crate) fn code(&self, arguments: &[&str]) -> i32 {
        self.failure(arguments).0
    }

    /// Feeds lines to the program.
    pub(crate) fn feed(&self, arguments: &[&str], lines: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let lines = lines.to_owned();
        // The child may stop reading; that is for the test to see in its output.
        let feeder = std::thread::spawn(move || drop(std::io::Write::write_all(&mut stdin, lines.as_bytes())));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        output
    }

    /// A thread with messages of a user and an assistant in turn.
    pub(crate) fn thread(&self, id: &str, title: &str, texts: &[&str]) {
        let roles = ["user", "assistant"].iter().cycle();
        let line = |(text, role): (&&str, &&str)| serde_json::json!({"role": role, "text": text}).to_string();
        let lines: Vec<String> = texts.iter().zip(roles).map(line).collect();
        let title = format!("--title={title}");
        let output = self.feed(&["append", "--new", "--id", id, &title], &lines.join("\n"));
        assert!(output.status.success(), "{output:?}");
    }
}

pub(crate) fn lines(output: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The sample sessions of the repository.
pub(crate) fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sessions")
}
