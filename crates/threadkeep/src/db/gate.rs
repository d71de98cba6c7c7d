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
    /// A lock that was still being waited for when the bound ended.
    waiting: Option<mpsc::Receiver<std::io::Result<()>>>,
}

impl Gate {
    pub(crate) fn new(path: &Path, file: File, bound: Duration) -> Self {
        Self { path: path.to_owned(), file, bound, waiting: None }
    }

    /// Waits for the right to write.
    pub(crate) fn enter(&mut self) -> Result<()> {
        if self.waiting.is_none() {
            match self.file.try_lock() {
                Ok(()) => return Ok(()),
                Err(std::fs::TryLockError::WouldBlock) => self.waiting = Some(self.wait_in_line()?),
                Err(std::fs::TryLockError::Error(error)) => return self.without_lock(&error),
            }
        }
        let Some(waiting) = &self.waiting else {
            return Ok(());
        };
        match waiting.recv_timeout(self.bound) {
            Ok(outcome) => {
                self.waiting = None;
                outcome.or_else(|error| self.without_lock(&error))
            }
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
    fn wait_in_line(&self) -> Result<mpsc::Receiver<std::io::Result<()>>> {
        let file = self.file.try_clone().map_err(|error| Error::io("clone", &self.path, &error))?;
        let (tell, waiting) = mpsc::channel();
        let wait = move || {
            let outcome = file.lock();
            if let Err(mpsc::SendError(Ok(()))) = tell.send(outcome) {
                // The store was closed meanwhile; the lock must not outlive it.
                drop(file.unlock());
            }
        };
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
