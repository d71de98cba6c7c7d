//! Stores of every schema that ever landed: they open, read the same and are brought forward once, whole, or not at all; and a
//! store of a newer schema is left as it is.
#![cfg(test)]

#[path = "upgrades/fixed_host.rs"]
mod fixed_host;
#[path = "upgrades/retention.rs"]
mod retained;
#[path = "upgrades/sample.rs"]
mod sample;
#[path = "disks/small_disk.rs"]
mod small_disk;
#[path = "upgrades/steering.rs"]
mod steering;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use threadkeep::blocking::Store;
use threadkeep::{Address, Error, StoreOptions};

use sample::{Fixture, READS, STEP, fixtures, id, message, old_schemas, transcript};
use small_disk::SmallDisk;

const DATABASE: &str = "threadkeep.db";
const LOG: &str = "threadkeep.db-wal";
const INDEX: &str = "threadkeep.db-shm";
/// A step that this version does not know, behind all that it knows.
const NEWER: &str = "INSERT INTO schema_migrations SELECT max(number) + 1, 'future', 'x', 0 FROM schema_migrations";

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn sql(folder: &Path) -> Connection {
    Connection::open(folder.join(DATABASE)).unwrap()
}

fn newest_schema(folder: &Path) -> i64 {
    sql(folder).query_row("SELECT max(number) FROM schema_migrations", [], |row| row.get(0)).unwrap()
}

/// Makes a store anew from its text.
fn lay(fixture: &Fixture, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    sql(folder).execute_batch(&fixture.sql).unwrap();
}

/// The same as a killed program leaves it: the last of its rows are in the log alone.
fn lay_with_log(fixture: &Fixture, folder: &Path) {
    let source = tempfile::tempdir().unwrap();
    lay(fixture, source.path());
    let writer = sql(source.path());
    let late = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
        CREATE TEMP TABLE late AS SELECT * FROM facts; DELETE FROM facts; INSERT INTO facts SELECT * FROM late";
    writer.execute_batch(late).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    for name in [DATABASE, LOG] {
        std::fs::copy(source.path().join(name), folder.join(name)).unwrap();
    }
    assert!(std::fs::metadata(folder.join(LOG)).unwrap().len() > 0);
}

/// Makes an old store in a folder.
type Lay = fn(&Fixture, &Path);

/// The ways in which an old program can have left its store.
const WAYS: [(&str, Lay); 2] = [("closed", lay), ("killed", lay_with_log)];

/// Everything in a folder, byte by byte.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path.clone(), std::fs::read(&path).ok());
        }
    }
    found
}

/// The fixture of the newest schema exists; `UPDATE_GOLDEN=1` writes it.
#[test]
fn the_newest_schema_has_a_fixture() {
    let temp = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let folder = temp.path().join(name);
        sample::make(StoreOptions::folder(&folder), STEP);
        dump(&folder)
    };
    let (first, second) = (make("first"), make("second"));
    assert_eq!(first, second, "the sample is not the same each time");
    let folder = temp.path().join("first");
    let path = fixtures().join(format!("schema-{:04}.sql", newest_schema(&folder)));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let reads: String = transcript(&open(&folder)).lines().map(|line| format!("{READS}{line}\n")).collect();
        std::fs::create_dir_all(fixtures()).unwrap();
        std::fs::write(&path, first + &reads).unwrap();
    }
    assert!(path.exists(), "{} is missing: run this test with UPDATE_GOLDEN=1 and commit the file", path.display());
}

#[test]
fn every_schema_up_to_the_newest_has_a_fixture() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path()));
    let numbers: Vec<i64> = old_schemas().iter().map(|fixture| fixture.number).collect();
    assert_eq!(numbers, (1..=newest_schema(temp.path())).collect::<Vec<_>>());
}

/// A store of an old schema migrates, reads the same, and reopening it changes nothing more.
#[test]
fn a_store_of_every_schema_opens_and_reads_the_same() {
    for fixture in old_schemas() {
        let name = &fixture.name;
        assert!(fixture.reads.lines().count() > 20, "{name} does not say how it reads");
        for (way, lay) in WAYS {
            let temp = tempfile::tempdir().unwrap();
            lay(&fixture, temp.path());
            for time in ["first", "second"] {
                let store = open(temp.path());
                assert_eq!(
                    transcript(&store),
                    fixture.reads,
                    "{name}, {way}, reads differently, opened for the {time} time"
                );
            }
            let store = open(temp.path());
            let report = store.verify_all(|_| {}).unwrap();
            assert_eq!(report.intact, report.threads, "{name}: {:?}", report.invalid);
            let live = store.resume(&id("tree"), false).unwrap();
            let before = live.head().unwrap().unwrap();
            let after = live.append(vec![message("goes on")]).unwrap().items[0].address();
            assert_eq!(after, Address { depth: before.depth + 1, ..before }, "{name}");
            assert!(store.verify(&id("tree")).unwrap().is_intact());
            drop((live, store));
            let check: String = sql(temp.path()).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok", "{name}");
        }
    }
}

/// A fresh store and one that was migrated have the same tables, indexes and triggers, and the doctor says so too.
#[test]
fn a_migrated_store_has_the_schema_of_a_fresh_one() {
    let fresh = tempfile::tempdir().unwrap();
    drop(open(fresh.path()));
    let sorted = |folder: &Path| {
        let mut schema = schema(&sql(folder));
        schema.sort();
        schema
    };
    for fixture in old_schemas() {
        let temp = tempfile::tempdir().unwrap();
        lay(&fixture, temp.path());
        drop(open(temp.path()));
        assert_eq!(sorted(temp.path()), sorted(fresh.path()), "{}", fixture.name);
        assert_eq!(newest_schema(temp.path()), newest_schema(fresh.path()), "{}", fixture.name);
        let found = Store::examine(StoreOptions::folder(temp.path()), true).unwrap().findings;
        let told: Vec<_> = found.iter().filter(|finding| finding.code != "open-to-others").collect();
        assert!(told.is_empty(), "{}: {told:#?}", fixture.name);
    }
}

/// What the doctor and a reader find is an older schema; they bring nothing forward and change nothing.
#[test]
fn who_only_reads_brings_nothing_forward() {
    let Some(fixture) = old_schemas().into_iter().next() else { return };
    for (way, lay) in WAYS {
        let temp = tempfile::tempdir().unwrap();
        lay(&fixture, temp.path());
        let before = snapshot(temp.path());
        let found = Store::examine(StoreOptions::folder(temp.path()), true).unwrap().findings;
        assert!(found.iter().any(|finding| finding.code == "schema-older"), "{way}: {found:#?}");
        let refused = Store::open(StoreOptions::folder(temp.path()).read_only()).unwrap_err();
        assert!(
            matches!(&refused, Error::ReadOnly { detail } if detail.contains("open it once for writing")),
            "{refused:?}"
        );
        assert_unchanged(temp.path(), &before, way);
    }
}

/// Opens a store of an old schema when it is told to, and says what it sees; without a store this is no test and passes.
#[test]
fn opener_entry() {
    let Some(folder) = std::env::var_os("OLD_STORE") else { return };
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@@ ready").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let opened = Store::open(StoreOptions::folder(folder));
    let said = match &opened {
        Ok(store) => transcript(store).replace('\n', "\t"),
        Err(error) => format!("refused: {error}"),
    };
    writeln!(out, "\n@@ {said}").unwrap();
}

fn heard(child: &mut BufReader<std::process::ChildStdout>) -> String {
    let mut line = String::new();
    while child.read_line(&mut line).unwrap() > 0 {
        if let Some(said) = line.strip_prefix("@@ ") {
            return said.trim_end_matches('\n').to_owned();
        }
        line.clear();
    }
    panic!("a child ended without a word");
}

#[test]
fn eight_processes_that_open_an_old_store_at_once_bring_it_forward_once() {
    for fixture in old_schemas() {
        for (way, lay) in WAYS {
            let temp = tempfile::tempdir().unwrap();
            lay(&fixture, temp.path());
            let is_old = fixture.number < old_schemas().last().unwrap().number;
            let mut children: Vec<(Child, BufReader<_>)> = (0..8)
                .map(|_| {
                    let mut command = Command::new(std::env::current_exe().unwrap());
                    command.args(["--exact", "opener_entry", "--nocapture", "--test-threads=1"]);
                    command.env("OLD_STORE", temp.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
                    let mut child = command.spawn().unwrap();
                    let out = BufReader::new(child.stdout.take().unwrap());
                    (child, out)
                })
                .collect();
            for (_, out) in &mut children {
                assert_eq!(heard(out), "ready");
            }
            children.iter_mut().for_each(|(child, _)| drop(child.stdin.take()));
            for (child, out) in &mut children {
                assert_eq!(heard(out).replace('\t', "\n"), fixture.reads, "{}, {way}", fixture.name);
                assert!(child.wait().unwrap().success());
            }
            let copies = std::fs::read_dir(temp.path().join("backups")).map_or(0, Iterator::count);
            assert_eq!(
                copies,
                usize::from(is_old),
                "{}, {way}: one of them migrates, and copies it before",
                fixture.name
            );
        }
    }
}

/// A copied store has a rollback journal, and the first who opens it gives it its log. The engine tells a second one at once
/// that the database is locked, as it tells whoever comes while somebody else writes; an opener waits as long as it was told to.
#[test]
fn an_opener_waits_for_the_journal_to_be_switched() {
    let temp = tempfile::tempdir().unwrap();
    lay(&old_schemas().pop().unwrap(), temp.path());
    let other = sql(temp.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let bound = Duration::from_millis(200);
    let options = || StoreOptions::folder(temp.path()).busy_bound(bound);
    let begun = Instant::now();
    let refused = Store::open(options()).unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
    assert!(begun.elapsed() >= bound, "{:?}", begun.elapsed());
    drop(other);
    Store::open(options()).unwrap();
    let journal: String = sql(temp.path()).query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(journal, "wal");
}

/// A disk that is too full to bring a store forward leaves it as it was, with nothing half made beside it; with room it goes on.
#[test]
fn a_full_disk_leaves_an_old_store_as_it_was() {
    let fixture = &old_schemas()[0];
    let Some(disk) = SmallDisk::mount(2, "a_full_disk_leaves_an_old_store_as_it_was") else { return };
    let folder = disk.path().join("store");
    lay(fixture, &folder);
    let tables = || schema(&sql(&folder));
    let (before, filler) = (tables(), disk.path().join("filler"));
    let fresh = tempfile::tempdir().unwrap();
    drop(open(fresh.path()));
    let newest = newest_schema(fresh.path());
    let mut refused = 0;
    // From a disk on which nothing fits to one on which all does.
    for spare in (0..).map(|step| step * 16 * 1024) {
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(spare)).unwrap();
        drop(file);
        match Store::open(StoreOptions::folder(&folder)) {
            Ok(store) => {
                assert!(transcript(&store) == fixture.reads, "it reads differently");
                break;
            }
            Err(error) => assert!(matches!(error, Error::StorageFull { .. }), "{spare} bytes: {error:?}"),
        }
        // Whoever looks needs room too.
        std::fs::remove_file(&filler).unwrap();
        let number = newest_schema(&folder);
        let left: Vec<_> = std::fs::read_dir(folder.join("backups")).into_iter().flatten().flatten().collect();
        if number == fixture.number {
            refused += 1;
            assert_eq!(tables(), before, "{spare} bytes free");
            assert!(left.is_empty(), "{spare} bytes free: {left:?}");
        } else {
            // There was room for it, and then none to open what was made.
            assert_eq!((number, left.len()), (newest, 1), "{spare} bytes free: {left:?}");
        }
    }
    assert!(refused > 3, "{refused} times there was no room");
}

/// A program that was killed while it copied an old store leaves a part of the copy; the next one clears it away.
#[test]
fn a_copy_that_was_begun_is_cleared_away() {
    let fixture = &old_schemas()[0];
    let temp = tempfile::tempdir().unwrap();
    lay(fixture, temp.path());
    let backups = temp.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    for begun in ["before-migration-7-8.partial", "before-migration-7-8.partial-journal"] {
        std::fs::write(backups.join(begun), "a part").unwrap();
    }
    std::fs::write(backups.join("mine.partial"), "somebody's own").unwrap();
    drop(open(temp.path()));
    let mut names: Vec<String> = std::fs::read_dir(&backups)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() == 2 && names[0].ends_with(".db") && names[1] == "mine.partial", "{names:?}");
}

/// A store of a newer schema is refused in every way, with a word on where and what to do; and nothing of it changes.
#[test]
fn a_newer_store_is_refused_and_not_a_byte_of_it_changes() {
    for (way, marks_in_log) in [("closed", false), ("killed", true)] {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("store");
        sample::make(StoreOptions::folder(&folder), STEP);
        let known = newest_schema(&folder);
        let newer = format!("{NEWER}; CREATE TABLE later (x) STRICT; PRAGMA user_version = {}", known + 1);
        let newer = newer.replace("later (x)", "later (x INTEGER)");
        if marks_in_log {
            let source = temp.path().join("source");
            std::fs::rename(&folder, &source).unwrap();
            let writer = sql(&source);
            writer.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
            writer.execute_batch(&newer).unwrap();
            std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
            for name in [DATABASE, LOG] {
                std::fs::copy(source.join(name), folder.join(name)).unwrap();
            }
        } else {
            sql(&folder).execute_batch(&newer).unwrap();
        }
        let before = snapshot(&folder);
        assert_eq!(before.contains_key(&folder.join(LOG)), marks_in_log);
        let options = || StoreOptions::folder(&folder);
        let ways: [(&str, Error); 2] = [
            ("writing", Store::open(options()).unwrap_err()),
            ("reading", Store::open(options().read_only()).unwrap_err()),
        ];
        for (what, refused) in ways {
            let told = refused.to_string();
            let Error::SchemaTooNew { place, found, known: here } = refused else { panic!("{what}: {refused:?}") };
            assert_eq!((found, here), (known + 1, known), "{what}");
            assert!(place.ends_with(DATABASE) && told.contains(&place), "{what}: {told}");
            assert!(told.contains("newer Threadkeep") && told.contains("go back"), "{what}: {told}");
        }
        let found = Store::examine(options(), true).unwrap().findings;
        let [finding] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!(finding.code, "schema-newer");
        assert!(finding.way_out.contains("go back"), "{finding:?}");
        assert_unchanged(&folder, &before, way);
    }
}

/// Nothing is another file than it was. A reader's engine leaves the index of a log that it found, which every opening makes anew.
fn assert_unchanged(folder: &Path, before: &BTreeMap<PathBuf, Option<Vec<u8>>>, what: &str) {
    let mut after = snapshot(folder);
    let is_left_by_reader = |path: &Path, bytes: &Option<Vec<u8>>| {
        path.ends_with(INDEX) || path.ends_with(LOG) && bytes.as_ref().is_some_and(Vec::is_empty)
    };
    after.retain(|path, bytes| before.contains_key(path) || !is_left_by_reader(path, bytes));
    let names = |files: &BTreeMap<PathBuf, Option<Vec<u8>>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(before), "{what}: files were made or removed");
    assert!(after == *before, "{what}: a file was changed");
}

/// Writes a database as text: the tables, their rows, then what checks and indexes them.
fn dump(folder: &Path) -> String {
    let database = sql(folder);
    let header = |name: &str| -> i64 { database.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap() };
    let mut out = String::from("PRAGMA auto_vacuum = INCREMENTAL;\nPRAGMA foreign_keys = OFF;\nBEGIN;\n");
    for name in ["application_id", "user_version"] {
        writeln!(out, "PRAGMA {name} = {};", header(name)).unwrap();
    }
    for (kind, name, text) in schema(&database) {
        if kind == "table" {
            writeln!(out, "{text};").unwrap();
            rows_of(&database, &name, &mut out);
        }
    }
    for (_, _, text) in schema(&database).into_iter().filter(|(kind, _, _)| kind != "table") {
        writeln!(out, "{text};").unwrap();
    }
    out.push_str("COMMIT;\n");
    out
}

/// The kind, name and text of everything in a schema, in the order of its making.
fn schema(database: &Connection) -> Vec<(String, String, String)> {
    let mut statement =
        database.prepare("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn rows_of(database: &Connection, table: &str, out: &mut String) {
    let mut columns = database.prepare("SELECT 'quote(' || name || ')' FROM pragma_table_info(?1)").unwrap();
    let columns: Vec<String> = columns.query_map([table], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let query = format!("SELECT {} FROM {table} ORDER BY 1", columns.join(" || ',' || "));
    let mut rows = database.prepare(&query).unwrap();
    for row in rows.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        writeln!(out, "INSERT INTO {table} VALUES ({});", row.unwrap()).unwrap();
    }
}
