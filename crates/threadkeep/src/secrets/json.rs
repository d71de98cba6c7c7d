//! What of a text is JSON, and where in it strings stand. Nothing is decoded and nothing recurses.

use std::ops::Range;

use memchr::{memchr, memchr2};
use serde::de::IgnoredAny;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) range: Range<usize>,
    /// Whether it is one JSON value after another.
    pub(super) is_json: bool,
}

/// Splits a text into what is JSON and what is not: all of it, or else line by line.
pub(super) fn regions(text: &[u8]) -> Vec<Region> {
    if is_values(text) {
        return vec![Region { range: 0..text.len(), is_json: true }];
    }
    let mut regions: Vec<Region> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = text.get(at..).unwrap_or_default();
        let length = memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let line = rest.get(..length).unwrap_or_default();
        let is_json = begins_value(line) && is_values(line);
        match regions.last_mut() {
            Some(last) if last.is_json == is_json => last.range.end += length,
            _ => regions.push(Region { range: at..at + length, is_json }),
        }
        at += length;
    }
    regions
}

/// What strings hold, between their quotes, in a part that is JSON.
pub(super) struct Strings<'a> {
    text: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Strings<'a> {
    pub(super) fn new(text: &'a [u8], part: &Range<usize>) -> Self {
        Self { text, at: part.start, end: part.end }
    }
}

impl Iterator for Strings<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at + memchr(b'"', self.text.get(self.at..self.end)?)? + 1;
        let mut end = start;
        loop {
            end += memchr2(b'"', b'\\', self.text.get(end..self.end)?)?;
            if self.text.get(end) == Some(&b'"') {
                self.at = end + 1;
                return Some(start..end);
            }
            end += 2;
        }
    }
}

/// The numbers and names that this part of a text, which is outside of strings, belongs to.
pub(super) fn scalars(text: &[u8], part: Range<usize>, within: &Range<usize>) -> Vec<Range<usize>> {
    let is_scalar = |at: usize| text.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    let (mut found, mut at) = (Vec::new(), part.start);
    while at < part.end {
        if !is_scalar(at) {
            at += 1;
            continue;
        }
        let mut start = at;
        while start > within.start && is_scalar(start - 1) {
            start -= 1;
        }
        while at < within.end && is_scalar(at) {
            at += 1;
        }
        found.push(start..at);
    }
    found
}

/// A hash of what JSON is but for its strings, numbers and names: two texts with the same one are built alike.
pub(super) fn shape(text: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for region in regions(text).iter().filter(|region| region.is_json) {
        let mut at = region.range.start;
        for string in Strings::new(text, &region.range) {
            outline(text.get(at..string.start - 1).unwrap_or_default(), &mut hasher);
            hasher.update(b"v");
            at = string.end + 1;
        }
        outline(text.get(at..region.range.end).unwrap_or_default(), &mut hasher);
    }
    hasher.finalize()
}

fn outline(between: &[u8], hasher: &mut blake3::Hasher) {
    let mut in_scalar = false;
    for byte in between {
        let is_scalar = byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        match byte {
            b'{' | b'}' | b'[' | b']' | b':' | b',' => drop(hasher.update(&[*byte])),
            _ if is_scalar && !in_scalar => drop(hasher.update(b"v")),
            _ => {}
        }
        in_scalar = is_scalar;
    }
}

/// Whether a text is one JSON value, or several.
fn is_values(text: &[u8]) -> bool {
    // A value alone may be a number; among lines of words that is none.
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    let mut any = false;
    loop {
        match values.next() {
            Some(Ok(IgnoredAny)) => any = true,
            Some(Err(_)) => return false,
            None => return any,
        }
    }
}

fn begins_value(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
}

#[cfg(test)]
mod tests {
    use super::{Strings, regions, scalars, shape};

    fn of(text: &str) -> Vec<(&str, bool)> {
        regions(text.as_bytes()).into_iter().map(|region| (&text[region.range], region.is_json)).collect()
    }

    #[test]
    fn json_is_told_from_words() {
        assert_eq!(of("{\"a\":\n 1}"), [("{\"a\":\n 1}", true)]);
        assert_eq!(of("{}\n[1]\n\"x\"\n"), [("{}\n[1]\n\"x\"\n", true)]);
        assert_eq!(of("{}\nwords\n7\n{\"a\"\n[]"), [("{}\n", true), ("words\n7\n{\"a\"\n", false), ("[]", true)]);
        assert_eq!(of("words"), [("words", false)]);
        assert_eq!(of("12"), [("12", true)]);
        assert_eq!(of(""), []);
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(of(&deep), [(deep.as_str(), true)]);
    }

    #[test]
    fn strings_are_found_between_their_quotes() {
        let text = r#"{"a\"b\\":["", 1, "\\\""]}"#;
        let found: Vec<&str> = Strings::new(text.as_bytes(), &(0..text.len())).map(|range| &text[range]).collect();
        assert_eq!(found, [r#"a\"b\\"#, "", r#"\\\""#]);
    }

    #[test]
    fn a_part_of_a_number_is_the_number() {
        let text = b"[-12.5e3,true]";
        assert_eq!(scalars(text, 3..5, &(0..14)), [std::ops::Range { start: 1, end: 8 }]);
        assert_eq!(scalars(text, 3..14, &(0..14)).len(), 2);
        assert!(scalars(text, 8..9, &(0..14)).is_empty());
    }

    #[test]
    fn texts_that_are_built_alike_have_one_shape() {
        let alike = [r#"{"a":1,"b":[true,"x"]}"#, r#"{ "c\"" : "1", "d":["z", null] }"#];
        assert_eq!(shape(alike[0].as_bytes()), shape(alike[1].as_bytes()));
        for other in [r#"{"a":1,"b":[true]}"#, r#"{"a":1,"b":{"x":1}}"#, "", "words"] {
            assert_ne!(shape(alike[0].as_bytes()), shape(other.as_bytes()), "{other}");
        }
    }
}
