//! Where Cursor's databases keep its chats.
//!
//! The window's `state.vscdb` is two tables of keys and values. A chat is the value of `composerData:<chat>`, which lists its
//! messages, and each message is that of `bubbleId:<chat>:<message>`; the earliest chats hold their messages themselves, and those
//! before them stand under one key of `ItemTable`. The command line's `store.db` is a store of blobs that are named by their
//! hashes: the latest root lists the messages. No other key is looked at: credentials stand beside them.

use crate::codec::{Layout, Query, Tables};

/// Values are text, whatever their columns say. What is no JSON has nothing in it.
macro_rules! json_of {
    ($column:literal) => {
        concat!("CASE WHEN json_valid(CAST(", $column, " AS TEXT)) THEN CAST(", $column, " AS TEXT) ELSE '{}' END")
    };
}

/// The chat of the session.
const CHAT: &str = concat!("(SELECT ", json_of!("value"), " FROM cursorDiskKV WHERE key = 'composerData:' || ?1)");
/// All its messages: a range of keys, `;` being the letter behind `:`.
const OWN: &str = "b.key > 'bubbleId:' || ?1 || ':' AND b.key < 'bubbleId:' || ?1 || ';'";
/// A list of a chat that names one message twice takes it once, where it stands first.
const LISTED: &str = "SELECT min(h.key) AS place, h.value ->> '$.bubbleId' AS id FROM json_each(CHAT, \
     '$.fullConversationHeadersOnly') h WHERE h.type = 'object' AND h.value ->> '$.bubbleId' IS NOT NULL GROUP BY 2";
/// Whether the chat says itself what belongs to it.
const IS_LISTED: &str = "(EXISTS (SELECT 1 FROM json_each(CHAT, '$.fullConversationHeadersOnly') h WHERE h.type = 'object') \
     OR EXISTS (SELECT 1 FROM json_each(CHAT, '$.conversation') m WHERE m.type = 'object'))";
/// The key of the chats before 2025.
const OLD: &str = "workbench.panel.aichat.view.aichat.chatdata";
/// The largest root that is read, in bytes: some 490,000 messages.
const MAX_ROOT_BYTES: u32 = 16 << 20;
/// How many bytes of messages one root may lead to: it can name one message often.
const MAX_STORE_BYTES: u32 = 1 << 30;

pub(super) fn layout(tables: &Tables) -> Option<Layout> {
    if tables.has("blobs", &["id", "data"]) && tables.has("meta", &["key", "value"]) {
        return Some(store());
    }
    let chats = tables.has("cursorDiskKV", &["key", "value"]);
    let items = tables.has("ItemTable", &["key", "value"]);
    (chats || items).then(|| window(tables, chats, items))
}

fn window(tables: &Tables, chats: bool, items: bool) -> Layout {
    let heads = tables.has("composerHeaders", &["composerId", "value"]);
    let head = |column: &str| heads && tables.has("composerHeaders", &[column]);
    let mut sessions = Vec::new();
    let mut records = Vec::new();
    if chats {
        let of_head = |is_there: bool, what: &str| match is_there {
            true => format!("(SELECT max({what}) FROM composerHeaders WHERE composerId = substr(c.key, 14))"),
            false => "NULL".to_owned(),
        };
        let name = of_head(heads, concat!(json_of!("value"), " ->> '$.name'"));
        let archived = of_head(head("isArchived"), "isArchived");
        sessions
            .push(sessions_of_chats(&of_head(head("lastUpdatedAt"), "lastUpdatedAt"), &[name, archived].join(", ")));
        records.push(query(
            "chat",
            "SELECT CAST(value AS TEXT) AS \"json:data\" FROM cursorDiskKV WHERE key = 'composerData:' || ?1"
                .to_owned(),
        ));
    }
    if heads {
        let known = ["workspaceId", "createdAt", "lastUpdatedAt", "isArchived", "isSubagent"];
        let columns: Vec<&str> = known.into_iter().filter(|column| head(column)).collect();
        let columns = columns.iter().map(|column| format!("{column}, ")).collect::<String>();
        let sql =
            format!("SELECT {columns}CAST(value AS TEXT) AS \"json:data\" FROM composerHeaders WHERE composerId = ?1");
        records.push(query("head", sql));
    }
    if items {
        // Where such a list was before it had a table.
        let json = json_of!("i.value");
        records.push(query(
            "head",
            format!(
                "SELECT h.value AS \"json:data\" FROM ItemTable i, json_each({json}, '$.allComposers') h \
                 WHERE i.key = 'composer.composerHeaders' AND h.type = 'object' AND h.value ->> '$.composerId' = ?1"
            ),
        ));
    }
    if chats {
        records.extend(messages());
    }
    if items {
        sessions.push(sessions_of_tabs());
        records.extend(old_messages());
    }
    Layout { sessions: sessions.join(" UNION ALL "), records, shared: Vec::new() }
}

/// A message that is written again has a new row, so the last row and the bytes of all tell that a chat has changed, and what its
/// list says of it that it was named or put away. A chat that nothing was said in is none.
fn sessions_of_chats(updated: &str, said: &str) -> String {
    let json = json_of!("c.value");
    let range = "b.key > 'bubbleId:' || substr(c.key, 14) || ':' AND b.key < 'bubbleId:' || substr(c.key, 14) || ';'";
    let of_bubbles = |what: &str| format!("(SELECT {what} FROM cursorDiskKV b WHERE {range})");
    format!(
        "SELECT substr(c.key, 14), coalesce({updated}, {json} ->> '$.lastUpdatedAt', {json} ->> '$.createdAt'), c.rowid, \
         octet_length(c.value), {}, {}, {}, {said} FROM cursorDiskKV c \
         WHERE c.key > 'composerData:' AND c.key < 'composerData;' AND c.value IS NOT NULL \
         AND (EXISTS (SELECT 1 FROM cursorDiskKV b WHERE {range}) OR NOT json_valid(CAST(c.value AS TEXT)) \
         OR json_array_length({json}, '$.conversation') > 0 OR json_array_length({json}, '$.fullConversationHeadersOnly') > 0)",
        of_bubbles("count(*)"),
        of_bubbles("max(b.rowid)"),
        of_bubbles("sum(octet_length(b.value))")
    )
}

fn sessions_of_tabs() -> String {
    let json = json_of!("i.value");
    format!(
        "SELECT t.value ->> '$.tabId', t.value ->> '$.lastSendTime', NULL, octet_length(t.value), NULL, NULL, NULL, NULL, NULL \
         FROM ItemTable i, json_each({json}, '$.tabs') t WHERE i.key = '{OLD}' AND t.type = 'object' \
         AND json_array_length(t.value, '$.bubbles') > 0"
    )
}

fn messages() -> Vec<Query> {
    let whole = |sql: &str| {
        sql.replace("LISTED", LISTED).replace("IS_LIST", IS_LISTED).replace("OWN", OWN).replace("CHAT", CHAT)
    };
    // A message that is listed and gone is told by its absence.
    let listed = "SELECT l.id AS bubbleId, CAST(b.value AS TEXT) AS \"json:data\" FROM (LISTED) l \
         LEFT JOIN cursorDiskKV b ON b.key = 'bubbleId:' || ?1 || ':' || l.id ORDER BY l.place";
    let held = "SELECT m.value AS \"json:data\" FROM json_each(CHAT, '$.conversation') m WHERE m.type = 'object' ORDER BY m.key";
    // Of a chat that can't be read, the messages are told apart by their times.
    let unlisted = "SELECT substr(b.key, length('bubbleId:' || ?1 || ':') + 1) AS bubbleId, CAST(b.value AS TEXT) AS \"json:data\" \
         FROM cursorDiskKV b WHERE OWN AND b.value IS NOT NULL";
    let by_time = format!("{unlisted} AND NOT IS_LIST ORDER BY {} ->> '$.createdAt', b.rowid", json_of!("b.value"));
    let rest = format!(
        "{unlisted} AND IS_LIST AND substr(b.key, length('bubbleId:' || ?1 || ':') + 1) NOT IN (SELECT id FROM (LISTED)) ORDER BY b.rowid"
    );
    vec![
        query("bubbles", whole(listed)),
        query("conversation", whole(held)),
        query("bubbles", whole(&by_time)),
        query("unlisted", whole(&rest)),
    ]
}

fn old_messages() -> Vec<Query> {
    let json = json_of!("i.value");
    let tab = format!(
        "FROM ItemTable i, json_each({json}, '$.tabs') tMORE WHERE i.key = '{OLD}' AND t.type = 'object' AND t.value ->> '$.tabId' = ?1"
    );
    let head = "SELECT t.value ->> '$.chatTitle' AS title, t.value ->> '$.lastSendTime' AS lastSendTime ";
    let said = "SELECT m.value AS \"json:data\" ";
    vec![
        query("tab", format!("{head}{}", tab.replace("MORE", ""))),
        query(
            "chatdata",
            format!(
                "{said}{} AND m.type = 'object' ORDER BY m.key",
                tab.replace("MORE", ", json_each(t.value, '$.bubbles') m")
            ),
        ),
    ]
}

/// A root begins with the hashes of the messages that the model is given, each as field 1 of a protocol buffer: the bytes 0a 20
/// and 32 more. It is cut in halves until each piece is one of them, so that its bytes are copied once for each doubling of
/// their number.
fn store() -> Layout {
    const META: &str = "(SELECT CASE WHEN json_valid(value) THEN value WHEN json_valid(CAST(unhex(value) AS TEXT)) \
         THEN CAST(unhex(value) AS TEXT) ELSE '{}' END FROM meta WHERE key = '0')";
    let sessions = format!("SELECT m ->> '$.agentId', m ->> '$.createdAt', m FROM (SELECT {META} AS m)");
    let meta = format!("SELECT m AS \"json:data\" FROM (SELECT {META} AS m) WHERE m ->> '$.agentId' = ?1");
    let messages = format!(
        "WITH RECURSIVE half(no) AS (VALUES (0), (1)), \
         root(data) AS (SELECT data FROM blobs WHERE id = {META} ->> '$.latestRootBlobId' AND {META} ->> '$.agentId' = ?1 \
             AND typeof(data) = 'blob' \
             AND length(data) BETWEEN 34 AND {MAX_ROOT_BYTES}), \
         piece(place, count, data) AS (SELECT 0, length(data) / 34, data FROM root UNION ALL \
             SELECT place + iif(half.no, count / 2, 0), iif(half.no, count - count / 2, count / 2), \
                 iif(half.no, substr(data, count / 2 * 34 + 1, (count - count / 2) * 34), substr(data, 1, count / 2 * 34)) \
             FROM piece, half WHERE count > 1), \
         named(place, id) AS (SELECT place, CASE substr(data, 1, 2) WHEN x'0a20' THEN lower(hex(substr(data, 3, 32))) END \
             FROM piece WHERE count = 1), \
         listed(place, id) AS (SELECT place, id FROM named WHERE place < coalesce((SELECT min(place) FROM named WHERE id IS NULL), 1 << 40)), \
         sized(place, id, upto) AS (SELECT l.place, l.id, sum(coalesce(octet_length(b.data), 0)) OVER (ORDER BY l.place) \
             FROM listed l LEFT JOIN blobs b ON b.id = l.id) \
         SELECT s.id AS blob, CAST(b.data AS TEXT) AS \"json:data\" FROM sized s \
         LEFT JOIN blobs b ON b.id = s.id AND s.upto <= {MAX_STORE_BYTES} ORDER BY s.place"
    );
    Layout { sessions, records: vec![query("meta", meta), query("message", messages)], shared: Vec::new() }
}

fn query(name: &'static str, sql: String) -> Query {
    Query { name, sql, within: Vec::new() }
}
