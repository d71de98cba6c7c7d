//! Whether a query holds for a document, decided by reading it: what both engines must agree with.

use std::ops::Range;

use super::query::Node;
use super::text::{NormalText, Stream};

/// A place where a phrase of a query stands in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// Which phrase it is: they are numbered in the order of the query, without those that must not stand there.
    pub phrase: usize,
    /// Whether it stands in the stream of parts.
    pub is_in_parts: bool,
    /// The terms of that stream.
    pub terms: Range<usize>,
}

/// Whether the document is what the query asks for.
pub fn holds(wanted: &Node, text: &NormalText) -> bool {
    match wanted {
        Node::All(nodes) => nodes.iter().all(|node| holds(node, text)),
        Node::Any(nodes) => nodes.iter().any(|node| holds(node, text)),
        Node::Not(node) => !holds(node, text),
        Node::Phrase { words, parts, prefix } => {
            places(words, *prefix, &text.words).next().is_some() || places(parts, *prefix, &text.parts).next().is_some()
        }
    }
}

/// Every place of every phrase that the query asks for, phrase by phrase. Places of one phrase may overlap.
pub fn occurrences(wanted: &Node, text: &NormalText) -> Vec<Occurrence> {
    let mut found = Vec::new();
    for (phrase, node) in wanted.phrases().into_iter().enumerate() {
        let Node::Phrase { words, parts, prefix } = node else { continue };
        for (is_in_parts, terms, stream) in [(false, words, &text.words), (true, parts, &text.parts)] {
            let places = places(terms, *prefix, stream);
            found.extend(places.map(|at| Occurrence { phrase, is_in_parts, terms: at..at + terms.len() }));
        }
    }
    found
}

/// Where the terms stand one after another. No terms stand nowhere.
fn places<'a>(terms: &'a [String], prefix: bool, stream: &'a Stream) -> impl Iterator<Item = usize> + 'a {
    let ends = (stream.len() + 1).saturating_sub(terms.len().max(1));
    let ends = if terms.is_empty() { 0 } else { ends };
    (0..ends).filter(move |at| stands_at(terms, prefix, stream, *at))
}

fn stands_at(terms: &[String], prefix: bool, stream: &Stream, at: usize) -> bool {
    terms.iter().enumerate().all(|(index, wanted)| {
        let is_last = index + 1 == terms.len();
        stream.get(at + index).is_some_and(|word| {
            if prefix && is_last { word.term.starts_with(wanted.as_str()) } else { word.term == wanted }
        })
    })
}
