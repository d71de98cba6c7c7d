//! The PostgreSQL driver: a pool of plain threads, each with its own connection and its own prepared statements.
//!
//! Writes of one thread run in one worker at a time, in their order; others run beside them. What waits while all workers are
//! busy shares a transaction, as it does in SQLite. Nothing is acknowledged before its commit was answered. A transaction is
//! run again when others were in its way, and when the connection was lost before its commit was sent; after that only a
//! request that says that a second run finds out what the first one did.

pub(crate) mod address;
mod erasure;
pub(crate) mod fts;
mod listener;
pub(crate) mod look;
mod pool;
mod refusal;
mod schema;
mod session;
mod teller;
mod tls;

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::concurrency::thread;
use crate::db::migrations::Migration;
use crate::db::news::Board;
use crate::db::postgres::address::Address;
use crate::db::postgres::fts::PostgresIndex;
use crate::db::postgres::listener::PostgresWire;
use crate::db::postgres::pool::Pool;
use crate::db::postgres::session::{Purpose, Session};
use crate::db::postgres::teller::Teller;
use crate::db::{Driver, Erased, Order, Request, Terms};
use crate::error::{Error, Result};

/// How long to wait before a server that did not answer is asked again.
const RETRY_STEP: Duration = Duration::from_millis(50);

/// Where a store is, and how it is opened.
pub(crate) struct Place {
    pub(crate) address: Address,
    tls: Option<MakeRustlsConnect>,
    read_only: bool,
    busy_bound: Duration,
    label: String,
    migrations: &'static [Migration],
    now: i64,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("address", &self.address).finish_non_exhaustive()
    }
}

/// How a store is to be opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) address: Address,
    pub(crate) read_only: bool,
    pub(crate) busy_bound: Duration,
    pub(crate) label: String,
    pub(crate) migrations: &'static [Migration],
    pub(crate) now: i64,
}

/// The search index of the store at this place, by itself. Its tables have to be there when it is asked.
#[cfg(feature = "conformance")]
pub(crate) fn index_at(opening: Opening) -> Result<PostgresIndex> {
    Ok(PostgresIndex::new(Arc::new(Place::new(opening)?), None))
}

/// Opens a store, making its schema or bringing it forward where that is needed; gives what there is to know of the server.
pub(crate) fn open(opening: Opening) -> Result<(PostgresDriver, Vec<String>)> {
    let place = Place::new(opening)?;
    let mut opened = schema::open(&place)?;
    let is_indexed = fts::is_begun(&mut opened.session.alone())?;
    let place = Arc::new(place);
    let reads = Pool::new(Arc::clone(&place), Purpose::Read);
    let writes = Pool::new(Arc::clone(&place), Purpose::Write);
    writes.start_with(opened.session)?;
    let teller = Teller::start(Arc::clone(&place))?;
    let board = Board::with_wire(Box::new(PostgresWire::new(Arc::clone(&place), Arc::clone(teller.told()))));
    Ok((PostgresDriver { reads, writes, board: Arc::new(board), place, is_indexed, _teller: teller }, opened.notices))
}

impl Place {
    fn new(opening: Opening) -> Result<Self> {
        let address = &opening.address;
        let tls = || tls::connector(&address.certificate, address.identity.as_ref());
        let tls = address.may_encrypt().then(tls).transpose()?;
        Ok(Self {
            address: opening.address,
            tls,
            read_only: opening.read_only,
            busy_bound: opening.busy_bound,
            label: opening.label,
            migrations: opening.migrations,
            now: opening.now,
        })
    }

    /// Connects; waits only for a server that says that it will take the connection later. Of several servers another one may be
    /// about to take the first one's place.
    fn connect_at_once(&self) -> Result<Session> {
        let deadline = Instant::now() + self.busy_bound;
        if self.address.names_several() {
            return self.connect_until(Purpose::Write, deadline);
        }
        loop {
            match Session::connect(self, Purpose::Write) {
                Ok(session) => return Ok(session),
                Err((error @ (Error::Busy { .. } | Error::Io { kind: ErrorKind::NotConnected, .. }), true))
                    if Instant::now() < deadline =>
                {
                    tracing::debug!(%error, "waiting for the server");
                    thread::sleep(RETRY_STEP);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }

    /// Connects, waiting for a server that can't be reached for as long as it may come back.
    fn connect_until(&self, purpose: Purpose, deadline: Instant) -> Result<Session> {
        loop {
            match Session::connect(self, purpose) {
                Ok(session) => return Ok(session),
                Err((error, true)) if Instant::now() < deadline => {
                    tracing::debug!(%error, "waiting for the server");
                    thread::sleep(RETRY_STEP);
                }
                Err((error, _)) => return Err(error),
            }
        }
    }
}

/// The PostgreSQL driver.
#[derive(Debug)]
pub(crate) struct PostgresDriver {
    reads: Pool,
    /// After the reads, so that what was asked to be written is written while they end.
    writes: Pool,
    board: Arc<Board>,
    place: Arc<Place>,
    /// Whether the store had a search index when it was opened.
    is_indexed: bool,
    /// Last, so that it tells everything that was written.
    _teller: Teller,
}

impl PostgresDriver {
    /// The search index of the same store.
    pub(crate) fn index(&self) -> PostgresIndex {
        PostgresIndex::new(Arc::clone(&self.place), Some(self.is_indexed))
    }
}

impl Driver for PostgresDriver {
    fn submit_write(&self, request: Box<dyn Request>, terms: Terms) {
        self.writes.submit(request, terms);
    }

    fn submit_read(&self, request: Box<dyn Request>) {
        let terms = Terms { order: Order::Free, repeatable: true, ..crate::db::Sync::Written.into() };
        self.reads.submit(request, terms);
    }

    fn erase(&self, reply: oneshot::Sender<Result<Erased>>) {
        let place = Arc::clone(&self.place);
        let run = move || drop(reply.send(erasure::erase(&place)));
        if let Err(error) = thread::Builder::new().name("threadkeep-erase".to_owned()).spawn(run) {
            // The answer that never comes says that it did not happen.
            tracing::error!(%error, "no thread to erase with");
        }
    }

    fn tidy(&self, reply: oneshot::Sender<Result<()>>) {
        let place = Arc::clone(&self.place);
        let run = move || drop(reply.send(erasure::tidy(&place)));
        if let Err(error) = thread::Builder::new().name("threadkeep-tidy".to_owned()).spawn(run) {
            // The answer that never comes says that it did not happen.
            tracing::error!(%error, "no thread to tidy with");
        }
    }

    fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }
}
