//! Rollouts of which lines were moved, repeated or mixed with those of others, and compressed ones that are damaged in the middle:
//! what can be read of them comes back as it was.
#![cfg(test)]

use std::path::{Path, PathBuf};

use threadkeep::blocking::Store;
use threadkeep::{AppendOptions, ItemQuery, Kind, NewItem, NewThread, Role, StoreOptions, ThreadId};

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn raw(content: Vec<u8>) -> NewItem {
    NewItem { role: Some(Role::User), ..NewItem::raw(Kind::Message, "text", content) }
}

/// A store with a thread of two branches, a fork of it, and another thread; mirrored.
fn make(folder: &Path) -> Store {
    let store = Store::open(StoreOptions::folder(folder)).unwrap();
    let workspace = store.workspace(Path::new("/w")).unwrap();
    for name in ["one", "other"] {
        let thread = NewThread { id: Some(id(name)), ..NewThread::default() };
        let live = workspace.create_now(thread).unwrap();
        for number in 0..12 {
            live.append(vec![raw(format!("{name} {number}").into_bytes())]).unwrap();
        }
        let after = Some(store.address_at(&id(name), 4).unwrap());
        let options = AppendOptions { after, ..AppendOptions::default() };
        live.append_with(vec![raw(b"another way".to_vec())], options).unwrap();
        live.append(vec![raw(b"and on".to_vec())]).unwrap();
        live.shutdown().unwrap();
    }
    let fork = NewThread { id: Some(id("fork")), ..NewThread::default() };
    store.fork(&id("one"), None, fork).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    store
}

fn file_of(store: &Store, thread: &str) -> PathBuf {
    store.rollout_path(&id(thread)).unwrap()
}

/// The ids and hashes of all items that a thread's branches lead to.
fn items_of(store: &Store, thread: &str) -> Vec<String> {
    let mut found = Vec::new();
    for branch in store.tree(&id(thread)).unwrap().branches {
        let at = Some(threadkeep::Address { branch: branch.id, depth: branch.tip });
        let items = store.items(&id(thread), ItemQuery { at, limit: 2_000, ..ItemQuery::default() }).unwrap();
        found.extend(items.entries.iter().map(|item| format!("{} {}", item.id, item.hash)));
    }
    found.sort();
    found
}

/// Builds a store from rollouts and holds it against the one that they are of.
fn assert_comes_back(store: &Store, root: &Path, what: &str) {
    let scratch = Store::open(StoreOptions::memory()).unwrap();
    scratch.rebuild_from_rollouts(root, |_| {}).unwrap();
    for thread in ["one", "other", "fork"] {
        assert_eq!(items_of(&scratch, thread), items_of(store, thread), "{what}: {thread}");
        assert!(scratch.verify(&id(thread)).unwrap().is_intact(), "{what}: {thread}");
    }
}

#[test]
fn lines_that_stand_in_another_order_or_twice_cost_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = make(&folder);
    let file = file_of(&store, "one");
    let whole = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let is_item = |line: &&str| line.starts_with("{\"type\":\"item\"");
    let mut backwards = lines.clone();
    backwards.reverse();
    let (items, others): (Vec<&str>, Vec<&str>) = lines.iter().copied().partition(is_item);
    let mut swapped = lines.clone();
    swapped.swap(2, 9);
    let orders = [
        ("backwards", backwards),
        ("two lines swapped", swapped),
        ("items behind all others", others.iter().chain(&items).copied().collect()),
        ("the last item first", items.last().into_iter().chain(&lines).copied().collect()),
        ("everything twice", lines.iter().flat_map(|line| [*line, *line]).collect()),
    ];
    for (what, order) in orders {
        std::fs::write(&file, order.join("\n") + "\n").unwrap();
        assert_comes_back(&store, &folder.join("rollouts"), what);
        let (reports, _) = Store::verify_rollouts(&file).unwrap();
        assert!(reports[0].is_whole() && reports[0].unplaced == 0, "{what}: {:?}", reports[0].problems);
    }
}

#[test]
fn a_file_is_of_the_thread_that_it_is_named_after_whatever_lines_got_into_it() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = make(&folder);
    let [file, other] = ["one", "other"].map(|name| file_of(&store, name));
    let [whole, foreign] = [&file, &other].map(|file| std::fs::read_to_string(file).unwrap());
    let (header, rest) = foreign.split_once('\n').unwrap();
    std::fs::write(&file, format!("{header}\n{whole}")).unwrap();
    assert_comes_back(&store, &folder.join("rollouts"), "the first line of another file");
    // In the place of its own first line, too.
    let own = whole.split_once('\n').unwrap().1;
    std::fs::write(&file, format!("{header}\n{own}")).unwrap();
    assert_comes_back(&store, &folder.join("rollouts"), "the first line is of another file");
    std::fs::write(&file, format!("{whole}{rest}")).unwrap();
    assert_comes_back(&store, &folder.join("rollouts"), "all of another file behind it");
    let (reports, _) = Store::verify_rollouts(&file).unwrap();
    assert!(!reports[0].is_whole(), "what does not belong there is told");
    assert_eq!(reports[0].thread, id("one"));
}

/// Bytes that no compressor makes smaller.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}

/// Of an archived thread that is damaged in the middle everything before is there, and what stands behind it at the end of the file:
/// where the thread stands, its title, and branches that leave before the damage.
#[test]
fn a_compressed_rollout_is_read_on_behind_damage() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(StoreOptions::folder(&folder)).unwrap();
    let mut thread = NewThread { id: Some(id("t")), ..NewThread::default() };
    thread.details.title = Some("A title at the end".into());
    let live = store.workspace(Path::new("/w")).unwrap().create_now(thread).unwrap();
    for number in 0..60 {
        live.append(vec![raw(noise(2 * number, 60_000))]).unwrap();
    }
    let after = Some(store.address_at(&id("t"), 3).unwrap());
    let options = AppendOptions { after, ..AppendOptions::default() };
    live.append_with(vec![raw(b"another way".to_vec())], options).unwrap();
    live.shutdown().unwrap();
    store.archive(&id("t")).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let file = file_of(&store, "t");
    let whole = std::fs::read(&file).unwrap();
    assert!(whole.len() > 3 << 20 && file.extension().is_some_and(|extension| extension == "zst"));

    for (what, damaged) in
        [("garbled", whole.len() / 2..whole.len() / 2 + 20), ("a page of it", whole.len() / 2..whole.len() / 2 + 4_096)]
    {
        let mut bytes = whole.clone();
        bytes[damaged].fill(0x5a);
        std::fs::write(&file, bytes).unwrap();
        let (reports, _) = Store::verify_rollouts(&file).unwrap();
        assert!(!reports[0].is_whole() && reports[0].unplaced > 0, "{what}");
        assert!(reports[0].items > 20 && reports[0].branches == 2, "{what}: {} items", reports[0].items);
        let scratch = Store::open(StoreOptions::memory()).unwrap();
        let report = scratch.rebuild_from_rollouts(&file, |_| {}).unwrap();
        assert!(!report.is_whole(), "{what}");
        let back = scratch.get(&id("t")).unwrap();
        assert_eq!(back.details.title.as_deref(), Some("A title at the end"), "{what}");
        let last = scratch.items(&id("t"), ItemQuery { newest_first: true, limit: 1, ..ItemQuery::default() }).unwrap();
        assert_eq!(last.entries[0].content, b"another way", "{what}: the head stands on the other branch");
        assert!(scratch.verify(&id("t")).unwrap().is_intact(), "{what}");
    }
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (reports, _) = Store::verify_rollouts(&file).unwrap();
    assert!(!reports[0].is_whole() && reports[0].items > 20, "cut: {} items", reports[0].items);
}
