//! What the documents of a kind may say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::DocumentKind;
use super::merge::members;

const MAX_STEPS: usize = 30;
const MAX_WORD_BYTES: usize = 256;

/// What an agent keeps in mind: texts by their names.
pub type Scratchpad = BTreeMap<String, String>;

/// The steps that an agent goes by, as they stood when they were saved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanSnapshot {
    /// The steps in their order: 30 at most.
    pub steps: Vec<PlanStep>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStep {
    /// What is to be done.
    pub description: String,
    /// How far it is.
    pub status: StepStatus,
}

/// How far a step is. The words may also begin with a capital, as newt writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It is not begun.
    #[serde(alias = "Todo")]
    Todo,
    /// It is worked on.
    #[serde(alias = "Active")]
    Active,
    /// It is done.
    #[serde(alias = "Done")]
    Done,
}

/// What a person prefers in a thread. Nothing else can stand in it: no key, no address, no right.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreferencePin {
    /// The name of a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much it is to think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cognition: Option<String>,
    /// How long it is to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenacity: Option<String>,
    /// How soon it is to act by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiative: Option<String>,
    /// Whether it is to go on until everything is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obsessive: Option<bool>,
}

impl PreferencePin {
    fn words(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("backend", self.backend.as_deref()),
            ("model", self.model.as_deref()),
            ("cognition", self.cognition.as_deref()),
            ("tenacity", self.tenacity.as_deref()),
            ("initiative", self.initiative.as_deref()),
        ]
    }
}

/// Why a text can't be a document of a kind, if it can't.
pub(crate) fn check(kind: &DocumentKind, text: &str) -> Result<(), String> {
    match kind {
        DocumentKind::Scratchpad => scratchpad(text).map(drop),
        DocumentKind::Plan => plan(text).map(drop),
        DocumentKind::Pin => pin(text).map(drop),
        // What a later version closes is not looked into here.
        DocumentKind::Free | DocumentKind::Unknown(_) => serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map(drop)
            .map_err(|error| format!("it is no JSON: {error}")),
    }
}

pub(super) fn scratchpad(text: &str) -> Result<Scratchpad, String> {
    let mut pad = Scratchpad::new();
    for (name, value) in members(text).map_err(|error| error.to_string())?.ok_or(NO_OBJECT)? {
        let value = serde_json::from_str(value.get()).map_err(|error| format!("`{name}`: {error}"))?;
        if pad.contains_key(&name) {
            return Err(format!("duplicate field `{name}`"));
        }
        pad.insert(name, value);
    }
    Ok(pad)
}

pub(super) fn plan(text: &str) -> Result<PlanSnapshot, String> {
    let Steps { steps } = object(text)?;
    if steps.len() > MAX_STEPS {
        return Err(format!("{} steps; a plan has at most {MAX_STEPS}", steps.len()));
    }
    let step = |(number, text): (usize, &&RawValue)| {
        object::<PlanStep>(text.get()).map_err(|reason| format!("step {}: {reason}", number + 1))
    };
    Ok(PlanSnapshot { steps: steps.iter().enumerate().map(step).collect::<Result<_, _>>()? })
}

pub(super) fn pin(text: &str) -> Result<PreferencePin, String> {
    let pin: PreferencePin = object(text)?;
    let too_long = pin.words().into_iter().find(|(_, word)| word.is_some_and(|word| word.len() > MAX_WORD_BYTES));
    if let Some((name, _)) = too_long {
        return Err(format!("`{name}` is longer than {MAX_WORD_BYTES} bytes"));
    }
    Ok(pin)
}

/// A plan whose steps were not looked at.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Steps<'a> {
    #[serde(borrow)]
    steps: Vec<&'a RawValue>,
}

const NO_OBJECT: &str = "it is no JSON object";

/// Reads an object; a list is none, although its values could be taken for the fields in their order.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    if !text.trim_start().starts_with('{') {
        return Err(NO_OBJECT.to_owned());
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// What takes the place of a text in which nothing can be masked so that it stays what it is.
pub(crate) fn stand_in(kind: &DocumentKind, marker: &str) -> String {
    match kind {
        DocumentKind::Scratchpad => serde_json::json!({ "redacted": marker }).to_string(),
        DocumentKind::Plan | DocumentKind::Pin => "{}".to_owned(),
        DocumentKind::Free | DocumentKind::Unknown(_) => serde_json::Value::from(marker).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DocumentKind, check, pin, plan, scratchpad, stand_in};

    #[test]
    fn a_pin_holds_preferences_and_nothing_else() {
        for key in ["api_key", "endpoint", "caveats", "sandbox", "Backend", "extra"] {
            let told = pin(&format!(r#"{{"model":"m","{key}":"x"}}"#)).unwrap_err();
            assert!(told.contains(&format!("`{key}`")), "{told}");
        }
        for text in
            [r#"["ollama"]"#, "null", "", r#"{"model":1}"#, r#"{"model":"a","model":"b"}"#, r#"{"obsessive":"yes"}"#]
        {
            assert!(pin(text).is_err(), "{text}");
        }
        assert!(pin(&format!(r#"{{"model":"{}"}}"#, "x".repeat(257))).is_err());
        assert_eq!(pin("{}").unwrap(), super::PreferencePin::default());
        assert_eq!(pin(r#"{"model":"m","obsessive":true}"#).unwrap().obsessive, Some(true));
    }

    #[test]
    fn a_plan_has_thirty_steps_at_most_and_may_be_empty() {
        let steps = |count: usize| {
            let steps = vec![r#"{"description":"x","status":"todo"}"#; count];
            format!(r#"{{"steps":[{}]}}"#, steps.join(","))
        };
        assert_eq!(plan("{}").unwrap().steps.len(), 0);
        assert_eq!(plan(&steps(30)).unwrap().steps.len(), 30);
        assert!(plan(&steps(31)).unwrap_err().contains("31 steps"));
        assert!(plan(r#"{"steps":[{"description":"x","status":"Done"}]}"#).is_ok());
        for text in [
            "[]",
            r#"{"step":[]}"#,
            r#"{"steps":[{"description":"x","status":"later"}]}"#,
            r#"{"steps":[["x","todo"]]}"#,
        ] {
            assert!(plan(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_scratchpad_is_an_object_of_strings() {
        assert_eq!(scratchpad(r#"{"a":"1","b":""}"#).unwrap().len(), 2);
        for text in [r#"{"a":1}"#, r#"{"a":"1","a":"2"}"#, "[]", r#""x""#, r#"{"a":null}"#, "{"] {
            assert!(scratchpad(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_stands_in_for_a_text_is_of_its_kind() {
        for kind in ["scratchpad", "plan", "pin", "free"].map(DocumentKind::from_word) {
            assert_eq!(check(&kind, &stand_in(&kind, "[redacted]")), Ok(()), "{kind}");
        }
    }
}
