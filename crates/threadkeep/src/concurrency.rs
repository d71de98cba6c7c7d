//! The threads, locks and channels that the library uses, in one place: `tests/schedules.rs` compiles the library with a
//! scheduler's in their stead, and tries the orders in which its threads can run.
//!
//! Only what waits in the system itself (`db/gate.rs`) or belongs to the whole process (`db/identity.rs`) goes past this.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
pub(crate) use std::{thread, thread_local};

pub(crate) use pollster::block_on;
