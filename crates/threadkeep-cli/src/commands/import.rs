//! `threadkeep import`

pub(super) mod homes;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use threadkeep::blocking::Store;
use threadkeep::{Error, StoreOptions, ThreadId};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer, Problem, Progress};

use super::App;
use crate::bundles::{self, Taken, TakingArgs, is_bundle};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::masking::MaskingArgs;
use crate::output::{Output, tell};
use crate::style::Ink;
use crate::{human, names, text};

/// How many problems are shown to people; programs get all of them.
const SHOWN_PROBLEMS: usize = 20;
const BAR: &str = "{spinner} {bytes:>10} of {total_bytes} {wide_bar} {eta:>4}  {msg}";

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep import --scan               every agent that is known and at home here
  threadkeep import --scan --dry-run     where that is, how much lies there, and what would come
  threadkeep import --scan --project ~/shop   also what agents keep inside of that project
  threadkeep import ~/.codex/sessions ~/.claude/projects
  threadkeep import session.jsonl --dry-run
  threadkeep import --scan --mask-secrets   without the keys and passwords in them
  threadkeep import --scan --agent codex --json | jq .problems
  threadkeep import threads.bundle --move /home/ann=/home/bob

JSON: the report, and with --scan homes: [{agent, path, read}], to which --dry-run adds {files, bytes, report}. `read` says
whether sessions of that agent can be read; what can't be read yet is only listed.

Exits with 8 when files could not be imported; the others are.";

/// Take in the session files of coding agents
///
/// Files are read and never changed. Importing again is cheap and safe: an unchanged file costs a look, of a grown one the
/// new part is read, and what was changed at its beginning becomes a branch. What can't be read is reported by line, and
/// its bytes are kept all the same.
///
/// A bundle that `export --bundle` made gives its threads as `copy` does: it is verified first, what is here already stays, and no
/// content is taken away.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ImportArgs {
    /// Files, and folders to look through
    #[arg(value_name = "PATH", required_unless_present = "scan")]
    paths: Vec<PathBuf>,
    /// Look where the known agents keep their sessions
    #[arg(long)]
    scan: bool,
    /// Look also where agents keep sessions inside of this project's folder; may be given several times
    #[arg(long = "project", value_name = "DIR", requires = "scan")]
    projects: Vec<PathBuf>,
    /// Only files of this agent, such as codex or claude-code
    #[arg(short, long)]
    agent: Option<String>,
    /// Read and report, but store nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    taking: TakingArgs,
    #[command(flatten)]
    masking: MaskingArgs,
}

/// Imports.
pub(super) fn run(args: &ImportArgs, app: &mut App) -> Outcome {
    app.masking = args.masking.rules()?;
    require_some(&args.paths)?;
    let homes = if args.scan { homes::find(&args.projects, args.agent.as_deref())? } else { Vec::new() };
    let (bundles, mut paths): (Vec<PathBuf>, Vec<PathBuf>) =
        args.paths.iter().cloned().partition(|path| is_bundle(path));
    check(args, &bundles)?;
    let store = open(args, app)?;
    // What was copied to be read is to be gone when somebody ends this.
    let stop = Some(super::watch::ends_by_signal()?);
    let options = ImportOptions { agent: args.agent.clone(), dry_run: args.dry_run, stop, ..ImportOptions::default() };
    if args.scan && args.dry_run && bundles.is_empty() {
        return homes::look(&store, &options, &paths, &homes, app);
    }
    paths.extend(homes.iter().filter(|home| home.is_read).map(|home| home.path.clone()));
    let bar = Bar::new();
    let report = Importer::new(&store, options).run(&paths, &mut |progress| bar.show(&progress));
    bar.0.finish_and_clear();
    let mut report = report?;
    let mut taken = Vec::new();
    for path in &bundles {
        match bundles::take(path, &args.taking, &store, args.dry_run) {
            Ok(one) => {
                add(&mut report, &one);
                taken.push(one);
            }
            // One that is named alone is answered for itself.
            Err(Failure::Report(failed)) if args.paths.len() > 1 || args.scan => {
                let (file, reason) = (path.display().to_string(), failed.message.clone());
                report.files.failed += 1;
                report.problems.push(Problem { file, line: 0, reason });
            }
            Err(failure) => return Err(failure),
        }
    }
    if app.out.is_json() {
        let mut document = serde_json::to_value(&report)?;
        if args.scan {
            homes::list(&mut document, &homes);
        }
        if let Some(fields) = document.as_object_mut().filter(|_| !taken.is_empty()) {
            fields.insert("bundles".to_owned(), taken.iter().map(Taken::document).collect());
        }
        app.out.document(&document)?;
    } else {
        write(&mut app.out, args, &report)?;
        write_bundles(&mut app.out, &taken)?;
        homes::write_unread(&mut app.out, &homes)?;
        write_next(&mut app.out, args, &store, &report)?;
    }
    let is_left = taken.iter().filter_map(|one| one.report.as_ref()).any(|report| !report.problems.is_empty());
    if report.stopped {
        tell(
            Ink::Warn,
            "note",
            "it was stopped before it came to the last file; import again, and it goes on from there",
        );
    }
    Ok(if report.files.failed > 0 || is_left || report.stopped { Code::Partial } else { Code::Done })
}

/// Refuses what means nothing for what is imported, before anything is.
fn check(args: &ImportArgs, bundles: &[PathBuf]) -> Result<(), Failure> {
    let report = match bundles.first() {
        None if args.taking.is_given() => "--move, --identity and --passphrase-file are for bundles, and none is named",
        Some(_) if args.masking.rules()?.is_some() => {
            "what a bundle holds is masked when it is made, and not when it is taken in"
        }
        Some(_) if args.agent.is_some() => "--agent chooses among files of agents, and a bundle is none",
        _ => return Ok(()),
    };
    Err(Report::usage(report).into())
}

/// Counts what was taken of a bundle as if it were a file whose records are its items.
fn add(report: &mut ImportReport, taken: &Taken) {
    let problems = taken.report.as_ref().map_or(&[][..], |report| &report.problems);
    let file = taken.file.display().to_string();
    report.problems.extend(problems.iter().map(|problem| {
        let reason = format!("thread {}: {}", problem.thread, problem.reason);
        Problem { file: file.clone(), line: 0, reason }
    }));
    let threads = taken.bundle.manifest().threads.len() as u64;
    let (new, updated, imported) = match &taken.report {
        Some(report) => (report.new, report.updated, report.items.min(taken.items())),
        None => (taken.new, 0, 0),
    };
    let skipped: u64 = {
        let is_left = |id: &ThreadId| problems.iter().any(|problem| problem.thread == *id);
        taken.bundle.manifest().threads.iter().filter(|thread| is_left(&thread.id)).map(|thread| thread.items).sum()
    };
    report.files.read += 1;
    report.threads.new += new;
    report.threads.updated += updated;
    report.threads.unchanged += threads.saturating_sub(new + updated + problems.len() as u64);
    report.items.read += taken.items();
    report.items.imported += imported;
    report.items.skipped += skipped;
    report.items.unchanged += taken.items().saturating_sub(imported + skipped);
}

fn write_bundles(out: &mut Output, taken: &[Taken]) -> Result<(), Failure> {
    for one in taken {
        let manifest = one.bundle.manifest();
        let made = human::date(manifest.created_at);
        let masked = if manifest.masked { ", secrets masked" } else { "" };
        let sealed = match one.bundle.sealed_by() {
            [] => String::new(),
            keys => format!(", sealed by {}", keys.join(", ")),
        };
        out.line(format!(
            "  bundle   {}: made {made}{masked}{sealed}",
            text::one_line(&one.file.display().to_string())
        ))?;
    }
    Ok(())
}

/// Refuses paths of which none is there: a store is not made for what is surely a slip of the pen.
pub(super) fn require_some(paths: &[PathBuf]) -> Result<(), Failure> {
    match paths {
        [first, ..] if paths.iter().all(|path| !path.exists()) => {
            let id = first.display().to_string();
            Err(Error::NotFound { what: "file or folder", id }.into())
        }
        _ => Ok(()),
    }
}

fn open(args: &ImportArgs, app: &App) -> Result<Store, Failure> {
    if !args.dry_run {
        return app.create();
    }
    // Reading a file to see what is in it makes no store.
    if app.place()?.exists()? {
        return app.read();
    }
    let options = StoreOptions::memory();
    Ok(Store::open(match app.masking.clone() {
        Some(rules) => options.mask_at_write(rules),
        None => options,
    })?)
}

/// Shows at a terminal how far the import has come.
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

    fn show(&self, progress: &Progress<'_>) {
        self.0.set_length(progress.bytes_total);
        self.0.set_position(progress.bytes_done);
        let name = progress.file.file_name().unwrap_or_default().to_string_lossy();
        let name = text::one_line(&name);
        let files = format!("{}/{} files", progress.files_done, progress.files_total);
        self.0.set_message(format!("{files}  {}", text::cut(&name, 30)));
    }
}

fn write(out: &mut Output, args: &ImportArgs, report: &ImportReport) -> Result<(), Failure> {
    let (files, threads, items) = (&report.files, &report.threads, &report.items);
    let total = files.read + files.unchanged + files.failed;
    if total == 0 {
        out.line(if args.scan { "No agent's sessions were found." } else { "No sessions were found there." })?;
        return write_problems(out, &report.problems);
    }
    let would = if args.dry_run { "Would import" } else { "Imported" };
    let records = human::counted(items.imported, "record", "records");
    let touched = human::counted(threads.new + threads.updated, "thread", "threads");
    let head = format!("{would} {records} into {touched}");
    out.line(out.paint(Ink::Strong, &head))?;
    let number = |number: u64| human::count(number);
    out.line(format!(
        "  files    {} read, {} unchanged, {} failed",
        number(files.read),
        number(files.unchanged),
        number(files.failed)
    ))?;
    out.line(format!(
        "  threads  {} new, {} updated, {} unchanged",
        number(threads.new),
        number(threads.updated),
        number(threads.unchanged)
    ))?;
    out.line(format!(
        "  records  {} read = {} imported + {} unchanged + {} skipped",
        number(items.read),
        number(items.imported),
        number(items.unchanged),
        number(items.skipped)
    ))?;
    let beside = &report.companions;
    if beside.imported + beside.left > 0 {
        // Goals, checkpoints, documents, messages, roadmaps, jobs …
        let left =
            if beside.left > 0 { format!(", {} left as they are here", number(beside.left)) } else { String::new() };
        let (new, unchanged) = (number(beside.imported), number(beside.unchanged));
        out.line(format!("  beside   {new} imported, {unchanged} unchanged{left}"))?;
    }
    if items.masked > 0 {
        let parts = human::counted(items.masked, "part", "parts");
        out.line(out.paint(Ink::Warn, &format!("  secrets  masked in {parts} of the files, which hold them still")))?;
    }
    write_problems(out, &report.problems)
}

/// Writes the first problems, those of one kind together.
fn write_problems(out: &mut Output, problems: &[Problem]) -> Result<(), Failure> {
    if problems.is_empty() {
        return Ok(());
    }
    let mut by_reason: BTreeMap<&str, Vec<&Problem>> = BTreeMap::new();
    for problem in problems.iter().take(SHOWN_PROBLEMS) {
        by_reason.entry(&problem.reason).or_default().push(problem);
    }
    let head = human::counted(problems.len() as i128, "problem", "problems");
    out.line(format!("\n{}", out.paint(Ink::Warn, &head)))?;
    for (reason, problems) in by_reason {
        out.line(format!("  {}", text::cut(&text::one_line(reason), 200)))?;
        for problem in problems {
            let line = if problem.line > 0 { format!(":{}", problem.line) } else { String::new() };
            let place = format!("{}{line}", text::one_line(&problem.file));
            out.line(format!("    {}", out.paint(Ink::Dim, &place)))?;
        }
    }
    if problems.len() > SHOWN_PROBLEMS {
        let more = problems.len() - SHOWN_PROBLEMS;
        out.line(format!("  … and {}; --json lists all of them", human::count(more as i128)))?;
    }
    Ok(())
}

fn write_next(out: &mut Output, args: &ImportArgs, store: &Store, report: &ImportReport) -> Result<(), Failure> {
    let threads = report.threads.new + report.threads.updated + report.threads.unchanged;
    if args.dry_run || threads == 0 {
        return Ok(());
    }
    let mut next = vec![("threadkeep list".to_owned(), "what there is")];
    if let Some(latest) = store.latest()? {
        let id = names::short_id(store, &latest);
        next.push((format!("threadkeep show {id}"), "read the newest thread"));
        next.push((format!("threadkeep tree {id}"), "see its branches"));
    }
    out.line("\nNext:")?;
    for (command, words) in next {
        out.line(format!("  {command:<34} {}", out.paint(Ink::Dim, words)))?;
    }
    Ok(())
}
