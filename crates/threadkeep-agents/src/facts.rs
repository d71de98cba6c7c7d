//! Gathering what the records of a file say of its thread.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use threadkeep::Usage;

use crate::json::one_line;
use crate::tree::key;

/// How many responses may be open at the same time: the records of one stand close together, but sub-agents interleave.
const OPEN_RESPONSES: usize = 32;

/// The last responses, by key, with what was counted for them.
///
/// Agents repeat the tokens of a response on each of its records, or write a record again with more of them: each response
/// counts once, by the record that states most output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Responses(VecDeque<(u64, Usage)>);

impl Responses {
    /// Counts the tokens of a response into a total.
    pub(crate) fn count(&mut self, total: &mut Option<Usage>, response: &str, usage: Usage) {
        let id = key(response);
        let known = self.0.iter().position(|(open, _)| *open == id);
        let before = known.and_then(|at| self.0.remove(at)).map(|(_, usage)| usage).unwrap_or_default();
        let after = if usage.output >= before.output { usage } else { before };
        push_bounded(&mut self.0, (id, after), OPEN_RESPONSES);
        let total = total.get_or_insert_default();
        let recount = |total: u64, before: u64, after: u64| total.saturating_sub(before).saturating_add(after);
        total.input = recount(total.input, before.input, after.input);
        total.cached = recount(total.cached, before.cached, after.cached);
        total.output = recount(total.output, before.output, after.output);
        total.reasoning = recount(total.reasoning, before.reasoning, after.reasoning);
    }
}

/// Whether a name is a UUID in its usual form.
pub(crate) fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The beginning of a text as one line, if there is anything to show of it.
pub(crate) fn shown(text: &str, max: usize) -> Option<String> {
    Some(one_line(text, max)).filter(|line| !line.is_empty())
}

/// The first one counts.
pub(crate) fn keep(slot: &mut Option<String>, value: Option<&str>) {
    if slot.is_none() {
        *slot = value.map(str::to_owned);
    }
}

/// The last one counts.
pub(crate) fn latest<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

/// Puts a value behind the others, and drops the first where there are too many.
pub(crate) fn push_bounded<T>(queue: &mut VecDeque<T>, value: T, bound: usize) {
    if queue.len() >= bound {
        queue.pop_front();
    }
    queue.push_back(value);
}
