//! Giving threads to agents: as a file, in their home, and to go on with.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::sandbox::{Sandbox, lines, samples};

/// A sandbox with the examples, and with an agent that writes down how it is run.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok(&["import", samples().to_str().unwrap()]);
    let folder = sandbox.path("bin");
    fs::create_dir(&folder).unwrap();
    for program in ["codex", "claude"] {
        let path = folder.join(program);
        let script = "#!/bin/sh\n{ pwd; echo \"$CODEX_HOME$CLAUDE_CONFIG_DIR\"; printf '%s\\n' \"$@\"; } > \"$HOME/ran\"\nexit $AGENT_EXIT\n";
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    sandbox
}

const CODEX: &str = "019ceba1";
const CLAUDE: &str = "6e1f7c20-4b9d-4a53-9c18-2d7e5f0a8b31";

#[test]
fn a_thread_is_written_for_another_agent_and_losses_are_told() {
    let sandbox = sandbox();
    let output = sandbox.run(&["export", CODEX, "--to", "claude-code"]);
    assert!(output.status.success());
    let written = lines(&output.stdout);
    assert_eq!(written[0]["message"]["role"], "user");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("lost: 3 × thoughts"), "{told}");
    let report = sandbox.json(&["export", CODEX, "--to", "claude-code", "-o", "out.jsonl"]);
    let file = sandbox.path("project/out.jsonl");
    assert_eq!(fs::read(&file).unwrap(), output.stdout);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(report["bytes"], output.stdout.len());
    assert_eq!((&report["records"], report["messages"].as_u64() > Some(10)), (&0.into(), true));
    assert!(report["losses"].as_array().unwrap().iter().any(|loss| loss["count"] == 3));
}

#[test]
fn a_thread_comes_back_to_its_own_agent_byte_by_byte() {
    let sandbox = sandbox();
    let verbatim = sandbox.run(&["export", CLAUDE, "--verbatim"]).stdout;
    let output = sandbox.run(&["export", CLAUDE, "--to", "claude-code"]);
    assert_eq!(output.stdout, verbatim);
    assert!(output.stderr.is_empty());
}

#[test]
fn the_path_to_an_item_is_a_session_of_its_own() {
    let sandbox = sandbox();
    let whole = sandbox.json(&["export", CODEX, "--to", "codex", "--home", "h"]);
    let part = sandbox.json(&["export", &format!("{CODEX}@20"), "--to", "codex", "--home", "h"]);
    assert_ne!(whole["session"], part["session"]);
    assert!(part["bytes"].as_u64() < whole["bytes"].as_u64());
}

#[test]
fn what_is_in_the_way_stays() {
    let sandbox = sandbox();
    let arguments = ["export", CODEX, "--to", "codex", "--home", "agents-home"];
    let first = sandbox.json(&arguments);
    assert_eq!(first["written"], true);
    assert_eq!(sandbox.json(&arguments)["written"], false);
    let file = first["file"].as_str().unwrap();
    let written = fs::read(file).unwrap();
    fs::write(file, "other\n").unwrap();
    let (code, error) = sandbox.failure(&arguments);
    assert_eq!((code, error["kind"].as_str().unwrap()), (1, "already-exists"));
    assert_eq!(fs::read(file).unwrap(), b"other\n");
    sandbox.ok(&[&arguments[..], &["--overwrite"]].concat());
    assert_eq!(fs::read(file).unwrap(), written);
    fs::write(file, [&written[..], b"{}\n"].concat()).unwrap();
    let (_, error) = sandbox.failure(&arguments);
    assert!(error["hint"].as_str().unwrap().contains("threadkeep import"), "{error}");
}

#[test]
fn secrets_are_masked_on_the_way_out() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "Key of hunter-42", &["the word is hunter-42", "I keep hunter-42"]);
    for agent in ["codex", "claude-code"] {
        let output = sandbox.run(&["export", "one", "--to", agent, "--mask", "hunter-[0-9]+"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !text.contains("hunter-42") && text.contains("the word is"), "{text}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("masked here"));
    }
}

#[test]
fn the_command_goes_on_in_the_threads_folder() {
    let sandbox = sandbox();
    let project = sandbox.path("project").display().to_string();
    let home = sandbox.path("it's").display().to_string();
    let with = ["continue", CODEX, "--with", "claude-code", "--cwd", &project, "--home", &home];
    let line = sandbox.ok(&with);
    let quoted = home.replace('\'', r"'\''");
    let session = "019ceba1-4c8d-7d02-9b1e-5f2a7c3d8e90";
    assert_eq!(line.trim(), format!("cd {project} && CLAUDE_CONFIG_DIR='{quoted}' claude --resume {session}"));
    let report = sandbox.json(&with);
    assert_eq!(report["command"], serde_json::json!(["claude", "--resume", session]));
    assert_eq!(
        (&report["written"], &report["environment"]["CLAUDE_CONFIG_DIR"]),
        (&false.into(), &home.clone().into())
    );

    let run = |exit: &str| {
        let path = sandbox.path("bin").display().to_string();
        sandbox
            .command(&[&with[..], &["--run"]].concat())
            .env("PATH", path + ":/bin:/usr/bin")
            .env("AGENT_EXIT", exit)
            .output()
    };
    assert!(run("0").unwrap().status.success());
    let ran = fs::read_to_string(sandbox.path("home/ran")).unwrap();
    assert_eq!(ran, format!("{project}\n{home}\n--resume\n{session}\n"));
    assert_eq!(run("3").unwrap().status.code(), Some(1));
}

#[test]
fn a_session_in_the_agents_own_home_needs_no_variable() {
    let sandbox = sandbox();
    let project = sandbox.path("project").display().to_string();
    let line = sandbox.ok(&["continue", CLAUDE, "--with", "codex", "--cwd", &project]);
    assert_eq!(line.trim(), format!("cd {project} && codex resume {CLAUDE}"));
    assert!(sandbox.path("home/.codex/sessions/2026/03/15").is_dir());
    // The agent has gone on: its own session is gone on with.
    let report = sandbox.json(&["continue", CLAUDE, "--with", "codex", "--cwd", &project]);
    let file = report["file"].as_str().unwrap();
    let further = [fs::read(file).unwrap(), b"{}\n".to_vec()].concat();
    fs::write(file, &further).unwrap();
    let output = sandbox.run(&["continue", CLAUDE, "--with", "codex", "--cwd", &project]);
    assert!(output.status.success() && String::from_utf8(output.stderr).unwrap().contains("gone on with it"));
    assert_eq!(fs::read(file).unwrap(), further);
}

#[test]
fn an_agent_that_takes_sessions_in_is_told_of_the_home_that_is_named() {
    let sandbox = sandbox();
    let project = sandbox.path("project").display().to_string();
    let with = |agent: &str, home: &str| {
        let home = sandbox.path(home).display().to_string();
        let named = ["continue", CLAUDE, "--with", agent, "--cwd", &project, "--home", &home];
        let report = sandbox.json(if home.ends_with("none") { &named[..6] } else { &named });
        fs::remove_dir_all(std::path::Path::new(report["file"].as_str().unwrap()).parent().unwrap()).unwrap();
        report
    };
    for agent in ["opencode", "goose"] {
        let report = with(agent, "none");
        assert_eq!(report["environment"], serde_json::json!({}), "{agent}");
    }
    let report = with("opencode", "data/opencode");
    let data = sandbox.path("data").display().to_string();
    assert_eq!(report["environment"], serde_json::json!({ "XDG_DATA_HOME": data }));
    let shell = report["shell"].as_str().unwrap();
    assert_eq!(shell.matches(&format!("XDG_DATA_HOME={data} opencode ")).count(), 2, "{shell}");
    let root = sandbox.path("goose").display().to_string();
    assert_eq!(with("goose", "goose")["environment"], serde_json::json!({ "GOOSE_PATH_ROOT": root }));

    let named = ["continue", CLAUDE, "--with", "opencode", "--cwd", &project, "--home", &data];
    let (code, error) = sandbox.failure(&named);
    assert!(code == 2 && error["message"].as_str().unwrap().contains("a folder named `opencode`"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("leave it away"), "{error}");
}

#[test]
fn a_name_that_begins_with_a_dash_is_no_option() {
    let sandbox = sandbox();
    let project = sandbox.path("project").display().to_string();
    sandbox.thread("one", "- fix the list", &["fix it"]);
    let report = sandbox.json(&["continue", "one", "--with", "goose", "--cwd", &project]);
    fs::remove_dir_all(std::path::Path::new(report["file"].as_str().unwrap()).parent().unwrap()).unwrap();
    let command = ["goose", "session", "--resume", "--name=- fix the list"];
    assert_eq!(report["command"], serde_json::json!(command));
    assert!(report["shell"].as_str().unwrap().ends_with("--resume '--name=- fix the list'"));
}

#[test]
fn what_can_not_be_gone_on_with_is_refused() {
    let sandbox = sandbox();
    let (code, error) = sandbox.failure(&["continue", CODEX, "--with", "codex"]);
    assert!(code == 3 && error["message"].as_str().unwrap().contains("/home/dev/webshop is gone"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--cwd"));
    let (code, error) = sandbox.failure(&["continue", CODEX, "--with", "cursor"]);
    assert!(code == 2 && error["message"].as_str().unwrap().contains("claude-code"), "{error}");
    let project = sandbox.path("project").display().to_string();
    assert_eq!(
        sandbox.code(&[
            "continue",
            &format!("{CLAUDE}.agent-a4f09c1d7e2b3586a"),
            "--with",
            "claude-code",
            "--cwd",
            &project
        ]),
        2
    );
    assert_eq!(sandbox.code(&["export", CODEX, "--to", "codex"]), 2, "bytes are no document");
    assert_eq!(sandbox.code(&["export", CODEX, "--to", "codex", "--verbatim"]), 2);
    assert_eq!(sandbox.code(&["export", CODEX]), 2);
    assert!(!sandbox.path("home/.codex").exists(), "nothing was written");
}

#[test]
fn several_threads_become_one_store_of_an_agent_that_keeps_one() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "First", &["look around"]);
    sandbox.thread("two", "Second", &["go on"]);
    let arguments = ["export", "one", "two", "--to", "codewhale", "--home", "whale"];
    let report = sandbox.json(&arguments);
    assert_eq!((&report["threads"], &report["written"]), (&serde_json::json!(["one", "two"]), &true.into()));
    assert_eq!(report["companions"].as_array().unwrap().len(), 3, "the index, and a session for each");
    let file = sandbox.path("project/whale/state.db");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(sandbox.json(&arguments)["written"], false);
    let there = fs::read(&file).unwrap();
    let (code, error) = sandbox.failure(&["export", "one", "--to", "codewhale", "--home", "whale"]);
    assert_eq!((code != 0, &error["kind"]), (true, &"already-exists".into()), "{error}");
    assert_eq!(fs::read(&file).unwrap(), there);
    sandbox.ok(&["export", "one", "two", "--to", "newt", "-o", "conversations.db"]);
    assert_eq!(sandbox.code(&["export", "one", "two", "--to", "codex", "--home", "h"]), 2);
    assert_eq!(sandbox.code(&["export", "one", "two@0", "--to", "codewhale", "--home", "h"]), 2);
    let other = Sandbox::new();
    let imported =
        other.json(&["import", file.to_str().unwrap(), sandbox.path("project/conversations.db").to_str().unwrap()]);
    assert_eq!(imported["threads"]["new"], 4, "{imported}");
}

#[test]
fn a_store_takes_the_place_of_nothing_with_a_file_name_either() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "First", &["look around"]);
    sandbox.ok(&["export", "one", "--to", "codewhale", "-o", "state.db"]);
    let file = sandbox.path("project/state.db");
    let there = fs::read(&file).unwrap();
    for thread in ["one", "one@0"] {
        let (code, error) = sandbox.failure(&["export", thread, "--to", "codewhale", "-o", "state.db"]);
        assert_eq!((code != 0, &error["kind"]), (true, &"already-exists".into()), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), there);
    fs::write(sandbox.path("project/other.db-wal"), "x").unwrap();
    let (_, error) = sandbox.failure(&["export", "one", "--to", "newt", "-o", "other.db"]);
    assert!(error["message"].as_str().unwrap().contains("other.db-wal"), "{error}");
    assert!(!sandbox.path("project/other.db").exists());
}

#[test]
fn options_that_mean_nothing_for_a_store_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "First", &["look around"]);
    let refused = |options: &[&str], told: &str| {
        let (code, error) = sandbox.failure(&[&["export"], options].concat());
        assert!(code == 2 && error["message"].as_str().unwrap().contains(told), "{options:?}: {error}");
    };
    refused(&["one", "--to", "codewhale", "--home", "h", "--overwrite"], "--overwrite has no meaning");
    refused(&["one", "--to", "newt", "-o", "f.db", "--overwrite"], "--overwrite has no meaning");
    refused(&["one@0", "--to", "newt", "--home", "h"], "one path of newt is written with -o FILE alone");
    refused(&["one", "--to", "codewhale", "--home", "h", "--cwd", "."], "one path of codewhale is written with");
    assert!(!sandbox.path("project/h").exists() && !sandbox.path("project/f.db").exists());
    sandbox.ok(&["export", "one@0", "--to", "newt", "-o", "f.db"]);
}
