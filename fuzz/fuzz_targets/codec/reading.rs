//! Any bytes as a file of an agent: nothing is lost, nothing panics, what is read in two parts is what is read in one, and what is
//! written of it for the same agent is lines that its own reader takes.

use std::path::Path;
use std::sync::Arc;

use threadkeep::Timestamp;
use threadkeep_agents::codec::{Codec, KnownRecord, Place, Shape, SourceReader};
use threadkeep_agents::document::{Document, frame};
use threadkeep_agents::replay::Replayed;
use threadkeep_agents::segments::{Position, Segment, Segments};
use threadkeep_agents::text::Text;
use threadkeep_agents::writer::Session;

/// Where the file is said to lie: most agents know theirs by the bytes.
const PLACE: &str = "/srv/session.jsonl";

pub fn check(agent: &str, data: &[u8]) {
    let codec = threadkeep_agents::codecs().into_iter().find(|codec| codec.agent() == agent).unwrap();
    let path = Path::new(PLACE);
    let _ = codec.detect(path, data);
    let shape = codec.shape(path, data);
    if let Shape::Replayed(_) = shape {
        return replay(&codec, data);
    }
    let segments: Vec<Segment> = match shape {
        Shape::Document(keys) => Document::new(data, keys).map(Result::unwrap).collect(),
        Shape::Text => {
            let (begin, grammar) = (Position { offset: 0, line: 1 }, codec.grammar(None).unwrap());
            Text::starting_at(data, begin, grammar, true).map(Result::unwrap).collect()
        }
        _ => Segments::new(data).map(Result::unwrap).collect(),
    };
    assert_eq!(joined(&segments), data, "bytes were lost");
    let framed = match shape {
        Shape::Document(keys) => Some(frame(data, keys).unwrap()),
        _ => None,
    };
    let whole = read(&codec, &segments, None, framed.as_deref());
    if shape.grows() {
        assert_eq!(read(&codec, &segments, Some(segments.len() / 2), None), whole, "read in two parts");
    }
    write(&codec, &segments);
}

/// What follows from a file as a log, and as a document.
fn replay(codec: &Arc<dyn Codec>, data: &[u8]) {
    for keys in [None, Some(&["requests"][..])] {
        let replay = codec.replay(Shape::Replayed(keys)).unwrap();
        let segments: Vec<Segment> = match keys {
            Some(keys) => Replayed::new(Document::new(data, keys), replay).map(Result::unwrap).collect(),
            None => Replayed::new(Segments::new(data), replay).map(Result::unwrap).collect(),
        };
        let (made, held): (Vec<Segment>, Vec<Segment>) =
            segments.into_iter().partition(|segment| matches!(segment, Segment::Record { .. }));
        assert_eq!(joined(&held), data, "bytes were lost");
        read(codec, &made, None, None);
    }
}

fn joined(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        match segment {
            Segment::Record { bytes: record, newline, .. } => {
                bytes.extend_from_slice(record);
                if *newline {
                    bytes.push(b'\n');
                }
            }
            Segment::Opaque { bytes: other, .. } | Segment::Tail { bytes: other, .. } => bytes.extend_from_slice(other),
        }
    }
    bytes
}

/// Where each record stands, and what is known of the thread.
fn read(codec: &Arc<dyn Codec>, segments: &[Segment], split: Option<usize>, framed: Option<&[u8]>) -> Vec<String> {
    let begin = |state: Option<&[u8]>| -> Box<dyn SourceReader> {
        let mut reader = codec.reader(Path::new(PLACE), state);
        if let Some(framed) = framed {
            reader.frame(framed);
        }
        reader
    };
    let mut reader = begin(None);
    let mut placed: Vec<(Option<String>, Vec<u8>)> = Vec::new();
    let mut seen = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        if split == Some(at) {
            let state = reader.state();
            reader = begin(Some(&state));
            for (source_id, note) in &placed {
                reader.known(&KnownRecord { source_id: source_id.as_deref(), note });
            }
        }
        let Segment::Record { bytes, .. } = segment else { continue };
        let Ok(record) = reader.record(bytes) else { continue };
        assert!(record.note.len() <= 64, "a note of {} bytes", record.note.len());
        if let Place::After(parent) = record.place {
            assert!((parent as usize) < placed.len(), "a record stands after one that is not there");
        }
        seen.push(format!("{:?} {:?}", record.place, record.source_id));
        drop(codec.view(&record.kind, bytes));
        if record.place != Place::Beside {
            placed.push((record.source_id, record.note));
        }
    }
    seen.push(format!("{:?} {:?}", reader.facts(), reader.head()));
    seen
}

fn write(codec: &Arc<dyn Codec>, segments: &[Segment]) {
    let session = Session::new("019a2284-0000-7000-8000-000000000001", Timestamp(1_767_225_600_000));
    let Some(mut writer) = codec.writer(&session) else { return };
    let mut reader = codec.reader(Path::new(PLACE), None);
    let mut out = Vec::new();
    writer.begin(&mut out);
    for segment in segments {
        let Segment::Record { bytes, .. } = segment else { continue };
        let Ok(record) = reader.record(bytes) else { continue };
        if let Some(message) = codec.message(&record.kind, bytes) {
            writer.message(&message, &mut out);
        }
    }
    drop(writer.finish(&mut out));
    // One that takes a file in by a command may want a document.
    let has_lines = |place: &Path| codec.shape(place, &out) == Shape::Lines;
    if !out.is_empty() && codec.place(&session).as_deref().is_some_and(has_lines) {
        let told = Segments::new(out.as_slice()).map(Result::unwrap);
        assert!(told.into_iter().all(|segment| matches!(segment, Segment::Record { newline: true, .. })), "no whole lines");
    }
}
