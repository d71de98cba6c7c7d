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

/// The engine finds no row on a page that stands in another one's place, and no damage either: a page of items that is empty
/// would look like the end of the thread.
#[test]
fn items_that_are_missing_are_never_taken_for_the_end_of_a_thread() {
    let temp = tempfile::tempdir().unwrap();
    let (ids, leaves) = make_leaves(temp.path());
    let file = temp.path().join(DATABASE);
    let whole = std::fs::read(&file).unwrap();
    let page = |number: usize| (leaves[number] - 1) * 4_096..leaves[number] * 4_096;
    for (one, other) in [(2, 5), (0, 7), (4, leaves.len() - 1), (3, 4)] {
        let mut bytes = whole.clone();
        bytes.copy_within(page(one), page(other).start);
        bytes[page(one)].copy_from_slice(&whole[page(other)]);
        std::fs::write(&file, bytes).unwrap();
        let store = open(temp.path()).unwrap();
        for newest_first in [false, true] {
            let mut read = Vec::new();
            for depth in 0..40 {
                let query = ItemQuery { from: depth, to: Some(depth), newest_first, ..ItemQuery::default() };
                match store.items(&id("t"), query) {
                    Ok(page) => {
                        assert_eq!(page.entries.len(), 1, "depth {depth} reads as nothing: {one} and {other}");
                        read.push(page.entries[0].id);
                    }
                    Err(Error::Corrupt { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            let per_page = ids.len().div_ceil(leaves.len() / 2) + 1;
            assert!(
                read.len() + 4 * per_page >= ids.len(),
                "{} of {} were read: {one} and {other}",
                read.len(),
                ids.len()
            );
        }
    }
}

#[test]
fn a_branch_whose_name_was_changed_is_told_by_verifying() {
    let temp = tempfile::tempdir().unwrap();
    make_leaves(temp.path());
    let name = "DROP TRIGGER branches_keep_their_place; UPDATE branches SET id = randomblob(16) WHERE thread = 't'";
    sql(temp.path()).execute_batch(name).unwrap();
    let store = open(temp.path()).unwrap();
    let report = store.verify_all(|_| {}).unwrap();
    assert_eq!(report.invalid.keys().map(ThreadId::as_str).collect::<Vec<_>>(), ["t"]);
    // And it goes to no other store.
    let copy = tempfile::tempdir().unwrap();
    let copied = open(copy.path()).unwrap().copy_from(&store, &mut |_| {}).unwrap();
    assert_eq!(copied.problems.iter().map(|problem| problem.thread.as_str()).collect::<Vec<_>>(), ["t"]);
}

#[test]
fn a_damaged_name_in_the_schema_is_told_as_damage() {
    let temp = tempfile::tempdir().unwrap();
    make_leaves(temp.path());
    let file = temp.path().join(DATABASE);
    let mut bytes = std::fs::read(&file).unwrap();
    let word = b"archived_at     INTEGER";
    let at = bytes.windows(word.len()).position(|window| window == word).unwrap();
    bytes[at] ^= 2;
    std::fs::write(&file, bytes).unwrap();
    let store = open(temp.path()).unwrap();
    let list = store.list(threadkeep::ListQuery { limit: 10, ..threadkeep::ListQuery::default() }).unwrap();
    assert!(list.entries.len() == 2 && list.entries.iter().all(|thread| thread.damage.is_some()));
    assert!(matches!(store.get(&id("t")).unwrap_err(), Error::Corrupt { .. }));
}

/// Many threads, so that their rows fill pages of the file. One of these pages is damaged, then each index.
#[test]
fn a_damaged_page_of_threads_leaves_the_others_listed_and_its_own_named() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path()).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    let names: std::collections::BTreeSet<String> = (0..80).map(|number| format!("thread-{number:02}")).collect();
    for name in &names {
        workspace.create_now(named(name)).unwrap().shutdown().unwrap();
    }
    drop((workspace, store));
    let file = temp.path().join(DATABASE);
    let whole = std::fs::read(&file).unwrap();
    let pages = |name: &str| {
        let database = sql(temp.path());
        let read = "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path";
        let mut read = database.prepare(read).unwrap();
        read.query_map([name], |row| row.get::<_, u32>(0))
            .unwrap()
            .map(|page| page.unwrap() as usize)
            .collect::<Vec<_>>()
    };
    let tables = ["threads", "threads_activity", "threads_workspace_activity", "threads_updated"];
    for (table, pages) in tables.map(|table| (table, pages(table))) {
        let mut bytes = whole.clone();
        let page = pages[pages.len() / 2];
        bytes[(page - 1) * 4_096..page * 4_096].fill(0);
        std::fs::write(&file, bytes).unwrap();
        let store = open(temp.path()).unwrap();
        let workspace = store.workspace(Path::new("/w")).unwrap();
        for sort in [threadkeep::SortKey::Activity, threadkeep::SortKey::Updated, threadkeep::SortKey::Created] {
            for limit in [7, 200] {
                let mut query = threadkeep::ListQuery { limit, sort, ..threadkeep::ListQuery::default() };
                for scoped in [false, true] {
                    let (mut seen, mut damaged) = (Vec::new(), 0);
                    query.cursor = None;
                    loop {
                        let page = if scoped { workspace.list(query.clone()) } else { store.list(query.clone()) };
                        let page = page.unwrap_or_else(|error| panic!("{table} {sort:?} {limit}: {error:?}"));
                        damaged += page.entries.iter().filter(|thread| thread.damage.is_some()).count();
                        seen.extend(page.entries.into_iter().map(|thread| thread.id.to_string()));
                        query.cursor = page.next_cursor;
                        if query.cursor.is_none() {
                            break;
                        }
                    }
                    let listed: std::collections::BTreeSet<String> = seen.iter().cloned().collect();
                    assert_eq!((listed.len(), &listed), (seen.len(), &names), "{table} {sort:?} {limit} {scoped}");
                    assert_eq!(damaged > 0, table == "threads", "{table} {sort:?} {limit}: {damaged} are damaged");
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
