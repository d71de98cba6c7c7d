//! Verifying: what is stored against its own chain, against the seals, and against what is known outside of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Inner, Threads};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::item::Hash;
use crate::keys::{self, PublicKey};
use crate::log::verify::{self, Break, Verdict, VerifyReport};
use crate::planted::{self, Defect};
use crate::records;
use crate::rollout::leading;
use crate::seal::{self, Anchors, Seal, SealCheck};
use crate::seals::{self, Stated, Witnesses};
use crate::thread::{ListQuery, Shelves, SortKey};
use crate::threads::Scope;
use crate::time::Timestamp;

/// How many threads, records or gone threads are read at once.
const PAGE: i64 = 500;

/// What a verification is to look at.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Begins where the last verification of this kind ended, and remembers where this one does. What was found in order then is
    /// not looked at again: not the stored rows, only the hash of the last of them.
    pub since_last: bool,
    /// Seals that were kept outside of the store.
    pub anchors: Option<Arc<Anchors>>,
    /// The keys whose seals are believed, and with them those that they vouch for; when there is none, those of the store's own
    /// folder of keys.
    pub trust: Vec<PublicKey>,
}

impl Threads {
    /// Verifies what a thread wrote: every digest, every link, every witness, and what seals state of it. Reads in steps, so that
    /// writers go on.
    ///
    /// # Errors
    /// Only when reading fails; what does not verify is in the verdict.
    pub async fn verify(&self, thread: &ThreadId) -> Result<Verdict> {
        self.verify_with(thread, &VerifyOptions::default()).await
    }

    /// As [`Threads::verify`], with options. What is wrong with the seals themselves is told of the thread.
    ///
    /// # Errors
    /// As [`Threads::verify`]; [`Error::Invalid`] for anchors of another store.
    pub async fn verify_with(&self, thread: &ThreadId, options: &VerifyOptions) -> Result<Verdict> {
        let found = self.inner.look_at_seals(options).await?;
        let witnesses = Arc::new(found.witnesses);
        let mut verdict = self.verify_against(thread, &witnesses, options.since_last).await?;
        verdict.anchored = found.anchored;
        for reason in found.problems {
            verdict.add(Break { branch: None, depth: None, reason });
        }
        Ok(verdict)
    }

    /// Verifies every thread, archived ones, the trash and (for the whole store) what is left of purged ones included, and
    /// tells each verdict as it comes. A thread that is purged meanwhile is left out.
    ///
    /// # Errors
    /// As [`Threads::verify`].
    pub async fn verify_all(&self, each: impl FnMut(&Verdict) + Send) -> Result<VerifyReport> {
        self.verify_all_with(&VerifyOptions::default(), each).await
    }

    /// As [`Threads::verify_all`], with options. For the whole store it also tells the threads that seals state and that are
    /// gone, and the rollouts in the store's folder that hold what the store lacks.
    ///
    /// # Errors
    /// As [`Threads::verify_with`].
    pub async fn verify_all_with(
        &self,
        options: &VerifyOptions,
        mut each: impl FnMut(&Verdict) + Send,
    ) -> Result<VerifyReport> {
        let found = self.inner.look_at_seals(options).await?;
        let witnesses = Arc::new(found.witnesses);
        let mut report = VerifyReport { seals: found.problems, anchored: found.anchored, ..VerifyReport::default() };
        let mut add = |verdict: Result<Verdict>| match verdict {
            Ok(verdict) => {
                each(&verdict);
                report.add(verdict);
                Ok(())
            }
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        for shelves in [Shelves::Both, Shelves::Trash] {
            let mut query =
                ListQuery { sort: SortKey::Created, ascending: true, shelves, limit: 500, ..ListQuery::default() };
            loop {
                let page = self.list(query.clone()).await?;
                for thread in &page.entries {
                    add(self.verify_against(&thread.id, &witnesses, options.since_last).await)?;
                }
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
                for stub in page {
                    let (known, since_last) = (Arc::clone(&witnesses), options.since_last);
                    let start = move |tx: &mut dyn Tx| verify::start(tx, &stub, &known, since_last);
                    add(match self.inner.db.read(start).await {
                        Ok(progress) => self.verify_on(progress, since_last).await,
                        Err(error) => Err(error),
                    })?;
                }
            }
            for thread in self.inner.gone(&witnesses).await? {
                let known = Arc::clone(&witnesses);
                let verdict = self.inner.db.read(move |tx| verify::gone(tx, &thread, &known)).await?;
                // One that was purged, and whose purge is sealed, is no thread of the store any more.
                if verdict.broken > 0 || !verdict.not_provable.is_empty() {
                    add(Ok(verdict))?;
                }
            }
            report.seals.extend(leading::all(&self.inner).await?.iter().map(ToString::to_string));
        }
        Ok(report)
    }

    async fn verify_against(&self, thread: &ThreadId, witnesses: &Arc<Witnesses>, since_last: bool) -> Result<Verdict> {
        let known = Arc::clone(witnesses);
        match self.read(thread, move |tx, id| verify::start(tx, id, &known, since_last)).await {
            Ok(progress) => self.verify_on(progress, since_last).await,
            // A row of the thread's own that can't be read is its damage, and no reason to leave out the others.
            Err(Error::Corrupt { place, detail }) => {
                let mut verdict = Verdict::of(thread);
                verdict.add(Break::unread(&place, &detail));
                Ok(verdict)
            }
            Err(error) => Err(error),
        }
    }

    async fn verify_on(&self, mut progress: verify::Progress, since_last: bool) -> Result<Verdict> {
        loop {
            let step = move |tx: &mut dyn Tx| {
                // A read that is run again begins where this step began.
                let mut progress = progress.clone();
                let verdict = verify::step(tx, &mut progress)?;
                Ok((progress, verdict))
            };
            let (next, verdict) = self.inner.db.read(step).await?;
            progress = next;
            let Some(verdict) = verdict else { continue };
            let verified = progress.verified();
            if since_last && verdict.is_intact() && !verified.is_empty() {
                let now = self.inner.host.now();
                let remember = move |tx: &mut dyn Tx| verify::remember(tx, &verified, now);
                self.inner.db.write(Sync::Written.within(verdict.thread.as_str()).repeatable(), remember).await?;
            }
            return Ok(verdict);
        }
    }

    /// A page of what is left of purged threads, with the last id of it.
    pub(super) async fn page_of_stubs(&self, after: &str) -> Result<Option<(String, Vec<ThreadId>)>> {
        let after = after.to_owned();
        let page = self.inner.db.read(move |tx| verify::stubs(tx, &after, PAGE)).await?;
        Ok(page.last().map(ToString::to_string).map(|last| (last, page)))
    }
}

/// What was found of the seals.
#[derive(Debug, Default)]
struct Found {
    witnesses: Witnesses,
    problems: Vec<String>,
    anchored: Option<i64>,
}

/// The store's record of purges and redactions, checked: the hash after each of them.
type RecordHashes = Vec<Hash>;

impl Inner {
    /// Checks the seals of the store, and compares them with what is known outside of it.
    async fn look_at_seals(&self, options: &VerifyOptions) -> Result<Found> {
        let mut found = Found::default();
        let own = self.keys.as_ref().map(keys::KeyFolder::list).transpose()?.unwrap_or_default();
        let mut known: Vec<_> = own.iter().map(|key| key.info.clone()).collect();
        known.extend(options.anchors.iter().flat_map(|anchors| anchors.keys.clone()));
        let roots: Vec<PublicKey> = match options.trust.is_empty() {
            true => own.iter().map(|key| key.info.public).collect(),
            false => options.trust.clone(),
        };
        found.witnesses.trusted = keys::trusted(roots, &known);
        // Before the records: a seal vouches for those that were there when it was made.
        found.witnesses.upto = self.db.read(seals::newest).await?.map_or(0, |(number, _)| number);
        let records = self.look_at_records(&mut found).await?;
        self.check_seals(&records, &mut found).await?;
        let mut expected: Vec<(i64, Hash, Timestamp, &str)> = Vec::new();
        if let Some(last) = self.keys.as_ref().map(|keys| keys.last_seal(self.id)).transpose()?.flatten() {
            expected.push((last.number, last.hash, last.at, "the folder of keys"));
        }
        if let Some(anchors) = &options.anchors {
            self.compare(anchors, &records, &mut found)?;
            expected.extend(anchors.newest().map(|(number, hash, at)| (number, hash, at, "the anchors")));
        }
        for (number, hash, at, place) in expected {
            let is_there = self.db.read(move |tx| seals::hash_of(tx, number)).await? == Some(hash);
            if is_there || planted::is(Defect::VerifiesWithoutLastSeal) {
                found.anchored = found.anchored.max(Some(number));
            } else {
                found.problems.push(format!(
                    "seal {number} of {at}, which {place} names, is not in the store: it is an older copy, or its seals were \
                     removed or made anew"
                ));
            }
        }
        found.witnesses.anchored = found.anchored.is_some();
        Ok(found)
    }

    async fn look_at_records(&self, found: &mut Found) -> Result<RecordHashes> {
        let mut all = Vec::new();
        loop {
            let after = i64::try_from(all.len()).unwrap_or(i64::MAX);
            let page = self.db.read(move |tx| records::page(tx, after, PAGE)).await?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        Ok(seal::check_records(self.id, &all).unwrap_or_else(|problem| {
            found.problems.push(format!("the record of purges and redactions was changed: {problem}"));
            Vec::new()
        }))
    }

    async fn check_seals(&self, records: &RecordHashes, found: &mut Found) -> Result<()> {
        let mut check = SealCheck::new(self.id);
        let mut after = 0;
        loop {
            let page = self.db.read(move |tx| {
                let page = seals::seals(tx, after, 16)?;
                page.into_iter()
                    .map(|(seal, hash)| Ok((seals::heads(tx, seal.number)?, seal, hash)))
                    .collect::<Result<Vec<_>>>()
            });
            let page = match page.await {
                Err(Error::Corrupt { place, detail }) => {
                    found.problems.push(format!("the seals after {after} can't be read: {place}: {detail}"));
                    // What they state is not believed.
                    found.witnesses.trusted.clear();
                    return Ok(());
                }
                page => page?,
            };
            let Some((_, last, _)) = page.last() else { return Ok(()) };
            after = last.number;
            for (heads, seal, hash) in page {
                if seal.number > found.witnesses.upto {
                    return Ok(());
                }
                self.judge(&mut check, &seal, (&heads, hash), records, found);
            }
        }
    }

    fn judge(
        &self,
        check: &mut SealCheck,
        seal: &Seal,
        (heads, stored): (&[seal::SealedHead], Hash),
        records: &RecordHashes,
        found: &mut Found,
    ) {
        let record = usize::try_from(seal.purges).ok().and_then(|number| records.get(number)).copied();
        let problem = check.check(seal, heads, record);
        let problem = problem.or_else(|| (seal.hash(self.id) != stored).then(|| "its hash was changed".to_owned()));
        match problem {
            Some(problem) => {
                found.problems.push(format!("seal {}: {problem}", seal.number));
                found.witnesses.bad.insert(seal.number);
            }
            None if found.witnesses.trusted.contains(&seal.key) => {
                found.witnesses.sealed_records = found.witnesses.sealed_records.max(seal.purges);
            }
            None => {}
        }
    }

    /// Takes what anchors state, and says what they know to be on record that the store does not.
    fn compare(&self, anchors: &Anchors, records: &RecordHashes, found: &mut Found) -> Result<()> {
        if anchors.store != self.id {
            let reason = format!("they are of the store {}, and this is {}", anchors.store, self.id);
            return Err(Error::invalid("anchors", reason));
        }
        let mut outside: BTreeMap<ThreadId, Vec<Stated>> = BTreeMap::new();
        for seal in &anchors.seals {
            for head in anchors.heads.get(&seal.number).into_iter().flatten() {
                let stated = Stated { seal: seal.number, key: seal.key, head: head.clone() };
                outside.entry(head.thread.clone()).or_default().push(stated);
            }
            if found.witnesses.trusted.contains(&seal.key) {
                found.witnesses.sealed_records = found.witnesses.sealed_records.max(seal.purges);
            }
        }
        found.witnesses.outside = outside;
        for record in &anchors.records {
            let stored = usize::try_from(record.number()).ok().and_then(|number| records.get(number));
            if stored != Some(&record.hash(self.id)) {
                found.problems.push(format!("{}, which the anchors name, is not on record", record.words()));
            }
        }
        Ok(())
    }

    /// The threads that seals state and that are not there.
    async fn gone(&self, witnesses: &Arc<Witnesses>) -> Result<BTreeSet<ThreadId>> {
        let mut gone = BTreeSet::new();
        let mut after = String::new();
        loop {
            let page = self.db.read(move |tx| seals::gone(tx, &after, PAGE)).await?;
            let Some(last) = page.last() else { break };
            after = last.to_string();
            gone.extend(page);
        }
        let outside: Vec<ThreadId> = witnesses.outside.keys().cloned().collect();
        for part in outside.chunks(500) {
            let part = part.to_vec();
            gone.extend(self.db.read(move |tx| seals::absent(tx, &part)).await?);
        }
        Ok(gone)
    }
}
