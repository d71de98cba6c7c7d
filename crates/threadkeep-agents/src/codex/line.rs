//! One line of a Codex rollout, of any era, and what it is.

use serde::Deserialize;
use serde_json::Value;
use threadkeep::{Kind, Role, Timestamp};

use crate::json::{Blocks, Number, Object, Present, Said, Word, read};

/// The envelope that lines have since version 0.3x, and the keys by which a line without one is told.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) timestamp: Word,
    pub(super) ordinal: Number,
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) payload: Object<Payload>,
    pub(super) id: Word,
    pub(super) role: Word,
    pub(super) content: Present,
    pub(super) instructions: Present,
    pub(super) git: Present,
    pub(super) record_type: Word,
    pub(super) session: Present,
    pub(super) items: Present,
}

/// The keys of all payloads that matter here; the type says which of them mean something.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Payload {
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) id: Word,
    pub(super) timestamp: Word,
    pub(super) role: Word,
    pub(super) content: Blocks<Block>,
    pub(super) item: Object<Item>,
    // session_meta
    pub(super) cwd: Word,
    pub(super) cli_version: Word,
    pub(super) model_provider: Word,
    pub(super) memory_mode: Word,
    pub(super) source: Value,
    pub(super) git: Object<Git>,
    pub(super) forked_from_id: Word,
    pub(super) forked_from_ordinal_exclusive: Number,
    pub(super) history_base: Object<HistoryBase>,
    pub(super) parent_thread_id: Word,
    pub(super) agent_nickname: Word,
    pub(super) agent_role: Word,
    // turn_context
    pub(super) model: Word,
    pub(super) approval_policy: Value,
    pub(super) sandbox_policy: Value,
    // events
    pub(super) num_turns: Number,
    pub(super) thread_id: Word,
    pub(super) thread_name: Word,
    pub(super) info: Object<TokenInfo>,
    pub(super) thread_token_usage: Object<Tokens>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block {
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) text: Said,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    #[serde(rename = "type")]
    pub(super) kind: Word,
    pub(super) id: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Git {
    pub(super) commit_hash: Word,
    pub(super) branch: Word,
    pub(super) repository_url: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HistoryBase {
    pub(super) thread_id: Word,
    pub(super) rollout_id: Word,
    pub(super) end_ordinal_exclusive: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenInfo {
    pub(super) total_token_usage: Object<Tokens>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    pub(super) input_tokens: Number,
    pub(super) cached_input_tokens: Number,
    pub(super) output_tokens: Number,
    pub(super) reasoning_output_tokens: Number,
}

/// What a line means for the shape of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Stands after the line before.
    Plain = 0,
    /// Words of a person to the model: a turn begins.
    Prompt = 1,
    /// Written when a turn begins, before its prompt.
    Opener = 2,
    /// Takes back the last turns.
    Rollback = 3,
}

/// What a line is.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) kind: Kind,
    pub(super) role: Option<Role>,
    pub(super) class: Class,
    pub(super) part: Part,
    pub(super) payload: Payload,
    pub(super) ordinal: Option<u64>,
    pub(super) created_at: Option<Timestamp>,
}

/// Which part of the rollout a line belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Meta,
    TurnContext,
    Item,
    Event,
    Usage,
    Other,
}

/// The types of enveloped lines.
const ENVELOPED: [&str; 12] = [
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "realtime_item",
    "security_risk_score",
    "rollout_reference",
];

/// The types of items that stood without an envelope in the first rollouts.
const BARE: [&str; 8] = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "web_search_call",
];

/// Why the documents of the TypeScript program are left out.
const DOCUMENT: &str = "a document within a file of lines";

/// What text begins with that Codex writes in the person's name.
const INJECTED: [&str; 20] = [
    "<environment_context>",
    "# AGENTS.md instructions",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "<skills_instructions>",
    "<skill>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<apps_instructions>",
    "<plugins_instructions>",
    "<model_switch>",
    "<personality_spec>",
    "<environments_instructions>",
    "<context_window_guidance>",
    "<hook_prompt",
    "<user_action>",
    "<goal_context>",
];

/// The shapes that a file of this agent can begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A line with an envelope.
    Enveloped,
    /// The header of the first rollouts.
    BareHeader,
    /// An item of the first rollouts.
    BareItem,
    /// The single document that the program wrote before it was rewritten in Rust.
    Document,
    /// Nothing that Codex writes.
    Foreign,
}

impl Line {
    pub(super) fn shape(&self) -> Shape {
        let kind = self.kind.as_deref();
        if self.payload.0.is_some() && kind.is_some() {
            return Shape::Enveloped;
        }
        if self.session.0 && self.items.0 {
            return Shape::Document;
        }
        match kind {
            Some(kind) if BARE.contains(&kind) => Shape::BareItem,
            None if self.record_type.is("state") => Shape::BareItem,
            None if self.id.0.is_some() && self.timestamp.0.is_some() && (self.instructions.0 || self.git.0) => {
                Shape::BareHeader
            }
            None if self.role.0.is_some() && self.content.0 => Shape::BareItem,
            _ => Shape::Foreign,
        }
    }

    /// Whether a file that begins with this line is a rollout.
    pub(super) fn begins_rollout(&self) -> bool {
        match self.shape() {
            Shape::Enveloped => self.kind.as_deref().is_some_and(|kind| ENVELOPED.contains(&kind)),
            Shape::BareHeader | Shape::Document => true,
            Shape::BareItem | Shape::Foreign => false,
        }
    }

    /// What the line is; an error says why it is nothing.
    pub(super) fn read(self, bytes: &[u8]) -> Result<Reading, String> {
        let ordinal = self.ordinal.0;
        let outer = self.timestamp.as_deref().and_then(time);
        let reading = match self.shape() {
            Shape::Enveloped => {
                let kind = self.kind.0.unwrap_or_default();
                enveloped(&kind, self.payload.0.unwrap_or_default())
            }
            Shape::BareHeader => {
                let payload = payload(bytes)?;
                Reading::new(Kind::Context, None, Part::Meta, payload)
            }
            Shape::BareItem if self.record_type.0.is_some() => {
                Reading::new(Kind::Event, None, Part::Other, Payload::default())
            }
            Shape::BareItem => item(payload(bytes)?),
            Shape::Document => return Err(DOCUMENT.to_owned()),
            Shape::Foreign => return Err("not a record of a Codex rollout".to_owned()),
        };
        let inner = reading.payload.timestamp.as_deref().and_then(time);
        Ok(Reading { ordinal, created_at: outer.or(inner), ..reading })
    }
}

impl Reading {
    fn new(kind: Kind, role: Option<Role>, part: Part, payload: Payload) -> Self {
        Self { kind, role, class: Class::Plain, part, payload, ordinal: None, created_at: None }
    }

    /// The id that the record carries for itself.
    pub(super) fn source_id(&self) -> Option<&str> {
        let item = self.payload.item.0.as_ref().and_then(|item| item.id.as_deref());
        self.payload.id.as_deref().or(item).filter(|id| id.len() <= 512)
    }

    /// What the person asked for.
    pub(super) fn prompt(&self) -> Option<&str> {
        if self.class != Class::Prompt {
            return None;
        }
        match &self.payload.content {
            Blocks::None => None,
            Blocks::Text(said) => Some(request(said)),
            blocks @ Blocks::List(_) => {
                let own = blocks.iter().map(|block| &block.text).find(|said| !is_injected(said));
                Some(own.map_or("[Image]", request))
            }
        }
    }
}

fn request(said: &Said) -> &str {
    said.request.as_deref().unwrap_or(&said.head)
}

fn payload(bytes: &[u8]) -> Result<Payload, String> {
    read::<Payload>(bytes).map(|(payload, _)| payload).map_err(|error| format!("unreadable record: {error}"))
}

/// RFC 3339, or the form that file names have.
fn time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).or_else(|| {
        let (date, clock) = text.split_once('T')?;
        Timestamp::parse(&format!("{date}T{}Z", clock.replace('-', ":")))
    })
}

fn enveloped(kind: &str, payload: Payload) -> Reading {
    match kind {
        "session_meta" => Reading::new(Kind::Context, None, Part::Meta, payload),
        "response_item" => item(payload),
        "event_msg" => event(payload),
        "turn_context" => {
            Reading { class: Class::Opener, ..Reading::new(Kind::Context, None, Part::TurnContext, payload) }
        }
        "world_state" => Reading { class: Class::Opener, ..Reading::new(Kind::Context, None, Part::Other, payload) },
        "compacted" => Reading::new(Kind::Compaction, Some(Role::System), Part::Other, payload),
        "token_usage_record" => Reading::new(Kind::Event, None, Part::Usage, payload),
        _ => Reading::new(Kind::Event, None, Part::Other, payload),
    }
}

fn event(payload: Payload) -> Reading {
    let item = payload.item.0.as_ref().and_then(|item| item.kind.as_deref()).unwrap_or_default();
    let class = match payload.kind.as_deref().unwrap_or_default() {
        "thread_rolled_back" => Class::Rollback,
        "task_started" | "turn_started" | "user_message" | "thread_settings_applied" => Class::Opener,
        "item_completed" if item == "UserMessage" => Class::Opener,
        _ => Class::Plain,
    };
    Reading { class, ..Reading::new(Kind::Event, None, Part::Event, payload) }
}

fn item(payload: Payload) -> Reading {
    let kind = payload.kind.as_deref().unwrap_or(if payload.role.0.is_some() { "message" } else { "" });
    let assistant = Some(Role::Assistant);
    let (kind, role) = match kind {
        "message" => return message(payload),
        "agent_message" => (Kind::Message, assistant),
        "reasoning" => (Kind::Reasoning, assistant),
        "compaction" | "context_compaction" | "compaction_summary" => (Kind::Compaction, Some(Role::System)),
        "additional_tools" => (Kind::Context, None),
        kind if kind.ends_with("_output") => (Kind::ToolResult, Some(Role::Tool)),
        kind if kind.ends_with("_call") => (Kind::ToolCall, assistant),
        _ => (Kind::Event, None),
    };
    Reading::new(kind, role, Part::Item, payload)
}

fn message(payload: Payload) -> Reading {
    let (kind, role, class) = match payload.role.as_deref() {
        Some("user") if injected(&payload.content) => (Kind::Context, Role::System, Class::Plain),
        Some("user") => (Kind::Message, Role::User, Class::Prompt),
        Some("developer") => (Kind::Context, Role::Developer, Class::Plain),
        Some("system") => (Kind::Context, Role::System, Class::Plain),
        Some("assistant") | None => (Kind::Message, Role::Assistant, Class::Plain),
        Some(other) => (Kind::Message, role_word(other), Class::Plain),
    };
    Reading { class, ..Reading::new(kind, Some(role), Part::Item, payload) }
}

/// A role as the store can keep it.
fn role_word(word: &str) -> Role {
    if word.len() <= 64 { Role::from_word(word) } else { Role::Assistant }
}

/// Whether nothing in a message is a person's.
fn injected(content: &Blocks<Block>) -> bool {
    match content {
        Blocks::None => true,
        Blocks::Text(said) => is_injected(said),
        Blocks::List(_) => {
            let media = |block: &Block| block.kind.as_deref().is_some_and(|kind| kind.contains("image"));
            content.iter().all(|block| is_injected(&block.text) && !media(block))
        }
    }
}

fn is_injected(said: &Said) -> bool {
    // An editor's context precedes the person's words in the same text.
    said.head.is_empty() || (said.request.is_none() && INJECTED.iter().any(|start| said.head.starts_with(start)))
}
