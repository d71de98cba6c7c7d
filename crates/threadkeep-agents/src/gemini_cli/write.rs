//! Writes a session as the lines of Gemini CLI.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use threadkeep::Timestamp;

use super::line::Line;
use super::project;
use crate::conversation::{Author, Block, Message, Standing};
use crate::json::{compact, read, write_line};
use crate::writer::{
    Answers, Calls, Companion, Losses, Paired, Pairing, Session, Waits, WholeAnswer, Writer, Written, is_picture, lost,
    texts, time,
};

/// Where a session's file belongs below the home directory that the agent is given.
pub(super) fn place(session: &Session) -> PathBuf {
    // The first digits of an id that begins with its time are those of every session of that minute.
    let id = match session.uuid().get_version_num() {
        4 => session.uuid(),
        _ => session.made("file", 0),
    };
    let id = id.to_string();
    let at = time(session.created_at);
    let minute = at.get(..16).unwrap_or_default().replace(':', "-");
    folder(session).join("chats").join(format!("session-{minute}-{}.jsonl", id.get(..8).unwrap_or(&id)))
}

/// The folder that the agent keeps for a project.
fn folder(session: &Session) -> PathBuf {
    let slug = || project::slug(session.cwd.as_deref());
    PathBuf::from(project::TMP).join(session.project.clone().unwrap_or_else(slug))
}

/// Writes whole lines; an answer is written when its calls have their results.
#[derive(Debug)]
pub(super) struct GeminiWriter {
    session: Session,
    answers: Answers,
    losses: Losses,
    written: u64,
    at: Timestamp,
    /// The ids that stand in the file: a message of the same id would take the place of the other.
    ids: HashSet<String>,
    /// Whether the agent's own file stands before what is written.
    is_behind: bool,
    has_lines: bool,
}

impl GeminiWriter {
    pub(super) fn writer(session: &Session) -> Paired<Self> {
        Paired::new(Self {
            session: session.clone(),
            answers: Answers::default(),
            losses: Losses::default(),
            written: 0,
            at: session.created_at,
            ids: HashSet::new(),
            is_behind: false,
            has_lines: false,
        })
    }

    fn id(&mut self) -> String {
        loop {
            self.written += 1;
            let id = self.session.made("message", self.written).to_string();
            if self.ids.insert(id.clone()) {
                return id;
            }
        }
    }

    fn line(&mut self, line: &Value, out: &mut Vec<u8>) {
        self.has_lines = true;
        write_line(line, out);
    }

    fn note(&mut self, line: &Line) {
        self.ids.extend(line.id.0.clone());
        self.at = line.timestamp.as_deref().and_then(Timestamp::parse).unwrap_or(self.at);
    }

    fn answers(&mut self, out: &mut Vec<u8>) {
        for answer in self.answers.take(&mut self.losses) {
            let line = self.answer(answer);
            self.line(&line, out);
        }
    }

    fn answer(&mut self, answer: WholeAnswer) -> Value {
        let at = time(answer.at.unwrap_or(self.at));
        let mut line =
            json!({"id": self.id(), "timestamp": at, "type": "gemini", "content": answer.text, "thoughts": []});
        let Some(fields) = line.as_object_mut() else { return line };
        if let Some(usage) = answer.usage {
            let output = usage.output.saturating_sub(usage.reasoning);
            let total = usage.input.saturating_add(usage.output);
            let tokens = json!({
                "input": usage.input, "output": output, "cached": usage.cached, "thoughts": usage.reasoning,
                "tool": 0, "total": total,
            });
            fields.insert("tokens".to_owned(), tokens);
        }
        if let Some(model) = answer.model.as_ref().or(self.session.model.as_ref()) {
            fields.insert("model".to_owned(), json!(model));
        }
        let mut calls = Vec::new();
        for made in answer.calls {
            let (content, is_error) = made.result.unwrap_or_default();
            let text = texts(&content, &mut self.losses);
            let response = if is_error { json!({"error": text}) } else { json!({"output": text}) };
            let response = json!({"functionResponse": {"id": made.id, "name": made.name, "response": response}});
            let status = if is_error { "error" } else { "success" };
            calls.push(json!({
                "id": made.id, "name": made.name, "args": made.input, "result": [response], "status": status,
                "timestamp": at, "displayName": made.name,
            }));
        }
        if !calls.is_empty() {
            fields.insert("toolCalls".to_owned(), Value::Array(calls));
        }
        line
    }

    /// What stands in a person's message; nothing for what is blank.
    fn piece(&mut self, block: &Block) -> Option<Value> {
        match block {
            Block::Text(text) if text.trim().is_empty() => {
                self.losses.count(lost::EMPTY);
                None
            }
            Block::Text(text) => Some(json!({ "text": text })),
            Block::Media { media_type, data } => Some(match data {
                crate::conversation::MediaData::Base64(data64) if is_picture(media_type, data) => {
                    json!({"inlineData": {"mimeType": media_type, "data": data64}})
                }
                data => {
                    self.losses.count(lost::MEDIA);
                    json!({"text": Block::named(media_type, data)})
                }
            }),
            Block::Reasoning { .. } => {
                self.losses.count(lost::THOUGHTS);
                None
            }
            Block::Call { .. } | Block::Result { .. } => None,
        }
    }

    fn user(&mut self, pieces: &[Value]) -> Value {
        json!({"id": self.id(), "timestamp": time(self.at), "type": "user", "content": pieces})
    }

    fn model(&mut self, block: &Block, message: &Message) {
        match block {
            Block::Text(text) if text.trim().is_empty() => self.losses.count(lost::EMPTY),
            Block::Text(text) => self.answers.text(text, message),
            Block::Media { media_type, data } => {
                self.losses.count(lost::MEDIA);
                self.answers.text(&Block::named(media_type, data), message);
            }
            Block::Reasoning { .. } => self.losses.count(lost::THOUGHTS),
            Block::Call { .. } | Block::Result { .. } => {}
        }
    }
}

impl Pairing for GeminiWriter {
    const WAITS: Waits = Waits::Nothing;

    fn calls(&self) -> &Calls {
        self.answers.calls()
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.answers(out);
    }
}

impl Writer for GeminiWriter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let session = &self.session;
        let cwd = session.cwd.as_deref().map(|cwd| cwd.to_string_lossy().into_owned()).unwrap_or_default();
        // The program looks at a session's folder and not at this; it is only to be there.
        let project = blake3::hash(cwd.as_bytes()).to_hex().to_string();
        let start = time(session.created_at);
        let id = session.uuid().to_string();
        // Without `lastUpdated` it is as new as its file: the program removes at its start what was last gone on with a month ago.
        let header = json!({"sessionId": id, "projectHash": project, "startTime": start, "kind": "main"});
        write_line(&header, out);
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        self.at = message.created_at.unwrap_or(self.at);
        if message.author == Author::System && message.standing != Standing::Summary {
            return self.losses.count(lost::INSTRUCTIONS);
        }
        let mut pieces = Vec::new();
        for block in &message.blocks {
            match block {
                Block::Call { id, name, input } => self.answers.call(id, name, input, message, &mut self.losses),
                Block::Result { id, content, is_error } => {
                    self.answers.result(id, content, *is_error, &mut self.losses);
                }
                block if message.author == Author::Model => self.model(block, message),
                block => pieces.extend(self.piece(block)),
            }
        }
        if !pieces.is_empty() {
            self.answers(out);
            let said = self.user(&pieces);
            if message.standing == Standing::Summary {
                self.line(&json!({"$set": {"messages": [said]}}), out);
            } else {
                self.losses.add(lost::INJECTED, u64::from(message.standing == Standing::Injected));
                self.line(&said, out);
            }
        } else if self.answers.are_settled() {
            self.answers(out);
        }
    }

    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok((line, _)) = read::<Line>(record) else { return false };
        // A list of messages takes the place of all that stands before it, which is its purpose, or there is nothing.
        let is_list = line.set.0.as_ref().is_some_and(|set| set.replaces() || !self.has_lines);
        if !line.is_message() && !is_list {
            return false;
        }
        self.answers(out);
        self.note(&line);
        self.has_lines = true;
        match read::<Value>(record) {
            Ok((mut list, _)) if is_list => {
                let set = list.get_mut("$set").and_then(Value::as_object_mut);
                set.map(|set| set.remove("lastUpdated"));
                write_line(&list, out);
            }
            _ => {
                out.extend_from_slice(&compact(record));
                out.push(b'\n');
            }
        }
        true
    }

    fn keep(&mut self, record: &[u8]) -> bool {
        let Ok((line, _)) = read::<Line>(record) else { return true };
        if line.is_header() && line.session_id.as_deref() != Some(self.session.uuid().to_string().as_str()) {
            return false;
        }
        self.note(&line);
        self.is_behind = true;
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.answers(out);
        let mut set = Map::new();
        if self.is_behind && self.has_lines {
            set.insert("lastUpdated".to_owned(), json!(time(self.session.updated_at)));
        }
        if let Some(title) = &self.session.title {
            set.insert("summary".to_owned(), json!(title));
        }
        if !set.is_empty() {
            write_line(&json!({ "$set": set }), out);
        }
        let marker = |cwd: &PathBuf| Companion {
            path: folder(&self.session).join(project::MARK),
            bytes: cwd.to_string_lossy().into_owned().into_bytes(),
            shared: false,
        };
        let companions = self.session.cwd.iter().map(marker).collect();
        Written { companions, losses: self.losses.take() }
    }
}
