//! Copilot CLI: a log of events, in a folder for each session.

mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{anthropic, call, text};
use crate::codec::{Aside, ThreadFacts};
use crate::conversation::{Block, MediaData};
use crate::json::{first_text, labelled, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, Link, NOTE_CHARS, Tokens, Voice, folder, stem};
use crate::tree::{Parent, key};
use crate::writer::{Invocation, Session, Turns, Writer};

/// Copilot CLI's events, in their folders and in the flat files from before 1.0.
///
/// Guarantees: events stand in file order, whatever their links say, for those only chain the lines; a rewind begins a branch
/// before the event that it takes back. What sub-agents do stands among the events and is no part of the conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopilotCli;

const EVENTS: &str = "events.jsonl";

impl Format for CopilotCli {
    fn name(self) -> &'static str {
        "copilot-cli"
    }

    fn knows(self, _path: &Path, line: &Value) -> bool {
        let kind = str_at(line, "type");
        let begins = ["session.", "user.", "assistant.", "tool.", "system.", "hook.", "subagent.", "skill."];
        let typed = kind == "abort" || begins.iter().any(|start| kind.starts_with(start));
        let linked = line.get("parentId").is_some_and(|parent| parent.is_string() || parent.is_null());
        typed && linked && word_at(line, "id").is_some() && line.get("data").is_some_and(Value::is_object)
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type")?;
        let empty = Value::Null;
        let data = line.get("data").unwrap_or(&empty);
        let mut entry = event(kind, data);
        if word_at(data, "parentToolCallId").or_else(|| word_at(line, "agentId")).is_some() {
            entry.voice = Voice::Nobody;
        }
        let is_beside = line.get("ephemeral").and_then(Value::as_bool).unwrap_or_default();
        let id = word_at(line, "id").map(str::to_owned);
        Some(Entry { id, at: time_at(line, "timestamp"), is_beside, ..entry })
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        let named = if is_in_folder(path) { folder(path, 1).map(str::to_owned) } else { stem(path) };
        facts.session_id = facts.session_id.take().or(named);
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        if is_in_folder(path) { vec![path.with_file_name("workspace.yaml")] } else { Vec::new() }
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let text = String::from_utf8_lossy(bytes);
        let value = |key: &str| scalar(&text, key).filter(|value| !value.trim().is_empty());
        let (name, cwd, branch) = (value("name").or_else(|| value("summary")), value("cwd"), value("branch"));
        Some(Aside::new(move |facts| {
            facts.title = name.clone().or(facts.title.take());
            facts.cwd = facts.cwd.take().or_else(|| cwd.clone().map(PathBuf::from));
            facts.git_branch = facts.git_branch.take().or_else(|| branch.clone());
        }))
    }

    fn root(self) -> Option<&'static str> {
        Some(".copilot")
    }

    fn place(self, session: &Session) -> Option<PathBuf> {
        Some(write::folder(session).join(EVENTS))
    }

    fn writer(self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(Turns::writer(session, write::CopilotActs::default())))
    }

    fn resuming(self, session: &Session) -> Option<Invocation> {
        let arguments = vec![format!("--resume={}", session.uuid())];
        Some(Invocation { program: "copilot", arguments })
    }
}

fn is_in_folder(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == EVENTS)
}

/// The value of a key at the top of a YAML document that holds plain values only: unquoted, quoted, or a block of lines.
fn scalar(document: &str, key: &str) -> Option<String> {
    let mut lines = document.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim();
    if let Some(quoted) = value.strip_prefix('"') {
        // What JSON reads, YAML reads in the same way.
        return serde_json::from_str(value).ok().or_else(|| Some(quoted.trim_end_matches('"').to_owned()));
    }
    if let Some(quoted) = value.strip_prefix('\'') {
        return Some(quoted.strip_suffix('\'').unwrap_or(quoted).replace("''", "'"));
    }
    if value.starts_with(['|', '>']) {
        let block: Vec<&str> =
            lines.take_while(|line| line.starts_with(' ') || line.is_empty()).map(str::trim).collect();
        return Some(block.join(if value.starts_with('|') { "\n" } else { " " }).trim().to_owned());
    }
    Some(value.split(" #").next().unwrap_or_default().trim_end().to_owned()).filter(|value| value != "null")
}

fn event(kind: &str, data: &Value) -> Entry {
    let named = |said: &str| Entry::event(labelled(&kind.replace(['.', '_'], " "), said, NOTE_CHARS));
    let word = |key: &str| word_at(data, key).map(str::to_owned);
    match kind {
        "user.message" => user(data),
        "assistant.message" => answer(data),
        "assistant.reasoning" => {
            Entry::said(Voice::Model, vec![Block::Reasoning { text: str_at(data, "content").to_owned() }])
        }
        "tool.execution_start" => named(str_at(data, "toolName")),
        "tool.execution_complete" => Entry::said(Voice::Tool, vec![result(data)]),
        "system.message" => Entry::said(Voice::Instructions, text(str_at(data, "content")).into_iter().collect()),
        "session.start" | "session.resume" | "session.context_changed" => {
            let context = data.get("context").unwrap_or(data);
            Entry { says: session(data, context), ..named(str_at(context, "cwd")) }
        }
        "session.model_change" | "session.auto_mode_resolved" => {
            let model = word("newModel").or_else(|| word("chosenModel"));
            let note = named(model.as_deref().unwrap_or_default());
            Entry { says: ThreadFacts { model, ..ThreadFacts::default() }, ..note }
        }
        "session.title_changed" => {
            let note = named(str_at(data, "title"));
            Entry { says: ThreadFacts { title: word("title"), ..ThreadFacts::default() }, ..note }
        }
        "session.compaction_complete"
            if word_at(data, "summaryContent").is_some() || has_text(data, "summaryContent") =>
        {
            Entry::said(Voice::Summary, text(str_at(data, "summaryContent")).into_iter().collect())
        }
        "session.snapshot_rewind" => {
            let to = word_at(data, "upToEventId").map_or(Parent::Unsaid, |id| Parent::Before(key(id)));
            Entry { parent: Link(to), ..named(&format!("{} events taken back", u64_at(data, "eventsRemoved"))) }
        }
        "session.usage_record" => {
            let usage = data.get("usage").unwrap_or(&Value::Null);
            let response = word_at(usage, "apiCallId").map(str::to_owned);
            let tokens = Tokens::of(tokens(usage)).map(|tokens| Tokens { response, ..tokens });
            Entry { tokens, ..named(str_at(usage, "model")) }
        }
        "session.shutdown" => shutdown(data, named(str_at(data, "shutdownType"))),
        _ => named(first_text(
            data,
            &["message", "content", "agentDisplayName", "agentName", "name", "reason", "hookType"],
        )),
    }
}

fn has_text(data: &Value, key: &str) -> bool {
    !str_at(data, key).trim().is_empty()
}

fn session(data: &Value, context: &Value) -> ThreadFacts {
    let word = |value: &Value, key: &str| word_at(value, key).map(str::to_owned);
    ThreadFacts {
        session_id: word(data, "sessionId"),
        cli_version: word(data, "copilotVersion"),
        model: word(data, "selectedModel"),
        cwd: word_at(context, "cwd").map(PathBuf::from),
        git_branch: word(context, "branch"),
        git_sha: word(context, "headCommit").filter(|commit| commit.bytes().any(|digit| digit != b'0')),
        git_origin: word(context, "repository"),
        ..ThreadFacts::default()
    }
}

/// What the person typed; what the program made of it for the model stands beside that.
fn user(data: &Value) -> Entry {
    let mut blocks: Vec<Block> = text(str_at(data, "content")).into_iter().collect();
    let attachments = data.get("attachments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    blocks.extend(attachments.iter().map(attachment));
    // Skills and schedules speak in the person's name, and say so.
    let own = matches!(str_at(data, "source"), "" | "user") && !blocks.is_empty();
    Entry::said(if own { Voice::Person } else { Voice::Injected }, blocks)
}

fn attachment(attachment: &Value) -> Block {
    let media_type =
        word_at(attachment, "mimeType").or_else(|| word_at(attachment, "type")).unwrap_or("file").to_owned();
    let data = match (str_at(attachment, "data"), first_text(attachment, &["path", "filePath", "displayName"])) {
        ("", "") => MediaData::Absent,
        ("", path) => MediaData::Reference(path.to_owned()),
        (data, _) => MediaData::Base64(data.to_owned()),
    };
    Block::Media { media_type, data }
}

fn answer(data: &Value) -> Entry {
    let mut blocks = Vec::new();
    if has_text(data, "reasoningText") {
        blocks.push(Block::Reasoning { text: str_at(data, "reasoningText").to_owned() });
    }
    blocks.extend(text(str_at(data, "content")));
    let calls = data.get("toolRequests").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    blocks.extend(
        calls.iter().map(|asked| call(str_at(asked, "toolCallId"), str_at(asked, "name"), asked.get("arguments"))),
    );
    let says = ThreadFacts { model: word_at(data, "model").map(str::to_owned), ..ThreadFacts::default() };
    Entry { says, ..Entry::said(if blocks.is_empty() { Voice::Nobody } else { Voice::Model }, blocks) }
}

fn result(data: &Value) -> Block {
    let empty = Value::Null;
    let said = data.get("result").filter(|result| !result.is_null());
    let failed = data.get("success").and_then(Value::as_bool) == Some(false);
    let content = match (said, data.get("error")) {
        (Some(Value::Object(result)), _) => {
            let mut content = anthropic(result.get("content").unwrap_or(&empty));
            // Media stand beside the text.
            let more = anthropic(result.get("contents").unwrap_or(&empty));
            content.extend(more.into_iter().filter(|block| matches!(block, Block::Media { .. })));
            content
        }
        (Some(other), _) => text(&text_of(other)).into_iter().collect(),
        (None, Some(error)) => {
            let message = if error.is_object() { str_at(error, "message").to_owned() } else { text_of(error) };
            text(&message).into_iter().collect()
        }
        (None, None) => Vec::new(),
    };
    Block::Result { id: str_at(data, "toolCallId").to_owned(), content, is_error: failed }
}

/// What was read from the cache is part of the input.
fn tokens(usage: &Value) -> Usage {
    Usage {
        input: u64_at(usage, "inputTokens"),
        cached: u64_at(usage, "cacheReadTokens"),
        output: u64_at(usage, "outputTokens"),
        reasoning: u64_at(usage, "reasoningTokens"),
    }
}

/// The sums of a run of the program, over all models.
fn shutdown(data: &Value, note: Entry) -> Entry {
    let sums = data.get("accountingSnapshot").unwrap_or(data);
    let mut total = Usage::default();
    for metrics in sums.get("modelMetrics").and_then(Value::as_object).into_iter().flat_map(|models| models.values()) {
        let one = metrics.get("usage").map(tokens).unwrap_or_default();
        total.input = total.input.saturating_add(one.input);
        total.cached = total.cached.saturating_add(one.cached);
        total.output = total.output.saturating_add(one.output);
        total.reasoning = total.reasoning.saturating_add(one.reasoning);
    }
    // A run that is ended twice states its sums again.
    let response = sums.get("sessionStartTime").map(text_of);
    let tokens = Tokens::of(total).map(|tokens| Tokens { response, is_total: true, ..tokens });
    Entry { tokens, ..note }
}

#[cfg(test)]
mod tests {
    use super::scalar;

    #[test]
    fn plain_values_of_a_document_are_read() {
        let document = "id: x\nname: List the files 你好 # not this\nquoted: \"a: \\\"b\\\"\"\nsingle: 'it''s'\nblock: |-\n  one\n  two\nfolded: >\n  three\n  four\nempty:\nnone: null\n  inner: no\n";
        let expected = [
            ("name", Some("List the files 你好")),
            ("quoted", Some("a: \"b\"")),
            ("single", Some("it's")),
            ("block", Some("one\ntwo")),
            ("folded", Some("three four")),
            ("empty", Some("")),
            ("none", None),
            ("inner", None),
            ("absent", None),
        ];
        for (key, value) in expected {
            assert_eq!(scalar(document, key).as_deref(), value, "{key}");
        }
    }
}
