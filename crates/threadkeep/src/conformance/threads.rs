//! Metadata, lists, shelves.

use std::collections::BTreeMap;

use super::{ensure, ensure_eq, ensure_err, promises, say, thread_with, workspace};
use crate::blocking::Store;
use crate::error::Error;
use crate::{
    Change, Details, Lineage, ListQuery, NewThread, Shelf, Shelves, SortKey, Status, Thread, ThreadId, ThreadPatch,
    Timestamp, Usage,
};

fn named(store: &Store, id: &str, details: Details, created_at: i64) -> Result<ThreadId, Error> {
    let id = ThreadId::new(id)?;
    let created_at = Some(Timestamp(created_at));
    workspace(store)?.create_now(NewThread { id: Some(id.clone()), details, created_at, ..NewThread::default() })?;
    Ok(id)
}

fn listed(store: &Store, query: &ListQuery) -> Result<Vec<String>, Error> {
    let mut query = query.clone();
    let mut ids = Vec::new();
    loop {
        let page = store.list(query.clone())?;
        ids.extend(page.entries.iter().map(|thread| thread.id.to_string()));
        match page.next_cursor {
            None => return Ok(ids),
            cursor => query.cursor = cursor,
        }
    }
}

fn full() -> Details {
    let text = |word: &str| Some(format!("{word} \u{1F9F5} 線"));
    Details {
        title: text("title"),
        preview: text("preview"),
        agent: text("agent"),
        source: text("source"),
        provider: text("provider"),
        model: text("model"),
        cwd: text("cwd"),
        working_path: text("working_path"),
        rollout_path: text("rollout_path"),
        git_sha: text("git_sha"),
        git_branch: text("git_branch"),
        git_origin: text("git_origin"),
        cli_version: text("cli_version"),
        sandbox_policy: text("sandbox_policy"),
        approval_policy: text("approval_policy"),
        memory_mode: text("memory_mode"),
        persona: text("persona"),
        parent: ThreadId::new("parent").ok(),
        end_reason: None,
        usage: Some(Usage { input: 7, cached: 3, output: 2, reasoning: 1 }),
        extra: BTreeMap::from([("k".to_owned(), serde_json::json!({"n": [1, null, "x"]}))]),
    }
}

promises! {
    /// Every descriptive field comes back as it was given.
    fn details_are_kept(store) {
        let id = named(store, "t", full(), 1_000)?;
        let thread = store.get(&id)?;
        ensure_eq!(thread.details, full());
        ensure_eq!((thread.created_at, thread.status, thread.pinned), (Timestamp(1_000), Status::Idle, false));
    }

    /// A partial update changes what it names and nothing else.
    fn updates_erase_nothing(store) {
        let id = named(store, "t", full(), 0)?;
        let patch = ThreadPatch {
            title: Change::Set("new".to_owned()),
            model: Change::Clear,
            pinned: Some(true),
            status: Some(Status::Unknown("waiting_approval".to_owned())),
            extra: BTreeMap::from([("j".to_owned(), Change::Set(serde_json::json!(2)))]),
            ..ThreadPatch::default()
        };
        let updated = store.update(&id, patch)?;
        let mut expected = Details { title: Some("new".to_owned()), model: None, ..full() };
        expected.extra.insert("j".to_owned(), serde_json::json!(2));
        ensure_eq!(updated.details, expected);
        ensure_eq!((updated.pinned, updated.status.as_str()), (true, "waiting_approval"));
        ensure_eq!(store.get(&id)?.status.as_str(), "waiting_approval");
    }

    /// An update that expects another version is refused; each update raises the version.
    fn versions_are_compared(store) {
        let id = named(store, "t", Details::default(), 0)?;
        let first = store.get(&id)?.version;
        let patch = |version| ThreadPatch { expect_version: Some(version), ..ThreadPatch::title("x") };
        let second = store.update(&id, patch(first))?.version;
        ensure!(second > first);
        ensure_err!(store.update(&id, patch(first)), Error::Conflict { what: "version", .. });
    }

    /// NUL and oversized metadata are refused with the field's name, and nothing is changed.
    fn unstorable_metadata_is_refused(store) {
        let id = named(store, "t", full(), 0)?;
        for title in ["a\0b".to_owned(), "x".repeat(70_000)] {
            ensure_err!(store.update(&id, ThreadPatch::title(title)), Error::Invalid { field: "title", .. });
        }
        ensure_eq!(store.get(&id)?.details, full());
    }

    /// Archiving keeps the status, is listed apart, and is undone by unarchiving.
    fn archiving_restores_the_former_status(store) {
        let id = named(store, "t", Details::default(), 0)?;
        store.update(&id, ThreadPatch { status: Some(Status::Failed), ..ThreadPatch::default() })?;
        let archived = store.archive(&id)?;
        ensure_eq!((archived.shelf, archived.archived_at.is_some()), (Shelf::Archived, true));
        ensure_eq!(store.archive(&id)?.archived_at, archived.archived_at);
        ensure!(listed(store, &ListQuery::default())?.is_empty());
        ensure_eq!(listed(store, &ListQuery { shelves: Shelves::Archived, ..ListQuery::default() })?, ["t"]);
        ensure_eq!(listed(store, &ListQuery { shelves: Shelves::Both, ..ListQuery::default() })?, ["t"]);
        let back = store.unarchive(&id)?;
        ensure_eq!((back.shelf, back.status, back.archived_at), (Shelf::Active, Status::Failed, None));
    }

    /// The trash is a shelf of its own; restoring puts a thread back where it was.
    fn the_trash_gives_back(store) {
        let thread = thread_with(store, &["a"])?;
        let id = thread.id().clone();
        thread.shutdown()?;
        store.archive(&id)?;
        ensure_eq!(store.delete(&id)?.shelf, Shelf::Trashed);
        ensure!(listed(store, &ListQuery { shelves: Shelves::Both, ..ListQuery::default() })?.is_empty());
        ensure_eq!(listed(store, &ListQuery { shelves: Shelves::Trash, ..ListQuery::default() })?, [id.to_string()]);
        let restored = store.restore(&id)?;
        ensure_eq!((restored.shelf, restored.trashed_at), (Shelf::Archived, None));
        ensure_err!(store.restore(&id), Error::NotFound { .. });
        ensure_err!(store.purge(&id), Error::Conflict { what: "shelf", .. });
    }

    /// Every order is total and complete, in both directions and with any page size.
    fn lists_are_totally_ordered(store) {
        for number in 0..12 {
            // Equal creation times: the id decides.
            named(store, &format!("t{number:02}"), Details::default(), 1_000 + number / 4)?;
        }
        for sort in [SortKey::Activity, SortKey::Updated, SortKey::Created] {
            let whole = listed(store, &ListQuery { sort, limit: 100, ..ListQuery::default() })?;
            ensure_eq!(whole.len(), 12);
            for limit in [1, 5, 12] {
                ensure_eq!(listed(store, &ListQuery { sort, limit, ..ListQuery::default() })?, whole);
                let mut up = listed(store, &ListQuery { sort, limit, ascending: true, ..ListQuery::default() })?;
                up.reverse();
                ensure_eq!(up, whole);
            }
        }
        ensure!(store.list(ListQuery { limit: 0, ..ListQuery::default() })?.entries.is_empty());
    }

    /// An append moves a thread to the front by activity; a rename moves it by update only.
    fn activity_is_appending(store) {
        let a = thread_with(store, &["a"])?;
        let b = thread_with(store, &["b"])?;
        let front = |sort| Ok::<_, Error>(listed(store, &ListQuery { sort, ..ListQuery::default() })?.remove(0));
        store.update(a.id(), ThreadPatch::title("renamed"))?;
        ensure_eq!(front(SortKey::Activity)?, b.id().to_string());
        ensure_eq!(front(SortKey::Updated)?, a.id().to_string());
        a.append(vec![say("again")])?;
        ensure_eq!(front(SortKey::Activity)?, a.id().to_string());
    }

    /// Filters narrow a list to exactly what they name.
    fn filters_mean_what_they_say(store) {
        let details = |agent: &str, title: &str| Details {
            agent: Some(agent.to_owned()),
            title: Some(title.to_owned()),
            provider: Some(format!("{agent}-provider")),
            cwd: Some(format!("/w/{agent}")),
            source: Some("cli".to_owned()),
            ..Details::default()
        };
        named(store, "one", details("codex", "Fix the LOGIN test"), 0)?;
        named(store, "two", details("claude-code", "Größe ändern"), 0)?;
        named(store, "three", Details { parent: ThreadId::new("one").ok(), ..Details::default() }, 0)?;
        let ids = |query: ListQuery| listed(store, &ListQuery { ascending: true, ..query });
        let base = ListQuery::default;
        ensure_eq!(ids(ListQuery { agent: Some("codex".to_owned()), ..base() })?, ["one"]);
        ensure_eq!(ids(ListQuery { provider: Some("claude-code-provider".to_owned()), ..base() })?, ["two"]);
        ensure_eq!(ids(ListQuery { cwd: Some("/w/codex".to_owned()), ..base() })?, ["one"]);
        ensure_eq!(ids(ListQuery { source: Some("cli".to_owned()), ..base() })?, ["one", "two"]);
        ensure_eq!(ids(ListQuery { text: Some("login".to_owned()), ..base() })?, ["one"]);
        ensure_eq!(ids(ListQuery { text: Some("GRÖSSE".to_owned()), ..base() })?.len(), 0);
        ensure_eq!(ids(ListQuery { text: Some("größe".to_owned()), ..base() })?, ["two"]);
        let children = Lineage::ChildrenOf(ThreadId::new("one")?);
        ensure_eq!(ids(ListQuery { lineage: Some(children), ..base() })?, ["three"]);
        for hostile in ["'); DROP TABLE threads; --", "%", "_", "\" OR 1=1"] {
            ensure!(ids(ListQuery { agent: Some(hostile.to_owned()), ..base() })?.is_empty());
            ensure!(ids(ListQuery { text: Some(hostile.to_owned()), ..base() })?.is_empty());
        }
        ensure_err!(ids(ListQuery { agent: Some("\0".to_owned()), ..base() }), Error::Invalid { .. });
    }

    /// A list's cursor goes with its query.
    fn list_cursors_are_bound(store) {
        named(store, "a", Details::default(), 0)?;
        named(store, "b", Details::default(), 0)?;
        let cursor = store.list(ListQuery { limit: 1, ..ListQuery::default() })?.next_cursor;
        ensure!(cursor.is_some());
        let other = ListQuery { limit: 1, sort: SortKey::Created, cursor, ..ListQuery::default() };
        ensure_err!(store.list(other), Error::Invalid { field: "cursor", .. });
    }

    /// A thread is found by its id, an unambiguous prefix, its exact title, or as the latest.
    fn threads_are_found_by_name(store) {
        let title = |title: &str| Details { title: Some(title.to_owned()), ..Details::default() };
        named(store, "alpha-1", title("Same title"), 0)?;
        named(store, "alpha-2", title("Same title"), 0)?;
        named(store, "beta", title("Other title"), 0)?;
        ensure_eq!(store.find("alpha-1")?.as_str(), "alpha-1");
        ensure_eq!(store.find("be")?.as_str(), "beta");
        ensure_eq!(store.find("Other title")?.as_str(), "beta");
        ensure_eq!(store.find("-")?.as_str(), "beta");
        match store.find("alpha") {
            Err(Error::Ambiguous { candidates, .. }) => ensure_eq!(candidates, ["alpha-1", "alpha-2"]),
            other => return Err(super::Broken(format!("an ambiguous prefix gave {other:?}"))),
        }
        ensure_err!(store.find("Same title"), Error::Ambiguous { .. });
        // A sub-agent is named after its parent and does not make its parent's prefix ambiguous.
        named(store, "gamma-7", Details::default(), 0)?;
        named(store, "gamma-7.agent-1", Details::default(), 0)?;
        ensure_eq!(store.find("gam")?.as_str(), "gamma-7");
        ensure_eq!(store.find("gamma-7.")?.as_str(), "gamma-7.agent-1");
        ensure_eq!(store.find("gam.agent")?.as_str(), "gamma-7.agent-1");
        ensure_err!(store.find("gam.other"), Error::NotFound { .. });
        for absent in ["", "delta", "../x", "a\0b", "%", "alpha_1"] {
            ensure_err!(store.find(absent), Error::NotFound { .. });
        }
    }

    /// A list marks what is live and who holds it.
    fn live_threads_are_marked(store) {
        let live = thread_with(store, &["a"])?;
        let closed = thread_with(store, &["b"])?;
        closed.shutdown()?;
        let page = store.list(ListQuery::default())?;
        let marks: Vec<(ThreadId, bool)> = page.entries.iter().map(|thread: &Thread| (thread.id.clone(), thread.live)).collect();
        ensure_eq!(marks, [(closed.id().clone(), false), (live.id().clone(), true)]);
    }
}
