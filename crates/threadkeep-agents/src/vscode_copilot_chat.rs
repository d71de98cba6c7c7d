//! VS Code's chat, which Copilot answers in: a document for each session (versions 1 to 3), and since 1.109 a log of changes to it.
//!
//! The keys are those of `chatModel.ts`, `objectMutationLog.ts` and `chatSessionOperationLog.ts` in microsoft/vscode, and, for what
//! the model itself said and called, of the metadata that GitHub's extension adds to a result.

mod log;
mod request;

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::Usage;

use self::log::Log;
use self::request::Requests;
use crate::blocks::{call, text};
use crate::codec::{Aside, Shape, ThreadFacts};
use crate::conversation::{Block, MediaData};
use crate::json::{labelled, path_of_uri, read, str_at, time_at, u64_at, word_at};
use crate::lines::{Entry, Format, NOTE_CHARS, Tokens, Voice, knows_a_record, stem};
use crate::replay::Replay;

const REQUESTS: &[&str] = &["requests"];
/// The folders that hold sessions: of a workspace, and of windows without one.
const FOLDERS: [&str; 2] = ["chatSessions", "emptyWindowChatSessions"];

/// VS Code's chat sessions.
///
/// Guarantees: a request becomes a prompt and what came of it, in the order in which the model said it, with the arguments and
/// results that the model was given where the file has them; whether a session stands in a document or in a log makes no
/// difference to what becomes of it. A request that was sent again continues the one before it, so it is a branch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopilotChat;

impl Format for CopilotChat {
    fn name(self) -> &'static str {
        "vscode-copilot-chat"
    }

    fn knows(self, path: &Path, line: &Value) -> bool {
        let Some(kind) = line.get("kind").and_then(Value::as_u64) else { return false };
        let is_state = line.get("v").is_some_and(|state| state.get("requests").is_some_and(Value::is_array));
        // A log that lost its first line is known by where it lies.
        let is_change = || lies_at_home(path) && line.get("k").is_some_and(Value::is_array);
        if kind == 0 { is_state } else { kind <= 3 && is_change() }
    }

    fn may_be_session(self, path: &Path) -> bool {
        let ending = path.extension().and_then(|ending| ending.to_str());
        lies_at_home(path) && matches!(ending, Some("json" | "jsonl"))
    }

    fn shape(self, path: &Path, head: &[u8]) -> Shape {
        let is_log = path.extension().is_some_and(|ending| ending == "jsonl") || begins_as_log(head);
        Shape::Replayed(if is_log { None } else { Some(REQUESTS) })
    }

    fn detect(self, path: &Path, head: &[u8]) -> bool {
        if self.shape(path, head) == Shape::Replayed(None) {
            return knows_a_record(self, path, head);
        }
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let has = |key: &str| text.contains(&format!("\"{key}\""));
        let is_chat = has("requests") && (has("responderUsername") || has("initialLocation"));
        text.starts_with('{') && (is_chat || (lies_at_home(path) && has("requests")))
    }

    fn replay(self, shape: Shape) -> Option<Box<dyn Replay>> {
        match shape {
            Shape::Replayed(None) => Some(Box::new(Log::default())),
            Shape::Replayed(Some(_)) => Some(Box::new(Requests::default())),
            _ => None,
        }
    }

    fn frame(self, frame: &Value) -> ThreadFacts {
        session(frame).says
    }

    fn read(self, record: &Value) -> Option<Entry> {
        let part = word_at(record, "part")?;
        let mut entry = match part {
            request::PROMPT => Entry::said(Voice::Person, prompt(record)),
            request::ANSWER => answer(record),
            request::RESULTS => Entry::said(Voice::Tool, results(record)),
            request::END => Entry::event(labelled(str_at(record, "state"), str_at(record, "text"), NOTE_CHARS)),
            request::SESSION => session(record),
            request::OPEN => Entry { is_beside: true, is_open: true, ..Entry::event("the answer is not finished") },
            _ => return None,
        };
        entry.id = word_at(record, "id").map(str::to_owned);
        entry.key.clone_from(&entry.id);
        entry.at = entry.at.or_else(|| time_at(record, "timestamp"));
        Some(entry)
    }

    fn settle(self, path: &Path, facts: &mut ThreadFacts) {
        facts.session_id = facts.session_id.take().or_else(|| stem(path));
    }

    fn beside(self, path: &Path) -> Vec<PathBuf> {
        let storage = path.parent().and_then(Path::parent).filter(|_| lies_at_home(path));
        storage.map(|storage| storage.join("workspace.json")).into_iter().collect()
    }

    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let (workspace, _) = read::<Value>(bytes).ok()?;
        // Of a workspace of several folders, the file that lists them.
        let of_several = || path_of_uri(word_at(&workspace, "workspace")?)?.parent().map(Path::to_owned);
        let folder = word_at(&workspace, "folder").and_then(path_of_uri).or_else(of_several);
        Some(Aside::new(move |facts| facts.cwd = facts.cwd.take().or_else(|| folder.clone())))
    }
}

fn lies_at_home(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| FOLDERS.iter().any(|known| folder == *known))
}

/// Whether a file holds a log, whatever its name says: its first line is the whole state.
fn begins_as_log(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    head.strip_prefix(b"{\"kind\":").is_some_and(|rest| rest.trim_ascii_start().first().is_some_and(u8::is_ascii_digit))
}

/// What a session says of itself.
fn session(session: &Value) -> Entry {
    let model = session
        .get("inputState")
        .and_then(|input| input.get("selectedModel"))
        .and_then(|model| word_at(model, "identifier"));
    let says = ThreadFacts {
        session_id: word_at(session, "sessionId").map(str::to_owned),
        title: word_at(session, "customTitle").map(str::to_owned),
        model: model.map(str::to_owned),
        created_at: time_at(session, "creationDate"),
        ..ThreadFacts::default()
    };
    Entry { is_beside: true, says, at: time_at(session, "creationDate"), ..Entry::event("session") }
}

fn prompt(record: &Value) -> Vec<Block> {
    let mut blocks: Vec<Block> = text(str_at(record, "text")).into_iter().collect();
    for attached in list(record, "attached") {
        let name = str_at(attached, "name");
        match str_at(attached, "kind") {
            "image" => {
                let media_type = word_at(attached, "mimeType").unwrap_or("image").to_owned();
                blocks.push(Block::Media { media_type, data: MediaData::Absent });
            }
            kind => {
                let named = [name, str_at(attached, "uri")].into_iter().find(|text| !text.is_empty());
                blocks.extend(named.map(|named| {
                    Block::Text(format!("[{}: {named}]", if kind.is_empty() { "attached" } else { kind }))
                }));
            }
        }
    }
    blocks
}

fn answer(record: &Value) -> Entry {
    let mut blocks = Vec::new();
    for block in list(record, "said") {
        match str_at(block, "type") {
            "thinking" => blocks.push(Block::Reasoning { text: str_at(block, "text").to_owned() }),
            "call" => blocks.push(call(str_at(block, "id"), str_at(block, "name"), block.get("arguments"))),
            _ => blocks.extend(text(str_at(block, "text"))),
        }
    }
    let usage =
        Usage { input: u64_at(record, "promptTokens"), output: u64_at(record, "outputTokens"), ..Usage::default() };
    let says = ThreadFacts { model: word_at(record, "model").map(str::to_owned), ..ThreadFacts::default() };
    Entry { tokens: Tokens::of(usage), says, ..Entry::said(Voice::Model, blocks) }
}

fn results(record: &Value) -> Vec<Block> {
    let result = |result: &Value| {
        let mut content: Vec<Block> = text(str_at(result, "text")).into_iter().collect();
        let media = list(result, "media").iter().filter_map(Value::as_str);
        content.extend(media.map(|kind| Block::Media { media_type: kind.to_owned(), data: MediaData::Absent }));
        let is_error = result.get("isError") == Some(&Value::Bool(true));
        Block::Result { id: str_at(result, "id").to_owned(), content, is_error }
    };
    list(record, "results").iter().map(result).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
