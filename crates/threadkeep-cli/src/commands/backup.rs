//! `threadkeep backup`

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::App;
use crate::errors::{Code, Outcome};
use crate::style::Ink;
use crate::{human, text};

const BAR: &str = "{spinner} {pos:>10} of {len} pages {wide_bar} {eta:>4}  {msg}";

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep backup ~/backups/monday.db          one file, complete and verified
  threadkeep backup /mnt/disk/threadkeep/        a folder that is made, and is a store
  threadkeep backup monday.db --json | jq .items

An existing file is never replaced.";

/// Copy the whole store into one file, while it is in use, and verify the copy
///
/// The copy is the store at one moment. Every program that writes the store goes on meanwhile. The file appears under its name
/// when it is complete, verified and on the disk.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BackupArgs {
    /// The file to make, or the folder to make `threadkeep.db` in
    #[arg(value_name = "FILE|DIR")]
    to: PathBuf,
}

/// Makes a backup.
pub(super) fn run(args: &BackupArgs, app: &mut App) -> Outcome {
    app.place()?.require_folder("backup")?;
    let store = app.read()?;
    // It draws on standard error, and only when that is a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let made = store.backup_with(&args.to, move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
        if done == total {
            shown.set_message("verifying");
        }
    });
    bar.finish_and_clear();
    let made = made?;
    if app.out.is_json() {
        app.out.document(&json!({
            "file": made.file.display().to_string(),
            "bytes": made.bytes,
            "threads": made.threads,
            "items": made.items,
            "verified": true,
        }))?;
        return Ok(Code::Done);
    }
    let threads = human::counted(made.threads, "thread", "threads");
    let items = human::counted(made.items, "item", "items");
    let mark = app.out.paint(Ink::Good, "✓");
    let file = text::one_line(&made.file.to_string_lossy());
    app.out.line(format!("{mark} {threads}, {items}: copied and verified"))?;
    app.out.line(app.out.paint(Ink::Dim, &file))?;
    Ok(Code::Done)
}
