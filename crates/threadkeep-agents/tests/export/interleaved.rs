//! What is said while calls wait for their results: every word and every result goes to every agent.

use proptest::prelude::*;
use serde_json::json;
use threadkeep::{ItemQuery, ListQuery, Timestamp};
use threadkeep_agents::conversation::{Author, Block, Message, Standing};
use threadkeep_agents::export::codec_for;
use threadkeep_agents::writer::Session;

use super::import;

const AGENTS: [(&str, &str); 9] = [
    ("claude-code", ""),
    ("codex", ""),
    ("copilot-cli", ""),
    ("pi", ""),
    ("qwen-code", ""),
    ("cline", ""),
    ("gemini-cli", ""),
    ("opencode", "opencode-x.json"),
    ("goose", "goose-x.json"),
];

/// What may happen in a turn.
#[derive(Debug, Clone, Copy)]
enum Step {
    Words,
    Thought,
    Call,
    CallAndWords,
    /// Of the calls that wait, this one modulo their number.
    Result(usize),
    Injected,
    Prompt,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Words),
        1 => Just(Step::Thought),
        4 => Just(Step::Call),
        1 => Just(Step::CallAndWords),
        4 => (0..4_usize).prop_map(Step::Result),
        1 => Just(Step::Injected),
        1 => Just(Step::Prompt),
    ]
}

/// The messages of turns; each word is said once. The model says nothing behind a prompt before its calls are answered.
fn messages(turns: &[Vec<Step>], is_one_response: bool) -> Vec<Message> {
    let mut said = Vec::new();
    let mut number = 0;
    let mut name = |what: &str| {
        number += 1;
        format!("{what} {number}.")
    };
    for (turn, steps) in turns.iter().enumerate() {
        let response = is_one_response.then(|| format!("response {turn}"));
        let model = |blocks| Message { response: response.clone(), ..Message::said(Author::Model, blocks) };
        let person = |text| Message::said(Author::Person, vec![Block::Text(text)]);
        let mut open: Vec<String> = Vec::new();
        let mut is_asked = false;
        let answer = |id: String, text: String| {
            let content = vec![Block::Text(text)];
            Message::said(Author::Tool, vec![Block::Result { id, content, is_error: false }])
        };
        said.push(person(name("prompt")));
        for step in steps {
            let call = |id: &str| Block::Call { id: id.to_owned(), name: "run".to_owned(), input: json!({"of": id}) };
            is_asked &= !open.is_empty();
            match step {
                Step::Words | Step::Thought | Step::Call | Step::CallAndWords if is_asked => {}
                Step::Words => said.push(model(vec![Block::Text(name("words"))])),
                Step::Thought => said.push(model(vec![Block::Reasoning { text: name("thought") }])),
                Step::Call | Step::CallAndWords => {
                    let id = name("call").replace([' ', '.'], "_");
                    let mut blocks = vec![call(&id)];
                    if matches!(step, Step::CallAndWords) {
                        blocks.push(Block::Text(name("words")));
                    }
                    said.push(model(blocks));
                    open.push(id);
                }
                Step::Result(_) if open.is_empty() => {}
                Step::Result(at) => {
                    let id = open.remove(at % open.len());
                    said.push(answer(id, name("result")));
                }
                Step::Injected => {
                    let words = person(name("injected"));
                    said.push(Message { standing: Standing::Injected, ..words });
                }
                Step::Prompt => {
                    is_asked = true;
                    said.push(person(name("prompt")));
                }
            }
        }
        open.drain(..).for_each(|id| said.push(answer(id, name("result"))));
        said.push(model(vec![Block::Text(name("answer"))]));
    }
    said
}

/// What an agent's file says when it is imported: its words, its calls, its results, and the calls that words stand behind
/// though they wait.
#[derive(Debug, Default)]
struct Told {
    words: Vec<String>,
    results: Vec<String>,
    torn: Vec<String>,
}

impl Told {
    fn of(messages: &[Message]) -> Self {
        let mut told = Self::default();
        let mut open: Vec<String> = Vec::new();
        for message in messages {
            for block in &message.blocks {
                match block {
                    Block::Text(text) => {
                        if message.author != Author::Model {
                            told.torn.extend(open.iter().cloned());
                        }
                        told.words.extend(text.split_inclusive('.').map(|word| word.trim().to_owned()));
                    }
                    Block::Call { id, .. } => open.push(id.clone()),
                    Block::Result { id, content, .. } => {
                        told.results.push(content.iter().map(|block| format!("{block:?}")).collect());
                        open.retain(|call| call != id);
                    }
                    Block::Reasoning { .. } | Block::Media { .. } => {}
                }
            }
        }
        told.words.retain(|word| !word.is_empty());
        told.words.sort();
        told.results.sort();
        told
    }
}

fn written(agent: &str, name: &str, messages: &[Message]) -> (Vec<Message>, Vec<String>) {
    let codec = codec_for(agent).unwrap();
    let mut session = Session::new("019ce0bb-1111-4222-8333-444455556666", Timestamp(1_767_323_045_000));
    session.cwd = Some("/home/dev/shop".into());
    let mut writer = codec.writer(&session).unwrap();
    let mut out = Vec::new();
    writer.begin(&mut out);
    messages.iter().for_each(|message| writer.message(message, &mut out));
    let losses = writer.finish(&mut out).losses.into_iter().map(|loss| loss.what.to_owned()).collect();
    let home = tempfile::tempdir().unwrap();
    let file = match name {
        "" => home.path().join(codec.place(&session).unwrap()),
        name => home.path().join(name),
    };
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &out).unwrap();
    let store = super::store();
    let report = import(&store, &file);
    assert!(report.problems.is_empty(), "{agent}: {report:?}\n{}", String::from_utf8_lossy(&out));
    let thread = store.list(ListQuery::default()).unwrap().entries.remove(0);
    assert_eq!(thread.branches, 1, "{agent}: a path is no tree");
    let items = store.items(&thread.id, ItemQuery { limit: 1_000, ..ItemQuery::default() }).unwrap().entries;
    (items.iter().filter_map(|item| codec.message(&item.kind, &item.content)).collect(), losses)
}

fn check(messages: &[Message]) {
    let expected = Told::of(messages);
    for (agent, name) in AGENTS {
        let (found, losses) = written(agent, name, messages);
        let found = Told::of(&found);
        assert_eq!(found.words, expected.words, "{agent}: {messages:#?}");
        assert_eq!(found.results, expected.results, "{agent}: {messages:#?}");
        let pairs = losses.iter().filter(|what| what.contains("without a result") || what.contains("of calls that"));
        assert_eq!(pairs.count(), 0, "{agent}: {losses:?}");
        if agent != "claude-code" && agent != "codex" {
            assert_eq!(found.torn, Vec::<String>::new(), "{agent}: words stand between calls and results");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_calls_and_results_loses_a_word(
        turns in prop::collection::vec(prop::collection::vec(step(), 0..9), 1..4),
        is_one_response in any::<bool>(),
    ) {
        check(&messages(&turns, is_one_response));
    }
}

/// The model goes on while one of its calls still runs; a thought comes in between; the agent puts in a reminder.
#[test]
fn what_the_model_says_between_results_loses_none() {
    use Step::{Call, CallAndWords, Injected, Prompt, Result, Thought, Words};
    for steps in [
        vec![Call, Call, Result(0), Call, Result(0), Result(0)],
        vec![Call, Call, Result(0), Call, Result(1), Result(0)],
        vec![Call, Call, Result(0), Thought, Result(0)],
        vec![Call, Call, Result(0), Words, Result(0), Words],
        vec![Call, Call, Result(0), Injected, Result(0)],
        vec![Call, Call, Injected, Result(0), Call, Injected, Result(0), Result(0)],
        vec![Call, CallAndWords, Words, Call, Result(2), Result(1), Result(0)],
        vec![Call, Call, Prompt, Result(1), Prompt, Result(0)],
    ] {
        for is_one_response in [true, false] {
            check(&messages(&[steps.clone(), steps.clone()], is_one_response));
        }
    }
}
