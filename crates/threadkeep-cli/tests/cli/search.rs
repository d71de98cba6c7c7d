//! Searching: what is found, how it is named, and what people and programs get of it.

use serde_json::Value;

use crate::sandbox::{Sandbox, samples};
use crate::shapes::keys;

fn addresses(sandbox: &Sandbox, arguments: &[&str]) -> Vec<String> {
    let page = sandbox.json(&[&["search"], arguments].concat());
    let hits = page["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["address"].as_str().unwrap().to_owned()).collect()
}

/// What stands in a text at a range of its bytes.
fn part(text: &str, range: &Value) -> String {
    let at = |index: usize| usize::try_from(range[index].as_u64().unwrap()).unwrap();
    text[at(0)..at(1)].to_owned()
}

fn texts(items: &Value) -> Vec<&str> {
    items.as_array().unwrap().iter().map(|item| item["text"].as_str().unwrap()).collect()
}

/// A thread whose second half was left behind for another one.
fn branched(sandbox: &Sandbox) {
    sandbox.thread(
        "one",
        "Flaky test",
        &["The login test fails", "It is the clock", "Use a fake clock", "Done, clock faked"],
    );
    sandbox.ok(&["rewind", "one@1"]);
    let lines = "{\"role\":\"user\",\"text\":\"Use a real clock\"}\n{\"role\":\"assistant\",\"text\":\"Done\"}\n";
    assert!(sandbox.feed(&["append", "one"], lines).status.success());
}

#[test]
fn hits_have_stable_documents() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    let page = sandbox.json(&["search", "clock"]);
    keys(&page, &["hits", "threads", "next_cursor", "matches", "is_all", "not_understood", "notices"]);
    assert_eq!((&page["next_cursor"], &page["is_all"], &page["matches"]), (&Value::Null, &true.into(), &4.into()));
    let thread = &page["threads"][0];
    keys(thread, &["id", "title", "workspace_name", "agent", "shelf", "hits", "more"]);
    assert_eq!((&thread["id"], &thread["hits"], &thread["more"]), (&"one".into(), &3.into(), &1.into()));
    let flat = sandbox.json(&["search", "clock", "--flat"]);
    let hits = flat["hits"].as_array().unwrap();
    assert_eq!(hits.len(), 4);
    for hit in hits {
        keys(
            hit,
            &[
                "thread",
                "title",
                "address",
                "item",
                "branch",
                "depth",
                "active",
                "standing",
                "kind",
                "role",
                "created_at",
                "shared_with",
                "snippet",
                "marks",
                "cut_before",
                "cut_after",
                "score",
            ],
        );
        let (snippet, marks) = (hit["snippet"].as_str().unwrap(), hit["marks"].as_array().unwrap());
        let marked = |mark: &Value| part(snippet, mark);
        assert!(!marks.is_empty() && marks.iter().all(|mark| marked(mark) == "clock"), "{hit}");
        let item = sandbox.json(&["show", hit["address"].as_str().unwrap(), "--around", "0"])["items"][0].clone();
        assert_eq!((&item["id"], &item["branch"], &item["depth"]), (&hit["item"], &hit["branch"], &hit["depth"]));
        assert_eq!(hit["active"], hit["depth"] == 1 || snippet.contains("real"), "{hit}");
    }
}

#[test]
fn an_address_leads_to_the_hit_on_its_branch() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    let found = addresses(&sandbox, &["fake", "path:all"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("one@") && found[0].ends_with("@2"), "{found:?}");
    let near = sandbox.json(&["show", &found[0], "--around", "1"]);
    assert_eq!(texts(&near["items"]), ["It is the clock", "Use a fake clock", "Done, clock faked"]);
    assert_eq!(
        (&near["more_before"], &near["more_after"], &near["at"]["depth"]),
        (&true.into(), &false.into(), &2.into())
    );
    let whole = sandbox.json(&["show", &found[0]]);
    assert_eq!(texts(&whole["items"]), ["The login test fails", "It is the clock", "Use a fake clock"]);
    assert_eq!(addresses(&sandbox, &["real"]), ["one@2"]);
    assert_eq!(texts(&sandbox.json(&["show", "one@2", "--around", "1"])["items"]).last(), Some(&"Done"));
    let fork = sandbox.json(&["fork", &found[0], "--id", "two"]);
    assert_eq!(fork["from"]["depth"], 2);
}

#[test]
fn people_see_threads_with_their_hits() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    sandbox.thread("two", "Clock work", &["nothing of it here"]);
    let text = sandbox.ok(&["search", "clock"]);
    for words in [
        "Flaky test\nproject",
        "one@2  user  ",
        "Use a real clock",
        "on another branch, 1 item after it left the active path at @1",
        "1 more hit in this thread: add thread:one",
        "  two  the title",
        "4 hits of 5 shown.",
        "--open N",
    ] {
        assert!(text.contains(words), "{words} is missing in:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours without a terminal");
    let coloured = sandbox.command(&["search", "clock"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    let coloured = String::from_utf8(coloured.stdout).unwrap();
    assert!(coloured.contains("\u{1b}[1m\u{1b}[33mclock\u{1b}[0m"), "{coloured:?}");
    let flat = sandbox.ok(&["search", "clock", "--flat"]);
    assert!(flat.lines().filter(|line| line.contains("one@")).count() == 4, "{flat}");
}

#[test]
fn what_is_not_there_is_no_failure() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    assert_eq!(sandbox.ok(&["search", "nonsense"]), "Nothing found.\n");
    assert_eq!(sandbox.json(&["search", "nonsense"])["hits"], Value::Array(vec![]));
    assert_eq!(sandbox.code(&["search", "clock", "--open", "9"]), 3);
    assert_eq!(sandbox.code(&["search", "clock", "--open", "0"]), 3);
    assert_eq!(sandbox.code(&["search"]), 2);
    assert_eq!(sandbox.code(&["search", "clock", "--cursor", "nonsense"]), 2);
    assert_eq!(sandbox.code(&["search", "clock", "--max-wait", "soon"]), 2);
    assert_eq!(sandbox.code(&["search", "clock", "-w", "/nowhere"]), 3);
    let nowhere = Sandbox::new();
    assert_eq!(nowhere.code(&["search", "clock"]), 3);
}

#[test]
fn any_words_can_be_asked_for() {
    let sandbox = Sandbox::new();
    let texts = ["git commit --no-verify -m x", "run --open now", "日本語の検索", "don't parse_config(src/main.rs:42)"];
    sandbox.thread("one", "T", &texts);
    for (words, found) in [
        (&["--no-verify"][..], &["one@0"][..]),
        (&["commit", "-verify"], &[]),
        (&["commit", "-other"], &["one@0"]),
        (&["--", "--open"], &["one@1"]),
        (&["--", "--open", "-now"], &[]),
        (&["日本"], &["one@2"]),
        (&["parse_config"], &["one@3"]),
        (&["src/main.rs:42"], &["one@3"]),
        (&["don't"], &["one@3"]),
        (&["\"parse config\""], &["one@3"]),
        (&["pars*"], &["one@3"]),
        (&["commit OR 検索"], &["one@0", "one@2"]),
        (&["role:assistant"], &["one@1", "one@3"]),
    ] {
        let mut addresses = addresses(&sandbox, words);
        addresses.sort();
        assert_eq!(addresses, found, "{words:?}");
    }
    let long = "x".repeat(20_000);
    for words in [
        "\"",
        "OR",
        "(",
        "*",
        "-",
        "after:never",
        "role:",
        "\u{0}".trim_matches('\0'),
        "' OR 1=1 --",
        "a AND NEAR(b)",
        &long,
    ] {
        let output = sandbox.run(&["search", "--json", "--", words]);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    }
}

#[test]
fn what_was_not_understood_is_told_beside_the_answer() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    let output = sandbox.run(&["search", "clock", "after:never"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && told.starts_with("not understood: "), "{told}");
    let page = sandbox.json(&["search", "clock", "after:never"]);
    assert_eq!(page["not_understood"].as_array().unwrap().len(), 1);
}

#[test]
fn a_hit_opens_in_its_context() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    let text = sandbox.ok(&["search", "fake", "path:all", "--open", "--context", "1"]);
    let around = format!("Around {}.", shown_address(&sandbox));
    for words in [&around, "@2◀", "It is the clock", "Done, clock faked", "More before"] {
        assert!(text.contains(words), "{words} is missing in:\n{text}");
    }
    assert!(!text.contains("real") && !text.contains("The login test"), "{text}");
    let opened = sandbox.json(&["search", "fake", "path:all", "--open=1"]);
    keys(&opened, &["thread", "at", "items", "more_before", "more_after", "hit"]);
    assert_eq!(texts(&opened["items"]).len(), 4);
    let titled = sandbox.json(&["search", "flaky", "--open", "1", "--context", "1"]);
    assert_eq!(titled["hit"]["item"], Value::Null);
    assert_eq!(texts(&titled["items"]), ["Use a real clock", "Done"], "a title opens at the thread's end");
}

/// The address of the hit beside the active path, as people see it.
fn shown_address(sandbox: &Sandbox) -> String {
    let text = sandbox.ok(&["search", "fake", "path:all"]);
    let line = text.lines().find(|line| line.contains("one@")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn pages_make_the_whole() {
    let sandbox = Sandbox::new();
    for number in 0..7 {
        sandbox.thread(&format!("thread-{number}"), "T", &["a needle", "b needle"]);
    }
    for (arguments, whole) in [(&["needle"][..], 14), (&["needle", "--flat"], 14)] {
        let mut found = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut arguments = [&["search"], arguments, &["--limit", "3"]].concat();
            if let Some(cursor) = &cursor {
                arguments.extend(["--cursor", cursor]);
            }
            let page = sandbox.json(&arguments);
            found.extend(page["hits"].as_array().unwrap().iter().map(|hit| hit["address"].to_string()));
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), whole, "{arguments:?}");
    }
}

#[test]
fn the_trash_and_projects_are_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "T", &["needle"]);
    sandbox.thread("two", "T", &["needle"]);
    sandbox.ok(&["delete", "one"]);
    assert_eq!(addresses(&sandbox, &["needle"]), ["two@0"]);
    assert_eq!(addresses(&sandbox, &["needle", "--trashed"]).len(), 2);
    assert!(sandbox.ok(&["search", "needle", "--trashed"]).contains("in the trash"));
    assert_eq!(addresses(&sandbox, &["needle", "-w", "."]), ["two@0"]);
    assert_eq!(addresses(&sandbox, &["needle", "--all"]), ["two@0"]);
}

#[test]
fn the_words_of_agents_are_read_and_not_their_bytes() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["import", samples().to_str().unwrap()]);
    let found = sandbox.json(&["search", "agent:codex", "npm", "kind:tool_call"]);
    let hits = found["hits"].as_array().unwrap();
    assert!(!hits.is_empty());
    for hit in hits {
        let snippet = hit["snippet"].as_str().unwrap();
        assert!(!snippet.contains("\"type\"") && hit["agent"] == "codex", "{hit}");
    }
    assert!(sandbox.json(&["search", "response_item"])["hits"].as_array().unwrap().is_empty());
}

#[test]
fn hostile_words_steer_nothing() {
    let sandbox = Sandbox::new();
    let hostile = "needle \u{1b}[31mred\u{7}\u{9b}2J\r\u{8}\u{202e}reversed\u{7f}";
    sandbox.thread("one", hostile, &[hostile, "needle 日本語"]);
    for arguments in [
        &["search", "needle"][..],
        &["search", "needle", "--flat"],
        &["search", "needle", "--open"],
        &["show", "one", "--find", "NEEDLE"],
        &["show", "one@0", "--around", "3"],
    ] {
        let output = sandbox.ok(arguments);
        let steering = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!output.contains(steering) && output.contains("needle"), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_text_is_found_at_every_place_in_a_thread() {
    let sandbox = Sandbox::new();
    branched(&sandbox);
    sandbox.thread("two", "Lines", &["first\nThe Clock: CLOCK\n\nlast clock", "x"]);
    let found = sandbox.json(&["show", "one", "--find", "CLOCK"]);
    assert_eq!(found["thread"]["id"], "one");
    let places = found["places"].as_array().unwrap();
    let actives: Vec<_> = places.iter().map(|place| place["active"].as_bool().unwrap()).collect();
    assert_eq!(actives, [true, true, false, false], "the active path comes first");
    for place in places {
        keys(place, &["address", "item", "branch", "depth", "kind", "role", "created_at", "line"]);
        let address = place["address"].as_str().unwrap();
        let text = sandbox.json(&["show", address, "--around", "0"])["items"][0]["text"].clone();
        let range = |key: &str, text: &str| part(text, &place[key]);
        assert_eq!(range("range", text.as_str().unwrap()), "clock");
        assert_eq!(range("mark", place["line"].as_str().unwrap()), "clock");
    }
    let lines = sandbox.json(&["show", "two", "--find", "clock"])["places"].clone();
    let numbers: Vec<_> =
        lines.as_array().unwrap().iter().map(|place| place["line_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [2, 2, 4]);
    let text = sandbox.ok(&["show", "two", "--find", "clock"]);
    assert!(text.contains("two@0  user") && text.contains("     2: The Clock: CLOCK\n     4: last clock"), "{text}");
    assert!(text.contains("3 places in 1 item."), "{text}");
    assert_eq!(sandbox.json(&["show", "one@1", "--find", "clock"])["places"].as_array().unwrap().len(), 1);
    assert_eq!(sandbox.json(&["show", "one", "--find", "clock", "--from", "3"])["places"].as_array().unwrap().len(), 1);
    assert!(sandbox.ok(&["show", "one", "--find", "nowhere"]).contains("It stands nowhere in it."));
    assert_eq!(sandbox.json(&["show", "one", "--find", ""])["places"], Value::Array(vec![]));
    assert_eq!(sandbox.code(&["show", "one", "--find", "x", "--raw"]), 2);
}

#[test]
fn what_was_acknowledged_is_found_at_once() {
    let sandbox = Sandbox::new();
    sandbox.thread("one", "T", &["needle"]);
    assert_eq!(addresses(&sandbox, &["needle"]), ["one@0"]);
    assert!(sandbox.feed(&["append", "one"], "{\"text\":\"another needle\"}\n").status.success());
    assert_eq!(addresses(&sandbox, &["needle", "--max-wait", "0"]).len(), 2, "what the index lacks is read");
}

/// Whoever indexes may be killed at any moment: the next search finds everything, and tells of nothing broken.
#[test]
fn a_killed_indexing_is_gone_on_with() {
    let sandbox = Sandbox::new();
    let items: String = (0..6_000).map(|n| format!("{{\"role\":\"user\",\"text\":\"common word{n}\"}}\n")).collect();
    assert!(sandbox.feed(&["append", "--new", "--id", "a"], &items).status.success());
    for round in 0..24_u64 {
        let mut command = if round % 3 == 0 {
            sandbox.command(&["search", "--reindex"])
        } else {
            sandbox.command(&["search", "common", "--max-wait", "0.3"])
        };
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        // Another moment in each round; whatever it is, what comes after it must hold.
        std::thread::sleep(std::time::Duration::from_millis(round * 9));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for word in ["word0", "word3071", "word5999"] {
        let page = sandbox.json(&["search", word]);
        assert_eq!(page["matches"], 1, "{word}: {page}");
        assert_eq!(page["notices"].as_array().unwrap().len(), 0, "{page}");
    }
    let page = sandbox.json(&["search", "common", "--flat"]);
    assert_eq!((&page["matches"], &page["is_all"]), (&200.into(), &false.into()), "the newest are ranked");
    let checkup = sandbox.json(&["doctor", "--full"]);
    assert_eq!(checkup["findings"].as_array().unwrap().len(), 0, "{checkup}");
}
