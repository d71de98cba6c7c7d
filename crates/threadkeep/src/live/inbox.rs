//! The inbox of a live thread: messages are taken under its claim, each with its prompt in one transaction.

use std::sync::Arc;

use uuid::Uuid;

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::follow::InboxWatch;
use crate::id::MessageId;
use crate::inbox::{self, MAX_MESSAGE_BYTES, Message, MessageEnd, TakeInto, TakeMessage, TakenMessage, Taker};
use crate::jobs::clock;
use crate::log::append::mint_uuid;
use crate::{threads, turns};

impl LiveThread {
    /// Takes the next message of the thread's inbox and writes its prompt, in one transaction and synced before this returns; gives
    /// nothing when none waits. However often it is asked and whoever dies, a message gives one prompt.
    ///
    /// Of the messages that wait the most urgent comes first (those that steer, then by priority), then the one that was accepted
    /// first. With [`TakeInto::OpenTurn`] the first one that steers is taken, into the turn that is open.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] while a message is unfinished that an earlier holder took: [`LiveThread::end_message`] says what
    /// becomes of it, and [`TakeMessage::past_unfinished`] goes past it; [`crate::Error::NotFound`] when no turn is open that the
    /// message could come into; [`crate::Error::ClaimLost`] when the claim was taken over: nothing is taken then.
    pub async fn take_message(&self, how: TakeMessage) -> Result<Option<TakenMessage>> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        let epoch = self.materialise(&mut state, Sync::Synced).await?;
        if !self.may_take(epoch, &how).await? {
            return Ok(None);
        }
        let host = Arc::clone(&self.live.inner.host);
        let token = how.token.unwrap_or_else(|| mint_uuid(&*host, host.now()));
        let builds_on = state.acknowledged;
        let take = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let UnderClaim { thread, epoch, writer, now } = *claim;
            inbox::take(tx, &Taker { thread, epoch, writer, now, builds_on, token, host: &*host }, &how)
        };
        let terms = self.terms(Sync::Synced).repeatable();
        let taken = self.send_under_claim(&mut state, MAX_MESSAGE_BYTES, terms, take).await?.await?;
        if let Some(prompt) = taken.as_ref().filter(|taken| !taken.repeated).and_then(|taken| taken.message.prompt) {
            state.acknowledged = Some(prompt);
        }
        Ok(taken)
    }

    /// Notes that the agent has a message that was taken. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] when it is not one that was taken; [`crate::Error::ClaimLost`] when
    /// the claim was taken over.
    pub async fn deliver_message(&self, id: MessageId) -> Result<Message> {
        self.change(Sync::Synced.free().repeatable(), move |tx, hold| inbox::deliver(tx, hold, id)).await
    }

    /// Says what became of a message that was taken, by this holder or by one before it. Repeating it changes nothing.
    ///
    /// # Errors
    /// As [`LiveThread::deliver_message`].
    pub async fn end_message(&self, id: MessageId, mut end: MessageEnd) -> Result<Message> {
        let mut words = match &mut end {
            MessageEnd::Acted { outcome } => outcome.take(),
            MessageEnd::Failed { reason } => Some(std::mem::take(reason)),
        };
        self.live.inner.screen.text("outcome", &mut words)?;
        let end = match end {
            MessageEnd::Acted { .. } => MessageEnd::Acted { outcome: words },
            MessageEnd::Failed { .. } => MessageEnd::Failed { reason: words.unwrap_or_default() },
        };
        self.change(Sync::Synced.free().repeatable(), move |tx, hold| inbox::end(tx, hold, id, &end)).await
    }

    /// Listens for messages that could be taken in this way, through whatever process they come, without asking again and again.
    ///
    /// # Errors
    /// As [`crate::Threads::watch_inbox`].
    pub async fn watch_inbox(&self, into: TakeInto) -> Result<InboxWatch> {
        self.persist().await?;
        self.threads().watch_inbox(&self.live.id, into).await
    }

    /// Whether it is worth to ask the writer: a look at the inbox changes nothing of the thread. A holder that was fenced off asks,
    /// and is told so.
    async fn may_take(&self, epoch: i64, how: &TakeMessage) -> Result<bool> {
        let (thread, host_now, into, token) = (self.live.id.clone(), self.live.inner.host.now(), how.into, how.token);
        let look = move |tx: &mut dyn Tx| {
            let is_known = |tx: &mut dyn Tx, token: Uuid| inbox::is_taken(tx, &thread, token);
            if token.map_or(Ok(false), |token| is_known(tx, token))? {
                return Ok(true);
            }
            let now = clock(tx, host_now)?;
            let is_fenced_off = !threads::is_at(tx, &thread, epoch)?;
            let no_turn = into == TakeInto::OpenTurn && turns::open(tx, &thread)?.is_none();
            Ok(is_fenced_off || no_turn || inbox::is_waiting(tx, &thread, into, now)?)
        };
        self.live.inner.db.read(look).await
    }
}
