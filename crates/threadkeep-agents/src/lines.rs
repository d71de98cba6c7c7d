//! Agents whose files are lines of JSON, each of which says by itself what it is.
//!
//! A [`Format`] reads one line into an [`Entry`]: who speaks, what is said, what it is linked to, and what it says of its thread.
//! All else follows from that in the same way for each of them, and [`Lines`] makes a codec of it: places in the tree, kinds and
//! roles, views, messages for other agents, and the facts of the thread.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use threadkeep::{Kind, Part, Role, Timestamp, Usage, View, ViewCodec};

use crate::codec::{
    Aside, Codec, KnownRecord, PREVIEW_CHARS, Place, Record, RecordNo, Skip, SourceReader, TITLE_CHARS, ThreadFacts,
};
use crate::conversation::{Author, Block, Message, Standing};
use crate::facts::{Responses, keep, latest, shown};
use crate::json::{damaged, read};
use crate::segments::{Segment, Segments};
use crate::tree::{Arrival, Class, Note, Parent, Tree, key};
use crate::writer::{Invocation, Session, Writer};

/// How many records of a file are looked at to recognise it: a damaged or unknown one may stand first.
const RECORDS_LOOKED_AT: usize = 8;
/// How much of an event's own text is shown.
pub(crate) const NOTE_CHARS: usize = 200;
/// The longest id that the store keeps; what is not given back to later runs must not count in this one.
const MAX_ID_BYTES: usize = 512;

/// One agent's lines.
pub(crate) trait Format: fmt::Debug + Clone + Copy + Send + Sync + 'static {
    /// The format tag and the agent's short name.
    fn name(self) -> &'static str;

    /// Whether a line of this file is certainly one of this agent's sessions.
    fn knows(self, path: &Path, line: &Value) -> bool;

    /// What a line is; nothing where it is no record of this format.
    fn read(self, line: &Value) -> Option<Entry>;

    /// Whether calls and results can be told to belong together.
    fn has_pairs(self) -> bool {
        true
    }

    /// What is said by where a file lies, or follows from all that its lines say.
    fn settle(self, path: &Path, facts: &mut ThreadFacts);

    /// Files beside the session's own that say more of its thread.
    fn beside(self, path: &Path) -> Vec<PathBuf> {
        let _ = path;
        Vec::new()
    }

    /// See [`Codec::aside`].
    fn aside(self, bytes: &[u8]) -> Option<Aside> {
        let _ = bytes;
        None
    }

    /// See [`Codec::root`].
    fn root(self) -> Option<&'static str> {
        None
    }

    /// See [`Codec::place`].
    fn place(self, session: &Session) -> Option<PathBuf> {
        let _ = session;
        None
    }

    /// See [`Codec::writer`].
    fn writer(self, session: &Session) -> Option<Box<dyn Writer>> {
        let _ = session;
        None
    }

    /// See [`Codec::resuming`].
    fn resuming(self, session: &Session) -> Option<Invocation> {
        let _ = session;
        None
    }
}

/// Whose words a line holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A person's, to the model.
    Person,
    /// A person's, to the agent's program: a command that it carries out itself.
    Command,
    /// The model's.
    Model,
    /// A tool's.
    Tool,
    /// The agent's, in the person's place.
    Injected,
    /// The agent's, for what was said before.
    Summary,
    /// The agent's instructions to the model.
    Instructions,
    /// Nobody's: an event or a setting.
    #[default]
    Nobody,
}

/// What a line says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) voice: Voice,
    /// What is said.
    pub(crate) blocks: Vec<Block>,
    /// What is shown of a line that says nothing.
    pub(crate) note: String,
    /// Whether it has no place in the tree.
    pub(crate) is_beside: bool,
    pub(crate) id: Option<String>,
    pub(crate) parent: Link,
    pub(crate) at: Option<Timestamp>,
    /// The prompt, where the agent states it apart from what it sends to the model.
    pub(crate) prompt: Option<String>,
    pub(crate) tokens: Option<Tokens>,
    /// What it says of its thread. The first session, folder, origin and parent count, else the last of what is said.
    pub(crate) says: ThreadFacts,
}

/// What a line says of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link(pub(crate) Parent);

impl Default for Link {
    fn default() -> Self {
        Self(Parent::Unsaid)
    }
}

/// Tokens that a line states.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    pub(crate) usage: Usage,
    /// What the lines of one response share, where they are several.
    pub(crate) response: Option<String>,
    /// Whether they are a sum, which counts where no line states the tokens of its own response.
    pub(crate) is_total: bool,
}

impl Tokens {
    /// Those of one response.
    pub(crate) fn of(usage: Usage) -> Option<Self> {
        (usage != Usage::default()).then_some(Self { usage, response: None, is_total: false })
    }
}

impl Entry {
    /// Somebody's words.
    pub(crate) fn said(voice: Voice, blocks: Vec<Block>) -> Self {
        Self { voice, blocks, ..Self::default() }
    }

    /// An event, or a setting.
    pub(crate) fn event(note: impl Into<String>) -> Self {
        Self { note: note.into(), ..Self::default() }
    }

    /// What is said in the conversation: what nobody says is no part of it.
    pub(crate) fn spoken(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|_| self.voice != Voice::Nobody)
    }

    fn has(&self, of_kind: fn(&Block) -> bool) -> bool {
        self.blocks.iter().any(of_kind)
    }

    fn kind(&self) -> Kind {
        match self.voice {
            Voice::Person | Voice::Injected => Kind::Message,
            Voice::Model if self.has(|block| matches!(block, Block::Call { .. })) => Kind::ToolCall,
            Voice::Model
                if self.has(|block| matches!(block, Block::Reasoning { .. }))
                    && !self.has(|block| matches!(block, Block::Text(_))) =>
            {
                Kind::Reasoning
            }
            Voice::Model => Kind::Message,
            Voice::Tool => Kind::ToolResult,
            Voice::Summary => Kind::Compaction,
            Voice::Instructions => Kind::Context,
            Voice::Command | Voice::Nobody => Kind::Event,
        }
    }

    fn role(&self) -> Option<Role> {
        match self.voice {
            Voice::Person | Voice::Command => Some(Role::User),
            Voice::Model => Some(Role::Assistant),
            Voice::Tool => Some(Role::Tool),
            Voice::Injected | Voice::Summary | Voice::Instructions => Some(Role::System),
            Voice::Nobody => None,
        }
    }

    fn class(&self) -> Class {
        match self.voice {
            Voice::Person => Class::Prompt,
            Voice::Model => Class::Answer,
            Voice::Tool => Class::Attached,
            Voice::Nobody | Voice::Instructions => Class::Command,
            // What says nothing of its parent stands among the others and is no step of its own.
            Voice::Command | Voice::Injected | Voice::Summary if self.parent.0 == Parent::Unsaid => Class::Command,
            Voice::Command | Voice::Injected | Voice::Summary => Class::Boundary,
        }
    }

    fn source_id(&self) -> Option<&str> {
        self.id.as_deref().filter(|id| id.len() <= MAX_ID_BYTES)
    }

    /// What the person asked for.
    fn asked(&self) -> Option<String> {
        if self.voice != Voice::Person {
            return None;
        }
        let words = self.blocks.iter().find_map(|block| match block {
            Block::Text(text) => shown(text, PREVIEW_CHARS),
            _ => None,
        });
        let media = || self.has(|block| matches!(block, Block::Media { .. })).then(|| "[Image]".to_owned());
        self.prompt.as_deref().and_then(|text| shown(text, PREVIEW_CHARS)).or(words).or_else(media)
    }

    fn arrival(&self) -> Arrival {
        let mut calls = Vec::new();
        let mut answers = Vec::new();
        for block in self.spoken() {
            match block {
                Block::Call { id, .. } if !id.is_empty() => calls.push(key(id)),
                Block::Result { id, .. } if !id.is_empty() => answers.push(key(id)),
                _ => {}
            }
        }
        let id = self.source_id().map(key);
        let class = self.class();
        let message = if class == Class::Answer { id.unwrap_or_default() } else { 0 };
        let parent = self.parent.0;
        // The agent goes on from its last record, whatever that is.
        Arrival { class, id, parent, logical: None, sidechain: false, leaf: true, message, calls, answers }
    }

    fn into_parts(self) -> Vec<Part> {
        match self.blocks.is_empty() && !self.note.is_empty() {
            true => vec![Part::Note { text: self.note }],
            false => self.blocks.into_iter().flat_map(Block::into_parts).collect(),
        }
    }

    fn into_message(self) -> Option<Message> {
        let (author, standing) = match self.voice {
            Voice::Person => (Author::Person, Standing::Said),
            Voice::Command | Voice::Injected => (Author::Person, Standing::Injected),
            Voice::Model => (Author::Model, Standing::Said),
            Voice::Tool => (Author::Tool, Standing::Said),
            Voice::Summary => (Author::System, Standing::Summary),
            Voice::Instructions => (Author::System, Standing::Said),
            Voice::Nobody => return None,
        };
        let own = self.tokens.filter(|tokens| !tokens.is_total);
        let (usage, response) = own.map_or((None, None), |tokens| (Some(tokens.usage), tokens.response));
        let model = self.says.model.filter(|_| author == Author::Model);
        (!self.blocks.is_empty() && !self.is_beside).then_some(Message {
            standing,
            created_at: self.at,
            model,
            usage,
            response,
            ..Message::said(author, self.blocks)
        })
    }
}

/// The codec of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<F>(pub(crate) F);

impl<F: Format> Lines<F> {
    /// A line and whether something in it had to be replaced; nothing where it is no record of this format.
    fn entry(&self, bytes: &[u8]) -> Option<(Entry, bool)> {
        let (line, repaired) = read::<Value>(bytes).ok()?;
        self.0.read(&line).map(|entry| (entry, repaired))
    }
}

impl<F: Format> ViewCodec for Lines<F> {
    fn format(&self) -> &str {
        self.0.name()
    }

    fn view(&self, _kind: &Kind, content: &[u8]) -> View {
        let Some((entry, repaired)) = self.entry(content) else {
            return damaged(content);
        };
        let usage = entry.tokens.as_ref().map(|tokens| tokens.usage);
        View { role: entry.role(), parts: entry.into_parts(), usage, damaged: repaired, ..View::default() }
    }

    fn awaits_result(&self, _content: &[u8]) -> bool {
        self.0.has_pairs()
    }
}

impl<F: Format> Codec for Lines<F> {
    fn agent(&self) -> &'static str {
        self.0.name()
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        let segments = Segments::new(head).map_while(Result::ok);
        let records = segments.filter_map(|segment| match segment {
            Segment::Record { bytes, .. } => Some(bytes),
            _ => None,
        });
        records.take(RECORDS_LOOKED_AT).any(|bytes| read(&bytes).is_ok_and(|(line, _)| self.0.knows(path, &line)))
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let gathered = state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        Box::new(Reader { lines: *self, tree: Tree::chained(), gathered, path: path.to_owned() })
    }

    fn beside(&self, path: &Path) -> Vec<PathBuf> {
        self.0.beside(path)
    }

    fn aside(&self, _session: &Path, _path: &Path, bytes: &[u8]) -> Option<Aside> {
        self.0.aside(bytes)
    }

    fn message(&self, _kind: &Kind, content: &[u8]) -> Option<Message> {
        self.entry(content)?.0.into_message()
    }

    fn root(&self, home: &Path) -> Option<PathBuf> {
        self.0.root().map(|folder| home.join(folder))
    }

    fn place(&self, session: &Session) -> Option<PathBuf> {
        self.0.place(session)
    }

    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        self.0.writer(session)
    }

    fn resuming(&self, session: &Session) -> Option<Invocation> {
        self.0.resuming(session)
    }
}

/// What was gathered so far; its JSON is what a later run begins with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Gathered {
    facts: ThreadFacts,
    open: Responses,
    /// Sums that the agent itself states.
    totals: Option<Usage>,
    open_totals: Responses,
    /// How many responses without a name were counted.
    unnamed: u64,
}

impl Gathered {
    fn note(&mut self, entry: Entry) {
        let facts = &mut self.facts;
        if let Some(at) = entry.at {
            facts.created_at = Some(facts.created_at.map_or(at, |first| first.min(at)));
            facts.updated_at = Some(facts.updated_at.map_or(at, |last| last.max(at)));
        }
        if facts.preview.is_none() {
            facts.preview = entry.asked();
        }
        add(facts, entry.says);
        if let Some(tokens) = entry.tokens {
            self.count(&tokens, entry.id);
        }
    }

    fn count(&mut self, tokens: &Tokens, id: Option<String>) {
        let name = tokens.response.clone().or(id).unwrap_or_else(|| {
            self.unnamed += 1;
            format!("\n{}", self.unnamed)
        });
        match tokens.is_total {
            true => self.open_totals.count(&mut self.totals, &name, tokens.usage),
            false => self.open.count(&mut self.facts.usage, &name, tokens.usage),
        }
    }
}

/// Adds what was said later.
fn add(facts: &mut ThreadFacts, says: ThreadFacts) {
    for (first, said) in [
        (&mut facts.session_id, &says.session_id),
        (&mut facts.source, &says.source),
        (&mut facts.git_sha, &says.git_sha),
        (&mut facts.git_origin, &says.git_origin),
        (&mut facts.git_branch, &says.git_branch),
        (&mut facts.persona, &says.persona),
        (&mut facts.parent_session, &says.parent_session),
        (&mut facts.forked_from, &says.forked_from),
    ] {
        keep(first, said.as_deref());
    }
    facts.cwd = facts.cwd.take().or(says.cwd);
    latest(&mut facts.title, says.title.as_deref().and_then(|title| shown(title, TITLE_CHARS)));
    latest(&mut facts.model, says.model);
    latest(&mut facts.provider, says.provider);
    latest(&mut facts.cli_version, says.cli_version);
    latest(&mut facts.approval_policy, says.approval_policy);
    latest(&mut facts.sandbox_policy, says.sandbox_policy);
}

struct Reader<F> {
    lines: Lines<F>,
    tree: Tree,
    gathered: Gathered,
    path: PathBuf,
}

impl<F: Format> SourceReader for Reader<F> {
    fn known(&mut self, record: &KnownRecord<'_>) {
        // A note of another version: the record is at least kept in line.
        let note = Note::decode(record.note).unwrap_or_else(|| self.tree.next_in_line());
        self.tree.push(&note, record.source_id.map(key));
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip> {
        let (line, _) = read::<Value>(bytes).map_err(|error| Skip { reason: format!("unreadable record: {error}") })?;
        let Some(entry) = self.lines.0.read(&line) else {
            return Err(Skip { reason: format!("no record of {}", self.lines.0.name()) });
        };
        let mut record = Record {
            place: Place::Beside,
            kind: entry.kind(),
            role: entry.role(),
            created_at: entry.at,
            source_id: entry.source_id().map(str::to_owned),
            starts_turn: false,
            note: Vec::new(),
        };
        if !entry.is_beside {
            let arrival = entry.arrival();
            let repeats = arrival.id.is_some_and(|id| self.tree.contains(id));
            let note = self.tree.place(&arrival);
            self.tree.push(&note, arrival.id);
            record.place = note.place();
            record.starts_turn = arrival.class == Class::Prompt && !repeats;
            record.note = note.encode();
        }
        self.gathered.note(entry);
        Ok(record)
    }

    fn facts(&self) -> ThreadFacts {
        let mut facts = self.gathered.facts.clone();
        facts.usage = facts.usage.or(self.gathered.totals);
        self.lines.0.settle(&self.path, &mut facts);
        facts
    }

    fn state(&self) -> Vec<u8> {
        serde_json::to_vec(&self.gathered).unwrap_or_default()
    }

    fn head(&self) -> Option<RecordNo> {
        self.tree.head()
    }
}

/// The first text that does not begin in one of these ways.
pub(crate) fn own_words(blocks: &[Block], starts: &[&str]) -> Option<String> {
    let own = blocks
        .iter()
        .find(|block| matches!(block, Block::Text(_)) && !all_begin_with(std::slice::from_ref(block), starts));
    if let Some(Block::Text(text)) = own { shown(text, PREVIEW_CHARS) } else { None }
}

/// Whether all that is said are texts that begin in one of these ways.
pub(crate) fn all_begin_with(blocks: &[Block], starts: &[&str]) -> bool {
    let injected = |block: &Block| {
        let Block::Text(text) = block else { return false };
        let text = text.trim_start();
        text.is_empty() || starts.iter().any(|start| text.starts_with(start))
    };
    blocks.iter().all(injected)
}

/// The name of a file without its ending.
pub(crate) fn stem(path: &Path) -> Option<String> {
    path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)
}

/// The name of the folder so many levels above a file.
pub(crate) fn folder(path: &Path, levels: usize) -> Option<&str> {
    path.ancestors().nth(levels)?.file_name()?.to_str()
}
