//! Turns: the items from one accepted prompt to its outcome.

use serde::{Deserialize, Serialize};

use crate::id::Address;
use crate::item::open_words;
use crate::time::Timestamp;
use crate::view::Usage;

open_words! {
    /// How far a turn came.
    TurnStatus {
        /// It was begun and not ended.
        Running = "running",
        /// It ended as intended.
        Completed = "completed",
        /// It was stopped before its end.
        Interrupted = "interrupted",
        /// It ended with a failure.
        Failed = "failed",
    }
}

/// A stored turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// Its number in the thread that wrote it, from 1.
    pub ordinal: i64,
    /// How far it came.
    pub status: TurnStatus,
    /// What came of it, in the agent's words.
    pub outcome: Option<String>,
    /// Its first item.
    pub first: Address,
    /// Its last item; `None` while it runs.
    pub last: Option<Address>,
    /// Tokens it cost.
    pub usage: Option<Usage>,
    /// When it was begun.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What ending a turn did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnEnded {
    /// The turn's number.
    pub ordinal: i64,
    /// Who had asked for the thread and can have it now; then the handle is closed.
    pub handed_over: Option<crate::claim::ReleaseRequest>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// How far it came; not [`TurnStatus::Running`].
    pub status: TurnStatus,
    /// What came of it, in the agent's words.
    pub outcome: Option<String>,
    /// Tokens it cost.
    pub usage: Option<Usage>,
}

impl TurnEnd {
    /// A turn that ended as intended.
    pub fn completed() -> Self {
        Self { status: TurnStatus::Completed, outcome: None, usage: None }
    }
}
