//! Which records of a session its agent would still see, and what the session says of its thread.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use threadkeep::{Timestamp, Usage};

use super::line::{Class, Line, Set, has_text};
use crate::codec::{PREVIEW_CHARS, Place, RecordNo, TITLE_CHARS, ThreadFacts};
use crate::json::one_line;

const NONE: u32 = u32::MAX;
const NOTE_VERSION: u8 = 2;
const HAS_TEXT: u8 = 1;
const HAS_ID: u8 = 2;
const REWINDS: u8 = 4;
const CLEARS: u8 = 8;
/// A person or the model says it.
const IS_SAID: u8 = 16;
/// How many calls are remembered as answered: the message of their results follows soon.
const ANSWERED: usize = 512;
/// How many messages of the last `$set` are remembered.
const SET_IDS: usize = 4096;

/// What is remembered of a placed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    flags: u8,
    /// The record it stands after.
    place: u32,
    /// Its own id; of a rewind the one that it goes back before.
    id: u64,
}

impl Note {
    pub(super) fn place(self) -> Place {
        if self.place == NONE { Place::Root } else { Place::After(self.place) }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = vec![NOTE_VERSION, self.flags];
        out.extend_from_slice(&self.place.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([version, flags], rest) = bytes.split_first_chunk::<2>()?;
        let (place, rest) = rest.split_first_chunk::<4>()?;
        let (id, _) = rest.split_first_chunk::<8>()?;
        let note = Self { flags: *flags, place: u32::from_le_bytes(*place), id: u64::from_le_bytes(*id) };
        (*version == NOTE_VERSION).then_some(note)
    }
}

/// A message that stands already where another has its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    id: u64,
    /// The record before it.
    before: u32,
    pub(super) has_text: bool,
    is_said: bool,
}

/// The messages that the agent would see, in their order.
#[derive(Debug, Default)]
pub(super) struct Live {
    messages: Vec<Known>,
    /// Where each id stands among them.
    by_id: HashMap<u64, usize>,
    placed: u32,
}

impl Live {
    pub(super) fn find(&self, id: &str) -> Option<Known> {
        self.at(key(id)).copied()
    }

    fn at(&self, id: u64) -> Option<&Known> {
        self.by_id.get(&id).and_then(|at| self.messages.get(*at))
    }

    /// Whether a list of messages is what stands already, in its order, and says nothing else: the agent writes it when it goes on with
    /// a session.
    pub(super) fn repeats(&self, set: &Set) -> bool {
        let mut said = self.messages.iter().filter(|known| known.is_said);
        for member in set.messages.iter() {
            let is_told = match member.id.as_deref().and_then(|id| self.find(id)) {
                Some(known) if known.is_said => said.next() == Some(&known),
                Some(_) => true,
                None => member.says_nothing(),
            };
            if !is_told {
                return false;
            }
        }
        said.next().is_none() && self.messages.iter().any(|known| known.is_said)
    }

    /// The last record that was placed.
    pub(super) fn last(&self) -> Option<RecordNo> {
        self.placed.checked_sub(1)
    }

    /// What a record is taken for whose note can't be read.
    pub(super) fn next_in_line(&self) -> Note {
        Note { flags: 0, place: self.last().unwrap_or(NONE), id: 0 }
    }

    /// Where a record belongs. Ids of a `$set` stand in `set`, and are of the messages before the first one that is placed after.
    pub(super) fn place(&mut self, line: &Line, class: Class, set: Option<&VecDeque<u64>>) -> Note {
        let next = self.next_in_line();
        if class == Class::Rewind {
            let id = line.rewind_to.as_deref().map(key).unwrap_or_default();
            let known = self.at(id).map(|known| known.before);
            // A message of the list that was set: what stands before it can't be told from what stands behind.
            let within = set.is_some_and(|set| set.contains(&id)).then_some(next.place);
            return Note { flags: REWINDS, place: known.or(within).unwrap_or(NONE), id };
        }
        let has_text = if has_text(line.said()) { HAS_TEXT } else { 0 };
        let is_said = if matches!(class, Class::Prompt | Class::Answer | Class::Calls) { IS_SAID } else { 0 };
        match line.id.as_deref() {
            _ if class == Class::Set => Note { flags: CLEARS, ..next },
            Some(id) => Note { flags: HAS_ID | has_text | is_said, id: key(id), ..next },
            None => next,
        }
    }

    pub(super) fn push(&mut self, note: &Note) {
        if note.flags & REWINDS != 0 {
            self.keep(self.by_id.get(&note.id).copied().unwrap_or(0));
        }
        if note.flags & CLEARS != 0 {
            self.keep(0);
        }
        if note.flags & HAS_ID != 0 {
            let has_text = note.flags & HAS_TEXT != 0;
            let is_said = note.flags & IS_SAID != 0;
            match self.by_id.get(&note.id).and_then(|at| self.messages.get_mut(*at)) {
                Some(known) => known.has_text |= has_text,
                None => {
                    self.by_id.insert(note.id, self.messages.len());
                    self.messages.push(Known { id: note.id, before: note.place, has_text, is_said });
                }
            }
        }
        self.placed = self.placed.saturating_add(1);
    }

    /// Takes back all but the first messages.
    fn keep(&mut self, first: usize) {
        for known in self.messages.drain(first..) {
            self.by_id.remove(&known.id);
        }
    }
}

/// What was gathered so far; its JSON is what a later run begins with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Gathered {
    facts: ThreadFacts,
    is_subagent: bool,
    /// Calls whose results stand in them.
    answered: VecDeque<u64>,
    /// The messages of the last `$set`.
    set: VecDeque<u64>,
    /// The last answer and its tokens, which a later version of it replaces.
    counted: Option<(u64, Usage)>,
}

impl Gathered {
    pub(super) fn is_subagent(&self) -> bool {
        self.is_subagent
    }

    pub(super) fn has_answer(&self, call: &str) -> bool {
        self.answered.contains(&key(call))
    }

    /// The messages of the last `$set`, for what may go back to one.
    pub(super) fn set_ids(&self, class: Class) -> Option<&VecDeque<u64>> {
        (class == Class::Rewind).then_some(&self.set)
    }

    pub(super) fn note_header(&mut self, line: &Line) {
        let facts = &mut self.facts;
        if facts.session_id.is_none() {
            facts.session_id.clone_from(&line.session_id.0);
        }
        self.is_subagent |= line.session_kind.is("subagent");
        self.note_title(line.summary.as_deref());
        self.note_time(line.start_time.as_deref());
        self.note_time(line.last_updated.as_deref());
    }

    pub(super) fn note(&mut self, line: &Line, class: Class, is_known: bool) {
        if line.is_header() {
            self.note_header(line);
        }
        self.note_time(line.timestamp.as_deref());
        if let Some(set) = &line.set.0 {
            self.note_title(set.summary.as_deref());
            self.note_time(set.last_updated.as_deref());
            if self.facts.session_id.is_none() {
                self.facts.session_id.clone_from(&set.session_id.0);
            }
            if class == Class::Set || class == Class::Context {
                let ids = set.messages.iter().filter_map(|member| member.id.as_deref()).map(key);
                self.set = ids.take(SET_IDS).collect();
            }
        }
        for call in line.tool_calls.iter().filter(|call| call.result.0) {
            let id = key(call.id.as_deref().unwrap_or_default());
            if !self.answered.contains(&id) {
                self.answered.push_back(id);
            }
        }
        while self.answered.len() > ANSWERED {
            self.answered.pop_front();
        }
        if class == Class::Prompt && self.facts.preview.is_none() {
            self.facts.preview = line.prompt().and_then(|text| shown(text, PREVIEW_CHARS));
        }
        if let Some(model) = line.model.as_deref() {
            self.facts.model = Some(model.to_owned());
        }
        if let Some(usage) = line.usage() {
            self.count(line.id.as_deref().map(key).unwrap_or_default(), usage, is_known);
        }
    }

    /// Counts an answer once, though each version of it repeats its tokens.
    fn count(&mut self, id: u64, usage: Usage, is_known: bool) {
        let before = match self.counted {
            Some((counted, before)) if counted == id => before,
            // An older answer that is written again was counted.
            _ if is_known => return,
            _ => Usage::default(),
        };
        let total = self.facts.usage.get_or_insert_default();
        let add = |total: u64, before: u64, now: u64| total.saturating_sub(before).saturating_add(now);
        total.input = add(total.input, before.input, usage.input);
        total.cached = add(total.cached, before.cached, usage.cached);
        total.output = add(total.output, before.output, usage.output);
        total.reasoning = add(total.reasoning, before.reasoning, usage.reasoning);
        self.counted = Some((id, usage));
    }

    fn note_title(&mut self, title: Option<&str>) {
        if let Some(title) = title.and_then(|title| shown(title, TITLE_CHARS)) {
            self.facts.title = Some(title);
        }
    }

    fn note_time(&mut self, time: Option<&str>) {
        if let Some(at) = time.and_then(Timestamp::parse) {
            let facts = &mut self.facts;
            facts.created_at = Some(facts.created_at.map_or(at, |first| first.min(at)));
            facts.updated_at = Some(facts.updated_at.map_or(at, |last| last.max(at)));
        }
    }

    pub(super) fn facts(&self, stem: &str) -> ThreadFacts {
        let session_id = self.facts.session_id.clone().or_else(|| Some(stem.to_owned()));
        ThreadFacts { session_id, ..self.facts.clone() }
    }
}

fn shown(text: &str, max: usize) -> Option<String> {
    Some(one_line(text, max)).filter(|line| !line.is_empty())
}

/// The beginning of a hash of an id.
fn key(id: &str) -> u64 {
    let hash = blake3::hash(id.as_bytes());
    let bytes = hash.as_bytes().first_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(bytes)
}
