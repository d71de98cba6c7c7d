//! A connection to the server with its prepared statements, and transactions on it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::StreamExt as _;
use futures_util::future::{join, maybe_done};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::DbError;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, RowStream};

use crate::db::postgres::Place;
use crate::db::postgres::refusal::{self, Fate, Refusal};
use crate::db::{Columns, Left, Owned, Row, Statement, Tx, Value, for_postgres};
use crate::error::{Error, Result};

/// How much longer than the server the client waits for an answer, before it takes the server for gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a statement that only reads may take.
const READ_BOUND: Duration = Duration::from_secs(300);

/// How many of the server's remarks are kept until they are read; later ones are dropped.
const REMARKS: usize = 64;

/// The time by the server, in milliseconds since the epoch.
const CLOCK: Statement =
    Statement { name: "CLOCK", sql: "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)" };

/// What the store's tables take on disk, with their indexes and what is kept beside them.
const BYTES: Statement = Statement {
    name: "BYTES",
    sql: "SELECT CAST(coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(pg_catalog.current_schema() AS name) AND c.relkind IN ('r', 'm')",
};

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// All statements see the same state.
    Snapshot,
    /// The commit is answered when it is synced.
    Synced,
    /// The commit is answered when the server has it in memory; it syncs it within a second.
    Written,
}

impl Begin {
    fn text(self) -> &'static str {
        match self {
            Self::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Self::Synced => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Self::Written => "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off",
        }
    }
}

/// How a commit ended.
#[derive(Debug)]
pub(crate) enum Committed {
    Yes,
    No(Refusal),
    /// It was sent, and the connection was lost before the answer came.
    Unknown(Error),
}

/// A connection, driven by the thread that uses it.
pub(crate) struct Session {
    runtime: Runtime,
    client: Client,
    prepared: HashMap<&'static str, tokio_postgres::Statement>,
    remarks: mpsc::Receiver<DbError>,
    bound: Duration,
    place: String,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Session {
    /// Connects; on failure says whether the cause may pass by itself.
    pub(crate) fn connect(place: &Place, purpose: Purpose) -> Result<Self, (Error, bool)> {
        let shown = place.address.to_string();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| (Error::Backend { detail: format!("no runtime: {error}") }, false))?;
        let (tell, remarks) = mpsc::channel(REMARKS);
        let client = runtime.block_on(dial(place, tell)).map_err(|error| refusal::judge_connecting(&error, &shown))?;
        let bound = match purpose {
            Purpose::Read => READ_BOUND + PATIENCE,
            Purpose::Write => place.busy_bound + PATIENCE,
        };
        let session = Self { runtime, client, prepared: HashMap::new(), remarks, bound, place: shown };
        match session.batch(&settings(place, purpose)) {
            Ok(()) => Ok(session),
            Err(refusal) => Err((refusal.error, refusal.fate == Fate::Lost)),
        }
    }

    /// The same session, whose statements may take as long as this.
    pub(crate) fn within(self, bound: Duration) -> Self {
        Self { bound, ..self }
    }

    /// Runs statements without parameters.
    pub(crate) fn batch(&self, sql: &str) -> Result<(), Refusal> {
        self.wait(self.client.batch_execute(sql))
    }

    /// What the server remarked on the statements since this was asked last.
    pub(crate) fn remarks(&mut self) -> Vec<DbError> {
        std::iter::from_fn(|| self.remarks.try_recv().ok()).collect()
    }

    /// A transaction, begun with its first statement.
    pub(crate) fn begin(&mut self, begin: Begin) -> SessionTx<'_> {
        SessionTx { begin: Some(begin.text()), ..self.alone() }
    }

    /// A transaction in which what is posted waits for the next statement that is waited for.
    pub(crate) fn begin_posting(&mut self, begin: Begin) -> SessionTx<'_> {
        SessionTx { posts: Some(Posts::default()), ..self.begin(begin) }
    }

    /// Statements outside of a transaction, each for itself.
    pub(crate) fn alone(&mut self) -> SessionTx<'_> {
        SessionTx { session: self, begin: None, posts: None, refusal: None }
    }

    /// Runs a future of the client within the session's bound.
    fn wait<T>(&self, future: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Refusal> {
        let bounded = async { tokio::time::timeout(self.bound, future).await };
        match self.runtime.block_on(bounded) {
            Ok(outcome) => outcome.map_err(|error| refusal::judge(&error, &self.place)),
            Err(_) => Err(self.silent()),
        }
    }

    fn silent(&self) -> Refusal {
        let error = refusal::lost(&self.place, format!("the server has not answered for {:?}", self.bound));
        Refusal { error, fate: Fate::Lost }
    }

    fn prepare(&mut self, statement: Statement) -> Result<tokio_postgres::Statement, Refusal> {
        if let Some(prepared) = self.prepared.get(statement.sql) {
            return Ok(prepared.clone());
        }
        let prepared = self.wait(self.client.prepare(&for_postgres(statement.sql)))?;
        self.prepared.insert(statement.sql, prepared.clone());
        Ok(prepared)
    }
}

/// The client's own settings, with the name that the server shows of it.
pub(crate) fn configure(place: &Place) -> Config {
    let mut config = place.address.config.clone();
    if config.get_application_name().is_none() {
        config.application_name(&place.label);
    }
    config
}

async fn dial(place: &Place, tell: mpsc::Sender<DbError>) -> Result<Client, tokio_postgres::Error> {
    let config = configure(place);
    // The connection is a task of the session's own runtime, which runs whenever the session waits for something.
    match &place.tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            tokio::spawn(drive(connection, tell));
            Ok(client)
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(drive(connection, tell));
            Ok(client)
        }
    }
}

async fn drive<S, T>(mut connection: Connection<S, T>, mut tell: mpsc::Sender<DbError>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            // Where nobody reads them, the first ones are kept.
            Ok(AsyncMessage::Notice(remark)) => drop(tell.try_send(remark)),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection ended");
                return;
            }
        }
    }
}

/// What holds for every statement of a session.
fn settings(place: &Place, purpose: Purpose) -> String {
    let millis = |bound: Duration| bound.as_millis().clamp(1, 2_147_483_647);
    let lock = millis(place.busy_bound);
    // A commit that waits for a standby must not be cut short: the server would answer that it was done.
    let statement = if purpose == Purpose::Read { millis(READ_BOUND) } else { 0 };
    // Whoever stops in the middle must not keep others from the rows that it locked.
    let idle = (lock / 2).max(1_000);
    let read_only = if place.read_only { "SET default_transaction_read_only = on;" } else { "" };
    // Said in every session: each may be on another server, and a server's own setting may change while it lasts.
    let commit = "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)
        WHERE pg_catalog.current_setting('synchronous_commit') IN ('on', 'off')";
    format!(
        "SET search_path = \"{schema}\", pg_temp; SET statement_timeout = {statement}; SET lock_timeout = {lock};
         SET idle_in_transaction_session_timeout = {idle}; SET client_min_messages = warning;
         SET client_connection_check_interval = 10000; SET jit = off; {read_only} {commit}",
        schema = place.address.schema
    )
}

/// A transaction of a session. Once a statement has failed nothing more is sent, and it can't be committed.
pub(crate) struct SessionTx<'a> {
    session: &'a mut Session,
    /// Sent together with the first statement.
    begin: Option<&'static str>,
    /// What is posted, where that is allowed.
    posts: Option<Posts>,
    refusal: Option<Refusal>,
}

/// What was said to have been done and is not known yet.
#[derive(Default)]
struct Posts {
    waiting: Vec<Posted>,
    /// Whether anything was ever posted in this transaction.
    any: bool,
    left: Left,
}

/// A statement that must change one row.
struct Posted {
    statement: tokio_postgres::Statement,
    args: Vec<Owned>,
    name: &'static str,
}

impl SessionTx<'_> {
    /// What a failed statement makes of the transaction.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Whether something was said to be done before it was known.
    pub(crate) fn has_posted(&self) -> bool {
        self.posts.as_ref().is_some_and(|posts| posts.any)
    }

    /// Sends what is posted and waits for its answers.
    pub(crate) fn settle(&mut self) -> Result<(), Refusal> {
        let Some(posted) = self.take_posted() else { return Ok(()) };
        let session = &*self.session;
        let bounded = async { tokio::time::timeout(session.bound, send_all(session, posted)).await };
        let outcome = session.runtime.block_on(bounded).unwrap_or_else(|_| Err(session.silent()));
        outcome.inspect_err(|refusal| self.refusal = Some(refusal.clone()))
    }

    /// Commits what a transaction in which nothing failed has written, and which has been settled.
    pub(crate) fn commit(self) -> Committed {
        if let Some(refusal) = self.refusal {
            return Committed::No(refusal);
        }
        if self.begin.is_some() {
            return Committed::Yes;
        }
        let session = self.session;
        let bounded = async { tokio::time::timeout(session.bound, session.client.batch_execute("COMMIT")).await };
        match session.runtime.block_on(bounded) {
            Ok(Ok(())) => Committed::Yes,
            Ok(Err(error)) if refusal::is_certain(&error) => Committed::No(refusal::judge(&error, &session.place)),
            Ok(Err(error)) => {
                let detail = refusal::judge(&error, &session.place).error.to_string();
                Committed::Unknown(refusal::unanswered(&session.place, &detail))
            }
            Err(_) => Committed::Unknown(refusal::unanswered(&session.place, &session.silent().error.to_string())),
        }
    }

    /// Ends the transaction without a trace; says whether the connection is still there.
    pub(crate) fn roll_back(self) -> bool {
        match &self.refusal {
            Some(refusal) if refusal.fate == Fate::Lost => false,
            _ if self.begin.is_some() => true,
            _ => self.session.batch("ROLLBACK").is_ok(),
        }
    }

    fn run(
        &mut self,
        statement: Statement,
        args: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<usize> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.error.clone());
        }
        self.send(statement, args, visit).map_err(|failed| match failed {
            Failed::Here(error) => error,
            Failed::There(refusal) => self.refusal.insert(refusal).error.clone(),
        })
    }

    fn send(
        &mut self,
        statement: Statement,
        args: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<usize, Failed> {
        let prepared = self.session.prepare(statement)?;
        let (begin, posted) = (self.begin.take(), self.take_posted().unwrap_or_default());
        let session = &*self.session;
        let (client, place) = (&session.client, &session.place);
        let bounded = async {
            let query = client.query_raw(&prepared, args.iter().copied());
            // One after the other on the wire, and one wait for all answers.
            let rows = match begin {
                Some(begin) => {
                    let (begun, rows) = join(client.batch_execute(begin), query).await;
                    begun.and(rows)
                }
                None if posted.is_empty() => query.await,
                None => {
                    let (settled, rows) = join(send_all(session, posted), query).await;
                    settled?;
                    rows
                }
            };
            visit_rows(rows, statement, place, visit).await
        };
        let bounded = async { tokio::time::timeout(self.session.bound, bounded).await };
        session.runtime.block_on(bounded).unwrap_or_else(|_| Err(Failed::There(session.silent())))
    }

    fn take_posted(&mut self) -> Option<Vec<Posted>> {
        if self.refusal.is_some() {
            return None;
        }
        let posts = self.posts.as_mut()?;
        (!posts.waiting.is_empty()).then(|| std::mem::take(&mut posts.waiting))
    }
}

/// Sends statements one after the other, then waits for the answers.
async fn send_all(session: &Session, posted: Vec<Posted>) -> Result<(), Refusal> {
    let send = async |it: &Posted| {
        let values: Vec<Value<'_>> = it.args.iter().map(Owned::value).collect();
        session.client.execute_raw(&it.statement, values).await
    };
    let mut answers: Vec<_> = posted.iter().map(|it| Box::pin(maybe_done(send(it)))).collect();
    // A statement is on its way when it is first polled.
    poll_fn(|context| {
        for answer in &mut answers {
            let _: Poll<()> = answer.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    let mut failed = None;
    for (answer, it) in answers.iter_mut().zip(&posted) {
        answer.as_mut().await;
        let refusal = match answer.as_mut().take_output() {
            Some(Ok(1)) => None,
            Some(Err(error)) => Some(refusal::judge(&error, &session.place)),
            Some(Ok(_)) | None => Some(unexpected(it.name)),
        };
        // What comes after the first one fails because of it.
        failed = failed.or(refusal);
    }
    failed.map_or(Ok(()), Err)
}

/// The answer to a posted statement that did not find what it expected.
fn unexpected(name: &str) -> Refusal {
    let found = format!("{name} did not find the row as it was known");
    let error = Error::Conflict { what: "state", expected: "what was known before".to_owned(), found };
    Refusal { error, fate: Fate::Again }
}

/// Where a statement failed.
enum Failed {
    /// In what was made of its rows; the transaction is whole.
    Here(Error),
    /// In the server, or on the way to it.
    There(Refusal),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::There(refusal)
    }
}

async fn visit_rows(
    rows: Result<RowStream, tokio_postgres::Error>,
    statement: Statement,
    place: &str,
    visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
) -> Result<usize, Failed> {
    let mut rows = pin!(rows.map_err(|error| refusal::judge(&error, place))?);
    while let Some(row) = rows.next().await {
        let row = row.map_err(|error| refusal::judge(&error, place))?;
        let row = Row { columns: &row, statement: statement.name };
        if visit(&row).map_err(Failed::Here)?.is_break() {
            // What is left is read and dropped before the next answer.
            return Ok(0);
        }
    }
    Ok(usize::try_from(rows.rows_affected().unwrap_or(0)).unwrap_or(usize::MAX))
}

impl Tx for SessionTx<'_> {
    fn execute(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<usize> {
        self.run(statement, args, &mut |_| Ok(ControlFlow::Continue(())))
    }

    fn query(
        &mut self,
        statement: Statement,
        args: &[Value<'_>],
        visit: &mut dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.run(statement, args, visit).map(drop)
    }

    fn post(&mut self, statement: Statement, args: &[Value<'_>]) -> Result<bool> {
        if self.posts.is_none() || self.begin.is_some() || self.refusal.is_some() {
            return Ok(self.execute(statement, args)? == 1);
        }
        let prepared = self.session.prepare(statement);
        let prepared = prepared.map_err(|refusal| self.refusal.insert(refusal).error.clone())?;
        if let Some(posts) = &mut self.posts {
            posts.any = true;
            let args = args.iter().copied().map(Owned::from).collect();
            posts.waiting.push(Posted { statement: prepared, args, name: statement.name });
        }
        Ok(true)
    }

    fn left(&mut self) -> Option<&mut Left> {
        self.posts.as_mut().map(|posts| &mut posts.left)
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn clock(&mut self) -> Result<Option<i64>> {
        crate::db::query_one(self, CLOCK, &[], |row| row.int(0))
    }

    fn bytes_on_disk(&mut self) -> Result<Option<i64>> {
        crate::db::query_one(self, BYTES, &[], |row| row.int(0))
    }
}

impl Columns for tokio_postgres::Row {
    fn value(&self, column: usize) -> Result<Value<'_>> {
        let damaged = |detail: String| Error::corrupt(format!("column {column}"), detail);
        let kind = self.columns().get(column).map(tokio_postgres::Column::type_);
        let value = match kind {
            Some(&Type::INT8) => self.try_get::<_, Option<i64>>(column).map(Value::from),
            Some(&Type::INT4) => self.try_get::<_, Option<i32>>(column).map(|value| value.map(i64::from).into()),
            Some(&Type::TEXT) => self.try_get::<_, Option<&str>>(column).map(Value::from),
            Some(&Type::BYTEA) => self.try_get::<_, Option<&[u8]>>(column).map(Value::from),
            Some(other) => return Err(damaged(format!("a value of type {other} is stored"))),
            None => return Err(damaged("it is not there".to_owned())),
        };
        value.map_err(|error| damaged(error.to_string()))
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(value) => value.to_sql(kind, out),
            Value::Text(text) => text.to_sql(kind, out),
            Value::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}
