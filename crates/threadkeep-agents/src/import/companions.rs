//! Bringing what stands beside conversations into the store: once, and never over what was changed here meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{
    Change, Danger, Error, Judgement, NewCandidate, NewCheckpoint, NewDocument, NewJob, NewMessage, NewPart,
    NewRequest, NewRoadmap, NewRun, PartEnd, PartId, PartKind, Principal, RequestId, RequestState, RoadmapId, RunEnd,
    RunId, RunStatus, Score, Status, ThreadPatch, Uuid,
};

use super::identity::thread_id;
use super::source::Failure;
use crate::companion::{Companion, PartWords, Shared, job_status};

/// What is remembered of a companion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// What it was in the agent's store.
    there: String,
    /// What it became here.
    here: String,
}

/// All that is remembered of a conversation's companions, by their keys.
pub(super) type Memory = BTreeMap<String, Kept>;

/// What became of companions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompanionCounts {
    /// Brought into the store, for the first time or anew.
    pub imported: u64,
    /// Already there.
    pub unchanged: u64,
    /// Left as they are here; a problem says why.
    pub left: u64,
}

impl CompanionCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.imported += other.imported;
        self.unchanged += other.unchanged;
        self.left += other.left;
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What became of some companions, and what is wrong with those that were left.
#[derive(Debug, Default)]
pub(super) struct Brought {
    pub(super) counts: CompanionCounts,
    pub(super) problems: Vec<String>,
}

impl Brought {
    fn count(&mut self, what: &str, done: Result<bool, Error>) -> Result<(), Failure> {
        match done {
            Ok(true) => self.counts.imported += 1,
            Ok(false) => self.counts.unchanged += 1,
            Err(error) if super::concerns_one_file(&error) => self.leave(format!("{what} was not imported: {error}")),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn leave(&mut self, reason: String) {
        self.counts.left += 1;
        self.problems.push(reason);
    }
}

/// Brings a conversation's companions into the store. `memory` is what earlier imports remembered, and is brought up to date.
///
/// What has not changed in the agent's store since is left alone, whatever has become of it here. What has changed there is
/// written, unless somebody has changed it here: then it is left, and a problem says so.
pub(super) fn bring(
    store: &Store,
    live: &LiveThread,
    companions: &[Companion],
    memory: &mut Memory,
) -> Result<Brought, Failure> {
    let mut brought = Brought::default();
    for companion in companions {
        let (key, there) = (companion.key(), companion.digest());
        let earlier = memory.get(&key);
        if earlier.is_some_and(|earlier| earlier.there == there) {
            brought.counts.unchanged += 1;
            continue;
        }
        let here = match stands(store, live, companion) {
            Ok(here) => here,
            Err(error) => {
                brought.count(&key, Err(error))?;
                continue;
            }
        };
        let may_write = match (&here, earlier) {
            (Here::Nothing, None) => true,
            // What was brought and is not here any more was taken away here.
            (Here::Nothing | Here::Same(_), _) => false,
            (Here::Other(mark), Some(earlier)) => *mark == earlier.here,
            (Here::Other(_), None) => false,
        };
        let done = match here {
            Here::Same(here) => Ok((false, here)),
            _ if may_write => write(store, live, companion, earlier.is_some()).map(|here| (true, here)),
            here => {
                let found = if matches!(here, Here::Nothing) { "was removed here" } else { "is another here" };
                let reason = format!("{key} has changed there, and {found}; it was left as it is here");
                brought.leave(reason);
                continue;
            }
        };
        match done {
            Ok((wrote, here)) => {
                memory.insert(key.clone(), Kept { there, here });
                brought.count(&key, Ok(wrote))?;
            }
            Err(error) => brought.count(&key, Err(error))?,
        }
    }
    Ok(brought)
}

/// What stands here in a companion's place.
enum Here {
    Nothing,
    /// What the companion says; with a mark that changes when it does.
    Same(String),
    /// Something else.
    Other(String),
}

impl Here {
    fn of(same: bool, mark: String) -> Self {
        if same { Self::Same(mark) } else { Self::Other(mark) }
    }
}

fn stands(store: &Store, live: &LiveThread, companion: &Companion) -> Result<Here, Error> {
    let thread = live.id();
    Ok(match companion {
        Companion::Goal(new) => match live.goal()? {
            None => Here::Nothing,
            Some(goal) => {
                let same = goal.objective == new.objective
                    && Some(&goal.stored_status) == new.status.as_ref()
                    && (goal.tokens_used, goal.seconds_used, goal.continuations)
                        == (new.tokens_used, new.seconds_used, new.continuations)
                    && (goal.token_budget, goal.stall.as_ref()) == (new.token_budget, new.stall.as_ref());
                Here::of(same, format!("{} {}", goal.id, goal.tick))
            }
        },
        Companion::Checkpoint { name, state } => match live.checkpoint(Some(name.clone()))? {
            None => Here::Nothing,
            Some(found) => Here::of(found.state == *state, found.info.tick.to_string()),
        },
        Companion::Tools(tools) => {
            let found = live.tools()?;
            match found.tools.is_empty() {
                true => Here::Nothing,
                false => Here::of(found.tools == *tools, format!("{}", found.digest)),
            }
        }
        Companion::Document { name, text } => match live.document(name, None)? {
            None => Here::Nothing,
            Some(found) => Here::of(found.text == *text, found.info.version.to_string()),
        },
        // Their ids make a second one the first.
        Companion::Message { .. } => Here::Nothing,
        Companion::Request { id, .. } => match store.request(request_id(thread.as_str(), id)) {
            // An import that was killed between asking and withdrawing has left it open.
            Ok(found) if found.state == RequestState::Pending => Here::Nothing,
            Ok(found) => Here::Same(found.number.to_string()),
            Err(Error::NotFound { .. }) => Here::Nothing,
            Err(error) => return Err(error),
        },
        Companion::Link { roadmap, node } => match live.roadmap_link()? {
            None => Here::Nothing,
            Some(link) => {
                let same = link.roadmap.as_str() == roadmap && link.node == *node;
                Here::of(same, link.tick.to_string())
            }
        },
        Companion::Standing { status, end_reason } => {
            let found = store.get(thread)?;
            let mark = standing_mark(&found.status, found.details.end_reason.as_deref());
            let same = mark == standing_mark(status, end_reason.as_deref());
            let untouched = found.status == Status::Idle && found.details.end_reason.is_none();
            if untouched && !same { Here::Nothing } else { Here::of(same, mark) }
        }
    })
}

fn standing_mark(status: &Status, end_reason: Option<&str>) -> String {
    format!("{} {}", status.as_str(), end_reason.unwrap_or_default())
}

/// Writes a companion; gives the mark of what was written.
fn write(store: &Store, live: &LiveThread, companion: &Companion, again: bool) -> Result<String, Error> {
    let thread = live.id();
    Ok(match companion {
        Companion::Goal(new) => {
            // The agent counts on in one revision; here a revision that was set stays as it is.
            let id = new.id.filter(|_| !again);
            let goal = live.set_goal(threadkeep::NewGoal { id, ..(**new).clone() })?;
            format!("{} {}", goal.id, goal.tick)
        }
        Companion::Checkpoint { name, state } => {
            live.save_checkpoint(NewCheckpoint::new(name, state))?.tick.to_string()
        }
        Companion::Tools(tools) => format!("{}", live.set_tools(tools.clone(), None)?.digest),
        Companion::Document { name, text } => live.put_document(NewDocument::new(*name, text))?.version.to_string(),
        Companion::Message { id, body } => {
            let key = Some(format!("import {id}"));
            let message = NewMessage { key, source: Some("import".to_owned()), ..NewMessage::text("import", body) };
            store.inject_message(thread, message)?.number.to_string()
        }
        Companion::Request { id, subject, detail, enrols, is_low, outcome } => {
            let request = match enrols {
                true => NewRequest::enrolment(*subject, detail),
                false => {
                    NewRequest { detail: Some(detail.clone()), ..NewRequest::approval(*subject, detail.as_bytes()) }
                }
            };
            let request = NewRequest {
                id: Some(request_id(thread.as_str(), id)),
                thread: Some(thread.clone()),
                danger: if *is_low { Danger::Low } else { Danger::High },
                ..request
            };
            // Not as the holder: that would put it on record in the conversation.
            let asked = store.ask_request(request)?;
            store.cancel_request(asked.id, Principal::local("import"), Some(outcome.clone()))?.number.to_string()
        }
        Companion::Link { roadmap, node } => {
            live.link_roadmap(&RoadmapId::new(roadmap.as_str())?, node.clone())?.tick.to_string()
        }
        Companion::Standing { status, end_reason } => {
            let end_reason = end_reason.clone().map_or(Change::Keep, Change::Set);
            let patch = ThreadPatch { status: Some(status.clone()), end_reason, ..ThreadPatch::default() };
            let found = store.update(thread, patch)?;
            standing_mark(&found.status, found.details.end_reason.as_deref())
        }
    })
}

/// The id that a request of an agent's has here.
fn request_id(thread: &str, id: &str) -> RequestId {
    let mut hasher = blake3::Hasher::new_derive_key("threadkeep 2026 ids of imported requests");
    hasher.update(thread.as_bytes()).update(&[0]).update(id.as_bytes());
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    RequestId::from_uuid(Uuid::from_u128(uuid::Builder::from_random_bytes(bytes).into_uuid().as_u128()))
}

/// Brings what belongs to an agent's store and to no conversation of it. `folder` is where the store lies.
///
/// What is here already under its id stays as it is.
pub(super) fn bring_shared(store: &Store, folder: &Path, shared: &[Shared]) -> Result<Brought, Failure> {
    let mut brought = Brought::default();
    if shared.is_empty() {
        return Ok(brought);
    }
    let home = store.workspace(folder)?;
    let mut ends: Vec<(RunId, RunStatus)> = Vec::new();
    for thing in shared {
        let (what, done) = match thing {
            Shared::Roadmap { folder, id, title, text, .. } => {
                (format!("roadmap {id}"), roadmap(store, &home, folder.as_deref(), id, title.as_deref(), text))
            }
            Shared::Job { id, name, status, progress, detail, row } => {
                (format!("job {id}"), job(&home, id, name, status, (*progress, detail.as_deref()), row))
            }
            Shared::Run { id, status, .. } => {
                let done = run_id(id).and_then(|run| {
                    let is_new = run_of(&home, &run, thing)?;
                    if is_new && status.has_ended() {
                        ends.push((run, status.clone()));
                    }
                    Ok(is_new)
                });
                (format!("workflow run {id}"), done)
            }
            Shared::Part { id, .. } => (format!("part {id} of a workflow run"), part(&home, id, thing)),
            Shared::Candidate { id, .. } => (format!("candidate {id}"), candidate(&home, id, thing)),
        };
        brought.count(&what, done)?;
    }
    // A run that has ended takes no more parts.
    for (run, status) in ends {
        let end = RunEnd { status, reason: Some("ended before it was imported".to_owned()) };
        if let Err(error) = home.end_run(&run, end) {
            brought.count(&format!("the end of workflow run {run}"), Err(error))?;
        }
    }
    Ok(brought)
}

/// Tells what is there from what is not.
fn is_there<T>(found: Result<T, Error>) -> Result<bool, Error> {
    match found {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn roadmap(
    store: &Store,
    home: &Workspace,
    folder: Option<&Path>,
    id: &str,
    title: Option<&str>,
    text: &str,
) -> Result<bool, Error> {
    let id = RoadmapId::new(id)?;
    let workspace = match folder {
        Some(folder) => &store.workspace(folder)?,
        None => home,
    };
    match workspace.roadmap(&id)? {
        Some(found) if found.text == text => Ok(false),
        Some(_) => Err(Error::Conflict {
            what: "roadmap",
            expected: "what the agent's store says".to_owned(),
            found: "another one under its id".to_owned(),
        }),
        None => {
            let title = title.map(str::to_owned);
            workspace.create_roadmap(NewRoadmap { title, ..NewRoadmap::new(id, text) }).map(|_| true)
        }
    }
}

/// A job that its agent may still run is paused here.
fn job(
    home: &Workspace,
    id: &str,
    name: &str,
    status: &str,
    (progress, detail): (Option<u8>, Option<&str>),
    row: &str,
) -> Result<bool, Error> {
    let id = threadkeep::JobId::new(fit(id, "job id")?)?;
    match home.job(&id) {
        Ok(found) if found.payload.as_deref() == Some(row) => return Ok(false),
        Ok(_) => {
            return Err(Error::Conflict {
                what: "job",
                expected: "what the agent's store says".to_owned(),
                found: "what an earlier import brought, or another job".to_owned(),
            });
        }
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let status = job_status(status);
    let new = NewJob {
        id: Some(id),
        queue: "codewhale".to_owned(),
        status: Some(status),
        progress,
        detail: detail.map(str::to_owned),
        payload: Some(row.to_owned()),
        delay: Duration::ZERO,
        ..NewJob::new(name)
    };
    home.add_job(new).map(|_| true)
}

fn run_of(home: &Workspace, id: &RunId, run: &Shared) -> Result<bool, Error> {
    let Shared::Run { workflow, goal, status, input_hash, metadata, .. } = run else { return Ok(false) };
    if is_there(home.run(id))? {
        return Ok(false);
    }
    let status = if status.has_ended() { RunStatus::Running } else { status.clone() };
    let new = NewRun {
        id: Some(id.clone()),
        goal: goal.clone(),
        status: Some(status),
        input_hash: input_hash.clone(),
        metadata: metadata.clone(),
        ..NewRun::new(workflow)
    };
    home.start_run(new).map(|_| true)
}

fn part(home: &Workspace, id: &str, part: &Shared) -> Result<bool, Error> {
    let Shared::Part { run, kind, status, result, list, .. } = part else { return Ok(false) };
    let id = part_id(id)?;
    if is_there(home.part(&id))? {
        return Ok(false);
    }
    let kind = match kind.clone() {
        PartWords::Branch { branch, node } => PartKind::Branch { branch, node },
        PartWords::Control { node, control } => PartKind::Control { node, control },
        PartWords::Leaf { leaf, task, branch_run, input_hash } => {
            let branch_run = branch_run.as_deref().map(part_id).transpose()?;
            PartKind::Leaf { leaf, task, branch_run, input_hash }
        }
    };
    let begun = if status.has_ended() { RunStatus::Running } else { status.clone() };
    home.start_part(&run_id(run)?, NewPart { id: Some(id.clone()), status: Some(begun), ..NewPart::new(kind) })?;
    if status.has_ended() {
        let end = PartEnd { status: status.clone(), result: result.clone(), list: list.clone(), reason: None };
        home.end_part(&id, end)?;
    }
    Ok(true)
}

fn candidate(home: &Workspace, id: &str, candidate: &Shared) -> Result<bool, Error> {
    let Shared::Candidate { run, control, branch_run, candidate, score, passed, rationale, .. } = candidate else {
        return Ok(false);
    };
    let id = part_id(id)?;
    if is_there(home.find_candidate(id.as_str()))? {
        return Ok(false);
    }
    let score = score.as_deref().map(Score::new).transpose()?;
    let new = NewCandidate {
        id: Some(id),
        branch_run: branch_run.as_deref().map(part_id).transpose()?,
        judgement: Judgement { score, passed: *passed, rationale: rationale.clone() },
        ..NewCandidate::new(part_id(control)?, candidate)
    };
    home.add_candidate(&run_id(run)?, new).map(|_| true)
}

fn run_id(id: &str) -> Result<RunId, Error> {
    RunId::new(fit(id, "run id")?)
}

fn part_id(id: &str) -> Result<PartId, Error> {
    PartId::new(fit(id, "part id")?)
}

/// An agent's id, made fit where it is none.
fn fit(id: &str, field: &'static str) -> Result<String, Error> {
    let reason = || Error::Invalid { field, reason: "nothing of it can stand in an id".to_owned() };
    thread_id(id).map(|id| id.as_str().to_owned()).ok_or_else(reason)
}
