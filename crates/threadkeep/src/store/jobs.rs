//! The jobs that a handle sees, and the work on them.

use super::{Inner, Threads};
use crate::claims;
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::id::JobId;
use crate::jobs::{self, ClaimedJob, Job, JobEnd, JobLease, JobPatch, JobQuery, JobReport, NewJob};
use crate::log::append::mint_uuid;
use crate::thread::Page;
use crate::time::Timestamp;

impl Threads {
    /// Adds a job to the workspace that this handle is opened on, or to that of the thread that it works for. A repeated call with
    /// the same id finds the job.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a job that can't be kept, and through a handle of the whole store for one without a thread;
    /// [`crate::Error::AlreadyExists`] when the id is another job's.
    pub async fn add_job(&self, mut job: NewJob) -> Result<Job> {
        self.inner.screen_job(&mut job)?;
        let now = self.inner.host.now();
        let id = match job.id.clone() {
            Some(id) => id,
            None => JobId::new(mint_uuid(&*self.inner.host, now).to_string())?,
        };
        let scope = self.scope;
        let add = move |tx: &mut dyn Tx| jobs::add(tx, scope, &job, &id, now);
        self.inner.db.write(Sync::Synced.free().told().repeatable(), add).await
    }

    /// Reads a job.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Corrupt`] names a job that can't be read.
    pub async fn job(&self, id: &JobId) -> Result<Job> {
        let (scope, id) = (self.scope, id.clone());
        let read = move |tx: &mut dyn Tx| {
            let job = jobs::get(tx, scope, &id)?;
            let at = claims::judged_at(tx, job.worker.is_some())?;
            Ok((job, at))
        };
        let (job, at) = self.inner.db.read(read).await?;
        Ok(self.inner.judge_job(job, at))
    }

    /// Finds a job by its id, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_job(&self, name: impl Into<String>) -> Result<JobId> {
        let (scope, name) = (self.scope, name.into());
        self.inner.db.read(move |tx| jobs::find(tx, scope, &name)).await
    }

    /// Reads a page of jobs, those that were changed last at the beginning. A damaged one is listed, and says so.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn jobs(&self, query: JobQuery) -> Result<Page<Job>> {
        let scope = self.scope;
        let read = move |tx: &mut dyn Tx| {
            let page = jobs::page(tx, scope, &query)?;
            let at = claims::judged_at(tx, !page.entries.is_empty())?;
            Ok((page, at))
        };
        let (page, at) = self.inner.db.read(read).await?;
        let entries = page.entries.into_iter().map(|job| self.inner.judge_job(job, at)).collect();
        Ok(Page { entries, ..page })
    }

    /// Claims the first job of a queue that is due: of those of the greatest priority the one that was put into the queue first.
    /// Nobody else has it then. When nothing is due, jobs of workers that died are queued again first.
    ///
    /// # Errors
    /// As every write.
    pub async fn claim_job(&self, queue: impl Into<String>) -> Result<Option<ClaimedJob>> {
        let queue = queue.into();
        if let Some(claimed) = self.claim_once(&queue).await? {
            return Ok(Some(claimed));
        }
        match self.requeue_jobs(Some(queue.clone())).await?.is_empty() {
            true => Ok(None),
            false => self.claim_once(&queue).await,
        }
    }

    async fn claim_once(&self, queue: &str) -> Result<Option<ClaimedJob>> {
        let (scope, queue, holder, now) = (self.scope, queue.to_owned(), self.inner.holder()?, self.inner.host.now());
        let lease = mint_uuid(&*self.inner.host, now);
        let claim = move |tx: &mut dyn Tx| jobs::claim(tx, scope, &queue, (&holder, lease), now);
        let claimed = self.inner.db.write(Sync::Synced.free().told().repeatable(), claim).await?;
        Ok(claimed
            .map(|job| ClaimedJob { lease: JobLease { job: job.id.clone(), lease }, job: Job { live: true, ..job } }))
    }

    /// Notes what a worker says of a job that it runs; also a sign of life.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when the job was taken away from it: cancelled, paused, ended, or claimed by another worker.
    pub async fn report_job(&self, lease: &JobLease, mut report: JobReport) -> Result<Job> {
        self.inner.screen.text("detail", &mut report.detail)?;
        let (lease, now) = (lease.clone(), self.inner.host.now());
        let run = move |tx: &mut dyn Tx| jobs::report(tx, &lease, &report, now);
        let job = self.inner.db.write(Sync::Synced.free().told().repeatable(), run).await?;
        Ok(Job { live: true, ..job })
    }

    /// Ends a worker's work on a job. One that failed and has an attempt left is queued again, to be claimed after a while that
    /// doubles with each attempt. A repeated call gives the same answer.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when the job was taken away from the worker; [`crate::Error::Invalid`] for a result that is no
    /// JSON.
    pub async fn end_job(&self, lease: &JobLease, mut end: JobEnd) -> Result<Job> {
        self.inner.screen_end(&mut end)?;
        let (lease, now) = (lease.clone(), self.inner.host.now());
        let run = move |tx: &mut dyn Tx| jobs::end(tx, &lease, &end, now);
        self.inner.db.write(Sync::Synced.free().told().repeatable(), run).await
    }

    /// Changes what the patch names of a job that somebody else may run. One that runs is taken away from its worker when its
    /// status changes.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Invalid`] for what can't be kept.
    pub async fn update_job(&self, id: &JobId, mut patch: JobPatch) -> Result<Job> {
        let screen = &self.inner.screen;
        patch.detail.with_set(|detail| screen.text("detail", detail))?;
        let (scope, id, now) = (self.scope, id.clone(), self.inner.host.now());
        let terms = Sync::Synced.free().told().repeatable();
        self.inner.db.write(terms, move |tx| jobs::update(tx, scope, &id, &patch, now)).await
    }

    /// Deletes a job that does not run, also one that can't be read.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] for one that runs.
    pub async fn delete_job(&self, id: &JobId) -> Result<()> {
        let (scope, id, now) = (self.scope, id.clone(), self.inner.host.now());
        self.inner.db.write(Sync::Synced.free().told(), move |tx| jobs::delete(tx, scope, &id, now)).await
    }

    /// Takes the jobs of a queue, or of all, away from workers that died: they are queued again after a while, and those that
    /// have no attempt left have failed. Gives them. [`Threads::claim_job`] does it when it finds nothing.
    ///
    /// # Errors
    /// As every write.
    pub async fn requeue_jobs(&self, queue: Option<String>) -> Result<Vec<Job>> {
        let scope = self.scope;
        let running = self.judged(move |tx| jobs::running(tx, scope, queue.as_deref())).await?;
        let lease = |job: Job| job.lease.map(|lease| JobLease { job: job.id, lease });
        let dead: Vec<JobLease> = running.into_iter().filter(|job| !job.live).filter_map(lease).collect();
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.inner.host.now();
        // A second run finds nothing left to do, and gives less.
        let terms = Sync::Synced.free().told().repeatable();
        self.inner.db.write(terms, move |tx| jobs::requeue(tx, &dead, now)).await
    }

    /// Reads jobs, and finds out whose workers are alive.
    async fn judged(&self, mut read: impl FnMut(&mut dyn Tx) -> Result<Vec<Job>> + Send + 'static) -> Result<Vec<Job>> {
        let read = move |tx: &mut dyn Tx| {
            let jobs = read(tx)?;
            let at = claims::judged_at(tx, !jobs.is_empty())?;
            Ok((jobs, at))
        };
        let (jobs, at) = self.inner.db.read(read).await?;
        Ok(jobs.into_iter().map(|job| self.inner.judge_job(job, at)).collect())
    }
}

impl Inner {
    fn judge_job(&self, job: Job, at: Option<Timestamp>) -> Job {
        let live = job.lease.is_some() && job.worker.as_ref().is_some_and(|worker| self.is_alive(worker, at));
        Job { live, ..job }
    }

    fn screen_job(&self, job: &mut NewJob) -> Result<()> {
        let mut name = Some(std::mem::take(&mut job.name));
        self.screen.text("name", &mut name)?;
        job.name = name.unwrap_or_default();
        self.screen.text("detail", &mut job.detail)?;
        self.screen.json("payload", &mut job.payload)
    }

    fn screen_end(&self, end: &mut JobEnd) -> Result<()> {
        match end {
            JobEnd::Completed { result } => self.screen.json("result", result),
            JobEnd::Failed { error, .. } => {
                let mut text = Some(std::mem::take(error));
                self.screen.text("error", &mut text)?;
                *error = text.unwrap_or_default();
                Ok(())
            }
            JobEnd::Cancelled | JobEnd::Released => Ok(()),
        }
    }
}
