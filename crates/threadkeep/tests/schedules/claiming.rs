//! Who may write: at most one at a time, epochs that rise, no append without its claim, no claim that is lost or left behind,
//! whoever resumes, takes over, hands over, gives up or stops waiting.

use std::sync::{Arc, Mutex};

use libtest_mimic::Trial;
use shuttle::thread;

use crate::error::{Error, Result};
use crate::explore::{Verdict, block_on, draw, ensure, holds, impatiently};
use crate::id::ThreadId;
use crate::item::{Item, Kind, NewItem};
use crate::live::LiveThread;
use crate::log::read::ItemQuery;
use crate::memory::Memory;
use crate::queueing::{named, pair, stored};
use crate::store::Store;
use crate::turn::TurnEnd;

const WRITERS: usize = 3;
const ROUNDS: usize = 3;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        holds("one_writer_at_a_time", 300, || writers(Game { takes_over: false, fails: false })),
        holds("one_writer_at_a_time_with_take_overs", 300, || writers(Game { takes_over: true, fails: false })),
        holds("one_writer_at_a_time_on_an_engine_that_fails", 300, || writers(Game { takes_over: false, fails: true })),
        holds("threads_that_are_born_and_abandoned", 300, births),
        holds("a_taking_that_was_rolled_back_gives_nothing_up", 600, rolled_back),
    ]
}

#[derive(Debug, Clone, Copy)]
struct Game {
    takes_over: bool,
    fails: bool,
}

/// The writer that certainly has the claim, by its name.
type Certain = Arc<Mutex<Option<String>>>;

fn id() -> ThreadId {
    ThreadId::new("t").unwrap()
}

fn writers(game: Game) -> Verdict {
    let memory = Memory::new(1 << 20);
    // Writers of two stores: to each other they are as two processes.
    let stores = [memory.store(), memory.store()];
    let first = block_on(stores[0].workspace("/w".as_ref())).unwrap().create(named("t")).unwrap();
    block_on(first.append(pair("first."))).unwrap();
    block_on(first.shutdown()).unwrap();
    memory.gauge.fail_one_in(if game.fails { 6 } else { 0 });
    let certain = Certain::default();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, certain) = (stores[writer % 2].clone(), Arc::clone(&certain));
            thread::spawn(move || block_on(write(&store, writer, game, &certain)))
        })
        .collect();
    let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
    // The first that went wrong may have made others go wrong.
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| !matches!(outcome, Ok(Ok(_)))).collect();
    ensure(wrong.is_empty(), || format!("{wrong:?}"))?;
    let acknowledged: Vec<String> = outcomes.into_iter().flatten().flatten().flatten().collect();
    memory.gauge.fail_one_in(0);
    block_on(stores[0].sync()).unwrap();
    judge(&stores[0], game, &acknowledged)
}

fn judge(store: &Store, game: Game, acknowledged: &[String]) -> Verdict {
    let labels = stored(store, "t")?;
    let lost: Vec<&String> = acknowledged.iter().filter(|label| !labels.contains(label)).collect();
    ensure(lost.is_empty(), || format!("acknowledged and not stored: {lost:?}"))?;
    let items = block_on(store.items(&id(), ItemQuery { limit: 2_000, ..ItemQuery::default() })).unwrap().entries;
    ensure(items.is_sorted_by_key(|item| item.epoch), || format!("an epoch falls: {:?}", epochs(&items)))?;
    for two in items.windows(2) {
        let (before, after) = (holder_of(&two[0]), holder_of(&two[1]));
        let same_epoch = two[0].epoch == two[1].epoch;
        ensure(same_epoch == (before == after), || format!("two writers in one epoch: {:?}", epochs(&items)))?;
    }
    if !game.fails {
        let left = block_on(store.claims()).unwrap();
        ensure(left.is_empty(), || format!("a claim is left behind: {left:?}"))?;
        let resumed = block_on(store.resume(&id(), false));
        ensure(resumed.is_ok(), || format!("nobody writes, and resuming is refused: {resumed:?}"))?;
    }
    Ok(())
}

fn epochs(items: &[Item]) -> Vec<(i64, String)> {
    items.iter().map(|item| (item.epoch, holder_of(item))).collect()
}

/// The handle that wrote an item: the note of a take-over is written by the handle that took it.
fn holder_of(item: &Item) -> String {
    let text = String::from_utf8_lossy(&item.content).into_owned();
    match text.split_once("because ") {
        Some((_, reason)) => reason.split('.').next().unwrap_or_default().to_owned(),
        None => text.split('.').next().unwrap_or_default().to_owned(),
    }
}

async fn write(store: &Store, writer: usize, game: Game, certain: &Certain) -> Result<Vec<String>, String> {
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("w{writer}r{round}");
        let Some(live) = get_hold(store, &name, game).await? else {
            // Who can't have it asks for it, at times.
            if draw(2) == 0 {
                tolerate(store.request_release(&id()).await, game, |error| matches!(error, Error::NotFound { .. }))?;
            }
            shuttle::future::yield_now().await;
            continue;
        };
        if !game.takes_over {
            let before = certain.lock().unwrap().replace(name.clone());
            ensure(before.is_none(), || format!("{name} has the claim, and so has {before:?}"))?;
        }
        acknowledged.extend(use_it(&live, &name, game, certain).await?);
        *certain.lock().unwrap() = None;
        drop(live);
    }
    Ok(acknowledged)
}

async fn get_hold(store: &Store, name: &str, game: Game) -> Result<Option<LiveThread>, String> {
    let thread = id();
    let outcome = match (game.takes_over && draw(3) == 0, draw(4)) {
        (true, 0) => impatiently(store.take_over(&thread, format!("because {name}."), false), 1 + draw(5)).await,
        (true, _) => Some(store.take_over(&thread, format!("because {name}."), false).await),
        (false, 0) => impatiently(store.resume(&thread, false), 1 + draw(5)).await,
        (false, _) => Some(store.resume(&thread, false).await),
    };
    match outcome {
        None | Some(Err(Error::ClaimHeld { .. })) => Ok(None),
        Some(Ok(live)) => Ok(Some(live)),
        Some(Err(error)) => tolerate(Err::<(), _>(error), game, |_| false).map(|()| None),
    }
}

/// Lets pass what the engine was made to fail with, and what is said to be fine.
fn tolerate<T>(outcome: Result<T>, game: Game, is_fine: impl Fn(&Error) -> bool) -> Verdict {
    let Err(error) = outcome else { return Ok(()) };
    let is_drawn = game.fails && matches!(error, Error::Busy { .. } | Error::StorageFull { .. });
    ensure(is_drawn || is_fine(&error), || format!("refused with {error:?}"))
}

/// Appends, ends turns and gives the thread up in one of several ways; gives what was acknowledged.
async fn use_it(live: &LiveThread, name: &str, game: Game, certain: &Certain) -> Result<Vec<String>, String> {
    let mut acknowledged = Vec::new();
    let fine = |error: &Error| game.takes_over && matches!(error, Error::ClaimLost { .. });
    for number in 0..1 + draw(2) {
        let label = format!("{name}.{number}.");
        let outcome = live.append(pair(&label)).await;
        if outcome.is_ok() {
            acknowledged.push(label);
        }
        tolerate(outcome, game, fine)?;
    }
    let prompt = NewItem::raw(Kind::Message, "prompt", format!("{name}.prompt").into_bytes());
    tolerate(live.begin_turn(prompt).await, game, fine)?;

    // From here on it may lose its claim at any time, of its own will.
    *certain.lock().unwrap() = None;
    let closed = |error: &Error| fine(error) || matches!(error, Error::Closed { .. } | Error::NotFound { .. });
    match draw(5) {
        0 => drop(impatiently(live.end_turn(TurnEnd::completed()), 1 + draw(4)).await),
        1 => tolerate(live.end_turn(TurnEnd::completed()).await.map(drop), game, closed)?,
        2 => drop(impatiently(live.shutdown(), 1 + draw(4)).await),
        3 => tolerate(live.shutdown().await, game, closed)?,
        _ => {}
    }
    // Whether it still may write, it must know: the engine refuses an item without its claim in words that are not tolerated.
    let label = format!("{name}.after.");
    let outcome = live.append(pair(&label)).await;
    if outcome.is_ok() {
        acknowledged.push(label);
    }
    tolerate(outcome, game, closed)?;
    match draw(4) {
        0 => tolerate(live.discard().await, game, closed)?,
        1 => drop(impatiently(live.discard(), 1).await),
        _ => {}
    }
    Ok(acknowledged)
}

/// Handles of one id that are made, stored, abandoned, dropped and taken over, all at once.
fn births() -> Verdict {
    let memory = Memory::new(1 << 20);
    let stores = [memory.store(), memory.store()];
    for store in &stores {
        block_on(store.workspace("/w".as_ref())).unwrap();
    }
    let fails = draw(2) == 0;
    memory.gauge.fail_one_in(if fails { 6 } else { 0 });
    let game = Game { takes_over: true, fails };
    let parents: Vec<_> = (0..WRITERS)
        .map(|parent| {
            let store = stores[parent % 2].clone();
            thread::spawn(move || block_on(bear(&store, parent, game)))
        })
        .collect();
    for parent in parents {
        parent.join().map_err(|_| "a parent panicked")??;
    }
    memory.gauge.fail_one_in(0);
    block_on(stores[0].sync()).unwrap();
    if fails || block_on(stores[0].get(&id())).is_err() {
        return Ok(());
    }
    let left = block_on(stores[0].claims()).unwrap();
    ensure(left.is_empty(), || format!("a claim is left behind: {left:?}"))
}

async fn bear(store: &Store, parent: usize, game: Game) -> Verdict {
    let taken = |error: &Error| {
        matches!(
            error,
            Error::AlreadyExists { .. } | Error::ClaimLost { .. } | Error::NotFound { .. } | Error::ClaimHeld { .. }
        )
    };
    for round in 0..2 {
        let name = format!("p{parent}r{round}");
        let live = match draw(3) {
            0 => match store.take_over(&id(), format!("because {name}."), false).await {
                Ok(live) => live,
                Err(error) => {
                    tolerate(Err::<(), _>(error), game, taken)?;
                    continue;
                }
            },
            _ => match impatiently(store.workspace("/w".as_ref()), 40).await {
                Some(Ok(workspace)) => workspace.create(named("t")).unwrap(),
                _ => continue,
            },
        };
        match draw(3) {
            0 => drop(impatiently(live.persist(), 1 + draw(3)).await),
            1 => drop(impatiently(live.append(pair(&format!("{name}.0."))), 1 + draw(5)).await),
            _ => {}
        }
        if draw(2) == 0 {
            tolerate(live.append(pair(&format!("{name}.1."))).await, game, taken)?;
            tolerate(live.append(pair(&format!("{name}.2."))).await, game, taken)?;
        }
        drop(live);
    }
    Ok(())
}

/// Somebody stops waiting for a claim that was taken and rolled back, while another takes it at the same epoch.
fn rolled_back() -> Verdict {
    let memory = Memory::new(1 << 20);
    let stores = [memory.store(), memory.store()];
    let first = block_on(stores[0].workspace("/w".as_ref())).unwrap().create(named("t")).unwrap();
    block_on(first.append(pair("first."))).unwrap();
    block_on(first.shutdown()).unwrap();
    memory.gauge.fail_one_in(2);
    let impatient: Vec<_> = (0..2)
        .map(|_| {
            let store = stores[0].clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    drop(block_on(impatiently(store.resume(&id(), false), 2 + draw(4))));
                }
            })
        })
        .collect();
    let mut patient = None;
    for _ in 0..12 {
        patient = patient.or(block_on(stores[1].resume(&id(), false)).ok());
    }
    memory.gauge.fail_one_in(0);
    for thread in impatient {
        thread.join().map_err(|_| "an impatient caller panicked")?;
    }
    let Some(live) = patient else { return Ok(()) };
    let outcome = block_on(live.append(pair("patient.")));
    ensure(outcome.is_ok(), || format!("the only writer is refused: {outcome:?}"))
}
