//! Reading a file the way an importer does, for the tests to look at.

use std::path::Path;
use std::sync::Arc;

use threadkeep::View;
use threadkeep_agents::codec::{Codec, KnownRecord, Place, Record, RecordNo, Shape, SourceReader, ThreadFacts};
use threadkeep_agents::document::{Document, frame};
use threadkeep_agents::segments::{Position, Segment, Segments};
use threadkeep_agents::text::Text;

/// A record and what was made of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Placed(RecordNo, Record),
    Beside(Record),
    Skipped(String),
    Opaque(Option<String>),
    Tail,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) facts: ThreadFacts,
    pub(crate) head: Option<RecordNo>,
    /// The first record that its agent is still at work on.
    pub(crate) unsettled: Option<RecordNo>,
}

impl Run {
    pub(crate) fn placed(&self) -> Vec<&Record> {
        let outcomes = self.outcomes.iter();
        let placed = outcomes.filter_map(|outcome| match outcome {
            Outcome::Placed(_, record) => Some(record),
            _ => None,
        });
        placed.collect()
    }

    /// How many branches the places make.
    pub(crate) fn branches(&self) -> usize {
        let mut followed = std::collections::HashSet::new();
        self.placed()
            .iter()
            .filter(|record| match record.place {
                Place::Root => true,
                Place::After(no) => !followed.insert(no),
                Place::Beside => false,
            })
            .count()
    }

    /// The record numbers from a record up to its root.
    pub(crate) fn path(&self, from: RecordNo) -> Vec<RecordNo> {
        let placed = self.placed();
        let mut path = vec![from];
        while let Place::After(no) = placed[*path.last().unwrap() as usize].place {
            path.push(no);
        }
        path
    }

    /// The active path: from the head that the codec names, else from the last record.
    pub(crate) fn active_path(&self) -> Vec<RecordNo> {
        let last = u32::try_from(self.placed().len()).unwrap().checked_sub(1);
        self.head.or(last).map(|no| self.path(no)).unwrap_or_default()
    }
}

pub(crate) fn segments(bytes: &[u8]) -> Vec<Segment> {
    Segments::new(bytes).map(Result::unwrap).collect()
}

/// The segments of a file in the form that its codec says.
pub(crate) fn segments_of(codec: &Arc<dyn Codec>, path: &Path, bytes: &[u8]) -> Vec<Segment> {
    match codec.shape(path, head(bytes)) {
        Shape::Document(keys) => Document::new(bytes, keys).map(Result::unwrap).collect(),
        Shape::Text => {
            let (begin, grammar) = (Position { offset: 0, line: 1 }, codec.grammar(None).unwrap());
            Text::starting_at(bytes, begin, grammar, true).map(Result::unwrap).collect()
        }
        _ => segments(bytes),
    }
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(64 << 10)]
}

/// A reader that was told what it is told before the first record.
fn reader(codec: &Arc<dyn Codec>, path: &Path, segments: &[Segment], state: Option<&[u8]>) -> Box<dyn SourceReader> {
    let mut reader = codec.reader(path, state);
    let bytes = joined(segments);
    if let Shape::Document(keys) = codec.shape(path, head(&bytes)) {
        reader.frame(&frame(bytes.as_slice(), keys).unwrap());
    }
    reader
}

/// Reads segments, stopping after `split` of them and going on from notes and state alone.
pub(crate) fn read(codec: &Arc<dyn Codec>, path: &Path, segments: &[Segment], split: Option<usize>) -> Run {
    let mut reader = reader(codec, path, segments, None);
    let mut outcomes = Vec::new();
    let mut placed: Vec<(Option<String>, Vec<u8>)> = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        if split == Some(at) {
            let state = reader.state();
            reader = self::reader(codec, path, segments, Some(&state));
            for (source_id, note) in &placed {
                reader.known(&KnownRecord { source_id: source_id.as_deref(), note });
            }
        }
        outcomes.push(match segment {
            Segment::Opaque { reason, .. } => Outcome::Opaque(reason.clone()),
            Segment::Tail { .. } => Outcome::Tail,
            Segment::Record { bytes, .. } => match reader.record(bytes) {
                Err(skip) => Outcome::Skipped(skip.to_string()),
                Ok(record) if record.place == Place::Beside => Outcome::Beside(record),
                Ok(record) => {
                    let no = u32::try_from(placed.len()).unwrap();
                    assert!(record.note.len() <= 64, "a note of {} bytes", record.note.len());
                    if let Place::After(parent) = record.place {
                        assert!(parent < no, "record {no} stands after {parent}");
                    }
                    placed.push((record.source_id.clone(), record.note.clone()));
                    Outcome::Placed(no, record)
                }
            },
        });
    }
    let mut facts = reader.facts();
    for beside in codec.beside(path) {
        let aside = std::fs::read(&beside).ok().and_then(|bytes| codec.aside(path, &beside, &bytes));
        aside.iter().for_each(|aside| aside.tell(&mut facts));
    }
    Run { outcomes, facts, head: reader.head(), unsettled: reader.unsettled() }
}

/// Whether reading in two parts gives what reading in one part gives, wherever the cut is.
pub(crate) fn check_splits(codec: &Arc<dyn Codec>, path: &Path, segments: &[Segment], step: usize) {
    // What is no file of lines is read as a whole whenever it has changed.
    if !codec.shape(path, head(&joined(segments))).grows() {
        return;
    }
    let whole = read(codec, path, segments, None);
    for split in (0..=segments.len()).step_by(step) {
        let parts = read(codec, path, segments, Some(split));
        assert_eq!(parts, whole, "{} read in two parts at segment {split}", path.display());
    }
}

/// The bytes of the segments, written one after another.
pub(crate) fn joined(segments: &[Segment]) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in segments {
        segment.write_to(&mut out).unwrap();
    }
    out
}

/// Every result whose call is on the active path must be on the active path.
pub(crate) fn check_results(codec: &Arc<dyn Codec>, run: &Run, segments: &[Segment], what: &str) {
    use threadkeep::Part;
    let views: Vec<View> = run
        .outcomes
        .iter()
        .zip(segments)
        .filter_map(|(outcome, segment)| match outcome {
            Outcome::Placed(_, record) => Some(codec.view(&record.kind, segment.bytes())),
            _ => None,
        })
        .collect();
    let active: std::collections::HashSet<RecordNo> = run.active_path().into_iter().collect();
    let mut calls = std::collections::HashMap::new();
    for (no, view) in (0u32..).zip(&views) {
        for part in &view.parts {
            match part {
                Part::ToolCall { call_id, .. } => {
                    calls.insert(call_id.clone(), no);
                }
                Part::ToolResult { call_id, .. } => {
                    let active_call = calls.get(call_id).is_some_and(|call| active.contains(call));
                    assert!(!active_call || active.contains(&no), "{what}: result {no} of {call_id} is off the path");
                }
                _ => {}
            }
        }
    }
}
