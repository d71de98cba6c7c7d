//! Threads of other agents that end in the middle: their calls are known by their own formats.

use std::path::Path;
use std::sync::Arc;

use threadkeep::blocking::Store;
use threadkeep::{Item, ItemQuery, Kind, StoreOptions, ThreadId, View};

use super::{SESSION, given_back, import, record, write};

const ROLLOUT: &str = "rollout-2026-03-14T09-00-00-019ce0bb-aaaa-7000-8000-000000000001.jsonl";

/// A store that reads every format that is known.
fn store() -> Store {
    let options =
        threadkeep_agents::codecs().into_iter().fold(StoreOptions::memory(), |options, codec| options.read_with(codec));
    Store::open(options).unwrap()
}

fn path_of(store: &Store, thread: &ThreadId) -> Vec<Item> {
    store.items(thread, ItemQuery::default()).unwrap().entries
}

fn is_synthetic(item: &Item) -> bool {
    item.kind == Kind::ToolResult && serde_json::from_slice::<View>(&item.content).is_ok_and(|view| view.synthetic)
}

/// Imports, repairs twice, and says which items of the path are synthetic.
fn repaired(store: &Store, file: &Path, thread: &str) -> Vec<u32> {
    import(store, file);
    let thread = ThreadId::new(thread).unwrap();
    let before = path_of(store, &thread);
    let live = store.resume(&thread, false).unwrap();
    let repair = live.repair_turns().unwrap();
    assert!(!live.repair_turns().unwrap().is_needed());
    live.shutdown().unwrap();
    let at = repair.from;
    assert_eq!(store.items(&thread, ItemQuery { at, ..ItemQuery::default() }).unwrap().entries, before);
    assert!(store.verify(&thread).unwrap().is_intact());
    assert!(given_back(store, file) == std::fs::read(file).unwrap(), "the imported file is not given back");
    assert_eq!(import(store, file).items.imported, 0, "the next import changed something");
    let synthetic: Vec<u32> =
        path_of(store, &thread).iter().filter(|item| is_synthetic(item)).map(|item| item.depth).collect();
    assert_eq!(synthetic.len(), repair.closed.len());
    synthetic
}

fn codex(ordinal: usize, payload: &str) -> String {
    format!(
        r#"{{"timestamp":"2026-03-14T09:00:{ordinal:02}.000Z","ordinal":{ordinal},"type":"response_item","payload":{payload}}}"#
    )
}

#[test]
fn calls_of_codex_are_closed_and_hosted_ones_need_no_result() {
    let (folder, store) = (tempfile::tempdir().unwrap(), store());
    let file = folder.path().join(ROLLOUT);
    let meta = r#"{"timestamp":"2026-03-14T09:00:00.000Z","ordinal":0,"type":"session_meta","payload":{"id":"019ce0bb-aaaa-7000-8000-000000000001","timestamp":"2026-03-14T09:00:00.000Z","cwd":"/home/dev/webshop","cli_version":"0.171.0","source":"cli"}}"#;
    let message = |text: &str| {
        format!(r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{text}"}}]}}"#)
    };
    let call =
        |id: &str| format!(r#"{{"type":"function_call","name":"exec_command","arguments":"{{}}","call_id":"{id}"}}"#);
    let lines = [
        meta.to_owned(),
        codex(1, &message("go")),
        codex(2, &call("c1")),
        codex(3, &call("c2")),
        codex(4, r#"{"type":"function_call_output","call_id":"c2","output":"ok"}"#),
        codex(
            5,
            r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"cart"}}"#,
        ),
        codex(6, &message("and now?")),
        codex(7, r#"{"type":"custom_tool_call","name":"apply_patch","input":"*** Begin Patch","call_id":"c3"}"#),
    ];
    write(&file, &lines, "\n");
    // The first one stands behind the result of the call beside it, before what the model did then.
    assert_eq!(repaired(&store, &file, "019ce0bb-aaaa-7000-8000-000000000001"), [5, 9]);
}

#[test]
fn calls_of_claude_code_are_closed() {
    let (folder, store) = (tempfile::tempdir().unwrap(), store());
    let file = folder.path().join(format!("{SESSION}.jsonl"));
    let assistant = |uuid: &str, parent: &str, id: &str| {
        let said = record(uuid, Some(parent), "assistant", "SAID");
        let block = format!(r#"[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{"command":"ls"}}}}]"#);
        let replaced = said.replace(r#"[{"type":"text","text":"SAID"}]"#, &block).replace(r#""SAID""#, &block);
        assert!(replaced.contains("tool_use"), "{replaced}");
        replaced
    };
    let lines = [record("u1", None, "user", "go"), assistant("a1", "u1", "toolu_1"), assistant("a2", "a1", "toolu_2")];
    write(&file, &lines, "\n");
    assert_eq!(repaired(&store, &file, SESSION), [3, 4]);
    let items = path_of(&store, &ThreadId::new(SESSION).unwrap());
    let view: View = serde_json::from_slice(&items[3].content).unwrap();
    assert!(view.to_text().contains("Bash"), "{view:?}");
}

/// Without a reader of their formats calls have no ids, and nobody guesses.
#[test]
fn what_the_store_can_not_read_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::memory()).unwrap();
    let file = folder.path().join(ROLLOUT);
    let lines = [
        codex(1, r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}"#),
        codex(2, r#"{"type":"function_call","name":"exec_command","arguments":"{}","call_id":"c1"}"#),
    ];
    write(&file, &lines, "\n");
    import(&store, &file);
    let thread = store.latest().unwrap().unwrap();
    let planned = store.plan_turn_repair(&thread).unwrap();
    assert_eq!((planned.is_needed(), planned.without_id), (false, 1), "{planned:?}");
    let reading = Store::open(StoreOptions::memory().read_with(Arc::new(threadkeep_agents::codex::Codex))).unwrap();
    import(&reading, &file);
    assert_eq!(reading.plan_turn_repair(&thread).unwrap().closed.len(), 1);
}
