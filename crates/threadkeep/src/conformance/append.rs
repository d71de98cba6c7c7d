//! Appending.

use super::{ensure, ensure_eq, ensure_err, promises, say, text_of, texts, thread_with, workspace};
use crate::error::Error;
use crate::{
    AppendOptions, Durability, Expect, ItemId, ItemQuery, Kind, NewItem, NewThread, Policy, RecordPolicy, Role,
    Timestamp, TurnEnd, TurnQuery, TurnStatus, Uuid,
};

fn id(number: u128) -> ItemId {
    ItemId::from_uuid(Uuid::from_u128(number))
}

promises! {
    /// Creating a thread stores nothing; its first append stores and lists it.
    fn creating_stores_nothing(store) {
        let thread = workspace(store)?.create(NewThread::default())?;
        ensure_err!(store.get(thread.id()), Error::NotFound { .. });
        thread.append(vec![say("first")])?;
        ensure_eq!(store.get(thread.id())?.items, 1);
    }

    /// `create_now` stores, claims and lists the thread at once.
    fn create_now_lists_at_once(store) {
        let thread = workspace(store)?.create_now(NewThread::default())?;
        let page = store.list(crate::ListQuery::default())?;
        ensure_eq!(page.entries.iter().map(|thread| thread.id.clone()).collect::<Vec<_>>(), [thread.id().clone()]);
        ensure!(page.entries[0].live);
    }

    /// An id that is taken is refused, and the first thread is untouched.
    fn a_taken_thread_id_is_refused(store) {
        let first = thread_with(store, &["kept"])?;
        let again = NewThread { id: Some(first.id().clone()), ..NewThread::default() };
        ensure_err!(workspace(store)?.create_now(again), Error::AlreadyExists { what: "thread", .. });
        ensure_eq!(texts(store, first.id())?, ["kept"]);
    }

    /// Items come back in the order in which they were appended, whatever their times say.
    fn order_is_the_order_of_appending(store) {
        let thread = workspace(store)?.create_now(NewThread::default())?;
        for (text, time) in [("a", 5_000), ("b", -1), ("c", i64::MAX / 2), ("d", 5_000)] {
            thread.append(vec![NewItem { created_at: Some(Timestamp(time)), ..say(text) }])?;
        }
        ensure_eq!(texts(store, thread.id())?, ["a", "b", "c", "d"]);
    }

    /// The exact bytes come back: NUL, lone surrogates, invalid UTF-8, the empty content, and a megabyte.
    fn content_is_kept_byte_for_byte(store) {
        let thread = workspace(store)?.create_now(NewThread::default())?;
        let large: Vec<u8> = (0..1_000_000_u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()).collect();
        let contents: Vec<Vec<u8>> =
            vec![b"\0a\0".to_vec(), br#"{"x":"\ud83d"}"#.to_vec(), vec![0xff, 0xc3, 0x28], Vec::new(), large];
        let items = contents.iter().map(|content| NewItem::raw(Kind::Event, "test", content.clone())).collect();
        thread.append(items)?;
        let back = store.items(thread.id(), ItemQuery::default())?.entries;
        ensure!(back.iter().map(|item| &item.content).eq(&contents));
        ensure!(store.verify(thread.id())?.is_intact());
    }

    /// A batch is stored whole or not at all.
    fn a_batch_is_atomic(store) {
        let thread = thread_with(store, &["before"])?;
        let cites_nothing = NewItem { sources: vec![id(99)], ..say("invalid") };
        ensure_err!(thread.append(vec![say("x"), say("y"), cites_nothing]), Error::Invalid { field: "sources", .. });
        ensure_eq!(texts(store, thread.id())?, ["before"]);
        ensure_eq!(thread.append(vec![say("after")])?.items[0].depth, 1);
        ensure!(store.verify(thread.id())?.is_intact());
    }

    /// Repeating an append with the same ids and content gives the first answer and stores nothing.
    fn a_repeated_append_is_answered_again(store) {
        let thread = thread_with(store, &["before"])?;
        let items = vec![say("x").with_id(id(1)), say("y").with_id(id(2))];
        let first = thread.append(items.clone())?;
        thread.append(vec![say("later")])?;
        let again = thread.append(items)?;
        ensure!(again.repeated && !first.repeated);
        ensure_eq!(again.items, first.items);
        ensure_eq!(texts(store, thread.id())?, ["before", "x", "y", "later"]);
    }

    /// An id that is taken by other content, in another order, or in part, is refused and nothing is stored.
    fn a_taken_item_id_is_refused(store) {
        let thread = thread_with(store, &[])?;
        thread.append(vec![say("x").with_id(id(1)), say("y").with_id(id(2))])?;
        ensure_err!(thread.append(vec![say("other").with_id(id(1))]), Error::AlreadyExists { what: "item", .. });
        ensure_err!(thread.append(vec![say("y").with_id(id(2)), say("x").with_id(id(1))]), Error::AlreadyExists { .. });
        ensure_err!(thread.append(vec![say("x").with_id(id(1)), say("z").with_id(id(3))]), Error::AlreadyExists { .. });
        let elsewhere = thread_with(store, &[])?;
        ensure_err!(elsewhere.append(vec![say("x").with_id(id(1))]), Error::AlreadyExists { .. });
        ensure_eq!(texts(store, thread.id())?, ["x", "y"]);
    }

    /// An append that expects another head is refused; one that expects the stored head goes through.
    fn the_expected_head_is_compared(store) {
        let thread = thread_with(store, &[])?;
        let expect = |head| AppendOptions { expect: Expect::Head(head), ..AppendOptions::default() };
        let first = thread.append_with(vec![say("a")], expect(None))?.items[0].address();
        ensure_err!(thread.append_with(vec![say("b")], expect(None)), Error::Conflict { what: "head", .. });
        thread.append_with(vec![say("b")], expect(Some(first)))?;
        ensure_err!(thread.append_with(vec![say("c")], expect(Some(first))), Error::Conflict { what: "head", .. });
        ensure_eq!(texts(store, thread.id())?, ["a", "b"]);
    }

    /// A branch begins, and the head moves, in the transaction of the append that asks for it.
    fn appending_after_an_older_item_begins_a_branch(store) {
        let thread = thread_with(store, &["a", "b", "c"])?;
        let at = store.address_at(thread.id(), 0)?;
        let after = AppendOptions { after: Some(at), ..AppendOptions::default() };
        let branch = thread.append_with(vec![say("B")], after)?.items[0].clone();
        ensure_eq!(branch.depth, 1);
        ensure!(branch.branch != at.branch);
        ensure_eq!(texts(store, thread.id())?, ["a", "B"]);
        ensure_eq!(store.get(thread.id())?.branches, 2);
    }

    /// Appending after the tip of an older branch goes on with that branch and begins none.
    fn appending_after_a_tip_goes_on_with_its_branch(store) {
        let thread = thread_with(store, &["a", "b"])?;
        let tip = store.address_at(thread.id(), 1)?;
        let root = store.address_at(thread.id(), 0)?;
        thread.append_with(vec![say("B")], AppendOptions { after: Some(root), ..AppendOptions::default() })?;
        let back = thread.append_with(vec![say("c")], AppendOptions { after: Some(tip), ..AppendOptions::default() })?;
        ensure_eq!(back.items[0].branch, tip.branch);
        ensure_eq!(texts(store, thread.id())?, ["a", "b", "c"]);
        ensure_eq!(store.get(thread.id())?.branches, 2);
        ensure!(store.verify(thread.id())?.is_intact());
    }

    /// An append after an item that the thread does not reach is refused and stores nothing.
    fn a_parent_must_be_reached_by_the_thread(store) {
        let other = thread_with(store, &["elsewhere"])?;
        let thread = thread_with(store, &["a"])?;
        let foreign = store.address_at(other.id(), 0)?;
        let beyond = crate::Address { depth: 7, ..store.address_at(thread.id(), 0)? };
        for after in [foreign, beyond] {
            let options = AppendOptions { after: Some(after), ..AppendOptions::default() };
            ensure_err!(thread.append_with(vec![say("x")], options), Error::NotFound { what: "item", .. });
        }
        ensure_eq!(texts(store, thread.id())?, ["a"]);
    }

    /// Queued items are stored in order, and before any later append of the thread.
    fn queued_items_keep_their_order(store) {
        let thread = thread_with(store, &[])?;
        let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
        for number in 0..50 {
            ensure!(thread.append_with(vec![say(&number.to_string())], queued)?.items.is_empty());
        }
        thread.append(vec![say("last")])?;
        let mut expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        expected.push("last".to_owned());
        ensure_eq!(texts(store, thread.id())?, expected);
    }

    /// A handle reads what it queued itself, and its thread though it is archived.
    fn a_handle_reads_what_it_queued(store) {
        let thread = thread_with(store, &[])?;
        store.archive(thread.id())?;
        let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
        thread.append_with(vec![say("a")], queued)?;
        thread.append_with(vec![say("b")], queued)?;
        let history = thread.load_history(ItemQuery::default())?.entries;
        ensure_eq!(history.iter().map(text_of).collect::<Vec<_>>(), ["a", "b"]);
        ensure_eq!(thread.read()?.items, 2);
        ensure_err!(workspace(store)?.create(NewThread::default())?.read(), Error::NotFound { .. });
    }

    /// After `flush` everything that was queued is stored.
    fn flush_is_a_barrier(store) {
        let thread = thread_with(store, &[])?;
        let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
        thread.append_with(vec![say("a"), say("b")], queued)?;
        thread.flush()?;
        ensure_eq!(texts(store, thread.id())?, ["a", "b"]);
    }

    /// Kinds that the policy does not keep are dropped; an append of nothing else touches nothing.
    fn the_policy_decides_what_is_kept(store) {
        let policy = Policy::Only(vec![Kind::Message]);
        let thread = workspace(store)?.create(NewThread { policy, ..NewThread::default() })?;
        let event = || NewItem::raw(Kind::Event, "test", b"tick".to_vec());
        let nothing = thread.append(vec![event()])?;
        ensure_eq!((nothing.items.len(), nothing.dropped), (0, 1));
        ensure_err!(store.get(thread.id()), Error::NotFound { .. });
        let some = thread.append(vec![event(), say("kept"), event()])?;
        ensure_eq!((some.items.len(), some.dropped), (1, 2));
        ensure_eq!(texts(store, thread.id())?, ["kept"]);
        thread.shutdown()?;
        let again = store.resume(thread.id(), false)?;
        again.append(vec![event()])?;
        ensure_eq!(store.get(thread.id())?.items, 1);
    }

    /// Nothing that a thread does not keep changes it, and a handle reads its policy.
    fn what_is_not_kept_touches_nothing(store) {
        let policy = Policy::Only(vec![Kind::Message]);
        let thread = workspace(store)?.create(NewThread { policy: policy.clone(), ..NewThread::default() })?;
        thread.append(vec![say("kept")])?;
        let before = store.get(thread.id())?;
        ensure_eq!((&before.policy, thread.policy()), (&policy, policy.clone()));
        for durability in [Durability::Queued, Durability::Written, Durability::Synced] {
            let options = AppendOptions { durability, ..AppendOptions::default() };
            let dropped = thread.append_with(vec![NewItem::raw(Kind::Event, "test", b"tick".to_vec())], options)?;
            ensure_eq!((dropped.items.len(), dropped.dropped), (0, 1));
        }
        thread.flush()?;
        let after = store.get(thread.id())?;
        ensure_eq!((after.tick, after.version, after.head), (before.tick, before.version, before.head));
    }

    /// A policy is changed under the claim, for every later holder too; what is stored stays.
    fn a_policy_is_changed_by_the_holder(store) {
        let event = || NewItem::raw(Kind::Event, "test", b"tick".to_vec());
        let thread = workspace(store)?.create(NewThread::default())?;
        thread.set_policy(Policy::Only(vec![Kind::Event]))?;
        ensure_err!(store.get(thread.id()), Error::NotFound { .. });
        thread.append(vec![event(), say("dropped")])?;
        let before = store.get(thread.id())?;
        thread.set_policy(Policy::Only(vec![Kind::Event]))?;
        ensure_eq!(store.get(thread.id())?.version, before.version);
        thread.set_policy(Policy::Only(vec![Kind::Message]))?;
        let changed = store.get(thread.id())?;
        ensure!(changed.version > before.version && changed.tick > before.tick);
        ensure_eq!(changed.items, 1);
        ensure_err!(thread.set_policy(Policy::Only(vec![Kind::Unknown(String::new())])), Error::Invalid { field: "policy", .. });
        let next = store.take_over(thread.id(), "to see what is kept", false)?;
        let appended = next.append(vec![event(), say("kept")])?;
        ensure_eq!((appended.items.len(), appended.dropped), (1, 1));
        ensure_err!(thread.set_policy(Policy::All), Error::ClaimLost { .. });
        ensure_eq!(store.get(thread.id())?.policy, Policy::Only(vec![Kind::Message]));
        next.shutdown()?;
    }

    /// A choice among records of a format drops none that it can't judge.
    fn records_that_can_not_be_judged_are_kept(store) {
        let words = |word: &str| vec![word.to_owned()];
        let policy = Policy::Records(RecordPolicy {
            name: "a choice".to_owned(),
            format: "lines".to_owned(),
            among: words("event"),
            keep: words("event/said"),
            shorten: Vec::new(),
        });
        let thread = workspace(store)?.create_now(NewThread { policy: policy.clone(), ..NewThread::default() })?;
        ensure_eq!(store.get(thread.id())?.policy, policy);
        // No store of these clauses reads this format.
        let line = NewItem::raw(Kind::Event, "lines", b"event/delta".to_vec());
        ensure_eq!(thread.append(vec![line, say("of another format")])?.items.len(), 2);
        thread.shutdown()?;
        ensure_eq!(store.resume(thread.id(), false)?.policy(), policy);
    }

    /// Unknown kinds and roles are kept as they are.
    fn unknown_words_are_kept(store) {
        let thread = thread_with(store, &[])?;
        let role = Some(Role::Unknown("critic".to_owned()));
        thread.append(vec![NewItem { role: role.clone(), ..NewItem::raw(Kind::Unknown("dream".to_owned()), "x/9", vec![1]) }])?;
        let item = store.items(thread.id(), ItemQuery::default())?.entries.remove(0);
        ensure_eq!((item.kind.as_str(), item.role, item.format.as_str()), ("dream", role, "x/9"));
    }

    /// A derived item cites items on its own path, and no others.
    fn sources_stand_on_the_path(store) {
        let thread = thread_with(store, &["a", "b"])?;
        let items = store.items(thread.id(), ItemQuery::default())?.entries;
        let summary = NewItem { sources: vec![items[0].id, items[1].id], ..say("summary") };
        let root = AppendOptions { after: Some(items[0].address()), ..AppendOptions::default() };
        ensure_err!(thread.append_with(vec![summary.clone()], root), Error::Invalid { field: "sources", .. });
        thread.append(vec![summary])?;
        let stored = store.items(thread.id(), ItemQuery { from: 2, ..ItemQuery::default() })?.entries;
        ensure_eq!(stored[0].sources, [items[0].id, items[1].id]);
        ensure_eq!(text_of(&stored[0]), "summary");
    }

    /// A turn has its prompt stored before it runs, and ends with its outcome.
    fn a_turn_is_a_row_with_its_items(store) {
        let thread = thread_with(store, &[])?;
        thread.begin_turn(say("prompt"))?;
        ensure_eq!(store.open_turn(thread.id())?, Some(1));
        thread.append(vec![say("answer")])?;
        let end = TurnEnd { status: TurnStatus::Failed, outcome: Some("no tokens".to_owned()), usage: None };
        ensure_eq!(thread.end_turn(end)?.ordinal, 1);
        thread.append(vec![say("between turns")])?;
        let turn = store.turns(thread.id(), TurnQuery::default())?.entries.remove(0);
        ensure_eq!((turn.status, turn.outcome.as_deref()), (TurnStatus::Failed, Some("no tokens")));
        ensure_eq!((turn.first.depth, turn.last.map(|last| last.depth)), (0, Some(1)));
        let turns: Vec<_> = store.items(thread.id(), ItemQuery::default())?.entries.iter().map(|item| item.turn).collect();
        ensure_eq!(turns, [Some(1), Some(1), None]);
        ensure_err!(thread.end_turn(TurnEnd::completed()), Error::NotFound { .. });
    }

    /// A turn that was never ended is marked as interrupted when the next one begins.
    fn an_unended_turn_is_interrupted_by_the_next(store) {
        let thread = thread_with(store, &[])?;
        thread.begin_turn(say("one"))?;
        thread.begin_turn(say("two"))?;
        let turns = store.turns(thread.id(), TurnQuery { newest_first: true, ..TurnQuery::default() })?.entries;
        let statuses: Vec<_> = turns.iter().map(|turn| (turn.ordinal, turn.status.clone())).collect();
        ensure_eq!(statuses, [(2, TurnStatus::Running), (1, TurnStatus::Interrupted)]);
    }

    /// Metadata words that no engine could keep are refused with the field's name.
    fn nul_in_tags_is_refused(store) {
        let thread = thread_with(store, &[])?;
        let kind = NewItem::raw(Kind::Unknown("a\0b".to_owned()), "x", Vec::new());
        ensure_err!(thread.append(vec![kind]), Error::Invalid { field: "kind", .. });
        ensure_err!(thread.append(vec![NewItem::raw(Kind::Message, "", Vec::new())]), Error::Invalid { field: "format", .. });
        let source_id = NewItem { source_id: Some("\0".to_owned()), ..say("x") };
        ensure_err!(thread.append(vec![source_id]), Error::Invalid { field: "source_id", .. });
    }
}
