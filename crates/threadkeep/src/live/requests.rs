//! The requests of a live thread: asked under its claim, and put on record in its chain.

use std::sync::Arc;

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::item::{Expect, Kind, NewItem, Role};
use crate::log::append::{After, Append, Prepared, Run, TurnRule, append, mint_uuid};
use crate::requests::{self, Asker, NewRequest, Request, UseAnswer, UsedAnswer};
use crate::threads::{self, By, Hold, Scope};
use crate::view::{Part, View};

impl LiveThread {
    /// Asks for an approval or an enrolment about this thread, as its holder, and writes into the thread what was asked: an event,
    /// in the same transaction. When the claim is taken over, the request is owned by nobody. A repeated call with the same id finds
    /// it.
    ///
    /// # Errors
    /// As [`crate::Threads::ask_request`]; [`Error::ClaimLost`] when the claim was taken over.
    pub async fn ask_request(&self, mut request: NewRequest) -> Result<Request> {
        request.thread = Some(self.live.id.clone());
        let inner = &self.live.inner;
        let id = inner.new_request(&mut request)?;
        let (holder, host) = (inner.holder()?, Arc::clone(&inner.host));
        let ask = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            fence(tx, claim)?;
            let is_new = matches!(requests::get(tx, Scope::All, id, claim.now), Err(Error::NotFound { .. }));
            let asker = Asker { holder: holder.clone(), epoch: Some(claim.epoch) };
            let asked = requests::ask(tx, Scope::All, &request, id, &asker, claim.now)?;
            if is_new {
                let words = format!(
                    "asked for {} {id} (danger: {}) of the call {}: {}",
                    asked.kind, asked.danger, asked.fingerprint, asked.subject
                );
                write_event(tx, claim, &*host, words)?;
            }
            Ok(asked)
        };
        let asked = self.under_claim(self.terms(Sync::Synced).repeatable(), ask).await?;
        Ok(Request { owned: true, ..asked })
    }

    /// Uses the answer to a request about this thread, once, for the call that was asked about, and writes into the thread who
    /// answered what and when: an event, in the same transaction. Whoever verifies the thread verifies that.
    ///
    /// # Errors
    /// As [`crate::Threads::use_answer`]; [`Error::NotFound`] for a request that is about another thread; [`Error::ClaimLost`] when
    /// the claim was taken over: the answer is not used then.
    pub async fn use_answer(&self, id: RequestId, using: UseAnswer) -> Result<UsedAnswer> {
        let host = Arc::clone(&self.live.inner.host);
        let token = using.token.unwrap_or_else(|| mint_uuid(&*host, host.now()));
        let consume = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            fence(tx, claim)?;
            let request = requests::get(tx, Scope::All, id, claim.now)?;
            if request.thread.as_ref() != Some(claim.thread) {
                return Err(Error::not_found("request", id));
            }
            let used = requests::consume(tx, Scope::All, id, (using.fingerprint, token), claim.now)?;
            if !used.repeated {
                write_event(tx, claim, &*host, words_of(&used))?;
            }
            Ok(used)
        };
        self.under_claim(self.terms(Sync::Synced).repeatable(), consume).await
    }
}

fn words_of(used: &UsedAnswer) -> String {
    let UsedAnswer { effect, request, .. } = used;
    let by =
        request.resolved_by.as_ref().map_or_else(|| "nobody".to_owned(), |by| format!("{} ({})", by.name, by.channel));
    let at = request.resolved_at.map_or_else(String::new, |at| format!(" at {at}"));
    let option = request.answer.as_ref().map_or("", |answer| answer.option.as_str());
    format!(
        "{} {} was answered `{option}` by {by}{at}, which grants {effect}; used for the call {}",
        request.kind, request.id, request.fingerprint
    )
}

/// Locks the thread, and refuses a holder that was fenced off.
fn fence(tx: &mut dyn Tx, claim: &UnderClaim<'_>) -> Result<()> {
    let hold = Hold { thread: claim.thread.clone(), by: By::Holder(claim.epoch), now: claim.now };
    threads::hold(tx, &hold).map(drop)
}

/// Writes an event into the thread.
fn write_event(tx: &mut dyn Tx, claim: &UnderClaim<'_>, host: &dyn crate::host::Host, text: String) -> Result<()> {
    let view = View { role: Some(Role::System), parts: vec![Part::Note { text }], ..View::default() };
    let items = [Prepared::new(NewItem::from_view(Kind::Event, &view), host)?];
    let request = Append {
        thread: claim.thread.clone(),
        epoch: claim.epoch,
        writer: claim.writer,
        now: claim.now,
        expect: Expect::Any,
        turns: TurnRule::Open,
        runs: vec![Run { after: After::Head, items: items.into() }],
        requires: None,
        builds_on: None,
    };
    append(tx, &request).map(drop)
}
