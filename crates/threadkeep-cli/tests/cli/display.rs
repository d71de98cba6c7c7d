//! What people see: nothing that steers their terminal, and columns that line up in any script.

use unicode_width::UnicodeWidthStr as _;

use crate::sandbox::{Sandbox, samples};

#[test]
fn stored_control_characters_do_nothing() {
    let sandbox = Sandbox::new();
    let hostile = "\u{1b}[31mred\u{7}\u{9b}2J\r\u{8}\u{202e}reversed\u{7f}\u{0}";
    let line = serde_json::json!({"role": "user", "text": hostile}).to_string();
    let call = serde_json::json!({"kind": "tool_call", "content": {"role": hostile, "parts": [
        {"type": "tool_call", "call_id": "1", "name": hostile, "arguments": hostile},
        {"type": "tool_result", "call_id": "1", "output": hostile},
        {"type": "media", "media_type": hostile, "bytes": 1},
        {"type": "note", "text": hostile},
    ]}});
    let odd = serde_json::json!({"kind": "\u{1b}[2Jodd", "role": "\u{1b}[2Jodd", "text": hostile});
    let title = hostile.replace('\0', "");
    let input = format!("{line}\n{call}\n{odd}\n");
    let arguments = ["append", "--new", "--id", "one", "--title", &title, "--agent", "\u{1b}[2J"];
    assert!(sandbox.feed(&arguments, &input).status.success());
    let branch = sandbox.json(&["tree", "one"])["branches"][0]["branch"].as_str().unwrap().to_owned();
    sandbox.ok(&["label", "one", &branch, &title]);
    for arguments in [
        &["list"][..],
        &["show", "one"],
        &["show", "one", "--all"],
        &["show", "one", "--markdown", "--all"],
        &["tree", "one"],
        &["tail", "one", "--all"],
        &["stats"],
        &["archive", &title],
    ] {
        let output = sandbox.ok(arguments);
        let steering = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        assert!(!output.contains(steering), "{arguments:?}: {output:?}");
        assert!(arguments[0] == "stats" || output.contains("␛[31mred"), "{arguments:?}: {output}");
    }
    let output = sandbox.run(&["show", hostile.trim_matches('\0')]);
    assert!(!String::from_utf8(output.stderr).unwrap().contains('\u{1b}'));
}

#[test]
fn columns_line_up_in_any_script() {
    let sandbox = Sandbox::new();
    let family = "👨\u{200d}👩\u{200d}👧 家族";
    let titles = [
        "ascii",
        "日本語の題名がとても長いので切らなければならないときもあるし、さらに長いときもある",
        "e\u{301}e\u{301}e\u{301} accents",
        family,
        "한국어 제목",
        "x",
    ];
    for (number, title) in titles.iter().enumerate() {
        let id = format!("thread-{number}");
        let arguments = ["append", "--new", "--id", &id, "--title", title, "--agent", "codex"];
        assert!(sandbox.feed(&arguments, "{\"text\":\"a\"}\n").status.success());
    }
    for columns in ["40", "60", "80", "200"] {
        let output = sandbox.command(&["list"]).env("COLUMNS", columns).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let places: Vec<usize> = text.lines().skip(1).map(|line| line.split_once("codex").unwrap().0.width()).collect();
        assert_eq!(places.len(), titles.len());
        assert!(places.iter().all(|place| *place == places[0]), "{columns}: {places:?}\n{text}");
        if columns != "40" {
            assert!(text.lines().all(|line| line.width() <= columns.parse().unwrap()), "{text}");
        }
    }
}

#[test]
fn colours_are_for_terminals() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "One", &["a"]);
    assert!(!sandbox.ok(&["show", "one"]).contains('\u{1b}'));
    let forced = |arguments: &[&str]| {
        let output = sandbox.command(arguments).env("CLICOLOR_FORCE", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains('\u{1b}')
    };
    assert!(forced(&["show", "one"]));
    assert!(!forced(&["show", "one", "--json"]));
    let output = sandbox.command(&["show", "one"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap();
    assert!(!output.stdout.is_empty());
}

#[test]
fn a_conversation_reads_well() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["import", samples().to_str().unwrap()]);
    let text = sandbox.ok(&["show", "01a0b7d2"]);
    for words in ["user  @6", "→ exec_command  npm", "events and settings are hidden", "summary of what came before"]
    {
        assert!(text.contains(words), "{words} is missing in:\n{text}");
    }
    assert!(!text.contains("turn settings"));
    assert!(sandbox.ok(&["show", "01a0b7d2", "--all"]).contains("turn settings"));
    let context = sandbox.ok(&["show", "01a0b7d2", "--context"]);
    assert!(context.contains("summary of what came before") && !context.contains("user  @6"));
    let markdown = sandbox.ok(&["show", "01a0b7d2", "--markdown"]);
    assert!(markdown.starts_with("# ") && markdown.contains("\n## User\n") && markdown.contains("\n```"), "{markdown}");
    let tree = sandbox.ok(&["tree", "6e1f7c20-4b9d-4a53-9c18-2d7e5f0a8b31"]);
    assert!(tree.contains("● @0–12") && tree.contains("├─ ○ @13–16") && tree.contains("← head"), "{tree}");
}

#[test]
fn long_results_are_cut_and_counted() {
    let sandbox = Sandbox::new();
    let output: String = (0..100).map(|number| format!("line {number}\n")).collect();
    let part = serde_json::json!({"type": "tool_result", "call_id": "1", "output": output});
    let line = serde_json::json!({"kind": "tool_result", "content": {"role": "tool", "parts": [part]}});
    assert!(sandbox.feed(&["append", "--new", "--id", "one"], &format!("{line}\n")).status.success());
    let text = sandbox.ok(&["show", "one"]);
    assert!(text.contains("line 5") && !text.contains("line 6") && text.contains("… 94 more lines"), "{text}");
    assert!(sandbox.ok(&["show", "one", "--all"]).contains("line 99"));
}
