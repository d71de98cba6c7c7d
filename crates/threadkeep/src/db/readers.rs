//! The reader threads, started when they are needed, each with a connection of its own.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};

use crate::concurrency::atomic::{AtomicUsize, Ordering};
use crate::concurrency::thread::{self, JoinHandle};
use crate::concurrency::{Mutex, mpsc};
use crate::db::write_queue::join;
use crate::db::{Request, Row, Statement, Tx, Value, answer};
use crate::error::{Error, Result};

const READERS: usize = 4;

/// Where readers get their connections.
pub(crate) trait Source: Send + Sync + 'static {
    type Connection;

    fn connect(&self) -> Result<Self::Connection>;

    /// Runs a read inside one transaction, so that all its statements see the same state.
    fn read(connection: &Self::Connection, request: Box<dyn Request>);
}

/// The threads that read, and their queue. Dropped, they do everything that was queued before they end.
pub(crate) struct Readers<S> {
    source: Arc<S>,
    desk: Mutex<Desk>,
    queue: Arc<Mutex<mpsc::Receiver<Box<dyn Request>>>>,
    /// Requests that are queued or running.
    load: Arc<AtomicUsize>,
}

struct Desk {
    /// `None` when the readers are to end.
    requests: Option<mpsc::Sender<Box<dyn Request>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<S> fmt::Debug for Readers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

impl<S: Source> Readers<S> {
    pub(crate) fn new(source: S) -> Self {
        let (requests, queue) = mpsc::channel();
        Self {
            source: Arc::new(source),
            desk: Mutex::new(Desk { requests: Some(requests), threads: Vec::new() }),
            queue: Arc::new(Mutex::new(queue)),
            load: Arc::new(AtomicUsize::new(0)),
        }
    }

    pub(crate) fn submit(&self, request: Box<dyn Request>) {
        let load = self.load.fetch_add(1, Ordering::SeqCst) + 1;
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let started = desk.threads.len();
        if started < READERS && load > started.min(READERS - 1) {
            match self.start_one() {
                Ok(thread) => desk.threads.push(thread),
                Err(error) => tracing::error!(%error, "no thread for a reader"),
            }
        }
        match &desk.requests {
            // The receiver lives as long as this struct.
            Some(requests) if !desk.threads.is_empty() => drop(requests.send(request)),
            // Nobody would ever take it.
            _ => {
                drop(desk);
                self.load.fetch_sub(1, Ordering::SeqCst);
                answer(request, &mut Unreadable(no_thread()));
            }
        }
    }

    fn start_one(&self) -> std::io::Result<JoinHandle<()>> {
        let (source, queue, load) = (Arc::clone(&self.source), Arc::clone(&self.queue), Arc::clone(&self.load));
        let serve = move || serve(&*source, &queue, &load);
        thread::Builder::new().name("threadkeep-reader".to_owned()).spawn(serve)
    }
}

impl<S> Drop for Readers<S> {
    fn drop(&mut self) {
        let desk = self.desk.get_mut().unwrap_or_else(PoisonError::into_inner);
        desk.requests = None;
        for thread in desk.threads.drain(..) {
            join(thread);
        }
    }
}

fn serve<S: Source>(source: &S, queue: &Mutex<mpsc::Receiver<Box<dyn Request>>>, load: &AtomicUsize) {
    let mut connection = None;
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(request) = request else { return };
        let connected = match connection.take() {
            Some(open) => Ok(open),
            None => source.connect().inspect_err(|error| tracing::error!(%error, "a reader can't open the store")),
        };
        let read = AssertUnwindSafe(|| match &connected {
            Ok(connection) => S::read(connection, request),
            Err(error) => answer(request, &mut Unreadable(error.clone())),
        });
        if std::panic::catch_unwind(read).is_err() {
            // Its caller is told by the answer that never comes; the others must not wait for a thread that is gone.
            tracing::error!("a read panicked");
        } else {
            connection = connected.ok();
        }
        load.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Stands for a store that can't be opened for reading: every statement says why.
struct Unreadable(Error);

impl Tx for Unreadable {
    fn execute(&mut self, _: Statement, _: &[Value<'_>]) -> Result<usize> {
        Err(self.0.clone())
    }

    fn query(
        &mut self,
        _: Statement,
        _: &[Value<'_>],
        _: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        Err(self.0.clone())
    }
}

fn no_thread() -> Error {
    Error::Io {
        operation: "read",
        path: "the store".to_owned(),
        kind: std::io::ErrorKind::Other,
        detail: "the system gives no thread to read it".to_owned(),
    }
}
