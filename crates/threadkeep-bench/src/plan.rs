//! What is measured, and at which sizes.

use std::path::PathBuf;
use std::time::Duration;

/// What a run measures.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The ids that were asked for; empty means all.
    pub only: Vec<String>,
    /// Where the stores are made.
    pub root: PathBuf,
    /// The program that plays a process of writers.
    pub writers_program: PathBuf,
    /// The address of a PostgreSQL server whose databases may be filled, with a parameter already; none where there is none.
    pub server: Option<String>,
    /// The Python that a peer is installed with.
    pub python: Option<PathBuf>,
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
    /// Numbers of clients that write to a server at once.
    pub clients: &'static [usize],
    /// Appends of all of them in a round.
    pub calls_of_all: usize,
    /// Rounds of each comparison on a server.
    pub server_rounds: usize,
    /// Numbers of processes that write at once.
    pub processes: &'static [usize],
    /// Numbers of writers in each of them.
    pub writers_each: &'static [usize],
    /// Numbers of processes with one writer each whose waits are measured.
    pub many_processes: &'static [usize],
    /// Rounds of the processes.
    pub turns: usize,
    /// How long the many writers write in a round.
    pub short: Duration,
    /// How long the many processes do.
    pub long: Duration,
    /// Items of the short, the middling, the long and the very long thread.
    pub items: [u32; 4],
    /// Threads of the small, the middling and the large store.
    pub threads: [u32; 3],
    /// The page far down the list.
    pub far_page: usize,
    /// Bytes that are looked through for secrets.
    pub searched: usize,
    /// Items of the corpus that is searched.
    pub corpus: u32,
    /// Searches of each kind.
    pub questions: usize,
    /// Items of the agents' files that are imported.
    pub imported: u32,
    /// Bytes of the large thread.
    pub large: u64,
}

impl Sizes {
    /// The sizes that the targets name.
    pub const FULL: Self = Self {
        rounds: 20,
        synced: 100,
        calls: 500,
        writers: 64,
        each: 25,
        clients: &[1, 16, 64, 256],
        calls_of_all: 2_560,
        server_rounds: 7,
        processes: &[1, 2, 4],
        writers_each: &[1, 4, 16, 64],
        many_processes: &[8, 32],
        turns: 5,
        short: Duration::from_secs(1),
        long: Duration::from_secs(5),
        items: [10, 1_000, 20_000, 1_000_000],
        threads: [1_000, 10_000, 100_000],
        far_page: 2_000,
        searched: 64_000_000,
        corpus: 1_000_000,
        questions: 12,
        imported: 1_000_000,
        large: 1 << 30,
    };

    /// Small enough for a test: the figures mean nothing.
    pub const QUICK: Self = Self {
        rounds: 2,
        synced: 2,
        calls: 4,
        writers: 4,
        each: 2,
        clients: &[1, 4],
        calls_of_all: 8,
        server_rounds: 2,
        processes: &[1, 2],
        writers_each: &[1, 2],
        many_processes: &[3],
        turns: 1,
        short: Duration::from_millis(20),
        long: Duration::from_millis(40),
        items: [3, 20, 60, 200],
        threads: [10, 30, 110],
        far_page: 2,
        searched: 10_000,
        corpus: 2_000,
        questions: 2,
        imported: 400,
        large: 1 << 20,
    };
}

impl Plan {
    /// Whether a figure was asked for.
    pub fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted.eq_ignore_ascii_case(id))
    }
}
