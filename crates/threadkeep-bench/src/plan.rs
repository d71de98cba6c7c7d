//! What is measured, and at which sizes.

use std::path::PathBuf;

/// What a run measures.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The ids that were asked for; empty means all.
    pub only: Vec<String>,
    /// Where the stores are made.
    pub root: PathBuf,
    /// How much is stored and how often it is measured.
    pub sizes: Sizes,
}

/// How much is stored and how often it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Rounds of each comparison; ours and the floor take turns.
    pub rounds: usize,
    /// Synced appends in a round.
    pub synced: usize,
    /// Written appends, and reads of one page, in a round.
    pub calls: usize,
    /// Threads that write at once.
    pub writers: usize,
    /// Appends of each of them in a round.
    pub each: usize,
    /// Items of the short, the middling, the long and the very long thread.
    pub items: [u32; 4],
    /// Threads of the small, the middling and the large store.
    pub threads: [u32; 3],
    /// The page far down the list.
    pub far_page: usize,
}

impl Sizes {
    /// The sizes that the targets name.
    pub const FULL: Self = Self {
        rounds: 20,
        synced: 100,
        calls: 500,
        writers: 64,
        each: 25,
        items: [10, 1_000, 20_000, 1_000_000],
        threads: [1_000, 10_000, 100_000],
        far_page: 2_000,
    };

    /// Small enough for a test: the figures mean nothing.
    pub const QUICK: Self = Self {
        rounds: 2,
        synced: 2,
        calls: 4,
        writers: 4,
        each: 2,
        items: [3, 20, 60, 200],
        threads: [10, 30, 110],
        far_page: 2,
    };
}

impl Plan {
    /// Whether a figure was asked for.
    pub fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted.eq_ignore_ascii_case(id))
    }
}
