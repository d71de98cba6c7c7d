//! Finding a literal text in another.
use std::ops::Range;

/// Where `wanted` stands in `text`, whatever its case.
pub fn find(text: &str, wanted: &str) -> Vec<Range<usize>> {
    text.match_indices(wanted).filter(|(_, part)| !part.is_empty()).map(|(at, part)| at..at + part.len()).collect()
}
