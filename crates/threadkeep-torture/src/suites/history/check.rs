//! Whether a history of one thread is one that a single log, doing one thing after the other, could have given.
//!
//! The stored items say in which order they were appended; what else was asked and answered is put between them, each at some
//! moment between its call and its answer. The search is exhaustive, so its answer is exact.

use std::collections::HashSet;

/// An item of the stored log, in the order of appending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The item before it on its path, by its place in the order.
    pub(super) parent: Option<usize>,
    /// The epoch it was written under.
    pub(super) epoch: i64,
}

/// What was done, and what the answer says of the thread at that moment. A handle is named by the operation that got it, a
/// process by its life, an item by its place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A claim that was had; a take-over asks nobody and leaves a note.
    Acquire { handle: usize, note: Option<usize> },
    /// A refusal that names the living holder.
    Held { by: u64 },
    /// A handle is given up.
    Let { handle: usize },
    /// Items were stored, as the handle's own.
    Write { handle: usize, first: usize, size: usize, expect: Option<Option<usize>> },
    /// Items that had been stored before.
    Again { item: usize },
    /// Refused: the claim is somebody else's.
    Lost { handle: usize },
    /// Refused: the head is another one.
    Conflict { handle: usize, expected: Option<usize> },
    /// The head was moved.
    Rewind { handle: usize, to: usize },
    /// A turn was ended, and the thread given to whoever asked for it.
    End { handle: usize, to: Option<u64> },
    /// Somebody asked for the thread.
    Ask,
    /// The head that a reader saw.
    Read { head: Option<usize> },
    /// All that a reader saw of the thread's row.
    Get { holder: Option<u64>, epoch: i64, items: usize, head: Option<usize> },
    /// It was put into the trash.
    Delete,
    /// It was taken out of the trash.
    Restore,
    /// There was no such thread outside of the trash, or (`claim`) no claim on it.
    Missing { claim: bool },
    /// A handle that is no longer the holder's found the thread in the trash.
    Gone { handle: usize },
    /// A process was killed.
    Kill,
}

impl Step {
    /// Whether it never changes anything.
    fn is_observation(&self) -> bool {
        match self {
            Self::Held { .. }
            | Self::Again { .. }
            | Self::Lost { .. }
            | Self::Conflict { .. }
            | Self::Read { .. }
            | Self::Get { .. }
            | Self::Missing { .. }
            | Self::Gone { .. } => true,
            Self::Acquire { .. }
            | Self::Let { .. }
            | Self::Write { .. }
            | Self::Rewind { .. }
            | Self::End { .. }
            | Self::Ask
            | Self::Delete
            | Self::Restore
            | Self::Kill => false,
        }
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Op {
    /// The process.
    pub(super) life: u64,
    /// Called not before.
    pub(super) from: u64,
    /// Answered not after.
    pub(super) to: u64,
    /// Whether it may have had no effect: it was not answered, or its effect is not waited for.
    pub(super) maybe: bool,
    /// What was done.
    pub(super) step: Step,
}

/// What is known of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The thread.
    pub(super) thread: String,
    /// The epoch it began with.
    pub(super) epoch: i64,
    /// The stored items.
    pub(super) log: Vec<Entry>,
    /// What was done.
    pub(super) ops: Vec<Op>,
}

/// Why a history is impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Anomaly {
    /// No order explains this operation; it is the first that could not be placed in the longest order that was found.
    Impossible { step: Step, words: String },
    /// Items are stored that nobody can have written at their place.
    Unexplained { items: usize },
    /// The search took too long, which proves nothing.
    Undecided,
}

/// More states than this are not looked at.
const BOUND: usize = 3_000_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    stored: usize,
    head: Option<usize>,
    epoch: i64,
    /// The handle that holds the claim, and its process.
    holder: Option<(usize, u64)>,
    wanted: Option<u64>,
    trashed: bool,
    /// The processes that were killed, one bit each.
    killed: u64,
}

impl State {
    fn is_dead(&self, life: u64) -> bool {
        self.killed >> (life % 64) & 1 == 1
    }

    fn is_held_by(&self, handle: usize) -> bool {
        self.holder.is_some_and(|(held, life)| held == handle && !self.is_dead(life))
    }

    fn is_lively(&self) -> bool {
        self.holder.is_some_and(|(_, life)| !self.is_dead(life))
    }

    /// The state after an operation, if it can have gone so now.
    fn after(&self, op: &Op, log: &[Entry]) -> Option<Self> {
        let mut next = self.clone();
        let possible = match op.step {
            Step::Acquire { handle, note } => {
                (next.epoch, next.wanted, next.holder) = (self.epoch + 1, None, Some((handle, op.life)));
                let free = note.is_some() || !self.is_lively();
                let noted = note.is_none_or(|note| next.push(note, 1, log));
                free && noted && !self.trashed && !self.is_dead(op.life)
            }
            Step::Held { by } => self.holder.is_some_and(|(_, life)| life == by) && !self.is_dead(by),
            Step::Let { handle } => {
                if self.holder.is_some_and(|(held, _)| held == handle) {
                    (next.holder, next.wanted) = (None, None);
                }
                true
            }
            Step::Write { handle, first, size, expect } => {
                let expected = expect.is_none_or(|expected| expected == self.head);
                self.is_held_by(handle) && expected && next.push(first, size, log)
            }
            Step::Again { item } => item < self.stored,
            Step::Lost { handle } => self.holder.is_none_or(|(held, _)| held != handle),
            Step::Conflict { handle, expected } => self.is_held_by(handle) && self.head != expected,
            Step::Rewind { handle, to } => {
                next.head = Some(to);
                self.is_held_by(handle) && to < self.stored
            }
            Step::End { handle, to } => {
                if to.is_some() {
                    (next.holder, next.wanted) = (None, None);
                }
                self.is_held_by(handle) && self.wanted == to
            }
            Step::Ask => {
                next.wanted = Some(op.life);
                self.holder.is_some()
            }
            Step::Read { head } => self.head == head,
            Step::Get { holder, epoch, items, head } => {
                let seen = (self.holder.map(|(_, life)| life), self.epoch, self.stored, self.head);
                seen == (holder, epoch, items, head)
            }
            Step::Delete => {
                next.trashed = true;
                !self.is_lively()
            }
            Step::Restore => {
                // Another one may have done it meanwhile.
                next.trashed = false;
                true
            }
            Step::Missing { claim: false } => self.trashed,
            Step::Missing { claim: true } => self.trashed || self.holder.is_none(),
            Step::Gone { handle } => self.trashed && self.holder.is_none_or(|(held, _)| held != handle),
            Step::Kill => {
                next.killed |= 1 << (op.life % 64);
                true
            }
        };
        possible.then_some(next)
    }

    /// The next items of the log are these, they continue the head, and their epoch is the current one.
    fn push(&mut self, first: usize, size: usize, log: &[Entry]) -> bool {
        let Some(entries) = log.get(first..first + size).filter(|_| first == self.stored) else { return false };
        for (place, entry) in (first..).zip(entries) {
            if entry.parent != self.head || entry.epoch != self.epoch {
                return false;
            }
            self.head = Some(place);
        }
        self.stored += size;
        true
    }
}

/// Searches for an order; `None` when there is one.
pub(super) fn anomaly(history: &History) -> Option<Anomaly> {
    let mut ops: Vec<&Op> = history.ops.iter().collect();
    ops.sort_by_key(|op| op.from);
    let optional = (0..ops.len()).filter(|place| ops.get(*place).is_some_and(|op| op.maybe)).collect();
    let mut search = Search {
        done: vec![false; ops.len()],
        left: ops.iter().filter(|op| !op.maybe).count(),
        ops,
        optional,
        log: &history.log,
        seen: HashSet::new(),
        mark: 0,
        deepest: (usize::MAX, None),
        complete: 0,
    };
    let start =
        State { stored: 0, head: None, epoch: history.epoch, holder: None, wanted: None, trashed: false, killed: 0 };
    if search.go(&start, 0) {
        return None;
    }
    if search.seen.len() >= BOUND {
        return Some(Anomaly::Undecided);
    }
    Some(match search.deepest {
        (left, Some((place, words))) if left > 0 => match search.ops.get(place) {
            Some(op) => Anomaly::Impossible { step: op.step.clone(), words },
            None => Anomaly::Undecided,
        },
        _ => Anomaly::Unexplained { items: history.log.len() - search.complete },
    })
}

struct Search<'a> {
    ops: Vec<&'a Op>,
    optional: Vec<usize>,
    done: Vec<bool>,
    /// How many operations must still be placed.
    left: usize,
    log: &'a [Entry],
    /// Which operations were placed (as a sum of their marks), and the state then.
    seen: HashSet<(u64, State)>,
    mark: u64,
    /// How few were left at best, and what stood in the way then.
    deepest: (usize, Option<(usize, String)>),
    /// How many items were explained at best when every operation had its place.
    complete: usize,
}

impl Search<'_> {
    /// Places what can come next. What changes nothing is placed as soon as it can be, which rules no order out.
    fn go(&mut self, state: &State, low: usize) -> bool {
        let mut observed = Vec::new();
        loop {
            let is_observation = |place: &usize| {
                let op = self.ops.get(*place).filter(|op| op.step.is_observation() && !op.maybe);
                op.is_some_and(|op| state.after(op, self.log).is_some())
            };
            let more: Vec<usize> = self.candidates(low).into_iter().filter(is_observation).collect();
            if more.is_empty() {
                break;
            }
            more.iter().for_each(|place| self.place(*place, true, false));
            observed.extend(more);
        }
        let found = self.branch(state, low);
        if !found {
            observed.into_iter().for_each(|place| self.place(place, false, false));
        }
        found
    }

    fn branch(&mut self, state: &State, low: usize) -> bool {
        if self.left == 0 {
            self.complete = self.complete.max(state.stored);
            if state.stored == self.log.len() {
                return true;
            }
        }
        if self.seen.len() >= BOUND || !self.seen.insert((self.mark, state.clone())) {
            return false;
        }
        let low = (low..self.ops.len()).find(|place| self.is_due(*place)).unwrap_or(self.ops.len());
        let candidates = self.candidates(low);
        if self.left < self.deepest.0 {
            let first = candidates.iter().copied().find(|place| self.is_due(*place));
            let words = first.and_then(|place| self.ops.get(place)).map(|op| format!("{op:?} in {state:?}"));
            self.deepest = (self.left, first.zip(words));
        }
        for place in candidates {
            let Some(op) = self.ops.get(place).copied() else { continue };
            let Some(next) = state.after(op, self.log) else { continue };
            if op.maybe && next == *state {
                continue;
            }
            self.place(place, true, op.maybe);
            if self.go(&next, low) {
                return true;
            }
            self.place(place, false, op.maybe);
        }
        false
    }

    /// Whether it has no place yet and must have one.
    fn is_due(&self, place: usize) -> bool {
        self.done.get(place) == Some(&false) && self.ops.get(place).is_some_and(|op| !op.maybe)
    }

    /// What can come next: whatever was called before the first answer that is still due, that first.
    fn candidates(&self, low: usize) -> Vec<usize> {
        let mut bound = u64::MAX;
        let mut found = Vec::new();
        for place in low..self.ops.len() {
            let Some(op) = self.ops.get(place) else { break };
            if op.from > bound {
                break;
            }
            if self.is_due(place) {
                bound = bound.min(op.to);
                found.push(place);
            }
        }
        let to = |place: &usize| self.ops.get(*place).map_or(0, |op| op.to);
        let from = |place: usize| self.ops.get(place).map_or(u64::MAX, |op| op.from);
        found.retain(|place| from(*place) <= bound);
        found.sort_by_key(to);
        let optional = self.optional.iter().copied();
        found.extend(optional.filter(|place| self.done.get(*place) == Some(&false) && from(*place) <= bound));
        found
    }

    fn place(&mut self, place: usize, done: bool, maybe: bool) {
        if let Some(mark) = self.done.get_mut(place) {
            *mark = done;
        }
        // Chosen so that two sets of operations have the same sum by an unlikely accident alone.
        self.mark ^=
            (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        match (maybe, done) {
            (true, _) => {}
            (false, true) => self.left -= 1,
            (false, false) => self.left += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Anomaly, Entry, History, Op, Step, anomaly};

    fn op(life: u64, from: u64, to: u64, step: Step) -> Op {
        Op { life, from, to, maybe: false, step }
    }

    /// One process claims and appends three items, two of them with an expectation; another one reads and is refused.
    fn honest() -> History {
        let entry = |parent| Entry { parent, epoch: 1 };
        let write = |first: usize, expect| Step::Write { handle: 0, first, size: 1, expect };
        History {
            thread: "t".to_owned(),
            epoch: 0,
            log: vec![entry(None), entry(Some(0)), entry(Some(1))],
            ops: vec![
                op(1, 0, 10, Step::Acquire { handle: 0, note: None }),
                op(1, 20, 30, write(0, None)),
                op(2, 25, 60, Step::Read { head: Some(0) }),
                op(1, 40, 50, write(1, Some(Some(0)))),
                op(2, 61, 70, Step::Held { by: 1 }),
                op(1, 62, 72, write(2, Some(Some(1)))),
                op(2, 80, 90, Step::Read { head: Some(2) }),
            ],
        }
    }

    fn doctored(doctor: impl FnOnce(&mut History)) -> Option<Anomaly> {
        let mut history = honest();
        doctor(&mut history);
        anomaly(&history)
    }

    #[test]
    fn an_honest_history_has_an_order() {
        assert_eq!(doctored(|_| {}), None);
        assert_eq!(doctored(|it| it.ops[2].step = Step::Read { head: Some(1) }), None);
    }

    #[test]
    fn what_no_log_can_have_answered_is_found_out() {
        type Doctor = fn(&mut History);
        let doctors: [(&str, Doctor); 8] = [
            ("a stale read", |it| it.ops[6].step = Step::Read { head: Some(1) }),
            ("a read of what comes later", |it| it.ops[2].step = Step::Read { head: Some(2) }),
            ("a lost append", |it| it.log.truncate(2)),
            ("an append that nobody made", |it| it.log.push(Entry { parent: Some(2), epoch: 1 })),
            ("two appends in the other order", |it| {
                it.ops[3].step = Step::Write { handle: 0, first: 2, size: 1, expect: None };
                it.ops[5].step = Step::Write { handle: 0, first: 1, size: 1, expect: None };
            }),
            ("two appends that expected the same head", |it| {
                it.ops[5].step = Step::Write { handle: 0, first: 2, size: 1, expect: Some(Some(0)) };
            }),
            ("a claim beside a live holder", |it| it.ops[4].step = Step::Acquire { handle: 4, note: None }),
            ("an append under a fallen epoch", |it| it.log[2].epoch = 0),
        ];
        for (what, doctor) in doctors {
            assert!(doctored(doctor).is_some_and(|found| found != Anomaly::Undecided), "{what}");
        }
    }

    #[test]
    fn what_was_not_answered_may_have_happened_or_not() {
        let killed = |it: &mut History| {
            it.ops[5].maybe = true;
            it.ops.push(op(1, 74, 76, Step::Kill));
            it.ops.push(op(2, 77, 79, Step::Acquire { handle: 8, note: None }));
        };
        assert_eq!(doctored(killed), None);
        let lost = |it: &mut History| {
            killed(it);
            it.log.pop();
            it.ops.remove(5);
            it.ops[5].step = Step::Read { head: Some(1) };
        };
        assert_eq!(doctored(lost), None);
    }
}
