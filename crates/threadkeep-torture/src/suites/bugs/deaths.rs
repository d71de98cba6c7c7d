//! Kills in the middle of creating, of turns, and between a commit and its answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use threadkeep::blocking::Store;
use threadkeep::{ListQuery, NewThread, StoreOptions, TurnEnd, TurnQuery, TurnStatus};

use crate::Result;
use crate::child::{Child, say};
use crate::ground::tamper;
use crate::oracle::{Rule, Tally};
use crate::plan::{self, Plan};
use crate::report::{Outcome, Stop};
use crate::suites::claims::{Scene, make};
use crate::work::{self, told};

/// Does one thing over and over until it is killed, or often enough.
#[derive(Debug, clap::Args)]
pub(crate) struct Drill {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    what: String,
    #[arg(long)]
    life: u64,
    #[arg(long)]
    times: u64,
    /// Acknowledges before it does it: the sabotage of the controls.
    #[arg(long)]
    lie: bool,
}

/// Plays it.
pub(crate) fn play_drill(args: &Drill) -> Result<()> {
    let store = work::open(&args.store, "drill")?;
    say("R");
    let mut byte = [0];
    drop(std::io::Read::read(&mut std::io::stdin(), &mut byte));
    match args.what.as_str() {
        "create" => create(&store, args)?,
        _ => turns(&store, args).map_err(told)?,
    }
    drop(store);
    say("Z");
    Ok(())
}

fn create(store: &Store, args: &Drill) -> Result<()> {
    let workspace = store.workspace(Path::new("/threadkeep-torture")).map_err(told)?;
    let name = |number: u64| format!("made-{}-{number}", args.life);
    // All of them before the first is made: whoever is killed at its first word has lied for sure.
    for name in (0..args.times).map(name).filter(|_| args.lie) {
        say(format_args!("I {name}"));
        say(format_args!("A {name}"));
    }
    for name in (0..args.times).map(name) {
        let new = NewThread { id: Some(work::thread_id(&name)?), ..NewThread::default() };
        say(format_args!("I {name}"));
        workspace.create_now(new).map_err(told)?;
        say(format_args!("A {name}"));
    }
    Ok(())
}

/// Turns of a prompt and two items; what is acknowledged is said with the number of the item.
fn turns(store: &Store, args: &Drill) -> threadkeep::Result<()> {
    let live = work::claim(store, &threadkeep::ThreadId::new("turns")?)?;
    for turn in 0..args.times {
        let first = turn * 3;
        let prompt = work::items(args.life, 0, first, 1).into_iter().next();
        if let Some(prompt) = prompt {
            say(format_args!("I turns {first} 1"));
            live.begin_turn(prompt)?;
            say(format_args!("A turns {first} 1"));
        }
        for number in first + 1..first + 3 {
            say(format_args!("I turns {number} 1"));
            live.append(work::items(args.life, 0, number, 1))?;
            say(format_args!("A turns {number} 1"));
        }
        live.end_turn(TurnEnd::completed())?;
        say("T");
    }
    Ok(())
}

fn drill(plan: &Plan, store: &Path, what: &str, life: u64, times: u64, lie: bool) -> Result<Child> {
    let mut command = Command::new(&plan.program);
    command.arg("drill").arg("--store").arg(store).arg("--what").arg(what);
    command.arg("--life").arg(life.to_string()).arg("--times").arg(times.to_string());
    if lie {
        command.arg("--lie");
    }
    let child = Child::start(command)?;
    child.hear_until("R")?;
    Ok(child)
}

/// B17: 8 processes create 100 threads each at once, some are killed: all that was acknowledged is listed, and once.
pub(super) fn killed_creators(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let rounds = plan.pick(2, 20, 100);
    let mut random = plan.random("killed-creators");
    let (mut acked, mut killed) = (0, 0);
    for round in 0..rounds {
        let folder = plan::fast_folder()?;
        let store = folder.path().join("store");
        let mut children =
            (1..=8).map(|life| drill(plan, &store, "create", life, 100, false)).collect::<Result<Vec<_>>>()?;
        children.iter_mut().try_for_each(Child::go)?;
        let mut lines = Vec::new();
        for _ in 0..random.below(6) {
            std::thread::sleep(Duration::from_micros(random.below(40_000)));
            let victim = usize::try_from(random.below(children.len() as u64)).unwrap_or(0);
            lines.extend(children.swap_remove(victim).kill());
            killed += 1;
        }
        for child in children {
            let (status, said) = child.finish()?;
            if !status.success() {
                outcome.tally.add(Rule::Misbehaved, format!("a creator ended with {status}: {:?}", said.last()));
            }
            lines.extend(said);
        }
        acked += judge_list(&store, &lines, &format!("round {round}"), &mut outcome.tally)?;
    }
    outcome.figure("rounds of 8 creators of 100 threads", rounds);
    outcome.figure("threads acked", acked);
    outcome.figure("creators killed", killed);
    let mut control = Tally::default();
    for round in 0..20 {
        let folder = plan::fast_folder()?;
        let store = folder.path().join("store");
        let mut liar = drill(plan, &store, "create", 1, 10_000, true)?;
        liar.go()?;
        liar.hear_until("A")?;
        judge_list(&store, &liar.kill(), &format!("round {round}"), &mut control)?;
        if control.count(Rule::AckedLost) > 0 {
            break;
        }
    }
    outcome.control("a creator that acknowledges before it creates", control.count(Rule::AckedLost) > 0);
    Ok(())
}

/// Compares the list with what was issued and acknowledged, and with the threads themselves; gives how many were acked.
fn judge_list(folder: &Path, lines: &[String], place: &str, tally: &mut Tally) -> Result<u64> {
    let store = Store::open(StoreOptions::folder(folder).label("list")).map_err(told)?;
    let names = |word: &str| -> BTreeSet<String> {
        lines.iter().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
    };
    let (issued, acked) = (names("I "), names("A "));
    let (mut listed, mut query) = (Vec::new(), ListQuery { limit: 64, ..ListQuery::default() });
    loop {
        let page = store.list(query.clone()).map_err(told)?;
        listed.extend(page.entries.into_iter().map(|thread| thread.id.to_string()));
        match page.next_cursor {
            None => break,
            cursor => query.cursor = cursor,
        }
    }
    let known: BTreeSet<String> = listed.iter().cloned().collect();
    if known.len() != listed.len() {
        tally.add(Rule::Duplicate, format!("{place}: {} threads are listed twice", listed.len() - known.len()));
    }
    for lost in acked.difference(&known) {
        tally.add(Rule::AckedLost, format!("{place}: {lost} is not listed"));
    }
    for phantom in known.difference(&issued) {
        tally.add(Rule::Phantom, format!("{place}: {phantom} is listed"));
    }
    for name in &issued {
        let there = store.get(&work::thread_id(name)?).is_ok();
        if there != known.contains(name) {
            tally.add(Rule::Unequal, format!("{place}: {name} is stored: {there}, and listed: {}", !there));
        }
    }
    Ok(acked.len() as u64)
}

/// B23: kills in the middle of turns: whatever names something else names something that is there.
pub(super) fn killed_turns(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let kills = plan.pick(40, 400, 2_000);
    let mut random = plan.random("killed-turns");
    let mut tally = Tally::default();
    let (mut life, mut items, mut turns) = (0, 0, 0);
    // A thread of its own for each so many kills: judging one costs with its length.
    for part in 0..kills / 20 {
        let folder = plan::fast_folder()?;
        let store = folder.path().join("store");
        let mut acked = Vec::new();
        for _ in 0..20 {
            life += 1;
            let mut child = drill(plan, &store, "turns", life, 10_000, false)?;
            child.go()?;
            let mut heard = child.hear_until("I")?;
            std::thread::sleep(Duration::from_micros(random.below(8_000)));
            heard.extend(child.kill());
            let numbers =
                heard.iter().filter_map(|line| line.strip_prefix("A turns ")?.split(' ').next()?.parse().ok());
            acked.extend(numbers.map(|number| work::item_id(life, 0, number)));
        }
        items += acked.len();
        turns += judge_turns(&store, &acked, &format!("part {part}"), &mut tally)?;
        if part == 0 {
            let mut control = Tally::default();
            tamper(&store, "DELETE FROM turns WHERE ordinal = 1")?;
            judge_turns(&store, &acked, "control", &mut control)?;
            outcome.control("a turn that is missing", !control.is_empty());
        }
    }
    outcome.tally.absorb(tally, "killed turns");
    outcome.figure("kills", kills);
    outcome.figure("items acked", items);
    outcome.figure("turns stored", turns);
    Ok(())
}

fn judge_turns(folder: &Path, acked: &[threadkeep::ItemId], place: &str, tally: &mut Tally) -> Result<usize> {
    let store = Store::open(StoreOptions::folder(folder).label("judge")).map_err(told)?;
    let id = work::thread_id("turns")?;
    let (mut turns, mut query) = (Vec::new(), TurnQuery { limit: 500, ..TurnQuery::default() });
    loop {
        let page = store.turns(&id, query.clone()).map_err(told)?;
        turns.extend(page.entries);
        match page.next_cursor {
            None => break,
            cursor => query.cursor = cursor,
        }
    }
    for turn in &turns {
        for address in [Some(turn.first), turn.last].into_iter().flatten() {
            if !store.item(&id, address).is_ok_and(|item| item.turn == Some(turn.ordinal)) {
                tally.add(Rule::Hole, format!("{place}: turn {} names {address}", turn.ordinal));
            }
        }
    }
    let running = turns.iter().filter(|turn| turn.status == TurnStatus::Running).count();
    if running > 1 {
        tally.add(Rule::Misbehaved, format!("{place}: {running} turns run"));
    }
    let ordinals: BTreeSet<i64> = turns.iter().map(|turn| turn.ordinal).collect();
    let mut there = BTreeSet::new();
    let mut query = threadkeep::ItemQuery { limit: 2_000, ..threadkeep::ItemQuery::default() };
    loop {
        let page = store.items(&id, query.clone()).map_err(told)?;
        for item in page.entries {
            if item.turn.is_none_or(|turn| !ordinals.contains(&turn)) {
                tally.add(Rule::Hole, format!("{place}: item {} names the turn {:?}", item.depth, item.turn));
            }
            there.insert(item.id);
        }
        match page.next_cursor {
            None => break,
            cursor => query.cursor = cursor,
        }
    }
    let lost = acked.iter().filter(|id| !there.contains(id)).count();
    if lost > 0 {
        tally.add(Rule::AckedLost, format!("{place}: {lost} items"));
    }
    let verdict = store.verify(&id).map_err(told)?;
    if !verdict.is_intact() {
        tally.add(Rule::Altered, format!("{place}: {:?}", verdict.invalid));
    }
    Ok(turns.len())
}

/// B25: the client dies after the commit and before its answer; another process repeats it and gets the first result. And two
/// processes use one id at once: it is stored once.
pub(in crate::suites) fn unanswered(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let rounds = plan.pick(8, 100, 500);
    let mut scene = Scene::new(plan)?;
    let mut next = scene.peer("next")?;
    make(&mut next, "unanswered")?;
    for _ in 0..rounds {
        let mut mortal = scene.peer("mortal")?;
        mortal.must("claim unanswered")?;
        let (order, ids) = scene.order("unanswered", 2);
        scene.die_after(mortal, &order)?;
        next.insist("claim unanswered")?;
        let answers = [next.must(&order)?, next.must(&order)?];
        for answer in &answers {
            if !answer.ends_with(" again") || answers.first() != Some(answer) {
                scene.tally.add(Rule::Duplicate, format!("a repeated append is answered {answers:?}"));
            }
        }
        scene.acked("unanswered", ids);
        let mut rival = scene.peer("rival")?;
        twice(&mut scene, &mut next, &mut rival)?;
        rival.finish()?;
    }
    scene.judge();
    outcome.figure("clients that died before their answer", rounds);
    outcome.figure("ids used by two at once", rounds);
    outcome.tally.absorb(scene.tally, "unanswered");
    let mut control = Scene::new(plan)?;
    let mut peer = control.peer("forgetful")?;
    make(&mut peer, "unanswered")?;
    peer.must("claim unanswered")?;
    let (order, ids) = control.order("unanswered", 1);
    peer.must(&order)?;
    control.acked("unanswered", ids);
    let (order, _) = control.order("unanswered", 1);
    peer.must(&order)?;
    control.judge();
    outcome.control("a retry under another id", !control.tally.is_empty());
    Ok(())
}

/// The holder and one who takes over from it append the same item at once.
fn twice(scene: &mut Scene<'_>, holder: &mut crate::actor::Peer, rival: &mut crate::actor::Peer) -> Result<()> {
    let (order, ids) = scene.order("unanswered", 1);
    holder.tell(&order)?;
    rival.tell("take unanswered torture")?;
    rival.tell(&order)?;
    let (first, taken, second) = (holder.answer()?, rival.answer()?, rival.answer()?);
    if !taken.is_ok() || !second.is_ok() {
        scene.tally.add(Rule::Misbehaved, format!("{}, then {} {}", taken.kind, second.kind, second.rest));
    }
    // Whose it is says whether it stands before the note of the take-over.
    match (first.kind.as_str(), first.rest.ends_with(" new"), second.rest.ends_with(" again")) {
        ("ok", true, true) => {
            scene.acked("unanswered", ids);
            scene.ledger.note("unanswered");
        }
        ("ok", false, false) | ("claim-lost", _, false) => {
            scene.ledger.note("unanswered");
            scene.acked("unanswered", ids);
        }
        _ => scene.tally.add(Rule::Duplicate, format!("one id, two answers: {first:?} and {second:?}")),
    }
    holder.must("drop unanswered")?;
    rival.must("release unanswered").map(drop)
}
