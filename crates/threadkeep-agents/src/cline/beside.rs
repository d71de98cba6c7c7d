//! What stands beside the messages of a task or a session: the agents' own lists, and what a session says of itself.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;
use threadkeep::{Timestamp, Usage};

use super::tokens;
use crate::codec::{Aside, PREVIEW_CHARS, TITLE_CHARS, ThreadFacts};
use crate::document::Document;
use crate::facts::shown;
use crate::json::{first_text, read, str_at, time_at, word_at};
use crate::segments::Segment;

/// Reads one of these files; which one it is, its form tells.
pub(super) fn read_aside(bytes: &[u8]) -> Option<Aside> {
    if bytes.trim_ascii_start().starts_with(b"[") {
        let list = List::read(bytes);
        return Some(Aside::new(move |facts| list.tell(facts)));
    }
    let (said, _) = read::<Value>(bytes).ok()?;
    let tell = match () {
        () if said.get("session_id").is_some() => session,
        () if said.get("task").is_some() => task,
        () => usage_of_models,
    };
    Some(Aside::new(move |facts| tell(&said, facts)))
}

/// The list of all tasks, or the messages that were shown.
#[derive(Debug, Default)]
struct List {
    tasks: HashMap<String, Value>,
    usage: Usage,
    last: Option<Timestamp>,
}

impl List {
    fn read(bytes: &[u8]) -> Self {
        let mut list = Self::default();
        for segment in Document::new(bytes, &[]).map_while(Result::ok) {
            let Segment::Record { bytes, .. } = segment else { continue };
            let Ok((said, _)) = read::<Value>(&bytes) else { continue };
            if said.get("task").is_some() {
                list.tasks.entry(str_at(&said, "id").to_owned()).or_insert(said);
                continue;
            }
            list.last = time_at(&said, "ts").max(list.last);
            if str_at(&said, "say") == "api_req_started"
                && let Ok((request, _)) = read::<Value>(str_at(&said, "text").as_bytes())
            {
                let more = tokens(&request);
                let usage = &mut list.usage;
                usage.input = usage.input.saturating_add(more.input);
                usage.cached = usage.cached.saturating_add(more.cached);
                usage.output = usage.output.saturating_add(more.output);
            }
        }
        list
    }

    fn tell(&self, facts: &mut ThreadFacts) {
        if let Some(item) = facts.session_id.as_ref().and_then(|id| self.tasks.get(id)) {
            task(item, facts);
        }
        count(facts, self.usage);
        facts.updated_at = facts.updated_at.max(self.last);
    }
}

/// A task as its agent lists it.
fn task(item: &Value, facts: &mut ThreadFacts) {
    let word = |keys: &[&str]| keys.iter().find_map(|key| word_at(item, key)).map(str::to_owned);
    facts.preview = facts.preview.take().or_else(|| shown(str_at(item, "task"), PREVIEW_CHARS));
    facts.cwd = word(&["cwdOnTaskInitialization", "workspace"]).map(PathBuf::from).or(facts.cwd.take());
    facts.model = facts.model.take().or_else(|| word(&["modelId"]));
    if let Some(parent) = word(&["parentTaskId"]) {
        facts.parent_session = Some(parent);
        facts.source = Some("subagent".to_owned());
        facts.persona = word(&["mode"]);
    }
    let all = tokens(item);
    if all != Usage::default() {
        facts.usage = Some(all);
    }
    facts.updated_at = facts.updated_at.max(time_at(item, "ts"));
}

/// The models that a task was worked on with.
fn usage_of_models(metadata: &Value, facts: &mut ThreadFacts) {
    let last = |key: &str| metadata.get(key).and_then(Value::as_array).and_then(|list| list.last());
    if let Some(used) = last("model_usage") {
        let word = |key: &str| word_at(used, key).map(str::to_owned);
        facts.model = facts.model.take().or_else(|| word("model_id"));
        facts.provider = facts.provider.take().or_else(|| word("model_provider_id"));
    }
    if let Some(environment) = last("environment_history") {
        facts.cli_version = word_at(environment, "cline_version").map(str::to_owned).or(facts.cli_version.take());
    }
}

/// The manifest of a session of the command line.
fn session(manifest: &Value, facts: &mut ThreadFacts) {
    let word = |value: &Value, key: &str| word_at(value, key).map(str::to_owned);
    let metadata = manifest.get("metadata").unwrap_or(&Value::Null);
    let prompt = str_at(manifest, "prompt");
    // What the program calls a session that nobody named: the beginning of its prompt.
    let title = shown(str_at(metadata, "title"), TITLE_CHARS);
    let is_made = |title: &String| shown(prompt, TITLE_CHARS).is_some_and(|prompt| prompt.starts_with(title.as_str()));
    facts.title = title.filter(|title| !is_made(title)).or(facts.title.take());
    facts.preview = facts.preview.take().or_else(|| shown(prompt, PREVIEW_CHARS));
    facts.cwd = word_at(manifest, "cwd").map(PathBuf::from).or(facts.cwd.take());
    facts.model = facts.model.take().or_else(|| word(manifest, "model"));
    facts.provider = facts.provider.take().or_else(|| word(manifest, "provider"));
    facts.source = facts.source.take().or_else(|| word(manifest, "source"));
    facts.git_branch = metadata.get("git").and_then(|git| word(git, "branch")).or(facts.git_branch.take());
    let time = |keys: &[&str]| Timestamp::parse(first_text(manifest, keys));
    facts.created_at = time(&["started_at"]).or(facts.created_at);
    facts.updated_at = facts.updated_at.max(time(&["ended_at", "started_at"]));
    count(facts, metadata.get("usage").map(tokens).unwrap_or_default());
}

/// Tokens of the whole, where no answer has said its own.
fn count(facts: &mut ThreadFacts, usage: Usage) {
    facts.usage = facts.usage.or((usage != Usage::default()).then_some(usage));
}
