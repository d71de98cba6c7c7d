//! What newt's conversation store was held to, where no other test asks for it.
#![cfg(test)]

use std::path::Path;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Error, ItemQuery, Kind, ListQuery, NewItem, NewThread, Role, SearchQuery, StoreOptions, ThreadId, View,
};

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn create(store: &Store, name: &str) -> LiveThread {
    let new = NewThread { id: Some(ThreadId::new(name).unwrap()), ..NewThread::default() };
    store.workspace(Path::new("/w")).unwrap().create_now(new).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// A name that a model reached for and that is no tool is kept as it was called, with what was done about it; a change of either is
/// found by verifying, and a search finds both.
#[test]
fn a_reach_for_a_tool_that_is_none_is_kept_and_found() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = create(&store, "t");
    live.begin_turn(say("show me the tree")).unwrap();
    let called = NewItem::tool_call("c1", "tree_view", r#"{"path":"."}"#);
    let answer = NewItem::tool_result("c1", "no tool is called tree_view; did you mean list_dir?", true);
    live.append(vec![called, answer]).unwrap();
    let items = store.items(live.id(), ItemQuery::default()).unwrap().entries;
    assert_eq!(
        items.iter().map(|item| &item.kind).collect::<Vec<_>>(),
        [&Kind::Message, &Kind::ToolCall, &Kind::ToolResult]
    );
    let view: View = serde_json::from_slice(&items[1].content).unwrap();
    assert_eq!(view.to_text(), r#"tree_view {"path":"."}"#);
    let found = |text: &str| store.search(SearchQuery::new(text)).unwrap().threads.len();
    assert_eq!((found("tree_view"), found("\"did you mean list_dir\""), found("tree_walk")), (1, 1, 0));
    assert!(store.verify(live.id()).unwrap().is_intact());
    live.shutdown().unwrap();
    let id = live.id().clone();
    drop((live, store));
    let sql = rusqlite::Connection::open(temp.path().join("threadkeep.db")).unwrap();
    let triggers: Vec<String> = sql
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'items'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    triggers.iter().for_each(|name| sql.execute_batch(&format!("DROP TRIGGER {name}")).unwrap());
    let said = String::from_utf8(items[1].content.clone()).unwrap().replace("tree_view", "list_dir");
    assert_eq!(said.len() + 1, items[1].content.len(), "nothing was changed: this proves nothing");
    let changed =
        "UPDATE items SET content = CAST(?1 AS BLOB), size = length(?1), encoding = 0 WHERE kind = 'tool_call'";
    assert_eq!(sql.execute(changed, [said]).unwrap(), 1);
    drop(sql);
    let store = open(temp.path());
    assert!(!store.verify(&id).unwrap().is_intact(), "another name of the tool is not noticed");
}

#[test]
fn a_prefix_of_another_case_finds_nothing() {
    let store = Store::open(StoreOptions::memory()).unwrap();
    create(&store, "Abc-1");
    create(&store, "abd-2");
    assert_eq!(store.find("Abc").unwrap().as_str(), "Abc-1");
    assert!(matches!(store.find("ABC"), Err(Error::NotFound { .. })));
    assert!(matches!(store.find("a%"), Err(Error::NotFound { .. })));
    assert_eq!(store.find("ab").unwrap().as_str(), "abd-2", "letters of another case count as the same");
}

/// Whoever wrote little, and long ago, writes behind what everybody wrote since: no tick is lower than one that was there.
#[test]
fn a_writer_that_was_away_writes_behind_everybody() {
    let temp = tempfile::tempdir().unwrap();
    let (early, busy) = (open(temp.path()), open(temp.path()));
    let first = create(&early, "first");
    first.append(vec![say("early")]).unwrap();
    let others: Vec<LiveThread> = (0..5).map(|number| create(&busy, &format!("other{number}"))).collect();
    for _ in 0..20 {
        others.iter().for_each(|live| drop(live.append(vec![say("on")]).unwrap()));
    }
    let top = busy.list(ListQuery::default()).unwrap().entries[0].tick;
    first.append(vec![say("back again")]).unwrap();
    let listed = busy.list(ListQuery::default()).unwrap().entries;
    assert_eq!(listed[0].id.as_str(), "first", "it is not on top");
    assert!(listed[0].tick > top, "{} is not behind {top}", listed[0].tick);
    let ticks: Vec<i64> =
        early.items(first.id(), ItemQuery::default()).unwrap().entries.iter().map(|item| item.tick).collect();
    assert!(ticks.is_sorted() && ticks[1] > top, "{ticks:?}");
}
