//! A literal text found in another one, whatever its case, its accents and its width, with exact places.

use std::collections::VecDeque;
use std::ops::Range;

use super::text::{Source, folded_unit};

/// Where a literal text stands in another: places in order that do not overlap.
///
/// What stands there is compared as words are: case, accents and width make no difference; spaces and punctuation count.
/// A place is never a part of a character: `s` is not found in `ß`, `ss` is. Linear in the text, whatever it is; memory is as
/// long as what is looked for.
pub fn find<'a>(text: &'a str, wanted: &str) -> impl Iterator<Item = Range<usize>> + 'a {
    Finds::new(text, wanted)
}

/// The search of Knuth, Morris and Pratt over folded characters.
struct Finds<'a> {
    source: Source<'a>,
    /// Where the next unit begins.
    at: usize,
    wanted: Vec<char>,
    /// For each beginning of `wanted`, how long the longest one is that it also ends with.
    fallbacks: Vec<usize>,
    matched: usize,
    /// Where the last characters are from, and whether they are the first of their unit: as many as are wanted.
    recent: VecDeque<(usize, bool)>,
    unit: Vec<char>,
    /// How many characters of the unit are read.
    read: usize,
    unit_start: usize,
}

impl<'a> Finds<'a> {
    fn new(text: &'a str, wanted: &str) -> Self {
        let wanted = folded_chars(wanted);
        Self {
            source: Source::plain(text),
            at: 0,
            fallbacks: fallbacks(&wanted),
            wanted,
            matched: 0,
            recent: VecDeque::new(),
            unit: Vec::new(),
            read: 0,
            unit_start: 0,
        }
    }

    /// Reads one folded character; a place, if what is wanted ends with it.
    fn take(&mut self, c: char) -> Option<Range<usize>> {
        let is_first = self.read == 0;
        self.read += 1;
        if self.recent.len() == self.wanted.len() {
            self.recent.pop_front();
        }
        self.recent.push_back((self.unit_start, is_first));
        while self.matched > 0 && self.wanted.get(self.matched) != Some(&c) {
            self.matched = self.fallbacks.get(self.matched - 1).copied().unwrap_or(0);
        }
        if self.wanted.get(self.matched) == Some(&c) {
            self.matched += 1;
        }
        if self.matched < self.wanted.len() {
            return None;
        }
        let (start, begins_unit) = self.recent.front().copied()?;
        if begins_unit && self.read == self.unit.len() {
            self.matched = 0;
            self.recent.clear();
            self.take_accents();
            return Some(start..self.at);
        }
        self.matched = self.fallbacks.last().copied().unwrap_or(0);
        None
    }

    /// Reads the next unit; `false` at the end.
    fn read_unit(&mut self) -> bool {
        self.unit.clear();
        self.read = 0;
        self.unit_start = self.at;
        let Some(end) = folded_unit(self.source, self.at, &mut self.unit) else { return false };
        self.at = end;
        true
    }

    /// Goes on over the accents that belong to the character before them.
    fn take_accents(&mut self) {
        while self.source.byte(self.at).is_some_and(|byte| byte >= 0x80) {
            let before = self.at;
            if !self.read_unit() || !self.unit.is_empty() {
                self.at = before;
                break;
            }
        }
        self.unit.clear();
        self.read = 0;
    }
}

impl Iterator for Finds<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.wanted.is_empty() {
            return None;
        }
        loop {
            while let Some(c) = self.unit.get(self.read).copied() {
                if let Some(found) = self.take(c) {
                    return Some(found);
                }
            }
            if !self.read_unit() {
                return None;
            }
        }
    }
}

fn folded_chars(text: &str) -> Vec<char> {
    let (mut chars, mut at) = (Vec::new(), 0);
    while let Some(end) = folded_unit(Source::plain(text), at, &mut chars) {
        at = end;
    }
    // Accents alone are looked for as they are: nothing of them, which is nowhere.
    chars
}

fn fallbacks(wanted: &[char]) -> Vec<usize> {
    let mut fallbacks = vec![0; wanted.len().min(1)];
    let mut matched: usize = 0;
    for c in wanted.iter().skip(1) {
        while matched > 0 && wanted.get(matched) != Some(c) {
            matched = fallbacks.get(matched - 1).copied().unwrap_or(0);
        }
        matched += usize::from(wanted.get(matched) == Some(c));
        fallbacks.push(matched);
    }
    fallbacks
}

#[cfg(test)]
mod tests {
    use super::find;

    fn found(text: &str, wanted: &str) -> Vec<String> {
        find(text, wanted).map(|place| text[place].to_owned()).collect()
    }

    #[test]
    fn case_accents_and_width_make_no_difference_and_places_are_exact() {
        for (text, wanted, places) in [
            ("Error: ERROR (error)", "error", vec!["Error", "ERROR", "error"]),
            ("fn main() { Main() }", "MAIN()", vec!["main()", "Main()"]),
            ("Straße STRASSE", "strasse", vec!["Straße", "STRASSE"]),
            ("aßb", "s", vec![]),
            ("aßb", "ß", vec!["ß"]),
            ("ﬁle of ﬁ", "fi", vec!["ﬁ", "ﬁ"]),
            ("ﬁle", "f", vec![]),
            ("İstanbul istanbul ISTANBUL", "istanbul", vec!["İstanbul", "istanbul", "ISTANBUL"]),
            ("cafe\u{301}s CAFÉ", "café", vec!["cafe\u{301}", "CAFÉ"]),
            ("ＦＵＬＬ：１２", "full:12", vec!["ＦＵＬＬ：１２"]),
            ("１＋１＝２ ￥５", "1+1=2 ¥5", vec!["１＋１＝２ ￥５"]),
            ("aaaa", "aa", vec!["aa", "aa"]),
            ("abababac", "ababac", vec!["ababac"]),
            ("ssß sß", "sß", vec!["sß", "sß"]),
            ("数据库错误", "错误", vec!["错误"]),
            ("がか\u{3099}", "が", vec!["が", "か\u{3099}"]),
            ("がか\u{3099}", "か", vec![]),
            ("a\nb a b", "a b", vec!["a b"]),
            ("any", "", vec![]),
            ("e\u{301}", "\u{301}", vec![]),
        ] {
            assert_eq!(found(text, wanted), places, "{wanted} in {text}");
        }
    }
}
