//! Taking in files, as people see it.

use crate::sandbox::{Sandbox, samples};

#[test]
fn a_dry_run_makes_no_store_and_changes_none() {
    let sandbox = Sandbox::new();
    let samples = samples();
    let samples = samples.to_str().unwrap();
    let report = sandbox.json(&["import", "--dry-run", samples]);
    assert!(report["threads"]["new"].as_u64().unwrap() > 0);
    assert!(!sandbox.path("store").exists());
    sandbox.thread("one", "One", &["a"]);
    assert_eq!(sandbox.json(&["import", "--dry-run", samples])["threads"], report["threads"]);
    assert_eq!(sandbox.json(&["list"])["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn a_scan_finds_the_agents_homes() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.json(&["import", "--scan"])["files"]["read"], 0);
    let sessions = sandbox.path("home/.codex/sessions/2026/03/14");
    std::fs::create_dir_all(&sessions).unwrap();
    let sample = samples().join("codex/sessions/2026/03/14");
    for file in std::fs::read_dir(sample).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), sessions.join(file.file_name())).unwrap();
    }
    assert_eq!(sandbox.json(&["import", "--scan", "--agent", "claude-code"])["files"]["read"], 0);
    let text = sandbox.ok(&["import", "--scan"]);
    for words in ["1 new", "Next:", "threadkeep list", "threadkeep show 019ceba1"] {
        assert!(text.contains(words), "{words} is missing in:\n{text}");
    }
    assert!(sandbox.ok(&["import", "--scan"]).contains("1 unchanged"));
}

/// A link is not followed, and nothing fails for it; what can't be read at all fails.
#[test]
fn a_scan_names_links_and_sessions_that_can_not_be_read() {
    let sandbox = Sandbox::new();
    let (projects, elsewhere) = (sandbox.path("home/.claude/projects"), sandbox.path("elsewhere/-shop"));
    std::fs::create_dir_all(&projects).unwrap();
    std::fs::create_dir_all(&elsewhere).unwrap();
    let name = "c3a94d17-80e2-4f6b-a1d5-73b2e9f04c68.jsonl";
    std::fs::copy(samples().join("claude-code/projects/-home-dev-webshop").join(name), elsewhere.join(name)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, projects.join("-shop")).unwrap();
    let text = sandbox.ok(&["import", "--scan"]);
    for words in ["No agent's sessions were found.", "it is a link, which is not followed", "projects/-shop"] {
        assert!(text.contains(words), "{words} is missing in:\n{text}");
    }
    let damaged = projects.join("-damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join(name), [0; 100_000]).unwrap();
    let output = sandbox.command(&["--json", "import", "--scan"]).output().unwrap();
    assert_eq!(output.status.code(), Some(8));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report["files"]["failed"].as_u64(), report["problems"].as_array().map(Vec::len)), (Some(1), Some(2)));
}

#[test]
fn a_scan_looks_where_the_agents_variables_say() {
    let sandbox = Sandbox::new();
    let elsewhere = sandbox.path("elsewhere/projects/p");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let folder = samples().join("claude-code/projects/-home-dev-webshop");
    let name = "c3a94d17-80e2-4f6b-a1d5-73b2e9f04c68.jsonl";
    std::fs::copy(folder.join(name), elsewhere.join(name)).unwrap();
    let mut command = sandbox.command(&["--json", "import", "--scan"]);
    let output = command.env("CLAUDE_CONFIG_DIR", sandbox.path("elsewhere")).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["threads"]["new"], 1, "{report}");
}

#[test]
fn a_thread_goes_to_newt_and_codewhale_and_comes_back() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a", "b"]);
    let home = sandbox.path("out");
    std::fs::create_dir_all(home.join("sessions")).unwrap();
    for (agent, name) in [("newt", "conversations.db"), ("codewhale", "state.db")] {
        let file = home.join(name);
        let file = file.to_str().unwrap();
        let told = sandbox.json(&["export", "one", "--to", agent, "-o", file]);
        assert_eq!((told["agent"].as_str(), told["messages"].as_u64()), (Some(agent), Some(2)), "{told}");
        let report = sandbox.json(&["import", file]);
        assert_eq!(
            (report["files"]["failed"].as_u64(), report["problems"].as_array().map(Vec::len)),
            (Some(0), Some(0)),
            "{report}"
        );
        assert_eq!(report["threads"]["new"], 1);
        assert_eq!(sandbox.json(&["import", file])["items"]["imported"], 0);
    }
    let threads = sandbox.json(&["list"]);
    let chains =
        threads["threads"].as_array().unwrap().iter().filter(|thread| thread["extra"]["newt.chain"] == "verified");
    assert_eq!(chains.count(), 1, "{threads}");
}

#[test]
fn a_dry_scan_says_what_would_come_of_each_home() {
    let sandbox = Sandbox::new();
    let sessions = sandbox.path("home/.codex/sessions/2026/03/14");
    std::fs::create_dir_all(&sessions).unwrap();
    for file in std::fs::read_dir(samples().join("codex/sessions/2026/03/14")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), sessions.join(file.file_name())).unwrap();
    }
    let zed = sandbox.path("home/.local/share/zed/threads");
    std::fs::create_dir_all(&zed).unwrap();
    std::fs::write(zed.join("threads.db"), [0; 2048]).unwrap();
    std::fs::write(sandbox.path("project/.aider.chat.history.md"), "# aider chat started").unwrap();
    let run = |args: &[&str]| {
        let output = sandbox.run(args);
        assert_eq!(output.status.code(), Some(8), "a database that is none is told");
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |args: &[&str]| -> serde_json::Value { serde_json::from_str(&run(args)).unwrap() };
    let report = json(&["--json", "import", "--scan", "--dry-run"]);
    let homes = report["homes"].as_array().unwrap();
    let home = |agent: &str| homes.iter().find(|home| home["agent"] == agent);
    let codex = home("codex").unwrap();
    assert_eq!((&codex["files"], &codex["report"]["threads"]["new"]), (&1.into(), &1.into()), "{codex}");
    assert!(codex["bytes"].as_u64() > Some(0) && codex["read"] == true);
    let zed = home("zed").unwrap();
    assert_eq!((&zed["files"], &zed["bytes"]), (&1.into(), &2048.into()), "{zed}");
    assert_eq!(zed["report"]["files"]["failed"], 1, "{zed}");
    assert!(home("aider").is_none(), "projects are looked into when they are named");
    assert_eq!(report["threads"]["new"], 1);
    assert!(!sandbox.path("store").exists());
    let words = run(&["import", "--scan", "--dry-run", "--project", "."]);
    for part in ["codex", "1 new", "zed", "aider", "2.0 KiB", "nothing was stored"] {
        assert!(words.contains(part), "{part} is missing in {words}");
    }
    let report = json(&["--json", "import", "--scan"]);
    assert_eq!(report["homes"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(
        (&report["files"]["read"], &report["files"]["failed"]),
        (&1.into(), &1.into()),
        "one home keeps no other one from being read"
    );
}

#[test]
fn what_can_not_be_imported_is_told() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(&["import", "/nowhere"]), 3);
    assert!(!sandbox.path("store").exists());
    assert_eq!(sandbox.code(&["import"]), 2);
    let samples = samples();
    assert_eq!(sandbox.code(&["import", samples.to_str().unwrap(), "--agent", "nobody"]), 2);
    std::fs::write(sandbox.path("notes.jsonl"), "no session\n").unwrap();
    let notes = sandbox.path("notes.jsonl");
    let output = sandbox.run(&["import", "--json", samples.to_str().unwrap(), notes.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(8));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["files"]["failed"], 1);
    assert!(report["files"]["read"].as_u64().unwrap() > 0);
    let output = sandbox.run(&["import", notes.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1 problem") && text.contains("notes.jsonl"), "{text}");
}
