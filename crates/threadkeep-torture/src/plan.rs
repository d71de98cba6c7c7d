//! How much is done, with which chance, and where.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::Result;
use crate::ground::Ground;
use crate::server::Server;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Size {
    /// A few minutes in all, for every change.
    Pr,
    /// Most of an hour.
    Nightly,
    /// Hours.
    Release,
}

/// What holds for a whole run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// How much is done.
    pub(crate) size: Size,
    /// All choices follow from it.
    pub(crate) seed: u64,
    /// The scenario that is wanted alone.
    pub(crate) only: Option<String>,
    /// Whether a suite that can't run is a failure.
    pub(crate) in_ci: bool,
    /// This program, to be started again.
    pub(crate) program: PathBuf,
    /// Where the stores are, if not in folders.
    pub(crate) server: Option<Arc<Server>>,
}

impl Plan {
    /// A plan with a seed of its own, unless one is given.
    pub(crate) fn new(size: Size, seed: Option<u64>, only: Option<String>) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| format!("this program can't find itself: {error}"))?;
        let seed = seed.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish() >> 16);
        Ok(Self { size, seed, only, in_ci: std::env::var_os("CI").is_some(), program, server: None })
    }

    /// The same plan for stores on a server.
    pub(crate) fn on(&self, server: Server) -> Self {
        let (only, program) = (self.only.clone(), self.program.clone());
        Self { size: self.size, seed: self.seed, only, in_ci: self.in_ci, program, server: Some(Arc::new(server)) }
    }

    /// Room for stores where a sync costs nothing.
    pub(crate) fn ground(&self) -> Result<Ground> {
        Ok(Ground::new(fast_folder()?, self.server.clone()))
    }

    /// Room for stores on a disk, unless they are on a server.
    pub(crate) fn disk_ground(&self) -> Result<Ground> {
        Ok(Ground::new(if self.server.is_some() { fast_folder()? } else { disk_folder()? }, self.server.clone()))
    }

    /// The amount that belongs to the size.
    pub(crate) fn pick<T>(&self, pr: T, nightly: T, release: T) -> T {
        match self.size {
            Size::Pr => pr,
            Size::Nightly => nightly,
            Size::Release => release,
        }
    }

    /// The chance of one suite: another suite before it changes nothing.
    pub(crate) fn random(&self, suite: &str) -> Random {
        let mixed = suite.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Random::from_seed(mixed)
    }
}

/// A folder in memory, where a sync costs nothing: for faults that don't ask what has reached a disk.
pub(crate) fn fast_folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let builder = || tempfile::Builder::new().prefix("threadkeep-torture-").rand_bytes(8).to_owned();
    let made = if memory.is_dir() { builder().tempdir_in(memory) } else { builder().tempdir() };
    made.map_err(|error| format!("no folder for the stores: {error}"))
}

/// A folder on a disk.
pub(crate) fn disk_folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("threadkeep-torture-").tempdir();
    made.map_err(|error| format!("no folder for the stores: {error}"))
}

/// Numbers that follow from a seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers that follow from a seed.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % bound.max(1)
    }

    /// Puts a list into an order of chance.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            list.swap(last, other);
        }
    }
}

/// Has the system forget what it read of files, so that they are read from the disk; says whether it did.
pub(crate) fn forget_files() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
