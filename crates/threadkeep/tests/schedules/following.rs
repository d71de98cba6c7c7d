//! Who follows: everything once and in order, whoever waits is woken, whoever stops waiting loses nothing, and what listens to
//! others is open exactly while somebody waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use libtest_mimic::Trial;
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::concurrency::block_on;
use crate::db::news::{Board, Touched, Wire};
use crate::error::Result;
use crate::explore::{Verdict, draw, ensure, holds, impatiently};
use crate::follow::{FollowEnd, Follower, News};
use crate::memory::Memory;
use crate::queueing::{named, pair};

const APPENDS: usize = 4;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        holds("followers_hear_everything_once", 1_000, followers),
        holds("who_listens_is_woken_by_others", 3_000, listeners),
    ]
}

fn followers() -> Verdict {
    let memory = Memory::new(1 << 20);
    // To each other they are as two processes, whose news come by the same way.
    let (writer, reader) = (memory.store(), memory.store());
    let live = block_on(block_on(writer.workspace("/w".as_ref())).unwrap().create_now(named("t"))).unwrap();
    let followers: Vec<_> = (0..2)
        .map(|_| {
            let follower = block_on(reader.follow(live.id(), None)).unwrap();
            thread::spawn(move || block_on(follow(follower)))
        })
        .collect();
    for number in 0..APPENDS {
        block_on(live.append(pair(&number.to_string()))).unwrap();
    }
    block_on(live.shutdown()).unwrap();
    block_on(writer.delete(live.id())).unwrap();
    for follower in followers {
        let heard = follower.join().map_err(|_| "a follower panicked")??;
        ensure(heard == APPENDS * 2, || format!("{heard} items were heard"))?;
    }
    Ok(())
}

/// Follows to the end of the thread, and stops waiting now and then.
async fn follow(mut follower: Follower) -> Result<usize, String> {
    let mut heard = 0;
    loop {
        let news = match draw(3) {
            0 => match impatiently(follower.next(), 1 + draw(3)).await {
                None => continue,
                Some(news) => news,
            },
            _ => follower.next().await,
        };
        match news.map_err(|error| format!("following: {error}"))? {
            News::Items(items) => {
                for item in items {
                    ensure(item.depth as usize == heard, || format!("depth {} after {heard} items", item.depth))?;
                    heard += 1;
                }
            }
            News::Ended(FollowEnd::Trashed) => return Ok(heard),
            other => return Err(format!("{other:?}")),
        }
    }
}

/// Another process: it commits, and whoever has its wire open hears of it.
#[derive(Debug, Default)]
struct Elsewhere {
    commits: AtomicUsize,
    open: Mutex<Option<Weak<Board>>>,
}

#[derive(Debug)]
struct Line(Arc<Elsewhere>);

impl Wire for Line {
    fn open(&self, board: Weak<Board>) -> Result<()> {
        let before = self.0.open.lock().unwrap().replace(Weak::clone(&board));
        assert!(before.is_none(), "it was open");
        // As a listener does when it has begun.
        thread::spawn(move || board.upgrade().map(|board| board.ring(&Touched::Anything)));
        Ok(())
    }

    fn close(&self) {
        assert!(self.0.open.lock().unwrap().take().is_some(), "it was not open");
    }

    fn tell(&self, _: &Touched) {}
}

fn listeners() -> Verdict {
    let elsewhere = Arc::new(Elsewhere::default());
    let board = Arc::new(Board::with_wire(Box::new(Line(Arc::clone(&elsewhere)))));
    let listeners: Vec<_> = (0..3)
        .map(|number| {
            let (board, elsewhere) = (Arc::clone(&board), Arc::clone(&elsewhere));
            thread::spawn(move || block_on(listen(&board, &elsewhere, 1 + number % 2)))
        })
        .collect();
    for number in 0..2 {
        elsewhere.commits.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        let hears = elsewhere.open.lock().unwrap().as_ref().and_then(Weak::upgrade);
        let touched = if number == 0 { Touched::Anything } else { Touched::Thread("t".to_owned()) };
        if let Some(board) = hears {
            board.ring(&touched);
        }
    }
    for listener in listeners {
        listener.join().map_err(|_| "a listener panicked")?;
    }
    ensure(elsewhere.open.lock().unwrap().is_none(), || "the wire is left open".to_owned())
}

/// Waits until so many commits are seen, as one who looks after it began to listen.
async fn listen(board: &Arc<Board>, elsewhere: &Elsewhere, goal: usize) {
    let mut ear = board.listen(Some("t".to_owned())).unwrap();
    loop {
        ear.take();
        if elsewhere.commits.load(Ordering::SeqCst) >= goal {
            return;
        }
        ear.heard().await;
        if draw(3) == 0 {
            // A new one before or after the old one is gone.
            let fresh = (draw(2) == 0).then(|| board.listen(None).unwrap());
            drop(ear);
            ear = match fresh {
                Some(fresh) => fresh,
                None => board.listen(Some("t".to_owned())).unwrap(),
            };
        }
    }
}
