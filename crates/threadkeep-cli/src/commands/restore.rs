//! `threadkeep restore`

use clap::Args;

use super::App;
use crate::errors::Outcome;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep restore 019a2284";

/// Take a thread out of the trash, to where it was
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RestoreArgs {
    /// The thread
    thread: String,
}

/// Restores.
pub(super) fn run(args: &RestoreArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.restore(&store.find(&args.thread)?)?;
    app.changed(&store, &thread, "Restored")
}
