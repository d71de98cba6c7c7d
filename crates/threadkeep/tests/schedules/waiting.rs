//! The room in a queue: never more than its bound, in the order of arrival, and nobody waits for ever, whoever gives up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::Trial;
use shuttle::thread;

use crate::db::room::Room;
use crate::explore::{Verdict, block_on, draw, ensure, holds, impatiently};

const BOUND: usize = 4;

pub(crate) fn trials() -> Vec<Trial> {
    vec![holds("a_room_keeps_its_bound_and_its_line", 3_000, crowd)]
}

fn crowd() -> Verdict {
    let (room, inside) = (Room::new(BOUND), Arc::new(AtomicUsize::new(0)));
    let guests: Vec<_> = (0..5)
        .map(|_| {
            let (room, inside) = (room.clone(), Arc::clone(&inside));
            thread::spawn(move || block_on(visit(&room, &inside)))
        })
        .collect();
    for guest in guests {
        guest.join().map_err(|_| "a guest panicked")??;
    }
    ensure(inside.load(Ordering::SeqCst) == 0, || "somebody is inside".to_owned())?;
    // All of the room is free again: nobody who gave up took any of it along.
    let whole = block_on(impatiently(room.enter(BOUND), 1));
    ensure(whole.is_some(), || "some of the room is lost".to_owned())
}

async fn visit(room: &Room, inside: &AtomicUsize) -> Verdict {
    for _ in 0..3 {
        // The largest have the room alone.
        let size = 1 + draw(6) as usize;
        let polls = draw(4);
        let entering = room.enter(size);
        let place = match polls {
            0 => Some(entering.await),
            _ => impatiently(entering, polls).await,
        };
        let Some(place) = place else { continue };
        let now = inside.fetch_add(place.size(), Ordering::SeqCst) + place.size();
        ensure(now <= BOUND, || format!("{now} inside, {BOUND} are allowed"))?;
        shuttle::future::yield_now().await;
        inside.fetch_sub(place.size(), Ordering::SeqCst);
    }
    Ok(())
}
