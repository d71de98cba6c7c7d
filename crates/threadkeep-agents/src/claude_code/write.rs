//! Writing a session as a file of Claude Code.
//!
//! Its program reads a file as a chain from the last line up, wants `content` of an answer to be a list and `input` of a call to be an
//! object, sends thoughts on to a host that refuses another's seal, and passes over calls and results that are no pair.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use threadkeep::{Timestamp, Usage};

use super::facts::is_uuid;
use super::line::Line;
use super::tree::key;
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{Link, read, str_at, with_values, write_line};
use crate::writer::{Calls, Losses, Session, Writer, Written, is_picture, lost, time, tool_name};

/// The version whose form of lines is written, where the session names none.
const VERSION: &str = "2.1.197";
/// The longest folder name that is the whole path.
const FOLDER_CHARS: usize = 200;
/// What stands for a record that was taken away.
const TAKEN: &str = "redacted";

/// Where the file of a session belongs: below the folder of its project, which the program finds it by.
pub(super) fn place(session: &Session) -> Option<PathBuf> {
    let folder = Path::new("projects").join(folder(session.cwd.as_deref()?)?);
    Some(match agent_file(session) {
        Some((parent, file)) => folder.join(parent).join("subagents").join(format!("{file}.jsonl")),
        None => folder.join(format!("{}.jsonl", session.uuid())),
    })
}

/// The session and the file's name of a sub-agent, whose id is made of both.
pub(super) fn agent_file(session: &Session) -> Option<(&str, &str)> {
    let (parent, file) = session.id.split_once('.')?;
    let plain = file.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_uuid(parent) && plain && file.starts_with("agent-")).then_some((parent, file))
}

/// The folder of a project: its path with everything but letters and digits of ASCII replaced.
fn folder(cwd: &Path) -> Option<String> {
    let cwd = cwd.to_str()?;
    let mut name = String::new();
    for letter in cwd.chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() => name.push(letter),
            letter => name.extend(std::iter::repeat_n('-', letter.len_utf16())),
        }
    }
    if name.len() > FOLDER_CHARS {
        // The program has a hash of its own here, and finds folders by what stands before it.
        name.truncate(FOLDER_CHARS);
        name.push('-');
        name.push_str(blake3::hash(cwd.as_bytes()).to_hex().get(..8)?);
    }
    Some(name)
}

/// Writes the lines.
pub(super) struct ClaudeCodeWriter {
    session: Session,
    /// The `sessionId` of lines.
    id: String,
    /// The sub-agent whose file it is.
    agent: Option<String>,
    /// The line that the next one stands behind.
    last: Option<String>,
    /// The lines that are in the file, by the keys of their ids.
    seen: HashSet<u64>,
    written: u64,
    at: Timestamp,
    /// The response that the last line belongs to: the id that was written.
    response: Option<String>,
    calls: Calls,
    losses: Losses,
}

impl ClaudeCodeWriter {
    pub(super) fn new(session: &Session) -> Self {
        let agent = agent_file(session);
        Self {
            id: agent.map_or_else(|| session.uuid().to_string(), |(parent, _)| parent.to_owned()),
            agent: agent.and_then(|(_, file)| file.strip_prefix("agent-")).map(str::to_owned),
            session: session.clone(),
            last: None,
            seen: HashSet::new(),
            written: 0,
            at: session.created_at,
            response: None,
            calls: Calls::default(),
            losses: Losses::default(),
        }
    }

    /// Writes a line behind the last one.
    fn line(&mut self, kind: &str, fields: Vec<(&str, Value)>, out: &mut Vec<u8>) {
        let before = self.last.as_deref().unwrap_or("nothing");
        let uuid = self.session.made(&format!("line after {before}"), self.written).to_string();
        self.line_named(kind, uuid, fields, out);
    }

    fn line_named(&mut self, kind: &str, uuid: String, fields: Vec<(&str, Value)>, out: &mut Vec<u8>) {
        let session = &self.session;
        let mut line = Map::new();
        let mut put = |key: &str, value: Value| drop(line.insert(key.to_owned(), value));
        put("parentUuid", json!(self.last));
        put("isSidechain", json!(self.agent.is_some()));
        put("userType", json!("external"));
        if let Some(cwd) = session.cwd.as_deref().and_then(Path::to_str) {
            put("cwd", json!(cwd));
        }
        put("sessionId", json!(self.id));
        put("version", json!(session.cli_version.as_deref().unwrap_or(VERSION)));
        put("gitBranch", json!(session.git_branch.as_deref().unwrap_or_default()));
        if let Some(agent) = &self.agent {
            put("agentId", json!(agent));
        }
        put("type", json!(kind));
        for (key, value) in fields {
            put(key, value);
        }
        put("uuid", json!(uuid));
        put("timestamp", json!(time(self.at)));
        write_line(&Value::Object(line), out);
        self.written += 1;
        self.seen.insert(key(&uuid));
        self.last = Some(uuid);
    }

    /// The words and results of anyone but the model.
    fn user(&mut self, content: Vec<Value>, message: &Message, out: &mut Vec<u8>) {
        self.response = None;
        let is_result = |block: &Value| str_at(block, "type") == "tool_result";
        // The host wants results before anything else.
        let (mut blocks, others): (Vec<Value>, Vec<Value>) = content.into_iter().partition(is_result);
        let is_meta = message.standing == Standing::Injected && blocks.is_empty();
        blocks.extend(others);
        let content = match blocks.as_slice() {
            [block] if str_at(block, "type") == "text" => json!(str_at(block, "text")),
            _ => Value::Array(blocks),
        };
        let mut fields = vec![("message", json!({"role": "user", "content": content}))];
        if is_meta {
            fields.push(("isMeta", json!(true)));
        }
        self.line("user", fields, out);
    }

    /// One block of an answer: each has a line of its own, and the lines of one response share its id.
    fn answer(&mut self, block: &Value, message: &Message, out: &mut Vec<u8>) {
        let id = match (&self.response, &message.response) {
            // Calls that were made together are answered together, so they must be of one response.
            (Some(open), given) if given.is_none() || self.calls.is_waiting() => open.clone(),
            (_, Some(given)) => given.clone(),
            (_, None) => {
                let before = self.last.as_deref().unwrap_or("nothing");
                let made = self.session.made(&format!("response after {before}"), 0).simple().to_string();
                format!("msg_{}", made.get(..24).unwrap_or(&made))
            }
        };
        self.response = Some(id.clone());
        let stop = if str_at(block, "type") == "tool_use" { "tool_use" } else { "end_turn" };
        let model = message.model.as_deref().or(self.session.model.as_deref()).unwrap_or("unknown");
        let mut answer = json!({
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": null,
        });
        if let (Some(usage), Some(fields)) = (message.usage, answer.as_object_mut()) {
            fields.insert("usage".to_owned(), tokens(usage));
        }
        self.line("assistant", vec![("message", answer)], out);
    }

    fn summary(&mut self, message: &Message, out: &mut Vec<u8>) {
        let content: Vec<Value> = message.blocks.iter().filter_map(|block| self.content(block)).collect();
        if content.is_empty() {
            return;
        }
        self.calls.finish(&mut self.losses);
        let before = self.last.clone();
        let fields = vec![
            ("subtype", json!("compact_boundary")),
            ("parentUuid", Value::Null),
            ("logicalParentUuid", json!(before)),
            ("content", json!("Conversation compacted")),
            ("isMeta", json!(false)),
            ("level", json!("info")),
            ("compactMetadata", json!({"trigger": "manual", "preTokens": 0})),
        ];
        self.line("system", fields, out);
        self.response = None;
        let content = match content.as_slice() {
            [block] if str_at(block, "type") == "text" => json!(str_at(block, "text")),
            _ => Value::Array(content),
        };
        let fields = vec![
            ("isCompactSummary", json!(true)),
            ("isVisibleInTranscriptOnly", json!(true)),
            ("message", json!({"role": "user", "content": content})),
        ];
        self.line("user", fields, out);
    }

    /// A text or a picture; nothing for what is blank.
    fn content(&mut self, block: &Block) -> Option<Value> {
        match block {
            Block::Text(text) if text.trim().is_empty() => {
                self.losses.count(lost::EMPTY);
                None
            }
            Block::Text(text) => Some(json!({"type": "text", "text": text})),
            Block::Media { media_type, data } => Some(self.media(media_type, data)),
            Block::Reasoning { .. } => {
                self.losses.count(lost::THOUGHTS);
                None
            }
            Block::Call { .. } | Block::Result { .. } => None,
        }
    }

    fn media(&mut self, media_type: &str, data: &MediaData) -> Value {
        if is_picture(media_type, data) {
            let source = match data {
                MediaData::Base64(data) => json!({"type": "base64", "media_type": media_type, "data": data}),
                MediaData::Reference(url) => json!({"type": "url", "url": url}),
                MediaData::Absent => Value::Null,
            };
            return json!({"type": "image", "source": source});
        }
        self.losses.count(lost::MEDIA);
        json!({"type": "text", "text": Block::named(media_type, data)})
    }

    fn call(&mut self, id: &str, name: &str, input: &Value) -> Value {
        let input = match input {
            Value::Object(_) => input.clone(),
            other => {
                self.losses.count(lost::ARGUMENTS);
                json!({"input": other})
            }
        };
        let name = tool_name(name, &mut self.losses);
        json!({"type": "tool_use", "id": self.calls.call(id, false, &mut self.losses), "name": name, "input": input})
    }

    fn result(&mut self, id: &str, content: &[Block], is_error: bool) -> Option<Value> {
        let (id, _) = self.calls.result(id, &mut self.losses)?;
        let blocks: Vec<Value> = content.iter().filter_map(|block| self.content(block)).collect();
        let content = match blocks.as_slice() {
            [] => json!(""),
            [block] if str_at(block, "type") == "text" => json!(str_at(block, "text")),
            _ => Value::Array(blocks),
        };
        let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        if let Some(fields) = result.as_object_mut().filter(|_| is_error) {
            fields.insert("is_error".to_owned(), json!(true));
        }
        Some(result)
    }

    /// Takes note of a line that stands in the file.
    fn note(&mut self, line: &Line) {
        for block in line.message.0.iter().flat_map(|message| message.content.iter()) {
            if let Some(id) = block.tool_use_id.as_deref() {
                self.calls.keep_result(id);
            } else if let Some(id) = block.id.as_deref().filter(|_| block.kind.is("tool_use")) {
                self.calls.keep_call(id, false);
            }
        }
        if let Some(at) = line.timestamp.as_deref().and_then(Timestamp::parse) {
            self.at = at;
        }
        if let Some(uuid) = line.source_id() {
            self.seen.insert(key(uuid));
            self.last = Some(uuid.to_owned());
        }
        let answer = line.message.0.as_ref().filter(|_| line.kind.is("assistant"));
        self.response = answer.and_then(|message| message.id.0.clone());
    }
}

impl Writer for ClaudeCodeWriter {
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        self.at = message.created_at.unwrap_or(self.at);
        match (message.author, message.standing) {
            (_, Standing::Summary) => return self.summary(message, out),
            (Author::System, _) => return self.losses.count(lost::INSTRUCTIONS),
            _ => {}
        }
        let mut others = Vec::new();
        for block in &message.blocks {
            let block = match block {
                Block::Call { id, name, input } => Some(self.call(id, name, input)),
                Block::Result { id, content, is_error } => {
                    others.extend(self.result(id, content, *is_error));
                    continue;
                }
                // An answer has no pictures.
                Block::Media { media_type, data } if message.author == Author::Model => {
                    self.losses.count(lost::MEDIA);
                    Some(json!({"type": "text", "text": Block::named(media_type, data)}))
                }
                block => self.content(block),
            };
            let Some(block) = block else { continue };
            if message.author != Author::Model && str_at(&block, "type") != "tool_use" {
                others.push(block);
                continue;
            }
            if !others.is_empty() {
                self.user(std::mem::take(&mut others), message, out);
            }
            self.answer(&block, message, out);
        }
        if !others.is_empty() {
            self.user(others, message, out);
        }
    }

    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok((line, _)) = read::<Line>(record) else { return false };
        let Some(uuid) = line.source_id().filter(|_| line.is_chained()) else { return false };
        if self.seen.contains(&key(uuid)) {
            // The line stands there already, and a second one of its id would tie the chain into a knot.
            return true;
        }
        let is_boundary = line.subtype.is("compact_boundary");
        let before = json!(self.last);
        let (id, main) = (json!(self.id), json!(self.agent.is_some()));
        let mut changes = Vec::new();
        if line.session_id.as_deref() != Some(&self.id) {
            changes.push(("sessionId", &id));
        }
        if line.is_sidechain.0 != self.agent.is_some() {
            changes.push(("isSidechain", &main));
        }
        let is_linked = match &line.parent_uuid {
            Link::To(parent) => self.seen.contains(&key(parent)),
            Link::Null | Link::Absent => self.last.is_none() || is_boundary,
        };
        if !is_linked {
            changes.push(("parentUuid", &before));
        }
        if is_boundary && line.logical_parent_uuid.as_deref().is_some_and(|parent| !self.seen.contains(&key(parent))) {
            changes.push(("logicalParentUuid", &before));
        }
        let Some(bytes) = with_values(record, &changes) else { return false };
        out.extend_from_slice(&bytes);
        out.push(b'\n');
        self.written += 1;
        self.note(&line);
        true
    }

    fn keep(&mut self, record: &[u8]) -> bool {
        if let Ok((line, _)) = read::<Line>(record)
            && line.is_chained()
            && line.is_sidechain.0 == self.agent.is_some()
        {
            self.note(&line);
        }
        self.written += 1;
        true
    }

    fn gap(&mut self, id: Option<&str>, out: &mut Vec<u8>) {
        let fields = vec![("subtype", json!("informational")), ("content", json!(TAKEN)), ("level", json!("info"))];
        match id {
            Some(id) => self.line_named("system", id.to_owned(), fields, out),
            None => self.line("system", fields, out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.calls.finish(&mut self.losses);
        if let Some(title) = &self.session.title {
            write_line(&json!({"type": "custom-title", "customTitle": title, "sessionId": self.id}), out);
        }
        Written { companions: Vec::new(), losses: self.losses.take() }
    }
}

/// Tokens as Claude counts them: what came from the cache stands beside what was read anew.
fn tokens(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::folder;

    #[test]
    fn a_folder_is_named_after_its_path() {
        assert_eq!(folder(Path::new("/tmp/ag/proj")).unwrap(), "-tmp-ag-proj");
        assert_eq!(folder(Path::new("/w/a_b.c/é/😀")).unwrap(), "-w-a-b-c-----");
        let long = folder(Path::new(&format!("/{}", "x".repeat(300)))).unwrap();
        assert_eq!(long.len(), 209);
    }
}
