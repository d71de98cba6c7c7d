//! `threadkeep checkpoint`

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use threadkeep::{Address, Checkpoint, CheckpointInfo, CheckpointQuery, Error, NewCheckpoint};

use super::App;
use crate::errors::{Code, Failure, Outcome, Report};
use crate::names::{self, Target};
use crate::style::Ink;
use crate::table::{Align, Table, cell};
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  echo '{\"step\":2}' | threadkeep checkpoint save 019a2284 before-the-edit
  threadkeep checkpoint save 019a2284@12 earlier --state state.json
  threadkeep checkpoint list 019a2284
  threadkeep checkpoint show 019a2284                      the one that was saved last
  threadkeep checkpoint diff 019a2284 earlier before-the-edit
  threadkeep checkpoint restore 019a2284 before-the-edit   rewind the thread to where it was saved

Saving and restoring need the right to write the thread, so no other program may be writing it.";

/// Save an agent's state under a name, and go back to it
///
/// A state is any JSON; it comes back byte by byte, and equal states of a thread are stored once. A checkpoint is tied to the
/// item that the thread stood at: restoring it moves the head there, and what came after stays on its branch.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckpointArgs {
    #[command(subcommand)]
    what: CheckpointCommand,
}

#[derive(Debug, Subcommand)]
enum CheckpointCommand {
    /// Save a state; a checkpoint of the same name is replaced
    Save {
        /// The thread; with a depth the checkpoint is tied to that item and not to the head
        #[arg(value_name = "THREAD[@DEPTH]")]
        thread: String,
        /// The name
        name: String,
        /// The file that the state is read from [default: standard input]
        #[arg(long, value_name = "FILE")]
        state: Option<PathBuf>,
    },
    /// List a thread's checkpoints, those that were saved last first
    List {
        /// The thread
        thread: String,
        /// At most this many, up to 1000
        #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Go on where an earlier page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Write a state to standard output, byte by byte as it was saved
    Show {
        /// The thread
        thread: String,
        /// The checkpoint; the one that was saved last when none is named
        name: Option<String>,
    },
    /// Say what makes the state of one checkpoint of that of another, as a JSON Patch (RFC 6902)
    Diff {
        /// The thread
        thread: String,
        /// The one
        from: String,
        /// The other
        to: String,
    },
    /// Rewind the thread to the item of a checkpoint, and write its state to standard output
    Restore {
        /// The thread
        thread: String,
        /// The checkpoint; the one that was saved last when none is named
        name: Option<String>,
    },
    /// Delete a checkpoint
    Delete {
        /// The thread
        thread: String,
        /// The checkpoint
        name: String,
    },
}

/// Answers.
pub(super) fn run(args: &CheckpointArgs, app: &mut App) -> Outcome {
    match &args.what {
        CheckpointCommand::Save { thread, name, state } => save(app, thread, name, state.as_deref()),
        CheckpointCommand::List { thread, limit, cursor } => list(app, thread, *limit, cursor.clone()),
        CheckpointCommand::Show { thread, name } => {
            let store = app.read()?;
            let found = store.checkpoint(&store.find(thread)?, name.clone())?;
            let missing = || Error::NotFound { what: "checkpoint", id: name.clone().unwrap_or_else(|| thread.clone()) };
            write(app, &found.ok_or_else(missing)?)
        }
        CheckpointCommand::Diff { thread, from, to } => diff(app, thread, from, to),
        CheckpointCommand::Restore { thread, name } => {
            let store = app.write()?;
            let thread = store.find(thread)?;
            let restored = super::under_claim(&store, &thread, |live| Ok(live.restore_checkpoint(name.clone())?))?;
            write(app, &restored)
        }
        CheckpointCommand::Delete { thread, name } => {
            let store = app.write()?;
            if !store.delete_checkpoint(&store.find(thread)?, name)? {
                return Err(Error::NotFound { what: "checkpoint", id: name.clone() }.into());
            }
            if app.out.is_json() {
                app.out.document(&json!({"deleted": name}))?;
            } else {
                app.out.line(format!("Deleted {}", text::one_line(name)))?;
            }
            Ok(Code::Done)
        }
    }
}

fn save(app: &mut App, thread: &str, name: &str, state: Option<&Path>) -> Outcome {
    let state = read_state(state)?;
    let store = app.write()?;
    let target = Target::find(&store, thread)?;
    let at: Option<Address> = target.address(&store, None)?;
    let new = NewCheckpoint { at, ..NewCheckpoint::new(name, state) };
    let info = super::under_claim(&store, &target.thread, |live| Ok(live.save_checkpoint(new)?))?;
    if app.out.is_json() {
        app.out.document(&json!({"checkpoint": document(&info)}))?;
        return Ok(Code::Done);
    }
    let id = names::short_id(&store, &info.thread);
    let place = info.at.map_or_else(|| "the beginning".to_owned(), |at| format!("@{}", at.depth));
    app.out.line(format!("Saved {} of {id} at {place}", text::one_line(&info.name)))?;
    Ok(Code::Done)
}

fn read_state(file: Option<&Path>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let (name, read) = match file {
        None => ("standard input".to_owned(), io::stdin().lock().read_to_end(&mut bytes).map(drop)),
        Some(file) => (file.display().to_string(), fs::read(file).map(|read| bytes = read)),
    };
    read.map_err(|error| Report::usage(format!("{name}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| Report::usage(format!("{name}: it is no UTF-8, which JSON is")))?;
    // What editors and shells put behind it belongs to no state.
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn list(app: &mut App, thread: &str, limit: usize, cursor: Option<String>) -> Outcome {
    let store = app.read()?;
    let page =
        store.checkpoints(&store.find(thread)?, CheckpointQuery { limit, cursor, ..CheckpointQuery::default() })?;
    if app.out.is_json() {
        app.out.page("checkpoints", &page, document)?;
        return Ok(Code::Done);
    }
    let columns = [
        ("name", Align::Flexible),
        ("at", Align::Left),
        ("size", Align::Right),
        ("state", Align::Left),
        ("saved", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let now = super::now();
    for info in &page.entries {
        let digest = info.digest.to_string();
        table.row(vec![
            cell(Ink::Plain, text::one_line(&info.name)),
            cell(Ink::Dim, info.at.map_or_else(|| "-".to_owned(), |at| format!("@{}", at.depth))),
            cell(Ink::Plain, human::bytes(i64::try_from(info.size).unwrap_or(i64::MAX))),
            cell(Ink::Dim, digest.get(..8).unwrap_or(&digest)),
            cell(Ink::Dim, human::ago(info.created_at, now)),
        ]);
    }
    table.write(&mut app.out)?;
    if let Some(next) = page.next_cursor {
        app.out.line(format!("\nMore: the same with --cursor {next}"))?;
    }
    Ok(Code::Done)
}

fn diff(app: &mut App, thread: &str, from: &str, to: &str) -> Outcome {
    let store = app.read()?;
    let diff = store.diff_checkpoints(&store.find(thread)?, from, to)?;
    if app.out.is_json() {
        let document = json!({"from": document(&diff.from), "to": document(&diff.to), "patch": diff.patch});
        app.out.document(&document)?;
        return Ok(Code::Done);
    }
    let steps = diff.patch.as_array().cloned().unwrap_or_default();
    if steps.is_empty() {
        app.out.line("Both say the same.")?;
    }
    for step in steps {
        let word = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let value = step.get("value").map(|value| format!(" {value}")).unwrap_or_default();
        let line = format!("{:<8}{}{value}", word("op"), word("path"));
        app.out.line(text::one_line(&line))?;
    }
    Ok(Code::Done)
}

fn write(app: &mut App, checkpoint: &Checkpoint) -> Outcome {
    if app.out.is_json() {
        let mut document = document(&checkpoint.info);
        if let Some(fields) = document.as_object_mut() {
            let state = serde_json::from_str(&checkpoint.state).unwrap_or_else(|_| checkpoint.state.clone().into());
            fields.insert("state".to_owned(), state);
        }
        app.out.document(&json!({"checkpoint": document}))?;
        return Ok(Code::Done);
    }
    app.out.bytes(checkpoint.state.as_bytes())?;
    app.out.bytes(b"\n")?;
    Ok(Code::Done)
}

fn document(info: &CheckpointInfo) -> Value {
    json!({
        "thread": info.thread,
        "name": info.name,
        "at": info.at,
        "digest": info.digest,
        "size": info.size,
        "created_at": json::time(info.created_at),
    })
}
