//! What a watch says: lines for people, a document per event for programs.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use threadkeep::blocking::Store;
use threadkeep_agents::import::{ImportReport, Problem};

use super::eyes::Eyes;
use crate::commands::{App, now};
use crate::errors::{Failure, Report};
use crate::style::Ink;
use crate::{human, names, output, text};

/// How many threads of a burst people are shown.
const SHOWN_THREADS: usize = 3;
/// How many problems are remembered as told.
const REMEMBERED: usize = 10_000;

/// Says what happens.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// Problems that were told: what stays wrong is not said again.
    told: BTreeSet<(String, u64, String)>,
    /// Whether the store was busy when it was used last.
    is_busy: bool,
}

impl Telling {
    /// What is followed.
    pub(super) fn watching(app: &mut App, eyes: &Eyes) -> Result<(), Failure> {
        let roots = eyes.roots();
        if app.out.is_json() {
            let home = |root: &super::eyes::Root| {
                let agent = Some(root.home.agent).filter(|agent| !agent.is_empty());
                let by = if root.is_told { "events" } else { "looking" };
                json!({"agent": agent, "path": root.home.path.display().to_string(), "by": by})
            };
            let homes: Vec<Value> = roots.iter().map(home).collect();
            return event(app, &json!({"event": "watching", "homes": homes}));
        }
        if roots.is_empty() {
            app.out.line("No agent is at home here yet; waiting for one. Ctrl-C ends it.")?;
        }
        for root in roots {
            let path = text::one_line(&root.home.path.display().to_string());
            let agent = if root.home.agent.is_empty() { "sessions" } else { root.home.agent };
            let by = if root.is_told { "" } else { "  (looked at)" };
            app.out.line(format!("{:<20} {}", agent, app.out.paint(Ink::Dim, &format!("{path}{by}"))))?;
        }
        app.out.flush()
    }

    /// What a burst came to. One that changed nothing is not worth a line, unless it `is_first`.
    pub(super) fn imported(
        &mut self,
        app: &mut App,
        store: &Store,
        report: &ImportReport,
        is_first: bool,
    ) -> Result<(), Failure> {
        self.is_busy = false;
        let problems = self.news(report);
        if !is_first && report.items.imported == 0 && problems.is_empty() {
            return Ok(());
        }
        if app.out.is_json() {
            let mut report = report.clone();
            report.problems = problems;
            return event(app, &json!({"event": "imported", "threads": report.changed, "report": report}));
        }
        let records = human::counted(report.items.imported, "record", "records");
        let threads = human::counted(report.threads.new + report.threads.updated, "thread", "threads");
        let mut line = format!("{}  {records} into {threads}", app.out.paint(Ink::Dim, &human::moment(now())));
        for thread in report.changed.iter().take(SHOWN_THREADS) {
            // Whoever deleted it meanwhile knows what it was.
            let Ok(found) = store.get(thread) else { continue };
            let name = text::one_line(found.name());
            let name = text::cut(&name, 40);
            line.push_str(&format!("  {} {name}", app.out.paint(Ink::Dim, &names::short_id(store, thread))));
        }
        if let Some(more) = report.changed.len().checked_sub(SHOWN_THREADS).filter(|more| *more > 0) {
            line.push_str(&format!("  and {more} more"));
        }
        app.out.line(line)?;
        for problem in problems {
            let place = text::one_line(&format!("{}:{}", problem.file, problem.line));
            let words = format!("  {place}: {}", text::one_line(&problem.reason));
            app.out.line(app.out.paint(Ink::Warn, &words))?;
        }
        app.out.flush()
    }

    /// What is left to come.
    pub(super) fn pending(app: &mut App, report: &ImportReport) -> Result<(), Failure> {
        if app.out.is_json() {
            let failed: Vec<String> = report.failed.iter().map(|path| path.display().to_string()).collect();
            return event(app, &json!({"event": "pending", "waiting": report.waiting, "failed": failed}));
        }
        for waiting in &report.waiting {
            let bytes = human::bytes(i64::try_from(waiting.bytes).unwrap_or(i64::MAX));
            let place = text::one_line(&format!("{}:{}", waiting.file, waiting.line));
            app.out
                .line(format!("  waits for the end of its last line ({bytes}): {}", app.out.paint(Ink::Dim, &place)))?;
        }
        for path in &report.failed {
            let path = text::one_line(&path.display().to_string());
            app.out.line(app.out.paint(Ink::Warn, &format!("  could not be imported: {path}")))?;
        }
        if report.waiting.is_empty() && report.failed.is_empty() {
            app.out.line("  nothing is left to come")?;
        }
        app.out.flush()
    }

    /// What people should know.
    pub(super) fn notice(app: &mut App, words: &str) -> Result<(), Failure> {
        match app.out.is_json() {
            true => event(app, &json!({"event": "notice", "message": words})),
            false => {
                output::tell(Ink::Warn, "note", words);
                Ok(())
            }
        }
    }

    /// The store can't be written now; said once, until it can.
    pub(super) fn busy(&mut self, app: &mut App, report: &Report) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_busy, true) {
            return Ok(());
        }
        match app.out.is_json() {
            true => event(app, &json!({"event": "busy", "error": report.body()})),
            false => {
                output::tell(Ink::Warn, "note", &format!("{}; trying again until it works", report.message));
                Ok(())
            }
        }
    }

    /// It ends.
    pub(super) fn ended(app: &mut App) -> Result<(), Failure> {
        match app.out.is_json() {
            true => event(app, &json!({"event": "ended"})),
            false => app.out.flush(),
        }
    }

    /// The problems that were not told before. A last line without an end is none: it waits.
    fn news(&mut self, report: &ImportReport) -> Vec<Problem> {
        let waits = |problem: &Problem| {
            report.waiting.iter().any(|waiting| waiting.file == problem.file && waiting.line == problem.line)
        };
        if self.told.len() > REMEMBERED {
            self.told.clear();
        }
        let is_new = |problem: &&Problem| {
            !waits(problem) && self.told.insert((problem.file.clone(), problem.line, problem.reason.clone()))
        };
        report.problems.iter().filter(is_new).cloned().collect()
    }
}

fn event(app: &mut App, document: &Value) -> Result<(), Failure> {
    app.out.document(document)?;
    app.out.flush()
}
