//! Which titles fit what was typed, also where letters between are left out.

use std::ops::Range;

use frizbee::{CaseMatching, Config, Matcher, Pattern};

/// A text that is matched.
#[derive(Debug, Clone)]
pub(super) struct Haystack {
    text: String,
    folded: String,
}

impl AsRef<str> for Haystack {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl Haystack {
    pub(super) fn new(text: String) -> Self {
        Self { folded: text.to_lowercase(), text }
    }
}

/// The haystacks that fit every word, best first: those that hold the words as they are, and those that hold their letters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fits {
    /// By their places in the list.
    pub(super) whole: Vec<usize>,
    /// The same.
    pub(super) scattered: Vec<usize>,
}

/// Looks through the haystacks. Without words everything fits, in its order.
pub(super) fn fits(query: &str, haystacks: &[Haystack]) -> Fits {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let holds = |index: &usize| {
        let text = haystacks.get(*index).map_or("", |haystack| &haystack.folded);
        words.iter().all(|word| text.contains(word.as_str()))
    };
    let found = matcher(query).match_list(haystacks);
    let (whole, scattered) = found.into_iter().map(|fit| fit.index as usize).partition(holds);
    Fits { whole, scattered }
}

/// What fits in a text that was found, as ranges of its bytes.
pub(super) fn marks(query: &str, text: &str) -> Vec<Range<usize>> {
    let mut marks = Vec::new();
    // Each word alone: the rest may be in the preview, and not in the title.
    for word in query.split_whitespace() {
        let Some(fit) = matcher(word).match_one_indices(text, 0) else { continue };
        for at in fit.indices.into_iter().map(|at| at as usize) {
            let start = text.floor_char_boundary(at);
            marks.push(start..text.ceil_char_boundary(start + 1));
        }
    }
    marks.sort_by_key(|mark| mark.start);
    marks.dedup();
    marks
}

fn matcher(query: &str) -> Matcher {
    let patterns: Vec<Pattern> = query.split_whitespace().map(Pattern::from).collect();
    Matcher::from_patterns(&patterns, &Config { casing: CaseMatching::Ignore, ..Config::default() })
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::{Fits, Haystack, fits, marks};

    fn found(query: &str, texts: &[&str]) -> Fits {
        let haystacks: Vec<_> = texts.iter().map(|text| Haystack::new((*text).to_owned())).collect();
        fits(query, &haystacks)
    }

    #[test]
    fn words_come_before_letters_and_every_word_has_to_fit() {
        let texts = ["Fix the login test", "a lot of great old inns", "LOGIN", "nothing"];
        assert_eq!(found("login", &texts).whole, [0, 2]);
        assert_eq!(found("login", &texts).scattered, [1]);
        assert_eq!(found("test log", &texts), Fits { whole: vec![0], scattered: vec![] });
        assert_eq!(found("fxlgn", &texts).scattered, [0]);
        assert_eq!(found("", &texts).whole, [0, 1, 2, 3]);
        assert_eq!(found(" ", &texts).whole, [0, 1, 2, 3]);
        assert_eq!(found("zzz", &texts), Fits::default());
    }

    #[test]
    fn any_script_and_any_rubbish_can_be_matched() {
        let texts = ["日本語の題名", "Grüße aus Łódź", "\u{202e}\0\x1b[31m", "", "👨\u{200d}👩\u{200d}👧", "İI"];
        assert_eq!(found("題名", &texts).whole, [0]);
        assert_eq!(found("GRÜSSE", &texts).whole, [0; 0]);
        assert_eq!(found("grüße", &texts).whole, [1]);
        let long = "x".repeat(70_000);
        for query in ["\0", "'", "^", "!", "$", "\\", "!a", "👩", "İ", "e\u{301}", &long, "a b c d e f g h i j k l m n"]
        {
            found(query, &texts);
            for text in texts.iter().copied().chain([long.as_str()]) {
                let marks = marks(query, text);
                assert!(marks.iter().all(|mark| text.get(mark.clone()).is_some()), "{query} {text}");
            }
        }
    }

    #[test]
    fn what_fits_is_marked() {
        assert_eq!(marks("lg", "a login"), [2..3, 4..5]);
        assert_eq!(marks("本", "日本"), [3..6]);
        assert_eq!(marks("log elsewhere", "log"), [0..1, 1..2, 2..3]);
        assert!(marks("", "log").is_empty());
    }
}
