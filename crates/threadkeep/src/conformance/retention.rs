//! Retention.

use std::time::Duration;

use super::{ensure, ensure_eq, ensure_err, promises, say, texts, thread_with, workspace};
use crate::blocking::{Store, Threads, Workspace};
use crate::error::Error;
use crate::{
    Area, ChangeEntry, ChangeQuery, Host as _, JobEnd, ListQuery, MessageFormat, NewGoal, NewJob, NewMessage,
    NewRequest, NewRun, NewThread, Principal, Protection, ReceiptQuery, RetainOptions, RetentionReceipt,
    RetentionReport, RetentionRule, RetentionRules, RetentionStep, RunEnd, RunStatus, Shelf, Shelves, SystemHost,
    ThreadId, ThreadPatch,
};

/// Rules without a grace, so that what was just made can be taken.
fn rules() -> RetentionRules {
    RetentionRules { grace: Duration::ZERO, ..RetentionRules::default() }
}

fn at_most(count: u64) -> RetentionRules {
    RetentionRules { max_count: Some(count), ..rules() }
}

/// Everything that was changed more than a millisecond ago.
fn old() -> RetentionRules {
    RetentionRules { max_age: Some(Duration::from_millis(1)), ..rules() }
}

fn by(rules: RetentionRules) -> RetainOptions {
    RetainOptions { rules: Some(rules), ..RetainOptions::default() }
}

/// A thread that nobody writes any more.
fn left(at: &Workspace, id: &str, text: &str) -> Result<ThreadId, Error> {
    let live = at.create_now(NewThread { id: Some(ThreadId::new(id)?), ..NewThread::default() })?;
    live.append(vec![say(text)])?;
    live.shutdown()?;
    Ok(live.id().clone())
}

fn several(at: &Workspace, ids: &[&str]) -> Result<Vec<ThreadId>, Error> {
    ids.iter().map(|id| left(at, id, "x")).collect()
}

/// Waits until a thread's last change is some time ago.
fn let_it_age(store: &Store, thread: &ThreadId) -> Result<(), Error> {
    let changed = store.get(thread)?.updated_at;
    while SystemHost.now().millis() < changed.millis() + 5 {
        std::thread::yield_now();
    }
    Ok(())
}

fn names(receipts: &[RetentionReceipt]) -> Vec<&str> {
    receipts.iter().map(|receipt| receipt.thread.as_str()).collect()
}

fn why(report: &RetentionReport, thread: &ThreadId) -> Option<Protection> {
    report.kept.iter().find(|kept| kept.thread == *thread).map(|kept| kept.why.clone())
}

fn listed(at: &Threads, shelves: Shelves) -> Result<Vec<String>, Error> {
    let page = at.list(ListQuery { shelves, limit: 1_000, ..ListQuery::default() })?;
    let mut ids: Vec<String> = page.entries.iter().map(|thread| thread.id.to_string()).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn receipts(at: &Threads) -> Result<Vec<RetentionReceipt>, Error> {
    Ok(at.retention_receipts(ReceiptQuery { limit: 1_000, ..ReceiptQuery::default() })?.entries)
}

/// Everything that the feed tells, once nothing of it is pending.
fn told(store: &Store) -> Result<Vec<ChangeEntry>, Error> {
    loop {
        let page = store.changes(ChangeQuery::default())?;
        if !page.pending {
            return Ok(page.changes);
        }
        std::thread::yield_now();
    }
}

promises! {
    /// Without rules nothing is taken, whatever there is, and rules that would take everything are refused.
    fn retention_is_off_until_it_is_asked_for(store) {
        several(&workspace(store)?, &["a", "b"])?;
        let report = store.retain(RetainOptions::default())?;
        ensure_eq!((report.workspaces, report.trashed.len(), report.purged.len(), report.kept.len()), (0, 0, 0, 0));
        let report = store.retain(by(rules()))?;
        ensure_eq!((report.workspaces, report.trashed.len(), report.kept.len()), (1, 0, 0));
        for zero in [
            RetentionRules { max_count: Some(0), ..rules() },
            RetentionRules { max_age: Some(Duration::ZERO), ..rules() },
            RetentionRules { max_bytes: Some(0), ..rules() },
            RetentionRules { max_store_bytes: Some(0), ..rules() },
        ] {
            ensure_err!(store.retain(by(zero.clone())), Error::Invalid { .. });
            ensure_err!(store.set_retention(zero), Error::Invalid { .. });
        }
        ensure_eq!(listed(store, Shelves::Both)?, ["a", "b"]);
        ensure!(receipts(store)?.is_empty());
    }

    /// A limit on the number of threads takes those of each workspace that were active longest ago, and says of each what it was.
    fn a_count_takes_what_was_active_longest_ago(store) {
        let at = workspace(store)?;
        let ids = several(&at, &["a", "b", "c", "d"])?;
        let again = store.resume(&ids[0], false)?;
        again.append(vec![say("again")])?;
        again.shutdown()?;
        // Renamed, but not written.
        let renamed = store.update(&ids[1], ThreadPatch::title("Second"))?;
        several(&store.workspace("/conformance/other".as_ref())?, &["e", "f"])?;
        let report = store.retain(by(at_most(2)))?;
        ensure_eq!(names(&report.trashed), ["b", "c"]);
        ensure_eq!(listed(store, Shelves::Both)?, ["a", "d", "e", "f"]);
        ensure_eq!(listed(store, Shelves::Trash)?, ["b", "c"]);
        let receipt = &report.trashed[0];
        ensure_eq!((&receipt.step, receipt.rule.as_ref(), receipt.bound), (&RetentionStep::Trashed, Some(&RetentionRule::Count), Some(2)));
        ensure_eq!((receipt.items, receipt.head_hash, receipt.name.as_deref()), (1, renamed.head_hash, Some("Second")));
        ensure!(receipt.bytes > 0 && receipt.run == report.run);
        let stored = receipts(store)?;
        ensure_eq!(names(&stored), ["c", "b"]);
        ensure_eq!(stored[1], *receipt);
        ensure!(store.retain(by(at_most(2)))?.trashed.is_empty());
        ensure!(store.verify(&ids[1])?.is_intact());
    }

    /// A limit on the age takes what was changed longer ago, and nothing that was changed since.
    fn an_age_takes_what_was_changed_longer_ago(store) {
        let ids = several(&workspace(store)?, &["a", "b"])?;
        let_it_age(store, &ids[1])?;
        let year = RetentionRules { max_age: Some(Duration::from_secs(31_536_000)), ..rules() };
        ensure!(store.retain(by(year))?.trashed.is_empty());
        let report = store.retain(by(old()))?;
        ensure_eq!(names(&report.trashed), ["a", "b"]);
        ensure_eq!((report.trashed[0].rule.as_ref(), report.trashed[0].bound), (Some(&RetentionRule::Age), Some(1)));
    }

    /// A limit on bytes takes threads until the others are within it: those of a workspace, or those of the whole store.
    fn bytes_take_until_the_rest_fits(store) {
        let (at, other) = (workspace(store)?, store.workspace("/conformance/other".as_ref())?);
        several(&at, &["a", "b"])?;
        several(&other, &["c"])?;
        several(&at, &["d"])?;
        let dry = |rules| store.retain(RetainOptions { dry_run: true, ..by(rules) });
        let all = dry(RetentionRules { max_bytes: Some(1), ..rules() })?;
        ensure_eq!(names(&all.trashed).len(), 4);
        let here: i64 = all.trashed.iter().filter(|it| it.workspace == at.info().id).map(|it| it.bytes).sum();
        let everywhere: i64 = all.trashed.iter().map(|it| it.bytes).sum();
        let less = |bytes: i64| Some(bytes.unsigned_abs() - 1);
        let report = dry(RetentionRules { max_bytes: less(here), ..rules() })?;
        ensure_eq!(names(&report.trashed), ["a"]);
        ensure_eq!(report.trashed[0].rule.as_ref(), Some(&RetentionRule::Bytes));
        let report = store.retain(by(RetentionRules { max_store_bytes: less(everywhere), ..rules() }))?;
        ensure_eq!(names(&report.trashed), ["a"]);
        ensure_eq!(report.trashed[0].rule.as_ref(), Some(&RetentionRule::StoreBytes));
        let left = everywhere - report.trashed[0].bytes;
        let report = store.retain(by(RetentionRules { max_store_bytes: less(left - 2), ..rules() }))?;
        ensure_eq!(names(&report.trashed), ["b"]);
        let of_store = RetentionRules { max_store_bytes: Some(1), ..rules() };
        ensure_err!(at.retain(by(of_store.clone())), Error::Invalid { field: "max_store_bytes", .. });
        ensure_err!(at.set_retention(of_store), Error::Invalid { field: "max_store_bytes", .. });
    }

    /// Live, pinned and archived threads stay, those with something open, those that others were forked from, those of late and those
    /// that the caller spares; and the report says why. Once nothing keeps them they go.
    fn what_is_in_use_stays_and_says_why(store) {
        let at = workspace(store)?;
        let live = thread_with(store, &["live"])?;
        let ids = several(&at, &["pinned", "archived", "forked", "message", "request", "job", "goal", "run", "spared", "plain"])?;
        let [pinned, archived, forked, message, request, job, goal, run, spared, _] = ids.as_slice() else { return Ok(()) };
        store.update(pinned, ThreadPatch { pinned: Some(true), ..ThreadPatch::default() })?;
        store.archive(archived)?;
        let fork = store.fork(forked, None, NewThread { id: Some(ThreadId::new("z-fork")?), ..NewThread::default() })?;
        let sent = store.inject_message(message, NewMessage { format: MessageFormat::Text, ..NewMessage::text("ana", "go on") })?;
        let asked = at.ask_request(NewRequest { thread: Some(request.clone()), ..NewRequest::approval("run it", b"call") })?;
        let work = at.add_job(NewJob { thread: Some(job.clone()), ..NewJob::new("work") })?;
        store.set_goal(goal, NewGoal::new("get there"))?;
        let runs = at.start_run(NewRun { thread: Some(run.clone()), ..NewRun::new("flow") })?;
        let_it_age(store, &fork.id)?;
        let_it_age(store, goal)?;
        let options = RetainOptions { spare: vec![spared.clone()], ..by(old()) };
        let report = store.retain(options.clone())?;
        // The fork shares its ancestors and is itself forked from by nobody.
        ensure_eq!(names(&report.trashed), ["plain", "z-fork"]);
        for (thread, expected) in [
            (live.id(), Protection::Live), (pinned, Protection::Pinned), (archived, Protection::Archived),
            (forked, Protection::Forked), (message, Protection::Message), (request, Protection::Request),
            (job, Protection::Job), (goal, Protection::Goal), (run, Protection::Run), (spared, Protection::Spared),
        ] {
            ensure_eq!((thread, why(&report, thread)), (thread, Some(expected)));
        }
        ensure_eq!(report.kept.len(), 10);

        store.update(pinned, ThreadPatch { pinned: Some(false), ..ThreadPatch::default() })?;
        store.withdraw_message(message, sent.id, None)?;
        store.cancel_request(asked.id, Principal::local("ana"), None)?;
        let claimed = at.claim_job(NewJob::QUEUE)?.ok_or_else(|| Error::not_found("job", work.id))?;
        store.end_job(&claimed.lease, JobEnd::Completed { result: None })?;
        store.clear_goal(goal)?;
        store.end_run(&runs.id, RunEnd { status: RunStatus::Completed, reason: None })?;
        live.shutdown()?;
        for id in ids.iter().chain([live.id()]) {
            let_it_age(store, id)?;
        }
        let late = store.retain(by(RetentionRules { grace: Duration::from_secs(3_600), ..old() }))?;
        ensure!(late.trashed.is_empty() && late.kept.iter().all(|kept| matches!(kept.why, Protection::Recent | Protection::Archived)));
        let report = store.retain(by(RetentionRules { archived: true, ..old() }))?;
        ensure_eq!(report.trashed.len(), 10);
        ensure!(report.kept.is_empty() && listed(store, Shelves::Both)?.is_empty());
    }

    /// Pinned and archived threads are not counted: what a person keeps on purpose takes no room from the rest.
    fn what_is_kept_on_purpose_is_not_counted(store) {
        let at = workspace(store)?;
        let ids = several(&at, &["a", "b", "c", "d"])?;
        store.update(&ids[0], ThreadPatch { pinned: Some(true), ..ThreadPatch::default() })?;
        store.archive(&ids[1])?;
        ensure!(store.retain(by(at_most(2)))?.trashed.is_empty());
        let report = store.retain(by(at_most(1)))?;
        ensure_eq!((names(&report.trashed), report.kept.len()), (vec!["c"], 0));
        let report = store.retain(by(RetentionRules { archived: true, ..at_most(1) }))?;
        ensure_eq!(names(&report.trashed), ["b"]);
    }

    /// A dry run names exactly what a run takes, and changes nothing.
    fn a_dry_run_names_what_a_run_takes(store) {
        let at = workspace(store)?;
        several(&at, &["a", "b", "c", "d"])?;
        let live = thread_with(store, &["live"])?;
        let before = (listed(store, Shelves::Both)?, told(store)?.len());
        let options = RetainOptions { dry_run: true, ..by(at_most(1)) };
        let dry = store.retain(options.clone())?;
        ensure!(dry.dry_run);
        ensure_eq!((listed(store, Shelves::Both)?, told(store)?.len()), before);
        ensure!(receipts(store)?.is_empty());
        let done = store.retain(by(at_most(1)))?;
        let facts = |report: &RetentionReport| {
            let of = |it: &RetentionReceipt| (it.thread.clone(), it.rule.clone(), it.bound, it.items, it.bytes, it.head_hash);
            report.trashed.iter().map(of).collect::<Vec<_>>()
        };
        ensure_eq!(facts(&dry), facts(&done));
        ensure_eq!((facts(&done).len(), listed(store, Shelves::Both)?), (4, vec![live.id().to_string()]));
        ensure!(dry.trashed.iter().all(|it| it.number.is_none()) && done.trashed.iter().all(|it| it.number.is_some()));
    }

    /// What comes out of the trash is whole, is on record, and counts as active from then on: others go before it.
    fn a_restored_thread_is_not_taken_again_at_once(store) {
        let ids = several(&workspace(store)?, &["a", "b", "c"])?;
        ensure_eq!(names(&store.retain(by(at_most(2)))?.trashed), ["a"]);
        store.restore(&ids[0])?;
        ensure_eq!(texts(store, &ids[0])?, ["x"]);
        let steps: Vec<RetentionStep> = receipts(store)?.into_iter().map(|receipt| receipt.step).collect();
        ensure_eq!(steps, [RetentionStep::Restored, RetentionStep::Trashed]);
        ensure_eq!(names(&store.retain(by(at_most(2)))?.trashed), ["b"]);
        let default_grace = RetentionRules { max_count: Some(1), ..RetentionRules::default() };
        ensure!(store.retain(by(default_grace))?.trashed.is_empty());
        ensure_eq!(names(&store.retain(by(at_most(1)))?.trashed), ["c"]);
        ensure_eq!(store.latest()?, Some(ids[0].clone()));
    }

    /// What a run put into the trash is purged when it was there for long enough, by a later run, and both are on record; what somebody
    /// deleted by hand is, when that is asked for.
    fn the_trash_is_purged_after_a_grace(store) {
        let ids = several(&workspace(store)?, &["a", "b", "c"])?;
        store.delete(&ids[1])?;
        let soon = |rules| RetentionRules { trash_grace: Some(Duration::from_millis(1)), ..rules };
        let report = store.retain(by(soon(at_most(1))))?;
        ensure_eq!((names(&report.trashed), report.purged.len()), (vec!["a"], 0));
        let hash = store.get(&ids[0])?.head_hash;
        let_it_age(store, &ids[0])?;
        for patient in [None, Some(RetentionRules::TRASH_GRACE)] {
            let rules = RetentionRules { trash_grace: patient, deleted: true, ..at_most(1) };
            ensure!(store.retain(by(rules))?.purged.is_empty());
        }
        let dry = store.retain(RetainOptions { dry_run: true, ..by(soon(at_most(1))) })?;
        ensure_eq!((names(&dry.purged), store.get(&ids[0])?.shelf), (vec!["a"], Shelf::Trashed));
        let report = store.retain(by(soon(at_most(1))))?;
        ensure_eq!(names(&report.purged), ["a"]);
        ensure_err!(store.get(&ids[0]), Error::NotFound { .. });
        let last = &receipts(store)?[0];
        ensure_eq!((&last.step, &last.thread, last.rule.as_ref(), last.head_hash), (&RetentionStep::Purged, &ids[0], Some(&RetentionRule::TrashGrace), hash));
        ensure!(last.record.is_some() && last.name.is_none());
        ensure!(store.verify_all(|_| {})?.invalid.is_empty());
        let report = store.retain(by(RetentionRules { deleted: true, ..soon(rules()) }))?;
        ensure_eq!(names(&report.purged), ["b"]);
        // A later thread of the same id is another one.
        let again = left(&workspace(store)?, "a", "another")?;
        store.delete(&again)?;
        let_it_age(store, &again)?;
        ensure!(store.retain(by(soon(rules())))?.purged.is_empty());
    }

    /// A thread in the trash that somebody pins is not purged, and one that was forked meanwhile keeps what the fork shares.
    fn what_is_wanted_again_is_not_purged(store) {
        let ids = several(&workspace(store)?, &["a", "b", "c"])?;
        let soon = RetentionRules { trash_grace: Some(Duration::from_millis(1)), ..at_most(1) };
        ensure_eq!(names(&store.retain(by(soon.clone()))?.trashed), ["a", "b"]);
        store.update(&ids[0], ThreadPatch { pinned: Some(true), ..ThreadPatch::default() })?;
        let fork = store.fork(&ids[1], None, NewThread::default())?;
        let_it_age(store, &ids[0])?;
        let only_trash = RetentionRules { max_count: None, ..soon };
        let report = store.retain(by(only_trash.clone()))?;
        ensure_eq!((why(&report, &ids[0]), why(&report, &ids[1])), (Some(Protection::Pinned), Some(Protection::Forked)));
        ensure!(report.purged.is_empty());
        let report = store.retain(by(RetentionRules { forked: true, ..only_trash }))?;
        ensure_eq!(names(&report.purged), ["b"]);
        ensure_eq!(texts(store, &fork.id)?, ["x"]);
        ensure!(store.verify(&fork.id)?.is_intact());
    }

    /// Threads of which others were forked go when that is asked for, and what the others share stays.
    fn shared_items_survive(store) {
        let at = workspace(store)?;
        let ids = several(&at, &["a"])?;
        let fork = store.fork(&ids[0], None, NewThread::default())?;
        let live = store.resume(&ids[0], false)?;
        live.append(vec![say("of its own")])?;
        live.shutdown()?;
        let_it_age(store, &ids[0])?;
        let_it_age(store, &fork.id)?;
        let of_others = RetainOptions { spare: vec![fork.id.clone()], ..by(RetentionRules { forked: true, ..old() }) };
        let report = store.retain(of_others)?;
        ensure_eq!(names(&report.trashed), ["a"]);
        // What the fork shares would not go.
        let whole = store.stats()?.stored_bytes;
        ensure!(report.trashed[0].bytes > 0 && report.trashed[0].bytes < whole);
        ensure_eq!(texts(store, &fork.id)?, ["x"]);
        // Forked by a thread in the trash alone, it is no longer shared by one that is listed.
        store.restore(&ids[0])?;
        store.delete(&fork.id)?;
        let_it_age(store, &ids[0])?;
        ensure_eq!(names(&store.retain(by(old()))?.trashed), ["a"]);
    }

    /// Rules are kept for the store and for workspaces; those of a workspace replace the store's as a whole. A run without rules of its own
    /// goes by them.
    fn rules_are_kept_for_the_store_and_for_workspaces(store) {
        let (at, other) = (workspace(store)?, store.workspace("/conformance/other".as_ref())?);
        several(&at, &["a", "b", "c"])?;
        several(&other, &["d", "e", "f"])?;
        ensure_eq!((store.retention()?, store.clear_retention()?), (None, false));
        let full = RetentionRules {
            max_count: Some(1), max_age: Some(Duration::from_secs(9)), max_bytes: Some(3), max_store_bytes: Some(4),
            grace: Duration::from_millis(5), trash_grace: None, archived: true, forked: true, deleted: true,
        };
        store.set_retention(full.clone())?;
        ensure_eq!(store.retention()?, Some(full));
        store.set_retention(at_most(1))?;
        other.set_retention(rules())?;
        ensure_eq!((store.retention()?, other.retention()?, at.retention()?), (Some(at_most(1)), Some(rules()), None));
        ensure_eq!((store.all_retention()?.len(), at.all_retention()?.len()), (2, 1));
        let report = store.retain(RetainOptions::default())?;
        ensure_eq!((names(&report.trashed), report.workspaces), (vec!["a", "b"], 2));
        ensure!(other.clear_retention()? && !other.clear_retention()?);
        let report = other.retain(RetainOptions::default())?;
        ensure_eq!((names(&report.trashed), report.workspaces), (vec!["d", "e"], 1));
        let of = |at: &Threads| Ok::<_, Error>(names(&receipts(at)?).into_iter().map(str::to_owned).collect::<Vec<_>>());
        ensure_eq!((of(&at)?, of(&other)?), (vec!["b".to_owned(), "a".to_owned()], vec!["e".to_owned(), "d".to_owned()]));
        let changes = told(store)?;
        let verbs: Vec<&str> = changes.iter().filter(|it| it.area == Area::Retention.as_str()).map(|it| it.verb.as_str()).collect();
        ensure_eq!(verbs, ["created", "deleted"]);
    }

    /// Receipts are read page by page, of all threads or of one, and a cursor goes with its query.
    fn receipts_are_read_page_by_page(store) {
        let at = workspace(store)?;
        let ids = several(&at, &["a", "b", "c", "d"])?;
        store.retain(by(at_most(1)))?;
        store.restore(&ids[0])?;
        let mut query = ReceiptQuery { limit: 3, ..ReceiptQuery::default() };
        let first = store.retention_receipts(query.clone())?;
        ensure_eq!(names(&first.entries), ["a", "c", "b"]);
        query.cursor = first.next_cursor;
        let second = store.retention_receipts(query.clone())?;
        ensure_eq!((names(&second.entries), second.next_cursor.as_ref()), (vec!["a"], None));
        let of_one = ReceiptQuery { thread: Some(ids[0].clone()), ..ReceiptQuery::default() };
        ensure_eq!(store.retention_receipts(of_one.clone())?.entries.len(), 2);
        ensure_err!(store.retention_receipts(ReceiptQuery { cursor: query.cursor, ..of_one }), Error::Invalid { field: "cursor", .. });
        ensure!(store.retention_receipts(ReceiptQuery { limit: 0, ..ReceiptQuery::default() })?.entries.is_empty());
        let other = store.workspace("/conformance/other".as_ref())?;
        store.remap(at.info().id, other.info().id)?;
        ensure_eq!(receipts(&other)?.len(), 4);
    }

    /// The numbers of a store count what stands beside the log.
    fn numbers_count_what_stands_beside(store) {
        let live = thread_with(store, &["a"])?;
        let at = workspace(store)?;
        live.put_document(crate::NewDocument::new("notes", "1"))?;
        live.put_document(crate::NewDocument::new("notes", "2"))?;
        live.put_document(crate::NewDocument::new("gone", "1"))?;
        live.delete_document("gone", None)?;
        at.start_run(NewRun::new("flow"))?;
        store.inject_message(live.id(), NewMessage::text("ana", "hello"))?;
        at.ask_request(NewRequest::approval("run it", b"call"))?;
        let stats = store.stats()?;
        ensure_eq!((stats.documents, stats.document_versions, stats.roadmaps), (1, 4, 0));
        let words = |counts: &[crate::WordCount]| counts.iter().map(|it| format!("{} {}", it.count, it.word)).collect::<Vec<_>>();
        ensure_eq!((words(&stats.runs), words(&stats.messages), words(&stats.requests)),
            (vec!["1 running".to_owned()], vec!["1 queued".to_owned()], vec!["1 pending".to_owned()]));
    }
}
