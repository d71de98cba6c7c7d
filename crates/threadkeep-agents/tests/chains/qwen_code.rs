//! Reads a file as Qwen Code does: records of one session and one folder, each behind the one before it.

use std::collections::HashMap;

use serde_json::Value;

use super::Act;

pub(crate) fn read(lines: &[Value]) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut calls: HashMap<String, String> = HashMap::new();
    let mut last: Option<&str> = None;
    for line in lines {
        let uuid = line["uuid"].as_str().unwrap();
        assert_eq!(line["parentUuid"].as_str(), last, "{line}");
        last = Some(uuid);
        for key in ["sessionId", "cwd", "timestamp", "version"] {
            assert!(line[key].as_str().is_some_and(|word| !word.is_empty()), "{line}");
        }
        assert_eq!((&line["sessionId"], &line["cwd"]), (&lines[0]["sessionId"], &lines[0]["cwd"]));
        match line["type"].as_str().unwrap() {
            "user" => {
                assert_eq!(line["message"]["role"], "user");
                acts.push(Act::Words(texts(&line["message"], "\n\n")));
            }
            "assistant" => acts.push(answer(line, &mut calls)),
            "tool_result" => acts.push(result(line, &mut calls)),
            "system" => system(line, &mut acts),
            other => panic!("Qwen Code has no {other}"),
        }
    }
    acts
}

fn answer(line: &Value, calls: &mut HashMap<String, String>) -> Act {
    assert!(line["model"].is_string());
    assert_eq!(line["message"]["role"], "model");
    let mut made = Vec::new();
    for part in line["message"]["parts"].as_array().unwrap() {
        if let Some(call) = part.get("functionCall") {
            let (id, name) = (call["id"].as_str().unwrap(), call["name"].as_str().unwrap());
            assert!(!id.is_empty() && !name.is_empty() && call["args"].is_object());
            assert!(calls.insert(id.to_owned(), name.to_owned()).is_none(), "{id} is called twice");
            made.push((name.to_owned(), call["args"].clone()));
        } else {
            assert!(part["text"].is_string(), "an answer has no {part}");
        }
    }
    Act::Answer(texts(&line["message"], "\n\n"), made)
}

fn result(line: &Value, calls: &mut HashMap<String, String>) -> Act {
    let parts = line["message"]["parts"].as_array().unwrap();
    let response = &parts[0]["functionResponse"];
    let name = calls.remove(response["id"].as_str().unwrap()).unwrap_or_else(|| panic!("no call for {response}"));
    assert_eq!(response["name"].as_str(), Some(name.as_str()));
    let failed = response["response"].get("error").is_some();
    let key = if failed { "error" } else { "output" };
    let mut output = vec![response["response"][key].as_str().unwrap().to_owned()];
    output.extend(parts[1..].iter().map(picture));
    let status = if failed { "error" } else { "success" };
    assert_eq!(line["toolCallResult"]["status"], status);
    output.retain(|text| !text.is_empty());
    Act::Result(output.join("\n"), failed)
}

fn system(line: &Value, acts: &mut Vec<Act>) {
    let payload = &line["systemPayload"];
    match line["subtype"].as_str().unwrap() {
        "chat_compression" => {
            let history = payload["compressedHistory"].as_array().unwrap();
            assert_eq!(history[0]["role"], "user");
            acts.push(Act::Summary(texts(&history[0], "\n\n")));
        }
        "custom_title" => assert!(payload["customTitle"].is_string()),
        _ => assert!(payload.is_object()),
    }
}

fn picture(part: &Value) -> String {
    let data = &part["inlineData"];
    assert!(data["data"].as_str().is_some_and(|data| !data.is_empty()), "{part}");
    format!("[{}]", data["mimeType"].as_str().unwrap())
}

fn texts(message: &Value, between: &str) -> String {
    let parts = message["parts"].as_array().unwrap().iter().filter(|part| part.get("functionCall").is_none());
    let texts = parts.map(|part| part["text"].as_str().map_or_else(|| picture(part), str::to_owned));
    texts.collect::<Vec<_>>().join(between)
}
