//! Any messages, through any writer, come back as they were, but for what was told to be lost.

use proptest::prelude::*;
use serde_json::{Value, json};
use threadkeep::{Kind, Timestamp, Usage};
use threadkeep_agents::codec::Codec;
use threadkeep_agents::conversation::{Author, Block, MediaData, Message, Standing};
use threadkeep_agents::export::codec_for;
use threadkeep_agents::segments::{Segment, Segments};
use threadkeep_agents::writer::Session;

use super::{AGENTS, strict};

/// One thing that is said, so that messages that were split or joined are the same.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Text(Author, Standing, String),
    Media(Author, String, MediaData),
    Call(String, String, Value),
    Result(String, bool, Vec<Self>),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z .]{0,12}[a-z]",
        Just("Process exited with code 1\nOutput:\nx".to_owned()),
        Just(r#"{"output":"a","metadata":{"exit_code":1}}"#.to_owned()),
        Just("<environment> \u{0}\u{2028}\u{1f600}\n\"{".to_owned()),
        Just("No 7\u{7f}é".to_owned()),
    ]
}

fn media() -> impl Strategy<Value = Block> {
    let picture = |data: &str| Block::Media { media_type: "image/png".into(), data: MediaData::Base64(data.into()) };
    prop_oneof![
        Just(picture("aGVsbG8=")),
        Just(Block::Media {
            media_type: "image".into(),
            data: MediaData::Reference("https://example.com/a.png".into())
        }),
    ]
}

fn spoken() -> impl Strategy<Value = Block> {
    prop_oneof![4 => text().prop_map(Block::Text), 1 => media()]
}

/// A turn: a prompt, thoughts, calls with their results in another order, an answer.
pub(super) fn turn() -> impl Strategy<Value = Vec<Message>> {
    let calls =
        prop::collection::vec((text(), any::<bool>(), prop::collection::vec(spoken(), 0..3), any::<bool>()), 0..4);
    let said = (prop::collection::vec(spoken(), 1..4), text(), text(), any::<bool>());
    (said, calls, any::<u32>(), 0..6_u8).prop_map(|((prompt, thought, answer, reversed), calls, seed, extra)| {
        let mut messages = vec![Message::said(Author::Person, prompt)];
        let model = |blocks| Message {
            model: Some("some-model".to_owned()),
            usage: Some(Usage { input: 10, cached: 3, output: 5, reasoning: 0 }),
            created_at: Some(Timestamp(1_767_323_045_678)),
            ..Message::said(Author::Model, blocks)
        };
        messages.push(model(vec![Block::Reasoning { text: thought.clone() }]));
        let mut results = Vec::new();
        for (number, (words, takes_text, content, is_error)) in calls.into_iter().enumerate() {
            let id = format!("call_{seed}_{number}");
            let input = if takes_text { json!(words) } else { json!({"words": words, "n": 1.5}) };
            messages.push(model(vec![
                Block::Text("Look".to_owned()),
                Block::Call { id: id.clone(), name: "mcp__a-b".to_owned(), input },
            ]));
            results.push(Message::said(Author::Tool, vec![Block::Result { id, content, is_error }]));
        }
        if reversed {
            results.reverse();
        }
        messages.append(&mut results);
        messages.push(model(vec![Block::Text(answer)]));
        match extra {
            0 => messages.push(Message::said(Author::System, vec![Block::Text(thought)])),
            1 => messages.push(Message {
                standing: Standing::Summary,
                ..Message::said(Author::System, vec![Block::Text(format!("Summary {thought}"))])
            }),
            2 => messages.push(Message {
                standing: Standing::Injected,
                ..Message::said(Author::Person, vec![Block::Text("<bash-stdout>x".to_owned())])
            }),
            _ => {}
        }
        messages
    })
}

fn said(message: &Message) -> Vec<Said> {
    let is_told = message.author != Author::System || message.standing == Standing::Summary;
    message.blocks.iter().filter(|_| is_told).filter_map(|block| piece(message, block)).collect()
}

fn piece(message: &Message, block: &Block) -> Option<Said> {
    Some(match block {
        Block::Text(text) if text.trim().is_empty() => return None,
        Block::Text(text) => Said::Text(message.author, message.standing, text.clone()),
        Block::Media { media_type, data } => Said::Media(message.author, media_type.clone(), data.clone()),
        Block::Call { id, name, input } => Said::Call(id.clone(), name.clone(), input.clone()),
        Block::Result { id, content, is_error } => {
            let inner = content.iter().filter_map(|block| piece(message, block)).collect();
            Said::Result(id.clone(), *is_error, inner)
        }
        Block::Reasoning { .. } => return None,
    })
}

/// What is lost on the way is what writers say that they lose.
fn as_agent_has_it(agent: &str, said: Said) -> Said {
    match said {
        Said::Call(id, name, input) if agent == "claude-code" && !input.is_object() => {
            Said::Call(id, name, json!({"input": input}))
        }
        Said::Result(id, _, inner) if agent == "codex" => Said::Result(id, false, inner),
        Said::Text(author, Standing::Injected, text) if agent == "codex" => Said::Text(author, Standing::Said, text),
        other => other,
    }
}

pub(super) fn written(codec: &dyn Codec, messages: &[Message]) -> Vec<u8> {
    let session = Session::new("019ce0bb-1111-7222-8333-444455556666", Timestamp(1_767_323_045_000));
    let mut writer = codec.writer(&session).unwrap();
    let mut out = Vec::new();
    writer.begin(&mut out);
    for message in messages {
        writer.message(message, &mut out);
        assert!(out.is_empty() || out.ends_with(b"\n") || out.ends_with(b"}"), "whole lines, or elements");
    }
    writer.finish(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_back(turns in prop::collection::vec(turn(), 0..5)) {
        let mut messages = turns.concat();
        // Ids are of their turn alone.
        let mut seen = std::collections::HashSet::new();
        messages.retain(|message| message.blocks.iter().all(|block| match block {
            Block::Call { id, .. } => seen.insert(id.clone()),
            Block::Result { id, .. } => seen.insert(format!("result {id}")),
            _ => true,
        }));
        for agent in AGENTS {
            let codec = codec_for(agent).unwrap();
            let bytes = written(&*codec, &messages);
            prop_assert_eq!(&bytes, &written(&*codec, &messages));
            if let Err(wrong) = strict::check(agent, &bytes) {
                prop_assert!(false, "{}: {}", agent, wrong);
            }
            let back: Vec<Said> = Segments::new(bytes.as_slice())
                .map(Result::unwrap)
                .filter_map(|segment| match segment {
                    Segment::Record { bytes, .. } => codec.message(&Kind::Message, &bytes),
                    other => panic!("{other:?}"),
                })
                .flat_map(|message| said(&message))
                .map(|said| as_agent_has_it(agent, said))
                .collect();
            let expected: Vec<Said> =
                messages.iter().flat_map(said).map(|said| as_agent_has_it(agent, said)).collect();
            prop_assert_eq!(back, expected, "{}", agent);
        }
    }
}
