//! Readers that know nothing of the codecs: strict, and written from what the agents' own programs were seen to refuse.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// Checks a file that was written anew for an agent; says what is wrong with it first.
pub(crate) fn check(agent: &str, bytes: &[u8]) -> Result<(), String> {
    let lines = lines(bytes)?;
    match agent {
        "codex" => codex(&lines),
        "claude-code" => claude_code(&lines),
        other => Err(format!("no reader for {other}")),
    }
}

/// Every line a JSON object that the strictest parsers read; no mark at the beginning, an end to the last line.
pub(crate) fn lines(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("no UTF-8: {error}"))?;
    if text.starts_with('\u{feff}') {
        return Err("a byte order mark".to_owned());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut found = Vec::new();
    for (number, line) in text.split_terminator('\n').enumerate() {
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            continue;
        }
        let value: Value = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        if !value.is_object() {
            return Err(format!("line {} is no object", number + 1));
        }
        found.push(value);
    }
    Ok(found)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().filter(|text| !text.is_empty()).ok_or_else(|| format!("no `{key}` in {value:.200}"))
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Pairs of calls and results.
#[derive(Default)]
struct Pairs {
    made: HashSet<String>,
    open: HashMap<String, bool>,
}

impl Pairs {
    fn call(&mut self, id: &str, is_text: bool) -> Result<(), String> {
        if !is_name(id) {
            return Err(format!("the host refuses the id of a call `{id}`"));
        }
        if !self.made.insert(id.to_owned()) {
            return Err(format!("two calls `{id}`"));
        }
        self.open.insert(id.to_owned(), is_text);
        Ok(())
    }

    fn result(&mut self, id: &str) -> Result<bool, String> {
        self.open.remove(id).ok_or_else(|| format!("a result of `{id}`, which waits for none"))
    }
}

fn claude_code(lines: &[Value]) -> Result<(), String> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut pairs = Pairs::default();
    let mut session = None;
    for line in lines {
        let kind = text(line, "type")?;
        let own = text(line, "sessionId")?;
        if *session.get_or_insert(own) != own {
            return Err(format!("two sessions: {own}"));
        }
        if kind == "custom-title" {
            text(line, "customTitle")?;
            continue;
        }
        let uuid = text(line, "uuid")?;
        let time = text(line, "timestamp")?;
        if !time.ends_with('Z') || time.len() != 24 {
            return Err(format!("the time {time}"));
        }
        let is_boundary = line["subtype"] == "compact_boundary";
        match &line["parentUuid"] {
            Value::Null if seen.is_empty() || is_boundary => {}
            Value::String(parent) if seen.contains(parent.as_str()) && !is_boundary => {}
            other => return Err(format!("the parent {other} of {uuid} is not above it")),
        }
        if let Some(parent) = line["logicalParentUuid"].as_str()
            && !seen.contains(parent)
        {
            return Err(format!("the logical parent {parent} is not above it"));
        }
        if !seen.insert(uuid) {
            return Err(format!("two lines {uuid}"));
        }
        if line["isSidechain"] != Value::Bool(false) {
            return Err("a sidechain".to_owned());
        }
        claude_message(kind, line, &mut pairs)?;
    }
    Ok(())
}

fn claude_message(kind: &str, line: &Value, pairs: &mut Pairs) -> Result<(), String> {
    let message = &line["message"];
    match kind {
        "system" => return text(line, "subtype").map(drop),
        "user" | "assistant" => {}
        other => return Err(format!("the type {other}")),
    }
    if text(message, "role")? != kind {
        return Err(format!("a role that is no {kind}"));
    }
    if kind == "user" && message["content"].is_string() {
        return text(message, "content").map(drop);
    }
    let content = message["content"].as_array().ok_or("content that is no list")?;
    if content.is_empty() {
        return Err("content without a block".to_owned());
    }
    let mut others = false;
    for block in content {
        match text(block, "type")? {
            "text" if text(block, "text")?.trim().is_empty() => return Err("a blank text".to_owned()),
            "text" => others = true,
            "image" => {
                others = true;
                claude_image(block)?;
            }
            "tool_use" if kind == "assistant" => {
                if !block["input"].is_object() || !is_name(text(block, "name")?) {
                    return Err(format!("the call {block:.200}"));
                }
                pairs.call(text(block, "id")?, false)?;
            }
            "tool_result" if kind == "user" && !others => {
                pairs.result(text(block, "tool_use_id")?)?;
            }
            other => return Err(format!("a block {other} of {kind}")),
        }
    }
    Ok(())
}

fn claude_image(block: &Value) -> Result<(), String> {
    let source = &block["source"];
    match text(source, "type")? {
        "base64" => text(source, "media_type").and_then(|_| text(source, "data")).map(drop),
        "url" => text(source, "url").map(drop),
        other => Err(format!("an image in {other}")),
    }
}

fn codex(lines: &[Value]) -> Result<(), String> {
    let (head, rest) = lines.split_first().ok_or("nothing")?;
    if head["type"] != "session_meta" {
        return Err("it does not begin with what it is".to_owned());
    }
    for key in ["id", "timestamp", "cwd", "originator", "cli_version", "source"] {
        text(&head["payload"], key)?;
    }
    if !head["payload"]["model_provider"].is_null() {
        return Err("a provider is named".to_owned());
    }
    let mut pairs = Pairs::default();
    let mut shown = None;
    for line in rest {
        text(line, "timestamp")?;
        let payload = &line["payload"];
        match text(line, "type")? {
            "event_msg" => {
                text(payload, "message")?;
                shown = Some(text(payload, "type")?);
            }
            "response_item" => {
                codex_item(payload, shown.take(), &mut pairs)?;
            }
            "compacted" => {
                let history = payload["replacement_history"].as_array().ok_or("no history in place of the old")?;
                history.iter().try_for_each(|item| codex_content(item, "input_text"))?;
            }
            other => return Err(format!("the type {other}")),
        }
    }
    Ok(())
}

fn codex_item(item: &Value, shown: Option<&str>, pairs: &mut Pairs) -> Result<(), String> {
    match text(item, "type")? {
        "message" => match (text(item, "role")?, shown) {
            ("user", Some("user_message") | None) => codex_content(item, "input_text"),
            ("assistant", Some("agent_message")) => codex_content(item, "output_text"),
            (role, shown) => Err(format!("a message of {role} that is shown as {shown:?}")),
        },
        kind @ ("function_call" | "custom_tool_call") => {
            if !is_name(text(item, "name")?) {
                return Err(format!("the call {item:.200}"));
            }
            let is_text = kind == "custom_tool_call";
            if !is_text {
                serde_json::from_str::<Value>(text(item, "arguments")?).map_err(|error| error.to_string())?;
            } else if !item["input"].is_string() {
                return Err("a call without its words".to_owned());
            }
            pairs.call(text(item, "call_id")?, is_text)
        }
        kind @ ("function_call_output" | "custom_tool_call_output") => {
            let is_text = pairs.result(text(item, "call_id")?)?;
            if is_text != (kind == "custom_tool_call_output") {
                return Err("a result of another kind than its call".to_owned());
            }
            match &item["output"] {
                Value::String(_) => Ok(()),
                Value::Array(parts) => parts.iter().try_for_each(|part| codex_part(part, "input_text")),
                other => Err(format!("the output {other:.200}")),
            }
        }
        other => Err(format!("an item {other}")),
    }
}

fn codex_content(item: &Value, kind: &str) -> Result<(), String> {
    let content = item["content"].as_array().filter(|content| !content.is_empty()).ok_or("no content")?;
    content.iter().try_for_each(|part| codex_part(part, kind))
}

fn codex_part(part: &Value, kind: &str) -> Result<(), String> {
    match text(part, "type")? {
        "input_image" if kind == "input_text" => text(part, "image_url").map(drop),
        found if found == kind => match text(part, "text")?.trim().is_empty() {
            true => Err("a blank text".to_owned()),
            false => Ok(()),
        },
        other => Err(format!("a part {other}")),
    }
}
