//! T01: processes that steer threads from outside, and those that are steered, are killed at random times, and the store is kept.
//!
//! In each round two holders take messages with their prompts, end them, ask for approvals and use the answers; two outsiders send
//! messages, and answer and cancel what waits, one of them from elsewhere, who tries to grant for ever first. All are killed. What
//! was in flight is told again under the same token, key or id by the judge: every message has one prompt when it was taken and
//! none before, every request one outcome, every answer one use, and both are in the chain of the thread once. What a dead holder
//! asked for waits, and is owned by nobody.

mod players;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use threadkeep::blocking::{LiveThread, Store};
use threadkeep::{
    Effect, Error, Hash, Item, ItemQuery, Kind, MessageEnd, MessageId, MessageQuery, MessageState, NewThread, Page,
    Principal, RequestId, RequestQuery, RequestState, ThreadId, Uuid, call_fingerprint,
};

pub(crate) use self::players::{Steer, play_steering};
use self::players::{message, request, take, use_it};
use crate::Result;
use crate::child::Child;
use crate::ground::{self, Ground};
use crate::oracle::{Rule, Tally};
use crate::plan::{Plan, Random};
use crate::report::{Outcome, Stop};

/// So many threads are steered, each with a holder.
const LANES: u64 = 2;
/// So many processes steer them.
const OUTSIDERS: u64 = 2;
/// With so many that wait, the judge takes what is there.
const CROWDED: usize = 150;
/// After so many violations more of them say nothing new.
const ENOUGH: u64 = 3;
/// The life of the judge, in its tokens.
const JUDGE: u64 = u64::MAX;
/// What the event of a request begins with in its thread, and what stands behind the id of one whose answer was used.
const ASKED: &str = "asked for approval ";
const USED: &str = " was answered `";

/// Runs the suite.
pub(crate) fn run(plan: &Plan, outcome: &mut Outcome) -> Result<(), Stop> {
    let kills = if plan.server.is_some() { plan.pick(24, 240, 1_000) } else { plan.pick(60, 1_000, 5_000) };
    let mut run = Run::new(plan, plan.ground()?, false)?;
    while run.kills < kills && run.tally.total() < ENOUGH {
        run.round()?;
    }
    run.drain().map_err(|error| format!("what is left can't be dealt with: {error}"))?;
    outcome.figure("kills", run.kills);
    outcome.figure("messages sent", run.sent.len());
    outcome.figure("prompts", run.prompts.len());
    outcome.figure("requests", run.asked.len());
    outcome.figure("decisions", run.winners.len());
    outcome.figure("answers used", run.used.len());
    outcome.figure("orphans", run.orphans);
    outcome.figure("in flight", run.in_flight);
    outcome.tally.absorb(run.tally, "steering");
    if outcome.tally.total() >= ENOUGH {
        return Ok(());
    }
    let mut control = Run::new(plan, plan.ground()?, true)?;
    let mut is_seen = false;
    for _ in 0..3 {
        control.round()?;
        is_seen |= control.tally.count(Rule::AckedLost) > 0;
    }
    outcome.control("outsiders that acknowledge answers they do not give".to_owned(), is_seen);
    Ok(())
}

/// What was said since the judge last looked.
#[derive(Default)]
struct Fresh {
    /// By key: the lane, and the id that was acknowledged.
    sent: BTreeMap<String, (u64, Option<MessageId>)>,
    /// By token: the lane, and what was acknowledged: a message, or that there was none.
    takes: BTreeMap<Uuid, (u64, Option<Option<MessageId>>)>,
    /// The lane, and whether it was acknowledged.
    ends: BTreeMap<MessageId, (u64, bool)>,
    asks: BTreeMap<RequestId, (u64, bool)>,
    /// The lane, the token, and whether it was acknowledged.
    uses: BTreeMap<RequestId, (u64, Uuid, bool)>,
    /// Who was told to have been first, and with what.
    won: Vec<(RequestId, String, RequestState)>,
}

struct Run<'a> {
    plan: &'a Plan,
    random: Random,
    store: PathBuf,
    _ground: Ground,
    lie: bool,
    life: u64,
    kills: u32,
    in_flight: u64,
    orphans: u64,
    tokens: u64,
    fresh: Fresh,
    /// Every message, by its key.
    sent: BTreeMap<String, MessageId>,
    /// How many prompts each message has in its thread.
    prompts: BTreeMap<MessageId, u64>,
    asked: BTreeSet<RequestId>,
    /// How often a thread says that it was asked for, and that its answer was used.
    told: BTreeMap<RequestId, (u64, u64)>,
    tried: BTreeMap<RequestId, BTreeSet<String>>,
    winners: BTreeMap<RequestId, String>,
    used: BTreeSet<RequestId>,
    /// How far each lane was read.
    read: BTreeMap<u64, u32>,
    tally: Tally,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, ground: Ground, lie: bool) -> Result<Self> {
        let store = ground.store("store");
        let begin = || -> threadkeep::Result<()> {
            let open = Store::open(ground::options(&store)?)?;
            let place = open.workspace(Path::new("/threadkeep-torture"))?;
            (0..LANES)
                .map(lane)
                .try_for_each(|id| place.create_now(NewThread { id: Some(id), ..NewThread::default() })?.shutdown())
        };
        begin().map_err(|error| format!("the store can't be begun: {error}"))?;
        Ok(Self {
            plan,
            random: plan.random("steering"),
            store,
            _ground: ground,
            lie,
            life: 0,
            kills: 0,
            in_flight: 0,
            orphans: 0,
            tokens: 0,
            fresh: Fresh::default(),
            sent: BTreeMap::new(),
            prompts: BTreeMap::new(),
            asked: BTreeSet::new(),
            told: BTreeMap::new(),
            tried: BTreeMap::new(),
            winners: BTreeMap::new(),
            used: BTreeSet::new(),
            read: BTreeMap::new(),
            tally: Tally::default(),
        })
    }

    fn round(&mut self) -> Result<()> {
        let mut players = Vec::new();
        for number in 0..LANES + OUTSIDERS {
            self.life += 1;
            let mut command = Command::new(&self.plan.program);
            command.arg("steer").arg("--store").arg(&self.store).arg("--life").arg(self.life.to_string());
            match number {
                lane if lane < LANES => drop(command.arg("--lane").arg(lane.to_string())),
                LANES => drop(command.arg("--remote")),
                _ if self.lie => drop(command.arg("--lie")),
                _ => {}
            }
            players.push((number, self.life, Child::start(command)?));
        }
        for (number, life, player) in &players {
            if let Err(words) = player.hear_until("R") {
                self.tally.add(Rule::Misbehaved, format!("player {life}, number {number}: {words}"));
            }
        }
        self.random.shuffle(&mut players);
        for (number, life, player) in players {
            std::thread::sleep(Duration::from_micros(self.random.below(120_000)));
            let mut lines = Vec::new();
            if number < LANES && self.random.below(2) == 0 {
                self.wait_for_a_take(&player, &mut lines);
            }
            lines.extend(player.kill());
            for line in &lines {
                self.hear(number, life, line);
            }
            self.kills += 1;
            ground::bury(&self.store, &label(life))?;
        }
        self.judge().map_err(|error| format!("the judge can't go on: {error}"))
    }

    /// Waits until a holder has begun to take a message, and a little longer: between its prompt and its being taken nothing may come.
    fn wait_for_a_take(&mut self, holder: &Child, lines: &mut Vec<String>) {
        lines.extend(holder.heard());
        loop {
            match holder.hear() {
                Ok(Some(line)) => {
                    let is_it = line.starts_with("B t ");
                    lines.push(line);
                    if is_it {
                        break;
                    }
                }
                Ok(None) => return,
                Err(words) => return self.tally.add(Rule::Hang, format!("a holder: {words}")),
            }
        }
        std::thread::sleep(Duration::from_micros(self.random.below(2_500)));
    }

    fn hear(&mut self, lane: u64, life: u64, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let fresh = &mut self.fresh;
        match words.as_slice() {
            ["B", "i", to, key] => {
                fresh.sent.insert((*key).to_owned(), (to.parse().unwrap_or(0), None));
            }
            ["A", "i", key, id] => {
                if let Some(sent) = fresh.sent.get_mut(*key) {
                    sent.1 = id.parse().ok();
                }
            }
            ["B", "t", token] => {
                token.parse().map(|token| fresh.takes.insert(token, (lane, None))).ok();
            }
            ["A", "t", token, id] => {
                if let Some(take) = token.parse().ok().and_then(|token: Uuid| fresh.takes.get_mut(&token)) {
                    take.1 = Some(id.parse().ok());
                }
            }
            ["B", "m", id] => {
                id.parse().map(|id| fresh.ends.insert(id, (lane, false))).ok();
            }
            ["A", "m", id] => {
                id.parse().map(|id| fresh.ends.insert(id, (lane, true))).ok();
            }
            ["B", "q", id] => {
                request_id(id).map(|id| fresh.asks.insert(id, (lane, false)));
            }
            ["A", "q", id] => {
                request_id(id).map(|id| fresh.asks.insert(id, (lane, true)));
            }
            ["B", "u", id, token] => {
                let both = request_id(id).zip(token.parse().ok());
                both.map(|(id, token)| fresh.uses.insert(id, (lane, token, false)));
            }
            ["A", "u", id] => {
                if let Some(using) = request_id(id).and_then(|id| fresh.uses.get_mut(&id)) {
                    using.2 = true;
                }
            }
            ["B", "n" | "x", id] => {
                request_id(id).map(|id| self.tried.entry(id).or_default().insert(label(life)));
            }
            ["A", what @ ("n" | "x"), id] => {
                let state = if *what == "n" { RequestState::Answered } else { RequestState::Cancelled };
                fresh.won.extend(request_id(id).map(|id| (id, label(life), state)));
            }
            ["V", id] => self.tally.add(Rule::Misbehaved, format!("{id} was granted for ever from elsewhere")),
            ["X", ..] => self.tally.add(Rule::Misbehaved, format!("player {life} without a fault: {line}")),
            _ => {}
        }
    }

    /// Compares what is stored with what was said, and tells again what was in flight.
    fn judge(&mut self) -> threadkeep::Result<()> {
        let store = Store::open(ground::options(&self.store)?.label("judge"))?;
        let fresh = std::mem::take(&mut self.fresh);
        // Looked at before the judge holds the threads.
        self.judge_requests(&store, &fresh)?;
        let lives =
            (0..LANES).map(|number| store.resume(&lane(number), false)).collect::<threadkeep::Result<Vec<_>>>()?;
        self.judge_sent(&store, &fresh)?;
        for (number, live) in (0..).zip(&lives) {
            self.judge_takes(&store, live, number, &fresh)?;
            self.judge_uses(live, number, &fresh)?;
            if store.message_queue(live.id())?.len() > CROWDED {
                self.take_all(live)?;
            }
            self.read_on(live, number)?;
        }
        self.judge_prompts(&fresh);
        for live in lives {
            live.shutdown()?;
        }
        for (thread, _) in store.verify_all(|_| {})?.invalid {
            self.tally.add(Rule::Altered, format!("{thread} does not verify"));
        }
        Ok(())
    }

    /// What was asked for is there, waits for an answer and is nobody's; who was told to have decided has.
    fn judge_requests(&mut self, store: &Store, fresh: &Fresh) -> threadkeep::Result<()> {
        for (id, (_, acked)) in &fresh.asks {
            let found = match store.request(*id) {
                Ok(found) => found,
                Err(Error::NotFound { .. }) if *acked => {
                    self.tally.add(Rule::AckedLost, format!("{id} was asked for and is not there"));
                    continue;
                }
                Err(Error::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            if found.state == RequestState::Pending {
                self.orphans += 1;
                if found.owned {
                    self.tally.add(Rule::Misbehaved, format!("{id} is owned by somebody dead"));
                }
            }
        }
        for (id, winner, state) in &fresh.won {
            let found = store.request(*id)?;
            let by = found.resolved_by.as_ref().map(|by| by.name.clone());
            if found.state != *state || by.as_ref() != Some(winner) {
                let words = format!("{id} was decided by {winner}, and is {} by {by:?}", found.state);
                self.tally.add(Rule::AckedLost, words);
            }
            if let Some(other) = self.winners.insert(*id, winner.clone()) {
                self.tally.add(Rule::Duplicate, format!("{id} was decided by {other} and by {winner}"));
            }
        }
        Ok(())
    }

    /// Every key stands for one message, told again or not.
    fn judge_sent(&mut self, store: &Store, fresh: &Fresh) -> threadkeep::Result<()> {
        for (key, (to, acked)) in &fresh.sent {
            self.in_flight += u64::from(acked.is_none());
            let found = match acked {
                Some(id) => store.message(&lane(*to), *id).map(Some),
                None => Ok(None),
            };
            if let Err(Error::NotFound { .. }) = found {
                self.tally.add(Rule::AckedLost, format!("message {key} was accepted and is not there"));
            }
            let again = store.inject_message(&lane(*to), message(key))?.id;
            if acked.is_some_and(|id| id != again) {
                self.tally.add(Rule::Duplicate, format!("message {key} is there as {acked:?} and as {again}"));
            }
            self.sent.insert(key.clone(), again);
        }
        Ok(())
    }

    /// A token stands for one message, also when it is told again by another holder; what was acted on stays so.
    fn judge_takes(&mut self, store: &Store, live: &LiveThread, number: u64, fresh: &Fresh) -> threadkeep::Result<()> {
        for (token, (_, acked)) in fresh.takes.iter().filter(|(_, (lane, _))| *lane == number) {
            // There was nothing to take: told again, it would take what has come since.
            if *acked == Some(None) {
                continue;
            }
            self.in_flight += u64::from(acked.is_none());
            let again = take(live, *token)?;
            if let Some(Some(id)) = acked
                && again.as_ref().is_none_or(|again| again.message.id != *id || !again.repeated)
            {
                self.tally.add(Rule::AckedLost, format!("{id} was taken, and told again it is {again:?}"));
            }
        }
        for (id, (_, acked)) in fresh.ends.iter().filter(|(_, (lane, _))| *lane == number) {
            let state = store.message(live.id(), *id)?.state;
            if *acked && state != MessageState::Acted {
                self.tally.add(Rule::AckedLost, format!("{id} was acted on and is {state}"));
            }
            if !*acked {
                self.in_flight += 1;
                live.end_message(*id, MessageEnd::Acted { outcome: None })?;
            }
        }
        Ok(())
    }

    /// What was in flight is asked for and used again; what was used stays so.
    fn judge_uses(&mut self, live: &LiveThread, number: u64, fresh: &Fresh) -> threadkeep::Result<()> {
        for (id, (_, acked)) in fresh.asks.iter().filter(|(_, (lane, _))| *lane == number) {
            if !*acked {
                self.in_flight += 1;
                live.ask_request(request(*id))?;
            }
            self.asked.insert(*id);
        }
        for (id, (_, token, acked)) in fresh.uses.iter().filter(|(_, (lane, ..))| *lane == number) {
            self.in_flight += u64::from(!*acked);
            match use_it(live, *id, *token) {
                Ok(used) if *acked && !used.repeated => {
                    self.tally.add(Rule::AckedLost, format!("the answer to {id} was used, and was used again"));
                }
                Ok(_) => {}
                Err(Error::Conflict { .. }) => {
                    self.tally.add(Rule::Unequal, format!("the answer to {id} can't be used under its own token"));
                }
                Err(error) => return Err(error),
            }
            if !self.used.insert(*id) {
                self.tally.add(Rule::Duplicate, format!("the answer to {id} was used under two tokens"));
            }
        }
        Ok(())
    }

    /// Reads what was written into a thread since it was last read.
    fn read_on(&mut self, live: &LiveThread, number: u64) -> threadkeep::Result<()> {
        let from = self.read.get(&number).copied().unwrap_or(0);
        let mut query = ItemQuery { from, limit: 1_000, ..ItemQuery::default() };
        loop {
            let Page { entries, next_cursor } = live.load_history(query.clone())?;
            for item in entries {
                self.read.insert(number, item.depth + 1);
                self.note(&item);
            }
            match next_cursor {
                None => return Ok(()),
                cursor => query.cursor = cursor,
            }
        }
    }

    /// Counts a prompt by its message, and an event by its request.
    fn note(&mut self, item: &Item) {
        let message = item.source_id.as_deref().and_then(|id| id.strip_prefix("inbox:")?.parse().ok());
        if let Some(id) = message {
            *self.prompts.entry(id).or_default() += 1;
        }
        if item.kind != Kind::Event {
            return;
        }
        let text = String::from_utf8_lossy(&item.content);
        if let Some(id) = text.split_once(ASKED).and_then(|(_, rest)| request_id(rest.get(..36)?)) {
            self.told.entry(id).or_default().0 += 1;
        } else if let Some(id) = text.split_once(USED).and_then(|(before, _)| request_id(before.rsplit(' ').next()?)) {
            self.told.entry(id).or_default().1 += 1;
        }
    }

    fn judge_prompts(&mut self, fresh: &Fresh) {
        for (id, count) in self.prompts.iter().filter(|(_, count)| **count > 1) {
            self.tally.add(Rule::Duplicate, format!("{id} has {count} prompts"));
        }
        let taken = fresh.takes.values().filter_map(|(_, acked)| acked.flatten());
        for id in taken.filter(|id| !self.prompts.contains_key(id)) {
            self.tally.add(Rule::AckedLost, format!("{id} was taken and has no prompt"));
        }
    }

    /// Takes all that waits, and ends all that was taken.
    fn take_all(&mut self, live: &LiveThread) -> threadkeep::Result<()> {
        loop {
            self.tokens += 1;
            let Some(taken) = take(live, Uuid::from_u64_pair(JUDGE, self.tokens))? else { return Ok(()) };
            live.end_message(taken.message.id, MessageEnd::Acted { outcome: None })?;
        }
    }

    /// Deals with what is left, and looks at everything.
    fn drain(&mut self) -> threadkeep::Result<()> {
        let store = Store::open(ground::options(&self.store)?.label("drain"))?;
        let mut messages = BTreeSet::new();
        for number in 0..LANES {
            let live = store.resume(&lane(number), false)?;
            self.take_all(&live)?;
            let mut query = MessageQuery { limit: 1_000, ..MessageQuery::default() };
            loop {
                let Page { entries, next_cursor } = store.messages(live.id(), query.clone())?;
                for found in entries {
                    messages.insert(found.id);
                    if matches!(found.state, MessageState::Taken | MessageState::Delivered) {
                        live.end_message(found.id, MessageEnd::Acted { outcome: None })?;
                    } else if found.state != MessageState::Acted {
                        self.tally.add(Rule::Hole, format!("{} is {} at the end", found.id, found.state));
                    }
                }
                match next_cursor {
                    None => break,
                    cursor => query.cursor = cursor,
                }
            }
            self.finish_requests(&store, &live)?;
            self.read_on(&live, number)?;
            live.shutdown()?;
        }
        self.compare(&messages);
        Ok(())
    }

    /// Cancels what waits, uses what was answered, and looks at what became of each.
    fn finish_requests(&mut self, store: &Store, live: &LiveThread) -> threadkeep::Result<()> {
        let mut query =
            RequestQuery { thread: Some(live.id().clone()), ascending: true, limit: 1_000, ..RequestQuery::default() };
        loop {
            let Page { entries, next_cursor } = store.requests(query.clone())?;
            for found in entries {
                let by = found.resolved_by.map(|by| by.name);
                match found.state {
                    RequestState::Pending => drop(store.cancel_request(found.id, Principal::local("drain"), None)?),
                    RequestState::Answered if found.consumed_at.is_none() => {
                        self.tokens += 1;
                        use_it(live, found.id, Uuid::from_u64_pair(JUDGE, self.tokens))?;
                        self.used.insert(found.id);
                    }
                    RequestState::Answered if !self.used.contains(&found.id) => {
                        self.tally.add(Rule::Phantom, format!("the answer to {} was used by nobody", found.id));
                    }
                    _ => {}
                }
                if found.answer.is_some_and(|answer| answer.effect != Effect::AllowOnce) {
                    self.tally.add(Rule::Phantom, format!("{} grants what nobody granted", found.id));
                }
                let has_tried = |by: &String| self.tried.get(&found.id).is_some_and(|tried| tried.contains(by));
                if by.as_ref().is_some_and(|by| !has_tried(by)) {
                    self.tally.add(Rule::Phantom, format!("{} was decided by {by:?}, who did not try", found.id));
                }
                if !self.asked.contains(&found.id) {
                    self.tally.add(Rule::Phantom, format!("{} was asked for by nobody", found.id));
                }
            }
            match next_cursor {
                None => return Ok(()),
                cursor => query.cursor = cursor,
            }
        }
    }

    fn compare(&mut self, messages: &BTreeSet<MessageId>) {
        let sent: BTreeSet<MessageId> = self.sent.values().copied().collect();
        let prompted: BTreeSet<MessageId> = self.prompts.keys().copied().collect();
        if sent.len() != self.sent.len() || sent != *messages || prompted != *messages {
            let words = format!(
                "{} keys are {} messages; {} are there, with prompts for {}",
                self.sent.len(),
                sent.len(),
                messages.len(),
                prompted.len()
            );
            self.tally.add(Rule::Unequal, words);
        }
        self.judge_prompts(&Fresh::default());
        for id in &self.asked {
            let (asked, used) = self.told.get(id).copied().unwrap_or_default();
            if asked != 1 || used != u64::from(self.used.contains(id)) {
                let words =
                    format!("the thread says {asked} times that {id} was asked for, and {used} times that it was used");
                self.tally.add(if asked > 1 || used > 1 { Rule::Duplicate } else { Rule::Hole }, words);
            }
        }
    }
}

/// The fingerprint of the call that a request is about.
fn call(id: RequestId) -> Hash {
    call_fingerprint(id.as_bytes())
}

fn request_id(text: &str) -> Option<RequestId> {
    text.parse().ok().map(RequestId::from_uuid)
}

fn label(life: u64) -> String {
    format!("steer-{life}")
}

#[expect(clippy::expect_used, reason = "the names are written here")]
fn lane(number: u64) -> ThreadId {
    ThreadId::new(format!("lane-{number}")).expect("a name of a thread")
}
