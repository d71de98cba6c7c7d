//! The SQLite driver: one connection that writes behind the gate, and a few that read.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::db::gate::Gate;
use crate::db::group::{Command, Connection, Engine, Job, Writer};
use crate::db::pragmas::Journal;
use crate::db::readers::{Readers, Source};
use crate::db::sqlite::{Location, Opened, SqliteTx, connect_again, engine_error};
use crate::db::{Driver, ReadRequest, Sync, Tx, WriteRequest};
use crate::error::{Error, Result};

/// The SQLite driver. Dropped, it does everything that was queued and closes the files.
#[derive(Debug)]
pub(crate) struct SqliteDriver {
    /// First, so that the connection that can tidy up the log is the last one to close. `None` in memory.
    readers: Option<Readers<Arc<Location>>>,
    writer: Writer,
}

impl SqliteDriver {
    /// Starts the writer on an opened store.
    pub(crate) fn start(location: &Location, opened: Opened) -> Result<Self> {
        let gate = match &location.folder {
            Some(folder) if !location.read_only => Some(Gate::open(folder, location.busy_bound)?),
            _ => None,
        };
        let location = Arc::new(location.clone());
        let writer = Writer::start(SqliteEngine {
            connection: Some(opened.connection),
            journal: opened.journal,
            level: Sync::Synced,
            gate,
            identity: location.database().map(|path| identity(&path)).transpose()?,
            location: Arc::clone(&location),
        })?;
        let in_memory = location.folder.is_none();
        Ok(Self { readers: (!in_memory).then(|| Readers::new(location)), writer })
    }
}

impl Driver for SqliteDriver {
    fn submit_write(&self, request: Box<dyn WriteRequest>, sync: Sync) {
        self.writer.submit(Job::Write(request, sync));
    }

    fn submit_read(&self, request: ReadRequest) {
        match &self.readers {
            Some(readers) => readers.submit(request),
            None => self.writer.submit(Job::Read(request)),
        }
    }
}

struct SqliteEngine {
    /// `None` after an I/O error, until it is opened anew.
    connection: Option<rusqlite::Connection>,
    journal: Journal,
    level: Sync,
    gate: Option<Gate>,
    location: Arc<Location>,
    /// The device and the number of the file that was opened; `None` in memory.
    identity: Option<(u64, u64)>,
}

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
        self.set_level(sync)?;
        self.connection()
    }

    fn enter(&mut self) -> Result<()> {
        self.connection()?;
        self.gate.as_mut().map_or(Ok(()), Gate::enter)?;
        let in_place = self.check_identity();
        if in_place.is_err() {
            self.leave();
        }
        in_place
    }

    fn leave(&mut self) {
        if let Some(gate) = &self.gate {
            gate.leave();
        }
    }

    fn distrust(&mut self) {
        self.connection = None;
    }
}

impl SqliteEngine {
    fn set_level(&mut self, sync: Sync) -> Result<()> {
        self.connection()?;
        let level = if self.journal == Journal::Rollback { Sync::Synced } else { sync };
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

    /// Refuses to write when the name leads to another file by now: what is written to one that was removed is lost with it.
    fn check_identity(&self) -> Result<()> {
        let (Some(path), Some(opened)) = (self.location.database(), self.identity) else { return Ok(()) };
        if identity(&path).is_ok_and(|found| found == opened) {
            return Ok(());
        }
        let detail =
            "the database was moved, replaced or removed since it was opened; put it back, or open the store again";
        Err(Error::Io {
            operation: "write to",
            path: path.display().to_string(),
            kind: std::io::ErrorKind::NotFound,
            detail: detail.to_owned(),
        })
    }
}

/// What tells a file from every other one, whatever its name.
fn identity(path: &Path) -> Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path).map_err(|error| Error::io("look at", path, &error))?;
    Ok((meta.dev(), meta.ino()))
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

    fn read(connection: &Self::Connection, request: ReadRequest) {
        let begun = execute(connection, "BEGIN").is_ok();
        request(&mut SqliteTx { connection });
        if begun && !connection.is_autocommit() {
            drop(execute(connection, "COMMIT"));
        }
    }
}
