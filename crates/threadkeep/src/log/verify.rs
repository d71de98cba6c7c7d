//! Verifying: every digest and every link of a thread, computed anew from what is stored.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;

use crate::chain::{self, Link};
use crate::db::{Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{BranchId, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::{Hash, Kind, Role};
use crate::log::path;
use crate::log::read::{load_spliced, read_ids, row_content};
use crate::planted::{self, Defect};
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
    OWN_BRANCHES = "SELECT key, id, parent, base, tip, tip_hash FROM branches WHERE thread = ?1 ORDER BY key";
    WITNESS = "SELECT head, head_hash, head_is_tip, items, branches FROM threads WHERE id = ?1";
    STUBS = "SELECT id FROM threads WHERE shelf = 3 AND status <> 'purging' AND id > ?1 ORDER BY id LIMIT ?2";
    STANDING = "SELECT shelf, status FROM threads WHERE id = ?1";
    CHUNK_OF_BRANCH = concat!("SELECT ", checked_columns!(),
        " FROM items i LEFT JOIN writers w ON w.key = i.writer WHERE i.key BETWEEN ?1 AND ?2 ORDER BY i.key LIMIT ?3");
}

/// What verifying one thread found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The thread.
    pub thread: ThreadId,
    /// How many items were checked.
    pub items: u64,
    /// The first break of each branch, and breaks of the thread's own witnesses.
    pub invalid: Vec<Break>,
    /// What can't be proved from the store alone, in words.
    pub not_provable: Vec<String>,
}

impl Verdict {
    /// Whether nothing was found to be broken.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty()
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

/// How far verifying a thread has come; a step at a time, so that no transaction lasts.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    thread: ThreadId,
    is_stub: bool,
    branches: Arc<[BranchFacts]>,
    next: usize,
    at: Option<(u32, Hash)>,
    verdict: Verdict,
    witness: Witness,
    own_items: i64,
}

#[derive(Debug, Clone)]
struct BranchFacts {
    key: i64,
    id: BranchId,
    parent: Option<ItemKey>,
    base: u32,
    tip: u32,
    tip_hash: Hash,
}

#[derive(Debug, Clone, Copy)]
struct Witness {
    head: Option<(ItemKey, Hash)>,
    head_is_tip: bool,
    items: i64,
    branches: i64,
}

/// Starts verifying a thread as it stands now; what is appended meanwhile is left for the next time.
pub(crate) fn start(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Progress> {
    let witness = query_one(tx, WITNESS, &[thread.as_str().into()], |row| {
        let hash = row.opt_blob(1)?.and_then(Hash::from_slice);
        Ok(Witness {
            head: row.opt_int(0)?.map(ItemKey).zip(hash),
            head_is_tip: row.int(2)? == 1,
            items: row.int(3)?,
            branches: row.int(4)?,
        })
    })?;
    let witness = witness.ok_or_else(|| Error::not_found("thread", thread))?;
    let is_stub = is_stub(tx, thread)?;
    let mut verdict = Verdict { thread: thread.clone(), items: 0, invalid: Vec::new(), not_provable: Vec::new() };
    let mut branches = match query_all(tx, OWN_BRANCHES, &[thread.as_str().into()], read_branch) {
        Ok(branches) => branches,
        Err(Error::Corrupt { place, detail }) => {
            verdict.invalid.push(Break { branch: None, depth: None, reason: format!("{place}: {detail}") });
            Vec::new()
        }
        Err(other) => return Err(other),
    };
    if let Some((head, hash)) = witness.head.filter(|_| witness.head_is_tip) {
        for branch in branches.iter_mut().filter(|branch| branch.key == head.branch()) {
            branch.tip = head.depth();
            branch.tip_hash = hash;
        }
    }
    if i64::try_from(branches.len()).ok() != Some(witness.branches) {
        let reason = format!("{} branches are stored, {} were written", branches.len(), witness.branches);
        verdict.invalid.push(Break { branch: None, depth: None, reason });
    }
    if let Some((head, hash)) = witness.head
        && path::link_at(tx, head)?.map(|(found, _)| found) != Some(hash)
    {
        let reason = "the item at the head is missing or has another hash".to_owned();
        verdict.invalid.push(Break { branch: None, depth: Some(head.depth()), reason });
    }
    Ok(Progress {
        thread: thread.clone(),
        is_stub,
        branches: branches.into(),
        next: 0,
        at: None,
        verdict,
        witness,
        own_items: 0,
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

/// Checks the next chunk; gives the verdict when everything is checked.
///
/// # Errors
/// `NotFound` when the thread was purged since the last step.
pub(crate) fn step(tx: &mut dyn Tx, progress: &mut Progress) -> Result<Option<Verdict>> {
    if is_stub(tx, &progress.thread)? != progress.is_stub {
        return Err(Error::not_found("thread", &progress.thread));
    }
    let Some(branch) = progress.branches.get(progress.next).cloned() else {
        return Ok(Some(progress.conclude()));
    };
    match progress.check_chunk(tx, &branch) {
        Ok(true) => progress.next_branch(),
        Ok(false) => {}
        Err(Error::Corrupt { place, detail }) => {
            let depth = progress.at.map_or(branch.base, |(depth, _)| depth + 1);
            progress.broken(&branch, depth, format!("{place}: {detail}"));
            progress.next_branch();
        }
        Err(other) => return Err(other),
    }
    Ok(None)
}

impl Progress {
    fn next_branch(&mut self) {
        self.next += 1;
        self.at = None;
    }

    fn broken(&mut self, branch: &BranchFacts, depth: u32, reason: impl Into<String>) {
        self.verdict.invalid.push(Break { branch: Some(branch.id), depth: Some(depth), reason: reason.into() });
    }

    /// Checks up to a chunk of a branch; says whether the branch is finished.
    fn check_chunk(&mut self, tx: &mut dyn Tx, branch: &BranchFacts) -> Result<bool> {
        let (mut next, mut parent) = match self.at {
            Some((depth, hash)) => (depth + 1, hash),
            None => match self.parent_hash(tx, branch)? {
                Some(hash) => (branch.base, hash),
                None => {
                    self.broken(branch, branch.base, "the item that the branch continues is missing");
                    return Ok(true);
                }
            },
        };
        let rows = Self::load(tx, branch, next)?;
        let full = i64::try_from(rows.len()).ok() == Some(CHUNK);
        for item in rows {
            let item = match item {
                Ok(item) => item,
                Err(damage) => {
                    self.broken(branch, next, damage);
                    return Ok(true);
                }
            };
            let problem = item.check(&self.thread, next, parent);
            if let Some(problem) = problem {
                self.broken(branch, next, problem);
                return Ok(true);
            }
            self.at = Some((next, item.hash));
            self.verdict.items += 1;
            self.own_items += 1;
            (next, parent) = (next + 1, item.hash);
        }
        if full && next <= branch.tip {
            return Ok(false);
        }
        if next != branch.tip.saturating_add(1) {
            self.broken(branch, next, format!("the branch ends here; it was written up to depth {}", branch.tip));
        } else if parent != branch.tip_hash {
            self.broken(branch, branch.tip, "the tip has another hash than the one that was recorded");
        }
        Ok(true)
    }

    fn parent_hash(&self, tx: &mut dyn Tx, branch: &BranchFacts) -> Result<Option<Hash>> {
        match branch.parent {
            None => Ok(Some(chain::genesis(&self.thread))),
            Some(parent) => Ok(path::link_at(tx, parent)?.map(|(hash, _)| hash)),
        }
    }

    fn load(tx: &mut dyn Tx, branch: &BranchFacts, from: u32) -> Result<Vec<Result<Checked, String>>> {
        let range =
            [ItemKey::new(branch.key, from).0.into(), ItemKey::new(branch.key, branch.tip).0.into(), CHUNK.into()];
        let mut rows = Vec::new();
        tx.query(CHUNK_OF_BRANCH, &range, &mut |row| {
            rows.push(match read_checked(row) {
                Err(Error::Corrupt { place, detail }) => Err(format!("{place}: {detail}")),
                read => Ok(read?),
            });
            Ok(ControlFlow::Continue(()))
        })?;
        for row in rows.iter_mut().flatten() {
            row.load_payloads(tx)?;
        }
        Ok(rows)
    }

    fn conclude(&mut self) -> Verdict {
        let counted = self.own_items == self.witness.items || planted::is(Defect::VerifiesWithoutCount);
        if self.verdict.invalid.is_empty() && !counted {
            let reason = format!("{} items are stored, {} were written", self.own_items, self.witness.items);
            self.verdict.invalid.push(Break { branch: None, depth: None, reason });
        }
        if self.verdict.items > 0 {
            let words = "without a seal kept outside the store, a rewritten chain or an older copy of the whole store can't be told";
            self.verdict.not_provable.push(words.to_owned());
        }
        self.verdict.clone()
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
    tick: i64,
    created_at: Timestamp,
    sources: Vec<ItemId>,
    version: i64,
    salt: Option<[u8; 16]>,
    digest: Hash,
    pub(crate) hash: Hash,
    pub(crate) writer: Option<WriterId>,
    content: Option<Hash>,
}

impl Checked {
    fn digest_of(&self, content: &[u8]) -> Hash {
        let salt = self.salt.unwrap_or_default();
        chain::content_digest(&self.kind, self.role.as_ref(), &self.format, &salt, content)
    }

    /// Looks at content whose payloads are stored apart, which the scan could not.
    pub(crate) fn load_payloads(&mut self, tx: &mut dyn Tx) -> Result<()> {
        if self.content.is_none() && self.salt.is_some() {
            self.content = match load_spliced(tx, self.key) {
                Ok(content) => Some(self.digest_of(&content)),
                Err(Error::Corrupt { .. } | Error::NotFound { .. }) => None,
                Err(other) => return Err(other),
            };
        }
        Ok(())
    }

    /// Says what is wrong with the item, if anything is.
    pub(crate) fn check(&self, thread: &ThreadId, depth: u32, parent: Hash) -> Option<String> {
        if self.key.depth() != depth {
            return Some(format!("the item is missing; the next one stands at depth {}", self.key.depth()));
        }
        if self.version != chain::VERSION {
            return Some(format!("its chain version {} is not known here", self.version));
        }
        match self.content {
            None => {
                return Some("its content is missing or damaged, and no redaction is on record".to_owned());
            }
            Some(found) if found != self.digest && !planted::is(Defect::VerifiesWithoutContent) => {
                return Some("its content was changed".to_owned());
            }
            Some(_) => {}
        }
        let Some(writer) = self.writer else {
            return Some("its writer is not known".to_owned());
        };
        let hash = chain::item_hash(&Link {
            thread,
            parent,
            id: self.id,
            turn: self.turn,
            writer,
            epoch: self.epoch,
            tick: self.tick,
            created_at: self.created_at,
            digest: self.digest,
            sources: &self.sources,
        });
        let follows = hash == self.hash || planted::is(Defect::VerifiesWithoutHashes);
        (!follows).then(|| "its hash does not follow from its parent and its fields".to_owned())
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
    };
    if item.salt.is_some() {
        item.content = match row_content(row, 14, &mut |digest| Err(Error::not_found("blob", digest))) {
            Ok(content) => Some(item.digest_of(&content)),
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
    })
}

/// The verdicts of many threads, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Threads that were checked.
    pub threads: u64,
    /// Of these, valid ones.
    pub valid: u64,
    /// Items that were checked.
    pub items: u64,
    /// The breaks, by thread.
    pub invalid: BTreeMap<ThreadId, Vec<Break>>,
    /// What can't be proved, with the number of threads that it concerns.
    pub not_provable: BTreeMap<String, u64>,
}

impl VerifyReport {
    pub(crate) fn add(&mut self, verdict: Verdict) {
        self.threads += 1;
        self.items += verdict.items;
        for words in verdict.not_provable {
            *self.not_provable.entry(words).or_default() += 1;
        }
        if verdict.invalid.is_empty() {
            self.valid += 1;
        } else {
            self.invalid.insert(verdict.thread, verdict.invalid);
        }
    }
}
