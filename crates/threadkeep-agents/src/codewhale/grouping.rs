//! Calls that were made together in one message, and their results behind it: what CodeWhale asks of a session that it resumes.
//!
//! It gives a call that has no result behind it one of its own, and removes a result that comes late.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::write::Entry;
use crate::json::str_at;

/// A call, and what names it.
const CALL: (&str, &str) = ("tool_use", "id");
const RESULT: (&str, &str) = ("tool_result", "tool_use_id");

/// The same entries in the order in which CodeWhale wants them, and of each entry where it stands now, or what it is part of.
///
/// Rows of CodeWhale's own stay as they are, and nothing is moved past a place where a branch begins, or past the head.
pub(super) fn grouped(entries: Vec<Entry>, head: Option<usize>) -> (Vec<Entry>, Vec<usize>) {
    let ends = ends_of_runs(&entries, head);
    let mut stands = vec![0; entries.len()];
    let mut made = Vec::with_capacity(entries.len());
    let mut run = Vec::new();
    for (number, entry) in entries.into_iter().enumerate() {
        run.push((number, entry));
        if ends.get(number).copied().unwrap_or(true) {
            Run::new(std::mem::take(&mut run)).write(&mut made, &mut stands);
        }
    }
    (made, stands)
}

/// Of each entry whether the next one does not follow from it alone.
fn ends_of_runs(entries: &[Entry], head: Option<usize>) -> Vec<bool> {
    let mut children = vec![0_u32; entries.len()];
    for parent in entries.iter().filter_map(|entry| entry.parent) {
        if let Some(count) = children.get_mut(parent) {
            *count += 1;
        }
    }
    let next = |number: usize| entries.get(number + 1).map(|next| next.parent == Some(number) && !next.is_own);
    let goes_on = |number: usize, entry: &Entry| !entry.is_own && next(number) == Some(true);
    let numbered = entries.iter().enumerate();
    let is_end = |number, entry| head == Some(number) || children.get(number) != Some(&1) || !goes_on(number, entry);
    numbered.map(|(number, entry)| is_end(number, entry)).collect()
}

/// Entries of which each follows the one before it, and is followed by no other.
struct Run {
    /// Taken one by one.
    entries: Vec<Option<(usize, Entry)>>,
    /// Where the result of each call is, where an entry holds results alone.
    results: HashMap<String, usize>,
    /// Where each call is.
    calls: HashMap<String, usize>,
}

impl Run {
    fn new(entries: Vec<(usize, Entry)>) -> Self {
        let (mut results, mut calls) = (HashMap::new(), HashMap::new());
        for (at, (_, entry)) in entries.iter().enumerate() {
            calls.extend(ids(entry, CALL).map(|id| (id, at)));
            if is_answer(entry) {
                results.extend(ids(entry, RESULT).map(|id| (id, at)));
            }
        }
        Self { entries: entries.into_iter().map(Some).collect(), results, calls }
    }

    fn write(mut self, made: &mut Vec<Entry>, stands: &mut [usize]) {
        // The first entry of a run stands behind what it stood behind; all others behind each other.
        let mut parent = self.first_parent().and_then(|parent| stands.get(parent).copied());
        let last = self.entries.last().and_then(Option::as_ref).map(|(number, _)| *number);
        let mut put = |entry: Entry, made: &mut Vec<Entry>| {
            let at = made.len();
            made.push(Entry { parent: parent.replace(at), ..entry });
            at
        };
        for at in 0..self.entries.len() {
            let Some((number, mut entry)) = self.take(at) else { continue };
            let mut answers = self.answers(&entry, at);
            let mut numbers = vec![number];
            // A result between two messages of the model is as good behind both, while another one is still to come.
            let mut next = at + 1;
            while answers.last().is_some_and(|last| *last >= next) {
                match self.entries.get(next) {
                    Some(Some((_, other))) if is_model(other) => {
                        let Some((number, other)) = self.take(next) else { break };
                        answers.extend(self.answers(&other, next));
                        numbers.push(number);
                        join(&mut entry, other);
                    }
                    Some(Some(_)) if answers.contains(&next) => {}
                    Some(None) => {}
                    _ => break,
                }
                next += 1;
            }
            if numbers.len() > 1 {
                entry.item = Some(entry.message.to_string());
            }
            let stood = put(entry, made);
            for number in numbers {
                stand(stands, number, stood);
            }
            for at in answers {
                if self.is_answered(at, next)
                    && let Some((number, answer)) = self.take(at)
                {
                    let stood = put(answer, made);
                    stand(stands, number, stood);
                }
            }
        }
        // Whatever goes on from here goes on from all of it.
        if let (Some(number), Some(end)) = (last, made.len().checked_sub(1)) {
            stand(stands, number, end);
        }
    }

    /// Whether all calls that a message answers stand before this place.
    fn is_answered(&self, at: usize, before: usize) -> bool {
        let Some(Some((_, entry))) = self.entries.get(at) else { return false };
        ids(entry, RESULT).all(|id| self.calls.get(&id).is_none_or(|call| *call < before))
    }

    fn first_parent(&self) -> Option<usize> {
        self.entries.first().and_then(Option::as_ref).and_then(|(_, entry)| entry.parent)
    }

    fn take(&mut self, at: usize) -> Option<(usize, Entry)> {
        self.entries.get_mut(at).and_then(Option::take)
    }

    /// Where the results of a message's calls are; they come behind it.
    fn answers(&self, entry: &Entry, at: usize) -> BTreeSet<usize> {
        if !is_model(entry) {
            return BTreeSet::new();
        }
        ids(entry, CALL).filter_map(|id| self.results.get(&id).copied()).filter(|answer| *answer > at).collect()
    }
}

fn stand(stands: &mut [usize], number: usize, at: usize) {
    if let Some(place) = stands.get_mut(number) {
        *place = at;
    }
}

fn is_model(entry: &Entry) -> bool {
    !entry.is_own && !entry.is_summary && entry.role == "assistant"
}

fn blocks(entry: &Entry) -> impl Iterator<Item = &Value> {
    entry.message.get("content").and_then(Value::as_array).into_iter().flatten()
}

/// Whether it holds results and nothing else.
fn is_answer(entry: &Entry) -> bool {
    !entry.is_own && blocks(entry).all(|block| str_at(block, "type") == "tool_result")
}

/// The ids of a message's calls, or those that its results name.
fn ids(entry: &Entry, (kind, key): (&'static str, &'static str)) -> impl Iterator<Item = String> {
    blocks(entry).filter(move |block| str_at(block, "type") == kind).map(move |block| str_at(block, key).to_owned())
}

/// Puts what the model went on with behind what it said before.
fn join(entry: &mut Entry, mut other: Entry) {
    let said = other.message.get_mut("content").and_then(Value::as_array_mut);
    if let (Some(content), Some(said)) = (entry.message.get_mut("content").and_then(Value::as_array_mut), said) {
        content.append(said);
    }
    if !entry.content.is_empty() && !other.content.is_empty() {
        entry.content.push('\n');
    }
    entry.content.push_str(&other.content);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::grouped;
    use crate::codewhale::write::Entry;

    fn entry(role: &str, block: &Value, parent: Option<usize>) -> Entry {
        let message = json!({ "role": role, "content": [block] });
        let (role, content) = (role.to_owned(), String::new());
        Entry { role, content, item: None, message, is_summary: false, is_own: false, at: None, parent }
    }

    fn call(id: &str, parent: Option<usize>) -> Entry {
        entry("assistant", &json!({ "type": "tool_use", "id": id }), parent)
    }

    fn result(id: &str, parent: usize) -> Entry {
        entry("user", &json!({ "type": "tool_result", "tool_use_id": id }), Some(parent))
    }

    fn words(parent: usize) -> Entry {
        entry("user", &json!({ "type": "text", "text": "words" }), Some(parent))
    }

    /// The kinds of blocks on the path to an entry.
    fn path(entries: &[Entry], to: usize) -> Vec<String> {
        let above = |entry: &&Entry| entry.parent.and_then(|parent| entries.get(parent));
        let path = std::iter::successors(entries.get(to), above);
        let mut kinds: Vec<String> = path.map(|entry| entry.message["content"].to_string()).collect();
        kinds.reverse();
        kinds
            .iter()
            .map(|kind| ["words", "tool_use_id", "tool_use"].into_iter().find(|word| kind.contains(word)))
            .map(|word| word.unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn every_branch_keeps_all_that_it_goes_on_from() {
        // A result that came late, behind which two branches begin.
        let entries = vec![call("a", None), words(0), result("a", 1), words(2), words(2)];
        let (made, stands) = grouped(entries, Some(3));
        for branch in [3, 4] {
            assert_eq!(path(&made, stands[branch]), ["tool_use", "tool_use_id", "words", "words"]);
        }
        // The head stands before the result: it goes on from what it went on from.
        let (made, stands) = grouped(vec![call("a", None), words(0), result("a", 1)], Some(1));
        assert_eq!(path(&made, stands[1]), ["tool_use", "words"]);
        assert_eq!(path(&made, stands[2]), ["tool_use", "words", "tool_use_id"]);
    }

    #[test]
    fn a_result_stands_before_no_call_that_it_answers() {
        let two = json!([{ "type": "tool_result", "tool_use_id": "a" }, { "type": "tool_result", "tool_use_id": "b" }]);
        let mut both = result("a", 2);
        both.message["content"] = two;
        let (made, stands) = grouped(vec![call("a", None), words(0), call("b", Some(1)), both], None);
        assert_eq!((made.len(), stands), (4, vec![0, 1, 2, 3]));
    }

    #[test]
    fn many_calls_are_one_message_and_their_results_stand_in_their_order() {
        let count = 20_000;
        let calls = (0..count).map(|number: usize| call(&number.to_string(), number.checked_sub(1)));
        let results = (0..count).map(|number| result(&number.to_string(), count + number - 1));
        let (made, _) = grouped(calls.chain(results).collect(), None);
        assert_eq!(made.len(), count + 1);
        assert_eq!(made[0].message["content"].as_array().map(Vec::len), Some(count));
        assert!(made.iter().enumerate().all(|(at, entry)| entry.parent == at.checked_sub(1)));
    }
}
