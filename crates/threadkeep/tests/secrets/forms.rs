//! The forms in which a secret is written, and what masking leaves as it was.

use proptest::prelude::*;
use serde_json::{Value, json};
use threadkeep::{Masked, Rules};

use super::made_up::{ALL, aws, github, letters, pem};

fn rules() -> Rules {
    Rules::maintained().unwrap()
}

fn masked(rules: &Rules, text: &[u8]) -> Vec<u8> {
    match rules.mask(text) {
        Masked::Masked { bytes, .. } => bytes,
        other => panic!("{other:?} of {}", String::from_utf8_lossy(text)),
    }
}

/// A text with every letter written as an escape.
fn in_escapes(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
}

/// The digits of a text's bytes, as rows of databases are imported.
fn digits(text: impl AsRef<[u8]>) -> String {
    text.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text that digits stand for, if they do for one.
fn undigits(digits: &str) -> Option<String> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(pairs.collect::<Option<_>>()?).ok()
}

/// Every text that a JSON value holds, as deep as strings hold JSON or digits again.
fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            for inner in [Some(text.clone()), undigits(text)].into_iter().flatten() {
                if let Ok(inner) = serde_json::from_str::<Value>(&inner) {
                    texts(&inner, out);
                }
                out.push(inner);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, out)),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            out.push(name.clone());
            texts(value, out);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Nothing of the secret is in any form of the text.
fn assert_gone(text: &[u8], secret: &str) {
    let mut forms = vec![String::from_utf8_lossy(text).into_owned()];
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(value) = serde_json::from_slice::<Value>(line) {
            texts(&value, &mut forms);
        }
    }
    for form in forms {
        assert!(!form.contains(secret), "{form}");
        assert!(!form.contains(&in_escapes(secret)), "{form}");
    }
}

#[test]
fn only_the_secret_is_replaced() {
    let token = github(1);
    let text = format!(
        "{{ \"z\" : 1.50e+3,\"a\":\"\\u00e9\\/ {token} \\ud83d\",\n\"a\" : [ true,null , \"{token}\"], \"e\":{{}} }}\r\n"
    );
    let expected = text.replace(&token, "[redacted:github-pat]");
    assert_eq!(String::from_utf8(masked(&rules(), text.as_bytes())).unwrap(), expected);
}

#[test]
fn escapes_hide_nothing() {
    let (token, key) = (github(1), pem(2));
    for text in [
        format!(r#"{{"a":"x {} y"}}"#, in_escapes(&token)),
        format!(r#"{{"a":"\t{token}\n"}}"#),
        format!(r#"{{"a":"{}"}}"#, token.replace('_', "\\u005f")),
        json!({"a": key}).to_string(),
        json!({"a": json!({"b": key}).to_string()}).to_string(),
        json!({"a": json!({"b": json!([key, token]).to_string()}).to_string()}).to_string(),
        format!(r#"{{"{token}":{{"{}":1}}}}"#, in_escapes(&token)),
        // No JSON, but what programs print of it.
        format!(r#"data: {{"a":"{}"}}"#, in_escapes(&token)),
        format!("words\n{{\"a\":\"{}\"}}\nmore words", in_escapes(&token)),
        format!(r#"{{"a":"cut {}"#, in_escapes(&token)),
    ] {
        let out = masked(&rules(), text.as_bytes());
        assert_gone(&out, &token);
        assert_gone(&out, &key[60..100]);
        assert_eq!(serde_json::from_str::<Value>(&text).is_ok(), serde_json::from_slice::<Value>(&out).is_ok());
    }
}

#[test]
fn what_stands_around_a_secret_in_json_is_seen() {
    let secret = letters(ALL, 24, 7) + "9z";
    let rules = rules();
    for text in [
        format!(r#"{{"api_key":"{secret}"}}"#),
        format!(r#"{{"api_key" : "{secret}","other":[1]}}"#),
        json!({"arguments": json!({"api_key": secret}).to_string()}).to_string(),
        json!({"arguments": json!({"body": json!({"api_key": secret}).to_string()}).to_string()}).to_string(),
    ] {
        let out = masked(&rules, text.as_bytes());
        assert_gone(&out, &secret);
        serde_json::from_slice::<Value>(&out).unwrap();
    }
}

/// A rule may match beyond a string; the structure stays.
#[test]
fn what_a_rule_takes_beyond_a_string_stays_json() {
    let rules = Rules::pattern(r#"start.*end"#).unwrap();
    let out = masked(&rules, br#"{"a":"x start","b":{"c":12.5,"d":true},"e":["y"],"f":"end z"}"#);
    let expected = r#"{"a":"x M","M":{"M":"M","M":"M"},"M":["M"],"M":"M z"}"#.replace('M', "[redacted:pattern]");
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn a_number_becomes_a_string_at_every_depth() {
    let rules = Rules::pattern("[0-9]{12}").unwrap();
    let inner = json!({"n": 123_456_789_012_u64}).to_string();
    let deeper = json!({"s": inner}).to_string();
    for text in [inner.clone(), json!([inner]).to_string(), json!({"t": deeper}).to_string()] {
        let out = masked(&rules, text.as_bytes());
        let mut found = Vec::new();
        texts(&serde_json::from_slice(&out).unwrap(), &mut found);
        assert!(found.contains(&"[redacted:pattern]".to_owned()), "{}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn bytes_that_are_no_text_are_searched_too() {
    let token = github(5);
    let mut bytes = b"\xff\xfe\0 ".to_vec();
    bytes.extend_from_slice(token.as_bytes());
    bytes.extend_from_slice(b"\0\xc3");
    assert_eq!(masked(&rules(), &bytes), b"\xff\xfe\0 [redacted:github-pat]\0\xc3");
    let mut json = b"{\"a\":\"\xff\xfe ".to_vec();
    json.extend_from_slice(token.as_bytes());
    json.extend_from_slice(b"\xc3\"}");
    assert_eq!(masked(&rules(), &json), b"{\"a\":\"\xff\xfe [redacted:github-pat]\xc3\"}");
}

/// What a database has as bytes stands in its rows as digits: those of the secret go, and the others stay.
#[test]
fn the_digits_of_a_rows_bytes_are_searched_too() {
    let token = github(7);
    let row = |bytes: &str| json!({"id": 1, "raw": {"hex": digits(bytes)}, "other": {"hex": "ff00"}}).to_string();
    let out = masked(&rules(), row(&format!("say {token} to é")).as_bytes());
    assert_eq!(String::from_utf8(out.clone()).unwrap(), row("say [redacted:github-pat] to é"));
    assert_eq!(rules().mask(&out), Masked::NothingFound);
    for text in [
        row(&format!("\u{1}{token}")).to_uppercase().replace("HEX", "hex"),
        row(&json!({"a": format!("{token}\n")}).to_string()),
        row(&row(&token)),
        json!({"a": row(&json!({"b": row(&token)}).to_string())}).to_string(),
    ] {
        let out = masked(&rules(), text.as_bytes());
        let mut found = Vec::new();
        texts(&serde_json::from_slice(&out).unwrap(), &mut found);
        assert!(found.iter().any(|text| text.contains("[redacted:github-pat]")), "{text}");
        assert!(!found.iter().any(|text| text.contains(&token)), "{text}");
    }
    // A number is one in bytes, too.
    let number = Rules::literal("123456789012").unwrap();
    let out = masked(&number, row(r#"{"n":123456789012}"#).as_bytes());
    assert_eq!(String::from_utf8(out).unwrap(), row(r#"{"n":"[redacted:literal]"}"#));
    // A rule may find something in the digits as they stand.
    let digits_too = Rules::pattern("[0-9]{12}").unwrap();
    let out = masked(&digits_too, row(r#"{"n":123456789012}"#).as_bytes());
    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap()["raw"]["hex"], "7b226e223a[redacted:pattern]7d");
    // What are no bytes is left alone.
    for text in
        [row(&token).replace("\"hex\"", "\"hash\""), row(&token).replace("ff00", "f").replace(&digits(&token), "0")]
    {
        assert_eq!(rules().mask(text.as_bytes()), Masked::NothingFound);
    }
}

#[test]
fn depth_and_size_cost_no_stack_and_no_time() {
    let (rules, token) = (rules(), github(6));
    let deep = format!("{}\"{token}\"{}", "[".repeat(300_000), "]".repeat(300_000));
    assert_gone_raw(&masked(&rules, deep.as_bytes()), &token);
    let mut nested = token.clone();
    for _ in 0..8 {
        nested = Value::String(nested).to_string();
    }
    assert_gone_raw(&masked(&rules, nested.as_bytes()), &token);
    // Each of these would be looked at again and again by a search that is not careful.
    for piece in [
        "AKIA",
        "curl -H ",
        "-----BEGIN ",
        "key=",
        "://a:",
        "\\",
        "\\\\u00",
        "{\"a\":[",
        "\"",
        "sk-ant-",
        "authorization: bearer ",
    ] {
        let long = piece.repeat((1 << 20) / piece.len());
        drop(rules.mask(long.as_bytes()));
        drop(rules.mask(format!("{long}{token}").as_bytes()));
    }
}

fn assert_gone_raw(text: &[u8], secret: &str) {
    assert!(!String::from_utf8_lossy(text).contains(secret));
}

#[test]
fn masking_again_changes_nothing() {
    let text =
        json!({"a": aws(1), "password": letters(ALL, 30, 2), "u": format!("https://u:{}@h/", letters(ALL, 12, 3))});
    let out = masked(&rules(), text.to_string().as_bytes());
    assert_eq!(rules().mask(&out), Masked::NothingFound);
    assert_eq!(masked(&rules(), text.to_string().as_bytes()), out);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(Value::from("PLANT")),
        "[a-z\\\\\"/\n ]{0,9}PLANT[a-z\\\\\"/\n ]{0,9}".prop_map(|text| json!({"hex": digits(text)})),
        "[a-z]{0,9}PLANT".prop_map(|text| json!({"hex": digits(json!([text]).to_string())})),
        "[a-z\\\\\"/\n ]{0,9}PLANT[a-z\\\\\"/\n ]{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[a-zP\"]{0,5}|PLANT", inner.clone()), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            inner.prop_map(|inner| Value::String(inner.to_string())),
        ]
    })
}

fn outline(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(outline).collect(),
        Value::Object(members) => members.values().map(outline).collect::<Vec<_>>().into(),
        _ => Value::Null,
    }
}

proptest! {
    #[test]
    fn no_form_of_a_planted_secret_is_left(value in any_json(), seed in 0_u64..1_000, escaped in any::<bool>(), lines in 1_usize..4) {
        let secret = github(seed);
        let planted = if escaped { in_escapes(&secret) } else { secret.clone() };
        let line = value.to_string().replace("PLANT", &format!(" {planted} "));
        let line = line.replace(&digits("PLANT"), &digits(format!(" {planted} ")));
        let text = vec![line; lines].join("\n");
        match rules().mask(text.as_bytes()) {
            Masked::NothingFound => {
                let value = value.to_string();
                prop_assert!(!value.contains("PLANT") && !value.contains(&digits("PLANT")));
            }
            Masked::Masked { bytes, .. } => {
                assert_gone(&bytes, &secret);
                prop_assert!(rules().find(&bytes).is_empty());
                for (line, other) in text.split('\n').zip(bytes.split(|byte| *byte == b'\n')) {
                    if let Ok(before) = serde_json::from_str::<Value>(line) {
                        let after: Value = serde_json::from_slice(other).unwrap();
                        prop_assert_eq!(outline(&before), outline(&after));
                    }
                }
            }
            Masked::CannotMask => prop_assert!(false, "{}", text),
        }
    }

    #[test]
    fn any_bytes_can_be_masked(
        parts in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..30),
            prop::sample::select(vec!["\"", "\\", "{", "}", "[", "]", ":", ",", "\n", "\\u00", "\\\"", "key=", "1234567890"])
                .prop_map(|text| text.as_bytes().to_vec()),
            (0_u64..9).prop_map(|seed| aws(seed).into_bytes()),
        ], 0..20),
    ) {
        let text = parts.concat();
        let rules = rules();
        if let Masked::Masked { bytes, found } = rules.mask(&text) {
            prop_assert!(rules.find(&bytes).is_empty());
            prop_assert_eq!(rules.mask(&bytes), Masked::NothingFound);
            prop_assert!(found.windows(2).all(|two| two[0].range.end <= two[1].range.start));
        } else {
            prop_assert!(rules.find(&text).is_empty() || matches!(rules.mask(&text), Masked::CannotMask));
        }
    }
}
