//! Where rules come from, and what is refused.

use threadkeep::{Error, Masked, Rules};

use super::made_up::{ALL, HEX, LOWER, github, letters};

const GITLEAKS: &str = include_str!("../../src/secrets/gitleaks/gitleaks.toml");
const MORE: &str = include_str!("../../src/secrets/gitleaks/more.toml");
/// Rules of the maintained set that are not used, and why.
const LEFT_OUT: [(&str, &str); 1] = [("pkcs12-file", "it judges the name of a file, and content has none")];

fn ids_in(text: &str) -> Vec<&str> {
    let ids = text.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
    ids.collect()
}

#[test]
fn every_maintained_rule_compiles() {
    let rules = Rules::maintained().unwrap();
    let mut expected = ids_in(GITLEAKS);
    assert_eq!(expected.len(), 222, "the version in the README has so many");
    expected.retain(|id| !LEFT_OUT.iter().any(|(left_out, _)| left_out == id));
    expected.extend(ids_in(MORE));
    let ids: Vec<&str> = rules.describe().map(|(id, _)| id).collect();
    assert_eq!(ids, expected);
    assert!(rules.describe().all(|(_, description)| !description.is_empty()));
}

#[test]
fn a_file_of_rules_does_what_it_does_for_gitleaks() {
    let rules = Rules::gitleaks(
        r#"
        title = "ours"
        [[rules]]
        id = "pin"
        description = "A number"
        regex = '''pin(?:code)?=([0-9]{4})(x?)'''
        secretGroup = 1
        keywords = ["PIN"]
        [[rules.allowlists]]
        regexTarget = "line"
        regexes = ['''^test ''']
        [[rules.allowlists]]
        condition = "AND"
        regexes = ['''^1''']
        stopwords = ["99"]
        [[rules]]
        id = "random"
        regex = '''r:[a-z0-9]{16}'''
        entropy = 3.0
        [allowlist]
        regexes = ['''^0000$''']
        "#,
    )
    .unwrap();
    let found = |text: &str| -> Vec<String> {
        rules.find(text.as_bytes()).into_iter().map(|found| format!("{}={}", found.rule, &text[found.range])).collect()
    };
    assert_eq!(found("a pin=1234x, a pincode=5678."), ["pin=1234", "pin=5678"]);
    assert_eq!(found("test pin=1234\nreal pin=2345"), ["pin=2345"]);
    assert_eq!(found("pin=1990 pin=1234 pin=2990 pin=0000"), ["pin=1234", "pin=2990"]);
    assert_eq!(found("r:aaaaaaaaaaaaaaab"), [""; 0]);
    let random = format!("r:{}", letters(LOWER, 16, 3));
    assert_eq!(found(&random), [format!("random={random}")]);
}

#[test]
fn a_file_of_rules_may_extend_the_maintained_ones() {
    let text = "[extend]\nuseDefault = true\ndisabledRules = [\"github-pat\"]\n[[rules]]\nid = \"own\"\nregex = '''own-[0-9]{6}'''";
    let rules = Rules::gitleaks(text).unwrap();
    let text = format!("own-123456 {}", github(1));
    let found: Vec<_> = rules.find(text.as_bytes()).into_iter().map(|found| found.rule.to_string()).collect();
    assert_eq!(found, ["own"]);
    assert_eq!(rules.describe().count(), Rules::maintained().unwrap().describe().count());
}

#[test]
fn wrong_rules_are_refused_by_name() {
    let refused = |outcome: threadkeep::Result<Rules>| match outcome.unwrap_err() {
        Error::Invalid { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    for (pattern, expected) in
        [("a(", "unclosed group"), ("a*", "matches the empty text"), ("(?:a{1000}){1000}", "too large")]
    {
        let reason = refused(Rules::pattern(pattern));
        assert!(reason.contains(expected) && reason.contains("`pattern`"), "{reason}");
    }
    refused(Rules::literal("abc"));
    for (text, expected) in [
        ("[[rules]]\nid = \"x\"", "no regex"),
        ("[[rules]]\nregex = \"x\"", "no id"),
        ("[[rules]]\nid = \"x\"\nregex = \"(\"", "`x`"),
        ("[[rules]]\nid = \"x\"\nregex = \"a\"\nsecretGroup = 1", "secretGroup"),
        ("[[rules]]\nid = \"x\"\nregex = \"a\"\n[[rules.required]]\nid = \"y\"", "requires other rules"),
        ("[[rules]]\nid = \"x\"\nregex = \"a\"\n[[rules.allowlists]]\ncondition = \"XOR\"\nregexes = [\"a\"]", "XOR"),
        ("[extend]\npath = \"other.toml\"", "another file"),
        ("rules = 5", "invalid type"),
        ("[[", "TOML"),
    ] {
        let reason = refused(Rules::gitleaks(text));
        assert!(reason.contains(expected), "{text}: {reason}");
    }
}

#[test]
fn given_patterns_and_literals_are_masked_whole() {
    let rules = Rules::pattern("(käse|wine)-[0-9]+").unwrap().and(&Rules::literal("top\"secret\\").unwrap());
    assert_eq!(rules.mask_text("käse-12, wine-7").unwrap(), "[redacted:pattern], [redacted:pattern]");
    let line = serde_json::json!({"a": "is top\"secret\\ here", "käse-1": ["wine-22"]}).to_string();
    let masked = rules.mask_text(&line).unwrap();
    assert_eq!(masked, r#"{"a":"is [redacted:literal] here","[redacted:pattern]":["[redacted:pattern]"]}"#);
    assert_eq!(rules.mask_text(&masked), None);
}

/// Rules that find the marker itself, or what every JSON has, must not go on for ever, nor break anything.
#[test]
fn what_cannot_be_masked_is_said() {
    for pattern in ["redacted", "[a-z]+", "[\"{}:]", "."] {
        let rules = Rules::pattern(pattern).unwrap();
        match rules.mask(br#"{"a":"b redacted c"}"#) {
            Masked::CannotMask => {}
            Masked::Masked { bytes, .. } => {
                assert!(rules.find(&bytes).is_empty(), "{pattern}: {}", String::from_utf8_lossy(&bytes));
            }
            Masked::NothingFound => panic!("{pattern}"),
        }
    }
}

#[test]
fn all_of_a_kind_are_found_and_what_overlaps_is_one() {
    let rules = Rules::pattern("abcdef").unwrap().and(&Rules::pattern("defghi").unwrap());
    let found: Vec<_> = rules.find(b"abcdefghi abcdef").into_iter().map(|found| found.range).collect();
    assert_eq!(found, [0..6, 3..9, 10..16]);
    assert_eq!(rules.mask_text("abcdefghi abcdef").unwrap(), "[redacted:pattern] [redacted:pattern]");
    let many: String = (0..500).map(|seed| github(seed) + "\n").collect();
    assert_eq!(Rules::maintained().unwrap().mask_text(&many).unwrap(), "[redacted:github-pat]\n".repeat(500));
}

#[test]
fn what_is_short_of_a_rule_is_left() {
    let rules = Rules::maintained().unwrap();
    for text in [github(1)[..39].to_owned(), letters(HEX, 64, 1), letters(ALL, 36, 2), String::new()] {
        assert_eq!(rules.find(text.as_bytes()), [], "{text}");
    }
}
