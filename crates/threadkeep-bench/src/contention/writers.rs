//! A process of writers: how it is started and heard, and what it does.
//!
//! It says `R` when it is ready, waits for a word, says `E` when its writers have ended, then `B` with the number of appends
//! that were refused as busy and `W` with the nanoseconds of each wait, and stays until nobody listens to it any more.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{Durability, StoreOptions, ThreadId};

use crate::appends::append;
use crate::bare::{self, Hand, RowData};
use crate::text::Writer;
use crate::{Error, Result};

/// How long SQLite waits for a lock before it gives up; a writer of the floor then asks again.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many different items a writer has, one after the other.
const ITEMS: usize = 64;

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The store.
    Ours,
    /// A store that commits one by one: a connection for each writer, one transaction for each append with the statements of
    /// ours, the writers of a process one after the other, and SQLite's busy timeout between processes.
    Floor,
}

impl Side {
    /// The word for it on a command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Floor => "floor",
        }
    }
}

/// A process of writers that was started.
#[derive(Debug)]
pub struct Process {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the `number`th process, which gets as many threads of the store as it has writers.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(
        program: &Path,
        side: Side,
        folder: &Path,
        number: usize,
        writers: usize,
        time: Duration,
    ) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg(side.word()).arg(folder);
        command.args([(number * writers).to_string(), writers.to_string(), time.as_millis().to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().ok_or("a process without an input")?;
        let output = BufReader::new(process.stdout.take().ok_or("a process without an output")?);
        Ok(Self { process, input, output })
    }

    /// Waits until its writers can begin.
    ///
    /// # Errors
    /// When it ends before that.
    pub fn ready(&mut self) -> Result<()> {
        self.hear("R").map(drop)
    }

    /// Lets its writers begin.
    ///
    /// # Errors
    /// When it has ended.
    pub fn go(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"\n")?)
    }

    /// Waits until its writers have ended.
    ///
    /// # Errors
    /// When it ends before that.
    pub fn ended(&mut self) -> Result<()> {
        self.hear("E").map(drop)
    }

    /// Hears how long each append waited, in seconds, and how many were refused as busy; then lets it end.
    ///
    /// # Errors
    /// When it ends badly.
    pub fn finish(mut self) -> Result<(Vec<f64>, usize)> {
        let busy = self.hear("B")?.parse()?;
        let waits = self.hear("W")?;
        let waits = waits.split_ascii_whitespace().map(|nanos| Ok(nanos.parse::<f64>()? * 1e-9));
        let waits = waits.collect::<Result<_>>()?;
        drop(self.input);
        let status = self.process.wait()?;
        if status.success() { Ok((waits, busy)) } else { Err(format!("a process of writers: {status}").into()) }
    }

    /// What it says after the word that must come now.
    fn hear(&mut self, word: &str) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let said = line.trim_end().strip_prefix(word);
        said.map(|rest| rest.trim_start().to_owned())
            .ok_or_else(|| format!("a process of writers said {line:?}").into())
    }
}

/// What a process of writers is told.
#[derive(Debug)]
struct Task {
    side: Side,
    folder: PathBuf,
    first: u64,
    writers: u64,
    time: Duration,
}

/// Plays a process of writers, as the words of its command line say.
///
/// # Errors
/// As the store and SQLite.
pub fn play(words: impl Iterator<Item = String>) -> Result<()> {
    let task = Task::parse(&words.collect::<Vec<_>>())?;
    match task.side {
        Side::Ours => {
            let store = Store::open(StoreOptions::folder(&task.folder))?;
            let lives = task.threads().map(|number| Ok(store.resume(&thread(number).parse::<ThreadId>()?, false)?));
            task.run(&lives.collect::<Result<Vec<LiveThread>>>()?, |live, start| {
                let mut items = Writer::new(0).items(ITEMS).into_iter().cycle();
                start.repeat(|| append(live, items.next(), Durability::Synced).map(|()| 0))
            })
        }
        Side::Floor => {
            let line = Mutex::new(());
            task.run(&task.threads().collect::<Vec<_>>(), |&number, start| {
                let connection = bare::open(&task.folder, false)?;
                connection.busy_timeout(BUSY_TIMEOUT)?;
                let mut hand = Hand::of(&connection, thread(number))?;
                let mut text = Writer::new(number);
                let mut rows = RowData::several(ITEMS, &mut text)?.into_iter().cycle();
                start.repeat(|| {
                    let row = rows.next().ok_or("no row is left")?.renewed(&mut text);
                    let _turn = line.lock().unwrap_or_else(PoisonError::into_inner);
                    stubbornly(|| hand.append(&row))
                })
            })
        }
    }
}

fn thread(number: u64) -> String {
    format!("thread-{number}")
}

/// Asks again as long as others have the lock; gives how often that was.
fn stubbornly(mut call: impl FnMut() -> Result<()>) -> Result<usize> {
    let mut busy = 0;
    loop {
        match call() {
            Err(error) if bare::is_busy(&error) => busy += 1,
            other => return other.map(|()| busy),
        }
    }
}

/// Where the writers of a process begin together.
struct Start {
    ready: Barrier,
    go: Barrier,
    time: Duration,
}

/// The waits of a writer in nanoseconds, and how often it was refused as busy.
type Waits = (Vec<u128>, usize);

impl Start {
    /// Calls again and again for the time of the round.
    fn repeat(&self, mut call: impl FnMut() -> Result<usize>) -> Result<Waits> {
        self.ready.wait();
        self.go.wait();
        let (begun, mut waits, mut busy) = (Instant::now(), Vec::new(), 0);
        while begun.elapsed() < self.time {
            let asked = Instant::now();
            busy += call()?;
            waits.push(asked.elapsed().as_nanos());
        }
        Ok((waits, busy))
    }
}

impl Task {
    fn parse(words: &[String]) -> Result<Self> {
        let [side, folder, first, writers, millis] = words else {
            return Err("expected SIDE FOLDER FIRST WRITERS MILLISECONDS".into());
        };
        let side = [Side::Ours, Side::Floor].into_iter().find(|known| known.word() == side);
        Ok(Self {
            side: side.ok_or("there is no such side")?,
            folder: folder.into(),
            first: first.parse()?,
            writers: writers.parse()?,
            time: Duration::from_millis(millis.parse()?),
        })
    }

    /// The threads that are written here.
    fn threads(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.writers
    }

    /// Has each writer write on a thread of its own.
    fn run<T: Sync>(&self, each: &[T], write: impl Fn(&T, &Start) -> Result<Waits> + Sync) -> Result<()> {
        let barrier = || Barrier::new(each.len() + 1);
        let start = Start { ready: barrier(), go: barrier(), time: self.time };
        let (mut waits, mut busy) = (Vec::new(), 0);
        std::thread::scope(|scope| -> Result<()> {
            let write = |one| write(one, &start).unwrap_or_else(|error| fail(&error));
            let threads: Vec<_> = each.iter().map(|one| scope.spawn(move || write(one))).collect();
            start.ready.wait();
            say("R")?;
            wait_for_a_word();
            start.go.wait();
            for thread in threads {
                let (mut more, refused) = thread.join().map_err(|_| "a writer ended badly")?;
                waits.append(&mut more);
                busy += refused;
            }
            Ok(())
        })?;
        say("E")?;
        say(format_args!("B {busy}"))?;
        let waits: Vec<String> = waits.iter().map(ToString::to_string).collect();
        say(format_args!("W {}", waits.join(" ")))?;
        // What is given up at the end is no part of the round.
        wait_for_a_word();
        Ok(())
    }
}

/// Ends the process at once: the other writers wait for this one.
fn fail(error: &Error) -> Waits {
    drop(say(format_args!("X {error}")));
    std::process::exit(3)
}

fn say(line: impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn wait_for_a_word() {
    // Without anybody there it goes on.
    drop(std::io::stdin().read(&mut [0]));
}
