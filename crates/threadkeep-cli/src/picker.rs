//! Picking a thread at a terminal: titles are matched while one types, and items are searched behind it.

mod fuzzy;
mod line;
mod screen;
mod state;
mod terminal;
mod work;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;
use threadkeep::blocking::Threads;

use self::state::{Effect, Event, State};
use self::terminal::Taken;
use self::work::News;
use crate::errors::{Code, Failure, Report};
use crate::views::Views;

pub(crate) use self::state::Choice;

/// What is picked from.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// The threads.
    pub(crate) threads: Threads,
    /// Whether threads in the trash are searched too.
    pub(crate) trashed: bool,
    /// How items are read.
    pub(crate) views: Arc<Views>,
}

/// Lets a person pick; `None` when they leave. The terminal is given back before this returns.
pub(crate) fn pick(scope: &Scope, query: &str) -> Result<Option<Choice>, Failure> {
    let mut terminal = Taken::take()?;
    let (tell, news) = channel();
    work::watch_signals(tell.clone())?;
    work::read_keys(tell.clone());
    work::list(scope.clone(), tell.clone());
    let asked = work::search(scope.clone(), tell.clone());
    let begun = Instant::now();
    let mut state = State::new(query, terminal::size(), begun.elapsed());
    let outcome = converse(&mut state, &mut terminal, &news, &asked, begun);
    drop(terminal);
    match outcome? {
        Ending::Chosen(choice) => Ok(Some(choice)),
        Ending::Left => Ok(None),
        Ending::Signal(signal) => {
            // The terminal is given back: now the signal does what it does to every program.
            let _ = emulate_default_handler(signal);
            Ok(None)
        }
    }
}

enum Ending {
    Chosen(Choice),
    Left,
    Signal(i32),
}

/// Goes on until something ends it.
fn converse(
    state: &mut State,
    terminal: &mut Taken,
    news: &Receiver<News>,
    asked: &Sender<(u64, String)>,
    begun: Instant,
) -> Result<Ending, Failure> {
    loop {
        terminal.draw(state)?;
        let mut next = Some(wait(state, news, begun)?);
        // What came meanwhile is drawn together.
        while let Some(came) = next {
            let event = match came {
                News::Event(event) => event,
                News::Signal(signal) => return Ok(Ending::Signal(signal)),
                News::Failed(failure) => return Err(failure),
                News::Broken => return Err(Report::new(Code::NotDone, "backend", "the picker broke").into()),
            };
            match state.on(event, begun.elapsed()) {
                None => {}
                Some(Effect::Choose(choice)) => return Ok(Ending::Chosen(choice)),
                Some(Effect::Leave) => return Ok(Ending::Left),
                Some(Effect::Redraw) => terminal.clear()?,
                Some(Effect::Suspend) => terminal.without(|| {
                    let _ = emulate_default_handler(SIGTSTP);
                })?,
                Some(Effect::Search { search, text }) => {
                    // Who searches ends only with the picker, or says that it broke.
                    let _ = asked.send((search, text));
                }
            }
            next = news.try_recv().ok();
        }
    }
}

fn wait(state: &State, news: &Receiver<News>, begun: Instant) -> Result<News, Failure> {
    let broken = || Failure::from(Report::new(Code::NotDone, "backend", "the picker broke"));
    let Some(due) = state.due() else { return news.recv().map_err(|_| broken()) };
    match news.recv_timeout(due.saturating_sub(begun.elapsed())) {
        Ok(news) => Ok(news),
        Err(RecvTimeoutError::Timeout) => Ok(News::Event(Event::Due)),
        Err(RecvTimeoutError::Disconnected) => Err(broken()),
    }
}
