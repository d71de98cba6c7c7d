//! T17: a store of an old schema is opened, and the program that brings it forward is killed, or its disk fails, at every system call.
//!
//! Whatever happens, the store is wholly the old one or wholly the new one, what was stored reads the same, whoever opens it next
//! brings it forward, and beside it lie whole copies of the old one or nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use tempfile::TempDir;

use super::points::some_of;
use super::syscalls::Digests;
use crate::Result;
use crate::checker::{self, Depth};
use crate::child::{Child, SILENT};
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::tools::{self, Injection};

/// A store of each schema that ever landed, as the text of its database.
const FIXTURES: &[(i64, &str)] = &[
    (1, include_str!("../../../threadkeep/tests/fixtures/schema-0001.sql")),
    (2, include_str!("../../../threadkeep/tests/fixtures/schema-0002.sql")),
    (3, include_str!("../../../threadkeep/tests/fixtures/schema-0003.sql")),
    (4, include_str!("../../../threadkeep/tests/fixtures/schema-0004.sql")),
    (5, include_str!("../../../threadkeep/tests/fixtures/schema-0005.sql")),
    (6, include_str!("../../../threadkeep/tests/fixtures/schema-0006.sql")),
    (7, include_str!("../../../threadkeep/tests/fixtures/schema-0007.sql")),
    (8, include_str!("../../../threadkeep/tests/fixtures/schema-0008.sql")),
    (9, include_str!("../../../threadkeep/tests/fixtures/schema-0009.sql")),
];
/// The threads in them that can be read.
const THREADS: [&str; 4] = ["tree", "fork", "cleared", "imported"];
const DATABASE: &str = "threadkeep.db";
const LOG: &str = "threadkeep.db-wal";
/// The calls by which files change.
const CALLS: &str =
    "openat,flock,unlink,mkdir,rename,pwrite64,write,ftruncate,fsync,fdatasync,copy_file_range,fchmod,mmap";
/// What fails: the call, its error, and whether it also fails for ever.
const FAULTS: [(&str, &str, bool); 6] = [
    ("pwrite64", "ENOSPC", true),
    ("pwrite64", "EIO", false),
    ("fsync", "EIO", false),
    ("fdatasync", "EIO", false),
    ("ftruncate", "EIO", false),
    ("rename", "ENOSPC", true),
];
/// What an error of a disk may be told as. The last one is a reader's who meets what the disk did not let be rolled back.
const KINDS: [&str; 4] = ["storage-full", "io", "busy", "read-only"];

/// What a database is made of: its tables, indexes and triggers, the steps on record, and the number in its header.
type Shape = (BTreeSet<(String, String)>, Vec<i64>, i64);

/// A store that is brought forward.
struct Subject {
    name: String,
    template: PathBuf,
    old: Shape,
    new: Shape,
    digests: Digests,
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    tools::need_strace()?;
    let suite = Suite { plan, folder: plan::fast_folder()? };
    let subjects = suite.subjects()?;
    let mut random = plan.random("upgrades");
    let (mut kills, mut faults) = (Vec::new(), Vec::new());
    for (place, subject) in subjects.iter().enumerate() {
        for (call, count) in suite.plain_run(subject)? {
            let fault = |what: &str, at, sticky| Injection { call: call.clone(), what: what.to_owned(), at, sticky };
            kills.extend((1..=count).map(|at| (place, fault("signal=SIGKILL", at, false))));
            for (_, error, for_ever) in FAULTS.iter().filter(|(name, ..)| *name == call) {
                let error = format!("error={error}");
                faults.extend((1..=count).map(|at| (place, fault(&error, at, false))));
                faults.extend((1..=count).filter(|_| *for_ever).map(|at| (place, fault(&error, at, true))));
            }
        }
    }
    outcome.figure("old stores", subjects.len());
    outcome.figure("calls that change files", kills.len());
    outcome.figure("calls that can fail", faults.len());
    let mut figures = Figures::default();
    let kills = some_of(kills, plan.pick(56, usize::MAX, usize::MAX), &mut random);
    let faults = some_of(faults, plan.pick(28, usize::MAX, usize::MAX), &mut random);
    for (place, fault) in kills.into_iter().chain(faults) {
        let Some(subject) = subjects.get(place) else { continue };
        let mut found = Tally::default();
        suite.point(subject, &fault, &mut figures, &mut found)?;
        outcome.tally.absorb(found, &format!("{}, {}", subject.name, fault.words()));
    }
    figures.tell(outcome);
    let Some(subject) = subjects.first() else { return Ok(()) };
    outcome.control("a store of which the schema was brought forward in part", suite.control(subject, true)?);
    outcome.control("a store of which nothing was, which must be told from it", !suite.control(subject, false)?);
    Ok(())
}

#[derive(Debug, Default)]
struct Figures {
    killed: u64,
    failed: u64,
    old: u64,
    new: u64,
    copies: u64,
}

impl Figures {
    fn tell(&self, outcome: &mut Outcome) {
        outcome.figure("killed", self.killed);
        outcome.figure("refused with an error", self.failed);
        outcome.figure("then the old store was there", self.old);
        outcome.figure("then the new one", self.new);
        outcome.figure("whole copies beside it", self.copies);
    }
}

struct Suite<'a> {
    plan: &'a Plan,
    folder: TempDir,
}

impl Suite<'_> {
    fn store(&self) -> PathBuf {
        self.folder.path().join("run").join("store")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Every old schema, as a program that ended left it and as one that was killed did; for some of them what comes out is known
    /// by a run without a fault.
    fn subjects(&self) -> Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        let newest = self.newest()?;
        let known: Vec<i64> = FIXTURES.iter().map(|(number, _)| *number).collect();
        if !(1..newest).all(|number| known.contains(&number)) {
            return Err(format!("the newest schema is {newest}, and the older ones that are tried are {known:?}"));
        }
        for (number, sql) in FIXTURES.iter().filter(|(number, _)| *number < newest) {
            for has_log in [false, true] {
                let name = format!("schema {number}{}", if has_log { " with a log" } else { "" });
                let template = self.folder.path().join(name.replace(' ', "-"));
                lay(sql, &template, has_log)?;
                let old = self.shape(&template)?;
                tools::fresh_copy(&template, &self.store())?;
                self.open(None)?;
                let new = self.shape(&self.store())?;
                let digests = self.digests()?;
                subjects.push(Subject { name, template, old, new, digests });
            }
        }
        Ok(subjects)
    }

    /// The number of the schema that this program makes.
    fn newest(&self) -> Result<i64> {
        tools::fresh_copy(Path::new("/nothing"), &self.store())?;
        self.open(None)?;
        Ok(self.shape(&self.store())?.2)
    }

    /// Has a process open the store, under a fault.
    fn open(&self, fault: Option<&Injection>) -> Result<(std::process::ExitStatus, Vec<String>)> {
        let mut inner = Command::new(&self.plan.program);
        inner.args(["scenario", "--name", "init", "--life", "1", "--store"]).arg(self.store());
        let command = match fault {
            None => inner,
            Some(fault) => tools::strace(&inner, None, &fault.call, Some(fault), &self.log()),
        };
        let (status, lines) = Child::start(command)?.finish()?;
        if fault.is_none() && !status.success() {
            return Err(format!("an old store can't be opened: {}", lines.last().map_or("", String::as_str)));
        }
        Ok((status, lines))
    }

    /// The calls that bringing it forward makes, with how often one thread makes each.
    fn plain_run(&self, subject: &Subject) -> Result<Vec<(String, u64)>> {
        tools::fresh_copy(&subject.template, &self.store())?;
        let mut inner = Command::new(&self.plan.program);
        inner.args(["scenario", "--name", "init", "--life", "1", "--store"]).arg(self.store());
        let traced = tools::strace(&inner, None, CALLS, None, &self.log());
        let (status, _) = Child::start(traced)?.finish()?;
        match status.success() {
            true => tools::counted_calls(&self.log()),
            false => Err(format!("{} can't be brought forward under strace", subject.name)),
        }
    }

    fn point(&self, subject: &Subject, fault: &Injection, figures: &mut Figures, tally: &mut Tally) -> Result<()> {
        tools::fresh_copy(&subject.template, &self.store())?;
        match self.open(Some(fault)) {
            Ok((status, _)) if status.success() => {}
            Ok((_, lines)) => match lines.iter().rev().find_map(|line| line.strip_prefix("X ")) {
                Some(words) => {
                    figures.failed += 1;
                    if !KINDS.iter().any(|kind| words.contains(&format!(": {kind}: "))) {
                        tally.add(Rule::Misbehaved, format!("an error of another kind: {words}"));
                    }
                }
                None => figures.killed += 1,
            },
            Err(words) if words == SILENT => tally.add(Rule::Hang, "the process"),
            Err(words) => return Err(words),
        }
        self.judge(subject, figures, tally);
        Ok(())
    }

    /// The store is the old one or the new one; it reads the same and comes forward; what lies beside it is whole.
    fn judge(&self, subject: &Subject, figures: &mut Figures, tally: &mut Tally) {
        match self.shape(&self.store()) {
            Ok(found) if found == subject.old => figures.old += 1,
            Ok(found) if found == subject.new => figures.new += 1,
            Ok((parts, ledger, header)) => {
                let found = format!("{} parts, ledger {ledger:?}, header {header}", parts.len());
                tally.add(Rule::Hole, format!("neither the old store nor the new one: {found}"));
            }
            Err(words) => tally.add(Rule::Altered, words),
        }
        match self.digests() {
            Ok(found) if found == subject.digests => {}
            Ok(_) => tally.add(Rule::Altered, "it reads otherwise"),
            Err(words) => tally.add(if words == SILENT { Rule::Hang } else { Rule::Altered }, words),
        }
        match self.shape(&self.store()) {
            Ok(found) if found == subject.new => {}
            _ => tally.add(Rule::Misbehaved, "who opened it next did not bring it forward"),
        }
        if let Err(words) = self.judge_copies(subject, figures) {
            tally.add(Rule::Altered, words);
        }
    }

    fn judge_copies(&self, subject: &Subject, figures: &mut Figures) -> Result<()> {
        let told = |error: std::io::Error| format!("the copies: {error}");
        let backups = self.store().join("backups");
        let entries = if backups.exists() { std::fs::read_dir(&backups).map_err(told)?.collect() } else { Vec::new() };
        for entry in entries {
            let path = entry.map_err(told)?.path();
            let alone = self.folder.path().join("copy");
            tools::fresh_copy(Path::new("/nothing"), &alone)?;
            std::fs::create_dir_all(&alone).map_err(told)?;
            std::fs::copy(&path, alone.join(DATABASE)).map_err(told)?;
            if self.shape(&alone).as_ref() != Ok(&subject.old) {
                return Err(format!("{} is no whole copy of the old store", path.display()));
            }
            figures.copies += 1;
        }
        Ok(())
    }

    fn digests(&self) -> Result<Digests> {
        let threads = THREADS.map(|thread| (thread.to_owned(), 0));
        let depth = Depth { verify: true, whole: true, integrity: true };
        let mut tally = Tally::default();
        let findings = checker::look(self.plan, &self.store(), &threads, depth, &mut tally);
        match (findings, tally.details().first()) {
            (Some(findings), None) if findings.digests.len() == THREADS.len() => Ok(findings.digests),
            (_, words) => Err(words.cloned().unwrap_or_else(|| "threads are missing".to_owned())),
        }
    }

    /// What the database of a store is made of; looked at in a copy, since whoever opens it brings it into order.
    fn shape(&self, store: &Path) -> Result<Shape> {
        let told = |error: rusqlite::Error| format!("the engine: {error}");
        let copy = self.folder.path().join("shape");
        tools::fresh_copy(store, &copy)?;
        let database = Connection::open(copy.join(DATABASE)).map_err(told)?;
        let whole: String = database.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(told)?;
        if whole != "ok" {
            return Err(format!("the engine: {whole}"));
        }
        let header = database.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(told)?;
        let parts = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master";
        let mut parts = database.prepare(parts).map_err(told)?;
        let parts = parts.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(told)?;
        let parts = parts.collect::<rusqlite::Result<_>>().map_err(told)?;
        let ledger = "SELECT number FROM schema_migrations ORDER BY number";
        let mut ledger = database.prepare(ledger).map_err(told)?;
        let ledger = ledger.query_map([], |row| row.get(0)).map_err(told)?;
        let ledger = ledger.collect::<rusqlite::Result<_>>().map_err(told)?;
        Ok((parts, ledger, header))
    }

    /// Whether a store is found out of which a part of the next schema was made.
    fn control(&self, subject: &Subject, in_part: bool) -> Result<bool> {
        tools::fresh_copy(&subject.template, &self.store())?;
        if in_part {
            let more = subject.new.0.difference(&subject.old.0).find(|(name, _)| name.starts_with("table "));
            let told = |error: rusqlite::Error| error.to_string();
            let database = Connection::open(self.store().join(DATABASE)).map_err(told)?;
            database.execute_batch(more.map_or("", |(_, sql)| sql)).map_err(told)?;
        }
        let mut tally = Tally::default();
        self.judge(subject, &mut Figures::default(), &mut tally);
        Ok(tally.count(Rule::Hole) > 0 && tally.count(Rule::Altered) > 0)
    }
}

/// Makes an old store from its text; with some of it in the log alone, as a killed program leaves it.
fn lay(sql: &str, folder: &Path, has_log: bool) -> Result<()> {
    let told = |error: rusqlite::Error| format!("an old store: {error}");
    let failed = |error: std::io::Error| format!("an old store: {error}");
    std::fs::create_dir_all(folder).map_err(failed)?;
    if !has_log {
        return Connection::open(folder.join(DATABASE)).and_then(|it| it.execute_batch(sql)).map_err(told);
    }
    let source = plan::fast_folder()?;
    let database = Connection::open(source.path().join(DATABASE)).map_err(told)?;
    database.execute_batch(sql).map_err(told)?;
    let late = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
        CREATE TEMP TABLE late AS SELECT * FROM facts; DELETE FROM facts; INSERT INTO facts SELECT * FROM late";
    database.execute_batch(late).map_err(told)?;
    for name in [DATABASE, LOG] {
        std::fs::copy(source.path().join(name), folder.join(name)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FIXTURES;

    #[test]
    fn every_fixture_is_of_the_schema_that_it_is_listed_as() {
        for (number, sql) in FIXTURES {
            assert!(sql.contains(&format!("PRAGMA user_version = {number};")), "{number}");
        }
    }
}
