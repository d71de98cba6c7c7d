//! Grok Build: the messages of a session, in a folder with what else is known of it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Timestamp;

use crate::blocks::{anthropic, call, text};
use crate::codec::{Aside, TITLE_CHARS, ThreadFacts};
use crate::conversation::Block;
use crate::facts::shown;
use crate::json::{first_text, labelled, read, str_at, time_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Voice, all_begin_with, folder, own_words, stem};

/// Grok Build's `chat_history.jsonl`.
///
/// Guarantees: records stand in file order. They have no ids and no times; the session's own stand in `summary.json`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrokBuild;

const FILE: &str = "chat_history.jsonl";
/// What text begins with that the program puts into a person's mouth.
const INJECTED: [&str; 3] = ["<user_info>", "<system-reminder>", "<environment_context>"];
/// Keys of other agents whose lines are of the same types.
const FOREIGN: [&str; 7] = ["uuid", "sessionId", "session_id", "message", "payload", "data", "timestamp"];

impl Format for GrokBuild {
    fn name(self) -> &'static str {
        "grok-build"
    }

    fn knows(self, path: &Path, line: &Value) -> bool {
        let typed = match str_at(line, "type") {
            "system" | "user" | "assistant" => line.get("content").is_some(),
            "tool_result" => word_at(line, "tool_call_id").is_some(),
            _ => false,
        };
        let own = ["prompt_index", "synthetic_reason", "model_id", "model_fingerprint"];
        let named = path.file_name().is_some_and(|name| name == FILE);
        typed
            && !FOREIGN.iter().any(|key| line.get(key).is_some())
            && (named || own.iter().any(|key| line.get(key).is_some()))
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let content = || anthropic(line.get("content").unwrap_or(&Value::Null));
        let entry = match word_at(line, "type")? {
            "system" => Entry::said(Voice::Instructions, content()),
            "user" => {
                let blocks = content();
                let injected = word_at(line, "synthetic_reason").is_some() || all_begin_with(&blocks, &INJECTED);
                let prompt = own_words(&blocks, &INJECTED);
                Entry { prompt, ..Entry::said(if injected { Voice::Injected } else { Voice::Person }, blocks) }
            }
            "assistant" => answer(line, content()),
            "reasoning" => Entry::said(Voice::Model, vec![Block::Reasoning { text: thoughts(line) }]),
            "tool_result" => {
                let id = str_at(line, "tool_call_id").to_owned();
                let is_error = line.get("is_error").and_then(Value::as_bool).unwrap_or_default();
                Entry::said(Voice::Tool, vec![Block::Result { id, content: content(), is_error }])
            }
            "compaction" | "summary" => Entry::said(Voice::Summary, content()),
            "backend_tool_call" => {
                let call = line.get("kind").unwrap_or(&Value::Null);
                let query = call.get("action").map_or("", |action| first_text(action, &["query", "url", "type"]));
                Entry::event(labelled(&str_at(call, "tool_type").replace('_', " "), query, NOTE_CHARS))
            }
            other => {
                let said = first_text(line, &["content", "text", "message"]);
                Entry::event(labelled(&other.replace('_', " "), said, NOTE_CHARS))
            }
        };
        let id = word_at(line, "id").map(str::to_owned);
        Some(Entry { id, at: time_at(line, "created_at"), ..entry })
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let named = path.file_name().is_some_and(|name| name == FILE);
        let id = if named { folder(path, 1).map(str::to_owned) } else { stem(path) };
        facts.session_id = facts.session_id.take().or(id);
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        vec![path.with_file_name("summary.json")]
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let (summary, _) = read::<Value>(bytes).ok()?;
        Some(Aside::new(move |facts| {
            let word = |key: &str| word_at(&summary, key).map(str::to_owned);
            let info = summary.get("info").unwrap_or(&Value::Null);
            facts.session_id = word_at(info, "id").map(str::to_owned).or(facts.session_id.take());
            facts.cwd = word_at(info, "cwd").map(PathBuf::from).or(facts.cwd.take());
            let title = first_text(&summary, &["generated_title", "session_summary"]);
            facts.title = shown(title, TITLE_CHARS).or(facts.title.take());
            facts.model = facts.model.take().or_else(|| word("current_model_id"));
            facts.git_branch = word("head_branch");
            facts.git_sha = word("head_commit").filter(|commit| commit.bytes().any(|digit| digit != b'0'));
            let remote = summary.get("git_remotes").and_then(|remotes| remotes.get(0)).and_then(Value::as_str);
            facts.git_origin = remote.map(str::to_owned);
            let time = |key: &str| word_at(&summary, key).and_then(Timestamp::parse);
            facts.created_at = facts.created_at.or_else(|| time("created_at"));
            facts.updated_at = facts.updated_at.or_else(|| time("updated_at"));
        }))
    }
}

fn answer(line: &Value, mut blocks: Vec<Block>) -> Entry {
    let calls = line.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    blocks.extend(calls.iter().map(|asked| call(str_at(asked, "id"), str_at(asked, "name"), asked.get("arguments"))));
    let says = ThreadFacts { model: word_at(line, "model_id").map(str::to_owned), ..ThreadFacts::default() };
    Entry { says, ..Entry::said(Voice::Model, blocks) }
}

/// The readable summaries of thoughts that are sealed.
fn thoughts(line: &Value) -> String {
    let summaries = line.get("summary").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = summaries.iter().map(|part| str_at(part, "text")).filter(|part| !part.is_empty()).collect();
    let summary = texts.join("\n\n");
    if summary.is_empty() { text(str_at(line, "content")).map_or_else(String::new, words) } else { summary }
}

fn words(block: Block) -> String {
    if let Block::Text(text) = block { text } else { String::new() }
}
