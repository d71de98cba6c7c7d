//! Reading JSON that other programs wrote: an odd type, a lone surrogate or a bad byte costs one value, not a record.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use threadkeep::{Part, Timestamp, View};

use crate::tree::{self, Parent};

/// The longest word that is kept; ids, paths and titles are shorter.
const MAX_WORD_BYTES: usize = 4096;
/// How much of a text is kept to judge it and to show its first line.
const MAX_HEAD_BYTES: usize = 2048;
/// How much of an unreadable record is shown.
const MAX_DAMAGED_BYTES: usize = 64 << 10;

/// Reads a record; the flag says whether something in it had to be replaced to read it.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, bool), serde_json::Error> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok((value, false)),
        Err(error) => error,
    };
    let repaired = repair(bytes);
    if let Ok(value) = serde_json::from_str(&repaired) {
        return Ok((value, true));
    }
    // A key that stands twice is an error to a struct; in a map the last one counts.
    serde_json::from_str::<Value>(&repaired)
        .and_then(serde_json::from_value)
        .map(|value| (value, true))
        .map_err(|_| error)
}

/// The record with what no text can have replaced, if it has any: bytes that are no UTF-8, and lone surrogates.
pub(crate) fn mended(record: &[u8]) -> Option<Vec<u8>> {
    let is_suspect = |pair: &[u8]| matches!(pair, [b'u', b'd' | b'D']);
    if std::str::from_utf8(record).is_ok() && !record.windows(2).any(is_suspect) {
        return None;
    }
    let mended = repair(record).into_bytes();
    (mended != record).then_some(mended)
}

/// The same text with bad bytes and lone surrogate escapes replaced by U+FFFD.
fn repair(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let length = match surrogate(escape) {
            None => escape.chars().take(2).map(char::len_utf8).sum(),
            Some(high) => {
                let second = escape.get(6..).and_then(surrogate);
                let paired = high < 0xdc00 && second.is_some_and(|low| low >= 0xdc00);
                if !paired {
                    out.push_str("\\ufffd");
                    rest = escape.get(6..).unwrap_or_default();
                    continue;
                }
                12
            }
        };
        out.push_str(escape.get(..length).unwrap_or(escape));
        rest = escape.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// The code unit, if `text` begins with the escape of a surrogate.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    (0xd800..=0xdfff).contains(&unit).then_some(unit)
}

/// A value that is read from whatever JSON is there.
pub(crate) trait Loose: Default {
    fn text(_text: &str) -> Self {
        Self::default()
    }

    fn null() -> Self {
        Self::default()
    }

    fn flag(_flag: bool) -> Self {
        Self::default()
    }

    fn number(_number: u64) -> Self {
        Self::default()
    }

    fn list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Drives [`Loose`].
struct Anything<T>(PhantomData<T>);

impl<'de, T: Loose> Visitor<'de> for Anything<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::null())
    }

    fn visit_bool<E>(self, flag: bool) -> Result<T, E> {
        Ok(T::flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(u64::try_from(number).map_or_else(|_| T::default(), T::number))
    }

    fn visit_f64<E>(self, _number: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map)
    }
}

macro_rules! loose {
    ($($name:ident $(<$param:ident>)?),+) => {$(
        impl<'de $(, $param: Default + DeserializeOwned)?> Deserialize<'de> for $name $(<$param>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Anything(PhantomData))
            }
        }
    )+};
}

loose!(Word, Link, Flag, Number, Present, Said, Object<T>, Blocks<T>);

/// A short string that is not blank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) Option<String>);

impl Loose for Word {
    fn text(text: &str) -> Self {
        Self(is_word(text).then(|| text.to_owned()))
    }
}

/// NUL can't be stored as text on every engine, so what holds one is no word.
fn is_word(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= MAX_WORD_BYTES && !text.contains('\0')
}

impl Word {
    pub(crate) fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.as_deref() == Some(word)
    }
}

/// A reference to another record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Link {
    /// The key is not there, or holds no text.
    #[default]
    Absent,
    /// It is there and says: nothing.
    Null,
    /// It names a record.
    To(String),
}

impl Loose for Link {
    fn text(text: &str) -> Self {
        if text.is_empty() { Self::Absent } else { Self::To(text.to_owned()) }
    }

    fn null() -> Self {
        Self::Null
    }
}

/// `true`, or anything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flag(pub(crate) bool);

impl Loose for Flag {
    fn flag(flag: bool) -> Self {
        Self(flag)
    }
}

/// A whole number that is not negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) Option<u64>);

impl Loose for Number {
    fn number(number: u64) -> Self {
        Self(Some(number))
    }
}

impl Number {
    pub(crate) fn or_zero(self) -> u64 {
        self.0.unwrap_or_default()
    }
}

/// Whether a key is there, whatever it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Present(pub(crate) bool);

impl Loose for Present {
    fn text(_text: &str) -> Self {
        Self(true)
    }

    fn null() -> Self {
        Self(true)
    }

    fn flag(_flag: bool) -> Self {
        Self(true)
    }

    fn number(_number: u64) -> Self {
        Self(true)
    }

    fn list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self(true))
    }

    fn map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self(true))
    }
}

/// The beginning of a text, enough to judge it and to show its first line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The beginning, without leading space.
    pub(crate) head: String,
    /// The beginning of what follows the marker by which Codex's editors set off the request itself.
    pub(crate) request: Option<String>,
}

/// What Codex's editor extensions put before the person's own words.
const REQUEST_MARKER: &str = "## My request for Codex:";

impl Loose for Said {
    fn text(text: &str) -> Self {
        let request = text.split_once(REQUEST_MARKER).map(|(_, request)| head(request, MAX_HEAD_BYTES).to_owned());
        Self { head: head(text, MAX_HEAD_BYTES).to_owned(), request }
    }
}

/// The first bytes of a text without leading space, cut between characters.
fn head(text: &str, max: usize) -> &str {
    let text = text.trim_start();
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

/// An object that is read as `T`, or nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object<T>(pub(crate) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: DeserializeOwned> Loose for Object<T> {
    fn map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|value| Self(Some(value)))
    }
}

/// The content of a message: plain words, or a list of blocks.
#[derive(Debug, Clone, Default)]
pub(crate) enum Blocks<T> {
    /// Neither.
    #[default]
    None,
    /// Words.
    Text(Said),
    /// Blocks; an element that is no object reads as `None`.
    List(Vec<Object<T>>),
}

impl<T> Blocks<T> {
    /// The blocks that are objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let list: &[Object<T>] = if let Self::List(list) = self { list } else { &[] };
        list.iter().filter_map(|block| block.0.as_ref())
    }
}

impl<T: DeserializeOwned + Default> Loose for Blocks<T> {
    fn text(text: &str) -> Self {
        Self::Text(Said::text(text))
    }

    fn list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut blocks = Vec::new();
        while let Some(block) = list.next_element()? {
            blocks.push(block);
        }
        Ok(Self::List(blocks))
    }

    fn map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Ok(Self::List(vec![Object::map(map)?]))
    }
}

/// One line of at most `max` characters: runs of space and control characters become one space.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if length > 0 {
            if length + 1 >= max {
                break;
            }
            out.push(' ');
            length += 1;
        }
        for c in word.chars().take(max - length) {
            out.push(c);
            length += 1;
        }
        if length >= max {
            break;
        }
    }
    out
}

/// A JSON text without the space between its tokens.
pub(crate) fn compact(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in text {
        if is_string || !byte.is_ascii_whitespace() {
            out.push(*byte);
        }
        is_string ^= *byte == b'"' && !is_escaped;
        is_escaped = is_string && *byte == b'\\' && !is_escaped;
    }
    out
}

/// Writes a value as one line. What some readers of lines take for the end of one is escaped.
pub(crate) fn write_line(value: &Value, out: &mut Vec<u8>) {
    let text = value.to_string();
    if text.contains(['\u{2028}', '\u{2029}', '\u{85}']) {
        let text = text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").replace('\u{85}', "\\u0085");
        out.extend_from_slice(text.as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'\n');
}

/// The record with other values under some of its keys, and every other byte as it is; `None` when it can't be read as it stands.
pub(crate) fn with_values(record: &[u8], changes: &[(&str, &Value)]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(record).ok()?;
    let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text).ok()?;
    let mut spans = Vec::new();
    let mut added = String::new();
    for (key, value) in changes {
        match fields.get(*key) {
            // The value is a part of the text, so where it begins is how far it is from the text's own beginning.
            Some(raw) => {
                let from = (raw.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
                spans.push((from, from + raw.get().len(), value.to_string()));
            }
            None => added.push_str(&format!("{}:{value},", Value::from(*key))),
        }
    }
    spans.sort();
    let open = text.find('{')? + 1;
    let mut out = String::with_capacity(text.len() + added.len());
    out.push_str(text.get(..open)?);
    out.push_str(if fields.is_empty() { added.trim_end_matches(',') } else { &added });
    let mut at = open;
    for (from, to, value) in spans {
        out.push_str(text.get(at..from)?);
        out.push_str(&value);
        at = to;
    }
    out.push_str(text.get(at..)?);
    Some(out.into_bytes())
}

/// The view of bytes that could not be read.
pub(crate) fn damaged(bytes: &[u8]) -> View {
    let shown = bytes.get(..MAX_DAMAGED_BYTES).unwrap_or(bytes);
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if shown.len() < bytes.len() {
        text.push('…');
    }
    View { damaged: true, ..View::text(None, text) }
}

/// A file that stands in the record as a `data:` URL, or is only named by an address.
pub(crate) fn media_url(url: &str) -> Part {
    let Some((head, data)) = url.strip_prefix("data:").and_then(|data| data.split_once(',')) else {
        return Part::Media { media_type: "image".to_owned(), bytes: 0 };
    };
    let media_type = head.split(';').next().filter(|kind| !kind.is_empty()).unwrap_or("text/plain").to_owned();
    let bytes = if head.ends_with(";base64") { decoded_len(data) } else { data.len() as u64 };
    Part::Media { media_type, bytes }
}

/// How many bytes a base64 text stands for.
pub(crate) fn decoded_len(data: &str) -> u64 {
    let digits = data.trim_end_matches(['=', '\n', '\r']).len() as u64;
    digits * 3 / 4
}

/// Text of a JSON value: a string is itself, anything else its JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The text under a key, or an empty one.
pub(crate) fn str_at<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The number under a key, or 0.
pub(crate) fn u64_at(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

/// The text under a key as a word: short, not blank and storable ([`Word`]).
pub(crate) fn word_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    Some(str_at(value, key)).filter(|text| is_word(text))
}

/// The time under a key: RFC 3339, or milliseconds since the epoch.
pub(crate) fn time_at(value: &Value, key: &str) -> Option<Timestamp> {
    match value.get(key)? {
        Value::String(text) => Timestamp::parse(text),
        number => number.as_i64().filter(|millis| *millis > 0).map(Timestamp),
    }
}

/// A time since the epoch that is in seconds, or in milliseconds: what is in seconds is no time of the 20th century in the other.
pub(crate) fn since_epoch(time: i64) -> Option<Timestamp> {
    const SECONDS: i64 = 100_000_000_000;
    (time > 0).then(|| Timestamp(if time < SECONDS { time * 1_000 } else { time }))
}

/// The path that an address of an editor names, on this machine or on another one (`file:///home/ann`,
/// `vscode-remote://host/srv`); a path is itself.
pub(crate) fn path_of_uri(uri: &str) -> Option<PathBuf> {
    let path = match uri.split_once("://") {
        Some((_, rest)) => rest.get(rest.find('/')?..)?,
        None => return Some(PathBuf::from(uri)).filter(|path| !uri.contains('\0') && !path.as_os_str().is_empty()),
    };
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let escaped = digit(0).zip(digit(1)).filter(|_| *first == b'%');
        bytes.push(escaped.map_or(*first, |(high, low)| u8::try_from(high * 16 + low).unwrap_or(b'?')));
        rest = if escaped.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    let path = String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))?;
    // A drive of Windows: `/c:/Users`.
    let is_drive = matches!(path.as_bytes(), [b'/', letter, b':', ..] if letter.is_ascii_alphabetic());
    Some(PathBuf::from(if is_drive { path.get(1..)? } else { &path }))
}

/// What a record says of its parent under a key.
pub(crate) fn parent_at(value: &Value, key: &str) -> Parent {
    match value.get(key) {
        Some(Value::Null) => Parent::Root,
        Some(Value::String(id)) if !id.is_empty() => Parent::To(tree::key(id)),
        _ => Parent::Unsaid,
    }
}

/// `name: text`, without the colon when there is no text.
pub(crate) fn labelled(name: &str, said: &str, max: usize) -> String {
    let said = one_line(said, max);
    let name = if name.is_empty() { "event" } else { name };
    if said.is_empty() { name.to_owned() } else { format!("{name}: {said}") }
}

/// The first text that an object offers under one of some keys.
pub(crate) fn first_text<'a>(value: &'a Value, keys: &[&str]) -> &'a str {
    keys.iter().map(|key| str_at(value, key)).find(|said| !said.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use std::path::PathBuf;

    use super::{one_line, path_of_uri, read, repair, with_values, write_line};

    #[test]
    fn the_path_of_an_address_is_told() {
        let path = |uri: &str| path_of_uri(uri).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(path("file:///home/ann/my%20shop").as_deref(), Some("/home/ann/my shop"));
        assert_eq!(path("file:///c%3A/Users/ann").as_deref(), Some("c:/Users/ann"));
        assert_eq!(path("vscode-remote://wsl%2Bubuntu/srv/x%").as_deref(), Some("/srv/x%"));
        assert_eq!(path("/srv/x").as_deref(), Some("/srv/x"));
        for nothing in ["file://", "file:///a%00b", "file:///%ff", ""] {
            assert_eq!(path_of_uri(nothing), None::<PathBuf>, "{nothing}");
        }
    }

    #[test]
    fn values_are_replaced_and_every_other_byte_stays() {
        let record = br#"{ "a" : 1e400, "sessionId":"x" ,"b":{"sessionId":"y"},"c":"\ud83d"}"#;
        let changed = with_values(record, &[("sessionId", &json!("z")), ("new", &Value::Null)]).unwrap();
        let expected = r#"{"new":null, "a" : 1e400, "sessionId":"z" ,"b":{"sessionId":"y"},"c":"\ud83d"}"#;
        assert_eq!(String::from_utf8(changed).unwrap(), expected);
        assert_eq!(with_values(b"{}", &[("a", &json!(1))]).unwrap(), br#"{"a":1}"#);
        assert_eq!(with_values(b"[1]", &[]), None);
        assert_eq!(with_values(b"{\"a\":\"\xff\"}", &[]), None);
    }

    #[test]
    fn a_line_has_one_end() {
        let mut out = Vec::new();
        write_line(&json!({"a": "\u{2028}\n\0\u{2029}"}), &mut out);
        assert_eq!(out, b"{\"a\":\"\\u2028\\n\\u0000\\u2029\"}\n");
    }

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_are_kept() {
        assert_eq!(
            repair(br#"{"a":"\ud83d x \ud83d\ude00 \\ud83d \udc00"}"#),
            r#"{"a":"\ufffd x \ud83d\ude00 \\ud83d \ufffd"}"#
        );
        let (value, repaired) = read::<Value>(br#"{"a":"\ud83d"}"#).unwrap();
        assert!(repaired);
        assert_eq!(value["a"], "\u{fffd}");
    }

    #[test]
    fn bad_bytes_are_replaced() {
        let (value, repaired) = read::<Value>(b"{\"a\":\"x\xffy\"}").unwrap();
        assert!(repaired);
        assert_eq!(value["a"], "x\u{fffd}y");
    }

    #[test]
    fn a_line_is_cut_at_a_character() {
        assert_eq!(one_line("  a\n\n b\0c ", 200), "a b c");
        assert_eq!(one_line(&"é".repeat(300), 200).chars().count(), 200);
        assert_eq!(one_line("abc de", 4), "abc");
        assert_eq!(one_line("", 4), "");
    }
}
