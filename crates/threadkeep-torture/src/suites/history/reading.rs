//! From what processes said, and from what is stored, to histories.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use threadkeep::blocking::Store;
use threadkeep::{Address, Hash, ItemId, ItemQuery};

use super::check::{Entry, History, Op, Step};
use crate::Result;
use crate::actor::{PAGE, link, note};
use crate::child::say;
use crate::ground;
use crate::oracle::{Rule, Tally};
use crate::work::{self, told};

/// Says every item of threads, on all of their branches.
#[derive(Debug, clap::Args)]
pub(crate) struct Dump {
    #[arg(long)]
    store: PathBuf,
    #[arg(long, value_delimiter = ',')]
    threads: Vec<String>,
}

/// Plays the process that reads.
pub(crate) fn play_dump(args: &Dump) -> Result<()> {
    let store = ground::options(&args.store).and_then(|options| Store::open(options.label("dump"))).map_err(told)?;
    for thread in &args.threads {
        let id = work::thread_id(thread)?;
        for branch in store.tree(&id).map_err(told)?.branches {
            let end = Address { branch: branch.id, depth: branch.tip };
            let mut query = ItemQuery { at: Some(end), from: branch.base, limit: 2_000, ..ItemQuery::default() };
            let mut parent =
                branch.parent.map(|parent| store.item(&id, parent)).transpose().map_err(told)?.map(|it| it.id);
            loop {
                let page = store.items(&id, query.clone()).map_err(told)?;
                for item in page.entries {
                    let before = parent.map_or_else(|| "-".to_owned(), |parent| parent.to_string());
                    let content = Hash::of(&item.content);
                    let reason = note(&item.content).and_then(|note| note.split(' ').next_back().map(str::to_owned));
                    say(format_args!(
                        "d {thread} {} {before} {} {} {} {content} {}",
                        item.id,
                        item.tick,
                        item.address(),
                        item.epoch,
                        format_args!("{} {}", item.hash, reason.as_deref().unwrap_or("-")),
                    ));
                    parent = Some(item.id);
                }
                match page.next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
        }
    }
    say("Z");
    Ok(())
}

/// An item as it is stored.
#[derive(Debug, Clone)]
struct Stored {
    id: ItemId,
    parent: Option<ItemId>,
    tick: i64,
    address: String,
    depth: u64,
    epoch: i64,
    content: Hash,
    hash: Hash,
    /// Of the take-over that left it.
    reason: String,
}

impl Stored {
    fn parse(words: &[&str]) -> Option<Self> {
        let [id, parent, tick, address, epoch, content, hash, reason] = words else { return None };
        Some(Self {
            id: id.parse().ok()?,
            parent: parent.parse().ok(),
            tick: tick.parse().ok()?,
            address: (*address).to_owned(),
            depth: address.split_once('@')?.1.parse().ok()?,
            epoch: epoch.parse().ok()?,
            content: content.parse().ok()?,
            hash: hash.parse().ok()?,
            reason: (*reason).to_owned(),
        })
    }
}

/// A call, and its answer if there was one.
#[derive(Debug, Clone)]
struct Call {
    life: u64,
    number: u64,
    from: u64,
    to: u64,
    order: Vec<String>,
    answer: Option<(String, String)>,
}

/// What was said and what is stored.
#[derive(Debug, Default)]
pub(super) struct Account {
    calls: Vec<Call>,
    killed: Vec<(u64, u64, u64)>,
    stored: BTreeMap<String, Vec<Stored>>,
    /// How many processes were killed.
    pub(super) kills: u64,
}

impl Account {
    /// Hears a process out. What a killed one was not answered may have had its effect until it was dead.
    pub(super) fn hear(&mut self, life: u64, lines: &[String], killed: Option<(u64, u64)>, tally: &mut Tally) {
        let begun = self.calls.len();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                [">", number, nanos, order @ ..] => {
                    let (number, from) = (number.parse().unwrap_or(0), nanos.parse().unwrap_or(0));
                    let order = order.iter().map(|word| (*word).to_owned()).collect();
                    let to = killed.map_or(u64::MAX, |(_, to)| to);
                    self.calls.push(Call { life, number, from, to, order, answer: None });
                }
                ["<", _, nanos, kind, rest @ ..] => {
                    if let Some(call) = self.calls.last_mut().filter(|call| call.life == life) {
                        call.to = nanos.parse().unwrap_or(0);
                        call.answer = Some(((*kind).to_owned(), rest.join(" ")));
                    }
                }
                ["D" | "R" | "Z"] => {}
                _ => tally.add(Rule::Misbehaved, format!("a process said `{line}`")),
            }
        }
        if let Some((from, to)) = killed {
            self.killed.push((life, from, to));
            self.kills += 1;
        } else if self.calls.len() > begun && self.calls.last().is_some_and(|call| call.answer.is_none()) {
            tally.add(Rule::Misbehaved, "a process ended without an answer");
        }
    }

    /// Hears what is stored.
    pub(super) fn store(&mut self, lines: &[String]) {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["d", thread, rest @ ..] = words.as_slice() {
                self.stored.entry((*thread).to_owned()).or_default().extend(Stored::parse(rest));
            }
        }
        for items in self.stored.values_mut() {
            items.sort_by_key(|item| (item.tick, item.depth));
        }
    }

    /// The history of each thread. What is wrong by itself is counted: lost or altered items, words that no call is answered.
    pub(super) fn histories(&self, tally: &mut Tally) -> Vec<History> {
        let threads: BTreeSet<&str> =
            self.calls.iter().filter_map(|call| call.order.get(1)).map(String::as_str).collect();
        threads.into_iter().map(|thread| Reader::new(self, thread).read(tally)).collect()
    }
}

/// Reads the history of one thread.
struct Reader<'a> {
    account: &'a Account,
    thread: &'a str,
    items: &'a [Stored],
    by_id: HashMap<ItemId, usize>,
    by_address: HashMap<&'a str, usize>,
    by_hash: HashMap<String, usize>,
    by_reason: HashMap<&'a str, usize>,
    /// Whose answer said that it stored these items.
    writers: HashMap<usize, usize>,
}

impl<'a> Reader<'a> {
    fn new(account: &'a Account, thread: &'a str) -> Self {
        let items = account.stored.get(thread).map_or(&[][..], Vec::as_slice);
        let places = || items.iter().enumerate();
        Self {
            account,
            thread,
            items,
            by_id: places().map(|(place, item)| (item.id, place)).collect(),
            by_address: places().map(|(place, item)| (item.address.as_str(), place)).collect(),
            by_hash: places().map(|(place, item)| (item.hash.to_string(), place)).collect(),
            by_reason: places().map(|(place, item)| (item.reason.as_str(), place)).collect(),
            writers: HashMap::new(),
        }
    }

    fn read(mut self, tally: &mut Tally) -> History {
        if self.by_id.len() != self.items.len() {
            tally.add(Rule::Duplicate, format!("{}: an id stands twice", self.thread));
        }
        self.judge_contents(tally);
        let calls: Vec<(usize, &Call)> = self.account.calls.iter().enumerate().collect();
        let calls: Vec<(usize, &Call)> =
            calls.into_iter().filter(|(_, call)| call.order.get(1).is_some_and(|it| it == self.thread)).collect();
        for (place, call) in &calls {
            if call.answer.as_ref().is_some_and(|(kind, rest)| kind == "ok" && rest.ends_with(" new"))
                && let Some((first, _)) = self.range(call)
                && self.writers.insert(first, *place).is_some()
            {
                tally.add(Rule::Duplicate, format!("{}: {first} was stored by two calls", self.thread));
            }
        }
        let mut handles: HashMap<u64, usize> = HashMap::new();
        let mut ops = Vec::new();
        for (place, call) in calls {
            let maybe = call.answer.is_none() || call.order.first().is_some_and(|verb| verb == "drop");
            let to = if maybe && call.answer.is_some() { u64::MAX } else { call.to };
            if let Some(step) = self.step(place, call, &mut handles, tally) {
                ops.push(Op { life: call.life, from: call.from, to, maybe, step });
            }
        }
        let kills = self.account.killed.iter();
        ops.extend(kills.map(|(life, from, to)| Op {
            life: *life,
            from: *from,
            to: *to,
            maybe: false,
            step: Step::Kill,
        }));
        let place = |id: Option<ItemId>| id.and_then(|id| self.by_id.get(&id)).copied();
        let log = self.items.iter().map(|item| Entry { parent: place(item.parent), epoch: item.epoch }).collect();
        // Whoever made the thread held it once.
        History { thread: self.thread.to_owned(), epoch: 1, log, ops }
    }

    fn judge_contents(&self, tally: &mut Tally) {
        for item in self.items.iter().filter(|item| item.reason == "-") {
            let (life, lane) = work::origin(item.id);
            let (_, number) = item.id.as_uuid().as_u64_pair();
            if item.content != Hash::of(&work::content(life, lane, number)) {
                tally.add(Rule::Altered, format!("{}: the content of {life}/{number}", self.thread));
            }
        }
    }

    /// The items of an append as they are stored, all of them side by side.
    fn range(&self, call: &Call) -> Option<(usize, usize)> {
        let number = |place: usize| call.order.get(place).and_then(|word| word.parse::<u64>().ok());
        let (life, lane, first) = (number(2)?, number(3)?, number(4)?);
        let size = number(5).unwrap_or(1);
        let place = |number| self.by_id.get(&work::item_id(life, lane, number)).copied();
        let start = place(first)?;
        let whole = (first..first + size).zip(start..).all(|(number, at)| place(number) == Some(at));
        whole.then_some((start, usize::try_from(size).unwrap_or(0)))
    }

    fn step(&self, place: usize, call: &Call, handles: &mut HashMap<u64, usize>, tally: &mut Tally) -> Option<Step> {
        let verb = call.order.first().map_or("", String::as_str);
        let handle = handles.get(&call.life).copied().unwrap_or(usize::MAX);
        let (kind, rest) = call.answer.as_ref().map_or(("none", ""), |(kind, rest)| (kind.as_str(), rest.as_str()));
        let by = || rest.rsplit_once(" L").and_then(|(_, life)| life.parse().ok());
        let step = match (verb, kind) {
            ("claim", "ok" | "none") => {
                handles.insert(call.life, place);
                Some(Step::Acquire { handle: place, note: None })
            }
            ("take", "ok" | "none") => {
                let note = self.by_reason.get(format!("op-{}-{}", call.life, call.number).as_str()).copied();
                if note.is_none() && kind == "ok" {
                    tally.add(Rule::AckedLost, format!("{}: the note of a take-over", self.thread));
                }
                handles.insert(call.life, place);
                note.map(|note| Step::Acquire { handle: place, note: Some(note) })
            }
            ("claim" | "delete", "claim-held") => by().map(|by| Step::Held { by }),
            ("claim" | "take", "not-found") => Some(Step::Missing { claim: false }),
            ("ask", "not-found") => Some(Step::Missing { claim: true }),
            ("ask", "ok" | "none") => Some(Step::Ask),
            ("delete", "ok" | "none") => Some(Step::Delete),
            ("restore", "ok" | "none") => Some(Step::Restore),
            ("restore", "not-found") | ("read" | "get" | "forge", "none") => return None,
            ("release" | "drop", "ok" | "none") => Some(Step::Let { handle }),
            ("append" | "begin", "ok" | "none") => self.appended(place, call, handle, tally),
            ("append", "conflict") => Some(Step::Conflict { handle, expected: self.expected(call)? }),
            ("forge", "already-exists") => self.range(call).map(|(item, _)| Step::Again { item }),
            ("append" | "begin" | "forge" | "rewind" | "end", "claim-lost") => Some(Step::Lost { handle }),
            ("append" | "begin" | "forge" | "rewind" | "end", "not-found") => Some(Step::Gone { handle }),
            ("rewind", "ok" | "none") => {
                let to = call.order.get(2).and_then(|to| self.by_address.get(to.as_str())).copied();
                to.map(|to| Step::Rewind { handle, to })
            }
            ("end", "ok") if rest == "kept" => Some(Step::End { handle, to: None }),
            ("end", "ok") => by().map(|by| Step::End { handle, to: Some(by) }),
            // It may have handed the thread over, as far as anybody else can see.
            ("end", "none") => Some(Step::Let { handle }),
            ("read", "ok") => self.seen(rest, tally),
            ("get", "ok") => self.row(call, rest, tally),
            _ => None,
        };
        if step.is_none() && kind != "none" {
            let words = format!("{}: `{}` is answered {kind} {rest}", self.thread, call.order.join(" "));
            tally.add(Rule::Misbehaved, words);
        }
        step
    }

    fn appended(&self, place: usize, call: &Call, handle: usize, tally: &mut Tally) -> Option<Step> {
        let range = self.range(call);
        let Some((kind, rest)) = &call.answer else {
            let (first, size) = range?;
            // Somebody else's answer may say that these were stored by that call.
            let is_other = self.writers.contains_key(&first);
            return (!is_other).then_some(Step::Write { handle, first, size, expect: self.expected(call) });
        };
        let Some((first, size)) = range else {
            tally.add(Rule::AckedLost, format!("{}: {}", self.thread, call.order.join(" ")));
            return Some(Step::Again { item: usize::MAX });
        };
        let last = self.items.get(first + size - 1);
        let expected = last.map(|last| format!("{} {}", last.address, last.hash)).unwrap_or_default();
        if kind == "ok" && !rest.starts_with(&expected) {
            tally.add(Rule::Altered, format!("{}: {expected} is stored, {rest} was answered", self.thread));
        }
        match self.writers.get(&first) == Some(&place) {
            true => Some(Step::Write { handle, first, size, expect: self.expected(call) }),
            false => Some(Step::Again { item: first + size - 1 }),
        }
    }

    /// The head that an append expected, if it did.
    fn expected(&self, call: &Call) -> Option<Option<usize>> {
        let word = call.order.get(6)?;
        Some(self.by_address.get(word.as_str()).copied())
    }

    /// What a reader saw: its head, and that the page is the path to it.
    fn seen(&self, rest: &str, tally: &mut Tally) -> Option<Step> {
        let words: Vec<&str> = rest.split(' ').collect();
        let [head, count, digest] = words.as_slice() else { return None };
        if *head == "-" {
            return Some(Step::Read { head: None });
        }
        let head = self.by_id.get(&head.parse().ok()?).copied();
        let mut at = head;
        let (mut seen, mut expected) = (0, Hash([0; 32]));
        while let Some(item) = at.and_then(|at| self.items.get(at)).filter(|_| seen < PAGE) {
            (seen, expected) = (seen + 1, link(expected, item.id, item.hash));
            at = item.parent.and_then(|parent| self.by_id.get(&parent)).copied();
        }
        if *count != seen.to_string() || *digest != expected.to_string() {
            tally.add(Rule::Altered, format!("{}: a reader saw another path than is stored", self.thread));
        }
        Some(Step::Read { head: Some(head.unwrap_or(usize::MAX)) })
    }

    fn row(&self, call: &Call, rest: &str, tally: &mut Tally) -> Option<Step> {
        let words: Vec<&str> = rest.split(' ').collect();
        let [holder, live, epoch, items, head] = words.as_slice() else { return None };
        let holder: Option<u64> = holder.strip_prefix('L').and_then(|life| life.parse().ok());
        let killed = |life: u64| self.account.killed.iter().any(|(dead, from, _)| *dead == life && *from <= call.to);
        if *live == "false" && holder.is_some_and(|holder| !killed(holder)) {
            tally.add(Rule::TwoWriters, format!("{}: the living holder {holder:?} looks dead", self.thread));
        }
        let head = if *head == "-" { None } else { Some(self.by_hash.get(*head).copied().unwrap_or(usize::MAX)) };
        Some(Step::Get { holder, epoch: epoch.parse().ok()?, items: items.parse().ok()?, head })
    }
}

#[cfg(test)]
mod tests {
    use super::super::player::batch;

    #[test]
    fn batches_do_not_overlap() {
        let numbers: Vec<u64> = (0..50).flat_map(|number| batch(number).0..batch(number).0 + batch(number).1).collect();
        assert!(numbers.is_sorted_by(|before, after| before < after));
    }
}
