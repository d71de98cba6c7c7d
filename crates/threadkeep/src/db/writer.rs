//! One writer thread per store with group commit, and a few reader threads.
//!
//! The writer drains its queue: all waiting requests run in one immediate transaction, each inside its own savepoint, then
//! one commit, one sync, and all are answered. There is no timer: a write that comes alone goes at once. Nothing is
//! acknowledged before the commit returned.

use std::collections::VecDeque;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::db::gate::Gate;
use crate::db::pragmas::Journal;
use crate::db::sqlite::{Location, Opened, SqliteTx, connect_again, engine_error, open_private};
use crate::db::{Driver, ReadRequest, Sync, WriteRequest};
use crate::error::{Error, Result};

/// How many requests share a commit at most.
const GROUP_LIMIT: usize = 512;
const READERS: usize = 4;

enum Job {
    Write(Box<dyn WriteRequest>, Sync),
    /// A read on the writer's connection: in memory there is no other.
    Read(ReadRequest),
}

/// The SQLite driver.
pub(crate) struct SqliteDriver {
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    readers: Option<Arc<Readers>>,
}

impl fmt::Debug for SqliteDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDriver").field("readers", &self.readers.is_some()).finish_non_exhaustive()
    }
}

impl SqliteDriver {
    /// Starts the writer on an opened store.
    pub(crate) fn start(location: &Location, opened: Opened) -> Result<Self> {
        let gate = match &location.folder {
            Some(folder) if !location.read_only => {
                let path = folder.join("write.gate");
                Some(Gate::new(&path, open_private(&path)?, location.busy_bound))
            }
            _ => None,
        };
        let in_memory = location.folder.is_none();
        let location = Arc::new(location.clone());
        let (jobs, queue) = mpsc::channel();
        let writer = Writer {
            connection: Some(opened.connection),
            journal: opened.journal,
            level: Sync::Synced,
            gate,
            identity: location.database().map(|path| identity(&path)).transpose()?,
            location: Arc::clone(&location),
        };
        let thread =
            std::thread::Builder::new().name("threadkeep-writer".to_owned()).spawn(move || writer.serve(&queue));
        let thread = thread.map_err(|error| Error::Backend { detail: format!("no thread for the writer: {error}") })?;
        let readers = (!in_memory).then(|| Arc::new(Readers::new(location)));
        Ok(Self { jobs: Some(jobs), writer: Some(thread), readers })
    }

    fn submit(&self, job: Job) {
        let Some(jobs) = &self.jobs else { return };
        if let Err(mpsc::SendError(Job::Write(request, _))) = jobs.send(job) {
            request.finish(Err(Error::Backend { detail: "the store's writer has ended".to_owned() }));
        }
    }
}

impl Driver for SqliteDriver {
    fn submit_write(&self, request: Box<dyn WriteRequest>, sync: Sync) {
        self.submit(Job::Write(request, sync));
    }

    fn submit_read(&self, request: ReadRequest) {
        match &self.readers {
            Some(readers) => readers.submit(request),
            None => self.submit(Job::Read(request)),
        }
    }
}

impl Drop for SqliteDriver {
    /// Waits until everything that was queued is done and the files are closed.
    fn drop(&mut self) {
        if let Some(readers) = self.readers.take() {
            readers.close();
        }
        // Last, so that the connection that can tidy up the log is the last one to close.
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            join(writer);
        }
    }
}

/// Waits for a thread, unless it is this very one: the last handle of a store may be dropped by a request.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the store ended badly");
    }
}

struct Writer {
    /// `None` after an I/O error: what the engine believes of the file may be wrong, so it is opened anew.
    connection: Option<Connection>,
    journal: Journal,
    level: Sync,
    gate: Option<Gate>,
    location: Arc<Location>,
    /// The device and the number of the file that was opened; `None` in memory.
    identity: Option<(u64, u64)>,
}

type Group = VecDeque<Box<dyn WriteRequest>>;

impl Writer {
    fn serve(mut self, queue: &mpsc::Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            let mut group = Group::new();
            let mut sync = Sync::Written;
            let mut next = Some(job);
            while let Some(job) = next.take() {
                match job {
                    Job::Read(request) => {
                        // A read sees what was asked to be written before it.
                        self.commit_group(std::mem::take(&mut group), sync);
                        self.read(request);
                    }
                    Job::Write(request, wanted) => {
                        sync = sync.max(wanted);
                        group.push_back(request);
                    }
                }
                if group.len() < GROUP_LIMIT {
                    next = queue.try_recv().ok();
                }
            }
            self.commit_group(group, sync);
        }
    }

    fn read(&mut self, request: ReadRequest) {
        match self.connection() {
            Ok(connection) => request(&mut SqliteTx { connection }),
            Err(error) => {
                tracing::error!(%error, "a read was dropped: the store can't be opened again");
            }
        }
    }

    fn commit_group(&mut self, group: Group, sync: Sync) {
        if group.is_empty() {
            return;
        }
        if let Err(error) = self.prepare(sync) {
            finish_all(group, &error);
            return;
        }
        let Some(connection) = &self.connection else { return };
        let mut answers = Answers::new();
        let committed = run_group(connection, group, &mut answers);
        if let Some(gate) = &self.gate {
            gate.leave();
        }
        let unsure = |outcome: &Result<()>| matches!(outcome, Err(Error::Io { .. }));
        if unsure(&committed) || answers.iter().any(|(_, outcome)| unsure(outcome)) {
            self.connection = None;
        }
        // After the gate: whoever is answered may stop this process, and must not stop the others with it.
        for (request, outcome) in answers {
            request.finish(outcome);
        }
    }

    /// Gets a connection, the right to write, and the level of syncing.
    fn prepare(&mut self, sync: Sync) -> Result<()> {
        self.connection()?;
        let level = if self.journal == Journal::Rollback { Sync::Synced } else { sync };
        if level != self.level {
            let word = match level {
                Sync::Written => "NORMAL",
                Sync::Synced => "EXTRA",
            };
            self.connection()?.pragma_update(None, "synchronous", word).map_err(engine_error)?;
            self.level = level;
        }
        self.gate.as_mut().map_or(Ok(()), Gate::enter)?;
        let in_place = self.check_identity();
        if let (Err(_), Some(gate)) = (&in_place, &self.gate) {
            gate.leave();
        }
        in_place
    }

    /// Refuses to write when the name leads to another file by now: what is written to one that was removed is lost with it.
    fn check_identity(&self) -> Result<()> {
        let (Some(path), Some(opened)) = (self.location.database(), self.identity) else { return Ok(()) };
        if identity(&path).is_ok_and(|found| found == opened) {
            return Ok(());
        }
        let detail =
            "the database was moved, replaced or removed since it was opened; put it back, or open the store again";
        Err(Error::Io {
            operation: "write to",
            path: path.display().to_string(),
            kind: std::io::ErrorKind::NotFound,
            detail: detail.to_owned(),
        })
    }

    fn connection(&mut self) -> Result<&Connection> {
        if self.connection.is_none() {
            self.connection = Some(connect_again(&self.location, self.location.read_only)?);
            self.level = Sync::Synced;
        }
        self.connection.as_ref().ok_or_else(|| Error::Backend { detail: "no connection".to_owned() })
    }
}

/// What tells a file from every other one, whatever its name.
fn identity(path: &Path) -> Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path).map_err(|error| Error::io("look at", path, &error))?;
    Ok((meta.dev(), meta.ino()))
}

/// Requests that are done, with their outcomes.
type Answers = Vec<(Box<dyn WriteRequest>, Result<()>)>;

/// Runs a group in one transaction; the result is that of the commit.
fn run_group(connection: &Connection, mut group: Group, answers: &mut Answers) -> Result<()> {
    while !group.is_empty() {
        if let Err(error) = execute(connection, "BEGIN IMMEDIATE") {
            answers.extend(group.into_iter().map(|request| (request, Err(error.clone()))));
            return Err(error);
        }
        let Some(done) = run_in_savepoints(connection, &mut group, answers) else {
            // The transaction ended with the culprit, which is answered and removed: the others run again.
            continue;
        };
        let outcome = execute(connection, "COMMIT");
        if outcome.is_err() && !connection.is_autocommit() {
            drop(execute(connection, "ROLLBACK"));
        }
        answers.extend(done.into_iter().map(|request| (request, outcome.clone())));
        return outcome;
    }
    Ok(())
}

/// Runs each request; `None` when one of them ended the whole transaction.
fn run_in_savepoints(connection: &Connection, group: &mut Group, answers: &mut Answers) -> Option<Group> {
    let alone = group.len() == 1;
    let mut done = Group::new();
    while let Some(mut request) = group.pop_front() {
        let outcome = match alone {
            true => run_request(connection, &mut *request),
            false => run_in_savepoint(connection, &mut *request),
        };
        let Err(error) = outcome else {
            done.push_back(request);
            continue;
        };
        if alone && !connection.is_autocommit() {
            drop(execute(connection, "ROLLBACK"));
        }
        answers.push((request, Err(error)));
        if connection.is_autocommit() {
            done.append(group);
            *group = done;
            return None;
        }
    }
    Some(done)
}

fn run_in_savepoint(connection: &Connection, request: &mut dyn WriteRequest) -> Result<()> {
    execute(connection, "SAVEPOINT request")?;
    let outcome = run_request(connection, request);
    if connection.is_autocommit() {
        return outcome;
    }
    let undone = match &outcome {
        Ok(()) => Ok(()),
        Err(_) => execute(connection, "ROLLBACK TO request"),
    };
    if let Err(error) = undone.and_then(|()| execute(connection, "RELEASE request")) {
        // What it wrote can't be told apart any more: the whole transaction goes, and the others run again.
        drop(execute(connection, "ROLLBACK"));
        return outcome.and(Err(error));
    }
    outcome
}

/// Runs a request; one that panics is refused and takes nobody with it.
fn run_request(connection: &Connection, request: &mut dyn WriteRequest) -> Result<()> {
    let run = AssertUnwindSafe(|| request.run(&mut SqliteTx { connection }));
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(Error::Backend { detail: "a request panicked".to_owned() }))
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    let mut statement = connection.prepare_cached(sql).map_err(engine_error)?;
    statement.execute([]).map(drop).map_err(engine_error)
}

fn finish_all(group: Group, error: &Error) {
    for request in group {
        request.finish(Err(error.clone()));
    }
}

/// The reader threads, started when they are needed.
struct Readers {
    location: Arc<Location>,
    requests: Mutex<Option<mpsc::Sender<ReadRequest>>>,
    queue: Arc<Mutex<mpsc::Receiver<ReadRequest>>>,
    /// Requests that no idle reader will take at once.
    load: Arc<AtomicUsize>,
    started: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    fn new(location: Arc<Location>) -> Self {
        let (requests, queue) = mpsc::channel();
        Self {
            location,
            requests: Mutex::new(Some(requests)),
            queue: Arc::new(Mutex::new(queue)),
            load: Arc::new(AtomicUsize::new(0)),
            started: AtomicUsize::new(0),
            threads: Mutex::default(),
        }
    }

    fn submit(&self, request: ReadRequest) {
        let load = self.load.fetch_add(1, Ordering::SeqCst) + 1;
        if load > self.started.load(Ordering::SeqCst).min(READERS - 1) && self.started.load(Ordering::SeqCst) < READERS
        {
            self.start_one();
        }
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = requests.as_ref() {
            // The receiver lives as long as this struct; a request that is dropped answers its caller by that.
            drop(requests.send(request));
        }
    }

    fn start_one(&self) {
        let (location, queue, load) = (Arc::clone(&self.location), Arc::clone(&self.queue), Arc::clone(&self.load));
        let serve = move || serve_reads(&location, &queue, &load);
        match std::thread::Builder::new().name("threadkeep-reader".to_owned()).spawn(serve) {
            Ok(thread) => {
                self.started.fetch_add(1, Ordering::SeqCst);
                self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            }
            Err(error) => tracing::error!(%error, "no thread for a reader"),
        }
    }

    fn close(&self) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            join(thread);
        }
    }
}

fn serve_reads(location: &Location, queue: &Mutex<mpsc::Receiver<ReadRequest>>, load: &AtomicUsize) {
    let mut connection = None;
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(request) = request else { return };
        if connection.is_none() {
            connection = connect_again(location, true)
                .map_err(|error| tracing::error!(%error, "a reader can't open the store"))
                .ok();
        }
        let read = AssertUnwindSafe(|| match &connection {
            Some(connection) => read_snapshot(connection, request),
            None => request(&mut Unreadable),
        });
        if std::panic::catch_unwind(read).is_err() {
            // Its caller is told by the answer that never comes; the others must not wait for a thread that is gone.
            tracing::error!("a read panicked");
            connection = None;
        }
        load.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs a read inside one transaction, so that all its statements see the same state.
fn read_snapshot(connection: &Connection, request: ReadRequest) {
    let begun = execute(connection, "BEGIN").is_ok();
    request(&mut SqliteTx { connection });
    if begun && !connection.is_autocommit() {
        drop(execute(connection, "COMMIT"));
    }
}

/// Stands for a store whose file can't be opened any more: every statement says so.
struct Unreadable;

impl crate::db::Tx for Unreadable {
    fn execute(&mut self, _: crate::db::Statement, _: &[crate::db::Value<'_>]) -> Result<usize> {
        Err(unreadable())
    }

    fn query(
        &mut self,
        _: crate::db::Statement,
        _: &[crate::db::Value<'_>],
        _: &mut dyn FnMut(&crate::db::Row<'_>) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        Err(unreadable())
    }
}

fn unreadable() -> Error {
    Error::Io {
        operation: "open",
        path: crate::db::sqlite::DATABASE.to_owned(),
        kind: std::io::ErrorKind::Other,
        detail: "the store can't be opened for reading any more".to_owned(),
    }
}
