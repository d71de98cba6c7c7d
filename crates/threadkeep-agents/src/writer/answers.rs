//! Answers that wait until their calls have results, for formats that keep a result within its call.

use serde_json::{Value, json};
use threadkeep::{Timestamp, Usage};

use super::calls::{Calls, tool_name};
use super::losses::{Losses, lost};
use crate::conversation::{Block, Message};

/// One answer of the model: its words, then its calls.
#[derive(Debug)]
pub(crate) struct WholeAnswer {
    pub(crate) text: String,
    pub(crate) calls: Vec<Made>,
    pub(crate) at: Option<Timestamp>,
    pub(crate) model: Option<String>,
    pub(crate) usage: Option<Usage>,
}

/// A call with its result.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Always an object.
    pub(crate) input: Value,
    /// What came back, and whether the tool failed; nothing until then.
    pub(crate) result: Option<(Vec<Block>, bool)>,
}

/// Gathers answers until all of their calls have results.
///
/// Guarantees: a call has one result or is left out; ids are as [`Calls`] makes them; a text behind a call begins another answer.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    waiting: Vec<WholeAnswer>,
    calls: Calls,
}

impl Answers {
    /// What the model said, for agents that keep no thoughts of other models and no pictures in answers: those are named.
    pub(crate) fn spoken(&mut self, block: &Block, message: &Message, losses: &mut Losses) {
        match block {
            Block::Text(text) if text.trim().is_empty() => losses.count(lost::EMPTY),
            Block::Text(text) => self.text(text, message),
            Block::Media { media_type, data } => {
                losses.count(lost::MEDIA);
                self.text(&Block::named(media_type, data), message);
            }
            Block::Reasoning { .. } => losses.count(lost::THOUGHTS),
            Block::Call { .. } | Block::Result { .. } => {}
        }
    }

    /// Words of the model.
    pub(crate) fn text(&mut self, text: &str, message: &Message) {
        match self.waiting.last_mut().filter(|answer| answer.calls.is_empty()) {
            Some(answer) => {
                answer.text.push_str("\n\n");
                answer.text.push_str(text);
            }
            None => self.waiting.push(WholeAnswer { text: text.to_owned(), ..begun(message) }),
        }
    }

    /// A call of the model.
    pub(crate) fn call(&mut self, id: &str, name: &str, input: &Value, message: &Message, losses: &mut Losses) {
        let id = self.calls.call(id, false, losses);
        let name = tool_name(name, losses);
        let input = match input {
            Value::Object(_) => input.clone(),
            other => {
                losses.count(lost::ARGUMENTS);
                json!({ "input": other })
            }
        };
        let made = Made { id, name, input, result: None };
        match self.waiting.last_mut() {
            Some(answer) => answer.calls.push(made),
            None => self.waiting.push(WholeAnswer { calls: vec![made], ..begun(message) }),
        }
    }

    /// The result of a call.
    pub(crate) fn result(&mut self, id: &str, content: &[Block], is_error: bool, losses: &mut Losses) {
        let Some((id, _)) = self.calls.result(id, losses) else { return };
        let mut made = self.waiting.iter_mut().flat_map(|answer| answer.calls.iter_mut());
        if let Some(call) = made.find(|call| call.id == id && call.result.is_none()) {
            call.result = Some((content.to_vec(), is_error));
        }
    }

    /// The calls that were gathered.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Whether all that was gathered can be written.
    pub(crate) fn are_settled(&self) -> bool {
        !self.calls.is_waiting()
    }

    /// Everything that was gathered; calls that nothing has answered are left out, and counted.
    pub(crate) fn take(&mut self, losses: &mut Losses) -> Vec<WholeAnswer> {
        self.calls.finish(losses);
        let mut answers = std::mem::take(&mut self.waiting);
        for answer in &mut answers {
            answer.calls.retain(|call| call.result.is_some());
        }
        answers.retain(|answer| !answer.text.is_empty() || !answer.calls.is_empty());
        answers
    }
}

/// An answer that says nothing yet.
fn begun(message: &Message) -> WholeAnswer {
    let (at, model, usage) = (message.created_at, message.model.clone(), message.usage);
    WholeAnswer { text: String::new(), calls: Vec::new(), at, model, usage }
}

/// The texts of a result, with what is no text named where it stood.
pub(crate) fn texts(content: &[Block], losses: &mut Losses) -> String {
    let mut text = |block: &Block| match block {
        Block::Text(text) => Some(text.clone()),
        Block::Media { media_type, data } => {
            losses.count(lost::MEDIA);
            Some(Block::named(media_type, data))
        }
        _ => None,
    };
    content.iter().filter_map(&mut text).collect::<Vec<_>>().join("\n")
}
