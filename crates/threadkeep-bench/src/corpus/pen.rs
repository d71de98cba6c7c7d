//! Writes text into conversations.

use std::fmt::Write as _;

use super::Language;
use super::templates::{CODE, Form, LOGS};
use super::vocabulary::{NAME_OCTAVES, Vocabulary, pick, zipf};
use crate::text::Chance;

/// Identifiers that a conversation is about: 2^6 of them.
const OWN_OCTAVES: usize = 6;

/// Writes what one conversation says.
#[derive(Debug)]
pub(super) struct Pen<'a> {
    vocabulary: &'a Vocabulary,
    chance: Chance,
    language: Language,
    /// The ranks of the identifiers that the conversation is about.
    own: Vec<usize>,
    /// Which programming language it is about.
    code: usize,
}

/// How an identifier is written.
#[derive(Debug, Clone, Copy)]
enum Style {
    Snake,
    Camel,
    Pascal,
}

impl<'a> Pen<'a> {
    pub(super) fn new(vocabulary: &'a Vocabulary, seed: u64, language: Language) -> Self {
        let mut chance = Chance::new(seed);
        let own = (0..1 << OWN_OCTAVES).map(|_| zipf(&mut chance, NAME_OCTAVES)).collect();
        let code = chance.below(CODE.len());
        Self { vocabulary, chance, language, own, code }
    }

    /// A template with its places filled.
    pub(super) fn filled(&mut self, template: &str) -> String {
        let mut out = String::with_capacity(template.len() * 2);
        self.fill(template, &mut out);
        out
    }

    pub(super) fn question(&mut self) -> String {
        let mut out = String::new();
        let sentences = 1 + self.few(4);
        self.sentences(sentences, &mut out);
        if self.chance.below(6) == 0 {
            out.push_str("\n\n```\n");
            let lines = 4 + self.few(20);
            self.lines(Form::Log, lines, &mut out);
            out.push_str("```\n");
        }
        out
    }

    pub(super) fn thought(&mut self) -> String {
        let mut out = String::new();
        let sentences = 2 + self.few(10);
        self.sentences(sentences, &mut out);
        out
    }

    pub(super) fn answer(&mut self) -> String {
        let mut out = String::new();
        for _ in 0..1 + self.few(4) {
            let sentences = 1 + self.few(4);
            self.sentences(sentences, &mut out);
            match self.chance.below(6) {
                0 => {
                    out.push_str("\n\n```\n");
                    let lines = 3 + self.few(16);
                    self.lines(Form::Code, lines, &mut out);
                    out.push_str("```\n");
                }
                1 => {
                    for _ in 0..2 + self.chance.below(4) {
                        out.push_str("\n- ");
                        self.sentences(1, &mut out);
                    }
                    out.push('\n');
                }
                _ => out.push('\n'),
            }
        }
        out
    }

    pub(super) fn summary(&mut self) -> String {
        let mut out = String::from("## Summary of the conversation so far\n");
        self.sentences(40, &mut out);
        out
    }

    /// What a tool prints: few lines mostly, sometimes hundreds.
    pub(super) fn output(&mut self, form: Form) -> String {
        if let Form::Says(template) = form {
            return self.filled(template);
        }
        let mut out = String::with_capacity(4096);
        let lines = 1 + zipf(&mut self.chance, 9) / 3 + self.few(24);
        self.lines(form, lines, &mut out);
        out
    }

    /// A small number, more often smaller.
    fn few(&mut self, below: usize) -> usize {
        self.chance.below(below).min(self.chance.below(below))
    }

    fn lines(&mut self, form: Form, lines: usize, out: &mut String) {
        let own_code = CODE.get(self.code).copied().unwrap_or_default();
        let templates = match form {
            Form::Code | Form::Numbered | Form::Diff => own_code,
            Form::Log => pick_slice(&mut self.chance, LOGS),
            Form::Lines(templates) => templates,
            Form::Says(_) => &[],
        };
        if matches!(form, Form::Diff) {
            self.fill("diff --git a/%p b/%p\nindex %h..%h 100644\n@@ -%n,%n +%n,%n @@ fn %s\n", out);
        }
        let first = self.chance.below(900);
        for line in 0..lines {
            match form {
                Form::Numbered => {
                    let _ = write!(out, "{:6}\t", first + line);
                }
                Form::Diff => out.push_str(pick(&mut self.chance, &[" ", " ", "+", "-"])),
                _ => {}
            }
            let template = pick(&mut self.chance, templates);
            self.fill(template, out);
            out.push('\n');
        }
    }

    fn sentences(&mut self, count: usize, out: &mut String) {
        for _ in 0..count {
            match self.language {
                Language::English => self.english(out),
                Language::Chinese => self.chinese(out),
                Language::Japanese => self.japanese(out),
            }
        }
    }

    fn english(&mut self, out: &mut String) {
        let words = 5 + self.chance.below(18);
        for index in 0..words {
            if index > 0 {
                out.push_str(if self.chance.below(14) == 0 { ", " } else { " " });
            }
            match self.chance.below(24) {
                0 => self.fill("`%s`", out),
                1 if index > 0 => self.fill("`%c`", out),
                2 if index > 0 && self.chance.below(3) == 0 => self.fill("`%p`", out),
                _ => {
                    let word = self.vocabulary.word(&mut self.chance);
                    if index == 0 { capitalised(word, out) } else { out.push_str(word) }
                }
            }
        }
        out.push_str(if self.chance.below(12) == 0 { "? " } else { ". " });
    }

    fn chinese(&mut self, out: &mut String) {
        for index in 0..4 + self.chance.below(12) {
            match self.chance.below(16) {
                0 => self.fill(" `%s` ", out),
                1 if index > 0 => out.push('，'),
                2 if index > 0 => out.push('的'),
                _ => out.push_str(self.vocabulary.chinese(&mut self.chance)),
            }
        }
        out.push('。');
    }

    fn japanese(&mut self, out: &mut String) {
        for _ in 0..3 + self.chance.below(6) {
            match self.chance.below(12) {
                0 => self.fill("`%s`", out),
                _ => out.push_str(self.vocabulary.japanese(&mut self.chance)),
            }
            out.push_str(pick(&mut self.chance, &["を", "が", "の", "に", "は", "で", "と", "から", "して、"]));
        }
        out.push_str(pick(&mut self.chance, &["しました。", "してください。", "です。", "ます。", "でしょうか。"]));
    }

    /// Puts in what each `%` asks for.
    fn fill(&mut self, template: &str, out: &mut String) {
        let mut parts = template.split('%');
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let mut rest = part.chars();
            self.place(rest.next(), out);
            out.push_str(rest.as_str());
        }
    }

    fn place(&mut self, what: Option<char>, out: &mut String) {
        match what {
            Some('s') => self.name(Style::Snake, out),
            Some('c') => self.name(Style::Camel, out),
            Some('P') => self.name(Style::Pascal, out),
            Some('w') => out.push_str(self.vocabulary.word(&mut self.chance)),
            Some('S') => self.english(out),
            Some('n') => number(self.chance.below(1_000), out),
            Some('N') => number(self.chance.below(1_000_000), out),
            Some('h') => hex(self.chance.number(), 8, out),
            Some('H') => (0..5).for_each(|_| hex(self.chance.number(), 8, out)),
            Some('u') => {
                hex(self.chance.number(), 8, out);
                for _ in 0..3 {
                    out.push('-');
                    hex(self.chance.number(), 4, out);
                }
                out.push('-');
                hex(self.chance.number(), 12, out);
            }
            Some('p') => self.path(out),
            Some('t') => {
                let number = self.chance.below(86_400_000);
                let (hour, minute) = (number / 3_600_000, number / 60_000 % 60);
                let _ = write!(out, "{hour:02}:{minute:02}:{:02}.{:03}", number / 1000 % 60, number % 1000);
            }
            // A line of code inside a string of JSON.
            Some('e') => {
                let line = pick(&mut self.chance, CODE.get(self.code).copied().unwrap_or_default());
                let mut code = String::new();
                self.fill(line, &mut code);
                for character in code.chars() {
                    match character {
                        '"' | '\\' => out.extend(['\\', character]),
                        '\t' => out.push_str(r"\t"),
                        _ => out.push(character),
                    }
                }
            }
            _ => out.push('%'),
        }
    }

    /// The rank of an identifier: mostly one of those that the conversation is about.
    fn rank(&mut self) -> usize {
        if self.chance.below(8) < 5 {
            let own = zipf(&mut self.chance, OWN_OCTAVES);
            self.own.get(own).copied().unwrap_or_default()
        } else {
            zipf(&mut self.chance, NAME_OCTAVES)
        }
    }

    fn name(&mut self, style: Style, out: &mut String) {
        let rank = self.rank();
        self.spell(rank, style, out);
    }

    fn spell(&self, rank: usize, style: Style, out: &mut String) {
        for (index, piece) in self.vocabulary.pieces(rank).enumerate() {
            match style {
                Style::Snake if index > 0 => {
                    out.push('_');
                    out.push_str(piece);
                }
                Style::Pascal => capitalised(piece, out),
                Style::Camel if index > 0 => capitalised(piece, out),
                Style::Snake | Style::Camel => out.push_str(piece),
            }
        }
    }

    fn path(&mut self, out: &mut String) {
        out.push_str(pick(&mut self.chance, &["src/", "tests/", "crates/", "lib/", "packages/", "app/"]));
        for _ in 0..self.chance.below(3) {
            let rank = zipf(&mut self.chance, 7);
            self.spell(rank, Style::Snake, out);
            out.push('/');
        }
        self.name(Style::Snake, out);
        out.push_str(pick(&mut self.chance, &[".rs", ".rs", ".py", ".ts", ".tsx", ".go", ".java", ".toml", ".md"]));
    }
}

fn pick_slice<'a>(chance: &mut Chance, of: &[&'a [&'a str]]) -> &'a [&'a str] {
    of.get(chance.below(of.len())).copied().unwrap_or_default()
}

fn capitalised(word: &str, out: &mut String) {
    let mut rest = word.chars();
    out.extend(rest.next().map(|first| first.to_ascii_uppercase()));
    out.push_str(rest.as_str());
}

fn number(number: usize, out: &mut String) {
    let _ = write!(out, "{number}");
}

fn hex(number: u64, digits: u32, out: &mut String) {
    for place in 0..digits {
        out.extend(char::from_digit(u32::try_from((number >> (4 * place)) & 15).unwrap_or_default(), 16));
    }
}
