//! What a query finds in a corpus of many languages, decided by reading the items.

use std::collections::BTreeSet;

use threadkeep::Timestamp;
use threadkeep::conformance::languages::Languages;
use threadkeep::search::{NormalText, holds, normal, parse, snippet};

#[test]
fn every_query_of_the_corpus_finds_its_items_and_no_others() {
    let corpus = Languages::corpus();
    let read: Vec<(&str, NormalText)> =
        corpus.items.iter().map(|item| (item.id.as_str(), normal(&item.fields()))).collect();
    let mut wrong = Vec::new();
    for query in &corpus.queries {
        let wanted = parse(&query.text, Timestamp(0), &jiff::tz::TimeZone::UTC);
        let found: BTreeSet<&str> =
            read.iter().filter(|(_, text)| holds(&wanted.wanted, text)).map(|(id, _)| *id).collect();
        let expected: BTreeSet<&str> = query.finds.iter().map(String::as_str).collect();
        if found != expected || !wanted.not_understood.is_empty() {
            wrong.push(format!("{}: found {found:?}, not {expected:?} {:?}", query.text, wanted.not_understood));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_hit_of_the_corpus_has_a_snippet_that_shows_it() {
    let corpus = Languages::corpus();
    for query in &corpus.queries {
        let wanted = parse(&query.text, Timestamp(0), &jiff::tz::TimeZone::UTC).wanted;
        for item in corpus.items.iter().filter(|item| query.finds.contains(&item.id)) {
            let snippet = snippet(&item.fields(), &wanted, 72);
            assert!(!snippet.marks.is_empty(), "{} in {}: {snippet:?}", query.text, item.id);
        }
    }
}

#[test]
fn the_corpus_has_many_languages_and_looks_into_each_item() {
    let corpus = Languages::corpus();
    let ids: BTreeSet<&str> = corpus.items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(ids.len(), corpus.items.len());
    let languages: BTreeSet<&str> = corpus.items.iter().map(|item| item.language.as_str()).collect();
    assert!(languages.len() >= 8, "{languages:?}");
    let found: BTreeSet<&str> = corpus.queries.iter().flat_map(|query| &query.finds).map(String::as_str).collect();
    assert_eq!(found, ids);
}

/// The rows of the tables in `docs/search.md` below a heading: the cells between backticks, column by column.
#[expect(clippy::unwrap_used, reason = "without the table there is nothing to test")]
fn rows(heading: &str) -> Vec<Vec<Vec<String>>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/search.md");
    let document = std::fs::read_to_string(path).unwrap();
    let table = document.split(heading).nth(1).unwrap();
    let rows =
        table.lines().skip(1).skip_while(|line| line.is_empty()).skip(1).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        // A stroke inside of a cell would end it.
        let columns = line.trim_matches('|').split(" | ");
        columns.map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn the_documents_words_are_what_is_found() {
    let rows = rows("| this text | is these words | and these pieces |");
    assert!(rows.len() > 15, "{rows:?}");
    for row in rows {
        let read = normal(&[(threadkeep::search::Field::Said, &row[0][0])]);
        assert_eq!(read.words.iter().map(|word| word.term).collect::<Vec<_>>(), row[1], "{}", row[0][0]);
        let pieces: Vec<&str> = read.parts.iter().map(|word| word.term).filter(|term| *term != "_").collect();
        let expected = row.get(2).cloned().unwrap_or_default();
        assert_eq!(pieces, expected, "{}", row[0][0]);
    }
}

#[test]
fn the_documents_queries_find_what_they_say() {
    let rows = rows("| a query | finds | does not find |");
    assert!(rows.len() > 15, "{rows:?}");
    for row in rows {
        let query = parse(&row[0][0], Timestamp(0), &jiff::tz::TimeZone::UTC);
        assert!(query.not_understood.is_empty(), "{query:?}");
        for (texts, is_found) in [(&row[1], true), (&row[2], false)] {
            assert!(!texts.is_empty(), "{row:?}");
            for text in texts {
                let read = normal(&[(threadkeep::search::Field::Said, text)]);
                assert_eq!(holds(&query.wanted, &read), is_found, "{} in {text}", row[0][0]);
            }
        }
    }
}
