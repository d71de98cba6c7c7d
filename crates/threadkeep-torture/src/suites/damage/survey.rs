//! The process that opens damaged stores, one after the other, and says all that it can still find.

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{Error, Hash, ItemQuery, ListQuery};

use super::{mending, scene};
use crate::Result;
use crate::child::say;
use crate::work::{self, told};

/// Ends what is said of one store.
pub(super) const END: &str = "=";

/// Looks at many stores: those that it is told, line by line.
#[derive(Debug, clap::Args)]
pub(crate) struct Survey {
    /// `thread=count`: a thread, and how many items there are to look for.
    #[arg(long, value_delimiter = ',')]
    threads: Vec<String>,
}

/// Plays the one who looks. Each line of a damaged store is said as it is found: `P` says that the library panicked.
pub(crate) fn play_survey(args: &Survey) -> Result<()> {
    std::panic::set_hook(Box::new(|panic| {
        say(format_args!("P {}", panic.to_string().replace('\n', " ")));
        std::process::exit(5);
    }));
    let mut threads = Vec::new();
    for name in &args.threads {
        let (thread, count) = name.split_once('=').ok_or("a thread is thread=count")?;
        threads.push((thread, count.parse().map_err(|_| "a count is a number")?));
    }
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let root = PathBuf::from(line.strip_prefix(mending::REPAIR).unwrap_or(&line));
        if line.starts_with(mending::REPAIR) {
            mending::play(&root);
        }
        look(&root, &threads);
        say(END);
    }
    Ok(())
}

fn look(root: &Path, threads: &[(&str, u32)]) {
    match Store::examine(scene::options(root), true) {
        Ok(found) => found.findings.iter().for_each(|finding| say(format_args!("e {}", finding.code))),
        Err(error) => refused("examine", &error),
    }
    let store = match Store::open(scene::options(root)) {
        Ok(store) => store,
        Err(error) => return refused("open", &error),
    };
    match store.list(ListQuery { limit: 100, ..ListQuery::default() }) {
        Ok(page) => say(format_args!("l {}", page.entries.len())),
        Err(error) => refused("list", &error),
    }
    for (thread, count) in threads {
        read(&store, thread, *count);
    }
    match store.verify_all(|_| {}) {
        Ok(report) => {
            report.invalid.keys().for_each(|thread| say(format_args!("b {thread}")));
            report.seals.iter().for_each(|problem| say(format_args!("s {problem}")));
            say(format_args!("v {} {}", report.threads, report.intact));
        }
        Err(error) => refused("verify", &error),
    }
}

/// Reads all that can be read of a thread: after a place that is damaged it goes on behind it.
fn read(store: &Store, thread: &str, count: u32) {
    let Ok(id) = work::thread_id(thread) else { return };
    let mut from = 0;
    while from < count {
        match store.items(&id, ItemQuery { limit: 2_000, from, ..ItemQuery::default() }) {
            Ok(page) => {
                let Some(last) = page.entries.last().map(|item| item.depth) else { break };
                for item in &page.entries {
                    // All fields of it, those included that no other suite looks at.
                    let whole = Hash::of(format!("{item:?}").as_bytes());
                    let content = Hash::of(&item.content);
                    say(format_args!("i {thread} {} {} {content} {whole}", item.depth, item.id));
                }
                from = last.max(from) + 1;
            }
            Err(error) => {
                say(format_args!("x {thread} {from} {} {error}", error.kind()));
                if matches!(error, Error::NotFound { .. }) {
                    break;
                }
                from += 1;
            }
        }
    }
}

fn refused(what: &str, error: &Error) {
    say(format_args!("X {what} {}", told(error.clone()).replace(": ", " ").replace('\n', " ")));
}
