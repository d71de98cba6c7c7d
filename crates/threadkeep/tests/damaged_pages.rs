//! Pages of the file that are damaged or stand in another one's place: what lies on the others is read, and nothing else is.
#![cfg(test)]

#[path = "bad_input/folders.rs"]
mod folders;

use std::path::Path;

use threadkeep::{Error, ItemId, ItemQuery, ThreadId};

use folders::{DATABASE, all_items, id, named, noise, open, raw, sql};

/// A store of two threads whose items fill many pages of the file; gives the ids of the first one's, and the leaves in order.
fn make_leaves(folder: &Path) -> (Vec<ItemId>, Vec<usize>) {
    let store = open(folder).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    let live = workspace.create_now(named("t")).unwrap();
    let appended = live.append((0..40).map(|number| raw(noise(number, 900))).collect()).unwrap();
    live.shutdown().unwrap();
    let other = workspace.create_now(named("other")).unwrap();
    other.append((0..40).map(|number| raw(noise(100 + number, 900))).collect()).unwrap();
    other.shutdown().unwrap();
    drop((other, live, workspace, store));
    let pages = "SELECT pageno FROM dbstat WHERE name = 'items' AND pagetype = 'leaf' ORDER BY path";
    let database = sql(folder);
    let mut leaves = database.prepare(pages).unwrap();
    let leaves = leaves.query_map([], |row| row.get::<_, u32>(0)).unwrap();
    let leaves = leaves.map(|page| page.unwrap() as usize).collect();
    (appended.items.into_iter().map(|item| item.id).collect(), leaves)
}

#[test]
fn a_page_of_items_ends_before_a_damaged_page_of_the_file() {
    let temp = tempfile::tempdir().unwrap();
    let (ids, leaves) = make_leaves(temp.path());
    let file = temp.path().join(DATABASE);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = (leaves[4] - 1) * 4_096;
    bytes[at..at + 4_096].fill(0);
    std::fs::write(&file, bytes).unwrap();
    let store = open(temp.path()).unwrap();
    let read = all_items(&store, &id("t"));
    assert!(!read.is_empty(), "what stands before the damage is not read");
    assert!(read.iter().map(|item| item.id).eq(ids[..read.len()].iter().copied()));
    let from = u32::try_from(read.len()).unwrap();
    let refused = store.items(&id("t"), ItemQuery { from, ..ItemQuery::default() });
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(all_items(&store, &id("other")).len(), 40);
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!(report.invalid.keys().map(ThreadId::as_str).collect::<Vec<_>>(), ["t"]);
}

#[test]
fn rows_on_a_page_that_stands_in_anothers_place_are_not_read_as_its_rows() {
    let temp = tempfile::tempdir().unwrap();
    let (ids, leaves) = make_leaves(temp.path());
    let file = temp.path().join(DATABASE);
    let whole = std::fs::read(&file).unwrap();
    let page = |number: usize| (leaves[number] - 1) * 4_096..leaves[number] * 4_096;
    for (from, to) in [(0, leaves.len() - 1), (leaves.len() - 1, 0), (2, 5), (5, 2)] {
        let mut bytes = whole.clone();
        bytes.copy_within(page(from), page(to).start);
        std::fs::write(&file, bytes).unwrap();
        let store = open(temp.path()).unwrap();
        for thread in ["t", "other"] {
            for newest_first in [false, true] {
                let query = ItemQuery { newest_first, limit: 2_000, ..ItemQuery::default() };
                let Ok(read) = store.items(&id(thread), query) else { continue };
                for item in read.entries {
                    let place = ids.iter().position(|id| *id == item.id);
                    let is_right = if thread == "t" { place == Some(item.depth as usize) } else { place.is_none() };
                    assert!(is_right, "{thread} {}: page {from} in the place of {to}", item.depth);
                }
            }
        }
    }
}

#[test]
fn a_damaged_index_of_writers_keeps_nothing_from_being_read() {
    let temp = tempfile::tempdir().unwrap();
    let (ids, _) = make_leaves(temp.path());
    let place = "SELECT pageno FROM dbstat WHERE name = 'sqlite_autoindex_writers_1'";
    let page = sql(temp.path()).query_row(place, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
    let file = temp.path().join(DATABASE);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[(page - 1) * 4_096..page * 4_096].fill(0);
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(all_items(&open(temp.path()).unwrap(), &id("t")).len(), ids.len());
}
