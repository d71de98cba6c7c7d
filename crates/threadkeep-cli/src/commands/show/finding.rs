//! A literal text inside of one thread, with every place where it stands.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Value, json};
use threadkeep::blocking::Threads;
use threadkeep::search::find;
use threadkeep::{Address, BranchId, Item, ItemQuery, Thread, Tree, View};

use super::write_head;
use crate::commands::App;
use crate::errors::{Code, Failure, Outcome};
use crate::marking::Marked;
use crate::masking::Veil;
use crate::style::Ink;
use crate::views::Views;
use crate::{human, json, names, text};

/// How many items are read at a time.
const PAGE: usize = 256;
/// How much of a line programs get on either side of a place, in bytes.
const BESIDE: usize = 400;

/// What is looked for, and where.
pub(super) struct Finding<'a> {
    pub(super) threads: &'a Threads,
    pub(super) thread: &'a Thread,
    /// The path that is looked through; all paths of the thread when `None`.
    pub(super) path: Option<Address>,
    pub(super) from: u32,
    pub(super) to: Option<u32>,
    pub(super) wanted: &'a str,
    pub(super) veil: &'a Veil,
}

/// An item with the places in its readable text.
struct Places<'a> {
    item: &'a Item,
    view: &'a View,
    text: &'a str,
    places: &'a [Range<usize>],
    active: bool,
}

impl Finding<'_> {
    /// Shows every place.
    pub(super) fn show(&self, app: &mut App) -> Outcome {
        if app.out.is_json() { self.write_json(app) } else { self.write_words(app) }
    }

    fn write_json(&self, app: &mut App) -> Outcome {
        let thread = self.thread;
        let mut listing = app.out.listing(&[("thread", json::thread(thread))], "places")?;
        let visited = self.visit(|found| {
            let branch = (!found.active).then(|| found.item.branch.to_string());
            let address = names::item(thread.id.as_str(), branch.as_deref(), found.item.depth);
            let mut lines = Lines::new(found.text);
            found.places.iter().try_for_each(|place| listing.push(&document(found, &address, place, &mut lines)))
        });
        match visited {
            Ok(()) => listing.finish(None)?,
            Err(failure) => return Err(listing.fail(failure)),
        }
        Ok(Code::Done)
    }

    fn write_words(&self, app: &mut App) -> Outcome {
        let short = names::short_id(self.threads, &self.thread.id);
        let tree = self.threads.tree(&self.thread.id)?;
        let branches: HashMap<BranchId, String> = names::short_branches(&tree).into_iter().collect();
        let out = &mut app.out;
        write_head(out, self.thread, &short)?;
        let (mut places, mut items) = (0, 0);
        self.visit(|found| {
            items += 1;
            places += found.places.len();
            let branch = branches.get(&found.item.branch).filter(|_| !found.active);
            let address = names::item(&short, branch.map(String::as_str), found.item.depth);
            let role = found.item.role.as_ref().or(found.view.role.as_ref());
            let who = text::one_line(role.map_or(found.item.kind.as_str(), |role| role.as_str()));
            let time = out.paint(Ink::Dim, &human::moment(found.item.created_at));
            out.line(format!("\n{}  {who}  {time}", out.paint(Ink::Hint, &address)))?;
            for (number, line, marks) in by_line(found.text, found.places) {
                let number = format!("{number:>6}: ");
                let room = out.width().saturating_sub(text::width(&number));
                let whole = Marked::around(line, &marks, usize::MAX / 64);
                let shown = match text::width(whole.text()) <= room {
                    true => vec![whole],
                    // What does not fit is shown around each of its places.
                    false => marks.iter().map(|mark| Marked::around(line, std::slice::from_ref(mark), room)).collect(),
                };
                for line in shown {
                    out.line(format!("{}{}", out.paint(Ink::Dim, &number), line.paint(out, Ink::Plain)))?;
                }
            }
            Ok(())
        })?;
        let foot = match places {
            0 => "It stands nowhere in it.".to_owned(),
            _ => format!(
                "{} in {}. Numbers are lines of the item.",
                human::counted(places as i128, "place", "places"),
                human::counted(items, "item", "items")
            ),
        };
        out.line(format!("\n{}", out.paint(Ink::Dim, &foot)))?;
        Ok(Code::Done)
    }

    /// Visits each item in which it stands: the active path first, then what lies beside it.
    fn visit(&self, mut visit: impl FnMut(&Places<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let tree = self.threads.tree(&self.thread.id)?;
        let active: HashMap<BranchId, u32> =
            names::path(&tree, tree.head).into_iter().map(|part| (part.branch, part.depth)).collect();
        let views = Views::new();
        for (at, from) in self.paths(&tree, &active) {
            let mut query =
                ItemQuery { at: Some(at), from: from.max(self.from), to: self.to, limit: PAGE, ..ItemQuery::default() };
            loop {
                let mut page = self.threads.items(&self.thread.id, query.clone())?;
                for item in &mut page.entries {
                    self.veil.item(item);
                    let view = views.read(item);
                    let text = view.to_text();
                    let places: Vec<_> = find(&text, self.wanted).collect();
                    if !places.is_empty() {
                        let active = active.get(&item.branch).is_some_and(|until| item.depth <= *until);
                        visit(&Places { item, view: &view, text: &text, places: &places, active })?;
                    }
                }
                query.cursor = page.next_cursor;
                if query.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The ends of the paths that are looked through, and the depth from which on each has items that those before it lack.
    fn paths(&self, tree: &Tree, active: &HashMap<BranchId, u32>) -> Vec<(Address, u32)> {
        if let Some(path) = self.path {
            return vec![(path, 0)];
        }
        let beside = tree.branches.iter().filter_map(|branch| {
            let from = active.get(&branch.id).map_or(branch.base, |until| until.saturating_add(1).max(branch.base));
            (from <= branch.tip).then_some((Address { branch: branch.id, depth: branch.tip }, from))
        });
        tree.head.map(|head| (head, 0)).into_iter().chain(beside).collect()
    }
}

/// What programs get of a place.
fn document(found: &Places<'_>, address: &str, place: &Range<usize>, lines: &mut Lines<'_>) -> Value {
    let item = found.item;
    let (number, line) = lines.of(place.start);
    let low = found.text.floor_char_boundary(place.start.saturating_sub(BESIDE)).max(line.start);
    let high = found.text.ceil_char_boundary((place.end + BESIDE).min(found.text.len())).min(line.end.max(place.end));
    json!({
        "address": address,
        "item": item.id,
        "branch": item.branch,
        "depth": item.depth,
        "active": found.active,
        "kind": item.kind,
        "role": item.role.as_ref().or(found.view.role.as_ref()),
        "created_at": json::time(item.created_at),
        "range": [place.start, place.end],
        "line_number": number,
        "line": found.text.get(low..high),
        "mark": [place.start - low, place.end - low],
    })
}

/// Counts lines as places come, in their order.
struct Lines<'a> {
    text: &'a str,
    start: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, start: 0, number: 1 }
    }

    /// The number of the line that holds this byte, from 1, and its range without the line feed.
    fn of(&mut self, at: usize) -> (usize, Range<usize>) {
        let length = |start: usize| self.text.get(start..).and_then(|rest| rest.find('\n'));
        while let Some(length) = length(self.start).filter(|length| self.start + length < at) {
            self.start += length + 1;
            self.number += 1;
        }
        let end = length(self.start).map_or(self.text.len(), |length| self.start + length);
        (self.number, self.start..end)
    }
}

/// The lines in which places begin, each with its number and its places as ranges of its bytes.
fn by_line<'a>(text: &'a str, places: &[Range<usize>]) -> Vec<(usize, &'a str, Vec<Range<usize>>)> {
    let mut lines = Lines::new(text);
    let mut found: Vec<(usize, &str, Vec<Range<usize>>)> = Vec::new();
    for place in places {
        let (number, line) = lines.of(place.start);
        // What goes on over the end of a line is shown as far as it.
        let mark = place.start - line.start..place.end.min(line.end).saturating_sub(line.start);
        match found.last_mut().filter(|(last, ..)| *last == number) {
            Some((.., marks)) => marks.push(mark),
            None => found.push((number, text.get(line).unwrap_or_default(), vec![mark])),
        }
    }
    found
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::{Lines, by_line};

    #[test]
    fn places_are_in_their_lines() {
        let text = "one two\n\ntwo one\none";
        let one: Vec<_> = text.match_indices("one").map(|(at, _)| at..at + 3).collect();
        let lines = by_line(text, &one);
        assert_eq!(lines, [(1, "one two", vec![0..3]), (3, "two one", vec![4..7]), (4, "one", vec![0..3])]);
        let over = by_line(text, &[4..12]);
        assert_eq!(over, [(1, "one two", vec![4..7])]);
        assert_eq!(Lines::new(text).of(7), (1, 0..7), "the line feed belongs to the line that it ends");
        assert_eq!(Lines::new(text).of(8), (2, 8..8));
        assert_eq!(Lines::new("").of(0), (1, 0..0));
    }
}
