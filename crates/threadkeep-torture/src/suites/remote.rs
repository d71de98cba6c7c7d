//! T18: the suites that ask nothing of a store's files, on a PostgreSQL server of their own.

use crate::plan::Plan;
use crate::report::{Outcome, Stop};
use crate::server::Server;
use crate::suites::{Suite, beside, bugs, claims, crowd, history, kills, mirror, retention, steering};

fn on_server(plan: &Plan, outcome: &mut Outcome, suite: Suite) -> Result<(), Stop> {
    suite(&plan.on(Server::start(&[], "")?), outcome)
}

/// T01 there.
pub(super) fn killed(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, kills::run)
}

/// T01 with rollouts that are kept, there.
pub(super) fn mirrored(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, mirror::run)
}

/// T01 with goals, jobs and checkpoints, there.
pub(super) fn changed_beside(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, beside::run)
}

/// Kills processes while retention runs on a server.
pub(super) fn retained(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, retention::run)
}

/// T01 with messages and requests, there.
pub(super) fn steered(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, steering::run)
}

/// T09 there.
pub(super) fn histories(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, history::run)
}

/// T10 there.
pub(super) fn claimed(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, claims::run)
}

/// T13 there.
pub(super) fn crowded(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, crowd::run)
}

/// B18 and B25 there.
pub(super) fn raced(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    on_server(plan, outcome, |plan, outcome| {
        bugs::one_head(plan, outcome)?;
        bugs::unanswered(plan, outcome)
    })
}
