//! What a session says, in the words that every agent's files have in common.
//!
//! A [`threadkeep::View`] is for a reader's eyes; a [`Message`] is for another agent's file: it has the arguments of a call
//! as JSON, the bytes of a picture, and whose words are whose. What one format has and no other (settings, telemetry,
//! sealed reasoning) is in neither; whoever writes a file says what was left behind.

use serde_json::Value;
use threadkeep::{Kind, Part, Role, Timestamp, Usage, View};

use crate::json::{decoded_len, text_of};

/// One thing that was said in a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Whose words they are.
    pub author: Author,
    /// Why they stand there.
    pub standing: Standing,
    /// What was said, in order.
    pub blocks: Vec<Block>,
    /// When it says it was made.
    pub created_at: Option<Timestamp>,
    /// The model that answered, as its agent names it.
    pub model: Option<String>,
    /// Tokens of the response that it belongs to, where this record states them.
    pub usage: Option<Usage>,
    /// What the records of one response of the model share, where they are several.
    pub response: Option<String>,
}

/// Whose words a message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The person, or the program in the person's place.
    Person,
    /// The model.
    Model,
    /// The tools that the model called: blocks are results.
    Tool,
    /// The agent itself: instructions to the model and settings, which mean nothing to another agent. Writers leave them out,
    /// unless they are a [`Standing::Summary`].
    System,
}

/// Why a message stands in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It was said.
    Said,
    /// The agent put it into the person's mouth: context, reminders, the output of a command.
    Injected,
    /// It stands for what was said before it: the summary of a compaction, which the model goes on from. Its author is
    /// [`Author::System`].
    Summary,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Words.
    Text(String),
    /// What the model thought. Its seal, if it has one, binds it to an account or a model and stays behind.
    Reasoning {
        /// The readable part; empty when all of it is sealed.
        text: String,
    },
    /// A call of a tool.
    Call {
        /// Pairs the call with its result.
        id: String,
        /// The tool, as the agent names it.
        name: String,
        /// The arguments: an object, or a text where the tool takes one.
        input: Value,
    },
    /// The result of a call.
    Result {
        /// The call that it answers.
        id: String,
        /// What came back: texts and media.
        content: Vec<Self>,
        /// Whether the tool failed.
        is_error: bool,
    },
    /// A picture or another file.
    Media {
        /// Such as `image/png`.
        media_type: String,
        /// Where its bytes are.
        data: MediaData,
    },
}

/// Where the bytes of a picture or a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaData {
    /// In the record, in base64 as the record has it.
    Base64(String),
    /// At an address or a path; nothing is fetched.
    Reference(String),
    /// The record names it and does not hold it.
    Absent,
}

impl MediaData {
    /// How many bytes there are, as far as they are in the record.
    fn len(&self) -> u64 {
        if let Self::Base64(data) = self { decoded_len(data) } else { 0 }
    }
}

impl Message {
    /// A message that was said, and no more about it.
    pub fn said(author: Author, blocks: Vec<Block>) -> Self {
        let standing = Standing::Said;
        Self { author, standing, blocks, created_at: None, model: None, usage: None, response: None }
    }

    /// What a view says, for formats that say nothing more: the bytes of media are absent, and notes and damage are left out.
    ///
    /// Words that nobody is named for are the person's, those of a role that is not known are put into the person's mouth, and
    /// all words of a thought are thoughts. Gives nothing where there is nothing to say.
    pub fn of_view(kind: &Kind, view: View) -> Option<Self> {
        if view.damaged || matches!(kind, Kind::Event | Kind::Context) {
            return None;
        }
        let (author, standing) = match (kind, view.role.as_ref()) {
            (Kind::Compaction, _) => (Author::System, Standing::Summary),
            (Kind::ToolCall | Kind::Reasoning, _) | (_, Some(Role::Assistant)) => (Author::Model, Standing::Said),
            (_, Some(Role::Tool)) | (Kind::ToolResult, None | Some(Role::Unknown(_))) => (Author::Tool, Standing::Said),
            (_, Some(Role::System | Role::Developer)) => (Author::System, Standing::Said),
            (_, Some(Role::User)) | (Kind::Message, None) => (Author::Person, Standing::Said),
            (Kind::Message, Some(_)) => (Author::Person, Standing::Injected),
            _ => return None,
        };
        let thought = |block| match block {
            Block::Text(text) if *kind == Kind::Reasoning => Block::Reasoning { text },
            other => other,
        };
        let blocks: Vec<Block> = view.parts.into_iter().filter_map(block).map(thought).collect();
        (!blocks.is_empty()).then_some(Self { standing, usage: view.usage, ..Self::said(author, blocks) })
    }

    /// The message, which is put into the person's mouth as a whole if a tool says more than results.
    pub(crate) fn with_tool_as_injected(self) -> Self {
        let is_result = |block: &Block| matches!(block, Block::Result { .. });
        if self.author != Author::Tool || self.blocks.iter().all(is_result) {
            return self;
        }
        Self { author: Author::Person, standing: Standing::Injected, ..self }
    }

    /// The message, with the words that a tool says beside its results as a message of their own: a tool is asked for results alone,
    /// so what else it says was put into the person's mouth.
    pub(crate) fn apart(self) -> impl Iterator<Item = Self> {
        if self.author != Author::Tool || self.standing == Standing::Summary {
            return [Some(self), None].into_iter().flatten();
        }
        let is_result = |block: &Block| matches!(block, Block::Result { .. });
        let (results, words): (Vec<Block>, Vec<Block>) = self.blocks.into_iter().partition(is_result);
        let injected = |blocks| Self {
            standing: Standing::Injected,
            created_at: self.created_at,
            ..Self::said(Author::Person, blocks)
        };
        let words = (!words.is_empty()).then(|| injected(words));
        let results = (!results.is_empty()).then_some(Self { blocks: results, ..self });
        [results, words].into_iter().flatten()
    }
}

impl Block {
    /// A picture or a file by its URL: `data:` ones hold it.
    pub fn media_of_url(url: &str, media_type: &str) -> Self {
        let Some((head, data)) = url.strip_prefix("data:").and_then(|data| data.split_once(',')) else {
            let data = if url.is_empty() { MediaData::Absent } else { MediaData::Reference(url.to_owned()) };
            return Self::Media { media_type: media_type.to_owned(), data };
        };
        let media_type = head.split(';').next().filter(|kind| !kind.is_empty()).unwrap_or("text/plain").to_owned();
        let data = if head.ends_with(";base64") { MediaData::Base64(data.to_owned()) } else { MediaData::Absent };
        Self::Media { media_type, data }
    }

    /// What a view shows of it: of a result what it says, then its pictures.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        let part = match self {
            Self::Text(text) => Part::Text { text },
            Self::Reasoning { text } => Part::Reasoning { text },
            Self::Call { id, name, input } => Part::ToolCall { call_id: id, name, arguments: text_of(&input) },
            Self::Media { media_type, data } => Part::Media { media_type, bytes: data.len() },
            Self::Result { id, content, is_error } => {
                let (mut output, mut parts) = (Vec::new(), Vec::new());
                for part in content.into_iter().flat_map(Self::into_parts) {
                    match part {
                        Part::Text { text } => output.push(text),
                        other => parts.push(other),
                    }
                }
                parts.insert(0, Part::ToolResult { call_id: id, output: output.join("\n"), is_error });
                return parts;
            }
        };
        vec![part]
    }

    /// What a file says where it can't hold a picture: what there was, and where.
    pub fn named(media_type: &str, data: &MediaData) -> String {
        match data {
            MediaData::Reference(place) => format!("[{media_type}: {place}]"),
            MediaData::Base64(_) | MediaData::Absent => format!("[{media_type}]"),
        }
    }
}

fn block(part: Part) -> Option<Block> {
    Some(match part {
        Part::Text { text } => Block::Text(text),
        Part::Reasoning { text } => Block::Reasoning { text },
        Part::ToolCall { call_id, name, arguments } => {
            Block::Call { id: call_id, name, input: arguments_of(arguments) }
        }
        Part::ToolResult { call_id, output, is_error } => {
            Block::Result { id: call_id, content: vec![Block::Text(output)], is_error }
        }
        Part::Media { media_type, .. } => Block::Media { media_type, data: MediaData::Absent },
        _ => return None,
    })
}

/// The arguments of a call that are kept as text: the JSON that they are, or the text itself where they are none.
pub fn arguments_of(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}
