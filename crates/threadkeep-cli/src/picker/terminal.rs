//! The terminal while the picker has it. It is given back as it was, whatever ends the picker.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, terminal};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;

use super::screen;
use super::state::State;
use crate::errors::{Code, Failure, Report};

/// The terminal that the process belongs to, whatever its streams are.
const TERMINAL: &str = "/dev/tty";

/// Whether it is taken. A panic on any thread gives it back before it says its words.
static TAKEN: AtomicBool = AtomicBool::new(false);
static GIVES_BACK_ON_PANIC: Once = Once::new();

/// The terminal, taken. It is given back when this is dropped.
pub(super) struct Taken {
    drawn: Terminal<CrosstermBackend<File>>,
}

impl Taken {
    /// Takes the terminal that the person sits at. What is written to standard output is not for it.
    pub(super) fn take() -> Result<Self, Failure> {
        // One that belongs to the process, but that nobody shows it to, is not for it to draw on.
        if !io::stdin().is_terminal() && !io::stderr().is_terminal() {
            return Err(no_terminal("neither standard input nor standard error is one"));
        }
        if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            return Err(no_terminal("TERM says that nothing can be drawn on it"));
        }
        let file = open().map_err(|error| no_terminal(&format!("{TERMINAL}: {error}")))?;
        GIVES_BACK_ON_PANIC.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        enter()?;
        let drawn = Terminal::new(CrosstermBackend::new(file)).inspect_err(|_| give_back())?;
        Ok(Self { drawn })
    }

    /// Draws what the picker knows.
    pub(super) fn draw(&mut self, state: &State) -> Result<(), Failure> {
        let now = crate::commands::now();
        self.drawn.draw(|frame| screen::draw(frame, state, now))?;
        Ok(())
    }

    /// Draws everything anew the next time.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        // `clear` would ask the terminal where its cursor is, and whoever waits for keys would get the answer.
        let (columns, rows) = size();
        Ok(self.drawn.resize(Rect::new(0, 0, columns, rows))?)
    }

    /// Gives the terminal back, runs something, and takes it again.
    pub(super) fn without(&mut self, run: impl FnOnce()) -> Result<(), Failure> {
        give_back();
        run();
        enter()?;
        self.clear()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// How large the terminal is.
pub(super) fn size() -> (u16, u16) {
    terminal::size().unwrap_or((80, 24))
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(TERMINAL)
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let entered = open().and_then(|mut file| execute!(file, EnterAlternateScreen, EnableBracketedPaste));
    entered.inspect_err(|_| give_back())
}

/// Gives it back, once.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Where it is gone there is nothing to give back.
    if let Ok(mut file) = open() {
        let _ = execute!(file, DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = file.flush();
    }
    let _ = disable_raw_mode();
}

fn no_terminal(why: &str) -> Failure {
    let report = Report::new(Code::NotDone, "no-terminal", format!("there is no terminal to pick at: {why}"));
    report.hint("`threadkeep search WORDS --json` and `threadkeep list --json` are for programs").into()
}
