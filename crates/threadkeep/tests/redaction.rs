//! Redaction: no byte of what was taken away is left in any file of the store, the chain holds, and the record says who took it, when
//! and why.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use threadkeep::blocking::Store;
use threadkeep::search::SearchQuery;
use threadkeep::{
    Address, AppendOptions, Change, Durability, Error, GapKind, Item, ItemId, ItemQuery, Kind, NewItem, NewThread,
    Outcome, RedactOptions, RedactReport, Role, Rules, StoreOptions, ThreadId, ThreadPatch, Uuid,
};

/// Two hundred characters that no compression makes shorter by much, so that a part of them is found as it is.
const SECRET: &str =
    "kY7pQ2vX9mZ4tR8wN3cB6jL1hF5sD0gAqWzErTyUiOpMnBvCxLkJhGfDsAaPqOwIeUrYtMzNxBcVqLaKsJdHfGtZrXeWcVbNmQ";

fn memory() -> Store {
    Store::open(StoreOptions::memory()).unwrap()
}

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

fn because(reason: &str) -> RedactOptions {
    RedactOptions { reason: reason.to_owned(), ..RedactOptions::default() }
}

/// Every file below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

/// The files in which any part of a secret stands, as they are and with their compressed parts undone.
fn holding(folder: &Path, needles: &[Vec<u8>]) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let mut bytes = std::fs::read(path).unwrap();
        if path.extension().is_some_and(|it| it == "zst") {
            bytes = [zstd::decode_all(bytes.as_slice()).unwrap(), bytes].concat();
        }
        needles.iter().any(|needle| memchr::memmem::find(&bytes, needle).is_some())
    };
    files_below(folder).into_iter().filter(holds).collect()
}

/// The stored bytes of everything that a store keeps of some items: compressed, and apart from them.
fn stored_forms(database: &Path, items: &[ItemId]) -> Vec<Vec<u8>> {
    let connection = Connection::open(database).unwrap();
    let mut forms = Vec::new();
    for item in items {
        let id = item.as_bytes().as_slice();
        let own = "SELECT content FROM items WHERE id = ?1";
        let apart = "SELECT b.data FROM items i JOIN item_blobs l ON l.item = i.key JOIN blobs b ON b.digest = l.digest WHERE i.id = ?1";
        for sql in [own, apart] {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([id], |row| row.get::<_, Vec<u8>>(0)).unwrap();
            forms.extend(rows.map(Result::unwrap));
        }
    }
    forms
}

/// Pieces by which bytes are known again, though they are spread over pages.
fn needles(forms: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let pieces = forms.iter().filter(|form| form.len() >= 24).flat_map(|form| form.chunks_exact(24).step_by(5));
    pieces.map(<[u8]>::to_vec).collect()
}

/// Text that compresses well and hides the secret in the middle.
fn long_text(bytes: usize) -> String {
    let words = "the quick brown fox jumps over the lazy dog; ".repeat(bytes / 90 + 1);
    format!("{words}{SECRET}{words}")
}

struct Scene {
    store: Store,
    thread: ThreadId,
    /// Items that hold the secret: short, compressed, apart, inside of a picture.
    secrets: Vec<ItemId>,
}

fn scene(folder: &Path) -> Scene {
    let store = open(folder);
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    let live = workspace.create_now(named("leaky")).unwrap();
    let picture = {
        let mut bytes: Vec<u8> = (0..9_000_u32).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect();
        bytes.splice(4_000..4_000, SECRET.bytes());
        base64_of(&bytes)
    };
    let contents = [SECRET.to_owned(), long_text(3_000), long_text(200_000), format!("{{\"image\":\"{picture}\"}}")];
    let mut secrets = Vec::new();
    for content in contents {
        live.append(vec![say("before")]).unwrap();
        let done = live.append(vec![NewItem::raw(Kind::ToolResult, "text", content.into_bytes())]).unwrap();
        secrets.push(done.items[0].id);
        // So many that pages are split and rows move.
        let others = (0..40).map(|number| say(&format!("after {number} {}", "x".repeat(number * 7)))).collect();
        live.append(others).unwrap();
    }
    live.shutdown().unwrap();
    let patch = ThreadPatch {
        title: Change::Set(SECRET[..60].to_owned()),
        preview: Change::Set(format!("{}…", &SECRET[..40])),
        ..ThreadPatch::default()
    };
    store.update(&id("leaky"), patch).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    Scene { store, thread: id("leaky"), secrets }
}

fn base64_of(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().chain(&[0, 0]).take(3).fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
        for at in 0..4 {
            let letter = LETTERS[number >> (18 - 6 * at) & 63];
            text.push(if at <= part.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

fn places(store: &Store, thread: &ThreadId, items: &[ItemId]) -> Vec<Address> {
    items.iter().map(|item| store.address_of(thread, *item).unwrap()).collect()
}

fn all_items(store: &Store, thread: &ThreadId) -> Vec<Item> {
    store.items(thread, ItemQuery { limit: 2_000, ..ItemQuery::default() }).unwrap().entries
}

#[test]
fn no_byte_is_left_in_any_file() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let Scene { store, thread, secrets } = scene(&folder);
    // Archived, so that a compressed rollout holds it; and a fork, which shares the items and the names.
    store.fork(&thread, None, named("fork")).unwrap();
    store.archive(&thread).unwrap();
    store.mirror_rollouts(None, None, |_| {}).unwrap();
    let mut wanted = needles(&stored_forms(&folder.join("threadkeep.db"), &secrets));
    wanted.extend(SECRET.as_bytes().chunks_exact(20).map(<[u8]>::to_vec));
    // The index has its words in lower case, and the first 64 letters of each.
    wanted.extend(SECRET[..60].to_lowercase().as_bytes().chunks_exact(20).map(<[u8]>::to_vec));
    let found = store.search(SearchQuery::new(format!("{}*", &SECRET[..40]))).unwrap();
    assert!(!found.threads.is_empty(), "the control finds it");
    let before = holding(&folder, &wanted);
    assert!(before.iter().any(|path| path.parent().unwrap().ends_with("search")), "the index holds it: {before:?}");
    let names: Vec<String> =
        before.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for name in ["threadkeep.db", "leaky.jsonl.zst", "session_index.jsonl"] {
        assert!(names.iter().any(|found| found.starts_with(name)), "the control finds nothing in {name}: {names:?}");
    }

    let report = store.redact(&thread, places(&store, &thread, &secrets), because("a key was pasted")).unwrap();
    assert_eq!((report.redacted, report.erased), (4, Some(true)), "{report:?}");
    assert_eq!(report.remains, Vec::<String>::new());
    assert_eq!(holding(&folder, &wanted), Vec::<PathBuf>::new());
    let search = |text: &str| store.search(SearchQuery { per_thread: 0, ..SearchQuery::new(text) }).unwrap();
    assert!(search(&format!("{}*", &SECRET[..8])).threads.is_empty(), "it is found no more");
    assert_eq!(search("after").threads.len(), 20, "and its neighbours are");
    assert!(store.verify(&thread).unwrap().is_intact());
    assert!(store.get(&id("fork")).unwrap().details.preview.is_none(), "a fork has its parent's names");

    // The store is used on, closed and opened again: nothing comes back.
    let live = store.resume(&id("fork"), false).unwrap();
    live.append((0..50).map(|number| say(&format!("on {number}"))).collect()).unwrap();
    live.shutdown().unwrap();
    drop((live, store));
    let store = open(&folder);
    assert!(store.notices().is_empty(), "{:?}", store.notices());
    assert!(store.verify_all(|_| {}).unwrap().broken == 0);
    drop(store);
    assert_eq!(holding(&folder, &wanted), Vec::<PathBuf>::new());
}

#[test]
fn a_tombstone_says_who_when_and_why_wherever_it_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let Scene { store, thread, secrets } = scene(&temp.path().join("store"));
    store.fork(&thread, None, named("fork")).unwrap();
    let before = all_items(&store, &thread);
    let options = RedactOptions { by: Some("ann".to_owned()), ..because("a key was pasted") };
    store.redact(&id("fork"), places(&store, &thread, &secrets), options).unwrap();
    for reader in [&thread, &id("fork")] {
        let after = all_items(&store, reader);
        for (was, is) in before.iter().zip(&after) {
            if !secrets.contains(&is.id) {
                assert_eq!(was, is);
                continue;
            }
            let told = is.redaction.as_deref().expect("a tombstone");
            assert_eq!((told.by.as_str(), told.reason.as_str(), told.masked), ("ann", "a key was pasted", false));
            assert!(is.content.is_empty());
            assert_eq!((was.hash, was.digest, was.id), (is.hash, is.digest, is.id));
        }
    }
    let again = store.redact(&thread, places(&store, &thread, &secrets), because("once more")).unwrap();
    assert_eq!(
        store.item(&thread, places(&store, &thread, &secrets)[0]).unwrap().redaction.unwrap().reason,
        "a key was pasted"
    );
    assert_eq!(again.redacted, 0, "what is gone is gone: {again:?}");
}

#[test]
fn content_that_is_missing_without_a_record_is_invalid() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let Scene { store, thread, secrets } = scene(&folder);
    store.create_key().unwrap();
    store.seal(None, false).unwrap();
    store.redact(&thread, places(&store, &thread, &secrets[..1]), because("a key was pasted")).unwrap();
    let verdict = store.verify(&thread).unwrap();
    let lacks: Vec<GapKind> = verdict.not_provable.iter().map(|gap| gap.kind).collect();
    assert_eq!((verdict.outcome(), lacks), (Outcome::NotProvable, vec![GapKind::UnsealedRedaction]));
    store.seal(None, false).unwrap();
    assert_eq!(store.verify(&thread).unwrap().outcome(), Outcome::Valid, "{:?}", store.verify(&thread));

    let connection = Connection::open(folder.join("threadkeep.db")).unwrap();
    let second = secrets[1].as_bytes().as_slice();
    let broken = |why: &str| {
        let verdict = store.verify(&thread).unwrap();
        assert!(!verdict.is_intact(), "{why}");
        verdict.invalid.iter().map(|found| found.reason.clone()).collect::<Vec<_>>().join("; ")
    };
    let stored: (Option<Vec<u8>>, i64, i64, Option<Vec<u8>>) = connection
        .query_row("SELECT salt, size, encoding, content FROM items WHERE id = ?1", [second], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    let put = "UPDATE items SET salt = ?2, size = ?3, encoding = ?4, content = ?5 WHERE id = ?1";
    let other = b"other".as_slice();
    let kinds = [
        ("content and salt are gone", None, 0, None),
        ("they are gone and marked as redacted", None, 4, None),
        ("other content stands there, marked as redacted", stored.0.as_deref(), 4, Some(other)),
        ("bytes stand where nothing may", None, 4, Some(other)),
    ];
    for (why, salt, encoding, content) in kinds {
        connection.execute(put, rusqlite::params![second, salt, 5, encoding, content]).unwrap();
        broken(why);
    }
    connection.execute(put, rusqlite::params![second, stored.0, stored.1, stored.2, stored.3]).unwrap();
    assert!(store.verify(&thread).unwrap().is_intact(), "it is as it was");

    let changes = [
        "UPDATE redactions SET reason = 'another'",
        "UPDATE redactions SET redacted_by = 'nobody'",
        "UPDATE redactions SET redacted_at = redacted_at + 1",
        "UPDATE redactions SET thread = 'other'",
        "UPDATE redactions SET depth = depth + 1",
        "UPDATE redactions SET rule = 'a rule'",
        "DELETE FROM redactions",
    ];
    for change in changes {
        let saved = std::fs::read(folder.join("threadkeep.db")).unwrap().len();
        assert!(saved > 0);
        connection.execute_batch("SAVEPOINT tried").unwrap();
        assert!(connection.execute(change, []).unwrap() > 0, "{change}");
        connection.execute_batch("RELEASE tried").unwrap();
        broken(change);
        if change.starts_with("DELETE") {
            continue;
        }
        let undo = match change {
            it if it.contains("reason") => "UPDATE redactions SET reason = 'a key was pasted' WHERE item IS NOT NULL",
            it if it.contains("redacted_by") => "UPDATE redactions SET redacted_by = 'threadkeep'",
            it if it.contains("redacted_at") => "UPDATE redactions SET redacted_at = redacted_at - 1",
            it if it.contains("thread") => "UPDATE redactions SET thread = 'leaky'",
            it if it.contains("depth") => "UPDATE redactions SET depth = depth - 1",
            _ => "UPDATE redactions SET rule = NULL",
        };
        connection.execute(undo, []).unwrap();
        if change.contains("reason") {
            connection.execute("UPDATE redactions SET reason = 'a key was pasted'", []).unwrap();
        }
        assert_eq!(store.verify(&thread).unwrap().outcome(), Outcome::Valid, "undone: {change}");
    }
}

#[test]
fn kin_are_named_and_go_along_when_asked() {
    let store = memory();
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    let live = workspace.create_now(named("leaky")).unwrap();
    let payload =
        |tail: &str| NewItem::raw(Kind::ToolResult, "text", format!("{}{tail}", long_text(200_000)).into_bytes());
    let first = live.append(vec![payload("")]).unwrap().items[0].clone();
    let same = live.append(vec![payload("")]).unwrap().items[0].clone();
    let summary = NewItem { sources: vec![first.id], ..NewItem::raw(Kind::Compaction, "text", b"a summary".to_vec()) };
    let summary = live.append(vec![summary]).unwrap().items[0].clone();
    let later =
        NewItem { sources: vec![summary.id], ..NewItem::raw(Kind::Compaction, "text", b"of a summary".to_vec()) };
    let later = live.append(vec![later, say("something else")]).unwrap().items[0].clone();
    live.shutdown().unwrap();

    let report = store.redact(&id("leaky"), vec![first.address()], because("a key")).unwrap();
    let named = |found: &[threadkeep::RedactedPlace]| found.iter().map(|place| place.item).collect::<Vec<_>>();
    assert_eq!(named(&report.derived), [summary.id, later.id]);
    assert_eq!(named(&report.same_payload), [same.id]);
    assert_eq!(named(&report.places), [first.id]);
    assert!(!store.item(&id("leaky"), same.address()).unwrap().content.is_empty(), "the payload of another item stays");

    let all = RedactOptions { with_derived: true, with_same_payload: true, ..because("a key") };
    let report = store.redact(&id("leaky"), vec![same.address()], all.clone()).unwrap();
    assert_eq!(report.redacted, 1, "{report:?}");
    let report = store.redact(&id("leaky"), vec![first.address()], all).unwrap();
    assert_eq!(report.redacted, 2, "what cites the one that is gone: {report:?}");
    assert_eq!(all_items(&store, &id("leaky")).iter().filter(|item| item.redaction.is_none()).count(), 1);
    assert!(store.verify(&id("leaky")).unwrap().is_intact());
}

#[test]
fn a_repeated_append_is_answered_after_a_redaction() {
    let store = memory();
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    let live = workspace.create_now(named("leaky")).unwrap();
    let item = || NewItem::message(Role::User, SECRET).with_id(ItemId::from_uuid(Uuid::from_u128(7)));
    let first = live.append(vec![item()]).unwrap();
    store.redact(&id("leaky"), vec![first.items[0].address()], because("a key")).unwrap();
    let again = live.append(vec![item()]).unwrap();
    assert!(again.repeated);
    assert_eq!(again.items, first.items);
    assert!(store.item(&id("leaky"), first.items[0].address()).unwrap().content.is_empty());
}

#[test]
fn a_writer_goes_on_through_a_redaction() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let (store, other) = (open(&folder), open(&folder));
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("leaky")).unwrap();
    let first = live.append(vec![say(SECRET)]).unwrap();
    for number in 0..5 {
        let options = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
        live.append_with(vec![say(&format!("queued {number}"))], options).unwrap();
        other.redact(&id("leaky"), vec![first.items[0].address()], because("a key")).unwrap();
        live.append(vec![say(&format!("stored {number}"))]).unwrap();
    }
    live.shutdown().unwrap();
    assert_eq!(all_items(&other, &id("leaky")).len(), 11);
    assert!(other.verify(&id("leaky")).unwrap().is_intact());
}

fn with_key(text: &str) -> NewItem {
    say(&format!("{text} {}{} and so on", "ghp_", &SECRET[..36]))
}

fn matching(store: &Store, apply: bool) -> RedactReport {
    let rules = Rules::maintained().unwrap();
    store.redact_matching(None, rules, because("keys leaked"), apply, |_, _| {}).unwrap()
}

#[test]
fn rules_mask_what_they_find_and_leave_the_rest() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = open(&folder);
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        let workspace = store.workspace(Path::new(&format!("/w/{name}"))).unwrap();
        let live = workspace.create_now(named(name)).unwrap();
        live.append(vec![say("nothing here"), with_key(name), say("nor here")]).unwrap();
        live.shutdown().unwrap();
        let secret = format!("ghp_{}", &SECRET[..36]);
        let text = if number == 0 { format!("use {secret} there") } else { "a title".to_owned() };
        store.update(&id(name), ThreadPatch::title(text)).unwrap();
    }
    store.delete(&id("three")).unwrap();
    let everything = |store: &Store| ["one", "two", "three"].map(|name| all_items(store, &id(name)));
    let before = everything(&store);
    let dry = matching(&store, false);
    assert_eq!((dry.looked_at, dry.redacted, dry.erased), (9, 3, None), "{dry:?}");
    assert_eq!(everything(&store), before, "a dry run changes nothing");
    assert_eq!(dry.beside.len(), 1);

    let done = matching(&store, true);
    let counts = |report: &RedactReport| {
        (report.looked_at, report.redacted, report.rules.clone(), report.places.clone(), report.beside.clone())
    };
    assert_eq!(counts(&done), counts(&dry), "it does what it said");
    assert_eq!(done.erased, Some(true));
    for (was, is) in before.iter().flatten().zip(everything(&store).iter().flatten()) {
        let text = String::from_utf8(is.content.clone()).unwrap();
        assert!(!text.contains(&SECRET[..36]), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        match &is.redaction {
            None => assert_eq!(was, is),
            Some(told) => {
                assert!(told.masked && told.rule.as_deref().is_some_and(|rule| rule.contains("github")), "{told:?}");
                assert!(text.contains("and so on"), "the rest stays: {text}");
            }
        }
    }
    assert!(!store.get(&id("one")).unwrap().name().contains(&SECRET[..36]));
    assert!(store.verify_all(|_| {}).unwrap().broken == 0);
    let again = matching(&store, true);
    assert_eq!((again.redacted, again.beside.len()), (0, 0));
    drop(store);
    assert_eq!(holding(&folder, &[SECRET.as_bytes()[..36].to_vec()]), Vec::<PathBuf>::new());
}

/// Whichever of them is named: what it shows is masked, and so are the names of all that show it.
#[test]
fn rules_reach_what_a_thread_shares_with_others_and_their_names() {
    let rules = || Rules::literal("open sesame").unwrap();
    for named_thread in ["root", "fork", "grandchild"] {
        let temp = tempfile::tempdir().unwrap();
        let store = open(temp.path());
        let workspace = store.workspace(Path::new("/w")).unwrap();
        let details =
            |preview: &str| threadkeep::Details { preview: Some(preview.to_owned()), ..threadkeep::Details::default() };
        let new = |name: &str| NewThread { details: details("say open sesame to it"), ..named(name) };
        let live = workspace.create_now(new("root")).unwrap();
        let told = live.append(vec![say("say open sesame to it"), say("yes"), say("more")]).unwrap();
        live.shutdown().unwrap();
        store.fork(&id("root"), Some(told.items[1].address()), new("fork")).unwrap();
        let live = store.resume(&id("fork"), false).unwrap();
        let last = live.append(vec![say("of the fork")]).unwrap().items[0].address();
        live.shutdown().unwrap();
        store.fork(&id("fork"), Some(last), new("grandchild")).unwrap();
        let other =
            workspace.create_now(NewThread { details: details("no open sesame here"), ..named("other") }).unwrap();
        other.append(vec![say("no open sesame here")]).unwrap();
        other.shutdown().unwrap();

        let redact = |apply| {
            store
                .redact_matching(Some(vec![id(named_thread)]), rules(), because("a password"), apply, |_, _| {})
                .unwrap()
        };
        let dry = redact(false);
        assert_eq!((dry.redacted, dry.beside.len()), (1, 3), "{named_thread}: {dry:?}");
        let report = redact(true);
        assert_eq!((report.redacted, &report.beside), (1, &dry.beside), "{named_thread}");
        for thread in ["root", "fork", "grandchild"] {
            let preview = store.get(&id(thread)).unwrap().details.preview.unwrap();
            assert_eq!(preview, "say [redacted:literal] to it", "{named_thread}: {thread}");
        }
        assert_eq!(store.get(&id("other")).unwrap().details.preview.unwrap(), "no open sesame here");
        assert_eq!(redact(true).redacted, 0);
        assert!(store.verify_all(|_| {}).unwrap().invalid.is_empty());
    }
}

#[test]
fn a_masked_item_can_be_taken_away_whole_and_masked_again() {
    let store = memory();
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("leaky")).unwrap();
    let place = live.append(vec![with_key("a word")]).unwrap().items[0].address();
    live.shutdown().unwrap();
    matching(&store, true);
    let rules = Rules::literal("a word").unwrap();
    let report = store.redact_matching(Some(vec![id("leaky")]), rules, because("that too"), true, |_, _| {}).unwrap();
    assert_eq!(report.redacted, 1);
    let item = store.item(&id("leaky"), place).unwrap();
    assert!(item.redaction.as_ref().unwrap().masked && !item.content.is_empty());
    assert!(!String::from_utf8(item.content).unwrap().contains("a word"));
    assert!(store.verify(&id("leaky")).unwrap().is_intact());
    store.redact(&id("leaky"), vec![place], because("all of it")).unwrap();
    let item = store.item(&id("leaky"), place).unwrap();
    assert!(!item.redaction.unwrap().masked && item.content.is_empty());
    assert!(store.verify(&id("leaky")).unwrap().is_intact());
}

#[test]
fn copies_and_rollouts_carry_what_was_redacted() {
    let temp = tempfile::tempdir().unwrap();
    let Scene { store, thread, secrets } = scene(&temp.path().join("store"));
    let live = store.resume(&thread, false).unwrap();
    live.append(vec![with_key("masked")]).unwrap();
    live.shutdown().unwrap();
    let (earlier, files) = (open(&temp.path().join("earlier")), temp.path().join("files"));
    let behind = memory();
    earlier.copy_from(&store, &mut |_| {}).unwrap();
    store.mirror_rollouts(Some(&files), None, |_| {}).unwrap();
    behind.rebuild_from_rollouts(&files, |_| {}).unwrap();
    // What is changed there alone must not keep the redaction away.
    earlier.update(&thread, ThreadPatch::title("renamed")).unwrap();
    earlier.update(&thread, ThreadPatch::title("renamed again")).unwrap();

    store.redact(&thread, places(&store, &thread, &secrets), because("a key was pasted")).unwrap();
    matching(&store, true);
    let wanted = all_items(&store, &thread);
    assert_eq!(wanted.iter().filter(|item| item.redaction.is_some()).count(), 5);
    let fresh = memory();
    for target in [&earlier, &fresh] {
        target.copy_from(&store, &mut |_| {}).unwrap();
        assert_eq!(all_items(target, &thread), wanted);
        assert!(target.verify(&thread).unwrap().is_intact(), "{:?}", target.verify(&thread));
        let again = target.copy_from(&store, &mut |_| {}).unwrap();
        assert_eq!((again.unchanged, again.problems.len()), (1, 0), "{again:?}");
    }
    store.mirror_rollouts(Some(&files), None, |_| {}).unwrap();
    let report = Store::verify_rollouts(&files).unwrap();
    assert!(report.0.iter().all(threadkeep::RolloutReport::is_whole), "{report:?}");
    assert_eq!(holding(&files, &[SECRET.as_bytes()[..20].to_vec()]), Vec::<PathBuf>::new());
    let rebuilt = memory();
    for target in [&behind, &rebuilt] {
        let report = target.rebuild_from_rollouts(&files, |_| {}).unwrap();
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(all_items(target, &thread), wanted);
        assert!(target.verify(&thread).unwrap().is_intact());
    }
    let second = temp.path().join("second");
    rebuilt.mirror_rollouts(Some(&second), None, |_| {}).unwrap();
    assert_eq!(contents(&files), contents(&second), "the same bytes again");
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = files_below(folder).into_iter().filter(|path| path.to_string_lossy().contains(".jsonl"));
    let files = files.filter(|path| !path.ends_with("session_index.jsonl"));
    files.map(|path| (path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn a_reader_of_an_old_state_keeps_traces_and_that_is_said_until_they_are_gone() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let Scene { store, thread, secrets } = scene(&folder);
    let database = folder.join("threadkeep.db");
    let reader = Connection::open(&database).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM items", [], |row| row.get::<_, i64>(0)).unwrap();
    let wanted: Vec<Vec<u8>> = SECRET.as_bytes().chunks_exact(20).map(<[u8]>::to_vec).collect();
    let report = store.redact(&thread, places(&store, &thread, &secrets), because("a key")).unwrap();
    assert_eq!((report.erased, report.remains.len()), (Some(false), 1), "{report:?}");
    assert!(!holding(&folder, &wanted).is_empty(), "the reader still sees it");
    let other = open(&folder);
    assert!(other.notices().iter().any(|notice| notice.contains("redaction")), "{:?}", other.notices());
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(other.erase().unwrap(), Vec::<String>::new());
    assert_eq!(holding(&folder, &wanted), Vec::<PathBuf>::new());
    assert!(open(&folder).notices().is_empty());
}

#[test]
fn copies_from_before_are_named_and_left() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let Scene { store, thread, secrets } = scene(&folder);
    let copies = ["backups/mine.db", "kept-0190a0b0/threadkeep.db"].map(|name| folder.join(name));
    for copy in &copies {
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, SECRET).unwrap();
    }
    let report = store.redact(&thread, places(&store, &thread, &secrets), because("a key")).unwrap();
    let named = |path: &Path| report.remains.iter().any(|words| words.starts_with(&path.display().to_string()));
    assert!(named(&copies[0]) && named(copies[1].parent().unwrap()), "{report:?}");
    assert_eq!((report.erased, report.remains.len()), (Some(true), 2));
    assert!(copies.iter().all(|copy| copy.exists()));
}

#[test]
fn what_can_not_be_asked_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let Scene { store, thread, secrets } = scene(&folder);
    let places = places(&store, &thread, &secrets);
    for reason in ["", "  \n"] {
        assert!(matches!(store.redact(&thread, places.clone(), because(reason)), Err(Error::Invalid { .. })));
    }
    assert!(matches!(store.redact(&thread, places.clone(), because(&"x".repeat(5_000))), Err(Error::Invalid { .. })));
    let nowhere = Address { depth: 9_999, ..places[0] };
    let refused = store.redact(&thread, vec![places[0], nowhere], because("a key"));
    assert!(matches!(refused, Err(Error::NotFound { .. })));
    assert!(all_items(&store, &thread).iter().all(|item| item.redaction.is_none()), "all or none");
    drop(store);
    let reader = Store::open(StoreOptions::folder(&folder).read_only()).unwrap();
    assert!(matches!(reader.redact(&thread, places, because("a key")), Err(Error::ReadOnly { .. })));
}
