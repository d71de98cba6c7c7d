//! `threadkeep claims`

use clap::Args;
use threadkeep::ClaimInfo;

use super::App;
use crate::errors::{Code, Outcome};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, names, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep claims
  threadkeep take-over 019a2284 --ask --wait 60      ask the holder to finish its turn
  threadkeep take-over 019a2284 --reason 'it hangs'";

/// Say which threads are being written, by whom and since when
///
/// A holder that is dead keeps nobody out: the next that resumes the thread replaces it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ClaimsArgs {}

/// Lists.
pub(super) fn run(_: &ClaimsArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let claims = store.claims()?;
    if app.out.is_json() {
        app.out.document(&serde_json::json!({"claims": claims.iter().map(json).collect::<Vec<_>>()}))?;
        return Ok(Code::Done);
    }
    if claims.is_empty() {
        app.out.line("No thread is being written.")?;
        return Ok(Code::Done);
    }
    let columns = [
        ("thread", Align::Left),
        ("name", Align::Flexible),
        ("holder", Align::Left),
        ("process", Align::Right),
        ("machine", Align::Left),
        ("since", Align::Left),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for claim in &claims {
        let state = match (&claim.wanted, claim.live) {
            (_, false) => "dead".to_owned(),
            (Some(wanted), true) => format!("wanted by {}", text::one_line(&wanted.by)),
            (None, true) => String::new(),
        };
        table.row(vec![
            cell(Ink::Dim, names::short_id(&store, &claim.thread)),
            cell(Ink::Plain, text::cut(&text::one_line(&claim.name), 60)),
            cell(Ink::Plain, text::one_line(&claim.holder.label)),
            cell(Ink::Plain, claim.holder.pid.to_string()),
            cell(Ink::Plain, text::one_line(&claim.holder.hostname)),
            cell(Ink::Dim, human::ago(claim.holder.acquired_at, now)),
            cell(Ink::Warn, state),
        ]);
    }
    table.write(&mut app.out)?;
    Ok(Code::Done)
}

fn json(claim: &ClaimInfo) -> serde_json::Value {
    serde_json::json!({
        "thread": claim.thread,
        "name": claim.name,
        "epoch": claim.epoch,
        "live": claim.live,
        "holder": crate::json::holder(&claim.holder),
        "wanted": claim.wanted.as_ref().map(|wanted| serde_json::json!({"by": wanted.by, "at": wanted.at.to_string()})),
    })
}
