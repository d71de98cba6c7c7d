//! `threadkeep archive`

use clap::Args;

use super::App;
use crate::errors::Outcome;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep archive 019a2284
  threadkeep list --archived             what is archived";

/// Take a thread out of the default list
///
/// Its status stays, its forks stay whole, and it can still be read and exported.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ArchiveArgs {
    /// The thread
    thread: String,
}

/// Archives.
pub(super) fn run(args: &ArchiveArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.archive(&store.find(&args.thread)?)?;
    app.changed(&store, &thread, "Archived")
}
