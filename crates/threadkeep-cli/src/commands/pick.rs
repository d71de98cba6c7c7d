//! `threadkeep pick`

use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::App;
use crate::errors::{Code, Outcome};
use crate::picker::{self, Choice, Scope};
use crate::views::Views;
use crate::{json, names};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep show \"$(threadkeep pick)\"                       read the one that is picked
  threadkeep show \"$(threadkeep pick --print address)\" --around 5   the hit that is picked, and around it
  threadkeep pick --query deadlock -w .                      of this project, with something typed
  threadkeep pick --print json | jq -r .thread.id

Titles and beginnings are matched while you type, also with letters left out; behind that the items are searched, with all
that `threadkeep search` knows: \"phrases\", -words, role:user, after:2d.

KEYS:
  ↑ ↓ ctrl-p ctrl-n   move            tab shift-tab   the next hit, the one before
  page up, page down  by pages        enter           takes it
  ctrl-u ctrl-w       take words away esc ctrl-c      leave: nothing is printed, exit code 130
  ctrl-a ctrl-e       to the ends     ctrl-z          to the shell, and back with `fg`

JSON: {thread, hit}: the thread as `list` has it, and the hit as `search` has it or null.";

/// Pick a thread at the terminal, and print its id
///
/// The newest 10,000 threads are listed, and all are searched. It draws on the terminal itself, so that standard output
/// carries what was picked and nothing else.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PickArgs {
    /// Begin with this typed
    #[arg(
        short,
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    query: String,
    /// What is printed [default: id, and json with --json]
    #[arg(long, value_name = "WHAT")]
    print: Option<Print>,
    /// Only this project: its id, its name, or a folder in it (`.` is this one)
    #[arg(short, long, value_name = "DIR|ID")]
    workspace: Option<String>,
    /// All projects; this is the default
    #[arg(long, conflicts_with = "workspace")]
    all: bool,
    /// Search the threads in the trash too
    #[arg(long)]
    trashed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Print {
    /// The thread's id
    Id,
    /// The address of the hit that was shown; the thread's id where nothing was searched for
    Address,
    /// The thread and the hit, as `list` and `search` have them
    Json,
}

/// Picks.
pub(super) fn run(args: &PickArgs, app: &mut App) -> Outcome {
    let store = app.search()?;
    let threads = match &args.workspace {
        None => (*store).clone(),
        Some(name) => (*store.workspace_by_id(names::find_workspace(&store, name)?.id)?).clone(),
    };
    let scope = Scope { threads, trashed: args.trashed, views: Arc::new(Views::new()) };
    let Some(choice) = picker::pick(&scope, &args.query)? else { return Ok(Code::Left) };
    let Choice { thread, hit } = choice;
    let print = args.print.unwrap_or(if app.out.is_json() { Print::Json } else { Print::Id });
    match (print, hit) {
        (Print::Json, hit) => {
            let hit = hit.map_or(Value::Null, |(_, document)| document);
            app.out.document(&json!({"thread": json::thread(&scope.threads.get(&thread)?), "hit": hit}))?;
        }
        (Print::Address, Some((address, _))) => app.out.line(address)?,
        _ => app.out.line(&thread)?,
    }
    Ok(Code::Done)
}
