//! What requests and answers are, and what may be granted to whom. Nothing here knows a store.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::claim::Holder;
use crate::error::{Error, Result};
use crate::id::{RequestId, ThreadId, WorkspaceId};
use crate::item::{Hash, check_tag, check_text, open_words};
use crate::thread::MAX_TEXT_BYTES;
use crate::time::Timestamp;

const MAX_DETAIL_BYTES: usize = 1 << 20;
const MAX_OPTIONS: usize = 16;
const MAX_LABEL_BYTES: usize = 1_024;
const MAX_NAME_BYTES: usize = 1_024;
/// How long a request is open that says nothing else.
const OPEN_FOR: Duration = Duration::from_secs(5 * 60);
const CALL_DOMAIN: &[u8] = b"threadkeep.call.v1";

open_words! {
    /// What is asked for. A word that is not known is granted nothing.
    RequestKind {
        /// To do something once, or from now on.
        Approval = "approval",
        /// To let somebody or something in for good. Only whoever is at this machine can.
        Enrolment = "enrolment",
    }
}

open_words! {
    /// How much can go wrong. A word that is not known is as bad as [`Danger::High`].
    Danger {
        /// Little.
        Low = "low",
        /// Much.
        High = "high",
    }
}

open_words! {
    /// What an option grants. A word that is not known grants nothing.
    Effect {
        /// This call.
        AllowOnce = "allow_once",
        /// Calls like this one, as long as the thread is worked on.
        AllowThread = "allow_thread",
        /// What lasts: calls like this one from now on, or an enrolment. Never from another machine.
        AllowAlways = "allow_always",
        /// Nothing.
        Deny = "deny",
    }
}

open_words! {
    /// Where an answer comes from. A word that is not known is somewhere else.
    Channel {
        /// From whoever is at this machine: its terminal, its desktop.
        Local = "local",
        /// From anywhere else: a web page, a chat, another machine.
        Remote = "remote",
    }
}

open_words! {
    /// How far a request is. One in a state that is not known can't be answered, and grants nothing.
    RequestState {
        /// It waits for an answer.
        Pending = "pending",
        /// It was answered.
        Answered = "answered",
        /// Nobody wants an answer any more.
        Cancelled = "cancelled",
        /// Nobody answered in time.
        Expired = "expired",
    }
}

open_words! {
    /// Whether a request may be answered whose owner is dead. A word that is not known says no.
    Unowned {
        /// The answer waits for whoever goes on with the owner's work.
        Answerable = "answerable",
        /// First somebody has to adopt it.
        Refused = "refused",
    }
}

/// An answer that may be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOption {
    /// Its name in the request.
    pub id: String,
    /// What people read.
    pub label: String,
    /// What it grants.
    pub effect: Effect,
    /// Whether it may be chosen from another machine, which no request can allow for what lasts.
    pub remote: bool,
}

impl RequestOption {
    /// An option that may be chosen from anywhere, as far as its effect allows.
    pub fn new(id: impl Into<String>, label: impl Into<String>, effect: Effect) -> Self {
        let remote = effect != Effect::AllowAlways;
        Self { id: id.into(), label: label.into(), effect, remote }
    }
}

/// Who answers or cancels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Principal {
    /// What they call themselves; whoever serves them has made sure of it.
    pub name: String,
    /// Where they are.
    pub channel: Channel,
}

impl Principal {
    /// Somebody at this machine.
    pub fn local(name: impl Into<String>) -> Self {
        Self { name: name.into(), channel: Channel::Local }
    }

    /// Somebody elsewhere.
    pub fn remote(name: impl Into<String>) -> Self {
        Self { name: name.into(), channel: Channel::Remote }
    }
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GivenAnswer {
    /// The option that was chosen.
    pub option: String,
    /// What that grants: [`Effect::Deny`] for whatever is stored that can't be granted.
    pub effect: Effect,
    /// The word that is stored.
    pub stored_effect: Effect,
}

/// A stored request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Its name; can't be guessed.
    pub id: RequestId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// The thread that it is about; it goes when that is purged.
    pub thread: Option<ThreadId>,
    /// Greater for what was asked later: requests are listed by it.
    pub number: i64,
    /// What is asked for.
    pub kind: RequestKind,
    /// What people read first.
    pub subject: String,
    /// All there is to know: JSON, as it was given. Of an enrolment it is the candidate.
    pub detail: Option<String>,
    /// Of the call that is asked about; see [`call_fingerprint`].
    pub fingerprint: Hash,
    /// How much can go wrong; a stored word that is not known reads as [`Danger::High`].
    pub danger: Danger,
    /// The answers that may be given; none when what is stored can't be read.
    pub options: Vec<RequestOption>,
    /// Whether it may be answered when its owner is dead.
    pub unowned: Unowned,
    /// Whether something of its texts was masked.
    pub masked: bool,
    /// Who asks.
    pub owner: Holder,
    /// Whether the owner is alive, and still holds the thread if it held it when it asked. A pending request without an owner stays:
    /// it is never granted by itself.
    pub owned: bool,
    /// When it was asked.
    pub created_at: Timestamp,
    /// From this time on, by the store's clock, it can't be answered.
    pub expires_at: Option<Timestamp>,
    /// How far it is, at the time of asking.
    pub state: RequestState,
    /// When it was answered, cancelled, or found to be over.
    pub resolved_at: Option<Timestamp>,
    /// Who answered or cancelled it.
    pub resolved_by: Option<Principal>,
    /// What was answered.
    pub answer: Option<GivenAnswer>,
    /// What whoever resolved it has to say.
    pub note: Option<String>,
    /// When the answer was used.
    pub consumed_at: Option<Timestamp>,
    /// What of it can't be read, and stands here as if it were nothing.
    pub damage: Option<String>,
    #[serde(skip)]
    pub(crate) token: Option<Uuid>,
    #[serde(skip)]
    pub(crate) lost_its_claim: bool,
}

/// A request to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRequest {
    /// Chosen by the caller to make a retry safe; minted when `None`. An id that can be guessed lets others answer.
    pub id: Option<RequestId>,
    /// The thread that it is about.
    pub thread: Option<ThreadId>,
    /// What is asked for.
    pub kind: RequestKind,
    /// What people read first.
    pub subject: String,
    /// All there is to know: JSON.
    pub detail: Option<String>,
    /// Of the call that is asked about; see [`call_fingerprint`].
    pub fingerprint: Hash,
    /// How much can go wrong.
    pub danger: Danger,
    /// The answers that may be given, 1 to 16.
    pub options: Vec<RequestOption>,
    /// How long it can be answered, from now on by the store's clock; for ever when `None`.
    pub expires_in: Option<Duration>,
    /// Whether it may be answered when its owner is dead.
    pub unowned: Unowned,
}

impl NewRequest {
    /// Asks for five minutes whether a call may be made: once, in this thread, always (only from this machine), or not. `call` is
    /// everything that makes the call what it is, in bytes that are always the same for the same call.
    pub fn approval(subject: impl Into<String>, call: &[u8]) -> Self {
        let option = |effect: Effect, label| RequestOption::new(effect.as_str().to_owned(), label, effect);
        Self {
            id: None,
            thread: None,
            kind: RequestKind::Approval,
            subject: subject.into(),
            detail: None,
            fingerprint: call_fingerprint(call),
            danger: Danger::High,
            options: vec![
                option(Effect::AllowOnce, "Allow this once"),
                option(Effect::AllowThread, "Allow in this thread"),
                option(Effect::AllowAlways, "Always allow"),
                option(Effect::Deny, "Deny"),
            ],
            expires_in: Some(OPEN_FOR),
            unowned: Unowned::Answerable,
        }
    }

    /// Proposes for five minutes to let a candidate in, which only somebody at this machine can do; anybody may decline. `candidate`
    /// is JSON.
    pub fn enrolment(subject: impl Into<String>, candidate: impl Into<String>) -> Self {
        let candidate = candidate.into();
        let options = vec![
            RequestOption::new("enrol", "Let it in", Effect::AllowAlways),
            RequestOption::new("decline", "Decline", Effect::Deny),
        ];
        let kind = RequestKind::Enrolment;
        Self { kind, options, detail: Some(candidate.clone()), ..Self::approval(subject, candidate.as_bytes()) }
    }
}

/// The fingerprint of a call, of an enrolment's candidate, or of whatever else is asked about.
pub fn call_fingerprint(call: &[u8]) -> Hash {
    let mut preimage = Vec::with_capacity(16 + CALL_DOMAIN.len() + call.len());
    for part in [CALL_DOMAIN, call] {
        preimage.extend_from_slice(&(part.len() as u64).to_le_bytes());
        preimage.extend_from_slice(part);
    }
    Hash::of(&preimage)
}

/// An answer to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The option that is chosen.
    pub option: String,
    /// Who answers.
    pub by: Principal,
    /// What they have to say.
    pub note: Option<String>,
}

/// The use of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UseAnswer {
    /// Of the call that is about to be made: it must be the one that was asked about.
    pub fingerprint: Hash,
    /// Chosen by the caller to make a retry safe: a repeated use with the same token gives the same answer. Minted when `None`.
    pub token: Option<Uuid>,
}

/// An answer that was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsedAnswer {
    /// What was granted. [`Effect::Deny`] when it was denied, and for whatever can't be granted.
    pub effect: Effect,
    /// The request.
    pub request: Request,
    /// Whether an earlier call with this token used it.
    pub repeated: bool,
}

/// A question for a page of requests, in the order in which they were asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestQuery {
    /// Only those in this state.
    pub state: Option<RequestState>,
    /// Only those of this kind.
    pub kind: Option<RequestKind>,
    /// Only those about this thread.
    pub thread: Option<ThreadId>,
    /// Those that were asked first at the beginning.
    pub ascending: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000. A page of large requests ends earlier.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for RequestQuery {
    fn default() -> Self {
        Self { state: None, kind: None, thread: None, ascending: false, limit: 100, cursor: None }
    }
}

/// What an option grants when somebody there chooses it, whatever the request says of it.
pub(super) fn granted(kind: &RequestKind, option: &RequestOption, channel: &Channel) -> Effect {
    match (kind, &option.effect, channel) {
        (RequestKind::Approval, Effect::AllowOnce | Effect::AllowThread | Effect::AllowAlways, Channel::Local)
        | (RequestKind::Enrolment, Effect::AllowAlways, Channel::Local) => option.effect.clone(),
        (RequestKind::Approval, Effect::AllowOnce | Effect::AllowThread, Channel::Remote) if option.remote => {
            option.effect.clone()
        }
        _ => Effect::Deny,
    }
}

/// The option that is chosen, if whoever chooses may.
pub(super) fn check_choice(request: &Request, answer: &Answer) -> Result<RequestOption> {
    let option = request.options.iter().find(|option| option.id == answer.option);
    let option = option.ok_or_else(|| {
        let names: Vec<&str> = request.options.iter().map(|option| option.id.as_str()).collect();
        Error::invalid("option", format!("the request has {}", names.join(", ")))
    })?;
    if granted(&request.kind, option, &answer.by.channel) != option.effect {
        let reason = match answer.by.channel {
            Channel::Local => "nothing is known to be granted by it",
            _ => "it is not to be chosen from another machine, and what lasts never is",
        };
        return Err(Error::invalid("option", reason));
    }
    if answer.by.channel != Channel::Local && !option.remote {
        return Err(Error::invalid("option", "it is not to be chosen from another machine"));
    }
    Ok(option.clone())
}

/// Refuses a request that can't be kept, or that would let what lasts be granted from elsewhere.
pub(super) fn check_new(new: &NewRequest) -> Result<()> {
    check_text("subject", &new.subject, MAX_TEXT_BYTES)?;
    if new.subject.trim().is_empty() {
        return Err(Error::invalid("subject", "whoever answers wants to know what is asked"));
    }
    if let Some(detail) = &new.detail {
        check_text("detail", detail, MAX_DETAIL_BYTES)?;
        let read = serde_json::from_str::<serde::de::IgnoredAny>(detail);
        read.map_err(|error| Error::invalid("detail", format!("it is no JSON: {error}")))?;
    }
    if let RequestKind::Unknown(_) = new.kind {
        return Err(Error::invalid("kind", "an approval or an enrolment can be asked for"));
    }
    if new.kind == RequestKind::Enrolment && new.detail.is_none() {
        return Err(Error::invalid("detail", "an enrolment has a candidate"));
    }
    check_tag("danger", new.danger.as_str())?;
    check_tag("unowned", new.unowned.as_str())?;
    if new.options.is_empty() || new.options.len() > MAX_OPTIONS {
        return Err(Error::invalid("options", format!("a request has 1 to {MAX_OPTIONS}")));
    }
    for (index, option) in new.options.iter().enumerate() {
        check_option(&new.kind, option)?;
        if new.options.iter().take(index).any(|other| other.id == option.id) {
            return Err(Error::invalid("options", format!("two are named `{}`", option.id)));
        }
    }
    Ok(())
}

fn check_option(kind: &RequestKind, option: &RequestOption) -> Result<()> {
    check_tag("options", &option.id)?;
    check_text("options", &option.label, MAX_LABEL_BYTES)?;
    if granted(kind, option, &Channel::Local) != option.effect {
        let reason = format!("`{}` can't be granted: {} by an {kind}", option.id, option.effect);
        return Err(Error::invalid("options", reason));
    }
    if option.remote && granted(kind, option, &Channel::Remote) != option.effect {
        let reason = format!("`{}` lasts, and what lasts is never granted from another machine", option.id);
        return Err(Error::invalid("options", reason));
    }
    Ok(())
}

pub(super) fn check_principal(by: &Principal) -> Result<()> {
    check_text("name", &by.name, MAX_NAME_BYTES)?;
    if by.name.trim().is_empty() {
        return Err(Error::invalid("name", "who answers is on record"));
    }
    match by.channel {
        Channel::Local | Channel::Remote => Ok(()),
        Channel::Unknown(_) => Err(Error::invalid("channel", "an answer is local or remote")),
    }
}

pub(super) fn check_note(note: Option<&str>) -> Result<()> {
    note.map_or(Ok(()), |note| check_text("note", note, MAX_TEXT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::{Channel, Effect, RequestKind, RequestOption, call_fingerprint, granted};

    /// What lasts, and what is not known, is granted to nobody from elsewhere, whatever the option says.
    #[test]
    fn nothing_that_lasts_is_granted_from_elsewhere() {
        let effects = ["allow_once", "allow_thread", "allow_always", "deny", "allow_all"].map(Effect::from_word);
        let mut grants = Vec::new();
        for kind in ["approval", "enrolment", "amnesty"].map(RequestKind::from_word) {
            for channel in ["local", "remote", "space"].map(Channel::from_word) {
                for effect in &effects {
                    let option = RequestOption { remote: true, ..RequestOption::new("x", "x", effect.clone()) };
                    if granted(&kind, &option, &channel) != Effect::Deny {
                        grants.push(format!("{kind} {channel} {effect}"));
                    }
                }
            }
        }
        let expected = [
            "approval local allow_once",
            "approval local allow_thread",
            "approval local allow_always",
            "approval remote allow_once",
            "approval remote allow_thread",
            "enrolment local allow_always",
        ];
        assert_eq!(grants, expected);
    }

    #[test]
    fn a_fingerprint_is_that_of_the_bytes_and_no_other() {
        assert_eq!(call_fingerprint(b"rm -rf target"), call_fingerprint(b"rm -rf target"));
        assert_ne!(call_fingerprint(b"rm -rf target"), call_fingerprint(b"rm -rf target "));
        assert_ne!(call_fingerprint(b""), crate::item::Hash::of(b""));
    }
}
