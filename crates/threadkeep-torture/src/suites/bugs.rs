//! T22: what others were told of their stores, asked of this one: for each row of the public bug reports what asks it.

mod deaths;
mod places;
mod races;

use crate::plan::Plan;
use crate::report::{Outcome, Stop};
use crate::suites::{Run, Suite, kills};

pub(super) use deaths::unanswered;
pub(crate) use deaths::{Drill, play_drill};
pub(super) use races::one_head;

/// What asks a row.
#[derive(Debug)]
pub(super) enum Target {
    /// A run of its own, by a name.
    Own(&'static str, Suite),
    /// These suites.
    Suites(&'static [&'static str]),
    /// Tests of the crates alone.
    Tests(&'static str),
}

/// A row of the public bug reports.
#[derive(Debug)]
pub(super) struct Row {
    /// Its id.
    pub(super) id: &'static str,
    target: Target,
}

impl Row {
    /// The runs that ask it.
    pub(super) fn runs(&self) -> Vec<&'static str> {
        match self.target {
            Target::Own(..) => vec![self.id],
            Target::Suites(suites) => suites.to_vec(),
            Target::Tests(_) => Vec::new(),
        }
    }

    /// What asks it, in words.
    pub(super) fn words(&self) -> String {
        match self.target {
            Target::Own(name, _) => format!("{} is asked by a run of its own: {name}", self.id),
            Target::Suites(suites) => format!("{} is asked by {}", self.id, suites.join(", ")),
            Target::Tests(tests) => format!("{} is asked by tests alone: {tests}", self.id),
        }
    }
}

const fn row(id: &'static str, target: Target) -> Row {
    Row { id, target }
}

/// The rows of the classes A, B, C, D and F.
pub(super) const ROWS: [Row; 29] = [
    row("B01", Target::Suites(&["T06"])),
    row("B02", Target::Suites(&["T01", "T02", "T03"])),
    row("B03", Target::Suites(&["T01", "T02", "T03"])),
    row("B04", Target::Suites(&["T01", "T03"])),
    row("B05", Target::Suites(&["T06"])),
    row("B06", Target::Suites(&["T02"])),
    row("B10", Target::Suites(&["T09", "T10"])),
    row("B11", Target::Suites(&["T09", "T10"])),
    row("B13", Target::Own("many-processes", races::many_processes)),
    row("B14", Target::Suites(&["T01", "T10"])),
    row("B15", Target::Suites(&["T10"])),
    row("B16", Target::Suites(&["T09"])),
    row("B17", Target::Own("killed-creators", deaths::killed_creators)),
    row("B18", Target::Own("one-head", one_head)),
    row("B19", Target::Suites(&["T13"])),
    row("B20", Target::Own("kept-out", races::kept_out)),
    row("B23", Target::Own("killed-turns", deaths::killed_turns)),
    row("B24", Target::Own("cancelled", races::cancelled)),
    row("B25", Target::Own("unanswered", unanswered)),
    row("B26", Target::Suites(&["T12"])),
    row("B27", Target::Suites(&["T12"])),
    row("B29", Target::Own("unknown-words", places::unknown_words)),
    row("B30", Target::Own("streams", places::streams)),
    row("B31", Target::Own("paths", places::paths)),
    row("B35", Target::Tests("nothing_vanishes_by_itself, retention_is_off_until_it_is_asked_for")),
    row("B43", Target::Suites(&["T11"])),
    row("B44", Target::Tests("damaged_pages_are_told_and_never_a_panic; there is no search index yet")),
    row("B45", Target::Suites(&["T06"])),
    row(
        "B47",
        Target::Tests(
            "every_backup_holds_what_was_acknowledged_before_it_began, what_is_no_whole_backup_is_refused_and_touches_nothing",
        ),
    ),
];

/// The rows that have runs of their own.
pub(super) fn own() -> impl Iterator<Item = Run> {
    ROWS.iter().filter_map(|row| match row.target {
        Target::Own(name, run) => Some((row.id, name, run)),
        Target::Suites(_) | Target::Tests(_) => None,
    })
}

/// The control of the runs whose writers are those of the suites.
fn lying_writers(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let (killed, found_out) = kills::control(plan)?;
    outcome.control(format!("writers that acknowledge before they store, {killed} kills"), found_out);
    Ok(())
}
