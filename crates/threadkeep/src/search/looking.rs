//! Looking at documents that fit: whether they pass what no tag says, whom they belong to, and what is shown of them.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::asking::{Checks, Question};
use super::document::{self, Readers, Source, Tools};
use super::indexing;
use super::matching;
use super::page::{FoundItem, FoundThread, Hit, Standing};
use super::query::{Node, OnPath, Query};
use super::rank;
use super::snippet::snippet;
use super::text::{self, Field, NormalText, folded};
use crate::db::index::{Fit, Subject};
use crate::db::{Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ItemKey, ThreadId, WorkspaceId};
use crate::log::{head, path};
use crate::thread::{Shelf, Thread};
use crate::threads::{self, Scope};
use crate::time::Timestamp;
use crate::view::View;

/// How many branches are followed to find the threads that share an item.
const MOST_FOLLOWED: usize = 256;
/// How many threads that share an item are named.
const MOST_SHARERS: usize = 8;
/// From how many bytes documents are ranked by their words; beyond that by their age alone.
const READ_BYTES: usize = 16 << 20;

statements! {
    BRANCH_OF = "SELECT b.id, b.thread, b.label, t.workspace, t.shelf, t.agent, t.title FROM branches b
        JOIN threads t ON t.id = b.thread WHERE b.key = ?1";
    THREAD_OF = "SELECT t.workspace, t.shelf, t.agent, t.title, t.updated_at FROM threads t WHERE t.id = ?1";
    LEAVING = "SELECT key, thread FROM branches WHERE parent BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3";
    FORKED = "SELECT id FROM threads WHERE fork_item BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3";
    ID_OF = "SELECT id FROM items WHERE key = ?1";
}

/// A document that passed, with its rank.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) subject: Subject,
    /// The thread that it is shown under.
    pub(crate) thread: ThreadId,
    /// From 0 to 10,000.
    pub(crate) score: u32,
    pub(crate) made: Timestamp,
}

impl Found {
    /// The most relevant first, of equals the newer one.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let key = |it: &Self| (it.score, it.made);
        key(other).cmp(&key(self)).then_with(|| other.subject.cmp(&self.subject))
    }
}

/// What is known of a thread.
#[derive(Debug, Clone)]
struct Facts {
    workspace: Option<WorkspaceId>,
    shelf: Shelf,
    agent: Option<String>,
    title: Option<String>,
    updated_at: Timestamp,
}

/// What is known of a branch.
#[derive(Debug, Clone)]
struct BranchFacts {
    id: BranchId,
    thread: ThreadId,
    label: Option<String>,
}

/// Looks at documents in one state of the store.
#[derive(Debug, Clone)]
pub(crate) struct Looker {
    scope: Scope,
    trashed: bool,
    now: Timestamp,
    readers: Readers,
    query: Query,
    question: Question,
    branches: HashMap<i64, Option<BranchFacts>>,
    threads: HashMap<ThreadId, Option<Facts>>,
    /// The active path of each thread: its branches, each with the depth up to which it goes along them.
    paths: HashMap<ThreadId, HashMap<i64, u32>>,
    bytes: usize,
}

impl Looker {
    pub(crate) fn new(
        scope: Scope,
        trashed: bool,
        now: Timestamp,
        readers: Readers,
        query: Query,
        question: Question,
    ) -> Self {
        let (branches, threads, paths) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { scope, trashed, now, readers, query, question, branches, threads, paths, bytes: 0 }
    }

    /// Of these documents those that pass, ranked.
    pub(crate) fn look(mut self, tx: &mut dyn Tx, fits: &[Fit]) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for fit in fits {
            found.extend(match &fit.subject {
                Subject::Item(key) => self.look_at_item(tx, *key, fit.is_doubtful)?,
                Subject::Title(thread) => self.look_at_title(tx, thread)?,
            });
        }
        Ok(found)
    }

    fn look_at_item(&mut self, tx: &mut dyn Tx, key: i64, is_doubtful: bool) -> Result<Option<Found>> {
        let Some(thread) = self.owner(tx, key)? else { return Ok(None) };
        let Some(source) = source(tx, key)? else { return Ok(None) };
        if !self.is_in_time(source.created_at) {
            return Ok(None);
        }
        self.bytes += source.content.len();
        if self.bytes > READ_BYTES && !is_doubtful {
            return Ok(Some(Found { subject: Subject::Item(key), thread, score: 0, made: source.created_at }));
        }
        let view = self.readers.read(&source);
        let fields = document::fields(&source.kind, &view);
        let text = text::normal(&fields);
        if is_doubtful && !matching::holds(&self.query.wanted, &text) {
            return Ok(None);
        }
        Ok(Some(self.found(Subject::Item(key), thread, (&fields, &text), source.created_at)))
    }

    pub(super) fn view(&self, source: &Source) -> View {
        self.readers.read(source)
    }

    /// An item that was read already, if it fits and passes.
    pub(super) fn judge(
        &mut self,
        tx: &mut dyn Tx,
        source: &Source,
        view: &View,
        tools: &Tools,
    ) -> Result<Option<Found>> {
        if !self.is_in_time(source.created_at) {
            return Ok(None);
        }
        let fields = document::fields(&source.kind, view);
        let text = text::normal(&fields);
        let branch = self.branch(tx, ItemKey(source.key).branch())?;
        let workspace = match &branch {
            Some(branch) => self.thread(tx, &branch.thread.clone())?.and_then(|facts| facts.workspace),
            None => None,
        };
        let terms = document::terms(source, view, workspace, tools);
        if !super::asking::fits(&self.question.expr, &text, &terms.tags.split(' ').collect()) {
            return Ok(None);
        }
        let Some(thread) = self.owner(tx, source.key)? else { return Ok(None) };
        Ok(Some(self.found(Subject::Item(source.key), thread, (&fields, &text), source.created_at)))
    }

    pub(super) fn judge_title(
        &mut self,
        tx: &mut dyn Tx,
        thread: &str,
        title: &str,
        workspace: Option<WorkspaceId>,
    ) -> Result<Option<Found>> {
        let terms = document::title_terms(title, workspace);
        let text = text::normal(&[(Field::Title, title)]);
        match super::asking::fits(&self.question.expr, &text, &terms.tags.split(' ').collect()) {
            true => self.look_at_title(tx, thread),
            false => Ok(None),
        }
    }

    fn look_at_title(&mut self, tx: &mut dyn Tx, thread: &str) -> Result<Option<Found>> {
        let Ok(thread) = ThreadId::new(thread) else { return Ok(None) };
        let checks = &self.question.checks;
        let asks_for_items =
            checks.path.is_some() || checks.within.is_some() || checks.from.is_some() || checks.until.is_some();
        if asks_for_items || checks.threads.none.contains(&thread) || !self.is_wanted(tx, &thread)? {
            return Ok(None);
        }
        let Some(facts) = self.thread(tx, &thread)? else { return Ok(None) };
        let Some(title) = facts.title else { return Ok(None) };
        let fields = [(Field::Title, title.as_str())];
        let text = text::normal(&fields);
        let subject = Subject::Title(thread.to_string());
        Ok(Some(self.found(subject, thread, (&fields, &text), facts.updated_at)))
    }

    fn found(
        &self,
        subject: Subject,
        thread: ThreadId,
        (fields, text): (&[(Field, &str)], &NormalText),
        made: Timestamp,
    ) -> Found {
        let score = rank::rank(&self.query, fields, text, made, self.now);
        Found { subject, thread, score, made }
    }

    fn is_in_time(&self, at: Timestamp) -> bool {
        let Checks { from, until, .. } = &self.question.checks;
        from.is_none_or(|from| at >= from) && until.is_none_or(|until| at < until)
    }

    /// The thread under which an item is shown, if it passes: the one that wrote it, or one that shares it.
    fn owner(&mut self, tx: &mut dyn Tx, key: i64) -> Result<Option<ThreadId>> {
        let (branch, depth) = (ItemKey(key).branch(), ItemKey(key).depth());
        let reaches = |upto: Option<&u32>| upto.is_some_and(|upto| depth <= *upto);
        let checks = &self.question.checks;
        if checks.within.as_ref().is_some_and(|within| !reaches(within.get(&branch)))
            || reaches(checks.without.get(&branch))
        {
            return Ok(None);
        }
        let Some(facts) = self.branch(tx, branch)? else { return Ok(None) };
        if self.passes(tx, &facts.thread, key)? {
            return Ok(Some(facts.thread));
        }
        for sharer in sharers(tx, key)? {
            if self.passes(tx, &sharer, key)? {
                return Ok(Some(sharer));
            }
        }
        Ok(None)
    }

    /// Whether a thread is one that is asked for, and has the item where it is asked for.
    fn passes(&mut self, tx: &mut dyn Tx, thread: &ThreadId, key: i64) -> Result<bool> {
        let threads = &self.question.checks.threads.any;
        if (!threads.is_empty() && !threads.contains(thread)) || !self.is_wanted(tx, thread)? {
            return Ok(false);
        }
        match self.question.checks.path {
            None | Some(OnPath::All) => Ok(true),
            Some(OnPath::Active) => self.is_active(tx, thread, key),
            Some(OnPath::Beside) => self.is_active(tx, thread, key).map(|is_active| !is_active),
        }
    }

    /// Whether a thread is one of those that are searched at all.
    fn sees(&self, facts: &Facts) -> bool {
        let is_on_shelf = match facts.shelf {
            Shelf::Active | Shelf::Archived => true,
            Shelf::Trashed => self.trashed,
            Shelf::Stub => false,
        };
        is_on_shelf
            && match self.scope {
                Scope::All => true,
                Scope::Workspace(workspace) => facts.workspace == Some(workspace),
            }
    }

    fn is_wanted(&mut self, tx: &mut dyn Tx, thread: &ThreadId) -> Result<bool> {
        let Some(facts) = self.thread(tx, thread)? else { return Ok(false) };
        let checks = &self.question.checks;
        Ok(self.sees(&facts)
            && checks.workspaces.admits(|workspace| facts.workspace == Some(*workspace))
            && checks.agents.admits(|agent| facts.agent.as_deref().is_some_and(|it| folded(it) == *agent))
            && (checks.titles.is_empty() || {
                let title = text::normal(&[(Field::Title, facts.title.as_deref().unwrap_or_default())]);
                checks.titles.admits(|node: &Node| matching::holds(node, &title))
            }))
    }

    fn is_active(&mut self, tx: &mut dyn Tx, thread: &ThreadId, key: i64) -> Result<bool> {
        if !self.paths.contains_key(thread) {
            let mut along = HashMap::new();
            if let (Some(head), _) = head::head_of(tx, thread)? {
                along.extend(path::segments_to(tx, head, 0)?.into_iter().map(|segment| (segment.branch, segment.upto)));
            }
            self.paths.insert(thread.clone(), along);
        }
        let along = self.paths.get(thread).and_then(|along| along.get(&ItemKey(key).branch()));
        Ok(along.is_some_and(|upto| ItemKey(key).depth() <= *upto))
    }

    fn branch(&mut self, tx: &mut dyn Tx, key: i64) -> Result<Option<BranchFacts>> {
        if let Some(known) = self.branches.get(&key) {
            return Ok(known.clone());
        }
        let facts = query_one(tx, BRANCH_OF, &[key.into()], |row| {
            Ok(BranchFacts {
                id: row.parse(0, ItemId::from_slice(row.blob(0)?), "16 bytes of an id")?,
                thread: row.parse(1, ThreadId::new(row.text(1)?).ok(), "a thread id")?,
                label: row.opt_text(2)?.map(str::to_owned),
            })
        })?;
        self.branches.insert(key, facts.clone());
        Ok(facts)
    }

    fn thread(&mut self, tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Facts>> {
        if let Some(known) = self.threads.get(thread) {
            return Ok(known.clone());
        }
        let facts = query_one(tx, THREAD_OF, &[thread.as_str().into()], read_facts)?;
        self.threads.insert(thread.clone(), facts.clone());
        Ok(facts)
    }

    /// What is shown of a thread and its hits; `None` when it has gone meanwhile.
    pub(crate) fn show(
        &mut self,
        tx: &mut dyn Tx,
        group: &[Found],
        most: usize,
        width: usize,
    ) -> Result<Option<FoundThread>> {
        let Some(first) = group.first() else { return Ok(None) };
        let thread = match threads::get(tx, Scope::All, &first.thread) {
            Ok(thread) => thread,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut hits = Vec::new();
        for found in group.iter().take(most) {
            hits.extend(self.hit(tx, &thread, found, width)?);
        }
        let more = group.len().saturating_sub(most);
        let title = thread.details.title.clone().or_else(|| thread.details.preview.clone());
        Ok(Some(FoundThread {
            id: thread.id,
            title,
            workspace: thread.workspace_name,
            agent: thread.details.agent,
            shelf: thread.shelf,
            hits,
            more,
        }))
    }

    fn hit(&mut self, tx: &mut dyn Tx, thread: &Thread, found: &Found, width: usize) -> Result<Option<Hit>> {
        let score = found.score;
        let key = match &found.subject {
            Subject::Item(key) => *key,
            Subject::Title(_) => {
                let title = thread.details.title.as_deref().unwrap_or_default();
                let snippet = snippet(&[(Field::Title, title)], &self.query.wanted, width);
                return Ok(Some(Hit { item: None, snippet, score }));
            }
        };
        let id = query_one(tx, ID_OF, &[key.into()], |row| {
            row.parse(0, ItemId::from_slice(row.blob(0)?), "16 bytes of an id")
        })?;
        let (Some(id), Some(source), Some(branch)) = (id, source(tx, key)?, self.branch(tx, ItemKey(key).branch())?)
        else {
            return Ok(None);
        };
        let view = self.readers.read(&source);
        let snippet = snippet(&document::fields(&source.kind, &view), &self.query.wanted, width);
        let mut shared_with = sharers(tx, key)?;
        if branch.thread != thread.id {
            shared_with.insert(0, branch.thread.clone());
        }
        shared_with.retain(|other| *other != thread.id);
        let mut seen = Vec::new();
        for other in shared_with {
            let is_seen = self.thread(tx, &other)?.is_some_and(|facts| self.sees(&facts));
            if is_seen && !seen.contains(&other) && seen.len() < MOST_SHARERS {
                seen.push(other);
            }
        }
        let address = Address { branch: branch.id, depth: ItemKey(key).depth() };
        let item = FoundItem {
            id,
            address,
            kind: source.kind,
            role: source.role.or(view.role),
            created_at: source.created_at,
            standing: self.standing(tx, thread, key, &branch)?,
            shared_with: seen,
        };
        Ok(Some(Hit { item: Some(item), snippet, score }))
    }

    fn standing(&mut self, tx: &mut dyn Tx, thread: &Thread, key: i64, branch: &BranchFacts) -> Result<Standing> {
        if self.is_active(tx, &thread.id, key)? {
            return Ok(Standing::ActivePath);
        }
        let shared = match head::head_of(tx, &thread.id)?.0 {
            Some(head) => path::meet(tx, head, ItemKey(key))?,
            None => None,
        };
        let depth = ItemKey(key).depth();
        let leaves_at = shared.map(ItemKey::depth);
        Ok(Standing::Branch {
            branch: branch.id,
            label: branch.label.clone(),
            leaves_at,
            distance: leaves_at.map_or(depth + 1, |leaves_at| depth - leaves_at.min(depth)),
        })
    }
}

fn source(tx: &mut dyn Tx, key: i64) -> Result<Option<Source>> {
    match indexing::sources(tx, key, key, 1) {
        Ok(mut sources) => Ok(sources.pop().map(|(source, _)| source)),
        // It is told by verification; the others are found.
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The threads that share an item with the one that wrote it, as far as they are found in a bounded time.
fn sharers(tx: &mut dyn Tx, key: i64) -> Result<Vec<ThreadId>> {
    let end_of = |branch: i64| ItemKey::new(branch, u32::MAX).0;
    let mut ranges = vec![(key, end_of(ItemKey(key).branch()))];
    let mut found: Vec<ThreadId> = Vec::new();
    let mut next = 0;
    let most = i64::try_from(MOST_FOLLOWED).unwrap_or(i64::MAX);
    while let Some((from, to)) = ranges.get(next).copied() {
        next += 1;
        let args = [from.into(), to.into(), most.into()];
        let leaving = query_all(tx, LEAVING, &args, |row| Ok((row.int(0)?, read_id(row, 1)?)))?;
        let forked = query_all(tx, FORKED, &args, |row| read_id(row, 0))?;
        for (branch, thread) in leaving {
            if ranges.len() < MOST_FOLLOWED {
                ranges.push((ItemKey::new(branch, 0).0, end_of(branch)));
            }
            found.push(thread);
        }
        found.extend(forked);
        if found.len() >= MOST_FOLLOWED {
            break;
        }
    }
    let mut seen = HashSet::new();
    found.retain(|thread| seen.insert(thread.clone()));
    Ok(found)
}

fn read_id(row: &Row<'_>, column: usize) -> Result<ThreadId> {
    row.parse(column, ThreadId::new(row.text(column)?).ok(), "a thread id")
}

fn read_facts(row: &Row<'_>) -> Result<Facts> {
    Ok(Facts {
        workspace: row.opt_blob(0)?.and_then(WorkspaceId::from_slice),
        shelf: row.parse(1, Shelf::from_int(row.int(1)?), "a shelf")?,
        agent: row.opt_text(2)?.map(str::to_owned),
        title: row.opt_text(3)?.map(str::to_owned),
        updated_at: Timestamp(row.int(4)?),
    })
}
