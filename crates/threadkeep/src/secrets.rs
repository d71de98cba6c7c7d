//! Secrets in content: finding them by rules, and masking them so that what was JSON stays JSON.
//!
//! Everything here is pure. Searching takes time in proportion to the content, whatever it holds: no pattern is tried again
//! and again over the same bytes, and a match is at most a mebibyte long.

mod decode;
mod gitleaks;
mod json;
mod marker;
mod mask;
mod rule;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use crate::error::{Error, Result};
use rule::{Alphabet, Parts, Rule, Seek};

/// A shorter literal would be found everywhere.
const SHORTEST_LITERAL: usize = 4;

/// What counts as a secret: a list of rules. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Rules {
    set: Arc<Set>,
}

#[derive(Debug)]
struct Set {
    rules: Vec<Arc<Rule>>,
    ids: Vec<Arc<str>>,
    /// Finds all words that say where a rule may match; `None` when there is none.
    words: Option<AhoCorasick>,
    /// The rules of each word.
    by_word: Vec<Vec<usize>>,
    /// Rules that are tried on everything.
    anywhere: Vec<usize>,
    /// The length of the shortest match of any rule.
    shortest: usize,
}

/// A secret that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The id of the rule that found it.
    pub rule: Arc<str>,
    /// Where it stands in the bytes that were given.
    pub range: Range<usize>,
}

/// What masking made of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Masked {
    /// There is no secret in it.
    NothingFound,
    /// Each secret was replaced by a marker like `[redacted:RULE]`.
    Masked {
        /// The content without its secrets: the same rules find nothing in it.
        bytes: Vec<u8>,
        /// What was found, in the order of the content that was given.
        found: Vec<Found>,
    },
    /// There are secrets, and they can't be replaced in part. The whole content has to go.
    CannotMask,
}

/// Text with the escapes of JSON undone; `None` when there is none in it.
pub(crate) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    decode::decoded(text)
}

impl Rules {
    /// The rules that come with the library: those of gitleaks, and some of our own for what these lack (passwords in
    /// addresses, lines of `.env` files, `Authorization` headers).
    ///
    /// # Errors
    /// None that a test of the library would let pass.
    pub fn maintained() -> Result<Self> {
        static MAINTAINED: OnceLock<Result<Rules>> = OnceLock::new();
        MAINTAINED.get_or_init(|| Ok(Self::of(gitleaks::maintained()?))).clone()
    }

    /// Rules in the format of gitleaks (`gitleaks.toml`).
    ///
    /// Content has neither a path nor a commit, so rules that judge a path alone are left out, a `path` beside a `regex` is
    /// passed over, and allowlists of paths and commits never hold. `extend.useDefault` brings in
    /// [`Rules::maintained`]; a rule of the same id takes the place of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the rule and what is wrong with it.
    pub fn gitleaks(text: &str) -> Result<Self> {
        Ok(Self::of(gitleaks::read(text)?))
    }

    /// One rule, `pattern`: whatever matches this regular expression is a secret, all of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is none, when it is too large, and when it matches the empty text.
    pub fn pattern(regex: &str) -> Result<Self> {
        let parts = Parts { id: "pattern".to_owned(), description: "A given pattern".to_owned(), ..Parts::default() };
        Ok(Self::of(vec![Rule::new(parts, regex, Alphabet::Unicode)?]))
    }

    /// One rule, `literal`: these bytes are a secret.
    ///
    /// # Errors
    /// [`Error::Invalid`] for less than four bytes.
    pub fn literal(secret: impl AsRef<[u8]>) -> Result<Self> {
        let secret = secret.as_ref();
        if secret.len() < SHORTEST_LITERAL {
            let reason = format!("a secret of less than {SHORTEST_LITERAL} bytes would be found everywhere");
            return Err(Error::invalid("literal", reason));
        }
        let parts = Parts { id: "literal".to_owned(), description: "A given secret".to_owned(), ..Parts::default() };
        Ok(Self::of(vec![Rule::literal(parts, secret)?]))
    }

    /// These rules and those.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self::of_shared(self.set.rules.iter().chain(&other.set.rules).cloned().collect())
    }

    /// The ids of the rules and what each is about.
    pub fn describe(&self) -> impl Iterator<Item = (&str, &str)> {
        self.set.rules.iter().map(|rule| (rule.parts.id.as_str(), rule.parts.description.as_str()))
    }

    /// Finds all secrets in the bytes as they stand, in order.
    ///
    /// What one rule finds does not overlap; what several find may. A marker is no secret.
    pub fn find(&self, bytes: &[u8]) -> Vec<Found> {
        let spots = self.spots(bytes);
        spots.into_iter().map(|spot| Found { rule: self.id(spot.rule), range: spot.range }).collect()
    }

    /// Replaces every secret by a marker.
    ///
    /// Searched are the bytes as they stand; every string in them with its escapes undone, keys of objects included, where
    /// they are JSON or lines of JSON; what such a string holds, JSON again or not, in the same way, eight levels deep (two in a
    /// string of more than 16 MiB); the bytes that an imported row of a database has for `{"hex":"…"}`, which are digits again
    /// where they were; and text that is no JSON with escapes undone all the same. Not searched are base64 and other encodings,
    /// beyond what a rule says of them.
    ///
    /// Promised of [`Masked::Masked`]: the same search finds nothing more; lines and values that were JSON are JSON, with the
    /// same objects, arrays and numbers of members (a number that was a secret is a string now); bytes outside of secrets are as they
    /// were. Each promise is checked before the answer is given.
    pub fn mask(&self, bytes: &[u8]) -> Masked {
        mask::mask(self, bytes)
    }

    /// The text without its secrets; `None` when there is none in it.
    pub fn mask_text(&self, text: &str) -> Option<String> {
        match self.mask(text.as_bytes()) {
            Masked::NothingFound => None,
            Masked::Masked { bytes, .. } => Some(String::from_utf8(bytes).unwrap_or_else(|_| marker::WHOLE.to_owned())),
            Masked::CannotMask => Some(marker::WHOLE.to_owned()),
        }
    }

    /// What stands in the place of content that can't be masked in part.
    pub fn whole_marker() -> &'static str {
        marker::WHOLE
    }

    fn of(rules: Vec<Rule>) -> Self {
        Self::of_shared(rules.into_iter().map(Arc::new).collect())
    }

    fn of_shared(rules: Vec<Arc<Rule>>) -> Self {
        let (mut by_word, mut anywhere) = (BTreeMap::<&[u8], Vec<usize>>::new(), Vec::new());
        for (number, rule) in rules.iter().enumerate() {
            match &rule.seek {
                Seek::Beginnings(words, _) | Seek::Openings(words) | Seek::Keywords(words) => {
                    words.iter().for_each(|word| by_word.entry(word).or_default().push(number));
                }
                Seek::Anywhere => anywhere.push(number),
            }
        }
        let words = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(by_word.keys());
        let by_word: Vec<Vec<usize>> = by_word.into_values().collect();
        let words = match words {
            Ok(_) if by_word.is_empty() => None,
            Ok(words) => Some(words),
            Err(_) => {
                // Too many words for one table: then every rule is tried everywhere, which is slow and finds the same.
                anywhere = (0..rules.len()).collect();
                None
            }
        };
        let shortest = rules.iter().map(|rule| rule.shortest).min().unwrap_or(usize::MAX);
        let ids = rules.iter().map(|rule| Arc::from(rule.parts.id.as_str())).collect();
        Self { set: Arc::new(Set { rules, ids, words, by_word, anywhere, shortest }) }
    }

    fn id(&self, rule: usize) -> Arc<str> {
        self.set.ids.get(rule).cloned().unwrap_or_else(|| Arc::from(""))
    }

    /// Finds all secrets, in order.
    fn spots(&self, bytes: &[u8]) -> Vec<Spot> {
        let mut spots = Vec::new();
        if bytes.len() < self.set.shortest {
            return spots;
        }
        let mut wide: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
        let all = 0..bytes.len();
        for hit in self.set.words.iter().flat_map(|words| words.find_overlapping_iter(bytes)) {
            for number in self.set.by_word.get(hit.pattern().as_usize()).into_iter().flatten() {
                let Some(rule) = self.set.rules.get(*number) else { continue };
                match &rule.seek {
                    Seek::Beginnings(_, longest) => {
                        let found = rule.find_at(bytes, hit.start(), *longest);
                        spots.extend(found.map(|range| Spot { range, rule: *number }));
                    }
                    Seek::Openings(_) => {
                        widen(wide.entry(*number).or_default(), hit.start()..all.end.min(Rule::reach(hit.start())));
                    }
                    Seek::Keywords(_) | Seek::Anywhere => widen(wide.entry(*number).or_default(), all.clone()),
                }
            }
        }
        wide.extend(self.set.anywhere.iter().map(|number| (*number, vec![all.clone()])));
        for (number, parts) in wide {
            let Some(rule) = self.set.rules.get(number) else { continue };
            for part in parts {
                rule.find_in(bytes, part, &mut |range| spots.push(Spot { range, rule: number }));
            }
        }
        in_order(spots)
    }
}

/// A secret and the number of its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spot {
    range: Range<usize>,
    rule: usize,
}

/// Adds a part to those that have to be looked at; they come almost in order.
fn widen(parts: &mut Vec<Range<usize>>, part: Range<usize>) {
    match parts.last_mut() {
        Some(last) if part.start <= last.end => *last = last.start.min(part.start)..last.end.max(part.end),
        _ => parts.push(part),
    }
}

/// Sorts; of what one rule found at one place, the first counts.
fn in_order(mut spots: Vec<Spot>) -> Vec<Spot> {
    spots.sort_by_key(|spot| (spot.rule, spot.range.start, std::cmp::Reverse(spot.range.end)));
    let mut kept: Vec<Spot> = Vec::with_capacity(spots.len());
    for spot in spots {
        let is_new = kept.last().is_none_or(|last| last.rule != spot.rule || last.range.end <= spot.range.start);
        if is_new {
            kept.push(spot);
        }
    }
    kept.sort_by_key(|spot| (spot.range.start, std::cmp::Reverse(spot.range.end), spot.rule));
    kept
}
