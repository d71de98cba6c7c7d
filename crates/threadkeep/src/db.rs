//! The driver seam: transactions over statements. Nothing of the domain is known here.
//!
//! A driver gives a [`Tx`] to a closure. Requests that write are closures that can run again: after an error that ended
//! the whole transaction the others of its group are replayed.

pub(crate) mod commits;
pub(crate) mod copy;
pub(crate) mod drift;
pub(crate) mod erasure;
pub(crate) mod fts;
pub(crate) mod gate;
pub(crate) mod group;
pub(crate) mod helping;
pub(crate) mod identity;
pub(crate) mod index;
pub(crate) mod look;
pub(crate) mod migrations;
pub(crate) mod news;
pub(crate) mod pages;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod pragmas;
pub(crate) mod readers;
pub(crate) mod replace;
pub(crate) mod room;
pub(crate) mod salvage;
pub(crate) mod sqlite;
pub(crate) mod wal;
pub(crate) mod write_queue;
pub(crate) mod writer;

use std::any::Any;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_channel::oneshot;

use crate::concurrency::atomic::{AtomicUsize, Ordering};
use crate::db::fts::ALL as SQLITE_INDEX;
use crate::db::news::{Board, Touched};
#[cfg(feature = "postgres")]
use crate::db::postgres::fts::ALL as POSTGRES_INDEX;
use crate::db::room::{Place, Room};
use crate::error::{Error, Result};

/// How many bytes of requests may be on their way to the writer; who asks for more waits for its turn.
const WRITE_ROOM: usize = 64 << 20;
/// What a request counts for beside the content that it carries.
const REQUEST_BYTES: usize = 1 << 10;
/// How many reads may be on their way.
const READ_ROOM: usize = 4096;

/// A value on its way to a statement or out of a row. There are no booleans and no floating-point numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Blob(value)
    }
}

impl<T> From<Option<T>> for Value<'_>
where
    Self: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

/// A value that outlives its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owned {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Owned {
    /// The value, to be bound.
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Int(value) => Value::Int(*value),
            Self::Text(text) => Value::Text(text),
            Self::Blob(bytes) => Value::Blob(bytes),
        }
    }
}

impl From<Value<'_>> for Owned {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int(value) => Self::Int(value),
            Value::Text(text) => Self::Text(text.to_owned()),
            Value::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

/// One statement text, written once for both engines with `?N` parameters, and known to the list that is prepared on both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Declares statements and the list `ALL` of them, so that none escapes the test that prepares every text on every engine.
macro_rules! statements {
    ($($(#[$meta:meta])* $name:ident = $sql:expr;)+) => {
        $($(#[$meta])* const $name: $crate::db::Statement = $crate::db::Statement { name: stringify!($name), sql: $sql };)+
        pub(crate) const ALL: &[$crate::db::Statement] = &[$($name),+];
    };
}
pub(crate) use statements;

/// Where a row's values come from.
pub(crate) trait Columns {
    fn value(&self, column: usize) -> Result<Value<'_>>;
}

/// A row, read by column number; a value of another type is damage that names the statement and the column.
pub(crate) struct Row<'a> {
    pub(crate) columns: &'a dyn Columns,
    pub(crate) statement: &'static str,
}

impl<'a> Row<'a> {
    pub(crate) fn int(&self, column: usize) -> Result<i64> {
        self.opt_int(column)?.ok_or_else(|| self.wrong(column, "a number, found nothing"))
    }

    pub(crate) fn opt_int(&self, column: usize) -> Result<Option<i64>> {
        match self.columns.value(column)? {
            Value::Null => Ok(None),
            Value::Int(value) => Ok(Some(value)),
            Value::Text(_) | Value::Blob(_) => Err(self.wrong(column, "a number")),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<&'a str> {
        self.opt_text(column)?.ok_or_else(|| self.wrong(column, "text, found nothing"))
    }

    pub(crate) fn opt_text(&self, column: usize) -> Result<Option<&'a str>> {
        match self.columns.value(column)? {
            Value::Null => Ok(None),
            Value::Text(value) => Ok(Some(value)),
            Value::Int(_) | Value::Blob(_) => Err(self.wrong(column, "text")),
        }
    }

    pub(crate) fn blob(&self, column: usize) -> Result<&'a [u8]> {
        self.opt_blob(column)?.ok_or_else(|| self.wrong(column, "bytes, found nothing"))
    }

    pub(crate) fn opt_blob(&self, column: usize) -> Result<Option<&'a [u8]>> {
        match self.columns.value(column)? {
            Value::Null => Ok(None),
            Value::Blob(value) => Ok(Some(value)),
            Value::Int(_) | Value::Text(_) => Err(self.wrong(column, "bytes")),
        }
    }

    /// Reads a column whatever its type is.
    pub(crate) fn owned(&self, column: usize) -> Result<Owned> {
        self.columns.value(column).map(Owned::from)
    }

    /// Reads a column with a parser that gives `None` for what it can't read.
    pub(crate) fn parse<T>(&self, column: usize, value: Option<T>, expected: &str) -> Result<T> {
        value.ok_or_else(|| self.wrong(column, expected))
    }

    fn wrong(&self, column: usize, expected: &str) -> Error {
        Error::corrupt(format!("column {column} of {}", self.statement), format!("expected {expected}"))
    }
}

/// Something that the driver knows nothing about.
pub(crate) type Left = Option<Box<dyn Any>>;

/// A transaction of a driver.
pub(crate) trait Tx {
    /// Runs a statement that gives no rows; says how many rows it changed.
    fn execute(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<usize>;

    /// Runs a statement and visits its rows in order until the visitor breaks.
    fn query(
        &mut self,
        statement: Statement,
        args: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()>;

    /// Runs a statement that changes one row if everything is as the caller knows it, and says whether it did.
    ///
    /// An engine that is far away may say so before it knows. When it was wrong everything is undone, and the request runs
    /// again in a transaction that waits for the answer.
    fn post(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<bool> {
        Ok(self.execute(statement, args)? == 1)
    }

    /// What a request leaves to the next one of its transaction, which takes it; gone as soon as anything is undone. `None`
    /// where a request may be undone without those after it.
    fn left(&mut self) -> Option<&mut Left> {
        None
    }

    /// The engine's own clock in milliseconds since the epoch, where it has one: all machines that use the store share it.
    fn clock(&mut self) -> Result<Option<i64>> {
        Ok(None)
    }

    /// Whether no other transaction that writes can run at the same time as this one.
    fn is_alone(&self) -> bool {
        true
    }

    /// Gives up to so many pages that nothing is in any more back to the disk. An engine that uses them by itself for what comes next
    /// has none.
    fn give_back(&mut self, _pages: i64) -> Result<GivenBack> {
        Ok(GivenBack::default())
    }

    /// How many bytes the store takes of the engine's disk, where the engine is asked and not the file system.
    fn bytes_on_disk(&mut self) -> Result<Option<i64>> {
        Ok(None)
    }
}

/// Room that was given back to the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GivenBack {
    /// How many bytes.
    pub(crate) bytes: i64,
    /// How many pages are left that could be.
    pub(crate) left: i64,
}

/// Reads the first row, if there is one.
pub(crate) fn query_one<T>(
    tx: &mut dyn Tx,
    statement: Statement,
    args: &[Value<'_>],
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut found = None;
    tx.query(statement, args, &mut |row| {
        found = Some(read(row)?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Reads all rows. For lists that are small by nature; pages carry a limit.
pub(crate) fn query_all<T>(
    tx: &mut dyn Tx,
    statement: Statement,
    args: &[Value<'_>],
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    tx.query(statement, args, &mut |row| {
        found.push(read(row)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Whether a commit is synced before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sync {
    Written,
    Synced,
}

/// In which order a write runs beside the others that were asked for through the same store.
///
/// SQLite has one writer, which runs everything in the order of asking; an engine with several workers needs to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// After everything that was asked for before it.
    AfterAll,
    /// After what was asked for under the same name before it. Other names may overtake it.
    Within(String),
    /// Whenever a worker is free.
    Free,
}

/// What a write asks of the driver.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "one writer keeps every order, and a file answers"))]
pub(crate) struct Terms {
    pub(crate) sync: Sync,
    pub(crate) order: Order,
    /// Whether a second run, when it is not known whether the first was committed, gives the same end and a true answer.
    pub(crate) repeatable: bool,
    /// Whether nobody who follows anything is told of it.
    pub(crate) silent: bool,
    /// Whether those who follow the whole store are told of it, though it belongs to no thread.
    pub(crate) told: bool,
    /// The thread that it belongs to, where that is not what orders it.
    pub(crate) thread: Option<String>,
}

impl Terms {
    /// Says that a second run changes nothing and finds out what the first one did.
    pub(crate) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// Says that it changes nothing that anybody follows.
    pub(crate) fn silent(self) -> Self {
        Self { silent: true, ..self }
    }

    /// Says that it changes what those follow who follow the whole store.
    pub(crate) fn told(self) -> Self {
        Self { told: true, ..self }
    }

    /// After everything that was asked for before it, whatever thread it belongs to.
    pub(crate) fn after_all(self) -> Self {
        match self.order {
            Order::Within(name) => Self { order: Order::AfterAll, thread: Some(name), ..self },
            order => Self { order, ..self },
        }
    }

    /// What is told when it is committed. What runs in no order belongs to no thread.
    fn touched(&self) -> Option<Touched> {
        if let Some(name) = self.thread.as_ref().filter(|_| !self.silent) {
            return Some(Touched::Thread(name.clone()));
        }
        match &self.order {
            _ if self.silent => None,
            Order::Within(name) => Some(Touched::Thread(name.clone())),
            Order::AfterAll => Some(Touched::Anything),
            Order::Free => self.told.then_some(Touched::Beside),
        }
    }
}

impl From<Sync> for Terms {
    fn from(sync: Sync) -> Self {
        Self { sync, order: Order::AfterAll, repeatable: false, silent: false, told: false, thread: None }
    }
}

impl Sync {
    /// In the order of what is asked for under this name: that of a thread.
    pub(crate) fn within(self, name: &str) -> Terms {
        Terms { order: Order::Within(name.to_owned()), ..self.into() }
    }

    /// In no order.
    pub(crate) fn free(self) -> Terms {
        Terms { order: Order::Free, ..self.into() }
    }
}

/// A request; it may run more than once, and is finished once.
pub(crate) trait Request: Send {
    /// How much memory it holds, roughly.
    fn bytes(&self) -> usize;
    fn run(&mut self, tx: &mut dyn Tx) -> Result<()>;
    /// What it did in its last run was taken back.
    fn undone(&mut self);
    fn finish(self: Box<Self>, outcome: Result<()>);
}

/// Runs a request once, and answers it.
pub(crate) fn answer(mut request: Box<dyn Request>, tx: &mut dyn Tx) {
    let outcome = request.run(tx);
    request.finish(outcome);
}

/// A driver: takes requests and runs them in the order that their terms ask for.
pub(crate) trait Driver: Send + std::marker::Sync + std::fmt::Debug {
    fn submit_write(&self, request: Box<dyn Request>, terms: Terms);
    fn submit_read(&self, request: Box<dyn Request>);

    /// Writes everything that is stored anew, so that nothing is left of what is no longer part of it. A driver that keeps nothing
    /// outlasting it has nothing to do.
    fn erase(&self, reply: oneshot::Sender<Result<Erased>>) {
        // A caller that no longer waits needs no answer.
        drop(reply.send(Ok(Erased { is_over: true, ..Erased::default() })));
    }

    /// Makes the room of what was deleted fit for what comes next, where that does not happen in transactions. Nobody waits for it.
    fn tidy(&self, reply: oneshot::Sender<Result<()>>) {
        // A caller that no longer waits needs no answer.
        drop(reply.send(Ok(())));
    }

    /// Where news of what is committed are told. The same at each call, unless nobody else can commit.
    fn board(&self) -> Arc<Board> {
        Arc::default()
    }
}

/// What is left of the bytes that are no longer part of what is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Erased {
    /// Where bytes of them may still be, and how they go away; nothing when no file of the store holds any.
    pub(crate) remains: Vec<String>,
    /// Whether asking again may change that.
    pub(crate) is_over: bool,
}

/// A cheap-clone handle of a driver, with typed requests.
#[derive(Debug, Clone)]
pub(crate) struct Db {
    driver: Arc<dyn Driver>,
    rooms: Rooms,
    board: Arc<Board>,
    /// How many writes were asked for that are not synced when they are answered.
    unsynced: Arc<AtomicUsize>,
}

/// What may be on its way. Reads have a room of their own, so that they never wait for one that writes take.
#[derive(Debug, Clone)]
struct Rooms {
    writes: Room,
    reads: Room,
}

impl Db {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self::with_room(driver, WRITE_ROOM, READ_ROOM)
    }

    pub(crate) fn with_room(driver: Arc<dyn Driver>, writes: usize, reads: usize) -> Self {
        let (rooms, board) = (Rooms { writes: Room::new(writes), reads: Room::new(reads) }, driver.board());
        Self { driver, rooms, board, unsynced: Arc::default() }
    }

    /// How many writes were asked for so far that are not synced when they are answered. As long as that is the same before
    /// something is read and behind it, what was read is synced as soon as anything that was asked for then is.
    pub(crate) fn unsynced_writes(&self) -> usize {
        self.unsynced.load(Ordering::SeqCst)
    }

    /// Where news of what is committed are heard.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// A handle that does not keep the driver running.
    pub(crate) fn downgrade(&self) -> WeakDb {
        WeakDb {
            driver: Arc::downgrade(&self.driver),
            rooms: self.rooms.clone(),
            board: Arc::clone(&self.board),
            unsynced: Arc::clone(&self.unsynced),
        }
    }

    /// Runs a closure that writes as if alone, and answers after the commit. A caller who stops waiting before there
    /// was room for it has asked for nothing; later it is done all the same.
    pub(crate) async fn write<T, F>(&self, terms: impl Into<Terms>, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    {
        let (place, terms) = (self.place(0), terms.into());
        self.write_in(place.await, terms, run).await
    }

    /// Waits for room for a request that carries this many bytes.
    pub(crate) async fn place(&self, bytes: usize) -> Place {
        self.rooms.writes.enter(bytes.saturating_add(REQUEST_BYTES)).await
    }

    /// Queues a closure that writes; dropping the answer does not stop it.
    pub(crate) fn write_in<T, F>(&self, place: Place, terms: impl Into<Terms>, run: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    {
        self.write_undoable(place, terms, run, || {})
    }

    /// As [`Db::write_in`], for a closure that leaves traces beside the transaction: `undo` takes them back when what it did
    /// is taken back, before any other request runs.
    pub(crate) fn write_undoable<T, F, U>(&self, place: Place, terms: impl Into<Terms>, run: F, undo: U) -> Pending<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
        U: Fn() + Send + 'static,
    {
        let ((reply, answer), terms) = (oneshot::channel(), terms.into());
        if terms.sync == Sync::Written {
            self.unsynced.fetch_add(1, Ordering::SeqCst);
        }
        let news = terms.touched().map(|touched| (Arc::clone(&self.board), touched));
        self.driver.submit_write(Box::new(Typed { run, undo, value: None, reply, place, news }), terms);
        Pending(answer)
    }

    /// Queues a closure that writes, though there is no room: for what can't wait, at most one for each handle.
    pub(crate) fn write_now<T, F>(&self, terms: impl Into<Terms>, run: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    {
        self.write_in(self.rooms.writes.beside(), terms, run)
    }

    /// Removes every trace of what was overwritten or deleted: from free pages, from the gaps within pages, from the log. Takes the
    /// time and the room of writing the whole store anew; writers wait meanwhile.
    pub(crate) async fn erase(&self) -> Result<Erased> {
        let (reply, answer) = oneshot::channel();
        self.driver.erase(reply);
        Pending(answer).await
    }

    /// Makes the room of what was deleted fit for what comes next, as far as the engine does not do that in transactions.
    pub(crate) async fn tidy(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.driver.tidy(reply);
        Pending(answer).await
    }

    /// Runs a closure that reads one snapshot; it may run more than once.
    pub(crate) async fn read<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    {
        let place = self.rooms.reads.enter(1).await;
        let (reply, answer) = oneshot::channel();
        self.driver.submit_read(Box::new(Typed { run, undo: || {}, value: None, reply, place, news: None }));
        Pending(answer).await
    }
}

struct Typed<T, F, U> {
    run: F,
    undo: U,
    value: Option<T>,
    reply: oneshot::Sender<Result<T>>,
    place: Place,
    /// What is told, and where, when it is committed.
    news: Option<(Arc<Board>, Touched)>,
}

impl<T, F, U> Request for Typed<T, F, U>
where
    T: Send,
    F: FnMut(&mut dyn Tx) -> Result<T> + Send,
    U: Fn() + Send,
{
    fn bytes(&self) -> usize {
        self.place.size()
    }

    fn run(&mut self, tx: &mut dyn Tx) -> Result<()> {
        self.value = Some((self.run)(tx)?);
        Ok(())
    }

    fn undone(&mut self) {
        (self.undo)();
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        let Self { run, value, reply, place, news, .. } = *self;
        drop((run, place));
        let ended = || Error::Backend { detail: "the request was not run".to_owned() };
        let news = news.filter(|_| outcome.is_ok());
        // A caller that no longer waits needs no answer.
        drop(reply.send(outcome.and_then(|()| value.ok_or_else(ended))));
        // After the answer, which must not wait for it.
        if let Some((board, touched)) = news {
            board.tell(&touched);
        }
    }
}

/// A handle that does not keep the driver running.
#[derive(Debug, Clone)]
pub(crate) struct WeakDb {
    driver: Weak<dyn Driver>,
    rooms: Rooms,
    board: Arc<Board>,
    unsynced: Arc<AtomicUsize>,
}

impl WeakDb {
    /// The handle, while somebody else still has one.
    pub(crate) fn upgrade(&self) -> Option<Db> {
        Some(Db {
            driver: self.driver.upgrade()?,
            rooms: self.rooms.clone(),
            board: Arc::clone(&self.board),
            unsynced: Arc::clone(&self.unsynced),
        })
    }
}

/// The answer to a request that is on its way.
#[derive(Debug)]
#[must_use = "the request runs in any case; its outcome is known only here"]
pub(crate) struct Pending<T>(oneshot::Receiver<Result<T>>);

impl<T> Pending<T> {
    /// The answer, if it has come.
    pub(crate) fn poll_now(&mut self) -> Option<Result<T>> {
        match self.0.try_recv() {
            Ok(Some(answer)) => Some(answer),
            Ok(None) => None,
            Err(oneshot::Canceled) => Some(Err(writer_ended())),
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or_else(|oneshot::Canceled| Err(writer_ended())))
    }
}

fn writer_ended() -> Error {
    Error::Backend { detail: "the store's thread has ended".to_owned() }
}

/// Every statement text of the crate.
pub(crate) fn all_statements() -> Vec<Statement> {
    let areas = [
        SQLITE_INDEX,
        crate::bundle::ALL,
        crate::log::append::ALL,
        crate::log::path::ALL,
        crate::log::read::ALL,
        crate::log::receipts::ALL,
        crate::log::redact::ALL,
        crate::log::head::ALL,
        crate::log::order::ALL,
        crate::log::standing::ALL,
        crate::log::proof::ALL,
        crate::records::ALL,
        crate::log::purge::ALL,
        crate::log::verify::ALL,
        crate::log::blobs::ALL,
        crate::log::rows::ALL,
        crate::log::rows::documents::ALL,
        crate::log::rows::plain::ALL,
        crate::log::rows::state::ALL,
        crate::log::rows::work::ALL,
        crate::log::rows::steering::ALL,
        crate::threads::ALL,
        crate::thread_list::ALL,
        crate::turns::ALL,
        crate::goals::ALL,
        crate::jobs::ALL,
        crate::checkpoints::ALL,
        crate::documents::ALL,
        crate::roadmaps::ALL,
        crate::tools::ALL,
        crate::runs::ALL,
        crate::runs::parts::ALL,
        crate::runs::candidates::ALL,
        crate::runs::tree::ALL,
        crate::runs::texts::ALL,
        crate::inbox::ALL,
        crate::requests::ALL,
        crate::retention::ALL,
        crate::retention::protection::ALL,
        crate::retention::receipts::ALL,
        crate::retention::room::ALL,
        crate::retention::standing::ALL,
        crate::retention::taking::ALL,
        crate::changes::ALL,
        crate::workspaces::ALL,
        crate::writers::ALL,
        crate::claims::ALL,
        crate::seals::ALL,
        crate::sources::ALL,
        crate::stats::ALL,
        crate::store::ALL,
        crate::backup::ALL,
        crate::repair::admit::ALL,
        crate::repair::settle::ALL,
        crate::follow::ALL,
        crate::search::asking::ALL,
        crate::search::indexing::ALL,
        crate::search::looking::ALL,
        crate::search::tail::ALL,
        crate::rollout::marks::ALL,
        crate::rollout::setting::ALL,
    ];
    areas.concat()
}

/// All statements for the tests that prepare them: the name, the text as SQLite gets it, and the text as PostgreSQL gets it.
#[doc(hidden)]
pub fn statement_texts() -> Vec<(String, String, String)> {
    let texts = |it: Statement| (it.name.to_owned(), it.sql.to_owned(), for_postgres(it.sql));
    all_statements().into_iter().map(texts).collect()
}

/// The statements that PostgreSQL alone is given, for the test that prepares them: the name, and the text.
#[cfg(feature = "postgres")]
#[doc(hidden)]
pub fn postgres_statement_texts() -> Vec<(String, String)> {
    POSTGRES_INDEX.iter().map(|it| (it.name.to_owned(), for_postgres(it.sql))).collect()
}

/// Rewrites a text for PostgreSQL: `?N` to `$N`, and the locks on rows, which SQLite takes for comments, since its one writer
/// needs none. Our texts hold no question mark in a literal; a test checks that.
pub(crate) fn for_postgres(sql: &str) -> String {
    sql.replace('?', "$")
        .replace("/* FOR UPDATE OF t */", "FOR UPDATE OF t")
        .replace("/* FOR KEY SHARE */", "FOR KEY SHARE")
        .replace("/* FOR UPDATE SKIP LOCKED */", "FOR UPDATE SKIP LOCKED")
        .replace("/* FOR UPDATE */", "FOR UPDATE")
}
