//! The line in which processes wait to write.
//!
//! SQLite's own busy handler polls, and under load the unluckiest process starves. Each writer first takes a lock on a
//! file of the store, where the system queues the waiting; the wait is bounded.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::error::{Error, Result};

/// The right to write, held by at most one process at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    path: PathBuf,
    file: File,
    bound: Duration,
}

impl Gate {
    pub(crate) fn new(path: &Path, file: File, bound: Duration) -> Self {
        Self { path: path.to_owned(), file, bound }
    }

    /// Waits for the right to write.
    pub(crate) fn enter(&mut self) -> Result<()> {
        match self.file.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(error)) => return self.without_lock(&error),
        }
        match self.wait_in_line()?.recv_timeout(self.bound) {
            Ok(Ok(file)) => {
                self.file = file;
                Ok(())
            }
            Ok(Err(error)) => self.without_lock(&error),
            // Nobody takes the lock any more: the thread drops it as soon as it gets it.
            Err(_) => Err(Error::Busy { detail: format!("another process has been writing for {:?}", self.bound) }),
        }
    }

    /// Gives the right to the next in line.
    pub(crate) fn leave(&self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "the write gate could not be released");
        }
    }

    /// Waits on a thread of its own, because the system's wait has no bound.
    fn wait_in_line(&self) -> Result<mpsc::Receiver<std::io::Result<File>>> {
        // A description of its own: giving it up must not unlock what the store holds by then.
        let file = crate::db::sqlite::open_private(&self.path)?;
        // Without a buffer: the lock is either taken over or dropped.
        let (tell, waiting) = mpsc::sync_channel(0);
        let wait = move || drop(tell.send(file.lock().map(|()| file)));
        let spawned = std::thread::Builder::new().name("threadkeep-gate".to_owned()).spawn(wait);
        spawned.map_err(|error| Error::io("start a thread for", &self.path, &error))?;
        Ok(waiting)
    }

    /// Where locks do not exist the engine's own lock decides alone.
    fn without_lock(&self, error: &std::io::Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Unsupported => Ok(()),
            _ => Err(Error::io("lock", &self.path, error)),
        }
    }
}
