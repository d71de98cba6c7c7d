//! Every clause on every engine: one clause is one test.

#[cfg(test)]
#[path = "postgres/server.rs"]
mod server;

use libtest_mimic::{Arguments, Failed, Trial};
use threadkeep::StoreOptions;
use threadkeep::blocking::Store;
use threadkeep::conformance::{Clause, clauses};

type Check = fn(Clause) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    // Held to the end, so that all clauses use the same one.
    let _server = arguments.filter.as_deref().is_none_or(|filter| !filter.starts_with("sqlite")).then(server::server);
    let on = |engine: &'static str, check: Check| {
        clauses().into_iter().map(move |clause| (format!("{engine}::{}", clause.name), clause, check))
    };
    let engines: [(&str, Check); 3] =
        [("sqlite_file", in_a_file), ("sqlite_memory", in_memory), ("postgresql", on_a_server)];
    let trials = engines.into_iter().flat_map(|(engine, check)| on(engine, check));
    let trials = trials.map(|(name, clause, check)| Trial::test(name, move || check(clause))).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn in_a_file(clause: Clause) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(StoreOptions::folder(folder.path().join("store")))?;
    check(clause, &store)
}

fn in_memory(clause: Clause) -> Result<(), Failed> {
    check(clause, &Store::open(StoreOptions::memory())?)
}

fn on_a_server(clause: Clause) -> Result<(), Failed> {
    let Some(server) = server::server() else { return Ok(()) };
    check(clause, &Store::open(StoreOptions::postgres(&server.address())?)?)
}

fn check(clause: Clause, store: &Store) -> Result<(), Failed> {
    (clause.check)(store).map_err(|broken| Failed::from(format!("{}: {broken}", clause.promise.trim())))
}
