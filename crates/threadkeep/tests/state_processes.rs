//! Many processes on one goal, on one queue, on one document, on one run: every accrual counts, every job has one worker at a time, no
//! increment is lost, and every leaf ends once, on both engines.
//!
//! A test starts this very binary again with a role in its environment; [`child_entry`] plays that role and says what it did,
//! a line at a time.
#![cfg(test)]

#[path = "state_processes/runs.rs"]
mod runs;
#[path = "postgres/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use server::Server;
use threadkeep::blocking::Store;
use threadkeep::{
    ChangeEntry, ChangeQuery, DocumentQuery, Error, GoalStatus, GoalUsage, JobEnd, JobPatch, JobQuery, JobStatus,
    NewDocument, NewGoal, NewJob, NewThread, StoreOptions, ThreadId, Uuid,
};

const ROLE: &str = "THREADKEEP_TEST_ROLE";
const PLACE: &str = "THREADKEEP_TEST_PLACE";
/// What a child's lines begin with; the test harness writes to the same stream.
const MARK: &str = "@@ ";
const PROCESSES: usize = 16;
const ACCRUALS: u64 = 500;
/// So many processes count, and each so often.
const COUNTERS: usize = 8;
const INCREMENTS: u64 = 100;
const JOBS: usize = 16 * 200;
/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(300);

/// Where a store is, and what keeps it there.
struct Ground {
    name: &'static str,
    place: String,
    _folder: Option<tempfile::TempDir>,
    _server: Option<Arc<Server>>,
}

/// A store of each engine.
fn grounds() -> Vec<Ground> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store").to_str().unwrap().to_owned();
    let mut grounds = vec![Ground { name: "SQLite", place, _folder: Some(folder), _server: None }];
    if let Some(server) = server::server() {
        let place = server.address();
        grounds.push(Ground { name: "PostgreSQL", place, _folder: None, _server: Some(server) });
    }
    grounds
}

fn open(place: &str) -> Store {
    let options = match place.starts_with("postgres") {
        true => StoreOptions::postgres(place).unwrap(),
        false => StoreOptions::folder(Path::new(place)),
    };
    Store::open(options.busy_bound(HANG)).unwrap()
}

fn thread() -> ThreadId {
    ThreadId::new("shared").unwrap()
}

/// What a child does; without a role this is no test and passes.
#[test]
fn child_entry() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let store = open(&std::env::var(PLACE).unwrap());
    say("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    match role.as_str() {
        "accrue" => play_accruer(&store),
        "work" => play_worker(&store),
        "count" => play_counter(&store),
        "hold" => play_holder(&store),
        "leaves" => runs::play_leaves(&store),
        "until_killed" => runs::play_until_killed(&store),
        other => panic!("no such role: {other}"),
    }
    say("done");
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Half of the usage says its id, and is told twice.
fn play_accruer(store: &Store) {
    let own = u64::from(std::process::id());
    for number in 0..ACCRUALS {
        let id = (number % 2 == 0).then(|| Uuid::from_u64_pair(own, number));
        let usage = GoalUsage { id, tokens: 3, seconds: 1, continuations: 1, ..GoalUsage::default() };
        for _ in 0..=u8::from(id.is_some()) {
            store.accrue_goal(&thread(), usage).unwrap().unwrap();
        }
    }
}

/// Claims until nothing is left, and says which jobs it had.
fn play_worker(store: &Store) {
    while let Some(claimed) = store.claim_job(NewJob::QUEUE).unwrap() {
        store.end_job(&claimed.lease, JobEnd::Completed { result: None }).unwrap();
        say(claimed.job.id.as_str());
    }
}

/// Adds one to the number that a document holds, again and again: reads, compares and sets.
fn play_counter(store: &Store) {
    for _ in 0..INCREMENTS {
        loop {
            let found = store.document(&thread(), "number", None).unwrap();
            let (version, number) = found.map_or((0, 0), |found| (found.info.version, found.text.parse().unwrap()));
            let next = NewDocument::new("number", (number + 1_u64).to_string()).expecting(version);
            match store.put_document(&thread(), next) {
                Ok(info) => break assert_eq!(info.version, version + 1),
                Err(Error::Conflict { what: "version", .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Claims one job and works on it until it is killed.
fn play_holder(store: &Store) {
    let claimed = store.claim_job(NewJob::QUEUE).unwrap().unwrap();
    say(claimed.job.id.as_str());
    std::thread::sleep(HANG);
}

/// A child process; killed when it is dropped.
struct Worker {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(role: &str, place: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_entry", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(PLACE, place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut worker = Self { process, output };
        assert_eq!(worker.hear().as_deref(), Some("ready"));
        worker
    }

    /// Lets it begin.
    fn go(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(MARK) {
                return Some(said.trim_end().to_owned());
            }
            line.clear();
        }
        None
    }

    /// What it says to its end, which must be a good one.
    fn finish(mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(line) = self.hear() {
            said.push(line);
        }
        let status = self.process.wait().unwrap();
        assert!(status.success() && said.pop().as_deref() == Some("done"), "a child ended with {status}");
        said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts so many, lets all begin together, and gives what each said.
fn run_together(processes: usize, role: &str, place: &str) -> Vec<Vec<String>> {
    let mut workers: Vec<Worker> = (0..processes).map(|_| Worker::start(role, place)).collect();
    workers.iter_mut().for_each(Worker::go);
    let begin = Arc::new(Barrier::new(processes));
    let listen = |worker: Worker| {
        let begin = Arc::clone(&begin);
        std::thread::spawn(move || {
            begin.wait();
            worker.finish()
        })
    };
    // Everybody is listened to, so that no pipe fills up.
    let listeners: Vec<_> = workers.into_iter().map(listen).collect();
    listeners.into_iter().map(|listener| listener.join().unwrap()).collect()
}

/// Follows the feed, from now on and beside those who write, until so many changes were told.
fn follow(store: &Store, count: usize) -> std::thread::JoinHandle<Vec<ChangeEntry>> {
    let mut query = ChangeQuery::default();
    loop {
        let page = store.changes(query.clone()).unwrap();
        query.since = Some(page.cursor);
        // What was made before is told by now, or would be told to this follower.
        if !page.more && !page.pending {
            break;
        }
    }
    let mut follower = store.follow_changes(query).unwrap();
    std::thread::spawn(move || {
        let mut told = Vec::new();
        while told.len() < count {
            let more = follower.next_within(HANG).unwrap();
            assert!(!more.is_empty(), "{} of {count} changes were told", told.len());
            told.extend(more);
        }
        told
    })
}

/// What was told is all that the feed holds behind its first change, once and in the feed's order; the ticks of a thread rise.
fn assert_whole(store: &Store, told: &[ChangeEntry], name: &str) {
    let mut query = ChangeQuery { since: Some(told[0].cursor.clone()), ..ChangeQuery::default() };
    let mut held = vec![told[0].clone()];
    loop {
        let page = store.changes(query).unwrap();
        held.extend(page.changes);
        if !page.more && !page.pending {
            break;
        }
        query = ChangeQuery { since: Some(page.cursor), ..ChangeQuery::default() };
    }
    let cursors = |changes: &[ChangeEntry]| changes.iter().map(|it| it.cursor.clone()).collect::<Vec<_>>();
    assert_eq!(cursors(told), cursors(&held), "{name}");
    let ticks: Vec<i64> = told.iter().filter_map(|it| it.tick).collect();
    assert!(ticks.is_sorted_by(|a, b| a < b), "{name}: a thread's changes come in another order");
}

#[test]
fn sixteen_processes_accrue_on_one_goal_and_every_accrual_counts_once() {
    for ground in grounds() {
        let store = open(&ground.place);
        let live = store
            .workspace(Path::new("/w"))
            .unwrap()
            .create_now(NewThread { id: Some(thread()), ..NewThread::default() })
            .unwrap();
        let total = PROCESSES as u64 * ACCRUALS;
        live.set_goal(NewGoal { token_budget: Some(3 * total), ..NewGoal::new("count") }).unwrap();
        let begun = Instant::now();
        let follower = follow(&store, PROCESSES * usize::try_from(ACCRUALS).unwrap());
        run_together(PROCESSES, "accrue", &ground.place);
        let told = follower.join().unwrap();
        assert_whole(&store, &told, ground.name);
        assert!(told.iter().all(|it| (it.area.as_str(), it.verb.as_str()) == ("goal", "changed")), "{}", ground.name);
        let goal = store.goal(&thread()).unwrap().unwrap();
        assert_eq!(
            (goal.tokens_used, goal.seconds_used, goal.continuations),
            (3 * total, total, total),
            "{}",
            ground.name
        );
        assert_eq!(goal.status, GoalStatus::BudgetLimited, "{}: the last accrual used the budget up", ground.name);
        println!(
            "{}: {PROCESSES} processes × {ACCRUALS} accruals: all counted, in {:.1?}",
            ground.name,
            begun.elapsed()
        );
    }
}

#[test]
fn eight_processes_count_in_one_document_and_no_increment_is_lost() {
    for ground in grounds() {
        let store = open(&ground.place);
        let place = store.workspace(Path::new("/w")).unwrap();
        place.create_now(NewThread { id: Some(thread()), ..NewThread::default() }).unwrap();
        run_together(COUNTERS, "count", &ground.place);
        let total = COUNTERS as u64 * INCREMENTS;
        let found = store.document(&thread(), "number", None).unwrap().unwrap();
        assert_eq!((found.text, found.info.version), (total.to_string(), total), "{}", ground.name);
        let mut query = DocumentQuery { limit: 1_000, cursor: None };
        let mut versions = Vec::new();
        loop {
            let page = store.document_history(&thread(), "number", query.clone()).unwrap();
            versions.extend(page.entries.into_iter().map(|info| info.version));
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        assert_eq!(versions, (1..=total).rev().collect::<Vec<_>>(), "{}", ground.name);
    }
}

#[test]
fn sixteen_processes_claim_from_one_queue_and_each_job_has_one_worker() {
    for ground in grounds() {
        let store = open(&ground.place);
        let place = store.workspace(Path::new("/w")).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..JOBS / 8).for_each(|_| drop(place.add_job(NewJob::new("work")).unwrap())));
            }
        });
        let begun = Instant::now();
        let follower = follow(&store, 2 * JOBS);
        let claimed: Vec<String> = run_together(PROCESSES, "work", &ground.place).into_iter().flatten().collect();
        let told = follower.join().unwrap();
        assert_whole(&store, &told, ground.name);
        let mut told: Vec<String> = told.into_iter().filter_map(|it| it.subject).collect();
        told.sort();
        let mut twice = [claimed.clone(), claimed.clone()].concat();
        twice.sort();
        assert_eq!(told, twice, "{}: each job is told when it is claimed, and when it is done", ground.name);
        assert_eq!(claimed.len(), JOBS, "{}", ground.name);
        assert_eq!(
            claimed.into_iter().collect::<BTreeSet<_>>().len(),
            JOBS,
            "{}: a job was claimed twice",
            ground.name
        );
        let left = JobQuery { status: Some(JobStatus::Queued), ..JobQuery::default() };
        assert_eq!(store.jobs(left).unwrap().entries, [], "{}", ground.name);
        let mut query = JobQuery { status: Some(JobStatus::Completed), limit: 1_000, ..JobQuery::default() };
        let mut done = 0;
        loop {
            let page = store.jobs(query.clone()).unwrap();
            assert!(page.entries.iter().all(|job| job.attempts == 1), "{}: a job was tried twice", ground.name);
            done += page.entries.len();
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        assert_eq!(done, JOBS, "{}: the list ends before its end", ground.name);
        println!("{}: {PROCESSES} processes claimed {JOBS} jobs: each once, in {:.1?}", ground.name, begun.elapsed());
    }
}

#[test]
fn a_job_whose_worker_was_killed_is_claimed_by_another_and_a_stopped_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let store = open(place);
    let workspace = store.workspace(Path::new("/w")).unwrap();
    let job = workspace.add_job(NewJob { backoff: Duration::ZERO, max_attempts: 2, ..NewJob::new("work") }).unwrap();
    for attempt in 1..=2 {
        let mut worker = Worker::start("hold", place);
        worker.go();
        assert_eq!(worker.hear().as_deref(), Some(job.id.as_str()));
        let pid = rustix::process::Pid::from_child(&worker.process);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        assert!(store.job(&job.id).unwrap().live, "a stopped worker is alive");
        assert_eq!(store.requeue_jobs(None).unwrap(), []);
        assert_eq!(store.claim_job(NewJob::QUEUE).unwrap(), None, "a living worker's job was given away");
        worker.process.kill().unwrap();
        worker.process.wait().unwrap();
        let found = store.job(&job.id).unwrap();
        assert_eq!((found.status, found.live, found.attempts), (JobStatus::Running, false, attempt));
        if attempt == 1 {
            let requeued = store.requeue_jobs(None).unwrap();
            assert_eq!(requeued.len(), 1);
            assert_eq!((&requeued[0].status, requeued[0].attempts), (&JobStatus::Queued, 1));
            assert!(requeued[0].error.as_deref().unwrap_or_default().contains("died"), "{requeued:?}");
        }
    }
    // The second attempt was the last.
    assert_eq!(store.claim_job(NewJob::QUEUE).unwrap(), None);
    let found = store.job(&job.id).unwrap();
    assert_eq!((found.status, found.ended_at.is_some()), (JobStatus::Failed, true));
    // By hand it begins anew, and the one who claims it now is not the one who died.
    store.update_job(&job.id, JobPatch { status: Some(JobStatus::Queued), ..JobPatch::default() }).unwrap();
    let claimed = store.claim_job(NewJob::QUEUE).unwrap().unwrap();
    assert_eq!((claimed.job.attempts, claimed.job.live), (1, true));
    assert!(matches!(store.delete_job(&job.id), Err(Error::Conflict { .. })));
}
