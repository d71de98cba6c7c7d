//! The table.

use std::fmt;

use crate::measure::Samples;

/// What a figure is held against.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// No target: it stands there to explain others.
    None,
    /// The figure may be at most this.
    AtMost(f64),
    /// The figure must be at least this.
    AtLeast(f64),
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Line {
    /// The id of the target.
    pub id: &'static str,
    /// What was measured.
    pub what: String,
    /// Our figures.
    pub ours: String,
    /// The figures of the floor, or of the other size.
    pub floor: String,
    /// The figure that is judged, in the unit of the target.
    pub figure: f64,
    /// How the figure is written.
    pub unit: Unit,
    /// What it is held against.
    pub target: Target,
}

/// How a judged figure is written.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// A ratio.
    Times,
    /// Seconds.
    Time,
    /// A plain number.
    Number,
}

/// The lines of a run, and notes to them.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The lines, in the order of the run.
    pub lines: Vec<Line>,
    /// What is said below the table.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a line that compares two sides by a ratio.
    pub fn compare(
        &mut self,
        id: &'static str,
        what: impl Into<String>,
        sides: (String, String),
        ratio: f64,
        target: Target,
    ) {
        let (ours, floor) = sides;
        self.lines.push(Line { id, what: what.into(), ours, floor, figure: ratio, unit: Unit::Times, target });
    }

    /// Adds a line about a time; the other side stands there to compare.
    pub fn time(
        &mut self,
        id: &'static str,
        what: impl Into<String>,
        sides: (String, String),
        seconds: f64,
        target: Target,
    ) {
        let ((ours, floor), what) = (sides, what.into());
        self.lines.push(Line { id, what, ours, floor, figure: seconds, unit: Unit::Time, target });
    }

    /// Adds a line about a plain number.
    pub fn number(
        &mut self,
        id: &'static str,
        what: impl Into<String>,
        sides: (String, String),
        figure: f64,
        target: Target,
    ) {
        let ((ours, floor), what) = (sides, what.into());
        self.lines.push(Line { id, what, ours, floor, figure, unit: Unit::Number, target });
    }

    /// Adds a line below the table.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

impl Line {
    fn verdict(&self) -> &'static str {
        let met = match self.target {
            Target::None => return "",
            Target::AtMost(bound) => self.figure <= bound,
            Target::AtLeast(bound) => self.figure >= bound,
        };
        if met { "met" } else { "**missed**" }
    }
}

impl Unit {
    fn show(self, figure: f64) -> String {
        match self {
            Self::Times => format!("{figure:.2} ×"),
            Self::Time => time(figure),
            Self::Number => format!("{figure:.3}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| id | what | ours | floor | figure | target | |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        for line in &self.lines {
            let target = match line.target {
                Target::None => String::new(),
                Target::AtMost(bound) => format!("≤ {}", line.unit.show(bound)),
                Target::AtLeast(bound) => format!("≥ {}", line.unit.show(bound)),
            };
            let figure = line.unit.show(line.figure);
            let verdict = line.verdict();
            writeln!(
                f,
                "| {} | {} | {} | {} | {figure} | {target} | {verdict} |",
                line.id, line.what, line.ours, line.floor
            )?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "* {note}"))
    }
}

/// A time in the unit that suits it.
pub fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.1} µs", seconds * 1e6),
    }
}

/// The wall-clock figures of one side.
pub fn wall(samples: &Samples) -> String {
    format!("{} / {}", time(samples.p50()), time(samples.p99()))
}

/// The CPU time of one side, with its wall-clock figures.
pub fn cpu(samples: &Samples) -> String {
    format!("{} CPU ({})", time(samples.cpu()), wall(samples))
}

#[cfg(test)]
mod tests {
    use super::{Report, Target, time};

    #[test]
    fn figures_are_judged_by_their_targets() {
        let mut report = Report::default();
        let sides = || ("1".to_owned(), "2".to_owned());
        report.compare("P1", "met", sides(), 1.2, Target::AtMost(1.3));
        report.compare("P2", "missed", sides(), 0.3, Target::AtLeast(0.35));
        report.note("a note");
        let table = report.to_string();
        assert!(table.contains("| P1 | met | 1 | 2 | 1.20 × | ≤ 1.30 × | met |"), "{table}");
        assert!(table.contains("| ≥ 0.35 × | **missed** |"), "{table}");
        assert!(table.ends_with("\n* a note\n"));
        assert_eq!([2.0, 2e-3, 2e-6].map(time), ["2.00 s", "2.00 ms", "2.0 µs"]);
    }
}
