//! `threadkeep compact`

use clap::Args;
use serde_json::json;

use super::App;
use crate::errors::{Code, Outcome};
use crate::style::Ink;
use crate::{human, output};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep compact
  threadkeep compact --json | jq .bytes_after
  threadkeep purge 019a2284 --yes && threadkeep compact";

/// Give the room of what was purged back to the disk
///
/// What is stored is written anew without gaps, and nothing of it changes. Needs room for a second copy of the store while it
/// works; programs that write the store wait for it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompactArgs {}

/// Compacts.
pub(super) fn run(_args: &CompactArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let done = store.compact()?;
    if app.out.is_json() {
        let freed = done.bytes_before - done.bytes_after;
        app.out.document(&json!({
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
            "bytes_freed": freed,
            "remains": done.remains,
        }))?;
        return Ok(Code::Done);
    }
    let (before, after) = (human::bytes(done.bytes_before), human::bytes(done.bytes_after));
    let mark = app.out.paint(Ink::Good, "✓");
    app.out.line(format!("{mark} The store takes {after}; it took {before}"))?;
    for left in &done.remains {
        output::tell(Ink::Warn, "note", left);
    }
    Ok(Code::Done)
}
