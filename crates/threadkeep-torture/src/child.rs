//! Processes that the suites start, listen to and kill.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::Result;

/// Who says nothing for so long hangs. A write may wait thirty seconds for other processes and ten more for the engine.
pub(crate) const HANG: Duration = Duration::from_secs(45);

/// What a child that hangs is told by.
pub(crate) const SILENT: &str = "silent";

/// A child process with all that it starts; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Starts a command in a group of its own, so that what it starts is killed with it.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut process = command.spawn().map_err(|error| format!("{command:?} does not start: {error}"))?;
        let input = process.stdin.take();
        let output = process.stdout.take().ok_or("a child without an output")?;
        let (tell, lines) = channel();
        let listen = move || {
            let (mut output, mut line) = (BufReader::new(output), String::new());
            // A line without its end was cut by the kill: it was not said.
            while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
                if tell.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        };
        std::thread::spawn(listen);
        Ok(Self { process, input, lines })
    }

    /// The next line; `None` when the child has ended.
    pub(crate) fn hear(&self) -> Result<Option<String>> {
        match self.lines.recv_timeout(HANG) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(SILENT.to_owned()),
        }
    }

    /// Hears lines until one begins with the word; gives all of them.
    pub(crate) fn hear_until(&self, word: &str) -> Result<Vec<String>> {
        let mut heard = Vec::new();
        while let Some(line) = self.hear()? {
            let is_last = line.split(' ').next() == Some(word);
            heard.push(line);
            if is_last {
                return Ok(heard);
            }
        }
        Err(format!("a child ended before it said `{word}`: {}", heard.last().map_or("", String::as_str)))
    }

    /// Hears lines until one begins with the word; not for ever, since it may say others all the time. Says whether it came.
    pub(crate) fn listen(&self, word: &str, patience: Duration, lines: &mut Vec<String>) -> Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let Some(line) = self.hear()? else { return Ok(false) };
            let is_it = line.split(' ').next() == Some(word);
            lines.push(line);
            if is_it {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What it has said by now.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Lets it go on, where it waits for a word.
    pub(crate) fn go(&mut self) -> Result<()> {
        self.tell("")
    }

    /// Tells it a line.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("a child without an input")?;
        let told = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        told.map_err(|error| format!("a child does not listen: {error}"))
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal to it and to all that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended.
        kill_process_group(Pid::from_child(&self.process), signal).ok();
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        let gone = rustix::process::waitid(
            rustix::process::WaitId::Pid(Pid::from_child(&self.process)),
            rustix::process::WaitIdOptions::EXITED
                | rustix::process::WaitIdOptions::NOHANG
                | rustix::process::WaitIdOptions::NOWAIT,
        );
        matches!(gone, Ok(None))
    }

    /// Kills it with no chance to clean up, and gives what it still had said.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.end();
        self.lines.iter().collect()
    }

    /// Hears everything until it ends by itself.
    pub(crate) fn finish(self) -> Result<(ExitStatus, Vec<String>)> {
        let mut heard = Vec::new();
        let status = self.finish_into(&mut heard)?;
        Ok((status, heard))
    }

    /// The same, and what it said is kept though it hangs.
    pub(crate) fn finish_into(mut self, heard: &mut Vec<String>) -> Result<ExitStatus> {
        self.input = None;
        while let Some(line) = self.hear()? {
            heard.push(line);
        }
        let begun = Instant::now();
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if begun.elapsed() < HANG => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => return Err(SILENT.to_owned()),
                Err(error) => return Err(format!("a child can't be waited for: {error}")),
            }
        }
    }

    fn end(&mut self) {
        let group = Pid::from_child(&self.process);
        if matches!(self.process.try_wait(), Ok(None)) {
            // It may end by itself at this moment.
            kill_process_group(group, Signal::KILL).ok();
        }
        drop(self.process.wait());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says one line, in one write. When nobody listens any more the suite is gone, and so is this process.
pub(crate) fn say(line: impl Display) {
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(4);
    }
}

/// Has the system end this process with the one that started it: a suite that is interrupted leaves no writers behind.
pub(crate) fn end_with_parent() {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).ok();
}

/// What this process held in memory at most, in bytes.
pub(crate) fn most_memory() -> Result<u64> {
    let told = |error: std::io::Error| format!("the memory of a process: {error}");
    let status = std::fs::read_to_string("/proc/self/status").map_err(told)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the memory is not told")?;
    let kibibytes: u64 =
        line.trim().trim_end_matches(" kB").parse().map_err(|_| "the memory is told in other words")?;
    Ok(kibibytes << 10)
}
