//! Pages, cursors, the model's context, verifying.

use super::{ensure, ensure_eq, ensure_err, promises, say, text_of, texts, thread_with};
use crate::error::Error;
use crate::{AppendOptions, ItemQuery, Kind, NewItem, TurnQuery};

promises! {
    /// Pages in either direction, put together, are the path: nothing twice, nothing missing, across branches.
    fn pages_cover_the_path(store) {
        let thread = thread_with(store, &[])?;
        for number in 0..23 {
            let head = thread.head()?;
            let after = head.filter(|_| number % 5 == 4).map(|head| crate::Address { depth: head.depth, ..head });
            thread.append_with(vec![say(&number.to_string())], AppendOptions { after, ..AppendOptions::default() })?;
            if number % 7 == 6 {
                let back = store.address_at(thread.id(), thread.head()?.map_or(0, |head| head.depth) - 1)?;
                thread.rewind(back)?;
            }
        }
        let whole = texts(store, thread.id())?;
        for (newest_first, limit) in [(false, 1), (false, 4), (true, 1), (true, 4), (true, 100)] {
            let mut query = ItemQuery { newest_first, limit, ..ItemQuery::default() };
            let mut seen = Vec::new();
            loop {
                let page = store.items(thread.id(), query.clone())?;
                ensure!(page.entries.len() <= limit);
                seen.extend(page.entries.iter().map(text_of));
                match page.next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
            if newest_first {
                seen.reverse();
            }
            ensure_eq!(seen, whole);
        }
    }

    /// A cursor keeps to the path that its first page saw, though the head moves on.
    fn a_cursor_keeps_to_its_path(store) {
        let thread = thread_with(store, &["a", "b", "c"])?;
        let query = ItemQuery { limit: 1, ..ItemQuery::default() };
        let cursor = store.items(thread.id(), query.clone())?.next_cursor;
        let root = store.address_at(thread.id(), 0)?;
        thread.append_with(vec![say("B")], AppendOptions { after: Some(root), ..AppendOptions::default() })?;
        let page = store.items(thread.id(), ItemQuery { cursor, limit: 5, ..query })?;
        ensure_eq!(page.entries.iter().map(text_of).collect::<Vec<_>>(), ["b", "c"]);
    }

    /// A cursor goes with its query: another thread, another direction, or damage is refused.
    fn cursors_are_bound_to_their_query(store) {
        let thread = thread_with(store, &["a", "b"])?;
        let other = thread_with(store, &["a", "b"])?;
        let query = ItemQuery { limit: 1, ..ItemQuery::default() };
        let cursor = store.items(thread.id(), query.clone())?.next_cursor;
        ensure!(cursor.is_some());
        let with = ItemQuery { cursor, ..query };
        ensure_err!(store.items(other.id(), with.clone()), Error::Invalid { field: "cursor", .. });
        ensure_err!(store.items(thread.id(), ItemQuery { newest_first: true, ..with }), Error::Invalid { field: "cursor", .. });
        for cursor in ["", "x", "%00", "AAAAAAAAAAAAAAAAAAAAAAAA"] {
            let query = ItemQuery { cursor: Some(cursor.to_owned()), ..ItemQuery::default() };
            ensure_err!(store.items(thread.id(), query), Error::Invalid { field: "cursor", .. });
        }
    }

    /// A limit of nothing gives nothing; a depth range gives that range.
    fn limits_and_ranges_mean_what_they_say(store) {
        let thread = thread_with(store, &["a", "b", "c", "d"])?;
        let none = store.items(thread.id(), ItemQuery { limit: 0, ..ItemQuery::default() })?;
        ensure!(none.entries.is_empty());
        let all = store.items(thread.id(), ItemQuery { limit: usize::MAX, ..ItemQuery::default() })?;
        ensure_eq!((all.entries.len(), all.next_cursor), (4, None));
        let middle = store.items(thread.id(), ItemQuery { from: 1, to: Some(2), ..ItemQuery::default() })?;
        ensure_eq!(middle.entries.iter().map(text_of).collect::<Vec<_>>(), ["b", "c"]);
        ensure_eq!(middle.next_cursor, None);
        let beyond = store.items(thread.id(), ItemQuery { from: 9, ..ItemQuery::default() })?;
        ensure!(beyond.entries.is_empty());
    }

    /// A limit that is too large gives a whole page and a cursor to what is left, from either end.
    fn a_limit_beyond_the_bound_is_a_page_and_a_cursor(store) {
        let thread = thread_with(store, &[])?;
        thread.append((0..2_001).map(|number| say(&number.to_string())).collect())?;
        for newest_first in [false, true] {
            let query = ItemQuery { newest_first, limit: usize::MAX, ..ItemQuery::default() };
            let page = store.items(thread.id(), query.clone())?;
            ensure_eq!((page.entries.len(), page.next_cursor.is_some()), (2_000, true));
            let rest = store.items(thread.id(), ItemQuery { cursor: page.next_cursor, ..query })?;
            ensure_eq!((rest.entries.len(), rest.next_cursor), (1, None));
        }
    }

    /// The model's context begins at the latest compaction of the active path, also one that a fork shares.
    fn the_context_begins_at_the_latest_compaction(store) {
        let thread = thread_with(store, &["old"])?;
        let compact = |text: &str| NewItem { kind: Kind::Compaction, ..say(text) };
        thread.append(vec![compact("first"), say("x"), compact("second"), say("y")])?;
        let context = |id| Ok::<_, Error>(store.model_context(id, ItemQuery::default())?.entries.iter().map(text_of).collect::<Vec<_>>());
        ensure_eq!(context(thread.id())?, ["second", "y"]);
        let fork = store.fork(thread.id(), None, crate::NewThread::default())?;
        store.resume(&fork.id, false)?.append(vec![say("z")])?;
        ensure_eq!(context(&fork.id)?, ["second", "y", "z"]);
        let before = store.address_at(thread.id(), 2)?;
        thread.rewind(before)?;
        ensure_eq!(context(thread.id())?, ["first", "x"]);
        let plain = thread_with(store, &["only"])?;
        ensure_eq!(context(plain.id())?, ["only"]);
    }

    /// Turns come in pages, in both directions.
    fn turns_come_in_pages(store) {
        let thread = thread_with(store, &[])?;
        for number in 0..7 {
            thread.begin_turn(say(&number.to_string()))?;
        }
        for newest_first in [false, true] {
            let mut query = TurnQuery { newest_first, limit: 3, cursor: None };
            let mut seen = Vec::new();
            loop {
                let page = store.turns(thread.id(), query.clone())?;
                seen.extend(page.entries.iter().map(|turn| turn.ordinal));
                match page.next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
            if newest_first {
                seen.reverse();
            }
            ensure_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
        }
    }

    /// Verifying a whole store counts every thread, in the trash and archived ones too, and finds them intact. Without a seal it
    /// calls none of them valid, and says what would not show.
    fn an_untouched_store_is_intact_and_not_provable(store) {
        let archived = thread_with(store, &["a"])?;
        let trashed = thread_with(store, &["b"])?;
        store.archive(archived.id())?;
        trashed.shutdown()?;
        store.delete(trashed.id())?;
        thread_with(store, &["c", "d"])?;
        let report = store.verify_all(|_| {})?;
        ensure_eq!((report.threads, report.intact, report.valid, report.items), (3, 3, 0, 4));
        ensure_eq!(report.outcome(), crate::Outcome::NotProvable);
        ensure_eq!(report.not_provable.get(&crate::GapKind::NoSeal), Some(&3));
    }
}
