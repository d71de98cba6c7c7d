//! The line in which processes wait to write.
//!
//! SQLite's own busy handler polls, and under load the unluckiest process starves. Each writer first takes a lock on a
//! file of the store, where the system queues the waiting; the wait is bounded.
//!
//! A lock that is given up goes to whoever asks first, and that is who has just had it, not who was woken for it. So whoever is
//! next holds a second lock, the head of the line, until it has the first.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::db::sqlite::open_private;
use crate::error::{Error, Result};
use crate::planted::{self, Defect};

/// The right to write, held by at most one process at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    path: PathBuf,
    line_path: PathBuf,
    file: File,
    line: File,
    bound: Duration,
}

impl Gate {
    /// Opens the files of a store's gate.
    pub(crate) fn open(folder: &Path, bound: Duration) -> Result<Self> {
        let (path, line_path) = (folder.join("write.gate"), folder.join("write.line"));
        let (file, line) = (open_private(&path)?, open_private(&line_path)?);
        Ok(Self { path, line_path, file, line, bound })
    }

    /// Waits for the right to write.
    pub(crate) fn enter(&mut self) -> Result<()> {
        match self.try_enter() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return self.without_lock(&error),
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

    /// Enters where nobody waits and nobody is inside.
    fn try_enter(&self) -> std::result::Result<(), TryLockError> {
        self.line.try_lock()?;
        let entered = self.file.try_lock();
        if let Err(error) = self.line.unlock() {
            // Inside, and nobody could come after.
            drop(self.file.unlock());
            return Err(TryLockError::Error(error));
        }
        entered
    }

    /// Gives the right to the next in line.
    pub(crate) fn leave(&self) {
        if planted::is(Defect::NeverLeavesGate) {
            return;
        }
        if let Err(error) = self.file.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "the write gate could not be released");
        }
    }

    /// Waits on a thread of its own, because the system's wait has no bound.
    fn wait_in_line(&self) -> Result<mpsc::Receiver<std::io::Result<File>>> {
        // Descriptions of their own: giving them up must not unlock what the store holds by then.
        let (line, file) = (open_private(&self.line_path)?, open_private(&self.path)?);
        // Without a buffer: the lock is either taken over or dropped.
        let (tell, waiting) = mpsc::sync_channel(0);
        let wait = move || {
            let entered = line.lock().and_then(|()| file.lock());
            drop(line);
            drop(tell.send(entered.map(|()| file)));
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::Gate;

    /// A lock alone would go to the one who has just had it, again and again, until the system lets the other one run.
    #[test]
    fn who_waits_is_next_though_the_last_one_asks_again_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let open = || Gate::open(temp.path(), Duration::from_secs(30)).unwrap();
        let (mut busy, other) = (open(), open());
        let entered = AtomicBool::new(false);
        busy.enter().unwrap();
        let waiting = other.wait_in_line().unwrap();
        std::thread::scope(|scope| {
            let entered = &entered;
            scope.spawn(move || {
                let file = waiting.recv().unwrap().unwrap();
                entered.store(true, Ordering::SeqCst);
                drop(file);
            });
            // Until it stands at the head of the line.
            while busy.line.try_lock().is_ok() {
                busy.line.unlock().unwrap();
                std::thread::yield_now();
            }
            busy.leave();
            busy.enter().unwrap();
            assert!(entered.load(Ordering::SeqCst), "the one who waited was passed over");
            busy.leave();
        });
    }
}
