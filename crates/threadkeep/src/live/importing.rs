//! Importing: the steps in which a file is written into its thread.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{LiveThread, Phase};
use crate::db::{Pending, Sync, Tx};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::ItemId;
use crate::item::{Appended, Durability, Expect, Kind, NewItem};
use crate::log::append::{After, Append, Prepared, Run, TurnRule, append_telling};
use crate::log::{head, path};
use crate::receipt;
use crate::sources::{self, ImportBatch, ImportPart};
use crate::threads::{self, Scope};
use crate::time::Timestamp;

/// A step of an import on its way into the store: a future of what is answered when it is stored. Dropped, it is stored all the
/// same.
#[derive(Debug)]
#[must_use = "whether it was stored is known only here"]
pub struct Importing(Pending<Appended>);

impl Future for Importing {
    type Output = Result<Appended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl LiveThread {
    /// Writes one step of an import: items with their places, the map of their file, and how far it has been read.
    ///
    /// # Errors
    /// As [`LiveThread::append_with`], but nothing is kept: the next import reads the file again from the last step.
    pub async fn import(&self, batch: ImportBatch, durability: Durability) -> Result<Appended> {
        self.send_import(batch, durability).await?.await
    }

    /// As [`LiveThread::import`], and answers when the step is on its way, so that the next one can be read meanwhile. What is sent
    /// for one thread is stored in the order of sending.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when the batch can't be stored; what comes of creating and claiming the thread. What comes of
    /// storing the step, the answer says.
    pub async fn send_import(&self, batch: ImportBatch, durability: Durability) -> Result<Importing> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        let sync = sync_of(durability);
        let (bytes, mut step) = self.step(batch)?;
        self.materialise(&mut state, sync).await?;
        step.request = self.stamp(&mut state, &step.request).await?;
        let place = self.live.inner.db.place(bytes).await;
        let write = move |tx: &mut dyn Tx| step.write(tx);
        Ok(Importing(self.live.inner.db.write_in(place, self.terms(sync), write)))
    }

    /// Sends a session that is read to its end for a thread that is not stored yet: the thread, the only step of its import, all
    /// in one transaction. Answers when that is on its way, so that the next file can be read meanwhile; what is sent through one
    /// store is stored in the order of sending. The handle is closed then, and nobody holds a claim.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the thread is stored already or the batch can't be. What comes of storing it, the answer says: as
    /// [`LiveThread::import`]; [`Error::AlreadyExists`] where the thread was stored meanwhile.
    pub async fn import_whole(&self, batch: ImportBatch, durability: Durability) -> Result<Importing> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        let Phase::Unborn(creation) = &state.phase else {
            return Err(Error::invalid("thread", "it is stored already, so that a file goes into it step by step"));
        };
        let creation = creation.clone();
        let (bytes, mut step) = self.step(batch)?;
        step.request.writer = self.live.inner.writer().await?;
        let place = self.live.inner.db.place(bytes).await;
        state.phase = Phase::Closed;
        let write = move |tx: &mut dyn Tx| {
            step.request.epoch = threads::create(tx, &creation)?;
            step.write(tx)
        };
        Ok(Importing(self.live.inner.db.write_in(place, self.terms(sync_of(durability)).after_all(), write)))
    }

    /// Screens a batch and makes its items ready; gives what it takes of memory, too.
    fn step(&self, mut batch: ImportBatch) -> Result<(usize, Step)> {
        let replaced = batch.screen(&self.live.inner.screen)?;
        let bytes = batch.bytes();
        let runs = runs(&mut batch, &*self.live.inner.host)?;
        let mut request = self.request(runs, Expect::Any, TurnRule::Imported);
        let imported_at = request.now;
        request.now = batch.updated_at.unwrap_or(request.now);
        Ok((bytes, Step { request, batch, imported_at, replaced }))
    }
}

/// A step, ready to be written any number of times.
struct Step {
    request: Append,
    /// Without what its items say, which the request has.
    batch: ImportBatch,
    imported_at: Timestamp,
    replaced: usize,
}

impl Step {
    fn write(&self, tx: &mut dyn Tx) -> Result<Appended> {
        let Self { request, batch, .. } = self;
        let mut placed = HashMap::new();
        let appended = append_telling(tx, request, &mut |id, key| placed.extend([(id, key)]))?;
        sources::write(tx, batch, &placed, self.imported_at)?;
        if let Some(head) = batch.head {
            move_head(tx, request, head)?;
        }
        if let Some(patch) = &batch.patch {
            threads::update(tx, Scope::All, &request.thread, patch.clone(), request.now)?;
        }
        Ok(Appended { replaced: self.replaced, ..appended })
    }
}

fn sync_of(durability: Durability) -> Sync {
    if durability == Durability::Synced { Sync::Synced } else { Sync::Written }
}

/// Takes the new items out of a batch, in runs that continue one another; it keeps their ids.
fn runs(batch: &mut ImportBatch, host: &dyn Host) -> Result<Vec<Run>> {
    let mut runs: Vec<(After, Vec<Prepared>)> = Vec::new();
    let mut salts = vec![[0; 16]; batch.segments.len()];
    host.fill_random(salts.as_flattened_mut());
    for (segment, salt) in batch.segments.iter_mut().zip(salts) {
        let ImportPart::Item { item, after, starts_turn, .. } = &mut segment.part else {
            continue;
        };
        receipt::refuse_unasked(&item.format)?;
        let left = NewItem { id: item.id, ..NewItem::raw(Kind::Event, String::new(), Vec::new()) };
        let mut prepared = Prepared::salted(std::mem::replace(&mut **item, left), salt, host)?;
        prepared.starts_turn = *starts_turn;
        match runs.last_mut() {
            Some((_, items)) if after.is_some() && items.last().map(|last| last.id) == *after => items.push(prepared),
            _ => runs.push((after.map_or(After::Nothing, After::Item), vec![prepared])),
        }
    }
    Ok(runs.into_iter().map(|(after, items)| Run { after, items: items.into() }).collect())
}

fn move_head(tx: &mut dyn Tx, request: &Append, to: ItemId) -> Result<()> {
    let key = path::key_by_id(tx, to)?.ok_or_else(|| Error::not_found("item", to))?;
    let address = path::address_of(tx, key)?;
    head::set_head(tx, &request.thread, request.epoch, request.writer, request.now, address)
}
