//! A path written anew from a place on where something was missing: on a branch of its own, so that what was there stays as it was.

use std::collections::HashMap;

use crate::changes::Area;
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::id::{Address, ItemId, ItemKey, PromptId, ThreadId, WriterId};
use crate::item::{Item, NewItem};
use crate::log::append::{Pen, Prepared, mint_id};
use crate::log::{path, read, receipts};
use crate::receipt;
use crate::screen::Screen;
use crate::time::Timestamp;
use crate::turns;

/// How many items are read at a time; a page ends early by its bytes.
const PAGE: usize = 500;

/// What a path lacks and gets.
#[derive(Debug, Clone)]
pub(crate) struct Mending {
    /// Where the thread stands; `None` when it was cleared, and then nothing is missing.
    pub(crate) head: Option<Address>,
    /// An open turn that is to be marked as interrupted.
    pub(crate) interrupts: Option<i64>,
    /// What is missing, in the order of the path.
    pub(crate) missing: Vec<Missing>,
    /// What stands behind everything, if something was missing.
    pub(crate) receipt: Option<NewItem>,
}

/// An item that is missing.
#[derive(Debug, Clone)]
pub(crate) struct Missing {
    /// The depth of the item before which it belongs: one more than the head's, behind everything.
    pub(crate) before: u32,
    pub(crate) turn: Option<i64>,
    pub(crate) item: NewItem,
}

/// Who mends, and what is mended.
pub(crate) struct Mender<'a> {
    pub(crate) thread: &'a ThreadId,
    pub(crate) epoch: i64,
    pub(crate) writer: (i64, WriterId),
    pub(crate) now: Timestamp,
    pub(crate) host: &'a dyn Host,
    pub(crate) screen: &'a Screen,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mended {
    /// Where what was missing stands now, in its order.
    pub(crate) places: Vec<Address>,
    /// How many items were written again.
    pub(crate) rewritten: u64,
    pub(crate) head: Option<Address>,
}

/// Mends. What stands after the first place where something was missing is read and written in pages.
pub(crate) fn mend(tx: &mut dyn Tx, by: &Mender<'_>, mending: &Mending) -> Result<Mended> {
    let mut pen = Pen::take(tx, by.thread, by.epoch, by.writer, by.now)?;
    let end = head_of(tx, &pen, mending.head)?;
    if let Some(turn) = mending.interrupts {
        pen.close_turn();
        turns::leave_open(tx, by.thread, turn, end, by.now)?;
    }
    let mut mended = Mended { places: Vec::new(), rewritten: 0, head: mending.head };
    if let (Some(first), Some(end)) = (mending.missing.first(), end) {
        let base = first.before.checked_sub(1).map(|depth| path::at_depth(tx, end, depth)).transpose()?.flatten();
        pen.move_to(tx, base.ok_or_else(|| Error::corrupt(format!("thread {}", by.thread), "a call has no place"))?)?;
        pen.branch_off(tx)?;
        mended = Anew { by, pen: &mut pen, again: HashMap::new() }.write(tx, mending, end)?;
    }
    // What is told is what was done: items, a turn that is over, or both.
    let area = if mending.missing.is_empty() { Area::Turn } else { Area::Items };
    pen.put_down(tx, area)?;
    if mending.interrupts.is_some() && area != Area::Turn {
        pen.note(tx, Area::Turn)?;
    }
    Ok(mended)
}

/// The thread's head, which must be the one that was looked at.
fn head_of(tx: &mut dyn Tx, pen: &Pen<'_>, expected: Option<Address>) -> Result<Option<ItemKey>> {
    let found = pen.head().map(|key| path::address_of(tx, key)).transpose()?;
    if found == expected {
        return Ok(pen.head());
    }
    let show = |at: Option<Address>| at.map_or_else(|| "an empty thread".to_owned(), |at| at.to_string());
    Err(Error::Conflict { what: "head", expected: show(expected), found: show(found) })
}

/// The part of a path that is written anew.
struct Anew<'a, 'p> {
    by: &'a Mender<'a>,
    pen: &'a mut Pen<'p>,
    /// The new ids of items that were written again: later ones may cite them.
    again: HashMap<ItemId, ItemId>,
}

impl Anew<'_, '_> {
    fn write(&mut self, tx: &mut dyn Tx, mending: &Mending, end: ItemKey) -> Result<Mended> {
        let (mut places, mut rewritten) = (Vec::new(), 0);
        let mut missing = mending.missing.iter().peekable();
        let mut next = missing.peek().map_or(u32::MAX, |first| first.before);
        while next <= end.depth() {
            let page = read::run(tx, end, next, PAGE)?;
            let Some(last) = page.last() else {
                return Err(Error::corrupt(format!("thread {}", self.by.thread), format!("nothing stands at {next}")));
            };
            next = last.depth + 1;
            for item in page {
                while let Some(due) = missing.next_if(|missing| missing.before <= item.depth) {
                    places.push(self.put(tx, due.item.clone(), due.turn)?.1);
                }
                self.put_again(tx, item)?;
                rewritten += 1;
            }
        }
        for left in missing {
            places.push(self.put(tx, left.item.clone(), left.turn)?.1);
        }
        if let Some(receipt) = &mending.receipt {
            self.put(tx, receipt.clone(), None)?;
        }
        let head = self.pen.head().map(|key| path::address_of(tx, key)).transpose()?;
        Ok(Mended { places, rewritten, head })
    }

    /// Writes an item again, as it was, in its turn.
    fn put_again(&mut self, tx: &mut dyn Tx, item: Item) -> Result<()> {
        let turn = item.turn.filter(|_| item.thread == *self.by.thread);
        if receipt::is_receipt(&item.format) {
            return self.put_receipt_again(tx, item, turn);
        }
        let new = NewItem {
            id: None,
            sources: item.sources,
            kind: item.kind,
            role: item.role,
            format: item.format,
            content: item.content,
            created_at: Some(item.created_at),
            source_id: item.source_id,
        };
        let (id, _) = self.put(tx, new, turn)?;
        self.again.insert(item.id, id);
        Ok(())
    }

    /// Writes a receipt again: it is another one, and points at what was written again before it.
    fn put_receipt_again(&mut self, tx: &mut dyn Tx, item: Item, turn: Option<i64>) -> Result<()> {
        let id = mint_id(self.by.host, self.by.now);
        self.again.insert(item.id, id);
        let name_now = |prompt: PromptId| {
            let item = prompt.item();
            PromptId::from_item(self.again.get(&item).copied().unwrap_or(item))
        };
        let number = receipts::next_number(tx, self.by.thread)?;
        let damaged = |problem| Error::corrupt(format!("item {}", item.id), problem);
        let content = receipt::renamed((&item.format, &item.content), id, number, &name_now).map_err(damaged)?;
        // Its words were screened when they were written.
        let new = NewItem {
            id: Some(id),
            sources: Vec::new(),
            kind: item.kind,
            role: item.role,
            format: item.format,
            content,
            created_at: Some(item.created_at),
            source_id: item.source_id,
        };
        self.pen.write_in(tx, &Prepared::new(new, self.by.host)?, turn).map(drop)
    }

    fn put(&mut self, tx: &mut dyn Tx, mut item: NewItem, turn: Option<i64>) -> Result<(ItemId, Address)> {
        for source in &mut item.sources {
            *source = self.again.get(source).copied().unwrap_or(*source);
        }
        self.by.screen.item(&mut item)?;
        let prepared = Prepared::new(item, self.by.host)?;
        let written = self.pen.write_in(tx, &prepared, turn)?;
        Ok((written.id, written.address()))
    }
}
