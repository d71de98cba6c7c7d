//! One record of a Gemini CLI session, and what it is.

use serde::Deserialize;

use super::live::{Gathered, Known};
use crate::json::{Blocks, Number, Object, Present, Said, Word};

/// What the agent puts before the conversation.
const INJECTED: [&str; 3] = ["<session_context>", "<hook_context>", "<environment_context>"];

/// The keys of a record, of a header, and of a change of either.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Line {
    pub(super) id: Word,
    pub(super) timestamp: Word,
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) content: Blocks<Piece>,
    pub(super) thoughts: Blocks<Thought>,
    pub(super) tool_calls: Blocks<Call>,
    pub(super) tokens: Object<Tokens>,
    pub(super) model: Word,
    /// Of a saved chat, in the words of the API.
    role: Word,
    parts: Blocks<Piece>,
    pub(super) session_id: Word,
    project_hash: Word,
    pub(super) start_time: Word,
    pub(super) last_updated: Word,
    pub(super) summary: Word,
    #[serde(rename = "kind")]
    pub(super) session_kind: Word,
    #[serde(rename = "$set")]
    pub(super) set: Object<Set>,
    #[serde(rename = "$rewindTo")]
    pub(super) rewind_to: Word,
    /// Keys of other agents' records.
    uuid: Present,
    message: Present,
}

/// What a `$set` changes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Set {
    pub(super) messages: Blocks<Member>,
    pub(super) summary: Word,
    pub(super) session_id: Word,
    pub(super) last_updated: Word,
}

impl Set {
    /// Whether the list says something that is to stand in the place of what was said before.
    pub(super) fn replaces(&self) -> bool {
        self.messages.iter().any(|member| !is_injected(&member.content))
    }
}

/// A message within a `$set`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    pub(super) id: Word,
    content: Blocks<Piece>,
}

impl Member {
    /// Whether no one says anything in it: it is the agent's own, or results that stand in their calls.
    pub(super) fn says_nothing(&self) -> bool {
        is_injected(&self.content) || self.content.iter().all(|piece| piece.function_response.0.is_some())
    }
}

/// A part of what was said.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Piece {
    pub(super) text: Said,
    pub(super) function_response: Object<Call>,
    function_call: Object<Call>,
    inline_data: Present,
    file_data: Present,
}

/// A call of a tool, or the answer to one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Call {
    pub(super) id: Word,
    pub(super) result: Present,
    status: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Thought {}

/// Tokens of one answer.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    input: Number,
    output: Number,
    cached: Number,
    thoughts: Number,
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A person's words.
    Prompt,
    /// What the agent put into the person's mouth.
    Context,
    /// What the model said.
    Answer,
    /// The calls of an answer that stands before, with their results.
    Calls,
    /// Results of calls, as they go to the model.
    Results,
    /// All messages, in the place of those before.
    Set,
    /// A message that is taken back, with all that follows.
    Rewind,
    /// Something else that happened.
    Event,
    /// It has no place in the conversation.
    Beside,
}

impl Line {
    pub(super) fn is_header(&self) -> bool {
        self.kind.0.is_none()
            && self.session_id.0.is_some()
            && (self.project_hash.0.is_some() || self.start_time.0.is_some())
    }

    /// Whether the keys are those of another agent's records.
    pub(super) fn is_foreign(&self) -> bool {
        self.uuid.0 || self.message.0
    }

    pub(super) fn is_message(&self) -> bool {
        let kinds = ["user", "gemini", "info", "error", "warning"];
        self.id.0.is_some() && self.kind.as_deref().is_some_and(|kind| kinds.contains(&kind))
    }

    /// What the record is; nothing when it is none. `known` is the record that its id stands at already; `is_told` says that it lists
    /// what stands already.
    pub(super) fn classify(&self, known: Option<Known>, gathered: &Gathered, is_told: bool) -> Option<Class> {
        if let Some(set) = &self.set.0 {
            let context = set.messages.iter().all(|member| is_injected(&member.content));
            return Some(match set.messages.iter().next() {
                None => Class::Beside,
                Some(_) if is_told => Class::Beside,
                Some(_) if context => Class::Context,
                Some(_) => Class::Set,
            });
        }
        if self.rewind_to.0.is_some() {
            return Some(Class::Rewind);
        }
        if let Some(known) = known {
            let adds_words = !known.has_text && has_text(&self.content);
            return Some(match self.tool_calls.iter().next() {
                Some(_) => Class::Calls,
                None if adds_words => Class::Answer,
                None => Class::Beside,
            });
        }
        match self.kind.as_deref().or(self.role.as_deref()) {
            Some("user" | "function" | "tool") => Some(self.of_user(gathered)),
            Some("gemini" | "model") => Some(self.of_model()),
            Some(_) => Some(Class::Event),
            None if self.is_header() || self.last_updated.0.is_some() => Some(Class::Beside),
            None => None,
        }
    }

    fn of_user(&self, gathered: &Gathered) -> Class {
        let mut answers = self.answers().peekable();
        if answers.peek().is_some() {
            // What stands in the call already is not shown twice.
            return if answers.all(|id| gathered.has_answer(id)) { Class::Event } else { Class::Results };
        }
        if is_injected(self.said()) { Class::Context } else { Class::Prompt }
    }

    fn of_model(&self) -> Class {
        let says = has_text(self.said()) || self.thoughts.iter().next().is_some();
        if !says && self.tool_calls.iter().next().is_some() { Class::Calls } else { Class::Answer }
    }

    /// What was said, under the key of either form.
    pub(super) fn said(&self) -> &Blocks<Piece> {
        if matches!(self.content, Blocks::None) { &self.parts } else { &self.content }
    }

    /// The calls that a message of results answers.
    pub(super) fn answers(&self) -> impl Iterator<Item = &str> {
        let responses = self.said().iter().filter_map(|piece| piece.function_response.0.as_ref());
        responses.map(|call| call.id.as_deref().unwrap_or_default())
    }

    /// The words of a prompt.
    pub(super) fn prompt(&self) -> Option<&str> {
        match self.said() {
            Blocks::None => None,
            Blocks::Text(said) => Some(&said.head),
            list @ Blocks::List(_) => {
                let own =
                    list.iter().map(|piece| &piece.text).find(|said| !said.head.is_empty() && !is_injected_text(said));
                Some(own.map_or("[Image]", |said| &said.head))
            }
        }
    }

    pub(super) fn only_thinks(&self) -> bool {
        self.tool_calls.iter().next().is_none() && !has_text(self.said()) && self.thoughts.iter().next().is_some()
    }

    /// Whether the agent is still at work on the message: it calls a tool that has not answered, or says nothing yet.
    pub(super) fn is_open(&self) -> bool {
        let over = ["success", "error", "cancelled"];
        let waits =
            |call: &Call| !call.result.0 && !call.status.as_deref().is_some_and(|status| over.contains(&status));
        let says_nothing = !has_text(&self.content) && self.tool_calls.iter().next().is_none();
        self.kind.is("gemini") && (says_nothing || self.tool_calls.iter().any(waits))
    }

    pub(super) fn usage(&self) -> Option<threadkeep::Usage> {
        self.tokens.0.map(usage)
    }
}

/// Tokens with thoughts counted as written, as they were.
pub(super) fn usage(tokens: Tokens) -> threadkeep::Usage {
    let reasoning = tokens.thoughts.or_zero();
    threadkeep::Usage {
        input: tokens.input.or_zero(),
        cached: tokens.cached.or_zero(),
        output: tokens.output.or_zero().saturating_add(reasoning),
        reasoning,
    }
}

pub(super) fn has_text(content: &Blocks<Piece>) -> bool {
    match content {
        Blocks::None => false,
        Blocks::Text(said) => !said.head.is_empty(),
        list @ Blocks::List(_) => list.iter().any(|piece| {
            !piece.text.head.is_empty() || piece.inline_data.0 || piece.file_data.0 || piece.function_call.0.is_some()
        }),
    }
}

/// Whether nothing in a message is a person's.
fn is_injected(content: &Blocks<Piece>) -> bool {
    match content {
        Blocks::None => true,
        Blocks::Text(said) => said.head.is_empty() || is_injected_text(said),
        list @ Blocks::List(_) => list.iter().all(|piece| {
            let media = piece.inline_data.0 || piece.file_data.0 || piece.function_response.0.is_some();
            !media && (piece.text.head.is_empty() || is_injected_text(&piece.text))
        }),
    }
}

fn is_injected_text(said: &Said) -> bool {
    INJECTED.iter().any(|start| said.head.starts_with(start))
}
