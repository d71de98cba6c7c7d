//! The workflow runs that a handle sees.

use super::{Inner, Threads};
use crate::db::{Sync, Terms, Tx};
use crate::error::Result;
use crate::id::{PartId, RunId};
use crate::log::append::mint_uuid;
use crate::runs::candidates::{self, Candidate, CandidateQuery, Judgement, NewCandidate};
use crate::runs::parts::{self, NewPart, PartEnd, ReplayFrom, RunPart};
use crate::runs::tree::{self, RunTree, TreeQuery};
use crate::runs::{self, Interrupted, NewRun, Run, RunEnd, RunPatch, RunQuery, RunStatus};
use crate::thread::Page;
use crate::threads::Scope;
use crate::time::Timestamp;

impl Threads {
    /// Adds a run to the workspace that this handle is opened on, or to that of the thread that it works for. A repeated call with
    /// the same id finds the run.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a run that can't be kept, and through a handle of the whole store for one without a thread;
    /// [`crate::Error::AlreadyExists`] when the id is another run's.
    pub async fn start_run(&self, mut run: NewRun) -> Result<Run> {
        self.inner.screen.text("goal", &mut run.goal)?;
        self.inner.screen.json("metadata", &mut run.metadata)?;
        let id = match run.id.clone() {
            Some(id) => id,
            None => RunId::new(self.inner.mint_for_run())?,
        };
        self.write_run(move |tx, scope, now| runs::start(tx, scope, &run, &id, now)).await
    }

    /// Reads a run.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Corrupt`] names a run that can't be read.
    pub async fn run(&self, id: &RunId) -> Result<Run> {
        let (scope, id) = (self.scope, id.clone());
        self.inner.db.read(move |tx| runs::get(tx, scope, &id)).await
    }

    /// Finds a run by its id, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_run(&self, name: impl Into<String>) -> Result<RunId> {
        let (scope, name) = (self.scope, name.into());
        self.inner.db.read(move |tx| runs::find(tx, scope, &name)).await
    }

    /// Reads a page of runs, those that were added last at the beginning. A damaged one is listed, and says so.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn runs(&self, query: RunQuery) -> Result<Page<Run>> {
        let scope = self.scope;
        self.inner.db.read(move |tx| runs::page(tx, scope, &query)).await
    }

    /// Reads a run with a page of what belongs to it, in one snapshot. What is damaged is in it, and says so.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Invalid`] for a cursor of another run.
    pub async fn run_tree(&self, id: &RunId, query: TreeQuery) -> Result<RunTree> {
        let (scope, id) = (self.scope, id.clone());
        self.inner.db.read(move |tx| tree::page(tx, scope, &id, &query)).await
    }

    /// Changes what the patch names of a run: an interrupted one is taken up again with [`RunStatus::Running`].
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] for one that has ended, or whose status is not known;
    /// [`crate::Error::Invalid`] for a status that is an end.
    pub async fn update_run(&self, id: &RunId, mut patch: RunPatch) -> Result<Run> {
        let screen = &self.inner.screen;
        patch.metadata.with_set(|metadata| screen.json("metadata", metadata))?;
        let id = id.clone();
        self.write_run(move |tx, scope, now| runs::update(tx, scope, &id, &patch, now)).await
    }

    /// Ends a run. A repeated call with the same end finds it ended, at the same time.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] when it has another end, also an interruption, or its status is not
    /// known.
    pub async fn end_run(&self, id: &RunId, mut end: RunEnd) -> Result<Run> {
        self.inner.screen.text("reason", &mut end.reason)?;
        let id = id.clone();
        self.write_run(move |tx, scope, now| runs::end(tx, scope, &id, &end, now)).await
    }

    /// Marks what still runs in a run, and the run itself if it does, as interrupted: for whoever finds that who worked on it has gone.
    /// Nothing else does it. A repeated call changes nothing. Each can be taken up again.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`].
    pub async fn interrupt_run(&self, id: &RunId, reason: impl Into<String>) -> Result<Interrupted> {
        let mut reason = Some(reason.into());
        self.inner.screen.text("reason", &mut reason)?;
        let (id, reason) = (id.clone(), reason.unwrap_or_default());
        let run = move |tx: &mut dyn Tx, scope, now| runs::interrupt(tx, scope, &id, &reason, now);
        // A second run finds nothing left to do, and counts less.
        self.write_run_with(Sync::Synced.free().told(), run).await
    }

    /// Deletes a run that does not run, also one that can't be read, with everything that belongs to it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] for one that runs.
    pub async fn delete_run(&self, id: &RunId) -> Result<()> {
        let id = id.clone();
        let run = move |tx: &mut dyn Tx, scope, now| runs::delete(tx, scope, &id, now);
        self.write_run_with(Sync::Synced.free().told(), run).await
    }

    /// Starts a part of a run that runs: a branch, a leaf or a control node. One that is pending may be added while the run is pending
    /// or paused, too. A repeated call with the same id finds the part, whatever has become of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the run, or for a branch that is none of it; [`crate::Error::Conflict`] for a run that does not
    /// run; [`crate::Error::AlreadyExists`] when the id is another part's; [`crate::Error::Invalid`] for what can't be kept.
    pub async fn start_part(&self, run: &RunId, part: NewPart) -> Result<RunPart> {
        let id = self.inner.part_id(part.id.as_ref())?;
        let run = run.clone();
        self.write_run(move |tx, scope, now| parts::start(tx, scope, &run, &part, &id, now)).await
    }

    /// Reads a part of a run.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Corrupt`] names a part that can't be read.
    pub async fn part(&self, id: &PartId) -> Result<RunPart> {
        let (scope, id) = (self.scope, id.clone());
        self.inner.db.read(move |tx| parts::read(tx, scope, &id)).await
    }

    /// Finds a part of a run by its id, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_part(&self, name: impl Into<String>) -> Result<PartId> {
        let (scope, name) = (self.scope, name.into());
        self.inner.db.read(move |tx| parts::find(tx, scope, &name)).await
    }

    /// Says how far a part is that has not ended ([`RunStatus::Pending`], [`RunStatus::Running`], [`RunStatus::Paused`]), or takes an
    /// interrupted one up again.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] for one that has ended or whose status is not known, and when it is to
    /// run in a run that does not; [`crate::Error::Invalid`] for a status that is an end.
    pub async fn mark_part(&self, id: &PartId, status: RunStatus) -> Result<RunPart> {
        let id = id.clone();
        self.write_run(move |tx, scope, now| parts::mark(tx, scope, &id, &status, now)).await
    }

    /// Ends a part with the answer of whoever worked on it. A repeated call with the same answer finds it ended, at the same time.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] when it has ended in another way, also by an interruption, or its status
    /// is not known; [`crate::Error::Invalid`] for a result that is no JSON.
    pub async fn end_part(&self, id: &PartId, mut end: PartEnd) -> Result<RunPart> {
        self.inner.screen.text("reason", &mut end.reason)?;
        self.inner.screen.json("result", &mut end.result)?;
        self.inner.screen.list("list", &mut end.list)?;
        let bytes = [&end.reason, &end.result, &end.list].into_iter().flatten().map(String::len).sum();
        let (scope, id, now) = (self.scope, id.clone(), self.inner.host.now());
        let place = self.inner.db.place(bytes).await;
        let run = move |tx: &mut dyn Tx| parts::end(tx, scope, &id, &end, now);
        self.inner.db.write_in(place, Sync::Synced.free().told().repeatable(), run).await
    }

    /// The completed leaf of a run whose output can be used again for an input, if there is one; of several the one that was started
    /// last. With [`ReplayFrom::Workflow`] leaves of the other runs of the workflow are found, too.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the run; [`crate::Error::Corrupt`] when there is but one that can't be read.
    pub async fn replay_leaf(
        &self,
        run: &RunId,
        leaf: impl Into<String>,
        input_hash: impl Into<String>,
        from: ReplayFrom,
    ) -> Result<Option<RunPart>> {
        let (scope, run, leaf, hash) = (self.scope, run.clone(), leaf.into(), input_hash.into());
        self.inner.db.read(move |tx| parts::replay(tx, scope, &run, (&leaf, &hash), from)).await
    }

    /// Adds a candidate to a control node of a run that runs. A repeated call with the same id finds the candidate.
    ///
    /// # Errors
    /// As [`Threads::start_part`].
    pub async fn add_candidate(&self, run: &RunId, mut candidate: NewCandidate) -> Result<Candidate> {
        self.inner.screen.json("rationale", &mut candidate.judgement.rationale)?;
        let id = self.inner.part_id(candidate.id.as_ref())?;
        let run = run.clone();
        self.write_run(move |tx, scope, now| candidates::add(tx, scope, &run, &candidate, &id, now)).await
    }

    /// Says what was found of a candidate. A repeated call with the same judgement changes nothing.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; [`crate::Error::Conflict`] when something else was found of it already;
    /// [`crate::Error::Invalid`] for a rationale that is no JSON.
    pub async fn judge_candidate(&self, id: &PartId, mut judgement: Judgement) -> Result<Candidate> {
        self.inner.screen.json("rationale", &mut judgement.rationale)?;
        let id = id.clone();
        self.write_run(move |tx, scope, now| candidates::judge(tx, scope, &id, &judgement, now)).await
    }

    /// Finds a candidate by its id, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_candidate(&self, name: impl Into<String>) -> Result<PartId> {
        let (scope, name) = (self.scope, name.into());
        self.inner.db.read(move |tx| candidates::find(tx, scope, &name)).await
    }

    /// Reads a page of the candidates of a control node, the best first. A damaged one is listed, and says so.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the control node; [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn candidates(&self, control: &PartId, query: CandidateQuery) -> Result<Page<Candidate>> {
        let (scope, control) = (self.scope, control.clone());
        self.inner.db.read(move |tx| candidates::page(tx, scope, &control, &query)).await
    }

    async fn write_run<T: Send + 'static>(
        &self,
        run: impl FnMut(&mut dyn Tx, Scope, Timestamp) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write_run_with(Sync::Synced.free().told().repeatable(), run).await
    }

    async fn write_run_with<T: Send + 'static>(
        &self,
        terms: Terms,
        mut run: impl FnMut(&mut dyn Tx, Scope, Timestamp) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (scope, now) = (self.scope, self.inner.host.now());
        self.inner.db.write(terms, move |tx| run(tx, scope, now)).await
    }
}

impl Inner {
    fn mint_for_run(&self) -> String {
        mint_uuid(&*self.host, self.host.now()).to_string()
    }

    fn part_id(&self, given: Option<&PartId>) -> Result<PartId> {
        given.map_or_else(|| PartId::new(self.mint_for_run()), |id| Ok(id.clone()))
    }
}
