//! Short runs of one operation each, to be cut off at every system call.
//!
//! Beside `I` and `A` for items, `O` says that the operation as a whole was acknowledged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{Address, ItemQuery, ListQuery, NewThread, RedactOptions, StoreOptions, TurnEnd};
use threadkeep_agents::import::{ImportOptions, Importer};

use crate::Result;
use crate::child::say;
use crate::suites::Jumping;
use crate::work;

/// The scenarios, those of a short run first.
pub(crate) const NAMES: [&str; 16] = [
    "init",
    "append",
    "batch",
    "delete",
    "create",
    "big",
    "claim",
    "release",
    "fork",
    "renew",
    "hand-over",
    "backup",
    "restore",
    "repair",
    "import",
    "redact",
];

/// The thread that every scenario but `init` finds in its store.
pub(crate) const MAIN: &str = "main";
/// The thread that is deleted and purged, or redacted.
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
    /// The backup that is made or restored, or the folder that is imported.
    #[arg(long)]
    other: Option<PathBuf>,
    /// Acknowledges before it asks: the sabotage of the control.
    #[arg(long)]
    lie: bool,
}

/// Plays the scenario.
pub(crate) fn play(args: &Scenario) -> Result<()> {
    let told = |error: threadkeep::Error| format!("{}: {}: {error}", args.name, error.kind());
    let options = || StoreOptions::folder(&args.store).label("scenario");
    if args.name == "restore" {
        Store::restore_backup(options(), other(args)).map_err(told)?;
        say("O restored");
        say("Z");
        return Ok(());
    }
    if args.name == "repair" {
        return repair(args, &options()).map_err(told);
    }
    let store = match args.name.as_str() {
        // With each append a holder gives a sign of life.
        "renew" => Store::open(options().host(Arc::new(Jumping::hasty(30_000)))).map_err(told)?,
        _ => Store::open(options()).map_err(told)?,
    };
    if args.name == "init" {
        say(format_args!("O {}", store.id()));
        return Ok(());
    }
    perform(&store, args).map_err(told)?;
    drop(store);
    say("Z");
    Ok(())
}

/// Takes an index away that holds nothing of its own, and has the store repaired: it is the same one before, meanwhile and after.
fn repair(args: &Scenario, options: &StoreOptions) -> threadkeep::Result<()> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let database = rusqlite::Connection::open_with_flags(args.store.join("threadkeep.db"), flags);
    // Where a repair was cut off there may be no database: then that is ended.
    drop(database.and_then(|database| database.execute_batch("DROP INDEX IF EXISTS branches_thread")));
    if let Some(fingerprint) = Store::plan_repair(options.clone(), false)?.fingerprint {
        Store::repair(options.clone(), &fingerprint)?;
        say("O repaired");
    }
    say("Z");
    Ok(())
}

fn other(args: &Scenario) -> &Path {
    args.other.as_deref().unwrap_or(Path::new(""))
}

fn perform(store: &Store, args: &Scenario) -> threadkeep::Result<()> {
    let id = |text: &str| threadkeep::ThreadId::new(text);
    match args.name.as_str() {
        "append" => {
            let live = store.resume(&id(MAIN)?, false)?;
            (0..3).try_for_each(|number| append(&live, args, number, 1))?;
        }
        "renew" => {
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
        "hand-over" => hand_over(store, args)?,
        "backup" => {
            store.backup(other(args))?;
            say("O backed-up");
        }
        "redact" => redact(store)?,
        "import" => {
            let report = Importer::new(store, ImportOptions::default()).run(&[other(args).to_owned()], &mut |_| {});
            let report = report.map_err(|error| threadkeep::Error::Backend { detail: error.to_string() })?;
            let threads = store.list(ListQuery { limit: 100, ..ListQuery::default() })?;
            let items: i64 = threads.entries.iter().map(|thread| thread.items).sum();
            say(format_args!("O imported {} {items}", report.items.read));
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

/// Takes all content out of the victim.
fn redact(store: &Store) -> threadkeep::Result<()> {
    let thread = threadkeep::ThreadId::new(VICTIM)?;
    let items = store.items(&thread, ItemQuery { limit: 2_000, ..ItemQuery::default() })?.entries;
    let places: Vec<Address> = items.iter().map(threadkeep::Item::address).collect();
    let report =
        store.redact(&thread, places, RedactOptions { reason: "torture".to_owned(), ..RedactOptions::default() })?;
    if report.erased != Some(false) {
        say("O redacted");
    }
    Ok(())
}

/// One handle of this process asks another one for the thread, and gets it at the end of its turn.
fn hand_over(store: &Store, args: &Scenario) -> threadkeep::Result<()> {
    let thread = threadkeep::ThreadId::new(MAIN)?;
    let asking = Store::open(StoreOptions::folder(&args.store).label("asking"))?;
    let live = store.resume(&thread, false)?;
    say(format_args!("I {MAIN} 0 1"));
    for prompt in work::items(args.life, 0, 0, 1) {
        let hash = live.begin_turn(prompt)?.items.last().map(|item| item.hash.to_string()).unwrap_or_default();
        say(format_args!("A {MAIN} 0 1 {hash}"));
    }
    asking.request_release(&thread)?;
    append(&live, args, 1, 2)?;
    live.end_turn(TurnEnd::completed())?;
    let live = asking.resume(&thread, false)?;
    append(&live, args, 3, 1)
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
