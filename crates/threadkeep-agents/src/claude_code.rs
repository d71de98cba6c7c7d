//! Claude Code: one file per session, its records linked by `uuid` and `parentUuid`.

mod facts;
mod line;
mod message;
mod view;
mod write;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use threadkeep::{Kind, Timestamp, View, ViewCodec};

use self::facts::Gathered;
use self::line::Line;
use crate::codec::{Aside, Codec, KnownRecord, Place, Record, RecordNo, Skip, SourceReader, ThreadFacts};
use crate::conversation::Message;
use crate::facts::is_uuid;
use crate::json::{Word, read};
use crate::segments::{Segment, Segments};
use crate::tree::{self, Note, Tree};
use crate::writer::{Invocation, Session, Writer};

/// The format tag and short name.
const NAME: &str = "claude-code";

/// The codec of Claude Code's session files, versions 1.0 to 2.1.
///
/// Guarantees: no record is lost, whatever its parent link says; a branch begins only where a prompt, or an answer to
/// an earlier prompt, continues an older record; a path that begins a branch holds every result, among the records
/// before it, of the calls on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClaudeCode;

impl ViewCodec for ClaudeCode {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, _kind: &Kind, content: &[u8]) -> View {
        view::view(content)
    }
}

impl Codec for ClaudeCode {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if path.file_name().is_some_and(|name| name == "history.jsonl") {
            return false;
        }
        for segment in Segments::new(head).map_while(Result::ok) {
            match segment {
                Segment::Record { bytes, .. } => {
                    let Ok((line, _)) = read::<Line>(&bytes) else {
                        continue;
                    };
                    if line.is_known() || line.is_foreign() {
                        return line.is_known();
                    }
                }
                // A first line longer than what is shown here: only its keys can be looked for.
                Segment::Tail { bytes, .. } => return names_keys(&bytes),
                Segment::Opaque { .. } => {}
            }
        }
        false
    }

    fn beside(&self, path: &Path) -> Vec<PathBuf> {
        vec![path.with_extension("meta.json")]
    }

    fn aside(&self, _session: &Path, _path: &Path, bytes: &[u8]) -> Option<Aside> {
        let agent = sub_agent(bytes)?;
        Some(Aside::new(move |facts| {
            if facts.parent_session.is_some() {
                facts.persona = facts.persona.take().or_else(|| agent.role.clone());
                facts.title = facts.title.take().or_else(|| agent.description.clone());
            }
        }))
    }

    fn message(&self, _kind: &Kind, content: &[u8]) -> Option<Message> {
        message::message(content)
    }

    fn root(&self, home: &Path) -> Option<PathBuf> {
        Some(home.join(".claude"))
    }

    fn place(&self, session: &Session) -> Option<PathBuf> {
        write::place(session)
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::ClaudeCodeWriter::new(session)))
    }

    fn resuming(&self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["--resume".to_owned(), session.uuid().to_string()];
        write::agent_file(session).is_none().then_some(Invocation { program: "claude", arguments })
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let gathered = state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let is_agent = stem.starts_with("agent-");
        let folder = path.parent().filter(|_| is_agent).and_then(session_folder);
        Box::new(Reader { tree: Tree::default(), gathered, stem, is_agent, folder })
    }
}

/// Reads what stands beside a sub-agent's file in `agent-<id>.meta.json`; `None` when it is no such JSON.
pub fn sub_agent(meta: &[u8]) -> Option<SubAgent> {
    let (found, _) = read::<Meta>(meta).ok()?;
    Some(SubAgent { role: found.agent_type.0, description: found.description.0, call_id: found.tool_use_id.0 })
}

/// What the parent session recorded of a sub-agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubAgent {
    /// Its kind, such as `general-purpose` or `Explore`.
    pub role: Option<String>,
    /// What it was asked for, in a few words.
    pub description: Option<String>,
    /// The tool call in the parent session that started it.
    pub call_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    agent_type: Word,
    description: Word,
    tool_use_id: Word,
}

/// The session that a sub-agent's folder lies in: `<session>/subagents/…`.
fn session_folder(folder: &Path) -> Option<String> {
    let mut below = None;
    for part in folder.components().rev() {
        let name = part.as_os_str().to_str()?;
        if below == Some("subagents") {
            return is_uuid(name).then(|| name.to_owned());
        }
        below = Some(name);
    }
    None
}

/// Whether the beginning of a record that is cut off looks like one of ours.
fn names_keys(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    has("sessionId") && has("parentUuid") && has("type") && !has("parts")
}

struct Reader {
    tree: Tree,
    gathered: Gathered,
    stem: String,
    /// In a sub-agent's own file everything is a sidechain, so nothing is.
    is_agent: bool,
    folder: Option<String>,
}

impl SourceReader for Reader {
    fn known(&mut self, record: &KnownRecord<'_>) {
        let id = record.source_id.map(tree::key);
        // A note of another version: the record is at least kept in line.
        let note = Note::decode(record.note).unwrap_or_else(|| self.tree.next_in_line());
        self.tree.push(&note, id);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (line, _) = read::<Line>(bytes).map_err(|error| Skip { reason: format!("unreadable record: {error}") })?;
        if line.kind.0.is_none() {
            return Err(Skip { reason: "a record without a type".to_owned() });
        }
        if !line.is_chained() {
            self.gathered.note(&line, None);
            return Ok(Record {
                place: Place::Beside,
                kind: Kind::Event,
                role: None,
                created_at: line.timestamp.as_deref().and_then(Timestamp::parse),
                source_id: None,
                starts_turn: false,
                note: Vec::new(),
            });
        }
        let reading = line.read();
        self.gathered.note(&line, Some(&reading));
        let arrival = line.arrival(reading.class, self.is_agent);
        let repeats = arrival.id.is_some_and(|id| self.tree.contains(id));
        let note = self.tree.place(&arrival);
        self.tree.push(&note, arrival.id);
        Ok(Record {
            place: note.place(),
            kind: reading.kind,
            role: reading.role,
            created_at: line.timestamp.as_deref().and_then(Timestamp::parse),
            source_id: line.source_id().map(str::to_owned),
            // The prompt of a sidechain comes from the agent; in a sub-agent's own file it is what its thread is about.
            starts_turn: reading.asks && !repeats && !arrival.sidechain,
            note: note.encode(),
        })
    }

    fn facts(&self) -> ThreadFacts {
        self.gathered.facts(&self.tree, &self.stem, self.is_agent.then_some(self.folder.as_deref()))
    }

    fn state(&self) -> Vec<u8> {
        serde_json::to_vec(&self.gathered).unwrap_or_default()
    }

    fn head(&self) -> Option<RecordNo> {
        self.tree.head()
    }
}
