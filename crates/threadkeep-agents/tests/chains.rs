//! Sessions written for agents whose lines follow one another, read by readers that are as strict as the agents and know nothing of
//! the codecs, and read back by the codecs.

#![cfg(test)]

#[path = "chains/copilot_cli.rs"]
mod copilot_cli;
#[path = "chains/exports.rs"]
mod exports;
#[path = "chains/pi.rs"]
mod pi;
#[path = "chains/qwen_code.rs"]
mod qwen_code;
#[expect(dead_code, reason = "other tests use more of it")]
#[path = "reading/run.rs"]
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use threadkeep::{Timestamp, Usage};
use threadkeep_agents::codec::Codec;
use threadkeep_agents::codecs;
use threadkeep_agents::conversation::{Author, Block, MediaData, Message, Standing};
use threadkeep_agents::writer::{Session, Written};

const AGENTS: [&str; 3] = ["pi", "qwen-code", "copilot-cli"];
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What a strict reader found, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    /// Words of the person, or in the person's place.
    Words(String),
    /// An answer: its text, and its calls with their arguments.
    Answer(String, Vec<(String, Value)>),
    /// A result: its text, and whether the call failed.
    Result(String, bool),
    Summary(String),
}

fn codec(agent: &str) -> Arc<dyn Codec> {
    codecs().into_iter().find(|codec| codec.agent() == agent).unwrap()
}

/// Reads a file as the agent would, and refuses what it would stumble over.
fn strictly(agent: &str, file: &[u8]) -> Vec<Act> {
    let text = std::str::from_utf8(file).unwrap();
    assert!(
        text.ends_with('\n') && !text.contains(['\u{feff}', '\u{2028}', '\u{2029}', '\r', '\0']),
        "{agent}: {text}"
    );
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    match agent {
        "pi" => pi::read(&lines),
        "qwen-code" => qwen_code::read(&lines),
        _ => copilot_cli::read(&lines),
    }
}

fn session() -> Session {
    Session {
        title: Some("Login: a \"fake\" timer".to_owned()),
        cwd: Some(PathBuf::from("/home/dev/webshop")),
        model: Some("model-x".to_owned()),
        ..Session::new("8d7f3a60-1111-4222-8333-444455556666".to_owned(), Timestamp(1_775_120_400_000))
    }
}

fn written(agent: &str, session: &Session, messages: &[Message]) -> (Vec<u8>, Written) {
    let mut writer = codec(agent).writer(session).unwrap();
    let mut out = Vec::new();
    writer.begin(&mut out);
    for message in messages {
        writer.message(message, &mut out);
    }
    let written = writer.finish(&mut out);
    (out, written)
}

/// What the codec itself reads of a file.
fn read_back(agent: &str, file: &[u8]) -> Vec<Message> {
    let codec = codec(agent);
    let segments = run::segments(file);
    let read = run::read(&codec, Path::new("events.jsonl"), &segments, None);
    assert_eq!(read.branches(), usize::from(!read.placed().is_empty()), "{agent}");
    let placed = read.outcomes.iter().zip(&segments);
    placed
        .filter_map(|(outcome, segment)| match outcome {
            run::Outcome::Placed(_, record) => codec.message(&record.kind, segment.bytes()),
            run::Outcome::Beside(_) => None,
            other => panic!("{agent}: {other:?}"),
        })
        .collect()
}

/// What messages say when all that the writers declare as lost is left out, and when what is said while calls wait comes behind
/// their results.
#[derive(Default)]
struct Expected {
    acts: Vec<Act>,
    /// The calls that wait.
    open: Vec<String>,
    /// Words that wait for them.
    held: Vec<String>,
    /// Whether the last answer can be added to.
    is_answering: bool,
}

fn acts(messages: &[Message]) -> Vec<Act> {
    let mut expected = Expected::default();
    for message in messages {
        expected.message(message);
    }
    expected.release();
    expected.acts
}

impl Expected {
    fn release(&mut self) {
        self.acts.extend(self.held.drain(..).map(Act::Words));
    }

    fn message(&mut self, message: &Message) {
        let text = message.blocks.iter().filter_map(words).collect::<Vec<_>>().join("\n\n");
        match (message.author, message.standing) {
            (_, Standing::Summary) => {
                if !(self.held.is_empty() && text.is_empty()) {
                    self.open.clear();
                }
                self.is_answering = false;
                self.release();
                self.acts.extend((!text.is_empty()).then_some(Act::Summary(text)));
            }
            (Author::System, _) => {}
            (Author::Model, _) => self.answer(message, text),
            _ => self.others(message, text),
        }
    }

    fn answer(&mut self, message: &Message, text: String) {
        if !self.held.is_empty() || !self.is_answering {
            self.open.clear();
            self.release();
        }
        self.is_answering = true;
        let mut calls = Vec::new();
        for block in &message.blocks {
            if let Block::Call { id, name, input } = block {
                self.open.push(id.clone());
                calls.push((plain(name), if input.is_object() { input.clone() } else { json!({"input": input}) }));
            }
        }
        push_answer(&mut self.acts, text, calls);
    }

    fn others(&mut self, message: &Message, text: String) {
        let results: Vec<&Block> =
            message.blocks.iter().filter(|block| matches!(block, Block::Result { .. })).collect();
        self.is_answering &= results.is_empty() && !self.open.is_empty();
        for block in results {
            let Block::Result { id, content, is_error } = block else { continue };
            if self.open.contains(id) {
                self.open.retain(|call| call != id);
                let output = content.iter().filter_map(words).collect::<Vec<_>>().join("\n");
                self.acts.push(Act::Result(output, *is_error));
            }
        }
        // What a result came with stands behind it, and what was held back behind that.
        match (text.is_empty(), self.open.is_empty()) {
            (true, _) => {}
            (false, true) => self.acts.push(Act::Words(text)),
            (false, false) => self.held.push(text),
        }
        if self.open.is_empty() {
            self.release();
        }
    }
}

/// Records of one answer may be one or several, and the texts of an answer may stand before its calls.
fn push_answer(acts: &mut Vec<Act>, text: String, mut calls: Vec<(String, Value)>) {
    if text.is_empty() && calls.is_empty() {
        return;
    }
    match acts.last_mut() {
        Some(Act::Answer(before, made)) => {
            if !text.is_empty() {
                if !before.is_empty() {
                    before.push_str("\n\n");
                }
                before.push_str(&text);
            }
            made.append(&mut calls);
        }
        _ => acts.push(Act::Answer(text, calls)),
    }
}

/// The strict readers see answers one by one.
fn joined(found: Vec<Act>) -> Vec<Act> {
    let mut acts = Vec::new();
    for act in found {
        match act {
            Act::Answer(text, calls) => push_answer(&mut acts, text, calls),
            Act::Result(output, failed) => acts.push(Act::Result(output.replace("\n\n", "\n"), failed)),
            other => acts.push(other),
        }
    }
    acts
}

fn words(block: &Block) -> Option<String> {
    match block {
        Block::Text(text) if text.trim().is_empty() => None,
        Block::Text(text) => Some(text.clone()),
        Block::Media { media_type, data } => Some(Block::named(media_type, data)),
        _ => None,
    }
}

fn plain(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "_-".contains(letter) { letter } else { '_' })
        .take(64)
        .collect();
    if clean.is_empty() { "tool".to_owned() } else { clean }
}

fn text() -> impl Strategy<Value = String> {
    select(vec!["Fix it", "你好 ✅", "a\u{2028}b\n\"c\"", "  ", "{\"type\":\"session\"}", "x\ty\\u0000"])
        .prop_map(str::to_owned)
}

fn media() -> impl Strategy<Value = Block> {
    select(vec![
        ("image/png", MediaData::Base64(PNG.to_owned())),
        ("image/png", MediaData::Reference("https://example.com/a.png".to_owned())),
        ("application/pdf", MediaData::Base64("JVBERg==".to_owned())),
        ("image", MediaData::Absent),
    ])
    .prop_map(|(media_type, data)| Block::Media { media_type: media_type.to_owned(), data })
}

fn said() -> impl Strategy<Value = Block> {
    prop_oneof![4 => text().prop_map(Block::Text), 1 => media()]
}

fn id() -> impl Strategy<Value = String> {
    select(vec!["t1", "t2", "t3", "odd id é", ""]).prop_map(str::to_owned)
}

fn of_model() -> impl Strategy<Value = Block> {
    let input = select(vec![json!({"command": "ls"}), json!({}), json!("*** patch"), json!([1])]);
    prop_oneof![
        2 => text().prop_map(Block::Text),
        1 => text().prop_map(|text| Block::Reasoning { text }),
        3 => (id(), select(vec!["bash", "mcp.x y", ""]), input)
            .prop_map(|(id, name, input)| Block::Call { id, name: name.to_owned(), input }),
    ]
}

/// Pictures that can be held stand last: one of the forms puts them behind the words.
fn result() -> impl Strategy<Value = Block> {
    let is_held = |block: &Block| matches!(block, Block::Media { media_type, data: MediaData::Base64(_) } if media_type == "image/png");
    (id(), prop::collection::vec(said(), 0..3), any::<bool>()).prop_map(move |(id, mut content, is_error)| {
        content.sort_by_key(is_held);
        Block::Result { id, content, is_error }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let of =
        |author: Author, standing: Standing, blocks: Vec<Block>| Message { standing, ..Message::said(author, blocks) };
    let response = prop::option::of(select(vec!["r1", "r2"]));
    prop_oneof![
        3 => prop::collection::vec(said(), 0..3).prop_map(move |blocks| of(Author::Person, Standing::Said, blocks)),
        1 => prop::collection::vec(said(), 1..2).prop_map(move |blocks| of(Author::Person, Standing::Injected, blocks)),
        5 => (prop::collection::vec(of_model(), 0..4), response).prop_map(move |(blocks, response)| Message {
            response: response.map(str::to_owned),
            model: Some("model-y".to_owned()),
            usage: Some(Usage { input: 12, cached: 10, output: 5, reasoning: 1 }),
            ..of(Author::Model, Standing::Said, blocks)
        }),
        5 => prop::collection::vec(result(), 1..3).prop_map(move |blocks| of(Author::Tool, Standing::Said, blocks)),
        1 => prop::collection::vec(said(), 1..2).prop_map(move |blocks| of(Author::System, Standing::Summary, blocks)),
        1 => text().prop_map(move |text| of(Author::System, Standing::Said, vec![Block::Text(text)])),
    ]
}

/// What each says, in order: the model its words, its calls, everyone else.
type Voices = (Vec<String>, Vec<(String, Value)>, Vec<String>);

fn said_by_each(acts: &[Act]) -> Voices {
    let mut voices = Voices::default();
    for act in acts {
        match act {
            Act::Answer(text, calls) => {
                voices.0.extend(text.split("\n\n").filter(|text| !text.is_empty()).map(str::to_owned));
                voices.1.extend_from_slice(calls);
            }
            Act::Words(text) | Act::Summary(text) => voices.2.push(text.clone()),
            Act::Result(..) => {}
        }
    }
    voices
}

fn said_in(messages: &[Message]) -> Voices {
    let mut voices = Voices::default();
    for message in messages {
        let texts: Vec<String> = message.blocks.iter().filter_map(words).collect();
        match (message.author, message.standing) {
            (Author::System, standing) if standing != Standing::Summary => {}
            (Author::Model, _) => {
                voices.0.extend(texts);
                voices.1.extend(message.blocks.iter().filter_map(|block| match block {
                    Block::Call { name, input, .. } => {
                        Some((plain(name), if input.is_object() { input.clone() } else { json!({"input": input}) }))
                    }
                    _ => None,
                }));
            }
            _ => voices.2.extend((!texts.is_empty()).then(|| texts.join("\n\n"))),
        }
    }
    voices
}

/// How many results answer a call that waits for them at least: until a summary, and until the model answers the person's next words.
fn answered(messages: &[Message]) -> usize {
    let (mut open, mut is_asked, mut count) = (Vec::new(), false, 0);
    for message in messages {
        let says = message.blocks.iter().any(|block| words(block).is_some() || matches!(block, Block::Call { .. }));
        if message.standing == Standing::Summary || (message.author == Author::Model && says && is_asked) {
            open.clear();
        }
        for block in &message.blocks {
            match block {
                Block::Call { id, .. } => open.push(id),
                Block::Result { id, .. } if open.contains(&id) => {
                    open.retain(|call| *call != id);
                    count += 1;
                }
                _ => {}
            }
        }
        is_asked |= message.author == Author::Person && message.standing == Standing::Said && says;
        is_asked &= !open.is_empty();
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read_back(messages in prop::collection::vec(message(), 0..20)) {
        for agent in AGENTS {
            let (file, done) = written(agent, &session(), &messages);
            let (again, _) = written(agent, &session(), &messages);
            prop_assert_eq!(&file, &again, "{}: twice the same", agent);
            let found = joined(strictly(agent, &file));
            prop_assert_eq!(joined(acts(&read_back(agent, &file))), found.clone(), "{}, by its codec", agent);
            prop_assert_eq!(said_by_each(&found), said_in(&messages), "{}", agent);
            // What is not there is declared.
            let lost = |what: &str| done.losses.iter().filter(|loss| loss.what.contains(what)).map(|loss| loss.count).sum::<u64>();
            let blocks = || messages.iter().flat_map(|message| &message.blocks);
            let thoughts = messages.iter().filter(|message| message.author == Author::Model).flat_map(|message| &message.blocks)
                .filter(|block| matches!(block, Block::Reasoning { .. })).count();
            prop_assert_eq!(lost("thoughts"), thoughts as u64);
            let instructions = messages.iter().filter(|message| message.author == Author::System && message.standing == Standing::Said).count();
            prop_assert_eq!(lost("instructions"), instructions as u64);
            let results = blocks().filter(|block| matches!(block, Block::Result { .. })).count();
            let kept = found.iter().filter(|act| matches!(act, Act::Result(..))).count();
            prop_assert_eq!(lost("results of calls"), (results - kept) as u64);
            prop_assert!(kept >= answered(&messages), "{}: {} results of {}", agent, kept, answered(&messages));
        }
    }
}

/// What the forms can hold beside words comes back as it was.
#[test]
fn pictures_models_tokens_and_times_come_back() {
    let usage = Usage { input: 1200, cached: 1000, output: 40, reasoning: 10 };
    let picture = Block::Media { media_type: "image/png".to_owned(), data: MediaData::Base64(PNG.to_owned()) };
    let messages = vec![
        Message {
            created_at: Some(Timestamp(1_775_120_401_000)),
            ..Message::said(Author::Person, vec![picture.clone()])
        },
        Message {
            created_at: Some(Timestamp(1_775_120_402_000)),
            model: Some("model-y".to_owned()),
            usage: Some(usage),
            ..Message::said(
                Author::Model,
                vec![Block::Call { id: "t1".to_owned(), name: "shot".to_owned(), input: json!({"a": [1]}) }],
            )
        },
        Message::said(
            Author::Tool,
            vec![Block::Result { id: "t1".to_owned(), content: vec![picture.clone()], is_error: false }],
        ),
    ];
    for agent in AGENTS {
        let (file, done) = written(agent, &session(), &messages);
        let back = read_back(agent, &file);
        assert_eq!(back[0].created_at, messages[0].created_at, "{agent}");
        assert_eq!(
            (back[1].created_at, back[1].model.as_deref()),
            (messages[1].created_at, Some("model-y")),
            "{agent}"
        );
        assert_eq!(back[1].blocks, messages[1].blocks, "{agent}");
        if agent == "copilot-cli" {
            // It has no place for either, and says so.
            assert!(done.losses.iter().any(|loss| loss.what.contains("pictures") && loss.count == 2));
            assert!(done.losses.iter().any(|loss| loss.what.contains("tokens")));
            continue;
        }
        assert_eq!(back[0].blocks, messages[0].blocks, "{agent}");
        assert_eq!(back[2].blocks, messages[2].blocks, "{agent}");
        let reasoning = if agent == "pi" { 0 } else { 10 };
        assert_eq!(back[1].usage, Some(Usage { reasoning, ..usage }), "{agent}");
    }
}

/// Qwen Code takes an id that is no UUID of the first five versions for a title, and finds nothing.
#[test]
fn ids_that_an_agent_does_not_know_are_made_anew() {
    let session = Session { id: "019f7a60-1111-7222-8333-444455556666".to_owned(), ..session() };
    let codec = codec("qwen-code");
    let place = codec.place(&session).unwrap();
    let name = place.file_stem().unwrap().to_str().unwrap();
    assert_eq!(name.as_bytes()[14], b'4', "{name}");
    assert_eq!(codec.resuming(&session).unwrap().arguments, ["--resume", name]);
    let prompt = Message::said(Author::Person, vec![Block::Text("Fix it".to_owned())]);
    let (file, _) = written("qwen-code", &session, &[prompt]);
    assert!(String::from_utf8(file).unwrap().contains(&format!("\"sessionId\":\"{name}\"")));
}

/// The agents find a session by where its file lies, and by what is said of it.
#[test]
fn sessions_have_a_place_a_title_and_a_way_to_go_on() {
    let expected = [
        (
            "pi",
            "sessions/--home-dev-webshop--/2026-04-02T09-00-00-000Z_8d7f3a60-1111-4222-8333-444455556666.jsonl",
            "pi --session 8d7f3a60-1111-4222-8333-444455556666",
        ),
        (
            "qwen-code",
            "projects/-home-dev-webshop/chats/8d7f3a60-1111-4222-8333-444455556666.jsonl",
            "qwen --resume 8d7f3a60-1111-4222-8333-444455556666",
        ),
        (
            "copilot-cli",
            "session-state/8d7f3a60-1111-4222-8333-444455556666/events.jsonl",
            "copilot --resume=8d7f3a60-1111-4222-8333-444455556666",
        ),
    ];
    let prompt = Message::said(Author::Person, vec![Block::Text("Fix it".to_owned())]);
    for (agent, place, command) in expected {
        let codec = codec(agent);
        assert_eq!(codec.place(&session()).unwrap(), Path::new(place));
        let resuming = codec.resuming(&session()).unwrap();
        assert_eq!(format!("{} {}", resuming.program, resuming.arguments.join(" ")), command);
        let (file, done) = written(agent, &session(), std::slice::from_ref(&prompt));
        let run = run::read(&codec, Path::new(place), &run::segments(&file), None);
        let mut facts = run.facts;
        for companion in &done.companions {
            assert_eq!(codec.beside(Path::new(place)), std::slice::from_ref(&companion.path));
            codec.aside(Path::new(place), &companion.path, &companion.bytes).unwrap().tell(&mut facts);
        }
        assert_eq!(facts.title.as_deref(), Some("Login: a \"fake\" timer"), "{agent}");
        assert_eq!(facts.cwd.as_deref(), Some(Path::new("/home/dev/webshop")), "{agent}");
        assert_eq!(facts.session_id.as_deref(), Some("8d7f3a60-1111-4222-8333-444455556666"), "{agent}");
        assert_eq!(facts.preview.as_deref(), Some("Fix it"), "{agent}");
    }
}
