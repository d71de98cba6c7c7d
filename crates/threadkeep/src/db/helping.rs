//! Waiting for a future on a plain thread, which does the waiting work itself where it can.
//!
//! A caller that asks for something to be written and waits has nothing else to do. Where the writer is idle it serves the
//! queue for one group, its own request in it, in place of waking the writer's thread and being woken by it: on one machine of
//! two CPUs those two switches took twice as long as the append.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::concurrency::{self, thread_local};
use crate::db::write_queue::WriteQueue;

thread_local! {
    /// The queues that this thread has asked and not woken; `None` while it does not wait for a future.
    static ASKED: RefCell<Option<Vec<Arc<WriteQueue>>>> = const { RefCell::new(None) };
}

/// Waits for a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let _waiting = Waiting::begin();
    let mut future = pin!(future);
    concurrency::block_on(poll_fn(|context| {
        loop {
            match future.as_mut().poll(context) {
                Poll::Pending if help() => {}
                answer => return answer,
            }
        }
    }))
}

/// Whether this thread will serve a queue that it has just asked, or wake its thread, before it sleeps or goes on.
pub(super) fn will_serve(queue: &Arc<WriteQueue>) -> bool {
    of_this_thread(|asked| asked.borrow_mut().as_mut().map(|asked| asked.push(Arc::clone(queue)))).is_some()
}

/// Looks at what this thread has asked. A thread that ends has nothing left to look at, and may still drop a store that it kept in
/// a variable of its own: then its requests are left to the writer's thread.
fn of_this_thread<T>(look: impl FnOnce(&RefCell<Option<Vec<Arc<WriteQueue>>>>) -> Option<T>) -> Option<T> {
    ASKED.try_with(look).ok().flatten()
}

/// Says that this thread waits; what it asked for and did not serve is left to the others when it stops.
struct Waiting {
    before: Option<Vec<Arc<WriteQueue>>>,
}

impl Waiting {
    fn begin() -> Self {
        Self { before: of_this_thread(|asked| asked.replace(Some(Vec::new()))) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let asked = of_this_thread(|asked| asked.replace(self.before.take()));
        asked.into_iter().flatten().for_each(|queue| queue.wake());
    }
}

/// Serves the queues that this thread asked, once each; says whether any was served.
fn help() -> bool {
    let asked = of_this_thread(|asked| asked.borrow_mut().as_mut().map(std::mem::take)).unwrap_or_default();
    asked.iter().filter(|queue| queue.serve_if_idle()).count() > 0
}
