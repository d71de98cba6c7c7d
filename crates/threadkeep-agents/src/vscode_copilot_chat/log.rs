//! The log of changes to a session: its first line is the whole state, each other one a change to it.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use super::request;
use crate::json::read;
use crate::replay::{Replay, Taken};

/// How long a path of a change may be; those of VS Code have up to five steps. With what one line can nest, it bounds the depth of
/// the state.
const MAX_STEPS: usize = 32;
/// How much memory the state may take, roughly. What would go beyond is left out and reported.
const MAX_STATE_BYTES: usize = 1 << 30;
/// What a value takes by itself.
const VALUE_BYTES: usize = size_of::<Value>();
/// What a session says of itself, but for its requests and what is being typed.
const OF_SESSION: [&str; 5] = ["sessionId", "creationDate", "customTitle", "version", "inputState"];

/// The state that a log leads to.
///
/// Guarantees: a line that can't be read or applied costs itself alone; a change of what is not there changes nothing; the state is
/// no larger than its bound, whatever the lines say.
#[derive(Debug, Default)]
pub(super) struct Log {
    state: Option<Value>,
    bytes: usize,
    rest: Option<Rest>,
}

/// What is still to be handed out at the end of the file.
#[derive(Debug)]
struct Rest {
    requests: VecDeque<Value>,
    is_open: bool,
}

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Replay for Log {
    fn take(&mut self, part: &[u8]) -> Taken {
        let change = match read::<Value>(part) {
            Ok((change, _)) => change,
            Err(error) => return Taken::wrong(format!("unreadable change: {error}")),
        };
        Taken { records: Vec::new(), finding: self.apply(change).err() }
    }

    fn rest(&mut self) -> Vec<Vec<u8>> {
        if self.rest.is_none() {
            let Some(state) = self.state.take() else { return Vec::new() };
            let (session, rest) = split(state);
            self.rest = Some(rest);
            return vec![session];
        }
        let Some(rest) = self.rest.as_mut() else { return Vec::new() };
        while let Some(request) = rest.requests.pop_front() {
            if rest.requests.is_empty() {
                rest.is_open = request::is_open(&request);
            }
            let records = request::records(&request);
            if !records.is_empty() {
                return records;
            }
        }
        std::mem::take(&mut rest.is_open).then(request::open).into_iter().collect()
    }
}

impl Log {
    fn apply(&mut self, change: Value) -> Result<(), String> {
        let Value::Object(mut change) = change else { return Err("a change that is no object".to_owned()) };
        let value = change.remove("v");
        match change.get("kind").and_then(Value::as_u64) {
            Some(0) => self.begin(value),
            Some(1) => {
                let path = path(&change)?;
                self.set(&path, Some(value.unwrap_or(Value::Null)))
            }
            Some(2) => self.push(&path(&change)?, value, change.get("i")),
            Some(3) => self.set(&path(&change)?, None),
            _ => Err("a change of an unknown kind".to_owned()),
        }
    }

    fn begin(&mut self, state: Option<Value>) -> Result<(), String> {
        let state = state.filter(Value::is_object).ok_or("a whole state that is no object")?;
        self.bytes = room(0, weight(&state))?;
        self.state = Some(state);
        Ok(())
    }

    fn set(&mut self, path: &[Step], value: Option<Value>) -> Result<(), String> {
        let (last, parents) = path.split_last().ok_or("a change of the whole state")?;
        let named = named(last);
        // What is deleted from a list leaves nothing in its place, which is a value too.
        let left = if matches!(last, Step::Index(_)) { VALUE_BYTES } else { 0 };
        let is_deletion = value.is_none();
        let bytes = room(self.bytes, value.as_ref().map_or(left, |value| weight(value).saturating_add(named)))?;
        let old = match (find(self.state.as_mut(), parents)?, last, value) {
            (Value::Object(object), Step::Key(key), Some(value)) => object.insert(key.clone(), value),
            (Value::Object(object), Step::Key(key), None) => object.remove(key),
            (Value::Array(list), Step::Index(at), Some(value)) => place(list, *at, value)?,
            // What is deleted leaves its place.
            (Value::Array(list), Step::Index(at), None) => list.get_mut(*at).map(Value::take),
            _ => return Err("a change within something that is neither an object nor a list".to_owned()),
        };
        if !(is_deletion && old.is_none()) {
            self.bytes = bytes.saturating_sub(old.as_ref().map_or(0, |value| weight(value).saturating_add(named)));
        }
        Ok(())
    }

    fn push(&mut self, path: &[Step], values: Option<Value>, cut: Option<&Value>) -> Result<(), String> {
        let (last, parents) = path.split_last().ok_or("a change of the whole state")?;
        let values = match values {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(_) => return Err("what is to be appended is no list".to_owned()),
        };
        let cut = match cut {
            None | Some(Value::Null) => None,
            Some(cut) => Some(index(cut).ok_or("a list is to be cut at what is no place in it")?),
        };
        // A list that is new, and its name.
        let named = named(last).saturating_add(VALUE_BYTES);
        let bytes = room(self.bytes, values.iter().map(weight).sum::<usize>().saturating_add(named))?;
        // A list that is no part of an object has no name.
        let mut is_named = true;
        let target = match (find(self.state.as_mut(), parents)?, last) {
            (Value::Object(object), Step::Key(key)) => {
                is_named = object.contains_key(key);
                object.entry(key.clone()).or_insert(Value::Null)
            }
            (Value::Array(list), Step::Index(at)) => list.get_mut(*at).ok_or("a list that is not there")?,
            _ => return Err("a change within something that is neither an object nor a list".to_owned()),
        };
        if target.is_null() {
            *target = Value::Array(Vec::new());
        }
        let Value::Array(list) = target else { return Err("what is to be appended to is no list".to_owned()) };
        let length = list.len();
        let old: usize = cut.map_or(0, |cut| list.drain(cut.min(length)..).map(|value| weight(&value)).sum());
        list.extend(values);
        self.bytes = bytes.saturating_sub(old).saturating_sub(if is_named { named } else { 0 });
        match cut.filter(|cut| *cut > length) {
            // What comes now goes on at its end all the same.
            Some(cut) => {
                Err(format!("a list is to be cut at {cut} and has {length} elements: some before it are missing"))
            }
            None => Ok(()),
        }
    }
}

/// Puts a value into a list in the place of another, or at its end; gives what was there.
fn place(list: &mut Vec<Value>, at: usize, value: Value) -> Result<Option<Value>, String> {
    let length = list.len();
    match list.get_mut(at) {
        Some(place) => Ok(Some(std::mem::replace(place, value))),
        None if at == length => {
            list.push(value);
            Ok(None)
        }
        None => Err(format!("a change at {at} of a list that has {length} elements")),
    }
}

/// How much memory the state takes with more in it.
/// What the name of a value in an object takes.
fn named(step: &Step) -> usize {
    if let Step::Key(key) = step { key.len().saturating_add(VALUE_BYTES) } else { 0 }
}

fn room(bytes: usize, more: usize) -> Result<usize, String> {
    let sum = bytes.saturating_add(more);
    if sum > MAX_STATE_BYTES { Err(format!("the session takes more than {MAX_STATE_BYTES} bytes")) } else { Ok(sum) }
}

/// The state as the record of the session and the requests.
fn split(state: Value) -> (Vec<u8>, Rest) {
    let Value::Object(mut state) = state else {
        return (request::session(Map::new()), Rest { requests: VecDeque::new(), is_open: false });
    };
    let requests = match state.remove("requests") {
        Some(Value::Array(requests)) => requests.into(),
        _ => VecDeque::new(),
    };
    let said = OF_SESSION.iter().filter_map(|key| Some(((*key).to_owned(), state.remove(*key)?)));
    let mut said: Map<String, Value> = said.collect();
    if let Some(Value::Object(input)) = said.get_mut("inputState") {
        // What is typed and attached is no part of what was said.
        input.retain(|key, _| key == "selectedModel" || key == "mode");
    }
    (request::session(said), Rest { requests, is_open: false })
}

fn path(change: &Map<String, Value>) -> Result<Vec<Step>, String> {
    let steps = change.get("k").and_then(Value::as_array).ok_or("a change without a path")?;
    if steps.len() > MAX_STEPS {
        return Err(format!("the path of a change has more than {MAX_STEPS} steps"));
    }
    let step = |step: &Value| match step {
        Value::String(key) => Ok(Step::Key(key.clone())),
        step => index(step).map(Step::Index).ok_or_else(|| "a step of a path is neither a name nor a place".to_owned()),
    };
    steps.iter().map(step).collect()
}

fn index(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|index| usize::try_from(index).ok())
}

/// Follows a path; says where it ends before its end.
fn find<'a>(state: Option<&'a mut Value>, path: &[Step]) -> Result<&'a mut Value, String> {
    let mut value = state.ok_or("a change before the whole state")?;
    for step in path {
        value = match (value, step) {
            (Value::Object(object), Step::Key(key)) => object.get_mut(key),
            (Value::Array(list), Step::Index(at)) => list.get_mut(*at),
            _ => None,
        }
        .ok_or_else(|| format!("a change of what is not there, at {}", show(path)))?;
    }
    Ok(value)
}

fn show(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Key(key) => key.chars().filter(|letter| !letter.is_control()).take(32).collect(),
        Step::Index(at) => at.to_string(),
    });
    steps.collect::<Vec<String>>().join("/")
}

/// How much memory a value takes, roughly.
fn weight(value: &Value) -> usize {
    let mut sum = 0_usize;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        sum = sum.saturating_add(VALUE_BYTES);
        match value {
            Value::String(text) => sum = sum.saturating_add(text.len()),
            Value::Array(list) => open.extend(list),
            Value::Object(object) => {
                sum = object.keys().fold(sum, |sum, key| sum.saturating_add(key.len() + VALUE_BYTES));
                open.extend(object.values());
            }
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Log;
    use crate::replay::Replay;

    fn log(lines: &[Value]) -> (Value, Vec<String>) {
        let mut log = Log::default();
        let findings = lines.iter().filter_map(|line| log.take(line.to_string().as_bytes()).finding).collect();
        (log.state.unwrap_or(Value::Null), findings)
    }

    /// Else a log could take more memory than its bound, or none of what it says.
    #[test]
    fn the_books_on_the_state_are_kept_with_its_names() {
        let mut log = Log::default();
        let named = "a long name".repeat(100);
        for line in [
            json!({"kind": 0, "v": {"requests": [], "title": "x"}}),
            json!({"kind": 1, "k": [named], "v": 0}),
            json!({"kind": 1, "k": [named], "v": "other"}),
            json!({"kind": 2, "k": ["requests"], "v": [{"id": "1"}, "two"]}),
            json!({"kind": 2, "k": ["more"], "v": [1, 2]}),
            json!({"kind": 2, "k": ["more"], "v": [3], "i": 1}),
            json!({"kind": 3, "k": ["requests", 1]}),
            json!({"kind": 3, "k": ["requests", 1]}),
            json!({"kind": 3, "k": [named]}),
            json!({"kind": 3, "k": [named]}),
        ] {
            log.take(line.to_string().as_bytes());
            assert_eq!(log.bytes, log.state.as_ref().map_or(0, super::weight), "behind {line}");
        }
    }

    #[test]
    fn a_log_leads_to_its_last_state() {
        let (state, findings) = log(&[
            json!({"kind": 0, "v": {"a": {"b": [1, 2, 3]}, "c": 1}}),
            json!({"kind": 1, "k": ["a", "b", 1], "v": {"d": null}}),
            json!({"kind": 2, "k": ["a", "b"], "v": [4, 5], "i": 2}),
            json!({"kind": 2, "k": ["new"], "v": ["x"]}),
            json!({"kind": 2, "k": ["new"], "i": 0}),
            json!({"kind": 3, "k": ["c"]}),
            json!({"kind": 1, "k": ["gone"]}),
        ]);
        assert_eq!(state, json!({"a": {"b": [1, {"d": null}, 4, 5]}, "new": [], "gone": null}));
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn what_can_not_be_applied_is_told_and_costs_itself() {
        let deep = vec![json!("a"); 33];
        let (state, findings) = log(&[
            json!({"kind": 1, "k": ["a"], "v": 1}),
            json!({"kind": 0, "v": {"list": [1], "text": "x"}}),
            json!({"kind": 0, "v": [1]}),
            json!({"kind": 1, "k": [], "v": 1}),
            json!({"kind": 1, "k": ["list", 4_000_000_000_u64], "v": 1}),
            json!({"kind": 1, "k": ["list", -1], "v": 1}),
            json!({"kind": 1, "k": ["list", 0.5], "v": 1}),
            json!({"kind": 1, "k": ["text", "length"], "v": 1}),
            json!({"kind": 1, "k": ["__proto__", "x"], "v": 1}),
            json!({"kind": 1, "k": deep, "v": 1}),
            json!({"kind": 1, "k": "list", "v": 1}),
            json!({"kind": 2, "k": ["text"], "v": [1]}),
            json!({"kind": 2, "k": ["list"], "v": {"length": 9}}),
            json!({"kind": 2, "k": ["list"], "v": [2], "i": "0"}),
            json!({"kind": 2, "k": ["list", 9], "v": [2]}),
            json!({"kind": 4, "k": ["list"]}),
            json!(["kind", 0]),
            json!({"kind": 2, "k": ["list"], "v": [3], "i": 7}),
        ]);
        // A list that lost some of its elements goes on at its end.
        assert_eq!(state, json!({"list": [1, 3], "text": "x"}));
        assert_eq!(findings.len(), 17, "{findings:#?}");
    }

    #[test]
    fn the_weight_of_what_was_replaced_is_given_back() {
        let mut log = Log::default();
        let long = "x".repeat(10_000);
        log.take(json!({"kind": 0, "v": {"list": []}}).to_string().as_bytes());
        for _ in 0..1_000 {
            log.take(json!({"kind": 2, "k": ["list"], "v": [long], "i": 0}).to_string().as_bytes());
            log.take(json!({"kind": 1, "k": ["other"], "v": long}).to_string().as_bytes());
        }
        assert!(log.bytes < 100_000, "{}", log.bytes);
    }
}
