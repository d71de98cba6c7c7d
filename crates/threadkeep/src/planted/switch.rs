//! Which defect is at work, in a build that has them.

use std::sync::OnceLock;

use super::{ALL, Defect};

/// Names the one that is at work.
const VARIABLE: &str = "THREADKEEP_PLANTED_DEFECT";

/// The defect that is at work; it is chosen once, when it is first asked for.
pub(super) fn chosen() -> Option<Defect> {
    static CHOSEN: OnceLock<Option<Defect>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let wanted = std::env::var(VARIABLE).ok()?;
        ALL.iter().find(|(_, name, _)| *name == wanted).map(|(defect, ..)| *defect)
    })
}

/// Every defect that the variable `THREADKEEP_PLANTED_DEFECT` can name, with what it does.
pub fn planted_defects() -> Vec<(&'static str, &'static str)> {
    ALL.iter().map(|(_, name, words)| (*name, words.trim())).collect()
}
