//! Threads given back as a store of CodeWhale's: held to its rules, and read back.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value;
use threadkeep::blocking::Store;
use threadkeep::{
    CheckpointQuery, GoalStatus, JobQuery, JobStatus, NewCheckpoint, NewGoal, NewItem, NewJob, NewPart, NewPrompt,
    NewRun, PartKind, PauseReason, Role, RunQuery, RunStatus, Shelf, ThreadPatch, Tool, TreeQuery,
};
use threadkeep_agents::export::{Before, StoreExport, codec_for, install_store};

use super::codewhale::{database, message, thread};
use super::{id, import, open, own, reasons, store_of};

/// All rows of a table, with the names of the columns that both versions of a schema have.
fn rows(db: &Connection, table: &str, columns: &str) -> Vec<Vec<Value>> {
    let mut rows = db.prepare(&format!("SELECT {columns} FROM {table} ORDER BY 1, 2, 3")).unwrap();
    let count = rows.column_count();
    let row = |row: &rusqlite::Row<'_>| (0..count).map(|at| row.get(at)).collect();
    rows.query_map([], row).unwrap().map(Result::unwrap).collect()
}

const THREADS: &str = "id, rollout_path, preview, ephemeral, model_provider, created_at, updated_at, status, path, cwd, cli_version, source,
    title, sandbox_policy, approval_mode, archived, archived_at, git_sha, git_branch, git_origin_url, memory_mode, current_leaf_id";
const MESSAGES: &str = "id, thread_id, role, content, item_json, created_at, parent_entry_id";
const GOALS: &str =
    "thread_id, goal_id, objective, status, token_budget, tokens_used, time_used_seconds, created_at, updated_at,
    continuation_count, last_gap_fingerprint, repeated_gap_count, last_gap_pass, pause_reason";

/// Everything that CodeWhale's own readers and its archive refuse, by its documented rules.
fn refusals(db: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let mut none = |what: &str, sql: &str| {
        if one(&format!("SELECT count(*) FROM {sql}")) != 0 {
            found.push(what.to_owned());
        }
    };
    none("keys of other rows", "pragma_foreign_key_check");
    none("types of threads", "threads WHERE typeof(updated_at) != 'integer' OR typeof(created_at) != 'integer'
        OR typeof(preview) != 'text' OR typeof(cwd) != 'text' OR typeof(source) != 'text' OR typeof(archived) != 'integer'
        OR status NOT IN ('running', 'idle', 'completed', 'failed', 'paused', 'archived')
        OR source NOT IN ('interactive', 'resume', 'fork', 'api', 'unknown')");
    none("ids of threads", "threads WHERE length(id) = 0 OR length(CAST(id AS BLOB)) > 128");
    none("the shelf", "threads WHERE (archived = 0) != (archived_at IS NULL)");
    none("a leaf that is no number", "threads WHERE typeof(current_leaf_id) NOT IN ('integer', 'null')");
    none(
        "a leaf of another thread",
        "threads t WHERE current_leaf_id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM messages m WHERE m.id = t.current_leaf_id AND m.thread_id = t.id)",
    );
    none(
        "a leaf where there are no messages, or none where there are",
        "threads t WHERE (current_leaf_id IS NULL)
        = EXISTS (SELECT 1 FROM messages m WHERE m.thread_id = t.id)",
    );
    none(
        "messages",
        "messages WHERE id <= 0 OR role = '' OR typeof(content) != 'text' OR typeof(created_at) != 'integer'
        OR (item_json IS NOT NULL AND NOT json_valid(item_json))",
    );
    none(
        "parents that are not there",
        "messages m WHERE parent_entry_id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM messages p WHERE p.id = m.parent_entry_id AND p.thread_id = m.thread_id)",
    );
    none("circles", "messages m WHERE m.id NOT IN (WITH RECURSIVE walk(id) AS (SELECT id FROM messages WHERE parent_entry_id IS NULL
        UNION SELECT c.id FROM walk JOIN messages c ON c.parent_entry_id = walk.id) SELECT id FROM walk)");
    none("ids that come again", "sqlite_sequence WHERE name = 'messages' AND seq != (SELECT max(id) FROM messages)");
    none(
        "checkpoints",
        "checkpoints WHERE checkpoint_id = '' OR NOT json_valid(state_json) OR typeof(created_at) != 'integer'",
    );
    none("tools", "thread_dynamic_tools WHERE typeof(name) != 'text' OR NOT json_valid(input_schema)");
    none("goals", "thread_goals WHERE goal_id = '' OR objective = '' OR tokens_used < 0 OR time_used_seconds < 0 OR continuation_count < 0
        OR token_budget < 0 OR typeof(updated_at) != 'integer'");
    none("gaps", "thread_goals WHERE NOT ((last_gap_fingerprint IS NULL AND repeated_gap_count = 0 AND last_gap_pass IS NULL)
        OR (length(last_gap_fingerprint) = 64 AND last_gap_fingerprint NOT GLOB '*[^0-9a-fA-F]*' AND repeated_gap_count BETWEEN 1 AND 3
          AND last_gap_pass <= continuation_count AND repeated_gap_count <= last_gap_pass + 1))");
    none("pauses", "thread_goals WHERE pause_reason IS NOT NULL AND pause_reason NOT IN ('\"user\"', '\"backoff\"', '\"no_progress\"',
        '\"usage_limit\"', '\"budget_limit\"')");
    none("jobs", "jobs WHERE status NOT IN ('queued', 'running', 'paused', 'completed', 'failed', 'cancelled')");
    none("runs", "workflow_runs WHERE NOT json_valid(metadata_json) OR typeof(started_at) != 'integer'");
    found
}

/// A store of CodeWhale's with branches, several threads, and everything beside them.
fn full(folder: &Path) -> Connection {
    let db = database(folder, 5);
    let fork = message(&db, 5, "thread-1", "user", "fork", Some(2));
    message(&db, 5, "thread-1", "assistant", "on the fork", Some(fork));
    db.execute("UPDATE threads SET current_leaf_id = 4 WHERE id = 'thread-1'", []).unwrap();
    db.execute("UPDATE messages SET item_json = '{ \"type\": \"x\" }' WHERE id = 2", []).unwrap();
    thread(&db, folder, "thread-2", "Other");
    message(&db, 5, "thread-2", "user", "other", None);
    db.execute("UPDATE threads SET archived = 1, status = 'archived', archived_at = 77 WHERE id = 'thread-2'", [])
        .unwrap();
    let gap = "ab".repeat(32);
    let goal = "INSERT INTO thread_goals VALUES ('thread-1', 'goal-1', 'reach it', 'paused', 1000, 10, 20, 1767323045, 1767323046, 3, ?1,
        2, 2, '\"no_progress\"')";
    db.execute(goal, [&gap]).unwrap();
    db.execute_batch(
        "INSERT INTO checkpoints VALUES ('thread-1', 'old', '{\"n\": 1}', 1), ('thread-1', 'latest', '{\"n\":2}', 2);
         INSERT INTO thread_dynamic_tools VALUES ('thread-1', 0, 'look', 'Looks', '{\"type\":\"object\"}'), ('thread-1', 1, 'go', NULL, '{}');
         INSERT INTO jobs VALUES ('job-1', 'index', 'running', 50, 'half', 1, 2), ('job-2', 'done', 'completed', 100, NULL, 1, 2);
         INSERT INTO workflow_runs VALUES ('run-1', 'flow', 'goal', 'completed', NULL, 1, 2, '{\"a\":1}');
         INSERT INTO branch_runs VALUES ('b-1', 'run-1', 'left', 'n0', 'completed', 1, 2, '{}');
         INSERT INTO control_node_runs VALUES ('c-1', 'run-1', 'n1', 'vote', 'paused', '[]', '{}', 1, NULL);
         INSERT INTO leaf_runs VALUES ('l-1', 'run-1', 'b-1', 'leaf', 'task', 'h', 'failed', '{}', '[]', 1, 2);
         INSERT INTO teacher_candidates VALUES ('t-1', 'run-1', 'c-1', 'cand', 'b-1', 0.75, 1, '{}', 1);",
    )
    .unwrap();
    db
}

fn given_back(store: &Store, threads: &[&str], home: &Path) -> Connection {
    store_of(store, threads, "codewhale", home);
    let db = Connection::open(home.join("state.db")).unwrap();
    assert_eq!(refusals(&db), Vec::<String>::new());
    db
}

#[test]
fn a_store_of_codewhale_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".codewhale"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let home = folder.path().join("out");
    let back = given_back(&store, &["thread-1", "thread-2"], &home);
    for (table, columns) in [
        ("threads", THREADS),
        ("messages", MESSAGES),
        ("thread_goals", GOALS),
        ("checkpoints", "thread_id, checkpoint_id, state_json, created_at"),
        ("thread_dynamic_tools", "thread_id, position, name, description, input_schema"),
        ("jobs", "id, name, status, progress, detail, created_at, updated_at"),
        // When a run began is not kept.
        ("workflow_runs", "id, workflow_id, goal, status, input_hash, metadata_json"),
        ("branch_runs", "id, workflow_run_id, branch_id, node_id, status, result_json"),
        (
            "leaf_runs",
            "id, workflow_run_id, branch_run_id, leaf_id, task_id, input_hash, status, output_json, artifacts_json",
        ),
        ("control_node_runs", "id, workflow_run_id, node_id, kind, status, selected_children_json, result_json"),
        (
            "teacher_candidates",
            "id, workflow_run_id, control_node_run_id, candidate_id, branch_run_id, score, passed, rationale_json",
        ),
    ] {
        assert_eq!(rows(&back, table, columns), rows(&db, table, columns), "{table}");
    }
    let names = threadkeep_agents::codewhale::thread_names(&fs::read(home.join("session_index.jsonl")).unwrap());
    assert_eq!(names.get("thread-1").map(String::as_str), Some("Named here"));
    assert!(!home.join("sessions").exists(), "what was no session of the terminal program is none now");
    // What was given back is the same once more, and once more.
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    let report = import(&fresh, &home);
    assert_eq!(reasons(&report), Vec::<&str>::new());
    for thread in ["thread-1", "thread-2"] {
        let shape = |store: &Store| {
            let tree = store.tree(&id(thread)).unwrap();
            let ends: BTreeSet<_> =
                tree.branches.iter().map(|branch| (branch.base, branch.tip, branch.active)).collect();
            let found = store.get(&id(thread)).unwrap();
            (ends, found.shelf, found.status.clone(), found.details.title.clone(), super::source_ids(store, thread))
        };
        assert_eq!(shape(&fresh), shape(&store), "{thread}");
    }
    assert_eq!(fresh.get(&id("thread-2")).unwrap().shelf, Shelf::Archived);
    let goal = |store: &Store| {
        let goal = store.goal(&id("thread-1")).unwrap().unwrap();
        (goal.id, goal.objective, goal.stored_status, goal.pause_reason, goal.tokens_used, goal.stall, goal.created_at)
    };
    assert_eq!(goal(&fresh), goal(&store));
    assert_eq!(fresh.tools(&id("thread-1")).unwrap().tools, store.tools(&id("thread-1")).unwrap().tools);
    let again = folder.path().join("again");
    given_back(&fresh, &["thread-1", "thread-2"], &again);
    let bytes = |home: &Path| fs::read(home.join("state.db")).unwrap();
    let messages = |home: &Path| rows(&Connection::open(home.join("state.db")).unwrap(), "messages", MESSAGES);
    assert_eq!(messages(&again), messages(&home));
    store_of(&store, &["thread-1", "thread-2"], "codewhale", &again);
    assert_eq!(bytes(&again), bytes(&home), "the same threads give the same bytes");
}

#[test]
fn what_was_changed_here_is_what_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let _db = full(folder.path());
    let store = open(folder.path());
    import(&store, &folder.path().join(".codewhale"));
    let one = id("thread-1");
    let live = store.resume(&one, true).unwrap();
    live.append(vec![NewItem::message(Role::User, "and here"), NewItem::message(Role::Assistant, "yes")]).unwrap();
    live.save_checkpoint(NewCheckpoint::new("mine", "{}")).unwrap();
    live.shutdown().unwrap();
    store.update(&one, ThreadPatch::title("renamed")).unwrap();
    store.archive(&one).unwrap();
    store.unarchive(&id("thread-2")).unwrap();
    store.delete_checkpoint(&one, "old").unwrap();
    store.clear_goal(&one).unwrap();
    let mut goal = NewGoal::new("another");
    goal.status = Some(GoalStatus::Paused);
    goal.pause_reason = Some(PauseReason::User);
    store.set_goal(&one, goal).unwrap();
    let back = given_back(&store, &["thread-2", "thread-1"], &folder.path().join("out"));
    let text = |sql: &str| back.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(
        text("SELECT title || ' ' || archived || ' ' || status FROM threads WHERE id = 'thread-1'"),
        "renamed 1 archived"
    );
    assert_eq!(text("SELECT archived || ' ' || status FROM threads WHERE id = 'thread-2'"), "0 idle");
    let path = "WITH RECURSIVE path(id, n) AS (SELECT current_leaf_id, 0 FROM threads WHERE id = 'thread-1' UNION ALL
        SELECT parent_entry_id, n + 1 FROM path JOIN messages USING (id) WHERE parent_entry_id IS NOT NULL)
        SELECT group_concat(content, '|') FROM (SELECT content FROM path JOIN messages USING (id) ORDER BY n DESC)";
    assert_eq!(text(path), "m0|m1|m2|m3|and here|yes");
    assert_eq!(
        text("SELECT group_concat(checkpoint_id) FROM (SELECT checkpoint_id FROM checkpoints ORDER BY 1)"),
        "latest,mine"
    );
    assert_eq!(
        text("SELECT objective || ' ' || status || ' ' || pause_reason FROM thread_goals"),
        "another paused \"user\""
    );
}

#[test]
fn a_thread_of_threadkeep_goes_to_codewhale_with_all_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    let own = id("own");
    let live = store.resume(&own, true).unwrap();
    live.begin_prompt(NewPrompt::task("as a receipt")).unwrap();
    live.save_checkpoint(NewCheckpoint::new("latest", "{\"at\":1}")).unwrap();
    live.shutdown().unwrap();
    // A second branch, in which the same call is answered otherwise.
    let third = store.address_at(&own, 2).unwrap();
    let call = store.item(&own, third).unwrap().id;
    let live = store.resume(&own, true).unwrap();
    let after = threadkeep::AppendOptions { after: Some(third), ..threadkeep::AppendOptions::default() };
    live.append_with(vec![NewItem::tool_result("call-1", "another file", false)], after).unwrap();
    live.shutdown().unwrap();
    assert_eq!(store.item(&own, third).unwrap().id, call);
    let mut goal = NewGoal::new("all of it");
    goal.seconds_budget = Some(5);
    store.set_goal(&own, goal).unwrap();
    store.set_tools(&own, vec![Tool::new("look", "{\"type\":\"object\"}")], None).unwrap();
    let workspace = store.workspace(folder.path()).unwrap();
    let job = NewJob {
        thread: Some(own.clone()),
        queue: "q".to_owned(),
        payload: Some("{}".to_owned()),
        ..NewJob::new("index")
    };
    workspace.add_job(job).unwrap();
    let run = workspace.start_run(NewRun { thread: Some(own.clone()), ..NewRun::new("flow") }).unwrap();
    let kind = PartKind::Branch { branch: "left".to_owned(), node: "n0".to_owned() };
    workspace.start_part(&run.id, NewPart::new(kind)).unwrap();
    let home = folder.path().join("out");
    let back = given_back(&store, &["own"], &home);
    let exported = store_of(&store, &["own"], "codewhale", &home);
    let lost: Vec<_> = exported.losses.iter().map(|loss| (loss.what.split(',').next().unwrap(), loss.count)).collect();
    assert_eq!(lost, [("goals", 1), ("jobs and workflow runs", 1), ("receipts of prompts and artifacts", 1)]);
    let count =
        |table: &str| back.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap();
    let tables =
        ["messages", "thread_goals", "thread_dynamic_tools", "checkpoints", "jobs", "workflow_runs", "branch_runs"];
    assert_eq!(tables.map(count), [10, 1, 1, 1, 1, 1, 1]);
    let answered = "SELECT count(*) FROM messages WHERE item_json LIKE '%\"tool_use_id\":\"call-1\"%'";
    assert_eq!(back.query_row(answered, [], |row| row.get::<_, i64>(0)).unwrap(), 2, "each branch has its result");
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    let report = import(&fresh, &home.join("state.db"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let tree = fresh.tree(&own).unwrap();
    assert_eq!((tree.branches.len(), tree.leaves().len()), (2, 2));
    assert_eq!(fresh.goal(&own).unwrap().unwrap().objective, "all of it");
    let jobs = fresh.jobs(JobQuery::default()).unwrap().entries;
    assert_eq!((jobs.len(), jobs[0].status.clone()), (1, JobStatus::Paused));
    let runs = fresh.runs(RunQuery::default()).unwrap().entries;
    assert_eq!((runs[0].id.clone(), runs[0].status.clone()), (run.id.clone(), RunStatus::Paused));
    assert_eq!(fresh.run_tree(&run.id, TreeQuery::default()).unwrap().nodes.len(), 1);
    assert_eq!(fresh.checkpoints(&own, CheckpointQuery::default()).unwrap().entries.len(), 1);
    // The terminal program's session has the whole tree, too.
    let session = tempfile::tempdir().unwrap();
    let fresh = open(session.path());
    assert_eq!(reasons(&import(&fresh, &home.join("sessions"))), Vec::<&str>::new());
    let thread = fresh.latest().unwrap().unwrap();
    assert_eq!((fresh.get(&thread).unwrap().items, fresh.tree(&thread).unwrap().leaves().len()), (10, 2));
}

#[test]
fn a_store_that_is_there_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    let home = folder.path().join("home");
    let put = |threads: Vec<threadkeep::ThreadId>| {
        let export = StoreExport::new(&store, threads, codec_for("codewhale").unwrap(), &|_| None);
        install_store(&export, &home)
    };
    let first = put(vec![id("own")]).unwrap();
    assert_eq!((first.before, first.companions.len()), (Before::Nothing, 2));
    assert_eq!(put(vec![id("own")]).unwrap().before, Before::Same);
    let theirs = fs::read(home.join("state.db")).unwrap();
    store.update(&id("own"), ThreadPatch::title("renamed")).unwrap();
    let other = put(vec![id("own")]).unwrap();
    assert_eq!((other.before, other.companions), (Before::Other, Vec::<PathBuf>::new()));
    assert_eq!(fs::read(home.join("state.db")).unwrap(), theirs);
    fs::remove_file(home.join("state.db")).unwrap();
    fs::write(home.join("state.db-wal"), "x").unwrap();
    assert!(put(vec![id("own")]).unwrap_err().to_string().contains("its database is not"));
    assert!(!home.join("state.db").exists());
}

#[test]
fn a_payload_that_looks_like_a_row_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    let workspace = store.workspace(folder.path()).unwrap();
    let payload = Some(r#"{"id":"theirs","name":"theirs","status":"paused","made_up":"x"}"#.to_owned());
    let job = NewJob { thread: Some(id("own")), queue: "q".to_owned(), payload, ..NewJob::new("index") };
    let job = workspace.add_job(job).unwrap();
    let home = folder.path().join("out");
    let back = given_back(&store, &["own"], &home);
    let text = |sql: &str| back.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("SELECT id || ' ' || name FROM jobs"), format!("{} index", job.id));
    assert_eq!(text("SELECT count(*) || '' FROM pragma_table_info('jobs') WHERE name = 'made_up'"), "0");
    let exported = store_of(&store, &["own"], "codewhale", &home);
    assert!(exported.losses.iter().any(|loss| loss.what.starts_with("jobs") && loss.count == 1), "{exported:?}");
}

#[test]
fn a_row_that_lacks_what_may_not_be_empty_keeps_no_other_out() {
    let folder = tempfile::tempdir().unwrap();
    let db = full(folder.path());
    db.execute_batch(
        "PRAGMA foreign_keys = OFF;
         CREATE TABLE loose AS SELECT * FROM threads;
         DROP TABLE threads;
         ALTER TABLE loose RENAME TO threads;
         UPDATE threads SET preview = NULL, model_provider = NULL, cwd = NULL, cli_version = NULL, source = NULL,
           created_at = NULL, updated_at = NULL, status = NULL, ephemeral = NULL WHERE id = 'thread-1';",
    )
    .unwrap();
    let store = open(folder.path());
    import(&store, &folder.path().join(".codewhale"));
    let back = given_back(&store, &["thread-1", "thread-2"], &folder.path().join("out"));
    assert_eq!(rows(&back, "threads", "id, title, 0").len(), 2);
    assert_eq!(rows(&back, "messages", MESSAGES), rows(&db, "messages", MESSAGES));
}
