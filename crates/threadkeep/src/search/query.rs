//! Queries: what a person typed, read as what is wanted. Every text is a query; what could not be read as one is told.

mod dates;
mod filters;
mod tokens;

use jiff::tz::TimeZone;

use crate::time::Timestamp;

pub use filters::{Filters, Has, OnPath, Sides};
use tokens::{Token, Tokens};

use super::text::{self, BREAK, NormalText};

/// How many words and phrases of a query are searched for.
pub const MAX_TERMS: usize = 64;
/// How many words of a phrase are searched for.
pub const MAX_PHRASE_WORDS: usize = 256;
/// How deep groups may lie in each other; deeper parentheses group nothing.
const MAX_DEPTH: usize = 32;
/// How many examples of what was not understood are told.
const MAX_EXAMPLES: usize = 5;
/// How many other sentences are told.
const MAX_TOLD: usize = 16;

/// What a text asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What must stand in an item.
    pub wanted: Node,
    /// What must hold for it besides.
    pub filters: Filters,
    /// What of the text could not be followed, in sentences for people.
    pub not_understood: Vec<String>,
    /// The texts that were asked for as they were typed, without quotation marks; not those that must be absent.
    pub literals: Vec<String>,
}

/// A condition on a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// All of these; always, if there are none.
    All(Vec<Self>),
    /// One of these; never, if there are none.
    Any(Vec<Self>),
    /// Not this.
    Not(Box<Self>),
    /// Words one after another in the main stream, or in the stream of parts.
    Phrase {
        /// The terms for the main stream; none that can stand there if empty.
        words: Vec<String>,
        /// The terms for the stream of parts; none that can stand there if empty.
        parts: Vec<String>,
        /// Whether the last term is only the beginning of a word.
        prefix: bool,
    },
}

impl Node {
    /// The phrases that are wanted, in order, without those that must be absent.
    pub fn phrases(&self) -> Vec<&Self> {
        let mut found = Vec::new();
        self.add_phrases(&mut found);
        found
    }

    fn add_phrases<'a>(&'a self, found: &mut Vec<&'a Self>) {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().for_each(|node| node.add_phrases(found)),
            Self::Not(_) => {}
            Self::Phrase { .. } => found.push(self),
        }
    }
}

/// Reads a query. Dates in it are meant in this time zone, and relative to this time.
pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Query {
    let mut parser = Parser::new(now, zone);
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next(parser.depth()) {
        if !parser.take(token) {
            break;
        }
    }
    parser.finish()
}

/// The phrase that a text is, whatever stands in it; `None` if it has no word.
pub fn phrase(text: &str) -> Option<Node> {
    phrase_of(&text::words(text, MAX_PHRASE_WORDS), false)
}

/// A group of the query that is being read.
#[derive(Default)]
struct Group {
    nodes: Vec<Node>,
    is_negated: bool,
    /// Whether `OR` stands before what comes next.
    or: bool,
}

impl Group {
    fn add(&mut self, node: Node) {
        let last = if std::mem::take(&mut self.or) { self.nodes.pop() } else { None };
        self.nodes.push(match last {
            None => node,
            Some(Node::Any(mut nodes)) => {
                nodes.push(node);
                Node::Any(nodes)
            }
            Some(last) => Node::Any(vec![last, node]),
        });
    }

    fn node(mut self) -> Option<Node> {
        let node = if self.nodes.len() > 1 { Node::All(self.nodes) } else { self.nodes.pop()? };
        Some(if self.is_negated { Node::Not(Box::new(node)) } else { node })
    }
}

struct Parser<'a> {
    dates: dates::Calendar<'a>,
    groups: Vec<Group>,
    filters: filters::Reading,
    terms: usize,
    literals: Vec<String>,
    told: Vec<String>,
    without_words: Vec<String>,
}

impl<'a> Parser<'a> {
    fn new(now: Timestamp, zone: &'a TimeZone) -> Self {
        Self {
            dates: dates::Calendar::new(now, zone),
            groups: vec![Group::default()],
            filters: filters::Reading::default(),
            terms: 0,
            literals: Vec::new(),
            told: Vec::new(),
            without_words: Vec::new(),
        }
    }

    fn depth(&self) -> usize {
        self.groups.len() - 1
    }

    /// Takes the next token; `false` when no more are taken.
    fn take(&mut self, token: Token<'_>) -> bool {
        match token {
            Token::Open { is_negated } => self.open(is_negated),
            Token::Close => self.close(),
            Token::Or => self.or(),
            Token::And => {}
            Token::Unclosed(quote) => {
                self.tell(format!("{quote} has no other quotation mark after it, so it was left out."));
            }
            Token::Filter { is_negated, key, value } => self.filter(is_negated, key, value),
            Token::Term { is_negated, text, is_quoted, prefix } => {
                return self.term(is_negated, text, is_quoted, prefix);
            }
        }
        true
    }

    fn open(&mut self, is_negated: bool) {
        if self.depth() < MAX_DEPTH {
            self.groups.push(Group { is_negated, ..Group::default() });
        }
    }

    fn close(&mut self) {
        if self.groups.len() < 2 {
            return;
        }
        let Some(group) = self.groups.pop() else { return };
        let was_open = group.or;
        let node = group.node();
        if was_open {
            self.tell_or();
        }
        if let (Some(node), Some(outer)) = (node, self.groups.last_mut()) {
            outer.add(node);
        }
    }

    fn or(&mut self) {
        match self.groups.last_mut() {
            Some(group) if !group.nodes.is_empty() => group.or = true,
            _ => self.tell_or(),
        }
    }

    fn filter(&mut self, is_negated: bool, key: filters::Key, value: &str) {
        if self.groups.len() > 1 || self.groups.last().is_some_and(|group| group.or) {
            self.tell(format!(
                "`{}:` holds for the whole query, also inside of parentheses or beside `OR`.",
                key.name()
            ));
        }
        if let Err(sentence) = self.filters.add(is_negated, key, value, &self.dates) {
            self.tell(sentence);
        }
    }

    fn term(&mut self, is_negated: bool, text: &str, is_quoted: bool, prefix: bool) -> bool {
        let mut read = text::words(text, MAX_PHRASE_WORDS + 1);
        if read.words.is_empty() {
            self.without_words.push(shortened(text));
            self.without_words.truncate(MAX_EXAMPLES + 1);
            return true;
        }
        if self.terms == MAX_TERMS {
            self.tell(format!("Only the first {MAX_TERMS} words and phrases were searched for."));
            return false;
        }
        if read.words.len() > MAX_PHRASE_WORDS {
            self.tell(format!("Only the first {MAX_PHRASE_WORDS} words of a phrase were searched for."));
            read = text::words(text, MAX_PHRASE_WORDS);
        }
        if let Some(key) =
            filters::Key::of(text.trim_end_matches([':', '：'])).filter(|_| !is_quoted && text.ends_with([':', '：']))
        {
            self.tell(format!("`{0}:` has no value after it, so `{0}` was searched for as a word.", key.name()));
        }
        self.terms += 1;
        let Some(node) = phrase_of(&read, prefix || (!is_quoted && is_short_hash(text))) else { return true };
        if !is_negated && !self.groups.iter().any(|group| group.is_negated) {
            self.literals.push(text.to_owned());
        }
        if let Some(group) = self.groups.last_mut() {
            group.add(if is_negated { Node::Not(Box::new(node)) } else { node });
        }
        true
    }

    fn finish(mut self) -> Query {
        while self.groups.len() > 1 {
            self.close();
        }
        let group = self.groups.pop().unwrap_or_default();
        if group.or {
            self.tell_or();
        }
        if !self.without_words.is_empty() {
            let sentence = without_words(&self.without_words);
            self.tell(sentence);
        }
        let is_nothing = group.nodes.is_empty() && self.filters.is_empty();
        let wanted = match group.nodes {
            // Something was asked for that nothing can be found by: not everything, then.
            _ if is_nothing && !self.told.is_empty() => Node::Any(Vec::new()),
            mut nodes if nodes.len() == 1 => nodes.pop().unwrap_or(Node::All(Vec::new())),
            nodes => Node::All(nodes),
        };
        Query { wanted, filters: self.filters.finish(), not_understood: self.told, literals: self.literals }
    }

    fn tell_or(&mut self) {
        self.tell("`OR` needs a word on both sides, so it was left out.".to_owned());
    }

    fn tell(&mut self, sentence: String) {
        if self.told.len() < MAX_TOLD && !self.told.contains(&sentence) {
            self.told.push(sentence);
        }
    }
}

fn without_words(texts: &[String]) -> String {
    let shown: Vec<String> = texts.iter().take(MAX_EXAMPLES).map(|text| format!("`{text}`")).collect();
    let more = if texts.len() > MAX_EXAMPLES { " and more" } else { "" };
    format!("{}{more}: no letter, digit or emoji to search for.", shown.join(", "))
}

/// What is told of a text: no more than fits into a sentence, and nothing that steers a terminal.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = text.chars().take(SHOWN).map(super::snippet::visible).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// The condition that words are as a phrase.
fn phrase_of(read: &NormalText, prefix: bool) -> Option<Node> {
    let mut words: Vec<String> = read.words.iter().map(|word| word.term.to_owned()).collect();
    let pieces: Vec<&str> = read.parts.iter().map(|word| word.term).collect();
    let mut parts = match words.as_slice() {
        [] => return None,
        _ if words.iter().any(|word| text::stands_alone(word)) => Vec::new(),
        [_] if pieces.is_empty() => words.clone(),
        [_] => pieces.rsplit(|piece| *piece == BREAK).next()?.iter().map(|piece| (*piece).to_owned()).collect(),
        _ if pieces.is_empty() => words.clone(),
        _ => Vec::new(),
    };
    // A name such as `c++` is one term there, and its letter alone is not what is meant.
    if words.len() == 1 && parts.iter().any(|part| part.ends_with(['+', '#'])) {
        words.clear();
        parts.truncate(1);
    }
    Some(Node::Phrase { words, parts, prefix })
}

/// Whether a text looks like the beginning of a hash, as tools print it.
fn is_short_hash(text: &str) -> bool {
    let mut has = (false, false);
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' => has.0 = true,
            b'a'..=b'f' | b'A'..=b'F' => has.1 = true,
            _ => return false,
        }
    }
    has == (true, true) && (7..40).contains(&text.len())
}

#[cfg(test)]
mod tests {
    use super::{Filters, Has, MAX_TERMS, Node, OnPath, Query, parse, phrase};
    use crate::item::{Kind, Role};
    use crate::time::Timestamp;
    use jiff::tz::TimeZone;

    fn read(text: &str) -> Query {
        parse(text, Timestamp::parse("2026-11-30T09:30:00Z").unwrap(), &TimeZone::UTC)
    }

    /// A condition on one line: `&(a b)`, `|(a b)`, `-a`, phrases as `a+b`, and their parts after a slash if they are others.
    fn shown(node: &Node) -> String {
        let list = |nodes: &[Node]| nodes.iter().map(shown).collect::<Vec<_>>().join(" ");
        match node {
            Node::All(nodes) => format!("&({})", list(nodes)),
            Node::Any(nodes) => format!("|({})", list(nodes)),
            Node::Not(node) => format!("-{}", shown(node)),
            Node::Phrase { words, parts, prefix } => {
                let star = if *prefix { "*" } else { "" };
                let parts = if parts == words { String::new() } else { format!("/{}", parts.join("+")) };
                format!("{}{parts}{star}", words.join("+"))
            }
        }
    }

    #[test]
    fn words_phrases_and_operators_are_read() {
        for (text, wanted) in [
            ("", "&()"),
            ("  \t\n", "&()"),
            ("timeout", "timeout"),
            ("Timeout login", "&(timeout login)"),
            ("\"connection reset\" -windows", "&(connection+reset -windows)"),
            ("pars*", "pars*"),
            ("\"foo ba\"*", "foo+ba*"),
            ("don't wrong-book a/b", "&(don+t wrong+book a+b)"),
            ("--flag -> -", "flag"),
            ("-\"a b\" c", "&(-a+b c)"),
            ("a OR b", "|(a b)"),
            ("x a OR b OR c y", "&(x |(a b c) y)"),
            ("a | b || c", "|(a b c)"),
            ("ls|grep", "ls+grep"),
            ("a AND b", "&(a b)"),
            ("or and not", "&(or and not)"),
            ("NOT NULL", "&(not null)"),
            ("(a b) OR c", "|(&(a b) c)"),
            ("x -(a OR b)", "&(x -|(a b))"),
            ("((a) b", "&(a b)"),
            ("main() foo(bar)", "&(main foo+bar)"),
            ("(main() OR foo(x))", "|(main foo+x)"),
            ("parseHttpRequest", "parsehttprequest/parse+http+request"),
            ("httpReq*", "httpreq/http+req*"),
            ("\"GitHub release\"", "github+release/"),
            ("c++ C#", "&(/c++ /c#)"),
            ("c++17", "c+17/"),
            ("1a2b3c4d", "1a2b3c4d*"),
            ("\"1a2b3c4d\"", "1a2b3c4d"),
            ("deadbeef 1234567", "&(deadbeef 1234567)"),
            ("#123 src/main.rs:42", "&(123 src+main+rs+42)"),
            ("https://x.y/z?a=b", "https+x+y+z+a+b"),
            ("数据库 错误", "&(数+据+库/ 错+误/)"),
            ("登录，失败。", "&(登+录/ 失+败/)"),
            ("「接続 エラー」", "接+続+エ+ラ+ー/"),
            ("“smart quotes” „auch so“", "&(smart+quotes auch+so)"),
            ("say\"hello world\"", "&(say hello+world)"),
            ("🚀 deploy", "&(🚀/ deploy)"),
            ("a\0b\u{7}c", "&(a b c)"),
            ("std::fs::read note:x", "&(std+fs+read note+x)"),
            ("\"role: user\"", "role+user"),
            ("－negated", "-negated"),
        ] {
            let query = read(text);
            assert_eq!(shown(&query.wanted), wanted, "{text}");
            assert_eq!(query.filters, Filters::default(), "{text}");
        }
    }

    #[test]
    fn filters_are_read_and_are_no_words() {
        let query = read(
            "fix role:user -kind:event,result tool:Bash agent:Codex workspace:/a/b thread:0198 title:\"login bug\" has:error path:active",
        );
        assert_eq!(shown(&query.wanted), "fix");
        assert!(query.not_understood.is_empty(), "{:?}", query.not_understood);
        let filters = query.filters;
        assert_eq!(filters.role.any, [Role::User]);
        assert_eq!(filters.kind.none, [Kind::Event, Kind::ToolResult]);
        assert_eq!(filters.tool.any, ["bash"]);
        assert_eq!(filters.agent.any, ["codex"]);
        assert_eq!(filters.workspace.any, ["/a/b"]);
        assert_eq!(filters.thread.any, ["0198"]);
        assert_eq!(filters.title.any, [phrase("login bug").unwrap()]);
        assert_eq!(filters.has.any, [Has::Error]);
        assert_eq!(filters.path, Some(OnPath::Active));

        let two = read("Role：user role:assistant -path:active").filters;
        assert_eq!(two.role.any, [Role::User, Role::Assistant]);
        assert_eq!(two.path, Some(OnPath::Beside));
        assert!(two.role.admits(|role| *role == Role::User));
        assert!(!two.role.admits(|role| *role == Role::Tool));
    }

    #[test]
    fn times_of_one_filter_are_an_or_and_negated_ones_are_the_other_side() {
        let time = |text: &str| Timestamp::parse(text);
        let november = read("after:2026-11 before:2026-12").filters;
        assert_eq!((november.from, november.until), (time("2026-11-01T00:00:00Z"), time("2026-12-01T00:00:00Z")));
        let widest = read("after:2026-11-03 after:2026-11-01").filters;
        assert_eq!((widest.from, widest.until), (time("2026-11-01T00:00:00Z"), None));
        let other = read("-after:2026-11-03 -before:2026-11-01").filters;
        assert_eq!((other.from, other.until), (time("2026-11-01T00:00:00Z"), time("2026-11-03T00:00:00Z")));
    }

    #[test]
    fn what_is_not_understood_is_told_and_asks_for_nothing() {
        for (text, told) in [
            ("a after:whenever", "`after:whenever` is no date"),
            ("a has:everything", "`has:everything` is no word that is known"),
            ("a role:usr", "`role:usr` is no word that is known"),
            ("a path:x", "`path:x` is no path"),
            ("a title:\"--\"", "`title:--` has no letter"),
            ("a :: ->", "`::`, `->`: no letter, digit or emoji"),
            ("a OR", "`OR` needs a word on both sides"),
            ("OR a", "`OR` needs a word on both sides"),
            ("a \"b c", "\" has no other quotation mark after it"),
            ("a OR role:user b", "`role:` holds for the whole query"),
            ("a role:", "`role:` has no value"),
        ] {
            let query = read(text);
            assert!(
                query.not_understood.iter().any(|sentence| sentence.starts_with(told)),
                "{text}: {:?}",
                query.not_understood
            );
        }
        assert_eq!(read("-> ::").wanted, Node::Any(vec![]), "punctuation is not everything");
        assert_eq!(read("after:whenever").wanted, Node::Any(vec![]));
        assert_eq!(read("role:user").wanted, Node::All(vec![]));
        assert!(
            read("\u{1b}[31m\u{202e}x after:\u{202e}").not_understood.iter().all(|told| !told.contains('\u{202e}'))
        );
    }

    #[test]
    fn limits_are_told() {
        let many = (0..100).map(|number| format!("w{number} ")).collect::<String>();
        let query = read(&many);
        assert_eq!(query.wanted.phrases().len(), MAX_TERMS);
        assert!(query.not_understood[0].starts_with("Only the first 64 words"));
        let long = read(&format!("\"{}\"", "word ".repeat(1_000)));
        assert!(matches!(&long.wanted, Node::Phrase { words, .. } if words.len() == 256));
        assert!(long.not_understood[0].starts_with("Only the first 256 words of a phrase"));
    }

    #[test]
    fn literals_are_what_was_typed() {
        assert_eq!(
            read("don't -x \"a  B\" pre* role:user (c++ OR 数据)").literals,
            ["don't", "a  B", "pre", "c++", "数据"]
        );
    }

    #[test]
    fn a_megabyte_of_anything_is_a_query() {
        for piece in
            ["「", "\"", "(", ")", "-", "a ", "a", "*", ":", "OR ", "\u{301}", "」「", "role:", "中", "\0", "(-\"", "|"]
        {
            let text = piece.repeat(1_000_000 / piece.len());

            let query = read(&text);
            assert!(query.wanted.phrases().len() <= MAX_TERMS);
            assert!(query.not_understood.len() <= 17);
        }
    }
}
