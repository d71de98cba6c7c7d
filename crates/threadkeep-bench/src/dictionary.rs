//! Training the dictionary that content is compressed with.
//!
//! It is trained on files that were written for Threadkeep itself, so that it holds what is the same in the files of each agent,
//! the names of fields in their order, and nobody's words.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;

use threadkeep::blocking::Store;
use threadkeep::{Item, ItemQuery, ListQuery, NewItem, Shelves, StoreOptions, ThreadId};
use threadkeep_agents::codecs;
use threadkeep_agents::import::{ImportOptions, Importer};

use crate::Result;

/// What is longer says little of what most items are like.
const LONGEST: usize = 16 << 10;

/// Writes a dictionary: the arguments are the file, its most bytes, and the folders with agents' files.
///
/// # Errors
/// When an argument lacks or can't be used; as importing; when there is too little to train on.
pub fn make(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let usage = "usage: threadkeep-bench-dictionary FILE BYTES FOLDER...";
    let file = PathBuf::from(arguments.next().ok_or(usage)?);
    let size = arguments.next().and_then(|size| size.to_str()?.parse().ok()).ok_or(usage)?;
    let folders: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let contents = contents_of(&folders)?;
    let dictionary = zstd::dict::from_samples(&contents, size)?;
    std::fs::write(file, dictionary)?;
    Ok(())
}

/// What a store keeps of these files, and the same conversations as Threadkeep itself writes them; in an order that is always
/// the same.
fn contents_of(folders: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let store = Store::open(StoreOptions::memory())?;
    for folder in folders {
        Importer::new(&store, ImportOptions::default()).run(std::slice::from_ref(folder), &mut |_| {})?;
    }
    let (mut contents, mut seen) = (Vec::new(), HashSet::new());
    let mut query = ListQuery { shelves: Shelves::Both, limit: 1_000, ..ListQuery::default() };
    loop {
        let page = store.list(query.clone())?;
        for thread in &page.entries {
            for item in items_of(&store, &thread.id)? {
                contents.extend(seen.insert(item.id).then(|| texts_of(item)).into_iter().flatten());
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            contents.retain(|content| content.len() <= LONGEST);
            contents.sort();
            contents.dedup();
            return Ok(contents);
        }
    }
}

/// All items of a thread, those of every branch.
fn items_of(store: &Store, thread: &ThreadId) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for leaf in store.tree(thread)?.leaves() {
        let mut query = ItemQuery { at: Some(leaf), ..ItemQuery::default() };
        loop {
            let page = store.items(thread, query.clone())?;
            items.extend(page.entries);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    Ok(items)
}

/// The content of an item, and what Threadkeep itself would write to say the same.
fn texts_of(item: Item) -> Vec<Vec<u8>> {
    let codec = codecs().into_iter().find(|codec| codec.format() == item.format);
    let view = codec.map(|codec| NewItem::from_view(item.kind.clone(), &codec.view(&item.kind, &item.content)).content);
    std::iter::once(item.content).chain(view).collect()
}
