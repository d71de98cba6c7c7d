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
    pub fn real_words() -> impl Iterator<Item = &'static str> {
        Vocabulary::real_words()
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
        let begin = SPAN_MILLIS / i64::from(self.conversations.max(1)) * i64::from(number);
        let mut pen = Pen::new(&self.vocabulary, chance.number(), language);
        let title = pen.filled(pick(&mut chance, TITLES));
        let (fork, workspace) = self.place(number);
        let mut story = Story { pen, chance, at: BEGIN_MILLIS + begin, items: Vec::new() };
        story.tell(usize::try_from(length).unwrap_or_default());
        Conversation { number, fork, title, workspace, language, items: story.items }
    }

    /// What it forks from, and its workspace, which is that of what it forks from.
    fn place(&self, number: u32) -> (Option<(u32, u32)>, usize) {
        let mut chance = self.chance(number, 3);
        if number == 0 || chance.below(FORKS) > 0 {
            return (None, chance.below(WORKSPACES).min(chance.below(WORKSPACES)));
        }
        let back = 1 + u32::try_from(chance.below(NEAR.min(number as usize))).unwrap_or_default();
        let from = number - back;
        let depth = u32::try_from(chance.below(self.drawn_length(from) as usize)).unwrap_or_default();
        (Some((from, depth)), self.place(from).1)
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use threadkeep::{Kind, Part, Role};

    use super::{Corpus, Language, WORKSPACES};

    #[test]
    fn it_is_the_same_each_time_and_another_one_for_another_seed() {
        let texts = |seed| -> Vec<_> {
            let corpus = Corpus::new(seed, 2_000);
            corpus.conversations().flat_map(|it| it.items).map(|item| (item.at, item.to_item().content)).collect()
        };
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }

    #[test]
    fn a_conversation_is_the_same_alone_and_among_the_others() {
        let corpus = Corpus::new(3, 3_000);
        for conversation in corpus.conversations() {
            let alone = corpus.conversation(conversation.number);
            assert_eq!((alone.fork, alone.title), (conversation.fork, conversation.title));
            assert!(alone.items.iter().map(|item| &item.view).eq(conversation.items.iter().map(|item| &item.view)));
        }
        assert!(corpus.conversation(corpus.len()).items.is_empty());
    }

    #[test]
    fn there_are_as_many_items_as_were_asked_for() {
        for items in [0, 1, 100, 5_000] {
            let corpus = Corpus::new(5, items);
            let lengths: Vec<usize> = corpus.conversations().map(|it| it.items.len()).collect();
            assert_eq!((lengths.len(), lengths.iter().sum()), (corpus.len() as usize, items as usize));
        }
    }

    #[test]
    fn it_is_like_what_agents_write() {
        let corpus = Corpus::new(7, 20_000);
        let (mut bytes, mut kinds, mut other_scripts, mut forks) = (0, BTreeMap::<String, usize>::new(), 0, 0);
        let mut documents = BTreeMap::<String, usize>::new();
        for conversation in corpus.conversations() {
            assert!(conversation.workspace < WORKSPACES);
            assert!(conversation.fork.is_none_or(|(from, _)| from < conversation.number));
            if let Some((from, _)) = conversation.fork {
                assert_eq!(
                    corpus.conversation(from).workspace,
                    conversation.workspace,
                    "a fork stays where it is from"
                );
                forks += 1;
            }
            let times: Vec<_> = conversation.items.iter().map(|item| item.at).collect();
            assert!(times.is_sorted(), "an item is made after the one before it");
            for item in &conversation.items {
                let text = item.view.to_text();
                bytes += text.len();
                *kinds.entry(item.kind.to_string()).or_default() += 1;
                other_scripts += usize::from(!text.is_ascii());
                assert!(text.is_ascii() || conversation.language != Language::English, "{text}");
                let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
                words.into_iter().for_each(|word| *documents.entry(word.to_owned()).or_default() += 1);
            }
        }
        let share = |part: usize| part * 1_000 / 20_000;
        assert!((800..1_400).contains(&(bytes / 20_000)), "{bytes} bytes");
        assert!((20..80).contains(&share(other_scripts)), "{other_scripts} in other scripts");
        assert!(forks > 0);
        assert_eq!(kinds.len(), 7, "{kinds:?}");
        let number_of = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
        assert!(share(number_of("tool_result")) > 300 && share(number_of("message")) > 100, "{kinds:?}");
        // Words of all frequencies: in every other document, in some of them, and in one alone.
        assert!(share(documents.get("the").copied().unwrap_or_default()) > 300);
        let rare = documents.values().filter(|count| **count == 1).count();
        let middling = documents.values().filter(|count| (20..200).contains(*count)).count();
        assert!(rare > 10_000 && middling > 1_000, "{rare} in one document, {middling} in twenty and more");
    }

    #[test]
    fn calls_are_answered_by_results_and_have_arguments_of_json() {
        let corpus = Corpus::new(9, 2_000);
        for conversation in corpus.conversations() {
            for pair in conversation.items.windows(2) {
                let [call, next] = pair else { continue };
                let Some(Part::ToolCall { call_id, arguments, .. }) = call.view.parts.first() else { continue };
                assert!(
                    arguments.starts_with('{') && arguments.ends_with('}') && !arguments.contains('\t'),
                    "{arguments}"
                );
                let Some(Part::ToolResult { call_id: answered, .. }) = next.view.parts.first() else {
                    panic!("a call without a result")
                };
                assert_eq!(
                    (call_id, next.kind.clone(), next.view.role.clone()),
                    (answered, Kind::ToolResult, Some(Role::Tool))
                );
            }
        }
    }
}
