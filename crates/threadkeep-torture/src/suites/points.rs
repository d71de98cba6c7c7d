//! What the suites of injected faults share: one run with one fault on a copy of a store, and its judgement.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Result;
use crate::checker::{self, Depth};
use crate::child::{Child, SILENT};
use crate::oracle::{Journal, Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::suites::kills::hear_all;
use crate::suites::{Writing, kills};

/// A store as it was before the fault, and the account of it.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    plan: &'a Plan,
    folder: TempDir,
    journal: Journal,
    life: u64,
}

/// How a run under a fault ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What the process said.
    pub(crate) lines: Vec<String>,
    /// Whether it was killed.
    pub(crate) killed: bool,
    /// Whether it came to its end and had nothing to complain about at the end.
    pub(crate) finished: bool,
    /// Whether it was silent for longer than the bound.
    pub(crate) silent: bool,
}

impl Ended {
    /// Whether it wrote on to its end, with everything stored.
    pub(crate) fn resumed(&self) -> bool {
        self.lines.iter().any(|line| line == "F main")
    }

    /// Whether it never got a store to write: strace counts the calls of each thread, every attempt to open is a thread of its
    /// own, and so a fault that comes once comes in each of them.
    pub(crate) fn never_opened(&self) -> bool {
        self.lines.iter().all(|line| line.starts_with("W open") || line.starts_with("X open"))
    }
}

impl<'a> Bench<'a> {
    /// Prepares the store.
    pub(crate) fn new(plan: &'a Plan, threads: &[(&str, u64)]) -> Result<Self> {
        let folder = plan::fast_folder()?;
        let journal = kills::prepare(plan, &folder.path().join("template"), threads)?;
        Ok(Self { plan, folder, journal, life: 1 })
    }

    /// The place of the copy that is written.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("run").join("store")
    }

    /// The store as it was before.
    pub(crate) fn template(&self) -> PathBuf {
        self.folder.path().join("template")
    }

    /// Where strace writes.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// A folder for what is built.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A number that no writer had before.
    pub(crate) fn next_life(&mut self) -> u64 {
        self.life += 1;
        self.life
    }

    /// Runs a command on a fresh copy of the store; or where there was none, if the template is not wanted.
    pub(crate) fn run(&self, command: Command, with_store: bool) -> Result<Ended> {
        let template = if with_store { self.template() } else { self.folder.path().join("nothing") };
        let place = self.store();
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(|error| error.to_string())?;
        }
        crate::tools::fresh_copy(&template, &place)?;
        // A run without strace must not be judged by the log of the last one; usually there is one.
        std::fs::remove_file(self.log()).ok();
        let mut lines = Vec::new();
        match Child::start(command)?.finish_into(&mut lines) {
            Ok(status) => {
                Ok(Ended { killed: status.signal() == Some(9), finished: status.success(), silent: false, lines })
            }
            Err(words) if words == SILENT => Ok(Ended { killed: false, finished: false, silent: true, lines }),
            Err(words) => Err(words),
        }
    }

    /// Judges the copy by what the process said; then writes on in a fresh process, and judges again.
    pub(crate) fn judge(&mut self, life: u64, lines: &[String], tally: &mut Tally) {
        let mut journal = self.journal.clone();
        hear_all(&mut journal, life, lines);
        let depth = Depth { verify: true, integrity: true, ..Depth::default() };
        if checker::judge(self.plan, &self.store(), &mut journal, depth, tally).is_none() {
            return;
        }
        let next = self.next_life();
        let writing = Writing { lanes: "main=0", life: next, level: "synced", batches: 2, lie: false };
        match Child::start(writing.command(self.plan, &self.store())).and_then(Child::finish) {
            Ok((status, lines)) if status.success() => {
                hear_all(&mut journal, next, &lines);
                let depth = Depth { verify: true, ..Depth::default() };
                checker::judge(self.plan, &self.store(), &mut journal, depth, tally);
            }
            Ok((_, lines)) => {
                let last = lines.last().map_or("", String::as_str);
                tally.add(Rule::Misbehaved, format!("a fresh process can't go on: {last}"));
            }
            Err(words) => tally.add(if words == SILENT { Rule::Hang } else { Rule::Misbehaved }, words),
        }
    }
}

/// At most so many of the list, chosen by chance, in their order.
pub(crate) fn some_of<T>(list: Vec<T>, most: usize, random: &mut Random) -> Vec<T> {
    let mut places: Vec<usize> = (0..list.len()).collect();
    random.shuffle(&mut places);
    places.truncate(most);
    list.into_iter().enumerate().filter(|(place, _)| places.contains(place)).map(|(_, entry)| entry).collect()
}
