//! Many processes on the leaves of one run: each ends once, and what was acknowledged survives a kill.

use std::collections::BTreeMap;
use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{
    Error, NewPart, NewRun, PartEnd, PartId, PartKind, ReplayFrom, RunId, RunNode, RunPart, RunStatus, TreeQuery,
};

use super::{Worker, grounds, open, run_together, say};

const WORKERS: usize = 8;
const LEAVES: usize = 120;

fn run_id() -> RunId {
    RunId::new("shared-run").unwrap()
}

fn start(store: &Store) {
    let new = NewRun { id: Some(run_id()), ..NewRun::new("review") };
    store.workspace(Path::new("/w")).unwrap().start_run(new).unwrap();
}

/// The leaf of a number; its input has a hash of its own.
fn leaf(id: String, number: usize) -> NewPart {
    let (leaf, task, input_hash) = ("lint".to_owned(), "run the linter".to_owned(), Some(hash(number)));
    let kind = PartKind::Leaf { leaf, task, branch_run: None, input_hash };
    NewPart { id: Some(PartId::new(id).unwrap()), ..NewPart::new(kind) }
}

fn hash(number: usize) -> String {
    format!("input-{number}")
}

/// Every leaf of the run, to the last one.
fn leaves(store: &Store) -> BTreeMap<String, RunPart> {
    let (mut query, mut found) = (TreeQuery { limit: 50, cursor: None }, BTreeMap::new());
    loop {
        let page = store.run_tree(&run_id(), query.clone()).unwrap();
        for node in page.nodes {
            let RunNode::Part(part) = node else { panic!("nobody added a candidate") };
            assert!(found.insert(part.id.to_string(), part).is_none(), "a leaf is in the tree twice");
        }
        match page.next_cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
}

/// Starts every leaf and ends it with an answer of its own; says which of its answers were taken.
pub(super) fn play_leaves(store: &Store) {
    let own = std::process::id() as usize;
    for step in 0..LEAVES {
        // Each begins at another one.
        let number = (step + own * 7) % LEAVES;
        check_replay(store, number);
        let part = store.start_part(&run_id(), leaf(format!("leaf-{number}"), number)).unwrap();
        match store.end_part(&part.id, PartEnd::completed(own.to_string())) {
            Ok(_) => say(&format!("{number} {own}")),
            Err(Error::Conflict { what: "part", .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        assert!(check_replay(store, number), "a completed leaf is not found again");
    }
}

/// What can be used again is complete and of this input, or it is nothing; says which.
fn check_replay(store: &Store, number: usize) -> bool {
    let found = store.replay_leaf(&run_id(), "lint", &hash(number), ReplayFrom::Workflow).unwrap();
    let Some(found) = found else { return false };
    assert_eq!((found.id.to_string(), &found.status), (format!("leaf-{number}"), &RunStatus::Completed));
    assert!(found.result.is_some() && found.completed_at.is_some(), "{found:?}");
    true
}

/// Starts and ends leaves of its own until it is killed; says which are done.
pub(super) fn play_until_killed(store: &Store) {
    let own = std::process::id();
    for number in 0.. {
        let part = store.start_part(&run_id(), leaf(format!("leaf-{own}-{number}"), number)).unwrap();
        store.end_part(&part.id, PartEnd::completed(number.to_string())).unwrap();
        say(part.id.as_str());
    }
}

#[test]
fn eight_processes_end_the_leaves_of_one_run_and_each_ends_once() {
    for ground in grounds() {
        let store = open(&ground.place);
        start(&store);
        let said = run_together(WORKERS, "leaves", &ground.place);
        let mut taken = BTreeMap::new();
        for line in said.iter().flatten() {
            let (number, answer) = line.split_once(' ').unwrap();
            let before = taken.insert(number.to_owned(), answer.to_owned());
            assert_eq!(before, None, "{}: two answers for leaf {number} were taken", ground.name);
        }
        assert_eq!(taken.len(), LEAVES, "{}", ground.name);
        let stored = leaves(&store);
        assert_eq!(stored.len(), LEAVES, "{}", ground.name);
        for (number, answer) in taken {
            let part = &stored[&format!("leaf-{number}")];
            assert_eq!((&part.status, part.result.as_deref()), (&RunStatus::Completed, Some(answer.as_str())));
        }
    }
}

#[test]
fn killed_processes_lose_no_leaf_that_was_acknowledged() {
    for ground in grounds() {
        let store = open(&ground.place);
        start(&store);
        let (mut acknowledged, mut kills) = (Vec::new(), 0);
        for round in 0..4 {
            let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start("until_killed", &ground.place)).collect();
            workers.iter_mut().for_each(Worker::go);
            for (place, mut worker) in workers.into_iter().enumerate() {
                acknowledged.extend((0..5 + 3 * round + place).map(|_| worker.hear().unwrap()));
                worker.process.kill().unwrap();
                kills += 1;
                // What it said before it died counts as well.
                acknowledged.extend(std::iter::from_fn(|| worker.hear()));
            }
        }
        let stored = leaves(&store);
        for id in &acknowledged {
            let part = &stored[id];
            let number = id.rsplit_once('-').unwrap().1;
            assert_eq!(
                (&part.status, part.result.as_deref()),
                (&RunStatus::Completed, Some(number)),
                "{}",
                ground.name
            );
        }
        let running = stored.values().filter(|part| part.status == RunStatus::Running).count();
        let done = stored.len() - running;
        assert!(running <= kills && done <= acknowledged.len() + kills, "{}: {running} run, {done} done", ground.name);
        // What the dead left is marked once, and is no answer.
        let found = store.interrupt_run(&run_id(), "its process was killed").unwrap();
        assert_eq!((found.was_running, found.parts), (true, running as u64), "{}", ground.name);
        assert_eq!(store.interrupt_run(&run_id(), "again").unwrap().parts, 0);
        let after = leaves(&store);
        for (id, part) in &stored {
            match part.status {
                RunStatus::Completed => assert_eq!(&after[id], part),
                _ => assert_eq!(after[id].status, RunStatus::Interrupted),
            }
        }
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
    }
}
