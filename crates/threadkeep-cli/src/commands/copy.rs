//! `threadkeep copy`

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use threadkeep::{CopyProgress, CopyReport};

use super::{App, notice};
use crate::errors::{Code, Failure, Outcome};
use crate::output::{self, Output};
use crate::place::Place;
use crate::style::Ink;
use crate::{human, text};

/// How many threads that were left are shown to people; programs get all of them.
const SHOWN_PROBLEMS: usize = 20;
const BAR: &str = "{spinner} {pos:>10} of {len} items {wide_bar} {eta:>4}  {msg}";

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep copy --to /mnt/disk/threadkeep            everything, into a store that is made
  threadkeep copy --to postgres://ann@host/work        to the server that the team shares
  threadkeep copy --from /mnt/laptop --to ~/all        gather the stores of several machines in one
  threadkeep copy --to /mnt/disk/threadkeep --json | jq .problems

Copy again whenever you like: only what is new is carried, and a copy that was cut off is completed.
Exits with 8 when threads were left as they are; the others are copied.";

/// Copy every thread of one store into another: items, branches, turns, metadata and imported files
///
/// Ids, hashes and bytes are the same on both sides, so both verify alike. What the other store has of its own stays: a thread
/// that went on there, or is being written there, is left and named. Claims are not copied, and both stores may be in use.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CopyArgs {
    /// The store to read, as in --store [default: the store that every other command uses]
    #[arg(long, value_name = "DIR|URL")]
    from: Option<PathBuf>,
    /// The store to write, as in --store; it is made when there is none
    #[arg(long, value_name = "DIR|URL")]
    to: PathBuf,
}

/// Copies.
pub(super) fn run(args: &CopyArgs, app: &mut App) -> Outcome {
    let from = match &args.from {
        Some(folder) => Place::find(Some(folder), None)?.read()?,
        None => app.read()?,
    };
    let to = Place::find(Some(&args.to), None)?.create().inspect(notice)?;
    // It draws on standard error, and only when that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let report = to.copy_from(&from, &mut |so_far: CopyProgress| {
        shown.set_length(so_far.items_total);
        shown.set_position(so_far.items_done);
        shown.set_message(format!("{}/{} threads", so_far.threads_done, so_far.threads_total));
    });
    bar.finish_and_clear();
    let report = report?;
    if app.out.is_json() {
        app.out.document(&json!({
            "threads": {
                "read": report.threads,
                "new": report.new,
                "updated": report.updated,
                "unchanged": report.unchanged,
                "left": report.problems.len(),
                "equal": report.equal,
            },
            "items": report.items,
            "roadmaps": report.roadmaps,
            "runs": {"carried": report.runs, "left": report.runs_left},
            "open": report.open,
            "problems": report.problems,
        }))?;
    } else {
        write(&mut app.out, &report)?;
    }
    Ok(if report.problems.is_empty() { Code::Done } else { Code::Partial })
}

fn write(out: &mut Output, report: &CopyReport) -> Result<(), Failure> {
    let items = human::counted(report.items, "item", "items");
    let touched = human::counted(report.new + report.updated, "thread", "threads");
    out.line(out.paint(Ink::Strong, &format!("Copied {items} of {touched}")))?;
    let number = |number: u64| human::count(number);
    out.line(format!(
        "  threads  {} new, {} updated, {} unchanged, {} left",
        number(report.new),
        number(report.updated),
        number(report.unchanged),
        human::count(report.problems.len() as u64)
    ))?;
    if report.roadmaps > 0 {
        out.line(format!("  roadmaps {} carried", number(report.roadmaps)))?;
    }
    if report.runs + report.runs_left > 0 {
        let (carried, left) = (number(report.runs), number(report.runs_left));
        out.line(format!("  runs     {carried} of no thread carried, {left} left"))?;
    }
    let mark = if report.equal == report.threads { Ink::Good } else { Ink::Warn };
    let equal = format!("{} of {}", number(report.equal), number(report.threads));
    out.line(format!("  parity   {} end with the same hashes on both sides", out.paint(mark, &equal)))?;
    if report.open > 0 {
        let open = human::counted(report.open, "message or request", "messages and requests");
        out.line(format!("  open     {open} can still be acted on, and stay in the store that was read"))?;
    }
    for problem in report.problems.iter().take(SHOWN_PROBLEMS) {
        output::tell(Ink::Warn, problem.thread.as_str(), &text::one_line(&problem.reason));
    }
    if let Some(more) = report.problems.len().checked_sub(SHOWN_PROBLEMS).filter(|more| *more > 0) {
        output::tell(Ink::Warn, "and", &format!("{more} more; --json names them all"));
    }
    Ok(())
}
