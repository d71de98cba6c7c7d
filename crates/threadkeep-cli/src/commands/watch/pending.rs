//! What is to be imported, and when: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A burst is over when nothing happened for this long …
const QUIET: Duration = Duration::from_millis(150);
/// … or when it has gone on for this long.
const LONGEST: Duration = Duration::from_secs(1);
/// From this many paths on everything is looked through.
const MOST_PATHS: usize = 2_048;
/// When a file that could not be imported is tried again: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How often it is; then it waits for the next change, or for the next look at everything.
const TRIES: u32 = 6;

/// What is imported at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Burst {
    /// Everything that is followed.
    Everything,
    /// These files, and what is below these folders.
    Paths(Vec<PathBuf>),
}

/// What is to be imported.
#[derive(Debug, Default)]
pub(super) struct Pending {
    everything: bool,
    paths: BTreeSet<PathBuf>,
    /// When the burst began, and when something happened last.
    since: Option<(Instant, Instant)>,
    /// Files that could not be imported: how often that was tried, and when it is tried again.
    again: BTreeMap<PathBuf, (u32, Instant)>,
}

impl Pending {
    /// Something happened here.
    pub(super) fn changed(&mut self, path: PathBuf, now: Instant) {
        self.touch(now);
        if self.paths.len() >= MOST_PATHS {
            self.everything = true;
            self.paths.clear();
        }
        if !self.everything {
            self.paths.insert(path);
        }
    }

    /// It is not known where something happened.
    pub(super) fn everything(&mut self, now: Instant) {
        self.touch(now);
        self.everything = true;
        self.paths.clear();
    }

    /// When something is to be done, unless more happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let burst = self.since.map(|(first, last)| (last + QUIET).min(first + LONGEST));
        let again = self.again.values().map(|(_, at)| *at).min();
        burst.into_iter().chain(again).min()
    }

    /// Takes what is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Burst> {
        let over = self.since.is_some_and(|(first, last)| now >= last + QUIET || now >= first + LONGEST);
        let again = self.again.iter().filter(|(_, (_, at))| now >= *at).map(|(path, _)| path.clone());
        let again: Vec<PathBuf> = again.collect();
        if !over && again.is_empty() {
            return None;
        }
        // It is tried now; if it fails again, settling says when the next time is.
        for path in &again {
            if let Some((_, at)) = self.again.get_mut(path) {
                *at = now + AGAIN.1;
            }
        }
        if !over {
            return Some(Burst::Paths(again));
        }
        self.since = None;
        if std::mem::take(&mut self.everything) {
            return Some(Burst::Everything);
        }
        self.paths.extend(again);
        Some(Burst::Paths(std::mem::take(&mut self.paths).into_iter().collect()))
    }

    /// The burst was imported, but for these files.
    pub(super) fn settle(&mut self, burst: &Burst, failed: &[PathBuf], now: Instant) {
        let tried = |path: &Path| match burst {
            Burst::Everything => true,
            Burst::Paths(paths) => paths.iter().any(|tried| path.starts_with(tried)),
        };
        let failed: BTreeSet<&PathBuf> = failed.iter().collect();
        self.again.retain(|path, _| failed.contains(path) || !tried(path));
        for path in failed.into_iter().take(MOST_PATHS) {
            let tries = self.again.get(path).map_or(0, |(tries, _)| *tries) + 1;
            if tries > TRIES {
                self.again.remove(path);
                continue;
            }
            let wait = AGAIN.0.saturating_mul(1 << (tries - 1).min(16)).min(AGAIN.1);
            self.again.insert(path.clone(), (tries, now + wait));
        }
    }

    /// The burst could not be imported at all, because of the store.
    pub(super) fn put_back(&mut self, burst: Burst, now: Instant) {
        match burst {
            Burst::Everything => self.everything(now),
            Burst::Paths(paths) => paths.into_iter().for_each(|path| self.changed(path, now)),
        }
    }

    fn touch(&mut self, now: Instant) {
        self.since = Some((self.since.map_or(now, |(first, _)| first), now));
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN, Burst, LONGEST, MOST_PATHS, Pending, QUIET, TRIES};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    const MOMENT: Duration = Duration::from_millis(1);

    fn paths(names: &[&str]) -> Burst {
        Burst::Paths(names.iter().map(PathBuf::from).collect())
    }

    #[test]
    fn a_burst_is_one_import() {
        let mut pending = Pending::default();
        let start = Instant::now();
        assert_eq!((pending.due(), pending.take(start)), (None, None));
        for (step, name) in (0..).zip(["b", "a", "b", "b"]) {
            pending.changed(name.into(), start + MOMENT * step);
        }
        let last = start + MOMENT * 3;
        assert_eq!(pending.due(), Some(last + QUIET));
        assert_eq!(pending.take(last), None);
        assert_eq!(pending.take(last + QUIET), Some(paths(&["a", "b"])));
        assert_eq!((pending.due(), pending.take(last + LONGEST)), (None, None));
    }

    #[test]
    fn a_burst_that_never_ends_is_imported_in_parts() {
        let mut pending = Pending::default();
        let start = Instant::now();
        let mut taken = 0;
        for step in 0..3_000 {
            let now = start + MOMENT * step;
            pending.changed("a".into(), now);
            taken += u32::from(pending.take(now).is_some());
        }
        assert_eq!(taken, 2);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut pending = Pending::default();
        let now = Instant::now();
        for number in 0..=MOST_PATHS {
            pending.changed(number.to_string().into(), now);
        }
        assert!(pending.paths.is_empty());
        assert_eq!(pending.take(now + QUIET), Some(Burst::Everything));
        pending.changed("a".into(), now);
        assert_eq!(pending.take(now + QUIET), Some(paths(&["a"])));
    }

    #[test]
    fn what_fails_is_tried_again_less_and_less_often_and_then_left() {
        let mut pending = Pending::default();
        let mut now = Instant::now();
        pending.changed("/a".into(), now);
        now += QUIET;
        let (mut tries, mut waited) = (0, Vec::new());
        while let Some(burst) = pending.take(now) {
            assert_eq!(burst, paths(&["/a"]));
            tries += 1;
            pending.settle(&burst, &["/a".into()], now);
            let Some(due) = pending.due() else { break };
            waited.push(due - now);
            now = due;
        }
        assert_eq!(tries, TRIES + 1);
        assert_eq!(waited.first(), Some(&AGAIN.0));
        assert!(waited.is_sorted() && waited.last() <= Some(&AGAIN.1), "{waited:?}");
    }

    #[test]
    fn what_was_imported_after_all_is_not_tried_again() {
        let mut pending = Pending::default();
        let now = Instant::now();
        pending.settle(&paths(&["/a", "/b"]), &["/a".into(), "/b".into()], now);
        pending.settle(&paths(&["/a"]), &[], now);
        assert_eq!(pending.take(now + AGAIN.0), Some(paths(&["/b"])));
        pending.settle(&Burst::Everything, &[], now);
        assert_eq!(pending.due(), None);
    }

    #[test]
    fn nothing_is_lost_when_the_store_is_busy() {
        let mut pending = Pending::default();
        let now = Instant::now();
        pending.changed("a".into(), now);
        let burst = pending.take(now + QUIET).unwrap();
        pending.changed("b".into(), now + QUIET);
        pending.put_back(burst, now + QUIET);
        assert_eq!(pending.take(now + QUIET * 2), Some(paths(&["a", "b"])));
    }
}
