//! Gemini CLI: one session per file, first a document that is written anew, later lines that are added.

mod line;
mod live;
mod project;
mod view;
mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use threadkeep::{Kind, Role, Timestamp, View, ViewCodec};

use self::line::{Class, Line};
use self::live::{Gathered, Live, Note};
use crate::codec::{Aside, Codec, KnownRecord, Place, Record, RecordNo, Shape, Skip, SourceReader, ThreadFacts};
use crate::conversation::Message;
use crate::json::read;
use crate::segments::{Segment, Segments, value_end};
use crate::writer::{Home, Invocation, Session, Writer};

/// The format tag and short name.
const NAME: &str = "gemini-cli";
/// The array of a session, and that of a saved chat.
const MESSAGES: &[&str] = &["messages"];
const HISTORY: &[&str] = &["history"];

/// The codec of Gemini CLI's sessions: documents (to 0.3x), lines (0.4x and later), and chats saved by `/chat save`.
///
/// Guarantees: records stand in file order; only `$rewindTo` begins a branch. A message that is written again under its id adds
/// what is new in it: its calls of tools and their results. A result that stands twice, in the call and as a message of its
/// own, is shown once.
#[derive(Debug, Clone, Copy, Default)]
pub struct GeminiCli;

impl ViewCodec for GeminiCli {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, kind: &Kind, content: &[u8]) -> View {
        view::view(kind, content)
    }

    fn awaits_result(&self, content: &[u8]) -> bool {
        view::awaits_result(content)
    }
}

impl Codec for GeminiCli {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut folders =
            path.parent().into_iter().flat_map(Path::components).map(|part| part.as_os_str().to_string_lossy());
        let is_saved = name.starts_with("session-") || name.starts_with("checkpoint-");
        let is_ours = |folder: &str| folder == "chats" || (folder.contains("gemini") && folder != ".gemini");
        name.ends_with(".jsonl") || (name.ends_with(".json") && (is_saved || folders.any(|folder| is_ours(&folder))))
    }

    fn shape(&self, path: &Path, head: &[u8]) -> Shape {
        if path.extension().is_none_or(|ending| ending != "json") || is_lines(head) {
            return Shape::Lines;
        }
        let text = String::from_utf8_lossy(head);
        let at = |key: &str| text.find(&format!("\"{key}\"")).unwrap_or(usize::MAX);
        Shape::Document(if at("history") < at("messages") { HISTORY } else { MESSAGES })
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        match self.shape(path, head) {
            Shape::Document(keys) => is_document(keys, head),
            _ => detect_lines(head),
        }
    }

    fn beside(&self, path: &Path) -> Vec<PathBuf> {
        let Some(project) = project(path) else { return Vec::new() };
        let registry = project.parent().and_then(Path::parent).map(|home| home.join("projects.json"));
        std::iter::once(project.join(".project_root")).chain(registry).collect()
    }

    fn aside(&self, session: &Path, path: &Path, bytes: &[u8]) -> Option<Aside> {
        let root = match path.file_name().is_some_and(|name| name == ".project_root") {
            true => PathBuf::from(String::from_utf8_lossy(bytes).trim()),
            false => registered(bytes, project(session)?.file_name()?.to_str()?)?,
        };
        // The marker in the project's own folder comes first.
        if !root.is_absolute() {
            return None;
        }
        Some(Aside::new(move |facts| facts.cwd = facts.cwd.take().or_else(|| Some(root.clone()))))
    }

    fn message(&self, kind: &Kind, content: &[u8]) -> Option<Message> {
        view::message(kind, content)
    }

    fn other_form(&self, path: &Path) -> Option<PathBuf> {
        // A document that is gone on with is written as lines beside itself (0.4x and later).
        let is_session = named(Some(path)).is_some_and(|name| name.starts_with("session-"));
        let other = match path.extension()?.to_str()? {
            "json" => "jsonl",
            "jsonl" => "json",
            _ => return None,
        };
        is_session.then(|| path.with_extension(other))
    }

    fn project(&self, session: &Session, home: &dyn Home) -> Option<String> {
        project::named(session.cwd.as_deref()?, home)
    }

    fn root(&self, home: &Path) -> Option<PathBuf> {
        Some(home.to_owned())
    }

    fn place(&self, session: &Session) -> Option<PathBuf> {
        Some(write::place(session))
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::GeminiWriter::writer(session)))
    }

    fn resuming(&self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["--resume".to_owned(), session.uuid().to_string()];
        Some(Invocation { program: "gemini", arguments })
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let gathered = state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let parent = path
            .parent()
            .filter(|folder| named(folder.parent()) == Some("chats"))
            .and_then(|folder| named(Some(folder)));
        let parent = parent.map(str::to_owned);
        Box::new(Reader { gathered, live: Live::default(), stem, parent, open: None })
    }
}

/// The folder that the agent keeps for a project: above `chats`.
fn project(path: &Path) -> Option<PathBuf> {
    let chats = path.ancestors().skip(1).take(2).find(|folder| named(Some(folder)) == Some("chats"))?;
    chats.parent().map(Path::to_owned)
}

/// The folder of a project by what the agent calls it, as its register of projects has it.
fn registered(register: &[u8], project: &str) -> Option<PathBuf> {
    let (register, _) = read::<Value>(register).ok()?;
    let mut projects = register.get("projects")?.as_object()?.iter();
    projects.find(|(_, slug)| slug.as_str() == Some(project)).map(|(root, _)| PathBuf::from(root))
}

fn named(folder: Option<&Path>) -> Option<&str> {
    folder?.file_name()?.to_str()
}

/// Whether a file holds lines, whatever its name says.
fn is_lines(head: &[u8]) -> bool {
    let mut lines = head.splitn(2, |byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default().trim_ascii();
    let whole = first.starts_with(b"{") && matches!(value_end(first), Ok(end) if end == first.len());
    whole && lines.next().is_some_and(|rest| rest.trim_ascii_start().starts_with(b"{"))
}

fn is_document(keys: &[&str], head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    let is_session = has("sessionId") && has("messages") && has("projectHash");
    let is_chat = keys == HISTORY && has("history") && has("parts") && has("role") && !has("uuid");
    text.starts_with('{') && (is_session || is_chat)
}

fn detect_lines(head: &[u8]) -> bool {
    for segment in Segments::new(head).map_while(Result::ok) {
        match segment {
            Segment::Record { bytes, .. } => {
                let Ok((line, _)) = read::<Line>(&bytes) else { continue };
                if line.is_foreign() {
                    return false;
                }
                if line.is_header() || line.set.0.is_some() || line.rewind_to.0.is_some() || line.kind.is("gemini") {
                    return true;
                }
                if !line.is_message() {
                    return false;
                }
            }
            // A first line longer than what is shown here: only its keys can be looked for.
            Segment::Tail { bytes, .. } => {
                let text = String::from_utf8_lossy(&bytes);
                return text.starts_with("{\"$set\"")
                    || (text.contains("\"projectHash\"") && text.contains("\"sessionId\""));
            }
            Segment::Opaque { .. } => {}
        }
    }
    false
}

struct Reader {
    gathered: Gathered,
    live: Live,
    /// The file's name without its ending.
    stem: String,
    /// The session whose sub-agent this is, by the folder.
    parent: Option<String>,
    /// The last record, if its agent is still at work on it.
    open: Option<RecordNo>,
}

impl SourceReader for Reader {
    fn frame(&mut self, bytes: &[u8]) {
        if let Ok((line, _)) = read::<Line>(bytes) {
            self.gathered.note_header(&line);
        }
    }

    fn known(&mut self, record: &KnownRecord<'_>) {
        let note = Note::decode(record.note).unwrap_or_else(|| self.live.next_in_line());
        self.live.push(&note);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (line, _) = read::<Line>(bytes).map_err(|error| Skip { reason: format!("unreadable record: {error}") })?;
        let created_at = line.timestamp.as_deref().and_then(Timestamp::parse);
        let known = line.id.as_deref().and_then(|id| self.live.find(id));
        let is_told = line.set.0.as_ref().is_some_and(|set| self.live.repeats(set));
        let Some(class) = line.classify(known, &self.gathered, is_told) else {
            return Err(Skip { reason: "a record without a type".to_owned() });
        };
        self.gathered.note(&line, class, known.is_some());
        let (kind, role) = class.kind(&line);
        if class == Class::Beside {
            let beside = Place::Beside;
            let source_id = None;
            return Ok(Record {
                place: beside,
                kind,
                role,
                created_at,
                source_id,
                starts_turn: false,
                note: Vec::new(),
            });
        }
        let note = self.live.place(&line, class, self.gathered.set_ids(class));
        self.live.push(&note);
        self.open = line.is_open().then(|| self.live.last()).flatten();
        Ok(Record {
            place: note.place(),
            kind,
            role,
            created_at,
            source_id: line.id.0.filter(|_| class != Class::Set),
            starts_turn: class == Class::Prompt,
            note: note.encode(),
        })
    }

    fn facts(&self) -> ThreadFacts {
        let mut facts = self.gathered.facts(&self.stem);
        if self.gathered.is_subagent() || self.parent.is_some() {
            facts.parent_session.clone_from(&self.parent);
            facts.source = Some("subagent".to_owned());
        }
        facts
    }

    fn state(&self) -> Vec<u8> {
        serde_json::to_vec(&self.gathered).unwrap_or_default()
    }

    fn unsettled(&self) -> Option<RecordNo> {
        self.open
    }
}

impl Class {
    /// What a record of this class is, and who speaks in it.
    fn kind(self, line: &Line) -> (Kind, Option<Role>) {
        match self {
            Self::Prompt => (Kind::Message, Some(Role::User)),
            Self::Context => (Kind::Context, Some(Role::System)),
            Self::Results => (Kind::ToolResult, Some(Role::Tool)),
            Self::Calls => (Kind::ToolCall, Some(Role::Assistant)),
            Self::Answer if line.only_thinks() => (Kind::Reasoning, Some(Role::Assistant)),
            Self::Answer => (Kind::Message, Some(Role::Assistant)),
            Self::Set => (Kind::Compaction, Some(Role::System)),
            Self::Rewind | Self::Event | Self::Beside => (Kind::Event, None),
        }
    }
}
