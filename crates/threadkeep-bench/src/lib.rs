//! Threadkeep measured against its floors: what bare SQLite does with the same rows, in the same run, round by round.
//!
//! `cargo bench -p threadkeep-bench` runs everything; `cargo bench -p threadkeep-bench -- P1 P4` runs what it names.
//! The method and the figures are in `docs/benchmarks.md`.

pub mod appends;
pub mod bare;
pub mod contention;
pub mod corpus;
pub mod dictionary;
pub mod files;
pub mod langgraph;
pub mod lists;
pub mod machine;
pub mod measure;
pub mod mirror;
pub mod peer;
pub mod plan;
pub mod postgres;
pub mod reads;
pub mod report;
pub mod search;
pub mod secrets;
pub mod stores;
pub mod text;

use crate::plan::Plan;
use crate::report::Report;

/// What goes wrong ends the run; nobody tells the causes apart.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;

/// Runs what the plan asks for and gives the table. `tell` hears what is being done.
///
/// # Errors
/// Whatever the store, the bare database or the disk refuses.
pub fn run(plan: &Plan, tell: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = Report::default();
    let root = tempfile::Builder::new().prefix("threadkeep-bench-").tempdir_in(&plan.root)?;
    type Part = fn(&Plan, &std::path::Path, &mut Report) -> Result<()>;
    let parts: [(&[&str], &str, Part); 16] = [
        (&["P1"], "synced appends", appends::synced),
        (&["P2"], "many writers", appends::many_writers),
        (&["W1"], "writers of many processes", contention::throughput),
        (&["W2"], "the waits of many processes", contention::waits),
        (&["P3"], "written appends", appends::written),
        (&["M1"], "appends while rollouts are kept", mirror::appends),
        (&["P4", "P8", "P11"], "a thread of many items", reads::large_store),
        (&["P5"], "many threads", lists::many_threads),
        (&["P6"], "searching a corpus", search::searching),
        (&["P7", "P10"], "agents' files", files::importing),
        (&["P9"], "one large thread", files::one_large_thread),
        (&["S1", "S2"], "looking for secrets", secrets::searching),
        (&["G1"], "writers on a server", postgres::many_writers),
        (&["G2"], "reads from a server", postgres::reading),
        (&["G3"], "lists from a server", postgres::listing),
        (&["CW"], "the work of a peer's benchmark", peer::all),
    ];
    report.note(machine::describe());
    for (ids, what, part) in parts {
        if ids.iter().any(|id| plan.wants(id)) {
            tell(what);
            let folder = tempfile::tempdir_in(root.path())?;
            let state = || Ok::<_, Error>((machine::sync_time(folder.path(), plan.sizes.synced)?, machine::load()));
            let (sync, load) = state()?;
            part(plan, folder.path(), &mut report)?;
            let (after, load_after) = state()?;
            report.note(format!(
                "sync of 12 KiB before {what}: {sync} (p50 / p99), after: {after}; load {load}, after: {load_after}"
            ));
        }
    }
    Ok(report)
}
