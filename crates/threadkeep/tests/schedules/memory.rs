//! Stores in memory under the scheduler: the library's SQL on the linked engine, with failures where they are drawn, and
//! triggers that refuse what no schedule may lead to.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rusqlite::Connection as Sqlite;

use crate::claims::Liveness;
use crate::db::fts::SqliteIndex;
use crate::db::group::{Command, Committer, Connection, Engine};
use crate::db::sqlite::{Location, SqliteTx, open};
use crate::db::write_queue::{Job, Writer};
use crate::db::{Db, Driver, Request, Row, Statement, Sync, Terms, Tx, Value, migrations};
use crate::error::{Error, Result};
use crate::explore::draw;
use crate::host::{Host, ProcessIdentity, ProjectFacts};
use crate::store::{Inner, Store, StoreOptions};
use crate::time::Timestamp;

/// What every schedule must keep, said to the engine itself: an item is written under a claim that is stored at its epoch, and
/// epochs never fall.
const RULES: &str = "
    CREATE TEMP TRIGGER no_item_without_its_claim BEFORE INSERT ON main.items
    WHEN NOT EXISTS (SELECT 1 FROM branches b JOIN claims c ON c.thread = b.thread
        WHERE b.key = NEW.key >> 32 AND c.epoch = NEW.epoch)
    BEGIN SELECT RAISE(ABORT, 'BROKEN RULE: an item without its claim'); END;
    CREATE TEMP TRIGGER no_epoch_falls BEFORE UPDATE ON main.threads WHEN NEW.epoch < OLD.epoch
    BEGIN SELECT RAISE(ABORT, 'BROKEN RULE: an epoch falls'); END;";

/// A database in memory that several stores share, as several processes would.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) db: Db,
    pub(crate) gauge: Arc<Gauge>,
    numbers: Arc<AtomicU64>,
}

/// What is on its way, and how often the engine fails.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// One commit in how many fails, and other calls less often; 0 for none.
    odds: AtomicU32,
    bytes: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    /// The most bytes that were in the writer's queue at once.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn add(&self, bytes: usize) {
        let now = self.bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    /// Makes one commit in this many fail; 0 for none.
    pub(crate) fn fail_one_in(&self, odds: u32) {
        self.odds.store(odds, Ordering::SeqCst);
    }

    /// Fails at the odds of a commit, or so many times less often.
    fn may_fail(&self, rarer: u32) -> Result<()> {
        let odds = self.odds.load(Ordering::SeqCst);
        if odds > 0 && draw(odds * rarer) == 0 {
            return Err(match draw(2) {
                0 => Error::Busy { detail: "drawn".to_owned() },
                _ => Error::StorageFull { detail: "drawn".to_owned() },
            });
        }
        Ok(())
    }
}

impl Memory {
    pub(crate) fn new(room: usize) -> Self {
        let location = Location {
            folder: None,
            read_only: false,
            busy_bound: std::time::Duration::ZERO,
            migrations: migrations::SQLITE,
            now: 0,
            anew: false,
        };
        let connection = open(&location).unwrap().connection;
        connection.execute_batch(RULES).unwrap();
        let gauge = Arc::new(Gauge::default());
        let connection = MemoryConnection { sqlite: connection, gauge: Arc::clone(&gauge) };
        let writer = Writer::start(Committer(MemoryEngine { connection })).unwrap();
        let driver = MemoryDriver { writer, gauge: Arc::clone(&gauge) };
        Self { db: Db::with_room(Arc::new(driver), room, 64), gauge, numbers: Arc::default() }
    }

    /// A store with a holder of its own.
    pub(crate) fn store(&self) -> Store {
        let host = CountingHost { numbers: Arc::clone(&self.numbers) };
        let options = StoreOptions::memory().host(Arc::new(host));
        let index = Arc::new(SqliteIndex::in_memory());
        Store::on(Inner::on(self.db.clone(), index, options, Liveness::locks(None, false), Vec::new()).unwrap())
    }
}

/// A clock that stands still, and random bytes that are the same in every run.
#[derive(Debug)]
struct CountingHost {
    numbers: Arc<AtomicU64>,
}

impl Host for CountingHost {
    fn now(&self) -> Timestamp {
        Timestamp(1_000)
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        let number = self.numbers.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        buffer.fill(7);
        let length = buffer.len();
        buffer[length - number.len()..].copy_from_slice(&number);
    }

    fn machine(&self) -> String {
        "machine".to_owned()
    }

    fn hostname(&self) -> String {
        "host".to_owned()
    }

    fn process(&self) -> ProcessIdentity {
        ProcessIdentity::default()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        ProjectFacts { path: path.to_owned(), ..ProjectFacts::default() }
    }
}

#[derive(Debug)]
struct MemoryDriver {
    writer: Writer,
    gauge: Arc<Gauge>,
}

impl Driver for MemoryDriver {
    fn submit_write(&self, request: Box<dyn Request>, terms: Terms) {
        self.gauge.add(request.bytes());
        self.writer.submit(Job::Write(Box::new(Weighed { request, gauge: Arc::clone(&self.gauge) }), terms.sync));
    }

    fn submit_read(&self, request: Box<dyn Request>) {
        self.writer.submit(Job::Read(request));
    }
}

struct Weighed {
    request: Box<dyn Request>,
    gauge: Arc<Gauge>,
}

impl Request for Weighed {
    fn bytes(&self) -> usize {
        self.request.bytes()
    }

    fn run(&mut self, tx: &mut dyn Tx) -> Result<()> {
        self.request.run(tx)
    }

    fn undone(&mut self) {
        self.request.undone();
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        // Before its place is given to the next.
        self.gauge.bytes.fetch_sub(self.request.bytes(), Ordering::SeqCst);
        self.request.finish(outcome);
    }
}

struct MemoryEngine {
    connection: MemoryConnection,
}

impl Engine for MemoryEngine {
    type Connection = MemoryConnection;

    fn connection(&mut self) -> Result<&MemoryConnection> {
        Ok(&self.connection)
    }

    fn connection_for(&mut self, _: Sync) -> Result<&MemoryConnection> {
        Ok(&self.connection)
    }

    fn enter(&mut self) -> Result<()> {
        self.connection.gauge.may_fail(2)
    }

    fn leave(&mut self) {}

    fn distrust(&mut self) {}
}

struct MemoryConnection {
    sqlite: Sqlite,
    gauge: Arc<Gauge>,
}

impl Connection for MemoryConnection {
    fn command(&self, command: Command) -> Result<()> {
        let fails = match command {
            Command::Rollback | Command::Undo => Ok(()),
            Command::Commit => self.gauge.may_fail(1),
            Command::Begin | Command::Save | Command::Release => self.gauge.may_fail(4),
        };
        fails?;
        self.sqlite.command(command)
    }

    fn in_transaction(&self) -> bool {
        self.sqlite.in_transaction()
    }

    fn tx(&self) -> impl Tx {
        MemoryTx { inner: SqliteTx { connection: &self.sqlite }, connection: self }
    }
}

struct MemoryTx<'a> {
    inner: SqliteTx<'a>,
    connection: &'a MemoryConnection,
}

impl Tx for MemoryTx<'_> {
    fn execute(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<usize> {
        if let Err(error) = self.connection.gauge.may_fail(8) {
            // As a full disk does: the whole transaction ends.
            self.connection.command(Command::Rollback)?;
            return Err(error);
        }
        self.inner.execute(statement, args)
    }

    fn query(
        &mut self,
        statement: Statement,
        args: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.inner.query(statement, args, visit)
    }
}
