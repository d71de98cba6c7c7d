//! Rollouts: what is mirrored is rebuilt, what is rebuilt is mirrored to the same bytes, and a lost line costs itself alone.
#![cfg(test)]

#[path = "copy/history.rs"]
mod history;
#[path = "postgres/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use history::{History, assert_same, id, memory, named, open, say, threads, ticking};
use threadkeep::blocking::Store;
use threadkeep::{
    AppendOptions, Error, Kind, MirrorReport, NewItem, RebuildReport, RolloutReport, ThreadPatch, ThreadStore as _,
    TurnEnd,
};

fn mirror(store: &Store, folder: &Path) -> MirrorReport {
    let report = store.mirror_rollouts(Some(folder), None, |_| {}).unwrap();
    assert_eq!(report.problems, [], "what is valid is mirrored");
    assert_eq!(report.threads, report.written + report.unchanged);
    report
}

fn rebuild(store: &Store, from: &Path) -> RebuildReport {
    store.rebuild_from_rollouts(from, |_| {}).unwrap()
}

fn check(file: &Path) -> RolloutReport {
    Store::verify_rollouts(file).unwrap().0.remove(0)
}

/// Every file below a folder with its bytes, by its path; the lock is empty.
fn bytes_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                    drop(found.insert(name, std::fs::read(entry.path()).unwrap()));
                }
            }
        }
    }
    found
}

/// The rollouts alone: the index names them in the order in which they were written.
fn rollouts_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = bytes_below(folder);
    found.retain(|path, _| !path.ends_with("session_index.jsonl"));
    found
}

/// The one rollout below a folder.
fn only_file(folder: &Path) -> PathBuf {
    let is_rollout = |path: &PathBuf| path.components().count() > 1;
    let found: Vec<PathBuf> = bytes_below(folder).into_keys().filter(is_rollout).collect();
    let [file] = found.as_slice() else { panic!("{found:?}") };
    folder.join(file)
}

/// A thread with two branches, turns, a label, bytes of all sorts, and a title.
fn a_thread(store: &Store, name: &str) {
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    let live = workspace.create_now(named(name)).unwrap();
    live.begin_turn(say("why \"quoted\"\n?")).unwrap();
    live.append(vec![NewItem::raw(Kind::Unknown("hologram".into()), "text", b"\0\xff\xfe".to_vec())]).unwrap();
    live.end_turn(TurnEnd::completed()).unwrap();
    live.append(vec![say("more"), say("and more")]).unwrap();
    let place = store.address_at(&id(name), 1).unwrap();
    let options = AppendOptions { after: Some(place), ..AppendOptions::default() };
    let other = live.append_with(vec![say("otherwise"), say("the end")], options).unwrap();
    live.shutdown().unwrap();
    let branch = other.items[0].branch;
    store.label(&id(name), branch, Some("the other way".to_owned())).unwrap();
    store.update(&id(name), ThreadPatch::title("a title")).unwrap();
}

#[test]
fn random_histories_are_mirrored_and_rebuilt_again_and_again() {
    for seed in 0..24 {
        let temp = tempfile::tempdir().unwrap();
        let (first, second) = (temp.path().join("first"), temp.path().join("second"));
        let mut history = History::new(ticking(), seed);
        let target = if seed % 2 == 0 { memory() } else { open(&temp.path().join("store")) };
        for round in 0..3 {
            let why = format!("seed {seed}, round {round}");
            for _ in 0..40 {
                history.step();
            }
            mirror(&history.store, &first);
            let before = bytes_below(&first);
            let again = mirror(&history.store, &first);
            assert_eq!(again.written, 0, "{why}: nothing changed");
            assert!(bytes_below(&first) == before, "{why}: nothing is written when nothing changed");

            // Into a new store, and into one that has an earlier state.
            let fresh = memory();
            // The files of purged threads stay: this folder is none of the store's own.
            for extra in again.extra {
                std::fs::remove_file(extra).unwrap();
            }
            let report = rebuild(&fresh, &first);
            assert!(report.is_whole(), "{why}: {report:?}");
            assert_eq!(report.carried.equal, report.carried.threads, "{why}");
            assert_same(&history.store, &fresh, &why);
            for gone in threads(&target).into_iter().filter(|it| history.store.get(&it.id).is_err()) {
                drop(target.delete(&gone.id));
                target.purge(&gone.id).unwrap();
            }
            let report = rebuild(&target, &first);
            assert!(report.problems.is_empty(), "{why}: {report:?}");

            drop(std::fs::remove_dir_all(&second));
            mirror(&fresh, &second);
            assert_eq!(names(&rollouts_below(&first)), names(&rollouts_below(&second)), "{why}");
            for (path, bytes) in rollouts_below(&first) {
                assert!(rollouts_below(&second)[&path] == bytes, "{why}: {}", path.display());
            }
            for report in Store::verify_rollouts(&first).unwrap().0 {
                assert!(report.is_whole(), "{why}: {report:?}");
            }
        }
    }
}

fn names(files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<&PathBuf> {
    files.keys().collect()
}

#[test]
fn a_line_that_was_changed_costs_itself_and_what_stands_on_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, temp.path());
    let file = only_file(temp.path());
    let whole = std::fs::read(&file).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let items = check(&file).items;
    for (number, line) in lines.iter().enumerate() {
        let before: usize = lines[..number].iter().map(|line| line.len()).sum();
        let is_item = line.starts_with(b"{\"type\":\"item\"");
        for at in (0..line.len()).step_by(7).chain([line.len() - 1]) {
            for flip in [1_u8, 0x80] {
                let mut changed = whole.clone();
                changed[before + at] ^= flip;
                std::fs::write(&file, &changed).unwrap();
                let report = check(&file);
                let place = format!("byte {at} of line {}: {report:?}", number + 1);
                assert!(report.problems[0].line == number as u64 + 1, "{place}");
                let is_end = at == line.len() - 1;
                let lost = items - report.items;
                assert_eq!(lost, u64::from(is_item && !is_end) + report.unplaced, "{place}");
                if !is_item || is_end {
                    assert_eq!(lost, 0, "{place}");
                }
                let rebuilt = memory();
                let report = rebuild(&rebuilt, &file);
                assert_eq!(report.carried.problems, [], "{place}");
                assert!(!report.problems.is_empty(), "{place}");
                let verdict = rebuilt.verify(&id("t")).unwrap();
                assert!(verdict.is_intact(), "{place}: {verdict:?}");
                assert_eq!(verdict.items, items - lost, "{place}");
            }
        }
    }
}

#[test]
fn a_file_that_was_cut_anywhere_in_its_last_records_gives_all_before_and_is_repaired() {
    let temp = tempfile::tempdir().unwrap();
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, temp.path());
    let file = only_file(temp.path());
    let whole = std::fs::read(&file).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    // The last two items, the turn and the metadata.
    for cut in ends[ends.len() - 5]..whole.len() - 1 {
        std::fs::write(&file, &whole[..cut]).unwrap();
        let complete = ends.iter().filter(|end| **end - 1 <= cut).count();
        let report = check(&file);
        assert!(!report.is_whole(), "cut at {cut}");
        assert_eq!(report.items, (complete as u64 - 1).min(6), "cut at {cut}: {report:?}");
        let rebuilt = memory();
        assert_eq!(rebuild(&rebuilt, &file).carried.problems, []);
        assert!(rebuilt.verify(&id("t")).unwrap().is_intact());

        // A record behind the fragment is read though nothing closed the line.
        let last = &whole[ends[ends.len() - 2]..];
        std::fs::write(&file, [&whole[..cut], last].concat()).unwrap();
        let report = check(&file);
        assert_eq!(report.items, (complete as u64 - 1).min(6), "cut at {cut}, and written on: {report:?}");
        assert_eq!(report.head_hash.is_some(), report.items > 0);
    }
    std::fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    assert_eq!(mirror(&store, temp.path()).written, 1);
    assert!(std::fs::read(&file).unwrap() == whole, "a cut file is written anew");
}

#[test]
fn a_lost_first_line_costs_no_item() {
    let temp = tempfile::tempdir().unwrap();
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, temp.path());
    let file = only_file(temp.path());
    let whole = std::fs::read(&file).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(&file, &whole[first..]).unwrap();
    let rebuilt = memory();
    let report = rebuild(&rebuilt, &file);
    assert_eq!((report.problems.len(), report.problems[0].line), (1, 1), "{report:?}");
    assert_same(&store, &rebuilt, "without its first line");
}

#[test]
fn a_newer_file_is_refused_and_unknown_lines_are_counted_and_kept() {
    let temp = tempfile::tempdir().unwrap();
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, temp.path());
    let file = only_file(temp.path());
    let whole = String::from_utf8(std::fs::read(&file).unwrap()).unwrap();
    let signed = |line: &str| {
        let body = line.rsplit_once(",\"sum\":").unwrap().0;
        let sum = threadkeep::Hash::of(body.as_bytes()).to_string();
        format!("{body},\"sum\":\"{}\"}}\n", &sum[..16])
    };
    let later = signed("{\"type\":\"mood\",\"is\":\"good\",\"sum\":");
    let (header, rest) = whole.split_once('\n').unwrap();
    std::fs::write(&file, format!("{header}\n{later}{rest}")).unwrap();
    let report = rebuild(&memory(), &file);
    assert!(report.is_whole() && report.unknown == 1, "{report:?}");
    // The file grows, moves and comes back: what a later version has written stays, until something is taken away.
    let has_it = || {
        let file = only_file(temp.path());
        let bytes = std::fs::read(&file).unwrap();
        let is_plain = file.extension().is_some_and(|it| it == "jsonl");
        let text = if is_plain { bytes } else { zstd::decode_all(bytes.as_slice()).unwrap() };
        String::from_utf8(text).unwrap().matches(&later).count()
    };
    let live = store.resume(&id("t"), false).unwrap();
    live.append(vec![say("on")]).unwrap();
    live.shutdown().unwrap();
    mirror(&store, temp.path());
    assert_eq!(has_it(), 1);
    store.archive(&id("t")).unwrap();
    mirror(&store, temp.path());
    assert_eq!(has_it(), 1);
    store.unarchive(&id("t")).unwrap();
    mirror(&store, temp.path());
    assert_eq!((has_it(), mirror(&store, temp.path()).unchanged), (1, 1));
    assert!(check(&file).is_whole());
    let at = store.address_at(&id("t"), 0).unwrap();
    let options = threadkeep::RedactOptions { reason: "a key".to_owned(), ..threadkeep::RedactOptions::default() };
    store.redact(&id("t"), vec![at], options).unwrap();
    mirror(&store, temp.path());
    assert_eq!(has_it(), 0);
    std::fs::write(&file, &whole).unwrap();

    let newer = signed(&header.replacen("\"version\":1", "\"version\":2", 1));
    std::fs::write(&file, format!("{newer}{rest}")).unwrap();
    let refused = memory().rebuild_from_rollouts(&file, |_| {}).unwrap_err();
    assert!(matches!(refused, Error::RolloutTooNew { found: 2, known: 1, .. }), "{refused:?}");
    let other = memory();
    a_thread(&other, "u");
    mirror(&other, temp.path());
    let report = rebuild(&memory(), temp.path());
    assert_eq!((report.carried.new, report.problems.len()), (1, 1), "the others are read: {report:?}");
    store.update(&id("t"), ThreadPatch::title("another")).unwrap();
    let kept = store.mirror_rollouts(Some(temp.path()), None, |_| {}).unwrap();
    assert_eq!(kept.problems[0].kind, "rollout-too-new", "what a newer version wrote is not replaced");
}

#[test]
fn whatever_is_done_to_a_file_nothing_untrue_comes_out_of_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, temp.path());
    let file = only_file(temp.path());
    let whole = std::fs::read(&file).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut state = 11_usize;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for round in 0..300 {
        let mut changed: Vec<u8> = match below(3) {
            0 => whole.clone(),
            // Lines that were left out, doubled, and put in another order.
            _ => (0..lines.len())
                .flat_map(|at| if below(4) > 0 { lines[at] } else { lines[below(lines.len())] }.to_vec())
                .collect(),
        };
        for _ in 0..below(4) {
            let (at, length) = (below(changed.len()), below(40));
            let end = (at + length).min(changed.len());
            let put: Vec<u8> = (0..below(40)).map(|_| b"\n\0\xff{}\",:a"[below(9)]).collect();
            drop(changed.splice(at..end, put));
        }
        std::fs::write(&file, &changed).unwrap();
        let rebuilt = memory();
        let Ok(report) = rebuilt.rebuild_from_rollouts(&file, |_| {}) else { continue };
        assert_eq!(report.carried.problems, [], "round {round}");
        let Ok(verdict) = rebuilt.verify(&id("t")) else { continue };
        assert!(verdict.is_intact(), "round {round}: {verdict:?}");
        let tree = store.tree(&id("t")).unwrap();
        for branch in rebuilt.tree(&id("t")).unwrap().branches {
            assert!(tree.branches.iter().any(|it| it.id == branch.id && it.tip >= branch.tip), "round {round}");
        }
    }
}

#[test]
fn hostile_names_lead_nowhere() {
    let temp = tempfile::tempdir().unwrap();
    let (root, outside) = (temp.path().join("rollouts"), temp.path().join("t.jsonl"));
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, &root);
    let file = only_file(&root);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&outside, "stays").unwrap();
    // Whatever the index says, nothing outside is removed.
    let index = root.join("session_index.jsonl");
    let entry: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&index).unwrap()).unwrap();
    for place in ["../t.jsonl", outside.to_str().unwrap(), "archived/../../t.jsonl"] {
        let mut entry = entry.clone();
        entry["file"] = place.into();
        std::fs::write(&index, format!("{entry}\n")).unwrap();
        mirror(&store, &root);
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "stays", "{place}");
    }
    for name in ["../x", "..", "a/b", "-rf", "", "a\\u0000b"] {
        let (header, rest) = whole.split_once('\n').unwrap();
        let body = header.rsplit_once(",\"sum\"").unwrap().0;
        let body = body.replacen("\"thread\":\"t\"", &format!("\"thread\":\"{name}\""), 1);
        let sum = threadkeep::Hash::of(body.as_bytes()).to_string();
        std::fs::write(&file, format!("{body},\"sum\":\"{}\"}}\n{rest}", &sum[..16])).unwrap();
        let rebuilt = memory();
        let report = rebuild(&rebuilt, &root);
        assert_eq!((report.problems.len(), report.problems[0].line), (1, 1), "{name}: {report:?}");
        assert_eq!(threads(&rebuilt).len(), 1, "{name}: the thread is known from its other lines");
    }
}

#[test]
fn what_is_mirrored_while_it_is_written_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    let (store, folder) = (open(&temp.path().join("store")), temp.path().join("rollouts"));
    let live = store.workspace(Path::new("/w")).unwrap().create_now(named("t")).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..300 {
                live.begin_turn(say(&format!("{number}"))).unwrap();
                live.append(vec![say("a"), say("b")]).unwrap();
                live.end_turn(TurnEnd::completed()).unwrap();
                if number % 10 == 0 {
                    live.rewind(store.address_at(&id("t"), number / 2).unwrap()).unwrap();
                }
            }
        });
        let mut before = 0;
        while !writing.is_finished() {
            mirror(&store, &folder);
            let report = check(&only_file(&folder));
            assert!(report.is_whole() && report.items >= before, "{report:?}");
            before = report.items;
        }
        writing.join().unwrap();
    });
    live.shutdown().unwrap();
    mirror(&store, &folder);
    let rebuilt = memory();
    assert!(rebuild(&rebuilt, &folder).is_whole());
    assert_same(&store, &rebuilt, "what was written while it was mirrored");
}

/// The schema names what is written, line by line.
#[test]
fn the_schema_in_the_docs_knows_every_member() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../../docs/rollout.schema.json")).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let mut history = History::new(ticking(), 5);
    a_thread(&history.store, "t");
    (0..60).for_each(|_| history.step());
    mirror(&history.store, temp.path());
    let mut kinds = std::collections::BTreeSet::new();
    for (_, bytes) in
        rollouts_below(temp.path()).into_iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "jsonl"))
    {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")) {
            let line: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line).unwrap();
            let kind = line["type"].as_str().unwrap().to_owned();
            let known = &schema["$defs"][&kind];
            for member in line.keys() {
                assert!(known["properties"].get(member).is_some(), "{kind}: {member}");
            }
            for member in known["required"].as_array().unwrap() {
                assert!(line.contains_key(member.as_str().unwrap()), "{kind}: {member}");
            }
            kinds.insert(kind);
        }
    }
    assert_eq!(kinds.len(), 4, "{kinds:?}");
}

#[test]
fn links_in_the_folder_are_not_followed() {
    let temp = tempfile::tempdir().unwrap();
    let (root, outside) = (temp.path().join("rollouts"), temp.path().join("outside"));
    let store = memory();
    a_thread(&store, "t");
    mirror(&store, &root);
    let file = only_file(&root);
    std::fs::create_dir(&outside).unwrap();
    std::fs::rename(&file, outside.join("stolen.jsonl")).unwrap();
    let stolen = std::fs::read(outside.join("stolen.jsonl")).unwrap();
    symlink(outside.join("stolen.jsonl"), &file).unwrap();
    symlink(&outside, root.join("1999")).unwrap();
    let report = rebuild(&memory(), &root);
    assert_eq!((report.files, report.left.len()), (0, 2), "{report:?}");
    assert!(Store::verify_rollouts(&file).is_err());
    // The link is replaced, and what it leads to is as it was.
    assert_eq!(mirror(&store, &root).written, 1);
    assert!(file.symlink_metadata().unwrap().is_file());
    assert!(std::fs::read(outside.join("stolen.jsonl")).unwrap() == stolen);
    // A link in the place of a folder is refused.
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    symlink(&outside, file.parent().unwrap()).unwrap();
    let report = store.mirror_rollouts(Some(&root), None, |_| {}).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn files_are_for_their_owner_alone_and_move_with_their_thread() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    a_thread(&store, "t");
    let path = store.as_async();
    let path = |_: ()| pollster::block_on(path.rollout_path(&id("t"))).unwrap();
    let (plain, root) = (path(()), temp.path().join("rollouts"));
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    assert!(plain.is_file());
    for path in bytes_below(&root).into_keys().flat_map(|it| it.ancestors().map(Path::to_owned).collect::<Vec<_>>()) {
        let mode = root.join(path).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
    let before = rebuild(&memory(), &root);
    store.archive(&id("t")).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let archived = path(());
    assert!(archived.is_file() && !plain.exists() && archived.ends_with("rollouts/archived/t.jsonl.zst"));
    let (check, rebuilt) = (check(&archived), memory());
    assert!(check.is_whole() && check.items == before.carried.items, "{check:?}");
    rebuild(&rebuilt, &archived);
    assert_same(&store, &rebuilt, "archived");
    store.unarchive(&id("t")).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    assert!(plain.is_file() && !archived.exists());
    store.delete(&id("t")).unwrap();
    store.purge(&id("t")).unwrap();
    assert!(!plain.exists(), "purging takes the rollout too");
    assert_eq!(rebuild(&memory(), &root).files, 0);
}

#[test]
fn a_fork_brings_the_threads_that_it_stands_on_and_purging_leaves_what_is_shared() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    a_thread(&store, "parent");
    let at = store.address_at(&id("parent"), 1).unwrap();
    store.fork(&id("parent"), Some(at), named("child")).unwrap();
    store.fork(&id("child"), Some(at), named("grandchild")).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let file = pollster::block_on(store.as_async().rollout_path(&id("grandchild"))).unwrap();
    let alone = memory();
    let report = rebuild(&alone, &file);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(alone.get(&id("grandchild")).unwrap().head, store.get(&id("grandchild")).unwrap().head);

    store.delete(&id("parent")).unwrap();
    store.purge(&id("parent")).unwrap();
    let root = temp.path().join("rollouts");
    let stub = check(&root.join("archived/parent.jsonl.zst"));
    assert!(stub.is_whole() && stub.items == 2, "the shared items alone: {stub:?}");
    let rebuilt = memory();
    assert!(rebuild(&rebuilt, &root).is_whole());
    assert_same(&store, &rebuilt, "a stub and those that stand on it");
    for gone in ["child", "grandchild"] {
        store.delete(&id(gone)).unwrap();
        store.purge(&id(gone)).unwrap();
    }
    assert_eq!(rebuild(&memory(), &root).files, 0, "the stub went with the last that stood on it");

    // Without the file of the parent nothing can be placed, and that is said.
    let other = memory();
    let lonely = temp.path().join("lonely.jsonl");
    a_thread(&other, "parent");
    let at = other.address_at(&id("parent"), 1).unwrap();
    other.fork(&id("parent"), Some(at), named("child")).unwrap();
    let live = other.resume(&id("child"), false).unwrap();
    live.append(vec![say("on")]).unwrap();
    live.shutdown().unwrap();
    other.mirror_rollouts(Some(&temp.path().join("m")), Some(vec![id("child")]), |_| {}).unwrap();
    std::fs::rename(only_file(&temp.path().join("m")), &lonely).unwrap();
    let report = rebuild(&memory(), &lonely);
    assert_eq!(report.carried.problems[0].kind, "corrupt", "{report:?}");
}

#[test]
fn a_thread_is_read_by_its_file_and_gone_on_with() {
    let temp = tempfile::tempdir().unwrap();
    let (first, second) = (memory(), memory());
    a_thread(&first, "t");
    mirror(&first, temp.path());
    let file = only_file(temp.path());
    let by_path = |store: &Store| pollster::block_on(store.as_async().read_thread_by_rollout_path(&file)).unwrap();
    assert_eq!(by_path(&first).id, id("t"));
    assert_eq!(by_path(&second).details.title.as_deref(), Some("a title"));
    assert!(second.get(&id("t")).is_err(), "reading brings nothing in");
    let live = second.resume_rollout(&file).unwrap();
    live.append(vec![say("on")]).unwrap();
    live.shutdown().unwrap();
    assert!(second.verify(&id("t")).unwrap().is_intact());
    assert_eq!(second.get(&id("t")).unwrap().items, first.get(&id("t")).unwrap().items + 1);
    // The file lags now, and takes nothing back.
    let report = rebuild(&second, &file);
    assert!(report.is_whole() && report.carried.unchanged == 1, "{report:?}");
    let foreign = temp.path().join("foreign.jsonl");
    std::fs::write(&foreign, "{\"timestamp\":\"x\",\"type\":\"session_meta\"}\n").unwrap();
    let refused = second.resume_rollout(&foreign).unwrap_err();
    assert!(matches!(refused, Error::Invalid { field: "rollout", .. }), "{refused:?}");
}

#[test]
fn two_histories_of_one_thread_are_never_mixed() {
    let temp = tempfile::tempdir().unwrap();
    let (first, second) = (memory(), memory());
    a_thread(&first, "t");
    a_thread(&second, "t");
    mirror(&first, temp.path());
    let before = second.get(&id("t")).unwrap();
    let report = rebuild(&second, temp.path());
    assert_eq!(report.carried.problems[0].kind, "conflict", "{report:?}");
    assert_eq!(second.get(&id("t")).unwrap(), before);
}

#[test]
fn the_index_is_read_past_torn_lines_and_compacted() {
    let temp = tempfile::tempdir().unwrap();
    let store = memory();
    a_thread(&store, "t");
    let index = temp.path().join("session_index.jsonl");
    mirror(&store, temp.path());
    let one = std::fs::read(&index).unwrap();
    std::fs::write(&index, [one.as_slice(), b"{\"id\":\"t\",\"na"].concat()).unwrap();
    assert_eq!(mirror(&store, temp.path()).unchanged, 1);
    let grow = || {
        let live = store.resume(&id("t"), false).unwrap();
        live.append(vec![say("on")]).unwrap();
        live.shutdown().unwrap();
        mirror(&store, temp.path());
        std::fs::read_to_string(&index).unwrap()
    };
    let text = grow();
    assert_eq!(text.lines().count(), 3, "{text}");
    std::fs::write(&index, text.repeat(200)).unwrap();
    assert_eq!(grow().lines().count(), 1);
    assert_eq!(grow().lines().count(), 2);
    // A name that was taken back stays nowhere: it may have been redacted.
    store.update(&id("t"), ThreadPatch::title("the last")).unwrap();
    mirror(&store, temp.path());
    let text = std::fs::read_to_string(&index).unwrap();
    assert!(text.lines().count() == 1 && text.contains("the last"), "{text}");
    std::fs::remove_file(&index).unwrap();
    let file = std::fs::read(only_file(temp.path())).unwrap();
    mirror(&store, temp.path());
    assert!(std::fs::read(only_file(temp.path())).unwrap() == file, "without an index the same is written");
}

#[test]
fn a_store_that_can_t_be_written_makes_no_file() {
    let temp = tempfile::tempdir().unwrap();
    a_thread(&open(temp.path()), "t");
    let store = Store::open(threadkeep::StoreOptions::folder(temp.path()).read_only()).unwrap();
    assert!(matches!(store.mirror_rollouts(None, None, |_| {}).unwrap_err(), Error::ReadOnly { .. }));
    assert!(!temp.path().join("rollouts").exists());
    let refused = memory().mirror_rollouts(None, None, |_| {}).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { operation: "mirror_rollouts" }), "{refused:?}");
}

#[test]
fn random_histories_go_through_files_to_a_server_and_back() {
    let Some(server) = server::server() else { return };
    let temp = tempfile::tempdir().unwrap();
    for seed in 1..=3 {
        let there = Store::open(threadkeep::StoreOptions::postgres(&server.address()).unwrap()).unwrap();
        let mut history = History::new(ticking(), seed);
        (0..80).for_each(|_| history.step());
        let why = format!("seed {seed}");
        let (first, second) = (temp.path().join(format!("first-{seed}")), temp.path().join(format!("second-{seed}")));
        mirror(&history.store, &first);
        let report = rebuild(&there, &first);
        assert!(report.is_whole(), "{why}: {report:?}");
        assert_same(&history.store, &there, &why);
        mirror(&there, &second);
        assert!(rollouts_below(&first) == rollouts_below(&second), "{why}: the same bytes from both engines");
        let back = memory();
        assert!(rebuild(&back, &second).is_whole(), "{why}");
        assert_same(&there, &back, &why);
    }
}
