//! Secrets in what stands beside the log: masked as they are written, and taken out later.

use std::path::Path;

use threadkeep::{
    GoalPatch, GoalQuery, JobEnd, JobQuery, NewCheckpoint, NewGoal, NewJob, RedactOptions, Rules, StoreOptions,
};

use super::{create, id, job, job_id, open, workspace};

pub(crate) const SECRET: &str = "hunter2-7pQ2vX9mZ4tR8wN3cB6jL1hF5sD0g";

pub(crate) fn because(reason: &str) -> RedactOptions {
    RedactOptions { reason: reason.to_owned(), ..RedactOptions::default() }
}

/// Files below a folder in which the secret stands.
pub(crate) fn holding(folder: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                waiting.push(path);
            } else if memchr::memmem::find(&std::fs::read(&path).unwrap(), SECRET.as_bytes()).is_some() {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn rules_reach_goals_jobs_and_checkpoints_and_leave_no_byte_in_the_files() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = create(&store, "t");
    live.set_goal(NewGoal::new(format!("log in with {SECRET}"))).unwrap();
    live.set_goal(NewGoal::new("harmless")).unwrap();
    for name in ["one", "same"] {
        live.save_checkpoint(NewCheckpoint::new(name, format!(r#"{{"env":{{"PASSWORD":"{SECRET}"}},"step":1}}"#)))
            .unwrap();
    }
    live.save_checkpoint(NewCheckpoint::new("clean", "[]")).unwrap();
    live.shutdown().unwrap();
    let payload = Some(format!(r#"["{SECRET}", 1]"#));
    let place = workspace(&store);
    place.add_job(NewJob { payload: payload.clone(), thread: Some(id("t")), ..job("of-thread") }).unwrap();
    place.add_job(NewJob { payload, detail: Some(SECRET.to_owned()), ..job("of-none") }).unwrap();
    let claimed = place.claim_job(NewJob::QUEUE).unwrap().unwrap();
    let failed = JobEnd::Failed { error: format!("{SECRET} was refused"), retry: true };
    store.end_job(&claimed.lease, failed).unwrap();

    let rules = || Rules::literal(SECRET).unwrap();
    let dry = store.redact_matching(None, rules(), because(""), false, |_, _| {}).unwrap();
    assert_eq!(dry.beside[&id("t")], ["checkpoint", "goal", "job"].map(str::to_owned).into());
    assert_eq!(dry.jobs, 1);
    assert!(!holding(temp.path()).is_empty(), "this proves nothing");
    let report = store.redact_matching(None, rules(), because("it was pasted"), true, |_, _| {}).unwrap();
    assert_eq!((&report.beside, report.jobs, report.problems.len()), (&dry.beside, 1, 0));
    assert_eq!(holding(temp.path()), Vec::<std::path::PathBuf>::new());

    let goals = store.goal_history(&id("t"), GoalQuery::default()).unwrap().entries;
    assert_eq!(goals[0].objective, "harmless");
    assert!(goals[1].objective.starts_with("log in with ") && !goals[1].objective.contains(SECRET), "{:?}", goals[1]);
    for name in ["one", "same"] {
        let state = store.checkpoint(&id("t"), Some(name.into())).unwrap().unwrap().state;
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        assert_eq!(state["step"], 1, "the rest of the state is gone");
    }
    assert_eq!(
        store.checkpoint(&id("t"), None).unwrap().unwrap().info.name,
        "clean",
        "masking made another one the latest"
    );
    for name in ["of-thread", "of-none"] {
        let payload = store.job(&job_id(name)).unwrap().payload.unwrap();
        let payload: serde_json::Value = serde_json::from_str(&payload).unwrap();
        assert_eq!(payload[1], 1, "{name}");
    }
    let again = store.redact_matching(None, rules(), because("once more"), true, |_, _| {}).unwrap();
    assert_eq!((again.beside.len(), again.jobs), (0, 0), "{again:?}");
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
}

/// A redaction in one thread does not look at the jobs of none.
#[test]
fn what_is_asked_for_a_thread_stays_with_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").set_goal(NewGoal::new(SECRET)).unwrap();
    create(&store, "other").set_goal(NewGoal::new(SECRET)).unwrap();
    workspace(&store).add_job(NewJob { detail: Some(SECRET.to_owned()), ..job("of-none") }).unwrap();
    let rules = Rules::literal(SECRET).unwrap();
    store.redact_matching(Some(vec![id("t")]), rules, because("there"), true, |_, _| {}).unwrap();
    assert_ne!(store.goal(&id("t")).unwrap().unwrap().objective, SECRET);
    assert_eq!(store.goal(&id("other")).unwrap().unwrap().objective, SECRET);
    assert_eq!(store.job(&job_id("of-none")).unwrap().detail.as_deref(), Some(SECRET));
}

#[test]
fn what_is_screened_at_writing_is_never_stored() {
    let temp = tempfile::tempdir().unwrap();
    let options = StoreOptions::folder(temp.path()).mask_at_write(Rules::literal(SECRET).unwrap());
    let store = threadkeep::blocking::Store::open(options).unwrap();
    let live = create(&store, "t");
    live.set_goal(NewGoal::new(format!("with {SECRET}"))).unwrap();
    live.update_goal(GoalPatch { objective: Some(SECRET.to_owned()), ..GoalPatch::default() }).unwrap();
    live.save_checkpoint(NewCheckpoint::new("x", format!(r#"["{SECRET}"]"#))).unwrap();
    let text = || Some(SECRET.to_owned());
    let new = NewJob { detail: text(), payload: Some(format!("\"{SECRET}\"")), ..NewJob::new(SECRET) };
    workspace(&store).add_job(new).unwrap();
    let lease = store.claim_job(NewJob::QUEUE).unwrap().unwrap().lease;
    store.report_job(&lease, threadkeep::JobReport { progress: None, detail: text() }).unwrap();
    store.end_job(&lease, JobEnd::Completed { result: Some(format!("[\"{SECRET}\"]")) }).unwrap();
    assert_eq!(store.jobs(JobQuery::default()).unwrap().entries.len(), 1);
    store.sync().unwrap();
    assert_eq!(holding(temp.path()), Vec::<std::path::PathBuf>::new());
}
