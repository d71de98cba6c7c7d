//! The inbox of a thread.

use std::time::Duration;

use super::{ensure, ensure_eq, ensure_err, promises, say, texts, thread_with, workspace};
use crate::blocking::{LiveThread, Store};
use crate::error::Error;
use crate::{
    ItemQuery, MAX_MESSAGE_BYTES, Message, MessageEnd, MessageFormat, MessageId, MessagePolicy, MessageQuery,
    MessageState, NewMessage, NewThread, Role, TakeInto, TakeMessage, TakenMessage, ThreadId, TurnEnd, Uuid,
};

fn words(body: &str) -> NewMessage {
    NewMessage::text("the clause", body)
}

fn keyed(key: &str, body: &str) -> NewMessage {
    NewMessage { key: Some(key.to_owned()), ..words(body) }
}

fn policy(policy: MessagePolicy, body: &str) -> NewMessage {
    NewMessage { policy, ..words(body) }
}

fn inject(store: &Store, live: &LiveThread, message: NewMessage) -> Result<Message, Error> {
    store.inject_message(live.id(), message)
}

fn take_into(live: &LiveThread, into: TakeInto) -> Result<Option<TakenMessage>, Error> {
    live.take_message(TakeMessage { into, ..TakeMessage::default() })
}

/// Takes the next message, which must be there.
fn take(live: &LiveThread) -> Result<TakenMessage, Error> {
    take_into(live, TakeInto::NewTurn)?.ok_or_else(|| Error::not_found("message that waits", live.id()))
}

fn acted(live: &LiveThread, message: MessageId) -> Result<Message, Error> {
    live.end_message(message, MessageEnd::Acted { outcome: None })
}

/// Takes everything, and gives the bodies.
fn drain(live: &LiveThread) -> Result<Vec<String>, Error> {
    let mut bodies = Vec::new();
    while let Some(taken) = take_into(live, TakeInto::NewTurn)? {
        acted(live, taken.message.id)?;
        bodies.push(taken.message.body);
    }
    Ok(bodies)
}

fn state_of(store: &Store, message: &Message) -> Result<MessageState, Error> {
    Ok(store.message(&message.thread, message.id)?.state)
}

fn bodies(store: &Store, thread: &ThreadId, query: &MessageQuery) -> Result<Vec<String>, Error> {
    let mut query = query.clone();
    let mut bodies = Vec::new();
    loop {
        let page = store.messages(thread, query.clone())?;
        bodies.extend(page.entries.into_iter().map(|message| message.body));
        match page.next_cursor {
            None => return Ok(bodies),
            cursor => query.cursor = cursor,
        }
    }
}

promises! {
    /// A message that is sent again under its key is there once; another body under the same key is refused, also when the message was
    /// acted on long ago, and no key is another thread's or none.
    fn a_key_stands_for_one_message(store) {
        let live = thread_with(store, &["a"])?;
        let first = inject(store, &live, keyed("k", "one"))?;
        ensure_eq!(inject(store, &live, keyed("k", "one"))?, first);
        ensure_err!(inject(store, &live, keyed("k", "two")), Error::Conflict { what: "message", .. });
        ensure_err!(inject(store, &live, NewMessage { format: MessageFormat::Json, ..keyed("k", "1") }), Error::Conflict { .. });
        ensure_eq!(drain(&live)?, ["one"]);
        ensure_eq!(inject(store, &live, keyed("k", "one"))?.state, MessageState::Acted);
        ensure_err!(inject(store, &live, keyed("k", "two")), Error::Conflict { what: "message", .. });
        ensure_eq!(drain(&live)?, Vec::<String>::new());
        let other = thread_with(store, &[])?;
        ensure!(inject(store, &other, keyed("k", "two"))?.id != first.id);
        ensure!(inject(store, &live, words("x"))?.id != inject(store, &live, words("x"))?.id);
    }

    /// Messages are taken by urgency and then in the order in which they were accepted: what steers, then by priority.
    fn messages_are_taken_in_one_order(store) {
        let live = thread_with(store, &[])?;
        let with = |priority, body| NewMessage { priority, ..words(body) };
        inject(store, &live, with(0, "c"))?;
        inject(store, &live, with(-1, "e"))?;
        inject(store, &live, with(0, "d"))?;
        inject(store, &live, with(i32::MAX, "b"))?;
        inject(store, &live, NewMessage { priority: i32::MIN, ..policy(MessagePolicy::Steer, "a") })?;
        let queue = store.message_queue(live.id())?;
        let named: Vec<String> = queue.iter().map(|id| store.message(live.id(), *id).map(|it| it.body)).collect::<Result<_, _>>()?;
        ensure_eq!(named, ["a", "b", "c", "d", "e"]);
        ensure_eq!(drain(&live)?, ["a", "b", "c", "d", "e"]);
        ensure_eq!(store.message_queue(live.id())?, Vec::new());
    }

    /// Taking a message writes its prompt and begins a turn with it; a repeated call with the same token finds what it took.
    fn a_message_gives_one_prompt(store) {
        let live = thread_with(store, &["before"])?;
        let sent = inject(store, &live, words("do this"))?;
        ensure_eq!((sent.state, sent.prompt, sent.taken_at), (MessageState::Queued, None, None));
        let token = Uuid::from_u128(7);
        let how = TakeMessage { token: Some(token), ..TakeMessage::default() };
        let taken = live.take_message(how)?.ok_or_else(|| Error::not_found("message", "do this"))?;
        ensure_eq!((taken.message.id, &taken.message.state, taken.repeated), (sent.id, &MessageState::Taken, false));
        ensure_eq!(texts(store, live.id())?, ["before", "do this"]);
        ensure_eq!(Some(taken.prompt), live.head()?);
        ensure_eq!((taken.message.turn, store.open_turn(live.id())?), (Some(1), Some(1)));
        let item = store.item(live.id(), taken.prompt)?;
        ensure_eq!((Some(item.id), item.role), (taken.message.prompt, Some(Role::User)));
        ensure_eq!(item.source_id, Some(format!("inbox:{}", sent.id)));
        live.append(vec![say("answer")])?;
        let again = live.take_message(how)?.ok_or_else(|| Error::not_found("message", "do this"))?;
        ensure_eq!((again.message.id, again.prompt, again.repeated), (sent.id, taken.prompt, true));
        ensure_eq!(live.take_message(TakeMessage::default())?, None);
        ensure_eq!(texts(store, live.id())?, ["before", "do this", "answer"]);
        ensure!(store.verify(live.id())?.is_intact());
    }

    /// Receipts have their times: accepted, taken, delivered, acted on. Giving one again changes nothing.
    fn receipts_are_kept(store) {
        let live = thread_with(store, &[])?;
        let sent = inject(store, &live, words("a"))?;
        ensure_err!(live.deliver_message(sent.id), Error::Conflict { what: "message", .. });
        ensure_err!(acted(&live, sent.id), Error::Conflict { what: "message", .. });
        take(&live)?;
        let delivered = live.deliver_message(sent.id)?;
        ensure_eq!(live.deliver_message(sent.id)?, delivered);
        let end = MessageEnd::Acted { outcome: Some("done".to_owned()) };
        let ended = live.end_message(sent.id, end.clone())?;
        ensure_eq!(live.end_message(sent.id, end)?, ended);
        ensure_err!(live.end_message(sent.id, MessageEnd::Failed { reason: "no".to_owned() }), Error::Conflict { .. });
        let found = store.message(live.id(), sent.id)?;
        ensure_eq!((&found.state, found.outcome.as_deref(), found.delivered_at), (&MessageState::Acted, Some("done"), delivered.delivered_at));
        let times = [Some(found.accepted_at), found.taken_at, found.delivered_at, found.ended_at];
        ensure!(times.iter().all(Option::is_some) && times.is_sorted());
        inject(store, &live, words("b"))?;
        let taken = take(&live)?.message;
        let failed = live.end_message(taken.id, MessageEnd::Failed { reason: "no model".to_owned() })?;
        ensure_eq!((failed.state, failed.delivered_at, failed.outcome.as_deref()), (MessageState::Failed, None, Some("no model")));
        ensure_err!(live.deliver_message(MessageId::from_uuid(Uuid::from_u128(1))), Error::NotFound { what: "message", .. });
    }

    /// A message that does not want to wait is rejected while a living holder has an open turn and while others wait, and that is on
    /// record; a thread that is held and idle is not busy.
    fn a_busy_thread_rejects_what_will_not_wait(store) {
        let live = thread_with(store, &[])?;
        let now = |body: &str| policy(MessagePolicy::Reject, body);
        ensure_eq!(inject(store, &live, now("idle"))?.state, MessageState::Queued);
        let behind = inject(store, &live, NewMessage { key: Some("k".to_owned()), ..now("behind") })?;
        ensure_eq!((&behind.state, behind.ended_at), (&MessageState::Rejected, Some(behind.accepted_at)));
        acted(&live, take(&live)?.message.id)?;
        ensure_eq!(inject(store, &live, now("working"))?.state, MessageState::Rejected);
        ensure_eq!(inject(store, &live, words("may wait"))?.state, MessageState::Queued);
        ensure_eq!(drain(&live)?, ["may wait"]);
        live.end_turn(TurnEnd::completed())?;
        ensure_eq!(inject(store, &live, NewMessage { key: Some("k".to_owned()), ..now("behind") })?, behind);
        ensure_eq!(inject(store, &live, now("idle again"))?.state, MessageState::Queued);
        ensure_err!(store.withdraw_message(live.id(), behind.id, None), Error::Conflict { .. });
        acted(&live, take(&live)?.message.id)?;
        // A turn that nobody works at any more keeps nobody out.
        live.shutdown()?;
        ensure_eq!(inject(store, &live, now("nobody works"))?.state, MessageState::Queued);
    }

    /// What steers comes into the open turn; nothing else does, and without an open turn nothing.
    fn a_message_that_steers_comes_into_the_open_turn(store) {
        let live = thread_with(store, &[])?;
        ensure_err!(take_into(&live, TakeInto::OpenTurn), Error::NotFound { what: "open turn", .. });
        live.begin_turn(say("work"))?;
        inject(store, &live, words("later"))?;
        ensure_eq!(take_into(&live, TakeInto::OpenTurn)?, None);
        ensure_eq!(take_into(&live, TakeInto::Either)?, None);
        inject(store, &live, policy(MessagePolicy::Steer, "left, not right"))?;
        let taken = take_into(&live, TakeInto::Either)?.ok_or_else(|| Error::not_found("message", "steering"))?;
        ensure_eq!((taken.message.body.as_str(), taken.message.turn), ("left, not right", Some(1)));
        acted(&live, taken.message.id)?;
        ensure_eq!((store.open_turn(live.id())?, texts(store, live.id())?.len()), (Some(1), 2));
        live.end_turn(TurnEnd::completed())?;
        let taken = take_into(&live, TakeInto::Either)?.ok_or_else(|| Error::not_found("message", "later"))?;
        ensure_eq!((taken.message.body.as_str(), taken.message.turn), ("later", Some(2)));
    }

    /// What nobody took in time is not taken, is no longer in the way, and says so.
    fn a_message_expires(store) {
        let live = thread_with(store, &[])?;
        let short = |body: &str| NewMessage { expires_in: Some(Duration::ZERO), ..words(body) };
        let long = NewMessage { expires_in: Some(Duration::MAX), ..words("long") };
        let late = inject(store, &live, short("late"))?;
        ensure_eq!(late.state, MessageState::Expired);
        inject(store, &live, long)?;
        ensure_err!(store.withdraw_message(live.id(), late.id, None), Error::Conflict { .. });
        let of = |state| MessageQuery { state: Some(state), ..MessageQuery::default() };
        ensure_eq!(bodies(store, live.id(), &of(MessageState::Expired))?, ["late"]);
        ensure_eq!(bodies(store, live.id(), &of(MessageState::Queued))?, ["long"]);
        ensure_eq!(drain(&live)?, ["long"]);
        ensure_eq!(state_of(store, &late)?, MessageState::Expired);
        // An inbox in which all has expired does not make the thread busy.
        live.end_turn(TurnEnd::completed())?;
        inject(store, &live, short("late too"))?;
        ensure_eq!(inject(store, &live, policy(MessagePolicy::Reject, "now"))?.state, MessageState::Queued);
    }

    /// A message is withdrawn as long as it waits, and not later.
    fn a_message_is_withdrawn_while_it_waits(store) {
        let live = thread_with(store, &[])?;
        let (one, two) = (inject(store, &live, words("one"))?, inject(store, &live, words("two"))?);
        let withdrawn = store.withdraw_message(live.id(), one.id, Some("changed my mind".to_owned()))?;
        ensure_eq!((&withdrawn.state, withdrawn.outcome.as_deref()), (&MessageState::Withdrawn, Some("changed my mind")));
        ensure_eq!(store.withdraw_message(live.id(), one.id, None)?, withdrawn);
        ensure_eq!(take(&live)?.message.id, two.id);
        ensure_err!(store.withdraw_message(live.id(), two.id, None), Error::Conflict { what: "message", .. });
        ensure_eq!(take_into(&live, TakeInto::NewTurn)?, None);
    }

    /// Another order names every message that waits exactly once, or nothing is changed; what comes later goes behind it by its
    /// priority.
    fn the_queue_is_put_into_another_order(store) {
        let live = thread_with(store, &[])?;
        let with = |priority, body| NewMessage { priority, ..words(body) };
        let ids: Vec<MessageId> = [with(5, "a"), with(0, "b"), with(0, "c")]
            .into_iter()
            .map(|message| inject(store, &live, message).map(|message| message.id))
            .collect::<Result<_, _>>()?;
        let unknown = MessageId::from_uuid(Uuid::from_u128(3));
        for wrong in [vec![], vec![ids[0], ids[1]], vec![ids[0], ids[1], ids[2], ids[2]], vec![ids[0], ids[0], ids[1]], vec![ids[0], ids[1], unknown]] {
            ensure_err!(store.reorder_messages(live.id(), wrong), Error::Conflict { what: "inbox", .. });
        }
        ensure_eq!(store.message_queue(live.id())?, ids);
        let order = vec![ids[2], ids[0], ids[1]];
        store.reorder_messages(live.id(), order.clone())?;
        ensure_eq!(store.message_queue(live.id())?, order);
        let (mid, top) = (inject(store, &live, with(3, "mid"))?, inject(store, &live, with(9, "top"))?);
        ensure_eq!(store.message_queue(live.id())?, [top.id, ids[2], ids[0], mid.id, ids[1]]);
        ensure_eq!(drain(&live)?, ["top", "c", "a", "mid", "b"]);
    }

    /// What an earlier holder took and did not act on is never sent again: it is listed as unfinished, with its prompt, and is in the
    /// way until somebody says what becomes of it or goes past it.
    fn what_a_holder_left_is_unfinished(store) {
        let old = thread_with(store, &[])?;
        let (one, two) = (inject(store, &old, words("one"))?, inject(store, &old, words("two"))?);
        let taken = take(&old)?;
        ensure_eq!(store.message(old.id(), one.id)?.unfinished, false);
        old.shutdown()?;
        let left = store.message(old.id(), one.id)?;
        ensure_eq!((&left.state, left.unfinished, left.prompt), (&MessageState::Taken, true, taken.message.prompt));
        let new = store.resume(old.id(), false)?;
        ensure_eq!(store.message(old.id(), one.id)?.unfinished, true);
        ensure_err!(take(&new), Error::Conflict { what: "inbox", .. });
        let past = TakeMessage { past_unfinished: true, ..TakeMessage::default() };
        new.end_turn(TurnEnd::completed())?;
        ensure_eq!(new.take_message(past)?.map(|taken| taken.message.id), Some(two.id));
        acted(&new, two.id)?;
        inject(store, &new, words("three"))?;
        ensure_err!(take(&new), Error::Conflict { what: "inbox", .. });
        ensure_eq!(acted(&new, one.id)?.unfinished, false);
        ensure_eq!(take(&new)?.message.body, "three");
        ensure_eq!(texts(store, old.id())?, ["one", "two", "three"]);
    }

    /// A holder whose claim was taken over takes nothing, whether something waits or not, and says nothing of what it took.
    fn a_fenced_off_holder_takes_nothing(store) {
        let old = thread_with(store, &["a"])?;
        let sent = inject(store, &old, words("one"))?;
        take(&old)?;
        let new = store.take_over(old.id(), "the clause wants it", false)?;
        ensure_err!(take(&old), Error::ClaimLost { .. });
        ensure_err!(acted(&old, sent.id), Error::ClaimLost { .. });
        inject(store, &new, words("two"))?;
        ensure_err!(take(&old), Error::ClaimLost { .. });
        acted(&new, sent.id)?;
        ensure_eq!(take(&new)?.message.body, "two");
    }

    /// A token finds what it took also after another holder has the thread: the prompt is not written again.
    fn a_token_outlives_its_holder(store) {
        let old = thread_with(store, &[])?;
        inject(store, &old, words("one"))?;
        let how = TakeMessage { token: Some(Uuid::from_u128(9)), ..TakeMessage::default() };
        let taken = old.take_message(how)?;
        old.shutdown()?;
        let new = store.resume(old.id(), false)?;
        let again = new.take_message(how)?;
        ensure_eq!(again.as_ref().map(|it| (it.message.id, it.prompt, it.repeated)), taken.map(|it| (it.message.id, it.prompt, true)));
        ensure_eq!(texts(store, old.id())?, ["one"]);
    }

    /// A body that is JSON becomes an item of that format, byte by byte.
    fn a_json_body_is_kept_byte_by_byte(store) {
        let live = thread_with(store, &[])?;
        let body = r#" {"big":123456789012345678901234567890, "twice":1,"twice":2} "#;
        inject(store, &live, NewMessage { format: MessageFormat::Json, ..words(body) })?;
        let taken = take(&live)?;
        let item = store.item(live.id(), taken.prompt)?;
        ensure_eq!((item.format.as_str(), item.content.as_slice()), ("json", body.as_bytes()));
    }

    /// Messages are listed page by page, all or those in a state, in the order in which they were accepted.
    fn messages_are_listed_in_pages(store) {
        let live = thread_with(store, &[])?;
        for number in 0..7 {
            inject(store, &live, NewMessage { priority: number, ..words(&number.to_string()) })?;
        }
        let all = MessageQuery { limit: 3, ascending: true, ..MessageQuery::default() };
        ensure_eq!(bodies(store, live.id(), &all)?, ["0", "1", "2", "3", "4", "5", "6"]);
        ensure_eq!(bodies(store, live.id(), &MessageQuery { limit: 2, ..MessageQuery::default() })?[..2], ["6", "5"]);
        ensure_eq!(drain(&live)?.len(), 7);
        ensure_eq!(bodies(store, live.id(), &MessageQuery { state: Some(MessageState::Queued), ..all.clone() })?, Vec::<String>::new());
        ensure_eq!(bodies(store, live.id(), &MessageQuery { state: Some(MessageState::Acted), ..all.clone() })?.len(), 7);
        let cursor = store.messages(live.id(), all.clone())?.next_cursor;
        ensure_err!(store.messages(live.id(), MessageQuery { cursor, ascending: false, ..all }), Error::Invalid { field: "cursor", .. });
        let id = store.messages(live.id(), MessageQuery::default())?.entries[0].id;
        ensure_eq!(store.find_message(live.id(), &id.to_string())?, id);
        ensure_err!(store.find_message(live.id(), "0"), Error::Ambiguous { .. } | Error::NotFound { .. });
        ensure_err!(store.find_message(live.id(), "x"), Error::NotFound { .. });
    }

    /// A message that can't be kept is refused, and so is one to a thread that is not there, not seen, or in the trash.
    fn what_can_not_be_a_message_is_refused(store) {
        let live = thread_with(store, &["a"])?;
        let long = "x".repeat(MAX_MESSAGE_BYTES);
        inject(store, &live, words(&long))?;
        for body in ["", " \n", "nul\0", &format!("{long}x")] {
            ensure_err!(inject(store, &live, words(body)), Error::Invalid { field: "body", .. });
        }
        for body in ["{", "", "{} {}"] {
            ensure_err!(inject(store, &live, NewMessage { format: MessageFormat::Json, ..words(body) }), Error::Invalid { field: "body", .. });
        }
        for key in [String::new(), "k".repeat(257), "a\0".to_owned()] {
            ensure_err!(inject(store, &live, keyed(&key, "a")), Error::Invalid { field: "key", .. });
        }
        ensure_err!(inject(store, &live, NewMessage::text(" ", "a")), Error::Invalid { field: "sender", .. });
        ensure_err!(inject(store, &live, policy(MessagePolicy::Unknown("shout".to_owned()), "a")), Error::Invalid { field: "policy", .. });
        ensure_err!(inject(store, &live, NewMessage { format: MessageFormat::Unknown("yaml".to_owned()), ..words("a") }), Error::Invalid { field: "format", .. });
        ensure_err!(store.inject_message(&ThreadId::new("missing")?, words("a")), Error::NotFound { what: "thread", .. });
        let other = store.workspace("/conformance/other".as_ref())?;
        ensure_err!(other.inject_message(live.id(), words("a")), Error::NotFound { what: "thread", .. });
        ensure_err!(other.messages(live.id(), MessageQuery::default()), Error::NotFound { what: "thread", .. });
        live.shutdown()?;
        store.archive(live.id())?;
        inject(store, &live, words("to the archive"))?;
        store.delete(live.id())?;
        ensure_err!(inject(store, &live, words("a")), Error::Conflict { what: "shelf", .. });
        ensure_eq!(store.messages(live.id(), MessageQuery::default())?.entries.len(), 2);
    }

    /// A purged thread leaves no message to a later thread of its id.
    fn a_purge_takes_the_inbox(store) {
        let id = ThreadId::new("again")?;
        let make = || workspace(store)?.create_now(NewThread { id: Some(id.clone()), ..NewThread::default() });
        let live = make()?;
        inject(store, &live, keyed("k", "secret"))?;
        live.append(vec![say("a")])?;
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        let live = make()?;
        ensure_eq!(store.messages(&id, MessageQuery::default())?.entries, Vec::new());
        ensure_eq!(take_into(&live, TakeInto::Either)?, None);
        ensure_eq!(inject(store, &live, keyed("k", "other"))?.body, "other");
    }

    /// A fork has an inbox of its own.
    fn a_fork_has_its_own_inbox(store) {
        let live = thread_with(store, &["a"])?;
        inject(store, &live, words("for the parent"))?;
        let fork = store.fork(live.id(), None, NewThread::default())?;
        let forked = store.resume(&fork.id, false)?;
        ensure_eq!(take_into(&forked, TakeInto::Either)?, None);
        ensure_eq!(store.messages(&fork.id, MessageQuery::default())?.entries, Vec::new());
    }

    /// Whoever waits for a message is woken by it, and by none that it could not take.
    fn a_holder_waits_for_messages(store) {
        let live = thread_with(store, &["a"])?;
        let mut any = live.watch_inbox(TakeInto::Either)?;
        let mut steering = live.watch_inbox(TakeInto::OpenTurn)?;
        ensure_eq!(any.next_within(Duration::ZERO)?, false);
        let (thread, elsewhere) = (live.id().clone(), store.clone());
        let sender = std::thread::spawn(move || elsewhere.inject_message(&thread, words("hello")).map(drop));
        any.next()?;
        sender.join().map_err(|_| Error::not_found("sender", "it ended badly"))??;
        ensure_eq!(steering.next_within(Duration::ZERO)?, false);
        ensure_eq!(take(&live)?.message.body, "hello");
        ensure_eq!((any.next_within(Duration::ZERO)?, steering.next_within(Duration::ZERO)?), (false, false));
        inject(store, &live, policy(MessagePolicy::Steer, "left"))?;
        any.next()?;
        steering.next()?;
    }

    /// Asking an empty inbox changes nothing of the thread.
    fn an_empty_inbox_changes_nothing(store) {
        let live = thread_with(store, &["a"])?;
        let before = store.get(live.id())?;
        ensure_eq!(take_into(&live, TakeInto::Either)?, None);
        ensure_eq!(store.get(live.id())?, before);
        ensure_eq!(store.items(live.id(), ItemQuery::default())?.entries.len(), 1);
    }
}
