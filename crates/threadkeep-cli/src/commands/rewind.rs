//! `threadkeep rewind`

use clap::Args;
use serde_json::json;

use super::App;
use crate::errors::{Code, Outcome, Report};
use crate::names::{self, Target};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep rewind 019a2284@12
  threadkeep rewind 019a2284 --branch try-2      to the end of that branch
  threadkeep rewind 019a2284@12 --branch try-2";

/// Move a thread's head to another of its items
///
/// Nothing is lost: what came after the item stays on its branch, and the next append begins a new one. Needs the right to
/// write the thread, so no other program may be writing it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RewindArgs {
    /// The thread and the depth to go to
    #[arg(value_name = "THREAD@DEPTH")]
    thread: String,
    /// The branch to go to: its label, its id or the beginning of it
    #[arg(short, long)]
    branch: Option<String>,
}

/// Rewinds.
pub(super) fn run(args: &RewindArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let target = Target::find(&store, &args.thread)?;
    let Some(to) = target.address(&store, args.branch.as_deref())? else {
        let report = Report::usage("no depth is given to rewind to");
        return Err(report.hint("write THREAD@DEPTH, or name a --branch").into());
    };
    super::under_claim(&store, &target.thread, |live| Ok(live.rewind(to)?))?;
    if app.out.is_json() {
        app.out.document(&json!({"thread": target.thread, "head": to}))?;
        return Ok(Code::Done);
    }
    let id = names::short_id(&store, &target.thread);
    app.out.line(format!("{id} now stands at @{}; the next append goes on from there", to.depth))?;
    Ok(Code::Done)
}
