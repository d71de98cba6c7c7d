//! Writers: the identity that items are written by, one per store and machine.

use crate::db::{Row, Tx, query_one, statements};
use crate::error::{Error, Result};
use crate::id::WriterId;
use crate::log::order;
use crate::time::Timestamp;

statements! {
    BY_MACHINE = "SELECT key, id FROM writers WHERE machine = ?1";
    INSERT_WRITER = "INSERT INTO writers (key, id, machine, created_at)
        VALUES ((SELECT coalesce(max(key), 0) + 1 FROM writers), ?1, ?2, ?3) ON CONFLICT (machine) DO NOTHING";
}

/// This machine's writer, if it has written here before.
pub(crate) fn find(tx: &mut dyn Tx, machine: &str) -> Result<Option<(i64, WriterId)>> {
    query_one(tx, BY_MACHINE, &[machine.into()], read_writer)
}

/// This machine's writer. However many processes ask at once, they get the same one.
pub(crate) fn mint(tx: &mut dyn Tx, machine: &str, fresh: WriterId, now: Timestamp) -> Result<(i64, WriterId)> {
    order::line_up(tx)?;
    tx.execute(INSERT_WRITER, &[fresh.as_bytes().as_slice().into(), machine.into(), now.0.into()])?;
    find(tx, machine)?.ok_or_else(|| Error::corrupt("table writers", "the row that was just written is missing"))
}

fn read_writer(row: &Row<'_>) -> Result<(i64, WriterId)> {
    Ok((row.int(0)?, row.parse(1, WriterId::from_slice(row.blob(1)?), "16 bytes of an id")?))
}
