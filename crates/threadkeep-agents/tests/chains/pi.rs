//! Reads a file as pi does: a header, then entries with ids of their own whose parents are there.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::Act;

pub(crate) fn read(lines: &[Value]) -> Vec<Act> {
    let header = &lines[0];
    assert_eq!((header["type"].as_str(), header["version"].as_u64()), (Some("session"), Some(3)));
    assert!(header["id"].as_str().is_some_and(|id| id.len() == 36), "{header}");
    assert!(header["cwd"].as_str().is_some_and(|cwd| cwd.starts_with('/')), "{header}");
    let mut entries: BTreeMap<&str, &Value> = BTreeMap::new();
    for entry in &lines[1..] {
        let id = entry["id"].as_str().unwrap();
        assert!(entry["timestamp"].as_str().unwrap().ends_with('Z'));
        assert!(entry["parentId"].is_null() || entries.contains_key(entry["parentId"].as_str().unwrap()), "{entry}");
        assert!(entries.insert(id, entry).is_none(), "{id} stands twice");
    }
    // From the last entry up, as the program builds what the model sees.
    let mut path = Vec::new();
    let mut at = lines[1..].last();
    while let Some(entry) = at {
        path.push(entry);
        at = entry["parentId"].as_str().map(|parent| entries[parent]);
    }
    path.reverse();
    assert_eq!(path.len(), lines.len() - 1, "something stands beside the path");
    let mut reader = Reader { acts: Vec::new(), waiting: Vec::new(), ids: HashSet::new() };
    for entry in path {
        reader.entry(entry, &entries);
    }
    reader.acts
}

struct Reader {
    acts: Vec<Act>,
    /// The calls of the last answer that have no result yet: other messages must not come between.
    waiting: Vec<(String, String)>,
    ids: HashSet<String>,
}

impl Reader {
    fn entry(&mut self, entry: &Value, entries: &BTreeMap<&str, &Value>) {
        match entry["type"].as_str().unwrap() {
            "message" => self.message(&entry["message"]),
            "custom_message" => {
                assert!(entry["customType"].is_string() && entry["display"].is_boolean());
                self.waiting.clear();
                self.acts.push(Act::Words(texts(&entry["content"], "\n\n")));
            }
            "compaction" => {
                assert!(entries.contains_key(entry["firstKeptEntryId"].as_str().unwrap()));
                assert!(entry["tokensBefore"].is_u64());
                self.acts.push(Act::Summary(entry["summary"].as_str().unwrap().to_owned()));
            }
            "session_info" => assert!(entry["name"].is_string()),
            "model_change" | "thinking_level_change" | "label" | "custom" | "branch_summary" => {}
            other => panic!("pi has no {other}"),
        }
    }

    fn message(&mut self, message: &Value) {
        assert!(message["timestamp"].is_u64());
        match message["role"].as_str().unwrap() {
            "user" => {
                self.waiting.clear();
                self.acts.push(Act::Words(texts(&message["content"], "\n\n")));
            }
            "assistant" => self.answer(message),
            "toolResult" => {
                let id = message["toolCallId"].as_str().unwrap();
                let at = self.waiting.iter().position(|(call, _)| call == id).unwrap_or_else(|| panic!("no call {id}"));
                let (_, tool) = self.waiting.remove(at);
                assert_eq!(message["toolName"].as_str(), Some(tool.as_str()));
                self.acts.push(Act::Result(texts(&message["content"], "\n"), message["isError"].as_bool().unwrap()));
            }
            "bashExecution" => {}
            other => panic!("pi has no role {other}"),
        }
    }

    fn answer(&mut self, message: &Value) {
        // The program gives calls that have none a result of its own, and a host refuses one that comes later.
        self.waiting.clear();
        for key in ["api", "provider", "model"] {
            assert!(message[key].as_str().is_some_and(|word| !word.is_empty()), "{message}");
        }
        for key in ["input", "output", "cacheRead", "cacheWrite", "totalTokens"] {
            assert!(message["usage"][key].is_u64(), "{message}");
        }
        assert!(["stop", "toolUse", "error", "aborted", "length"].contains(&message["stopReason"].as_str().unwrap()));
        let mut calls = Vec::new();
        for block in message["content"].as_array().unwrap() {
            match block["type"].as_str().unwrap() {
                "text" | "thinking" => {}
                "toolCall" => {
                    let id = block["id"].as_str().filter(|id| !id.is_empty()).unwrap();
                    assert!(self.ids.insert(id.to_owned()), "{id} is called twice");
                    assert!(block["arguments"].is_object());
                    let name = block["name"].as_str().filter(|name| !name.is_empty()).unwrap();
                    self.waiting.push((id.to_owned(), name.to_owned()));
                    calls.push((name.to_owned(), block["arguments"].clone()));
                }
                other => panic!("an answer of pi has no {other}"),
            }
        }
        self.acts.push(Act::Answer(texts(&message["content"], "\n\n"), calls));
    }
}

fn texts(content: &Value, between: &str) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let texts = content.as_array().unwrap().iter().filter_map(|block| match block["type"].as_str().unwrap() {
        "text" => Some(block["text"].as_str().unwrap().to_owned()),
        "image" => {
            assert!(block["data"].as_str().is_some_and(|data| !data.is_empty()));
            Some(format!("[{}]", block["mimeType"].as_str().unwrap()))
        }
        _ => None,
    });
    texts.collect::<Vec<_>>().join(between)
}
