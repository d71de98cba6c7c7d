//! Writes a session as the lines of Gemini CLI.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use threadkeep::Timestamp;

use crate::conversation::{Author, Block, Message, Standing};
use crate::json::write_line;
use crate::writer::{Answers, Companion, Losses, Session, WholeAnswer, Writer, Written, is_picture, lost, texts, time};

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

/// The folder that the agent keeps for a project: named after the last part of its path.
fn folder(session: &Session) -> PathBuf {
    let name = session.cwd.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().to_lowercase());
    let mut slug = String::new();
    for letter in name.unwrap_or_default().chars() {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    Path::new(".gemini/tmp").join(if slug.is_empty() { "project" } else { slug })
}

/// Writes whole lines; an answer is written when its calls have their results.
#[derive(Debug)]
pub(super) struct GeminiWriter {
    session: Session,
    answers: Answers,
    losses: Losses,
    written: u64,
    at: Timestamp,
}

impl GeminiWriter {
    pub(super) fn new(session: &Session) -> Self {
        let at = session.created_at;
        Self { session: session.clone(), answers: Answers::default(), losses: Losses::default(), written: 0, at }
    }

    fn id(&mut self) -> String {
        self.written += 1;
        self.session.made("message", self.written).to_string()
    }

    fn answers(&mut self, out: &mut Vec<u8>) {
        for answer in self.answers.take(&mut self.losses) {
            let line = self.answer(answer);
            write_line(&line, out);
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

impl Writer for GeminiWriter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let session = &self.session;
        let cwd = session.cwd.as_deref().map(|cwd| cwd.to_string_lossy().into_owned()).unwrap_or_default();
        // The program looks at a session's folder and not at this; it is only to be there.
        let project = blake3::hash(cwd.as_bytes()).to_hex().to_string();
        let (start, last) = (time(session.created_at), time(session.updated_at));
        let id = session.uuid().to_string();
        let header =
            json!({"sessionId": id, "projectHash": project, "startTime": start, "lastUpdated": last, "kind": "main"});
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
                write_line(&json!({"$set": {"messages": [said]}}), out);
            } else {
                self.losses.add(lost::INJECTED, u64::from(message.standing == Standing::Injected));
                write_line(&said, out);
            }
        } else if self.answers.are_settled() {
            self.answers(out);
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.answers(out);
        let mut set = json!({"lastUpdated": time(self.session.updated_at)});
        if let (Some(title), Some(fields)) = (&self.session.title, set.as_object_mut()) {
            fields.insert("summary".to_owned(), json!(title));
        }
        write_line(&json!({ "$set": set }), out);
        let marker = |cwd: &PathBuf| Companion {
            path: folder(&self.session).join(".project_root"),
            bytes: cwd.to_string_lossy().into_owned().into_bytes(),
            shared: false,
        };
        let companions = self.session.cwd.iter().map(marker).collect();
        Written { companions, losses: self.losses.take() }
    }
}
