//! Giving threads back as one store of their agent's: each with its whole tree, and with what stands beside it.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{
    CheckpointQuery, Details, DocumentQuery, Error, ItemId, Job, JobQuery, MessageQuery, MessageState, NewGoal, Page,
    PartKind, Result, Run, RunNode, RunQuery, SourceFile, Status, Thread, ThreadId, Timestamp, Tool, TreeQuery,
};

use super::tree::{Entries, Reading};
use super::{Exported, Mask, mask_session, plan};
use crate::codec::Codec;
use crate::companion::{Companion, PartWords, Shared};
use crate::rows::Row;
use crate::writer::{Dated, Losses, StoreWriter, Whole, lost};

/// How much is asked for at a time.
const PAGE: usize = 500;
const PARTS: usize = 64;
/// Documents that agents have a place for.
const DOCUMENTS: [&str; 4] = ["scratchpad", "plan", "pin", "work_state"];

/// Threads on their way into one store of an agent's.
///
/// Guarantees: the same threads give the same bytes; what is held in memory is the store that is made, and one thread.
pub struct StoreExport<'a> {
    store: &'a Store,
    threads: Vec<ThreadId>,
    codec: Arc<dyn Codec>,
    codecs: Vec<Arc<dyn Codec>>,
    mask: &'a Mask<'a>,
}

impl std::fmt::Debug for StoreExport<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreExport").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Whether an agent keeps its sessions in a store that threads can be given back in, several at once.
pub fn has_store(codec: &dyn Codec) -> bool {
    codec.store_writer().is_some()
}

impl<'a> StoreExport<'a> {
    /// Prepares an export of these threads, each once.
    pub fn new(store: &'a Store, threads: Vec<ThreadId>, codec: Arc<dyn Codec>, mask: &'a Mask<'a>) -> Self {
        let mut seen = HashSet::new();
        let threads = threads.into_iter().filter(|thread| seen.insert(thread.clone())).collect();
        Self { store, threads, codec, codecs: crate::codecs(), mask }
    }

    /// The threads.
    pub fn threads(&self) -> &[ThreadId] {
        &self.threads
    }

    /// The agent's codec.
    pub fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    /// The name that the agent knows its store by.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an agent that has none.
    pub fn name(&self) -> Result<&'static str> {
        Ok(self.writer()?.name())
    }

    /// Writes the store.
    ///
    /// # Errors
    /// What `put` fails with, the errors of reading, and [`Error::Invalid`] for what no store of the agent's takes.
    pub fn write<E: From<Error>>(
        &self,
        put: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Exported, E> {
        let (exported, bytes) = self.made()?;
        put(&bytes)?;
        Ok(exported)
    }

    fn made(&self) -> Result<(Exported, Vec<u8>)> {
        let mut writer = self.writer()?;
        let (mut exported, mut losses) = (Exported::default(), Losses::default());
        let mut shared = Found::default();
        // What was used last stands last, as it came to be in the agent's own store.
        let activity = |id: &ThreadId| Ok((self.store.get(id)?.activity, id.clone()));
        let mut threads = self.threads.iter().map(activity).collect::<Result<Vec<_>>>()?;
        threads.sort();
        for (_, id) in &threads {
            let whole = self.whole(id, &mut shared, &mut losses)?;
            let (records, messages) = writer.thread(whole)?;
            exported.records += records;
            exported.messages += messages;
        }
        writer.shared(self.of_no_thread(shared, &mut losses)?)?;
        let mut bytes = Vec::new();
        let written = writer.finish(&mut bytes)?;
        losses.merge(written.losses);
        exported.bytes = bytes.len() as u64;
        exported.losses = losses.take();
        exported.companions = written.companions;
        Ok((exported, bytes))
    }

    fn writer(&self) -> Result<Box<dyn StoreWriter>> {
        self.codec.store_writer().ok_or(Error::Unsupported { operation: "writing a store of this agent" })
    }

    fn whole(&self, id: &ThreadId, shared: &mut Found, losses: &mut Losses) -> Result<Whole> {
        let mut thread = self.store.get(id)?;
        let reading = Reading { store: self.store, codec: &*self.codec, codecs: &self.codecs, mask: self.mask };
        let entries = reading.entries(&self.store.tree(id)?, losses)?;
        let mut session = plan::session_of(&thread, &*self.codec);
        mask_session(&mut session, self.mask);
        let source = self.source(&thread)?;
        let Rows { rows, is_as_imported, is_changed } = match &source {
            Some((source, folder)) => {
                shared.folders.insert(folder.clone());
                self.rows(source, &entries, losses)?
            }
            None => Rows::default(),
        };
        shared.look(self.store, &thread)?;
        self.mask_details(&mut thread.details);
        let beside = self.beside(&thread, losses)?;
        let roadmap_home = self.store.roadmap_link(id)?.map(|link| link.workspace.to_string());
        let Entries { entries, head, .. } = entries;
        Ok(Whole { session, thread, entries, head, rows, is_as_imported, is_changed, beside, roadmap_home })
    }

    /// The session of a store of the agent's that the thread was last imported from, and the store's folder.
    fn source(&self, thread: &Thread) -> Result<Option<(SourceFile, PathBuf)>> {
        let sources = self.store.sources(&thread.id)?;
        for source in sources.into_iter().rev().filter(|source| source.agent == self.codec.agent()) {
            // A session's name may hold the mark, too, so the container is the one that is known.
            for (at, _) in source.path.match_indices('#') {
                let Some(path) = source.path.get(..at) else { continue };
                if self.store.source(path)?.is_some_and(|container| container.thread.is_none()) {
                    let folder = Path::new(path).parent().unwrap_or(Path::new("")).to_owned();
                    return Ok(Some((source, folder)));
                }
            }
        }
        Ok(None)
    }

    /// The rows of a session, but for those that hold a secret in their bytes.
    fn rows(&self, source: &SourceFile, entries: &Entries, losses: &mut Losses) -> Result<Rows> {
        let (mut rows, mut after, mut is_changed) = (Vec::new(), -1, entries.is_changed);
        loop {
            let parts = self.store.source_parts(&source.path, after, PARTS)?;
            let Some(last) = parts.last() else { break };
            after = last.position;
            for part in parts {
                let masked = (self.mask)(&part.bytes);
                // A row of another length than it had was masked when it was stored.
                let is_masked = masked.is_some() || i64::try_from(part.bytes.len()).ok() != Some(part.length);
                is_changed |= is_masked || part.redacted;
                let row = masked.unwrap_or(part.bytes);
                let read = Row::read(&row).ok();
                let has_secret = read.as_ref().is_some_and(|row| row.blobs().any(|blob| (self.mask)(&blob).is_some()));
                is_changed |= has_secret;
                if has_secret || (is_masked && !part.redacted && read.is_none()) {
                    losses.count(lost::MASKED);
                } else {
                    rows.push(row);
                }
            }
        }
        let (mut known, mut last, mut after): (HashSet<ItemId>, _, _) = (HashSet::new(), None, -1);
        loop {
            let page = self.store.known_records(&source.path, after, PAGE)?;
            let Some(end) = page.last() else { break };
            (after, last) = (end.position, Some(end.item));
            known.extend(page.iter().map(|record| record.item));
        }
        let head = entries.head.and_then(|head| entries.items.get(head).copied());
        let same = known.len() == entries.items.len() && entries.items.iter().all(|item| known.contains(item));
        Ok(Rows { rows, is_as_imported: !is_changed && same && head == last, is_changed })
    }

    /// What stands beside a thread.
    fn beside(&self, thread: &Thread, losses: &mut Losses) -> Result<Vec<Dated<Companion>>> {
        let (store, id) = (self.store, &thread.id);
        let mut beside = Vec::new();
        let mut add = |what, at: Timestamp| {
            beside.push(Dated { what, created_at: at, updated_at: at, ended_at: None });
        };
        if thread.status != Status::Idle || thread.details.end_reason.is_some() {
            // It is masked already, as are all details.
            let end_reason = thread.details.end_reason.clone();
            add(Companion::Standing { status: thread.status.clone(), end_reason }, thread.updated_at);
        }
        let checkpoints =
            all(|cursor| store.checkpoints(id, CheckpointQuery { ascending: true, limit: PAGE, cursor }))?;
        for info in checkpoints {
            if let Some(found) = store.checkpoint(id, Some(info.name.clone()))? {
                let (name, state) = (self.masked(info.name), self.masked(found.state));
                add(Companion::Checkpoint { name, state }, info.created_at);
            }
        }
        let tools = store.tools(id)?.tools;
        if !tools.is_empty() {
            let tools = tools.into_iter().map(|tool| Tool {
                name: self.masked(tool.name),
                description: self.masked_of(tool.description),
                input_schema: self.masked(tool.input_schema),
                extra: self.masked_of(tool.extra),
            });
            add(Companion::Tools(tools.collect()), thread.updated_at);
        }
        for info in all(|cursor| store.documents(id, DocumentQuery { limit: PAGE, cursor }))? {
            let Some(name) = DOCUMENTS.into_iter().find(|name| *name == info.name) else {
                losses.count(lost::DOCUMENTS);
                continue;
            };
            if let Some(found) = store.document(id, name, None)? {
                add(Companion::Document { name, text: self.masked(found.text) }, info.created_at);
            }
        }
        let state = Some(MessageState::Queued);
        let waiting = all(|cursor| {
            store.messages(id, MessageQuery { state: state.clone(), ascending: true, limit: PAGE, cursor })
        })?;
        for message in waiting {
            let number = message.key.as_deref().and_then(|key| key.strip_prefix("import ")).map(str::to_owned);
            let number = number.unwrap_or_else(|| message.id.to_string());
            add(Companion::Message { id: number, body: self.masked(message.body) }, message.accepted_at);
        }
        if let Some(link) = store.roadmap_link(id)? {
            let node = self.masked_of(link.node);
            add(Companion::Link { roadmap: link.roadmap.to_string(), node }, link.linked_at);
        }
        if let Some(goal) = store.goal(id)? {
            let what = Companion::Goal(Box::new(NewGoal {
                id: Some(goal.id),
                objective: self.masked(goal.objective),
                status: Some(goal.stored_status),
                pause_reason: goal.pause_reason,
                token_budget: goal.token_budget,
                seconds_budget: goal.seconds_budget,
                tokens_used: goal.tokens_used,
                seconds_used: goal.seconds_used,
                continuations: goal.continuations,
                stall: goal.stall,
                created_at: Some(goal.created_at),
            }));
            let (created_at, updated_at, ended_at) = (goal.created_at, goal.updated_at, goal.ended_at);
            beside.push(Dated { what, created_at, updated_at, ended_at });
        }
        Ok(beside)
    }

    /// What belongs to none of the threads alone: what an import brought from their own stores, and what names one of them.
    fn of_no_thread(&self, mut found: Found, losses: &mut Losses) -> Result<Vec<Dated<Shared>>> {
        for folder in std::mem::take(&mut found.folders) {
            let home = match self.store.find_workspace(&folder) {
                Ok(Some(home)) => home,
                Ok(None) | Err(Error::NotFound { .. } | Error::Io { .. } | Error::Invalid { .. }) => continue,
                Err(error) => return Err(error),
            };
            found.look_in(&home, self.codec.agent())?;
        }
        let mut shared = Vec::new();
        for (_, mut roadmap) in found.roadmaps {
            if let Shared::Roadmap { title, text, .. } = &mut roadmap.what {
                *title = self.masked_of(title.take());
                *text = self.masked(std::mem::take(text));
            }
            shared.push(roadmap);
        }
        for (_, job) in found.jobs {
            shared.push(self.job(job, losses));
        }
        for (_, run) in found.runs {
            self.run(run, &mut shared)?;
        }
        Ok(shared)
    }

    fn job(&self, job: Job, losses: &mut Losses) -> Dated<Shared> {
        // Only what an import brought is a row of the agent's; another payload may look like one.
        let is_row = job.queue == self.codec.agent();
        losses.add(lost::JOBS, u64::from(!is_row && job.payload.is_some()));
        let what = Shared::Job {
            id: job.id.to_string(),
            name: self.masked(job.name),
            status: job.status.as_str().to_owned(),
            progress: job.progress,
            detail: self.masked_of(job.detail),
            row: self.masked_of(job.payload.filter(|_| is_row)).unwrap_or_default(),
        };
        Dated { what, created_at: job.created_at, updated_at: job.updated_at, ended_at: job.ended_at }
    }

    fn run(&self, run: Run, shared: &mut Vec<Dated<Shared>>) -> Result<()> {
        let masked = |text: Option<String>| self.masked_of(text);
        let (id, mut cursor) = (run.id.clone(), None);
        let dated = |what, begun: Timestamp, ended: Option<Timestamp>| {
            let updated_at = ended.unwrap_or(begun);
            Dated { what, created_at: begun, updated_at, ended_at: ended }
        };
        let what = Shared::Run {
            id: run.id.to_string(),
            workflow: self.masked(run.workflow),
            goal: masked(run.goal),
            status: run.status,
            input_hash: masked(run.input_hash),
            metadata: masked(run.metadata),
        };
        shared.push(dated(what, run.started_at, run.completed_at));
        loop {
            let tree = self.store.run_tree(&id, TreeQuery { limit: PAGE, cursor })?;
            for node in tree.nodes {
                match node {
                    RunNode::Part(part) => {
                        let what = Shared::Part {
                            id: part.id.to_string(),
                            run: id.to_string(),
                            kind: self.words(part.kind),
                            status: part.status,
                            result: masked(part.result),
                            list: masked(part.list),
                        };
                        shared.push(dated(what, part.started_at, part.completed_at));
                    }
                    RunNode::Candidate(candidate) => {
                        let what = Shared::Candidate {
                            id: candidate.id.to_string(),
                            run: id.to_string(),
                            control: candidate.control.to_string(),
                            branch_run: candidate.branch_run.map(|run| run.to_string()),
                            candidate: self.masked(candidate.candidate),
                            score: candidate.judgement.score.map(|score| score.to_string()),
                            passed: candidate.judgement.passed,
                            rationale: masked(candidate.judgement.rationale),
                        };
                        shared.push(dated(what, candidate.created_at, None));
                    }
                }
            }
            if tree.next_cursor.is_none() {
                return Ok(());
            }
            cursor = tree.next_cursor;
        }
    }

    fn words(&self, kind: PartKind) -> PartWords {
        match kind {
            PartKind::Branch { branch, node } => {
                PartWords::Branch { branch: self.masked(branch), node: self.masked(node) }
            }
            PartKind::Control { node, control } => {
                PartWords::Control { node: self.masked(node), control: self.masked(control) }
            }
            PartKind::Leaf { leaf, task, branch_run, input_hash } => PartWords::Leaf {
                leaf: self.masked(leaf),
                task: self.masked(task),
                branch_run: branch_run.map(|run| run.to_string()),
                input_hash: self.masked_of(input_hash),
            },
        }
    }

    /// Masks the words that a thread's own row may hold; those of the session are masked there.
    fn mask_details(&self, details: &mut Details) {
        let texts = [
            &mut details.title,
            &mut details.preview,
            &mut details.source,
            &mut details.working_path,
            &mut details.sandbox_policy,
            &mut details.approval_policy,
            &mut details.memory_mode,
            &mut details.persona,
            &mut details.end_reason,
        ];
        for text in texts {
            *text = self.masked_of(text.take());
        }
    }

    fn masked_of(&self, text: Option<String>) -> Option<String> {
        text.map(|text| self.masked(text))
    }

    fn masked(&self, text: String) -> String {
        match (self.mask)(text.as_bytes()) {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => text,
        }
    }
}

/// The rows that a thread had in a store of its agent's.
#[derive(Default)]
struct Rows {
    rows: Vec<Vec<u8>>,
    /// Whether the thread is made of them alone, and of all of them.
    is_as_imported: bool,
    /// Whether something of them was masked or redacted.
    is_changed: bool,
}

/// What was found that belongs to no thread alone, each once.
#[derive(Default)]
struct Found {
    /// The folders of the agents' stores that threads came from.
    folders: std::collections::BTreeSet<PathBuf>,
    roadmaps: BTreeMap<(String, String), Dated<Shared>>,
    jobs: BTreeMap<String, Job>,
    runs: BTreeMap<String, Run>,
}

impl Found {
    /// What names a thread, or is named by it.
    fn look(&mut self, store: &Store, thread: &Thread) -> Result<()> {
        let of = Some(thread.id.clone());
        for job in
            all(|cursor| store.jobs(JobQuery { thread: of.clone(), limit: PAGE, cursor, ..JobQuery::default() }))?
        {
            self.jobs.insert(job.id.to_string(), job);
        }
        for run in
            all(|cursor| store.runs(RunQuery { thread: of.clone(), limit: PAGE, cursor, ..RunQuery::default() }))?
        {
            self.runs.insert(run.id.to_string(), run);
        }
        let Some(link) = store.roadmap_link(&thread.id)? else { return Ok(()) };
        let Some(roadmap) = store.workspace_by_id(link.workspace)?.roadmap(&link.roadmap)? else { return Ok(()) };
        let info = roadmap.info;
        let folder = thread.details.cwd.as_deref().map(PathBuf::from);
        let key = (info.workspace.to_string(), info.id.to_string());
        let what = Shared::Roadmap {
            folder,
            workspace: Some(info.workspace.to_string()),
            id: info.id.to_string(),
            title: info.title,
            text: roadmap.text,
        };
        let (created_at, updated_at) = (info.created_at, info.updated_at);
        self.roadmaps.insert(key, Dated { what, created_at, updated_at, ended_at: None });
        Ok(())
    }

    /// What an import of the agent's store has brought into the workspace of the store's folder: jobs and runs of no thread.
    fn look_in(&mut self, home: &Workspace, agent: &str) -> Result<()> {
        let queue = Some(agent.to_owned());
        let jobs =
            all(|cursor| home.jobs(JobQuery { queue: queue.clone(), limit: PAGE, cursor, ..JobQuery::default() }))?;
        for job in jobs.into_iter().filter(|job| job.thread.is_none()) {
            self.jobs.insert(job.id.to_string(), job);
        }
        let runs = all(|cursor| home.runs(RunQuery { limit: PAGE, cursor, ..RunQuery::default() }))?;
        for run in runs.into_iter().filter(|run| run.thread.is_none()) {
            self.runs.insert(run.id.to_string(), run);
        }
        Ok(())
    }
}

/// All pages of a list.
fn all<T>(mut page: impl FnMut(Option<String>) -> Result<Page<T>>) -> Result<Vec<T>> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let found = page(cursor)?;
        all.extend(found.entries);
        if found.next_cursor.is_none() {
            return Ok(all);
        }
        cursor = found.next_cursor;
    }
}
