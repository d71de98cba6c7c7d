//! What a suite found, for people and for programs.

use std::fmt::Display;
use std::time::Instant;

use serde_json::{Value, json};

use crate::child::SILENT;
use crate::oracle::{Rule, Tally};

/// More figures than these are told one on each line.
const ON_ONE_LINE: usize = 16;

/// Why a suite ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It can't run here. What lacks by the system itself is told apart from what could be installed.
    Skip { reason: String, by_system: bool },
    /// The suite itself went wrong, which proves nothing about the store and is a failure.
    Broken(String),
}

impl From<String> for Stop {
    fn from(words: String) -> Self {
        Self::Broken(words)
    }
}

/// What a suite found.
#[derive(Debug)]
pub(crate) struct Outcome {
    id: &'static str,
    name: &'static str,
    seed: u64,
    begun: Instant,
    figures: Vec<(String, Value)>,
    controls: Vec<(String, bool)>,
    /// Violations of the rules.
    pub(crate) tally: Tally,
    stop: Option<Stop>,
}

impl Outcome {
    /// Nothing is found yet.
    pub(crate) fn new(id: &'static str, name: &'static str, seed: u64) -> Self {
        let (figures, controls, tally) = (Vec::new(), Vec::new(), Tally::default());
        Self { id, name, seed, begun: Instant::now(), figures, controls, tally, stop: None }
    }

    /// Notes a figure.
    pub(crate) fn figure(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.figures.push((name.into(), value.into()));
    }

    /// Notes a run on a sabotaged setup. It must have been found out: a suite that can't see a planted fault proves nothing.
    pub(crate) fn control(&mut self, what: impl Display, found_out: bool) {
        self.controls.push((what.to_string(), found_out));
    }

    /// Ends the suite.
    pub(crate) fn end(&mut self, ended: Result<(), Stop>) {
        // Wherever a suite waited for it: who says nothing for longer than the bound hangs.
        if matches!(&ended, Err(Stop::Broken(words)) if words == SILENT) {
            self.tally.add(Rule::Hang, "a process that the suite waited for");
        }
        self.stop = ended.err();
    }

    /// Whether the suite counts as passed, as failed, or as not run.
    pub(crate) fn passed(&self) -> Option<bool> {
        match &self.stop {
            Some(Stop::Skip { .. }) => None,
            Some(Stop::Broken(_)) => Some(false),
            None => {
                let controlled = !self.controls.is_empty() && self.controls.iter().all(|(_, found_out)| *found_out);
                Some(controlled && self.tally.is_empty())
            }
        }
    }

    /// Whether the run as a whole may succeed after this suite.
    pub(crate) fn is_acceptable(&self, in_ci: bool) -> bool {
        match &self.stop {
            Some(Stop::Skip { by_system, .. }) => *by_system || !in_ci,
            _ => self.passed() == Some(true),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.passed() {
            None => "SKIP",
            Some(true) => "passed",
            Some(false) => "FAILED",
        }
    }

    /// One JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let reason = match &self.stop {
            Some(Stop::Skip { reason, .. } | Stop::Broken(reason)) => Value::from(reason.as_str()),
            None => Value::Null,
        };
        let violations: Vec<(&str, u64)> = self.tally.counts();
        json!({
            "id": self.id, "suite": self.name, "seed": self.seed, "verdict": self.verdict(), "reason": reason,
            "seconds": self.begun.elapsed().as_secs_f64(),
            "figures": self.figures.iter().cloned().collect::<serde_json::Map<_, _>>(),
            "controls": self.controls.iter().map(|(what, found_out)| json!({"what": what, "found_out": found_out}))
                .collect::<Vec<_>>(),
            "violations": violations.into_iter().map(|(rule, count)| (rule.to_owned(), count.into()))
                .collect::<serde_json::Map<_, _>>(),
            "details": self.tally.details(),
        })
    }

    /// Lines for people.
    pub(crate) fn to_text(&self) -> String {
        let mut out = format!("{} {}  seed {}\n", self.id, self.name, self.seed);
        if let Some(Stop::Skip { reason, .. }) = &self.stop {
            return out + &format!("  SKIP {reason}\n");
        }
        let figures: Vec<String> =
            self.figures.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
        let between = if figures.len() > ON_ONE_LINE { "\n  " } else { ", " };
        out += &format!("  {}\n", figures.join(between));
        let counted: Vec<String> =
            Rule::ALL.iter().map(|rule| format!("{} {}", rule.words(), self.tally.count(*rule))).collect();
        out += &format!("  violations: {}\n", counted.join(", "));
        for detail in self.tally.details() {
            out += &format!("    {detail}\n");
        }
        for (what, found_out) in &self.controls {
            let words = if *found_out { "found out, as it must be" } else { "NOT FOUND OUT" };
            out += &format!("  control: {what}: {words}\n");
        }
        if let Some(Stop::Broken(words)) = &self.stop {
            out += &format!("  the suite broke off: {words}\n");
        }
        out + &format!("  {} in {:.1} s\n", self.verdict(), self.begun.elapsed().as_secs_f64())
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
