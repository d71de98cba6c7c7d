//! `threadkeep pin`

use clap::Args;
use threadkeep::ThreadPatch;

use super::App;
use crate::errors::Outcome;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep pin 019a2284
  threadkeep pin 019a2284 --off";

/// Mark a thread as one to keep at hand
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PinArgs {
    /// The thread
    thread: String,
    /// Take the mark away
    #[arg(long)]
    off: bool,
}

/// Pins.
pub(super) fn run(args: &PinArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let patch = ThreadPatch { pinned: Some(!args.off), ..ThreadPatch::default() };
    let thread = store.update(&thread, patch)?;
    app.changed(&store, &thread, if args.off { "No longer pinned" } else { "Pinned" })
}
