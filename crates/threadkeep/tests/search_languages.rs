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
