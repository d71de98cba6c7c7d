//! Antigravity: numbered steps of the person, the model and the program.

use std::path::Path;

use serde_json::{Map, Value};

use crate::blocks::text;
use crate::codec::ThreadFacts;
use crate::conversation::Block;
use crate::json::{labelled, str_at, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Voice, stem};

/// The transcripts of Antigravity's agents.
///
/// Guarantees: steps stand in file order, whatever their numbers say. A result does not name its call, so the two can't be told to
/// belong together; calls get ids from their step's number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Antigravity;

impl Format for Antigravity {
    fn name(self) -> &'static str {
        "antigravity"
    }

    fn knows(self, _path: &Path, line: &Value) -> bool {
        let words = ["source", "type", "status"].iter().all(|key| word_at(line, key).is_some());
        words && line.get("step_index").is_some_and(Value::is_u64)
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type")?;
        let from_model = str_at(line, "source") == "MODEL";
        let content = str_at(line, "content");
        let entry = match kind {
            "USER_INPUT" if str_at(line, "source") == "SYSTEM" => said(Voice::Injected, content),
            "USER_INPUT" => request(content),
            "PLANNER_RESPONSE" => answer(line, content),
            "CHECKPOINT" => said(Voice::Summary, content),
            "SYSTEM_MESSAGE" => said(Voice::Injected, content),
            _ if from_model => {
                let is_error = str_at(line, "status") == "ERROR";
                let content = text(content).into_iter().collect();
                Entry::said(Voice::Tool, vec![Block::Result { id: String::new(), content, is_error }])
            }
            other => Entry::event(labelled(&other.to_lowercase().replace('_', " "), content, NOTE_CHARS)),
        };
        Some(Entry { at: time_at(line, "created_at"), ..entry })
    }

    fn has_pairs(self) -> bool {
        false
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let names: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let below = names.iter().rposition(|name| *name == "brain").and_then(|brain| names.get(brain + 1));
        facts.session_id = below.map(|id| (*id).to_owned()).or_else(|| stem(path));
    }
}

fn said(voice: Voice, content: &str) -> Entry {
    Entry::said(voice, text(content).into_iter().collect())
}

/// What the person asked for stands in a tag, and what the program adds stands behind it.
fn request(content: &str) -> Entry {
    let inner = content.split_once("<USER_REQUEST>").map(|(_, rest)| rest);
    let prompt = inner.and_then(|rest| rest.split("</USER_REQUEST>").next()).map(|asked| asked.trim().to_owned());
    let own = prompt.as_deref().map_or(!content.trim_start().starts_with('<'), |prompt| !prompt.is_empty());
    Entry { prompt, ..said(if own { Voice::Person } else { Voice::Injected }, content) }
}

fn answer(line: &Value, content: &str) -> Entry {
    let mut blocks = Vec::new();
    if word_at(line, "thinking").is_some() || !str_at(line, "thinking").trim().is_empty() {
        blocks.push(Block::Reasoning { text: str_at(line, "thinking").to_owned() });
    }
    blocks.extend(text(content));
    let calls = line.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (number, call) in calls.iter().enumerate() {
        let id = format!("step-{}-{number}", u64_at(line, "step_index"));
        let input = arguments(call.get("args").unwrap_or(&Value::Null));
        blocks.push(Block::Call { id, name: str_at(call, "name").to_owned(), input });
    }
    Entry::said(Voice::Model, blocks)
}

/// Each argument stands as the text of its JSON.
fn arguments(args: &Value) -> Value {
    let Value::Object(args) = args else {
        return if args.is_null() { Value::Object(Map::new()) } else { args.clone() };
    };
    let plain = |value: &Value| value.as_str().and_then(|text| serde_json::from_str(text).ok());
    Value::Object(
        args.iter().map(|(key, value)| (key.clone(), plain(value).unwrap_or_else(|| value.clone()))).collect(),
    )
}
