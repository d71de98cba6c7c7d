//! Going on from where a thread is known to stand: what its holder appends next needs to read nothing of the thread.
//!
//! Only the holder of a claim moves the head, so it knows the head from its own last append. The hash is computed first, and
//! one statement compares the epoch, the head and the open turn and moves the head. When anything of it is not as it was
//! known, that statement changes nothing, and the longer way of [`append`](super::append) is taken, which reads it all.

use crate::chain::{self, Link};
use crate::changes::Area;
use crate::db::{Tx, Value, statements};
use crate::error::Result;
use crate::id::{Address, BranchId, ItemId, ItemKey};
use crate::item::{Appended, AppendedItem, Expect, Hash};
use crate::log::append::{After, Append, Prepared, Stamp, TurnRule, insert_item, note};
use crate::log::order::Top;
use crate::planted::{self, Defect};

statements! {
    // The lock, the fence, the comparison and the head in one statement; who is on top of both orders stays in its place.
    GO_ON = "UPDATE threads SET tick = ?3, updated_at = ?4, head = ?5, head_hash = ?6, items = items + ?7
        WHERE id = ?1 AND epoch = ?2 AND head = ?8 AND head_hash = ?9 AND head_is_tip = 1
        AND open_turn IS NOT DISTINCT FROM ?10 AND tick < ?3 AND shelf < 2 AND ended_at IS NULL";
    // Apart, because it touches four indexes.
    GO_ON_TO_TOP = "UPDATE threads SET tick = ?3, updated_at = ?4, head = ?5, head_hash = ?6, items = items + ?7,
        updated = coalesce(?11, updated), activity = coalesce(?12, activity)
        WHERE id = ?1 AND epoch = ?2 AND head = ?8 AND head_hash = ?9 AND head_is_tip = 1
        AND open_turn IS NOT DISTINCT FROM ?10 AND tick < ?3 AND shelf < 2 AND ended_at IS NULL";
}

/// Where a thread stood after its holder's last append: the head is the tip of a branch of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) epoch: i64,
    pub(crate) head: ItemKey,
    pub(crate) hash: Hash,
    pub(crate) item: ItemId,
    pub(crate) branch: BranchId,
    pub(crate) tick: i64,
    pub(crate) open_turn: Option<i64>,
}

impl Standing {
    /// Whether an append goes on from here without looking at anything else.
    pub(crate) fn serves(&self, request: &Append) -> bool {
        let here = Address { branch: self.branch, depth: self.head.depth() };
        let goes_on = match request.runs.as_slice() {
            [run] => run.after == After::Head && run.items.iter().all(|item| item.sources.is_empty()),
            _ => false,
        };
        goes_on
            && request.epoch == self.epoch
            && request.turns == TurnRule::Open
            && (request.expect == Expect::Any || request.expect == Expect::Head(Some(here)))
            && request.requires.is_none_or(|item| item == self.item)
            && !is_altered()
    }

    /// Appends from here; gives `None` and does nothing when the thread stands elsewhere.
    pub(crate) fn go_on(mut self, tx: &mut dyn Tx, request: &Append) -> Result<Option<(Appended, Self)>> {
        let known = self;
        let mut top = Top::read(tx)?;
        self.tick = top.next_tick(self.tick);
        let Some(links) = request.runs.first().and_then(|run| self.link(request, &run.items)) else { return Ok(None) };
        let advanced = self.advance(tx, request, &known, &top, links.len())?;
        if !advanced && !planted::is(Defect::GoesOnWithoutComparing) {
            return Ok(None);
        }
        let stamp = Stamp { turn: self.open_turn, writer: request.writer, epoch: self.epoch, tick: self.tick };
        let mut items = Vec::with_capacity(links.len());
        for (item, key, hash) in links {
            insert_item(tx, &request.thread, key, item, hash, &stamp)?;
            items.push(AppendedItem { id: item.id, branch: self.branch, depth: key.depth(), hash });
        }
        if top.is_followed || !tx.is_alone() {
            note(tx, &request.thread, self.tick, Area::Items, request.now)?;
        }
        top.put(&request.thread, self.tick);
        top.leave(tx);
        Ok(Some((Appended { items, repeated: false, replaced: 0, dropped: 0 }, self)))
    }

    /// Gives every item its place and its hash, and moves to the last one; `None` when there is none or the path is full.
    fn link<'r>(&mut self, request: &Append, items: &'r [Prepared]) -> Option<Vec<(&'r Prepared, ItemKey, Hash)>> {
        let mut links = Vec::with_capacity(items.len());
        for item in items {
            self.head = ItemKey::new(self.head.branch(), self.head.depth().checked_add(1)?);
            self.hash = chain::item_hash(&Link {
                thread: &request.thread,
                parent: self.hash,
                id: item.id,
                turn: self.open_turn,
                writer: request.writer.1,
                epoch: self.epoch,
                tick: self.tick,
                created_at: item.created_at,
                digest: item.digest,
                sources: &item.sources,
            });
            self.item = item.id;
            links.push((item, self.head, self.hash));
        }
        (!links.is_empty()).then_some(links)
    }

    fn advance(&self, tx: &mut dyn Tx, request: &Append, known: &Self, top: &Top, items: usize) -> Result<bool> {
        let on_top = top.places(&request.thread);
        let new_place = |is_there: bool| (!is_there).then_some(self.tick);
        let args = [
            request.thread.as_str().into(),
            self.epoch.into(),
            self.tick.into(),
            request.now.0.into(),
            self.head.0.into(),
            Value::Blob(&self.hash.0),
            i64::try_from(items).unwrap_or(i64::MAX).into(),
            known.head.0.into(),
            Value::Blob(&known.hash.0),
            self.open_turn.into(),
            new_place(on_top.0).into(),
            new_place(on_top.1).into(),
        ];
        match on_top {
            (true, true) => tx.post(GO_ON, args.split_at(10).0),
            _ => tx.post(GO_ON_TO_TOP, &args),
        }
    }
}

/// Whether a planted defect is at work that only the longer way has.
fn is_altered() -> bool {
    let defects = [
        Defect::CommitsBatchInPieces,
        Defect::CommitsHeadApart,
        Defect::IgnoresExpectedHead,
        Defect::LetsStaleWritersAppend,
        Defect::OrdersByClock,
    ];
    defects.into_iter().any(planted::is)
}
