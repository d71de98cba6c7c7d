//! What another program has written, and what is damaged: shown, inert, or named, and never in the way of the rest.

use threadkeep::{
    CheckpointQuery, Error, GoalPatch, GoalQuery, GoalStatus, GoalUsage, JobPatch, JobQuery, JobStatus, ListQuery,
    NewCheckpoint, NewGoal, NewJob, StoreOptions,
};

use super::{create, id, job, job_id, open, sql, workspace};

/// Which row is damaged, and how.
pub(crate) fn assert_names(error: &Error, words: &str) {
    assert!(matches!(error, Error::Corrupt { place, .. } if place.contains(words)), "{error:?} does not name {words}");
}

#[test]
fn unknown_words_are_kept_shown_and_inert() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = create(&store, "t");
    live.set_goal(NewGoal { token_budget: Some(1), ..NewGoal::new("x") }).unwrap();
    workspace(&store).add_job(job("j")).unwrap();
    let words = "UPDATE goals SET status = 'waiting_approval', pause_reason = 'full_moon'; UPDATE jobs SET status = 'waiting_approval'";
    sql(temp.path()).execute_batch(words).unwrap();
    let goal = store.goal(&id("t")).unwrap().unwrap();
    assert_eq!((goal.status, goal.stored_status.as_str()), (GoalStatus::Paused, "waiting_approval"));
    assert_eq!(goal.pause_reason.unwrap().as_str(), "full_moon");
    // What is read and written again is not downgraded, and a budget moves only what is active.
    store.accrue_goal(&id("t"), GoalUsage { tokens: 5, ..GoalUsage::default() }).unwrap();
    store.update_goal(&id("t"), GoalPatch { objective: Some("y".into()), ..GoalPatch::default() }).unwrap();
    store.update_job(&job_id("j"), JobPatch { priority: Some(1), ..JobPatch::default() }).unwrap();
    assert_eq!(store.claim_job(NewJob::QUEUE).unwrap(), None);
    assert_eq!(store.requeue_jobs(None).unwrap(), []);
    let stored = |query: &str| sql(temp.path()).query_row(query, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(stored("SELECT status FROM goals WHERE ended_at IS NULL"), "waiting_approval");
    assert_eq!(stored("SELECT status FROM jobs"), "waiting_approval");
    assert_eq!(store.job(&job_id("j")).unwrap().status, JobStatus::Unknown("waiting_approval".into()));
}

#[test]
fn a_goal_that_can_not_be_is_named_and_hides_nothing_else() {
    for damage in [
        "gap = x'00', gap_repeats = 1, gap_pass = 0",
        "gap = zeroblob(32), gap_repeats = 4, gap_pass = 3",
        "gap = zeroblob(32), gap_repeats = 1, gap_pass = NULL",
        "gap = NULL, gap_repeats = 2, gap_pass = 1",
        "gap = zeroblob(32), gap_repeats = 3, gap_pass = 1",
        "gap = zeroblob(32), gap_repeats = 1, gap_pass = 9",
        "id = x'00'",
    ] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        for name in ["bad", "good"] {
            create(&store, name).set_goal(NewGoal { continuations: 5, ..NewGoal::new("x") }).unwrap();
        }
        sql(temp.path()).execute_batch(&format!("UPDATE goals SET {damage} WHERE thread = 'bad'")).unwrap();
        assert_names(&store.goal(&id("bad")).unwrap_err(), "goal of thread bad");
        assert_names(&store.goal_history(&id("bad"), GoalQuery::default()).unwrap_err(), "goal of thread bad");
        assert_names(&store.accrue_goal(&id("bad"), GoalUsage::default()).unwrap_err(), "goal of thread bad");
        assert!(store.goal(&id("good")).unwrap().is_some(), "{damage}");
        assert_eq!(store.list(ListQuery::default()).unwrap().entries.len(), 2, "{damage}");
        // The way out is to take it away or to set another one.
        assert!(store.clear_goal(&id("bad")).unwrap());
        store.set_goal(&id("bad"), NewGoal::new("anew")).unwrap();
    }
}

#[test]
fn negative_sums_can_not_be_stored() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").set_goal(NewGoal::new("x")).unwrap();
    workspace(&store).add_job(job("j")).unwrap();
    for (table, damage) in [
        ("goals", "tokens_used = -1"),
        ("goals", "continuations = -3"),
        ("goals", "token_budget = -1"),
        ("jobs", "progress = 200"),
        ("jobs", "status = 'running'"),
        ("jobs", "max_attempts = 0"),
    ] {
        let refused = sql(temp.path()).execute_batch(&format!("UPDATE {table} SET {damage}"));
        assert!(refused.is_err(), "{table}: {damage}");
    }
    let second = "INSERT INTO goals SELECT thread, 2, id, objective, status, pause_reason, token_budget, seconds_budget, tokens_used,
        seconds_used, continuations, gap, gap_repeats, gap_pass, created_at, updated_at, ended_at, tick FROM goals";
    assert!(sql(temp.path()).execute_batch(second).is_err(), "a thread got a second goal");
}

#[test]
fn a_checkpoint_that_can_not_be_read_is_named_and_hides_nothing_else() {
    for (damage, words) in
        [("data = CAST('{\"step\": ' AS BLOB)", "hash"), ("encoding = 1", ""), ("encoding = 77", "unknown encoding")]
    {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        let live = create(&store, "t");
        for (name, state) in [("bad", r#"{"step":1}"#), ("good", r#"{"step":2}"#)] {
            live.save_checkpoint(NewCheckpoint::new(name, state)).unwrap();
        }
        let bad = format!(
            "UPDATE checkpoint_states SET {damage} WHERE digest = (SELECT digest FROM checkpoints WHERE name = 'bad')"
        );
        sql(temp.path()).execute_batch(&bad).unwrap();
        let error = store.checkpoint(&id("t"), Some("bad".into())).unwrap_err();
        assert_names(&error, "checkpoint `bad` of thread t");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(store.checkpoint(&id("t"), None).unwrap().unwrap().state, r#"{"step":2}"#);
        assert_eq!(store.checkpoints(&id("t"), CheckpointQuery::default()).unwrap().entries.len(), 2);
        let head = live.head().unwrap();
        assert_names(&live.restore_checkpoint(Some("bad".into())).unwrap_err(), "checkpoint `bad`");
        assert_eq!(live.head().unwrap(), head, "a restore that failed moved the head");
    }
}

/// A state that another program has put there with the right hash, and that is no JSON.
#[test]
fn a_state_that_is_no_json_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").save_checkpoint(NewCheckpoint::new("x", "{}")).unwrap();
    let bytes = b"{not json";
    let hash = threadkeep::Hash::of(bytes).0;
    let database = sql(temp.path());
    database.execute("PRAGMA foreign_keys = OFF", []).unwrap();
    database
        .execute("UPDATE checkpoint_states SET digest = ?1, data = ?2, size = 9, encoding = 0", (&hash[..], &bytes[..]))
        .unwrap();
    database.execute("UPDATE checkpoints SET digest = ?1", [&hash[..]]).unwrap();
    let error = store.checkpoint(&id("t"), None).unwrap_err();
    assert_names(&error, "checkpoint `x` of thread t");
    assert!(error.to_string().contains("no JSON"), "{error}");
}

#[test]
fn a_damaged_job_is_listed_named_and_can_be_deleted() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    workspace(&store).add_job(job("bad")).unwrap();
    workspace(&store).add_job(job("good")).unwrap();
    let damage = "PRAGMA ignore_check_constraints = ON; UPDATE jobs SET max_attempts = -1 WHERE id = 'bad'";
    sql(temp.path()).execute_batch(damage).unwrap();
    assert_names(&store.job(&job_id("bad")).unwrap_err(), "job bad");
    assert_names(&store.claim_job(NewJob::QUEUE).unwrap_err(), "job bad");
    store.job(&job_id("good")).unwrap();
    let listed = store.jobs(JobQuery { ascending: true, ..JobQuery::default() }).unwrap().entries;
    let damages: Vec<_> = listed.iter().map(|job| (job.id.as_str(), job.damage.is_some())).collect();
    assert_eq!(damages, [("bad", true), ("good", false)]);
    store.delete_job(&job_id("bad")).unwrap();
    assert_eq!(store.claim_job(NewJob::QUEUE).unwrap().unwrap().job.id, job_id("good"));
}

#[test]
fn a_store_for_reading_only_changes_no_state() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").set_goal(NewGoal::new("x")).unwrap();
    workspace(&store).add_job(job("j")).unwrap();
    let reader = threadkeep::blocking::Store::open(StoreOptions::folder(temp.path()).read_only()).unwrap();
    assert!(reader.goal(&id("t")).unwrap().is_some());
    let refused: [Result<(), Error>; 4] = [
        reader.set_goal(&id("t"), NewGoal::new("y")).map(drop),
        reader.accrue_goal(&id("t"), GoalUsage::default()).map(drop),
        reader.claim_job(NewJob::QUEUE).map(drop),
        reader.update_job(&job_id("j"), JobPatch { priority: Some(3), ..JobPatch::default() }).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
}
