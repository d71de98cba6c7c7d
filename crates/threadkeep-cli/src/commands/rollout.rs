//! `threadkeep rollout`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use threadkeep::blocking::Store;
use threadkeep::{
    CopyProblem, CopyProgress, LineProblem, LiveStatus, MirrorReport, RebuildReport, RolloutReport, ThreadId,
};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::output::{self, Output};
use crate::style::Ink;
use crate::{human, text};

/// How many problems are shown to people; programs get all of them.
const SHOWN_PROBLEMS: usize = 20;
const SET_ASIDE: &str = "holds items that the store does not have, perhaps as the only copy; it was set aside";
const BAR: &str = "{spinner} {pos:>10} of {len} threads {wide_bar} {eta:>4}";

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep rollout mirror                         every thread, into the store's folder `rollouts`
  threadkeep rollout mirror 019a2284 --rollouts ~/copies
  threadkeep rollout live on                        and from now on whenever a thread is written
  threadkeep rollout verify ~/copies                by the files alone
  threadkeep --store ~/new rollout rebuild --from ~/copies
  threadkeep show ~/copies/2026/11/30/019a2284-77b1-7f21-9c0e-3d5a8b6c4e10.jsonl";

/// Keep threads as files of lines, and make a store of such files
///
/// A rollout holds a thread's items with their ids and hashes, its branches, turns, labels and metadata. The store is what
/// counts: its rollouts may lag behind it. Claims and what is known of imported files are not in them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_required = true)]
pub(super) struct RolloutArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Mirror(MirrorArgs),
    Live(LiveArgs),
    Rebuild(RebuildArgs),
    Verify(VerifyArgs),
}

/// Write what changed of the threads into their rollouts
///
/// A file appears complete or not at all, and one that is as it should be is not written. Files of threads that the store
/// does not have are named and left. Exits with 8 when a thread could not be mirrored.
#[derive(Debug, Args)]
struct MirrorArgs {
    /// The threads; all of them when none is named
    #[arg(value_name = "THREAD")]
    threads: Vec<String>,
    /// All threads; this is the default
    #[arg(long, conflicts_with = "threads")]
    all: bool,
    /// The folder of the rollouts [default: `rollouts` in the store's folder; a store on a server has none]
    #[arg(long, value_name = "DIR")]
    rollouts: Option<PathBuf>,
}

const LIVE_EXAMPLES: &str = "\
EXAMPLES:
  threadkeep rollout live on                        in the store's folder
  threadkeep --store postgres://ann@db/threads rollout live on --rollouts /srv/rollouts
  threadkeep rollout live status
  threadkeep rollout live off                       the files stay";

/// Keep the rollouts in step whenever a program writes the store
///
/// It is written down in the store, and every program obeys that opens it afterwards. What a program writes is in the rollouts
/// shortly after it is synced. Rollouts that can't be written lag until they can: no write of the store waits or fails for them.
#[derive(Debug, Args)]
#[command(after_help = LIVE_EXAMPLES, subcommand_required = true)]
struct LiveArgs {
    #[command(subcommand)]
    what: Live,
}

#[derive(Debug, Subcommand)]
enum Live {
    On(OnArgs),
    /// Keep them no longer; the files stay
    Off,
    /// Say where they are kept, bring them up, and say what keeps them from it
    ///
    /// Exits with 8 when something does.
    Status,
}

/// Keep them from now on, and write those of all threads
///
/// Exits with 8 when a thread could not be mirrored. Programs that have the store open go on as they began.
#[derive(Debug, Args)]
struct OnArgs {
    /// The folder of the rollouts, by the same path on every machine that writes the store [default: `rollouts` in the
    /// store's folder; a store on a server has none]
    #[arg(long, value_name = "DIR")]
    rollouts: Option<PathBuf>,
}

/// Put what rollouts hold into the store
///
/// A store whose database is gone is begun anew. Threads that are there already get what they lack. A line that was lost costs itself and what stands on it, and is named.
/// Exits with 8 when anything was lost or left.
#[derive(Debug, Args)]
struct RebuildArgs {
    /// A folder of rollouts, or one rollout
    #[arg(long, value_name = "DIR|FILE")]
    from: PathBuf,
}

/// Check rollouts by the files alone
///
/// Checks the sum of every line, and computes every digest and every link of the chain anew. Exits with 5 when something is
/// damaged or missing.
#[derive(Debug, Args)]
struct VerifyArgs {
    /// Rollouts, or folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
}

/// Does what is asked of the rollouts.
pub(super) fn run(args: &RolloutArgs, app: &mut App) -> Outcome {
    match &args.what {
        What::Mirror(args) => mirror(args, app),
        What::Live(LiveArgs { what: Live::On(args) }) => live_on(args, app),
        What::Live(LiveArgs { what: Live::Off }) => live_off(app),
        What::Live(LiveArgs { what: Live::Status }) => live_status(app),
        What::Rebuild(args) => rebuild(args, app),
        What::Verify(args) => verify(&args.paths, app),
    }
}

fn mirror(args: &MirrorArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let threads: Vec<ThreadId> = args.threads.iter().map(|name| store.find(name)).collect::<Result<_, _>>()?;
    let bar = Bar::new();
    let threads = (!args.threads.is_empty()).then_some(threads);
    let report = store.mirror_rollouts(args.rollouts.as_deref(), threads, bar.show());
    bar.0.finish_and_clear();
    let report = report?;
    if app.out.is_json() {
        app.out.document(&report)?;
    } else {
        write_mirrored(&mut app.out, &report)?;
    }
    Ok(if report.problems.is_empty() { Code::Done } else { Code::Partial })
}

fn live_on(args: &OnArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    store.set_live_rollouts(args.rollouts.as_deref())?;
    let folder = store.live_rollouts_folder()?;
    let bar = Bar::new();
    let report = store.mirror_rollouts(folder.as_deref(), None, bar.show());
    bar.0.finish_and_clear();
    let report = report?;
    if app.out.is_json() {
        app.out.document(&json!({"live": {"folder": folder}, "mirrored": report}))?;
    } else {
        let place = folder.unwrap_or_default();
        app.out.line(format!("From now on rollouts are kept in {} while threads are written.", place.display()))?;
        write_mirrored(&mut app.out, &report)?;
    }
    Ok(if report.problems.is_empty() { Code::Done } else { Code::Partial })
}

fn live_off(app: &mut App) -> Outcome {
    let store = app.write()?;
    let folder = store.live_rollouts_folder()?;
    store.unset_live_rollouts()?;
    if app.out.is_json() {
        app.out.document(&json!({"live": {"folder": null}}))?;
    } else if let Some(folder) = folder {
        app.out.line(format!(
            "Rollouts are no longer kept while threads are written. Those in {} stay.",
            folder.display()
        ))?;
    } else {
        app.out.line("Rollouts were not kept while threads are written.")?;
    }
    Ok(Code::Done)
}

fn live_status(app: &mut App) -> Outcome {
    let store = app.write()?;
    let status = store.drain_live_rollouts();
    if app.out.is_json() {
        app.out.document(&json!({"live": status}))?;
    } else if let Some(folder) = &status.folder {
        let (ink, mark, words) = match status.is_in_step {
            true => (Ink::Good, "✓", "all in step"),
            false => (Ink::Warn, "!", "not all in step"),
        };
        app.out.line(format!("{} Rollouts are kept in {}: {words}", app.out.paint(ink, mark), folder.display()))?;
        tell_status(&status);
    } else {
        app.out.line("Rollouts are not kept while threads are written. `threadkeep rollout live on` begins it.")?;
    }
    Ok(if status.folder.is_none() || status.is_in_step { Code::Done } else { Code::Partial })
}

/// Tells what keeps rollouts from being in step, and what was set aside.
pub(super) fn tell_status(status: &LiveStatus) {
    for problem in status.problems.iter().take(SHOWN_PROBLEMS) {
        output::tell(Ink::Warn, "note", &text::one_line(problem));
    }
    tell_files(&status.set_aside, SET_ASIDE);
}

fn write_mirrored(out: &mut Output, report: &MirrorReport) -> Result<(), Failure> {
    let threads = human::counted(report.written, "thread", "threads");
    out.line(out.paint(Ink::Strong, &format!("Mirrored {threads} to {}", report.folder.display())))?;
    let (unchanged, items) = (human::count(report.unchanged), human::counted(report.items, "item", "items"));
    out.line(format!("  {items} written, {unchanged} unchanged, {} left", report.problems.len()))?;
    tell_threads(&report.problems);
    tell_files(&report.set_aside, SET_ASIDE);
    tell_files(&report.extra, "is of a thread that the store does not have; it was left");
    Ok(())
}

fn rebuild(args: &RebuildArgs, app: &mut App) -> Outcome {
    // A store is not made for what is surely a slip of the pen.
    if !args.from.exists() {
        let id = args.from.display().to_string();
        return Err(threadkeep::Error::NotFound { what: "file or folder", id }.into());
    }
    let store = app.begin_anew()?;
    let bar = Bar::new();
    let report = store.rebuild_from_rollouts(&args.from, bar.show());
    bar.0.finish_and_clear();
    let report = report?;
    if app.out.is_json() {
        app.out.document(&report)?;
    } else {
        write_rebuilt(&mut app.out, &report)?;
    }
    Ok(if report.is_whole() { Code::Done } else { Code::Partial })
}

fn write_rebuilt(out: &mut Output, report: &RebuildReport) -> Result<(), Failure> {
    let carried = &report.carried;
    let items = human::counted(carried.items, "item", "items");
    let threads = human::counted(carried.new + carried.updated, "thread", "threads");
    let files = human::counted(report.files, "file", "files");
    out.line(out.paint(Ink::Strong, &format!("Rebuilt {items} of {threads} from {files}")))?;
    let [new, updated, unchanged] = [carried.new, carried.updated, carried.unchanged].map(human::count);
    out.line(format!(
        "  threads  {new} new, {updated} updated, {unchanged} unchanged, {} left",
        carried.problems.len()
    ))?;
    if report.unplaced > 0 {
        let items = human::counted(report.unplaced, "item has", "items have");
        out.line(out.paint(Ink::Warn, &format!("  {items} no place, because a line that they stand on is lost")))?;
    }
    if report.unknown > 0 {
        out.line(format!("  {} of unknown kinds", human::counted(report.unknown, "line", "lines")))?;
    }
    tell_lines(&report.problems);
    tell_threads(&carried.problems);
    tell_files(&report.superseded, "holds less than another file of its thread; it was left");
    tell_files(&report.left, "is no rollout, or a link; it was not opened");
    Ok(())
}

/// Checks files, and folders of them.
pub(super) fn verify(paths: &[PathBuf], app: &mut App) -> Outcome {
    let (mut reports, mut problems): (Vec<RolloutReport>, Vec<LineProblem>) = (Vec::new(), Vec::new());
    for path in paths {
        let (found, wrong) = Store::verify_rollouts(path)?;
        reports.extend(found);
        problems.extend(wrong);
    }
    problems.extend(reports.iter().flat_map(|report| report.problems.iter().cloned()));
    let items: u64 = reports.iter().map(|report| report.items).sum();
    if app.out.is_json() {
        app.out.document(&json!({"files": reports, "items": items, "problems": problems}))?;
    } else {
        let (files, items) =
            (human::counted(reports.len() as u64, "rollout", "rollouts"), human::counted(items, "item", "items"));
        let (ink, mark, words) = match problems.len() as u64 {
            0 => (Ink::Good, "✓", "all whole".to_owned()),
            wrong => (Ink::Bad, "✗", human::counted(wrong, "problem", "problems")),
        };
        app.out.line(format!("{} {files}, {items}: {words}", app.out.paint(ink, mark)))?;
        tell_lines(&problems);
    }
    Ok(if problems.is_empty() { Code::Done } else { Code::Corrupt })
}

/// Tells what was lost of files, by line.
pub(super) fn tell_lines(problems: &[LineProblem]) {
    let told = problems.iter().map(|problem| {
        let place = match problem.line {
            0 => problem.file.display().to_string(),
            line => format!("{}:{line}", problem.file.display()),
        };
        (place, problem.reason.clone())
    });
    tell(told);
}

fn tell_threads(problems: &[CopyProblem]) {
    tell(problems.iter().map(|problem| (problem.thread.to_string(), problem.reason.clone())));
}

fn tell_files(files: &[PathBuf], what: &str) {
    tell(files.iter().map(|file: &PathBuf| (Path::display(file).to_string(), what.to_owned())));
}

fn tell(problems: impl ExactSizeIterator<Item = (String, String)>) {
    let more = problems.len().saturating_sub(SHOWN_PROBLEMS);
    for (place, reason) in problems.take(SHOWN_PROBLEMS) {
        output::tell(Ink::Warn, &text::one_line(&place), &text::one_line(&reason));
    }
    if more > 0 {
        output::tell(Ink::Warn, "and", &format!("{more} more; --json names them all"));
    }
}

/// Shows at a terminal how far it has come.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        // It draws on standard error, and only when that is a terminal.
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self) -> impl FnMut(CopyProgress) + Send + 'static {
        let bar = self.0.clone();
        move |so_far| {
            bar.set_length(so_far.threads_total);
            bar.set_position(so_far.threads_done);
        }
    }
}
