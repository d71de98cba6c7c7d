//! A corpus like somebody's years with coding agents: conversations about code, always the same for the same seed.
//!
//! Every conversation is made by its number alone, so that they can be made one by one, in any order, and nothing of the
//! corpus has to be kept. A million items are about 8,000 conversations and 1 GB of text.

mod pen;
mod templates;
mod vocabulary;

use std::cmp::Ordering;

use threadkeep::{Kind, NewItem, Part, Role, Timestamp, View};

use self::pen::Pen;
use self::templates::{CALLS, Form, RESULTS, TITLES};
use self::vocabulary::{Vocabulary, pick};
use crate::text::Chance;

/// The first conversation begins here, 2024-11-01, and all others within two years.
const BEGIN_MILLIS: i64 = 1_730_419_200_000;
const SPAN_MILLIS: i64 = 2 * 365 * 86_400_000;
/// How many workspaces the conversations belong to; the first ones have the most.
pub const WORKSPACES: usize = 40;
/// One fork in how many conversations.
const FORKS: usize = 24;
/// A fork's conversation is one of so many before it.
pub const NEAR: usize = 20;
/// One conversation of how many is led in Chinese, and as many in Japanese.
const OTHER_LANGUAGES: usize = 10;
const SHORTEST: u32 = 8;
/// Items from one compaction to the next.
const COMPACTED: usize = 400;

/// The conversations of a number of items.
#[derive(Debug)]
pub struct Corpus {
    seed: u64,
    items: u32,
    conversations: u32,
    /// How many items the last conversation has.
    last: u32,
    vocabulary: Vocabulary,
}

/// One conversation.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// Its number, from 0.
    pub number: u32,
    /// Where it forks from: a conversation with a lower number, and which of that one's own items is the last that both share,
    /// from 0. It may be more than there are.
    pub fork: Option<(u32, u32)>,
    /// A title of a few words.
    pub title: String,
    /// Which of the [`WORKSPACES`] it belongs to, from 0.
    pub workspace: usize,
    /// What its messages are written in.
    pub language: Language,
    /// Its own items in order.
    pub items: Vec<Entry>,
}

/// One item of a conversation.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// When it was made.
    pub at: Timestamp,
    /// What it says.
    pub view: View,
}

/// What people and models speak with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Chinese.
    Chinese,
    /// Japanese.
    Japanese,
}

impl Corpus {
    /// A corpus of this many items, which depends on the seed alone.
    pub fn new(seed: u64, items: u32) -> Self {
        let mut corpus = Self { seed, items, conversations: 0, last: 0, vocabulary: Vocabulary::new() };
        let mut left = items;
        while left > 0 {
            corpus.last = corpus.drawn_length(corpus.conversations).min(left);
            left -= corpus.last;
            corpus.conversations += 1;
        }
        corpus
    }

    /// The number of items.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// The number of conversations.
    pub fn len(&self) -> u32 {
        self.conversations
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.conversations == 0
    }

    /// The conversations, made one by one.
    pub fn conversations(&self) -> impl Iterator<Item = Conversation> + '_ {
        (0..self.conversations).map(|number| self.conversation(number))
    }

    /// The words of prose, the most common first.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.words()
    }

    /// The words of Chinese and Japanese that are no invention, the most common first, in turns.
    pub fn real_words(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.real_words()
    }

    /// A conversation by its number; one behind the last is as empty.
    pub fn conversation(&self, number: u32) -> Conversation {
        let length = match number.cmp(&self.conversations.saturating_sub(1)) {
            Ordering::Less => self.drawn_length(number),
            Ordering::Equal => self.last,
            Ordering::Greater => 0,
        };
        self.told(number, length)
    }

    /// How many items a conversation has: from [`SHORTEST`] to 2,000, half of them below 40, the mean 125.
    fn drawn_length(&self, number: u32) -> u32 {
        let mut chance = self.chance(number, 1);
        // A power of two whose exponent is bell-shaped over 0 to 12, in 1/256.
        let exponent = chance.below(6 * 256) + chance.below(6 * 256);
        let power = (256 + exponent % 256) << (exponent / 256);
        SHORTEST + u32::try_from(power / 512).unwrap_or_default()
    }

    fn chance(&self, number: u32, what: u64) -> Chance {
        Chance::new(self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (u64::from(number) << 8) ^ what)
    }

    fn told(&self, number: u32, length: u32) -> Conversation {
        let mut chance = self.chance(number, 2);
        let language = match chance.below(OTHER_LANGUAGES) {
            0 => Language::Chinese,
            1 => Language::Japanese,
            _ => Language::English,
        };
        let fork = (chance.below(FORKS) == 0 && number > 0).then(|| self.forked(number, &mut chance));
        let begin = SPAN_MILLIS / i64::from(self.conversations.max(1)) * i64::from(number);
        let mut pen = Pen::new(&self.vocabulary, chance.number(), language);
        let title = pen.filled(pick(&mut chance, TITLES));
        let workspace = chance.below(WORKSPACES).min(chance.below(WORKSPACES));
        let mut story = Story { pen, chance, at: BEGIN_MILLIS + begin, items: Vec::new() };
        story.tell(usize::try_from(length).unwrap_or_default());
        Conversation { number, fork, title, workspace, language, items: story.items }
    }

    fn forked(&self, number: u32, chance: &mut Chance) -> (u32, u32) {
        let back = 1 + u32::try_from(chance.below(NEAR.min(number as usize))).unwrap_or_default();
        let from = number - back;
        let depth = u32::try_from(chance.below(self.drawn_length(from) as usize)).unwrap_or_default();
        (from, depth)
    }
}

impl Entry {
    /// The item as the store takes it.
    pub fn to_item(&self) -> NewItem {
        NewItem { created_at: Some(self.at), ..NewItem::from_view(self.kind.clone(), &self.view) }
    }

    /// The tool that is called, where one is.
    pub fn tool(&self) -> Option<&str> {
        self.view.parts.iter().find_map(|part| match part {
            Part::ToolCall { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }
}

/// A conversation while it is told.
struct Story<'a> {
    pen: Pen<'a>,
    chance: Chance,
    at: i64,
    items: Vec<Entry>,
}

impl Story<'_> {
    fn tell(&mut self, length: usize) {
        let settings =
            self.pen.filled("model=gpt-5-codex sandbox=workspace-write approval=on-request cwd=/home/user/%s");
        self.add(Kind::Context, None, Part::Note { text: settings });
        while self.items.len() < length {
            self.turn(length);
        }
        self.items.truncate(length);
    }

    /// What a person asks, what is done about it, and the answer.
    fn turn(&mut self, length: usize) {
        let text = self.pen.question();
        self.add(Kind::Message, Some(Role::User), Part::Text { text });
        for _ in 0..2 + self.chance.below(9).min(self.chance.below(9)) * 2 {
            if self.items.len() >= length {
                return;
            }
            match self.chance.below(100) {
                0..25 => {
                    let text = self.pen.thought();
                    self.add(Kind::Reasoning, Some(Role::Assistant), Part::Reasoning { text });
                }
                25..45 => self.answer(),
                45..48 => {
                    let text = self.pen.filled("hook %s exited with code 0 after %N ms");
                    self.add(Kind::Event, None, Part::Note { text });
                }
                _ => {}
            }
            self.call();
        }
        self.answer();
        if self.items.len() % COMPACTED < 12 && self.items.len() > COMPACTED {
            let text = self.pen.summary();
            self.add(Kind::Compaction, Some(Role::Assistant), Part::Text { text });
        }
    }

    fn answer(&mut self) {
        let text = self.pen.answer();
        self.add(Kind::Message, Some(Role::Assistant), Part::Text { text });
    }

    fn call(&mut self) {
        let call_id = format!("call_{:016x}", self.chance.number());
        let which = self.chance.below(CALLS.len());
        let Some((name, arguments)) = CALLS.get(which) else { return };
        let call = Part::ToolCall {
            call_id: call_id.clone(),
            name: (*name).to_owned(),
            arguments: self.pen.filled(arguments),
        };
        self.add(Kind::ToolCall, Some(Role::Assistant), call);
        let is_error = self.chance.below(12) == 0;
        let form = RESULTS.get(self.chance.below(RESULTS.len())).copied().unwrap_or(Form::Code);
        let output = self.pen.output(form);
        self.add(Kind::ToolResult, Some(Role::Tool), Part::ToolResult { call_id, output, is_error });
    }

    fn add(&mut self, kind: Kind, role: Option<Role>, part: Part) {
        let pause = if role == Some(Role::User) { 600_000 } else { 8_000 };
        self.at += i64::try_from(200 + self.chance.below(pause)).unwrap_or_default();
        let at = Timestamp(self.at);
        self.items.push(Entry { kind, at, view: View { role, parts: vec![part], ..View::default() } });
    }
}
