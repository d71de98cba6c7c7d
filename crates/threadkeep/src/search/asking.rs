//! A query as a question to the index, and what has to be looked at in each answer because no tag says it.

use std::collections::{BTreeSet, HashMap};

use super::document::{self, EVERY, TITLE};
use super::matching;
use super::query::{Filters, Node, OnPath, Query, Sides};
use super::text::NormalText;
use crate::db::index::Expr;
use crate::db::{Tx, query_all, statements};
use crate::error::{Error, Result};
use crate::id::{ItemKey, ThreadId, WorkspaceId};
use crate::log::{head, path};
use crate::threads::{self, Scope};
use crate::time::Timestamp;
use crate::workspaces::MERGED;

statements! {
    FORKS_FROM_OUTSIDE = "SELECT t.fork_item FROM threads t JOIN branches b ON b.key = t.fork_item >> 32
        JOIN threads o ON o.id = b.thread WHERE t.workspace = ?1 AND t.fork_item IS NOT NULL AND o.workspace <> ?1";
    FORMER = "SELECT name FROM facts WHERE value = ?1 AND name >= 'workspace-merged:' AND name < 'workspace-merged;'";
    NAMED = "SELECT w.id, w.name, k.kind, k.key FROM workspaces w LEFT JOIN workspace_keys k ON k.workspace = w.id ORDER BY w.id";
    BRANCHES_OF = "SELECT key FROM branches WHERE thread = ?1 ORDER BY key";
    FORK_ITEM = "SELECT fork_item FROM threads WHERE id = ?1";
}

/// A question, and what its answers have to be asked besides.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) expr: Expr,
    pub(crate) checks: Checks,
}

/// What tags do not say, or say of more than what is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checks {
    pub(crate) from: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) path: Option<OnPath>,
    pub(crate) agents: Sides<String>,
    pub(crate) titles: Sides<Node>,
    pub(crate) workspaces: Sides<WorkspaceId>,
    /// Up to which depth items of each branch belong to the threads that are asked for.
    pub(crate) within: Option<HashMap<i64, u32>>,
    pub(crate) without: HashMap<i64, u32>,
    pub(crate) threads: Sides<ThreadId>,
}

/// Makes the question. What names nothing that is there is told, and found nowhere.
pub(crate) fn question(tx: &mut dyn Tx, scope: Scope, query: &Query, told: &mut Vec<String>) -> Result<Question> {
    let filters = &query.filters;
    let mut asked = Asked::of(&query.wanted);
    if query.wanted.phrases().is_empty() {
        asked.unwanted.push(Expr::Tag(TITLE.to_owned()));
    }
    asked.tags(&filters.role, |role| document::role_tag(role.as_str()));
    asked.tags(&filters.kind, |kind| document::kind_tag(kind.as_str()));
    asked.tags(&filters.tool, |tool| document::tool_tag(tool));
    asked.tags(&filters.has, |has| document::has_tag(has.as_str()));
    asked.days(filters);
    let mut checks = Checks {
        from: filters.from,
        until: filters.until,
        path: filters.path,
        agents: filters.agent.clone(),
        titles: filters.title.clone(),
        ..Checks::default()
    };
    if let Scope::Workspace(workspace) = scope {
        asked.wanted.push(fence(tx, workspace)?);
    }
    asked.workspaces(tx, &filters.workspace, &mut checks, told)?;
    asked.threads(tx, scope, &filters.thread, &mut checks, told)?;
    Ok(Question { expr: asked.expr(), checks })
}

/// Whether a document is what is asked for, decided by reading it.
pub(crate) fn fits(expr: &Expr, text: &NormalText, tags: &BTreeSet<&str>) -> bool {
    match expr {
        Expr::Phrase { words, parts, is_prefix } => {
            let phrase = Node::Phrase { words: words.clone(), parts: parts.clone(), prefix: *is_prefix };
            matching::holds(&phrase, text)
        }
        Expr::Tag(tag) => tags.contains(tag.as_str()),
        Expr::All(all) => all.iter().all(|expr| fits(expr, text, tags)),
        Expr::Any(any) => any.iter().any(|expr| fits(expr, text, tags)),
        Expr::Without(wanted, unwanted) => fits(wanted, text, tags) && !fits(unwanted, text, tags),
    }
}

/// What is wanted of a document, and what is not.
#[derive(Debug, Default)]
struct Asked {
    wanted: Vec<Expr>,
    unwanted: Vec<Expr>,
}

impl Asked {
    fn of(node: &Node) -> Self {
        let mut asked = Self::default();
        asked.add(node);
        asked
    }

    fn add(&mut self, node: &Node) {
        match node {
            Node::All(nodes) => nodes.iter().for_each(|node| self.add(node)),
            Node::Not(node) => self.unwanted.push(Self::of(node).expr()),
            Node::Any(nodes) => self.wanted.push(Expr::Any(nodes.iter().map(|node| Self::of(node).expr()).collect())),
            Node::Phrase { words, parts, prefix } => {
                let (words, parts) = (words.clone(), parts.clone());
                self.wanted.push(Expr::Phrase { words, parts, is_prefix: *prefix });
            }
        }
    }

    fn expr(mut self) -> Expr {
        let wanted = match self.wanted.len() {
            0 => Expr::Tag(EVERY.to_owned()),
            1 => self.wanted.remove(0),
            _ => Expr::All(self.wanted),
        };
        match self.unwanted.is_empty() {
            true => wanted,
            false => Expr::Without(Box::new(wanted), Box::new(Expr::Any(self.unwanted))),
        }
    }

    fn tags<T>(&mut self, sides: &Sides<T>, tag: impl Fn(&T) -> String) {
        if !sides.any.is_empty() {
            self.wanted.push(any_of(sides.any.iter().map(&tag)));
        }
        if !sides.none.is_empty() {
            self.unwanted.push(any_of(sides.none.iter().map(&tag)));
        }
    }

    /// The days in which something of the wanted time lies.
    fn days(&mut self, filters: &Filters) {
        if filters.from.is_none() && filters.until.is_none() {
            return;
        }
        let day = |at: Option<Timestamp>, open| at.and_then(document::date_of).unwrap_or(open);
        let (first, last) = (jiff::civil::date(0, 1, 1), jiff::civil::Date::MAX);
        self.wanted
            .push(any_of(document::tags_of_days(day(filters.from, first), day(filters.until, last)).into_iter()));
    }

    fn workspaces(
        &mut self,
        tx: &mut dyn Tx,
        named: &Sides<String>,
        checks: &mut Checks,
        told: &mut Vec<String>,
    ) -> Result<()> {
        if named.is_empty() {
            return Ok(());
        }
        let known = workspaces(tx)?;
        let mut resolve = |names: &[String]| -> Vec<WorkspaceId> {
            let mut found = Vec::new();
            for name in names {
                let before = found.len();
                found.extend(known.iter().filter(|workspace| workspace.is_called(name)).map(|workspace| workspace.id));
                if found.len() == before {
                    told.push(format!("No workspace is called `{name}`."));
                }
            }
            found
        };
        checks.workspaces = Sides { any: resolve(&named.any), none: resolve(&named.none) };
        if named.any.is_empty() {
            return Ok(());
        }
        let mut fences = Vec::new();
        for workspace in &checks.workspaces.any {
            fences.push(fence(tx, *workspace)?);
        }
        self.wanted.push(Expr::Any(fences));
        Ok(())
    }

    fn threads(
        &mut self,
        tx: &mut dyn Tx,
        scope: Scope,
        named: &Sides<String>,
        checks: &mut Checks,
        told: &mut Vec<String>,
    ) -> Result<()> {
        if named.is_empty() {
            return Ok(());
        }
        checks.threads = Sides { any: find(tx, scope, &named.any, told)?, none: find(tx, scope, &named.none, told)? };
        for thread in &checks.threads.none {
            checks.without.extend(reach(tx, thread)?);
        }
        if named.any.is_empty() {
            return Ok(());
        }
        let mut within: HashMap<i64, u32> = HashMap::new();
        for thread in &checks.threads.any {
            for (branch, upto) in reach(tx, thread)? {
                let known = within.entry(branch).or_insert(upto);
                *known = (*known).max(upto);
            }
        }
        let mut branches: Vec<i64> = within.keys().copied().collect();
        branches.sort_unstable();
        self.wanted.push(any_of(branches.into_iter().map(document::branch_tag)));
        checks.within = Some(within);
        Ok(())
    }
}

fn any_of(tags: impl Iterator<Item = String>) -> Expr {
    Expr::Any(tags.map(Expr::Tag).collect())
}

/// What may be seen in a workspace: what its threads wrote, under whatever id it was known then, and what they share of others.
fn fence(tx: &mut dyn Tx, workspace: WorkspaceId) -> Result<Expr> {
    let mut ids = vec![workspace];
    let mut next = 0;
    while let Some(id) = ids.get(next).copied() {
        let former = query_all(tx, FORMER, &[id.as_bytes().as_slice().into()], |row| {
            let name = row.text(0)?.strip_prefix(MERGED).and_then(|ids| ids.split_once(':')?.0.parse().ok());
            row.parse(0, name, "the id of a workspace")
        })?;
        ids.extend(former.into_iter().filter(|former| !ids.contains(former)).collect::<Vec<_>>());
        next += 1;
    }
    let mut tags: Vec<String> = ids.into_iter().map(document::workspace_tag).collect();
    let forks = query_all(tx, FORKS_FROM_OUTSIDE, &[workspace.as_bytes().as_slice().into()], |row| row.int(0))?;
    let mut branches = BTreeSet::new();
    for fork in forks {
        branches.extend(path::segments_to(tx, ItemKey(fork), 0)?.into_iter().map(|segment| segment.branch));
    }
    tags.extend(branches.into_iter().map(document::branch_tag));
    Ok(any_of(tags.into_iter()))
}

/// A workspace with all that it is called.
struct Named {
    id: WorkspaceId,
    name: String,
    keys: Vec<(String, String)>,
}

impl Named {
    fn is_called(&self, name: &str) -> bool {
        let is_id = name.len() >= 6 && self.id.to_string().starts_with(&name.to_ascii_lowercase());
        let path = name.trim_end_matches('/');
        let is_path = |(kind, key): &(String, String)| {
            kind == "path"
                && key.split_once(':').and_then(|(_, rest)| rest.split_once(':')).is_some_and(|(_, it)| it == path)
        };
        is_id || self.name.to_lowercase() == name.to_lowercase() || self.keys.iter().any(is_path)
    }
}

fn workspaces(tx: &mut dyn Tx) -> Result<Vec<Named>> {
    let rows = query_all(tx, NAMED, &[], |row| {
        let id = row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")?;
        let key = row.opt_text(2)?.zip(row.opt_text(3)?).map(|(kind, key)| (kind.to_owned(), key.to_owned()));
        Ok((id, row.text(1)?.to_owned(), key))
    })?;
    let mut found: Vec<Named> = Vec::new();
    for (id, name, key) in rows {
        match found.last_mut() {
            Some(last) if last.id == id => last.keys.extend(key),
            _ => found.push(Named { id, name, keys: key.into_iter().collect() }),
        }
    }
    Ok(found)
}

fn find(tx: &mut dyn Tx, scope: Scope, names: &[String], told: &mut Vec<String>) -> Result<Vec<ThreadId>> {
    let mut found = Vec::new();
    for name in names {
        match threads::find(tx, scope, name) {
            Ok(thread) => found.push(thread),
            Err(Error::NotFound { .. }) => told.push(format!("No thread is called `{name}`.")),
            Err(Error::Ambiguous { candidates, .. }) => {
                told.push(format!("`{name}` may be {} threads; more of the id is needed.", candidates.len()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The branches that a thread has items on, each with the depth of the last one.
fn reach(tx: &mut dyn Tx, thread: &ThreadId) -> Result<HashMap<i64, u32>> {
    let own = query_all(tx, BRANCHES_OF, &[thread.as_str().into()], |row| row.int(0))?;
    let mut reach: HashMap<i64, u32> = own.into_iter().map(|branch| (branch, u32::MAX)).collect();
    let fork = query_all(tx, FORK_ITEM, &[thread.as_str().into()], |row| row.opt_int(0))?.pop().flatten();
    if let Some(fork) = fork.or(head::head_of(tx, thread)?.0.map(|head| head.0)) {
        for segment in path::segments_to(tx, ItemKey(fork), 0)? {
            reach.entry(segment.branch).or_insert(segment.upto);
        }
    }
    Ok(reach)
}
