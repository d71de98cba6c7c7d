//! Checkpoints.

use super::{ensure, ensure_eq, ensure_err, promises, say, texts, thread_with, workspace};
use crate::blocking::{LiveThread, Store};
use crate::error::Error;
use crate::{Address, CheckpointQuery, NewCheckpoint, NewThread, ThreadId};

fn saved(live: &LiveThread, name: &str, state: &str) -> Result<(), Error> {
    live.save_checkpoint(NewCheckpoint::new(name, state)).map(drop)
}

fn names(store: &Store, thread: &ThreadId, query: &CheckpointQuery) -> Result<Vec<String>, Error> {
    let mut query = query.clone();
    let mut names = Vec::new();
    loop {
        let page = store.checkpoints(thread, query.clone())?;
        names.extend(page.entries.into_iter().map(|checkpoint| checkpoint.name));
        match page.next_cursor {
            None => return Ok(names),
            cursor => query.cursor = cursor,
        }
    }
}

fn state_of(store: &Store, thread: &ThreadId, name: Option<&str>) -> Result<Option<String>, Error> {
    Ok(store.checkpoint(thread, name.map(str::to_owned))?.map(|checkpoint| checkpoint.state))
}

promises! {
    /// A checkpoint comes back byte by byte, with the item that the thread stood at, under any name.
    fn a_checkpoint_comes_back_as_it_was_saved(store) {
        let live = thread_with(store, &["a", "b"])?;
        let states = [
            r#" {"nul":"\u0000","lone":"\ud800","big":123456789012345678901234567890,"e":1.5e300, "again":1,"again":2} "#.to_owned(),
            "null".to_owned(),
            format!("[{}]", vec!["\"a line of state that repeats\""; 20_000].join(",")),
        ];
        for (name, state) in ["before the \u{1F9F5} edit", "-", "../../x"].into_iter().zip(&states) {
            let info = live.save_checkpoint(NewCheckpoint::new(name, state.as_str()))?;
            ensure_eq!((info.at, info.size), (live.head()?, state.len() as u64));
            let found = store.checkpoint(live.id(), Some(name.to_owned()))?;
            ensure_eq!(found.as_ref().map(|found| (&found.info, &found.state)), Some((&info, state)));
        }
        ensure_eq!(store.checkpoint(live.id(), Some("absent".to_owned()))?, None);
    }

    /// The latest is the one that was saved last, also of those that were saved at the same moment, and also one that was replaced.
    fn the_latest_was_saved_last(store) {
        let live = thread_with(store, &["a"])?;
        ensure_eq!(state_of(store, live.id(), None)?, None);
        for number in 0..20 {
            saved(&live, &format!("c{number}"), &number.to_string())?;
            ensure_eq!(state_of(store, live.id(), None)?, Some(number.to_string()));
        }
        saved(&live, "c3", "33")?;
        ensure_eq!(state_of(store, live.id(), None)?, Some("33".to_owned()));
        ensure_eq!(names(store, live.id(), &CheckpointQuery { limit: 3, ..CheckpointQuery::default() })?.len(), 20);
        let newest: Vec<_> = names(store, live.id(), &CheckpointQuery { limit: 7, ..CheckpointQuery::default() })?;
        ensure_eq!(newest[..3], ["c3", "c19", "c18"]);
        let mut oldest = names(store, live.id(), &CheckpointQuery { ascending: true, limit: 7, ..CheckpointQuery::default() })?;
        oldest.reverse();
        ensure_eq!(oldest, newest);
        ensure_eq!(store.delete_checkpoint(live.id(), "c3")?, true);
        ensure_eq!(state_of(store, live.id(), None)?, Some("19".to_owned()));
        ensure_eq!(store.delete_checkpoint(live.id(), "c3")?, false);
    }

    /// Restoring moves the head to the item and gives the state; what came after stays on its branch.
    fn restoring_rewinds_the_thread(store) {
        let live = thread_with(store, &["a", "b"])?;
        saved(&live, "here", r#"{"step":2}"#)?;
        live.append(vec![say("c"), say("d")])?;
        let end = live.head()?;
        let restored = live.restore_checkpoint(Some("here".to_owned()))?;
        ensure_eq!((restored.state.as_str(), restored.info.at), (r#"{"step":2}"#, live.head()?));
        ensure_eq!(texts(store, live.id())?, ["a", "b"]);
        live.append(vec![say("other")])?;
        ensure_eq!(texts(store, live.id())?, ["a", "b", "other"]);
        live.rewind(end.ok_or_else(|| Error::not_found("head", live.id()))?)?;
        ensure_eq!(texts(store, live.id())?, ["a", "b", "c", "d"]);
        live.restore_checkpoint(None)?;
        ensure_eq!(texts(store, live.id())?, ["a", "b"]);
        ensure_err!(live.restore_checkpoint(Some("absent".to_owned())), Error::NotFound { what: "checkpoint", .. });
        ensure!(store.verify(live.id())?.is_intact());
    }

    /// A checkpoint of an empty thread restores to the beginning.
    fn an_empty_thread_is_restored_as_empty(store) {
        let live = workspace(store)?.create_now(NewThread::default())?;
        saved(&live, "start", "{}")?;
        live.append(vec![say("a")])?;
        let restored = live.restore_checkpoint(None)?;
        ensure_eq!((restored.info.at, live.head()?), (None, None));
        live.append(vec![say("b")])?;
        ensure_eq!(texts(store, live.id())?, ["b"]);
    }

    /// A checkpoint may be tied to any item that the thread reaches, also one that a fork shares, and to no other.
    fn a_checkpoint_stands_on_its_own_thread(store) {
        let live = thread_with(store, &["a", "b", "c"])?;
        let shared = store.address_at(live.id(), 0)?;
        let at = |address: Address| NewCheckpoint { at: Some(address), ..NewCheckpoint::new("x", "1") };
        ensure_eq!(live.save_checkpoint(at(shared))?.at, Some(shared));
        let fork = store.fork(live.id(), Some(store.address_at(live.id(), 1)?), NewThread::default())?;
        let forked = store.resume(&fork.id, false)?;
        forked.save_checkpoint(at(shared))?;
        let beyond = store.address_at(live.id(), 2)?;
        ensure_err!(forked.save_checkpoint(at(beyond)), Error::NotFound { what: "item", .. });
        live.shutdown()?;
        store.delete(live.id())?;
        store.purge(live.id())?;
        ensure_eq!(forked.restore_checkpoint(None)?.info.at, Some(shared));
        ensure_eq!(texts(store, &fork.id)?, ["a"]);
    }

    /// A name that is taken is replaced; a state that is no JSON, or a name that can't be, is refused and changes nothing.
    fn a_checkpoint_is_replaced_by_its_name(store) {
        let live = thread_with(store, &["a"])?;
        saved(&live, "x", "1")?;
        saved(&live, "x", "2")?;
        ensure_eq!(names(store, live.id(), &CheckpointQuery::default())?, ["x"]);
        for state in ["", "{", "{} {}", "nul\0"] {
            ensure_err!(saved(&live, "x", state), Error::Invalid { field: "state", .. });
        }
        for name in [String::new(), "a\0b".to_owned(), "x".repeat(257)] {
            ensure_err!(saved(&live, &name, "1"), Error::Invalid { field: "name", .. });
        }
        ensure_eq!(state_of(store, live.id(), Some("x"))?, Some("2".to_owned()));
        ensure_err!(store.checkpoint(&ThreadId::new("missing")?, None), Error::NotFound { what: "thread", .. });
    }

    /// The difference of two states is a JSON Patch that makes the one of the other.
    fn two_states_are_compared(store) {
        let live = thread_with(store, &["a"])?;
        saved(&live, "one", r#"{"plan":["read","edit"],"tokens":1,"same":null}"#)?;
        saved(&live, "two", r#"{"plan":["read","test","edit"],"tokens":2,"same":null,"more":{}}"#)?;
        saved(&live, "spaced", r#" {"tokens":1, "same":null, "plan":["read","edit"]} "#)?;
        let diff = store.diff_checkpoints(live.id(), "one", "two")?;
        ensure_eq!((diff.from.name.as_str(), diff.to.name.as_str()), ("one", "two"));
        let mut state: serde_json::Value = serde_json::from_str(&state_of(store, live.id(), Some("one"))?.unwrap_or_default()).unwrap_or_default();
        let patch: json_patch::Patch = serde_json::from_value(diff.patch).map_err(|error| Error::invalid("patch", error.to_string()))?;
        json_patch::patch(&mut state, &patch).map_err(|error| Error::invalid("patch", error.to_string()))?;
        let two: serde_json::Value = serde_json::from_str(&state_of(store, live.id(), Some("two"))?.unwrap_or_default()).unwrap_or_default();
        ensure_eq!(state, two);
        ensure_eq!(store.diff_checkpoints(live.id(), "one", "spaced")?.patch, serde_json::json!([]));
        ensure_err!(store.diff_checkpoints(live.id(), "one", "absent"), Error::NotFound { what: "checkpoint", .. });
    }

    /// A holder whose claim was taken over saves nothing and restores nothing.
    fn a_fenced_off_holder_saves_nothing(store) {
        let old = thread_with(store, &["a"])?;
        saved(&old, "x", "1")?;
        let new = store.take_over(old.id(), "the clause wants it", false)?;
        ensure_err!(saved(&old, "x", "2"), Error::ClaimLost { .. });
        ensure_err!(old.restore_checkpoint(None), Error::ClaimLost { .. });
        ensure_eq!(state_of(store, old.id(), Some("x"))?, Some("1".to_owned()));
        saved(&new, "x", "3")?;
    }

    /// A purged thread leaves no checkpoint to a later thread of its id.
    fn a_purge_takes_the_checkpoints(store) {
        let id = ThreadId::new("again")?;
        let make = || workspace(store)?.create_now(NewThread { id: Some(id.clone()), ..NewThread::default() });
        let live = make()?;
        live.append(vec![say("a")])?;
        saved(&live, "x", "\"secret\"")?;
        live.shutdown()?;
        store.delete(&id)?;
        store.purge(&id)?;
        let live = make()?;
        ensure_eq!((live.checkpoint(None)?, names(store, &id, &CheckpointQuery::default())?), (None, Vec::new()));
    }

    /// The numbers of a store count what stands beside the log: goals, jobs by status, checkpoints and their bytes.
    fn what_stands_beside_the_log_is_counted(store) {
        let live = thread_with(store, &["a"])?;
        let place = workspace(store)?;
        live.set_goal(crate::NewGoal::new("count"))?;
        for name in ["one", "two"] {
            saved(&live, name, "[1,2,3]")?;
            place.add_job(crate::NewJob::new("work"))?;
        }
        let lease = place.claim_job(crate::NewJob::QUEUE)?.map(|claimed| claimed.lease);
        ensure!(lease.is_some());
        let stats = store.stats()?;
        let jobs: Vec<_> = stats.jobs.iter().map(|jobs| (jobs.status.as_str(), jobs.jobs)).collect();
        ensure_eq!((stats.goals, jobs), (1, vec![("queued", 1), ("running", 1)]));
        ensure_eq!((stats.checkpoints, stats.checkpoint_bytes, stats.stored_checkpoint_bytes), (2, 14, 7));
        live.shutdown()?;
        store.delete(live.id())?;
        store.purge(live.id())?;
        let stats = store.stats()?;
        ensure_eq!((stats.goals, stats.checkpoints, stats.stored_checkpoint_bytes), (0, 0, 0));
    }
}
