//! Seals: signed statements of where threads stand, and the files that they leave the store in. Pure.
//!
//! A seal states *heads*: at that time this branch of this thread held an item with this hash at this depth. Items are
//! append-only, so what was stated once must hold for ever, unless the thread was purged, which is on record. Each seal names
//! the one before it, so that the newest one vouches for all. `docs/integrity.md` gives the byte layouts with vectors.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::chain::Preimage;
use crate::error::{Error, Result};
use crate::id::{BranchId, ItemId, ThreadId};
use crate::item::{Hash, Redaction, check_text};
use crate::keys::{Hex, KeyInfo, PublicKey};
use crate::planted::{self, Defect};
use crate::time::Timestamp;

const SEAL: &[u8] = b"threadkeep.seal.v1";
const HEADS: &[u8] = b"threadkeep.heads.v1";
const PURGE: &[u8] = b"threadkeep.purge.v1";
const REDACTION: &[u8] = b"threadkeep.redaction.v1";
/// The hash before the first one of a chain.
pub(crate) const NOTHING: Hash = Hash([0; 32]);
/// What the first line of a file of anchors says.
const ANCHORS: &str = "anchors";
const VERSION: i64 = 1;
/// No line that this version writes is longer.
const LINE_BYTES: u64 = 1 << 16;

/// A signed statement of where threads stand; what it states is in its [`SealedHead`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Its number in the store: 1, 2, 3, without a gap.
    pub number: i64,
    /// The hash of the seal before it; zeros for the first.
    pub prev: Hash,
    /// When it was made, by the clock of whoever made it.
    pub at: Timestamp,
    /// Whose signature it carries.
    pub key: PublicKey,
    /// How many heads it states.
    pub heads: i64,
    /// The hash of them.
    pub digest: Hash,
    /// How many purges and redactions are on record by then.
    pub purges: i64,
    /// The hash of the last of these records; zeros when there is none.
    pub purge_hash: Hash,
    /// The signature over the preimage.
    pub signature: Hex<64>,
}

/// Where a branch of a thread stood when it was sealed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SealedHead {
    /// The thread.
    pub thread: ThreadId,
    /// The item; `None` for a thread that had none.
    pub item: Option<SealedItem>,
    /// The thread's tick.
    pub tick: i64,
    /// The thread's epoch.
    pub epoch: i64,
}

/// An item that a seal states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SealedItem {
    /// Its branch.
    pub branch: BranchId,
    /// Its depth.
    pub depth: u32,
    /// Its hash.
    pub hash: Hash,
}

/// A purge on record: whatever was stated of the thread up to that epoch may be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeRecord {
    /// Its number in the store: 1, 2, 3, without a gap.
    pub number: i64,
    /// The hash of the record before it; zeros for the first.
    pub prev: Hash,
    /// The thread.
    pub thread: ThreadId,
    /// The thread's epoch when it was purged.
    pub epoch: i64,
    /// When that was.
    pub at: Timestamp,
}

/// A redaction on record: content may be missing, or stand there changed, because somebody took it away and said why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactionRecord {
    /// Its number in the store, which it shares with the purges: 1, 2, 3, without a gap.
    pub number: i64,
    /// The hash of the record before it; zeros for the first.
    pub prev: Hash,
    /// The thread.
    pub thread: ThreadId,
    /// The item; `None` for what the thread has beside its items: metadata, labels, what was kept of imported files.
    pub item: Option<RedactedItem>,
    /// The digest of what stands in the content's place, under the salt that stands beside it; `None` when nothing does.
    pub replacement: Option<Hash>,
    /// The rule that found what was taken away.
    pub rule: Option<String>,
    /// Who took it away.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// The item that a redaction is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactedItem {
    /// Its branch.
    pub branch: BranchId,
    /// Its depth.
    pub depth: u32,
    /// Its id.
    pub id: ItemId,
    /// The digest of the content that it was written with, which its hash binds.
    pub digest: Hash,
}

/// Something that was taken away on purpose, in the one order in which that happened in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A thread, as far as no other reaches it.
    Purge(PurgeRecord),
    /// Content.
    Redaction(RedactionRecord),
}

impl Seal {
    /// The next seal of a store, signed.
    pub(crate) fn sign(store: Uuid, draft: SealDraft, key: &SigningKey) -> Self {
        let mut seal = Self {
            number: draft.number,
            prev: draft.prev,
            at: draft.at,
            key: PublicKey::of(key),
            heads: draft.heads,
            digest: draft.digest,
            purges: draft.purges,
            purge_hash: draft.purge_hash,
            signature: Hex([0; 64]),
        };
        seal.signature = Hex(key.sign(&seal.preimage(store)).to_bytes());
        seal
    }

    /// What the next seal names.
    pub fn hash(&self, store: Uuid) -> Hash {
        Hash::of(&self.preimage(store))
    }

    /// Whether the signature is that of its key.
    pub fn is_signed(&self, store: Uuid) -> bool {
        let signature = Signature::from_bytes(&self.signature.0);
        VerifyingKey::from_bytes(&self.key.0.0)
            .is_ok_and(|key| key.verify_strict(&self.preimage(store), &signature).is_ok())
    }

    /// The bytes that are signed.
    fn preimage(&self, store: Uuid) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        lp(&mut bytes, SEAL);
        lp(&mut bytes, store.as_bytes());
        bytes.extend(self.number.to_le_bytes());
        lp(&mut bytes, &self.prev.0);
        bytes.extend(self.at.0.to_le_bytes());
        lp(&mut bytes, &self.key.0.0);
        bytes.extend(self.heads.to_le_bytes());
        lp(&mut bytes, &self.digest.0);
        bytes.extend(self.purges.to_le_bytes());
        lp(&mut bytes, &self.purge_hash.0);
        bytes
    }
}

/// What is signed, before it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SealDraft {
    pub(crate) number: i64,
    pub(crate) prev: Hash,
    pub(crate) at: Timestamp,
    pub(crate) heads: i64,
    pub(crate) digest: Hash,
    pub(crate) purges: i64,
    pub(crate) purge_hash: Hash,
}

impl PurgeRecord {
    /// What the next record names.
    pub fn hash(&self, store: Uuid) -> Hash {
        let mut preimage = Preimage::new(PURGE);
        preimage.lp(store.as_bytes());
        preimage.int(self.number);
        preimage.lp(&self.prev.0);
        preimage.lp(self.thread.as_str().as_bytes());
        preimage.int(self.epoch);
        preimage.int(self.at.0);
        preimage.finish()
    }
}

impl RedactionRecord {
    /// What the next record names.
    pub fn hash(&self, store: Uuid) -> Hash {
        let mut preimage = Preimage::new(REDACTION);
        preimage.lp(store.as_bytes());
        preimage.int(self.number);
        preimage.lp(&self.prev.0);
        preimage.lp(self.thread.as_str().as_bytes());
        preimage.opt(self.item, |preimage, item| {
            preimage.lp(item.branch.as_bytes());
            preimage.int(i64::from(item.depth));
            preimage.lp(item.id.as_bytes());
            preimage.lp(&item.digest.0);
        });
        preimage.opt(self.replacement, |preimage, digest| preimage.lp(&digest.0));
        preimage.opt(self.rule.as_ref(), |preimage, rule| preimage.lp(rule.as_bytes()));
        preimage.lp(self.by.as_bytes());
        preimage.lp(self.reason.as_bytes());
        preimage.int(self.at.0);
        preimage.finish()
    }
}

/// Refuses words that no record holds: a line of an anchors file must stay short.
pub(crate) fn check_grounds(by: &str, reason: &str, rule: Option<&str>) -> Result<()> {
    if reason.trim().is_empty() {
        return Err(Error::invalid("reason", "it is empty; say why the content is taken away"));
    }
    check_text("reason", reason, 4 << 10)?;
    check_text("by", by, 512)?;
    rule.map_or(Ok(()), |rule| check_text("rule", rule, 256))
}

impl From<&RedactionRecord> for Redaction {
    fn from(record: &RedactionRecord) -> Self {
        Self {
            by: record.by.clone(),
            at: record.at,
            reason: record.reason.clone(),
            rule: record.rule.clone(),
            masked: record.replacement.is_some(),
        }
    }
}

impl Record {
    /// Its number in the store.
    pub fn number(&self) -> i64 {
        match self {
            Self::Purge(purge) => purge.number,
            Self::Redaction(redaction) => redaction.number,
        }
    }

    /// The hash of the record before it.
    pub fn prev(&self) -> Hash {
        match self {
            Self::Purge(purge) => purge.prev,
            Self::Redaction(redaction) => redaction.prev,
        }
    }

    /// What the next record names.
    pub fn hash(&self, store: Uuid) -> Hash {
        match self {
            Self::Purge(purge) => purge.hash(store),
            Self::Redaction(redaction) => redaction.hash(store),
        }
    }

    /// What it is, for people: with the thread that it concerns.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Purge(purge) => format!("purge {} of {}", purge.number, purge.thread),
            Self::Redaction(redaction) => format!("redaction {} in {}", redaction.number, redaction.thread),
        }
    }
}

/// The hash of the heads that a seal states, in the order of their threads and branches.
pub fn digest_of_heads(heads: &[SealedHead]) -> Hash {
    let mut preimage = Preimage::new(HEADS);
    preimage.len(heads.len());
    for head in heads {
        preimage.lp(head.thread.as_str().as_bytes());
        preimage.opt(head.item, |preimage, item| {
            preimage.lp(item.branch.as_bytes());
            preimage.int(i64::from(item.depth));
            preimage.lp(&item.hash.0);
        });
        preimage.int(head.tick);
        preimage.int(head.epoch);
    }
    preimage.finish()
}

/// Checks seals one after the other: that none is missing, none was changed, and each states what it signs for.
#[derive(Debug, Clone)]
pub(crate) struct SealCheck {
    store: Uuid,
    next: i64,
    prev: Hash,
}

impl SealCheck {
    pub(crate) fn new(store: Uuid) -> Self {
        Self { store, next: 1, prev: NOTHING }
    }

    /// Says what is wrong with the next seal, if anything is. `record` is the hash of the last record that it vouches for.
    pub(crate) fn check(&mut self, seal: &Seal, heads: &[SealedHead], record: Option<Hash>) -> Option<String> {
        let (expected, prev) = (self.next, self.prev);
        (self.next, self.prev) = (seal.number + 1, seal.hash(self.store));
        if seal.number != expected {
            return Some(format!("seal {expected} is missing"));
        }
        if seal.prev != prev {
            return Some("it does not follow from the seal before it".to_owned());
        }
        if !seal.is_signed(self.store) && !planted::is(Defect::VerifiesWithoutSignatures) {
            return Some("its signature does not hold".to_owned());
        }
        let is_as_signed =
            usize::try_from(seal.heads).ok() == Some(heads.len()) && digest_of_heads(heads) == seal.digest;
        if !is_as_signed && !planted::is(Defect::VerifiesWithoutSealDigests) {
            return Some("what it states was changed".to_owned());
        }
        if record != Some(seal.purge_hash) {
            return Some("the record of purges and redactions that it vouches for was changed".to_owned());
        }
        None
    }
}

/// Checks the record of purges and redactions: that none is missing or was changed. Gives the hash of each, zeros first, or what
/// is wrong.
pub(crate) fn check_records(store: Uuid, records: &[Record]) -> Result<Vec<Hash>, String> {
    let mut hashes = vec![NOTHING];
    for (index, record) in records.iter().enumerate() {
        let last = hashes.last().copied().unwrap_or(NOTHING);
        if i64::try_from(index + 1).ok() != Some(record.number()) || record.prev() != last {
            return Err(format!("{} does not follow from the record before it", record.words()));
        }
        hashes.push(record.hash(store));
    }
    Ok(hashes)
}

/// Seals with all that they state, as they are kept outside of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchors {
    /// The store that they are of.
    pub store: Uuid,
    /// The public keys that signed, and what vouches for them.
    pub keys: Vec<KeyInfo>,
    /// All seals, in order.
    pub seals: Vec<Seal>,
    /// What they state, by the number of the seal.
    pub heads: BTreeMap<i64, Vec<SealedHead>>,
    /// The purges and redactions on record.
    pub records: Vec<Record>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    threadkeep: String,
    version: i64,
    store: Uuid,
}

/// A line of a file of anchors but the first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Key(KeyInfo),
    Seal(Seal),
    Head {
        seal: i64,
        #[serde(flatten)]
        head: SealedHead,
    },
    Purge(PurgeRecord),
    Redaction(RedactionRecord),
}

impl Anchors {
    /// Reads a file of anchors and checks it: every signature, every link, every digest.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the line or the seal that is wrong; [`Error::Io`].
    pub fn read(name: &str, input: &mut dyn BufRead) -> Result<Self> {
        let mut anchors: Option<Self> = None;
        let mut number = 0_u64;
        loop {
            let mut line = Vec::new();
            number += 1;
            let mut bounded = std::io::Read::take(&mut *input, LINE_BYTES);
            let read = bounded.read_until(b'\n', &mut line);
            let read = read.map_err(|error| Error::io("read", name.as_ref(), &error))?;
            if read == 0 {
                break;
            }
            let wrong = |detail: String| Error::corrupt(format!("{name}:{number}"), detail);
            if line.last() != Some(&b'\n') {
                return Err(wrong("the line is cut, or longer than any".to_owned()));
            }
            match &mut anchors {
                None => anchors = Some(Self::begin(&line).map_err(wrong)?),
                Some(anchors) => anchors.add(&line).map_err(|error| wrong(error.to_string()))?,
            }
        }
        let anchors = anchors.ok_or_else(|| Error::corrupt(name, "it is empty"))?;
        anchors.check().map_err(|detail| Error::corrupt(name, detail))?;
        Ok(anchors)
    }

    fn begin(line: &[u8]) -> Result<Self, String> {
        let header: Header = serde_json::from_slice(line).map_err(|_| "it is no file of anchors".to_owned())?;
        if header.threadkeep != ANCHORS {
            return Err(format!("it holds {}, no anchors", header.threadkeep));
        }
        if header.version != VERSION {
            return Err(format!("its version {} is not known here", header.version));
        }
        Ok(Self::of(header.store))
    }

    pub(crate) fn of(store: Uuid) -> Self {
        let (keys, seals, records) = (Vec::new(), Vec::new(), Vec::new());
        Self { store, keys, seals, heads: BTreeMap::new(), records }
    }

    fn add(&mut self, line: &[u8]) -> serde_json::Result<()> {
        match serde_json::from_slice(line)? {
            Line::Key(key) => self.keys.push(key),
            Line::Seal(seal) => self.seals.push(seal),
            Line::Head { seal, head } => self.heads.entry(seal).or_default().push(head),
            Line::Purge(purge) => self.records.push(Record::Purge(purge)),
            Line::Redaction(redaction) => self.records.push(Record::Redaction(redaction)),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let records = check_records(self.store, &self.records)?;
        let mut check = SealCheck::new(self.store);
        for seal in &self.seals {
            let heads = self.heads.get(&seal.number).map_or(&[][..], Vec::as_slice);
            let record = usize::try_from(seal.purges).ok().and_then(|number| records.get(number)).copied();
            if let Some(problem) = check.check(seal, heads, record) {
                return Err(format!("seal {}: {problem}", seal.number));
            }
        }
        let numbers: BTreeSet<i64> = self.seals.iter().map(|seal| seal.number).collect();
        match self.heads.keys().find(|seal| !numbers.contains(seal)) {
            Some(seal) => Err(format!("seal {seal} is missing")),
            None => Ok(()),
        }
    }

    /// Writes them as lines of JSON.
    ///
    /// # Errors
    /// As the writer's.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let header = Header { threadkeep: ANCHORS.to_owned(), version: VERSION, store: self.store };
        serde_json::to_writer(&mut *out, &header)?;
        out.write_all(b"\n")?;
        self.write_lines(out)
    }

    /// Writes all lines but the first.
    pub(crate) fn write_lines(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut line = |line: &Line| {
            serde_json::to_writer(&mut *out, line)?;
            out.write_all(b"\n")
        };
        for key in &self.keys {
            line(&Line::Key(key.clone()))?;
        }
        for record in &self.records {
            line(&match record {
                Record::Purge(purge) => Line::Purge(purge.clone()),
                Record::Redaction(redaction) => Line::Redaction(redaction.clone()),
            })?;
        }
        for seal in &self.seals {
            line(&Line::Seal(seal.clone()))?;
            for head in self.heads.get(&seal.number).into_iter().flatten() {
                line(&Line::Head { seal: seal.number, head: head.clone() })?;
            }
        }
        Ok(())
    }

    /// The newest seal: its number, its hash and its time.
    pub fn newest(&self) -> Option<(i64, Hash, Timestamp)> {
        self.seals.last().map(|seal| (seal.number, seal.hash(self.store), seal.at))
    }

    /// Whether these end where the others went on from: all of their seals are here.
    pub fn extends(&self, others: &Self) -> bool {
        self.store == others.store && self.seals.starts_with(&others.seals)
    }
}

fn lp(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u64).to_le_bytes());
    bytes.extend(part);
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use uuid::Uuid;

    use super::{
        Anchors, NOTHING, PurgeRecord, Record, RedactedItem, RedactionRecord, Seal, SealDraft, SealedHead, SealedItem,
        digest_of_heads,
    };
    use crate::error::Error;
    use crate::id::{ItemId, ThreadId};
    use crate::item::Hash;
    use crate::keys::KeyInfo;
    use crate::time::Timestamp;

    const STORE: Uuid = Uuid::from_bytes([4; 16]);
    const AT: Timestamp = Timestamp(1_767_323_045_678);

    fn anchors() -> Anchors {
        let key = SigningKey::from_bytes(&[5; 32]);
        let thread = ThreadId::new("kat-thread").unwrap();
        let branch = ItemId::from_uuid(Uuid::from_bytes([1; 16]));
        let item = Some(SealedItem { branch, depth: 6, hash: Hash([8; 32]) });
        let empty = SealedHead { thread: ThreadId::new("kat-empty").unwrap(), item: None, tick: 1, epoch: 0 };
        let heads = vec![empty, SealedHead { thread, item, tick: 5, epoch: 4 }];
        let purged = ThreadId::new("kat-purged").unwrap();
        let purge = PurgeRecord { number: 1, prev: NOTHING, thread: purged, epoch: 2, at: AT };
        let mut anchors = Anchors::of(STORE);
        let draft = SealDraft {
            number: 1,
            prev: NOTHING,
            at: AT,
            heads: 2,
            digest: digest_of_heads(&heads),
            purges: 1,
            purge_hash: purge.hash(STORE),
        };
        let first = Seal::sign(STORE, draft, &key);
        let digest = digest_of_heads(&[]);
        let redacted = RedactionRecord {
            number: 2,
            prev: purge.hash(STORE),
            thread: ThreadId::new("kat-thread").unwrap(),
            item: Some(RedactedItem { branch, depth: 5, id: branch, digest: Hash([9; 32]) }),
            replacement: None,
            rule: Some("kat-rule".to_owned()),
            by: "kat".to_owned(),
            reason: "a key was pasted".to_owned(),
            at: AT,
        };
        let second = SealDraft {
            number: 2,
            prev: first.hash(STORE),
            heads: 0,
            digest,
            purges: 2,
            purge_hash: redacted.hash(STORE),
            ..draft
        };
        anchors.keys.push(KeyInfo::plain(&key, AT));
        anchors.seals.extend([first, Seal::sign(STORE, second, &key)]);
        anchors.heads.insert(1, heads);
        anchors.records.extend([Record::Purge(purge), Record::Redaction(redacted)]);
        anchors
    }

    fn lines(anchors: &Anchors) -> String {
        let mut out = Vec::new();
        anchors.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The vectors of `docs/integrity.md`: whoever changes a preimage breaks every seal that was ever made.
    #[test]
    fn known_answers() {
        let anchors = anchors();
        let seal = &anchors.seals[0];
        let values = [
            ("key id", anchors.keys[0].id.clone()),
            ("public key", seal.key.to_string()),
            ("heads", seal.digest.to_string()),
            ("purge", seal.purge_hash.to_string()),
            ("redaction", anchors.records[1].hash(STORE).to_string()),
            ("seal", seal.hash(STORE).to_string()),
            ("signature", seal.signature.to_string()),
        ];
        let docs = include_str!("../../../docs/integrity.md");
        let missing: Vec<_> = values.iter().filter(|(_, value)| !docs.contains(value.as_str())).collect();
        assert!(missing.is_empty(), "docs/integrity.md lacks {missing:#?}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let anchors = anchors();
        assert_eq!(Anchors::read("file", &mut lines(&anchors).as_bytes()).unwrap(), anchors);
        assert_eq!(anchors.newest().map(|(number, ..)| number), Some(2));
    }

    #[test]
    fn every_change_of_a_line_is_found() {
        let text = lines(&anchors());
        let whole: Vec<&str> = text.lines().collect();
        let refused = |text: String| matches!(Anchors::read("f", &mut text.as_bytes()), Err(Error::Corrupt { .. }));
        // A key that is only named is not what is signed; each other line is.
        for dropped in (0..whole.len()).filter(|at| !whole[*at].starts_with("{\"key\"")) {
            let rest: Vec<&str> = whole.iter().enumerate().filter(|(at, _)| *at != dropped).map(|(_, l)| *l).collect();
            let is_last = dropped + 1 == whole.len();
            assert_eq!(refused(rest.join("\n") + "\n"), !is_last, "line {dropped}: {}", whole[dropped]);
        }
        let edits = [
            ("\"depth\":6", "\"depth\":5"),
            ("kat-thread", "kat-other"),
            ("\"tick\":5", "\"tick\":6"),
            ("\"epoch\":2", "\"epoch\":3"),
            ("\"purges\":1", "\"purges\":0"),
            ("a key was pasted", "a key was posted"),
            ("\"depth\":5", "\"depth\":4"),
            ("\"number\":2", "\"number\":3"),
            ("\"at\":1767323045678,\"key\"", "\"at\":1767323045679,\"key\""),
        ];
        for (from, to) in edits {
            assert!(text.contains(from), "{from} is in no line");
            assert!(refused(text.replacen(from, to, 1)), "{from} became {to}");
        }
        assert!(refused(text.trim_end().to_owned()), "the last line is cut");
    }
}
