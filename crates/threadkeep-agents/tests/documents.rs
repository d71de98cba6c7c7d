//! Documents as segments: nothing is lost, and damage costs itself.

#![cfg(test)]

use std::io::BufReader;

use proptest::prelude::*;
use threadkeep_agents::document::{Document, frame, frame_without};
use threadkeep_agents::segments::Segment;

const MESSAGES: &[&str] = &["messages"];

fn split(bytes: &[u8], path: &'static [&'static str], buffer: usize) -> Vec<Segment> {
    Document::new(BufReader::with_capacity(buffer, bytes), path).map(Result::unwrap).collect()
}

fn joined(segments: &[Segment]) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in segments {
        assert_eq!(segment.offset(), out.len() as u64, "there is a gap");
        segment.write_to(&mut out).unwrap();
    }
    out
}

fn records(segments: &[Segment]) -> Vec<&str> {
    let records = segments.iter().filter(|segment| matches!(segment, Segment::Record { .. }));
    records.map(|segment| std::str::from_utf8(segment.bytes()).unwrap()).collect()
}

fn reasons(segments: &[Segment]) -> Vec<&str> {
    segments
        .iter()
        .filter_map(|segment| match segment {
            Segment::Opaque { reason, .. } => reason.as_deref(),
            _ => None,
        })
        .collect()
}

#[test]
fn the_elements_of_the_named_array_are_records() {
    let text = br#"{"x":{"messages":[{"no":1}]},"y":["messages",[{"no":2}]],"messages":[{"a":"]}\"["},{"b":[{"c":1}]}],"z":[{"no":3}]}"#;
    let segments = split(text, MESSAGES, 7);
    assert_eq!(records(&segments), [r#"{"a":"]}\"["}"#, r#"{"b":[{"c":1}]}"#]);
    assert_eq!(joined(&segments), text);
    let deeper = br#"{"entries":[{"no":1}],"journal":{"n":1,"entries":[{"a":1}],"m":[]},"entries":[{}]}"#;
    let segments = split(deeper, &["journal", "entries"], 3);
    assert_eq!(records(&segments), [r#"{"a":1}"#]);
    let segments = split(b" [ {\"a\":1} , {\"b\":2} ] ", &[], 1);
    assert_eq!(records(&segments), [r#"{"a":1}"#, r#"{"b":2}"#]);
}

#[test]
fn the_frame_is_the_document_without_its_records() {
    let text = b"\xef\xbb\xbf{\"id\": \"s\", \"messages\": [\n {\"a\":1}, {\"b\":2}\n ], \"title\": \"x\"}";
    let frame_of = |bytes: &[u8]| -> serde_json::Value {
        serde_json::from_slice(&frame(bytes, MESSAGES).unwrap()).unwrap_or_default()
    };
    let expected = serde_json::json!({"id": "s", "messages": [], "title": "x"});
    assert_eq!(frame_of(text), expected);
    // One that is cut off is closed.
    assert_eq!(frame_of(&text[..40]), serde_json::json!({"id": "s", "messages": []}));
    assert_eq!(frame_of(&text[..18]), serde_json::json!({"id": "s"}));
}

#[test]
fn what_is_no_object_is_said_to_be_none() {
    let segments = split(br#"{"messages":[1, "two", null, [3], {"a":4}, tru]}"#, MESSAGES, 5);
    assert_eq!(records(&segments), [r#"{"a":4}"#]);
    assert_eq!(reasons(&segments).len(), 5, "{segments:?}");
}

#[test]
fn a_damaged_element_costs_itself() {
    let whole = r#"{"messages":[{"id":1,"t":"a"},{"id":2,"t":"b"},{"id":3,"t":"c"},{"id":4,"t":"d"}],"end":1}"#;
    for (from, to) in
        [("\"b\"", "\"b"), ("\"b\"", "b"), ("\"b\"", "\"b\"}"), ("\"b\"", "[\"b\""), ("\"b\"", "\"b\u{0}\"")]
    {
        let text = whole.replace(from, to);
        for buffer in [1, 16, 4096] {
            let segments = split(text.as_bytes(), MESSAGES, buffer);
            assert_eq!(joined(&segments), text.as_bytes());
            let found = records(&segments);
            for id in [1, 3, 4] {
                let record = format!("{{\"id\":{id},");
                assert!(found.iter().any(|found| found.starts_with(&record)), "{text}: {id} is missing in {found:?}");
            }
            assert!(!reasons(&segments).is_empty(), "{text}");
        }
    }
}

#[test]
fn a_document_that_is_cut_gives_what_is_whole() {
    let whole = br#"{"messages":[{"id":1,"t":"a"},{"id":2,"t":"b"}],"end":1}"#;
    for cut in 0..whole.len() {
        let segments = split(&whole[..cut], MESSAGES, 9);
        assert_eq!(joined(&segments), &whole[..cut]);
        let expected = [29, 46].iter().filter(|end| cut >= **end).count();
        assert_eq!(records(&segments).len(), expected, "cut at {cut}: {segments:?}");
        let at_an_element = [29, 46].contains(&cut);
        assert!(cut == 0 || at_an_element || reasons(&segments) != Vec::<&str>::new(), "cut at {cut}");
    }
}

#[test]
fn nesting_costs_no_stack_and_long_elements_are_not_held() {
    let deep = format!("{{\"messages\":[{{\"a\":{}{}}},{{\"b\":1}}]}}", "[".repeat(100_000), "]".repeat(100_000));
    let segments = split(deep.as_bytes(), MESSAGES, 4096);
    assert_eq!(records(&segments).len(), 2);
    let open = format!("{{\"messages\":[{}", "{\"a\":".repeat(100_000));
    assert_eq!(joined(&split(open.as_bytes(), MESSAGES, 4096)), open.as_bytes());

    let long = format!("{{\"messages\":[{{\"a\":\"{}\"}},{{\"b\":1}}]}}", "x".repeat(5_000));
    let input = BufReader::with_capacity(64, long.as_bytes());
    let segments: Vec<Segment> = Document::new(input, MESSAGES).with_max_element(1_000).map(Result::unwrap).collect();
    assert_eq!(joined(&segments), long.as_bytes());
    assert_eq!(records(&segments), [r#"{"b":1}"#]);
    assert_eq!(reasons(&segments), ["the record is longer than 1000 bytes"]);
    assert!(segments.iter().all(|segment| segment.bytes().len() <= 1_100));
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => Just(br#"{"id":1,"t":"x"}"#.to_vec()),
        1 => Just(br#"{"messages":["#.to_vec()),
        1 => Just(b"]}".to_vec()),
        2 => Just(b",".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
        1 => prop::sample::select(vec!["\"", "{", "}", "[", "]", ":", "\\", " ", "\n", "\"messages\"", "1"]).prop_map(|text| text.into()),
    ]
}

#[test]
fn the_array_that_is_not_read_is_no_part_of_the_frame() {
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let many = vec![long; 10].join(", ");
    let text = format!(
        "{{\"id\": \"s\", \"messages\": [{many}], \"journal\": {{\"entries\": [\n{many}\n], \"leaf\": 1}}, \"x\": 2}}"
    );
    let entries: &[&str] = &["journal", "entries"];
    for (path, other) in [(entries, MESSAGES), (MESSAGES, entries)] {
        let input = BufReader::with_capacity(1 << 16, text.as_bytes());
        let frame: serde_json::Value = serde_json::from_slice(&frame_without(input, path, other).unwrap()).unwrap();
        let expected = serde_json::json!({"id": "s", "messages": [], "journal": {"entries": [], "leaf": 1}, "x": 2});
        assert_eq!(frame, expected);
    }
    let cut = text.get(..text.len() - 30).unwrap().as_bytes();
    let frame: serde_json::Value = serde_json::from_slice(&frame_without(cut, entries, MESSAGES).unwrap()).unwrap();
    assert_eq!(frame["id"], "s");
}

proptest! {
    #[test]
    fn any_bytes_come_back(pieces in prop::collection::vec(piece(), 0..20), buffer in 1usize..40, max in 4usize..60) {
        let bytes = pieces.concat();
        for path in [MESSAGES, &[]] {
            let input = BufReader::with_capacity(buffer, bytes.as_slice());
            let segments: Vec<Segment> = Document::new(input, path).with_max_element(max).map(Result::unwrap).collect();
            prop_assert_eq!(joined(&segments), &bytes[..]);
            prop_assert_eq!(joined(&split(&bytes, path, buffer)), &bytes[..]);
            for record in records(&segments) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(record).is_ok_and(|value| value.is_object()));
            }
            frame(bytes.as_slice(), path).unwrap();
            frame_without(bytes.as_slice(), path, &["other"]).unwrap();
            frame_without(bytes.as_slice(), &["other"], path).unwrap();
        }
    }
}
