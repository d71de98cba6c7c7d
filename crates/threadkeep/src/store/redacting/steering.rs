//! Masking what rules find in messages and requests.

use super::state::{ATTEMPTS, masked_text};
use super::{Grounds, Redaction};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::inbox;
use crate::log::redact;
use crate::requests;
use crate::secrets::{Found, Rules};
use crate::threads::{By, Hold};

impl Redaction<'_> {
    /// Masks what rules find in the messages of a thread's inbox.
    pub(super) async fn mask_messages(&mut self, thread: &ThreadId, rules: &Rules) -> Result<()> {
        let (mut after, mut attempts) = (Vec::new(), 0);
        loop {
            let (id, from) = (thread.clone(), after.clone());
            let page = self.inner().db.read(move |tx| inbox::texts(tx, &id, &from)).await?;
            if page.is_empty() {
                return Ok(());
            }
            for before in page {
                let last = before.id;
                if self.mask_message(thread, before, rules).await? {
                    (after, attempts) = (last.as_bytes().to_vec(), 0);
                    continue;
                }
                attempts = next_attempt(attempts, "message", last)?;
                break;
            }
        }
    }

    /// Masks a message; says whether it was as it had been looked at.
    async fn mask_message(&mut self, thread: &ThreadId, before: inbox::Texts, rules: &Rules) -> Result<bool> {
        let mut after = before.clone();
        let found = mask(&mut after.texts, [before.is_json, false, false, false], rules);
        if after == before {
            return Ok(true);
        }
        if self.apply {
            let grounds = self.grounds_for(&found);
            let store = self.inner().id;
            let hold =
                Hold { thread: thread.clone(), by: By::Anyone(self.threads.scope), now: self.inner().host.now() };
            let put = move |tx: &mut dyn Tx| {
                let is_as_it_was = inbox::put_texts(tx, &hold, &before, &after)?;
                if is_as_it_was {
                    redact::note_beside(tx, store, &hold.thread, &grounds)?;
                }
                Ok(is_as_it_was)
            };
            if !self.inner().db.write(Sync::Synced.within(thread.as_str()), put).await? {
                return Ok(false);
            }
        }
        self.note_rules(&found);
        self.note_field(thread, "message");
        Ok(true)
    }

    /// Masks what rules find in the requests about a thread, or in those about none.
    pub(super) async fn mask_requests(&mut self, thread: Option<&ThreadId>, rules: &Rules) -> Result<()> {
        let (mut after, mut attempts) = (Vec::new(), 0);
        loop {
            let (scope, id, from) = (self.threads.scope, thread.cloned(), after.clone());
            let page = self.inner().db.read(move |tx| requests::texts(tx, scope, id.as_ref(), &from)).await?;
            if page.is_empty() {
                return Ok(());
            }
            for before in page {
                let last = before.id;
                if self.mask_request(thread, before, rules).await? {
                    (after, attempts) = (last.as_bytes().to_vec(), 0);
                    continue;
                }
                attempts = next_attempt(attempts, "request", last)?;
                break;
            }
        }
    }

    /// Masks a request; says whether it was as it had been looked at.
    async fn mask_request(
        &mut self,
        thread: Option<&ThreadId>,
        before: requests::Texts,
        rules: &Rules,
    ) -> Result<bool> {
        let mut after = before.clone();
        let found = mask(&mut after.texts, requests::Texts::ARE_JSON, rules);
        if after == before {
            return Ok(true);
        }
        if self.apply {
            let (id, store, grounds) = (thread.cloned(), self.inner().id, self.grounds_for(&found));
            let put = move |tx: &mut dyn Tx| put_request(tx, store, id.as_ref(), (&before, &after), &grounds);
            let terms = match thread {
                Some(thread) => Sync::Synced.within(thread.as_str()),
                None => Sync::Synced.free().told(),
            };
            if !self.inner().db.write(terms, put).await? {
                return Ok(false);
            }
        }
        self.note_rules(&found);
        match thread {
            Some(thread) => self.note_field(thread, "request"),
            None => self.report.requests += 1,
        }
        Ok(true)
    }
}

fn put_request(
    tx: &mut dyn Tx,
    store: uuid::Uuid,
    thread: Option<&ThreadId>,
    (before, after): (&requests::Texts, &requests::Texts),
    grounds: &Grounds,
) -> Result<bool> {
    if !requests::put_texts(tx, before, after, grounds.at)? {
        return Ok(false);
    }
    match thread {
        Some(thread) => redact::note_beside(tx, store, thread, grounds)?,
        None => redact::note_erasure(tx)?,
    }
    Ok(true)
}

/// Masks texts in their places; gives what was found.
fn mask<const N: usize>(texts: &mut [Option<String>; N], are_json: [bool; N], rules: &Rules) -> Vec<Found> {
    let mut all = Vec::new();
    for (text, is_json) in texts.iter_mut().zip(are_json) {
        if let Some((masked, found)) = text.as_ref().and_then(|text| masked_text(rules, text.as_bytes(), is_json)) {
            *text = Some(masked);
            all.extend(found);
        }
    }
    all
}

fn next_attempt(attempts: usize, what: &str, id: impl std::fmt::Display) -> Result<usize> {
    match attempts + 1 {
        ATTEMPTS => Err(Error::Busy { detail: format!("{what} {id} is changed all the time") }),
        next => Ok(next),
    }
}
