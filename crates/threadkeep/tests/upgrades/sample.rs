//! A small store that has something of everything, how a store reads, and the stores of all schemas that ever landed.
//!
//! A store of an old schema is kept as the text of its database. Both engines write the same rows, so the rows of one such text
//! are a store of that schema on either.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{
    Address, AppendOptions, CheckpointQuery, DocumentQuery, Durability, GoalCheck, GoalQuery, GoalStatus, GoalUsage,
    Hash, ImportBatch, ImportPart, ImportSegment, Item, ItemQuery, JobEnd, JobId, JobQuery, JobStatus, Judgement, Kind,
    ListQuery, NewCandidate, NewCheckpoint, NewDocument, NewGoal, NewItem, NewJob, NewPart, NewRoadmap, NewRun,
    NewThread, PartEnd, PartId, PartKind, RoadmapId, RoadmapQuery, Role, Run, RunId, RunQuery, RunStatus, Score,
    Shelves, SortKey, SourceFile, StoreOptions, ThreadId, ThreadPatch, Tool, TreeQuery, TurnEnd, TurnQuery, Uuid,
    gap_fingerprint,
};

use crate::fixed_host::FixedHost;

/// What the lines begin with that say how a fixture reads.
pub(crate) const READS: &str = "-- reads: ";

/// A store of an old schema.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) name: String,
    /// The number of its schema.
    pub(crate) number: i64,
    /// Makes its database.
    pub(crate) sql: String,
    /// How it reads.
    pub(crate) reads: String,
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Every schema that ever landed, the oldest first.
pub(crate) fn old_schemas() -> Vec<Fixture> {
    let mut found: Vec<Fixture> = std::fs::read_dir(fixtures())
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let number = name.strip_prefix("schema-")?.strip_suffix(".sql")?.parse().unwrap();
            let sql = std::fs::read_to_string(&path).unwrap();
            let reads =
                sql.lines().filter_map(|line| line.strip_prefix(READS)).map(|line| format!("{line}\n")).collect();
            Some(Fixture { name, number, sql, reads })
        })
        .collect();
    found.sort_by_key(|fixture| fixture.number);
    assert!(!found.is_empty(), "no fixture was found");
    found
}

pub(crate) fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

pub(crate) fn message(text: &str) -> NewItem {
    NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, "text", text.into()) }
}

fn path_of(store: &Store, thread: &ThreadId, at: Option<Address>) -> Vec<Item> {
    store.items(thread, ItemQuery { at, ..ItemQuery::default() }).unwrap().entries
}

/// How far the clock ticks at each look while a fixture is made.
pub(crate) const STEP: i64 = 1_000;

/// Makes a small store that has something of everything; always the same, to the byte.
pub(crate) fn make(options: StoreOptions, step: i64) {
    let store = Store::open(options.host(FixedHost::ticking(step))).unwrap();
    let workspace = store.workspace(Path::new("/projects/shop")).unwrap();
    let mut thread = named("tree");
    thread.details.title = Some("It's a tree".into());
    thread.details.agent = Some("codewhale".into());
    thread.details.extra.insert("theme".into(), "dark".into());
    let live = workspace.create_now(thread).unwrap();
    live.begin_turn(message("Why does the test fail?")).unwrap();
    let call = NewItem::tool_call("c1", "read_file", r#"{"path":"src/login.rs"}"#);
    let two = live.append(vec![call, NewItem::tool_result("c1", "fn login() {}\n".repeat(30), false)]).unwrap();
    live.append(vec![NewItem::raw(Kind::Unknown("hologram".into()), "text", b"\xff\0 bytes".to_vec())]).unwrap();
    live.end_turn(TurnEnd::completed()).unwrap();
    let large = "a line of output that repeats\n".repeat(3_000);
    let mut summary = NewItem::raw(Kind::Compaction, "text", large.into_bytes());
    summary.sources = two.items.iter().map(|item| item.id).collect();
    live.append(vec![summary]).unwrap();
    let after = Some(two.items[0].address());
    live.begin_turn(message("And now?")).unwrap();
    let fork =
        live.append_with(vec![message("Another way")], AppendOptions { after, ..AppendOptions::default() }).unwrap();
    store.label(&id("tree"), fork.items[0].branch, Some("second try".into())).unwrap();
    store.update(&id("tree"), ThreadPatch { pinned: Some(true), ..ThreadPatch::default() }).unwrap();
    live.shutdown().unwrap();

    make_state(&store, &workspace, two.items[1].address());
    crate::steering::make(&store, &workspace, &id("tree"));
    crate::steering::ask(&store, &id("tree"));
    store.fork(&id("tree"), Some(two.items[1].address()), named("fork")).unwrap();
    let live = store.resume(&id("fork"), false).unwrap();
    say(&live, "in the fork");
    live.shutdown().unwrap();
    let live = workspace.create_now(named("cleared")).unwrap();
    say(&live, "before");
    live.clear().unwrap();
    say(&live, "after");
    live.shutdown().unwrap();
    store.archive(&id("cleared")).unwrap();
    let live = store.workspace(Path::new("/projects/other")).unwrap().create_now(named("trashed")).unwrap();
    say(&live, "gone, but not yet");
    live.shutdown().unwrap();
    store.delete(&id("trashed")).unwrap();
    crate::retained::make(&store);
    import_sample(&store);
}

/// What stands beside the log.
fn make_state(store: &Store, workspace: &Workspace, at: Address) {
    let live = store.resume(&id("tree"), false).unwrap();
    live.set_goal(NewGoal { token_budget: Some(50), ..NewGoal::new("make it's test pass") }).unwrap();
    let usage =
        GoalUsage { id: Some(Uuid::from_u128(5)), tokens: 60, seconds: 3, continuations: 1, ..GoalUsage::default() };
    live.accrue_goal(usage).unwrap();
    let word = GoalStatus::Unknown("waiting_approval".into());
    live.set_goal(NewGoal { status: Some(word), continuations: 2, ..NewGoal::new("ask first") }).unwrap();
    live.check_goal(GoalCheck { gap: gap_fingerprint(&["nobody answers"]), pass: 1 }).unwrap();
    let state = format!("[{}]", vec!["{\"step\": \"read the file\"}"; 40].join(","));
    for name in ["first", "same"] {
        live.save_checkpoint(NewCheckpoint::new(name, state.as_str())).unwrap();
    }
    live.save_checkpoint(NewCheckpoint { at: Some(at), ..NewCheckpoint::new("earlier", "null") }).unwrap();
    make_documents(&live, workspace);
    live.shutdown().unwrap();
    let job = |name: &str| NewJob { id: Some(JobId::new(name).unwrap()), ..NewJob::new(format!("the {name} job")) };
    let payload = Some("{\"it's\": 1}".to_owned());
    workspace.add_job(NewJob { payload, priority: 2, ..job("done") }).unwrap();
    workspace.add_job(NewJob { thread: Some(id("tree")), ..job("waits") }).unwrap();
    workspace.add_job(NewJob { status: Some(JobStatus::Unknown("shelved".into())), ..job("odd") }).unwrap();
    let claimed = workspace.claim_job(NewJob::QUEUE).unwrap().unwrap();
    workspace.end_job(&claimed.lease, JobEnd::Completed { result: Some("[true]".into()) }).unwrap();
    make_work(store, workspace);
}

/// Tools, and the runs of workflows.
fn make_work(store: &Store, workspace: &Workspace) {
    let described = Tool { description: Some("reads it's file".into()), ..Tool::new("read", "{\"type\": \"object\"}") };
    let tools = vec![described, Tool { extra: Some("{\"n\":1.50}".into()), ..Tool::new("ask", "true") }];
    store.set_tools(&id("tree"), tools, None).unwrap();
    let run = |name: &str| NewRun { id: Some(RunId::new(name).unwrap()), ..NewRun::new("review") };
    let part = |name: &str, kind| NewPart { id: Some(PartId::new(name).unwrap()), ..NewPart::new(kind) };
    let full = NewRun { goal: Some("find what's wrong".into()), input_hash: Some("h".into()), ..run("of-tree") };
    let full = store.start_run(NewRun { thread: Some(id("tree")), metadata: Some("[ 1]".into()), ..full }).unwrap();
    let word = RunStatus::Unknown("shelved".into());
    workspace.start_run(NewRun { status: Some(word), ..run("of-none") }).unwrap();
    let kind = PartKind::Branch { branch: "fast".into(), node: "split".into() };
    let branch = store.start_part(&full.id, part("branch", kind)).unwrap().id;
    let (leaf, task, input_hash) = ("lint".to_owned(), "run it".to_owned(), Some("i".to_owned()));
    let kind = PartKind::Leaf { leaf, task, branch_run: Some(branch.clone()), input_hash };
    let leaf = store.start_part(&full.id, part("leaf", kind)).unwrap().id;
    let end = PartEnd { list: Some("[\"a.txt\" ]".into()), ..PartEnd::completed("{\"it's\": 3}") };
    store.end_part(&leaf, end).unwrap();
    let kind = PartKind::Control { node: "pick".into(), control: "best_of".into() };
    let control = store.start_part(&full.id, part("control", kind)).unwrap().id;
    let judgement = Judgement {
        score: Some(Score::new("-0.50").unwrap()),
        passed: Some(false),
        rationale: Some("{\"why\":\"slow\"}".into()),
    };
    let candidate = NewCandidate { id: Some(PartId::new("candidate").unwrap()), ..NewCandidate::new(control, "one") };
    store.add_candidate(&full.id, NewCandidate { branch_run: Some(branch), judgement, ..candidate }).unwrap();
    store.interrupt_run(&full.id, "its process died").unwrap();
}

/// Documents of each kind, and a roadmap that the thread works on.
fn make_documents(live: &threadkeep::blocking::LiveThread, workspace: &Workspace) {
    let notes = format!("[{}]", vec!["\"it's a note\""; 40].join(","));
    for (number, (name, text)) in [
        ("notes", "1"),
        ("notes", notes.as_str()),
        ("scratchpad", r#"{"where":"src/lib.rs"}"#),
        ("plan", r#"{"steps":[{"description":"read","status":"done"}]}"#),
        ("pin", r#"{"model":"m"}"#),
        ("gone", "null"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = Some(Uuid::from_u128(100 + number as u128));
        live.put_document(NewDocument { id, ..NewDocument::new(name, text) }).unwrap();
    }
    live.delete_document("gone", None).unwrap();
    let way = RoadmapId::new("way").unwrap();
    let tree = "goal = \"it's done\" # soon\n[[subtask]]\nid = \"a\"\ninstruction = \"read\"\n";
    workspace
        .create_roadmap(NewRoadmap { title: Some("The way".into()), ..NewRoadmap::new(way.clone(), tree) })
        .unwrap();
    live.link_roadmap(&way, Some("a".into())).unwrap();
}

fn import_sample(store: &Store) {
    let live = store.workspace(Path::new("/projects/shop")).unwrap().create(named("imported")).unwrap();
    let record = NewItem { source_id: Some("r-1".into()), ..message("from a file") };
    let record = record.with_id("01900000-0000-7000-8000-000000000001".parse().unwrap());
    let part = ImportPart::Item { item: Box::new(record), after: None, starts_turn: true, note: b"n".to_vec() };
    let beside = ImportPart::Beside { bytes: b"{damaged".to_vec() };
    let segments =
        vec![ImportSegment { position: 0, length: 11, part }, ImportSegment { position: 12, length: 8, part: beside }];
    let source = SourceFile {
        agent: "codex".into(),
        path: "/home/a/.codex/sessions/1.jsonl".into(),
        thread: Some(id("imported")),
        size: 21,
        mtime: 1_767_323_045_000_000_000,
        consumed: 21,
        prefix: Hash::of(b"from a file\n{damaged\n"),
        records: 2,
        skipped: 1,
        state: b"state".to_vec(),
    };
    let batch = ImportBatch {
        source,
        expected: None,
        replace: false,
        segments,
        screened: false,
        head: None,
        patch: None,
        updated_at: None,
    };
    live.import(batch, Durability::Synced).unwrap();
    live.shutdown().unwrap();
}

fn say(live: &threadkeep::blocking::LiveThread, text: &str) {
    live.append(vec![message(text)]).unwrap();
}

/// Says in lines how a store reads, without anything that a later version may rightly say otherwise.
pub(crate) fn transcript(store: &Store) -> String {
    let mut out = String::new();
    writeln!(out, "store {}", store.id()).unwrap();
    for shelves in [Shelves::Both, Shelves::Trash] {
        let query = ListQuery { shelves, sort: SortKey::Created, ascending: true, ..ListQuery::default() };
        for thread in store.list(query).unwrap().entries {
            thread_lines(store, &thread.id, &mut out);
        }
    }
    for stamp in store.source_stamps("", 100).unwrap() {
        let source = store.source(&stamp.path).unwrap().unwrap();
        writeln!(out, "source {source:?}").unwrap();
        writeln!(out, "records {:?}", store.known_records(&stamp.path, -1, 100).unwrap()).unwrap();
        let parts = store.source_parts(&stamp.path, -1, 100).unwrap().into_iter();
        let parts: Vec<String> =
            parts.map(|part| format!("FilePart {{ position: {}, bytes: {:?} }}", part.position, part.bytes)).collect();
        writeln!(out, "parts [{}]", parts.join(", ")).unwrap();
    }
    for info in store.roadmaps(RoadmapQuery::default()).unwrap().entries {
        let text = store.roadmap(&info.id).unwrap().unwrap().text;
        let (id, title) = (&info.id, &info.title);
        writeln!(out, "roadmap {id} {title:?} {} created {} {text:?}", info.version, info.created_at).unwrap();
    }
    for job in store.jobs(JobQuery { ascending: true, ..JobQuery::default() }).unwrap().entries {
        writeln!(
            out,
            "job {} {:?} {} {:?} {} {:?} attempts {} {:?} {:?} {:?} due {} created {} ended {:?}",
            job.id,
            job.thread,
            job.queue,
            job.name,
            job.priority,
            job.status,
            job.attempts,
            job.progress,
            job.payload,
            job.result,
            job.due_at,
            job.created_at,
            job.ended_at
        )
        .unwrap();
    }
    for run in store.runs(RunQuery { ascending: true, ..RunQuery::default() }).unwrap().entries {
        let tree = store.run_tree(&run.id, TreeQuery::default()).unwrap();
        let Run { id, thread, workflow, goal, status, reason, input_hash, metadata, .. } = &tree.run;
        let (from, to) = (tree.run.started_at, tree.run.completed_at);
        let words = format!("{id} {thread:?} {workflow} {goal:?} {status:?} {reason:?} {input_hash:?} {metadata:?}");
        writeln!(out, "run {words} {from} {to:?} tick {}", tree.run.tick).unwrap();
        for node in tree.nodes {
            writeln!(out, "  {}", serde_json::to_string(&node).unwrap()).unwrap();
        }
    }
    crate::steering::request_lines(store, &mut out);
    crate::retained::lines(store, &mut out);
    out
}

/// What stands beside the log of a thread.
fn state_lines(store: &Store, id: &ThreadId, out: &mut String) {
    for goal in store.goal_history(id, GoalQuery::default()).unwrap().entries {
        writeln!(
            out,
            "goal {} {} {:?} {:?} {:?} {:?} {:?} {:?} used {} {} {} {:?} created {} ended {:?}",
            goal.ordinal,
            goal.id,
            goal.objective,
            goal.status,
            goal.stored_status,
            goal.pause_reason,
            goal.token_budget,
            goal.seconds_budget,
            goal.tokens_used,
            goal.seconds_used,
            goal.continuations,
            goal.stall,
            goal.created_at,
            goal.ended_at
        )
        .unwrap();
    }
    for tool in store.tools(id).unwrap().tools {
        writeln!(out, "tool {tool:?}").unwrap();
    }
    for info in store.checkpoints(id, CheckpointQuery::default()).unwrap().entries {
        let state = store.checkpoint(id, Some(info.name.clone())).unwrap().unwrap().state;
        let at = info.at.map(|at| at.to_string());
        writeln!(
            out,
            "checkpoint {:?} {at:?} {} {} created {} {state:?}",
            info.name, info.digest, info.size, info.created_at
        )
        .unwrap();
    }
}

/// The documents of a thread with their versions, and what it works on.
fn document_lines(store: &Store, id: &ThreadId, out: &mut String) {
    for name in ["gone", "notes", "pin", "plan", "scratchpad"] {
        for info in store.document_history(id, name, DocumentQuery::default()).unwrap().entries {
            let text = store.document(id, name, Some(info.version)).unwrap().map(|found| found.text);
            writeln!(out, "document {name} {} {} {} {text:?}", info.version, info.kind, info.created_at).unwrap();
        }
    }
    if let Some(link) = store.roadmap_link(id).unwrap() {
        writeln!(out, "works on {} {:?} since {}", link.roadmap, link.node, link.linked_at).unwrap();
    }
}

fn thread_lines(store: &Store, id: &ThreadId, out: &mut String) {
    let thread = store.get(id).unwrap();
    state_lines(store, id, out);
    document_lines(store, id, out);
    crate::steering::inbox_lines(store, id, out);
    crate::steering::receipt_lines(store, id, out);
    let (details, head) = (&thread.details, thread.head.map(|head| head.to_string()));
    writeln!(
        out,
        "thread {id} {} {:?} {} pinned {} title {:?} agent {:?} extra {:?} items {} branches {} turns {} version {} epoch {} tick {} \
         head {head:?} {:?} fork {:?} {:?} created {} live {}",
        thread.workspace_name,
        thread.shelf,
        thread.status,
        thread.pinned,
        details.title,
        details.agent,
        details.extra,
        thread.items,
        thread.branches,
        thread.turns,
        thread.version,
        thread.epoch,
        thread.tick,
        thread.head_hash,
        thread.forked_from,
        thread.fork_point.map(|point| point.to_string()),
        thread.created_at,
        thread.live,
    )
    .unwrap();
    for branch in store.tree(id).unwrap().branches {
        let parent = branch.parent.map(|parent| parent.to_string());
        let (label, cleared, active) = (branch.label, branch.cleared, branch.active);
        writeln!(
            out,
            "branch {} of {} parent {parent:?} {label:?} cleared {cleared} active {active}",
            branch.id, branch.thread
        )
        .unwrap();
        for item in path_of(store, id, Some(Address { branch: branch.id, depth: branch.tip })) {
            let Item {
                id,
                depth,
                turn,
                kind,
                role,
                format,
                epoch,
                tick,
                created_at,
                source_id,
                sources,
                content,
                digest,
                hash,
                ..
            } = item;
            let content = Hash::of(&content);
            writeln!(
                out,
                "item {id} @{depth} turn {turn:?} {kind} {role:?} {format} epoch {epoch} tick {tick} {created_at} {source_id:?} \
                 {sources:?} content {content} digest {digest} hash {hash}"
            )
            .unwrap();
        }
    }
    for turn in store.turns(id, TurnQuery::default()).unwrap().entries {
        let (first, last) = (turn.first, turn.last.map(|last| last.to_string()));
        writeln!(out, "turn {} {} {first} {last:?} {} {:?}", turn.ordinal, turn.status, turn.started_at, turn.ended_at)
            .unwrap();
    }
    assert!(store.verify(id).unwrap().is_intact(), "{id} does not verify");
}
