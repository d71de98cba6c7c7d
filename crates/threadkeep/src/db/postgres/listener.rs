//! Hears what other stores on the server tell: one connection, for as long as somebody waits for news.
//!
//! What is told while there is no connection is lost, so everybody looks when one is made and while none can be; and every few
//! seconds in any case, for where a pooler gives each transaction another session, nothing is heard and nobody says so.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{join, select};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

use crate::concurrency::{Mutex, thread};
use crate::db::news::{Board, Touched, Wire};
use crate::db::postgres::Place;
use crate::db::postgres::session::configure;
use crate::db::postgres::teller::{self, Told};
use crate::error::{Error, Result};

/// How often everybody looks though nothing was heard.
const CHECK: Duration = Duration::from_secs(5);
/// How long an answer of the server is waited for, before the connection is taken for dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often everybody looks while nothing can be heard.
const DEAF: Duration = Duration::from_millis(200);
/// The longest wait before another connection is tried.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// When a server that does not let anybody listen is asked again.
const REFUSED: Duration = Duration::from_secs(60);

/// The wire of a store on a server: the listener, and where its own news go.
#[derive(Debug)]
pub(crate) struct PostgresWire {
    place: Arc<Place>,
    told: Arc<Told>,
    /// Dropped to end the listener.
    listening: Mutex<Option<oneshot::Sender<Infallible>>>,
}

impl PostgresWire {
    pub(crate) fn new(place: Arc<Place>, told: Arc<Told>) -> Self {
        Self { place, told, listening: Mutex::new(None) }
    }
}

impl Wire for PostgresWire {
    fn open(&self, board: Weak<Board>) -> Result<()> {
        let (place, (stop, stopped)) = (Arc::clone(&self.place), oneshot::channel());
        let listen = move || listen(&place, &board, stopped);
        let thread = thread::Builder::new().name("threadkeep-listener".to_owned()).spawn(listen);
        thread.map_err(|error| Error::Backend { detail: format!("no thread for the listener: {error}") })?;
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        Ok(())
    }

    fn close(&self) {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn tell(&self, touched: &Touched) {
        self.told.tell(touched);
    }
}

/// Listens until it is told to stop, which it does at once, whatever it waits for.
fn listen(place: &Place, board: &Weak<Board>, stopped: oneshot::Receiver<Infallible>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "nothing can be heard of what others commit");
            return;
        }
    };
    runtime.block_on(select(pin!(join(keep_listening(place, board), look_in_any_case(board))), stopped));
    // Looking up a host's name can't be stopped.
    runtime.shutdown_background();
}

async fn look_in_any_case(board: &Weak<Board>) {
    while ring(board).is_some() {
        sleep(CHECK).await;
    }
}

async fn keep_listening(place: &Place, board: &Weak<Board>) {
    let channel = teller::channel(&place.address.schema);
    let order = format!("LISTEN {channel}");
    let mut pause = DEAF;
    loop {
        let (began, ended) = (tokio::time::Instant::now(), hear(place, board, &order).await);
        if let Err(error) = &ended {
            tracing::debug!(%error, "what others commit is not heard");
        }
        // After a connection that served, the next one is tried soon.
        pause = if began.elapsed() > CHECK { DEAF } else { LONGEST_PAUSE.min(pause * 2) };
        let is_refused =
            ended.is_err_and(|error| error.as_db_error().is_some_and(|said| is_about_listening(said.code())));
        let deaf_for = if is_refused { REFUSED } else { pause };
        let until = tokio::time::Instant::now() + deaf_for;
        while tokio::time::Instant::now() < until {
            if ring(board).is_none() {
                return;
            }
            sleep(DEAF).await;
        }
    }
}

/// Whether the server said that nobody can listen, as a standby does.
fn is_about_listening(code: &tokio_postgres::error::SqlState) -> bool {
    use tokio_postgres::error::SqlState;
    [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
    ]
    .contains(code)
}

/// Listens on one connection for as long as it lasts.
async fn hear(place: &Place, board: &Weak<Board>, order: &str) -> Result<(), tokio_postgres::Error> {
    let (client, mut ended) = dial(place, board).await?;
    client.batch_execute(order).await?;
    // What was told before is not heard.
    ring(board);
    while timeout(CHECK, &mut ended).await.is_err() {
        // Again each time: it shows whether the connection lives, and brings back what a pooler may have cleared away.
        match timeout(PATIENCE, client.batch_execute(order)).await {
            Ok(answer) => answer?,
            Err(_) => break,
        }
    }
    Ok(())
}

/// Connects; what is heard rings the board, and the end of the connection ends the receiver.
async fn dial(
    place: &Place,
    board: &Weak<Board>,
) -> Result<(Client, oneshot::Receiver<Infallible>), tokio_postgres::Error> {
    let (config, board, (alive, ended)) = (configure(place), Weak::clone(board), oneshot::channel());
    match &place.tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            tokio::spawn(drive(connection, board, alive));
            Ok((client, ended))
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(drive(connection, board, alive));
            Ok((client, ended))
        }
    }
}

async fn drive<S, T>(mut connection: Connection<S, T>, board: Weak<Board>, alive: oneshot::Sender<Infallible>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        let (AsyncMessage::Notification(said), Some(board)) = (message, board.upgrade()) else { continue };
        teller::read(said.payload()).for_each(|touched| board.ring(&touched));
    }
    drop(alive);
}

/// Wakes everybody; `None` when there is nobody any more.
fn ring(board: &Weak<Board>) -> Option<()> {
    board.upgrade().map(|board| board.ring(&Touched::Anything))
}
