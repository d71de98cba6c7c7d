//! What the program says: words for people, documents for programs, bytes as they are.

use std::env;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};

use anstream::{AutoStream, ColorChoice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::Value;
use terminal_size::{Width, terminal_size};
use threadkeep::{Error, Page};

use crate::errors::{Failure, Report};
use crate::style::Ink;
use crate::text;

/// The width of lines where no terminal says one.
const DEFAULT_WIDTH: usize = 120;
/// Below this a table can't be read.
const MIN_WIDTH: usize = 40;

/// Standard output and standard error, with what is known of them.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    stdout: BufWriter<Stdout>,
    styled: bool,
    terminal: bool,
    width: usize,
}

impl Output {
    /// Looks at the streams.
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let styled = AutoStream::choice(&stdout) != ColorChoice::Never;
        Self { json, styled, terminal, width: line_width(), stdout: BufWriter::new(stdout) }
    }

    /// Whether documents are wanted and not words.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// How many columns a line has.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The text in a colour, where colours are wanted.
    pub(crate) fn paint(&self, ink: Ink, text: &str) -> String {
        ink.paint(text, self.styled)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        Ok(writeln!(self.stdout, "{line}")?)
    }

    /// Writes a whole document on a line of its own.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.stdout, value)?;
        Ok(writeln!(self.stdout)?)
    }

    /// Writes stored bytes: exactly as they are, but at a terminal without what could steer it.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.terminal {
            let words = String::from_utf8_lossy(bytes);
            return Ok(self.stdout.write_all(text::clean(&words).as_bytes())?);
        }
        Ok(self.stdout.write_all(bytes)?)
    }

    /// Hands everything on that was written so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.stdout.flush()?)
    }

    /// Whether whoever read the output has gone. What is written to a pipe would say so, too, but only when there is something.
    pub(crate) fn is_closed(&self) -> bool {
        let mut output = [PollFd::new(self.stdout.get_ref(), PollFlags::empty())];
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        poll(&mut output, Some(&Timespec::default()))
            .is_ok_and(|_| output.iter().any(|it| it.revents().intersects(gone)))
    }

    /// Writes a page as one document: its entries under a name, and the cursor of the next page.
    pub(crate) fn page<T>(&mut self, name: &str, page: &Page<T>, entry: impl Fn(&T) -> Value) -> Result<(), Failure> {
        let mut listing = self.listing(&[], name)?;
        page.entries.iter().try_for_each(|it| listing.push(&entry(it)))?;
        listing.finish(page.next_cursor.as_deref())
    }

    /// Begins a document that holds a list which may be long: it is written as it comes.
    pub(crate) fn listing(&mut self, before: &[(&str, Value)], name: &str) -> Result<Listing<'_>, Failure> {
        let mut start = vec![b'{'];
        for (key, value) in before {
            serde_json::to_writer(&mut start, key)?;
            start.push(b':');
            serde_json::to_writer(&mut start, value)?;
            start.push(b',');
        }
        serde_json::to_writer(&mut start, name)?;
        start.extend_from_slice(b":[");
        Ok(Listing { stdout: &mut self.stdout, start: Some(start) })
    }
}

/// A document whose list is being written. Nothing is written before its first entry, so that until then a failure is a
/// document of its own.
#[must_use = "the document is not complete before it is finished"]
pub(crate) struct Listing<'a> {
    stdout: &'a mut BufWriter<Stdout>,
    /// What stands before the first entry, until that is written.
    start: Option<Vec<u8>>,
}

impl Listing<'_> {
    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: &Value) -> Result<(), Failure> {
        match self.start.take() {
            Some(start) => self.stdout.write_all(&start)?,
            None => self.stdout.write_all(b",")?,
        }
        Ok(serde_json::to_writer(&mut *self.stdout, entry)?)
    }

    /// Completes the document.
    pub(crate) fn finish(self, next_cursor: Option<&str>) -> Result<(), Failure> {
        self.end(next_cursor, None)
    }

    /// Completes the document with what was in the way of the rest, so that what came before it can be read.
    pub(crate) fn fail(self, failure: Failure) -> Failure {
        match failure {
            Failure::Report(report) if self.start.is_none() => match self.end(None, Some(&report)) {
                Ok(()) => Failure::Told(report.code),
                Err(failure) => failure,
            },
            failure => failure,
        }
    }

    fn end(self, next_cursor: Option<&str>, report: Option<&Report>) -> Result<(), Failure> {
        self.stdout.write_all(&self.start.unwrap_or_default())?;
        self.stdout.write_all(b"],\"next_cursor\":")?;
        serde_json::to_writer(&mut *self.stdout, &next_cursor)?;
        if let Some(report) = report {
            self.stdout.write_all(b",\"error\":")?;
            serde_json::to_writer(&mut *self.stdout, &report.body())?;
        }
        Ok(self.stdout.write_all(b"}\n")?)
    }
}

/// Says something beside the output: on standard error, for people.
pub(crate) fn tell(ink: Ink, label: &str, words: &str) {
    let stderr = io::stderr();
    let styled = AutoStream::choice(&stderr) != ColorChoice::Never;
    let label = ink.paint(label, styled);
    // There is nobody left to tell when standard error is gone.
    let _ = writeln!(stderr.lock(), "{label}: {}", text::clean(words));
}

/// Tells a failure: as a document on standard output, or in words on standard error.
pub(crate) fn tell_report(output: &mut Output, report: &Report) {
    if output.is_json() {
        let _ = output.document(&report.document()).and_then(|()| output.flush());
        return;
    }
    tell(Ink::Bad, "error", &report.message);
    if let Some(hint) = &report.hint {
        tell(Ink::Hint, "hint", hint);
    }
}

/// Asks at a terminal whether something is meant; without one nobody can answer, which is a `refusal`.
pub(crate) fn confirm(question: &str, refusal: &str) -> Result<bool, Failure> {
    let mut stderr = io::stderr();
    if !(io::stdin().is_terminal() && stderr.is_terminal()) {
        return Err(Report::usage(refusal).hint("--yes says that it is meant").into());
    }
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| Error::Io {
        operation: "read",
        path: "the answer".to_owned(),
        kind: error.kind(),
        detail: error.to_string(),
    })?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn line_width() -> usize {
    let columns = || env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = terminal_size().map(|(Width(width), _)| usize::from(width)).or_else(columns);
    width.unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH)
}
