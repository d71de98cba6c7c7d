//! The escapes of JSON strings, undone; and where in the written text a place of the undone text stands.

use memchr::memchr;

/// Undoes all escapes; `None` when there is none. What is no escape stays as it is, so this reads any text.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    memchr(b'\\', text)?;
    let mut out = Vec::with_capacity(text.len());
    let mut changed = false;
    for unit in Units::new(text) {
        match unit.kind {
            UnitKind::Same => out.extend_from_slice(text.get(unit.at..unit.at + unit.length).unwrap_or_default()),
            UnitKind::Escape(letter) => {
                changed = true;
                let mut buffer = [0; 4];
                out.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    changed.then_some(out)
}

/// Translates places of the decoded text into places of the written one.
///
/// They are asked for in rising order. A place inside of a letter that was written as an escape is where that begins, or ends.
pub(super) struct Places<'a> {
    units: Units<'a>,
    unit: Unit,
    /// Where the unit begins in the decoded text.
    decoded: usize,
}

impl<'a> Places<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        let mut units = Units::new(text);
        let unit = units.next().unwrap_or(Unit { at: 0, length: 0, kind: UnitKind::Same });
        Self { units, unit, decoded: 0 }
    }

    /// Where the letter at this place begins.
    pub(super) fn start(&mut self, place: usize) -> usize {
        self.go_to(place);
        match self.unit.kind {
            UnitKind::Same => self.unit.at + (place - self.decoded).min(self.unit.length),
            UnitKind::Escape(_) => self.unit.at,
        }
    }

    /// Where the letter before this place ends.
    pub(super) fn end(&mut self, place: usize) -> usize {
        let last = place.saturating_sub(1);
        self.go_to(last);
        match self.unit.kind {
            UnitKind::Same => self.unit.at + (last - self.decoded + 1).min(self.unit.length),
            UnitKind::Escape(_) => self.unit.at + self.unit.length,
        }
    }

    fn go_to(&mut self, place: usize) {
        while place >= self.decoded + self.unit.decoded_length() {
            let Some(next) = self.units.next() else { return };
            self.decoded += self.unit.decoded_length();
            self.unit = next;
        }
    }
}

/// A run of bytes that stand for themselves, or an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) at: usize,
    pub(super) length: usize,
    pub(super) kind: UnitKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitKind {
    Same,
    Escape(char),
}

impl Unit {
    fn decoded_length(&self) -> usize {
        match self.kind {
            UnitKind::Same => self.length,
            UnitKind::Escape(letter) => letter.len_utf8(),
        }
    }
}

/// Splits a text into units.
pub(super) struct Units<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Units<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let unit = match escape(rest) {
            Some((letter, length)) => Unit { at: self.at, length, kind: UnitKind::Escape(letter) },
            None => {
                // A backslash that begins no escape stands for itself.
                let from = usize::from(rest.first() == Some(&b'\\'));
                let length = rest.get(from..).and_then(|rest| memchr(b'\\', rest)).map_or(rest.len(), |end| from + end);
                Unit { at: self.at, length, kind: UnitKind::Same }
            }
        };
        self.at += unit.length;
        Some(unit)
    }
}

/// The letter that an escape at the beginning of this text stands for, and the escape's length.
fn escape(text: &[u8]) -> Option<(char, usize)> {
    let (b'\\', rest) = text.split_first()? else { return None };
    let letter = match rest.first()? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(text),
        _ => return None,
    };
    Some((letter, 2))
}

fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = four_digits(text)?;
    if !(0xd800..0xdc00).contains(&unit) {
        return Some((char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER), 6));
    }
    let low = text.get(6..).and_then(four_digits).filter(|low| (0xdc00..0xe000).contains(low));
    match low.and_then(|low| char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00))) {
        Some(letter) => Some((letter, 12)),
        None => Some((char::REPLACEMENT_CHARACTER, 6)),
    }
}

/// The number in `\uXXXX`.
fn four_digits(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Places, decoded};

    #[test]
    fn escapes_are_undone_and_what_is_none_stays() {
        for (written, expected) in [
            (r"\u0041\/\n\\n", Some("A/\n\\n")),
            (r"\ud83d\ude00x\ud83d", Some("\u{1f600}x\u{fffd}")),
            (r"\ud83d\u0041\x\", Some("\u{fffd}A\\x\\")),
            (r"C:\Users", None),
            ("plain", None),
        ] {
            assert_eq!(decoded(written.as_bytes()).as_deref(), expected.map(str::as_bytes), "{written}");
        }
    }

    #[test]
    fn places_are_those_of_whole_escapes() {
        let mut places = Places::new(br"ab\u0041\ud83d\ude00c");
        // The letters of the decoded text begin at 0, 1, 2, 3 (four bytes long) and 7.
        let starts: Vec<_> = [0, 1, 2, 3, 5, 7].map(|place| places.start(place)).to_vec();
        assert_eq!(starts, [0, 1, 2, 8, 8, 20]);
        let mut places = Places::new(br"ab\u0041\ud83d\ude00c");
        let ends: Vec<_> = [1, 2, 3, 4, 7, 8].map(|place| places.end(place)).to_vec();
        assert_eq!(ends, [1, 2, 8, 20, 20, 21]);
    }

    proptest! {
        /// As another implementation undoes them.
        #[test]
        fn strings_are_decoded_as_serde_json_does(text in any::<String>()) {
            let written = serde_json::to_string(&text).unwrap();
            let inner = &written.as_bytes()[1..written.len() - 1];
            prop_assert_eq!(decoded(inner).unwrap_or_else(|| inner.to_vec()), text.into_bytes());
        }

        #[test]
        fn any_bytes_can_be_decoded(text in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'u'), any::<u8>()], 0..60)) {
            let decoded = decoded(&text).unwrap_or_else(|| text.clone());
            let mut places = Places::new(&text);
            let starts: Vec<usize> = (0..decoded.len()).map(|place| places.start(place)).collect();
            prop_assert!(starts.is_sorted() && starts.iter().all(|start| *start < text.len()));
            let mut places = Places::new(&text);
            prop_assert_eq!(places.end(decoded.len()), text.len());
        }
    }
}
