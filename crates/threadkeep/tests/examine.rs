//! What an examination says of a store in a folder, in whatever state it is; and that it leaves it so.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a broken promise is reported by a panic")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;
use threadkeep::blocking::Store;
use threadkeep::{Error, Examination, NewItem, NewThread, Role, Severity, StoreOptions};

fn examine(folder: &Path) -> Examination {
    Store::examine(StoreOptions::folder(folder), false).unwrap()
}

fn said(found: &Examination) -> Vec<(Severity, &str)> {
    found.findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

fn fact(found: &Examination, name: &str) -> serde_json::Value {
    found.facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("{name}: {found:?}")).value.clone()
}

/// A store with a thread, closed.
fn store() -> (TempDir, PathBuf) {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(StoreOptions::folder(&folder)).unwrap();
    let live = store.workspace("/w".as_ref()).unwrap().create(NewThread::default()).unwrap();
    let items = (0..200).map(|number| NewItem::message(Role::User, format!("{number} {}", "x".repeat(300))));
    live.append(items.collect()).unwrap();
    live.shutdown().unwrap();
    (temp, folder)
}

/// Changes the database as no store does.
fn tamper(folder: &Path, sql: &str) {
    let connection = Connection::open(folder.join("threadkeep.db")).unwrap();
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Every file with its bytes and its rights; of the two files that any reader makes anew, whether they hold anything.
fn state(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut state = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let is_of_readers =
            path.to_string_lossy().ends_with("-shm") || (path.to_string_lossy().ends_with("-wal") && meta.len() == 0);
        if meta.is_dir() {
            state.extend(self::state(&path));
        } else if !is_of_readers {
            let bytes = if meta.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            state.insert(path, (meta.permissions().mode(), bytes));
        }
    }
    state
}

#[test]
fn a_sound_store_is_found_sound_and_left_as_it_is() {
    let (_temp, folder) = store();
    let before = state(&folder);
    for full in [false, true] {
        let found = Store::examine(StoreOptions::folder(&folder), full).unwrap();
        assert_eq!(said(&found), [], "{found:#?}");
        assert_eq!((fact(&found, "engine"), fact(&found, "journal")), ("sqlite".into(), "wal".into()));
        assert_eq!(fact(&found, "schema"), fact(&found, "schema_known"));
    }
    assert!(state(&folder) == before, "an examination changed the store");
    let store = Store::open(StoreOptions::folder(&folder)).unwrap();
    let live = store.workspace("/w".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
    let found = examine(&folder);
    assert_eq!((said(&found), fact(&found, "claims_live")), (vec![], 1.into()), "while it is written: {found:#?}");
    live.append(vec![NewItem::message(Role::User, "goes on")]).unwrap();
}

#[test]
fn a_store_in_memory_is_not_examined() {
    let refused = Store::examine(StoreOptions::memory(), false).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { operation: "examine" }), "{refused:?}");
}

#[test]
fn what_is_no_store_is_said_to_be_none() {
    let temp = TempDir::new().unwrap();
    let nowhere = temp.path().join("nowhere");
    assert_eq!(said(&examine(&nowhere)), [(Severity::Error, "no-store")]);
    assert!(!nowhere.exists());
    let file = temp.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(said(&examine(&file)), [(Severity::Error, "no-store")]);
    let empty = temp.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(said(&examine(&empty)), [(Severity::Error, "no-store")]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    fs::write(empty.join("threadkeep.db"), "something else entirely").unwrap();
    fs::set_permissions(empty.join("threadkeep.db"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(said(&examine(&empty)), [(Severity::Error, "foreign-store")]);
}

/// A step that this version does not know, behind all that it knows.
const NEWER: &str = "INSERT INTO schema_migrations SELECT max(number) + 1, 'future', 'x', 0 FROM schema_migrations";

#[test]
fn schemas_that_are_not_ours_are_told_apart() {
    for (sql, severity, code) in [
        (NEWER, Severity::Error, "schema-newer"),
        ("ALTER TABLE schema_migrations RENAME TO steps; PRAGMA user_version = 9999", Severity::Error, "schema-newer"),
        ("PRAGMA user_version = 9999", Severity::Error, "damaged"),
        ("INSERT INTO schema_migrations VALUES (9999, 'x', 'x', 0)", Severity::Error, "damaged"),
        ("ALTER TABLE schema_migrations RENAME COLUMN checksum TO sum", Severity::Error, "damaged"),
        ("DROP TABLE schema_migrations", Severity::Error, "half-migrated"),
        ("UPDATE schema_migrations SET checksum = 'x'", Severity::Error, "damaged"),
        ("DELETE FROM schema_migrations", Severity::Error, "half-migrated"),
        ("PRAGMA user_version = 0", Severity::Warning, "header"),
        ("PRAGMA application_id = 7", Severity::Error, "foreign-store"),
    ] {
        let (_temp, folder) = store();
        tamper(&folder, sql);
        let before = state(&folder);
        let found = examine(&folder);
        assert_eq!(said(&found), [(severity, code)], "{sql}: {found:#?}");
        assert!(state(&folder) == before, "{sql}");
    }
}

#[test]
fn drift_is_named_part_by_part() {
    let writable = "PRAGMA writable_schema = ON;";
    for (sql, severity, code, place) in [
        ("DROP INDEX threads_updated", Severity::Error, "schema-missing", "index threads.threads_updated"),
        (
            "DROP TRIGGER items_are_append_only",
            Severity::Error,
            "schema-missing",
            "trigger items.items_are_append_only",
        ),
        ("DROP TABLE segments", Severity::Error, "schema-missing", "table segments"),
        ("ALTER TABLE threads DROP COLUMN persona", Severity::Error, "schema-missing", "column threads.persona"),
        ("ALTER TABLE threads ADD COLUMN colour TEXT", Severity::Warning, "schema-extra", "column threads.colour"),
        ("CREATE INDEX more ON threads (model)", Severity::Note, "schema-extra", "index threads.more"),
        ("CREATE TABLE other (x INTEGER)", Severity::Note, "schema-extra", "table other"),
        (
            "UPDATE sqlite_master SET sql = replace(sql, 'ordinal     INTEGER', 'ordinal     TEXT') WHERE name = 'turns'",
            Severity::Error,
            "schema-differs",
            "column turns.ordinal",
        ),
        (
            "UPDATE sqlite_master SET sql = replace(sql, 'REFERENCES writers (key)', '') WHERE name = 'items'",
            Severity::Error,
            "schema-missing",
            "foreign key items.writer",
        ),
        (
            "UPDATE sqlite_master SET sql = replace(sql, 'CHECK (shelf BETWEEN 0 AND 3)', '') WHERE name = 'threads'",
            Severity::Error,
            "schema-differs",
            "table threads",
        ),
    ] {
        let (_temp, folder) = store();
        tamper(&folder, &if sql.contains("sqlite_master") { format!("{writable} {sql}") } else { sql.to_owned() });
        let found = examine(&folder);
        let named = found.findings.iter().find(|it| it.place == place).unwrap_or_else(|| panic!("{sql}: {found:#?}"));
        assert_eq!((named.severity, named.code), (severity, code), "{sql}: {found:#?}");
        let others = found.findings.iter().filter(|it| it.place != place && it.code.starts_with("schema")).count();
        assert_eq!(others, 0, "{sql}: {found:#?}");
    }
}

#[test]
fn damage_is_named_also_where_the_database_can_hardly_be_read() {
    let (_temp, folder) = store();
    let file = folder.join("threadkeep.db");
    let whole = fs::read(&file).unwrap();
    let page = 4096;
    assert!(whole.len() > 12 * page, "{} bytes", whole.len());
    for from in (page..whole.len()).step_by(page) {
        let mut bytes = whole.clone();
        bytes[from..from + page].fill(0xa5);
        fs::write(&file, &bytes).unwrap();
        let found = examine(&folder);
        // A page that nothing uses may hold anything.
        let is_used = Connection::open(&file)
            .and_then(|it| it.query_row("PRAGMA quick_check", [], |row| row.get::<_, String>(0)))
            .map_or(true, |line| line != "ok");
        assert_eq!(found.worst() == Some(Severity::Error), is_used, "page {}: {found:#?}", from / page + 1);
        assert!(fs::read(&file).unwrap() == bytes, "an examination changed a damaged store");
    }
    for length in [0, 50, 100, page, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let found = examine(&folder);
        assert_eq!(found.worst(), Some(Severity::Error), "cut to {length}: {found:#?}");
    }
}

#[test]
fn loose_rights_links_and_what_was_left_are_named() {
    let (_temp, folder) = store();
    for (path, mode) in [("", 0o750), ("threadkeep.db", 0o644), ("holders", 0o755)] {
        fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir_all(folder.join("backups/.threadkeep-left")).unwrap();
    symlink("/elsewhere", folder.join("link")).unwrap();
    let found = examine(&folder);
    let at = |code: &str| -> Vec<&str> {
        let those = found.findings.iter().filter(|it| it.code == code);
        those.map(|it| it.place.strip_prefix(folder.to_str().unwrap()).unwrap()).collect()
    };
    let mut open = at("open-to-others");
    open.sort_unstable();
    open.retain(|path| *path != "/backups");
    assert_eq!(open, ["", "/holders", "/threadkeep.db"]);
    assert_eq!((at("leftover"), at("link")), (vec!["/backups/.threadkeep-left"], vec!["/link"]));
    assert_eq!(found.worst(), Some(Severity::Warning));
    assert!(folder.join("backups/.threadkeep-left").exists());
}

#[test]
fn a_dead_holder_is_named_and_its_file_is_left() {
    let (_temp, folder) = store();
    let id = "018f0000-0000-7000-8000-000000000000";
    let claim = format!(
        "INSERT INTO claims (thread, epoch, holder, machine, hostname, pid, label, boot, namespace, start_ticks, acquired_at,
           heartbeat_at) SELECT id, epoch, '{id}', 'm', 'h', 1, 'dead one', '', '', 0, 0, 0 FROM threads"
    );
    tamper(&folder, &claim);
    let file = folder.join("holders").join(id);
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let found = examine(&folder);
    assert_eq!(said(&found), [(Severity::Note, "dead-claim")], "{found:#?}");
    assert!(found.findings[0].what.contains("dead one"));
    assert_eq!((fact(&found, "claims_live"), fact(&found, "claims_dead")), (0.into(), 1.into()));
    assert!(file.exists(), "an examination removes nothing");
}

#[test]
fn rows_that_refer_to_nothing_are_found_when_all_is_looked_at() {
    let (_temp, folder) = store();
    tamper(
        &folder,
        "PRAGMA foreign_keys = OFF; INSERT INTO turns VALUES ('gone', 0, 'x', NULL, 0, NULL, NULL, 0, NULL)",
    );
    assert_eq!(examine(&folder).worst(), None);
    let found = Store::examine(StoreOptions::folder(&folder), true).unwrap();
    assert_eq!(said(&found), [(Severity::Error, "damaged")], "{found:#?}");
    assert_eq!(found.findings[0].place, "table turns");
}
