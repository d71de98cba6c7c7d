//! Threads as files: written, checked, shown, and made a store of again.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::sandbox::{Sandbox, samples};

/// The rollouts below a folder, the index left out.
fn rollouts(folder: &std::path::Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.to_str().is_some_and(|it| it.contains(".jsonl") && !it.contains("session_index")) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_store_is_rebuilt_from_its_rollouts() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["import", samples().to_str().unwrap()]);
    sandbox.thread("one", "One", &["a", "b"]);
    sandbox.ok(&["fork", "one@0", "--id", "two"]);
    sandbox.ok(&["archive", "two"]);
    let first = sandbox.json(&["rollout", "mirror"]);
    assert_eq!((&first["problems"], &first["unchanged"]), (&Value::Array(vec![]), &0.into()), "{first}");
    let second = sandbox.json(&["rollout", "mirror", "--all"]);
    assert_eq!((&second["written"], &second["unchanged"]), (&0.into(), &first["threads"]), "{second}");
    let folder = sandbox.path("store/rollouts");
    assert_eq!(rollouts(&folder).len() as u64, first["threads"].as_u64().unwrap());
    assert!(sandbox.ok(&["rollout", "verify", folder.to_str().unwrap()]).contains("all whole"));

    let target = sandbox.path("elsewhere");
    let there = |arguments: &[&str]| {
        let output = sandbox.bare().arg("--store").arg(&target).args(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let report = there(&["rollout", "rebuild", "--from", folder.to_str().unwrap()]);
    assert_eq!((&report["carried"]["equal"], &report["problems"]), (&first["threads"], &Value::Array(vec![])));
    for arguments in [["show", "one"], ["show", "two"], ["tree", "one"]] {
        let (here, there) = (sandbox.json(&arguments), there(&arguments));
        assert_eq!((&here["items"], &here["branches"]), (&there["items"], &there["branches"]), "{arguments:?}");
    }
    assert_eq!(there(&["verify"])["invalid"], Value::Array(vec![]));
    let mirrored = there(&["rollout", "mirror"]);
    assert_eq!(mirrored["written"], first["threads"]);
    for file in rollouts(&folder) {
        let same = target.join("rollouts").join(file.strip_prefix(&folder).unwrap());
        assert!(fs::read(&file).unwrap() == fs::read(same).unwrap(), "{}", file.display());
    }
}

#[test]
fn a_store_whose_database_is_gone_is_rebuilt_in_its_place_and_not_by_accident() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    sandbox.ok(&["fork", "one@0", "--id", "two"]);
    sandbox.ok(&["rollout", "mirror"]);
    let before = (sandbox.json(&["show", "one"])["items"].clone(), sandbox.json(&["show", "two"])["items"].clone());
    for gone in [true, false] {
        match gone {
            true => fs::remove_file(sandbox.database()).unwrap(),
            false => fs::write(sandbox.database(), b"").unwrap(),
        }
        let refused = sandbox.feed(&["append", "--new"], "{\"text\":\"never\"}\n");
        assert_eq!(refused.status.code(), Some(5), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("doctor"), "{refused:?}");
        let folder = sandbox.path("store/rollouts");
        let report = sandbox.json(&["rollout", "rebuild", "--from", folder.to_str().unwrap()]);
        assert_eq!((&report["carried"]["new"], &report["problems"]), (&2.into(), &Value::Array(vec![])), "{report}");
        let after = (sandbox.json(&["show", "one"])["items"].clone(), sandbox.json(&["show", "two"])["items"].clone());
        assert_eq!(after, before);
        assert_eq!(sandbox.json(&["rollout", "mirror"])["extra"], Value::Array(vec![]));
    }
}

#[test]
fn a_damaged_file_is_told_by_line_and_the_rest_of_it_is_shown() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["first", "second", "third"]);
    sandbox.ok(&["rollout", "mirror", "one", "--rollouts", "copies"]);
    let copies = sandbox.path("project/copies");
    let file = rollouts(&copies).remove(0);
    let file = file.to_str().unwrap();
    assert!(sandbox.bare().args(["show", file]).output().unwrap().status.success(), "no store is needed");
    let shown = sandbox.ok(&["show", file]);
    assert!(shown.contains("third"), "{shown}");
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replace("third", "thirD")).unwrap();
    let output = sandbox.run(&["rollout", "verify", file]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains(".jsonl:4"), "{output:?}");
    let output = sandbox.run(&["show", file]);
    let (shown, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(8), "{told}");
    assert!(shown.contains("second") && !shown.contains("thir") && told.contains(".jsonl:4"), "{shown}{told}");
    let output = sandbox.run(&["rollout", "rebuild", "--from", file]);
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    // A newer version is refused, and nothing of it is read.
    let (header, rest) = text.split_once('\n').unwrap();
    let header = header.replace("\"version\":1", "\"version\":9");
    let body = header.rsplit_once(",\"sum\"").unwrap().0;
    let sum = threadkeep::Hash::of(body.as_bytes()).to_string();
    fs::write(file, format!("{body},\"sum\":\"{}\"}}\n{rest}", &sum[..16])).unwrap();
    assert_eq!(sandbox.failure(&["rollout", "verify", file]).0, 6);
    assert_eq!(sandbox.failure(&["show", file]).1["kind"], "rollout-too-new");
}

#[test]
fn a_file_of_an_agent_is_shown_without_being_imported() {
    let sandbox = Sandbox::new();
    for file in rollouts(&samples().join("codex")) {
        let output = sandbox.bare().arg("--json").arg("show").arg(&file).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 8)), "{output:?}");
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["thread"]["agent"], "codex", "{}", file.display());
    }
    fs::write(sandbox.path("project/other.jsonl"), "{\"a\":1}\n").unwrap();
    let (code, error) = sandbox.failure(&["show", "other.jsonl"]);
    assert_eq!((code, &error["kind"]), (2, &"invalid".into()));
    assert!(!sandbox.path("store").exists());
}

#[test]
fn what_is_not_there_makes_no_store() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(&["rollout", "rebuild", "--from", "nowhere"]), 3);
    assert_eq!(sandbox.code(&["rollout", "verify", "nowhere"]), 3);
    assert_eq!(sandbox.code(&["rollout", "mirror"]), 3);
    assert!(!sandbox.path("store").exists());
}

fn kill(mut child: Child) {
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_mirror_that_was_killed_anywhere_leaves_whole_files_and_is_completed() {
    let sandbox = Sandbox::new();
    for number in 0..30 {
        let text = format!("{number} {}", "word ".repeat(4_000));
        sandbox.thread(&format!("t{number}"), "T", &[&text, "b"]);
    }
    let folder = sandbox.path("store/rollouts");
    let (mut pause, mut cut) = (1_u64, 0);
    loop {
        let child =
            sandbox.command(&["rollout", "mirror"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The moment of the kill is what is tried; nothing is waited for.
        std::thread::sleep(std::time::Duration::from_millis(pause));
        kill(child);
        let there = if folder.exists() { rollouts(&folder).len() } else { 0 };
        if there > 0 {
            assert!(sandbox.ok(&["rollout", "verify", folder.to_str().unwrap()]).contains("all whole"));
        }
        cut += usize::from(there > 0 && there < 30);
        if there == 30 {
            break;
        }
        pause += 4;
    }
    let report = sandbox.json(&["rollout", "mirror"]);
    assert_eq!(report["problems"], Value::Array(vec![]), "{report}");
    assert_eq!(sandbox.json(&["rollout", "mirror"])["written"], 0);
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".threadkeep-")), "{left:?}");
    assert!(cut > 0, "no kill came between two files");
}

/// The most memory that a run took, in megabytes.
fn peak(mut command: Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let found = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(found.unwrap_or(0));
    }
    assert!(child.wait().unwrap().success(), "{command:?}");
    peak >> 10
}

#[test]
fn a_thread_of_a_hundred_megabytes_is_mirrored_and_rebuilt_in_bounded_memory() {
    let sandbox = Sandbox::new();
    let mut state = 7_u64;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state ^ state >> 31)
    };
    let lines: Vec<String> = (0..100)
        .map(|_| {
            let text: String = (0..1 << 16).map(|_| word()).collect();
            serde_json::json!({"role": "user", "text": text}).to_string()
        })
        .collect();
    assert!(sandbox.feed(&["append", "--new", "--id", "big"], &lines.join("\n")).status.success());
    let mirrored = peak(sandbox.command(&["rollout", "mirror"]));
    let file = rollouts(&sandbox.path("store/rollouts")).remove(0);
    assert!(file.metadata().unwrap().len() > 100 << 20);
    let verified = peak(sandbox.command(&["rollout", "verify", file.to_str().unwrap()]));
    let mut rebuild = sandbox.bare();
    rebuild.arg("--store").arg(sandbox.path("other")).args(["rollout", "rebuild", "--from"]).arg(&file);
    let rebuilt = peak(rebuild);
    // The program itself counts too, and is large where it is not optimised.
    let idle = peak(sandbox.command(&["list"]));
    println!("list {idle} MB, mirror {mirrored} MB, verify {verified} MB, rebuild {rebuilt} MB");
    let most = mirrored.max(verified).max(rebuilt);
    assert!(most < idle + 40, "list {idle} MB, mirror {mirrored} MB, verify {verified} MB, rebuild {rebuilt} MB");
}

#[test]
fn rollouts_are_kept_while_threads_are_written() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    let off = sandbox.json(&["rollout", "live", "status"]);
    assert_eq!(off["live"]["folder"], Value::Null, "off unless it is asked for");
    let on = sandbox.json(&["rollout", "live", "on"]);
    let folder = sandbox.path("store/rollouts");
    assert_eq!((on["live"]["folder"].as_str(), &on["mirrored"]["written"]), (folder.to_str(), &1.into()), "{on}");
    let line = "{\"role\":\"user\",\"text\":\"and on\"}\n";
    assert!(sandbox.feed(&["append", "one"], line).status.success());
    let file = rollouts(&folder).remove(0);
    let file = file.to_str().unwrap();
    assert!(fs::read_to_string(file).unwrap().contains("and on"), "there when the command has ended");
    for command in ["verify", "tail"] {
        let shown = sandbox.ok(&[command, file]);
        assert!(shown.contains("and on") || shown.contains("3 items: all whole"), "{shown}");
    }
    assert_eq!(sandbox.run(&["tail", "-f", file]).status.code(), Some(2), "a file is not followed");
    assert_eq!(sandbox.run(&["verify", file, "one"]).status.code(), Some(2));
    assert!(sandbox.ok(&["rollout", "live", "status"]).contains("all in step"));

    // A folder that can't be made fails nothing, and is told.
    let other = sandbox.path("in-the-way");
    fs::write(&other, "a file").unwrap();
    let output = sandbox.run(&["rollout", "live", "on", "--rollouts", other.to_str().unwrap()]);
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    let output = sandbox.feed(&["append", "one"], line);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stderr).contains("can't be written"),
        "{output:?}"
    );
    assert_eq!(sandbox.run(&["rollout", "live", "status"]).status.code(), Some(8));
    fs::remove_file(&other).unwrap();
    let status = sandbox.json(&["rollout", "live", "status"]);
    assert_eq!((&status["live"]["is_in_step"], rollouts(&other).len()), (&true.into(), 1), "{status}");

    sandbox.ok(&["rollout", "live", "off"]);
    let before = fs::read(&rollouts(&other)[0]).unwrap();
    assert!(sandbox.feed(&["append", "one"], line).status.success());
    assert!(fs::read(&rollouts(&other)[0]).unwrap() == before, "the files stay as they are");
}

#[test]
fn a_rollout_from_anywhere_is_gone_on_with() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    sandbox.ok(&["rollout", "mirror", "--rollouts", "copies"]);
    let file = rollouts(&sandbox.path("project/copies")).remove(0);
    let moved = sandbox.path("moved.jsonl");
    fs::rename(file, &moved).unwrap();
    let lines = sandbox.path("lines.jsonl");
    fs::write(&lines, "{\"role\":\"user\",\"text\":\"from there\"}\n").unwrap();
    let append = |store: &str, file: &std::path::Path| {
        let mut command = sandbox.bare();
        command.arg("--store").arg(sandbox.path(store)).args(["append", "--rollout"]).arg(file);
        command.stdin(fs::File::open(&lines).unwrap()).output().unwrap()
    };
    let output = append("elsewhere", &moved);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&told[0]["thread"], &told[1]["depth"]), (&"one".into(), &2.into()), "{output:?}");
    let shown = sandbox.bare().arg("--store").arg(sandbox.path("elsewhere")).args(["show", "one"]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("from there"), "{shown:?}");
    // Again: what is here already goes on from here.
    assert!(append("elsewhere", &moved).status.success());

    let bytes = fs::read(&moved).unwrap();
    fs::write(&moved, &bytes[..bytes.len() - 30]).unwrap();
    let output = append("fresh", &moved);
    assert_eq!(output.status.code(), Some(5), "what is damaged is not gone on with unasked");
    assert!(String::from_utf8_lossy(&output.stderr).contains("rollout rebuild --from"), "{output:?}");
    assert_eq!(append("elsewhere", "no-such.jsonl".as_ref()).status.code(), Some(3));
}
