//! Taking content out of items, and out of what is kept beside them. The digest stays, so the chain holds; the record says who,
//! when and why.
//!
//! An item is one row, whatever forks share it, so what is taken out of it is gone for all of them. Its salt goes too: a short
//! secret can't be found by guessing. The pages of the file still hold the bytes until [`crate::db::Db::erase`] has run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use uuid::Uuid;

use crate::chain;
use crate::changes::{self, Area, Note, Verb};
use crate::content::{self, Blob};
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId};
use crate::item::{Hash, Kind, Role};
use crate::log::read::{load_spliced, read_ids};
use crate::log::{blobs, path};
use crate::planted::{self, Defect};
use crate::receipt;
use crate::records;
use crate::seal::{RedactedItem, RedactionRecord};
use crate::secrets::{self, Masked, Rules};
use crate::time::Timestamp;

/// How many items are read at a time, and after how many bytes of content a page ends.
const PAGE: i64 = 200;
const PAGE_BYTES: i64 = 4 << 20;

statements! {
    ITEM_TO_REDACT = "SELECT i.id, i.kind, i.role, i.format, i.digest, i.encoding, i.salt, b.thread, b.id FROM items i
        JOIN branches b ON b.key = i.key >> 32 WHERE i.key = ?1";
    PUT_CONTENT = "UPDATE items SET salt = ?2, size = ?3, encoding = ?4, content = ?5 WHERE key = ?1";
    NEW_VERSION = "UPDATE threads SET version = version + 1 WHERE id = ?1";
    CHILD_BRANCHES = "SELECT key FROM branches WHERE parent BETWEEN ?1 AND ?2 ORDER BY key";
    OWNER_OF_BRANCH = "SELECT thread FROM branches WHERE key = ?1";
    FORK_ITEM = "SELECT fork_item FROM threads WHERE id = ?1";
    FORKED_HERE = "SELECT id FROM threads WHERE fork_item BETWEEN ?1 AND ?2 ORDER BY id";
    CITING = "SELECT key, sources FROM items WHERE sources IS NOT NULL AND key BETWEEN ?1 AND ?2 ORDER BY key";
    SAME_PAYLOAD = "SELECT DISTINCT o.item FROM item_blobs i JOIN item_blobs o ON o.digest = i.digest AND o.item <> i.item
        WHERE i.item = ?1 ORDER BY o.item";
    OWN_RANGES = "SELECT b.key, b.base, CASE WHEN t.head_is_tip = 1 AND t.head >> 32 = b.key THEN t.head & 4294967295 ELSE b.tip END
        FROM branches b JOIN threads t ON t.id = b.thread WHERE b.thread = ?1 ORDER BY b.key";
    ITEMS_TO_LOOK_AT = "SELECT key, size, salt, id, format FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
    THREAD_TEXTS = "SELECT title, preview, git_origin, git_branch, source, persona, end_reason, extra FROM threads WHERE id = ?1";
    PUT_THREAD_TEXTS = "UPDATE threads SET title = ?2, preview = ?3, git_origin = ?4, git_branch = ?5, source = ?6, persona = ?7,
        end_reason = ?8, extra = ?9 WHERE id = ?1";
    LABELS_OF = "SELECT key, label FROM branches WHERE thread = ?1 AND label IS NOT NULL ORDER BY key";
    PUT_LABEL = "UPDATE branches SET label = ?2 WHERE key = ?1";
    OUTCOMES_OF = "SELECT ordinal, outcome FROM turns WHERE thread = ?1 AND outcome IS NOT NULL ORDER BY ordinal";
    PUT_OUTCOME = "UPDATE turns SET outcome = ?3 WHERE thread = ?1 AND ordinal = ?2";
    OBJECTIVES_OF = "SELECT ordinal, objective FROM goals WHERE thread = ?1 ORDER BY ordinal";
    PUT_OBJECTIVE = "UPDATE goals SET objective = ?3 WHERE thread = ?1 AND ordinal = ?2";
    FILE_STATES = "SELECT key, state FROM sources WHERE thread = ?1 ORDER BY key";
    PUT_STATE = "UPDATE sources SET state = ?2 WHERE key = ?1";
    KEPT_BYTES = "SELECT g.source, g.position, g.bytes FROM segments g JOIN sources s ON s.key = g.source
        WHERE s.thread = ?1 AND g.bytes IS NOT NULL AND (g.source > ?2 OR (g.source = ?2 AND g.position > ?3))
        ORDER BY g.source, g.position LIMIT ?4";
    MADE_FILES = "SELECT s.key, s.path FROM sources s WHERE s.thread = ?1
        AND NOT EXISTS (SELECT 1 FROM segments g WHERE g.source = s.key AND g.item IS NOT NULL) ORDER BY s.key";
    NOTE_ERASURE = "INSERT INTO facts (name, value) VALUES ('erasure', ?1) ON CONFLICT (name) DO NOTHING";
    FORGET_ERASURE = "DELETE FROM facts WHERE name = 'erasure'";
    WAITS_FOR_ERASURE = "SELECT 1 FROM facts WHERE name = 'erasure'";
    PUT_KEPT_BYTES = "UPDATE segments SET bytes = ?3 WHERE source = ?1 AND position = ?2";
}

/// The names of the columns of `THREAD_TEXTS`.
const TEXTS: [&str; 8] = ["title", "preview", "git_origin", "git_branch", "source", "persona", "end_reason", "extra"];

/// Who takes content away, and why.
#[derive(Debug, Clone)]
pub(crate) struct Grounds {
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) rule: Option<String>,
    pub(crate) at: Timestamp,
}

/// What comes in the place of content.
#[derive(Debug, Clone)]
pub(crate) struct Instead {
    pub(crate) content: Vec<u8>,
    pub(crate) salt: [u8; 16],
    /// The salt of the content that was looked at: what was redacted since is left alone.
    pub(crate) seen: Option<[u8; 16]>,
}

/// Takes the content out of an item, or puts something in its place, and puts that on record. Says whether there was anything to
/// do: what is gone already, or is not what was looked at, is left. Of a receipt it stays where it stands among the others.
pub(crate) fn item(
    tx: &mut dyn Tx,
    store: Uuid,
    key: ItemKey,
    instead: Option<&Instead>,
    grounds: &Grounds,
) -> Result<bool> {
    let missing = || Error::not_found("item", key.0);
    let found = query_one(tx, ITEM_TO_REDACT, &[key.0.into()], read_target)?.ok_or_else(missing)?;
    let bare = if instead.is_none() { without_words(tx, key, &found)? } else { None };
    let instead = bare.as_ref().or(instead);
    let is_over = match instead {
        Some(instead) if bare.is_some() => found.salt == Some(instead.salt),
        None => content::is_redacted(found.encoding) && found.salt.is_none(),
        Some(instead) => found.salt != instead.seen,
    };
    if is_over {
        return Ok(false);
    }
    let replacement = match instead {
        None => {
            put_content(tx, key, [Value::Null, 0.into(), content::redacted(0).into(), Value::Null], &[])?;
            None
        }
        Some(Instead { content, salt, .. }) => {
            let stored = content::encode(content);
            let size = i64::try_from(content.len()).unwrap_or(i64::MAX);
            let encoding = content::redacted(stored.encoding);
            let values = [Value::Blob(salt), size.into(), encoding.into(), Value::Blob(&stored.bytes)];
            put_content(tx, key, values, &stored.blobs)?;
            Some(chain::content_digest(&found.kind, found.role.as_ref(), &found.format, salt, content))
        }
    };
    let subject = RedactedItem { depth: key.depth(), ..found.item };
    record(tx, store, &found.thread, Some(subject), replacement, grounds)?;
    raise_version(tx, &found.thread)?;
    Ok(true)
}

/// What stays of a receipt whose words go. Nothing is to be guessed of it, so it needs no salt; and so it is told from what was masked.
fn without_words(tx: &mut dyn Tx, key: ItemKey, target: &Target) -> Result<Option<Instead>> {
    if !receipt::is_receipt(&target.format) {
        return Ok(None);
    }
    let content = match load_spliced(tx, key) {
        Err(Error::Corrupt { .. } | Error::NotFound { .. }) => return Ok(None),
        content => receipt::without_words(target.item.id, &target.format, &content?),
    };
    Ok(content.map(|content| Instead { content, salt: [0; 16], seen: target.salt }))
}

/// Puts salt, size, encoding and content of an item in the place of what stands there; payloads that nobody uses any more go.
pub(crate) fn put_content(tx: &mut dyn Tx, key: ItemKey, values: [Value<'_>; 4], payloads: &[Blob]) -> Result<()> {
    blobs::release(tx, key)?;
    let [salt, size, encoding, content] = values;
    tx.execute(PUT_CONTENT, &[key.0.into(), salt, size, encoding, content])?;
    blobs::store(tx, key, payloads)
}

/// Lets copies and rollouts of a thread see that something of it changed.
pub(crate) fn raise_version(tx: &mut dyn Tx, thread: &ThreadId) -> Result<()> {
    tx.execute(NEW_VERSION, &[thread.as_str().into()]).map(drop)
}

/// Puts a redaction on record, and notes that the pages and the log still hold what was there.
pub(crate) fn put_record(tx: &mut dyn Tx, store: Uuid, record: &RedactionRecord) -> Result<()> {
    if !planted::is(Defect::RedactsOffRecord) {
        records::put_redaction(tx, store, record)?;
    }
    tx.execute(NOTE_ERASURE, &[Value::Blob(&[1])]).map(drop)
}

/// Puts on record that something beside the items of a thread was taken away, and lets its copies see it.
pub(crate) fn note_beside(tx: &mut dyn Tx, store: Uuid, thread: &ThreadId, grounds: &Grounds) -> Result<()> {
    record(tx, store, thread, None, None, grounds)?;
    raise_version(tx, thread)
}

/// Notes that the pages and the log hold what was taken away, when there is no thread whose records could say so.
pub(crate) fn note_erasure(tx: &mut dyn Tx) -> Result<()> {
    tx.execute(NOTE_ERASURE, &[Value::Blob(&[1])]).map(drop)
}

fn record(
    tx: &mut dyn Tx,
    store: Uuid,
    thread: &ThreadId,
    item: Option<RedactedItem>,
    replacement: Option<Hash>,
    grounds: &Grounds,
) -> Result<()> {
    let Grounds { by, reason, rule, at } = grounds.clone();
    let area = if item.is_some() { Area::Items } else { Area::Thread };
    changes::note(tx, thread, None, Note { area, verb: Verb::Changed, subject: None, now: at })?;
    let (number, prev, thread) = (0, Hash([0; 32]), thread.clone());
    put_record(tx, store, &RedactionRecord { number, prev, thread, item, replacement, rule, by, reason, at })
}

struct Target {
    item: RedactedItem,
    kind: Kind,
    role: Option<Role>,
    format: String,
    encoding: i64,
    salt: Option<[u8; 16]>,
    thread: ThreadId,
}

fn read_target(row: &Row<'_>) -> Result<Target> {
    let id = row.parse(0, ItemId::from_slice(row.blob(0)?), "16 bytes of an id")?;
    let digest = row.parse(4, Hash::from_slice(row.blob(4)?), "a hash")?;
    let branch = row.parse(8, ItemId::from_slice(row.blob(8)?), "16 bytes of an id")?;
    Ok(Target {
        item: RedactedItem { branch, depth: 0, id, digest },
        kind: Kind::from_word(row.text(1)?),
        role: row.opt_text(2)?.map(Role::from_word),
        format: row.text(3)?.to_owned(),
        encoding: row.int(5)?,
        salt: row.opt_blob(6)?.and_then(|salt| salt.try_into().ok()),
        thread: row.parse(7, ThreadId::new(row.text(7)?).ok(), "a thread id")?,
    })
}

/// Notes that the files have none any more.
pub(crate) fn forget_erasure(tx: &mut dyn Tx) -> Result<()> {
    tx.execute(FORGET_ERASURE, &[]).map(drop)
}

/// Whether the files may still have traces of what was taken away.
pub(crate) fn waits_for_erasure(tx: &mut dyn Tx) -> Result<bool> {
    Ok(query_one(tx, WAITS_FOR_ERASURE, &[], |_| Ok(()))?.is_some())
}

/// What the content of an item has gone into besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kin {
    /// Items that cite it, or one that does.
    pub(crate) derived: BTreeSet<ItemKey>,
    /// Items that have a payload of the same bytes.
    pub(crate) same_payload: BTreeSet<ItemKey>,
    /// Threads that reach it, its own included.
    pub(crate) threads: BTreeSet<ThreadId>,
}

/// Finds what else an item's content has gone into.
pub(crate) fn kin(tx: &mut dyn Tx, key: ItemKey, id: ItemId) -> Result<Kin> {
    let mut kin = Kin::default();
    let mut cited = BTreeSet::from([id]);
    let mut waiting = vec![(key.branch(), key.depth())];
    let mut seen = BTreeSet::new();
    // A branch comes behind the one that it continues, so what an item cites was looked at before it.
    while let Some((branch, from)) = waiting.pop() {
        if !seen.insert(branch) {
            continue;
        }
        let range = [ItemKey::new(branch, from).0.into(), ItemKey::new(branch, u32::MAX).0.into()];
        let owner = query_one(tx, OWNER_OF_BRANCH, &[branch.into()], read_thread)?;
        kin.threads.extend(owner);
        kin.threads.extend(query_all(tx, FORKED_HERE, &range, read_thread)?);
        for (citing, sources) in query_all(tx, CITING, &range, |row| Ok((ItemKey(row.int(0)?), read_ids(row, 1)?)))? {
            if citing != key && sources.iter().any(|source| cited.contains(source)) {
                kin.derived.insert(citing);
                cited.extend(item_id(tx, citing)?);
            }
        }
        waiting.extend(query_all(tx, CHILD_BRANCHES, &range, |row| Ok((row.int(0)?, 0)))?);
    }
    kin.same_payload =
        query_all(tx, SAME_PAYLOAD, &[key.0.into()], |row| Ok(ItemKey(row.int(0)?)))?.into_iter().collect();
    Ok(kin)
}

fn item_id(tx: &mut dyn Tx, key: ItemKey) -> Result<Option<ItemId>> {
    Ok(query_one(tx, ITEM_TO_REDACT, &[key.0.into()], read_target)?.map(|target| target.item.id))
}

fn read_thread(row: &Row<'_>) -> Result<ThreadId> {
    row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")
}

/// Whether content was taken out of an item.
pub(crate) fn is_redacted(tx: &mut dyn Tx, key: ItemKey) -> Result<bool> {
    let found = query_one(tx, ITEM_TO_REDACT, &[key.0.into()], read_target)?;
    Ok(found.is_some_and(|found| content::is_redacted(found.encoding)))
}

/// Where an item stands: the thread that wrote it, its id and its address.
pub(crate) fn place_of(tx: &mut dyn Tx, key: ItemKey) -> Result<(ThreadId, ItemId, Address)> {
    let missing = || Error::not_found("item", key.0);
    let found = query_one(tx, ITEM_TO_REDACT, &[key.0.into()], read_target)?.ok_or_else(missing)?;
    Ok((found.thread, found.item.id, Address { branch: found.item.branch, depth: key.depth() }))
}

/// An item's content, to be looked through.
pub(crate) struct Seen {
    pub(crate) key: ItemKey,
    pub(crate) salt: Option<[u8; 16]>,
    pub(crate) content: Result<Vec<u8>>,
    id: ItemId,
    format: String,
}

impl Seen {
    /// Masks what rules find in it; of a receipt its words alone, so that it stays one.
    pub(crate) fn mask(&self, content: &[u8], rules: &Rules) -> Masked {
        receipt::mask(self.id, &self.format, content, rules).unwrap_or_else(|| rules.mask(content))
    }
}

/// The branches that a thread wrote, the first and the last item of each; those that it has from the thread that it was forked
/// from behind them, if they are wanted.
pub(crate) fn ranges(tx: &mut dyn Tx, thread: &ThreadId, with_shared: bool) -> Result<Vec<(ItemKey, ItemKey)>> {
    let mut ranges = query_all(tx, OWN_RANGES, &[thread.as_str().into()], |row| {
        let branch = row.int(0)?;
        Ok((ItemKey::new(branch, path::depth(row, 1)?), ItemKey::new(branch, path::depth(row, 2)?)))
    })?;
    let forked_at = query_one(tx, FORK_ITEM, &[thread.as_str().into()], |row| Ok(row.opt_int(0)?.map(ItemKey)))?;
    if let Some(end) = forked_at.flatten().filter(|_| with_shared) {
        let shared = path::segments_to(tx, end, 0)?;
        ranges.extend(shared.into_iter().map(|segment| (segment.key(segment.base), segment.key(segment.upto))));
    }
    Ok(ranges)
}

/// The threads that reach an item of these ranges.
pub(crate) fn reaching(tx: &mut dyn Tx, ranges: &[(ItemKey, ItemKey)]) -> Result<BTreeSet<ThreadId>> {
    let mut threads = BTreeSet::new();
    let mut waiting: Vec<_> = ranges.iter().map(|(first, _)| (first.branch(), first.depth())).collect();
    let mut seen = BTreeSet::new();
    while let Some((branch, from)) = waiting.pop() {
        if !seen.insert(branch) {
            continue;
        }
        let range = [ItemKey::new(branch, from).0.into(), ItemKey::new(branch, u32::MAX).0.into()];
        threads.extend(query_one(tx, OWNER_OF_BRANCH, &[branch.into()], read_thread)?);
        threads.extend(query_all(tx, FORKED_HERE, &range, read_thread)?);
        waiting.extend(query_all(tx, CHILD_BRANCHES, &range, |row| Ok((row.int(0)?, 0)))?);
    }
    Ok(threads)
}

/// A page of the items between two, with their content; what can't be read is told with its item.
pub(crate) fn look_at(tx: &mut dyn Tx, from: ItemKey, to: ItemKey) -> Result<Vec<Seen>> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    tx.query(ITEMS_TO_LOOK_AT, &[from.0.into(), to.0.into(), PAGE.into()], &mut |row| {
        let salt = row.opt_blob(2)?.and_then(|salt| <[u8; 16]>::try_from(salt).ok());
        let id = row.parse(3, ItemId::from_slice(row.blob(3)?), "16 bytes of an id")?;
        rows.push((ItemKey(row.int(0)?), salt, id, row.text(4)?.to_owned()));
        bytes += row.int(1)?;
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    let mut seen = Vec::with_capacity(rows.len());
    for (key, salt, id, format) in rows {
        let content = match load_spliced(tx, key) {
            Err(damage @ (Error::Corrupt { .. } | Error::NotFound { .. })) => Err(damage),
            content => Ok(content?),
        };
        seen.push(Seen { key, salt, content, id, format });
    }
    Ok(seen)
}

/// What a thread has beside its items and can hold words of theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Texts of the thread itself, by their columns.
    texts: Vec<Option<String>>,
    labels: BTreeMap<i64, String>,
    outcomes: BTreeMap<i64, String>,
    /// Of the goal and of the goals before it.
    objectives: BTreeMap<i64, String>,
    states: BTreeMap<i64, Vec<u8>>,
}

/// What to do with a text or with bytes.
pub(crate) enum Change {
    Keep,
    Remove,
    Put(Vec<u8>),
}

/// Reads what a thread has beside its items.
pub(crate) fn beside(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Beside> {
    let id = [thread.as_str().into()];
    let texts = query_one(tx, THREAD_TEXTS, &id, |row| {
        (0..TEXTS.len()).map(|column| Ok(row.opt_text(column)?.map(str::to_owned))).collect::<Result<Vec<_>>>()
    })?;
    let numbered = |row: &Row<'_>| Ok((row.int(0)?, row.text(1)?.to_owned()));
    Ok(Beside {
        texts: texts.unwrap_or_default(),
        labels: query_all(tx, LABELS_OF, &id, numbered)?.into_iter().collect(),
        outcomes: query_all(tx, OUTCOMES_OF, &id, numbered)?.into_iter().collect(),
        objectives: query_all(tx, OBJECTIVES_OF, &id, numbered)?.into_iter().collect(),
        states: query_all(tx, FILE_STATES, &id, |row| Ok((row.int(0)?, row.blob(1)?.to_vec())))?.into_iter().collect(),
    })
}

impl Beside {
    /// The texts that are made of what the thread's items say: its title and its preview.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().take(2).flatten().map(String::as_str)
    }

    /// Changes what is to be changed; says in which fields that was.
    pub(crate) fn change(&mut self, judge: &mut dyn FnMut(&'static str, &[u8]) -> Change) -> BTreeSet<&'static str> {
        let mut changed = BTreeSet::new();
        for (name, text) in TEXTS.into_iter().zip(&mut self.texts) {
            let Some(words) = text else { continue };
            match judge(name, words.as_bytes()) {
                Change::Keep => continue,
                // The column must hold an object.
                Change::Remove if name == "extra" => *text = Some("{}".to_owned()),
                Change::Remove => *text = None,
                Change::Put(bytes) => *text = Some(String::from_utf8_lossy(&bytes).into_owned()),
            }
            changed.insert(name);
        }
        for (name, texts) in [("label", &mut self.labels), ("outcome", &mut self.outcomes)] {
            for text in texts.values_mut() {
                match judge(name, text.as_bytes()) {
                    Change::Keep => continue,
                    Change::Remove => text.clear(),
                    Change::Put(bytes) => *text = String::from_utf8_lossy(&bytes).into_owned(),
                }
                changed.insert(name);
            }
        }
        for text in self.objectives.values_mut() {
            match judge("goal", text.as_bytes()) {
                Change::Keep => continue,
                // A goal asks for something, if only for what nobody may know.
                Change::Remove => *text = Rules::whole_marker().to_owned(),
                Change::Put(bytes) => *text = String::from_utf8_lossy(&bytes).into_owned(),
            }
            changed.insert("goal");
        }
        for state in self.states.values_mut() {
            match judge("file", state) {
                Change::Keep => continue,
                Change::Remove => state.clear(),
                Change::Put(bytes) => *state = bytes,
            }
            changed.insert("file");
        }
        changed
    }
}

/// The words of an item's content, as names are made of them: escapes undone, and runs of white space as one space. Nothing of
/// content that can't be read.
pub(crate) fn words_of(tx: &mut dyn Tx, key: ItemKey) -> Result<String> {
    match load_spliced(tx, key) {
        Ok(content) => {
            let undone = secrets::unescaped(&content);
            Ok(in_one_line(&String::from_utf8_lossy(undone.as_deref().unwrap_or(&content))))
        }
        Err(Error::Corrupt { .. } | Error::NotFound { .. }) => Ok(String::new()),
        Err(other) => Err(other),
    }
}

/// The bytes with other ones in the place of these; `None` when these are not among them.
fn replaced(bytes: &[u8], these: &[u8], others: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut from) = (Vec::new(), 0);
    for at in memchr::memmem::find_iter(bytes, these) {
        out.extend_from_slice(bytes.get(from..at)?);
        out.extend_from_slice(others);
        from = at + these.len();
    }
    out.extend_from_slice(bytes.get(from..)?);
    (from > 0).then_some(out)
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Takes the title and the preview away where they are made of these words, and from what is remembered of imported files, which
/// would bring them back. Says which fields that were.
pub(crate) fn take_names(beside: &mut Beside, words: &str) -> BTreeSet<&'static str> {
    let is_made_of_them = |name: &str| {
        let name = in_one_line(name.trim_end_matches(['…', '.', ' ']));
        !name.is_empty() && words.contains(&name)
    };
    let names: Vec<String> = beside.names().filter(|name| is_made_of_them(name)).map(str::to_owned).collect();
    let written: Vec<Vec<u8>> = names.iter().filter_map(|name| serde_json::to_vec(name).ok()).collect();
    beside.change(&mut |field, bytes| match field {
        "title" | "preview" if names.iter().any(|name| name.as_bytes() == bytes) => Change::Remove,
        "file" => written.iter().fold(Change::Keep, |change, name| {
            let former = if let Change::Put(bytes) = &change { bytes.as_slice() } else { bytes };
            let without = replaced(former, name, b"\"[redacted]\"");
            without.map_or(change, Change::Put)
        }),
        _ => Change::Keep,
    })
}

/// Writes what a thread has beside its items, unless it changed since `before` was read; says whether it did, and puts it on
/// record.
pub(crate) fn put_beside(
    tx: &mut dyn Tx,
    store: Uuid,
    thread: &ThreadId,
    (before, after): (&Beside, &Beside),
    grounds: &Grounds,
) -> Result<bool> {
    let now = beside(tx, thread)?;
    if now == *after {
        return Ok(true);
    }
    if now != *before {
        return Ok(false);
    }
    let id: Value<'_> = thread.as_str().into();
    if before.texts != after.texts {
        let mut args = vec![id];
        args.extend(after.texts.iter().map(|text| Value::from(text.as_deref())));
        tx.execute(PUT_THREAD_TEXTS, &args)?;
    }
    let text_of = |text: &String| if text.is_empty() { None } else { Some(text.clone()) };
    for (key, label) in after.labels.iter().filter(|(key, label)| before.labels.get(key) != Some(label)) {
        tx.execute(PUT_LABEL, &[(*key).into(), text_of(label).as_deref().into()])?;
    }
    for (ordinal, outcome) in after.outcomes.iter().filter(|(key, text)| before.outcomes.get(key) != Some(text)) {
        tx.execute(PUT_OUTCOME, &[id, (*ordinal).into(), text_of(outcome).as_deref().into()])?;
    }
    for (ordinal, text) in after.objectives.iter().filter(|(key, text)| before.objectives.get(key) != Some(text)) {
        tx.execute(PUT_OBJECTIVE, &[id, (*ordinal).into(), text.as_str().into()])?;
    }
    for (key, state) in after.states.iter().filter(|(key, state)| before.states.get(key) != Some(state)) {
        tx.execute(PUT_STATE, &[(*key).into(), Value::Blob(state)])?;
    }
    record(tx, store, thread, None, None, grounds)?;
    raise_version(tx, thread)?;
    Ok(true)
}

/// Bytes that were kept of an imported file beside the items.
pub(crate) struct Kept {
    /// The file's key and the place in the file.
    pub(crate) place: (i64, i64),
    pub(crate) bytes: Vec<u8>,
}

/// The imported files, by key and path, that hold a thread's items in no part of theirs: they follow from all that is kept of
/// such a file.
pub(crate) fn made_files(tx: &mut dyn Tx, thread: &ThreadId) -> Result<BTreeMap<i64, String>> {
    let files = query_all(tx, MADE_FILES, &[thread.as_str().into()], |row| Ok((row.int(0)?, row.text(1)?.to_owned())))?;
    Ok(files.into_iter().collect())
}

/// A page of what was kept of a thread's imported files, after a place.
pub(crate) fn kept_bytes(tx: &mut dyn Tx, thread: &ThreadId, (source, position): (i64, i64)) -> Result<Vec<Kept>> {
    let (mut kept, mut bytes) = (Vec::new(), 0);
    let args = [thread.as_str().into(), source.into(), position.into(), PAGE.into()];
    tx.query(KEPT_BYTES, &args, &mut |row| {
        let found = row.blob(2)?.to_vec();
        bytes += i64::try_from(found.len()).unwrap_or(i64::MAX);
        kept.push(Kept { place: (row.int(0)?, row.int(1)?), bytes: found });
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(kept)
}

/// Puts other bytes in the place of what was kept of a thread's imported files, and that on record.
pub(crate) fn put_kept_bytes(
    tx: &mut dyn Tx,
    store: Uuid,
    thread: &ThreadId,
    kept: &[Kept],
    grounds: &Grounds,
) -> Result<()> {
    for Kept { place: (source, position), bytes } in kept {
        tx.execute(PUT_KEPT_BYTES, &[(*source).into(), (*position).into(), Value::Blob(bytes)])?;
    }
    record(tx, store, thread, None, None, grounds)?;
    raise_version(tx, thread)
}
