//! A run as a tree, page by page: its branches, each with its leaves, the leaves of no branch, and its control nodes, each with its
//! candidates.

use std::ops::ControlFlow;

use serde::Serialize;

use super::candidates::{self, Candidate, candidate_columns};
use super::parts::{self, PartKind, RunPart, part_columns};
use super::{MAX_PAGE, PAGE_BYTES, Run, get_listed};
use crate::cursor::Cursor;
use crate::db::{Statement, Tx, Value, statements};
use crate::error::{Error, Result};
use crate::id::{PartId, RunId};
use crate::threads::Scope;

statements! {
    BRANCHES_OF_RUN = concat!(part_columns!(), "WHERE p.run = ?1 AND p.kind = 'branch' AND p.place > ?2 ORDER BY p.place LIMIT ?3");
    LEAVES_OF_BRANCH = concat!(part_columns!(), "WHERE p.branch = ?1 AND p.place > ?2 ORDER BY p.place LIMIT ?3");
    LEAVES_OF_NO_BRANCH = concat!(part_columns!(), "WHERE p.run = ?1 AND p.kind = 'leaf' AND p.branch IS NULL AND p.place > ?2
        ORDER BY p.place LIMIT ?3");
    CONTROLS_OF_RUN = concat!(part_columns!(), "WHERE p.run = ?1 AND p.kind = 'control' AND p.place > ?2 ORDER BY p.place LIMIT ?3");
    CANDIDATES_OF_CONTROL = concat!(candidate_columns!(), "WHERE c.control = ?1 AND c.place > ?2 ORDER BY c.place LIMIT ?3");
}

/// A line of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RunNode {
    /// A branch, a leaf or a control node.
    Part(RunPart),
    /// A candidate of the control node before it.
    Candidate(Candidate),
}

impl RunNode {
    /// How far in it stands: 0 for what belongs to the run itself, 1 for a leaf of a branch and a candidate of a control node.
    pub fn depth(&self) -> usize {
        match self {
            Self::Part(RunPart { kind: PartKind::Leaf { branch_run: Some(_), .. }, .. }) | Self::Candidate(_) => 1,
            Self::Part(_) => 0,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Part(part) => part.bytes(),
            Self::Candidate(candidate) => candidate.bytes(),
        }
    }
}

/// A page of a run's tree, read in one snapshot with the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunTree {
    /// The run.
    pub run: Run,
    /// Its parts and candidates: a branch stands before its leaves, a control node before its candidates, each kind in the order in
    /// which they came.
    pub nodes: Vec<RunNode>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// A question for a page of a run's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeQuery {
    /// The page's size; 0 gives the run alone, more than 1,000 is 1,000. A page also ends after a few megabytes of text.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for TreeQuery {
    fn default() -> Self {
        Self { limit: MAX_PAGE, cursor: None }
    }
}

/// Which rows stand at a place of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Branches,
    Leaves,
    Controls,
}

impl Section {
    fn from_number(number: i64) -> Option<Self> {
        [Self::Branches, Self::Leaves, Self::Controls].into_iter().find(|section| *section as i64 == number)
    }

    fn rows(self) -> Statement {
        match self {
            Self::Branches => BRANCHES_OF_RUN,
            Self::Leaves => LEAVES_OF_NO_BRANCH,
            Self::Controls => CONTROLS_OF_RUN,
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Branches => Some(Self::Leaves),
            Self::Leaves => Some(Self::Controls),
            Self::Controls => None,
        }
    }
}

/// The node after which the next one comes: the last one of the run's own, and if something is below that, the last one there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spot {
    section: Section,
    place: i64,
    /// The node that stands there, and the place of the last one below it; nothing when all below it are past.
    below: Option<(PartId, i64)>,
}

impl Spot {
    const START: Self = Self { section: Section::Branches, place: 0, below: None };

    fn encode(&self, tag: &str) -> String {
        let below = self.below.as_ref().map(|(id, place)| format!(" {place} {id}")).unwrap_or_default();
        Cursor { value: self.section as i64, id: format!("{}{below}", self.place) }.encode(tag)
    }

    fn decode(cursor: &str, tag: &str) -> Result<Self> {
        let Cursor { value, id } = Cursor::decode(cursor, tag)?;
        let mut words = id.split(' ');
        let place = words.next().and_then(|word| word.parse().ok());
        let below = match (words.next().map(str::parse), words.next().map(PartId::new)) {
            (Some(Ok(place)), Some(Ok(id))) => Some((id, place)),
            _ => None,
        };
        let spot = Section::from_number(value).zip(place).map(|(section, place)| Self { section, place, below });
        spot.ok_or_else(|| Error::invalid("cursor", "it is damaged"))
    }
}

/// Reads a page of a run's tree.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, id: &RunId, query: &TreeQuery) -> Result<RunTree> {
    let run = get_listed(tx, scope, id)?;
    let tag = format!("run {id}");
    let mut spot = match &query.cursor {
        Some(cursor) => Spot::decode(cursor, &tag)?,
        None => Spot::START,
    };
    let limit = query.limit.min(MAX_PAGE);
    let mut page = Gathering { nodes: Vec::new(), limit, bytes: 0 };
    fill(tx, id, &mut spot, &mut page)?;
    let mut one_more = Gathering { nodes: Vec::new(), limit: limit.min(1), bytes: 0 };
    fill(tx, id, &mut spot.clone(), &mut one_more)?;
    let next_cursor = one_more.nodes.first().map(|_| spot.encode(&tag));
    Ok(RunTree { run, nodes: page.nodes, next_cursor })
}

/// Goes on until the page is full or the tree ends.
fn fill(tx: &mut dyn Tx, run: &RunId, spot: &mut Spot, page: &mut Gathering) -> Result<()> {
    while page.has_room() && !step(tx, run, spot, page)? {}
    Ok(())
}

/// Goes on as far as one question leads; says whether the tree ends there.
fn step(tx: &mut dyn Tx, run: &RunId, spot: &mut Spot, page: &mut Gathering) -> Result<bool> {
    if let Some((parent, place)) = spot.below.clone() {
        let statement = if spot.section == Section::Branches { LEAVES_OF_BRANCH } else { CANDIDATES_OF_CONTROL };
        let last = page.gather(tx, statement, parent.as_str(), place, MAX_PAGE)?;
        // As long as it fills the page there may be more below.
        spot.below = last.filter(|_| !page.has_room()).map(|last| (parent, last));
        return Ok(false);
    }
    // Each branch and each control node is followed by what is below it.
    let most = if spot.section == Section::Leaves { MAX_PAGE } else { 1 };
    let found = page.gather(tx, spot.section.rows(), run.as_str(), spot.place, most)?;
    match (found, spot.section.next()) {
        (Some(place), _) => {
            let below = match page.nodes.last() {
                Some(RunNode::Part(part)) if spot.section != Section::Leaves => Some((part.id.clone(), 0)),
                _ => None,
            };
            *spot = Spot { section: spot.section, place, below };
            Ok(false)
        }
        (None, Some(section)) => {
            *spot = Spot { section, place: 0, below: None };
            Ok(false)
        }
        (None, None) => Ok(true),
    }
}

/// What a page has so far.
struct Gathering {
    nodes: Vec<RunNode>,
    limit: usize,
    bytes: usize,
}

impl Gathering {
    fn has_room(&self) -> bool {
        self.nodes.len() < self.limit && self.bytes < PAGE_BYTES
    }

    /// Adds so many of what comes after a place, as far as there is room; gives the place of the last one.
    fn gather(&mut self, tx: &mut dyn Tx, rows: Statement, of: &str, after: i64, most: usize) -> Result<Option<i64>> {
        let room = i64::try_from(most.min(self.limit - self.nodes.len())).unwrap_or(0);
        let mut last = None;
        let args: [Value<'_>; 3] = [of.into(), after.into(), room.into()];
        tx.query(rows, &args, &mut |row| {
            if !self.has_room() {
                return Ok(ControlFlow::Break(()));
            }
            let (place, node) = if rows.name == CANDIDATES_OF_CONTROL.name {
                let candidate = candidates::read_listed(row)?;
                (candidate.place, RunNode::Candidate(candidate))
            } else {
                let part = parts::read_listed(row)?;
                (part.place, RunNode::Part(part))
            };
            self.bytes += node.bytes();
            self.nodes.push(node);
            last = Some(place);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(last)
    }
}
