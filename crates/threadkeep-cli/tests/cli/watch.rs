//! Following agents that write.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::inotify;
use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{Sandbox, lines};
use crate::tail::Following;

const SESSIONS: [&str; 2] = ["c3a94d17-80e2-4f6b-a1d5-73b2e9f04c60", "c3a94d17-80e2-4f6b-a1d5-73b2e9f04c61"];
const HANG: Duration = Duration::from_secs(60);

/// Writes lines in two halves, as a program does whose buffer ends anywhere; may be killed in the middle of the last one.
const WRITER: &str = r#"
file=$1 session=$2 from=$3 to=$4 end=$5
number=$from
while [ "$number" -lt "$to" ]; do
  parent=null
  [ "$number" -gt 0 ] && parent="\"u$((number - 1))\""
  printf '{"type":"user","uuid":"u%s","parentUuid":%s,"sessionId":"%s","timestamp":"2026-03-14T09:26:53.589Z",' \
    "$number" "$parent" "$session" >> "$file"
  if [ "$end" = killed ] && [ "$((number + 1))" -eq "$to" ]; then kill -9 $$; fi
  printf '"cwd":"/w","message":{"role":"user","content":"number %s"}}\n' "$number" >> "$file"
  number=$((number + 1))
done
"#;

fn writer(sandbox: &Sandbox, file: &Path, session: &str, range: (u32, u32), end: &str) -> Child {
    let script = sandbox.path("writer.sh");
    fs::write(&script, WRITER).unwrap();
    let mut command = Command::new("sh");
    command.arg(script).arg(file).args([session, &range.0.to_string(), &range.1.to_string(), end]);
    command.spawn().unwrap()
}

/// Reads events until one of this kind.
fn until(following: &Following, kind: &str) -> Value {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < HANG, "no {kind}");
        let event: Value = serde_json::from_str(&following.line()).unwrap();
        if event["event"] == kind {
            return event;
        }
    }
}

/// Reads events until so many records are in the store.
fn until_imported(following: &Following, wanted: u64) {
    let mut imported = 0;
    while imported < wanted {
        let event = until(following, "imported");
        imported += event["report"]["items"]["imported"].as_u64().unwrap();
    }
    assert_eq!(imported, wanted, "every record once");
}

fn texts(sandbox: &Sandbox, thread: &str) -> Vec<String> {
    let shown = sandbox.json(&["show", thread]);
    shown["items"].as_array().unwrap().iter().map(|item| item["text"].as_str().unwrap().to_owned()).collect()
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("number {number}")).collect()
}

fn watch(sandbox: &Sandbox, arguments: &[&str]) -> Following {
    Following::start(sandbox.command(&[&["--json", "watch"], arguments].concat()))
}

/// Two processes write beside it, one of them is killed in the middle of a line and another goes on with that line.
#[test]
fn what_is_written_beside_it_is_stored_once() {
    let sandbox = Sandbox::new();
    let mut following = watch(&sandbox, &[]);
    assert_eq!(until(&following, "watching")["homes"], serde_json::json!([]));
    let folder = sandbox.path("home/.claude/projects/-w");
    fs::create_dir_all(&folder).unwrap();
    let files = SESSIONS.map(|session| folder.join(format!("{session}.jsonl")));
    let mut whole = writer(&sandbox, &files[0], SESSIONS[0], (0, 60), "whole");
    let mut killed = writer(&sandbox, &files[1], SESSIONS[1], (0, 41), "killed");
    assert!(whole.wait().unwrap().success());
    assert!(!killed.wait().unwrap().success());
    until_imported(&following, 100);
    fs::OpenOptions::new()
        .append(true)
        .open(&files[1])
        .and_then(|mut file| {
            std::io::Write::write_all(
                &mut file,
                b"\"cwd\":\"/w\",\"message\":{\"role\":\"user\",\"content\":\"number 40\"}}\n",
            )
        })
        .unwrap();
    until_imported(&following, 1);
    following.signal(Signal::TERM);
    until(&following, "ended");
    assert_eq!(following.end().code(), Some(0));
    assert_eq!(texts(&sandbox, SESSIONS[0]), numbers(60));
    assert_eq!(texts(&sandbox, SESSIONS[1]), numbers(41));
    assert_eq!(sandbox.json(&["list"])["threads"].as_array().unwrap().len(), 2);
    sandbox.ok(&["verify", "--all"]);
}

#[test]
fn it_may_be_killed_and_started_again_while_others_write() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("home/.claude/projects/-w");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{}.jsonl", SESSIONS[0]));
    let mut writing = writer(&sandbox, &file, SESSIONS[0], (0, 400), "whole");
    for _ in 0..3 {
        let following = watch(&sandbox, &[]);
        until(&following, "imported");
        following.signal(Signal::KILL);
    }
    assert!(writing.wait().unwrap().success());
    let following = watch(&sandbox, &[]);
    until(&following, "imported");
    following.signal(Signal::TERM);
    until(&following, "ended");
    assert_eq!(texts(&sandbox, SESSIONS[0]), numbers(400));
}

#[test]
fn new_folders_are_followed_and_what_is_deleted_does_no_harm() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("sessions");
    fs::create_dir_all(&root).unwrap();
    let following = watch(&sandbox, &[root.to_str().unwrap()]);
    until(&following, "imported");
    let write = |folder: &str, session: &str| {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{session}.jsonl"));
        assert!(writer(&sandbox, &file, session, (0, 2), "whole").wait().unwrap().success());
        file
    };
    let first = write("2026/03/14", SESSIONS[0]);
    until_imported(&following, 2);
    fs::remove_dir_all(root.join("2026")).unwrap();
    fs::write(root.join("gone.jsonl"), "{}\n").unwrap();
    fs::remove_file(root.join("gone.jsonl")).unwrap();
    write("2026/04/01", SESSIONS[1]);
    until_imported(&following, 2);
    assert!(!first.exists());
    assert_eq!(texts(&sandbox, SESSIONS[0]), numbers(2), "what was taken in stays");
    // The folder that is followed itself goes, and another one comes in its place.
    fs::rename(&root, sandbox.path("aside")).unwrap();
    fs::create_dir(&root).unwrap();
    until(&following, "watching");
    let file = root.join(format!("{}.jsonl", SESSIONS[0]));
    assert!(writer(&sandbox, &file, SESSIONS[0], (0, 3), "whole").wait().unwrap().success());
    until_imported(&following, 1);
}

#[test]
fn where_nothing_is_told_it_looks() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("sessions");
    fs::create_dir_all(&root).unwrap();
    let following = watch(&sandbox, &["--poll", "1", root.to_str().unwrap()]);
    assert_eq!(until(&following, "watching")["homes"][0]["by"], "looking");
    until(&following, "imported");
    let file = root.join(format!("{}.jsonl", SESSIONS[0]));
    assert!(writer(&sandbox, &file, SESSIONS[0], (0, 5), "whole").wait().unwrap().success());
    until_imported(&following, 5);
}

#[test]
fn a_busy_store_is_waited_for() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("sessions");
    fs::create_dir_all(&root).unwrap();
    let following = watch(&sandbox, &[root.to_str().unwrap()]);
    until(&following, "imported");
    let lock = rusqlite::Connection::open(sandbox.database()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let file = root.join(format!("{}.jsonl", SESSIONS[0]));
    assert!(writer(&sandbox, &file, SESSIONS[0], (0, 3), "whole").wait().unwrap().success());
    assert_eq!(until(&following, "busy")["error"]["kind"], "busy");
    lock.execute_batch("ROLLBACK").unwrap();
    until_imported(&following, 3);
    drop(following);
    assert_eq!(texts(&sandbox, SESSIONS[0]), numbers(3));
}

#[test]
fn one_pass_says_what_is_left_to_come() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("sessions");
    fs::create_dir_all(&root).unwrap();
    let file = root.join(format!("{}.jsonl", SESSIONS[0]));
    assert!(!writer(&sandbox, &file, SESSIONS[0], (0, 3), "killed").wait().unwrap().success());
    let output = sandbox.run(&["--json", "watch", "--once", root.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let events = lines(&output.stdout);
    assert_eq!(events[0]["report"]["items"]["imported"], 2, "{events:?}");
    assert_eq!(events[0]["threads"][0], SESSIONS[0]);
    assert_eq!(events[0]["report"]["problems"], serde_json::json!([]), "a line that waits is no problem");
    assert_eq!(events[1]["event"], "pending");
    assert_eq!(events[1]["waiting"][0]["line"], 3);
    let words = sandbox.ok(&["watch", "--once"]);
    assert!(words.contains("0 records") && words.contains("nothing is left to come"), "{words}");
    assert_eq!(sandbox.code(&["watch", "/nowhere"]), 3);
}

/// What was opened in these folders since it was asked last, without the folders themselves.
struct Opened(rustix::fd::OwnedFd);

impl Opened {
    fn of(folders: &[PathBuf]) -> Self {
        let queue = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        for folder in folders {
            inotify::add_watch(&queue, folder, inotify::WatchFlags::OPEN).unwrap();
        }
        Self(queue)
    }

    fn files(&self) -> BTreeSet<String> {
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 64 << 10];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut names = BTreeSet::new();
        while let Ok(event) = reader.next() {
            if !event.events().contains(inotify::ReadFlags::ISDIR) {
                names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        names
    }
}

/// A pass over what is unchanged opens no file, whether a whole home is looked through or one import is asked for.
#[test]
fn a_pass_over_what_is_unchanged_opens_nothing() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("sessions");
    fs::create_dir_all(&root).unwrap();
    for number in 0..40 {
        let session = format!("c3a94d17-80e2-4f6b-a1d5-73b2e9f04c{number:02}");
        let file = root.join(format!("{session}.jsonl"));
        assert!(writer(&sandbox, &file, &session, (0, 1), "whole").wait().unwrap().success());
    }
    let opened = Opened::of(std::slice::from_ref(&root));
    let root = root.to_str().unwrap();
    sandbox.ok(&["watch", "--once", root]);
    assert_eq!(opened.files().len(), 40, "it can be seen that files are opened");
    sandbox.ok(&["watch", "--once", root]);
    assert_eq!(opened.files(), BTreeSet::new());
    sandbox.ok(&["import", root]);
    assert_eq!(opened.files(), BTreeSet::new());
}

#[test]
fn a_unit_is_printed_with_the_paths_of_here() {
    let sandbox = Sandbox::new();
    let unit = sandbox.ok(&["watch", "--print-service", "systemd", "--mask-secrets"]);
    let line = format!("--store {} watch --mask-secrets\n", sandbox.path("store").display());
    assert!(unit.contains(&line), "{unit}");
    assert!(unit.contains(&format!("ReadWritePaths={}\n", sandbox.path("store").display())), "{unit}");
    assert!(!sandbox.path("store").exists());
    let list = sandbox.ok(&["watch", "--print-service", "launchd", "/srv/a&b"]);
    assert!(list.contains("<string>/srv/a&amp;b</string>"), "{list}");
    let file = sandbox.path("threadkeep-watch.service");
    fs::write(&file, unit).unwrap();
    // Where systemd is, it has the last word.
    let Ok(checked) = Command::new("systemd-analyze").args(["--user", "verify"]).arg(&file).output() else { return };
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!said.contains("threadkeep-watch.service:"), "{said}");
}
