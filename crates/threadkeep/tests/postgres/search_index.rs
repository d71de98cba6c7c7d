//! The search index on a server: what any index does, and what only a server can get wrong.

use threadkeep::StoreOptions;
use threadkeep::conformance::indexes::{Probe, agree, index_clauses};

use crate::server::{Server, server};

fn probe(server: &Server) -> Probe {
    Probe::on_server(StoreOptions::postgres(&server.address()).unwrap()).unwrap()
}

#[test]
fn both_engines_keep_every_clause_of_an_index() {
    let Some(server) = server() else { return };
    for clause in index_clauses() {
        for (engine, probe) in [("sqlite", Probe::in_memory().unwrap()), ("postgresql", probe(&server))] {
            (clause.check)(&probe).unwrap_or_else(|broken| panic!("{engine}::{}: {broken}", clause.name));
        }
    }
}

#[test]
fn both_engines_find_what_reading_finds() {
    let Some(server) = server() else { return };
    for seed in 1..=4 {
        let (here, there) = (Probe::in_memory().unwrap(), probe(&server));
        agree(seed, &[&here, &there]).unwrap_or_else(|broken| panic!("{broken}"));
    }
}
