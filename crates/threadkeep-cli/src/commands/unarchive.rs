//! `threadkeep unarchive`

use clap::Args;

use super::App;
use crate::errors::Outcome;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep unarchive 019a2284";

/// Put an archived thread back into the default list
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct UnarchiveArgs {
    /// The thread
    thread: String,
}

/// Unarchives.
pub(super) fn run(args: &UnarchiveArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.unarchive(&store.find(&args.thread)?)?;
    app.changed(&store, &thread, "Back in the list")
}
