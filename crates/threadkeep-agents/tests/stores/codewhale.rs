//! CodeWhale's threads and sessions.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use threadkeep::{CheckpointQuery, GoalStatus, JobQuery, JobStatus, RunId, RunQuery, RunStatus, Shelf, Status};

use super::{export, id, import, items, open, own, reasons, source_ids, store_of, texts};

/// The tables of a schema version.
fn schema(version: u32) -> String {
    let tree = if version > 0 { ", parent_entry_id INTEGER" } else { "" };
    let leaf = if version > 0 { ", current_leaf_id INTEGER" } else { "" };
    let mut schema = format!(
        "CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT, preview TEXT NOT NULL, ephemeral INTEGER NOT NULL,
           model_provider TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, status TEXT NOT NULL, path TEXT,
           cwd TEXT NOT NULL, cli_version TEXT NOT NULL, source TEXT NOT NULL, title TEXT, sandbox_policy TEXT, approval_mode TEXT,
           archived INTEGER NOT NULL DEFAULT 0, archived_at INTEGER, git_sha TEXT, git_branch TEXT, git_origin_url TEXT,
           memory_mode TEXT{leaf});
         CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id TEXT NOT NULL REFERENCES threads(id) ON DELETE CASCADE,
           role TEXT NOT NULL, content TEXT NOT NULL, item_json TEXT, created_at INTEGER NOT NULL{tree});
         CREATE TABLE checkpoints (thread_id TEXT, checkpoint_id TEXT, state_json TEXT, created_at INTEGER,
           PRIMARY KEY (thread_id, checkpoint_id));
         CREATE TABLE jobs (id TEXT PRIMARY KEY, name TEXT, status TEXT, progress INTEGER, detail TEXT, created_at INTEGER,
           updated_at INTEGER);
         CREATE TABLE thread_dynamic_tools (thread_id TEXT, position INTEGER, name TEXT, description TEXT, input_schema TEXT,
           PRIMARY KEY (thread_id, position));"
    );
    if version >= 2 {
        schema += "CREATE TABLE workflow_runs (id TEXT PRIMARY KEY, workflow_id TEXT, goal TEXT, status TEXT, input_hash TEXT,
             started_at INTEGER, completed_at INTEGER, metadata_json TEXT DEFAULT '{}');
           CREATE TABLE branch_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT, branch_id TEXT, node_id TEXT, status TEXT,
             started_at INTEGER, completed_at INTEGER, result_json TEXT DEFAULT '{}');
           CREATE TABLE leaf_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT, branch_run_id TEXT, leaf_id TEXT, task_id TEXT,
             input_hash TEXT, status TEXT, output_json TEXT DEFAULT '{}', artifacts_json TEXT DEFAULT '[]', started_at INTEGER,
             completed_at INTEGER);
           CREATE TABLE control_node_runs (id TEXT PRIMARY KEY, workflow_run_id TEXT, node_id TEXT, kind TEXT, status TEXT,
             selected_children_json TEXT DEFAULT '[]', result_json TEXT DEFAULT '{}', started_at INTEGER, completed_at INTEGER);
           CREATE TABLE teacher_candidates (id TEXT PRIMARY KEY, workflow_run_id TEXT, control_node_run_id TEXT, candidate_id TEXT,
             branch_run_id TEXT, score REAL, passed INTEGER, rationale_json TEXT DEFAULT '{}', created_at INTEGER);";
    }
    if version >= 3 {
        let continuations = if version >= 4 { ", continuation_count INTEGER DEFAULT 0" } else { "" };
        let gaps = if version >= 5 {
            ", last_gap_fingerprint TEXT, repeated_gap_count INTEGER DEFAULT 0, last_gap_pass INTEGER, pause_reason TEXT"
        } else {
            ""
        };
        schema += &format!(
            "CREATE TABLE thread_goals (thread_id TEXT PRIMARY KEY, goal_id TEXT, objective TEXT, status TEXT, token_budget INTEGER,
               tokens_used INTEGER, time_used_seconds INTEGER, created_at INTEGER, updated_at INTEGER{continuations}{gaps});"
        );
    }
    schema + &format!("PRAGMA user_version = {version};")
}

pub(super) fn database(folder: &Path, version: u32) -> Connection {
    let home = folder.join(".codewhale");
    fs::create_dir_all(&home).unwrap();
    let db = Connection::open(home.join("state.db")).unwrap();
    db.execute_batch(&schema(version)).unwrap();
    thread(&db, folder, "thread-1", "Named here");
    for (role, text) in [("user", "m0"), ("assistant", "m1"), ("user", "m2"), ("assistant", "m3")] {
        message(&db, version, "thread-1", role, text, None);
    }
    db
}

pub(super) fn thread(db: &Connection, folder: &Path, id: &str, title: &str) {
    let insert = "INSERT INTO threads (id, preview, ephemeral, model_provider, created_at, updated_at, status, path, cwd, cli_version,
        source, title, approval_mode) VALUES (?1, 'preview', 0, 'deepseek', 1767323045, 1767323046, 'completed', '/p', ?2, '0.9.6',
        'interactive', ?3, 'on-request')";
    db.execute(insert, (id, folder.to_str().unwrap(), title)).unwrap();
}

/// Adds a message as CodeWhale does: behind the leaf, unless a parent is given.
pub(super) fn message(db: &Connection, version: u32, thread: &str, role: &str, text: &str, parent: Option<i64>) -> i64 {
    let insert = "INSERT INTO messages (thread_id, role, content, created_at) VALUES (?1, ?2, ?3, 1767323045)";
    db.execute(insert, (thread, role, text)).unwrap();
    let id = db.last_insert_rowid();
    if version > 0 {
        let link = "UPDATE messages SET parent_entry_id = coalesce(?2, (SELECT current_leaf_id FROM threads WHERE id = ?3)) WHERE id = ?1";
        db.execute(link, (id, parent, thread)).unwrap();
        db.execute("UPDATE threads SET current_leaf_id = ?1 WHERE id = ?2", (id, thread)).unwrap();
    }
    id
}

#[test]
fn threads_of_every_schema_are_read() {
    for version in 0..=5 {
        let folder = tempfile::tempdir().unwrap();
        let _db = database(folder.path(), version);
        let store = open(folder.path());
        let report = import(&store, &folder.path().join(".codewhale"));
        assert_eq!(reasons(&report), Vec::<&str>::new(), "version {version}");
        assert_eq!(source_ids(&store, "thread-1"), ["1", "2", "3", "4"], "version {version}");
        let thread = store.get(&id("thread-1")).unwrap();
        let details = &thread.details;
        assert_eq!(details.title.as_deref(), Some("Named here"));
        assert_eq!((details.provider.as_deref(), details.cli_version.as_deref()), (Some("deepseek"), Some("0.9.6")));
        assert_eq!(
            (details.working_path.as_deref(), details.approval_policy.as_deref()),
            (Some("/p"), Some("on-request"))
        );
        assert_eq!(thread.status, Status::Completed);
        assert_eq!(import(&store, &folder.path().join(".codewhale")).items.imported, 0, "version {version}");
    }
}

#[test]
fn the_tree_and_its_head_are_codewhales() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 4);
    let fork = message(&db, 4, "thread-1", "user", "fork", Some(2));
    let store = open(folder.path());
    let home = folder.path().join(".codewhale");
    import(&store, &home);
    assert_eq!(source_ids(&store, "thread-1"), ["1", "2", &fork.to_string()]);
    assert_eq!(store.tree(&id("thread-1")).unwrap().leaves().len(), 2);
    db.execute("UPDATE threads SET current_leaf_id = 4", []).unwrap();
    let report = import(&store, &home);
    assert_eq!(report.items.imported, 1, "the row of the thread has changed: {report:#?}");
    assert_eq!(source_ids(&store, "thread-1"), ["1", "2", "3", "4"]);
    // A child before its parent, as a migration by time can leave it.
    db.execute("UPDATE messages SET parent_entry_id = 4 WHERE id = 1", []).unwrap();
    db.execute("UPDATE messages SET parent_entry_id = NULL WHERE id = 2", []).unwrap();
    db.execute("UPDATE threads SET current_leaf_id = 1", []).unwrap();
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    let report = import(&fresh, &home);
    assert_eq!(reasons(&report), Vec::<&str>::new());
    assert_eq!(source_ids(&fresh, "thread-1"), ["2", "3", "4", "1"]);
}

#[test]
fn messages_without_their_place_are_kept_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 4);
    thread(&db, folder.path(), "thread-2", "Other");
    let foreign = message(&db, 4, "thread-2", "user", "other", Some(1));
    // A circle, a parent that is gone, a leaf that is none.
    db.execute("UPDATE messages SET parent_entry_id = 4 WHERE id = 3", []).unwrap();
    db.execute("UPDATE messages SET parent_entry_id = 99 WHERE id = 2", []).unwrap();
    db.execute("UPDATE threads SET current_leaf_id = 77 WHERE id = 'thread-1'", []).unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".codewhale"));
    let lost = "messages whose parent is not in the thread, or that go round in a circle, are roots: ";
    let reasons = reasons(&report);
    assert!(reasons.contains(&format!("{lost}2, 3").as_str()), "{reasons:?}");
    assert!(reasons.contains(&format!("{lost}{foreign}").as_str()), "{reasons:?}");
    assert!(reasons.contains(&"the current leaf 77 is no message of the thread; the last message is its head"));
    assert_eq!(store.get(&id("thread-1")).unwrap().items, 4);
    assert_eq!(store.get(&id("thread-2")).unwrap().items, 1);
}

#[test]
fn what_stands_beside_a_thread_comes_along_once() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 5);
    let gap = "ab".repeat(32);
    db.execute(
        "INSERT INTO thread_goals VALUES ('thread-1', 'goal-1', 'reach it', 'paused', 1000, 10, 20, 1767323045, 1767323046, 3, ?1, 2, 2,
           '\"no_progress\"')",
        [&gap],
    )
    .unwrap();
    db.execute_batch(
        "INSERT INTO checkpoints VALUES ('thread-1', 'old', '{\"n\":1}', 1), ('thread-1', 'latest', '{\"n\":2}', 2);
         INSERT INTO thread_dynamic_tools VALUES ('thread-1', 0, 'look', 'Looks', '{\"type\":\"object\"}');
         INSERT INTO jobs VALUES ('job-1', 'index', 'running', 200, 'half', 1, 2), ('job-2', 'done', 'completed', 100, NULL, 1, 2);
         INSERT INTO workflow_runs VALUES ('run-1', 'flow', 'goal', 'completed', NULL, 1, 2, '{\"a\":1}');
         INSERT INTO branch_runs VALUES ('b-1', 'run-1', 'left', 'n0', 'completed', 1, 2, '{}');
         INSERT INTO control_node_runs VALUES ('c-1', 'run-1', 'n1', 'vote', 'running', '[]', '{}', 1, NULL);
         INSERT INTO leaf_runs VALUES ('l-1', 'run-1', 'b-1', 'leaf', 'task', 'h', 'failed', '{}', '[]', 1, 2);
         INSERT INTO teacher_candidates VALUES ('t-1', 'run-1', 'c-1', 'cand', 'b-1', 0.75, 1, '{}', 1);",
    )
    .unwrap();
    let store = open(folder.path());
    let home = folder.path().join(".codewhale");
    let report = import(&store, &home);
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let goal = store.goal(&id("thread-1")).unwrap().unwrap();
    assert_eq!((goal.objective.as_str(), goal.tokens_used, goal.continuations), ("reach it", 10, 3));
    assert_eq!((goal.status, goal.stall.map(|stall| stall.repeats)), (GoalStatus::Paused, Some(2)));
    let latest = store.checkpoint(&id("thread-1"), None).unwrap().unwrap();
    assert_eq!((latest.info.name.as_str(), latest.state.as_str()), ("latest", "{\"n\":2}"));
    assert_eq!(store.tools(&id("thread-1")).unwrap().tools[0].name, "look");
    let jobs = store.jobs(JobQuery::default()).unwrap().entries;
    let mut jobs: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.status.clone())).collect();
    jobs.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(jobs, [("job-1", JobStatus::Paused), ("job-2", JobStatus::Completed)]);
    let run = store.run(&RunId::new("run-1").unwrap()).unwrap();
    assert_eq!((run.status, run.metadata.as_deref()), (RunStatus::Completed, Some("{\"a\":1}")));
    // A goal that went on there is brought up to date, unless it was changed here.
    db.execute("UPDATE thread_goals SET tokens_used = 11, updated_at = updated_at + 1", []).unwrap();
    db.execute("UPDATE checkpoints SET state_json = '{\"n\":3}', created_at = 3 WHERE checkpoint_id = 'latest'", [])
        .unwrap();
    let report = import(&store, &home);
    assert_eq!(reasons(&report), Vec::<&str>::new());
    assert_eq!(report.companions.imported, 2);
    assert_eq!(store.goal(&id("thread-1")).unwrap().unwrap().tokens_used, 11);
    store.clear_goal(&id("thread-1")).unwrap();
    store.set_goal(&id("thread-1"), threadkeep::NewGoal::new("mine")).unwrap();
    db.execute("UPDATE thread_goals SET tokens_used = 12, updated_at = updated_at + 1", []).unwrap();
    let report = import(&store, &home);
    assert_eq!(reasons(&report), ["goal has changed there, and is another here; it was left as it is here"]);
    assert_eq!(store.goal(&id("thread-1")).unwrap().unwrap().objective, "mine");
    // What was taken away here stays away.
    store.clear_goal(&id("thread-1")).unwrap();
    db.execute("UPDATE thread_goals SET tokens_used = 13, updated_at = updated_at + 1", []).unwrap();
    let report = import(&store, &home);
    assert_eq!(reasons(&report), ["goal has changed there, and was removed here; it was left as it is here"]);
    assert_eq!(store.goal(&id("thread-1")).unwrap(), None);
    assert_eq!(store.jobs(JobQuery::default()).unwrap().entries.len(), 2);
    assert_eq!(store.runs(RunQuery::default()).unwrap().entries.len(), 1);
    assert_eq!(store.checkpoints(&id("thread-1"), CheckpointQuery::default()).unwrap().entries.len(), 2);
}

#[test]
fn hostile_names_of_threads_are_names() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 4);
    for name in ["../x.json", "a#b", "sessions/y.json"] {
        thread(&db, folder.path(), name, "Odd");
        message(&db, 4, name, "user", name, None);
    }
    let store = open(folder.path());
    let home = folder.path().join(".codewhale");
    let report = import(&store, &home);
    assert_eq!((report.threads.new, reasons(&report)), (4, Vec::new()));
    assert_eq!(source_ids(&store, "x.json").len(), 1);
    assert_eq!(source_ids(&store, "sessions-y.json").len(), 1);
    assert_eq!(import(&store, &home).items.imported, 0);
}

#[test]
fn archived_threads_are_archived_and_the_index_names_what_has_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 4);
    db.execute("UPDATE threads SET archived = 1, status = 'archived', title = NULL", []).unwrap();
    let index = "{\"thread_id\":\"thread-1\",\"thread_name\":\"From the index\",\"updated_at\":1,\"rollout_path\":null}\n{\"thread_id\":\"x";
    fs::write(folder.path().join(".codewhale/session_index.jsonl"), index).unwrap();
    let store = open(folder.path());
    import(&store, &folder.path().join(".codewhale/state.db"));
    let thread = store.get(&id("thread-1")).unwrap();
    assert_eq!((thread.shelf, thread.details.title.as_deref()), (Shelf::Archived, Some("From the index")));
    assert_eq!(thread.status, Status::Idle);
}

#[test]
fn a_row_that_can_not_be_read_costs_itself() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 5);
    db.execute("UPDATE messages SET content = x'ff' WHERE id = 4", []).unwrap();
    db.execute("UPDATE threads SET current_leaf_id = 'abc'", []).unwrap();
    db.execute_batch(
        "INSERT INTO checkpoints VALUES ('thread-1', 'bad', '{', 1), ('thread-1', 'good', '{}', 2);
         INSERT INTO thread_goals (thread_id, goal_id, objective, status, tokens_used) VALUES ('thread-1', 'g', 'o', 'active', 1.5e19);
         INSERT INTO jobs (id, name) VALUES ('j', x'00'), ('k', 'fine');",
    )
    .unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".codewhale"));
    let reasons = reasons(&report);
    for told in [
        "row 4 of messages: no text in `content`",
        "row thread-1 of threads: no whole number in `current_leaf_id`",
        "row thread-1 of checkpoints: no JSON in `state_json`",
        "row thread-1 of thread_goals: no whole number in `tokens_used`",
        "row j of jobs: no text in `name`",
    ] {
        assert!(reasons.contains(&told), "{told}: {reasons:?}");
    }
    assert_eq!(source_ids(&store, "thread-1"), ["1", "2", "3"]);
    assert!(store.checkpoint(&id("thread-1"), Some("good".to_owned())).unwrap().is_some());
    assert_eq!(store.jobs(JobQuery::default()).unwrap().entries.len(), 1);
}

#[test]
fn sessions_are_their_journal_and_else_their_messages() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join(".deepseek/sessions");
    fs::create_dir_all(&sessions).unwrap();
    let metadata = |id: &str| {
        json!({"id": id, "title": "A session", "created_at": "2026-07-18T00:00:00Z", "updated_at": "2026-07-18T00:00:01Z",
          "message_count": 2, "total_tokens": 5, "model": "m", "model_provider": "deepseek", "workspace": folder.path(), "mode": "agent",
          "parent_session_id": "9f0d1c2b-0000-4000-8000-000000000009", "forked_from_message_count": 1, "archived": true})
    };
    let said = |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    let old = json!({"schema_version": 1, "metadata": metadata("9f0d1c2b-0000-4000-8000-000000000001"),
      "messages": [said("user", "a"), said("assistant", "b")], "system_prompt": null});
    fs::write(sessions.join("old.json"), serde_json::to_string_pretty(&old).unwrap()).unwrap();
    let entry = |id: &str, parent: Option<&str>, kind: &str, message: serde_json::Value| json!({"id": id, "parent_id": parent, "kind": kind, "created_at": "2026-07-18T00:00:00Z", "message": message});
    let mut new = old.clone();
    new["metadata"] = metadata("9f0d1c2b-0000-4000-8000-000000000002");
    new["journal"] = json!({"leaf_id": "e3", "entries": [
      entry("e1", None, "user", said("user", "a")),
      entry("e2", Some("e1"), "assistant", said("assistant", "b")),
      entry("e3", Some("e1"), "assistant", said("assistant", "another")),
      entry("e4", Some("e2"), "compaction", json!("so far"))]});
    fs::write(sessions.join("new.json"), serde_json::to_string_pretty(&new).unwrap()).unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".deepseek"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    assert_eq!(items(&store, "9f0d1c2b-0000-4000-8000-000000000001").len(), 2);
    assert_eq!(source_ids(&store, "9f0d1c2b-0000-4000-8000-000000000002"), ["e1", "e3"]);
    let thread = store.get(&id("9f0d1c2b-0000-4000-8000-000000000002")).unwrap();
    assert_eq!((thread.items, thread.shelf), (4, Shelf::Archived));
    assert_eq!(thread.forked_from, Some(id("9f0d1c2b-0000-4000-8000-000000000009")));
    assert_eq!(import(&store, &folder.path().join(".deepseek")).items.imported, 0);
}

#[test]
fn a_thread_becomes_a_thread_and_a_session_of_codewhale() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    own(&store, folder.path());
    let home = folder.path().join("out");
    let exported = export(&store, "own", "codewhale", &home);
    assert_eq!((exported.messages, exported.companions.len()), (8, 1));
    let db = Connection::open(home.join("state.db")).unwrap();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("PRAGMA user_version"), 5);
    assert_eq!(one("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // What CodeWhale's own validator asks: parents before their children, one chain, the leaf at its end.
    assert_eq!(one("SELECT count(*) FROM messages WHERE parent_entry_id IS NOT NULL AND parent_entry_id != id - 1"), 0);
    assert_eq!(one("SELECT current_leaf_id = (SELECT max(id) FROM messages) FROM threads"), 1);
    assert_eq!(one("SELECT count(*) FROM messages WHERE item_json IS NOT NULL AND NOT json_valid(item_json)"), 0);
    let other = tempfile::tempdir().unwrap();
    let fresh = open(other.path());
    let report = import(&fresh, &home.join("state.db"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    let thread = fresh.latest().unwrap().unwrap();
    let said = texts(&fresh, thread.as_str(), &threadkeep_agents::codewhale::CodeWhale);
    let expected = [
        "look around",
        "I will",
        "ls {\"path\":\".\"}",
        "a file",
        "There is a file",
        "what was so far",
        "go on",
        "done",
    ];
    assert_eq!(said, expected);
    let session = tempfile::tempdir().unwrap();
    let fresh = open(session.path());
    let report = import(&fresh, &home.join("sessions"));
    assert_eq!(reasons(&report), Vec::<&str>::new());
    assert_eq!(texts(&fresh, thread.as_str(), &threadkeep_agents::codewhale::CodeWhale), expected);
}

#[test]
fn a_thread_of_codewhale_comes_back_with_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 4);
    db.execute("UPDATE messages SET item_json = '{ \"type\": \"x\" }' WHERE id = 2", []).unwrap();
    let store = open(folder.path());
    import(&store, &folder.path().join(".codewhale"));
    let home = folder.path().join("out");
    let exported = export(&store, "thread-1", "codewhale", &home);
    assert_eq!((exported.records, exported.messages), (4, 0));
    let rows = |db: &Connection| {
        let mut rows = db.prepare("SELECT role, content, item_json, created_at FROM messages ORDER BY id").unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, Option<String>>(2)?,
                row.get::<_, i64>(3)?,
            ))
        };
        rows.query_map([], row).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(rows(&Connection::open(home.join("state.db")).unwrap()), rows(&db));
}

#[test]
fn the_index_names_a_thread_until_it_is_named_here() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path(), 4);
    db.execute("UPDATE threads SET title = NULL", []).unwrap();
    let home = folder.path().join(".codewhale");
    let store = open(folder.path());
    let title = |name: Option<&str>| {
        if let Some(name) = name {
            let line = json!({"thread_id": "thread-1", "thread_name": name, "updated_at": 1, "rollout_path": null});
            fs::write(home.join("session_index.jsonl"), format!("{line}\n")).unwrap();
        }
        // What CodeWhale does with every name that it gives.
        db.execute("UPDATE threads SET updated_at = updated_at + 1", []).unwrap();
        import(&store, &home);
        store.get(&id("thread-1")).unwrap().details.title
    };
    assert_eq!(title(None), None);
    assert_eq!(title(Some("late")).as_deref(), Some("late"));
    assert_eq!(title(Some("later")).as_deref(), Some("later"));
    store.update(&id("thread-1"), threadkeep::ThreadPatch::title("mine")).unwrap();
    assert_eq!(title(Some("too late")).as_deref(), Some("mine"));
    assert_eq!(title(None).as_deref(), Some("mine"));
}

#[test]
fn the_goal_beside_a_session_is_its_goal() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join(".codewhale/sessions");
    fs::create_dir_all(sessions.join(".goals")).unwrap();
    let session = |id: &str| {
        json!({"schema_version": 1, "metadata": {"id": id, "title": "A", "message_count": 1, "workspace": folder.path()},
          "messages": [{"role": "user", "content": "do it"}]})
    };
    let write = |name: &str, session: &serde_json::Value, goal: &str| {
        fs::write(sessions.join(name), session.to_string()).unwrap();
        fs::write(sessions.join(".goals").join(name), goal).unwrap();
    };
    let goal = r#"{"schema_version":1,"objective":"reach it","status":"paused","token_budget":9,"tokens_used":4,"time_used_seconds":5,
        "continuation_count":1,"elapsed_seconds":7,"pause_reason":"user"}"#;
    write("one.json", &session("one"), goal);
    write("two.json", &session("two"), "{\"objective\"");
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".codewhale"));
    assert!(
        matches!(reasons(&report)[..], [told] if told.starts_with("the goal beside it: unreadable row")),
        "{report:#?}"
    );
    let goal = store.goal(&id("one")).unwrap().unwrap();
    assert_eq!((goal.objective.as_str(), goal.tokens_used, goal.token_budget), ("reach it", 4, Some(9)));
    assert_eq!((goal.status, goal.pause_reason), (GoalStatus::Paused, Some(threadkeep::PauseReason::User)));
    assert_eq!(store.goal(&id("two")).unwrap(), None);
    assert_eq!(import(&store, &folder.path().join(".codewhale")).companions.imported, 0);
}

#[test]
fn a_long_session_keeps_what_stands_around_its_entries() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join(".codewhale/sessions");
    fs::create_dir_all(&sessions).unwrap();
    let said = |n: u64| json!({"role": "user", "content": [{"type": "text", "text": format!("{n} {}", "w ".repeat(1 << 19))}]});
    let entry = |n: u64| json!({"id": n.to_string(), "parent_id": n.checked_sub(1).map(|n| n.to_string()), "kind": "message", "message": said(n)});
    let session = json!({"schema_version": 1, "metadata": {"id": "long", "title": "A long one", "message_count": 10, "workspace": folder.path()},
      "messages": (0..10).map(said).collect::<Vec<_>>(),
      "journal": {"entries": (0..10).map(entry).collect::<Vec<_>>(), "leaf_id": "9"}, "leaf_id": "9"});
    // Keys stand in the program's order: messages before the journal.
    let text = format!(
        "{{\"schema_version\":1,\"metadata\":{},\"messages\":{},\"journal\":{},\"leaf_id\":\"9\"}}",
        session["metadata"], session["messages"], session["journal"]
    );
    fs::write(sessions.join("long.json"), text).unwrap();
    let store = open(folder.path());
    let report = import(&store, &folder.path().join(".codewhale"));
    assert_eq!((report.items.imported, reasons(&report).len()), (10, 0), "{report:#?}");
    let thread = store.get(&id("long")).unwrap();
    assert_eq!(thread.details.title.as_deref(), Some("A long one"));
}

#[test]
fn calls_that_were_made_together_stand_together_with_their_results_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    let said = |role: &str, blocks: serde_json::Value| json!({"role": role, "content": blocks});
    let call = |id: &str| said("assistant", json!([{"type": "tool_use", "id": id, "name": "ls", "input": {}}]));
    let result = |id: &str| said("user", json!([{"type": "tool_result", "tool_use_id": id, "content": id}]));
    let words = |role: &str, text: &str| said(role, json!([{"type": "text", "text": text}]));
    let messages = [
        words("user", "go"),
        words("assistant", "I look"),
        call("a"),
        call("b"),
        words("user", "and hurry"),
        result("a"),
        call("c"),
        result("b"),
        result("c"),
        words("assistant", "done"),
    ];
    let sessions = folder.path().join(".codewhale/sessions");
    fs::create_dir_all(&sessions).unwrap();
    let session = json!({"schema_version": 1, "metadata": {"id": "many", "title": "A", "message_count": 10, "workspace": folder.path()},
      "messages": messages});
    fs::write(sessions.join("many.json"), session.to_string()).unwrap();
    let store = open(folder.path());
    import(&store, &folder.path().join(".codewhale"));
    let home = folder.path().join("out");
    store_of(&store, &["many"], "codewhale", &home);
    let told = |message: &serde_json::Value| -> Vec<String> {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks
            .map(|block| ["text", "id", "tool_use_id"].iter().find_map(|key| block[*key].as_str()).unwrap().to_owned())
            .collect()
    };
    let expected = [&["go"][..], &["I look"], &["a", "b"], &["a"], &["b"], &["and hurry"], &["c"], &["c"], &["done"]];
    let file = fs::read_dir(home.join("sessions")).unwrap().next().unwrap().unwrap().path();
    let written: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let messages = written["messages"].as_array().unwrap();
    assert_eq!(messages.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(written["journal"]["entries"].as_array().unwrap().len(), expected.len());
    let db = Connection::open(home.join("state.db")).unwrap();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("SELECT count(*) FROM messages"), 9);
    assert_eq!(one("SELECT count(*) FROM messages WHERE parent_entry_id IS NOT NULL AND parent_entry_id != id - 1"), 0);
    assert_eq!(one("SELECT current_leaf_id = (SELECT max(id) FROM messages) FROM threads"), 1);
    assert_eq!(one("SELECT count(*) FROM messages WHERE item_json IS NOT NULL AND NOT json_valid(item_json)"), 0);
}
