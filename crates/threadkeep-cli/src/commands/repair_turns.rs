//! `threadkeep repair-turns`

use clap::Args;
use serde_json::{Value, json};
use threadkeep::{ClosedCall, TurnRepair};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::{human, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep repair-turns 019a2284 --dry-run     what was left in the middle; needs no right to write
  threadkeep repair-turns 019a2284
  threadkeep repair-turns - --json | jq '.closed[].tool'
  threadkeep search has:synthetic                what repairs have put in";

/// Close what a program left in the middle when it died: calls of tools without a result, and its open turn
///
/// Each such call on the active path gets a synthetic result where the real one would stand, on a branch of its own; what follows is
/// written again behind it, and the former branch stays as it was. The result says in its words that it is synthetic, and is marked as
/// such in the JSON of `show`. The turn is marked as interrupted. Running it again changes nothing. Nothing else repairs turns:
/// reading and going on leave a thread as it is.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RepairTurnsArgs {
    /// The thread
    thread: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Repairs.
pub(super) fn run(args: &RepairTurnsArgs, app: &mut App) -> Outcome {
    let (repair, id) = if args.dry_run {
        let store = app.read()?;
        let thread = store.find(&args.thread)?;
        (store.plan_turn_repair(&thread)?, names::short_id(&store, &thread))
    } else {
        let store = app.write()?;
        let thread = store.find(&args.thread)?;
        let repair = super::under_claim(&store, &thread, |live| Ok(live.repair_turns()?))?;
        (repair, names::short_id(&store, &thread))
    };
    if app.out.is_json() {
        app.out.document(&document(&repair, args.dry_run))?;
    } else {
        write(app, &repair, &id, args.dry_run)?;
    }
    Ok(Code::Done)
}

fn document(repair: &TurnRepair, is_dry: bool) -> Value {
    let mut document = json!(repair);
    if let Value::Object(fields) = &mut document {
        fields.insert("needed".to_owned(), repair.is_needed().into());
        fields.insert("dry_run".to_owned(), is_dry.into());
    }
    document
}

fn write(app: &mut App, repair: &TurnRepair, id: &str, is_dry: bool) -> Result<(), Failure> {
    let out = &mut app.out;
    for line in repair.closed.iter().map(|call| line_of(call, is_dry)) {
        out.line(line)?;
    }
    if let Some(turn) = repair.interrupted {
        let words = if is_dry { "would be marked" } else { "is marked" };
        out.line(format!("turn {turn} was left open and {words} as interrupted"))?;
    }
    if repair.rewritten > 0 {
        let items = human::counted(repair.rewritten, "item", "items");
        let words = if is_dry { "would be written" } else { "written" };
        out.line(format!("{items} {words} again behind the results; the former branch stays"))?;
    }
    for (count, one, many) in [
        (
            repair.running,
            "call is its living holder's and was left alone",
            "calls are their living holder's and were left alone",
        ),
        (repair.without_id, "call has no id and was left alone", "calls have no id and were left alone"),
        (
            repair.without_call,
            "result answers no call and was left alone",
            "results answer no call and were left alone",
        ),
    ] {
        if count > 0 {
            out.line(out.paint(Ink::Dim, &human::counted(count, one, many)))?;
        }
    }
    let end = match (repair.is_needed(), is_dry) {
        (false, _) => format!("Nothing of {id} needs to be repaired"),
        (true, true) => format!("{id} is left as it is; without --dry-run this is done"),
        (true, false) => format!("Repaired {id}"),
    };
    out.line(end)
}

fn line_of(call: &ClosedCall, is_dry: bool) -> String {
    let tool = if call.tool.is_empty() { "a tool" } else { &call.tool };
    let (tool, call_id) = (text::one_line(tool), text::one_line(&call.call_id));
    let at = call.call.depth;
    match call.result {
        Some(result) => format!("@{at}  {tool} ({call_id}) had no result; a synthetic one stands at @{}", result.depth),
        None if is_dry => format!("@{at}  {tool} ({call_id}) has no result and would get a synthetic one"),
        None => format!("@{at}  {tool} ({call_id}) has no result"),
    }
}
