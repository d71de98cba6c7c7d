//! What a repair brings back of a damaged store, and whether it deletes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use threadkeep::blocking::Store;
use threadkeep::{Error, ItemId, Severity, Uuid};

use super::pages::Pages;
use super::{ALL, Hurt, Seen, Subject, Target, scene};
use crate::child::say;
use crate::oracle::{Rule, Tally};
use crate::work::told;

/// Of so many damages one is repaired.
pub(super) const EACH: u64 = 4;
/// Tells the process that looks to repair first.
pub(super) const REPAIR: &str = "repair ";
/// Files that a repair may read and must not lose.
const FILES: [&str; 3] = ["threadkeep.db", "threadkeep.db-wal", "threadkeep.db-journal"];

/// Counted over all repairs.
#[derive(Debug, Default)]
pub(super) struct Mended {
    repairs: u64,
    with_rollouts: u64,
    /// Nothing was found that a repair mends.
    no_plan: u64,
    /// Items that could not be read before and are back, and those that are not.
    back: u64,
    held_back: u64,
    lost: u64,
    owed: u64,
}

/// Plays the repair: `k` names the folder of what is kept, `n` says that there is no plan.
pub(super) fn play(root: &Path) {
    let planned = Store::plan_repair(scene::options(root), true).map_err(told);
    let fingerprint = match planned {
        Ok(checkup) => checkup.fingerprint,
        Err(words) => return say(format_args!("X plan {}", words.replace('\n', " "))),
    };
    let Some(fingerprint) = fingerprint else { return say("n") };
    match Store::repair(scene::options(root), &fingerprint) {
        Ok(report) => say(format_args!("k {}", report.kept.unwrap_or_default().display())),
        Err(error) => say(format_args!("X repair {}", told(error).replace('\n', " "))),
    }
    match Store::repair(scene::options(root), &fingerprint) {
        Err(Error::Conflict { what: "plan", .. }) => {}
        other => say(format_args!("X again {}", format!("{other:?}").replace('\n', " "))),
    }
    match Store::examine(scene::options(root), true) {
        Ok(found) => {
            let errors = found.findings.iter().filter(|finding| finding.severity == Severity::Error);
            errors.for_each(|finding| say(format_args!("E {} {}", finding.code, finding.what.replace('\n', " "))));
        }
        Err(error) => say(format_args!("X after {}", told(error).replace('\n', " "))),
    }
}

/// The files of a store before a repair.
pub(super) fn files_of(root: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |name: &&'static str| Some((*name, std::fs::read(scene::store(root).join(name)).ok()?));
    FILES.iter().filter_map(read).collect()
}

/// What a repair is judged by.
pub(super) struct Case<'a> {
    pub(super) subject: &'a Subject,
    pub(super) target: Target,
    pub(super) hurt: &'a Hurt,
    /// What could be read before.
    pub(super) before: &'a Seen,
    pub(super) files: &'a BTreeMap<&'static str, Vec<u8>>,
    pub(super) with_rollouts: bool,
}

impl Case<'_> {
    pub(super) fn judge(&self, lines: &[String], after: &Seen, tally: &mut Tally, mended: &mut Mended) {
        mended.repairs += 1;
        mended.with_rollouts += u64::from(self.with_rollouts);
        let failed = |line: &&String| line.starts_with("X plan") || line.starts_with("X repair");
        if let Some(line) = lines.iter().find(failed) {
            return tally.add(Rule::Misbehaved, format!("a repair that fails: {line}"));
        }
        if lines.iter().any(|line| line == "n") {
            mended.no_plan += 1;
            return;
        }
        for line in lines.iter().filter(|line| line.starts_with("X ") || line.starts_with("E ")) {
            tally.add(Rule::Misbehaved, format!("after a repair: {line}"));
        }
        let kept = lines.iter().find_map(|line| line.strip_prefix("k ")).map(PathBuf::from).unwrap_or_default();
        self.judge_kept(&kept, tally);
        self.judge_items(&held_back(&kept), after, tally, mended);
        self.judge_verdict(after, tally);
    }

    fn judge_kept(&self, kept: &Path, tally: &mut Tally) {
        for (name, bytes) in self.files {
            if std::fs::read(kept.join(name)).ok().as_ref() != Some(bytes) {
                tally.add(Rule::Unnoticed, format!("{name} was not kept as it was"));
            }
        }
    }

    fn judge_items(&self, held_back: &BTreeSet<ItemId>, after: &Seen, tally: &mut Tally, mended: &mut Mended) {
        let whole = &self.subject.seen.items;
        let (mut unread, mut unlisted, mut other) = (Vec::new(), Vec::new(), Vec::new());
        let stored: BTreeSet<ItemId> = after.items.values().map(|read| read.0).collect();
        let mut broken_off = BTreeSet::new();
        for (place, written) in whole {
            let has_pages = self.has_whole_pages(written.0);
            if !has_pages {
                broken_off.insert(place.0.clone());
            }
            let was_read = self.before.items.get(place) == Some(written);
            // What stands behind a lost item follows from nothing; it is listed, and can be read in what is kept.
            let is_owed = self.with_rollouts || (has_pages && !broken_off.contains(&place.0) && self.has_way());
            mended.owed += u64::from(is_owed);
            match after.items.get(place) {
                Some(found) if found == written => {
                    mended.back += u64::from(!was_read);
                    continue;
                }
                Some(_) => other.push(place),
                None => mended.lost += 1,
            }
            if is_owed {
                unread.push(place);
            }
            if (has_pages || was_read) && !held_back.contains(&written.0) && !stored.contains(&written.0) {
                unlisted.push(place);
            }
            mended.held_back += u64::from(held_back.contains(&written.0));
        }
        let stray = after.items.keys().filter(|place| !whole.contains_key(*place));
        other.extend(stray);
        for (rule, places, words) in [
            (Rule::AckedLost, unread, "items are owed and not back"),
            (Rule::Unnoticed, unlisted, "items that are whole are neither back nor listed"),
            (Rule::Altered, other, "items are back otherwise than they were written"),
        ] {
            if let Some(first) = places.first() {
                let rollouts = if self.with_rollouts { "with" } else { "without" };
                let words =
                    format!("{} {words}, {} {} among them, {rollouts} rollouts", places.len(), first.0, first.1);
                tally.add(rule, words);
            }
        }
    }

    /// What is back must verify: only what seals state and is lost may be told.
    fn judge_verdict(&self, after: &Seen, tally: &mut Tally) {
        let lost: BTreeSet<&str> = self
            .subject
            .seen
            .items
            .iter()
            .filter(|(place, written)| after.items.get(*place) != Some(*written))
            .map(|((thread, _), _)| thread.as_str())
            .collect();
        let are_seals_whole =
            self.target.name == "threadkeep.db" && self.subject.map.seals.is_disjoint(&self.hurt.pages);
        for thread in &after.broken {
            let is_explained = match thread.as_str() {
                ALL => !are_seals_whole,
                // What the fork shares is the plain thread's; what was rewound is on no path that is read.
                thread => !lost.is_empty() || !self.subject.map.all.is_disjoint(&self.hurt.pages) && thread == "tree",
            };
            if !is_explained {
                let words = format!("{thread} does not verify after a repair: {:?}", after.told());
                tally.add(Rule::Altered, words);
            }
        }
    }

    fn has_whole_pages(&self, id: ItemId) -> bool {
        self.target.name == "threadkeep.db"
            && self.subject.map.items.get(&id).is_some_and(|pages| pages.is_disjoint(&self.hurt.pages))
    }

    /// Whether the rows are whole that say what the items belong to.
    fn has_way(&self) -> bool {
        let way: &Pages = &self.subject.map.rows;
        way.is_disjoint(&self.hurt.pages)
    }
}

/// The ids of the rows that were listed.
fn held_back(kept: &Path) -> BTreeSet<ItemId> {
    let list = std::fs::read_to_string(kept.join("held-back.jsonl")).unwrap_or_default();
    let id = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let id = STANDARD.decode(line.get("row")?.get(1)?.get("base64")?.as_str()?).ok()?;
        Uuid::from_slice(&id).ok().map(ItemId::from_uuid)
    };
    list.lines().filter_map(id).collect()
}

impl Mended {
    pub(super) fn tell(&self, outcome: &mut crate::report::Outcome) {
        outcome.figure("repairs", self.repairs);
        outcome.figure("of these with rollouts", self.with_rollouts);
        outcome.figure("in which nothing was to be mended", self.no_plan);
        outcome.figure("items owed after a repair", self.owed);
        outcome.figure("items that a repair brought back", self.back);
        outcome.figure("items that were lost after all", self.lost);
        outcome.figure("of these listed with their rows", self.held_back);
    }
}
