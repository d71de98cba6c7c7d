//! Cline, and Roo Code and Kilo Code, which come from it: the tasks of an editor's extension, and the sessions of Cline's command
//! line.

mod beside;
mod shown;
mod speech;
mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::{Timestamp, Usage};

use crate::blocks::anthropic;
use crate::codec::{Aside, Shape, ThreadFacts};
use crate::conversation::Block;
use crate::json::{first_text, labelled, str_at, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Tokens, Voice, folder, stem};
use crate::writer::{Invocation, Session, Turns, Writer};

/// An agent that keeps tasks as Cline does.
///
/// Guarantees: messages stand in file order; what the agent puts around a person's words, or in their place, is no prompt. A task of
/// which only the messages that were shown are left is read by these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cline {
    name: &'static str,
    /// The folders that tell whose files they are: the files themselves do not.
    folders: &'static [&'static str],
}

/// Cline itself.
pub(crate) const CLINE: Cline = Cline { name: "cline", folders: &["saoudrizwan.claude-dev", ".cline", "cline"] };

/// Roo Code.
pub(crate) const ROO_CODE: Cline =
    Cline { name: "roo-code", folders: &["rooveterinaryinc.roo-cline", "roo-code", "roo", ".roo"] };

/// Kilo Code, as it was before it was built anew on opencode.
pub(crate) const KILO_CODE: Cline =
    Cline { name: "kilo-code", folders: &["kilocode.kilo-code", "kilo-code", "kilo", ".kilocode"] };

/// What a task's folder holds: what the model is told.
const HISTORY: &str = "api_conversation_history.json";
/// What the person was shown, and what it was called in 2024.
const SHOWN: [&str; 2] = ["ui_messages.json", "claude_messages.json"];
/// The list of an extension's tasks.
const TASKS: &str = "taskHistory.json";
/// How the name of a session's messages ends, with the command line from version 3 on.
const MESSAGES: &str = ".messages.json";
/// The agent of a session that nobody spawned.
const LEAD: &str = "lead";

/// What a file is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    History,
    Shown,
    Messages,
}

fn file(path: &Path) -> Option<File> {
    match path.file_name()?.to_str()? {
        HISTORY => Some(File::History),
        name if SHOWN.contains(&name) => Some(File::Shown),
        name if name.ends_with(MESSAGES) => Some(File::Messages),
        _ => None,
    }
}

/// Whose file it is: the nearest folder that one of them has says it.
fn owner(path: &Path) -> &'static str {
    let of_folder = |name: &str| [CLINE, ROO_CODE, KILO_CODE].into_iter().find(|agent| agent.folders.contains(&name));
    let mut folders = path.ancestors().skip(1).filter_map(|folder| folder.file_name()?.to_str());
    folders.find_map(of_folder).map_or(CLINE.name, |agent| agent.name)
}

impl Format for Cline {
    fn name(self) -> &'static str {
        self.name
    }

    fn knows(self, path: &Path, _line: &Value) -> bool {
        file(path).is_some() && owner(path) == self.name
    }

    fn detect(self, path: &Path, head: &[u8]) -> bool {
        let is_ours = match file(path) {
            None => false,
            // Its name says it, however damaged it is.
            Some(File::History | File::Shown) => true,
            Some(File::Messages) => {
                let head = String::from_utf8_lossy(head);
                head.contains("\"messages\"") && ["\"sessionId\"", "\"agent\""].iter().any(|key| head.contains(key))
            }
        };
        is_ours && owner(path) == self.name
    }

    fn may_be_session(self, path: &Path) -> bool {
        file(path).is_some()
    }

    fn shape(self, _path: &Path, head: &[u8]) -> Shape {
        // Roo Code has begun to put its messages into an object, as the command line does.
        let text = head.strip_prefix(crate::segments::BOM).unwrap_or(head).trim_ascii_start();
        Shape::Document(if text.starts_with(b"[") { &[] } else { &["messages"] })
    }

    fn stands_in_for(self, path: &Path) -> Option<PathBuf> {
        (file(path) == Some(File::Shown)).then(|| path.with_file_name(HISTORY))
    }

    fn stood_in_by(self, path: &Path) -> Vec<PathBuf> {
        let is_history = file(path) == Some(File::History);
        SHOWN.iter().filter(|_| is_history).map(|name| path.with_file_name(name)).collect()
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type");
        let entry = match (word_at(line, "role"), kind) {
            (Some(role), _) => said(line, role),
            (None, Some("say" | "ask")) => shown::read(line),
            (None, Some("reasoning")) => {
                let summary =
                    line.get("summary").map(|said| words_of(&anthropic(said))).filter(|text| !text.is_empty());
                let text = summary.unwrap_or_else(|| str_at(line, "text").to_owned());
                Entry::said(Voice::Model, vec![Block::Reasoning { text }])
            }
            _ => return None,
        };
        let key = entry.key.clone().or_else(|| key(line));
        Some(Entry { at: time_at(line, "ts"), key, ..entry })
    }

    fn frame(self, frame: &Value) -> ThreadFacts {
        let origin = frame.get("origin").unwrap_or(&Value::Null);
        ThreadFacts {
            session_id: word_at(frame, "sessionId").map(str::to_owned),
            source: word_at(origin, "source").map(str::to_owned),
            cli_version: word_at(origin, "version").map(str::to_owned),
            persona: word_at(frame, "agent").filter(|agent| *agent != LEAD).map(str::to_owned),
            updated_at: time_at(frame, "updated_at"),
            ..ThreadFacts::default()
        }
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        match file(path) {
            Some(File::Messages) => settle_session(path, facts),
            Some(File::History | File::Shown) => {
                facts.session_id = folder(path, 1).map(str::to_owned).or(facts.session_id.take());
                let begun = facts.session_id.as_deref().and_then(begun);
                facts.created_at = begun.or(facts.created_at);
            }
            None => facts.session_id = facts.session_id.take().or_else(|| stem(path)),
        }
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        match file(path) {
            Some(File::Messages) => {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let manifest = name.strip_suffix(MESSAGES).map(|name| path.with_file_name(format!("{name}.json")));
                manifest.into_iter().collect()
            }
            Some(kind) => {
                let [shown, _] = SHOWN.map(|name| path.with_file_name(name));
                let storage = path.ancestors().nth(3).map(|storage| storage.join("state").join(TASKS));
                let own = ["task_metadata.json", "history_item.json"].map(|name| path.with_file_name(name));
                let shown = (kind == File::History).then_some(shown);
                shown.into_iter().chain(storage).chain(own).collect()
            }
            None => Vec::new(),
        }
    }

    fn is_list(self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == TASKS)
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        beside::read_aside(bytes)
    }

    fn root(self) -> Option<&'static str> {
        self.is_written().then_some(".cline")
    }

    fn place(self, session: &Session) -> Option<PathBuf> {
        self.is_written().then(|| write::place(session))
    }

    fn writer(self, session: &Session) -> Option<Box<dyn Writer>> {
        self.is_written().then(|| Box::new(Turns::writer(session, write::ClineActs::default())) as Box<dyn Writer>)
    }

    fn resuming(self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["--id".to_owned(), write::id(session)];
        self.is_written().then_some(Invocation { program: "cline", arguments })
    }
}

impl Cline {
    /// Whether sessions can be written for it: for Cline's command line alone.
    fn is_written(self) -> bool {
        self.name == CLINE.name
    }
}

/// A session of the command line, or of an agent that it spawned: these lie in the session's folder under their own names.
fn settle_session(path: &Path, facts: &mut ThreadFacts) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(MESSAGES).unwrap_or(name);
    match folder(path, 1).filter(|session| *session != name && facts.persona.is_some()) {
        Some(session) => {
            let own = facts.session_id.take().filter(|id| id != session);
            facts.session_id = own.or_else(|| Some(format!("{session}__{name}")));
            facts.parent_session = Some(session.to_owned());
            facts.source = Some("subagent".to_owned());
        }
        None => facts.session_id = facts.session_id.take().or_else(|| Some(name.to_owned())),
    }
}

/// When a task was begun: its id says it in milliseconds, unless it is a UUID.
fn begun(task: &str) -> Option<Timestamp> {
    let is_time = task.len() == 13 && task.bytes().all(|byte| byte.is_ascii_digit());
    task.parse().ok().filter(|_| is_time).map(Timestamp)
}

/// What a message is recognised by: its agent marks it in place when it condenses the task, and takes the mark away again.
fn key(line: &Value) -> Option<String> {
    const MARKS: [&str; 4] = ["condenseParent", "truncationParent", "metrics", "modelInfo"];
    let own = line.as_object()?.iter().filter(|(key, _)| !MARKS.contains(&key.as_str()));
    let own: serde_json::Map<String, Value> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    Some(blake3::hash(Value::Object(own).to_string().as_bytes()).to_hex().to_string())
}

/// A message as the model is told it, or as it said it.
fn said(line: &Value, role: &str) -> Entry {
    let blocks = anthropic(line.get("content").unwrap_or(&Value::Null));
    let mut entry = match role {
        _ if is_summary(line) => Entry::said(Voice::Summary, blocks),
        _ if line.get("isTruncationMarker").and_then(Value::as_bool) == Some(true) => {
            Entry::event(labelled("truncated", &words_of(&blocks), NOTE_CHARS))
        }
        "user" => speech::heard(blocks),
        "assistant" => Entry::said(Voice::Model, blocks),
        "tool" => Entry::said(Voice::Tool, blocks),
        "system" => Entry::said(Voice::Instructions, blocks),
        other => Entry { blocks, ..Entry::event(labelled("message", other, NOTE_CHARS)) },
    };
    let model = line.get("modelInfo").unwrap_or(&Value::Null);
    let [name, provider] = [["id", "modelId"], ["provider", "providerId"]]
        .map(|keys| Some(first_text(model, &keys)).filter(|word| !word.is_empty()).map(str::to_owned));
    let cwd = speech::folder(&entry.blocks).map(PathBuf::from);
    entry.says = ThreadFacts { model: name, provider, cwd, ..ThreadFacts::default() };
    entry.id = word_at(line, "id").map(str::to_owned);
    let metrics = line.get("metrics").unwrap_or(&Value::Null);
    entry.tokens = Tokens::of(tokens(metrics.get("tokens").unwrap_or(metrics)));
    entry
}

/// What stands for everything before it. The agents name it in one of these ways.
fn is_summary(line: &Value) -> bool {
    let is_set = |key: &str| line.get(key).and_then(Value::as_bool) == Some(true);
    let kind = line.get("metadata").map_or("", |metadata| str_at(metadata, "kind"));
    is_set("isSummary") || is_set("compactionSummary") || kind == "compaction_summary"
}

/// Tokens of an answer, or of a task. What came from the cache and went there stands beside the input of the extensions, but for one
/// form of Roo Code's; with the command line it is part of it, unless it is more.
fn tokens(metrics: &Value) -> Usage {
    let count = |keys: [&str; 3]| keys.iter().map(|key| u64_at(metrics, key)).max().unwrap_or_default();
    let input = count(["inputTokens", "tokensIn", "prompt"]);
    let output = count(["outputTokens", "tokensOut", "completion"]);
    let cached = count(["cacheReadTokens", "cacheReads", "cached"]);
    let cache = cached.saturating_add(count(["cacheWriteTokens", "cacheWrites", ""]));
    let of_extension = metrics.get("inputTokens").is_none() && str_at(metrics, "apiProtocol") != "openai";
    let input = if of_extension || cache > input { input.saturating_add(cache) } else { input };
    Usage { input, cached, output, reasoning: 0 }
}

fn words_of(blocks: &[Block]) -> String {
    let words =
        blocks.iter().filter_map(|block| if let Block::Text(text) = block { Some(text.as_str()) } else { None });
    words.collect::<Vec<_>>().join("\n\n")
}
