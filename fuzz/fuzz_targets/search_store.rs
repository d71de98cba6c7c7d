//! Any query to a store that any text was just appended to: no error of the engine, and the item is found exactly where reading it
//! says that the query holds.
//!
//! A byte 1 ends the query.
#![no_main]

use std::cell::RefCell;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::search::{Field, Filters, SearchQuery, holds, normal, parse};
use threadkeep::{ItemId, NewItem, NewThread, Role, StoreOptions, Timestamp};

/// So many items are in the store before another one is begun.
const ITEMS: usize = 500;

thread_local! {
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

struct Open {
    store: Store,
    live: LiveThread,
    items: usize,
}

fn open() -> Open {
    let store = Store::open(StoreOptions::memory()).unwrap();
    let live = store.workspace(Path::new("/w")).unwrap().create_now(NewThread::default()).unwrap();
    Open { store, live, items: 0 }
}

fuzz_target!(|data: &[u8]| {
    let mut halves = data.splitn(2, |byte| *byte == 1);
    let query = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let text = String::from_utf8_lossy(halves.next().unwrap_or_default());
    OPEN.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|open| open.items >= ITEMS) {
            *slot = Some(open());
        }
        let open = slot.as_mut().unwrap();
        open.items += 1;
        check(open, &query, &text);
    });
});

fn check(open: &Open, query: &str, text: &str) {
    let item = open.live.append(vec![NewItem::message(Role::User, text)]).unwrap().items[0].id;
    let page = open.store.search(SearchQuery { per_thread: 0, limit: 200, ..SearchQuery::new(query) });
    let page = page.unwrap_or_else(|error| panic!("{error} for {query:?}"));
    assert!(page.notices.is_empty(), "{:?} for {query:?}", page.notices);
    let read = parse(query, Timestamp(0), &jiff::tz::TimeZone::UTC);
    if read.filters != Filters::default() {
        return;
    }
    let items: Vec<ItemId> =
        page.threads.iter().flat_map(|thread| &thread.hits).filter_map(|hit| Some(hit.item.as_ref()?.id)).collect();
    let expected = holds(&read.wanted, &normal(&[(Field::Said, text)]));
    // The newest one is always among those that are ranked.
    let is_found = items.contains(&item);
    assert!(is_found == expected || (page.matches > 200 && expected), "{query:?} in {text:?}: {is_found}, and reading says {expected}");
}
