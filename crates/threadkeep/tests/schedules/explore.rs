//! Running a check under many schedules, and what the checks share.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use libtest_mimic::Trial;
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// The seed of the schedules, unless `SHUTTLE_RANDOM_SEED` names another: no change is stopped by a schedule that it has
/// nothing to do with.
const SEED: u64 = 20_260;
/// How many preemptions a PCT schedule chooses.
const PREEMPTIONS: usize = 4;

/// What a check found wrong after one schedule.
pub(crate) type Verdict = Result<(), String>;

/// A check that must pass after every schedule; `cheap` says how many it tries when nobody says.
pub(crate) fn holds(name: &'static str, cheap: usize, check: fn() -> Verdict) -> Trial {
    Trial::test(name, move || {
        let wanted = std::env::var("THREADKEEP_SCHEDULES").ok().and_then(|text| text.parse().ok());
        let schedules = wanted.unwrap_or(cheap);
        let began = std::time::Instant::now();
        explore(schedules, move || check().unwrap_or_else(|broken| panic!("{broken}")));
        println!("{name}: {schedules} schedules in {:.1?}", began.elapsed());
        Ok(())
    })
}

/// A control: something is wrong, and one of this many schedules must show it.
pub(crate) fn is_found(name: &'static str, schedules: usize, check: fn() -> Verdict) -> Trial {
    Trial::test(name, move || {
        let found = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&found);
        explore(schedules, move || {
            if check().is_err() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let found = found.load(Ordering::SeqCst);
        println!("{name}: found by {found} of {schedules} schedules");
        if found > 0 { Ok(()) } else { Err("nothing was found".into()) }
    })
}

fn explore(schedules: usize, check: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    // The engine and the compression run on the stacks of the scheduler.
    config.stack_size = 1 << 20;
    let half = schedules.div_ceil(2);
    Runner::new(RandomScheduler::new_from_seed(SEED, half), config.clone()).run(check.clone());
    Runner::new(PctScheduler::new_from_seed(SEED, PREEMPTIONS, schedules - half), config).run(check);
}

/// One of a number of choices, drawn by the scheduler, so that a schedule can be run again.
pub(crate) fn draw(choices: u32) -> u32 {
    thread_rng().gen_range(0..choices)
}

/// Waits for a future, as a caller that does the waiting work itself or as one that only waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    match draw(2) {
        0 => crate::db::helping::block_on(future),
        _ => crate::concurrency::block_on(future),
    }
}

/// Polls a future a few times and then drops it; gives what it answered in time.
pub(crate) async fn impatiently<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(answer) = poll_once(future.as_mut()).await {
            return Some(answer);
        }
        shuttle::future::yield_now().await;
    }
    None
}

/// Polls a future once, with the waker of the task.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context: &mut Context<'_>| Poll::Ready(future.as_mut().poll(context))).await
}

/// A panic that no hook prints.
pub(crate) fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("planned"))
}

pub(crate) fn quietly<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(run))
}

pub(crate) fn ensure(condition: bool, broken: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(broken()) }
}
