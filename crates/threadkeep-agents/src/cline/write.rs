//! Writing a session for Cline's command line.
//!
//! Its program lists a session by its manifest, which it wants whole, and goes on from the messages beside it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use threadkeep::{Timestamp, Usage};

use super::{CLINE, LEAD, MESSAGES};
use crate::conversation::{Block, MediaData};
use crate::json::{str_at, with_values, word_at};
use crate::lines::{Entry, Format};
use crate::writer::{Acts, Answer, Chain, Companion, HOME, NOWHERE, Outcome, Session, time};

/// The version whose form is written, where the session names none.
const VERSION: &str = "3.0.65";
/// What the program calls a host that nobody named.
const NO_PROVIDER: &str = "unknown";

/// The session's id as the program makes them: when it was begun, and five letters.
pub(super) fn id(session: &Session) -> String {
    let is_known = |(at, rest): (&str, &str)| {
        let digits = at.bytes().all(|byte| byte.is_ascii_digit());
        digits && at.len() == 13 && rest.len() == 5 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if session.id.split_once('_').is_some_and(is_known) {
        return session.id.clone();
    }
    let made = session.made("session", 0).simple().to_string();
    format!("{:013}_{}", session.created_at.millis().max(0), made.get(..5).unwrap_or(&made))
}

/// Where the messages of a session belong below the agent's home.
pub(super) fn place(session: &Session) -> PathBuf {
    folder(session).join(format!("{}{MESSAGES}", id(session)))
}

fn folder(session: &Session) -> PathBuf {
    Path::new("data/sessions").join(id(session))
}

/// The form of the messages of Cline's command line.
#[derive(Debug, Default)]
pub(super) struct ClineActs {
    /// Whether a message is written.
    has_message: bool,
    /// Results that are told in one message, as calls that were made together are answered.
    results: Vec<Value>,
}

impl ClineActs {
    fn message(
        &mut self,
        role: &str,
        content: Vec<Value>,
        more: Vec<(&str, Value)>,
        chain: &mut Chain,
        out: &mut Vec<u8>,
    ) {
        let id = chain.made("message").to_string();
        let mut message = Map::new();
        let mut put = |key: &str, value: Value| drop(message.insert(key.to_owned(), value));
        put("id", json!(id));
        put("role", json!(role));
        put("content", Value::Array(content));
        put("ts", json!(chain.at.millis()));
        more.into_iter().for_each(|(key, value)| put(key, value));
        self.element(Value::Object(message).to_string().as_bytes(), out);
        chain.step(&id);
    }

    fn element(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_message, true) {
            out.extend_from_slice(b",\n");
        }
        out.extend_from_slice(bytes);
    }

    /// Writes the results that have gathered.
    fn settle(&mut self, chain: &mut Chain, out: &mut Vec<u8>) {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.message("user", results, Vec::new(), chain, out);
        }
    }
}

fn block(block: Block) -> Option<Value> {
    Some(match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Media { media_type, data: MediaData::Base64(data) } => {
            json!({"type": "image", "data": data, "mediaType": media_type})
        }
        Block::Call { id, name, input } => json!({"type": "tool_use", "id": id, "name": name, "input": input}),
        _ => return None,
    })
}

/// What came from the cache is part of the input.
fn tokens(usage: Usage) -> Value {
    json!({
        "inputTokens": usage.input, "outputTokens": usage.output, "cacheReadTokens": usage.cached, "cacheWriteTokens": 0,
    })
}

/// What the program says of itself in each session.
fn origin(session: &Session) -> Value {
    json!({
        "source": "cli", "mode": "user", "sessionId": id(session),
        "version": session.cli_version.as_deref().unwrap_or(VERSION),
    })
}

impl Acts for ClineActs {
    const SETS_INJECTED_APART: bool = false;
    const HAS_TOKENS: bool = true;

    fn entry(&self, line: &Value) -> Option<Entry> {
        CLINE.read(line)
    }

    fn begin(&mut self, chain: &mut Chain, out: &mut Vec<u8>) {
        let session = &chain.session;
        let head = json!({
            "version": 1, "updated_at": time(session.updated_at), "agent": LEAD, "sessionId": id(session),
            "origin": origin(session),
        });
        let head = head.to_string();
        out.extend_from_slice(head.trim_end_matches('}').as_bytes());
        // The object of its origin is the last that was opened.
        out.extend_from_slice(b"},\"messages\":[\n");
    }

    fn words(&mut self, blocks: Vec<Block>, is_injected: bool, chain: &mut Chain, out: &mut Vec<u8>) {
        self.settle(chain, out);
        let marked = blocks.into_iter().map(|block| match block {
            Block::Text(text) if !is_injected => Block::Text(format!("<user_input mode=\"act\">{text}</user_input>")),
            other => other,
        });
        self.message("user", marked.filter_map(block).collect(), Vec::new(), chain, out);
    }

    fn answer(&mut self, answer: Answer, chain: &mut Chain, out: &mut Vec<u8>) {
        self.settle(chain, out);
        let model = answer.model.or_else(|| chain.session.model.clone()).unwrap_or_else(|| "unknown".to_owned());
        let provider = chain.session.provider.clone().unwrap_or_else(|| NO_PROVIDER.to_owned());
        let mut more = vec![("modelInfo", json!({"id": model, "provider": provider}))];
        if let Some(usage) = answer.usage {
            more.push(("metrics", tokens(usage)));
        }
        self.message("assistant", answer.blocks.into_iter().filter_map(block).collect(), more, chain, out);
    }

    fn result(&mut self, result: Outcome, _chain: &mut Chain, _out: &mut Vec<u8>) {
        let mut content: Vec<Value> = result.content.into_iter().filter_map(block).collect();
        // The program gives a list to the model as the JSON that it is.
        let content = match content.as_mut_slice() {
            [only] if str_at(only, "type") == "text" => only.get_mut("text").map(Value::take).unwrap_or_default(),
            _ => Value::Array(content),
        };
        self.results.push(json!({
            "type": "tool_result", "tool_use_id": result.id, "name": result.tool, "content": content,
            "is_error": result.is_error,
        }));
    }

    fn summary(&mut self, text: String, chain: &mut Chain, out: &mut Vec<u8>) {
        self.settle(chain, out);
        let more = vec![("metadata", json!({"kind": "compaction_summary"})), ("compactionSummary", json!(true))];
        self.message("user", vec![json!({"type": "text", "text": text})], more, chain, out);
    }

    fn carry(&mut self, record: &[u8], line: &Value, entry: &Entry, chain: &mut Chain, out: &mut Vec<u8>) -> bool {
        // Messages of the extension's tasks, and what was shown of them, are of another form.
        let (Some(own), true) = (entry.id.as_deref(), matches!(str_at(line, "role"), "user" | "assistant")) else {
            return false;
        };
        let new_id = if chain.has(own) { chain.made("message").to_string() } else { own.to_owned() };
        let (id_value, session) = (json!(new_id), json!(id(&chain.session)));
        let mut changes = Vec::new();
        if new_id != own {
            changes.push(("id", &id_value));
        }
        if word_at(line, "sessionId").is_some() {
            changes.push(("sessionId", &session));
        }
        let Some(bytes) = with_values(record, &changes) else { return false };
        self.settle(chain, out);
        self.element(&bytes, out);
        chain.step(&new_id);
        true
    }

    fn gap(&mut self, _id: Option<&str>, _chain: &mut Chain, _out: &mut Vec<u8>) {}

    fn finish(&mut self, chain: &mut Chain, out: &mut Vec<u8>) -> Vec<Companion> {
        self.settle(chain, out);
        out.extend_from_slice(b"\n]}\n");
        vec![manifest(&chain.session)]
    }
}

/// What the program lists a session by.
fn manifest(session: &Session) -> Companion {
    let cwd = session.cwd.as_deref().and_then(Path::to_str).unwrap_or(NOWHERE);
    let version = session.cli_version.as_deref().unwrap_or(VERSION);
    let prompt = session.preview.as_deref().or(session.title.as_deref()).unwrap_or("Imported session");
    let mut metadata = json!({
        "title": session.title.as_deref().unwrap_or(prompt),
        "sessionHistoryOrigin": {"mode": "user", "version": version},
    });
    if let (Some(branch), Some(fields)) = (&session.git_branch, metadata.as_object_mut()) {
        fields.insert("git".to_owned(), json!({ "branch": branch }));
    }
    let ended = Timestamp(session.updated_at.millis().max(session.created_at.millis()));
    let manifest = json!({
        "version": 1,
        "session_id": id(session),
        // Without it the program lists the session, and finds nothing in it.
        "messages_path": format!("{HOME}/{}", place(session).display()),
        "source": "cli",
        // Of a process that runs no more.
        "pid": 0,
        "started_at": time(session.created_at),
        "ended_at": time(ended),
        "exit_code": 0,
        "status": "completed",
        "interactive": true,
        "provider": session.provider.as_deref().unwrap_or(NO_PROVIDER),
        "model": session.model.as_deref().unwrap_or("unknown"),
        "cwd": cwd,
        "workspace_root": cwd,
        "enable_tools": true,
        "enable_spawn": true,
        "enable_teams": true,
        "prompt": prompt,
        "metadata": metadata,
    });
    let path = folder(session).join(format!("{}.json", id(session)));
    Companion { path, bytes: format!("{manifest:#}\n").into_bytes(), shared: false }
}
