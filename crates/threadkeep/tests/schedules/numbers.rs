//! An engine that keeps numbers in memory, fails where it is told to, and can be given a defect that the checks must find.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::db::group::{Command, Committer, Connection, Engine};
use crate::db::readers::{Readers, Source};
use crate::db::write_queue::{Job, Writer};
use crate::db::{Columns, Driver, Request, Row, Statement, Sync, Terms, Tx, Value, answer};
use crate::error::{Error, Result};
use crate::explore::draw;

/// Stores a number.
pub(crate) const PUT: Statement = Statement { name: "PUT", sql: "put" };
/// Fails, and ends the whole transaction, as a full disk does.
pub(crate) const FILL: Statement = Statement { name: "FILL", sql: "fill" };
/// Fails, and ends the whole transaction, as an I/O error does.
pub(crate) const BREAK: Statement = Statement { name: "BREAK", sql: "break" };
/// Looks damaged to a connection that was never distrusted, as a page does that could not be read once.
pub(crate) const BLUR: Statement = Statement { name: "BLUR", sql: "blur" };
/// Is damaged.
pub(crate) const DAMAGE: Statement = Statement { name: "DAMAGE", sql: "damage" };
/// Gives all numbers.
pub(crate) const ALL: Statement = Statement { name: "ALL", sql: "all" };

/// What is wrong with the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    Nothing,
    /// One call in eight fails: entering, beginning, saving, undoing, releasing, committing.
    Faults,
    /// A refused request is not undone.
    UndoesNothing,
    /// A commit says that it succeeded before it did.
    CommitsLate,
    /// Readers see the state of the commit before the last.
    ReadsStale,
}

/// What is committed.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) defect: Defect,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    committed: Vec<i64>,
    /// What was committed and is not there yet, with the defect that commits late.
    late: Vec<i64>,
    before: Vec<i64>,
    entered: bool,
}

impl Disk {
    pub(crate) fn new(defect: Defect) -> Arc<Self> {
        Arc::new(Self { defect, state: Mutex::default() })
    }

    /// The numbers that are committed, in order.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        self.lock().committed.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_fail(&self) -> Result<()> {
        if self.defect == Defect::Faults && draw(8) == 0 {
            return Err(match draw(3) {
                0 => Error::Busy { detail: "drawn".to_owned() },
                1 => full(),
                _ => broken(),
            });
        }
        Ok(())
    }
}

pub(crate) struct NumberEngine {
    disk: Arc<Disk>,
    connection: Option<NumberConnection>,
    is_fresh: bool,
}

impl Engine for NumberEngine {
    type Connection = NumberConnection;

    fn connection(&mut self) -> Result<&NumberConnection> {
        let (disk, is_fresh) = (Arc::clone(&self.disk), self.is_fresh);
        Ok(self.connection.get_or_insert_with(|| NumberConnection::new(disk, is_fresh)))
    }

    fn connection_for(&mut self, _: Sync) -> Result<&NumberConnection> {
        assert!(self.disk.lock().entered, "a group is run without the right to write");
        self.connection()
    }

    fn enter(&mut self) -> Result<()> {
        self.disk.may_fail()?;
        assert!(!std::mem::replace(&mut self.disk.lock().entered, true), "the right to write was taken twice");
        Ok(())
    }

    fn leave(&mut self) {
        assert!(std::mem::replace(&mut self.disk.lock().entered, false), "the right to write was given up twice");
        let open = self.connection.as_ref().is_some_and(NumberConnection::in_transaction);
        assert!(!open, "a transaction was left open");
    }

    fn distrust(&mut self) {
        self.connection = None;
        self.is_fresh = true;
    }
}

pub(crate) struct NumberConnection {
    disk: Arc<Disk>,
    /// Whether it was opened in the place of one that was distrusted.
    is_fresh: bool,
    open: Cell<bool>,
    written: RefCell<Vec<i64>>,
    saved: Cell<Option<usize>>,
}

impl NumberConnection {
    fn new(disk: Arc<Disk>, is_fresh: bool) -> Self {
        Self { disk, is_fresh, open: Cell::new(false), written: RefCell::default(), saved: Cell::new(None) }
    }

    fn end(&self) {
        self.open.set(false);
        self.saved.set(None);
        self.written.borrow_mut().clear();
    }

    fn commit(&self) {
        let mut state = self.disk.lock();
        let written = self.written.borrow_mut().split_off(0);
        if !written.is_empty() {
            state.before = state.committed.clone();
        }
        let late = std::mem::take(&mut state.late);
        state.committed.extend(late);
        match self.disk.defect {
            Defect::CommitsLate => state.late = written,
            _ => state.committed.extend(written),
        }
    }
}

impl Connection for NumberConnection {
    fn command(&self, command: Command) -> Result<()> {
        assert_eq!(self.open.get(), command != Command::Begin, "{command:?} at the wrong time");
        if command == Command::Rollback {
            self.end();
            return Ok(());
        }
        if let Err(error) = self.disk.may_fail() {
            // As in SQLite, some errors of a commit leave the transaction open, and some end it.
            if command == Command::Commit && draw(2) == 0 {
                self.end();
            }
            return Err(error);
        }
        match command {
            Command::Begin => self.open.set(true),
            Command::Commit => {
                self.commit();
                self.end();
            }
            Command::Rollback => {}
            Command::Save => {
                assert_eq!(self.saved.get(), None, "a savepoint in a savepoint");
                self.saved.set(Some(self.written.borrow().len()));
            }
            Command::Undo => {
                let saved = self.saved.get().unwrap();
                if self.disk.defect != Defect::UndoesNothing {
                    self.written.borrow_mut().truncate(saved);
                }
            }
            Command::Release => assert!(self.saved.take().is_some(), "no savepoint"),
        }
        Ok(())
    }

    fn in_transaction(&self) -> bool {
        self.open.get()
    }

    fn tx(&self) -> impl Tx {
        let seen = [self.disk.numbers(), self.written.borrow().clone()].concat();
        NumberTx { connection: Some(self), seen }
    }
}

struct NumberTx<'a> {
    /// `None` for reading only.
    connection: Option<&'a NumberConnection>,
    seen: Vec<i64>,
}

impl Tx for NumberTx<'_> {
    fn execute(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<usize> {
        let connection = self.connection.unwrap();
        assert!(connection.open.get(), "a request runs outside of a transaction");
        match (statement.name, args) {
            ("PUT", [Value::Int(number)]) => connection.written.borrow_mut().push(*number),
            ("BLUR", _) if connection.is_fresh => {}
            ("BLUR" | "DAMAGE", _) => return Err(Error::corrupt("a page", "drawn")),
            ("FILL", _) => {
                connection.end();
                return Err(full());
            }
            _ => {
                connection.end();
                return Err(broken());
            }
        }
        Ok(1)
    }

    fn query(
        &mut self,
        statement: Statement,
        _: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        for number in &self.seen {
            if visit(&Row { columns: &Number(*number), statement: statement.name })?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

struct Number(i64);

impl Columns for Number {
    fn value(&self, _: usize) -> Result<Value<'_>> {
        Ok(Value::Int(self.0))
    }
}

fn full() -> Error {
    Error::StorageFull { detail: "drawn".to_owned() }
}

fn broken() -> Error {
    Error::Io { operation: "use", path: String::new(), kind: std::io::ErrorKind::Other, detail: "drawn".to_owned() }
}

/// A driver that is put together as that of SQLite is, with readers or without.
#[derive(Debug)]
pub(crate) struct NumberDriver {
    readers: Option<Readers<Arc<Disk>>>,
    writer: Writer,
}

impl NumberDriver {
    pub(crate) fn start(disk: &Arc<Disk>, with_readers: bool) -> Self {
        let writer =
            Writer::start(Committer(NumberEngine { disk: Arc::clone(disk), connection: None, is_fresh: false }))
                .unwrap();
        Self { readers: with_readers.then(|| Readers::new(Arc::clone(disk))), writer }
    }
}

impl Driver for NumberDriver {
    fn submit_write(&self, request: Box<dyn Request>, terms: Terms) {
        self.writer.submit(Job::Write(request, terms.sync));
    }

    fn submit_read(&self, request: Box<dyn Request>) {
        match &self.readers {
            Some(readers) => readers.submit(request),
            None => self.writer.submit(Job::Read(request)),
        }
    }
}

impl Source for Arc<Disk> {
    type Connection = Self;

    fn connect(&self) -> Result<Self::Connection> {
        self.may_fail()?;
        Ok(Self::clone(self))
    }

    fn read(connection: &Self::Connection, request: Box<dyn Request>) {
        let seen = match connection.defect {
            Defect::ReadsStale => connection.lock().before.clone(),
            _ => connection.numbers(),
        };
        answer(request, &mut NumberTx { connection: None, seen });
    }
}
