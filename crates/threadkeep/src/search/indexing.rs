//! Bringing the index to where the store is: what is missing in it is read in batches, behind the commits.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::document::{self, Readers, Source, Tools};
use super::page::IndexStatus;
use crate::concurrency::{Mutex, MutexGuard, block_on, thread};
use crate::db::index::{Batch, Behind, Changed, Document, Index, Progress, Standing, Subject};
use crate::db::{Db, Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ItemKey, WorkspaceId};
use crate::item::{Kind, Role};
use crate::log::{path, read};
use crate::records;
use crate::rollout::marks::Moment;
use crate::seal::Record;
use crate::time::Timestamp;

/// How many documents are added at once, and from how many bytes.
const BATCH: usize = 2_000;
const BATCH_BYTES: usize = 2 << 20;
/// How many branches are looked at in one round.
const BRANCHES: usize = 100_000;
/// How many records of what was taken away are followed in one round.
const RECORDS: i64 = 500;
/// How many items before a tool's result its call is looked for.
const CALL_WITHIN: i64 = 64;
const ROWS: i64 = 256;
/// How long others that change the index are waited for where it matters.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);

statements! {
    SOURCES = "SELECT key, kind, role, format, created_at, size, encoding, CASE WHEN size <= ?4 THEN content END, hash FROM items
        WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
    BRANCH = "SELECT b.base, t.workspace FROM branches b LEFT JOIN threads t ON t.id = b.thread WHERE b.key = ?1";
    TITLES = "SELECT id, title, workspace FROM threads WHERE title IS NOT NULL AND shelf < 3 ORDER BY id";
    TITLES_SINCE = "SELECT id, title, workspace FROM threads WHERE updated >= ?1 AND shelf < 3 ORDER BY id";
    TITLE_OF = "SELECT id, title, workspace FROM threads WHERE id = ?1 AND shelf < 3";
}

/// The index of a store, and what is known of how far it is.
#[derive(Debug)]
pub(crate) struct Indexer {
    pub(crate) index: Arc<dyn Index>,
    pub(crate) readers: Readers,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The generation in which `since` holds.
    generation: i64,
    /// Everything that was changed before this place in the order by update is in the index.
    since: Option<i64>,
    /// Branches that can't be read on, and why.
    damaged: BTreeMap<i64, String>,
}

/// What the index lacks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lack {
    pub(crate) standing: Standing,
    pub(crate) behind: Vec<Behind>,
    pub(crate) missing: Vec<(i64, Subject)>,
    titles: Vec<Title>,
    forgotten_titles: Vec<String>,
    records: Vec<Record>,
    /// The last number on record.
    last_record: i64,
    /// The place in the order by update before which nothing is lacking any more once this is done.
    place: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Title {
    pub(crate) thread: String,
    pub(crate) title: Option<String>,
    pub(crate) workspace: Option<WorkspaceId>,
}

/// What keeps the index from being brought up to date.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It is damaged, and has to be made anew.
    Index(Error),
    /// Anything else: the store is damaged, there is no room.
    Other(Error),
}

impl Trouble {
    fn of_index(error: Error) -> Self {
        match error {
            Error::Corrupt { .. } => Self::Index(error),
            _ => Self::Other(error),
        }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Index(error) | Self::Other(error) => error,
        }
    }
}

impl Lack {
    pub(crate) fn is_nothing(&self) -> bool {
        self.behind.is_empty()
            && self.missing.is_empty()
            && self.titles.is_empty()
            && self.forgotten_titles.is_empty()
            && self.last_record <= self.standing.records
    }

    /// Whether what was lacking when it was looked at is done.
    fn is_done(&self) -> bool {
        self.behind.is_empty()
            && self.missing.is_empty()
            && self.titles.is_empty()
            && self.forgotten_titles.is_empty()
            && self.records.is_empty()
    }

    pub(crate) fn titles(&self) -> &[Title] {
        &self.titles
    }
}

impl Indexer {
    pub(crate) fn new(index: Arc<dyn Index>, readers: Readers) -> Arc<Self> {
        Arc::new(Self { index, readers, known: Mutex::default() })
    }

    /// Brings the index up to date until then; gives what it lacks still.
    pub(crate) fn catch_up(self: &Arc<Self>, db: &Db, until: Instant) -> Result<Lack, Trouble> {
        let lack = |indexer: &Arc<Self>| indexer.lack(db).map_err(|error| indexer.judged(error));
        loop {
            let mut lacking = lack(self)?;
            if lacking.is_nothing() {
                self.note(lacking.standing.generation, Some(lacking.place));
                return Ok(lacking);
            }
            let mut was_busy = false;
            while !was_busy && !lacking.is_done() && Instant::now() < until {
                was_busy = self.step(db, &mut lacking)? == Changed::Busy;
            }
            if was_busy || Instant::now() >= until {
                return lack(self);
            }
        }
    }

    /// Does one batch of what is lacking; `None` when nothing is.
    pub(crate) fn round(self: &Arc<Self>, db: &Db) -> Result<Option<Changed>, Trouble> {
        let mut lack = self.lack(db).map_err(|error| self.judged(error))?;
        if lack.is_nothing() {
            self.note(lack.standing.generation, Some(lack.place));
            return Ok(None);
        }
        self.step(db, &mut lack).map(Some)
    }

    /// How far the index is.
    pub(crate) fn status(self: &Arc<Self>, db: &Db) -> Result<IndexStatus> {
        if !self.index.exists()? {
            return Ok(IndexStatus::default());
        }
        let lack = self.lack(db)?;
        Ok(IndexStatus {
            exists: true,
            documents: lack.standing.top,
            bytes: self.index.bytes()?,
            is_in_step: lack.is_nothing(),
        })
    }

    /// Takes out of the index, and of every file of it, what was taken away on purpose up to now; says what is left, and why.
    pub(crate) fn erase(self: &Arc<Self>, db: &Db) -> Result<Vec<String>> {
        if !self.index.exists()? {
            return Ok(Vec::new());
        }
        let erase = || self.index.erase().map_err(Trouble::of_index);
        match self.follow_all_records(db).and_then(|remains| Ok([remains, erase()?].concat())) {
            Err(Trouble::Index(_)) => self.index.clear().map(|()| Vec::new()),
            outcome => outcome.map_err(Trouble::into_error),
        }
    }

    fn follow_all_records(self: &Arc<Self>, db: &Db) -> Result<Vec<String>, Trouble> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut lack = self.lack(db).map_err(|error| self.judged(error))?;
            if lack.last_record <= lack.standing.records {
                return Ok(Vec::new());
            }
            if self.step(db, &mut lack)? == Changed::Yes {
                continue;
            }
            if Instant::now() >= until {
                let words = "the search index: another program is changing it; redact --finish once it has ended";
                return Ok(vec![words.to_owned()]);
            }
            thread::sleep(STEP);
        }
    }

    /// Does one batch of what is lacking, and takes it from there.
    fn step(self: &Arc<Self>, db: &Db, lack: &mut Lack) -> Result<Changed, Trouble> {
        let (this, work) = (Arc::clone(self), lack.clone());
        let read = block_on(db.read(move |tx| this.batch(tx, &work)));
        let (batch, left) = read.map_err(Trouble::Other)?;
        let changed = self.index.change(lack.standing.generation, &batch).map_err(Trouble::of_index)?;
        if changed == Changed::Yes {
            let since = self.since(lack.standing.generation);
            // A purge leaves no thread behind that has changed.
            let was_purged = lack.records.iter().any(|record| matches!(record, Record::Purge(_)));
            *lack = left;
            lack.standing.generation += 1;
            self.note(lack.standing.generation, since.filter(|_| !was_purged));
        }
        Ok(changed)
    }

    /// Whose damage it is that was met while both were read.
    fn judged(&self, error: Error) -> Trouble {
        match &error {
            Error::Corrupt { .. } if matches!(self.index.check(), Err(Error::Corrupt { .. })) => Trouble::Index(error),
            _ => Trouble::Other(error),
        }
    }

    /// What the index lacks, as the store is now.
    pub(crate) fn lack(self: &Arc<Self>, db: &Db) -> Result<Lack> {
        let this = Arc::clone(self);
        block_on(db.read(move |tx| this.look(tx)))
    }

    /// Why branches can't be read to their ends.
    pub(crate) fn damage(&self) -> Vec<String> {
        self.known().damaged.values().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since(&self, generation: i64) -> Option<i64> {
        let known = self.known();
        known.since.filter(|_| known.generation == generation)
    }

    fn note(&self, generation: i64, since: Option<i64>) {
        let mut known = self.known();
        (known.generation, known.since) = (generation, since);
    }

    fn look(&self, tx: &mut dyn Tx) -> Result<Lack> {
        let standing = self.index.standing()?;
        let Moment { updated: place, records: last_record } = Moment::now(tx)?;
        let records = match last_record > standing.records {
            true => records::page(tx, standing.records, RECORDS)?,
            false => Vec::new(),
        };
        let since = self.since(standing.generation).filter(|_| records.is_empty());
        let mut behind = self.index.behind(tx, since, BRANCHES)?;
        {
            let known = self.known();
            behind.retain(|it| !known.damaged.contains_key(&it.branch));
        }
        let (titles, forgotten_titles) = self.titles(tx, since)?;
        let missing = self.index.missing(BATCH)?;
        // What somebody else indexes meanwhile is not behind any more, and has a number that was not there at first.
        let standing = Standing { top: self.index.standing()?.top, ..standing };
        Ok(Lack { behind, missing, titles, forgotten_titles, records, last_record, place, standing })
    }

    /// The titles that the index has not as they are, and those that it has and the store has not.
    fn titles(&self, tx: &mut dyn Tx, since: Option<i64>) -> Result<(Vec<Title>, Vec<String>)> {
        let current = match since {
            Some(since) => query_all(tx, TITLES_SINCE, &[since.into()], read_title)?,
            None => query_all(tx, TITLES, &[], read_title)?,
        };
        let mut indexed: BTreeMap<String, i64> = BTreeMap::new();
        match since {
            // Few have changed, but each search asks: it must not depend on how many threads there are.
            Some(_) => {
                for title in &current {
                    let stamp = self.index.title_stamp(&title.thread)?;
                    indexed.extend(stamp.map(|stamp| (title.thread.clone(), stamp)));
                }
            }
            None => indexed.extend(self.index.titles()?),
        }
        let (mut changed, mut forgotten) = (Vec::new(), Vec::new());
        for title in current {
            let stamp = indexed.remove(&title.thread);
            if title.title.as_deref().map(document::stamp) == stamp {
                continue;
            }
            // It may wait to be added again as it was.
            forgotten.push(title.thread.clone());
            changed.extend(title.title.is_some().then_some(title));
        }
        if since.is_none() {
            forgotten.extend(indexed.into_keys());
        }
        changed.truncate(BATCH);
        Ok((changed, forgotten))
    }

    /// A batch of what is lacking, and what is lacking after it.
    fn batch(&self, tx: &mut dyn Tx, lack: &Lack) -> Result<(Batch, Lack)> {
        let (mut batch, mut room) = (Batch::default(), Room::default());
        self.follow_records(tx, lack, &mut batch)?;
        batch.added.extend(lack.titles.iter().filter_map(|title| title_document(title, None)));
        batch.forgotten_titles.extend(lack.forgotten_titles.iter().cloned());
        let mut left =
            Lack { standing: lack.standing, place: lack.place, last_record: lack.last_record, ..Lack::default() };
        left.standing.records = batch.records.unwrap_or(left.standing.records);
        // What is new is looked for more often than what was there before.
        for behind in &lack.behind {
            match room.is_full() {
                true => left.behind.push(*behind),
                false => left.behind.extend(self.go_on(tx, *behind, &mut batch, &mut room)?),
            }
        }
        for (number, subject) in &lack.missing {
            match room.is_full() {
                true => left.missing.push((*number, subject.clone())),
                false => self.add_again(tx, *number, subject, &mut batch, &mut room)?,
            }
        }
        Ok((batch, left))
    }

    /// Takes out what was taken away on purpose, and reads what stands there now.
    fn follow_records(&self, tx: &mut dyn Tx, lack: &Lack, batch: &mut Batch) -> Result<()> {
        for record in &lack.records {
            batch.records = Some(record.number());
            let Record::Redaction(redaction) = record else { continue };
            let Some(item) = redaction.item else {
                let thread = redaction.thread.as_str();
                if batch.forgotten_titles.iter().any(|known| known == thread) {
                    continue;
                }
                batch.forgotten_titles.push(thread.to_owned());
                let title = query_one(tx, TITLE_OF, &[thread.into()], read_title)?;
                let is_known = lack.titles.iter().any(|title| title.thread == thread);
                batch.added.extend(title.filter(|_| !is_known).and_then(|title| title_document(&title, None)));
                continue;
            };
            // What the index has not come to is read when it does.
            if let Some(ItemKey(key)) = path::key_by_id(tx, item.id)?
                && !batch.forgotten.contains(&(key, key))
                && self.index.holds(key)?
            {
                batch.forgotten.push((key, key));
                match self.read_run(tx, (key, key), &mut Room::default(), &mut batch.added) {
                    Ok(_) | Err(Error::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if lack.records.is_empty() && lack.last_record > lack.standing.records {
            batch.records = Some(lack.last_record);
        }
        Ok(())
    }

    /// Reads a branch on from where the index is; gives what is left of it.
    fn go_on(&self, tx: &mut dyn Tx, behind: Behind, batch: &mut Batch, room: &mut Room) -> Result<Option<Behind>> {
        let whole = (ItemKey::new(behind.branch, 0).0, ItemKey::new(behind.branch, u32::MAX).0);
        let Some(tip) = behind.tip else {
            batch.forgotten.push(whole);
            batch.ended.push(behind.branch);
            return Ok(None);
        };
        let base = query_one(tx, BRANCH, &[behind.branch.into()], |row| path::depth(row, 0))?;
        let Some(base) = base else { return Ok(None) };
        let mut from = ItemKey::new(behind.branch, base).0;
        if let Some(is) = behind.is {
            let reached = ItemKey::new(behind.branch, is.depth).0;
            match path::link_at(tx, ItemKey(reached))? {
                Some((hash, _)) if hash.0 == is.hash && reached <= tip => from = reached + 1,
                // The index was made of another store, or of one that has lost commits since.
                _ => {
                    let is_of_branch =
                        |it: &Document| matches!(it.subject, Subject::Item(key) if (whole.0..=whole.1).contains(&key));
                    batch.added.retain(|document| !is_of_branch(document));
                    batch.forgotten.push(whole);
                }
            }
        }
        match self.read_run(tx, (from, tip), room, &mut batch.added) {
            Ok(Some((key, hash))) => {
                let is = Progress { branch: behind.branch, depth: ItemKey(key).depth(), hash };
                batch.reached.push(is);
                Ok((key < tip).then_some(Behind { is: Some(is), ..behind }))
            }
            Ok(None) => Ok(None),
            Err(error @ Error::Corrupt { .. }) => {
                let words = format!("what is behind damage can't be searched: {error}");
                self.known().damaged.insert(behind.branch, words);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn add_again(
        &self,
        tx: &mut dyn Tx,
        number: i64,
        subject: &Subject,
        batch: &mut Batch,
        room: &mut Room,
    ) -> Result<()> {
        let is_forgotten = |key: i64| batch.forgotten.iter().any(|(from, to)| (*from..=*to).contains(&key));
        match subject {
            Subject::Item(key) if is_forgotten(*key) => {}
            Subject::Item(key) => {
                let before = batch.added.len();
                match self.read_run(tx, (*key, *key), room, &mut batch.added) {
                    Ok(_) if batch.added.len() > before => {
                        batch.added.iter_mut().skip(before).for_each(|document| document.number = Some(number));
                    }
                    // It is gone, or can't be read.
                    Ok(_) | Err(Error::Corrupt { .. }) => batch.forgotten.push((*key, *key)),
                    Err(error) => return Err(error),
                }
            }
            Subject::Title(thread) if batch.forgotten_titles.contains(thread) => {}
            Subject::Title(thread) => {
                let title = query_one(tx, TITLE_OF, &[thread.as_str().into()], read_title)?;
                match title.and_then(|title| title_document(&title, Some(number))) {
                    Some(document) => batch.added.push(document),
                    None => batch.forgotten_titles.push(thread.clone()),
                }
            }
        }
        Ok(())
    }

    /// Reads items of one branch as long as there is room; gives the key and the hash of the last one.
    fn read_run(
        &self,
        tx: &mut dyn Tx,
        (from, to): (i64, i64),
        room: &mut Room,
        added: &mut Vec<Document>,
    ) -> Result<Option<(i64, [u8; 32])>> {
        let branch = ItemKey(from).branch();
        let workspace = query_one(tx, BRANCH, &[branch.into()], |row| workspace_of(row, 1))?.flatten();
        let (mut tools, mut next, mut last) = (Tools::default(), from, None);
        let mut has_looked_back = false;
        while next <= to && !room.is_full() {
            let items = sources(tx, next, to, room.rows())?;
            let Some((source, _)) = items.last() else { break };
            next = source.key + 1;
            for (source, hash) in items {
                let view = self.readers.read(&source);
                tools.see(&view);
                if !has_looked_back && tools.lacks(&view) {
                    has_looked_back = true;
                    self.look_back(tx, from, &mut tools)?;
                }
                room.take(source.content.len());
                added.push(Document {
                    number: None,
                    subject: Subject::Item(source.key),
                    terms: document::terms(&source, &view, workspace, &tools),
                    stamp: 0,
                });
                last = Some((source.key, hash));
            }
        }
        Ok(last)
    }

    /// Sees the calls that stand before an item on its branch.
    fn look_back(&self, tx: &mut dyn Tx, key: i64, tools: &mut Tools) -> Result<()> {
        let from = (key - CALL_WITHIN).max(ItemKey::new(ItemKey(key).branch(), 0).0);
        if from >= key {
            return Ok(());
        }
        for (source, _) in sources(tx, from, key - 1, CALL_WITHIN)? {
            tools.see(&self.readers.read(&source));
        }
        Ok(())
    }
}

/// The items of a range in their order, each with its hash. Content that can't be read is left out; a row that says no item is damage.
pub(crate) fn sources(tx: &mut dyn Tx, from: i64, to: i64, most: i64) -> Result<Vec<(Source, [u8; 32])>> {
    let (mut found, mut spliced, mut bytes) = (Vec::new(), Vec::new(), 0);
    let args = [from.into(), to.into(), most.into(), document::MAX_READ.into()];
    let scanned = tx.query(SOURCES, &args, &mut |row| {
        let content = match read::row_content(row, 5, &mut |digest| Err(Error::not_found("blob", digest))) {
            Ok(content) => content,
            Err(Error::NotFound { .. }) => {
                spliced.push(found.len());
                Vec::new()
            }
            Err(Error::Corrupt { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        bytes += content.len();
        let hash = row.parse(8, row.blob(8)?.try_into().ok(), "a hash")?;
        found.push((
            Source {
                key: row.int(0)?,
                kind: Kind::from_word(row.text(1)?),
                role: row.opt_text(2)?.map(Role::from_word),
                format: row.text(3)?.to_owned(),
                created_at: Timestamp(row.int(4)?),
                content,
            },
            hash,
        ));
        Ok(if bytes < BATCH_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    match scanned {
        // What stands before the damage is whole; whoever goes on behind it is told.
        Err(Error::Corrupt { .. }) if !found.is_empty() => {}
        scanned => scanned?,
    }
    for index in spliced {
        let Some((source, _)) = found.get_mut(index) else { continue };
        match read::load_spliced(tx, ItemKey(source.key)) {
            Ok(content) => source.content = content,
            Err(Error::Corrupt { .. } | Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// What fits into one batch.
#[derive(Debug, Default)]
struct Room {
    documents: usize,
    bytes: usize,
}

impl Room {
    fn is_full(&self) -> bool {
        self.documents >= BATCH || self.bytes >= BATCH_BYTES
    }

    fn take(&mut self, bytes: usize) {
        self.documents += 1;
        self.bytes += bytes;
    }

    /// How many rows are asked for: few while they turn out to be large.
    fn rows(&self) -> i64 {
        let average = self.bytes / self.documents.max(1);
        let fitting = (BATCH_BYTES - self.bytes.min(BATCH_BYTES)) / average.max(1);
        let open = BATCH - self.documents.min(BATCH);
        let first = if self.documents == 0 { 16 } else { ROWS };
        i64::try_from(fitting.min(open)).unwrap_or(first).clamp(1, first)
    }
}

fn title_document(title: &Title, number: Option<i64>) -> Option<Document> {
    let words = title.title.as_deref()?;
    Some(Document {
        number,
        subject: Subject::Title(title.thread.clone()),
        terms: document::title_terms(words, title.workspace),
        stamp: document::stamp(words),
    })
}

fn read_title(row: &Row<'_>) -> Result<Title> {
    Ok(Title {
        thread: row.text(0)?.to_owned(),
        title: row.opt_text(1)?.map(str::to_owned),
        workspace: workspace_of(row, 2)?,
    })
}

fn workspace_of(row: &Row<'_>, column: usize) -> Result<Option<WorkspaceId>> {
    Ok(row.opt_blob(column)?.and_then(WorkspaceId::from_slice))
}
