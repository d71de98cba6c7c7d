//! Group commit: which requests share a transaction, in which order, and what each is answered.
//!
//! The writer drains its queue: all waiting requests run in one immediate transaction, each inside its own savepoint, then
//! one commit, one sync, and all are answered. There is no timer: a write that comes alone goes at once. Nothing is
//! acknowledged before the commit returned. The engine is behind a trait, so that the order of things can be tried without
//! a disk.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;

use crate::db::write_queue::{Job, Serve};
use crate::db::{Erased, Request, Sync, Tx, answer};
use crate::error::{Error, Result};
use crate::planted::{self, Defect};

/// How many requests share a commit at most.
const GROUP_LIMIT: usize = 512;
/// How many bytes a group may have collected before it is committed, so that a small request does not wait for many large ones.
const GROUP_BYTES: usize = 8 << 20;

/// What a group is committed with.
pub(crate) trait Engine: Send {
    type Connection: Connection;

    /// The connection; opened anew after [`Engine::distrust`].
    fn connection(&mut self) -> Result<&Self::Connection>;

    /// The same, set to commit at this level of syncing.
    fn connection_for(&mut self, sync: Sync) -> Result<&Self::Connection>;

    /// Waits in line for the right to write, and has it until [`Engine::leave`].
    fn enter(&mut self) -> Result<()>;

    /// Gives the right to write to the next.
    fn leave(&mut self);

    /// Writes everything anew, with the right to write. An engine that keeps nothing on a disk leaves no traces there.
    fn erase(&mut self) -> Result<Erased> {
        Ok(Erased { is_over: true, ..Erased::default() })
    }

    /// Drops the connection after an I/O error, with the right to write: what it believes of the file may be wrong.
    fn distrust(&mut self);
}

/// One connection of an engine.
pub(crate) trait Connection {
    fn command(&self, command: Command) -> Result<()>;

    /// Whether a transaction is open. Some errors end the whole of it, and not the savepoint alone.
    fn in_transaction(&self) -> bool;

    fn tx(&self) -> impl Tx;
}

/// What is said of a transaction itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Begin,
    Commit,
    Rollback,
    /// Opens the savepoint of a request.
    Save,
    /// Undoes what was done since the savepoint.
    Undo,
    /// Closes the savepoint.
    Release,
}

/// Serves the writer's queue with an engine.
pub(crate) struct Committer<E>(pub(crate) E);

impl<E: Engine> Serve for Committer<E> {
    fn serve(&mut self, first: Job, next: &mut dyn FnMut() -> Option<Job>) -> Option<Job> {
        match first {
            // What was asked to be written before it is done by now, so it sees that.
            Job::Read(request) => {
                read(&mut self.0, request);
                None
            }
            Job::Write(request, sync) => {
                let mut group = Group::default();
                group.push(request, sync);
                let left = group.fill(next);
                serve_group(&mut self.0, group, left, next)
            }
            Job::Erase(reply) => {
                // A caller that no longer waits needs no answer.
                drop(reply.send(erase(&mut self.0)));
                None
            }
        }
    }
}

/// Requests that share a commit.
#[derive(Default)]
struct Group {
    requests: Requests,
    sync: Option<Sync>,
    bytes: usize,
}

type Requests = VecDeque<Box<dyn Request>>;

impl Group {
    fn push(&mut self, request: Box<dyn Request>, sync: Sync) {
        self.bytes = self.bytes.saturating_add(request.bytes());
        self.sync = self.sync.max(Some(sync));
        self.requests.push_back(request);
    }

    /// Takes what waits in the queue, while there is room; gives what is no write and stands in the way.
    fn fill(&mut self, next: &mut dyn FnMut() -> Option<Job>) -> Option<Job> {
        while !self.is_full() {
            match next()? {
                Job::Write(request, sync) => self.push(request, sync),
                other @ (Job::Read(_) | Job::Erase(_)) => return Some(other),
            }
        }
        None
    }

    fn is_full(&self) -> bool {
        self.requests.len() >= GROUP_LIMIT || self.bytes >= GROUP_BYTES
    }
}

/// Waits in line for the right to write, and commits what has come by then; gives what is no write and came behind it.
fn serve_group(
    engine: &mut impl Engine,
    mut group: Group,
    left: Option<Job>,
    next: &mut dyn FnMut() -> Option<Job>,
) -> Option<Job> {
    if let Err(error) = engine.enter() {
        for request in group.requests {
            request.finish(Err(error.clone()));
        }
        return left;
    }
    // The wait may have been long, and the next one will be: who came meanwhile comes along.
    let left = left.or_else(|| group.fill(next));
    commit(engine, group);
    left
}

fn erase(engine: &mut impl Engine) -> Result<Erased> {
    engine.enter()?;
    let outcome = engine.erase();
    if matches!(outcome, Err(Error::Io { .. } | Error::Corrupt { .. })) {
        engine.distrust();
    }
    engine.leave();
    outcome
}

fn read(engine: &mut impl Engine, request: Box<dyn Request>) {
    let connection = match engine.connection() {
        Ok(connection) => connection,
        Err(error) => {
            tracing::error!(%error, "a read was dropped: the store can't be opened again");
            return;
        }
    };
    if std::panic::catch_unwind(AssertUnwindSafe(|| answer(request, &mut connection.tx()))).is_err() {
        // Its caller is told by the answer that never comes; the others must not wait for a thread that is gone.
        tracing::error!("a read panicked");
    }
}

/// Commits a group, gives the right to write to the next, and answers.
fn commit(engine: &mut impl Engine, group: Group) {
    let mut answers = Answers::new();
    let committed = run_twice(engine, group, &mut answers);
    // While nobody else may write: what the disk lost must not be built upon.
    if is_distrusted(&committed) || answers.iter().any(|(_, outcome)| is_distrusted(outcome)) {
        engine.distrust();
    }
    engine.leave();
    // After the right to write was given up: whoever is answered may stop this process, and must not stop the others with it.
    for (request, outcome) in answers {
        request.finish(outcome);
    }
}

/// Whether an outcome may come from what the connection believes of the file, and not from the file.
fn is_distrusted(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(Error::Io { .. } | Error::Corrupt { .. }))
}

/// Runs a group; once more, on a fresh connection, when something looks damaged. SQLite calls a page damaged that it could not
/// read, and what could not be read once may be read now.
fn run_twice(engine: &mut impl Engine, group: Group, answers: &mut Answers) -> Result<()> {
    let sync = group.sync.unwrap_or(Sync::Synced);
    let mut requests = group.requests;
    for doubts in [true, false] {
        let connection = match engine.connection_for(sync) {
            Ok(connection) => connection,
            Err(error) => {
                answers.extend(requests.into_iter().map(|request| (request, Err(error.clone()))));
                return Err(error);
            }
        };
        requests = match run_group(connection, requests, doubts, answers) {
            Ran::Ended(outcome) => return outcome,
            Ran::Doubted(requests) => requests,
        };
        engine.distrust();
    }
    Ok(())
}

/// Requests that are done, with their outcomes.
type Answers = Vec<(Box<dyn Request>, Result<()>)>;

/// How the run of a group ended.
enum Ran {
    /// All of it is answered; the result is that of the commit.
    Ended(Result<()>),
    /// Something looked damaged: nothing has happened, and these are to be run again.
    Doubted(Requests),
}

/// Runs a group in one transaction.
fn run_group(connection: &impl Connection, mut group: Requests, doubts: bool, answers: &mut Answers) -> Ran {
    let is_doubted = |outcome: &Result<()>| doubts && matches!(outcome, Err(Error::Corrupt { .. }));
    while !group.is_empty() {
        let begun = connection.command(Command::Begin);
        if let Err(error) = &begun {
            if is_doubted(&begun) {
                return Ran::Doubted(group);
            }
            answers.extend(group.into_iter().map(|request| (request, Err(error.clone()))));
            return Ran::Ended(begun);
        }
        let mut ran = Answers::new();
        let culprit = run_each(connection, &mut group, &mut ran);
        let mut looks_damaged = ran.iter().any(|(_, outcome)| is_doubted(outcome));
        let is_over = culprit.is_some();
        if let Some((request, outcome)) = culprit {
            if is_doubted(&outcome) {
                looks_damaged = true;
                group.push_front(request);
            } else {
                answers.push((request, outcome));
            }
        }
        if is_over || looks_damaged {
            // The transaction ended with the culprit, or has to: the others run again, those that were refused among them,
            // because what they saw of the others has not happened.
            undo(connection, &mut ran);
            group = ran.into_iter().map(|(request, _)| request).chain(group).collect();
            if looks_damaged {
                return Ran::Doubted(group);
            }
            continue;
        }
        if planted::is(Defect::AcksBeforeCommit) {
            ran.drain(..).for_each(|(request, outcome)| request.finish(outcome));
        }
        let outcome = connection.command(Command::Commit);
        let Err(error) = &outcome else {
            answers.append(&mut ran);
            return Ran::Ended(Ok(()));
        };
        undo(connection, &mut ran);
        let told = |at| match at {
            _ if planted::is(Defect::AcksFailedCommit) => Ok(()),
            1.. if planted::is(Defect::TellsTheFirstOnly) => Ok(()),
            _ => Err(error.clone()),
        };
        answers.extend(ran.into_iter().enumerate().map(|(at, (request, _))| (request, told(at))));
        return Ran::Ended(outcome);
    }
    Ran::Ended(Ok(()))
}

/// Ends a transaction, if it has not ended by itself, and tells the requests that ran in it that what they did was taken back.
fn undo(connection: &impl Connection, ran: &mut Answers) {
    if connection.in_transaction() {
        drop(connection.command(Command::Rollback));
    }
    for (request, _) in ran.iter_mut().filter(|(_, outcome)| outcome.is_ok()) {
        request.undone();
    }
}

/// Runs each request of a group; gives the one that ended the whole transaction, if one did.
fn run_each(
    connection: &impl Connection,
    group: &mut Requests,
    ran: &mut Answers,
) -> Option<(Box<dyn Request>, Result<()>)> {
    let alone = group.len() == 1;
    while let Some(mut request) = group.pop_front() {
        let outcome = match alone {
            true => run_request(connection, &mut *request),
            false => run_in_savepoint(connection, &mut *request),
        };
        if outcome.is_err() {
            request.undone();
            if alone && connection.in_transaction() && !planted::is(Defect::KeepsHalfRequests) {
                drop(connection.command(Command::Rollback));
            }
            if !connection.in_transaction() {
                return Some((request, outcome));
            }
        }
        ran.push((request, outcome));
    }
    None
}

fn run_in_savepoint(connection: &impl Connection, request: &mut dyn Request) -> Result<()> {
    connection.command(Command::Save)?;
    let outcome = run_request(connection, request);
    if !connection.in_transaction() {
        return outcome;
    }
    let undone = match &outcome {
        Ok(()) => Ok(()),
        Err(_) if planted::is(Defect::KeepsHalfRequests) => Ok(()),
        Err(_) => connection.command(Command::Undo),
    };
    if let Err(error) = undone.and_then(|()| connection.command(Command::Release)) {
        // What it wrote can't be told apart any more: the whole transaction goes, and the others run again. A refusal of its
        // own goes with it: what that was refused for may not happen.
        drop(connection.command(Command::Rollback));
        return Err(error);
    }
    outcome
}

/// Runs a request; one that panics is refused and takes nobody with it.
fn run_request(connection: &impl Connection, request: &mut dyn Request) -> Result<()> {
    let run = AssertUnwindSafe(|| request.run(&mut connection.tx()));
    let refused = |detail: &str| Err(Error::Backend { detail: detail.to_owned() });
    match std::panic::catch_unwind(run) {
        Ok(Ok(())) if !connection.in_transaction() => refused("a request went on though its transaction had ended"),
        Ok(outcome) => outcome,
        Err(_) => refused("a request panicked"),
    }
}
