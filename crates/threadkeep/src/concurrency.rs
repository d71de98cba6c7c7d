//! The threads, locks and channels that the library uses, in one place: `tests/schedules.rs` compiles the library with a
//! scheduler's in their stead, and tries the orders in which its threads can run.
//!
//! Only what waits in the system itself (`db/gate.rs`) or belongs to the whole process (`db/identity.rs`) goes past this.

#[cfg(feature = "postgres")]
pub(crate) use std::sync::{Condvar, MutexGuard};
pub(crate) use std::sync::{Mutex, atomic, mpsc};
pub(crate) use std::thread;

pub(crate) use pollster::block_on;
