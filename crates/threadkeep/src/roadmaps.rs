//! Roadmaps: the trees of a workspace's work, and the threads that work on them.
//!
//! A roadmap is a TOML text that is checked at every write. It has a version, 1, 2, …; a thread is linked to one roadmap at most,
//! or to a node of it, and the link goes with either. The order of roadmaps is that of their last change, which their ticks say,
//! not a clock.

mod tree;

use std::ops::ControlFlow;

use serde::Serialize;
use uuid::Uuid;

use self::tree::Unedited;
pub use self::tree::{
    Access, AccessWord, Aggregation, CaveatPolicy, NodeCounts, NodeKind, NodeStatus, RoadmapNode, RoadmapTree,
};
use crate::changes::{self, Area, Note, Verb};
use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{RoadmapId, ThreadId, WorkspaceId};
use crate::item::check_text;
use crate::thread::{Change, MAX_TEXT_BYTES, Page};
use crate::threads::{self, Hold, Scope};
use crate::time::Timestamp;

/// The largest text of a roadmap, in bytes.
pub const MAX_ROADMAP_BYTES: usize = 1 << 20;
const MAX_PAGE: usize = 1_000;
/// After so many bytes of text a page of roadmaps ends.
const PAGE_BYTES: usize = 4 << 20;
const CANDIDATES: i64 = 8;

/// The columns of a roadmap as [`read`] takes them.
macro_rules! roadmap_columns {
    () => {
        "SELECT workspace, id, title, version, created_at, updated_at, tick, tree FROM roadmaps "
    };
}

statements! {
    NEXT_TICK = "SELECT coalesce(max(tick), 0) + 1 FROM roadmaps";
    WORKSPACES_OF = "SELECT workspace FROM roadmaps WHERE id = ?1 AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2)
        ORDER BY workspace LIMIT ?3";
    ONE = concat!(roadmap_columns!(), "WHERE workspace = ?1 AND id = ?2");
    LOCK = "SELECT version, change FROM roadmaps WHERE workspace = ?1 AND id = ?2 /* FOR UPDATE */";
    TREE_OF = "SELECT tree FROM roadmaps WHERE workspace = ?1 AND id = ?2";
    INSERT = "INSERT INTO roadmaps (workspace, id, title, version, change, created_at, updated_at, tick, tree)
        VALUES (?1, ?2, ?3, 1, ?4, ?5, ?5, ?6, ?7)";
    UPDATE = "UPDATE roadmaps SET version = version + 1, change = ?3, tick = ?5, tree = ?6,
        updated_at = CASE WHEN updated_at < ?4 THEN ?4 ELSE updated_at END WHERE workspace = ?1 AND id = ?2";
    SET_TITLE = "UPDATE roadmaps SET title = ?3 WHERE workspace = ?1 AND id = ?2";
    DELETE = "DELETE FROM roadmaps WHERE workspace = ?1 AND id = ?2";
    DOWN = concat!(roadmap_columns!(), "WHERE CAST(?1 AS BYTEA) IS NULL AND (tick < ?2 OR (tick = ?2 AND (workspace > ?3
        OR (workspace = ?3 AND id > ?4)))) ORDER BY tick DESC, workspace, id LIMIT ?5");
    DOWN_IN = concat!(roadmap_columns!(), "WHERE workspace = ?1 AND (tick < ?2 OR (tick = ?2 AND (workspace > ?3
        OR (workspace = ?3 AND id > ?4)))) ORDER BY tick DESC, workspace, id LIMIT ?5");
    LINKED_NODES = "SELECT DISTINCT node FROM roadmap_links WHERE workspace = ?1 AND roadmap = ?2 AND node IS NOT NULL ORDER BY node";
    WORKSPACE_OF_THREAD = "SELECT workspace FROM threads WHERE id = ?1";
    LINK = "SELECT thread, workspace, roadmap, node, linked_at, tick FROM roadmap_links WHERE thread = ?1";
    PUT_LINK = "INSERT INTO roadmap_links (thread, workspace, roadmap, node, linked_at, tick) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (thread) DO UPDATE SET workspace = excluded.workspace, roadmap = excluded.roadmap, node = excluded.node,
          linked_at = excluded.linked_at, tick = excluded.tick";
    UNLINK = "DELETE FROM roadmap_links WHERE thread = ?1";
    LINKS = "SELECT thread, workspace, roadmap, node, linked_at, tick FROM roadmap_links WHERE workspace = ?1 AND roadmap = ?2
        AND (CAST(?3 AS TEXT) IS NULL OR node = ?3) AND thread > ?4 ORDER BY thread LIMIT ?5";
    IDS_IN = "SELECT id FROM roadmaps WHERE workspace = ?1 ORDER BY id";
    MOVE = "UPDATE roadmaps SET workspace = ?3, id = ?4 WHERE workspace = ?1 AND id = ?2";
    NEXT_TEXT = "SELECT workspace, id, title, tree FROM roadmaps WHERE (CAST(?1 AS BYTEA) IS NULL OR workspace = ?1)
        AND (workspace > ?2 OR (workspace = ?2 AND id > ?3)) ORDER BY workspace, id LIMIT 1";
    PUT_TEXTS = "UPDATE roadmaps SET title = ?3, tree = ?4, version = version + 1, tick = ?5 WHERE workspace = ?1 AND id = ?2";
    MOVE_LINKS = "UPDATE roadmap_links SET node = ?4 WHERE workspace = ?1 AND roadmap = ?2 AND node = ?3";
    DROP_LINKS = "DELETE FROM roadmap_links WHERE workspace = ?1 AND roadmap = ?2 AND node = ?3";
}

/// A roadmap without its tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoadmapInfo {
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// Its name in the workspace.
    pub id: RoadmapId,
    /// What people call it.
    pub title: Option<String>,
    /// What all of it is for, as its tree says.
    pub goal: Option<String>,
    /// The number of its version, from 1.
    pub version: u64,
    /// The size of its text in bytes.
    pub size: u64,
    /// How many nodes are how far; none when the text can't be read.
    pub nodes: NodeCounts,
    /// Why the text can't be read, if it can't.
    pub damage: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed; never falls.
    pub updated_at: Timestamp,
    /// The tick of its last change: roadmaps are listed by it.
    pub tick: i64,
}

/// A roadmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Roadmap {
    /// What it is.
    #[serde(flatten)]
    pub info: RoadmapInfo,
    /// Its tree.
    pub tree: RoadmapTree,
    /// The text of the tree: TOML, as it was given.
    pub text: String,
}

/// A roadmap to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRoadmap {
    /// Its name in the workspace.
    pub id: RoadmapId,
    /// What people call it.
    pub title: Option<String>,
    /// Its tree: TOML.
    pub text: String,
    /// Whether it may take the place of one of the same name.
    pub replace: bool,
}

impl NewRoadmap {
    /// A roadmap that must be new.
    pub fn new(id: RoadmapId, text: impl Into<String>) -> Self {
        Self { id, title: None, text: text.into(), replace: false }
    }
}

/// Another text for a roadmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoadmapUpdate {
    /// Its tree: TOML.
    pub text: String,
    /// What people call it.
    pub title: Change<String>,
    /// The version that must be the current one.
    pub expect: Option<u64>,
}

impl RoadmapUpdate {
    /// A text that is put in the place of whatever is there.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), title: Change::Keep, expect: None }
    }
}

/// A change of one node; the rest of the text stays as it is, comments included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// How far it is.
    pub status: Option<NodeStatus>,
    /// What came of it.
    pub result: Change<String>,
    /// The version of the roadmap that must be the current one.
    pub expect: Option<u64>,
}

/// What a thread works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoadmapLink {
    /// The thread.
    pub thread: ThreadId,
    /// The workspace of both.
    pub workspace: WorkspaceId,
    /// The roadmap.
    pub roadmap: RoadmapId,
    /// The node, if it is one.
    pub node: Option<String>,
    /// When it was linked.
    pub linked_at: Timestamp,
    /// The tick of the thread at which it was linked.
    pub tick: i64,
}

/// A question for a page of roadmaps, those that were changed last at the beginning. One that changes while pages are read moves
/// to the beginning of the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoadmapQuery {
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000. Large texts end a page before.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for RoadmapQuery {
    fn default() -> Self {
        Self { limit: 100, cursor: None }
    }
}

/// A question for a page of the threads that are linked to a roadmap, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoadmapLinkQuery {
    /// Only those that are linked to this node.
    pub node: Option<String>,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for RoadmapLinkQuery {
    fn default() -> Self {
        Self { node: None, limit: 100, cursor: None }
    }
}

/// Refuses what can't be kept; needs no transaction.
pub(crate) fn check_text_of(text: &str, title: Option<&str>) -> Result<()> {
    check_text("roadmap", text, MAX_ROADMAP_BYTES)?;
    if let Some(title) = title {
        check_text("title", title, MAX_TEXT_BYTES)?;
    }
    RoadmapTree::parse(text).map(drop).map_err(|reason| Error::invalid("roadmap", reason))
}

/// Makes a roadmap. A repeated call of the same change finds it.
pub(crate) fn create(
    tx: &mut dyn Tx,
    scope: Scope,
    new: &NewRoadmap,
    change: Uuid,
    now: Timestamp,
) -> Result<RoadmapInfo> {
    let Scope::Workspace(workspace) = scope else {
        return Err(Error::invalid("workspace", "a roadmap belongs to a workspace: make it through a handle of one"));
    };
    let place = Place { workspace, id: new.id.clone() };
    match lock(tx, &place)? {
        Some((_, known)) if known == change => {}
        Some(_) if new.replace => {
            let title = new.title.clone().map_or(Change::Clear, Change::Set);
            write(tx, &place, &RoadmapUpdate { text: new.text.clone(), title, expect: None }, change, now)?;
        }
        Some(_) => return Err(Error::AlreadyExists { what: "roadmap", id: new.id.to_string() }),
        None => {
            let tick = next_tick(tx)?;
            let args = [
                Value::Blob(workspace.as_bytes()),
                new.id.as_str().into(),
                new.title.as_deref().into(),
                Value::Blob(change.as_bytes()),
                now.0.into(),
                tick.into(),
                new.text.as_str().into(),
            ];
            tx.execute(INSERT, &args).map_err(|error| match error {
                Error::AlreadyExists { .. } => Error::AlreadyExists { what: "roadmap", id: new.id.to_string() },
                other => other,
            })?;
            note(tx, &place, Verb::Created, now)?;
        }
    }
    info(tx, &place)
}

/// Reads a roadmap, if there is one; damage of its text names it.
pub(crate) fn load(tx: &mut dyn Tx, scope: Scope, id: &RoadmapId) -> Result<Option<Roadmap>> {
    let Some(place) = find(tx, scope, id)? else { return Ok(None) };
    let found = query_one(tx, ONE, &place.args(), |row| Ok((read(row)?, row.text(7)?.to_owned())))?;
    let Some((info, text)) = found else { return Ok(None) };
    let tree = RoadmapTree::parse(&text).map_err(|reason| Error::corrupt(place.words(), reason))?;
    Ok(Some(Roadmap { info, tree, text }))
}

/// Puts another text in the place of the one that is there.
pub(crate) fn update(
    tx: &mut dyn Tx,
    scope: Scope,
    id: &RoadmapId,
    update: &RoadmapUpdate,
    change: Uuid,
    now: Timestamp,
) -> Result<RoadmapInfo> {
    let place = existing(tx, scope, id)?;
    if is_new(tx, &place, update.expect, change)? {
        write(tx, &place, update, change, now)?;
    }
    info(tx, &place)
}

/// Changes one node of a roadmap.
pub(crate) fn set_node(
    tx: &mut dyn Tx,
    scope: Scope,
    (id, node): (&RoadmapId, &str),
    patch: &NodePatch,
    change: Uuid,
    now: Timestamp,
) -> Result<RoadmapInfo> {
    let place = existing(tx, scope, id)?;
    if is_new(tx, &place, patch.expect, change)? {
        let text = query_one(tx, TREE_OF, &place.args(), |row| Ok(row.text(0)?.to_owned()))?.unwrap_or_default();
        let edited = tree::edited(&text, node, patch).map_err(|error| match error {
            Unedited::NoNode => Error::not_found("roadmap node", node),
            Unedited::NoTree(reason) => Error::corrupt(place.words(), reason),
        })?;
        check_text("roadmap", &edited, MAX_ROADMAP_BYTES)?;
        if edited != text {
            write(tx, &place, &RoadmapUpdate::new(edited), change, now)?;
        }
    }
    info(tx, &place)
}

/// Reads a page of roadmaps.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &RoadmapQuery) -> Result<Page<RoadmapInfo>> {
    let tag = format!("roadmaps {scope:?}");
    let start = match &query.cursor {
        Some(cursor) => Start::read(&Cursor::decode(cursor, &tag)?)?,
        None => Start { tick: i64::MAX, workspace: Vec::new(), id: String::new() },
    };
    let limit = query.limit.min(MAX_PAGE);
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let statement = if scope == Scope::All { DOWN } else { DOWN_IN };
    let args =
        [scope.arg(), start.tick.into(), Value::Blob(&start.workspace), start.id.as_str().into(), one_more.into()];
    let (mut entries, mut more, mut bytes): (Vec<RoadmapInfo>, bool, usize) = (Vec::new(), false, 0);
    tx.query(statement, &args, &mut |row| {
        more = entries.len() == limit || bytes > PAGE_BYTES;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        let info = read(row)?;
        bytes = bytes.saturating_add(usize::try_from(info.size).unwrap_or(usize::MAX));
        entries.push(info);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| {
        let id = format!("{}/{}", last.workspace, last.id);
        Cursor { value: last.tick, id }.encode(&tag)
    });
    Ok(Page { entries, next_cursor })
}

/// Where a page starts: behind the roadmap of this place in the order.
struct Start {
    tick: i64,
    workspace: Vec<u8>,
    id: String,
}

impl Start {
    fn read(cursor: &Cursor) -> Result<Self> {
        let parts = cursor.id.split_once('/').and_then(|(workspace, id)| Some((workspace.parse().ok()?, id)));
        let (workspace, id): (WorkspaceId, &str) = parts.ok_or_else(|| Error::invalid("cursor", "it is damaged"))?;
        Ok(Self { tick: cursor.value, workspace: workspace.as_bytes().to_vec(), id: id.to_owned() })
    }
}

/// Deletes a roadmap with the links to it, damaged or not; says whether there was one.
pub(crate) fn delete(
    tx: &mut dyn Tx,
    scope: Scope,
    id: &RoadmapId,
    expect: Option<u64>,
    now: Timestamp,
) -> Result<bool> {
    let Some(place) = find(tx, scope, id)? else { return Ok(false) };
    let Some((version, _)) = lock(tx, &place)? else { return Ok(false) };
    check_expected(expect, version)?;
    tx.execute(DELETE, &place.args())?;
    note(tx, &place, Verb::Deleted, now)?;
    Ok(true)
}

/// Links a thread to a roadmap of its workspace, or to a node of it, in the place of what it was linked to.
pub(crate) fn link(tx: &mut dyn Tx, hold: &Hold, id: &RoadmapId, node: Option<&str>) -> Result<RoadmapLink> {
    let tick = threads::hold(tx, hold)?;
    let workspace = query_one(tx, WORKSPACE_OF_THREAD, &[hold.thread.as_str().into()], |row| read_workspace(row, 0))?;
    let workspace = workspace.ok_or_else(|| Error::not_found("thread", &hold.thread))?;
    let place = Place { workspace, id: id.clone() };
    // Held to the end, so that nobody takes the node away meanwhile.
    lock(tx, &place)?.ok_or_else(|| Error::not_found("roadmap", id))?;
    if let Some(node) = node {
        let text = query_one(tx, TREE_OF, &place.args(), |row| Ok(row.text(0)?.to_owned()))?.unwrap_or_default();
        let tree = RoadmapTree::parse(&text).map_err(|reason| Error::corrupt(place.words(), reason))?;
        tree.node(node).ok_or_else(|| Error::not_found("roadmap node", node))?;
    }
    let known = link_of(tx, &hold.thread)?;
    if let Some(known) = known.as_ref().filter(|known| known.is(&place, node)) {
        return Ok(known.clone());
    }
    let args = [
        hold.thread.as_str().into(),
        Value::Blob(place.workspace.as_bytes()),
        id.as_str().into(),
        node.into(),
        hold.now.0.into(),
        tick.into(),
    ];
    tx.execute(PUT_LINK, &args)?;
    note_link(tx, hold, tick, id, if known.is_some() { Verb::Changed } else { Verb::Created })?;
    link_of(tx, &hold.thread)?.ok_or_else(|| Error::not_found("roadmap", id))
}

impl RoadmapLink {
    fn is(&self, place: &Place, node: Option<&str>) -> bool {
        (self.workspace, &self.roadmap, self.node.as_deref()) == (place.workspace, &place.id, node)
    }
}

/// Takes a thread's link away; says whether it had one.
pub(crate) fn unlink(tx: &mut dyn Tx, hold: &Hold) -> Result<bool> {
    let tick = threads::hold(tx, hold)?;
    let Some(known) = link_of(tx, &hold.thread)? else { return Ok(false) };
    tx.execute(UNLINK, &[hold.thread.as_str().into()])?;
    note_link(tx, hold, tick, &known.roadmap, Verb::Deleted)?;
    Ok(true)
}

/// Reads what a thread is linked to.
pub(crate) fn link_of(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<RoadmapLink>> {
    query_one(tx, LINK, &[thread.as_str().into()], read_link)
}

/// Reads a page of the threads that are linked to a roadmap.
pub(crate) fn links(
    tx: &mut dyn Tx,
    scope: Scope,
    id: &RoadmapId,
    query: &RoadmapLinkQuery,
) -> Result<Page<RoadmapLink>> {
    let place = existing(tx, scope, id)?;
    let tag = format!("links of {} {:?}", place.words(), query.node);
    let start = query.cursor.as_ref().map(|cursor| Cursor::decode(cursor, &tag)).transpose()?;
    let limit = query.limit.min(MAX_PAGE);
    let [workspace, roadmap] = place.args();
    let args = [
        workspace,
        roadmap,
        query.node.as_deref().into(),
        start.as_ref().map_or("", |start| start.id.as_str()).into(),
        (i64::try_from(limit).unwrap_or(0) + 1).into(),
    ];
    let mut entries = query_all(tx, LINKS, &args, read_link)?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: 0, id: last.thread.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// Moves the roadmaps of one workspace to another, with their links; a number is put behind a name that is taken there.
pub(crate) fn merge(tx: &mut dyn Tx, from: WorkspaceId, to: WorkspaceId) -> Result<()> {
    let ids = |tx: &mut dyn Tx, of: WorkspaceId| {
        query_all(tx, IDS_IN, &[Value::Blob(of.as_bytes())], |row| Ok(row.text(0)?.to_owned()))
    };
    let mut taken = ids(tx, to)?;
    for id in ids(tx, from)? {
        let mut name = id.clone();
        for number in 2_u64.. {
            if !taken.contains(&name) {
                break;
            }
            let suffix = format!("-{number}");
            let room = RoadmapId::MAX_BYTES - suffix.len();
            name = format!("{}{suffix}", id.get(..room.min(id.len())).unwrap_or_default());
        }
        let args = [Value::Blob(from.as_bytes()), id.as_str().into(), Value::Blob(to.as_bytes()), name.as_str().into()];
        tx.execute(MOVE, &args)?;
        taken.push(name);
    }
    Ok(())
}

/// The texts of a roadmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) workspace: WorkspaceId,
    pub(crate) id: String,
    pub(crate) title: Option<String>,
    pub(crate) text: String,
}

/// The texts of the next roadmap after one.
pub(crate) fn next_texts(tx: &mut dyn Tx, scope: Scope, (workspace, id): (&[u8], &str)) -> Result<Option<Texts>> {
    query_one(tx, NEXT_TEXT, &[scope.arg(), Value::Blob(workspace), id.into()], |row| {
        Ok(Texts {
            workspace: read_workspace(row, 0)?,
            id: row.text(1)?.to_owned(),
            title: row.opt_text(2)?.map(str::to_owned),
            text: row.text(3)?.to_owned(),
        })
    })
}

/// Puts masked texts in the place of those that were looked at; `masked` says what becomes of the name of a node. A link to a node
/// that is no longer there goes. Leaves a roadmap that was changed meanwhile, and says so.
pub(crate) fn put_texts(
    tx: &mut dyn Tx,
    (before, after): (&Texts, &Texts),
    masked: &dyn Fn(&str) -> String,
    now: Timestamp,
) -> Result<bool> {
    let key = [Value::Blob(before.workspace.as_bytes()), before.id.as_str().into()];
    let found = query_one(tx, ONE, &key, |row| Ok((row.opt_text(2)?.map(str::to_owned), row.text(7)?.to_owned())))?;
    let Some((title, text)) = found else { return Ok(true) };
    if (&title, &text) != (&before.title, &before.text) {
        return Ok((&title, &text) == (&after.title, &after.text));
    }
    let tick = next_tick(tx)?;
    let args = [key[0], key[1], after.title.as_deref().into(), after.text.as_str().into(), tick.into()];
    tx.execute(PUT_TEXTS, &args)?;
    settle_links(tx, key, &after.text, masked)?;
    let note = Note { area: Area::Roadmap, verb: Verb::Changed, subject: Some(&before.id), now };
    changes::note_in(tx, before.workspace, note)?;
    Ok(true)
}

/// Lets links follow nodes that have another name in a text; one whose node is not there goes.
pub(crate) fn settle_links(
    tx: &mut dyn Tx,
    [workspace, id]: [Value<'_>; 2],
    text: &str,
    renamed: &dyn Fn(&str) -> String,
) -> Result<()> {
    let tree = RoadmapTree::parse(text).unwrap_or_default();
    for node in query_all(tx, LINKED_NODES, &[workspace, id], |row| Ok(row.text(0)?.to_owned()))? {
        let name = renamed(&node);
        match tree.node(&name) {
            Some(_) if name == node => {}
            Some(_) => drop(tx.execute(MOVE_LINKS, &[workspace, id, node.as_str().into(), name.as_str().into()])?),
            None => drop(tx.execute(DROP_LINKS, &[workspace, id, node.as_str().into()])?),
        }
    }
    Ok(())
}

/// Whether a text is a tree.
pub(crate) fn is_tree(text: &str) -> bool {
    RoadmapTree::parse(text).is_ok()
}

/// A roadmap by its whole name.
struct Place {
    workspace: WorkspaceId,
    id: RoadmapId,
}

impl Place {
    fn args(&self) -> [Value<'_>; 2] {
        [Value::Blob(self.workspace.as_bytes()), self.id.as_str().into()]
    }

    fn words(&self) -> String {
        format!("roadmap `{}` of workspace {}", self.id, self.workspace)
    }
}

/// The roadmap of an id that a scope sees.
fn find(tx: &mut dyn Tx, scope: Scope, id: &RoadmapId) -> Result<Option<Place>> {
    let args = [id.as_str().into(), scope.arg(), CANDIDATES.into()];
    let found = query_all(tx, WORKSPACES_OF, &args, |row| read_workspace(row, 0))?;
    match found.as_slice() {
        [] => Ok(None),
        [workspace] => Ok(Some(Place { workspace: *workspace, id: id.clone() })),
        several => {
            let candidates = several.iter().map(|workspace| format!("{id} of workspace {workspace}")).collect();
            Err(Error::Ambiguous { given: id.to_string(), candidates })
        }
    }
}

fn existing(tx: &mut dyn Tx, scope: Scope, id: &RoadmapId) -> Result<Place> {
    find(tx, scope, id)?.ok_or_else(|| Error::not_found("roadmap", id))
}

/// Locks a roadmap; gives its version and the change that made it.
fn lock(tx: &mut dyn Tx, place: &Place) -> Result<Option<(u64, Uuid)>> {
    query_one(tx, LOCK, &place.args(), |row| {
        let version = row.parse(0, u64::try_from(row.int(0)?).ok(), "a version")?;
        Ok((version, row.parse(1, Uuid::from_slice(row.blob(1)?).ok(), "16 bytes of an id")?))
    })
}

/// Locks a roadmap for a change; says whether it is to be made, or was already.
fn is_new(tx: &mut dyn Tx, place: &Place, expect: Option<u64>, change: Uuid) -> Result<bool> {
    let (version, known) = lock(tx, place)?.ok_or_else(|| Error::not_found("roadmap", &place.id))?;
    if known == change {
        return Ok(false);
    }
    check_expected(expect, version)?;
    Ok(true)
}

fn check_expected(expect: Option<u64>, found: u64) -> Result<()> {
    match expect.filter(|expected| *expected != found) {
        None => Ok(()),
        Some(expected) => {
            Err(Error::Conflict { what: "version", expected: expected.to_string(), found: found.to_string() })
        }
    }
}

/// Writes the next version of a roadmap that is locked. Refuses one without a node that threads are linked to.
fn write(tx: &mut dyn Tx, place: &Place, update: &RoadmapUpdate, change: Uuid, now: Timestamp) -> Result<()> {
    let tree = RoadmapTree::parse(&update.text).map_err(|reason| Error::invalid("roadmap", reason))?;
    let linked = query_all(tx, LINKED_NODES, &place.args(), |row| Ok(row.text(0)?.to_owned()))?;
    if let Some(lost) = linked.iter().find(|node| tree.node(node).is_none()) {
        let found = format!("a tree without `{lost}`, which threads are linked to");
        return Err(Error::Conflict { what: "links", expected: "every node that is linked".to_owned(), found });
    }
    let tick = next_tick(tx)?;
    let [workspace, id] = place.args();
    let args = [workspace, id, Value::Blob(change.as_bytes()), now.0.into(), tick.into(), update.text.as_str().into()];
    tx.execute(UPDATE, &args)?;
    match &update.title {
        Change::Keep => {}
        Change::Clear => drop(tx.execute(SET_TITLE, &[workspace, id, Value::Null])?),
        Change::Set(title) => drop(tx.execute(SET_TITLE, &[workspace, id, title.as_str().into()])?),
    }
    note(tx, place, Verb::Changed, now)
}

pub(crate) fn next_tick(tx: &mut dyn Tx) -> Result<i64> {
    Ok(query_one(tx, NEXT_TICK, &[], |row| row.int(0))?.unwrap_or(1))
}

fn info(tx: &mut dyn Tx, place: &Place) -> Result<RoadmapInfo> {
    query_one(tx, ONE, &place.args(), read)?.ok_or_else(|| Error::not_found("roadmap", &place.id))
}

/// Notes for those who follow what became of a roadmap.
fn note(tx: &mut dyn Tx, place: &Place, verb: Verb, now: Timestamp) -> Result<()> {
    changes::note_in(tx, place.workspace, Note { area: Area::Roadmap, verb, subject: Some(place.id.as_str()), now })
}

/// Notes for those who follow a thread what became of its link.
fn note_link(tx: &mut dyn Tx, hold: &Hold, tick: i64, id: &RoadmapId, verb: Verb) -> Result<()> {
    let note = Note { area: Area::Roadmap, verb, subject: Some(id.as_str()), now: hold.now };
    changes::note(tx, &hold.thread, Some(tick), note)
}

/// Reads the columns of `roadmap_columns!`. Damage of the row names the roadmap; that of the text stands in what is read.
fn read(row: &Row<'_>) -> Result<RoadmapInfo> {
    let id = row.parse(1, RoadmapId::new(row.text(1)?).ok(), "a roadmap id")?;
    let place = format!("roadmap `{id}`");
    read_columns(row, id).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_columns(row: &Row<'_>, id: RoadmapId) -> Result<RoadmapInfo> {
    let text = row.text(7);
    let size = text.as_ref().map_or(0, |text| text.len() as u64);
    let tree = text.map_err(|error| error.to_string()).and_then(RoadmapTree::parse);
    let (nodes, goal, damage) = match tree {
        Ok(tree) => (tree.counts(), tree.goal, None),
        Err(damage) => (NodeCounts::default(), None, Some(damage)),
    };
    Ok(RoadmapInfo {
        workspace: read_workspace(row, 0)?,
        id,
        title: row.opt_text(2)?.map(str::to_owned),
        goal,
        version: row.parse(3, u64::try_from(row.int(3)?).ok(), "a version")?,
        size,
        nodes,
        damage,
        created_at: Timestamp(row.int(4)?),
        updated_at: Timestamp(row.int(5)?),
        tick: row.int(6)?,
    })
}

fn read_link(row: &Row<'_>) -> Result<RoadmapLink> {
    Ok(RoadmapLink {
        thread: row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")?,
        workspace: read_workspace(row, 1)?,
        roadmap: row.parse(2, RoadmapId::new(row.text(2)?).ok(), "a roadmap id")?,
        node: row.opt_text(3)?.map(str::to_owned),
        linked_at: Timestamp(row.int(4)?),
        tick: row.int(5)?,
    })
}

fn read_workspace(row: &Row<'_>, column: usize) -> Result<WorkspaceId> {
    row.parse(column, WorkspaceId::from_slice(row.blob(column)?), "16 bytes of an id")
}
