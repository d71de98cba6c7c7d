//! The library itself under thousands of orders in which its threads can run.
//!
//! This target compiles the library's own files a second time, with the threads, locks and channels of a scheduler in the
//! place of `src/concurrency.rs`. Nothing is a copy and nothing is left out but the waiting in the system (`db/gate.rs`).
//! Each check says what must hold after any schedule; half of the schedules are drawn at random, half are few preemptions at
//! chosen steps (PCT). `THREADKEEP_SCHEDULES` says how many each check tries, `SHUTTLE_RANDOM_SEED` which.
#![expect(
    clippy::enum_variant_names,
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the files of the library are used in part here, and their unit tests are compiled elsewhere"
)]
#![expect(clippy::allow_attributes, reason = "this lint alone can't be expected")]
#![allow(
    unfulfilled_lint_expectations,
    reason = "what the files of the library expect of a library is not found in a program"
)]

/// What `src/concurrency.rs` gives, of the scheduler.
mod concurrency {
    pub(crate) use shuttle::future::block_on;
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
    pub(crate) use shuttle::{thread, thread_local};
}

#[path = "../src"]
mod src {
    pub(crate) mod backup;
    pub(crate) mod branch;
    pub(crate) mod bundle;
    pub(crate) mod chain;
    pub(crate) mod changes;
    pub(crate) mod checkpoints;
    pub(crate) mod claim;
    pub(crate) mod claims;
    pub(crate) mod content;
    pub(crate) mod copy;
    pub(crate) mod cursor;
    pub(crate) mod dangling;
    pub(crate) mod db;
    pub(crate) mod documents;
    pub(crate) mod error;
    pub(crate) mod examine;
    pub(crate) mod finding;
    pub(crate) mod follow;
    pub(crate) mod goals;
    pub(crate) mod host;
    pub(crate) mod id;
    pub(crate) mod inbox;
    pub(crate) mod item;
    pub(crate) mod jobs;
    pub(crate) mod keys;
    pub(crate) mod live;
    pub(crate) mod log;
    pub(crate) mod planted;
    pub(crate) mod records;
    pub(crate) mod repair;
    pub(crate) mod requests;
    pub(crate) mod roadmaps;
    pub(crate) mod rollout;
    pub(crate) mod runs;
    pub(crate) mod screen;
    pub(crate) mod seal;
    pub(crate) mod seals;
    pub(crate) mod search;
    pub(crate) mod secrets;
    pub(crate) mod sources;
    pub(crate) mod stats;
    pub(crate) mod store;
    pub(crate) mod thread;
    pub(crate) mod thread_list;
    pub(crate) mod thread_store;
    pub(crate) mod threads;
    pub(crate) mod time;
    pub(crate) mod tools;
    pub(crate) mod turn;
    pub(crate) mod turns;
    pub(crate) mod view;
    pub(crate) mod workspaces;
    pub(crate) mod writers;
}
// The files of the library name each other from the root.
use src::{
    backup, branch, bundle, chain, changes, checkpoints, claim, claims, content, copy, cursor, dangling, db, documents,
    error, examine, finding, follow, goals, host, id, inbox, item, jobs, keys, live, log, planted, records, repair,
    requests, roadmaps, rollout, runs, screen, seal, seals, search, secrets, sources, stats, store, thread,
    thread_list, thread_store, threads, time, tools, turn, turns, view, workspaces, writers,
};
// And these as the library shows them.
use id::ThreadId;
use item::{NewItem, Role};
use thread::NewThread;

#[cfg(test)]
#[path = "schedules/claiming.rs"]
mod claiming;
#[cfg(test)]
#[path = "schedules/committing.rs"]
mod committing;
#[cfg(test)]
#[path = "schedules/explore.rs"]
mod explore;
#[cfg(test)]
#[path = "schedules/failing.rs"]
mod failing;
#[cfg(test)]
#[path = "schedules/following.rs"]
mod following;
#[cfg(test)]
#[path = "schedules/memory.rs"]
mod memory;
#[cfg(test)]
#[path = "schedules/numbers.rs"]
mod numbers;
#[cfg(test)]
#[path = "schedules/queueing.rs"]
mod queueing;
#[cfg(test)]
#[path = "schedules/waiting.rs"]
mod waiting;

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let trials = [
        committing::trials(),
        waiting::trials(),
        queueing::trials(),
        failing::trials(),
        claiming::trials(),
        following::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}
