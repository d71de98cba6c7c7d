//! Calls and their results, kept in pairs that an agent's model accepts.

use std::collections::{HashMap, HashSet};

use super::losses::{Losses, lost};

/// What hosts of models take as the id of a call.
const MAX_ID_BYTES: usize = 64;

/// The calls that were written, and which of them wait for a result.
///
/// Guarantees: no two calls have one id; every id is made of letters, digits, `_` and `-`, and is at most 64 bytes long; each call
/// has at most one result, which comes after it. What is remembered of a call that has its result is eight bytes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    used: HashSet<u64>,
    /// By the id that the session has for it, the id that was written, and whether it takes words instead of an object.
    open: HashMap<String, (String, bool)>,
    /// How often an id was given anew, where it was.
    again: HashMap<u64, u64>,
}

/// Calls that wait at some place of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting(HashMap<String, (String, bool)>);

impl Calls {
    /// Takes a call in; gives the id to write. `is_text` is given back with its result.
    pub(crate) fn call(&mut self, id: &str, is_text: bool, losses: &mut Losses) -> String {
        let mut written = clean(id);
        while !self.used.insert(key(&written)) {
            let number = self.again.entry(key(id)).or_default();
            *number += 1;
            written = marked(id, *number);
        }
        if written != id {
            losses.count(lost::CALL_IDS);
        }
        if self.open.insert(id.to_owned(), (written.clone(), is_text)).is_some() {
            losses.count(lost::CALLS);
        }
        written
    }

    /// Takes a result in; gives the id of the call that it answers and whether that takes words, or nothing where no call waits
    /// for it.
    pub(crate) fn result(&mut self, id: &str, losses: &mut Losses) -> Option<(String, bool)> {
        let call = self.open.remove(id);
        if call.is_none() {
            losses.count(lost::RESULTS);
        }
        call
    }

    /// Takes in a call that stands in the file as it is.
    pub(crate) fn keep_call(&mut self, id: &str, is_text: bool) {
        self.used.insert(key(id));
        self.open.insert(id.to_owned(), (id.to_owned(), is_text));
    }

    /// Takes in a result that stands in the file as it is.
    pub(crate) fn keep_result(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// The calls that wait here: what another branch goes on from.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(self.open.clone())
    }

    /// Goes on where these calls waited.
    pub(crate) fn go_on(&mut self, waiting: Waiting) {
        self.open = waiting.0;
    }

    /// Whether a call waits for its result.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether the call of this id waits for its result.
    pub(crate) fn waits_for(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    /// Counts the calls that wait for a result in the end.
    pub(crate) fn finish(&mut self, losses: &mut Losses) {
        losses.add(lost::CALLS, self.open.len() as u64);
        self.open.clear();
    }
}

/// The name of a tool as hosts of models take it: letters, digits, `_` and `-`, at most 64 of them.
pub(crate) fn tool_name(name: &str, losses: &mut Losses) -> String {
    let clean: String = name.chars().map(plain).take(MAX_ID_BYTES).collect();
    let clean = if clean.is_empty() { "tool".to_owned() } else { clean };
    if clean != name {
        losses.count(lost::TOOL_NAMES);
    }
    clean
}

fn clean(id: &str) -> String {
    let is_clean = !id.is_empty() && id.len() <= MAX_ID_BYTES && id.chars().all(|letter| plain(letter) == letter);
    if is_clean { id.to_owned() } else { marked(id, 0) }
}

/// An id that is made from another one.
fn marked(id: &str, number: u64) -> String {
    let stem: String = id.chars().map(plain).take(40).collect();
    let hash = blake3::hash(format!("{number} {id}").as_bytes()).to_hex();
    format!("{}_{}", if stem.is_empty() { "call" } else { &stem }, hash.get(..12).unwrap_or_default())
}

fn plain(letter: char) -> char {
    if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') { letter } else { '_' }
}

fn key(id: &str) -> u64 {
    let hash = blake3::hash(id.as_bytes());
    hash.as_bytes().iter().take(8).fold(0, |key, byte| (key << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::losses::Losses;
    use super::{Calls, tool_name};

    #[test]
    fn a_result_gets_the_id_of_its_call_once() {
        let (mut calls, mut losses) = (Calls::default(), Losses::default());
        assert_eq!(calls.call("toolu_1", false, &mut losses), "toolu_1");
        assert_eq!(calls.result("toolu_1", &mut losses), Some(("toolu_1".to_owned(), false)));
        assert_eq!(calls.result("toolu_1", &mut losses), None);
        assert_eq!(losses.take().len(), 1);
    }

    #[test]
    fn ids_that_come_again_or_are_odd_are_made_anew() {
        let (mut calls, mut losses) = (Calls::default(), Losses::default());
        let first = calls.call("a", false, &mut losses);
        calls.result("a", &mut losses);
        let second = calls.call("a", true, &mut losses);
        assert_ne!(first, second);
        assert_eq!(calls.result("a", &mut losses), Some((second, true)));
        for id in ["", "a b", "é", &"x".repeat(65), "\0"] {
            let written = calls.call(id, false, &mut losses);
            assert!(!written.is_empty() && written.len() <= 64, "{written}");
            assert!(written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{written}");
        }
        assert_eq!(losses.take().iter().map(|loss| loss.count).sum::<u64>(), 6);
    }

    #[test]
    fn names_are_cleaned() {
        let mut losses = Losses::default();
        assert_eq!(tool_name("mcp__x-Y", &mut losses), "mcp__x-Y");
        assert_eq!(losses.take(), []);
        assert_eq!(tool_name("functions.exec ✓", &mut losses), "functions_exec__");
        assert_eq!(tool_name("", &mut losses), "tool");
        assert_eq!(losses.take()[0].count, 2);
    }
}
