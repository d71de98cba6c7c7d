//! The smallest part of the library's waiting under every order of its steps that there is.
//!
//! As `schedules.rs` does, this compiles the library's own file with the locks of a checker in the place of
//! `src/concurrency.rs`; the checker then runs all interleavings, not some of them.
#![cfg(test)]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// What `src/concurrency.rs` gives, of the checker.
mod concurrency {
    pub(crate) use loom::sync::Mutex;
}

#[path = "../src/db/room.rs"]
mod room;

use room::Room;

/// Enters alone and leaves.
fn visit(room: &Room, inside: &AtomicUsize) {
    let place = block_on(room.enter(1));
    assert_eq!(inside.fetch_add(place.size(), Ordering::SeqCst), 0, "two are in a room for one");
    inside.fetch_sub(place.size(), Ordering::SeqCst);
}

#[test]
fn everybody_gets_in_and_never_two_at_once() {
    loom::model(|| {
        let (room, inside) = (Room::new(1), Arc::new(AtomicUsize::new(0)));
        let held = block_on(room.enter(1));
        let guests: Vec<_> = (0..2)
            .map(|_| {
                let (room, inside) = (room.clone(), Arc::clone(&inside));
                thread::spawn(move || visit(&room, &inside))
            })
            .collect();
        drop(held);
        for guest in guests {
            guest.join().unwrap();
        }
    });
}

#[test]
fn whoever_gives_up_takes_no_room_along() {
    loom::model(|| {
        let (room, inside) = (Room::new(1), Arc::new(AtomicUsize::new(0)));
        let held = block_on(room.enter(1));
        let impatient = {
            let room = room.clone();
            thread::spawn(move || {
                let mut entering = pin!(room.enter(1));
                // Whether it got in or not, it leaves at once.
                _ = entering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            })
        };
        let patient = {
            let (room, inside) = (room.clone(), Arc::clone(&inside));
            thread::spawn(move || visit(&room, &inside))
        };
        drop(held);
        impatient.join().unwrap();
        patient.join().unwrap();
        // All of it is free again.
        visit(&room, &inside);
    });
}

#[test]
fn the_line_is_kept() {
    loom::model(|| {
        let room = Room::new(2);
        let first = block_on(room.enter(1));
        let mut context = Context::from_waker(Waker::noop());
        // It needs all of the room; the one behind it would fit at once.
        let (mut large, mut small) = (pin!(room.enter(2)), pin!(room.enter(1)));
        assert!(large.as_mut().poll(&mut context).is_pending());
        assert!(small.as_mut().poll(&mut context).is_pending(), "somebody was passed over");
        drop(first);
        let all = large.as_mut().poll(&mut context);
        assert!(all.is_ready());
        assert!(small.as_mut().poll(&mut context).is_pending());
        drop(all);
        assert!(small.as_mut().poll(&mut context).is_ready());
    });
}
