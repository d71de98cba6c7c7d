//! Aider: one Markdown file in each project, to which every session is appended.

mod line;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep::{Kind, Part, Role, Usage, View, ViewCodec};

use self::line::{Class, Lines};
use crate::codec::{Codec, KnownRecord, PREVIEW_CHARS, Place, Record, Shape, Skip, SourceReader, ThreadFacts};
use crate::facts::shown;
use crate::text::Grammar;

/// The format tag and short name.
const NAME: &str = "aider";
/// The file that Aider writes, unless it is told another name.
const FILE: &str = ".aider.chat.history.md";

/// The codec of Aider's chat history.
///
/// Guarantees: each start at which something was asked is a session of its own, named after its file and its time; records are the
/// lines as they stand. What a line is follows from how Aider writes, not from Markdown: headings and quotes within an answer are parts
/// of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Aider;

impl ViewCodec for Aider {
    fn format(&self) -> &str {
        NAME
    }

    fn view(&self, kind: &Kind, content: &[u8]) -> View {
        let text = line::said(content);
        let role = match kind {
            Kind::Message if Class::of(content) == Class::Prompt => Some(Role::User),
            Kind::Message => Some(Role::Assistant),
            _ => None,
        };
        let part = if role.is_some() { Part::Text { text } } else { Part::Note { text } };
        View { role, parts: vec![part], ..View::default() }
    }
}

impl Codec for Aider {
    fn agent(&self) -> &'static str {
        NAME
    }

    fn may_be_session(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| name == FILE)
    }

    fn shape(&self, _path: &Path, _head: &[u8]) -> Shape {
        Shape::Text
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        self.may_be_session(path)
            || (path.extension().is_some_and(|ending| ending == "md") && line::begins_session(head))
    }

    fn grammar(&self, state: Option<&[u8]>) -> Option<Box<dyn Grammar>> {
        Some(Box::new(Lines::after(gathered(state).last)))
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let text = path.to_string_lossy();
        let (file, session) = text.rsplit_once('#').map_or((&*text, "start"), |(file, session)| (file, session));
        let gathered = gathered(state);
        let cwd = Path::new(file).parent().map(Path::to_owned);
        let (file, session) = (file.to_owned(), format!("{NAME}-{session}"));
        Box::new(Reader { gathered, file, session, cwd, placed: 0, key: None })
    }
}

fn gathered(state: Option<&[u8]>) -> Gathered {
    state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default()
}

/// What was gathered so far; its JSON is what a later run begins with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Gathered {
    facts: ThreadFacts,
    /// What the last record was.
    last: Option<Class>,
}

struct Reader {
    gathered: Gathered,
    file: String,
    session: String,
    cwd: Option<PathBuf>,
    placed: u32,
    key: Option<Vec<u8>>,
}

impl SourceReader for Reader {
    fn known(&mut self, _record: &KnownRecord<'_>) {
        self.placed = self.placed.saturating_add(1);
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let class = Class::of(bytes);
        self.gathered.last = Some(class);
        let is_command = class == Class::Prompt && line::is_command(bytes);
        let (kind, role) = match class {
            Class::Prompt if !is_command => (Kind::Message, Some(Role::User)),
            Class::Answer => (Kind::Message, Some(Role::Assistant)),
            Class::Prompt | Class::Session | Class::Notice => (Kind::Event, None),
        };
        let facts = &mut self.gathered.facts;
        let starts_turn = role == Some(Role::User);
        if starts_turn && facts.preview.is_none() {
            facts.preview = shown(&line::said(bytes), PREVIEW_CHARS);
        }
        match class {
            Class::Session => facts.created_at = line::session(bytes).and_then(|(_, at)| at).or(facts.created_at),
            Class::Notice => note(&line::said(bytes), facts),
            Class::Prompt | Class::Answer => {}
        }
        // Two projects may have begun at the same time, and say the same of it.
        self.key = (self.placed == 0).then(|| [self.file.as_bytes(), b"\0", bytes].concat());
        let place = self.placed.checked_sub(1).map_or(Place::Root, Place::After);
        self.placed = self.placed.saturating_add(1);
        Ok(Record { place, kind, role, created_at: None, source_id: None, starts_turn, note: Vec::new() })
    }

    fn facts(&self) -> ThreadFacts {
        let (session_id, cwd) = (Some(self.session.clone()), self.cwd.clone());
        ThreadFacts { session_id, cwd, ..self.gathered.facts.clone() }
    }

    fn state(&self) -> Vec<u8> {
        serde_json::to_vec(&self.gathered).unwrap_or_default()
    }

    fn key(&self) -> Option<Vec<u8>> {
        self.key.clone()
    }
}

/// Takes note of what a notice says of the thread.
fn note(said: &str, facts: &mut ThreadFacts) {
    let first = |text: &str| text.split_whitespace().next().map(str::to_owned);
    if let Some(version) = said.strip_prefix("Aider v").and_then(first) {
        facts.cli_version = Some(version);
    } else if let Some(model) =
        said.strip_prefix("Model: ").or_else(|| said.strip_prefix("Main model: ")).and_then(first)
    {
        facts.model = Some(model);
    } else if let Some(usage) = said.strip_prefix("Tokens: ").and_then(line::tokens) {
        let total = facts.usage.get_or_insert_default();
        *total = Usage {
            input: total.input.saturating_add(usage.input),
            cached: total.cached.saturating_add(usage.cached),
            output: total.output.saturating_add(usage.output),
            ..Usage::default()
        };
    }
}
