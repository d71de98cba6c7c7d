//! Claims: the right to write a thread, as programs and people see it.

use std::fmt;

use serde::Serialize;

use crate::id::ThreadId;
use crate::time::Timestamp;

/// Who holds the claim on a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The id of the open store that holds it; its lock file bears this name.
    pub id: String,
    /// The machine's lasting name.
    pub machine: String,
    /// The machine's name for people.
    pub hostname: String,
    /// The process, as its own system numbers it.
    pub pid: i64,
    /// The process's start, in clock ticks since that of its system.
    pub start_ticks: i64,
    /// The id of its system's start.
    pub boot: String,
    /// The namespace that the process's number belongs to.
    pub namespace: String,
    /// What the program calls itself.
    pub label: String,
    /// Since when.
    pub acquired_at: Timestamp,
    /// The last sign of life.
    pub heartbeat_at: Timestamp,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {} on {}, since {})", self.label, self.pid, self.hostname, self.acquired_at)
    }
}

/// Somebody asks the holder of a thread to hand it over at the end of its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReleaseRequest {
    /// What the asking program calls itself.
    pub by: String,
    /// When it asked.
    pub at: Timestamp,
}

/// A claim, for whoever wants to know who writes what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimInfo {
    /// The thread.
    pub thread: ThreadId,
    /// What to call it.
    pub name: String,
    /// The epoch of the claim.
    pub epoch: i64,
    /// Who holds it.
    pub holder: Holder,
    /// Whether the holder is alive; a dead one is replaced by the next that resumes the thread.
    pub live: bool,
    /// Who asks for it.
    pub wanted: Option<ReleaseRequest>,
}
