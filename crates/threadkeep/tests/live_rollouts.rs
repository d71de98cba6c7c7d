//! Rollouts that are kept while the store is written: they never lead, they lag and catch up, and no write fails because of them.
#![cfg(test)]

#[expect(dead_code, reason = "other tests open their stores in other ways")]
#[path = "copy/history.rs"]
mod history;
#[path = "postgres/server.rs"]
mod server;
#[path = "disks/small_disk.rs"]
mod small_disk;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use history::{History, Ticking, assert_same, id, memory, named, say, threads};
use small_disk::SmallDisk;
use threadkeep::blocking::Store;
use threadkeep::{
    AppendOptions, Durability, LiveRollouts, LiveStatus, RedactOptions, RolloutReport, StoreOptions, ThreadPatch,
    TurnEnd,
};

/// The clock of all stores here: the order of a store that was rebuilt is that of the times of its last changes.
fn clock() -> Arc<Ticking> {
    static CLOCK: OnceLock<Arc<Ticking>> = OnceLock::new();
    Arc::clone(CLOCK.get_or_init(Arc::default))
}

/// A store in a folder whose rollouts are kept, in a folder beside it.
fn live(folder: &Path, rollouts: &Path) -> Store {
    let kept = LiveRollouts::In(rollouts.to_owned());
    Store::open(StoreOptions::folder(folder).live_rollouts(kept).host(clock())).unwrap()
}

/// A store in a folder, as the store says.
fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder).host(clock())).unwrap()
}

fn drained(store: &Store) -> LiveStatus {
    let status = store.drain_live_rollouts();
    assert!(status.is_in_step && status.problems.is_empty(), "{status:?}");
    status
}

/// The rollouts below a folder with their bytes.
fn rollouts(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            match entry.file_type().unwrap().is_dir() {
                true if name != "set-aside" && !name.starts_with('.') => waiting.push(entry.path()),
                false if !name.starts_with('.') && name != "session_index.jsonl" => {
                    let place = entry.path().strip_prefix(folder).unwrap().to_owned();
                    drop(found.insert(place, fs::read(entry.path()).unwrap()));
                }
                _ => {}
            }
        }
    }
    found
}

fn only_file(folder: &Path) -> PathBuf {
    let found: Vec<PathBuf> = rollouts(folder).into_keys().collect();
    let [file] = found.as_slice() else { panic!("{found:?}") };
    folder.join(file)
}

fn check(file: &Path) -> RolloutReport {
    Store::verify_rollouts(file).unwrap().0.remove(0)
}

/// What is in the rollouts is whole, is what is in the store, and has the canonical form when it is mirrored anew.
fn assert_in_step(store: &Store, folder: &Path, why: &str) {
    let (reports, problems) = Store::verify_rollouts(folder).unwrap();
    assert_eq!(problems, [], "{why}");
    for report in reports {
        assert!(report.is_whole(), "{why}: {report:?}");
    }
    let rebuilt = memory();
    let report = rebuilt.rebuild_from_rollouts(folder, |_| {}).unwrap();
    assert!(report.is_whole(), "{why}: {report:?}");
    assert_same(store, &rebuilt, why);
    let temp = tempfile::tempdir().unwrap();
    let (of_store, of_rebuilt) = (temp.path().join("store"), temp.path().join("rebuilt"));
    store.mirror_rollouts(Some(&of_store), None, |_| {}).unwrap();
    rebuilt.mirror_rollouts(Some(&of_rebuilt), None, |_| {}).unwrap();
    assert_same_files(&of_store, &of_rebuilt, why);
    assert_eq!(
        rollouts(folder).into_keys().collect::<Vec<_>>(),
        rollouts(&of_store).into_keys().collect::<Vec<_>>(),
        "{why}: the same files"
    );
}

fn assert_same_files(left: &Path, right: &Path, why: &str) {
    let (left, right) = (rollouts(left), rollouts(right));
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>(), "{why}");
    for (place, bytes) in left {
        let (bytes, other) = (String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&right[&place]));
        let differs = bytes.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert!(differs.is_none() && bytes.len() == other.len(), "{why}: {}: {differs:?}", place.display());
    }
}

fn assert_canonical(store: &Store, folder: &Path, why: &str) {
    let report = store.mirror_rollouts(Some(folder), None, |_| {}).unwrap();
    assert_eq!((report.problems.len(), report.set_aside.len(), report.extra.len()), (0, 0, 0), "{why}: {report:?}");
    let temp = tempfile::tempdir().unwrap();
    store.mirror_rollouts(Some(temp.path()), None, |_| {}).unwrap();
    assert_same_files(folder, temp.path(), why);
}

#[test]
fn random_histories_through_several_handles_are_followed() {
    for seed in 0..4 {
        let temp = tempfile::tempdir().unwrap();
        let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
        let mut histories: Vec<History> = (0..3)
            .map(|number| {
                let mut history = History::new(live(&folder, &files), seed * 10 + number);
                history.count = usize::try_from(number).unwrap() * 1_000_000;
                history
            })
            .collect();
        for round in 0..3 {
            for step in 0..50 {
                // Claims are handed over from one to the other.
                let history = &mut histories[(step * 7 + step / 5) % 3];
                history.step();
                // A handle that was dropped gives up its claim behind what it wrote.
                history.store.sync().unwrap();
            }
            let why = format!("seed {seed}, round {round}");
            for history in &histories {
                drained(&history.store);
            }
            assert_in_step(&histories[0].store, &files, &why);
            if round == 1 {
                assert_canonical(&histories[0].store, &files, &why);
            }
        }
        // What was closed is opened again, and goes on with the same files.
        drop(histories);
        let mut history = History::new(live(&folder, &files), seed);
        history.count = 9_000_000;
        (0..20).for_each(|_| history.step());
        drained(&history.store);
        assert_in_step(&history.store, &files, &format!("seed {seed}, opened again"));
    }
}

#[test]
fn a_store_on_a_server_is_followed() {
    let Some(server) = server::server() else { return };
    let temp = tempfile::tempdir().unwrap();
    let address = server.address();
    let options = StoreOptions::postgres(&address).unwrap().host(clock());
    let first = Store::open(options.clone()).unwrap();
    let refused = first.set_live_rollouts(None).unwrap_err();
    assert_eq!(refused.kind(), "unsupported", "a server has no folder");
    first.set_live_rollouts(Some(temp.path())).unwrap();
    assert_eq!(first.live_rollouts().folder, None, "who has it open goes on as it began");
    drop(first);
    let mut histories: Vec<History> = (0..2)
        .map(|number| {
            let mut history = History::new(Store::open(options.clone()).unwrap(), number);
            history.count = usize::try_from(number).unwrap() * 1_000_000;
            history
        })
        .collect();
    for step in 0..80 {
        histories[step % 2].step();
        histories[step % 2].store.sync().unwrap();
    }
    for history in &histories {
        drained(&history.store);
    }
    assert_in_step(&histories[0].store, temp.path(), "a server");
    assert_canonical(&histories[0].store, temp.path(), "a server");
}

/// A thread in a file that has grown, and its lines.
fn grown(store: &Store) {
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    let live = workspace.create_now(named("t")).unwrap();
    live.begin_turn(say("why?")).unwrap();
    store.drain_live_rollouts();
    live.append(vec![say("because"), say("of \"this\"\n")]).unwrap();
    store.drain_live_rollouts();
    live.end_turn(TurnEnd::completed()).unwrap();
    store.update(&id("t"), ThreadPatch::title("a title")).unwrap();
    live.shutdown().unwrap();
}

#[test]
fn a_file_grows_by_whole_lines_and_what_is_acknowledged_is_in_it_when_its_thread_is_shut_down() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    let file = only_file(&files);
    let before = fs::read(&file).unwrap();
    let lines = |bytes: &[u8], kind: &str| {
        let begin = format!("{{\"type\":\"{kind}\"");
        bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(begin.as_bytes())).count()
    };
    assert!(lines(&before, "metadata") > 1, "lines as they happened");
    assert_eq!((lines(&before, "threadkeep-rollout"), lines(&before, "item")), (1, 3));
    assert_eq!(store.rollout_path(&id("t")).unwrap(), file);
    let live = store.resume(&id("t"), false).unwrap();
    for number in 0..20 {
        live.append(vec![say(&format!("{number}"))]).unwrap();
    }
    live.shutdown().unwrap();
    let after = fs::read(&file).unwrap();
    assert!(after.starts_with(&before), "nothing that was there is written again");
    assert_eq!((lines(&after, "item"), check(&file).items), (23, 23));
    assert!(after.ends_with(b"\n"));
    let index = fs::read_to_string(files.join("session_index.jsonl")).unwrap();
    assert!(index.lines().last().unwrap().contains("a title"), "{index}");
}

/// The schema names what is written into files that grow.
#[test]
fn the_schema_in_the_docs_knows_what_growing_files_note() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../../docs/rollout.schema.json")).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let store = live(&temp.path().join("store"), &temp.path().join("rollouts"));
    grown(&store);
    let bytes = fs::read(only_file(&temp.path().join("rollouts"))).unwrap();
    let last = bytes.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
    let line: serde_json::Value = serde_json::from_slice(last).unwrap();
    let known = &schema["$defs"]["metadata"]["properties"];
    let members = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(members(&line).iter().all(|member| known.get(member).is_some()), "{line}");
    assert_eq!(members(&line["live"]).len(), members(&known["live"]["properties"]).len());
}

#[test]
fn no_link_in_the_folder_is_followed() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files, outside) =
        (temp.path().join("store"), temp.path().join("rollouts"), temp.path().join("outside"));
    let store = live(&folder, &files);
    grown(&store);
    let file = only_file(&files);
    // The folder of the day leads elsewhere, with the file in it.
    let day = file.parent().unwrap();
    fs::rename(day, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, day).unwrap();
    let before = fs::read(outside.join("t.jsonl")).unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    live.append(vec![say("on")]).unwrap();
    live.shutdown().unwrap();
    assert!(!store.drain_live_rollouts().problems.is_empty());
    assert!(fs::read(outside.join("t.jsonl")).unwrap() == before && fs::read_dir(&outside).unwrap().count() == 1);
    fs::remove_file(day).unwrap();
    drained(&store);
    assert_in_step(&store, &files, "once the link is gone");
}

/// What the store counts whenever it is made to reach the disk on purpose.
fn barriers(folder: &Path) -> i64 {
    let database = rusqlite::Connection::open(folder.join("threadkeep.db")).unwrap();
    let read = "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'barrier'";
    database.query_row(read, [], |row| row.get(0)).unwrap()
}

#[test]
fn what_is_written_is_synced_before_it_is_mirrored_and_what_is_synced_is_not_synced_again() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = live(&folder, &temp.path().join("rollouts"));
    grown(&store);
    let live = store.resume(&id("t"), false).unwrap();
    live.append(vec![say("synced")]).unwrap();
    drained(&store);
    let file = only_file(&temp.path().join("rollouts"));
    let until_it_has = |text: &str| {
        while !String::from_utf8_lossy(&fs::read(&file).unwrap()).contains(text) {
            std::thread::yield_now();
        }
    };
    let before = barriers(&folder);
    for number in 0..5 {
        live.append(vec![say(&format!("synced {number}"))]).unwrap();
        until_it_has(&format!("synced {number}"));
    }
    assert_eq!(barriers(&folder), before, "a synced append needs nothing more");
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    live.append_with(vec![say("only written")], written).unwrap();
    until_it_has("only written");
    assert!(barriers(&folder) > before, "a written one is made to reach the disk first");
}

#[test]
fn a_thread_is_written_anew_when_that_is_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    let rewritten = store.rewrite_rollouts(&id("t")).unwrap();
    let file = only_file(&files);
    assert_eq!(
        rewritten.files.iter().map(|it| it.canonicalize().unwrap()).collect::<Vec<_>>(),
        [file.canonicalize().unwrap()]
    );
    let canonical = fs::read(&file).unwrap();
    // Bytes of the same length that the index takes for the right ones.
    let mut changed = canonical.clone();
    let at = changed.windows(7).position(|part| part == b"because").unwrap();
    changed[at] ^= 1;
    fs::write(&file, &changed).unwrap();
    store.rewrite_rollouts(&id("t")).unwrap();
    assert!(fs::read(&file).unwrap() == canonical);
    // And what follows grows behind it.
    let live = store.resume(&id("t"), false).unwrap();
    live.append(vec![say("on")]).unwrap();
    live.shutdown().unwrap();
    assert!(fs::read(&file).unwrap().starts_with(&canonical) && check(&file).is_whole());
    drop((store, live));
    // Without the mirror too, where there are files.
    let store = open(&folder);
    assert_eq!(store.rewrite_rollouts(&id("t")).unwrap().files, Vec::<PathBuf>::new(), "none is made");
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    assert_eq!(store.rewrite_rollouts(&id("t")).unwrap().files.len(), 1);
}

#[test]
fn what_was_redacted_is_in_no_line_of_a_file_whoever_redacted_it() {
    for keeps in [true, false] {
        let temp = tempfile::tempdir().unwrap();
        let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
        let store = live(&folder, &files);
        grown(&store);
        let secret = store.address_at(&id("t"), 1).unwrap();
        let has_it = || String::from_utf8_lossy(&fs::read(only_file(&files)).unwrap()).contains("because");
        assert!(has_it());
        let options = RedactOptions { reason: "it was a secret".to_owned(), ..RedactOptions::default() };
        match keeps {
            true => drop(store.redact(&id("t"), vec![secret], options).unwrap()),
            false => {
                // By a program that knows of no rollouts: the record says to the next that does what it has to write anew.
                drop(store);
                open(&folder).redact(&id("t"), vec![secret], options).unwrap();
                assert!(has_it());
            }
        }
        let store = live(&folder, &files);
        drained(&store);
        assert!(!has_it(), "{keeps}");
        assert_in_step(&store, &files, "after a redaction");
        assert_canonical(&store, &files, "after a redaction");
    }
}

#[test]
fn what_was_cut_anywhere_in_its_last_lines_is_brought_up_again_without_a_trace() {
    // A store is opened hundreds of times: where there is one, in a file system that syncs nothing.
    let memory = Path::new("/dev/shm");
    let temp = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    drop(store);
    let file = only_file(&files);
    let whole = fs::read(&file).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    // The last four lines, at every third byte and around their ends.
    let first = ends[ends.len() - 5];
    let is_near = |at: &usize| ends.iter().any(|end| end.abs_diff(*at) <= 1);
    for cut in (first..whole.len()).filter(|at| at % 3 == 0 || is_near(at)) {
        fs::write(&file, &whole[..cut]).unwrap();
        let store = live(&folder, &files);
        let status = drained(&store);
        assert_eq!(status.set_aside.len(), 0, "cut at {cut}");
        let report = check(&file);
        assert!(report.is_whole() && report.items == 3 && report.unknown == 0, "cut at {cut}: {report:?}");
        assert_eq!(report.repeated, 0, "cut at {cut}");
        let bytes = fs::read(&file).unwrap();
        let is_line = |line: &[u8]| line.starts_with(b"{\"type\":\"") && line.ends_with(b"\"}\n");
        assert!(bytes.split_inclusive(|byte| *byte == b'\n').all(is_line), "cut at {cut}: no fragment, nothing glued");
    }
}

#[test]
fn a_bad_line_costs_itself_until_the_file_is_written_anew() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    let file = only_file(&files);
    let whole = fs::read(&file).unwrap();
    // A turn's line, which nothing stands on.
    let at = whole.windows(14).position(|part| part == b"{\"type\":\"turn\"").unwrap();
    for bad in [b"x".as_slice(), b"\xff\xfe", b"\n"] {
        let mut changed = whole.clone();
        changed.splice(at + 20..at + 20 + bad.len(), bad.iter().copied());
        fs::write(&file, &changed).unwrap();
        let report = check(&file);
        assert!(!report.is_whole() && report.items == 3, "{report:?}");
        // It is written on: what is damaged in the middle is for verification to find, and mirroring cures it.
        let live = store.resume(&id("t"), false).unwrap();
        live.append(vec![say("on")]).unwrap();
        live.shutdown().unwrap();
        assert_eq!(check(&file).items, store.get(&id("t")).unwrap().items.unsigned_abs(), "{bad:?}");
        assert_canonical(&store, &files, "after a bad line");
        assert!(check(&file).is_whole());
        fs::write(&file, &whole).unwrap();
    }
}

#[test]
fn an_older_store_leaves_what_it_lost_aside() {
    for through_mirror in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
        let store = live(&folder, &files);
        grown(&store);
        let other = store.workspace(Path::new("/w/one")).unwrap().create_now(named("u")).unwrap();
        other.append(vec![say("both have it")]).unwrap();
        other.shutdown().unwrap();
        let backup = temp.path().join("backup.db");
        store.backup(&backup).unwrap();
        let live_thread = store.resume(&id("t"), false).unwrap();
        live_thread.append(vec![say("lost with the store")]).unwrap();
        live_thread.shutdown().unwrap();
        drop((store, other, live_thread));
        let lost = fs::read(store_file(&files, "t")).unwrap();
        Store::restore_backup(StoreOptions::folder(&folder), &backup).unwrap();

        let aside = match through_mirror {
            true => open(&folder).mirror_rollouts(Some(&files), None, |_| {}).unwrap().set_aside,
            false => drained(&live(&folder, &files)).set_aside,
        };
        let [aside] = aside.as_slice() else { panic!("{aside:?}") };
        assert!(fs::read(aside).unwrap() == lost, "it is as it was");
        let store = live(&folder, &files);
        drained(&store);
        assert_in_step(&store, &files, "an older store");
        assert_eq!(store.get(&id("t")).unwrap().items, 3);
        // It is told where people look, and can be had back.
        let found = Store::examine(StoreOptions::folder(&folder).live_rollouts(LiveRollouts::Off), false).unwrap();
        assert!(found.findings.is_empty(), "that store keeps no rollouts by itself: {found:?}");
        store.set_live_rollouts(Some(&files)).unwrap();
        let found = Store::examine(StoreOptions::folder(&folder), false).unwrap();
        assert!(found.findings.iter().any(|it| it.code == "rollout-set-aside"), "{found:?}");
        let back = memory();
        assert!(back.rebuild_from_rollouts(aside, |_| {}).unwrap().is_whole());
        assert_eq!(back.get(&id("t")).unwrap().items, 4);
    }
}

fn store_file(files: &Path, name: &str) -> PathBuf {
    let found = rollouts(files).into_keys().find(|path| path.ends_with(format!("{name}.jsonl")));
    files.join(found.unwrap())
}

#[test]
fn a_folder_that_can_t_be_written_fails_no_write_and_is_caught_up_with() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    // A file where the folder should be: that keeps the superuser from it too.
    fs::write(&files, "in the way").unwrap();
    let store = live(&folder, &files);
    assert!(store.notices().iter().any(|notice| notice.contains("can't be written")), "{:?}", store.notices());
    grown(&store);
    let status = store.drain_live_rollouts();
    assert!(!status.is_in_step && !status.problems.is_empty(), "{status:?}");
    let live_thread = store.resume(&id("t"), false).unwrap();
    let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
    live_thread.append_with(vec![say("and on")], written).unwrap();
    fs::remove_file(&files).unwrap();
    live_thread.shutdown().unwrap();
    drained(&store);
    assert_in_step(&store, &files, "once it can be written");
    for entry in rollouts(&files).into_keys() {
        let mode = fs::metadata(files.join(entry)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_full_disk_fails_no_write_and_leaves_whole_lines() {
    let Some(disk) = SmallDisk::mount(1, "rollouts on a full disk") else { return };
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), disk.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; 600 << 10]).unwrap();
    let live = store.resume(&id("t"), false).unwrap();
    let before = fs::read(only_file(&files)).unwrap();
    for number in 0..6 {
        live.append(vec![say(&format!("{number}{}", "x".repeat(100 << 10)))]).unwrap();
        store.drain_live_rollouts();
        let report = check(&only_file(&files));
        assert!(report.is_whole(), "{number}: {report:?}");
    }
    let status = store.drain_live_rollouts();
    assert!(status.problems.iter().any(|problem| problem.contains("no space")), "{status:?}");
    assert!(fs::read(only_file(&files)).unwrap().starts_with(&before));
    live.append(vec![say("and it goes on")]).unwrap();
    fs::remove_file(&filler).unwrap();
    live.shutdown().unwrap();
    drained(&store);
    assert_in_step(&store, &files, "once there is room");
}

#[test]
fn what_was_not_mirrored_when_a_program_ended_is_brought_up_by_the_next() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    for name in ["trashed", "purged"] {
        let workspace = store.workspace(Path::new("/w/one")).unwrap();
        workspace.create_now(named(name)).unwrap().shutdown().unwrap();
        store.delete(&id(name)).unwrap();
    }
    drop(store);
    let before = rollouts(&files);
    // Programs that keep no rollouts write the store meanwhile: nobody told the files.
    let store = open(&folder);
    for number in 0..300 {
        let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named(&format!("n{number}"))).unwrap();
        live.append(vec![say("unseen")]).unwrap();
    }
    store.archive(&id("t")).unwrap();
    store.purge(&id("purged")).unwrap();
    drop(store);
    assert!(rollouts(&files) == before);
    let store = live(&folder, &files);
    drained(&store);
    assert_in_step(&store, &files, "brought up");
    assert_eq!(threads(&store).len(), 302);
}

#[test]
fn it_is_a_fact_of_the_store_that_every_program_obeys() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    assert_eq!(store.live_rollouts_folder().unwrap(), None, "off unless it is asked for");
    grown(&store);
    assert!(!temp.path().join("rollouts").exists());
    store.set_live_rollouts(None).unwrap();
    drop(store);
    let store = open(temp.path());
    let files = temp.path().join("rollouts");
    assert_eq!(drained(&store).folder.as_ref(), Some(&files));
    assert_in_step(&store, &files, "what was there before");
    let reading = Store::open(StoreOptions::folder(temp.path()).read_only()).unwrap();
    assert_eq!(reading.live_rollouts().folder, None);
    let without = Store::open(StoreOptions::folder(temp.path()).live_rollouts(LiveRollouts::Off)).unwrap();
    assert_eq!(without.live_rollouts().folder, None);
    store.unset_live_rollouts().unwrap();
    drop(store);
    assert_eq!(open(temp.path()).live_rollouts().folder, None);
    let memory = Store::open(StoreOptions::memory().live_rollouts(LiveRollouts::On)).unwrap();
    assert_eq!(memory.live_rollouts().folder, None, "memory has no folder");
}

#[test]
fn a_file_of_which_most_no_longer_counts_is_written_anew() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, files) = (temp.path().join("store"), temp.path().join("rollouts"));
    let store = live(&folder, &files);
    grown(&store);
    let file = only_file(&files);
    let (mut largest, mut shrinks) = (0, 0);
    for number in 0..200 {
        store.update(&id("t"), ThreadPatch::title(format!("title {number}"))).unwrap();
        store.drain_live_rollouts();
        let size = fs::metadata(&file).unwrap().len();
        shrinks += u64::from(size < largest);
        largest = if size < largest { size } else { largest.max(size) };
        assert!(size < 160 << 10, "{size}");
    }
    assert!(shrinks > 0);
    assert_in_step(&store, &files, "after many titles");
}
