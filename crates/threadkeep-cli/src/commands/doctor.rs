//! `threadkeep doctor`

use clap::Args;
use serde_json::{Map, Value, json};
use threadkeep::blocking::Store;
use threadkeep::{Checkup, Described, Examination, Finding, RepairReport, RepairedThread, Severity};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::{human, text};

/// So many threads with losses are told one by one.
const TOLD: usize = 50;

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep doctor
  threadkeep doctor --full               check every page, and every thread, however long it takes
  threadkeep doctor --json | jq '.findings[] | select(.severity == \"error\")'
  threadkeep doctor --apply 5f0c2a97d1e4b836     carry out the plan that was printed

Where something can be mended, a plan is printed: its steps, and a fingerprint of the plan and of the state of the
store. Nothing is deleted: the files that are replaced are kept in the store's folder, in `kept-…`.

Exits with 5 when a finding is an error, and with 0 when there are warnings and notes only. With --apply it exits with 0
when everything is back, with 8 when something is lost, which is named, and with 1 when the store is in another state
than the plan was made for.";

/// Say what is wrong with the store, or with where it is, and what to do about it
///
/// It reads only, unless it is told a plan, and works also where the store can't be opened.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// Check every page of a database in a folder, and not for five seconds only; where that finds nothing, verify all threads
    #[arg(long)]
    full: bool,
    /// Carry out the plan that was printed with this fingerprint
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "full")]
    apply: Option<String>,
}

/// Examines, or repairs.
pub(super) fn run(args: &DoctorArgs, app: &mut App) -> Outcome {
    match &args.apply {
        Some(fingerprint) => apply(fingerprint, app),
        None => examine(args, app),
    }
}

fn examine(args: &DoctorArgs, app: &mut App) -> Outcome {
    let checkup = Store::plan_repair(app.place()?.options(), args.full)?;
    let found = &checkup.examination;
    if app.out.is_json() {
        app.out.document(&with_plan(document(found), &checkup))?;
    } else {
        write(app, found)?;
        write_plan(app, &checkup)?;
    }
    Ok(if found.worst() == Some(Severity::Error) { Code::Corrupt } else { Code::Done })
}

fn apply(fingerprint: &str, app: &mut App) -> Outcome {
    let report = Store::repair(app.place()?.options(), fingerprint)?;
    if app.out.is_json() {
        app.out.document(&repaired(&report))?;
    } else {
        write_repaired(app, &report)?;
    }
    let is_whole = report.threads.iter().all(|thread| thread.lost.is_empty())
        && report.invalid.is_empty()
        && report.seals.is_empty()
        && report.dropped_files.is_empty();
    Ok(if is_whole { Code::Done } else { Code::Partial })
}

fn with_plan(mut document: Value, checkup: &Checkup) -> Value {
    let steps = checkup.steps.iter().map(|step| json!({"code": step.code, "what": step.what}));
    let steps: Vec<Value> = steps.collect();
    let plan = match steps.is_empty() {
        true => Value::Null,
        false => json!({"fingerprint": checkup.fingerprint, "steps": steps}),
    };
    if let Some(document) = document.as_object_mut() {
        document.insert("plan".to_owned(), plan);
    }
    document
}

fn write_plan(app: &mut App, checkup: &Checkup) -> Result<(), Failure> {
    if checkup.steps.is_empty() {
        return Ok(());
    }
    let out = &mut app.out;
    out.line("")?;
    let words = if checkup.fingerprint.is_some() { "Plan" } else { "What whoever looks after the server can do" };
    out.line(out.paint(Ink::Strong, words))?;
    for (number, step) in checkup.steps.iter().enumerate() {
        out.line(format!("  {}. {}", number + 1, text::one_line(&step.what)))?;
    }
    if let Some(fingerprint) = &checkup.fingerprint {
        out.line("")?;
        out.line(format!("Nothing was changed. `threadkeep doctor --apply {fingerprint}` carries it out."))?;
    }
    Ok(())
}

fn repaired(report: &RepairReport) -> Value {
    let threads = report.threads.iter().map(|thread| {
        let lost = thread.lost.iter();
        let lost = lost.map(|lost| json!({"branch": lost.branch.to_string(), "from": lost.from, "to": lost.to}));
        json!({
            "thread": thread.thread.as_str(),
            "items_before": thread.before,
            "items": thread.after,
            "from_rollouts": thread.from_rollouts,
            "described_by": thread.described,
            "lost": lost.collect::<Vec<_>>(),
        })
    });
    let refused = report.refused_rollouts.iter().map(|(rollout, why)| json!({"rollout": rollout, "reason": why}));
    let invalid = report.invalid.iter().map(|(thread, reasons)| json!({"thread": thread.as_str(), "reasons": reasons}));
    json!({
        "fingerprint": report.fingerprint,
        "kept": report.kept.as_ref().map(|kept| kept.display().to_string()),
        "items": report.items,
        "from_rollouts": report.from_rollouts,
        "held_back": report.held_back,
        "threads": threads.collect::<Vec<_>>(),
        "dropped_files": report.dropped_files,
        "refused_rollouts": refused.collect::<Vec<_>>(),
        "invalid": invalid.collect::<Vec<_>>(),
        "seals": report.seals,
    })
}

fn write_repaired(app: &mut App, report: &RepairReport) -> Result<(), Failure> {
    let out = &mut app.out;
    let Some(kept) = &report.kept else {
        return out.line(format!("{} what had been cut off is ended", out.paint(Ink::Good, "✓")));
    };
    let hurt: Vec<&RepairedThread> = report.threads.iter().filter(|thread| is_changed(thread)).collect();
    for thread in hurt.iter().take(TOLD) {
        out.line(out.paint(Ink::Warn, &format!("! {}", thread.thread)))?;
        out.line(format!("    {}", words_for(thread)))?;
        for lost in &thread.lost {
            out.line(format!("    lost: depths {} to {} of branch {}", lost.from, lost.to, lost.branch))?;
        }
    }
    if hurt.len() > TOLD {
        let more = i64::try_from(hurt.len() - TOLD).unwrap_or(i64::MAX);
        out.line(format!("  and {} more; --json names all", human::count(more)))?;
    }
    for (thread, reasons) in report.invalid.iter().take(TOLD) {
        let reason = reasons.first().map(String::as_str).unwrap_or_default();
        out.line(out.paint(Ink::Warn, &format!("! {thread}: {}", text::one_line(reason))))?;
    }
    for problem in &report.seals {
        out.line(out.paint(Ink::Warn, &format!("! {}", text::one_line(problem))))?;
    }
    for file in report.dropped_files.iter().take(TOLD) {
        let file = text::one_line(file);
        out.line(out.paint(Ink::Warn, &format!("! {file}: not known as imported any more; import it again")))?;
    }
    for (rollout, why) in report.refused_rollouts.iter().take(TOLD) {
        let words = format!("! rollout {}: {}", text::one_line(rollout), text::one_line(why));
        out.line(out.paint(Ink::Warn, &words))?;
    }
    let threads = human::counted(report.threads.len() as u64, "thread", "threads");
    let items = human::counted(report.items, "item", "items");
    out.line(format!("{} {threads}, {items}: in place and verified", out.paint(Ink::Good, "✓")))?;
    if report.from_rollouts > 0 {
        out.line(format!("  {} of them from rollouts", human::counted(report.from_rollouts, "item", "items")))?;
    }
    if report.held_back > 0 {
        let rows = human::counted(report.held_back, "row follows", "rows follow");
        out.line(format!("  {rows} from nothing that is left: listed in `held-back.jsonl` there"))?;
    }
    out.line(format!("What was replaced is kept in {}", text::one_line(&kept.to_string_lossy())))
}

fn is_changed(thread: &RepairedThread) -> bool {
    !thread.lost.is_empty() || thread.described != Described::Database || thread.before != Some(thread.after)
}

fn words_for(thread: &RepairedThread) -> String {
    let before = thread
        .before
        .map_or_else(|| "an unknown number of items".to_owned(), |count| human::counted(count, "item", "items"));
    let now = human::counted(thread.after, "item", "items");
    let from = match thread.from_rollouts {
        0 => String::new(),
        count => format!(", {} of them from its rollout", human::count(i64::try_from(count).unwrap_or(i64::MAX))),
    };
    let described = match thread.described {
        Described::Rollout => "; described by its rollout",
        Described::Nothing => "; its title and the like are lost",
        Described::Database => "",
    };
    format!("{before} before, {now} now{from}{described}")
}

fn document(found: &Examination) -> Value {
    let facts: Map<String, Value> = found.facts.iter().map(|fact| (fact.name.to_owned(), fact.value.clone())).collect();
    let findings = found.findings.iter().map(|finding| {
        json!({
            "severity": finding.severity,
            "code": finding.code,
            "place": finding.place,
            "what": finding.what,
            "way_out": finding.way_out,
        })
    });
    json!({
        "store": found.place,
        "worst": found.worst(),
        "facts": facts,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn write(app: &mut App, found: &Examination) -> Result<(), Failure> {
    let out = &mut app.out;
    out.line(out.paint(Ink::Strong, &text::one_line(&found.place)))?;
    let width = found.facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
    for fact in &found.facts {
        out.line(format!("  {:<width$}  {}", fact.name.replace('_', " "), shown(fact.name, &fact.value)))?;
    }
    out.line("")?;
    for finding in &found.findings {
        let (ink, mark) = look_of(finding);
        let place = out.paint(ink, &format!("{mark} {}: {}", finding.severity, text::one_line(&finding.place)));
        out.line(format!("{place}  {}", out.paint(Ink::Dim, finding.code)))?;
        out.line(format!("    {}", text::one_line(&finding.what)))?;
        out.line(out.paint(Ink::Dim, &format!("    → {}", text::one_line(&finding.way_out))))?;
    }
    let count = |severity| found.findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    let (ink, mark) = match found.worst() {
        Some(Severity::Error) => (Ink::Bad, "✗"),
        Some(Severity::Warning) => (Ink::Warn, "!"),
        _ => (Ink::Good, "✓"),
    };
    let words = [
        human::counted(count(Severity::Error), "error", "errors"),
        human::counted(count(Severity::Warning), "warning", "warnings"),
        human::counted(count(Severity::Note), "note", "notes"),
    ];
    out.line(format!("{} {}", out.paint(ink, mark), words.join(", ")))
}

fn look_of(finding: &Finding) -> (Ink, &'static str) {
    match finding.severity {
        Severity::Error => (Ink::Bad, "✗"),
        Severity::Warning => (Ink::Warn, "!"),
        Severity::Note => (Ink::Plain, "·"),
    }
}

/// A fact as people read it: the unit is in its name.
fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) if name.ends_with("bytes") => human::bytes(number.as_i64().unwrap_or(i64::MAX)),
        Value::Number(number) => number.as_i64().map_or_else(|| number.to_string(), human::count),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::String(words) => text::one_line(words),
        other => text::one_line(&other.to_string()),
    }
}
