//! Whether the clock can be believed: pure.
//!
//! A clock that leaps ahead makes everything look old. It can't be told from a store that nobody used for a while, but for what came
//! before: while a store is used its times stand close to each other, up to now. Where there is a gap just before now, ages are not
//! judged. Once times of a whole day stand behind the gap, the clock is believed.

use std::time::Duration;

use crate::retention::millis;
use crate::time::Timestamp;

/// A gap this long may be a leap.
pub(crate) const LEAP: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// So long the times behind a gap must reach before it is believed.
pub(crate) const SETTLED: Duration = Duration::from_secs(24 * 60 * 60);

/// What the times that are known say of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// It can be believed, whatever other times are known.
    Settled,
    /// Nothing speaks against it in the times that were seen.
    Plausible,
    /// There is a gap just before now, after this time.
    Leapt(Timestamp),
}

/// Judges a clock by the times that the store knows. Those after now say nothing: one of the two was wrong then.
pub(crate) fn judge(now: Timestamp, known: &[Timestamp]) -> Clock {
    let mut times: Vec<i64> = known.iter().map(|time| time.0).filter(|time| *time <= now.0).collect();
    times.sort_unstable();
    let mut last = now.0;
    for time in times.into_iter().rev() {
        if now.0.saturating_sub(last) >= millis(SETTLED) {
            return Clock::Settled;
        }
        if last.saturating_sub(time) > millis(LEAP) {
            return Clock::Leapt(Timestamp(time));
        }
        last = time;
    }
    if now.0.saturating_sub(last) >= millis(SETTLED) { Clock::Settled } else { Clock::Plausible }
}

/// From when to when runs have seen a clock without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Seen {
    /// The times in between, close enough to each other.
    pub(crate) fn times(self) -> Vec<Timestamp> {
        let step = usize::try_from(millis(LEAP)).unwrap_or(usize::MAX);
        // More of them say nothing that these do not: the newest are looked at.
        let times = (self.from.0..=self.to.0).rev().step_by(step).take(8).map(Timestamp);
        times.chain([self.from].into_iter().filter(|from| self.to.0.saturating_sub(from.0) <= millis(LEAP))).collect()
    }

    /// What is seen after a run at this time.
    pub(crate) fn with(seen: Option<Self>, now: Timestamp) -> Self {
        match seen {
            Some(seen) if (0..=millis(LEAP)).contains(&now.0.saturating_sub(seen.to.0)) => Self { to: now, ..seen },
            _ => Self { from: now, to: now },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Seen, judge};
    use crate::time::Timestamp;

    const HOUR: i64 = 60 * 60 * 1_000;
    const DAY: i64 = 24 * HOUR;
    const NOW: i64 = 1_000 * DAY;

    fn judged(ago: &[i64]) -> Clock {
        let times: Vec<Timestamp> = ago.iter().map(|ago| Timestamp(NOW - ago)).collect();
        judge(Timestamp(NOW), &times)
    }

    #[test]
    fn a_store_in_use_believes_its_clock() {
        assert_eq!(judged(&[]), Clock::Plausible);
        assert_eq!(judged(&[0, 5, HOUR]), Clock::Plausible);
        assert_eq!(judged(&[HOUR, 25 * HOUR, 900 * DAY]), Clock::Settled);
        assert_eq!(judged(&[6 * DAY, 900 * DAY]), Clock::Settled, "a week without use is no leap");
    }

    #[test]
    fn a_gap_just_before_now_may_be_a_leap() {
        assert_eq!(judged(&[400 * DAY]), Clock::Leapt(Timestamp(NOW - 400 * DAY)));
        assert_eq!(judged(&[0, HOUR, 400 * DAY, 401 * DAY]), Clock::Leapt(Timestamp(NOW - 400 * DAY)));
        // Times after now are of a clock that was wrong then, or is now.
        assert_eq!(judged(&[-3_650 * DAY, HOUR, 25 * HOUR]), Clock::Settled);
        assert_eq!(judged(&[-3_650 * DAY, 8 * DAY]), Clock::Leapt(Timestamp(NOW - 8 * DAY)));
    }

    #[test]
    fn runs_that_follow_each_other_are_evidence() {
        let first = Seen::with(None, Timestamp(0));
        assert_eq!(first, Seen { from: Timestamp(0), to: Timestamp(0) });
        let second = Seen::with(Some(first), Timestamp(DAY));
        assert_eq!(second, Seen { from: Timestamp(0), to: Timestamp(DAY) });
        assert_eq!(judge(Timestamp(DAY), &second.times()), Clock::Settled);
        // Ahead and back again: neither continues what was seen.
        let ahead = Seen::with(Some(second), Timestamp(3_650 * DAY));
        assert_eq!(ahead.from, Timestamp(3_650 * DAY));
        assert_eq!(Seen::with(Some(ahead), Timestamp(2 * DAY)).from, Timestamp(2 * DAY));
        let long = Seen { from: Timestamp(0), to: Timestamp(900 * DAY) };
        assert_eq!(judge(Timestamp(900 * DAY), &long.times()), Clock::Settled);
    }
}
