//! Texts and records that are made to break lines, chains and readers.

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{Kind, NewItem, NewThread, Part, Role, ThreadId, View};

use super::{AGENTS, export, imported, store, strict};

fn thread(items: Vec<NewItem>) -> (Store, ThreadId) {
    let store = store();
    let id = ThreadId::new("hostile").unwrap();
    let new = NewThread { id: Some(id.clone()), ..NewThread::default() };
    let live = store.workspace(Path::new("/")).unwrap().create_now(new).unwrap();
    live.append(items).unwrap();
    live.shutdown().unwrap();
    (store, id)
}

fn call(id: &str, name: &str, arguments: &str) -> NewItem {
    NewItem::tool_call(id, name, arguments)
}

#[test]
fn odd_texts_stay_on_their_line() {
    let odd = [
        "\0",
        "\u{2028}a\u{2029}b\u{85}c",
        "\u{ffff}\u{feff}",
        "\r\n\r",
        "\u{202e}",
        "{\"type\":\"user\"}\n{}",
        " \n\t",
    ];
    let items = odd.iter().flat_map(|text| {
        [
            NewItem::message(Role::User, *text),
            NewItem::message(Role::Assistant, *text),
            NewItem::message(Role::System, *text),
        ]
    });
    let (store, id) = thread(items.collect());
    for agent in AGENTS {
        let (bytes, exported) = export(&store, &id, None, agent);
        strict::check(agent, &bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains(['\u{2028}', '\u{2029}', '\u{85}', '\0', '\r']));
        assert_eq!(exported.messages, 21);
        assert!(exported.losses.iter().any(|loss| loss.count == 4 && loss.what.contains("space")), "{exported:?}");
    }
}

#[test]
fn calls_that_are_no_pairs_do_no_harm() {
    let items = vec![
        NewItem::tool_result("never", "x", false),
        call("twice", "a.b c", "{}"),
        NewItem::tool_result("twice", "1", true),
        NewItem::tool_result("twice", "2", false),
        call("twice", "ü", "[1]"),
        NewItem::message(Role::User, "meanwhile"),
        NewItem::tool_result("twice", "3", false),
        call("", "", "no json \u{0}"),
        NewItem::tool_result("", "4", false),
        call(&"long".repeat(100), "x", "\"text\""),
        NewItem::message(Role::Assistant, "and on"),
    ];
    let (store, id) = thread(items);
    for agent in AGENTS {
        let (bytes, exported) = export(&store, &id, None, agent);
        strict::check(agent, &bytes).unwrap_or_else(|wrong| panic!("{agent}: {wrong}"));
        let lost =
            |what: &str| exported.losses.iter().find(|loss| loss.what.contains(what)).map_or(0, |loss| loss.count);
        assert_eq!(lost("results of calls that are not"), 2, "{exported:?}");
        assert_eq!(lost("calls without a result"), 1, "{exported:?}");
        assert!(lost("names of tools") >= 3 && lost("ids of calls") >= 3, "{exported:?}");
    }
}

#[test]
fn a_huge_text_and_deep_arguments_are_written() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let deeper = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let items = vec![
        NewItem::message(Role::User, "x".repeat(64 << 20)),
        call("a", "deep", &deep),
        NewItem::tool_result("a", deep.as_str(), false),
        call("b", "deeper", &deeper),
        NewItem::tool_result("b", deeper.as_str(), false),
    ];
    let (store, id) = thread(items);
    for agent in AGENTS {
        let (bytes, _) = export(&store, &id, None, agent);
        assert!(bytes.len() > 64 << 20);
        strict::check(agent, &bytes).unwrap();
    }
}

#[test]
fn pictures_that_a_host_refuses_are_named() {
    let media = |media_type: &str| Part::Media { media_type: media_type.to_owned(), bytes: 5 };
    let parts = vec![Part::Text { text: "Look".to_owned() }, media("image/png"), media("application/pdf")];
    let view = View { role: Some(Role::User), parts, ..View::default() };
    let (store, id) = thread(vec![NewItem::from_view(Kind::Message, &view)]);
    for agent in AGENTS {
        let (bytes, exported) = export(&store, &id, None, agent);
        strict::check(agent, &bytes).unwrap();
        assert!(String::from_utf8(bytes).unwrap().contains("[application/pdf]"));
        assert_eq!(exported.losses.iter().map(|loss| loss.count).sum::<u64>(), 2);
    }
}

#[test]
fn characters_that_no_text_can_have_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0f6a2c1e-93b7-4d58-8a41-6b1d2e3f4a5c.jsonl");
    let line = |uuid: &str, parent: &str, text: &str| {
        format!(
            r#"{{"type":"user","isSidechain":false,"uuid":"{uuid}","parentUuid":{parent},"sessionId":"0f6a2c1e-93b7-4d58-8a41-6b1d2e3f4a5c","timestamp":"2026-03-14T09:00:00.000Z","message":{{"role":"user","content":"{text}"}}}}"#
        )
    };
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    bytes.extend(line("u1", "null", "cut \\ud83d here").bytes());
    bytes.push(b'\n');
    bytes.extend(
        line("u2", "\"u1\"", "bad ").bytes().flat_map(|byte| if byte == b' ' { vec![byte, 0xff] } else { vec![byte] }),
    );
    bytes.extend(line("u3", "\"u2\"", "glued \\ud83d\\ude00").bytes());
    bytes.extend(b"\n{\"type\":\"user\",\"uuid\":\"u4\",\"mess");
    std::fs::write(&path, &bytes).unwrap();
    let (store, id) = imported(&path).unwrap();
    let (out, exported) = export(&store, &id, None, "claude-code");
    strict::check("claude-code", &out).unwrap();
    let lines = strict::lines(&out).unwrap();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["message"]["content"], "cut \u{fffd} here");
    assert_eq!(lines[1]["message"]["content"], "bad \u{fffd}");
    assert!(String::from_utf8(out).unwrap().contains("glued \\ud83d\\ude00"), "whole characters stay as they are");
    assert_eq!(exported.losses.iter().map(|loss| loss.count).sum::<u64>(), 2, "{exported:?}");
}
