//! An expression as the texts of two `tsquery`s: what every document that fits has, and what only such a document has.

use super::BLOCKS;
use super::vector::{self, Sign};
use crate::db::index::Expr;

/// A question to the table of documents.
#[derive(Debug)]
pub(super) struct Question {
    /// Holds for every document that fits, and for those of which the vector does not say enough.
    wide: String,
    /// Holds for documents that fit for certain.
    narrow: String,
}

/// Which documents are meant where the vector does not say enough: all that may fit, or none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sense {
    Wide,
    Narrow,
}

impl Sense {
    /// What is taken away by one that is too much is one too few.
    fn opposite(self) -> Self {
        match self {
            Self::Wide => Self::Narrow,
            Self::Narrow => Self::Wide,
        }
    }
}

impl Question {
    /// The question; `None` where nothing can fit.
    pub(super) fn of(expr: &Expr) -> Option<Self> {
        let wide = write(expr, Sense::Wide)?;
        // Nothing is certain, then.
        let narrow = write(expr, Sense::Narrow).unwrap_or_else(never);
        Some(Self { wide, narrow })
    }

    /// Whether a hit may be doubtful at all.
    pub(super) fn may_be_doubtful(&self) -> bool {
        self.wide != self.narrow
    }

    /// What a hit has that is not doubtful.
    pub(super) fn certain(&self) -> &str {
        &self.narrow
    }

    /// The question to the last two blocks of a level that reach up to a number, and the first number of these.
    pub(super) fn in_blocks(&self, level: usize, upto: i64) -> (String, i64) {
        let last = vector::block_of(level, upto);
        let first = (last - 1).max(0);
        let blocks = (first..=last).map(|block| lexeme(Sign::Block, &vector::block(level, block))).collect();
        let within = joined(blocks, " | ").unwrap_or_else(never);
        (format!("{} & {within}", self.wide), first * BLOCKS.get(level).copied().unwrap_or(1))
    }
}

fn write(expr: &Expr, sense: Sense) -> Option<String> {
    match expr {
        Expr::Phrase { words, parts, is_prefix } => {
            let streams = [(Sign::Word, Sign::CutWord, words), (Sign::Part, Sign::CutPart, parts)];
            let either =
                streams.into_iter().filter_map(|(sign, cut, terms)| phrase(sign, cut, terms, *is_prefix, sense));
            joined(either.collect(), " | ")
        }
        Expr::Tag(tag) => Some(lexeme(Sign::Tag, tag)),
        Expr::All(all) => joined(all.iter().map(|expr| write(expr, sense)).collect::<Option<_>>()?, " & "),
        Expr::Any(any) => joined(any.iter().filter_map(|expr| write(expr, sense)).collect(), " | "),
        Expr::Without(wanted, unwanted) => {
            let wanted = write(wanted, sense)?;
            Some(match write(unwanted, sense.opposite()) {
                Some(unwanted) => format!("({wanted} & !{unwanted})"),
                None => wanted,
            })
        }
    }
}

fn phrase(sign: Sign, cut: Sign, terms: &[String], is_prefix: bool, sense: Sense) -> Option<String> {
    let (last, before) = terms.split_last()?;
    // What is cut off a beginning can't be asked for.
    let is_whole = !is_prefix || vector::beginning(last) == last;
    if !is_whole && sense == Sense::Narrow {
        return None;
    }
    let lexemes = |sign| {
        let mut lexemes: Vec<String> = before.iter().map(|term| lexeme(sign, term)).collect();
        lexemes.push(match is_prefix {
            true => format!("{}:*", lexeme(sign, vector::beginning(last))),
            false => lexeme(sign, last),
        });
        lexemes
    };
    let neighbours = joined(lexemes(sign), " <-> ")?;
    if before.is_empty() || sense == Sense::Narrow {
        return Some(neighbours);
    }
    let mut cut = lexemes(cut);
    cut.push(lexeme(Sign::NoPlaces, ""));
    let mut doubtful = lexemes(sign);
    doubtful.push(joined(cut, " | ")?);
    joined(vec![neighbours, joined(doubtful, " & ")?], " | ")
}

/// What no document has.
fn never() -> String {
    lexeme(Sign::Block, "none")
}

fn lexeme(sign: Sign, term: &str) -> String {
    let mut out = String::new();
    vector::push(&mut out, sign, term);
    out
}

/// Joins by halves, so that no question is nested deeper than it has to be.
fn joined(parts: Vec<String>, operator: &str) -> Option<String> {
    let mut parts = parts;
    while parts.len() > 1 {
        let mut halves = parts.into_iter();
        let mut joined = Vec::with_capacity(halves.len().div_ceil(2));
        while let Some(left) = halves.next() {
            joined.push(match halves.next() {
                Some(right) => format!("({left}{operator}{right})"),
                None => left,
            });
        }
        parts = joined;
    }
    parts.pop()
}
