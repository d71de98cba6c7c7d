//! `threadkeep workspaces`

use clap::Args;
use threadkeep::WorkspaceInfo;

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep workspaces
  threadkeep list --workspace webshop
  threadkeep remap ~/old/webshop ~/webshop     when a project has moved";

/// List the projects that threads belong to, oldest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WorkspacesArgs {
    /// At most this many
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Go on where an earlier page ended
    #[arg(long)]
    cursor: Option<String>,
}

/// Lists.
pub(super) fn run(args: &WorkspacesArgs, app: &mut App) -> Outcome {
    let known = app.read()?.workspaces()?;
    let (page, next) = page(&known, args)?;
    if app.out.is_json() {
        let mut listing = app.out.listing(&[], "workspaces")?;
        page.iter().try_for_each(|info| listing.push(&json::workspace(info)))?;
        listing.finish(next.as_deref())?;
        return Ok(Code::Done);
    }
    let columns = [
        ("id", Align::Left),
        ("name", Align::Left),
        ("threads", Align::Right),
        ("since", Align::Left),
        ("known by", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for info in page {
        // The machine's id between kind and path says nothing to a person.
        let plain = |(kind, key): &(String, String)| match kind.as_str() {
            "origin" => key.strip_prefix("origin:").unwrap_or(key).to_owned(),
            _ => key.splitn(3, ':').last().unwrap_or(key).to_owned(),
        };
        table.row(vec![
            cell(Ink::Dim, info.id.to_string()),
            cell(Ink::Plain, &info.name),
            cell(Ink::Plain, human::count(info.threads)),
            cell(Ink::Dim, human::ago(info.created_at, now)),
            cell(Ink::Plain, info.keys.iter().map(plain).collect::<Vec<_>>().join(", ")),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = next {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

/// The part that is asked for; the cursor is the id of the last one that was given.
fn page<'a>(
    known: &'a [WorkspaceInfo],
    args: &WorkspacesArgs,
) -> Result<(&'a [WorkspaceInfo], Option<String>), Failure> {
    let start = match &args.cursor {
        None => 0,
        Some(cursor) => {
            let at = known.iter().position(|info| info.id.to_string() == *cursor);
            let reason = "it is not one that this list gave".to_owned();
            at.ok_or(threadkeep::Error::Invalid { field: "cursor", reason })? + 1
        }
    };
    let rest = known.get(start..).unwrap_or_default();
    let page = rest.get(..args.limit.unwrap_or(rest.len()).min(rest.len())).unwrap_or_default();
    let next = page.last().filter(|_| page.len() < rest.len()).map(|last| last.id.to_string());
    Ok((page, next))
}
