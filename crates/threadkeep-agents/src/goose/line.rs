//! One record of a goose session, and what it is.

use serde::Deserialize;
use threadkeep::Timestamp;

use crate::json::{Blocks, Number, Object, Present, Said, Word, since_epoch};

/// The keys of a message, of a header, and of a session's row.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) table: Word,
    pub(super) id: Word,
    pub(super) message_id: Word,
    role: Word,
    created: Number,
    content: Blocks<Piece>,
    metadata: Object<Metadata>,
    // Of a session.
    pub(super) working_dir: Word,
    pub(super) name: Word,
    pub(super) description: Word,
    pub(super) session_type: Word,
    pub(super) created_at: Word,
    pub(super) updated_at: Word,
    pub(super) archived_at: Word,
    pub(super) provider_name: Word,
    pub(super) model_config: Object<ModelConfig>,
    pub(super) parent_session_id: Word,
    message_count: Present,
    input_tokens: Number,
    output_tokens: Number,
    accumulated_input_tokens: Number,
    accumulated_output_tokens: Number,
    // Keys of other agents' records.
    #[serde(rename = "type")]
    kind: Present,
    message: Present,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModelConfig {
    pub(super) model_name: Word,
}

/// Who is to see a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    user_visible: Shown,
}

/// `true`, unless it says `false`.
#[derive(Debug)]
struct Shown(bool);

impl Default for Shown {
    fn default() -> Self {
        Self(true)
    }
}

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(deserializer).map(|value| Self(value != serde_json::Value::Bool(false)))
    }
}

/// A part of a message: tagged, or of 2024 without a tag.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Piece {
    #[serde(rename = "type")]
    kind: Word,
    text: Said,
    tool_name: Present,
    tool_result: Present,
    data: Present,
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A person's words.
    Prompt,
    /// What the model said, with the calls that it made.
    Answer,
    /// Calls alone.
    Calls,
    /// Results of calls.
    Results,
    /// What the agent put into the conversation.
    Context,
    /// Something else that happened.
    Event,
}

impl Line {
    /// Whether the record is about the session and no message.
    pub(super) fn is_header(&self) -> bool {
        self.table.is("sessions")
            || (self.role.0.is_none()
                && self.working_dir.0.is_some()
                && (self.message_count.0 || self.description.0.is_some()))
    }

    pub(super) fn is_message(&self) -> bool {
        let is_list = matches!(self.content, Blocks::List(_));
        self.role.0.is_some() && self.created.0.is_some() && is_list && !self.kind.0 && !self.message.0
    }

    /// What a message is; nothing when it is nobody's.
    pub(super) fn class(&self) -> Option<Class> {
        let role = self.role.as_deref()?;
        let says = |piece: &Piece| !piece.text.head.is_empty() || piece.kind.is("image") || piece.data.0;
        let answers = |piece: &Piece| piece.kind.is("toolResponse") || piece.tool_result.0;
        let calls = |piece: &Piece| {
            matches!(piece.kind.as_deref(), Some("toolRequest" | "frontendToolRequest")) || piece.tool_name.0
        };
        let pieces = || self.content.iter();
        Some(match role {
            "user" | "tool" if pieces().any(answers) => Class::Results,
            "user" if self.metadata.0.as_ref().is_some_and(|metadata| !metadata.user_visible.0) => Class::Context,
            "user" if pieces().any(says) || matches!(&self.content, Blocks::Text(_)) => Class::Prompt,
            "assistant"
                if !pieces().any(says) && pieces().any(calls) && !pieces().any(|piece| piece.kind.is("thinking")) =>
            {
                Class::Calls
            }
            "assistant" => Class::Answer,
            "system" => Class::Context,
            "tool" => Class::Results,
            _ => Class::Event,
        })
    }

    /// The words of a prompt.
    pub(super) fn prompt(&self) -> Option<&str> {
        match &self.content {
            Blocks::Text(said) => Some(&said.head),
            blocks => {
                blocks.iter().map(|piece| piece.text.head.as_str()).find(|text| !text.is_empty()).or(Some("[Image]"))
            }
        }
    }

    /// Milliseconds since the epoch; files and rows have seconds or milliseconds.
    pub(super) fn created(&self) -> Option<i64> {
        let time = self.created.0.and_then(|time| i64::try_from(time).ok())?;
        since_epoch(time).map(Timestamp::millis)
    }

    /// Tokens read and written.
    pub(super) fn tokens(&self) -> (u64, u64) {
        let first = |all: Number, last: Number| all.0.or(last.0).unwrap_or_default();
        (
            first(self.accumulated_input_tokens, self.input_tokens),
            first(self.accumulated_output_tokens, self.output_tokens),
        )
    }
}

/// RFC 3339, or the form of SQLite in UTC.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{}Z", text.replacen(' ', "T", 1))))
}
