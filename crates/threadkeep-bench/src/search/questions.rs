//! What is searched for: words that stand in the corpus, common and rare, and what people ask beside words.

use threadkeep::Kind;

use super::floors::{Grep, file_name};
use crate::Result;
use crate::corpus::{Conversation, Corpus, Language};
use crate::text::Chance;

/// How many conversations are tried for each question before it is given up.
const TRIES: u32 = 400;

/// Questions of one kind.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) questions: Vec<Question>,
}

/// One question in the words of each side.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// To the library.
    pub(super) ours: String,
    /// To FTS5.
    pub(super) plain: String,
    /// A condition on the items beside it; empty for none.
    pub(super) condition: String,
    /// To `rg`, which has no word for some questions.
    pub(super) grep: Option<Grep>,
}

/// Words that stand near each other in one message.
#[derive(Debug, Clone)]
struct Found {
    conversation: u32,
    words: Vec<String>,
}

/// The name of a conversation's thread.
pub(super) fn thread_name(number: u32) -> String {
    format!("conversation-{number}")
}

/// The sets, each of so many questions.
///
/// # Errors
/// When the corpus is too small to ask so many.
pub(super) fn sets(corpus: &Corpus, each: usize) -> Result<Vec<Set>> {
    let common: Vec<&str> =
        corpus.words().filter(|word| word.len() > 1 && !word.contains('\'')).take(each + 3).collect();
    let common = |index: usize| common.get(index).copied().unwrap_or("the");
    let mut sampler = Sampler { corpus, chance: Chance::new(11) };
    let rare = sampler.several(each, |conversation| longest(conversation, &[' '], |c| c.is_ascii_lowercase()))?;
    let names =
        sampler.several(each, |conversation| longest(conversation, &['`'], |c| c.is_ascii_lowercase() || c == '_'))?;
    let phrases = sampler.several(each, |conversation| neighbours(conversation, 3))?;
    let hashes = sampler.several(each, hash)?;
    let others: Vec<&str> = Corpus::real_words().take(each).collect();
    let last = corpus.len().saturating_sub(1);
    let of_rare = |ask: &dyn Fn(usize, &str, u32) -> Question| {
        rare.iter().enumerate().map(|(index, found)| ask(index, found.first(), found.conversation)).collect()
    };
    let of_common = |ask: &dyn Fn(usize) -> Question| (0..each).map(ask).collect();
    let all = vec![
        Set { name: "a rare word", questions: of_rare(&|_, word, _| Question::of(word)) },
        Set { name: "one of the most common words", questions: of_common(&|index| Question::of(common(index))) },
        Set {
            name: "three words of a message",
            questions: phrases.iter().map(|found| Question::all(&found.words)).collect(),
        },
        Set {
            name: "a rare and a common word",
            questions: of_rare(&|index, word, _| Question::all(&[word, common(index)])),
        },
        Set {
            name: "a phrase of three words of a message",
            questions: phrases.iter().map(|found| Question::phrase(&found.words.join(" "))).collect(),
        },
        Set {
            name: "a phrase of two of the most common words",
            questions: of_common(&|index| Question::phrase(&format!("{} {}", common(index), common(index + 2)))),
        },
        Set { name: "a name of code", questions: names.iter().map(|found| Question::of(found.first())).collect() },
        Set {
            name: "the first seven digits of a hash",
            questions: hashes.iter().map(|found| Question::prefix(beginning(found.first(), 7))).collect(),
        },
        Set {
            name: "the first four letters of a word",
            questions: of_rare(&|_, word, _| Question::prefix(beginning(word, 4))),
        },
        Set {
            name: "the first two letters of a word",
            questions: of_rare(&|_, word, _| Question::prefix(beginning(word, 2))),
        },
        Set {
            name: "a common word without another one",
            questions: of_common(&|index| Question::without(common(index), common(index + 3))),
        },
        Set {
            name: "either of two common words",
            questions: of_common(&|index| Question::either(common(index), common(index + 3))),
        },
        Set {
            name: "a word of Chinese or Japanese",
            questions: others.iter().map(|word| Question::characters(word)).collect(),
        },
        Set {
            name: "a common word in results of tools",
            questions: of_common(&|index| Question::of(common(index)).of_kind("tool_result")),
        },
        Set {
            name: "a common word by the user",
            questions: of_common(&|index| Question::of(common(index)).by("user")),
        },
        Set {
            name: "a common word in one thread",
            questions: of_common(&|index| Question::of(common(index)).in_thread(spread(last, index, each))),
        },
        Set {
            name: "a common word, before a day of the first year",
            questions: of_common(&|index| Question::of(common(index)).before_2025()),
        },
    ];
    Ok(all)
}

/// A number from 0 to the last, spread evenly.
fn spread(last: u32, index: usize, of: usize) -> u32 {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    last / u32::try_from(of).unwrap_or(1).max(1) * index
}

fn beginning(word: &str, letters: usize) -> &str {
    word.get(..letters).unwrap_or(word)
}

impl Found {
    fn first(&self) -> &str {
        self.words.first().map(String::as_str).unwrap_or_default()
    }
}

impl Question {
    /// One word, or a name with other signs inside.
    pub(super) fn of(word: &str) -> Self {
        Self {
            ours: word.to_owned(),
            plain: quoted(word),
            condition: String::new(),
            grep: Grep::of(&["--fixed-strings", "--word-regexp", word]),
        }
    }

    fn all(words: &[impl AsRef<str>]) -> Self {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let plain: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        Self { ours: words.join(" "), plain: plain.join(" AND "), condition: String::new(), grep: None }
    }

    fn phrase(words: &str) -> Self {
        Self { ours: quoted(words), ..Self::of(words) }
    }

    fn prefix(letters: &str) -> Self {
        Self {
            ours: format!("{letters}*"),
            plain: format!("{} *", quoted(letters)),
            grep: Grep::of(&[&format!(r"\b{letters}")]),
            ..Self::of(letters)
        }
    }

    fn without(word: &str, unwanted: &str) -> Self {
        Self {
            ours: format!("{word} -{unwanted}"),
            plain: format!("{} NOT {}", quoted(word), quoted(unwanted)),
            condition: String::new(),
            grep: None,
        }
    }

    fn either(one: &str, other: &str) -> Self {
        Self {
            ours: format!("{one} OR {other}"),
            plain: format!("{} OR {}", quoted(one), quoted(other)),
            condition: String::new(),
            grep: Grep::of(&["--fixed-strings", "--word-regexp", "-e", one, "-e", other]),
        }
    }

    /// A word of a script that puts no spaces between words.
    fn characters(word: &str) -> Self {
        Self { grep: Grep::of(&["--fixed-strings", word]), ..Self::of(word) }
    }

    fn of_kind(self, kind: &str) -> Self {
        let grep = Grep::of(&[&format!(r#""kind":"{kind}".*\b{}\b"#, self.ours)]);
        Self { ours: format!("{} kind:{kind}", self.ours), condition: format!("i.kind = '{kind}'"), grep, ..self }
    }

    fn by(self, role: &str) -> Self {
        let grep = Grep::of(&[&format!(r#""said_by":"{role}".*\b{}\b"#, self.ours)]);
        Self { ours: format!("{} role:{role}", self.ours), condition: format!("i.role = '{role}'"), grep, ..self }
    }

    fn in_thread(self, number: u32) -> Self {
        let thread = thread_name(number);
        let grep = self.grep.map(|grep| Grep { file: Some(file_name(number)), ..grep });
        Self {
            ours: format!("{} thread:{thread}", self.ours),
            condition: format!("i.thread = '{thread}'"),
            grep,
            ..self
        }
    }

    fn before_2025(self) -> Self {
        let grep = Grep::of(&[&format!(r#""at":"2024-.*\b{}\b"#, self.ours)]);
        Self {
            ours: format!("{} before:2025-01-01", self.ours),
            condition: "i.at < 1735689600000".to_owned(),
            grep,
            ..self
        }
    }
}

impl Grep {
    #[expect(clippy::unnecessary_wraps, reason = "as the field has it")]
    fn of(args: &[&str]) -> Option<Self> {
        Some(Self { args: args.iter().map(|arg| (*arg).to_owned()).collect(), file: None })
    }
}

fn quoted(words: &str) -> String {
    format!("\"{words}\"")
}

/// Looks for words in conversations of the whole corpus.
struct Sampler<'a> {
    corpus: &'a Corpus,
    chance: Chance,
}

impl Sampler<'_> {
    fn several(&mut self, count: usize, find: impl Fn(&Conversation) -> Option<Vec<String>>) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(self.one(&find)?);
        }
        Ok(found)
    }

    fn one(&mut self, find: impl Fn(&Conversation) -> Option<Vec<String>>) -> Result<Found> {
        let all = usize::try_from(self.corpus.len())?;
        for _ in 0..TRIES {
            let conversation = self.corpus.conversation(u32::try_from(self.chance.below(all))?);
            if conversation.language == Language::English
                && let Some(words) = find(&conversation)
            {
                return Ok(Found { conversation: conversation.number, words });
            }
        }
        Err("the corpus is too small to ask something of it".into())
    }
}

/// The texts of a conversation.
fn texts(conversation: &Conversation) -> impl Iterator<Item = String> {
    conversation.items.iter().map(|item| item.view.to_text())
}

/// The longest word, between two of these signs, of a message in the second half of a conversation.
fn longest(conversation: &Conversation, signs: &[char], is_part: impl Fn(char) -> bool) -> Option<Vec<String>> {
    let half = conversation.items.iter().skip(conversation.items.len() / 2);
    half.filter(|item| item.kind == Kind::Message).find_map(|item| {
        let text = item.view.to_text();
        let words = text.split(signs).filter(|word| word.len() > 7 && word.chars().all(&is_part));
        words.max_by_key(|word| word.len()).map(|word| vec![word.to_owned()])
    })
}

/// Words that follow each other with a space between, none of them a name of code.
fn neighbours(conversation: &Conversation, count: usize) -> Option<Vec<String>> {
    let is_word = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    texts(conversation).skip(conversation.items.len() / 2).find_map(|text| {
        let words: Vec<&str> = text.split(' ').collect();
        let found = words.windows(count).find(|words| words.iter().all(is_word))?;
        Some(found.iter().map(|word| (*word).to_owned()).collect())
    })
}

/// Eight digits of a hash, of which the first seven have digits and letters.
fn hash(conversation: &Conversation) -> Option<Vec<String>> {
    texts(conversation).find_map(|text| {
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let is_hash = |word: &&str| {
            let first = beginning(word, 7);
            word.len() == 8
                && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
                && first.bytes().any(|byte| byte.is_ascii_digit())
                && first.bytes().any(|byte| byte.is_ascii_lowercase())
        };
        words.find(is_hash).map(|word| vec![word.to_owned()])
    })
}
