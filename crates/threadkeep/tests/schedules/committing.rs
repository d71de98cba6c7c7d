//! Group commit: every request is answered once, what was acknowledged is committed before that, what was refused leaves
//! nothing and fails nobody else, whatever the order and whatever fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libtest_mimic::Trial;
use shuttle::thread;

use crate::db::{Db, Pending, Sync, Tx, query_all};
use crate::error::{Error, Result};
use crate::explore::{Verdict, block_on, draw, ensure, holds, is_found, panic_quietly};
use crate::numbers::{ALL, BLUR, BREAK, DAMAGE, Defect, Disk, FILL, NumberDriver, PUT};

const CLIENTS: i64 = 4;
const REQUESTS: i64 = 4;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        holds("group_commit_answers_each_for_itself", 2_000, || clients(Defect::Nothing, false)),
        holds("group_commit_beside_readers", 1_000, || clients(Defect::Nothing, true)),
        holds("group_commit_on_an_engine_that_fails", 3_000, || clients(Defect::Faults, false)),
        holds("reads_beside_an_engine_that_fails", 1_000, || clients(Defect::Faults, true)),
        holds("the_last_handle_dropped_by_a_request", 1_000, dropped_inside),
        is_found("control_a_refusal_that_is_not_undone", 200, || clients(Defect::UndoesNothing, false)),
        is_found("control_a_commit_that_comes_late", 200, || clients(Defect::CommitsLate, false)),
        is_found("control_readers_that_see_the_state_before", 200, || clients(Defect::ReadsStale, true)),
    ]
}

/// What a request does after it stored its two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Succeed,
    Refuse,
    /// Refuses when it sees what another client stores.
    Unless(i64),
    Panic,
    Fill,
    Break,
    /// Meets what looks damaged at first.
    Blur,
    Damage,
    /// Passes over an error that ended the transaction.
    Swallow,
}

impl Then {
    fn drawn() -> Self {
        match draw(16) {
            14 => Self::Blur,
            15 => Self::Damage,
            0 => Self::Refuse,
            1 => Self::Panic,
            2 => Self::Fill,
            3 => Self::Break,
            4 => Self::Swallow,
            5 | 6 => Self::Unless(i64::from(draw(4)) * 100 + i64::from(draw(2))),
            _ => Self::Succeed,
        }
    }
}

/// A request that was sent.
struct Sent {
    number: i64,
    then: Then,
    /// Whether what it did stands, as its own traces say.
    stands: Arc<AtomicBool>,
    /// `None` when its caller stopped waiting.
    answer: Option<Result<i64>>,
}

fn clients(defect: Defect, with_readers: bool) -> Verdict {
    let disk = Disk::new(defect);
    let db = Db::with_room(Arc::new(NumberDriver::start(&disk, with_readers)), 3 << 10, 2);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (db, disk) = (db.clone(), Arc::clone(&disk));
            thread::spawn(move || block_on(send_some(&db, &disk, client * 100)))
        })
        .collect();
    // The clients hold the last handles: who drops the last of them ends the writer.
    drop(db);
    let mut sent = Vec::new();
    for client in clients {
        sent.push(client.join().map_err(|_| "a client panicked")??);
    }
    judge(&disk, &sent)
}

/// Sends requests, some one by one, some behind one another; stops waiting for some of them.
async fn send_some(db: &Db, disk: &Disk, first: i64) -> Result<Vec<Sent>, String> {
    let mut sent = Vec::new();
    let mut pending: Vec<(usize, Pending<i64>)> = Vec::new();
    for number in first..first + REQUESTS {
        let (then, stands) = (Then::drawn(), Arc::new(AtomicBool::new(false)));
        let sync = if draw(2) == 0 { Sync::Written } else { Sync::Synced };
        let place = db.place(0).await;
        let (mark, unmark) = (Arc::clone(&stands), Arc::clone(&stands));
        let run = move |tx: &mut dyn Tx| store(tx, number, then, &mark);
        let undo = move || unmark.store(false, Ordering::SeqCst);
        let answer = db.write_undoable(place, sync, run, undo);
        sent.push(Sent { number, then, stands, answer: None });
        match draw(4) {
            0 => drop(answer),
            1 => pending.push((sent.len() - 1, answer)),
            _ => {
                let answer = answer.await;
                check_answer(db, disk, sent.last().unwrap(), &answer).await?;
                sent.last_mut().unwrap().answer = Some(answer);
            }
        }
    }
    for (index, answer) in pending {
        let answer = answer.await;
        check_answer(db, disk, &sent[index], &answer).await?;
        sent[index].answer = Some(answer);
    }
    Ok(sent)
}

fn store(tx: &mut dyn Tx, number: i64, then: Then, mark: &AtomicBool) -> Result<i64> {
    // A trace that is still there would be of a run that was not taken back.
    if mark.load(Ordering::SeqCst) {
        return Err(Error::corrupt("a request", "it runs again and was not told that it was undone"));
    }
    tx.execute(PUT, &[(number * 2).into()])?;
    match then {
        Then::Refuse => return Err(Error::invalid("number", "refused")),
        Then::Unless(other) => {
            let seen = query_all(tx, ALL, &[], |row| row.int(0))?;
            if other != number && seen.contains(&(other * 2)) {
                return Err(Error::AlreadyExists { what: "number", id: other.to_string() });
            }
        }
        Then::Panic => panic_quietly(),
        Then::Blur => drop(tx.execute(BLUR, &[])?),
        Then::Damage => drop(tx.execute(DAMAGE, &[])?),
        Then::Fill => drop(tx.execute(FILL, &[])?),
        Then::Break => drop(tx.execute(BREAK, &[])?),
        Then::Swallow => {
            drop(tx.execute(FILL, &[]));
            return Ok(number);
        }
        Then::Succeed => {}
    }
    tx.execute(PUT, &[(number * 2 + 1).into()])?;
    mark.store(true, Ordering::SeqCst);
    Ok(number)
}

/// What must hold at the moment of the answer.
async fn check_answer(db: &Db, disk: &Disk, sent: &Sent, answer: &Result<i64>) -> Verdict {
    let number = sent.number;
    let is_committed = disk.numbers().contains(&(number * 2 + 1));
    ensure(is_committed == answer.is_ok(), || format!("{number} is answered {answer:?}, committed: {is_committed}"))?;
    if let Ok(value) = answer {
        ensure(*value == number, || format!("{number} got the answer of {value}"))?;
        let seen = db.read(|tx| query_all(tx, ALL, &[], |row| row.int(0))).await;
        let sees = |seen: &Vec<i64>| seen.contains(&(number * 2)) && seen.contains(&(number * 2 + 1));
        match seen {
            Ok(seen) => ensure(sees(&seen), || format!("a read after the answer does not see {number}: {seen:?}"))?,
            Err(error) => ensure(disk.defect == Defect::Faults, || format!("a read failed: {error}"))?,
        }
    }
    let is_culprit = !matches!(sent.then, Then::Succeed | Then::Blur | Then::Unless(_));
    match answer {
        Ok(_) => ensure(!is_culprit, || format!("{number} can't succeed: {:?}", sent.then)),
        Err(error) => {
            let own = match sent.then {
                Then::Succeed | Then::Blur => false,
                Then::Damage => matches!(error, Error::Corrupt { .. }),
                Then::Refuse => matches!(error, Error::Invalid { .. }),
                // What it was refused for is true, and was not only meant to be.
                Then::Unless(other) => {
                    matches!(error, Error::AlreadyExists { .. }) && disk.numbers().contains(&(other * 2))
                }
                Then::Panic => matches!(error, Error::Backend { detail } if detail.contains("panicked")),
                Then::Swallow => matches!(error, Error::Backend { detail } if detail.contains("had ended")),
                Then::Fill => matches!(error, Error::StorageFull { .. }),
                Then::Break => matches!(error, Error::Io { .. }),
            };
            let of_the_engine = disk.defect == Defect::Faults
                && matches!(error, Error::Busy { .. } | Error::StorageFull { .. } | Error::Io { .. });
            ensure(own || of_the_engine, || format!("{number} ({:?}) is answered {error:?}", sent.then))
        }
    }
}

/// What must hold at the end, when the driver has been dropped.
fn judge(disk: &Disk, sent: &[Vec<Sent>]) -> Verdict {
    let stored = disk.numbers();
    for of_client in sent {
        let mut places = Vec::new();
        for Sent { number, then, stands, answer } in of_client {
            let found: Vec<usize> = (0..stored.len()).filter(|at| stored[*at] / 2 == *number).collect();
            let whole = found.len() == 2 && found[1] == found[0] + 1;
            ensure(found.is_empty() || whole, || format!("{number} is stored in part or twice: {stored:?}"))?;
            let traces = stands.load(Ordering::SeqCst);
            ensure(traces == whole, || format!("{number} is stored: {whole}, its traces say {traces}"))?;
            ensure(answer.is_none() || answer.as_ref().is_some_and(Result::is_ok) == whole, || {
                format!("{number} was answered {answer:?}, and is stored: {whole}")
            })?;
            let must = matches!(then, Then::Succeed | Then::Blur) && disk.defect == Defect::Nothing;
            ensure(whole || !must, || format!("{number} was asked for and not done"))?;
            places.extend(found);
        }
        ensure(places.is_sorted(), || format!("the requests of one client are in another order: {stored:?}"))?;
    }
    Ok(())
}

/// The request itself holds the last handle, so that the writer ends the driver that it belongs to.
fn dropped_inside() -> Verdict {
    let disk = Disk::new(Defect::Nothing);
    let db = Db::new(Arc::new(NumberDriver::start(&disk, draw(2) == 0)));
    let mut inside = Some(db.clone());
    let ran = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&ran);
    let first = db.write_now(Sync::Synced, move |tx| {
        drop(inside.take());
        mark.store(true, Ordering::SeqCst);
        tx.execute(PUT, &[1.into()]).map(drop)
    });
    let second = db.write_now(Sync::Written, |tx| tx.execute(PUT, &[2.into()]).map(drop));
    drop(db);
    block_on(first).map_err(|error| format!("the first request was answered {error}"))?;
    block_on(second).map_err(|error| format!("the second request was answered {error}"))?;
    ensure(ran.load(Ordering::SeqCst) && disk.numbers() == [1, 2], || format!("stored: {:?}", disk.numbers()))
}
