//! Which threads a rule would take: pure.

use std::collections::HashSet;
use std::time::Duration;

use crate::id::ThreadId;
use crate::retention::standing::Standing;
use crate::retention::{Protection, RetentionRule, RetentionRules, millis, saturated};
use crate::time::Timestamp;

/// A limit that threads are over, and by how much they still are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) rule: RetentionRule,
    pub(crate) bound: i64,
    left: i64,
}

impl Excess {
    /// The limit on the number of threads.
    pub(crate) fn of_count(rules: &RetentionRules, standings: &[Standing]) -> Option<Self> {
        let bound = saturated(rules.max_count?);
        let found = standings.iter().filter(|standing| is_counted(standing, rules)).count();
        Self::over(RetentionRule::Count, bound, i64::try_from(found).unwrap_or(i64::MAX))
    }

    /// The limit on the bytes of a workspace.
    pub(crate) fn of_bytes(rules: &RetentionRules, standings: &[Standing]) -> Option<Self> {
        Self::over(RetentionRule::Bytes, saturated(rules.max_bytes?), bytes(rules, standings))
    }

    /// The limit on the bytes of the store.
    pub(crate) fn of_store_bytes(rules: &RetentionRules, standings: &[Standing]) -> Option<Self> {
        Self::over(RetentionRule::StoreBytes, saturated(rules.max_store_bytes?), bytes(rules, standings))
    }

    fn over(rule: RetentionRule, bound: i64, found: i64) -> Option<Self> {
        let left = found.saturating_sub(bound);
        (left > 0).then_some(Self { rule, bound, left })
    }

    /// Whether threads are still over it, and would be by less without this one.
    pub(crate) fn is_helped_by(&self, standing: &Standing) -> bool {
        self.left > 0 && self.amount(standing) > 0
    }

    /// A thread that was counted is gone.
    pub(crate) fn take(&mut self, standing: &Standing) {
        self.left = self.left.saturating_sub(self.amount(standing));
    }

    fn amount(&self, standing: &Standing) -> i64 {
        match self.rule {
            RetentionRule::Count => 1,
            _ => standing.bytes,
        }
    }
}

fn bytes(rules: &RetentionRules, standings: &[Standing]) -> i64 {
    let counted = standings.iter().filter(|standing| is_counted(standing, rules));
    counted.fold(0, |sum, standing| sum.saturating_add(standing.bytes))
}

/// Whether the limits are about this thread: those that a person keeps on purpose are apart.
pub(crate) fn is_counted(standing: &Standing, rules: &RetentionRules) -> bool {
    !standing.pinned && (rules.archived || !standing.archived)
}

/// The limit on the age, when a thread is over it. One whose time is after now is not.
pub(crate) fn is_too_old(standing: &Standing, max_age: Duration, now: Timestamp) -> bool {
    now.0.saturating_sub(standing.changed_at.0) > millis(max_age)
}

/// Whether a thread has been in the trash for long enough.
pub(crate) fn is_due(trashed_at: Timestamp, grace: Duration, now: Timestamp) -> bool {
    now.0.saturating_sub(trashed_at.0) >= millis(grace)
}

/// Why a thread stays, as far as that is seen without asking further.
pub(crate) fn stays(
    standing: &Standing,
    rules: &RetentionRules,
    spared: &HashSet<ThreadId>,
    now: Timestamp,
) -> Option<Protection> {
    let is_recent = now.0.saturating_sub(standing.changed_at.0) < millis(rules.grace);
    match () {
        () if spared.contains(&standing.thread) => Some(Protection::Spared),
        () if standing.pinned => Some(Protection::Pinned),
        () if standing.archived && !rules.archived => Some(Protection::Archived),
        () if is_recent => Some(Protection::Recent),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::{Excess, is_too_old, stays};
    use crate::id::{ThreadId, WorkspaceId};
    use crate::retention::standing::Standing;
    use crate::retention::{Protection, RetentionRules};
    use crate::time::Timestamp;

    fn standing(id: &str, bytes: i64) -> Standing {
        Standing {
            thread: ThreadId::new(id).unwrap(),
            workspace: WorkspaceId::from_uuid(uuid::Uuid::nil()),
            archived: false,
            pinned: false,
            place: 0,
            tick: 0,
            changed_at: Timestamp(0),
            bytes,
            in_trash: None,
        }
    }

    #[test]
    fn what_a_person_keeps_on_purpose_is_not_counted() {
        let pinned = Standing { pinned: true, ..standing("p", 1_000) };
        let archived = Standing { archived: true, ..standing("a", 1_000) };
        let all = [pinned, archived, standing("x", 10), standing("y", 20)];
        let rules = RetentionRules { max_count: Some(2), max_bytes: Some(25), ..RetentionRules::default() };
        assert_eq!(Excess::of_count(&rules, &all), None);
        let mut bytes = Excess::of_bytes(&rules, &all).unwrap();
        assert!(bytes.is_helped_by(&all[3]) && !bytes.is_helped_by(&standing("empty", 0)));
        bytes.take(&all[2]);
        assert!(!bytes.is_helped_by(&all[3]), "30 are 5 over 25, and 10 are gone");
        let rules = RetentionRules { archived: true, ..rules };
        assert!(Excess::of_count(&rules, &all).is_some());
    }

    #[test]
    fn a_time_after_now_is_never_too_old() {
        let ahead = Standing { changed_at: Timestamp(i64::MAX), ..standing("x", 0) };
        assert!(!is_too_old(&ahead, Duration::from_millis(1), Timestamp(0)));
        let rules = RetentionRules::default();
        assert_eq!(stays(&ahead, &rules, &HashSet::new(), Timestamp(0)), Some(Protection::Recent));
        assert!(is_too_old(&standing("x", 0), Duration::from_millis(1), Timestamp(2)));
        assert!(!is_too_old(&standing("x", 0), Duration::MAX, Timestamp(i64::MAX)));
    }
}
