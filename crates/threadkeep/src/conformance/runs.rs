//! Workflow runs.

use super::{ensure, ensure_eq, ensure_err, promises, thread_with, workspace};
use crate::blocking::{Store, Threads};
use crate::error::Error;
use crate::{
    CandidateQuery, Change, Judgement, NewCandidate, NewPart, NewRun, PartEnd, PartId, PartKind, ReplayFrom, Run,
    RunEnd, RunId, RunNode, RunPart, RunPatch, RunQuery, RunStatus, Score, TreeQuery,
};

fn run_id(id: &str) -> Result<RunId, Error> {
    RunId::new(id)
}

fn named(id: &str) -> NewRun {
    NewRun { id: RunId::new(id).ok(), ..NewRun::new("review") }
}

fn start(store: &Store, id: &str) -> Result<Run, Error> {
    workspace(store)?.start_run(named(id))
}

fn branch(name: &str) -> NewPart {
    let kind = PartKind::Branch { branch: name.to_owned(), node: "split".to_owned() };
    NewPart { id: PartId::new(name).ok(), ..NewPart::new(kind) }
}

fn control(name: &str) -> NewPart {
    let kind = PartKind::Control { node: name.to_owned(), control: "best_of".to_owned() };
    NewPart { id: PartId::new(name).ok(), ..NewPart::new(kind) }
}

/// A leaf `lint` under an id, for an input.
fn leaf(id: &str, on: Option<&PartId>, input: Option<&str>) -> NewPart {
    let (leaf, task) = ("lint".to_owned(), "run the linter".to_owned());
    let kind = PartKind::Leaf { leaf, task, branch_run: on.cloned(), input_hash: input.map(str::to_owned) };
    NewPart { id: PartId::new(id).ok(), ..NewPart::new(kind) }
}

fn ended(status: RunStatus) -> RunEnd {
    RunEnd { status, reason: None }
}

fn failed(reason: &str) -> PartEnd {
    PartEnd { status: RunStatus::Failed, result: None, list: None, reason: Some(reason.to_owned()) }
}

fn status(status: RunStatus) -> RunPatch {
    RunPatch { status: Some(status), ..RunPatch::default() }
}

fn unknown() -> RunStatus {
    RunStatus::Unknown("waiting_approval".to_owned())
}

/// A leaf that is done.
fn done(store: &Store, run: &RunId, id: &str, input: &str, output: &str) -> Result<RunPart, Error> {
    let part = store.start_part(run, leaf(id, None, Some(input)))?;
    store.end_part(&part.id, PartEnd::completed(output))
}

fn replayed(store: &Threads, run: &RunId, input: &str, from: ReplayFrom) -> Result<Option<String>, Error> {
    Ok(store.replay_leaf(run, "lint", input, from)?.map(|leaf| leaf.id.to_string()))
}

fn listed(store: &Threads, query: RunQuery) -> Result<Vec<String>, Error> {
    let (mut query, mut ids) = (query, Vec::new());
    loop {
        let page = store.runs(query.clone())?;
        ids.extend(page.entries.iter().map(|run| run.id.to_string()));
        match page.next_cursor {
            None => return Ok(ids),
            cursor => query.cursor = cursor,
        }
    }
}

/// The tree, in pages of a size: how far in each node stands, and its id.
fn tree(store: &Store, run: &RunId, limit: usize) -> Result<Vec<String>, Error> {
    let (mut query, mut lines) = (TreeQuery { limit, cursor: None }, Vec::new());
    loop {
        let page = store.run_tree(run, query.clone())?;
        lines.extend(page.nodes.iter().map(|node| match node {
            RunNode::Part(part) => format!("{}{}", "-".repeat(node.depth()), part.id),
            RunNode::Candidate(candidate) => format!("{}{}", "-".repeat(node.depth()), candidate.id),
        }));
        match page.next_cursor {
            None => return Ok(lines),
            cursor => query.cursor = cursor,
        }
    }
}

promises! {
    /// A run comes back as it was started, and ends once, with its time.
    fn a_run_is_started_and_ended(store) {
        let thread = thread_with(store, &["x"])?;
        let new = NewRun {
            thread: Some(thread.id().clone()),
            goal: Some("review it \u{1F9F5}".to_owned()),
            input_hash: Some("sha256:12".to_owned()),
            metadata: Some(r#"{"nul": "\u0000","big":123456789012345678901234567890}"#.to_owned()),
            ..named("r-1")
        };
        let started = store.start_run(new.clone())?;
        ensure_eq!(store.run(&started.id)?, started);
        ensure_eq!((&started.thread, &started.goal, &started.metadata), (&new.thread, &new.goal, &new.metadata));
        ensure_eq!((&started.workflow, &started.input_hash, &started.status), (&new.workflow, &new.input_hash, &RunStatus::Running));
        ensure_eq!((started.completed_at, started.reason.as_deref()), (None, None));
        let end = RunEnd { status: RunStatus::Failed, reason: Some("the linter is missing".to_owned()) };
        let run = store.end_run(&started.id, end.clone())?;
        ensure_eq!((&run.status, &run.reason), (&RunStatus::Failed, &end.reason));
        ensure!(run.completed_at.is_some_and(|at| at >= run.started_at) && run.tick > started.tick);
        ensure_eq!(store.end_run(&run.id, end)?, run);
        ensure_err!(store.end_run(&run.id, ended(RunStatus::Failed)), Error::Conflict { what: "run", .. });
        ensure_err!(store.end_run(&run.id, ended(RunStatus::Completed)), Error::Conflict { what: "run", .. });
        ensure_err!(store.update_run(&run.id, status(RunStatus::Running)), Error::Conflict { what: "run", .. });
        ensure_eq!(store.run(&run.id)?, run);
        ensure_eq!(store.find_run("r-")?, run.id);
        ensure_err!(store.find_run("q"), Error::NotFound { what: "run", .. });
        ensure!(workspace(store)?.start_run(NewRun::new("review"))?.id != run.id);
    }

    /// A repeated start finds the run, whatever has become of it; another run under its id is refused.
    fn a_repeated_start_finds_the_run(store) {
        let first = start(store, "r")?;
        let ended = store.end_run(&first.id, ended(RunStatus::Completed))?;
        ensure_eq!(start(store, "r")?, ended);
        let place = workspace(store)?;
        ensure_err!(place.start_run(NewRun { goal: Some("x".to_owned()), ..named("r") }), Error::AlreadyExists { what: "run", .. });
        let other = store.workspace("/conformance/elsewhere".as_ref())?;
        ensure_err!(other.start_run(named("r")), Error::AlreadyExists { what: "run", .. });
        ensure_err!(store.start_run(NewRun::new("review")), Error::Invalid { field: "thread", .. });
    }

    /// Runs and what belongs to them are refused when they can't be kept.
    fn runs_that_can_not_be_are_refused(store) {
        let place = workspace(store)?;
        let text = |text: &str| Some(text.to_owned());
        for (field, new) in [
            ("workflow", NewRun::new(" ")),
            ("workflow", NewRun::new("x".repeat(257))),
            ("goal", NewRun { goal: text("\0"), ..NewRun::new("w") }),
            ("input_hash", NewRun { input_hash: text(""), ..NewRun::new("w") }),
            ("metadata", NewRun { metadata: text("{"), ..NewRun::new("w") }),
            ("status", NewRun { status: Some(RunStatus::Completed), ..NewRun::new("w") }),
            ("status", NewRun { status: Some(RunStatus::Interrupted), ..NewRun::new("w") }),
        ] {
            match place.start_run(new) {
                Err(Error::Invalid { field: found, .. }) => ensure_eq!(found, field),
                other => ensure_eq!(format!("{other:?}"), field),
            }
        }
        let run = start(store, "r")?;
        let part = store.start_part(&run.id, leaf("l", None, None))?;
        for (field, end) in [
            ("result", PartEnd { result: text("nothing"), ..PartEnd::completed("1") }),
            ("list", PartEnd { list: text("{}"), ..PartEnd::completed("1") }),
            ("list", PartEnd { list: text("["), ..PartEnd::completed("1") }),
            ("reason", PartEnd { reason: text("\0"), ..PartEnd::completed("1") }),
            ("status", PartEnd { status: RunStatus::Running, ..PartEnd::completed("1") }),
            ("status", PartEnd { status: RunStatus::Interrupted, ..PartEnd::completed("1") }),
            ("status", PartEnd { status: unknown(), ..PartEnd::completed("1") }),
        ] {
            match store.end_part(&part.id, end) {
                Err(Error::Invalid { field: found, .. }) => ensure_eq!(found, field),
                other => ensure_eq!(format!("{other:?}"), field),
            }
        }
        let on = store.start_part(&run.id, branch("b"))?;
        ensure_err!(store.end_part(&on.id, PartEnd { list: text("[]"), ..PartEnd::completed("1") }), Error::Invalid { field: "list", .. });
        ensure_err!(store.mark_part(&part.id, RunStatus::Failed), Error::Invalid { field: "status", .. });
        ensure_err!(store.update_run(&run.id, status(RunStatus::Completed)), Error::Invalid { field: "status", .. });
        ensure_err!(store.end_run(&run.id, ended(RunStatus::Paused)), Error::Invalid { field: "status", .. });
        ensure_eq!(store.part(&part.id)?, part);
    }

    /// A branch, a leaf on it and a control node come back as they were started, and end with what came of them.
    fn the_parts_of_a_run_are_started_and_ended(store) {
        let run = start(store, "r")?;
        let on = store.start_part(&run.id, branch("b"))?;
        let part = store.start_part(&run.id, leaf("l", Some(&on.id), Some("h")))?;
        let node = store.start_part(&run.id, control("c"))?;
        ensure_eq!((&part.kind, part.place > on.place), (&leaf("l", Some(&on.id), Some("h")).kind, true));
        ensure_eq!((store.part(&part.id)?, store.part(&node.id)?), (part.clone(), node.clone()));
        let text = |text: &str| Some(text.to_owned());
        let end = PartEnd { list: text(r#"["report.txt" ]"#), ..PartEnd::completed(r#"{"warnings": 3, "x":1e400}"#) };
        let told = store.end_part(&part.id, end.clone())?;
        ensure_eq!((&told.result, &told.list, &told.status), (&end.result, &end.list, &RunStatus::Completed));
        ensure!(told.completed_at.is_some_and(|at| at >= told.started_at));
        let chosen = PartEnd { list: text(r#"["b"]"#), ..PartEnd::completed("null") };
        ensure_eq!(store.end_part(&node.id, chosen)?.list.as_deref(), Some(r#"["b"]"#));
        ensure_eq!(store.end_part(&on.id, failed("no"))?.reason.as_deref(), Some("no"));
        ensure_eq!(store.start_part(&run.id, leaf("l", Some(&on.id), Some("h")))?, told);
        ensure_err!(store.start_part(&run.id, leaf("l", None, Some("h"))), Error::AlreadyExists { what: "part", .. });
        ensure!(store.start_part(&run.id, NewPart { id: None, ..leaf("", None, None) })?.id != part.id);
        ensure_eq!((store.find_part("l")?, store.find_part("b")?), (part.id, on.id));
    }

    /// Who ends a part twice with the same answer finds it ended; another answer is a conflict.
    fn a_part_ends_once(store) {
        let run = start(store, "r")?;
        let part = store.start_part(&run.id, leaf("l", None, None))?;
        let told = store.end_part(&part.id, PartEnd::completed("1"))?;
        ensure_eq!(store.end_part(&part.id, PartEnd::completed("1"))?, told);
        for other in [PartEnd::completed("2"), failed("x"), PartEnd { list: Some("[]".to_owned()), ..PartEnd::completed("1") }] {
            ensure_err!(store.end_part(&part.id, other), Error::Conflict { what: "part", .. });
        }
        ensure_err!(store.mark_part(&part.id, RunStatus::Running), Error::Conflict { what: "part", .. });
        ensure_eq!(store.part(&part.id)?, told);
        let tick = store.run(&run.id)?.tick;
        store.end_part(&part.id, PartEnd::completed("1"))?;
        ensure_eq!(store.run(&run.id)?.tick, tick);
    }

    /// A part is started in a run that runs; a pending one may wait in a pending or paused run.
    fn parts_are_started_in_runs_that_run(store) {
        let pending = |id: &str| NewPart { status: Some(RunStatus::Pending), ..leaf(id, None, None) };
        let run = workspace(store)?.start_run(NewRun { status: Some(RunStatus::Pending), ..named("r") })?;
        ensure_err!(store.start_part(&run.id, leaf("l", None, None)), Error::Conflict { what: "run", .. });
        let planned = store.start_part(&run.id, pending("p"))?;
        ensure_err!(store.mark_part(&planned.id, RunStatus::Running), Error::Conflict { what: "run", .. });
        let running = store.update_run(&run.id, status(RunStatus::Running))?;
        ensure!(running.started_at >= run.started_at);
        ensure_eq!(store.mark_part(&planned.id, RunStatus::Running)?.status, RunStatus::Running);
        ensure_eq!(store.mark_part(&planned.id, RunStatus::Paused)?.status, RunStatus::Paused);
        store.update_run(&run.id, status(RunStatus::Paused))?;
        ensure_err!(store.start_part(&run.id, leaf("l", None, None)), Error::Conflict { what: "run", .. });
        // What came of it counts, though the run waits.
        ensure_eq!(store.end_part(&planned.id, PartEnd::completed("1"))?.status, RunStatus::Completed);
        store.end_run(&run.id, ended(RunStatus::Cancelled))?;
        ensure_err!(store.start_part(&run.id, pending("q")), Error::Conflict { what: "run", .. });
        ensure_err!(store.start_part(&run_id("absent")?, pending("q")), Error::NotFound { what: "run", .. });
    }

    /// An unknown status is kept and shown, and is neither begun, ended, interrupted nor used again.
    fn an_unknown_status_of_a_run_is_inert(store) {
        let run = workspace(store)?.start_run(NewRun { status: Some(unknown()), ..named("r") })?;
        ensure_eq!(store.run(&run.id)?.status, unknown());
        ensure_err!(store.update_run(&run.id, status(RunStatus::Running)), Error::Conflict { .. });
        ensure_err!(store.end_run(&run.id, ended(RunStatus::Completed)), Error::Conflict { .. });
        ensure_err!(store.start_part(&run.id, leaf("l", None, None)), Error::Conflict { .. });
        ensure_eq!(store.interrupt_run(&run.id, "x")?.run, run);
        let metadata = RunPatch { metadata: Change::Set("1".to_owned()), ..RunPatch::default() };
        ensure_eq!(store.update_run(&run.id, metadata)?.status, unknown());
        let other = start(store, "s")?;
        let part = store.start_part(&other.id, NewPart { status: Some(unknown()), ..leaf("l", None, Some("h")) })?;
        ensure_err!(store.end_part(&part.id, PartEnd::completed("1")), Error::Conflict { .. });
        ensure_err!(store.mark_part(&part.id, RunStatus::Running), Error::Conflict { .. });
        ensure_eq!(store.interrupt_run(&other.id, "x")?.parts, 0);
        ensure_eq!((store.part(&part.id)?.status, replayed(store, &other.id, "h", ReplayFrom::Workflow)?), (unknown(), None));
        ensure_eq!(listed(store, RunQuery { status: Some(unknown()), ..RunQuery::default() })?, ["r"]);
    }

    /// Output is used again from a completed leaf of the same input alone, the one that was started last.
    fn output_is_used_again_for_the_same_input(store) {
        let run = start(store, "r")?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Run)?, None);
        let first = store.start_part(&run.id, leaf("first", None, Some("h")))?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Run)?, None);
        store.end_part(&first.id, failed("x"))?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Run)?, None);
        let told = done(store, &run.id, "second", "h", r#"{"out":1}"#)?;
        ensure_eq!(store.replay_leaf(&run.id, "lint", "h", ReplayFrom::Run)?, Some(told));
        store.start_part(&run.id, leaf("third", None, Some("h")))?;
        done(store, &run.id, "other-input", "g", "1")?;
        store.end_part(&store.start_part(&run.id, leaf("no-input", None, None))?.id, PartEnd::completed("1"))?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Run)?.as_deref(), Some("second"));
        done(store, &run.id, "fourth", "h", "4")?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Run)?.as_deref(), Some("fourth"));
        ensure_eq!(store.replay_leaf(&run.id, "test", "h", ReplayFrom::Run)?, None);
        ensure_err!(store.replay_leaf(&run_id("absent")?, "lint", "h", ReplayFrom::Run), Error::NotFound { what: "run", .. });
    }

    /// Output of other runs of the workflow is used again when that is asked for, and never that of another workspace or workflow.
    fn output_of_other_runs_is_used_again_on_demand(store) {
        let (old, newer, run) = (start(store, "old")?, start(store, "newer")?, start(store, "run")?);
        let elsewhere = store.workspace("/conformance/elsewhere".as_ref())?.start_run(named("elsewhere"))?;
        let another = workspace(store)?.start_run(NewRun { workflow: "deploy".to_owned(), ..named("another") })?;
        for other in [&old, &elsewhere, &another] {
            done(store, &other.id, &format!("of-{}", other.id), "h", "1")?;
        }
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Run)?, None);
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Workflow)?.as_deref(), Some("of-old"));
        done(store, &newer.id, "of-newer", "h", "1")?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Workflow)?.as_deref(), Some("of-newer"));
        done(store, &old.id, "of-old-again", "h", "1")?;
        ensure_eq!(replayed(store, &run.id, "h", ReplayFrom::Workflow)?.as_deref(), Some("of-newer"));
        ensure_eq!(replayed(store, &old.id, "h", ReplayFrom::Workflow)?.as_deref(), Some("of-old-again"));
    }

    /// Candidates come back as they were given, are judged once, and the best of a control node come first.
    fn candidates_are_judged_once_and_sorted(store) {
        let run = start(store, "r")?;
        let (on, node) = (store.start_part(&run.id, branch("b"))?, store.start_part(&run.id, control("c"))?);
        let scored = |id: &str, score: Option<&str>| {
            let judgement = Judgement { score: score.map(Score::new).transpose()?, ..Judgement::default() };
            let new = NewCandidate { id: PartId::new(id).ok(), judgement, ..NewCandidate::new(node.id.clone(), id) };
            store.add_candidate(&run.id, new)
        };
        for (id, score) in [("half", Some("0.50")), ("none", None), ("minus", Some("-2")), ("one", Some("1e0")), ("small", Some("1e-300"))] {
            ensure_eq!(scored(id, score)?.judgement.score.as_ref().map(Score::as_str), score);
        }
        scored("equal", Some("0.5"))?;
        let order = |limit: usize| {
            let (mut query, mut ids) = (CandidateQuery { limit, cursor: None }, Vec::new());
            loop {
                let page = store.candidates(&node.id, query.clone())?;
                ids.extend(page.entries.into_iter().map(|candidate| candidate.candidate));
                match page.next_cursor {
                    None => return Ok::<_, Error>(ids),
                    cursor => query.cursor = cursor,
                }
            }
        };
        for limit in [1, 2, 100] {
            ensure_eq!(order(limit)?, ["one", "half", "equal", "small", "minus", "none"]);
        }
        let judgement = Judgement { score: Some(Score::from_f64(7.25)?), passed: Some(false), rationale: Some(r#"{"a": 1}"#.to_owned()) };
        let none = PartId::new("none")?;
        let told = store.judge_candidate(&none, judgement.clone())?;
        ensure_eq!((&told.judgement, &store.judge_candidate(&none, judgement.clone())?), (&judgement, &told));
        ensure_err!(store.judge_candidate(&none, Judgement { passed: Some(true), ..judgement.clone() }), Error::Conflict { what: "candidate", .. });
        ensure_eq!(order(100)?, ["none", "one", "half", "equal", "small", "minus"]);
        ensure_eq!(scored("none", None)?, told);
        ensure_err!(store.judge_candidate(&none, Judgement { rationale: Some("{".to_owned()), ..judgement }), Error::Invalid { field: "rationale", .. });
        ensure_err!(Score::new("NaN"), Error::Invalid { field: "score", .. });
        let from = NewCandidate { id: PartId::new("from").ok(), branch_run: Some(on.id.clone()), ..NewCandidate::new(node.id.clone(), "x") };
        ensure_eq!(store.add_candidate(&run.id, from.clone())?.branch_run, Some(on.id.clone()));
        ensure_err!(store.add_candidate(&run.id, NewCandidate { branch_run: None, ..from.clone() }), Error::AlreadyExists { what: "candidate", .. });
        ensure_err!(store.add_candidate(&run.id, NewCandidate { id: None, control: on.id.clone(), ..from.clone() }), Error::NotFound { .. });
        ensure_err!(store.add_candidate(&run.id, NewCandidate { id: None, branch_run: Some(node.id.clone()), ..from }), Error::NotFound { .. });
        ensure_eq!(store.find_candidate("fro")?.as_str(), "from");
    }

    /// What belongs to a run names what is of the same run.
    fn parts_stay_in_their_run(store) {
        let (run, other) = (start(store, "r")?, start(store, "s")?);
        let (on, node) = (store.start_part(&other.id, branch("b"))?, store.start_part(&other.id, control("c"))?);
        ensure_err!(store.start_part(&run.id, leaf("l", Some(&on.id), None)), Error::NotFound { .. });
        ensure_err!(store.start_part(&other.id, leaf("l", Some(&node.id), None)), Error::NotFound { .. });
        ensure_err!(store.start_part(&run.id, branch("b")), Error::AlreadyExists { what: "part", .. });
        ensure_err!(store.add_candidate(&run.id, NewCandidate::new(node.id, "x")), Error::NotFound { .. });
        ensure_eq!(tree(store, &run.id, 10)?, Vec::<String>::new());
    }

    /// Runs and what belongs to them are not seen through another workspace.
    fn runs_stay_in_their_workspace(store) {
        let run = start(store, "r")?;
        let (part, node) = (store.start_part(&run.id, leaf("l", None, Some("h")))?, store.start_part(&run.id, control("c"))?);
        let candidate = store.add_candidate(&run.id, NewCandidate::new(node.id.clone(), "x"))?;
        let other = store.workspace("/conformance/elsewhere".as_ref())?;
        ensure_err!(other.run(&run.id), Error::NotFound { what: "run", .. });
        ensure_err!(other.find_run("r"), Error::NotFound { what: "run", .. });
        ensure_err!(other.run_tree(&run.id, TreeQuery::default()), Error::NotFound { what: "run", .. });
        ensure_err!(other.end_run(&run.id, ended(RunStatus::Completed)), Error::NotFound { what: "run", .. });
        ensure_err!(other.update_run(&run.id, status(RunStatus::Paused)), Error::NotFound { what: "run", .. });
        ensure_err!(other.interrupt_run(&run.id, "x"), Error::NotFound { what: "run", .. });
        ensure_err!(other.delete_run(&run.id), Error::NotFound { what: "run", .. });
        ensure_err!(other.start_part(&run.id, leaf("m", None, None)), Error::NotFound { what: "run", .. });
        ensure_err!(other.replay_leaf(&run.id, "lint", "h", ReplayFrom::Workflow), Error::NotFound { what: "run", .. });
        ensure_err!(other.part(&part.id), Error::NotFound { what: "part", .. });
        ensure_err!(other.find_part("l"), Error::NotFound { what: "part", .. });
        ensure_err!(other.end_part(&part.id, PartEnd::completed("1")), Error::NotFound { what: "part", .. });
        ensure_err!(other.mark_part(&part.id, RunStatus::Paused), Error::NotFound { what: "part", .. });
        ensure_err!(other.judge_candidate(&candidate.id, Judgement::default()), Error::NotFound { what: "candidate", .. });
        ensure_err!(other.find_candidate(candidate.id.as_str()), Error::NotFound { what: "candidate", .. });
        ensure_err!(other.candidates(&node.id, CandidateQuery::default()), Error::NotFound { what: "part", .. });
        ensure_eq!(listed(&other, RunQuery::default())?, Vec::<String>::new());
        let thread = thread_with(store, &["x"])?;
        ensure_err!(other.start_run(NewRun { thread: Some(thread.id().clone()), ..named("t") }), Error::NotFound { what: "thread", .. });
        ensure_eq!((store.run(&run.id)?.status, store.part(&part.id)?), (RunStatus::Running, part));
    }

    /// Runs are listed to the last one, by status, workflow, thread and workspace, in the order in which they were started.
    fn runs_are_listed_to_the_last(store) {
        let thread = thread_with(store, &["x"])?;
        for number in 0..7 {
            let of = (number % 3 == 0).then(|| thread.id().clone());
            let workflow = if number % 2 == 0 { "review" } else { "deploy" }.to_owned();
            let run = workspace(store)?.start_run(NewRun { thread: of, workflow, ..named(&format!("r{number}")) })?;
            if number < 2 {
                store.end_run(&run.id, ended(RunStatus::Completed))?;
            }
        }
        store.workspace("/conformance/elsewhere".as_ref())?.start_run(named("elsewhere"))?;
        let place = workspace(store)?;
        for limit in [1, 2, 100] {
            let all = RunQuery { limit, ..RunQuery::default() };
            ensure_eq!(listed(store, all.clone())?, ["elsewhere", "r6", "r5", "r4", "r3", "r2", "r1", "r0"]);
            ensure_eq!(listed(&place, RunQuery { ascending: true, ..all.clone() })?, ["r0", "r1", "r2", "r3", "r4", "r5", "r6"]);
            ensure_eq!(listed(&place, RunQuery { workflow: Some("review".to_owned()), ..all.clone() })?, ["r6", "r4", "r2", "r0"]);
            ensure_eq!(listed(store, RunQuery { thread: Some(thread.id().clone()), ..all.clone() })?, ["r6", "r3", "r0"]);
            let completed = RunQuery { status: Some(RunStatus::Completed), ..all.clone() };
            ensure_eq!(listed(store, completed.clone())?, ["r1", "r0"]);
            ensure_eq!(listed(store, RunQuery { workflow: Some("deploy".to_owned()), ascending: true, ..completed })?, ["r1"]);
        }
        ensure_eq!(store.runs(RunQuery { limit: 0, ..RunQuery::default() })?.entries, Vec::new());
        let cursor = store.runs(RunQuery { limit: 1, ..RunQuery::default() })?.next_cursor;
        ensure_err!(store.runs(RunQuery { ascending: true, cursor, ..RunQuery::default() }), Error::Invalid { field: "cursor", .. });
    }

    /// A run is read as a tree, to its last node, in pages of any size.
    fn a_run_is_read_as_a_tree(store) {
        let run = start(store, "r")?;
        ensure_eq!(tree(store, &run.id, 10)?, Vec::<String>::new());
        let early = store.start_part(&run.id, leaf("z-early", None, None))?;
        let one = store.start_part(&run.id, branch("b1"))?;
        let two = store.start_part(&run.id, branch("a2"))?;
        let node = store.start_part(&run.id, control("c1"))?;
        store.start_part(&run.id, control("c2"))?;
        for (id, on) in [("l1", Some(&two.id)), ("l2", Some(&one.id)), ("l3", Some(&one.id)), ("l4", None), ("l5", Some(&one.id))] {
            store.start_part(&run.id, leaf(id, on, None))?;
        }
        store.start_part(&run.id, branch("empty"))?;
        for id in ["k2", "k1"] {
            store.add_candidate(&run.id, NewCandidate { id: PartId::new(id).ok(), ..NewCandidate::new(node.id.clone(), id) })?;
        }
        let whole = ["b1", "-l2", "-l3", "-l5", "a2", "-l1", "empty", "z-early", "l4", "c1", "-k2", "-k1", "c2"];
        for limit in 1..=whole.len() + 1 {
            ensure_eq!(tree(store, &run.id, limit)?, whole);
        }
        let page = store.run_tree(&run.id, TreeQuery::default())?;
        ensure_eq!((page.nodes.len(), page.next_cursor.as_deref()), (whole.len(), None));
        ensure_eq!((page.run, &page.nodes[7]), (store.run(&run.id)?, &RunNode::Part(early)));
        ensure_eq!(store.run_tree(&run.id, TreeQuery { limit: 0, cursor: None })?.next_cursor, None);
        let cursor = store.run_tree(&run.id, TreeQuery { limit: 1, cursor: None })?.next_cursor;
        let other = start(store, "s")?;
        ensure_err!(store.run_tree(&other.id, TreeQuery { limit: 1, cursor }), Error::Invalid { field: "cursor", .. });
    }

    /// A long run is read to its last node, and its pages end before they grow too large.
    fn a_large_run_is_read_in_pages(store) {
        let run = start(store, "r")?;
        let on = store.start_part(&run.id, branch("b"))?;
        let output = format!("\"{}\"", "x".repeat(3 << 20));
        for number in 0..4 {
            let part = store.start_part(&run.id, leaf(&format!("l{number}"), Some(&on.id), None))?;
            store.end_part(&part.id, PartEnd::completed(output.as_str()))?;
        }
        let page = store.run_tree(&run.id, TreeQuery::default())?;
        ensure!(page.nodes.len() < 5 && page.next_cursor.is_some());
        ensure_eq!(tree(store, &run.id, 1_000)?, ["b", "-l0", "-l1", "-l2", "-l3"]);
    }

    /// What still runs is interrupted once, by an explicit call, and can be taken up again.
    fn an_interruption_marks_what_runs_once(store) {
        let run = start(store, "r")?;
        let part = store.start_part(&run.id, leaf("l", None, Some("h")))?;
        let on = store.start_part(&run.id, branch("b"))?;
        let waits = store.start_part(&run.id, NewPart { status: Some(RunStatus::Pending), ..control("c") })?;
        let told = done(store, &run.id, "done", "h", "1")?;
        let found = store.interrupt_run(&run.id, "its process died")?;
        ensure_eq!((found.was_running, found.parts, &found.run.status), (true, 2, &RunStatus::Interrupted));
        ensure_eq!((found.run.reason.as_deref(), found.run.completed_at.is_some()), (Some("its process died"), true));
        ensure_eq!(store.run(&run.id)?, found.run);
        let stopped = store.part(&part.id)?;
        ensure_eq!((&stopped.status, stopped.reason.as_deref(), stopped.completed_at.is_some()), (&RunStatus::Interrupted, Some("its process died"), true));
        ensure_eq!((store.part(&told.id)?, store.part(&waits.id)?), (told, waits));
        let again = store.interrupt_run(&run.id, "another reason")?;
        ensure_eq!((again.was_running, again.parts, again.run), (false, 0, found.run));
        // Who was gone and comes back has no say any more.
        ensure_err!(store.end_part(&part.id, PartEnd::completed("2")), Error::Conflict { what: "part", .. });
        ensure_err!(store.end_run(&run.id, ended(RunStatus::Completed)), Error::Conflict { what: "run", .. });
        ensure_err!(store.mark_part(&part.id, RunStatus::Running), Error::Conflict { what: "run", .. });
        let going = store.update_run(&run.id, status(RunStatus::Running))?;
        ensure_eq!((going.completed_at, going.reason.as_deref()), (None, None));
        let taken_up = store.mark_part(&part.id, RunStatus::Running)?;
        ensure_eq!((&taken_up.status, taken_up.completed_at, taken_up.reason.as_deref()), (&RunStatus::Running, None, None));
        ensure_eq!(store.end_part(&part.id, PartEnd::completed("2"))?.status, RunStatus::Completed);
        ensure_eq!(store.part(&on.id)?.status, RunStatus::Interrupted);
        // Parts that run on in a run that was ended are found, too.
        store.mark_part(&on.id, RunStatus::Running)?;
        let ended = store.end_run(&run.id, ended(RunStatus::Completed))?;
        let found = store.interrupt_run(&run.id, "left over")?;
        ensure_eq!((found.was_running, found.parts, found.run.status), (false, 1, RunStatus::Completed));
        ensure!(found.run.tick > ended.tick);
    }

    /// A run that does not run is deleted with everything that belongs to it.
    fn a_run_is_deleted_with_its_parts(store) {
        let run = start(store, "r")?;
        let on = store.start_part(&run.id, branch("b"))?;
        store.start_part(&run.id, leaf("l", Some(&on.id), Some("h")))?;
        let node = store.start_part(&run.id, control("c"))?;
        let candidate = store.add_candidate(&run.id, NewCandidate { branch_run: Some(on.id.clone()), ..NewCandidate::new(node.id, "x") })?;
        ensure_err!(store.delete_run(&run.id), Error::Conflict { what: "run", .. });
        store.end_run(&run.id, ended(RunStatus::Cancelled))?;
        store.delete_run(&run.id)?;
        ensure_err!(store.run(&run.id), Error::NotFound { what: "run", .. });
        ensure_err!(store.part(&on.id), Error::NotFound { what: "part", .. });
        ensure_err!(store.judge_candidate(&candidate.id, Judgement::default()), Error::NotFound { what: "candidate", .. });
        ensure_err!(store.delete_run(&run.id), Error::NotFound { what: "run", .. });
        let again = start(store, "r")?;
        ensure_eq!(tree(store, &again.id, 10)?, Vec::<String>::new());
    }

    /// A purge takes the runs of the thread, and leaves those of none.
    fn a_purge_takes_the_runs_of_the_thread(store) {
        let live = thread_with(store, &["x"])?;
        let id = live.id().clone();
        let of_thread = store.start_run(NewRun { thread: Some(id.clone()), ..named("of-thread") })?;
        let part = store.start_part(&of_thread.id, leaf("l", None, None))?;
        let of_none = start(store, "of-none")?;
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        ensure_err!(store.run(&of_thread.id), Error::NotFound { what: "run", .. });
        ensure_err!(store.part(&part.id), Error::NotFound { what: "part", .. });
        ensure_eq!(store.run(&of_none.id)?, of_none);
        ensure_err!(store.start_run(NewRun { thread: Some(id), ..named("late") }), Error::NotFound { what: "thread", .. });
    }

    /// The runs of a workspace go with it into another.
    fn runs_move_with_their_workspace(store) {
        let run = start(store, "r")?;
        let other = store.workspace("/conformance/elsewhere".as_ref())?;
        let there = other.start_run(named("there"))?.workspace;
        store.remap(run.workspace, there)?;
        ensure_eq!(other.run(&run.id)?.workspace, there);
    }
}
