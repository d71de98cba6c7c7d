//! `threadkeep delete`

use clap::Args;

use super::App;
use crate::errors::Outcome;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep delete 019a2284
  threadkeep list --trash                what is in the trash
  threadkeep restore 019a2284            take it out again";

/// Put a thread into the trash
///
/// It can be restored until it is purged. A thread that is being written is refused.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DeleteArgs {
    /// The thread
    thread: String,
}

/// Deletes.
pub(super) fn run(args: &DeleteArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.delete(&store.find(&args.thread)?)?;
    app.changed(&store, &thread, "In the trash")
}
