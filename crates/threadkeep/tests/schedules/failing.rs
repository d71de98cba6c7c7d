//! A live thread on an engine that fails at times: what was not stored is kept, in order, and stored later, once.

use std::sync::Arc;

use libtest_mimic::Trial;
use shuttle::thread;

use crate::error::Error;
use crate::explore::{Verdict, block_on, draw, ensure, holds, impatiently};
use crate::item::Durability;
use crate::live::{AppendOptions, LiveThread};
use crate::memory::Memory;
use crate::queueing::{named, pair, stored};
use crate::store::Store;

const APPENDS: usize = 6;

pub(crate) fn trials() -> Vec<Trial> {
    vec![holds("what_failed_is_kept_and_stored_in_order", 400, failing)]
}

fn failing() -> Verdict {
    let memory = Memory::new(64 << 10);
    let store = memory.store();
    let workspace = block_on(store.workspace("/w".as_ref())).unwrap();
    let live = workspace.create(named("t")).unwrap();
    memory.gauge.fail_one_in(6);
    // Others write beside it, so that it shares its commits.
    let beside = {
        let store = store.clone();
        thread::spawn(move || (0..6).for_each(|_| drop(block_on(store.sync()))))
    };
    let appends = {
        let (store, live) = (store.clone(), live.clone());
        thread::spawn(move || append_all(&store, &live))
    };
    let attempted = appends.join().map_err(|_| "the writer panicked")??;
    beside.join().map_err(|_| "the other writer panicked")?;
    memory.gauge.fail_one_in(0);

    block_on(live.flush()).map_err(|error| format!("the flush after the failures: {error}"))?;
    check(&stored(&store, "t")?, &attempted)?;
    ensure(block_on(live.take_unsaved()).is_empty(), || "something is kept though all is stored".to_owned())
}

/// What was surely asked for is stored, once, in order; what was abandoned may be, in its place.
fn check(found: &[String], attempted: &[(String, bool)]) -> Verdict {
    let expected = attempted.iter().filter(|(label, is_sure)| *is_sure || found.contains(label));
    let expected: Vec<&String> = expected.map(|(label, _)| label).collect();
    ensure(found.iter().eq(expected), || format!("asked for {attempted:?}, stored {found:?}"))
}

/// Gives what was asked for, and whether it must be there in the end.
fn append_all(store: &Store, live: &LiveThread) -> Result<Vec<(String, bool)>, String> {
    let mut attempted = Vec::new();
    for number in 0..APPENDS {
        let label = format!("{number}.");
        let durability =
            [Durability::Queued, Durability::Queued, Durability::Written, Durability::Synced][draw(4) as usize];
        let append = live.append_with(pair(&label), AppendOptions { durability, ..AppendOptions::default() });
        let answer = match draw(5) {
            0 => block_on(impatiently(append, 1 + draw(4))),
            _ => Some(block_on(append)),
        };
        match answer {
            None => attempted.push((label, false)),
            Some(Ok(_)) => attempted.push((label, true)),
            // The items are kept.
            Some(Err(error @ (Error::Busy { .. } | Error::StorageFull { .. }))) => {
                drop(error);
                attempted.push((label, true));
            }
            Some(Err(error)) => return Err(format!("{label}: {error}")),
        }
        match draw(4) {
            0 if block_on(live.flush()).is_ok() && attempted.iter().any(|(_, is_sure)| *is_sure) => {
                check(&stored(store, "t")?, &attempted)?;
            }
            1 => drop(block_on(impatiently(live.flush(), 2))),
            _ => {}
        }
    }
    Ok(attempted)
}
