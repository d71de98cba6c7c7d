//! The conversation around an item, on the item's own branch.

use threadkeep::blocking::Threads;
use threadkeep::{Address, Item, ItemQuery, ThreadId};

use crate::errors::Failure;

/// How many items are read at a time.
const PAGE: usize = 64;

/// An item and its neighbours.
#[derive(Debug, Default)]
pub(crate) struct Around {
    /// The items, in the order of their path.
    pub(crate) items: Vec<Item>,
    /// Whether the path has more before them.
    pub(crate) more_before: bool,
    /// Whether the path has more behind them.
    pub(crate) more_after: bool,
    /// How many were passed over because they were not wanted.
    pub(crate) hidden: u64,
}

/// Reads the item at `at`, and up to `count` wanted ones on either side of it: on the active path when it lies there, else on
/// the path of its branch.
pub(crate) fn around(
    threads: &Threads,
    thread: &ThreadId,
    at: Address,
    count: usize,
    wanted: impl Fn(&Item) -> bool,
) -> Result<Around, Failure> {
    let mut found = Around::default();
    let back = ItemQuery { at: Some(at), newest_first: true, ..ItemQuery::default() };
    found.more_before = take(threads, thread, back, count, |item| item.depth == at.depth || wanted(item), &mut found)?;
    found.items.reverse();
    let end = end_of_path(threads, thread, at)?;
    if let Some(from) = at.depth.checked_add(1).filter(|from| *from <= end.depth) {
        let Some(besides) = count.checked_sub(1) else { return Ok(Around { more_after: true, ..found }) };
        let on = ItemQuery { at: Some(end), from, ..ItemQuery::default() };
        let mut after = Around::default();
        found.more_after = take(threads, thread, on, besides, &wanted, &mut after)?;
        found.items.append(&mut after.items);
        found.hidden += after.hidden;
    }
    Ok(found)
}

/// Where the path goes on to that an item lies on.
pub(crate) fn end_of_path(threads: &Threads, thread: &ThreadId, at: Address) -> Result<Address, Failure> {
    let tree = threads.tree(thread)?;
    let active = threads.address_at(thread, at.depth).is_ok_and(|active| active == at);
    if let Some(head) = tree.head.filter(|_| active) {
        return Ok(head);
    }
    let branch = tree.branches.iter().find(|branch| branch.id == at.branch);
    Ok(branch.map_or(at, |branch| Address { branch: branch.id, depth: branch.tip }))
}

/// Takes wanted items until there are `count` besides the first, and says whether there is more.
fn take(
    threads: &Threads,
    thread: &ThreadId,
    query: ItemQuery,
    count: usize,
    wanted: impl Fn(&Item) -> bool,
    into: &mut Around,
) -> Result<bool, Failure> {
    let mut query = ItemQuery { limit: PAGE.min(count.saturating_add(1)), ..query };
    loop {
        let page = threads.items(thread, query.clone())?;
        let mut items = page.entries.into_iter();
        while let Some(item) = items.next() {
            match wanted(&item) {
                true => into.items.push(item),
                false => into.hidden += 1,
            }
            if into.items.len() > count {
                return Ok(items.next().is_some() || page.next_cursor.is_some());
            }
        }
        if page.next_cursor.is_none() {
            return Ok(false);
        }
        query.cursor = page.next_cursor;
    }
}
