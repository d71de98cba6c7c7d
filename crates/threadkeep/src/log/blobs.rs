//! Large payloads, stored once under the hash of their bytes.

use crate::content::{self, Blob};
use crate::db::{Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::ItemKey;
use crate::item::Hash;

const OTHER_BYTES: &str = "its bytes do not have this hash";

statements! {
    INSERT_BLOB = "INSERT INTO blobs (digest, size, encoding, data) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (digest) DO NOTHING";
    LINK_BLOB = "INSERT INTO item_blobs (item, digest) VALUES (?1, ?2) ON CONFLICT (item, digest) DO NOTHING";
    READ_BLOB = "SELECT size, encoding, data FROM blobs WHERE digest = ?1";
    UNLINK_BLOBS = "DELETE FROM item_blobs WHERE item = ?1";
    DELETE_UNUSED_BLOB = "DELETE FROM blobs WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM item_blobs WHERE digest = ?1)";
    DELETE_ALL_UNUSED = "DELETE FROM blobs WHERE digest NOT IN (SELECT digest FROM item_blobs)";
    STORED_WITH = "SELECT b.digest, b.size, b.encoding, b.data FROM item_blobs i JOIN blobs b ON b.digest = i.digest
        WHERE i.item = ?1 ORDER BY b.digest";
    BLOBS_OF_ITEM = "SELECT digest FROM item_blobs WHERE item = ?1";
}

/// Stores the payloads of an item.
pub(crate) fn store(tx: &mut dyn Tx, item: ItemKey, blobs: &[Blob]) -> Result<()> {
    for blob in blobs {
        let size = i64::try_from(blob.size).unwrap_or(i64::MAX);
        let digest = Value::Blob(&blob.digest.0);
        tx.execute(INSERT_BLOB, &[digest, size.into(), blob.encoding.into(), Value::Blob(&blob.data)])?;
        tx.execute(LINK_BLOB, &[item.0.into(), digest])?;
    }
    Ok(())
}

/// The payloads of an item as they are stored, each of which is what its name says: who stores them again believes the name.
pub(crate) fn stored_with(tx: &mut dyn Tx, item: ItemKey) -> Result<Vec<Blob>> {
    let blobs = query_all(tx, STORED_WITH, &[item.0.into()], |row| {
        Ok(Blob {
            digest: row.parse(0, Hash::from_slice(row.blob(0)?), "a hash")?,
            size: row.parse(1, usize::try_from(row.int(1)?).ok(), "a size")?,
            encoding: row.int(2)?,
            data: row.blob(3)?.to_vec(),
        })
    })?;
    for blob in &blobs {
        if Hash::of(&content::decode_blob(blob.encoding, blob.size, &blob.data)?) != blob.digest {
            return Err(Error::corrupt(format!("blob {}", blob.digest), OTHER_BYTES));
        }
    }
    Ok(blobs)
}

/// Loads one payload and checks that it is what its name says.
pub(crate) fn load(tx: &mut dyn Tx, digest: Hash) -> Result<Vec<u8>> {
    let found = query_one(tx, READ_BLOB, &[Value::Blob(&digest.0)], |row| {
        let size = usize::try_from(row.int(0)?).unwrap_or(usize::MAX);
        content::decode_blob(row.int(1)?, size, row.blob(2)?)
    })?;
    let bytes = found.ok_or_else(|| Error::corrupt(format!("blob {digest}"), "it is missing"))?;
    if Hash::of(&bytes) == digest { Ok(bytes) } else { Err(Error::corrupt(format!("blob {digest}"), OTHER_BYTES)) }
}

/// Deletes every payload that no item uses.
pub(crate) fn drop_unused(tx: &mut dyn Tx) -> Result<()> {
    tx.execute(DELETE_ALL_UNUSED, &[]).map(drop)
}

/// Releases the payloads of an item that is about to be deleted, and deletes those that no other item uses.
pub(crate) fn release(tx: &mut dyn Tx, item: ItemKey) -> Result<()> {
    let digests = query_all(tx, BLOBS_OF_ITEM, &[item.0.into()], |row| Ok(row.blob(0)?.to_vec()))?;
    if digests.is_empty() {
        return Ok(());
    }
    tx.execute(UNLINK_BLOBS, &[item.0.into()])?;
    for digest in &digests {
        tx.execute(DELETE_UNUSED_BLOB, &[Value::Blob(digest)])?;
    }
    Ok(())
}
