//! What somebody does to a store who does not want it to be seen.

use threadkeep::chain::{Link, item_hash};
use threadkeep::{Hash, ItemId, ThreadId, Timestamp, Uuid, WriterId};

use super::rows::Rows;

/// Numbers that follow from a seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// What a verification without seals must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It is found by the chain and its witnesses.
    Found,
    /// It can't be found, and must not be called valid.
    NotProvable,
}

type Tamper = fn(&mut dyn Rows, &mut Chance) -> String;

/// Every kind: its name, what is to be found without an anchor, and how it is done. With one all are found.
pub(crate) const KINDS: [(&str, Alone, Tamper); 28] = [
    ("edit content", Alone::Found, edit_content),
    ("edit a field", Alone::Found, edit_field),
    ("edit a tick or an epoch", Alone::Found, edit_order),
    ("edit a digest or a salt", Alone::Found, edit_digest),
    ("edit a hash", Alone::Found, edit_hash),
    ("insert", Alone::Found, insert),
    ("swap", Alone::Found, swap),
    ("drop the first", Alone::Found, drop_first),
    ("drop one in the middle", Alone::Found, drop_middle),
    ("drop the last, without care", Alone::Found, drop_last_carelessly),
    ("drop the last", Alone::NotProvable, drop_last),
    ("drop a branch", Alone::NotProvable, drop_branch),
    ("remove a thread", Alone::NotProvable, remove_thread),
    ("hide a thread as one that is being purged", Alone::NotProvable, hide_thread),
    ("hide a thread as a stub", Alone::NotProvable, hide_as_stub),
    ("compute the chain anew", Alone::NotProvable, rechain),
    ("cite what is not there, computed anew", Alone::Found, cite),
    ("lower an item's tick or epoch, computed anew", Alone::Found, lower_anew),
    ("splice from another thread", Alone::Found, splice),
    ("splice from another thread, computed anew", Alone::NotProvable, splice_anew),
    ("lower a thread's tick", Alone::NotProvable, lower_tick),
    ("lower a thread's epoch", Alone::NotProvable, lower_epoch),
    ("delete a receipt's row", Alone::Found, delete_receipt),
    ("alter a receipt's pointer", Alone::Found, alter_receipt),
    ("swap two receipts", Alone::Found, swap_receipts),
    ("plant a receipt", Alone::Found, plant_receipt),
    ("delete an artifact's row", Alone::Found, delete_artifact),
    ("renumber an artifact", Alone::Found, renumber_artifact),
];

/// The threads that nothing else stands on.
const FREE: [&str; 2] = ["other", "lone"];
const ALL: [&str; 4] = ["main", "other", "lone", "fork"];

fn keys(rows: &mut dyn Rows, thread: &str) -> Vec<i64> {
    let sql = format!(
        "SELECT i.key FROM items i JOIN branches b ON b.key = i.key >> 32 WHERE b.thread = '{thread}' ORDER BY i.key"
    );
    rows.read(&sql).iter().map(|row| row[0].parse().unwrap()).collect()
}

fn any_item(rows: &mut dyn Rows, chance: &mut Chance) -> (String, i64) {
    let thread = *chance.pick(&ALL);
    let keys = keys(rows, thread);
    (thread.to_owned(), *chance.pick(&keys))
}

fn edit_content(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = any_item(rows, chance);
    let content = rows.bytes("7b7d");
    rows.run(&format!("UPDATE items SET content = {content}, encoding = 0, size = 2 WHERE key = {key}"));
    thread
}

fn edit_field(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = any_item(rows, chance);
    let id = rows.bytes("00112233445566778899aabbccddeeff");
    let fields = [
        "role = 'system'".to_owned(),
        "kind = 'event'".to_owned(),
        "format = 'codex'".to_owned(),
        "turn = coalesce(turn, 0) + 7".to_owned(),
        "created_at = created_at - 1".to_owned(),
        format!("id = {id}"),
        format!("sources = {id}"),
        "chain = 2".to_owned(),
        "writer = 77".to_owned(),
    ];
    rows.run(&format!("UPDATE items SET {} WHERE key = {key}", chance.pick(&fields)));
    thread
}

fn edit_order(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = any_item(rows, chance);
    let fields = ["tick = tick + 1", "tick = tick - 1", "epoch = epoch + 1", "epoch = epoch - 1"];
    rows.run(&format!("UPDATE items SET {} WHERE key = {key}", chance.pick(&fields)));
    thread
}

fn edit_digest(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = any_item(rows, chance);
    let (salt, digest) = (rows.bytes(&"11".repeat(16)), rows.bytes(&"11".repeat(32)));
    let fields = [format!("salt = {salt}"), "salt = NULL".to_owned(), format!("digest = {digest}")];
    rows.run(&format!("UPDATE items SET {} WHERE key = {key}", chance.pick(&fields)));
    thread
}

fn edit_hash(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = any_item(rows, chance);
    let hash = rows.bytes(&"11".repeat(32));
    rows.run(&format!("UPDATE items SET hash = {hash} WHERE key = {key}"));
    thread
}

fn insert(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    shift(rows, key, 1);
    let id = rows.bytes("00112233445566778899aabbccddeeff");
    rows.run(&format!(
        "INSERT INTO items SELECT {key}, {id}, turn, kind, role, format, writer, epoch, tick, created_at, source_id, sources, chain,
         salt, digest, hash, size, encoding, content FROM items WHERE key = {key} - 1"
    ));
    settle(rows, &thread);
    thread
}

fn swap(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    rows.run(&format!(
        "UPDATE items SET key = -1 WHERE key = {key}; UPDATE items SET key = {key} WHERE key = {key} - 1;
         UPDATE items SET key = {key} - 1 WHERE key = -1"
    ));
    settle(rows, &thread);
    thread
}

fn drop_first(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let thread = (*chance.pick(&FREE)).to_owned();
    let first = keys(rows, &thread)[0];
    remove(rows, first);
    // Sometimes the others are moved up.
    if chance.below(2) == 0 {
        shift(rows, first + 1, -1);
    }
    settle(rows, &thread);
    thread
}

fn drop_middle(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    if Some(&key) == keys(rows, &thread).last() {
        return drop_first(rows, chance);
    }
    remove(rows, key);
    if chance.below(2) == 0 {
        shift(rows, key + 1, -1);
    }
    settle(rows, &thread);
    thread
}

fn drop_last_carelessly(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    cut(rows, &thread, key);
    thread
}

fn drop_last(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    cut(rows, &thread, key);
    settle(rows, &thread);
    thread
}

/// The branch that nobody stands on, with all that is known of it.
fn drop_branch(rows: &mut dyn Rows, _: &mut Chance) -> String {
    let branch = rows.number("SELECT max(key) FROM branches WHERE thread = 'main'");
    rows.run(&format!(
        "DELETE FROM verified WHERE branch = {branch}; DELETE FROM items WHERE key >> 32 = {branch};
        DELETE FROM branches WHERE key = {branch}"
    ));
    settle(rows, "main");
    "main".to_owned()
}

fn remove_thread(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let thread = *chance.pick(&["other", "lone", "fork", "empty"]);
    rows.run(&format!(
        "DELETE FROM items WHERE key >> 32 IN (SELECT key FROM branches WHERE thread = '{thread}');
         DELETE FROM branches WHERE thread = '{thread}'; DELETE FROM turns WHERE thread = '{thread}';
         DELETE FROM claims WHERE thread = '{thread}'; DELETE FROM threads WHERE id = '{thread}'"
    ));
    thread.to_owned()
}

fn hide_thread(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let thread = *chance.pick(&FREE);
    rows.run(&format!("UPDATE threads SET shelf = 3, status = 'purging' WHERE id = '{thread}'"));
    thread.to_owned()
}

fn hide_as_stub(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let thread = *chance.pick(&FREE);
    rows.run(&format!("UPDATE threads SET shelf = 3, status = 'completed' WHERE id = '{thread}'"));
    thread.to_owned()
}

fn rechain(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 0);
    rows.run(&format!("UPDATE items SET created_at = created_at - 60000 WHERE key = {key}"));
    compute_anew(rows, &thread, key);
    settle(rows, &thread);
    thread
}

fn cite(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    let unknown = rows.bytes("00112233445566778899aabbccddeeff");
    let later = format!("(SELECT id FROM items WHERE key = {key})");
    let source = if chance.below(2) == 0 { unknown } else { later };
    rows.run(&format!("UPDATE items SET sources = {source} WHERE key = {key}"));
    compute_anew(rows, &thread, key);
    settle(rows, &thread);
    thread
}

fn lower_anew(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (thread, key) = free_item(rows, chance, 1);
    let before = format!("FROM items WHERE key = {key} - 1");
    let fields = [format!("tick = (SELECT tick {before}) - 1"), format!("epoch = (SELECT epoch {before}) - 1")];
    rows.run(&format!("UPDATE items SET {} WHERE key = {key}", chance.pick(&fields)));
    compute_anew(rows, &thread, key);
    settle(rows, &thread);
    thread
}

fn splice(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let (from, to) = (keys(rows, "other"), keys(rows, "lone"));
    let first = 1 + chance.below(from.len() - 1);
    for (at, key) in from[first..].iter().enumerate() {
        let there = to.last().unwrap() + 1 + i64::try_from(at).unwrap();
        rows.run(&format!("UPDATE items SET key = {there} WHERE key = {key}"));
    }
    settle(rows, "other");
    settle(rows, "lone");
    "lone".to_owned()
}

fn splice_anew(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let next = keys(rows, "lone").last().unwrap() + 1;
    splice(rows, chance);
    // As if the thread's own writer had gone on.
    let last = format!("FROM items WHERE key = {next} - 1");
    rows.run(&format!("UPDATE items SET tick = (SELECT tick {last}), epoch = (SELECT epoch {last}) WHERE key >= {next} AND key >> 32 = {next} >> 32"));
    compute_anew(rows, "lone", next);
    settle(rows, "lone");
    "other".to_owned()
}

fn lower_tick(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    lower(rows, chance, "tick = tick - 1, updated = updated - 1")
}

fn lower_epoch(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    lower(rows, chance, "epoch = epoch - 1")
}

fn lower(rows: &mut dyn Rows, chance: &mut Chance, what: &str) -> String {
    let thread = *chance.pick(&FREE);
    rows.run(&format!("UPDATE threads SET {what} WHERE id = '{thread}'"));
    thread.to_owned()
}

fn keys_of(rows: &mut dyn Rows, table: &str) -> Vec<i64> {
    rows.read(&format!("SELECT key FROM {table} ORDER BY key")).iter().map(|row| row[0].parse().unwrap()).collect()
}

/// The newest one every other time.
fn delete_row(rows: &mut dyn Rows, chance: &mut Chance, table: &str) -> String {
    let keys = keys_of(rows, table);
    let key = if chance.below(2) == 0 { *keys.last().unwrap() } else { *chance.pick(&keys) };
    rows.run(&format!("DELETE FROM {table} WHERE key = {key}"));
    "asked".to_owned()
}

fn delete_receipt(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    delete_row(rows, chance, "prompts")
}

fn delete_artifact(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    delete_row(rows, chance, "artifacts")
}

/// Each pointer still leads to a prompt that is there.
fn alter_receipt(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let key = keys_of(rows, "prompts")[3];
    let other = "(SELECT id FROM prompts WHERE generation = 2)";
    let fields = [
        format!("root = {other}"),
        format!("active = {other}"),
        format!("parent = {other}"),
        "origin = 'harness_retry'".to_owned(),
        "generation = 3".to_owned(),
    ];
    rows.run(&format!("UPDATE prompts SET {} WHERE key = {key}", chance.pick(&fields)));
    "asked".to_owned()
}

fn swap_receipts(rows: &mut dyn Rows, _: &mut Chance) -> String {
    let keys = keys_of(rows, "prompts");
    let (one, other) = (keys[1], keys[2]);
    rows.run(&format!(
        "UPDATE prompts SET key = -1 WHERE key = {one}; UPDATE prompts SET key = {one} WHERE key = {other};
         UPDATE prompts SET key = {other} WHERE key = -1"
    ));
    "asked".to_owned()
}

/// For an item that is no receipt, or for none at all.
fn plant_receipt(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let last = *keys(rows, "asked").last().unwrap();
    let key = last + i64::from(chance.below(2) == 0);
    let id = rows.bytes("00112233445566778899aabbccddeeff");
    rows.run(&format!(
        "INSERT INTO prompts (key, id, origin, parent, root, active, generation) VALUES ({key}, {id}, 'operator', NULL, {id}, {id}, 1)"
    ));
    "asked".to_owned()
}

fn renumber_artifact(rows: &mut dyn Rows, chance: &mut Chance) -> String {
    let key = *chance.pick(&keys_of(rows, "artifacts"));
    rows.run(&format!("UPDATE artifacts SET number = number + 4 WHERE key = {key}"));
    "asked".to_owned()
}

/// An item of a thread that nothing stands on, from a depth on.
fn free_item(rows: &mut dyn Rows, chance: &mut Chance, from: usize) -> (String, i64) {
    let thread = *chance.pick(&FREE);
    let keys = keys(rows, thread);
    (thread.to_owned(), *chance.pick(&keys[from..]))
}

fn remove(rows: &mut dyn Rows, key: i64) {
    rows.run(&format!("DELETE FROM items WHERE key = {key}"));
}

/// Moves an item and all behind it on its branch.
fn shift(rows: &mut dyn Rows, key: i64, by: i64) {
    let end = (key >> 32 << 32) + 4_294_967_295;
    rows.run(&format!(
        "UPDATE items SET key = -(key + {by}) WHERE key BETWEEN {key} AND {end}; UPDATE items SET key = -key WHERE key < 0"
    ));
}

/// Cuts a thread of one branch off before an item.
fn cut(rows: &mut dyn Rows, thread: &str, key: i64) {
    for gone in keys(rows, thread).into_iter().filter(|other| *other >= key) {
        remove(rows, gone);
    }
}

/// Makes everything that the store has on record about a thread agree with the items that are there.
fn settle(rows: &mut dyn Rows, thread: &str) {
    let of_branch = "SELECT max(i.key) FROM items i WHERE i.key >> 32 = branches.key";
    let own = format!("FROM items i JOIN branches b ON b.key = i.key >> 32 WHERE b.thread = '{thread}'");
    let last = format!("SELECT max(i.key) {own}");
    rows.run(&format!(
        "UPDATE branches SET tip = ({of_branch}) & 4294967295,
           tip_hash = (SELECT hash FROM items WHERE key = ({of_branch})) WHERE thread = '{thread}';
         UPDATE threads SET items = (SELECT count(*) {own}), branches = (SELECT count(*) FROM branches WHERE thread = '{thread}'),
           head = ({last}), head_hash = (SELECT hash FROM items WHERE key = ({last})), head_is_tip = 1 WHERE id = '{thread}'"
    ));
}

/// Computes the hashes of a branch anew, from an item on.
fn compute_anew(rows: &mut dyn Rows, thread: &str, from: i64) {
    let name = ThreadId::new(thread).unwrap();
    let parent = format!("SELECT {} FROM items WHERE key = {from} - 1", rows.hex("hash"));
    let mut before = match rows.read(&parent).pop() {
        Some(row) if from & 4_294_967_295 > 0 => row[0].parse().unwrap(),
        _ => threadkeep::chain::genesis(&name),
    };
    let sql = format!(
        "SELECT i.key, {}, i.turn, {}, i.epoch, i.tick, i.created_at, {}, {} FROM items i JOIN writers w ON w.key = i.writer
         WHERE i.key BETWEEN {from} AND {} ORDER BY i.key",
        rows.hex("i.id"),
        rows.hex("w.id"),
        rows.hex("i.digest"),
        rows.hex("i.sources"),
        (from >> 32 << 32) + 4_294_967_295,
    );
    for row in rows.read(&sql) {
        let id = |text: &str| Uuid::parse_str(text).unwrap();
        let digest: Hash = row[7].parse().unwrap();
        let sources: Vec<ItemId> = Some(row[8].as_str())
            .filter(|hex| !hex.is_empty())
            .map(|hex| ItemId::from_uuid(id(hex)))
            .into_iter()
            .collect();
        let link = Link {
            thread: &name,
            parent: before,
            id: ItemId::from_uuid(id(&row[1])),
            turn: row[2].parse().ok(),
            writer: WriterId::from_uuid(id(&row[3])),
            epoch: row[4].parse().unwrap(),
            tick: row[5].parse().unwrap(),
            created_at: Timestamp(row[6].parse().unwrap()),
            digest,
            sources: &sources,
        };
        before = item_hash(&link);
        let bytes = rows.bytes(&before.to_string());
        rows.run(&format!("UPDATE items SET hash = {bytes} WHERE key = {}", row[0]));
    }
}
