//! T21: defects are planted in the library, one at a time, and the other suites must find them.
//!
//! A defect is caught when a suite counts a violation of its rules. One that broke off, that was skipped, or whose own control
//! failed has caught nothing. The suite runs as a process of its own with the defect at work in all of it: in the writers, in
//! what the suite itself does with a store, and in those who look.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::child::Child;
use crate::oracle::Rule;
use crate::plan::Plan;
use crate::report::{Outcome, Stop};

/// What the library reads the name of the defect from.
const VARIABLE: &str = "THREADKEEP_PLANTED_DEFECT";
/// Names no defect.
const NOTHING: &str = "nothing";
/// How many defects are tried for every change.
const FEW: usize = 5;
/// How often the suites are tried on a defect: what depends on chance gets other choices each time.
const ATTEMPTS: u64 = 3;
/// After so long a suite is taken to have found nothing.
const BOUND: Duration = Duration::from_secs(300);

/// Each defect with the suites that should find it, or one scenario of them, the quickest first.
const EXPECTED: &[(&str, Speed, &[&str])] = &[
    ("SyncsAtCheckpoints", Speed::Slow, &["T03", "T04"]),
    ("NeverSyncs", Speed::Quick, &["T03"]),
    ("FlushesWithoutSync", Speed::Slow, &["T03"]),
    ("LeavesJournalUnsynced", Speed::Slow, &["T04"]),
    ("LeavesFoldersUnsynced", Speed::Slow, &["T04"]),
    ("AcksBeforeCommit", Speed::Quick, &["T05", "T01"]),
    ("AcksFailedCommit", Speed::Quick, &["T05", "T06"]),
    ("TellsTheFirstOnly", Speed::Quick, &["T06"]),
    ("KeepsHalfRequests", Speed::Quick, &["T01"]),
    ("CommitsBatchInPieces", Speed::Slow, &["T02 batch", "T01"]),
    ("CommitsHeadApart", Speed::Quick, &["kills"]),
    ("NeverLeavesGate", Speed::Slow, &["T01"]),
    ("WritesMovedFile", Speed::Slow, &["T14 database removed"]),
    ("RedactsOffRecord", Speed::Quick, &["T02 redact"]),
    ("RetainsFromTheLiving", Speed::Quick, &["retention"]),
    ("RetainsOffRecord", Speed::Quick, &["retention"]),
    ("ForgetsWhatFailed", Speed::Quick, &["T05", "T06"]),
    ("OvertakesWhatWasKept", Speed::Quick, &["T05", "T06"]),
    ("QueuesWithoutOrder", Speed::Slow, &["T06"]),
    ("RefusesRepeats", Speed::Quick, &["T09"]),
    ("IgnoresExpectedHead", Speed::Quick, &["T09"]),
    ("LetsStaleWritersAppend", Speed::Quick, &["T10"]),
    ("GoesOnWithoutComparing", Speed::Quick, &["T10"]),
    ("TicksAlone", Speed::Quick, &["T12"]),
    ("OrdersByClock", Speed::Quick, &["T12"]),
    ("CutsLongContent", Speed::Quick, &["T01"]),
    ("StealsFromTheLiving", Speed::Quick, &["T12", "T01"]),
    ("KeepsDeadHolders", Speed::Quick, &["T01"]),
    ("TrustsProcessNumbers", Speed::Slow, &["T10"]),
    ("TrustsTheClock", Speed::Quick, &["T12"]),
    ("UnlinksLocksOfTheLiving", Speed::Quick, &["T01"]),
    ("ReleasesOthersClaims", Speed::Quick, &["T10"]),
    ("CreatesInPieces", Speed::Slow, &["T02 init"]),
    ("MigratesInPieces", Speed::Quick, &["T17"]),
    ("MintsIdAnew", Speed::Quick, &["T12"]),
    ("KeepsReadOnlyConnection", Speed::Quick, &["T06"]),
    ("OpensFilesToOthers", Speed::Quick, &["T15"]),
    ("OpensFoldersToOthers", Speed::Quick, &["T15"]),
    ("FollowsLinks", Speed::Quick, &["T15"]),
    ("VerifiesWithoutCount", Speed::Quick, &["T08"]),
    ("VerifiesWithoutHashes", Speed::Quick, &["T08"]),
    ("VerifiesWithoutContent", Speed::Quick, &["T08"]),
    ("VerifiesWithoutSignatures", Speed::Quick, &["T08"]),
    ("VerifiesWithoutSealDigests", Speed::Quick, &["T08"]),
    ("VerifiesWithoutStatements", Speed::Quick, &["T08"]),
    ("VerifiesWithoutLastSeal", Speed::Quick, &["T08"]),
    ("BacksUpWithoutLog", Speed::Slow, &["T11"]),
];

/// How soon a defect is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speed {
    /// In seconds, whatever the seed is. From these the few are chosen.
    Quick,
    /// It takes long, or luck.
    Slow,
}

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    if !are_built_in() {
        let reason = "this program was built without the feature planted-defects".to_owned();
        return Err(Stop::Skip { reason, by_system: true });
    }
    let planted = planted();
    check_names(&planted)?;
    let chosen = choose(plan);
    let mut caught_by = BTreeMap::new();
    let (mut caught, mut untried) = (0, 0);
    for (name, _, suites) in &chosen {
        let begun = Instant::now();
        let found = try_to_catch(plan, name, suites)?;
        let seconds = begun.elapsed().as_secs_f64();
        match found {
            Found::Caught { suite, rule, seed } => {
                caught += 1;
                caught_by.insert(suite, seed);
                outcome.figure(*name, format!("{suite} ({rule}) {seconds:.1} s"));
            }
            Found::Untried(reason) => {
                untried += 1;
                outcome.figure(*name, format!("SKIP {reason}"));
            }
            Found::Missed(words) => {
                outcome.figure(*name, format!("MISSED in {seconds:.1} s"));
                outcome.tally.add(Rule::Unnoticed, format!("the defect {name}: {}", words.join("; ")));
            }
        }
    }
    outcome.figure("caught", format!("{caught} of {}", chosen.len() - untried));
    outcome.figure("planted in all", planted.len());
    let mut passed = !caught_by.is_empty();
    for (suite, seed) in &caught_by {
        let verdict = play(plan, suite, *seed, NOTHING)?;
        passed &= verdict.passed;
        if !verdict.passed {
            outcome.figure(format!("{suite} with nothing planted"), verdict.words);
        }
    }
    let suites: Vec<&str> = caught_by.into_keys().collect();
    outcome.control(format!("a mutant without a defect, which {} must tell from the others", suites.join(" ")), passed);
    Ok(())
}

/// Whether this program can plant defects at all.
pub(crate) const fn are_built_in() -> bool {
    cfg!(feature = "planted-defects")
}

/// The defects that are built in, with their names and what they do.
#[cfg(feature = "planted-defects")]
fn planted() -> Vec<(&'static str, &'static str)> {
    threadkeep::planted_defects()
}

#[cfg(not(feature = "planted-defects"))]
fn planted() -> Vec<(&'static str, &'static str)> {
    Vec::new()
}

/// A defect that the suite does not know is one that nobody looks for, and one that the library does not know does nothing.
fn check_names(planted: &[(&str, &str)]) -> Result<()> {
    let unknown = planted.iter().find(|(name, _)| EXPECTED.iter().all(|(expected, ..)| expected != name));
    let missing = EXPECTED.iter().find(|(expected, ..)| planted.iter().all(|(name, _)| expected != name));
    match (unknown, missing) {
        (Some((name, words)), _) => Err(format!("no suite looks for the defect {name} ({})", words.trim())),
        (_, Some((name, ..))) => Err(format!("the library has no defect {name}")),
        (None, None) => Ok(()),
    }
}

/// All defects; or for every change a few, others with the next seed.
fn choose(plan: &Plan) -> Vec<&'static (&'static str, Speed, &'static [&'static str])> {
    if plan.pick(false, true, true) {
        return EXPECTED.iter().collect();
    }
    let quick: Vec<_> = EXPECTED.iter().filter(|(_, speed, _)| *speed == Speed::Quick).collect();
    let first = usize::try_from(plan.seed % quick.len() as u64).unwrap_or(0) * FEW;
    (first..first + FEW).filter_map(|place| quick.get(place % quick.len()).copied()).collect()
}

enum Found {
    Caught {
        suite: &'static str,
        rule: String,
        seed: u64,
    },
    /// No suite that could catch it can run here.
    Untried(String),
    /// What each suite said.
    Missed(Vec<String>),
}

fn try_to_catch(plan: &Plan, name: &str, suites: &[&'static str]) -> Result<Found> {
    let (mut words, mut skipped) = (Vec::new(), Vec::new());
    for attempt in 0..ATTEMPTS {
        for suite in suites {
            let seed = plan.seed + attempt;
            let verdict = play(plan, suite, seed, name)?;
            match verdict.violated {
                Some(rule) => return Ok(Found::Caught { suite, rule, seed }),
                None if verdict.skipped => skipped.push(verdict.words),
                None => words.push(format!("{suite} {}", verdict.words)),
            }
        }
    }
    match (words.is_empty(), skipped.pop()) {
        (true, Some(reason)) => Ok(Found::Untried(reason)),
        _ => Ok(Found::Missed(words)),
    }
}

/// What one run of a suite says.
struct Verdict {
    /// The first rule that was violated.
    violated: Option<String>,
    passed: bool,
    /// It can't run on this system.
    skipped: bool,
    words: String,
}

/// Whether a line is the report of a suite that failed.
fn has_failed(line: &str) -> bool {
    let report = serde_json::from_str::<Value>(line).ok();
    let verdict = report.as_ref().and_then(|report| report.get("verdict")?.as_str());
    verdict.is_some_and(|verdict| !matches!(verdict, "passed" | "SKIP"))
}

/// Runs a suite in a process of its own.
fn play(plan: &Plan, suite: &str, seed: u64, defect: &str) -> Result<Verdict> {
    let mut command = Command::new(&plan.program);
    let (id, only) = suite.split_once(' ').map_or((suite, None), |(id, only)| (id, Some(only)));
    command.args([id, "--size", "pr", "--json", "--seed"]).arg(seed.to_string()).env(VARIABLE, defect);
    if let Some(only) = only {
        command.arg("--only").arg(only);
    }
    let said = |words: &str| Verdict { violated: None, passed: false, skipped: false, words: words.to_owned() };
    let (child, begun, mut last) = (Child::start(command)?, Instant::now(), String::new());
    loop {
        match child.hear() {
            // Several suites may have the id: what the first one that failed says counts.
            Ok(Some(line)) if !has_failed(&last) => last = line,
            Ok(Some(_)) => {}
            Ok(None) => break,
            // A suite says nothing until it ends.
            Err(_) if begun.elapsed() < BOUND => {}
            Err(_) => return Ok(said("does not end")),
        }
    }
    let Ok(report) = serde_json::from_str::<Value>(&last) else { return Ok(said(&last)) };
    let text = |key: &str| report.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let violations = report.get("violations").and_then(Value::as_object);
    let (verdict, reason) = (text("verdict"), text("reason"));
    Ok(Verdict {
        violated: violations.and_then(|counts| counts.keys().next().cloned()),
        passed: verdict == "passed",
        skipped: verdict == "SKIP" && child.finish()?.0.success(),
        words: format!("{verdict} {reason}").trim().to_owned(),
    })
}
