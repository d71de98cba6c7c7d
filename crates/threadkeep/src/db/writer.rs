//! The SQLite driver: one connection that writes behind the gate, and a few that read.

use std::path::Path;
use std::sync::Arc;

use futures_channel::oneshot;

use crate::db::commits::Commits;
use crate::db::erasure;
use crate::db::gate::Gate;
use crate::db::group::{Command, Committer, Connection, Engine};
use crate::db::identity::{self, Identity, OpenHere};
use crate::db::news::Board;
use crate::db::pragmas::Journal;
use crate::db::readers::{Readers, Source};
use crate::db::sqlite::{Location, Opened, SqliteTx, beside, connect_again, engine_error, lock_opening};
use crate::db::write_queue::{Job, Writer};
use crate::db::{Driver, Erased, Request, Sync, Terms, Tx, answer, wal};
use crate::error::{Error, Result};
use crate::planted::{self, Defect};

/// The SQLite driver. Dropped, it does everything that was queued and closes the files.
#[derive(Debug)]
pub(crate) struct SqliteDriver {
    /// First, so that the connection that can tidy up the log is the last one to close. `None` in memory.
    readers: Option<Readers<Arc<Location>>>,
    writer: Writer,
    board: Arc<Board>,
}

impl SqliteDriver {
    /// Starts the writer on an opened store.
    pub(crate) fn start(location: &Location, opened: Opened) -> Result<Self> {
        let gate = match &location.folder {
            Some(folder) if !location.read_only => Some(Gate::open(folder, location.busy_bound)?),
            _ => None,
        };
        let location = Arc::new(location.clone());
        let mut engine = SqliteEngine {
            connection: Some(opened.connection),
            journal: opened.journal,
            level: Sync::Synced,
            gate,
            database: location.database().map(|path| identity::of(&path)).transpose()?,
            companions: [None; 2],
            location: Arc::clone(&location),
            is_doubtful: false,
            _here: opened.here,
        };
        engine.note_companions();
        let writer = Writer::start(Committer(engine))?;
        let board = match location.folder {
            Some(_) => Board::with_wire(Box::new(Commits::of(&location))),
            None => Board::default(),
        };
        let in_memory = location.folder.is_none();
        Ok(Self { readers: (!in_memory).then(|| Readers::new(location)), writer, board: Arc::new(board) })
    }
}

impl Driver for SqliteDriver {
    fn submit_write(&self, request: Box<dyn Request>, terms: Terms) {
        self.writer.submit(Job::Write(request, terms.sync));
    }

    fn submit_read(&self, request: Box<dyn Request>) {
        match &self.readers {
            Some(readers) => readers.submit(request),
            None => self.writer.submit(Job::Read(request)),
        }
    }

    fn erase(&self, reply: oneshot::Sender<Result<Erased>>) {
        self.writer.submit(Job::Erase(reply));
    }

    fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }
}

struct SqliteEngine {
    /// `None` after an I/O error, until it is opened anew.
    connection: Option<rusqlite::Connection>,
    journal: Journal,
    level: Sync,
    gate: Option<Gate>,
    location: Arc<Location>,
    /// The file that was opened; `None` in memory.
    database: Option<Identity>,
    /// The log and its index as this connection has them open, as soon as that is known.
    companions: [Option<Identity>; 2],
    /// Whether the log may lack what its index promises: a sync of it may have failed.
    is_doubtful: bool,
    /// After the connection, so that it lives longer.
    _here: Option<OpenHere>,
}

/// The log, and the index that processes share of it.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

impl Engine for SqliteEngine {
    type Connection = rusqlite::Connection;

    fn connection(&mut self) -> Result<&Self::Connection> {
        if self.connection.is_none() {
            self.connection = Some(connect_again(&self.location, self.location.read_only)?);
            self.level = Sync::Synced;
        }
        self.connection.as_ref().ok_or_else(|| Error::Backend { detail: "no connection".to_owned() })
    }

    fn connection_for(&mut self, sync: Sync) -> Result<&Self::Connection> {
        if self.is_doubtful {
            self.check_log()?;
        }
        self.set_level(sync)?;
        self.connection()
    }

    fn enter(&mut self) -> Result<()> {
        self.connection()?;
        self.gate.as_mut().map_or(Ok(()), Gate::enter)?;
        let in_place = self.check_identity();
        if in_place.is_err() {
            self.leave_gate();
        }
        in_place
    }

    fn leave(&mut self) {
        self.note_companions();
        self.leave_gate();
    }

    fn erase(&mut self) -> Result<Erased> {
        self.connection_for(Sync::Synced)?;
        let Some(connection) = &mut self.connection else {
            return Err(Error::Backend { detail: "no connection".to_owned() });
        };
        erasure::erase(connection, self.location.folder.as_deref())
    }

    fn distrust(&mut self) {
        self.connection = None;
        self.companions = [None; 2];
        self.is_doubtful = self.journal == Journal::Wal;
        // If it can't be looked at now, it is before the next group.
        drop(self.check_log());
    }
}

impl SqliteEngine {
    /// Looks whether the log holds what its index promises. If not, everybody builds the index anew, from what is there.
    fn check_log(&mut self) -> Result<()> {
        let (true, Some(database)) = (self.is_doubtful, self.location.database()) else { return Ok(()) };
        let [log, index] = COMPANIONS.map(|suffix| beside(&database, suffix));
        for is_first in [true, false] {
            let promised = match self.promised_frames() {
                // A page that opening reads is among what was lost.
                Err(Error::Corrupt { .. }) if is_first => u64::MAX,
                promised => promised?,
            };
            let found = wal::frames(&log)?;
            if found >= promised {
                self.is_doubtful = false;
                return Ok(());
            }
            tracing::error!(promised, found, "the disk lost a part of the log that was not synced");
            if is_first {
                self.connection = None;
                wal::forget_index(&index)?;
            }
        }
        let why = "the disk lost a part of it, and programs that read it keep it from being recovered; try again";
        Err(Error::io("recover", &log, &std::io::Error::other(why)))
    }

    /// How many frames of the log its index promises.
    fn promised_frames(&mut self) -> Result<u64> {
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(1);
        let promised = self.connection()?.query_row("PRAGMA wal_checkpoint(NOOP)", [], count);
        Ok(u64::try_from(promised.map_err(engine_error)?).unwrap_or(0))
    }

    fn set_level(&mut self, sync: Sync) -> Result<()> {
        self.connection()?;
        let level = match self.journal {
            Journal::Rollback => Sync::Synced,
            _ if planted::is(Defect::SyncsAtCheckpoints) => Sync::Written,
            _ => sync,
        };
        if level != self.level {
            let word = match level {
                Sync::Written => "NORMAL",
                Sync::Synced => "EXTRA",
            };
            self.connection()?.pragma_update(None, "synchronous", word).map_err(engine_error)?;
            self.level = level;
        }
        Ok(())
    }

    /// Refuses to write when a name leads to another file by now: what is written to one that was removed is lost with it, and
    /// whoever opens the store next writes to another log or counts on another index.
    fn check_identity(&self) -> Result<()> {
        let (Some(path), Some(opened)) = (self.location.database(), self.database) else { return Ok(()) };
        if planted::is(Defect::WritesMovedFile) {
            return Ok(());
        }
        if !identity::of(&path).is_ok_and(|found| found == opened) {
            return Err(gone(
                &path,
                "the database was moved, replaced or removed since it was opened; put it back, or open the store again",
            ));
        }
        for (suffix, opened) in COMPANIONS.iter().zip(self.companions) {
            let path = beside(&path, suffix);
            let Some(opened) = opened else { continue };
            match identity::of(&path) {
                Ok(found) if found == opened => continue,
                Ok(_) => {}
                Err(_) => self.save_log(&path),
            }
            return Err(gone(
                &path,
                "it was moved, replaced or removed since the store was opened; put it back, or close all handles and \
                 programs that have the store open, and open it again",
            ));
        }
        Ok(())
    }

    /// Brings what the log holds into the database. A log without a name dies with this process, and with it what it holds.
    fn save_log(&self, removed: &Path) {
        let (Some(connection), Some(folder)) = (&self.connection, &self.location.folder) else { return };
        // Whoever opens the store makes a new file of that name first, and can't while this lock is held.
        let Ok(_lock) = lock_opening(folder, self.location.busy_bound) else { return };
        if removed.symlink_metadata().is_ok() {
            return;
        }
        let saved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0));
        if let Err(error) = saved {
            tracing::warn!(path = %removed.display(), %error, "what is in a removed log could not be saved");
        }
    }

    /// Notes which log and index the connection has open. Nobody removes them while it has, and it has since its first
    /// transaction.
    fn note_companions(&mut self) {
        if self.journal != Journal::Wal {
            return;
        }
        let Some(path) = self.location.database() else { return };
        for (suffix, known) in COMPANIONS.iter().zip(&mut self.companions) {
            *known = known.or_else(|| identity::of(&beside(&path, suffix)).ok());
        }
    }

    fn leave_gate(&self) {
        if let Some(gate) = &self.gate {
            gate.leave();
        }
    }
}

fn gone(path: &Path, detail: &str) -> Error {
    Error::Io {
        operation: "write to",
        path: path.display().to_string(),
        kind: std::io::ErrorKind::NotFound,
        detail: detail.to_owned(),
    }
}

impl Connection for rusqlite::Connection {
    fn command(&self, command: Command) -> Result<()> {
        execute(
            self,
            match command {
                Command::Begin => "BEGIN IMMEDIATE",
                Command::Commit => "COMMIT",
                Command::Rollback => "ROLLBACK",
                Command::Save => "SAVEPOINT request",
                Command::Undo => "ROLLBACK TO request",
                Command::Release => "RELEASE request",
            },
        )
    }

    fn in_transaction(&self) -> bool {
        !self.is_autocommit()
    }

    fn tx(&self) -> impl Tx {
        SqliteTx { connection: self }
    }
}

fn execute(connection: &rusqlite::Connection, sql: &str) -> Result<()> {
    let mut statement = connection.prepare_cached(sql).map_err(engine_error)?;
    statement.execute([]).map(drop).map_err(engine_error)
}

impl Source for Arc<Location> {
    type Connection = rusqlite::Connection;

    fn connect(&self) -> Result<Self::Connection> {
        connect_again(self, true)
    }

    fn read(connection: &Self::Connection, request: Box<dyn Request>) {
        let begun = execute(connection, "BEGIN").is_ok();
        answer(request, &mut SqliteTx { connection });
        if begun && !connection.is_autocommit() {
            drop(execute(connection, "COMMIT"));
        }
    }
}
