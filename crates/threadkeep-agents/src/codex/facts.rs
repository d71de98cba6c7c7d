//! What a rollout says about its thread.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use threadkeep::Usage;

use super::line::{Part, Payload, Reading, Tokens};
use crate::codec::{Continues, PREVIEW_CHARS, TITLE_CHARS, ThreadFacts};
use crate::json::{Word, one_line};

/// What was gathered so far; its JSON is what a later run begins with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Gathered {
    facts: ThreadFacts,
    /// Whether the file's own `session_meta` was seen: the first one. Later ones belong to copied history.
    has_meta: bool,
}

impl Gathered {
    pub(super) fn note(&mut self, reading: &Reading) {
        let payload = &reading.payload;
        if let Some(at) = reading.created_at {
            let facts = &mut self.facts;
            facts.created_at = Some(facts.created_at.map_or(at, |first| first.min(at)));
            facts.updated_at = Some(facts.updated_at.map_or(at, |last| last.max(at)));
        }
        match reading.part {
            Part::Meta if self.has_meta => self.note_later_meta(payload),
            Part::Meta => self.note_meta(payload),
            Part::TurnContext => self.note_context(payload),
            Part::Event => self.note_event(payload),
            Part::Usage => self.note_usage(payload.thread_token_usage.0),
            Part::Item if self.facts.preview.is_none() => {
                self.facts.preview = reading.prompt().and_then(|text| shown(text, PREVIEW_CHARS));
            }
            Part::Item | Part::Other => {}
        }
    }

    fn note_meta(&mut self, payload: &Payload) {
        self.has_meta = true;
        let facts = &mut self.facts;
        facts.session_id = payload.id.0.clone();
        if let Some(cwd) = payload.cwd.as_deref() {
            facts.cwd = Some(PathBuf::from(cwd));
        }
        facts.cli_version = payload.cli_version.0.clone();
        facts.provider = payload.model_provider.0.clone();
        self.note_origin(payload);
        self.note_lineage(payload);
        self.note_changeable(payload);
    }

    /// Who started the session.
    fn note_origin(&mut self, payload: &Payload) {
        let facts = &mut self.facts;
        let spawn = payload.source.get("subagent").and_then(|sub| sub.get("thread_spawn")).unwrap_or(&Value::Null);
        let spawned = |key: &str| spawn.get(key).and_then(Value::as_str).map(str::to_owned);
        let is_subagent = payload.source.get("subagent").is_some() || payload.source == "subagent";
        facts.source = match &payload.source {
            Value::String(source) => Some(source.clone()),
            _ if is_subagent => Some("subagent".to_owned()),
            other => other.get("custom").and_then(Value::as_str).map(str::to_owned),
        };
        facts.parent_session = spawned("parent_thread_id").or_else(|| payload.parent_thread_id.0.clone());
        if facts.parent_session.is_some() {
            facts.source = Some("subagent".to_owned());
        }
        // A sub-agent without a spawning thread is named by its task: `review`, `compact` …
        let task = payload.source.get("subagent").and_then(Value::as_str).map(str::to_owned);
        facts.persona = payload
            .agent_nickname
            .0
            .clone()
            .or_else(|| spawned("agent_nickname"))
            .or_else(|| payload.agent_role.0.clone())
            .or_else(|| spawned("agent_role"))
            .or(task);
    }

    fn note_lineage(&mut self, payload: &Payload) {
        let Some(base) = &payload.history_base.0 else {
            self.facts.forked_from = payload.forked_from_id.0.clone();
            return;
        };
        let session =
            [&base.thread_id, &base.rollout_id, &payload.forked_from_id].into_iter().find_map(|id| id.0.clone());
        let end = base.end_ordinal_exclusive.0.or(payload.forked_from_ordinal_exclusive.0);
        self.facts.continues = session.zip(end).map(|(session, end_ordinal)| Continues { session, end_ordinal });
    }

    /// What a repeated `session_meta` may change.
    fn note_changeable(&mut self, payload: &Payload) {
        let facts = &mut self.facts;
        latest(&mut facts.memory_mode, &payload.memory_mode);
        if let Some(git) = &payload.git.0 {
            latest(&mut facts.git_sha, &git.commit_hash);
            latest(&mut facts.git_branch, &git.branch);
            latest(&mut facts.git_origin, &git.repository_url);
        }
    }

    fn note_later_meta(&mut self, payload: &Payload) {
        if payload.id.0 == self.facts.session_id {
            self.note_changeable(payload);
        } else if self.facts.forked_from.is_none() && self.facts.continues.is_none() {
            self.facts.forked_from = payload.id.0.clone();
        }
    }

    fn note_context(&mut self, payload: &Payload) {
        let facts = &mut self.facts;
        if facts.cwd.is_none() {
            facts.cwd = payload.cwd.as_deref().map(PathBuf::from);
        }
        latest(&mut facts.model, &payload.model);
        if let Some(policy) = policy(&payload.approval_policy) {
            facts.approval_policy = Some(policy);
        }
        if let Some(policy) = policy(&payload.sandbox_policy) {
            facts.sandbox_policy = Some(policy);
        }
    }

    fn note_event(&mut self, payload: &Payload) {
        match payload.kind.as_deref().unwrap_or_default() {
            // Copied history carries its own thread's names.
            "thread_name_updated" if payload.thread_id.0.is_none() || payload.thread_id.0 == self.facts.session_id => {
                if let Some(title) = payload.thread_name.as_deref().and_then(|name| shown(name, TITLE_CHARS)) {
                    self.facts.title = Some(title);
                }
            }
            "token_count" => {
                let total = payload.info.0.as_ref().and_then(|info| info.total_token_usage.0);
                self.note_usage(total);
            }
            _ => {}
        }
    }

    /// The totals run on through the file, so the last one counts.
    fn note_usage(&mut self, total: Option<Tokens>) {
        if let Some(total) = total {
            self.facts.usage = Some(usage(total));
        }
    }

    pub(super) fn facts(&self, name: Option<&str>) -> ThreadFacts {
        let mut facts = self.facts.clone();
        facts.session_id = facts.session_id.or_else(|| name.map(str::to_owned));
        facts
    }
}

pub(super) fn usage(tokens: Tokens) -> Usage {
    Usage {
        input: tokens.input_tokens.or_zero(),
        cached: tokens.cached_input_tokens.or_zero(),
        output: tokens.output_tokens.or_zero(),
        reasoning: tokens.reasoning_output_tokens.or_zero(),
    }
}

/// A policy by its word; one that has settings is an object with a `type` (first `mode`).
fn policy(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(word) => Some(word.clone()),
        other => {
            let word = ["type", "mode"].into_iter().find_map(|key| other.get(key)?.as_str().map(str::to_owned));
            Some(word.unwrap_or_else(|| other.to_string()))
        }
    }
}

fn shown(text: &str, max: usize) -> Option<String> {
    Some(one_line(text, max)).filter(|line| !line.is_empty())
}

fn latest(slot: &mut Option<String>, value: &Word) {
    if value.0.is_some() {
        slot.clone_from(&value.0);
    }
}
