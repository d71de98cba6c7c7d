//! The room in a queue. Who finds it full waits in line, so that what is on its way is bounded and nobody is passed over.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use futures_channel::oneshot;

use crate::concurrency::Mutex;

/// Those who stopped waiting are taken out of the line when it has grown to this length, and to twice what was left then.
const FIRST_SWEEP: usize = 64;

/// A bound on what may be in a queue at once, in whatever unit its places are taken. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bound: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    taken: usize,
    line: VecDeque<Waiting>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Waiting {
    size: usize,
    tell: oneshot::Sender<Place>,
}

/// A place in a queue, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    size: usize,
    shared: Arc<Shared>,
}

impl Room {
    pub(crate) fn new(bound: usize) -> Self {
        let state = State { taken: 0, line: VecDeque::new(), sweep_at: FIRST_SWEEP };
        Self { shared: Arc::new(Shared { bound, state: Mutex::new(state) }) }
    }

    /// Waits for a place of this size, behind everybody who came before. What is larger than the room waits until it is
    /// empty and has it alone.
    pub(crate) async fn enter(&self, size: usize) -> Place {
        let size = size.min(self.shared.bound);
        let turn = match self.shared.take_or_line_up(size) {
            Ok(place) => return place,
            Err(turn) => turn,
        };
        // The line lives as long as this handle, and tells everybody in it.
        turn.await.unwrap_or_else(|oneshot::Canceled| self.beside())
    }

    /// A place that takes no room, for what may not wait.
    pub(crate) fn beside(&self) -> Place {
        Place { size: 0, shared: Arc::clone(&self.shared) }
    }
}

impl Place {
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.size == 0 {
            return;
        }
        for next in self.shared.give_back(self.size) {
            let place = Self { size: next.size, shared: Arc::clone(&self.shared) };
            // Who stopped waiting just now drops the place, which goes to the next in line.
            drop(next.tell.send(place));
        }
    }
}

impl Shared {
    fn take_or_line_up(self: &Arc<Self>, size: usize) -> Result<Place, oneshot::Receiver<Place>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.line.is_empty() && state.taken + size <= self.bound {
            state.taken += size;
            return Ok(Place { size, shared: Arc::clone(self) });
        }
        state.sweep();
        let (tell, turn) = oneshot::channel();
        state.line.push_back(Waiting { size, tell });
        Err(turn)
    }

    /// Gives room back; says whose turn it is.
    fn give_back(&self, size: usize) -> Vec<Waiting> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken -= size;
        let mut admitted = Vec::new();
        while let Some(first) = state.line.front() {
            let is_waiting = !first.tell.is_canceled();
            if is_waiting && state.taken + first.size > self.bound {
                break;
            }
            if let Some(first) = state.line.pop_front().filter(|_| is_waiting) {
                state.taken += first.size;
                admitted.push(first);
            }
        }
        admitted
    }
}

impl State {
    /// Forgets those who stopped waiting: callers that give up and come again must not make the line grow.
    fn sweep(&mut self) {
        if self.line.len() >= self.sweep_at {
            self.line.retain(|waiting| !waiting.tell.is_canceled());
            self.sweep_at = (self.line.len() * 2).max(FIRST_SWEEP);
        }
    }
}
