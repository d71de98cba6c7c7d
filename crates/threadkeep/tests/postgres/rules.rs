//! What the database itself refuses, whoever writes to it: the same list of cases on both engines.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use postgres::Client;
use rusqlite::Connection;
use tempfile::TempDir;
use threadkeep::StoreOptions;
use threadkeep::blocking::Store;

use crate::migrated::{Migrated, said};
use crate::server::server;

const ORPHAN: &str = "an item needs a parent";
const SUCCESSOR: &str = "an item with a successor stays";
const APPEND_ONLY: &str = "items are append-only";
const BRANCH: &str = "a branch with items stays";
const RECEIPT: &str = "a receipt stays as it is";
const BEGINS: &str = "a branch stays where it begins";
// Words that both engines use.
const FOREIGN_KEY: &str = "foreign key constraint";
const CHECK: &str = "check constraint";
const UNIQUE: &str = "unique constraint";

/// A statement, and the words of its refusal; `None` when it must be accepted.
type Case = (&'static str, String, Option<&'static str>);

/// Branch 1 holds depths 0 to 2; branch 2 leaves it after 1 and holds 2 and 3; branch 3 leaves it after 0 and is empty;
/// branch 4 leaves branch 2 at its tip and is empty. The thread `fork` begins at the tip of branch 1.
fn rows() -> Vec<String> {
    vec![
        "INSERT INTO writers (key, id, machine, created_at) VALUES (1, x'01', 'm', 0)".to_owned(),
        "INSERT INTO workspaces (id, name, created_at) VALUES (x'01', 'w', 0)".to_owned(),
        thread("t", "x'01'", "NULL"),
        branch(1, "t", None, 0),
        item(1, 0),
        item(1, 1),
        item(1, 2),
        branch(2, "t", Some((1, 1)), 2),
        item(2, 2),
        item(2, 3),
        branch(3, "t", Some((1, 0)), 1),
        branch(4, "t", Some((2, 3)), 4),
        thread("fork", "x'01'", &key(1, 2).to_string()),
        "INSERT INTO blobs (digest, size, encoding, data) VALUES (x'0b', 1, 0, x'00')".to_owned(),
        prompt(1, 1),
        format!(
            "INSERT INTO artifacts (key, id, thread, number, prompt, root, kind, relation) VALUES ({}, x'02', 't', 1, x'01', x'01', 'commit', 'realizes')",
            key(1, 2)
        ),
        format!("INSERT INTO item_blobs (item, digest) VALUES ({}, x'0b')", key(1, 1)),
        receipt(1, "trashed", "'count'", "NULL"),
    ]
}

fn cases() -> Vec<Case> {
    let update = |change: &str| format!("UPDATE items SET {change} WHERE key = {}", key(1, 1));
    let delete = |branch, depth| format!("DELETE FROM items WHERE key = {}", key(branch, depth));
    let broken_fork = thread("u", "x'01'", &key(1, 9).to_string());
    vec![
        ("a receipt goes with an item", prompt(1, 9), Some(FOREIGN_KEY)),
        ("a receipt stays as it is", "UPDATE prompts SET active = x'02'".to_owned(), Some("a receipt stays as it is")),
        ("an item has one receipt", prompt(1, 1), Some(UNIQUE)),
        (
            "an artifact stays as it is",
            "UPDATE artifacts SET number = 2".to_owned(),
            Some("an artifact stays as it is"),
        ),
        ("the next item of a branch is accepted", item(1, 3), None),
        ("an item needs the one before it", item(1, 4), Some(ORPHAN)),
        ("an item needs its branch", item(9, 0), Some(ORPHAN)),
        ("an item needs its branch, at any depth", item(9, 1), Some(ORPHAN)),
        ("the first item of a branch follows the branch's parent", item(3, 1), None),
        ("the first item of a branch is no root", item(3, 0), Some(ORPHAN)),
        ("the first item of a branch skips nothing", item(3, 2), Some(ORPHAN)),
        ("a branch has one item at a depth", item(1, 1), Some(UNIQUE)),
        ("an item names its writer", item(1, 3).replace("'f', 1,", "'f', 2,"), Some(FOREIGN_KEY)),
        ("an inner item stays", delete(1, 1), Some(SUCCESSOR)),
        ("a root with a successor stays", delete(1, 0), Some(SUCCESSOR)),
        ("a tip that a branch hangs on stays", delete(2, 3), Some(FOREIGN_KEY)),
        ("a tip that a thread was forked from stays", delete(1, 2), Some(FOREIGN_KEY)),
        ("a blob in use stays", "DELETE FROM blobs".to_owned(), Some(FOREIGN_KEY)),
        ("an item keeps its place", update("key = key + 100"), Some(APPEND_ONLY)),
        ("an item keeps its id", update("id = x'ff'"), Some(APPEND_ONLY)),
        ("an item keeps its digest", update("digest = x'ff'"), Some(APPEND_ONLY)),
        ("an item keeps its hash", update("hash = x'ff'"), Some(APPEND_ONLY)),
        ("an item's hash is not even written again", update("hash = hash"), Some(APPEND_ONLY)),
        ("an item keeps its kind", update("kind = 'event'"), Some(APPEND_ONLY)),
        ("an item keeps its epoch", update("epoch = 9"), Some(APPEND_ONLY)),
        ("a branch keeps its number", "UPDATE branches SET key = 9 WHERE key = 3".to_owned(), Some(BEGINS)),
        ("a branch keeps its parent", "UPDATE branches SET parent = NULL WHERE key = 3".to_owned(), Some(BEGINS)),
        ("a branch's tip moves", "UPDATE branches SET tip = 9, cleared = 1 WHERE key = 3".to_owned(), None),
        ("redaction erases content and salt", update("content = NULL, salt = NULL"), None),
        ("a branch with items stays", "DELETE FROM branches WHERE key = 2".to_owned(), Some(BRANCH)),
        ("an empty branch can go", "DELETE FROM branches WHERE key = 3".to_owned(), None),
        ("a branch needs a parent that exists", branch(5, "t", Some((1, 9)), 10), Some(FOREIGN_KEY)),
        ("a branch begins right after its parent", branch(5, "t", Some((1, 1)), 1), Some(CHECK)),
        ("a branch skips nothing after its parent", branch(5, "t", Some((1, 1)), 3), Some(CHECK)),
        ("a root is at depth 0", branch(5, "t", None, 1), Some(CHECK)),
        ("a branch belongs to a thread", branch(5, "none", None, 0), Some(FOREIGN_KEY)),
        ("a branch's number fits into a key", branch(2_147_483_648, "t", None, 0), Some(CHECK)),
        ("a thread with branches stays", "DELETE FROM threads WHERE id = 't'".to_owned(), Some(FOREIGN_KEY)),
        ("a thread without branches can go", "DELETE FROM threads WHERE id = 'fork'".to_owned(), None),
        ("a thread belongs to a workspace", thread("u", "x'02'", "NULL"), Some(FOREIGN_KEY)),
        ("a fork begins at an item that exists", broken_fork, Some(FOREIGN_KEY)),
        ("a head has a hash", "UPDATE threads SET head = 1".to_owned(), Some(CHECK)),
        ("there are four shelves", "UPDATE threads SET shelf = 4".to_owned(), Some(CHECK)),
        ("a receipt stays as it is", "UPDATE retention_receipts SET rule = 'age'".to_owned(), Some(RECEIPT)),
        ("a receipt is of one thread", "UPDATE retention_receipts SET thread = 'fork'".to_owned(), Some(RECEIPT)),
        ("a receipt follows its workspace", "UPDATE retention_receipts SET workspace = x'02'".to_owned(), None),
        ("receipts have numbers of their own", receipt(1, "trashed", "'age'", "NULL"), Some(UNIQUE)),
        ("a receipt of a purge names its record", receipt(2, "purged", "'trash_grace'", "NULL"), Some(CHECK)),
        ("what is taken is taken by a rule", receipt(2, "trashed", "NULL", "NULL"), Some(CHECK)),
        ("what comes back comes by no rule", receipt(2, "restored", "NULL", "NULL"), None),
        ("a limit of nothing is none", rules_of("''", "NULL", "0", "NULL"), Some(CHECK)),
        ("a workspace sets its own limits", rules_of("'01'", "x'01'", "1", "NULL"), None),
        ("a workspace sets no limit of the store", rules_of("'01'", "x'01'", "1", "1"), Some(CHECK)),
        ("rules are of a workspace that exists", rules_of("'02'", "x'02'", "1", "NULL"), Some(FOREIGN_KEY)),
        ("a workspace with threads stays", "DELETE FROM workspaces".to_owned(), Some(FOREIGN_KEY)),
    ]
}

fn key(branch: i64, depth: i64) -> i64 {
    (branch << 32) + depth
}

fn thread(id: &str, workspace: &str, fork_item: &str) -> String {
    format!(
        "INSERT INTO threads (id, workspace, shelf, status, version, epoch, tick, updated, activity, head_is_tip, fork_item, items,
          branches, turns, created_at, updated_at, pinned, ephemeral, policy, extra)
         VALUES ('{id}', {workspace}, 0, 'idle', 1, 0, 1, 1, 1, 0, {fork_item}, 0, 0, 0, 0, 0, 0, 0, 'all', '')"
    )
}

fn branch(number: i64, thread: &str, parent: Option<(i64, i64)>, base: i64) -> String {
    let parent = parent.map_or("NULL".to_owned(), |(branch, depth)| key(branch, depth).to_string());
    format!(
        "INSERT INTO branches (key, thread, id, parent, base, tip, tip_hash, cleared, created_at)
         VALUES ({number}, '{thread}', x'{number:016x}', {parent}, {base}, {base}, x'00', 0, 0)"
    )
}

fn prompt(branch: i64, depth: i64) -> String {
    let key = key(branch, depth);
    format!(
        "INSERT INTO prompts (key, id, origin, parent, root, active, generation) VALUES ({key}, x'{key:016x}', 'operator', NULL, x'{key:016x}', x'01', 1)"
    )
}

fn item(branch: i64, depth: i64) -> String {
    let key = key(branch, depth);
    format!(
        "INSERT INTO items (key, id, kind, format, writer, epoch, tick, created_at, chain, salt, digest, hash, size, encoding, content)
         VALUES ({key}, x'{key:016x}', 'message', 'f', 1, 1, 1, 0, 1, x'00', x'00', x'00', 1, 0, x'00')"
    )
}

fn receipt(number: i64, step: &str, rule: &str, record: &str) -> String {
    format!(
        "INSERT INTO retention_receipts (number, run, thread, workspace, step, rule, items, bytes, epoch, tick, changed_at, record, made_at)
         VALUES ({number}, x'00', 't', x'01', '{step}', {rule}, 1, 1, 0, 1, 0, {record}, 0)"
    )
}

fn rules_of(place: &str, workspace: &str, max_count: &str, max_store_bytes: &str) -> String {
    format!(
        "INSERT INTO retention_rules (place, workspace, max_count, max_store_bytes, grace, archived, forked, deleted, set_at)
         VALUES ({place}, {workspace}, {max_count}, {max_store_bytes}, 0, 0, 0, 0, 0)"
    )
}

/// Runs the cases, each in a transaction that is undone, and reports all that differ from what was promised.
fn check_cases(mut run: impl FnMut(&str) -> Result<(), String>) {
    for sql in rows() {
        run(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let mut broken = Vec::new();
    for (promise, sql, refusal) in cases() {
        run("BEGIN").unwrap();
        let outcome = run(&sql);
        run("ROLLBACK").unwrap();
        let kept = match (&outcome, refusal) {
            (Ok(()), None) => true,
            (Err(said), Some(words)) => said.to_lowercase().contains(words),
            _ => false,
        };
        if !kept {
            broken.push(format!("{promise}: {outcome:?}\n{sql}"));
        }
    }
    assert!(broken.is_empty(), "{} promises are broken:\n\n{}", broken.len(), broken.join("\n\n"));
}

#[test]
fn sqlite_refuses_what_would_break_the_tree() {
    let store = sqlite();
    check_cases(|sql| store.connection.execute_batch(sql).map_err(|error| error.to_string()));
}

#[test]
fn postgresql_refuses_what_would_break_the_tree() {
    let Some(server) = server() else { return };
    let mut client = Migrated::new(&server).connect();
    check_cases(|sql| run_on(&mut client, sql));
}

/// Two transactions, each right by itself: the item goes and its successor comes. SQLite has one writer at a time.
#[test]
fn postgresql_keeps_the_tree_between_transactions() {
    let Some(server) = server() else { return };
    let schema = Migrated::new(&server);
    let [mut first, mut second, mut watch] = [schema.connect(), schema.connect(), schema.connect()];
    for sql in [&rows()[..6], &[branch(2, "t", None, 0)]].concat() {
        run_on(&mut first, &sql).unwrap();
    }
    let delete_tip = format!("DELETE FROM items WHERE key = {}", key(1, 1));
    let delete_branch = "DELETE FROM branches WHERE key = 2".to_owned();
    for (held, waiting, refusal) in [
        (item(1, 2), delete_tip.clone(), SUCCESSOR),
        (item(2, 0), delete_branch.clone(), BRANCH),
        (delete_tip, item(1, 2), ORPHAN),
        (delete_branch, item(2, 0), ORPHAN),
    ] {
        let outcome = race(&mut first, &mut second, &mut watch, &held, &waiting);
        assert!(matches!(&outcome, Err(said) if said.contains(refusal)), "{held}\n{waiting}\n{outcome:?}");
        // Back to where the next pair begins.
        for undo in [
            format!("DELETE FROM items WHERE key IN ({}, {})", key(1, 2), key(2, 0)),
            item(1, 1),
            branch(2, "t", None, 0),
        ] {
            drop(run_on(&mut first, &undo));
        }
    }
}

/// Runs `held`, waits until `waiting` waits for it in another transaction, commits, and gives the outcome of `waiting`.
fn race(first: &mut Client, second: &mut Client, watch: &mut Client, held: &str, waiting: &str) -> Result<(), String> {
    let second_id: i32 = second.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    run_on(first, "BEGIN").unwrap();
    run_on(first, held).unwrap();
    std::thread::scope(|scope| {
        let (done, outcome) = mpsc::channel();
        scope.spawn(move || done.send(run_on(second, waiting)).unwrap());
        let bound = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(early) = outcome.try_recv() {
                run_on(first, "COMMIT").unwrap();
                return early;
            }
            let waits = "SELECT cardinality(pg_blocking_pids($1)) > 0";
            if watch.query_one(waits, &[&second_id]).unwrap().get(0) {
                break;
            }
            assert!(Instant::now() < bound, "{waiting}: neither waits nor ends");
        }
        run_on(first, "COMMIT").unwrap();
        outcome.recv().unwrap()
    })
}

fn run_on(client: &mut Client, sql: &str) -> Result<(), String> {
    client.batch_execute(&sql.replace("x'", "'\\x")).map_err(|error| said(&error))
}

/// A store's database, opened behind the library's back.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    pub(crate) connection: Connection,
    _folder: TempDir,
}

/// Lets the library make a store and opens its file.
pub(crate) fn sqlite() -> SqliteStore {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(StoreOptions::folder(folder.path())).unwrap());
    let connection = Connection::open(folder.path().join("threadkeep.db")).unwrap();
    connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    SqliteStore { connection, _folder: folder }
}
