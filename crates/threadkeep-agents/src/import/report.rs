//! What an import found, in counts that add up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use threadkeep::{SourceStamp, ThreadId};

use super::companions::CompanionCounts;
use super::files::{Found, Origin};

/// So many problems of one file are told one by one.
const MAX_PROBLEMS: usize = 1_000;

/// The report of an import. `items.read = items.imported + items.unchanged + items.skipped`, counted in records of the
/// files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Files.
    pub files: FileCounts,
    /// Threads.
    pub threads: ThreadCounts,
    /// Records.
    pub items: ItemCounts,
    /// What stands beside conversations.
    #[serde(skip_serializing_if = "CompanionCounts::is_empty")]
    pub companions: CompanionCounts,
    /// Everything that is wrong with the files, by file and line; of a file with more than 1,000 such lines the first ones, and how
    /// many more there are.
    pub problems: Vec<Problem>,
    /// The sources that could not be imported, by the names that the store knows them by.
    #[serde(skip)]
    pub failures: Vec<String>,
    /// Files of which something was read and more waits: a last line without an end, which the next import takes when it
    /// has one.
    #[serde(skip)]
    pub waiting: Vec<Waiting>,
    /// The files that could not be imported.
    #[serde(skip)]
    pub failed: Vec<PathBuf>,
    /// Whether it was stopped before it came to the last file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The threads that got items.
    #[serde(skip)]
    pub changed: Vec<ThreadId>,
    /// What was counted of each thread: several files may belong to one.
    #[serde(skip)]
    counted: BTreeMap<ThreadId, Fate>,
}

/// What an import has done with a thread; of one that several files belong to the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Unchanged,
    Updated,
    New,
}

/// A file that ends in the middle of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The file.
    pub file: String,
    /// The line, from 1; a problem says the same of it.
    pub line: u64,
    /// How many bytes stand there without an end.
    pub bytes: u64,
}

/// Counts of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileCounts {
    /// Files that were read.
    pub read: u64,
    /// Files that are the same as when they were last read.
    pub unchanged: u64,
    /// Files that could not be imported; nothing of them was lost that was stored before.
    pub failed: u64,
}

/// Counts of threads, each once however many files belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ThreadCounts {
    /// Threads that were made.
    pub new: u64,
    /// Threads that got new items.
    pub updated: u64,
    /// Threads that got none.
    pub unchanged: u64,
}

/// Counts of records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ItemCounts {
    /// Records in all files.
    pub read: u64,
    /// Records that were stored.
    pub imported: u64,
    /// Records that were stored before.
    pub unchanged: u64,
    /// Records that can't be read; their bytes are stored all the same, and a problem says why.
    pub skipped: u64,
    /// Parts of files that something else was stored of, because of secrets in them or for another reason that the store was
    /// opened with. Not a part of the sum: they are among the others.
    #[serde(skip_serializing_if = "is_zero")]
    pub masked: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
}

/// What importing one file came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) items: ItemCounts,
    pub(super) companions: CompanionCounts,
    pub(super) new_thread: bool,
    problems: Vec<Problem>,
    /// How many more there are than are told, since the last one of them.
    untold: u64,
    pub(super) thread: Option<ThreadId>,
    pub(super) waiting: Option<Waiting>,
}

impl Outcome {
    /// Notes what is wrong with a line. Of a file with very many such lines the first are told, and how many there are.
    pub(super) fn problem(&mut self, file: &str, line: u64, reason: String) {
        let mut problem = Problem { file: file.to_owned(), line, reason };
        if self.problems.len() >= MAX_PROBLEMS {
            self.untold += 1;
            let more = if self.untold == 1 {
                "one more is wrong".to_owned()
            } else {
                format!("{} more are wrong", self.untold)
            };
            problem.reason = format!("{more}, this one the last: {}", problem.reason);
            self.problems.truncate(MAX_PROBLEMS);
        }
        self.problems.push(problem);
    }
}

impl ThreadCounts {
    fn of(&mut self, fate: Fate) -> &mut u64 {
        match fate {
            Fate::Unchanged => &mut self.unchanged,
            Fate::Updated => &mut self.updated,
            Fate::New => &mut self.new,
        }
    }
}

impl ImportReport {
    pub(super) fn unchanged(&mut self, stamp: &SourceStamp) {
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        self.files.unchanged += 1;
        if let Some(thread) = &stamp.thread {
            self.thread(thread, Fate::Unchanged);
        }
        self.items.read += count(stamp.records);
        self.items.skipped += count(stamp.skipped);
        self.items.unchanged += count(stamp.records - stamp.skipped);
    }

    /// Adds what another import found; each is of other files.
    pub fn add_report(&mut self, other: &Self) {
        let (files, threads, items) = (&other.files, &other.threads, &other.items);
        self.files.read += files.read;
        self.files.unchanged += files.unchanged;
        self.files.failed += files.failed;
        self.threads.new += threads.new;
        self.threads.updated += threads.updated;
        self.threads.unchanged += threads.unchanged;
        for (thread, fate) in &other.counted {
            let counted = self.threads.of(*fate);
            *counted = counted.saturating_sub(1);
            self.thread(thread, *fate);
        }
        self.items.read += items.read;
        self.items.imported += items.imported;
        self.items.unchanged += items.unchanged;
        self.items.skipped += items.skipped;
        self.items.masked += items.masked;
        self.problems.extend_from_slice(&other.problems);
        self.waiting.extend_from_slice(&other.waiting);
        self.failed.extend_from_slice(&other.failed);
        self.stopped |= other.stopped;
        self.changed.extend_from_slice(&other.changed);
    }

    /// Counts a thread, or counts it otherwise than before.
    fn thread(&mut self, thread: &ThreadId, fate: Fate) {
        let before = self.counted.get(thread).copied();
        if before.is_some_and(|before| before >= fate) {
            return;
        }
        if let Some(before) = before {
            let counted = self.threads.of(before);
            *counted = counted.saturating_sub(1);
        }
        *self.threads.of(fate) += 1;
        self.counted.insert(thread.clone(), fate);
    }

    pub(super) fn failed(&mut self, file: &Found, reason: &str) {
        self.files.failed += 1;
        self.failures.push(file.key.clone());
        // Who tries it again names a file that is there.
        self.failed.push(match &file.origin {
            Origin::File => file.path.clone(),
            Origin::Section(section) => section.file.clone(),
            Origin::Session(session) => session.database.path().to_owned(),
        });
        self.problem(&file.key, reason);
    }

    pub(super) fn problem(&mut self, file: &str, reason: &str) {
        self.problems.push(Problem { file: file.to_owned(), line: 0, reason: reason.to_owned() });
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        self.files.read += 1;
        if let Some(thread) = &outcome.thread {
            let fate = match (outcome.new_thread, outcome.items.imported) {
                (true, _) => Fate::New,
                (false, 0) => Fate::Unchanged,
                (false, _) => Fate::Updated,
            };
            self.thread(thread, fate);
        }
        self.items.read += outcome.items.read;
        self.items.imported += outcome.items.imported;
        self.items.unchanged += outcome.items.unchanged;
        self.items.skipped += outcome.items.skipped;
        self.items.masked += outcome.items.masked;
        self.companions.add(&outcome.companions);
        self.problems.extend(outcome.problems);
        self.waiting.extend(outcome.waiting);
    }
}
