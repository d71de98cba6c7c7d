//! `threadkeep take-over`

use std::time::{Duration, Instant};

use clap::Args;
use threadkeep::blocking::Store;
use threadkeep::{Error, ThreadId};

use super::App;
use crate::errors::{Failure, Outcome};

/// How often it is looked whether the holder has let go.
const LOOK: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep take-over 019a2284 --ask --wait 60      ask the holder to finish its turn, and wait a minute
  threadkeep take-over 019a2284 --reason 'it hangs'  fence the holder off, alive or not

The holder that is fenced off keeps running; its next write is refused, and it is told why.";

/// Free a thread from the program that is writing it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TakeOverArgs {
    /// The thread
    thread: String,
    /// Why; this is told in the thread
    #[arg(long, value_name = "WORDS", required_unless_present = "ask")]
    reason: Option<String>,
    /// Ask the holder to hand the thread over at the end of its turn, instead of taking it
    #[arg(long, conflicts_with = "reason")]
    ask: bool,
    /// With --ask: how many seconds to wait for that
    #[arg(long, value_name = "SECONDS", requires = "ask", default_value_t = 0)]
    wait: u64,
}

/// Takes over, or asks.
pub(super) fn run(args: &TakeOverArgs, app: &mut App) -> Outcome {
    let store = app.write()?;
    let id = store.find(&args.thread)?;
    let words = match &args.reason {
        Some(reason) => {
            // Taken only to be free: the next program that resumes the thread gets it at once.
            store.take_over(&id, reason, true)?.shutdown()?;
            "Taken over; the thread is free"
        }
        None => ask(&store, &id, Duration::from_secs(args.wait))?,
    };
    let thread = store.get(&id)?;
    app.changed(&store, &thread, words)
}

fn ask(store: &Store, id: &ThreadId, wait: Duration) -> Result<&'static str, Failure> {
    if !store.get(id)?.live {
        return Ok("Nobody holds it; the thread is free");
    }
    store.request_release(id)?;
    let began = Instant::now();
    loop {
        let thread = store.get(id)?;
        if !thread.live {
            return Ok("Handed over; the thread is free");
        }
        if began.elapsed() >= wait {
            return match thread.holder.filter(|_| !wait.is_zero()) {
                Some(holder) => Err(Error::ClaimHeld { thread: id.clone(), holder: Box::new(holder) }.into()),
                None => Ok("Asked for; the holder hands it over at the end of its turn"),
            };
        }
        std::thread::sleep(LOOK);
    }
}
