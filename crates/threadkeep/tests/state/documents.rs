//! Documents and roadmaps in the files: damage, copies, repairs, redactions.

use std::path::Path;

use threadkeep::blocking::Store;
use threadkeep::{
    CopyReport, Document, DocumentInfo, DocumentQuery, Error, NewDocument, NewRoadmap, NewThread, NodePatch,
    NodeStatus, RedactOptions, Roadmap, RoadmapId, RoadmapLink, RoadmapQuery, RoadmapUpdate, Rules, StoreOptions,
    ThreadId,
};

use super::carried::damage_pages_of;
use super::damaged::assert_names;
use super::masked::{SECRET, because, holding};
use super::timed::StandingClock;
use super::{create, id, open, sql, workspace};

const TREE: &str =
    "# notes\n[[subtask]]\nid = \"a\"\ninstruction = \"x\"\n\n[[subtask]]\nid = \"b\"\ninstruction = \"y\"\n";

fn roadmap_id(text: &str) -> RoadmapId {
    RoadmapId::new(text).unwrap()
}

fn put(store: &Store, thread: &str, name: &str, text: &str) -> DocumentInfo {
    store.put_document(&id(thread), NewDocument::new(name, text)).unwrap()
}

/// Documents with all versions, the roadmap and the link, as one sees them.
type State = (Vec<DocumentInfo>, Vec<Vec<(DocumentInfo, Option<String>)>>, Option<RoadmapLink>);

fn state_of(store: &Store, thread: &ThreadId) -> State {
    let current = store.documents(thread, DocumentQuery::default()).unwrap().entries;
    let versions = |name: &str| {
        let versions = store.document_history(thread, name, DocumentQuery::default()).unwrap().entries;
        let load = |info: DocumentInfo| {
            let text = store.document(thread, name, Some(info.version)).unwrap().map(|found: Document| found.text);
            (info, text)
        };
        versions.into_iter().map(load).collect()
    };
    let all = ["gone", "notes", "pin", "scratchpad"].map(versions).to_vec();
    (current, all, store.roadmap_link(thread).unwrap())
}

/// A thread with documents of several versions, and a roadmap that it works on.
fn fill(store: &Store) {
    create(store, "t").shutdown().unwrap();
    for number in 0..40 {
        put(store, "t", "notes", &format!("[{number},\"{}\"]", "a line that repeats ".repeat(500)));
    }
    put(store, "t", "scratchpad", r#"{"where":"here"}"#);
    put(store, "t", "pin", r#"{"model":"m"}"#);
    put(store, "t", "gone", "1");
    store.delete_document(&id("t"), "gone", None).unwrap();
    workspace(store).create_roadmap(NewRoadmap::new(roadmap_id("way"), TREE)).unwrap();
    store.link_roadmap(&id("t"), &roadmap_id("way"), Some("b".into())).unwrap();
}

fn memory() -> Store {
    Store::open(StoreOptions::memory()).unwrap()
}

fn copy(from: &Store, to: &Store) -> CopyReport {
    let report = to.copy_from(from, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    report
}

fn text_of(store: &Store, roadmap: &str) -> String {
    store.roadmap(&roadmap_id(roadmap)).unwrap().map(|found: Roadmap| found.text).unwrap()
}

#[test]
fn a_copy_carries_documents_with_their_history_and_roadmaps_with_their_links() {
    let ((_, source), (clock, target)) = (StandingClock::store(), StandingClock::store());
    fill(&source);
    // No thread leads to this one.
    source.workspace(Path::new("/alone")).unwrap().create_roadmap(NewRoadmap::new(roadmap_id("alone"), TREE)).unwrap();
    assert_eq!(copy(&source, &target).roadmaps, 2);
    let (mut expected, here) = (state_of(&source, &id("t")), state_of(&target, &id("t")));
    expected.2.as_mut().unwrap().workspace = here.2.as_ref().unwrap().workspace;
    assert_eq!(here, expected);
    assert_eq!((text_of(&target, "way"), text_of(&target, "alone")), (TREE.to_owned(), TREE.to_owned()));
    let again = copy(&source, &target);
    assert_eq!((again.unchanged, again.roadmaps), (1, 0), "a second copy carries what is there");

    // What changes there later is carried: a version, a trimmed history, a link, a node.
    put(&source, "t", "notes", "\"last\"");
    source.trim_document(&id("t"), "notes", 3).unwrap();
    source.link_roadmap(&id("t"), &roadmap_id("way"), Some("a".into())).unwrap();
    let done = NodePatch { status: Some(NodeStatus::Done), ..NodePatch::default() };
    source.set_roadmap_node(&roadmap_id("way"), "b", done).unwrap();
    let later = copy(&source, &target);
    assert_eq!((later.updated, later.roadmaps), (1, 1));
    let (mut expected, here) = (state_of(&source, &id("t")), state_of(&target, &id("t")));
    expected.2.as_mut().unwrap().workspace = here.2.as_ref().unwrap().workspace;
    assert_eq!(here, expected);
    assert_eq!(text_of(&target, "way"), text_of(&source, "way"));

    // It goes on here, and what is later here stays.
    clock.at(1);
    let info = put(&target, "t", "notes", "\"here\"");
    assert_eq!(info.version, 42);
    assert!(info.tick > expected.0.iter().map(|info| info.tick).max().unwrap(), "a later version has the lower tick");
    target.update_roadmap(&roadmap_id("way"), RoadmapUpdate::new(format!("{TREE}# here"))).unwrap();
    copy(&source, &target);
    assert!(text_of(&target, "way").ends_with("# here"));
    assert_eq!(target.document(&id("t"), "notes", None).unwrap().unwrap().text, "\"here\"");
}

#[test]
fn rules_reach_every_version_names_and_roadmaps_and_leave_no_byte_in_the_files() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").shutdown().unwrap();
    put(&store, "t", "notes", &format!(r#"{{"password":"{SECRET}","n":1}}"#));
    put(&store, "t", "notes", r#"{"n":2}"#);
    put(&store, "t", "scratchpad", &format!(r#"{{"{SECRET}":"{SECRET}","kept":"x"}}"#));
    put(&store, "t", "pin", &format!(r#"{{"model":"{SECRET}"}}"#));
    put(&store, "t", "plan", &format!(r#"{{"steps":[{{"description":"use {SECRET}","status":"todo"}}]}}"#));
    put(&store, "t", "gone", &format!("\"{SECRET}\""));
    store.delete_document(&id("t"), "gone", None).unwrap();
    put(&store, "t", &format!("of {SECRET}"), "1");
    let tree = format!(
        "goal = \"{SECRET}\" # not {SECRET}\n[[subtask]]\nid = \"{SECRET}\"\ninstruction = \"\"\nresult = \"{SECRET}\"\n"
    );
    let new = NewRoadmap { title: Some(SECRET.to_owned()), ..NewRoadmap::new(roadmap_id("way"), tree) };
    workspace(&store).create_roadmap(new).unwrap();
    workspace(&store).create_roadmap(NewRoadmap::new(roadmap_id("clean"), TREE)).unwrap();
    store.link_roadmap(&id("t"), &roadmap_id("way"), Some(SECRET.to_owned())).unwrap();

    let rules = || Rules::literal(SECRET).unwrap();
    let dry = store.redact_matching(None, rules(), because(""), false, |_, _| {}).unwrap();
    assert_eq!(dry.beside[&id("t")], ["document", "document name"].map(str::to_owned).into());
    assert_eq!(dry.roadmaps, 1);
    assert!(!holding(temp.path()).is_empty(), "this proves nothing");
    let report = store.redact_matching(None, rules(), because("it was pasted"), true, |_, _| {}).unwrap();
    assert_eq!((&report.beside, report.roadmaps, report.problems.len()), (&dry.beside, 1, 0));
    assert_eq!(holding(temp.path()), Vec::<std::path::PathBuf>::new());

    let text = |name: &str, version| store.document(&id("t"), name, version).unwrap().unwrap().text;
    assert_eq!(text("notes", None), r#"{"n":2}"#);
    let first: serde_json::Value = serde_json::from_str(&text("notes", Some(1))).unwrap();
    assert_eq!(first["n"], 1, "the rest of the document is gone");
    assert_eq!(store.scratchpad(&id("t")).unwrap().unwrap()["kept"], "x");
    assert!(store.preferences(&id("t")).unwrap().unwrap().model.is_some_and(|model| !model.contains(SECRET)));
    assert!(store.plan(&id("t")).unwrap().unwrap().steps[0].description.starts_with("use "));
    let names = store.documents(&id("t"), DocumentQuery::default()).unwrap().entries;
    assert!(
        names.iter().any(|info| info.name.starts_with("of ")) && names.iter().all(|info| !info.name.contains(SECRET))
    );
    let way = store.roadmap(&roadmap_id("way")).unwrap().unwrap();
    assert_eq!((way.info.version, way.tree.nodes.len()), (2, 1));
    let link = store.roadmap_link(&id("t")).unwrap().unwrap();
    assert_eq!(link.node.as_ref(), Some(&way.tree.nodes[0].id), "the link lost its node");
    assert_eq!(text_of(&store, "clean"), TREE);
    let again = store.redact_matching(None, rules(), because("once more"), true, |_, _| {}).unwrap();
    assert_eq!((again.beside.len(), again.roadmaps), (0, 0), "{again:?}");
    assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
}

#[test]
fn what_is_screened_at_writing_is_never_stored() {
    let temp = tempfile::tempdir().unwrap();
    let options = StoreOptions::folder(temp.path()).mask_at_write(Rules::literal(SECRET).unwrap());
    let store = Store::open(options).unwrap();
    let live = create(&store, "t");
    put(&store, "t", "notes", &format!(r#"["{SECRET}"]"#));
    live.patch_document(NewDocument::new("notes", format!(r#"{{"a":"{SECRET}"}}"#))).unwrap();
    workspace(&store).create_roadmap(NewRoadmap::new(roadmap_id("way"), format!("goal = \"{SECRET}\""))).unwrap();
    store.update_roadmap(&roadmap_id("way"), RoadmapUpdate::new(format!("{TREE}# {SECRET}"))).unwrap();
    let result = threadkeep::Change::Set(SECRET.to_owned());
    store.set_roadmap_node(&roadmap_id("way"), "a", NodePatch { result, ..NodePatch::default() }).unwrap();
    assert_eq!(store.roadmap(&roadmap_id("way")).unwrap().unwrap().info.version, 3);
    store.sync().unwrap();
    assert_eq!(holding(temp.path()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_copy_brings_back_nothing_that_was_masked() {
    let (source, target) = (memory(), memory());
    create(&source, "t").shutdown().unwrap();
    put(&source, "t", "notes", "[\"hunter2\"]");
    put(&source, "t", "notes", "[]");
    workspace(&source).create_roadmap(NewRoadmap::new(roadmap_id("way"), "goal = \"hunter2\"")).unwrap();
    copy(&source, &target);
    let grounds = RedactOptions { reason: "a secret".into(), ..RedactOptions::default() };
    target.redact_matching(None, Rules::literal("hunter2").unwrap(), grounds, true, |_, _| {}).unwrap();
    copy(&source, &target);
    assert!(!target.document(&id("t"), "notes", Some(1)).unwrap().unwrap().text.contains("hunter2"));
    assert!(!text_of(&target, "way").contains("hunter2"));
}

#[test]
fn a_document_that_can_not_be_read_is_named_and_hides_nothing_else() {
    for (damage, words) in
        [("data = CAST('{' AS BLOB)", "hash"), ("encoding = 77", "unknown encoding"), ("size = 5", "")]
    {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        create(&store, "t").shutdown().unwrap();
        for name in ["bad", "good"] {
            put(&store, "t", name, "1");
            put(&store, "t", name, r#"{"step":2}"#);
        }
        let bad = format!("UPDATE document_versions SET {damage} WHERE name = 'bad' AND is_current = 1");
        sql(temp.path()).execute_batch(&bad).unwrap();
        let error = store.document(&id("t"), "bad", None).unwrap_err();
        assert_names(&error, "document `bad` of thread t");
        assert!(error.to_string().contains(words), "{error}");
        assert_names(&store.patch_document(&id("t"), NewDocument::new("bad", "{}")).unwrap_err(), "document `bad`");
        assert_eq!(store.document(&id("t"), "bad", Some(1)).unwrap().unwrap().text, "1");
        assert_eq!(store.document(&id("t"), "good", None).unwrap().unwrap().text, r#"{"step":2}"#);
        assert_eq!(store.documents(&id("t"), DocumentQuery::default()).unwrap().entries.len(), 2);
        // The way out is to write another version, or to take it away.
        assert_eq!(put(&store, "t", "bad", "3").version, 3);
        assert!(store.delete_document(&id("t"), "bad", None).unwrap());
    }
}

/// The pin is a guard: nothing rides along in it, whoever has put it there.
#[test]
fn a_pin_with_a_foreign_field_is_an_error_that_names_it() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").shutdown().unwrap();
    for text in [r#"{"model":"m","api_key":"x"}"#, r#"{"endpoint":"x"}"#, r#"{"sandbox":null}"#, r#"{"caveats":[]}"#] {
        put(&store, "t", "pin", r#"{"model":"m"}"#);
        let digest = threadkeep::Hash::of(text.as_bytes()).0;
        let smuggled =
            "UPDATE document_versions SET digest = ?1, data = ?2, size = ?3, encoding = 0 WHERE is_current = 1";
        let size = i64::try_from(text.len()).unwrap();
        sql(temp.path()).execute(smuggled, (&digest[..], text.as_bytes(), size)).unwrap();
        let key = text
            .split('"')
            .filter(|part| part.contains(char::is_alphabetic))
            .find(|key| *key != "model" && *key != "m")
            .unwrap();
        for error in [
            store.preferences(&id("t")).map(drop).unwrap_err(),
            store.document(&id("t"), "pin", None).map(drop).unwrap_err(),
            store.patch_document(&id("t"), NewDocument::new("pin", "{}")).map(drop).unwrap_err(),
        ] {
            assert_names(&error, "document `pin` of thread t");
            assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        }
    }
    put(&store, "t", "pin", "{}");
    assert!(store.preferences(&id("t")).unwrap().is_some());
}

#[test]
fn a_roadmap_that_can_not_be_read_is_named_listed_and_hides_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    create(&store, "t").shutdown().unwrap();
    for name in ["bad", "good"] {
        workspace(&store).create_roadmap(NewRoadmap::new(roadmap_id(name), TREE)).unwrap();
    }
    sql(temp.path()).execute_batch("UPDATE roadmaps SET tree = 'goal = [' WHERE id = 'bad'").unwrap();
    let bad = roadmap_id("bad");
    assert_names(&store.roadmap(&bad).unwrap_err(), "roadmap `bad` of workspace");
    assert_names(&store.link_roadmap(&id("t"), &bad, Some("a".into())).unwrap_err(), "roadmap `bad`");
    assert_names(&store.set_roadmap_node(&bad, "a", NodePatch::default()).unwrap_err(), "roadmap `bad`");
    let listed = store.roadmaps(RoadmapQuery::default()).unwrap().entries;
    let seen: Vec<_> = listed.iter().map(|info| (info.id.as_str(), info.nodes.all(), info.damage.is_some())).collect();
    assert_eq!(seen, [("good", 2, false), ("bad", 0, true)]);
    assert_eq!(text_of(&store, "good"), TREE);
    store.update_roadmap(&bad, RoadmapUpdate::new(TREE)).unwrap();
    assert_eq!(text_of(&store, "bad"), TREE);
}

#[test]
fn a_repair_and_a_backup_keep_documents_and_roadmaps() {
    for table in ["turns", "threads_updated", "document_versions", "roadmaps", "roadmap_links"] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        fill(&store);
        let mut before = state_of(&store, &id("t"));
        drop(store);
        damage_pages_of(temp.path(), table);
        let options = || StoreOptions::folder(temp.path());
        let plan = Store::plan_repair(options(), true).unwrap();
        let fingerprint =
            plan.fingerprint.unwrap_or_else(|| panic!("{table}: no plan: {:?}", plan.examination.findings));
        Store::repair(options(), &fingerprint).unwrap();
        let store = open(temp.path());
        let here = state_of(&store, &id("t"));
        match table {
            "document_versions" => {
                assert!(here.0.len() <= before.0.len());
                (before.0, before.1) = (here.0.clone(), here.1.clone());
            }
            "roadmaps" | "roadmap_links" => before.2 = None,
            _ => {}
        }
        assert_eq!(here, before, "{table}");
        let info = put(&store, "t", "notes", "1");
        assert!(before.0.iter().all(|earlier| earlier.tick < info.tick), "{table}");
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty(), "{table}");
    }
}

#[test]
fn a_purge_that_others_share_items_of_takes_documents_and_links_all_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    fill(&store);
    store.fork(&id("t"), None, NewThread { id: Some(id("fork")), ..NewThread::default() }).unwrap();
    store.delete(&id("t")).unwrap();
    assert!(store.purge(&id("t")).unwrap().stub);
    for (table, left) in [("document_versions", 0), ("roadmap_links", 0), ("roadmaps", 1)] {
        let query = format!("SELECT count(*) FROM {table}");
        let found: i64 = sql(temp.path()).query_row(&query, [], |row| row.get(0)).unwrap();
        assert_eq!(found, left, "{table}");
    }
    let refused = store.put_document(&id("t"), NewDocument::new("x", "1"));
    assert!(matches!(refused, Err(Error::NotFound { .. })));
    assert!(matches!(store.link_roadmap(&id("t"), &roadmap_id("way"), None), Err(Error::NotFound { .. })));
}
