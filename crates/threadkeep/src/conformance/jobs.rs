//! Jobs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{ensure, ensure_eq, ensure_err, promises, thread_with, workspace};
use crate::blocking::{Store, Workspace};
use crate::error::Error;
use crate::{Change, ClaimedJob, Job, JobEnd, JobId, JobLease, JobPatch, JobQuery, JobReport, JobStatus, NewJob, Uuid};

const QUEUE: &str = NewJob::QUEUE;
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn named(id: &str) -> NewJob {
    NewJob { id: JobId::new(id).ok(), ..NewJob::new("work") }
}

fn job_id(id: &str) -> Result<JobId, Error> {
    JobId::new(id)
}

fn claim(place: &Workspace) -> Result<ClaimedJob, Error> {
    place.claim_job(QUEUE)?.ok_or_else(|| Error::not_found("job that is due", QUEUE))
}

fn status(status: JobStatus) -> JobPatch {
    JobPatch { status: Some(status), ..JobPatch::default() }
}

fn listed(store: &Store, query: &JobQuery) -> Result<Vec<String>, Error> {
    let mut query = query.clone();
    let mut ids = Vec::new();
    loop {
        let page = store.jobs(query.clone())?;
        ids.extend(page.entries.iter().map(|job| job.id.to_string()));
        match page.next_cursor {
            None => return Ok(ids),
            cursor => query.cursor = cursor,
        }
    }
}

fn failed(error: &str, retry: bool) -> JobEnd {
    JobEnd::Failed { error: error.to_owned(), retry }
}

promises! {
    /// A job comes back as it was added, and is claimed, reported on and completed under its lease.
    fn a_job_is_added_claimed_and_completed(store) {
        let (place, thread) = (workspace(store)?, thread_with(store, &["x"])?);
        let new = NewJob {
            thread: Some(thread.id().clone()),
            queue: "builds".to_owned(),
            payload: Some(r#"{"nul":"\u0000","big":123456789012345678901234567890}"#.to_owned()),
            priority: -3,
            max_attempts: 7,
            backoff: Duration::from_secs(2),
            progress: Some(0),
            detail: Some("waits \u{1F9F5}".to_owned()),
            ..named("job-1")
        };
        let added = place.add_job(new.clone())?;
        ensure_eq!(store.job(&added.id)?, added);
        ensure_eq!((&added.thread, &added.queue, &added.payload), (&new.thread, &new.queue, &new.payload));
        ensure_eq!((added.priority, added.max_attempts, added.backoff_millis), (-3, 7, 2_000));
        ensure_eq!((added.status, added.progress, added.detail, added.attempts), (JobStatus::Queued, Some(0), new.detail, 0));
        ensure_eq!(place.claim_job(QUEUE)?, None);

        let claimed = place.claim_job("builds")?.ok_or_else(|| Error::not_found("job", "builds"))?;
        ensure_eq!((&claimed.job.status, claimed.job.attempts, claimed.job.live), (&JobStatus::Running, 1, true));
        ensure!(claimed.job.worker.is_some());
        ensure_eq!(place.claim_job("builds")?, None);
        let report = JobReport { progress: Some(40), detail: Some("compiles".to_owned()) };
        let told = store.report_job(&claimed.lease, report)?;
        ensure_eq!((told.progress, told.detail.as_deref(), &told.status), (Some(40), Some("compiles"), &JobStatus::Running));
        let end = JobEnd::Completed { result: Some(r#"{"ok":true}"#.to_owned()) };
        let done = store.end_job(&claimed.lease, end.clone())?;
        ensure_eq!((&done.status, done.progress, done.result.as_deref()), (&JobStatus::Completed, Some(100), Some(r#"{"ok":true}"#)));
        ensure!(done.ended_at.is_some() && !done.live);
        ensure_eq!(store.end_job(&claimed.lease, end)?, done);
        ensure_err!(store.end_job(&claimed.lease, failed("late", true)), Error::Conflict { what: "job", .. });
        ensure_err!(store.report_job(&claimed.lease, JobReport::default()), Error::Conflict { what: "job", .. });
    }

    /// A repeated addition finds the job; another one under its id is refused.
    fn a_repeated_addition_finds_the_job(store) {
        let place = workspace(store)?;
        let first = place.add_job(named("a"))?;
        claim(&place)?;
        let again = place.add_job(named("a"))?;
        ensure_eq!((again.created_at, again.status), (first.created_at, JobStatus::Running));
        ensure_err!(place.add_job(NewJob { payload: Some("1".to_owned()), ..named("a") }), Error::AlreadyExists { what: "job", .. });
        ensure_err!(store.add_job(NewJob::new("x")), Error::Invalid { field: "thread", .. });
    }

    /// Jobs are claimed by priority, then in the order in which they were put into the queue, each once.
    fn the_order_of_a_queue_is_total(store) {
        let place = workspace(store)?;
        for (id, priority) in [("b", 0), ("a", 0), ("z", 5), ("c", 0), ("y", 5), ("low", -1)] {
            place.add_job(NewJob { priority, ..named(id) })?;
        }
        place.update_job(&job_id("a")?, status(JobStatus::Paused))?;
        place.update_job(&job_id("a")?, status(JobStatus::Queued))?;
        let mut order = Vec::new();
        while let Some(claimed) = place.claim_job(QUEUE)? {
            order.push(claimed.job.id.to_string());
        }
        ensure_eq!(order, ["z", "y", "b", "c", "a", "low"]);
    }

    /// What is paused, ended, not due yet or of an unknown status is not claimed.
    fn only_what_is_queued_and_due_is_claimed(store) {
        let place = workspace(store)?;
        let unknown = JobStatus::Unknown("waiting_approval".to_owned());
        for (id, status) in [("p", JobStatus::Paused), ("c", JobStatus::Completed), ("f", JobStatus::Failed), ("x", JobStatus::Cancelled), ("u", unknown.clone())] {
            place.add_job(NewJob { status: Some(status), ..named(id) })?;
        }
        place.add_job(NewJob { delay: FOREVER, ..named("later") })?;
        ensure_eq!(place.claim_job(QUEUE)?, None);
        ensure_eq!(place.requeue_jobs(None)?, Vec::new());
        ensure_eq!(store.job(&job_id("u")?)?.status, unknown);
        ensure_eq!(store.update_job(&job_id("u")?, JobPatch { priority: Some(9), ..JobPatch::default() })?.status, unknown);
        ensure_eq!(place.claim_job(QUEUE)?, None);
        ensure_err!(place.add_job(NewJob { status: Some(JobStatus::Running), ..named("r") }), Error::Invalid { field: "status", .. });
        ensure_err!(place.update_job(&job_id("p")?, status(JobStatus::Running)), Error::Invalid { field: "status", .. });
        place.update_job(&job_id("p")?, status(JobStatus::Queued))?;
        ensure_eq!(claim(&place)?.job.id, job_id("p")?);
    }

    /// A failed attempt is followed by another one after a while, and the last one is the end.
    fn failures_are_tried_again_until_the_last(store) {
        let place = workspace(store)?;
        place.add_job(NewJob { max_attempts: 2, backoff: Duration::ZERO, ..named("a") })?;
        let first = claim(&place)?;
        let waiting = store.end_job(&first.lease, failed("no network", true))?;
        ensure_eq!((&waiting.status, waiting.attempts, waiting.error.as_deref()), (&JobStatus::Queued, 1, Some("no network")));
        ensure_eq!(waiting.ended_at, None);
        let second = claim(&place)?;
        ensure_eq!(second.job.attempts, 2);
        ensure!(second.lease != first.lease);
        let end = store.end_job(&second.lease, failed("again", true))?;
        ensure_eq!((&end.status, end.error.as_deref(), end.ended_at.is_some()), (&JobStatus::Failed, Some("again"), true));
        ensure_eq!(place.claim_job(QUEUE)?, None);
        let again = store.update_job(&end.id, status(JobStatus::Queued))?;
        ensure_eq!((again.attempts, again.ended_at), (0, None));

        place.add_job(NewJob { backoff: FOREVER, queue: "slow".to_owned(), ..named("b") })?;
        let slow = place.claim_job("slow")?.ok_or_else(|| Error::not_found("job", "slow"))?;
        let waiting = store.end_job(&slow.lease, failed("x", true))?;
        ensure!(waiting.due_at > waiting.updated_at);
        ensure_eq!(place.claim_job("slow")?, None);
        let given_up = place.add_job(NewJob { queue: "once".to_owned(), ..named("c") })?;
        let lease = place.claim_job("once")?.ok_or_else(|| Error::not_found("job", "once"))?.lease;
        ensure_eq!(store.end_job(&lease, failed("not worth it", false))?.status, JobStatus::Failed);
        ensure_eq!(store.job(&given_up.id)?.attempts, 1);
    }

    /// A worker that gives a job back loses nothing of it: neither its place nor an attempt.
    fn a_released_job_keeps_its_place(store) {
        let place = workspace(store)?;
        place.add_job(named("a"))?;
        place.add_job(named("b"))?;
        let first = claim(&place)?;
        let released = store.end_job(&first.lease, JobEnd::Released)?;
        ensure_eq!((&released.status, released.attempts), (&JobStatus::Queued, 0));
        ensure_eq!(store.end_job(&first.lease, JobEnd::Released)?.status, JobStatus::Queued);
        ensure_eq!(claim(&place)?.job.id, job_id("a")?);
    }

    /// A job that is cancelled, paused or queued by hand is taken away from its worker, who is told at its next word.
    fn a_running_job_can_be_taken_away(store) {
        let place = workspace(store)?;
        for to in [JobStatus::Cancelled, JobStatus::Paused, JobStatus::Queued] {
            let added = place.add_job(NewJob::new("work"))?;
            let claimed = claim(&place)?;
            ensure_eq!(claimed.job.id, added.id);
            let taken = store.update_job(&added.id, status(to.clone()))?;
            ensure_eq!((&taken.status, taken.live, taken.ended_at.is_some()), (&to, false, to == JobStatus::Cancelled));
            ensure_err!(store.report_job(&claimed.lease, JobReport::default()), Error::Conflict { what: "job", .. });
            ensure_err!(store.end_job(&claimed.lease, JobEnd::Completed { result: None }), Error::Conflict { what: "job", .. });
            if to == JobStatus::Queued {
                ensure!(claim(&place)?.lease != claimed.lease);
            }
        }
        let gone = JobLease { job: job_id("absent")?, lease: Uuid::from_u128(1) };
        ensure_err!(store.report_job(&gone, JobReport::default()), Error::NotFound { what: "job", .. });
    }

    /// The listing pages through all jobs, those that were changed last first, with no silent end, by queue, status and thread.
    fn jobs_are_listed_to_the_last(store) {
        let (place, thread) = (workspace(store)?, thread_with(store, &["x"])?);
        for number in 0..25 {
            let thread = (number % 5 == 0).then(|| thread.id().clone());
            place.add_job(NewJob { thread, queue: if number < 5 { "early" } else { "late" }.to_owned(), ..named(&format!("job-{number:02}")) })?;
        }
        place.update_job(&job_id("job-03")?, JobPatch { detail: Change::Set("changed".to_owned()), ..status(JobStatus::Paused) })?;
        let mut expected: Vec<String> = (0..25).rev().map(|number| format!("job-{number:02}")).filter(|id| id != "job-03").collect();
        expected.insert(0, "job-03".to_owned());
        ensure_eq!(listed(store, &JobQuery { limit: 7, ..JobQuery::default() })?, expected);
        expected.reverse();
        ensure_eq!(listed(store, &JobQuery { limit: 4, ascending: true, ..JobQuery::default() })?, expected);
        let early = JobQuery { queue: Some("early".to_owned()), ascending: true, limit: 2, ..JobQuery::default() };
        ensure_eq!(listed(store, &early)?, ["job-00", "job-01", "job-02", "job-04", "job-03"]);
        let paused = JobQuery { status: Some(JobStatus::Paused), ..JobQuery::default() };
        ensure_eq!(listed(store, &paused)?, ["job-03"]);
        let of_thread = JobQuery { thread: Some(thread.id().clone()), limit: 2, ..JobQuery::default() };
        ensure_eq!(listed(store, &of_thread)?, ["job-20", "job-15", "job-10", "job-05", "job-00"]);
        ensure_eq!(store.jobs(JobQuery { limit: 0, ..JobQuery::default() })?.entries, Vec::new());
        let page = store.jobs(JobQuery { limit: 7, ..JobQuery::default() })?;
        ensure_err!(store.jobs(JobQuery { cursor: page.next_cursor, ..early }), Error::Invalid { field: "cursor", .. });
    }

    /// A workspace is a fence: its jobs are not seen, claimed or changed through another one.
    fn jobs_stay_in_their_workspace(store) {
        let (place, other) = (workspace(store)?, store.workspace("/conformance/elsewhere".as_ref())?);
        place.add_job(named("a"))?;
        ensure_eq!(other.claim_job(QUEUE)?, None);
        ensure_eq!(other.jobs(JobQuery::default())?.entries, Vec::new());
        ensure_err!(other.job(&job_id("a")?), Error::NotFound { what: "job", .. });
        ensure_err!(other.update_job(&job_id("a")?, status(JobStatus::Cancelled)), Error::NotFound { what: "job", .. });
        ensure_err!(other.delete_job(&job_id("a")?), Error::NotFound { what: "job", .. });
        ensure_err!(other.add_job(named("a")), Error::AlreadyExists { what: "job", .. });
        ensure_eq!(store.claim_job(QUEUE)?.map(|claimed| claimed.job.id), Some(job_id("a")?));
        store.remap(place.info().id, other.info().id)?;
        ensure_eq!(store.job(&job_id("a")?)?.workspace, other.info().id);
    }

    /// A job is found by the beginning of its id, and one that does not run is deleted.
    fn jobs_are_found_and_deleted(store) {
        let place = workspace(store)?;
        for id in ["alpha-1", "alpha-2", "beta"] {
            place.add_job(named(id))?;
        }
        ensure_eq!(store.find_job("be")?, job_id("beta")?);
        ensure_eq!(store.find_job("alpha-1")?, job_id("alpha-1")?);
        ensure_err!(store.find_job("alpha"), Error::Ambiguous { .. });
        ensure_err!(store.find_job("../x"), Error::NotFound { what: "job", .. });
        let running = claim(&place)?;
        ensure_err!(store.delete_job(&running.job.id), Error::Conflict { what: "job", .. });
        store.delete_job(&job_id("beta")?)?;
        ensure_err!(store.job(&job_id("beta")?), Error::NotFound { what: "job", .. });
        ensure_err!(store.delete_job(&job_id("beta")?), Error::NotFound { what: "job", .. });
    }

    /// Progress over 100, no JSON, NUL, an empty name and no attempt at all are refused, and nothing is changed.
    fn jobs_that_can_not_be_are_refused(store) {
        let place = workspace(store)?;
        let json = |text: &str| Some(text.to_owned());
        ensure_err!(place.add_job(NewJob { progress: Some(101), ..named("a") }), Error::Invalid { field: "progress", .. });
        ensure_err!(place.add_job(NewJob { payload: json("{"), ..named("a") }), Error::Invalid { field: "payload", .. });
        ensure_err!(place.add_job(NewJob { payload: json("\"\0\""), ..named("a") }), Error::Invalid { field: "payload", .. });
        ensure_err!(place.add_job(NewJob { detail: json("a\0b"), ..named("a") }), Error::Invalid { field: "detail", .. });
        ensure_err!(place.add_job(NewJob { max_attempts: 0, ..named("a") }), Error::Invalid { field: "max_attempts", .. });
        ensure_err!(place.add_job(NewJob { name: " ".to_owned(), ..named("a") }), Error::Invalid { field: "name", .. });
        ensure_err!(place.add_job(NewJob { queue: String::new(), ..named("a") }), Error::Invalid { field: "queue", .. });
        place.add_job(named("a"))?;
        let claimed = claim(&place)?;
        let report = JobReport { progress: Some(200), detail: None };
        ensure_err!(store.report_job(&claimed.lease, report), Error::Invalid { field: "progress", .. });
        let end = JobEnd::Completed { result: json("not json") };
        ensure_err!(store.end_job(&claimed.lease, end), Error::Invalid { field: "result", .. });
        let patch = JobPatch { progress: Change::Set(101), ..JobPatch::default() };
        ensure_err!(store.update_job(&claimed.job.id, patch), Error::Invalid { field: "progress", .. });
        ensure_eq!(store.job(&claimed.job.id)?, claimed.job);
    }

    /// Threads that claim at once get each job once, and none is left.
    fn concurrent_claims_get_each_job_once(store) {
        const WORKERS: usize = 6;
        const JOBS: usize = 60;
        let place = workspace(store)?;
        for _ in 0..JOBS {
            place.add_job(NewJob::new("work"))?;
        }
        let work = |place: Workspace| {
            let mut mine: Vec<Job> = Vec::new();
            while let Some(claimed) = place.claim_job(QUEUE)? {
                place.end_job(&claimed.lease, JobEnd::Completed { result: None })?;
                mine.push(claimed.job);
            }
            Ok::<_, Error>(mine)
        };
        let mut claimed = Vec::new();
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let place = place.clone();
                std::thread::spawn(move || work(place))
            })
            .collect();
        for worker in workers {
            let lost = |_| Error::Backend { detail: "a worker panicked".to_owned() };
            claimed.extend(worker.join().map_err(lost)??.into_iter().map(|job| job.id));
        }
        ensure_eq!(claimed.len(), JOBS);
        ensure_eq!(claimed.into_iter().collect::<BTreeSet<_>>().len(), JOBS);
        let done = JobQuery { status: Some(JobStatus::Completed), ..JobQuery::default() };
        ensure_eq!(listed(store, &done)?.len(), JOBS);
    }

    /// A purge takes the jobs that work for the thread, and no others.
    fn a_purge_takes_the_jobs_of_the_thread(store) {
        let (place, thread) = (workspace(store)?, thread_with(store, &["x"])?);
        place.add_job(NewJob { thread: Some(thread.id().clone()), ..named("of-the-thread") })?;
        place.add_job(named("of-none"))?;
        thread.shutdown()?;
        store.delete(thread.id())?;
        store.purge(thread.id())?;
        ensure_eq!(listed(store, &JobQuery::default())?, ["of-none"]);
    }
}
