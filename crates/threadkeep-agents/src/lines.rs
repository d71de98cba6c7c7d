//! Agents whose records each say by themselves what they are: lines of JSON, the elements of a document, the rows of a database,
//! or what a log leads to.
//!
//! A [`Format`] reads one record into an [`Entry`]: who speaks, what is said, what it is linked to, and what it says of its thread.
//! All else follows from that in the same way for each of them, and [`Lines`] makes a codec of it: places in the tree, kinds and
//! roles, views, messages for other agents, and the facts of the thread.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use threadkeep::{Kind, Part, Role, Timestamp, Usage, View, ViewCodec};

use crate::codec::{
    self, Aside, Codec, KnownRecord, Layout, PREVIEW_CHARS, Place, Record, RecordNo, Shape, Skip, SourceReader,
    TITLE_CHARS, Tables, ThreadFacts,
};
use crate::conversation::{Author, Block, Message, Standing};
use crate::document::Document;
use crate::facts::{Responses, keep, latest, shown};
use crate::json::{damaged, read};
use crate::replay::Replay;
use crate::segments::{Segment, Segments};
use crate::tree::{Arrival, Class, Note, Parent, Tree, key};
use crate::writer::{Invocation, Session, Writer};

/// How many records of a file are looked at to recognise it: a damaged or unknown one may stand first.
const RECORDS_LOOKED_AT: usize = 8;
/// How much of an event's own text is shown.
pub(crate) const NOTE_CHARS: usize = 200;
/// The longest id that the store keeps; what is not given back to later runs must not count in this one.
const MAX_ID_BYTES: usize = 512;

/// One agent's records.
pub(crate) trait Format: fmt::Debug + Clone + Copy + Send + Sync + 'static {
    /// The format tag and the agent's short name.
    fn name(self) -> &'static str;

    /// Whether a record of this file is certainly one of this agent's sessions.
    fn knows(self, path: &Path, line: &Value) -> bool;

    /// See [`Codec::detect`]: by default, whether one of the first records is known.
    fn detect(self, path: &Path, head: &[u8]) -> bool {
        knows_a_record(self, path, head)
    }

    /// See [`Codec::may_be_session`].
    fn may_be_session(self, path: &Path) -> bool {
        codec::is_lines(path)
    }

    /// See [`Codec::shape`].
    fn shape(self, path: &Path, head: &[u8]) -> Shape {
        let _ = (path, head);
        Shape::Lines
    }

    /// See [`Codec::stands_in_for`].
    fn stands_in_for(self, path: &Path) -> Option<PathBuf> {
        let _ = path;
        None
    }

    /// See [`Codec::stood_in_by`].
    fn stood_in_by(self, path: &Path) -> Vec<PathBuf> {
        let _ = path;
        Vec::new()
    }

    /// See [`Codec::layout`].
    fn layout(self, tables: &Tables) -> Option<Layout> {
        let _ = tables;
        None
    }

    /// See [`Codec::replay`].
    fn replay(self, shape: Shape) -> Option<Box<dyn Replay>> {
        let _ = shape;
        None
    }

    /// What a document says around its records.
    fn frame(self, frame: &Value) -> ThreadFacts {
        let _ = frame;
        ThreadFacts::default()
    }

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

    /// See [`Codec::is_list`].
    fn is_list(self, path: &Path) -> bool {
        let _ = path;
        false
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
    /// See [`SourceReader::key`].
    pub(crate) key: Option<String>,
    /// Whether its agent is still at work on it, unless another record stands behind it; of a record beside the tree, on all that
    /// follows the last prompt.
    pub(crate) is_open: bool,
    /// Why it can't be placed, where it is certainly a record and damaged.
    pub(crate) wrong: Option<String>,
    /// Whether its agent goes on from what was before it.
    pub(crate) is_taken_back: bool,
    /// What it says of its thread. The first session, folder, origin and parent count, else the last of what is said; tokens are a
    /// sum.
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

    /// Whether the results of all its calls stand in it.
    fn answers_itself(&self) -> bool {
        let answered =
            |call: &str| self.blocks.iter().any(|block| matches!(block, Block::Result { id, .. } if id == call));
        let mut calls = self.blocks.iter().filter_map(|block| match block {
            Block::Call { id, .. } => Some(id.as_str()),
            _ => None,
        });
        calls.next().is_some_and(answered) && calls.all(answered)
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

    fn awaits_result(&self, content: &[u8]) -> bool {
        self.0.has_pairs() && !self.entry(content).is_some_and(|(entry, _)| entry.answers_itself())
    }
}

impl<F: Format> Codec for Lines<F> {
    fn agent(&self) -> &'static str {
        self.0.name()
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        self.0.detect(path, head)
    }

    fn may_be_session(&self, path: &Path) -> bool {
        self.0.may_be_session(path)
    }

    fn shape(&self, path: &Path, head: &[u8]) -> Shape {
        self.0.shape(path, head)
    }

    fn stands_in_for(&self, path: &Path) -> Option<PathBuf> {
        self.0.stands_in_for(path)
    }

    fn stood_in_by(&self, path: &Path) -> Vec<PathBuf> {
        self.0.stood_in_by(path)
    }

    fn layout(&self, tables: &Tables) -> Option<Layout> {
        self.0.layout(tables)
    }

    fn replay(&self, shape: Shape) -> Option<Box<dyn Replay>> {
        self.0.replay(shape)
    }

    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader> {
        let gathered = state.and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default();
        let path = path.to_owned();
        Box::new(Reader {
            lines: *self,
            tree: Tree::chained(),
            gathered,
            path,
            key: None,
            work: Work::default(),
            live: None,
            is_back: false,
        })
    }

    fn beside(&self, path: &Path) -> Vec<PathBuf> {
        self.0.beside(path)
    }

    fn is_list(&self, path: &Path) -> bool {
        self.0.is_list(path)
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
        pass(facts, entry.at);
        if facts.preview.is_none() {
            facts.preview = entry.asked();
        }
        self.tell(entry.says);
        if let Some(tokens) = entry.tokens {
            self.count(&tokens, entry.id);
        }
    }

    /// Takes in what is said of the thread.
    fn tell(&mut self, says: ThreadFacts) {
        pass(&mut self.facts, says.created_at);
        pass(&mut self.facts, says.updated_at);
        latest(&mut self.totals, says.usage);
        latest(&mut self.facts.archived, says.archived);
        add(&mut self.facts, says);
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

/// Notes when something was said.
fn pass(facts: &mut ThreadFacts, at: Option<Timestamp>) {
    if let Some(at) = at {
        facts.created_at = Some(facts.created_at.map_or(at, |first| first.min(at)));
        facts.updated_at = Some(facts.updated_at.map_or(at, |last| last.max(at)));
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

/// What an agent is at work on, of a session that is read as a whole.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    /// The first record behind the last prompt, if one follows.
    behind_prompt: RecordNo,
    /// The last placed record, where the agent is at work on it.
    last: Option<RecordNo>,
    /// Whether it is at work on all that follows the last prompt.
    on_answer: bool,
}

struct Reader<F> {
    lines: Lines<F>,
    tree: Tree,
    gathered: Gathered,
    path: PathBuf,
    /// What the record that was placed last is recognised by.
    key: Option<String>,
    work: Work,
    /// The last record that was not taken back.
    live: Option<RecordNo>,
    /// Whether the record that was placed last was taken back.
    is_back: bool,
}

impl<F: Format> SourceReader for Reader<F> {
    fn frame(&mut self, bytes: &[u8]) {
        if let Ok((frame, _)) = read::<Value>(bytes) {
            self.gathered.tell(self.lines.0.frame(&frame));
        }
    }

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
        if let Some(reason) = entry.wrong {
            return Err(Skip { reason });
        }
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
            self.work.last = entry.is_open.then(|| self.tree.len());
            self.key.clone_from(&entry.key);
            self.is_back = entry.is_taken_back;
            if !self.is_back {
                self.live = Some(self.tree.len());
            }
            self.tree.push(&note, arrival.id);
            record.place = note.place();
            record.starts_turn = arrival.class == Class::Prompt && !repeats;
            record.note = note.encode();
            if record.starts_turn {
                self.work.behind_prompt = self.tree.len();
            }
        } else {
            self.work.on_answer |= entry.is_open;
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
        self.live.filter(|_| self.is_back).or_else(|| self.tree.head())
    }

    fn key(&self) -> Option<Vec<u8>> {
        self.key.clone().map(String::into_bytes)
    }

    fn unsettled(&self) -> Option<RecordNo> {
        let Work { behind_prompt, last, on_answer } = self.work;
        if on_answer { Some(behind_prompt).filter(|first| *first < self.tree.len()) } else { last }
    }
}

/// Whether one of the first records is certainly this agent's.
pub(crate) fn knows_a_record<F: Format>(format: F, path: &Path, head: &[u8]) -> bool {
    let knows = |segment| match segment {
        Segment::Record { bytes, .. } => Some(read(&bytes).is_ok_and(|(line, _)| format.knows(path, &line))),
        _ => None,
    };
    let (lines, document) = match format.shape(path, head) {
        Shape::Document(keys) => (None, Some(Document::new(head, keys))),
        _ => (Some(Segments::new(head)), None),
    };
    let segments = lines.into_iter().flatten().chain(document.into_iter().flatten()).map_while(Result::ok);
    segments.filter_map(knows).take(RECORDS_LOOKED_AT).any(|is_known| is_known)
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
