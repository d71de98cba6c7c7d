//! `threadkeep remap`

use std::path::Path;

use clap::Args;
use serde_json::json;

use super::App;
use crate::errors::{Code, Outcome, Report};
use crate::{human, json, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep remap ~/old/webshop ~/webshop     the project has moved
  threadkeep remap 019a2284-… webshop          merge one into another";

/// Move all threads of one project to another, such as when its folder has moved
///
/// The first project's keys move with its threads, so both folders lead to the second from then on.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RemapArgs {
    /// The project to give up: its id, its name, or its folder (which need not be there any more)
    from: String,
    /// The project to move to: its id, its name, or its folder (which becomes known)
    to: String,
}

/// Remaps.
pub(super) fn run(args: &RemapArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let from = names::find_workspace(&store, &args.from)?;
    let to = match names::find_workspace(&store, &args.to) {
        Err(_) if Path::new(&args.to).is_dir() => store.workspace(Path::new(&args.to))?.info().clone(),
        found => found?,
    };
    if from.id == to.id {
        let report = Report::new(Code::NotDone, "conflict", "both are the same workspace already");
        return Err(report.into());
    }
    let info = store.remap(from.id, to.id)?;
    if app.out.is_json() {
        app.out.document(&json!({"from": from.id, "workspace": json::workspace(&info)}))?;
        return Ok(Code::Done);
    }
    let moved = human::counted(from.threads, "thread", "threads");
    let (from, to) = (text::one_line(&from.name), text::one_line(&info.name));
    app.out.line(format!("Moved {moved} from {from} to {to}, which has {} now", human::count(info.threads)))?;
    Ok(Code::Done)
}
