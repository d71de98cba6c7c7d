//! Workspaces and their fence.

use super::{ensure, ensure_eq, ensure_err, promises, say, texts};
use crate::error::Error;
use crate::{Address, Details, ItemQuery, ListQuery, NewThread, Status, ThreadPatch, TurnQuery};

promises! {
    /// The same folder is the same workspace; different folders are different ones.
    fn a_folder_is_its_workspace(store) {
        let a = store.workspace("/w/a".as_ref())?;
        let again = store.workspace("/w/x/../a".as_ref())?;
        let b = store.workspace("/w/a-b".as_ref())?;
        let c = store.workspace("/w/a/b".as_ref())?;
        ensure_eq!(a.info().id, again.info().id);
        ensure!(b.info().id != c.info().id && a.info().id != c.info().id);
        ensure_eq!(store.workspaces()?.len(), 3);
        ensure!(store.find_workspace("/w/unseen".as_ref())?.is_none());
        ensure_eq!(store.workspaces()?.len(), 3);
    }

    /// Another workspace's thread reads the same as an absent one, by every call.
    fn the_fence_holds_for_every_call(store) {
        let theirs = store.workspace("/w/theirs".as_ref())?;
        let live = theirs.create_now(NewThread { details: Details { title: Some("secret".to_owned()), ..Details::default() }, ..NewThread::default() })?;
        let item = live.append(vec![say("secret")])?.items[0].clone();
        live.shutdown()?;
        let (id, at) = (live.id().clone(), item.address());
        let ours = store.workspace("/w/ours".as_ref())?;
        ensure_err!(ours.find(id.as_str()), Error::NotFound { .. });
        ensure_err!(ours.find("secret"), Error::NotFound { .. });
        ensure_err!(ours.find("-"), Error::NotFound { .. });
        ensure_err!(ours.get(&id), Error::NotFound { .. });
        ensure_err!(ours.update(&id, ThreadPatch::title("mine")), Error::NotFound { .. });
        ensure_err!(ours.archive(&id), Error::NotFound { .. });
        ensure_err!(ours.unarchive(&id), Error::NotFound { .. });
        ensure_err!(ours.delete(&id), Error::NotFound { .. });
        ensure_err!(ours.restore(&id), Error::NotFound { .. });
        ensure_err!(ours.purge(&id), Error::NotFound { .. });
        ensure_err!(ours.end(&id, Status::Failed, "x"), Error::NotFound { .. });
        ensure_err!(ours.fork(&id, None, NewThread::default()), Error::NotFound { .. });
        ensure_err!(ours.items(&id, ItemQuery::default()), Error::NotFound { .. });
        ensure_err!(ours.item(&id, at), Error::NotFound { .. });
        ensure_err!(ours.address_at(&id, 0), Error::NotFound { .. });
        ensure_err!(ours.address_of(&id, item.id), Error::NotFound { .. });
        ensure_err!(ours.model_context(&id, ItemQuery::default()), Error::NotFound { .. });
        ensure_err!(ours.turns(&id, TurnQuery::default()), Error::NotFound { .. });
        ensure_err!(ours.open_turn(&id), Error::NotFound { .. });
        ensure_err!(ours.tree(&id), Error::NotFound { .. });
        ensure_err!(ours.label(&id, at.branch, None), Error::NotFound { .. });
        ensure_err!(ours.sources(&id), Error::NotFound { .. });
        ensure_err!(ours.resume(&id, true), Error::NotFound { .. });
        ensure_err!(ours.verify(&id), Error::NotFound { .. });
        ensure_eq!(ours.latest()?, None);
        ensure!(ours.list(ListQuery::default())?.entries.is_empty());
        ensure_eq!(ours.verify_all(|_| {})?.threads, 0);
        ensure_eq!(theirs.get(&id)?.details.title.as_deref(), Some("secret"));
    }

    /// Ancestors that a workspace's own thread shares are readable along its path, and not by themselves.
    fn shared_ancestors_are_readable(store) {
        let theirs = store.workspace("/w/theirs".as_ref())?;
        let parent = theirs.create_now(NewThread::default())?;
        parent.append(vec![say("a"), say("b")])?;
        let fork = store.fork(parent.id(), None, NewThread::default())?;
        let moved = store.workspace("/w/moved".as_ref())?;
        store.remap(fork.workspace, moved.info().id)?;
        ensure_eq!(moved.items(&fork.id, ItemQuery::default())?.entries.len(), 2);
        ensure_eq!(texts(store, &fork.id)?, ["a", "b"]);
    }

    /// Merging workspaces hides nothing: threads and keys move, and the old folder leads to the new workspace.
    fn remapping_hides_nothing(store) {
        let old = store.workspace("/w/old".as_ref())?;
        let thread = old.create_now(NewThread::default())?;
        let new = store.workspace("/w/new".as_ref())?;
        store.remap(old.info().id, new.info().id)?;
        ensure_eq!(new.list(ListQuery::default())?.entries[0].id.clone(), thread.id().clone());
        ensure_eq!(store.workspace("/w/old".as_ref())?.info().id, new.info().id);
        ensure_eq!(store.workspaces()?.len(), 1);
        ensure_err!(store.workspace_by_id(old.info().id), Error::NotFound { .. });
    }

    /// A workspace lists its own threads in the same orders as the store.
    fn a_workspace_lists_its_own(store) {
        let (a, b) = (store.workspace("/w/a".as_ref())?, store.workspace("/w/b".as_ref())?);
        for number in 0..6 {
            let workspace = if number % 2 == 0 { &a } else { &b };
            workspace.create_now(NewThread::default())?.append(vec![say(&number.to_string())])?;
        }
        let page = a.list(ListQuery { limit: 2, ..ListQuery::default() })?;
        ensure_eq!(page.entries.len(), 2);
        let rest = a.list(ListQuery { limit: 2, cursor: page.next_cursor.clone(), ..ListQuery::default() })?;
        ensure_eq!((rest.entries.len(), rest.next_cursor), (1, None));
        ensure_err!(b.list(ListQuery { limit: 2, cursor: page.next_cursor, ..ListQuery::default() }), Error::Invalid { field: "cursor", .. });
        ensure!(page.entries.iter().all(|thread| thread.workspace == a.info().id));
        let nowhere = Address { branch: crate::ItemId::from_uuid(crate::Uuid::nil()), depth: 0 };
        ensure_err!(a.item(&page.entries[0].id, nowhere), Error::NotFound { .. });
    }
}
