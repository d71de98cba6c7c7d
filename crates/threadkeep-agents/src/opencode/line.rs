//! One record of an opencode session, and what it is.
//!
//! The same things stand in three forms: `{"file","json","parts":[{"file","json"}]}` of a tree of files,
//! `{"table","id","data","parts":[{"id","data"}]}` of a database, and `{"info","parts"}` of an export.

use std::fmt;

use serde::Deserialize as Derive;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use threadkeep::Usage;

use crate::json::{Blocks, Flag, Number, Object, Present, Said, Word};

/// A record, what is within it, or a session: the keys of all of them.
#[derive(Debug, Default, Derive)]
#[serde(default)]
pub(super) struct Line {
    pub(super) file: Word,
    pub(super) table: Word,
    json: Inner,
    data: Inner,
    info: Inner,
    parts: Blocks<Piece>,
    pub(super) id: Word,
    #[serde(rename = "parentID", alias = "parent_id")]
    pub(super) parent: Word,
    // Of a session.
    pub(super) directory: Word,
    pub(super) title: Word,
    pub(super) version: Word,
    pub(super) revert: Object<Revert>,
    time: Object<Time>,
    time_created: Number,
    time_updated: Number,
    time_archived: Number,
    // Of a message.
    role: Word,
    #[serde(rename = "type")]
    kind: Word,
    summary: Flag,
    error: Present,
    finish: Present,
    model: Object<Model>,
    #[serde(rename = "modelID")]
    model_id: Word,
    #[serde(rename = "providerID")]
    provider_id: Word,
    tokens: Object<Tokens>,
    // Of a message of 2.x.
    text: Said,
    content: Blocks<Piece>,
    status: Word,
}

/// Where an agent has gone back to.
#[derive(Debug, Default, Derive)]
#[serde(default)]
pub(super) struct Revert {
    #[serde(rename = "messageID")]
    pub(super) message: Word,
}

#[derive(Debug, Default, Derive)]
#[serde(default)]
struct Time {
    created: Number,
    updated: Number,
    completed: Number,
    archived: Number,
}

#[derive(Debug, Default, Derive)]
#[serde(default)]
struct Model {
    #[serde(alias = "modelID")]
    id: Word,
    #[serde(rename = "providerID")]
    provider: Word,
}

#[derive(Debug, Clone, Copy, Default, Derive)]
#[serde(default)]
pub(super) struct Tokens {
    input: Number,
    output: Number,
    reasoning: Number,
    cache: Object<Cache>,
}

#[derive(Debug, Clone, Copy, Default, Derive)]
#[serde(default)]
struct Cache {
    read: Number,
    write: Number,
}

/// A part of a message.
#[derive(Debug, Default, Derive)]
#[serde(default)]
struct Piece {
    json: Object<Body>,
    data: Object<Body>,
    #[serde(rename = "type")]
    kind: Word,
    text: Said,
    synthetic: Flag,
    state: Object<State>,
}

/// A part as it is written by itself.
#[derive(Debug, Default, Derive)]
#[serde(default)]
struct Body {
    #[serde(rename = "type")]
    kind: Word,
    text: Said,
    synthetic: Flag,
    state: Object<State>,
}

#[derive(Debug, Default, Derive)]
#[serde(default)]
struct State {
    status: Word,
}

/// A record within a record.
#[derive(Debug, Default)]
struct Inner(Option<Box<Line>>);

impl<'de> Deserialize<'de> for Inner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Anything;
        impl<'de> Visitor<'de> for Anything {
            type Value = Inner;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Inner, A::Error> {
                Line::deserialize(MapAccessDeserializer::new(map)).map(|line| Inner(Some(Box::new(line))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Inner, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Inner(None))
            }

            fn visit_str<E>(self, _: &str) -> Result<Inner, E> {
                Ok(Inner(None))
            }

            fn visit_unit<E>(self) -> Result<Inner, E> {
                Ok(Inner(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Inner, E> {
                Ok(Inner(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Inner, E> {
                Ok(Inner(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Inner, E> {
                Ok(Inner(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Inner, E> {
                Ok(Inner(None))
            }
        }
        deserializer.deserialize_any(Anything)
    }
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The session itself.
    Session,
    /// A person's words.
    Prompt,
    /// What the model said and did.
    Answer,
    /// What the agent put into the conversation.
    Context,
    /// What stands for everything before it.
    Summary,
    /// Something else that happened.
    Event,
    /// It has no place in the conversation.
    Beside,
}

impl Line {
    /// The session or the message that the record is about.
    pub(super) fn inner(&self) -> &Self {
        [&self.json, &self.data, &self.info].into_iter().find_map(|inner| inner.0.as_deref()).unwrap_or(self)
    }

    /// What the record is; nothing when it is a message of nobody.
    pub(super) fn class(&self) -> Option<Class> {
        let inner = self.inner();
        let file = self.file.as_deref().unwrap_or_default();
        let table = self.table.as_deref().unwrap_or_default();
        let is_session =
            file.starts_with("session/") || file.starts_with("info/") || matches!(table, "session" | "session_v2");
        if is_session {
            return Some(Class::Session);
        }
        if table == "session_message" {
            return Some(self.newer());
        }
        let is_message = file.starts_with("message/") || table == "message" || self.info.0.is_some();
        if !is_message {
            return Some(Class::Beside);
        }
        Some(match inner.role.as_deref()? {
            "user" if self.is_injected() => Class::Context,
            "user" => Class::Prompt,
            "assistant" if inner.summary.0 => Class::Summary,
            "assistant" => Class::Answer,
            _ => Class::Event,
        })
    }

    /// What a message of 2.x is.
    fn newer(&self) -> Class {
        match self.kind.as_deref().unwrap_or_default() {
            "user" => Class::Prompt,
            "assistant" => Class::Answer,
            "system" | "synthetic" => Class::Context,
            "compaction" => Class::Summary,
            _ => Class::Event,
        }
    }

    /// Whether nothing in a message of a person is the person's.
    fn is_injected(&self) -> bool {
        let mut all = self.bodies().peekable();
        all.peek().is_some()
            && all.all(|(kind, text, synthetic, _)| {
                let shown = matches!(kind, Some("file" | "agent" | "subtask"));
                !shown && (synthetic || (kind != Some("text")) || text.head.is_empty())
            })
    }

    /// The parts, in whatever form they stand.
    fn bodies(&self) -> impl Iterator<Item = (Option<&str>, &Said, bool, Option<&str>)> {
        let newer = self.data.0.as_deref().map(|data| data.content.iter()).into_iter().flatten();
        self.parts.iter().chain(newer).map(|piece| match piece.json.0.as_ref().or(piece.data.0.as_ref()) {
            Some(body) => (
                body.kind.as_deref(),
                &body.text,
                body.synthetic.0,
                body.state.0.as_ref().and_then(|state| state.status.as_deref()),
            ),
            None => (
                piece.kind.as_deref(),
                &piece.text,
                piece.synthetic.0,
                piece.state.0.as_ref().and_then(|state| state.status.as_deref()),
            ),
        })
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.inner().id.as_deref().or(self.id.as_deref())
    }

    pub(super) fn created(&self) -> Option<i64> {
        let inner = self.inner();
        let time = inner.time.0.as_ref().and_then(|time| time.created.0);
        millis(time.or(inner.time_created.0).or(self.time_created.0))
    }

    pub(super) fn updated(&self) -> Option<i64> {
        millis(self.time.0.as_ref().and_then(|time| time.updated.0).or(self.time_updated.0))
    }

    pub(super) fn archived(&self) -> Option<i64> {
        millis(self.time.0.as_ref().and_then(|time| time.archived.0).or(self.time_archived.0))
    }

    /// Whether the agent is still at work on the message.
    pub(super) fn is_open(&self, class: Class) -> bool {
        if !matches!(class, Class::Answer | Class::Summary | Class::Event) {
            return false;
        }
        let inner = self.inner();
        let runs = |status: Option<&str>| matches!(status, Some("pending" | "running" | "streaming"));
        let is_over =
            inner.time.0.as_ref().is_some_and(|time| time.completed.0.is_some()) || inner.error.0 || inner.finish.0;
        match class {
            Class::Answer => !is_over || self.bodies().any(|(_, _, _, status)| runs(status)),
            // A summary of 2.x is written when it is done.
            Class::Summary => !is_over && inner.role.0.is_some(),
            _ => runs(inner.status.as_deref()),
        }
    }

    /// The words of a prompt.
    pub(super) fn prompt(&self) -> Option<&str> {
        let own = self
            .bodies()
            .find(|(kind, text, synthetic, _)| *kind == Some("text") && !synthetic && !text.head.is_empty());
        let newer = || Some(self.inner().text.head.as_str()).filter(|text| !text.is_empty());
        own.map(|(_, text, ..)| text.head.as_str()).or_else(newer)
    }

    /// The provider and the model of a message.
    pub(super) fn model(&self) -> Option<(Option<&str>, &str)> {
        let inner = self.inner();
        if let Some(model) = inner.model_id.as_deref() {
            return Some((inner.provider_id.as_deref(), model));
        }
        let model = inner.model.0.as_ref()?;
        Some((model.provider.as_deref(), model.id.as_deref()?))
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.inner().tokens.0.map(usage)
    }
}

/// Tokens with what came from and went to the cache counted as read, and thoughts as written.
pub(super) fn usage(tokens: Tokens) -> Usage {
    let cache = tokens.cache.0.unwrap_or_default();
    let (cached, reasoning) = (cache.read.or_zero(), tokens.reasoning.or_zero());
    let input = tokens.input.or_zero().saturating_add(cached).saturating_add(cache.write.or_zero());
    Usage { input, cached, output: tokens.output.or_zero().saturating_add(reasoning), reasoning }
}

fn millis(time: Option<u64>) -> Option<i64> {
    time.and_then(|time| i64::try_from(time).ok())
}
