//! Searching: what is found, where it is said to stand, and who sees it.

use std::collections::BTreeSet;

use super::languages::{CorpusItem, Languages};
use super::{Broken, ensure, ensure_eq, ensure_err, promises, say, workspace};
use crate::blocking::{LiveThread, Store, Threads};
use crate::error::Error;
use crate::search::{FoundItem, SearchPage, SearchQuery, Standing};
use crate::{Address, Change, NewItem, NewThread, RedactOptions, Role, ThreadId, ThreadPatch};

promises! {
    /// What was acknowledged is found by the next search, through any handle.
    fn what_is_acknowledged_is_found_at_once(store) {
        let live = thread(store, "a", &[])?;
        let other = store.clone();
        for number in 0..12_u32 {
            live.append(vec![say(&format!("the pelican number{number} has just landed"))])?;
            for handle in [store, &other] {
                ensure_eq!(places(handle, &format!("number{number}"))?, [("a".to_owned(), number)]);
            }
            ensure_eq!(places(&*workspace(store)?, "\"just landed\"")?.len(), number as usize + 1);
        }
    }

    /// In eleven languages a query finds what a corpus of them says, and nothing else.
    fn every_language_is_found(store) {
        let corpus = Languages::corpus();
        let live = thread(store, "a", &[])?;
        let appended = live.append(corpus.items.iter().map(CorpusItem::to_append).collect())?;
        for query in &corpus.queries {
            let page = store.search(SearchQuery { per_thread: 0, limit: 200, ..SearchQuery::new(&query.text) })?;
            let found: BTreeSet<&str> = (corpus.items.iter().zip(&appended.items))
                .filter(|(_, stored)| hits(&page).iter().any(|(_, item)| item.id == stored.id))
                .map(|(item, _)| item.id.as_str())
                .collect();
            ensure_eq!((&query.text, found), (&query.text, query.finds.iter().map(String::as_str).collect()));
        }
    }

    /// Words, phrases, beginnings, alternatives and what must be absent choose what is found.
    fn operators_choose(store) {
        thread(store, "a", &[
            "please parse the config file",
            "the file of the configuration",
            "parse nothing, file nothing",
            "parseHttpRequest failed in src/net/http_client.rs:42",
        ])?;
        let asked: &[(&str, &[u32])] = &[
            ("parse", &[0, 2, 3]),
            ("PARSE File", &[0, 2]),
            ("\"config file\"", &[0]),
            ("\"file config\"", &[]),
            ("config*", &[0, 1]),
            ("\"the conf\"*", &[0, 1]),
            ("please OR nothing", &[0, 2]),
            ("file -config", &[1, 2]),
            ("file -\"the config\"", &[1, 2]),
            ("(please OR configuration) file", &[0, 1]),
            ("http request", &[3]),
            ("parseHttpRequest", &[3]),
            ("parsehttprequest", &[3]),
            ("src/net/http_client.rs", &[3]),
            ("http_client.rs:42", &[3]),
            ("-parse", &[1]),
            ("absent", &[]),
            ("", &[0, 1, 2, 3]),
        ];
        for (text, depths) in asked {
            ensure_found(store, text, depths)?;
        }
    }

    /// Filters choose by what an item is, and their opposites by what it is not.
    fn filters_choose(store) {
        let live = thread(store, "a", &["read the config"])?;
        live.append(vec![
            NewItem::tool_call("c1", "read_file", r#"{"path":"src/config.rs"}"#),
            NewItem::tool_result("c1", "error: no config there", true),
            NewItem::message(Role::Assistant, "The config is gone:\n```\nls\n```\nsee https://example.org/config"),
        ])?;
        store.update(live.id(), ThreadPatch { title: Change::Set("Lost settings".to_owned()), ..ThreadPatch::default() })?;
        thread(store, "b", &["config of another"])?;
        let asked: &[(&str, &[u32])] = &[
            ("config role:user thread:a", &[0]),
            ("config thread:a -role:user", &[1, 2, 3]),
            ("config thread:a role:user role:assistant", &[0, 1, 3]),
            ("kind:tool_result", &[2]),
            ("tool:read_file", &[1, 2]),
            ("has:error", &[2]),
            ("has:code", &[3]),
            ("has:link config", &[3]),
            ("config -thread:a", &[0]),
            ("title:settings config", &[0, 1, 2, 3]),
            ("config after:2d thread:a", &[0, 1, 2, 3]),
            ("config before:2001-01-01", &[]),
            ("workspace:nowhere config", &[]),
        ];
        for (text, depths) in asked {
            ensure_found(store, text, depths)?;
        }
        ensure!(!store.search(SearchQuery::new("workspace:nowhere config"))?.not_understood.is_empty());
    }

    /// Every script is searched: texts without spaces by any run of characters, others without regard to case and accents.
    fn every_script_is_searched(store) {
        thread(store, "a", &[
            "配置文件解析失败，请检查日志",
            "ファイルを読み込めませんでした",
            "파일을 찾을 수 없습니다",
            "Größe über Élan — façade ΑΘΗΝΑ Привет",
            "שָׁלוֹם עולם مُحَمَّد",
            "ไฟล์เสียหาย 🦀 done",
        ])?;
        let asked: &[(&str, u32)] = &[
            ("解析", 0), ("文件解析失败", 0), ("请检查", 0), ("読み込め", 1), ("ファイル", 1), ("파일을", 2), ("없습니다", 2),
            ("grosse", 3), ("GRÖSSE", 3), ("elan", 3), ("facade", 3), ("αθηνα", 3), ("привет", 3), ("שלום", 4), ("محمد", 4),
            ("เสียหาย", 5), ("🦀", 5),
        ];
        for (text, depth) in asked {
            ensure_found(store, text, &[*depth])?;
        }
        ensure_found(store, "解失", &[])?;
    }

    /// Any text is a query: none is an error, and what a text says is found by it as a phrase.
    fn any_text_is_a_query(store) {
        let texts = [
            "wrong-book", "don't", "a/b", "C++", "c#", "foo(bar)", "{\"key\": [1, 2]}", "x = y && z || !w", "100%", "a:b", "NEAR(a b)",
            "col:term", "^start", "*", "\"", "\"open", "'", "''", "--", "-", "- -", "OR", "a OR", "OR b", "NOT x", "AND", "(", ")",
            "((((", "a ) b (", "\u{0}", "nul\u{0}inside", "tab\tand\nline", "\u{1b}[31mred\u{1b}[0m", "\\", "\\'", "'; DROP TABLE items; --",
            "$1", "?1", "@0.1", "!", "!!", "a & b", "a | b", "a <-> b", "x:*", ":*", "<1>", "%", "_", "__init__", "…", "“quoted”", "-word",
            "--long-flag", "role:", "role:nobody", "after:never", "before:2026-13-45", "thread:\"", "has:nothing", "path:somewhere",
            "日本", "🏳️‍🌈", "e\u{301}", "\u{202e}abc", "\u{feff}", "ﬁ", "İ", "ẞ",
        ];
        let live = thread(store, "a", &[])?;
        for (depth, text) in (0..).zip(texts) {
            live.append(vec![say(&format!("begin {text} end"))])?;
            let page = store.search(SearchQuery::new(text))?;
            ensure!(page.notices.is_empty());
            let phrase = format!("\"begin {} end\"", text.replace('"', " "));
            ensure!(places(store, &phrase)?.contains(&("a".to_owned(), depth)));
        }
        for text in ["(".repeat(20_000), "a OR ".repeat(20_000), "-".repeat(1 << 16), "\"a ".repeat(9_999), "word ".repeat(30_000)] {
            store.search(SearchQuery::new(text))?;
        }
    }

    /// What forks share is one hit, which names them, whichever of them is searched through.
    fn what_forks_share_is_one_hit(store) {
        let live = thread(store, "origin", &["shared pelican"])?;
        let shared = head(&live)?;
        live.append(vec![say("origin alone")])?;
        for fork in ["fork-one", "fork-two"] {
            store.fork(live.id(), Some(shared), named(fork))?;
        }
        let found = items(store, "pelican")?;
        ensure_eq!(found.len(), 1);
        ensure_eq!(found[0].0, "origin");
        ensure_eq!(found[0].1.shared_with, [ThreadId::new("fork-one")?, ThreadId::new("fork-two")?]);
        ensure_eq!(places(store, "pelican thread:fork-two")?.len(), 1);
        ensure_eq!(places(store, "alone thread:fork-two")?, []);
    }

    /// A hit says whether it lies on the active path, and if not where it leaves it; rewinding takes it off and back on.
    fn a_hit_says_where_it_lies(store) {
        let live = thread(store, "a", &["root", "second"])?;
        let second = head(&live)?;
        live.append(vec![say("the heron waits"), say("the heron flies")])?;
        let flies = head(&live)?;
        ensure!(items(store, "heron")?.iter().all(|(_, item)| item.standing == Standing::ActivePath));
        live.rewind(second)?;
        live.append(vec![say("another way")])?;
        for (depth, (_, item)) in (2..).zip(items(store, "heron")?) {
            let Standing::Branch { leaves_at, distance, .. } = item.standing else {
                return Err(Broken(format!("{item:?} is on the active path")));
            };
            ensure_eq!((item.address.depth, leaves_at, distance), (depth, Some(1), depth - 1));
        }
        ensure_eq!(places(store, "heron path:active")?, []);
        ensure_eq!(places(store, "heron path:all")?.len(), 2);
        live.rewind(flies)?;
        ensure_eq!(places(store, "heron path:active")?.len(), 2);
        ensure_eq!(places(store, "another path:active")?, []);
    }

    /// A workspace finds what its own threads said and share, and nothing else.
    fn a_workspace_finds_its_own(store) {
        let (one, two) = (store.workspace("/conformance/one".as_ref())?, store.workspace("/conformance/two".as_ref())?);
        let mine = one.create_now(named("mine"))?;
        mine.append(vec![say("a pelican here")])?;
        let yours = two.create_now(named("yours"))?;
        yours.append(vec![say("a pelican there")])?;
        ensure_eq!(places(&one, "pelican")?, [("mine".to_owned(), 0)]);
        ensure_eq!(places(&two, "pelican")?, [("yours".to_owned(), 0)]);
        ensure_eq!(places(&one, "pelican thread:yours")?, []);
        ensure_eq!(places(store, "pelican")?.len(), 2);
        mine.shutdown()?;
        yours.shutdown()?;
        store.remap(two.info().id, one.info().id)?;
        ensure_eq!(places(&one, "pelican")?.len(), 2);
    }

    /// The trash is searched only when it is asked for.
    fn the_trash_is_searched_when_asked_for(store) {
        thread(store, "a", &["a pelican"])?.shutdown()?;
        store.delete(&ThreadId::new("a")?)?;
        ensure_eq!(places(store, "pelican")?, []);
        let trashed = SearchQuery { trashed: true, ..SearchQuery::new("pelican") };
        ensure_eq!(store.search(trashed)?.threads.len(), 1);
        store.restore(&ThreadId::new("a")?)?;
        ensure_eq!(places(store, "pelican")?.len(), 1);
    }

    /// What was redacted or purged is found no more, and its neighbours are.
    fn what_is_taken_away_is_found_no_more(store) {
        let live = thread(store, "a", &["canary zwitscher4711", "canary two"])?;
        live.shutdown()?;
        thread(store, "b", &["canary three"])?.shutdown()?;
        ensure_eq!(places(store, "zwitscher4711")?.len(), 1);
        let first = store.address_at(live.id(), 0)?;
        let because = RedactOptions { reason: "a key".to_owned(), ..RedactOptions::default() };
        store.redact(live.id(), vec![first], because)?;
        ensure_eq!(places(store, "zwitscher4711")?, []);
        ensure_eq!(places(store, "zwitscher*")?, []);
        ensure_eq!(places(store, "canary")?, [("a".to_owned(), 1), ("b".to_owned(), 0)]);
        store.delete(live.id())?;
        store.purge(live.id())?;
        let trashed = SearchQuery { trashed: true, ..SearchQuery::new("canary") };
        ensure_eq!(hits(&store.search(trashed)?).len(), 1);
    }

    /// A title is found where it stands, as long as the thread has it.
    fn titles_are_found(store) {
        let live = thread(store, "a", &["nothing else"])?;
        let titled = |text: &str| ThreadPatch { title: Change::Set(text.to_owned()), ..ThreadPatch::default() };
        store.update(live.id(), titled("Repairing the lighthouse"))?;
        let page = store.search(SearchQuery::new("lighthouse"))?;
        ensure_eq!(page.threads.len(), 1);
        ensure!(page.threads[0].hits[0].item.is_none());
        store.update(live.id(), titled("Painting"))?;
        ensure!(store.search(SearchQuery::new("lighthouse"))?.threads.is_empty());
        ensure_eq!(store.search(SearchQuery::new("painting"))?.threads.len(), 1);
        store.update(live.id(), ThreadPatch { title: Change::Clear, ..ThreadPatch::default() })?;
        ensure!(store.search(SearchQuery::new("painting"))?.threads.is_empty());
    }

    /// Pages show every hit once, while more is appended; a cursor goes with its query.
    fn pages_show_every_hit_once(store) {
        let live = thread(store, "a", &[])?;
        let items = |from: u32, to: u32| (from..to).map(|number| say(&format!("counting item {number}"))).collect::<Vec<_>>();
        live.append(items(0, 230))?;
        let mut query = SearchQuery { per_thread: 0, limit: 17, ..SearchQuery::new("counting") };
        let mut seen = Vec::new();
        loop {
            let page = store.search(query.clone())?;
            ensure!(page.threads.len() <= 17);
            seen.extend(hits(&page).into_iter().map(|(_, item)| item.address.depth).filter(|depth| *depth < 230));
            if seen.len() > 200 {
                live.append(items(230, 233))?;
            }
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        seen.sort_unstable();
        ensure_eq!(seen, (0..230).collect::<Vec<u32>>());
        let other = SearchQuery { text: "item".to_owned(), cursor: store.search(SearchQuery { cursor: None, ..query.clone() })?.next_cursor, ..query };
        ensure!(other.cursor.is_some());
        ensure_err!(store.search(other), Error::Invalid { field: "cursor", .. });
    }

    /// A phrase is found wherever it stands in a long text, and found nowhere where its words only stand apart.
    fn long_texts_are_searched_exactly(store) {
        let filler = |count: usize| (0..count).map(|number| format!("f{number} ")).collect::<String>();
        thread(store, "a", &[
            &format!("{}far away end", filler(20_000)),
            &format!("{}often seen", "often said ".repeat(400)),
            &format!("end {}away far seen often", filler(17_000)),
        ])?;
        for (text, depth) in [("\"far away end\"", 0), ("\"often seen\"", 1), ("\"f19999 far\"", 0), ("\"away far\"", 2), ("\"seen often\"", 2)] {
            ensure_found(store, text, &[depth])?;
        }
        ensure_found(store, "\"said seen\"", &[])?;
        ensure_found(store, "\"end away\"", &[])?;
        ensure_found(store, "end -\"away end\"", &[2])?;
        ensure_found(store, "seen -\"often seen\"", &[2])?;
    }
}

fn named(id: &str) -> NewThread {
    NewThread { id: ThreadId::new(id).ok(), ..NewThread::default() }
}

fn thread(store: &Store, id: &str, texts: &[&str]) -> Result<LiveThread, Error> {
    let live = workspace(store)?.create_now(named(id))?;
    for text in texts {
        live.append(vec![say(text)])?;
    }
    Ok(live)
}

fn head(live: &LiveThread) -> Result<Address, Error> {
    live.head()?.ok_or_else(|| Error::not_found("head", live.id()))
}

/// Every item that is found, without its thread's other hits in the way.
fn items(threads: &Threads, text: &str) -> Result<Vec<(String, FoundItem)>, Broken> {
    let page = threads.search(SearchQuery { per_thread: 0, limit: 200, ..SearchQuery::new(text) })?;
    ensure_quiet(&page)?;
    let mut items = hits(&page);
    items.sort_by(|(one, a), (other, b)| (one, a.address.depth).cmp(&(other, b.address.depth)));
    Ok(items)
}

fn ensure_quiet(page: &SearchPage) -> Result<(), Broken> {
    match page.notices.as_slice() {
        [] => Ok(()),
        notices => Err(Broken(format!("{notices:?}"))),
    }
}

fn hits(page: &SearchPage) -> Vec<(String, FoundItem)> {
    let all = page.threads.iter().flat_map(|thread| thread.hits.iter().map(move |hit| (thread, hit)));
    all.filter_map(|(thread, hit)| Some((thread.id.to_string(), hit.item.clone()?))).collect()
}

/// The thread and the depth of every item that is found.
fn places(threads: &Threads, text: &str) -> Result<Vec<(String, u32)>, Broken> {
    Ok(items(threads, text)?.into_iter().map(|(thread, item)| (thread, item.address.depth)).collect())
}

fn ensure_found(threads: &Threads, text: &str, depths: &[u32]) -> Result<(), Broken> {
    let found: Vec<u32> = items(threads, text)?.into_iter().map(|(_, item)| item.address.depth).collect();
    match found == depths {
        true => Ok(()),
        false => Err(Broken(format!("{text:?} finds {found:?}, not {depths:?}"))),
    }
}
