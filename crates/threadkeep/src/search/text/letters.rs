//! What a character becomes in the index: whether it is part of a word, and as which letter.
//!
//! Characters are folded one by one from tables that are made when a block of them is first met. What needs its neighbours
//! (jamo, voiced kana, letters with their signs) is folded as a unit: a character with all that extends it.

use std::sync::OnceLock;

use unicode_normalization::char::{canonical_combining_class, compose, decompose_compatible};
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick};
use unicode_properties::{GeneralCategory, UnicodeEmoji as _, UnicodeGeneralCategory as _};

/// What a folded character does to the word it stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Ends the word before it.
    Separator,
    /// Is not there, wherever it stands: a joiner, a direction mark.
    Ignored,
    /// Belongs to the letter before it and is left out: an accent, a vowel point.
    Accent,
    /// Belongs to the term before it and is kept: a vowel sign.
    Sign,
    /// A letter or a digit of a word.
    Letter,
    /// A term by itself, in scripts that are written without spaces.
    Alone,
    /// A term by itself that no sign joins: an emoji.
    Picture,
}

/// A character, looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) class: Class,
    /// The folded character, if folding needs no more than this one.
    pub(super) folded: Option<char>,
    /// Whether it is folded together with the character before it.
    pub(super) extends: bool,
    /// The order of a mark among marks, if it neither changes nor joins into one character with what is before it.
    pub(super) settled: Option<u8>,
    pub(super) case: Case,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    None,
    Upper,
    Lower,
}

const BLOCK: usize = 256;
const BLOCKS: usize = 256;
type Block = Box<[Entry]>;

/// The first 65,536 characters, by blocks that are filled when one of theirs is first asked for.
static TABLE: [OnceLock<Block>; BLOCKS] = [const { OnceLock::new() }; BLOCKS];

/// Looks a character up.
pub(super) fn entry(c: char) -> Entry {
    let code = c as usize;
    let Some(block) = TABLE.get(code / BLOCK) else { return look_up(c) };
    let block = block.get_or_init(|| block_from(code - code % BLOCK));
    block.get(code % BLOCK).copied().unwrap_or_else(|| look_up(c))
}

fn block_from(first: usize) -> Block {
    let codes = first..first + BLOCK;
    codes.map(|code| u32::try_from(code).ok().and_then(char::from_u32).map_or(NOTHING, look_up)).collect()
}

/// Stands for the surrogates, which no text has.
const NOTHING: Entry = Entry { class: Class::Separator, folded: None, extends: false, settled: None, case: Case::None };

fn look_up(c: char) -> Entry {
    let case = match () {
        () if c.is_uppercase() => Case::Upper,
        () if c.is_lowercase() => Case::Lower,
        () => Case::None,
    };
    let mut folded = [c; 2];
    let mut class = Class::Separator;
    let mut count = 0;
    fold([c].into_iter(), &mut |folded_class, folded_char| {
        if let Some(place) = folded.get_mut(count) {
            *place = folded_char;
        }
        if count == 0 {
            class = folded_class;
        }
        count += 1;
    });
    let folded = (count == 1).then_some(folded[0]);
    let is_settled = folded == Some(c) && is_nfc_quick(std::iter::once(c)) == IsNormalized::Yes;
    let settled = is_settled.then(|| canonical_combining_class(c));
    Entry { class, folded, extends: extends(c), settled, case }
}

/// Folds a unit and hands over what it becomes, character by character with its class.
pub(super) fn fold(unit: impl Iterator<Item = char> + Clone, put: &mut impl FnMut(Class, char)) {
    let stands_apart = unit.clone().next().is_some_and(stands_apart);
    if stands_apart {
        put(Class::Separator, ' ');
    }
    let mut base = None;
    let mut letters = Letters::default();
    for c in unit.nfkd() {
        let is_first = base.is_none();
        if is_left_out(c, base) {
            // Said once, so that what is shown of the word goes up to its accent.
            if is_first {
                put(Class::Accent, c);
            }
            continue;
        }
        for lower in c.to_lowercase().filter(|lower| *lower == c || !is_accent(*lower)) {
            match spelled(lower) {
                Some(spelling) => letters.extend(spelling.chars()),
                None => letters.push(lower),
            }
            if !is_accent(lower) && !is_kept_mark(lower) {
                base = Some(lower);
            }
        }
    }
    letters.composed(&mut |c| put(class_of(c), c));
    if stands_apart {
        put(Class::Separator, ' ');
    }
}

/// The folded characters of a unit on their way to be composed.
#[derive(Default)]
struct Letters {
    first: Option<char>,
    rest: Vec<char>,
}

impl Letters {
    fn push(&mut self, c: char) {
        match self.first {
            None => self.first = Some(c),
            Some(_) => self.rest.push(c),
        }
    }

    fn extend(&mut self, chars: impl Iterator<Item = char>) {
        chars.for_each(|c| self.push(c));
    }

    fn composed(self, put: &mut impl FnMut(char)) {
        match (self.first, self.rest.as_slice()) {
            (None, _) => {}
            (Some(only), []) => put(only),
            (Some(first), [second]) => match compose(first, *second) {
                Some(both) => put(both),
                None => [first, *second].into_iter().for_each(put),
            },
            (Some(first), rest) => std::iter::once(first).chain(rest.iter().copied()).nfc().for_each(put),
        }
    }
}

/// What is not told apart: accents, vowel points and the like.
///
/// The breve of й and ў and the dots of ї make other letters of them, so they stay.
fn is_left_out(c: char, base: Option<char>) -> bool {
    match c {
        '\u{306}' => !matches!(base, Some('и' | 'у')),
        '\u{308}' => base != Some('і'),
        // The hamza on an alef is left out in writing as often as not.
        '\u{653}'..='\u{655}' => base == Some('ا'),
        _ => is_accent(c),
    }
}

fn is_accent(c: char) -> bool {
    matches!(c,
        // Accents of Latin, Greek and Cyrillic letters; enclosing marks.
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
        // Points of Hebrew, vowels of Arabic, and the stroke that only lengthens a letter.
        | '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}'
        | '\u{610}'..='\u{61a}' | '\u{640}' | '\u{64b}'..='\u{652}' | '\u{656}'..='\u{65f}' | '\u{670}'
        | '\u{6d6}'..='\u{6dc}' | '\u{6df}'..='\u{6e4}' | '\u{6e7}' | '\u{6e8}' | '\u{6ea}'..='\u{6ed}'
        // How an emoji is to be drawn.
        | '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}'
        | '\u{1f3fb}'..='\u{1f3ff}')
}

/// Letters that are written as others where they can't be typed. All in lower case and without accents.
fn spelled(c: char) -> Option<&'static str> {
    Some(match c {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'þ' => "th",
        'ø' => "o",
        'ł' => "l",
        'đ' | 'ð' => "d",
        'ħ' => "h",
        'ı' => "i",
        'ς' => "σ",
        'ٱ' => "ا",
        _ => return None,
    })
}

/// Whether a character that is written as several is no part of a word: ™, ℃, ①, ½, ㈱, ﷺ, but not ² or ﬁ.
fn stands_apart(c: char) -> bool {
    let is_sign = match c.general_category() {
        GeneralCategory::OtherSymbol
        | GeneralCategory::MathSymbol
        | GeneralCategory::CurrencySymbol
        | GeneralCategory::ModifierSymbol => true,
        GeneralCategory::OtherNumber => !matches!(c, '²' | '³' | '¹' | '\u{2070}'..='\u{209f}'),
        _ => false,
    };
    let (mut is_same, mut separates, mut count) = (true, false, 0);
    decompose_compatible(c, |d| {
        is_same &= d == c;
        separates |= class_of(d) == Class::Separator;
        count += 1;
    });
    // A wide form of a sign is that sign, and separates anyway.
    !is_same && if separates { count > 1 } else { is_sign }
}

/// Whether a character is folded together with the one before it.
fn extends(c: char) -> bool {
    // Half-width sound marks become marks by folding; ำ of Thai and Lao begins with one.
    matches!(c, '\u{306}' | '\u{308}' | '\u{ff9e}' | '\u{ff9f}' | '\u{e33}' | '\u{eb3}')
        || is_joining_jamo(c)
        || is_kept_mark(c)
}

fn is_joining_jamo(c: char) -> bool {
    matches!(c, '\u{1160}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7ff}')
}

fn is_kept_mark(c: char) -> bool {
    matches!(c.general_category(), GeneralCategory::NonspacingMark | GeneralCategory::SpacingMark) && !is_accent(c)
}

/// The class of a folded character.
fn class_of(c: char) -> Class {
    match c.general_category() {
        // The apostrophe as a letter is not told apart from the others.
        GeneralCategory::ModifierLetter if c == '\u{2bc}' => Class::Separator,
        GeneralCategory::OtherNumber if matches!(c, '\u{2460}'..='\u{2793}') => Class::Picture,
        GeneralCategory::UppercaseLetter
        | GeneralCategory::LowercaseLetter
        | GeneralCategory::TitlecaseLetter
        | GeneralCategory::ModifierLetter
        | GeneralCategory::OtherLetter
        | GeneralCategory::DecimalNumber
        | GeneralCategory::LetterNumber
        | GeneralCategory::OtherNumber => {
            if is_unspaced(c) {
                Class::Alone
            } else {
                Class::Letter
            }
        }
        _ if is_accent(c) => Class::Accent,
        GeneralCategory::NonspacingMark | GeneralCategory::SpacingMark => Class::Sign,
        // A space without width is one all the same.
        GeneralCategory::Format if c != '\u{200b}' => Class::Ignored,
        GeneralCategory::OtherSymbol if is_picture(c) => Class::Picture,
        _ => Class::Separator,
    }
}

/// Whether the script of a letter is written without spaces between words, or with so many endings (Korean) that they don't help.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        // Thai, Lao, Tibetan, Burmese, Khmer.
        '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{19e0}'..='\u{19ff}'
        | '\u{a9e0}'..='\u{a9ff}' | '\u{aa60}'..='\u{aa7f}'
        // Hangul.
        | '\u{1100}'..='\u{11ff}' | '\u{3131}'..='\u{318e}' | '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7ff}'
        // Kana, bopomofo, Han.
        | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3031}'..='\u{312f}' | '\u{31a0}'..='\u{31bf}'
        | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{1aff0}'..='\u{1b16f}' | '\u{20000}'..='\u{3ffff}')
}

fn is_picture(c: char) -> bool {
    // Ticks and crosses are as often one sort as the other. What comes before the arrows are signs of print: © ®.
    c >= '\u{2190}' && (c.is_emoji_char() || matches!(c, '\u{2600}'..='\u{27bf}' | '\u{1f000}'..='\u{1faff}'))
}
