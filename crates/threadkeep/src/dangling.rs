//! Calls of tools without a result: which ones a path has, and where their results belong.

use serde::Serialize;

use crate::id::{Address, ItemId, ThreadId};
use crate::item::Kind;
use crate::turn::TurnStatus;
use crate::view::{Part, View};

/// What a repair of a thread's turns did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnRepair {
    /// The thread.
    pub thread: ThreadId,
    /// The calls that get a result, in the order of the path.
    pub closed: Vec<ClosedCall>,
    /// The turn that is marked as interrupted, since whoever began it no longer holds the thread.
    pub interrupted: Option<i64>,
    /// Calls without a result that are left alone, because who wrote them holds the thread and may still be waiting for it.
    pub running: u64,
    /// Calls without an id, of which nobody can say whether they have a result; they are left alone.
    pub without_id: u64,
    /// Results that answer no call on the path; they are left alone.
    pub without_call: u64,
    /// How many items are written again behind the results, because they stand after a place where one was missing.
    pub rewritten: u64,
    /// Where the thread stood.
    pub from: Option<Address>,
    /// Where the thread stands now; `None` for what is only planned, and for a thread that was cleared.
    pub head: Option<Address>,
}

impl TurnRepair {
    pub(crate) fn nothing(thread: ThreadId) -> Self {
        Self {
            thread,
            closed: Vec::new(),
            interrupted: None,
            running: 0,
            without_id: 0,
            without_call: 0,
            rewritten: 0,
            from: None,
            head: None,
        }
    }

    /// Whether there is something to be repaired.
    pub fn is_needed(&self) -> bool {
        !self.closed.is_empty() || self.interrupted.is_some()
    }
}

/// A call that had no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClosedCall {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The item of the call, where it was found: on the former branch, if it was written again.
    pub call: Address,
    /// The synthetic result; `None` for what is only planned.
    pub result: Option<Address>,
}

/// An item as the search for calls reads it.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) id: ItemId,
    pub(crate) at: Address,
    pub(crate) kind: &'a Kind,
    /// The turn that the item belongs to, where it is one of the thread itself.
    pub(crate) turn: Option<i64>,
    pub(crate) view: &'a View,
    /// Whether its calls can wait for a result at all.
    pub(crate) awaits: bool,
    /// Whether who wrote it holds the thread now.
    pub(crate) is_held: bool,
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dangling {
    pub(crate) call_id: String,
    pub(crate) tool: String,
    pub(crate) item: ItemId,
    pub(crate) at: Address,
    pub(crate) turn: Option<i64>,
    /// The depth of the item before which the result belongs; behind everything when `None`.
    pub(crate) before: Option<u32>,
    is_held: bool,
}

/// What a path lacks, found in one pass over it, oldest item first.
#[derive(Debug, Default)]
pub(crate) struct Search {
    open: Vec<Dangling>,
    /// Whether a result came since the last call: what is called next, or said, was so in the knowledge of it.
    has_answers: bool,
    without_call: u64,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// The calls that may get a result, those first whose results belong first.
    pub(crate) dangling: Vec<Dangling>,
    pub(crate) running: u64,
    pub(crate) without_id: u64,
    pub(crate) without_call: u64,
}

impl Search {
    /// Looks at the next item.
    pub(crate) fn see(&mut self, item: &Seen<'_>) {
        let parts = &item.view.parts;
        let is_answer =
            *item.kind == Kind::ToolResult || parts.iter().any(|part| matches!(part, Part::ToolResult { .. }));
        let is_call = *item.kind == Kind::ToolCall || parts.iter().any(|part| matches!(part, Part::ToolCall { .. }));
        let within = answered_within(parts);
        if is_answer {
            self.answer(parts, &within);
        }
        let is_said = matches!(item.kind, Kind::Message | Kind::Reasoning | Kind::Compaction);
        // Calls that are made together come one after the other; one that follows a result was made in the knowledge of it.
        if (is_said && !is_answer && !is_call) || (is_call && self.has_answers) {
            self.go_past(item.at.depth);
        }
        if is_call && item.awaits {
            self.call(item, &within);
        }
    }

    /// What is left without a result at the end of the path.
    pub(crate) fn end(self) -> Lacks {
        let mut lacks = Lacks { without_call: self.without_call, ..Lacks::default() };
        for call in self.open {
            match () {
                () if call.call_id.is_empty() => lacks.without_id += 1,
                () if call.is_held => lacks.running += 1,
                () => lacks.dangling.push(call),
            }
        }
        // Stable: calls whose results belong to one place keep their order.
        lacks.dangling.sort_by_key(|call| call.before.unwrap_or(u32::MAX));
        lacks
    }

    fn answer(&mut self, parts: &[Part], within: &[&str]) {
        let mut ids: Vec<&str> = parts
            .iter()
            .filter_map(|part| if let Part::ToolResult { call_id, .. } = part { Some(call_id.as_str()) } else { None })
            .collect();
        if ids.is_empty() {
            // Nothing of it can be read any more, so it may answer any of them.
            ids.push("");
        }
        for id in ids.into_iter().filter(|id| !within.contains(id)) {
            let found = self.open.iter().position(|call| call.call_id == id);
            let found = found.or_else(|| (id.is_empty() && !self.open.is_empty()).then_some(0));
            match found {
                Some(found) => drop(self.open.remove(found)),
                None => self.without_call += 1,
            }
        }
        self.has_answers = true;
    }

    /// Notes that the item at this depth could be written only when the calls before it were over.
    fn go_past(&mut self, depth: u32) {
        for call in &mut self.open {
            call.before.get_or_insert(depth);
        }
        self.has_answers = false;
    }

    fn call(&mut self, item: &Seen<'_>, within: &[&str]) {
        let mut calls: Vec<(&str, &str)> = item
            .view
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolCall { call_id, name, .. } => Some((call_id.as_str(), name.as_str())),
                _ => None,
            })
            .collect();
        if calls.is_empty() {
            calls.push(("", ""));
        }
        calls.retain(|(call_id, _)| !within.contains(call_id));
        self.open.extend(calls.into_iter().map(|(call_id, tool)| Dangling {
            call_id: call_id.to_owned(),
            tool: tool.to_owned(),
            item: item.id,
            at: item.at,
            turn: item.turn,
            before: None,
            is_held: item.is_held,
        }));
        self.has_answers = false;
    }
}

/// The words of a synthetic result: for a model that reads it, and for people.
pub(crate) fn words_for(call: &Dangling) -> String {
    let tool = if call.tool.is_empty() { "the tool" } else { &call.tool };
    format!(
        "[synthetic result: none was stored. The call of {tool} was broken off, or its result was lost. Whether it was carried \
         out, and how far, is not known.]"
    )
}

/// The words of the note that stands behind what was repaired.
pub(crate) fn words_of_receipt(calls: usize, rewritten: u64, from: Address) -> String {
    let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
    let again = match rewritten {
        0 => String::new(),
        1 => "; 1 item was written again behind it".to_owned(),
        many => format!("; {many} items were written again behind them"),
    };
    format!(
        "turns repaired: {calls} without a result got a synthetic one on a branch of its own{again}; before, the thread stood at {from}"
    )
}

/// What came of a turn whose holder ended before it.
pub(crate) const LEFT_OPEN: (TurnStatus, &str) = (TurnStatus::Interrupted, "whoever began it ended before it did");

/// The calls of an item whose results stand in it, too, as some agents keep them.
fn answered_within(parts: &[Part]) -> Vec<&str> {
    let called = |id: &str| parts.iter().any(|part| matches!(part, Part::ToolCall { call_id, .. } if call_id == id));
    let results = parts.iter().filter_map(|part| match part {
        Part::ToolResult { call_id, .. } if !call_id.is_empty() => Some(call_id.as_str()),
        _ => None,
    });
    results.filter(|id| called(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Lacks, Search, Seen};
    use crate::id::{Address, ItemId};
    use crate::item::Kind;
    use crate::view::{Part, View};

    enum Step<'a> {
        Call(&'a [&'a str]),
        Held(&'a str),
        /// An answer whose calls have their results within, and one that has none.
        Whole(&'a [&'a str], Option<&'a str>),
        Result(&'a [&'a str]),
        Gone,
        Say,
        Note,
    }
    use Step::{Call, Gone, Held, Note, Result, Say, Whole};

    fn search(steps: &[Step<'_>]) -> Lacks {
        let mut search = Search::default();
        for (depth, step) in (0_u32..).zip(steps) {
            let id = ItemId::from_uuid(uuid::Uuid::from_u64_pair(1, u64::from(depth)));
            let call =
                |id: &&str| Part::ToolCall { call_id: (*id).to_owned(), name: "t".into(), arguments: String::new() };
            let result =
                |id: &&str| Part::ToolResult { call_id: (*id).to_owned(), output: String::new(), is_error: false };
            let (kind, parts) = match step {
                Call(ids) => (Kind::ToolCall, ids.iter().map(call).collect()),
                Held(id) => (Kind::ToolCall, vec![call(id)]),
                Whole(ids, open) => {
                    let paired = ids.iter().flat_map(|id| [call(id), result(id)]);
                    (Kind::Message, paired.chain(open.iter().map(call)).collect())
                }
                Result(ids) => (Kind::ToolResult, ids.iter().map(result).collect()),
                Gone => (Kind::ToolResult, Vec::new()),
                Say => (Kind::Message, vec![Part::Text { text: "x".into() }]),
                Note => (Kind::Event, vec![Part::Note { text: "x".into() }]),
            };
            let view = View { parts, ..View::default() };
            let at = Address { branch: id, depth };
            let is_held = matches!(step, Held(_));
            search.see(&Seen { id, at, kind: &kind, turn: None, view: &view, awaits: true, is_held });
        }
        search.end()
    }

    fn found(steps: &[Step<'_>]) -> Vec<(String, u32, Option<u32>)> {
        search(steps).dangling.into_iter().map(|call| (call.call_id, call.at.depth, call.before)).collect()
    }

    fn one(id: &str, at: u32, before: Option<u32>) -> (String, u32, Option<u32>) {
        (id.to_owned(), at, before)
    }

    #[test]
    fn a_result_within_the_item_of_its_call_answers_it() {
        let lacks = search(&[Whole(&["a", "b"], None), Say, Whole(&["a"], None)]);
        assert_eq!((lacks.dangling.len(), lacks.without_call), (0, 0));
        assert_eq!(found(&[Whole(&["a"], Some("b")), Say]), [one("b", 0, Some(1))]);
        // What was called before and not answered stays so.
        assert_eq!(found(&[Call(&["a"]), Whole(&["b"], None), Say]), [one("a", 0, Some(1))]);
    }

    #[test]
    fn what_is_answered_lacks_nothing() {
        assert_eq!(search(&[Say, Call(&["a", "b"]), Result(&["b"]), Note, Result(&["a"]), Say]), Lacks::default());
    }

    #[test]
    fn a_result_belongs_behind_those_of_the_calls_beside_it() {
        assert_eq!(found(&[Call(&["a"]), Call(&["b"]), Result(&["b"])]), [one("a", 0, None)]);
        assert_eq!(found(&[Call(&["a"]), Call(&["b"]), Result(&["b"]), Note, Say, Say]), [one("a", 0, Some(4))]);
        assert_eq!(
            found(&[Call(&["a"]), Call(&["b"]), Result(&["b"]), Call(&["c"])]),
            [one("a", 0, Some(3)), one("c", 3, None)]
        );
        assert_eq!(
            found(&[Call(&["a", "b"]), Say, Call(&["c"]), Say]),
            [one("a", 0, Some(1)), one("b", 0, Some(1)), one("c", 2, Some(3))]
        );
    }

    #[test]
    fn ids_that_are_used_again_are_paired_in_order() {
        assert_eq!(search(&[Call(&["a"]), Result(&["a"]), Call(&["a"]), Result(&["a"])]), Lacks::default());
        assert_eq!(found(&[Call(&["a"]), Result(&["a"]), Say, Call(&["a"])]), [one("a", 3, None)]);
    }

    #[test]
    fn late_results_close_their_calls_and_others_are_counted() {
        assert_eq!(search(&[Call(&["a"]), Say, Result(&["a"])]), Lacks::default());
        assert_eq!(search(&[Result(&["x"]), Say]), Lacks { without_call: 1, ..Lacks::default() });
    }

    #[test]
    fn what_nobody_can_pair_is_left_alone() {
        assert_eq!(search(&[Call(&[""])]), Lacks { without_id: 1, ..Lacks::default() });
        assert_eq!(search(&[Call(&[]), Gone]), Lacks::default());
        // A result of which nothing can be read may be the one that is waited for.
        assert_eq!(search(&[Call(&["a"]), Gone]), Lacks::default());
    }

    #[test]
    fn what_its_writer_may_still_wait_for_is_left_alone() {
        let lacks = search(&[Call(&["a"]), Say, Held("b")]);
        assert_eq!((lacks.dangling.len(), lacks.running), (1, 1));
    }
}
