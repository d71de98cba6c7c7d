//! What CodeWhale keeps beside a thread, in the library's words.

use std::path::Path;

use threadkeep::{GoalId, GoalStatus, Hash, NewGoal, PauseReason, RunStatus, Stall, Status, Tool, Uuid};

use crate::codec::{Aside, Skip};
use crate::companion::{Companion, PartWords, Shared};
use crate::rows::Row;

/// How far the thread is; nothing where there is nothing to say.
pub(super) fn standing(row: &Row) -> Option<Companion> {
    let status = row.word("status")?;
    // Archived is a shelf and no status, and what runs there does not run here.
    (!matches!(status.as_str(), "archived" | "idle" | "running"))
        .then(|| Companion::Standing { status: Status::from_word(&status), end_reason: None })
}

pub(super) fn companion(row: &Row) -> Result<Option<Companion>, Skip> {
    match row.table() {
        "thread_goals" => goal(row).map(Some),
        "checkpoints" => checkpoint(row).map(Some),
        _ => Ok(None),
    }
}

fn checkpoint(row: &Row) -> Result<Companion, Skip> {
    let (name, state) = (row.required("checkpoint_id")?, row.required("state_json")?);
    if serde_json::from_str::<serde::de::IgnoredAny>(state).is_err() {
        return Err(row.wrong("state_json", "no JSON"));
    }
    if name.is_empty() {
        return Err(row.wrong("checkpoint_id", "nothing"));
    }
    Ok(Companion::Checkpoint { name: name.to_owned(), state: state.to_owned() })
}

fn goal(row: &Row) -> Result<Companion, Skip> {
    let id = row.required("goal_id")?;
    let status = row.word("status").unwrap_or_default();
    let pause = row.word("pause_reason");
    let pause = pause.map(|word| PauseReason::from_word(&serde_json::from_str::<String>(&word).unwrap_or(word)));
    let continuations = row.count("continuation_count")?.unwrap_or_default();
    let stall = match (row.text("last_gap_fingerprint")?, row.count("repeated_gap_count")?, row.count("last_gap_pass")?)
    {
        (None, None | Some(0), None) => None,
        (Some(fingerprint), Some(repeats), Some(pass)) => {
            let fingerprint = digest(fingerprint).ok_or_else(|| row.wrong("last_gap_fingerprint", "no digest"))?;
            Some(Stall { fingerprint, repeats, pass })
        }
        _ => return Err(row.wrong("repeated_gap_count", "half of a stall")),
    };
    Ok(Companion::Goal(Box::new(NewGoal {
        id: Some(goal_id(id)),
        objective: row.required("objective")?.to_owned(),
        status: Some(GoalStatus::from_word(&status)),
        pause_reason: pause,
        token_budget: row.count("token_budget")?,
        seconds_budget: None,
        tokens_used: row.count("tokens_used")?.unwrap_or_default(),
        seconds_used: row.count("time_used_seconds")?.unwrap_or_default(),
        continuations,
        stall,
        created_at: row.seconds("created_at"),
    })))
}

/// The goal that the terminal program keeps beside a session: the columns of the database as a document.
pub(super) fn sidecar(session: &Path, bytes: &[u8]) -> Aside {
    let mut aside = Aside::new(|_| {});
    let read = Row::read(bytes).and_then(|mut row| {
        row.set("table", "thread_goals".into());
        if row.word("goal_id").is_none() {
            row.set("goal_id", session.file_stem().unwrap_or_default().to_string_lossy().into());
        }
        goal(&row)
    });
    match read {
        Ok(goal) => aside.companions.push(goal),
        Err(skip) => aside.remarks.push(format!("the goal beside it: {skip}")),
    }
    aside
}

/// The id that a goal of CodeWhale's has here.
pub(super) fn goal_id(id: &str) -> GoalId {
    GoalId::from_uuid(uuid_of("goal", id))
}

fn digest(hex: &str) -> Option<Hash> {
    let is_digest = hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_digest {
        return None;
    }
    let mut digest = [0; 32];
    for (to, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *to = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Hash(digest))
}

/// An id of the agent's as a UUID: itself where it is one.
fn uuid_of(what: &str, id: &str) -> Uuid {
    Uuid::parse_str(id).unwrap_or_else(|_| {
        let mut hasher = blake3::Hasher::new_derive_key("threadkeep 2026 ids of imported companions");
        hasher.update(what.as_bytes()).update(&[0]).update(id.as_bytes());
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        Uuid::from_u128(uuid::Builder::from_random_bytes(bytes).into_uuid().as_u128())
    })
}

pub(super) fn tool(row: &Row) -> Result<Tool, Skip> {
    let schema = row.text("input_schema")?.or(row.text("input_schema_json")?).unwrap_or("{}");
    let mut tool = Tool::new(row.required("name")?, schema);
    tool.description = row.text("description")?.map(str::to_owned);
    Ok(tool)
}

/// What belongs to no thread.
pub(super) fn shared(row: &Row) -> Result<Option<Shared>, Skip> {
    let text = |column: &str| row.text(column).map(|text| text.map(str::to_owned));
    let must = |column: &str| row.required(column).map(str::to_owned);
    Ok(Some(match row.table() {
        "jobs" => Shared::Job {
            id: must("id")?,
            name: must("name")?,
            status: row.word("status").unwrap_or_default(),
            progress: row
                .count("progress")?
                .and_then(|progress| u8::try_from(progress).ok())
                .map(|progress| progress.min(100)),
            detail: text("detail")?,
            row: row.json(),
        },
        "workflow_runs" => Shared::Run {
            id: must("id")?,
            workflow: must("workflow_id")?,
            goal: text("goal")?,
            status: status(row),
            input_hash: text("input_hash")?,
            metadata: text("metadata_json")?,
        },
        "branch_runs" => Shared::Part {
            id: must("id")?,
            run: must("workflow_run_id")?,
            kind: PartWords::Branch { branch: must("branch_id")?, node: must("node_id")? },
            status: status(row),
            result: text("result_json")?,
            list: None,
        },
        "control_node_runs" => Shared::Part {
            id: must("id")?,
            run: must("workflow_run_id")?,
            kind: PartWords::Control { node: must("node_id")?, control: must("kind")? },
            status: status(row),
            result: text("result_json")?,
            list: text("selected_children_json")?,
        },
        "leaf_runs" => Shared::Part {
            id: must("id")?,
            run: must("workflow_run_id")?,
            kind: PartWords::Leaf {
                leaf: must("leaf_id")?,
                task: must("task_id")?,
                branch_run: text("branch_run_id")?,
                input_hash: text("input_hash")?,
            },
            status: status(row),
            result: text("output_json")?,
            list: text("artifacts_json")?,
        },
        "teacher_candidates" => Shared::Candidate {
            id: must("id")?,
            run: must("workflow_run_id")?,
            control: must("control_node_run_id")?,
            branch_run: text("branch_run_id")?,
            candidate: must("candidate_id")?,
            score: row.number("score")?,
            passed: row.int("passed")?.map(|passed| passed != 0),
            rationale: text("rationale_json")?,
        },
        _ => return Ok(None),
    }))
}

/// How far a run or a part of one is. What runs there does not run here: nobody is at work on it.
fn status(row: &Row) -> RunStatus {
    match row.word("status").as_deref() {
        Some("completed" | "succeeded" | "success" | "done") => RunStatus::Completed,
        Some("failed" | "error") => RunStatus::Failed,
        Some("cancelled" | "canceled" | "skipped") => RunStatus::Cancelled,
        Some("pending" | "queued") => RunStatus::Pending,
        _ => RunStatus::Paused,
    }
}

#[cfg(test)]
mod tests {
    use threadkeep::{GoalStatus, PauseReason};

    use super::{companion, shared};
    use crate::companion::{Companion, Shared};
    use crate::rows::Row;

    fn goal(more: &str) -> Result<Companion, String> {
        let row = format!(
            r#"{{"table":"thread_goals","thread_id":"t","goal_id":"g","objective":"o","status":"paused"{more}}}"#
        );
        companion(&Row::read(row.as_bytes()).unwrap()).map(Option::unwrap).map_err(|skip| skip.reason)
    }

    #[test]
    fn goals_of_every_schema_are_read() {
        let Ok(Companion::Goal(old)) = goal("") else { panic!() };
        assert_eq!((old.status, old.pause_reason, old.stall), (Some(GoalStatus::Paused), None, None));
        let digest = "ab".repeat(32);
        let more = format!(
            r#","pause_reason":"\"no_progress\"","continuation_count":4,"last_gap_fingerprint":"{digest}","repeated_gap_count":2,"last_gap_pass":3"#
        );
        let Ok(Companion::Goal(new)) = goal(&more) else { panic!() };
        assert_eq!(new.pause_reason, Some(PauseReason::NoProgress));
        assert_eq!(new.stall.map(|stall| (stall.repeats, stall.pass)), Some((2, 3)));
    }

    #[test]
    fn goals_that_say_what_can_not_be_are_named() {
        let wrong = goal(r#","tokens_used":-1"#).unwrap_err();
        assert_eq!(wrong, "row t of thread_goals: a negative number in `tokens_used`");
        assert_eq!(
            goal(r#","tokens_used":1.8e19"#).unwrap_err(),
            "row t of thread_goals: no whole number in `tokens_used`"
        );
        assert!(goal(r#","last_gap_fingerprint":"xyz","repeated_gap_count":1,"last_gap_pass":0"#).is_err());
        assert!(goal(r#","repeated_gap_count":1"#).is_err());
    }

    #[test]
    fn checkpoints_that_are_no_json_are_named() {
        let row = Row::read(br#"{"table":"checkpoints","thread_id":"t","checkpoint_id":"latest","state_json":"{"}"#);
        assert_eq!(companion(&row.unwrap()).unwrap_err().reason, "row t of checkpoints: no JSON in `state_json`");
    }

    #[test]
    fn rows_of_no_thread_are_jobs_and_runs() {
        let read = |row: &str| shared(&Row::read(row.as_bytes()).unwrap()).unwrap();
        let job = read(r#"{"table":"jobs","id":"j","name":"n","status":"running","progress":200,"detail":null}"#);
        assert!(matches!(job, Some(Shared::Job { progress: Some(100), .. })));
        let candidate = read(
            r#"{"table":"teacher_candidates","id":"c","workflow_run_id":"r","control_node_run_id":"n","candidate_id":"x","score":0.75,"passed":1}"#,
        );
        assert!(matches!(candidate, Some(Shared::Candidate { passed: Some(true), score: Some(_), .. })));
        assert_eq!(read(r#"{"table":"other"}"#), None);
    }
}
