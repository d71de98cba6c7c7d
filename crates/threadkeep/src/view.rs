//! What a person or a model reads of an item, whatever format its bytes have.

use serde::{Deserialize, Serialize};

use crate::item::Role;

/// The reading of one item: its role, its parts in order, and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Who speaks; `None` for records that nobody speaks (settings, events).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The parts in the order of the source.
    pub parts: Vec<Part>,
    /// Tokens, where the record states them for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether the bytes could not be read as their format says (shown as they are, lossily).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    /// Whether the store made this in the place of what never came ([`crate::LiveThread::repair_turns`]): nobody said it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}

/// One part of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// What the model thought, where it is readable.
    Reasoning {
        /// The readable part; empty when it is sealed.
        text: String,
    },
    /// A call of a tool.
    ToolCall {
        /// Pairs the call with its result.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments as JSON text, or as the source has them.
        arguments: String,
    },
    /// The result of a call.
    ToolResult {
        /// The call it answers.
        call_id: String,
        /// What came back, as text.
        output: String,
        /// Whether the tool failed.
        #[serde(default)]
        is_error: bool,
    },
    /// A picture or another file, by its media type and its size in bytes.
    Media {
        /// Such as `image/png`.
        media_type: String,
        /// Size of the decoded bytes, 0 when it is not inline.
        bytes: u64,
    },
    /// A note of the store or the agent: an event, a summary's frame, a setting.
    Note {
        /// The note.
        text: String,
    },
}

/// Tokens of one model call. Whether cached tokens are part of the input differs by agent; the codec adds them up so that `input` is all that was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Tokens written, reasoning included.
    pub output: u64,
    /// Of these, reasoning.
    pub reasoning: u64,
}

impl View {
    /// A view with a single text part.
    pub fn text(role: Option<Role>, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text { text: text.into() }], ..Self::default() }
    }

    /// The readable text of all parts, one per line: words, reasoning, calls as `name arguments`, results.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            let line = match part {
                Part::Text { text } | Part::Reasoning { text } | Part::Note { text } => text.clone(),
                Part::ToolCall { name, arguments, .. } => format!("{name} {arguments}"),
                Part::ToolResult { output, .. } => output.clone(),
                Part::Media { media_type, bytes } => format!("[{media_type}, {bytes} bytes]"),
            };
            if !out.is_empty() && !line.is_empty() {
                out.push('\n');
            }
            out.push_str(&line);
        }
        out
    }
}

/// Reads the bytes of one format into views.
pub trait ViewCodec: Send + Sync + std::fmt::Debug {
    /// The format tag that items of this codec carry, such as `codex`.
    fn format(&self) -> &str;

    /// Reads one item's bytes. Never fails: what can't be read comes back as a damaged view with the bytes shown lossily.
    fn view(&self, kind: &crate::item::Kind, content: &[u8]) -> View;

    /// Whether the calls of tools in an item get their results in items of their own. Those of tools that the model's host runs
    /// may have theirs within.
    fn awaits_result(&self, content: &[u8]) -> bool {
        let _ = content;
        true
    }

    /// What a record says it is, for policies that choose by it ([`crate::RecordPolicy`]): its type, then its subtypes, in lower
    /// case with `/` between them. `None` where that can't be told.
    fn record(&self, content: &[u8]) -> Option<String> {
        let _ = content;
        None
    }

    /// A shorter form of a record, for policies that ask for one; `None` where there is none. The same record has the same one
    /// always, so that an append can be repeated.
    fn shortened(&self, content: &[u8]) -> Option<Vec<u8>> {
        let _ = content;
        None
    }
}
