//! The benchmark runs, on sizes whose figures mean nothing.

#![cfg(test)]

#[path = "../../threadkeep/tests/postgres/server.rs"]
#[expect(dead_code, reason = "the server of other tests")]
mod server;

use threadkeep_bench::plan::{Plan, Sizes};

fn plan(root: &tempfile::TempDir, only: Vec<String>, server: Option<String>) -> Plan {
    let writers_program = env!("CARGO_BIN_EXE_threadkeep-bench-writers").into();
    Plan { only, root: root.path().to_owned(), writers_program, server, python: None, sizes: Sizes::QUICK }
}

#[test]
fn every_part_runs_and_fills_its_lines() {
    let root = tempfile::tempdir().unwrap();
    let Some(server) = server::start_own() else { return };
    let mut heard = 0;
    let report = threadkeep_bench::run(&plan(&root, Vec::new(), Some(server.database())), &mut |_| heard += 1).unwrap();
    assert_eq!(heard, 16);
    for id in [
        "P1", "P2", "W1", "W2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "S1", "S2", "M1", "G1", "G2",
        "G3", "CW",
    ] {
        assert!(report.lines.iter().any(|line| line.id == id), "{id}");
    }
    assert!(report.lines.iter().all(|line| line.figure.is_finite()), "{report}");
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "the stores are removed");
}

#[test]
fn a_part_runs_alone() {
    let root = tempfile::tempdir().unwrap();
    let report = threadkeep_bench::run(&plan(&root, vec!["p3".into()], None), &mut |_| {}).unwrap();
    assert!(report.lines.iter().all(|line| line.id == "P3"), "{report}");
}
