//! A machine where everything is the same each time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use threadkeep::{Hash, Host, ProjectFacts, Timestamp};

/// Its clock ticks by a step at each look.
#[derive(Debug)]
pub(crate) struct FixedHost {
    now: AtomicI64,
    step: i64,
    random: AtomicU64,
}

impl FixedHost {
    pub(crate) fn ticking(step: i64) -> Arc<Self> {
        Arc::new(Self { now: AtomicI64::new(1_767_323_045_000), step, random: AtomicU64::new(1) })
    }
}

impl Host for FixedHost {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.fetch_add(self.step, Ordering::SeqCst))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        let number = self.random.fetch_add(1, Ordering::SeqCst);
        let bytes = Hash::of(&number.to_le_bytes()).0;
        buffer.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
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
