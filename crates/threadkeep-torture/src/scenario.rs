//! Short runs of one operation each, to be cut off at every system call.
//!
//! Beside `I` and `A` for items, `O` says that the operation as a whole was acknowledged.

use std::path::{Path, PathBuf};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{NewThread, StoreOptions};

use crate::Result;
use crate::child::say;
use crate::work;

/// The scenarios, those of a short run first.
pub(crate) const NAMES: [&str; 9] = ["init", "append", "batch", "delete", "create", "big", "claim", "release", "fork"];

/// The thread that every scenario but `init` finds in its store.
pub(crate) const MAIN: &str = "main";
/// The thread that is deleted and purged.
pub(crate) const VICTIM: &str = "victim";
/// The thread that is made by `create` and `fork`.
pub(crate) const NEW: &str = "new";

/// Numbers of a large item: those that [`work::content`] makes large.
const LARGE: [u64; 3] = [40, 81, 122];

/// Runs one scenario.
#[derive(Debug, clap::Args)]
pub(crate) struct Scenario {
    #[arg(long)]
    name: String,
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    life: u64,
    /// Acknowledges before it asks: the sabotage of the control.
    #[arg(long)]
    lie: bool,
}

/// Plays the scenario.
pub(crate) fn play(args: &Scenario) -> Result<()> {
    let told = |error: threadkeep::Error| format!("{}: {}: {error}", args.name, error.kind());
    let store = Store::open(StoreOptions::folder(&args.store).label("scenario")).map_err(told)?;
    if args.name == "init" {
        say(format_args!("O {}", store.id()));
        return Ok(());
    }
    perform(&store, args).map_err(told)?;
    drop(store);
    say("Z");
    Ok(())
}

fn perform(store: &Store, args: &Scenario) -> threadkeep::Result<()> {
    let id = |text: &str| threadkeep::ThreadId::new(text);
    match args.name.as_str() {
        "append" => {
            let live = store.resume(&id(MAIN)?, false)?;
            (0..3).try_for_each(|number| append(&live, args, number, 1))?;
        }
        "batch" => {
            let live = store.resume(&id(MAIN)?, false)?;
            append(&live, args, 0, 3)?;
            append(&live, args, 3, 3)?;
        }
        "big" => {
            let live = store.resume(&id(MAIN)?, false)?;
            LARGE.iter().try_for_each(|number| append(&live, args, *number, 1))?;
        }
        "claim" => {
            let live = store.resume(&id(MAIN)?, false)?;
            append(&live, args, 0, 1)?;
            drop(live);
        }
        "release" => {
            let live = store.resume(&id(MAIN)?, false)?;
            append(&live, args, 0, 1)?;
            live.shutdown()?;
            let live = store.resume(&id(MAIN)?, false)?;
            append(&live, args, 1, 1)?;
            live.shutdown()?;
        }
        "create" => {
            let workspace = store.workspace(Path::new("/threadkeep-torture"))?;
            drop(workspace.create_now(NewThread { id: Some(id(NEW)?), ..NewThread::default() })?);
            say("O created");
        }
        "fork" => {
            store.fork(&id(MAIN)?, None, NewThread { id: Some(id(NEW)?), ..NewThread::default() })?;
            say("O created");
        }
        _ => {
            store.delete(&id(VICTIM)?)?;
            say("O trashed");
            store.purge(&id(VICTIM)?)?;
            say("O purged");
        }
    }
    Ok(())
}

fn append(live: &LiveThread, args: &Scenario, first: u64, size: u64) -> threadkeep::Result<()> {
    say(format_args!("I {MAIN} {first} {size}"));
    if args.lie {
        say(format_args!("A {MAIN} {first} {size}"));
    }
    let appended = live.append(work::items(args.life, 0, first, size))?;
    let hash = appended.items.last().map(|item| item.hash.to_string()).unwrap_or_default();
    say(format_args!("A {MAIN} {first} {size} {hash}"));
    Ok(())
}
