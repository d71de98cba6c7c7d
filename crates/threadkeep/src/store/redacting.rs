//! Redacting: taking content away from the items of threads, by address or by rules, and from everything that holds it besides.

mod documents;
mod state;
mod steering;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::{Inner, Threads, on_a_thread};
use crate::concurrency::block_on;
use crate::copy::CopyProblem;
use crate::db::{Sync, Tx, replace};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId};
use crate::log::head;
use crate::log::redact::{self, Beside, Change, Grounds, Instead, Kept};
use crate::rollout;
use crate::seal::check_grounds;
use crate::secrets::{Found, Masked, Rules};
use crate::thread::{ListQuery, Shelves, SortKey};
use crate::threads::Scope;

/// How many places a report names; the others are counted.
const MOST_PLACES: usize = 1_000;
/// How many items are redacted in one transaction.
const CHUNK: usize = 100;

/// Why content is taken away, and how far.
#[derive(Debug, Clone, Default)]
pub struct RedactOptions {
    /// Why; it stays readable for ever.
    pub reason: String,
    /// Who; the label of the store's handle when `None`.
    pub by: Option<String>,
    /// Also the items that cite a redacted one.
    pub with_derived: bool,
    /// Also the items that hold a payload of the same bytes.
    pub with_same_payload: bool,
    /// Leaves the traces in the files (see [`Threads::erase`]) for later: when more is redacted right after.
    pub erase_later: bool,
}

/// What a redaction did, or with a dry run would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RedactReport {
    /// Items that were looked at.
    pub looked_at: u64,
    /// Items whose content was taken away or masked.
    pub redacted: u64,
    /// The first thousand of them.
    pub places: Vec<RedactedPlace>,
    /// Matches by rule.
    pub rules: BTreeMap<String, u64>,
    /// Items that cite a redacted one and were left.
    pub derived: Vec<RedactedPlace>,
    /// Items that hold a payload of the same bytes and were left.
    pub same_payload: Vec<RedactedPlace>,
    /// What else of a thread was changed, by the names of its fields.
    pub beside: BTreeMap<ThreadId, BTreeSet<String>>,
    /// Parts of imported files, kept beside the items, that were masked.
    pub file_parts: u64,
    /// Jobs that work for no thread, and whose texts were masked. No record names them: records are of threads.
    pub jobs: u64,
    /// Roadmaps whose texts were masked. No record names them either.
    pub roadmaps: u64,
    /// Workflow runs that work for no thread, and whose texts were masked.
    pub runs: u64,
    /// Requests that are about no thread, and whose texts were masked.
    pub requests: u64,
    /// Rollouts that were written anew.
    pub rollouts: u64,
    /// What is known to hold the bytes still, and how they go away.
    pub remains: Vec<String>,
    /// Whether the files of the store were rid of the bytes; `None` when that was left for later or there was nothing to do.
    pub erased: Option<bool>,
    /// What could not be looked at.
    pub problems: Vec<CopyProblem>,
}

impl RedactReport {
    /// Adds what another redaction did, which came after this one.
    pub fn add(&mut self, other: Self) {
        self.looked_at += other.looked_at;
        self.redacted += other.redacted;
        self.places.extend(other.places);
        for (rule, count) in other.rules {
            *self.rules.entry(rule).or_default() += count;
        }
        self.derived.extend(other.derived);
        self.same_payload.extend(other.same_payload);
        for (thread, fields) in other.beside {
            self.beside.entry(thread).or_default().extend(fields);
        }
        self.file_parts += other.file_parts;
        self.jobs += other.jobs;
        self.roadmaps += other.roadmaps;
        self.runs += other.runs;
        self.requests += other.requests;
        self.rollouts += other.rollouts;
        self.remains.extend(other.remains);
        self.erased = other.erased.or(self.erased);
        self.problems.extend(other.problems);
    }
}

/// An item that content was taken from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RedactedPlace {
    /// The thread that wrote it.
    pub thread: ThreadId,
    /// Its branch.
    pub branch: BranchId,
    /// Its depth.
    pub depth: u32,
    /// Its id.
    pub item: ItemId,
    /// The rules that found something.
    pub rules: Vec<String>,
    /// Whether the rest of the content stays.
    pub masked: bool,
}

impl Threads {
    /// Takes the content out of items, whoever shares them, and their words out of titles and previews. The digests stay, so
    /// the chain holds; who did it, when and why goes on record.
    ///
    /// Then the files of the store are rid of the bytes ([`Threads::erase`]), and the thread's rollouts in the store's folder are
    /// written anew. Backups, copies and rollouts in other places keep what they have, and so does the file that a thread was
    /// imported from.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the thread does not reach an item; [`Error::Invalid`] without a reason.
    pub async fn redact(&self, thread: &ThreadId, items: Vec<Address>, options: RedactOptions) -> Result<RedactReport> {
        let grounds = self.inner.grounds(&options)?;
        let keys = self.read(thread, move |tx, id| {
            items.iter().map(|address| head::resolve(tx, id, *address)).collect::<Result<BTreeSet<_>>>()
        });
        let mut run = Redaction::new(self, grounds, true);
        let keys = run.with_kin(keys.await?, &options).await?;
        run.remove(keys).await?;
        run.conclude(&options).await
    }

    /// Masks what rules find in these threads, or in all that this handle sees: in items, and in titles, labels, goals, jobs, messages,
    /// requests, the states of checkpoints, documents with their history and their names, tools, workflow runs and what is kept of
    /// imported files; with all threads also in roadmaps. The names of checkpoints, queues, roadmaps, tools, workflows and their parts
    /// are not looked at. Content that can't be masked in part is taken away whole. Without `apply` it only says what there is.
    ///
    /// Everything is looked at once; what is written meanwhile may be missed. Otherwise as [`Threads::redact`].
    ///
    /// # Errors
    /// As [`Threads::redact`]. An item that can't be read is left, and named in the report.
    pub async fn redact_matching(
        &self,
        threads: Option<Vec<ThreadId>>,
        rules: Rules,
        options: RedactOptions,
        apply: bool,
        mut progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<RedactReport> {
        let grounds = match apply {
            true => self.inner.grounds(&options)?,
            false => Grounds { by: String::new(), reason: String::new(), rule: None, at: self.inner.host.now() },
        };
        let handle = self.clone();
        let run = async move {
            let is_everything = threads.is_none();
            let mut run = Redaction::new(&handle, grounds, apply);
            let threads = match threads {
                Some(threads) => {
                    run.mask_threads(&threads, &rules, &mut progress).await?;
                    threads
                }
                None => handle.every_thread().await?,
            };
            let total = threads.len() as u64;
            if is_everything {
                for (done, thread) in threads.iter().enumerate() {
                    progress(done as u64, total);
                    let id = thread.clone();
                    let own = run.inner().db.read(move |tx| redact::ranges(tx, &id, false)).await?;
                    run.mask_thread(thread, &own, &rules).await?;
                }
                run.mask_jobs(None, &rules).await?;
                run.mask_roadmaps(&rules).await?;
                run.mask_runs(None, &rules).await?;
                run.mask_requests(None, &rules).await?;
            }
            progress(total, total);
            run.conclude(&options).await
        };
        on_a_thread("threadkeep-redact", move || block_on(run)).await
    }

    /// Rids the files of the store of every byte that is no longer part of what is stored. Redactions do it by themselves; it is
    /// for those that left it for later, or whose end somebody kept from happening by reading on.
    ///
    /// Takes the time and the room of writing the store anew, while writers wait. What is left, and why, is in the answer:
    /// nothing when no file holds any.
    ///
    /// # Errors
    /// As every write; [`Error::StorageFull`] when there is no room for a second copy.
    pub async fn erase(&self) -> Result<Vec<String>> {
        self.inner.erase().await.map(|(remains, _)| remains)
    }

    /// Every thread that this handle sees, those in the trash and (for the whole store) what is left of purged ones included.
    async fn every_thread(&self) -> Result<Vec<ThreadId>> {
        let mut threads = Vec::new();
        for shelves in [Shelves::Both, Shelves::Trash] {
            let mut query =
                ListQuery { sort: SortKey::Created, ascending: true, shelves, limit: 500, ..ListQuery::default() };
            loop {
                let page = self.list(query.clone()).await?;
                threads.extend(page.entries.into_iter().map(|thread| thread.id));
                match page.next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
        }
        if let Scope::All = self.scope {
            let mut after = String::new();
            while let Some((last, page)) = self.page_of_stubs(&after).await? {
                after = last;
                threads.extend(page);
            }
        }
        Ok(threads)
    }
}

impl Inner {
    fn grounds(&self, options: &RedactOptions) -> Result<Grounds> {
        if self.read_only {
            return Err(Error::ReadOnly { detail: "it was opened for reading only".to_owned() });
        }
        let by = options.by.clone().unwrap_or_else(|| self.holder.label.clone());
        check_grounds(&by, &options.reason, None)?;
        Ok(Grounds { by, reason: options.reason.clone(), rule: None, at: self.host.now() })
    }

    /// Rids the files of what is no longer stored; says what is left, and whether that is all that can be done.
    pub(super) async fn erase(&self) -> Result<(Vec<String>, bool)> {
        // First: the index is brought to where the redacted store is, and must not be read from what is still there of the other.
        let (indexer, db) = (Arc::clone(&self.indexer), self.db.clone());
        let mut remains = on_a_thread("threadkeep-search", move || indexer.erase(&db)).await?;
        let erased = self.db.erase().await?;
        let is_over = erased.is_over && remains.is_empty();
        if is_over {
            self.db.write(Sync::Synced.free().repeatable(), redact::forget_erasure).await?;
        }
        remains.extend(erased.remains);
        Ok((remains, is_over))
    }

    /// Rids the files of what redactions took away, if that is not done yet. What can't be done now is said when the store is opened.
    pub(crate) async fn erase_what_waits(&self) -> Result<()> {
        match self.db.read(redact::waits_for_erasure).await? {
            true => self.erase().await.map(drop),
            false => Ok(()),
        }
    }

    /// What there is to say when a redaction did not come to its end.
    pub(super) async fn unerased(&self) -> Result<Option<String>> {
        let waits = self.db.read(redact::waits_for_erasure).await?;
        let words = "a redaction is not finished: traces of what it took away may be in the store's files; `redact --finish` \
                     removes them";
        Ok(waits.then(|| words.to_owned()))
    }
}

/// A redaction on its way.
struct Redaction<'a> {
    threads: &'a Threads,
    grounds: Grounds,
    /// Whether anything is changed.
    apply: bool,
    report: RedactReport,
    /// Threads whose rollouts say what is no longer stored.
    touched: BTreeSet<ThreadId>,
    /// How far branches were looked at: several threads share them.
    looked_at: BTreeMap<i64, ItemKey>,
}

impl<'a> Redaction<'a> {
    fn new(threads: &'a Threads, grounds: Grounds, apply: bool) -> Self {
        Self {
            threads,
            grounds,
            apply,
            report: RedactReport::default(),
            touched: BTreeSet::new(),
            looked_at: BTreeMap::new(),
        }
    }

    fn inner(&self) -> &'a Inner {
        &self.threads.inner
    }

    /// The items, with those that are to go with them; names the others.
    async fn with_kin(&mut self, mut keys: BTreeSet<ItemKey>, options: &RedactOptions) -> Result<BTreeSet<ItemKey>> {
        let (mut derived, mut same_payload) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting: Vec<ItemKey> = keys.iter().copied().collect();
        while let Some(key) = waiting.pop() {
            let kin = self.inner().db.read(move |tx| {
                let (_, id, _) = redact::place_of(tx, key)?;
                redact::kin(tx, key, id)
            });
            let kin = kin.await?;
            let wanted = kin.derived.iter().filter(|_| options.with_derived);
            let wanted = wanted.chain(kin.same_payload.iter().filter(|_| options.with_same_payload));
            waiting.extend(wanted.filter(|key| keys.insert(**key)));
            derived.extend(kin.derived);
            same_payload.extend(kin.same_payload);
        }
        self.report.derived = self.places(derived.difference(&keys).copied().collect()).await?;
        self.report.same_payload = self.places(same_payload.difference(&keys).copied().collect()).await?;
        Ok(keys)
    }

    async fn places(&self, keys: Vec<ItemKey>) -> Result<Vec<RedactedPlace>> {
        let read = move |tx: &mut dyn Tx| keys.iter().map(|key| place(tx, *key, Vec::new(), false)).collect();
        self.inner().db.read(read).await
    }

    /// Takes the whole content out of items, and the names that were made of it out of threads.
    async fn remove(&mut self, keys: BTreeSet<ItemKey>) -> Result<()> {
        let keys: Vec<ItemKey> = keys.into_iter().collect();
        self.report.looked_at += keys.len() as u64;
        for part in keys.chunks(CHUNK) {
            let (part, store, grounds) = (part.to_vec(), self.inner().id, self.grounds.clone());
            let remove = move |tx: &mut dyn Tx| remove_items(tx, store, &part, &grounds);
            let removed = self.inner().db.write(Sync::Synced.free().repeatable(), remove).await?;
            self.count(removed.places);
            for (thread, fields) in removed.beside {
                self.touched.insert(thread.clone());
                self.report.beside.entry(thread).or_default().extend(fields.into_iter().map(str::to_owned));
            }
            for thread in removed.kin {
                self.take_files(&thread).await?;
            }
        }
        Ok(())
    }

    /// Takes away what is kept of files that a thread's items follow from as a whole: nothing says which part of them holds what was
    /// taken away.
    async fn take_files(&mut self, thread: &ThreadId) -> Result<()> {
        let id = thread.clone();
        let files = self.inner().db.read(move |tx| redact::made_files(tx, &id)).await?;
        let marker = Rules::whole_marker().as_bytes();
        let (mut after, mut taken) = ((i64::MIN, i64::MIN), 0);
        while !files.is_empty() {
            let id = thread.clone();
            let page = self.inner().db.read(move |tx| redact::kept_bytes(tx, &id, after)).await?;
            let Some(last) = page.last() else { break };
            after = last.place;
            let holds = |kept: &Kept| files.contains_key(&kept.place.0) && kept.bytes != marker;
            let held = page.into_iter().filter(holds);
            let changed: Vec<Kept> = held.map(|Kept { place, .. }| Kept { place, bytes: marker.to_vec() }).collect();
            if changed.is_empty() {
                continue;
            }
            taken += changed.len() as u64;
            let (id, store, grounds) = (thread.clone(), self.inner().id, self.grounds.clone());
            let put = move |tx: &mut dyn Tx| redact::put_kept_bytes(tx, store, &id, &changed, &grounds);
            self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await?;
        }
        if taken > 0 {
            self.touched.insert(thread.clone());
            self.report.file_parts += taken;
            self.report.beside.entry(thread.clone()).or_default().insert("file".to_owned());
            let words = |path: &String| format!("{path}: an import takes in what it still holds once it has changed");
            self.report.remains.extend(files.values().map(words));
        }
        Ok(())
    }

    fn count(&mut self, places: Vec<RedactedPlace>) {
        self.report.redacted += places.len() as u64;
        self.touched.extend(places.iter().map(|place| place.thread.clone()));
        let room = MOST_PLACES.saturating_sub(self.report.places.len());
        self.report.places.extend(places.into_iter().take(room));
    }

    /// Masks what rules find in threads, and in the names of others that show items of theirs.
    async fn mask_threads(
        &mut self,
        threads: &[ThreadId],
        rules: &Rules,
        progress: &mut (impl FnMut(u64, u64) + Send),
    ) -> Result<()> {
        let mut others = BTreeSet::new();
        for (done, thread) in threads.iter().enumerate() {
            progress(done as u64, threads.len() as u64);
            let id = thread.clone();
            let ranges = self.inner().db.read(move |tx| redact::ranges(tx, &id, true)).await?;
            self.mask_thread(thread, &ranges, rules).await?;
            others.extend(self.inner().db.read(move |tx| redact::reaching(tx, &ranges)).await?);
        }
        for other in others.iter().filter(|other| !threads.contains(other)) {
            self.mask_beside(other, rules).await?;
        }
        Ok(())
    }

    /// Masks what rules find in a thread, and in these items.
    async fn mask_thread(&mut self, thread: &ThreadId, ranges: &[(ItemKey, ItemKey)], rules: &Rules) -> Result<()> {
        for &(first, last) in ranges {
            if self.looked_at.get(&first.branch()).is_some_and(|upto| *upto >= last) {
                continue;
            }
            self.looked_at.insert(first.branch(), last);
            let mut next = first;
            while next <= last {
                let page = self.inner().db.read(move |tx| redact::look_at(tx, next, last)).await?;
                let Some(end) = page.last().map(|seen| seen.key) else { break };
                next = ItemKey(end.0 + 1);
                self.mask_items(thread, page, rules).await?;
            }
        }
        self.mask_beside(thread, rules).await?;
        self.mask_kept(thread, rules).await?;
        self.mask_checkpoints(thread, rules).await?;
        self.mask_documents(thread, rules).await?;
        self.mask_jobs(Some(thread), rules).await?;
        self.mask_tools(thread, rules).await?;
        self.mask_runs(Some(thread), rules).await?;
        self.mask_messages(thread, rules).await?;
        self.mask_requests(Some(thread), rules).await
    }

    async fn mask_items(&mut self, thread: &ThreadId, page: Vec<redact::Seen>, rules: &Rules) -> Result<()> {
        let mut changes = Vec::new();
        for seen in page {
            self.report.looked_at += 1;
            let content = match &seen.content {
                Ok(content) => content,
                Err(error) => {
                    let problem = CopyProblem { thread: thread.clone(), kind: error.kind(), reason: error.to_string() };
                    self.report.problems.push(problem);
                    continue;
                }
            };
            let (content, found) = match seen.mask(content, rules) {
                Masked::NothingFound => continue,
                Masked::Masked { bytes, found } => (Some(bytes), found),
                Masked::CannotMask => (None, rules.find(content)),
            };
            let names = self.note_rules(&found);
            let mut salt = [0; 16];
            self.inner().host.fill_random(&mut salt);
            let instead = content.map(|content| Instead { content, salt, seen: seen.salt });
            changes.push((seen.key, instead, names));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let (store, grounds, apply) = (self.inner().id, self.grounds.clone(), self.apply);
        let bytes = changes.iter().filter_map(|(_, instead, _)| instead.as_ref()).map(|it| it.content.len()).sum();
        let changes = Arc::new(changes);
        let run = move |tx: &mut dyn Tx| {
            let mut places = Vec::new();
            for (key, instead, names) in changes.iter() {
                let grounds = Grounds { rule: Some(rule_words(names)), ..grounds.clone() };
                if !apply || redact::item(tx, store, *key, instead.as_ref(), &grounds)? {
                    places.push(place(tx, *key, names.clone(), instead.is_some())?);
                }
            }
            Ok(places)
        };
        let places = match self.apply {
            true => {
                let room = self.inner().db.place(bytes).await;
                self.inner().db.write_in(room, Sync::Synced.free().repeatable(), run).await?
            }
            false => self.inner().db.read(run).await?,
        };
        self.count(places);
        Ok(())
    }

    fn note_rules(&mut self, found: &[Found]) -> Vec<String> {
        let mut names = BTreeSet::new();
        for found in found {
            *self.report.rules.entry(found.rule.to_string()).or_default() += 1;
            names.insert(found.rule.to_string());
        }
        names.into_iter().collect()
    }

    async fn mask_beside(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        // What somebody changes meanwhile is looked at again.
        for _ in 0..8 {
            let id = thread.clone();
            let before = self.inner().db.read(move |tx| redact::beside(tx, &id)).await?;
            let (mut after, mut found) = (before.clone(), Vec::new());
            let fields = after.change(&mut |_, bytes| match rules.mask(bytes) {
                Masked::NothingFound => Change::Keep,
                Masked::Masked { bytes, found: more } => {
                    found.extend(more);
                    Change::Put(bytes)
                }
                Masked::CannotMask => {
                    found.extend(rules.find(bytes));
                    Change::Remove
                }
            });
            if fields.is_empty() {
                return Ok(());
            }
            if self.apply && !self.put_beside(thread, before, after, &found).await? {
                continue;
            }
            self.note_rules(&found);
            self.touched.insert(thread.clone());
            let fields = fields.into_iter().map(str::to_owned);
            self.report.beside.entry(thread.clone()).or_default().extend(fields);
            return Ok(());
        }
        Err(Error::Busy { detail: format!("the metadata of {thread} is changed all the time") })
    }

    async fn put_beside(&self, thread: &ThreadId, before: Beside, after: Beside, found: &[Found]) -> Result<bool> {
        let (id, store) = (thread.clone(), self.inner().id);
        let grounds = Grounds { rule: Some(rule_words(&names_of(found))), ..self.grounds.clone() };
        let put = move |tx: &mut dyn Tx| redact::put_beside(tx, store, &id, (&before, &after), &grounds);
        self.inner().db.write(Sync::Synced.within(thread.as_str()).repeatable(), put).await
    }

    async fn mask_kept(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        let mut after = (i64::MIN, i64::MIN);
        loop {
            let id = thread.clone();
            let page = self.inner().db.read(move |tx| redact::kept_bytes(tx, &id, after)).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.place;
            let (mut changed, mut all) = (Vec::new(), Vec::new());
            for Kept { place, bytes } in page {
                let (bytes, found) = match rules.mask(&bytes) {
                    Masked::NothingFound => continue,
                    Masked::Masked { bytes, found } => (bytes, found),
                    Masked::CannotMask => (Rules::whole_marker().as_bytes().to_vec(), rules.find(&bytes)),
                };
                all.extend(found);
                changed.push(Kept { place, bytes });
            }
            if changed.is_empty() {
                continue;
            }
            self.note_rules(&all);
            self.report.file_parts += changed.len() as u64;
            self.report.beside.entry(thread.clone()).or_default().insert("file".to_owned());
            if !self.apply {
                continue;
            }
            let (id, store) = (thread.clone(), self.inner().id);
            let grounds = Grounds { rule: Some(rule_words(&names_of(&all))), ..self.grounds.clone() };
            let put = move |tx: &mut dyn Tx| redact::put_kept_bytes(tx, store, &id, &changed, &grounds);
            self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await?;
        }
    }

    /// Rids the files of the bytes, and writes rollouts anew.
    async fn conclude(mut self, options: &RedactOptions) -> Result<RedactReport> {
        if !self.apply || !self.inner().db.read(redact::waits_for_erasure).await? {
            return Ok(self.report);
        }
        let touched: Vec<ThreadId> = self.touched.iter().cloned().collect();
        match rollout::renew(self.threads, touched).await {
            Ok(rewritten) => {
                self.report.rollouts = rewritten.files.len() as u64;
                let aside = rewritten.set_aside.into_iter();
                let words =
                    aside.map(|file| format!("{}: it was set aside; remove it when it is not needed", file.display()));
                self.report.remains.extend(words);
            }
            Err(error) => self.report.remains.push(format!("rollouts of these threads: {error}")),
        }
        if !options.erase_later {
            let (remains, is_over) = self.inner().erase().await?;
            self.report.remains.extend(remains);
            self.report.erased = Some(is_over);
        }
        for copy in older_copies(self.inner()) {
            let words = format!("{}: a copy from before; remove it when it is not needed", copy.display());
            self.report.remains.push(words);
        }
        Ok(self.report)
    }
}

/// Copies of the store in its own folder, which nobody but its user removes: backups, and what a repair or a restored backup
/// replaced.
fn older_copies(inner: &Inner) -> Vec<PathBuf> {
    let Some(folder) = &inner.folder else { return Vec::new() };
    let entries_of = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
    let is_kept =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(replace::KEPT));
    let mut found: Vec<PathBuf> = entries_of(folder.join("backups")).collect();
    found.extend(entries_of(folder.clone()).filter(is_kept));
    found.sort_unstable();
    found
}

/// What a transaction took away.
struct Removed {
    places: Vec<RedactedPlace>,
    /// The threads that have what was taken away.
    kin: BTreeSet<ThreadId>,
    beside: BTreeMap<ThreadId, BTreeSet<&'static str>>,
}

fn remove_items(tx: &mut dyn Tx, store: uuid::Uuid, keys: &[ItemKey], grounds: &Grounds) -> Result<Removed> {
    let mut removed = Removed { places: Vec::new(), kin: BTreeSet::new(), beside: BTreeMap::new() };
    for key in keys {
        let (_, id, _) = redact::place_of(tx, *key)?;
        let words = redact::words_of(tx, *key)?;
        for thread in redact::kin(tx, *key, id)?.threads {
            let before = redact::beside(tx, &thread)?;
            let mut after = before.clone();
            let fields = redact::take_names(&mut after, &words);
            if !fields.is_empty() {
                redact::put_beside(tx, store, &thread, (&before, &after), grounds)?;
                removed.beside.entry(thread.clone()).or_default().extend(fields);
            }
            removed.kin.insert(thread);
        }
        if redact::item(tx, store, *key, None, grounds)? {
            removed.places.push(place(tx, *key, Vec::new(), false)?);
        }
    }
    Ok(removed)
}

fn place(tx: &mut dyn Tx, key: ItemKey, rules: Vec<String>, masked: bool) -> Result<RedactedPlace> {
    let (thread, item, Address { branch, depth }) = redact::place_of(tx, key)?;
    Ok(RedactedPlace { thread, branch, depth, item, rules, masked })
}

fn names_of(found: &[Found]) -> Vec<String> {
    let names: BTreeSet<String> = found.iter().map(|found| found.rule.to_string()).collect();
    names.into_iter().collect()
}

/// The rules as a record names them, which has room for a few.
fn rule_words(names: &[String]) -> String {
    let mut words = String::new();
    for name in names {
        if words.len() + name.len() > 250 {
            words.push_str(" …");
            break;
        }
        words.push_str(if words.is_empty() { "" } else { " " });
        words.push_str(name);
    }
    words
}
