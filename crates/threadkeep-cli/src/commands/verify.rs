//! `threadkeep verify`

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep::{Anchors, Outcome as Verdict, PublicKey, VerifyOptions, VerifyReport, parse_key};

use super::seal::{read_anchors, write_private};
use super::{App, rollout, show};
use crate::errors::{Code, Failure, Outcome, Report};
use crate::output;
use crate::style::Ink;
use crate::{human, json, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep verify                              everything, archived threads and the trash included
  threadkeep verify 019a2284
  threadkeep verify --anchors threads.anchors    against seals that were kept in another place
  threadkeep verify --anchors threads.anchors --trust ann.pub --strict
  threadkeep verify --since-last                 what is new since the last one of this kind
  threadkeep verify --json | jq '.verdict, .invalid'
  threadkeep verify 019a2284 --proof thread.proof

There are three verdicts. `valid`: nothing is broken, and seals vouch for all of it. `invalid`:
something is broken, and named. `not_provable`: nothing was found to be broken, but what is named
would not show.

Exits with 5 when something is broken, with --strict with 8 when nothing is broken and not all
can be proved, else with 0.";

/// Check that nothing stored was changed, damaged or lost
///
/// Computes every digest and every link of the chain anew, and compares it with what was sealed. What is broken is named; what
/// can't be proved is said.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct VerifyArgs {
    /// The threads; all of them when none is named. Files that end in .jsonl or .jsonl.zst are checked by themselves, as
    /// `rollout verify` does
    #[arg(value_name = "THREAD|FILE")]
    threads: Vec<String>,
    /// All threads; this is the default
    #[arg(long, conflicts_with = "threads")]
    all: bool,
    /// Look at every stored row; this is the default
    #[arg(long, conflicts_with = "since_last")]
    full: bool,
    /// Look only at what is new since the last verification with this option, and remember how far it is now
    ///
    /// Of what was found in order then, only the hash of the last item is compared: a row before it that was changed since does
    /// not show.
    #[arg(long)]
    since_last: bool,
    /// Compare with the seals in this file, which `seal --out` wrote
    #[arg(long, value_name = "FILE")]
    anchors: Option<PathBuf>,
    /// Believe the seals of this public key and of those that it vouches for, and of no other
    ///
    /// A file that `keys export` wrote, or 64 hex digits. Without it the keys in the store's folder of keys are believed.
    #[arg(long, value_name = "KEY")]
    trust: Vec<String>,
    /// Fail with 8 when not all can be proved
    #[arg(long)]
    strict: bool,
    /// Write the thread, with every field that its chain binds, and all seals to this file
    ///
    /// Others can verify it without this program: `scripts/verify_seals.py` does.
    #[arg(long, value_name = "FILE")]
    proof: Option<PathBuf>,
}

/// Verifies.
pub(super) fn run(args: &VerifyArgs, app: &mut App) -> Outcome {
    let files: Vec<PathBuf> = args.threads.iter().filter(|name| show::names_a_file(name)).map(PathBuf::from).collect();
    if !files.is_empty() {
        let is_alone = args.anchors.is_none() && args.trust.is_empty() && args.proof.is_none() && !args.since_last;
        if files.len() < args.threads.len() || !is_alone {
            return Err(
                Report::usage("files are checked by themselves, without other threads, seals and proofs").into()
            );
        }
        return rollout::verify(&files, app);
    }
    if args.proof.is_some() && args.threads.len() != 1 {
        return Err(Report::usage("--proof takes one thread").into());
    }
    let options = VerifyOptions {
        since_last: args.since_last,
        anchors: args.anchors.as_deref().map(read_anchors).transpose()?.map(Arc::new),
        trust: args.trust.iter().map(|key| trusted(key)).collect::<Result<_, _>>()?,
    };
    let store = if args.since_last { app.write()? } else { app.read()? };
    if !args.since_last {
        store.notices().iter().for_each(|notice| output::tell(Ink::Warn, "note", notice));
    }
    let report = check(args, &options, &store)?;
    if let (Some(path), Some(name)) = (&args.proof, args.threads.first()) {
        prove(&store, name, path)?;
    }
    if app.out.is_json() {
        app.out.document(&document(&report))?;
    } else {
        write(app, &report, options.anchors.as_deref())?;
    }
    Ok(match report.outcome() {
        Verdict::Invalid => Code::Corrupt,
        Verdict::NotProvable if args.strict => Code::Partial,
        Verdict::NotProvable | Verdict::Valid => Code::Done,
    })
}

fn trusted(given: &str) -> Result<PublicKey, Failure> {
    if let Ok(key) = given.parse::<PublicKey>() {
        return Ok(key);
    }
    let text = std::fs::read_to_string(given);
    let text = text.map_err(|error| Report::usage(format!("--trust {given} is no key and no file: {error}")))?;
    Ok(parse_key(given, &text)?.public)
}

fn prove(store: &Store, name: &str, path: &Path) -> Result<(), Failure> {
    let thread = store.find(name)?;
    let mut failed = None;
    write_private(path, &mut |file| {
        store.proof(&thread, file).map_err(|error| {
            let told = std::io::Error::other(error.to_string());
            failed = Some(error);
            told
        })
    })
    .map_err(|told| failed.map_or(told, Failure::from))
}

fn check(args: &VerifyArgs, options: &VerifyOptions, store: &Store) -> Result<VerifyReport, Failure> {
    let progress = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} threads verified {msg}") {
        progress.set_style(style);
    }
    let report = match args.threads.as_slice() {
        [] => store.verify_all_with(options, |_| progress.inc(1)),
        names => some(store, names, options, &progress),
    };
    progress.finish_and_clear();
    Ok(report?)
}

fn some(
    store: &Store,
    names: &[String],
    options: &VerifyOptions,
    progress: &ProgressBar,
) -> threadkeep::Result<VerifyReport> {
    // A thread that was named twice is checked once.
    let mut verdicts = BTreeMap::new();
    for name in names {
        if let Entry::Vacant(entry) = verdicts.entry(store.find(name)?) {
            let verdict = store.verify_with(entry.key(), options)?;
            entry.insert(verdict);
            progress.inc(1);
        }
    }
    let mut report = VerifyReport::default();
    verdicts.into_values().for_each(|verdict| report.add(verdict));
    Ok(report)
}

fn document(report: &VerifyReport) -> Value {
    let invalid = report.invalid.iter();
    let invalid = invalid.flat_map(|(thread, found)| found.iter().map(|found| json::invalid(thread, found)));
    let of_seals = report.seals.iter();
    let of_seals = of_seals.map(|reason| json!({"thread": null, "branch": null, "depth": null, "reason": reason}));
    let unproved = report.not_provable.iter();
    let unproved =
        unproved.map(|(gap, threads)| json!({"kind": gap.as_str(), "reason": gap.words(), "threads": threads}));
    json!({
        "verdict": report.outcome(),
        "threads": report.threads,
        "valid": report.valid,
        "intact": report.intact,
        "items": report.items,
        "remembered": report.remembered,
        "broken": report.broken,
        "invalid": of_seals.chain(invalid).collect::<Vec<_>>(),
        "not_provable": unproved.collect::<Vec<_>>(),
        "anchored": report.anchored,
    })
}

fn write(app: &mut App, report: &VerifyReport, anchors: Option<&Anchors>) -> Result<(), Failure> {
    let out = &mut app.out;
    for problem in &report.seals {
        out.line(out.paint(Ink::Bad, &format!("✗ {}", text::one_line(problem))))?;
    }
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
    let told: u64 = report.invalid.values().map(|found| found.len() as u64).sum();
    if report.broken > told {
        out.line(format!("    and {} more places", human::count(report.broken - told)))?;
    }
    let threads = human::counted(report.threads, "thread", "threads");
    let items = human::counted(report.items, "item", "items");
    let (ink, mark, words) = match (report.outcome(), report.threads - report.intact) {
        (Verdict::Valid, _) => (Ink::Good, "✓", "all valid".to_owned()),
        (Verdict::NotProvable, _) => (Ink::Warn, "?", "nothing is broken, but not all of it can be proved".to_owned()),
        (Verdict::Invalid, 0) => (Ink::Bad, "✗", "the store is not what it was known to be".to_owned()),
        (Verdict::Invalid, broken) => (Ink::Bad, "✗", format!("{} broken", human::count(broken))),
    };
    let newest = anchors.and_then(Anchors::newest).map(|(_, _, at)| at);
    let upto = report.anchored.map(|seal| match newest {
        Some(at) => format!(", up to seal {seal}; the anchors are of {}", human::moment(at)),
        None => format!(", up to seal {seal}"),
    });
    out.line(format!("{} {threads}, {items}: {words}{}", out.paint(ink, mark), upto.unwrap_or_default()))?;
    for (gap, threads) in &report.not_provable {
        let threads = human::counted(*threads, "thread", "threads");
        out.line(out.paint(Ink::Dim, &format!("Not provable, {threads}: {}", gap.words())))?;
    }
    Ok(())
}
