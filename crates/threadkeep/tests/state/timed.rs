//! Times are those of the store's own clock, and never fall.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{
    GoalUsage, Host, JobEnd, JobReport, NewGoal, NewJob, ProjectFacts, StoreOptions, SystemHost, Timestamp,
};

use super::{create, id, job, workspace};

const START: i64 = 1_767_323_045_000;

/// A machine whose clock stands until it is moved.
#[derive(Debug)]
pub(super) struct StandingClock(AtomicI64);

impl StandingClock {
    pub(super) fn store() -> (Arc<Self>, Store) {
        let host = Arc::new(Self(AtomicI64::new(START)));
        let store = Store::open(StoreOptions::memory().host(Arc::clone(&host) as Arc<dyn Host>)).unwrap();
        (host, store)
    }

    pub(super) fn at(&self, millis: i64) {
        self.0.store(START + millis, Ordering::SeqCst);
    }
}

impl Host for StandingClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        SystemHost.fill_random(buffer);
    }

    fn machine(&self) -> String {
        "machine-1".to_owned()
    }

    fn hostname(&self) -> String {
        "host-1".to_owned()
    }

    fn project(&self, path: &Path) -> ProjectFacts {
        ProjectFacts { path: path.to_owned(), ..ProjectFacts::default() }
    }
}

#[test]
fn a_job_is_claimed_when_its_delay_is_over_and_not_before() {
    let (clock, store) = StandingClock::store();
    let place = workspace(&store);
    place.add_job(NewJob { delay: Duration::from_secs(5), ..job("later") }).unwrap();
    for (millis, is_due) in [(0, false), (4_999, false), (5_000, true)] {
        clock.at(millis);
        assert_eq!(place.claim_job(NewJob::QUEUE).unwrap().is_some(), is_due, "after {millis} ms");
    }
}

#[test]
fn each_attempt_waits_twice_as_long_as_the_one_before() {
    let (clock, store) = StandingClock::store();
    let place = workspace(&store);
    place.add_job(NewJob { max_attempts: 4, backoff: Duration::from_millis(500), ..job("fails") }).unwrap();
    let mut now = 0;
    for wait in [500, 1_000, 2_000] {
        let claimed = place.claim_job(NewJob::QUEUE).unwrap().unwrap();
        let failed = JobEnd::Failed { error: "again".into(), retry: true };
        let waiting = store.end_job(&claimed.lease, failed).unwrap();
        assert_eq!(waiting.due_at, Timestamp(START + now + wait));
        clock.at(now + wait - 1);
        assert_eq!(place.claim_job(NewJob::QUEUE).unwrap(), None);
        now += wait;
        clock.at(now);
    }
    assert!(place.claim_job(NewJob::QUEUE).unwrap().is_some());
}

/// Jobs that are added at the same moment, or while the clock goes back, keep their order.
#[test]
fn the_order_of_a_queue_needs_no_clock() {
    let (clock, store) = StandingClock::store();
    let place = workspace(&store);
    for (name, millis) in [("d", 0), ("c", 0), ("b", -60_000), ("a", -60_000)] {
        clock.at(millis);
        place.add_job(job(name)).unwrap();
    }
    clock.at(1_000);
    let claimed = || place.claim_job(NewJob::QUEUE).unwrap().map(|claimed| claimed.job.id.to_string());
    assert_eq!([claimed(), claimed(), claimed(), claimed()].map(Option::unwrap), ["d", "c", "b", "a"]);
}

#[test]
fn a_clock_that_goes_back_moves_no_time_back() {
    let (clock, store) = StandingClock::store();
    let live = create(&store, "t");
    live.set_goal(NewGoal::new("x")).unwrap();
    workspace(&store).add_job(job("j")).unwrap();
    let lease = store.claim_job(NewJob::QUEUE).unwrap().unwrap().lease;
    clock.at(-60_000);
    let usage = GoalUsage { tokens: 1, ..GoalUsage::default() };
    assert_eq!(store.accrue_goal(&id("t"), usage).unwrap().unwrap().updated_at, Timestamp(START));
    let report = JobReport { progress: Some(1), ..JobReport::default() };
    assert_eq!(store.report_job(&lease, report).unwrap().updated_at, Timestamp(START));
    assert_eq!(store.get(&id("t")).unwrap().updated_at, Timestamp(START));
    clock.at(5);
    assert_eq!(store.accrue_goal(&id("t"), usage).unwrap().unwrap().updated_at, Timestamp(START + 5));
}
