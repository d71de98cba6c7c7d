//! The search index on a server: what any index does, and what only a server can get wrong.

use std::path::PathBuf;

use postgres::{Client, NoTls};
use threadkeep::blocking::Store;
use threadkeep::conformance::indexes::{Probe, agree, index_clauses};
use threadkeep::{Error, StoreOptions, postgres_statement_texts};

use crate::redaction::holding;
use crate::server::{Server, server};

fn probe(server: &Server) -> Probe {
    probe_at(&server.address())
}

fn probe_at(address: &str) -> Probe {
    Probe::on_server(StoreOptions::postgres(address).unwrap()).unwrap()
}

/// A connection that sees the tables of a store.
fn tables_of(server: &Server, address: &str) -> Client {
    let schema = address.rsplit_once("schema=").unwrap().1;
    let mut config = server.config();
    config.options(&format!("-c search_path={schema}"));
    config.connect(NoTls).unwrap()
}

fn fill(probe: &Probe, streams: &[&str]) {
    probe.fill(streams.iter().map(|&words| words.to_owned())).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn both_engines_keep_every_clause_of_an_index() {
    let Some(server) = server() else { return };
    for clause in index_clauses() {
        for (engine, probe) in [("postgresql", probe(&server)), ("sqlite", Probe::in_memory().unwrap())] {
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

/// Terms that no rule above makes, and that a text in quotes could be broken by.
#[test]
fn a_term_is_taken_as_it_is() {
    let Some(server) = server() else { return };
    let probe = probe(&server);
    let terms =
        ["'", "\\", "a'b", "':1", "a\\'", "\"", "&", "!", "(", ":*", "a:*", "<->", "\u{1}", "\u{a0}", "%", "_x", "$1"];
    fill(&probe, &terms);
    for (number, term) in (1..).zip(terms) {
        assert_eq!(probe.find_phrase(term, false, 100).unwrap(), [number], "{term:?}");
        assert!(probe.find_phrase(term, true, 100).unwrap().contains(&number), "{term:?}");
        assert!(probe.find_phrase(&format!("{term} {term}"), false, 100).unwrap().is_empty(), "{term:?}");
    }
}

#[test]
fn who_finds_it_being_changed_goes_on() {
    let Some(server) = server() else { return };
    let address = server.address();
    let probe = probe_at(&address);
    fill(&probe, &["one"]);
    let mut other = tables_of(&server, &address);
    let mut tx = other.transaction().unwrap();
    tx.execute("UPDATE search_state SET generation = generation + 1", &[]).unwrap();
    assert!(!probe.touch().unwrap());
    assert_eq!(probe.find_phrase("one", false, 9).unwrap(), [1], "who reads waits for nobody");
    tx.commit().unwrap();
    assert!(probe.touch().unwrap());
}

#[test]
fn connections_that_were_cut_are_made_again() {
    let Some(server) = server() else { return };
    let options = StoreOptions::postgres(&server.address()).unwrap().label("cut index");
    let probe = Probe::on_server(options).unwrap();
    fill(&probe, &["one"]);
    let mut other = server.config().connect(NoTls).unwrap();
    let cut = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'cut index'";
    for _ in 0..3 {
        assert!(other.execute(cut, &[]).unwrap() > 0);
        assert_eq!(probe.find_phrase("one", false, 9).unwrap(), [1]);
        other.execute(cut, &[]).unwrap();
        assert!(probe.touch().unwrap());
    }
}

#[test]
fn an_index_that_lost_its_place_is_damaged_until_it_is_cleared() {
    let Some(server) = server() else { return };
    let address = server.address();
    let probe = probe_at(&address);
    fill(&probe, &["one"]);
    let mut tables = tables_of(&server, &address);
    for damage in ["DELETE FROM search_state", "UPDATE search_state SET top = 0"] {
        assert!(probe.touch().unwrap());
        tables.execute(damage, &[]).unwrap();
        let refused = probe.fill(["two".to_owned()].into_iter()).expect_err(damage);
        assert!(refused.to_string().contains("`corrupt`"), "{damage}: {refused}");
        probe.clear().unwrap();
        assert!(probe.find_phrase("one", false, 9).unwrap().is_empty());
        fill(&probe, &["one"]);
        assert_eq!(probe.find_phrase("one", false, 9).unwrap(), [1]);
    }
    tables.batch_execute("DROP TABLE search_docs").unwrap();
    assert!(matches!(probe.find_phrase("one", false, 9), Err(Error::Corrupt { .. })));
}

/// Whatever stands in it, a search asks the index of terms, and never reads all documents.
#[test]
fn a_search_goes_by_the_index_of_terms() {
    let Some(server) = server() else { return };
    let address = server.address();
    let probe = probe_at(&address);
    probe.fill((0..5_000).map(|number| format!("everywhere word{number}"))).unwrap_or_else(|broken| panic!("{broken}"));
    let mut tables = tables_of(&server, &address);
    tables.batch_execute("ANALYZE search_docs; SET enable_seqscan = off").unwrap();
    for (name, sql) in postgres_statement_texts() {
        let (kinds, last) = match name.as_str() {
            "FIND_DOCS" => ("text, bigint, bigint", ""),
            "FIND_DOUBTFUL_DOCS" => ("text, bigint, bigint, text", ", '''.b'''"),
            _ => continue,
        };
        tables.batch_execute(&format!("PREPARE {name} ({kinds}) AS {sql}")).unwrap();
        for question in ["''.everywhere'' & (''@0.1'' | ''@0.0'')", "!''.word7'' & ''@0.1''", "''.w'':* & ''@3.0''"] {
            let explain = format!("EXPLAIN EXECUTE {name} ('{question}', 5000, 10{last})");
            let plan: Vec<String> = tables.query(&explain, &[]).unwrap().iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains("Bitmap Index Scan on search_docs_terms"), "{name}, {question}:\n{plan}");
        }
    }
}

/// Erasing the store erases what was taken out of its index, and the server's statistics never knew it.
#[test]
fn what_was_taken_out_is_in_no_file_once_the_store_is_erased() {
    const WORD: &str = "qv7zk2mx9dr4tw8bn3hc6";
    let Some(server) = server() else { return };
    let address = server.address();
    let probe = probe_at(&address);
    fill(&probe, &["one", WORD, "two", &format!("{WORD} {WORD}")]);
    let mut tables = tables_of(&server, &address);
    tables.batch_execute("ANALYZE").unwrap();
    assert!(!holding(&server, WORD).is_empty(), "the control");
    tables.execute("DELETE FROM search_docs WHERE doc > 1", &[]).unwrap();
    assert!(!holding(&server, WORD).is_empty(), "the control");
    Store::open(StoreOptions::postgres(&address).unwrap()).unwrap().erase().unwrap();
    assert_eq!(holding(&server, WORD), Vec::<PathBuf>::new());

    fill(&probe, &[WORD]);
    probe.clear().unwrap();
    assert_eq!(holding(&server, WORD), Vec::<PathBuf>::new(), "the owner's clearing leaves nothing to erase");
}
