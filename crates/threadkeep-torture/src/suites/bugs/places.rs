//! Where things belong: unknown words at a thread's end, streams beside each other, folders whose names are alike.

use std::path::{Path, PathBuf};

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{AppendOptions, Durability, ItemId, ItemQuery, Kind, NewItem, Role, StoreOptions};

use crate::Result;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan, Random};
use crate::report::{Outcome, Stop};
use crate::work::{self, told};

fn create(store: &Store, thread: &str) -> Result<LiveThread> {
    work::claim(store, &work::thread_id(thread)?).map_err(told)
}

/// The ids of a thread's items with their depths.
fn items(store: &Store, thread: &str) -> Result<Vec<(u32, ItemId)>> {
    let (mut found, mut query) = (Vec::new(), ItemQuery { limit: 2_000, ..ItemQuery::default() });
    loop {
        let page = store.items(&work::thread_id(thread)?, query.clone()).map_err(told)?;
        found.extend(page.entries.into_iter().map(|item| (item.depth, item.id)));
        match page.next_cursor {
            None => return Ok(found),
            cursor => query.cursor = cursor,
        }
    }
}

/// B29: what a thread ends with is of a kind that nobody knows, and the numbers go on from it.
pub(super) fn unknown_words(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let rounds = plan.pick(20, 200, 1_000);
    let folder = plan::fast_folder()?;
    let open = || Store::open(StoreOptions::folder(folder.path().join("store")).label("words")).map_err(told);
    let mut expected = Vec::new();
    for round in 0..rounds {
        // Opened anew each time, so that the end is read from the store.
        let live = create(&open()?, "words")?;
        let odd = NewItem {
            role: Some(Role::from_word("hologram")),
            ..NewItem::raw(Kind::from_word("projection"), "future/9", br#"{"n":1.5e400,"new":[null]}"#.to_vec())
        };
        let known = work::items(1, 0, round, 1);
        for item in [known, vec![odd.with_id(work::item_id(2, 0, round))]].concat() {
            expected.extend(item.id);
            live.append(vec![item]).map_err(told)?;
        }
    }
    let store = open()?;
    let found = items(&store, "words")?;
    judge_numbers(&found, &expected, &mut outcome.tally);
    let id = work::thread_id("words")?;
    let tail = ItemQuery { newest_first: true, limit: 1, ..ItemQuery::default() };
    let tail = store.items(&id, tail).map_err(told)?.entries;
    if tail.first().map(|item| (item.id, item.kind.as_str())) != expected.last().map(|id| (*id, "projection")) {
        outcome.tally.add(Rule::AckedLost, "the last page does not begin with the last item");
    }
    let (thread, verdict) = (store.get(&id).map_err(told)?, store.verify(&id).map_err(told)?);
    if usize::try_from(thread.items) != Ok(expected.len()) || !verdict.is_intact() {
        outcome.tally.add(Rule::Altered, format!("{} items, {:?}", thread.items, verdict.invalid));
    }
    outcome.figure("items, every second of an unknown kind", expected.len());
    let mut control = Tally::default();
    let last_known: Vec<(u32, ItemId)> = found.iter().copied().filter(|(depth, _)| depth % 2 == 0).collect();
    judge_numbers(&last_known, &expected, &mut control);
    outcome.control("a reader that skips what it does not know", !control.is_empty());
    Ok(())
}

fn judge_numbers(found: &[(u32, ItemId)], expected: &[ItemId], tally: &mut Tally) {
    if !found.iter().map(|(depth, _)| *depth).eq(0..u32::try_from(expected.len()).unwrap_or(0)) {
        tally.add(Rule::Hole, format!("{} items were appended, and the depths are others", expected.len()));
    }
    if !found.iter().map(|(_, id)| id).eq(expected) {
        tally.add(Rule::AckedLost, "other items, or in another order");
    }
}

/// B30: deltas are streamed to one thread while others are opened and left: each thread has its own, and nothing else.
pub(super) fn streams(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let rounds = plan.pick(1, 10, 50);
    let mut switched = 0;
    for round in 0..rounds {
        let folder = plan::fast_folder()?;
        let (streamed, others) = stream(&folder.path().join("store"), 0)?;
        switched += others;
        judge_stream(&streamed, &format!("round {round}"), &mut outcome.tally);
    }
    outcome.figure("streams of 1,000 deltas", rounds);
    outcome.figure("threads opened meanwhile", switched);
    let folder = plan::fast_folder()?;
    let mut control = Tally::default();
    judge_stream(&stream(&folder.path().join("store"), 10)?.0, "control", &mut control);
    outcome.control("a stream of which every tenth delta goes elsewhere", !control.is_empty());
    Ok(())
}

/// What the threads hold: the one that was streamed to, and all others.
type Streamed = (Vec<ItemId>, Vec<ItemId>);

/// Every so many deltas go to another thread: the sabotage of the control.
fn stream(folder: &Path, astray: u64) -> Result<(Streamed, u64)> {
    let open = |label: &str| Store::open(StoreOptions::folder(folder).label(label)).map_err(told);
    let (store, beside) = (open("streamer")?, open("beside")?);
    let live = create(&store, "streamed")?;
    let other = create(&store, "other-0")?;
    let queued = AppendOptions { durability: Durability::Queued, ..AppendOptions::default() };
    let done = std::sync::atomic::AtomicBool::new(false);
    let switched = std::thread::scope(|scope| {
        let switching = scope.spawn(|| {
            let mut switched = 1;
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                // In the same process and the same store; then through another one, and back again.
                for store in [&store, &beside] {
                    let opened = create(store, &format!("other-{switched}"))?;
                    opened.head().map_err(told)?;
                    switched += 1;
                }
            }
            Ok::<_, String>(switched)
        });
        let streaming = (0..1_000).try_for_each(|number| {
            let to = if astray > 0 && number % astray == 0 { &other } else { &live };
            to.append_with(work::items(1, 0, number, 1), queued).map(drop)
        });
        let flushed = streaming.and_then(|()| live.flush()).and_then(|()| other.flush()).map_err(told);
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        let switched = switching.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))?;
        flushed.map(|()| switched)
    })?;
    let ids =
        |thread: &str| -> Result<Vec<ItemId>> { Ok(items(&beside, thread)?.into_iter().map(|(_, id)| id).collect()) };
    let mut elsewhere = Vec::new();
    for number in 0..switched {
        elsewhere.extend(ids(&format!("other-{number}"))?);
    }
    Ok(((ids("streamed")?, elsewhere), switched))
}

fn judge_stream((streamed, elsewhere): &Streamed, place: &str, tally: &mut Tally) {
    if !elsewhere.is_empty() {
        tally.add(Rule::Phantom, format!("{place}: {} deltas stand in other threads", elsewhere.len()));
    }
    if !(0..1_000).map(|number| work::item_id(1, 0, number)).eq(streamed.iter().copied()) {
        tally.add(Rule::AckedLost, format!("{place}: {} of 1,000 deltas, or in another order", streamed.len()));
    }
}

/// What folders are called: alike to a slug, to the eye, or to a file system that folds cases.
const NAMES: [&str; 18] = [
    "a",
    "b",
    "a-b",
    "A",
    "日本",
    "中文",
    "日本語",
    "e\u{301}",
    "é",
    "a.b",
    "a b",
    ".a",
    "..a",
    "a_b",
    "-",
    "ａ",
    "ﬁ",
    "fi",
];

/// B31: two folders are one project when, and only when, they are one path.
pub(super) fn paths(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let pairs = plan.pick(1_000, 20_000, 100_000);
    let mut random = plan.random("paths");
    let store = Store::open(StoreOptions::memory().label("paths")).map_err(told)?;
    let (mut same, mut misled) = (0, 0);
    for _ in 0..pairs {
        let one = some_path(&mut random);
        let two = if random.below(3) == 0 { some_path(&mut random) } else { variant(&one, &mut random) };
        let equal = canonical(&one) == canonical(&two);
        let workspace = |path: &str| store.workspace(&PathBuf::from(path)).map(|found| found.info().id).map_err(told);
        same += u64::from(equal);
        if (workspace(&one)? == workspace(&two)?) != equal {
            outcome.tally.add(Rule::Misbehaved, format!("{one:?} and {two:?} are one path: {equal}"));
        }
        let slug = |path: &str| canonical(path).join("-").replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        misled += u64::from((slug(&one) == slug(&two)) != equal);
    }
    outcome.figure("pairs of paths", pairs);
    outcome.figure("of these one path", same);
    outcome.control(format!("telling projects by a slug, wrong in {misled} pairs"), misled > 0);
    Ok(())
}

fn some_path(random: &mut Random) -> String {
    let mut path = "/threadkeep-paths".to_owned();
    for _ in 0..=random.below(3) {
        path.push('/');
        path.push_str(name(random));
    }
    path
}

fn name(random: &mut Random) -> &'static str {
    NAMES.get(usize::try_from(random.below(NAMES.len() as u64)).unwrap_or(0)).copied().unwrap_or("a")
}

/// The same path written in another way, or one that looks like it.
fn variant(path: &str, random: &mut Random) -> String {
    match random.below(10) {
        0 => path.to_owned(),
        1 => format!("{path}/"),
        2 => format!("{path}/."),
        3 => path.replace('/', "//"),
        4 => format!("{path}/{}/..", name(random)),
        5 => path.replacen('/', "/./", 2),
        6 => path.to_uppercase(),
        7 => path.replace('-', "/"),
        8 => path.replace("e\u{301}", "é"),
        _ => format!("{path} "),
    }
}

/// The parts of a path, written anew from its text.
fn canonical(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}
