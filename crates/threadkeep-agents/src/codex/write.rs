//! Writing a session as a rollout of Codex.
//!
//! Its program lists a rollout that has a `user_message` beside the items, reads the conversation from the items alone, and refuses
//! one that names another provider of models than the one in use; so none is named.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use threadkeep::Timestamp;
use uuid::Uuid;

use super::line::{Class, Line, Part, Reading, Shape};
use super::message::{kind_of, plain_output};
use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{read, str_at, with_values, write_line};
use crate::writer::{Calls, Companion, Losses, Session, Writer, Written, is_picture, lost, time, tool_name};

/// The version whose form of lines is written, where the session names none.
const VERSION: &str = "0.100.0";
/// The folder of a session that names none; the program wants one.
const NO_FOLDER: &str = "/";

/// Where a rollout belongs: below the day on which the session began.
pub(super) fn place(session: &Session) -> PathBuf {
    let at = time(session.created_at);
    let (date, clock) = at.split_once('T').unwrap_or((&at, ""));
    let clock = clock.get(..8).unwrap_or_default().replace(':', "-");
    let day: PathBuf = date.split('-').collect();
    Path::new("sessions").join(day).join(format!("rollout-{date}T{clock}-{}.jsonl", session.uuid()))
}

/// Writes the lines.
pub(super) struct CodexWriter {
    session: Session,
    id: String,
    /// Whether the line that says what the session is has yet to be written.
    is_headless: bool,
    /// Whether nothing stands in the file yet.
    is_bare: bool,
    /// The number of the next line, in files that number theirs.
    ordinal: Option<u64>,
    items: u64,
    at: Timestamp,
    calls: Calls,
    losses: Losses,
}

impl CodexWriter {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            id: session.uuid().to_string(),
            session: session.clone(),
            is_headless: false,
            is_bare: true,
            ordinal: None,
            items: 0,
            at: session.created_at,
            calls: Calls::default(),
            losses: Losses::default(),
        }
    }

    fn line(&mut self, kind: &str, payload: Value, out: &mut Vec<u8>) {
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), json!(time(self.at)));
        if let Some(ordinal) = self.ordinal {
            line.insert("ordinal".to_owned(), json!(ordinal));
            self.ordinal = Some(ordinal.saturating_add(1));
        }
        line.insert("type".to_owned(), json!(kind));
        line.insert("payload".to_owned(), payload);
        write_line(&Value::Object(line), out);
    }

    /// Says what the session is, if nothing has yet.
    fn head(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_headless) {
            return;
        }
        let session = &self.session;
        let began = time(session.created_at);
        let mut meta = json!({
            "id": self.id,
            "session_id": self.id,
            "timestamp": began,
            "cwd": session.cwd.as_deref().and_then(Path::to_str).unwrap_or(NO_FOLDER),
            "originator": "codex_cli_rs",
            "cli_version": session.cli_version.as_deref().unwrap_or(VERSION),
            "source": "cli",
        });
        let git = [
            ("commit_hash", &session.git_sha),
            ("branch", &session.git_branch),
            ("repository_url", &session.git_origin),
        ];
        let git: Map<String, Value> =
            git.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value.as_ref()?)))).collect();
        if let Some(fields) = meta.as_object_mut() {
            // The program refuses a file that names a session by anything but a UUID.
            if let Some(from) = session.forked_from.as_deref().and_then(|from| Uuid::parse_str(from).ok()) {
                fields.insert("forked_from_id".to_owned(), json!(from));
            }
            if !git.is_empty() {
                fields.insert("git".to_owned(), Value::Object(git));
            }
        }
        let at = std::mem::replace(&mut self.at, session.created_at);
        self.line("session_meta", meta, out);
        self.at = at;
    }

    fn item(&mut self, item: Value, out: &mut Vec<u8>) {
        self.line("response_item", item, out);
    }

    /// What the program shows of words when it opens the session; the model is given the item.
    fn event(&mut self, author: Author, text: &str, out: &mut Vec<u8>) {
        let is_person = author == Author::Person;
        if self.ordinal.is_none() {
            let payload = match is_person {
                true => json!({"type": "user_message", "message": text, "images": []}),
                false => json!({"type": "agent_message", "message": text}),
            };
            return self.line("event_msg", payload, out);
        }
        self.items += 1;
        let id = self.session.made("item", self.ordinal.unwrap_or_default()).to_string();
        let item = match is_person {
            true => {
                json!({"type": "UserMessage", "id": id, "content": [{"type": "text", "text": text, "text_elements": []}]})
            }
            false => json!({"type": "AgentMessage", "id": id, "content": [{"type": "Text", "text": text}]}),
        };
        let turn = self.session.made("turn", self.items).to_string();
        let payload = json!({
            "type": "item_completed",
            "thread_id": self.id,
            "turn_id": turn,
            "item": item,
            "completed_at_ms": self.at.millis(),
        });
        self.line("event_msg", payload, out);
    }

    /// A text or a picture as the model is given it.
    fn content(&mut self, kind: &str, block: &Block) -> Option<Value> {
        match block {
            Block::Text(text) if text.trim().is_empty() => {
                self.losses.count(lost::EMPTY);
                None
            }
            Block::Text(text) => Some(json!({"type": kind, "text": text})),
            Block::Media { media_type, data } if kind == "input_text" && is_picture(media_type, data) => {
                let url = match data {
                    MediaData::Base64(data) => format!("data:{media_type};base64,{data}"),
                    MediaData::Reference(url) => url.clone(),
                    MediaData::Absent => String::new(),
                };
                Some(json!({"type": "input_image", "image_url": url}))
            }
            Block::Media { media_type, data } => {
                self.losses.count(lost::MEDIA);
                Some(json!({"type": kind, "text": Block::named(media_type, data)}))
            }
            Block::Reasoning { .. } => {
                self.losses.count(lost::THOUGHTS);
                None
            }
            Block::Call { .. } | Block::Result { .. } => None,
        }
    }

    /// Words and pictures that stand together in a message.
    fn words(&mut self, content: &mut Vec<Value>, message: &Message, out: &mut Vec<u8>) {
        if content.is_empty() {
            return;
        }
        let texts: Vec<&str> =
            content.iter().map(|part| str_at(part, "text")).filter(|text| !text.is_empty()).collect();
        let text = if texts.is_empty() { "[Image]".to_owned() } else { texts.join("\n") };
        match (message.author, message.standing) {
            (Author::Person | Author::Model, Standing::Said) => self.event(message.author, &text, out),
            _ => self.losses.count(lost::INJECTED),
        }
        let role = if message.author == Author::Model { "assistant" } else { "user" };
        self.item(json!({"type": "message", "role": role, "content": std::mem::take(content)}), out);
    }

    fn call(&mut self, id: &str, name: &str, input: &Value, out: &mut Vec<u8>) {
        let name = tool_name(name, &mut self.losses);
        let is_text = input.is_string();
        let id = self.calls.call(id, is_text, &mut self.losses);
        let item = match input {
            Value::String(text) => json!({"type": "custom_tool_call", "name": name, "input": text, "call_id": id}),
            other => {
                json!({"type": "function_call", "name": name, "arguments": other.to_string(), "call_id": id})
            }
        };
        self.item(item, out);
    }

    fn result(&mut self, id: &str, content: &[Block], is_error: bool, out: &mut Vec<u8>) {
        let Some((id, is_text)) = self.calls.result(id, &mut self.losses) else { return };
        let kind = if is_text { "custom_tool_call_output" } else { "function_call_output" };
        let blocks: Vec<Value> = content.iter().filter_map(|block| self.content("input_text", block)).collect();
        let (words, says_failed) = match blocks.as_slice() {
            [block] => (block.get("text").and_then(Value::as_str), says_failed(str_at(block, "text"))),
            _ => (None, Some(false)),
        };
        if is_error && says_failed != Some(true) {
            self.losses.count(lost::FAILURES);
        }
        let output = match words {
            // A text in a form of the program's own would be read as what it is not.
            Some(text) if says_failed == Some(is_error) || says_failed == Some(false) => json!(text),
            _ if blocks.is_empty() => json!(""),
            _ => Value::Array(blocks),
        };
        self.item(json!({"type": kind, "call_id": id, "output": output}), out);
    }

    fn summary(&mut self, message: &Message, out: &mut Vec<u8>) {
        let content: Vec<Value> = message.blocks.iter().filter_map(|block| self.content("input_text", block)).collect();
        let texts: Vec<&str> =
            content.iter().map(|part| str_at(part, "text")).filter(|text| !text.is_empty()).collect();
        if content.is_empty() {
            return;
        }
        let text = texts.join("\n\n");
        self.calls.finish(&mut self.losses);
        let history = json!([{"type": "message", "role": "user", "content": content}]);
        self.line("compacted", json!({"message": text, "replacement_history": history}), out);
    }

    /// Takes note of a line that stands in the file.
    fn note(&mut self, record: &[u8], reading: &Reading) {
        self.at = reading.created_at.unwrap_or(self.at);
        if let Some(ordinal) = reading.ordinal {
            self.ordinal = Some(ordinal.saturating_add(1));
        }
        if reading.part != Part::Item {
            return;
        }
        let Ok((line, _)) = read::<Value>(record) else { return };
        let item = line.get("payload").unwrap_or(&line);
        let id = str_at(item, "call_id");
        match kind_of(item) {
            _ if id.is_empty() => {}
            "custom_tool_call" => self.calls.keep_call(id, true),
            "function_call" | "local_shell_call" => self.calls.keep_call(id, false),
            kind if kind.ends_with("_output") => self.calls.keep_result(id),
            _ => {}
        }
    }

    /// The head of another session, made this one's.
    fn adopted(&self, record: &[u8]) -> Option<Vec<u8>> {
        let (line, _) = read::<Value>(record).ok()?;
        let mut meta = line.get("payload")?.as_object()?.clone();
        let from = meta.get("id").cloned().unwrap_or_default();
        if from != json!(self.id) {
            meta.insert("id".to_owned(), json!(self.id));
            meta.insert("session_id".to_owned(), json!(self.id));
            if from.as_str().is_some_and(|from| Uuid::parse_str(from).is_ok()) {
                meta.insert("forked_from_id".to_owned(), from);
            }
            meta.insert("timestamp".to_owned(), json!(time(self.session.created_at)));
        }
        meta.shift_remove("history_base");
        meta.shift_remove("forked_from_ordinal_exclusive");
        with_values(record, &[("payload", &Value::Object(meta))])
    }

    /// A record with the number that it has in this file.
    fn numbered(&self, record: &[u8], ordinal: Option<u64>) -> Option<Vec<u8>> {
        match (self.ordinal, ordinal) {
            (Some(next), Some(given)) if next != given => with_values(record, &[("ordinal", &json!(next))]),
            _ => Some(record.to_vec()),
        }
    }
}

impl Writer for CodexWriter {
    fn begin(&mut self, _out: &mut Vec<u8>) {
        self.is_headless = true;
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        self.head(out);
        self.at = message.created_at.unwrap_or(self.at);
        self.losses.add(lost::USAGE, u64::from(message.usage.is_some()));
        self.losses.add(lost::MODELS, u64::from(message.model.is_some()));
        match (message.author, message.standing) {
            (_, Standing::Summary) => return self.summary(message, out),
            (Author::System, _) => return self.losses.count(lost::INSTRUCTIONS),
            _ => {}
        }
        let kind = if message.author == Author::Model { "output_text" } else { "input_text" };
        let mut content = Vec::new();
        for block in &message.blocks {
            match block {
                Block::Call { id, name, input } => {
                    self.words(&mut content, message, out);
                    self.call(id, name, input, out);
                }
                Block::Result { id, content: said, is_error } => {
                    self.words(&mut content, message, out);
                    self.result(id, said, *is_error, out);
                }
                block => content.extend(self.content(kind, block)),
            }
        }
        self.words(&mut content, message, out);
    }

    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok((line, _)) = read::<Line>(record) else { return false };
        let is_enveloped = line.shape() == Shape::Enveloped;
        let Ok(reading) = line.read(record) else { return false };
        if !is_enveloped {
            return false;
        }
        if reading.class == Class::Rollback {
            // What it takes back is not on the way here.
            return true;
        }
        let bytes = if reading.part == Part::Meta {
            if !self.is_headless {
                return true;
            }
            self.adopted(record)
        } else {
            self.head(out);
            self.numbered(record, reading.ordinal)
        };
        let Some(bytes) = bytes else { return false };
        self.is_headless = false;
        out.extend_from_slice(&bytes);
        out.push(b'\n');
        let next = self.ordinal.map(|ordinal| ordinal.saturating_add(1));
        self.note(record, &reading);
        self.ordinal = next.or(self.ordinal);
        true
    }

    fn keep(&mut self, record: &[u8]) -> bool {
        let Ok((line, _)) = read::<Line>(record) else { return true };
        let is_enveloped = line.shape() == Shape::Enveloped;
        let Ok(reading) = line.read(record) else { return true };
        // The program no longer opens files of lines without an envelope, nor those that lost their first line; nor any whose id
        // is no UUID.
        let is_named = reading.payload.id.as_deref().is_some_and(|id| Uuid::parse_str(id).is_ok());
        if std::mem::take(&mut self.is_bare) && !(is_enveloped && reading.part == Part::Meta && is_named) {
            return false;
        }
        self.note(record, &reading);
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.head(out);
        self.calls.finish(&mut self.losses);
        let named = |title: &String| {
            let mut bytes = Vec::new();
            let updated_at = time(self.session.updated_at);
            write_line(&json!({"id": self.id, "thread_name": title, "updated_at": updated_at}), &mut bytes);
            Companion { path: "session_index.jsonl".into(), bytes, shared: true }
        };
        let companions = self.session.title.iter().map(named).collect();
        Written { companions, losses: self.losses.take() }
    }
}

/// Whether a text says by itself that a command failed; nothing where it would not even come back as it is.
fn says_failed(text: &str) -> Option<bool> {
    let (output, failed) = plain_output(text);
    (output == text).then_some(failed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use threadkeep::Timestamp;

    use super::place;
    use crate::writer::Session;

    #[test]
    fn a_rollout_lies_below_the_day_of_its_beginning() {
        let id = "019ce0bb-1111-7222-8333-444455556666";
        let at = Timestamp::parse("2026-03-14T09:05:07.891Z").unwrap();
        let session = Session::new(id, at);
        let name = format!("sessions/2026/03/14/rollout-2026-03-14T09-05-07-{id}.jsonl");
        assert_eq!(place(&session), Path::new(&name));
        let impossible = Session::new("x", Timestamp(i64::MAX));
        assert!(place(&impossible).starts_with("sessions/1970/01/01"));
    }
}
