//! A document's terms as the text of a `tsvector`.
//!
//! Its limits are the server's: a position is below 16,384, a lexeme has at most 255 positions and 2,046 bytes, and a vector has
//! less than a megabyte. A term that loses positions by that gets a second lexeme that says so.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::BLOCKS;
use crate::db::index::Terms;
use crate::item::Hash;

/// Stands between terms that are no neighbours.
const BREAK: &str = "_";
/// The greatest position that is told from the next one.
const LAST_POSITION: usize = 16_383;
/// How many positions a lexeme has at most.
const POSITIONS: usize = 255;
/// A longer term is cut, and tells what is cut off by its hash.
pub(super) const TERM_BYTES: usize = 1_024;
/// How large a vector may get as the server keeps it; it refuses 1,048,576.
const VECTOR_BYTES: usize = 1_000_000;

/// What a lexeme is: the sign that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Word,
    Part,
    Tag,
    /// Not all places of a word, or of a part, are told.
    CutWord,
    CutPart,
    /// No place of any term is told.
    NoPlaces,
    Block,
}

impl Sign {
    const fn sign(self) -> char {
        match self {
            Self::Word => '.',
            Self::Part => '-',
            Self::Tag => '#',
            Self::CutWord => '~',
            Self::CutPart => '^',
            Self::NoPlaces => '!',
            Self::Block => '@',
        }
    }
}

/// The terms of a document, with the blocks that its number lies in.
pub(super) fn of(terms: &Terms, number: i64) -> String {
    let streams = [(Sign::Word, Sign::CutWord, &terms.words), (Sign::Part, Sign::CutPart, &terms.parts)];
    let streams = streams.map(|(sign, cut, stream)| (sign, cut, places(stream)));
    let size: usize = streams.iter().map(|(.., places)| size(places)).sum::<usize>() + 2 * terms.tags.len();
    let has_places = size < VECTOR_BYTES;
    let mut out = String::with_capacity(2 * (terms.words.len() + terms.parts.len()) + terms.tags.len() + 256);
    for (sign, cut, places) in &streams {
        for (term, places) in places {
            push(&mut out, *sign, term);
            if has_places {
                push_positions(&mut out, &places.at);
                if places.is_cut {
                    push(&mut out, *cut, term);
                }
            }
        }
    }
    if !has_places {
        push(&mut out, Sign::NoPlaces, "");
    }
    terms.tags.split(' ').filter(|tag| !tag.is_empty()).for_each(|tag| push(&mut out, Sign::Tag, tag));
    for level in 0..BLOCKS.len() {
        push(&mut out, Sign::Block, &block(level, block_of(level, number)));
    }
    out
}

/// Which block of a level a document is in.
pub(super) fn block_of(level: usize, number: i64) -> i64 {
    number / BLOCKS.get(level).copied().unwrap_or(i64::MAX)
}

/// The name of a block.
pub(super) fn block(level: usize, block: i64) -> String {
    format!("{level}.{block}")
}

/// Writes a lexeme as it stands in the text of a vector or of a question.
pub(super) fn push(out: &mut String, sign: Sign, term: &str) {
    if !out.is_empty() {
        out.push(' ');
    }
    out.push('\'');
    out.push(sign.sign());
    for c in whole(term).chars() {
        if matches!(c, '\'' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
}

/// The longest beginning of a term that a lexeme has as it is; all of it where it can be kept whole.
pub(super) fn beginning(term: &str) -> &str {
    let end = term.find('\0').unwrap_or(term.len()).min(TERM_BYTES);
    let end = (0..=end).rev().find(|end| term.is_char_boundary(*end)).unwrap_or(0);
    term.get(..end).unwrap_or_default()
}

fn whole(term: &str) -> Cow<'_, str> {
    let beginning = beginning(term);
    match beginning.len() == term.len() {
        true => Cow::Borrowed(term),
        false => Cow::Owned(format!("{beginning}\u{1}{}", Hash::of(term.as_bytes()))),
    }
}

/// Where a term stands.
#[derive(Debug, Default)]
struct Places {
    at: Vec<usize>,
    is_cut: bool,
}

fn places(stream: &str) -> BTreeMap<&str, Places> {
    let mut places: BTreeMap<&str, Places> = BTreeMap::new();
    for (position, term) in (1..).zip(stream.split(' ').filter(|term| !term.is_empty())) {
        if term == BREAK {
            continue;
        }
        let places = places.entry(term).or_default();
        match position <= LAST_POSITION && places.at.len() < POSITIONS {
            true => places.at.push(position),
            false => places.is_cut = true,
        }
    }
    places
}

/// At most how many bytes the terms take: each one's own, those of its places, and of what says that there are more of them.
fn size(places: &BTreeMap<&str, Places>) -> usize {
    let size = |(term, places): (&&str, &Places)| {
        let len = term.len().min(TERM_BYTES + 80) + 4;
        len + 2 * (places.at.len() + 1) + if places.is_cut { len } else { 0 }
    };
    places.iter().map(size).sum()
}

fn push_positions(out: &mut String, at: &[usize]) {
    for (index, position) in at.iter().enumerate() {
        // Writing to a string can't fail.
        let _ = write!(out, "{}{position}", if index == 0 { ':' } else { ',' });
    }
}
