//! pi, and the agents that are built on it: a true tree of entries in one file.

mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use crate::blocks::{anthropic, text};
use crate::codec::ThreadFacts;
use crate::conversation::Block;
use crate::facts::is_uuid;
use crate::json::{first_text, labelled, parent_at, str_at, text_of, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, Link, NOTE_CHARS, Tokens, Voice, stem};
use crate::writer::{Invocation, Session, Turns, Writer};

/// An agent that writes pi's files, versions 1 to 3.
///
/// Guarantees: each entry stands after its parent, wherever that is; entries without links (version 1) and those whose parents are
/// missing stand in file order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pi {
    name: &'static str,
    /// The folders that tell whose files they are: the files themselves do not.
    folders: &'static [&'static str],
}

/// pi itself.
pub(crate) const PI: Pi = Pi { name: "pi", folders: &[".pi"] };

/// `OpenClaw`, under each of its names.
pub(crate) const OPENCLAW: Pi = Pi { name: "openclaw", folders: &[".openclaw", "openclaw", ".clawdbot", ".moltbot"] };

/// Oh My Pi.
pub(crate) const OMP: Pi = Pi { name: "omp", folders: &[".omp", "omp"] };

/// Entries that a file may have lost its header before.
const ENTRIES: [&str; 10] = [
    "message",
    "model_change",
    "thinking_level_change",
    "compaction",
    "branch_summary",
    "custom",
    "custom_message",
    "label",
    "session_info",
    "mode_change",
];

impl Format for Pi {
    fn name(self) -> &'static str {
        self.name
    }

    fn knows(self, path: &Path, line: &Value) -> bool {
        let is_header = str_at(line, "type") == "session"
            && word_at(line, "id").is_some()
            && (line.get("version").is_some_and(Value::is_u64) || line.get("cwd").is_some_and(Value::is_string));
        let is_entry = || {
            let has = |key: &str| line.get(key).is_some_and(|value| value.is_string() || value.is_null());
            ENTRIES.contains(&str_at(line, "type")) && has("id") && has("parentId") && named_session(path).is_some()
        };
        self.owns(path) && (is_header || is_entry())
    }

    fn read(self, line: &Value) -> Option<Entry> {
        let kind = word_at(line, "type")?;
        let entry = match kind {
            "session" => header(line),
            "message" => message(line.get("message").unwrap_or(&Value::Null)),
            "compaction" => Entry::said(Voice::Summary, text(str_at(line, "summary")).into_iter().collect()),
            "branch_summary" => Entry::said(Voice::Injected, text(str_at(line, "summary")).into_iter().collect()),
            "custom_message" => Entry::said(Voice::Injected, anthropic(line.get("content").unwrap_or(&Value::Null))),
            other => event(other, line),
        };
        let id = word_at(line, "id").map(str::to_owned);
        let at = time_at(line, "timestamp").or(entry.at);
        Some(Entry { id, at, parent: Link(parent_at(line, "parentId")), ..entry })
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        facts.session_id = facts.session_id.take().or_else(|| named_session(path)).or_else(|| stem(path));
    }

    fn root(self) -> Option<&'static str> {
        (self.name == PI.name).then_some(".pi/agent")
    }

    fn place(self, session: &Session) -> Option<PathBuf> {
        if self.name == PI.name { write::place(session) } else { None }
    }

    fn writer(self, session: &Session) -> Option<Box<dyn Writer>> {
        (self.name == PI.name).then(|| Box::new(Turns::writer(session, write::PiActs::default())) as Box<dyn Writer>)
    }

    fn resuming(self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["--session".to_owned(), session.uuid().to_string()];
        (self.name == PI.name).then_some(Invocation { program: "pi", arguments })
    }
}

impl Pi {
    /// Whether a file lies where this agent keeps its own, and not in another one's folder nearer to it.
    fn owns(self, path: &Path) -> bool {
        let owner = path.ancestors().skip(1).filter_map(Path::file_name).find_map(|folder| {
            let folder = folder.to_str()?;
            [PI, OPENCLAW, OMP].into_iter().find(|agent| agent.folders.contains(&folder))
        });
        owner.unwrap_or(PI).name == self.name
    }
}

/// The session that a file is named after: `<time>_<id>.jsonl`.
fn named_session(path: &Path) -> Option<String> {
    let stem = stem(path)?;
    let (_, id) = stem.rsplit_once('_')?;
    is_uuid(id).then(|| id.to_owned())
}

fn header(line: &Value) -> Entry {
    let parent = ["parentSession", "branchedFrom"].iter().find_map(|key| word_at(line, key));
    let forked_from = parent.and_then(|parent| {
        // Paths of either kind of system stand here, whatever this one is.
        let file = parent.rsplit(['/', '\\']).next().unwrap_or(parent);
        named_session(Path::new(file)).or_else(|| stem(Path::new(file)))
    });
    let says = ThreadFacts {
        session_id: word_at(line, "id").map(str::to_owned),
        cwd: word_at(line, "cwd").map(PathBuf::from),
        model: word_at(line, "modelId").map(str::to_owned),
        provider: word_at(line, "provider").map(str::to_owned),
        title: word_at(line, "title").map(str::to_owned),
        forked_from,
        ..ThreadFacts::default()
    };
    Entry { is_beside: true, says, ..Entry::event(labelled("session", str_at(line, "cwd"), NOTE_CHARS)) }
}

fn event(kind: &str, line: &Value) -> Entry {
    let mut says = ThreadFacts::default();
    let said = match kind {
        "model_change" => {
            says.model = word_at(line, "modelId").or_else(|| word_at(line, "model")).map(str::to_owned);
            says.provider = word_at(line, "provider").map(str::to_owned);
            says.model.clone().unwrap_or_default()
        }
        "session_info" => {
            says.title = word_at(line, "name").map(str::to_owned);
            str_at(line, "name").to_owned()
        }
        "label" => str_at(line, "label").to_owned(),
        "thinking_level_change" => str_at(line, "thinkingLevel").to_owned(),
        _ => first_text(line, &["customType", "name", "text", "message", "mode"]).to_owned(),
    };
    Entry { says, ..Entry::event(labelled(&kind.replace('_', " "), &said, NOTE_CHARS)) }
}

fn message(message: &Value) -> Entry {
    let content = || anthropic(message.get("content").unwrap_or(&Value::Null));
    let entry = match str_at(message, "role") {
        "user" => {
            let blocks = content();
            Entry::said(if blocks.is_empty() { Voice::Nobody } else { Voice::Person }, blocks)
        }
        "assistant" => answer(message, content()),
        "toolResult" => {
            let id = str_at(message, "toolCallId").to_owned();
            let is_error = message.get("isError").and_then(Value::as_bool).unwrap_or_default();
            Entry::said(Voice::Tool, vec![Block::Result { id, content: content(), is_error }])
        }
        "bashExecution" => command(message),
        "custom" | "hookMessage" => Entry::said(Voice::Injected, content()),
        "branchSummary" => Entry::said(Voice::Injected, text(str_at(message, "summary")).into_iter().collect()),
        "compactionSummary" => Entry::said(Voice::Summary, text(str_at(message, "summary")).into_iter().collect()),
        other => Entry { blocks: content(), ..Entry::event(labelled("message", other, NOTE_CHARS)) },
    };
    Entry { at: time_at(message, "timestamp"), ..entry }
}

fn answer(message: &Value, blocks: Vec<Block>) -> Entry {
    let says = ThreadFacts {
        model: word_at(message, "model").map(str::to_owned),
        provider: word_at(message, "provider").map(str::to_owned),
        ..ThreadFacts::default()
    };
    let tokens = message.get("usage").and_then(|usage| Tokens::of(tokens(usage)));
    let note = labelled(str_at(message, "stopReason"), str_at(message, "errorMessage"), NOTE_CHARS);
    // An answer that failed before it began says nothing.
    let voice = if blocks.is_empty() { Voice::Nobody } else { Voice::Model };
    Entry { says, tokens, note, ..Entry::said(voice, blocks) }
}

/// What came from and went to the cache is counted apart from the input.
fn tokens(usage: &Value) -> Usage {
    let cached = u64_at(usage, "cacheRead");
    let fresh = u64_at(usage, "input").saturating_add(u64_at(usage, "cacheWrite"));
    Usage { input: fresh.saturating_add(cached), cached, output: u64_at(usage, "output"), reasoning: 0 }
}

/// A command that the person ran beside the conversation; the model is told of it, unless it was asked not to be.
fn command(message: &Value) -> Entry {
    let mut said = format!("! {}", str_at(message, "command"));
    let output = message.get("output").map(text_of).unwrap_or_default();
    if !output.is_empty() {
        said.push('\n');
        said.push_str(&output);
    }
    if let Some(code) = message.get("exitCode").and_then(Value::as_i64).filter(|code| *code != 0) {
        said.push_str(&format!("\nexit code {code}"));
    }
    let hidden = message.get("excludeFromContext").and_then(Value::as_bool).unwrap_or_default();
    Entry::said(if hidden { Voice::Nobody } else { Voice::Command }, vec![Block::Text(said)])
}
