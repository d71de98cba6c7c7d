//! Writing threads as a store of CodeWhale: each with its whole tree and what stands beside it, by the rows that it had there where
//! they still say what is here.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use rusqlite::ToSql;
use serde_json::{Value, json};
use threadkeep::{Error, GoalStatus, NewGoal, PauseReason, Shelf, Stall, Status, Timestamp, Tool};

use super::grouping::grouped;
use super::write::{self, Entries, PREVIEW_CHARS, VERSION, seconds};
use super::{DATABASE, INDEX, beside, message};
use crate::codec::TITLE_CHARS;
use crate::companion::{Companion, PartWords, Shared, job_status};
use crate::conversation::{Author, Block, Message};
use crate::json::one_line;
use crate::rows::Row;
use crate::writer::{self, Dated, Image, Losses, Said, StoreWriter, Whole, Written, lost};

/// CodeWhale's archive takes no longer ids.
const MAX_ID_BYTES: usize = 128;
/// What CodeWhale knows a pause by.
const PAUSES: [&str; 5] = ["user", "backoff", "no_progress", "usage_limit", "budget_limit"];
/// After so many passes with the same gap CodeWhale pauses a goal.
const MAX_REPEATS: u64 = 3;

/// Tables by CodeWhale's schema, version 5.
pub(super) const SCHEMA: &str = "
CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT, preview TEXT NOT NULL, ephemeral INTEGER NOT NULL,
  model_provider TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, status TEXT NOT NULL, path TEXT,
  cwd TEXT NOT NULL, cli_version TEXT NOT NULL, source TEXT NOT NULL, title TEXT, sandbox_policy TEXT, approval_mode TEXT,
  archived INTEGER NOT NULL DEFAULT 0, archived_at INTEGER, git_sha TEXT, git_branch TEXT, git_origin_url TEXT, memory_mode TEXT,
  current_leaf_id INTEGER);
CREATE INDEX idx_threads_updated_at ON threads (updated_at DESC);
CREATE INDEX idx_threads_archived_at ON threads (archived_at DESC);
CREATE INDEX idx_threads_archived_updated ON threads (archived, updated_at DESC);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
  item_json TEXT, created_at INTEGER NOT NULL, parent_entry_id INTEGER,
  FOREIGN KEY (thread_id) REFERENCES threads(id) ON DELETE CASCADE);
CREATE INDEX idx_messages_thread_created_at ON messages (thread_id, created_at);
CREATE INDEX idx_messages_parent_entry_id ON messages (parent_entry_id);
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_id TEXT NOT NULL, state_json TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (thread_id, checkpoint_id), FOREIGN KEY (thread_id) REFERENCES threads(id) ON DELETE CASCADE);
CREATE INDEX idx_checkpoints_thread_created_at ON checkpoints (thread_id, created_at DESC);
CREATE TABLE jobs (id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL, progress INTEGER, detail TEXT,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE INDEX idx_jobs_updated_at ON jobs (updated_at DESC);
CREATE TABLE thread_dynamic_tools (thread_id TEXT NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, description TEXT,
  input_schema TEXT NOT NULL, PRIMARY KEY (thread_id, position), FOREIGN KEY (thread_id) REFERENCES threads(id) ON DELETE CASCADE);
CREATE TABLE workflow_runs (id TEXT PRIMARY KEY, workflow_id TEXT NOT NULL, goal TEXT NOT NULL, status TEXT NOT NULL, input_hash TEXT,
  started_at INTEGER NOT NULL, completed_at INTEGER, metadata_json TEXT NOT NULL DEFAULT '{}');
CREATE TABLE branch_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  branch_id TEXT NOT NULL, node_id TEXT NOT NULL, status TEXT NOT NULL, started_at INTEGER NOT NULL, completed_at INTEGER,
  result_json TEXT NOT NULL DEFAULT '{}');
CREATE TABLE leaf_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  branch_run_id TEXT REFERENCES branch_runs(id) ON DELETE SET NULL, leaf_id TEXT NOT NULL, task_id TEXT NOT NULL, input_hash TEXT,
  status TEXT NOT NULL, output_json TEXT NOT NULL DEFAULT '{}', artifacts_json TEXT NOT NULL DEFAULT '[]',
  started_at INTEGER NOT NULL, completed_at INTEGER);
CREATE TABLE control_node_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  node_id TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, selected_children_json TEXT NOT NULL DEFAULT '[]',
  result_json TEXT NOT NULL DEFAULT '{}', started_at INTEGER NOT NULL, completed_at INTEGER);
CREATE TABLE teacher_candidates (id TEXT PRIMARY KEY, workflow_run_id TEXT NOT NULL REFERENCES workflow_runs(id) ON DELETE CASCADE,
  control_node_run_id TEXT NOT NULL REFERENCES control_node_runs(id) ON DELETE CASCADE, candidate_id TEXT NOT NULL,
  branch_run_id TEXT REFERENCES branch_runs(id) ON DELETE SET NULL, score REAL, passed INTEGER,
  rationale_json TEXT NOT NULL DEFAULT '{}', created_at INTEGER NOT NULL);
CREATE TABLE thread_goals (thread_id TEXT PRIMARY KEY REFERENCES threads(id) ON DELETE CASCADE, goal_id TEXT NOT NULL,
  objective TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('active', 'paused', 'blocked', 'usage_limited', 'budget_limited',
  'complete')), token_budget INTEGER, tokens_used INTEGER NOT NULL DEFAULT 0, time_used_seconds INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, continuation_count INTEGER NOT NULL DEFAULT 0,
  last_gap_fingerprint TEXT, repeated_gap_count INTEGER NOT NULL DEFAULT 0, last_gap_pass INTEGER, pause_reason TEXT);
CREATE INDEX idx_workflow_runs_status_started_at ON workflow_runs (status, started_at DESC);
CREATE INDEX idx_workflow_runs_workflow_started_at ON workflow_runs (workflow_id, started_at DESC);
CREATE INDEX idx_branch_runs_workflow_run_id ON branch_runs (workflow_run_id);
CREATE INDEX idx_branch_runs_branch_id ON branch_runs (branch_id);
CREATE INDEX idx_leaf_runs_workflow_run_id ON leaf_runs (workflow_run_id);
CREATE INDEX idx_leaf_runs_replay_lookup ON leaf_runs (workflow_run_id, leaf_id, input_hash);
CREATE INDEX idx_control_node_runs_workflow_run_id ON control_node_runs (workflow_run_id);
CREATE INDEX idx_control_node_runs_node_id ON control_node_runs (node_id);
CREATE INDEX idx_teacher_candidates_workflow_run_id ON teacher_candidates (workflow_run_id);
CREATE INDEX idx_teacher_candidates_control_node_run_id ON teacher_candidates (control_node_run_id);
PRAGMA user_version = 5;
";
const MESSAGE: &str = "INSERT INTO messages (id, thread_id, role, content, item_json, created_at, parent_entry_id)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// Messages that have no id of CodeWhale's have negative ones until all are there; then theirs are the ids behind all others.
const NUMBER: &str = "
CREATE TEMP TABLE made AS SELECT coalesce(max(max(id), 0), 0) AS top FROM messages;
UPDATE threads SET current_leaf_id = (SELECT top FROM made) - current_leaf_id WHERE current_leaf_id < 0;
UPDATE messages SET parent_entry_id = (SELECT top FROM made) - parent_entry_id WHERE parent_entry_id < 0;
UPDATE messages SET id = (SELECT top FROM made) - id WHERE id < 0;
DROP TABLE made;
DELETE FROM sqlite_sequence WHERE name = 'messages';
INSERT INTO sqlite_sequence SELECT 'messages', max(id) FROM messages HAVING max(id) IS NOT NULL;
";

/// A store that is being written.
#[derive(Debug)]
pub(super) struct StateWriter {
    image: Image,
    losses: Losses,
    threads: HashSet<String>,
    messages: HashSet<i64>,
    /// How many messages have no id of CodeWhale's.
    made: i64,
    index: Vec<u8>,
    sessions: Vec<writer::Companion>,
}

/// The rows that a thread had in a store of CodeWhale's.
#[derive(Debug, Default)]
struct Rows {
    thread: Option<Row>,
    goal: Option<Row>,
    checkpoints: HashMap<String, Row>,
    tools: Vec<Row>,
}

impl Rows {
    fn read(rows: &[Vec<u8>]) -> Self {
        let mut found = Self::default();
        for row in rows.iter().filter_map(|row| Row::read(row).ok()) {
            match row.table() {
                "threads" => found.thread = Some(row),
                "thread_goals" => found.goal = Some(row),
                "checkpoints" => {
                    let name = row.text("checkpoint_id").ok().flatten().unwrap_or_default().to_owned();
                    found.checkpoints.insert(name, row);
                }
                "thread_dynamic_tools" => found.tools.push(row),
                _ => {}
            }
        }
        found
    }
}

impl StateWriter {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            image: Image::new(SCHEMA)?,
            losses: Losses::default(),
            threads: HashSet::new(),
            messages: HashSet::new(),
            made: 0,
            index: Vec::new(),
            sessions: Vec::new(),
        })
    }

    /// The id that CodeWhale knew the thread by; its own, or one made from it, where that is taken or none.
    fn id(&mut self, whole: &Whole, rows: &Rows) -> String {
        let own = rows.thread.as_ref().and_then(|row| row.word("id"));
        let fits = |id: &String| id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control);
        let made = whole.session.uuid().to_string();
        let ids = own.into_iter().chain([whole.session.id.clone()]).filter(fits).chain([made]);
        let numbered = (1..).map(|number| whole.session.made("codewhale thread", number).to_string());
        let id = ids.chain(numbered).find(|id| !self.threads.contains(id)).unwrap_or_default();
        self.threads.insert(id.clone());
        id
    }

    fn put(&mut self, table: &'static str, row: &Row) -> Result<(), Error> {
        self.is_put(table, row).map(drop)
    }

    /// Puts a row in; gives, and counts, whether it can't stand there.
    fn is_put(&mut self, table: &'static str, row: &Row) -> Result<bool, Error> {
        let is_put = self.image.row(table, row.columns())?;
        self.losses.add(lost::ROWS, u64::from(!is_put));
        Ok(is_put)
    }

    /// Writes the messages of a tree; gives the entries that were written, the one that the thread stands at, and its message.
    fn tree(&mut self, id: &str, whole: &Whole) -> Result<Tree, Error> {
        let mut entries = Entries::default();
        let mut tree = Tree::default();
        // Of each item the entry that stands for it, or for what it follows.
        let mut stands: Vec<Option<usize>> = Vec::with_capacity(whole.entries.len());
        let (mut written, mut sources) = (Vec::new(), Vec::new());
        let mut waiting = HashMap::new();
        let forks = forks(&whole.entries);
        for (number, entry) in whole.entries.iter().enumerate() {
            if entry.parent != number.checked_sub(1) {
                let open = entry.parent.and_then(|parent| waiting.get(&parent)).cloned().unwrap_or_default();
                entries.calls.go_on(open);
            }
            let parent = entry.parent.and_then(|parent| stands.get(parent).copied().flatten());
            let (made, is_own) = self.entry(entry, &mut entries);
            match made {
                None => stands.push(parent),
                Some(mut made) => {
                    stands.push(Some(written.len()));
                    sources.push(entry.source_id.clone().filter(|_| is_own));
                    made.parent = parent;
                    written.push(made);
                    *(if is_own { &mut tree.records } else { &mut tree.messages }) += 1;
                }
            }
            if forks.contains(&number) {
                waiting.insert(number, entries.calls.waiting());
            }
        }
        let Entries { calls, losses } = &mut entries;
        calls.finish(losses);
        self.losses.merge(entries.losses.take());
        let head = whole.head.and_then(|head| stands.get(head).copied().flatten());
        let (written, places) = grouped(written, head);
        tree.head = head.and_then(|head| places.get(head).copied());
        let keys = self.rows(id, whole, &written, &own_ids(&sources, &places, written.len()))?;
        tree.written = written;
        let leaf = tree.head.and_then(|head| keys.get(head).copied());
        self.image.execute("UPDATE threads SET current_leaf_id = ?1 WHERE id = ?2", &[&leaf, &id])?;
        Ok(tree)
    }

    /// Puts entries in as messages; gives their ids.
    fn rows(
        &mut self,
        id: &str,
        whole: &Whole,
        written: &[write::Entry],
        own: &[Option<&str>],
    ) -> Result<Vec<i64>, Error> {
        let mut keys: Vec<i64> = Vec::with_capacity(written.len());
        for (number, made) in written.iter().enumerate() {
            let key = self.message_id(own.get(number).copied().flatten());
            let at = seconds(made.at.unwrap_or(whole.session.created_at));
            let before = made.parent.and_then(|parent| keys.get(parent).copied());
            let row: [&dyn ToSql; 7] = [&key, &id, &made.role, &made.content, &made.item, &at, &before];
            self.image.execute(MESSAGE, &row)?;
            keys.push(key);
        }
        Ok(keys)
    }

    fn entry(&mut self, entry: &writer::Entry, entries: &mut Entries) -> (Option<write::Entry>, bool) {
        let made = match &entry.said {
            Said::Own(record) => {
                if let Some(own) = entries.own(record) {
                    return (Some(own), true);
                }
                message::message(&entry.kind, record).and_then(|message| entries.message(&message))
            }
            Said::Message(message) => entries.message(message),
            Said::Prompt(prompt) => {
                self.losses.count(lost::RECEIPTS);
                let said = Message::said(Author::Person, vec![Block::Text(prompt.text.clone())]);
                entries.message(&Message { created_at: Some(prompt.receipt.created_at), ..said })
            }
            Said::Artifact(_) => {
                self.losses.count(lost::RECEIPTS);
                None
            }
            Said::Nothing => None,
        };
        (made, false)
    }

    /// The id that a message had, if nothing else has it.
    fn message_id(&mut self, own: Option<&str>) -> i64 {
        let own = own.and_then(|id| id.parse::<i64>().ok()).filter(|id| *id > 0);
        if let Some(id) = own.filter(|id| self.messages.insert(*id)) {
            return id;
        }
        self.made += 1;
        -self.made
    }

    fn beside(&mut self, id: &str, rows: &Rows, beside: &[Dated<Companion>]) -> Result<(), Error> {
        for Dated { what, created_at, updated_at, .. } in beside {
            match what {
                Companion::Goal(goal) => self.goal(id, rows.goal.as_ref(), goal, (*created_at, *updated_at))?,
                Companion::Checkpoint { name, state } => {
                    let old = rows.checkpoints.get(name);
                    let is_same = old.is_some_and(|row| row.text("state_json") == Ok(Some(state)));
                    let old = old.filter(|_| is_same).and_then(|row| row.int("created_at").ok().flatten());
                    let mut row = Row::new();
                    row.set("thread_id", json!(id));
                    row.set("checkpoint_id", json!(name));
                    row.set("state_json", json!(state));
                    row.set("created_at", json!(old.unwrap_or_else(|| seconds(*created_at))));
                    self.put("checkpoints", &row)?;
                }
                Companion::Tools(tools) => self.tools(id, &rows.tools, tools)?,
                // The terminal program's own; the database has no place for it.
                Companion::Document { .. } => self.losses.count(lost::DOCUMENTS),
                Companion::Message { .. } => self.losses.count(lost::INBOX),
                Companion::Request { .. } => self.losses.count(lost::REQUESTS),
                Companion::Link { .. } => self.losses.count(lost::ROADMAPS),
                // It is in the thread's own row.
                Companion::Standing { .. } => {}
            }
        }
        Ok(())
    }

    fn goal(
        &mut self,
        id: &str,
        old: Option<&Row>,
        goal: &NewGoal,
        (created_at, updated_at): (Timestamp, Timestamp),
    ) -> Result<(), Error> {
        if let Some(row) = old.filter(|row| says_goal(row, goal)) {
            let mut row = row.clone();
            row.set("thread_id", json!(id));
            return self.put("thread_goals", &row);
        }
        let (status, is_known) = goal_status(goal.status.as_ref());
        let pause = goal.pause_reason.as_ref().map(PauseReason::as_str);
        let known_pause = pause.filter(|pause| PAUSES.contains(pause));
        let stall = goal.stall.as_ref().filter(|stall| is_legal(stall, goal.continuations));
        let left =
            [!is_known, pause != known_pause, stall.is_some() != goal.stall.is_some(), goal.seconds_budget.is_some()];
        self.losses.add(lost::GOALS, u64::from(left.contains(&true)));
        let own = old.and_then(|row| row.word("goal_id")).filter(|own| goal.id == Some(beside::goal_id(own)));
        let mut row = Row::new();
        row.set("thread_id", json!(id));
        row.set("goal_id", json!(own.or_else(|| goal.id.map(|id| id.to_string()))));
        row.set("objective", json!(goal.objective));
        row.set("status", json!(status));
        row.set("token_budget", json!(goal.token_budget.map(count)));
        row.set("tokens_used", json!(count(goal.tokens_used)));
        row.set("time_used_seconds", json!(count(goal.seconds_used)));
        row.set("created_at", json!(seconds(created_at)));
        row.set("updated_at", json!(seconds(updated_at)));
        row.set("continuation_count", json!(count(goal.continuations)));
        row.set("last_gap_fingerprint", json!(stall.map(|stall| stall.fingerprint.to_string())));
        row.set("repeated_gap_count", json!(stall.map_or(0, |stall| stall.repeats)));
        row.set("last_gap_pass", json!(stall.map(|stall| stall.pass)));
        row.set("pause_reason", json!(known_pause.map(|pause| format!("\"{pause}\""))));
        self.put("thread_goals", &row)
    }

    fn tools(&mut self, id: &str, old: &[Row], tools: &[Tool]) -> Result<(), Error> {
        let said: Vec<Tool> = old.iter().filter_map(|row| beside::tool(row).ok()).collect();
        if said == tools && said.len() == old.len() {
            for row in old {
                let mut row = row.clone();
                row.set("thread_id", json!(id));
                self.put("thread_dynamic_tools", &row)?;
            }
            return Ok(());
        }
        for (position, tool) in tools.iter().enumerate() {
            self.losses.add(lost::TOOLS, u64::from(tool.extra.is_some()));
            let mut row = Row::new();
            row.set("thread_id", json!(id));
            row.set("position", json!(position));
            row.set("name", json!(tool.name));
            row.set("description", json!(tool.description));
            row.set("input_schema", json!(tool.input_schema));
            self.put("thread_dynamic_tools", &row)?;
        }
        Ok(())
    }

    fn job(&mut self, job: &Dated<Shared>) -> Result<(), Error> {
        let Shared::Job { id, name, status, progress, detail, row } = &job.what else { return Ok(()) };
        let old = Row::read(row.as_bytes()).ok().filter(|row| row.word("id").is_some() && row.word("name").is_some());
        let is_same = |old: &Row| {
            let was = job_status(&old.word("status").unwrap_or_default());
            let shown = old.count("progress").ok().flatten().map(|shown| shown.min(100));
            (was.as_str(), shown, old.text("detail").ok().flatten())
                == (status.as_str(), progress.map(u64::from), detail.as_deref())
        };
        if let Some(old) = old.as_ref().filter(|old| is_same(old)) {
            return self.put("jobs", old);
        }
        let known = ["queued", "running", "paused", "completed", "failed", "cancelled"];
        let word = if known.contains(&status.as_str()) { status } else { "paused" };
        self.losses.add(lost::JOBS, u64::from(word != status || (old.is_none() && !row.is_empty())));
        let mut new = old.unwrap_or_else(Row::new);
        if new.word("id").is_none() {
            new.set("id", json!(id));
            new.set("created_at", json!(seconds(job.created_at)));
        }
        new.set("name", json!(name));
        new.set("status", json!(word));
        new.set("progress", json!(progress));
        new.set("detail", json!(detail));
        new.set("updated_at", json!(seconds(job.updated_at)));
        self.put("jobs", &new)
    }

    fn run(&mut self, dated: &Dated<Shared>) -> Result<(), Error> {
        let (begun, ended) = (json!(seconds(dated.created_at)), json!(dated.ended_at.map(seconds)));
        let object = |text: &Option<String>| json!(text.as_deref().unwrap_or("{}"));
        let list = |text: &Option<String>| json!(text.as_deref().unwrap_or("[]"));
        let mut row = Row::new();
        let table = match &dated.what {
            Shared::Run { id, workflow, goal, status, input_hash, metadata } => {
                row.set("id", json!(id));
                row.set("workflow_id", json!(workflow));
                row.set("goal", json!(goal.as_deref().unwrap_or_default()));
                row.set("status", json!(status.as_str()));
                row.set("input_hash", json!(input_hash));
                row.set("metadata_json", object(metadata));
                "workflow_runs"
            }
            Shared::Part { id, run, kind, status, result, list: chosen } => {
                row.set("id", json!(id));
                row.set("workflow_run_id", json!(run));
                row.set("status", json!(status.as_str()));
                match kind {
                    PartWords::Branch { branch, node } => {
                        row.set("branch_id", json!(branch));
                        row.set("node_id", json!(node));
                        row.set("result_json", object(result));
                        "branch_runs"
                    }
                    PartWords::Leaf { leaf, task, branch_run, input_hash } => {
                        row.set("leaf_id", json!(leaf));
                        row.set("task_id", json!(task));
                        row.set("branch_run_id", json!(branch_run));
                        row.set("input_hash", json!(input_hash));
                        row.set("output_json", object(result));
                        row.set("artifacts_json", list(chosen));
                        "leaf_runs"
                    }
                    PartWords::Control { node, control } => {
                        row.set("node_id", json!(node));
                        row.set("kind", json!(control));
                        row.set("selected_children_json", list(chosen));
                        row.set("result_json", object(result));
                        "control_node_runs"
                    }
                }
            }
            Shared::Candidate { id, run, control, branch_run, candidate, score, passed, rationale } => {
                row.set("id", json!(id));
                row.set("workflow_run_id", json!(run));
                row.set("control_node_run_id", json!(control));
                row.set("candidate_id", json!(candidate));
                row.set("branch_run_id", json!(branch_run));
                row.set(
                    "score",
                    score.as_deref().and_then(|score| serde_json::from_str(score).ok()).unwrap_or(Value::Null),
                );
                row.set("passed", json!(passed.map(i64::from)));
                row.set("rationale_json", object(rationale));
                row.set("created_at", begun);
                return self.put("teacher_candidates", &row);
            }
            Shared::Job { .. } | Shared::Roadmap { .. } => return Ok(()),
        };
        row.set("started_at", begun);
        row.set("completed_at", ended);
        self.put(table, &row)
    }
}

/// A tree that was written.
#[derive(Debug, Default)]
struct Tree {
    written: Vec<write::Entry>,
    head: Option<usize>,
    records: u64,
    messages: u64,
}

impl StoreWriter for StateWriter {
    fn name(&self) -> &'static str {
        DATABASE
    }

    fn thread(&mut self, whole: Whole) -> Result<(u64, u64), Error> {
        let rows = Rows::read(&whole.rows);
        let id = self.id(&whole, &rows);
        let row = thread_row(&id, &whole, rows.thread.as_ref());
        if !self.is_put("threads", &row)? {
            return Ok((0, 0));
        }
        let tree = self.tree(&id, &whole)?;
        self.beside(&id, &rows, &whole.beside)?;
        let line = json!({
            "thread_id": id,
            "thread_name": row.word("title"),
            "updated_at": row.int("updated_at").ok().flatten(),
            "rollout_path": row.word("rollout_path"),
        });
        self.index.extend_from_slice(format!("{line}\n").as_bytes());
        // What was in the terminal program's folder, or in none of CodeWhale's, is written for that program, too.
        if rows.thread.is_none() {
            let name = whole.session.uuid().to_string();
            self.sessions.push(write::document(&whole.session, &name, &tree.written, tree.head));
        }
        Ok((tree.records, tree.messages))
    }

    fn shared(&mut self, shared: Vec<Dated<Shared>>) -> Result<(), Error> {
        for thing in &shared {
            match &thing.what {
                Shared::Job { .. } => self.job(thing)?,
                Shared::Roadmap { .. } => self.losses.count(lost::ROADMAPS),
                Shared::Run { .. } | Shared::Part { .. } | Shared::Candidate { .. } => self.run(thing)?,
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, out: &mut Vec<u8>) -> Result<Written, Error> {
        self.image.run(NUMBER)?;
        *out = self.image.finish()?;
        let index = writer::Companion { path: PathBuf::from(INDEX), bytes: self.index, shared: false };
        self.sessions.insert(0, index);
        Ok(Written { companions: self.sessions, losses: self.losses.take() })
    }
}

/// The ids that messages had, in the order in which they are written.
fn own_ids<'a>(sources: &'a [Option<String>], places: &[usize], count: usize) -> Vec<Option<&'a str>> {
    let mut ids = vec![None; count];
    for (source, place) in sources.iter().zip(places) {
        if let (Some(source), Some(id)) = (source.as_deref(), ids.get_mut(*place)) {
            *id = Some(source);
        }
    }
    ids
}

/// The entries that something else than the next one follows.
fn forks(entries: &[writer::Entry]) -> HashSet<usize> {
    let numbered = entries.iter().enumerate();
    numbered
        .filter(|(number, entry)| entry.parent != number.checked_sub(1))
        .filter_map(|(_, entry)| entry.parent)
        .collect()
}

/// The row of a thread: as CodeWhale had it, but for what was changed here.
fn thread_row(id: &str, whole: &Whole, old: Option<&Row>) -> Row {
    let (session, thread, details) = (&whole.session, &whole.thread, &whole.thread.details);
    let mut row = old.cloned().unwrap_or_else(Row::new);
    row.set("id", json!(id));
    let cwd = session.cwd.as_deref().and_then(|cwd| cwd.to_str());
    let source = if session.forked_from.is_some() { "fork" } else { "interactive" };
    // Each column, what stands here in its place, and what stands there where it may not be empty.
    let columns: [(&str, Option<&str>, Option<&str>); 13] = [
        ("preview", session.preview.as_deref(), Some("New conversation")),
        ("model_provider", session.provider.as_deref(), Some("deepseek")),
        ("path", details.working_path.as_deref(), None),
        ("cwd", cwd, Some("/")),
        ("cli_version", session.cli_version.as_deref(), Some(VERSION)),
        ("source", details.source.as_deref().filter(|_| old.is_some()), Some(source)),
        ("title", session.title.as_deref(), None),
        ("sandbox_policy", details.sandbox_policy.as_deref(), None),
        ("approval_mode", details.approval_policy.as_deref(), None),
        ("git_sha", session.git_sha.as_deref(), None),
        ("git_branch", session.git_branch.as_deref(), None),
        ("git_origin_url", session.git_origin.as_deref(), None),
        ("memory_mode", details.memory_mode.as_deref(), None),
    ];
    for (column, here, least) in columns {
        let there = old.and_then(|old| old.word(column)).map(|there| match column {
            "preview" => one_line(&there, crate::codec::PREVIEW_CHARS),
            "title" => one_line(&there, TITLE_CHARS),
            _ => there,
        });
        if old.is_none() || there.as_deref() != here {
            let here =
                here.map(|here| if column == "preview" { one_line(here, PREVIEW_CHARS) } else { here.to_owned() });
            row.set(column, json!(here.as_deref().or(least)));
        }
        // A row that was read may lack what may not be empty.
        if let (Ok(None), Some(least)) = (row.text(column), least) {
            row.set(column, json!(least));
        }
    }
    let number = |column: &str| old.and_then(|old| old.int(column).ok().flatten());
    let updated = number("updated_at").map_or_else(
        || seconds(thread.updated_at),
        |there| {
            if whole.is_as_imported { there } else { there.max(seconds(thread.updated_at)) }
        },
    );
    row.set("created_at", json!(number("created_at").unwrap_or_else(|| seconds(thread.created_at))));
    row.set("updated_at", json!(updated));
    row.set("ephemeral", json!(number("ephemeral").unwrap_or_else(|| i64::from(thread.ephemeral))));
    let is_archived = thread.shelf == Shelf::Archived;
    let was_archived = number("archived").unwrap_or_default() != 0;
    let there = old.and_then(|old| old.word("status"));
    let status = status(&thread.status, there.as_deref(), (was_archived, is_archived));
    row.set("status", json!(status));
    row.set("archived", json!(i64::from(is_archived)));
    let archived_at = || json!(seconds(thread.archived_at.unwrap_or(thread.updated_at)));
    match (was_archived, is_archived) {
        (true, true) => {}
        (false, true) => row.set("archived_at", archived_at()),
        (_, false) => row.set("archived_at", Value::Null),
    }
    // It is set when the messages are there.
    row.set("current_leaf_id", Value::Null);
    row
}

/// A thread's status in CodeWhale's words: the one that it had there, where that says what is here.
fn status(here: &Status, there: Option<&str>, (was_archived, is_archived): (bool, bool)) -> String {
    let brought = match there {
        None | Some("archived" | "idle" | "running") => Status::Idle,
        Some(word) => Status::from_word(word),
    };
    match there {
        Some(there) if brought == *here && was_archived == is_archived => there.to_owned(),
        _ if is_archived => "archived".to_owned(),
        _ => match here.as_str() {
            word @ ("running" | "idle" | "completed" | "failed" | "paused") => word.to_owned(),
            _ => "idle".to_owned(),
        },
    }
}

/// Whether the row of a goal says what stands here; its revision has another id when it was brought again.
fn says_goal(row: &Row, goal: &NewGoal) -> bool {
    let Ok(Some(Companion::Goal(there))) = beside::companion(row) else { return false };
    let without = |goal: &NewGoal| NewGoal { id: None, created_at: None, ..goal.clone() };
    without(&there) == without(goal)
}

/// A goal's status in CodeWhale's words, and whether it has one.
fn goal_status(status: Option<&GoalStatus>) -> (&str, bool) {
    match status.map_or("active", GoalStatus::as_str) {
        word @ ("active" | "paused" | "blocked" | "usage_limited" | "budget_limited" | "complete") => (word, true),
        // What is not known there must not run.
        _ => ("paused", false),
    }
}

/// What CodeWhale takes for the state of a goal that does not move.
fn is_legal(stall: &Stall, continuations: u64) -> bool {
    let repeats = (1..=MAX_REPEATS).contains(&stall.repeats);
    repeats && stall.pass <= continuations && stall.repeats <= stall.pass.saturating_add(1)
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
