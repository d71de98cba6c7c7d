//! Importing one file.

mod cut;
mod pending;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(super) use pending::Bytes;
use pending::Pending;
use threadkeep::blocking::{Importing, LiveThread, Store, Workspace};
use threadkeep::{
    Change, Durability, Error, ImportBatch, ImportPart, ImportSegment, ItemId, NewItem, NewThread, SourceFile,
    ThreadId, ThreadPatch, Usage,
};

use super::asides::{self, Asides};
use super::companions;
use super::files::{Found, Origin};
use super::flight::{Flight, Sent};
use super::identity::{item_id, thread_id};
use super::masks::{self, Masks};
use super::prefix::{Input, Prefix, known_part};
use super::report::{Outcome, Waiting};
use super::thread::{ForkPoint, patch};
use super::whole::{self, Remembered};
use crate::codec::{Codec, Continues, Findings, KnownRecord, Place, Record, Shape, SourceReader, ThreadFacts};
use crate::companion::Companion;
use crate::json::compact;
use crate::segments::{Position, Segment, Segments};
use crate::text::Text;

/// A step of an import ends when it holds this many records …
const BATCH_RECORDS: usize = 1024;
/// … or this many bytes.
const BATCH_BYTES: usize = 2 << 20;
/// A step of a session that waited and is read again from its beginning is so many times larger: whether there is anything new in
/// it is seen at its end alone.
const READ_AGAIN: usize = 16;
/// How much of a file is held until something is said in it.
const MOST_UNPLACED: usize = 100_000;
const MOST_UNPLACED_BYTES: usize = 64 << 20;
pub(super) const KNOWN_PAGE: usize = 5_000;
/// The size that is stored of a file until it was read to its end: no file has it, so the next import looks again.
const UNFINISHED: i64 = -1;

/// Why a file could not be imported.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something about the file.
    File(String),
    /// Something about the store.
    Store(Error),
    /// The id for its thread is taken by something that can't be read: the remains of a purged thread.
    Taken(ThreadId),
    /// Another import is at work on it, or has gone on with it.
    Overtaken,
}

impl Failure {
    /// Whether it is for another program that is at work on the file or its thread, so that trying again may help.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::Overtaken | Self::Store(Error::ClaimHeld { .. }))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::File(error.to_string())
    }
}

/// What it means for a file when the store refuses a step of it.
pub(super) fn refusal(error: Error) -> Failure {
    match error {
        Error::Conflict { what: "source", .. } => Failure::Overtaken,
        error => error.into(),
    }
}

/// The import of one file.
pub(super) struct Import<'a> {
    pub(super) store: &'a Store,
    pub(super) codec: &'a dyn Codec,
    pub(super) file: &'a Found,
    pub(super) shape: Shape,
    pub(super) dry_run: bool,
    /// What stands beside the session.
    pub(super) asides: Rc<Asides>,
    /// Sessions that were sent before this one.
    pub(super) flight: &'a Flight,
    /// Whether the store knew nothing of the file when the import began. What another import stores meanwhile, the step is
    /// refused for.
    pub(super) is_unknown: bool,
}

/// What has become of a file.
pub(super) enum Done {
    /// All of it is stored.
    Stored(Outcome),
    /// All of it was sent.
    Sent,
}

/// The session that a file continues without containing it, by the first bytes of the file.
pub(super) fn continued_session(codec: &dyn Codec, path: &Path, head: &[u8]) -> Option<String> {
    let mut reader = codec.reader(path, None);
    for segment in Segments::new(head).map_while(Result::ok).take(4) {
        if let Segment::Record { bytes, .. } = segment {
            drop(reader.record(&bytes));
        }
    }
    reader.facts().continues.map(|continues| continues.session)
}

impl Import<'_> {
    /// Imports the file. Some ids for its thread may be known to be taken.
    pub(super) fn run(
        &self,
        mut taken: Vec<ThreadId>,
        workspaces: &mut HashMap<PathBuf, Workspace>,
    ) -> Result<Done, Failure> {
        let mut is_unknown = self.is_unknown;
        loop {
            match self.attempt((&taken, is_unknown), workspaces) {
                // An id is found to be taken before anything of the file is stored, so it is simply read once more.
                Err(Failure::Taken(id)) if !taken.contains(&id) => taken.push(id),
                // Another import has brought it since the store was asked what it knows.
                Err(Failure::Overtaken) if is_unknown => {}
                outcome => return outcome,
            }
            is_unknown = false;
        }
    }

    fn attempt(
        &self,
        (taken, is_unknown): (&[ThreadId], bool),
        workspaces: &mut HashMap<PathBuf, Workspace>,
    ) -> Result<Done, Failure> {
        let stored = if is_unknown { None } else { self.store.source(&self.file.key)? };
        if stored.is_some() {
            // Another file may have brought some of its thread.
            self.flight.land();
        }
        let mut run = Run::new(self, taken, stored);
        match self.read(&mut run, workspaces) {
            Ok(()) => run.finish(is_unknown),
            Err(failure) => Err(run.give_up(failure)),
        }
    }

    fn read(&self, run: &mut Run<'_>, workspaces: &mut HashMap<PathBuf, Workspace>) -> Result<(), Failure> {
        if self.shape.grows() {
            // A file whose thread was purged, and that went on since, is imported anew.
            let rest = if run.thread.is_some() { self.go_on(run)? } else { None };
            let input = match rest {
                Some(rest) => rest,
                None => {
                    if run.is_cut()? {
                        return run.keep_what_was(workspaces);
                    }
                    run.note_what_was()?;
                    run.masks = Masks::load(self.store, &self.file.key)?;
                    self.file.open()?
                }
            };
            for segment in self.segments(input, run)? {
                run.take(segment?)?;
                run.write_if_full(workspaces)?;
            }
        } else {
            let state = run.stored.as_ref().map(|source| Remembered::read(&source.state)).unwrap_or_default();
            run.said = state.facts.clone();
            run.earlier = state;
            if run.stored.is_some() {
                run.masks = Masks::load(self.store, &self.file.key)?;
            }
            let told = run.said.title.clone();
            run.look_at_title(|title| told.as_deref() == Some(title))?;
            whole::prepare(self.store, self.file, self.shape, &mut *run.reader)?;
            whole::read(self.codec, self.file, self.shape, &mut |segment| {
                run.take(segment)?;
                run.write_if_full(workspaces)
            })?;
        }
        run.tell_what_is_gone();
        run.write(workspaces, true)
    }

    /// Splits what grows, from where it is read on.
    fn segments(&self, input: Input, run: &Run<'_>) -> Result<Box<dyn Iterator<Item = io::Result<Segment>>>, Failure> {
        let Origin::Section(section) = &self.file.origin else {
            return Ok(Box::new(Segments::starting_at(input, run.position)));
        };
        let state = (run.position.offset > 0).then(|| run.reader.state());
        let grammar = self.codec.grammar(state.as_deref());
        let grammar = grammar.ok_or_else(|| Failure::File("nothing is known of its lines".to_owned()))?;
        Ok(Box::new(Text::starting_at(input, run.position, grammar, section.is_last)))
    }

    /// Goes on where the last import stopped, if the beginning of the file is still the same: gives what comes after it.
    fn go_on(&self, run: &mut Run<'_>) -> Result<Option<Input>, Failure> {
        let Some(source) = run.stored.clone() else {
            return Ok(None);
        };
        let Some(known) = known_part(self.file, &source)? else {
            return Ok(None);
        };
        run.reader = self.codec.reader(&self.file.path, Some(asides::state_of_codec(&source.state)));
        if self.stands_in_another_form(&source)? {
            // Its records are mapped to items that have other bytes, so they are placed once more.
            run.said = run.reader.facts();
            self.asides.tell(&mut run.said);
            run.reader = self.codec.reader(&self.file.path, None);
            run.read_until = known.end.offset;
            return Ok(None);
        }
        let mut after = -1;
        loop {
            let page = self.store.known_records(&self.file.key, after, KNOWN_PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.position;
            for record in &page {
                run.reader.known(&KnownRecord { source_id: record.source_id.as_deref(), note: &record.note });
                run.placed.push(record.item);
            }
        }
        run.replace = false;
        run.position = known.end;
        run.prefix = known.prefix;
        run.records = source.records;
        run.skipped = source.skipped;
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        run.outcome.items.read = count(source.records);
        run.outcome.items.skipped = count(source.skipped);
        run.outcome.items.unchanged = count(source.records - source.skipped);
        run.said = run.reader.facts();
        let own = run.said.title.take();
        self.asides.tell(&mut run.said);
        run.said.title.clone_from(&own);
        // A title that the file or one beside it gave is known as said; any other one was given here.
        run.look_at_title(|title| own.as_deref() == Some(title) || asides::gave(&source.state, title))?;
        if let Some(thread) = &run.thread
            && let Some(thread) = self.find(thread)?
        {
            // What a file beside the session says since the last import was not told then.
            let details = thread.details;
            run.said.model = run.said.model.take().filter(|_| details.model.is_some());
            run.said.cwd = run.said.cwd.take().filter(|_| details.cwd.is_some());
        }
        Ok(Some(known.rest))
    }

    /// Whether the thread of a file has another one that holds the same records in another form.
    fn stands_in_another_form(&self, source: &SourceFile) -> Result<bool, Failure> {
        let (Some(_), Some(thread)) = (self.codec.other_form(&self.file.path), &source.thread) else {
            return Ok(false);
        };
        let is_other = |other: &SourceFile| self.codec.shape(other.path.as_ref(), &[]) != Shape::Lines;
        Ok(self.store.sources(thread)?.iter().any(is_other))
    }
}

/// How far the import of a file has come.
struct Run<'a> {
    import: &'a Import<'a>,
    /// Ids that were found to be taken.
    taken: &'a [ThreadId],
    reader: Box<dyn SourceReader>,
    prefix: Prefix,
    /// Behind the last segment that was taken; a step may end in the middle of a line.
    position: Position,
    /// The items that the placed records became, by their number.
    placed: Vec<ItemId>,
    batch: Vec<Pending>,
    bytes: usize,
    /// How many records in the batch wait for their agent, and their bytes.
    waiting: (usize, usize),
    /// What the store says of the file.
    stored: Option<SourceFile>,
    /// Whether an earlier import has begun with the file and not come to its end.
    was_unfinished: bool,
    thread: Option<ThreadId>,
    live: Option<LiveThread>,
    /// The last step that was sent and not waited for.
    sent: Option<Importing>,
    sent_bytes: usize,
    /// Whether the step that was sent is all there is, and stores the thread, too.
    is_whole: bool,
    /// Whether the thread is in the store, so that items of this file may be too: another file may have brought them.
    exists: bool,
    /// The part of a file of lines that an earlier import has read and this one reads again.
    read_until: u64,
    /// Whether records that differ in space alone are one ([`Codec::other_form`]).
    ignores_space: bool,
    /// The last item, if it was certainly not stored before: then what follows it was not either.
    newest: Option<ItemId>,
    /// The beginning of the file has changed, so its map is written anew.
    replace: bool,
    records: i64,
    skipped: i64,
    outcome: Outcome,
    /// Where a new delta-style fork begins.
    fork: Option<ForkPoint>,
    /// The item that the roots of a delta-style fork stand on.
    base: Option<ItemId>,
    /// Whether a record with a place in the tree has been read.
    has_items: bool,
    /// Of a session that is read as a whole: what the last import remembered, and what the next one is to.
    earlier: Remembered,
    remembered: Remembered,
    /// What the thread's metadata was last told by the file. Only what the file says anew is written, so that a rename
    /// in the store stays.
    said: ThreadFacts,
    /// Whether the thread was given its title in the store, so that no file beside the session gives it another.
    keeps_title: bool,
    /// The title that a file beside the session gives it.
    beside_title: Option<String>,
    /// Of a file that is read anew: how far it was read before, and the tokens of its thread.
    was_read_until: u64,
    was_used: Option<Usage>,
    /// What the store has of the file otherwise than it stands there.
    masks: Masks,
}

impl<'a> Run<'a> {
    /// The import of a whole file.
    fn new(import: &'a Import<'a>, taken: &'a [ThreadId], stored: Option<SourceFile>) -> Self {
        let thread = stored.as_ref().and_then(|source| source.thread.clone());
        Self {
            import,
            taken,
            reader: import.codec.reader(&import.file.path, None),
            prefix: Prefix::default(),
            position: Position { offset: 0, line: import.file.first_line() },
            placed: Vec::new(),
            batch: Vec::new(),
            bytes: 0,
            waiting: (0, 0),
            live: None,
            sent: None,
            sent_bytes: 0,
            is_whole: false,
            exists: thread.is_some(),
            thread,
            read_until: 0,
            ignores_space: import.codec.other_form(&import.file.path).is_some(),
            newest: None,
            replace: stored.is_some(),
            was_unfinished: stored.as_ref().is_some_and(|source| source.size == UNFINISHED),
            stored,
            records: 0,
            skipped: 0,
            outcome: Outcome::default(),
            fork: None,
            base: None,
            has_items: false,
            earlier: Remembered::default(),
            remembered: Remembered::default(),
            said: ThreadFacts::default(),
            keeps_title: false,
            beside_title: None,
            was_read_until: 0,
            was_used: None,
            masks: Masks::default(),
        }
    }

    /// Looks whether the thread's title is one that an import brought, which `was_told` knows.
    fn look_at_title(&mut self, was_told: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let Some(thread) = &self.thread else { return Ok(()) };
        let title = self.import.find(thread)?.and_then(|thread| thread.details.title);
        match title {
            Some(title) if was_told(&title) => self.said.title = Some(title),
            Some(_) => self.keeps_title = true,
            None => {}
        }
        Ok(())
    }

    /// What the session and the files beside it say of the thread.
    fn facts(&mut self) -> ThreadFacts {
        let mut facts = self.reader.facts();
        [&mut facts.title, &mut facts.preview].into_iter().for_each(|name| self.masks.take_name(name));
        masks::keep_masked(&self.said, &mut facts);
        // What was used does not become less where a file is cut.
        facts.usage = facts.usage.map(|usage| self.was_used.filter(|was| was.input > usage.input).unwrap_or(usage));
        let is_beside = self.import.asides.tell(&mut facts);
        if is_beside && self.keeps_title {
            facts.title.clone_from(&self.said.title);
        }
        self.beside_title = facts.title.clone().filter(|_| is_beside && !self.keeps_title);
        facts
    }

    /// Takes the next segment of the file.
    fn take(&mut self, segment: Segment) -> Result<(), Failure> {
        let line = segment.line();
        match segment {
            Segment::Record { offset, bytes, newline, .. } => {
                let is_made = matches!(self.import.shape, Shape::Replayed(_));
                if !is_made {
                    self.prefix.update(&bytes);
                    self.position.offset = offset + bytes.len() as u64 + u64::from(newline);
                    self.position.line = line + u64::from(newline);
                    if newline {
                        self.prefix.update(b"\n");
                    }
                }
                self.count_record();
                self.bytes += bytes.len();
                let bytes = Bytes { is_made, ..self.screen(bytes)? };
                let plain = self.ignores_space.then(|| compact(&bytes.read));
                if bytes.screened.is_some() {
                    self.reader.masked();
                }
                match self.reader.record(bytes.kept()) {
                    Ok(record) if record.place == Place::Beside => {
                        let bytes = self.masks.without_taken(bytes, offset);
                        self.count_beside(bytes.kept());
                        self.batch.push(Pending::Beside { offset, bytes });
                    }
                    Ok(record) => {
                        self.has_items = true;
                        let key = self.reader.key().or(plain);
                        if self.masks.took(offset, bytes.read.len()) {
                            self.masks.note_words(&self.import.codec.view(&record.kind, &bytes.read).to_text());
                        }
                        self.batch.push(Pending::Record { offset, bytes, record, key });
                    }
                    Err(skip) => {
                        self.skip(line, skip.reason);
                        let bytes = self.masks.without_taken(bytes, offset);
                        self.batch.push(Pending::Beside { offset, bytes });
                    }
                }
            }
            Segment::Opaque { offset, bytes, reason, .. } => {
                self.prefix.update(&bytes);
                self.position.offset = offset + bytes.len() as u64;
                self.position.line = line + bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.bytes += bytes.len();
                if let Some(reason) = reason {
                    self.count_record();
                    self.skip(line, reason);
                }
                let bytes = self.screen(bytes)?;
                let bytes = self.masks.without_taken(bytes, offset);
                self.batch.push(Pending::Beside { offset, bytes });
            }
            Segment::Tail { bytes, .. } => {
                let what = if self.import.shape == Shape::Text { "what was said last" } else { "the last line" };
                let length = bytes.len();
                let reason = format!("{what} is cut ({length} bytes without an end); it waits for the next import");
                self.problem(line, reason);
                let file = self.import.file.key.clone();
                self.outcome.waiting = Some(Waiting { file, line, bytes: bytes.len() as u64 });
            }
        }
        Ok(())
    }

    /// What is stored of a part of the file.
    fn screen(&mut self, read: Vec<u8>) -> Result<Bytes, Failure> {
        let screened = self.import.store.screened(&self.import.file.key, &read)?;
        // What was masked once comes in no other form later, whoever imports it.
        let screened = screened.or_else(|| self.masks.take(&read));
        self.outcome.items.masked += u64::from(screened.is_some());
        Ok(Bytes { read, screened, is_made: false })
    }

    fn count_record(&mut self) {
        self.records += 1;
        self.outcome.items.read += 1;
    }

    /// Counts a record that is kept beside the tree: of a session that is read as a whole, it may be one that was kept before.
    fn count_beside(&mut self, bytes: &[u8]) {
        let is_read_again = self.read_until > 0 && self.position.offset <= self.read_until;
        let known = is_read_again || (!self.import.shape.grows() && self.remembered.note(bytes, &self.earlier));
        let counts = &mut self.outcome.items;
        *(if known { &mut counts.unchanged } else { &mut counts.imported }) += 1;
    }

    fn skip(&mut self, line: u64, reason: String) {
        self.skipped += 1;
        self.outcome.items.skipped += 1;
        self.problem(line, reason);
    }

    fn problem(&mut self, line: u64, reason: String) {
        self.outcome.problem(&self.import.file.key, line, reason);
    }

    fn write_if_full(&mut self, workspaces: &mut HashMap<PathBuf, Workspace>) -> Result<(), Failure> {
        // What waits is looked at again when as much has come to it.
        let (count, bytes) = self.waiting;
        let most = if self.was_unfinished && !self.import.shape.grows() { READ_AGAIN } else { 1 };
        let is_full =
            self.batch.len() >= most * BATCH_RECORDS.max(2 * count) || self.bytes >= most * BATCH_BYTES.max(2 * bytes);
        if !is_full || self.import.shape.grows() {
            return if is_full { self.write(workspaces, false) } else { Ok(()) };
        }
        let waiting = self.split_unsettled();
        if !self.batch.is_empty() {
            self.write(workspaces, false)?;
        }
        self.bytes = waiting.iter().map(|pending| pending.bytes().read.len()).sum();
        self.waiting = (waiting.len(), self.bytes);
        self.batch.extend(waiting);
        Ok(())
    }

    /// Takes the records out of the batch that begin with the first one that its agent is still at work on.
    fn split_unsettled(&mut self) -> Vec<Pending> {
        let Some(unsettled) = self.reader.unsettled().map(|number| number as usize) else {
            return Vec::new();
        };
        let mut next = self.placed.len();
        let at = self.batch.iter().position(|pending| {
            let is_record = matches!(pending, Pending::Record { .. });
            next += usize::from(is_record);
            is_record && next > unsettled
        });
        let behind = at.map(|at| self.batch.split_off(at)).unwrap_or_default();
        let (records, beside): (Vec<_>, Vec<_>) =
            behind.into_iter().partition(|pending| matches!(pending, Pending::Record { .. }));
        self.batch.extend(beside);
        records
    }

    /// Keeps beside the tree what its agent is still at work on; the next import looks at it again.
    fn put_off(&mut self) {
        if self.import.shape.grows() {
            return;
        }
        let waiting = self.split_unsettled();
        let mut count = 0_i64;
        for pending in waiting {
            count += i64::from(matches!(pending, Pending::Record { .. }));
            let (Pending::Record { offset, bytes, .. } | Pending::Beside { offset, bytes }) = pending;
            self.batch.push(Pending::Beside { offset, bytes });
        }
        if count > 0 {
            self.records -= count;
            self.outcome.items.read -= u64::try_from(count).unwrap_or(0);
            let reason =
                format!("the agent is at work on the last message ({count} records); it waits for the next import");
            self.problem(0, reason);
            let file = self.import.file.key.clone();
            self.outcome.waiting = Some(Waiting { file, line: 0, bytes: 0 });
        }
    }

    /// Writes what has gathered, with how far the file has been read, in one transaction.
    fn write(&mut self, workspaces: &mut HashMap<PathBuf, Workspace>, end: bool) -> Result<(), Failure> {
        if end {
            self.put_off();
        }
        if self.thread.is_none() && !self.has_items {
            // Titles and snapshots may stand before the conversation; without one there is no thread.
            if self.batch.len() > MOST_UNPLACED || self.bytes > MOST_UNPLACED_BYTES {
                let reason =
                    format!("in its first {} parts nothing is said, so it belongs to no thread", self.batch.len());
                return Err(Failure::File(reason));
            }
            return Ok(());
        }
        let facts = self.facts();
        let Some(thread) = self.settle_thread(&facts)? else {
            return Ok(());
        };
        if self.import.dry_run {
            return self.count_only(&thread);
        }
        self.remembered.facts = facts.clone();
        self.remembered.companions.clone_from(&self.earlier.companions);
        let (companions, findings) = match end {
            true => {
                let beside = self.import.asides.companions().cloned();
                (self.reader.companions().into_iter().chain(beside).collect(), self.reader.findings())
            }
            false => (Vec::new(), Findings::default()),
        };
        // Until they are in the store, the next import has to look again.
        let is_put_off = !self.import.shape.grows() && self.outcome.waiting.is_some();
        let mut source = self.source(&thread, end && companions.is_empty() && !is_put_off);
        let head = self.reader.head().filter(|_| end);
        if self.batch.is_empty() && self.stored.as_ref() == Some(&source) && head.is_none() && facts == self.said {
            return Ok(());
        }
        let has_more = !companions.is_empty() || !findings.marks.is_empty();
        if self.live.is_none() {
            self.is_whole = end && !has_more && self.may_be_sent(&facts);
            if !self.is_whole {
                self.import.flight.land();
            }
            self.live = Some(self.open(&thread, &facts, workspaces)?);
        }
        let segments = self.segments(&thread)?;
        // What was settled with the parts is remembered, too.
        source.state = self.state();
        let is_new = segments.iter().any(|segment| matches!(segment.part, ImportPart::Item { .. }));
        if end && !has_more && !is_new && facts == self.said && self.stored.as_ref() == Some(&source) {
            // A session that waits is read at every import; a step without anything new would make its thread the latest.
            return Ok(());
        }
        let batch = ImportBatch {
            expected: self.stored.as_ref().map(|stored| (stored.consumed, stored.prefix)),
            replace: std::mem::take(&mut self.replace),
            segments,
            screened: true,
            head: head.and_then(|number| self.placed.get(number as usize).copied()),
            // With every step, because the codec's state is, too: an import that goes on knows it all as said.
            patch: (facts != self.said).then(|| patch(&self.said, &facts)),
            updated_at: facts.updated_at.or(Some(self.import.file.modified())),
            source: source.clone(),
        };
        if batch.expected == Some((source.consumed, source.prefix)) {
            // It would be taken, though the one before it was refused.
            self.land()?;
        }
        self.send(batch)?;
        self.stored = Some(source);
        self.said = facts;
        self.sent_bytes = std::mem::take(&mut self.bytes);
        if end {
            self.conclude(&thread, &companions, findings)?;
        }
        Ok(())
    }

    /// Whether the file can be sent as a whole, with its thread: all of it was read, and nothing of it is stored.
    fn may_be_sent(&self, facts: &ThreadFacts) -> bool {
        !self.exists && self.fork.is_none() && !self.is_archived(facts)
    }

    fn is_archived(&self, facts: &ThreadFacts) -> bool {
        self.import.file.is_archived() || facts.archived == Some(true)
    }

    /// Sends a step, then waits for the one before it: one is read and made ready while another is written. It is refused if the
    /// one before was, since it expects another state of the file.
    fn send(&mut self, batch: ImportBatch) -> Result<(), Failure> {
        let Some(live) = &self.live else { return Ok(()) };
        let sent = match self.is_whole {
            true => live.import_whole(batch, Durability::Written),
            false => live.send_import(batch, Durability::Written),
        };
        let before = self.land();
        let sent = sent.map_err(|error| self.refused(error));
        match before {
            Ok(()) => sent.map(|sent| self.sent = Some(sent)),
            Err(failure) => {
                self.sent = sent.ok();
                Err(failure)
            }
        }
    }

    /// Waits for what is on its way when the import of the file fails: the next files read the store.
    fn give_up(mut self, failure: Failure) -> Failure {
        match (self.land(), failure) {
            (Err(Failure::Store(error)), Failure::File(_)) => Failure::Store(error),
            (_, failure) => failure,
        }
    }

    /// Waits for the step that was sent.
    fn land(&mut self) -> Result<(), Failure> {
        match self.sent.take() {
            Some(sent) => sent.wait().map(drop).map_err(|error| self.refused(error)),
            None => Ok(()),
        }
    }

    /// Brings what stands beside the conversation, and says what was found of it as a whole.
    fn conclude(&mut self, thread: &ThreadId, companions: &[Companion], findings: Findings) -> Result<(), Failure> {
        let beside: Vec<String> = self.import.asides.remarks().cloned().collect();
        for remark in findings.remarks.into_iter().chain(beside) {
            self.problem(0, remark);
        }
        if companions.is_empty() && findings.marks.is_empty() {
            return Ok(());
        }
        self.land()?;
        let Some(live) = &self.live else {
            return Ok(());
        };
        let brought = companions::bring(self.import.store, live, companions, &mut self.remembered.companions)?;
        let source = self.source(thread, true);
        let mut patch = ThreadPatch::default();
        for (name, said) in findings.marks {
            patch.extra.insert(name.to_owned(), Change::Set(said));
        }
        let batch = ImportBatch {
            expected: self.stored.as_ref().map(|stored| (stored.consumed, stored.prefix)),
            replace: false,
            segments: Vec::new(),
            screened: true,
            head: None,
            patch: Some(patch).filter(|patch| !patch.extra.is_empty()),
            updated_at: self.said.updated_at.or(Some(self.import.file.modified())),
            source: source.clone(),
        };
        live.import(batch, Durability::Written).map_err(|error| self.refused(error))?;
        self.stored = Some(source);
        self.outcome.companions.add(&brought.counts);
        for reason in brought.problems {
            self.problem(0, reason);
        }
        Ok(())
    }

    /// The thread that the file belongs to, decided with its first record; what its roots stand on is settled with it.
    fn settle_thread(&mut self, facts: &ThreadFacts) -> Result<Option<ThreadId>, Failure> {
        if self.live.is_some() {
            return Ok(self.thread.clone());
        }
        if let Some(id) = &self.thread {
            if let Some(thread) = self.import.find(id)? {
                self.base = self.import.base_of(&thread, facts)?;
            }
            return Ok(Some(id.clone()));
        }
        let first = self.batch.iter().find_map(|pending| match pending {
            Pending::Record { bytes, record, key, .. } => Some((key.as_deref().unwrap_or(&bytes.read), record)),
            Pending::Beside { .. } => None,
        });
        let Some((bytes, record)) = first else {
            return Ok(None);
        };
        let chosen = self.import.choose_thread(facts, bytes, record, self.taken)?;
        self.outcome.new_thread = chosen.is_new;
        self.exists = chosen.exists;
        self.base = chosen.base;
        self.fork = chosen.fork;
        self.thread = Some(chosen.id.clone());
        Ok(Some(chosen.id))
    }

    /// What the refusal of a step means for the file.
    fn refused(&self, error: Error) -> Failure {
        match (error, &self.thread) {
            (Error::AlreadyExists { what: "thread", .. }, Some(id)) => Failure::Taken(id.clone()),
            (error, _) => refusal(error),
        }
    }

    /// Counts what would be stored: of a thread that is there, what is new.
    fn count_only(&mut self, thread: &ThreadId) -> Result<(), Failure> {
        if self.exists {
            self.segments(thread)?;
        }
        for pending in self.batch.drain(..) {
            if let Pending::Record { .. } = pending {
                self.outcome.items.imported += 1;
            }
        }
        self.bytes = 0;
        Ok(())
    }

    fn open(
        &mut self,
        thread: &ThreadId,
        facts: &ThreadFacts,
        workspaces: &mut HashMap<PathBuf, Workspace>,
    ) -> Result<LiveThread, Failure> {
        if self.exists {
            return Ok(self.import.store.resume(thread, true)?);
        }
        let folder =
            facts.cwd.clone().or_else(|| self.import.file.path.parent().map(Path::to_owned)).unwrap_or_default();
        if !workspaces.contains_key(&folder) {
            workspaces.insert(folder.clone(), self.import.store.workspace(&folder)?);
        }
        let Some(workspace) = workspaces.get(&folder) else {
            return Err(Failure::File("no workspace".to_owned()));
        };
        self.said = facts.clone();
        let new = NewThread {
            id: Some(thread.clone()),
            details: self.import.details(facts),
            forked_from: facts.forked_from.as_deref().and_then(thread_id),
            created_at: facts.created_at.or(Some(self.import.file.modified())),
            ..NewThread::default()
        };
        if let Some(fork) = &self.fork {
            let forked = self.import.store.fork(&fork.parent, Some(fork.address), new);
            forked.map_err(|error| self.refused(error))?;
            return Ok(self.import.store.resume(thread, true)?);
        }
        if let Some(Continues { session, .. }) = &facts.continues {
            let reason = format!("it continues {session}, which is not in the store; only its own part was imported");
            self.problem(0, reason);
        }
        Ok(workspace.create(new)?)
    }

    /// Turns what has gathered into parts of an import, new items and known ones told apart.
    fn segments(&mut self, thread: &ThreadId) -> Result<Vec<ImportSegment>, Failure> {
        let mut segments = Vec::with_capacity(self.batch.len());
        let (mut fresh, mut here, mut keyed) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut last = None;
        for pending in std::mem::take(&mut self.batch) {
            let ((position, length), part) = match pending {
                Pending::Beside { offset, bytes } => {
                    (bytes.place(offset), ImportPart::Beside { bytes: bytes.into_kept() })
                }
                Pending::Record { offset, bytes, record, key } => {
                    let place = bytes.place(offset);
                    let begins = self.placed.is_empty();
                    let (id, after) = self.stand(thread, &bytes, &record, key.as_deref());
                    let is_new = !self.exists && (begins || (after.is_some() && after == self.newest));
                    let is_first = here.insert(id);
                    fresh.extend(Some(id).filter(|_| is_first && !is_new));
                    keyed.extend(Some(id).filter(|_| is_first && key.is_some()));
                    self.newest = Some(id).filter(|_| is_new);
                    last = Some(id).filter(|_| is_first);
                    let part = match is_first {
                        true => self.item(id, after, bytes, record),
                        false => ImportPart::Known { item: id, note: record.note },
                    };
                    (place, part)
                }
            };
            segments.push(ImportSegment { position, length, part });
        }
        let stored: HashSet<ItemId> = match fresh.is_empty() {
            true => HashSet::new(),
            false => {
                self.land()?;
                self.import.store.stored_items(fresh)?.into_iter().collect()
            }
        };
        if !self.exists && self.newest.is_none() {
            self.newest = last.filter(|last| !stored.contains(last));
        }
        for segment in &mut segments {
            if let ImportPart::Item { item, .. } = &mut segment.part
                && let Some(id) = item.id.filter(|id| stored.contains(id) && keyed.contains(id))
                && self.has_changed(thread, id, &item.content)?
            {
                let bytes = std::mem::take(&mut item.content);
                match self.import.shape {
                    Shape::Lines => self.outcome.items.unchanged += 1,
                    _ => self.count_beside(&bytes),
                }
                segment.part = ImportPart::Beside { bytes };
            }
            self.settle(segment, &stored);
        }
        Ok(segments)
    }

    /// Whether a record that its agent changes in place has other bytes than the item that it became. What was taken out of
    /// an item is not brought back beside it.
    fn has_changed(&self, thread: &ThreadId, id: ItemId, bytes: &[u8]) -> Result<bool, Failure> {
        let address = self.import.store.address_of(thread, id)?;
        match self.import.store.item(thread, address) {
            // Lines are not changed in place: they differ in space alone, or in what is masked.
            Ok(item) if self.import.shape == Shape::Lines => {
                Ok(item.redaction.is_none() && item.content != bytes && compact(&item.content) == compact(bytes))
            }
            Ok(item) => Ok(item.redaction.is_none() && item.content != bytes),
            Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The item that a record becomes, and the one that it stands behind.
    fn stand(
        &mut self,
        thread: &ThreadId,
        bytes: &Bytes,
        record: &Record,
        key: Option<&[u8]>,
    ) -> (ItemId, Option<ItemId>) {
        let after = match record.place {
            Place::After(number) => self.placed.get(number as usize).copied().or(self.base),
            Place::Root | Place::Beside => self.base,
        };
        let id = item_id(thread, after, key.unwrap_or(&bytes.read), record.created_at);
        self.placed.push(id);
        (id, after)
    }

    fn item(&self, id: ItemId, after: Option<ItemId>, bytes: Bytes, record: Record) -> ImportPart {
        let item = NewItem {
            id: Some(id),
            role: record.role,
            created_at: record.created_at.or(Some(self.import.file.modified())),
            source_id: record.source_id.filter(|id| !id.contains('\0') && id.len() <= 512),
            ..NewItem::raw(record.kind, self.import.codec.format(), bytes.into_kept())
        };
        ImportPart::Item { item: Box::new(item), after, starts_turn: record.starts_turn, note: record.note }
    }

    /// Counts a part; one that is stored already is only mapped.
    fn settle(&mut self, segment: &mut ImportSegment, stored: &HashSet<ItemId>) {
        let counts = &mut self.outcome.items;
        match &mut segment.part {
            ImportPart::Item { item, note, .. } => match item.id.filter(|id| stored.contains(id)) {
                // Where the thread is new, this import stored it: the record stands twice in one place.
                Some(id) => {
                    segment.part = ImportPart::Known { item: id, note: std::mem::take(note) };
                    *(if self.exists { &mut counts.unchanged } else { &mut counts.imported }) += 1;
                }
                None => counts.imported += 1,
            },
            ImportPart::Known { .. } => counts.imported += 1,
            ImportPart::Beside { .. } => {}
        }
    }

    fn source(&self, thread: &ThreadId, end: bool) -> SourceFile {
        SourceFile {
            agent: self.import.codec.agent().to_owned(),
            path: self.import.file.key.clone(),
            thread: Some(thread.clone()),
            // As it was found before it was read: what was written to it since makes a difference at the next look.
            size: if end { self.import.file.stored_size() } else { UNFINISHED },
            mtime: self.import.file.mtime,
            consumed: i64::try_from(self.position.offset).unwrap_or(i64::MAX),
            prefix: self.prefix.hash(),
            records: self.records,
            skipped: self.skipped,
            state: self.state(),
        }
    }

    /// What the next import gets back.
    fn state(&self) -> Vec<u8> {
        if self.import.shape.grows() {
            let state = self.masks.without_names(self.reader.state());
            return asides::with_title(state, self.beside_title.as_deref());
        }
        serde_json::to_vec(&self.remembered).unwrap_or_default()
    }

    fn finish(mut self, is_unknown: bool) -> Result<Done, Failure> {
        if self.thread.is_none() {
            let reason = "there is no conversation in it".to_owned();
            let left = self.outcome.items.read - self.outcome.items.skipped;
            self.outcome.items.imported = 0;
            self.outcome.items.skipped += left;
            self.problem(0, reason);
        }
        self.outcome.thread.clone_from(&self.thread);
        let is_archived = self.is_archived(&self.said);
        if !is_archived
            && let Some(importing) = self.sent.take()
            && let Some(live) = self.live.take()
        {
            let (file, taken, bytes) = (self.import.file.clone(), self.taken.to_vec(), self.sent_bytes);
            self.import.flight.add(Sent { file, live, outcome: self.outcome, bytes, importing, taken, is_unknown });
            return Ok(Done::Sent);
        }
        self.land()?;
        if let Some(live) = &self.live {
            // Gives up the claim without a sync: the whole import is synced once, at its end.
            live.discard()?;
            if (self.outcome.new_thread || self.was_unfinished) && is_archived {
                self.import.store.archive(live.id())?;
            }
        }
        Ok(Done::Stored(self.outcome))
    }
}
