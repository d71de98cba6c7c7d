//! Verifying: every digest and every link of a thread, computed anew from what is stored.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;

use crate::chain::{self, Link};
use crate::content;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::{Hash, Kind, Role};
use crate::log::path;
use crate::log::read::{load_spliced, read_ids, row_content};
use crate::log::receipts;
use crate::planted::{self, Defect};
use crate::receipt::{self, Claim};
use crate::records;
use crate::seal::{NOTHING, RedactionRecord};
use crate::seals::{self, Stated, Statements, Witnesses};
use crate::time::Timestamp;

/// How many items are checked in one read transaction.
const CHUNK: i64 = 1_000;

/// The columns of an item as [`read_checked`] takes them.
macro_rules! checked_columns {
    () => {
        "i.key, i.id, i.turn, i.kind, i.role, i.format, i.epoch, i.tick, i.created_at, i.sources, i.chain, i.salt, i.digest, i.hash,
         i.size, i.encoding, i.content, w.id"
    };
}
pub(crate) use checked_columns;

statements! {
    OWN_BRANCHES = "SELECT b.key, b.id, b.parent, b.base, b.tip, b.tip_hash, v.depth, v.hash FROM branches b
        LEFT JOIN verified v ON v.branch = b.key WHERE b.thread = ?1 ORDER BY b.key";
    WITNESS = "SELECT head, head_hash, head_is_tip, items, branches, tick, epoch FROM threads WHERE id = ?1";
    ORDER_AT = "SELECT w.id, i.tick, i.epoch FROM items i JOIN branches b ON b.key = i.key >> 32 JOIN writers w ON w.key = i.writer
        WHERE i.key = ?1 AND b.thread = ?2";
    REMEMBER = "INSERT INTO verified (branch, depth, hash, verified_at) SELECT key, ?2, ?3, ?4 FROM branches WHERE key = ?1
        ON CONFLICT (branch) DO UPDATE SET depth = excluded.depth, hash = excluded.hash, verified_at = excluded.verified_at";
    STUBS = "SELECT id FROM threads WHERE shelf = 3 AND status <> 'purging' AND id > ?1 ORDER BY id LIMIT ?2";
    STANDING = "SELECT shelf, status FROM threads WHERE id = ?1";
    CHUNK_OF_BRANCH = concat!("SELECT ", checked_columns!(),
        " FROM items i LEFT JOIN writers w ON w.key = i.writer WHERE i.key BETWEEN ?1 AND ?2 ORDER BY i.key LIMIT ?3");
}

/// A branch is named by its first item.
pub(crate) const OTHER_NAME: &str = "the branch has another id than its first item, by which it is named";

/// How many broken places of a thread are told; the others are counted.
const MOST_BREAKS: usize = 100;

/// What verifying one thread found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The thread.
    pub thread: ThreadId,
    /// How many items were checked.
    pub items: u64,
    /// How many items were left out because an earlier verification found them in order.
    pub remembered: u64,
    /// How many places are broken.
    pub broken: u64,
    /// The first hundred of them.
    pub invalid: Vec<Break>,
    /// What can't be proved.
    pub not_provable: Vec<Gap>,
    /// Up to which seal the store was compared with what is known outside of it.
    pub anchored: Option<i64>,
}

/// What a verdict comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing is broken, and seals vouch for all of it.
    Valid,
    /// Something is broken.
    Invalid,
    /// Nothing was found to be broken, but not every loss would show.
    NotProvable,
}

impl Verdict {
    /// What it comes down to.
    pub fn outcome(&self) -> Outcome {
        match (self.broken, self.not_provable.is_empty()) {
            (0, true) => Outcome::Valid,
            (0, false) => Outcome::NotProvable,
            _ => Outcome::Invalid,
        }
    }

    /// Whether nothing was found to be broken. That is less than valid: see [`Verdict::not_provable`].
    pub fn is_intact(&self) -> bool {
        self.broken == 0
    }

    pub(crate) fn of(thread: &ThreadId) -> Self {
        let (invalid, not_provable) = (Vec::new(), Vec::new());
        Self { thread: thread.clone(), items: 0, remembered: 0, broken: 0, invalid, not_provable, anchored: None }
    }

    pub(crate) fn add(&mut self, found: Break) {
        self.broken += 1;
        if self.invalid.len() < MOST_BREAKS {
            self.invalid.push(found);
        }
    }

    fn lacks(&mut self, kind: GapKind) {
        self.not_provable.push(Gap { kind, branch: None, after: None });
    }
}

/// A place where a thread does not verify.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Break {
    /// The branch; `None` for the thread's own row.
    pub branch: Option<BranchId>,
    /// The depth.
    pub depth: Option<u32>,
    /// What is wrong.
    pub reason: String,
}

impl Break {
    /// What can't be read, somewhere in the thread.
    pub(crate) fn unread(place: &str, detail: &str) -> Self {
        Self { branch: None, depth: None, reason: format!("{place}: {detail}") }
    }
}

/// Something that can't be proved, because nothing vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What it is.
    pub kind: GapKind,
    /// The branch that it concerns; `None` for the whole thread.
    pub branch: Option<BranchId>,
    /// The last depth that is vouched for; `None` when nothing of it is.
    pub after: Option<u32>,
}

/// What can't be proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GapKind {
    /// No seal states the thread.
    NoSeal,
    /// Items are newer than what seals state.
    UnsealedTail,
    /// Seals state it whose key nothing vouches for.
    UnknownKey,
    /// Nothing outside of the store says how new it must be.
    NoAnchor,
    /// What is missing was purged, says a record that no seal vouches for yet.
    UnsealedPurge,
    /// Content was redacted, says a record that no seal vouches for yet.
    UnsealedRedaction,
    /// What an earlier verification found in order was not looked at again.
    NotLookedAt,
}

impl GapKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSeal => "no-seal",
            Self::UnsealedTail => "unsealed-tail",
            Self::UnknownKey => "unknown-key",
            Self::NoAnchor => "no-anchor",
            Self::UnsealedPurge => "unsealed-purge",
            Self::UnsealedRedaction => "unsealed-redaction",
            Self::NotLookedAt => "not-looked-at",
        }
    }

    /// What would not show.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoSeal => "no seal states it: a cut tail, a chain that was computed anew and its loss would not show",
            Self::UnsealedTail => {
                "no seal covers the items after the last sealed depth: had some of them been cut or written anew, it would not show"
            }
            Self::UnknownKey => "it was sealed with a key that nothing here vouches for",
            Self::NoAnchor => {
                "no seal is known outside of the store: an older copy of the whole store, with older seals, would not show"
            }
            Self::UnsealedPurge => "what is missing was purged, says a record that no seal vouches for yet",
            Self::UnsealedRedaction => {
                "content was redacted, says a record that no seal vouches for yet: whoever removed it could have written that"
            }
            Self::NotLookedAt => "what an earlier verification found in order was not looked at again",
        }
    }
}

/// How far verifying a thread has come; a step at a time, so that no transaction lasts.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    thread: ThreadId,
    is_stub: bool,
    branches: Arc<[BranchFacts]>,
    next: usize,
    at: Option<Position>,
    /// The last tick and epoch of each writer on the branch.
    order: BTreeMap<WriterId, (i64, i64)>,
    verdict: Verdict,
    witness: Witness,
    witnesses: Arc<Witnesses>,
    own_items: i64,
    /// The last redaction on record of what was checked.
    last_redaction: i64,
}

/// The last item of a branch that was looked at.
#[derive(Debug, Clone)]
struct Position {
    depth: u32,
    /// The hashes that the next item may follow from: the stored one, and the one that its fields give. None after a gap.
    hashes: Vec<Hash>,
}

#[derive(Debug, Clone)]
struct BranchFacts {
    key: i64,
    id: BranchId,
    parent: Option<ItemKey>,
    base: u32,
    tip: u32,
    tip_hash: Hash,
    /// How far an earlier verification found it in order.
    verified: Option<(u32, Hash)>,
}

#[derive(Debug, Clone, Copy)]
struct Witness {
    head: Option<(ItemKey, Hash)>,
    head_is_tip: bool,
    items: i64,
    branches: i64,
    tick: i64,
    epoch: i64,
}

/// Up to where a branch was found in order: its key, the depth and the hash.
pub(crate) type Verified = (i64, u32, Hash);

/// Starts verifying a thread as it stands now; what is appended meanwhile is left for the next time. With `since_last` it begins
/// where the last such verification ended.
pub(crate) fn start(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    witnesses: &Arc<Witnesses>,
    since_last: bool,
) -> Result<Progress> {
    let witness = query_one(tx, WITNESS, &[thread.as_str().into()], |row| {
        let hash = row.opt_blob(1)?.and_then(Hash::from_slice);
        Ok(Witness {
            head: row.opt_int(0)?.map(ItemKey).zip(hash),
            head_is_tip: row.int(2)? == 1,
            items: row.int(3)?,
            branches: row.int(4)?,
            tick: row.int(5)?,
            epoch: row.int(6)?,
        })
    })?;
    let witness = witness.ok_or_else(|| Error::not_found("thread", thread))?;
    let is_stub = is_stub(tx, thread)?;
    let mut verdict = Verdict::of(thread);
    let mut branches = match query_all(tx, OWN_BRANCHES, &[thread.as_str().into()], read_branch) {
        Ok(branches) => branches,
        Err(Error::Corrupt { place, detail }) => {
            verdict.add(Break::unread(&place, &detail));
            Vec::new()
        }
        Err(other) => return Err(other),
    };
    for branch in &mut branches {
        if !since_last {
            branch.verified = None;
        }
        if let Some((head, hash)) = witness.head.filter(|(head, _)| witness.head_is_tip && branch.key == head.branch())
        {
            (branch.tip, branch.tip_hash) = (head.depth(), hash);
        }
    }
    if i64::try_from(branches.len()).ok() != Some(witness.branches) {
        let reason = format!("{} branches are stored, {} were written", branches.len(), witness.branches);
        verdict.add(Break { branch: None, depth: None, reason });
    }
    if let Some((head, hash)) = witness.head {
        let found = match path::link_at(tx, head) {
            // What else the thread wrote is still looked at.
            Err(Error::Corrupt { .. }) => None,
            found => found?.map(|(found, _)| found),
        };
        if found != Some(hash) {
            let reason = "the item at the head is missing or has another hash".to_owned();
            verdict.add(Break { branch: None, depth: Some(head.depth()), reason });
        }
    }
    Ok(Progress {
        thread: thread.clone(),
        is_stub,
        branches: branches.into(),
        next: 0,
        at: None,
        order: BTreeMap::new(),
        verdict,
        witness,
        witnesses: Arc::clone(witnesses),
        own_items: 0,
        last_redaction: 0,
    })
}

/// Whether the thread is a stub of which only shared items are left. One that is being purged reads as absent: what it lacks
/// was taken on purpose.
fn is_stub(tx: &mut dyn Tx, thread: &ThreadId) -> Result<bool> {
    let standing =
        query_one(tx, STANDING, &[thread.as_str().into()], |row| Ok((row.int(0)? == 3, row.text(1)? == "purging")))?;
    match standing {
        Some((is_stub, purging)) if !(is_stub && purging) => Ok(is_stub),
        _ => Err(Error::not_found("thread", thread)),
    }
}

/// A page of the stubs, after an id.
pub(crate) fn stubs(tx: &mut dyn Tx, after: &str, limit: i64) -> Result<Vec<ThreadId>> {
    query_all(tx, STUBS, &[after.into(), limit.into()], |row| {
        row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
    })
}

/// What can be said of a thread that seals state and that is not there.
pub(crate) fn gone(tx: &mut dyn Tx, thread: &ThreadId, witnesses: &Witnesses) -> Result<Verdict> {
    let mut verdict = Verdict::of(thread);
    let statements = seals::statements_of(tx, thread, witnesses)?;
    let unexplained: Vec<&Stated> = statements.stated.iter().filter(|stated| !statements.explains(stated)).collect();
    if let Some(seal) = unexplained.iter().map(|stated| stated.seal).max() {
        let reason = format!("the thread is gone: seal {seal} states it, and no purge of it is on record");
        verdict.add(Break { branch: None, depth: None, reason });
    } else if statements.purged.is_some_and(|(number, _)| number > witnesses.sealed_records) {
        verdict.lacks(GapKind::UnsealedPurge);
    }
    Ok(verdict)
}

/// Checks the next chunk; gives the verdict when everything is checked.
///
/// # Errors
/// `NotFound` when the thread was purged since the last step.
pub(crate) fn step(tx: &mut dyn Tx, progress: &mut Progress) -> Result<Option<Verdict>> {
    match check_next(tx, progress) {
        // What can't be read is this thread's damage, and no reason to leave out the others.
        Err(Error::Corrupt { place, detail }) => {
            progress.verdict.add(Break::unread(&place, &detail));
            Ok(Some(progress.verdict.clone()))
        }
        other => other,
    }
}

fn check_next(tx: &mut dyn Tx, progress: &mut Progress) -> Result<Option<Verdict>> {
    if is_stub(tx, &progress.thread)? != progress.is_stub {
        return Err(Error::not_found("thread", &progress.thread));
    }
    let Some(branch) = progress.branches.get(progress.next).cloned() else {
        progress.conclude(tx)?;
        return Ok(Some(progress.verdict.clone()));
    };
    match progress.check_chunk(tx, &branch) {
        Ok(true) => progress.next_branch(),
        Ok(false) => {}
        Err(Error::Corrupt { place, detail }) => {
            let depth = progress.at.as_ref().map_or(branch.base, |at| at.depth + 1);
            progress.broken(&branch, depth, format!("{place}: {detail}"));
            progress.next_branch();
        }
        Err(other) => return Err(other),
    }
    Ok(None)
}

/// Remembers how far branches were found in order.
pub(crate) fn remember(tx: &mut dyn Tx, verified: &[Verified], now: Timestamp) -> Result<()> {
    for (branch, depth, hash) in verified {
        // One that was purged meanwhile is left alone.
        let args = [(*branch).into(), i64::from(*depth).into(), Value::Blob(&hash.0), now.0.into()];
        tx.execute(REMEMBER, &args)?;
    }
    Ok(())
}

impl Progress {
    /// Where the branches end that were found in order and that grew since the last time.
    pub(crate) fn verified(&self) -> Vec<Verified> {
        let grown = self.branches.iter().filter(|branch| branch.verified != Some((branch.tip, branch.tip_hash)));
        grown.map(|branch| (branch.key, branch.tip, branch.tip_hash)).collect()
    }

    fn next_branch(&mut self) {
        self.next += 1;
        self.at = None;
        self.order.clear();
    }

    fn broken(&mut self, branch: &BranchFacts, depth: u32, reason: impl Into<String>) {
        self.verdict.add(Break { branch: Some(branch.id), depth: Some(depth), reason: reason.into() });
    }

    /// Checks up to a chunk of a branch; says whether the branch is finished.
    fn check_chunk(&mut self, tx: &mut dyn Tx, branch: &BranchFacts) -> Result<bool> {
        let (mut next, mut parents) = match self.at.take() {
            Some(at) => (at.depth + 1, at.hashes),
            None => self.enter(tx, branch)?,
        };
        let rows = Self::load(tx, branch, next)?;
        let full = i64::try_from(rows.len()).ok() == Some(CHUNK);
        // At the end of the branch also what stands behind it.
        let is_last = |key: &ItemKey| !full || key.depth() >= branch.tip;
        let last =
            rows.last().filter(|(key, _)| !is_last(key)).map_or(ItemKey::new(branch.key, u32::MAX), |(key, _)| *key);
        let mut index = receipts::Rows::between(tx, ItemKey::new(branch.key, next), last)?;
        for (key, item) in rows {
            let depth = key.depth();
            if depth != next {
                let missing = if depth - next == 1 { "the item is" } else { "items are" };
                self.broken(branch, next, format!("{missing} missing; the next one stands at depth {depth}"));
                parents.clear();
            }
            next = depth + 1;
            self.verdict.items += 1;
            self.own_items += 1;
            match item {
                Ok(item) => {
                    let record = item.redaction.as_ref().map_or(0, |record| record.number);
                    self.last_redaction = self.last_redaction.max(record);
                    if let Some(problem) = self.problem(tx, &item, &parents)? {
                        self.broken(branch, depth, problem);
                    } else if depth == branch.base && item.id != branch.id {
                        self.broken(branch, depth, OTHER_NAME);
                    }
                    if let Some(problem) = index.problem(tx, &self.thread, key, item.receipt.as_ref())? {
                        self.broken(branch, depth, problem);
                    }
                    parents = item.hashes(&self.thread, &parents);
                }
                Err(damage) => {
                    self.broken(branch, depth, damage);
                    parents.clear();
                }
            }
        }
        for stray in index.left() {
            // What was appended since the start is left for the next time.
            if path::link_at(tx, stray)?.is_none() {
                self.broken(branch, stray.depth(), "the index of receipts has a row here, and no item");
            }
        }
        if full && next <= branch.tip {
            self.at = next.checked_sub(1).map(|depth| Position { depth, hashes: parents });
            return Ok(false);
        }
        if next != branch.tip.saturating_add(1) {
            self.broken(branch, next, format!("the branch ends here; it was written up to depth {}", branch.tip));
        } else if parents.first().is_some_and(|hash| *hash != branch.tip_hash) {
            self.broken(branch, branch.tip, "the tip has another hash than the one that was recorded");
        }
        Ok(true)
    }

    /// Where to begin with a branch, and what its next item may follow from.
    fn enter(&mut self, tx: &mut dyn Tx, branch: &BranchFacts) -> Result<(u32, Vec<Hash>)> {
        if let Some((depth, hash)) = branch.verified.filter(|(depth, _)| *depth >= branch.base && *depth <= branch.tip)
        {
            let key = ItemKey::new(branch.key, depth);
            if path::link_at(tx, key)?.is_some_and(|(found, _)| found == hash) {
                let count = u64::from(depth - branch.base) + 1;
                self.verdict.remembered += count;
                self.own_items += i64::try_from(count).unwrap_or(0);
                self.see(tx, key)?;
                return Ok((depth + 1, vec![hash]));
            }
        }
        let parent = match branch.parent {
            None => Some(chain::genesis(&self.thread)),
            Some(parent) => {
                self.see(tx, parent)?;
                path::link_at(tx, parent)?.map(|(hash, _)| hash)
            }
        };
        if parent.is_none() {
            self.broken(branch, branch.base, "the item that the branch continues is missing");
        }
        Ok((branch.base, parent.into_iter().collect()))
    }

    /// Takes note of the writer of an item of this thread that is not checked itself.
    fn see(&mut self, tx: &mut dyn Tx, key: ItemKey) -> Result<()> {
        let args = [key.0.into(), self.thread.as_str().into()];
        let seen = query_one(tx, ORDER_AT, &args, |row| {
            Ok((row.parse(0, WriterId::from_slice(row.blob(0)?), "16 bytes of an id")?, row.int(1)?, row.int(2)?))
        })?;
        self.order.extend(seen.map(|(writer, tick, epoch)| (writer, (tick, epoch))));
        Ok(())
    }

    /// Says what is wrong with an item, if anything is.
    fn problem(&mut self, tx: &mut dyn Tx, item: &Checked, parents: &[Hash]) -> Result<Option<String>> {
        if let Some(problem) = item.problem(&self.thread, parents) {
            return Ok(Some(problem));
        }
        for source in &item.sources {
            let on_path = match path::key_by_id(tx, *source)? {
                Some(source) => source != item.key && path::contains(tx, item.key, source)?,
                None => false,
            };
            if !on_path {
                return Ok(Some(format!("the item {source} that it cites is not on its path")));
            }
        }
        let Some(writer) = item.writer else { return Ok(None) };
        let last = self.order.insert(writer, (item.tick, item.epoch));
        let falls = last.is_some_and(|(tick, epoch)| item.tick < tick || item.epoch < epoch);
        Ok(falls.then(|| "its tick or its epoch is below that of what its writer wrote before it".to_owned()))
    }

    fn load(tx: &mut dyn Tx, branch: &BranchFacts, from: u32) -> Result<Vec<(ItemKey, Result<Checked, String>)>> {
        let range =
            [ItemKey::new(branch.key, from).0.into(), ItemKey::new(branch.key, branch.tip).0.into(), CHUNK.into()];
        let mut rows = Vec::new();
        tx.query(CHUNK_OF_BRANCH, &range, &mut |row| {
            let key = ItemKey(row.int(0)?);
            rows.push(match read_checked(row) {
                Err(Error::Corrupt { place, detail }) => (key, Err(format!("{place}: {detail}"))),
                read => (key, Ok(read?)),
            });
            Ok(ControlFlow::Continue(()))
        })?;
        for (_, row) in &mut rows {
            if let Ok(row) = row {
                row.load_rest(tx)?;
            }
        }
        Ok(rows)
    }

    fn conclude(&mut self, tx: &mut dyn Tx) -> Result<()> {
        let counted = self.own_items == self.witness.items || planted::is(Defect::VerifiesWithoutCount);
        if self.verdict.broken == 0 && !counted {
            let reason = format!("{} items are stored, {} were written", self.own_items, self.witness.items);
            self.verdict.add(Break { branch: None, depth: None, reason });
        }
        // What was written and sealed since the start is no contradiction.
        let standing = query_one(tx, WITNESS, &[self.thread.as_str().into()], |row| Ok((row.int(5)?, row.int(6)?)))?;
        (self.witness.tick, self.witness.epoch) = standing.unwrap_or((self.witness.tick, self.witness.epoch));
        let statements = seals::statements_of(tx, &self.thread, &self.witnesses)?;
        let mut believed = Vec::new();
        for stated in &statements.stated {
            if statements.explains(stated) {
                continue;
            }
            if let Some(found) = self.contradicts(tx, stated)? {
                self.verdict.add(found);
            }
            if self.witnesses.trusted.contains(&stated.key) {
                believed.push(stated);
            }
        }
        if self.last_redaction > self.witnesses.sealed_records {
            self.verdict.lacks(GapKind::UnsealedRedaction);
        }
        if self.verdict.remembered > 0 {
            self.verdict.lacks(GapKind::NotLookedAt);
        }
        self.note_uncovered(&statements, &believed);
        if !self.witnesses.anchored {
            self.verdict.lacks(GapKind::NoAnchor);
        }
        Ok(())
    }

    /// What a seal says that the store does not.
    fn contradicts(&self, tx: &mut dyn Tx, stated: &Stated) -> Result<Option<Break>> {
        if planted::is(Defect::VerifiesWithoutStatements) {
            return Ok(None);
        }
        let (seal, head) = (stated.seal, &stated.head);
        let whole = |reason: String| Some(Break { branch: None, depth: None, reason });
        if self.is_stub {
            return Ok(whole(format!("seal {seal} states the thread, and no purge of it is on record")));
        }
        if head.tick > self.witness.tick || head.epoch > self.witness.epoch {
            return Ok(whole(format!("the thread's tick or epoch is below what seal {seal} states")));
        }
        let Some(item) = head.item else { return Ok(None) };
        let key = path::key_of(tx, Address { branch: item.branch, depth: item.depth })?;
        let found = match key {
            Some((key, _)) => path::link_at(tx, key)?,
            None => None,
        };
        let reason = match found {
            Some((hash, _)) if hash == item.hash => return Ok(None),
            Some(_) => format!("seal {seal} states another hash here: the chain was computed anew"),
            None => format!("seal {seal} states an item here, which is gone"),
        };
        Ok(Some(Break { branch: Some(item.branch), depth: Some(item.depth), reason }))
    }

    fn note_uncovered(&mut self, statements: &Statements, believed: &[&Stated]) {
        // What is left of a purged thread is bound by those that share it.
        if self.is_stub {
            return;
        }
        if believed.is_empty() {
            let is_unknown = statements.stated.iter().any(|stated| !statements.explains(stated));
            self.verdict.lacks(if is_unknown { GapKind::UnknownKey } else { GapKind::NoSeal });
            return;
        }
        for branch in self.branches.iter() {
            let items = believed.iter().filter_map(|stated| stated.head.item);
            let after = items.filter(|item| item.branch == branch.id).map(|item| item.depth).max();
            if after.is_none_or(|after| after < branch.tip) {
                let gap = Gap { kind: GapKind::UnsealedTail, branch: Some(branch.id), after };
                self.verdict.not_provable.push(gap);
            }
        }
    }
}

/// An item with the digest of the content that is really there.
pub(crate) struct Checked {
    pub(crate) key: ItemKey,
    pub(crate) id: ItemId,
    turn: Option<i64>,
    kind: Kind,
    role: Option<Role>,
    format: String,
    epoch: i64,
    pub(crate) tick: i64,
    created_at: Timestamp,
    sources: Vec<ItemId>,
    version: i64,
    salt: Option<[u8; 16]>,
    digest: Hash,
    pub(crate) hash: Hash,
    pub(crate) writer: Option<WriterId>,
    content: Option<Hash>,
    /// What it says of itself that is a receipt.
    receipt: Option<Result<Claim, String>>,
    /// Whether what stands here is not what was written.
    is_redacted: bool,
    /// What is on record of that; a carrier that is no store brings it along.
    pub(crate) redaction: Option<RedactionRecord>,
}

impl Checked {
    fn digest_of(&self, content: &[u8]) -> Hash {
        let salt = self.salt.unwrap_or_default();
        chain::content_digest(&self.kind, self.role.as_ref(), &self.format, &salt, content)
    }

    /// Takes note of what the content says; gives its digest.
    fn take(&mut self, content: &[u8]) -> Hash {
        self.receipt = receipt::claim(self.id, &self.format, content);
        self.digest_of(content)
    }

    /// Looks at content whose payloads are stored apart, and at what is on record, which the scan could not.
    pub(crate) fn load_rest(&mut self, tx: &mut dyn Tx) -> Result<()> {
        if self.is_redacted {
            self.redaction = records::redaction_of(tx, self.id)?;
        }
        if self.content.is_none() && self.salt.is_some() {
            self.content = match load_spliced(tx, self.key) {
                Ok(content) => Some(self.take(&content)),
                Err(Error::Corrupt { .. } | Error::NotFound { .. }) => None,
                Err(other) => return Err(other),
            };
        }
        Ok(())
    }

    /// Says what is wrong with the item that must stand at this depth, if anything is.
    pub(crate) fn check(&self, thread: &ThreadId, depth: u32, parent: Hash) -> Option<String> {
        if self.key.depth() != depth {
            return Some(format!("the item is missing; the next one stands at depth {}", self.key.depth()));
        }
        self.problem(thread, &[parent])
    }

    /// The hashes that the next item may follow from: the stored one first, and the one that the fields give, so that a changed
    /// hash is told once.
    fn hashes(&self, thread: &ThreadId, parents: &[Hash]) -> Vec<Hash> {
        let mut hashes = vec![self.hash];
        hashes.extend(parents.first().and_then(|parent| self.hash_under(thread, *parent)));
        hashes.dedup();
        hashes
    }

    /// What is wrong with the item. What it may follow from is not known after a gap.
    fn problem(&self, thread: &ThreadId, parents: &[Hash]) -> Option<String> {
        if self.version != chain::VERSION {
            return Some(format!("its chain version {} is not known here", self.version));
        }
        if let Some(problem) = self.content_problem() {
            return Some(problem.to_owned());
        }
        if self.writer.is_none() {
            return Some("its writer is not known".to_owned());
        }
        let mut hashes = parents.iter().map(|parent| self.hash_under(thread, *parent));
        let follows = parents.is_empty()
            || hashes.any(|hash| hash == Some(self.hash))
            || planted::is(Defect::VerifiesWithoutHashes);
        (!follows).then(|| "its hash does not follow from its parent and its fields".to_owned())
    }

    /// What is wrong with the content, or with what stands in its place.
    pub(crate) fn content_problem(&self) -> Option<&'static str> {
        if self.is_redacted {
            let Some(record) = &self.redaction else {
                return Some("its content was taken away, and no redaction is on record");
            };
            let is_on_record =
                record.item.is_some_and(|item| item.digest == self.digest) && record.replacement == self.content;
            return (!is_on_record).then_some("what stands in its redacted content's place is not what is on record");
        }
        match self.content {
            None => Some("its content is missing or damaged, and no redaction is on record"),
            Some(found) if found != self.digest && !planted::is(Defect::VerifiesWithoutContent) => {
                Some("its content was changed")
            }
            Some(_) => None,
        }
    }

    /// The hash that the item has behind this parent.
    fn hash_under(&self, thread: &ThreadId, parent: Hash) -> Option<Hash> {
        Some(chain::item_hash(&Link {
            thread,
            parent,
            id: self.id,
            turn: self.turn,
            writer: self.writer?,
            epoch: self.epoch,
            tick: self.tick,
            created_at: self.created_at,
            digest: self.digest,
            sources: &self.sources,
        }))
    }
}

/// Reads the columns of `checked_columns!`.
pub(crate) fn read_checked(row: &Row<'_>) -> Result<Checked> {
    let mut item = Checked {
        key: ItemKey(row.int(0)?),
        id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        turn: row.opt_int(2)?,
        kind: Kind::from_word(row.text(3)?),
        role: row.opt_text(4)?.map(Role::from_word),
        format: row.text(5)?.to_owned(),
        epoch: row.int(6)?,
        tick: row.int(7)?,
        created_at: Timestamp(row.int(8)?),
        sources: read_ids(row, 9)?,
        version: row.int(10)?,
        salt: row.opt_blob(11)?.and_then(|salt| salt.try_into().ok()),
        digest: row.parse(12, Hash::from_slice(row.blob(12)?), "a hash")?,
        hash: row.parse(13, Hash::from_slice(row.blob(13)?), "a hash")?,
        writer: row.opt_blob(17)?.and_then(WriterId::from_slice),
        content: None,
        receipt: None,
        is_redacted: content::is_redacted(row.int(15)?),
        redaction: None,
    };
    if item.is_redacted && item.salt.is_none() {
        // A digest that nothing has: bytes that nobody vouches for must not stand there.
        item.content = row.opt_blob(16)?.map(|_| NOTHING);
    } else if item.salt.is_some() {
        item.content = match row_content(row, 14, &mut |digest| Err(Error::not_found("blob", digest))) {
            Ok(content) => Some(item.take(&content)),
            // Payloads are loaded after the scan; damage shows as a missing digest.
            Err(Error::NotFound { .. } | Error::Corrupt { .. }) => None,
            Err(other) => return Err(other),
        };
    }
    Ok(item)
}

fn read_branch(row: &Row<'_>) -> Result<BranchFacts> {
    Ok(BranchFacts {
        key: row.int(0)?,
        id: row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        parent: row.opt_int(2)?.map(ItemKey),
        base: path::depth(row, 3)?,
        tip: path::depth(row, 4)?,
        tip_hash: row.parse(5, Hash::from_slice(row.blob(5)?), "a hash")?,
        verified: u32::try_from(row.opt_int(6)?.unwrap_or(-1)).ok().zip(row.opt_blob(7)?.and_then(Hash::from_slice)),
    })
}

/// The verdicts of many threads, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Threads that were checked, and those that seals state and that are gone.
    pub threads: u64,
    /// Of these, those that are intact and that seals vouch for.
    pub valid: u64,
    /// Of these, those in which nothing was found to be broken.
    pub intact: u64,
    /// Items that were checked.
    pub items: u64,
    /// Items that were left out because an earlier verification found them in order.
    pub remembered: u64,
    /// The breaks, by thread.
    pub invalid: BTreeMap<ThreadId, Vec<Break>>,
    /// How many places are broken, those that are not told included.
    pub broken: u64,
    /// What is wrong with the seals themselves, or with how new the store is; and rollouts that hold what the store lacks.
    pub seals: Vec<String>,
    /// What can't be proved, with the number of threads that it concerns.
    pub not_provable: BTreeMap<GapKind, u64>,
    /// Up to which seal the store was compared with what is known outside of it.
    pub anchored: Option<i64>,
}

impl VerifyReport {
    /// Adds a thread's verdict.
    pub fn add(&mut self, verdict: Verdict) {
        self.threads += 1;
        self.anchored = self.anchored.or(verdict.anchored);
        self.items += verdict.items;
        self.remembered += verdict.remembered;
        self.broken += verdict.broken;
        self.valid += u64::from(verdict.outcome() == Outcome::Valid);
        self.intact += u64::from(verdict.is_intact());
        let mut kinds: Vec<GapKind> = verdict.not_provable.iter().map(|gap| gap.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            *self.not_provable.entry(kind).or_default() += 1;
        }
        if !verdict.invalid.is_empty() {
            self.invalid.insert(verdict.thread, verdict.invalid);
        }
    }

    /// What it comes down to.
    pub fn outcome(&self) -> Outcome {
        match (self.intact == self.threads && self.seals.is_empty(), self.not_provable.is_empty()) {
            (false, _) => Outcome::Invalid,
            (true, false) => Outcome::NotProvable,
            (true, true) => Outcome::Valid,
        }
    }
}
