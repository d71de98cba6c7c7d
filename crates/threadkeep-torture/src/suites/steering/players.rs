//! The processes that are killed: holders that take messages, ask and use answers, and outsiders that send, answer and cancel.

use std::path::PathBuf;

use clap::Args;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Answer, Effect, Error, MessageEnd, NewMessage, NewRequest, Principal, RequestId, RequestQuery, RequestState,
    TakeInto, TakeMessage, ThreadId, UseAnswer, Uuid,
};

use super::{LANES, call, label, lane};
use crate::Result;
use crate::child::say;
use crate::ground;

/// What somebody elsewhere must not be able to grant.
const LASTING: &str = "allow_always";
/// How many requests are looked at in one go.
const AT_ONCE: usize = 8;
/// One that lies leaves out each of so many answers.
const LIES: u64 = 5;
/// Tokens of uses are told by it from those of takes.
const USES: u64 = 1 << 32;

/// A process that steers threads or is steered, for ever.
#[derive(Debug, Args)]
pub(crate) struct Steer {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    life: u64,
    /// Whose thread it holds; without one it is an outsider.
    #[arg(long)]
    lane: Option<u64>,
    /// An outsider that is elsewhere.
    #[arg(long)]
    remote: bool,
    /// Acknowledges answers that it does not give.
    #[arg(long)]
    lie: bool,
}

/// Works until it is killed. `B` says what is asked for, `A` what was acknowledged, `V` what should have been refused.
pub(crate) fn play_steering(steer: &Steer) -> Result<()> {
    let told = |error: Error| error.to_string();
    let options = ground::options(&steer.store).map_err(told)?.label(label(steer.life));
    let store = Store::open(options).map_err(told)?;
    match steer.lane {
        Some(number) => hold(&store, &lane(number), steer.life),
        None => intrude(&store, steer),
    }
    .map_err(told)
}

/// Takes a message with its prompt, ends it, asks for something, and uses what was answered.
fn hold(store: &Store, thread: &ThreadId, life: u64) -> threadkeep::Result<()> {
    let live = store.resume(thread, false)?;
    say("R");
    let mut uses = USES;
    for number in 0_u64.. {
        let token = Uuid::from_u64_pair(life, number);
        say(format_args!("B t {token}"));
        let taken = take(&live, token)?;
        match taken {
            None => say(format_args!("A t {token} -")),
            Some(taken) => {
                let id = taken.message.id;
                say(format_args!("A t {token} {id}"));
                say(format_args!("B m {id}"));
                live.end_message(id, MessageEnd::Acted { outcome: None })?;
                say(format_args!("A m {id}"));
            }
        }
        say(format_args!("B q {token}"));
        live.ask_request(request(RequestId::from_uuid(token)))?;
        say(format_args!("A q {token}"));
        let (state, limit) = (Some(RequestState::Answered), AT_ONCE);
        let query = RequestQuery { state, thread: Some(thread.clone()), limit, ..RequestQuery::default() };
        for answered in store.requests(query)?.entries.into_iter().filter(|request| request.consumed_at.is_none()) {
            uses += 1;
            let token = Uuid::from_u64_pair(life, uses);
            say(format_args!("B u {} {token}", answered.id));
            use_it(&live, answered.id, token)?;
            say(format_args!("A u {}", answered.id));
        }
    }
    Ok(())
}

/// Takes what waits, whatever an earlier holder left.
pub(super) fn take(live: &LiveThread, token: Uuid) -> threadkeep::Result<Option<threadkeep::TakenMessage>> {
    live.take_message(TakeMessage {
        token: Some(token),
        into: TakeInto::NewTurn,
        past_unfinished: true,
        ..TakeMessage::default()
    })
}

/// An approval that waits for ever.
pub(super) fn request(id: RequestId) -> NewRequest {
    NewRequest { id: Some(id), expires_in: None, ..NewRequest::approval("steering", id.as_bytes()) }
}

/// Uses the answer to an approval under a token.
pub(super) fn use_it(live: &LiveThread, id: RequestId, token: Uuid) -> threadkeep::Result<threadkeep::UsedAnswer> {
    live.use_answer(id, UseAnswer { fingerprint: call(id), token: Some(token) })
}

/// Sends messages, and answers or cancels what waits.
fn intrude(store: &Store, steer: &Steer) -> threadkeep::Result<()> {
    say("R");
    let by = principal(steer.life, steer.remote);
    for number in 0_u64.. {
        if number.is_multiple_of(2) {
            let (to, key) = ((number / 2) % LANES, format!("{}-{number}", steer.life));
            say(format_args!("B i {to} {key}"));
            let sent = store.inject_message(&lane(to), message(&key))?;
            say(format_args!("A i {key} {}", sent.id));
        }
        let (state, limit) = (Some(RequestState::Pending), AT_ONCE);
        let pending = store.requests(RequestQuery { state, ascending: true, limit, ..RequestQuery::default() })?;
        for waits in pending.entries {
            let part = waits.number.unsigned_abs() + steer.life;
            if steer.lie && part.is_multiple_of(LIES) {
                say(format_args!("A n {}", waits.id));
            } else if part % 4 == 3 {
                say(format_args!("B x {}", waits.id));
                decide(store.cancel_request(waits.id, by.clone(), None), format_args!("A x {}", waits.id))?;
            } else {
                answer(store, waits.id, &by, steer.remote)?;
            }
        }
    }
    Ok(())
}

fn answer(store: &Store, id: RequestId, by: &Principal, remote: bool) -> threadkeep::Result<()> {
    let answer = |option: &str| Answer { option: option.to_owned(), by: by.clone(), note: None };
    if remote {
        match store.answer_request(id, answer(LASTING)) {
            Err(Error::Invalid { .. } | Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
            Ok(_) => say(format_args!("V {id}")),
        }
    }
    say(format_args!("B n {id}"));
    decide(store.answer_request(id, answer(Effect::AllowOnce.as_str())), format_args!("A n {id}"))
}

/// Says that it was first, unless others were.
fn decide<T>(outcome: threadkeep::Result<T>, words: impl std::fmt::Display) -> threadkeep::Result<()> {
    match outcome {
        Ok(_) => say(words),
        Err(Error::Conflict { what: "request", .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// A message under its key.
pub(super) fn message(key: &str) -> NewMessage {
    NewMessage { key: Some(key.to_owned()), ..NewMessage::text("an outsider", format!("message {key}")) }
}

/// Who an outsider is.
fn principal(life: u64, remote: bool) -> Principal {
    let name = label(life);
    if remote { Principal::remote(name) } else { Principal::local(name) }
}
