//! A query cut into what it is made of. Linear in its text, whatever that is.

use super::filters::Key;

/// A part of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A group begins.
    Open { is_negated: bool },
    /// A group ends.
    Close,
    /// `OR`, or `|` by itself.
    Or,
    /// `AND`, which is the rule anyway.
    And,
    /// A quotation mark without another.
    Unclosed(char),
    /// A filter with its value.
    Filter { is_negated: bool, key: Key, value: &'a str },
    /// A word, or a phrase.
    Term { is_negated: bool, text: &'a str, is_quoted: bool, prefix: bool },
}

/// The tokens of a text.
pub(super) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    /// Where the last mark of each kind stands that can end a quotation.
    last_closing: [Option<usize>; 3],
}

const MARKS: [[&[char]; 2]; 3] = [
    [&['"', '“', '”', '„', '‟', '＂', '«', '»'], &['"', '“', '”', '„', '‟', '＂', '«', '»']],
    [&['「'], &['」']],
    [&['『'], &['』']],
];

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let last_closing = MARKS.map(|[_, closing]| text.rfind(closing));
        Self { text, at: 0, last_closing }
    }

    /// The next token, inside of so many groups.
    pub(super) fn next(&mut self, depth: usize) -> Option<Token<'a>> {
        self.skip(is_space);
        let first = self.peek()?;
        if matches!(first, ')' | '）') && depth > 0 {
            self.skip_one();
            return Some(Token::Close);
        }
        let is_negated = is_minus(first) && self.rest().chars().nth(1).is_some_and(can_be_negated);
        if is_negated {
            self.skip_one();
        }
        if matches!(self.peek()?, '(' | '（') {
            self.skip_one();
            return Some(Token::Open { is_negated });
        }
        if let Some(quoted) = self.quoted() {
            return Some(match quoted {
                Ok(text) => Token::Term { is_negated, text, is_quoted: true, prefix: self.take_star() },
                Err(mark) => Token::Unclosed(mark),
            });
        }
        let chunk = self.chunk(depth);
        if let Some(filter) = self.filter(chunk, is_negated) {
            return Some(filter);
        }
        match chunk {
            "OR" | "|" | "||" if !is_negated => return Some(Token::Or),
            "AND" | "&&" if !is_negated => return Some(Token::And),
            _ => {}
        }
        let (text, prefix) = match chunk.strip_suffix(is_star) {
            Some(text) => (text, text.chars().next_back().is_some_and(char::is_alphanumeric)),
            None => (chunk, false),
        };
        Some(Token::Term { is_negated, text: if prefix { text } else { chunk }, is_quoted: false, prefix })
    }

    /// The filter that a chunk is, with the quotation after it if that is its value.
    fn filter(&mut self, chunk: &'a str, is_negated: bool) -> Option<Token<'a>> {
        let (name, value) = chunk.split_once([':', '：'])?;
        let key = Key::of(name)?;
        if !value.is_empty() {
            return Some(Token::Filter { is_negated, key, value });
        }
        match self.quoted()? {
            Ok(value) => Some(Token::Filter { is_negated, key, value }),
            // The mark is gone; what comes after it are words.
            Err(_) => None,
        }
    }

    /// The text of the quotation that begins here; the mark alone if it has no end.
    fn quoted(&mut self) -> Option<Result<&'a str, char>> {
        let mark = self.peek()?;
        let kind = kind_of(mark)?;
        self.skip_one();
        let [_, closing] = MARKS.get(kind)?;
        if self.last_closing.get(kind).copied().flatten().is_none_or(|last| last < self.at) {
            return Some(Err(mark));
        }
        let end = self.rest().find(*closing)?;
        let text = self.rest().get(..end)?;
        self.at += end;
        self.skip_one();
        Some(Ok(text))
    }

    /// What stands here up to a space, to a quotation, or to the parentheses that close groups.
    fn chunk(&mut self, depth: usize) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| is_space(c) || kind_of(c).is_some()).unwrap_or(rest.len());
        let chunk = rest.get(..end).unwrap_or(rest);
        let kept = without_closing(chunk, depth);
        self.at += kept.len();
        kept
    }

    fn take_star(&mut self) -> bool {
        let is_there = self.peek().is_some_and(is_star);
        if is_there {
            self.skip_one();
        }
        is_there
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_one(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    fn skip(&mut self, is: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(is).len();
    }
}

/// A chunk without the parentheses at its end that close groups around it, rather than what it opened itself.
fn without_closing(chunk: &str, depth: usize) -> &str {
    if depth == 0 || !chunk.ends_with([')', '）']) {
        return chunk;
    }
    let count = |marks: [char; 2]| chunk.matches(marks).count();
    let surplus = count([')', '）']).saturating_sub(count(['(', '（'])).min(depth);
    let mut kept = chunk;
    for _ in 0..surplus {
        kept = kept.strip_suffix([')', '）']).unwrap_or(kept);
    }
    kept
}

/// What separates the parts of a query: spaces, controls, and the punctuation between clauses of Chinese and Japanese.
fn is_space(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '，' | '。' | '、' | '；' | '！' | '？' | '\u{200b}' | '\u{feff}')
}

fn is_minus(c: char) -> bool {
    matches!(c, '-' | '－' | '−' | '–')
}

/// Whether a minus before this says that it must be absent; `--flag` and `->` say nothing of the kind.
fn can_be_negated(c: char) -> bool {
    c.is_alphanumeric() || kind_of(c).is_some() || matches!(c, '(' | '（' | '_' | '.' | '/' | '#' | '@' | '\u{2190}'..)
}

fn is_star(c: char) -> bool {
    matches!(c, '*' | '＊')
}

fn kind_of(mark: char) -> Option<usize> {
    MARKS.iter().position(|[opening, _]| opening.contains(&mark))
}
