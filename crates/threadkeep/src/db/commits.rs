//! Notices what other processes commit to the store's file: a number that the engine changes is looked at again and again,
//! for as long as somebody waits for news.
//!
//! The look reads the log's index in shared memory, and no table. A watcher of files would be woken when bytes are written,
//! which is before their commit is there to be read, and not again after it.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use crate::concurrency::thread::{self, JoinHandle};
use crate::concurrency::{Mutex, mpsc};
use crate::db::news::{Board, Touched, Wire};
use crate::db::sqlite::{Location, connect_again, engine_error};
use crate::db::write_queue::join;
use crate::error::{Error, Result};

/// How often is looked while others commit.
const PERIOD: Duration = Duration::from_millis(50);
/// How often on a store where nothing happens, and where a look costs more and may be in a writer's way: without a log its
/// lock is taken in the file itself.
const LONG_PERIOD: Duration = Duration::from_millis(150);
/// After so many looks that found nothing, nothing happens.
const QUIET: u32 = 100;

/// Looks while it is open, on a connection of its own.
#[derive(Debug)]
pub(crate) struct Commits {
    location: Arc<Location>,
    looking: Mutex<Option<Looking>>,
}

#[derive(Debug)]
struct Looking {
    /// Dropped to end it.
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Commits {
    pub(crate) fn of(location: &Arc<Location>) -> Self {
        Self { location: Arc::clone(location), looking: Mutex::new(None) }
    }
}

impl Wire for Commits {
    fn open(&self, board: Weak<Board>) -> Result<()> {
        let (location, (stop, stopped)) = (Arc::clone(&self.location), mpsc::channel());
        let look = move || look(&location, &board, &stopped);
        let thread = thread::Builder::new().name("threadkeep-commits".to_owned()).spawn(look);
        let thread =
            thread.map_err(|error| Error::Backend { detail: format!("no thread to notice commits: {error}") })?;
        *self.looking.lock().unwrap_or_else(PoisonError::into_inner) = Some(Looking { stop, thread });
        Ok(())
    }

    /// Waits for it, one look at most: the connection that can tidy up the log has to be the last one to close.
    fn close(&self) {
        let looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Looking { stop, thread }) = looking {
            drop(stop);
            join(thread);
        }
    }

    /// They see it in the file.
    fn tell(&self, _: &Touched) {}
}

fn look(location: &Location, board: &Weak<Board>, stopped: &mpsc::Receiver<()>) {
    let (mut connection, mut has_log, mut quiet, mut last) = (None, false, 0_u32, None);
    loop {
        if connection.is_none() {
            connection = connect_again(location, true).ok();
            has_log = connection.as_ref().is_some_and(is_logged);
        }
        let seen = connection.as_ref().and_then(version);
        if seen.is_none() {
            // Whoever waits shall look for himself, and say what is wrong.
            (connection, has_log) = (None, false);
        }
        if seen.is_none() || seen != last {
            let Some(board) = board.upgrade() else { return };
            board.ring(&Touched::Anything);
            quiet = 0;
        }
        (last, quiet) = (seen, quiet.saturating_add(1));
        let period = if has_log && quiet < QUIET { PERIOD } else { LONG_PERIOD };
        if stopped.recv_timeout(period) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// A number that is another one after every commit of another connection.
fn version(connection: &rusqlite::Connection) -> Option<i64> {
    let read = connection.prepare_cached("PRAGMA data_version").and_then(|mut it| it.query_row([], |row| row.get(0)));
    read.map_err(|error| tracing::debug!(error = %engine_error(error), "what others commit can't be noticed")).ok()
}

fn is_logged(connection: &rusqlite::Connection) -> bool {
    let journal = connection.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0));
    journal.is_ok_and(|journal| journal.eq_ignore_ascii_case("wal"))
}
