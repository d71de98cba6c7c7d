//! Writes a session as the document that `goose session import` takes.

use std::path::Path;

use serde_json::{Value, json};
use threadkeep::Timestamp;

use crate::conversation::{Author, Block, MediaData, Message, Standing};
use crate::writer::{
    Answers, Calls, Losses, NOWHERE, Paired, Pairing, Session, Waits, WholeAnswer, Writer, Written, is_picture, lost,
    time,
};

/// The name of a session that has none.
const UNNAMED: &str = "Imported session";

/// The name that goose gives the session when it takes it in, and finds it by: it makes an id of its own.
pub(super) fn name(session: &Session) -> String {
    let named = [&session.title, &session.preview].into_iter().flatten();
    let mut names = named.map(|name| name.trim()).filter(|name| !name.is_empty());
    names.next().unwrap_or(UNNAMED).to_owned()
}

/// Writes whole elements of the conversation; an answer is written when its calls have their results.
///
/// Whether the model is still to see a message is only known when no summary follows it, so what was said since the last summary is
/// held until then.
#[derive(Debug)]
pub(super) struct GooseWriter {
    session: Session,
    answers: Answers,
    losses: Losses,
    held: Vec<Held>,
    written: u64,
    /// Messages are put in the order of their times, so these never fall: seconds since the epoch.
    at: i64,
}

/// A message that may yet be hidden from the model.
#[derive(Debug)]
struct Held {
    /// The element without its last key and its end.
    begun: String,
    user_visible: bool,
}

/// Who speaks in a message, as goose has it.
const USER: &str = "user";
const ASSISTANT: &str = "assistant";

impl GooseWriter {
    pub(super) fn writer(session: &Session) -> Paired<Self> {
        let (answers, losses) = (Answers::default(), Losses::default());
        let at = session.created_at.millis().div_euclid(1_000).max(0);
        Paired::new(Self { session: session.clone(), answers, losses, held: Vec::new(), written: 0, at })
    }

    fn hold(&mut self, role: &str, content: Vec<Value>, at: Option<Timestamp>, user_visible: bool) {
        self.at = self.at.max(at.map_or(0, |at| at.millis().div_euclid(1_000)));
        let number = self.written + self.held.len() as u64;
        let id = format!("msg_{}", self.session.made("message", number));
        let (id, role, content) = (json!(id), json!(role), Value::Array(content));
        let begun = format!("{{\"id\":{id},\"role\":{role},\"created\":{},\"content\":{content}", self.at);
        self.held.push(Held { begun, user_visible });
    }

    /// Writes what is held.
    fn release(&mut self, agent_visible: bool, out: &mut Vec<u8>) {
        for Held { begun, user_visible } in std::mem::take(&mut self.held) {
            if self.written > 0 {
                out.extend_from_slice(b",\n");
            }
            self.written += 1;
            let metadata = json!({"userVisible": user_visible, "agentVisible": agent_visible});
            out.extend_from_slice(format!("{begun},\"metadata\":{metadata}}}").as_bytes());
        }
    }

    fn answers(&mut self) {
        for answer in self.answers.take(&mut self.losses) {
            self.answer(answer);
        }
    }

    fn answer(&mut self, answer: WholeAnswer) {
        self.losses.add(lost::USAGE, u64::from(answer.usage.is_some()));
        self.losses.add(lost::MODELS, u64::from(answer.model.is_some()));
        let mut content = Vec::new();
        if !answer.text.is_empty() {
            content.push(text(&answer.text));
        }
        let mut results = Vec::new();
        for made in answer.calls {
            let value = json!({"name": made.name, "arguments": made.input});
            content
                .push(json!({"type": "toolRequest", "id": made.id, "toolCall": {"status": "success", "value": value}}));
            let (said, is_error) = made.result.unwrap_or_default();
            let mut said: Vec<Value> = said.iter().filter_map(|block| self.output(block)).collect();
            if said.is_empty() {
                // A result without any content may be refused.
                said.push(text(""));
            }
            let value = json!({"content": said, "isError": is_error});
            results.push(
                json!({"type": "toolResponse", "id": made.id, "toolResult": {"status": "success", "value": value}}),
            );
        }
        self.hold(ASSISTANT, content, answer.at, true);
        if !results.is_empty() {
            self.hold(USER, results, answer.at, true);
        }
    }

    /// What stands in a result, which may be blank.
    fn output(&mut self, block: &Block) -> Option<Value> {
        if let Block::Text(said) = block { Some(text(said)) } else { self.piece(block) }
    }

    /// What stands in a message; nothing for what is blank.
    fn piece(&mut self, block: &Block) -> Option<Value> {
        match block {
            Block::Text(said) if said.trim().is_empty() => {
                self.losses.count(lost::EMPTY);
                None
            }
            Block::Text(said) => Some(text(said)),
            Block::Media { media_type, data: data @ MediaData::Base64(bytes) } if is_picture(media_type, data) => {
                Some(json!({"type": "image", "data": bytes, "mimeType": media_type}))
            }
            Block::Media { media_type, data } => {
                self.losses.count(lost::MEDIA);
                Some(text(&Block::named(media_type, data)))
            }
            Block::Reasoning { .. } => {
                self.losses.count(lost::THOUGHTS);
                None
            }
            Block::Call { .. } | Block::Result { .. } => None,
        }
    }

    /// A summary stands for all that was said before it, which the person still sees and the model no longer does.
    fn summary(&mut self, message: &Message, out: &mut Vec<u8>) {
        let content: Vec<Value> = message.blocks.iter().filter_map(|block| self.piece(block)).collect();
        if content.is_empty() {
            return;
        }
        self.answers();
        self.release(false, out);
        self.hold(USER, content, message.created_at, false);
    }
}

impl Pairing for GooseWriter {
    const WAITS: Waits = Waits::Nothing;

    fn calls(&self) -> &Calls {
        self.answers.calls()
    }

    fn give_up(&mut self, _out: &mut Vec<u8>) {
        self.answers();
    }
}

impl Writer for GooseWriter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let session = &self.session;
        let folder = session.cwd.as_deref().and_then(Path::to_str).unwrap_or(NOWHERE);
        let head = [
            ("id", json!(session.id)),
            ("working_dir", json!(folder)),
            ("name", json!(name(session))),
            // Or it would be given another one, and not be found by this.
            ("user_set_name", json!(true)),
            ("session_type", json!("user")),
            ("created_at", json!(time(session.created_at))),
            ("updated_at", json!(time(session.updated_at))),
            ("extension_data", json!({})),
        ];
        let head: Vec<String> = head.iter().map(|(key, value)| format!("\"{key}\":{value},")).collect();
        out.extend_from_slice(format!("{{{}\"conversation\":[\n", head.concat()).as_bytes());
    }

    fn message(&mut self, message: &Message, out: &mut Vec<u8>) {
        match (message.author, message.standing) {
            (_, Standing::Summary) => return self.summary(message, out),
            (Author::System, _) => return self.losses.count(lost::INSTRUCTIONS),
            _ => {}
        }
        let mut content = Vec::new();
        for block in &message.blocks {
            match block {
                Block::Call { id, name, input } => self.answers.call(id, name, input, message, &mut self.losses),
                Block::Result { id, content, is_error } => {
                    self.answers.result(id, content, *is_error, &mut self.losses);
                }
                block if message.author == Author::Model => self.answers.spoken(block, message, &mut self.losses),
                block => content.extend(self.piece(block)),
            }
        }
        if !content.is_empty() {
            self.answers();
            self.hold(USER, content, message.created_at, message.standing != Standing::Injected);
        } else if self.answers.are_settled() {
            self.answers();
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Written {
        self.answers();
        self.release(true, out);
        out.extend_from_slice(format!("\n],\"message_count\":{}}}\n", self.written).as_bytes());
        Written { companions: Vec::new(), losses: self.losses.take() }
    }
}

fn text(said: &str) -> Value {
    json!({"type": "text", "text": said})
}
