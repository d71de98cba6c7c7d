//! Writing a session as a file of pi.
//!
//! Its program reads the path up from the last entry, overwrites a file that has no header, and cuts off what stands before an
//! entry whose parent is missing.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use threadkeep::Usage;

use super::PI;
use crate::conversation::{Block, MediaData};
use crate::json::{str_at, u64_at, with_values, write_line};
use crate::lines::{Entry, Format};
use crate::writer::{Acts, Answer, Chain, Companion, NOWHERE, Outcome, Session, time};

/// The version of the form that is written.
const VERSION: u64 = 3;
/// What stands for a record that was taken away.
const TAKEN: &str = "redacted";
/// Where the file of a session belongs: the program finds it by its folder, and by its time.
pub(super) fn place(session: &Session) -> Option<PathBuf> {
    let cwd = session.cwd.as_deref()?.to_str()?;
    let name = cwd.strip_prefix(['/', '\\']).unwrap_or(cwd).replace(['/', '\\', ':'], "-");
    let stamp = time(session.created_at).replace([':', '.'], "-");
    Some(Path::new("sessions").join(format!("--{name}--")).join(format!("{stamp}_{}.jsonl", session.uuid())))
}

/// The form of pi's entries.
#[derive(Debug, Default)]
pub(super) struct PiActs {
    /// Whether the header is in the file.
    has_header: bool,
    /// Whether the file's entries have no ids, as in version 1; the program gives them some.
    is_unlinked: bool,
}

impl PiActs {
    /// Writes an entry behind the last one.
    fn entry(&self, kind: &str, fields: Vec<(&str, Value)>, chain: &mut Chain, out: &mut Vec<u8>) {
        let id = free_id(chain);
        self.entry_named(kind, &id, fields, chain, out);
    }

    fn entry_named(&self, kind: &str, id: &str, fields: Vec<(&str, Value)>, chain: &mut Chain, out: &mut Vec<u8>) {
        let mut entry = json!({"type": kind});
        if let Some(map) = entry.as_object_mut() {
            if !self.is_unlinked {
                map.insert("id".to_owned(), json!(id));
                map.insert("parentId".to_owned(), json!(chain.last));
            }
            map.insert("timestamp".to_owned(), json!(time(chain.at)));
            map.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        }
        write_line(&entry, out);
        chain.step(id);
    }

    fn message(&self, mut message: Value, chain: &mut Chain, out: &mut Vec<u8>) {
        if let Some(fields) = message.as_object_mut() {
            fields.insert("timestamp".to_owned(), json!(chain.at.millis()));
        }
        self.entry("message", vec![("message", message)], chain, out);
    }
}

/// An id that no entry has: eight digits, as the program has them.
fn free_id(chain: &Chain) -> String {
    let made = chain.made("entry").simple().to_string();
    let id = made.get(..8).unwrap_or(&made);
    if chain.has(id) { made } else { id.to_owned() }
}

fn content(blocks: Vec<Block>) -> Vec<Value> {
    blocks.into_iter().filter_map(block).collect()
}

fn block(block: Block) -> Option<Value> {
    Some(match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Media { media_type, data: MediaData::Base64(data) } => {
            json!({"type": "image", "data": data, "mimeType": media_type})
        }
        Block::Call { id, name, input } => json!({"type": "toolCall", "id": id, "name": name, "arguments": input}),
        _ => return None,
    })
}

/// Tokens as pi counts them: what came from the cache stands beside what was read anew.
fn tokens(usage: Usage) -> Value {
    let fresh = usage.input.saturating_sub(usage.cached);
    json!({
        "input": fresh,
        "output": usage.output,
        "cacheRead": usage.cached,
        "cacheWrite": 0,
        "totalTokens": usage.input.saturating_add(usage.output),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
    })
}

impl Acts for PiActs {
    const SETS_INJECTED_APART: bool = true;
    const HAS_TOKENS: bool = true;

    fn entry(&self, line: &Value) -> Option<Entry> {
        PI.read(line)
    }

    fn begin(&mut self, chain: &mut Chain, out: &mut Vec<u8>) {
        let session = &chain.session;
        let mut header = json!({
            "type": "session",
            "version": VERSION,
            "id": session.uuid().to_string(),
            "timestamp": time(session.created_at),
            "cwd": session.cwd.as_deref().and_then(Path::to_str).unwrap_or(NOWHERE),
        });
        if let (Some(parent), Some(fields)) = (&session.forked_from, header.as_object_mut()) {
            fields.insert("parentSession".to_owned(), json!(format!("{parent}.jsonl")));
        }
        write_line(&header, out);
        self.has_header = true;
    }

    fn words(&mut self, blocks: Vec<Block>, is_injected: bool, chain: &mut Chain, out: &mut Vec<u8>) {
        let content = content(blocks);
        if is_injected {
            let fields =
                vec![("customType", json!("context")), ("content", Value::Array(content)), ("display", json!(false))];
            return self.entry("custom_message", fields, chain, out);
        }
        self.message(json!({"role": "user", "content": content}), chain, out);
    }

    fn answer(&mut self, answer: Answer, chain: &mut Chain, out: &mut Vec<u8>) {
        let calls = answer.blocks.iter().any(|block| matches!(block, Block::Call { .. }));
        let model = answer.model.or_else(|| chain.session.model.clone()).unwrap_or_else(|| "unknown".to_owned());
        let provider = chain.session.provider.clone().unwrap_or_else(|| "unknown".to_owned());
        let message = json!({
            "role": "assistant",
            "content": content(answer.blocks),
            "api": "openai-completions",
            "provider": provider,
            "model": model,
            "usage": tokens(answer.usage.unwrap_or_default()),
            "stopReason": if calls { "toolUse" } else { "stop" },
        });
        self.message(message, chain, out);
    }

    fn result(&mut self, result: Outcome, chain: &mut Chain, out: &mut Vec<u8>) {
        let message = json!({
            "role": "toolResult",
            "toolCallId": result.id,
            "toolName": result.tool,
            "content": content(result.content),
            "isError": result.is_error,
        });
        self.message(message, chain, out);
    }

    fn summary(&mut self, text: String, chain: &mut Chain, out: &mut Vec<u8>) {
        // What is kept begins with the summary itself: nothing from before it.
        let id = free_id(chain);
        let fields = vec![("summary", json!(text)), ("firstKeptEntryId", json!(id)), ("tokensBefore", json!(0))];
        self.entry_named("compaction", &id, fields, chain, out);
    }

    fn carry(&mut self, record: &[u8], line: &Value, entry: &Entry, chain: &mut Chain, out: &mut Vec<u8>) -> bool {
        // Older forms of these are read as what they were only in files of their version.
        let is_older = (str_at(line, "type") == "compaction" && line.get("firstKeptEntryId").is_none())
            || line.get("message").is_some_and(|message| str_at(message, "role") == "hookMessage");
        if is_older || entry.is_beside {
            return entry.is_beside;
        }
        let id = entry.id.clone().filter(|id| !chain.has(id)).unwrap_or_else(|| free_id(chain));
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

    fn keep(&mut self, line: &Value, chain: &Chain) -> bool {
        if str_at(line, "type") == "session" {
            self.has_header = true;
            self.is_unlinked |= u64_at(line, "version") < 2;
            // The program goes on in the folder that the header names, and nowhere else.
            let folder = chain.session.cwd.as_deref().and_then(Path::to_str);
            return folder.is_none_or(|folder| folder == str_at(line, "cwd"));
        }
        self.has_header
    }

    fn gap(&mut self, id: Option<&str>, chain: &mut Chain, out: &mut Vec<u8>) {
        let id = id.filter(|id| !chain.has(id)).map_or_else(|| free_id(chain), str::to_owned);
        self.entry_named("custom", &id, vec![("customType", json!(TAKEN))], chain, out);
    }

    fn finish(&mut self, chain: &mut Chain, out: &mut Vec<u8>) -> Vec<Companion> {
        if let Some(title) = chain.session.title.clone() {
            self.entry("session_info", vec![("name", json!(title))], chain, out);
        }
        Vec::new()
    }
}
