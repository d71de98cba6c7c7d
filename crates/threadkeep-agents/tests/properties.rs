//! What must hold for any file, found by trying many.

#![cfg(test)]

#[path = "reading/run.rs"]
#[expect(dead_code, reason = "what other tests read files with")]
mod run;

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use threadkeep_agents::claude_code::ClaudeCode;
use threadkeep_agents::codec::Codec;
use threadkeep_agents::codecs;
use threadkeep_agents::segments::{Position, Segment, Segments};

/// Pieces that files are made of, good and bad.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        br#"{"a":1}"#,
        br#"{"type":"user","message":{"content":"x"}}"#,
        br#"{"lone":"\ud83d"}"#,
        b"{\"bad\":\"\xff\xfe\"}",
        b"{}",
        br#"{"a":"tor"#,
        br#"{"a":{"b":1},"#,
        b"\n",
        b"\r\n",
        b"\n\n",
        b" ",
        b"\xef\xbb\xbf",
        b"\0\0\0",
        b"garbage",
        b"[1,2]",
        b"17",
        b"\xff",
        br#""text""#,
    ];
    select(pieces).prop_map(<[u8]>::to_vec)
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn segments_are_the_file(bytes in file()) {
        let segments = run::segments(&bytes);
        prop_assert_eq!(run::joined(&segments), bytes.clone());
        let mut offset = 0;
        for segment in &segments {
            prop_assert_eq!(segment.offset(), offset);
            let before = &bytes[..usize::try_from(offset).unwrap()];
            prop_assert_eq!(segment.line(), 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64);
            let newline = matches!(segment, Segment::Record { newline: true, .. });
            offset += segment.bytes().len() as u64 + u64::from(newline);
            if let Segment::Record { bytes, .. } = segment {
                let whole = bytes.starts_with(b"{") && bytes.ends_with(b"}");
                prop_assert!(whole, "no object: {:?}", bytes);
            }
        }
    }

    #[test]
    fn a_grown_file_is_read_on_where_reading_stopped(bytes in file(), cut in any::<Index>()) {
        let cut = cut.index(bytes.len() + 1);
        let mut first = Segments::new(&bytes[..cut]);
        let mut joined = Vec::new();
        for segment in first.by_ref() {
            let segment = segment.unwrap();
            if !matches!(segment, Segment::Tail { .. }) {
                segment.write_to(&mut joined).unwrap();
            }
        }
        let position = first.position();
        prop_assert_eq!(position.offset, joined.len() as u64);
        for segment in Segments::starting_at(&bytes[joined.len()..], position) {
            segment.unwrap().write_to(&mut joined).unwrap();
        }
        prop_assert_eq!(joined, bytes);
    }

    #[test]
    fn lines_over_the_bound_are_handed_out_in_parts(bytes in file(), bound in 1usize..20) {
        let segments: Vec<Segment> = Segments::new(&bytes[..]).with_max_line(bound).map(Result::unwrap).collect();
        prop_assert_eq!(run::joined(&segments), bytes);
        for segment in segments {
            if let Segment::Record { bytes, .. } = segment {
                prop_assert!(bytes.len() <= bound);
            }
        }
    }

    #[test]
    fn any_bytes_have_a_view(bytes in prop::collection::vec(piece(), 0..4).prop_map(|pieces| pieces.concat())) {
        for codec in codecs() {
            codec.view(&threadkeep::Kind::Message, &bytes);
            codec.message(&threadkeep::Kind::Message, &bytes);
        }
    }
}

#[test]
fn nesting_costs_no_stack() {
    let deep = format!(
        "{{\"type\":\"user\",\"uuid\":\"u\",\"sessionId\":\"s\",\"message\":{{\"content\":{}{}}}}}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let segments = run::segments(deep.as_bytes());
    assert_eq!(run::joined(&segments), deep.as_bytes());
    for codec in codecs() {
        run::read(&codec, Path::new("x.jsonl"), &segments, None);
        // What Aider keeps is text, which may be anything.
        let is_damaged = codec.view(&threadkeep::Kind::Message, segments[0].bytes()).damaged;
        assert_eq!(is_damaged, codec.agent() != "aider", "{}", codec.agent());
    }
    let open = "{\"a\":".repeat(100_000);
    assert!(matches!(&run::segments(open.as_bytes())[..], [Segment::Tail { .. }]));
}

#[test]
fn reading_on_counts_lines() {
    let position = Position { offset: 100, line: 7 };
    let segments: Vec<Segment> = Segments::starting_at(&b"{}\n{}\n"[..], position).map(Result::unwrap).collect();
    assert_eq!((segments[1].offset(), segments[1].line()), (103, 8));
}

/// One step of an agent at work.
#[derive(Debug, Clone)]
enum Step {
    /// A person says something, after the last record or (gone back) after the end of an earlier turn or in its midst.
    Prompt(Option<Index>),
    /// The model answers with calls, and their results come in some order.
    Work {
        calls: usize,
        order: Vec<Index>,
        linked: bool,
        progress: bool,
    },
    /// The model answers in words.
    Answer,
    /// A sub-agent works inline, in between.
    Sidechain,
    Compaction,
    /// A hook, hanging on any earlier record.
    Hook(Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::option::of(any::<Index>()).prop_map(Step::Prompt),
        4 => (1usize..4, prop::collection::vec(any::<Index>(), 3), any::<bool>(), any::<bool>())
            .prop_map(|(calls, order, linked, progress)| Step::Work { calls, order, linked, progress }),
        3 => Just(Step::Answer),
        1 => Just(Step::Sidechain),
        1 => Just(Step::Compaction),
        1 => any::<Index>().prop_map(Step::Hook),
    ]
}

/// A file as the agent would write it.
#[derive(Default)]
struct Written {
    lines: Vec<String>,
    ids: Vec<String>,
    /// The agent's own leaf.
    leaf: Option<String>,
    messages: usize,
}

impl Written {
    /// Writes a line below `parent` and gives its id.
    fn push(&mut self, mut line: Value, parent: Option<&str>, sidechain: bool) -> String {
        let id = format!("u{}", self.lines.len());
        line["uuid"] = json!(id);
        line["parentUuid"] = json!(parent);
        line["sessionId"] = json!("s");
        line["isSidechain"] = json!(sidechain);
        self.lines.push(line.to_string());
        if !sidechain {
            self.ids.push(id.clone());
        }
        id
    }

    /// Writes a line that the agent would resume from.
    fn lead(&mut self, line: Value, parent: Option<&str>) {
        self.leaf = Some(self.push(line, parent, false));
    }

    fn say(&self, block: &Value) -> Value {
        let id = format!("m{}", self.messages);
        json!({"type": "assistant", "message": {"id": id, "role": "assistant", "content": [block]}})
    }

    fn work(&mut self, calls: usize, order: &[Index], linked: bool, progress: bool) {
        self.messages += 1;
        let mut made = Vec::new();
        for call in 0..calls {
            let tool = format!("t{}-{call}", self.messages);
            let call = json!({"type": "tool_use", "id": tool, "name": "Bash", "input": {}});
            let parent = self.leaf.clone();
            self.lead(self.say(&call), parent.as_deref());
            made.push((tool, self.leaf.clone()));
        }
        for pick in order.iter().take(calls) {
            let (tool, id) = made.remove(pick.index(made.len()));
            if progress {
                self.push(hook(), id.as_deref(), false);
            }
            let parent = if linked { id } else { self.leaf.clone() };
            let block = json!({"type": "tool_result", "tool_use_id": tool, "content": "ok"});
            let line = json!({"type": "user", "message": {"role": "user", "content": [block]}});
            self.lead(line, parent.as_deref());
        }
    }

    fn take(&mut self, step: &Step) {
        let leaf = self.leaf.clone();
        let leaf = leaf.as_deref();
        match step {
            Step::Prompt(back) => {
                let back = back.filter(|_| !self.ids.is_empty());
                let older = back.map(|back| back.get(&self.ids).clone());
                self.lead(prompt(), older.as_deref().or(leaf));
            }
            Step::Work { calls, order, linked, progress } => {
                self.work(*calls, order, *linked, *progress);
            }
            Step::Answer => {
                self.messages += 1;
                self.lead(self.say(&json!({"type": "text", "text": "done"})), leaf);
            }
            Step::Sidechain => {
                self.messages += 1;
                let root = self.push(prompt(), None, true);
                let found = self.say(&json!({"type": "text", "text": "found"}));
                self.push(found, Some(&root), true);
            }
            Step::Compaction => {
                let boundary = json!({
                    "type": "system", "subtype": "compact_boundary", "logicalParentUuid": leaf,
                });
                self.lead(boundary, None);
            }
            Step::Hook(on) if !self.ids.is_empty() => {
                let on = on.get(&self.ids).clone();
                self.push(hook(), Some(&on), false);
            }
            Step::Hook(_) => {}
        }
    }
}

fn prompt() -> Value {
    json!({"type": "user", "message": {"role": "user", "content": "do it"}})
}

fn hook() -> Value {
    json!({"type": "progress", "data": {"type": "hook_progress"}})
}

fn claude() -> Arc<dyn Codec> {
    Arc::new(ClaudeCode)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_path_holds_the_results_of_its_calls(steps in prop::collection::vec(step(), 0..25), cut in any::<Index>()) {
        let mut written = Written::default();
        for step in &steps {
            written.take(step);
        }
        let text = written.lines.join("\n");
        let segments = run::segments(text.as_bytes());
        let path = Path::new("s.jsonl");
        let whole = run::read(&claude(), path, &segments, None);
        run::check_results(&claude(), &whole, &segments, &text);
        let parts = run::read(&claude(), path, &segments, Some(cut.index(segments.len() + 1)));
        prop_assert_eq!(&parts, &whole);
        // Nobody went back: there is one line for the session and one for each sub-agent.
        let back = steps.iter().any(|step| matches!(step, Step::Prompt(Some(_))));
        if !back {
            let sides = steps.iter().filter(|step| matches!(step, Step::Sidechain)).count();
            let main = usize::from(written.lines.len() > 2 * sides);
            prop_assert_eq!(whole.branches(), sides + main);
        }
    }

    #[test]
    fn any_links_can_be_read(
        lines in prop::collection::vec((0usize..6, 0usize..25, 0usize..25, any::<bool>()), 0..30),
        step in 0usize..4,
    ) {
        let line = |(kind, id, parent, sidechain): &(usize, usize, usize, bool)| {
            let block = match kind {
                0 => json!({"type": "tool_use", "id": format!("t{}", id % 4), "name": "x", "input": {}}),
                1 => json!({"type": "tool_result", "tool_use_id": format!("t{}", parent % 4), "content": "x"}),
                _ => json!({"type": "text", "text": "x"}),
            };
            let kind = ["assistant", "user", "user", "assistant", "progress", "system"][*kind];
            json!({
                "type": kind, "uuid": format!("u{id}"), "sessionId": "s", "isSidechain": sidechain,
                "parentUuid": if *parent < 20 { json!(format!("u{parent}")) } else { json!(null) },
                "message": {"id": format!("m{}", id % 3), "content": [block]},
                "logicalParentUuid": format!("u{parent}"),
                "subtype": if *parent % 2 == 0 { "compact_boundary" } else { "other" },
            }).to_string()
        };
        let text: Vec<String> = lines.iter().map(line).collect();
        let text = text.join("\n");
        let segments = run::segments(text.as_bytes());
        let path = Path::new("s.jsonl");
        let whole = run::read(&claude(), path, &segments, None);
        prop_assert_eq!(whole.placed().len(), lines.len());
        prop_assert!(whole.head.is_none_or(|head| (head as usize) < lines.len()));
        run::check_splits(&claude(), path, &segments, 1 + step);
    }

    /// In a chain nothing but going back makes a branch, whatever the agents' programs note in between; and every link can be read.
    #[test]
    fn chains_can_be_read(
        steps in prop::collection::vec((0usize..6, prop::option::of(any::<Index>())), 1..30),
        broken in prop::collection::vec((any::<Index>(), 0usize..40), 0..4),
        step in 0usize..4,
    ) {
        for (agent, write) in [("pi", pi as fn(&Chained) -> Value), ("qwen-code", qwen)] {
            let codec = codecs().into_iter().find(|codec| codec.agent() == agent).unwrap();
            let mut lines = Vec::new();
            let mut went_back = false;
            for (number, (kind, back)) in steps.iter().enumerate() {
                let back = back.filter(|_| number > 0 && kind % 3 == 0).map(|back| back.index(number));
                went_back |= back.is_some();
                let after = back.or(number.checked_sub(1));
                lines.push(Chained { number, kind: *kind, after });
            }
            let text = |lines: &[Chained]| lines.iter().map(|line| format!("{}\n", write(line))).collect::<String>();
            let path = Path::new("s.jsonl");
            let straight = text(&lines);
            let segments = run::segments(straight.as_bytes());
            let whole = run::read(&codec, path, &segments, None);
            prop_assert_eq!(whole.placed().len(), lines.len());
            prop_assert!(went_back || whole.branches() == 1);
            run::check_results(&codec, &whole, &segments, &straight);
            // Links to nowhere, to later records and in circles.
            for (at, link) in &broken {
                let at = at.index(lines.len());
                lines[at].after = Some(*link);
            }
            let text = text(&lines);
            let segments = run::segments(text.as_bytes());
            prop_assert_eq!(run::read(&codec, path, &segments, None).placed().len(), lines.len());
            run::check_splits(&codec, path, &segments, 1 + step);
        }
    }
}

/// A record that names the one before it.
struct Chained {
    number: usize,
    kind: usize,
    after: Option<usize>,
}

fn pi(line: &Chained) -> Value {
    let number = line.number;
    let message = match line.kind {
        0 | 3 => json!({"role": "user", "content": "do it"}),
        1 => {
            json!({"role": "assistant", "content": [{"type": "toolCall", "id": format!("t{number}"), "name": "x", "arguments": {}}]})
        }
        2 => json!({"role": "toolResult", "toolCallId": format!("t{}", number.saturating_sub(1)), "content": "ok"}),
        _ => Value::Null,
    };
    let kind = ["message", "message", "message", "message", "label", "compaction"][line.kind];
    let parent = line.after.map(|after| format!("e{after}"));
    json!({"type": kind, "id": format!("e{number}"), "parentId": parent, "message": message, "summary": "short"})
}

fn qwen(line: &Chained) -> Value {
    let number = line.number;
    let part = match line.kind {
        1 => json!({"functionCall": {"id": format!("t{number}"), "name": "x", "args": {}}}),
        2 => {
            json!({"functionResponse": {"id": format!("t{}", number.saturating_sub(1)), "response": {"output": "ok"}}})
        }
        _ => json!({"text": "do it"}),
    };
    let kind = ["user", "assistant", "tool_result", "user", "system", "system"][line.kind];
    let subtype = ["", "", "", "", "ui_telemetry", "chat_compression"][line.kind];
    let parent = line.after.map(|after| format!("e{after}"));
    json!({
        "uuid": format!("e{number}"), "parentUuid": parent, "sessionId": "s", "type": kind, "subtype": subtype,
        "message": {"parts": [part]}, "systemPayload": {"compressedHistory": [{"parts": [{"text": "short"}]}]},
    })
}
