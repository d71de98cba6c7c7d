//! Tools and workflow runs in the files: damage, time, copies, repairs, redactions.

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{
    CandidateQuery, Error, Judgement, NewCandidate, NewPart, NewRun, PartEnd, PartId, PartKind, RedactOptions,
    ReplayFrom, Rules, Run, RunEnd, RunId, RunNode, RunPatch, RunQuery, RunStatus, Score, StoreOptions, Tool,
    TreeQuery,
};

use super::masked::{SECRET, holding};
use super::{create, id, open, sql, workspace};

fn run_id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn part_id(text: &str) -> PartId {
    PartId::new(text).unwrap()
}

fn named(id: &str) -> NewRun {
    NewRun { id: Some(run_id(id)), ..NewRun::new("review") }
}

fn leaf(id: &str, on: Option<&str>) -> NewPart {
    let (leaf, task, input_hash) = ("lint".to_owned(), "run the linter".to_owned(), Some("h".to_owned()));
    let kind = PartKind::Leaf { leaf, task, branch_run: on.map(part_id), input_hash };
    NewPart { id: Some(part_id(id)), ..NewPart::new(kind) }
}

/// A run with a branch, a leaf on it, a control node and a candidate, whose ids begin with its own.
fn fill(store: &Store, new: NewRun, words: &str) {
    let name = new.id.clone().unwrap();
    let run = if new.thread.is_some() { store.start_run(new) } else { workspace(store).start_run(new) }.unwrap();
    let own = |what: &str| format!("{name}-{what}");
    let kind = PartKind::Branch { branch: "fast".into(), node: "split".into() };
    store.start_part(&run.id, NewPart { id: Some(part_id(&own("b"))), ..NewPart::new(kind) }).unwrap();
    store.start_part(&run.id, leaf(&own("l"), Some(&own("b")))).unwrap();
    let kind = PartKind::Control { node: "pick".into(), control: "best_of".into() };
    store.start_part(&run.id, NewPart { id: Some(part_id(&own("c"))), ..NewPart::new(kind) }).unwrap();
    let json = format!("[{words:?}]");
    let end = PartEnd { list: Some(json.clone()), reason: Some(words.to_owned()), ..PartEnd::completed(json.as_str()) };
    store.end_part(&part_id(&own("l")), end).unwrap();
    let judgement = Judgement { score: Some(Score::new("0.50").unwrap()), passed: Some(true), rationale: Some(json) };
    let branch_run = Some(part_id(&own("b")));
    let candidate = NewCandidate::new(part_id(&own("c")), "one");
    store
        .add_candidate(&run.id, NewCandidate { id: Some(part_id(&own("k"))), branch_run, judgement, ..candidate })
        .unwrap();
}

/// A run and everything that belongs to it.
fn all_of(store: &Store, run: &str) -> (Run, Vec<RunNode>) {
    let tree = store.run_tree(&run_id(run), TreeQuery::default()).unwrap();
    assert_eq!(tree.next_cursor, None);
    (tree.run, tree.nodes)
}

fn of_thread(id_of_run: &str) -> NewRun {
    NewRun { thread: Some(id("t")), ..named(id_of_run) }
}

/// Which row is damaged, and how.
fn assert_names(error: &Error, words: &str) {
    assert!(matches!(error, Error::Corrupt { place, .. } if place.contains(words)), "{error:?} does not name {words}");
}

#[test]
fn a_damaged_tool_is_named_and_another_list_takes_its_place() {
    for damage in ["input_schema = '{'", "extra = 'x'", "name = ''", "position = 7"] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        for name in ["bad", "good"] {
            create(&store, name).set_tools(vec![Tool::new("a", "{}"), Tool::new("b", "{}")], None).unwrap();
        }
        let damage = format!("UPDATE tools SET {damage} WHERE thread = 'bad' AND position = 1");
        sql(temp.path()).execute_batch(&damage).unwrap();
        let error = store.tools(&id("bad")).unwrap_err();
        assert_names(&error, "of thread bad");
        assert!(error.to_string().contains("tool 1"), "{error}");
        assert_eq!(store.tools(&id("good")).unwrap().tools.len(), 2);
        let seen = store.tools(&id("good")).unwrap().digest;
        let compared = store.set_tools(&id("bad"), vec![Tool::new("c", "{}")], Some(seen));
        assert_names(&compared.unwrap_err(), "of thread bad");
        store.set_tools(&id("bad"), vec![Tool::new("c", "{}")], None).unwrap();
        assert_eq!(store.tools(&id("bad")).unwrap().tools, [Tool::new("c", "{}")]);
    }
}

#[test]
fn what_is_damaged_of_a_run_is_listed_named_and_hides_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store, named("bad"), "x");
    fill(&store, named("good"), "x");
    let damage = "UPDATE runs SET metadata = '{' WHERE id = 'bad';
        UPDATE run_parts SET result = 'nothing' WHERE id = 'bad-l';
        UPDATE run_parts SET list = '{}' WHERE id = 'bad-c';
        UPDATE run_candidates SET score_order = 0 WHERE id = 'bad-k'";
    sql(temp.path()).execute_batch(damage).unwrap();
    assert_names(&store.run(&run_id("bad")).unwrap_err(), "run bad");
    assert_names(&store.part(&part_id("bad-l")).unwrap_err(), "part bad-l of run bad");
    assert_names(&store.part(&part_id("bad-c")).unwrap_err(), "part bad-c of run bad");
    assert_names(
        &store.judge_candidate(&part_id("bad-k"), Judgement::default()).unwrap_err(),
        "candidate bad-k of run bad",
    );
    let listed = store.runs(RunQuery { ascending: true, ..RunQuery::default() }).unwrap().entries;
    let damages: Vec<_> = listed.iter().map(|run| (run.id.as_str(), run.damage.is_some())).collect();
    assert_eq!(damages, [("bad", true), ("good", false)]);
    let (run, nodes) = all_of(&store, "bad");
    let damages: Vec<_> = nodes
        .iter()
        .map(|node| match node {
            RunNode::Part(part) => (part.id.as_str(), part.damage.is_some()),
            RunNode::Candidate(candidate) => (candidate.id.as_str(), candidate.damage.is_some()),
        })
        .collect();
    assert!(run.damage.is_some());
    assert_eq!(damages, [("bad-b", false), ("bad-l", true), ("bad-c", true), ("bad-k", true)]);
    // Damage in the run is in nobody's way who works on a part of it.
    store.end_part(&part_id("bad-b"), PartEnd::completed("1")).unwrap();
    // A damaged leaf is passed over for one that can be read, and told where there is none.
    let replay = |from| store.replay_leaf(&run_id("bad"), "lint", "h", from);
    assert_names(&replay(ReplayFrom::Run).unwrap_err(), "part bad-l of run bad");
    assert_eq!(replay(ReplayFrom::Workflow).unwrap().unwrap().id, part_id("good-l"));
    sql(temp.path())
        .execute_batch("UPDATE runs SET status = 'failed', completed_at = started_at WHERE id = 'bad'")
        .unwrap();
    store.delete_run(&run_id("bad")).unwrap();
    assert_eq!(all_of(&store, "good").1.len(), 4);
}

#[test]
fn what_no_run_can_be_is_not_stored() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store, named("r"), "x");
    create(&store, "t").set_tools(vec![Tool::new("a", "{}")], None).unwrap();
    for refused in [
        "UPDATE runs SET status = 'completed'",
        "UPDATE runs SET completed_at = started_at",
        "UPDATE run_parts SET status = 'running' WHERE id = 'r-l'",
        "UPDATE run_parts SET completed_at = started_at - 1 WHERE id = 'r-l'",
        "UPDATE run_parts SET kind = 'else' WHERE id = 'r-l'",
        "UPDATE run_parts SET kind = 'control' WHERE id = 'r-l'",
        "UPDATE run_candidates SET passed = 2",
        "UPDATE run_candidates SET control = 'absent'",
        "INSERT INTO tools SELECT thread, 1, name, NULL, '{}', NULL FROM tools",
    ] {
        let database = sql(temp.path());
        database.execute_batch("PRAGMA foreign_keys = ON").unwrap();
        assert!(database.execute_batch(refused).is_err(), "{refused}");
    }
    // A branch that is taken away leaves its leaves and candidates, on none; a control node takes its candidates along.
    let database = sql(temp.path());
    database.execute_batch("PRAGMA foreign_keys = ON; DELETE FROM run_parts WHERE id = 'r-b'").unwrap();
    let PartKind::Leaf { branch_run, .. } = store.part(&part_id("r-l")).unwrap().kind else { panic!("it was a leaf") };
    let found = store.candidates(&part_id("r-c"), CandidateQuery::default()).unwrap().entries;
    assert_eq!((branch_run, found[0].branch_run.clone()), (None, None));
    database.execute_batch("DELETE FROM run_parts WHERE id = 'r-c'").unwrap();
    assert_eq!(all_of(&store, "r").1.len(), 1);
}

/// A clock that goes back ends nothing before it began.
#[test]
fn nothing_ends_before_it_begins() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store, named("r"), "x");
    let late = i64::MAX - 1;
    sql(temp.path())
        .execute_batch(&format!(
            "UPDATE runs SET started_at = {late}; UPDATE run_parts SET started_at = {late} WHERE status = 'running'"
        ))
        .unwrap();
    let part = store.end_part(&part_id("r-b"), PartEnd::completed("1")).unwrap();
    assert_eq!(part.completed_at, Some(part.started_at));
    let found = store.interrupt_run(&run_id("r"), "x").unwrap();
    assert_eq!((found.run.completed_at, found.parts), (Some(found.run.started_at), 1));
    let control = store.part(&part_id("r-c")).unwrap();
    assert_eq!(control.completed_at, Some(control.started_at));
}

#[test]
fn a_copy_carries_tools_and_runs() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    create(&source, "t").set_tools(vec![Tool { extra: Some("[1]".into()), ..Tool::new("a", "{}") }], None).unwrap();
    for name in ["one", "two"] {
        fill(&source, of_thread(name), "words");
    }
    fill(&source, named("loose"), "words");
    let copy = || target.copy_from(&source, &mut |_| {}).unwrap();
    let first = copy();
    assert_eq!((first.problems.len(), first.runs, first.runs_left), (0, 1, 0));
    assert_eq!(target.tools(&id("t")).unwrap(), source.tools(&id("t")).unwrap());
    let same = |run: &str| {
        let (there, here) = (all_of(&source, run), all_of(&target, run));
        assert_eq!((Run { workspace: there.0.workspace, ..here.0 }, here.1), there);
    };
    ["one", "two", "loose"].into_iter().for_each(same);
    let again = copy();
    assert_eq!((again.unchanged, again.runs, again.runs_left), (1, 0, 0));

    // What changes there later is carried, also when it is deep within a run, or gone.
    source.end_part(&part_id("one-b"), PartEnd::completed("2")).unwrap();
    source.end_part(&part_id("loose-b"), PartEnd::completed("2")).unwrap();
    source.set_tools(&id("t"), Vec::new(), None).unwrap();
    source.end_run(&run_id("two"), RunEnd { status: RunStatus::Completed, reason: None }).unwrap();
    source.delete_run(&run_id("two")).unwrap();
    let later = copy();
    assert_eq!((later.updated, later.runs, later.problems.len()), (1, 1, 0));
    ["one", "loose"].into_iter().for_each(same);
    assert_eq!(target.tools(&id("t")).unwrap().tools, []);
    assert!(matches!(target.run(&run_id("two")), Err(Error::NotFound { .. })));

    // What went on here is left.
    let status = Some(RunStatus::Paused);
    for _ in 0..8 {
        target.update_run(&run_id("loose"), RunPatch { status: status.clone(), ..RunPatch::default() }).unwrap();
        target
            .update_run(&run_id("loose"), RunPatch { status: Some(RunStatus::Running), ..RunPatch::default() })
            .unwrap();
    }
    let before = all_of(&target, "loose");
    let last = copy();
    assert_eq!((last.runs, last.runs_left), (0, 1));
    assert_eq!(all_of(&target, "loose"), before);
}

/// A run that takes several pages to carry comes whole.
#[test]
fn a_long_run_is_carried_whole() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    create(&source, "t");
    fill(&source, of_thread("long"), "words");
    let output = format!("{:?}", "x".repeat(3 << 20));
    for number in 0..4 {
        let part = source.start_part(&run_id("long"), leaf(&format!("large-{number}"), Some("long-b"))).unwrap();
        source.end_part(&part.id, PartEnd::completed(output.as_str())).unwrap();
    }
    assert_eq!(target.copy_from(&source, &mut |_| {}).unwrap().problems, []);
    for number in 0..4 {
        let part = target.part(&part_id(&format!("large-{number}"))).unwrap();
        assert_eq!(part.result.as_deref(), Some(output.as_str()));
    }
    assert_eq!(target.run(&run_id("long")).unwrap().tick, source.run(&run_id("long")).unwrap().tick);
}

#[test]
fn rules_reach_tools_and_runs_and_leave_no_byte_in_the_files() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let json = || format!(r#"{{"PASSWORD":"{SECRET}","step":1}}"#);
    let tool = Tool { description: Some(SECRET.into()), extra: Some(json()), ..Tool::new("a", json()) };
    create(&store, "t").set_tools(vec![Tool::new("clean", "{}"), tool], None).unwrap();
    for new in [of_thread("of-thread"), named("of-none")] {
        fill(&store, NewRun { goal: Some(SECRET.into()), metadata: Some(json()), ..new.clone() }, SECRET);
        let end = RunEnd { status: RunStatus::Failed, reason: Some(format!("{SECRET} was refused")) };
        store.end_run(&new.id.unwrap(), end).unwrap();
    }
    fill(&store, of_thread("clean"), "nothing");
    let clean = all_of(&store, "clean");
    let because = |reason: &str| RedactOptions { reason: reason.to_owned(), ..RedactOptions::default() };
    let rules = || Rules::literal(SECRET).unwrap();
    let dry = store.redact_matching(None, rules(), because(""), false, |_, _| {}).unwrap();
    assert_eq!(dry.beside[&id("t")], ["run", "tools"].map(str::to_owned).into());
    assert_eq!(dry.runs, 1);
    assert!(!holding(temp.path()).is_empty(), "this proves nothing");
    let report = store.redact_matching(None, rules(), because("it was pasted"), true, |_, _| {}).unwrap();
    assert_eq!((&report.beside, report.runs, report.problems.len()), (&dry.beside, 1, 0));
    assert_eq!(report.rules, dry.rules);
    assert_eq!(holding(temp.path()), Vec::<std::path::PathBuf>::new());

    let tools = store.tools(&id("t")).unwrap().tools;
    assert_eq!(tools[0], Tool::new("clean", "{}"));
    let schema: serde_json::Value = serde_json::from_str(&tools[1].input_schema).unwrap();
    assert_eq!(schema["step"], 1, "the rest of the schema is gone");
    for name in ["of-thread", "of-none"] {
        let (run, nodes) = all_of(&store, name);
        assert!(run.damage.is_none() && run.reason.unwrap().ends_with(" was refused"), "{name}");
        let RunNode::Part(leaf) = &nodes[1] else { panic!("no leaf in {nodes:?}") };
        assert!(leaf.damage.is_none() && leaf.list.as_deref().unwrap().starts_with('['), "{leaf:?}");
        let RunNode::Candidate(candidate) = &nodes[3] else { panic!("no candidate in {nodes:?}") };
        assert_eq!(candidate.judgement.score.as_ref().unwrap().as_str(), "0.50");
    }
    assert_eq!(all_of(&store, "clean"), clean);
    let again = store.redact_matching(None, rules(), because("once more"), true, |_, _| {}).unwrap();
    assert_eq!((again.beside.len(), again.runs), (0, 0), "{again:?}");
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
}

#[test]
fn what_is_screened_at_writing_is_never_stored_of_tools_and_runs() {
    let temp = tempfile::tempdir().unwrap();
    let options = StoreOptions::folder(temp.path()).mask_at_write(Rules::literal(SECRET).unwrap());
    let store = Store::open(options).unwrap();
    let tool = Tool { description: Some(SECRET.into()), ..Tool::new("a", format!("[{SECRET:?}]")) };
    create(&store, "t").set_tools(vec![tool], None).unwrap();
    fill(&store, NewRun { goal: Some(SECRET.into()), metadata: Some(format!("{SECRET:?}")), ..named("r") }, SECRET);
    store.interrupt_run(&run_id("r"), SECRET).unwrap();
    assert!(all_of(&store, "r").1.iter().all(|node| !format!("{node:?}").contains(SECRET)));
    store.sync().unwrap();
    assert_eq!(holding(temp.path()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_repair_keeps_tools_and_runs() {
    for table in ["goals", "threads_updated", "tools", "run_candidates", "runs"] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        create(&store, "t").set_tools(vec![Tool::new("b", "{}"), Tool::new("a", "{}")], None).unwrap();
        fill(&store, of_thread("one"), "words");
        fill(&store, named("loose"), "words");
        store.set_goal(&id("t"), threadkeep::NewGoal::new("x")).unwrap();
        let mut before = (store.tools(&id("t")).unwrap().tools, all_of(&store, "one"), all_of(&store, "loose"));
        drop(store);
        super::carried::damage_pages_of(temp.path(), table);
        let options = || StoreOptions::folder(temp.path());
        let plan = Store::plan_repair(options(), true).unwrap();
        let fingerprint = plan.fingerprint.unwrap_or_else(|| panic!("{table}: {:?}", plan.examination.findings));
        Store::repair(options(), &fingerprint).unwrap();
        let store = open(temp.path());
        match table {
            "tools" => before.0.clear(),
            "run_candidates" => {
                let without = |of: &mut (Run, Vec<RunNode>)| of.1.retain(|node| matches!(node, RunNode::Part(_)));
                [&mut before.1, &mut before.2].into_iter().for_each(without);
            }
            "runs" => {
                assert_eq!(store.runs(RunQuery::default()).unwrap().entries, []);
                assert!(matches!(store.part(&part_id("one-l")), Err(Error::NotFound { .. })));
                continue;
            }
            _ => {}
        }
        let after = (store.tools(&id("t")).unwrap().tools, all_of(&store, "one"), all_of(&store, "loose"));
        assert_eq!(after, before, "{table}");
    }
}

#[test]
fn a_store_for_reading_only_changes_no_tools_and_no_runs() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").set_tools(vec![Tool::new("a", "{}")], None).unwrap();
    fill(&store, named("r"), "x");
    let reader = Store::open(StoreOptions::folder(Path::new(temp.path())).read_only()).unwrap();
    assert_eq!((reader.tools(&id("t")).unwrap().tools.len(), all_of(&reader, "r").1.len()), (1, 4));
    let refused: [Result<(), Error>; 4] = [
        reader.set_tools(&id("t"), Vec::new(), None).map(drop),
        reader.interrupt_run(&run_id("r"), "x").map(drop),
        reader.end_part(&part_id("r-b"), PartEnd::completed("1")).map(drop),
        reader.update_run(&run_id("r"), RunPatch { status: Some(RunStatus::Paused), ..RunPatch::default() }).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
}
