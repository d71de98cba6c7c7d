//! Tells other stores on the server what this one has committed: after the commit and outside of it, for inside it would make
//! all commits of the server wait for each other.
//!
//! Nobody waits for it. The first is told at once, what comes soon after it together: a notification for each commit would
//! cost as much as the commits.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::concurrency::{Condvar, Mutex, MutexGuard, thread};
use crate::db::news::Touched;
use crate::db::postgres::Place;
use crate::db::postgres::session::{Purpose, Session};
use crate::db::{Statement, query_one};
use crate::error::{Error, Result};

/// How long is waited after each notification.
const GAP: Duration = Duration::from_millis(50);
/// How long is waited before a server that could not be told is told again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a store that is being closed still tries to tell.
const CLOSING_BOUND: Duration = Duration::from_secs(2);
/// What a notification may carry: below 8,000 bytes.
const MAX_PAYLOAD: usize = 7_900;
/// Between names, which hold none.
const SEPARATOR: &str = " ";
/// In the place of a name: what belongs to no thread. No thread's id begins so.
const BESIDE: &str = "+";

const NOTIFY: Statement = Statement { name: "NOTIFY", sql: "SELECT pg_catalog.pg_notify(?1, ?2)" };

/// The channel of a schema: short and plain, whatever the schema's name is.
pub(crate) fn channel(schema: &str) -> String {
    let hash = blake3::hash(schema.as_bytes()).to_hex();
    format!("threadkeep_{}", hash.get(..32).unwrap_or_default())
}

/// What a notification says. Anybody can send one, so what can't be read is anything.
pub(crate) fn read(payload: &str) -> impl Iterator<Item = Touched> {
    let names = payload.split(SEPARATOR);
    names.map(|name| match name {
        "" => Touched::Anything,
        BESIDE => Touched::Beside,
        name => Touched::Thread(name.to_owned()),
    })
}

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeSet<String>,
    /// How long the names are, with what stands between them.
    bytes: usize,
    /// More than fits, or it is not known what.
    anything: bool,
    /// Between two notifications nobody needs to be woken.
    resting: bool,
    closing: bool,
    ended: bool,
}

impl Told {
    /// Adds what was committed. Takes no longer than that.
    pub(crate) fn tell(&self, touched: &Touched) {
        let mut state = self.state();
        state.add(touched);
        let rests = state.resting;
        drop(state);
        if !rests {
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to tell; `None` when there will be nothing more.
    fn next(&self) -> Option<String> {
        let mut state = self.state();
        while state.is_empty() && !state.closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.is_empty()).then(|| state.take())
    }

    /// Lets more come together, for this long; says whether the store is still open.
    fn rest(&self, length: Duration) -> bool {
        let until = Instant::now() + length;
        let mut state = self.state();
        state.resting = true;
        while let Some(left) = left_until(until)
            && !state.closing
        {
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.resting = false;
        !state.closing
    }
}

impl State {
    fn add(&mut self, touched: &Touched) {
        let name = match touched {
            Touched::Thread(name) => Some(name.as_str()),
            Touched::Beside => Some(BESIDE),
            Touched::Anything => None,
        };
        match name {
            _ if self.anything => {}
            Some(name) if self.names.contains(name) => {}
            Some(name) if self.bytes + name.len() < MAX_PAYLOAD => {
                self.bytes += name.len() + 1;
                self.names.insert(name.to_owned());
            }
            _ => {
                self.anything = true;
                self.names.clear();
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.anything
    }

    /// All of it, as it is sent.
    fn take(&mut self) -> String {
        (self.anything, self.bytes) = (false, 0);
        std::mem::take(&mut self.names).into_iter().collect::<Vec<_>>().join(SEPARATOR)
    }
}

/// The thread that tells. Dropped, it tells what is left, within a bound.
#[derive(Debug)]
pub(crate) struct Teller(Arc<Told>);

impl Teller {
    pub(crate) fn start(place: Arc<Place>) -> Result<Self> {
        let told = Arc::new(Told::default());
        let serve = {
            let told = Arc::clone(&told);
            move || serve(&place, &told)
        };
        let thread = thread::Builder::new().name("threadkeep-teller".to_owned()).spawn(serve);
        thread.map_err(|error| Error::Backend { detail: format!("no thread that tells others: {error}") })?;
        Ok(Self(told))
    }

    pub(crate) fn told(&self) -> &Arc<Told> {
        &self.0
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let until = Instant::now() + CLOSING_BOUND;
        let mut state = self.0.state();
        state.closing = true;
        self.0.changed.notify_all();
        // Not for longer: they are hints, and who gets none looks by himself.
        while !state.ended
            && let Some(left) = left_until(until)
        {
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How long it is until then; `None` when it is over.
fn left_until(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

fn serve(place: &Place, told: &Told) {
    let channel = channel(&place.address.schema);
    let mut session = None;
    while let Some(payload) = told.next() {
        let sent = send(&mut session, place, &channel, &payload);
        if let Err(error) = &sent {
            tracing::debug!(%error, "others are not told what was committed");
            session = None;
            // What it was is not worth keeping.
            told.tell(&Touched::Anything);
        }
        if !told.rest(if sent.is_ok() { GAP } else { RETRY }) && sent.is_err() {
            break;
        }
    }
    told.state().ended = true;
    told.changed.notify_all();
}

/// Tells; on another connection when the one that there is has ended meanwhile.
fn send(session: &mut Option<Session>, place: &Place, channel: &str, payload: &str) -> Result<()> {
    if let Some(session) = session
        && notify(session, channel, payload).is_ok()
    {
        return Ok(());
    }
    let fresh = Session::connect(place, Purpose::Write).map_err(|(error, _)| error)?;
    // Its commits hold nothing that a disk must keep.
    fresh.batch("SET synchronous_commit = off").map_err(|refusal| refusal.error)?;
    notify(session.insert(fresh), channel, payload)
}

fn notify(session: &mut Session, channel: &str, payload: &str) -> Result<()> {
    query_one(&mut session.alone(), NOTIFY, &[channel.into(), payload.into()], |_| Ok(())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{MAX_PAYLOAD, State, channel, read};
    use crate::db::news::Touched;

    #[test]
    fn a_channel_has_a_plain_name_for_any_schema() {
        for schema in ["threadkeep", "Ünïcode \u{1f9f5} and spaces", &"x".repeat(63)] {
            let name = channel(schema);
            assert!(name.len() < 64 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        }
        assert_ne!(channel("a"), channel("b"));
    }

    #[test]
    fn what_does_not_fit_is_told_as_anything() {
        let mut state = State::default();
        let name = |number: usize| format!("{number:0>128}");
        (0..10).chain(0..10).for_each(|number| state.add(&Touched::Thread(name(number))));
        let payload = state.take();
        assert_eq!(read(&payload).collect::<Vec<_>>(), (0..10).map(|n| Touched::Thread(name(n))).collect::<Vec<_>>());
        assert!(state.is_empty());
        (0..1_000).for_each(|number| {
            state.add(&Touched::Thread(name(number)));
            assert!(state.bytes <= MAX_PAYLOAD + 1);
        });
        assert_eq!(read(&state.take()).collect::<Vec<_>>(), [Touched::Anything]);
        state.add(&Touched::Thread("a".to_owned()));
        state.add(&Touched::Anything);
        assert_eq!(state.take(), "");
        assert!(state.is_empty());
    }
}
