//! Receipts in the files: tampering and damage of every kind, copies, rollouts, repairs, and secrets on their way in.

use std::path::Path;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Artifact, ArtifactKind, ArtifactQuery, ArtifactRelation, Error, NewArtifact, NewPrompt, Prompt, PromptId,
    PromptQuery, Rules, StoreOptions, StoredPrompt, Uuid,
};

use super::damaged::assert_names;
use super::{create, id, open, say, sql};

/// The triggers that keep rows as they are are in the way of nobody who knows them.
const FREE: &str = "PRAGMA foreign_keys = OFF; DROP TRIGGER IF EXISTS prompts_stay_as_they_are;
    DROP TRIGGER IF EXISTS artifacts_stay_as_they_are;";

fn prompt(live: &LiveThread, new: NewPrompt) -> StoredPrompt {
    live.begin_prompt(new).unwrap()
}

fn commit(live: &LiveThread, of: PromptId, locator: &str) -> Artifact {
    let new = NewArtifact::new(of, ArtifactKind::Commit, ArtifactRelation::Realizes);
    live.add_artifact(NewArtifact { locator: Some(locator.into()), ..new }).unwrap().artifact
}

/// A task of three prompts, another one, and two artifacts, with an item between them.
fn fill(store: &Store) -> [PromptId; 4] {
    let live = create(store, "t");
    let task = prompt(&live, NewPrompt::task("task")).receipt.id;
    commit(&live, task, "one");
    let more = prompt(&live, NewPrompt::continuing(task, "more")).receipt.id;
    live.append(vec![say("an answer")]).unwrap();
    let last = prompt(&live, NewPrompt::retry(more, "more")).receipt.id;
    commit(&live, last, "two");
    let other = prompt(&live, NewPrompt::task("other")).receipt.id;
    live.shutdown().unwrap();
    [task, more, last, other]
}

fn prompts(store: &Store) -> Vec<Prompt> {
    store.prompts(&id("t"), PromptQuery::default()).unwrap().entries
}

fn artifacts(store: &Store) -> Vec<Artifact> {
    store.artifacts(&id("t"), ArtifactQuery::default()).unwrap().entries
}

fn reasons(store: &Store) -> Vec<String> {
    store.verify(&id("t")).unwrap().invalid.into_iter().map(|found| found.reason).collect()
}

fn blob(id: PromptId) -> String {
    format!("x'{}'", id.item().as_uuid().simple())
}

#[test]
fn every_kind_of_tampering_with_the_index_is_noticed() {
    let nothing = "00000000000000000000000000000001";
    let damages = |[task, more, last, other]: [PromptId; 4]| {
        let (task, more, last, other) = (blob(task), blob(more), blob(last), blob(other));
        vec![
            (
                "the newest receipt deleted",
                "DELETE FROM prompts WHERE key = (SELECT max(key) FROM prompts)".to_owned(),
                "no row",
            ),
            ("one in the middle deleted", format!("DELETE FROM prompts WHERE id = {more}"), "no row"),
            ("all of them", "DELETE FROM prompts; DELETE FROM artifacts".to_owned(), "no row"),
            ("another root", format!("UPDATE prompts SET root = {other} WHERE id = {last}"), "other things"),
            ("another task in force", format!("UPDATE prompts SET active = {last} WHERE id = {last}"), "other things"),
            (
                "another parent",
                format!("UPDATE prompts SET parent = {task}, generation = 2 WHERE id = {last}"),
                "other things",
            ),
            (
                "a parent that follows it",
                format!("UPDATE prompts SET parent = {last} WHERE id = {more}"),
                "other things",
            ),
            (
                "a parent that is nowhere",
                format!("UPDATE prompts SET parent = x'{nothing}' WHERE id = {more}"),
                "other things",
            ),
            ("another origin", format!("UPDATE prompts SET origin = 'operator' WHERE id = {last}"), "other things"),
            ("an unknown origin", format!("UPDATE prompts SET origin = 'web' WHERE id = {last}"), "other things"),
            (
                "two of them in each other's place",
                format!(
                    "UPDATE prompts SET key = -key WHERE id IN ({more}, {other});
                     UPDATE prompts SET key = -(SELECT key FROM prompts b WHERE b.id = {other}) WHERE id = {more};
                     UPDATE prompts SET key = (SELECT key FROM items WHERE id = {more}) WHERE id = {other}"
                ),
                "other things",
            ),
            (
                "one planted for an item that is none",
                "INSERT INTO prompts SELECT key, id, 'operator', NULL, id, id, 1 FROM items WHERE format = 'threadkeep/1'"
                    .to_owned(),
                "it is none",
            ),
            (
                "one planted behind everything",
                format!(
                    "INSERT INTO prompts SELECT max(key) + 1, x'{nothing}', 'operator', NULL, x'{nothing}', x'{nothing}', 1 FROM items"
                ),
                "no item",
            ),
            ("a row that can't be read", format!("UPDATE prompts SET active = x'00' WHERE id = {last}"), "16 bytes"),
            ("an artifact deleted", "DELETE FROM artifacts WHERE number = 2".to_owned(), "no row"),
            ("an artifact renumbered", "UPDATE artifacts SET number = 3 WHERE number = 2".to_owned(), "other things"),
            ("artifacts in another order", "UPDATE artifacts SET number = 3 - number".to_owned(), "other things"),
            ("an artifact of another prompt", format!("UPDATE artifacts SET prompt = {task}"), "other things"),
            (
                "an artifact of another task",
                format!("UPDATE artifacts SET root = {other} WHERE number = 2"),
                "other things",
            ),
            ("an artifact of another kind", "UPDATE artifacts SET kind = 'decision'".to_owned(), "other things"),
            ("an artifact of another thread", "UPDATE artifacts SET thread = 'u'".to_owned(), "other things"),
        ]
    };
    let kinds = damages([PromptId::from_uuid(Uuid::nil()); 4]).len();
    for kind in 0..kinds {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        let ids = fill(&store);
        assert_eq!(reasons(&store), Vec::<String>::new());
        let (what, damage, words) = damages(ids).swap_remove(kind);
        sql(temp.path()).execute_batch(&format!("{FREE} {damage}")).unwrap();
        let found = reasons(&store);
        assert!(found.iter().any(|reason| reason.contains(words)), "{what}: {found:?}");
        let report = store.verify_all(|_| {}).unwrap();
        assert!(report.invalid.contains_key(&id("t")), "{what}");
    }
}

#[test]
fn what_a_row_says_wrongly_is_not_believed_nor_built_upon() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let [task, more, last, other] = fill(&store);
    let altered = format!("UPDATE prompts SET active = {} WHERE id = {}", blob(last), blob(last));
    sql(temp.path()).execute_batch(&format!("{FREE} {altered}")).unwrap();
    let name = last.to_string();
    assert_names(&store.prompt(&id("t"), last).unwrap_err(), &name);
    assert_names(&store.prompt_lineage(&id("t"), last).unwrap_err(), &name);
    let live = store.resume(&id("t"), false).unwrap();
    assert_names(&live.begin_prompt(NewPrompt::continuing(last, "x")).unwrap_err(), &name);
    let artifact = NewArtifact::new(last, ArtifactKind::Decision, ArtifactRelation::Updates);
    assert_names(&live.add_artifact(artifact).unwrap_err(), &name);
    // It hides nothing else, and what does not build on it can be written.
    let listed: Vec<_> = prompts(&store).into_iter().map(|it| (it.receipt.id, it.damage.is_some())).collect();
    assert_eq!(listed, [(task, false), (more, false), (last, true), (other, false)]);
    assert_eq!(artifacts(&store).len(), 2);
    prompt(&live, NewPrompt::continuing(more, "past it"));
    live.shutdown().unwrap();
    assert_eq!(reasons(&store).len(), 1, "only the row itself is wrong");
}

#[test]
fn a_link_that_is_missing_or_leads_round_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let [task, more, last, _] = fill(&store);
    sql(temp.path()).execute_batch(&format!("DELETE FROM prompts WHERE id = {}", blob(more))).unwrap();
    let error = store.prompt_lineage(&id("t"), last).unwrap_err();
    assert_names(&error, &last.to_string());
    assert!(error.to_string().contains(&more.to_string()), "{error}");
    assert!(matches!(store.prompt(&id("t"), more), Err(Error::NotFound { .. })));
    assert_eq!(store.prompt_lineage(&id("t"), task).unwrap().len(), 1);
    // Another prompt's task is told all the same.
    assert_eq!(store.prompt_context(&id("t"), None).unwrap().unwrap().submitted.text, "other");
}

#[test]
fn content_that_was_changed_is_not_believed() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let [task, ..] = fill(&store);
    let content: Vec<u8> = {
        let item = store.item(&id("t"), store.prompt(&id("t"), task).unwrap().receipt.address).unwrap();
        String::from_utf8(item.content).unwrap().replace("\"text\":\"task\"", "\"text\":\"evil\"").into_bytes()
    };
    let database = sql(temp.path());
    let triggers: Vec<String> = {
        let mut found =
            database.prepare("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'items'").unwrap();
        found.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    triggers.iter().for_each(|name| database.execute_batch(&format!("DROP TRIGGER {name}")).unwrap());
    let item = task.item();
    let args = (&content, i64::try_from(content.len()).unwrap(), &item.as_bytes()[..]);
    database.execute("UPDATE items SET content = ?1, size = ?2, encoding = 0 WHERE id = ?3", args).unwrap();
    assert_names(&store.prompt(&id("t"), task).unwrap_err(), &task.to_string());
    assert!(prompts(&store)[0].damage.is_some());
    let live = store.resume(&id("t"), false).unwrap();
    assert_names(&live.begin_prompt(NewPrompt::continuing(task, "x")).unwrap_err(), &task.to_string());
}

#[test]
fn a_copy_has_the_receipts_and_verifies() {
    let (source, target) = (Store::open(StoreOptions::memory()).unwrap(), Store::open(StoreOptions::memory()).unwrap());
    let [.., other] = fill(&source);
    let at = source.prompt(&id("t"), other).unwrap().receipt.address;
    source.fork(&id("t"), Some(at), threadkeep::NewThread { id: Some(id("fork")), ..Default::default() }).unwrap();
    let live = source.resume(&id("fork"), false).unwrap();
    prompt(&live, NewPrompt::continuing(other, "in the fork"));
    live.shutdown().unwrap();
    for _ in 0..2 {
        let report = target.copy_from(&source, &mut |_| {}).unwrap();
        assert_eq!(report.problems.len(), 0, "{report:?}");
    }
    assert_eq!(prompts(&target), prompts(&source));
    assert_eq!(artifacts(&target), artifacts(&source));
    assert_eq!(target.prompts(&id("fork"), PromptQuery::default()).unwrap().total, 5);
    assert_eq!(reasons(&target), Vec::<String>::new());
    // What came since is carried, and what was masked.
    let live = source.resume(&id("t"), false).unwrap();
    commit(&live, other, "later");
    live.shutdown().unwrap();
    let options = threadkeep::RedactOptions { reason: "a test".into(), ..Default::default() };
    source.redact_matching(None, Rules::literal("task").unwrap(), options, true, |_, _| {}).unwrap();
    target.copy_from(&source, &mut |_| {}).unwrap();
    assert_eq!(prompts(&target)[0].text, "[redacted:literal]");
    assert_eq!(prompts(&target), prompts(&source));
    assert_eq!(artifacts(&target).len(), 3);
    assert_eq!(reasons(&target), Vec::<String>::new());
}

#[test]
fn a_copy_is_not_made_of_what_verification_would_reject() {
    let temp = tempfile::tempdir().unwrap();
    let (store, target) = (open(&temp.path().join("a")), Store::open(StoreOptions::memory()).unwrap());
    fill(&store);
    sql(&temp.path().join("a")).execute_batch("DELETE FROM prompts; DELETE FROM artifacts").unwrap();
    // The rows are made of the items: what was deleted is there again.
    assert_eq!(target.copy_from(&store, &mut |_| {}).unwrap().problems.len(), 0);
    assert_eq!((prompts(&target).len(), artifacts(&target).len()), (4, 2));
    assert_eq!(reasons(&target), Vec::<String>::new());
}

#[test]
fn a_store_that_is_made_of_rollouts_has_its_receipts() {
    let temp = tempfile::tempdir().unwrap();
    let (store, rebuilt) = (open(&temp.path().join("a")), open(&temp.path().join("b")));
    fill(&store);
    let folder = temp.path().join("rollouts");
    store.mirror_rollouts(Some(&folder), None, |_| {}).unwrap();
    rebuilt.rebuild_from_rollouts(&folder, |_| {}).unwrap();
    assert_eq!(prompts(&rebuilt), prompts(&store));
    assert_eq!(artifacts(&rebuilt), artifacts(&store));
    assert_eq!(reasons(&rebuilt), Vec::<String>::new());
}

#[test]
fn a_repair_makes_the_rows_anew_from_the_items() {
    let temp = tempfile::tempdir().unwrap();
    let (before, [.., last, _]) = {
        let store = open(temp.path());
        let ids = fill(&store);
        ((prompts(&store), artifacts(&store)), ids)
    };
    let altered = format!(
        "DELETE FROM prompts WHERE key = (SELECT max(key) FROM prompts); UPDATE prompts SET root = id WHERE id = {};
         UPDATE artifacts SET number = 7",
        blob(last)
    );
    sql(temp.path()).execute_batch(&format!("{FREE} {altered}")).unwrap();
    repair(temp.path());
    let store = open(temp.path());
    assert_eq!((prompts(&store), artifacts(&store)), before);
    assert_eq!(reasons(&store), Vec::<String>::new());
    let live = store.resume(&id("t"), false).unwrap();
    assert_eq!(commit(&live, last, "three").number, 3);
}

fn repair(folder: &Path) {
    let checkup = Store::plan_repair(StoreOptions::folder(folder), true).unwrap();
    let plan = checkup.fingerprint.unwrap_or_else(|| panic!("no plan for {:?}", checkup.examination.findings));
    Store::repair(StoreOptions::folder(folder), &plan).unwrap();
}

#[test]
fn secrets_are_masked_on_their_way_in_and_identical_words_are_stored_once() {
    let temp = tempfile::tempdir().unwrap();
    let options = StoreOptions::folder(temp.path()).mask_at_write(Rules::literal("hunter2!").unwrap());
    let store = Store::open(options).unwrap();
    let live = create(&store, "t");
    let typed = NewPrompt { raw: b"\xff hunter2!".to_vec(), ..NewPrompt::task("the key is hunter2!") };
    let stored = prompt(&live, typed);
    let found = store.prompt(&id("t"), stored.receipt.id).unwrap();
    assert_eq!(
        (found.raw, found.text.as_str()),
        (b"\xff [redacted:literal]".to_vec(), "the key is [redacted:literal]")
    );
    let new = NewArtifact {
        body: Some("hunter2!".into()),
        locator: Some("https://hunter2!@x".into()),
        metadata: r#"{"hunter2!": 1}"#.into(),
        ..NewArtifact::new(stored.receipt.id, ArtifactKind::FileChange, ArtifactRelation::DerivedFrom)
    };
    let artifact = live.add_artifact(new).unwrap().artifact;
    let texts = format!("{:?} {:?} {}", artifact.body, artifact.locator, artifact.metadata);
    assert!(!texts.contains("hunter2!") && texts.matches("[redacted:literal]").count() == 3, "{texts}");
    let words = "the very same words ".repeat(10_000);
    prompt(&live, NewPrompt::task(words.clone()));
    let bytes = store.stats().unwrap().content_bytes;
    assert!(bytes < i64::try_from(words.len() + 4_096).unwrap(), "{bytes}");
    assert!(store.verify(&id("t")).unwrap().is_intact());
}
