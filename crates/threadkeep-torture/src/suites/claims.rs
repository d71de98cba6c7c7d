//! T10: one live writer per thread, whatever happens to the processes: who gets a claim, who keeps it, who replaces the dead.

mod places;

pub(crate) use places::{Renumber, play_renumber};

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use threadkeep::ItemId;

use crate::Result;
use crate::actor::{Peer, monotonic};
use crate::checker::{self, Depth, Findings};
use crate::ground::{self, Ground, tamper};
use crate::oracle::{Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};
use crate::work;

/// How many processes stand at one barrier.
const BARRIERS: [u64; 6] = [2, 4, 8, 16, 32, 64];
/// How many items a taker writes while the old holder is stopped.
const TAKEN: u64 = 10;
/// Long enough for every process to have read its order, on a loaded machine too.
const NOTICE: u64 = 4_000_000;

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let mut scene = Scene::new(plan)?;
    let played = play(&mut scene, outcome);
    scene.judge();
    outcome.figure("items acked", scene.ledger.acked);
    outcome.figure("stale appends refused", scene.ledger.refused.len());
    outcome.tally.absorb(scene.tally, "claims");
    played?;
    controls(plan, outcome)?;
    Ok(())
}

fn play(scene: &mut Scene<'_>, outcome: &mut Outcome) -> Result<()> {
    let plan = scene.plan;
    barriers(scene, outcome, plan.pick(2, 34, 167))?;
    stops(scene, outcome, plan.pick(6, 100, 500))?;
    deaths(scene, outcome, plan.pick(8, 100, 200))?;
    hand_overs(scene, outcome, plan.pick(4, 60, 200))?;
    removals(scene, outcome, plan.pick(6, 100, 200))?;
    reserves(scene, outcome, plan.pick(6, 100, 200))?;
    places::run(scene, outcome, plan.pick(2, 25, 100))
}

/// What must stand in threads that several processes wrote in turns.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The items of each thread in order; `None` is the note of a take-over.
    pub(super) threads: BTreeMap<String, Vec<Option<ItemId>>>,
    pub(super) refused: BTreeSet<ItemId>,
    pub(super) acked: u64,
}

impl Ledger {
    pub(super) fn note(&mut self, thread: &str) {
        self.threads.entry(thread.to_owned()).or_default().push(None);
    }

    fn judge(&self, findings: &Findings, tally: &mut Tally) {
        for (thread, expected) in &self.threads {
            let found = findings.items.get(thread).map_or(&[][..], Vec::as_slice);
            let known: BTreeSet<ItemId> = expected.iter().flatten().copied().collect();
            let mut order = Vec::new();
            let mut epoch = 0;
            for item in found {
                if self.refused.contains(&item.id) {
                    tally.add(Rule::StaleWriter, format!("{thread}@{} was refused, and is there", item.depth));
                }
                if item.epoch < epoch {
                    let words = format!("{thread}@{}: epoch {} after {epoch}", item.depth, item.epoch);
                    tally.add(Rule::StaleWriter, words);
                }
                epoch = item.epoch;
                order.push(known.contains(&item.id).then_some(item.id));
            }
            let there: BTreeSet<ItemId> = order.iter().flatten().copied().collect();
            let lost = known.difference(&there).count();
            if lost > 0 {
                tally.add(Rule::AckedLost, format!("{thread}: {lost} items"));
            } else if order.len() > expected.len() {
                tally.add(Rule::Phantom, format!("{thread}: {} items, {} were written", order.len(), expected.len()));
            } else if order != *expected {
                tally.add(Rule::Hole, format!("{thread}: another order, or a note of a take-over is missing"));
            }
        }
    }
}

/// A store, and what is known of it.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) plan: &'a Plan,
    ground: Ground,
    pub(super) random: Random,
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    /// The number of the next item.
    next: u64,
}

impl<'a> Scene<'a> {
    pub(super) fn new(plan: &'a Plan) -> Result<Self> {
        let (ground, random) = (plan.ground()?, plan.random("claims"));
        Ok(Self { plan, ground, random, ledger: Ledger::default(), tally: Tally::default(), next: 0 })
    }

    pub(super) fn store(&self) -> PathBuf {
        self.ground.store("store")
    }

    pub(super) fn peer(&self, label: &str) -> Result<Peer> {
        Peer::plain(self.plan, &self.store(), label)
    }

    pub(super) fn order(&mut self, thread: &str, size: u64) -> (String, Vec<ItemId>) {
        let (first, ids) = (self.next, (self.next..self.next + size).map(|number| work::item_id(1, 0, number)));
        self.next += size;
        (format!("append {thread} 1 0 {first} {size}"), ids.collect())
    }

    pub(super) fn acked(&mut self, thread: &str, ids: Vec<ItemId>) {
        self.ledger.acked += ids.len() as u64;
        self.ledger.threads.entry(thread.to_owned()).or_default().extend(ids.into_iter().map(Some));
    }

    /// Appends as the holder; must succeed.
    pub(super) fn append(&mut self, peer: &mut Peer, thread: &str, size: u64) -> Result<()> {
        let (order, ids) = self.order(thread, size);
        let answer = peer.ask(&order)?;
        match answer.is_ok() {
            true => self.acked(thread, ids),
            false => {
                self.tally.add(Rule::Misbehaved, format!("the holder's append: {} {}", answer.kind, answer.rest));
            }
        }
        Ok(())
    }

    /// Takes a thread over; must succeed, and leaves a note.
    fn take(&mut self, peer: &mut Peer, thread: &str) -> Result<()> {
        peer.must(&format!("take {thread} torture"))?;
        self.ledger.note(thread);
        Ok(())
    }

    /// Judges the answer to an append of a holder that lost its claim: refused as that, and its items given back.
    fn lost(&mut self, peer: &mut Peer, thread: &str, ids: &[ItemId]) -> Result<()> {
        let answer = peer.answer()?;
        match answer.kind.as_str() {
            "claim-lost" => {}
            "ok" => self.tally.add(Rule::StaleWriter, format!("{thread}: an append after a take-over was accepted")),
            kind => self.tally.add(Rule::Misbehaved, format!("a lost claim is told as {kind}: {}", answer.rest)),
        }
        let back = peer.must(&format!("unsaved {thread}"))?;
        let expected: Vec<String> = ids.iter().map(ItemId::to_string).collect();
        if back != expected.join(",") {
            self.tally.add(Rule::Misbehaved, format!("{} items given back as `{back}`", ids.len()));
        }
        self.ledger.refused.extend(ids);
        peer.must(&format!("drop {thread}")).map(drop)
    }

    /// Tries to claim what a living process holds: it must be refused, and told who that is.
    pub(super) fn refuse(&mut self, peer: &mut Peer, thread: &str, holder: &str) -> Result<()> {
        let answer = peer.ask(&format!("claim {thread}"))?;
        if answer.is_ok() {
            self.tally.add(Rule::TwoWriters, format!("{thread} was stolen from {holder}"));
        } else if answer.kind != "claim-held" || !answer.rest.ends_with(&format!(" {holder}")) {
            let words = format!("{thread} is held by {holder}, and that is told as {}: {}", answer.kind, answer.rest);
            self.tally.add(Rule::Misbehaved, words);
        }
        Ok(())
    }

    /// Kills a process, which counts as dead then.
    pub(super) fn kill(&self, peer: Peer) -> Result<()> {
        let label = peer.label.clone();
        peer.kill();
        ground::bury(&self.store(), &label)
    }

    /// The same for one that dies between a commit and its answer.
    pub(super) fn die_after(&self, peer: Peer, order: &str) -> Result<()> {
        let label = peer.label.clone();
        peer.die_after(order)?;
        ground::bury(&self.store(), &label)
    }

    pub(super) fn judge(&mut self) {
        let threads: Vec<(String, u64)> = self.ledger.threads.keys().map(|thread| (thread.clone(), 0)).collect();
        let depth = Depth { verify: true, integrity: true, ..Depth::default() };
        if let Some(findings) = checker::look(self.plan, &self.store(), &threads, depth, &mut self.tally) {
            self.ledger.judge(&findings, &mut self.tally);
        }
    }
}

/// Makes a thread that nobody holds, or leaves one as it is.
pub(super) fn make(peer: &mut Peer, thread: &str) -> Result<()> {
    peer.must(&format!("new {thread}"))?;
    peer.must(&format!("release {thread}")).map(drop)
}

/// All claim one thread at the same moment: one gets it, the others are told who and write nothing. Every other time the
/// thread's last holder was killed just before, while somebody else looks at the thread.
fn barriers(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let (mut claims, mut bytes) = (0, 0);
    for size in BARRIERS {
        let mut peers = (0..size).map(|number| scene.peer(&format!("rival-{number}"))).collect::<Result<Vec<_>>>()?;
        let mut watcher = scene.peer("watcher")?;
        for round in 0..rounds {
            let thread = format!("barrier-{size}-{round}");
            make(&mut watcher, &thread)?;
            if round % 2 == 1 {
                let mut victim = scene.peer("victim")?;
                victim.must(&format!("claim {thread}"))?;
                scene.append(&mut victim, &thread, 1)?;
                scene.kill(victim)?;
            }
            let at = monotonic() + NOTICE + size * 100_000;
            watcher.tell(&format!("watch {thread} {}", at + NOTICE))?;
            bytes += scene.barrier(&mut peers, &thread, at)?;
            watcher.answer()?;
            claims += size;
        }
        peers.into_iter().try_for_each(Peer::finish)?;
    }
    outcome.figure("barriers of 2 to 64", rounds * BARRIERS.len() as u64);
    outcome.figure("claims at them", claims);
    if !ground::is_remote(&scene.store()) {
        outcome.figure("bytes written by losers", bytes);
    }
    Ok(())
}

impl Scene<'_> {
    /// One barrier; the winner writes and lets go. Gives the bytes that losers wrote.
    fn barrier(&mut self, peers: &mut [Peer], thread: &str, at: u64) -> Result<u64> {
        for peer in peers.iter_mut() {
            peer.tell(&format!("at {at} claim {thread}"))?;
        }
        let answers = peers.iter().map(Peer::answer).collect::<Result<Vec<_>>>()?;
        let winners: Vec<usize> = (0..).zip(&answers).filter(|(_, it)| it.is_ok()).map(|(place, _)| place).collect();
        let [winner] = winners.as_slice() else {
            let rule = if winners.is_empty() { Rule::Misbehaved } else { Rule::TwoWriters };
            self.tally.add(rule, format!("{} of {} get {thread}", winners.len(), peers.len()));
            for place in winners {
                if let Some(peer) = peers.get_mut(place) {
                    peer.must(&format!("drop {thread}"))?;
                }
            }
            return Ok(0);
        };
        let Some(holder) = peers.get_mut(*winner) else { return Ok(0) };
        let mut bytes = 0;
        for answer in answers.iter().filter(|answer| !answer.is_ok()) {
            let words: Vec<&str> = answer.rest.splitn(4, ' ').collect();
            let named = match words.as_slice() {
                [pid, host, since, label] => {
                    *pid == holder.pid.to_string()
                        && !host.is_empty()
                        && since.parse::<i64>().is_ok_and(|since| since > 0)
                        && *label == holder.label
                }
                _ => false,
            };
            if answer.kind != "claim-held" || !named {
                let words = format!("{} holds {thread}: {} {}", holder.label, answer.kind, answer.rest);
                self.tally.add(Rule::Misbehaved, words);
            }
            bytes += answer.bytes;
        }
        // On a server asking is writing to a socket.
        if bytes > 0 && !ground::is_remote(&self.store()) {
            self.tally.add(Rule::Misbehaved, format!("{thread}: those who were refused wrote {bytes} bytes"));
        }
        self.append(holder, thread, 1)?;
        holder.must(&format!("release {thread}"))?;
        Ok(bytes)
    }
}

/// A holder is stopped, taken over and let go on, now and then with an append already on its way to it.
fn stops(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let thread = "stopped";
    let (mut holder, mut taker) = (scene.peer("one")?, scene.peer("two")?);
    make(&mut taker, thread)?;
    holder.must(&format!("claim {thread}"))?;
    for _ in 0..rounds {
        scene.append(&mut holder, thread, 2)?;
        holder.stop();
        scene.refuse(&mut taker, thread, &holder.label)?;
        let (late, ids) = scene.order(thread, 3);
        let early = scene.random.below(2) == 0;
        if early {
            holder.tell(&late)?;
        }
        scene.take(&mut taker, thread)?;
        for _ in 0..TAKEN {
            scene.append(&mut taker, thread, 1)?;
        }
        holder.go_on();
        if !early {
            holder.tell(&late)?;
        }
        // While the old holder tries.
        scene.append(&mut taker, thread, 1)?;
        scene.lost(&mut holder, thread, &ids)?;
        std::mem::swap(&mut holder, &mut taker);
    }
    outcome.figure("stopped and taken over", rounds);
    holder.finish().and_then(|()| taker.finish())
}

/// A holder is killed, and the next one goes on.
fn deaths(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let thread = "deaths";
    let mut next = scene.peer("next")?;
    make(&mut next, thread)?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let mut holder = scene.peer(&format!("mortal-{round}"))?;
        holder.must(&format!("claim {thread}"))?;
        scene.append(&mut holder, thread, 2)?;
        scene.refuse(&mut next, thread, &holder.label)?;
        scene.kill(holder)?;
        times.push(next.insist(&format!("claim {thread}"))?);
        scene.append(&mut next, thread, 1)?;
        next.must(&format!("release {thread}"))?;
    }
    times.sort_unstable();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
    let millis = |share| at(share).map_or(0.0, |time: &Duration| time.as_secs_f64() * 1_000.0);
    outcome.figure("holders killed", rounds);
    let words = format!("{:.1}/{:.1}/{:.1}", millis(50), millis(99), millis(100));
    outcome.figure("resumed after, ms p50/p99/max", words);
    next.finish()
}

/// A holder that is asked hands over at the end of its turn; one that closes or drops its handle lets go at once.
fn hand_overs(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let thread = "handed";
    let (mut holder, mut asker) = (scene.peer("one")?, scene.peer("two")?);
    make(&mut asker, thread)?;
    let mut longest = Duration::ZERO;
    holder.must(&format!("claim {thread}"))?;
    for _ in 0..rounds {
        let number = scene.next;
        scene.next += 1;
        holder.must(&format!("begin {thread} 1 0 {number}"))?;
        scene.acked(thread, vec![work::item_id(1, 0, number)]);
        asker.must(&format!("ask {thread}"))?;
        scene.refuse(&mut asker, thread, &holder.label)?;
        scene.append(&mut holder, thread, 1)?;
        let ended = holder.must(&format!("end {thread}"))?;
        if ended != format!("handed-over {}", asker.label) {
            scene.tally.add(Rule::Misbehaved, format!("a turn ended with `{ended}` though the thread was asked for"));
        }
        let (late, ids) = scene.order(thread, 1);
        let answer = holder.ask(&late)?;
        scene.ledger.refused.extend(ids);
        if answer.kind != "closed" {
            scene.tally.add(Rule::StaleWriter, format!("a handle that was handed over answers {}", answer.kind));
        }
        holder.must(&format!("drop {thread}"))?;
        asker.must(&format!("claim {thread}"))?;
        scene.append(&mut asker, thread, 1)?;
        asker.must(&format!("release {thread}"))?;
        holder.must(&format!("claim {thread}"))?;
        holder.must(&format!("drop {thread}"))?;
        // Nobody waits for the release of a handle that is dropped.
        longest = longest.max(asker.insist(&format!("claim {thread}"))?);
        std::mem::swap(&mut holder, &mut asker);
    }
    outcome.figure("handed over, closed, dropped", rounds);
    outcome.figure("longest until a dropped handle let go, ms", format!("{:.1}", longest.as_secs_f64() * 1_000.0));
    holder.finish().and_then(|()| asker.finish())
}

/// What a live holder keeps others from, and what it does not; and a deletion at the same moment as a claim.
fn removals(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let thread = "removed";
    let (mut holder, mut other) = (scene.peer("holder")?, scene.peer("other")?);
    make(&mut holder, thread)?;
    holder.must(&format!("claim {thread}"))?;
    scene.append(&mut holder, thread, 1)?;
    for order in ["delete", "purge"] {
        let answer = other.ask(&format!("{order} {thread}"))?;
        if answer.kind != "claim-held" || !answer.rest.ends_with(" holder") {
            scene.tally.add(Rule::Misbehaved, format!("{order} of a live thread: {} {}", answer.kind, answer.rest));
        }
    }
    for order in ["read removed", "get removed", "fork removed fork", "archive removed", "unarchive removed"] {
        other.must(order)?;
    }
    other.must("claim fork")?;
    scene.append(&mut holder, thread, 1)?;
    holder.must(&format!("release {thread}"))?;
    let mut deleted = 0;
    for _ in 0..rounds {
        let at = monotonic() + NOTICE;
        // Neither is the first each time.
        let (lead, trail) = (scene.random.below(600_000), scene.random.below(600_000));
        holder.tell(&format!("at {} claim {thread}", at + lead))?;
        other.tell(&format!("at {} delete {thread}", at + trail))?;
        let (claimed, gone) = (holder.answer()?, other.answer()?);
        match (claimed.kind.as_str(), gone.kind.as_str()) {
            ("ok", "claim-held") => scene.append(&mut holder, thread, 1)?,
            ("not-found", "ok") => deleted += 1,
            (claimed, gone) => {
                scene.tally.add(Rule::TwoWriters, format!("a claim and a deletion at once: {claimed} and {gone}"));
            }
        }
        if claimed.is_ok() {
            holder.must(&format!("drop {thread}"))?;
        }
        if gone.is_ok() {
            other.must(&format!("restore {thread}"))?;
        }
    }
    outcome.figure("claims and deletions at once", format!("{rounds}, {deleted} of them deleted"));
    holder.finish().and_then(|()| other.finish())
}

/// Several reserve sets of threads that overlap: each gets all of its set or none, and nothing stays taken.
fn reserves(scene: &mut Scene<'_>, outcome: &mut Outcome, rounds: u64) -> Result<()> {
    let threads: Vec<String> = (0..6).map(|number| format!("set-{number}")).collect();
    let mut peers = (0..6).map(|number| scene.peer(&format!("reserver-{number}"))).collect::<Result<Vec<_>>>()?;
    let mut all = scene.peer("all")?;
    for thread in &threads {
        make(&mut all, thread)?;
    }
    let mut won = 0;
    for _ in 0..rounds {
        let at = monotonic() + NOTICE;
        let mut sets = Vec::new();
        for peer in &mut peers {
            let mut set = threads.clone();
            scene.random.shuffle(&mut set);
            set.truncate(3);
            peer.tell(&format!("at {at} reserve {}", set.join(" ")))?;
            sets.push(set);
        }
        let answers = peers.iter().map(Peer::answer).collect::<Result<Vec<_>>>()?;
        let mut taken = BTreeSet::new();
        let mut winners = 0;
        for ((peer, set), answer) in peers.iter_mut().zip(&sets).zip(&answers) {
            match answer.kind.as_str() {
                "ok" => {
                    winners += 1;
                    for thread in set {
                        if !taken.insert(thread) {
                            scene.tally.add(Rule::TwoWriters, format!("{thread} was reserved twice"));
                        }
                        scene.append(peer, thread, 1)?;
                    }
                }
                "claim-held" => {}
                kind => scene.tally.add(Rule::Misbehaved, format!("reserve: {kind} {}", answer.rest)),
            }
        }
        if winners == 0 {
            scene.tally.add(Rule::Misbehaved, "of six who reserve in one order nobody gets all");
        }
        won += winners;
        for ((peer, set), _) in peers.iter_mut().zip(&sets).zip(&answers).filter(|(_, answer)| answer.is_ok()) {
            set.iter().try_for_each(|thread| peer.must(&format!("release {thread}")).map(drop))?;
        }
        // Whoever got less than all gives it back by itself.
        all.insist(&format!("reserve {}", threads.join(" ")))?;
        threads.iter().try_for_each(|thread| all.must(&format!("release {thread}")).map(drop))?;
    }
    outcome.figure("sets reserved at once", format!("{} by six, {won} had all of it", rounds * 6));
    peers.into_iter().try_for_each(Peer::finish)?;
    all.finish()
}

/// What a store without fences would do must be seen.
fn controls(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let mut scene = Scene::new(plan)?;
    let (mut holder, mut taker) = (scene.peer("holder")?, scene.peer("taker")?);
    make(&mut holder, "stale")?;
    holder.must("claim stale")?;
    scene.append(&mut holder, "stale", 1)?;
    scene.take(&mut taker, "stale")?;
    scene.append(&mut taker, "stale", 1)?;
    // Somebody sets the epoch back, and so the stale holder's append is let through.
    tamper(&scene.store(), "UPDATE threads SET epoch = epoch - 1 WHERE id = 'stale'")?;
    let (order, ids) = scene.order("stale", 1);
    scene.ledger.refused.extend(ids);
    holder.must(&order)?;
    tamper(&scene.store(), "UPDATE threads SET epoch = epoch + 1 WHERE id = 'stale'")?;
    scene.append(&mut taker, "stale", 1)?;
    scene.judge();
    outcome.control("a stale holder whose append is let through", scene.tally.count(Rule::StaleWriter) > 0);

    let mut scene = Scene::new(plan)?;
    let mut peers = vec![scene.peer("one")?, scene.peer("two")?];
    if let Some(peer) = peers.first_mut() {
        make(peer, "stolen")?;
    }
    if let [one, two] = peers.as_mut_slice() {
        one.must("claim stolen")?;
        tamper(&scene.store(), "DELETE FROM claims WHERE thread = 'stolen'")?;
        scene.refuse(two, "stolen", "one")?;
    }
    outcome.control("a claim that its holder's row does not keep", scene.tally.count(Rule::TwoWriters) > 0);
    Ok(())
}
