//! Writing a session as a folder of Copilot CLI.
//!
//! Its program resumes what has a first event, prompts, answers and pairs of calls and results; older ones refuse line separators
//! of Unicode within a line.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::CopilotCli;
use crate::conversation::{Block, MediaData};
use crate::facts::is_uuid;
use crate::json::{str_at, with_values, write_line};
use crate::lines::{Entry, Format};
use crate::writer::{Acts, Answer, Chain, Companion, Outcome, Session, time};

/// The version whose form of events is written, where the session names none.
const VERSION: &str = "1.0.102";
/// What stands for a record that was taken away.
const TAKEN: &str = "redacted";

/// The folder of a session below the program's home.
pub(super) fn folder(session: &Session) -> PathBuf {
    Path::new("session-state").join(session.uuid().to_string())
}

/// The form of Copilot CLI's events.
#[derive(Debug, Default)]
pub(super) struct CopilotActs {
    /// Whether the session is a new one, so that its folder is too.
    is_new: bool,
}

fn event(kind: &str, data: &Value, chain: &mut Chain, out: &mut Vec<u8>) {
    let id = chain.made("event").to_string();
    event_named(kind, &id, data, chain, out);
}

fn event_named(kind: &str, id: &str, data: &Value, chain: &mut Chain, out: &mut Vec<u8>) {
    let event = json!({
        "type": kind,
        "data": data,
        "id": id,
        "timestamp": time(chain.at),
        "parentId": chain.last,
    });
    write_line(&event, out);
    chain.step(id);
}

fn texts(blocks: &[Block]) -> String {
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| if let Block::Text(text) = block { Some(text.as_str()) } else { None })
        .collect();
    texts.join("\n\n")
}

impl Acts for CopilotActs {
    const SETS_INJECTED_APART: bool = false;
    /// An event has `content`, and beside it `toolRequests`.
    const TEXT_BEHIND_CALLS: bool = false;
    const HAS_TOKENS: bool = false;

    fn entry(&self, line: &Value) -> Option<Entry> {
        CopilotCli.read(line)
    }

    fn holds(&self, _media_type: &str, _data: &MediaData) -> bool {
        // Whether an attachment reaches the model again when a session is resumed is not known; its name does.
        false
    }

    fn begin(&mut self, chain: &mut Chain, out: &mut Vec<u8>) {
        self.is_new = true;
        let session = &chain.session;
        let mut context = Map::new();
        let cwd = session.cwd.as_deref().and_then(Path::to_str);
        for (key, value) in [
            ("cwd", cwd),
            ("branch", session.git_branch.as_deref()),
            ("headCommit", session.git_sha.as_deref()),
            ("repository", session.git_origin.as_deref()),
        ] {
            if let Some(value) = value {
                context.insert(key.to_owned(), json!(value));
            }
        }
        let mut data = json!({
            "sessionId": session.uuid().to_string(),
            "version": 1,
            "producer": "copilot-agent",
            "copilotVersion": session.cli_version.as_deref().unwrap_or(VERSION),
            "startTime": time(session.created_at),
            "context": context,
        });
        if let (Some(model), Some(fields)) = (&session.model, data.as_object_mut()) {
            fields.insert("selectedModel".to_owned(), json!(model));
        }
        event("session.start", &data, chain, out);
    }

    fn words(&mut self, blocks: Vec<Block>, _is_injected: bool, chain: &mut Chain, out: &mut Vec<u8>) {
        let content = texts(&blocks);
        let data = json!({"content": content, "transformedContent": content, "attachments": []});
        event("user.message", &data, chain, out);
    }

    fn answer(&mut self, answer: Answer, chain: &mut Chain, out: &mut Vec<u8>) {
        let calls: Vec<(&str, &str, &Value)> = answer.blocks.iter().filter_map(call).collect();
        let asked = calls
            .iter()
            .map(|(id, name, input)| json!({"toolCallId": id, "name": name, "arguments": input, "type": "function"}));
        let mut data = json!({
            "messageId": chain.made("message").to_string(),
            "content": texts(&answer.blocks),
            "toolRequests": asked.collect::<Vec<_>>(),
        });
        let model = answer.model.as_ref().or(chain.session.model.as_ref());
        if let (Some(model), Some(fields)) = (model, data.as_object_mut()) {
            fields.insert("model".to_owned(), json!(model));
        }
        event("assistant.message", &data, chain, out);
        for (id, name, input) in calls {
            let data = json!({"toolCallId": id, "toolName": name, "arguments": input});
            event("tool.execution_start", &data, chain, out);
        }
    }

    fn result(&mut self, result: Outcome, chain: &mut Chain, out: &mut Vec<u8>) {
        let content = texts(&result.content);
        let mut data = json!({"toolCallId": result.id, "success": !result.is_error});
        // Of a call that failed the program tells the model the error, and nothing that stands beside it.
        let (key, said) = match result.is_error {
            true => ("error", json!({"message": content, "code": "failure"})),
            false => ("result", json!({"content": content})),
        };
        if let Some(fields) = data.as_object_mut() {
            fields.insert(key.to_owned(), said);
        }
        event("tool.execution_complete", &data, chain, out);
    }

    fn summary(&mut self, text: String, chain: &mut Chain, out: &mut Vec<u8>) {
        event("session.compaction_complete", &json!({"success": true, "summaryContent": text}), chain, out);
    }

    fn carry(&mut self, record: &[u8], line: &Value, entry: &Entry, chain: &mut Chain, out: &mut Vec<u8>) -> bool {
        let kind = line.get("type").and_then(Value::as_str).unwrap_or_default();
        // The session has an event of its own to begin with, and on its path nothing was taken back.
        if entry.is_beside || matches!(kind, "session.start" | "session.snapshot_rewind") {
            return true;
        }
        let fits = |id: &String| is_uuid(id) && !chain.has(id);
        let id = entry.id.clone().filter(fits).unwrap_or_else(|| chain.made("event").to_string());
        let (new_id, parent) = (json!(id), json!(chain.last));
        let mut changes = Vec::new();
        if line.get("id") != Some(&new_id) {
            changes.push(("id", &new_id));
        }
        if line.get("parentId") != Some(&parent) {
            changes.push(("parentId", &parent));
        }
        let Some(bytes) = with_values(record, &changes) else { return false };
        out.extend_from_slice(&bytes);
        out.push(b'\n');
        chain.step(&id);
        true
    }

    fn keep(&mut self, line: &Value, _chain: &Chain) -> bool {
        // The program refuses a session with an event whose id is none.
        is_uuid(str_at(line, "id"))
    }

    fn gap(&mut self, id: Option<&str>, chain: &mut Chain, out: &mut Vec<u8>) {
        let data = json!({"infoType": TAKEN, "message": TAKEN});
        let id = id
            .filter(|id| is_uuid(id) && !chain.has(id))
            .map_or_else(|| chain.made("event").to_string(), str::to_owned);
        event_named("session.info", &id, &data, chain, out);
    }

    fn finish(&mut self, chain: &mut Chain, _out: &mut Vec<u8>) -> Vec<Companion> {
        if !self.is_new {
            // The folder that is there has the program's own.
            return Vec::new();
        }
        let bytes = workspace(&chain.session).into_bytes();
        vec![Companion { path: folder(&chain.session).join("workspace.yaml"), bytes, shared: false }]
    }
}

fn call(block: &Block) -> Option<(&str, &str, &Value)> {
    if let Block::Call { id, name, input } = block { Some((id, name, input)) } else { None }
}

/// What the program lists a session by. Texts are quoted as in JSON, which is YAML too.
fn workspace(session: &Session) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut document = format!("id: {}\n", session.uuid());
    for (key, value) in [
        ("cwd", session.cwd.as_deref().and_then(Path::to_str)),
        ("branch", session.git_branch.as_deref()),
        ("name", session.title.as_deref().or(session.preview.as_deref())),
    ] {
        if let Some(value) = value {
            document.push_str(&format!("{key}: {}\n", quoted(value)));
        }
    }
    if session.title.is_some() {
        document.push_str("user_named: true\n");
    }
    let (created, updated) = (time(session.created_at), time(session.updated_at));
    document.push_str(&format!("summary_count: 0\ncreated_at: {created}\nupdated_at: {updated}\n"));
    document
}
