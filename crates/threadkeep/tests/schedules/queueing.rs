//! Many callers of live threads, at every level: what was acknowledged is there, whole and in order, before and after a
//! flush; callers that stop waiting leave all or nothing; what is on its way stays within its bound.

use std::sync::Arc;

use libtest_mimic::Trial;
use shuttle::thread;

use crate::explore::{Verdict, block_on, draw, ensure, holds, impatiently};
use crate::id::ThreadId;
use crate::item::{Durability, Kind, NewItem};
use crate::live::{AppendOptions, LiveThread};
use crate::log::read::ItemQuery;
use crate::memory::Memory;
use crate::store::Store;
use crate::thread::NewThread;

/// Room for three or four appends.
const ROOM: usize = 8 << 10;
const CONTENT: usize = 600;
const APPENDS: usize = 4;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        holds("callers_of_one_handle", 300, || callers(1)),
        holds("callers_of_two_handles_and_one_queue", 300, || callers(2)),
    ]
}

pub(crate) fn named(name: &str) -> NewThread {
    NewThread { id: Some(ThreadId::new(name).unwrap()), ..NewThread::default() }
}

/// Two items of one append.
pub(crate) fn pair(label: &str) -> Vec<NewItem> {
    ["a", "b"].map(|half| NewItem::raw(Kind::Message, "x", text(label, half))).into()
}

fn text(label: &str, half: &str) -> Vec<u8> {
    format!("{label}{half} {:>CONTENT$}", "").into_bytes()
}

/// The labels of the stored appends, in order; each of them is whole.
pub(crate) fn stored(store: &Store, name: &str) -> Result<Vec<String>, String> {
    let items =
        block_on(store.items(&ThreadId::new(name).unwrap(), ItemQuery { limit: 2_000, ..ItemQuery::default() }));
    let items = items.map_err(|error| format!("reading {name}: {error}"))?.entries;
    let words = |content: &[u8]| String::from_utf8_lossy(content).split(' ').next().unwrap_or_default().to_owned();
    let found: Vec<String> = items.iter().filter(|item| item.format == "x").map(|item| words(&item.content)).collect();
    let mut labels = Vec::new();
    for two in found.chunks(2) {
        let label = two[0].trim_end_matches('a').to_owned();
        ensure(*two == [format!("{label}a"), format!("{label}b")], || format!("an append in part: {found:?}"))?;
        ensure(!labels.contains(&label), || format!("{label} is stored twice: {found:?}"))?;
        labels.push(label);
    }
    Ok(labels)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Stored,
    Queued,
    /// Its caller stopped waiting.
    Nothing,
}

fn callers(handles: usize) -> Verdict {
    let memory = Memory::new(ROOM);
    let store = memory.store();
    let workspace = block_on(store.workspace("/w".as_ref())).unwrap();
    let lives: Vec<LiveThread> =
        (0..handles).map(|handle| workspace.create(named(&format!("t{handle}"))).unwrap()).collect();
    let callers: Vec<_> = (0..3)
        .map(|caller| {
            let (store, live) = (store.clone(), lives[caller % handles].clone());
            let name = format!("t{}", caller % handles);
            thread::spawn(move || call(&store, &live, &name, caller))
        })
        .collect();
    let mut told = Vec::new();
    for (caller, thread) in callers.into_iter().enumerate() {
        told.push((format!("t{}", caller % handles), thread.join().map_err(|_| "a caller panicked")??));
    }
    let ends_with_flush = draw(2) == 0;
    for live in lives {
        if ends_with_flush {
            block_on(live.flush()).map_err(|error| format!("flush: {error}"))?;
        }
        // Without a flush, dropping the handle still writes what was queued, before its claim is given up.
        drop(live);
    }
    for (name, told) in &told {
        check(&store, name, told)?;
    }
    let most = memory.gauge.most();
    ensure(most <= ROOM, || format!("{most} bytes were on their way, {ROOM} are allowed"))?;
    ensure(block_on(store.claims()).unwrap().is_empty(), || "a claim is left".to_owned())
}

fn check(store: &Store, name: &str, told: &[(String, Told)]) -> Verdict {
    block_on(store.sync()).unwrap();
    let mine = |label: &&String| told.iter().any(|(own, _)| own == *label);
    let found = match told.iter().all(|(_, told)| *told == Told::Nothing) && block_on(store.get(&id(name))).is_err() {
        true => Vec::new(),
        false => stored(store, name)?,
    };
    let found: Vec<&String> = found.iter().filter(mine).collect();
    let expected = told.iter().filter(|(label, told)| *told != Told::Nothing || found.contains(&label));
    let expected: Vec<&String> = expected.map(|(label, _)| label).collect();
    ensure(found == expected, || format!("{name}: told {told:?}, found {found:?}"))
}

fn id(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

fn call(store: &Store, live: &LiveThread, name: &str, caller: usize) -> Result<Vec<(String, Told)>, String> {
    let mut told = Vec::new();
    for number in 0..APPENDS {
        let label = format!("{caller}.{number}.");
        let durability =
            [Durability::Queued, Durability::Queued, Durability::Written, Durability::Synced][draw(4) as usize];
        let append = live.append_with(pair(&label), AppendOptions { durability, ..AppendOptions::default() });
        let answer = match draw(4) {
            0 => block_on(impatiently(append, 1 + draw(3))),
            _ => Some(block_on(append)),
        };
        told.push((
            label.clone(),
            match (answer, durability) {
                (None, _) => Told::Nothing,
                (Some(Err(error)), _) => return Err(format!("{label}: {error}")),
                (Some(Ok(_)), Durability::Queued) => Told::Queued,
                (Some(Ok(_)), _) => Told::Stored,
            },
        ));
        if told.last().unwrap().1 == Told::Stored {
            ensure(stored(store, name)?.contains(&label), || format!("{label} is acknowledged and not stored"))?;
        }
        match draw(8) {
            0 => drop(block_on(impatiently(live.flush(), 2))),
            1 => {
                block_on(live.flush()).map_err(|error| format!("flush: {error}"))?;
                check(store, name, &told)?;
            }
            2 => {
                // A read of the handle sees what was queued before it.
                block_on(live.load_history(ItemQuery::default())).map_err(|error| format!("history: {error}"))?;
                check(store, name, &told)?;
            }
            _ => {}
        }
    }
    Ok(told)
}
