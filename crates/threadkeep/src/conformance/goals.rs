//! Goals.

use super::{ensure, ensure_eq, ensure_err, promises, say, thread_with, workspace};
use crate::blocking::Store;
use crate::error::Error;
use crate::{
    Change, Goal, GoalCheck, GoalId, GoalPatch, GoalQuery, GoalStatus, GoalUsage, Hash, ListQuery, NewGoal, NewThread,
    PauseReason, SortKey, Stall, ThreadId, ThreadPatch, Timestamp, Uuid, gap_fingerprint,
};

const GREATEST: u64 = i64::MAX as u64;

fn tokens(tokens: u64) -> GoalUsage {
    GoalUsage { tokens, ..GoalUsage::default() }
}

fn status(status: GoalStatus) -> GoalPatch {
    GoalPatch { status: Some(status), ..GoalPatch::default() }
}

fn pursuing(store: &Store, goal: NewGoal) -> Result<ThreadId, Error> {
    let live = thread_with(store, &["begin"])?;
    live.set_goal(goal)?;
    Ok(live.id().clone())
}

fn goal_of(store: &Store, thread: &ThreadId) -> Result<Goal, Error> {
    store.goal(thread)?.ok_or_else(|| Error::not_found("goal", thread))
}

fn went_on(store: &Store, thread: &ThreadId, continuations: u64) -> Result<(), Error> {
    store.accrue_goal(thread, GoalUsage { continuations, ..GoalUsage::default() }).map(drop)
}

promises! {
    /// A goal comes back as it was set; setting another one replaces all of it, and taking it away says whether there was one.
    fn a_goal_is_set_replaced_and_taken_away(store) {
        let live = thread_with(store, &["begin"])?;
        ensure_eq!(live.goal()?, None);
        let full = NewGoal {
            id: Some(GoalId::from_uuid(Uuid::from_u128(7))),
            objective: "make the login test pass \u{1F9F5} 線".to_owned(),
            status: Some(GoalStatus::Blocked),
            pause_reason: Some(PauseReason::Backoff),
            token_budget: Some(1_000),
            seconds_budget: Some(60),
            tokens_used: 7,
            seconds_used: 3,
            continuations: 2,
            stall: Some(Stall { fingerprint: Hash::of(b"gap"), repeats: 2, pass: 1 }),
            created_at: Some(Timestamp(1_000)),
        };
        let set = live.set_goal(full.clone())?;
        ensure_eq!(live.goal()?, Some(set.clone()));
        ensure_eq!((Some(set.id), set.objective, set.stored_status), (full.id, full.objective, GoalStatus::Blocked));
        ensure_eq!((set.status, set.pause_reason), (GoalStatus::Blocked, full.pause_reason));
        ensure_eq!((set.token_budget, set.seconds_budget), (full.token_budget, full.seconds_budget));
        ensure_eq!((set.tokens_used, set.seconds_used, set.continuations), (7, 3, 2));
        ensure_eq!((set.stall, set.created_at, set.ended_at, set.ordinal), (full.stall, Timestamp(1_000), None, 1));

        let second = store.set_goal(live.id(), NewGoal::new("something else"))?;
        ensure_eq!((second.token_budget, second.seconds_budget, second.tokens_used, second.stall), (None, None, 0, None));
        ensure_eq!((second.status, second.ordinal), (GoalStatus::Active, 2));
        ensure!(second.id != set.id && second.tick > set.tick);
        ensure_eq!((store.clear_goal(live.id())?, live.clear_goal()?, live.goal()?), (true, false, None));
    }

    /// A goal needs its thread, and is not seen through another workspace.
    fn a_goal_needs_its_thread(store) {
        let missing = ThreadId::new("missing-thread")?;
        ensure_err!(store.set_goal(&missing, NewGoal::new("x")), Error::NotFound { what: "thread", .. });
        ensure_err!(store.goal(&missing), Error::NotFound { what: "thread", .. });
        ensure_err!(store.accrue_goal(&missing, tokens(1)), Error::NotFound { what: "thread", .. });
        let thread = pursuing(store, NewGoal::new("x"))?;
        let other = store.workspace("/conformance/elsewhere".as_ref())?;
        ensure_err!(other.goal(&thread), Error::NotFound { what: "thread", .. });
        ensure_err!(other.accrue_goal(&thread, tokens(1)), Error::NotFound { what: "thread", .. });
        ensure_err!(other.clear_goal(&thread), Error::NotFound { what: "thread", .. });
    }

    /// Usage adds up, leaves what the goal is alone, and is there in a new handle; a thread without a goal gets none.
    fn usage_adds_up(store) {
        let thread = pursuing(store, NewGoal::new("x"))?;
        let before = goal_of(store, &thread)?;
        for _ in 0..3 {
            store.accrue_goal(&thread, GoalUsage { tokens: 10, seconds: 2, continuations: 1, ..GoalUsage::default() })?;
        }
        let after = goal_of(store, &thread)?;
        ensure_eq!((after.tokens_used, after.seconds_used, after.continuations), (30, 6, 3));
        ensure_eq!((after.id, after.ordinal, &after.objective, &after.status), (before.id, 1, &before.objective, &before.status));
        ensure!(after.updated_at >= before.updated_at && after.tick > before.tick);
        let empty = thread_with(store, &["no goal"])?;
        ensure_eq!((store.accrue_goal(empty.id(), tokens(1))?, store.goal(empty.id())?), (None, None));
    }

    /// Sums stay at the greatest number instead of failing or falling, and the goal stays readable.
    fn usage_saturates(store) {
        let thread = pursuing(store, NewGoal::new("x"))?;
        for more in [GREATEST, GREATEST, 1, u64::MAX] {
            let usage = GoalUsage { tokens: more, seconds: more, continuations: more, ..GoalUsage::default() };
            let goal = store.accrue_goal(&thread, usage)?;
            ensure_eq!(goal.map(|goal| (goal.tokens_used, goal.seconds_used, goal.continuations)), Some((GREATEST, GREATEST, GREATEST)));
        }
        ensure_eq!(goal_of(store, &thread)?.status, GoalStatus::Active);
    }

    /// Usage under an id counts once, also after the goal was replaced.
    fn repeated_usage_counts_once(store) {
        let thread = pursuing(store, NewGoal::new("x"))?;
        let usage = GoalUsage { id: Some(Uuid::from_u128(1)), ..tokens(5) };
        for _ in 0..3 {
            ensure_eq!(store.accrue_goal(&thread, usage)?.map(|goal| goal.tokens_used), Some(5));
        }
        store.set_goal(&thread, NewGoal::new("y"))?;
        ensure_eq!(store.accrue_goal(&thread, usage)?.map(|goal| goal.tokens_used), Some(0));
        let other = pursuing(store, NewGoal::new("x"))?;
        ensure_eq!(store.accrue_goal(&other, usage)?.map(|goal| goal.tokens_used), Some(5));
    }

    /// The usage that reaches a budget ends the activity of the goal, and no other status.
    fn reaching_a_budget_limits_an_active_goal(store) {
        for (budgets, usage) in [
            ((Some(100), None), tokens(40)),
            ((None, Some(10)), GoalUsage { seconds: 4, ..GoalUsage::default() }),
            ((Some(GREATEST), Some(10)), GoalUsage { seconds: 4, tokens: 1, ..GoalUsage::default() }),
        ] {
            let goal = NewGoal { token_budget: budgets.0, seconds_budget: budgets.1, ..NewGoal::new("x") };
            let thread = pursuing(store, goal)?;
            for expected in [GoalStatus::Active, GoalStatus::Active, GoalStatus::BudgetLimited, GoalStatus::BudgetLimited] {
                let goal = store.accrue_goal(&thread, usage)?;
                ensure_eq!(goal.map(|goal| goal.status), Some(expected));
            }
            let limited = goal_of(store, &thread)?;
            ensure_eq!((limited.pause_reason, &limited.stored_status), (Some(PauseReason::BudgetLimit), &GoalStatus::BudgetLimited));
        }
        let thread = pursuing(store, NewGoal { status: Some(GoalStatus::Complete), token_budget: Some(1), ..NewGoal::new("x") })?;
        ensure_eq!(store.accrue_goal(&thread, tokens(9))?.map(|goal| (goal.status, goal.tokens_used)), Some((GoalStatus::Complete, 9)));
    }

    /// A goal whose budget is used up is activated only with a greater one.
    fn a_used_up_goal_needs_a_greater_budget(store) {
        let thread = pursuing(store, NewGoal { token_budget: Some(10), ..NewGoal::new("x") })?;
        store.accrue_goal(&thread, tokens(10))?;
        ensure_err!(store.update_goal(&thread, status(GoalStatus::Active)), Error::Invalid { field: "status", .. });
        ensure_eq!(goal_of(store, &thread)?.status, GoalStatus::BudgetLimited);
        let raise = GoalPatch { token_budget: Change::Set(20), ..status(GoalStatus::Active) };
        let raised = store.update_goal(&thread, raise)?;
        ensure_eq!((raised.status, raised.pause_reason, raised.tokens_used, raised.ordinal), (GoalStatus::Active, None, 10, 2));
        let lowered = store.update_goal(&thread, GoalPatch { token_budget: Change::Set(5), ..GoalPatch::default() })?;
        ensure_eq!((lowered.status, lowered.pause_reason), (GoalStatus::BudgetLimited, Some(PauseReason::BudgetLimit)));
        let lifted = store.update_goal(&thread, GoalPatch { token_budget: Change::Clear, ..status(GoalStatus::Active) })?;
        ensure_eq!((lifted.status, lifted.token_budget, lifted.tokens_used), (GoalStatus::Active, None, 10));
    }

    /// Another objective or budget is another revision; the history keeps each with what it had cost.
    fn revisions_stay_in_the_history(store) {
        let thread = pursuing(store, NewGoal { token_budget: Some(100), ..NewGoal::new("first") })?;
        store.accrue_goal(&thread, tokens(10))?;
        let first = goal_of(store, &thread)?;
        let paused = store.update_goal(&thread, status(GoalStatus::Paused))?;
        ensure_eq!((paused.id, paused.ordinal, paused.pause_reason), (first.id, 1, Some(PauseReason::User)));
        let second = store.update_goal(&thread, GoalPatch { objective: Some("second".to_owned()), ..GoalPatch::default() })?;
        ensure_eq!((second.ordinal, second.tokens_used, second.token_budget, &second.status), (2, 10, Some(100), &GoalStatus::Paused));
        ensure!(second.id != first.id);
        store.accrue_goal(&thread, tokens(5))?;
        store.clear_goal(&thread)?;
        store.set_goal(&thread, NewGoal::new("third"))?;
        let mut query = GoalQuery { limit: 1, ..GoalQuery::default() };
        let mut seen = Vec::new();
        loop {
            let page = store.goal_history(&thread, query.clone())?;
            seen.extend(page.entries.into_iter().map(|goal| (goal.objective, goal.tokens_used, goal.ended_at.is_some())));
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        let expected = [("third", 0, false), ("second", 15, true), ("first", 10, true)];
        ensure_eq!(seen, expected.map(|(objective, tokens, ended)| (objective.to_owned(), tokens, ended)));
        ensure_err!(
            store.goal_history(&thread, GoalQuery { cursor: Some("c".to_owned()), ..GoalQuery::default() }),
            Error::Invalid { field: "cursor", .. }
        );
    }

    /// What names a revision is refused when another one is the goal; a repeated setting finds what it set.
    fn revisions_are_compared(store) {
        let thread = pursuing(store, NewGoal::new("first"))?;
        let first = goal_of(store, &thread)?.id;
        let new = NewGoal { id: Some(GoalId::from_uuid(Uuid::from_u128(2))), ..NewGoal::new("second") };
        let second = store.set_goal(&thread, new.clone())?;
        ensure_eq!(store.set_goal(&thread, new)?, second);
        let late = GoalUsage { goal: Some(first), ..tokens(1) };
        ensure_err!(store.accrue_goal(&thread, late), Error::Conflict { what: "goal", .. });
        let patch = GoalPatch { expect: Some(first), ..status(GoalStatus::Complete) };
        ensure_err!(store.update_goal(&thread, patch), Error::Conflict { what: "goal", .. });
        ensure_eq!(store.goal(&thread)?, Some(second));
        let again = NewGoal { id: Some(first), ..NewGoal::new("first") };
        ensure_err!(store.set_goal(&thread, again), Error::AlreadyExists { what: "goal", .. });
    }

    /// A word that is not known reads as paused, is kept, and is not changed by what does not set it.
    fn an_unknown_status_reads_as_paused(store) {
        let word = GoalStatus::Unknown("waiting_approval".to_owned());
        let thread = pursuing(store, NewGoal { status: Some(word.clone()), token_budget: Some(5), ..NewGoal::new("x") })?;
        let goal = goal_of(store, &thread)?;
        ensure_eq!((goal.status, &goal.stored_status), (GoalStatus::Paused, &word));
        store.accrue_goal(&thread, tokens(9))?;
        let changed = store.update_goal(&thread, GoalPatch { objective: Some("y".to_owned()), ..GoalPatch::default() })?;
        ensure_eq!((changed.status, &changed.stored_status, changed.tokens_used), (GoalStatus::Paused, &word, 9));
        let reasoned = PauseReason::Unknown("full_moon".to_owned());
        let patch = GoalPatch { pause_reason: Some(reasoned.clone()), ..status(GoalStatus::Paused) };
        ensure_eq!(store.update_goal(&thread, patch)?.pause_reason, Some(reasoned));
    }

    /// The same gap three times in a row pauses an active goal; another gap, or none, begins anew, and so does activating it.
    fn a_goal_that_makes_no_progress_is_paused(store) {
        let thread = pursuing(store, NewGoal::new("x"))?;
        let gap = gap_fingerprint(&["  The Test fails ", "lint"]);
        ensure_eq!(gap, gap_fingerprint(&["LINT", "the  test\nfails", "lint"]));
        ensure!(gap.is_some() && gap != gap_fingerprint(&["lint"]));
        ensure_eq!(gap_fingerprint(&["", " "]), None);
        let mut pass = 0;
        let mut look = |gap: Option<Hash>| {
            went_on(store, &thread, 1)?;
            pass += 1;
            let goal = store.check_goal(&thread, GoalCheck { gap, pass })?;
            Ok::<_, Error>(goal.map(|goal| (goal.status, goal.stall.map_or(0, |stall| stall.repeats))))
        };
        let other = gap_fingerprint(&["lint"]);
        for (gap, repeats) in [(gap, 1), (gap, 2), (other, 1), (other, 2), (None, 0), (gap, 1), (gap, 2)] {
            ensure_eq!(look(gap)?, Some((GoalStatus::Active, repeats)));
        }
        ensure_eq!(look(gap)?, Some((GoalStatus::Paused, 3)));
        ensure_eq!(look(gap)?, Some((GoalStatus::Paused, 3)));
        ensure_eq!(goal_of(store, &thread)?.pause_reason, Some(PauseReason::NoProgress));
        let active = store.update_goal(&thread, status(GoalStatus::Active))?;
        ensure_eq!((active.status, active.stall, active.pause_reason), (GoalStatus::Active, None, None));
    }

    /// A look is told once however often it is repeated, and passes do not go back or ahead.
    fn passes_rise_and_count_once(store) {
        let thread = pursuing(store, NewGoal::new("x"))?;
        let gap = gap_fingerprint(&["lint"]);
        ensure_err!(store.check_goal(&thread, GoalCheck { gap, pass: 1 }), Error::Invalid { field: "pass", .. });
        went_on(store, &thread, 2)?;
        for _ in 0..4 {
            let goal = store.check_goal(&thread, GoalCheck { gap, pass: 1 })?;
            ensure_eq!(goal.and_then(|goal| goal.stall).map(|stall| (stall.repeats, stall.pass)), Some((1, 1)));
        }
        store.check_goal(&thread, GoalCheck { gap, pass: 2 })?;
        ensure_err!(store.check_goal(&thread, GoalCheck { gap, pass: 1 }), Error::Invalid { field: "pass", .. });
        let empty = thread_with(store, &["no goal"])?;
        ensure_eq!(store.check_goal(empty.id(), GoalCheck { gap, pass: 1 })?, None);
    }

    /// An active goal that came with three repeats reads as paused, and what is stored is left.
    fn a_stalled_goal_is_restored_as_paused(store) {
        let stall = Some(Stall { fingerprint: Hash::of(b"gap"), repeats: 3, pass: 4 });
        let thread = pursuing(store, NewGoal { stall: stall.clone(), continuations: 4, ..NewGoal::new("x") })?;
        let goal = goal_of(store, &thread)?;
        ensure_eq!((goal.status, goal.stored_status, goal.pause_reason), (GoalStatus::Paused, GoalStatus::Active, Some(PauseReason::NoProgress)));
        ensure_eq!(goal.stall, stall);
    }

    /// A window that no run of passes leads to, an empty objective, NUL and numbers out of range are refused, and nothing is changed.
    fn goals_that_can_not_be_are_refused(store) {
        let thread = pursuing(store, NewGoal::new("kept"))?;
        let before = goal_of(store, &thread)?;
        let stall = |repeats, pass| Some(Stall { fingerprint: Hash::of(b"gap"), repeats, pass });
        for stall in [stall(0, 0), stall(4, 4), stall(1, 6), stall(3, 1)] {
            let new = NewGoal { stall, continuations: 5, ..NewGoal::new("x") };
            ensure_err!(store.set_goal(&thread, new), Error::Invalid { field: "stall", .. });
        }
        for objective in ["", "  ", "a\0b"] {
            ensure_err!(store.set_goal(&thread, NewGoal::new(objective)), Error::Invalid { field: "objective", .. });
        }
        let new = NewGoal { token_budget: Some(u64::MAX), ..NewGoal::new("x") };
        ensure_err!(store.set_goal(&thread, new), Error::Invalid { field: "token_budget", .. });
        ensure_err!(store.update_goal(&thread, status(GoalStatus::Unknown(String::new()))), Error::Invalid { field: "status", .. });
        ensure_eq!(store.goal(&thread)?, Some(before));
    }

    /// A holder whose claim was taken over changes no goal; others need no claim.
    fn a_fenced_off_holder_changes_no_goal(store) {
        let old = thread_with(store, &["begin"])?;
        old.set_goal(NewGoal::new("x"))?;
        let new = store.take_over(old.id(), "the clause wants it", false)?;
        ensure_err!(old.accrue_goal(tokens(1)), Error::ClaimLost { .. });
        ensure_err!(old.set_goal(NewGoal::new("y")), Error::ClaimLost { .. });
        ensure_err!(old.update_goal(status(GoalStatus::Complete)), Error::ClaimLost { .. });
        ensure_err!(old.clear_goal(), Error::ClaimLost { .. });
        ensure_eq!(new.accrue_goal(tokens(1))?.map(|goal| (goal.objective, goal.tokens_used)), Some(("x".to_owned(), 1)));
        ensure_eq!(store.accrue_goal(old.id(), tokens(1))?.map(|goal| goal.tokens_used), Some(2));
        new.append(vec![say("the writer is not disturbed")])?;
    }

    /// A change of a goal moves its thread in the order by update; a version that is expected stays.
    fn a_change_of_a_goal_moves_its_thread(store) {
        let first = pursuing(store, NewGoal::new("x"))?;
        let second = workspace(store)?.create_now(NewThread::default())?;
        let top = |store: &Store| Ok::<_, Error>(store.list(ListQuery { sort: SortKey::Updated, ..ListQuery::default() })?.entries.into_iter().next().map(|it| it.id));
        ensure_eq!(top(store)?, Some(second.id().clone()));
        let version = store.get(&first)?.version;
        store.accrue_goal(&first, tokens(1))?;
        ensure_eq!(top(store)?, Some(first.clone()));
        store.update(&first, ThreadPatch { expect_version: Some(version), ..ThreadPatch::title("t") })?;
    }

    /// A purged thread leaves no goal to a later thread of its id.
    fn a_purge_takes_the_goal(store) {
        let id = ThreadId::new("again")?;
        let make = || workspace(store)?.create_now(NewThread { id: Some(id.clone()), ..NewThread::default() });
        let live = make()?;
        live.set_goal(NewGoal::new("secret"))?;
        live.accrue_goal(GoalUsage { id: Some(Uuid::from_u128(1)), ..tokens(5) })?;
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        let live = make()?;
        ensure_eq!((live.goal()?, store.goal_history(&id, GoalQuery::default())?.entries), (None, Vec::new()));
        live.set_goal(NewGoal::new("x"))?;
        ensure_eq!(live.accrue_goal(GoalUsage { id: Some(Uuid::from_u128(1)), ..tokens(5) })?.map(|goal| goal.tokens_used), Some(5));
    }
}
