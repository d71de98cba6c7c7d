//! The feed of changes, and the index of threads.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Broken, ensure, ensure_eq, ensure_err, promises, say, thread_with, workspace};
use crate::blocking::{LiveThread, Store, Threads};
use crate::concurrency::thread;
use crate::error::Error;
use crate::{
    ActivityQuery, AppendOptions, ChangeEntry, ChangeQuery, Durability, GoalUsage, Hash, Judgement, NewCandidate,
    NewCheckpoint, NewDocument, NewGoal, NewJob, NewPart, NewRoadmap, NewRun, NewThread, NodePatch, NodeStatus,
    PartEnd, PartId, PartKind, RedactOptions, RoadmapId, RunId, Shelf, Status, ThreadId, ThreadPatch, Tool, TurnEnd,
};

/// Longer than anything here may take.
const LONG: Duration = Duration::from_secs(60);
const LEAST_KEPT: u64 = 1_000;

/// What comes behind a cursor, read in pages of this size.
pub(super) fn since(threads: &Threads, query: &ChangeQuery) -> Result<Vec<ChangeEntry>, Error> {
    let (mut query, mut all) = (query.clone(), Vec::new());
    loop {
        let page = threads.changes(query.clone())?;
        all.extend(page.changes);
        query.since = Some(page.cursor);
        if !page.more && !page.pending {
            return Ok(all);
        }
    }
}

fn all(store: &Store, thread: Option<&ThreadId>) -> Result<Vec<ChangeEntry>, Error> {
    since(store, &ChangeQuery { thread: thread.cloned(), ..ChangeQuery::default() })
}

/// The cursor behind everything that was committed.
pub(super) fn now(store: &Store) -> Result<String, Error> {
    loop {
        let page = store.changes(ChangeQuery::default())?;
        if !page.pending {
            return store.latest_change();
        }
    }
}

fn since_cursor(store: &Store, cursor: String) -> Result<Vec<ChangeEntry>, Error> {
    since(store, &ChangeQuery { since: Some(cursor), ..ChangeQuery::default() })
}

pub(super) fn words(changes: &[ChangeEntry]) -> Vec<String> {
    let subject = |change: &ChangeEntry| change.subject.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    changes.iter().map(|it| format!("{} {}{}", it.area, it.verb, subject(it))).collect()
}

promises! {
    /// Everything that changes a thread is told once, in the order of the commits, and nothing where nothing changed.
    fn every_change_of_a_thread_is_told(store) {
        let place = workspace(store)?;
        now(store)?;
        let live = place.create_now(NewThread::default())?;
        let id = live.id().clone();
        live.begin_turn(say("a"))?;
        live.append(vec![say("b"), say("c")])?;
        let at = live.head()?.ok_or_else(|| Error::not_found("item", "head"))?;
        live.end_turn(TurnEnd::completed())?;
        live.append(vec![say("d")])?;
        live.rewind(at)?;
        store.label(&id, at.branch, Some("main".to_owned()))?;
        store.set_goal(&id, NewGoal::new("ship it"))?;
        store.accrue_goal(&id, GoalUsage { tokens: 5, ..GoalUsage::default() })?;
        store.clear_goal(&id)?;
        store.clear_goal(&id)?;
        live.save_checkpoint(NewCheckpoint::new("one", "{}"))?;
        store.delete_checkpoint(&id, "one")?;
        store.delete_checkpoint(&id, "one")?;
        store.update(&id, ThreadPatch::title("t"))?;
        live.clear()?;
        live.shutdown()?;
        store.archive(&id)?;
        store.archive(&id)?;
        store.unarchive(&id)?;
        store.end(&id, Status::Completed, "done")?;
        store.delete(&id)?;
        store.restore(&id)?;
        let told = all(store, Some(&id))?;
        let label = format!("label changed {}", at.branch);
        ensure_eq!(words(&told), [
            "thread created", "claim created", "items created", "items created", "turn changed", "items created", "head changed",
            label.as_str(), "goal created", "goal changed", "goal deleted", "checkpoint created one", "checkpoint deleted one",
            "thread changed", "head changed", "claim deleted", "thread changed", "thread changed", "thread changed",
            "thread deleted", "thread created",
        ]);
        let ticks: Vec<i64> = told.iter().filter_map(|it| it.tick).collect();
        ensure!(ticks.is_sorted_by(|a, b| a < b));
        ensure!(told.iter().all(|it| it.thread.as_ref() == Some(&id) && it.workspace == place.info().id));
        ensure_eq!(all(store, None)?, told);
    }

    /// What was there before anybody asked is told too, for each thread at least once and not oftener than it was changed.
    fn what_was_there_before_is_told(store) {
        let (first, second) = (thread_with(store, &["a", "b", "c"])?, thread_with(store, &[])?);
        let items = |live: &LiveThread| -> Result<usize, Error> {
            Ok(all(store, Some(live.id()))?.iter().filter(|it| it.area == "items").count())
        };
        ensure!((1..=3).contains(&items(&first)?));
        ensure_eq!(items(&second)?, 0);
        let before = items(&first)?;
        first.append(vec![say("d")])?;
        first.append(vec![say("e")])?;
        second.append(vec![say("f")])?;
        ensure_eq!((items(&first)?, items(&second)?), (before + 2, 1));
    }

    /// Tools are told with their thread, and only when they are others.
    fn tools_are_told(store) {
        let live = thread_with(store, &["a"])?;
        let since = now(store)?;
        let list = || vec![Tool::new("read", "{}")];
        live.set_tools(list(), None)?;
        live.set_tools(list(), None)?;
        store.set_tools(live.id(), vec![Tool::new("write", "{}")], None)?;
        ensure_err!(store.set_tools(live.id(), list(), Some(Hash::of(b"x"))), Error::Conflict { .. });
        store.set_tools(live.id(), Vec::new(), None)?;
        store.set_tools(live.id(), Vec::new(), None)?;
        let told = since_cursor(store, since)?;
        ensure_eq!(words(&told), ["tools created", "tools changed", "tools deleted"]);
        ensure!(told.iter().all(|it| it.thread.as_ref() == Some(live.id()) && it.tick.is_some()));
    }

    /// Runs are told with their thread, or with their workspace alone, for whatever of them changed, and nothing where nothing did.
    fn runs_are_told(store) {
        let live = thread_with(store, &["a"])?;
        let since = now(store)?;
        let named = |id: &str| NewRun { id: RunId::new(id).ok(), ..NewRun::new("review") };
        let run = store.start_run(NewRun { thread: Some(live.id().clone()), ..named("r") })?;
        store.start_run(NewRun { thread: Some(live.id().clone()), ..named("r") })?;
        let kind = PartKind::Control { node: "pick".to_owned(), control: "best_of".to_owned() };
        let part = store.start_part(&run.id, NewPart { id: PartId::new("p").ok(), ..NewPart::new(kind.clone()) })?;
        store.start_part(&run.id, NewPart { id: PartId::new("p").ok(), ..NewPart::new(kind) })?;
        let candidate = store.add_candidate(&run.id, NewCandidate::new(part.id.clone(), "one"))?;
        for _ in 0..2 {
            store.judge_candidate(&candidate.id, Judgement { passed: Some(true), ..Judgement::default() })?;
            store.end_part(&part.id, PartEnd::completed("1"))?;
            store.interrupt_run(&run.id, "it died")?;
        }
        store.delete_run(&run.id)?;
        let told = since_cursor(store, since)?;
        ensure_eq!(words(&told), [
            "run created r", "run changed r", "run changed r", "run changed r", "run changed r", "run changed r", "run deleted r",
        ]);
        ensure!(told.iter().all(|it| it.thread.as_ref() == Some(live.id())));
        let since = now(store)?;
        let place = workspace(store)?;
        place.start_run(named("of-none"))?;
        let told = since_cursor(store, since)?;
        ensure_eq!(words(&told), ["run created of-none"]);
        ensure!(told.iter().all(|it| it.thread.is_none() && it.workspace == place.info().id));
    }

    /// Jobs are told with their thread, or with their workspace alone.
    fn changes_of_jobs_are_told(store) {
        let (place, live) = (workspace(store)?, thread_with(store, &["x"])?);
        let cursor = now(store)?;
        let own = place.add_job(NewJob { thread: Some(live.id().clone()), ..NewJob::new("of a thread") })?;
        let claimed = place.claim_job(NewJob::QUEUE)?.ok_or_else(|| Error::not_found("job", "any"))?;
        ensure_eq!(place.claim_job(NewJob::QUEUE)?, None);
        store.end_job(&claimed.lease, crate::JobEnd::Completed { result: None })?;
        let other = place.add_job(NewJob::new("of none"))?;
        store.delete_job(&other.id)?;
        let told = since(store, &ChangeQuery { since: Some(cursor.clone()), ..ChangeQuery::default() })?;
        ensure_eq!(words(&told), [
            format!("job created {}", own.id), format!("job changed {}", own.id), format!("job changed {}", own.id),
            format!("job created {}", other.id), format!("job deleted {}", other.id),
        ]);
        let of_thread = ChangeQuery { since: Some(cursor), thread: Some(live.id().clone()), ..ChangeQuery::default() };
        ensure_eq!(since(store, &of_thread)?, told[..3].to_vec());
        ensure_eq!(told[3].thread, None);
    }

    /// Versions of documents and links are told with their thread, roadmaps with their workspace; what made none is not.
    fn changes_of_documents_and_roadmaps_are_told(store) {
        let (place, live) = (workspace(store)?, thread_with(store, &["x"])?);
        let cursor = now(store)?;
        let id = Some(crate::Uuid::from_u128(9));
        for _ in 0..2 {
            live.put_document(NewDocument { id, ..NewDocument::new("notes", "{}") })?;
        }
        store.patch_document(live.id(), NewDocument::new("notes", "{\"a\":1}"))?;
        ensure!(store.put_document(live.id(), NewDocument::new("notes", "1").expecting(1)).is_err());
        ensure_eq!((store.trim_document(live.id(), "notes", 0)?, store.trim_document(live.id(), "notes", 0)?), (1, 0));
        ensure_eq!((store.delete_document(live.id(), "notes", None)?, store.delete_document(live.id(), "notes", None)?), (true, false));
        let way = RoadmapId::new("way")?;
        place.create_roadmap(NewRoadmap::new(way.clone(), "[[subtask]]\nid = \"a\"\ninstruction = \"\"\n"))?;
        for _ in 0..2 {
            live.link_roadmap(&way, None)?;
            place.set_roadmap_node(&way, "a", NodePatch { status: Some(NodeStatus::Done), ..NodePatch::default() })?;
        }
        ensure_eq!((live.unlink_roadmap()?, live.unlink_roadmap()?), (true, false));
        ensure_eq!((store.delete_roadmap(&way, None)?, store.delete_roadmap(&way, None)?), (true, false));
        let told = since(store, &ChangeQuery { since: Some(cursor.clone()), ..ChangeQuery::default() })?;
        ensure_eq!(words(&told), [
            "document created notes", "document changed notes", "document changed notes", "document deleted notes",
            "roadmap created way", "roadmap created way", "roadmap changed way", "roadmap deleted way", "roadmap deleted way",
        ]);
        let of_thread: Vec<bool> = told.iter().map(|it| it.thread.is_some()).collect();
        ensure_eq!(of_thread, [true, true, true, true, false, true, false, true, false]);
    }

    /// Pages of any size give the same changes; the cursor of each change goes on behind it, and so does that of an empty page.
    fn the_feed_goes_on_from_every_cursor(store) {
        let (first, second) = (thread_with(store, &["a", "b"])?, thread_with(store, &["c"])?);
        let whole = all(store, None)?;
        for limit in [1, 2, 3, 7] {
            ensure_eq!(since(store, &ChangeQuery { limit, ..ChangeQuery::default() })?, whole);
        }
        for (number, change) in whole.iter().enumerate() {
            let behind = ChangeQuery { since: Some(change.cursor.clone()), limit: 2, ..ChangeQuery::default() };
            ensure_eq!(since(store, &behind)?, whole[number + 1..].to_vec());
        }
        let nothing = store.changes(ChangeQuery { limit: 0, ..ChangeQuery::default() })?;
        ensure!(nothing.changes.is_empty() && nothing.more);
        ensure_eq!(since(store, &ChangeQuery { since: Some(nothing.cursor), ..ChangeQuery::default() })?, whole);
        // The cursor of one thread's changes stands behind those of the other.
        let end = now(store)?;
        let own = store.changes(ChangeQuery { thread: Some(first.id().clone()), ..ChangeQuery::default() })?;
        ensure_eq!(own.cursor, end);
        second.append(vec![say("d")])?;
        let behind = since(store, &ChangeQuery { since: Some(own.cursor), ..ChangeQuery::default() })?;
        ensure_eq!(words(&behind), ["items created"]);
        ensure_eq!(behind[0].thread.as_ref(), Some(second.id()));
    }

    /// A workspace hears of its own alone, and another's thread has no changes.
    fn the_feed_keeps_to_its_workspace(store) {
        let (ours, theirs) = (store.workspace("/w/ours".as_ref())?, store.workspace("/w/theirs".as_ref())?);
        let (own, other) = (ours.create_now(NewThread::default())?, theirs.create_now(NewThread::default())?);
        other.append(vec![say("secret")])?;
        theirs.add_job(NewJob::new("secret"))?;
        own.append(vec![say("open")])?;
        let told = since(&ours, &ChangeQuery::default())?;
        ensure!(told.iter().all(|it| it.thread.as_ref() == Some(own.id())));
        ensure_eq!(words(&told), ["thread created", "claim created", "items created"]);
        ensure_eq!(since(&ours, &ChangeQuery { thread: Some(other.id().clone()), ..ChangeQuery::default() })?, []);
        ensure_eq!(ours.activity(ActivityQuery::default())?.threads.len(), 1);
        ensure_eq!(store.activity(ActivityQuery::default())?.threads.len(), 2);
    }

    /// A follower is woken by what is acknowledged, tells it once and in order, and goes on where another one stopped.
    fn a_follower_of_changes_misses_nothing(store) {
        let live = thread_with(store, &["x"])?;
        let place = workspace(store)?;
        let mut follower = store.follow_changes(ChangeQuery { limit: 3, ..ChangeQuery::default() })?;
        let mut told = Vec::new();
        while told.len() < all(store, None)?.len() {
            told.extend(follower.next_within(LONG)?);
        }
        ensure_eq!(follower.next_within(Duration::ZERO)?, []);
        let writes = {
            let (live, place) = (live.clone(), place.clone());
            thread::spawn(move || -> Result<(), Error> {
                for number in 0..20 {
                    live.append(vec![say(&number.to_string())])?;
                    place.add_job(NewJob::new("one more"))?;
                }
                Ok(())
            })
        };
        let before = told.len();
        while told.len() < before + 40 {
            let more = follower.next_within(LONG)?;
            ensure!(!more.is_empty() && more.len() <= 3);
            told.extend(more);
        }
        writes.join().map_err(|_| Broken("the writer panicked".to_owned()))??;
        ensure_eq!(told, all(store, None)?);
        let mut another = store.follow_changes(ChangeQuery { since: follower.cursor().map(str::to_owned), ..ChangeQuery::default() })?;
        ensure_eq!(another.next_within(Duration::ZERO)?, []);
        place.add_job(NewJob::new("the last"))?;
        ensure_eq!(another.next_within(LONG)?.len(), 1);
    }

    /// A purge is told, and the names of what the thread had are gone from the feed.
    fn a_purge_is_told_and_takes_names_along(store) {
        let live = thread_with(store, &["x"])?;
        let id = live.id().clone();
        live.save_checkpoint(NewCheckpoint::new("a-secret-name", "{}"))?;
        live.shutdown()?;
        store.delete(&id)?;
        let before = all(store, None)?;
        ensure!(before.iter().any(|it| it.subject.is_some()));
        store.purge(&id)?;
        let after = all(store, None)?;
        ensure_eq!(words(&after[before.len()..]), ["thread deleted"]);
        ensure!(after.iter().all(|it| it.subject.is_none()));
        ensure_eq!(after.iter().map(|it| &it.cursor).take(before.len()).collect::<Vec<_>>(), before.iter().map(|it| &it.cursor).collect::<Vec<_>>());
        ensure!(store.activity(ActivityQuery::default())?.threads.is_empty());
    }

    /// What was redacted is told as a change of items.
    fn a_redaction_is_told(store) {
        let live = thread_with(store, &["x", "the key is in the drawer"])?;
        let at = live.head()?.ok_or_else(|| Error::not_found("item", "head"))?;
        let cursor = now(store)?;
        store.redact(live.id(), vec![at], RedactOptions { reason: "a secret".to_owned(), ..RedactOptions::default() })?;
        let told = since(store, &ChangeQuery { since: Some(cursor), ..ChangeQuery::default() })?;
        ensure_eq!(words(&told), ["items changed"]);
    }

    /// The oldest changes go when there are enough newer ones; a cursor behind which some are gone is refused with its kind, and
    /// reading from the index on misses nothing.
    fn a_trimmed_cursor_is_refused(store) {
        let beginning = now(store)?;
        let live = thread_with(store, &["x"])?;
        let early = now(store)?;
        ensure_err!(store.keep_changes(LEAST_KEPT - 1), Error::Invalid { field: "count", .. });
        store.keep_changes(LEAST_KEPT)?;
        ensure_eq!(since(store, &ChangeQuery { since: Some(beginning.clone()), ..ChangeQuery::default() })?, all(store, None)?);
        let written = AppendOptions { durability: Durability::Written, ..AppendOptions::default() };
        for number in 0..LEAST_KEPT + 300 {
            live.append_with(vec![say(&number.to_string())], written)?;
        }
        live.flush()?;
        for old in [beginning, early] {
            let query = ChangeQuery { since: Some(old), ..ChangeQuery::default() };
            ensure_err!(store.changes(query.clone()), Error::Trimmed { .. });
            ensure_err!(store.follow_changes(query), Error::Trimmed { .. });
        }
        let kept = all(store, None)?;
        ensure!(kept.len() as u64 >= LEAST_KEPT && (kept.len() as u64) < LEAST_KEPT + 300);
        now(store)?;
        let index = store.activity(ActivityQuery::default())?;
        ensure_eq!(index.threads.len(), 1);
        live.append(vec![say("after the index")])?;
        let told = since(store, &ChangeQuery { since: Some(index.since), ..ChangeQuery::default() })?;
        ensure_eq!(words(&told), ["items created"]);
    }

    /// What is no cursor of the feed is refused as such.
    fn cursors_of_other_kinds_are_refused(store) {
        let live = thread_with(store, &["x"])?;
        let list = store.activity(ActivityQuery { limit: 0, cursor: None })?;
        let of_index = list.next_cursor.ok_or_else(|| Broken("an empty page has more behind it".to_owned()))?;
        for hostile in ["", "c", "cAAAA", "../../etc/passwd", "\u{0}", "🙂", of_index.as_str()] {
            let query = ChangeQuery { since: Some(hostile.to_owned()), ..ChangeQuery::default() };
            ensure_err!(store.changes(query.clone()), Error::Invalid { field: "cursor", .. });
            ensure_err!(store.follow_changes(query), Error::Invalid { field: "cursor", .. });
        }
        let feed = now(store)?;
        ensure_err!(store.activity(ActivityQuery { cursor: Some(feed), ..ActivityQuery::default() }), Error::Invalid { field: "cursor", .. });
        drop(live);
    }

    /// The index has every thread once with its tick, in pages of any size; what is gone is in none.
    fn the_index_has_every_thread(store) {
        let mut lives = Vec::new();
        for _ in 0..5 {
            lives.push(thread_with(store, &["x"])?);
        }
        store.archive(lives[1].id())?;
        lives[2].shutdown()?;
        store.delete(lives[2].id())?;
        lives[3].shutdown()?;
        store.delete(lives[3].id())?;
        store.purge(lives[3].id())?;
        for limit in [1, 2, 10] {
            let (mut query, mut found) = (ActivityQuery { limit, cursor: None }, Vec::new());
            loop {
                let page = store.activity(query.clone())?;
                found.extend(page.threads);
                match page.next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
            let expected: BTreeSet<ThreadId> = [0, 1, 2, 4].map(|it: usize| lives[it].id().clone()).into();
            ensure_eq!(found.iter().map(|it| it.thread.clone()).collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
            for it in &found {
                let thread = store.get(&it.thread)?;
                ensure_eq!((it.tick, it.shelf, it.updated_at), (thread.tick, thread.shelf, thread.updated_at));
                ensure!(it.shelf == Shelf::Active || it.thread == *lives[1].id() || it.thread == *lives[2].id());
            }
        }
    }
}
