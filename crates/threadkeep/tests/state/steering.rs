//! Inboxes and requests in the files: time, copies, repairs, redactions, and rows that another program has written.

use std::path::Path;
use std::time::Duration;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Answer, Effect, Error, MAX_QUEUED_MESSAGES, Message, MessageEnd, MessageId, MessageQuery, MessageState, NewMessage,
    NewRequest, Principal, RedactOptions, Request, RequestQuery, RequestState, Rules, StoreOptions, TakeInto,
    TakeMessage, Unowned, UseAnswer, Uuid,
};

use super::timed::StandingClock;
use super::{create, id, open, sql, workspace};

fn words(body: &str) -> NewMessage {
    NewMessage::text("a test", body)
}

fn keyed(key: &str, body: &str) -> NewMessage {
    NewMessage { key: Some(key.into()), ..words(body) }
}

fn take(live: &LiveThread) -> Result<Option<Message>, Error> {
    let how = TakeMessage { into: TakeInto::NewTurn, ..TakeMessage::default() };
    Ok(live.take_message(how)?.map(|taken| taken.message))
}

fn messages(store: &Store) -> Vec<Message> {
    store.messages(&id("t"), MessageQuery { ascending: true, ..MessageQuery::default() }).unwrap().entries
}

fn requests(store: &Store) -> Vec<Request> {
    store.requests(RequestQuery { ascending: true, ..RequestQuery::default() }).unwrap().entries
}

fn approval() -> NewRequest {
    NewRequest::approval("run it", b"call")
}

fn allow(by: Principal) -> Answer {
    Answer { option: "allow_once".into(), by, note: None }
}

fn used(request: &Request) -> UseAnswer {
    UseAnswer { fingerprint: request.fingerprint, token: Some(Uuid::from_u128(1)) }
}

/// A thread whose inbox and requests have something in every state.
fn fill(store: &Store) -> LiveThread {
    let live = create(store, "t");
    let inject = |message| store.inject_message(&id("t"), message).unwrap();
    inject(keyed("k", "acted on"));
    let message = take(&live).unwrap().unwrap();
    live.end_message(message.id, MessageEnd::Acted { outcome: Some("done".into()) }).unwrap();
    inject(words("in hand"));
    take(&live).unwrap();
    let withdrawn = inject(words("withdrawn"));
    store.withdraw_message(&id("t"), withdrawn.id, None).unwrap();
    inject(words("waits"));
    let one = live.ask_request(approval()).unwrap();
    store.answer_request(one.id, allow(Principal::remote("bo"))).unwrap();
    live.use_answer(one.id, used(&one)).unwrap();
    let two = live.ask_request(approval()).unwrap();
    store.answer_request(two.id, allow(Principal::remote("bo"))).unwrap();
    live.ask_request(approval()).unwrap();
    let four = live.ask_request(approval()).unwrap();
    store.cancel_request(four.id, Principal::local("ana"), None).unwrap();
    workspace(store).ask_request(approval()).unwrap();
    live
}

fn bodies(messages: &[Message]) -> Vec<(&str, &str)> {
    messages.iter().map(|message| (message.body.as_str(), message.state.as_str())).collect()
}

fn states(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|request| request.state.as_str()).collect()
}

#[test]
fn a_copy_carries_what_is_settled_and_leaves_what_can_be_acted_on() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    fill(&source).shutdown().unwrap();
    let copy = || target.copy_from(&source, &mut |_| {}).unwrap();
    let report = copy();
    assert_eq!((report.problems.len(), report.open), (0, 4));
    assert_eq!(bodies(&messages(&target)), [("acted on", "acted"), ("withdrawn", "withdrawn")]);
    assert_eq!(states(&requests(&target)), ["answered", "cancelled"]);
    let (here, there) = (&messages(&source)[0], &messages(&target)[0]);
    assert_eq!((there.id, there.prompt, there.ended_at, &there.key), (here.id, here.prompt, here.ended_at, &here.key));
    assert_eq!(copy().unchanged, 1, "a second copy carries what is there");
    // The answer is used, and stays so.
    let one = &requests(&target)[0];
    let other = UseAnswer { token: None, ..used(one) };
    assert!(matches!(target.use_answer(one.id, other), Err(Error::Conflict { .. })));
    // What its sender sends again is known there, too, and what is accepted there comes later.
    assert_eq!(target.inject_message(&id("t"), keyed("k", "acted on")).unwrap().state, MessageState::Acted);
    let later = target.inject_message(&id("t"), words("later")).unwrap();
    assert!(messages(&target).iter().all(|message| message.id == later.id || message.tick < later.tick));
    // What was settled there meanwhile is carried, and what came here stays.
    let waits = source.message_queue(&id("t")).unwrap()[0];
    source.withdraw_message(&id("t"), waits, None).unwrap();
    source.update(&id("t"), threadkeep::ThreadPatch { pinned: Some(true), ..Default::default() }).unwrap();
    source.update(&id("t"), threadkeep::ThreadPatch { pinned: Some(false), ..Default::default() }).unwrap();
    copy();
    let found = messages(&target);
    assert!(found.iter().any(|message| message.id == waits), "{:?}", bodies(&found));
    assert!(found.iter().any(|message| message.id == later.id), "{:?}", bodies(&found));
}

#[test]
fn two_messages_of_one_key_do_not_keep_a_thread_from_being_copied() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    create(&source, "t").shutdown().unwrap();
    target.copy_from(&source, &mut |_| {}).unwrap();
    target.inject_message(&id("t"), keyed("k", "here")).unwrap();
    let there = source.inject_message(&id("t"), keyed("k", "there")).unwrap();
    source.withdraw_message(&id("t"), there.id, None).unwrap();
    for pinned in [true, false, true] {
        source.update(&id("t"), threadkeep::ThreadPatch { pinned: Some(pinned), ..Default::default() }).unwrap();
    }
    assert_eq!(target.copy_from(&source, &mut |_| {}).unwrap().problems, []);
    let keys: Vec<_> = messages(&target).into_iter().map(|message| (message.body, message.key)).collect();
    assert!(keys.contains(&("here".into(), Some("k".into()))) && keys.contains(&("there".into(), None)), "{keys:?}");
}

const SECRET: &str = "hunter2-7pQ2vX9mZ4tR8wN3cB6jL1hF5sD0g";

#[test]
fn rules_reach_messages_and_requests_and_leave_no_byte_in_the_files() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").shutdown().unwrap();
    let sent = store.inject_message(&id("t"), keyed("k", &format!("log in with {SECRET}"))).unwrap();
    let json = format!(r#"{{"PASSWORD":"{SECRET}","step":1}}"#);
    let format = threadkeep::MessageFormat::Json;
    store.inject_message(&id("t"), NewMessage { format, ..words(&json) }).unwrap();
    let asked = || NewRequest { detail: Some(json.clone()), subject: format!("use {SECRET}"), ..approval() };
    let of_thread = store.ask_request(NewRequest { thread: Some(id("t")), ..asked() }).unwrap();
    let of_none = workspace(&store).ask_request(asked()).unwrap();
    let note = Some(format!("fine, {SECRET} is known"));
    store.answer_request(of_none.id, Answer { note, ..allow(Principal::local("ana")) }).unwrap();
    let rules = || Rules::literal(SECRET).unwrap();
    let because = || RedactOptions { reason: "it was pasted".into(), ..RedactOptions::default() };
    let dry = store.redact_matching(None, rules(), because(), false, |_, _| {}).unwrap();
    assert_eq!(dry.beside[&id("t")], ["message", "request"].map(str::to_owned).into());
    assert_eq!(dry.requests, 1);
    let report = store.redact_matching(None, rules(), because(), true, |_, _| {}).unwrap();
    assert_eq!((&report.beside, report.requests, report.problems.len()), (&dry.beside, 1, 0));
    for name in ["threadkeep.db", "threadkeep.db-wal"] {
        let bytes = std::fs::read(temp.path().join(name)).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, SECRET.as_bytes()).is_none(), "{name}");
    }
    let found = messages(&store);
    assert!(found[0].masked && found[0].body.starts_with("log in with "), "{:?}", found[0]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&found[1].body).unwrap()["step"], 1);
    // Its sender, who sends it again, is not told that it is another.
    assert_eq!(store.inject_message(&id("t"), keyed("k", &sent.body)).unwrap().id, sent.id);
    for request in [of_thread, of_none] {
        let found = store.request(request.id).unwrap();
        assert!(found.masked && found.options == request.options && !found.subject.contains(SECRET), "{found:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&found.detail.unwrap()).unwrap()["step"], 1);
        assert_eq!(found.fingerprint, request.fingerprint);
    }
    assert_eq!(store.use_answer(requests(&store)[1].id, used(&requests(&store)[1])).unwrap().effect, Effect::AllowOnce);
}

#[test]
fn a_screen_masks_before_anything_is_written() {
    let options = StoreOptions::memory().mask_at_write(Rules::literal(SECRET).unwrap());
    let store = Store::open(options).unwrap();
    let live = create(&store, "t");
    let sent = store.inject_message(&id("t"), keyed("k", SECRET)).unwrap();
    assert!(!sent.body.contains(SECRET) && !sent.masked);
    assert_eq!(store.inject_message(&id("t"), keyed("k", SECRET)).unwrap().id, sent.id);
    let asked = live.ask_request(NewRequest { subject: SECRET.into(), ..approval() }).unwrap();
    assert!(!asked.subject.contains(SECRET));
    assert_eq!(take(&live).unwrap().unwrap().body, sent.body);
}

/// What a repair finds on a page may be older than what was done since.
#[test]
fn a_repair_keeps_nothing_that_could_be_acted_on_twice() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store).shutdown().unwrap();
    let before = messages(&store);
    drop(store);
    // As if the page that says that these were taken and used were lost, and an older one were found.
    let stale = "DROP TRIGGER messages_keep_their_prompt; DROP TRIGGER requests_are_consumed_once;
        UPDATE messages SET state = 'queued', token = NULL, epoch = NULL, item = NULL, turn = NULL, taken_at = NULL, delivered_at = NULL,
          ended_at = NULL, outcome = NULL WHERE body = 'acted on';
        UPDATE requests SET token = NULL, consumed_at = NULL;";
    sql(temp.path()).execute_batch(stale).unwrap();
    super::carried::damage_pages_of(temp.path(), "turns");
    let options = || StoreOptions::folder(temp.path());
    let plan = Store::plan_repair(options(), true).unwrap();
    Store::repair(options(), &plan.fingerprint.unwrap()).unwrap();
    let store = open(temp.path());
    assert_eq!(bodies(&messages(&store)), [("in hand", "taken"), ("withdrawn", "withdrawn"), ("waits", "queued")]);
    assert_eq!(messages(&store)[0].prompt, before[1].prompt);
    assert_eq!(states(&requests(&store)), ["pending", "cancelled", "pending"]);
    let live = store.resume(&id("t"), false).unwrap();
    live.end_message(before[1].id, MessageEnd::Failed { reason: "lost".into() }).unwrap();
    live.take_message(TakeMessage { into: TakeInto::NewTurn, ..TakeMessage::default() }).unwrap().unwrap();
}

#[test]
fn a_backup_has_everything() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(&temp.path().join("store"));
    fill(&store).shutdown().unwrap();
    let before = (messages(&store), states(&requests(&store)).join(" "));
    store.backup(&temp.path().join("backup")).unwrap();
    Store::restore_backup(StoreOptions::folder(temp.path().join("restored")), &temp.path().join("backup")).unwrap();
    let restored = open(&temp.path().join("restored"));
    assert_eq!((messages(&restored), states(&requests(&restored)).join(" ")), before);
}

#[test]
fn a_purge_that_others_share_items_of_takes_them_all_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store).shutdown().unwrap();
    store.fork(&id("t"), None, threadkeep::NewThread::default()).unwrap();
    store.delete(&id("t")).unwrap();
    assert!(store.purge(&id("t")).unwrap().stub);
    for (table, left) in [("messages", 0), ("requests", 1)] {
        let query = format!("SELECT count(*) FROM {table}");
        let found: i64 = sql(temp.path()).query_row(&query, [], |row| row.get(0)).unwrap();
        assert_eq!(found, left, "{table}");
    }
}

/// At the moment at which its time is over, and not before; and a clock that goes back makes nothing new of it.
#[test]
fn times_are_judged_to_the_millisecond() {
    let (clock, store) = StandingClock::store();
    let live = create(&store, "t");
    let within = Some(Duration::from_secs(5));
    let message = || store.inject_message(&id("t"), NewMessage { expires_in: within, ..words("x") }).unwrap();
    let request = || live.ask_request(NewRequest { expires_in: within, ..approval() }).unwrap();
    let (message_one, request_one, request_two) = (message(), request(), request());
    clock.at(4_999);
    assert_eq!(store.message(&id("t"), message_one.id).unwrap().state, MessageState::Queued);
    store.answer_request(request_one.id, allow(Principal::local("ana"))).unwrap();
    clock.at(5_000);
    assert_eq!(store.message(&id("t"), message_one.id).unwrap().state, MessageState::Expired);
    assert_eq!(take(&live).unwrap(), None);
    assert_eq!(store.request(request_two.id).unwrap().state, RequestState::Expired);
    assert!(matches!(
        store.answer_request(request_two.id, allow(Principal::local("ana"))),
        Err(Error::Conflict { .. })
    ));
    // It is on record, so that a clock that goes back brings nothing back.
    clock.at(0);
    assert!(matches!(
        store.answer_request(request_two.id, allow(Principal::local("ana"))),
        Err(Error::Conflict { .. })
    ));
    // An answer in time may be used later.
    clock.at(1_000_000);
    assert_eq!(live.use_answer(request_one.id, used(&request_one)).unwrap().effect, Effect::AllowOnce);
}

#[test]
fn an_inbox_takes_so_many_and_no_more() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let live = create(&store, "t");
    for number in 0..MAX_QUEUED_MESSAGES {
        store.inject_message(&id("t"), keyed(&number.to_string(), "x")).unwrap();
    }
    let full = store.inject_message(&id("t"), words("x")).unwrap_err();
    assert!(matches!(full, Error::Conflict { what: "inbox", .. }), "{full:?}");
    store.inject_message(&id("t"), keyed("7", "x")).unwrap();
    let mut order = store.message_queue(&id("t")).unwrap();
    order.reverse();
    store.reorder_messages(&id("t"), order.clone()).unwrap();
    assert_eq!(store.message_queue(&id("t")).unwrap(), order);
    take(&live).unwrap().unwrap();
    store.inject_message(&id("t"), words("x")).unwrap();
}

/// Whatever another program has written: what is not known is shown, and grants and does nothing.
#[test]
fn unknown_words_are_shown_and_grant_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = create(&store, "t");
    store.inject_message(&id("t"), words("odd")).unwrap();
    store.inject_message(&id("t"), words("next")).unwrap();
    let ask = || live.ask_request(approval()).unwrap();
    let (state, effect, option, unowned, kind) = (ask(), ask(), ask(), ask(), ask());
    store.answer_request(effect.id, allow(Principal::local("ana"))).unwrap();
    store.answer_request(option.id, allow(Principal::local("ana"))).unwrap();
    let name = |request: &Request| format!("x'{}'", request.id.as_uuid().simple());
    let words = format!(
        "UPDATE messages SET state = 'pondering' WHERE body = 'odd';
         DROP TRIGGER requests_are_resolved_once; DROP TRIGGER requests_ask_for_one_thing;
         UPDATE requests SET state = 'waived', resolved_at = 1, choice = 'allow_once', effect = 'allow_once', channel = 'local' WHERE id = {};
         UPDATE requests SET effect = 'allow_all' WHERE id = {};
         UPDATE requests SET choice = 'deny' WHERE id = {};
         UPDATE requests SET unowned = 'whatever' WHERE id = {};
         UPDATE requests SET kind = 'amnesty', danger = 'none' WHERE id = {};",
        name(&state), name(&effect), name(&option), name(&unowned), name(&kind)
    );
    sql(temp.path()).execute_batch(&words).unwrap();
    assert_eq!(messages(&store)[0].state, MessageState::Unknown("pondering".into()));
    assert_eq!(take(&live).unwrap().unwrap().body, "next");
    assert!(matches!(
        live.end_message(messages(&store)[0].id, MessageEnd::Acted { outcome: None }),
        Err(Error::Conflict { .. })
    ));
    assert_eq!(store.request(state.id).unwrap().state, RequestState::Unknown("waived".into()));
    assert!(matches!(store.use_answer(state.id, used(&state)), Err(Error::Conflict { .. })));
    assert!(matches!(store.answer_request(state.id, allow(Principal::local("ana"))), Err(Error::Conflict { .. })));
    let shown = store.request(effect.id).unwrap().answer.unwrap();
    assert_eq!((shown.effect, shown.stored_effect.as_str()), (Effect::Deny, "allow_all"));
    for request in [effect, option] {
        assert_eq!(store.use_answer(request.id, used(&request)).unwrap().effect, Effect::Deny);
    }
    drop(live);
    assert_eq!(store.request(unowned.id).unwrap().unowned, Unowned::Unknown("whatever".into()));
    let odd = store.request(kind.id).unwrap();
    assert_eq!((odd.kind.as_str(), odd.danger.as_str()), ("amnesty", "high"));
    assert!(matches!(store.answer_request(kind.id, allow(Principal::local("ana"))), Err(Error::Invalid { .. })));
}

/// The tables themselves hold the line, whatever program writes.
#[test]
fn the_tables_refuse_what_must_not_be() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store);
    let answer = |effect: &str, channel: &str| {
        format!(
            "UPDATE requests SET state = 'answered', resolved_at = 1, resolved_by = 'x', choice = 'x', effect = '{effect}', channel = '{channel}'
             WHERE state = 'pending'"
        )
    };
    let refused = [
        answer("allow_always", "remote"),
        answer("allow_all", "remote"),
        answer("allow_always", "space"),
        format!("UPDATE requests SET kind = 'enrolment'; {}", answer("allow_once", "remote")),
        "UPDATE requests SET state = 'answered' WHERE state = 'pending'".into(),
        "UPDATE requests SET effect = 'deny' WHERE state = 'answered'".into(),
        "UPDATE requests SET resolved_by = 'eve' WHERE state = 'answered'".into(),
        "UPDATE requests SET state = 'pending', resolved_at = NULL WHERE state = 'cancelled'".into(),
        "UPDATE requests SET token = NULL, consumed_at = NULL WHERE token IS NOT NULL".into(),
        "UPDATE requests SET token = zeroblob(16), consumed_at = 1 WHERE state = 'cancelled'".into(),
        "UPDATE requests SET fingerprint = zeroblob(32)".into(),
        "UPDATE messages SET state = 'acted' WHERE state = 'queued'".into(),
        "UPDATE messages SET item = zeroblob(16) WHERE state = 'acted'".into(),
        "UPDATE messages SET token = NULL, epoch = NULL, item = NULL, taken_at = NULL, state = 'queued' WHERE state = 'taken'".into(),
        "UPDATE messages SET state = 'queued' WHERE state = 'taken'".into(),
    ];
    for statement in refused {
        let error = sql(temp.path()).execute_batch(&format!("PRAGMA foreign_keys = ON; BEGIN; {statement}; COMMIT"));
        assert!(error.is_err(), "{statement}");
    }
    assert!(sql(temp.path()).execute_batch(&answer("allow_thread", "remote")).is_ok(), "this proves nothing");
}

#[test]
fn a_damaged_row_is_named_and_hides_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = fill(&store);
    let waiting = store.request(requests(&store)[2].id).unwrap();
    let damage = "PRAGMA ignore_check_constraints = ON; DROP TRIGGER messages_keep_their_prompt;
        UPDATE messages SET item = x'00' WHERE body = 'acted on'; UPDATE requests SET options = '{' WHERE state = 'pending'";
    sql(temp.path()).execute_batch(damage).unwrap();
    let listed = messages(&store);
    assert_eq!(listed.iter().filter(|message| message.damage.is_some()).count(), 1);
    assert_eq!(listed.len(), 4);
    let error = store.message(&id("t"), listed[0].id).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place, .. } if place.contains(&listed[0].id.to_string())), "{error:?}");
    assert_eq!(requests(&store).len(), 5);
    let error = store.answer_request(waiting.id, allow(Principal::local("ana"))).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place, .. } if place.contains(&waiting.id.to_string())), "{error:?}");
    // The way out.
    store.cancel_request(waiting.id, Principal::local("ana"), None).unwrap();
    live.end_message(listed[1].id, MessageEnd::Failed { reason: "x".into() }).unwrap();
}

#[test]
fn a_store_for_reading_only_shows_and_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store);
    let reader = Store::open(StoreOptions::folder(temp.path() as &Path).read_only()).unwrap();
    assert_eq!((messages(&reader).len(), requests(&reader).len()), (4, 5));
    let request = requests(&reader)[2].id;
    let refused: [Result<(), Error>; 5] = [
        reader.inject_message(&id("t"), words("x")).map(drop),
        reader.withdraw_message(&id("t"), MessageId::from_uuid(Uuid::nil()), None).map(drop),
        workspace(&store).ask_request(approval()).and_then(|_| reader.expire_requests()).map(drop),
        reader.answer_request(request, allow(Principal::local("ana"))).map(drop),
        reader.adopt_request(request).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
}
