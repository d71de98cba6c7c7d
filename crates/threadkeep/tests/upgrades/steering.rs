//! What a sample store has in an inbox, of requests and of prompts with their artifacts, and how that reads.

use std::fmt::Write as _;
use std::time::Duration;

use threadkeep::blocking::{Store, Workspace};
use threadkeep::{
    Answer, ArtifactKind, ArtifactQuery, ArtifactRelation, MessageEnd, MessageFormat, MessageId, MessagePolicy,
    MessageQuery, NewArtifact, NewMessage, NewPrompt, NewRequest, Principal, PromptQuery, RequestId, RequestQuery,
    TakeInto, TakeMessage, ThreadId, UseAnswer, Uuid,
};

/// Messages and requests in many states.
pub(crate) fn make(store: &Store, workspace: &Workspace, thread: &ThreadId) {
    let inject = |message| store.inject_message(thread, message).unwrap().id;
    let key = |key: &str| Some(key.to_owned());
    inject(NewMessage { key: key("it's one"), ..NewMessage::text("ana", "look at the log") });
    let steer = NewMessage { policy: MessagePolicy::Steer, source: key("web"), ..NewMessage::text("bo", "left") };
    inject(steer);
    let live = store.resume(thread, false).unwrap();
    let take = |token| {
        let how =
            TakeMessage { token: Some(Uuid::from_u128(token)), into: TakeInto::NewTurn, ..TakeMessage::default() };
        live.take_message(how).unwrap().unwrap().message.id
    };
    let taken: [MessageId; 2] = [take(1), take(2)];
    live.end_message(taken[0], MessageEnd::Acted { outcome: Some("went left".into()) }).unwrap();
    live.deliver_message(taken[1]).unwrap();
    inject(NewMessage { format: MessageFormat::Json, priority: -3, ..NewMessage::text("ana", r#"{"it's": [1]}"#) });
    inject(NewMessage { expires_in: Some(Duration::from_secs(3_600)), ..NewMessage::text("ana", "in time") });
    let back = inject(NewMessage::text("ana", "never mind"));
    store.withdraw_message(thread, back, Some("done by hand".into())).unwrap();

    let id = |number| Some(RequestId::from_uuid(Uuid::from_u128(number)));
    let asked = live.ask_request(NewRequest { id: id(21), ..NewRequest::approval("run it's tests", b"cargo test") });
    let asked = asked.unwrap();
    let note = Some("fine".to_owned());
    let answer = Answer { option: "allow_once".into(), by: Principal::remote("bo"), note };
    store.answer_request(asked.id, answer).unwrap();
    // Not through the live handle, which would write into the thread when it was answered: by the server's clock on a server.
    store.use_answer(asked.id, UseAnswer { fingerprint: asked.fingerprint, token: Some(Uuid::from_u128(3)) }).unwrap();
    live.shutdown().unwrap();
    let enrolment = NewRequest { id: id(22), expires_in: None, ..NewRequest::enrolment("the laptop", r#"{"key":1}"#) };
    workspace.ask_request(enrolment).unwrap();
    workspace.ask_request(NewRequest { id: id(23), ..NewRequest::approval("push", b"git push") }).unwrap();
    let ana = Principal::local("ana");
    store.cancel_request(RequestId::from_uuid(Uuid::from_u128(23)), ana, None).unwrap();
}

/// Prompts of two tasks, and what came of them.
pub(crate) fn ask(store: &Store, thread: &ThreadId) {
    let live = store.resume(thread, false).unwrap();
    let ask = |new| live.begin_prompt(new).unwrap().receipt.id;
    let task = ask(NewPrompt { raw: b"typed \xff".to_vec(), ..NewPrompt::task("it's given") });
    ask(NewPrompt::retry(task, "it's given"));
    let metadata = r#"{"it's": 1.50}"#.to_owned();
    let new = NewArtifact::new(task, ArtifactKind::FileChange, ArtifactRelation::Realizes);
    live.add_artifact(NewArtifact { locator: Some("src/it's.rs".into()), metadata, ..new }).unwrap();
    let other = ask(NewPrompt::task("another task"));
    let new = NewArtifact::new(other, ArtifactKind::Decision, ArtifactRelation::DerivedFrom);
    live.add_artifact(NewArtifact { body: Some("left".into()), ..new }).unwrap();
    live.shutdown().unwrap();
}

/// The prompts of a thread, and its artifacts.
pub(crate) fn receipt_lines(store: &Store, thread: &ThreadId, out: &mut String) {
    for prompt in store.prompts(thread, PromptQuery::default()).unwrap().entries {
        writeln!(out, "{prompt:?}").unwrap();
    }
    for artifact in store.artifacts(thread, ArtifactQuery::default()).unwrap().entries {
        writeln!(out, "{artifact:?}").unwrap();
    }
}

/// The inbox of a thread.
pub(crate) fn inbox_lines(store: &Store, thread: &ThreadId, out: &mut String) {
    let query = MessageQuery { ascending: true, ..MessageQuery::default() };
    for message in store.messages(thread, query).unwrap().entries {
        writeln!(
            out,
            "message {} {} {:?} {} {} {} {} {:?} by {:?} {:?} accepted {} expires {:?} prompt {:?} turn {:?} {:?} {:?} {:?} {:?}",
            message.id,
            message.number,
            message.key,
            // Whether its time is over depends on when it is asked.
            if message.expires_at.is_some() { "expires" } else { message.state.as_str() },
            message.policy,
            message.priority,
            message.format,
            message.body,
            message.sender,
            message.source,
            message.accepted_at,
            message.expires_at,
            message.prompt,
            message.turn,
            message.taken_at,
            message.delivered_at,
            message.ended_at.filter(|_| message.expires_at.is_none()),
            message.outcome,
        )
        .unwrap();
    }
}

/// All requests.
pub(crate) fn request_lines(store: &Store, out: &mut String) {
    let query = RequestQuery { ascending: true, ..RequestQuery::default() };
    for request in store.requests(query).unwrap().entries {
        writeln!(
            out,
            "request {} {:?} {} {} {:?} {:?} call {} {} {:?} {} {:?} {:?} {:?} created {} expires {:?} resolved {:?} used {:?}",
            request.id,
            request.thread,
            request.number,
            request.kind,
            request.subject,
            request.detail,
            request.fingerprint,
            request.danger,
            request.options,
            request.state,
            request.resolved_by,
            request.answer,
            request.note,
            request.created_at,
            request.expires_at,
            request.resolved_at,
            request.consumed_at,
        )
        .unwrap();
    }
}
