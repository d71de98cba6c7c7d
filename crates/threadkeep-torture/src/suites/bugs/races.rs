//! Many at once: processes beside each other, one head that two expect, calls that are given up and repeated.

use std::future::Future as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::time::Duration;

use threadkeep::{Address, AppendOptions, Appended, Expect, ItemQuery, LiveThread, NewThread, Store};

use crate::Result;
use crate::ground;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::suites::crowd::{Crowd, crowd};
use crate::work::{self, told};

/// B13: 32 processes write 32 threads each at the same time, and nobody is refused.
pub(super) fn many_processes(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let (processes, lanes, batches) = plan.pick((16, 4, 5), (32, 16, 50), (32, 32, 500));
    crowd(plan, outcome, Crowd { processes, lanes, batches, kept_out: (0, Duration::ZERO) })?;
    super::lying_writers(plan, outcome)
}

/// B20: somebody else keeps 16 writing processes out, again and again, and all of them wait.
pub(super) fn kept_out(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let (batches, times, seconds) = plan.pick((20, 2, 0.5), (500, 3, 4.0), (2_000, 5, 6.0));
    let kept_out = (times, Duration::from_secs_f64(seconds));
    crowd(plan, outcome, Crowd { processes: 16, lanes: 1, batches, kept_out })?;
    outcome.figure("kept out, times and seconds", format!("{times} × {seconds}"));
    super::lying_writers(plan, outcome)
}

/// B18: two who share a claim append with the same expected head at the same moment: one of them succeeds.
pub(in crate::suites) fn one_head(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let races = plan.pick(200, 2_000, 10_000);
    let ground = plan.ground()?;
    let mut tally = Tally::default();
    let stored = race(&ground.store("store"), races, true, &mut tally)?;
    if stored != races {
        tally.add(Rule::Misbehaved, format!("{races} races left {stored} items"));
    }
    outcome.tally.absorb(tally, "one head");
    outcome.figure("races for one head", races);
    let mut control = Tally::default();
    race(&ground.store("control"), 20, false, &mut control)?;
    outcome.control("two who expect nothing", !control.is_empty());
    Ok(())
}

fn create(store: &Store, thread: &str) -> Result<LiveThread> {
    let new = NewThread { id: Some(work::thread_id(thread)?), ..NewThread::default() };
    let created = async { store.workspace(Path::new("/threadkeep-torture")).await?.create_now(new).await };
    pollster::block_on(created).map_err(told)
}

fn open(folder: &Path) -> Result<Store> {
    let options = ground::options(folder).map_err(told)?;
    pollster::block_on(Store::open(options.label("bugs"))).map_err(told)
}

/// Races two clones of a handle; gives how many items are stored then.
fn race(folder: &Path, races: u64, expecting: bool, tally: &mut Tally) -> Result<u64> {
    let store = open(folder)?;
    let live = create(&store, "raced")?;
    let barrier = Barrier::new(2);
    let run = |life: u64, live: LiveThread| {
        let mut outcomes: Vec<std::result::Result<Address, &'static str>> = Vec::new();
        for number in 0..races {
            // Both have appended, and nobody appends again before both have looked.
            barrier.wait();
            let head = pollster::block_on(live.head()).ok().flatten();
            barrier.wait();
            let expect = if expecting { Expect::Head(head) } else { Expect::Any };
            let options = AppendOptions { expect, ..AppendOptions::default() };
            let appended = pollster::block_on(live.append_with(work::items(life, 0, number, 1), options));
            outcomes.push(match appended {
                Ok(Appended { items, .. }) => items.last().map(|item| item.address()).ok_or("nothing"),
                Err(error) => Err(error.kind()),
            });
        }
        outcomes
    };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(2, live.clone()));
        let one = run(1, live.clone());
        (one, other.join().unwrap_or_default())
    });
    for (number, pair) in one.iter().zip(&two).enumerate() {
        match pair {
            (Ok(_), Err("conflict")) | (Err("conflict"), Ok(_)) => {}
            (Ok(one), Ok(two)) => tally.add(Rule::TwoWriters, format!("race {number}: {one} and {two} both succeed")),
            other => tally.add(Rule::Misbehaved, format!("race {number}: {other:?}")),
        }
    }
    let thread = pollster::block_on(store.get(live.id())).map_err(told)?;
    u64::try_from(thread.items).map_err(|error| error.to_string())
}

/// B24: an append is given up at any moment, and repeated three times: it is stored once, where the first call put it.
pub(super) fn cancelled(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let rounds = plan.pick(200, 1_000, 5_000);
    let mut random = plan.random("cancelled");
    let folder = plan::fast_folder()?;
    let mut tally = Tally::default();
    let early = cancel(&folder.path().join("store"), rounds, true, &mut random, &mut tally)?;
    outcome.tally.absorb(tally, "cancelled");
    outcome.figure("appends given up and repeated three times", rounds);
    outcome.figure("of these stored by the first call", early);
    let mut control = Tally::default();
    cancel(&folder.path().join("control"), 20, false, &mut random, &mut control)?;
    outcome.control("repeating under new ids", control.count(Rule::Duplicate) > 0);
    Ok(())
}

/// Gives how many of the first calls had stored their items though nobody waited for them.
fn cancel(folder: &Path, rounds: u64, same_id: bool, random: &mut Random, tally: &mut Tally) -> Result<u64> {
    let store = open(folder)?;
    let live = create(&store, "cancelled")?;
    let (mut stored_early, mut expected) = (0, Vec::new());
    for round in 0..rounds {
        let items = |attempt: u64| {
            let number = if same_id { round } else { round * 4 + attempt };
            work::items(1, 0, number, 1)
        };
        {
            let mut first = pin!(live.append(items(0)));
            for _ in 0..random.below(4) {
                // Polled now and then, and given up in the middle.
                if first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(random.below(150)));
            }
        }
        let mut places = Vec::new();
        for attempt in 1..=3 {
            let appended = pollster::block_on(live.append(items(attempt))).map_err(told)?;
            stored_early += u64::from(attempt == 1 && appended.repeated);
            places.extend(appended.items.iter().map(|item| item.address()));
        }
        places.dedup();
        if places.len() != 1 {
            tally.add(Rule::Duplicate, format!("round {round}: stored at {places:?}"));
        }
        expected.extend(items(1).into_iter().filter_map(|item| item.id));
    }
    let mut found = Vec::new();
    let mut query = ItemQuery { limit: 2_000, ..ItemQuery::default() };
    loop {
        let page = pollster::block_on(store.items(live.id(), query.clone())).map_err(told)?;
        found.extend(page.entries.into_iter().map(|item| item.id));
        match page.next_cursor {
            None => break,
            cursor => query.cursor = cursor,
        }
    }
    if same_id && found != expected {
        tally.add(
            Rule::Duplicate,
            format!("{rounds} items were appended, {} are stored, or in another order", found.len()),
        );
    }
    Ok(stored_early)
}
