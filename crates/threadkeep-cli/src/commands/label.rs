//! `threadkeep label`

use clap::Args;
use serde_json::json;

use super::App;
use crate::errors::{Code, Outcome, Report};
use crate::{names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep label 019a2284 019a2290 try-2
  threadkeep label 019a2284 try-2                take the name away
  threadkeep show 019a2284 --branch try-2";

/// Name a branch of a thread, or take its name away
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LabelArgs {
    /// The thread that wrote the branch
    thread: String,
    /// The branch: its id, the beginning of it, or its present label
    branch: String,
    /// The name; without one the branch has none
    name: Option<String>,
}

/// Labels.
pub(super) fn run(args: &LabelArgs, app: &mut App) -> Outcome {
    if args.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        let report = Report::usage("the label is empty");
        return Err(report.hint("leave it out to take a branch's name away").into());
    }
    let store = app.write()?;
    let thread = store.find(&args.thread)?;
    let tree = store.tree(&thread)?;
    let branch = names::find_branch(&tree, &args.branch)?.id;
    store.label(&thread, branch, args.name.clone())?;
    if app.out.is_json() {
        app.out.document(&json!({"thread": thread, "branch": branch, "label": args.name}))?;
        return Ok(Code::Done);
    }
    match &args.name {
        Some(name) => app.out.line(format!("Branch {branch} is now called {}", text::one_line(name)))?,
        None => app.out.line(format!("Branch {branch} has no name any more"))?,
    }
    Ok(Code::Done)
}
