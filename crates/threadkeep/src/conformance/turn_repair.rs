//! Repairing what an earlier holder left in the middle of a turn.

use super::{changes, ensure, ensure_eq, ensure_err, promises, say, text_of, workspace};
use crate::blocking::Store;
use crate::error::Error;
use crate::{
    Address, AppendOptions, ChangeQuery, Item, ItemQuery, Kind, NewItem, NewThread, Part, Policy, Role, ThreadId,
    TurnEnd, TurnQuery, TurnRepair, TurnStatus, View,
};

fn call(id: &str) -> NewItem {
    NewItem::tool_call(id, "shell", r#"{"command":"cargo test"}"#)
}

fn result(id: &str) -> NewItem {
    NewItem::tool_result(id, format!("output of {id}"), false)
}

/// A thread that its holder left with these items, in an open turn that began with a prompt.
fn left_with(store: &Store, items: Vec<NewItem>) -> Result<ThreadId, Error> {
    let live = workspace(store)?.create_now(NewThread::default())?;
    live.begin_turn(say("go"))?;
    live.append(items)?;
    live.discard()?;
    Ok(live.id().clone())
}

fn path(store: &Store, thread: &ThreadId, at: Option<Address>) -> Result<Vec<Item>, Error> {
    Ok(store.items(thread, ItemQuery { at, ..ItemQuery::default() })?.entries)
}

fn view(item: &Item) -> View {
    serde_json::from_slice(&item.content).unwrap_or_default()
}

/// The path, a word for each item: calls and results by the ids of their calls.
fn outline(store: &Store, thread: &ThreadId) -> Result<Vec<String>, Error> {
    let word = |item: &Item| match view(item).parts.first() {
        Some(Part::ToolCall { call_id, .. }) => format!("call {call_id}"),
        Some(Part::ToolResult { call_id, .. }) if view(item).synthetic => format!("synthetic {call_id}"),
        Some(Part::ToolResult { call_id, .. }) => format!("result {call_id}"),
        Some(Part::Note { .. }) => "note".to_owned(),
        _ => text_of(item),
    };
    Ok(path(store, thread, None)?.iter().map(word).collect())
}

fn repaired(store: &Store, thread: &ThreadId) -> Result<TurnRepair, Error> {
    let live = store.resume(thread, false)?;
    let repair = live.repair_turns()?;
    live.shutdown()?;
    Ok(repair)
}

promises! {
    /// A call at the end of the path gets a synthetic result on a branch of its own, which says that it is one; what was there
    /// stays, and all of it verifies.
    fn a_call_without_a_result_gets_a_synthetic_one(store) {
        let id = left_with(store, vec![call("a")])?;
        let (before, head) = (path(store, &id, None)?, store.get(&id)?.head);
        let repair = repaired(store, &id)?;
        ensure_eq!(outline(store, &id)?, ["go", "call a", "synthetic a", "note"]);
        let after = path(store, &id, None)?;
        let made = &after[2];
        ensure_eq!((&made.kind, &made.role, &made.sources), (&Kind::ToolResult, &Some(Role::Tool), &vec![before[1].id]));
        ensure_eq!((made.turn, made.depth), (Some(1), 2));
        ensure!(made.branch != before[1].branch);
        let Some(Part::ToolResult { is_error: true, output, .. }) = view(made).parts.pop() else {
            return Err(super::Broken(format!("no failure: {made:?}")));
        };
        ensure!(output.contains("synthetic") && output.contains("shell"));
        let [closed] = repair.closed.as_slice() else { return Err(super::Broken(format!("{repair:?}"))) };
        ensure_eq!((closed.call_id.as_str(), closed.tool.as_str(), closed.call, closed.result), ("a", "shell", before[1].address(), Some(made.address())));
        ensure_eq!((repair.from, repair.head, repair.rewritten), (head, store.get(&id)?.head, 0));
        ensure_eq!(path(store, &id, head)?, before);
        ensure_eq!(store.tree(&id)?.branches.len(), 2);
        ensure!(store.verify(&id)?.is_intact());
    }

    /// Repairing again changes nothing and says so, through the same handle and through another one.
    fn repairing_again_changes_nothing(store) {
        let id = left_with(store, vec![call("a"), call("b"), result("b"), say("and?"), call("c")])?;
        let live = store.resume(&id, false)?;
        ensure!(live.repair_turns()?.is_needed());
        let (tree, turns) = (store.tree(&id)?, store.turns(&id, TurnQuery::default())?);
        let again = live.repair_turns()?;
        ensure_eq!((again.is_needed(), again.from, again.head), (false, tree.head, tree.head));
        live.shutdown()?;
        let by_another = repaired(store, &id)?;
        ensure_eq!((by_another.is_needed(), by_another.closed.len(), by_another.interrupted), (false, 0, None));
        ensure_eq!((store.tree(&id)?, store.turns(&id, TurnQuery::default())?), (tree, turns));
    }

    /// Nothing but the repair itself repairs: not reading, not resuming, not going on.
    fn only_a_repair_repairs(store) {
        let id = left_with(store, vec![call("a")])?;
        let (tree, turns) = (store.tree(&id)?, store.turns(&id, TurnQuery::default())?);
        path(store, &id, None)?;
        store.model_context(&id, ItemQuery::default())?;
        let planned = store.plan_turn_repair(&id)?;
        ensure_eq!((planned.closed.len(), planned.closed[0].result, planned.interrupted, planned.head), (1, None, Some(1), None));
        store.resume(&id, false)?.shutdown()?;
        ensure_eq!((store.tree(&id)?, store.turns(&id, TurnQuery::default())?), (tree, turns));
        let live = store.resume(&id, false)?;
        live.append(vec![say("on")])?;
        ensure_eq!(outline(store, &id)?, ["go", "call a", "on"]);
    }

    /// A result that is missing in the middle stands where it belongs: behind those of the calls that were made with it, and
    /// before what came of them. What follows is written again in its order, with its bytes, its times and its turns.
    fn a_result_stands_where_it_belongs(store) {
        let live = workspace(store)?.create_now(NewThread::default())?;
        live.begin_turn(say("one"))?;
        live.append(vec![call("a"), call("b"), result("b")])?;
        let known = live.append(vec![NewItem::message(Role::Assistant, "b was good")])?.items[0].id;
        live.end_turn(TurnEnd::completed())?;
        live.begin_turn(say("two"))?;
        let source = NewItem { sources: vec![known], source_id: Some("own".to_owned()), ..NewItem::raw(Kind::Message, "other", b"\0\xff".to_vec()) };
        live.append(vec![source, call("c"), result("c"), call("d")])?;
        let (id, before) = (live.id().clone(), path(store, live.id(), None)?);
        live.discard()?;
        let planned = store.plan_turn_repair(&id)?;
        let repair = repaired(store, &id)?;
        ensure_eq!((planned.rewritten, repair.rewritten, repair.interrupted), (6, 6, Some(2)));
        ensure_eq!(planned.closed.iter().map(|closed| closed.call).collect::<Vec<_>>(), repair.closed.iter().map(|closed| closed.call).collect::<Vec<_>>());
        let after = path(store, &id, None)?;
        ensure_eq!(outline(store, &id)?[..6], ["one", "call a", "call b", "result b", "synthetic a", "b was good"]);
        ensure_eq!(outline(store, &id)?[8..], ["call c", "result c", "call d", "synthetic d", "note"]);
        // The first four are shared, the others are copies behind the result.
        ensure_eq!(after[..4], before[..4]);
        for (copy, original) in after[5..11].iter().zip(&before[4..]) {
            let (copy, original) = ((&copy.content, &copy.kind, &copy.role, &copy.format, copy.turn, copy.created_at, &copy.source_id), (&original.content, &original.kind, &original.role, &original.format, original.turn, original.created_at, &original.source_id));
            ensure_eq!(copy, original);
        }
        ensure_eq!(after[7].sources, vec![after[5].id]);
        ensure_eq!((after[4].turn, after[11].turn), (Some(1), Some(2)));
        ensure_eq!(path(store, &id, repair.from)?, before);
        ensure!(store.verify(&id)?.is_intact());
    }

    /// What a living holder wrote is left alone: its call may still be on its way, and its turn still runs.
    fn what_a_living_holder_does_is_left_alone(store) {
        let live = workspace(store)?.create_now(NewThread::default())?;
        live.begin_turn(say("go"))?;
        live.append(vec![call("a")])?;
        let planned = store.plan_turn_repair(live.id())?;
        let repair = live.repair_turns()?;
        for found in [&planned, &repair] {
            ensure_eq!((found.is_needed(), found.running, found.interrupted), (false, 1, None));
        }
        ensure_err!(store.resume(live.id(), false), Error::ClaimHeld { .. });
        live.append(vec![result("a")])?;
        live.end_turn(TurnEnd::completed())?;
        ensure_eq!(outline(store, live.id())?, ["go", "call a", "result a"]);
        // Whoever takes it over finds what the former holder left, and leaves what is its own.
        live.append(vec![call("b")])?;
        let taker = store.take_over(live.id(), "it hangs", false)?;
        taker.append(vec![call("c")])?;
        let repair = taker.repair_turns()?;
        ensure_eq!((repair.closed.len(), repair.running, repair.closed[0].call_id.as_str()), (1, 1, "b"));
        ensure_err!(live.repair_turns(), Error::ClaimLost { .. } | Error::Closed { .. });
    }

    /// A turn that its holder left open is marked as interrupted once, with where it stopped; one that has ended stays as it was.
    fn a_turn_that_was_left_open_is_interrupted_once(store) {
        let id = left_with(store, vec![say("thinking")])?;
        let head = store.get(&id)?.head;
        ensure_eq!(repaired(store, &id)?.interrupted, Some(1));
        let turn = store.turns(&id, TurnQuery::default())?.entries.remove(0);
        ensure_eq!((&turn.status, turn.last, turn.ended_at.is_some()), (&TurnStatus::Interrupted, head, true));
        ensure!(turn.outcome.is_some());
        // Nothing was missing, so nothing is written and no branch begins.
        ensure_eq!((store.get(&id)?.head, store.tree(&id)?.branches.len(), store.open_turn(&id)?), (head, 1, None));
        ensure_eq!(repaired(store, &id)?.interrupted, None);
        let live = store.resume(&id, false)?;
        live.begin_turn(say("again"))?;
        live.end_turn(TurnEnd::completed())?;
        ensure_eq!(live.repair_turns()?.is_needed(), false);
        let turns = store.turns(&id, TurnQuery::default())?.entries;
        ensure_eq!((&turns[0], &turns[1].status), (&turn, &TurnStatus::Completed));
        // Also where the thread was cleared in the middle of it.
        live.begin_turn(say("more"))?;
        live.clear()?;
        live.discard()?;
        let repair = repaired(store, &id)?;
        ensure_eq!((repair.interrupted, repair.head), (Some(3), None));
    }

    /// A fork is repaired on branches of its own; its parent stays as it is, and may go on.
    fn a_fork_is_repaired_apart_from_its_parent(store) {
        let parent = workspace(store)?.create_now(NewThread::default())?;
        parent.append(vec![say("go"), call("a"), say("never mind"), say("else")])?;
        let point = store.address_at(parent.id(), 2)?;
        let fork = store.fork(parent.id(), Some(point), NewThread::default())?;
        let before = store.tree(parent.id())?;
        // Its holder lives; what the fork shares is not its call any more.
        let repair = repaired(store, &fork.id)?;
        ensure_eq!((repair.closed.len(), repair.rewritten, repair.running), (1, 1, 0));
        ensure_eq!(outline(store, &fork.id)?, ["go", "call a", "synthetic a", "never mind", "note"]);
        ensure_eq!(store.tree(parent.id())?, before);
        parent.append(vec![result("a")])?;
        ensure!(store.verify(&fork.id)?.is_intact() && store.verify(parent.id())?.is_intact());
        ensure_eq!(repaired(store, &fork.id)?.is_needed(), false);
    }

    /// Branches beside the active path are not looked at, and what nobody can pair is counted and left.
    fn only_the_active_path_is_repaired(store) {
        let live = workspace(store)?.create_now(NewThread::default())?;
        live.append(vec![say("go"), call("beside")])?;
        let root = store.address_at(live.id(), 0)?;
        let unknown = NewItem::raw(Kind::ToolCall, "a format that nobody reads", b"run".to_vec());
        live.append_with(vec![unknown, result("of nothing"), say("on")], AppendOptions { after: Some(root), ..AppendOptions::default() })?;
        live.append(vec![NewItem::raw(Kind::ToolCall, "a format that nobody reads", b"run".to_vec())])?;
        live.discard()?;
        let tree = store.tree(live.id())?;
        let repair = repaired(store, live.id())?;
        ensure_eq!((repair.is_needed(), repair.without_id, repair.without_call), (false, 2, 1));
        ensure_eq!(store.tree(live.id())?, tree);
    }

    /// Where results are not kept, none is missing; where events are not, no note stands behind them.
    fn a_repair_obeys_the_policy(store) {
        let only = |kinds: &[Kind]| Policy::Only(kinds.to_vec());
        for (policy, expected) in [
            (only(&[Kind::Message, Kind::ToolCall]), &["go", "call a"][..]),
            (only(&[Kind::Message, Kind::ToolCall, Kind::ToolResult]), &["go", "call a", "synthetic a"]),
        ] {
            let live = workspace(store)?.create_now(NewThread { policy, ..NewThread::default() })?;
            live.append(vec![say("go"), call("a")])?;
            live.discard()?;
            repaired(store, live.id())?;
            ensure_eq!(outline(store, live.id())?, expected);
        }
    }

    /// A thread of which nothing is stored needs no repair, and gets no row by one; a closed handle repairs nothing.
    fn what_is_not_stored_is_not_repaired(store) {
        let live = workspace(store)?.create(NewThread::default())?;
        ensure_eq!(live.repair_turns()?.is_needed(), false);
        ensure_err!(store.get(live.id()), Error::NotFound { .. });
        ensure_err!(store.plan_turn_repair(live.id()), Error::NotFound { .. });
        live.discard()?;
        ensure_err!(live.repair_turns(), Error::Closed { .. });
    }

    /// What a repair made is found by what it is, and what is no such thing is not.
    fn synthetic_results_are_found(store) {
        let id = left_with(store, vec![call("real"), result("real"), call("a")])?;
        repaired(store, &id)?;
        let page = store.search(crate::SearchQuery::new("has:synthetic"))?;
        let hits = page.threads.iter().flat_map(|thread| &thread.hits);
        let found: Vec<_> = hits.filter_map(|hit| hit.item.as_ref().map(|item| item.address)).collect();
        ensure_eq!(found, vec![store.address_at(&id, 4)?]);
    }

    /// Who follows the feed of changes hears of a repair once, of its items and of the turn, and of none that was not needed.
    fn a_repair_is_told_in_the_feed(store) {
        let told = |from: String| {
            let query = ChangeQuery { since: Some(from), ..ChangeQuery::default() };
            let mut words = changes::words(&changes::since(store, &query)?);
            words.retain(|word| !word.starts_with("claim"));
            Ok::<_, Error>(words)
        };
        let id = left_with(store, vec![call("a")])?;
        for expected in [&["items created", "turn changed"][..], &[]] {
            let from = changes::now(store)?;
            repaired(store, &id)?;
            ensure_eq!(told(from)?, expected);
        }
        let id = left_with(store, vec![say("b")])?;
        let from = changes::now(store)?;
        repaired(store, &id)?;
        ensure_eq!(told(from)?, ["turn changed"]);
    }
}
