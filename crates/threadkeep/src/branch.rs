//! Branches: the maximal linear runs of a thread's tree.

use serde::Serialize;

use crate::id::{Address, BranchId, ThreadId};
use crate::item::Hash;

/// A branch as the tree shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Its public id: the id of its first item.
    pub id: BranchId,
    /// The thread that wrote it; an ancestor's for shared branches.
    pub thread: ThreadId,
    /// The item it leaves its parent branch after; `None` for a root.
    pub parent: Option<Address>,
    /// The depth of its first item.
    pub base: u32,
    /// The depth of its last item.
    pub tip: u32,
    /// The chain's hash at its last item.
    pub tip_hash: Hash,
    /// A name that a person gave.
    pub label: Option<String>,
    /// Whether the thread was cleared after it: kept, and left out of the leaves.
    pub cleared: bool,
    /// Whether the active path runs through it.
    pub active: bool,
}

impl Branch {
    /// The number of items that stand on it.
    pub fn items(&self) -> u32 {
        self.tip - self.base + 1
    }
}

/// The tree of a thread: its own branches and the ancestors that its path shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The thread.
    pub thread: ThreadId,
    /// Where the thread stands.
    pub head: Option<Address>,
    /// The branches, parents before children, in the order in which they were begun.
    pub branches: Vec<Branch>,
}

impl Tree {
    /// The tips that nothing continues: where a thread can be resumed.
    pub fn leaves(&self) -> Vec<Address> {
        let continued = |branch: &Branch| {
            let tip = Address { branch: branch.id, depth: branch.tip };
            self.branches.iter().any(|child| child.parent == Some(tip) && !child.cleared)
        };
        let open = self.branches.iter().filter(|branch| !branch.cleared && !continued(branch));
        open.map(|branch| Address { branch: branch.id, depth: branch.tip }).collect()
    }
}
