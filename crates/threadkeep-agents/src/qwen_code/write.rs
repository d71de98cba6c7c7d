//! Writing a session as a file of Qwen Code.
//!
//! Its program takes a session for one of the folder that its records name, and goes on from the last record.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use threadkeep::Usage;
use uuid::{Uuid, Variant};

use super::QwenCode;
use crate::conversation::{Block, MediaData};
use crate::json::{str_at, with_values, write_line};
use crate::lines::{Entry, Format};
use crate::writer::{Acts, Answer, Chain, Companion, NOWHERE, Outcome, Session, dashed, time};

/// The version whose form of lines is written, where the session names none.
const VERSION: &str = "0.15.10";
/// What stands for a record that was taken away.
const TAKEN: &str = "redacted";
/// What the model says to a summary, as the program has it.
const UNDERSTOOD: &str = "Got it. Thanks for the additional context!";

/// The session's id as the program takes it: a UUID of the first five versions. Those of others are no ids to it, but titles.
pub(super) fn id(session: &Session) -> Uuid {
    let id = session.uuid();
    let is_known = (1..=5).contains(&id.get_version_num()) && id.get_variant() == Variant::RFC4122;
    if is_known { id } else { session.made("session", 0) }
}

/// Where the file of a session belongs: below the folder of its project.
pub(super) fn place(session: &Session) -> Option<PathBuf> {
    let project = dashed(session.cwd.as_deref()?)?;
    Some(Path::new("projects").join(project).join("chats").join(format!("{}.jsonl", id(session))))
}

/// The form of Qwen Code's records.
#[derive(Debug)]
pub(super) struct QwenActs;

fn line(kind: &str, fields: Vec<(&str, Value)>, chain: &mut Chain, out: &mut Vec<u8>) {
    let uuid = chain.made("record").to_string();
    line_named(kind, &uuid, fields, chain, out);
}

fn line_named(kind: &str, uuid: &str, fields: Vec<(&str, Value)>, chain: &mut Chain, out: &mut Vec<u8>) {
    let session = &chain.session;
    let mut line = Map::new();
    let mut put = |key: &str, value: Value| drop(line.insert(key.to_owned(), value));
    put("uuid", json!(uuid));
    put("parentUuid", json!(chain.last));
    put("sessionId", json!(id(session).to_string()));
    put("timestamp", json!(time(chain.at)));
    put("type", json!(kind));
    put("cwd", json!(session.cwd.as_deref().and_then(Path::to_str).unwrap_or(NOWHERE)));
    put("version", json!(session.cli_version.as_deref().unwrap_or(VERSION)));
    if let Some(branch) = &session.git_branch {
        put("gitBranch", json!(branch));
    }
    for (key, value) in fields {
        put(key, value);
    }
    write_line(&Value::Object(line), out);
    chain.step(uuid);
}

fn system(subtype: &str, payload: Value, chain: &mut Chain, out: &mut Vec<u8>) {
    line("system", vec![("subtype", json!(subtype)), ("systemPayload", payload)], chain, out);
}

fn parts(blocks: Vec<Block>) -> Vec<Value> {
    blocks.into_iter().filter_map(part).collect()
}

fn part(block: Block) -> Option<Value> {
    Some(match block {
        Block::Text(text) => json!({"text": text}),
        Block::Media { media_type, data: MediaData::Base64(data) } => {
            json!({"inlineData": {"mimeType": media_type, "data": data}})
        }
        Block::Call { id, name, input } => json!({"functionCall": {"id": id, "name": name, "args": input}}),
        _ => return None,
    })
}

/// Thoughts stand beside the rest of the output.
fn tokens(usage: Usage) -> Value {
    json!({
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output.saturating_sub(usage.reasoning),
        "thoughtsTokenCount": usage.reasoning.min(usage.output),
        "totalTokenCount": usage.input.saturating_add(usage.output),
        "cachedContentTokenCount": usage.cached,
    })
}

impl Acts for QwenActs {
    const SETS_INJECTED_APART: bool = false;
    const HAS_TOKENS: bool = true;

    fn entry(&self, line: &Value) -> Option<Entry> {
        QwenCode.read(line)
    }

    fn begin(&mut self, _chain: &mut Chain, _out: &mut Vec<u8>) {}

    fn words(&mut self, blocks: Vec<Block>, _is_injected: bool, chain: &mut Chain, out: &mut Vec<u8>) {
        line("user", vec![("message", json!({"role": "user", "parts": parts(blocks)}))], chain, out);
    }

    fn answer(&mut self, answer: Answer, chain: &mut Chain, out: &mut Vec<u8>) {
        let model = answer.model.or_else(|| chain.session.model.clone()).unwrap_or_else(|| "unknown".to_owned());
        let message = json!({"role": "model", "parts": parts(answer.blocks)});
        let mut fields = vec![("model", json!(model)), ("message", message)];
        if let Some(usage) = answer.usage {
            fields.push(("usageMetadata", tokens(usage)));
        }
        line("assistant", fields, chain, out);
    }

    fn result(&mut self, result: Outcome, chain: &mut Chain, out: &mut Vec<u8>) {
        let (texts, media): (Vec<Block>, Vec<Block>) =
            result.content.into_iter().partition(|block| matches!(block, Block::Text(_)));
        let texts = texts.into_iter().filter_map(|block| if let Block::Text(text) = block { Some(text) } else { None });
        let output = texts.collect::<Vec<_>>().join("\n");
        let key = if result.is_error { "error" } else { "output" };
        let response = json!({"id": result.id, "name": result.tool, "response": {key: output}});
        let mut all = vec![json!({"functionResponse": response})];
        all.extend(parts(media));
        let status = if result.is_error { "error" } else { "success" };
        let fields = vec![
            ("message", json!({"role": "user", "parts": all})),
            ("toolCallResult", json!({"callId": result.id, "status": status})),
        ];
        line("tool_result", fields, chain, out);
    }

    fn summary(&mut self, text: String, chain: &mut Chain, out: &mut Vec<u8>) {
        let payload = json!({
            "info": {"originalTokenCount": 0, "newTokenCount": 0, "compressionStatus": 1},
            "compressedHistory": [
                {"role": "user", "parts": [{"text": text}]},
                {"role": "model", "parts": [{"text": UNDERSTOOD}]},
            ],
        });
        system("chat_compression", payload, chain, out);
    }

    fn carry(&mut self, record: &[u8], line: &Value, entry: &Entry, chain: &mut Chain, out: &mut Vec<u8>) -> bool {
        let Some(uuid) = entry.id.as_deref() else { return false };
        let (session, parent) = (json!(id(&chain.session).to_string()), json!(chain.last));
        let mut changes = Vec::new();
        if line.get("sessionId") != Some(&session) {
            changes.push(("sessionId", &session));
        }
        let folder = json!(chain.session.cwd.as_deref().and_then(Path::to_str));
        if !folder.is_null() && line.get("cwd") != Some(&folder) {
            changes.push(("cwd", &folder));
        }
        // A record that is written again goes on with the first one, so both name what that stands behind.
        if !chain.has(uuid) && line.get("parentUuid") != Some(&parent) {
            changes.push(("parentUuid", &parent));
        }
        let Some(bytes) = with_values(record, &changes) else { return false };
        out.extend_from_slice(&bytes);
        out.push(b'\n');
        chain.step(uuid);
        true
    }

    fn keep(&mut self, line: &Value, chain: &Chain) -> bool {
        // The program takes a session for one of the folder that its first record names.
        let folder = chain.session.cwd.as_deref().and_then(Path::to_str);
        chain.last.is_some() || folder.is_none_or(|folder| folder == str_at(line, "cwd"))
    }

    fn gap(&mut self, id: Option<&str>, chain: &mut Chain, out: &mut Vec<u8>) {
        let fields = vec![("subtype", json!(TAKEN)), ("systemPayload", json!({}))];
        match id {
            Some(id) => line_named("system", id, fields, chain, out),
            None => line("system", fields, chain, out),
        }
    }

    fn finish(&mut self, chain: &mut Chain, out: &mut Vec<u8>) -> Vec<Companion> {
        if let Some(title) = chain.session.title.clone() {
            system("custom_title", json!({"customTitle": title, "titleSource": "manual"}), chain, out);
        }
        Vec::new()
    }
}
