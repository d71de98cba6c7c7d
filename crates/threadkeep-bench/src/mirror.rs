//! M1: what an append costs while rollouts are kept, beside one while none are.

use std::path::Path;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{Durability, LiveRollouts, NewThread, StoreOptions};

use crate::Result;
use crate::appends::append;
use crate::measure::{Samples, inputs, ratio};
use crate::plan::Plan;
use crate::report::{Report, Target, time, wall};
use crate::text::Writer;

/// So many times as many calls make a round as elsewhere: a round has to be longer than the mirror rests.
const SYNCED_FACTOR: usize = 10;
const WRITTEN_FACTOR: usize = 20;

/// M1: one writer, the mirror behind it.
///
/// # Errors
/// As the store.
pub fn appends(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let synced = plan.sizes.synced.saturating_mul(SYNCED_FACTOR);
    compare(plan, root, ("synced", Durability::Synced, synced), report)?;
    let written = plan.sizes.calls.saturating_mul(WRITTEN_FACTOR);
    compare(plan, root, ("written", Durability::Written, written), report)
}

fn compare(
    plan: &Plan,
    root: &Path,
    (word, durability, calls): (&str, Durability, usize),
    report: &mut Report,
) -> Result<()> {
    let rounds = plan.sizes.rounds;
    let (kept, with) = live(&root.join(format!("{word}-kept")), LiveRollouts::On)?;
    let (_none, without) = live(&root.join(format!("{word}-none")), LiveRollouts::Off)?;
    let mut items = Writer::new(1).items(inputs(rounds, calls)).into_iter();
    let mut others = Writer::new(2).items(inputs(rounds, calls)).into_iter();
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for round in 0..=rounds {
        let (mut on, mut off) = (Samples::default(), Samples::default());
        on.round(calls, &mut || append(&with, items.next(), durability))?;
        // What is left to do must not weigh on the round of the other.
        let status = kept.drain_live_rollouts();
        if !status.is_in_step {
            return Err(format!("the mirror is not in step: {:?}", status.problems).into());
        }
        off.round(calls, &mut || append(&without, others.next(), durability))?;
        // The first round only warms up.
        if round > 0 {
            ours.add(on);
            floor.add(off);
        }
    }
    let what = format!("one writer, {word} append of 1 KiB, rollouts kept; the floor: none kept");
    let figure = ratio(&ours.round_wall, &floor.round_wall);
    report.compare("M1", &what, (wall(&ours), wall(&floor)), figure, Target::None);
    let means = |samples: &Samples| samples.wall.iter().sum::<f64>() / samples.wall.len().max(1) as f64;
    report.note(format!(
        "M1: mean of a {word} append {}, without rollouts {}; CPU with the mirror's {}, without {}",
        time(means(&ours)),
        time(means(&floor)),
        time(ours.cpu()),
        time(floor.cpu())
    ));
    Ok(())
}

fn live(folder: &Path, rollouts: LiveRollouts) -> Result<(Store, LiveThread)> {
    let store = Store::open(StoreOptions::folder(folder).live_rollouts(rollouts))?;
    let live = store.workspace(Path::new("/"))?.create_now(NewThread::default())?;
    Ok((store, live))
}
