//! A thread's tree, drawn: the active path is the trunk, and what was left behind hangs beside it.

use std::collections::HashMap;

use threadkeep::{Address, Branch, BranchId, Tree};

use crate::names;

/// Below this many levels the guides no longer move to the right.
const MAX_LEVELS: usize = 24;

/// A run of items without a fork in it: the unit of the drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// The guides before it.
    pub(crate) guides: String,
    /// Its branch.
    pub(crate) branch: BranchId,
    /// Its first and last depth.
    pub(crate) from: u32,
    /// Its last depth.
    pub(crate) to: u32,
    /// Whether it stands on the active path.
    pub(crate) active: bool,
    /// Whether the thread's head is its last item.
    pub(crate) head: bool,
    /// Whether its branch begins here, and so shows its name.
    pub(crate) first: bool,
    /// Whether nothing continues it.
    pub(crate) tip: bool,
}

/// Draws a tree: the runs in the order of their lines.
pub(crate) fn draw(tree: &Tree) -> Vec<Run> {
    let plan = Plan::new(tree);
    let mut lines = Vec::new();
    // Trunks that are still to be drawn, the next one last: where it begins, its guides, and their continuation.
    let mut waiting: Vec<Trunk> = Vec::new();
    for root in tree.branches.iter().filter(|branch| plan.is_root(branch)).rev() {
        waiting.push(Trunk::new((root.id, root.base), String::new(), String::new(), 0));
    }
    while let Some(trunk) = waiting.pop() {
        if let Some(run) = plan.run(trunk.start, &trunk.lead) {
            let end = Address { branch: run.branch, depth: run.to };
            let mut next = plan.continuations(end);
            let follow = plan.follow(&next);
            if let Some(follow) = follow {
                next.retain(|start| *start != follow);
            }
            lines.push(Run { tip: next.is_empty() && follow.is_none(), ..run });
            // Drawn last, so pushed first: the trunk goes on below what hangs beside it.
            if let Some(follow) = follow {
                let guides = trunk.guides.clone();
                waiting.push(Trunk::new(follow, guides.clone(), guides, trunk.level));
            }
            for start in next.into_iter().rev() {
                let (lead, guides) = match trunk.level < MAX_LEVELS {
                    true => (format!("{}├─ ", trunk.guides), format!("{}│  ", trunk.guides)),
                    false => (trunk.guides.clone(), trunk.guides.clone()),
                };
                waiting.push(Trunk::new(start, lead, guides, trunk.level + 1));
            }
        }
    }
    lines
}

/// Where a run begins: a branch and a depth on it.
type Start = (BranchId, u32);

struct Trunk {
    start: Start,
    /// What stands before its first line.
    lead: String,
    /// What stands before its other lines.
    guides: String,
    level: usize,
}

impl Trunk {
    fn new(start: Start, lead: String, guides: String, level: usize) -> Self {
        Self { start, lead, guides, level }
    }
}

struct Plan<'a> {
    branches: HashMap<BranchId, &'a Branch>,
    /// The branches that leave another one, by where they leave it, in the order in which they were begun.
    leaving: HashMap<Address, Vec<BranchId>>,
    /// The depths after which a run ends, by branch, sorted.
    ends: HashMap<BranchId, Vec<u32>>,
    /// How far the active path runs on each of its branches.
    active: HashMap<BranchId, u32>,
    head: Option<Address>,
}

impl<'a> Plan<'a> {
    fn new(tree: &'a Tree) -> Self {
        let branches: HashMap<_, _> = tree.branches.iter().map(|branch| (branch.id, branch)).collect();
        let mut leaving: HashMap<Address, Vec<BranchId>> = HashMap::new();
        let mut ends: HashMap<BranchId, Vec<u32>> = HashMap::new();
        for branch in &tree.branches {
            ends.entry(branch.id).or_default().push(branch.tip);
            if let Some(parent) = branch.parent {
                leaving.entry(parent).or_default().push(branch.id);
                ends.entry(parent.branch).or_default().push(parent.depth);
            }
        }
        if let Some(head) = tree.head {
            ends.entry(head.branch).or_default().push(head.depth);
        }
        for depths in ends.values_mut() {
            depths.sort_unstable();
            depths.dedup();
        }
        let path = names::path(tree, tree.head);
        let active = path.iter().map(|part| (part.branch, part.depth)).collect();
        Self { branches, leaving, ends, active, head: tree.head }
    }

    /// A branch without a parent, or one whose parent is not part of the tree.
    fn is_root(&self, branch: &Branch) -> bool {
        branch.parent.is_none_or(|parent| !self.branches.contains_key(&parent.branch))
    }

    fn run(&self, (id, from): Start, lead: &str) -> Option<Run> {
        let branch = self.branches.get(&id)?;
        let ends = self.ends.get(&id)?;
        let to = *ends.get(ends.partition_point(|end| *end < from))?;
        Some(Run {
            guides: lead.to_owned(),
            branch: id,
            from,
            to,
            active: self.active.get(&id).is_some_and(|until| to <= *until),
            head: self.head == Some(Address { branch: id, depth: to }),
            first: from == branch.base,
            tip: false,
        })
    }

    /// What follows an item: the rest of its branch, then the branches that leave after it.
    fn continuations(&self, end: Address) -> Vec<Start> {
        let rest = self.branches.get(&end.branch).filter(|branch| end.depth < branch.tip);
        let rest = rest.map(|branch| (branch.id, end.depth + 1));
        let leaving = self.leaving.get(&end).into_iter().flatten();
        let leaving = leaving.filter_map(|id| self.branches.get(id)).map(|branch| (branch.id, branch.base));
        rest.into_iter().chain(leaving).collect()
    }

    /// The one that the trunk follows: the active path, else the newest.
    fn follow(&self, starts: &[Start]) -> Option<Start> {
        let active = |(branch, from): &&Start| self.active.get(branch).is_some_and(|until| from <= until);
        starts.iter().find(active).or(starts.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use threadkeep::blocking::{LiveThread, Store};
    use threadkeep::{Address, AppendOptions, NewItem, NewThread, Role, StoreOptions};

    use super::draw;

    fn append(thread: &LiveThread, after: Option<Address>, count: usize) -> Vec<Address> {
        let mut after = after;
        let mut places = Vec::new();
        for _ in 0..count {
            let options = AppendOptions { after, ..AppendOptions::default() };
            let item = NewItem::message(Role::User, "words");
            let appended = thread.append_with(vec![item], options).unwrap();
            places.extend(appended.items.iter().map(|item| item.address()));
            after = None;
        }
        places
    }

    fn drawn(store: &Store, thread: &LiveThread) -> Vec<String> {
        let runs = draw(&store.tree(thread.id()).unwrap());
        let line = |run: &super::Run| {
            let mark = if run.active { "●" } else { "○" };
            let head = if run.head { " head" } else { "" };
            let tip = if run.tip { " tip" } else { "" };
            format!("{}{mark} {}-{}{head}{tip}", run.guides, run.from, run.to)
        };
        runs.iter().map(line).collect()
    }

    #[test]
    fn the_active_path_is_the_trunk_and_the_rest_hangs_beside_it() {
        let store = Store::open(StoreOptions::memory()).unwrap();
        let thread = store.workspace(".".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
        assert!(drawn(&store, &thread).is_empty());
        let trunk = append(&thread, None, 6);
        assert_eq!(drawn(&store, &thread), ["● 0-5 head tip"]);
        let second = append(&thread, Some(trunk[2]), 3);
        append(&thread, Some(second[0]), 1);
        let expected = ["● 0-2", "├─ ○ 3-5 tip", "● 3-3", "├─ ○ 4-5 tip", "● 4-4 head tip"];
        assert_eq!(drawn(&store, &thread), expected);
        thread.rewind(trunk[4]).unwrap();
        let expected = ["● 0-2", "├─ ○ 3-3", "│  ├─ ○ 4-5 tip", "│  ○ 4-4 tip", "● 3-4 head", "○ 5-5 tip"];
        assert_eq!(drawn(&store, &thread), expected);
    }

    #[test]
    fn a_long_chain_of_rewinds_stays_narrow() {
        let store = Store::open(StoreOptions::memory()).unwrap();
        let thread = store.workspace(".".as_ref()).unwrap().create_now(NewThread::default()).unwrap();
        let mut last = append(&thread, None, 3);
        for _ in 0..60 {
            last = append(&thread, Some(last[1]), 3);
        }
        let lines = drawn(&store, &thread);
        assert_eq!(lines.len(), 121);
        assert!(lines.iter().all(|line| line.chars().count() < 30));
    }
}
