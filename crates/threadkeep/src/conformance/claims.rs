//! Claims and the life of a handle.

use super::{ensure, ensure_eq, ensure_err, promises, say, texts, thread_with, workspace};
use crate::error::Error;
use crate::{AppendOptions, Durability, NewThread, SearchQuery, Status, ThreadPatch, ThreadStore};

promises! {
    /// A second live writer is refused with the name of the first.
    fn one_live_writer_per_thread(store) {
        let thread = thread_with(store, &["a"])?;
        match store.resume(thread.id(), false) {
            Err(Error::ClaimHeld { holder, .. }) => {
                ensure_eq!(holder.pid, i64::from(std::process::id()));
                ensure!(!holder.label.is_empty() && !holder.hostname.is_empty());
            }
            other => return Err(super::Broken(format!("the second writer got {other:?}"))),
        }
        ensure_eq!(texts(store, thread.id())?, ["a"]);
    }

    /// Shutting down, discarding and dropping a handle each give up the claim.
    fn closing_gives_up_the_claim(store) {
        let thread = thread_with(store, &["a"])?;
        let id = thread.id().clone();
        thread.shutdown()?;
        let second = store.resume(&id, false)?;
        second.discard()?;
        let third = store.resume(&id, false)?;
        third.append(vec![say("b")])?;
        drop(third);
        // The drop waits for nobody; a write that comes after it is done after it.
        store.sync()?;
        store.resume(&id, false)?;
        ensure_eq!(texts(store, &id)?, ["a", "b"]);
    }

    /// Each claim has a higher epoch than those before it.
    fn the_epoch_never_falls(store) {
        let thread = thread_with(store, &["a"])?;
        let mut epochs = vec![store.get(thread.id())?.epoch];
        thread.shutdown()?;
        for _ in 0..3 {
            let again = store.resume(thread.id(), false)?;
            epochs.push(store.get(thread.id())?.epoch);
            again.shutdown()?;
        }
        ensure!(epochs.is_sorted_by(|a, b| a < b));
    }

    /// A handle that was closed refuses everything, and closing it again is allowed for `discard`.
    fn a_closed_handle_is_closed(store) {
        let thread = thread_with(store, &["a"])?;
        thread.shutdown()?;
        ensure_err!(thread.append(vec![say("b")]), Error::Closed { .. });
        ensure_err!(thread.flush(), Error::Closed { .. });
        ensure_err!(thread.clear(), Error::Closed { .. });
        thread.discard()?;
        thread.discard()?;
        ensure_eq!(texts(store, thread.id())?, ["a"]);
    }

    /// Discarding a thread that was never stored leaves nothing.
    fn discarding_an_unborn_thread_leaves_nothing(store) {
        let thread = workspace(store)?.create(NewThread::default())?;
        thread.discard()?;
        ensure_err!(thread.append(vec![say("x")]), Error::Closed { .. });
        ensure_err!(store.get(thread.id()), Error::NotFound { .. });
        ensure_eq!(store.stats()?.active, 0);
    }

    /// Renaming, archiving and unarchiving work while a writer is live, which goes on.
    fn metadata_changes_while_a_writer_is_live(store) {
        let thread = thread_with(store, &["a"])?;
        store.update(thread.id(), ThreadPatch::title("renamed"))?;
        store.archive(thread.id())?;
        thread.append(vec![say("b")])?;
        ensure!(store.get(thread.id())?.live);
        store.unarchive(thread.id())?;
        thread.append(vec![say("c")])?;
        let stored = store.get(thread.id())?;
        ensure_eq!((stored.details.title.as_deref(), stored.items), (Some("renamed"), 3));
    }

    /// A thread that is live can be neither deleted nor purged.
    fn a_live_thread_is_not_deleted(store) {
        let thread = thread_with(store, &["a"])?;
        ensure_err!(store.delete(thread.id()), Error::ClaimHeld { .. });
        thread.shutdown()?;
        store.delete(thread.id())?;
        ensure_err!(store.resume(thread.id(), true), Error::NotFound { .. });
    }

    /// Taking over fences the holder off, needs a reason, and is told in the thread with both names.
    fn taking_over_fences_the_holder_off(store) {
        let thread = thread_with(store, &["a"])?;
        ensure_err!(store.take_over(thread.id(), "  ", false), Error::Invalid { field: "reason", .. });
        let taker = store.take_over(thread.id(), "its machine burnt down", false)?;
        ensure_err!(thread.append(vec![say("stale")]), Error::ClaimLost { .. });
        ensure_eq!(thread.take_unsaved().len(), 1);
        taker.append(vec![say("b")])?;
        let words = texts(store, thread.id())?;
        ensure_eq!((words.len(), words[0].as_str(), words[2].as_str()), (3, "a", "b"));
        ensure!(words[1].contains("its machine burnt down") && words[1].contains(&format!("process {}", std::process::id())));
        // The old handle gives nothing up that is not its own.
        thread.discard()?;
        drop(thread);
        store.sync()?;
        taker.append(vec![say("c")])?;
        ensure!(store.verify(taker.id())?.is_intact());
    }

    /// A request to release is seen by the holder, who hands over at the end of the turn and not before.
    fn a_holder_hands_over_at_the_end_of_its_turn(store) {
        let thread = thread_with(store, &[])?;
        ensure_eq!(thread.release_requested()?, None);
        thread.begin_turn(say("prompt"))?;
        let request = store.request_release(thread.id())?;
        ensure_eq!(thread.release_requested()?.as_ref(), Some(&request));
        thread.append(vec![say("answer")])?;
        ensure_err!(store.resume(thread.id(), false), Error::ClaimHeld { .. });
        let ended = thread.end_turn(crate::TurnEnd::completed())?;
        ensure_eq!((ended.ordinal, ended.handed_over), (1, Some(request)));
        ensure_err!(thread.append(vec![say("late")]), Error::Closed { .. });
        let next = store.resume(thread.id(), false)?;
        ensure_eq!(next.release_requested()?, None);
        next.begin_turn(say("prompt"))?;
        ensure_eq!(next.end_turn(crate::TurnEnd::completed())?.handed_over, None);
        next.shutdown()?;
        ensure_err!(store.request_release(thread.id()), Error::NotFound { .. });
    }

    /// The claims are listed with who holds what since when, who is alive and who asks for it.
    fn claims_are_listed(store) {
        let first = thread_with(store, &["a"])?;
        let second = thread_with(store, &["b"])?;
        store.request_release(second.id())?;
        let claims = store.claims()?;
        let of = |id: &crate::ThreadId| claims.iter().find(|claim| claim.thread == *id);
        ensure!(of(first.id()).is_some_and(|claim| claim.live && claim.wanted.is_none()));
        ensure!(of(second.id()).is_some_and(|claim| claim.live && claim.wanted.is_some()));
        ensure_eq!(claims[0].holder.pid, i64::from(std::process::id()));
        first.shutdown()?;
        ensure_eq!(store.claims()?.len(), 1);
        ensure!(store.workspace("/conformance/other".as_ref())?.claims()?.is_empty());
    }

    /// Reserving several threads takes all of them or none.
    fn reserving_is_all_or_nothing(store) {
        let ids: Vec<_> = (0..3).map(|_| {
            let thread = thread_with(store, &["a"])?;
            thread.shutdown()?;
            Ok::<_, Error>(thread.id().clone())
        }).collect::<Result<_, _>>()?;
        let held = store.resume(&ids[1], false)?;
        ensure_err!(store.reserve(&ids, false), Error::ClaimHeld { .. });
        store.sync()?;
        ensure_eq!(store.claims()?.len(), 1);
        held.shutdown()?;
        let all = store.reserve(&ids, false)?;
        ensure_eq!((all.len(), store.claims()?.len()), (3, 3));
        drop(all);
        store.sync()?;
        ensure!(store.claims()?.is_empty());
    }

    /// An archived thread is resumed only on request.
    fn archived_threads_are_resumed_on_request(store) {
        let thread = thread_with(store, &["a"])?;
        thread.shutdown()?;
        store.archive(thread.id())?;
        ensure_err!(store.resume(thread.id(), false), Error::Archived { .. });
        store.resume(thread.id(), true)?.append(vec![say("b")])?;
    }

    /// The object-safe trait offers the same: live writers by id, typed refusals, and names for what is not offered.
    fn the_trait_is_the_same_store(store) {
        let object: &dyn ThreadStore = store.as_async();
        let home = workspace(store)?.info().id;
        let wait = |id| pollster::block_on(object.persist_thread(id));
        let id = pollster::block_on(object.create_thread(home, NewThread::default()))?;
        let again = NewThread { id: Some(id.clone()), ..NewThread::default() };
        ensure_err!(pollster::block_on(object.create_thread(home, again)), Error::AlreadyExists { .. });
        pollster::block_on(object.append_items(&id, vec![say("a")], AppendOptions::default()))?;
        wait(&id)?;
        pollster::block_on(object.flush_thread(&id))?;
        pollster::block_on(object.archive_thread(&id))?;
        // A live thread can be read though it is archived.
        ensure_eq!(pollster::block_on(object.read_thread(&id, false))?.items, 1);
        pollster::block_on(object.shutdown_thread(&id))?;
        ensure_err!(pollster::block_on(object.read_thread(&id, false)), Error::Archived { .. });
        ensure_err!(wait(&id), Error::NotFound { .. });
        pollster::block_on(object.discard_thread(&id))?;
        pollster::block_on(object.unarchive_thread(&id))?;
        pollster::block_on(object.resume_thread(&id, false))?;
        pollster::block_on(object.discard_thread(&id))?;
        let by_path = pollster::block_on(object.read_thread_by_rollout_path("/x".as_ref()));
        ensure_err!(by_path, Error::Unsupported { .. } | Error::NotFound { .. });
        ensure_eq!(pollster::block_on(object.search_threads(SearchQuery::new("nothing of it")))?.threads.len(), 0);
    }

    /// Ending a thread says why, and it is no longer the latest.
    fn an_ended_thread_is_not_the_latest(store) {
        let first = thread_with(store, &["a"])?;
        let second = thread_with(store, &["b"])?;
        ensure_eq!(store.latest()?.as_ref(), Some(second.id()));
        let ended = store.end(second.id(), Status::Completed, "done")?;
        ensure_eq!((ended.status, ended.details.end_reason.as_deref()), (Status::Completed, Some("done")));
        ensure_eq!(store.latest()?.as_ref(), Some(first.id()));
        store.archive(first.id())?;
        ensure_eq!(store.latest()?, None);
    }

    /// A thread that is gone on with has not ended: an append opens it again, whatever handle it comes through; reading, renaming and
    /// resuming leave it ended.
    fn an_append_opens_an_ended_thread_again(store) {
        let thread = thread_with(store, &["a"])?;
        for durability in [Durability::Synced, Durability::Written, Durability::Queued] {
            store.end(thread.id(), Status::Completed, "done")?;
            let renamed = store.update(thread.id(), ThreadPatch::title("renamed"))?;
            ensure!(renamed.ended_at.is_some() && renamed.details.end_reason.is_some());
            ensure_eq!(store.latest()?, None);
            thread.append_with(vec![say("b")], AppendOptions { durability, ..AppendOptions::default() })?;
            thread.flush()?;
            let open = store.get(thread.id())?;
            ensure_eq!((open.ended_at, open.details.end_reason, open.status), (None, None, Status::Completed));
            ensure_eq!(store.latest()?.as_ref(), Some(thread.id()));
        }
        store.end(thread.id(), Status::Completed, "done")?;
        thread.shutdown()?;
        let next = store.resume(thread.id(), false)?;
        ensure!(store.get(thread.id())?.ended_at.is_some());
        next.begin_turn(say("and on"))?;
        ensure_eq!(store.get(thread.id())?.ended_at, None);
    }
}
