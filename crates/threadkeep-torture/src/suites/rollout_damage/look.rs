//! The process that reads damaged rollouts, one folder after the other, and says all that comes of them.

use std::collections::HashSet;
use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{Address, Hash, ItemId, ItemQuery, ListQuery, Shelves, StoreOptions};

use crate::Result;
use crate::child::say;
use crate::work::told;

/// Ends what is said of one folder.
pub(super) const END: &str = "=";

/// Looks at many folders of rollouts: those that it is told, line by line.
#[derive(Debug, clap::Args)]
pub(crate) struct Look {}

/// Plays the one who looks. `P` says that the library panicked.
pub(crate) fn play_look(_: &Look) -> Result<()> {
    std::panic::set_hook(Box::new(|panic| {
        say(format_args!("P {}", panic.to_string().replace('\n', " ")));
        std::process::exit(5);
    }));
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split(' ').collect();
        let done = match words.as_slice() {
            ["mirror", store, folder] => mirror(Path::new(store), Path::new(folder)),
            _ => look(Path::new(&line)),
        };
        if let Err(words) = done {
            say(format_args!("X {}", words.replace('\n', " ")));
        }
        say(format_args!("m {}", memory()));
        say(END);
    }
    Ok(())
}

fn look(root: &Path) -> Result<()> {
    let (reports, problems) = Store::verify_rollouts(root).map_err(told)?;
    for report in reports {
        say(format_args!("f {} {} {}", report.items, report.is_whole(), report.file.display()));
    }
    for problem in problems {
        say(format_args!("p {}", problem.file.display()));
    }
    let store = Store::open(StoreOptions::memory()).map_err(told)?;
    store.rebuild_from_rollouts(root, |_| {}).map_err(told)?;
    let mut said = HashSet::new();
    for shelves in [Shelves::Both, Shelves::Trash] {
        let query = ListQuery { shelves, limit: 1_000, ..ListQuery::default() };
        for thread in store.list(query).map_err(told)?.entries {
            if !store.verify(&thread.id).map_err(told)?.is_intact() {
                return Err(format!("thread {} does not verify", thread.id));
            }
            for branch in store.tree(&thread.id).map_err(told)?.branches {
                let at = Some(Address { branch: branch.id, depth: branch.tip });
                tell(&store, &thread.id, at, &mut said)?;
            }
        }
    }
    Ok(())
}

/// Says the items on the path to a place that were not said before.
fn tell(store: &Store, thread: &threadkeep::ThreadId, at: Option<Address>, said: &mut HashSet<ItemId>) -> Result<()> {
    let query = ItemQuery { at, limit: 2_000, ..ItemQuery::default() };
    let mut after = None;
    for item in store.items(thread, query).map_err(told)?.entries {
        if said.insert(item.id) {
            // All fields of it.
            let whole = Hash::of(format!("{item:?}").as_bytes());
            let before = after.map_or_else(|| "-".to_owned(), |id: ItemId| id.to_string());
            say(format_args!("i {} {before} {whole}", item.id));
        }
        after = Some(item.id);
    }
    Ok(())
}

fn mirror(store: &Path, folder: &Path) -> Result<()> {
    let store = Store::open(StoreOptions::folder(store).label("rollouts")).map_err(told)?;
    let report = store.mirror_rollouts(Some(folder), None, |_| {}).map_err(told)?;
    match report.problems.first() {
        Some(problem) => Err(format!("{}: {}", problem.thread, problem.reason)),
        None => Ok(()),
    }
}

/// The most memory that this process has had, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
