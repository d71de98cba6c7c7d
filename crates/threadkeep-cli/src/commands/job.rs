//! `threadkeep job`

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{ClaimedJob, Error, Job, JobEnd, JobId, JobPatch, JobQuery, JobStatus, NewJob};

use super::{App, goal};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep job add 'run the tests' --queue ci --payload '{\"branch\":\"main\"}'
  threadkeep job list --queue ci
  threadkeep job run --queue ci -- ./run-tests.sh       claim the next one and run a command for it
  threadkeep job mark 019a2284 cancelled                take it away from whoever runs it
  threadkeep job requeue                                what dead workers left

Jobs of the greatest priority come first, then those that were put into the queue first; each is given
to one worker. A worker that dies loses its job, which is tried again.";

/// Add jobs to queues, look after them, and run commands for them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct JobArgs {
    #[command(subcommand)]
    what: JobCommand,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Add a job
    Add(AddArgs),
    /// List jobs, those that were changed last first
    List(ListArgs),
    /// Say all that is known of a job
    Show {
        /// The job: its id or the beginning of it
        job: String,
    },
    /// Say how far a job is; one that runs is taken away from its worker
    Mark {
        /// The job: its id or the beginning of it
        job: String,
        /// What it is from now on
        #[arg(value_enum)]
        status: Mark,
    },
    /// Claim the next job of a queue and run a command for it
    ///
    /// The command reads the job's payload from its standard input, and finds the job's id and name in `THREADKEEP_JOB` and
    /// `THREADKEEP_JOB_NAME`; a `threadkeep` that it starts finds the same store. When it ends with 0 the job is completed; else this attempt has failed, and the job is tried again if
    /// it has an attempt left. Ends with 1 when no job is due.
    Run {
        /// The queue
        #[arg(long, value_name = "NAME", default_value = NewJob::QUEUE)]
        queue: String,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Queue again what workers left that died
    Requeue {
        /// Only of this queue
        #[arg(long, value_name = "NAME")]
        queue: Option<String>,
    },
    /// Delete a job that does not run
    Delete {
        /// The job: its id or the beginning of it
        job: String,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// What it is
    name: String,
    /// The queue that it waits in
    #[arg(long, value_name = "NAME", default_value = NewJob::QUEUE)]
    queue: String,
    /// What it is to work on
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The thread that it works for; it is purged with it
    #[arg(long)]
    thread: Option<String>,
    /// The folder of the project that it belongs to [default: the current one]
    #[arg(long, value_name = "DIR", conflicts_with = "thread")]
    workspace: Option<PathBuf>,
    /// Greater ones are claimed first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
    /// How long it is not claimed: 90s, 2h30m …
    #[arg(long, value_name = "DURATION", value_parser = goal::duration, default_value = "0s")]
    delay: Duration,
    /// After so many attempts a failure is the end
    #[arg(long, value_name = "N", default_value_t = 3)]
    attempts: u64,
    /// How long the second attempt waits; each further one waits twice as long
    #[arg(long, value_name = "DURATION", value_parser = goal::duration, default_value = "500ms")]
    backoff: Duration,
    /// The id, so that a repeated call adds it once
    #[arg(long, value_name = "ID")]
    id: Option<JobId>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only those of this status
    #[arg(long, value_name = "WORD")]
    status: Option<String>,
    /// Only those that work for this thread
    #[arg(long)]
    thread: Option<String>,
    /// Only those of this project: a name, an id or a folder
    #[arg(short, long, conflicts_with = "thread")]
    workspace: Option<String>,
    /// Those that were changed first at the beginning
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
    Queued,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

/// Answers.
pub(super) fn run(args: &JobArgs, app: &mut App) -> Outcome {
    match &args.what {
        JobCommand::Add(args) => add(args, app),
        JobCommand::List(args) => list(args, app),
        JobCommand::Show { job } => {
            let store = app.read()?;
            let job = store.job(&store.find_job(job)?)?;
            show(app, &store, &job)
        }
        JobCommand::Mark { job, status } => {
            let status = match status {
                Mark::Queued => JobStatus::Queued,
                Mark::Paused => JobStatus::Paused,
                Mark::Completed => JobStatus::Completed,
                Mark::Failed => JobStatus::Failed,
                Mark::Cancelled => JobStatus::Cancelled,
            };
            let store = app.write()?;
            let patch = JobPatch { status: Some(status), ..JobPatch::default() };
            let job = store.update_job(&store.find_job(job)?, patch)?;
            changed(app, &job)
        }
        JobCommand::Run { queue, command } => work(app, queue, command),
        JobCommand::Requeue { queue } => requeue(app, queue.clone()),
        JobCommand::Delete { job } => {
            let store = app.write()?;
            let id = store.find_job(job)?;
            store.delete_job(&id)?;
            if app.out.is_json() {
                app.out.document(&json!({"deleted": id}))?;
            } else {
                app.out.line(format!("Deleted {id}"))?;
            }
            Ok(Code::Done)
        }
    }
}

fn add(args: &AddArgs, app: &mut App) -> Outcome {
    let store = app.create()?;
    let thread = args.thread.as_ref().map(|thread| store.find(thread)).transpose()?;
    let new = NewJob {
        id: args.id.clone(),
        thread: thread.clone(),
        queue: args.queue.clone(),
        payload: args.payload.clone(),
        priority: args.priority,
        delay: args.delay,
        max_attempts: args.attempts,
        backoff: args.backoff,
        ..NewJob::new(&args.name)
    };
    let job = match (thread, &args.workspace) {
        (Some(_), _) => store.add_job(new)?,
        (None, Some(folder)) => store.workspace(folder)?.add_job(new)?,
        (None, None) => store.workspace(&std::env::current_dir()?)?.add_job(new)?,
    };
    changed(app, &job)
}

fn changed(app: &mut App, job: &Job) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"job": document(job)}))?;
        return Ok(Code::Done);
    }
    let (name, id) = (text::one_line(&job.name), app.out.paint(Ink::Dim, job.id.as_str()));
    app.out.line(format!("{}: {}  {id}", text::one_line(job.status.as_str()), text::cut(&name, 60)))?;
    Ok(Code::Done)
}

fn list(args: &ListArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let query = JobQuery {
        queue: args.queue.clone(),
        status: args.status.as_deref().map(JobStatus::from_word),
        thread: args.thread.as_ref().map(|thread| store.find(thread)).transpose()?,
        ascending: args.reverse,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let page = match &args.workspace {
        None => store.jobs(query)?,
        Some(name) => store.workspace_by_id(names::find_workspace(&store, name)?.id)?.jobs(query)?,
    };
    if app.out.is_json() {
        app.out.page("jobs", &page, document)?;
        return Ok(Code::Done);
    }
    if page.entries.is_empty() {
        app.out.line("No such job.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("id", Align::Left),
        ("queue", Align::Left),
        ("status", Align::Left),
        ("tries", Align::Right),
        ("done", Align::Right),
        ("changed", Align::Left),
        ("job", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for job in &page.entries {
        let words = match (&job.damage, &job.detail) {
            (Some(damage), _) => format!("{}: damaged: {}", text::one_line(&job.name), text::one_line(damage)),
            (None, None) => text::one_line(&job.name),
            (None, Some(detail)) => format!("{}: {}", text::one_line(&job.name), text::one_line(detail)),
        };
        table.row(vec![
            cell(Ink::Dim, job.id.as_str()),
            cell(Ink::Plain, text::one_line(&job.queue)),
            cell(status_ink(job), status_words(job)),
            cell(Ink::Plain, format!("{}/{}", job.attempts, job.max_attempts)),
            cell(Ink::Plain, job.progress.map_or_else(String::new, |percent| format!("{percent} %"))),
            cell(Ink::Dim, human::ago(job.updated_at, now)),
            cell(Ink::Plain, words),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn show(app: &mut App, store: &Store, job: &Job) -> Outcome {
    if app.out.is_json() {
        app.out.document(&json!({"job": document(job)}))?;
        return Ok(Code::Done);
    }
    let now = super::now();
    app.out.line(app.out.paint(Ink::Strong, &text::one_line(&job.name)))?;
    let opt = |name, value: &Option<String>| value.as_ref().map(|value| (name, text::one_line(value)));
    let worker = job.worker.as_ref().map(|worker| ("worker", text::one_line(&worker.to_string())));
    let lines = [
        Some(("id", job.id.to_string())),
        Some(("queue", format!("{}, priority {}", text::one_line(&job.queue), job.priority))),
        Some(("status", status_words(job))),
        job.thread.as_ref().map(|thread| ("thread", names::short_id(store, thread))),
        job.progress.map(|percent| ("done", format!("{percent} %"))),
        opt("detail", &job.detail),
        Some(("attempts", format!("{} of {}", job.attempts, job.max_attempts))),
        (job.status == JobStatus::Queued && job.due_at > now).then(|| ("due", human::moment(job.due_at))),
        worker,
        opt("error", &job.error),
        opt("payload", &job.payload),
        opt("result", &job.result),
        Some(("added", human::ago(job.created_at, now))),
        Some(("changed", human::ago(job.updated_at, now))),
    ];
    for (name, value) in lines.into_iter().flatten() {
        app.out.line(format!("  {name:<9} {value}"))?;
    }
    Ok(Code::Done)
}

fn requeue(app: &mut App, queue: Option<String>) -> Outcome {
    let jobs = app.write()?.requeue_jobs(queue)?;
    if app.out.is_json() {
        app.out.document(&json!({"jobs": jobs.iter().map(document).collect::<Vec<_>>()}))?;
        return Ok(Code::Done);
    }
    if jobs.is_empty() {
        app.out.line("Every job that runs has a living worker.")?;
    }
    for job in &jobs {
        app.out.line(format!("{}: {}  {}", text::one_line(job.status.as_str()), text::one_line(&job.name), job.id))?;
    }
    Ok(Code::Done)
}

fn work(app: &mut App, queue: &str, command: &[OsString]) -> Outcome {
    let store = app.write()?;
    let Some(claimed) = store.claim_job(queue)? else {
        let report = Report::new(Code::NotDone, "nothing-due", format!("no job of the queue `{queue}` is due"));
        return Err(report.hint("`threadkeep job list` shows what there is").into());
    };
    let end = match run_command(app, &claimed, command) {
        Ok(status) if status.success() => JobEnd::Completed { result: None },
        Ok(status) => JobEnd::Failed { error: format!("the command ended with {status}"), retry: true },
        // It was not the job that failed.
        Err(error) => {
            store.end_job(&claimed.lease, JobEnd::Released)?;
            return Err(error);
        }
    };
    let is_done = matches!(end, JobEnd::Completed { .. });
    let job = match store.end_job(&claimed.lease, end) {
        Err(Error::Conflict { .. }) => store.job(&claimed.job.id)?,
        job => job?,
    };
    changed(app, &job)?;
    Ok(if is_done && job.status == JobStatus::Completed { Code::Done } else { Code::NotDone })
}

fn run_command(app: &App, claimed: &ClaimedJob, command: &[OsString]) -> Result<ExitStatus, Failure> {
    let [program, arguments @ ..] = command else { return Err(Report::usage("no command is given").into()) };
    let job = &claimed.job;
    let mut child = Command::new(program)
        .args(arguments)
        // So that the command can say of the job what it likes.
        .envs(app.store.iter().map(|store| ("THREADKEEP_STORE", store)))
        .env("THREADKEEP_JOB", job.id.as_str())
        .env("THREADKEEP_JOB_NAME", &job.name)
        .stdin(Stdio::piped())
        // What it says is not the answer of this program.
        .stdout(std::io::stderr())
        .spawn()
        .map_err(|error| Report::usage(format!("{}: {error}", program.display())))?;
    if let (Some(mut input), Some(payload)) = (child.stdin.take(), &job.payload) {
        // A command that reads nothing closes it.
        let _ = input.write_all(payload.as_bytes());
    }
    Ok(child.wait()?)
}

fn status_ink(job: &Job) -> Ink {
    match job.status {
        JobStatus::Running if !job.live => Ink::Warn,
        JobStatus::Failed => Ink::Bad,
        _ => Ink::Plain,
    }
}

fn status_words(job: &Job) -> String {
    match job.status {
        JobStatus::Running if !job.live => "running, its worker is dead".to_owned(),
        _ => text::one_line(job.status.as_str()),
    }
}

fn document(job: &Job) -> Value {
    let value = |text: &Option<String>| {
        text.as_ref().map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str())))
    };
    json!({
        "id": job.id,
        "workspace": job.workspace,
        "thread": job.thread,
        "queue": job.queue,
        "name": job.name,
        "status": job.status,
        "priority": job.priority,
        "due_at": json::time(job.due_at),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "backoff_millis": job.backoff_millis,
        "progress": job.progress,
        "detail": job.detail,
        "payload": value(&job.payload),
        "result": value(&job.result),
        "error": job.error,
        "worker": job.worker.as_ref().map(json::holder),
        "live": job.live,
        "created_at": json::time(job.created_at),
        "updated_at": json::time(job.updated_at),
        "ended_at": job.ended_at.map(json::time),
        "damage": job.damage,
    })
}
