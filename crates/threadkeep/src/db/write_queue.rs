//! The queue of what is to be written, and the one thread at a time that serves it: the writer's own, or a caller that waits.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};

use crate::concurrency::thread::{self, JoinHandle, ThreadId};
use crate::concurrency::{Condvar, Mutex, MutexGuard};
use futures_channel::oneshot;

use crate::db::{Erased, Request, Sync, helping};
use crate::error::{Error, Result};

/// What the writer is asked to do.
pub(crate) enum Job {
    Write(Box<dyn Request>, Sync),
    /// A read on the writer's connection: in memory there is no other.
    Read(Box<dyn Request>),
    /// Writing everything anew.
    Erase(oneshot::Sender<Result<Erased>>),
}

/// Who does it.
pub(crate) trait Serve: Send {
    /// Does the first job and what belongs to it of those that `next` gives; gives back one that it took and did not do.
    fn serve(&mut self, first: Job, next: &mut dyn FnMut() -> Option<Job>) -> Option<Job>;
}

/// The writer with its queue and its thread. Dropped, it does everything that was queued before it ends.
pub(crate) struct Writer {
    queue: Arc<WriteQueue>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn start(server: impl Serve + 'static) -> Result<Self> {
        let state = State { jobs: VecDeque::new(), server: Server::Idle(Box::new(server)), closing: false };
        let queue = Arc::new(WriteQueue { state: Mutex::new(state), news: Condvar::new() });
        let own = Arc::clone(&queue);
        let thread =
            thread::Builder::new().name("threadkeep-writer".to_owned()).spawn(move || own.serve_until_closed());
        let thread = thread.map_err(|error| Error::Backend { detail: format!("no thread for the writer: {error}") })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.queue.state();
        if let Server::Gone = state.server {
            drop(state);
            return refuse(job);
        }
        state.jobs.push_back(job);
        let is_idle = matches!(state.server, Server::Idle(_));
        drop(state);
        // Whoever serves the queue now looks again before it stops.
        if is_idle && !helping::will_serve(&self.queue) {
            self.queue.wake();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.closing = true;
        let is_inside = matches!(state.server, Server::Busy(by) if by == thread::current().id());
        drop(state);
        self.queue.wake();
        // The last handle of a store may be dropped by a request: the thread ends when that is done.
        if let Some(thread) = self.thread.take().filter(|_| !is_inside) {
            join(thread);
        }
    }
}

/// Waits for a thread, unless it is this very one.
pub(crate) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the store ended badly");
    }
}

/// What is to be written, in order.
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    /// Only the writer's own thread waits for it.
    news: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    server: Server,
    closing: bool,
}

enum Server {
    Idle(Box<dyn Serve>),
    Busy(ThreadId),
    /// It panicked, or the writer was closed.
    Gone,
}

impl WriteQueue {
    /// Serves one group on this thread, if nobody serves and something waits; says whether it did.
    pub(super) fn serve_if_idle(&self) -> bool {
        let mut state = self.state();
        let taken = state.take_server();
        drop(state);
        let is_taken = taken.is_some();
        taken.into_iter().for_each(|server| self.serve(server));
        is_taken
    }

    /// Wakes the writer's own thread.
    pub(super) fn wake(&self) {
        self.news.notify_one();
    }

    fn serve_until_closed(&self) {
        let mut state = self.state();
        loop {
            if let Some(server) = state.take_server() {
                drop(state);
                self.serve(server);
                state = self.state();
                continue;
            }
            match &state.server {
                Server::Idle(_) if state.closing => {
                    let server = std::mem::replace(&mut state.server, Server::Gone);
                    drop(state);
                    return drop(server);
                }
                Server::Gone => return,
                Server::Idle(_) | Server::Busy(_) => {}
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does what belongs together, and leaves the rest to the writer's own thread.
    fn serve(&self, mut server: Box<dyn Serve>) {
        let mut next = || self.state().jobs.pop_front();
        let run = || next().and_then(|first| server.serve(first, &mut next));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(run));
        let mut state = self.state();
        match outcome {
            Ok(left) => {
                left.into_iter().for_each(|job| state.jobs.push_front(job));
                state.server = Server::Idle(server);
                let is_over = state.jobs.is_empty() && !state.closing;
                drop(state);
                if !is_over {
                    self.wake();
                }
            }
            Err(_) => {
                state.server = Server::Gone;
                let jobs = std::mem::take(&mut state.jobs);
                drop(state);
                tracing::error!("the store's writer ended badly");
                self.wake();
                drop(server);
                jobs.into_iter().for_each(refuse);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The server, if nobody has it and something waits.
    fn take_server(&mut self) -> Option<Box<dyn Serve>> {
        if self.jobs.is_empty() || !matches!(self.server, Server::Idle(_)) {
            return None;
        }
        match std::mem::replace(&mut self.server, Server::Busy(thread::current().id())) {
            Server::Idle(server) => Some(server),
            Server::Busy(_) | Server::Gone => None,
        }
    }
}

/// Answers that there is no writer any more; the others learn it from the answer that never comes.
fn refuse(job: Job) {
    if let Job::Write(request, _) = job {
        request.finish(Err(Error::Backend { detail: "the store's writer has ended".to_owned() }));
    }
}
