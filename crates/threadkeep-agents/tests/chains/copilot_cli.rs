//! Reads a file as Copilot CLI does: a first event, then events that chain the lines.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::Act;

pub(crate) fn read(lines: &[Value]) -> Vec<Act> {
    let start = &lines[0];
    assert_eq!((start["type"].as_str(), start["data"]["version"].as_u64()), (Some("session.start"), Some(1)));
    assert_eq!(start["data"]["producer"], "copilot-agent");
    assert!(start["data"]["sessionId"].as_str().is_some_and(|id| id.len() == 36));
    let (mut acts, mut ids, mut last) = (Vec::new(), HashSet::new(), None);
    // The calls that were made, and whether they were begun.
    let mut calls: HashMap<String, bool> = HashMap::new();
    for line in lines {
        let id = line["id"].as_str().unwrap();
        assert!(id.len() == 36 && ids.insert(id), "{id} is none, or stands twice");
        assert_eq!(line["parentId"].as_str(), last, "{line}");
        last = Some(id);
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z') && line.get("ephemeral").is_none());
        let data = &line["data"];
        match line["type"].as_str().unwrap() {
            "user.message" => {
                assert!(data["attachments"].is_array());
                acts.push(Act::Words(data["content"].as_str().unwrap().to_owned()));
            }
            "assistant.message" => {
                assert!(data["messageId"].is_string());
                let mut made = Vec::new();
                for call in data["toolRequests"].as_array().unwrap() {
                    let (id, name) = (call["toolCallId"].as_str().unwrap(), call["name"].as_str().unwrap());
                    assert!(!id.is_empty() && !name.is_empty() && call["arguments"].is_object());
                    assert_eq!(call["type"], "function");
                    assert!(calls.insert(id.to_owned(), false).is_none(), "{id} is called twice");
                    made.push((name.to_owned(), call["arguments"].clone()));
                }
                acts.push(Act::Answer(data["content"].as_str().unwrap().to_owned(), made));
            }
            "tool.execution_start" => *calls.get_mut(data["toolCallId"].as_str().unwrap()).unwrap() = true,
            "tool.execution_complete" => {
                let begun = calls.remove(data["toolCallId"].as_str().unwrap());
                assert_eq!(begun, Some(true), "{line}");
                // What stands beside an error is not told to the model.
                let failed = !data["success"].as_bool().unwrap();
                let output = if failed { &data["error"]["message"] } else { &data["result"]["content"] };
                acts.push(Act::Result(output.as_str().unwrap().to_owned(), failed));
            }
            "session.compaction_complete" => {
                acts.push(Act::Summary(data["summaryContent"].as_str().unwrap().to_owned()));
            }
            "session.start" | "session.info" => {}
            other => panic!("what is written has no {other}"),
        }
    }
    acts
}
