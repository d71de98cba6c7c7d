//! `threadkeep purge`

use clap::Args;
use serde_json::json;
use threadkeep::{Shelf, Thread};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::{human, output, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep delete 019a2284             first into the trash
  threadkeep purge 019a2284              asks before it removes anything
  threadkeep purge 019a2284 --yes";

/// Remove a thread in the trash for good
///
/// What its forks share stays with them. There is no way back.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PurgeArgs {
    /// The thread
    thread: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Purges.
pub(super) fn run(args: &PurgeArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let thread = store.get(&store.find(&args.thread)?)?;
    if thread.shelf == Shelf::Trashed && !args.yes && !is_confirmed(&thread)? {
        output::tell(Ink::Warn, "note", "nothing was removed");
        return Ok(Code::NotDone);
    }
    let purged = store.purge(&thread.id)?;
    if app.out.is_json() {
        let (items, shared, stub) = (purged.items, purged.shared, purged.stub);
        app.out.document(&json!({"thread": thread.id, "items": items, "shared": shared, "stub": stub}))?;
        return Ok(Code::Done);
    }
    app.out.line(format!("Removed {}", human::counted(purged.items, "item", "items")))?;
    if purged.shared > 0 {
        let shared = human::counted(purged.shared, "item stays", "items stay");
        app.out.line(format!("{shared}: other threads share them"))?;
    }
    Ok(Code::Done)
}

fn is_confirmed(thread: &Thread) -> Result<bool, Failure> {
    let name = text::one_line(thread.name());
    let items = human::counted(thread.items, "item", "items");
    let question = format!("Remove “{}” ({items}) for good?", text::cut(&name, 60));
    output::confirm(&question, "purging removes a thread for good, and nobody is here to ask")
}
