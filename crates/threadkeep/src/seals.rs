//! Seals as they are stored, and what they say of a thread.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ed25519_dalek::SigningKey;
use uuid::Uuid;

use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId};
use crate::item::Hash;
use crate::keys::{Hex, LastSeal, PublicKey};
use crate::log::{order, path};
use crate::records;
use crate::seal::{NOTHING, Seal, SealDraft, SealedHead, SealedItem, digest_of_heads};
use crate::time::Timestamp;

/// How many heads one seal states; where there are more, more seals are made.
pub(crate) const MOST_HEADS: usize = 2_000;

statements! {
    NEWEST = "SELECT number, hash FROM seals ORDER BY number DESC LIMIT 1";
    SEAL_HASH = "SELECT hash FROM seals WHERE number = ?1";
    SEALS = "SELECT number, prev, sealed_at, public_key, heads, digest, purges, purge_hash, signature, hash FROM seals
        WHERE number > ?1 ORDER BY number LIMIT ?2";
    HEADS = "SELECT thread, branch, depth, hash, tick, epoch FROM seal_heads WHERE seal = ?1 ORDER BY thread, branch";
    STATED = "SELECT h.thread, h.branch, h.depth, h.hash, h.tick, h.epoch, h.seal, s.public_key FROM seal_heads h
        JOIN seals s ON s.number = h.seal WHERE h.thread = ?1 ORDER BY h.seal, h.branch";
    NEWEST_NAMED = "SELECT number, hash, sealed_at, public_key FROM seals ORDER BY number DESC LIMIT 1";
    IS_THERE = "SELECT 1 FROM threads WHERE id = ?1 AND NOT (shelf = 3 AND status = 'purging')";
    PUT_SEAL = "INSERT INTO seals (number, prev, hash, sealed_at, public_key, heads, digest, purges, purge_hash, signature)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    PUT_SEALED_HEAD = "INSERT INTO seal_heads (seal, thread, branch, depth, hash, tick, epoch) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    THREADS_TO_SEAL = "SELECT id FROM threads WHERE shelf < 3 AND id > ?1 ORDER BY id LIMIT ?2";
    STANDING_OF = "SELECT tick, epoch, fork_item, head, head_hash, head_is_tip FROM threads WHERE id = ?1 AND shelf < 3";
    TIPS = "SELECT key, id, tip, tip_hash FROM branches WHERE thread = ?1 ORDER BY key";
    GONE = "SELECT DISTINCT h.thread FROM seal_heads h WHERE h.thread > ?1 AND NOT EXISTS (SELECT 1 FROM threads t
        WHERE t.id = h.thread AND NOT (t.shelf = 3 AND t.status = 'purging')) ORDER BY h.thread LIMIT ?2";
}

/// What a seal says of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stated {
    pub(crate) seal: i64,
    pub(crate) key: PublicKey,
    pub(crate) head: SealedHead,
}

/// What is known of the seals when a thread is verified.
#[derive(Debug, Clone)]
pub(crate) struct Witnesses {
    /// Whether something outside of the database says how new it must be, and it is.
    pub(crate) anchored: bool,
    /// The keys whose seals are believed.
    pub(crate) trusted: HashSet<PublicKey>,
    /// The newest seal of the store that was looked at; those that were made since are left for the next time.
    pub(crate) upto: i64,
    /// Seals of the store that do not hold; what they state counts for nothing.
    pub(crate) bad: BTreeSet<i64>,
    /// How many records of purges and redactions a seal vouches for that holds and is believed.
    pub(crate) sealed_records: i64,
    /// What seals outside of the store state.
    pub(crate) outside: BTreeMap<ThreadId, Vec<Stated>>,
}

impl Default for Witnesses {
    fn default() -> Self {
        let (trusted, bad, outside) = (HashSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { anchored: false, trusted, upto: i64::MAX, bad, sealed_records: 0, outside }
    }
}

/// What is stated of a thread: the newest of each branch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statements {
    pub(crate) stated: Vec<Stated>,
    /// The thread's last purge: its number and the epoch up to which it explains what is missing.
    pub(crate) purged: Option<(i64, i64)>,
}

impl Statements {
    /// Whether what was stated may be gone, since the thread was purged later.
    pub(crate) fn explains(&self, stated: &Stated) -> bool {
        self.purged.is_some_and(|(_, epoch)| stated.head.epoch <= epoch)
    }
}

/// The newest seal of the store.
pub(crate) fn newest(tx: &mut dyn Tx) -> Result<Option<(i64, Hash)>> {
    query_one(tx, NEWEST, &[], |row| Ok((row.int(0)?, hash(row, 1)?)))
}

/// The hash of the store's seal of this number.
pub(crate) fn hash_of(tx: &mut dyn Tx, number: i64) -> Result<Option<Hash>> {
    query_one(tx, SEAL_HASH, &[number.into()], |row| hash(row, 0))
}

/// The seals after a number, with the hashes that are stored beside them.
pub(crate) fn seals(tx: &mut dyn Tx, after: i64, limit: i64) -> Result<Vec<(Seal, Hash)>> {
    query_all(tx, SEALS, &[after.into(), limit.into()], |row| {
        let seal = Seal {
            number: row.int(0)?,
            prev: hash(row, 1)?,
            at: Timestamp(row.int(2)?),
            key: key(row, 3)?,
            heads: row.int(4)?,
            digest: hash(row, 5)?,
            purges: row.int(6)?,
            purge_hash: hash(row, 7)?,
            signature: Hex(row.parse(8, row.blob(8)?.try_into().ok(), "64 bytes of a signature")?),
        };
        Ok((seal, hash(row, 9)?))
    })
}

/// What a seal states, in the order in which it was signed.
pub(crate) fn heads(tx: &mut dyn Tx, seal: i64) -> Result<Vec<SealedHead>> {
    query_all(tx, HEADS, &[seal.into()], read_head)
}

/// A page of the threads that can be sealed, after an id.
pub(crate) fn threads(tx: &mut dyn Tx, after: &str, limit: i64) -> Result<Vec<ThreadId>> {
    query_all(tx, THREADS_TO_SEAL, &[after.into(), limit.into()], read_thread)
}

/// A page of the threads that seals state and that are not there, after an id.
pub(crate) fn gone(tx: &mut dyn Tx, after: &str, limit: i64) -> Result<Vec<ThreadId>> {
    query_all(tx, GONE, &[after.into(), limit.into()], read_thread)
}

/// Which of these threads are not there.
pub(crate) fn absent(tx: &mut dyn Tx, threads: &[ThreadId]) -> Result<Vec<ThreadId>> {
    let mut absent = Vec::new();
    for thread in threads {
        if query_one(tx, IS_THERE, &[thread.as_str().into()], |_| Ok(()))?.is_none() {
            absent.push(thread.clone());
        }
    }
    Ok(absent)
}

/// The newest seal, with its time and its key.
pub(crate) fn newest_named(tx: &mut dyn Tx) -> Result<Option<(i64, Hash, Timestamp, PublicKey)>> {
    query_one(tx, NEWEST_NAMED, &[], |row| Ok((row.int(0)?, hash(row, 1)?, Timestamp(row.int(2)?), key(row, 3)?)))
}

/// What there is to state of a thread that no seal states yet.
pub(crate) fn unsealed(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<SealedHead>> {
    let statements = statements_of(tx, thread, &Witnesses::default())?;
    let is_new = |head: &SealedHead| {
        !statements.stated.iter().any(|stated| stated.head.item == head.item && !statements.explains(stated))
    };
    let mut heads = standing(tx, thread)?;
    heads.retain(is_new);
    Ok(heads)
}

/// Where a thread stands: the tip of each branch that it wrote, and where it was forked; in the order of their branches.
fn standing(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<SealedHead>> {
    let id = [thread.as_str().into()];
    let found = query_one(tx, STANDING_OF, &id, |row| {
        let hash = row.opt_blob(4)?.and_then(Hash::from_slice);
        let tip = row.opt_int(3)?.map(ItemKey).zip(hash);
        let tip = if row.int(5)? == 1 { tip } else { None };
        Ok((row.int(0)?, row.int(1)?, row.opt_int(2)?.map(ItemKey), tip))
    })?;
    let Some((tick, epoch, fork, head)) = found else { return Ok(Vec::new()) };
    let mut items = query_all(tx, TIPS, &id, |row| {
        let branch = row.parse(1, ItemId::from_slice(row.blob(1)?), "16 bytes of an id")?;
        Ok(match head.filter(|(key, _)| row.int(0).is_ok_and(|number| number == key.branch())) {
            // The row's tip is written when the head leaves it.
            Some((key, hash)) => SealedItem { branch, depth: key.depth(), hash },
            None => SealedItem { branch, depth: path::depth(row, 2)?, hash: hash(row, 3)? },
        })
    })?;
    if let Some(fork) = fork
        && let Some((hash, _)) = path::link_at(tx, fork)?
    {
        let Address { branch, depth } = path::address_of(tx, fork)?;
        items.push(SealedItem { branch, depth, hash });
    }
    items.sort_unstable();
    items.dedup_by_key(|item| item.branch);
    let head = |item| SealedHead { thread: thread.clone(), item, tick, epoch };
    Ok(match items.is_empty() {
        true => vec![head(None)],
        false => items.into_iter().map(|item| head(Some(item))).collect(),
    })
}

/// Signs and stores the next seal. `remembered` is the newest one that was made of this store with these keys.
///
/// # Errors
/// [`Error::Conflict`] when the store lacks that one: it is an older copy.
pub(crate) fn put(
    tx: &mut dyn Tx,
    store: Uuid,
    at: Timestamp,
    heads: &[SealedHead],
    key: &SigningKey,
    remembered: Option<&LastSeal>,
) -> Result<LastSeal> {
    order::line_up(tx)?;
    if let Some(remembered) = remembered
        && hash_of(tx, remembered.number)? != Some(remembered.hash)
    {
        return Err(older_copy(tx, remembered)?);
    }
    let (number, prev) = newest(tx)?.unwrap_or((0, NOTHING));
    let (purges, purge_hash) = records::last(tx)?;
    let draft = SealDraft {
        number: number + 1,
        prev,
        at,
        heads: i64::try_from(heads.len()).unwrap_or(i64::MAX),
        digest: digest_of_heads(heads),
        purges,
        purge_hash,
    };
    let seal = Seal::sign(store, draft, key);
    let hash = seal.hash(store);
    let args = [
        seal.number.into(),
        Value::Blob(&seal.prev.0),
        Value::Blob(&hash.0),
        seal.at.0.into(),
        Value::Blob(&seal.key.0.0),
        seal.heads.into(),
        Value::Blob(&seal.digest.0),
        seal.purges.into(),
        Value::Blob(&seal.purge_hash.0),
        Value::Blob(&seal.signature.0),
    ];
    tx.execute(PUT_SEAL, &args)?;
    for head in heads {
        put_head(tx, seal.number, head)?;
    }
    Ok(LastSeal { store, number: seal.number, hash, at })
}

fn put_head(tx: &mut dyn Tx, seal: i64, head: &SealedHead) -> Result<()> {
    let (branch, depth, hash) = match &head.item {
        Some(item) => (item.branch.as_bytes().as_slice(), i64::from(item.depth), item.hash.0.as_slice()),
        None => (&[][..], -1, &[][..]),
    };
    let args = [
        seal.into(),
        head.thread.as_str().into(),
        branch.into(),
        depth.into(),
        hash.into(),
        head.tick.into(),
        head.epoch.into(),
    ];
    tx.execute(PUT_SEALED_HEAD, &args).map(drop)
}

fn older_copy(tx: &mut dyn Tx, remembered: &LastSeal) -> Result<Error> {
    let found = match newest(tx)? {
        Some((number, _)) => format!("seals up to {number}, without that one"),
        None => "no seal".to_owned(),
    };
    let expected = format!("seal {} of {}, the newest that was made with these keys", remembered.number, remembered.at);
    Ok(Error::Conflict { what: "seal", expected, found })
}

/// What the seals of the store that hold, and those outside of it, state of a thread.
pub(crate) fn statements_of(tx: &mut dyn Tx, thread: &ThreadId, witnesses: &Witnesses) -> Result<Statements> {
    let id = [thread.as_str().into()];
    let inside =
        query_all(tx, STATED, &id, |row| Ok(Stated { head: read_head(row)?, seal: row.int(6)?, key: key(row, 7)? }));
    let inside = match inside {
        // Whoever checks the seals reads the same rows, and tells it there.
        Err(Error::Corrupt { .. }) => Vec::new(),
        inside => inside?,
    };
    let inside =
        inside.into_iter().filter(|stated| stated.seal <= witnesses.upto && !witnesses.bad.contains(&stated.seal));
    let outside = witnesses.outside.get(thread).into_iter().flatten().cloned();
    let marked = outside.map(|stated| (true, stated)).chain(inside.map(|stated| (false, stated)));
    // The last one of each branch says what those before it said. None takes the place of one from elsewhere, or of one whose
    // key is believed while its own is not.
    let newest: BTreeMap<_, _> = marked
        .map(|(is_outside, stated)| {
            let branch = stated.head.item.map(|item| item.branch);
            ((branch, is_outside, witnesses.trusted.contains(&stated.key)), stated)
        })
        .collect();
    let purged = records::purge_of(tx, thread)?;
    Ok(Statements { stated: newest.into_values().collect(), purged })
}

fn read_head(row: &Row<'_>) -> Result<SealedHead> {
    let branch = row.blob(1)?;
    let item = match branch.is_empty() {
        true => None,
        false => Some(SealedItem {
            branch: row.parse(1, ItemId::from_slice(branch), "16 bytes of an id")?,
            depth: path::depth(row, 2)?,
            hash: hash(row, 3)?,
        }),
    };
    Ok(SealedHead { thread: read_thread(row)?, item, tick: row.int(4)?, epoch: row.int(5)? })
}

fn read_thread(row: &Row<'_>) -> Result<ThreadId> {
    row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
}

fn hash(row: &Row<'_>, column: usize) -> Result<Hash> {
    row.parse(column, Hash::from_slice(row.blob(column)?), "a hash")
}

fn key(row: &Row<'_>, column: usize) -> Result<PublicKey> {
    let bytes = row.parse(column, row.blob(column)?.try_into().ok(), "32 bytes of a key")?;
    Ok(PublicKey(Hex(bytes)))
}
