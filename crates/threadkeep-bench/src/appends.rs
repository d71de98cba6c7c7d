//! P1, P2, P3: what an append costs.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{AppendOptions, Durability, NewItem, NewThread, StoreOptions};

use crate::bare::{self, Hand, RowData};
use crate::measure::{OneCpu, Samples, at_once, count, inputs, quantile, ratio, take_turns};
use crate::plan::Plan;
use crate::report::{Report, Target, time, wall};
use crate::text::Writer;
use crate::{Result, stores};

/// How long a caller is busy between two empty requests.
const BUSY: Duration = Duration::from_micros(100);
const WITHOUT_TRIGGERS: &str = "DROP TRIGGER items_have_parents";

/// P1: one writer, each append synced.
///
/// # Errors
/// As the store and SQLite.
pub fn synced(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let (rounds, calls) = (plan.sizes.rounds, plan.sizes.synced);
    let (store, workspace, _) = stores::fresh(root, "ours")?;
    let live = workspace.create_now(NewThread::default())?;
    let bare = bare::open(&stores::closed(root, "floor")?, false)?;
    bare.execute_batch(WITHOUT_TRIGGERS)?;
    let mut hand = Hand::new(&bare)?;
    let mut items = Writer::new(1).items(inputs(rounds, calls)).into_iter();
    let mut rows = RowData::several(inputs(rounds, calls), &mut Writer::new(2))?.into_iter();
    let (ours, floor) = take_turns(
        rounds,
        calls,
        || append(&live, items.next(), Durability::Synced),
        || hand.insert_only(&rows.next().ok_or("no row is left")?),
    )?;
    let figure = ratio(&ours.round_wall, &floor.round_wall);
    let target = Target::AtMost(1.3);
    let what = "one writer, synced append of 1 KiB";
    report.compare("P1", what, (wall(&ours), wall(&floor)), figure, target);
    report.note(format!("P1: CPU of an append {}, of the floor {}", time(ours.cpu()), time(floor.cpu())));
    drop(hand);
    synced_by_hand(plan, root, &live, report)?;
    followed(plan, root, (&store, &live), report)
}

/// The same once somebody has asked for the feed of changes, in which each append is noted from then on.
fn followed(plan: &Plan, root: &Path, (store, live): (&Store, &LiveThread), report: &mut Report) -> Result<()> {
    let (rounds, calls) = (plan.sizes.rounds, plan.sizes.synced);
    store.latest_change()?;
    let bare = bare::open(&stores::closed(root, "followed")?, false)?;
    bare.execute_batch(WITHOUT_TRIGGERS)?;
    let mut hand = Hand::new(&bare)?;
    let mut items = Writer::new(5).items(inputs(rounds, calls)).into_iter();
    let mut rows = RowData::several(inputs(rounds, calls), &mut Writer::new(6))?.into_iter();
    let (ours, floor) = take_turns(
        rounds,
        calls,
        || append(live, items.next(), Durability::Synced),
        || hand.insert_only(&rows.next().ok_or("no row is left")?),
    )?;
    let figure = ratio(&ours.round_wall, &floor.round_wall);
    report.compare("P1", "… while the feed of changes is followed", (wall(&ours), wall(&floor)), figure, Target::None);
    Ok(())
}

/// How much of it is the work that an append has beside the row: the fence and the head, in a synced transaction by hand.
fn synced_by_hand(plan: &Plan, root: &Path, live: &LiveThread, report: &mut Report) -> Result<()> {
    let (rounds, calls) = (plan.sizes.rounds, plan.sizes.synced);
    let bare = bare::open(&stores::closed(root, "by-hand")?, false)?;
    let mut hand = Hand::new(&bare)?;
    let mut items = Writer::new(3).items(inputs(rounds, calls)).into_iter();
    let mut rows = RowData::several(inputs(rounds, calls), &mut Writer::new(4))?.into_iter();
    let (ours, floor) = take_turns(
        rounds,
        calls,
        || append(live, items.next(), Durability::Synced),
        || hand.append(&rows.next().ok_or("no row is left")?),
    )?;
    let figure = ratio(&ours.round_wall, &floor.round_wall);
    let what = "… against fence, row and head in one synced transaction by hand";
    report.compare("P1", what, (wall(&ours), wall(&floor)), figure, Target::None);
    Ok(())
}

/// Appends one item.
///
/// # Errors
/// As the store.
pub fn append(live: &LiveThread, item: Option<NewItem>, durability: Durability) -> Result<()> {
    let options = AppendOptions { durability, ..AppendOptions::default() };
    live.append_with(vec![item.ok_or("no item is left")?], options)?;
    Ok(())
}

/// P2: many writers at once, each append synced.
///
/// # Errors
/// As the store and SQLite.
pub fn many_writers(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let (writers, each) = (plan.sizes.writers, plan.sizes.each);
    let (_store, workspace, folder) = stores::fresh(root, "ours")?;
    let lives = (0..writers).map(|_| Ok(workspace.create_now(NewThread::default())?));
    let lives: Vec<LiveThread> = lives.collect::<Result<_>>()?;
    let bare = bare::open(&stores::closed(root, "floor")?, false)?;
    bare.execute_batch(WITHOUT_TRIGGERS)?;
    let mut hand = Hand::new(&bare)?;
    let (mut ours, mut floor, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let (mut text, mut other) = (Writer::new(3), Writer::new(4));
    let (mut waits, mut depth) = (Samples::default(), 0);
    for round in 0..=plan.sizes.rounds {
        let before = bare::commits(&folder)?;
        let (seconds, mut calls) = crowd(&lives, each, &mut text)?;
        let made = bare::commits(&folder)?.wrapping_sub(before);
        let rows = RowData::several(writers * each, &mut other)?;
        let start = Instant::now();
        for group in rows.chunks(writers) {
            hand.insert_across(group, depth)?;
            depth += 1;
        }
        let bare_seconds = start.elapsed().as_secs_f64();
        if round > 0 {
            ours.push(count(writers * each) / seconds);
            floor.push(count(writers * each) / bare_seconds);
            commits.push(f64::from(made) / count(writers * each));
            waits.wall.append(&mut calls);
        }
    }
    let per_second = |rates: &[f64]| format!("{:.0}/s", quantile(rates, 500));
    let sides = (per_second(&ours), per_second(&floor));
    let what = format!("{writers} writers on {writers} threads, synced: appends per second");
    report.compare("P2", what, sides, ratio(&ours, &floor), Target::AtLeast(0.35));
    let figure = quantile(&commits, 500);
    let what = "… commits (one sync each) per append".to_owned();
    let sides = (String::new(), format!("1 of {writers}"));
    report.number("P2", what, sides, figure, Target::AtMost(1.0 / 16.0));
    report.note(format!("P2: an append waits {} (p50 / p99)", wall(&waits)));
    Ok(())
}

/// All writers append at once; gives the time until the last has ended, and that of each call.
fn crowd(lives: &[LiveThread], each: usize, text: &mut Writer) -> Result<(f64, Vec<f64>)> {
    let items = lives.iter().map(|_| text.items(each)).collect();
    at_once(lives.iter().collect(), items, |live: &mut &LiveThread, item| append(live, Some(item), Durability::Synced))
}

/// P3: one writer, each append written; and the hand-off between threads that is part of it.
///
/// The ratio is taken on one CPU, where waking is cheap and steady, without the hand-off that is measured there; the hand-off
/// between CPUs is told apart.
///
/// # Errors
/// As the store and SQLite.
pub fn written(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let free = Written::measure(plan, root, "free")?;
    let one_cpu = OneCpu::stay()?;
    let pinned = Written::measure(plan, root, "pinned")?;
    drop(one_cpu);
    let what = "one writer, written append of 1 KiB, on one CPU, without the hand-off";
    let sides = (wall(&pinned.ours), wall(&pinned.floor));
    report.compare("P3", what, sides, quantile(&pinned.without, 500), Target::AtMost(1.5));
    let what = "… on all CPUs, with the hand-off";
    let sides = (wall(&free.ours), wall(&free.floor));
    report.compare("P3", what, sides, ratio(&free.ours.round_wall, &free.floor.round_wall), Target::None);
    let switch = quantile(&pinned.hand_offs, 500);
    let work = pinned.ours.p50() - switch;
    let what = "the hand-off to the writing thread and back: an append on all CPUs, less its work as on one CPU";
    let sides = (format!("{} - {}", time(free.ours.p50()), time(work)), String::new());
    report.time("P3", what, sides, free.ours.p50() - work, Target::AtMost(60e-6));
    let what = "… of an empty request (floor: two channels of the standard library)";
    let sides = (wall(&free.hand_off.ours), wall(&free.hand_off.floor));
    report.time("P3", what, sides, quantile(&free.hand_offs, 500), Target::None);
    let cpu = time(pinned.ours.cpu());
    report.note(format!("P3: the hand-off on one CPU takes {}, an append there {cpu} of CPU", time(switch)));
    compression(plan, report)
}

struct Written {
    ours: Samples,
    floor: Samples,
    hand_off: HandOff,
    /// Each round's hand-off, in seconds.
    hand_offs: Vec<f64>,
    /// Each round's ratio without it.
    without: Vec<f64>,
}

impl Written {
    fn measure(plan: &Plan, root: &Path, name: &str) -> Result<Self> {
        let (rounds, calls) = (plan.sizes.rounds, plan.sizes.calls);
        let (_store, workspace, _) = stores::fresh(root, name)?;
        let live = workspace.create_now(NewThread::default())?;
        let bare = bare::open(&stores::closed(root, &format!("{name}-floor"))?, false)?;
        bare.execute_batch("PRAGMA synchronous = NORMAL")?;
        let mut hand = Hand::new(&bare)?;
        let mut items = Writer::new(5).items(inputs(rounds, calls)).into_iter();
        let mut rows = RowData::several(inputs(rounds, calls), &mut Writer::new(6))?.into_iter();
        let [ours, floor] = [(); 2].map(|()| Samples::default());
        let mut it =
            Self { ours, floor, hand_off: HandOff::new(root, name)?, hand_offs: Vec::new(), without: Vec::new() };
        for round in 0..=rounds {
            let hand_off = it.hand_off.round(calls / 4)?;
            let (mut ours, mut floor) = (Samples::default(), Samples::default());
            ours.round(calls, &mut || append(&live, items.next(), Durability::Written))?;
            floor.round(calls, &mut || hand.append(&rows.next().ok_or("no row is left")?))?;
            // The first round only warms up.
            if round > 0 {
                it.hand_offs.push(hand_off);
                it.without.push((ours.p50() - hand_off) / floor.p50());
                it.ours.add(ours);
                it.floor.add(floor);
            }
        }
        Ok(it)
    }
}

/// The round trip of a request that does next to nothing, through the queue of the thread that writes: in memory that thread
/// reads as well, so a read of one row is such a request. Gives it without the statement itself.
///
/// Between two requests the caller is busy for a while, as one that makes items is: else both threads would still be spinning
/// when the next request comes, and neither would have to be woken.
struct HandOff {
    store: Store,
    ours: Samples,
    floor: Samples,
    ask: mpsc::Sender<()>,
    answered: mpsc::Receiver<()>,
    bare: Connection,
}

impl HandOff {
    fn new(root: &Path, name: &str) -> Result<Self> {
        let store = Store::open(StoreOptions::memory())?;
        store.workspace(Path::new("/"))?.create_now(NewThread::default())?;
        let (ask, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || asked.iter().try_for_each(|()| answer.send(())));
        let bare = bare::open(&stores::closed(root, &format!("{name}-one"))?, true)?;
        // In memory there are no locks to take for each statement either.
        bare.execute_batch("BEGIN")?;
        let [ours, floor] = [(); 2].map(|()| Samples::default());
        Ok(Self { store, ours, floor, ask, answered, bare })
    }

    /// Measures a round and gives its hand-off, in seconds.
    fn round(&mut self, calls: usize) -> Result<f64> {
        let [mut ours, mut alone] = [(); 2].map(|()| Samples::default());
        ours.paused(calls, BUSY, &mut || Ok(self.store.latest()?))?;
        let mut latest = self.bare.prepare_cached(&bare::statement("LATEST")?)?;
        alone.paused(calls, BUSY, &mut || Ok(latest.exists([])?))?;
        self.floor.paused(calls, BUSY, &mut || {
            self.ask.send(())?;
            Ok(self.answered.recv()?)
        })?;
        let hand_off = (ours.p50() - alone.p50()).max(0.0);
        self.ours.add(ours);
        Ok(hand_off)
    }
}

/// What making a row costs before any statement: it is part of our time and not of the floor's.
fn compression(plan: &Plan, report: &mut Report) -> Result<()> {
    let items = Writer::new(7).items(plan.sizes.calls);
    let mut compressor = bare::compressor()?;
    let mut each = items.iter();
    let mut samples = Samples::default();
    samples.round(items.len(), &mut || Ok(compressor.compress(&each.next().ok_or("no item is left")?.content)?))?;
    report.note(format!(
        "P3: compressing the content of an item takes {}; ours does it, the floor does not",
        wall(&samples)
    ));
    Ok(())
}
