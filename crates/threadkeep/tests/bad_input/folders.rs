//! Stores in folders, and what is done to their database behind the library's back.

use std::path::Path;

use rusqlite::Connection;
use threadkeep::blocking::Store;
use threadkeep::{Item, ItemQuery, Kind, NewItem, NewThread, StoreOptions, ThreadId};

pub(crate) const DATABASE: &str = "threadkeep.db";

pub(crate) fn open(folder: &Path) -> threadkeep::Result<Store> {
    Store::open(StoreOptions::folder(folder))
}

/// The database beside the library's back.
pub(crate) fn sql(folder: &Path) -> Connection {
    Connection::open(folder.join(DATABASE)).unwrap()
}

pub(crate) fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

pub(crate) fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

pub(crate) fn raw(content: impl Into<Vec<u8>>) -> NewItem {
    NewItem::raw(Kind::Message, "text", content.into())
}

/// Bytes that no compressor makes smaller.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}

pub(crate) fn all_items(store: &Store, thread: &ThreadId) -> Vec<Item> {
    store.items(thread, ItemQuery { limit: 2_000, ..ItemQuery::default() }).unwrap().entries
}
