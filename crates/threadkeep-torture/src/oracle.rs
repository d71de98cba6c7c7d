//! The rules by which every suite judges, and the account of what was issued and acknowledged.
//!
//! *Acknowledged* is what was said to have succeeded before the fault began. Everything else is *in flight*: it may be there
//! or not, but whole, once, and in order.

use std::collections::{BTreeMap, BTreeSet};

use threadkeep::{Hash, ItemId};

use crate::work;

/// How many violations are told in words.
const TOLD: usize = 12;

/// A rule that can be violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Something acknowledged is missing.
    AckedLost,
    /// Something is missing between things of one writer, a batch is not whole, or the order is another one.
    Hole,
    /// The same item stands twice.
    Duplicate,
    /// An item that nobody issued, or that was refused for good, is there.
    Phantom,
    /// Other bytes, another place or another hash than was acknowledged; a chain that does not verify.
    Altered,
    /// Two processes may write one thread at the same time.
    TwoWriters,
    /// Somebody wrote under an epoch that was no longer current.
    StaleWriter,
    /// A process said nothing for longer than the bound.
    Hang,
    /// Two fresh processes read different things.
    Unequal,
    /// A process could not go on though the fault had ended, ended by a signal that nobody sent, or let something out.
    Misbehaved,
    /// Something wrong that was done on purpose was not noticed.
    Unnoticed,
}

impl Rule {
    /// All rules.
    pub(crate) const ALL: [Self; 11] = [
        Self::AckedLost,
        Self::Hole,
        Self::Duplicate,
        Self::Phantom,
        Self::Altered,
        Self::TwoWriters,
        Self::StaleWriter,
        Self::Hang,
        Self::Unequal,
        Self::Misbehaved,
        Self::Unnoticed,
    ];

    /// Its name.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::AckedLost => "acked lost",
            Self::Hole => "holes",
            Self::Duplicate => "duplicates",
            Self::Phantom => "phantoms",
            Self::Altered => "altered",
            Self::TwoWriters => "two writers",
            Self::StaleWriter => "stale writers",
            Self::Hang => "hangs",
            Self::Unequal => "unequal reads",
            Self::Misbehaved => "misbehaved",
            Self::Unnoticed => "unnoticed",
        }
    }
}

/// Violations, counted apart.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<Rule, u64>,
    details: Vec<String>,
}

impl Tally {
    /// Counts a violation.
    pub(crate) fn add(&mut self, rule: Rule, detail: impl Into<String>) {
        *self.counts.entry(rule).or_default() += 1;
        if self.details.len() < TOLD {
            self.details.push(format!("{}: {}", rule.words(), detail.into()));
        }
    }

    /// Takes over what another one counted, each detail with a word on where it was.
    pub(crate) fn absorb(&mut self, other: Self, place: &str) {
        for (rule, count) in other.counts {
            *self.counts.entry(rule).or_default() += count;
        }
        let room = TOLD.saturating_sub(self.details.len());
        self.details.extend(other.details.into_iter().take(room).map(|detail| format!("{place}: {detail}")));
    }

    /// The same without the violations of one rule.
    pub(crate) fn without(mut self, rule: Rule) -> Self {
        self.counts.remove(&rule);
        self.details.retain(|detail| !detail.contains(&format!(" {}: ", rule.words())));
        self
    }

    /// How many violations there are.
    pub(crate) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// How often a rule was violated.
    pub(crate) fn count(&self, rule: Rule) -> u64 {
        self.counts.get(&rule).copied().unwrap_or(0)
    }

    /// The rules that were violated.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counts.iter().map(|(rule, count)| (rule.words(), *count)).collect()
    }

    /// The first violations in words.
    pub(crate) fn details(&self) -> &[String] {
        &self.details
    }

    /// Whether nothing was violated.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// An item as a fresh process found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its id.
    pub(crate) id: ItemId,
    /// The hash of its content.
    pub(crate) content: Hash,
    /// Its depth.
    pub(crate) depth: u64,
    /// Its link of the chain.
    pub(crate) hash: Hash,
    /// The epoch it was written under.
    pub(crate) epoch: i64,
}

impl Found {
    /// Reads a line of the checker.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [id, content, depth, hash, epoch] = words else { return None };
        Some(Self {
            id: id.parse().ok()?,
            content: content.parse().ok()?,
            depth: depth.parse().ok()?,
            hash: hash.parse().ok()?,
            epoch: epoch.parse().ok()?,
        })
    }

    /// Goes on with a digest over items.
    pub(crate) fn chain(&self, before: Hash) -> Hash {
        let mut bytes = before.0.to_vec();
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(&self.content.0);
        bytes.extend_from_slice(&self.depth.to_le_bytes());
        bytes.extend_from_slice(&self.hash.0);
        Hash::of(&bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    InFlight,
    Acked,
    /// Refused for good: it must not be there.
    Refused,
    /// Its writer can't tell: it may be there or not, wherever it stands.
    GivenUp,
}

#[derive(Debug, Clone)]
struct Batch {
    life: u64,
    first: u64,
    size: u64,
    standing: Standing,
    /// The hash of its last item, where the acknowledgement named it.
    hash: Option<Hash>,
}

/// One thread: what was found before, and what was issued since.
#[derive(Debug, Clone)]
struct Lane {
    lane: u64,
    settled: u64,
    digest: Hash,
    epoch: i64,
    batches: Vec<Batch>,
}

/// The account of what was issued and acknowledged, thread by thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    lanes: BTreeMap<String, Lane>,
    /// How many items were acknowledged so far.
    pub(crate) acked: u64,
    /// How many items were in flight when a fault came.
    pub(crate) in_flight: u64,
}

impl Journal {
    /// Begins the account of a thread. The lane's number is part of its items' ids.
    pub(crate) fn open(&mut self, thread: &str, lane: u64) {
        let fresh = || Lane { lane, settled: 0, digest: Hash([0; 32]), epoch: 0, batches: Vec::new() };
        self.lanes.entry(thread.to_owned()).or_insert_with(fresh);
    }

    /// Up to which depth each thread has been judged.
    pub(crate) fn settled(&self) -> Vec<(String, u64)> {
        self.lanes.iter().map(|(thread, lane)| (thread.clone(), lane.settled)).collect()
    }

    /// The digest over all that was judged of each thread.
    pub(crate) fn digests(&self) -> Vec<(String, u64, Hash)> {
        self.lanes.iter().map(|(thread, lane)| (thread.clone(), lane.settled, lane.digest)).collect()
    }

    /// Hears a line of a writer: `I` issues a batch, `A` acknowledges one, `E` says how one failed, `N` that it was refused.
    pub(crate) fn hear(&mut self, thread: &str, life: u64, words: &[&str]) {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let (Some(lane), Some(first), Some(size)) = (self.lanes.get_mut(thread), number(2), number(3)) else { return };
        let mut known = lane.batches.iter_mut().rev();
        match words.first() {
            Some(&"I") => {
                lane.batches.push(Batch { life, first, size, standing: Standing::InFlight, hash: None });
            }
            Some(&"A") => {
                if let Some(batch) = known.find(|batch| batch.life == life && batch.first == first) {
                    batch.standing = Standing::Acked;
                    batch.hash = words.get(4).and_then(|word| word.parse().ok());
                    self.acked += size;
                }
            }
            Some(&"E" | &"N") => {
                let standing = match words.get(4) {
                    None | Some(&"final") => Standing::Refused,
                    Some(&"given-up") => Standing::GivenUp,
                    Some(_) => Standing::InFlight,
                };
                let found = known.find(|batch| batch.life == life && batch.first == first);
                // An acknowledgement can't be taken back.
                if let Some(batch) = found.filter(|batch| batch.standing != Standing::Acked) {
                    batch.standing = standing;
                }
            }
            _ => {}
        }
    }

    /// Whether something was issued and not acknowledged: the writer was busy.
    pub(crate) fn is_busy(&self, thread: &str) -> bool {
        self.lanes
            .get(thread)
            .and_then(|lane| lane.batches.last())
            .is_some_and(|batch| batch.standing == Standing::InFlight)
    }

    /// Judges what a fresh process found of a thread from the settled depth on, and settles it.
    pub(crate) fn judge(&mut self, thread: &str, found: &[Found], tally: &mut Tally) {
        let Some(lane) = self.lanes.get_mut(thread) else {
            tally.add(Rule::Phantom, format!("the thread {thread}"));
            return;
        };
        let waiting = lane.batches.iter().filter(|batch| batch.standing == Standing::InFlight);
        self.in_flight += waiting.map(|batch| batch.size).sum::<u64>();
        lane.judge(thread, found, tally);
    }
}

impl Lane {
    fn judge(&mut self, thread: &str, found: &[Found], tally: &mut Tally) {
        let mut places: BTreeMap<ItemId, (usize, u64, u64)> = BTreeMap::new();
        for (index, batch) in self.batches.iter().enumerate() {
            for number in batch.first..batch.first + batch.size {
                places.insert(work::item_id(batch.life, self.lane, number), (index, batch.life, number));
            }
        }
        let mut seen: BTreeSet<ItemId> = BTreeSet::new();
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        let mut last: Option<(usize, u64)> = None;
        for item in found {
            self.judge_place(thread, item, tally);
            let Some((index, life, number)) = places.get(&item.id).copied() else {
                let again = self.was_settled(item.id);
                tally.add(if again { Rule::Duplicate } else { Rule::Phantom }, format!("{thread} {}", item.id));
                continue;
            };
            if !seen.insert(item.id) {
                tally.add(Rule::Duplicate, format!("{thread} {life}/{number}"));
                continue;
            }
            if last.is_some_and(|last| last >= (index, number)) {
                tally.add(Rule::Hole, format!("{thread} {life}/{number} comes after what was issued later"));
            }
            last = Some((index, number));
            *counts.entry(index).or_default() += 1;
            if item.content != Hash::of(&work::content(life, self.lane, number)) {
                tally.add(Rule::Altered, format!("the content of {thread} {life}/{number}"));
            }
            let batch = self.batches.get(index).filter(|batch| number + 1 == batch.first + batch.size);
            if batch.and_then(|batch| batch.hash).is_some_and(|hash| hash != item.hash) {
                tally.add(Rule::Altered, format!("the hash of {thread} {life}/{number} is not the acknowledged one"));
            }
        }
        self.judge_batches(thread, &counts, tally);
        self.batches.clear();
    }

    /// The depth follows the last one, and the epoch does not fall.
    fn judge_place(&mut self, thread: &str, item: &Found, tally: &mut Tally) {
        if item.depth != self.settled {
            tally.add(Rule::Hole, format!("{thread}: depth {} follows {}", item.depth, self.settled));
        }
        if item.epoch < self.epoch {
            tally.add(Rule::StaleWriter, format!("{thread}: epoch {} after {}", item.epoch, self.epoch));
        }
        self.settled = item.depth + 1;
        self.epoch = item.epoch;
        self.digest = item.chain(self.digest);
    }

    fn judge_batches(&self, thread: &str, counts: &BTreeMap<usize, u64>, tally: &mut Tally) {
        let count = |index: usize| counts.get(&index).copied().unwrap_or(0);
        for (index, batch) in self.batches.iter().enumerate() {
            let there = count(index);
            let name = format!("{thread} {}/{}+{}", batch.life, batch.first, batch.size);
            let later = self.batches.iter().enumerate().skip(index + 1);
            let goes_on = later.filter(|(_, other)| other.life == batch.life).any(|(later, _)| count(later) > 0);
            match batch.standing {
                Standing::Acked if there == 0 => {
                    if goes_on {
                        tally.add(Rule::Hole, format!("{name} is missing before others"));
                    }
                    tally.add(Rule::AckedLost, name);
                }
                Standing::Refused if there > 0 => tally.add(Rule::Phantom, format!("{name} was refused for good")),
                Standing::InFlight if there == 0 && goes_on => tally.add(Rule::Hole, name),
                _ if there != 0 && there != batch.size => tally.add(Rule::Hole, format!("{name}: {there} of them")),
                _ => {}
            }
        }
    }

    /// Whether the item belongs to a life that was judged before.
    fn was_settled(&self, id: ItemId) -> bool {
        let (life, lane) = work::origin(id);
        lane == self.lane && self.batches.first().is_none_or(|batch| life < batch.life) && life > 0
    }
}

/// Judges doctored findings, one for each rule about items; says which of them were not noticed. The oracle's own control.
pub(crate) fn unnoticed() -> Vec<&'static str> {
    let honest: Vec<Found> = (0..4)
        .map(|number| Found {
            id: work::item_id(1, 0, number),
            content: Hash::of(&work::content(1, 0, number)),
            depth: number,
            hash: Hash([u8::try_from(number).unwrap_or(0); 32]),
            epoch: 1,
        })
        .collect();
    let judge = |doctor: &dyn Fn(&mut Vec<Found>)| {
        let (mut journal, mut tally) = (Journal::default(), Tally::default());
        journal.open("t", 0);
        for number in ["0", "1", "2", "3"] {
            journal.hear("t", 1, &["I", "0", number, "1"]);
            let hash = Hash([number.parse().unwrap_or(0); 32]).to_string();
            journal.hear("t", 1, &["A", "0", number, "1", &hash]);
        }
        let mut found = honest.clone();
        doctor(&mut found);
        journal.judge("t", &found, &mut tally);
        tally
    };
    type Doctor = fn(&mut Vec<Found>);
    let doctors: [(Rule, Doctor); 7] = [
        (Rule::AckedLost, |found| found.truncate(3)),
        (Rule::Hole, |found| found.retain(|item| item.depth != 1)),
        (Rule::Hole, |found| found.swap(0, 1)),
        (Rule::Duplicate, |found| found.extend(found.first().cloned())),
        (Rule::Phantom, |found| {
            found.extend(found.first().cloned().map(|item| Found { id: work::item_id(9, 7, 0), ..item }));
        }),
        (Rule::Altered, |found| found.iter_mut().for_each(|item| item.content = Hash([9; 32]))),
        (Rule::StaleWriter, |found| found.iter_mut().take(1).for_each(|item| item.epoch = 2)),
    ];
    let mut missed: Vec<&str> =
        doctors.iter().filter(|(rule, doctor)| judge(doctor).count(*rule) == 0).map(|(rule, _)| rule.words()).collect();
    if !judge(&|_| {}).is_empty() {
        missed.push("honest findings");
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::unnoticed;

    #[test]
    fn every_rule_about_items_is_noticed_and_honest_findings_pass() {
        assert_eq!(unnoticed(), Vec::<&str>::new());
    }
}
