//! Searching a store on a server: the same hits as everywhere, from every handle, and nothing left of what was taken away.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use postgres::{Client, NoTls};
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::search::{self, Field, SearchQuery};
use threadkeep::{NewItem, NewThread, RedactOptions, Role, StoreOptions, ThreadId, Timestamp};

use crate::payloads::{Numbers, amount};
use crate::redaction::holding;
use crate::server::{Server, server};

/// What texts and questions are made of: words that begin others, names with pieces, scripts without spaces, and signs.
const PIECES: [&str; 40] = [
    "the",
    "them",
    "theme",
    "parse",
    "parseHttpRequest",
    "HTTPServer",
    "http",
    "request",
    "http_request",
    "src/net/http.rs:42",
    "don't",
    "wrong-book",
    "C++",
    "c#",
    "f#",
    "Größe",
    "GROSSE",
    "Élan",
    "elan",
    "café",
    "配置文件",
    "文件",
    "解析失败",
    "件解",
    "ファイル",
    "파일",
    "ไฟล์",
    "🦀",
    "👩‍💻",
    "0",
    "42",
    "3f9a2b7",
    "3f9a2b7c0d",
    "_",
    "--",
    "…",
    "x",
    "xy",
    "(",
    "\u{301}",
];

fn stream(numbers: &mut Numbers, most: usize) -> String {
    let count = numbers.below(most + 1);
    let mut text = String::new();
    for _ in 0..count {
        text.push_str(PIECES[numbers.below(PIECES.len())]);
        text.push_str([" ", " ", " ", "\n", ". ", ""][numbers.below(6)]);
    }
    text
}

fn question(numbers: &mut Numbers) -> String {
    let count = 1 + numbers.below(4);
    let mut text = String::new();
    for _ in 0..count {
        let piece = PIECES[numbers.below(PIECES.len())];
        let phrase = stream(numbers, 3).replace('"', "");
        text.push_str(&match numbers.below(8) {
            0 | 1 => format!("\"{phrase}\""),
            2 => format!("-{piece}"),
            3 => format!("{piece}*"),
            4 => format!("{piece} OR {}", PIECES[numbers.below(PIECES.len())]),
            5 => format!("-\"{phrase}\""),
            _ => piece.to_owned(),
        });
        text.push(' ');
    }
    text
}

fn id(text: &str) -> ThreadId {
    ThreadId::new(text).unwrap()
}

fn create(store: &Store, name: &str) -> LiveThread {
    let thread = NewThread { id: Some(id(name)), ..NewThread::default() };
    store.workspace(Path::new("/w/one")).unwrap().create_now(thread).unwrap()
}

fn say(text: &str) -> NewItem {
    NewItem::message(Role::User, text)
}

/// The depths of all items that are found.
fn find(store: &Store, text: &str) -> Vec<u32> {
    let page = store.search(SearchQuery { per_thread: 0, limit: 200, ..SearchQuery::new(text) }).unwrap();
    assert!(page.notices.is_empty() && page.is_all, "{text:?}: {page:?}");
    let hits = page.threads.iter().flat_map(|thread| &thread.hits);
    let mut depths: Vec<u32> = hits.filter_map(|hit| Some(hit.item.as_ref()?.address.depth)).collect();
    depths.sort_unstable();
    depths
}

fn tables_of(server: &Server, address: &str) -> Client {
    let mut config = server.config();
    config.options(&format!("-c search_path={}", address.rsplit_once("schema=").unwrap().1));
    config.connect(NoTls).unwrap()
}

#[test]
fn both_engines_find_what_reading_the_texts_finds() {
    let Some(server) = server() else { return };
    let (rounds, first) = amount(3);
    for seed in first..first + rounds as u64 {
        let mut numbers = Numbers(seed);
        let texts: Vec<String> = (0..120).map(|_| stream(&mut numbers, 30)).collect();
        let stores = [StoreOptions::memory(), StoreOptions::postgres(&server.address()).unwrap()];
        let stores = stores.map(|options| {
            let store = Store::open(options).unwrap();
            create(&store, "a").append(texts.iter().map(|text| say(text)).collect()).unwrap();
            store
        });
        for _ in 0..120 {
            let text = question(&mut numbers);
            let query = search::parse(&text, Timestamp(0), &TimeZone::UTC);
            let reads = |text: &String| search::holds(&query.wanted, &search::normal(&[(Field::Said, text.as_str())]));
            let expected: Vec<u32> =
                (0..).zip(&texts).filter(|(_, text)| reads(text)).map(|(depth, _)| depth).collect();
            for (engine, store) in ["sqlite", "postgresql"].iter().zip(&stores) {
                assert_eq!(find(store, &text), expected, "seed {seed}, {engine}: {text:?}, by reading right");
            }
        }
    }
}

#[test]
fn every_handle_finds_what_was_acknowledged() {
    let Some(server) = server() else { return };
    let address = server.address();
    let open = || Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
    let (store, other) = (open(), open());
    let reader = Store::open(StoreOptions::postgres(&address).unwrap().read_only()).unwrap();
    let live = create(&store, "a");
    for round in 0..20_u32 {
        live.append(vec![say(&format!("the word number{round} was just said"))]).unwrap();
        for searching in [&reader, &other, &store] {
            assert_eq!(find(searching, &format!("number{round}")), [round]);
        }
    }
    assert_eq!(find(&reader, "\"just said\"").len(), 20);
}

/// Two stores that write and search at the same moment neither stop each other nor miss anything.
#[test]
fn stores_that_search_at_once_miss_nothing() {
    let Some(server) = server() else { return };
    let address = server.address();
    Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let address = &address;
            scope.spawn(move || {
                let store = Store::open(StoreOptions::postgres(address).unwrap()).unwrap();
                let live = create(&store, name);
                for round in 0..15_u32 {
                    live.append(vec![say(&format!("{name}{round} is said by {name}"))]).unwrap();
                    assert_eq!(find(&store, &format!("{name}{round}")), [round]);
                }
            });
        }
    });
    let store = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
    store.index_all(|_| {}).unwrap();
    assert_eq!(find(&store, "said").len(), 45);
    let mut tables = tables_of(&server, &address);
    let (docs, items): (i64, i64) = {
        let row =
            tables.query_one("SELECT (SELECT count(*) FROM search_docs), (SELECT count(*) FROM items)", &[]).unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!(docs, items, "each item is one document");
}

#[test]
fn a_damaged_index_is_told_and_made_anew() {
    let Some(server) = server() else { return };
    let address = server.address();
    let store = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
    let live = create(&store, "a");
    live.append((0..50).map(|number| say(&format!("counting {number}"))).collect()).unwrap();
    assert_eq!(find(&store, "counting").len(), 50);
    let mut tables = tables_of(&server, &address);
    for damage in [
        "DELETE FROM search_state",
        "UPDATE search_state SET top = 0",
        "UPDATE search_progress SET hash = '\\x00'",
        "TRUNCATE search_progress",
    ] {
        tables.batch_execute(damage).unwrap();
        // What is lacking is looked for only where something was changed since.
        let store = Store::open(StoreOptions::postgres(&address).unwrap()).unwrap();
        live.append(vec![say("one more")]).unwrap();
        store.search(SearchQuery::new("counting")).unwrap();
        assert_eq!(find(&store, "counting").len(), 50, "{damage}");
        assert!(store.verify(&id("a")).unwrap().is_intact());
    }
}

#[test]
fn no_word_of_what_was_redacted_is_left_in_the_tables() {
    const WORD: &str = "zw9tscher4711kmqx";
    let Some(server) = server() else { return };
    let store = Store::open(StoreOptions::postgres(&server.address()).unwrap()).unwrap();
    let live = create(&store, "leaky");
    let place = live.append(vec![say(&format!("a canary {WORD} sings"))]).unwrap().items[0].address();
    live.append(vec![say("another canary")]).unwrap();
    live.shutdown().unwrap();
    assert_eq!(find(&store, WORD), [0]);
    let because = RedactOptions { reason: "a key".to_owned(), ..RedactOptions::default() };
    let report = store.redact(&id("leaky"), vec![place], because).unwrap();
    assert_eq!(report.erased, Some(true), "{report:?}");
    assert_eq!(holding(&server, WORD), Vec::<PathBuf>::new());
    assert_eq!(find(&store, WORD), Vec::<u32>::new());
    assert_eq!(find(&store, "canary"), [1]);
}
