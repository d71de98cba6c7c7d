//! What travels: in copies, in backups, through repairs. And what is stored once.

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{
    Checkpoint, CheckpointQuery, Error, Goal, GoalQuery, GoalUsage, Job, JobQuery, NewCheckpoint, NewGoal, NewJob,
    NewPart, NewRun, PartKind, Rules, StoreOptions, ThreadId, Tool, Uuid,
};

use super::{create, id, job, open, say, sql, workspace};

/// Goals, checkpoints with their states, and jobs, as one sees them.
type State = (Vec<Goal>, Vec<Checkpoint>, Vec<Job>);

fn state_of(store: &Store, thread: &ThreadId) -> State {
    let goals = store.goal_history(thread, GoalQuery::default()).unwrap().entries;
    let checkpoints = store.checkpoints(thread, CheckpointQuery::default()).unwrap().entries;
    let load = |name: String| store.checkpoint(thread, Some(name)).unwrap().unwrap();
    let jobs = store.jobs(JobQuery::default()).unwrap().entries;
    (goals, checkpoints.into_iter().map(|info| load(info.name)).collect(), jobs)
}

fn usage(id: u128, tokens: u64) -> GoalUsage {
    GoalUsage { id: Some(Uuid::from_u128(id)), tokens, ..GoalUsage::default() }
}

/// A thread with everything beside its log.
fn fill(store: &Store) {
    let live = create(store, "t");
    live.set_goal(NewGoal { token_budget: Some(10), ..NewGoal::new("first") }).unwrap();
    live.accrue_goal(usage(1, 7)).unwrap();
    live.set_goal(NewGoal::new("second")).unwrap();
    live.accrue_goal(usage(2, 5)).unwrap();
    let large = format!("[{}]", vec!["\"a line that repeats\""; 10_000].join(","));
    for (name, state) in [("one", large.as_str()), ("two", "{}"), ("three", large.as_str())] {
        live.append(vec![say(name)]).unwrap();
        live.save_checkpoint(NewCheckpoint::new(name, state)).unwrap();
    }
    live.shutdown().unwrap();
    workspace(store).add_job(NewJob { thread: Some(id("t")), payload: Some("[1]".into()), ..job("j") }).unwrap();
    store.set_tools(&id("t"), vec![Tool::new("a", "{}")], None).unwrap();
    let run = store.start_run(NewRun { thread: Some(id("t")), ..NewRun::new("w") }).unwrap();
    let kind = PartKind::Control { node: "n".into(), control: "c".into() };
    store.start_part(&run.id, NewPart::new(kind)).unwrap();
}

#[test]
fn equal_states_are_stored_once_and_compressed_and_go_with_their_last_checkpoint() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store);
    let stored = || -> (i64, i64) {
        let query = "SELECT count(*), sum(length(data)) FROM checkpoint_states";
        sql(temp.path()).query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    let (states, bytes) = stored();
    assert_eq!(states, 2);
    assert!(bytes < 10_000, "200 kB of repetition take {bytes} bytes");
    store.delete_checkpoint(&id("t"), "one").unwrap();
    assert_eq!(stored().0, 2, "another checkpoint has it");
    let live = store.resume(&id("t"), false).unwrap();
    live.save_checkpoint(NewCheckpoint::new("three", "{}")).unwrap();
    assert_eq!(stored().0, 1);
}

#[test]
fn a_copy_carries_goals_and_checkpoints_and_leaves_jobs_to_their_workers() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    fill(&source);
    let copy = || target.copy_from(&source, &mut |_| {}).unwrap();
    assert_eq!(copy().problems, []);
    let (goals, checkpoints, _) = state_of(&source, &id("t"));
    let there = state_of(&target, &id("t"));
    assert_eq!((&there.0, &there.1, there.2.len()), (&goals, &checkpoints, 0));
    assert_eq!(copy().unchanged, 1, "a second copy carries what is there");
    // Usage that was counted there counts here, too.
    assert_eq!(target.accrue_goal(&id("t"), usage(2, 5)).unwrap().unwrap().tokens_used, 5);

    // What changes there later is carried, also when nothing else has changed.
    source.accrue_goal(&id("t"), usage(3, 1)).unwrap();
    source.delete_checkpoint(&id("t"), "one").unwrap();
    assert_eq!(copy().updated, 1);
    let (goals, checkpoints, _) = state_of(&source, &id("t"));
    let there = state_of(&target, &id("t"));
    assert_eq!((&there.0, &there.1), (&goals, &checkpoints));
    let live = target.resume(&id("t"), false).unwrap();
    assert_eq!(live.restore_checkpoint(Some("two".into())).unwrap().state, "{}");
    live.accrue_goal(usage(4, 1)).unwrap();
    assert!(
        target.goal(&id("t")).unwrap().unwrap().tick > goals[0].tick,
        "a change that came later has the lower tick"
    );
}

/// What was masked here does not come back from where it was not.
#[test]
fn a_copy_brings_back_nothing_that_was_masked() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    create(&source, "t").set_goal(NewGoal::new("with hunter2")).unwrap();
    target.copy_from(&source, &mut |_| {}).unwrap();
    let grounds = threadkeep::RedactOptions { reason: "a secret".into(), ..threadkeep::RedactOptions::default() };
    target.redact_matching(None, Rules::literal("hunter2").unwrap(), grounds, true, |_, _| {}).unwrap();
    let masked = target.goal(&id("t")).unwrap().unwrap().objective;
    assert!(!masked.contains("hunter2"));
    target.copy_from(&source, &mut |_| {}).unwrap();
    assert_eq!(target.goal(&id("t")).unwrap().unwrap().objective, masked);
}

#[test]
fn a_backup_has_everything() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(&temp.path().join("store"));
    fill(&store);
    let before = state_of(&store, &id("t"));
    let backup = temp.path().join("backup");
    let report = store.backup(&backup).unwrap();
    drop(store);
    Store::restore_backup(StoreOptions::folder(temp.path().join("restored")), &backup)
        .unwrap_or_else(|error| panic!("{error}: {report:?}"));
    assert_eq!(state_of(&open(&temp.path().join("restored")), &id("t")), before);
}

pub(crate) fn damage_pages_of(folder: &Path, table: &str) {
    let database = sql(folder);
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let mut pages = database.prepare("SELECT pageno FROM dbstat WHERE name = ?1").unwrap();
    let pages: Vec<u32> = pages.query_map([table], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let file = folder.join("threadkeep.db");
    let mut bytes = std::fs::read(&file).unwrap();
    for page in pages {
        let end = page as usize * 4096;
        bytes[end - 4096..end].fill(0x5a);
    }
    std::fs::write(file, bytes).unwrap();
}

/// A repair takes over what stands beside the log, whatever else is damaged, and nothing of it that is damaged itself.
#[test]
fn a_repair_keeps_what_stands_beside_the_log() {
    for table in ["turns", "threads_updated", "branches", "goals", "checkpoint_states", "jobs"] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        fill(&store);
        let mut before = state_of(&store, &id("t"));
        drop(store);
        damage_pages_of(temp.path(), table);
        let options = || StoreOptions::folder(temp.path());
        let plan = Store::plan_repair(options(), true).unwrap();
        let fingerprint =
            plan.fingerprint.unwrap_or_else(|| panic!("{table}: no plan: {:?}", plan.examination.findings));
        Store::repair(options(), &fingerprint).unwrap();
        let store = open(temp.path());
        match table {
            "goals" => before.0.clear(),
            "checkpoint_states" => before.1.clear(),
            "jobs" => before.2.clear(),
            _ => {}
        }
        assert_eq!(state_of(&store, &id("t")), before, "{table}");
        // It goes on, and what comes later has the greater tick.
        let goal = store.set_goal(&id("t"), NewGoal::new("third")).unwrap();
        assert!(before.0.iter().all(|earlier| earlier.tick < goal.tick), "{table}");
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty(), "{table}");
    }
}

#[test]
fn a_purge_that_others_share_items_of_takes_the_state_all_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store);
    store
        .fork(&id("t"), None, threadkeep::NewThread { id: Some(id("fork")), ..threadkeep::NewThread::default() })
        .unwrap();
    store.delete(&id("t")).unwrap();
    assert!(store.purge(&id("t")).unwrap().stub);
    for table in ["goals", "goal_usage", "checkpoints", "checkpoint_states", "jobs", "tools", "runs", "run_parts"] {
        let query = format!("SELECT count(*) FROM {table}");
        let left: i64 = sql(temp.path()).query_row(&query, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{table}");
    }
    assert!(matches!(store.goal(&id("t")), Err(Error::NotFound { .. })));
    assert!(matches!(store.set_goal(&id("t"), NewGoal::new("x")), Err(Error::NotFound { .. })));
}
