//! `threadkeep doctor`

use clap::Args;
use serde_json::{Map, Value, json};
use threadkeep::blocking::Store;
use threadkeep::{Examination, Finding, Severity};

use super::App;
use crate::errors::{Code, Failure, Outcome};
use crate::style::Ink;
use crate::{human, text};

const EXAMPLES: &str = "\
EXAMPLES:
  threadkeep doctor
  threadkeep doctor --full               check every page of the database, however long it takes
  threadkeep doctor --json | jq '.findings[] | select(.severity == \"error\")'

Exits with 5 when a finding is an error, and with 0 when there are warnings and notes only.";

/// Say what is wrong with the store, or with where it is, and what to do about it
///
/// It reads only, and works also where the store can't be opened. What threads hold is checked by `verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// Check every page of a database in a folder, and not for five seconds only
    #[arg(long)]
    full: bool,
}

/// Examines.
pub(super) fn run(args: &DoctorArgs, app: &mut App) -> Outcome {
    let found = Store::examine(app.place()?.options(), args.full)?;
    if app.out.is_json() {
        app.out.document(&document(&found))?;
    } else {
        write(app, &found)?;
    }
    Ok(if found.worst() == Some(Severity::Error) { Code::Corrupt } else { Code::Done })
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
