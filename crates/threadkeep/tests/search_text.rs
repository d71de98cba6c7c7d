//! What search promises of any text and any query.

use proptest::prelude::*;
use threadkeep::Timestamp;
use threadkeep::search::{
    BREAK, Field, MAX_TERMS, NormalText, Stream, find, folded, holds, normal, parse, phrase, snippet,
};
use unicode_width::UnicodeWidthStr as _;

const FIELDS: [Field; 6] = [Field::Said, Field::Reasoning, Field::Call, Field::Result, Field::Note, Field::Title];

/// Texts of all scripts, with what is hard to read in them.
fn texts() -> impl Strategy<Value = String> {
    let hard = prop::sample::select(vec![
        "\x1b[31m",
        "\x1b]8;;http://x\x1b\\",
        "\x1b",
        "\0",
        "\u{202e}",
        "\u{301}",
        "\u{3099}",
        "\u{1112}\u{1161}\u{11ab}",
        "ﾞ",
        "ß",
        "İ",
        "ﬁ",
        "㈱",
        "½",
        "™",
        "ﷺ",
        "น้ำ",
        "क़",
        "👩\u{200d}💻",
        "👍🏽",
        "❤\u{fe0f}",
        "c++",
        "C# ",
        "parseHttp",
        "HTTPServer",
        "snake_case",
        "\\n",
        "\\u00e9",
        "{\"a\":\"b\\nc\\ud83d\\ude80\"}",
        " ",
        "\n",
        "-",
        "\"",
        "「",
        "」",
        "(",
        ")",
        "*",
        ":",
        "role:user ",
        " OR ",
        "don't",
        "数据库",
        "がぎ",
        "한글",
        "й",
        "Ё",
        "أحمد",
        "שָׁלוֹם",
        "e",
        "E",
        "1a2b3c4",
    ]);
    let piece = prop_oneof![4 => hard.prop_map(str::to_owned), 2 => "[a-zA-Z0-9 ]{0,12}", 1 => "\\PC{0,6}", 1 => any::<String>()];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn check_places(stream: &Stream, texts: &[&str], section_of: impl Fn(usize) -> Option<usize>) {
    let terms: Vec<&str> = stream.iter().map(|word| word.term).collect();
    assert_eq!(stream.joined(), terms.join(" "));
    for (index, word) in stream.iter().enumerate() {
        assert!(!word.term.is_empty() && !word.term.contains(char::is_whitespace), "{word:?}");
        if word.term == BREAK {
            continue;
        }
        let text = section_of(index).and_then(|section| texts.get(section));
        let part = text.and_then(|text| text.get(word.start..word.end));
        assert!(part.is_some_and(|part| !part.is_empty()), "{word:?} in {text:?}");
    }
}

fn check(normal: &NormalText, texts: &[&str]) {
    check_places(&normal.words, texts, |index| {
        normal.sections.iter().find(|section| section.words.contains(&index)).map(|section| section.index)
    });
    check_places(&normal.parts, texts, |index| {
        normal.sections.iter().find(|section| section.parts.contains(&index)).map(|section| section.index)
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn words_have_places_in_their_text(first in texts(), second in texts(), field in prop::sample::select(FIELDS.to_vec())) {
        check(&normal(&[(field, &first), (Field::Said, &second)]), &[&first, &second]);
    }

    #[test]
    fn the_normal_form_of_a_normal_form_is_itself(text in texts()) {
        let once = normal(&[(Field::Said, &text)]);
        let twice = normal(&[(Field::Said, once.words.joined())]);
        prop_assert_eq!(once.words.joined(), twice.words.joined());
        let name = folded(&text);
        prop_assert_eq!(&folded(&name), &name);
    }

    #[test]
    fn a_phrase_taken_from_a_text_finds_it(text in texts(), first in any::<prop::sample::Index>(), count in 0_usize..20) {
        let words = normal(&[(Field::Said, &text)]);
        if words.words.is_empty() {
            return Ok(());
        }
        let first = first.index(words.words.len());
        let last = (first + count).min(words.words.len() - 1);
        let part = &text[words.words.get(first).unwrap().start..words.words.get(last).unwrap().end];
        prop_assert!(holds(&phrase(part).unwrap(), &words), "{:?} in {:?}", part, text);
        prop_assert!(find(&text, part).next().is_some(), "{:?} in {:?}", part, text);
        // Between quotation marks, if it has none of its own.
        let marks = ['"', '“', '”', '„', '‟', '＂', '«', '»'];
        if !part.contains(marks) {
            let query = parse(&format!("\"{part}\""), Timestamp(0), &jiff::tz::TimeZone::UTC);
            prop_assert!(holds(&query.wanted, &words), "{:?} in {:?}", part, text);
        }
    }

    #[test]
    fn every_text_is_a_query(text in texts()) {
        let query = parse(&text, Timestamp(1_700_000_000_000), &jiff::tz::TimeZone::UTC);
        let phrases = query.wanted.phrases().len();
        prop_assert!(phrases <= MAX_TERMS && query.literals.len() == phrases, "{:?}", query);
        holds(&query.wanted, &normal(&[(Field::Said, &text)]));
    }

    #[test]
    fn a_snippet_fits_and_shows_what_was_found(text in texts(), word in any::<prop::sample::Index>(), width in 0_usize..100, field in prop::sample::select(FIELDS.to_vec())) {
        let words = normal(&[(field, &text)]);
        if words.words.is_empty() {
            return Ok(());
        }
        let word = words.words.get(word.index(words.words.len())).unwrap();
        let wanted = phrase(&text[word.start..word.end]);
        let Some(wanted) = wanted.filter(|wanted| holds(wanted, &words)) else { return Ok(()) };
        let found = snippet(&[(field, &text)], &wanted, width);
        prop_assert!(found.text.width() <= width, "{:?}", found);
        prop_assert!(!found.text.chars().any(|c| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')), "{:?}", found);
        let mut before = 0;
        for mark in &found.marks {
            prop_assert!(before <= mark.start && mark.start < mark.end && found.text.get(mark.clone()).is_some(), "{:?}", found);
            before = mark.end + 1;
        }
        prop_assert!(width < 64 || !found.marks.is_empty(), "{:?} of {:?}", found, text);
    }

    #[test]
    fn what_is_found_is_what_was_looked_for(text in texts(), wanted in texts()) {
        let mut before = 0;
        for place in find(&text, &wanted) {
            prop_assert!(before <= place.start && place.start < place.end);
            let part = text.get(place.clone());
            prop_assert!(part.is_some());
            prop_assert_eq!(folded(part.unwrap()), folded(&wanted));
            before = place.end;
        }
    }
}

#[test]
fn results_are_found_by_their_ends_and_phrases_do_not_reach_over_what_is_left_out() {
    let text = (0..20_000).map(|number| format!("w{number} ")).collect::<String>();
    let result = normal(&[(Field::Result, &text)]);
    assert_eq!(result.words.len(), 8_192 + 1 + 4_096);
    for (part, is_found) in [
        ("w8190 w8191", true),
        ("w8192", false),
        ("w15903", false),
        ("w15904 w15905", true),
        ("w8191 w15904", false),
        ("w19999", true),
    ] {
        assert_eq!(holds(&phrase(part).unwrap(), &result), is_found, "{part}");
    }
    let said = normal(&[(Field::Said, &text.repeat(2))]);
    assert_eq!(said.words.len(), 32_768);
    // What fits is whole.
    let fits = (0..12_288).map(|number| format!("w{number} ")).collect::<String>();
    let fits = normal(&[(Field::Result, &fits)]);
    assert_eq!(fits.words.len(), 12_288);
    assert!(holds(&phrase("w8191 w8192").unwrap(), &fits));
}

#[test]
fn the_bytes_of_a_documents_terms_are_bounded() {
    let long = (0..100_000).map(|number| format!("{number:064} ")).collect::<String>();
    let fields: Vec<(Field, &str)> = FIELDS.iter().map(|field| (*field, long.as_str())).collect();
    let document = normal(&fields);
    let bytes: usize = document.words.iter().chain(document.parts.iter()).map(|word| word.term.len()).sum();
    assert!(bytes <= 384 << 10, "{bytes}");
    assert!(bytes > 380 << 10, "{bytes}");
}

#[test]
fn texts_without_end_are_read_in_linear_time() {
    for piece in
        ["a", "\u{301}", "ᅡ", "\x1b[", "\x1b]", "\x1b]x", "中", " ", "\\", "a\u{94d}", "aB", "c++", "(", "\u{200b}", "½"]
    {
        let text = piece.repeat((1 << 20) / piece.len());
        for field in [Field::Said, Field::Result] {
            let document = normal(&[(field, &text)]);
            assert!(document.words.len() <= 32_768);
        }
        assert!(find(&text, &piece.repeat(50)).count() <= text.len());
        snippet(&[(Field::Said, &text)], &phrase(piece).unwrap_or_else(|| phrase("a").unwrap()), 80);
    }
}
