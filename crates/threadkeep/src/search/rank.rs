//! How relevant a hit is: what is found, in which of its texts, how often, and how long ago it was made.

use super::find::find;
use super::matching::{self, Occurrence};
use super::query::Query;
use super::text::{Field, NormalText, Section};
use crate::time::Timestamp;

/// What a place in each text counts for.
fn weight(field: Field) -> f64 {
    match field {
        Field::Title => 1.6,
        Field::Said => 1.0,
        Field::Call => 0.8,
        Field::Note => 0.7,
        Field::Reasoning => 0.6,
        Field::Result => 0.5,
    }
}

/// A text of so many words counts half of what a very short one does.
const HALF_WORDS: f64 = 2_000.0;
/// How much of the score is for being recent, and how old what has half of that is.
const RECENCY: f64 = 0.2;
const HALF_AGE_MILLIS: f64 = 30.0 * 24.0 * 60.0 * 60.0 * 1_000.0;
/// What standing there as it was typed counts for, and what standing close together does.
const LITERAL: f64 = 0.4;
const CLOSENESS: f64 = 0.4;
/// A piece of a name counts for less than a word of its own.
const PIECE: f64 = 0.7;
const MOST: f64 = 10_000.0;

/// How relevant a document is that was made of these texts, from 0 to 10,000.
pub(crate) fn rank(query: &Query, fields: &[(Field, &str)], text: &NormalText, made: Timestamp, now: Timestamp) -> u32 {
    let phrases = query.wanted.phrases().len();
    let occurrences = matching::occurrences(&query.wanted, text);
    let mut by_phrase = vec![0.0; phrases];
    for occurrence in &occurrences {
        let Some(section) = section_of(text, occurrence) else { continue };
        let piece = if occurrence.is_in_parts { PIECE } else { 1.0 };
        let gain = weight(section.field) * rarity(section) * piece;
        if let Some(sum) = by_phrase.get_mut(occurrence.phrase) {
            *sum += gain;
        }
    }
    // Once is most of it: a log that says a word a hundred times is no hundred times as relevant.
    let found: f64 = by_phrase.iter().map(|sum| sum / (sum + 0.6)).sum::<f64>() / count(phrases.max(1));
    let literal = literally(query, fields);
    let close = closeness(text, &occurrences, phrases);
    let relevance = (found + LITERAL * literal + CLOSENESS * close) / (1.0 + LITERAL + CLOSENESS);
    let age = (now.0.saturating_sub(made.0)).max(0);
    let recency = 1.0 / (1.0 + millis(age) / HALF_AGE_MILLIS);
    let score = MOST * (relevance * (1.0 - RECENCY) + recency * RECENCY).clamp(0.0, 1.0);
    whole(score)
}

/// A place in a long text says less of it.
fn rarity(section: &Section) -> f64 {
    1.0 / (1.0 + count(section.words.len()) / HALF_WORDS)
}

fn section_of<'a>(text: &'a NormalText, occurrence: &Occurrence) -> Option<&'a Section> {
    let holds = |section: &&Section| {
        let terms = if occurrence.is_in_parts { &section.parts } else { &section.words };
        terms.contains(&occurrence.terms.start)
    };
    text.sections.iter().find(holds)
}

/// How close together the phrases stand where they are closest, from 0 to 1: 1 where nothing is between them.
fn closeness(text: &NormalText, occurrences: &[Occurrence], phrases: usize) -> f64 {
    let places = || occurrences.iter().filter(|occurrence| !occurrence.is_in_parts);
    let mut wanted: Vec<usize> = places().map(|occurrence| occurrence.phrase).collect();
    wanted.sort_unstable();
    wanted.dedup();
    if phrases < 2 || wanted.len() < 2 {
        return if phrases < 2 { 1.0 } else { 0.0 };
    }
    let mut places: Vec<&Occurrence> = places().collect();
    places.sort_unstable_by_key(|occurrence| occurrence.terms.start);
    let length: usize =
        wanted.iter().filter_map(|phrase| places.iter().find(|it| it.phrase == *phrase)).map(|it| it.terms.len()).sum();
    let mut shortest = usize::MAX;
    let mut last: Vec<Option<&Occurrence>> = vec![None; phrases];
    for place in places {
        if let Some(slot) = last.get_mut(place.phrase) {
            *slot = Some(place);
        }
        let seen: Vec<&Occurrence> = last.iter().flatten().copied().collect();
        if seen.len() < wanted.len() {
            continue;
        }
        let first = seen.iter().map(|it| it.terms.start).min().unwrap_or_default();
        let end = seen.iter().map(|it| it.terms.end).max().unwrap_or_default();
        if is_in_one(text, first, end) {
            shortest = shortest.min(end - first);
        }
    }
    match shortest {
        usize::MAX => 0.0,
        _ => (count(length) / count(shortest.max(1))).min(1.0) * count(wanted.len()) / count(phrases),
    }
}

/// Whether these terms are of one text.
fn is_in_one(text: &NormalText, first: usize, end: usize) -> bool {
    text.sections.iter().any(|section| section.words.start <= first && end <= section.words.end)
}

/// The share of what was typed that stands there as it was typed, where that says more than its words do.
fn literally(query: &Query, fields: &[(Field, &str)]) -> f64 {
    let says_more = |literal: &&String| literal.chars().any(|c| !c.is_alphanumeric());
    let literals: Vec<&String> = query.literals.iter().filter(says_more).collect();
    if literals.is_empty() {
        return 0.0;
    }
    let stands = |literal: &&&String| fields.iter().any(|(_, text)| find(text, literal).next().is_some());
    count(literals.iter().filter(stands).count()) / count(literals.len())
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "an age needs no single milliseconds")]
fn millis(age: i64) -> f64 {
    age as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and 10,000")]
fn whole(score: f64) -> u32 {
    score.round() as u32
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::rank;
    use crate::search::query;
    use crate::search::text::{self, Field};
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const DAY: i64 = 24 * 60 * 60 * 1_000;

    fn ranked(query: &str, fields: &[(Field, &str)], days_old: i64) -> u32 {
        let query = query::parse(query, NOW, &TimeZone::UTC);
        rank(&query, fields, &text::normal(fields), Timestamp(NOW.0 - days_old * DAY), NOW)
    }

    #[test]
    fn what_somebody_said_comes_before_what_a_tool_gave_back() {
        let said = ranked("deadlock", &[(Field::Said, "it is a deadlock")], 9);
        let result = ranked("deadlock", &[(Field::Result, "it is a deadlock")], 0);
        assert!(said > result, "{said} {result}");
    }

    #[test]
    fn of_equals_the_newer_one_comes_first() {
        let [old, new] = [300, 3].map(|days| ranked("cache", &[(Field::Said, "the cache")], days));
        assert!(new > old);
    }

    #[test]
    fn what_stands_there_as_it_was_typed_comes_before_its_words() {
        let literal = ranked("a/b.rs", &[(Field::Said, "look at a/b.rs")], 0);
        let words = ranked("a/b.rs", &[(Field::Said, "look at a b rs")], 0);
        assert!(literal > words);
    }

    #[test]
    fn words_that_stand_together_come_before_words_that_are_far_apart() {
        let far = format!("parse {} error", "more ".repeat(50));
        let [near, far] = ["a parse error here", &far].map(|text| ranked("parse error", &[(Field::Said, text)], 0));
        assert!(near > far, "{near} {far}");
        let apart = ranked("parse error", &[(Field::Said, "parse"), (Field::Said, "error")], 0);
        assert!(near > apart, "{near} {apart}");
    }

    #[test]
    fn a_word_comes_before_a_piece_of_a_name() {
        let [word, piece] = ["the error", "the parseError"].map(|text| ranked("error", &[(Field::Said, text)], 0));
        assert!(word > piece, "{word} {piece}");
    }

    #[test]
    fn repeating_a_word_gains_ever_less() {
        let [one, two, many] =
            [1, 2, 200].map(|times| ranked("retry", &[(Field::Said, "retry ".repeat(times).as_str())], 0));
        assert!(one < two && many < 2 * one, "{one} {two} {many}");
    }
}
