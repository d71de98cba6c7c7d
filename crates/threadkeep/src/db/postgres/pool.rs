//! Workers: threads that take requests in the order that these ask for, and run them on connections of their own.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::concurrency::thread::{self, JoinHandle};
use crate::concurrency::{Condvar, Mutex, MutexGuard};
use crate::db::postgres::Place;
use crate::db::postgres::refusal::Fate;
use crate::db::postgres::session::{Begin, Committed, Purpose, Session};
use crate::db::write_queue::join;
use crate::db::{Order, Request, Sync, Terms};
use crate::error::{Error, Result};

/// How many connections a store opens at most for each purpose; it opens them when they are needed.
const WORKERS: usize = 4;
/// How many requests share a commit at most.
const GROUP_LIMIT: usize = 64;
/// How many bytes a group may have collected before it is committed.
const GROUP_BYTES: usize = 8 << 20;
/// How often a transaction is run again because others were in its way.
const ATTEMPTS: u32 = 12;
/// The longest pause before that.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How long to go on with fewer connections before another one is asked for.
const SHORTAGE: Duration = Duration::from_secs(1);
/// How long a store that is being closed still tries to reach its server.
const CLOSING_BOUND: Duration = Duration::from_secs(2);

/// Threads with connections for one purpose.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    place: Arc<Place>,
    purpose: Purpose,
    queue: Mutex<Queue>,
    news: Condvar,
}

impl Pool {
    pub(crate) fn new(place: Arc<Place>, purpose: Purpose) -> Self {
        let shared = Shared { place, purpose, queue: Mutex::default(), news: Condvar::new() };
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Starts the first worker on a connection that is there already.
    pub(crate) fn start_with(&self, session: Session) -> Result<()> {
        self.shared.queue().workers += 1;
        self.start(Some(session))
    }

    /// Queues a request, and starts a worker for it when all are busy and there may be more.
    pub(crate) fn submit(&self, request: Box<dyn Request>, terms: Terms) {
        let mut queue = self.shared.queue();
        queue.push(request, terms);
        let is_short = queue.needs_worker();
        if is_short {
            queue.workers += 1;
        }
        drop(queue);
        self.shared.news.notify_one();
        if is_short && let Err(error) = self.start(None) {
            tracing::error!(%error, "a worker did not start");
            let mut queue = self.shared.queue();
            queue.workers -= 1;
            // Without any worker nobody would ever answer.
            let stranded = if queue.workers == 0 { queue.drain() } else { Vec::new() };
            drop(queue);
            stranded.into_iter().for_each(|job| job.request.finish(Err(error.clone())));
        }
    }

    fn start(&self, session: Option<Session>) -> Result<()> {
        let worker = Worker { shared: Arc::clone(&self.shared), session, deadline: None };
        let name = match self.shared.purpose {
            Purpose::Read => "threadkeep-reader",
            Purpose::Write => "threadkeep-writer",
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || worker.serve());
        let thread = thread.map_err(|error| Error::Backend { detail: format!("no thread for a worker: {error}") })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }
}

impl Drop for Pool {
    /// Waits until everything that was queued is done.
    fn drop(&mut self) {
        self.shared.queue().closing = true;
        self.shared.news.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(join);
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request with what it asks for.
struct Job {
    number: u64,
    request: Box<dyn Request>,
    sync: Sync,
    repeatable: bool,
}

/// What waits, and in which order it may begin.
#[derive(Default)]
struct Queue {
    /// The number of the next request.
    next: u64,
    /// What waits under each name; a name is here while anything waits under it.
    named: HashMap<String, VecDeque<Job>>,
    /// Names under which something may begin, the longest waiting first.
    ready: VecDeque<String>,
    /// Names under which something is running.
    running: HashSet<String>,
    free: VecDeque<Job>,
    /// Requests that begin after everything before them.
    last: VecDeque<Job>,
    /// The numbers of all requests that are not finished.
    open: BTreeSet<u64>,
    workers: usize,
    idle: usize,
    /// Until when no further worker is started: the server has no connection to spare.
    short_until: Option<Instant>,
    closing: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("open", &self.open.len()).field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// What a worker runs together.
#[derive(Default)]
struct Batch {
    names: Vec<String>,
    numbers: Vec<u64>,
    jobs: Vec<Job>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, request: Box<dyn Request>, terms: Terms) {
        let job = Job { number: self.next, request, sync: terms.sync, repeatable: terms.repeatable };
        self.next += 1;
        self.open.insert(job.number);
        match terms.order {
            Order::Free => self.free.push_back(job),
            Order::AfterAll => self.last.push_back(job),
            Order::Within(name) => match self.named.get_mut(&name) {
                Some(waiting) => waiting.push_back(job),
                None => {
                    if !self.running.contains(&name) {
                        self.ready.push_back(name.clone());
                    }
                    self.named.insert(name, VecDeque::from([job]));
                }
            },
        }
    }

    /// Whether what was just pushed would wait for a worker though there may be more of them.
    fn needs_worker(&self) -> bool {
        let may_connect = self.short_until.is_none_or(|until| Instant::now() >= until);
        self.workers == 0 || (self.idle == 0 && self.workers < WORKERS && may_connect)
    }

    /// Takes what may begin now: a fair share of what waits, for the other idle workers take the rest.
    fn take(&mut self, purpose: Purpose) -> Option<Batch> {
        let mut batch = Batch::default();
        if let Some(job) = self.free.pop_front() {
            batch.add(job);
        } else if self.last.front().is_some_and(|job| self.open.first() == Some(&job.number)) {
            self.last.pop_front().into_iter().for_each(|job| batch.add(job));
        }
        if purpose == Purpose::Read || !batch.jobs.is_empty() {
            return (!batch.jobs.is_empty()).then_some(batch);
        }
        let share = self.ready.len().div_ceil(self.idle + 1);
        for _ in 0..share {
            let Some(name) = self.ready.pop_front() else { break };
            let Some(waiting) = self.named.get_mut(&name) else { continue };
            while !batch.is_full()
                && let Some(job) = waiting.pop_front()
            {
                batch.add(job);
            }
            if waiting.is_empty() {
                self.named.remove(&name);
            }
            self.running.insert(name.clone());
            batch.names.push(name);
            if batch.is_full() {
                break;
            }
        }
        (!batch.jobs.is_empty()).then_some(batch)
    }

    /// Notes that a batch is finished.
    fn done(&mut self, names: Vec<String>, numbers: &[u64]) {
        for number in numbers {
            self.open.remove(number);
        }
        for name in names {
            self.running.remove(&name);
            if self.named.contains_key(&name) {
                self.ready.push_back(name);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn drain(&mut self) -> Vec<Job> {
        self.ready.clear();
        self.open.clear();
        let named = self.named.drain().flat_map(|(_, waiting)| waiting).collect::<Vec<_>>();
        self.free.drain(..).chain(self.last.drain(..)).chain(named).collect()
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.jobs.len() >= GROUP_LIMIT || self.bytes >= GROUP_BYTES
    }

    fn add(&mut self, job: Job) {
        self.bytes = self.bytes.saturating_add(job.request.bytes());
        self.numbers.push(job.number);
        self.jobs.push(job);
    }
}

struct Worker {
    shared: Arc<Shared>,
    session: Option<Session>,
    /// Until when the requests at hand are tried.
    deadline: Option<Instant>,
}

/// How running a request ended.
enum Ended {
    Done,
    /// Something was said to be done that was not: it runs again and waits for every answer.
    Wrong,
    Failed(Error, Fate),
    Unknown(Error),
}

impl Worker {
    fn serve(mut self) {
        if self.session.is_none() && !self.is_needed() {
            return;
        }
        while let Some(batch) = self.next() {
            let Batch { names, numbers, jobs, .. } = batch;
            self.deadline = None;
            // What panics must not leave its name running for ever.
            let run = AssertUnwindSafe(|| self.run(jobs));
            if std::panic::catch_unwind(run).is_err() {
                tracing::error!("a request ended badly");
                self.session = None;
            }
            self.shared.queue().done(names, &numbers);
            self.shared.news.notify_all();
        }
    }

    /// Connects. Where that fails and there are others, they do the work and this worker ends.
    fn is_needed(&mut self) -> bool {
        let error = match Session::connect(&self.shared.place, self.shared.purpose) {
            Ok(session) => {
                self.session = Some(session);
                return true;
            }
            Err((error, _)) => error,
        };
        let mut queue = self.shared.queue();
        if queue.workers <= 1 {
            return true;
        }
        tracing::debug!(%error, "going on with fewer connections");
        queue.workers -= 1;
        queue.short_until = Some(Instant::now() + SHORTAGE);
        drop(queue);
        // It may have been woken for something that it leaves undone.
        self.shared.news.notify_all();
        false
    }

    /// Waits for something to do; `None` when there will be nothing more.
    fn next(&self) -> Option<Batch> {
        let mut queue = self.shared.queue();
        loop {
            if let Some(batch) = queue.take(self.shared.purpose) {
                return Some(batch);
            }
            if queue.closing && queue.is_empty() {
                return None;
            }
            queue.idle += 1;
            queue = self.shared.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn run(&mut self, jobs: Vec<Job>) {
        let is_group = jobs.len() > 1;
        let jobs = if is_group { self.run_together(jobs) } else { jobs };
        for job in jobs {
            match self.shared.purpose {
                Purpose::Read => self.read(job),
                Purpose::Write => self.run_alone(job, !is_group),
            }
        }
    }

    /// Runs a request that reads, on another connection when the first one is lost.
    fn read(&mut self, mut job: Job) {
        let mut attempt = 0;
        loop {
            let session = match self.session() {
                Ok(session) => session,
                Err(error) => return job.request.finish(Err(error)),
            };
            let mut tx = session.begin(Begin::Snapshot);
            let outcome = run_request(&mut *job.request, &mut tx);
            let fate = tx.refusal().map(|refusal| refusal.fate);
            let may_pass = matches!(fate, Some(Fate::Again | Fate::Lost));
            attempt += 1;
            if !may_pass {
                job.request.finish(outcome);
                if !tx.roll_back() {
                    self.session = None;
                }
                return;
            }
            if !tx.roll_back() {
                self.session = None;
            }
            if self.is_late() {
                return job.request.finish(outcome);
            }
            pause(attempt);
        }
    }

    /// Runs requests in one transaction. If anything fails, all of it is undone and what is not finished is given back.
    fn run_together(&mut self, mut jobs: Vec<Job>) -> Vec<Job> {
        let sync = jobs.iter().map(|job| job.sync).max().unwrap_or(Sync::Synced);
        let Ok(session) = self.session() else { return jobs };
        let mut tx = session.begin_posting(begin(sync));
        let failed = jobs.iter_mut().any(|job| run_request(&mut *job.request, &mut tx).is_err());
        if failed || tx.settle().is_err() || tx.refusal().is_some() {
            if !tx.roll_back() {
                self.session = None;
            }
            jobs.iter_mut().for_each(|job| job.request.undone());
            return jobs;
        }
        match tx.commit() {
            Committed::Yes => jobs.into_iter().for_each(|job| job.request.finish(Ok(()))),
            Committed::No(refusal) => {
                if refusal.fate == Fate::Lost {
                    self.session = None;
                }
                jobs.iter_mut().for_each(|job| job.request.undone());
                return jobs;
            }
            Committed::Unknown(error) => {
                self.session = None;
                let (again, unknown): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.repeatable);
                unknown.into_iter().for_each(|job| job.request.finish(Err(error.clone())));
                return again;
            }
        }
        Vec::new()
    }

    /// Runs a request in a transaction of its own until it is done, or is refused for good.
    fn run_alone(&mut self, mut job: Job, mut posting: bool) {
        let mut attempt = 0;
        let mut unknown = None;
        loop {
            let ended = match self.session() {
                Ok(session) => transact(session, &mut job, std::mem::take(&mut posting)),
                // What was not answered then is what there is to say, and not that the server is still away.
                Err(error) => return job.request.finish(Err(unknown.unwrap_or(error))),
            };
            if let Ended::Failed(..) | Ended::Wrong = ended {
                job.request.undone();
            }
            attempt += 1;
            let is_over = attempt >= ATTEMPTS || self.is_late();
            match ended {
                // At once, and waiting for every answer now.
                Ended::Wrong => {}
                Ended::Done => return job.request.finish(Ok(())),
                Ended::Failed(error, Fate::Final) => return job.request.finish(Err(error)),
                Ended::Failed(error, Fate::Again) if is_over => return job.request.finish(Err(error)),
                Ended::Failed(_, Fate::Again) => pause(attempt),
                Ended::Failed(error, Fate::Lost) => {
                    self.session = None;
                    if self.is_late() {
                        return job.request.finish(Err(unknown.unwrap_or(error)));
                    }
                    pause(attempt);
                }
                Ended::Unknown(error) => {
                    self.session = None;
                    if self.is_late() || !job.repeatable {
                        return job.request.finish(Err(error));
                    }
                    unknown = Some(error);
                    pause(attempt);
                }
            }
        }
    }

    /// The connection, made anew where it was lost.
    fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none() {
            let deadline = self.deadline();
            self.session = Some(self.shared.place.connect_until(self.shared.purpose, deadline)?);
        }
        self.session.as_mut().ok_or_else(|| Error::Backend { detail: "no connection".to_owned() })
    }

    fn deadline(&mut self) -> Instant {
        let closing = self.shared.queue().closing;
        let bound = if closing { CLOSING_BOUND } else { self.shared.place.busy_bound };
        *self.deadline.get_or_insert_with(|| Instant::now() + bound)
    }

    fn is_late(&mut self) -> bool {
        Instant::now() >= self.deadline()
    }
}

fn begin(sync: Sync) -> Begin {
    match sync {
        Sync::Written => Begin::Written,
        Sync::Synced => Begin::Synced,
    }
}

/// Runs a request in a transaction of its own, once.
fn transact(session: &mut Session, job: &mut Job, posting: bool) -> Ended {
    let begin = begin(job.sync);
    let mut tx = if posting { session.begin_posting(begin) } else { session.begin(begin) };
    let outcome = run_request(&mut *job.request, &mut tx);
    if outcome.is_ok() {
        // An error of it is the transaction's, and is looked at there.
        drop(tx.settle());
    }
    let has_posted = tx.has_posted();
    let refusal = tx.refusal().cloned();
    if outcome.is_ok() && refusal.is_none() {
        return match tx.commit() {
            Committed::Yes => Ended::Done,
            Committed::No(refusal) => Ended::Failed(refusal.error, refusal.fate),
            Committed::Unknown(error) => Ended::Unknown(error),
        };
    }
    let is_there = tx.roll_back();
    // The request's own words for what the server refused are better than the server's.
    let (error, fate) = match (outcome, refusal) {
        (Err(error), Some(refusal)) => (error, refusal.fate),
        (Ok(()), Some(refusal)) => (refusal.error, refusal.fate),
        (Err(error), None) => (error, Fate::Final),
        (Ok(()), None) => (Error::Backend { detail: "nothing failed".to_owned() }, Fate::Final),
    };
    match fate {
        Fate::Lost => Ended::Failed(error, Fate::Lost),
        _ if has_posted && is_there => Ended::Wrong,
        // Undone it is in any case, by the end of its connection.
        _ if !is_there => Ended::Failed(error, if fate == Fate::Final { Fate::Final } else { Fate::Lost }),
        fate => Ended::Failed(error, fate),
    }
}

/// Runs a request; one that panics is refused and takes nobody with it.
fn run_request(request: &mut dyn Request, tx: &mut dyn crate::db::Tx) -> Result<()> {
    let run = AssertUnwindSafe(|| request.run(tx));
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(Error::Backend { detail: "a request panicked".to_owned() }))
}

/// Waits a little, longer each time, and never as long as the others that met.
fn pause(attempt: u32) {
    let longest = LONGEST_PAUSE.min(Duration::from_millis(1 << attempt.min(6)));
    let mut random = [0; 2];
    // Without randomness all wait the longest time.
    let part = getrandom::fill(&mut random).map_or(u16::MAX, |()| u16::from_le_bytes(random));
    thread::sleep(longest.mul_f64(f64::from(part) / f64::from(u16::MAX)));
}
