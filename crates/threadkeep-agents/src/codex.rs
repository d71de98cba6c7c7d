//! Codex: one rollout file per thread, its records in the order in which they happened.

mod facts;
mod line;
mod message;
mod persistence;
mod view;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use threadkeep::{Kind, View, ViewCodec};

use self::facts::Gathered;
use self::line::{Class, Line};
use crate::codec::{Codec, KnownRecord, Place, Record, RecordNo, Shape, Skip, SourceReader, ThreadFacts};
use crate::conversation::Message;
use crate::json::{Word, read};
use crate::segments::{Segment, Segments};
use crate::writer::{Invocation, Session, Writer};

/// The format tag and short name.
const NAME: &str = "codex";
/// The array of a document.
const ITEMS: &[&str] = &["items"];
const NONE: u32 = u32::MAX;
const NOTE_VERSION: u8 = 1;
const HAS_ORDINAL: u8 = 8;

/// The codec of Codex rollouts, from the first ones in Rust (bare lines) to the numbered lines of 0.171.
///
/// Guarantees: records stand in file order; only a rollback begins a branch, at the record before the oldest turn
/// that it takes back. The single JSON documents of the TypeScript program are read by their items.
#[derive(Debug, Clone, Copy, Default)]
pub struct Codex;

impl ViewCodec for Codex {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, _kind: &Kind, content: &[u8]) -> View {
        view::view(content)
    }

    fn awaits_result(&self, content: &[u8]) -> bool {
        view::awaits_result(content)
    }

    fn record(&self, content: &[u8]) -> Option<String> {
        persistence::record(content)
    }

    fn shortened(&self, content: &[u8]) -> Option<Vec<u8>> {
        persistence::shortened(content)
    }
}

impl Codec for Codex {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".jsonl") || name.ends_with(".jsonl.zst") || is_document(path)
    }

    fn shape(&self, path: &Path, _head: &[u8]) -> Shape {
        if is_document(path) { Shape::Document(ITEMS) } else { Shape::Lines }
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if is_document(path) {
            let text = String::from_utf8_lossy(head);
            let begins = text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
            return begins && text.contains("\"session\"");
        }
        let named = thread_id(path).is_some();
        for segment in Segments::new(head).map_while(Result::ok) {
            match segment {
                Segment::Record { bytes, .. } => {
                    let Ok((line, _)) = read::<Line>(&bytes) else {
                        continue;
                    };
                    if line.begins_rollout() {
                        return true;
                    }
                    // A rollout that lost its first line is still one by its name.
                    if !named {
                        return false;
                    }
                }
                // A first line longer than what is shown here: only its keys can be looked for.
                Segment::Tail { bytes, .. } => return names_keys(&bytes),
                Segment::Opaque { .. } => {}
            }
        }
        false
    }

    fn message(&self, _kind: &Kind, content: &[u8]) -> Option<Message> {
        message::message(content)
    }

    fn root(&self, home: &Path) -> Option<PathBuf> {
        Some(home.join(".codex"))
    }

    fn place(&self, session: &Session) -> Option<PathBuf> {
        Some(write::place(session))
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        Some(Box::new(write::CodexWriter::new(session)))
    }

    fn resuming(&self, session: &Session) -> Option<Invocation> {
        let arguments = vec!["resume".to_owned(), session.uuid().to_string()];
        Some(Invocation { program: "codex", arguments })
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let gathered = state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        Box::new(Reader { gathered, name: thread_id(path), placed: 0, turns: Vec::new(), opened: None })
    }
}

/// The names that `session_index.jsonl` gives to threads, by thread id.
///
/// The last name of a thread counts; lines that are torn, glued or no entries are stepped over.
pub fn session_names(index: &[u8]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for segment in Segments::new(index).map_while(Result::ok) {
        let Segment::Record { bytes, .. } = segment else {
            continue;
        };
        let Ok((entry, _)) = read::<Entry>(&bytes) else {
            continue;
        };
        if let Some((id, name)) = entry.id.0.zip(entry.thread_name.0) {
            names.insert(id, name);
        }
    }
    names
}

/// Whether a file is one of the documents that the TypeScript program wrote (`rollout-<date>-<uuid>.json`).
fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json") && thread_id(path).is_some()
}

/// A document without its items.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Frame {
    session: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    id: Word,
    thread_name: Word,
}

/// The thread that a file is named after: `rollout-<time>-<uuid>.jsonl`, compressed or not, or `.json`.
fn thread_id(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".zst").unwrap_or(name);
    let stem = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json"))?;
    let from = stem.strip_prefix("rollout-")?.len().checked_sub(36)?;
    let id = stem.get("rollout-".len() + from..)?;
    let dashes = id.char_indices().filter(|(_, c)| *c == '-').map(|(at, _)| at);
    let hex = id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (hex && dashes.eq([8, 13, 18, 23])).then(|| id.to_owned())
}

/// Whether the beginning of a record that is cut off looks like a header.
fn names_keys(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    let bare = has("timestamp") && has("instructions") && has("id");
    (has("payload") && has("session_meta")) || (text.starts_with("{\"id\"") && bare)
}

/// What is remembered of a placed record.
#[derive(Debug, Clone, Copy)]
struct Note {
    class: Class,
    /// The record it stands after.
    place: u32,
    /// Of a prompt: the record before its turn. Of a rollback: how many turns it takes back.
    turn: u32,
    ordinal: Option<u64>,
}

impl Note {
    fn encode(self) -> Vec<u8> {
        let flags = if self.ordinal.is_some() { HAS_ORDINAL } else { 0 };
        let mut out = vec![(NOTE_VERSION << 4) | flags | self.class as u8];
        out.extend_from_slice(&self.place.to_le_bytes());
        out.extend_from_slice(&self.turn.to_le_bytes());
        if let Some(ordinal) = self.ordinal {
            out.extend_from_slice(&ordinal.to_le_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let class = match (tag >> 4 == NOTE_VERSION, tag & !HAS_ORDINAL & 0xf) {
            (true, 0) => Class::Plain,
            (true, 1) => Class::Prompt,
            (true, 2) => Class::Opener,
            (true, 3) => Class::Rollback,
            _ => return None,
        };
        let (place, rest) = rest.split_first_chunk::<4>()?;
        let (turn, rest) = rest.split_first_chunk::<4>()?;
        let ordinal = rest.split_first_chunk::<8>().map(|(ordinal, _)| u64::from_le_bytes(*ordinal));
        let ordinal = ordinal.filter(|_| tag & HAS_ORDINAL != 0);
        Some(Self { class, place: u32::from_le_bytes(*place), turn: u32::from_le_bytes(*turn), ordinal })
    }
}

struct Reader {
    gathered: Gathered,
    /// The thread's id by the file's name.
    name: Option<String>,
    placed: u32,
    /// For each turn of the live view, the record before it.
    turns: Vec<u32>,
    /// The record before the lines that open the turn to come.
    opened: Option<u32>,
}

impl Reader {
    fn last(&self) -> u32 {
        self.placed.checked_sub(1).unwrap_or(NONE)
    }

    fn decide(&self, class: Class, num_turns: Option<u64>, ordinal: Option<u64>) -> Note {
        let last = self.last();
        let plain = Note { class, place: last, turn: 0, ordinal };
        match class {
            Class::Plain | Class::Opener => plain,
            Class::Prompt => Note { turn: self.opened.unwrap_or(last), ..plain },
            Class::Rollback => {
                let back = u32::try_from(num_turns.unwrap_or(1)).unwrap_or(u32::MAX);
                let kept = self.turns.len().saturating_sub(back as usize);
                let place = self.turns.get(kept).copied().unwrap_or(last);
                Note { place, turn: back, ..plain }
            }
        }
    }

    fn push(&mut self, note: Note) {
        self.opened = match note.class {
            Class::Opener => self.opened.or(Some(note.place)),
            Class::Plain | Class::Prompt | Class::Rollback => None,
        };
        match note.class {
            Class::Prompt => self.turns.push(note.turn),
            Class::Rollback => self.turns.truncate(self.turns.len().saturating_sub(note.turn as usize)),
            Class::Plain | Class::Opener => {}
        }
        self.placed = self.placed.saturating_add(1);
    }
}

impl SourceReader for Reader {
    fn frame(&mut self, bytes: &[u8]) {
        let session = read::<Frame>(bytes).ok().and_then(|(frame, _)| serde_json::to_vec(&frame.session).ok());
        // It says what the first line of later files does.
        if let Some(bytes) = session
            && let Ok((line, _)) = read::<Line>(&bytes)
            && let Ok(reading) = line.read(&bytes)
        {
            self.gathered.note(&reading);
        }
    }

    fn known(&mut self, record: &KnownRecord<'_>) {
        let plain = Note { class: Class::Plain, place: self.last(), turn: 0, ordinal: None };
        self.push(Note::decode(record.note).unwrap_or(plain));
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (line, _) = read::<Line>(bytes).map_err(|error| Skip { reason: format!("unreadable record: {error}") })?;
        let reading = line.read(bytes).map_err(|reason| Skip { reason })?;
        self.gathered.note(&reading);
        let note = self.decide(reading.class, reading.payload.num_turns.0, reading.ordinal);
        self.push(note);
        Ok(Record {
            place: if note.place == NONE { Place::Root } else { Place::After(note.place) },
            source_id: reading.source_id().map(str::to_owned),
            kind: reading.kind,
            role: reading.role,
            created_at: reading.created_at,
            starts_turn: note.class == Class::Prompt,
            note: note.encode(),
        })
    }

    fn facts(&self) -> ThreadFacts {
        self.gathered.facts(self.name.as_deref())
    }

    fn state(&self) -> Vec<u8> {
        serde_json::to_vec(&self.gathered).unwrap_or_default()
    }

    fn ordinal(&self, note: &[u8]) -> Option<u64> {
        Note::decode(note)?.ordinal
    }

    fn head(&self) -> Option<RecordNo> {
        // Nothing is ever placed beside the live view, so the last record is its end.
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{is_document, session_names, thread_id};

    #[test]
    fn a_document_is_known_by_its_name() {
        let name = "rollout-2025-05-01-9f0d1c2b-3a4e-4b5c-8d6e-7f8091a2b3c4";
        assert!(is_document(Path::new(&format!("{name}.json"))));
        assert!(!is_document(Path::new(&format!("{name}.jsonl"))));
        assert!(!is_document(Path::new("package.json")));
    }

    #[test]
    fn the_thread_is_read_from_the_name() {
        let id = "01a22838-1861-7903-850d-10e4889a24ed";
        for ending in ["jsonl", "jsonl.zst", "json"] {
            let name = format!("/x/rollout-2026-11-29T16-51-34-{id}.{ending}");
            assert_eq!(thread_id(Path::new(&name)).as_deref(), Some(id));
        }
        for name in ["rollout-x.jsonl", "session_index.jsonl", "rollout-2026-11-29T16-51-34-01a22838.jsonl"] {
            assert_eq!(thread_id(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn the_last_name_counts_and_damage_is_stepped_over() {
        let index = concat!(
            "{\"id\":\"a\",\"thread_name\":\"one\",\"updated_at\":\"x\"}\n",
            "{\"id\":\"b\",\"thread_name\":\"two\"}{\"id\":\"a\",\"thread_name\":\"three\"}\n",
            "{\"id\":\"c\",\"thread_na\n",
            "{\"id\":\"b\",\"thread_name\":\" \"}\n{\"id\":\"d\",\"thread_name\":\"fo",
        );
        let names = session_names(index.as_bytes());
        let pairs: Vec<_> = names.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
        assert_eq!(pairs, [("a", "three"), ("b", "two")]);
    }
}
