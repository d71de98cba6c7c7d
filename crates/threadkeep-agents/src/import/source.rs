//! Importing one file.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Change, Details, Durability, Error, Hash, ImportBatch, ImportPart, ImportSegment, ItemId, NewItem, NewThread,
    Shelf, SourceFile, Thread, ThreadId, ThreadPatch,
};

use super::files::{self, Found};
use super::identity::{item_id, other_thread_id, thread_id};
use super::report::{Outcome, Problem};
use crate::codec::{Codec, Continues, KnownRecord, Place, Record, SourceReader, ThreadFacts};
use crate::segments::{Position, Segment, Segments};

/// A step of an import ends when it holds this many records …
const BATCH_RECORDS: usize = 256;
/// … or this many bytes.
const BATCH_BYTES: usize = 2 << 20;
const KNOWN_PAGE: usize = 5_000;

/// Why a file could not be imported.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something about the file.
    File(String),
    /// Something about the store.
    Store(Error),
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

/// The import of one file.
pub(super) struct Import<'a> {
    pub(super) store: &'a Store,
    pub(super) codec: &'a dyn Codec,
    pub(super) file: &'a Found,
    pub(super) dry_run: bool,
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
    pub(super) fn run(&self, workspaces: &mut HashMap<PathBuf, Workspace>) -> Result<Outcome, Failure> {
        let known = self.store.source(&self.file.key)?;
        let mut run = match known {
            Some(source) if source.thread.is_some() => self.go_on(source)?,
            // Its thread was purged, and the session went on since: it is imported anew.
            Some(_) => Run { replace: true, ..Run::new(self, None) },
            None => Run::new(self, None),
        };
        let input = self.input_at(run.position.offset)?;
        for segment in Segments::starting_at(input, run.position) {
            run.take(segment?);
            if run.batch.len() >= BATCH_RECORDS || run.bytes >= BATCH_BYTES {
                run.write(workspaces, false)?;
            }
        }
        run.write(workspaces, true)?;
        run.finish()
    }

    /// Goes on where the last import stopped, if the beginning of the file is still the same; else begins anew.
    fn go_on(&self, source: SourceFile) -> Result<Run<'_>, Failure> {
        let consumed = u64::try_from(source.consumed).unwrap_or(0);
        let mut hasher = blake3::Hasher::new();
        let line = match hash_prefix(&self.file.path, consumed, &mut hasher)? {
            Some(line) if Hash(*hasher.finalize().as_bytes()) == source.prefix => line,
            _ => {
                return Ok(Run { replace: true, ..Run::new(self, Some(source)) });
            }
        };
        let mut run = Run::new(self, None);
        run.reader = self.codec.reader(&self.file.path, Some(&source.state));
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
        run.position = Position { offset: consumed, line };
        run.hasher = hasher;
        run.records = source.records;
        run.skipped = source.skipped;
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        run.outcome.items.read = count(source.records);
        run.outcome.items.skipped = count(source.skipped);
        run.outcome.items.unchanged = count(source.records - source.skipped);
        run.thread = source.thread;
        run.said = run.reader.facts();
        run.resumed = true;
        Ok(run)
    }

    fn input_at(&self, offset: u64) -> Result<impl BufRead + use<>, Failure> {
        let mut input = files::open(&self.file.path)?;
        io::copy(&mut (&mut input).take(offset), &mut io::sink())?;
        Ok(input)
    }
}

/// Hashes the first bytes of a file; gives the number of the line after them, or nothing when the file is shorter.
fn hash_prefix(path: &Path, length: u64, hasher: &mut blake3::Hasher) -> io::Result<Option<u64>> {
    let mut input = files::open(path)?.take(length);
    let mut line = 1;
    let mut left = length;
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok((left == 0).then_some(line));
        }
        hasher.update(buffer);
        line += buffer.iter().filter(|byte| **byte == b'\n').count() as u64;
        let taken = buffer.len();
        left -= taken as u64;
        input.consume(taken);
    }
}

/// A record or bytes on their way into the store.
enum Pending {
    Record { offset: u64, bytes: Vec<u8>, record: Record },
    Beside { offset: u64, bytes: Vec<u8> },
}

/// How far the import of a file has come.
struct Run<'a> {
    import: &'a Import<'a>,
    reader: Box<dyn SourceReader>,
    hasher: blake3::Hasher,
    /// Behind the last segment that was taken; a step may end in the middle of a line.
    position: Position,
    /// The items that the placed records became, by their number.
    placed: Vec<ItemId>,
    batch: Vec<Pending>,
    bytes: usize,
    thread: Option<ThreadId>,
    live: Option<LiveThread>,
    /// Whether items of the thread may be in the store already.
    may_exist: bool,
    /// Items of this run, to recognise a record that stands twice in one place.
    seen: HashSet<ItemId>,
    /// The beginning of the file has changed, so its map is written anew.
    replace: bool,
    /// The thread existed, with at least the items that were imported before.
    resumed: bool,
    records: i64,
    skipped: i64,
    outcome: Outcome,
    /// The item that a delta-style fork stands on.
    base: Option<ItemId>,
    /// Whether a record with a place in the tree has been read.
    has_items: bool,
    /// What the thread's metadata was last told by the file. Only what the file says anew is written, so that a rename
    /// in the store stays.
    said: ThreadFacts,
}

impl<'a> Run<'a> {
    fn new(import: &'a Import<'a>, former: Option<SourceFile>) -> Self {
        Self {
            import,
            reader: import.codec.reader(&import.file.path, None),
            hasher: blake3::Hasher::new(),
            position: Position { offset: 0, line: 1 },
            placed: Vec::new(),
            batch: Vec::new(),
            bytes: 0,
            thread: former.and_then(|source| source.thread),
            live: None,
            may_exist: false,
            seen: HashSet::new(),
            replace: false,
            resumed: false,
            records: 0,
            skipped: 0,
            outcome: Outcome::default(),
            base: None,
            has_items: false,
            said: ThreadFacts::default(),
        }
    }

    /// Takes the next segment of the file.
    fn take(&mut self, segment: Segment) {
        let line = segment.line();
        match segment {
            Segment::Record { offset, bytes, newline, .. } => {
                self.hasher.update(&bytes);
                self.position.offset = offset + bytes.len() as u64 + u64::from(newline);
                self.position.line = line + u64::from(newline);
                if newline {
                    self.hasher.update(b"\n");
                }
                self.count_record();
                self.bytes += bytes.len();
                match self.reader.record(&bytes) {
                    Ok(record) if record.place == Place::Beside => {
                        self.batch.push(Pending::Beside { offset, bytes });
                        self.outcome.items.imported += 1;
                    }
                    Ok(record) => {
                        self.has_items = true;
                        self.batch.push(Pending::Record { offset, bytes, record });
                    }
                    Err(skip) => {
                        self.skip(line, skip.reason);
                        self.batch.push(Pending::Beside { offset, bytes });
                    }
                }
            }
            Segment::Opaque { offset, bytes, reason, .. } => {
                self.hasher.update(&bytes);
                self.position.offset = offset + bytes.len() as u64;
                self.position.line = line + bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.bytes += bytes.len();
                if let Some(reason) = reason {
                    self.count_record();
                    self.skip(line, reason);
                }
                self.batch.push(Pending::Beside { offset, bytes });
            }
            Segment::Tail { bytes, .. } => {
                let reason = format!(
                    "the last line is cut ({} bytes without an end); it waits for the next import",
                    bytes.len()
                );
                self.problem(line, reason);
            }
        }
    }

    fn count_record(&mut self) {
        self.records += 1;
        self.outcome.items.read += 1;
    }

    fn skip(&mut self, line: u64, reason: String) {
        self.skipped += 1;
        self.outcome.items.skipped += 1;
        self.problem(line, reason);
    }

    fn problem(&mut self, line: u64, reason: String) {
        self.outcome.problems.push(Problem { file: self.import.file.key.clone(), line, reason });
    }

    /// Writes what has gathered, with how far the file has been read, in one transaction.
    fn write(&mut self, workspaces: &mut HashMap<PathBuf, Workspace>, end: bool) -> Result<(), Failure> {
        if self.thread.is_none() && !self.has_items {
            // Titles and snapshots may stand before the conversation; without one there is no thread.
            return Ok(());
        }
        let facts = self.import.with_meta_file(self.reader.facts());
        let first = self.batch.iter().find_map(|pending| match pending {
            Pending::Record { bytes, record, .. } => Some((bytes.as_slice(), record)),
            Pending::Beside { .. } => None,
        });
        if self.thread.is_none() {
            let Some((bytes, record)) = first else {
                return Ok(());
            };
            let (id, exists) = self.import.choose_thread(&facts, bytes, record)?;
            self.outcome.new_thread = !exists;
            self.may_exist = exists;
            self.thread = Some(id);
        } else if self.live.is_none() {
            self.may_exist = self.replace;
        }
        let Some(thread) = self.thread.clone() else {
            return Ok(());
        };
        if self.import.dry_run {
            self.count_only();
            return Ok(());
        }
        if self.live.is_none() {
            self.live = Some(self.open(&thread, &facts, workspaces)?);
        }
        let segments = self.segments(&thread)?;
        let batch = ImportBatch {
            source: self.source(&thread),
            replace: std::mem::take(&mut self.replace),
            segments,
            head: if end {
                self.reader.head().and_then(|number| self.placed.get(number as usize).copied())
            } else {
                None
            },
            patch: (end && facts != self.said).then(|| patch(&self.said, &facts)),
            updated_at: facts.updated_at.or(Some(self.import.file.modified())),
        };
        if let Some(live) = &self.live {
            live.import(batch, Durability::Written)?;
        }
        if end {
            self.said = facts;
        }
        self.bytes = 0;
        Ok(())
    }

    fn count_only(&mut self) {
        for pending in self.batch.drain(..) {
            if let Pending::Record { .. } = pending {
                self.outcome.items.imported += 1;
            }
        }
        self.bytes = 0;
    }

    fn open(
        &mut self,
        thread: &ThreadId,
        facts: &ThreadFacts,
        workspaces: &mut HashMap<PathBuf, Workspace>,
    ) -> Result<LiveThread, Failure> {
        if self.may_exist || self.resumed || self.replace {
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
        if let Some(continues) = &facts.continues {
            match self.import.fork_base(continues)? {
                Some((parent, address, item)) => {
                    self.base = Some(item);
                    self.import.store.fork(&parent, Some(address), new)?;
                    return Ok(self.import.store.resume(thread, true)?);
                }
                None => {
                    let session = &continues.session;
                    self.problem(
                        0,
                        format!("it continues {session}, which is not in the store; only its own part was imported"),
                    );
                }
            }
        }
        Ok(workspace.create(new)?)
    }

    /// Turns what has gathered into parts of an import, new items and known ones told apart.
    fn segments(&mut self, thread: &ThreadId) -> Result<Vec<ImportSegment>, Failure> {
        let mut segments = Vec::with_capacity(self.batch.len());
        let mut fresh = Vec::new();
        for pending in std::mem::take(&mut self.batch) {
            let (offset, length, part) = match pending {
                Pending::Beside { offset, bytes } => (offset, bytes.len(), ImportPart::Beside { bytes }),
                Pending::Record { offset, bytes, record } => {
                    let length = bytes.len();
                    let part = self.part(thread, bytes, record);
                    if let ImportPart::Item { item, .. } = &part {
                        fresh.extend(item.id);
                    }
                    (offset, length, part)
                }
            };
            let position = i64::try_from(offset).unwrap_or(i64::MAX);
            segments.push(ImportSegment { position, length: i64::try_from(length).unwrap_or(i64::MAX), part });
        }
        let stored: HashSet<ItemId> = match self.may_exist {
            true => self.import.store.stored_items(fresh)?.into_iter().collect(),
            false => HashSet::new(),
        };
        for segment in &mut segments {
            self.settle(segment, &stored);
        }
        Ok(segments)
    }

    fn part(&mut self, thread: &ThreadId, bytes: Vec<u8>, record: Record) -> ImportPart {
        let after = match record.place {
            Place::After(number) => self.placed.get(number as usize).copied().or(self.base),
            Place::Root | Place::Beside => self.base,
        };
        let id = item_id(thread, after, &bytes, record.created_at);
        self.placed.push(id);
        if !self.seen.insert(id) {
            return ImportPart::Known { item: id, note: record.note };
        }
        let item = NewItem {
            id: Some(id),
            role: record.role,
            created_at: record.created_at.or(Some(self.import.file.modified())),
            source_id: record.source_id.filter(|id| !id.contains('\0') && id.len() <= 512),
            ..NewItem::raw(record.kind, self.import.codec.format(), bytes)
        };
        ImportPart::Item { item: Box::new(item), after, starts_turn: record.starts_turn, note: record.note }
    }

    /// Counts a part; one that is stored already is only mapped.
    fn settle(&mut self, segment: &mut ImportSegment, stored: &HashSet<ItemId>) {
        match &mut segment.part {
            ImportPart::Item { item, note, .. } => match item.id.filter(|id| stored.contains(id)) {
                Some(id) => {
                    segment.part = ImportPart::Known { item: id, note: std::mem::take(note) };
                    self.outcome.items.unchanged += 1;
                }
                None => self.outcome.items.imported += 1,
            },
            ImportPart::Known { .. } => self.outcome.items.imported += 1,
            ImportPart::Beside { .. } => {}
        }
    }

    fn source(&self, thread: &ThreadId) -> SourceFile {
        SourceFile {
            agent: self.import.codec.agent().to_owned(),
            path: self.import.file.key.clone(),
            thread: Some(thread.clone()),
            size: self.import.file.stored_size(),
            mtime: self.import.file.mtime,
            consumed: i64::try_from(self.position.offset).unwrap_or(i64::MAX),
            prefix: Hash(*self.hasher.finalize().as_bytes()),
            records: self.records,
            skipped: self.skipped,
            state: self.reader.state(),
        }
    }

    fn finish(mut self) -> Result<Outcome, Failure> {
        if self.thread.is_none() {
            let reason = "there is no conversation in it".to_owned();
            let left = self.outcome.items.read - self.outcome.items.skipped;
            self.outcome.items.imported = 0;
            self.outcome.items.skipped += left;
            self.problem(0, reason);
        }
        if let Some(live) = &self.live {
            // Gives up the claim without a sync: the whole import is synced once, at its end.
            live.discard()?;
            if self.outcome.new_thread && self.import.file.is_archived() {
                self.import.store.archive(live.id())?;
            }
        }
        self.outcome.thread = self.thread;
        Ok(self.outcome)
    }
}

impl Import<'_> {
    /// The id of the file's thread, and whether it is in the store already.
    fn choose_thread(&self, facts: &ThreadFacts, bytes: &[u8], first: &Record) -> Result<(ThreadId, bool), Failure> {
        let stem = || self.file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let session = facts.session_id.as_deref().and_then(thread_id).or_else(|| stem().as_deref().and_then(thread_id));
        let Some(id) = session else {
            return Err(Failure::File("the session has no usable id".to_owned()));
        };
        let other = other_thread_id(&id, &self.file.key);
        for id in [Some(id), other].into_iter().flatten() {
            match self.find(&id)? {
                None => return Ok((id, false)),
                Some(thread) if thread.shelf == Shelf::Trashed => {
                    return Err(Failure::File(format!(
                        "its thread {id} is in the trash; restore it to import the file"
                    )));
                }
                Some(_) if self.begins_with(&id, bytes, first)? => return Ok((id, true)),
                Some(_) => {}
            }
        }
        Err(Failure::File("its id is taken by other conversations".to_owned()))
    }

    fn find(&self, id: &ThreadId) -> Result<Option<Thread>, Failure> {
        match self.store.get(id) {
            Ok(thread) => Ok(Some(thread)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the thread begins with this record: then it is the same conversation in another file.
    fn begins_with(&self, id: &ThreadId, bytes: &[u8], first: &Record) -> Result<bool, Failure> {
        let root = item_id(id, None, bytes, first.created_at);
        Ok(!self.store.stored_items(vec![root])?.is_empty())
    }

    /// The item of the parent session that a delta-style fork stands on.
    fn fork_base(&self, continues: &Continues) -> Result<Option<(ThreadId, threadkeep::Address, ItemId)>, Failure> {
        let Some(parent) = thread_id(&continues.session) else {
            return Ok(None);
        };
        if self.find(&parent)?.is_none_or(|thread| thread.shelf == Shelf::Trashed) {
            return Ok(None);
        }
        let reader = self.codec.reader(&self.file.path, None);
        let mut base = None;
        for source in self.store.sources(&parent)? {
            let mut after = -1;
            loop {
                let page = self.store.known_records(&source.path, after, KNOWN_PAGE)?;
                let Some(last) = page.last() else { break };
                after = last.position;
                for record in &page {
                    if reader.ordinal(&record.note).is_some_and(|ordinal| ordinal < continues.end_ordinal) {
                        base = Some(record.item);
                    }
                }
            }
        }
        let Some(item) = base else { return Ok(None) };
        let address = self.store.address_of(&parent, item)?;
        Ok(Some((parent, address, item)))
    }

    /// Adds what the small file beside a sub-agent's file says of it.
    fn with_meta_file(&self, mut facts: ThreadFacts) -> ThreadFacts {
        if facts.parent_session.is_some()
            && let Ok(meta) = std::fs::read(self.file.path.with_extension("meta.json"))
            && let Some(agent) = crate::claude_code::sub_agent(&meta)
        {
            facts.persona = facts.persona.or(agent.role);
            facts.title = facts.title.or(agent.description);
        }
        facts
    }

    fn details(&self, facts: &ThreadFacts) -> Details {
        Details {
            title: fit(facts.title.as_deref()),
            preview: fit(facts.preview.as_deref()),
            agent: Some(self.codec.agent().to_owned()),
            source: fit(facts.source.as_deref()),
            provider: fit(facts.provider.as_deref()),
            model: fit(facts.model.as_deref()),
            cwd: facts.cwd.as_deref().and_then(|cwd| fit(cwd.to_str())),
            rollout_path: fit(Some(&self.file.key)),
            git_sha: fit(facts.git_sha.as_deref()),
            git_branch: fit(facts.git_branch.as_deref()),
            git_origin: fit(facts.git_origin.as_deref()),
            cli_version: fit(facts.cli_version.as_deref()),
            sandbox_policy: fit(facts.sandbox_policy.as_deref()),
            approval_policy: fit(facts.approval_policy.as_deref()),
            memory_mode: fit(facts.memory_mode.as_deref()),
            persona: fit(facts.persona.as_deref()),
            parent: facts.parent_session.as_deref().and_then(thread_id),
            usage: facts.usage,
            ..Details::default()
        }
    }
}

/// What a file says anew of its thread; what it does not say stays.
fn patch(said: &ThreadFacts, facts: &ThreadFacts) -> ThreadPatch {
    let set = |of: fn(&ThreadFacts) -> &Option<String>| match of(facts) {
        text if text == of(said) => Change::Keep,
        text => Change::from(fit(text.as_deref())),
    };
    ThreadPatch {
        title: set(|facts| &facts.title),
        preview: set(|facts| &facts.preview),
        provider: set(|facts| &facts.provider),
        model: set(|facts| &facts.model),
        cli_version: set(|facts| &facts.cli_version),
        git_branch: set(|facts| &facts.git_branch),
        git_sha: set(|facts| &facts.git_sha),
        git_origin: set(|facts| &facts.git_origin),
        sandbox_policy: set(|facts| &facts.sandbox_policy),
        approval_policy: set(|facts| &facts.approval_policy),
        memory_mode: set(|facts| &facts.memory_mode),
        persona: set(|facts| &facts.persona),
        usage: facts.usage.into(),
        ..ThreadPatch::default()
    }
}

/// Text that the store takes: without NUL, and not longer than it keeps.
fn fit(text: Option<&str>) -> Option<String> {
    const LONGEST: usize = 16 << 10;
    let text = text?.replace('\0', "\u{fffd}");
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).map(str::to_owned)
}
