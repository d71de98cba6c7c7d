//! Searching a store: what is found, where it is said to be, and what happens when the index is behind, damaged or gone.

#![cfg(test)]
use std::path::Path;
use std::time::Duration;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::search::{FoundItem, SearchPage, SearchQuery, Standing};
use threadkeep::{
    Address, AppendOptions, Durability, ItemQuery, Kind, NewItem, NewThread, RedactOptions, Role, StoreOptions,
    ThreadId, ThreadPatch,
};

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn named(text: &str) -> NewThread {
    NewThread { id: Some(id(text)), ..NewThread::default() }
}

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions::folder(folder)).unwrap()
}

fn say(live: &LiveThread, text: &str) -> Address {
    live.append(vec![NewItem::message(Role::User, text)]).unwrap().items[0].address()
}

fn find(store: &Store, text: &str) -> SearchPage {
    let page = store.search(SearchQuery::new(text)).unwrap();
    assert!(page.notices.is_empty(), "{page:?}");
    page
}

fn hits(page: &SearchPage) -> Vec<(String, FoundItem)> {
    let of = |thread: &threadkeep::search::FoundThread| -> Vec<(String, FoundItem)> {
        thread.hits.iter().filter_map(|hit| Some((thread.id.to_string(), hit.item.clone()?))).collect()
    };
    page.threads.iter().flat_map(of).collect()
}

fn places(page: &SearchPage) -> Vec<(String, u32)> {
    let mut places: Vec<_> = hits(page).into_iter().map(|(thread, item)| (thread, item.address.depth)).collect();
    places.sort_unstable();
    places
}

#[test]
fn what_was_acknowledged_is_found_at_once_and_by_other_handles() {
    let temp = tempfile::tempdir().unwrap();
    let (store, other) = (open(temp.path()), open(temp.path()));
    let reader = Store::open(StoreOptions::folder(temp.path()).read_only()).unwrap();
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    for round in 0..50_u32 {
        say(&live, &format!("the word number{round} was just said"));
        for searching in [&other, &store, &reader] {
            let page = find(searching, &format!("number{round}"));
            assert_eq!(places(&page), [("a".to_owned(), round)], "{round}");
        }
    }
    assert_eq!(places(&find(&other, "just said")).len(), 3, "three of a thread are shown");
    assert_eq!(find(&other, "just said").threads[0].more, 47);
}

#[test]
fn a_prefix_that_forks_share_is_one_hit_and_branches_say_where_they_lie() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    let live = workspace.create_now(named("origin")).unwrap();
    say(&live, "shared beginning about pelicans");
    let second = say(&live, "second");
    say(&live, "an abandoned idea about herons");
    live.rewind(second).unwrap();
    say(&live, "another way");
    live.shutdown().unwrap();
    for fork in ["fork-one", "fork-two"] {
        store.fork(&id("origin"), Some(second), named(fork)).unwrap();
    }

    let page = find(&store, "pelicans");
    let found = hits(&page);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1.standing, Standing::ActivePath);
    assert_eq!(found[0].1.shared_with, [id("fork-one"), id("fork-two")]);

    let found = hits(&find(&store, "herons"));
    let Standing::Branch { leaves_at, distance, .. } = found[0].1.standing else { panic!("{found:?}") };
    assert_eq!((leaves_at, distance), (Some(1), 1));
    assert!(hits(&find(&store, "herons path:active")).is_empty());
    assert_eq!(hits(&find(&store, "pelicans path:active")).len(), 1);
    assert_eq!(places(&find(&store, "pelicans thread:fork-two")), [("fork-two".to_owned(), 0)]);
    assert!(hits(&find(&store, "herons thread:fork-two")).is_empty());
}

#[test]
fn a_workspace_sees_what_is_its_own_and_what_its_threads_share() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let (one, two) = (store.workspace(Path::new("/w/one")).unwrap(), store.workspace(Path::new("/w/two")).unwrap());
    let live = one.create_now(named("mine")).unwrap();
    let place = say(&live, "the secret garden");
    say(&live, "the garden wall");
    live.shutdown().unwrap();
    assert!(two.search(SearchQuery::new("garden")).unwrap().threads.is_empty());
    assert_eq!(hits(&one.search(SearchQuery::new("garden")).unwrap()).len(), 2);
    let elsewhere = two.create_now(named("other")).unwrap();
    say(&elsewhere, "no plants here");
    drop(elsewhere);
    // Forked through the store into its own workspace, then seen through that one alone.
    store.fork(&id("mine"), Some(place), named("fork")).unwrap();
    let report = store.remap(one.info().id, two.info().id);
    assert!(report.is_ok());
    assert_eq!(places(&two.search(SearchQuery::new("garden")).unwrap()).len(), 2, "what was merged is seen");
}

#[test]
fn titles_are_found_and_follow_their_changes() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    say(&live, "hello");
    let title =
        |title: &str| ThreadPatch { title: threadkeep::Change::Set(title.to_owned()), ..ThreadPatch::default() };
    store.update(&id("a"), title("Repairing the lighthouse")).unwrap();
    let page = find(&store, "lighthouse");
    assert_eq!(page.threads.len(), 1);
    assert!(page.threads[0].hits[0].item.is_none());
    store.update(&id("a"), title("Something else")).unwrap();
    assert!(find(&store, "lighthouse").threads.is_empty());
    assert_eq!(find(&store, "something").threads.len(), 1);
    store.update(&id("a"), ThreadPatch { title: threadkeep::Change::Clear, ..ThreadPatch::default() }).unwrap();
    assert!(find(&store, "something").threads.is_empty());
}

#[test]
fn filters_and_operators_choose() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    live.append(vec![
        NewItem::message(Role::User, "please parse the config file"),
        NewItem::tool_call("c1", "read_file", r#"{"path":"src/config_parser.rs"}"#),
        NewItem::tool_result("c1", "error: cannot find parseConfig in this scope", true),
        NewItem::message(Role::Assistant, "配置文件解析失败 because parseConfig is gone, don't worry"),
    ])
    .unwrap();
    let all = |text: &str| SearchQuery { per_thread: 0, ..SearchQuery::new(text) };
    let depths =
        |text: &str| places(&store.search(all(text)).unwrap()).into_iter().map(|(_, depth)| depth).collect::<Vec<_>>();
    assert_eq!(depths("config"), [0, 1, 2, 3]);
    assert_eq!(depths("config -worry"), [0, 1, 2]);
    assert_eq!(depths("\"config file\""), [0]);
    assert_eq!(depths("config_parser.rs"), [1]);
    assert_eq!(depths("parseconfig"), [2, 3]);
    assert_eq!(depths("解析"), [3]);
    assert_eq!(depths("don't"), [3]);
    assert_eq!(depths("wor*"), [3]);
    assert_eq!(depths("please OR scope"), [0, 2]);
    assert_eq!(depths("config role:user"), [0]);
    assert_eq!(depths("kind:tool_result"), [2]);
    assert_eq!(depths("tool:read_file"), [1, 2]);
    assert_eq!(depths("has:error"), [2]);
    assert_eq!(depths("-config"), Vec::<u32>::new());
    assert_eq!(depths("after:1d config"), [0, 1, 2, 3]);
    assert_eq!(depths("before:2001-01-01 config"), Vec::<u32>::new());
}

#[test]
fn a_redacted_word_is_found_no_more_and_its_neighbours_are() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    let place = say(&live, "the canary zwitscher4711 sings");
    say(&live, "another canary");
    live.shutdown().unwrap();
    assert_eq!(places(&find(&store, "canary")).len(), 2);
    let options = RedactOptions { reason: "a key".to_owned(), ..RedactOptions::default() };
    let report = store.redact(&id("a"), vec![place], options).unwrap();
    assert_eq!(report.erased, Some(true), "{report:?}");
    assert!(find(&store, "zwitscher4711").threads.is_empty());
    assert_eq!(places(&find(&store, "canary")), [("a".to_owned(), 1)]);
    assert_eq!(holding(temp.path(), b"zwitscher4711"), Vec::<String>::new());
}

/// Redacted before anything was searched, and once more when the index was lost.
#[test]
fn what_was_redacted_before_it_was_indexed_keeps_nothing_from_being_found() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    // More than are indexed at once.
    let told = |number: u32| NewItem::message(Role::User, format!("canary {number} with a zwitscher{number}"));
    let told = live.append((0..5_000).map(told).collect()).unwrap();
    live.shutdown().unwrap();
    let because = || RedactOptions { reason: "a key".to_owned(), ..RedactOptions::default() };
    for (number, title) in [(3, "a secret title"), (4_500, "another secret title")] {
        store.redact(&id("a"), vec![told.items[number].address()], because()).unwrap();
        store.update(&id("a"), ThreadPatch::title(title)).unwrap();
        let rules = threadkeep::Rules::literal("secret").unwrap();
        store.redact_matching(None, rules, because(), true, |_, _| {}).unwrap();
    }
    for round in 0..2 {
        let found = |text: &str| {
            let searched = (0..100).map(|_| store.search(SearchQuery::new(text)).unwrap());
            // What is not indexed yet is told; damage is, too.
            let whole = searched
                .filter(|page| page.notices.iter().all(|notice| !notice.contains("not in the search index yet")));
            let page = whole.into_iter().next().unwrap();
            assert!(page.notices.is_empty(), "{round}: {page:?}");
            places(&page)
        };
        assert_eq!(found("zwitscher4499"), [("a".to_owned(), 4_499)]);
        assert_eq!(found("zwitscher2"), [("a".to_owned(), 2)]);
        assert_eq!(found("zwitscher4500"), []);
        assert_eq!(found("zwitscher3"), []);
        assert_eq!(store.search(SearchQuery::new("another title")).unwrap().threads.len(), 1);
        std::fs::remove_dir_all(temp.path().join("search")).unwrap();
    }
}

/// The files below a folder that hold these bytes.
fn holding(folder: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(holding(&entry.path(), bytes));
        } else if memchr::memmem::find(&std::fs::read(entry.path()).unwrap(), bytes).is_some() {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[test]
fn what_is_purged_leaves_no_word_behind() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    for name in ["gone", "stays"] {
        let live = workspace.create_now(named(name)).unwrap();
        say(&live, &format!("{name} speaks of quicksilver{name}"));
        live.shutdown().unwrap();
    }
    assert_eq!(find(&store, "speaks").threads.len(), 2);
    store.delete(&id("gone")).unwrap();
    assert_eq!(find(&store, "speaks").threads.len(), 1, "the trash is not searched");
    let trashed = SearchQuery { trashed: true, ..SearchQuery::new("speaks") };
    assert_eq!(store.search(trashed).unwrap().threads.len(), 2);
    store.purge(&id("gone")).unwrap();
    let trashed = SearchQuery { trashed: true, ..SearchQuery::new("speaks") };
    assert_eq!(store.search(trashed).unwrap().threads.len(), 1);
    store.erase().unwrap();
    assert_eq!(holding(&temp.path().join("search"), b"quicksilvergone"), Vec::<String>::new());
}

#[test]
fn pages_show_everything_once() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    let items = |range: std::ops::Range<u32>| {
        range.map(|number| NewItem::message(Role::User, format!("counting item {number}"))).collect::<Vec<_>>()
    };
    live.append(items(0..700)).unwrap();
    for per_thread in [0, 50] {
        let mut query = SearchQuery { per_thread, limit: 37, ..SearchQuery::new("counting") };
        let mut seen = Vec::new();
        loop {
            let page = store.search(query.clone()).unwrap();
            seen.extend(hits(&page).into_iter().map(|(_, item)| item.address.depth));
            let more: usize = page.threads.iter().map(|thread| thread.more).sum();
            if per_thread > 0 {
                seen.extend(std::iter::repeat_n(u32::MAX, more));
            }
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!(seen.len(), 700, "{per_thread}");
        if per_thread == 0 {
            seen.sort_unstable();
            assert_eq!(seen, (0..700).collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_index_of_another_store_or_of_one_that_went_back_is_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    {
        let store = open(&folder);
        let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
        say(&live, "early bird");
        store.backup(&temp.path().join("backup.db")).unwrap();
        say(&live, "late owl");
        assert_eq!(find(&store, "owl").threads.len(), 1);
        live.shutdown().unwrap();
    }
    Store::restore_backup(StoreOptions::folder(&folder), &temp.path().join("backup.db")).unwrap();
    let store = open(&folder);
    assert!(find(&store, "owl").threads.is_empty());
    assert_eq!(places(&find(&store, "bird")), [("a".to_owned(), 0)]);
    let live = store.resume(&id("a"), false);
    let live = live.unwrap();
    say(&live, "young heron");
    assert_eq!(places(&find(&store, "heron")), [("a".to_owned(), 1)]);
    assert_eq!(store.items(&id("a"), ItemQuery::default()).unwrap().entries[1].kind, Kind::Message);
}

/// What the engine keeps of the index: every file below its folder but the pointer.
fn index_files(store: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(store.join("search")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

/// An index that is damaged in any way keeps nothing from being written or read, and the searches after it find everything.
#[test]
fn a_damaged_index_is_made_anew_and_stops_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..40_u32 {
        let folder = temp.path().join(round.to_string());
        {
            let store = open(&folder);
            let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
            live.append((0..200).map(|n| NewItem::message(Role::User, format!("common word{n}"))).collect()).unwrap();
            assert_eq!(find(&store, "word7").threads.len(), 1);
            live.shutdown().unwrap();
        }
        let database =
            index_files(&folder).into_iter().find(|file| file.extension().is_some_and(|it| it == "db")).unwrap();
        damage(&database, round, &mut random);
        if matches!(round % 20, 0..=6 | 10..=15) {
            let checkup = Store::plan_repair(StoreOptions::folder(&folder), true).unwrap();
            let codes: Vec<_> = checkup.steps.iter().map(|step| step.code).collect();
            assert_eq!(codes, ["drop-index"], "{round} {checkup:?}");
            if round >= 20 {
                let plan = checkup.fingerprint.unwrap();
                Store::repair(StoreOptions::folder(&folder), &plan).unwrap();
                let checkup = Store::plan_repair(StoreOptions::folder(&folder), true).unwrap();
                assert!(checkup.steps.is_empty(), "{checkup:?}");
            }
        }

        let store = open(&folder);
        let live = store.resume(&id("a"), false).unwrap();
        say(&live, "after the damage");
        assert_eq!(store.items(&id("a"), ItemQuery { limit: 500, ..ItemQuery::default() }).unwrap().entries.len(), 201);
        // Some damage is noticed when the damaged part is used; the one after it finds an index that is whole.
        for query in ["common", "word7", "damage"] {
            let page = store.search(SearchQuery::new(query)).unwrap();
            assert!(!page.threads.is_empty() || !page.notices.is_empty(), "{round} {query}: {page:?}");
        }
        store.drop_index().unwrap();
        for (query, count) in [("word7", 1), ("damage", 1)] {
            assert_eq!(places(&find(&store, query)).len(), count, "{round} {query}");
        }
    }
}

/// One of twenty kinds of damage to the database of an index.
fn damage(database: &Path, round: u32, random: &mut u64) {
    let mut next = |below: u64| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random % below.max(1)
    };
    let sql = |sql: &str| {
        let connection = rusqlite::Connection::open(database).unwrap();
        // A statement that the damage before it keeps from running damages nothing more.
        let _ = connection.execute_batch(&format!("PRAGMA writable_schema = ON; {sql}"));
    };
    match round % 20 {
        0 => std::fs::write(database, b"").unwrap(),
        1 => std::fs::remove_file(database).unwrap(),
        2 => std::fs::write(database, b"no database at all, but long enough to be read as a header").unwrap(),
        3 => sql("DELETE FROM sqlite_master WHERE name = 'shard_0_data'"),
        4 => sql("DELETE FROM sqlite_master WHERE name = 'shard_0_idx'"),
        5 => sql("DELETE FROM sqlite_master WHERE name = 'shard_0_config'"),
        6 => sql("DELETE FROM sqlite_master WHERE name = 'shard_0'"),
        7 => sql("DELETE FROM shard_0_data"),
        8 => sql("DELETE FROM shard_0_data WHERE id = 1"),
        9 => sql("UPDATE shard_0_data SET block = zeroblob(length(block))"),
        10 => sql("DELETE FROM shard_0_idx"),
        11 => sql("DELETE FROM documents"),
        12 => sql("DELETE FROM state"),
        13 => sql("DELETE FROM sqlite_master WHERE name = 'documents'"),
        14 => sql("DELETE FROM sqlite_master WHERE name = 'progress'"),
        15 => sql("PRAGMA user_version = 77"),
        16 => {
            let length = std::fs::metadata(database).unwrap().len();
            std::fs::OpenOptions::new().write(true).open(database).unwrap().set_len(next(length)).unwrap();
        }
        _ => {
            let mut bytes = std::fs::read(database).unwrap();
            for _ in 0..=next(40) {
                let (place, flip) = (next(bytes.len() as u64), next(255) + 1);
                bytes[usize::try_from(place).unwrap()] ^= u8::try_from(flip).unwrap();
            }
            std::fs::write(database, bytes).unwrap();
        }
    }
}

#[test]
fn without_an_index_the_items_are_read() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    say(&live, "nobody has searched yet");
    live.shutdown().unwrap();
    // A file stands where the folder would be made.
    std::fs::write(temp.path().join("search"), b"").unwrap();
    let page = store.search(SearchQuery::new("searched")).unwrap();
    assert_eq!(places(&page), [("a".to_owned(), 0)]);
    assert!(page.notices.iter().any(|words| words.contains("can't be used")), "{page:?}");
    std::fs::remove_file(temp.path().join("search")).unwrap();
    let reader = Store::open(StoreOptions::folder(temp.path()).read_only()).unwrap();
    assert_eq!(places(&find(&reader, "searched")), [("a".to_owned(), 0)]);
    assert!(!temp.path().join("search").exists(), "who reads makes nothing");
}

#[test]
fn the_index_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let live = store.workspace(Path::new("/w/one")).unwrap().create_now(named("a")).unwrap();
    say(&live, "private words");
    find(&store, "private");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&temp.path().join("search")), 0o700);
    for file in index_files(temp.path()) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// What the index lacks is read from its newest end, on however many branches it stands.
#[test]
fn the_newest_of_many_threads_is_found_before_anything_is_indexed() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let workspace = store.workspace(Path::new("/w/one")).unwrap();
    for number in 0..1_100 {
        let live = workspace.create(named(&format!("t{number}"))).unwrap();
        let items = vec![NewItem::message(Role::User, format!("turnstile word{number}"))];
        let options = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
        live.append_with(items, options).unwrap();
    }
    for number in [0, 1_099] {
        let query = SearchQuery { patience: Duration::ZERO, ..SearchQuery::new(format!("word{number}")) };
        let page = store.search(query).unwrap();
        assert_eq!(places(&page), [(format!("t{number}"), 0)], "{page:?}");
    }
}

/// Damage of the store is not taken for damage of the index: that is kept, and neither a search nor indexing goes on for ever.
#[test]
fn a_damaged_store_costs_no_index_and_ends_every_search() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    {
        let store = open(&folder);
        let workspace = store.workspace(Path::new("/w/one")).unwrap();
        for number in 0..12 {
            let live = workspace.create_now(named(&format!("t{number}"))).unwrap();
            live.append((0..8).map(|n| NewItem::message(Role::User, format!("pebble {number} {n}"))).collect())
                .unwrap();
            live.shutdown().unwrap();
        }
        assert_eq!(find(&store, "pebble").threads.len(), 12);
        // So that there is something to be read each time.
        let live = store.resume(&id("t0"), false).unwrap();
        say(&live, "one more");
        live.shutdown().unwrap();
    }
    let database = folder.join("threadkeep.db");
    let whole = std::fs::read(&database).unwrap();
    let pointer = || std::fs::read(folder.join("search/current-1")).unwrap();
    let before = pointer();
    for page in 1..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xff);
        std::fs::write(&database, bytes).unwrap();
        let (done, ended) = std::sync::mpsc::channel();
        let place = folder.clone();
        let searching = std::thread::spawn(move || {
            // What is said is another test's matter; here it is that something is.
            if let Ok(store) = Store::open(StoreOptions::folder(place)) {
                drop((store.search(SearchQuery::new("pebble")), store.index_all(|_| {})));
            }
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("page {page}: it does not end"));
        searching.join().unwrap();
        assert_eq!(pointer(), before, "page {page}: the index was thrown away");
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(folder.join(format!("threadkeep.db{suffix}"))));
        }
    }
}
