//! `threadkeep restore-backup`

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use threadkeep::RestoreReport;
use threadkeep::blocking::Store;

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::place::Place;
use crate::style::Ink;
use crate::{human, output, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep restore-backup monday.db            asks before it replaces a store
  threadkeep restore-backup monday.db --yes
  threadkeep --store /tmp/look restore-backup monday.db   beside the store that is in use

A store that is replaced is kept in its folder, under `backups`.";

/// Put a backup in the store's place
///
/// The backup is verified before anything is touched, and stays as it is. No program may have the store open. Whoever was
/// writing a thread when the backup was made does not hold it any more.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RestoreBackupArgs {
    /// The file that `backup` made, or the folder that it is in
    #[arg(value_name = "FILE|DIR")]
    from: PathBuf,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Restores.
pub(super) fn run(args: &RestoreBackupArgs, app: &mut App) -> Outcome {
    let place = app.place()?;
    place.require_folder("restore_backup")?;
    if place.exists()? && !args.yes && !is_confirmed(&place)? {
        output::tell(Ink::Warn, "note", "nothing was replaced");
        return Ok(Code::NotDone);
    }
    let spinner = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.set_message("copying and verifying");
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    let restored = Store::restore_backup(place.options(), &args.from);
    spinner.finish_and_clear();
    let restored = restored?;
    if app.out.is_json() {
        app.out.document(&json!({
            "file": restored.file.display().to_string(),
            "bytes": restored.bytes,
            "threads": restored.threads,
            "items": restored.items,
            "ended_claims": restored.ended_claims,
            "replaced": restored.replaced.as_ref().map(|folder| folder.display().to_string()),
            "verified": true,
        }))?;
    } else {
        write(app, &restored)?;
    }
    Ok(Code::Done)
}

fn write(app: &mut App, restored: &RestoreReport) -> Result<(), Failure> {
    let threads = human::counted(restored.threads, "thread", "threads");
    let items = human::counted(restored.items, "item", "items");
    let mark = app.out.paint(Ink::Good, "✓");
    app.out.line(format!("{mark} {threads}, {items}: verified and restored"))?;
    if let Some(folder) = &restored.replaced {
        let folder = text::one_line(&folder.to_string_lossy());
        app.out.line(format!("The store that was there is kept in {folder}"))?;
    }
    Ok(())
}

fn is_confirmed(place: &Place) -> Result<bool, Failure> {
    let question = format!("Replace the store in {}? It is kept in its folder.", text::one_line(&place.shown()));
    output::confirm(&question, "restoring replaces the store, and nobody is here to ask")
}
