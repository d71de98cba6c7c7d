//! Any query over any text: nothing panics, every place is one, and a phrase taken from a text finds it.
//!
//! The first bytes choose a field, a width and a part of the text; a byte 1 ends the query.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadkeep::Timestamp;
use threadkeep::search::{
    BREAK, Field, MAX_TERMS, NormalText, find, folded, holds, normal, occurrences, parse, phrase, snippet,
};
use unicode_width::UnicodeWidthStr as _;

const FIELDS: [Field; 6] = [Field::Said, Field::Reasoning, Field::Call, Field::Result, Field::Note, Field::Title];
const QUOTES: [char; 8] = ['"', '“', '”', '„', '‟', '＂', '«', '»'];

fuzz_target!(|data: &[u8]| {
    let Some(([field, width, first, count], rest)) = data.split_first_chunk::<4>() else { return };
    let mut halves = rest.splitn(2, |byte| *byte == 1);
    let query = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let text = String::from_utf8_lossy(halves.next().unwrap_or_default());
    let field = FIELDS[usize::from(*field) % FIELDS.len()];
    check_query(&query, field, &text, usize::from(*width));
    check_places(&query, &text);
    check_verbatim(&text, usize::from(*first), usize::from(*count));
});

fn check_query(query: &str, field: Field, text: &str, width: usize) {
    let read = parse(query, Timestamp(1_760_000_000_000), &jiff::tz::TimeZone::UTC);
    let phrases = read.wanted.phrases().len();
    assert!(phrases <= MAX_TERMS && read.literals.len() == phrases, "{read:?}");
    let document = normal(&[(field, text), (Field::Said, query)]);
    check_document(&document, &[text, query]);
    holds(&read.wanted, &document);
    let has_places = !occurrences(&read.wanted, &document).is_empty();
    let line = snippet(&[(field, text), (Field::Said, query)], &read.wanted, width);
    assert!(line.text.width() <= width, "{line:?}");
    assert!(!line.text.chars().any(char::is_control), "{line:?}");
    let mut before = 0;
    for mark in &line.marks {
        assert!(before <= mark.start && mark.start < mark.end && line.text.get(mark.clone()).is_some(), "{line:?}");
        before = mark.end;
    }
    assert!(has_places || line.marks.is_empty(), "{line:?}");
}

fn check_document(document: &NormalText, texts: &[&str]) {
    for section in &document.sections {
        let text = texts[section.index];
        for index in section.words.clone() {
            let word = document.words.get(index).unwrap();
            assert!(!word.term.is_empty() && !word.term.contains(char::is_whitespace), "{word:?}");
            assert!(word.term == BREAK || !text[word.start..word.end].is_empty(), "{word:?}");
        }
        for index in section.parts.clone() {
            let part = document.parts.get(index).unwrap();
            assert!(part.term == BREAK || !text[part.start..part.end].is_empty(), "{part:?}");
        }
    }
}

fn check_places(wanted: &str, text: &str) {
    let mut before = 0;
    for place in find(text, wanted) {
        assert!(before <= place.start && place.start < place.end);
        assert_eq!(folded(&text[place.clone()]), folded(wanted));
        before = place.end;
    }
}

fn check_verbatim(text: &str, first: usize, count: usize) {
    let document = normal(&[(Field::Said, text)]);
    let words = &document.words;
    let (Some(start), Some(end)) = (words.get(first), words.get((first + count).min(words.len().saturating_sub(1)))) else {
        return;
    };
    let Some(part) = text.get(start.start..end.end) else { return };
    let wanted = phrase(part).unwrap();
    assert!(holds(&wanted, &document), "{part:?} is not found in {text:?}");
    assert!(!snippet(&[(Field::Said, text)], &wanted, 200).text.is_empty());
    assert!(find(text, part).next().is_some(), "{part:?} does not stand in {text:?}");
    if !part.contains(QUOTES) {
        let read = parse(&format!("\"{part}\""), Timestamp(0), &jiff::tz::TimeZone::UTC);
        assert!(holds(&read.wanted, &document), "{read:?} is not found in {text:?}");
    }
}
