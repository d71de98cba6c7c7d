//! W1, W2: many processes that write one store at once, beside a store that commits one by one.

pub mod writers;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::contention::writers::{Process, Side};
use crate::measure::{Samples, count, quantile, ratio};
use crate::plan::Plan;
use crate::report::{Report, Target, time, wall};
use crate::{Result, bare, stores};

/// W1: what is committed in a second, by the number of processes and of the writers in each of them.
///
/// # Errors
/// As the store and SQLite.
pub fn throughput(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    for &processes in plan.sizes.processes {
        for &writers in plan.sizes.writers_each {
            let crowd = Crowd { processes, writers, time: plan.sizes.short };
            let [ours, floor] = crowd.measure(plan, root)?;
            let what = format!(
                "{processes} × {writers} writers, synced: appends per second, commits per append, a wait p50 / p99 / longest"
            );
            let figure = ratio(&ours.rates, &floor.rates);
            report.compare("W1", what, (ours.throughput(), floor.throughput()), figure, Target::None);
        }
    }
    Ok(())
}

/// W2: how long the unluckiest of many processes waits while all of them write without a pause.
///
/// # Errors
/// As the store and SQLite.
pub fn waits(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    for &processes in plan.sizes.many_processes {
        let crowd = Crowd { processes, writers: 1, time: plan.sizes.long };
        let [ours, floor] = crowd.measure(plan, root)?;
        let unluckiest = quantile(&ours.unluckiest, 1_000);
        let what = format!("{processes} processes, synced, without a pause: p99 of the unluckiest in any round");
        let sides = (time(unluckiest), time(quantile(&floor.unluckiest, 1_000)));
        report.time("W2", what, sides, unluckiest, Target::AtMost(1.0));
        let what = "… the longest wait";
        report.time("W2", what, (time(ours.longest()), time(floor.longest())), ours.longest(), Target::None);
        let what = "… appends per second, commits per append, a wait p50 / p99 / longest";
        let figure = ratio(&ours.rates, &floor.rates);
        report.compare("W2", what, (ours.throughput(), floor.throughput()), figure, Target::None);
    }
    Ok(())
}

/// Processes with writers, each of a thread of its own.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    processes: usize,
    writers: usize,
    time: Duration,
}

/// What one side did in its rounds.
#[derive(Debug, Default)]
struct Done {
    /// Items a second, by the items that are stored afterwards.
    rates: Vec<f64>,
    /// Commits per append.
    commits: Vec<f64>,
    /// Each round's greatest 99th percentile of a process.
    unluckiest: Vec<f64>,
    waits: Samples,
    /// Appends that were refused because others wrote, and asked for again.
    busy: usize,
}

impl Crowd {
    /// Both sides by turns, in stores of their own; a first round is not counted.
    fn measure(self, plan: &Plan, root: &Path) -> Result<[Done; 2]> {
        let root = tempfile::tempdir_in(root)?;
        let threads = u32::try_from(self.processes * self.writers)?;
        let folder = |side: Side| stores::many_threads(&root.path().join(side.word()), threads);
        let sides = [Side::Ours, Side::Floor];
        let folders = [folder(Side::Ours)?, folder(Side::Floor)?];
        let mut done = [Done::default(), Done::default()];
        for round in 0..=plan.sizes.turns {
            let mut order: Vec<_> = sides.into_iter().zip(&folders).zip(&mut done).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for ((side, folder), done) in order {
                let mut warming_up = Done::default();
                self.round(plan, side, folder, if round == 0 { &mut warming_up } else { done })?;
            }
        }
        Ok(done)
    }

    /// All writers write at once for the time of a round.
    fn round(self, plan: &Plan, side: Side, folder: &Path, done: &mut Done) -> Result<()> {
        let mut processes = (0..self.processes)
            .map(|process| Process::start(&plan.writers_program, side, folder, process, self.writers, self.time))
            .collect::<Result<Vec<_>>>()?;
        processes.iter_mut().try_for_each(Process::ready)?;
        // Open as long as there are writers, so that the index with the counter stays.
        let held = bare::open(folder, true)?;
        let before = bare::items(&held)?;
        let commits = bare::commits(folder)?;
        let begun = Instant::now();
        processes.iter_mut().try_for_each(Process::go)?;
        processes.iter_mut().try_for_each(Process::ended)?;
        let seconds = begun.elapsed().as_secs_f64();
        let commits = bare::commits(folder)?.wrapping_sub(commits);
        let mut told = 0;
        let mut unluckiest: f64 = 0.0;
        for process in processes {
            let (mut waits, busy) = process.finish()?;
            unluckiest = unluckiest.max(quantile(&waits, 990));
            told += waits.len();
            done.busy += busy;
            done.waits.wall.append(&mut waits);
        }
        drop(held);
        let stored = bare::items(&bare::open(folder, true)?)? - before;
        if stored != told {
            return Err(format!("{told} appends were acknowledged, and {stored} items are stored").into());
        }
        done.rates.push(count(stored) / seconds);
        done.commits.push(f64::from(commits) / count(stored));
        done.unluckiest.push(unluckiest);
        Ok(())
    }
}

impl Done {
    fn longest(&self) -> f64 {
        quantile(&self.waits.wall, 1_000)
    }

    fn throughput(&self) -> String {
        let (rate, commits) = (quantile(&self.rates, 500), quantile(&self.commits, 500));
        let busy = if self.busy == 0 { String::new() } else { format!(", {} × busy", self.busy) };
        format!("{rate:.0}/s, {commits:.3}, {} / {}{busy}", wall(&self.waits), time(self.longest()))
    }
}
