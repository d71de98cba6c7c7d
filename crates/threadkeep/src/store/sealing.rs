//! Sealing: signing where threads stand, and taking the seals out of the store.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Inner, Store};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::item::Hash;
use crate::keys::{Key, KeyFolder, LastSeal, PublicKey};
use crate::log::proof;
use crate::records;
use crate::seal::{Anchors, SealedHead};
use crate::seals::{self, MOST_HEADS};
use crate::time::Timestamp;

/// How many threads are looked at in one read.
const PAGE: i64 = 500;

/// What sealing did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SealReport {
    /// How many seals were made; none when all that was asked for is sealed already.
    pub seals: u64,
    /// How many threads were looked at.
    pub threads: u64,
    /// How many branches were stated that no seal stated as they are.
    pub heads: u64,
    /// The newest seal of the store.
    pub newest: Option<Sealed>,
}

/// A seal by its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sealed {
    /// Its number.
    pub number: i64,
    /// Its hash.
    pub hash: Hash,
    /// When it was made.
    pub at: Timestamp,
    /// The name of the key that signed it.
    pub key: String,
}

impl Store {
    /// The folder of the keys that seals are signed with; `None` for a store in memory or on a server, unless one was named.
    pub fn keys(&self) -> Option<&KeyFolder> {
        self.inner.keys.as_ref()
    }

    /// Makes the first key.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] when there is one that signs; [`Error::Invalid`] when no folder for keys is known.
    pub fn create_key(&self) -> Result<Key> {
        self.inner.key_folder()?.create(&*self.inner.host)
    }

    /// Makes a new key, which the one that signs until now vouches for; that one's private part is deleted.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none; as [`Store::create_key`].
    pub fn rotate_key(&self) -> Result<Key> {
        self.inner.key_folder()?.rotate(&*self.inner.host)
    }

    /// Seals where threads stand, all of them when none is named. What is sealed already is not stated again.
    ///
    /// A seal is stored `Synced`; its number and hash are then noted in the folder of keys. Where there is much to state, several
    /// seals are made, each complete.
    ///
    /// # Errors
    /// [`Error::NotFound`] without a key; [`Error::Conflict`] when the store lacks the newest seal that was made with these keys:
    /// it is an older copy, which only `accept_older` goes on from.
    pub async fn seal(&self, threads: Option<&[ThreadId]>, accept_older: bool) -> Result<SealReport> {
        let scribe = Scribe::new(&self.inner, accept_older)?;
        match threads {
            Some(threads) => {
                for thread in threads {
                    self.get(thread).await?;
                }
                let threads: BTreeSet<ThreadId> = threads.iter().cloned().collect();
                scribe.seal(threads.into_iter().collect(), None).await
            }
            None => scribe.seal(Vec::new(), Some(String::new())).await,
        }
    }

    /// All seals of the store with all that they state: what is to be kept outside of it.
    ///
    /// # Errors
    /// As every read; [`Error::Corrupt`] names what can't be read.
    pub async fn anchors(&self) -> Result<Anchors> {
        let mut anchors = Anchors::of(self.id());
        let folder = self.inner.keys.as_ref().map(KeyFolder::list).transpose()?.unwrap_or_default();
        loop {
            let after = i64::try_from(anchors.records.len()).unwrap_or(i64::MAX);
            let page = self.inner.db.read(move |tx| records::page(tx, after, PAGE)).await?;
            if page.is_empty() {
                break;
            }
            anchors.records.extend(page);
        }
        loop {
            let after = anchors.seals.last().map_or(0, |seal| seal.number);
            let read = move |tx: &mut dyn Tx| {
                let page = seals::seals(tx, after, 16)?;
                page.into_iter().map(|(seal, _)| Ok((seals::heads(tx, seal.number)?, seal))).collect::<Result<Vec<_>>>()
            };
            let page = self.inner.db.read(read).await?;
            if page.is_empty() {
                break;
            }
            for (heads, seal) in page {
                anchors.heads.insert(seal.number, heads);
                anchors.seals.push(seal);
            }
        }
        anchors.heads.retain(|_, heads| !heads.is_empty());
        anchors.keys = folder.into_iter().map(|key| key.info).collect();
        Ok(anchors)
    }

    /// Writes a thread with every field that its chain binds, and all seals: lines of JSON by which it can be verified without
    /// this library. `docs/integrity.md` says how.
    ///
    /// # Errors
    /// As [`Store::anchors`]; as the writer's.
    pub async fn proof(&self, thread: &ThreadId, out: &mut (dyn Write + Send)) -> Result<()> {
        let mut line = |line: Value| {
            let written = serde_json::to_writer(&mut *out, &line).map_err(std::io::Error::from);
            written.and_then(|()| out.write_all(b"\n")).map_err(|error| unwritten(&error))
        };
        line(json!({"threadkeep": "proof", "version": 1, "store": self.id(), "thread": thread}))?;
        let branches = self.read(thread, proof::branches).await?;
        for branch in branches {
            line(json!({"branch": branch}))?;
            let mut next = 0;
            loop {
                let from = branch.clone();
                let page = self.inner.db.read(move |tx| proof::items(tx, &from, next)).await?;
                let Some(last) = page.last() else { break };
                next = last.depth + 1;
                page.iter().try_for_each(|item| line(json!({"item": item})))?;
            }
        }
        self.anchors().await?.write_lines(out).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &std::io::Error) -> Error {
    Error::io("write", "the proof".as_ref(), error)
}

impl Inner {
    /// Seals one thread, for whoever asked for that when a live thread is shut down.
    pub(crate) async fn seal_thread(self: &Arc<Self>, thread: &ThreadId) -> Result<()> {
        Scribe::new(self, false)?.seal(vec![thread.clone()], None).await.map(drop)
    }

    fn key_folder(&self) -> Result<&KeyFolder> {
        let reason = "this store has no folder for keys; name one";
        self.keys.as_ref().ok_or_else(|| Error::invalid("keys", reason))
    }

    /// What is to be told when the store is opened: that it is older than the newest seal that was made of it.
    pub(super) async fn notice_of_age(&self) -> Option<String> {
        let last = match self.keys.as_ref()?.last_seal(self.id) {
            Ok(last) => last?,
            Err(error) => return Some(format!("which seal is the newest can't be read: {error}")),
        };
        let (number, at) = (last.number, last.at);
        match self.db.read(move |tx| seals::hash_of(tx, number)).await {
            Ok(Some(hash)) if hash == last.hash => None,
            Ok(_) => Some(format!(
                "this is an older copy of the store: it lacks seal {number} of {at}, the newest that was made with its keys; what \
                 was written after that copy is missing here"
            )),
            Err(error) => Some(format!("the seals can't be read: {error}")),
        }
    }
}

/// Whoever signs.
struct Scribe<'a> {
    inner: &'a Arc<Inner>,
    folder: &'a KeyFolder,
    key: Arc<SigningKey>,
    accept_older: bool,
}

impl<'a> Scribe<'a> {
    fn new(inner: &'a Arc<Inner>, accept_older: bool) -> Result<Self> {
        if inner.read_only {
            return Err(Error::ReadOnly { detail: "it was opened for reading only".to_owned() });
        }
        let folder = inner.key_folder()?;
        let key = folder.active()?.ok_or_else(|| Error::not_found("key", folder.path().display()))?;
        Ok(Self { inner, folder, key: Arc::new(key), accept_older })
    }

    /// Seals these threads, and then those after an id.
    async fn seal(&self, mut threads: Vec<ThreadId>, mut after: Option<String>) -> Result<SealReport> {
        let mut report = SealReport { seals: 0, threads: 0, heads: 0, newest: None };
        let mut heads: Vec<SealedHead> = Vec::new();
        let mut newest = None;
        loop {
            if threads.is_empty()
                && let Some(last) = after.take()
            {
                threads = self.inner.db.read(move |tx| seals::threads(tx, &last, PAGE)).await?;
                after = threads.last().map(ToString::to_string);
            }
            if threads.is_empty() {
                break;
            }
            report.threads += threads.len() as u64;
            let page = std::mem::take(&mut threads);
            let read = move |tx: &mut dyn Tx| {
                let found: Result<Vec<_>> = page.iter().map(|thread| seals::unsealed(tx, thread)).collect();
                Ok(found?.concat())
            };
            heads.extend(self.inner.db.read(read).await?);
            while heads.len() >= MOST_HEADS {
                let rest = heads.split_off(MOST_HEADS);
                newest = Some(self.put(&mut report, std::mem::replace(&mut heads, rest)).await?);
            }
        }
        let has_records = self.inner.db.read(records::has_unsealed).await?;
        if !heads.is_empty() || (has_records && report.seals == 0) {
            newest = Some(self.put(&mut report, heads).await?);
        }
        report.newest = match newest {
            Some(last) => Some(self.named(&last)),
            None => self.inner.db.read(seals::newest_named).await?.map(|(number, hash, at, key)| Sealed {
                number,
                hash,
                at,
                key: key.id(),
            }),
        };
        Ok(report)
    }

    async fn put(&self, report: &mut SealReport, heads: Vec<SealedHead>) -> Result<LastSeal> {
        report.seals += 1;
        report.heads += heads.len() as u64;
        let goes_back = self.accept_older && report.seals == 1;
        let remembered = if goes_back { None } else { self.folder.last_seal(self.inner.id)? };
        let (store, key, now) = (self.inner.id, Arc::clone(&self.key), self.inner.host.now());
        let put = move |tx: &mut dyn Tx| seals::put(tx, store, now, &heads, &key, remembered.as_ref());
        let last = self.inner.db.write(Sync::Synced, put).await?;
        // Another program may have made a newer one meanwhile.
        let newest = self.folder.last_seal(self.inner.id)?.map_or(0, |last| last.number);
        if goes_back || newest < last.number {
            self.folder.remember(&*self.inner.host, last.clone())?;
        }
        Ok(last)
    }

    fn named(&self, last: &LastSeal) -> Sealed {
        Sealed { number: last.number, hash: last.hash, at: last.at, key: PublicKey::of(&self.key).id() }
    }
}
