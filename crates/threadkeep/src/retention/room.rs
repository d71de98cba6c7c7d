//! How much room goes with a thread.

use std::collections::BTreeMap;

use crate::db::{Tx, query_all, query_one, statements};
use crate::error::Result;
use crate::id::{ItemKey, ThreadId};

statements! {
    MEASURED_BRANCHES = "SELECT key, parent FROM branches WHERE thread = ?1 ORDER BY key DESC";
    SHARED_BY_FORK = "SELECT max(fork_item) FROM threads WHERE fork_item BETWEEN ?1 AND ?2 AND id <> ?3";
    SHARED_BY_BRANCH = "SELECT max(parent) FROM branches WHERE parent BETWEEN ?1 AND ?2 AND thread <> ?3";
    MEASURED_ITEMS = "SELECT CAST(coalesce(sum(length(content)), 0) AS BIGINT) FROM items WHERE key BETWEEN ?1 AND ?2";
    // Payloads that no other thread's items refer to.
    MEASURED_PAYLOADS = "SELECT CAST(coalesce(sum(length(b.data)), 0) AS BIGINT) FROM blobs b WHERE b.digest IN (
          SELECT m.digest FROM branches o JOIN item_blobs m ON m.item BETWEEN o.key << 32 AND (o.key << 32) + 4294967295
          WHERE o.thread = ?1)
        AND NOT EXISTS (SELECT 1 FROM item_blobs e JOIN branches f ON f.key = e.item >> 32
          WHERE e.digest = b.digest AND f.thread <> ?1)";
}

/// Bytes of items and payloads, as they are stored, that nothing but this thread needs. Costs as much as it has items.
pub(crate) fn of(tx: &mut dyn Tx, thread: &ThreadId) -> Result<i64> {
    let id = thread.as_str().into();
    let branches = query_all(tx, MEASURED_BRANCHES, &[id], |row| Ok((row.int(0)?, row.opt_int(1)?.map(ItemKey))))?;
    // A branch that is shared shares what it continues; it has the greater number.
    let mut shared: BTreeMap<i64, ItemKey> = BTreeMap::new();
    let mut bytes = 0_i64;
    for (branch, parent) in branches {
        let range = [ItemKey::new(branch, 0).0.into(), ItemKey::new(branch, u32::MAX).0.into(), id];
        for statement in [SHARED_BY_FORK, SHARED_BY_BRANCH] {
            if let Some(key) = query_one(tx, statement, &range, |row| row.opt_int(0))?.flatten() {
                reach(&mut shared, ItemKey(key));
            }
        }
        let kept = shared.get(&branch).copied();
        if let (Some(_), Some(parent)) = (kept, parent) {
            reach(&mut shared, parent);
        }
        let first = kept.map_or(ItemKey::new(branch, 0).0, |kept| kept.0.saturating_add(1));
        let args = [first.into(), ItemKey::new(branch, u32::MAX).0.into()];
        bytes = bytes.saturating_add(query_one(tx, MEASURED_ITEMS, &args, |row| row.int(0))?.unwrap_or(0));
    }
    let payloads = query_one(tx, MEASURED_PAYLOADS, &[id], |row| row.int(0))?.unwrap_or(0);
    Ok(bytes.saturating_add(payloads))
}

/// Notes that a branch is shared up to an item.
fn reach(shared: &mut BTreeMap<i64, ItemKey>, key: ItemKey) {
    let deepest = shared.entry(key.branch()).or_insert(key);
    *deepest = (*deepest).max(key);
}
