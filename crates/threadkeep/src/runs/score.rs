//! Scores: numbers that come back as they were given, and that can be sorted without being numbers of the store.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

const MAX_BYTES: usize = 64;

/// A score: the text of a number as it was given, such as `0.75` or `1e-3`.
///
/// Two scores are equal when their texts are. They are sorted by their values, to the precision of a 64-bit float.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Score(String);

impl Score {
    /// Where there is none: less than every score's order.
    pub(crate) const NONE: i64 = i64::MIN;

    /// Takes the text of a number as JSON writes numbers, at most 64 bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else, such as `NaN`, and for a number that no 64-bit float comes near.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let score = Self(text);
        let wrong = |reason: &str| Error::invalid("score", reason);
        if score.0.len() > MAX_BYTES {
            return Err(wrong("a score has at most 64 bytes"));
        }
        if !is_number(&score.0) {
            return Err(wrong("it is no number as JSON writes numbers"));
        }
        if !score.value().is_finite() {
            return Err(wrong("it is out of range"));
        }
        Ok(score)
    }

    /// Takes a number, as the shortest text that means it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for NaN and infinities.
    pub fn from_f64(value: f64) -> Result<Self> {
        match value.is_finite() {
            true => Self::new(format!("{value:?}")),
            false => Err(Error::invalid("score", "a score is a finite number")),
        }
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number, as near as a 64-bit float comes to it.
    pub fn value(&self) -> f64 {
        self.0.parse().unwrap_or(f64::NAN)
    }

    /// Greater for a greater number, and the same for equal ones.
    pub(crate) fn order(&self) -> i64 {
        // Makes one zero of both.
        let bits = (self.value() + 0.0).to_bits();
        // The bits of floats are in order but for the negative ones, whose other bits stand the other way round.
        let flipped = if bits >> 63 == 1 { bits ^ (u64::MAX >> 1) } else { bits };
        flipped.cast_signed()
    }
}

/// Whether a text is a number by the grammar of JSON.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Score {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

/// As text: a reader of numbers would not give back what was given.
impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Score;

    #[test]
    fn scores_are_numbers_as_they_were_given() {
        for text in
            ["0", "-0", "0.75", "0.750", "1e-3", "-1E+30", "12345678901234567890", "0.1234567890123456789012345678"]
        {
            assert_eq!(Score::new(text).unwrap().as_str(), text);
        }
        for text in [
            "",
            "-",
            "NaN",
            "nan",
            "inf",
            "Infinity",
            "1.",
            ".5",
            "01",
            "+1",
            "1e",
            "1e999",
            " 1",
            "1 ",
            "0x1",
            "1_0",
            &"1".repeat(65),
        ] {
            assert!(Score::new(text).is_err(), "{text:?}");
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Score::from_f64(value).is_err());
        }
        for value in [0.1, 1.0, -2.5e-300, f64::MAX, f64::MIN_POSITIVE] {
            assert!((Score::from_f64(value).unwrap().value() - value).abs() == 0.0);
        }
    }

    #[test]
    fn the_order_is_that_of_the_values() {
        let texts = ["-1e300", "-2", "-1.5", "-1e-300", "0", "1e-300", "0.5", "1", "2", "10", "1e300"];
        let orders: Vec<i64> = texts.iter().map(|text| Score::new(*text).unwrap().order()).collect();
        assert!(orders.is_sorted_by(|left, right| left < right), "{orders:?}");
        assert!(orders.iter().all(|order| *order > Score::NONE));
        let order = |text: &str| Score::new(text).unwrap().order();
        assert_eq!((order("-0"), order("1.0"), order("100")), (order("0"), order("1"), order("1e2")));
    }
}
