//! `threadkeep verify`

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use threadkeep::VerifyReport;
use threadkeep::blocking::Store;

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep verify                      everything, archived threads and the trash included
  threadkeep verify 019a2284
  threadkeep verify --json | jq '.invalid'

Exits with 5 when something is broken.";

/// Check that nothing stored was changed, damaged or lost
///
/// Computes every digest and every link of the chain anew. What is broken is named; what can't be proved is said.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct VerifyArgs {
    /// The threads; all of them when none is named
    #[arg(value_name = "THREAD")]
    threads: Vec<String>,
    /// All threads; this is the default
    #[arg(long, conflicts_with = "threads")]
    all: bool,
}

/// Verifies.
pub(super) fn run(args: &VerifyArgs, app: &mut App) -> Outcome {
    let store = app.read()?;
    let report = check(args, &store)?;
    if app.out.is_json() {
        app.out.document(&document(&report))?;
    } else {
        write(app, &report)?;
    }
    Ok(if report.invalid.is_empty() { Code::Done } else { Code::Corrupt })
}

fn check(args: &VerifyArgs, store: &Store) -> Result<VerifyReport, Failure> {
    let progress = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} threads verified {msg}") {
        progress.set_style(style);
    }
    let report = match args.threads.as_slice() {
        [] => store.verify_all(|_| progress.inc(1)),
        names => some(store, names, &progress),
    };
    progress.finish_and_clear();
    Ok(report?)
}

fn some(store: &Store, names: &[String], progress: &ProgressBar) -> threadkeep::Result<VerifyReport> {
    // A thread that was named twice is checked once.
    let mut verdicts = BTreeMap::new();
    for name in names {
        if let Entry::Vacant(entry) = verdicts.entry(store.find(name)?) {
            let verdict = store.verify(entry.key())?;
            entry.insert(verdict);
            progress.inc(1);
        }
    }
    let mut report = VerifyReport::default();
    for (thread, verdict) in verdicts {
        report.threads += 1;
        report.items += verdict.items;
        report.valid += u64::from(verdict.is_valid());
        for words in verdict.not_provable {
            *report.not_provable.entry(words).or_default() += 1;
        }
        if !verdict.invalid.is_empty() {
            report.invalid.insert(thread, verdict.invalid);
        }
    }
    Ok(report)
}

fn document(report: &VerifyReport) -> Value {
    let invalid = report.invalid.iter();
    let invalid = invalid.flat_map(|(thread, found)| found.iter().map(|found| json::invalid(thread, found)));
    let unproved = report.not_provable.iter();
    let unproved = unproved.map(|(reason, threads)| json!({"reason": reason, "threads": threads}));
    json!({
        "threads": report.threads,
        "valid": report.valid,
        "items": report.items,
        "invalid": invalid.collect::<Vec<_>>(),
        "not_provable": unproved.collect::<Vec<_>>(),
    })
}

fn write(app: &mut App, report: &VerifyReport) -> Result<(), Failure> {
    let out = &mut app.out;
    for (thread, found) in &report.invalid {
        out.line(out.paint(Ink::Bad, &format!("✗ {thread}")))?;
        for found in found {
            let branch = found.branch.map(|branch| format!(" on branch {branch}"));
            let depth = found.depth.map(|depth| format!("@{depth}"));
            let place = format!("{}{}", depth.unwrap_or_default(), branch.unwrap_or_default());
            let place = if place.is_empty() { "the thread itself".to_owned() } else { place };
            out.line(format!("    {}: {}", place.trim_start(), text::one_line(&found.reason)))?;
        }
    }
    let threads = human::counted(report.threads, "thread", "threads");
    let items = human::counted(report.items, "item", "items");
    let (ink, mark, words) = match report.threads - report.valid {
        0 => (Ink::Good, "✓", "all valid".to_owned()),
        broken => (Ink::Bad, "✗", format!("{} broken", human::count(broken))),
    };
    out.line(format!("{} {threads}, {items}: {words}", out.paint(ink, mark)))?;
    for words in report.not_provable.keys() {
        out.line(out.paint(Ink::Dim, &format!("Not provable: {}", text::one_line(words))))?;
    }
    Ok(())
}
