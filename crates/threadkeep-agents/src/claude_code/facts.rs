//! What a Claude Code file says about its thread.

use std::collections::VecDeque;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use threadkeep::{Timestamp, Usage};

use super::line::{Line, Reading, Tokens};
use super::tree::{Tree, key};
use crate::codec::{PREVIEW_CHARS, TITLE_CHARS, ThreadFacts};
use crate::json::one_line;

/// How many responses may be open at the same time: the lines of one stand close together, but sub-agents interleave.
const OPEN_RESPONSES: usize = 32;
/// How many summaries are remembered until the line that they name is known.
const SUMMARIES: usize = 32;

/// What was gathered so far; its JSON is what a later run begins with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Gathered {
    facts: ThreadFacts,
    /// The first `sessionId`, whatever the file is called.
    session: Option<String>,
    custom_title: Option<String>,
    ai_title: Option<String>,
    /// Summaries with the key of the line that they end at.
    summaries: VecDeque<(u64, String)>,
    /// The first command that was a prompt, for a session without a prompt in plain words.
    command: Option<String>,
    /// The last responses, by key, with what was counted for them.
    open: VecDeque<(u64, Usage)>,
}

impl Gathered {
    pub(super) fn note(&mut self, line: &Line, reading: Option<&Reading>) {
        let facts = &mut self.facts;
        if let Some(at) = line.timestamp.as_deref().and_then(Timestamp::parse) {
            facts.created_at = Some(facts.created_at.map_or(at, |first| first.min(at)));
            facts.updated_at = Some(facts.updated_at.map_or(at, |last| last.max(at)));
        }
        keep(&mut self.session, line.session_id.as_deref());
        if facts.cwd.is_none() {
            facts.cwd = line.cwd.as_deref().map(PathBuf::from);
        }
        keep(&mut facts.git_branch, line.git_branch.as_deref());
        keep(&mut facts.source, line.entrypoint.as_deref());
        let from = line.forked_from.0.as_ref().and_then(|from| from.session_id.as_deref());
        keep(&mut facts.forked_from, from);
        if let Some(version) = line.version.as_deref() {
            facts.cli_version = Some(version.to_owned());
        }
        self.note_titles(line);
        if let Some(reading) = reading {
            if self.facts.preview.is_none() {
                self.facts.preview = reading.prompt.as_deref().and_then(|text| shown(text, PREVIEW_CHARS));
            }
            if self.command.is_none() {
                self.command = reading.command.as_deref().and_then(|text| shown(text, PREVIEW_CHARS));
            }
            self.note_response(line);
        }
    }

    fn note_titles(&mut self, line: &Line) {
        let title = |text: &str| shown(text, TITLE_CHARS);
        match line.kind.as_deref() {
            Some("custom-title") => latest(&mut self.custom_title, line.custom_title.as_deref().and_then(title)),
            Some("ai-title") => {
                latest(&mut self.ai_title, line.ai_title.as_deref().and_then(title));
            }
            Some("agent-name") => latest(&mut self.facts.persona, line.agent_name.as_deref().and_then(title)),
            Some("summary") => {
                let summary = line.summary.as_deref().and_then(title);
                if let Some((leaf, summary)) = line.leaf_uuid.as_deref().zip(summary) {
                    push_bounded(&mut self.summaries, (key(leaf), summary), SUMMARIES);
                }
            }
            _ => {}
        }
    }

    /// Counts a response once, though each of its lines repeats (or updates) its usage.
    fn note_response(&mut self, line: &Line) {
        let Some(message) = line.message.0.as_ref().filter(|_| line.kind.is("assistant")) else {
            return;
        };
        if line.is_synthetic() {
            return;
        }
        if let Some(model) = message.model.as_deref() {
            self.facts.model = Some(model.to_owned());
        }
        let Some(usage) = message.usage.0.map(usage) else {
            return;
        };
        let request = line.request_id.as_deref().unwrap_or_default();
        // A response without an id of any kind is one of its own.
        let id = match (message.id.as_deref(), line.uuid.as_deref()) {
            (Some(id), _) => format!("{id}\n{request}"),
            (None, Some(uuid)) if request.is_empty() => uuid.to_owned(),
            (None, _) => format!("\n{request}"),
        };
        let id = key(&id);
        let known = self.open.iter().position(|(open, _)| *open == id);
        let before = known.and_then(|at| self.open.remove(at)).map(|(_, usage)| usage).unwrap_or_default();
        let after = if usage.output >= before.output { usage } else { before };
        push_bounded(&mut self.open, (id, after), OPEN_RESPONSES);
        let total = self.facts.usage.get_or_insert_default();
        let recount = |total: u64, before: u64, after: u64| total.saturating_sub(before).saturating_add(after);
        total.input = recount(total.input, before.input, after.input);
        total.cached = recount(total.cached, before.cached, after.cached);
        total.output = recount(total.output, before.output, after.output);
    }

    /// What is known of the thread; `stem` is the file's name without its ending, `parent` the session whose
    /// sub-agent it is.
    pub(super) fn facts(&self, tree: &Tree, stem: &str, agent: Option<Option<&str>>) -> ThreadFacts {
        let mut facts = self.facts.clone();
        let own = |(leaf, _): &&(u64, String)| tree.contains(*leaf);
        let summary = self.summaries.iter().rev().find(own).map(|(_, summary)| summary.clone());
        facts.title = self.custom_title.clone().or_else(|| self.ai_title.clone()).or(summary);
        facts.preview = facts.preview.or_else(|| self.command.clone());
        facts.session_id = match agent {
            Some(folder) => {
                facts.parent_session = folder.map(str::to_owned).or_else(|| self.session.clone());
                facts.source = Some("subagent".to_owned());
                facts.parent_session.as_ref().map_or_else(|| Some(stem.to_owned()), |id| Some(format!("{id}.{stem}")))
            }
            None if is_uuid(stem) => Some(stem.to_owned()),
            None => self.session.clone(),
        };
        facts
    }
}

/// Tokens with what came from and went to the cache counted as read, as the model did read it.
pub(super) fn usage(tokens: Tokens) -> Usage {
    let cached = tokens.cache_read_input_tokens.or_zero();
    let fresh = tokens.input_tokens.or_zero().saturating_add(tokens.cache_creation_input_tokens.or_zero());
    Usage { input: fresh.saturating_add(cached), cached, output: tokens.output_tokens.or_zero(), reasoning: 0 }
}

/// Whether a name is a UUID in its usual form.
pub(super) fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn shown(text: &str, max: usize) -> Option<String> {
    Some(one_line(text, max)).filter(|line| !line.is_empty())
}

/// The first one counts.
fn keep(slot: &mut Option<String>, value: Option<&str>) {
    if slot.is_none() {
        *slot = value.map(str::to_owned);
    }
}

/// The last one counts.
fn latest(slot: &mut Option<String>, value: Option<String>) {
    if value.is_some() {
        *slot = value;
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, value: T, bound: usize) {
    if queue.len() >= bound {
        queue.pop_front();
    }
    queue.push_back(value);
}
