//! Every clause on every engine: one clause is one test.

use libtest_mimic::{Arguments, Failed, Trial};
use threadkeep::StoreOptions;
use threadkeep::blocking::Store;
use threadkeep::conformance::{Clause, clauses};

fn main() {
    let arguments = Arguments::from_args();
    let on = |engine: &str, check: fn(Clause) -> Result<(), Failed>| {
        clauses()
            .into_iter()
            .map(move |clause| (format!("{engine}::{}", clause.name), clause, check))
            .collect::<Vec<_>>()
    };
    let trials = [on("sqlite_file", in_a_file), on("sqlite_memory", in_memory)].concat();
    let trials = trials.into_iter().map(|(name, clause, check)| Trial::test(name, move || check(clause))).collect();
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

fn check(clause: Clause, store: &Store) -> Result<(), Failed> {
    (clause.check)(store).map_err(|broken| Failed::from(format!("{}: {broken}", clause.promise.trim())))
}
