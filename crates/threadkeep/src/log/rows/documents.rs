//! Documents with their history, and roadmaps with the links to them, taken from one store and put into another.

use std::ops::ControlFlow;

use crate::changes::{self, Area, Note, Verb};
use crate::content;
use crate::db::{Owned, Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::item::Hash;
use crate::roadmaps;
use crate::time::Timestamp;

const PAGE_ROWS: i64 = 1_000;
const PAGE_BYTES: usize = 4 << 20;
const VERSION_COLUMNS: usize = 11;
const ROADMAP_COLUMNS: usize = 7;

statements! {
    VERSIONS = "SELECT name, version, kind, is_current, change, created_at, tick, digest, size, encoding, data FROM document_versions
        WHERE thread = ?1 AND (name > ?2 OR (name = ?2 AND version > ?3)) ORDER BY name, version LIMIT ?4";
    // What is there and did not come: between the end of the page before and the end of this one, or behind the last.
    DROP_VERSIONS = "DELETE FROM document_versions WHERE thread = ?1 AND (name > ?2 OR (name = ?2 AND version > ?3))
        AND (CAST(?4 AS TEXT) IS NULL OR name < ?4 OR (name = ?4 AND version <= ?5))";
    DROP_CHANGE = "DELETE FROM document_versions WHERE thread = ?1 AND change = ?2";
    SET_BACK = "UPDATE document_versions SET is_current = 0 WHERE thread = ?1 AND name = ?2 AND is_current = 1";
    PUT_VERSION = "INSERT INTO document_versions (thread, name, version, kind, is_current, change, created_at, tick, digest, size,
        encoding, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    GREATEST_TICK = "SELECT coalesce(max(tick), 0) FROM (SELECT tick FROM document_versions WHERE thread = ?1
        UNION ALL SELECT tick FROM roadmap_links WHERE thread = ?1) AS ticks";
    LINK = "SELECT roadmap, node, linked_at, tick FROM roadmap_links WHERE thread = ?1";
    DROP_LINK = "DELETE FROM roadmap_links WHERE thread = ?1";
    PUT_LINK = "INSERT INTO roadmap_links (thread, workspace, roadmap, node, linked_at, tick)
        SELECT t.id, r.workspace, r.id, ?3, ?4, ?5 FROM threads t JOIN roadmaps r ON r.workspace = t.workspace AND r.id = ?2
        WHERE t.id = ?1";
    WITH_ROADMAPS = "SELECT DISTINCT workspace FROM roadmaps ORDER BY workspace";
    ROADMAP = "SELECT id, title, version, change, created_at, updated_at, tree FROM roadmaps WHERE workspace = ?1 AND id > ?2
        ORDER BY id LIMIT 1";
    KNOWN_ROADMAP = "SELECT version, updated_at, title, tree FROM roadmaps WHERE workspace = ?1 AND id = ?2 /* FOR UPDATE */";
    PUT_ROADMAP = "INSERT INTO roadmaps (workspace, id, title, version, change, created_at, updated_at, tree, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (workspace, id) DO UPDATE SET title = excluded.title,
          version = excluded.version, change = excluded.change, updated_at = excluded.updated_at, tree = excluded.tree,
          tick = excluded.tick";
}

/// Where a version of a document stands in the order in which they are carried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VersionPlace {
    name: String,
    version: i64,
}

/// A page of versions on their way, as they are stored.
#[derive(Debug)]
pub(crate) struct VersionPage {
    after: VersionPlace,
    rows: Vec<Vec<Owned>>,
    /// How many bytes their texts have.
    pub(crate) bytes: usize,
}

impl VersionPage {
    /// Where the next page begins; nothing when this one is empty, and the last.
    pub(crate) fn end(&self) -> Option<VersionPlace> {
        match self.rows.last()?.as_slice() {
            [Owned::Text(name), Owned::Int(version), ..] => {
                Some(VersionPlace { name: name.clone(), version: *version })
            }
            _ => None,
        }
    }
}

/// Reads a page of the versions of a thread's documents, and checks their texts.
pub(crate) fn versions(tx: &mut dyn Tx, thread: &ThreadId, after: VersionPlace) -> Result<VersionPage> {
    let args = [thread.as_str().into(), after.name.as_str().into(), after.version.into(), PAGE_ROWS.into()];
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    tx.query(VERSIONS, &args, &mut |row| {
        check_text(row, thread)?;
        bytes += row.opt_blob(10)?.map_or(0, <[u8]>::len);
        rows.push(columns(row, VERSION_COLUMNS)?);
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(VersionPage { after, rows, bytes })
}

/// Refuses a text that is not what its hash says.
fn check_text(row: &Row<'_>, thread: &ThreadId) -> Result<()> {
    let (Some(digest), Some(data)) = (row.opt_blob(7)?, row.opt_blob(10)?) else { return Ok(()) };
    let whole = content::decode_blob(row.int(9)?, usize::try_from(row.int(8)?).unwrap_or(0), data);
    if whole.is_ok_and(|text| Hash::of(&text).0.as_slice() == digest) {
        return Ok(());
    }
    let place = format!("document `{}` of thread {thread}, version {}", row.text(0)?, row.int(1)?);
    Err(Error::corrupt(place, "its bytes do not have the hash that they are stored under"))
}

/// Puts a page of versions in the place of those that stand between its ends; the empty page in that of all behind the last.
pub(crate) fn put_versions(tx: &mut dyn Tx, thread: &ThreadId, page: &VersionPage) -> Result<()> {
    let id: Value<'_> = thread.as_str().into();
    let end = page.end();
    let (name, version) = end.as_ref().map_or((None, None), |end| (Some(end.name.as_str()), Some(end.version)));
    let range = [id, page.after.name.as_str().into(), page.after.version.into(), name.into(), version.into()];
    tx.execute(DROP_VERSIONS, &range)?;
    for row in &page.rows {
        if let [name, _, _, is_current, change, ..] = row.as_slice() {
            // It may stand here under another name.
            tx.execute(DROP_CHANGE, &[id, change.value()])?;
            if *is_current == Owned::Int(1) {
                tx.execute(SET_BACK, &[id, name.value()])?;
            }
        }
        let mut values = vec![id];
        values.extend(row.iter().map(Owned::value));
        tx.execute(PUT_VERSION, &values)?;
    }
    Ok(())
}

/// What a thread is linked to, on its way, and the greatest tick of that and of its documents.
#[derive(Debug)]
pub(crate) struct LinkRow {
    link: Option<Vec<Owned>>,
    pub(crate) tick: i64,
}

/// Reads what a thread is linked to.
pub(crate) fn link(tx: &mut dyn Tx, thread: &ThreadId) -> Result<LinkRow> {
    let id = [thread.as_str().into()];
    let tick = query_one(tx, GREATEST_TICK, &id, |row| row.int(0))?.unwrap_or(0);
    Ok(LinkRow { link: query_one(tx, LINK, &id, |row| columns(row, 4))?, tick })
}

/// Puts the link in the place of the one that a thread has; one to a roadmap that is not here is left.
pub(crate) fn put_link(tx: &mut dyn Tx, thread: &ThreadId, row: &LinkRow) -> Result<()> {
    let id: Value<'_> = thread.as_str().into();
    tx.execute(DROP_LINK, &[id])?;
    let Some(link) = &row.link else { return Ok(()) };
    let mut values = vec![id];
    values.extend(link.iter().map(Owned::value));
    tx.execute(PUT_LINK, &values).map(drop)
}

/// The workspaces that have roadmaps.
pub(crate) fn workspaces_with_roadmaps(tx: &mut dyn Tx) -> Result<Vec<WorkspaceId>> {
    query_all(tx, WITH_ROADMAPS, &[], |row| row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id"))
}

/// A roadmap on its way, as it is stored.
#[derive(Debug)]
pub(crate) struct RoadmapRow(Vec<Owned>);

impl RoadmapRow {
    /// Its name.
    pub(crate) fn id(&self) -> &str {
        match self.0.first() {
            Some(Owned::Text(id)) => id,
            _ => "",
        }
    }
}

/// Reads the next roadmap of a workspace.
pub(crate) fn roadmap(tx: &mut dyn Tx, workspace: WorkspaceId, after: &str) -> Result<Option<RoadmapRow>> {
    let args = [Value::Blob(workspace.as_bytes()), after.into()];
    Ok(query_one(tx, ROADMAP, &args, |row| columns(row, ROADMAP_COLUMNS))?.map(RoadmapRow))
}

/// Puts a roadmap here, unless what is here has a later version; says whether it did. Links to nodes that it has not go.
pub(crate) fn put_roadmap(tx: &mut dyn Tx, workspace: WorkspaceId, row: &RoadmapRow) -> Result<bool> {
    let [id, title, Owned::Int(version), _, _, Owned::Int(updated_at), Owned::Text(text)] = row.0.as_slice() else {
        return Ok(false);
    };
    let key = [Value::Blob(workspace.as_bytes()), id.value()];
    let known = query_one(tx, KNOWN_ROADMAP, &key, |row| {
        Ok(((row.int(0)?, row.int(1)?), (row.owned(2)?, row.text(3)?.to_owned())))
    })?;
    let is_here = known.as_ref().is_some_and(|(place, texts)| {
        *place > (*version, *updated_at) || (&texts.0, &texts.1) == (title, text) && *place == (*version, *updated_at)
    });
    if is_here {
        return Ok(false);
    }
    let tick = roadmaps::next_tick(tx)?;
    let mut values = vec![key[0]];
    values.extend(row.0.iter().map(Owned::value));
    values.push(tick.into());
    tx.execute(PUT_ROADMAP, &values)?;
    roadmaps::settle_links(tx, key, text, &str::to_owned)?;
    let verb = if known.is_some() { Verb::Changed } else { Verb::Created };
    let note = Note { area: Area::Roadmap, verb, subject: Some(row.id()), now: Timestamp(*updated_at) };
    changes::note_in(tx, workspace, note)?;
    Ok(true)
}

fn columns(row: &Row<'_>, count: usize) -> Result<Vec<Owned>> {
    (0..count).map(|column| row.owned(column)).collect()
}
