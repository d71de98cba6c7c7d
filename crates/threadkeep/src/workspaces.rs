//! Workspaces: minted ids to which the keys of a project map, so that a moved folder or a new origin hides nothing.

use serde::Serialize;

use crate::db::{Row, Statement, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::host::ProjectFacts;
use crate::id::WorkspaceId;
use crate::item::check_text;
use crate::log::order;
use crate::roadmaps;
use crate::time::Timestamp;

const MAX_NAME_BYTES: usize = 1024;
// Two kilobytes are what an index of every engine takes as a key.
const MAX_KEY_BYTES: usize = 2 << 10;

statements! {
    BY_KEY = "SELECT workspace FROM workspace_keys WHERE key = ?1";
    ADD_KEY = "INSERT INTO workspace_keys (key, kind, workspace) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING";
    INSERT_WORKSPACE = "INSERT INTO workspaces (id, name, created_at) VALUES (?1, ?2, ?3)";
    WORKSPACES = "SELECT w.id, w.name, w.created_at, (SELECT count(*) FROM threads t WHERE t.workspace = w.id AND t.shelf < 2)
        FROM workspaces w ORDER BY w.created_at, w.id";
    ONE_WORKSPACE = "SELECT w.id, w.name, w.created_at, (SELECT count(*) FROM threads t WHERE t.workspace = w.id AND t.shelf < 2)
        FROM workspaces w WHERE w.id = ?1";
    // Without the index, where a page of it is damaged; and by the index alone, where a row is, which counts the trash as well.
    WORKSPACES_BY_ROWS = "SELECT w.id, w.name, w.created_at, (SELECT count(*) FROM threads t
        WHERE coalesce(t.workspace, t.workspace) = w.id AND t.shelf < 2) FROM workspaces w ORDER BY w.created_at, w.id";
    WORKSPACES_BY_INDEX = "SELECT w.id, w.name, w.created_at, (SELECT count(*) FROM threads t WHERE t.workspace = w.id)
        FROM workspaces w ORDER BY w.created_at, w.id";
    ONE_WORKSPACE_BY_ROWS = "SELECT w.id, w.name, w.created_at, (SELECT count(*) FROM threads t
        WHERE coalesce(t.workspace, t.workspace) = w.id AND t.shelf < 2) FROM workspaces w WHERE w.id = ?1";
    ONE_WORKSPACE_BY_INDEX = "SELECT w.id, w.name, w.created_at, (SELECT count(*) FROM threads t WHERE t.workspace = w.id)
        FROM workspaces w WHERE w.id = ?1";
    KEYS = "SELECT kind, key FROM workspace_keys WHERE workspace = ?1 ORDER BY kind, key";
    HAS_RETENTION_RULES = "SELECT 1 FROM retention_rules WHERE workspace = ?1";
    MOVE_KEYS = "UPDATE workspace_keys SET workspace = ?2 WHERE workspace = ?1";
    MOVE_THREADS = "UPDATE threads SET workspace = ?2 WHERE workspace = ?1";
    MOVE_JOBS = "UPDATE jobs SET workspace = ?2 WHERE workspace = ?1";
    MOVE_RUNS = "UPDATE runs SET workspace = ?2 WHERE workspace = ?1";
    MOVE_REQUESTS = "UPDATE requests SET workspace = ?2 WHERE workspace = ?1";
    MOVE_RETENTION_RECEIPTS = "UPDATE retention_receipts SET workspace = ?2 WHERE workspace = ?1";
    DELETE_WORKSPACE = "DELETE FROM workspaces WHERE id = ?1";
    PUT_MERGED = "INSERT INTO facts (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
}

/// A project as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkspaceInfo {
    /// Its minted id.
    pub id: WorkspaceId,
    /// Its name, for people.
    pub name: String,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// Its threads, the trash left out, unless rows are damaged, which say whether they are in it.
    pub threads: i64,
    /// The keys that map to it, as `kind` and `key`.
    pub keys: Vec<(String, String)>,
}

impl WorkspaceInfo {
    /// The folders that its keys name, on whatever machine.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().filter_map(|(kind, key)| {
            let path = key.strip_prefix(kind.as_str())?.strip_prefix(':')?.split_once(':')?.1;
            match kind.as_str() {
                "path" => Some(path),
                "git" => Some(path.trim_end_matches(".git").trim_end_matches(['/', '\\'])),
                _ => None,
            }
        })
    }
}

/// The keys of a project, strongest first, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Keys that identify the project from now on.
    pub(crate) own: Vec<Key>,
    /// Keys that it may have been known by before it had the others.
    pub(crate) former: Vec<Key>,
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) kind: &'static str,
    pub(crate) key: String,
}

impl Keys {
    /// Decides the keys of a folder. The branch is no part of them, nor is the root commit: scaffolds share it.
    pub(crate) fn of(facts: &ProjectFacts, machine: &str) -> Self {
        let path_key = |path: &std::path::Path| Key { kind: "path", key: format!("path:{machine}:{}", text(path)) };
        let Some(git) = &facts.git_common_dir else {
            let name = file_name(&facts.path);
            return Self { own: vec![path_key(&facts.path)], former: Vec::new(), name };
        };
        let mut own = vec![Key { kind: "git", key: format!("git:{machine}:{}", text(git)) }];
        if let Some(origin) = &facts.origin {
            own.push(Key { kind: "origin", key: format!("origin:{}", normal_url(origin)) });
        }
        let root = git.parent().unwrap_or(git);
        let mut former = vec![path_key(root)];
        if root != facts.path {
            former.push(path_key(&facts.path));
        }
        Self { own, former, name: file_name(root) }
    }
}

/// Makes the forms of one repository's URL alike, and drops what may be a secret: `host/path`.
fn normal_url(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (host, path) = rest.split_once(['/', ':']).unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    format!("{}/{path}", host.to_ascii_lowercase())
}

/// A path as text without loss: bytes that are no UTF-8 are escaped.
fn text(path: &std::path::Path) -> String {
    path.to_str().map_or_else(|| format!("{path:?}"), str::to_owned).replace('\0', "\\0")
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().map_or_else(|| text(path), |name| name.to_string_lossy().into_owned())
}

/// The workspace that one of the keys maps to, strongest first.
pub(crate) fn find(tx: &mut dyn Tx, keys: &Keys) -> Result<Option<WorkspaceId>> {
    for key in keys.own.iter().chain(&keys.former) {
        if let Some(found) = query_one(tx, BY_KEY, &[key.key.as_str().into()], read_id)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The workspace of these keys, made if it is new. Keys that it did not have yet are added.
pub(crate) fn resolve(tx: &mut dyn Tx, keys: &Keys, fresh: WorkspaceId, now: Timestamp) -> Result<WorkspaceInfo> {
    let id = match find_in_line(tx, keys)? {
        Some(id) => id,
        None => {
            check_text("workspace name", &keys.name, MAX_NAME_BYTES)?;
            tx.execute(
                INSERT_WORKSPACE,
                &[fresh.as_bytes().as_slice().into(), keys.name.as_str().into(), now.0.into()],
            )?;
            fresh
        }
    };
    for key in &keys.own {
        check_text("workspace key", &key.key, MAX_KEY_BYTES)?;
        tx.execute(ADD_KEY, &[key.key.as_str().into(), key.kind.into(), id.as_bytes().as_slice().into()])?;
    }
    get(tx, id)
}

/// The workspace that another store's workspace is here: the one of any of its keys, the one of its id, or a new one with both.
pub(crate) fn adopt(tx: &mut dyn Tx, info: &WorkspaceInfo) -> Result<WorkspaceId> {
    order::line_up(tx)?;
    let mut known = None;
    for (_, key) in &info.keys {
        known = known.map_or_else(|| query_one(tx, BY_KEY, &[key.as_str().into()], read_id), |id| Ok(Some(id)))?;
    }
    let id = known.unwrap_or(info.id);
    if query_one(tx, ONE_WORKSPACE, &[id.as_bytes().as_slice().into()], read_info)?.is_none() {
        let args = [id.as_bytes().as_slice().into(), info.name.as_str().into(), info.created_at.0.into()];
        tx.execute(INSERT_WORKSPACE, &args)?;
    }
    for (kind, key) in &info.keys {
        tx.execute(ADD_KEY, &[key.as_str().into(), kind.as_str().into(), id.as_bytes().as_slice().into()])?;
    }
    Ok(id)
}

/// Finds the workspace, and looks again when nobody else can be making it.
fn find_in_line(tx: &mut dyn Tx, keys: &Keys) -> Result<Option<WorkspaceId>> {
    if let Some(found) = find(tx, keys)? {
        return Ok(Some(found));
    }
    order::line_up(tx)?;
    find(tx, keys)
}

/// Reads a workspace.
pub(crate) fn get(tx: &mut dyn Tx, id: WorkspaceId) -> Result<WorkspaceInfo> {
    let ways = [ONE_WORKSPACE, ONE_WORKSPACE_BY_ROWS, ONE_WORKSPACE_BY_INDEX];
    let found = in_some_way(ways, |way| query_one(tx, way, &[id.as_bytes().as_slice().into()], read_info))?;
    let info = found.ok_or_else(|| Error::not_found("workspace", id))?;
    with_keys(tx, info)
}

/// Asks in other ways where something is damaged: what only counts threads keeps nobody from the threads that are whole.
fn in_some_way<T>(ways: [Statement; 3], mut ask: impl FnMut(Statement) -> Result<T>) -> Result<T> {
    let [first, second, third] = ways;
    let damage = match ask(first) {
        Err(damage @ Error::Corrupt { .. }) => damage,
        answer => return answer,
    };
    [second, third].into_iter().find_map(|way| ask(way).ok()).ok_or(damage)
}

/// Reads all workspaces, oldest first.
pub(crate) fn list(tx: &mut dyn Tx) -> Result<Vec<WorkspaceInfo>> {
    let ways = [WORKSPACES, WORKSPACES_BY_ROWS, WORKSPACES_BY_INDEX];
    let found = in_some_way(ways, |way| query_all(tx, way, &[], read_info))?;
    found.into_iter().map(|info| with_keys(tx, info)).collect()
}

/// Merges one workspace into another: its keys and threads move, and it is gone.
pub(crate) fn remap(tx: &mut dyn Tx, from: WorkspaceId, to: WorkspaceId) -> Result<WorkspaceInfo> {
    get(tx, from)?;
    get(tx, to)?;
    if from != to {
        refuse_rules(tx, from)?;
        let args = [from.as_bytes().as_slice().into(), to.as_bytes().as_slice().into()];
        tx.execute(MOVE_KEYS, &args)?;
        tx.execute(MOVE_THREADS, &args)?;
        tx.execute(MOVE_JOBS, &args)?;
        roadmaps::merge(tx, from, to)?;
        tx.execute(MOVE_RUNS, &args)?;
        tx.execute(MOVE_REQUESTS, &args)?;
        tx.execute(MOVE_RETENTION_RECEIPTS, &args)?;
        tx.execute(DELETE_WORKSPACE, &[from.as_bytes().as_slice().into()])?;
        note_merged(tx, from, to)?;
    }
    get(tx, to)
}

/// Rules of retention are of a workspace: whoever merges it says first what is to hold for its threads.
fn refuse_rules(tx: &mut dyn Tx, from: WorkspaceId) -> Result<()> {
    if query_one(tx, HAS_RETENTION_RULES, &[from.as_bytes().as_slice().into()], |_| Ok(()))?.is_none() {
        return Ok(());
    }
    let expected =
        "a workspace without rules of its own, since those of the other one would hold for its threads".to_owned();
    Err(Error::Conflict { what: "retention rules", expected, found: format!("rules of workspace {from}") })
}

/// What begins the name of the fact that says from which workspace threads came to another, followed by the ids of both: what was
/// indexed of them is known by the former one.
pub(crate) const MERGED: &str = "workspace-merged:";

/// Notes that threads of one workspace are now in another.
pub(crate) fn note_merged(tx: &mut dyn Tx, from: WorkspaceId, to: WorkspaceId) -> Result<()> {
    let name = format!("{MERGED}{from}:{to}");
    tx.execute(PUT_MERGED, &[name.as_str().into(), to.as_bytes().as_slice().into()]).map(drop)
}

fn with_keys(tx: &mut dyn Tx, mut info: WorkspaceInfo) -> Result<WorkspaceInfo> {
    info.keys = query_all(tx, KEYS, &[info.id.as_bytes().as_slice().into()], |row| {
        Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned()))
    })?;
    Ok(info)
}

fn read_id(row: &Row<'_>) -> Result<WorkspaceId> {
    row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")
}

fn read_info(row: &Row<'_>) -> Result<WorkspaceInfo> {
    Ok(WorkspaceInfo {
        id: read_id(row)?,
        name: row.text(1)?.to_owned(),
        created_at: Timestamp(row.int(2)?),
        threads: row.int(3)?,
        keys: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Keys, normal_url};
    use crate::host::ProjectFacts;

    #[test]
    fn the_forms_of_a_url_are_one_key_without_credentials() {
        for url in [
            "git@example.org:team/shop.git",
            "https://example.org/team/shop",
            "https://user:secret@Example.org/team/shop.git",
            "ssh://git@example.org/team/shop.git/",
        ] {
            assert_eq!(normal_url(url), "example.org/team/shop", "{url}");
        }
    }

    #[test]
    fn different_paths_have_different_keys() {
        let key = |path: &str| Keys::of(&ProjectFacts { path: path.into(), ..ProjectFacts::default() }, "m").own;
        assert_ne!(key("/a/b"), key("/a-b"));
        assert_ne!(key("/项目/甲"), key("/项目/乙"));
        assert_ne!(key("/a/B"), key("/a/b"));
    }

    #[test]
    fn a_repository_is_known_by_its_git_folder_and_origin_and_found_by_its_former_path() {
        let facts = ProjectFacts {
            path: "/w/shop/src".into(),
            git_common_dir: Some("/w/shop/.git".into()),
            origin: Some("https://example.org/shop.git".into()),
        };
        let keys = Keys::of(&facts, "m");
        assert_eq!(keys.name, "shop");
        let kinds: Vec<_> = keys.own.iter().map(|key| key.kind).collect();
        assert_eq!(kinds, ["git", "origin"]);
        assert_eq!(keys.former[0].key, "path:m:/w/shop");
    }
}
