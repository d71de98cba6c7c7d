//! Writes a session as the document that `opencode import` takes.

use std::path::Path;

use serde_json::{Map, Value, json};
use threadkeep::{Timestamp, Usage};

use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::json::{read, str_at, u64_at, word_at};
use crate::writer::{
    Answers, Calls, Losses, Paired, Pairing, Session, Waits, WholeAnswer, Writer, Written, is_picture, lost, texts,
};

/// The version that is claimed where the thread came from another agent.
const VERSION: &str = "1.18.33";
/// What the program wants to be named; it puts its own folder in their place.
const NO_FOLDER: &str = "/";

/// The session's id in the form that the program wants: itself where it has it, else one that is made from it.
pub(super) fn session_id(session: &Session) -> String {
    let fits = session.id.strip_prefix("ses_").is_some_and(|id| {
        !id.is_empty() && id.len() <= 60 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    });
    if fits {
        return session.id.clone();
    }
    // The newest is to sort first.
    let at = millis(session.created_at).saturating_mul(0x1000);
    format!("ses_{:012x}{}", !at & 0xffff_ffff_ffff, tail(session, "session", 0))
}

/// The part of an id that tells it from others of the same time.
fn tail(session: &Session, what: &str, number: u64) -> String {
    session.made(what, number).simple().to_string().chars().take(14).collect()
}

fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.millis()).unwrap_or(0)
}

/// Writes whole elements of the array of messages; an answer is written when its calls have their results.
#[derive(Debug)]
pub(super) struct OpenCodeWriter {
    session: Session,
    id: String,
    answers: Answers,
    losses: Losses,
    /// Messages and parts that were written: their ids rise with it.
    written: u64,
    is_first: bool,
    /// The message that answers belong to.
    prompt: Option<String>,
    /// Messages are put in the order of their times, so these never fall.
    at: u64,
}

impl OpenCodeWriter {
    pub(super) fn writer(session: &Session) -> Paired<Self> {
        let (id, at) = (session_id(session), millis(session.created_at));
        let (answers, losses) = (Answers::default(), Losses::default());
        Paired::new(Self {
            session: session.clone(),
            id,
            answers,
            losses,
            written: 0,
            is_first: true,
            prompt: None,
            at,
        })
    }

    /// An id that is greater than all before it.
    fn made(&mut self, kind: &str) -> String {
        self.written += 1;
        // Behind all ids of records that stand before it: those have been made in their own milliseconds.
        let at = self.at.saturating_add(1).saturating_mul(0x1000).saturating_add(self.written);
        format!("{kind}_{:012x}{}", at & 0xffff_ffff_ffff, tail(&self.session, kind, self.written))
    }

    fn folder(&self) -> &str {
        self.session.cwd.as_deref().and_then(Path::to_str).unwrap_or(NO_FOLDER)
    }

    fn model(&self, model: Option<&str>) -> (String, String) {
        let model = model.or(self.session.model.as_deref()).unwrap_or("unknown").to_owned();
        (self.session.provider.clone().unwrap_or_else(|| "unknown".to_owned()), model)
    }

    fn pass(&mut self, at: Option<Timestamp>) -> u64 {
        self.at = self.at.max(at.map_or(0, millis));
        self.at
    }

    fn element(&mut self, info: &Value, parts: Vec<Map<String, Value>>, out: &mut Vec<u8>) {
        let message = info.get("id").cloned().unwrap_or_default();
        let mut list = Vec::new();
        for mut part in parts {
            part.insert("id".to_owned(), json!(self.made("prt")));
            part.insert("sessionID".to_owned(), json!(self.id));
            part.insert("messageID".to_owned(), message.clone());
            list.push(Value::Object(part));
        }
        self.put(&json!({"info": info, "parts": list}), out);
    }

    fn put(&mut self, element: &Value, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_first) {
            out.extend_from_slice(b",\n");
        }
        out.extend_from_slice(element.to_string().as_bytes());
    }

    fn user(&mut self, parts: Vec<Map<String, Value>>, at: Option<Timestamp>, out: &mut Vec<u8>) {
        let (provider, model) = self.model(None);
        let at = self.pass(at);
        let id = self.made("msg");
        let info = json!({
            "id": id, "sessionID": self.id, "role": "user", "time": {"created": at}, "agent": "build",
            "model": {"providerID": provider, "modelID": model},
        });
        self.prompt = Some(id);
        self.element(&info, parts, out);
    }

    fn assistant(&mut self, answer: WholeAnswer, is_summary: bool, out: &mut Vec<u8>) {
        // An answer belongs to a prompt, even where the session begins with one.
        if self.prompt.is_none() {
            self.user(Vec::new(), answer.at, out);
        }
        let (provider, model) = self.model(answer.model.as_deref());
        let at = self.pass(answer.at);
        let id = self.made("msg");
        let finish = if answer.calls.is_empty() { "stop" } else { "tool-calls" };
        let mut info = json!({
            "id": id, "sessionID": self.id, "role": "assistant", "time": {"created": at, "completed": at},
            "parentID": self.prompt, "modelID": model, "providerID": provider, "mode": "build", "agent": "build",
            "path": {"cwd": self.folder(), "root": self.folder()}, "cost": 0, "finish": finish,
            "tokens": tokens(answer.usage.unwrap_or_default()),
        });
        if let Some(fields) = info.as_object_mut().filter(|_| is_summary) {
            fields.insert("summary".to_owned(), json!(true));
        }
        let mut parts = Vec::new();
        if !answer.text.is_empty() {
            parts.push(fields(json!({"type": "text", "text": answer.text, "time": {"start": at, "end": at}})));
        }
        for made in answer.calls {
            let (content, is_error) = made.result.unwrap_or_default();
            let (output, files) = self.output(&content);
            let when = json!({"start": at, "end": at});
            let mut state = if is_error {
                json!({"status": "error", "input": made.input, "error": output, "time": when})
            } else {
                json!({"status": "completed", "input": made.input, "output": output, "title": "", "metadata": {}, "time": when})
            };
            if let Some(state) = state.as_object_mut().filter(|_| !files.is_empty() && !is_error) {
                state.insert("attachments".to_owned(), self.attached(files, &id));
            }
            parts.push(fields(json!({"type": "tool", "callID": made.id, "tool": made.name, "state": state})));
        }
        self.element(&info, parts, out);
    }

    /// What a result says, and the pictures that it shows.
    fn output(&mut self, content: &[Block]) -> (String, Vec<Map<String, Value>>) {
        let is_shown =
            |block: &&Block| matches!(block, Block::Media { media_type, data } if is_picture(media_type, data));
        let shown = content.iter().filter(is_shown).filter_map(file).collect();
        let said: Vec<Block> = content.iter().filter(|block| !is_shown(block)).cloned().collect();
        (texts(&said, &mut self.losses), shown)
    }

    fn attached(&mut self, files: Vec<Map<String, Value>>, message: &str) -> Value {
        let with_ids = files.into_iter().map(|mut file| {
            file.insert("id".to_owned(), json!(self.made("prt")));
            file.insert("sessionID".to_owned(), json!(self.id));
            file.insert("messageID".to_owned(), json!(message));
            Value::Object(file)
        });
        Value::Array(with_ids.collect())
    }

    fn answers(&mut self, out: &mut Vec<u8>) {
        for answer in self.answers.take(&mut self.losses) {
            self.assistant(answer, false, out);
        }
    }

    /// What stands in a person's message; nothing for what is blank.
    fn piece(&mut self, block: &Block) -> Option<Map<String, Value>> {
        match block {
            Block::Text(text) if text.trim().is_empty() => {
                self.losses.count(lost::EMPTY);
                None
            }
            Block::Text(text) => Some(fields(json!({"type": "text", "text": text}))),
            Block::Media { media_type, data } if is_picture(media_type, data) => file(block),
            Block::Media { media_type, data } => {
                self.losses.count(lost::MEDIA);
                Some(fields(json!({"type": "text", "text": Block::named(media_type, data)})))
            }
            Block::Reasoning { .. } => {
                self.losses.count(lost::THOUGHTS);
                None
            }
            Block::Call { .. } | Block::Result { .. } => None,
        }
    }

    fn summary(&mut self, message: &Message, out: &mut Vec<u8>) {
        let text = texts(&message.blocks, &mut self.losses);
        if text.trim().is_empty() {
            return self.losses.count(lost::EMPTY);
        }
        self.answers(out);
        self.user(vec![fields(json!({"type": "compaction", "auto": false}))], message.created_at, out);
        let (calls, at) = (Vec::new(), message.created_at);
        self.assistant(WholeAnswer { text, calls, at, model: None, usage: None }, true, out);
    }
}

impl Pairing for OpenCodeWriter {
    const WAITS: Waits = Waits::Nothing;

    fn calls(&self) -> &Calls {
        self.answers.calls()
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.answers(out);
    }
}

impl Writer for OpenCodeWriter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let session = &self.session;
        let title = session.title.as_deref().or(session.preview.as_deref()).unwrap_or("Imported session");
        let info = json!({
            "id": self.id, "slug": "threadkeep", "projectID": "global", "directory": self.folder(), "title": title,
            "version": session.cli_version.as_deref().unwrap_or(VERSION),
            "time": {"created": millis(session.created_at), "updated": millis(session.updated_at)},
        });
        out.extend_from_slice(format!("{{\"info\":{info},\"messages\":[\n").as_bytes());
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        match (message.author, message.standing) {
            (_, Standing::Summary) => return self.summary(message, out),
            (Author::System, _) => return self.losses.count(lost::INSTRUCTIONS),
            _ => {}
        }
        let mut parts = Vec::new();
        for block in &message.blocks {
            match block {
                Block::Call { id, name, input } => self.answers.call(id, name, input, message, &mut self.losses),
                Block::Result { id, content, is_error } => {
                    self.answers.result(id, content, *is_error, &mut self.losses);
                }
                block if message.author == Author::Model => self.answers.spoken(block, message, &mut self.losses),
                block => parts.extend(self.piece(block)),
            }
        }
        if !parts.is_empty() {
            self.answers(out);
            if message.standing == Standing::Injected {
                for part in &mut parts {
                    part.insert("synthetic".to_owned(), json!(true));
                }
            }
            self.user(parts, message.created_at, out);
        } else if self.answers.are_settled() {
            self.answers(out);
        }
    }

    fn carry(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok((record, _)) = read::<Value>(record) else { return false };
        let Some(element) = own(&record, &self.id) else { return false };
        self.answers(out);
        let info = element.get("info").unwrap_or(&Value::Null);
        self.at = self.at.max(u64_at(info.get("time").unwrap_or(&Value::Null), "created"));
        if str_at(info, "role") == "user" {
            self.prompt = word_at(info, "id").map(str::to_owned);
        }
        self.put(&element, out);
        true
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.answers(out);
        out.extend_from_slice(b"\n]}\n");
        Written { companions: Vec::new(), losses: self.losses.take() }
    }
}

/// A message of this session as the program takes it, of whichever form it lay in; nothing for one of another session, since ids are of
/// one session alone, and for one that lacks what the program wants: it leaves off in the middle then.
fn own(record: &Value, session: &str) -> Option<Value> {
    let inner = ["info", "json", "data"].iter().find_map(|key| record.get(key)?.as_object())?;
    let mut info = inner.clone();
    let id = word_at(record, "id").map(str::to_owned).or_else(|| Some(inner.get("id")?.as_str()?.to_owned()))?;
    let of = inner.get("sessionID").or_else(|| record.get("session_id")).and_then(Value::as_str);
    let wanted: &[&str] = match inner.get("role")?.as_str()? {
        "user" => &["time", "agent", "model"],
        "assistant" => &["time", "parentID", "modelID", "providerID", "mode", "agent", "path", "cost", "tokens"],
        _ => return None,
    };
    if of != Some(session) || wanted.iter().any(|key| !inner.contains_key(*key)) {
        return None;
    }
    info.insert("id".to_owned(), json!(id));
    info.insert("sessionID".to_owned(), json!(session));
    let mut parts = Vec::new();
    for part in record.get("parts").and_then(Value::as_array).into_iter().flatten() {
        let mut body = ["json", "data"].iter().find_map(|key| part.get(key)?.as_object()).or(part.as_object())?.clone();
        let part_id = body.get("id").or_else(|| part.get("id"))?.clone();
        body.insert("id".to_owned(), part_id);
        body.insert("sessionID".to_owned(), json!(session));
        body.insert("messageID".to_owned(), json!(id));
        parts.push(Value::Object(body));
    }
    Some(json!({"info": info, "parts": parts}))
}

fn tokens(usage: Usage) -> Value {
    json!({
        "input": usage.input.saturating_sub(usage.cached), "output": usage.output.saturating_sub(usage.reasoning),
        "reasoning": usage.reasoning, "cache": {"read": usage.cached, "write": 0},
    })
}

fn file(block: &Block) -> Option<Map<String, Value>> {
    let Block::Media { media_type, data } = block else { return None };
    let url = match data {
        MediaData::Base64(data) => format!("data:{media_type};base64,{data}"),
        MediaData::Reference(url) => url.clone(),
        MediaData::Absent => return None,
    };
    let mime = if media_type.contains('/') { media_type } else { "image/png" };
    Some(fields(json!({"type": "file", "mime": mime, "url": url})))
}

fn fields(value: Value) -> Map<String, Value> {
    if let Value::Object(fields) = value { fields } else { Map::new() }
}
