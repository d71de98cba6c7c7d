//! One rule: a pattern, what around it makes it a secret, and how it is looked for.

use std::ops::Range;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use regex_automata::meta::{self, Regex};
use regex_automata::util::captures::Captures;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use crate::error::{Error, Result};
use crate::secrets::marker;

/// The longest match of a rule whose pattern has no bound of its own.
const LONGEST_MATCH: usize = 1 << 20;
/// Up to this length a match is tried at every place where it may begin.
const LONGEST_TRY: usize = 8 << 10;
/// How much memory a pattern may take when it is compiled.
const PATTERN_BYTES: usize = 10 << 20;
/// How much of a line is looked at on each side of a match.
const LINE_BYTES: usize = 512;
/// More beginnings than this are not worth looking for.
const MOST_BEGINNINGS: usize = 64;
const SHORTEST_BEGINNING: usize = 2;

/// What a rule is made of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) id: String,
    pub(super) description: String,
    /// Words of which one must occur in the text, in any case.
    pub(super) keywords: Vec<String>,
    /// The entropy that the secret must exceed, in bits for each byte.
    pub(super) entropy: f64,
    pub(super) secret: SecretGroup,
    pub(super) allowed: Vec<Arc<Allowed>>,
}

/// What of a match is the secret.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum SecretGroup {
    /// All of it.
    #[default]
    Whole,
    /// The first group that is not empty, or all of it where there is none.
    First,
    /// This group.
    Number(usize),
}

/// A compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) parts: Parts,
    pub(super) seek: Seek,
    /// The length of the shortest match.
    pub(super) shortest: usize,
    regex: Regex,
    /// What was cut off the front of the pattern, which any text meets.
    lead: Option<Lead>,
}

/// How the places are found where a rule may match.
#[derive(Debug)]
pub(super) enum Seek {
    /// A match begins with one of these (in any case) and is at most so long.
    Beginnings(Vec<Vec<u8>>, usize),
    /// A match begins with one of these (in any case).
    Openings(Vec<Vec<u8>>),
    /// The text holds one of these (in any case).
    Keywords(Vec<Vec<u8>>),
    /// Nothing is known.
    Anywhere,
}

/// Optional letters in front of a match. They decide nothing, but belong to what an allowlist looks at.
#[derive(Debug)]
struct Lead {
    letters: Box<[bool; 256]>,
    most: usize,
}

/// What is no secret after all.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    pub(super) target: Target,
    pub(super) regexes: Vec<Regex>,
    /// Words in the secret, in any case.
    pub(super) words: Option<AhoCorasick>,
    /// Whether a regex and a word must both be found.
    pub(super) both: bool,
}

/// What the regexes of an allowlist look at.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Target {
    #[default]
    Secret,
    Match,
    Line,
}

/// Which letters a pattern is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// `\w`, `.` and the like are about bytes.
    Bytes,
    /// They are about Unicode.
    Unicode,
}

impl Rule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pattern that is none, that is too large, or that matches the empty text.
    pub(super) fn new(parts: Parts, pattern: &str, alphabet: Alphabet) -> Result<Self> {
        let hir = parse(&parts.id, pattern, alphabet)?;
        Self::from_hir(parts, &hir)
    }

    /// A rule that finds these bytes.
    pub(super) fn literal(parts: Parts, bytes: &[u8]) -> Result<Self> {
        Self::from_hir(parts, &Hir::literal(bytes))
    }

    fn from_hir(parts: Parts, hir: &Hir) -> Result<Self> {
        let (lead, hir) = without_lead(hir);
        let shortest = hir.properties().minimum_len().unwrap_or(0);
        if shortest == 0 {
            return Err(invalid(&parts.id, "it matches the empty text"));
        }
        let seek = seek(&hir, &parts.keywords);
        let regex = compile(&parts.id, &hir)?;
        if let SecretGroup::Number(number) = parts.secret
            && number >= regex.group_info().group_len(regex_automata::PatternID::ZERO)
        {
            return Err(invalid(&parts.id, "it has no group of the number of `secretGroup`"));
        }
        Ok(Self { parts, seek, shortest, regex, lead })
    }

    /// Memory that searching needs.
    pub(super) fn captures(&self) -> Captures {
        self.regex.create_captures()
    }

    /// The secret of a match that begins just here, if one does.
    pub(super) fn find_at(&self, text: &[u8], at: usize, longest: usize) -> Option<Range<usize>> {
        let end = text.len().min(at.saturating_add(longest));
        let input = Input::new(text).range(at..end).anchored(Anchored::Yes);
        if !self.regex.is_match(input.clone()) {
            return None;
        }
        let mut captures = self.captures();
        self.regex.search_captures(&input, &mut captures);
        self.secret(text, &captures)
    }

    /// Gives the secrets of all matches in a part of the text to `visit`.
    pub(super) fn find_in(&self, text: &[u8], part: Range<usize>, visit: &mut dyn FnMut(Range<usize>)) {
        let mut captures = self.captures();
        let mut at = part.start;
        while at < part.end {
            // What has no bound is looked for in pieces, so that one piece is all that a search can waste.
            let end = part.end.min(at.saturating_add(2 * LONGEST_MATCH));
            self.regex.search_captures(&Input::new(text).range(at..end), &mut captures);
            let next_piece = if end == part.end { end } else { end - LONGEST_MATCH };
            let Some(found) = captures.get_match() else {
                at = next_piece;
                continue;
            };
            if let Some(secret) = self.secret(text, &captures) {
                visit(secret);
            }
            at = found.end().max(at + 1);
        }
    }

    /// Where a match may end that begins here.
    pub(super) fn reach(at: usize) -> usize {
        at.saturating_add(LONGEST_MATCH)
    }

    /// What of a match is a secret, unless something speaks against it.
    fn secret(&self, text: &[u8], captures: &Captures) -> Option<Range<usize>> {
        let found = captures.get_match()?.range();
        let secret = match self.parts.secret {
            SecretGroup::Whole => found.clone(),
            SecretGroup::Number(number) => captures.get_group(number)?.range(),
            SecretGroup::First => {
                let groups = (1..captures.group_len()).filter_map(|number| captures.get_group(number));
                groups.map(|group| group.range()).find(|group| !group.is_empty()).unwrap_or_else(|| found.clone())
            }
        };
        let bytes = text.get(secret.clone())?;
        if bytes.is_empty() || marker::is_marker(bytes) {
            return None;
        }
        if self.parts.entropy > 0.0 && entropy(bytes) <= self.parts.entropy {
            return None;
        }
        let found = self.with_lead(text, found);
        let allowed = self.parts.allowed.iter().any(|allowed| allowed.holds(text, bytes, &found));
        (!allowed).then_some(secret)
    }

    fn with_lead(&self, text: &[u8], found: Range<usize>) -> Range<usize> {
        let Some(lead) = &self.lead else { return found };
        let before = text.get(found.start.saturating_sub(lead.most)..found.start).unwrap_or_default();
        let is_letter = |byte: &&u8| lead.letters.get(usize::from(**byte)).copied().unwrap_or(false);
        let more = before.iter().rev().take_while(is_letter).count();
        found.start - more..found.end
    }
}

impl Allowed {
    fn holds(&self, text: &[u8], secret: &[u8], found: &Range<usize>) -> bool {
        let by_word = || self.words.as_ref().is_some_and(|words| words.is_match(secret));
        let looked_at = match self.target {
            Target::Secret => secret,
            Target::Match => text.get(found.clone()).unwrap_or_default(),
            Target::Line => line(text, found),
        };
        let by_regex = || self.regexes.iter().any(|regex| regex.is_match(looked_at));
        if self.both { by_word() && by_regex() } else { by_word() || by_regex() }
    }
}

/// Compiles a pattern that decides what is allowed.
pub(super) fn allowed_regex(id: &str, pattern: &str) -> Result<Regex> {
    let hir = parse(id, pattern, Alphabet::Bytes)?;
    compile(id, &hir)
}

/// Shannon's entropy, in bits for each byte.
pub(super) fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let all = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let shares = counts.into_iter().filter(|count| *count > 0).map(|count| f64::from(count) / all);
    shares.map(|share| -share * share.log2()).sum()
}

fn parse(id: &str, pattern: &str, alphabet: Alphabet) -> Result<Hir> {
    let read = |unicode| {
        let parsed = ParserBuilder::new().utf8(false).unicode(unicode).build().parse(pattern);
        parsed.map_err(|error| invalid(id, &error.to_string()))
    };
    match alphabet {
        // A class of letters beyond ASCII is about Unicode whatever was asked for.
        Alphabet::Bytes => read(false).or_else(|_| read(true)),
        Alphabet::Unicode => read(true),
    }
}

fn compile(id: &str, hir: &Hir) -> Result<Regex> {
    let config = meta::Config::new()
        .utf8_empty(false)
        .match_kind(MatchKind::LeftmostFirst)
        .nfa_size_limit(Some(PATTERN_BYTES))
        .hybrid_cache_capacity(1 << 20);
    let regex = Regex::builder().configure(config).build_from_hir(hir);
    regex.map_err(|error| invalid(id, &format!("it is too large: {error}")))
}

fn invalid(id: &str, reason: &str) -> Error {
    Error::invalid("rule", format!("the pattern of `{id}`: {reason}"))
}

/// How to look for what matches this.
fn seek(hir: &Hir, keywords: &[String]) -> Seek {
    let mut extractor = Extractor::new();
    extractor.kind(ExtractKind::Prefix).limit_class(10).limit_repeat(4).limit_literal_len(24).limit_total(512);
    let found = extractor.extract(&folded(hir));
    let beginnings = found.literals().map(|literals| {
        let mut beginnings: Vec<_> = literals.iter().map(|literal| literal.as_bytes().to_ascii_lowercase()).collect();
        beginnings.sort();
        beginnings.dedup();
        beginnings
    });
    let is_useful = |beginnings: &Vec<Vec<u8>>| {
        !beginnings.is_empty()
            && beginnings.len() <= MOST_BEGINNINGS
            && beginnings.iter().all(|beginning| beginning.len() >= SHORTEST_BEGINNING)
    };
    match (beginnings.filter(is_useful), hir.properties().maximum_len()) {
        (Some(beginnings), Some(longest)) if longest <= LONGEST_TRY => Seek::Beginnings(beginnings, longest),
        (Some(beginnings), _) => Seek::Openings(beginnings),
        (None, _) if !keywords.is_empty() => {
            Seek::Keywords(keywords.iter().map(|word| word.to_ascii_lowercase().into_bytes()).collect())
        }
        (None, _) => Seek::Anywhere,
    }
}

/// The same pattern in lower case, where a letter in either case is one letter.
fn folded(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Literal(literal) => Hir::literal(literal.0.to_ascii_lowercase()),
        HirKind::Class(class) => match one_letter(class) {
            Some(letter) => Hir::literal([letter]),
            None => hir.clone(),
        },
        HirKind::Repetition(repetition) => {
            Hir::repetition(Repetition { sub: Box::new(folded(&repetition.sub)), ..repetition.clone() })
        }
        HirKind::Capture(capture) => folded(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(folded).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(folded).collect()),
        HirKind::Empty | HirKind::Look(_) => hir.clone(),
    }
}

/// The letter that a class holds in both cases and nothing else.
fn one_letter(class: &Class) -> Option<u8> {
    let letters: Vec<u8> = match class {
        Class::Bytes(class) => {
            class.iter().flat_map(|range| range.start()..=range.end()).map(|byte| byte.to_ascii_lowercase()).collect()
        }
        Class::Unicode(class) => {
            let letters = class.iter().map(|range| {
                let is_ascii_letter = range.start() == range.end() && range.start().is_ascii();
                is_ascii_letter.then(|| range.start().to_ascii_lowercase()).and_then(|letter| u8::try_from(letter).ok())
            });
            letters.collect::<Option<Vec<u8>>>()?
        }
    };
    let first = *letters.first()?;
    letters.iter().all(|letter| *letter == first).then_some(first)
}

/// Takes an optional beginning off a pattern, which changes where a match begins and not whether there is one.
fn without_lead(hir: &Hir) -> (Option<Lead>, Hir) {
    match hir.kind() {
        HirKind::Concat(parts) => {
            let leads: Vec<&Repetition> = parts.iter().map_while(as_lead).collect();
            let Some(first) = leads.first() else { return (None, hir.clone()) };
            let most = leads.iter().filter_map(|lead| lead.max).sum::<u32>();
            let lead = Lead { letters: letters(&first.sub), most: usize::try_from(most).unwrap_or(usize::MAX) };
            (Some(lead), Hir::concat(parts.iter().skip(leads.len()).cloned().collect()))
        }
        HirKind::Alternation(parts) => {
            let mut lead = None;
            let parts = parts.iter().map(|part| {
                let (of_part, part) = without_lead(part);
                lead = lead.take().or(of_part);
                part
            });
            let parts = parts.collect();
            (lead, Hir::alternation(parts))
        }
        _ => (None, hir.clone()),
    }
}

/// A run of letters that may be missing, and that is as short as it can be.
fn as_lead(hir: &Hir) -> Option<&Repetition> {
    match hir.kind() {
        HirKind::Repetition(repetition)
            if repetition.min == 0
                && !repetition.greedy
                && repetition.max.is_some()
                && matches!(repetition.sub.kind(), HirKind::Class(_)) =>
        {
            Some(repetition)
        }
        _ => None,
    }
}

fn letters(class: &Hir) -> Box<[bool; 256]> {
    let mut letters = Box::new([false; 256]);
    if let HirKind::Class(Class::Bytes(class)) = class.kind() {
        for byte in class.iter().flat_map(|range| range.start()..=range.end()) {
            if let Some(letter) = letters.get_mut(usize::from(byte)) {
                *letter = true;
            }
        }
    }
    letters
}

/// The line that a match stands on, or what of it is near.
fn line<'a>(text: &'a [u8], found: &Range<usize>) -> &'a [u8] {
    let before = text.get(found.start.saturating_sub(LINE_BYTES)..found.start).unwrap_or_default();
    let after = text.get(found.end..text.len().min(found.end + LINE_BYTES)).unwrap_or_default();
    let start = found.start - before.iter().rev().take_while(|byte| **byte != b'\n').count();
    let end = found.end + after.iter().take_while(|byte| **byte != b'\n').count();
    text.get(start..end).unwrap_or_default()
}
