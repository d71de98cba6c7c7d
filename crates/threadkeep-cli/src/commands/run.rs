//! `threadkeep run`

mod drawing;

use std::io::{self, Read as _};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{
    Candidate, CandidateQuery, Judgement, NewCandidate, NewPart, NewRun, PartEnd, PartId, PartKind, ReplayFrom, Run,
    RunEnd, RunId, RunPart, RunPatch, RunQuery, RunStatus, Score,
};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep run start review --goal 'find what breaks'      prints the run's id
  threadkeep run leaf 019a2284 lint 'run the linter' --input-hash sha256:ab12
  threadkeep run finish 019a2290 completed --result '{\"warnings\":3}' --list '[\"report.txt\"]'
  threadkeep run replay 019a2284 lint sha256:ab12            the output, if there is one to reuse
  threadkeep run show 019a2284                               branches, leaves, control nodes, candidates
  threadkeep run interrupt 019a2284 --reason 'its process died'
  threadkeep run end 019a2284 completed
  threadkeep run list --status running

RUN, PART, CONTROL and CANDIDATE are ids, or unambiguous beginnings of them. Ending something
twice in the same way is one end; ending it in another way is refused.";

/// Keep what a workflow does: its branches, leaves, control nodes and candidates, and what came of them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunArgs {
    #[command(subcommand)]
    what: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    /// Start a run of a workflow
    Start(StartArgs),
    /// List runs, those that were started last first
    List(ListArgs),
    /// Draw a run as a tree
    Show {
        /// The run
        run: String,
        /// At most so many nodes, up to 1000 [default: all]
        #[arg(short = 'n', long, value_name = "N")]
        limit: Option<usize>,
        /// Go on where an earlier page of the same run ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Say that a run is pending, running or paused; an interrupted one is taken up again
    Mark {
        /// The run, or with --part the part
        run: String,
        /// What it is from now on
        #[arg(value_enum)]
        status: Mark,
        /// It is a part of a run
        #[arg(long)]
        part: bool,
    },
    /// End a run
    End {
        /// The run
        run: String,
        /// How it ended
        #[arg(value_enum)]
        status: End,
        /// Why
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Mark what still runs in a run as interrupted, for when who worked on it has gone
    Interrupt {
        /// The run
        run: String,
        /// Why
        #[arg(long, value_name = "WORDS", default_value = "interrupted")]
        reason: String,
    },
    /// Delete a run that does not run, with everything that belongs to it
    Delete {
        /// The run
        run: String,
    },
    /// Start a branch of a run
    Branch {
        /// The run
        run: String,
        /// Which branch of the workflow
        branch: String,
        /// The node that it stands at
        node: String,
        #[command(flatten)]
        new: NewArgs,
    },
    /// Start a leaf of a run: one task
    Leaf {
        /// The run
        run: String,
        /// Which leaf of the workflow
        leaf: String,
        /// What it does
        task: String,
        /// The branch that it is on
        #[arg(long, value_name = "PART")]
        branch: Option<String>,
        /// Tells what it is given from what it was given at other times, so that its output can be used again
        #[arg(long, value_name = "HASH")]
        input_hash: Option<String>,
        #[command(flatten)]
        new: NewArgs,
    },
    /// Start a control node of a run
    Control {
        /// The run
        run: String,
        /// Which node of the workflow
        node: String,
        /// How it decides
        kind: String,
        #[command(flatten)]
        new: NewArgs,
    },
    /// End a branch, a leaf or a control node with what came of it
    Finish {
        /// The part
        part: String,
        /// How it ended
        #[arg(value_enum)]
        status: End,
        /// What came of it; `-` reads it from standard input
        #[arg(long, value_name = "JSON")]
        result: Option<String>,
        /// A leaf's artifacts, or the children that a control node chose: a JSON array
        #[arg(long, value_name = "JSON")]
        list: Option<String>,
        /// Why
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Find the completed leaf whose output can be used again; ends with 1 when there is none
    Replay {
        /// The run
        run: String,
        /// Which leaf of the workflow
        leaf: String,
        /// The hash of its input
        input_hash: String,
        /// Also in other runs of the workflow
        #[arg(long)]
        any_run: bool,
    },
    /// Add a candidate to a control node
    Candidate {
        /// The control node
        control: String,
        /// Which candidate it is
        candidate: String,
        /// The branch that it comes from
        #[arg(long, value_name = "PART")]
        branch: Option<String>,
        #[command(flatten)]
        judgement: JudgementArgs,
        /// The id, so that a repeated call adds it once
        #[arg(long, value_name = "ID")]
        id: Option<PartId>,
    },
    /// Say what was found of a candidate
    Judge {
        /// The candidate
        candidate: String,
        #[command(flatten)]
        judgement: JudgementArgs,
    },
    /// List the candidates of a control node, the best first
    Candidates {
        /// The control node
        control: String,
        /// At most this many, up to 1000
        #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Go on where an earlier page of the same list ended
        #[arg(long)]
        cursor: Option<String>,
    },
}

#[derive(Debug, Args)]
struct StartArgs {
    /// Which workflow it is a run of
    workflow: String,
    /// What is to be reached
    #[arg(long, value_name = "WORDS")]
    goal: Option<String>,
    /// The thread that it works for; it is purged with it
    #[arg(long)]
    thread: Option<String>,
    /// The folder of the project that it belongs to [default: the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "thread")]
    workspace: Option<PathBuf>,
    /// Tells what it is given from what other runs are
    #[arg(long, value_name = "HASH")]
    input_hash: Option<String>,
    /// What else there is to say of it
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// It is planned, and does not run yet
    #[arg(long)]
    pending: bool,
    /// The id, so that a repeated call starts it once
    #[arg(long, value_name = "ID")]
    id: Option<RunId>,
}

#[derive(Debug, Args)]
struct NewArgs {
    /// It is planned, and does not run yet
    #[arg(long)]
    pending: bool,
    /// The id, so that a repeated call starts it once
    #[arg(long, value_name = "ID")]
    id: Option<PartId>,
}

#[derive(Debug, Args)]
struct JudgementArgs {
    /// How good it is: a number
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    score: Option<Score>,
    /// Whether it is good enough
    #[arg(long, value_name = "BOOL")]
    passed: Option<bool>,
    /// Why
    #[arg(long, value_name = "JSON")]
    rationale: Option<String>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those of this status
    #[arg(long, value_name = "WORD")]
    status: Option<String>,
    /// Only those of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only those that work for this thread
    #[arg(long)]
    thread: Option<String>,
    /// Only those of this project: a name, an id or a folder
    #[arg(short, long, conflicts_with = "thread")]
    workspace: Option<String>,
    /// Those that were started first at the beginning
    #[arg(long)]
    reverse: bool,
    /// At most this many, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Go on where an earlier page of the same list ended
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mark {
    Pending,
    Running,
    Paused,
}

impl Mark {
    fn status(self) -> RunStatus {
        match self {
            Self::Pending => RunStatus::Pending,
            Self::Running => RunStatus::Running,
            Self::Paused => RunStatus::Paused,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum End {
    Completed,
    Failed,
    Cancelled,
}

impl End {
    fn status(self) -> RunStatus {
        match self {
            Self::Completed => RunStatus::Completed,
            Self::Failed => RunStatus::Failed,
            Self::Cancelled => RunStatus::Cancelled,
        }
    }
}

impl NewArgs {
    fn part(&self, kind: PartKind) -> NewPart {
        NewPart { id: self.id.clone(), kind, status: self.pending.then_some(RunStatus::Pending) }
    }
}

impl JudgementArgs {
    fn judgement(&self) -> Judgement {
        Judgement { score: self.score.clone(), passed: self.passed, rationale: self.rationale.clone() }
    }
}

/// Answers.
pub(super) fn run(args: &RunArgs, app: &mut App) -> Outcome {
    match &args.what {
        RunCommand::Start(args) => start(args, app),
        RunCommand::List(args) => list(args, app),
        RunCommand::Show { run, limit, cursor } => drawing::show(app, run, *limit, cursor.clone()),
        RunCommand::Mark { run, status, part } => mark(app, run, status.status(), *part),
        RunCommand::End { run, status, reason } => {
            let store = app.write()?;
            let end = RunEnd { status: status.status(), reason: reason.clone() };
            let run = store.end_run(&store.find_run(run)?, end)?;
            told(app, &run)
        }
        RunCommand::Interrupt { run, reason } => interrupt(app, run, reason),
        RunCommand::Delete { run } => {
            let store = app.write()?;
            let id = store.find_run(run)?;
            store.delete_run(&id)?;
            if app.out.is_json() {
                app.out.document(&json!({"deleted": id}))?;
            } else {
                app.out.line(format!("Deleted {id}"))?;
            }
            Ok(Code::Done)
        }
        RunCommand::Replay { run, leaf, input_hash, any_run } => replay(app, run, (leaf, input_hash), *any_run),
        RunCommand::Candidates { control, limit, cursor } => candidates(app, control, *limit, cursor.clone()),
        part_or_candidate => add_or_end(part_or_candidate, app),
    }
}

/// Answers what is asked of parts and candidates.
fn add_or_end(command: &RunCommand, app: &mut App) -> Outcome {
    let store = app.write()?;
    let start = |run: &str, new: &NewArgs, kind| store.start_part(&store.find_run(run)?, new.part(kind));
    let part = match command {
        RunCommand::Branch { run, branch, node, new } => {
            start(run, new, PartKind::Branch { branch: branch.clone(), node: node.clone() })?
        }
        RunCommand::Leaf { run, leaf, task, branch, input_hash, new } => {
            let branch_run = branch.as_ref().map(|branch| store.find_part(branch)).transpose()?;
            let (leaf, task, input_hash) = (leaf.clone(), task.clone(), input_hash.clone());
            start(run, new, PartKind::Leaf { leaf, task, branch_run, input_hash })?
        }
        RunCommand::Control { run, node, kind, new } => {
            start(run, new, PartKind::Control { node: node.clone(), control: kind.clone() })?
        }
        RunCommand::Finish { part, status, result, list, reason } => {
            let (status, list, reason) = (status.status(), list.clone(), reason.clone());
            let end = PartEnd { status, result: given(result.as_deref())?, list, reason };
            store.end_part(&store.find_part(part)?, end)?
        }
        RunCommand::Candidate { control, candidate, branch, judgement, id } => {
            let control = store.part(&store.find_part(control)?)?;
            let new = NewCandidate {
                id: id.clone(),
                branch_run: branch.as_ref().map(|branch| store.find_part(branch)).transpose()?,
                judgement: judgement.judgement(),
                ..NewCandidate::new(control.id, candidate)
            };
            return told_candidate(app, &store.add_candidate(&control.run, new)?);
        }
        RunCommand::Judge { candidate, judgement } => {
            let judgement = judgement.judgement();
            if judgement == Judgement::default() {
                let report = Report::usage("nothing is said of the candidate");
                return Err(report.hint("--score, --passed or --rationale says it").into());
            }
            return told_candidate(app, &store.judge_candidate(&store.find_candidate(candidate)?, judgement)?);
        }
        _ => return Err(Report::usage("see `threadkeep help run`").into()),
    };
    told_part(app, &part)
}

/// What is given on the command line, or with `-` on standard input.
fn given(text: Option<&str>) -> Result<Option<String>, Failure> {
    if text != Some("-") {
        return Ok(text.map(str::to_owned));
    }
    let mut read = String::new();
    let failed = |error: io::Error| Report::usage(format!("standard input: {error}"));
    io::stdin().lock().read_to_string(&mut read).map_err(failed)?;
    Ok(Some(read.trim_end_matches(['\n', '\r']).to_owned()))
}

fn start(args: &StartArgs, app: &mut App) -> Outcome {
    let store = app.create()?;
    let thread = args.thread.as_ref().map(|thread| store.find(thread)).transpose()?;
    let new = NewRun {
        id: args.id.clone(),
        thread: thread.clone(),
        goal: args.goal.clone(),
        status: args.pending.then_some(RunStatus::Pending),
        input_hash: args.input_hash.clone(),
        metadata: args.metadata.clone(),
        ..NewRun::new(&args.workflow)
    };
    let run = match (thread, &args.workspace) {
        (Some(_), _) => store.start_run(new)?,
        (None, Some(folder)) => store.workspace(folder)?.start_run(new)?,
        (None, None) => store.workspace(&std::env::current_dir()?)?.start_run(new)?,
    };
    told(app, &run)
}

fn mark(app: &mut App, name: &str, status: RunStatus, is_part: bool) -> Outcome {
    let store = app.write()?;
    if is_part {
        let part = store.mark_part(&store.find_part(name)?, status)?;
        return told_part(app, &part);
    }
    let patch = RunPatch { status: Some(status), ..RunPatch::default() };
    let run = store.update_run(&store.find_run(name)?, patch)?;
    told(app, &run)
}

fn interrupt(app: &mut App, name: &str, reason: &str) -> Outcome {
    let store = app.write()?;
    let found = store.interrupt_run(&store.find_run(name)?, reason)?;
    if app.out.is_json() {
        let run = document(&found.run);
        app.out.document(&json!({"run": run, "was_running": found.was_running, "parts": found.parts}))?;
        return Ok(Code::Done);
    }
    let parts = human::counted(found.parts, "part", "parts");
    let words = match (found.was_running, found.parts) {
        (false, 0) => "Nothing of it ran.".to_owned(),
        (true, 0) => "Interrupted the run".to_owned(),
        (true, _) => format!("Interrupted the run and {parts}"),
        (false, _) => format!("Interrupted {parts}"),
    };
    app.out.line(words)?;
    Ok(Code::Done)
}

fn replay(app: &mut App, name: &str, (leaf, input_hash): (&str, &str), any_run: bool) -> Outcome {
    let store = app.read()?;
    let from = if any_run { ReplayFrom::Workflow } else { ReplayFrom::Run };
    let found = store.replay_leaf(&store.find_run(name)?, leaf, input_hash, from)?;
    if app.out.is_json() {
        app.out.document(&json!({"part": found.as_ref().map(part_document)}))?;
        return Ok(if found.is_some() { Code::Done } else { Code::NotDone });
    }
    let Some(found) = found else {
        let report = Report::new(Code::NotDone, "nothing-to-replay", "no completed leaf has this input".to_owned());
        return Err(report.hint("--any-run looks in the other runs of the workflow, too").into());
    };
    app.out.bytes(found.result.as_deref().unwrap_or("null").as_bytes())?;
    app.out.bytes(b"\n")?;
    Ok(Code::Done)
}

fn told(app: &mut App, run: &Run) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"run": document(run)}))?;
        return Ok(Code::Done);
    }
    let (workflow, id) = (text::one_line(&run.workflow), app.out.paint(Ink::Dim, run.id.as_str()));
    app.out.line(format!("{}: {}  {id}", text::one_line(run.status.as_str()), text::cut(&workflow, 60)))?;
    Ok(Code::Done)
}

fn told_part(app: &mut App, part: &RunPart) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"part": part_document(part)}))?;
        return Ok(Code::Done);
    }
    let (name, id) = (text::one_line(part.kind.name()), app.out.paint(Ink::Dim, part.id.as_str()));
    let (status, kind) = (text::one_line(part.status.as_str()), part.kind.word());
    app.out.line(format!("{status}: {kind} {}  {id}", text::cut(&name, 60)))?;
    Ok(Code::Done)
}

fn told_candidate(app: &mut App, candidate: &Candidate) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"candidate": candidate_document(candidate)}))?;
        return Ok(Code::Done);
    }
    let (name, id) = (text::one_line(&candidate.candidate), app.out.paint(Ink::Dim, candidate.id.as_str()));
    app.out.line(format!("candidate {}{}  {id}", text::cut(&name, 60), drawing::judged(&candidate.judgement)))?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let query = RunQuery {
        status: args.status.as_deref().map(RunStatus::from_word),
        workflow: args.workflow.clone(),
        thread: args.thread.as_ref().map(|thread| store.find(thread)).transpose()?,
        ascending: args.reverse,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let page = match &args.workspace {
        None => store.runs(query)?,
        Some(name) => store.workspace_by_id(names::find_workspace(&store, name)?.id)?.runs(query)?,
    };
    if app.out.is_json() {
        app.out.page("runs", &page, document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No such run.")?;
        return Ok(Code::Done);
    }
    write_list(app, &store, &page.entries)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn write_list(app: &mut App, store: &Store, runs: &[Run]) -> Result<(), Failure> {
    let columns = [
        ("id", Align::Left),
        ("workflow", Align::Left),
        ("status", Align::Left),
        ("thread", Align::Left),
        ("started", Align::Left),
        ("goal", Align::Flexible),
    ];
    let (mut table, now) = (Table::new(&columns), super::now());
    for run in runs {
        let words = match (&run.damage, &run.reason) {
            (Some(damage), _) => format!("damaged: {}", text::one_line(damage)),
            (None, Some(reason)) => text::one_line(reason),
            (None, None) => text::one_line(run.goal.as_deref().unwrap_or_default()),
        };
        let thread = run.thread.as_ref().map(|thread| names::short_id(store, thread)).unwrap_or_default();
        table.row(vec![
            cell(Ink::Dim, run.id.as_str()),
            cell(Ink::Plain, text::cut(&text::one_line(&run.workflow), 30)),
            cell(drawing::ink(&run.status), text::one_line(run.status.as_str())),
            cell(Ink::Dim, thread),
            cell(Ink::Dim, human::ago(run.started_at, now)),
            cell(Ink::Plain, words),
        ]);
    }
    table.write(&mut app.out)
}

fn candidates(app: &mut App, control: &str, limit: usize, cursor: Option<String>) -> Outcome {
    let store = app.read()?;
    let page = store.candidates(&store.find_part(control)?, CandidateQuery { limit, cursor })?;
    if app.out.is_json() {
        app.out.page("candidates", &page, candidate_document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No candidates yet.")?;
    }
    for candidate in &page.entries {
        let line = drawing::candidate_line(&app.out, candidate, 0);
        app.out.line(line)?;
    }
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn document(run: &Run) -> Value {
    json!({
        "id": run.id,
        "workspace": run.workspace,
        "thread": run.thread,
        "workflow": run.workflow,
        "goal": run.goal,
        "status": run.status,
        "reason": run.reason,
        "input_hash": run.input_hash,
        "metadata": value(run.metadata.as_deref()),
        "started_at": json::time(run.started_at),
        "completed_at": run.completed_at.map(json::time),
        "damage": run.damage,
    })
}

fn part_document(part: &RunPart) -> Value {
    let (branch_run, input_hash) = match &part.kind {
        PartKind::Leaf { branch_run, input_hash, .. } => (branch_run.as_ref(), input_hash.as_deref()),
        PartKind::Branch { .. } | PartKind::Control { .. } => (None, None),
    };
    json!({
        "kind": part.kind.word(),
        "id": part.id,
        "run": part.run,
        "name": part.kind.name(),
        "about": part.kind.about(),
        "branch_run": branch_run,
        "input_hash": input_hash,
        "status": part.status,
        "reason": part.reason,
        "result": value(part.result.as_deref()),
        "list": value(part.list.as_deref()),
        "started_at": json::time(part.started_at),
        "completed_at": part.completed_at.map(json::time),
        "damage": part.damage,
    })
}

fn candidate_document(candidate: &Candidate) -> Value {
    let judgement = &candidate.judgement;
    json!({
        "kind": "candidate",
        "id": candidate.id,
        "run": candidate.run,
        "control": candidate.control,
        "branch_run": candidate.branch_run,
        "name": candidate.candidate,
        "score": judgement.score,
        "passed": judgement.passed,
        "rationale": value(judgement.rationale.as_deref()),
        "created_at": json::time(candidate.created_at),
        "damage": candidate.damage,
    })
}

/// Stored JSON as a value; as text when it can't be one.
fn value(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)))
}
