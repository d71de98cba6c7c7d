//! Files that change, grow, shrink or fail while they are imported, and imports that meet.

use std::fs::{File, FileTimes, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Durability, Error, Hash, ImportBatch, ImportPart, ImportSegment, Shelf, SourceFile, StoreOptions, ThreadId,
};
use threadkeep_agents::import::{ImportOptions, ImportReport, Importer};

use super::{SESSION, conversation, given_back, import, open, path_of, record, write};

fn session() -> ThreadId {
    ThreadId::new(SESSION).unwrap()
}

fn key(path: &Path) -> String {
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Imports a file that is changed after it was looked at and before it is read: while an older file is done.
fn import_while(store: &Store, folder: &Path, change: impl FnOnce()) -> ImportReport {
    let first = folder.join("5e551011-0000-4000-8000-00000000000f.jsonl");
    let line = record("first", None, "user", "An older session")
        .replace(SESSION, first.file_stem().unwrap().to_str().unwrap());
    let is_new = store.source(first.to_str().unwrap()).unwrap().is_none();
    write(&first, &[line.replace("2026-03-01", "2026-02-01")], "\n");
    let mut change = Some(change);
    let report = Importer::new(store, ImportOptions::default())
        .run(&[folder.to_owned()], &mut |progress| {
            if progress.files_done == 1 {
                assert_eq!(progress.file.file_name(), first.file_name());
                change.take().unwrap()();
            }
        })
        .unwrap();
    assert!(is_new && change.is_none());
    std::fs::remove_file(&first).unwrap();
    report
}

fn stamp(path: &Path, store: &Store) -> (i64, i64) {
    let source = store.source(&key(path)).unwrap().unwrap();
    (source.size, source.consumed)
}

/// What is stored as the file's size is from before it was read, so that the next import looks again.
#[test]
fn a_file_that_changes_while_it_is_read_is_looked_at_again() {
    let all = conversation();
    let changed = [all[0].clone(), record("b1", Some("u1"), "assistant", "Another answer."), all[2].clone()];
    let whole = |lines: &[String]| lines.join("\n") + "\n";
    // What the file is after it was looked at, and whether another file takes its place.
    let cases = [(whole(&all), false), (whole(&all[..1]), false), (whole(&changed), false), (whole(&changed), true)];
    for (after, is_renamed) in cases {
        let (folder, store) = open();
        let sessions = folder.path().join("sessions");
        std::fs::create_dir(&sessions).unwrap();
        let path = sessions.join(format!("{SESSION}.jsonl"));
        write(&path, &all[..2], "\n");
        let size = i64::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
        import_while(&store, &sessions, || {
            let to = if is_renamed { folder.path().join("other") } else { path.clone() };
            std::fs::write(&to, &after).unwrap();
            std::fs::rename(&to, &path).unwrap();
        });
        assert_eq!(stamp(&path, &store).0, size);
        assert_ne!(size, i64::try_from(after.len()).unwrap());
        let again = import(&store, &path);
        assert_eq!((again.files.unchanged, again.files.read), (0, 1));
        assert!(given_back(&store, &path) == after.as_bytes());
        assert_eq!(import(&store, &path).files.unchanged, 1);
        assert!(store.verify(&session()).unwrap().is_intact());
    }
}

/// The same of a file that is known: what was read before is read again where it differs.
#[test]
fn a_known_file_that_changes_while_it_is_read_is_looked_at_again() {
    let all = conversation();
    for lines in [&all[..1], &all[1..2], &all[..4]] {
        let (folder, store) = open();
        let sessions = folder.path().join("sessions");
        std::fs::create_dir(&sessions).unwrap();
        let path = sessions.join(format!("{SESSION}.jsonl"));
        write(&path, &all[..2], "\n");
        import(&store, &path);
        write(&path, &all[..3], "\n");
        import_while(&store, &sessions, || std::fs::write(&path, lines.join("\n") + "\n").unwrap());
        let again = import(&store, &path);
        assert_eq!(again.files.read, 1);
        assert_eq!(import(&store, &path).files.unchanged, 1);
        // Of a file that was only cut the store keeps all.
        let expected = if *lines == all[..1] { all[..2].join("\n") + "\n" } else { lines.join("\n") + "\n" };
        assert!(given_back(&store, &path) == expected.as_bytes());
        assert!(store.verify(&session()).unwrap().is_intact());
    }
}

/// An agent's disk was full, or it wrote its file anew and was killed: what was imported is nowhere else.
#[test]
fn a_file_that_lost_its_end_loses_nothing_here() {
    let lines = [
        conversation()[..2].to_vec(),
        vec![r#"{"type":"file-history-snapshot","messageId":"s1","snapshot":{}}"#.to_owned()],
        conversation()[2..].to_vec(),
    ]
    .concat();
    let whole = lines.join("\n") + "\n";
    let with_usage = |text: &str| {
        text.replace("\"content\":\"It exp", "\"usage\":{\"input_tokens\":70,\"output_tokens\":7},\"content\":\"It exp")
    };
    let whole = with_usage(&whole);
    let first = lines[0].len() + 1;
    // Nothing, in the middle of a line, whole lines, all but the last line feed.
    for cut in [0, first - 5, first, first + 3, whole.len() - 20, whole.len() - 1] {
        let (folder, store) = open();
        let path = folder.path().join(format!("{SESSION}.jsonl"));
        std::fs::write(&path, &whole).unwrap();
        import(&store, &path);
        let before = store.get(&session()).unwrap();
        std::fs::write(&path, &whole[..cut]).unwrap();
        let report = import(&store, &path);
        let told: Vec<_> = report.problems.iter().map(|problem| problem.reason.as_str()).collect();
        // Nothing is no agent's file, and is told as that.
        let words = if cut == 0 { "no known agent's" } else { "has lost its end" };
        assert!(matches!(told[..], [reason] if reason.contains(words)), "{cut}: {told:?}");
        assert_eq!(report.items.imported, 0, "{cut}");
        assert!(given_back(&store, &path) == whole.as_bytes(), "{cut}");
        let after = store.get(&session()).unwrap();
        assert_eq!((after.items, &after.details), (before.items, &before.details), "{cut}");
        let again = import(&store, &path);
        assert!(cut == 0 || (again.files.unchanged, again.problems.len()) == (1, 0), "{cut}: told at every import");
        // It goes on behind what is left of it.
        let more = record("b1", Some("u1"), "assistant", "Another answer.");
        std::fs::write(&path, format!("{}{more}\n", &whole[..first])).unwrap();
        let longer = import(&store, &path);
        assert_eq!((longer.items.imported, longer.items.unchanged), (1, 1), "{cut}");
        let later = store.get(&session()).unwrap();
        assert_eq!((later.items, later.details.usage), (before.items + 1, before.details.usage), "{cut}");
        let told: Vec<_> = longer.problems.iter().map(|problem| problem.reason.as_str()).collect();
        assert!(matches!(told[..], [reason] if reason.contains("holds less than")), "{cut}: {told:?}");
        assert!(store.verify(&session()).unwrap().is_intact());
    }
}

/// A file that is shorter than what was read of it and says something else is read from its start; what it said before stays.
#[test]
fn a_file_that_was_written_anew_is_read_from_its_start() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let lines = conversation();
    write(&path, &lines, "\n");
    import(&store, &path);
    write(&path, &lines[1..3], "\n");
    let shorter = import(&store, &path);
    assert_eq!((shorter.items.read, shorter.problems.len()), (2, 1));
    assert!(given_back(&store, &path) == std::fs::read(&path).unwrap());
    write(&path, &lines, "\n\n");
    let longer = import(&store, &path);
    assert_eq!((longer.items.read, longer.items.imported, longer.items.unchanged), (4, 0, 4));
    assert!(store.verify(&session()).unwrap().is_intact());
}

/// Two files of one session that grow one after the other: the second failed at every import from then on.
#[test]
fn copies_of_a_session_grow_side_by_side() {
    let (folder, store) = open();
    let paths = ["a", "b"].map(|name| folder.path().join(name).join(format!("{SESSION}.jsonl")));
    let lines = conversation();
    for upto in 2..=4 {
        for (index, path) in paths.iter().enumerate() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            write(path, &lines[..upto], "\n");
            let report = import(&store, path);
            assert_eq!(report.files.failed, 0, "{report:?}");
            assert_eq!(report.items.imported == 0, index == 1);
        }
    }
    assert_eq!(path_of(&store, &session()), ["u1", "a1", "u2", "a2"]);
    assert!(paths.iter().all(|path| given_back(&store, path) == std::fs::read(path).unwrap()));
}

fn step(source: SourceFile, expected: Option<(i64, Hash)>) -> ImportBatch {
    ImportBatch {
        source,
        expected,
        replace: false,
        segments: vec![],
        screened: false,
        head: None,
        patch: None,
        updated_at: None,
    }
}

fn is_refused(live: &LiveThread, batch: ImportBatch) -> bool {
    match live.import(batch, Durability::Written) {
        Err(Error::Conflict { what: "source", .. }) => true,
        Ok(_) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A step that was planned on something else than what is stored would move the map of the file back.
#[test]
fn a_step_planned_on_another_state_of_the_file_is_refused_and_stores_nothing() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let lines = conversation();
    write(&path, &lines[..1], "\n");
    import(&store, &path);
    let before = store.source(&key(&path)).unwrap().unwrap();
    write(&path, &lines, "\n");
    import(&store, &path);
    let now = store.source(&key(&path)).unwrap().unwrap();
    let live = store.resume(&session(), true).unwrap();
    let position = now.consumed;
    let part = ImportPart::Beside { bytes: b"{}".to_vec() };
    let stale = ImportBatch {
        segments: vec![ImportSegment { position, length: 2, part }],
        ..step(before.clone(), Some((before.consumed, before.prefix)))
    };
    assert!(is_refused(&live, stale));
    assert!(is_refused(&live, step(before.clone(), None)));
    assert!(is_refused(&live, step(before, Some((now.consumed, Hash::of(b"other bytes"))))));
    assert!(is_refused(&live, step(SourceFile { path: "/unknown".to_owned(), ..now.clone() }, Some((1, now.prefix)))));
    assert_eq!(store.source(&key(&path)).unwrap().unwrap(), now);
    assert!(store.source("/unknown").unwrap().is_none());
    assert!(given_back(&store, &path) == std::fs::read(&path).unwrap());
    assert!(!is_refused(&live, step(now.clone(), Some((now.consumed, now.prefix)))));
}

/// A pipe that gives its content to whoever opens it next, once; it takes the place of the path.
fn pipe_at(path: &Path) {
    let new = path.with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&new).status().unwrap().success());
    std::fs::rename(new, path).unwrap();
}

/// An import that had looked at a file before another went on with it wrote back how far the file was read; every later
/// import then failed, because it stored again what was stored.
#[test]
fn an_import_that_was_overtaken_leaves_the_file_alone() {
    let (folder, store) = open();
    let sessions = folder.path().join("sessions");
    std::fs::create_dir(&sessions).unwrap();
    let path = sessions.join(format!("{SESSION}.jsonl"));
    let lines = conversation();
    write(&path, &lines[..1], "\n");
    import(&store, &path);
    // Only its time differs, so the import that is overtaken finds nothing new.
    let time = std::fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_secs(9);
    File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    let content = std::fs::read(&path).unwrap();
    let others_store = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    let (done, overtaken) = std::sync::mpsc::channel();
    let report = import_while(&store, &sessions, || {
        pipe_at(&path);
        let (path, content, all) = (path.clone(), content.clone(), lines.clone());
        std::thread::spawn(move || {
            // The first to open it looks at how the file begins.
            let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
            pipe.write_all(&content).unwrap();
            pipe_at(&path);
            drop(pipe);
            // The next reads it; it has asked the store before. Its file is complete only after the other import.
            let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            write(&path, &all, "\n");
            assert_eq!(import(&others_store, &path).items.imported, 3);
            pipe.write_all(&content).unwrap();
            done.send(()).unwrap();
        });
    });
    overtaken.recv_timeout(Duration::from_secs(60)).unwrap();
    // It looks again at what the store knows, and finds all of it. What is noted is the file as it was found first.
    assert_eq!((report.files.failed, report.problems.len()), (0, 0), "{report:?}");
    assert_eq!(import(&store, &path).items.unchanged, 4);
    assert_eq!(import(&store, &path).files.unchanged, 1);
    let mut lines = lines;
    lines.push(record("u3", Some("a2"), "user", "Ship it"));
    write(&path, &lines, "\n");
    assert_eq!(import(&store, &path).items.imported, 1);
    assert!(given_back(&store, &path) == std::fs::read(&path).unwrap());
}

/// An import that finds nothing new of a file whose time alone has changed makes the next one a look.
#[test]
fn a_touched_file_is_read_once() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    write(&path, &conversation(), "\n");
    import(&store, &path);
    let time = std::fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_secs(9);
    File::options().write(true).open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
    let again = import(&store, &path);
    assert_eq!((again.files.read, again.threads.unchanged, again.items.unchanged), (1, 1, 4));
    assert_eq!(import(&store, &path).files.unchanged, 1);
}

/// Of a file whose end can't be read, what could be read is stored. It is not taken for read because it did not change
/// since, and what an import that got no further has noted of the thread is not forgotten.
#[test]
fn a_file_that_fails_midway_keeps_what_was_read_and_is_tried_again() {
    let (folder, store) = open();
    let id = "019ce0bb-cccc-7000-8000-000000000003";
    let archive = folder.path().join("archived_sessions");
    std::fs::create_dir(&archive).unwrap();
    let path = archive.join(format!("rollout-2026-03-14T09-00-00-{id}.jsonl.zst"));
    let mut lines = vec![format!(
        r#"{{"timestamp":"2026-03-14T09:00:00.000Z","type":"session_meta","payload":{{"id":"{id}","timestamp":"2026-03-14T09:00:00.000Z","cwd":"/home/dev/webshop","source":"cli"}}}}"#
    )];
    // Longer than what is looked at to recognise a file.
    let words = "word ".repeat(60);
    for number in 1..2400 {
        let payload = match number {
            300 => r#"{"type":"thread_name_updated","thread_name":"Named midway"}"#.to_owned(),
            _ => format!(r#"{{"type":"agent_message","message":"{number} {words}"}}"#),
        };
        lines.push(format!(r#"{{"timestamp":"2026-03-14T09:01:00.000Z","type":"event_msg","payload":{payload}}}"#));
    }
    let text = lines.join("\n") + "\n";
    let half = text.match_indices('\n').nth(2199).unwrap().0 + 1;
    let mut bytes = zstd::encode_all(&text.as_bytes()[..half], 3).unwrap();
    let end = zstd::encode_all(&text.as_bytes()[half..], 3).unwrap();
    bytes.extend_from_slice(&end[..end.len() / 2]);
    std::fs::write(&path, &bytes).unwrap();
    let id = ThreadId::new(id).unwrap();
    for _ in 0..2 {
        let report = import(&store, &path);
        assert_eq!((report.files.failed, report.files.unchanged, report.items.read), (1, 0, 0), "{report:?}");
        let thread = store.get(&id).unwrap();
        assert_eq!((thread.items, thread.shelf), (2048, Shelf::Active));
    }
    bytes.extend_from_slice(&end[end.len() / 2..]);
    std::fs::write(&path, &bytes).unwrap();
    let report = import(&store, &path);
    assert_eq!((report.files.failed, report.items.imported, report.items.unchanged), (0, 352, 2048), "{report:?}");
    let thread = store.get(&id).unwrap();
    assert_eq!((thread.shelf, thread.details.title.as_deref()), (Shelf::Archived, Some("Named midway")));
    assert!(given_back(&store, &path) == text.as_bytes());
    assert_eq!(import(&store, &path).files.unchanged, 1);
    assert!(store.verify(&id).unwrap().is_intact());
}

/// Several files may belong to one thread, which is counted once: as new where it was made in this import.
#[test]
fn a_thread_of_several_files_is_counted_once() {
    let (folder, store) = open();
    let homes = folder.path().join("homes");
    let lines = conversation();
    let put = |name: &str, lines: &[String]| {
        let path = homes.join(name).join(format!("{SESSION}.jsonl"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, lines, "\n");
    };
    put("a", &lines[..2]);
    put("b", &lines[..3]);
    put("c", &lines[..2]);
    std::fs::write(homes.join("title.jsonl"), "{\"type\":\"summary\",\"summary\":\"a title\",\"leafUuid\":\"x\"}\n")
        .unwrap();
    let counts = |report: &ImportReport| (report.threads.new, report.threads.updated, report.threads.unchanged);
    let look = ImportOptions { dry_run: true, ..ImportOptions::default() };
    let look = || Importer::new(&store, look.clone()).run(std::slice::from_ref(&homes), &mut |_| {}).unwrap();
    assert_eq!(counts(&look()), (1, 0, 0));
    let report = import(&store, &homes);
    assert_eq!((counts(&report), report.files.read), ((1, 0, 0), 4), "what has no conversation is no thread");
    assert_eq!(counts(&import(&store, &homes)), (0, 0, 1));
    put("c", &lines);
    assert_eq!(counts(&look()), (0, 1, 0));
    let grown = import(&store, &homes);
    assert_eq!(counts(&grown), (0, 1, 0));
    // Reports of several imports are added up in the same way.
    let mut sum = report;
    sum.add_report(&grown);
    assert_eq!(counts(&sum), (1, 0, 0));
}

/// A thread that another program is at work on is waited for, but not for long.
#[test]
fn a_thread_that_another_program_holds_is_waited_for_a_little() {
    let (folder, store) = open();
    let path = folder.path().join(format!("{SESSION}.jsonl"));
    let lines = conversation();
    write(&path, &lines[..2], "\n");
    import(&store, &path);
    write(&path, &lines, "\n");
    let other = Store::open(StoreOptions::folder(folder.path().join("store"))).unwrap();
    let held = other.resume(&session(), false).unwrap();
    let report = import(&store, &path);
    assert_eq!((report.files.failed, report.items.imported), (1, 0), "{report:?}");
    assert!(report.problems[0].reason.ends_with("; import it again when that has ended"), "{report:?}");
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        held.discard().unwrap();
    });
    let report = import(&store, &path);
    release.join().unwrap();
    assert_eq!((report.files.failed, report.items.imported), (0, 2), "{report:?}");
}

/// Imports of the same files at once end well, all of them.
#[test]
fn imports_at_once_do_not_fail_for_each_other() {
    let (folder, store) = open();
    let homes = folder.path().join("homes");
    std::fs::create_dir(&homes).unwrap();
    let id = |number: usize| format!("5e551011-0000-4000-8000-{number:012}");
    let put = |upto: usize| {
        for number in 0..40 {
            let lines: Vec<String> = conversation().iter().map(|line| line.replace(SESSION, &id(number))).collect();
            write(&homes.join(format!("{}.jsonl", id(number))), &lines[..upto], "\n");
        }
    };
    for upto in [2, 3, 4] {
        put(upto);
        let imports: Vec<_> = (0..3)
            .map(|_| {
                let (homes, place) = (homes.clone(), folder.path().join("store"));
                std::thread::spawn(move || import(&Store::open(StoreOptions::folder(place)).unwrap(), &homes))
            })
            .collect();
        for report in imports.into_iter().map(|import| import.join().unwrap()) {
            assert_eq!((report.files.failed, report.problems.len()), (0, 0), "{report:?}");
        }
    }
    for number in 0..40 {
        assert_eq!(store.get(&ThreadId::new(id(number)).unwrap()).unwrap().items, 4);
    }
}
