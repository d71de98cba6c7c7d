//! What an import found, in counts that add up.

use serde::Serialize;
use threadkeep::{SourceStamp, ThreadId};

use super::companions::CompanionCounts;
use super::files::Found;

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
    /// Everything that is wrong with the files, by file and line.
    pub problems: Vec<Problem>,
    /// The sources that could not be imported.
    #[serde(skip)]
    pub(super) failures: Vec<String>,
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

/// Counts of threads.
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
    pub(super) problems: Vec<Problem>,
    pub(super) thread: Option<ThreadId>,
}

impl ImportReport {
    pub(super) fn unchanged(&mut self, stamp: &SourceStamp) {
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        self.files.unchanged += 1;
        self.threads.unchanged += u64::from(stamp.thread.is_some());
        self.items.read += count(stamp.records);
        self.items.skipped += count(stamp.skipped);
        self.items.unchanged += count(stamp.records - stamp.skipped);
    }

    pub(super) fn failed(&mut self, file: &Found, reason: &str) {
        self.files.failed += 1;
        self.failures.push(file.key.clone());
        self.problem(&file.key, reason);
    }

    pub(super) fn problem(&mut self, file: &str, reason: &str) {
        self.problems.push(Problem { file: file.to_owned(), line: 0, reason: reason.to_owned() });
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        self.files.read += 1;
        let threads = &mut self.threads;
        let counter = match (outcome.new_thread, outcome.items.imported) {
            (true, _) => &mut threads.new,
            (false, 0) => &mut threads.unchanged,
            (false, _) => &mut threads.updated,
        };
        *counter += 1;
        self.items.read += outcome.items.read;
        self.items.imported += outcome.items.imported;
        self.items.unchanged += outcome.items.unchanged;
        self.items.skipped += outcome.items.skipped;
        self.items.masked += outcome.items.masked;
        self.companions.add(&outcome.companions);
        self.problems.extend(outcome.problems);
    }
}
