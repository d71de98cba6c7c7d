//! Requests for approvals and enrolments.

use std::time::Duration;

use super::{ensure, ensure_eq, ensure_err, promises, say, texts, thread_with, workspace};
use crate::blocking::{Store, Threads};
use crate::error::Error;
use crate::{
    Answer, Danger, Effect, NewRequest, NewThread, Principal, Request, RequestId, RequestKind, RequestOption,
    RequestQuery, RequestState, ThreadId, Unowned, UseAnswer, UsedAnswer, Uuid, call_fingerprint,
};

const CALL: &[u8] = b"{\"tool\":\"shell\",\"command\":\"cargo test\"}";

fn approval() -> NewRequest {
    NewRequest::approval("run the tests", CALL)
}

fn ask(store: &Store, request: NewRequest) -> Result<Request, Error> {
    workspace(store)?.ask_request(request)
}

fn with(option: &str, by: Principal) -> Answer {
    Answer { option: option.to_owned(), by, note: None }
}

fn answer(at: &Threads, request: &Request, option: &str) -> Result<Request, Error> {
    at.answer_request(request.id, with(option, Principal::local("ana")))
}

fn use_it(at: &Threads, request: &Request, token: u128) -> Result<UsedAnswer, Error> {
    let using = UseAnswer { fingerprint: request.fingerprint, token: Some(Uuid::from_u128(token)) };
    at.use_answer(request.id, using)
}

fn subjects(at: &Threads, query: &RequestQuery) -> Result<Vec<String>, Error> {
    let mut query = query.clone();
    let mut subjects = Vec::new();
    loop {
        let page = at.requests(query.clone())?;
        subjects.extend(page.entries.into_iter().map(|request| request.subject));
        match page.next_cursor {
            None => return Ok(subjects),
            cursor => query.cursor = cursor,
        }
    }
}

promises! {
    /// A request is answered, and its answer is used once, for the very call that was asked about.
    fn an_answer_is_used_once(store) {
        let asked = ask(store, approval())?;
        ensure_eq!((&asked.state, asked.owned, asked.fingerprint), (&RequestState::Pending, true, call_fingerprint(CALL)));
        ensure_err!(use_it(store, &asked, 1), Error::Conflict { what: "request", .. });
        let answered = answer(store, &asked, "allow_once")?;
        ensure_eq!(answered.answer.as_ref().map(|given| &given.effect), Some(&Effect::AllowOnce));
        let other = UseAnswer { fingerprint: call_fingerprint(b"rm -rf /"), token: Some(Uuid::from_u128(1)) };
        ensure_err!(store.use_answer(asked.id, other), Error::Conflict { what: "fingerprint", .. });
        let used = use_it(store, &asked, 1)?;
        ensure_eq!((&used.effect, used.repeated, used.request.consumed_at.is_some()), (&Effect::AllowOnce, false, true));
        let again = use_it(store, &asked, 1)?;
        ensure_eq!((&again.effect, again.repeated, again.request.consumed_at), (&Effect::AllowOnce, true, used.request.consumed_at));
        ensure_err!(use_it(store, &asked, 2), Error::Conflict { what: "request", .. });
        ensure_err!(store.use_answer(asked.id, other), Error::Conflict { what: "fingerprint", .. });
    }

    /// A denial is an answer too: it is used once and grants nothing.
    fn a_denial_grants_nothing(store) {
        let asked = ask(store, approval())?;
        answer(store, &asked, "deny")?;
        ensure_eq!(use_it(store, &asked, 1)?.effect, Effect::Deny);
        ensure_err!(use_it(store, &asked, 2), Error::Conflict { .. });
    }

    /// A request is resolved once: what comes second is refused and changes nothing, but for the same answer by the same principal.
    fn a_request_is_resolved_once(store) {
        let asked = ask(store, approval())?;
        let note = Answer { note: Some("go".to_owned()), ..with("allow_thread", Principal::remote("bo")) };
        let answered = store.answer_request(asked.id, note.clone())?;
        ensure_eq!(store.answer_request(asked.id, note)?, answered);
        ensure_err!(answer(store, &asked, "deny"), Error::Conflict { what: "request", .. });
        ensure_err!(answer(store, &asked, "allow_thread"), Error::Conflict { .. });
        ensure_err!(store.cancel_request(asked.id, Principal::local("ana"), None), Error::Conflict { .. });
        let found = store.request(asked.id)?;
        ensure_eq!(found, answered);
        ensure_eq!((found.resolved_by, found.note.as_deref()), (Some(Principal::remote("bo")), Some("go")));

        let asked = ask(store, approval())?;
        let cancelled = store.cancel_request(asked.id, Principal::local("ana"), Some("not needed".to_owned()))?;
        ensure_eq!((&cancelled.state, cancelled.note.as_deref()), (&RequestState::Cancelled, Some("not needed")));
        ensure_eq!(store.cancel_request(asked.id, Principal::local("ana"), None)?, cancelled);
        ensure_err!(answer(store, &asked, "allow_once"), Error::Conflict { .. });
        ensure_err!(use_it(store, &asked, 1), Error::Conflict { .. });
    }

    /// A request can't be answered from the moment on at which its time is over, whether anybody has noted that or not.
    fn a_request_expires(store) {
        let short = NewRequest { expires_in: Some(Duration::ZERO), ..approval() };
        let (one, two) = (ask(store, short.clone())?, ask(store, short)?);
        ensure_eq!(one.state, RequestState::Expired);
        ensure_err!(answer(store, &one, "allow_once"), Error::Conflict { what: "request", .. });
        ensure_err!(store.cancel_request(one.id, Principal::local("ana"), None), Error::Conflict { .. });
        ensure_err!(answer(store, &one, "allow_once"), Error::Conflict { .. });
        ensure_err!(use_it(store, &one, 1), Error::Conflict { .. });
        let waits = ask(store, NewRequest { expires_in: None, ..approval() })?;
        let of = |state| RequestQuery { state: Some(state), ..RequestQuery::default() };
        ensure_eq!(store.requests(of(RequestState::Expired))?.entries.len(), 2);
        ensure_eq!(store.requests(of(RequestState::Pending))?.entries.iter().map(|it| it.id).collect::<Vec<_>>(), [waits.id]);
        ensure_eq!((store.expire_requests()?, store.expire_requests()?), (1, 0));
        ensure_eq!(store.request(two.id)?.state, RequestState::Expired);
        ensure_eq!(answer(store, &waits, "allow_once")?.state, RequestState::Answered);
    }

    /// What lasts is never granted from another machine, and a request that would allow that can't even be made.
    fn nothing_that_lasts_is_granted_remotely(store) {
        let asked = ask(store, approval())?;
        let refused = store.answer_request(asked.id, with("allow_always", Principal::remote("bo")));
        ensure_err!(refused, Error::Invalid { field: "option", .. });
        ensure_eq!(store.request(asked.id)?.state, RequestState::Pending);
        ensure_eq!(answer(store, &asked, "allow_always")?.answer.map(|given| given.effect), Some(Effect::AllowAlways));
        let lasting = RequestOption { remote: true, ..RequestOption::new("x", "For ever", Effect::AllowAlways) };
        ensure_err!(ask(store, NewRequest { options: vec![lasting], ..approval() }), Error::Invalid { field: "options", .. });
        // Some things are for those at this machine only, though they do not last.
        let near = RequestOption { remote: false, ..RequestOption::new("near", "Here", Effect::AllowOnce) };
        let no = RequestOption { remote: false, ..RequestOption::new("no", "No", Effect::Deny) };
        let asked = ask(store, NewRequest { options: vec![near, no], ..approval() })?;
        for option in ["near", "no"] {
            ensure_err!(store.answer_request(asked.id, with(option, Principal::remote("bo"))), Error::Invalid { field: "option", .. });
        }
        ensure_err!(answer(store, &asked, "allow_once"), Error::Invalid { field: "option", .. });
        answer(store, &asked, "near")?;
    }

    /// An enrolment is proposed by anybody and granted by somebody at this machine, once; anybody may decline it.
    fn an_enrolment_is_granted_here(store) {
        let candidate = r#"{"name":"laptop","key":"ed25519:…"}"#;
        let proposed = ask(store, NewRequest::enrolment("let the laptop in", candidate))?;
        ensure_eq!((&proposed.kind, proposed.detail.as_deref()), (&RequestKind::Enrolment, Some(candidate)));
        ensure_err!(store.answer_request(proposed.id, with("enrol", Principal::remote("bo"))), Error::Invalid { field: "option", .. });
        answer(store, &proposed, "enrol")?;
        ensure_eq!(use_it(store, &proposed, 1)?.effect, Effect::AllowAlways);
        ensure_err!(use_it(store, &proposed, 2), Error::Conflict { .. });
        let proposed = ask(store, NewRequest::enrolment("let the phone in", candidate))?;
        store.answer_request(proposed.id, with("decline", Principal::remote("bo")))?;
        ensure_eq!(use_it(store, &proposed, 1)?.effect, Effect::Deny);
        for effect in [Effect::AllowOnce, Effect::AllowThread] {
            let options = vec![RequestOption::new("x", "x", effect)];
            ensure_err!(ask(store, NewRequest { options, ..NewRequest::enrolment("x", "{}") }), Error::Invalid { field: "options", .. });
        }
    }

    /// Asking again under the same id finds the request as it is and resets nothing; another call under that id is refused.
    fn asking_again_finds_the_request(store) {
        let id = RequestId::from_uuid(Uuid::from_u128(5));
        let named = || NewRequest { id: Some(id), ..approval() };
        let asked = ask(store, named())?;
        answer(store, &asked, "deny")?;
        ensure_eq!(ask(store, named())?.state, RequestState::Answered);
        let other = NewRequest { fingerprint: call_fingerprint(b"other"), ..named() };
        ensure_err!(ask(store, other), Error::AlreadyExists { what: "request", .. });
        ensure_eq!(store.requests(RequestQuery::default())?.entries.len(), 1);
    }

    /// A request is seen in its workspace alone, and found by the beginning of its id.
    fn a_request_stays_in_its_workspace(store) {
        let asked = ask(store, approval())?;
        let (here, other) = (workspace(store)?, store.workspace("/conformance/other".as_ref())?);
        ensure_eq!(here.request(asked.id)?.id, asked.id);
        ensure_err!(other.request(asked.id), Error::NotFound { what: "request", .. });
        ensure_err!(answer(&other, &asked, "allow_once"), Error::NotFound { .. });
        ensure_err!(use_it(&other, &asked, 1), Error::NotFound { .. });
        ensure_eq!(other.requests(RequestQuery::default())?.entries, Vec::new());
        ensure_err!(store.ask_request(approval()), Error::Invalid { field: "thread", .. });
        let live = thread_with(store, &[])?;
        let about = NewRequest { thread: Some(live.id().clone()), ..approval() };
        ensure_eq!(store.ask_request(about.clone())?.workspace, ask(store, approval())?.workspace);
        ensure_err!(other.ask_request(about), Error::NotFound { what: "thread", .. });
        let name = asked.id.to_string();
        ensure_eq!((store.find_request(&name)?, here.find_request(&name[..35])?), (asked.id, asked.id));
        ensure_err!(other.find_request(&name), Error::NotFound { .. });
        ensure_err!(store.find_request("%"), Error::NotFound { .. });
    }

    /// Requests are listed page by page: all, those in a state, of a kind, about a thread.
    fn requests_are_listed_in_pages(store) {
        let live = thread_with(store, &[])?;
        for number in 0..5 {
            ask(store, NewRequest { subject: format!("s{number}"), ..approval() })?;
        }
        let about = NewRequest { thread: Some(live.id().clone()), ..NewRequest::enrolment("e", "{}") };
        store.ask_request(about)?;
        let query = RequestQuery { limit: 2, ..RequestQuery::default() };
        ensure_eq!(subjects(store, &query)?, ["e", "s4", "s3", "s2", "s1", "s0"]);
        let up = RequestQuery { ascending: true, ..query.clone() };
        ensure_eq!(subjects(&*workspace(store)?, &up)?, ["s0", "s1", "s2", "s3", "s4", "e"]);
        ensure_eq!(subjects(store, &RequestQuery { kind: Some(RequestKind::Enrolment), ..query.clone() })?, ["e"]);
        ensure_eq!(subjects(store, &RequestQuery { thread: Some(live.id().clone()), ..query.clone() })?, ["e"]);
        let first = store.requests(up.clone())?.entries[0].clone();
        answer(store, &first, "deny")?;
        ensure_eq!(subjects(store, &RequestQuery { state: Some(RequestState::Pending), ..up.clone() })?.len(), 5);
        ensure_eq!(subjects(store, &RequestQuery { state: Some(RequestState::Answered), ..up.clone() })?, ["s0"]);
        let cursor = store.requests(up)?.next_cursor;
        ensure_err!(store.requests(RequestQuery { cursor, ..query }), Error::Invalid { field: "cursor", .. });
    }

    /// What a holder asks and what it uses is in the thread's chain; a repeated call writes nothing more.
    fn a_holder_puts_it_on_record(store) {
        let live = thread_with(store, &["work"])?;
        let id = RequestId::from_uuid(Uuid::from_u128(11));
        let new = NewRequest { id: Some(id), ..approval() };
        let asked = live.ask_request(new.clone())?;
        ensure_eq!((asked.thread.as_ref(), asked.owned), (Some(live.id()), true));
        live.ask_request(new)?;
        ensure_eq!(texts(store, live.id())?.len(), 2);
        store.answer_request(id, with("allow_once", Principal::remote("bo")))?;
        let using = UseAnswer { fingerprint: asked.fingerprint, token: Some(Uuid::from_u128(1)) };
        ensure_eq!(live.use_answer(id, using)?.repeated, false);
        ensure_eq!(live.use_answer(id, using)?.repeated, true);
        let said = texts(store, live.id())?;
        ensure_eq!(said.len(), 3);
        for words in [id.to_string(), "bo (remote)".to_owned(), "allow_once".to_owned(), asked.fingerprint.to_string()] {
            ensure!(said[2].contains(&words));
        }
        ensure!(said[1].contains(&asked.fingerprint.to_string()));
        ensure!(store.verify(live.id())?.is_intact());
        let elsewhere = ask(store, approval())?;
        answer(store, &elsewhere, "deny")?;
        ensure_err!(live.use_answer(elsewhere.id, using), Error::NotFound { what: "request", .. });
    }

    /// A holder whose claim was taken over asks nothing and uses nothing. What it asked stays, owned by nobody, and is answered as the
    /// request says: never by itself.
    fn a_request_outlives_its_owner(store) {
        let old = thread_with(store, &["a"])?;
        let free = old.ask_request(approval())?;
        let strict = old.ask_request(NewRequest { unowned: Unowned::Refused, ..approval() })?;
        answer(store, &free, "allow_once")?;
        let waits = old.ask_request(approval())?;
        let new = store.take_over(old.id(), "the clause wants it", false)?;
        ensure_err!(old.ask_request(approval()), Error::ClaimLost { .. });
        let using = UseAnswer { fingerprint: free.fingerprint, token: None };
        ensure_err!(old.use_answer(free.id, using), Error::ClaimLost { .. });
        ensure_eq!(new.use_answer(free.id, using)?.effect, Effect::AllowOnce);
        let found = store.request(waits.id)?;
        ensure_eq!((&found.state, found.owned), (&RequestState::Pending, false));
        answer(store, &waits, "allow_once")?;
        ensure_err!(answer(store, &strict, "allow_once"), Error::Conflict { what: "request", .. });
        ensure_eq!(store.adopt_request(strict.id)?.owned, true);
        answer(store, &strict, "allow_once")?;
        ensure_err!(store.adopt_request(strict.id), Error::Conflict { .. });
    }

    /// Whoever lets go of the thread lets go of what it asked about it as its holder.
    fn a_holder_that_leaves_owns_nothing(store) {
        let live = thread_with(store, &["a"])?;
        let asked = live.ask_request(approval())?;
        ensure_eq!(store.request(asked.id)?.owned, true);
        live.shutdown()?;
        let found = store.request(asked.id)?;
        ensure_eq!((&found.state, found.owned), (&RequestState::Pending, false));
        ensure_eq!(store.adopt_request(asked.id)?.owned, true);
    }

    /// A purged thread takes its requests along.
    fn a_purge_takes_the_requests(store) {
        let id = ThreadId::new("again")?;
        let live = workspace(store)?.create_now(NewThread { id: Some(id.clone()), ..NewThread::default() })?;
        live.append(vec![say("a")])?;
        let asked = live.ask_request(approval())?;
        let stays = ask(store, approval())?;
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        ensure_err!(store.request(asked.id), Error::NotFound { .. });
        ensure_err!(answer(store, &asked, "allow_once"), Error::NotFound { .. });
        ensure_eq!(store.requests(RequestQuery::default())?.entries.iter().map(|it| it.id).collect::<Vec<_>>(), [stays.id]);
    }

    /// A request or an answer that can't be kept is refused.
    fn what_can_not_be_a_request_is_refused(store) {
        let option = |id: &str, effect| RequestOption::new(id, "x", effect);
        for options in [
            vec![],
            vec![option("a", Effect::Deny), option("a", Effect::AllowOnce)],
            vec![option("", Effect::Deny)],
            vec![option("a", Effect::Unknown("allow_all".to_owned()))],
            (0..17).map(|number| option(&format!("o{number}"), Effect::Deny)).collect(),
        ] {
            ensure_err!(ask(store, NewRequest { options, ..approval() }), Error::Invalid { field: "options", .. });
        }
        ensure_err!(ask(store, NewRequest { subject: " ".to_owned(), ..approval() }), Error::Invalid { field: "subject", .. });
        ensure_err!(ask(store, NewRequest { detail: Some("{".to_owned()), ..approval() }), Error::Invalid { field: "detail", .. });
        ensure_err!(ask(store, NewRequest { detail: None, ..NewRequest::enrolment("x", "{}") }), Error::Invalid { field: "detail", .. });
        ensure_err!(ask(store, NewRequest { kind: RequestKind::Unknown("amnesty".to_owned()), ..approval() }), Error::Invalid { field: "kind", .. });
        ensure_eq!(ask(store, NewRequest { danger: Danger::Unknown("medium".to_owned()), ..approval() })?.danger, Danger::High);
        let asked = ask(store, NewRequest { danger: Danger::Low, ..approval() })?;
        ensure_eq!(asked.danger, Danger::Low);
        ensure_err!(store.answer_request(asked.id, with("allow_once", Principal::local(""))), Error::Invalid { field: "name", .. });
        let nowhere = Principal { channel: crate::Channel::Unknown("space".to_owned()), ..Principal::local("ana") };
        ensure_err!(store.answer_request(asked.id, with("allow_once", nowhere)), Error::Invalid { field: "channel", .. });
        ensure_err!(answer(store, &asked, "maybe"), Error::Invalid { field: "option", .. });
        let unknown = RequestId::from_uuid(Uuid::from_u128(2));
        ensure_err!(store.request(unknown), Error::NotFound { what: "request", .. });
        ensure_err!(store.cancel_request(unknown, Principal::local("ana"), None), Error::NotFound { .. });
    }

    /// Whoever waits for an answer is woken by it, about a thread or not.
    fn an_asker_waits_for_the_answer(store) {
        let live = thread_with(store, &["a"])?;
        for asked in [ask(store, approval())?, live.ask_request(approval())?] {
            let mut watch = store.watch_request(asked.id)?;
            ensure_eq!(watch.next_within(Duration::ZERO)?, None);
            let (id, elsewhere) = (asked.id, store.clone());
            let answering = std::thread::spawn(move || elsewhere.answer_request(id, with("deny", Principal::local("ana"))).map(drop));
            ensure_eq!(watch.next()?.state, RequestState::Answered);
            answering.join().map_err(|_| Error::not_found("answer", "it ended badly"))??;
        }
    }
}
