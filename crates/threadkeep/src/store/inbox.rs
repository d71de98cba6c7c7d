//! The inboxes of the threads that a handle sees.

use super::{Inner, Threads};
use crate::claims::{self, Claim};
use crate::db::{Sync, Terms, Tx};
use crate::error::{Error, Result};
use crate::id::{MessageId, ThreadId};
use crate::inbox::{self, Message, MessageFormat, MessagePolicy, MessageQuery, MessageState, NewMessage};
use crate::jobs::clock;
use crate::log::append::mint_uuid;
use crate::thread::Page;

impl Threads {
    /// Puts a message into the inbox of a thread, whoever writes that and whether somebody does. A repeated call with the same key
    /// finds the message, whatever has become of it. One that does not want to wait is [`MessageState::Rejected`] when the thread is
    /// busy: while a living holder has an open turn, or while other messages wait.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the thread; [`Error::Conflict`] when the key is that of another body, when the thread is in the
    /// trash, and when [`crate::MAX_QUEUED_MESSAGES`] wait already; [`Error::Invalid`] for a message that can't be kept.
    pub async fn inject_message(&self, thread: &ThreadId, mut message: NewMessage) -> Result<Message> {
        self.inner.screen_message(&mut message)?;
        let dead = match message.policy {
            MessagePolicy::Reject => self.dead_holder(thread).await?,
            _ => None,
        };
        let id = MessageId::from_uuid(mint_uuid(&*self.inner.host, self.inner.host.now()));
        let inject =
            move |tx: &mut dyn Tx, hold: &crate::threads::Hold| inbox::inject(tx, hold, &message, id, dead.as_deref());
        self.change(thread, steering_terms(), inject).await
    }

    /// Reads a message of a thread.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Corrupt`] names a message that can't be read.
    pub async fn message(&self, thread: &ThreadId, id: MessageId) -> Result<Message> {
        let now = self.inner.host.now();
        let read = move |tx: &mut dyn Tx, thread: &ThreadId| {
            let now = clock(tx, now)?;
            Ok((inbox::get(tx, thread, id, now)?, claim_of(tx, thread)?))
        };
        let (message, claim) = self.read(thread, read).await?;
        Ok(self.inner.judge_message(message, claim.as_ref()))
    }

    /// Finds a message of a thread by its id, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::Ambiguous`] with the candidates.
    pub async fn find_message(&self, thread: &ThreadId, name: impl Into<String>) -> Result<MessageId> {
        let name = name.into();
        self.read(thread, move |tx, thread| inbox::find(tx, thread, &name)).await
    }

    /// Reads a page of the messages of a thread, those that were accepted last at the beginning. A damaged one is listed, and says
    /// so.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the thread; [`Error::Invalid`] for a cursor of another query.
    pub async fn messages(&self, thread: &ThreadId, query: MessageQuery) -> Result<Page<Message>> {
        let now = self.inner.host.now();
        let read = move |tx: &mut dyn Tx, thread: &ThreadId| {
            let now = clock(tx, now)?;
            Ok((inbox::page(tx, thread, &query, now)?, claim_of(tx, thread)?))
        };
        let (page, claim) = self.read(thread, read).await?;
        let judge = |message| self.inner.judge_message(message, claim.as_ref());
        Ok(Page { entries: page.entries.into_iter().map(judge).collect(), next_cursor: page.next_cursor })
    }

    /// The messages of a thread that wait, in the order in which they would be taken.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the thread.
    pub async fn message_queue(&self, thread: &ThreadId) -> Result<Vec<MessageId>> {
        let now = self.inner.host.now();
        let read = move |tx: &mut dyn Tx, thread: &ThreadId| {
            let now = clock(tx, now)?;
            inbox::queue(tx, thread, now)
        };
        self.read(thread, read).await
    }

    /// Takes a message back that nobody took yet.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] when it does not wait any more.
    pub async fn withdraw_message(
        &self,
        thread: &ThreadId,
        id: MessageId,
        mut reason: Option<String>,
    ) -> Result<Message> {
        self.inner.screen.text("reason", &mut reason)?;
        let withdraw =
            move |tx: &mut dyn Tx, hold: &crate::threads::Hold| inbox::withdraw(tx, hold, id, reason.as_deref());
        self.change(thread, steering_terms(), withdraw).await
    }

    /// Puts the messages of a thread that wait into another order, which names each of them once. A message that is put before more
    /// urgent ones is as urgent as they are from then on.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a message that waits is not named, or another one is, or one twice; nothing is changed then.
    pub async fn reorder_messages(&self, thread: &ThreadId, order: Vec<MessageId>) -> Result<()> {
        let reorder = move |tx: &mut dyn Tx, hold: &crate::threads::Hold| inbox::reorder(tx, hold, &order);
        self.change(thread, steering_terms(), reorder).await
    }

    /// The holder of a thread, if it is known to be dead.
    async fn dead_holder(&self, thread: &ThreadId) -> Result<Option<String>> {
        let Some(claim) = self.read(thread, claim_of).await? else { return Ok(None) };
        let dead = claim.holder.filter(|holder| !self.inner.is_alive(holder, claim.at));
        Ok(dead.map(|holder| holder.id))
    }
}

impl Inner {
    /// Says of a message whether it is left unfinished.
    pub(crate) fn judge_message(&self, message: Message, claim: Option<&Claim>) -> Message {
        let is_in_hand = matches!(message.state, MessageState::Taken | MessageState::Delivered);
        let is_held = claim.is_some_and(|claim| {
            let alive = claim.holder.as_ref().is_some_and(|holder| self.is_alive(holder, claim.at));
            alive && Some(claim.epoch) == message.epoch
        });
        Message { unfinished: is_in_hand && !is_held, ..message }
    }

    fn screen_message(&self, message: &mut NewMessage) -> Result<()> {
        let mut body = Some(std::mem::take(&mut message.body));
        match message.format {
            MessageFormat::Json => self.screen.json("body", &mut body)?,
            _ => self.screen.text("body", &mut body)?,
        }
        let mut sender = Some(std::mem::take(&mut message.sender));
        self.screen.text("sender", &mut sender)?;
        (message.body, message.sender) = (body.unwrap_or_default(), sender.unwrap_or_default());
        self.screen.text("source", &mut message.source)
    }
}

/// A second run of each of these finds what the first one did.
fn steering_terms() -> Terms {
    Sync::Synced.free().repeatable()
}

/// The claim on a thread; none on one in the trash.
fn claim_of(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<Claim>> {
    match claims::read(tx, thread) {
        Err(Error::NotFound { .. }) => Ok(None),
        claim => claim.map(Some),
    }
}
