//! `threadkeep fork`

use clap::Args;
use serde_json::json;
use threadkeep::{Details, NewThread, ThreadId};

use super::App;
use crate::errors::{Code, Outcome, Report};
use crate::json;
use crate::names::{self, Target};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep fork 019a2284               at its head
  threadkeep fork 019a2284@12 --title 'With a real clock'
  threadkeep fork 019a2284 --branch try-2
  threadkeep fork - --json | jq -r .thread";

/// Begin a new thread at an item of another one
///
/// Everything up to that item is shared, not copied. The fork stays whole when its parent is archived, deleted or purged.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ForkArgs {
    /// The thread, and the depth to fork at; its head by default
    #[arg(value_name = "THREAD[@DEPTH]")]
    thread: String,
    /// Fork on this branch: its label, its id or the beginning of it
    #[arg(short, long)]
    branch: Option<String>,
    /// The new thread's title
    #[arg(short, long)]
    title: Option<String>,
    /// The new thread's id; minted by default
    #[arg(long)]
    id: Option<String>,
}

/// Forks.
pub(super) fn run(args: &ForkArgs, app: &mut App) -> Outcome {
    let id = args.id.as_deref().map(ThreadId::new).transpose()?;
    args.title.as_deref().map(names::check_title).transpose()?;
    let store = app.write()?;
    let target = Target::find(&store, &args.thread)?;
    let at = target.address(&store, args.branch.as_deref())?;
    let details = Details { title: args.title.clone(), ..Details::default() };
    let fork = store.fork(&target.thread, at, NewThread { id, details, ..NewThread::default() })?;
    let Some(point) = fork.fork_point else {
        return Err(Report::new(Code::NotDone, "backend", "the fork has no fork point").into());
    };
    if app.out.is_json() {
        let from = json::place(&target.thread, point);
        app.out.document(&json!({"thread": fork.id, "from": from}))?;
        return Ok(Code::Done);
    }
    let parent = names::short_id(&store, &target.thread);
    app.out.line(format!("Forked {parent}@{} as {}", point.depth, fork.id))?;
    Ok(Code::Done)
}
