//! The work that another store's benchmark was made of, so that its figures can stand beside ours: 20,000 messages of 1 KiB
//! appended one by one and read back, and a list and a rename among 10,000 threads.

use std::path::Path;
use std::time::Instant;

use threadkeep::blocking::{LiveThread, Workspace};
use threadkeep::{AppendOptions, Durability, ListQuery, NewThread, ThreadId, ThreadPatch};

use crate::measure::{Samples, count, quantile};
use crate::plan::Plan;
use crate::report::{Report, Target, time};
use crate::text::Writer;
use crate::{Result, reads, stores};

/// All of it.
///
/// # Errors
/// As the store.
pub fn all(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let [_, _, items, _] = plan.sizes.items;
    let (store, workspace, _) = stores::fresh(root, "messages")?;
    let live = workspace.create_now(NewThread::default())?;
    append(&live, usize::try_from(items)?, Durability::Synced, report)?;
    let mut samples = Samples::default();
    for _ in 0..plan.sizes.rounds {
        samples.round(1, &mut || reads::read_all(&store, live.id(), 2_000))?;
    }
    line(report, format!("read {items} items"), &samples);
    let other = workspace.create_now(NewThread::default())?;
    append(&other, usize::try_from(items)?, Durability::Written, report)?;
    let [_, threads, _] = plan.sizes.threads;
    let folder = stores::many_threads(root, threads)?;
    let (_store, workspace) = stores::open(root, &folder)?;
    among(plan, &workspace, threads, report)
}

fn append(live: &LiveThread, items: usize, durability: Durability, report: &mut Report) -> Result<()> {
    let mut given = Writer::new(11).items(items).into_iter();
    let options = AppendOptions { durability, ..AppendOptions::default() };
    let mut samples = Samples::default();
    let start = Instant::now();
    samples.round(items, &mut || Ok(live.append_with(given.by_ref().take(1).collect(), options)?))?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = count(items) / seconds;
    let what = format!("append {items} items of 1 KiB one by one, {durability:?}: {}, {rate:.0}/s", time(seconds));
    line(report, what, &samples);
    Ok(())
}

fn among(plan: &Plan, workspace: &Workspace, threads: u32, report: &mut Report) -> Result<()> {
    let mut chance = Writer::new(12);
    let (rounds, calls) = (plan.sizes.rounds, plan.sizes.synced);
    let mut measure = |what: String, call: &mut dyn FnMut(ThreadId, u32, &mut Writer) -> Result<()>| -> Result<()> {
        let mut samples = Samples::default();
        for _ in 0..rounds {
            samples.round(calls, &mut || {
                let number = u32::try_from(chance.below(usize::try_from(threads)?))?;
                call(format!("thread-{number}").parse()?, number, &mut chance)
            })?;
        }
        line(report, what, &samples);
        Ok(())
    };
    measure(format!("list 50 of {threads} threads"), &mut |_, _, _| {
        workspace.list(ListQuery::default())?;
        Ok(())
    })?;
    measure(format!("get one of {threads} threads"), &mut |id, _, _| {
        workspace.get(&id)?;
        Ok(())
    })?;
    measure(format!("find one of {threads} threads by its title"), &mut |_, number, _| {
        workspace.find(&stores::title(number))?;
        Ok(())
    })?;
    measure(format!("rename one of {threads} threads"), &mut |id, number, chance| {
        workspace.update(&id, ThreadPatch::title(chance.title(number)))?;
        Ok(())
    })
}

fn line(report: &mut Report, what: String, samples: &Samples) {
    let p95 = quantile(&samples.wall, 950);
    let wall = format!("{} / {} / {}", time(samples.p50()), time(p95), time(samples.p99()));
    report.time("CW", what, (format!("{wall} (p50 / p95 / p99)"), String::new()), samples.cpu(), Target::None);
}
