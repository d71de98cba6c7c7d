//! `threadkeep end`

use clap::{Args, ValueEnum};
use threadkeep::Status;

use super::App;
use crate::errors::Outcome;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep end 019a2284 --reason 'merged in #123'
  threadkeep end 019a2284 --status failed --reason 'the API is gone'";

/// Mark a thread as ended, with a reason
///
/// It stays in the list and can be read, but `-` no longer means it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct EndArgs {
    /// The thread
    thread: String,
    /// Why it ends
    #[arg(long, value_name = "WORDS")]
    reason: String,
    /// How it ended
    #[arg(long, value_enum, default_value_t = Ending::Completed)]
    status: Ending,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ending {
    Completed,
    Failed,
}

/// Ends.
pub(super) fn run(args: &EndArgs, app: &mut App) -> Outcome {
    let status = match args.status {
        Ending::Completed => Status::Completed,
        Ending::Failed => Status::Failed,
    };
    let store = app.write()?;
    let thread = store.end(&store.find(&args.thread)?, status, &args.reason)?;
    app.changed(&store, &thread, "Ended")
}
