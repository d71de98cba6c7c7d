//! `threadkeep man`

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use serde_json::json;
use threadkeep::Error;

use super::{App, Cli};
use crate::errors::{Code, Failure, Outcome, Report};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep man | man -l -
  threadkeep man --out ~/.local/share/man/man1     a page for every command
  man threadkeep-watch";

/// Print the manual page, or write one for every command
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ManArgs {
    /// Write the pages of all commands into this folder, which is made when it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes manual pages.
pub(super) fn run(args: &ManArgs, app: &mut App) -> Outcome {
    let Some(folder) = &args.out else {
        if app.out.is_json() {
            return Err(Report::usage("without --out DIR the output is the page itself, not a document").into());
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command()).render(&mut page)?;
        app.out.bytes(&page)?;
        return Ok(Code::Done);
    };
    let failed = |error: std::io::Error| -> Failure {
        let path = folder.display().to_string();
        Error::Io { operation: "write", path, kind: error.kind(), detail: error.to_string() }.into()
    };
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command(), folder).map_err(failed)?;
    let shown = folder.display().to_string();
    match app.out.is_json() {
        true => app.out.document(&json!({"folder": shown}))?,
        false => app.out.line(format!("Wrote the manual pages into {shown}"))?,
    }
    Ok(Code::Done)
}

/// Without the pages of `help`, which say what these say.
fn command() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}
