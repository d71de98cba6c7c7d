//! Forking, rewinding, clearing, and what survives deletion.

use super::{ensure, ensure_eq, ensure_err, promises, say, texts, thread_with};
use crate::error::Error;
use crate::{Details, ItemQuery, NewThread, Purged, ThreadId};

fn titled(title: &str) -> NewThread {
    NewThread { details: Details { title: Some(title.to_owned()), ..Details::default() }, ..NewThread::default() }
}

promises! {
    /// A fork shares its parent's path up to the fork point, and nothing after it.
    fn a_fork_shares_the_path_up_to_its_point(store) {
        let parent = thread_with(store, &["a", "b", "c"])?;
        let point = store.address_at(parent.id(), 1)?;
        let fork = store.fork(parent.id(), Some(point), titled("fork"))?;
        ensure_eq!(texts(store, &fork.id)?, ["a", "b"]);
        ensure_eq!((fork.items, fork.fork_point, fork.forked_from.as_ref()), (0, Some(point), Some(parent.id())));
    }

    /// Parent and fork go on independently of each other.
    fn parent_and_fork_go_their_own_ways(store) {
        let parent = thread_with(store, &["a", "b"])?;
        let fork = store.fork(parent.id(), None, titled("fork"))?;
        let live = store.resume(&fork.id, false)?;
        live.append(vec![say("fork's")])?;
        parent.append(vec![say("parent's")])?;
        ensure_eq!(texts(store, &fork.id)?, ["a", "b", "fork's"]);
        ensure_eq!(texts(store, parent.id())?, ["a", "b", "parent's"]);
        ensure!(store.verify(&fork.id)?.is_intact() && store.verify(parent.id())?.is_intact());
    }

    /// A fork's first item chains to the fork point, so shared history and new history are one chain.
    fn a_fork_chains_to_its_point(store) {
        let parent = thread_with(store, &["a"])?;
        let fork = store.fork(parent.id(), None, titled("fork"))?;
        store.resume(&fork.id, false)?.append(vec![say("b")])?;
        let items = store.items(&fork.id, ItemQuery::default())?.entries;
        ensure_eq!((&items[0].thread, &items[1].thread), (parent.id(), &fork.id));
        ensure_eq!(store.tree(&fork.id)?.branches.len(), 2);
    }

    /// Forking needs no claim, and forks of forks read through all of them.
    fn forks_nest(store) {
        let first = thread_with(store, &["0"])?;
        let mut id = first.id().clone();
        for depth in 1..20 {
            id = store.fork(&id, None, titled(&depth.to_string()))?.id;
            store.resume(&id, false)?.append(vec![say(&depth.to_string())])?;
        }
        let expected: Vec<String> = (0..20).map(|depth| depth.to_string()).collect();
        ensure_eq!(texts(store, &id)?, expected);
        let tail = store.items(&id, ItemQuery { newest_first: true, limit: 3, ..ItemQuery::default() })?;
        ensure_eq!(tail.entries.iter().map(|item| item.depth).collect::<Vec<_>>(), [19, 18, 17]);
    }

    /// A fork can be rewound into what it shares, and not beyond its fork point.
    fn a_fork_reaches_its_ancestors_only(store) {
        let parent = thread_with(store, &["a", "b", "c"])?;
        let (inside, beyond) = (store.address_at(parent.id(), 0)?, store.address_at(parent.id(), 2)?);
        let point = store.address_at(parent.id(), 1)?;
        let fork = store.fork(parent.id(), Some(point), titled("fork"))?;
        let live = store.resume(&fork.id, false)?;
        ensure_err!(live.rewind(beyond), Error::NotFound { what: "item", .. });
        live.rewind(inside)?;
        live.append(vec![say("x")])?;
        ensure_eq!(texts(store, &fork.id)?, ["a", "x"]);
        ensure_err!(store.item(&fork.id, beyond), Error::NotFound { .. });
    }

    /// Rewinding moves the head; the next append begins a branch and nothing is lost.
    fn rewinding_loses_nothing(store) {
        let thread = thread_with(store, &["a", "b", "c"])?;
        let (root, tip) = (store.address_at(thread.id(), 0)?, store.address_at(thread.id(), 2)?);
        thread.rewind(root)?;
        ensure_eq!(texts(store, thread.id())?, ["a"]);
        thread.append(vec![say("B")])?;
        let old = store.items(thread.id(), ItemQuery { at: Some(tip), ..ItemQuery::default() })?.entries.len();
        ensure_eq!(old, 3);
        ensure_eq!(store.tree(thread.id())?.leaves().len(), 2);
        thread.rewind(tip)?;
        ensure_eq!(texts(store, thread.id())?, ["a", "b", "c"]);
        ensure!(store.verify(thread.id())?.is_intact());
    }

    /// A rewind to an item of another thread, or to none, is refused and the head stays.
    fn a_rewind_stays_in_its_thread(store) {
        let other = thread_with(store, &["elsewhere"])?;
        let thread = thread_with(store, &["a", "b"])?;
        let foreign = store.address_at(other.id(), 0)?;
        ensure_err!(thread.rewind(foreign), Error::NotFound { what: "item", .. });
        ensure_eq!(texts(store, thread.id())?, ["a", "b"]);
    }

    /// Clearing empties the active path and the leaves, says how many items it had, and keeps them readable.
    fn clearing_starts_afresh(store) {
        let thread = thread_with(store, &["a", "b"])?;
        let old = store.address_at(thread.id(), 1)?;
        ensure_eq!(thread.clear()?, 2);
        ensure_eq!(thread.head()?, None);
        ensure!(store.tree(thread.id())?.leaves().is_empty());
        ensure!(texts(store, thread.id())?.is_empty());
        thread.append(vec![say("new")])?;
        ensure_eq!(texts(store, thread.id())?, ["new"]);
        ensure_eq!(store.items(thread.id(), ItemQuery { at: Some(old), ..ItemQuery::default() })?.entries.len(), 2);
        ensure!(store.verify(thread.id())?.is_intact());
        ensure_eq!(thread.clear()?, 1);
        ensure_eq!(thread.clear()?, 0);
    }

    /// A branch can be named by the thread that wrote it.
    fn branches_have_labels(store) {
        let thread = thread_with(store, &["a"])?;
        let branch = store.address_at(thread.id(), 0)?.branch;
        store.label(thread.id(), branch, Some("try 1".to_owned()))?;
        ensure_eq!(store.tree(thread.id())?.branches[0].label.as_deref(), Some("try 1"));
        store.label(thread.id(), branch, None)?;
        ensure_eq!(store.tree(thread.id())?.branches[0].label, None);
        let other = thread_with(store, &["b"])?;
        ensure_err!(store.label(other.id(), branch, None), Error::NotFound { what: "branch", .. });
    }

    /// Purging a thread removes what no other thread reaches, and nothing else.
    fn a_fork_survives_its_parent(store) {
        let parent = thread_with(store, &["a", "b", "c", "d"])?;
        let point = store.address_at(parent.id(), 1)?;
        let fork = store.fork(parent.id(), Some(point), titled("fork"))?;
        store.resume(&fork.id, false)?.append(vec![say("x")])?;
        parent.shutdown()?;
        store.delete(parent.id())?;
        ensure_eq!(texts(store, &fork.id)?, ["a", "b", "x"]);
        ensure_eq!(store.purge(parent.id())?, Purged { items: 2, shared: 2, stub: true });
        ensure_err!(store.get(parent.id()), Error::NotFound { .. });
        ensure_eq!(texts(store, &fork.id)?, ["a", "b", "x"]);
        ensure!(store.verify(&fork.id)?.is_intact());
    }

    /// When the last fork of a purged thread is purged too, the shared items go with it.
    fn shared_items_go_with_the_last_that_reaches_them(store) {
        let parent = thread_with(store, &["a", "b"])?;
        let fork = store.fork(parent.id(), None, titled("fork"))?;
        parent.shutdown()?;
        for id in [parent.id(), &fork.id] {
            store.delete(id)?;
            store.purge(id)?;
        }
        let stats = store.stats()?;
        ensure_eq!((stats.items, stats.branches, stats.stubs), (0, 0, 0));
        let reused = NewThread { id: Some(parent.id().clone()), ..NewThread::default() };
        super::workspace(store)?.create_now(reused)?;
    }

    /// A fork of a thread that does not exist, or at an item that it does not reach, is refused.
    fn a_fork_needs_its_point(store) {
        let other = thread_with(store, &["elsewhere"])?;
        let thread = thread_with(store, &["a"])?;
        let foreign = store.address_at(other.id(), 0)?;
        ensure_err!(store.fork(thread.id(), Some(foreign), titled("x")), Error::NotFound { what: "item", .. });
        ensure_err!(store.fork(&ThreadId::new("absent")?, None, titled("x")), Error::NotFound { what: "thread", .. });
    }
}
