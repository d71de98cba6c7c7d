//! Giving a thread back as a session of an agent: of the one that it came from, or of another.
//!
//! A thread that lies as its agent left it comes back byte by byte, but for what the agent itself would stumble over: a byte order
//! mark, damage, and records that share a line. What Threadkeep put behind it follows in the agent's own form. Everything else is written anew
//! along one path of the thread: records of the same agent as they are, but for their links, and others by what they say.

mod install;
mod plan;
mod store;
mod tree;

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep::blocking::Store;
use threadkeep::{Address, Error, Item, ItemQuery, Kind, Result, SourceFile, Thread, ThreadId, View, holds_view};

pub use self::install::{Before, Existing, Installed, install, install_store};
use self::plan::Plan;
pub use self::store::{StoreExport, has_store};
use crate::codec::Codec;
use crate::conversation::Message;
use crate::json::mended;
use crate::writer::{Companion, Loss, Losses, Session, Writer, lost};

/// How many items, or parts of a file, are read at a time; a part may be large.
const ITEMS: usize = 256;
const PARTS: usize = 16;
/// How much is gathered before it is handed on.
const CHUNK: usize = 64 << 10;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The codec of an agent that sessions can be written for.
///
/// # Errors
/// [`Error::Invalid`] for any other, with the names of those that can.
pub fn codec_for(agent: &str) -> Result<Arc<dyn Codec>> {
    let session = Session::new("x", threadkeep::Timestamp(0));
    let found = crate::codecs().into_iter().find(|codec| codec.agent() == agent && codec.writer(&session).is_some());
    let reason = || format!("no sessions can be written for `{agent}`, but for {}", writable().join(", "));
    found.ok_or_else(|| Error::Invalid { field: "agent", reason: reason() })
}

/// The agents that sessions can be written for.
pub fn writable() -> Vec<&'static str> {
    let session = Session::new("x", threadkeep::Timestamp(0));
    crate::codecs().iter().filter(|codec| codec.writer(&session).is_some()).map(|codec| codec.agent()).collect()
}

/// Masks what is about to be written: gives what stands in the place of these bytes, or nothing where they may stay.
pub type Mask<'a> = dyn Fn(&[u8]) -> Option<Vec<u8>> + 'a;

/// A thread on its way to an agent's file.
///
/// Guarantees: the same thread gives the same bytes; what is held in memory is a page of items and what the writer remembers of them.
#[derive(Clone)]
pub struct Export<'a> {
    store: &'a Store,
    thread: Thread,
    at: Option<Address>,
    codec: Arc<dyn Codec>,
    codecs: Vec<Arc<dyn Codec>>,
    plan: Plan,
    mask: &'a Mask<'a>,
}

impl std::fmt::Debug for Export<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("thread", &self.thread.id).field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exported {
    /// The bytes of the session's file.
    pub bytes: u64,
    /// Records of the agent's own that stand in it.
    pub records: u64,
    /// Messages that were written anew.
    pub messages: u64,
    /// What was left behind, or had to be changed.
    pub losses: Vec<Loss>,
    /// Other files that the agent wants.
    pub companions: Vec<Companion>,
}

impl<'a> Export<'a> {
    /// Prepares an export of a thread's active path, or of the path to another item.
    ///
    /// # Errors
    /// Those of reading the store.
    pub fn new(
        store: &'a Store,
        thread: &ThreadId,
        at: Option<Address>,
        codec: Arc<dyn Codec>,
        mask: &'a Mask<'a>,
    ) -> Result<Self> {
        let thread = store.get(thread)?;
        let at = at.filter(|at| thread.head != Some(*at));
        let mut plan = Plan::new(store, &thread, at, &*codec)?;
        mask_session(&mut plan.session, mask);
        Ok(Self { store, thread, at, codec, codecs: crate::codecs(), plan, mask })
    }

    /// The thread.
    pub fn thread(&self) -> &ThreadId {
        &self.thread.id
    }

    /// What is said of the session.
    pub fn session(&self) -> &Session {
        &self.plan.session
    }

    /// The same, to be gone on with in another folder.
    #[must_use]
    pub fn in_folder(mut self, folder: PathBuf) -> Self {
        self.plan.session.cwd = Some(folder);
        self
    }

    /// The same, for a home in which the agent calls the session's folder so.
    fn in_project(mut self, project: String) -> Self {
        self.plan.session.project = Some(project);
        self
    }

    /// The agent's codec.
    pub fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    /// Writes the session's file.
    ///
    /// # Errors
    /// What `put` fails with, and the errors of reading the store.
    pub fn write<E: From<Error>>(
        &self,
        put: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Exported, E> {
        // Whether all of the agent's own records can be kept is seen before the first of them is written.
        let kept = match &self.plan.kept {
            Some(kept) => Run::<E>::new(self, &mut |_| Ok(()))?.keep(&kept.source, kept.depth)?.map(|_| kept),
            None => None,
        };
        let mut run = Run::new(self, put)?;
        let from = match kept {
            Some(kept) => run.keep(&kept.source, kept.depth)?,
            None => None,
        };
        let from = match from {
            Some(depth) => depth,
            None => {
                // Nothing was written yet.
                run.begin()?;
                0
            }
        };
        run.path(from)?;
        run.finish()
    }
}

/// An export that is being written.
struct Run<'a, 'b, E> {
    export: &'b Export<'a>,
    writer: Box<dyn Writer>,
    out: Vec<u8>,
    /// Whether the last byte ended a line.
    is_line_start: bool,
    put: &'b mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    exported: Exported,
    losses: Losses,
    /// The records with an id that were told, by their digests.
    told: HashSet<u64>,
}

impl<'a, 'b, E: From<Error>> Run<'a, 'b, E> {
    fn new(
        export: &'b Export<'a>,
        put: &'b mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        Ok(Self {
            export,
            writer: writer(export)?,
            out: Vec::new(),
            is_line_start: true,
            put,
            exported: Exported::default(),
            losses: Losses::default(),
            told: HashSet::new(),
        })
    }

    fn begin(&mut self) -> std::result::Result<(), E> {
        self.writer = writer(self.export)?;
        self.out.clear();
        self.is_line_start = true;
        self.losses = Losses::default();
        self.losses.add(lost::BASE, u64::from(self.export.plan.lacks_base));
        self.writer.begin(&mut self.out);
        self.flush(CHUNK)
    }

    /// Gives the parts of the imported file as they are; gives where the path goes on behind them, or nothing when the agent's
    /// records can't be kept and nothing was written.
    fn keep(&mut self, source: &SourceFile, depth: Option<u32>) -> std::result::Result<Option<u32>, E> {
        let store = self.export.store;
        let (mut end, mut after) = (0, -1);
        loop {
            let parts = store.source_parts(&source.path, after, PARTS)?;
            let Some(last) = parts.last() else { break };
            after = last.position;
            for part in parts {
                // Between two parts stands a line feed that is not stored with them; where the first was left out, so is it.
                if part.position > end && !self.is_line_start {
                    self.feed();
                }
                end = part.position.saturating_add(part.length);
                if part.redacted && part.bytes.is_empty() {
                    self.gap(&source.path, part.position)?;
                } else if !self.part(&part.bytes) {
                    return Ok(None);
                }
                self.flush(CHUNK)?;
            }
        }
        if !self.is_line_start {
            self.feed();
        }
        Ok(Some(depth.map_or(0, |depth| depth.saturating_add(1))))
    }

    /// A part of the file; says whether the writer can go on behind it.
    fn part(&mut self, bytes: &[u8]) -> bool {
        let masked = (self.export.mask)(bytes);
        let bytes = masked.as_deref().unwrap_or(bytes);
        if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err() || !bytes.starts_with(b"{") {
            let blank = bytes.strip_prefix(BOM).unwrap_or(bytes);
            if blank.iter().all(u8::is_ascii_whitespace) {
                self.out.extend_from_slice(blank);
                self.is_line_start = blank.last().map_or(self.is_line_start, |byte| *byte == b'\n');
            } else {
                self.losses.count(lost::DAMAGE);
            }
            return true;
        }
        let mended = mended(bytes);
        let bytes = mended.as_deref().unwrap_or(bytes);
        if !self.writer.keep(bytes) {
            return false;
        }
        self.losses.add(lost::LETTERS, u64::from(mended.is_some()));
        if !self.is_line_start {
            self.feed();
        }
        self.out.extend_from_slice(bytes);
        self.is_line_start = false;
        self.exported.records += 1;
        true
    }

    fn gap(&mut self, path: &str, position: i64) -> std::result::Result<(), E> {
        let known = self.export.store.known_records(path, position - 1, 1)?;
        let record = known.into_iter().find(|record| record.position == position);
        if !self.is_line_start {
            self.feed();
        }
        let before = self.out.len();
        self.writer.gap(record.and_then(|record| record.source_id).as_deref(), &mut self.out);
        // Whole lines: the line feed that stands behind the part comes by itself.
        if self.out.len() > before && self.out.last() == Some(&b'\n') {
            self.out.pop();
            self.is_line_start = false;
        }
        self.losses.count(lost::REDACTED);
        Ok(())
    }

    fn feed(&mut self) {
        self.out.push(b'\n');
        self.is_line_start = true;
    }

    /// Writes the items of the path from a depth on.
    fn path(&mut self, from: u32) -> std::result::Result<(), E> {
        let (store, thread) = (self.export.store, &self.export.thread.id);
        let mut query = ItemQuery { at: self.export.at, from, limit: ITEMS, ..ItemQuery::default() };
        loop {
            let page = store.items(thread, query.clone())?;
            for item in &page.entries {
                self.item(item);
                self.flush(CHUNK)?;
            }
            if page.next_cursor.is_none() {
                return Ok(());
            }
            query.cursor = page.next_cursor;
        }
    }

    fn item(&mut self, item: &Item) {
        let is_own = item.format == self.export.codec.format();
        if item.redaction.is_some() && item.content.is_empty() {
            self.losses.count(lost::REDACTED);
            let id = item.source_id.as_deref().filter(|_| is_own);
            return self.writer.gap(id, &mut self.out);
        }
        let masked = (self.export.mask)(&item.content);
        let content = masked.as_deref().unwrap_or(&item.content);
        let mended = Some(content).filter(|_| is_own).and_then(mended);
        if is_own && self.writer.carry(mended.as_deref().unwrap_or(content), &mut self.out) {
            self.losses.add(lost::LETTERS, u64::from(mended.is_some()));
            self.exported.records += 1;
            return;
        }
        match told(&self.export.codecs, item, content, &mut self.told) {
            Told::Message(message) => {
                for message in message.apart() {
                    self.writer.message(&message, &mut self.out);
                }
                self.exported.messages += 1;
            }
            Told::Lost(what) => self.losses.count(what),
            Told::Nothing => {}
        }
    }

    fn flush(&mut self, from: usize) -> std::result::Result<(), E> {
        if self.out.len() < from {
            return Ok(());
        }
        self.exported.bytes += self.out.len() as u64;
        let outcome = (self.put)(&self.out);
        self.out.clear();
        // One huge record is no reason to hold as much for ever.
        self.out.shrink_to(CHUNK * 2);
        outcome
    }

    fn finish(mut self) -> std::result::Result<Exported, E> {
        let written = self.writer.finish(&mut self.out);
        self.flush(0)?;
        self.losses.merge(written.losses);
        Ok(Exported { losses: self.losses.take(), companions: written.companions, ..self.exported })
    }
}

/// What an item says to another agent.
enum Told {
    Message(Message),
    /// It says something that no message can be made of.
    Lost(&'static str),
    /// It says nothing, or what was told before.
    Nothing,
}

/// What an item says to another agent, whatever format it is in; `before` has what was told.
fn told(codecs: &[Arc<dyn Codec>], item: &Item, content: &[u8], before: &mut HashSet<u64>) -> Told {
    let codec = codecs.iter().find(|codec| codec.format() == item.format);
    let message = match codec {
        Some(codec) => codec.message(&item.kind, content),
        None => Message::of_view(&item.kind, own_view(item, content)),
    };
    if item.source_id.is_some() && !before.insert(digest(item, message.as_ref().filter(|_| codec.is_some()))) {
        // A record that its agent wrote twice says the same.
        return Told::Nothing;
    }
    match message {
        Some(message) => Told::Message(Message { created_at: message.created_at.or(Some(item.created_at)), ..message }),
        None => {
            let view = codec.map_or_else(|| own_view(item, content), |codec| codec.view(&item.kind, content));
            unread(item, &view).map_or(Told::Nothing, Told::Lost)
        }
    }
}

/// What an item of a format without a codec says: its view, or its bytes as what its kind says they are.
fn own_view(item: &Item, content: &[u8]) -> View {
    let plain = || View::text(item.role.clone(), String::from_utf8_lossy(content));
    let view = match holds_view(&item.format) {
        true => serde_json::from_slice(content).unwrap_or_else(|_| plain()),
        false => plain(),
    };
    let role = view.role.clone().or_else(|| item.role.clone());
    View { role, ..view }
}

/// What is lost with an item that no message can be made of, if something is: events and settings are none, and some records say
/// nothing.
fn unread(item: &Item, view: &View) -> Option<&'static str> {
    let is_said = !matches!(item.kind, Kind::Event | Kind::Context | Kind::Unknown(_));
    let says = is_said && !view.to_text().trim().is_empty();
    says.then_some(if view.damaged { lost::DAMAGE } else { lost::UNREAD })
}

/// What tells a record from others: its format and its id, and what it says and when, for an agent that writes a record again may
/// put other settings beside it; its bytes where they are all that is known.
fn digest(item: &Item, message: Option<&Message>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(item.format.as_bytes()).update(&[0]);
    hasher.update(item.source_id.as_deref().unwrap_or_default().as_bytes()).update(&[0]);
    let said = message.map(|message| (message.author, message.standing, &message.blocks, message.created_at));
    let is_hashed = said.is_some_and(|said| write!(hasher, "{said:?}").is_ok());
    if !is_hashed {
        hasher.update(&item.content);
    }
    hasher.finalize().as_bytes().iter().take(8).fold(0, |digest, byte| (digest << 8) | u64::from(*byte))
}

/// Masks what is said of a session, as its records are.
fn mask_session(session: &mut Session, mask: &Mask<'_>) {
    let masked = |text: &str| mask(text.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let texts = [
        &mut session.title,
        &mut session.preview,
        &mut session.git_branch,
        &mut session.git_origin,
        &mut session.model,
    ];
    for text in texts.into_iter().flatten() {
        if let Some(masked) = masked(text) {
            *text = masked;
        }
    }
    if let Some(masked) = session.cwd.as_deref().and_then(Path::to_str).and_then(masked) {
        session.cwd = Some(masked.into());
    }
}

fn writer(export: &Export<'_>) -> Result<Box<dyn Writer>> {
    let writer = export.codec.writer(&export.plan.session);
    writer.ok_or(Error::Unsupported { operation: "writing sessions of this agent" })
}
