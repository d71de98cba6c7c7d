//! Merge patches (RFC 7386) on JSON texts: what a patch does not name keeps its bytes, numbers of any size included.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The deepest nesting of objects in a patch.
const MAX_DEPTH: usize = 128;

/// The text that a patch makes of another one, or of nothing.
pub(super) fn merged(target: Option<&str>, patch: &str) -> serde_json::Result<String> {
    merged_at(target, serde_json::from_str::<&RawValue>(patch)?.get(), MAX_DEPTH)
}

/// The members of an object in their order; `None` for a text that is no object. Of members of one name the last counts.
pub(super) fn members(text: &str) -> serde_json::Result<Option<Vec<(String, &RawValue)>>> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    serde_json::from_str::<Members<'_>>(text).map(|members| Some(members.0))
}

fn merged_at(target: Option<&str>, patch: &str, depth: usize) -> serde_json::Result<String> {
    let Some(changes) = members(patch)? else { return Ok(patch.to_owned()) };
    if depth == 0 {
        return Err(serde_json::Error::custom(format!("it is nested deeper than {MAX_DEPTH}")));
    }
    let mut result = Merged::default();
    for (name, value) in target.map_or(Ok(None), members)?.unwrap_or_default() {
        result.put(name, value.get().to_owned());
    }
    for (name, change) in changes {
        if change.get() == "null" {
            result.remove(&name);
            continue;
        }
        let value = merged_at(result.get(&name), change.get(), depth - 1)?;
        result.put(name, value);
    }
    result.render()
}

/// An object on its way; a member keeps its place when its value is replaced.
#[derive(Default)]
struct Merged {
    members: Vec<Option<(String, String)>>,
    places: HashMap<String, usize>,
}

impl Merged {
    fn get(&self, name: &str) -> Option<&str> {
        let member = self.places.get(name).and_then(|place| self.members.get(*place)?.as_ref());
        member.map(|(_, value)| value.as_str())
    }

    fn put(&mut self, name: String, value: String) {
        let place = self.places.get(&name).copied();
        match place.and_then(|place| self.members.get_mut(place)) {
            Some(member) => *member = Some((name, value)),
            None => {
                self.places.insert(name.clone(), self.members.len());
                self.members.push(Some((name, value)));
            }
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(member) = self.places.remove(name).and_then(|place| self.members.get_mut(place)) {
            *member = None;
        }
    }

    fn render(&self) -> serde_json::Result<String> {
        let mut text = String::from("{");
        for (name, value) in self.members.iter().flatten() {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&serde_json::to_string(name)?);
            text.push(':');
            text.push_str(value);
        }
        text.push('}');
        Ok(text)
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(All)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::merged;

    #[test]
    fn the_examples_of_the_standard_hold() {
        let cases = [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ];
        for (target, patch, result) in cases {
            assert_eq!(merged(Some(target), patch).unwrap(), result, "{target} with {patch}");
        }
        assert_eq!(merged(None, r#" {"a":1,"b":null} "#).unwrap(), r#"{"a":1}"#);
    }

    #[test]
    fn what_is_not_named_keeps_its_bytes() {
        let target = r#"{"big":123456789012345678901234567890, "e": 1.50e300,"lone":"\ud800","twice":1,"twice":2}"#;
        let expected = r#"{"big":123456789012345678901234567890,"e":1.50e300,"lone":"\ud800","twice":2,"new":0.10}"#;
        assert_eq!(merged(Some(target), r#"{"new":0.10}"#).unwrap(), expected);
    }

    #[test]
    fn a_patch_that_is_nested_without_end_is_refused() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        assert!(merged(None, &deep).unwrap_err().to_string().contains("nested deeper"));
        for broken in ["", "{", "{} {}", r#"{"a":}"#, "nul"] {
            assert!(merged(Some("{}"), broken).is_err(), "{broken:?}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..9_i64).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("[abc]", inner), 0..4).prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// Another implementation says the same of any two values.
        #[test]
        fn it_merges_as_another_implementation_does(target in value(), patch in value()) {
            let text = merged(Some(&target.to_string()), &patch.to_string()).unwrap();
            let mut expected = json!(target);
            json_patch::merge(&mut expected, &patch);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        }
    }
}
