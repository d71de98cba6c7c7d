//! Where records that name their parents stand in the tree.
//!
//! A parent link is not yet a branch: with some agents progress lines, hooks, tool results and the parallel calls of one answer
//! all hang beside one another. So records stay in file order on the line of their ancestor, and only a prompt, or an answer to a
//! prompt that is no longer the latest, can begin a branch. Other agents link each record to the one before it ([`Tree::chained`]):
//! there all that was said counts, whoever said it.
//!
//! All that is remembered of a record is its [`Note`], so reading on from notes is the same as never having stopped.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use crate::codec::{Place, RecordNo};

const NONE: u32 = u32::MAX;
/// The lane of everything that is no sidechain.
const MAIN: u32 = u32::MAX;
const NOTE_VERSION: u8 = 1;
const HASH_BYTES: usize = 6;
/// How many calls of one record a note has room for.
const MAX_CALLS: usize = 7;
/// How far behind a record results of its calls are looked for before something branches from it.
const MAX_BEHIND: u32 = 4_096;
/// The key of a record without an id; no hash is as long.
const NO_KEY: Key = [0; HASH_BYTES];
const SIDE: u8 = 1;
const LINKED: u8 = 2;
const LEAF: u8 = 4;
const MANY_CALLS: u8 = 8;

/// What a record means for the shape of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Stays on its ancestor's line: results, progress, hooks, notices, injected text.
    Attached = 0,
    /// Words of a person to the model.
    Prompt = 1,
    /// A command of a person that the model does not answer: it can begin a branch, but nothing branches around it.
    Command = 2,
    /// Words, thoughts or calls of the model.
    Answer = 3,
    /// The beginning of a compacted context; in a chain, anything that the agent says by itself.
    Boundary = 4,
}

/// A record as the tree sees it.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) class: Class,
    /// The key of its own id.
    pub(crate) id: Option<u64>,
    pub(crate) parent: Parent,
    /// The key of the record that a compacted context continues.
    pub(crate) logical: Option<u64>,
    pub(crate) sidechain: bool,
    /// Whether the agent would resume from it.
    pub(crate) leaf: bool,
    /// The key of the model's message it is part of, 0 for none.
    pub(crate) message: u64,
    /// The keys of the calls it makes.
    pub(crate) calls: Vec<u64>,
    /// The keys of the calls it answers.
    pub(crate) answers: Vec<u64>,
}

/// What a record says of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    /// Nothing.
    Unsaid,
    /// That it has none.
    Root,
    /// Its key.
    To(u64),
    /// That everything from the record of this key on is taken back.
    Before(u64),
}

/// The key of an id: the first 48 bits of its BLAKE3 hash.
pub(crate) fn key(id: &str) -> u64 {
    let hash = blake3::hash(id.as_bytes());
    hash.as_bytes().iter().take(HASH_BYTES).fold(0, |key, byte| (key << 8) | u64::from(*byte))
}

/// All that is remembered of a placed record; at most 64 bytes when written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    class: Class,
    flags: u8,
    /// The record it stands after.
    place: u32,
    /// The record that a child of this one really continues: another one when this record arrived late.
    anchor: u32,
    /// The earliest record whose calls it answers.
    answers: u32,
    /// The model's message it belongs to.
    message: u64,
    calls: Vec<u64>,
}

impl Note {
    pub(crate) fn place(&self) -> Place {
        if self.place == NONE { Place::Root } else { Place::After(self.place) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![(NOTE_VERSION << 4) | self.class as u8, self.flags];
        for number in [self.place, self.anchor, self.answers] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for hash in std::iter::once(&self.message).chain(&self.calls) {
            out.extend(packed(*hash));
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        let [tag, flags] = *head;
        let class = match (tag >> 4 == NOTE_VERSION, tag & 0xf) {
            (true, 0) => Class::Attached,
            (true, 1) => Class::Prompt,
            (true, 2) => Class::Command,
            (true, 3) => Class::Answer,
            (true, 4) => Class::Boundary,
            _ => return None,
        };
        let (place, rest) = rest.split_first_chunk::<4>()?;
        let (anchor, rest) = rest.split_first_chunk::<4>()?;
        let (answers, rest) = rest.split_first_chunk::<4>()?;
        let mut hashes = rest.as_chunks::<HASH_BYTES>().0.iter().map(|key| unpacked(*key));
        let message = hashes.next()?;
        let [place, anchor, answers] = [place, anchor, answers].map(|bytes| u32::from_le_bytes(*bytes));
        Some(Self { class, flags, place, anchor, answers, message, calls: hashes.collect() })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A key in as many bytes as it has.
type Key = [u8; HASH_BYTES];

fn packed(key: u64) -> Key {
    let mut bytes = NO_KEY;
    bytes.iter_mut().zip(key.to_le_bytes()).for_each(|(to, from)| *to = from);
    bytes
}

fn unpacked(key: Key) -> u64 {
    key.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// A placed record, with the pointers that make every question about its path cheap. There may be millions of them.
#[derive(Debug, Clone, Copy)]
struct Node {
    parent: u32,
    depth: u32,
    /// An ancestor far above, for finding the ancestor at a depth in logarithmic time.
    jump: u32,
    branch: u32,
    answers: u32,
    /// The nearest prompt, answer, and answer of another message, at or above.
    prompt: u32,
    answer: u32,
    other: u32,
    message: Key,
    /// Its own id, where it has one.
    id: Key,
}

/// Records that follow one another without a turn.
#[derive(Debug, Clone, Copy)]
struct Branch {
    /// Its last record.
    tip: u32,
    lane: u32,
}

/// The records by their ids, which are kept with the records.
#[derive(Debug, Default)]
struct Ids {
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Ids {
    fn get(&self, id: u64, nodes: &[Node]) -> Option<u32> {
        let id = packed(id);
        self.numbers.find(self.hasher.hash_one(id), |no| id_of(*no, nodes) == id).copied()
    }

    /// Takes in a record, which stands for its id from now on.
    fn insert(&mut self, no: u32, nodes: &[Node]) {
        let (id, hasher) = (id_of(no, nodes), &self.hasher);
        let same = |other: &u32| id_of(*other, nodes) == id;
        match self.numbers.find_mut(hasher.hash_one(id), same) {
            Some(other) => *other = no,
            None => drop(self.numbers.insert_unique(hasher.hash_one(id), no, |no| hasher.hash_one(id_of(*no, nodes)))),
        }
    }
}

fn id_of(no: u32, nodes: &[Node]) -> Key {
    nodes.get(no as usize).map_or(NO_KEY, |node| node.id)
}

/// The tree so far.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Whether each record is linked to the one before it, but where somebody went back.
    chained: bool,
    nodes: Vec<Node>,
    ids: Ids,
    /// The records whose children continue another one.
    anchors: HashMap<u32, u32>,
    calls: HashMap<u64, u32>,
    /// The latest record that made more calls than its note could hold.
    many_calls: Option<u32>,
    branches: Vec<Branch>,
    /// The line that each lane goes on with, by its last record.
    current: HashMap<u32, u32>,
    last_side_lane: Option<u32>,
    /// Whether answers name their parents at all in this file.
    linked: bool,
    /// The lane of the record that the agent would resume from.
    resume_lane: Option<u32>,
}

impl Tree {
    /// A tree of records that are linked one after another, but where somebody went back.
    pub(crate) fn chained() -> Self {
        Self { chained: true, ..Self::default() }
    }

    /// Decides where a record stands.
    pub(crate) fn place(&self, arrival: &Arrival) -> Note {
        let duplicate = arrival.id.and_then(|id| self.find(id));
        let parent = match arrival.parent {
            Parent::To(id) => self.find(id),
            // Where that was the first record there is no node before it, and a root follows.
            Parent::Before(id) => self.find(id).map(|no| self.node(no).map_or(NONE, |node| node.parent)),
            Parent::Unsaid | Parent::Root => None,
        };
        let answers = self.earliest_call(&arrival.answers);
        // A repeated record repeats: it neither turns nor is turned around.
        let class = if duplicate.is_some() { Class::Attached } else { arrival.class };
        let place = match (duplicate, parent) {
            (Some(same), _) => self.current_of(same),
            (None, Some(parent)) if arrival.sidechain && self.lane(parent) == Some(MAIN) => None,
            (None, Some(parent)) => self.follow(class, parent, answers),
            (None, None) => self.unlinked(class, arrival),
        };
        let anchor = match (class, parent) {
            (Class::Attached, Some(parent))
                if duplicate.is_none() && place.is_some_and(|tip| self.late(parent, tip)) =>
            {
                self.anchor(parent)
            }
            _ => NONE,
        };
        let message = match (arrival.message, class, parent) {
            (0, Class::Attached, Some(parent)) => self.node(parent).map_or(0, |node| unpacked(node.message)),
            (message, ..) => message,
        };
        let mut flags = 0;
        let side = match place {
            None => arrival.sidechain,
            Some(place) => self.lane(place).is_some_and(|lane| lane != MAIN),
        };
        for (flag, set) in [
            (SIDE, side),
            (LINKED, class == Class::Answer && parent.is_some()),
            (LEAF, arrival.leaf && !arrival.sidechain),
            (MANY_CALLS, arrival.calls.len() > MAX_CALLS),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let calls = arrival.calls.iter().copied().take(MAX_CALLS).collect();
        let [place, answers] = [place, answers].map(|no| no.unwrap_or(NONE));
        Note { class, flags, place, anchor, answers, message, calls }
    }

    /// Takes a record in: one that was just placed, or one that an earlier run placed.
    pub(crate) fn push(&mut self, note: &Note, id: Option<u64>) {
        let no = self.len();
        let parent = self.node(note.place);
        let lane = match parent {
            Some(_) => self.lane(note.place).unwrap_or(MAIN),
            None if note.has(SIDE) => no,
            None => MAIN,
        };
        let branch = match parent {
            Some(parent) if self.tip(parent.branch) == Some(note.place) => parent.branch,
            _ => self.branch_count(),
        };
        match self.branches.get_mut(branch as usize) {
            Some(branch) => branch.tip = no,
            None => self.branches.push(Branch { tip: no, lane }),
        }
        let (depth, jump) = match parent {
            Some(parent) => (parent.depth + 1, self.jump_from(note.place, parent)),
            None => (0, no),
        };
        let mut node = Node {
            parent: note.place,
            depth,
            jump,
            branch,
            answers: note.answers,
            prompt: parent.map_or(NONE, |parent| parent.prompt),
            answer: parent.map_or(NONE, |parent| parent.answer),
            other: parent.map_or(NONE, |parent| parent.other),
            message: packed(note.message),
            id: id.map_or(NO_KEY, packed),
        };
        if note.class == Class::Prompt {
            node.prompt = no;
        }
        if note.class == Class::Answer || (self.chained && note.class == Class::Boundary) {
            let same = note.message != 0 && self.node(node.answer).is_some_and(|last| last.message == node.message);
            node.other = if same { node.other } else { node.answer };
            node.answer = no;
        }
        self.nodes.push(node);
        self.index(note, id, no, lane);
    }

    fn index(&mut self, note: &Note, id: Option<u64>, no: u32, lane: u32) {
        if id.is_some() {
            self.ids.insert(no, &self.nodes);
        }
        if note.anchor != NONE {
            self.anchors.insert(no, note.anchor);
        }
        for call in &note.calls {
            self.calls.insert(*call, no);
        }
        if note.has(MANY_CALLS) {
            self.many_calls = Some(no);
        }
        self.linked |= note.has(LINKED);
        if lane != MAIN {
            self.last_side_lane = Some(lane);
        }
        if note.has(LEAF) {
            self.resume_lane = Some(lane);
        }
        // A late notice for a line that was left does not lead back to it.
        let goes_on = self.current.get(&lane).is_none_or(|current| *current == note.place);
        if goes_on || note.class != Class::Attached || note.has(LEAF) {
            self.current.insert(lane, no);
        }
    }

    /// What a record whose note can't be read is taken for: one that stands after the last.
    pub(crate) fn next_in_line(&self) -> Note {
        let place = self.len().checked_sub(1).unwrap_or(NONE);
        let calls = Vec::new();
        Note { class: Class::Attached, flags: 0, place, anchor: NONE, answers: NONE, message: 0, calls }
    }

    /// The record that the agent would continue from, when that is not the last one.
    pub(crate) fn head(&self) -> Option<RecordNo> {
        let head = self.resume_lane.and_then(|lane| self.current.get(&lane).copied())?;
        (head.checked_add(1) != Some(self.len())).then_some(head)
    }

    /// Whether a record of this id was placed.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.find(id).is_some()
    }

    /// The place of a record whose parent is here.
    fn follow(&self, class: Class, parent: u32, answers: Option<u32>) -> Option<u32> {
        let target = match class {
            Class::Attached => answers.unwrap_or(parent),
            Class::Prompt | Class::Command | Class::Answer | Class::Boundary => self.anchor(parent),
        };
        let node = self.node(target)?;
        let current = self.current_of(target);
        let tip = match current.filter(|current| self.on_path(target, *current)) {
            Some(current) => current,
            None => self.tip(node.branch)?,
        };
        let moved_on = match class {
            Class::Attached => false,
            Class::Answer => self.prompt_after(target, tip),
            Class::Prompt | Class::Command | Class::Boundary => self.late(target, tip),
        };
        Some(if moved_on { self.fork_point(target, tip) } else { tip })
    }

    /// The place of a record whose parent is unknown or unsaid.
    fn unlinked(&self, class: Class, arrival: &Arrival) -> Option<u32> {
        let logical = arrival.logical.filter(|_| class == Class::Boundary);
        if let Some(logical) = logical.and_then(|id| self.find(id)) {
            return self.follow(class, logical, None);
        }
        if arrival.sidechain {
            let lane = self.last_side_lane.filter(|_| arrival.parent != Parent::Root)?;
            return self.current.get(&lane).copied();
        }
        let tip = self.current.get(&MAIN).copied()?;
        // The first prompt was taken back: the conversation begins anew. Where no answer names its parent, the
        // missing link says nothing.
        let may_begin = match class {
            Class::Attached => false,
            Class::Prompt | Class::Command => self.chained || self.linked,
            Class::Answer | Class::Boundary => self.chained,
        };
        let anew =
            may_begin && arrival.parent == Parent::Root && self.node(tip).is_some_and(|node| node.prompt != NONE);
        (!anew).then_some(tip)
    }

    /// The latest record that can be branched from without leaving a result of a call on the path behind.
    fn fork_point(&self, target: u32, tip: u32) -> u32 {
        let mut after = Vec::new();
        let depth = self.node(target).map_or(0, |node| node.depth).saturating_add(MAX_BEHIND);
        let mut no = self.at_depth(depth, tip);
        while no != target {
            let Some(node) = self.node(no) else { break };
            after.push(no);
            no = node.parent;
        }
        let mut point = target;
        for no in after.into_iter().rev() {
            let call = self.node(no).map_or(NONE, |node| node.answers);
            if call != NONE && self.on_path(call, point) {
                point = no;
            }
        }
        point
    }

    /// Whether a prompt, or an answer of another message, follows `ancestor` on the path to `tip`.
    fn late(&self, ancestor: u32, tip: u32) -> bool {
        let Some((above, below)) = self.node(ancestor).zip(self.node(tip)) else {
            return false;
        };
        if !self.on_path(ancestor, tip) || self.prompt_after(ancestor, tip) {
            return true;
        }
        let follows = |no: u32| self.node(no).is_some_and(|node| node.depth > above.depth);
        let same = above.message != NO_KEY && self.node(below.answer).is_some_and(|node| node.message == above.message);
        follows(if same { below.other } else { below.answer })
    }

    fn prompt_after(&self, ancestor: u32, tip: u32) -> bool {
        let Some((above, below)) = self.node(ancestor).zip(self.node(tip)) else {
            return false;
        };
        self.node(below.prompt).is_some_and(|prompt| prompt.depth > above.depth)
    }

    fn earliest_call(&self, answers: &[u64]) -> Option<u32> {
        answers.iter().filter_map(|call| self.calls.get(call).copied().or(self.many_calls)).min()
    }

    fn anchor(&self, no: u32) -> u32 {
        self.anchors.get(&no).copied().unwrap_or(no)
    }

    fn current_of(&self, no: u32) -> Option<u32> {
        self.current.get(&self.lane(no)?).copied()
    }

    fn on_path(&self, ancestor: u32, tip: u32) -> bool {
        let Some(depth) = self.node(ancestor).map(|node| node.depth) else {
            return false;
        };
        self.at_depth(depth, tip) == ancestor
    }

    /// The record at a depth on the path to another one; that one itself, where it is no deeper.
    fn at_depth(&self, depth: u32, tip: u32) -> u32 {
        let mut no = tip;
        while let Some(node) = self.node(no).filter(|node| node.depth > depth) {
            let jump = self.node(node.jump).is_some_and(|jump| jump.depth >= depth);
            no = if jump { node.jump } else { node.parent };
        }
        no
    }

    /// Skew-binary jump pointers: two jumps of equal length become one of twice the length.
    fn jump_from(&self, parent_no: u32, parent: Node) -> u32 {
        let Some(first) = self.node(parent.jump) else {
            return parent_no;
        };
        let Some(second) = self.node(first.jump) else {
            return parent_no;
        };
        let equal = parent.depth - first.depth == first.depth - second.depth;
        if equal { first.jump } else { parent_no }
    }

    fn node(&self, no: u32) -> Option<Node> {
        self.nodes.get(no as usize).copied()
    }

    fn find(&self, id: u64) -> Option<u32> {
        self.ids.get(id, &self.nodes)
    }

    fn lane(&self, no: u32) -> Option<u32> {
        let branch = self.node(no)?.branch;
        self.branches.get(branch as usize).map(|branch| branch.lane)
    }

    fn tip(&self, branch: u32) -> Option<u32> {
        self.branches.get(branch as usize).map(|branch| branch.tip)
    }

    /// How many records were placed.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(NONE)
    }

    fn branch_count(&self) -> u32 {
        u32::try_from(self.branches.len()).unwrap_or(NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Note, key};

    #[test]
    fn a_full_note_fits_and_comes_back() {
        let calls: Vec<u64> = (0..7).map(|call| key(&call.to_string())).collect();
        let note = Note { class: Class::Answer, flags: 9, place: 7, anchor: 3, answers: 1, message: key("m"), calls };
        let bytes = note.encode();
        assert!(bytes.len() <= 64, "{}", bytes.len());
        assert_eq!(Note::decode(&bytes), Some(note));
    }

    #[test]
    fn a_note_of_another_version_is_no_note() {
        assert_eq!(Note::decode(&[0x21; 40]), None);
        assert_eq!(Note::decode(&[]), None);
        assert_eq!(Note::decode(&[0x10, 0, 0]), None);
    }
}
