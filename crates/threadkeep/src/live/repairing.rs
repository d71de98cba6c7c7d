//! Repairing the turns of a thread that somebody left in the middle.

use std::sync::Arc;

use super::under_claim::UnderClaim;
use super::{LiveThread, Phase};
use crate::dangling::{ClosedCall, Dangling, Lacks, Search, Seen, TurnRepair, words_for, words_of_receipt};
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::id::ThreadId;
use crate::item::{Item, Kind, NewItem, Role};
use crate::log::mend::{Mender, Mending, Missing, mend};
use crate::log::read::ItemQuery;
use crate::search::document::{Readers, Source};
use crate::store::Threads;
use crate::turns;
use crate::view::{Part, View};

impl LiveThread {
    /// Repairs what an earlier holder left in the middle: calls of tools on the active path that have no result get a synthetic
    /// one, and the turn that it left open is marked as interrupted. Nothing else does this; reading and resuming leave a
    /// thread as it is.
    ///
    /// The results stand where real ones would, on a branch of their own. What follows the first of them is written again behind
    /// it, so this costs as much as it has to write; the former branch stays as it was. A synthetic result says so in its words
    /// and by [`View::synthetic`], cites its call, and is a failure. A note stands behind all of it.
    ///
    /// What was written under this handle's own claim is left alone: who holds it may still be waiting. Repeating it changes
    /// nothing and answers that nothing was needed. Calls and results are known as far as the store reads the formats of their
    /// items ([`crate::StoreOptions::read_with`]).
    ///
    /// # Errors
    /// As every write under a claim; [`crate::Error::Corrupt`] names an item that can't be read. Then nothing is changed.
    pub async fn repair_turns(&self) -> Result<TurnRepair> {
        let mut state = self.live.state.lock().await;
        self.check_open(&mut state).await?;
        if matches!(state.phase, Phase::Unborn(_)) {
            return Ok(TurnRepair::nothing(self.live.id.clone()));
        }
        let epoch = self.materialise(&mut state, Sync::Synced).await?;
        self.settle(&mut state).await?;
        let keeps = |kind: &Kind| state.policy.keeps(kind);
        let (keeps_results, keeps_events) = (keeps(&Kind::ToolResult), keeps(&Kind::Event));
        let mut looked = self.threads().look_for_gaps(&self.live.id, Some(epoch)).await?;
        if !keeps_results {
            // They were left out on purpose.
            looked.forget_calls();
        }
        let Looked { mut repair, lacks } = looked;
        if !repair.is_needed() {
            return Ok(TurnRepair { head: repair.from, ..repair });
        }
        let mending = mending(&lacks.dangling, &repair, keeps_events);
        let inner = Arc::clone(&self.live.inner);
        let write = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let &UnderClaim { thread, epoch, writer, now } = claim;
            let by = Mender { thread, epoch, writer, now, host: &*inner.host, screen: &inner.screen };
            mend(tx, &by, &mending)
        };
        // A second run would find the head elsewhere.
        let mended = self.send_under_claim(&mut state, 0, self.terms(Sync::Synced), write).await?.await?;
        for (call, place) in repair.closed.iter_mut().zip(mended.places) {
            call.result = Some(place);
        }
        Ok(TurnRepair { rewritten: mended.rewritten, head: mended.head, ..repair })
    }
}

impl Threads {
    /// What [`LiveThread::repair_turns`] would do. Only reads, and needs no claim: what a living holder wrote is counted as
    /// running.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Corrupt`] names an item that can't be read.
    pub async fn plan_turn_repair(&self, thread: &ThreadId) -> Result<TurnRepair> {
        let found = self.get(thread).await?;
        let held = found.live.then_some(found.epoch);
        Ok(self.look_for_gaps(thread, held).await?.repair)
    }

    /// Looks for what was left in the middle by others than the holder at this epoch.
    async fn look_for_gaps(&self, thread: &ThreadId, held: Option<i64>) -> Result<Looked> {
        let mut repair = TurnRepair::nothing(thread.clone());
        repair.from = self.get(thread).await?.head;
        let open = self.read(thread, turns::open_since).await?;
        repair.interrupted = open.filter(|(_, epoch)| held != Some(*epoch)).map(|(ordinal, _)| ordinal);
        let Some(head) = repair.from else { return Ok(Looked { repair, lacks: Lacks::default() }) };
        let (mut search, readers) = (Search::default(), self.inner.indexer.readers.clone());
        let mut query = ItemQuery { at: Some(head), limit: usize::MAX, ..ItemQuery::default() };
        loop {
            let page = self.items(thread, query.clone()).await?;
            for item in page.entries {
                see(&mut search, &readers, item, thread, held);
            }
            match page.next_cursor {
                None => break,
                cursor => query.cursor = cursor,
            }
        }
        let lacks = search.end();
        repair.rewritten =
            lacks.dangling.first().and_then(|first| first.before).map_or(0, |at| u64::from(head.depth - at) + 1);
        repair.closed = lacks.dangling.iter().map(planned).collect();
        let Lacks { running, without_id, without_call, .. } = lacks;
        Ok(Looked { repair: TurnRepair { running, without_id, without_call, ..repair }, lacks })
    }
}

/// What was found.
struct Looked {
    repair: TurnRepair,
    lacks: Lacks,
}

impl Looked {
    fn forget_calls(&mut self) {
        self.lacks = Lacks::default();
        let (interrupted, from) = (self.repair.interrupted, self.repair.from);
        self.repair = TurnRepair { interrupted, from, ..TurnRepair::nothing(self.repair.thread.clone()) };
    }
}

fn planned(call: &Dangling) -> ClosedCall {
    ClosedCall { call_id: call.call_id.clone(), tool: call.tool.clone(), call: call.at, result: None }
}

fn see(search: &mut Search, readers: &Readers, item: Item, thread: &ThreadId, held: Option<i64>) {
    let (id, at, is_own) = (item.id, item.address(), item.thread == *thread);
    let is_held = is_own && held == Some(item.epoch);
    let source = Source {
        key: 0,
        kind: item.kind,
        role: item.role,
        format: item.format,
        created_at: item.created_at,
        content: item.content,
    };
    let (view, awaits) = (readers.read(&source), readers.awaits_result(&source));
    let turn = item.turn.filter(|_| is_own);
    search.see(&Seen { id, at, kind: &source.kind, turn, view: &view, awaits, is_held });
}

fn mending(calls: &[Dangling], repair: &TurnRepair, with_receipt: bool) -> Mending {
    let behind = repair.from.map_or(0, |head| head.depth.saturating_add(1));
    let missing = |call: &Dangling| Missing {
        before: call.before.unwrap_or(behind),
        turn: call.turn,
        item: synthetic_result(call),
    };
    let receipt = repair.from.filter(|_| with_receipt).map(|from| {
        let text = words_of_receipt(calls.len(), repair.rewritten, from);
        let view = View { role: Some(Role::System), parts: vec![Part::Note { text }], ..View::default() };
        NewItem::from_view(Kind::Event, &view)
    });
    Mending { head: repair.from, interrupts: repair.interrupted, missing: calls.iter().map(missing).collect(), receipt }
}

/// A result as a real one is, but for what says that it is none.
fn synthetic_result(call: &Dangling) -> NewItem {
    let part = Part::ToolResult { call_id: call.call_id.clone(), output: words_for(call), is_error: true };
    let view = View { role: Some(Role::Tool), parts: vec![part], synthetic: true, ..View::default() };
    NewItem { sources: vec![call.item], ..NewItem::from_view(Kind::ToolResult, &view) }
}
