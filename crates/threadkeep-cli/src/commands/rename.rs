//! `threadkeep rename`

use clap::Args;
use threadkeep::{Change, ThreadPatch};

use super::App;
use crate::errors::Outcome;
use crate::names;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep rename 019a2284 'Fix the login test'
  threadkeep rename 019a2284 -- '--strange title'
  threadkeep rename 019a2284 ''          no title; its first prompt serves";

/// Give a thread a title
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RenameArgs {
    /// The thread
    thread: String,
    /// The title; an empty one takes the title away
    title: String,
}

/// Renames.
pub(super) fn run(args: &RenameArgs, app: &mut App) -> Outcome {
    names::check_title(&args.title)?;
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let title = match args.title.trim() {
        "" => Change::Clear,
        _ => Change::Set(args.title.clone()),
    };
    let thread = store.update(&thread, ThreadPatch { title, ..ThreadPatch::default() })?;
    app.changed(&store, &thread, "Renamed")
}
