//! Rows as plain values, for a carrier that is no store: a file of lines.
//!
//! What is read from such a carrier passes verification's own rule before it is a row again.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{BranchRow, DETAIL_COLUMNS, ItemPage, ItemRow, Metadata, Missing, RedactedRow, Snapshot, TurnRow, items};
use crate::chain;
use crate::content::{self, Blob};
use crate::db::{Columns, Owned, Row, Tx, Value, query_all, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WorkspaceId, WriterId};
use crate::item::{Hash, Kind, MAX_CONTENT_BYTES, NewItem, Role, check_text};
use crate::log::path;
use crate::log::read::row_content;
use crate::log::rows::state::StateStamp;
use crate::log::verify::read_checked;
use crate::seal::{NOTHING, RedactedItem, RedactionRecord, check_grounds};
use crate::thread::{MAX_TEXT_BYTES, Shelf, Thread};
use crate::time::Timestamp;
use crate::workspaces::WorkspaceInfo;

statements! {
    WRITERS_OF = "SELECT DISTINCT w.id, w.machine, w.created_at FROM items i JOIN writers w ON w.key = i.writer
        WHERE i.key BETWEEN ?1 AND ?2";
    OPEN_TURNS = "SELECT ordinal, status FROM turns WHERE thread = ?1 AND (status = 'running' OR last_item IS NULL) ORDER BY ordinal";
}

/// No store counts as far as this.
pub(crate) const MAX_COUNTED: i64 = 1 << 53;

/// The columns of `DETAILS` by name, whether each is a number, and whether it must be there.
const DETAIL_NAMES: [(&str, bool, bool); DETAIL_COLUMNS] = [
    ("shelf", true, true),
    ("status", false, true),
    ("version", true, true),
    ("forked_from", false, false),
    ("created_at", true, true),
    ("updated_at", true, true),
    ("archived_at", true, false),
    ("trashed_at", true, false),
    ("ended_at", true, false),
    ("pinned", true, true),
    ("ephemeral", true, true),
    ("policy", false, true),
    ("title", false, false),
    ("preview", false, false),
    ("agent", false, false),
    ("source", false, false),
    ("provider", false, false),
    ("model", false, false),
    ("cwd", false, false),
    ("working_path", false, false),
    ("rollout_path", false, false),
    ("git_sha", false, false),
    ("git_branch", false, false),
    ("git_origin", false, false),
    ("cli_version", false, false),
    ("sandbox_policy", false, false),
    ("approval_policy", false, false),
    ("memory_mode", false, false),
    ("persona", false, false),
    ("parent", false, false),
    ("end_reason", false, false),
    ("token_usage", false, false),
    ("extra", false, true),
];

/// An item with all that its hash binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainItem {
    pub(crate) branch: BranchId,
    pub(crate) depth: u32,
    pub(crate) id: ItemId,
    pub(crate) hash: Hash,
    /// The hash of the item that this one follows, or the genesis of its thread.
    pub(crate) after: Hash,
    /// What the branch that begins here is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begins: Option<PlainBranch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<i64>,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    format: String,
    pub(crate) writer: WriterId,
    pub(crate) epoch: i64,
    pub(crate) tick: i64,
    created_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<ItemId>,
    chain: i64,
    /// 16 bytes in base64; none when the content was redacted and nothing stands in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
    digest: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redaction: Option<PlainRedaction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Who took content away, when and why, and the digest of what stands in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainRedaction {
    by: String,
    at: i64,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacement: Option<Hash>,
}

/// Where a branch leaves its parent, and when it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainBranch {
    pub(crate) parent: Option<PlainAddress>,
    pub(crate) created_at: i64,
}

/// An item of a thread that may be another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainAddress {
    pub(crate) thread: ThreadId,
    pub(crate) branch: BranchId,
    pub(crate) depth: u32,
}

impl PlainAddress {
    pub(crate) fn address(&self) -> Address {
        Address { branch: self.branch, depth: self.depth }
    }
}

/// The item that a thread was forked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainFork {
    #[serde(flatten)]
    pub(crate) at: PlainAddress,
    pub(crate) hash: Hash,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainTurn {
    pub(crate) ordinal: i64,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    pub(crate) first: Address,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    started_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
}

/// The end of a branch, and its marks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainTip {
    pub(crate) id: BranchId,
    pub(crate) tip: u32,
    pub(crate) hash: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cleared: bool,
}

/// Who wrote items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainWriter {
    pub(crate) id: WriterId,
    pub(crate) machine: String,
    pub(crate) created_at: i64,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainWorkspace {
    id: WorkspaceId,
    name: String,
    created_at: i64,
    keys: Vec<(String, String)>,
}

impl PlainWorkspace {
    pub(crate) fn of(info: &WorkspaceInfo) -> Self {
        Self { id: info.id, name: info.name.clone(), created_at: info.created_at.0, keys: info.keys.clone() }
    }

    /// The project as another store knew it.
    pub(crate) fn info(&self) -> WorkspaceInfo {
        let (id, name, created_at) = (self.id, self.name.clone(), Timestamp(self.created_at));
        WorkspaceInfo { id, name, created_at, threads: 0, keys: self.keys.clone() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_text("workspace name", &self.name, 1024)?;
        self.keys.iter().try_for_each(|(kind, key)| {
            check_text("workspace key", kind, 64)?;
            check_text("workspace key", key, 2 << 10)
        })
    }
}

/// Where a thread stands, and what is known of it beside its items and turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainThread {
    pub(crate) thread: ThreadId,
    pub(crate) fork: Option<PlainFork>,
    pub(crate) workspace: PlainWorkspace,
    /// `active`, `archived`, `trashed`, or `stub` for what is left of a purged thread.
    shelf: String,
    pub(crate) head: Option<PlainHead>,
    pub(crate) items: u64,
    pub(crate) branches: Vec<PlainTip>,
    pub(crate) turns: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open_turn: Option<i64>,
    /// How many lines of turns the canonical form has, and their hash. A fork counts its turns on from its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turn_lines: Option<(u64, Hash)>,
    pub(crate) writers: Vec<PlainWriter>,
    /// How many of its items were redacted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) redacted: i64,
    /// What a file that grows with its thread notes for whoever writes it on; nothing of it is in the canonical form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<PlainLive>,
    /// The descriptive columns by name; none of a stub.
    details: BTreeMap<String, serde_json::Value>,
}

/// What a file that grows with its thread notes for whoever writes it on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainLive {
    /// Bytes of lines before this one that later lines have replaced.
    pub(crate) superseded: u64,
    /// The turns whose lines do not say where they ended, with their status: it may change before that is known.
    pub(crate) open_turns: Vec<(i64, String)>,
}

/// A head, with the hash of its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlainHead {
    pub(crate) branch: BranchId,
    pub(crate) depth: u32,
    pub(crate) hash: Hash,
}

impl PlainThread {
    /// Refuses text that no store keeps.
    pub(crate) fn check(&self) -> Result<()> {
        self.workspace.check()?;
        self.shelf()?;
        self.writers.iter().try_for_each(|writer| check_text("writer", &writer.machine, 4 << 10))?;
        let labels = self.branches.iter().filter_map(|tip| tip.label.as_deref());
        labels.into_iter().try_for_each(|label| check_text("label", label, MAX_TEXT_BYTES))?;
        match self.shelf()? {
            Shelf::Stub => Ok(()),
            _ => self.metadata().map(drop),
        }
    }

    /// Which shelf the thread is on.
    pub(crate) fn shelf(&self) -> Result<Shelf> {
        let found = SHELVES.iter().find(|(word, _)| *word == self.shelf).map(|(_, shelf)| *shelf);
        found.ok_or_else(|| Error::corrupt(format!("thread {}", self.thread), "its shelf is not known here"))
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.details.get(name)?.as_i64()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.details.get(name)?.as_str()
    }

    /// Whether both say the same of the thread itself.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let bare = |of: &Self| Self { turn_lines: None, live: None, ..of.clone() };
        bare(self) == bare(other)
    }

    /// The descriptive columns as they are stored.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let wrong =
            |name: &str| Error::corrupt(format!("metadata of thread {}", self.thread), format!("wrong `{name}`"));
        let values = DETAIL_NAMES.iter().map(|(name, is_number, is_required)| {
            Ok(match self.details.get(*name) {
                None if *is_required => return Err(wrong(name)),
                None => Owned::Null,
                Some(value) if *is_number => Owned::Int(value.as_i64().ok_or_else(|| wrong(name))?),
                Some(value) => {
                    let text = value.as_str().ok_or_else(|| wrong(name))?;
                    check_text("metadata", text, MAX_TEXT_BYTES)?;
                    Owned::Text(text.to_owned())
                }
            })
        });
        values.collect::<Result<_>>().map(Metadata)
    }

    /// What stands for a line that was lost: a thread of which only the items are known.
    pub(crate) fn unknown(thread: &ThreadId, fork: Option<PlainFork>, workspace: Option<PlainWorkspace>) -> Self {
        let id = unknown_workspace();
        let unknown = || PlainWorkspace { id, name: "recovered".to_owned(), created_at: 0, keys: Vec::new() };
        let details = [
            ("shelf", 0.into()),
            ("status", "idle".into()),
            ("version", 0.into()),
            ("created_at", 0.into()),
            ("updated_at", 0.into()),
            ("pinned", 0.into()),
            ("ephemeral", 0.into()),
            ("policy", "\"all\"".into()),
            ("extra", "{}".into()),
        ];
        Self {
            thread: thread.clone(),
            fork,
            workspace: workspace.unwrap_or_else(unknown),
            shelf: "active".to_owned(),
            head: None,
            items: 0,
            branches: Vec::new(),
            turns: 0,
            open_turn: None,
            turn_lines: None,
            writers: Vec::new(),
            redacted: 0,
            live: None,
            details: details.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

/// The project of threads of which it is lost in which they belong.
pub(crate) fn unknown_workspace() -> WorkspaceId {
    let unknown = Hash::of(b"threadkeep.rollout.unknown-workspace").0;
    unknown.get(..16).and_then(WorkspaceId::from_slice).unwrap_or(WorkspaceId::from_uuid(uuid::Uuid::nil()))
}

const SHELVES: [(&str, Shelf); 4] =
    [("active", Shelf::Active), ("archived", Shelf::Archived), ("trashed", Shelf::Trashed), ("stub", Shelf::Stub)];

/// Refuses what the thread's own rules refuse, whoever wrote it.
pub(crate) fn check_thread(thread: &Thread) -> Result<()> {
    if let Some(damage) = &thread.damage {
        return Err(Error::corrupt(format!("metadata of thread {}", thread.id), damage.clone()));
    }
    thread.details.check()
}

/// The values of a row that comes from nowhere in a database.
struct Values<'a>(&'a [Owned]);

impl Columns for Values<'_> {
    fn value(&self, column: usize) -> Result<Value<'_>> {
        Ok(self.0.get(column).map_or(Value::Null, Owned::value))
    }
}

fn row<'a>(values: &'a Values<'a>) -> Row<'a> {
    Row { columns: values, statement: "ITEM_LINE" }
}

/// Reads the next items of a branch as [`items`] does, and gives them as plain values.
pub(crate) fn plain_items(tx: &mut dyn Tx, thread: &ThreadId, from: Missing<'_>) -> Result<Vec<PlainItem>> {
    let page = items(tx, thread, from)?;
    let mut after = from.after.unwrap_or_else(|| chain::genesis(thread));
    let mut plain = Vec::with_capacity(page.items.len());
    for item in page.items {
        let begins = match item.depth == page.branch.base {
            true => Some(begins(tx, &page.branch)?),
            false => None,
        };
        let hash = item.hash;
        plain.push(to_plain(&item, page.branch.id, after, begins)?);
        after = hash;
    }
    Ok(plain)
}

fn begins(tx: &mut dyn Tx, branch: &BranchRow) -> Result<PlainBranch> {
    let parent = branch.parent.map(|(address, _)| owned_address(tx, address)).transpose()?;
    Ok(PlainBranch { parent, created_at: branch.created_at.0 })
}

fn owned_address(tx: &mut dyn Tx, address: Address) -> Result<PlainAddress> {
    let (_, thread) = path::key_of(tx, address)?.ok_or_else(|| Error::not_found("item", address))?;
    Ok(PlainAddress { thread, branch: address.branch, depth: address.depth })
}

fn to_plain(item: &ItemRow, branch: BranchId, after: Hash, begins: Option<PlainBranch>) -> Result<PlainItem> {
    let values = Values(&item.values);
    let row = row(&values);
    let bytes = row_content(&row, 14, &mut |digest| {
        let blob = item.blobs.iter().find(|blob| blob.digest == digest);
        let blob = blob.ok_or_else(|| Error::corrupt(format!("blob {digest}"), "it is missing"))?;
        content::decode_blob(blob.encoding, blob.size, &blob.data)
    })?;
    let salt = row.opt_blob(11)?.map(|salt| STANDARD.encode(salt));
    let (text, base64) = match String::from_utf8(bytes) {
        Ok(_) if salt.is_none() => (None, None),
        Ok(text) if reads_well(&text) => (Some(text), None),
        Ok(text) => (None, Some(STANDARD.encode(text))),
        Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
    };
    let ids = row.opt_blob(9)?.unwrap_or_default().chunks_exact(16);
    Ok(PlainItem {
        branch,
        depth: item.depth,
        id: item.id,
        hash: item.hash,
        after,
        begins,
        turn: row.opt_int(1)?,
        kind: row.text(2)?.to_owned(),
        role: row.opt_text(3)?.map(str::to_owned),
        format: row.text(4)?.to_owned(),
        writer: item.writer.0,
        epoch: row.int(5)?,
        tick: row.int(6)?,
        created_at: row.int(7)?,
        source_id: row.opt_text(8)?.map(str::to_owned),
        sources: ids.filter_map(ItemId::from_slice).collect(),
        chain: row.int(10)?,
        salt,
        digest: row.parse(12, Hash::from_slice(row.blob(12)?), "a hash")?,
        redaction: item.redaction.as_ref().map(PlainRedaction::of),
        text,
        base64,
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "this is how it is called")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Whether a text stays about as long when it is written as JSON. Control characters become six there.
fn reads_well(text: &str) -> bool {
    let long = text.bytes().filter(|byte| *byte < 0x20 && !b"\x08\t\n\x0c\r".contains(byte)).count();
    long <= text.len() / 8
}

impl PlainRedaction {
    fn of(record: &RedactionRecord) -> Self {
        let RedactionRecord { by, reason, rule, replacement, .. } = record.clone();
        Self { by, at: record.at.0, reason, rule, replacement }
    }
}

impl PlainItem {
    /// About how many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        512 + self.text.as_ref().map_or(0, String::len) + self.base64.as_ref().map_or(0, String::len)
    }

    /// The content; none when it was redacted and nothing stands in its place.
    fn content(&self) -> Result<Option<Vec<u8>>> {
        let bytes = match (&self.text, &self.base64) {
            (None, None) if self.redaction.is_some() && self.salt.is_none() => return Ok(None),
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(base64)) => STANDARD.decode(base64).map_err(|_| self.wrong("its content is no base64"))?,
            _ => return Err(self.wrong("its content is missing, or there twice")),
        };
        match bytes.len() <= MAX_CONTENT_BYTES {
            true => Ok(Some(bytes)),
            false => Err(self.wrong("its content is larger than any item's")),
        }
    }

    fn wrong(&self, what: impl Into<String>) -> Error {
        Error::corrupt(format!("item {} at depth {}", self.id, self.depth), what)
    }

    fn ids(&self) -> Owned {
        match self.sources.is_empty() {
            true => Owned::Null,
            false => Owned::Blob(self.sources.iter().flat_map(|id| *id.as_bytes()).collect()),
        }
    }

    /// The columns between the writer and the content, in the order of [`read_checked`].
    fn check_row(&self, content: Option<Vec<u8>>) -> Result<Vec<Owned>> {
        let text = |text: &str| Owned::Text(text.to_owned());
        let salt = match &self.salt {
            None => Owned::Null,
            Some(salt) => Owned::Blob(STANDARD.decode(salt).map_err(|_| self.wrong("its salt is no base64"))?),
        };
        let size = content.as_ref().map_or(0, |content| i64::try_from(content.len()).unwrap_or(i64::MAX));
        let encoding = if self.redaction.is_some() { content::redacted(0) } else { 0 };
        Ok(vec![
            Owned::Int(ItemKey::new(1, self.depth).0),
            Owned::Blob(self.id.as_bytes().to_vec()),
            self.turn.map_or(Owned::Null, Owned::Int),
            text(&self.kind),
            self.role.as_deref().map_or(Owned::Null, text),
            text(&self.format),
            Owned::Int(self.epoch),
            Owned::Int(self.tick),
            Owned::Int(self.created_at),
            self.ids(),
            Owned::Int(self.chain),
            salt,
            Owned::Blob(self.digest.0.to_vec()),
            Owned::Blob(self.hash.0.to_vec()),
            Owned::Int(size),
            Owned::Int(encoding),
            content.map_or(Owned::Null, Owned::Blob),
            Owned::Blob(self.writer.as_bytes().to_vec()),
        ])
    }

    /// Checks the item by verification's own rule, behind the item that it has to follow, and by what appending refuses.
    pub(crate) fn check(&self, thread: &ThreadId, depth: u32, parent: Hash) -> Result<()> {
        self.check_row_of(thread, depth, parent).map(drop)
    }

    fn check_row_of(&self, thread: &ThreadId, depth: u32, parent: Hash) -> Result<Vec<Owned>> {
        let values = self.check_row(self.content()?)?;
        let mut checked = read_checked(&row(&Values(&values)))?;
        checked.redaction = self.record(thread)?;
        if let Some(problem) = checked.check(thread, depth, parent) {
            return Err(self.wrong(problem));
        }
        let item = NewItem {
            role: self.role.as_deref().map(Role::from_word),
            source_id: self.source_id.clone(),
            ..NewItem::raw(Kind::from_word(&self.kind), self.format.clone(), Vec::new())
        };
        item.check()?;
        // Later ticks and epochs are counted on from these.
        if ![self.epoch, self.tick].iter().all(|number| (0..MAX_COUNTED).contains(number)) {
            return Err(self.wrong("its epoch or its tick is none that a store reaches"));
        }
        Ok(values)
    }

    /// What is on record of content that was taken away; its number is that of no store.
    fn record(&self, thread: &ThreadId) -> Result<Option<RedactionRecord>> {
        let Some(PlainRedaction { by, at, reason, rule, replacement }) = self.redaction.clone() else {
            return Ok(None);
        };
        check_grounds(&by, &reason, rule.as_deref())?;
        let item = RedactedItem { branch: self.branch, depth: self.depth, id: self.id, digest: self.digest };
        let (number, prev, thread, item, at) = (0, NOTHING, thread.clone(), Some(item), Timestamp(at));
        Ok(Some(RedactionRecord { number, prev, thread, item, replacement, rule, by, reason, at }))
    }

    /// What was taken out of the item, for a store that has it as it was.
    pub(crate) fn redacted_row(&self, thread: &ThreadId) -> Result<Option<RedactedRow>> {
        let Some(record) = self.record(thread)? else { return Ok(None) };
        let mut values = self.check_row(self.content()?)?;
        let blobs = store_content(&mut values);
        let columns = [11, 14, 15, 16].map(|column| values.get(column).cloned().unwrap_or(Owned::Null));
        Ok(Some(RedactedRow { record, values: columns.into(), blobs }))
    }

    /// The item as the table keeps it, if it passes [`PlainItem::check`].
    fn into_row(self, thread: &ThreadId, depth: u32, parent: Hash, writer: &PlainWriter) -> Result<ItemRow> {
        let mut values = self.check_row_of(thread, depth, parent)?;
        let redaction = self.record(thread)?;
        let blobs = store_content(&mut values);
        values.truncate(17);
        // The table has the id that the file gave behind the time.
        values.insert(9, self.source_id.map_or(Owned::Null, Owned::Text));
        values.remove(0);
        Ok(ItemRow {
            id: self.id,
            depth: self.depth,
            tick: self.tick,
            hash: self.hash,
            writer: (writer.id, writer.machine.clone(), writer.created_at),
            values,
            blobs,
            redaction,
        })
    }
}

/// Puts the content among the values as the table keeps it; gives what is stored apart from it.
fn store_content(values: &mut [Owned]) -> Vec<Blob> {
    let [.., encoding, content, _] = values else { return Vec::new() };
    let (Owned::Int(flags), Owned::Blob(bytes)) = (&*encoding, &*content) else { return Vec::new() };
    let stored = content::encode(bytes);
    (*encoding, *content) = (Owned::Int(stored.encoding | flags), Owned::Blob(stored.bytes));
    stored.blobs
}

/// Makes a page of items that were read elsewhere, each checked.
pub(crate) fn page_of(
    thread: &ThreadId,
    from: Missing<'_>,
    plain: Vec<PlainItem>,
    writer: impl Fn(WriterId) -> PlainWriter,
) -> Result<ItemPage> {
    let (mut depth, mut parent) = (from.next, from.after.unwrap_or_else(|| chain::genesis(thread)));
    let mut page = ItemPage { branch: from.branch.clone(), items: Vec::with_capacity(plain.len()), bytes: 0 };
    for item in plain {
        let hash = item.hash;
        let by = writer(item.writer);
        let row = item.into_row(thread, depth, parent, &by)?;
        page.bytes += row.blobs.iter().map(|blob| blob.data.len()).sum::<usize>();
        page.bytes +=
            row.values.last().map_or(0, |content| if let Owned::Blob(bytes) = content { bytes.len() } else { 0 });
        page.items.push(row);
        (depth, parent) = (depth + 1, hash);
    }
    Ok(page)
}

/// The turns as plain values.
pub(crate) fn plain_turn(turn: &TurnRow) -> Result<PlainTurn> {
    let values = Values(&turn.values);
    let row = row(&values);
    Ok(PlainTurn {
        ordinal: turn.ordinal,
        status: row.text(0)?.to_owned(),
        outcome: row.opt_text(1)?.map(str::to_owned),
        first: turn.first,
        last: turn.last,
        usage: row.opt_text(2)?.map(str::to_owned),
        started_at: row.int(3)?,
        ended_at: row.opt_int(4)?,
    })
}

/// A turn as the table keeps it.
pub(crate) fn turn_of(plain: &PlainTurn) -> Result<TurnRow> {
    let text = |text: &Option<String>| text.clone().map_or(Owned::Null, Owned::Text);
    for text in [Some(&plain.status), plain.outcome.as_ref(), plain.usage.as_ref()].into_iter().flatten() {
        check_text("turn", text, MAX_TEXT_BYTES)?;
    }
    let values = vec![
        Owned::Text(plain.status.clone()),
        text(&plain.outcome),
        text(&plain.usage),
        Owned::Int(plain.started_at),
        plain.ended_at.map_or(Owned::Null, Owned::Int),
    ];
    Ok(TurnRow { ordinal: plain.ordinal, values, first: plain.first, last: plain.last })
}

/// A branch of which items are there, as a carrier found it.
#[derive(Debug, Clone)]
pub(crate) struct FoundBranch {
    pub(crate) id: BranchId,
    pub(crate) parent: Option<(PlainAddress, Hash)>,
    pub(crate) base: u32,
    pub(crate) tip: u32,
    pub(crate) tip_hash: Hash,
    pub(crate) created_at: i64,
}

/// The snapshot of a thread of which these branches are there. `metadata` is what was said of it last.
pub(crate) fn snapshot_of(
    metadata: &PlainThread,
    found: &[FoundBranch],
    epoch: i64,
    redacted: i64,
) -> Result<Snapshot> {
    let id = metadata.thread.clone();
    let (mut ancestors, mut branches): (Vec<ThreadId>, Vec<BranchRow>) = (Vec::new(), Vec::new());
    let mut items: i64 = 0;
    let parents = found.iter().filter_map(|branch| branch.parent.as_ref()).map(|(parent, _)| &parent.thread);
    for thread in parents.chain(metadata.fork.iter().map(|fork| &fork.at.thread)) {
        if *thread != id && !ancestors.contains(thread) {
            ancestors.push(thread.clone());
        }
    }
    for branch in found {
        let marks = metadata.branches.iter().find(|tip| tip.id == branch.id);
        items += i64::from(branch.tip - branch.base) + 1;
        branches.push(BranchRow {
            number: i64::try_from(branches.len()).unwrap_or(0),
            id: branch.id,
            parent: branch.parent.as_ref().map(|(parent, hash)| (parent.address(), *hash)),
            base: branch.base,
            tip: branch.tip,
            tip_hash: branch.tip_hash,
            label: marks.and_then(|marks| marks.label.clone()),
            cleared: marks.is_some_and(|marks| marks.cleared),
            created_at: Timestamp(branch.created_at),
        });
    }
    let head = metadata.head.map(|head| (Address { branch: head.branch, depth: head.depth }, head.hash));
    let is_tip = |(at, _): (Address, Hash)| branches.iter().any(|own| own.id == at.branch && own.tip == at.depth);
    Ok(Snapshot {
        id,
        workspace: metadata.workspace.id,
        shelf: metadata.shelf()?.to_int(),
        version: metadata.number("version").unwrap_or(0),
        epoch,
        head,
        head_is_tip: head.is_some_and(is_tip),
        fork: metadata.fork.as_ref().map(|fork| fork.at.address()),
        items,
        branch_count: i64::try_from(branches.len()).unwrap_or(0),
        turns: metadata.turns,
        open_turn: metadata.open_turn,
        updated_at: metadata.number("updated_at").unwrap_or(0),
        redacted,
        branches,
        ancestors,
        files: Vec::new(),
        state: StateStamp::NONE,
    })
}

/// Where a thread stands, as plain values.
pub(crate) fn plain_thread(
    tx: &mut dyn Tx,
    snapshot: &Snapshot,
    metadata: &Metadata,
    workspace: &WorkspaceInfo,
    writers: Vec<PlainWriter>,
) -> Result<PlainThread> {
    let fork = match snapshot.fork {
        None => None,
        Some(fork) => {
            let (key, thread) = path::key_of(tx, fork)?.ok_or_else(|| Error::not_found("item", fork))?;
            let (hash, _) = path::link_at(tx, key)?.ok_or_else(|| Error::not_found("item", fork))?;
            Some(PlainFork { at: PlainAddress { thread, branch: fork.branch, depth: fork.depth }, hash })
        }
    };
    let shelf = Shelf::from_int(snapshot.shelf).unwrap_or(Shelf::Active);
    let mut branches: Vec<PlainTip> = snapshot.branches.iter().map(plain_tip).collect();
    branches.sort_by_key(|tip| tip.id);
    Ok(PlainThread {
        thread: snapshot.id.clone(),
        fork,
        workspace: PlainWorkspace::of(workspace),
        shelf: SHELVES.iter().find(|(_, it)| *it == shelf).map_or("active", |(word, _)| word).to_owned(),
        head: snapshot.head.map(|(at, hash)| PlainHead { branch: at.branch, depth: at.depth, hash }),
        items: u64::try_from(snapshot.items).unwrap_or(0),
        branches,
        turns: snapshot.turns,
        open_turn: snapshot.open_turn,
        turn_lines: None,
        writers,
        redacted: snapshot.redacted,
        live: None,
        details: if shelf == Shelf::Stub { BTreeMap::new() } else { plain_details(metadata) },
    })
}

fn plain_tip(branch: &BranchRow) -> PlainTip {
    let (id, label) = (branch.id, branch.label.clone());
    PlainTip { id, tip: branch.tip, hash: branch.tip_hash, label, cleared: branch.cleared }
}

/// Who wrote the items of these branches from a depth on each; `origin` is the store's name for writers that came from nowhere
/// else.
pub(crate) fn plain_writers(tx: &mut dyn Tx, parts: &[(&BranchRow, u32)], origin: &str) -> Result<Vec<PlainWriter>> {
    let mut writers: BTreeMap<WriterId, PlainWriter> = BTreeMap::new();
    for (branch, from) in parts {
        let range = [ItemKey::new(branch.number, *from).0, ItemKey::new(branch.number, branch.tip).0];
        let found = query_all(tx, WRITERS_OF, &[range[0].into(), range[1].into()], |row| {
            let id = row.parse(0, WriterId::from_slice(row.blob(0)?), "16 bytes of an id")?;
            let machine = super::with_origin(row.text(1)?, origin);
            Ok(PlainWriter { id, machine, created_at: row.int(2)? })
        })?;
        writers.extend(found.into_iter().map(|writer| (writer.id, writer)));
    }
    Ok(writers.into_values().collect())
}

/// The turns that have no end yet, with their status.
pub(crate) fn open_turns(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<(i64, String)>> {
    query_all(tx, OPEN_TURNS, &[thread.as_str().into()], |row| Ok((row.int(0)?, row.text(1)?.to_owned())))
}

fn plain_details(metadata: &Metadata) -> BTreeMap<String, serde_json::Value> {
    let named = DETAIL_NAMES.iter().zip(&metadata.0).filter_map(|((name, ..), value)| {
        let value = match value {
            Owned::Int(number) => (*number).into(),
            Owned::Text(text) => text.as_str().into(),
            Owned::Null | Owned::Blob(_) => return None,
        };
        Some(((*name).to_owned(), value))
    });
    named.collect()
}
